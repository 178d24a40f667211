/* Prompts to tokens: rows are read, then go on together, a token each at a time. */
#include "core/infer/generate.h"

#include "core/base/clock.h"
#include "core/base/str.h"
#include "core/llama/decoder.h"

#include <stdlib.h>

struct row {
    size_t prompt;
    int made;     /* its tokens so far */
    int32_t last; /* of them */
};

struct state {
    const struct tern_infer_generation *g;
    const struct tern_infer_prompt *prompts;
    struct tern_llama_decoder *decoder;
    struct tern_infer_sampler *sampler;
    tern_real *logits; /* [batch,V] */
    struct row *rows;  /* [batch] of the decoder */
    int *busy;         /* [batch] rows under way, `n_busy` of them */
    int *idle;         /* [batch] the others */
    int n_busy, n_idle, vocab;
    int32_t *ids; /* [batch] */
    struct tern_infer_rates rates;
};

static bool is_eos(const struct tern_infer_generation *g, int32_t id)
{
    for (int i = 0; i < g->n_eos; i++)
        if (g->eos[i] == id)
            return true;
    return false;
}

static bool asked_to_stop(const struct state *s)
{
    return s->g->stop && *s->g->stop;
}

/* Draw a row's next token and give it out: 1 when the row has ended. */
static int take(struct state *s, int row, const tern_real *logits, struct tern_err *err)
{
    const struct tern_infer_generation *g = s->g;
    struct row *r = &s->rows[row];
    const struct tern_infer_prompt *p = &s->prompts[r->prompt];
    int32_t id = tern_infer_sample(s->sampler, logits, p->stream, (uint64_t)r->made, err);

    if (id < 0)
        return -1;
    r->last = id;
    r->made++;
    int rc = g->token(g->ctx, r->prompt, id,
                      g->logprobs ? tern_infer_logprob(logits, s->vocab, id) : 0, err);
    if (rc < 0)
        return -1;
    enum tern_infer_end why = is_eos(g, id)                    ? TERN_INFER_EOS
                              : rc > 0                         ? TERN_INFER_STOPPED
                              : r->made == g->max_tokens       ? TERN_INFER_TOKENS
                              : p->n + r->made >= g->positions ? TERN_INFER_CONTEXT
                                                               : TERN_INFER_GIVEN_UP;
    if (why == TERN_INFER_GIVEN_UP)
        return 0;
    return g->end(g->ctx, r->prompt, why, err) < 0 ? -1 : 1;
}

/* Read a prompt into an idle row, and draw its first token.  1: a stop request came. */
static int begin(struct state *s, size_t prompt, struct tern_err *err)
{
    const struct tern_infer_prompt *p = &s->prompts[prompt];
    const int row = s->idle[s->n_idle - 1];
    const int64_t since = tern_clock_boot_ns();

    tern_llama_decoder_clear(s->decoder, row);
    s->rows[row] = (struct row){.prompt = prompt};
    for (int at = 0; at < p->n; at += TERN_LLAMA_PIECE) {
        int n = p->n - at < TERN_LLAMA_PIECE ? p->n - at : TERN_LLAMA_PIECE;
        if (asked_to_stop(s))
            return 1;
        if (tern_llama_decoder_read(s->decoder, row, p->ids + at, n,
                                    at + n == p->n ? s->logits : NULL, err) < 0)
            return -1;
        s->rates.read += (uint64_t)n;
    }
    s->rates.read_s += (double)(tern_clock_boot_ns() - since) * 1e-9;
    int rc = take(s, row, s->logits, err);
    if (rc == 0) {
        s->n_idle--;
        s->busy[s->n_busy++] = row;
    }
    return rc < 0 ? -1 : 0;
}

/* One token in each row under way. */
static int step(struct state *s, struct tern_err *err)
{
    const int64_t since = tern_clock_boot_ns();
    const int n = s->n_busy;

    for (int i = 0; i < n; i++)
        s->ids[i] = s->rows[s->busy[i]].last;
    if (tern_llama_decoder_step(s->decoder, s->busy, s->ids, n, s->logits, err) < 0)
        return -1;
    s->rates.made += (uint64_t)n;
    s->n_busy = 0;
    for (int i = 0; i < n; i++) {
        int row = s->busy[i];
        int rc = take(s, row, s->logits + (size_t)i * (size_t)s->vocab, err);
        if (rc < 0)
            return -1;
        if (rc > 0)
            s->idle[s->n_idle++] = row;
        else
            s->busy[s->n_busy++] = row;
    }
    s->rates.made_s += (double)(tern_clock_boot_ns() - since) * 1e-9;
    return 0;
}

static int go(struct state *s, size_t n, struct tern_err *err)
{
    size_t next = 0;

    while (next < n || s->n_busy > 0) {
        int rc = 0;
        if (asked_to_stop(s))
            return 1;
        while (rc == 0 && next < n && s->n_idle > 0)
            rc = begin(s, next++, err);
        if (rc != 0)
            return rc;
        if (s->n_busy > 0 && step(s, err) < 0)
            return -1;
    }
    return 0;
}

/* Prompts under way, at a stop request. */
static int give_up(struct state *s, struct tern_err *err)
{
    for (int i = 0; i < s->n_busy; i++)
        if (s->g->end(s->g->ctx, s->rows[s->busy[i]].prompt, TERN_INFER_GIVEN_UP, err) < 0)
            return -1;
    return 1;
}

int tern_infer_generate(struct tern_llama *m, const struct tern_infer_generation *g,
                        const struct tern_infer_prompt *prompts, size_t n,
                        struct tern_infer_rates *ret_rates, struct tern_err *err)
{
    const size_t batch = (size_t)g->batch;
    const int V = tern_llama_config(m)->vocab;
    struct state s = {.g = g, .prompts = prompts, .vocab = V, .n_idle = g->batch};
    int rc = -1;

    s.rows = tern_alloc(batch, sizeof *s.rows, "rows", err);
    s.busy = tern_alloc(batch, sizeof *s.busy, "rows", err);
    s.idle = tern_alloc(batch, sizeof *s.idle, "rows", err);
    s.ids = tern_alloc(batch, sizeof *s.ids, "rows", err);
    s.logits = tern_alloc(batch * (size_t)V, sizeof *s.logits, "logits", err);
    s.sampler = tern_infer_sampler_new(&g->sampling, V, err);
    s.decoder = tern_llama_decoder_new(m, g->batch, g->positions, err);
    if (s.rows && s.busy && s.idle && s.ids && s.logits && s.sampler && s.decoder) {
        for (int i = 0; i < g->batch; i++)
            s.idle[i] = g->batch - 1 - i;
        rc = go(&s, n, err);
        if (rc == 1)
            rc = give_up(&s, err);
        *ret_rates = s.rates;
    }
    tern_llama_decoder_free(s.decoder);
    tern_infer_sampler_free(s.sampler);
    free(s.logits);
    free(s.ids);
    free(s.idle);
    free(s.busy);
    free(s.rows);
    return rc;
}

uint64_t tern_infer_generate_bytes(const struct tern_model_config *c, int batch, int positions,
                                   int threads, uint64_t *ret_cache)
{
    const struct tern_llama_decoder_bytes bytes =
        tern_llama_decoder_bytes(c, batch, positions, threads);

    *ret_cache = bytes.cache;
    return bytes.scratch + (uint64_t)batch * (uint64_t)c->vocab * sizeof(tern_real) +
           (uint64_t)c->vocab * (sizeof(double) + 2 * sizeof(int32_t));
}

#include "core/infer/infer.h"

#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/convert/convert.h"

#include <stdlib.h>
#include <string.h>

/* Does the source hold every tensor of its config? */
static int check_tensors(const struct tern_infer_source *s, struct tern_err *err)
{
    char name[TERN_CKPT_NAME_MAX + 1];

    for (size_t i = 0; i < tern_model_tensors(&s->config); i++) {
        struct tern_model_tensor t;
        struct tern_ckpt_info info;
        tern_model_tensor(&s->config, i, &t);
        snprintf(name, sizeof name, "%s%s", s->prefix, t.name);
        if (!tern_ckpt_find(s->ckpt, name, &info))
            return tern_err_set(err, TERN_USAGE,
                                "%s: has no tensor '%s', which its config.json "
                                "asks for.",
                                tern_ckpt_path(s->ckpt), name);
        bool same = info.ndim == t.ndim;
        for (int d = 0; same && d < t.ndim; d++)
            same = info.shape[d] == (uint64_t)t.shape[d];
        if (!same)
            return tern_err_set(err, TERN_USAGE,
                                "%s: tensor '%s' has another shape (%llu x %llu) "
                                "than its config.json says (%lld x %lld).",
                                tern_ckpt_path(s->ckpt), name, (unsigned long long)info.shape[0],
                                info.ndim > 1 ? (unsigned long long)info.shape[1] : 1ull,
                                (long long)t.shape[0], t.ndim > 1 ? (long long)t.shape[1] : 1ll);
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Older files hold RoPE's frequencies, which follow from the config. */
static bool is_known_rest(const char *name)
{
    return tern_str_ends(name, ".rotary_emb.inv_freq");
}

/* Is the output matrix of a tied model, where one is there, its embedding?  Byte by byte. */
static int check_tied(const struct tern_infer_source *s, struct tern_err *err)
{
    const int same = tern_ckpt_find(s->ckpt, "lm_head.weight", NULL)
                         ? tern_convert_head_is_embedding(s->ckpt, /* stop= */ NULL, err)
                         : 1;

    return same
               ? same < 0 ? -1 : 0
               : tern_err_set(err, TERN_USAGE,
                              "%s: its config.json says tie_word_embeddings, and lm_head.weight is "
                              "not the embedding. Say false there, or remove the tensor.",
                              tern_ckpt_path(s->ckpt));
}

/* Does the config place every tensor of a folder that tern did not write?  One that it does not
 * place is part of another model, which would be trained without it. */
static int check_rest(const struct tern_infer_source *s, struct tern_err *err)
{
    enum { SHOWN = 3 };
    const size_t n = tern_model_tensors(&s->config);
    struct tern_model_tensor t;
    char(*names)[sizeof t.name] = tern_alloc(n, sizeof *names, "names", err);
    struct tern_buf rest = {.max = 600};
    size_t more = 0;

    if (!names)
        return -1;
    for (size_t i = 0; i < n; i++) {
        tern_model_tensor(&s->config, i, &t);
        memcpy(names[i], t.name, sizeof t.name);
    }
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < tern_ckpt_count(s->ckpt); i++) {
        struct tern_ckpt_info info;
        tern_ckpt_info(s->ckpt, i, &info);
        if (is_known_rest(info.name) || bsearch(info.name, names, n, sizeof *names, by_name) ||
            (s->config.tied && strcmp(info.name, "lm_head.weight") == 0))
            continue;
        if (info.type == TERN_CKPT_OTHER) { /* of a quantisation, which the network is without */
            tern_warn("%s: tensor '%s', of a type that tern does not read, is left out",
                      tern_ckpt_path(s->ckpt), info.name);
            continue;
        }
        if (more++ < SHOWN)
            tern_buf_printf(&rest, "%s'%s'", more > 1 ? ", " : "", info.name);
    }
    int rc = more == 0 ? 0
                       : tern_err_set(err, TERN_USAGE,
                                      "%s: holds %zu tensor%s that its config.json does not place: "
                                      "%s%s. This is another model than it says.",
                                      tern_ckpt_path(s->ckpt), more, more > 1 ? "s" : "", rest.data,
                                      more > SHOWN ? ", ..." : "");
    tern_buf_free(&rest);
    free(names);
    return rc < 0 || !s->config.tied ? rc : check_tied(s, err);
}

/* Weights that adapters stand beside have another prefix. */
static void find_adapters(struct tern_infer_source *s)
{
    if (tern_convert_adapters(s->ckpt, &s->adapters))
        s->prefix = "base/";
}

int tern_infer_open(const char *path, struct tern_infer_source *out, struct tern_err *err)
{
    struct tern_infer_source s = {0};
    char *at = NULL;

    if (tern_ckpt_resolve(path, &at, err) < 0)
        return -1;
    bool ours = tern_ckpt_is_ours(at);
    s.prefix = ours ? "model/" : "";
    s.ckpt = ours ? tern_ckpt_open(at, err) : tern_convert_open(at, /* key= */ NULL, err);
    if (s.ckpt && ours)
        find_adapters(&s);
    int rc = s.ckpt && tern_convert_config(at, &s.config, err) == 0 &&
                     check_tensors(&s, err) == 0 && (ours || check_rest(&s, err) == 0)
                 ? 0
                 : -1;
    free(at);
    if (rc < 0)
        tern_infer_close(&s);
    else
        *out = s;
    return rc;
}

void tern_infer_close(struct tern_infer_source *s)
{
    tern_ckpt_close(s->ckpt);
    s->ckpt = NULL;
}

static int read_as(const struct tern_infer_source *s, const char *prefix,
                   const struct tern_model_part *p, enum tern_ckpt_type type, void *to,
                   struct tern_err *err)
{
    const uint64_t start[] = {(uint64_t)p->start[0], (uint64_t)p->start[1]};
    const uint64_t shape[] = {(uint64_t)p->shape[0], (uint64_t)p->shape[1]};
    char name[TERN_CKPT_NAME_MAX + 1];

    snprintf(name, sizeof name, "%s%s", prefix, p->whole.name);
    return tern_ckpt_read(s->ckpt, name, type, start, shape, to, err);
}

int tern_infer_read_part(const struct tern_infer_source *s, const char *prefix,
                         const struct tern_model_part *p, tern_real *to, struct tern_err *err)
{
    const enum tern_ckpt_type type = sizeof(tern_real) == 8 ? TERN_CKPT_F64 : TERN_CKPT_F32;

    return read_as(s, prefix, p, type, to, err);
}

/* The slice of a weight with its adapter put in, into `to` or, rounded to bf16, into `half`. */
static int read_merged(const struct tern_infer_source *s, const struct tern_model_part *w,
                       tern_real *to, uint16_t *half, struct tern_err *err)
{
    enum { BLOCK = 64 }; /* rows at a time */
    struct tern_convert_merge *merge =
        tern_convert_merge_open(s->ckpt, s->prefix, s->ckpt, &s->adapters, &w->whole, err);
    double *rows = tern_alloc(BLOCK * (size_t)w->shape[1], sizeof *rows, "a weight's rows", err);
    tern_real *narrow =
        tern_alloc(BLOCK * (size_t)w->shape[1], sizeof *narrow, "a weight's rows", err);
    int rc = merge && rows && narrow ? 0 : -1;

    for (int64_t r = 0; rc == 0 && r < w->shape[0]; r += BLOCK) {
        const int64_t start[] = {w->start[0] + r, w->start[1]};
        const int64_t left = w->shape[0] - r, shape[] = {left < BLOCK ? left : BLOCK, w->shape[1]};
        tern_real *at = half ? narrow : to + r * w->shape[1];
        rc = tern_convert_merge_read(merge, start, shape, rows, err);
        for (int64_t e = 0; rc == 0 && e < shape[0] * shape[1]; e++)
            at[e] = (tern_real)rows[e];
        if (rc == 0 && half)
            tern_tensor_to_bf16(half + r * w->shape[1], narrow, (size_t)(shape[0] * shape[1]));
    }
    free(narrow);
    free(rows);
    tern_convert_merge_close(merge);
    return rc;
}

static int read_one(const struct tern_infer_source *s, const struct tern_model_part *p,
                    bool adapted, tern_real *to, uint16_t *half, struct tern_err *err)
{
    if (adapted)
        return read_merged(s, p, to, half, err);
    return half ? read_as(s, s->prefix, p, TERN_CKPT_BF16, half, err)
                : tern_infer_read_part(s, s->prefix, p, to, err);
}

/* The parameters of `m`; `merge`: the source's adapters are put into them. */
static int read_weights(const struct tern_infer_source *s, struct tern_llama *m, bool merge,
                        struct tern_err *err)
{
    const struct tern_model_shard *shard = tern_llama_shard(m);
    tern_real *params = tern_llama_params(m, NULL);
    uint16_t *half = tern_llama_params_bf16(m, NULL);

    for (size_t i = 0; i < shard->n_parts; i++)
        tern_progress_expect(shard->parts[i].count);
    for (size_t i = 0; i < shard->n_parts; i++) {
        const struct tern_model_part *p = &shard->parts[i];
        bool adapted = merge && tern_model_adapter_beside(&s->adapters, p->whole.kind);
        if (read_one(s, p, adapted, half ? NULL : params + p->offset,
                     half ? half + p->offset : NULL, err) < 0)
            return -1;
        tern_progress_add(p->count);
    }
    return 0;
}

int tern_infer_read(const struct tern_infer_source *s, struct tern_llama *m, struct tern_err *err)
{
    return read_weights(s, m, true, err);
}

int tern_infer_resume(const struct tern_infer_source *s, struct tern_llama *m, struct tern_err *err)
{
    const struct tern_model_shard *shard = tern_llama_trained(m);
    tern_real *params = tern_llama_trainable(m, NULL);

    if (read_weights(s, m, !tern_llama_adapters(m), err) < 0)
        return -1;
    for (size_t i = 0; tern_llama_adapters(m) && i < shard->n_parts; i++)
        if (tern_infer_read_part(s, "lora/", &shard->parts[i], params + shard->parts[i].offset,
                                 err) < 0)
            return -1;
    return 0;
}

/* ---------------------------------------------------------------- perplexity */

static int alone_loss(void *ctx, const struct tern_llama_batch *b, struct tern_llama_loss *ret_loss,
                      struct tern_err *err)
{
    const struct tern_llama_pass pass = {.chunk = 0, .slot = 0, .b = b};

    if (tern_llama_chunk_forward(ctx, &pass, err) < 0)
        return -1;
    return tern_llama_chunk_loss(ctx, &pass, ret_loss, err);
}

struct tern_infer_group tern_infer_alone(struct tern_llama *m, const struct tern_comm *comm,
                                         const volatile sig_atomic_t *stop)
{
    return (struct tern_infer_group){.ctx = m,
                                     .model = m,
                                     .loss = alone_loss,
                                     .stop = stop,
                                     .index = tern_fabric_comm_rank(comm),
                                     .groups = tern_fabric_comm_size(comm),
                                     .counts = true};
}

/* Batches between two rounds of stop requests in a group of several ranks: in such a round no stage
 * works ahead of the others. */
enum { AGREE_EVERY = 8 };

/* *stop: this rank's stop request on entry, the group's on return. */
static int agree_stop(const struct tern_infer_group *g, uint64_t batches, bool *stop,
                      struct tern_err *err)
{
    *stop |= g->stop && *g->stop;
    if (!g->agree_stop)
        return 0;
    if (batches % AGREE_EVERY == 0)
        return g->agree_stop(g->ctx, stop, err);
    *stop = false;
    return 0;
}

/* One batch's arrays. */
struct rows {
    int32_t *tokens, *targets, *starts, *row;
    uint8_t *mask;
};

static void free_rows(struct rows *r)
{
    free(r->mask);
    free(r->row);
    free(r->starts);
    free(r->targets);
    free(r->tokens);
}

static int alloc_rows(struct rows *r, size_t batch, uint32_t seq_len, struct tern_err *err)
{
    const size_t n = batch * seq_len;

    r->tokens = tern_alloc(n, sizeof *r->tokens, "an evaluation's batch", err);
    r->targets = tern_alloc(n, sizeof *r->targets, "an evaluation's batch", err);
    r->starts = tern_alloc(n, sizeof *r->starts, "an evaluation's batch", err);
    r->row = tern_alloc(seq_len + 1, sizeof *r->row, "an evaluation's row", err);
    r->mask = tern_alloc(n, 1, "an evaluation's batch", err);
    return r->tokens && r->targets && r->starts && r->row && r->mask ? 0 : -1;
}

static void clear(struct rows *r, size_t n)
{
    memset(r->tokens, 0, n * sizeof *r->tokens);
    memset(r->targets, 0, n * sizeof *r->targets);
    memset(r->starts, 0, n * sizeof *r->starts);
    memset(r->mask, 0, n);
}

/* Rows `first`, first + groups, ... of the set; the rest of the batch does not count. */
static int fill(struct rows *to, const struct tern_infer_group *g, const struct tern_data_set *set,
                uint32_t seq_len, int batch, uint64_t first, struct tern_err *err)
{
    const uint64_t rows = tern_data_set_rows(set, seq_len);

    for (int b = 0; b < batch && first < rows; b++, first += (uint64_t)g->groups) {
        size_t at = (size_t)b * seq_len;
        if (tern_data_set_row(set, seq_len, first, to->row, to->mask + at, err) < 0)
            return -1;
        memcpy(to->tokens + at, to->row, seq_len * sizeof *to->row);
        memcpy(to->targets + at, to->row + 1, seq_len * sizeof *to->row);
        if (g->isolate && tern_data_set_starts(set, seq_len, first, to->starts + at, err) < 0)
            return -1;
    }
    return 0;
}

/* This group's share of the rows: sums[0] += nats, sums[1] += targets.  1: a stop request ended it.
 * A rank that cannot read its rows goes on with none until the group's next round of stop requests,
 * as the group would wait for it. */
static int evaluate_share(const struct tern_infer_group *g, const struct tern_data_set *set,
                          uint32_t seq_len, int batch, double sums[2], struct tern_err *err)
{
    const uint64_t rows = tern_data_set_rows(set, seq_len);
    const uint64_t stride = (uint64_t)batch * (uint64_t)g->groups;
    struct rows r = {0};
    struct tern_err lost; /* any after the first */
    int rc = alloc_rows(&r, (size_t)batch, seq_len, err);
    bool stop = false, unread = false;

    tern_progress_expect(rows * seq_len); /* of all groups, which go at about one speed */
    for (uint64_t at = (uint64_t)g->index, n = 0; rc >= 0 && at < rows; at += stride, n++) {
        const struct tern_llama_batch b = {.tokens = r.tokens,
                                           .targets = r.targets,
                                           .mask = r.mask,
                                           .starts = g->isolate ? r.starts : NULL,
                                           .B = batch,
                                           .T = (int)seq_len};
        struct tern_llama_loss loss;

        stop = unread;
        if (agree_stop(g, n, &stop, unread ? &lost : err) < 0)
            rc = -1;
        if (rc < 0 || stop)
            break;
        clear(&r, (size_t)batch * seq_len);
        if (!unread && (fill(&r, g, set, seq_len, batch, at, err) < 0 ||
                        tern_llama_batch_check(g->model, &b, err) < 0)) {
            unread = true;
            clear(&r, (size_t)batch * seq_len);
        }
        if (g->loss(g->ctx, &b, &loss, unread ? &lost : err) < 0) {
            rc = -1;
            break;
        }
        sums[0] += g->counts ? loss.sum : 0;
        sums[1] += g->counts ? (double)loss.n : 0;
        tern_progress_add((rows - at < stride ? rows - at : stride) * seq_len);
    }
    free_rows(&r);
    return rc < 0 || unread ? -1 : stop;
}

int tern_infer_evaluate(const struct tern_infer_group *g, const struct tern_data_set *set,
                        uint32_t seq_len, int batch, struct tern_comm *comm,
                        struct tern_infer_eval *out, struct tern_err *err)
{
    double sums[3] = {0, 0, 0}; /* nats, targets (exact up to 2^53), ranks that stopped or failed */
    int rc = evaluate_share(g, set, seq_len, batch, sums, err);

    /* A rank that failed takes part, as the others would wait for it. */
    sums[2] = rc != 0;
    if (rc < 0) {
        tern_fabric_all_reduce(comm, sums, 3, TERN_F64, TERN_SUM, NULL);
        return -1;
    }
    if (tern_fabric_all_reduce(comm, sums, 3, TERN_F64, TERN_SUM, err) < 0)
        return -1;
    if (sums[2] > 0)
        return 1;
    /* A set counts the bytes of all its text, whatever its mask leaves out. */
    *out = (struct tern_infer_eval){
        .nll = sums[0],
        .tokens = (uint64_t)sums[1],
        .bytes = tern_data_set_has_mask(set) ? 0 : tern_data_set_text_bytes(set)};
    return 0;
}

/* What a prompt's tokens are printed as, in the order of the prompts. */
#include "cmd/generate/generate.h"

#include "core/base/json.h"
#include "core/base/str.h"
#include "core/infer/stream.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A prompt's tokens so far. */
struct answer {
    struct tern_infer_stream *stream; /* NULL without a tokenizer */
    struct tern_buf held;             /* its text that waits for its turn */
    struct made {
        int32_t id;
        double logprob;
    } * made;
    size_t n, cap;
    bool begun, ended;
    enum tern_infer_end why;
};

struct generate_printer {
    struct generate_output o;
    struct answer *v; /* [prompts] */
    size_t current;   /* the first that has not been printed whole */
    bool terminal, begun;
};

static const char *const whys[] = {[TERN_INFER_EOS] = "eos",
                                   [TERN_INFER_STOPPED] = "stop",
                                   [TERN_INFER_TOKENS] = "max-tokens",
                                   [TERN_INFER_CONTEXT] = "context",
                                   [TERN_INFER_GIVEN_UP] = "interrupted"};

struct generate_printer *generate_printer_new(const struct generate_output *o, struct tern_err *err)
{
    struct generate_printer *p = tern_alloc(1, sizeof *p, "output", err);

    if (!p)
        return NULL;
    *p = (struct generate_printer){.o = *o, .terminal = isatty(STDOUT_FILENO)};
    p->v = tern_alloc(o->prompts->n, sizeof *p->v, "output", err);
    if (p->v)
        return p;
    free(p);
    return NULL;
}

static void free_answer(struct answer *a)
{
    tern_infer_stream_free(a->stream);
    tern_buf_free(&a->held);
    free(a->made);
    *a = (struct answer){.begun = a->begun, .ended = a->ended, .why = a->why};
}

void generate_printer_free(struct generate_printer *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->o.prompts->n; i++)
        free_answer(&p->v[i]);
    free(p->v);
    free(p);
}

/* On a terminal without its control characters, but for newlines and tabs. */
static void put(const struct generate_printer *p, const char *s, size_t len)
{
    if (!p->terminal) {
        fwrite(s, 1, len, stdout);
        return;
    }
    for (size_t at = 0, n; at < len; at += n ? n : 1) {
        n = tern_str_character(s + at, len - at);
        if (n || s[at] == '\n' || s[at] == '\t')
            fwrite(s + at, 1, n ? n : 1, stdout);
        else
            putchar('?');
    }
}

static void put_id(size_t i, int32_t id)
{
    printf("%s%d", i ? " " : "", id);
}

/* ---- one after the other ---- */

static void begin(struct generate_printer *p)
{
    const struct generate_prompt *prompt = &p->o.prompts->v[p->current];
    struct answer *a = &p->v[p->current];

    a->begun = true;
    if (p->o.json || !p->o.headings)
        return;
    printf("%s--- %llu: prompt\n", p->begun ? "\n" : "", (unsigned long long)prompt->number);
    p->begun = true;
    if (prompt->text)
        put(p, prompt->text, prompt->text_len);
    for (int i = 0; i < prompt->n && !prompt->text; i++)
        put_id((size_t)i, prompt->ids[i]);
    puts("\n--- answer");
}

static void print_json(const struct generate_printer *p, const struct answer *a)
{
    const struct generate_prompt *prompt = &p->o.prompts->v[p->current];
    json_t *j = json_object(), *ids = json_array(), *logprobs = json_array();
    size_t len;

    json_object_set_new(j, "row", json_integer((json_int_t)prompt->number));
    if (prompt->text)
        json_object_set_new(j, "prompt", tern_json_textn(prompt->text, prompt->text_len));
    json_object_set_new(j, "prompt_tokens", json_integer(prompt->n));
    if (p->o.ids) {
        json_t *given = json_array();
        for (int i = 0; i < prompt->n; i++)
            json_array_append_new(given, json_integer(prompt->ids[i]));
        json_object_set_new(j, "prompt_ids", given);
    }
    if (a->stream) {
        const char *text = tern_infer_stream_text(a->stream, &len);
        json_object_set_new(j, "text", tern_json_textn(text, len));
    } else if (!p->o.ids) {
        json_object_set_new(j, "text", json_string(""));
    }
    for (size_t i = 0; i < a->n; i++) {
        json_array_append_new(ids, json_integer(a->made[i].id));
        json_array_append_new(logprobs, tern_json_real(a->made[i].logprob));
    }
    json_object_set_new(j, "ids", ids);
    if (p->o.logprobs)
        json_object_set(j, "logprobs", logprobs);
    json_decref(logprobs);
    json_object_set_new(j, "end", json_string(whys[a->why]));
    if (prompt->answer)
        json_object_set_new(j, "reference", tern_json_textn(prompt->answer, prompt->answer_len));
    tern_json_line(stdout, j);
    json_decref(j);
}

static void finish(struct generate_printer *p)
{
    const struct generate_prompt *prompt = &p->o.prompts->v[p->current];
    struct answer *a = &p->v[p->current];

    if (p->o.json) {
        print_json(p, a);
    } else {
        for (size_t i = 0; i < a->n && p->o.ids; i++)
            put_id(i, a->made[i].id);
        putchar('\n');
        if (p->o.headings && prompt->answer) {
            puts("--- reference");
            put(p, prompt->answer, prompt->answer_len);
            putchar('\n');
        }
    }
    fflush(stdout);
    free_answer(a);
}

/* What may be printed now. */
static void advance(struct generate_printer *p)
{
    for (; p->current < p->o.prompts->n; p->current++) {
        struct answer *a = &p->v[p->current];
        if (!a->begun)
            begin(p);
        if (!p->o.json && !p->o.ids && a->held.len) {
            put(p, a->held.data, a->held.len);
            tern_buf_clear(&a->held);
        }
        if (!a->ended)
            break;
        finish(p);
    }
    fflush(stdout);
}

/* ---- tokens ---- */

static int open_stream(struct generate_printer *p, size_t prompt, struct tern_err *err)
{
    const struct generate_prompt *from = &p->o.prompts->v[prompt];
    struct answer *a = &p->v[prompt];

    if (!a->stream && p->o.token)
        a->stream = tern_infer_stream_new(p->o.token, from->alone ? -1 : from->ids[from->n - 1],
                                          p->o.stops, p->o.n_stops, err);
    return a->stream || !p->o.token ? 0 : -1;
}

static int keep(struct answer *a, int32_t id, double logprob, struct tern_err *err)
{
    if (a->n == a->cap) {
        const size_t cap = a->cap ? 2 * a->cap : 256;
        void *more = realloc(a->made, cap * sizeof *a->made);
        if (!more)
            return tern_err_sys(err, "generated tokens");
        a->made = more;
        a->cap = cap;
    }
    a->made[a->n++] = (struct made){id, logprob};
    return 0;
}

int generate_printer_token(void *printer, size_t prompt, int32_t id, double logprob,
                           struct tern_err *err)
{
    struct generate_printer *p = printer;
    struct answer *a = &p->v[prompt];
    const char *text = "";
    size_t len = 0;
    int rc = 0;

    if (keep(a, id, logprob, err) < 0 || open_stream(p, prompt, err) < 0)
        return -1;
    if (a->stream && (rc = tern_infer_stream_add(a->stream, (uint32_t)id, &text, &len, err)) < 0)
        return -1;
    tern_buf_add(&a->held, text, len);
    if (tern_buf_check(&a->held, "an answer", err) < 0)
        return -1;
    if (prompt == p->current)
        advance(p);
    return rc;
}

int generate_printer_end(void *printer, size_t prompt, enum tern_infer_end why,
                         struct tern_err *err)
{
    struct generate_printer *p = printer;
    struct answer *a = &p->v[prompt];
    const char *text = "";
    size_t len = 0;

    if (a->stream)
        tern_infer_stream_end(a->stream, &text, &len);
    tern_buf_add(&a->held, text, len);
    if (tern_buf_check(&a->held, "an answer", err) < 0)
        return -1;
    a->ended = true;
    a->why = why;
    if (prompt == p->current)
        advance(p);
    return 0;
}

void generate_printer_finish(struct generate_printer *p)
{
    for (size_t i = p->current; i < p->o.prompts->n; i++)
        if (p->v[i].ended) {
            p->current = i;
            if (!p->v[i].begun)
                begin(p);
            put(p, p->v[i].held.data ? p->v[i].held.data : "",
                p->o.json || p->o.ids ? 0 : p->v[i].held.len);
            finish(p);
        }
    p->current = p->o.prompts->n;
}

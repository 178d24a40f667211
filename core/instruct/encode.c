/* Records to ids and a mask. */
#include "core/instruct/instruct.h"

#include "core/base/json.h"
#include "core/base/str.h"
#include "core/instruct/template.h"
#include "core/token/token.h"

#include <stdlib.h>
#include <string.h>

struct tern_instruct {
    struct tern_instruct_how how;
    const struct tern_token *token;
    struct tern_instruct_template *template;
    uint32_t specials[TERN_INSTRUCT_SPECIALS_MAX]; /* ids of the template's */
    struct tern_instruct_counts counts;            /* atomic */
};

struct tern_instruct_encoder {
    struct tern_instruct *of;
    struct tern_token_encoder *token;
    struct tern_instruct_pieces pieces;
    uint32_t *ids;
    uint8_t *mask;
    size_t n, cap;
};

/* ---- opening ---- */

static int find_special(const struct tern_token *token, struct tern_token_encoder *e,
                        const char *name, uint32_t *ret_id, struct tern_err *err)
{
    const uint32_t *ids;
    const char *piece;
    size_t len, n;

    for (uint32_t id = 0; id < tern_token_n_vocab(token); id++) {
        piece = tern_token_piece(token, id, &len);
        if (!piece || len != strlen(name) || memcmp(piece, name, len) != 0)
            continue;
        /* A piece that text becomes is none. */
        if (tern_token_encode(e, name, len, &ids, &n, err) < 0)
            return -1;
        if (n != 1 || ids[0] != id) {
            *ret_id = id;
            return 0;
        }
    }
    return tern_err_set(err, TERN_USAGE,
                        "%s: has no special token %s, which the template wants. Choose the "
                        "template that the tokenizer was made for.",
                        tern_token_path(token), name);
}

static bool line_wants(const struct tern_instruct_line *l, enum tern_instruct_part_kind kind)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->parts[i].kind == kind)
            return true;
    return false;
}

static bool wants(const struct tern_instruct_template *t, enum tern_instruct_part_kind kind)
{
    bool found = line_wants(&t->begin, kind) || line_wants(&t->system, kind) ||
                 line_wants(&t->user, kind) || line_wants(&t->answer, kind) ||
                 line_wants(&t->join, kind);

    for (size_t i = 0; i < t->n_prompt; i++)
        found = found || line_wants(&t->prompt[i], kind);
    return found;
}

static int resolve(struct tern_instruct *t, struct tern_err *err)
{
    const struct tern_instruct_template *tmpl = t->template;
    struct tern_token_encoder *e = tern_token_encoder_new(t->token, err);
    int rc = e ? 0 : -1;

    for (size_t i = 0; i < tmpl->n_specials && rc == 0; i++)
        rc = find_special(t->token, e, tmpl->specials[i], &t->specials[i], err);
    tern_token_encoder_free(e);
    if (rc < 0)
        return -1;
    const bool no_bos = tern_token_bos(t->token) < 0 && wants(tmpl, TERN_INSTRUCT_BOS),
               no_eos = tern_token_eos(t->token) < 0 && wants(tmpl, TERN_INSTRUCT_EOS);
    if (no_bos || no_eos)
        return tern_err_set(err, TERN_USAGE, "%s: has no %s token, which template %s wants",
                            tern_token_path(t->token), no_bos ? "BOS" : "EOS", tmpl->name);
    return 0;
}

struct tern_instruct *tern_instruct_open(const struct tern_instruct_how *how,
                                         const struct tern_token *token, struct tern_err *err)
{
    struct tern_instruct *t = tern_alloc(1, sizeof *t, "a template", err);

    if (!t)
        return NULL;
    t->how = *how;
    t->token = token;
    t->template = tern_instruct_template_load(how->template, err);
    if (t->template && resolve(t, err) == 0) {
        t->how.template = t->template->name;
        return t;
    }
    tern_instruct_free(t);
    return NULL;
}

void tern_instruct_free(struct tern_instruct *t)
{
    if (!t)
        return;
    tern_instruct_template_free(t->template);
    free(t);
}

const char *tern_instruct_name(const struct tern_instruct *t)
{
    return t->template->name;
}

void tern_instruct_digest(const struct tern_instruct *t, uint8_t ret_digest[TERN_SHA256_BYTES])
{
    memcpy(ret_digest, t->template->digest, TERN_SHA256_BYTES);
}

bool tern_instruct_bos(const struct tern_instruct *t)
{
    return t->how.bos || t->template->bos;
}

bool tern_instruct_masks(const struct tern_instruct *t)
{
    return !t->how.all || (t->how.max_tokens && t->how.longer == TERN_INSTRUCT_CUT);
}

bool tern_instruct_reads(const struct tern_instruct *t, const char *path)
{
    return tern_instruct_template_reads(t->template, path);
}

static void count(uint64_t *to, uint64_t n)
{
    __atomic_fetch_add(to, n, __ATOMIC_RELAXED);
}

struct tern_instruct_counts tern_instruct_counts(const struct tern_instruct *t)
{
    struct tern_instruct_counts c;

    c.records = __atomic_load_n(&t->counts.records, __ATOMIC_RELAXED);
    c.cut = __atomic_load_n(&t->counts.cut, __ATOMIC_RELAXED);
    c.dropped = __atomic_load_n(&t->counts.dropped, __ATOMIC_RELAXED);
    c.unanswered = __atomic_load_n(&t->counts.unanswered, __ATOMIC_RELAXED);
    c.targets = __atomic_load_n(&t->counts.targets, __ATOMIC_RELAXED);
    return c;
}

struct tern_instruct_encoder *tern_instruct_encoder_new(struct tern_instruct *t,
                                                        struct tern_err *err)
{
    struct tern_instruct_encoder *e = tern_alloc(1, sizeof *e, "an encoder", err);

    if (!e)
        return NULL;
    e->of = t;
    e->pieces.text.max = e->pieces.scratch.max = TERN_TOKEN_TEXT_MAX;
    e->token = tern_token_encoder_new(t->token, err);
    if (e->token)
        return e;
    tern_instruct_encoder_free(e);
    return NULL;
}

void tern_instruct_encoder_free(struct tern_instruct_encoder *e)
{
    if (!e)
        return;
    tern_token_encoder_free(e->token);
    tern_instruct_pieces_free(&e->pieces);
    free(e->ids);
    free(e->mask);
    free(e);
}

/* ---- ids ---- */

static int room_for(struct tern_instruct_encoder *e, size_t more, struct tern_err *err)
{
    if (e->n + more <= e->cap)
        return 0;
    const size_t cap = e->n + more + e->n / 2 + 1024;
    uint32_t *ids = realloc(e->ids, cap * sizeof *ids);
    if (ids)
        e->ids = ids;
    uint8_t *mask = ids ? realloc(e->mask, cap) : NULL;
    if (!mask)
        return tern_err_sys(err, "a record's tokens");
    e->mask = mask;
    e->cap = cap;
    return 0;
}

static int put_special(struct tern_instruct_encoder *e, const struct tern_instruct_piece *p,
                       struct tern_err *err)
{
    const struct tern_instruct *t = e->of;

    if (room_for(e, 1, err) < 0)
        return -1;
    e->ids[e->n] = p->special->kind == TERN_INSTRUCT_BOS   ? (uint32_t)tern_token_bos(t->token)
                   : p->special->kind == TERN_INSTRUCT_EOS ? (uint32_t)tern_token_eos(t->token)
                                                           : t->specials[p->special->special];
    e->mask[e->n++] = p->target;
    return 0;
}

/* The run's ids are e->ids[first ...]; how many of them are those of its first `len` bytes alone?
 */
static int shared_ids(struct tern_instruct_encoder *e, size_t first, const char *run, size_t len,
                      size_t *ret_n, struct tern_err *err)
{
    const uint32_t *ids;
    size_t n, same = 0;

    if (tern_token_encode(e->token, run, len, &ids, &n, err) < 0)
        return -1;
    while (same < n && first + same < e->n && ids[same] == e->ids[first + same])
        same++;
    *ret_n = same;
    return 0;
}

/* Pieces of text up to the next special one, tokenised as a whole.  Where prompt and answer meet,
 * the later begins with the first id that the text before does not have by itself. */
static int put_run(struct tern_instruct_encoder *e, size_t piece, size_t n_pieces, size_t from,
                   struct tern_err *err)
{
    const struct tern_instruct_piece *v = e->pieces.v + piece;
    const char *run = e->pieces.text.data + from;
    const size_t first = e->n;
    const uint32_t *ids;
    size_t n, at = 0;

    if (tern_token_encode(e->token, run, v[n_pieces - 1].end - from, &ids, &n, err) < 0 ||
        room_for(e, n, err) < 0)
        return -1;
    if (n)
        memcpy(e->ids + e->n, ids, n * sizeof *ids);
    e->n += n;
    for (size_t i = 0; i < n_pieces; i++) {
        size_t end = n;
        if (i + 1 < n_pieces && shared_ids(e, first, run, v[i].end - from, &end, err) < 0)
            return -1;
        for (; at < end; at++)
            e->mask[first + at] = v[i].target;
    }
    return 0;
}

static int put_pieces(struct tern_instruct_encoder *e, struct tern_err *err)
{
    const struct tern_instruct_pieces *p = &e->pieces;
    size_t from = 0, i = 0;

    e->n = 0;
    /* The set puts BOS before each document. */
    if (tern_instruct_bos(e->of) && p->n && p->v[0].special &&
        p->v[0].special->kind == TERN_INSTRUCT_BOS)
        i = 1;
    while (i < p->n) {
        size_t next = i + 1;
        if (p->v[i].special) {
            if (put_special(e, &p->v[i], err) < 0)
                return -1;
        } else {
            while (next < p->n && !p->v[next].special)
                next++;
            if (put_run(e, i, next - i, from, err) < 0)
                return -1;
        }
        from = p->v[next - 1].end;
        i = next;
    }
    return 0;
}

/* ---- what a document may have ---- */

static uint64_t targets(const struct tern_instruct_encoder *e, bool eos)
{
    uint64_t n = eos;

    if (e->of->how.all)
        return e->n + eos + tern_instruct_bos(e->of) * !tern_instruct_masks(e->of);
    for (size_t i = 0; i < e->n; i++)
        n += e->mask[i];
    return n;
}

/* A record above the limit: 1 when something is left of it, 0, -1. */
static int shorten(struct tern_instruct_encoder *e, struct tern_err *err)
{
    struct tern_instruct *t = e->of;
    const size_t around = 1 + (size_t)tern_instruct_bos(t), most = t->how.max_tokens;

    if (t->how.longer == TERN_INSTRUCT_REFUSE)
        return tern_err_set(err, TERN_USAGE,
                            "has %zu tokens, and --max-tokens is %zu. Say --longer cut or drop.",
                            e->n + around, most);
    if (t->how.longer == TERN_INSTRUCT_DROP) {
        count(&t->counts.dropped, 1);
        return 0;
    }
    e->n = most > around ? most - around : 0;
    if (e->n == 0 || targets(e, /* eos= */ false) == 0) {
        count(&t->counts.unanswered, 1);
        return 0;
    }
    count(&t->counts.cut, 1);
    return 1;
}

static int encode(struct tern_instruct_encoder *e, const json_t *record,
                  struct tern_instruct_row *ret_row, struct tern_err *err)
{
    struct tern_instruct *t = e->of;
    struct tern_instruct_row row = {.eos = true};

    if (tern_instruct_render(t->template, record, &e->pieces, err) < 0 || put_pieces(e, err) < 0)
        return -1;
    /* The set puts EOS behind each document.  Behind another end of a message it is no target. */
    if (e->n && tern_token_eos(t->token) >= 0 &&
        e->ids[e->n - 1] == (uint32_t)tern_token_eos(t->token))
        e->n--;
    else
        row.eos = !t->template->chat;
    if (t->how.all && e->n)
        memset(e->mask, 1, e->n);
    row.eos = row.eos || !tern_instruct_masks(t);
    if (t->how.max_tokens && e->n + 1 + tern_instruct_bos(t) > t->how.max_tokens) {
        int rc = shorten(e, err);
        row.eos = false;
        if (rc < 0)
            return -1;
        e->n = rc ? e->n : 0;
    }
    row.n = e->n;
    row.ids = e->ids;
    row.mask = tern_instruct_masks(t) ? e->mask : NULL;
    row.text_bytes = e->pieces.text.len;
    count(&t->counts.records, 1);
    count(&t->counts.targets, row.n ? targets(e, row.eos) : 0);
    *ret_row = row;
    return 0;
}

/* A record's object, a new reference; NULL with `err`. */
static json_t *parse(const char *record, size_t len, struct tern_err *err)
{
    json_error_t why;
    json_t *j = json_loadb(record, len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);

    if (json_is_object(j))
        return j;
    tern_err_set(err, TERN_USAGE, "not a JSON object on one line%s%s", j ? "" : ": ",
                 j ? "" : why.text);
    json_decref(j);
    return NULL;
}

int tern_instruct_encode(struct tern_instruct_encoder *e, const char *record, size_t len,
                         struct tern_instruct_row *ret_row, struct tern_err *err)
{
    json_t *j = parse(record, len, err);
    int rc = j ? encode(e, j, ret_row, err) : -1;

    json_decref(j);
    return rc;
}

/* ---- prompts alone ---- */

int tern_instruct_prompt(struct tern_instruct_encoder *e, const char *record, size_t len,
                         struct tern_instruct_prompt *ret_prompt, struct tern_err *err)
{
    struct tern_instruct_pieces *p = &e->pieces;
    json_t *j = parse(record, len, err);

    p->open = true;
    int rc = j ? tern_instruct_render(e->of->template, j, p, err) : -1;
    p->open = false;
    json_decref(j);
    if (rc < 0)
        return -1;
    size_t n = p->n, all = p->text.len;
    while (n > 0 && p->v[n - 1].target)
        n--;
    const bool answered = n < p->n;
    const size_t end = n ? p->v[n - 1].end : 0;
    p->n = n;
    if (put_pieces(e, err) < 0)
        return -1;
    *ret_prompt =
        (struct tern_instruct_prompt){.ids = e->ids,
                                      .n = e->n,
                                      .text = all ? p->text.data : "",
                                      .text_len = end,
                                      .answer = answered && all ? p->text.data + end : NULL,
                                      .answer_len = answered ? all - end : 0};
    return 0;
}

int32_t tern_instruct_end(const struct tern_instruct *t)
{
    const struct tern_instruct_line *l = &t->template->answer;
    const struct tern_instruct_part *last = l->n ? &l->parts[l->n - 1] : NULL;

    return !last                                 ? TERN_TOKEN_NONE
           : last->kind == TERN_INSTRUCT_EOS     ? tern_token_eos(t->token)
           : last->kind == TERN_INSTRUCT_SPECIAL ? (int32_t)t->specials[last->special]
                                                 : TERN_TOKEN_NONE;
}

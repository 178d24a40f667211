/* One pass over files, or over a share of them. */
#include "cmd/data/build.h"
#include "cmd/data/summary.h"

#include "core/base/str.h"
#include "core/data/duplicates.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_NAMED = 1000 }; /* notes name this many files; the others are in the counts only */

int data_sums_open(struct data_sums *s, char *const *paths, size_t n_paths, struct tern_err *err)
{
    struct data_path_sum *path = tern_alloc(n_paths, sizeof *path, "counts of files", err);

    if (!path)
        return -1;
    *s = (struct data_sums){.paths = paths, .n_paths = n_paths, .path = path};
    return 0;
}

void data_sums_free(struct data_sums *s)
{
    free(s->path);
    *s = (struct data_sums){0};
}

char *data_meta(const char *tokenizer, const char *file, const char *format, const json_t *records,
                const struct data_sums *s, struct tern_err *err)
{
    json_t *files = json_array();

    for (size_t i = 0; i < s->n_paths && i < FILES_NAMED; i++)
        json_array_append_new(
            files, json_pack("{s:o, s:I, s:I}", "path", tern_json_text(s->paths[i]), "documents",
                             (json_int_t)s->path[i].docs, "tokens", (json_int_t)s->path[i].tokens));
    json_t *meta =
        json_pack("{s:o, s:o, s:s, s:o}", "tokenizer", tern_json_text(tokenizer), "tokenizer_file",
                  tern_json_text(file), "tokenizer_format", format, "files", files);
    if (meta)
        json_object_set_new(meta, "summary", data_summary(s));
    if (meta && s->specials)
        json_object_set_new(meta, "specials", json_true());
    if (meta && records)
        json_object_set(meta, "records", (json_t *)records);
    char *words = meta ? json_dumps(meta, JSON_COMPACT) : NULL;
    json_decref(meta);
    if (!words)
        tern_err_set(err, TERN_FAILED, "no memory for a set's notes");
    return words;
}

json_t *data_build_options(const struct data_build *b)
{
    const struct data_text_opts *t = &b->text;

    json_t *options =
        json_pack("{s:s, s:s, s:o, s:s, s:s, s:I, s:b, s:b, s:b}", "format", t->format, "field",
                  t->field, "split", tern_json_text(t->split), "encoding", t->encoding, "invalid",
                  t->invalid, "min-length", (json_int_t)t->min_length, "skip-bad", t->skip_bad,
                  "bos", b->bos, "dedup", b->dedup);

    if (options && t->specials) /* else they are as those of an older tern's parts */
        json_object_set_new(options, "specials", json_true());
    if (options && b->notes)
        json_object_set(options, "records", b->notes);
    return options;
}

int data_interrupted(const struct data_build *b, struct tern_err *err)
{
    return tern_err_set(err, TERN_FAILED, "%s: interrupted (signal %d); nothing was written",
                        b->out, __atomic_load_n(b->stop, __ATOMIC_RELAXED));
}

struct pass {
    const struct data_build *build;
    const struct data_share *share;
    struct data_sums *sums;
    const struct data_tick *tick;
    size_t first, n; /* of the paths */
    struct tern_data_feed *feed;
    struct tern_data_set_writer *writer;
    struct tern_data_duplicates *seen; /* NULL: not asked for */
};

/* A share without bytes has no paths. */
static int open_feed(struct pass *p, struct tern_err *err)
{
    const struct data_share *s = p->share;
    const struct data_build *b = p->build;
    struct tern_data_feed_how how;

    p->first = s->parts ? s->from.path : 0;
    p->n = s->parts ? s->to.path + (s->to.byte > 0) - p->first : b->n_paths;
    if (s->parts && s->from.path == s->to.path && s->from.byte == s->to.byte)
        p->n = 0;
    if (p->n == 0)
        return 0;
    if (data_feed_how(&b->text, b->token, b->paths + p->first, (int)p->n, b->stop, &how, err) < 0)
        return -1;
    if (s->parts) {
        how.from = s->from.byte;
        how.to = s->to.byte;
    }
    how.hash = b->dedup;
    how.records = b->records;
    p->feed = tern_data_feed_open(&how, err);
    return p->feed ? 0 : -1;
}

static int add_document(struct pass *p, const struct tern_data_feed_doc *d, struct tern_err *err)
{
    const struct tern_data_feed_tokens *t = &d->tokens;
    struct data_sums *s = p->sums;
    struct data_path_sum *path = &s->path[p->first + d->path];

    if (t->n_ids == 0) {
        s->empty++;
        return 0;
    }
    const int is_new = p->seen ? tern_data_duplicates_add(p->seen, d->hash, err) : 1;
    if (is_new < 0)
        return -1;
    if (!is_new) {
        s->duplicates++;
        return 0;
    }
    if (tern_data_set_add_cut(p->writer, t->ids, t->mask, t->n_ids, t->cut, t->text_bytes, err) < 0)
        return tern_err_prefix(err, "%s", s->paths[p->first + d->path]);
    if (p->seen && p->share->parts && tern_data_set_hash(p->writer, d->hash, err) < 0)
        return -1;
    const uint64_t tokens = t->n_ids + 1 + p->build->bos;
    s->docs++;
    s->tokens += tokens;
    s->bytes += t->text_bytes;
    path->docs++;
    path->tokens += tokens;
    return 0;
}

static int add_documents(struct pass *p, struct tern_err *err)
{
    struct tern_data_feed_doc doc;
    uint64_t done, all;
    int rc;

    while ((rc = tern_data_feed_next(p->feed, &doc, err)) > 0) {
        if (add_document(p, &doc, err) < 0)
            return -1;
        tern_data_feed_progress(p->feed, &done, &all);
        if (p->tick && p->tick->tick(p->tick->arg, done, all, p->sums, err) < 0)
            return -1;
    }
    if (__atomic_load_n(p->build->stop, __ATOMIC_RELAXED))
        return data_interrupted(p->build, err);
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        const struct tern_text_counts c = tern_data_feed_counts(p->feed, i);
        tern_text_counts_add(&p->sums->path[p->first + i].counts, &c);
    }
    return rc;
}

int data_no_text(const char *out, const struct data_sums *s, struct tern_err *err)
{
    struct tern_text_counts all = {0};
    struct tern_buf why = {0};

    for (size_t i = 0; i < s->n_paths; i++) {
        const struct tern_text_counts *c = &s->path[i].counts;
        if (c->bad && all.bad == 0 && c->bad_line[0])
            tern_buf_printf(&why,
                            "; the first is %s:%" PRIu64 ", and without --skip-bad its error "
                            "says why",
                            s->paths[i], c->bad_line[0]);
        tern_text_counts_add(&all, c);
    }
    const struct {
        uint64_t n;
        const char *words, *more;
    } left_out[] = {
        {all.bad, "lines cannot be read", why.data},
        {all.skipped, "documents are not UTF-8", NULL},
        {all.too_short, "documents are below --min-length", NULL},
        {s->empty, s->records ? "records do not fit --max-tokens" : "documents are empty", NULL},
    };
    struct tern_buf text = {0};
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (left_out[i].n)
            tern_buf_printf(&text, "%s%" PRIu64 " %s%s", text.len ? ". " : ": ", left_out[i].n,
                            left_out[i].words, left_out[i].more ? left_out[i].more : "");
    tern_err_set(err, TERN_USAGE, "%s: no text in the files given; nothing was written%s", out,
                 text.len ? text.data : "");
    tern_buf_free(&why);
    tern_buf_free(&text);
    return -1;
}

static int commit(struct pass *p, struct tern_err *err)
{
    const struct data_build *b = p->build;
    struct tern_data_set_writer *writer = p->writer;
    char *record = NULL, *meta = NULL;
    int rc = -1;

    if (!p->share->parts && p->sums->docs == 0)
        return data_no_text(b->out, p->sums, err);
    p->sums->specials = b->text.specials;
    meta = data_meta(b->text.tokenizer, tern_token_path(b->token), tern_token_format(b->token),
                     b->notes, p->sums, err);
    if (!meta)
        goto out;
    if (p->share->parts && !(record = data_part_record(b, p->share, p->sums, err)))
        goto out;
    tern_data_set_part(writer, record);
    if (__atomic_load_n(b->stop, __ATOMIC_RELAXED)) {
        data_interrupted(b, err);
        goto out;
    }
    p->writer = NULL;
    rc = tern_data_set_commit(writer, meta, err);
out:
    free(meta);
    free(record);
    return rc;
}

int data_write(const struct data_build *b, const struct data_share *share, const char *to,
               struct data_sums *sums, const struct data_tick *tick, struct tern_err *err)
{
    struct pass p = {.build = b, .share = share, .sums = sums, .tick = tick};
    int rc = -1;

    p.writer = tern_data_set_create(to, &b->kind, err);
    if (p.writer && b->dedup &&
        (!(p.seen = tern_data_duplicates_new(err)) ||
         (share->parts && tern_data_set_hashes(p.writer, err) < 0)))
        goto out;
    if (p.writer && open_feed(&p, err) == 0 && (!p.feed || add_documents(&p, err) == 0))
        rc = commit(&p, err);
out:
    tern_data_feed_close(p.feed);
    tern_data_set_abort(p.writer);
    tern_data_duplicates_free(p.seen);
    return rc;
}

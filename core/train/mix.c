/* Training sets in the log and in the ledger: their tokenizer, packing and realised mix. */
#include "core/train/state.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A training set of the run, in however many stages. */
struct source {
    const struct tern_data_set *set;
    const struct tern_data_pack *pack;
    const char *path;
    uint64_t samples, tokens;
};

/* Names of values are 200 bytes at most; of a longer path its end is kept. */
enum { NAME = 200, PATH = 180 };

/* A path of the recipe's folder as it stands in the recipe: the same wherever the folder is. */
static const char *as_written(const struct tern_recipe *r, const char *path)
{
    char *dir = tern_fs_dirname(r->path);
    const size_t len = strlen(dir);
    const bool inside = tern_str_starts(path, dir) && path[len] == '/';

    free(dir);
    return inside ? path + len + 1 : path;
}

static struct source *find(const struct train *t, struct source *list, size_t *n,
                           const struct tern_data_mix *m, size_t k)
{
    const struct tern_data_pack *pack = tern_data_mix_pack(m, k);
    size_t i = 0;

    while (i < *n && list[i].pack != pack)
        i++;
    if (i == *n)
        list[(*n)++] = (struct source){
            .set = tern_data_mix_set(m, k),
            .pack = pack,
            .path = as_written(t->recipe, tern_data_set_path(tern_data_mix_set(m, k)))};
    return &list[i];
}

/* What the samples before `end` came from; malloc'ed, [*ret_n].  NULL without memory. */
static struct source *sources(const struct train *t, uint64_t end, size_t *ret_n)
{
    const struct tern_data_stages *s = t->sets.stages;
    uint64_t samples[TERN_DATA_MIX_SOURCES_MAX], tokens[TERN_DATA_MIX_SOURCES_MAX];
    size_t most = 0, n = 0;

    for (size_t k = 0; k < tern_data_stages_n(s); k++)
        most += tern_data_mix_n_sources(tern_data_stages_mix(s, k));
    struct source *list = tern_alloc(most, sizeof *list, "sources", NULL);
    for (size_t k = 0; list && k < tern_data_stages_n(s); k++) {
        const struct tern_data_mix *m = tern_data_stages_mix(s, k);
        const uint64_t first = tern_data_stages_first(s, k);
        const bool last = k + 1 == tern_data_stages_n(s);
        const uint64_t until = last ? UINT64_MAX : tern_data_stages_first(s, k + 1);
        const uint64_t seen = end <= first ? 0 : (end < until ? end : until) - first;
        tern_data_mix_counts(m, k, seen, samples);
        tern_data_mix_tokens(m, k, seen, tokens);
        for (size_t i = 0; i < tern_data_mix_n_sources(m); i++) {
            struct source *to = find(t, list, &n, m, i);
            to->samples += samples[i];
            to->tokens += tokens[i];
        }
    }
    *ret_n = n;
    return list;
}

void tern_train_record_mix(struct train *t)
{
    size_t n = 0;
    struct source *list = t->spool ? sources(t, t->progress.sample, &n) : NULL;

    for (size_t i = 0; list && i < n; i++) {
        const struct source *s = &list[i];
        const size_t len = strlen(s->path);
        const char *path = len > PATH ? s->path + len - PATH : s->path;
        char names[3][NAME + 1];
        struct tern_err err;
        snprintf(names[0], sizeof names[0], "mix/%s/samples", path);
        snprintf(names[1], sizeof names[1], "mix/%s/tokens", path);
        snprintf(names[2], sizeof names[2], "mix/%s/epochs", path);
        const struct tern_ledger_value values[] = {
            {names[0], (double)s->samples},
            {names[1], (double)s->tokens},
            {names[2], (double)s->samples / (double)tern_data_pack_counts(s->pack).rows}};
        if (tern_ledger_spool_step(t->spool, (int64_t)t->progress.step, values, 3, &err) < 0)
            tern_warn("%s", err.text);
    }
    free(list);
}

/* "best-fit: 1,024 rows, 0.31 % padding; 12 documents longer than a row are cut" */
static void describe(struct tern_buf *b, const struct tern_recipe *r, const struct source *s)
{
    static const char *const names[] = {"concat", "best-fit", "padded"};
    const struct tern_data_pack_counts c = tern_data_pack_counts(s->pack);
    char n[32], tokens[32];

    tern_buf_printf(b, "%s: %s rows, %.2f %% padding", names[r->data.packing],
                    tern_str_count(n, sizeof n, c.rows),
                    100 * (double)c.padding / ((double)c.rows * (double)r->batch.seq_len));
    if (c.cut)
        tern_buf_printf(b, "; %s documents longer than a row are cut",
                        tern_str_count(n, sizeof n, c.cut));
    if (c.dropped)
        tern_buf_printf(b, "; %s documents longer than a row are dropped, %s tokens",
                        tern_str_count(n, sizeof n, c.dropped),
                        tern_str_count(tokens, sizeof tokens, c.dropped_tokens));
}

/* "model/tokenizer.model (sentencepiece)", as the set's builder noted it; malloc'ed.  NULL: it
 * noted none. */
static char *tokenizer_of(const struct tern_data_set *set)
{
    const char *meta = tern_data_set_meta(set);
    json_t *notes = *meta ? tern_json_parse(meta, strlen(meta), "notes", NULL) : NULL;
    const char *file = json_string_value(json_object_get(notes, "tokenizer_file"));
    const char *format = json_string_value(json_object_get(notes, "tokenizer_format"));
    char *text = file && format ? tern_strf("%s (%s)", file, format) : NULL;

    json_decref(notes);
    return text;
}

static void record_tokenizer(struct train *t, const struct source *s)
{
    char *text = tokenizer_of(s->set), *name = tern_strf("tokenizer/%s", s->path);

    if (text)
        tern_ledger_spool_param(t->spool, name, text, NULL);
    free(name);
    free(text);
}

/* From which samples a second follow as records. */
static void record_size(struct train *t, const struct source *s)
{
    const struct {
        const char *what;
        uint64_t n;
    } sizes[] = {{"rows", tern_data_pack_counts(s->pack).rows},
                 {"records", tern_data_set_n_docs(s->set)}};

    for (size_t i = 0; i < 2; i++) {
        char *name = tern_strf("%s/%s", sizes[i].what, s->path);
        char *value = tern_strf("%" PRIu64, sizes[i].n);
        tern_ledger_spool_param(t->spool, name, value, NULL);
        free(name);
        free(value);
    }
}

void tern_train_record_sets(struct train *t)
{
    const struct tern_recipe *r = t->recipe;
    size_t n = 0;
    struct source *list = sources(t, /* end= */ 0, &n);

    for (size_t i = 0; list && i < n; i++) {
        struct tern_buf b = {0};
        record_tokenizer(t, &list[i]);
        record_size(t, &list[i]);
        if (r->data.packing == TERN_PACKING_CONCAT)
            continue;
        char *name = tern_strf("packing/%s", list[i].path);
        describe(&b, r, &list[i]);
        tern_info("%s: %s", list[i].path, b.data);
        tern_ledger_spool_param(t->spool, name, b.data, NULL);
        free(name);
        tern_buf_free(&b);
    }
    free(list);
}

/* tern data build --part K/N: a share of the files as a part of a set. */
#include "cmd/data/build.h"

#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/base/version.h"

#include <stdlib.h>
#include <string.h>

/* [path's place, documents, tokens, lines, replaced, skipped, too short, bad, [bad lines], path,
 * and byte order marks where there are some] */
static json_t *path_record(size_t i, const struct data_path_sum *p)
{
    const struct tern_text_counts *c = &p->counts;
    json_t *lines = json_array();

    for (uint64_t k = 0; k < c->bad && k < TERN_TEXT_BAD_NAMED; k++)
        json_array_append_new(lines, json_integer((json_int_t)c->bad_line[k]));
    return json_pack("[I, I, I, I, I, I, I, I, o]", (json_int_t)i, (json_int_t)p->docs,
                     (json_int_t)p->tokens, (json_int_t)c->lines, (json_int_t)c->replaced,
                     (json_int_t)c->skipped, (json_int_t)c->too_short, (json_int_t)c->bad, lines);
}

char *data_part_record(const struct data_build *b, const struct data_share *share,
                       const struct data_sums *s, struct tern_err *err)
{
    const struct tern_data_place *from = &share->from, *to = &share->to;
    json_t *files = json_array();

    for (size_t i = from->path; i < s->n_paths && i < to->path + (to->byte > 0); i++) {
        json_t *path = tern_json_text(s->paths[i]);
        json_t *record = path_record(i, &s->path[i]);
        json_array_append_new(record, path);
        if (s->path[i].counts.marks)
            json_array_append_new(record, json_integer((json_int_t)s->path[i].counts.marks));
        json_array_append_new(files, record);
    }
    json_t *j =
        json_pack("{s:s, s:I, s:I, s:s, s:I, s:o, s:[I,I], s:[I,I], s:I, s:I, s:o}", "tern",
                  TERN_VERSION, "part", (json_int_t)share->part, "parts", (json_int_t)share->parts,
                  "inputs", share->inputs, "n_paths", (json_int_t)s->n_paths, "options",
                  data_build_options(b), "from", (json_int_t)from->path, (json_int_t)from->byte,
                  "to", (json_int_t)to->path, (json_int_t)to->byte, "empty", (json_int_t)s->empty,
                  "duplicates", (json_int_t)s->duplicates, "files", files);
    char *words = j ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    if (!words)
        tern_err_set(err, TERN_FAILED, "%s: no memory for a part's notes", b->out);
    return words;
}

int data_part_parse(const char *text, uint64_t *ret_part, uint64_t *ret_parts, struct tern_err *err)
{
    const char *slash = strchr(text, '/');
    char first[16];
    int64_t k, n;

    snprintf(first, sizeof first, "%.*s", slash ? (int)(slash - text) : 0, text);
    if (!slash || tern_str_int(slash + 1, 1, TERN_DATA_SHARES_MAX, &n) < 0 ||
        tern_str_int(first, 1, n, &k) < 0)
        return tern_err_set(err, TERN_USAGE,
                            "--part %s; K/N is expected, with K from 1 to N and N up to %d: --part "
                            "2/8",
                            text, TERN_DATA_SHARES_MAX);
    *ret_part = (uint64_t)k - 1;
    *ret_parts = (uint64_t)n;
    return 0;
}

/* Bad lines were counted from where the share begins.  Their numbers in the file would cost reading
 * all that is before it; a merge has them from the parts. */
static void forget_lines(const struct data_share *share, struct data_sums *s)
{
    if (share->from.byte > 0)
        memset(s->path[share->from.path].counts.bad_line, 0,
               sizeof s->path[share->from.path].counts.bad_line);
}

int data_part_build(const struct data_build *b, uint64_t part, uint64_t parts,
                    struct data_sums *sums, struct tern_err *err)
{
    struct tern_data_share_how how = {.paths = b->paths, .n_paths = b->n_paths};
    const struct data_tick shown = {data_show, NULL};
    char inputs[TERN_SHA256_HEX];
    int rc = -1;

    if (data_text_how(&b->text, &how.text, err) < 0)
        return -1;
    tern_data_feed_read_records(b->records, &how.text); /* formats are found by the same rules */
    struct tern_data_shares *shares = tern_data_shares_open(&how, err);
    if (!shares)
        return -1;
    tern_data_shares_digest(shares, inputs);
    struct data_share share = {.part = part, .parts = parts, .inputs = inputs};
    tern_progress_begin(/* unit= */ NULL, "%s", b->out);
    if (tern_data_shares_place(shares, part, parts, &share.from, err) == 0 &&
        tern_data_shares_place(shares, part + 1, parts, &share.to, err) == 0)
        rc = data_write(b, &share, b->out, sums, &shown, err);
    tern_progress_end();
    if (rc == 0)
        forget_lines(&share, sums);
    tern_data_shares_close(shares);
    return rc;
}

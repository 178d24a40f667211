#include "cmd/data/summary.h"

#include "core/base/log.h"
#include "core/base/str.h"

#include <inttypes.h>

/* Notes hold a MiB: the numbers of bad lines are kept for this many files. */
enum { BAD_FILES = 100 };

/* What is left out, by its key: "1 bad line", "2 bad lines". */
static const struct {
    const char *key, *one, *many;
} left_out[] = {
    {"duplicates", "duplicate", "duplicates"},
    {"too_short", "too short", "too short"},
    {"empty", "empty", "empty"},
    {"not_utf8", "not in UTF-8", "not in UTF-8"},
    {"bad_lines", "bad line", "bad lines"},
    {"byte_order_marks", "byte order mark", "byte order marks"},
};

static json_t *bad_file(const char *path, const struct tern_text_counts *c)
{
    json_t *first = json_array();

    for (uint64_t k = 0; k < c->bad && k < TERN_TEXT_BAD_NAMED; k++)
        json_array_append_new(first, json_integer((json_int_t)c->bad_line[k]));
    return json_pack("{s:o, s:I, s:o}", "path", tern_json_text(path), "lines", (json_int_t)c->bad,
                     "first", first);
}

json_t *data_summary(const struct data_sums *s)
{
    struct tern_text_counts all = {0};
    json_t *bad = json_array();

    for (size_t i = 0; i < s->n_paths; i++) {
        const struct tern_text_counts *c = &s->path[i].counts;
        tern_text_counts_add(&all, c);
        if (c->bad && json_array_size(bad) < BAD_FILES)
            json_array_append_new(bad, bad_file(s->paths[i], c));
    }
    json_t *j =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "documents", (json_int_t)s->docs,
                  "tokens", (json_int_t)s->tokens, "text_bytes", (json_int_t)s->bytes, "duplicates",
                  (json_int_t)s->duplicates, "too_short", (json_int_t)all.too_short, "empty",
                  (json_int_t)s->empty, "not_utf8", (json_int_t)all.skipped, "bad_lines",
                  (json_int_t)all.bad, "replaced_bytes", (json_int_t)all.replaced);
    if (all.marks)
        json_object_set_new(j, "byte_order_marks", json_integer((json_int_t)all.marks));
    if (json_array_size(bad))
        json_object_set(j, "bad", bad);
    json_decref(bad);
    return j;
}

void data_summary_words(const json_t *summary, bool records, struct tern_buf *to)
{
    const json_int_t replaced = json_integer_value(json_object_get(summary, "replaced_bytes"));
    bool some = false;

    for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++) {
        const json_int_t n = json_integer_value(json_object_get(summary, left_out[i].key));
        if (n == 0)
            continue;
        tern_buf_printf(to, "%s%lld %s", some ? ", " : "left out: ", (long long)n,
                        n == 1 ? left_out[i].one : left_out[i].many);
        some = true;
    }
    if (replaced)
        tern_buf_printf(to, "%s%lld byte%s replaced", some ? "; " : "", (long long)replaced,
                        replaced == 1 ? "" : "s");
    if (!records) /* they may be cut, as --longer says */
        tern_buf_puts(to,
                      some || replaced ? "; no document was cut" : "nothing was left out or cut");
}

void data_report(const char *out, const struct data_sums *s, double seconds)
{
    char bytes[32], time[32], rate[64] = "";
    json_t *summary = data_summary(s);
    struct tern_buf words = {0};

    if (!s->resumed)
        snprintf(rate, sizeof rate, ", in %s (%.1f MB/s)",
                 tern_str_seconds(time, sizeof time, seconds), (double)s->bytes / 1e6 / seconds);
    tern_info("%s: %" PRIu64 " documents, %" PRIu64 " tokens, %s of text (%.2f bytes a token)%s",
              out, s->docs, s->tokens, tern_str_bytes(bytes, sizeof bytes, s->bytes),
              s->tokens ? (double)s->bytes / (double)s->tokens : 0.0, rate);
    data_summary_words(summary, s->records, &words);
    if (words.len)
        tern_info("%s", words.data);
    tern_buf_free(&words);
    json_decref(summary);
}

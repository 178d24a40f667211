/* A row in a piece is its length, NO_VALUE where there is none, and its bytes. */
#include "core/text/table.h"

#include "core/arrow/arrow.h"
#include "core/base/str.h"
#include "core/token/token.h"

#include <stdlib.h>
#include <string.h>

#define NO_VALUE UINT64_MAX

struct tern_text_table {
    struct tern_arrow *arrow;
    char *path;
    bool records; /* else: */
    size_t column;
    struct tern_buf record; /* the row */
    uint64_t row, n_rows;   /* of the batch */
    uint64_t line;          /* rows before it, and those of it that were cut */
};

bool tern_text_table_is(const char *bytes, size_t n)
{
    return (n >= 4 && memcmp(bytes, "\xff\xff\xff\xff", 4) == 0) ||
           (n >= 6 && memcmp(bytes, "ARROW1", 6) == 0);
}

static int find_column(struct tern_text_table *t, const char *field, struct tern_err *err)
{
    const int column = tern_arrow_find(t->arrow, field, err);

    if (column < 0)
        return -1;
    t->column = (size_t)column;
    const struct tern_arrow_column *c = tern_arrow_column(t->arrow, t->column);
    if (c->kind != TERN_ARROW_TEXT && c->kind != TERN_ARROW_BINARY)
        return tern_err_set(err, TERN_USAGE,
                            "%s: column '%s' is %s, not text. Choose another with "
                            "--field.",
                            t->path, c->name, c->type);
    return tern_arrow_use(t->arrow, t->column, err);
}

static int find_fields(struct tern_text_table *t, const struct tern_text_how *how,
                       struct tern_err *err)
{
    const struct tern_arrow_fields fields = {how->reads, how->reads_arg};

    return tern_arrow_use_record(t->arrow, &fields, err);
}

struct tern_text_table *tern_text_table_open(const char *path, const struct tern_text_how *how,
                                             struct tern_err *err)
{
    struct tern_text_table *t = tern_alloc(1, sizeof *t, "a table", err);

    if (!t)
        return NULL;
    t->path = tern_strdup(path);
    t->records = how->records;
    t->record.max = TERN_TOKEN_TEXT_MAX;
    t->arrow = tern_arrow_open(path, err);
    if (!t->arrow || (t->records ? find_fields(t, how, err)
                                 : find_column(t, how->field ? how->field : "text", err)) < 0) {
        tern_text_table_close(t);
        return NULL;
    }
    return t;
}

void tern_text_table_close(struct tern_text_table *t)
{
    if (!t)
        return;
    tern_arrow_close(t->arrow);
    tern_buf_free(&t->record);
    free(t->path);
    free(t);
}

uint64_t tern_text_table_done(const struct tern_text_table *t)
{
    uint64_t done, all;

    tern_arrow_progress(t->arrow, &done, &all);
    return done;
}

/* The row's text: false where it has none. */
static bool get_row(struct tern_text_table *t, const char **ret_text, size_t *ret_len)
{
    if (!t->records)
        return tern_arrow_text(t->arrow, t->column, t->row, ret_text, ret_len);
    tern_buf_clear(&t->record);
    tern_arrow_record(t->arrow, t->row, &t->record);
    *ret_text = t->record.data;
    *ret_len = t->record.failed ? (size_t)TERN_TOKEN_TEXT_MAX + 1 : t->record.len;
    return true;
}

static int add_row(struct tern_text_table *t, struct tern_text_chunk *c, struct tern_err *err)
{
    const char *text = NULL;
    size_t len = 0;
    const bool is = get_row(t, &text, &len);
    const uint64_t stored = is ? len : NO_VALUE;
    const size_t need = c->end + sizeof stored + (is ? len : 0);

    if (is && len > TERN_TOKEN_TEXT_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "%s:%llu: longer than %d MiB. Split it into documents.", t->path,
                            (unsigned long long)t->line + 1, TERN_TOKEN_TEXT_MAX >> 20);
    if (need > c->cap) {
        const size_t cap = need + need / 2;
        char *grown = realloc(c->bytes, cap);
        if (!grown)
            return tern_err_sys(err, "%s: a document", t->path);
        c->bytes = grown;
        c->cap = cap;
    }
    memcpy(c->bytes + c->end, &stored, sizeof stored);
    if (is && len)
        memcpy(c->bytes + c->end + sizeof stored, text, len);
    c->end = need;
    return 0;
}

int tern_text_table_cut(struct tern_text_table *t, struct tern_text_chunk *c, size_t want,
                        struct tern_err *err)
{
    c->at = c->end = 0;
    c->base = c->from = 0;
    c->line = t->line;
    while (c->end < want) {
        if (t->row == t->n_rows) {
            int rc = tern_arrow_next(t->arrow, err);
            if (rc < 0)
                return -1;
            if (rc == 0)
                break;
            t->row = 0;
            t->n_rows = tern_arrow_rows(t->arrow);
            continue;
        }
        if (add_row(t, c, err) < 0)
            return -1;
        t->row++;
        t->line++;
    }
    return c->end > 0;
}

bool tern_text_table_take(struct tern_text_chunk *c, const char **ret_text, size_t *ret_len)
{
    uint64_t len;

    if (c->at == c->end)
        return false;
    memcpy(&len, c->bytes + c->at, sizeof len);
    c->at += sizeof len;
    *ret_text = len == NO_VALUE ? NULL : c->bytes + c->at;
    *ret_len = len == NO_VALUE ? 0 : (size_t)len;
    c->at += *ret_len;
    return true;
}

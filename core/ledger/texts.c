#include "core/ledger/texts.h"

#include <stdlib.h>
#include <string.h>

struct text {
    struct text *next;
    char bytes[];
};

const char *tern_ledger_text(void **texts, const char *s)
{
    if (!s)
        return NULL;
    size_t n = strlen(s) + 1;
    struct text *t = malloc(sizeof *t + n);
    if (!t)
        abort();
    memcpy(t->bytes, s, n);
    t->next = *texts;
    *texts = t;
    return t->bytes;
}

void tern_ledger_texts_free(void **texts)
{
    for (struct text *t = *texts, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    *texts = NULL;
}

void *tern_ledger_rows_add(struct tern_ledger_rows *rows, size_t size, size_t max,
                           struct tern_err *err)
{
    if (rows->n == max) {
        tern_err_set(err, TERN_FAILED, "the ledger holds more than the %zu rows allowed", max);
        return NULL;
    }
    if ((rows->n & (rows->n - 1)) == 0) { /* full at each power of two */
        void *more = realloc(rows->any, (rows->n ? 2 * rows->n : 1) * size);
        if (!more) {
            tern_err_set(err, TERN_TEMPFAIL, "no memory for %zu rows of the ledger", rows->n);
            return NULL;
        }
        rows->any = more;
    }
    char *row = (char *)rows->any + rows->n++ * size;
    memset(row, 0, size);
    return row;
}

void tern_ledger_rows_free(struct tern_ledger_rows *rows)
{
    free(rows->any);
    tern_ledger_texts_free(&rows->texts);
    *rows = (struct tern_ledger_rows){0};
}

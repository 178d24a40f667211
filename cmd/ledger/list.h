/* tern ledger list: a row a run, the fields it can show, and which runs are shown. */
#ifndef TERN_CMD_LEDGER_LIST_H
#define TERN_CMD_LEDGER_LIST_H

#include "cmd/ledger/recipe.h"
#include "cmd/ledger/show.h"

/* A user's folder of a shared ledger, or the ledger. */
struct list_home {
    const char *dir;
    struct tern_ledger_rows runs, attempts; /* attempts: only with -j */
};

struct list_row {
    const struct list_home *home;
    const struct tern_ledger_run *run;
    const char *state;
    int64_t steps; /* of the whole run; -1: not known */
    struct show_recipe recipe;
    bool parsed;
};

/* The values of the recipe, parsed when first asked for; of one that is none, nothing. */
const struct show_recipe *list_recipe(struct list_row *r);

/* ---- fields (list_fields.c) */

/* Those of every run, and behind them a field for each recipe key that -o and --sort name. */
struct list_fields {
    struct tern_report_field *fields; /* [n] */
    size_t n;
    bool *shown; /* [n]; the others' cells stay empty */
};
/* `format` and `sort` as typed; NULL for none. */
int list_fields_make(struct list_fields *ret_fields, const char *format, const char *sort,
                     struct tern_err *err);
/* Which are shown: those of `format`. */
int list_fields_show(struct list_fields *f, const char *format, struct tern_err *err);
/* Is a key of the recipe among them? */
bool list_fields_have_keys(const struct list_fields *f);
void list_fields_free(struct list_fields *f);
void list_fields_cells(const struct list_fields *f, struct show_cells *t, struct list_row *r);
json_t *list_fields_json(struct list_row *r);
/* "-loss,name": a row without the value comes last; rows that are equal stay in order. */
int list_fields_sort(const struct list_fields *f, const char *sort, struct list_row *rows, size_t n,
                     struct tern_err *err);

/* ---- filters (list_filter.c) */

struct list_filter {
    struct tern_opt_list users, names, states, jobs, tags, where;
    const char *since, *until;
};
extern struct list_filter list_filter;

/* Keep those of the rows that the filters let through; *n is their new number.  A name, user,
 * state, tag or key that none of the rows has is an error that tells the nearest. */
int list_filter_apply(struct list_row *rows, size_t *n, struct tern_err *err);

/* ---- OpenMetrics (list_openmetrics.c) */

/* Print the rows as OpenMetrics text. */
void list_openmetrics(const struct list_row *rows, size_t n);

#endif

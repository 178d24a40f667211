/* Options, tables and JSON of all verbs of `tern ledger`. */
#ifndef TERN_CMD_LEDGER_SHOW_H
#define TERN_CMD_LEDGER_SHOW_H

#include "cmd/cmd.h"
#include "core/base/json.h"
#include "core/ledger/ledger.h"
#include "core/report/report.h"

/* Where options land; each verb's table names the ones it takes. */
struct show_options {
    const char *ledger, *format, *run;
    char *found; /* where none was named; `ledger` may go on to a home in it */
    bool no_header, parsable, json, helpformat, all;
};
extern struct show_options show;

#define SHOW_OPT_LEDGER                                                                            \
    {                                                                                              \
        "ledger", 'l', TERN_OPT_TEXT, "DIR", .env = "TERN_LEDGER", .to.text = &show.ledger,        \
                                             .help = "the ledger's folder; default: that of the "  \
                                                     "site settings, else ./ledger"                \
    }
#define SHOW_OPT_ALL                                                                               \
    {                                                                                              \
        "all-users", 'a', TERN_OPT_FLAG, .to.flag = &show.all,                                     \
                                         .help = "of all users in a shared ledger"                 \
    }
#define SHOW_OPT_STYLE                                                                             \
    {"noheader", 'n', TERN_OPT_FLAG, .to.flag = &show.no_header, .help = "no heading"},            \
        {"parsable2", 'P', TERN_OPT_FLAG, .to.flag = &show.parsable,                               \
         .help = "cells between '|', without padding"},                                            \
    {                                                                                              \
        "json", 0, TERN_OPT_FLAG, .to.flag = &show.json, .help = "print JSON"                      \
    }
#define SHOW_OPT_FORMAT                                                                            \
    {"format",                                                                                     \
     'o',                                                                                          \
     TERN_OPT_TEXT,                                                                                \
     "FIELDS",                                                                                     \
     .to.text = &show.format,                                                                      \
     .help = "columns, with widths as in sacct: name,state%12,cause%-40; help lists them"},        \
    {                                                                                              \
        "helpformat", 'e', TERN_OPT_FLAG, .to.flag = &show.helpformat,                             \
                                          .help = "list the fields that -o takes"                  \
    }

/* --ledger was given? */
int show_need_ledger(struct tern_err *err);
/* The id of the run that `typed` (NULL: the newest) names; show.ledger is its home from then on. */
int show_find(const char *typed, char run_id[TERN_ULID_SIZE], struct tern_err *err);
struct tern_ledger *show_open_run(const char *typed, struct tern_err *err);
/* After either: show.ledger is again the ledger that the user named. */
void show_forget_home(const char *named);

/* Is the owner of the newest attempt gone, if that has no end? */
bool show_silent(const char *run_id);
/* The run's state: its own, or "silent". */
const char *show_state(const struct tern_ledger_run *r);
/* Steps of the whole run, as recorded or by its recipe; -1: not known. */
int64_t show_steps(const struct tern_ledger_run *r);
/* Seconds left of a running run, at the pace of its newest step, 0 behind the last planned one;
 * NAN: it does not run, or that is not known. */
double show_seconds_left(const struct tern_ledger_run *r, const char *state, int64_t steps);
/* Seconds since the newest record; NAN: there is none. */
double show_age(const struct tern_ledger_run *r);

/* A table of texts in the making. */
struct show_cells {
    const struct tern_report_field *fields;
    size_t n_fields, n_rows, n; /* n: cells so far */
    char **cells;
};
void show_cell(struct show_cells *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* NULL and unknown values leave it empty. */
void show_cell_text(struct show_cells *t, const char *s);
void show_cell_int(struct show_cells *t, int64_t v, int64_t unknown);
void show_cell_time(struct show_cells *t, int64_t wall_ns);
/* Six digits, or with -P all; empty where it is not known. */
void show_cell_real(struct show_cells *t, double v, bool known);
/* Print with -n, -P and the columns of -o, and free.  Without -o those of `format`; where they are
 * wider than the terminal, the ones that `cut` names, with commas between, are cut; NULL: none. */
int show_table(struct show_cells *t, const char *format, const char *cut, struct tern_err *err);
/* The same into `to`, for a terminal of `columns`; frees the cells, not `to`. */
int show_table_put(struct tern_buf *to, struct show_cells *t, const char *format, const char *cut,
                   int columns, struct tern_err *err);
/* Print all fields in their order, under names that may be any texts, and free the cells; no -o.
 * cut [n_fields]: may be cut where they are wider than the terminal. */
int show_table_all(struct show_cells *t, const bool *cut, struct tern_err *err);
/* Was --helpformat, or -o help, given? */
bool show_has_fields(void);
/* 12345 as "12.3k", 3600 s as "1.0 h": at most six characters. */
char *show_short_count(char to[16], double v);
char *show_short_seconds(char to[16], double seconds);
/* "; did you mean 'X'?" for the candidate nearest to `typed`, "" without one; malloc'ed. */
char *show_did_you_mean(const char *typed, const char *const *candidates, size_t n);
/* Words for people, at most as wide as the terminal: `label` in a column of ten, then the text, its
 * further lines below its first word. */
void show_wrapped(const char *label, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same into `to`, at most `columns` wide. */
void show_wrap(struct tern_buf *to, int columns, const char *label, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Print and free; -1 with `err` where a byte of it was lost. */
int show_buf(struct tern_buf *b, struct tern_err *err);
int show_fields(const struct tern_report_field *fields, size_t n);

/* JSON; texts that are no UTF-8 are mended. */
json_t *show_json_text(const char *s);
/* A name of the ledger as a key: each byte that is no character, or of one that is unsafe on a
 * terminal, as \xNN.  Other names have other keys.  malloc'ed. */
char *show_json_key(const char *name);
json_t *show_json_int(int64_t v, int64_t unknown);
/* Set `key` to the number, or to null where it is not finite. */
void show_json_number(json_t *j, const char *key, double v);
json_t *show_json_time(int64_t wall_ns);
json_t *show_json_attempt(const struct tern_ledger_attempt *a);
json_t *show_json_run(const struct tern_ledger_run *r);
json_t *show_json_checkpoint(const struct tern_ledger_checkpoint *c);
int show_json(json_t *j, struct tern_err *err);

extern const struct tern_cmd ledger_reproduce, ledger_list, ledger_show, ledger_plot, ledger_sql,
    ledger_why, ledger_compare, ledger_best, ledger_goodput, ledger_cost, ledger_tag, ledger_note,
    ledger_export, ledger_report, ledger_merge, ledger_import, ledger_watch, ledger_gc,
    ledger_serve;

/* run.c: the parts of tern ledger show, as wide as `columns`. */
int show_attempts(struct tern_buf *to, const struct tern_ledger_rows *rows, int columns,
                  struct tern_err *err);
/* What ended each attempt, which is too long for a column. */
void show_causes(struct tern_buf *to, const struct tern_ledger_rows *rows, int columns);
/* With the heading "checkpoints in FOLDER"; nothing where there are none. */
int show_checkpoints(struct tern_buf *to, const struct tern_ledger_rows *rows, int columns,
                     struct tern_err *err);
/* All but those of evaluations, a paragraph each; nothing where there are none. */
void show_events(struct tern_buf *to, const struct tern_ledger_rows *rows, int columns);

/* lineage.c: base or parent, data, tokenizer and code of a run, as its attempts recorded them,
 * under a heading; nothing where none did. */
int show_lineage(struct tern_buf *to, struct tern_ledger *l,
                 const struct tern_ledger_rows *attempts, int columns, struct tern_err *err);
json_t *show_json_lineage(struct tern_ledger *l, const struct tern_ledger_rows *attempts);

/* metrics.c: newest, least and greatest value of each. */
enum { SHOW_METRIC_FIELDS = 6 };
extern const struct tern_report_field show_metric_fields[];
/* "rank3/data_seconds" is a metric of each rank: where behind the '/' its name stands, else 0. */
size_t show_rank_metric(const char *metric);
int show_metrics(struct tern_ledger *l, const struct tern_ledger_rows *names, struct tern_err *err);

/* evals.c: perplexities on held-out sets; `evaluated`: those that tern eval measured. */
enum { SHOW_EVAL_FIELDS = 14 };
extern const struct tern_report_field show_eval_fields[SHOW_EVAL_FIELDS];
int show_evals(const struct tern_ledger_rows *rows, const struct tern_ledger_rows *evaluated,
               struct tern_err *err);
json_t *show_json_eval(const struct tern_ledger_eval *e, const struct tern_ledger_rows *evaluated);

/* mix.c: the training sets of a run, from its values "mix/...". */
enum { SHOW_MIX_FIELDS = 5 };
extern const struct tern_report_field show_mix_fields[];
bool show_is_mix(const char *metric);
bool show_has_mix(const struct tern_ledger_rows *metrics);
int show_mix(struct tern_ledger *l, const struct tern_ledger_rows *metrics, struct tern_err *err);
json_t *show_json_mix(struct tern_ledger *l, const struct tern_ledger_rows *metrics);

#endif

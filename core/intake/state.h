/* The intake of one task (intake.h), for the files of this room.
 *
 *     intake.c     opens and closes it, writes to the ledger; TERN_METRIC_FD; event files
 *     printed.c    values in lines of stdout and stderr, and their steps
 *     patterns.c   the lines that known trainers print
 */
#ifndef TERN_INTAKE_STATE_H
#define TERN_INTAKE_STATE_H

#include <regex.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/intake/metric.h"
#include "core/intake/patterns.h"
#include "core/intake/tensorboard.h"
#include "core/recipe/recipe.h"

enum {
    LINE_MAX_BYTES = 4096, /* that patterns look at: a line of values is shorter */
    DICTS_MAX = 64,        /* that wait for their bar; many come at once after a delay */
    KNOWN_MAX = 16,        /* patterns of all known trainers */
    ROWS_MAX = TERN_RECIPE_PATTERNS + KNOWN_MAX,
};

/* One pattern at work. */
struct row {
    regex_t regex;
    enum tern_intake_pattern_kind kind;
    const char *must; /* or NULL */
    char *names[TERN_RECIPE_GROUPS + 1];
    bool has_step; /* among the names */
    uint64_t seen; /* hash of the values recorded last: bars repeat themselves */
};

/* Values without a certain step are left out and counted. */
enum left { LEFT_DICT, LEFT_BAR, LEFT_PATTERN, N_LEFT };

/* Hugging Face's dict of values until its bar comes. */
struct dict {
    char *line;
    char epoch[16]; /* "%.4g": as its progress bar's dicts have it */
    int64_t wall_ns;
};

struct tern_intake {
    char *spool_dir; /* NULL: no ledger */
    int64_t rank;
    struct tern_ledger_spool *spool;
    bool spool_failed;
    struct row rows[ROWS_MAX];
    size_t n_rows;
    struct tern_intake_tb *tb[TERN_RECIPE_EVENTS];
    size_t n_tb;
    int64_t tb_next_ns;
    struct tern_intake_metric *m; /* of the line at hand */
    char *words;                  /* [LINE_MAX_BYTES + 1], that m's names lie in */
    /* Hugging Face's: tqdm.write clears the bar, prints the dict and draws the bar again */
    struct dict dicts[DICTS_MAX]; /* oldest first */
    size_t n_dicts;
    bool cleared;   /* a bar was, and no bar of training has come since */
    char epoch[16]; /* of the last dict that got a step, "" for none; and its step */
    int64_t step;
    int64_t bar_step, bar_total; /* -1: none seen */
    bool trained;                /* a dict of training came: the bar before it was its bar */
    uint64_t left[N_LEFT];
    /* event files: values of one step together */
    struct tern_intake_metric *events;
    char (*tags)[201]; /* [TERN_INTAKE_METRIC_VALUES] */
    uint64_t refused;  /* lines of TERN_METRIC_FD */
    uint64_t lost;     /* lines of TERN_METRIC_FD that came faster than they could be recorded */
};

/* ---- intake.c */

/* Record values, and log an error. */
void tern_intake_record_or_warn(struct tern_intake *i, const struct tern_intake_metric *m);

/* ---- printed.c */

/* The oldest dict waited too long: no bar gives its step. */
void tern_intake_printed_give_up(struct tern_intake *i);
/* Free the `n` oldest dicts. */
void tern_intake_printed_forget(struct tern_intake *i, size_t n);

#endif

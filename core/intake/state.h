/* The intake of one task (intake.h), for the files of this room.
 *
 *     intake.c     opens and closes it, writes to the ledger; TERN_METRIC_FD; event files
 *     printed.c    values in lines of stdout and stderr, and their steps
 *     dicts.c      Hugging Face's dicts, and the bar that gives their steps
 *     shown.c      which values of Lightning's bar are of the step that it shows
 *     patterns.c   the lines that known trainers print
 *     writers.c    which event files are this task's
 *     tags.c       names of metrics for the tags of event files
 */
#ifndef TERN_INTAKE_STATE_H
#define TERN_INTAKE_STATE_H

#include <regex.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/intake/intake.h"
#include "core/intake/metric.h"
#include "core/intake/patterns.h"
#include "core/intake/tensorboard.h"
#include "core/recipe/recipe.h"

enum {
    LINE_MAX_BYTES = 4096, /* that patterns look at: a line of values is shorter */
    DICTS_MAX = 1024,      /* that wait for their bar; many come at once after a delay */
    SHOWN_MAX = 256,       /* names in a bar */
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
enum left { LEFT_DICT, LEFT_LATE, LEFT_BAR, LEFT_SHOWN, LEFT_PATTERN, N_LEFT };

/* Hugging Face's dict of values until its bar comes. */
struct dict {
    char *line;
    int64_t at_ns; /* clock_ns when it came */
};

/* A name in Lightning's bar. */
struct shown {
    char *name, *text; /* its value as shown last */
    bool from_start;   /* it was in the first bar that had a step */
    bool stale;        /* its text did not change when the step last did */
};

struct tern_intake {
    char *spool_dir; /* NULL: no ledger */
    int64_t rank;
    struct tern_ledger_spool *spool;
    bool spool_failed;
    bool counts; /* records are counted, in: */
    struct tern_ledger_lost counted;
    struct tern_intake_unwritten *look; /* the caller's; NULL: it does not look */
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
    int64_t steps[DICTS_MAX]; /* of the redraws since, no more than dicts */
    size_t n_steps;
    char *newest;                /* the newest dict's values, as dicts.c compares them; or NULL */
    bool cleared;                /* a bar was, and no bar of training has come since */
    bool stopped;                /* the steps of dicts are not certain any more */
    int64_t clock_ns, ticked_ns; /* time in which this process ran; the last tick */
    int64_t bar_step, bar_total; /* -1: none seen */
    bool trained;                /* a dict of training came: the bar before it was its bar */
    /* Lightning's bar */
    struct shown shown[SHOWN_MAX];
    size_t n_shown;
    int64_t shown_step; /* -1: none yet */
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

/* Add a value, unless `text` is no number or `name` no metric's. */
void tern_intake_printed_add(struct tern_intake_metric *m, const char *name, const char *text);

/* ---- dicts.c */

/* A line that is a dict. */
void tern_intake_dicts_take(struct tern_intake *i, const char *line);
/* A line that is a bar at `step` of `total`. */
void tern_intake_dicts_bar(struct tern_intake *i, const char *line, int64_t step, int64_t total);
/* Give up dicts that wait for too long; at the `end` all. */
void tern_intake_dicts_tick(struct tern_intake *i, int64_t now_ns, int end);
/* No dict's step is certain from here on. */
void tern_intake_dicts_stop(struct tern_intake *i);
/* Free the `n` oldest dicts. */
void tern_intake_dicts_forget(struct tern_intake *i, size_t n);

/* ---- shown.c */

/* A bar at `step` (-1: it tells none) shows the value `text` under a name; is it of this step? Call
 * it for all names of a bar before i->shown_step becomes its step. */
bool tern_intake_shown_counts(struct tern_intake *i, int64_t step, const char *name,
                              const char *text);
void tern_intake_shown_free(struct tern_intake *i);

#endif

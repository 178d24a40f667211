/* tern ledger compare: runs side by side. */
#ifndef TERN_CMD_LEDGER_COMPARE_H
#define TERN_CMD_LEDGER_COMPARE_H

#include "cmd/ledger/facts.h"

enum { COMPARE_RUNS_MAX = 64, COMPARE_METRICS_MAX = 4096 };

/* What a comparison measures at one place of each run. */
struct compare_metric {
    char *name;
    bool held_out; /* perplexity on a held-out set of that name; else a metric of the steps */
    char *label;   /* its name; of a set that is called as a metric beside it, "loss (held-out)" */
};

struct compare_run {
    struct show_facts facts;
    struct tern_ledger_rows evals;
    struct tern_ledger_series *series; /* [n_metrics], of metrics of the steps; NULL: not read */
    char *label;                       /* its name, or id where names repeat */
    int group; /* runs that differ in the seed alone have one number; -1: there is no other */
};

struct compare {
    struct compare_run *runs; /* [n] */
    size_t n;
    struct compare_metric *metrics; /* [n_metrics] */
    size_t n_metrics;
    int n_groups;
};

/* Read the runs that `args` [n] name (an arg NULL: the newest), with their evaluations and labels.
 * Start from {0}; free it also when this failed. */
int compare_read(struct compare *c, int n, char **args, struct tern_err *err);
void compare_free(struct compare *c);
/* Has a run an evaluation on a held-out set of that name? */
bool compare_has_set(const struct compare *c, const char *name);

/* Where runs are compared. */
enum compare_axis { COMPARE_STEPS, COMPARE_TOKENS, COMPARE_SECONDS, COMPARE_AXES };
extern const char *const compare_axis_names[COMPARE_AXES];

/* The runs' values where each has done as much as the one that has done least. */
struct compare_place {
    double limit;                  /* steps, tokens or seconds; NAN: a run has none */
    double step[COMPARE_RUNS_MAX]; /* of each run, which reaches it last within the limit */
};
void compare_find_place(const struct compare *c, enum compare_axis axis,
                        struct compare_place *ret_place);
/* The newest value of the metric at or before `step`; NAN: none.  *ret_step: its own. */
double compare_value(const struct compare_run *r, const struct compare_metric *m, size_t metric,
                     double step, double *ret_step);

/* Mean and standard deviation (of a sample: n - 1) of the numbers of a group that are known. */
struct compare_spread {
    double mean, deviation;
    size_t n;
};
struct compare_spread compare_spread(const struct compare *c, int group, const double *values);

/* A key of recipes that not all have alike; values [n], NULL: not written. */
struct compare_difference {
    const char *key;
    const char *values[COMPARE_RUNS_MAX];
};
/* Malloc'ed; *ret_n of them, sorted.  Names of runs and folders of checkpoints and ledgers do not
 * count. */
struct compare_difference *compare_differences(const struct compare *c, size_t *ret_n);
/* Give runs whose recipes differ in the seed alone their group. */
void compare_group(struct compare *c);

#endif

/* One run in numbers, from what its trainer and its supervisor recorded: where its time went, and
 * on how many nodes. */
#ifndef TERN_CMD_LEDGER_FACTS_H
#define TERN_CMD_LEDGER_FACTS_H

#include "cmd/ledger/recipe.h"
#include "cmd/ledger/show.h"

/* The effective values of a metric that adds up: total[i] is the sum up to step[i]. */
struct show_sum {
    size_t n;
    double *step, *total;
};

/* Unknown numbers are NAN, unknown counts 0. */
struct show_facts {
    struct tern_ledger *ledger;
    char id[TERN_ULID_SIZE];
    char *home; /* its ledger, or the user's folder of a shared one */
    struct tern_ledger_rows runs, attempts;
    const struct tern_ledger_run *run; /* the one row; never NULL */
    const char *state;
    struct show_recipe recipe;
    struct show_sum tokens, seconds; /* of training steps */
    struct show_sum node_hours_sum;  /* of show_facts_sum_node_hours */

    /* Of attempts at training, in seconds.  wall: from the first's beginning to the last's end, or
     * newest record; it is the sum of the others. */
    double wall_s;
    double training_s; /* steps that count */
    double repeated_s; /* steps that a later attempt did again */
    double stall_s;    /* training stood still for a checkpoint */
    double startup_s;  /* from an attempt's beginning to its first step */
    double waiting_s;  /* between attempts */
    double other_s;    /* evaluations, the ends of attempts, and what is not known */
    bool timed;        /* the trainer recorded the seconds of its steps */

    uint64_t repeated_steps;
    double node_hours, rank_hours;
    uint64_t nodes; /* of the newest attempt */
    double trained_tokens;
    double parameters, trainable;
    double rows_per_s, records_per_s; /* samples of training */
};

/* The run that `typed` names. */
int show_facts_read(const char *typed, struct show_facts *ret_facts, struct tern_err *err);
void show_facts_free(struct show_facts *f);

/* Seconds of an attempt up to its end or, without one, `newest_ns`. */
double show_attempt_seconds(const struct tern_ledger_attempt *a, int64_t newest_ns);
/* Nodes of a host list; 1 for none. */
uint64_t show_attempt_nodes(const struct tern_ledger_attempt *a);
bool show_attempt_trains(const struct tern_ledger_attempt *a);

/* The price of a node: --instance or --usd-hour, which may be 0; NAN without one. */
extern const char *show_instance;
extern double show_usd_hour;
int show_price(double *ret_usd_hour, struct tern_err *err);
#define SHOW_OPT_PRICE                                                                             \
    {"instance",                                                                                   \
     0,                                                                                            \
     TERN_OPT_TEXT,                                                                                \
     "TYPE",                                                                                       \
     .to.text = &show_instance,                                                                    \
     .help = "price of a node: this type's, on demand in us-east-1 (trn2: us-east-2)"},            \
    {                                                                                              \
        "usd-hour", 0, TERN_OPT_REAL, "USD", .to.real = &show_usd_hour,                            \
                                             .help = "price of a node for an hour"                 \
    }

/* As tern ledger goodput, cost and why print them with --json; new references.  `price`: of a node
 * for an hour, NAN: not known. */
json_t *show_json_goodput(const struct show_facts *f);
json_t *show_json_cost(const struct show_facts *f, double price);
/* The attempts, each with its end, at most `evidence` checks and as many events (the newest), and
 * what was lost. */
int show_json_attempts(const struct show_facts *f, size_t evidence, json_t **ret_rows,
                       struct tern_err *err);

/* The step that `total` reaches last without going beyond `limit`; -1: none. */
double show_sum_step(const struct show_sum *s, double limit);
/* The sum up to `step`; NAN: there is none.  Takes log(n). */
double show_sum_at(const struct show_sum *s, double step);

/* Fill node_hours_sum: node-hours of all attempts until each training step that counts was done. */
int show_facts_sum_node_hours(struct show_facts *f, struct tern_err *err);

/* What a run has spent where it is at a step. */
enum show_axis { SHOW_STEPS, SHOW_TOKENS, SHOW_SECONDS, SHOW_NODE_HOURS };
/* Of training steps that count, and the node-hours of all attempts, up to `step`; before the first
 * step 0; NAN: not known. */
double show_facts_at(const struct show_facts *f, enum show_axis axis, double step);

#endif

/* Runs of the ledger at an MLflow tracking server, by its REST API
 * (https://mlflow.org/docs/latest/rest-api.html, version 2.0).
 *
 *     struct tern_mlflow *m = tern_mlflow_open("https://mlflow.example.org", NULL, err);
 *     tern_mlflow_export(m, run, &what, &done, err);
 *     tern_mlflow_close(m);
 *
 *     ledger                              MLflow
 *     run                                 run, found again by its tag tern.run_id
 *     effective value of a metric         metric: step, timestamp (ms), value
 *     perplexities of a held-out set      metrics held_out/SET/perplexity_token, perplexity_byte
 *     keys of the recipe                  params
 *     name, user, state, tags, notes      tags tern.*, mlflow.user, mlflow.note.content
 *     outcome                             status
 *
 * NaN and infinities are sent as "NaN", "Infinity" and "-Infinity"; a server with a database stores
 * an infinity as the greatest double.
 *
 * Credentials come from MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, else from
 * MLFLOW_TRACKING_TOKEN, as MLflow's own client takes them.  They stand in no message, and are sent
 * over https://, or to this machine, alone.  A request that fails for a passing reason (no
 * connection, a reset, 429, 5xx) is made again for TERN_STORE_DEADLINE seconds.
 */
#ifndef TERN_MLFLOW_MLFLOW_H
#define TERN_MLFLOW_MLFLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/ledger/ledger.h"

struct tern_mlflow;
/* Makes no request yet.  `stop`: not 0, perhaps set by a signal's handler: requests end with an
 * error; NULL: never. */
struct tern_mlflow *tern_mlflow_open(const char *url, const int *stop, struct tern_err *err);
void tern_mlflow_close(struct tern_mlflow *m); /* NULL is fine */

struct tern_mlflow_param {
    const char *key, *value;
};
struct tern_mlflow_what {
    const char *experiment; /* by name; made where it is not there */
    const struct tern_mlflow_param *params;
    size_t n_params;
};
struct tern_mlflow_done {
    char run_id[64];  /* MLflow's */
    bool new_run;     /* MLflow did not have it */
    uint64_t sent;    /* values */
    uint64_t there;   /* values that MLflow had */
    unsigned renamed; /* metrics whose name MLflow does not take as it is */
    unsigned cut;     /* params and tags that were too long */
    unsigned kept;    /* params of another value there, which MLflow never changes */
};

/* Export one run (a run's view).  A run that is there already gets what it lacks.  TERN_USAGE where
 * it has values that the ledger's run has not, or not any more, since MLflow takes no value back:
 * then nothing is sent.  A call that is interrupted leaves a run that the next one completes. */
int tern_mlflow_export(struct tern_mlflow *m, struct tern_ledger *run,
                       const struct tern_mlflow_what *what, struct tern_mlflow_done *ret_done,
                       struct tern_err *err);

#endif

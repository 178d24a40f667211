/* Inside mlflow: requests to the server. */
#ifndef TERN_MLFLOW_CLIENT_H
#define TERN_MLFLOW_CLIENT_H

#include <jansson.h>

#include "core/mlflow/mlflow.h"

/* The tries of what is done until it succeeds.  Begins as {0}. */
struct tern_mlflow_tries {
    int64_t begun_ns; /* boot clock */
    double wait_s;
    unsigned n;
    char why[300]; /* of the last failure */
};
/* Wait before the next try; -1 where the time is over. */
int tern_mlflow_pause(struct tern_mlflow *m, struct tern_mlflow_tries *t, struct tern_err *err);

enum tern_mlflow_answer {
    TERN_MLFLOW_FAILED = -1, /* with `err` */
    TERN_MLFLOW_DONE,
    TERN_MLFLOW_ABSENT, /* RESOURCE_DOES_NOT_EXIST */
    TERN_MLFLOW_THERE,  /* RESOURCE_ALREADY_EXISTS */
    TERN_MLFLOW_AGAIN,  /* a passing reason, in t->why: it may have been done or not */
};

/* One request, made once: POST of `body`, or GET where that is NULL.  `call` is "runs/create", or
 * with an encoded query "runs/get?run_id=X".  *ret_answer (NULL: not wanted) is a new reference. */
enum tern_mlflow_answer tern_mlflow_try(struct tern_mlflow *m, const char *call, const json_t *body,
                                        struct tern_mlflow_tries *t, json_t **ret_answer,
                                        struct tern_err *err);
/* Made again until it succeeds: for what may be done twice.  Never TERN_MLFLOW_AGAIN. */
enum tern_mlflow_answer tern_mlflow_do(struct tern_mlflow *m, const char *call, const json_t *body,
                                       json_t **ret_answer, struct tern_err *err);

/* The error of an answer without the members that it must have; -1. */
int tern_mlflow_strange(struct tern_mlflow *m, const char *call, struct tern_err *err);
/* For messages. */
const char *tern_mlflow_url(const struct tern_mlflow *m);

#endif

/* Inside mlflow: the values of one metric, here and there. */
#ifndef TERN_MLFLOW_HISTORY_H
#define TERN_MLFLOW_HISTORY_H

#include "core/mlflow/client.h"

struct tern_mlflow_point {
    int64_t step, time_ms;
    double value;
};
/* Starts as {0}. */
struct tern_mlflow_points {
    size_t n, cap;
    struct tern_mlflow_point *point;
};

int tern_mlflow_points_add(struct tern_mlflow_points *p, int64_t step, int64_t time_ms,
                           double value, struct tern_err *err);
void tern_mlflow_points_free(struct tern_mlflow_points *p);

/* What the run there has of a metric, in order of step; none is no error. */
int tern_mlflow_history(struct tern_mlflow *m, const char *run_id, const char *key,
                        struct tern_mlflow_points *ret_points, struct tern_err *err);
/* One of that step, time and value?  `p` is in order of step. */
bool tern_mlflow_points_have(const struct tern_mlflow_points *p, const struct tern_mlflow_point *q);

#endif

/* Inside mlflow: names of metrics and params. */
#ifndef TERN_MLFLOW_KEY_H
#define TERN_MLFLOW_KEY_H

#include <stdbool.h>

enum { TERN_MLFLOW_KEY_MAX = 250 }; /* bytes; servers from 1.0 on */

/* The name as MLflow takes it, malloc'ed.  *ret_changed: it is another one; then a sum of the name
 * stands at its end, so that two names never become one. */
char *tern_mlflow_key(const char *name, bool *ret_changed);

#endif

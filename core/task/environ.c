/* A rank's environment: the variables of its profile. */
#include "core/task/task.h"

#include "core/base/vars.h"
#include "core/env/env.h"

extern char **environ;

int tern_task_set_environ(void (*look)(struct tern_env_facts *facts), struct tern_err *err)
{
    struct tern_env_facts facts;
    struct tern_env_rows rows;

    if (tern_env_facts_gather(&facts, err) < 0)
        return -1;
    facts.launched = true;
    if (look)
        look(&facts);
    if (tern_env_build(tern_var("TERN_PROFILE"), &facts, environ, &rows, err) < 0)
        return -1;
    int rc = tern_env_apply(&rows, err);
    tern_env_rows_free(&rows);
    return rc;
}

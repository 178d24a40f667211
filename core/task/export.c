/* The part of the supervisor: the environment of tern-task, and its own log beside those of ranks.
 */
#include "core/task/task.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/logs/logs.h"

#include <stdlib.h>
#include <unistd.h>

static struct tern_logs_file *own; /* of the newest attempt; a process has one supervisor */

static void keep(const char *line, size_t len)
{
    tern_logs_file_add(own, tern_clock_wall_ns(), 't', ' ', line, len);
    tern_logs_file_flush(own);
}

static void open_own(const char *dir)
{
    char host[256] = "";
    uint64_t bytes = tern_logs_bytes();

    tern_log_copy(NULL);
    tern_logs_file_close(own);
    gethostname(host, sizeof host - 1);
    own = bytes ? tern_logs_file_open(dir, "run", host, bytes, NULL) : NULL;
    if (own)
        tern_log_copy(keep);
}

void tern_task_export(const struct tern_recipe *r, const char *run_id, unsigned attempt)
{
    char *logs = tern_logs_dir(r->ledger.dir, run_id, attempt);
    struct tern_buf b = {0};

    for (size_t i = 0; i < r->workload.metrics.n; i++) {
        const struct tern_recipe_metric *m = &r->workload.metrics.v[i];
        if (m->known)
            tern_buf_printf(&b, "known\t%s", m->known);
        else if (m->tensorboard)
            tern_buf_printf(&b, "tensorboard\t%s", m->tensorboard);
        else
            tern_buf_printf(&b, "pattern\t%s", m->pattern);
        for (size_t k = 0; k < m->n_names; k++)
            tern_buf_printf(&b, "\t%s", m->names[k]);
        tern_buf_puts(&b, "\n");
    }
    open_own(logs);
    setenv("TERN_RUN_LOGS", logs, 1);
    setenv("TERN_FABRIC_DUMP", logs, 1);
    setenv("TERN_RUN_METRICS", b.data ? b.data : "", 1);
    tern_buf_free(&b);
    free(logs);
}

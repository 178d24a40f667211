#include "core/run/place.h"

#include "core/base/str.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int64_t tern_run_least_cpus(const char *list)
{
    int64_t least = -1;

    while (*list) {
        char *end;
        long long cpus = strtoll(list, &end, 10);
        if (end == list || cpus < 1)
            return -1;
        if (least < 0 || cpus < least)
            least = cpus;
        if (*end == '(') { /* "(x4)": so many nodes have it */
            end = strchr(end, ')');
            if (!end)
                return -1;
            end++;
        }
        if (*end == ',')
            end++;
        else if (*end)
            return -1;
        list = end;
    }
    return least;
}

/* A number that Slurm sets for the batch script; `def` when it is absent. */
static int slurm_number(const char *name, int64_t def, int64_t *out, struct tern_err *err)
{
    const char *s = getenv(name);

    *out = def;
    if (s && *s && tern_str_int(s, 0, UINT32_MAX, out) < 0)
        return tern_err_set(err, TERN_USAGE, "%s: '%s' is no number; Slurm sets it", name, s);
    return 0;
}

static int in_job(struct tern_run_place *p, struct tern_err *err)
{
    const char *list = getenv("SLURM_JOB_NODELIST"), *cpus = getenv("SLURM_JOB_CPUS_PER_NODE");
    int64_t job, tasks, chosen;

    if (slurm_number("SLURM_JOB_ID", 0, &job, err) < 0 ||
        slurm_number("SLURM_RESTART_COUNT", 0, &p->restarts, err) < 0 ||
        slurm_number("SLURM_JOB_NUM_NODES", 1, &p->nodes, err) < 0 ||
        slurm_number("SLURM_STEP_NUM_TASKS", 1, &tasks, err) < 0 ||
        slurm_number("SLURM_CPUS_PER_TASK", 0, &chosen, err) < 0)
        return -1;
    if (tasks > 1)
        return tern_err_set(err, TERN_USAGE,
                            "tern run launches the ranks itself. Call it once, in the batch "
                            "script, not under srun.");
    if (!list || strlen(list) >= sizeof p->node_list)
        return tern_err_set(err, TERN_USAGE,
                            "SLURM_JOB_NODELIST is %s: is this the batch script of job %" PRId64
                            "?",
                            list ? "too long" : "not set", job);
    strcpy(p->node_list, list);
    p->slurm = true;
    p->job = (uint32_t)job;
    int64_t least = cpus ? tern_run_least_cpus(cpus) : -1;
    if (least > 0 && least < p->ranks_per_node)
        return tern_err_set(err, TERN_USAGE,
                            "the job has nodes with %" PRId64 " CPUs (SLURM_JOB_CPUS_PER_NODE=%s) "
                            "and the recipe wants %" PRId64 " ranks a node. Submit with "
                            "--exclusive or --ntasks-per-node=%" PRId64 ", or use `tern submit`.",
                            least, cpus, p->ranks_per_node, p->ranks_per_node);
    p->cpus_per_rank = chosen ? chosen : least > 0 ? least / p->ranks_per_node : 0;
    return 0;
}

int tern_run_place(struct tern_run_place *p, const struct tern_recipe *r, int64_t ranks,
                   struct tern_err *err)
{
    *p = (struct tern_run_place){.nodes = 1};
    p->ranks_per_node = r->workload.command ? r->workload.tasks_per_node : r->launch.ranks_per_node;
    if (gethostname(p->host, sizeof p->host - 1) < 0)
        return tern_err_sys(err, "cannot tell this host's name");
    if (getenv("SLURM_JOB_ID")) {
        if (ranks)
            return tern_err_set(err, TERN_USAGE,
                                "--ranks is for runs outside Slurm; in job %s the recipe's "
                                "launch.ranks_per_node counts",
                                getenv("SLURM_JOB_ID"));
        return in_job(p, err);
    }
    if (ranks)
        p->ranks_per_node = ranks;
    strcpy(p->node_list, p->host);
    return 0;
}

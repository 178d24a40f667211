#include "core/place/place.h"

#include "core/base/log.h"
#include "core/base/str.h"
#include "core/env/env.h"
#include "core/place/map.h"
#include "core/slurm/slurm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int64_t tern_place_least_cpus(const char *list)
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

extern char **environ;

/* A number that Slurm sets for the batch script; `def` when it is absent. */
static int slurm_number(const char *name, int64_t def, int64_t *out, struct tern_err *err)
{
    const char *s = getenv(name);

    *out = def;
    if (s && *s && tern_str_int(s, 0, UINT32_MAX, out) < 0)
        return tern_err_set(err, TERN_USAGE, "%s: '%s' is no number; Slurm sets it", name, s);
    return 0;
}

/* ------------------------------------------------------------------ the job's nodes */

/* One of the variables that Slurm sets for each group of a heterogeneous job, or for the job. */
static const char *of_group(const struct tern_place *p, const char *name, int group)
{
    char full[80];

    if (p->groups == 1)
        return getenv(name);
    snprintf(full, sizeof full, "%s_HET_GROUP_%d", name, group);
    return getenv(full);
}

static int group_number(const struct tern_place *p, const char *name, int group, int64_t def,
                        int64_t *out, struct tern_err *err)
{
    char full[80];

    snprintf(full, sizeof full, p->groups == 1 ? "%s" : "%s_HET_GROUP_%d", name, group);
    return slurm_number(full, def, out, err);
}

static int count_hosts(const char *list, int64_t *ret_n, struct tern_err *err)
{
    char **hosts;
    size_t n;

    if (tern_slurm_hosts_expand(list, &hosts, &n, err) < 0)
        return -1;
    tern_slurm_hosts_free(hosts);
    *ret_n = (int64_t)n;
    return 0;
}

static int add_nodes(struct tern_place *p, int group, struct tern_err *err)
{
    const char *list = of_group(p, "SLURM_JOB_NODELIST", group);
    size_t n = strlen(p->node_list);
    int64_t job, nodes;

    if (group_number(p, "SLURM_JOB_ID", group, 0, &job, err) < 0 ||
        group_number(p, "SLURM_JOB_NUM_NODES", group, 1, &nodes, err) < 0)
        return -1;
    if (p->in_step && list && count_hosts(list, &nodes, err) < 0)
        return -1; /* some releases put the nodes of the task's step there */
    if (!list || n + strlen(list) + 2 > sizeof p->node_list)
        return tern_err_set(err, TERN_USAGE,
                            "SLURM_JOB_NODELIST is %s: is this the batch script of job %" PRId64
                            "?",
                            list ? "too long" : "not set", job);
    snprintf(p->node_list + n, sizeof p->node_list - n, "%s%s", n ? "," : "", list);
    p->group_job[group] = (uint32_t)job;
    p->nodes += nodes;
    return 0;
}

/* ------------------------------------------------------------------ the options of sbatch */

static const char *per_node_key(const struct tern_recipe *r)
{
    return r->workload.command ? "workload.tasks_per_node" : "launch.ranks_per_node";
}

/* --ntasks-per-node or -n of the job that are not the recipe's. */
static int check_tasks(const struct tern_place *p, const struct tern_recipe *r,
                       struct tern_err *err)
{
    int64_t first = 0, per_node, tasks;

    for (int g = 0; g < p->groups; g++) {
        if (group_number(p, "SLURM_NTASKS_PER_NODE", g, 0, &per_node, err) < 0)
            return -1;
        if (g > 0 && per_node != first)
            return tern_err_set(err, TERN_USAGE,
                                "the job's groups ask for %" PRId64 " and %" PRId64
                                " tasks a node (--ntasks-per-node). A run has the same number of "
                                "ranks on every node, %" PRId64 " (%s): ask for it in each group.",
                                first, per_node, p->ranks_per_node, per_node_key(r));
        first = per_node;
    }
    if (slurm_number("SLURM_NTASKS", 0, &tasks, err) < 0)
        return -1;
    if (first && first != p->ranks_per_node)
        tern_warn("the job asked for --ntasks-per-node=%" PRId64 ", the recipe's %s is %" PRId64
                  ", and that many are started on each node. Submit with "
                  "--ntasks-per-node=%" PRId64 ", or by `tern submit`.",
                  first, per_node_key(r), p->ranks_per_node, p->ranks_per_node);
    else if (!first && tasks && p->groups == 1 && tasks != p->nodes * p->ranks_per_node)
        tern_warn("the job asked for -n %" PRId64 " on %" PRId64 " node%s; the recipe's %s is "
                  "%" PRId64 ", and %" PRId64 " are started in all. Submit with "
                  "--ntasks-per-node=%" PRId64 " and without -n.",
                  tasks, p->nodes, p->nodes == 1 ? "" : "s", per_node_key(r), p->ranks_per_node,
                  p->nodes * p->ranks_per_node, p->ranks_per_node);
    return 0;
}

/* The --cpus-per-task of the job, where the variable would be the step's; 0: none. */
static int64_t cpus_of_job(uint32_t id)
{
    struct tern_slurm_job *job = NULL;
    int64_t n = 0;

    if (tern_slurm_job_load(id, &job, NULL) == 0 && job->cpus_per_task > 1) /* 1 is the default */
        n = job->cpus_per_task;
    tern_slurm_job_free(job);
    return n;
}

/* CPUs for the ranks of the node that has the fewest. */
static int check_cpus(struct tern_place *p, const struct tern_recipe *r, struct tern_err *err)
{
    int64_t least = -1, chosen;
    const char *list = NULL;

    for (int g = 0; g < p->groups; g++) {
        const char *of = of_group(p, "SLURM_JOB_CPUS_PER_NODE", g);
        int64_t n = of ? tern_place_least_cpus(of) : -1;
        if (n > 0 && (least < 0 || n < least)) {
            least = n;
            list = of;
        }
    }
    if (slurm_number("SLURM_CPUS_PER_TASK", 0, &chosen, err) < 0)
        return -1;
    if (p->in_step)
        chosen = cpus_of_job(p->job);
    if (least > 0 && least < p->ranks_per_node)
        return tern_err_set(err, TERN_USAGE,
                            "the job has nodes with %" PRId64 " CPUs (SLURM_JOB_CPUS_PER_NODE=%s) "
                            "and the recipe wants %" PRId64 " ranks a node (%s). Submit with "
                            "--exclusive or --ntasks-per-node=%" PRId64 ", or use `tern submit`.",
                            least, list, p->ranks_per_node, per_node_key(r), p->ranks_per_node);
    if (least > 0 && chosen * p->ranks_per_node > least)
        return tern_err_set(err, TERN_USAGE,
                            "the job asked for --cpus-per-task=%" PRId64 ", and %" PRId64
                            " ranks a node (%s) would need %" PRId64 " of a node's %" PRId64
                            " CPUs. Leave it out, or submit with --cpus-per-task=%" PRId64 ".",
                            chosen, p->ranks_per_node, per_node_key(r), chosen * p->ranks_per_node,
                            least, least / p->ranks_per_node);
    p->cpus_per_rank = chosen ? chosen : least > 0 ? least / p->ranks_per_node : 0;
    return 0;
}

static int check_groups(const struct tern_place *p, const struct tern_recipe *r,
                        struct tern_err *err)
{
    if (p->groups == 1)
        return 0;
    if (r->launch.spares)
        return tern_recipe_fail(r, "launch.spares", err,
                                "a heterogeneous job cannot keep nodes in reserve. Take it out, or "
                                "submit one group of nodes.");
    if (r->launch.with == TERN_LAUNCH_MPIRUN)
        return tern_recipe_fail(r, "launch.with", err,
                                "mpirun sees the first group of a heterogeneous job alone. Use "
                                "srun.");
    return 0;
}

int64_t tern_place_ranks_on_node(const struct tern_place *p, const struct tern_recipe *r)
{
    if (!r->workload.command)
        return p->ranks_per_node;
    return p->ranks_per_node * (r->workload.workers_per_node / r->workload.tasks_per_node);
}

static int check_degrees(const struct tern_place *p, const struct tern_recipe *r,
                         struct tern_err *err)
{
    struct tern_err why = {0};
    int64_t nodes = p->nodes - (p->slurm ? r->launch.spares : 0);

    if (!r->workload.command || nodes < 1 ||
        tern_place_map_check((size_t)nodes, tern_place_ranks_on_node(p, r), r->parallel.tensor,
                             r->parallel.pipeline, &why) == 0)
        return 0;
    return tern_recipe_fail(r, "parallel", err, "%s", why.text);
}

/* Read what matters of a step around this process, and unset its variables. */
static int leave_step(struct tern_place *p, struct tern_err *err)
{
    struct tern_env_step step;
    int64_t tasks = 1;
    int rc = 0;

    tern_env_step_look(&step, environ);
    p->in_step = step.inside;
    if (sscanf(step.name, "%*u.%u", &p->step) != 1)
        p->step = 0;
    if (step.inside)
        rc = slurm_number("SLURM_STEP_NUM_TASKS", 1, &tasks, err);
    if (rc == 0 && tasks > 1)
        rc = tern_err_set(err, TERN_USAGE,
                          "srun has started tern run as one of the %" PRId64 " tasks of step %s, "
                          "and each would train. tern run starts the ranks itself: call it once, "
                          "in the batch script without srun, or by `srun -N1 -n1 tern run`.",
                          tasks, step.name);
    if (rc == 0)
        tern_env_step_leave(&step);
    tern_env_step_free(&step);
    return rc;
}

/* A job that was submitted inside another job inherits its variables.  Slurm replaces these only
 * when the new job is a member of an array or was queued again. */
static void forget_other_job(void)
{
    static const char *const arrays[] = {"SLURM_ARRAY_JOB_ID",     "SLURM_ARRAY_TASK_ID",
                                         "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN",
                                         "SLURM_ARRAY_TASK_MAX",   "SLURM_ARRAY_TASK_STEP"};
    const char *id = getenv("SLURM_JOB_ID"), *array = getenv(arrays[0]);
    const char *restarts = getenv("SLURM_RESTART_COUNT");
    struct tern_slurm_job *job = NULL;
    int64_t n;

    if ((!array && !restarts) || tern_str_int(id, 1, UINT32_MAX, &n) < 0 ||
        !tern_slurm_available() || tern_slurm_job_load((uint32_t)n, &job, NULL) < 0)
        return;
    if (array && strtoul(array, NULL, 10) != job->array_job) {
        tern_info("SLURM_ARRAY_JOB_ID=%s is another job's, from which this one was submitted: left "
                  "out",
                  array);
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
            unsetenv(arrays[i]);
    }
    if (restarts && job->restarts == 0)
        unsetenv("SLURM_RESTART_COUNT");
    tern_slurm_job_free(job);
}

/* A variable with a number of the job, `own` (0: the job has none), is left out or set to that
 * where it has another one. */
static void set_number(const char *name, const char *options, int own)
{
    const char *is = getenv(name);
    char text[24];

    snprintf(text, sizeof text, "%d", own);
    if (is && strcmp(is, text) != 0)
        tern_info("%s=%s is not this job's (sbatch %s): left out", name, is, options);
    if (own)
        setenv(name, text, 1);
    else
        unsetenv(name);
}

/* The ranks' srun takes these variables for settings, and tern for the job's options.  The job's
 * own numbers count.  A lower SLURM_THREADS_PER_CORE would leave out some of the CPUs that Slurm
 * gave the job, and srun refuses that.  A variable may be that of another job from which this one
 * was submitted, or have been left out with those of a step. */
static void set_numbers(const struct tern_place *p)
{
    const char *threads = getenv("SLURM_THREADS_PER_CORE"), *cpus = getenv("SLURM_CPUS_PER_TASK");
    const char *tasks = getenv("SLURM_NTASKS"), *per_node = getenv("SLURM_NTASKS_PER_NODE");
    struct tern_slurm_job *job = NULL;

    if (p->groups > 1) /* each group has its own numbers, which this query does not tell */
        cpus = tasks = per_node = NULL;
    if ((!threads && !cpus && !tasks && !per_node && !p->in_step) || !tern_slurm_available() ||
        tern_slurm_job_load(p->job, &job, NULL) < 0)
        return;
    if (threads || p->in_step)
        set_number("SLURM_THREADS_PER_CORE", "--threads-per-core, --hint", job->threads_per_core);
    /* Slurm says 1 where the job gave no number; the variable then says 1, or is not set. */
    if (cpus && strcmp(cpus, "1") != 0)
        set_number("SLURM_CPUS_PER_TASK", "--cpus-per-task",
                   job->cpus_per_task > 1 ? job->cpus_per_task : 0);
    if (per_node)
        set_number("SLURM_NTASKS_PER_NODE", "--ntasks-per-node", job->tasks_per_node);
    /* Slurm counts tasks of a job that gave no number, too, and then sets no variable. */
    if (tasks && strtol(tasks, NULL, 10) != job->n_tasks)
        set_number("SLURM_NTASKS", "--ntasks", 0);
    tern_slurm_job_free(job);
}

static int in_job(struct tern_place *p, const struct tern_recipe *r, struct tern_err *err)
{
    int64_t job, groups;

    forget_other_job();
    if (leave_step(p, err) < 0 || slurm_number("SLURM_JOB_ID", 0, &job, err) < 0 ||
        slurm_number("SLURM_RESTART_COUNT", 0, &p->restarts, err) < 0 ||
        slurm_number("SLURM_HET_SIZE", 1, &groups, err) < 0)
        return -1;
    if (groups < 1 || groups > TERN_PLACE_GROUPS_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "the job has %" PRId64 " groups (SLURM_HET_SIZE); at most %d are "
                            "supported",
                            groups, (int)TERN_PLACE_GROUPS_MAX);
    p->slurm = true;
    p->job = (uint32_t)job;
    if (getenv("SLURM_ARRAY_JOB_ID") &&
        (slurm_number("SLURM_ARRAY_JOB_ID", 0, &p->array_job, err) < 0 ||
         slurm_number("SLURM_ARRAY_TASK_ID", 0, &p->array_task, err) < 0))
        return -1;
    p->groups = (int)groups;
    set_numbers(p);
    p->nodes = 0;
    for (int g = 0; g < p->groups; g++)
        if (add_nodes(p, g, err) < 0)
            return -1;
    if (check_groups(p, r, err) < 0 || check_tasks(p, r, err) < 0 || check_cpus(p, r, err) < 0)
        return -1;
    return check_degrees(p, r, err);
}

int tern_place_read(struct tern_place *p, const struct tern_recipe *r, int64_t ranks,
                    struct tern_err *err)
{
    *p = (struct tern_place){.nodes = 1, .groups = 1};
    p->ranks_per_node = r->workload.command ? r->workload.tasks_per_node : r->launch.ranks_per_node;
    if (gethostname(p->host, sizeof p->host - 1) < 0)
        return tern_err_sys(err, "cannot tell this host's name");
    if (getenv("SLURM_JOB_ID")) {
        if (ranks)
            return tern_err_set(err, TERN_USAGE,
                                "--ranks is for runs outside Slurm; in job %s the recipe's "
                                "launch.ranks_per_node counts",
                                getenv("SLURM_JOB_ID"));
        return in_job(p, r, err);
    }
    if (leave_step(p, err) < 0)
        return -1;
    if (ranks)
        p->ranks_per_node = ranks;
    snprintf(p->node_list, sizeof p->node_list, "%s", p->host);
    return check_degrees(p, r, err);
}

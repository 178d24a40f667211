/* Which environment variables belong to the srun step that a process runs in, and leaving it. */
#include "core/env/env.h"

#include "core/base/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------ which variables are srun's */

/* Of these, those in which a variable is the step's. */
enum when {
    NEVER,  /* an option of srun's or the user's own, though a pattern below has it */
    ANY,    /* srun alone sets it: wherever it is */
    MARKED, /* in a step, or where a step has left its variables */
    BOUND,  /* the same, but what a script has written there itself stays */
    COUNT,  /* in a step, or where it is the number of tasks of a step that has left it */
    INSIDE, /* in a step; a batch script has it from Slurm */
};

struct rule {
    const char *pattern; /* a name; with a '*' at its end, what begins so */
    enum when when;
    const char *why;
};

static const char step_why[] = "describes the step around `tern run`; the ranks' own srun sets it";
static const char place_why[] = "is this process's place in its step; each rank gets its own";
static const char shape_why[] = "is the shape of the step around `tern run`, which srun would take "
                                "for the ranks' own";
static const char bind_why[] = "is how this one task is bound; as a setting of the ranks' srun it "
                               "would bind those of every node likewise";
static const char meet_why[] = "leads to the server of the step around `tern run`; ranks that met "
                               "there would be the same one";
static const char mpi_why[] =
    "is the --mpi of the step around `tern run`; the ranks' srun takes its "
    "own, or MpiDefault";
static const char users_why[] =
    "srun does not write it so: it is yours, and a setting of the ranks' "
    "srun";
static const char other_why[] = "is another job's, from which this one was submitted";

/* srun(1) and sbatch(1), "OUTPUT ENVIRONMENT VARIABLES"; the first that fits counts. */
static const struct rule rules[] = {
    {"SLURM_STEP_GRES", NEVER, NULL},
    {"SLURM_STEP_KILLED_MSG_NODE_ID", NEVER, NULL},
    {"SLURM_STEP*", ANY, step_why},
    {"SLURM_LAUNCH_NODE_IPADDR", ANY, step_why},
    {"SLURM_SRUN_COMM_*", ANY, step_why},
    {"SLURM_PTY_*", ANY, "is the terminal of the step around `tern run`"},
    {"SLURMD_TRES_*", ANY, step_why},
    {"SRUN_DEBUG", MARKED, step_why},
    {"SLURM_PMI_KVS_NO_DUP_KEYS", NEVER, NULL},
    {"SLURM_PMI*", ANY, meet_why},
    {"SLURM_MPI_TYPE", MARKED, mpi_why},
    {"SLURM_RESV_PORTS", INSIDE, meet_why},
    {"PMI_RANK", MARKED, place_why},
    {"PMI_ID", MARKED, place_why},
    {"PMI_LOCAL_*", MARKED, place_why},
    {"PMI_SIZE", MARKED, place_why},
    {"PMI_UNIVERSE_SIZE", MARKED, place_why},
    {"PMI_FD", MARKED, meet_why},
    {"PMI_PORT", MARKED, meet_why},
    {"PMI_JOBID", MARKED, meet_why},
    {"PMI_SPAWNED", MARKED, meet_why},
    {"PMI_CONTROL_*", MARKED, meet_why},
    {"PMIX_RANK", MARKED, place_why},
    {"PMIX_NAMESPACE", MARKED, place_why},
    {"PMIX_ID", MARKED, place_why},
    {"PMIX_HOSTNAME", MARKED, place_why},
    {"PMIX_SERVER_*", MARKED, meet_why},
    {"PMIX_SYSTEM_TMPDIR", MARKED, meet_why},
    {"PMIX_SECURITY_MODE", MARKED, meet_why},
    {"PMIX_PTL_MODULE", MARKED, meet_why},
    {"PMIX_BFROP_BUFFER_TYPE", MARKED, meet_why},
    {"PMIX_GDS_MODULE", MARKED, meet_why},
    {"PMIX_DSTORE_*", MARKED, meet_why},
    {"PMIX_VERSION", MARKED, meet_why},
    {"SLURM_CPU_BIND*", BOUND, bind_why},
    {"SLURM_MEM_BIND*", BOUND, bind_why},
    {"SLURM_PROCID", INSIDE, place_why},
    {"SLURM_LOCALID", INSIDE, place_why},
    {"SLURM_NODEID", INSIDE, place_why},
    {"SLURM_GTIDS", INSIDE, place_why},
    {"SLURM_TASK_PID", INSIDE, place_why},
    {"SLURM_TOPOLOGY_ADDR*", INSIDE, place_why},
    {"SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_*", MARKED, step_why},
    {"SLURM_CPUS_ON_NODE", INSIDE, shape_why},
    {"SLURM_CPUS_PER_GPU", INSIDE, shape_why},
    {"SLURM_MEM_PER_GPU", INSIDE, shape_why},
    {"SLURM_GPUS", INSIDE, shape_why},
    {"SLURM_GPUS_*", INSIDE, shape_why},
    {"SLURM_GPU_BIND", INSIDE, shape_why},
    {"SLURM_GPU_FREQ", INSIDE, shape_why},
    {"SLURM_SHARDS_ON_NODE", INSIDE, shape_why},
    {"SLURM_TASKS_*", INSIDE, shape_why},
    {"SLURM_NNODES", INSIDE, shape_why},
    {"SLURM_NTASKS", COUNT, shape_why},
    {"SLURM_NPROCS", COUNT, shape_why},
    {"SLURM_NTASKS_PER_*", INSIDE, shape_why},
    {"SLURM_CPUS_PER_TASK", INSIDE, shape_why},
    {"SLURM_TRES_PER_TASK", INSIDE, shape_why}, /* from 23.11 on, as is the next but one */
    {"SLURM_THREADS_PER_CORE", INSIDE, shape_why},
    {"SLURM_OOM_KILL_STEP", INSIDE, shape_why},
    {"SLURM_DISTRIBUTION", INSIDE, shape_why},
    {"SLURM_DIST_PLANESIZE", INSIDE, shape_why},
    {"SLURM_OVERCOMMIT", INSIDE, shape_why},
    {"SLURM_LABELIO", INSIDE, shape_why},
    {"SLURM_CPU_FREQ_REQ", INSIDE, shape_why},
    {"SLURM_UMASK", INSIDE, step_why},
};

static bool fits(const char *pattern, const char *name)
{
    size_t n = strlen(pattern);

    return pattern[n - 1] == '*' ? strncmp(pattern, name, n - 1) == 0 : strcmp(pattern, name) == 0;
}

static const struct rule *rule_of(const char *name)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (fits(rules[i].pattern, name))
            return &rules[i];
    return NULL;
}

static const char *value_of(char *const *variables, const char *name)
{
    size_t n = strlen(name);

    for (; *variables; variables++)
        if (strncmp(*variables, name, n) == 0 && (*variables)[n] == '=')
            return *variables + n + 1;
    return NULL;
}

/* ------------------------------------------------------------------ where this process is */

/* "slurmstepd: [12.0]", "[12.batch]", "[12.3+1]" (a group of a heterogeneous job): false for any
 * other process's title. */
static bool read_title(const char *title, uint32_t *job, char step[32])
{
    static const char begin[] = "slurmstepd: [";
    char *end;

    if (strncmp(title, begin, sizeof begin - 1) != 0)
        return false;
    unsigned long n = strtoul(title + sizeof begin - 1, &end, 10);
    if (end == title + sizeof begin - 1 || n == 0 || n > UINT32_MAX || *end != '.')
        return false;
    size_t len = strcspn(end + 1, "]+");
    if (len == 0 || len >= 32)
        return false;
    memcpy(step, end + 1, len);
    step[len] = '\0';
    *job = (uint32_t)n;
    return true;
}

static bool read_small(pid_t pid, const char *what, char *to, size_t size)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, to, size - 1);
    if (fd >= 0)
        close(fd);
    to[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static pid_t parent_of(pid_t pid)
{
    char stat[512];
    int parent;

    if (!read_small(pid, "stat", stat, sizeof stat))
        return 0;
    const char *after = strrchr(stat, ')'); /* a program may have spaces in its name */
    return after && sscanf(after + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

/* The step of the nearest slurmstepd above; false where none is seen. */
static bool find_above(uint32_t *job, char step[32])
{
    enum { DEEP = 256 }; /* shells in shells; no chain of parents goes round */
    pid_t pid = getppid();
    char title[128];

    for (int i = 0; i < DEEP && pid > 0; i++) {
        if (read_small(pid, "cmdline", title, sizeof title) && read_title(title, job, step))
            return true;
        pid = parent_of(pid);
    }
    return false;
}

static bool is_number(const char *s)
{
    return s && *s && s[strspn(s, "0123456789")] == '\0';
}

/* Is it a step of srun's: neither batch's nor salloc's, which have numbers above all of srun's? */
static bool of_srun(const char *step)
{
    return is_number(step) && strlen(step) <= 10 && strtoull(step, NULL, 10) < 0xfffffff0ULL;
}

/* "SLURM_JOB_ID_HET_GROUP_1=13": is a group of that number among them? */
static bool has_group(char *const *variables, unsigned long job)
{
    static const char group[] = "SLURM_JOB_ID_HET_GROUP_";

    for (; *variables; variables++) {
        const char *is = strchr(*variables, '=');
        if (is && tern_str_starts(*variables, group) && strtoul(is + 1, NULL, 10) == job)
            return true;
    }
    return false;
}

/* SLURM_JOB_ID is that of a heterogeneous job's first group everywhere; steps have their group's.
 */
static bool is_our_job(char *const *variables, uint32_t job)
{
    const char *ours = value_of(variables, "SLURM_JOB_ID");

    return (ours && strtoul(ours, NULL, 10) == job) || has_group(variables, job);
}

bool tern_env_step_is_local(uint32_t job)
{
    DIR *d = opendir("/proc");
    const struct dirent *e;
    bool here = false;
    char title[128], step[32];
    uint32_t of;

    if (!d || !find_above(&of, step)) /* not even the one above this process is seen */
        here = true;
    while (!here && (e = readdir(d)))
        here = is_number(e->d_name) &&
               read_small((pid_t)strtol(e->d_name, NULL, 10), "cmdline", title, sizeof title) &&
               read_title(title, &of, step) && of == job && of_srun(step);
    if (d)
        closedir(d);
    return here;
}

static void find_step(struct tern_env_step *s, char *const *variables)
{
    const char *job = value_of(variables, "SLURM_JOB_ID");
    const char *step = value_of(variables, "SLURM_STEP_ID");
    uint32_t above_job;
    char above[32];

    if (!step)
        step = value_of(variables, "SLURM_STEPID");
    if (find_above(&above_job, above)) {
        s->inside = of_srun(above) && is_our_job(variables, above_job);
        if (s->inside)
            snprintf(s->name, sizeof s->name, "%u.%s", above_job, above);
    } else if (job && step && of_srun(step)) {
        s->inside = true;
        snprintf(s->name, sizeof s->name, "%.12s.%.12s", job, step);
    }
}

/* ------------------------------------------------------------------ what is left out */

/* As srun composes it, "quiet,mask_cpu:0x1", of _VERBOSE, _TYPE and _LIST, which it also sets.  Any
 * other value was written by a script. */
static bool srun_wrote(char *const *variables, const char *name, const char *value)
{
    char other[48];

    snprintf(other, sizeof other, "%.20s_TYPE", name);
    const char *type = value_of(variables, other);
    snprintf(other, sizeof other, "%.20s_LIST", name);
    const char *list = value_of(variables, other);
    size_t n = strlen(value), t = type ? strlen(type) : 0, l = list ? strlen(list) : 0;

    if (strncmp(value, "quiet", 5) == 0 || strstr(value, "mask_") || strstr(value, "map_"))
        return true;
    return type && t + l && n >= t + l && strncmp(value + n - l - t, type, t) == 0 &&
           strcmp(value + n - l, list ? list : "") == 0;
}

static bool is_count(char *const *variables, const char *value)
{
    const char *tasks = value_of(variables, "SLURM_STEP_NUM_TASKS");

    return tasks && strcmp(tasks, value) == 0;
}

static bool is_left(const struct rule *r, bool inside, bool marked, char *const *variables,
                    const char *name, const char *value)
{
    switch (r->when) {
    case NEVER:
        return false;
    case ANY:
        return true;
    case MARKED:
        return inside || marked;
    case BOUND:
        /* The parts ("..._BIND_TYPE") are no settings of srun's; the whole is. */
        return (inside || marked) && (strcmp(name + strlen(name) - 5, "_BIND") != 0 ||
                                      srun_wrote(variables, name, value));
    case COUNT:
        return inside || (marked && is_count(variables, value));
    case INSIDE:
        return inside;
    }
    return false;
}

/* A group's variables of a heterogeneous job that this one is not. */
static bool is_group(const char *name)
{
    return strstr(name, "_HET_GROUP_") || strstr(name, "_PACK_GROUP_") ||
           tern_str_starts(name, "SLURM_HET_") || tern_str_starts(name, "SLURM_PACK_");
}

static bool of_other_groups(char *const *variables)
{
    const char *job = value_of(variables, "SLURM_JOB_ID");

    return job && value_of(variables, "SLURM_JOB_ID_HET_GROUP_0") &&
           !has_group(variables, strtoul(job, NULL, 10));
}

static void add(struct tern_env_step *s, const char *name, const char *value, const char *why,
                bool stays)
{
    struct tern_env_left *left = reallocarray(s->left, s->n + 1, sizeof *left);

    if (!left)
        return;
    s->left = left;
    left[s->n++] = (struct tern_env_left){tern_strdup(name), tern_strdup(value), why, stays};
}

void tern_env_step_look(struct tern_env_step *s, char *const *variables)
{
    *s = (struct tern_env_step){0};
    find_step(s, variables);
    const bool marked = value_of(variables, "SLURM_STEP_ID") || value_of(variables, "SLURM_STEPID");
    const bool groups = of_other_groups(variables);
    for (char *const *e = variables; *e; e++) {
        const char *is = strchr(*e, '=');
        if (!is || is == *e)
            continue;
        char *name = tern_strf("%.*s", (int)(is - *e), *e);
        const struct rule *r = rule_of(name);
        if (groups && is_group(name))
            add(s, name, is + 1, other_why, /* stays= */ false);
        else if (r && is_left(r, s->inside, marked, variables, name, is + 1))
            add(s, name, is + 1, r->why, /* stays= */ false);
        else if (r && r->when == BOUND)
            add(s, name, is + 1, users_why, /* stays= */ true);
        free(name);
    }
}

void tern_env_step_leave(const struct tern_env_step *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (!s->left[i].stays)
            unsetenv(s->left[i].name);
}

void tern_env_step_free(struct tern_env_step *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->left[i].name);
        free(s->left[i].value);
    }
    free(s->left);
    *s = (struct tern_env_step){0};
}

#include "core/task/marker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/vars.h"

enum { GROUPS_MAX = 128 }; /* Slurm's MAX_HET_JOB_COMPS */

struct marker {
    char job[32], step[32];
    unsigned major, minor;
};

static bool parse(struct marker *r, const char *text)
{
    int n = 0;

    r->minor = 0;
    if (sscanf(text, "%31[0-9].%31[a-z0-9].%9u%n", r->job, r->step, &r->major, &n) != 3)
        return false;
    if (!text[n]) /* 1.0 did not write the minor number */
        return true;
    text += n, n = 0;
    return sscanf(text, ".%9u%n", &r->minor, &n) == 1 && !text[n];
}

/* The groups of a heterogeneous job are jobs of their own; SLURM_JOB_ID is the first one's in all.
 */
static bool is_our_job(const char *number)
{
    const char *job = getenv("SLURM_JOB_ID"), *groups = getenv("SLURM_HET_SIZE");
    char name[48];

    for (long g = 0, n = groups ? strtol(groups, NULL, 10) : 0; g < n && g < GROUPS_MAX; g++) {
        snprintf(name, sizeof name, "SLURM_JOB_ID_HET_GROUP_%ld", g);
        const char *of = getenv(name);
        if (of && strcmp(number, of) == 0)
            return true;
    }
    return job && strcmp(number, job) == 0;
}

/* Is it of this job and step?  The number of salloc's interactive step is above any of srun's. */
static bool is_ours(const struct marker *r)
{
    const char *step = getenv("SLURM_STEP_ID");
    bool batch = !step || strtoul(step, NULL, 10) >= 0xfffffff0UL;

    return is_our_job(r->job) && strcmp(r->step, batch ? "batch" : step) == 0;
}

static bool take(struct marker *r, const char *text)
{
    return text && parse(r, text) && is_ours(r);
}

int tern_task_check_marker(bool report, struct tern_err *err)
{
    const char *node = getenv("SLURMD_NODENAME");
    struct marker r;

    if (!getenv("SLURM_SPANK__SLURM_SPANK_OPTION_tern_tern") || !node)
        return 0;
    if (!take(&r, tern_var("TERN_MARKER")) && !take(&r, tern_var("TERN_RECEIPT")))
        return tern_err_set(err, TERN_TEMPFAIL,
                            "the job was submitted with --tern, but tern's plugin did not run on "
                            "node %s. Is it in plugstack.conf there, and built for the Slurm "
                            "release there? The slurmd log says.",
                            node);
    if (r.major != TERN_TASK_MARKER_MAJOR)
        return tern_err_set(err, TERN_TEMPFAIL,
                            "tern's plugin on node %s is of version %u.%u, which does not work "
                            "with this tern (%d.%d). Install the same tern on login and compute "
                            "nodes.",
                            node, r.major, r.minor, TERN_TASK_MARKER_MAJOR, TERN_TASK_MARKER_MINOR);
    if (report && r.minor < TERN_TASK_MARKER_MINOR)
        tern_warn("tern's plugin on node %s is older (%u.%u) than this tern (%d.%d): newer "
                  "options of the job may not arrive there",
                  node, r.major, r.minor, TERN_TASK_MARKER_MAJOR, TERN_TASK_MARKER_MINOR);
    else if (report && r.minor > TERN_TASK_MARKER_MINOR)
        tern_info("tern's plugin on node %s is newer (%u.%u) than this tern (%d.%d)", node, r.major,
                  r.minor, TERN_TASK_MARKER_MAJOR, TERN_TASK_MARKER_MINOR);
    return 0;
}

#include "core/health/replace.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/health/health.h"
#include "core/slurm/slurm.h"
#include "core/vcluster/vcluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"none", "hyperpod", "pcluster", "virtual"};
/* HyperPod's agent looks for exactly this. */
static const char action_replace[] = "Action:Replace";
/* What slurmctld writes by itself of a node that it has set down: not a person's decision. */
static const char not_responding[] = "Not responding";

bool tern_health_on_hyperpod(void)
{
    const char *root = tern_var("TERN_HEALTH_ROOT");
    char *folder = tern_strf("%s/opt/sagemaker_cluster", root ? root : "");
    const bool there = tern_fs_exists(folder);

    free(folder);
    return there;
}

enum tern_health_platform tern_health_platform_find(void)
{
    if (tern_vcluster_local_folder())
        return TERN_HEALTH_PLATFORM_VIRTUAL;
    if (tern_health_on_hyperpod() || tern_fs_exists("/opt/ml/config"))
        return TERN_HEALTH_PLATFORM_HYPERPOD;
    if (tern_fs_exists("/etc/parallelcluster") || tern_fs_exists("/opt/parallelcluster"))
        return TERN_HEALTH_PLATFORM_PCLUSTER;
    return TERN_HEALTH_PLATFORM_NONE;
}

int tern_health_platform_of(const char *word)
{
    for (int i = TERN_HEALTH_PLATFORM_NONE; i <= TERN_HEALTH_PLATFORM_VIRTUAL; i++)
        if (strcmp(word, names[i]) == 0)
            return i;
    return -1;
}

const char *tern_health_platform_name(enum tern_health_platform p)
{
    return names[p];
}

static int request(enum tern_health_platform p, const char *node, const char *why,
                   struct tern_err *err)
{
    char reason[256];

    tern_health_reason(reason, sizeof reason, "replace", why);
    switch (p) {
    case TERN_HEALTH_PLATFORM_HYPERPOD:
        return tern_slurm_node_update(node, TERN_SLURM_NODE_FAIL, action_replace, err);
    case TERN_HEALTH_PLATFORM_PCLUSTER:
        return tern_slurm_node_update(node, TERN_SLURM_NODE_POWER_OFF, reason, err);
    case TERN_HEALTH_PLATFORM_VIRTUAL:
        if (tern_slurm_node_update(node, TERN_SLURM_NODE_DRAIN, reason, err) < 0)
            return -1;
        /* Refused where it is off already; what else fails, fails below. */
        tern_vcluster_power(/* root= */ NULL, node, /* on= */ false, NULL, /* err= */ NULL);
        return tern_vcluster_power(/* root= */ NULL, node, /* on= */ true, NULL, err);
    default:
        return tern_err_set(err, TERN_FAILED,
                            "%s: this is neither HyperPod nor ParallelCluster nor a virtual "
                            "cluster. Ask the machines' administrator to replace it (--platform "
                            "names the platform where it cannot be seen from here).",
                            node);
    }
}

/* Is the node replaced?  `old` is when the old machine's slurmd had started. */
static bool came_true(enum tern_health_platform p, const struct tern_slurm_node_state *n,
                      time_t old, const char **what)
{
    bool reborn = n->started != old && !n->down && !n->powering && !n->powered_down;

    switch (p) {
    case TERN_HEALTH_PLATFORM_HYPERPOD:
        *what = "is back";
        return !n->failed && !n->down && strcmp(n->reason, action_replace) != 0;
    case TERN_HEALTH_PLATFORM_PCLUSTER:
        *what = n->powered_down ? "is off; a new instance comes with the next job that needs it"
                                : "is back on a new instance";
        return (n->powered_down && !n->powering) || reborn;
    default:
        *what = "is born again";
        return reborn;
    }
}

static int wait_for(enum tern_health_platform p, const char *node, time_t old, double wait_s,
                    char *said, size_t size, struct tern_err *err)
{
    /* A virtual node is back in half a second, an instance in minutes. */
    const int64_t rest = p == TERN_HEALTH_PLATFORM_VIRTUAL ? 200000000 : 1000000000;
    int64_t began = tern_clock_boot_ns(), until = began + (int64_t)(wait_s * 1e9);
    char state[40] = "not known";

    for (;;) {
        struct tern_slurm_node_state n;
        const char *what;
        if (tern_slurm_node_load_state(node, &n, err) == 0) {
            bool done = came_true(p, &n, old, &what), mended;
            /* The drain was for the old machine. */
            if (done && n.drained && p == TERN_HEALTH_PLATFORM_VIRTUAL) {
                if (tern_health_undrain(node, /* well= */ NULL, &mended, err) < 0)
                    return -1;
                done = false; /* Slurm may still have to notice */
            }
            snprintf(state, sizeof state, "%s", n.word);
            if (done) {
                snprintf(said, size, "%s %s (after %.1f s)", node, what,
                         (double)(tern_clock_boot_ns() - began) / 1e9);
                return 0;
            }
        } else if (err && err->code != TERN_TEMPFAIL) {
            return -1;
        }
        if (tern_clock_boot_ns() >= until)
            return tern_err_set(err, TERN_TEMPFAIL,
                                "%s has not come back within %g s (its state: %s). It was asked "
                                "for; look with `sinfo -n %s` later.",
                                node, wait_s, state, node);
        tern_clock_sleep_ns(rest);
    }
}

int tern_health_replace(enum tern_health_platform p, const char *node, const char *why,
                        double wait_s, char *said, size_t size, struct tern_err *err)
{
    struct tern_slurm_node_state n;

    if (tern_slurm_node_load_state(node, &n, err) < 0)
        return -1;
    bool asked = strcmp(n.reason, action_replace) == 0;
    bool foreign = *n.reason && !asked && strcmp(n.reason, not_responding) != 0 &&
                   !tern_health_reason_ours(n.reason, NULL);
    if (foreign)
        tern_err_set(err, TERN_FAILED,
                     "%s: has another reason than tern's: '%.200s'. tern leaves that alone; when "
                     "it is settled: scontrol update nodename=%s state=resume.",
                     node, n.reason, node);
    if (foreign)
        return -1;
    /* Slurm keeps whole seconds, and must be able to tell the two machines apart. */
    while (n.started == tern_clock_wall_ns() / 1000000000)
        tern_clock_sleep_ns(100000000);
    if (!asked && request(p, node, why, err) < 0)
        return -1;
    if (wait_s <= 0) {
        snprintf(said, size, "%s: asked %s for a replacement", node, names[p]);
        return 0;
    }
    return wait_for(p, node, n.started, wait_s, said, size, err);
}

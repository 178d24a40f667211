/* Drains with a reason of tern's; only those are undone. */
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/health/health.h"
#include "core/slurm/slurm.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static const char prefix[] = "tern:";

char *tern_health_reason(char *to, size_t n, const char *check, const char *text)
{
    enum { MOST = 200 }; /* what sinfo -R and logs carry without trouble */

    snprintf(to, n < MOST ? n : MOST, "%s%s: %s", prefix, check, text);
    for (unsigned char *c = (unsigned char *)to; *c; c++)
        if (*c < ' ' || *c >= 127 || *c == '"' || *c == '\'' || *c == '\\')
            *c = '?';
    return to;
}

bool tern_health_reason_ours(const char *reason, char *check)
{
    size_t n;

    if (!reason || !tern_str_starts(reason, prefix))
        return false;
    reason += sizeof prefix - 1;
    n = strspn(reason, "abcdefghijklmnopqrstuvwxyz-");
    if (n == 0 || n > 15 || reason[n] != ':')
        return false;
    if (check)
        snprintf(check, 16, "%.*s", (int)n, reason);
    return true;
}

/* *n: nodes beside `node` that tern has drained for `check`; *all: the cluster's nodes. */
static int count_drained_for(const char *node, const char *check, size_t *n, size_t *all,
                             struct tern_err *err)
{
    struct tern_slurm_nodes *nodes = NULL;

    *n = *all = 0;
    if (tern_slurm_nodes_load(&nodes, err) < 0)
        return -1;
    for (size_t i = 0; i < nodes->n; i++) {
        char why[16];
        if (tern_str_starts(nodes->node[i].state, "future"))
            continue;
        ++*all;
        *n += strcmp(nodes->node[i].name, node) != 0 &&
              tern_health_reason_ours(nodes->node[i].reason, why) && strcmp(why, check) == 0;
    }
    tern_slurm_nodes_free(nodes);
    return 0;
}

/* More than a quarter of the nodes; of the shared storage's check more than this one. */
static bool too_many(const char *check, size_t n, size_t all)
{
    return strcmp(check, "mount") == 0 ? n > 0 : 4 * (n + 1) > all && n > 0;
}

static int undo(const char *node, struct tern_err *err)
{
    return tern_slurm_node_update(node, TERN_SLURM_NODE_UNDRAIN, NULL, err);
}

/* Is the node drained, or does it have a reason?  Then *done says which, and the node stays as it
 * is. */
static int find_drain(const char *node, bool *is, enum tern_health_drained *done,
                      struct tern_err *err)
{
    struct tern_slurm_node_state n;

    if (tern_slurm_node_load_state(node, &n, err) < 0)
        return -1;
    bool drained = n.drained || n.failed, ours = tern_health_reason_ours(n.reason, NULL);
    bool foreign = *n.reason && !ours;
    *is = foreign || drained;
    if (*is)
        *done = foreign || !ours ? TERN_HEALTH_FOREIGN : TERN_HEALTH_ALREADY;
    return 0;
}

/* All nodes may have drained themselves at the same moment: look again when all have. */
static int look_again(const char *node, const char *check, enum tern_health_drained *done,
                      struct tern_err *err)
{
    size_t n, all;
    uint32_t random = 0;
    bool drained;
    enum tern_health_drained whose = TERN_HEALTH_ALREADY;

    if (getrandom(&random, sizeof random, GRND_NONBLOCK) < 0)
        random = 0;
    tern_clock_sleep_ns(1500000000 + (int64_t)(random % 1500) * 1000000);
    if (count_drained_for(node, check, &n, &all, err) < 0)
        return -1;
    if (!too_many(check, n, all))
        return 0;
    /* An admin may have given the drain another reason since, or have undone it. */
    if (find_drain(node, &drained, &whose, err) < 0)
        return -1;
    if (drained && whose == TERN_HEALTH_ALREADY && undo(node, err) < 0)
        return -1;
    *done = whose == TERN_HEALTH_FOREIGN ? whose : TERN_HEALTH_EPIDEMIC;
    return 0;
}

int tern_health_drain(const char *node, const char *check, const char *text, bool alone,
                      enum tern_health_drained *done, struct tern_err *err)
{
    char reason[256];
    size_t others = 0, all = 0;
    bool is;

    if (find_drain(node, &is, done, err) < 0)
        return -1;
    if (is)
        return 0;
    if (alone) {
        if (count_drained_for(node, check, &others, &all, err) < 0)
            return -1;
        if (too_many(check, others, all)) {
            *done = TERN_HEALTH_EPIDEMIC;
            return 0;
        }
        /* Loading a large cluster's nodes takes time, in which an admin may have drained it. */
        if (find_drain(node, &is, done, err) < 0)
            return -1;
        if (is)
            return 0;
    }
    tern_health_reason(reason, sizeof reason, check, text);
    if (tern_slurm_node_update(node, TERN_SLURM_NODE_DRAIN, reason, err) < 0) {
        if (!err || err->code != TERN_FAILED)
            return -1;
        *done = TERN_HEALTH_MAY_NOT;
        tern_err_set(err, TERN_FAILED,
                     "%s should be drained, and this user may not. Ask the admin for: scontrol "
                     "update nodename=%s state=drain reason=\"%s\"",
                     node, node, reason);
        return 0;
    }
    *done = TERN_HEALTH_DRAINED;
    return alone ? look_again(node, check, done, err) : 0;
}

int tern_health_undrain(const char *node, const struct tern_health_rows *well, bool *mended,
                        struct tern_err *err)
{
    struct tern_slurm_node_state n;
    char check[16] = "";
    bool ok = !well, bad = false;

    *mended = false;
    if (tern_slurm_node_load_state(node, &n, err) < 0)
        return -1;
    bool ours = n.drained && tern_health_reason_ours(n.reason, check);
    if (!ours)
        return 0;
    for (size_t i = 0; well && i < well->n; i++) {
        if (strcmp(well->row[i].check, check) != 0)
            continue;
        /* A row to be compared with other nodes' is no verdict yet. */
        ok = ok || (well->row[i].verdict == TERN_HEALTH_OK && !*well->row[i].same);
        bad = bad || well->row[i].verdict >= TERN_HEALTH_UNKNOWN;
    }
    if (!ok || bad)
        return 0;
    if (undo(node, err) < 0)
        return -1;
    *mended = true;
    return 0;
}

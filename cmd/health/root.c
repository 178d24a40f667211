/* What Slurm runs as root on each node: --prolog, and --program, its HealthCheckProgram. */
#include "cmd/health/health.h"

#include "core/base/log.h"

#include <signal.h>
#include <unistd.h>

enum {
    UNATTENDED_S = 30, /* Slurm kills a HealthCheckProgram after 60 s */
    NODE_BAD = 3,      /* exit statuses beside 0 and 2: see tern_health_status */
    UNKNOWN = 4,
};

static int out_of_time_status;

static void out_of_time(int signal)
{
    (void)signal;
    _exit(out_of_time_status);
}

void health_root_begin(bool prolog)
{
    out_of_time_status = prolog ? 0 : UNKNOWN;
    signal(SIGALRM, out_of_time);
    alarm(UNATTENDED_S);
}

int health_root_prolog_status(int rc, const struct tern_err *err)
{
    if (rc < 0)
        tern_warn("%s", err->text);
    return rc == NODE_BAD ? NODE_BAD : 0;
}

static void drain_local(const struct tern_health_node *n)
{
    static const char *const words[] = {
        [TERN_HEALTH_DRAINED] = "drained",
        [TERN_HEALTH_ALREADY] = "drained already",
        [TERN_HEALTH_FOREIGN] = "bad, and drained for another reason: left alone",
        [TERN_HEALTH_EPIDEMIC] = "bad as too many others are: none of them is drained for it",
    };
    enum tern_health_drained done;
    struct tern_err err = {0};

    if (tern_health_drain(n->name, n->check, n->text, /* alone= */ true, &done, &err) < 0)
        tern_warn("%s: cannot be drained: %s", n->name, err.text);
    else if (done == TERN_HEALTH_MAY_NOT)
        tern_warn("%s", err.text);
    else
        tern_warn("%s: %s (%s: %s)", n->name, words[done], n->check, n->text);
}

static void mend_local(const char *node, const struct tern_health_rows *rows)
{
    struct tern_err err = {0};
    bool mended = false;

    if (tern_health_undrain(node, rows, &mended, &err) < 0)
        tern_warn("%s: %s", node, err.text);
    else if (mended)
        tern_info("%s: well again, its drain is taken back", node);
}

int health_root_check(struct tern_health_options *o, bool drains, struct tern_err *err)
{
    struct tern_health_rows rows = {0};
    struct tern_health_judged judged = {0};
    char name[65] = "unknown", *nodes[] = {name};
    int rc = -1;

    tern_health_node_name(NULL, name);
    o->unattended = true;
    if (tern_health_check_local(o, &rows, err) < 0 ||
        tern_health_judge(&rows, nodes, 1, &judged, err) < 0)
        goto out;
    const struct tern_health_node *n = &judged.node[0];
    if (n->verdict != TERN_HEALTH_OK)
        tern_warn("%s: %s: %s: %s", n->name, tern_health_verdict_name(n->verdict), n->check,
                  n->text);
    rc = tern_health_status(&judged);
    if (drains && n->verdict == TERN_HEALTH_NODE_BAD)
        drain_local(n);
    else if (drains)
        mend_local(name, &rows);
out:
    tern_health_judged_free(&judged);
    tern_health_rows_free(&rows);
    return rc;
}

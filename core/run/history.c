#include "core/run/history.h"

#include "core/base/str.h"
#include "core/ledger/ledger.h"
#include "core/run/requeue.h"

#include <string.h>

static bool made_one(const struct tern_ledger_rows *checkpoints, uint32_t attempt)
{
    for (size_t i = 0; i < checkpoints->n; i++) {
        const struct tern_ledger_checkpoint *c = &checkpoints->checkpoints[i];
        if (c->attempt == attempt && c->state && strcmp(c->state, "writing") != 0 &&
            strcmp(c->state, "failed") != 0)
            return true;
    }
    return false;
}

static bool ended(const struct tern_ledger_attempt *a, const char *outcome)
{
    return a->outcome && strcmp(a->outcome, outcome) == 0;
}

static bool is_fault(const struct tern_ledger_attempt *a)
{
    return ended(a, "fault") || ended(a, "killed");
}

static bool is_trouble(const struct tern_ledger_attempt *a)
{
    return !a->outcome || ended(a, "node_fail") || is_fault(a) ||
           (ended(a, "requeued") && a->cause && tern_str_starts(a->cause, TERN_RUN_GONE));
}

int tern_run_history_read(struct tern_run_history *h, const char *ledger_dir, const char *run_id,
                          uint32_t job, const char *kind, struct tern_err *err)
{
    struct tern_ledger_rows attempts = {0}, checkpoints = {0};
    struct tern_ledger *l = tern_ledger_open_run(ledger_dir, run_id, err);
    struct tern_run_history got = {0};
    int rc = -1;

    if (!l)
        return -1;
    if (tern_ledger_attempts(l, &attempts, err) < 0 ||
        tern_ledger_checkpoints_made(l, &checkpoints, err) < 0)
        goto out;
    bool trailing = true, newest = true;
    for (size_t i = attempts.n; i-- > 0;) {
        const struct tern_ledger_attempt *a = &attempts.attempts[i];
        if (strcmp(a->kind, kind) != 0)
            continue;
        got.newest_left |= newest && made_one(&checkpoints, a->attempt);
        newest = false;
        bool ours = a->job_id == job && is_trouble(a);
        trailing = trailing && !ended(a, "done") && !made_one(&checkpoints, a->attempt);
        got.attempts += ours;
        got.vain += trailing && ours;
        got.faults += trailing && is_fault(a);
    }
    *h = got;
    rc = 0;
out:
    tern_ledger_rows_free(&attempts);
    tern_ledger_rows_free(&checkpoints);
    tern_ledger_close(l);
    return rc;
}

#include "core/run/settle.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/ckpt/ckpt.h"
#include "core/ledger/ledger.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct settle {
    const struct tern_run_attempt *a;
    struct tern_ckpt_entry *have; /* [n] */
    size_t n;
    struct tern_ledger_rows checkpoints, attempts;
};

static int record(const struct tern_run_attempt *a, uint32_t attempt,
                  const struct tern_ledger_checkpoint *row, struct tern_err *err)
{
    if (attempt == a->number)
        return tern_ledger_spool_checkpoint(a->spool, row, err);
    struct tern_ledger_spool *s =
        tern_ledger_spool_open(a->o->recipe->ledger.dir, a->id, attempt, "after", err);
    const int rc = s ? tern_ledger_spool_checkpoint(s, row, err) : -1;
    return tern_ledger_spool_close(s, err) < 0 || rc != 0 ? -1 : 0;
}

static void tell(const struct settle *s, uint32_t attempt, const char *was,
                 const struct tern_ledger_checkpoint *row)
{
    struct tern_err err = {0};

    if (record(s->a, attempt, row, &err) < 0)
        tern_warn("the ledger does not say that %s is %s: %s", row->path, row->state, err.text);
    else
        tern_info("the checkpoint of step %" PRId64 " was %s in the ledger, and is %s", row->step,
                  was, row->state);
}

static struct tern_ledger_checkpoint row_of(const struct tern_ckpt_entry *e)
{
    return (struct tern_ledger_checkpoint){.step = (int64_t)e->step,
                                           .path = e->path,
                                           .bytes = (int64_t)e->bytes,
                                           .shards = e->shards,
                                           .manifest_sha256 = e->digest,
                                           .state = "published"};
}

static bool is(const struct tern_ledger_checkpoint *row, const char *state)
{
    return row->state && strcmp(row->state, state) == 0;
}

/* A row of this folder. */
static void settle_row(const struct settle *s, const struct tern_ledger_checkpoint *row)
{
    const struct tern_ckpt_entry *e = NULL;

    for (size_t i = 0; i < s->n && !e; i++)
        if (strcmp(s->have[i].path, row->path) == 0)
            e = &s->have[i];
    if (e && e->state == TERN_CKPT_GOOD) {
        const struct tern_ledger_checkpoint good = row_of(e);
        if (is(row, "writing"))
            tell(s, row->attempt, row->state, &good);
        return;
    }
    struct tern_ledger_checkpoint gone = *row;
    gone.state = is(row, "writing") ? "failed" : "deleted";
    if (is(row, "writing") || (!e && (is(row, "published") || is(row, "verified"))))
        tell(s, row->attempt, row->state, &gone);
}

/* The attempt that made it; 0: the ledger does not know. */
static uint32_t maker_of(const struct settle *s, const struct tern_ckpt_entry *e)
{
    struct tern_ckpt *c = tern_ckpt_open(e->path, NULL);
    const json_t *made = c ? json_object_get(tern_ckpt_manifest(c), "attempt") : NULL;
    const json_int_t attempt = json_integer_value(made);
    uint32_t known = 0;

    for (size_t i = 0; i < s->attempts.n && !known; i++)
        if (s->attempts.attempts[i].attempt == attempt && s->attempts.attempts[i].begin_ns)
            known = (uint32_t)attempt;
    tern_ckpt_close(c);
    return known;
}

static void settle_entry(const struct settle *s, const struct tern_ckpt_entry *e)
{
    const struct tern_ledger_checkpoint row = row_of(e);

    if (e->state != TERN_CKPT_GOOD)
        return;
    for (size_t i = 0; i < s->checkpoints.n; i++)
        if (strcmp(s->checkpoints.checkpoints[i].path, e->path) == 0)
            return;
    const uint32_t maker = maker_of(s, e);
    if (maker)
        tell(s, maker, "not", &row);
}

void tern_run_settle_checkpoints(const struct tern_run_attempt *a)
{
    const char *dir = a->o->recipe->checkpoint.dir;
    struct settle s = {.a = a};
    struct tern_err err = {0};

    if (!tern_run_attempt_is_trainer(a) || strcmp(a->kind, "train") != 0 || !dir ||
        !tern_fs_exists(dir))
        return;
    struct tern_ledger *l = tern_ledger_open_run(a->o->recipe->ledger.dir, a->id, &err);
    if (!l || tern_ledger_checkpoints(l, &s.checkpoints, &err) < 0 ||
        tern_ledger_attempts(l, &s.attempts, &err) < 0 ||
        tern_ckpt_list(dir, &s.have, &s.n, &err) < 0) {
        tern_warn("the ledger's checkpoints are not compared with %s: %s", dir, err.text);
        goto out;
    }
    for (size_t i = 0; i < s.checkpoints.n; i++) {
        char *in = tern_fs_dirname(s.checkpoints.checkpoints[i].path);
        if (strcmp(in, dir) == 0)
            settle_row(&s, &s.checkpoints.checkpoints[i]);
        free(in);
    }
    for (size_t i = 0; i < s.n; i++)
        settle_entry(&s, &s.have[i]);
out:
    tern_ckpt_list_free(s.have, s.n);
    tern_ledger_rows_free(&s.checkpoints);
    tern_ledger_rows_free(&s.attempts);
    tern_ledger_close(l);
}

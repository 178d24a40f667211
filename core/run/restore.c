#include "core/run/restore.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/inputs/inputs.h"
#include "core/retain/restore.h"
#include "core/run/watch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Storage that fails now is no damage: -1 if a checkpoint cannot be opened for such a reason. */
static int check_storage(const struct tern_ckpt_entry *have, size_t n, struct tern_err *err)
{
    struct tern_err why = {0};

    for (size_t i = 0; i < n; i++)
        if (have[i].state == TERN_CKPT_BROKEN &&
            tern_ckpt_verify(have[i].path, /* full= */ false, &why) < 0 &&
            why.code == TERN_TEMPFAIL) {
            *err = why;
            return -1;
        }
    return 0;
}

/* Has the folder a checkpoint to go on from?  0: none, or damaged ones are newer: copies between
 * the two, *ret_range, are better.  -1 where it cannot be read. */
static int has_good(const char *dir, struct tern_run_copies *ret_range, struct tern_err *err)
{
    struct tern_run_copies range = {.after = -1, .before = UINT64_MAX};
    struct tern_ckpt_entry *have = NULL;
    size_t n = 0;
    int good = 0;

    *ret_range = range;
    if (!tern_fs_exists(dir))
        return 0;
    if (tern_ckpt_list(dir, &have, &n, err) < 0)
        return -1;
    for (size_t i = n; i-- > 0 && range.after < 0;) {
        if (have[i].state == TERN_CKPT_GOOD)
            range.after = (int64_t)have[i].step;
        else if (have[i].state == TERN_CKPT_BROKEN && range.before == UINT64_MAX)
            range.before = have[i].step + 1;
    }
    if (range.after < 0) {
        range.before = UINT64_MAX;
        good = check_storage(have, n, err);
    } else {
        good = range.before == UINT64_MAX;
    }
    tern_ckpt_list_free(have, n);
    *ret_range = range;
    return good;
}

/* ------------------------------------------------------------------ what the ledger knows */

/* malloc'ed: without links it would be another path than the ledger's. */
static char *whole_path(const char *path)
{
    char *cwd = *path == '/' || strstr(path, "://") ? NULL : getcwd(NULL, 0);
    char *whole = cwd ? tern_fs_join(cwd, path) : tern_strdup(path);
    size_t n = strlen(whole);

    while (n > 1 && whole[n - 1] == '/')
        whole[--n] = '\0';
    free(cwd);
    return whole;
}

/* Does the checkpoint `path` lie in folder `dir`? */
static bool lies_in(const char *path, const char *dir)
{
    char *in = tern_fs_dirname(path), *mine = whole_path(in), *theirs = whole_path(dir);
    const bool same = strcmp(mine, theirs) == 0;

    free(in);
    free(mine);
    free(theirs);
    return same;
}

/* Where run `id` made its checkpoints: 1 in this checkpoint.dir, -1 elsewhere, 0 not known. */
static int made_where(const struct tern_run_attempt *a, const char *id)
{
    const struct tern_recipe *r = a->o->recipe;
    struct tern_ledger *l = tern_ledger_open_run(r->ledger.dir, id, NULL);
    struct tern_ledger_rows made = {0};
    int where = 0;

    if (l && tern_ledger_checkpoints_made(l, &made, NULL) == 0)
        for (size_t i = 0; i < made.n && where <= 0; i++)
            where = lies_in(made.checkpoints[i].path, r->checkpoint.dir) ? 1 : -1;
    tern_ledger_rows_free(&made);
    tern_ledger_close(l);
    return where;
}

static bool made_elsewhere(void *ctx, const char *id)
{
    return made_where(ctx, id) < 0;
}

/* The newest run with a checkpoint in this checkpoint.dir, into `id`. */
static void find_in_ledger(const struct tern_run_attempt *a, char id[TERN_ULID_SIZE])
{
    const struct tern_recipe *r = a->o->recipe;
    struct tern_ledger *l = tern_ledger_open(r->ledger.dir, NULL);
    struct tern_ledger_rows all = {0};

    if (l && tern_ledger_checkpoints(l, &all, NULL) == 0)
        for (size_t i = all.n; i-- > 0 && !*id;)
            if (lies_in(all.checkpoints[i].path, r->checkpoint.dir))
                snprintf(id, TERN_ULID_SIZE, "%s", all.checkpoints[i].run_id);
    tern_ledger_rows_free(&all);
    tern_ledger_close(l);
}

/* ------------------------------------------------------------------ the copy */

static int still_leased(void *ctx, struct tern_err *err)
{
    struct tern_run_attempt *a = ctx;

    return a->lease ? tern_ckpt_lease_check(a->lease, err) : 0;
}

/* `ends`: filled with the signals that end it. */
static struct tern_retain_restore how_of(struct tern_run_attempt *a, sigset_t *ends)
{
    tern_run_watch_signals(ends);
    sigdelset(ends, SIGCHLD);
    sigdelset(ends, SIGUSR2);
    return (struct tern_retain_restore){.mirror = a->o->recipe->checkpoint.mirror,
                                        .run_id = a->copy_of,
                                        .other = made_elsewhere,
                                        .still = still_leased,
                                        .ctx = a,
                                        .ends = ends};
}

/* No copy can be read.  A run that began now would get a new id, and the copies that may be there
 * would never count again. */
static int no_mirror(const struct tern_run_attempt *a, struct tern_err *err)
{
    const struct tern_recipe *r = a->o->recipe;

    if (err->code == TERN_CONTINUED) { /* a signal, and nothing has begun */
        err->code = TERN_TEMPFAIL;
        return -1;
    }
    if (a->copies.after >= 0) {
        tern_warn("%s has a damaged checkpoint, and that of step %" PRId64
                  " is taken: copies in checkpoint.mirror cannot be read: %s",
                  r->checkpoint.dir, a->copies.after, err->text);
        return 0;
    }
    if (*a->copy_of)
        return tern_err_prefix(err,
                               "run %s has no good checkpoint in %s any more, and no copy of it "
                               "can be read from checkpoint.mirror",
                               a->copy_of, r->checkpoint.dir);
    return tern_err_prefix(err,
                           "%s has no checkpoint, and the copies that checkpoint.mirror may have "
                           "cannot be read (to begin anew, give another checkpoint.mirror)",
                           r->checkpoint.dir);
}

/* Neither run.id nor the ledger knows the copy's run: it may be another user's, with the same
 * recipe and mirror. */
static int check_known(const struct tern_run_attempt *a, const struct tern_retain_restored *copy,
                       struct tern_err *err)
{
    if (*a->copy_of || a->o->accept || made_where(a, copy->run_id) > 0)
        return 0;
    return tern_err_set(
        err, TERN_USAGE,
        "%s is of run %.*s, which neither %s nor the ledger knows. To go on as that "
        "run, add --accept; to begin anew, give another checkpoint.mirror.",
        copy->path, TERN_CKPT_ULID - 1, copy->run_id, a->o->recipe->checkpoint.dir);
}

int tern_run_restore_find(struct tern_run_attempt *a, struct tern_err *err)
{
    const struct tern_recipe *r = a->o->recipe;
    struct tern_retain_restored copy = {0};
    sigset_t ends;

    if (!r->checkpoint.mirror || !tern_run_attempt_is_trainer(a) || strcmp(a->kind, "train") != 0)
        return 0;
    const int good = has_good(r->checkpoint.dir, &a->copies, err);
    const int unknown = good ? 0 : tern_ckpt_run_read(r->checkpoint.dir, a->copy_of, err);
    if (good < 0 || unknown < 0)
        return -1;
    if (good)
        return 0;
    if (unknown)
        find_in_ledger(a, a->copy_of);
    const struct tern_retain_restore how = how_of(a, &ends);
    int rc = tern_retain_restore_find(&how, a->copies.before, &copy, err);
    if (rc < 0)
        return no_mirror(a, err);
    if (rc == 0)
        return 0;
    if ((int64_t)copy.step <= a->copies.after) {
        tern_retain_restore_free(&copy);
        return 0;
    }
    rc = check_known(a, &copy, err);
    if (rc == 0)
        rc = tern_inputs_same_run(r, copy.path, tern_ckpt_meta(copy.manifest), a->o->accept, err);
    if (rc == 0)
        memcpy(a->copy_of, copy.run_id, sizeof a->copy_of);
    a->copy = rc == 0;
    tern_retain_restore_free(&copy);
    return rc;
}

static int bring(struct tern_run_attempt *a, const struct tern_retain_restore *how,
                 const struct tern_retain_restored *copy, struct tern_err *err)
{
    const char *dir = a->o->recipe->checkpoint.dir;
    const int64_t began = tern_clock_boot_ns();
    char than[48] = "";

    if (a->copies.after >= 0)
        snprintf(than, sizeof than, " after step %" PRId64, a->copies.after);
    tern_info("%s has no good checkpoint of run %s%s: that of step %" PRIu64
              " comes back from %s (%.1f MiB)",
              dir, a->id, than, copy->step, copy->path, (double)copy->bytes / 0x1p20);
    const int rc = tern_retain_restore_bring(how, copy, dir, err);
    if (rc == 0)
        a->restored =
            tern_strf("the checkpoint of step %" PRIu64
                      " was brought back from %s: %.1f MiB in %.1f s. To begin anew, give another "
                      "checkpoint.dir.",
                      copy->step, copy->path, (double)copy->bytes / 0x1p20,
                      (double)(tern_clock_boot_ns() - began) / 1e9);
    return rc;
}

enum { DAMAGED_MAX = 8 }; /* copies in a row: the storage is at fault */

/* The copies that were passed over. */
struct damaged {
    struct tern_retain_restored v[DAMAGED_MAX];
    size_t n;
};

/* From the newest copy on, until one is whole. */
static int bring_first_whole(struct tern_run_attempt *a, const struct tern_retain_restore *how,
                             struct damaged *damaged, struct tern_err *err)
{
    uint64_t before = a->copies.before;

    while (damaged->n < DAMAGED_MAX) {
        struct tern_retain_restored copy;
        int rc = tern_retain_restore_find(how, before, &copy, err);
        if (rc < 0)
            return -1;
        if (rc > 0 && (int64_t)copy.step <= a->copies.after) {
            tern_retain_restore_free(&copy);
            rc = 0;
        }
        if (rc == 0)
            break;
        rc = bring(a, how, &copy, err);
        if (rc <= 0) {
            tern_retain_restore_free(&copy);
            return rc;
        }
        tern_warn("passed over as a copy: %s", err->text);
        before = copy.step;
        damaged->v[damaged->n++] = copy;
    }
    if (a->copies.after >= 0) /* that one is taken */
        return 0;
    return tern_err_set(
        err, TERN_FAILED,
        "%s: no copy of run %s there is whole%s. To begin from nothing, give another "
        "checkpoint.dir.",
        how->mirror, a->id, damaged->n == DAMAGED_MAX ? " of the newest 8" : "");
}

/* Until the first that fails: nodes wait. */
static void refuse_all(const struct tern_retain_restore *how, const struct damaged *damaged)
{
    struct tern_err why;

    for (size_t i = 0; i < damaged->n; i++)
        if (tern_retain_restore_refuse(how, &damaged->v[i], &why) < 0) {
            tern_warn("%s: is not marked as damaged: %s", damaged->v[i].path, why.text);
            return;
        }
}

int tern_run_restore_bring(struct tern_run_attempt *a, struct tern_err *err)
{
    struct damaged damaged = {0};
    sigset_t ends;

    if (!a->copy) {
        if (tern_run_attempt_is_trainer(a))
            tern_retain_restore_sweep(a->o->recipe->checkpoint.dir);
        return 0;
    }
    if (strcmp(a->copy_of, a->id) != 0)
        return tern_err_set(err, TERN_TEMPFAIL, "%s: another supervisor began a run there just now",
                            a->o->recipe->checkpoint.dir);
    const int good =
        has_good(a->o->recipe->checkpoint.dir, &a->copies, err); /* another attempt's, meanwhile */
    if (good)
        return good < 0 ? -1 : 0;
    const struct tern_retain_restore how = how_of(a, &ends);
    const int rc = bring_first_whole(a, &how, &damaged, err);
    a->stopped = rc < 0 && err->code == TERN_CONTINUED;
    if (a->stopped)
        tern_info("%s", err->text);
    if (rc == 0)
        refuse_all(&how, &damaged);
    for (size_t i = 0; i < damaged.n; i++)
        tern_retain_restore_free(&damaged.v[i]);
    return a->stopped ? 0 : rc;
}

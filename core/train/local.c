/* checkpoint.local: checkpoints are saved on the nodes, and flushed to checkpoint.dir beside the
 * next steps.
 *
 * One flush is under way at a time, of the newest checkpoint that all nodes have.  Those that come
 * while it lasts are passed over, but for the newest and those that checkpoint.keep_every keeps.
 * That of the best evaluation stays on the nodes and is flushed next. A save that fails on the
 * nodes goes to checkpoint.dir at once.  At a start the newest checkpoint that is complete on the
 * nodes is flushed first, if checkpoint.dir has none as new. */
#include "core/train/state.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/ckpt/local.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAILURES_MAX = 3 }; /* in a row: the nodes' storage is not tried again */

/* ------------------------------------------------------------------ the folder */

/* One rank of each node works in the node's folder. */
bool tern_train_local_leads(const struct train *t)
{
    return t->checkpoint.local.dir && tern_fabric_local_rank(t->options->fabric) == 0;
}

/* The name of this node's folder.  Where nodes of the fabric share a host's name, as containers
 * may, the second one's is NAME-1. */
static char *node_folder(struct train *t, struct tern_err *err)
{
    struct tern_fabric *f = t->options->fabric;
    int32_t mine = tern_fabric_node(f),
            *all = tern_alloc((size_t)t->size, sizeof *all, "nodes", err);
    const char *name = tern_fabric_node_name(f, t->rank);
    int before = 0, seen = -1;

    if (!all || tern_fabric_all_gather(t->world, &mine, all, sizeof mine, TERN_U8, err) < 0) {
        free(all);
        return NULL;
    }
    for (int r = 0; r < t->size && all[r] != mine; r++) {
        if (all[r] <= seen) /* nodes are numbered by their lowest rank */
            continue;
        seen = all[r];
        before += strcmp(tern_fabric_node_name(f, r), name) == 0;
    }
    free(all);
    return before ? tern_strf("%s-%d", name, before) : tern_strdup(name);
}

int tern_train_local_open(struct train *t, struct tern_err *err)
{
    struct train_local *l = &t->checkpoint.local;

    *l = (struct train_local){.step = -1, .done = -1, .first = -1, .found = -1};
    if (!t->recipe->checkpoint.local)
        return 0;
    if (tern_fabric_broadcast(t->world, t->run_id, sizeof t->run_id, TERN_U8, /* root= */ 0, err) <
        0)
        return -1;
    char *node = node_folder(t, err);
    if (!node)
        return -1;
    l->dir = tern_strf("%s/%s/%s", t->recipe->checkpoint.local, t->run_id, node);
    free(node);
    return 0;
}

bool tern_train_local_is_used(const struct train *t)
{
    return t->checkpoint.local.dir && !t->checkpoint.local.off;
}

void tern_train_local_trim(struct train *t)
{
    const char *dir = t->checkpoint.local.dir;
    struct tern_ckpt_entry *have = NULL;
    struct tern_err err = {0};
    size_t n = 0;

    const int own = tern_train_local_leads(t) ? tern_ckpt_local_check(dir, &err) : 0;
    if (own < 0 || (own > 0 && tern_ckpt_list(dir, &have, &n, &err) < 0))
        tern_warn("%s", err.text);
    for (size_t i = 0; i < n; i++)
        if ((have[i].step > t->progress.step || !t->checkpoint.resumed_from) &&
            tern_fs_remove_tree(have[i].path, &err) < 0)
            tern_warn("%s", err.text);
    tern_ckpt_list_free(have, n);
}

void tern_train_local_end(struct train *t)
{
    struct tern_err err = {0};

    if (!tern_train_local_leads(t))
        return;
    const int own = tern_ckpt_local_check(t->checkpoint.local.dir, &err);
    if (own < 0 || (own > 0 && tern_fs_remove_tree(t->checkpoint.local.dir, &err) < 0))
        tern_warn("%s", err.text);
    char *run = tern_fs_dirname(t->checkpoint.local.dir);
    rmdir(run); /* the last node's */
    free(run);
}

/* ------------------------------------------------------------------ flush */

void tern_train_local_say(struct train *t, const char *severity, const char *text)
{
    if (t->rank != 0)
        return;
    if (strcmp(severity, "info") == 0)
        tern_info("%s", text);
    else
        tern_warn("%s", text);
    tern_train_record_event(t, "checkpoint", severity, text);
}

/* `found`: the one that a start has found on the nodes, or NULL. */
static int begin_flush(struct train *t, uint64_t step, int64_t best,
                       const struct tern_ckpt_local *found, bool background, struct tern_err *err)
{
    struct train_checkpoint *c = &t->checkpoint;
    const struct tern_ckpt_peers peers = tern_train_save_peers(t);
    const struct tern_ckpt_flush_options options = {.from = c->local.dir,
                                                    .step = step,
                                                    .bytes = c->local.bytes,
                                                    .parts = found ? found->parts : NULL,
                                                    .digest = found ? found->digest : NULL,
                                                    .dir = t->recipe->checkpoint.dir,
                                                    .peers = &peers,
                                                    .lease = c->lease,
                                                    .tell = tern_train_follow_save,
                                                    .ctx = t};

    tern_train_set_doing(t, TERN_FABRIC_SAVES);
    tern_train_begin_publishing(c, step, best);
    c->met = t->size == 1;
    c->local.done = (int64_t)step; /* one that fails is not tried again */
    return tern_ckpt_flush_begin(&options, background, &c->local.flush, err);
}

/* 1: it is published; 0: it goes on; -1: it has failed.  */
static int advance_flush(struct train *t, struct tern_err *err)
{
    struct train_checkpoint *c = &t->checkpoint;
    struct tern_ckpt_saved saved;
    struct tern_err lost;

    tern_train_set_doing(t, TERN_FABRIC_SAVES);
    c->met = t->size == 1;
    c->local.all_ready = false;
    const int rc = tern_ckpt_save_advance(c->local.flush, &saved, err);
    if (rc == 0)
        return 0;
    tern_ckpt_save_free(c->local.flush);
    c->local.flush = NULL;
    if (rc < 0)
        return -1;
    tern_train_record_save(t, &saved, TRAIN_FLUSHED);
    if (tern_train_local_leads(t) &&
        tern_ckpt_local_mark(c->local.dir, c->publishing_step, &lost) < 0)
        tern_warn("%s", lost.text);
    return 1;
}

static void drop_flush(struct train *t)
{
    tern_ckpt_save_free(t->checkpoint.local.flush);
    t->checkpoint.local.flush = NULL;
}

static bool stays_for_good(const struct train *t, int64_t step)
{
    const int64_t every = t->recipe->checkpoint.keep_every;

    return every > 0 && step % every == 0;
}

/* Is `step` that of the best evaluation, if the next checkpoint is of step `next`? */
static bool is_best(const struct train *t, int64_t step, int64_t next)
{
    const int64_t best = t->progress.stop_rule.best_step;

    return step <= best && best < next;
}

/* Is the flush under way one that a newer checkpoint does not take the place of? */
static bool flush_stays(const struct train *t)
{
    const struct train_local *l = &t->checkpoint.local;

    const int64_t next = l->step > l->done ? l->step : (int64_t)t->progress.step;

    return l->flush && (stays_for_good(t, l->done) || is_best(t, l->done, next));
}

/* The step to be flushed next, if it is newer than `done`. */
static int64_t next_of(const struct train_local *l)
{
    return l->first > l->done ? l->first : l->step;
}

static int begin_next(struct train *t, bool background, struct tern_err *err)
{
    const struct train_local *l = &t->checkpoint.local;
    const int64_t next = next_of(l);

    return begin_flush(t, (uint64_t)next, next == l->first ? l->first_best : l->best,
                       /* found= */ NULL, background, err);
}

/* A newer one takes the place of the flush under way.  Collective. */
static int replace_flush(struct train *t, struct tern_err *err)
{
    int rc = 0;

    while (rc == 0 && flush_stays(t))
        rc = advance_flush(t, err);
    drop_flush(t);
    return rc < 0 ? -1 : 0;
}

/* The run goes on as it does without a save.  What cannot be read on the nodes makes their storage
 * useless, and not the run. */
static int fail_flush(struct train *t, const struct tern_err *why, struct tern_err *err)
{
    struct tern_err passing = *why;
    char what[96];

    if (why->code != TERN_TEMPFAIL) {
        t->checkpoint.local.off = true;
        passing.code = TERN_TEMPFAIL;
    }
    snprintf(what, sizeof what, "step %" PRId64 " was not copied to checkpoint.dir%s",
             t->checkpoint.local.done,
             t->checkpoint.local.off ? " (later ones of this attempt are saved there)" : "");
    return tern_train_save_failed(t, what, &passing, err);
}

int tern_train_local_go_on(struct train *t, struct tern_err *err)
{
    struct train_local *l = &t->checkpoint.local;
    struct tern_err why = {0};

    if (l->flush && l->all_ready && advance_flush(t, &why) < 0)
        return fail_flush(t, &why, err);
    if (tern_train_partner_go_on(t, err) < 0)
        return -1;
    if (l->all_idle)
        tern_train_partner_begin(t);
    l->all_idle = false;
    /* A save to checkpoint.dir would lose its temporary folder to a flush that prunes. */
    const bool direct = t->checkpoint.saving && !t->checkpoint.saving_local;
    if (!l->off && !l->flush && !direct && next_of(l) > l->done &&
        begin_next(t, /* background= */ true, &why) < 0)
        return fail_flush(t, &why, err);
    return 0;
}

bool tern_train_local_is_pending(const struct train *t)
{
    return t->checkpoint.local.flush || t->checkpoint.local.step > t->checkpoint.local.done;
}

/* Flush those until step `last` that are to be, and wait for it. */
static int flush_until(struct train *t, int64_t last, struct tern_err *err)
{
    struct train_local *l = &t->checkpoint.local;

    if (l->flush && next_of(l) > l->done && replace_flush(t, err) < 0)
        return -1;
    while (l->flush || (next_of(l) > l->done && next_of(l) <= last)) {
        int rc = l->flush ? 0 : begin_next(t, /* background= */ false, err);
        while (rc == 0 && l->flush)
            rc = advance_flush(t, err);
        if (rc < 0)
            return -1;
    }
    return 0;
}

int tern_train_local_finish(struct train *t, struct tern_err *err)
{
    return flush_until(t, t->checkpoint.local.step, err);
}

int tern_train_local_settle(struct train *t, struct tern_err *err)
{
    struct train_local *l = &t->checkpoint.local;
    const int64_t next = (int64_t)t->progress.step;
    struct tern_err why = {0};

    if (!is_best(t, l->first, l->step)) /* a newer one is */
        l->first = -1;
    if (l->step <= l->done)
        return 0;
    if (!stays_for_good(t, l->step)) {
        if (is_best(t, l->step, next)) {
            l->first = l->step;
            l->first_best = l->best;
        }
        return 0;
    }
    return tern_train_local_finish(t, &why) == 0 ? 0 : fail_flush(t, &why, err);
}

/* ------------------------------------------------------------------ saves */

void tern_train_local_saved(struct train *t, const struct tern_ckpt_saved *saved)
{
    struct train_local *l = &t->checkpoint.local;

    l->failed = 0;
    l->step = (int64_t)t->checkpoint.saving_step;
    l->best = t->checkpoint.saving_best;
    l->bytes = saved->bytes;
    tern_train_record_save(t, saved, TRAIN_LOCAL);
}

int tern_train_local_give_way(struct train *t, struct tern_err *err)
{
    struct train_local *l = &t->checkpoint.local;
    const bool drops = l->flush && !flush_stays(t);
    struct tern_err lost = {0};

    if ((replace_flush(t, &lost) < 0 || flush_until(t, l->first, &lost) < 0) &&
        fail_flush(t, &lost, err) < 0)
        return -1;
    l->owed = l->step > l->done || drops;
    l->done = l->step;
    return 0;
}

void tern_train_local_take_back(struct train *t)
{
    struct train_local *l = &t->checkpoint.local;

    if (l->owed)
        l->done = l->step - 1;
    l->owed = false;
}

int tern_train_local_redirect(struct train *t, const struct tern_err *why, struct tern_err *err)
{
    struct train_checkpoint *c = &t->checkpoint;
    char text[1200];

    c->local.off |= ++c->local.failed >= FAILURES_MAX;
    snprintf(text, sizeof text,
             "step %" PRIu64 " cannot be saved in checkpoint.local, and is saved in "
             "checkpoint.dir%s: %.900s",
             c->saving_step, c->local.off ? ", as all later ones of this attempt" : "", why->text);
    tern_train_local_say(t, "warn", text);
    if (tern_train_local_give_way(t, err) < 0)
        return -1;
    c->saving_local = false;
    tern_train_begin_publishing(c, c->saving_step, c->saving_best);
    return tern_ckpt_save_redirect(c->saving, t->recipe->checkpoint.dir, err);
}

void tern_train_local_close(struct train *t)
{
    struct train_local *l = &t->checkpoint.local;
    const bool flushed = l->flush;

    drop_flush(t);
    tern_train_partner_close(t);
    if (t->rank == 0 && (l->step > l->done || (flushed && !t->checkpoint.published)))
        tern_warn("step %" PRId64 " is in checkpoint.local on the nodes, and not in "
                  "checkpoint.dir: the next attempt on these nodes copies it",
                  l->step > l->done ? l->step : l->done);
    free(l->dir);
    l->dir = NULL;
}

int tern_train_local_bring(struct train *t, const struct tern_ckpt_local *found,
                           struct tern_err *err)
{
    struct tern_err why = {0};
    int rc =
        begin_flush(t, found->step, t->checkpoint.local.best, found, /* background= */ false, &why);

    while (rc == 0)
        rc = advance_flush(t, &why);
    if (rc > 0)
        return 1;
    if (!t->checkpoint.met || why.code == TERN_TEMPFAIL) {
        *err = why;
        return -1;
    }
    if (t->rank == 0)
        tern_warn("the nodes' checkpoint of step %" PRIu64 " is passed over: %s", found->step,
                  why.text);
    return 0;
}

/* checkpoint.local: checkpoints are saved on the nodes, and flushed to checkpoint.dir beside the
 * next steps.
 *
 * One flush is under way at a time, of the newest checkpoint that all nodes have.  Those that come
 * while it lasts are passed over, but for the newest, and those that checkpoint.keep_every keeps.
 * A save that fails on the nodes goes to checkpoint.dir at once.  At a start the newest checkpoint
 * that is complete on the nodes is flushed first, if checkpoint.dir has none as new. */
#include "core/train/state.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/ckpt/local.h"
#include "core/inputs/inputs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FAILURES_MAX = 3 }; /* in a row: the nodes' storage is not tried again */

/* ------------------------------------------------------------------ the folder */

/* One rank of each node works in the node's folder. */
static bool leads(const struct train *t)
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

    *l = (struct train_local){.step = -1, .done = -1, .found = -1};
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

    const int own = leads(t) ? tern_ckpt_local_check(dir, &err) : 0;
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

    if (!leads(t))
        return;
    const int own = tern_ckpt_local_check(t->checkpoint.local.dir, &err);
    if (own < 0 || (own > 0 && tern_fs_remove_tree(t->checkpoint.local.dir, &err) < 0))
        tern_warn("%s", err.text);
    char *run = tern_fs_dirname(t->checkpoint.local.dir);
    rmdir(run); /* the last node's */
    free(run);
}

/* ------------------------------------------------------------------ flush */

static void say(struct train *t, const char *severity, const char *text)
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
    if (leads(t) && tern_ckpt_local_mark(c->local.dir, c->publishing_step, &lost) < 0)
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

/* A newer one takes the place of the flush under way.  Collective. */
static int replace_flush(struct train *t, struct tern_err *err)
{
    int rc = 0;

    while (rc == 0 && t->checkpoint.local.flush && stays_for_good(t, t->checkpoint.local.done))
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
    if (!l->off && !l->flush && !direct && l->step > l->done &&
        begin_flush(t, (uint64_t)l->step, l->best, /* found= */ NULL, /* background= */ true,
                    &why) < 0)
        return fail_flush(t, &why, err);
    return 0;
}

bool tern_train_local_is_pending(const struct train *t)
{
    return t->checkpoint.local.flush || t->checkpoint.local.step > t->checkpoint.local.done;
}

int tern_train_local_finish(struct train *t, struct tern_err *err)
{
    struct train_local *l = &t->checkpoint.local;
    int rc = 0;

    if (l->flush && l->step > l->done && replace_flush(t, err) < 0)
        return -1;
    if (!l->flush && l->step > l->done)
        rc = begin_flush(t, (uint64_t)l->step, l->best, /* found= */ NULL, /* background= */ false,
                         err);
    while (rc == 0 && l->flush)
        rc = advance_flush(t, err);
    return rc < 0 ? -1 : 0;
}

int tern_train_local_settle(struct train *t, struct tern_err *err)
{
    const struct train_local *l = &t->checkpoint.local;
    struct tern_err why = {0};

    if (l->step <= l->done || !stays_for_good(t, l->step))
        return 0;
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
    const bool drops = l->flush && !stays_for_good(t, l->done);
    struct tern_err lost = {0};

    l->owed = l->step > l->done || drops;
    if (replace_flush(t, &lost) < 0 && fail_flush(t, &lost, err) < 0)
        return -1;
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
    say(t, "warn", text);
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

/* ------------------------------------------------------------------ at the start */

/* The newest in checkpoint.dir, as rank 0 sees it. */
struct shared {
    struct train *t;
    char *path; /* NULL: there is none */
    uint64_t step;
    struct tern_err refused; /* why the recipe is not that of a checkpoint on this node */
};

/* Was step `step` removed from checkpoint.dir by a person?  A damaged one is still there.  Where
 * all are gone, the whole folder is lost rather, and the nodes' copies are what is left. */
static bool is_removed(const struct train *t, uint64_t step)
{
    struct tern_ckpt_entry *have = NULL;
    size_t n = 0;
    bool there = false, any = false;

    if (tern_ckpt_list(t->recipe->checkpoint.dir, &have, &n, NULL) < 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        any |= have[i].state != TERN_CKPT_TEMP;
        there |= have[i].step == step && have[i].state != TERN_CKPT_TEMP;
    }
    tern_ckpt_list_free(have, n);
    return any && !there;
}

static int same_digest(const struct shared *s, const struct tern_ckpt *c, struct tern_err *err)
{
    struct tern_ckpt *theirs = tern_ckpt_open(s->path, err);
    int rc = theirs ? 0 : -1;

    if (rc == 0 && strcmp(tern_ckpt_digest(theirs), tern_ckpt_digest(c)) != 0)
        rc = tern_err_set(err, TERN_FAILED, "%s is another checkpoint of that step", s->path);
    tern_ckpt_close(theirs);
    return rc;
}

static int may_take(void *ctx, const struct tern_ckpt *c, struct tern_err *err)
{
    struct shared *s = ctx;
    struct train *t = s->t;
    json_t *meta = tern_ckpt_meta(c);
    const uint64_t step = tern_ckpt_step(c);
    const char *run = json_string_value(json_object_get(meta, "run"));

    if (s->path && step < s->step)
        return 0;
    if (!run || strcmp(run, t->run_id) != 0)
        return tern_err_set(err, TERN_FAILED, "it is of another run");
    if (tern_inputs_same_run(t->recipe, tern_ckpt_path(c), meta, t->options->accept, err) < 0) {
        s->refused = *err;
        return -1;
    }
    if (s->path && step == s->step && same_digest(s, c, err) < 0)
        return -1;
    if ((!s->path || step > s->step) && tern_ckpt_local_is_marked(tern_ckpt_path(c)) &&
        is_removed(t, step))
        return tern_err_set(err, TERN_FAILED, "it was in %s, and is not there any more",
                            t->recipe->checkpoint.dir);
    json_t *best = json_object_get(json_object_get(meta, "stop"), "best_step");
    t->checkpoint.local.best = json_is_integer(best) ? json_integer_value(best) : -1;
    return 1;
}

static void tell_level(struct train *t, const struct shared *s, bool flushed, double seconds)
{
    const struct train_local *l = &t->checkpoint.local;
    const char *dir = t->recipe->checkpoint.dir;
    char text[1200], had[64] = "none";

    if (s->path)
        snprintf(had, sizeof had, "step %" PRIu64, s->step);
    if (flushed)
        snprintf(text, sizeof text,
                 "checkpoint level local: the nodes have step %" PRId64
                 ", and %.800s has %s; it was copied there in %.1f s",
                 l->found, dir, had, seconds);
    else if (l->found >= 0)
        snprintf(text, sizeof text,
                 "checkpoint level local: the nodes have step %" PRId64
                 ", the newest of %.800s, and each rank reads the files that its node has",
                 l->found, dir);
    else
        snprintf(text, sizeof text,
                 "checkpoint level shared: %.800s has %s, and none as new is complete on the nodes",
                 dir, had);
    if (l->found >= 0 || s->path)
        say(t, "info", text);
}

/* Bring the one that was found.  1: it is published. */
static int bring(struct train *t, const struct tern_ckpt_local *found, struct tern_err *err)
{
    struct tern_err why = {0};
    char step[24];

    /* Before it can be killed: the losses of earlier attempts count up to there. */
    snprintf(step, sizeof step, "%" PRId64, t->checkpoint.local.found);
    if (t->rank == 0 && tern_ledger_spool_param(t->spool, TERN_LEDGER_RESUMED, step, &why) == 0)
        tern_ledger_spool_sync(t->spool, &why);
    int rc = begin_flush(t, (uint64_t)t->checkpoint.local.found, t->checkpoint.local.best, found,
                         /* background= */ false, &why);

    while (rc == 0)
        rc = advance_flush(t, &why);
    if (rc > 0)
        return 1;
    if (!t->checkpoint.met || why.code == TERN_TEMPFAIL) {
        *err = why;
        return -1;
    }
    if (t->rank == 0)
        tern_warn("the nodes' checkpoint of step %" PRId64 " is passed over: %s",
                  t->checkpoint.local.found, why.text);
    t->checkpoint.local.found = -1;
    return 0;
}

/* All ranks know of the newest in checkpoint.dir. */
static int share(struct train *t, struct shared *s, struct tern_err *err)
{
    uint64_t known[] = {s->path != NULL, s->step};

    if (tern_fabric_broadcast(t->world, known, sizeof known, TERN_U8, /* root= */ 0, err) < 0)
        return -1;
    if (known[0] && !s->path)
        s->path = tern_strf("%s/step-%08" PRIu64, t->recipe->checkpoint.dir, known[1]);
    s->step = known[1];
    return 0;
}

/* The manifest of the one that was found, for nodes that lack it, and its best step.  What cannot
 * be written fails the flush. */
static int share_manifest(struct train *t, const struct tern_ckpt_local *found,
                          struct tern_err *err)
{
    struct train_local *l = &t->checkpoint.local;
    struct tern_err why = {0};
    char *text = NULL;
    size_t len = 0;
    int rc = 0;

    if (t->rank == found->rank) {
        char *path = tern_strf("%s/step-%08" PRIu64 "/" TERN_CKPT_MANIFEST, l->dir, found->step);
        rc = tern_fs_read(path, TERN_CKPT_MANIFEST_MAX, &text, &len, err);
        free(path);
    }
    if (tern_train_agree(t, rc, err) < 0)
        return -1;
    int64_t known[] = {l->best, (int64_t)len};
    if (tern_fabric_broadcast(t->world, known, sizeof known, TERN_U8, found->rank, err) < 0) {
        free(text);
        return -1;
    }
    l->best = known[0];
    text = text ? text : tern_alloc((size_t)known[1], 1, "a manifest", err);
    rc = tern_train_agree(t, text ? 0 : -1, err);
    if (rc == 0)
        rc = tern_fabric_broadcast(t->world, text, (size_t)known[1], TERN_U8, found->rank, err);
    if (rc == 0 && leads(t) &&
        tern_ckpt_local_put_manifest(l->dir, found->step, found->digest, text, (size_t)known[1],
                                     &why) < 0)
        tern_warn("%s", why.text);
    free(text);
    return rc;
}

int tern_train_local_recover(struct train *t, char **ret_path, struct tern_err *err)
{
    struct train_local *l = &t->checkpoint.local;
    const int64_t began = tern_clock_boot_ns();
    const struct tern_ckpt_peers peers = tern_train_save_peers(t);
    struct shared s = {.t = t};
    struct tern_ckpt_local found = {0};
    const struct tern_ckpt_local_options options = {.dir = l->dir,
                                                    .node = tern_fabric_node(t->options->fabric),
                                                    .peers = &peers,
                                                    .may_take = may_take,
                                                    .ctx = &s};

    l->found = -1;
    int rc = t->rank == 0 ? tern_ckpt_latest(t->recipe->checkpoint.dir, &s.path, &s.step, err) : 0;
    if (tern_train_agree(t, rc, err) < 0 || share(t, &s, err) < 0) {
        rc = -1;
        goto out;
    }
    rc = tern_ckpt_local_find(&options, &found, err);
    if (rc == 0 && !s.path) { /* as of one in checkpoint.dir: the run does not begin anew */
        if (s.refused.code)
            *err = s.refused;
        rc = tern_train_agree(t, s.refused.code ? -1 : 0, err);
    }
    if (rc < 0)
        goto out;
    l->found = rc ? (int64_t)found.step : -1;
    const bool newer = rc && (!s.path || found.step > s.step);
    rc = newer ? share_manifest(t, &found, err) : 0;
    if (rc == 0 && newer)
        rc = bring(t, &found, err);
    if (rc < 0)
        goto out;
    tell_level(t, &s, rc > 0, (double)(tern_clock_boot_ns() - began) * 1e-9);
    if (rc > 0)
        *ret_path = tern_strf("%s/step-%08" PRIu64, t->recipe->checkpoint.dir, found.step);
    rc = 0;
out:
    free(found.parts);
    free(s.path);
    return rc < 0 ? -1 : 0;
}

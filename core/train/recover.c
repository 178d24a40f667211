/* checkpoint.local at a start. The newest checkpoint that is complete on the nodes is brought to
 * checkpoint.dir, if that has none as new. That of the best evaluation is brought before it. */
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

/* The newest in checkpoint.dir, as rank 0 sees it. */
struct shared {
    struct train *t;
    char *path; /* NULL: there is none */
    uint64_t step;
    int64_t until;           /* the newest that is wanted of the nodes; -1: any */
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

    if ((s->path && step < s->step) || (s->until >= 0 && step > (uint64_t)s->until))
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
        tern_train_local_say(t, "info", text);
}

/* Before it can be killed: the losses of earlier attempts count up to there. */
static void note_resumed(struct train *t)
{
    struct tern_err why = {0};
    char step[24];

    snprintf(step, sizeof step, "%" PRId64, t->checkpoint.local.found);
    if (t->rank == 0 && tern_ledger_spool_param(t->spool, TERN_LEDGER_RESUMED, step, &why) == 0)
        tern_ledger_spool_sync(t->spool, &why);
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
    if (rc == 0 && tern_train_local_leads(t) &&
        tern_ckpt_local_put_manifest(l->dir, found->step, found->digest, text, (size_t)known[1],
                                     &why) < 0)
        tern_warn("%s", why.text);
    free(text);
    return rc;
}

/* The newest on the nodes, `found`, knows of a better evaluation than its own. The checkpoint of
 * that one may be on the nodes alone, so it is brought first. */
static int bring_best(struct train *t, struct shared *s, const struct tern_ckpt_local_options *how,
                      const struct tern_ckpt_local *found, struct tern_err *err)
{
    struct train_local *l = &t->checkpoint.local;
    const int64_t best = l->best, newest = s->path ? (int64_t)s->step : -1;
    struct tern_ckpt_local other = {0};
    char text[160];

    if (best <= newest || best >= (int64_t)found->step)
        return 0;
    s->until = best;
    int rc = tern_ckpt_local_find(how, &other, err);
    s->until = -1;
    if (rc > 0 && (int64_t)other.step > newest) {
        rc = share_manifest(t, &other, err);
        if (rc == 0)
            rc = tern_train_local_bring(t, &other, err);
        snprintf(text, sizeof text,
                 "the nodes have the checkpoint of the best evaluation, step %" PRIu64
                 ", and it was copied to checkpoint.dir",
                 other.step);
        if (rc > 0)
            tern_train_local_say(t, "info", text);
    }
    l->best = best;
    free(other.parts);
    return rc < 0 ? -1 : 0;
}

int tern_train_local_recover(struct train *t, char **ret_path, struct tern_err *err)
{
    struct train_local *l = &t->checkpoint.local;
    const int64_t began = tern_clock_boot_ns();
    const struct tern_ckpt_peers peers = tern_train_save_peers(t);
    struct shared s = {.t = t, .until = -1};
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
        rc = bring_best(t, &s, &options, &found, err);
    if (rc == 0 && newer) {
        note_resumed(t);
        rc = tern_train_local_bring(t, &found, err);
        l->found = rc > 0 ? l->found : -1;
    }
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

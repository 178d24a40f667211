/* One pass of the process that prunes and mirrors. */
#include "core/retain/look.h"

#include "core/base/fs.h"
#include "core/base/tree.h"
#include "core/ckpt/ckpt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void verify(struct tern_retain_look *k, struct tern_retain_item *i)
{
    struct tern_tree t = {0};
    struct tern_err err = {0};
    char text[1100];

    tern_retain_look_report(k, "verifying", i->r.path, NULL);
    const bool taken = tern_tree_take(i->r.path, &t, &err) == 0;
    if (taken && t.bytes == 0 && !k->o.marker) { /* its trainer has yet to write it */
        tern_tree_free(&t);
        tern_retain_retry_later(&i->retry);
        return;
    }
    if (taken) {
        i->r.bytes = t.bytes;
        i->r.files = t.n;
        memcpy(i->r.digest, t.digest, sizeof i->r.digest);
        i->r.verified = true;
        i->r.verified = tern_retain_record_write(k->dir, &i->r, &t, &err) == 0;
        tern_tree_free(&t);
    }
    if (i->r.verified) {
        tern_retain_look_add_item(k, i, "verified");
        return;
    }
    if (err.code ==
        TERN_TEMPFAIL) { /* it is being written again, or the storage failed for a moment */
        tern_retain_retry_later(&i->retry);
        return;
    }
    i->bad = true;
    snprintf(text, sizeof text, "the checkpoint of step %" PRId64 " cannot be verified: %s",
             i->r.step, err.text);
    tern_retain_look_complain(k, text);
}

static int by_item_step(const void *a, const void *b)
{
    const struct tern_retain_item *x = a, *y = b;

    if (x->r.step != y->r.step)
        return x->r.step < y->r.step ? -1 : 1;
    return strcmp(x->r.path, y->r.path);
}

static void keep_own(struct tern_retain_look *k)
{
    struct tern_ckpt_entry *have = NULL, *there = NULL;
    size_t n = 0, m = 0;

    if (!k->o.mirror || !tern_fs_exists(k->o.own_dir) ||
        tern_ckpt_list(k->o.own_dir, &have, &n, NULL) < 0)
        return;
    const bool bucket = tern_retain_mirror_is_bucket(k);
    if (!bucket && tern_fs_exists(k->o.mirror) && tern_ckpt_list(k->o.mirror, &there, &m, NULL) < 0)
        m = 0;
    for (size_t i = n; i-- > 0;) {
        bool done =
            have[i].state != TERN_CKPT_GOOD || (bucket && tern_retain_mirror_knows(k, &have[i]));
        for (size_t j = 0; j < m && !done; j++) {
            done = there[j].state == TERN_CKPT_GOOD && there[j].step == have[i].step &&
                   strcmp(there[j].digest, have[i].digest) == 0;
            if (done)
                tern_retain_mirror_note(k, &have[i]);
        }
        const struct tern_retain_own *o =
            done ? NULL : tern_retain_mirror_find_own(k, have[i].path);
        if (!done && (!o || tern_retain_retry_is_due(k, &o->retry)))
            done = tern_retain_mirror_own(k, &have[i]) == 0;
        k->left += !done;
    }
    tern_ckpt_list_free(have, n);
    tern_ckpt_list_free(there, m);
}

static void keep_external(struct tern_retain_look *k)
{
    if (k->n)
        qsort(k->item, k->n, sizeof *k->item, by_item_step);
    for (size_t n = k->n; n-- > 0;) { /* the newest first: it matters most */
        struct tern_retain_item *i = &k->item[n];
        if (tern_retain_retry_is_due(k, &i->retry)) {
            if (!i->r.verified && !i->bad)
                verify(k, i);
            if (i->r.verified && k->o.mirror && !i->r.mirror)
                tern_retain_mirror(k, i);
        }
        k->bad += i->bad;
        k->left += !i->bad && (!i->r.verified || (k->o.mirror && !i->r.mirror));
    }
    tern_retain_prune(k);
}

void tern_retain_work(struct tern_retain_look *k)
{
    k->left = k->bad = 0;
    tern_retain_mirror_probe(k);
    if (k->o.own_dir)
        keep_own(k);
    else
        keep_external(k);
    if (k->left == 0 && !k->swept)
        tern_retain_prune_sweep(k, true);
    k->swept = k->left == 0;
}

#include "core/retain/look.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/tree.h"
#include "core/ckpt/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* Trouble, logged once. */
static void complain(struct tern_retain_look *k, const char *text)
{
    struct tern_err err = {0};
    const struct tern_ledger_event e = {.kind = "checkpoint", .severity = "warn", .text = text};

    tern_warn("%s", text);
    if (tern_ledger_spool_event(tern_retain_look_spool(k), &e, &err) < 0)
        tern_warn("%s", err.text);
}

void tern_retain_look_report(struct tern_retain_look *k, const char *what, const char *path,
                             const char *to)
{
    if (k->doing)
        snprintf(k->doing, TERN_RETAIN_DOING, "%s %.400s%s%.400s", what, path, to ? " to " : "",
                 to ? to : "");
}

/* ------------------------------------------------------------------ trying again */

static const int64_t minute = 60 * (int64_t)1000000000;

enum { RETRY_DOUBLED = 6 }; /* from a minute to an hour */

static bool is_due(const struct tern_retain_look *k, const struct tern_retain_retry *r)
{
    return k->last || tern_clock_boot_ns() >= r->at_ns;
}

static void try_later(struct tern_retain_retry *r)
{
    r->at_ns = tern_clock_boot_ns() + (r->times < RETRY_DOUBLED ? minute << r->times : 60 * minute);
    r->times++;
}

/* ------------------------------------------------------------------ verifying, mirroring */

static void verify(struct tern_retain_look *k, struct tern_retain_item *i)
{
    struct tern_tree t = {0};
    struct tern_err err = {0};
    char text[1100];

    tern_retain_look_report(k, "verifying", i->r.path, NULL);
    if (tern_tree_take(i->r.path, &t, &err) == 0) {
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
        try_later(&i->retry);
        return;
    }
    i->bad = true;
    snprintf(text, sizeof text, "the checkpoint of step %" PRId64 " cannot be verified: %s",
             i->r.step, err.text);
    complain(k, text);
}

/* The hidden folder beside `path`, of this run alone, where a copy is made or removed. */
static char *beside(const struct tern_retain_look *k, const char *path, const char *what)
{
    char *dir = tern_fs_dirname(path);
    char *to = tern_strf("%s/.%s.%s.%s", dir, tern_fs_basename(path), k->o.run_id, what);

    free(dir);
    return to;
}

/* Remove a folder so that no moment shows half of it. */
static int take_away(const struct tern_retain_look *k, const char *path, struct tern_err *err)
{
    char *trash = beside(k, path, "trash");
    int rc = tern_fs_remove_tree(trash, err);

    if (rc == 0 && tern_fs_rename(path, trash, false) < 0)
        rc = errno == ENOENT ? 0 : tern_err_sys(err, "%s: cannot remove", path);
    else if (rc == 0)
        rc = tern_fs_sync_parent(path, err);
    if (rc == 0)
        rc = tern_fs_remove_tree(trash, err);
    free(trash);
    return rc;
}

/* Check the room before most of the copy is written. */
static int check_room(const char *to, uint64_t bytes, struct tern_err *err)
{
    char *dir = tern_fs_dirname(to);
    struct statvfs fs;
    int rc;

    while ((rc = TERN_AGAIN(statvfs(dir, &fs))) < 0 && errno == ENOENT && strcmp(dir, "/") != 0 &&
           strcmp(dir, ".") != 0) {
        char *up = tern_fs_dirname(dir);
        free(dir);
        dir = up;
    }
    free(dir);
    /* A file system without counts gives 0 blocks. */
    if (rc < 0 || fs.f_blocks == 0 || bytes / fs.f_frsize < fs.f_bavail)
        return 0;
    errno = ENOSPC;
    return tern_err_sys(err, "%s: takes %.1f MiB, and %.1f are free", to, (double)bytes / 0x1p20,
                        (double)fs.f_bavail * (double)fs.f_frsize / 0x1p20);
}

/* Copy `from`, whose files are `t`, to `to`.  A folder that is there already stays when
 * it is the same (an earlier process was ended just then), is replaced if `replace`, and is an
 * error otherwise. */
static int mirror_to(struct tern_retain_look *k, const char *from, const struct tern_tree *t,
                     const char *to, bool replace, struct tern_err *err)
{
    struct stat st;

    if (TERN_AGAIN(lstat(to, &st)) == 0) {
        if (tern_tree_verify(to, t, true, NULL) == 0)
            return 0;
        if (!replace)
            return tern_err_set(err, TERN_USAGE,
                                "%s: is there already and is not a copy of %s. Move it away or "
                                "give another checkpoint.mirror.",
                                to, from);
        if (take_away(k, to, err) < 0)
            return -1;
    }
    if (check_room(to, t->bytes, err) < 0)
        return -1;
    char *aside = beside(k, to, k->o.offline ? TERN_RETAIN_COPY_OFFLINE : TERN_RETAIN_COPY_ONLINE);
    int rc = tern_tree_copy(from, t, aside, to, err);
    free(aside);
    return rc;
}

static void mirror(struct tern_retain_look *k, struct tern_retain_item *i)
{
    struct tern_retain_record old = {0};
    struct tern_tree t = {0};
    struct tern_err err = {0};
    char *file = tern_retain_record_path(k->dir, i->r.path);
    char *to = tern_fs_join(k->o.mirror, i->r.name), text[1100];

    tern_retain_look_report(k, "copying", i->r.path, to);
    int rc = tern_retain_record_read(file, &old, &t, &err);
    if (rc == 0)
        rc = mirror_to(k, i->r.path, &t, to, i->r.replaces && strcmp(i->r.replaces, to) == 0, &err);
    if (rc == 0) {
        free(i->r.replaces);
        i->r.replaces = NULL;
        i->r.mirror = to;
        to = NULL;
        k->copied++;
        tern_retain_look_add_row(k, i->r.mirror, i->r.step, "verified", i->r.bytes, i->r.files,
                                 i->r.digest);
        rc = tern_retain_record_write(k->dir, &i->r, &t, &err);
    }
    if (rc < 0)
        try_later(&i->retry);
    if (rc < 0 && !i->reported) {
        i->reported = true;
        snprintf(text, sizeof text, "the checkpoint of step %" PRId64 " has no mirror: %s",
                 i->r.step, err.text);
        complain(k, text);
    }
    tern_retain_record_free(&old);
    tern_tree_free(&t);
    free(file);
    free(to);
}

/* ------------------------------------------------------------------ pruning */

static void prune_one(struct tern_retain_look *k, struct tern_retain_item *i)
{
    struct tern_err err = {0};

    if (take_away(k, i->r.path, &err) < 0) {
        tern_warn("%s", err.text);
        return;
    }
    tern_retain_look_add_item(k, i, "deleted");
    i->r.deleted = true;
    if (tern_retain_look_rewrite(k, i, &err) < 0)
        tern_warn("%s", err.text);
}

/* Does folder `path` hold `what`, or is it `what`? */
static bool holds(const char *path, const char *what)
{
    char *real = what ? realpath(what, NULL) : NULL;
    size_t len = strlen(path);
    bool in = real && strncmp(real, path, len) == 0 && (real[len] == '/' || !real[len]);

    free(real);
    return in;
}

/* May a checkpoint that `tern metric checkpoint=DIR` registered be pruned?  Only when the recipe
 * has no glob.  A trainer may register any path, so the folder must have its step in its name, must
 * be made since the run began and must hold nothing else of the run. */
static bool is_disposable(const struct tern_retain_look *k, const struct tern_retain_item *i)
{
    const char *const others[] = {".", k->o.ledger_dir, k->o.mirror};
    char *began = tern_fs_join(k->dir, "before.json");
    struct stat run, st;
    bool fine =
        !k->o.glob && tern_retain_external_step(i->r.name) == i->r.step &&
        TERN_AGAIN(stat(began, &run)) == 0 && TERN_AGAIN(lstat(i->r.path, &st)) == 0 &&
        S_ISDIR(st.st_mode) &&
        (st.st_mtim.tv_sec > run.st_mtim.tv_sec ||
         (st.st_mtim.tv_sec == run.st_mtim.tv_sec && st.st_mtim.tv_nsec >= run.st_mtim.tv_nsec));

    free(began);
    for (size_t n = 0; fine && n < sizeof others / sizeof *others; n++)
        fine = !holds(i->r.path, others[n]);
    for (size_t n = 0; fine && n < k->n; n++)
        fine = &k->item[n] == i || !holds(i->r.path, k->item[n].r.path);
    return fine;
}

static int by_item_step(const void *a, const void *b)
{
    const struct tern_retain_item *x = a, *y = b;

    if (x->r.step != y->r.step)
        return x->r.step < y->r.step ? -1 : 1;
    return strcmp(x->r.path, y->r.path);
}

static void prune(struct tern_retain_look *k)
{
    int64_t *step = calloc(k->n + 1, sizeof *step);
    bool *may = calloc(k->n + 1, sizeof *may), *drop = calloc(k->n + 1, sizeof *drop);

    for (size_t i = 0; step && may && drop && i < k->n; i++) {
        step[i] = k->item[i].r.step;
        may[i] = k->o.keep && k->item[i].r.verified && (!k->o.mirror || k->item[i].r.mirror) &&
                 (k->item[i].r.in_glob || is_disposable(k, &k->item[i]));
    }
    if (step && may && drop) {
        tern_retain_external_choose(step, may, k->n, k->o.keep, k->o.keep_every, drop);
        for (size_t i = 0; i < k->n; i++)
            if (drop[i])
                prune_one(k, &k->item[i]);
        for (size_t i = k->n; i-- > 0;)
            if (k->item[i].r.deleted)
                tern_retain_look_drop(k, &k->item[i]);
    }
    free(step);
    free(may);
    free(drop);
}

static void sweep_folder(const char *dir, const char *end)
{
    DIR *d = TERN_AGAIN_PTR(opendir(dir));

    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] != '.' || !tern_str_ends(e->d_name, end))
            continue;
        char *path = tern_strf("%s/%s", dir, e->d_name);
        tern_fs_remove_tree(path, NULL);
        free(path);
    }
    if (d)
        closedir(d);
}

void tern_retain_look_sweep(const struct tern_retain_look *k, bool copies)
{
    const char *what = !copies        ? "trash"
                       : k->o.offline ? TERN_RETAIN_COPY_OFFLINE
                                      : TERN_RETAIN_COPY_ONLINE;
    char *end = tern_strf(".%s.%s", k->o.run_id, what), *last = NULL;

    for (size_t i = 0; !copies && i < k->n; i++) {
        char *dir = tern_fs_dirname(k->item[i].r.path);
        if ((k->item[i].r.in_glob || !k->o.glob) && !(last && strcmp(last, dir) == 0))
            sweep_folder(dir, end);
        free(last);
        last = dir;
    }
    free(last);
    if (k->o.mirror)
        sweep_folder(k->o.mirror, end);
    free(end);
}

/* ------------------------------------------------------------------ tern's own checkpoints */

/* NULL: it is not known. */
static struct tern_retain_own *find_own(struct tern_retain_look *k, const char *path)
{
    for (size_t i = 0; i < k->n_own; i++)
        if (strcmp(k->own[i].path, path) == 0)
            return &k->own[i];
    return NULL;
}

static void own_failed(struct tern_retain_look *k, const struct tern_ckpt_entry *c, const char *why)
{
    struct tern_retain_own *o = find_own(k, c->path);
    char text[1100];

    if (!o) {
        struct tern_retain_own *more = reallocarray(k->own, k->n_own + 1, sizeof *more);
        if (!more)
            return;
        k->own = more;
        o = &k->own[k->n_own++];
        *o = (struct tern_retain_own){.path = tern_strdup(c->path)};
        snprintf(text, sizeof text, "the checkpoint of step %" PRIu64 " has no mirror: %s", c->step,
                 why);
        complain(k, text);
    }
    try_later(&o->retry);
}

/* Is the folder a checkpoint of this run? */
static bool of_this_run(const struct tern_retain_look *k, const char *path)
{
    struct tern_ckpt *c = tern_ckpt_open(path, NULL);
    const char *run = c ? json_string_value(json_object_get(tern_ckpt_meta(c), "run")) : NULL;
    bool same = run && strcmp(run, k->o.run_id) == 0;

    tern_ckpt_close(c);
    return same;
}

/* Was the step set aside as damaged and trained again, so that its mirror is the damaged one?
 * Called when the new checkpoint is there: its trainer set the old one aside first, and a list
 * begun before that may show neither. */
static bool is_made_again(const struct tern_retain_look *k, const struct tern_ckpt_entry *c)
{
    struct tern_ckpt_entry *have = NULL;
    size_t n = 0;
    bool again = false;

    if (tern_ckpt_list(k->o.own_dir, &have, &n, NULL) < 0)
        return false;
    for (size_t i = 0; i < n; i++)
        again |= have[i].state == TERN_CKPT_BAD && have[i].step == c->step;
    tern_ckpt_list_free(have, n);
    return again;
}

static int mirror_own(struct tern_retain_look *k, const struct tern_ckpt_entry *c)
{
    struct tern_tree t = {0};
    struct tern_err err = {0};
    char *to = tern_fs_join(k->o.mirror, tern_fs_basename(c->path));

    tern_retain_look_report(k, "copying", c->path, to);
    int rc = check_room(to, c->bytes, &err);
    if (rc == 0)
        rc = tern_tree_take(c->path, &t, &err);
    if (rc == 0)
        rc = mirror_to(k, c->path, &t, to, of_this_run(k, to) && is_made_again(k, c), &err);
    /* The trainer prunes meanwhile: a checkpoint that is gone is no error. */
    const bool gone = rc < 0 && !tern_fs_exists(c->path);
    if (rc == 0) {
        k->copied++;
        tern_retain_look_add_row(k, to, (int64_t)c->step, "verified", c->bytes, c->shards,
                                 c->digest);
    } else if (!gone) {
        own_failed(k, c, err.text);
    }
    tern_tree_free(&t);
    free(to);
    return gone ? 0 : rc;
}

static void keep_own(struct tern_retain_look *k)
{
    struct tern_ckpt_entry *have = NULL, *there = NULL;
    size_t n = 0, m = 0;

    if (!k->o.mirror || !tern_fs_exists(k->o.own_dir) ||
        tern_ckpt_list(k->o.own_dir, &have, &n, NULL) < 0)
        return;
    if (tern_fs_exists(k->o.mirror) && tern_ckpt_list(k->o.mirror, &there, &m, NULL) < 0)
        m = 0;
    for (size_t i = n; i-- > 0;) {
        bool done = have[i].state != TERN_CKPT_GOOD;
        for (size_t j = 0; j < m && !done; j++)
            done = there[j].state == TERN_CKPT_GOOD && there[j].step == have[i].step &&
                   strcmp(there[j].digest, have[i].digest) == 0;
        const struct tern_retain_own *o = done ? NULL : find_own(k, have[i].path);
        if (!done && (!o || is_due(k, &o->retry)))
            done = mirror_own(k, &have[i]) == 0;
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
        if (is_due(k, &i->retry)) {
            if (!i->r.verified && !i->bad)
                verify(k, i);
            if (i->r.verified && k->o.mirror && !i->r.mirror)
                mirror(k, i);
        }
        k->bad += i->bad;
        k->left += !i->bad && (!i->r.verified || (k->o.mirror && !i->r.mirror));
    }
    prune(k);
}

void tern_retain_look_work(struct tern_retain_look *k)
{
    k->left = k->bad = 0;
    if (k->o.own_dir)
        keep_own(k);
    else
        keep_external(k);
    if (k->left == 0 && !k->swept)
        tern_retain_look_sweep(k, true);
    k->swept = k->left == 0;
}

/* Copies of checkpoints under checkpoint.mirror. */
#include "core/retain/look.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/tree.h"
#include "core/ckpt/ckpt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

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
        if (tern_retain_prune_remove(k, to, err) < 0)
            return -1;
    }
    if (check_room(to, t->bytes, err) < 0)
        return -1;
    char *aside = tern_retain_look_beside(
        k, to, k->o.offline ? TERN_RETAIN_COPY_OFFLINE : TERN_RETAIN_COPY_ONLINE);
    int rc = tern_tree_copy(from, t, aside, to, err);
    free(aside);
    return rc;
}

void tern_retain_mirror(struct tern_retain_look *k, struct tern_retain_item *i)
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
        tern_retain_retry_later(&i->retry);
    if (rc < 0 && !i->reported) {
        i->reported = true;
        snprintf(text, sizeof text, "the checkpoint of step %" PRId64 " has no mirror: %s",
                 i->r.step, err.text);
        tern_retain_look_complain(k, text);
    }
    tern_retain_record_free(&old);
    tern_tree_free(&t);
    free(file);
    free(to);
}

/* ------------------------------------------------------------------ tern's own checkpoints */

struct tern_retain_own *tern_retain_mirror_find_own(struct tern_retain_look *k, const char *path)
{
    for (size_t i = 0; i < k->n_own; i++)
        if (strcmp(k->own[i].path, path) == 0)
            return &k->own[i];
    return NULL;
}

static void own_failed(struct tern_retain_look *k, const struct tern_ckpt_entry *c, const char *why)
{
    struct tern_retain_own *o = tern_retain_mirror_find_own(k, c->path);
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
        tern_retain_look_complain(k, text);
    }
    tern_retain_retry_later(&o->retry);
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

int tern_retain_mirror_own(struct tern_retain_look *k, const struct tern_ckpt_entry *c)
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

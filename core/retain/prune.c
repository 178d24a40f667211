/* Which checkpoints go, and their removal. */
#include "core/retain/look.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int tern_retain_prune_remove(const struct tern_retain_look *k, const char *path,
                             struct tern_err *err)
{
    char *trash = tern_retain_look_beside(k, path, "trash");
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

static void prune_one(struct tern_retain_look *k, struct tern_retain_item *i)
{
    struct tern_err err = {0};

    if (tern_retain_prune_remove(k, i->r.path, &err) < 0) {
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
 * has no glob.  A trainer may register any path, so the folder must have its step in its name.  It
 * must be made since the run began, and hold nothing else of the run. */
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

void tern_retain_prune(struct tern_retain_look *k)
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
            if (drop[i] && !tern_ckpt_is_linked(k->item[i].r.path))
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

/* Beside a live supervisor `tern ckpt mirror` cannot tell which half copies are left over. */
static void sweep_bucket(const struct tern_retain_look *k, bool copies)
{
    struct tern_err err = {0};

    if (copies && !k->o.offline && k->bucket && tern_retain_bucket_sweep(k->bucket, &err) < 0)
        tern_warn("half copies stay in the mirror: %s", err.text);
}

void tern_retain_prune_sweep(const struct tern_retain_look *k, bool copies)
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
    if (tern_retain_mirror_is_bucket(k))
        sweep_bucket(k, copies);
    else if (k->o.mirror)
        sweep_folder(k->o.mirror, end);
    free(end);
}

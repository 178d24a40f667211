/* Retire checkpoints: those that a run does not keep, and what writers and pruners have left when
 * they died. */
#include "core/ckpt/folder.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/rand.h"
#include "core/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Rename, then delete, manifest first: a half-deleted folder is no checkpoint by name or content.
 */
static int retire(const char *dir, const char *name, bool later, struct tern_err *err)
{
    uint32_t r;

    tern_rand_system(&r, sizeof r);
    char *from = tern_fs_join(dir, name), *to = tern_strf("%s/.trash-%s-%08x", dir, name, r);
    char *manifest = tern_strf("%s/manifest.json", to);
    int rc = tern_ckpt_rename_new(from, to, err);
    if (rc == 0)
        rc = tern_fs_sync_dir(dir, err);
    if (rc == 0) {
        TERN_AGAIN(unlink(manifest));
        rc = later ? 0 : tern_fs_remove_tree(to, err);
    }
    free(manifest);
    free(from);
    free(to);
    return rc;
}

/* Of a failed removal: the first error is kept, and the others go on. */
struct removal {
    int rc;
    struct tern_err *err;
};

static void removed_one(struct removal *r, int rc, const struct tern_err *why)
{
    if (rc < 0 && r->rc == 0 && r->err)
        *r->err = *why;
    r->rc = rc < 0 ? -1 : r->rc;
}

/* Before each that goes: whether it may, and a word to the caller. */
static int may_go(const char *path, enum tern_ckpt_state state,
                  const struct tern_ckpt_prune_how *how, struct tern_err *err)
{
    if (how->stop && *how->stop)
        return tern_err_set(err, TERN_FAILED, "interrupted; what is not listed stays");
    if (how->lease && tern_ckpt_lease_check(how->lease, err) < 0)
        return -1;
    if (how->each)
        how->each(how->ctx, path, state);
    return 0;
}

/* Trash that a pruner left when it was killed. */
static int empty_trash(const char *dir, const struct tern_ckpt_prune_how *how, struct removal *all)
{
    DIR *d = TERN_AGAIN_PTR(opendir(dir));
    struct tern_err why = {0};
    int rc = 0;

    if (!d)
        return tern_err_sys(all->err, "%s: cannot open folder", dir);
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        if (!tern_str_starts(e->d_name, ".trash-step-"))
            continue;
        char *path = tern_fs_join(dir, e->d_name);
        rc = may_go(path, TERN_CKPT_BROKEN, how, all->err);
        if (rc == 0 && !how->dry_run && !how->later)
            removed_one(all, tern_fs_remove_tree(path, &why), &why);
        free(path);
    }
    closedir(d);
    return rc;
}

/* The checkpoint of name `m`, or NULL when it does not open. */
static struct tern_ckpt *open_good(const char *dir, const struct tern_ckpt_name *m)
{
    if (m->state != TERN_CKPT_GOOD)
        return NULL;
    char *path = tern_fs_join(dir, m->text);
    struct tern_ckpt *c = tern_ckpt_open_named(path, NULL);

    free(path);
    return c;
}

/* Two names of one folder. */
static bool leads_to(const char *link, const struct stat *there)
{
    struct stat own, to;

    return TERN_AGAIN(lstat(link, &own)) == 0 && S_ISLNK(own.st_mode) &&
           TERN_AGAIN(stat(link, &to)) == 0 && to.st_dev == there->st_dev &&
           to.st_ino == there->st_ino;
}

bool tern_ckpt_is_linked(const char *path)
{
    char *dir = tern_fs_dirname(path);
    struct stat there;
    DIR *d = NULL;
    bool is = false;

    if (TERN_AGAIN(stat(path, &there)) < 0)
        is = errno != ENOENT;
    else
        is = !(d = TERN_AGAIN_PTR(opendir(dir)));
    errno = 0;
    for (struct dirent *e; d && !is && (errno = 0, e = readdir(d));) {
        if (e->d_type != DT_LNK && e->d_type != DT_UNKNOWN)
            continue;
        char *link = tern_fs_join(dir, e->d_name);
        is = leads_to(link, &there);
        free(link);
    }
    is = is || (d && errno);
    if (d)
        closedir(d);
    free(dir);
    return is;
}

static bool is_kept(const char *dir, const struct tern_ckpt_name *m,
                    const struct tern_ckpt_prune_how *how)
{
    char *path = tern_fs_join(dir, m->text);
    const bool is = (how->kept && strcmp(path, how->kept) == 0) || tern_ckpt_is_linked(path);

    free(path);
    return is;
}

/* Steps of best evaluations whose checkpoint was not met yet: the newest until then.  -1: none. */
struct bests {
    int64_t *steps; /* [n] */
    size_t n;
};

/* That of `how`, and those that the newest one knows of the other held-out sets. */
static int read_bests(struct bests *b, const char *dir, struct tern_ckpt *newest, int64_t best,
                      struct tern_err *err)
{
    json_t *after = tern_ckpt_after_read(dir, tern_ckpt_digest(newest)), *set;
    json_t *stop = json_object_get(after ? after : tern_ckpt_meta(newest), "stop");
    json_t *others = json_object_get(stop, "others");
    const char *name;

    b->steps = tern_alloc(json_object_size(others) + 1, sizeof *b->steps, "the best steps", err);
    if (b->steps)
        b->steps[b->n++] = best;
    json_object_foreach(others, name, set)
    {
        json_t *step = json_object_get(set, "best_step");
        if (b->steps && json_is_integer(step))
            b->steps[b->n++] = json_integer_value(step);
    }
    json_decref(after);
    return b->steps ? 0 : -1;
}

static bool take_best(struct bests *b, uint64_t step)
{
    bool is = false;

    for (size_t i = 0; i < b->n; i++)
        if (b->steps[i] >= 0 && step <= (uint64_t)b->steps[i]) {
            b->steps[i] = -1;
            is = true;
        }
    return is;
}

/* Turns the good ones that go into BAD, and those that stay into GOOD; BROKEN: not to be touched.
 */
static int choose(const char *dir, struct tern_ckpt_name *names, size_t n,
                  const struct tern_ckpt_prune_how *how, struct tern_err *err)
{
    /* The newest may turn out damaged when its bytes are read. */
    const unsigned keep = how->keep < 2 ? 2 : how->keep;
    struct bests bests = {0};
    unsigned kept = 0;
    int rc = 0;

    for (size_t i = n; i-- > 0 && rc == 0;) {
        struct tern_ckpt_name *m = &names[i];
        if (m->state == TERN_CKPT_TEMP)
            continue;
        struct tern_ckpt *c = open_good(dir, m);
        if (!c) {
            m->state = TERN_CKPT_BROKEN;
            continue;
        }
        if (!bests.steps)
            rc = read_bests(&bests, dir, c, how->best, err);
        tern_ckpt_close(c);
        const bool is_best = take_best(&bests, m->step);
        const bool stays = kept < keep || is_best ||
                           (how->keep_every && m->step % how->keep_every == 0) ||
                           is_kept(dir, m, how);
        kept += kept < keep;
        m->state = stays ? TERN_CKPT_GOOD : TERN_CKPT_BAD;
    }
    free(bests.steps);
    return rc;
}

/* Temporary folders of the attempts before *ret_attempt go: no writer of theirs is left. */
static int attempt_that_stays(const char *dir, const struct tern_ckpt_prune_how *how,
                              unsigned *ret_attempt, struct tern_err *err)
{
    unsigned last = 0;

    if (!how->lease && how->dry_run && tern_ckpt_lease_last(dir, &last, err) < 0)
        return -1;
    /* The lease's own are of saves that have failed; a dry run would get a lease. */
    *ret_attempt = how->lease     ? tern_ckpt_lease_attempt(how->lease) + 1
                   : how->dry_run ? last + 2
                                  : 0;
    return 0;
}

int tern_ckpt_prune(const char *dir, const struct tern_ckpt_prune_how *how, unsigned *removed,
                    struct tern_err *err)
{
    struct removal all = {.err = err};
    struct tern_err why = {0};
    struct tern_ckpt_name *names;
    size_t n;
    unsigned gone = 0, attempt;
    int rc = 0;

    if (how->lease && tern_ckpt_lease_check(how->lease, err) < 0)
        return -1;
    if (attempt_that_stays(dir, how, &attempt, err) < 0 ||
        tern_ckpt_names_read(dir, &names, &n, err) < 0)
        return -1;
    rc = choose(dir, names, n, how, err);
    if (rc == 0) /* before there is more trash; `each` reports it by its name */
        rc = empty_trash(dir, how, &all);
    for (size_t i = n; i-- > 0 && rc == 0;) {
        const struct tern_ckpt_name *m = &names[i];
        const bool old_temp = m->state == TERN_CKPT_TEMP && m->attempt < attempt;
        if (m->state != TERN_CKPT_BAD && !old_temp)
            continue;
        char *path = tern_fs_join(dir, m->text);
        rc = may_go(path, old_temp ? TERN_CKPT_TEMP : TERN_CKPT_GOOD, how, err);
        free(path);
        if (rc < 0)
            break;
        const int one = how->dry_run ? 0 : retire(dir, m->text, how->later, &why);
        removed_one(&all, one, &why);
        gone += one == 0 && !old_temp;
    }
    tern_ckpt_names_free(names, n);
    if (rc < 0 || all.rc < 0)
        return -1;
    if (removed)
        *removed = gone;
    return 0;
}

int tern_ckpt_empty_trash(const char *dir, volatile sig_atomic_t *stop, struct tern_err *err)
{
    const struct tern_ckpt_prune_how how = {.stop = stop};
    const sig_atomic_t before = *stop;
    struct removal all = {.err = err};

    *stop = 0;
    const int rc = empty_trash(dir, &how, &all) == 0 && all.rc == 0 ? 0 : -1;
    if (*stop)
        tern_err_set(err, TERN_FAILED,
                     "interrupted; what is left in %s/.trash-* goes with the next one", dir);
    else
        *stop = before;
    return rc;
}

/* The folder of a conversion while it grows: its name, its owner, and the whole files that an
 * earlier call of the same command left.
 *
 *     OUT.unfinished/
 *         .conversion                         digest of all that the files depend on; locked
 *         model-00001-of-00003.safetensors    whole: a file gets its name when it is durable
 *         model-00002-of-00003....tmp-...     cut off; removed by the next call
 *
 * A lock, not a name, tells whether the owner lives: locks end with their process, on every node.
 */
#include "core/convert/export.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/temp.h"
#include "core/base/tree.h"
#include "core/base/version.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char job_name[] = ".conversion";

/* ------------------------------------------------------------------ what a result depends on */

/* The file is the same one, and as it was. */
static void describe_file(struct tern_buf *to, const char *dir, const char *name)
{
    char *path = tern_fs_join(dir, name);
    struct stat st;

    if (TERN_AGAIN(stat(path, &st)) == 0)
        tern_buf_printf(to, "file %s %llu %llu %lld %lld.%09ld\n", name,
                        (unsigned long long)st.st_dev, (unsigned long long)st.st_ino,
                        (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    free(path);
}

static void describe_source(struct tern_buf *to, const struct tern_ckpt *c)
{
    uint64_t bytes;

    if (!c)
        return;
    tern_buf_printf(to, "from %s %s\n", tern_ckpt_path(c), tern_ckpt_digest(c));
    for (size_t i = 0; i < tern_ckpt_parts(c); i++)
        describe_file(to, tern_ckpt_path(c), tern_ckpt_part(c, i, &bytes));
    describe_file(to, tern_ckpt_path(c), "adapter_config.json"); /* PEFT's alphas stand there */
}

void tern_convert_describe(struct tern_buf *to, const struct tern_convert_export *x)
{
    char *config = json_dumps(x->config_json, JSON_COMPACT | JSON_SORT_KEYS);

    tern_buf_printf(to, "tern %s\n", TERN_VERSION);
    describe_source(to, x->c);
    describe_source(to, x->base);
    describe_source(to, x->peft ? tern_convert_peft_arrays(x->peft) : NULL);
    tern_buf_printf(to, "merge %d config %s\n", x->options->merge, config ? config : "");
    if (x->options->verify) /* whole files that are there must have been read back, too */
        tern_buf_puts(to, "verify\n");
    free(config);
    for (size_t i = 0; i < x->n; i++) {
        const struct tern_ckpt_info *t = &x->tensors[i];
        tern_buf_printf(to, "%s %s", t->name, tern_ckpt_info_type(t));
        for (int d = 0; d < t->ndim; d++)
            tern_buf_printf(to, " %llu", (unsigned long long)t->shape[d]);
        tern_buf_printf(to, " in %u\n", x->shard ? x->shard[i] : 0);
    }
}

/* ------------------------------------------------------------------ the folder and its owner */

/* 0: the folder is there, ours and no link.  *ret_new: there is nothing in it. */
static int make_folder(const char *dir, bool *ret_new, struct tern_err *err)
{
    struct stat st;
    struct tern_tree all = {0};

    *ret_new = TERN_AGAIN(mkdir(dir, 0777)) == 0;
    if (*ret_new)
        return 0;
    if (errno != EEXIST || TERN_AGAIN(lstat(dir, &st)) < 0)
        return tern_err_sys(err, "%s: cannot make folder", dir);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return tern_err_set(err, TERN_USAGE,
                            "%s: is there already, and is no folder of yours. The conversion would "
                            "grow there: choose another name.",
                            dir);
    if (tern_tree_list_files(dir, &all, err) < 0)
        return -1;
    *ret_new = all.n == 0;
    tern_tree_free(&all);
    return 0;
}

/* Is the locked file still the one at `path`?  Its owner may have moved or removed it meanwhile. */
static bool is_at(int fd, const char *path)
{
    struct stat mine, there;

    return TERN_AGAIN(fstat(fd, &mine)) == 0 && TERN_AGAIN(lstat(path, &there)) == 0 &&
           mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

/* The job's file, locked; -1.  -2: begin once more. */
static int lock_job(const char *dir, const char *path, bool is_new, struct tern_err *err)
{
    const int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | (is_new ? O_CREAT : 0);
    const int fd = TERN_AGAIN(open(path, flags, 0666));

    if (fd < 0 && errno == ENOENT) {
        struct stat st;
        if (TERN_AGAIN(lstat(dir, &st)) < 0)
            return -2;
        return tern_err_set(err, TERN_USAGE,
                            "%s: is there already, and no conversion left it. Remove it, or choose "
                            "another name.",
                            dir);
    }
    if (fd < 0)
        return tern_err_sys(err, "%s: cannot open", path);
    /* A storage without locks: two calls at once are then the user's affair. */
    if (TERN_AGAIN(flock(fd, LOCK_EX | LOCK_NB)) < 0 && errno == EWOULDBLOCK) {
        close(fd);
        return tern_err_set(err, TERN_TEMPFAIL, "%s: another process is writing there", dir);
    }
    if (is_at(fd, path))
        return fd;
    close(fd);
    return -2;
}

static int own_folder(const char *dir, const char *path, struct tern_err *err)
{
    enum { TRIES = 100 };
    int fd = -2;

    for (int i = 0; fd == -2 && i < TRIES; i++) {
        bool is_new;
        if (make_folder(dir, &is_new, err) < 0)
            return -1;
        fd = lock_job(dir, path, is_new, err);
    }
    return fd == -2 ? tern_err_set(err, TERN_TEMPFAIL, "%s: other processes keep making it", dir)
                    : fd;
}

/* ------------------------------------------------------------------ what is in it */

static bool is_whole(const char *name)
{
    return tern_str_ends(name, ".safetensors") || tern_str_ends(name, ".pt");
}

/* Remove what is no whole file of weights.  *ret_kept: how many stay. */
static int sweep(const char *dir, size_t *ret_kept, struct tern_err *err)
{
    struct tern_tree t = {0};
    int rc = tern_tree_list_files(dir, &t, err);

    *ret_kept = 0;
    for (size_t i = 0; rc == 0 && i < t.n; i++) {
        char *path = tern_fs_join(dir, t.file[i].name);
        if (is_whole(t.file[i].name))
            ++*ret_kept;
        else if (strcmp(t.file[i].name, job_name) != 0 && TERN_AGAIN(unlink(path)) < 0)
            rc = tern_err_sys(err, "%s: cannot remove", path);
        free(path);
    }
    tern_tree_free(&t);
    return rc;
}

static int empty(const char *dir, struct tern_err *err)
{
    DIR *d = TERN_AGAIN_PTR(opendir(dir));
    int rc = d ? 0 : tern_err_sys(err, "%s: cannot read", dir);

    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        char *path = tern_fs_join(dir, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            strcmp(e->d_name, job_name) != 0)
            rc = tern_fs_remove_tree(path, err);
        free(path);
    }
    if (d)
        closedir(d);
    return rc;
}

/* What an earlier call left is of the same conversion, or goes. */
static int take_over(struct tern_convert_export *x, const char *path, const char *digest,
                     struct tern_err *err)
{
    char found[TERN_SHA256_HEX] = "";
    const ssize_t n = TERN_AGAIN(pread(x->job, found, sizeof found - 1, 0));
    size_t kept = 0;

    if (n < 0)
        return tern_err_sys(err, "%s: cannot read", path);
    const bool same = strcmp(found, digest) == 0;
    if (n > 0 && !same)
        tern_info("%s: is of other options, or its source has changed; it begins anew", x->temp);
    if ((same ? sweep(x->temp, &kept, err) : empty(x->temp, err)) < 0)
        return -1;
    if (kept > 0)
        tern_info("%s: goes on behind %zu whole file%s", x->temp, kept, kept > 1 ? "s" : "");
    if (same)
        return 0;
    if (TERN_AGAIN(ftruncate(x->job, 0)) < 0 || lseek(x->job, 0, SEEK_SET) < 0)
        return tern_err_sys(err, "%s: cannot write", path);
    tern_assert_cmp(strlen(digest), ==, TERN_SHA256_HEX - 1);
    if (tern_fs_write_at(x->job, 0, digest, strlen(digest), path, err) < 0)
        return -1;
    return tern_fs_sync(x->job) < 0 ? tern_err_sys(err, "%s: cannot make it durable", path) : 0;
}

/* ------------------------------------------------------------------ from begin to end */

/* Was a call with this digest killed behind the rename that gave `out_dir` its name?  Then its
 * job's file is still there, and goes. */
static bool is_made(const char *out_dir, const char *digest)
{
    char *path = tern_fs_join(out_dir, job_name), found[TERN_SHA256_HEX] = "";
    const int fd = TERN_AGAIN(open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    bool same = false;

    if (fd >= 0 && TERN_AGAIN(flock(fd, LOCK_EX | LOCK_NB)) == 0 && is_at(fd, path) &&
        TERN_AGAIN(pread(fd, found, sizeof found - 1, 0)) > 0)
        same = strcmp(found, digest) == 0 && TERN_AGAIN(unlink(path)) == 0;
    if (fd >= 0)
        close(fd);
    free(path);
    return same;
}

int tern_convert_folder_begin(struct tern_convert_export *x, const char *out_dir,
                              const struct tern_buf *what, struct tern_err *err)
{
    uint8_t sum[TERN_SHA256_BYTES];
    char digest[TERN_SHA256_HEX];

    if (tern_buf_check(what, out_dir, err) < 0)
        return -1;
    tern_sha256(what->data, what->len, sum);
    tern_hex(digest, sum, sizeof sum);
    if (is_made(out_dir, digest)) {
        tern_info("%s: an earlier call of this command has made it", out_dir);
        return tern_fs_sync_parent(out_dir, err) < 0 ? -1 : 1;
    }
    if (tern_fs_is_free(out_dir, err) < 0)
        return -1;
    char *above = tern_fs_dirname(out_dir), *dir = tern_strf("%s.unfinished", out_dir);
    char *path = tern_fs_join(dir, job_name);
    int rc = tern_fs_mkdirs(above, 0777, err);
    const int fd = rc < 0 ? -1 : own_folder(dir, path, err);

    free(above);
    if (fd < 0) {
        free(path);
        free(dir);
        return -1;
    }
    x->job = fd;
    x->temp = dir;
    rc = take_over(x, path, digest, err);
    free(path);
    return rc;
}

int tern_convert_folder_end(struct tern_convert_export *x, const char *out_dir,
                            struct tern_err *err)
{
    if (tern_fs_rename(x->temp, out_dir, /* only_new= */ false) < 0)
        return tern_err_sys(err, "%s: cannot be put in place", out_dir);
    free(x->temp);
    x->temp = NULL; /* it has its name now */
    /* Removed last: until the rename another call must find the lock. */
    char *job = tern_fs_join(out_dir, job_name);
    if (TERN_AGAIN(unlink(job)) < 0)
        tern_warn("%s: cannot be removed: %s", job, strerror(errno));
    free(job);
    close(x->job);
    return tern_fs_sync_parent(out_dir, err);
}

int tern_convert_folder_stopped(struct tern_convert_export *x, const volatile sig_atomic_t *stop,
                                struct tern_err *err)
{
    size_t kept = 0;

    if (!x->temp || !stop || !*stop || sweep(x->temp, &kept, NULL) < 0 || kept == 0)
        return -1; /* tern_convert_folder_drop removes it */
    tern_err_set(err, TERN_FAILED,
                 "interrupted; %zu whole file%s in %s, where the same command goes on", kept,
                 kept > 1 ? "s stay" : " stays", x->temp);
    free(x->temp);
    x->temp = NULL;
    close(x->job);
    return -1;
}

void tern_convert_folder_drop(struct tern_convert_export *x)
{
    if (!x->temp)
        return;
    /* Under a name that no other call looks for: one that begins now must not lose its files. */
    char *aside = tern_fs_folder_beside_swept(x->temp, NULL);
    if (aside && tern_fs_rename(x->temp, aside, /* only_new= */ false) == 0)
        tern_fs_remove_tree(aside, NULL);
    else
        tern_fs_remove_tree(x->temp, NULL);
    if (aside)
        rmdir(aside); /* where the rename failed */
    free(aside);
    free(x->temp);
    x->temp = NULL;
    close(x->job);
}

/* Files into a folder: each into DIR/.tern-fetch under its own name, in order, so that its length
 * says how far it is. When all are there and right they get their names. */
#include "core/fetch/fetch.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A range is one request: 8 MiB keep requests' time below a tenth at 100 MB/s.  A file that came
 * wrong is fetched once more. */
enum { BLOCK = 8 << 20, THREADS = 4, THREADS_MAX = 32, TRIES = 2 };

struct job {
    const struct tern_fetch_list *l;
    const struct tern_fetch_how *how;
    const char *dir;
    char *staging;
    bool *staged;         /* of each file: it waits in the staging folder */
    pthread_mutex_t lock; /* of what follows */
    size_t next;
    uint64_t done_bytes, all_bytes;
    struct tern_fetch_done done;
    bool failed;
    struct tern_err err;
};

/* ---- digests ---- */

/* The digest of the first `bytes` of the file; NULL for a kind that there is none of. */
static char *digest_of(int fd, const char *path, const struct tern_fetch_file *f,
                       char to[2 * EVP_MAX_MD_SIZE + 1], struct tern_err *err)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    const EVP_MD *kind = f->kind == TERN_FETCH_SHA256     ? EVP_sha256()
                         : f->kind == TERN_FETCH_GIT_SHA1 ? EVP_sha1()
                                                          : EVP_md5();
    uint8_t digest[EVP_MAX_MD_SIZE];
    char *piece = malloc(BLOCK), *got = NULL;
    unsigned n;

    if (!md || !piece || EVP_DigestInit_ex(md, kind, NULL) != 1) {
        tern_err_set(err, TERN_FAILED, "%s: libcrypto cannot make its digest", path);
        goto out;
    }
    if (f->kind == TERN_FETCH_GIT_SHA1) {
        char head[40];
        const int len = snprintf(head, sizeof head, "blob %llu", (unsigned long long)f->bytes);
        EVP_DigestUpdate(md, head, (size_t)len + 1);
    }
    for (uint64_t at = 0; at < f->bytes;) {
        const size_t len = f->bytes - at < BLOCK ? (size_t)(f->bytes - at) : BLOCK;
        if (tern_fs_pread(fd, piece, len, at, path, err) < 0)
            goto out;
        EVP_DigestUpdate(md, piece, len);
        at += len;
    }
    if (EVP_DigestFinal_ex(md, digest, &n) == 1)
        got = tern_hex(to, digest, n);
out:
    EVP_MD_CTX_free(md);
    free(piece);
    return got;
}

/* Of an object whose contents are encrypted, the ETag in a list is no digest. */
static bool no_digest(const struct job *j, const struct tern_fetch_file *f)
{
    struct tern_store_head h;

    return f->kind == TERN_FETCH_MD5 &&
           tern_store_head(j->l->store, *f->name ? f->name : NULL, &h, NULL) == 1 && !h.etag_md5 &&
           strcmp(h.etag, f->etag) == 0;
}

/* 1: the file has the right size and digest; 0: not; -1. */
static int is_right(int fd, const char *path, const struct tern_fetch_file *f, struct tern_err *err)
{
    char hex[2 * EVP_MAX_MD_SIZE + 1];
    struct stat st;

    if (fstat(fd, &st) < 0)
        return tern_err_sys(err, "%s: cannot look at it", path);
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != f->bytes)
        return 0;
    if (f->kind == TERN_FETCH_NONE)
        return 1;
    if (!digest_of(fd, path, f, hex, err))
        return -1;
    return strcmp(hex, f->digest) == 0;
}

/* Is it in the folder already?  What has no digest is fetched again. */
static int is_there(const char *path, const struct tern_fetch_file *f, struct tern_err *err)
{
    const int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));

    if (fd < 0)
        return 0;
    const int rc = f->kind == TERN_FETCH_NONE ? 0 : is_right(fd, path, f, err);
    close(fd);
    return rc;
}

/* Does what has the file's name differ from it for certain, before it is fetched?  An MD5 may be of
 * encrypted contents. */
static bool is_other(const char *path, const struct tern_fetch_file *f)
{
    struct stat st;

    return TERN_AGAIN(stat(path, &st)) == 0 &&
           (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != f->bytes ||
            f->kind == TERN_FETCH_SHA256 || f->kind == TERN_FETCH_GIT_SHA1);
}

static int refuse_other(const char *path, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE,
                        "%s: is there, and is not the file of the source; it is left as it is. "
                        "--replace takes its place; -o names another folder.",
                        path);
}

/* 1: the same bytes; 0: others, or one of them is not there; -1. */
static int same_bytes(const char *path, const char *other, struct tern_err *err)
{
    enum { PIECE = 1 << 20 };
    const int a = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    const int b = TERN_AGAIN(open(other, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    char *piece = tern_alloc(2, PIECE, "pieces of files", err);
    struct stat of_a, of_b;
    int rc = piece ? 0 : -1;

    if (rc == 0 && a >= 0 && b >= 0 && fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 &&
        S_ISREG(of_a.st_mode) && of_a.st_size == of_b.st_size)
        rc = 1;
    for (off_t at = 0; rc == 1 && at < of_a.st_size;) {
        const size_t len = of_a.st_size - at < PIECE ? (size_t)(of_a.st_size - at) : PIECE;
        if (tern_fs_pread(a, piece, len, (uint64_t)at, path, err) < 0 ||
            tern_fs_pread(b, piece + PIECE, len, (uint64_t)at, other, err) < 0)
            rc = -1;
        else if (memcmp(piece, piece + PIECE, len) != 0)
            rc = 0;
        at += (off_t)len;
    }
    free(piece);
    if (a >= 0)
        close(a);
    if (b >= 0)
        close(b);
    return rc;
}

/* ---- one file ---- */

static bool stop(const struct job *j)
{
    return j->how->stop && __atomic_load_n(j->how->stop, __ATOMIC_RELAXED);
}

static void count(struct job *j, int64_t bytes, bool got)
{
    pthread_mutex_lock(&j->lock);
    j->done_bytes += (uint64_t)bytes;
    j->done.got_bytes += got ? (uint64_t)bytes : 0;
    if (j->how->progress)
        j->how->progress(j->how->ctx, j->done_bytes, j->all_bytes);
    pthread_mutex_unlock(&j->lock);
}

static int read_block(struct job *j, const struct tern_fetch_file *f, uint64_t at, size_t len,
                      void *to, struct tern_err *err)
{
    const char *name = *f->name ? f->name : NULL;

    return f->judged_later ? tern_store_read_unchecked(j->l->store, name, f->etag, at, len, to, err)
                           : tern_store_read(j->l->store, name, f->etag, at, len, to, err);
}

/* From where the file ends to its end. */
static int append(struct job *j, int fd, const char *path, const struct tern_fetch_file *f,
                  struct tern_err *err)
{
    struct stat st;
    char *block = tern_alloc(BLOCK, 1, "a block", err);
    int rc = block ? 0 : -1;

    if (rc == 0 && fstat(fd, &st) < 0)
        rc = tern_err_sys(err, "%s: cannot look at it", path);
    uint64_t at = rc == 0 ? (uint64_t)st.st_size : 0;
    if (rc == 0 && at > f->bytes) {
        at = 0;
        if (ftruncate(fd, 0) < 0)
            rc = tern_err_sys(err, "%s: cannot empty it", path);
    }
    if (rc == 0 && lseek(fd, (off_t)at, SEEK_SET) < 0)
        rc = tern_err_sys(err, "%s: cannot write", path);
    if (rc == 0)
        count(j, (int64_t)at, /* got= */ false);
    while (rc == 0 && at < f->bytes) {
        const size_t len = f->bytes - at < BLOCK ? (size_t)(f->bytes - at) : BLOCK;
        if (stop(j))
            rc = tern_err_set(err, TERN_FAILED, "%s: interrupted", j->l->shown);
        if (rc == 0)
            rc = read_block(j, f, at, len, block, err);
        if (rc == 0)
            rc = tern_fs_write_at(fd, at, block, len, path, err);
        if (rc == 0) {
            at += len;
            count(j, (int64_t)len, /* got= */ true);
        }
    }
    free(block);
    return rc;
}

static int fetch(struct job *j, const struct tern_fetch_file *f, const char *path,
                 struct tern_err *err)
{
    const int fd = TERN_AGAIN(open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    int rc = 0;

    if (fd < 0)
        return tern_err_sys(err, "%s: cannot open", path);
    /* Nothing tells it from another file of its length. */
    if (f->kind == TERN_FETCH_NONE && !*f->etag && ftruncate(fd, 0) < 0)
        rc = tern_err_sys(err, "%s: cannot empty it", path);
    for (int i = 0; i < TRIES && rc == 0; i++) {
        rc = append(j, fd, path, f, err);
        if (rc == 0)
            rc = is_right(fd, path, f, err);
        if (rc == 0 && ((f->judged_later && i == TRIES - 1) || no_digest(j, f)))
            rc = 1;
        if (rc != 0)
            break;
        count(j, -(int64_t)f->bytes, /* got= */ false);
        if (ftruncate(fd, 0) < 0)
            rc = tern_err_sys(err, "%s: cannot empty it", path);
        if (rc < 0)
            break;
    }
    if (rc == 0)
        rc = tern_err_set(err, TERN_FAILED,
                          "%s: %s: its bytes do not have the digest that the server lists: they "
                          "were changed on their way, or there",
                          j->l->shown, f->path);
    if (rc > 0 && tern_fs_sync(fd) < 0)
        rc = tern_err_sys(err, "%s: cannot write", path);
    close(fd);
    return rc < 0 ? -1 : 0;
}

/* Where file i waits: a name of its own contents, so that another version of it is another file. */
static char *staged_at(const struct job *j, size_t i)
{
    const struct tern_fetch_file *f = &j->l->files[i];
    uint8_t digest[TERN_SHA256_BYTES];
    char hex[TERN_SHA256_HEX];
    char *text =
        tern_strf("%s\n%s\n%d\n%s\n%s\n%llu", f->kind == TERN_FETCH_NONE ? j->l->shown : "",
                  f->path, (int)f->kind, f->digest, f->etag, (unsigned long long)f->bytes);

    tern_sha256(text, strlen(text), digest);
    free(text);
    return tern_strf("%s/%.40s", j->staging, tern_hex(hex, digest, sizeof digest));
}

static int take_one(struct job *j, size_t i, struct tern_err *err)
{
    const struct tern_fetch_file *f = &j->l->files[i];
    char *place = tern_fs_join(j->dir, f->path), *waits = staged_at(j, i);
    int rc = is_there(place, f, err);

    if (rc > 0) {
        count(j, (int64_t)f->bytes, /* got= */ false);
        rc = 0;
    } else if (rc == 0 && !j->how->replace && is_other(place, f)) {
        rc = refuse_other(place, err);
    } else if (rc == 0) {
        rc = fetch(j, f, waits, err);
        j->staged[i] = rc == 0;
        pthread_mutex_lock(&j->lock);
        j->done.fetched_files += rc == 0;
        pthread_mutex_unlock(&j->lock);
    }
    free(place);
    free(waits);
    return rc;
}

static void *work(void *ctx)
{
    struct job *j = ctx;
    struct tern_err err = {0};
    int rc = 0;

    while (rc == 0) {
        pthread_mutex_lock(&j->lock);
        const size_t i = j->next;
        const bool go_on = i < j->l->n && !j->failed;
        j->next += go_on;
        pthread_mutex_unlock(&j->lock);
        if (!go_on)
            break;
        rc = take_one(j, i, &err);
    }
    if (rc < 0) {
        pthread_mutex_lock(&j->lock);
        if (!j->failed)
            j->err = err;
        j->failed = true;
        pthread_mutex_unlock(&j->lock);
    }
    return NULL;
}

/* ---- all of them ---- */

static int fetch_all(struct job *j, struct tern_err *err)
{
    pthread_t threads[THREADS_MAX];
    unsigned n = j->how->threads ? j->how->threads : THREADS, begun = 0;

    n = n > THREADS_MAX ? THREADS_MAX : n;
    n = n > j->l->n ? (unsigned)j->l->n : n;
    while (begun < n && pthread_create(&threads[begun], NULL, work, j) == 0)
        begun++;
    if (begun == 0)
        work(j);
    for (unsigned i = 0; i < begun; i++)
        pthread_join(threads[i], NULL);
    if (j->failed && j->err.code == TERN_USAGE)
        *err = j->err;
    else if (j->failed)
        tern_err_set(err, j->err.code, "%s. The same command goes on where it stopped.",
                     j->err.text);
    return j->failed ? -1 : 0;
}

static int count_others(struct job *j, struct tern_err *err)
{
    DIR *d = TERN_AGAIN_PTR(opendir(j->staging));
    struct stat st;

    if (!d)
        return tern_err_sys(err, "%s: cannot look into it", j->staging);
    for (struct dirent *e; (e = readdir(d));)
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            j->done.other_bytes += (uint64_t)st.st_size;
    closedir(d);
    return 0;
}

/* The staging folder goes, unless files of other fetches wait there, too: their bytes are counted.
 */
static int clear_staging(struct job *j, struct tern_err *err)
{
    char *lock = tern_fs_join(j->staging, "lock");
    int rc = 0;

    for (size_t i = 0; i < j->l->n && rc == 0; i++) {
        char *waits = staged_at(j, i);
        if (unlink(waits) < 0 && errno != ENOENT)
            rc = tern_err_sys(err, "%s: cannot remove", waits);
        free(waits);
    }
    if (rc == 0 && unlink(lock) < 0)
        rc = tern_err_sys(err, "%s: cannot remove", lock);
    free(lock);
    if (rc < 0 || rmdir(j->staging) == 0)
        return rc;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return tern_err_sys(err, "%s: cannot remove", j->staging);
    return count_others(j, err);
}

/* Of files without a digest it is known only now whether those that are there are others. */
static int check_places(struct job *j, struct tern_err *err)
{
    struct stat st;

    for (size_t i = 0; i < j->l->n; i++) {
        if (!j->staged[i] || j->how->replace)
            continue;
        char *place = tern_fs_join(j->dir, j->l->files[i].path), *waits = staged_at(j, i);
        int rc = TERN_AGAIN(lstat(place, &st)) < 0 ? 1 : same_bytes(place, waits, err);
        if (rc == 0)
            rc = refuse_other(place, err);
        free(place);
        free(waits);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* Files that wait get their names. */
static int place_all(struct job *j, struct tern_err *err)
{
    if (check_places(j, err) < 0)
        return -1;
    for (size_t i = 0; i < j->l->n; i++) {
        if (!j->staged[i])
            continue;
        char *place = tern_fs_join(j->dir, j->l->files[i].path), *waits = staged_at(j, i);
        char *above = tern_fs_dirname(place);
        const bool is_new = !tern_fs_exists(above);
        int rc = tern_fs_mkdirs(above, 0777, err);
        if (rc == 0 && tern_fs_rename(waits, place, /* only_new= */ false) < 0)
            rc = tern_err_sys(err, "%s: cannot get its name", place);
        if (rc == 0)
            rc = tern_fs_sync_dir(above, err);
        if (rc == 0 && is_new)
            rc = tern_fs_sync_above(above, j->dir, err);
        free(above);
        free(place);
        free(waits);
        if (rc < 0)
            return -1;
    }
    return tern_fs_sync_parent(j->dir, err) < 0 ? -1 : clear_staging(j, err);
}

/* Is `fd` still the file of that name?  A fetch that ended has removed it. */
static bool is_at(int fd, const char *path)
{
    struct stat here, there;

    return fstat(fd, &here) == 0 && stat(path, &there) == 0 && here.st_dev == there.st_dev &&
           here.st_ino == there.st_ino;
}

/* One process at a time fetches into a folder.  1: the folder went just now, begin again. */
static int lock_staging(const struct job *j, int *ret_lock, struct tern_err *err)
{
    char *path = tern_fs_join(j->staging, "lock");
    int rc = tern_fs_mkdirs(j->staging, 0777, err);
    const int lock =
        rc < 0 ? -1 : TERN_AGAIN(open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));

    if (rc == 0 && lock < 0 && errno == ENOENT)
        rc = 1;
    else if (rc == 0 && lock < 0)
        rc = tern_err_sys(err, "%s: cannot open", path);
    else if (rc == 0 && flock(lock, LOCK_EX | LOCK_NB) < 0)
        rc = errno == EWOULDBLOCK ? tern_err_set(err, TERN_TEMPFAIL,
                                                 "%s: another process is fetching into it", j->dir)
                                  : tern_err_sys(err, "%s: cannot lock", path);
    else if (rc == 0 && !is_at(lock, path))
        rc = 1;
    if (rc != 0 && lock >= 0)
        close(lock);
    if (rc == 0)
        *ret_lock = lock;
    free(path);
    return rc;
}

int tern_fetch_get(const struct tern_fetch_list *l, const char *dir,
                   const struct tern_fetch_how *how, struct tern_fetch_done *ret_done,
                   struct tern_err *err)
{
    struct job j = {.l = l, .how = how, .dir = dir, .staging = tern_fs_join(dir, ".tern-fetch")};
    int lock = -1, rc = -1, locked = -1;

    pthread_mutex_init(&j.lock, NULL);
    j.staged = tern_alloc(l->n, sizeof *j.staged, "a list of files", err);
    for (size_t i = 0; i < l->n; i++)
        j.all_bytes += l->files[i].bytes;
    j.done.files = l->n;
    j.done.bytes = j.all_bytes;
    while (j.staged && (locked = lock_staging(&j, &lock, err)) > 0)
        ;
    if (locked == 0 && fetch_all(&j, err) == 0 && place_all(&j, err) == 0)
        rc = 0;
    if (lock >= 0)
        close(lock);
    if (rc == 0)
        *ret_done = j.done;
    pthread_mutex_destroy(&j.lock);
    free(j.staged);
    free(j.staging);
    return rc;
}

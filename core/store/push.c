#include "core/store/push.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/store/call.h"
#include "core/store/digest.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MIB = 1 << 20, PART = 16 * MIB, PART_MIN = 5 * MIB, THREADS = 4, THREADS_MAX = 64 };

struct push {
    struct tern_store *s;
    const char *name, *path;
    int fd;
    uint64_t bytes, part_bytes;
    struct stat st;
    char id[TERN_STORE_ID];
    struct tern_store_part *parts; /* those that are there have a number */
    size_t n_parts;
    const struct tern_store_push_how *how;
    pthread_mutex_t lock; /* of what follows */
    size_t next;
    uint64_t done, sent;
    bool failed;
    struct tern_err err; /* the first failure */
};

static size_t part_len(const struct push *p, size_t i)
{
    const uint64_t left = p->bytes - i * p->part_bytes;

    return (size_t)(left < p->part_bytes ? left : p->part_bytes);
}

static bool same_file(const struct push *p)
{
    struct stat st;

    return fstat(p->fd, &st) == 0 && st.st_size == p->st.st_size &&
           st.st_mtim.tv_sec == p->st.st_mtim.tv_sec && st.st_mtim.tv_nsec == p->st.st_mtim.tv_nsec;
}

static int changed(const struct push *p, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE, "%s: it was changed while it was sent. Send it again.",
                        p->path);
}

/* Is part `i` there, with these bytes? */
static bool have_part(const struct push *p, size_t i, const char *data, size_t len)
{
    char told[2 * TERN_STORE_MD5 + 1], ours[2 * TERN_STORE_MD5 + 1];
    uint8_t md5[TERN_STORE_MD5];

    return p->parts[i].number && p->parts[i].bytes == len &&
           tern_store_etag_md5(p->parts[i].etag, told) && tern_store_md5(data, len, md5) &&
           strcmp(told, tern_hex(ours, md5, sizeof md5)) == 0;
}

static int send_part(struct push *p, size_t i, char *data, struct tern_err *err)
{
    const size_t len = part_len(p, i);

    if (tern_fs_pread(p->fd, data, len, i * p->part_bytes, p->path, err) < 0)
        return -1;
    const bool have = have_part(p, i, data, len);
    if (!have) {
        p->parts[i] = (struct tern_store_part){.number = (unsigned)i + 1, .bytes = len};
        if (tern_store_upload_part(p->s, p->name, p->id, data, &p->parts[i], err) < 0)
            return -1;
    }
    pthread_mutex_lock(&p->lock);
    p->done += len;
    p->sent += have ? 0 : len;
    if (p->how->progress)
        p->how->progress(p->how->ctx, p->done, p->bytes);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

static void *work(void *ctx)
{
    struct push *p = ctx;
    struct tern_err err = {0};
    char *data = tern_alloc(p->part_bytes, 1, "a part of an upload", &err);
    int rc = data ? 0 : -1;

    while (rc == 0) {
        pthread_mutex_lock(&p->lock);
        const size_t i = p->next;
        const bool go_on = i < p->n_parts && !p->failed;
        p->next += go_on;
        pthread_mutex_unlock(&p->lock);
        if (!go_on)
            break;
        rc = send_part(p, i, data, &err);
    }
    if (rc < 0) {
        pthread_mutex_lock(&p->lock);
        if (!p->failed)
            p->err = err;
        p->failed = true;
        pthread_mutex_unlock(&p->lock);
    }
    free(data);
    return NULL;
}

static int note_part(void *ctx, const struct tern_store_part *part)
{
    struct push *p = ctx;

    if (part->number <= p->n_parts)
        p->parts[part->number - 1] = *part;
    return 0;
}

/* An earlier try's upload, or a new one. */
static int find_upload(struct push *p, struct tern_err *err)
{
    const int found = tern_store_upload_find(p->s, p->name, p->id, err);

    if (found < 0)
        return -1;
    if (found == 0)
        return tern_store_upload_begin(p->s, p->name, p->id, err);
    return tern_store_upload_parts(p->s, p->name, p->id, note_part, p, err);
}

static int send_parts(struct push *p, struct tern_err *err)
{
    pthread_t threads[THREADS_MAX];
    unsigned n = p->how->threads ? p->how->threads : THREADS, begun = 0;

    n = n > THREADS_MAX ? THREADS_MAX : n;
    n = n > p->n_parts ? (unsigned)p->n_parts : n;
    while (begun < n && pthread_create(&threads[begun], NULL, work, p) == 0)
        begun++;
    if (begun == 0)
        work(p);
    for (unsigned i = 0; i < begun; i++)
        pthread_join(threads[i], NULL);
    if (p->failed) {
        tern_err_set(err, p->err.code,
                     "%s. The parts that were sent are kept: the same command goes on with them.",
                     p->err.text);
        return -1;
    }
    return 0;
}

static int in_parts(struct push *p, struct tern_err *err)
{
    int rc = -1;

    p->n_parts = (size_t)((p->bytes + p->part_bytes - 1) / p->part_bytes);
    p->parts = tern_alloc(p->n_parts, sizeof *p->parts, "parts of an upload", err);
    if (p->parts && find_upload(p, err) == 0 && send_parts(p, err) == 0)
        rc = same_file(p) ? tern_store_upload_end(p->s, p->name, p->id, p->parts, p->n_parts, err)
                          : changed(p, err);
    free(p->parts);
    return rc;
}

static int in_one(struct push *p, struct tern_err *err)
{
    char *data = tern_alloc(p->bytes + 1, 1, "a file", err);
    int rc = -1;

    if (data && tern_fs_pread(p->fd, data, p->bytes, 0, p->path, err) == 0)
        rc = same_file(p) ? tern_store_put(p->s, p->name, data, p->bytes, NULL, err)
                          : changed(p, err);
    free(data);
    p->sent = p->done = p->bytes;
    if (rc == 0 && p->how->progress)
        p->how->progress(p->how->ctx, p->bytes, p->bytes);
    return rc;
}

/* The ETag that the object would have: 1; 0 where it cannot be known. */
static int expected_etag(const struct push *p, char to[TERN_STORE_ETAG], struct tern_err *err)
{
    const size_t n = p->bytes ? (size_t)((p->bytes + p->part_bytes - 1) / p->part_bytes) : 1;
    const size_t most = p->bytes < p->part_bytes ? p->bytes : p->part_bytes;
    uint8_t *md5 = tern_alloc(n, TERN_STORE_MD5, "digests of parts", err);
    char *data = md5 ? tern_alloc(most + 1, 1, "a part of an upload", err) : NULL;
    char hex[2 * TERN_STORE_MD5 + 1];
    uint8_t all[TERN_STORE_MD5];
    int rc = data ? 1 : -1;

    for (size_t i = 0; i < n && rc == 1; i++) {
        if (tern_fs_pread(p->fd, data, part_len(p, i), i * p->part_bytes, p->path, err) < 0)
            rc = -1;
        else
            rc = tern_store_md5(data, part_len(p, i), md5 + i * TERN_STORE_MD5);
    }
    const bool parts = p->bytes > p->part_bytes;
    if (rc == 1 && parts)
        rc = tern_store_md5(md5, n * TERN_STORE_MD5, all);
    if (rc == 1)
        tern_hex(hex, parts ? all : md5, TERN_STORE_MD5);
    if (rc == 1 && parts)
        snprintf(to, TERN_STORE_ETAG, "\"%s-%zu\"", hex, n);
    else if (rc == 1)
        snprintf(to, TERN_STORE_ETAG, "\"%s\"", hex);
    free(data);
    free(md5);
    return rc;
}

/* 1: the object is there with the file's bytes, and `ret_head` is its; 0; -1. */
static int is_there(const struct push *p, struct tern_store_head *ret_head, struct tern_err *err)
{
    char etag[TERN_STORE_ETAG];
    int rc = p->how->keep_same ? tern_store_head(p->s, p->name, ret_head, err) : 0;

    if (rc <= 0 || ret_head->bytes != p->bytes)
        return rc < 0 ? -1 : 0;
    rc = expected_etag(p, etag, err);
    return rc <= 0 ? rc : strcmp(etag, ret_head->etag) == 0 && same_file(p);
}

int tern_store_push(struct tern_store *s, const char *name, int fd, const char *path,
                    const struct tern_store_push_how *how, struct tern_store_pushed *ret_pushed,
                    struct tern_err *err)
{
    struct push p = {.s = s, .name = name, .path = path, .fd = fd, .how = how};
    struct tern_store_head head;

    if (fstat(fd, &p.st) < 0)
        return tern_err_sys(err, "%s: cannot look at it", path);
    if (!S_ISREG(p.st.st_mode))
        return tern_err_set(err, TERN_USAGE, "%s: not a regular file", path);
    p.bytes = (uint64_t)p.st.st_size;
    const uint64_t least = (p.bytes / TERN_STORE_PARTS / MIB + 1) * MIB;
    p.part_bytes = how->part_bytes ? how->part_bytes : PART;
    if (p.part_bytes < PART_MIN)
        p.part_bytes = PART_MIN;
    if (p.part_bytes < least)
        p.part_bytes = least;
    int rc = is_there(&p, &head, err);
    if (rc < 0)
        return -1;
    if (rc > 0) {
        *ret_pushed = (struct tern_store_pushed){.bytes = p.bytes};
        memcpy(ret_pushed->etag, head.etag, sizeof head.etag);
        return 0;
    }
    pthread_mutex_init(&p.lock, NULL);
    rc = p.bytes <= p.part_bytes ? in_one(&p, err) : in_parts(&p, err);
    pthread_mutex_destroy(&p.lock);
    if (rc == 0) {
        rc = tern_store_head(s, name, &head, err);
        rc = rc > 0   ? 0
             : rc < 0 ? -1
                      : tern_err_set(err, TERN_TEMPFAIL, "%s: the object was sent, and is gone",
                                     tern_store_url(s));
    }
    if (rc == 0 && head.bytes != p.bytes)
        rc = tern_err_set(err, TERN_TEMPFAIL, "%s: the object has %llu bytes, the file %llu",
                          tern_store_url(s), (unsigned long long)head.bytes,
                          (unsigned long long)p.bytes);
    if (rc < 0)
        return -1;
    *ret_pushed = (struct tern_store_pushed){.bytes = p.bytes, .sent_bytes = p.sent};
    memcpy(ret_pushed->etag, head.etag, sizeof head.etag);
    return 0;
}

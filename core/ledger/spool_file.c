/* A spool's file: its end, its room, and its durable part. */
#include "core/ledger/spool_file.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/ledger/homes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_FILES = 100000, /* of one writer's word */
    RESERVE = 16 << 10, /* bytes reserved at once, so that a full disk is seen before its last */
    LAST_WORDS = 1024,  /* bytes are used: they are for the event of what was lost */
};

static const int64_t second = 1000000000;

/* Has the storage room for the frame buffer, and for a last event behind it?  A storage that cannot
 * promise room is taken to have it. */
static int reserve(struct tern_ledger_spool *s, struct tern_err *err)
{
    const off_t need = s->end.offset + (off_t)s->frame.len;

    if (s->closing || s->reserved == 0 || need + LAST_WORDS <= s->reserved)
        return 0;
    if (TERN_AGAIN(fallocate(s->fd, FALLOC_FL_KEEP_SIZE, 0, need + RESERVE)) == 0) {
        s->reserved = need + RESERVE;
        return 0;
    }
    if (errno == ENOSPC || errno == EDQUOT)
        return tern_err_sys(err, "%s: cannot write", s->path);
    s->reserved = 0;
    return 0;
}

void tern_ledger_spool_close_file(struct tern_ledger_spool *s)
{
    if (s->reserved &&
        TERN_AGAIN(ftruncate(s->fd, s->end.offset)) < 0) { /* reserved, and not used */
    }
    close(s->fd);
    s->fd = -1;
}

int tern_ledger_spool_append(struct tern_ledger_spool *s, const struct tern_ledger_frame *f,
                             struct tern_err *err)
{
    size_t done = 0;

    if (tern_buf_check(&s->frame, s->path, err) < 0 || reserve(s, err) < 0)
        return -1;
    tern_assert(s->fd >= 0 && !s->torn, "%s ends in a part of a record", s->path);
    tern_assert_cmp(s->frame.len, ==, TERN_FRAME_HEADER + f->len + TERN_FRAME_TRAILER);
    tern_assert(f->type == TERN_FRAME_HEAD || f->seq > s->end.seq, "record %llu after %llu",
                (unsigned long long)f->seq, (unsigned long long)s->end.seq);
    while (done < s->frame.len) {
        ssize_t n =
            pwrite(s->fd, s->frame.data + done, s->frame.len - done, s->end.offset + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n < 0 ? errno : ENOSPC;
            tern_err_sys(err, "%s: cannot write", s->path);
            s->torn = TERN_AGAIN(ftruncate(s->fd, s->end.offset)) < 0;
            return -1;
        }
        done += (size_t)n;
    }
    tern_assert_cmp(done, ==, s->frame.len);
    s->end.offset += (off_t)done;
    s->end.crc = f->crc;
    if (f->type == TERN_FRAME_HEAD)
        return 0;
    s->end.seq = f->seq;
    const struct tern_ledger_waiting_record r = {(enum tern_ledger_frame_type)f->type, f->wall_ns,
                                                 f->payload, f->len};
    tern_ledger_lost_add(&s->here, &r);
    return 0;
}

int tern_ledger_spool_begin_file(struct tern_ledger_spool *s, struct tern_err *err)
{
    int fd = -1;
    char *path = NULL;

    for (;; s->head.number++) {
        free(path);
        path = tern_strf("%s/%s.%u.spool", s->dir, s->head.writer, s->head.number);
        fd = TERN_AGAIN(
            open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, s->bits & 0666));
        if (fd >= 0 || errno != EEXIST || s->head.number >= MAX_FILES)
            break;
    }
    if (fd < 0) {
        tern_err_sys(err, "%s: cannot create", path);
        free(path);
        return -1;
    }
    struct stat st;
    if (TERN_AGAIN(fstat(fd, &st)) == 0 && (st.st_mode & 0777) != ((mode_t)s->bits & 0666))
        fchmod(fd, s->bits & 0666); /* past the umask; a file system without them has none */
    char *before = s->path;
    s->path = path;
    s->fd = fd;
    s->torn = false;
    s->reserved = 1; /* to be reserved */
    s->looked_ns = tern_clock_boot_ns();
    s->begin = (struct tern_ledger_spool_place){.seq = s->end.seq, .crc = s->end.crc};
    s->end.offset = 0;
    s->head.first_seq = s->end.seq + 1;
    struct tern_buf head = {0};
    tern_ledger_record_put_head(&head, &s->head);
    struct tern_ledger_frame f = {.type = TERN_FRAME_HEAD,
                                  .prev = s->end.crc,
                                  .seq = s->end.seq,
                                  .wall_ns = tern_clock_wall_ns(),
                                  .payload = (const uint8_t *)head.data,
                                  .len = (uint32_t)head.len};
    tern_ledger_frame_encode(&s->frame, &f);
    tern_buf_free(&head);
    if (tern_ledger_spool_append(s, &f, err) < 0) {
        /* Without a head it is no spool file; leave none behind. */
        TERN_AGAIN(unlink(s->path));
        close(s->fd);
        s->fd = -1;
        if (before) {
            free(s->path);
            s->path = before;
        }
        return -1;
    }
    if (before) {
        free(s->earlier);
        s->earlier = before;
    }
    tern_ledger_lost_join(&s->further, s->here.n, s->here.first, s->here.last);
    s->here = (struct tern_ledger_lost){0};
    s->durable = (struct tern_ledger_spool_place){.seq = s->end.seq};
    s->head.number++;
    return 0;
}

/* ---------------------------------------------------------------- durability */

/* Records since the durable mark are read back from the file that cannot be trusted any more. They
 * are written to a new one under the same seqs: folding takes each once. */
static int write_again(struct tern_ledger_spool *s, struct tern_err *err)
{
    off_t from = s->durable.offset, len = s->end.offset - from;
    uint64_t last = s->end.seq;
    int old = s->fd, rc = -1;
    uint8_t *data = len > 0 ? tern_alloc((size_t)len, 1, s->path, err) : NULL;

    s->fd = -1;
    bool read = data && tern_fs_pread(old, data, (size_t)len, (uint64_t)from, s->path, err) == 0;
    if (data && !read && errno == ESTALE && tern_fs_reopen(old, s->path, NULL) == 0)
        read = tern_fs_pread(old, data, (size_t)len, (uint64_t)from, s->path, err) == 0;
    if (read) {
        struct tern_ledger_frame_scan scan = {.data = data, .len = (size_t)len};
        struct tern_ledger_frame f;
        s->end.seq = s->durable.seq;
        rc = tern_ledger_spool_begin_file(s, err);
        while (rc == 0 && tern_ledger_frame_next(&scan, &f) == TERN_FRAME_OK) {
            /* One that is out of place is lost: what lies there may be another's. */
            if (f.type == TERN_FRAME_HEAD || f.seq <= s->end.seq || f.seq > last)
                continue;
            f.prev = s->end.crc;
            tern_ledger_frame_encode(&s->frame, &f);
            rc = tern_ledger_spool_append(s, &f, err);
        }
    }
    if (rc == 0 && s->end.seq != last)
        rc = tern_err_set(err, TERN_TEMPFAIL, "%s: cannot be read back", s->path);
    if (rc < 0) {
        s->dropped += last - s->end.seq;
        if (s->lost.n == 0)
            s->lost.first = s->lost.last = -1;
        s->lost.n += last - s->end.seq;
        s->end.seq = last; /* the gap stays visible in the seqs */
    }
    free(data);
    close(old);
    return rc;
}

/* Files that were full, and that went with this one, are not written once more: what they had is
 * lost.  Their numbers are known, the records are not. */
static void look_at_earlier(struct tern_ledger_spool *s)
{
    struct stat there;

    if (!s->earlier || s->begin.seq <= s->gone || TERN_AGAIN(stat(s->earlier, &there)) == 0 ||
        errno != ENOENT)
        return;
    const uint64_t n = s->begin.seq - s->gone;
    tern_warn("%s and the files before it are not there any more: %llu records are lost",
              s->earlier, (unsigned long long)n);
    tern_ledger_lost_join(&s->lost, n, s->further.n ? s->further.first : -1,
                          s->further.n ? s->further.last : -1);
    s->dropped += n;
    s->gone = s->begin.seq;
    s->further = (struct tern_ledger_lost){0};
}

int tern_ledger_spool_follow(struct tern_ledger_spool *s, bool now, struct tern_err *err)
{
    int64_t boot = tern_clock_boot_ns();
    struct stat is, there;

    if (s->fd < 0 || (!now && boot - s->looked_ns < second))
        return 0;
    s->looked_ns = boot;
    if (TERN_AGAIN(fstat(s->fd, &is)) < 0 ||
        (TERN_AGAIN(stat(s->path, &there)) == 0 && there.st_ino == is.st_ino &&
         there.st_dev == is.st_dev))
        return 0;
    struct tern_err why = {0};
    int bits = s->bits;
    if (tern_ledger_home_make_attempt(s->dir, s->head.run_id, &bits, &why) <
        0) { /* it may come back */
        *err = why;
        return -1;
    }
    tern_warn("%s: is not there any more; its records are written once more beside it", s->path);
    look_at_earlier(s);
    s->here = (struct tern_ledger_lost){0}; /* they come again */
    s->durable = s->begin;
    char *earlier = s->earlier; /* not the one that is gone */
    s->earlier = NULL;
    const int rc = write_again(s, err);
    free(s->earlier);
    s->earlier = earlier;
    return rc;
}

static bool is_durable(const struct tern_ledger_spool *s)
{
    return s->fd < 0 || (s->durable.offset == s->end.offset && s->durable.crc == s->end.crc);
}

/* The storage has refused, with `errno`.  The kernel reports a lost page once and then calls it
 * clean: never ask this file again (https://wiki.postgresql.org/wiki/Fsync_Errors). */
static int sync_elsewhere(struct tern_ledger_spool *s, struct tern_err *err)
{
    struct tern_err first = {0};

    tern_err_sys(&first, "%s: cannot make it durable", s->path);
    tern_warn("%s; writing the records since the last sync to a new file", first.text);
    if (write_again(s, err) < 0 || s->fd < 0)
        return -1;
    if (tern_fs_sync_data(s->fd) < 0)
        return tern_err_sys(err, "%s: cannot make it durable", s->path);
    if (tern_ledger_home_sync(s->dir, err) < 0)
        return -1;
    s->durable = s->end;
    return 0;
}

int tern_ledger_spool_sync_locked(struct tern_ledger_spool *s, struct tern_err *err)
{
    if (is_durable(s))
        return 0;
    const bool new_file = s->durable.offset == 0;
    if (tern_fs_sync_data(s->fd) < 0)
        return sync_elsewhere(s, err);
    if (new_file && tern_ledger_home_sync(s->dir, err) < 0)
        return -1;
    s->durable = s->end;
    return 0;
}

/* The same, and another thread may write records while the storage works.  1: the file was replaced
 * meanwhile. */
static int sync_beside(struct tern_ledger_spool *s, struct tern_err *err)
{
    const struct tern_ledger_spool_place end = s->end;
    const uint32_t number = s->head.number;
    const bool new_file = s->durable.offset == 0;
    const int fd = fcntl(s->fd, F_DUPFD_CLOEXEC, 0); /* a replaced file is closed */

    if (fd < 0)
        return tern_ledger_spool_sync_locked(s, err);
    pthread_mutex_unlock(&s->lock);
    const bool failed = tern_fs_sync_data(fd) < 0;
    const int why = errno;
    close(fd);
    const int rc = !failed && new_file ? tern_ledger_home_sync(s->dir, err) : 0;
    pthread_mutex_lock(&s->lock);
    if (s->fd < 0 || s->head.number != number)
        return 1;
    errno = why;
    if (failed)
        return sync_elsewhere(s, err);
    if (rc == 0 && end.offset > s->durable.offset)
        s->durable = end;
    return rc;
}

int tern_ledger_spool_sync(struct tern_ledger_spool *s, struct tern_err *err)
{
    int rc = 1;

    if (!s)
        return 0;
    pthread_mutex_lock(&s->lock);
    while (rc > 0)
        rc = is_durable(s) ? 0 : sync_beside(s, err);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

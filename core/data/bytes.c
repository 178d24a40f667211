/* zlib's gzread drops bytes behind a member that are not a member; here each member is inflated by
 * itself. */
#include "core/data/bytes.h"

#include "core/base/str.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum {
    PIECE = 256 << 10,     /* keeps system calls below a thousandth of the work */
    GZIP = 16 + MAX_WBITS, /* inflateInit2's word for it */
};

enum state {
    UNKNOWN, /* nothing was read */
    PLAIN,
    MEMBER,  /* inside one */
    BETWEEN, /* behind one */
};

struct tern_data_bytes {
    int fd;
    const char *path;
    const int *stop; /* NULL where a read does not wait */
    enum state state;
    bool eof;
    uint64_t done;
    z_stream z; /* next_in, avail_in: bytes read and not yet used */
    uint8_t in[PIECE];
};

struct tern_data_bytes *tern_data_bytes_open(int fd, const char *path, const int *stop,
                                             struct tern_err *err)
{
    struct stat st;
    struct tern_data_bytes *b = tern_alloc(1, sizeof *b, path, err);

    if (!b) {
        close(fd);
        return NULL;
    }
    b->fd = fd;
    b->path = path;
    b->stop = stop && fstat(fd, &st) == 0 && !S_ISREG(st.st_mode) ? stop : NULL;
    if (inflateInit2(&b->z, GZIP) == Z_OK)
        return b;
    tern_err_set(err, TERN_FAILED, "%s: no memory for zlib", path);
    close(fd);
    free(b);
    return NULL;
}

void tern_data_bytes_close(struct tern_data_bytes *b)
{
    if (!b)
        return;
    inflateEnd(&b->z);
    close(b->fd);
    free(b);
}

uint64_t tern_data_bytes_done(const struct tern_data_bytes *b)
{
    return b->done - b->z.avail_in;
}

/* read(2), which waits for a pipe only as long as nothing says stop. */
static ssize_t get(struct tern_data_bytes *b, void *to, size_t room, struct tern_err *err)
{
    enum { LOOK_MS = 100 };
    struct pollfd in = {.fd = b->fd, .events = POLLIN};
    ssize_t n;

    while (b->stop && poll(&in, 1, LOOK_MS) <= 0)
        if (__atomic_load_n(b->stop, __ATOMIC_RELAXED))
            return tern_err_set(err, TERN_FAILED, "%s: interrupted", b->path);
    do
        n = read(b->fd, to, room);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return tern_err_sys(err, "%s: cannot read", b->path);
    b->eof = n == 0;
    b->done += (uint64_t)n;
    return n;
}

/* Read until `want` bytes are at hand, or the file ends. */
static int fill(struct tern_data_bytes *b, size_t want, struct tern_err *err)
{
    if (b->z.avail_in && b->z.next_in != b->in && b->z.avail_in < want)
        memmove(b->in, b->z.next_in, b->z.avail_in);
    if (b->z.avail_in < want)
        b->z.next_in = b->in;
    while (b->z.avail_in < want && !b->eof) {
        ssize_t n = get(b, b->in + b->z.avail_in, sizeof b->in - b->z.avail_in, err);
        if (n < 0)
            return -1;
        b->z.avail_in += (uInt)n;
    }
    return 0;
}

static bool at_magic(const struct tern_data_bytes *b)
{
    return b->z.avail_in >= 2 && b->z.next_in[0] == 0x1f && b->z.next_in[1] == 0x8b;
}

static int damaged(const struct tern_data_bytes *b, const char *why, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE, "%s: damaged gzip file: %s, at byte %llu of it", b->path,
                        why, (unsigned long long)tern_data_bytes_done(b));
}

/* Behind a member: another, or NULs to the end.  1 at the end. */
static int next_member(struct tern_data_bytes *b, struct tern_err *err)
{
    for (;;) {
        if (fill(b, 2, err) < 0)
            return -1;
        if (b->z.avail_in == 0)
            return 1;
        if (*b->z.next_in != 0)
            break;
        b->z.next_in++;
        b->z.avail_in--;
    }
    if (!at_magic(b))
        return damaged(b, "bytes behind it are not gzip", err);
    inflateReset(&b->z);
    b->state = MEMBER;
    return 0;
}

static ptrdiff_t read_plain(struct tern_data_bytes *b, char *to, size_t room, struct tern_err *err)
{
    size_t n = b->z.avail_in < room ? b->z.avail_in : room;

    if (n) { /* read to find out what the file is */
        memcpy(to, b->z.next_in, n);
        b->z.next_in += n;
        b->z.avail_in -= (uInt)n;
        return (ptrdiff_t)n;
    }
    return b->eof ? 0 : get(b, to, room, err);
}

ptrdiff_t tern_data_bytes_read(struct tern_data_bytes *b, char *to, size_t room,
                               struct tern_err *err)
{
    if (b->state == UNKNOWN) {
        if (fill(b, 2, err) < 0)
            return -1;
        b->state = at_magic(b) ? MEMBER : PLAIN;
    }
    if (b->state == PLAIN)
        return read_plain(b, to, room, err);
    b->z.next_out = (uint8_t *)to;
    b->z.avail_out = (uInt)(room < PIECE ? room : PIECE);
    const uInt wanted = b->z.avail_out;
    while (b->z.avail_out == wanted) {
        if (b->state == BETWEEN) {
            int rc = next_member(b, err);
            if (rc != 0)
                return rc < 0 ? -1 : 0;
        }
        if (fill(b, 1, err) < 0)
            return -1;
        int rc = inflate(&b->z, Z_NO_FLUSH);
        if (rc == Z_STREAM_END)
            b->state = BETWEEN;
        else if (rc == Z_MEM_ERROR)
            return tern_err_set(err, TERN_FAILED, "%s: no memory for zlib", b->path);
        else if (rc != Z_OK && rc != Z_BUF_ERROR)
            return damaged(b, b->z.msg ? b->z.msg : "no zlib stream", err);
        else if (b->eof && b->z.avail_in == 0 && b->z.avail_out == wanted)
            return damaged(b, "it ends too early", err);
    }
    return (ptrdiff_t)(wanted - b->z.avail_out);
}

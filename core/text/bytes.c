#include "core/text/bytes.h"

#include "core/base/assert.h"
#include "core/base/str.h"
#include "core/store/reader.h"
#include "core/text/codec.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of an object, 16 blocks are on their way: enough for 1 GB/s at 16 ms. */
enum { AHEAD = 16 << 20 };
enum { PIECE = 256 << 10 }; /* keeps system calls below a thousandth of the work */

enum state {
    UNKNOWN, /* nothing was read */
    PLAIN,
    MEMBER,  /* inside one */
    BETWEEN, /* behind one */
};

struct tern_text_bytes {
    int fd;                           /* -1 where there is a reader */
    struct tern_store_reader *reader; /* of an object; or NULL */
    uint64_t wanted;                  /* of it, so far */
    const char *path;
    const int *stop; /* NULL where a read does not wait */
    enum state state;
    bool eof;
    bool regular;
    uint64_t done, left; /* left: to be read */
    const struct tern_text_codec *codec;
    void *decoder;
    struct tern_text_codec_io io; /* in, n_in: bytes read and not yet used */
    uint8_t in[PIECE];
};

struct tern_text_bytes *tern_text_bytes_open(int fd, const char *path, const int *stop,
                                             struct tern_err *err)
{
    struct stat st;
    struct tern_text_bytes *b = tern_alloc(1, sizeof *b, path, err);

    if (!b) {
        close(fd);
        return NULL;
    }
    b->fd = fd;
    b->path = path;
    b->left = UINT64_MAX;
    b->regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    b->stop = b->regular ? NULL : stop;
    return b;
}

struct tern_text_bytes *tern_text_bytes_open_url(struct tern_store_reader *reader, const char *path,
                                                 struct tern_err *err)
{
    struct tern_text_bytes *b = tern_alloc(1, sizeof *b, path, err);

    if (!b) {
        tern_store_reader_close(reader);
        return NULL;
    }
    b->fd = -1;
    b->reader = reader;
    b->path = path;
    b->left = UINT64_MAX;
    return b;
}

void tern_text_bytes_close(struct tern_text_bytes *b)
{
    if (!b)
        return;
    tern_store_reader_close(b->reader);
    if (b->decoder)
        b->codec->close(b->decoder);
    if (b->fd >= 0)
        close(b->fd);
    free(b);
}

bool tern_text_bytes_packed(const struct tern_text_bytes *b)
{
    return b->codec != NULL;
}

uint64_t tern_text_bytes_done(const struct tern_text_bytes *b)
{
    return b->done - b->io.n_in;
}

int tern_text_bytes_plain(const struct tern_text_bytes *b)
{
    return b->regular && b->state == PLAIN ? b->fd : -1;
}

int tern_text_bytes_range(struct tern_text_bytes *b, uint64_t from, uint64_t to,
                          struct tern_err *err)
{
    tern_assert(tern_text_bytes_plain(b) >= 0 && from <= to, "%s", b->path);
    if (lseek(b->fd, (off_t)from, SEEK_SET) < 0)
        return tern_err_sys(err, "%s: cannot read from byte %llu on", b->path,
                            (unsigned long long)from);
    b->io.n_in = 0;
    b->eof = false;
    b->done = 0;
    b->left = to - from;
    return 0;
}

static ssize_t get_object(struct tern_text_bytes *b, void *to, size_t room, struct tern_err *err)
{
    const uint64_t all = tern_store_reader_bytes(b->reader), rest = all - b->done;
    const size_t n = rest < room ? (size_t)rest : room;

    while (b->wanted < all && b->wanted < b->done + AHEAD) {
        const uint64_t more = all - b->wanted;
        const size_t len = more < AHEAD / 16 ? (size_t)more : AHEAD / 16;
        tern_store_reader_prefetch(b->reader, b->wanted, len);
        b->wanted += len;
    }
    if (tern_store_reader_pread(b->reader, to, n, b->done, err) < 0)
        return -1;
    b->eof = n == 0;
    b->done += n;
    return (ssize_t)n;
}

/* read(2), which waits for a pipe only as long as nothing says stop. */
static ssize_t get(struct tern_text_bytes *b, void *to, size_t room, struct tern_err *err)
{
    enum { LOOK_MS = 100 };
    struct pollfd in = {.fd = b->fd, .events = POLLIN};
    ssize_t n;

    if (b->reader)
        return get_object(b, to, room, err);
    if (room > b->left)
        room = b->left;
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
    b->left -= (uint64_t)n;
    return n;
}

/* Read until `want` bytes are at hand, or the file ends. */
static int fill(struct tern_text_bytes *b, size_t want, struct tern_err *err)
{
    if (b->io.n_in && b->io.in != b->in && b->io.n_in < want)
        memmove(b->in, b->io.in, b->io.n_in);
    if (b->io.n_in < want)
        b->io.in = b->in;
    while (b->io.n_in < want && !b->eof) {
        ssize_t n = get(b, b->in + b->io.n_in, sizeof b->in - b->io.n_in, err);
        if (n < 0)
            return -1;
        b->io.n_in += (size_t)n;
    }
    return 0;
}

static int damaged(const struct tern_text_bytes *b, const char *why, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE, "%s: damaged %s file: %s, at byte %llu of it", b->path,
                        b->codec->name, why, (unsigned long long)tern_text_bytes_done(b));
}

static int no_memory(const struct tern_text_bytes *b, struct tern_err *err)
{
    return tern_err_set(err, TERN_FAILED, "%s: no memory for %s", b->path, b->codec->library);
}

/* Find out what the file is. */
static int begin(struct tern_text_bytes *b, struct tern_err *err)
{
    if (fill(b, TERN_TEXT_CODEC_MAGIC, err) < 0)
        return -1;
    b->codec = tern_text_codec_of(b->io.in, b->io.n_in);
    b->state = b->codec ? MEMBER : PLAIN;
    if (!b->codec)
        return 0;
    if (!b->codec->open)
        return tern_err_set(err, TERN_USAGE,
                            "%s: is compressed by %s, and this tern was built without %s. "
                            "Decompress it first, or build tern where %s's headers are.",
                            b->path, b->codec->name, b->codec->library, b->codec->library);
    b->decoder = b->codec->open();
    return b->decoder ? 0 : no_memory(b, err);
}

/* Behind a member: another, or NULs to the end.  1 at the end. */
static int next_member(struct tern_text_bytes *b, struct tern_err *err)
{
    for (;;) {
        if (fill(b, TERN_TEXT_CODEC_MAGIC, err) < 0)
            return -1;
        if (b->io.n_in == 0)
            return 1;
        if (*b->io.in != 0)
            break;
        b->io.in++;
        b->io.n_in--;
    }
    if (tern_text_codec_of(b->io.in, b->io.n_in) != b->codec)
        return damaged(b, "bytes behind it are of another kind", err);
    if (!b->codec->again(b->decoder))
        return no_memory(b, err);
    b->state = MEMBER;
    return 0;
}

static ptrdiff_t read_plain(struct tern_text_bytes *b, char *to, size_t room, struct tern_err *err)
{
    size_t n = b->io.n_in < room ? b->io.n_in : room;

    if (n) { /* read to find out what the file is */
        memcpy(to, b->io.in, n);
        b->io.in += n;
        b->io.n_in -= n;
        return (ptrdiff_t)n;
    }
    return b->eof ? 0 : get(b, to, room, err);
}

ptrdiff_t tern_text_bytes_read(struct tern_text_bytes *b, char *to, size_t room,
                               struct tern_err *err)
{
    const char *why;

    if (b->state == UNKNOWN && begin(b, err) < 0)
        return -1;
    if (b->state == PLAIN)
        return read_plain(b, to, room, err);
    const size_t wanted = room < PIECE ? room : PIECE;
    b->io.out = (uint8_t *)to;
    b->io.n_out = wanted;
    while (b->io.n_out == wanted) {
        if (b->state == BETWEEN) {
            int rc = next_member(b, err);
            if (rc != 0)
                return rc < 0 ? -1 : 0;
        }
        if (fill(b, 1, err) < 0)
            return -1;
        switch (b->codec->step(b->decoder, &b->io, &why)) {
        case TERN_TEXT_CODEC_END:
            b->state = BETWEEN;
            break;
        case TERN_TEXT_CODEC_MORE:
            if (b->eof && b->io.n_in == 0 && b->io.n_out == wanted)
                return damaged(b, "it ends too early", err);
            break;
        case TERN_TEXT_CODEC_NO_MEMORY:
            return no_memory(b, err);
        default:
            return damaged(b, why, err);
        }
    }
    return (ptrdiff_t)(wanted - b->io.n_out);
}

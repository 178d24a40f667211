#include "core/text/invalid.h"

#include "core/base/again.h"
#include "core/store/store.h"
#include "core/text/bytes.h"
#include "core/text/source.h"
#include "core/text/utf8.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PIECE = 1 << 20,
    LONGEST = 4, /* bytes of a character */
};
#define MOST (UINT64_C(1) << 30)

static struct tern_text_bytes *open_regular(const char *path, const int *stop)
{
    struct stat st;

    if (tern_store_is(path) || strcmp(path, tern_text_source_name("-")) == 0)
        return NULL;
    const int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd < 0)
        return NULL;
    if (TERN_AGAIN(fstat(fd, &st)) == 0 && S_ISREG(st.st_mode))
        return tern_text_bytes_open(fd, path, stop, /* err= */ NULL);
    close(fd);
    return NULL;
}

/* Those of s[0 .. n); what may be the beginning of a character is left for the next time: how many
 * bytes. */
static size_t count(const char *s, size_t n, bool last, uint64_t *bad)
{
    size_t at = 0;

    while (at < n) {
        at += tern_text_utf8_good(s + at, n - at);
        if (at < n && !last && n - at < LONGEST)
            break;
        if (at < n) {
            ++*bad;
            at++;
        }
    }
    return n - at;
}

int tern_text_invalid_count(const char *path, const int *stop,
                            struct tern_text_invalid_bytes *ret_invalid)
{
    struct tern_text_bytes *b = open_regular(path, stop);
    char *piece = b ? malloc(PIECE) : NULL;
    struct tern_text_invalid_bytes all = {.whole = true};
    uint64_t done = 0;
    size_t left = 0;
    ptrdiff_t n = piece ? 1 : -1;

    while (n > 0 && done < MOST) {
        n = stop && __atomic_load_n(stop, __ATOMIC_RELAXED)
                ? -1
                : tern_text_bytes_read(b, piece + left, PIECE - left, /* err= */ NULL);
        if (n < 0)
            break;
        const size_t have = left + (size_t)n;
        left = count(piece, have, /* last= */ n == 0, &all.bytes);
        memmove(piece, piece + have - left, left);
        done += (uint64_t)n;
    }
    all.whole = n == 0;
    free(piece);
    tern_text_bytes_close(b);
    if (n < 0)
        return -1;
    *ret_invalid = all;
    return 0;
}

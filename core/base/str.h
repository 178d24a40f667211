/* Strings: a growing buffer with a ceiling, strict numbers, sizes for people, near misses. */
#ifndef TERN_BASE_STR_H
#define TERN_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

/* A text that grows.  `data` is always a valid string (or NULL while empty and never grown).
 * Start with {0}, or give `max`; free with tern_buf_free. */
struct tern_buf {
    char *data;
    size_t len, cap;
    size_t max;  /* ceiling in bytes; 0 means 1 GiB */
    bool failed; /* out of memory or over the ceiling: what follows is dropped */
};

void tern_buf_add(struct tern_buf *b, const void *data, size_t len);
void tern_buf_puts(struct tern_buf *b, const char *s);
void tern_buf_printf(struct tern_buf *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void tern_buf_clear(struct tern_buf *b);
void tern_buf_free(struct tern_buf *b);

/* `s` as one word of a shell: quoted where it must be. */
void tern_buf_word(struct tern_buf *b, const char *s);

/* 0, or -1 with an error about `what` when an added byte was lost. */
int tern_buf_check(const struct tern_buf *b, const char *what, struct tern_err *err);

/* malloc'ed printf and strdup; abort on ENOMEM (they hold paths and names, never data). */
char *tern_strf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
char *tern_strdup(const char *s);
/* Bytes of the UTF-8 character at `s`, of which `len` are there; 0 when there is none. */
size_t tern_str_utf8(const char *s, size_t len);
/* Bytes of the character at `s`, of which `len` are there, if it is safe on a terminal.  The result
 * is 0 for bytes that are not UTF-8 and for control characters (ASCII's or C1).  It is 0 also for
 * those that change the direction of writing, which can hide text. */
size_t tern_str_character(const char *s, size_t len);
/* Bytes of the first `n` characters of `s`. Each byte that is no UTF-8 counts as one, but for those
 * that only continue a character. */
size_t tern_str_first(const char *s, size_t n);
/* Make `s` safe for a terminal, in place: each byte of an unsafe character becomes '?'. */
void tern_str_mask(char *s);

/* Why `s` is no name of a run, in words to put behind it; NULL: it is one. */
const char *tern_str_run_name_fault(const char *s);

/* Zeroed array of `n` things of `size` bytes; NULL with `err` when there is no room. */
void *tern_alloc(size_t n, size_t size, const char *what, struct tern_err *err);

/* The whole of `s` as a number in [lo, hi]; -1 and `out` untouched otherwise. */
int tern_str_int(const char *s, int64_t lo, int64_t hi, int64_t *out);
/* As above; also refuses inf, nan and hex. */
int tern_str_real(const char *s, double lo, double hi, double *out);
/* "4096", "64K", "64KiB", "1G": binary multiples. */
int tern_str_size(const char *s, uint64_t *out_bytes);

bool tern_str_starts(const char *s, const char *prefix);
bool tern_str_ends(const char *s, const char *suffix);

/* "1.5 GiB"; writes at most `n` bytes and returns `to`. */
char *tern_str_bytes(char *to, size_t n, uint64_t bytes);
/* "4,410,336"; 27 bytes are enough for any number. */
char *tern_str_count(char *to, size_t n, uint64_t count);
/* "1 h 02 min", "3.2 s", "840 us". */
char *tern_str_seconds(char *to, size_t n, double seconds);

/* The shortest that reads back as `v`, at most 17 digits; NaN, Infinity, -Infinity.  Room for 32
 * bytes is enough; returns `to`. */
char *tern_str_exact(char *to, size_t n, double v);

/* The candidate nearest to `s` (NULL-ended list), or NULL when none is near enough to suggest. */
const char *tern_str_nearest(const char *s, const char *const *candidates);

#endif

/* The error idiom of every room.
 *
 * A function that can fail returns 0 or -1 (or a pointer or NULL) and takes `struct tern_err *err`
 * as its last parameter.  The function that first knows the cause fills it, once, with all that a
 * reader needs (path, line, rank, node, errno text, remedy).  Callers pass it on or prefix it with
 * their own action.  `err` may be NULL: the text is then dropped.  On success it is untouched.
 */
#ifndef TERN_BASE_ERR_H
#define TERN_BASE_ERR_H

/* What kind of failure it is.  The value is the program's exit status (DESIGN 3); do not renumber.
 */
enum tern_code {
    TERN_OK = 0,
    TERN_FAILED = 1,     /* trying again will not help */
    TERN_USAGE = 2,      /* usage or bad input */
    TERN_TEMPFAIL = 75,  /* a reason outside the run: node, fabric, storage (EX_TEMPFAIL) */
    TERN_CONTINUED = 76, /* stopped at a step boundary with a checkpoint, to be continued */
    TERN_HALTED = 77,    /* halted by a person with a checkpoint, not to be continued */
};

struct tern_err {
    enum tern_code code;
    char text[1000]; /* one line, no trailing newline; long enough for two paths and a remedy */
};

/* Fill `err` and return -1, for `return tern_err_set(...)`. */
int tern_err_set(struct tern_err *err, enum tern_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As tern_err_set, with ": <strerror(errno)>" appended.  Storage and network errnos that may pass
 * (ENOSPC, EDQUOT, EIO, ESTALE, EMFILE, ECONNRESET, ...) become TERN_TEMPFAIL, the others
 * TERN_FAILED. Keeps errno. */
int tern_err_sys(struct tern_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Put "<text>: " before what `err` says; the code stays.  Returns -1. */
int tern_err_prefix(struct tern_err *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif

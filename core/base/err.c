#include "core/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int tern_err_set(struct tern_err *err, enum tern_code code, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        err->code = code;
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
    }
    return -1;
}

static enum tern_code code_of_errno(int no)
{
    switch (no) {
    case ENOSPC:
    case EDQUOT:
    case EIO:
    case ESTALE:
    case EROFS:
    case ENOMEM:
    case EINTR: /* this one and the next two: after the retries of again.h */
    case EMFILE:
    case ENFILE:
    case EAGAIN: /* a limit of processes */
    case ENOBUFS:
    case ENOLCK:
    case ENOTCONN: /* a mount whose server is gone: FUSE, Lustre */
    case ESHUTDOWN:
    case EREMOTEIO:
    case EHOSTDOWN:
    case ECONNRESET:
    case ECONNREFUSED:
    case ECONNABORTED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case ETIMEDOUT:
    case EPIPE:
        return TERN_TEMPFAIL;
    case ENOTDIR: /* the path names another kind of file, or is not a name */
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
        return TERN_USAGE;
    default:
        return TERN_FAILED;
    }
}

int tern_err_sys(struct tern_err *err, const char *fmt, ...)
{
    int saved = errno;

    if (err) {
        va_list ap;
        err->code = code_of_errno(saved);
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
        size_t n = strlen(err->text);
        snprintf(err->text + n, sizeof err->text - n, ": %s%s", strerror(saved),
                 saved == EDQUOT ? " (`quota -s`, on Lustre `lfs quota -h DIR`, shows whose)" : "");
    }
    errno = saved;
    return -1;
}

int tern_err_prefix(struct tern_err *err, const char *fmt, ...)
{
    if (err) {
        char old[sizeof err->text];
        va_list ap;
        memcpy(old, err->text, sizeof old);
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
        size_t n = strlen(err->text);
        /* The cause matters more than the context: it is cut last. */
        if (n > sizeof err->text / 2)
            n = sizeof err->text / 2;
        snprintf(err->text + n, sizeof err->text - n, ": %s", old);
    }
    return -1;
}

#include "core/export/folder.h"

#include "core/base/again.h"
#include "core/base/str.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER = 1 << 20 };

int tern_export_folder_begin(struct tern_export_folder *f, const char *dir, struct tern_err *err)
{
    char *to = tern_strdup(dir);

    for (size_t n = strlen(to); n > 1 && to[n - 1] == '/';)
        to[--n] = '\0';
    char *temp = tern_fs_is_free(to, err) < 0 ? NULL : tern_fs_folder_beside(to, err);
    if (!temp) {
        free(to);
        return -1;
    }
    *f = (struct tern_export_folder){.to = to, .temp = temp};
    return 0;
}

int tern_export_folder_end(struct tern_export_folder *f, int rc, struct tern_err *err)
{
    if (rc == 0)
        rc = tern_fs_sync_dir(f->temp, err);
    if (rc == 0 && tern_fs_rename(f->temp, f->to, /* only_new= */ false) < 0)
        rc = tern_err_sys(err, "%s: cannot be put in place", f->to);
    if (rc < 0)
        tern_fs_remove_tree(f->temp, NULL);
    else
        rc = tern_fs_sync_parent(f->to, err);
    free(f->temp);
    free(f->to);
    *f = (struct tern_export_folder){0};
    return rc;
}

int tern_export_file_open(struct tern_export_file *x, const struct tern_export_folder *f,
                          const char *name, struct tern_err *err)
{
    *x = (struct tern_export_file){.path = tern_fs_join(f->temp, name)};
    x->buffer = tern_alloc(1, BUFFER, "a file", err);
    x->fd = TERN_AGAIN(open(x->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (x->fd < 0)
        tern_err_sys(err, "%s: cannot create", x->path);
    return x->buffer && x->fd >= 0 ? 0 : tern_export_file_close(x, -1, err);
}

static int flush(struct tern_export_file *x, struct tern_err *err)
{
    const size_t n = x->n;

    x->n = 0;
    if (n == 0) /* core/arrow may have written to the descriptor itself */
        return 0;
    return tern_fs_write_at(x->fd, x->bytes - n, x->buffer, n, x->path, err);
}

int tern_export_file_add(struct tern_export_file *x, const void *data, size_t len,
                         struct tern_err *err)
{
    if (x->n + len > BUFFER && flush(x, err) < 0)
        return -1;
    x->bytes += len;
    if (len > BUFFER)
        return tern_fs_write_at(x->fd, x->bytes - len, data, len, x->path, err);
    memcpy(x->buffer + x->n, data, len);
    x->n += len;
    return 0;
}

int tern_export_file_close(struct tern_export_file *x, int rc, struct tern_err *err)
{
    if (rc == 0)
        rc = flush(x, err);
    if (rc == 0 && tern_fs_sync_data(x->fd) < 0)
        rc = tern_err_sys(err, "%s: cannot be made durable", x->path);
    if (x->fd >= 0 && tern_fs_close(x->fd) < 0 && rc == 0)
        rc = tern_err_sys(err, "%s: cannot be closed", x->path);
    free(x->buffer);
    free(x->path);
    *x = (struct tern_export_file){.fd = -1};
    return rc;
}

int tern_export_stopped(const int *stop, const char *path, struct tern_err *err)
{
    const int number = stop ? __atomic_load_n(stop, __ATOMIC_RELAXED) : 0;

    return number ? tern_err_set(err, TERN_FAILED,
                                 "%s: interrupted (signal %d); nothing was written", path, number)
                  : 0;
}

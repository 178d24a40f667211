/* Files: whole reads with a ceiling, and outputs that appear whole or not at all.
 *
 * Writing a file that others may read:
 *
 *     struct tern_fs_new f;
 *     if (tern_fs_new_open(&f, path, 0644, err) < 0) return -1;
 *     ... write to f.fd, or tern_fs_write(f.fd, ...) ...
 *     if (failed) { tern_fs_new_abort(&f); return -1; }
 *     return tern_fs_new_commit(&f, err);
 *
 * The bytes go to a temporary name in the same folder; commit makes them durable, renames, and
 * makes the rename durable.  Readers see the old file or the new one.
 *
 * Calls that fail for a passing reason are made again: again.h.
 */
#ifndef TERN_BASE_FS_H
#define TERN_BASE_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/err.h"

struct tern_fs_new {
    int fd;
    char *path, *temp; /* owned */
};

/* A file that a user named may be written: TERN_USAGE where `path` is a link, which a rename would
 * replace (/dev/stdout is one), or is there and is no regular file. */
int tern_fs_check_out(const char *path, struct tern_err *err);

/* TERN_USAGE where `path` exists and is not a regular file: a rename would replace a device. */
int tern_fs_new_open(struct tern_fs_new *f, const char *path, mode_t mode, struct tern_err *err);
int tern_fs_new_commit(struct tern_fs_new *f, struct tern_err *err);
/* Is `name` such a temporary file, of an ended process of this machine? */
bool tern_fs_temp_left(const char *name);
/* Removes the temporary; keeps errno; harmless after commit. */
void tern_fs_new_abort(struct tern_fs_new *f);

/* Open, write and commit in one call. */
int tern_fs_replace(const char *path, const void *data, size_t len, mode_t mode,
                    struct tern_err *err);

/* All `len` bytes or an error that names `path`; retries EINTR and short writes. */
int tern_fs_write(int fd, const void *data, size_t len, const char *path, struct tern_err *err);
/* The same into a file that this process alone writes.  The position of a regular file is asserted
 * to be `offset`: the caller's count is the file's.  It is an error where it is not `offset` +
 * `len` after the write.  Users may name pipes and devices, too, which have no position. */
int tern_fs_write_at(int fd, uint64_t offset, const void *data, size_t len, const char *path,
                     struct tern_err *err);
/* Exactly `len` bytes at `offset`; a short file is an error that says so. */
int tern_fs_pread(int fd, void *to, size_t len, uint64_t offset, const char *path,
                  struct tern_err *err);

/* Open the regular file `path` again as `fd`, read-only, after a handle of a network file system
 * went stale.  It may be another file now: the caller compares. */
int tern_fs_reopen(int fd, const char *path, struct tern_err *err);
/* mkostemp(3) with O_CLOEXEC, made again; `path` ends in XXXXXX.  -1 with errno. */
int tern_fs_temp(char *path);

/* fsync(2) and fdatasync(2), repeated after signals only: the kernel reports an error once. */
int tern_fs_sync(int fd);
int tern_fs_sync_data(int fd);
/* close(2); a signal that came meanwhile is no failure: the descriptor is gone. */
int tern_fs_close(int fd);
/* rename(2) with retries (again.h); -1 with errno.  `only_new`: EEXIST where `to` exists,
 * atomically where the file system can (else a folder made in that moment gives ENOTEMPTY). */
int tern_fs_rename(const char *from, const char *to, bool only_new);

/* The whole file, NUL-terminated (the NUL is not in *len), refused above `max` bytes.  Only regular
 * files.  *data is malloc'ed. */
int tern_fs_read(const char *path, size_t max, char **data, size_t *len, struct tern_err *err);

/* Make a rename, creation or removal in folder `dir` durable. */
int tern_fs_sync_dir(const char *dir, struct tern_err *err);
/* The same for the folder that holds `path`. */
int tern_fs_sync_parent(const char *path, struct tern_err *err);
/* The same for each folder from the one that holds `path` up to `top`, above it: after a
 * tern_fs_mkdirs below `top`. */
int tern_fs_sync_above(const char *path, const char *top, struct tern_err *err);

/* mkdir -p; fine when it is there already. */
int tern_fs_mkdirs(const char *path, mode_t mode, struct tern_err *err);
/* The same; each new folder gets the permissions of the folder above it, whatever the umask.  Below
 * a sticky folder, which all may write to, others get no right to write. */
int tern_fs_mkdirs_like(const char *path, struct tern_err *err);
/* That `path`, which a user named, is a folder; else bad input.  `or_none`: nothing may be there.
 */
int tern_fs_check_folder(const char *path, bool or_none, struct tern_err *err);
/* After mkdir(2) failed and no folder is there: says so by errno, returns -1.  A thing of that name
 * that is no folder is bad input. */
int tern_fs_mkdir_failed(const char *path, struct tern_err *err);
/* The permissions of a file for the users of folder `dir`. */
mode_t tern_fs_bits_in(const char *dir);
/* rm -r; follows no link and crosses no mount; fine when it is gone already. */
int tern_fs_remove_tree(const char *path, struct tern_err *err);

/* A folder that appears whole: fill tern_fs_folder_beside(dir), then rename it to `dir`.
 *
 * 0 where `dir` is absent, or an empty folder that rename(2) can replace; TERN_USAGE with a remedy
 * otherwise: for the working folder, a mount point, a symbolic link, or another user's folder in a
 * sticky one. */
int tern_fs_is_free(const char *dir, struct tern_err *err);
/* The path, malloc'ed, of a new folder "DIR.tmp-XXXXXX", with the permissions that the umask
 * leaves.  Folders above it are made.  NULL: nothing new lies beside `dir`. */
char *tern_fs_folder_beside(const char *dir, struct tern_err *err);
bool tern_fs_exists(const char *path);

/* Let this process have `n` files open: raises the soft limit (ulimit -n) if need be.  Where the
 * hard one is lower it is raised that far, and an error says so. */
int tern_fs_allow_open(size_t n, struct tern_err *err);
/* The limit as it was before: for a child, before it becomes another program. */
void tern_fs_reset_open(void);

/* malloc'ed: `path` itself when absolute, else `dir`/`path`. */
char *tern_fs_join(const char *dir, const char *path);
/* malloc'ed folder part of `path`; "." when it has none. */
char *tern_fs_dirname(const char *path);
/* The last part of `path`, inside it. */
const char *tern_fs_basename(const char *path);

/* malloc'ed: the file of this program, and its folder; NULL with errno where /proc has none. */
char *tern_fs_self(void);
char *tern_fs_self_dir(void);
/* malloc'ed path of the program `name` in that folder; `name` alone when it is not known. */
char *tern_fs_beside(const char *name);
/* Is a file of that name in a folder of PATH, as execvp(3) looks?  `runs`: one that can be run. */
bool tern_fs_on_path(const char *name, bool runs);

#endif

/* Runs of another ledger, taken into this one.
 *
 * Spools are append-only and each has one writer, so two copies of a spool are equal, or one is the
 * beginning of the other: the longer one holds.  Anything else means that the run went on in both
 * places; then nothing of it is taken.  Logs grow in the same way.  run.db is made of the spools
 * and is not taken. */
#include "core/ledger/ledger.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/base/tree.h"
#include "core/ledger/homes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 20 };

struct merge {
    const char *from, *to; /* folders of the run */
    struct tern_tree tree; /* of `from` */
    bool *wanted;          /* [tree.n] */
    char *piece[2];
    struct tern_ledger_merged *out;
};

/* Of what lies in a run's folder, its records and logs. */
static bool is_taken(const char *name)
{
    const char *last = strrchr(name, '/');

    return (strncmp(name, "spool/", 6) == 0 || strncmp(name, "logs/", 5) == 0) && last &&
           !tern_fs_temp_left(last + 1);
}

/* Open a regular file that is no link; *ret_bytes: its length now. */
static int open_plain(const char *path, uint64_t *ret_bytes, struct tern_err *err)
{
    struct stat st;
    int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));

    if (fd < 0 || TERN_AGAIN(fstat(fd, &st)) < 0) {
        tern_err_sys(err, "%s: cannot be read", path);
    } else if (!S_ISREG(st.st_mode)) {
        tern_err_set(err, TERN_USAGE, "%s: is no file", path);
    } else {
        *ret_bytes = (uint64_t)st.st_size;
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Do both begin with the same `n` bytes?  1, 0 or -1. */
static int same_bytes(struct merge *m, const int fd[2], const char *const path[2], uint64_t n,
                      struct tern_err *err)
{
    for (uint64_t at = 0; at < n; at += PIECE) {
        size_t len = n - at < PIECE ? (size_t)(n - at) : PIECE;
        for (int i = 0; i < 2; i++)
            if (tern_fs_pread(fd[i], m->piece[i], len, at, path[i], err) < 0)
                return -1;
        if (memcmp(m->piece[0], m->piece[1], len) != 0)
            return 0;
    }
    return 1;
}

/* Is the file to be taken?  1, 0, or -1: the two contradict each other. */
static int compare_file(struct merge *m, const char *from, const char *to, struct tern_err *err)
{
    const char *const path[2] = {from, to};
    uint64_t bytes[2];
    int fd[2] = {-1, -1}, rc = -1;

    for (int i = 0; i < 2; i++) {
        fd[i] = open_plain(path[i], &bytes[i], err);
        if (fd[i] < 0)
            goto out;
    }
    rc = same_bytes(m, fd, path, bytes[0] < bytes[1] ? bytes[0] : bytes[1], err);
    if (rc == 0)
        rc = tern_err_set(err, TERN_USAGE,
                          "%s and %s differ: the run went on in both ledgers. Nothing of it is "
                          "taken",
                          from, to);
    else if (rc > 0)
        rc = bytes[0] > bytes[1];
out:
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    return rc;
}

static int compare(struct merge *m, struct tern_err *err)
{
    for (size_t i = 0; i < m->tree.n; i++) {
        const struct tern_tree_file *f = &m->tree.file[i];
        if (!is_taken(f->name) || f->link)
            continue;
        char *from = tern_fs_join(m->from, f->name), *to = tern_fs_join(m->to, f->name);
        const bool there = tern_fs_exists(to);
        int rc = there ? compare_file(m, from, to, err) : 1;
        free(from);
        free(to);
        if (rc < 0)
            return -1;
        m->wanted[i] = rc;
        m->out->files += (unsigned)rc;
        m->out->grown += rc && there;
        m->out->bytes += rc ? f->bytes : 0;
    }
    return 0;
}

/* As far as it is now: a writer may be at work. */
static int copy_file(struct merge *m, const struct tern_tree_file *f, int bits,
                     struct tern_err *err)
{
    char *from = tern_fs_join(m->from, f->name), *to = tern_fs_join(m->to, f->name);
    char *folder = tern_fs_dirname(to);
    const bool is_new = !tern_fs_exists(folder);
    struct tern_fs_new new = {0};
    uint64_t bytes = 0;
    int fd = open_plain(from, &bytes, err), rc = fd < 0 ? -1 : 0;

    if (rc == 0)
        rc = tern_fs_mkdirs_like(folder, err);
    if (rc == 0)
        rc = tern_fs_new_open(&new, to, (mode_t)bits & 0666, err);
    for (uint64_t at = 0; rc == 0 && at < bytes; at += PIECE) {
        size_t len = bytes - at < PIECE ? (size_t)(bytes - at) : PIECE;
        rc = tern_fs_pread(fd, m->piece[0], len, at, from, err);
        if (rc == 0)
            rc = tern_fs_write_at(new.fd, at, m->piece[0], len, to, err);
        tern_progress_add(len);
    }
    if (rc == 0)
        rc = tern_fs_new_commit(&new, err);
    else if (new.path)
        tern_fs_new_abort(&new);
    if (rc == 0 && is_new)
        rc = tern_fs_sync_above(folder, m->to, err);
    if (fd >= 0)
        close(fd);
    free(folder);
    free(from);
    free(to);
    return rc;
}

static int copy_files(struct merge *m, int bits, struct tern_err *err)
{
    int rc = 0;

    tern_progress_expect(m->out->bytes);
    for (size_t i = 0; rc == 0 && i < m->tree.n; i++)
        if (m->wanted[i])
            rc = copy_file(m, &m->tree.file[i], bits, err);
    return rc;
}

/* A run that is new here appears whole: its files are written beside its folder, which is empty. */
static int copy_new(struct merge *m, int bits, struct tern_err *err)
{
    const char *to = m->to;
    char *aside = tern_fs_folder_beside(to, err);
    int rc = aside ? 0 : -1;

    if (rc == 0 && TERN_AGAIN(chmod(aside, (mode_t)bits)) < 0)
        rc = tern_err_sys(err, "%s: cannot change permissions", aside);
    m->to = aside;
    if (rc == 0)
        rc = copy_files(m, bits, err);
    m->to = to;
    if (rc == 0 && tern_fs_rename(aside, to, /* only_new= */ false) < 0)
        rc = tern_err_sys(err, "%s: cannot be put in place", to);
    if (rc == 0)
        rc = tern_fs_sync_parent(to, err);
    else if (aside)
        tern_fs_remove_tree(aside, NULL);
    free(aside);
    return rc;
}

/* A run that is new here has the readers that it had there. */
static int copy(struct merge *m, const char *from_home, const char *to_home, const char *run_id,
                struct tern_err *err)
{
    int bits = tern_ledger_home_bits(m->out->new_run ? from_home : to_home, run_id);

    if (tern_ledger_home_make_run(to_home, run_id, bits, err) < 0)
        return -1;
    bits = tern_ledger_home_bits(to_home, run_id);
    if (bits < 0)
        return tern_err_set(err, TERN_TEMPFAIL, "%s: vanished while it was written", m->to);
    return m->out->new_run ? copy_new(m, bits, err) : copy_files(m, bits, err);
}

int tern_ledger_merge(const char *from_home, const char *to_home, const char *run_id, bool dry_run,
                      struct tern_ledger_merged *ret_merged, struct tern_err *err)
{
    char *from = tern_strf("%s/runs/%s", from_home, run_id);
    char *to = tern_strf("%s/runs/%s", to_home, run_id);
    char *spools = tern_fs_join(to, "spool");
    struct tern_ledger_merged out = {.new_run = !tern_fs_exists(spools)};
    struct merge m = {.from = from, .to = to, .out = &out};
    int rc = -1;

    for (int i = 0; i < 2; i++) {
        m.piece[i] = tern_alloc(PIECE, 1, "a piece of a file", err);
        if (!m.piece[i])
            goto out;
    }
    if (!tern_ledger_home_sound(from, S_IFDIR)) {
        tern_err_set(err, TERN_USAGE, "%s: is not its owner's", from);
        goto out;
    }
    if (tern_tree_list_files(from, &m.tree, err) < 0)
        goto out;
    m.wanted = tern_alloc(m.tree.n + 1, sizeof *m.wanted, "a list of files", err);
    if (!m.wanted || compare(&m, err) < 0)
        goto out;
    rc = dry_run || out.files == 0 ? 0 : copy(&m, from_home, to_home, run_id, err);
    if (rc == 0)
        *ret_merged = out;
out:
    for (int i = 0; i < 2; i++)
        free(m.piece[i]);
    free(m.wanted);
    tern_tree_free(&m.tree);
    free(spools);
    free(from);
    free(to);
    return rc;
}

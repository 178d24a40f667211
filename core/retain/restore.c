#include "core/retain/restore_parts.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/tree.h"
#include "core/ledger/ledger.h"
#include "core/retain/room.h"
#include "core/store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REPORT_S = 60 };

static const int64_t second = 1000000000;

void tern_retain_restore_free(struct tern_retain_restored *copy)
{
    free(copy->path);
    free(copy->name);
    tern_ckpt_close(copy->manifest);
    *copy = (struct tern_retain_restored){0};
}

bool tern_retain_restore_take(const struct tern_retain_restore *how, struct tern_ckpt *c,
                              struct tern_retain_restored *copy)
{
    const char *run = json_string_value(json_object_get(tern_ckpt_meta(c), "run"));

    copy->manifest = c;
    copy->step = tern_ckpt_step(c);
    snprintf(copy->run_id, sizeof copy->run_id, "%s", run ? run : "");
    if (!run || !tern_ledger_ulid_valid(run))
        return false;
    if (*how->run_id)
        return strcmp(how->run_id, run) == 0;
    return !how->other || !how->other(how->ctx, run);
}

int tern_retain_restore_still(const struct tern_retain_restore *how, struct tern_err *err)
{
    return how->still ? how->still(how->ctx, err) : 0;
}

bool tern_retain_restore_is_damage(const struct tern_err *err)
{
    return err->code == TERN_USAGE;
}

void tern_retain_restore_pass(struct tern_retain_restore_passed *p, const struct tern_err *why)
{
    tern_warn("passed over as a copy: %s", why->text);
    if (p->n++ == 0)
        p->newest = *why;
}

int tern_retain_restore_none(const struct tern_retain_restore *how,
                             const struct tern_retain_restore_passed *p, struct tern_err *err)
{
    if (p->n == 0)
        return 0;
    return tern_err_set(err, p->newest.code,
                        "%s: no copy there can be used, of %zu; the newest: %s", how->mirror, p->n,
                        p->newest.text);
}

bool tern_retain_restore_is_ended(const struct tern_retain_restore *how)
{
    sigset_t pending;

    return how->ends && sigpending(&pending) == 0 &&
           sigandset(&pending, &pending, how->ends) == 0 && !sigisemptyset(&pending);
}

/* ------------------------------------------------------------------ in a folder */

/* The manifest at `path`, whatever else is there; NULL with the reason. */
static struct tern_ckpt *read_manifest(const char *path, struct tern_err *err)
{
    char *file = tern_fs_join(path, TERN_CKPT_MANIFEST), *text = NULL;
    struct tern_ckpt *c = NULL;
    size_t len;

    if (tern_fs_read(file, TERN_CKPT_MANIFEST_MAX, &text, &len, err) == 0)
        c = tern_ckpt_open_manifest(path, text, len, err);
    free(text);
    free(file);
    return c;
}

/* Is the copy complete, and of the run?  1, 0, -1. */
static int look_at(const struct tern_retain_restore *how, const struct tern_ckpt_entry *e,
                   struct tern_retain_restored *copy, struct tern_retain_restore_passed *passed,
                   struct tern_err *err)
{
    struct tern_err why = {0};
    struct tern_ckpt *c = read_manifest(e->path, &why);

    copy->path = tern_strdup(e->path);
    copy->name = tern_strdup(tern_fs_basename(e->path));
    copy->bytes = e->bytes;
    if (c && !tern_retain_restore_take(how, c, copy))
        return 0;
    if (c && tern_ckpt_verify(e->path, /* full= */ false, &why) == 0)
        return 1;
    if (why.code == TERN_TEMPFAIL) /* storage that fails now is no damage */
        return tern_err_set(err, why.code, "%s", why.text);
    tern_retain_restore_pass(passed, &why);
    return 0;
}

static int find_in_folder(const struct tern_retain_restore *how, uint64_t before,
                          struct tern_retain_restored *copy, struct tern_err *err)
{
    struct tern_retain_restore_passed passed = {0};
    struct tern_ckpt_entry *have = NULL;
    struct stat st;
    size_t n = 0;
    int rc = 0;

    if (TERN_AGAIN(lstat(how->mirror, &st)) < 0)
        return errno == ENOENT ? 0 : tern_err_sys(err, "%s: cannot look at it", how->mirror);
    if (tern_ckpt_list(how->mirror, &have, &n, err) < 0)
        return -1;
    for (size_t i = n; i-- > 0 && rc == 0;) {
        if (have[i].step >= before ||
            (have[i].state != TERN_CKPT_GOOD && have[i].state != TERN_CKPT_BROKEN))
            continue;
        rc = look_at(how, &have[i], copy, &passed, err);
        if (rc <= 0)
            tern_retain_restore_free(copy);
    }
    tern_ckpt_list_free(have, n);
    return rc == 0 ? tern_retain_restore_none(how, &passed, err) : rc;
}

/* The next reader gets the folder's bytes from its storage. */
static void forget(const char *dir)
{
    struct tern_tree t = {0};

    if (tern_tree_list(dir, &t, NULL) < 0)
        return;
    for (size_t i = 0; i < t.n; i++) {
        char *path = tern_fs_join(dir, t.file[i].name);
        const int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
        if (fd >= 0) {
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            close(fd);
        }
        free(path);
    }
    tern_tree_free(&t);
}

/* 1: the copy is damaged: its bytes were wrong each time they were read. */
static int judge(const char *path, struct tern_err *err)
{
    for (int i = 0; i < TERN_RETAIN_RESTORE_TRIES; i++) {
        if (i)
            forget(path);
        if (tern_ckpt_verify(path, /* full= */ true, err) == 0)
            return 0;
        if (!tern_retain_restore_is_damage(err))
            return -1;
    }
    return 1;
}

static int bring_from_folder(const struct tern_retain_restore *how,
                             const struct tern_retain_restored *copy, const char *aside,
                             const char *to, struct tern_err *err)
{
    struct tern_tree t = {0};
    int rc = judge(copy->path, err);

    if (rc != 0)
        return rc;
    rc = tern_tree_take(copy->path, &t, err);
    if (rc == 0)
        rc = tern_retain_restore_still(how, err);
    if (rc == 0)
        rc = tern_tree_copy(copy->path, &t, aside, to, err);
    tern_tree_free(&t);
    return rc;
}

/* What interrupted calls have brought, except into `aside` (may be NULL). */
static void sweep(const char *dir, const char *aside)
{
    DIR *d = TERN_AGAIN_PTR(opendir(dir));

    for (struct dirent *e; d && (e = readdir(d));) {
        if (!tern_str_starts(e->d_name, ".step-") || !tern_str_ends(e->d_name, ".back") ||
            (aside && strcmp(e->d_name, tern_fs_basename(aside)) == 0))
            continue;
        char *path = tern_fs_join(dir, e->d_name);
        tern_fs_remove_tree(path, NULL);
        free(path);
    }
    if (d)
        closedir(d);
}

/* ------------------------------------------------------------------ both */

int tern_retain_restore_find(const struct tern_retain_restore *how, uint64_t before,
                             struct tern_retain_restored *ret_copy, struct tern_err *err)
{
    struct tern_retain_restored copy = {0};
    const int rc = tern_store_is(how->mirror)
                       ? tern_retain_restore_bucket_find(how, before, &copy, err)
                       : find_in_folder(how, before, &copy, err);

    if (rc > 0)
        *ret_copy = copy;
    else
        tern_retain_restore_free(&copy);
    return rc;
}

/* What has the name of the checkpoint, and is none. */
static int set_aside(const struct tern_retain_restore *how, const char *to, struct tern_err *err)
{
    struct tern_err why = {0};

    if (tern_ckpt_verify(to, /* full= */ false, &why) == 0)
        return tern_err_set(err, TERN_TEMPFAIL,
                            "%s: verifies now. The next attempt goes on from it.", to);
    if (why.code == TERN_TEMPFAIL) {
        *err = why; /* storage that fails now is no damage */
        return -1;
    }
    return tern_retain_restore_still(how, err) < 0 ? -1 : tern_ckpt_mark_bad(to, NULL, err);
}

void tern_retain_restore_sweep(const char *dir)
{
    sweep(dir, /* aside= */ NULL);
}

/* An interrupted call has brought a part of it. */
static int check_room(const struct tern_retain_restored *copy, const char *aside,
                      struct tern_err *err)
{
    struct tern_tree t = {0};
    const bool some = tern_fs_exists(aside) && tern_tree_list(aside, &t, NULL) == 0;
    const uint64_t have = some ? t.bytes : 0;

    tern_tree_free(&t);
    return tern_retain_room_check(aside, copy->bytes > have ? copy->bytes - have : 0, err);
}

static int bring(const struct tern_retain_restore *how, const struct tern_retain_restored *copy,
                 const char *dir, struct tern_retain_restore_shared *shared, struct tern_err *err)
{
    char *to = tern_fs_join(dir, copy->name);
    char *aside = tern_strf("%s/.%s.%s.back", dir, copy->name, copy->run_id);
    int rc = tern_fs_mkdirs(dir, 0777, err);

    sweep(dir, aside);
    if (rc == 0)
        rc = check_room(copy, aside, err);
    if (rc == 0 && tern_fs_exists(to))
        rc = set_aside(how, to, err);
    if (rc == 0)
        rc = tern_store_is(how->mirror)
                 ? tern_retain_restore_bucket_bring(how, copy, aside, to, shared, err)
                 : bring_from_folder(how, copy, aside, to, err);
    free(to);
    free(aside);
    return rc;
}

static void report(const struct tern_retain_restored *copy,
                   const struct tern_retain_restore_shared *s, int64_t began_ns)
{
    const uint64_t done = __atomic_load_n(&s->done_bytes, __ATOMIC_RELAXED);
    const double took = (double)(tern_clock_boot_ns() - began_ns) / (double)second;
    const double rate = (double)done / took;

    if (done == 0)
        tern_info("%s: for %.0f s now", copy->path, took);
    else
        tern_info("%s: %.0f %% at %.1f MiB/s, %.0f s left", copy->path,
                  100.0 * (double)done / (double)copy->bytes, rate / 0x1p20,
                  (double)(copy->bytes > done ? copy->bytes - done : 0) / rate);
}

/* The child's end; false: a signal came first, and the child was killed. */
static bool wait_for(pid_t pid, const struct tern_retain_restore *how,
                     const struct tern_retain_restored *copy,
                     const struct tern_retain_restore_shared *s)
{
    const int64_t began = tern_clock_boot_ns();
    int64_t report_at = began + REPORT_S * second;

    while (TERN_AGAIN(waitpid(pid, NULL, WNOHANG)) == 0) {
        if (tern_retain_restore_is_ended(how)) {
            kill(pid, SIGKILL);
            TERN_AGAIN(waitpid(pid, NULL, 0));
            return false;
        }
        if (tern_clock_boot_ns() >= report_at) {
            report_at += REPORT_S * second;
            report(copy, s, began);
        }
        tern_clock_sleep_ns(second / 50);
    }
    return true;
}

int tern_retain_restore_bring(const struct tern_retain_restore *how,
                              const struct tern_retain_restored *copy, const char *dir,
                              struct tern_err *err)
{
    const pid_t parent = getpid();
    struct tern_retain_restore_shared *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (s == MAP_FAILED)
        return tern_err_sys(err, "%s: cannot be brought back", copy->path);
    s->rc = tern_err_set(&s->err, TERN_TEMPFAIL, "%s: the process that brought it back was killed",
                         copy->path);
    const pid_t pid = tern_again_fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            s->rc = bring(how, copy, dir, s, &s->err);
        _exit(0);
    }
    int rc = pid < 0 ? tern_err_sys(err, "%s: cannot be brought back", copy->path) : 0;
    if (rc == 0 && !wait_for(pid, how, copy, s)) {
        rc = tern_err_set(
            err, TERN_CONTINUED,
            "a signal came while %s was brought back. The next attempt goes on there.", copy->path);
    } else if (rc == 0) {
        rc = s->rc;
        if (rc != 0)
            *err = s->err;
    }
    munmap(s, sizeof *s);
    return rc;
}

int tern_retain_restore_refuse(const struct tern_retain_restore *how,
                               const struct tern_retain_restored *copy, struct tern_err *err)
{
    return tern_store_is(how->mirror) ? tern_retain_restore_bucket_refuse(how, copy, err)
                                      : tern_ckpt_mark_bad(copy->path, NULL, err);
}

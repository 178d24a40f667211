/* The owner of a checkpoint folder: the run's ULID, and the lease of the attempt that publishes. */
#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/rand.h"
#include "core/base/str.h"
#include "core/ckpt/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LEASE_BYTES = 64 << 10,   /* of a lease's file: some hundred are used */
    ATTEMPTS_MAX = 100000000, /* what eight digits hold */
    TEXT = 128,               /* of a host's name, a boot id, a namespace */
};
#define RELEASED ".released"
/* The name of a lease's file before its number.  The first is written: a supervisor of tern 0.3 on
 * the same folder looks for it alone, and must see this lease.  From 0.5 on it is "lease-", which
 * this tern reads already. */
static const char *const prefixes[] = {"claim-", "lease-"};
enum { PREFIXES = sizeof prefixes / sizeof *prefixes };
#define START_UNKNOWN UINT64_MAX

struct tern_ckpt_lease {
    char *dir, *path;
    unsigned attempt;
    bool owner;
    ino_t inode; /* of the lease's file: another one under its name is not ours */
};

/* A process, described so that another one, maybe on another node, can find out whether it lives.
 */
struct owner {
    char host[TEXT], boot[TEXT], pidns[TEXT], cluster[TEXT], job[TEXT];
    uint64_t restart, pid, start; /* `start`: clock ticks after boot */
};

/* ------------------------------------------------------------------ owners */

static void first_line(const char *path, char to[TEXT])
{
    FILE *f = TERN_AGAIN_PTR(fopen(path, "re"));

    to[0] = '\0';
    if (f && fgets(to, TEXT, f))
        to[strcspn(to, "\n")] = '\0';
    if (f)
        fclose(f);
}

/* Field 22 of /proc/PID/stat (proc(5)); 0 when there is no such process, START_UNKNOWN when that
 * cannot be read.  The name, in parentheses, may hold anything. */
static uint64_t start_time(uint64_t pid)
{
    char path[64], text[1024];
    uint64_t start = 0;

    snprintf(path, sizeof path, "/proc/%" PRIu64 "/stat", pid);
    int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC));
    ssize_t n = fd < 0 ? -1 : TERN_AGAIN(read(fd, text, sizeof text - 1));
    bool absent = n == 0 || errno == ENOENT || errno == ESRCH;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return absent ? 0 : START_UNKNOWN;
    text[n] = '\0';
    char *s = strrchr(text, ')');
    for (int field = 2; s && field < 22; field++)
        s = strchr(s + 1, ' ');
    /* A zombie has ended; its parent has not waited for it yet. */
    const char *state = strrchr(text, ')');
    if (s && state && state[1] == ' ' && state[2] != 'Z')
        start = strtoull(s + 1, NULL, 10);
    return start;
}

static void copy(char to[TEXT], const char *from)
{
    snprintf(to, TEXT, "%s", from ? from : "");
}

static void owner_self(struct owner *w)
{
    int64_t restart = 0;

    memset(w, 0, sizeof *w);
    gethostname(w->host, sizeof w->host - 1);
    first_line("/proc/sys/kernel/random/boot_id", w->boot);
    ssize_t n = readlink("/proc/self/ns/pid", w->pidns, sizeof w->pidns - 1);
    w->pidns[n > 0 ? n : 0] = '\0';
    /* Slurm's own variables, not ours (core/base/vars.h). */
    copy(w->cluster, getenv("SLURM_CLUSTER_NAME"));
    copy(w->job, getenv("SLURM_JOB_ID"));
    if (getenv("SLURM_RESTART_COUNT"))
        tern_str_int(getenv("SLURM_RESTART_COUNT"), 0, 1000000, &restart);
    w->restart = (uint64_t)restart;
    w->pid = (uint64_t)getpid();
    w->start = start_time(w->pid);
}

static json_t *owner_write(const struct owner *w)
{
    return json_pack("{s:s,s:s,s:s,s:I,s:I,s:s,s:s,s:I}", "host", w->host, "boot", w->boot,
                     "pid_namespace", w->pidns, "pid", (json_int_t)w->pid, "start",
                     (json_int_t)w->start, "cluster", w->cluster, "job", w->job, "restart",
                     (json_int_t)w->restart);
}

static void owner_read(const json_t *j, struct owner *w)
{
    memset(w, 0, sizeof *w);
    copy(w->host, json_string_value(json_object_get(j, "host")));
    copy(w->boot, json_string_value(json_object_get(j, "boot")));
    copy(w->pidns, json_string_value(json_object_get(j, "pid_namespace")));
    copy(w->cluster, json_string_value(json_object_get(j, "cluster")));
    copy(w->job, json_string_value(json_object_get(j, "job")));
    w->restart = (uint64_t)json_integer_value(json_object_get(j, "restart"));
    w->pid = (uint64_t)json_integer_value(json_object_get(j, "pid"));
    w->start = (uint64_t)json_integer_value(json_object_get(j, "start"));
}

enum life { DEAD, ALIVE, UNKNOWN };

static enum life life_of(const struct owner *w, const struct owner *me)
{
    if (*w->boot && strcmp(w->boot, me->boot) == 0 && strcmp(w->pidns, me->pidns) == 0) {
        if (w->pid == me->pid && w->start == me->start)
            return DEAD; /* the caller itself: a new lease ends its old one */
        uint64_t now = w->start ? start_time(w->pid) : 0;
        if (now && (now == START_UNKNOWN || w->start == START_UNKNOWN))
            return UNKNOWN;
        return now && now == w->start ? ALIVE : DEAD;
    }
    if (*w->job && strcmp(w->job, me->job) == 0 && strcmp(w->cluster, me->cluster) == 0 &&
        w->restart < me->restart)
        return DEAD;
    return UNKNOWN;
}

/* ------------------------------------------------------------------ whole small files */

/* Write `text` durably under a temporary name in `dir`; *temp is malloc'ed, *now the file server's
 * time. */
static int temp_write(const char *dir, const char *text, size_t len, char **temp,
                      struct timespec *now, struct tern_err *err)
{
    uint64_t r;
    struct stat st;

    tern_assert(len > 0 && len <= LEASE_BYTES, "%zu bytes", len);
    tern_rand_system(&r, sizeof r);
    char *path = tern_strf("%s/.lease-%016" PRIx64, dir, r);
    int fd = TERN_AGAIN(open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd < 0) {
        tern_err_sys(err, "%s: cannot create", path);
        free(path);
        return -1;
    }
    int rc = tern_fs_write_at(fd, 0, text, len, path, err);
    if (rc == 0 && (tern_fs_sync(fd) < 0 || TERN_AGAIN(fstat(fd, &st)) < 0))
        rc = tern_err_sys(err, "%s: cannot make it durable", path);
    if (tern_fs_close(fd) < 0 && rc == 0)
        rc = tern_err_sys(err, "%s: cannot close", path);
    if (rc < 0) {
        TERN_AGAIN(unlink(path));
        free(path);
        return -1;
    }
    *temp = path;
    if (now)
        *now = st.st_mtim;
    return 0;
}

/* Give the file its name; 1 when the name is taken.  The temporary name is removed in any case.
 * Over NFS a link may exist although its answer was lost: the link count tells. */
static int temp_link(char *temp, const char *name, struct tern_err *err)
{
    struct stat st;
    int rc = TERN_AGAIN(link(temp, name)), why = errno;

    if (rc < 0 && TERN_AGAIN(stat(temp, &st)) == 0 && st.st_nlink == 2)
        rc = 0;
    TERN_AGAIN(unlink(temp));
    free(temp);
    if (rc < 0) {
        errno = why;
        return why == EEXIST ? 1 : tern_err_sys(err, "%s: cannot link", name);
    }
    return tern_fs_sync_parent(name, err);
}

/* ------------------------------------------------------------------ the run's ULID */

static bool is_ulid(const char *s)
{
    return strspn(s, "0123456789ABCDEFGHJKMNPQRSTVWXYZ") == 26 && s[26] == '\0';
}

int tern_ckpt_run_read(const char *dir, char ulid[TERN_CKPT_ULID], struct tern_err *err)
{
    char *path = tern_strf("%s/run.id", dir), *text = NULL;
    size_t len;
    int rc = 1;

    if (TERN_AGAIN(access(path, F_OK)) == 0 || errno != ENOENT) {
        rc = tern_fs_read(path, 4096, &text, &len, err);
        if (rc == 0)
            text[strcspn(text, "\n")] = '\0';
        if (rc == 0 && !is_ulid(text))
            rc = tern_err_set(err, TERN_USAGE,
                              "%s: holds no run's ULID. Use another checkpoint.dir.", path);
        if (rc == 0)
            memcpy(ulid, text, TERN_CKPT_ULID);
    }
    free(text);
    free(path);
    return rc;
}

int tern_ckpt_run_identity(const char *dir, char ulid[TERN_CKPT_ULID], struct tern_err *err)
{
    char text[TERN_CKPT_ULID + 1], *temp, *path;
    int rc = tern_ckpt_run_read(dir, ulid, err);

    if (rc <= 0)
        return rc;
    if (!is_ulid(ulid))
        return tern_err_set(err, TERN_FAILED, "'%.26s' is no ULID", ulid);
    if (tern_fs_mkdirs(dir, 0777, err) < 0 || tern_fs_sync_parent(dir, err) < 0)
        return -1;
    snprintf(text, sizeof text, "%s\n", ulid);
    if (temp_write(dir, text, strlen(text), &temp, NULL, err) < 0)
        return -1;
    path = tern_strf("%s/run.id", dir);
    rc = temp_link(temp, path, err);
    free(path);
    return rc == 1 ? tern_ckpt_run_read(dir, ulid, err) : rc;
}

/* ------------------------------------------------------------------ leases */

static char *lease_path(const char *dir, unsigned attempt)
{
    return tern_strf("%s/%s%06u", dir, prefixes[0], attempt);
}

/* The path of a lease that exists, by the other name where it has none that is written. */
static char *lease_find(const char *dir, unsigned attempt)
{
    for (int i = 1; i < PREFIXES; i++) {
        char *written = lease_path(dir, attempt);
        char *other = tern_strf("%s/%s%06u", dir, prefixes[i], attempt);
        bool is_other = !tern_fs_exists(written) && tern_fs_exists(other);
        free(is_other ? written : other);
        if (is_other)
            return other;
        free(written);
    }
    return lease_path(dir, attempt);
}

/* The attempt in a lease's name, 0 for another file.  *released: it was given back. */
static unsigned lease_parse(const char *name, bool *released)
{
    for (int i = 0; i < PREFIXES; i++) {
        char *end;
        if (!tern_str_starts(name, prefixes[i]))
            continue;
        unsigned long n = strtoul(name + strlen(prefixes[i]), &end, 10);
        *released = strcmp(end, RELEASED) == 0;
        return (*end && !*released) || n >= ATTEMPTS_MAX ? 0 : (unsigned)n;
    }
    return 0;
}

/* The highest attempt that ever held the lease; 0 for none.  *released: it gave it back. */
static int highest(const char *dir, unsigned *attempt, bool *released, struct tern_err *err)
{
    DIR *d = TERN_AGAIN_PTR(opendir(dir));

    if (!d)
        return tern_err_sys(err, "%s: cannot open folder", dir);
    *attempt = 0;
    *released = false;
    for (struct dirent *e; (errno = 0, e = readdir(d));) {
        bool done = false;
        unsigned n = lease_parse(e->d_name, &done);
        if (n > *attempt)
            *released = done;
        else if (n && n == *attempt)
            *released = *released && done;
        *attempt = n > *attempt ? n : *attempt;
    }
    const int why = errno;
    closedir(d);
    errno = why;
    return why ? tern_err_sys(err, "%s: cannot read folder", dir) : 0;
}

/* "attempt 3 (node2 job 4711, pid 1234 on node2)" */
static void describe(const char *dir, unsigned attempt, char *to, size_t n, struct owner *w,
                     struct stat *st)
{
    char *path = lease_find(dir, attempt);
    json_t *j = tern_json_load(path, LEASE_BYTES, NULL);
    const char *owner = json_string_value(json_object_get(j, "owner"));

    memset(st, 0, sizeof *st);
    TERN_AGAIN(stat(path, st));
    owner_read(j, w);
    snprintf(to, n, "attempt %u (%.100s, pid %" PRIu64 " on %s)", attempt,
             owner ? owner : "owner unknown", w->pid, *w->host ? w->host : "an unknown host");
    json_decref(j);
    free(path);
}

/* Refuse while the owner of lease `attempt` lives. */
static int refuse_living(const char *dir, unsigned attempt, const struct owner *me,
                         const struct timespec *now, struct tern_err *err)
{
    char text[400];
    struct owner w;
    struct stat st;

    describe(dir, attempt, text, sizeof text, &w, &st);
    enum life life = life_of(&w, me);
    int64_t age = now->tv_sec - st.st_mtim.tv_sec;
    if (life == ALIVE)
        return tern_err_set(err, TERN_FAILED,
                            "%s: belongs to %s, which is running. Stop it first, or use another "
                            "checkpoint.dir.",
                            dir, text);
    if (life == UNKNOWN && age < TERN_CKPT_LEASE_S)
        return tern_err_set(err, TERN_TEMPFAIL,
                            "%s: belongs to %s, whose last heartbeat is %" PRId64
                            " s old. Stop it, or wait until it is %d s old.",
                            dir, text, age > 0 ? age : 0, TERN_CKPT_LEASE_S);
    return 0;
}

static struct tern_ckpt_lease *lease_new(const char *dir, unsigned attempt, bool owner,
                                         struct tern_err *err)
{
    char *path = lease_find(dir, attempt);
    struct stat st;

    if (TERN_AGAIN(stat(path, &st)) < 0) {
        tern_err_sys(err, "%s: attempt %u has no lease on the folder", path, attempt);
        free(path);
        return NULL;
    }
    struct tern_ckpt_lease *c = tern_alloc(1, sizeof *c, "lease", err);
    if (!c) {
        free(path);
        return NULL;
    }
    *c = (struct tern_ckpt_lease){
        .dir = tern_strdup(dir), .path = path, .attempt = attempt, .owner = owner};
    c->inode = st.st_ino;
    return c;
}

int tern_ckpt_lease_acquire(const char *dir, unsigned attempt, const char *owner,
                            struct tern_ckpt_lease **lease, struct tern_err *err)
{
    struct owner me;
    struct timespec now;
    unsigned last;
    bool released;
    char *temp;

    if (tern_fs_mkdirs(dir, 0777, err) < 0)
        return -1;
    owner_self(&me);
    json_t *j = owner_write(&me);
    json_object_set_new(j, "owner", json_string(owner));
    char *text = json_dumps(j, JSON_INDENT(1));
    json_decref(j);
    if (!text || temp_write(dir, text, strlen(text), &temp, &now, err) < 0) {
        free(text);
        return text ? -1 : tern_err_set(err, TERN_FAILED, "the lease's owner is not UTF-8");
    }
    free(text);
    if (highest(dir, &last, &released, err) < 0)
        goto refused;
    if (last && !released && refuse_living(dir, last, &me, &now, err) < 0)
        goto refused;
    if (attempt && attempt <= last) {
        tern_err_set(err, TERN_FAILED,
                     "%s: attempt %u cannot take the lease: attempt %u had it already", dir,
                     attempt, last);
        goto refused;
    }
    if (!attempt)
        attempt = last + 1;
    if (attempt >= ATTEMPTS_MAX) {
        tern_err_set(err, TERN_USAGE,
                     "%s: the numbers of attempts are used up: remove the file %s%u there, if no "
                     "run of tern made it",
                     dir, prefixes[0], last);
        goto refused;
    }
    tern_assert(attempt > last, "attempt %u after %u", attempt, last);
    char *path = lease_path(dir, attempt);
    int rc = temp_link(temp, path, err);
    free(path);
    if (rc == 1)
        return tern_err_set(err, TERN_FAILED,
                            "%s: another process took the lease as attempt %u just now", dir,
                            attempt);
    if (rc == 0)
        *lease = lease_new(dir, attempt, true, err);
    if (rc < 0 || !*lease)
        return -1;
    tern_assert_cmp((*lease)->attempt, ==, attempt);
    return 0;
refused:
    TERN_AGAIN(unlink(temp));
    free(temp);
    return -1;
}

int tern_ckpt_lease_attach(const char *dir, unsigned attempt, struct tern_ckpt_lease **lease,
                           struct tern_err *err)
{
    struct tern_ckpt_lease *c = lease_new(dir, attempt, false, err);

    if (!c || tern_ckpt_lease_check(c, err) < 0) {
        tern_ckpt_lease_free(c, false);
        return -1;
    }
    *lease = c;
    return 0;
}

int tern_ckpt_lease_last(const char *dir, unsigned *ret_attempt, struct tern_err *err)
{
    bool released;

    return highest(dir, ret_attempt, &released, err);
}

unsigned tern_ckpt_lease_attempt(const struct tern_ckpt_lease *lease)
{
    return lease->attempt;
}

int tern_ckpt_lease_check(struct tern_ckpt_lease *lease, struct tern_err *err)
{
    char text[400];
    struct owner w;
    struct stat st;
    unsigned last;
    bool released;

    if (highest(lease->dir, &last, &released, err) < 0)
        return -1;
    if (last > lease->attempt) {
        describe(lease->dir, last, text, sizeof text, &w, &st);
        return tern_err_set(err, TERN_FAILED,
                            "%s: attempt %u lost its lease to %s; it stops writing", lease->dir,
                            lease->attempt, text);
    }
    int rc = TERN_AGAIN(stat(lease->path, &st));
    if (rc < 0 && errno != ENOENT)
        return tern_err_sys(err, "%s: cannot look at the lease", lease->path);
    if (rc < 0 || st.st_ino != lease->inode)
        return tern_err_set(err, TERN_FAILED, "%s: the lease of attempt %u was removed",
                            lease->path, lease->attempt);
    return tern_ckpt_lease_renew(lease, err);
}

int tern_ckpt_lease_renew(struct tern_ckpt_lease *lease, struct tern_err *err)
{
    /* NULL times: the file server's clock sets them. */
    if (TERN_AGAIN(utimensat(AT_FDCWD, lease->path, NULL, 0)) < 0)
        return tern_err_sys(err, "%s: cannot renew the lease", lease->path);
    return 0;
}

static bool is_there(const struct tern_ckpt_lease *lease)
{
    struct stat st;

    return lease->owner && TERN_AGAIN(stat(lease->path, &st)) == 0 && st.st_ino == lease->inode;
}

void tern_ckpt_lease_withdraw(struct tern_ckpt_lease *lease)
{
    if (lease && is_there(lease))
        TERN_AGAIN(unlink(lease->path));
    tern_ckpt_lease_free(lease, false);
}

void tern_ckpt_lease_free(struct tern_ckpt_lease *lease, bool released)
{
    if (!lease)
        return;
    if (released && is_there(lease)) {
        char *to = tern_strf("%s%s", lease->path, RELEASED);
        tern_fs_rename(lease->path, to, false);
        free(to);
    }
    free(lease->dir);
    free(lease->path);
    free(lease);
}

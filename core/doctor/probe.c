#include "core/doctor/probe.h"

#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A network file system's attribute cache holds for 3 s and more; 5 s is NFS's and Lustre's usual
 * for a folder that changes. */
enum { SEEN_WITHIN_MS = 5000 };

/* The doctor's own folder, in which no other user can put anything.  It may lie in a user's ledger,
 * and that user can rename it and put a link in its place while root looks.  So everything in it is
 * reached from here, never by its path. */
static int open_own(const char *dir)
{
    const uid_t squashed = 65534; /* root, on a file system with root_squash */
    struct stat st;
    int d = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (d >= 0 && (fstat(d, &st) < 0 || (st.st_mode & 077) ||
                   (st.st_uid != geteuid() && (geteuid() != 0 || st.st_uid != squashed)))) {
        close(d);
        errno = EPERM;
        return -1;
    }
    return d;
}

static int make(int dir, const char *name, const char *text)
{
    int fd = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd >= 0 && write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Folders of doctors that were killed; no doctor works for a day. */
static void sweep(const char *ledger)
{
    enum { DAY = 86400 };
    DIR *d = opendir(ledger);
    struct stat st;

    for (struct dirent *e; d && (e = readdir(d));)
        if (tern_str_starts(e->d_name, ".doctor-") &&
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
            st.st_uid == geteuid() && st.st_mtime < time(NULL) - DAY) {
            char *path = tern_fs_join(ledger, e->d_name);
            tern_fs_remove_tree(path, NULL);
            free(path);
        }
    if (d)
        closedir(d);
}

int tern_doctor_probe_open(struct tern_doctor_probe *p, const char *ledger, struct tern_err *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    unsigned char random[16];

    *p = (struct tern_doctor_probe){.fcntl = -1, .flock = -1};
    if (tern_fs_mkdirs(ledger, 0755, err) < 0)
        return -1;
    sweep(ledger);
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return tern_err_sys(err, "cannot make a token");
    tern_hex(p->token, random, sizeof random);
    char *dir = tern_strf("%s/.doctor-XXXXXX", ledger);
    if (!mkdtemp(dir)) {
        tern_err_sys(err, "%s: cannot make a folder there", ledger);
        free(dir);
        return -1;
    }
    p->dir = dir;
    int d = open_own(dir), token = make(d, "token", p->token);
    p->fcntl = make(d, "fcntl", "");
    p->flock = make(d, "flock", "");
    if (d >= 0)
        close(d);
    if (token < 0 || p->fcntl < 0 || p->flock < 0) {
        tern_err_sys(err, "%s: cannot write", dir);
        if (token >= 0)
            close(token);
        tern_doctor_probe_close(p, NULL);
        return -1;
    }
    fsync(token);
    close(token);
    fcntl(p->fcntl, F_SETLK, &whole);
    flock(p->flock, LOCK_EX | LOCK_NB);
    return 0;
}

/* ------------------------------------------------------------------ on a node */

/* "held" when the collector's lock is seen here, "free" when it is not. */
static const char *lock_seen(int dir, const char *name, bool by_flock)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    int rc = fd < 0 ? -1 : by_flock ? flock(fd, LOCK_EX | LOCK_NB) : fcntl(fd, F_SETLK, &whole);
    const char *seen = rc == 0 ? "free"
                       : errno == EAGAIN || errno == EACCES || errno == EWOULDBLOCK
                           ? "held"
                           : strerror(errno);

    if (fd >= 0)
        close(fd);
    return seen;
}

static void work(int dir, void (*put)(void *, const char *, const char *), void *arg)
{
    char host[65] = "";
    const char *slurm = getenv("SLURMD_NODENAME");

    if (!slurm)
        gethostname(host, sizeof host - 1);
    char *own = tern_strf("node-%s", slurm ? slurm : host), *temp = tern_strf("%s.new", own);
    int fd = make(dir, temp, own);

    if (fd < 0 || fsync(fd) < 0 || renameat(dir, temp, dir, own) < 0) {
        char text[300];
        snprintf(text, sizeof text, "cannot write there: %s", strerror(errno));
        put(arg, "probe-error", text);
    } else {
        put(arg, "probe-link", linkat(dir, own, dir, "link", 0) == 0 ? "won" : "lost");
        int excl = make(dir, "excl", own);
        put(arg, "probe-excl", excl >= 0 ? "won" : "lost");
        if (excl >= 0)
            close(excl);
        put(arg, "probe-fcntl", lock_seen(dir, "fcntl", false));
        put(arg, "probe-flock", lock_seen(dir, "flock", true));
    }
    if (fd >= 0)
        close(fd);
    free(temp);
    free(own);
}

void tern_doctor_probe_node(const char *dir, void (*put)(void *, const char *, const char *),
                            void *arg)
{
    char token[64] = "";
    int d = open_own(dir), fd = openat(d, "token", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || read(fd, token, sizeof token - 1) <= 0) {
        put(arg, "probe-token", "");
    } else {
        put(arg, "probe-token", token);
        work(d, put, arg);
    }
    if (fd >= 0)
        close(fd);
    if (d >= 0)
        close(d);
}

/* ------------------------------------------------------------------ back at the collector */

static bool seen(const struct tern_doctor_probe *p, const char *node)
{
    char *path = tern_strf("%s/node-%s", p->dir, node);
    bool there = false;

    for (int ms = 0; !(there = tern_fs_exists(path)) && ms < SEEN_WITHIN_MS; ms += 50)
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    free(path);
    return there;
}

void tern_doctor_probe_close(struct tern_doctor_probe *p, struct tern_doctor_facts *facts)
{
    size_t n = facts ? facts->n : 0;
    bool missed = false; /* the wait for one is a wait for all */

    for (size_t i = 0; i < n; i++) {
        char node[65];
        if (strcmp(facts->fact[i].key, "probe-token") != 0 ||
            strcmp(facts->fact[i].value, p->token) != 0)
            continue;
        snprintf(node, sizeof node, "%s", facts->fact[i].node);
        char *path = tern_strf("%s/node-%s", p->dir, node);
        bool there = missed ? tern_fs_exists(path) : seen(p, node);
        free(path);
        missed |= !there;
        tern_doctor_facts_add(facts, node, "probe-seen", there ? "yes" : "no");
    }
    if (facts)
        tern_doctor_facts_add(facts, "", "probe-token", p->token);
    if (p->fcntl >= 0)
        close(p->fcntl);
    if (p->flock >= 0)
        close(p->flock);
    if (p->dir)
        tern_fs_remove_tree(p->dir, NULL);
    free(p->dir);
    p->dir = NULL;
}

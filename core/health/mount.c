/* File systems: mounted, writable, with room.  A hang here is the runner's to notice. */
#include "core/base/str.h"
#include "core/health/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

const char *tern_health_subject(const char *dir)
{
    enum { FITS = sizeof((struct tern_health_row *)0)->subject - 1 };
    size_t n = strlen(dir);

    return n > FITS ? dir + n - FITS : dir;
}

/* Is it the top of a mounted file system?  statx would do; this works on every kernel. */
static bool is_mount_point(const char *path)
{
    struct stat here, above;
    char up[800];

    snprintf(up, sizeof up, "%s/..", path);
    return stat(path, &here) == 0 && stat(up, &above) == 0 &&
           (here.st_dev != above.st_dev || here.st_ino == above.st_ino);
}

/* The steps of taking a file, in their order. */
enum step { STEP_DOWN, CREATE, WRITE, FSYNC, CLOSE, REMOVE, DONE, LOST };
static const char *const steps[] = {
    [STEP_DOWN] = "step down from root",
    [CREATE] = "create a file",
    [WRITE] = "write to a file",
    [FSYNC] = "fsync a file",
    [CLOSE] = "close a file",
    [REMOVE] = "remove a file",
};

struct taken {
    enum step failed; /* DONE: none; LOST: the process that tried ended before it could tell */
    int e;            /* errno */
};

static struct taken take_a_file(int dir)
{
    char name[48];
    uint64_t random = 0;

    if (getrandom(&random, sizeof random, GRND_NONBLOCK) < 0)
        random = (uint64_t)getpid();
    snprintf(name, sizeof name, ".tern-health-%016llx", (unsigned long long)random);
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return (struct taken){CREATE, errno};
    struct taken t = {DONE, 0};
    errno = ENOSPC; /* what a short write means */
    if (write(fd, name, sizeof name) != sizeof name)
        t = (struct taken){WRITE, errno};
    else if (fsync(fd) < 0)
        t = (struct taken){FSYNC, errno};
    if (close(fd) < 0 && t.failed == DONE)
        t = (struct taken){CLOSE, errno};
    if (unlinkat(dir, name, 0) < 0 && t.failed == DONE)
        t = (struct taken){REMOVE, errno};
    return t;
}

/* Root makes no file where others may rename what it makes: there it is nobody. */
static bool is_safe(int dir)
{
    struct stat st;

    return geteuid() != 0 || fstat(dir, &st) < 0 || (st.st_uid == 0 && !(st.st_mode & 022));
}

/* In a process of its own: this one has other checks to make, and they need root. */
static struct taken take_a_file_as_nobody(int dir)
{
    enum { NOBODY = 65534 };
    struct taken t = {LOST, 0};
    pid_t parent = getpid();
    int fd[2];

    if (pipe2(fd, O_CLOEXEC) < 0)
        return (struct taken){STEP_DOWN, errno};
    pid_t pid = fork();
    if (pid == 0) {
        bool down = setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
                    setresuid(NOBODY, NOBODY, NOBODY) == 0;
        t = (struct taken){STEP_DOWN, errno};
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* which another uid has cleared */
        if (getppid() != parent)
            _exit(1);
        if (down)
            t = take_a_file(dir);
        _exit(write(fd[1], &t, sizeof t) != sizeof t);
    }
    if (pid < 0)
        t = (struct taken){STEP_DOWN, errno};
    close(fd[1]);
    if (pid > 0 && read(fd[0], &t, sizeof t) != sizeof t)
        t = (struct taken){LOST, 0};
    close(fd[0]);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return t;
}

static void say_failed(struct tern_health_probe *p, const char *dir, const char *what, int e)
{
    bool ours = e == EACCES || e == EPERM || e == EDQUOT;
    const char *remedy = e == EROFS    ? "Mount it again, read-write."
                         : e == ENOSPC ? "Make room."
                         : e == EDQUOT ? "Make room in the quota."
                         : ours        ? "Whose folder is it?"
                                       : "Look at the file system's server and the kernel's log.";

    /* A full or broken server is everybody's; a mount turned read-only is first this node's. */
    tern_health_say(p,
                    ours         ? TERN_HEALTH_UNKNOWN
                    : e == EROFS ? TERN_HEALTH_NODE_BAD
                                 : TERN_HEALTH_STORAGE_BAD,
                    tern_health_subject(dir), 0, "", "%.200s: cannot %s: %s. %s", dir, what,
                    strerror(e), remedy);
}

static bool has_room(struct tern_health_probe *p, const struct tern_health_mount *m, int dir,
                     double *free_mib)
{
    enum { INODES = 1000 };
    const uint64_t least = UINT64_C(64) << 20; /* a step's log lines and a manifest */
    struct statvfs v;
    char have[24], need[24];

    if (fstatvfs(dir, &v) < 0) {
        say_failed(p, m->folder.dir, "ask for its free space", errno);
        return false;
    }
    uint64_t room = (uint64_t)v.f_bavail * v.f_frsize;
    uint64_t want = m->folder.need_bytes ? m->folder.need_bytes : least;
    *free_mib = (double)(room >> 20);
    if (v.f_blocks && room < want) {
        tern_health_say(p, TERN_HEALTH_STORAGE_BAD, tern_health_subject(m->folder.dir), *free_mib,
                        "MiB", "%.200s: %s free, and %s are needed. Make room.", m->folder.dir,
                        tern_str_bytes(have, sizeof have, room),
                        tern_str_bytes(need, sizeof need, want));
        return false;
    }
    if (v.f_files && v.f_favail < INODES) {
        tern_health_say(p, TERN_HEALTH_STORAGE_BAD, tern_health_subject(m->folder.dir),
                        (double)v.f_favail, "inodes",
                        "%.200s: %llu inodes are left. Remove small files.", m->folder.dir,
                        (unsigned long long)v.f_favail);
        return false;
    }
    return true;
}

void tern_health_check_mount(struct tern_health_probe *p)
{
    const struct tern_health_mount *m = &p->want->mount[p->index];
    char path[512];
    double free_mib = 0;

    tern_health_path(p, path, "%s", m->folder.dir);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 && errno == ENOENT) {
        tern_health_say(p, TERN_HEALTH_NODE_BAD, tern_health_subject(m->folder.dir), 0, "",
                        "%.200s is not there. Is its file system mounted?", m->folder.dir);
        return;
    }
    if (dir < 0) {
        say_failed(p, m->folder.dir, "open it", errno);
        return;
    }
    if (m->fstab && !is_mount_point(path)) {
        tern_health_say(p, TERN_HEALTH_NODE_BAD, tern_health_subject(m->folder.dir), 0, "",
                        "%.200s stands in /etc/fstab and is not mounted. mount %.100s",
                        m->folder.dir, m->folder.dir);
        return;
    }
    if (!has_room(p, m, dir, &free_mib))
        return;
    struct taken t = is_safe(dir) ? take_a_file(dir) : take_a_file_as_nobody(dir);
    if (t.failed == STEP_DOWN || t.failed == LOST)
        tern_health_say(p, TERN_HEALTH_UNKNOWN, tern_health_subject(m->folder.dir), 0, "",
                        "cannot step down from root: %s",
                        t.failed == LOST ? "the process that did was ended" : strerror(t.e));
    else if (t.failed != DONE && (m->asked || (t.e != EACCES && t.e != EPERM)))
        say_failed(p, m->folder.dir, steps[t.failed], t.e);
    else
        tern_health_say(p, TERN_HEALTH_OK, tern_health_subject(m->folder.dir), free_mib, "MiB",
                        "%.200s: %s, %.0f MiB free", m->folder.dir,
                        t.failed == DONE ? "takes a file" : "answers", free_mib);
}

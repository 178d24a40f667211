/* Facts of file systems: mounted, writable, with room.  The runner notices a hang. */
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

static struct tern_health_taken take_a_file(int dir)
{
    char name[48];
    uint64_t random = 0;

    if (getrandom(&random, sizeof random, GRND_NONBLOCK) < 0)
        random = (uint64_t)getpid();
    snprintf(name, sizeof name, ".tern-health-%016llx", (unsigned long long)random);
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return (struct tern_health_taken){TERN_HEALTH_CREATE, errno};
    struct tern_health_taken t = {TERN_HEALTH_DONE, 0};
    errno = ENOSPC; /* what a short write means */
    if (write(fd, name, sizeof name) != sizeof name)
        t = (struct tern_health_taken){TERN_HEALTH_WRITE, errno};
    else if (fsync(fd) < 0)
        t = (struct tern_health_taken){TERN_HEALTH_FSYNC, errno};
    if (close(fd) < 0 && t.failed == TERN_HEALTH_DONE)
        t = (struct tern_health_taken){TERN_HEALTH_CLOSE, errno};
    if (unlinkat(dir, name, 0) < 0 && t.failed == TERN_HEALTH_DONE)
        t = (struct tern_health_taken){TERN_HEALTH_REMOVE, errno};
    return t;
}

/* The process becomes user nobody where other users may rename files: root creates none there. */
static bool is_safe(int dir)
{
    struct stat st;

    return geteuid() != 0 || fstat(dir, &st) < 0 || (st.st_uid == 0 && !(st.st_mode & 022));
}

/* In a process of its own: this one has other checks to make, and they need root. */
static struct tern_health_taken take_a_file_as_nobody(int dir)
{
    enum { NOBODY = 65534 };
    struct tern_health_taken t = {TERN_HEALTH_LOST, 0};
    pid_t parent = getpid();
    int fd[2];

    if (pipe2(fd, O_CLOEXEC) < 0)
        return (struct tern_health_taken){TERN_HEALTH_STEP_DOWN, errno};
    pid_t pid = fork();
    if (pid == 0) {
        bool down = setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
                    setresuid(NOBODY, NOBODY, NOBODY) == 0;
        t = (struct tern_health_taken){TERN_HEALTH_STEP_DOWN, errno};
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* which another uid has cleared */
        if (getppid() != parent)
            _exit(1);
        if (down)
            t = take_a_file(dir);
        _exit(write(fd[1], &t, sizeof t) != sizeof t);
    }
    if (pid < 0)
        t = (struct tern_health_taken){TERN_HEALTH_STEP_DOWN, errno};
    close(fd[1]);
    if (pid > 0 && read(fd[0], &t, sizeof t) != sizeof t)
        t = (struct tern_health_taken){TERN_HEALTH_LOST, 0};
    close(fd[0]);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return t;
}

/* Goes as far as the folder lets it: no file is made where there is no room. */
static void try_folder(const struct tern_rules_folder *folder, const char *path, int dir,
                       struct tern_health_facts *f)
{
    const uint64_t need = folder->need_bytes ? folder->need_bytes : TERN_HEALTH_LEAST_BYTES;
    struct statvfs v;

    f->mount.mounted = is_mount_point(path);
    if (fstatvfs(dir, &v) < 0) {
        f->mount.room_error = errno;
        return;
    }
    f->mount.has_blocks = v.f_blocks > 0;
    f->mount.has_inodes = v.f_files > 0;
    f->mount.free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    f->mount.free_inodes = v.f_favail;
    if ((f->mount.has_blocks && f->mount.free_bytes < need) ||
        (f->mount.has_inodes && f->mount.free_inodes < TERN_HEALTH_LEAST_INODES))
        return;
    f->mount.taken = is_safe(dir) ? take_a_file(dir) : take_a_file_as_nobody(dir);
}

void tern_health_gather_mount(const struct tern_health_probe *p, struct tern_health_facts *f)
{
    const struct tern_health_mount *m = &p->expected->mount[p->index];
    char path[512];

    tern_health_path(p, path, "%s", m->folder.dir);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        f->mount.open_error = errno;
        return;
    }
    if (!m->fstab || is_mount_point(path))
        try_folder(&m->folder, path, dir, f);
}

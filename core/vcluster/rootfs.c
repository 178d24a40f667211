#include "core/vcluster/rootfs.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/vcluster/programs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Recursive, because a user namespace may not split mounts that it was given together. */
static int bind(const char *from, const char *to, struct tern_err *err)
{
    if (mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0)
        return tern_err_sys(err, "cannot mount %s at %s", from, to);
    return 0;
}

static int bind_fd(int fd, const char *to, struct tern_err *err)
{
    char from[32];

    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    return bind(from, to, err);
}

static int mount_new(const char *kind, const char *to, const char *options, struct tern_err *err)
{
    if (mount(kind, to, kind, MS_NOSUID, options) < 0)
        return tern_err_sys(err, "cannot mount %s at %s", kind, to);
    return 0;
}

static int mount_proc_sys(const char *root, struct tern_err *err)
{
    char *proc = tern_strf("%s/proc", root), *sys = tern_strf("%s/sys", root);
    int rc = mount_new("proc", proc, NULL, err);

    /* A new one shows the node's own network devices; where that is refused the host's will do. */
    if (rc == 0 && mount("sysfs", sys, "sysfs", MS_NOSUID, NULL) < 0)
        rc = bind("/sys", sys, err);
    free(proc);
    free(sys);
    return rc;
}

static int make_file(const char *path, mode_t mode, struct tern_err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);

    if (fd < 0 || fchmod(fd, mode) < 0) {
        tern_err_sys(err, "%s: cannot create", path);
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return close(fd);
}

/* ------------------------------------------------------------------ what stays visible */

/* Folders held open while something is mounted over the path that led to them. */
struct kept {
    int fd[64];
    char *path[64];
    int n;
};

static bool below(const char *path, const char *const *tops)
{
    for (; *tops; tops++) {
        size_t n = strlen(*tops);
        if (strncmp(path, *tops, n) == 0 && path[n] == '/')
            return true;
    }
    return false;
}

/* Hold the folders of `share` that lie below one of `tops`. */
static int keep(struct kept *k, char *const *share, const char *const *tops, struct tern_err *err)
{
    for (; share && *share; share++) {
        if (!below(*share, tops))
            continue;
        if (k->n == (int)(sizeof k->fd / sizeof *k->fd))
            return tern_err_set(err, TERN_USAGE, "more than %d shared folders", k->n);
        int fd = open(*share, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            return tern_err_sys(err, "%s: cannot share it with the nodes", *share);
        k->fd[k->n] = fd;
        k->path[k->n++] = *share;
    }
    return 0;
}

/* Mount the held folders at their old paths below `root`, and close them. */
static int put_back(struct kept *k, const char *root, struct tern_err *err)
{
    int rc = 0;

    for (int i = 0; i < k->n; i++) {
        char *to = tern_strf("%s%s", root, k->path[i]);
        if (rc == 0)
            rc = tern_fs_mkdirs(to, 0755, err);
        if (rc == 0)
            rc = bind_fd(k->fd[i], to, err);
        close(k->fd[i]);
        free(to);
    }
    k->n = 0;
    return rc;
}

/* ------------------------------------------------------------------ the head */

/* One entry of the host's / in the new root. */
static int take_over(const char *root, const char *name, struct tern_err *err)
{
    static const char *const own[] = {"proc", "sys", "run", NULL};
    char *from = tern_strf("/%s", name), *to = tern_strf("%s/%s", root, name);
    char target[PATH_MAX];
    struct stat st;
    int rc = 0;

    if (lstat(from, &st) < 0) {
        rc = 0; /* removed meanwhile */
    } else if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlink(from, target, sizeof target - 1);
        if (n > 0) {
            target[n] = '\0';
            if (symlink(target, to) < 0)
                rc = tern_err_sys(err, "%s: cannot link", to);
        }
    } else if (S_ISDIR(st.st_mode)) {
        bool mine = false;
        for (const char *const *o = own; *o; o++)
            mine |= strcmp(name, *o) == 0;
        if (mkdir(to, 0755) < 0)
            rc = tern_err_sys(err, "%s: cannot make folder", to);
        else if (!mine)
            rc = bind(from, to, err);
    }
    free(from);
    free(to);
    return rc;
}

static int take_over_all(const char *root, struct tern_err *err)
{
    DIR *d = opendir("/");
    int rc = d ? 0 : tern_err_sys(err, "/: cannot read");

    for (struct dirent *e; rc == 0 && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = take_over(root, e->d_name, err);
    if (d)
        closedir(d);
    return rc;
}

/* Every node sees the host's folders, /home among them.  A MountDir that the host lacks gets a
 * folder of the cluster's own. */
static int mount_storage(const char *root, const struct tern_layout *l, struct tern_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < l->n_storage; i++) {
        const char *at = l->storage[i].mount_dir, *rest = strchr(at + 1, '/');
        if (strcmp(at, "/home") == 0)
            continue;
        char *from = tern_strf("%s%s/fs%s", root, TERN_VCLUSTER_ROOT_STATE, at),
             *to = tern_strf("%s%s", root, at);
        char *top = rest ? tern_strf("%.*s", (int)(rest - at), at) : NULL;
        if (top && tern_fs_exists(top) && !tern_fs_exists(at))
            rc = tern_err_set(err, TERN_USAGE,
                              "%s:%d: %s: this machine has %s, and tern makes "
                              "nothing in it. Make the folder, or use another MountDir.",
                              l->path, l->storage[i].line, at, top);
        if (rc == 0)
            rc = tern_fs_mkdirs(to, 0755, err);
        if (rc == 0)
            rc = bind(from, to, err);
        free(from);
        free(to);
        free(top);
    }
    return rc;
}

/* The cluster's `name` over the host's /etc/`to`; some are not there for every cluster. */
static int mount_over(const char *root, const char *name, const char *to, bool always,
                      struct tern_err *err)
{
    char *from = tern_strf("%s%s/%s", root, TERN_VCLUSTER_ROOT_STATE, name);
    char *at = tern_strf("%s/etc/%s", root, to);
    int rc = 0;

    if ((always || tern_fs_exists(from)) && !tern_fs_exists(at))
        rc = tern_err_set(err, TERN_FAILED,
                          "this machine has no /etc/%s, not even an empty one, to mount the "
                          "cluster's over",
                          to);
    else if (always || tern_fs_exists(from))
        rc = bind(from, at, err);
    free(from);
    free(at);
    return rc;
}

/* The configuration, where this machine's Slurm (or any Slurm) looks for it. */
static int mount_conf(const char *root, struct tern_err *err)
{
    if (strcmp(tern_vcluster_programs_conf_dir(), TERN_VCLUSTER_ROOT_CONF) != 0)
        return mount_over(root, "etc", "slurm", true, err);
    char *from = tern_strf("%s%s/etc", root, TERN_VCLUSTER_ROOT_STATE);
    char *at = tern_strf("%s%s", root, TERN_VCLUSTER_ROOT_CONF);
    int rc = tern_fs_mkdirs(at, 0755, err);

    if (rc == 0)
        rc = bind(from, at, err);
    free(from);
    free(at);
    return rc;
}

static int mount_etc(const char *root, struct tern_err *err)
{
    if (mount_conf(root, err) < 0 || mount_over(root, "etc/hosts", "hosts", true, err) < 0)
        return -1;
    return mount_over(root, "passwd", "passwd", false, err);
}

int tern_vcluster_rootfs_mount_head(const char *dir, const struct tern_layout *l,
                                    char *const *share, struct tern_err *err)
{
    /* The new root is made over /run, the one folder of the host that nodes do not get. Anywhere
     * else it would be copied into itself. */
    static const char root[] = "/run";
    static const char *const hidden[] = {"/run", NULL};
    struct kept k = {0};
    int state = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC), rc = -1;

    if (state < 0) {
        tern_err_sys(err, "%s: cannot open", dir);
        goto out;
    }
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        tern_err_sys(err, "cannot make the mounts private");
        goto out;
    }
    if (keep(&k, share, hidden, err) < 0 || mount_new("tmpfs", root, "mode=755", err) < 0 ||
        take_over_all(root, err) < 0 || mount_proc_sys(root, err) < 0 ||
        tern_fs_mkdirs("/run" TERN_VCLUSTER_ROOT_STATE, 0755, err) < 0 ||
        tern_fs_mkdirs("/run/run/munge", 0755, err) < 0 ||
        bind_fd(state, "/run" TERN_VCLUSTER_ROOT_STATE, err) < 0 || put_back(&k, root, err) < 0 ||
        mount_storage(root, l, err) < 0 || mount_etc(root, err) < 0)
        goto out;
    /* pivot_root(2): the old root ends up on top of the new one, and is taken off. */
    if (chdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
        chdir("/") < 0) {
        tern_err_sys(err, "cannot change to the new root");
        goto out;
    }
    rc = 0;
out:
    if (state >= 0)
        close(state);
    return rc;
}

/* ------------------------------------------------------------------ a node */

static const char *const devices[] = {"null", "zero", "full", "random", "urandom", "tty", NULL};
enum { N_DEVICES = sizeof devices / sizeof *devices - 1 };

static int fill_dev(const int *fd, int n_neuron, struct tern_err *err)
{
    static const char *const links[][2] = {
        {"/proc/self/fd", "/dev/fd"},       {"/proc/self/fd/0", "/dev/stdin"},
        {"/proc/self/fd/1", "/dev/stdout"}, {"/proc/self/fd/2", "/dev/stderr"},
        {"pts/ptmx", "/dev/ptmx"},
    };
    char path[32];

    for (int i = 0; i < N_DEVICES; i++) {
        if (fd[i] < 0)
            continue;
        snprintf(path, sizeof path, "/dev/%s", devices[i]);
        if (make_file(path, 0666, err) < 0 || bind_fd(fd[i], path, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (symlink(links[i][0], links[i][1]) < 0)
            return tern_err_sys(err, "%s: cannot link", links[i][1]);
    for (int i = 0; i < n_neuron; i++) {
        snprintf(path, sizeof path, "/dev/neuron%d", i);
        if (make_file(path, 0666, err) < 0)
            return -1;
    }
    if (mkdir("/dev/pts", 0755) < 0 || mkdir("/dev/shm", 01777) < 0)
        return tern_err_sys(err, "/dev: cannot make folders");
    if (mount_new("devpts", "/dev/pts", "newinstance,ptmxmode=0666,mode=620", err) < 0)
        return -1;
    return mount_new("tmpfs", "/dev/shm", "mode=1777", err);
}

/* A /dev of the node's own.  A user namespace cannot make device files, but can mount the host's
 * over plain ones. */
static int mount_dev(int n_neuron, struct tern_err *err)
{
    int fd[N_DEVICES];
    char path[32];

    for (int i = 0; i < N_DEVICES; i++) {
        snprintf(path, sizeof path, "/dev/%s", devices[i]);
        fd[i] = open(path, O_PATH | O_CLOEXEC);
    }
    int rc = mount_new("tmpfs", "/dev", "mode=755", err);
    if (rc == 0)
        rc = fill_dev(fd, n_neuron, err);
    for (int i = 0; i < N_DEVICES; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    return rc;
}

static int mount_tmp(const char *name, int tmp_mib, struct tern_err *err)
{
    char size[40], *own = tern_strf("%s/nodes/%s/tmp", TERN_VCLUSTER_ROOT_STATE, name);

    snprintf(size, sizeof size, "mode=1777,size=%dm", tmp_mib);
    int rc = tmp_mib ? mount_new("tmpfs", "/tmp", size, err) : bind(own, "/tmp", err);
    free(own);
    return rc;
}

int tern_vcluster_rootfs_mount_node(const char *name, char *const *share, int n_devices,
                                    int tmp_mib, struct tern_err *err)
{
    static const char *const hidden[] = {"/tmp", "/run", "/dev/shm", NULL};
    struct kept k = {0};
    int state = open(TERN_VCLUSTER_ROOT_STATE, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct tern_err ignored;
    int rc = -1;

    if (state < 0) {
        tern_err_sys(err, "%s: cannot open the cluster's folder", name);
        goto out;
    }
    umask(0);
    if (mount_proc_sys("", err) < 0 || keep(&k, share, hidden, err) < 0 ||
        mount_dev(n_devices, err) < 0 || mount_tmp(name, tmp_mib, err) < 0 ||
        mount_new("tmpfs", "/run", "mode=755", err) < 0)
        goto out;
    /* The symbols of the host's kernel are no node's, and libfabric reads all of them (10 MB, 60
     * ms) at every start. With a hundred processes on one machine that takes seconds. */
    if (bind("/dev/null", "/proc/kallsyms", &ignored) < 0)
        tern_debug("%s", ignored.text);
    if (mkdir(TERN_VCLUSTER_ROOT_STATE, 0755) < 0 || mkdir("/run/munge", 0755) < 0 ||
        mkdir("/run/slurmd", 0755) < 0) {
        tern_err_sys(err, "/run: cannot make folders");
        goto out;
    }
    if (bind_fd(state, TERN_VCLUSTER_ROOT_STATE, err) < 0 ||
        (strcmp(tern_vcluster_programs_conf_dir(), TERN_VCLUSTER_ROOT_CONF) == 0 &&
         mount_conf("", err) < 0) ||
        put_back(&k, "", err) < 0)
        goto out;
    umask(022);
    rc = 0;
out:
    if (state >= 0)
        close(state);
    return rc;
}

/* ------------------------------------------------------------------ trouble of a node */

/* The flags of a mount that a user namespace may not take off. */
static unsigned long locked_flags(const char *at)
{
    static const struct {
        unsigned long stat, mount;
    } flags[] = {{ST_NOSUID, MS_NOSUID},         {ST_NODEV, MS_NODEV},
                 {ST_NOEXEC, MS_NOEXEC},         {ST_NOATIME, MS_NOATIME},
                 {ST_NODIRATIME, MS_NODIRATIME}, {ST_RELATIME, MS_RELATIME}};
    struct statvfs st;
    unsigned long all = 0;

    if (statvfs(at, &st) == 0)
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
            all |= st.f_flag & flags[i].stat ? flags[i].mount : 0;
    return all;
}

/* A line of mountinfo, its texts as the kernel has escaped them. */
struct mounted {
    int id, parent;
    char files[PATH_MAX], at[PATH_MAX]; /* device and folder; mount point */
};

/* The mount of this number; -1 with errno. */
static int find_mount(int id, struct mounted *ret)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char *line = NULL;
    size_t room = 0;
    int rc = -1;

    if (!f)
        return -1;
    errno = ENOENT;
    while (rc < 0 && getline(&line, &room, f) > 0) {
        char device[32], root[PATH_MAX - 40];
        if (sscanf(line, "%d %d %31s %4055s %4095s", &ret->id, &ret->parent, device, root,
                   ret->at) == 5 &&
            ret->id == id) {
            snprintf(ret->files, sizeof ret->files, "%s %s", device, root);
            rc = 0;
        }
    }
    free(line);
    fclose(f);
    return rc;
}

/* The number of the mount that `at` is in, or -1. */
static int mount_of(const char *at)
{
    char path[48], line[80];
    int id = -1, fd = open(at, O_PATH | O_CLOEXEC);

    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *f = fd < 0 ? NULL : fopen(path, "re");
    while (f && id < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "mnt_id: %d", &id) != 1)
            id = -1;
    if (f)
        fclose(f);
    if (fd >= 0)
        close(fd);
    return id;
}

/* Is what is mounted at `at` a second mount of the same files over the first?  -1 with errno. */
static int is_double(const char *at)
{
    struct mounted *m = malloc(2 * sizeof *m);
    int rc = -1;

    if (m && find_mount(mount_of(at), &m[0]) == 0)
        rc = find_mount(m[0].parent, &m[1]) == 0 && strcmp(m[0].at, m[1].at) == 0 &&
             strcmp(m[0].files, m[1].files) == 0;
    free(m);
    return rc;
}

static int remount(const char *at, unsigned long more)
{
    return mount(NULL, at, NULL, MS_REMOUNT | MS_BIND | more | locked_flags(at), NULL);
}

/* Where files are open for writing, the mount itself cannot be made read-only. A second one over it
 * is, and processes whose folder is in the first still write. */
static int turn_read_only(const char *at, struct tern_err *err)
{
    if (remount(at, MS_RDONLY) == 0)
        return 0;
    if (bind(at, at, err) < 0)
        return -1;
    if (remount(at, MS_RDONLY) == 0)
        return 0;
    tern_err_sys(err, "cannot make %s read-only", at);
    umount2(at, MNT_DETACH);
    return -1;
}

/* A second mount is made writable, too: processes may have come into it. */
static int turn_writable(const char *at, struct tern_err *err)
{
    struct statvfs st;

    /* A process of the node may have unmounted it: what lies there then is the folder itself. */
    if (statvfs(at, &st) < 0 || !(st.f_flag & ST_RDONLY))
        return 0;
    const int twice = is_double(at);
    if (twice < 0)
        return tern_err_sys(err, "cannot find the mount at %s", at);
    if (remount(at, 0) < 0 && errno != EINVAL) /* it is no mount */
        return tern_err_sys(err, "cannot make %s writable", at);
    if (twice && umount2(at, MNT_DETACH) < 0)
        return tern_err_sys(err, "cannot unmount %s", at);
    return 0;
}

static int set_read_only(const char *at, bool read_only, struct tern_err *err)
{
    return read_only ? turn_read_only(at, err) : turn_writable(at, err);
}

int tern_vcluster_rootfs_set_read_only(const struct tern_layout *l, bool read_only,
                                       struct tern_err *err)
{
    int rc = set_read_only("/tmp", read_only, err);

    for (size_t i = 0; rc == 0 && i < l->n_storage; i++)
        if (strcmp(l->storage[i].mount_dir, "/home") != 0)
            rc = set_read_only(l->storage[i].mount_dir, read_only, err);
    return rc;
}

int tern_vcluster_rootfs_fill_tmp(int tmp_mib, bool full, struct tern_err *err)
{
    struct statvfs st;
    char size[40];

    if (statvfs("/tmp", &st) < 0)
        return tern_err_sys(err, "/tmp: cannot look at it");
    const uint64_t used = (uint64_t)(st.f_blocks - st.f_bfree) * st.f_frsize;
    /* At least a block: 0 would be no limit at all. */
    snprintf(size, sizeof size, "size=%" PRIu64,
             !full  ? (uint64_t)tmp_mib << 20
             : used ? used
                    : (uint64_t)st.f_frsize);
    if (mount(NULL, "/tmp", NULL, MS_REMOUNT | MS_NOSUID, size) < 0)
        return tern_err_sys(err, "cannot change the size of /tmp");
    return 0;
}

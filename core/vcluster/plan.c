#include "core/vcluster/plan.h"

#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/vars.h"
#include "core/vcluster/accounting.h"
#include "core/vcluster/ctl.h"
#include "core/vcluster/folders.h"
#include "core/vcluster/net.h"
#include "core/vcluster/programs.h"
#include "core/vcluster/rootfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Two bytes of address less the head's 256; Slurm's plain mode ends where ports do. */
enum { MAX_NODES = 2048 };

/* ------------------------------------------------------------------ the folder */

char *tern_vcluster_plan_home(struct tern_err *err)
{
    const char *home = tern_var("TERN_CLUSTER_HOME");
    const char *xdg = getenv("XDG_STATE_HOME"), *user = getenv("HOME");

    if (home && home[0] == '/')
        return tern_strdup(home);
    if (home) {
        tern_err_set(err, TERN_USAGE, "TERN_CLUSTER_HOME: '%s' is not an absolute path. Set one.",
                     home);
        return NULL;
    }
    if (xdg && xdg[0] == '/')
        return tern_strf("%s/tern/cluster", xdg);
    if (user && user[0] == '/')
        return tern_strf("%s/.local/state/tern/cluster", user);
    tern_err_set(err, TERN_USAGE, "no HOME to keep clusters in. Set TERN_CLUSTER_HOME.");
    return NULL;
}

char *tern_vcluster_plan_dir(const char *name, struct tern_err *err)
{
    size_t n = strlen(name);

    if (n == 0 || n > 40 || name[0] == '-' ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != n) {
        tern_err_set(err, TERN_USAGE,
                     "'%s' is not a name for a cluster: 1 to 40 letters, digits, "
                     "'-' and '_'.",
                     name);
        return NULL;
    }
    char *home = tern_vcluster_plan_home(err);
    char *dir = home ? tern_strf("%s/%s", home, name) : NULL;
    free(home);
    return dir;
}

static int empty(const char *dir, struct tern_err *err)
{
    DIR *d = opendir(dir);
    int rc = 0;

    if (!d)
        return errno == ENOENT ? 0 : tern_err_sys(err, "%s: cannot open", dir);
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            strcmp(e->d_name, "lock") == 0)
            continue;
        char *path = tern_strf("%s/%s", dir, e->d_name);
        rc = tern_fs_remove_tree(path, err);
        free(path);
    }
    closedir(d);
    return rc;
}

int tern_vcluster_plan_remove(const char *dir, struct tern_err *err)
{
    int rc = empty(dir, err);

    return rc == 0 ? tern_fs_remove_tree(dir, err) : rc;
}

/* A folder with files and without a lock is not a cluster's. */
static bool holds_other_files(const char *dir, const char *lock)
{
    DIR *d = tern_fs_exists(lock) ? NULL : opendir(dir);
    bool any = false;

    for (struct dirent *e; d && !any && (e = readdir(d));)
        any = strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (d)
        closedir(d);
    return any;
}

static int lock_once(const char *dir, const char *path, const char *name, struct tern_err *err)
{
    struct stat mine, there;

    if (holds_other_files(dir, path))
        return tern_err_set(err, TERN_USAGE,
                            "%s: holds files that are no cluster's. Move them, or use another "
                            "name (--name) or TERN_CLUSTER_HOME.",
                            dir);
    if (tern_fs_mkdirs(dir, 0700, err) < 0 || tern_vcluster_ctl_check_folder(dir, err) < 0)
        return -1;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno == ENOENT ? -2 : tern_err_sys(err, "%s: cannot open", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK)
            tern_err_set(err, TERN_USAGE,
                         "cluster '%s' is up already. Use it (`tern cluster "
                         "status %s`), end it (`tern cluster down %s`), or give this one another "
                         "name (--name).",
                         name, name, name);
        else
            tern_err_sys(err, "%s: cannot lock", path);
        close(fd);
        return -1;
    }
    /* A `down` may have removed the folder between open and lock. */
    if (fstat(fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_ino == there.st_ino)
        return fd;
    close(fd);
    return -2;
}

int tern_vcluster_plan_lock(const char *dir, const char *name, struct tern_err *err)
{
    char *path = tern_strf("%s/lock", dir);
    int fd;

    do
        fd = lock_once(dir, path, name, err);
    while (fd == -2);
    free(path);
    if (fd >= 0 && (chmod(dir, 0700) < 0 || empty(dir, err) < 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

bool tern_vcluster_plan_locked(const char *dir)
{
    char *path = tern_strf("%s/lock", dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0;

    if (fd >= 0)
        close(fd);
    free(path);
    return held;
}

/* ------------------------------------------------------------------ the plan */

/* Does one machine hold all dynamic nodes beside the others?  Else they stay FUTURE, as in plain
 * mode: a host that Slurm's programs would start lies in namespaces. */
static bool fits_fleet(const struct tern_layout_group *g, size_t n)
{
    size_t all = 0;

    for (size_t i = 0; i < n; i++)
        all += (size_t)g[i].count;
    return all <= MAX_NODES;
}

static int add_nodes(struct tern_vcluster_plan *p, const struct tern_layout_group *g, bool fleet,
                     struct tern_err *err)
{
    const int begun =
        g->dynamic && g->count > p->layout->virtual_dynamic ? p->layout->virtual_dynamic : g->count;
    const int count = fleet ? g->count : begun;

    for (int k = 1; k <= count; k++) {
        if (p->n_nodes == MAX_NODES)
            return tern_err_set(err, TERN_USAGE,
                                "%s: more than the %d nodes that one machine may run. Lower "
                                "MinCount.",
                                p->layout->path, MAX_NODES);
        struct tern_vcluster_plan_node *node = &p->nodes[p->n_nodes++];
        char *name = tern_layout_node_name(g, k);
        snprintf(node->name, sizeof node->name, "%s", name);
        node->chips = g->resource->type->chips;
        node->fleet = k > begun;
        p->n_fleet += node->fleet;
        free(name);
    }
    return 0;
}

static int list_nodes(struct tern_vcluster_plan *p, struct tern_err *err)
{
    const struct tern_layout *l = p->layout;
    size_t n_groups;
    int rc = 0;

    if (tern_layout_usable(l, err) < 0)
        return -1;
    p->nodes = tern_alloc(MAX_NODES, sizeof *p->nodes, "nodes", err);
    if (!p->nodes)
        return -1;
    struct tern_layout_group *g = tern_layout_groups(l, &n_groups);
    const bool fleet = fits_fleet(g, n_groups);
    for (size_t i = 0; i < n_groups && rc == 0; i++)
        rc = add_nodes(p, &g[i], fleet, err);
    if (rc == 0 && p->n_nodes == 0)
        rc = tern_err_set(err, TERN_USAGE, "%s: no nodes to start.", l->path);
    free(g);
    return rc;
}

int tern_vcluster_plan_make(struct tern_vcluster_plan *p, const struct tern_layout *l,
                            const struct tern_vcluster_options *o, struct tern_err *err)
{
    *p = (struct tern_vcluster_plan){.layout = l, .mode = o->mode};
    p->name = tern_strdup(o->name ? o->name : l->name);
    p->plugin = o->plugin ? tern_strdup(o->plugin) : NULL;
    p->dir = tern_vcluster_plan_dir(p->name, err);
    gethostname(p->host, sizeof p->host - 1);
    p->host[strcspn(p->host, ".")] = '\0'; /* slurmd knows itself by the short name */
    if (!p->dir || tern_vcluster_programs_find(p, o->slurm, o->accounting, err) < 0 ||
        list_nodes(p, err) < 0 || tern_vcluster_folders_list(p, o, err) < 0) {
        tern_vcluster_plan_free(p);
        return -1;
    }
    return 0;
}

void tern_vcluster_plan_free(struct tern_vcluster_plan *p)
{
    for (char **s = p->share; s && *s; s++)
        free(*s);
    free(p->share);
    free(p->name);
    free(p->dir);
    free(p->plugin);
    free(p->user);
    free(p->munged);
    free(p->slurmctld);
    free(p->slurmd);
    free(p->slurmdbd);
    free(p->mariadbd);
    free(p->install_db);
    free(p->bin);
    free(p->nodes);
    *p = (struct tern_vcluster_plan){0};
}

/* ------------------------------------------------------------------ writing it down */

/* Without fsync, which would cost more than the rest of `up`: after a crash the folder is made
 * anew. */
static int write_file(const char *dir, const char *name, const void *data, size_t len, mode_t mode,
                      struct tern_err *err)
{
    char *path = tern_strf("%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    int rc = fd < 0 ? tern_err_sys(err, "%s: cannot create", path) : 0;

    if (rc == 0)
        rc = tern_fs_write_at(fd, 0, data, len, path, err);
    if (fd >= 0 && close(fd) < 0 && rc == 0)
        rc = tern_err_sys(err, "%s: cannot write", path);
    free(path);
    return rc;
}

static int make_dir(const struct tern_vcluster_plan *p, const char *what, const char *sub,
                    mode_t mode, struct tern_err *err)
{
    char *path = tern_strf("%s/%s%s", p->dir, what, sub);
    int rc = tern_fs_mkdirs(path, 0755, err);

    if (rc == 0 && chmod(path, mode) < 0) /* past the umask */
        rc = tern_err_sys(err, "%s: cannot set its mode", path);
    free(path);
    return rc;
}

static int make_dirs(const struct tern_vcluster_plan *p, struct tern_err *err)
{
    bool plain = p->mode == TERN_VCLUSTER_PLAIN;
    static const char *const dirs[] = {"etc", "log", "state", "run", "nodes", "fs"};

    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        if (make_dir(p, dirs[i], "", 0755, err) < 0)
            return -1;
    for (size_t i = 0; i < p->layout->n_storage; i++)
        if (make_dir(p, "fs", p->layout->storage[i].mount_dir, 01777, err) < 0)
            return -1;
    for (size_t i = 0; i < p->n_nodes; i++) {
        char *tmp = tern_strf("/%s/tmp", p->nodes[i].name);
        char *spool = tern_strf("/%s/spool", p->nodes[i].name);
        int rc = make_dir(p, "nodes", tmp, 01777, err);
        if (rc == 0 && plain)
            rc = make_dir(p, "nodes", spool, 0755, err);
        free(tmp);
        free(spool);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static int write_hosts(const struct tern_vcluster_plan *p, struct tern_err *err)
{
    struct tern_buf b = {0};
    char address[16];

    tern_buf_printf(&b, "127.0.0.1 localhost\n%s head\n", TERN_VCLUSTER_NET_HEAD);
    for (size_t i = 0; i < p->n_nodes; i++)
        tern_buf_printf(&b, "%s %s\n",
                        tern_vcluster_net_address(address, sizeof address, (int)i + 1),
                        p->nodes[i].name);
    int rc = tern_buf_check(&b, "hosts", err);
    if (rc == 0)
        rc = write_file(p->dir, "etc/hosts", b.data, b.len, 0644, err);
    tern_buf_free(&b);
    return rc;
}

/* The user's name in Slurm's files.  Slurm refuses a user without a name (in containers that pick a
 * number): such a user is called "tern" on the nodes. */
static int name_user(struct tern_vcluster_plan *p, struct tern_err *err)
{
    struct passwd *pw = getpwuid(geteuid());
    const char *home = getenv("HOME");
    char *host = NULL;
    size_t len;

    free(p->user); /* of an earlier try in another mode */
    p->user = tern_strdup(pw ? pw->pw_name : "tern");
    if (pw)
        return 0;
    if (p->mode == TERN_VCLUSTER_PLAIN)
        return tern_err_set(err, TERN_USAGE,
                            "uid %d has no name, and Slurm wants one. Add it to "
                            "/etc/passwd.",
                            (int)geteuid());
    if (tern_fs_read("/etc/passwd", 16 << 20, &host, &len, err) < 0)
        return -1;
    struct tern_buf b = {0};
    tern_buf_add(&b, host, len);
    tern_buf_printf(&b, "%stern:x:%d:%d::%s:/bin/sh\n", len && host[len - 1] != '\n' ? "\n" : "",
                    (int)geteuid(), (int)getegid(), home ? home : "/");
    free(host);
    int rc = tern_buf_check(&b, "passwd", err);
    if (rc == 0)
        rc = write_file(p->dir, "passwd", b.data, b.len, 0644, err);
    tern_buf_free(&b);
    return rc;
}

/* Jobs with --export=NONE get the login's environment, in which PATH may have another Slurm's srun
 * or none: the plugin sets PATH and SLURM_CONF.  NULL without a plugin. */
static char *plugin_line(const struct tern_vcluster_plan *p, const char *conf_dir)
{
    bool plain = p->mode == TERN_VCLUSTER_PLAIN,
         other_slurm = tern_vcluster_programs_non_system(p->bin);

    if (!p->plugin || (!plain && !tern_vcluster_programs_conf(p->bin)) || strpbrk(p->bin, " \t"))
        return p->plugin ? tern_strdup(p->plugin) : NULL;
    return tern_strf("%s%s%s conf=%s/slurm.conf", p->plugin, other_slurm ? " bin=" : "",
                     other_slurm ? p->bin : "", conf_dir);
}

static int write_key(const struct tern_vcluster_plan *p, struct tern_err *err)
{
    unsigned char key[128]; /* munge's own default size */

    if (getrandom(key, sizeof key, 0) != sizeof key)
        return tern_err_sys(err, "cannot make a munge key");
    return write_file(p->dir, "munge.key", key, sizeof key, 0600, err);
}

/* n consecutive ports of 127.0.0.1 that are free now; 0 when there are none. */
static int free_ports(int n)
{
    for (int base = 26817; base + n < 32768; base += n + 1) { /* below the ephemeral range */
        int i = 0;
        for (; i <= n; i++) {
            struct sockaddr_in a = {.sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)(base + i)),
                                    .sin_addr.s_addr = htonl(INADDR_ANY)};
            int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
            int rc = bind(fd, (struct sockaddr *)&a, sizeof a);
            close(fd);
            if (rc < 0)
                break;
        }
        if (i > n)
            return base;
    }
    return 0;
}

/* Slurm's ResumeProgram and SuspendProgram, which may have no arguments of their own. */
static int write_fleet(const struct tern_vcluster_plan *p, struct tern_err *err)
{
    static const struct {
        const char *file, *power;
    } programs[] = {{"etc/resume", "on"}, {"etc/suspend", "off"}};
    char *bin = tern_fs_self_dir();
    int rc = bin ? 0 : tern_err_set(err, TERN_FAILED, "this program's folder is not known");

    for (int i = 0; i < 2 && rc == 0; i++) {
        struct tern_buf b = {0};
        tern_buf_puts(&b, "#!/bin/sh\nexec ");
        tern_buf_word(&b, bin);
        tern_buf_printf(
            &b, "/tern-cluster node \"$1\" --power %s --for-slurm >>%s/log/fleet.log 2>&1\n",
            programs[i].power, TERN_VCLUSTER_ROOT_STATE);
        rc = tern_buf_check(&b, programs[i].file, err);
        if (rc == 0)
            rc = write_file(p->dir, programs[i].file, b.data, b.len, 0755, err);
        tern_buf_free(&b);
    }
    free(bin);
    return rc;
}

static int write_conf(const struct tern_vcluster_plan *p, struct tern_err *err)
{
    bool plain = p->mode == TERN_VCLUSTER_PLAIN;
    const char *d = plain ? p->dir : TERN_VCLUSTER_ROOT_STATE;
    char *state = tern_strf("%s/state", d), *log = tern_strf("%s/log", d);
    char *etc = tern_strf("%s/etc", d), *run = tern_strf("%s/run", d);
    char *socket = tern_strf("%s/run/munge.socket", d), *spool = tern_strf("%s/nodes/%%n/spool", d);
    char *tmp = tern_strf("%s/nodes/%%n/tmp", d);
    char *plugin = plugin_line(p, plain ? etc : tern_vcluster_programs_conf_dir());
    struct tern_layout_conf c = {0};

    struct tern_layout_local local = {
        .cluster_name = p->name,
        .head_name = plain ? p->host : "head",
        .head_addr = plain ? "127.0.0.1" : TERN_VCLUSTER_NET_HEAD,
        .user = p->user,
        .state = state,
        .log = log,
        .spool = plain ? spool : "/run/slurmd",
        .pid_dir = plain ? run : "/run",
        .munge_socket = plain ? socket : TERN_VCLUSTER_ROOT_MUNGE,
        .conf_dir = plain ? etc : tern_vcluster_programs_conf_dir(),
        .plugin = plugin,
        .tmp = plain ? tmp : NULL,
        .port = plain ? p->port : 0,
        .dynamic = p->layout->virtual_dynamic,
        .accounting = p->slurmdbd != NULL,
        .fleet = !plain && p->n_fleet > 0,
    };
    int rc = tern_layout_render(p->layout, &local, &c, err);
    const struct {
        const char *name;
        const struct tern_buf *text;
    } files[] = {{"etc/slurm.conf", &c.slurm},
                 {"etc/gres.conf", &c.gres},
                 {"etc/topology.conf", &c.topology},
                 {"etc/cgroup.conf", &c.cgroup},
                 {"etc/plugstack.conf", &c.plugstack}};
    for (size_t i = 0; rc == 0 && i < sizeof files / sizeof *files; i++)
        rc = write_file(p->dir, files[i].name, files[i].text->data, files[i].text->len, 0644, err);
    if (rc == 0 && p->slurmdbd) {
        char *text = tern_vcluster_accounting_conf(p);
        rc = write_file(p->dir, "etc/slurmdbd.conf", text, strlen(text), 0600, err);
        free(text);
    }
    tern_layout_conf_free(&c);
    free(state);
    free(log);
    free(etc);
    free(run);
    free(socket);
    free(spool);
    free(tmp);
    free(plugin);
    return rc;
}

/* Slurm's files know no quoting, and a socket's path is short: plain mode uses the folder's path
 * as it is. */
static int check_plain(struct tern_vcluster_plan *p, struct tern_err *err)
{
    if (p->slurmdbd)
        return tern_err_set(err, TERN_USAGE,
                            "--accounting needs namespaces: in plain mode slurmdbd and its "
                            "database would take this machine's own port and socket.");
    if (strpbrk(p->dir, " \t#,='\"%[]"))
        return tern_err_set(err, TERN_USAGE,
                            "%s: Slurm's files cannot hold this path. Set "
                            "TERN_CLUSTER_HOME to a plain one.",
                            p->dir);
    if (strlen(p->dir) + sizeof "/run/munge.socket" > sizeof((struct sockaddr_un *)0)->sun_path)
        return tern_err_set(err, TERN_USAGE,
                            "%s: too long for a socket's path. Set "
                            "TERN_CLUSTER_HOME to a shorter one.",
                            p->dir);
    const size_t n = p->n_nodes - p->n_fleet;
    if (n == 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: no static nodes (MinCount is 0 everywhere), and plain mode starts "
                            "none when a job wants it. Start dynamic ones: put 'virtual: {dynamic: "
                            "4}' into the .tern.yaml beside it.",
                            p->layout->path);
    p->port = free_ports((int)n);
    if (!p->port)
        return tern_err_set(err, TERN_TEMPFAIL, "no %zu free ports in a row from 26817 to 32767.",
                            n + 1);
    return 0;
}

int tern_vcluster_plan_write(struct tern_vcluster_plan *p, struct tern_err *err)
{
    mode_t old = umask(022);
    char *layout = realpath(p->layout->path, NULL), *folders = tern_vcluster_folders_describe(p);
    int rc = p->mode == TERN_VCLUSTER_PLAIN ? check_plain(p, err) : 0;

    if (rc == 0)
        rc = make_dirs(p, err);
    if (rc == 0 && p->n_fleet && p->mode != TERN_VCLUSTER_PLAIN)
        rc = write_fleet(p, err);
    if (rc == 0)
        rc = name_user(p, err);
    if (rc == 0)
        rc = write_file(p->dir, "bin", p->bin, strlen(p->bin), 0644, err);
    if (rc == 0)
        rc = write_conf(p, err);
    if (rc == 0)
        rc = write_hosts(p, err);
    if (rc == 0)
        rc = write_key(p, err);
    if (rc == 0)
        rc = write_file(p->dir, "layout", layout ? layout : "", layout ? strlen(layout) : 0, 0600,
                        err);
    if (rc == 0)
        rc = write_file(p->dir, "folders", folders, strlen(folders), 0644, err);
    free(folders);
    free(layout);
    umask(old);
    return rc;
}

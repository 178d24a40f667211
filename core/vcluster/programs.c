#include "core/vcluster/programs.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/slurm/slurm.h"
#include "core/vcluster/rootfs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* `name` in the first of the folders (a:b:c) that has it; malloc'ed, or NULL. */
static char *find_in(const char *folders, const char *name)
{
    char *all = tern_strdup(folders), *save = NULL, *found = NULL;

    for (char *d = strtok_r(all, ":", &save); d && !found; d = strtok_r(NULL, ":", &save)) {
        char *file = tern_strf("%s/%s", d, name);
        if (d[0] == '/' && access(file, X_OK) == 0)
            found = file;
        else
            free(file);
    }
    free(all);
    return found;
}

/* Slurm's daemons lie beside the library: prefix/lib/libslurm.so.38, prefix/lib/x86_64-linux-gnu,
 * prefix/lib/slurm. */
static void beside_library(struct tern_buf *folders)
{
    char *at = tern_slurm_library();

    for (int up = 0; at && up < 4; up++) {
        char *above = tern_fs_dirname(at);
        free(at);
        at = above;
        if (up > 0 && at)
            tern_buf_printf(folders, "%s/sbin:", strcmp(at, "/") == 0 ? "" : at);
    }
    free(at);
}

static int find_programs(struct tern_vcluster_plan *p, const char *prefix, bool accounting,
                         struct tern_err *err)
{
    static const char usual[] = "/usr/sbin:/sbin:/usr/local/sbin:/opt/slurm/sbin";
    const char *path = getenv("PATH");
    struct tern_buf folders = {0}, any = {0}, names = {0};
    struct want {
        const char *name;
        const struct tern_buf *folders;
        char **to;
    } want[] = {{"munged", &any, &p->munged},     {"slurmctld", &folders, &p->slurmctld},
                {"slurmd", &folders, &p->slurmd}, {"slurmdbd", &folders, &p->slurmdbd},
                {"mariadbd", &any, &p->mariadbd}, {"mariadb-install-db", &any, &p->install_db}};
    const size_t n = accounting ? sizeof want / sizeof *want : 3;
    int rc = 0;

    tern_buf_printf(&any, "%s:%s", path ? path : "", usual);
    if (prefix) {
        tern_buf_printf(&folders, "%s/sbin:%s/bin", prefix, prefix);
    } else {
        beside_library(&folders);
        tern_buf_printf(&folders, "%s", any.data);
    }
    for (size_t i = 0; i < n; i++) {
        *want[i].to = find_in(want[i].folders->data, want[i].name);
        if (!*want[i].to)
            tern_buf_printf(&names, "%s%s", names.len ? ", " : "", want[i].name);
    }
    if (names.len && p->munged && p->slurmctld && p->slurmd)
        rc = tern_err_set(err, TERN_USAGE,
                          "--accounting: %s: not found. Install MariaDB and slurmdbd (Debian, "
                          "Ubuntu: apt-get install -y --no-install-recommends mariadb-server "
                          "slurmdbd).",
                          names.data);
    else if (names.len && prefix && p->munged)
        rc = tern_err_set(err, TERN_USAGE, "--slurm %s: there is no %s in its sbin.", prefix,
                          names.data);
    else if (names.len)
        rc = tern_err_set(err, TERN_USAGE,
                          "%s: not found. Install MUNGE and Slurm's daemons (Debian, Ubuntu: "
                          "apt-get install -y --no-install-recommends munge slurmctld slurmd "
                          "slurm-client; Fedora, RHEL: dnf install -y munge slurm-slurmctld "
                          "slurm-slurmd), or name the prefix that Slurm is in: --slurm /opt/slurm.",
                          names.data);
    tern_buf_free(&folders);
    tern_buf_free(&any);
    tern_buf_free(&names);
    return rc;
}

/* "slurm-wlm 22.05.8", "slurm 24.11.5": the daemon's word for its version; "" for none. */
static void version_of(const char *daemon, char *to, size_t size)
{
    char text[200] = "";
    int fd[2];

    *to = '\0';
    if (pipe2(fd, O_CLOEXEC) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        dup2(fd[1], 1);
        execl(daemon, daemon, "-V", (char *)NULL);
        _exit(127);
    }
    close(fd[1]);
    size_t len = 0;
    for (ssize_t n; pid > 0 && len + 1 < sizeof text &&
                    (n = read(fd[0], text + len, sizeof text - 1 - len)) != 0;) {
        if (n < 0 && errno != EINTR)
            break;
        len += n > 0 ? (size_t)n : 0;
    }
    close(fd[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    text[strcspn(text, "\n")] = '\0';
    const char *last = strrchr(text, ' ');
    if (last)
        snprintf(to, size, "%s", last + 1);
}

/* Daemons of another release than libslurm's do not understand what this program says to them. */
static int check_release(const struct tern_vcluster_plan *p, struct tern_err *err)
{
    const char *const daemons[] = {p->slurmctld, p->slurmd}, *ours = tern_slurm_release();

    for (int i = 0; i < 2; i++) {
        char version[40];
        version_of(daemons[i], version, sizeof version);
        if (!tern_str_starts(version, ours) ||
            (version[strlen(ours)] && version[strlen(ours)] != '.'))
            return tern_err_set(err, TERN_USAGE,
                                "%s is of Slurm %s, and this tern was built for %s. Name a Slurm "
                                "of that release by --slurm PREFIX, or build tern for this one: "
                                "make SLURM_PREFIX=...",
                                daemons[i], *version ? version : "(unknown version)", ours);
    }
    return 0;
}

/* Where srun, sbatch and the others of this Slurm are. */
static void find_commands(struct tern_vcluster_plan *p)
{
    char *sbin = tern_fs_dirname(p->slurmctld), *top = tern_fs_dirname(sbin);
    char *folders = tern_strf("%s/bin:%s:/usr/bin", strcmp(top, "/") == 0 ? "" : top, sbin);
    char *srun = find_in(folders, "srun");

    char *folder = srun ? tern_fs_dirname(srun) : NULL;
    p->bin = folder ? realpath(folder, NULL) : NULL; /* /bin is /usr/bin */
    if (!p->bin)
        p->bin = tern_strdup("/usr/bin");
    free(folder);
    free(srun);
    free(folders);
    free(top);
    free(sbin);
}

int tern_vcluster_programs_find(struct tern_vcluster_plan *p, const char *prefix, bool accounting,
                                struct tern_err *err)
{
    if (find_programs(p, prefix, accounting, err) < 0 || check_release(p, err) < 0)
        return -1;
    find_commands(p);
    return 0;
}

char *tern_vcluster_programs_path(const char *path, const char *bin)
{
    char *first = find_in(path, "srun"), *real = first ? realpath(first, NULL) : NULL;
    char *own = tern_strf("%s/srun", bin), *own_real = realpath(own, NULL);
    bool same = real && own_real && strcmp(real, own_real) == 0;

    free(first);
    free(real);
    free(own);
    free(own_real);
    return same || !*bin ? tern_strdup(path) : tern_strf("%s:%s", bin, path);
}

bool tern_vcluster_programs_non_system(const char *bin)
{
    return *bin && strcmp(bin, "/usr/bin") != 0;
}

#define SYSTEM_DIR "/etc/slurm"

static bool over_system(void)
{
    return access(SYSTEM_DIR, F_OK) == 0;
}

const char *tern_vcluster_programs_conf_dir(void)
{
    return over_system() ? SYSTEM_DIR : TERN_VCLUSTER_ROOT_CONF;
}

const char *tern_vcluster_programs_conf(const char *bin)
{
    if (!over_system())
        return TERN_VCLUSTER_ROOT_CONF "/slurm.conf";
    return tern_vcluster_programs_non_system(bin) ? SYSTEM_DIR "/slurm.conf" : NULL;
}

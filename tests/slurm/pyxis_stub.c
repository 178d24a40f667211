/* A SPANK plugin with three of pyxis's options, for workload.sh: srun says what it was given, and a
 * task whose image is a folder runs in there, with the host's programs, what is mounted, and
 * nothing else. */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(pyxis, 1)

enum { IMAGE, MOUNTS, WORKDIR, N };
static const char *const names[N] = {"container-image", "container-mounts", "container-workdir"};
static char *given[N];

static int take(int val, const char *arg, int remote)
{
    (void)remote;
    free(given[val]);
    given[val] = strdup(arg);
    return 0;
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    (void)ac, (void)av;
    for (int i = 0; i < N; i++) {
        struct spank_option o = {(char *)names[i], "X", "[pyxis_stub] taken, and told", 1, i, take};
        if (spank_option_register(sp, &o) != ESPANK_SUCCESS)
            return -1;
    }
    return 0;
}

int slurm_spank_local_user_init(spank_t sp, int ac, char **av)
{
    (void)sp, (void)ac, (void)av;
    if (given[IMAGE])
        slurm_spank_log("pyxis_stub: %s=%s %s=%s %s=%s ", names[IMAGE], given[IMAGE], names[MOUNTS],
                        given[MOUNTS] ? given[MOUNTS] : "", names[WORKDIR],
                        given[WORKDIR] ? given[WORKDIR] : "");
    return 0;
}

/* `src` at the image's `dst`, made if need be. */
static int bind_to(const char *src, const char *dst)
{
    char path[4096];
    struct stat st;

    if (stat(src, &st) < 0)
        return -1;
    snprintf(path, sizeof path, "%s%s", given[IMAGE], dst);
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
    if (S_ISDIR(st.st_mode))
        mkdir(path, 0755);
    else
        close(open(path, O_CREAT | O_WRONLY, 0644));
    return mount(src, path, NULL, MS_BIND | MS_REC, NULL);
}

int slurm_spank_task_init_privileged(spank_t sp, int ac, char **av)
{
    static const char *const host[] = {"/usr", "/bin", "/lib", "/lib64", "/proc", "/dev"};
    struct stat st;
    char *at = NULL;

    (void)sp, (void)ac, (void)av;
    if (!given[IMAGE] || stat(given[IMAGE], &st) < 0 || !S_ISDIR(st.st_mode))
        return 0;
    if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -1;
    for (size_t i = 0; i < sizeof host / sizeof *host; i++)
        if (bind_to(host[i], host[i]) < 0)
            return -1;
    for (char *m = strtok_r(given[MOUNTS], ",", &at); m; m = strtok_r(NULL, ",", &at)) {
        char *dst = strchr(m, ':');
        *dst++ = '\0';
        dst[strcspn(dst, ":")] = '\0';
        if (bind_to(m, dst) < 0)
            return -1;
    }
    return chroot(given[IMAGE]) < 0 || chdir(given[WORKDIR]) < 0 ? -1 : 0;
}

/* health=prolog: `tern health quick --prolog` before a job's first task on a node.  Runs as root.
 *
 * Only the job's number is used.  The environment, which holds the user's SPANK_* variables, is
 * rebuilt, not passed on.  Every failure lets the job start, except the verdict that the node is
 * bad. */
#include "plugin.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LIMIT_MS = 10000, /* the quick checks are to take 5 s */
    NODE_BAD = 3      /* the command's status for it; any other is no verdict on the node */
};

/* May only root (or the user of Slurm's daemons) change `path`?  In a sticky folder users can
 * replace only their own files. */
static bool is_safe(const char *path)
{
    struct stat st;

    if (lstat(path, &st) < 0 || (st.st_uid != 0 && st.st_uid != geteuid()))
        return false;
    if (S_ISDIR(st.st_mode) && (st.st_mode & S_ISVTX))
        return true;
    return !(st.st_mode & S_IWOTH) && (!(st.st_mode & S_IWGRP) || st.st_gid == 0);
}

/* The same of every folder above it too; `path` is absolute and has no links. */
static bool is_safe_all_up(const char *path)
{
    char part[PATH_MAX];

    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return false;
    while (part[1]) {
        if (!is_safe(part))
            return false;
        char *slash = strrchr(part, '/');
        slash[slash == part] = '\0';
    }
    return is_safe("/");
}

/* In the child: a file system that hangs must not block the prolog. */
static const char *find(const char *program)
{
    static char path[PATH_MAX];

    if (program[0] == '/' && realpath(program, path) && is_safe_all_up(path))
        return path;
    dprintf(2,
            "plugstack.conf: health=prolog needs tern=/PATH of a program that only root may "
            "change, and so for its folders (found '%s'); nothing is checked\n",
            program);
    return NULL;
}

/* A variable of slurmd's own, if it is there and sane. */
static void copy_variable(char to[PATH_MAX], const char *name)
{
    static const char sane[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/-";
    const char *value = getenv(name);

    to[0] = '\0';
    if (value && strspn(value, sane) == strlen(value) &&
        snprintf(to, PATH_MAX, "%s=%s", name, value) >= PATH_MAX)
        to[0] = '\0';
}

static int judge(struct tern_spank_child *c)
{
    if (c->late)
        slurm_error("tern: the node's health check took more than %d s and was ended; the job "
                    "starts",
                    LIMIT_MS / 1000);
    else if (WIFSIGNALED(c->status))
        slurm_error("tern: the node's health check ended by signal %d; the job starts",
                    WTERMSIG(c->status));
    else if (WEXITSTATUS(c->status) != 0 && WEXITSTATUS(c->status) != NODE_BAD)
        slurm_info("tern: the node's health check ended with %d, no verdict on the node; the job "
                   "starts",
                   WEXITSTATUS(c->status));
    tern_spank_repeat(c->said, "tern health: error: ");
    if (c->late || !WIFEXITED(c->status) || WEXITSTATUS(c->status) != NODE_BAD)
        return 0;
    slurm_error("tern: this node is bad: the job does not start here if plugstack.conf has the "
                "plugin as 'required'; as 'optional' it does");
    return -1;
}

int tern_spank_prolog(spank_t sp, const struct tern_spank_config *config)
{
    static char conf[PATH_MAX], node[PATH_MAX], job_id[32];
    static const char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    char *argv[] = {NULL, "health", "quick", "--prolog", NULL};
    char *env[] = {(char *)path, "LC_ALL=C.UTF-8", job_id, NULL, NULL, NULL};
    uint32_t job = 0;
    int n = 3;

    if (!config->health_prolog)
        return 0;
    spank_get_item(sp, S_JOB_ID, &job);
    snprintf(job_id, sizeof job_id, "SLURM_JOB_ID=%u", job);
    copy_variable(conf, "SLURM_CONF");
    copy_variable(node, "SLURMD_NODENAME");
    if (conf[0])
        env[n++] = conf;
    if (node[0])
        env[n++] = node;
    argv[0] = (char *)config->program;
    struct tern_spank_child c = {
        .program = config->program, .find = find, .argv = argv, .env = env, .limit_ms = LIMIT_MS};
    if (tern_spank_child(&c) == 0)
        return judge(&c);
    slurm_error("tern: cannot check the node's health: %s; the job starts", strerror(errno));
    return 0;
}

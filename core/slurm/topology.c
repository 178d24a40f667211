#include "core/slurm/topology.h"

#include "core/base/again.h"
#include "core/base/str.h"
#include "core/slurm/slurm.h"
#include "core/slurm/start.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct above {
    char name[128];
    char **hosts; /* sorted */
    size_t n;
    long level;
};

/* The value of `key` ("Nodes=") in a line of words, into `to`; false when it is not there. */
static bool value(const char *line, const char *key, char *to, size_t size)
{
    const size_t k = strlen(key);

    for (const char *w = line; *w; w += strcspn(w, " "), w += strspn(w, " "))
        if (strncmp(w, key, k) == 0) {
            size_t n = strcspn(w + k, " ");
            if (n == 0 || n >= size)
                return false;
            memcpy(to, w + k, n);
            to[n] = '\0';
            return true;
        }
    return false;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A switch with more nodes is higher; a spine with a single leaf differs by its level. */
static int compare_above(const void *x, const void *y)
{
    const struct above *a = x, *b = y;

    if (a->n != b->n)
        return a->n > b->n ? -1 : 1;
    if (a->level != b->level)
        return a->level > b->level ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* One line; *a stays empty when the line names no nodes. */
static int read_line(const char *line, struct above *a, struct tern_err *err)
{
    size_t size = strlen(line) + 1;
    char level[24], *list = tern_alloc(size, 1, "a switch's nodes", err);
    int rc = 0;

    if (!list)
        return -1;
    bool named = value(line, "SwitchName=", a->name, sizeof a->name) ||
                 value(line, "BlockName=", a->name, sizeof a->name) ||
                 value(line, "AggregatedBlock=", a->name, sizeof a->name);
    if (named && value(line, "Nodes=", list, size)) {
        rc = tern_slurm_hosts_expand(list, &a->hosts, &a->n, err);
        a->level = value(line, "Level=", level, sizeof level) ? strtol(level, NULL, 10) : 0;
        for (char *dot = a->name; (dot = strchr(dot, '.'));)
            *dot = '_'; /* dots separate */
    }
    free(list);
    if (rc == 0 && a->hosts)
        qsort(a->hosts, a->n, sizeof *a->hosts, compare_names);
    return rc;
}

static int read_all(char *text, struct above *all, size_t *n, struct tern_err *err)
{
    char *save = NULL;

    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (read_line(line, &all[*n], err) < 0)
            return -1;
        if (all[*n].hosts)
            (*n)++;
        else
            memset(&all[*n], 0, sizeof all[*n]);
    }
    return 0;
}

static char *place_of(const char *host, const struct above *all, size_t n)
{
    struct tern_buf b = {0};

    for (size_t i = 0; i < n; i++)
        if (bsearch(&host, all[i].hosts, all[i].n, sizeof *all[i].hosts, compare_names))
            tern_buf_printf(&b, "%s%s", b.len ? "." : "", all[i].name);
    return b.data ? b.data : tern_strdup("");
}

int tern_slurm_topology_parse(const char *text, char *const *hosts, size_t n, char ***where,
                              struct tern_err *err)
{
    char *copy = tern_strdup(text);
    size_t lines = 1, n_all = 0;
    int rc = -1;

    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    struct above *all = tern_alloc(lines + 1, sizeof *all, "switches", err);
    if (!all || read_all(copy, all, &n_all, err) < 0)
        goto out;
    qsort(all, n_all, sizeof *all, compare_above);
    char **w = tern_alloc(n + 1, sizeof *w, "nodes", err);
    if (!w)
        goto out;
    for (size_t i = 0; i < n; i++)
        w[i] = place_of(hosts[i], all, n_all);
    *where = w;
    rc = 0;
out:
    for (size_t i = 0; all && i < lines + 1; i++)
        tern_slurm_hosts_free(all[i].hosts);
    free(all);
    free(copy);
    return rc;
}

void tern_slurm_topology_free(char **where, size_t n)
{
    for (size_t i = 0; where && i < n; i++)
        free(where[i]);
    free(where);
}

/* ------------------------------------------------------------------ asking Slurm */

enum { MAX_TOPOLOGY = 64 << 20 }; /* bytes: a thousand times ten thousand nodes' */

/* Since 23.11 only a plugin can read the records, and the plugin needs symbols that libslurm does
 * not export.  It loads into Slurm's own programs alone.  So scontrol prints them, in every
 * release.
 */
static int print_topology(struct tern_buf *b, struct tern_err *err)
{
    char word[] = "scontrol", show[] = "show", what[] = "topology";
    char *argv[] = {word, show, what, NULL};
    posix_spawn_file_actions_t actions;
    int fds[2], status = 0;
    pid_t pid;

    if (TERN_AGAIN(pipe2(fds, O_CLOEXEC)) < 0)
        return tern_err_sys(err, "cannot make a pipe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int rc = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    char part[4096];
    for (ssize_t n = 1; rc == 0 && n;) {
        n = read(fds[0], part, sizeof part);
        if (n > 0 && b->len < MAX_TOPOLOGY)
            tern_buf_add(b, part, (size_t)n);
        else if (n < 0 && errno != EINTR)
            n = 0;
    }
    close(fds[0]);
    while (rc == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (rc)
        return tern_err_set(err, TERN_FAILED,
                            "cannot read the network's topology: scontrol: %s. Is it in PATH?",
                            strerror(rc));
    if (status)
        return tern_err_set(err, TERN_TEMPFAIL,
                            "cannot read the network's topology: 'scontrol show topology' fails");
    return tern_buf_check(b, "the network's topology", err);
}

int tern_slurm_topology_load(char *const *hosts, size_t n, char ***where, struct tern_err *err)
{
    struct tern_buf b = {0};

    int rc = tern_slurm_start(err) < 0 ? -1 : print_topology(&b, err);
    if (rc == 0)
        rc = tern_slurm_topology_parse(b.data ? b.data : "", hosts, n, where, err);
    tern_buf_free(&b);
    return rc;
}

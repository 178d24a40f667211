#include "core/run/command.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/retain/external.h"
#include "core/slurm/slurm.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Reserved on Trn1 images (net.ipv4.ip_local_reserved_ports), and in the published scripts. */
enum { MASTER_PORT = 44000 };

int64_t tern_run_workers(const struct tern_recipe *r, const struct tern_place *p)
{
    return r->workload.command
               ? r->workload.workers_per_node / r->workload.tasks_per_node * p->ranks_per_node
               : p->ranks_per_node;
}

/* ------------------------------------------------------------------ values */

enum { NUMBER = 24 };

struct values {
    const char *v[TERN_FILLS];
    char number[TERN_FILLS][NUMBER];
    char master[256];
};

static void set_number(struct values *x, enum tern_recipe_fill what, int64_t n)
{
    if (n <= 0) /* the recipe does not set this key */
        return;
    snprintf(x->number[what], NUMBER, "%" PRId64, n);
    x->v[what] = x->number[what];
}

/* A port of this machine that is free at present. */
static int64_t free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = TERN_AGAIN(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    int64_t port = MASTER_PORT;

    if (fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 &&
        getsockname(fd, (struct sockaddr *)&at, &len) == 0)
        port = ntohs(at.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

/* The workers' master: the one in the environment (of a profile or the user), else the first node.
 */
static int set_master(struct values *x, const struct tern_run_attempt *a, struct tern_err *err)
{
    const char *addr = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    char **hosts = NULL;
    size_t n = 0;

    if (!a->place.slurm) {
        snprintf(x->master, sizeof x->master, "%s", "127.0.0.1");
    } else if (!addr || !*addr) {
        if (tern_slurm_hosts_expand(a->place.node_list, &hosts, &n, err) < 0)
            return -1;
        snprintf(x->master, sizeof x->master, "%s", n ? hosts[0] : a->place.host);
        tern_slurm_hosts_free(hosts);
    }
    x->v[TERN_FILL_MASTER_ADDR] = addr && *addr ? addr : x->master;
    x->v[TERN_FILL_MASTER_PORT] = port;
    if (!port || !*port)
        set_number(x, TERN_FILL_MASTER_PORT, a->place.slurm ? MASTER_PORT : free_port());
    return 0;
}

static int set_all(struct values *x, const struct tern_run_attempt *a, struct tern_err *err)
{
    const struct tern_recipe *r = a->o->recipe;
    const bool precompile = strcmp(a->kind, "precompile") == 0;
    int64_t world = a->place.nodes * tern_run_workers(r, &a->place);
    int64_t model = r->parallel.tensor * r->parallel.pipeline;
    int64_t data = world % model == 0 ? world / model : 0, part = data * r->batch.micro;

    set_number(x, TERN_FILL_ATTEMPT, a->number);
    set_number(x, TERN_FILL_DATA, data);
    set_number(x, TERN_FILL_GLOBAL_BATCH, r->batch.global);
    set_number(x, TERN_FILL_MICRO_BATCH, r->batch.micro);
    if (part > 0 && r->batch.global % part == 0)
        set_number(x, TERN_FILL_ACCUMULATE, r->batch.global / part);
    set_number(x, TERN_FILL_NODES, a->place.nodes);
    set_number(x, TERN_FILL_PIPELINE, r->parallel.pipeline);
    set_number(x, TERN_FILL_TENSOR, r->parallel.tensor);
    set_number(x, TERN_FILL_SEQ_LEN, r->batch.seq_len);
    set_number(x, TERN_FILL_STEPS, precompile ? r->workload.precompile.steps : r->steps);
    set_number(x, TERN_FILL_WORKERS, r->workload.workers_per_node / r->workload.tasks_per_node);
    set_number(x, TERN_FILL_WORLD, world);
    x->v[TERN_FILL_RUN] = a->id;
    x->v[TERN_FILL_CACHE] = getenv("TERN_COMPILE_CACHE");
    /* A byte that no word has; replaced below. */
    x->v[TERN_FILL_NODE_INDEX] = a->place.slurm ? "\001" : "0";
    return set_master(x, a, err);
}

/* ------------------------------------------------------------------ words */

/* Text that a shell takes unquoted stays readable. */
static void quote(struct tern_buf *b, const char *word, const char *rank, int64_t tasks_per_node)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_@%+=:,./-";

    if (!*word)
        tern_buf_puts(b, "''");
    while (*word) {
        size_t len = strspn(word, plain);
        tern_buf_add(b, word, len);
        word += len;
        if (*word == '\001' && tasks_per_node == 1)
            tern_buf_printf(b, "\"$%s\"", rank);
        else if (*word == '\001')
            tern_buf_printf(b, "$((%s / %" PRId64 "))", rank, tasks_per_node);
        else if (*word == '\'')
            tern_buf_puts(b, "\\'");
        else if (*word) {
            len = strcspn(word, "'\001");
            tern_buf_printf(b, "'%.*s'", (int)len, word);
            word += len - 1;
        }
        word += *word != '\0';
    }
}

/* {"sh", "-c", "exec 'word' ..."} in the place of `words`, which are freed.  `rank` is the variable
 * with a task's number: ranks come in blocks, node after node. */
static char **by_shell(char **words, const char *rank, int64_t tasks_per_node, struct tern_err *err)
{
    struct tern_buf b = {.max = 1 << 20};
    char **out = tern_alloc(4, sizeof *out, "a command", err);

    tern_buf_puts(&b, "exec");
    for (char **w = words; *w; w++) {
        tern_buf_puts(&b, " ");
        quote(&b, *w, rank, tasks_per_node);
    }
    if (out && tern_buf_check(&b, "a command", err) == 0) {
        out[0] = tern_strdup("sh");
        out[1] = tern_strdup("-c");
        out[2] = tern_strdup(b.data);
    } else {
        free(out);
        out = NULL;
    }
    tern_buf_free(&b);
    tern_recipe_words_free(words);
    return out;
}

int tern_run_command_fill(const struct tern_run_attempt *a, char ***out, struct tern_err *err)
{
    const struct tern_recipe *r = a->o->recipe;
    char **command = a->command ? a->command : r->workload.command;
    const char *key = "workload.command";
    struct values x = {0};
    char **words = NULL;
    bool by_node = false;

    *out = NULL;
    if (command && command == r->workload.precompile.command)
        key = "workload.precompile.command";
    else if (!command || command != r->workload.command)
        return 0;

    if (set_all(&x, a, err) < 0 ||
        tern_recipe_fill(a->o->recipe, key, command, x.v, &words, err) < 0)
        return -1;
    for (char **w = words; *w; w++)
        by_node = by_node || strchr(*w, '\001');
    /* Under mpirun the tasks of srun are its daemons: SLURM_PROCID is theirs. */
    const char *rank =
        r->launch.with == TERN_LAUNCH_MPIRUN ? "OMPI_COMM_WORLD_RANK" : "SLURM_PROCID";
    if (by_node && !(words = by_shell(words, rank, a->place.ranks_per_node, err)))
        return -1;
    *out = words;
    return 0;
}

/* ------------------------------------------------------------------ containers */

enum { MOUNTS = 6 + TERN_RECIPE_EVENTS };

struct mounts {
    char *dir[MOUNTS];
    size_t n;
};

/* pyxis cannot express such paths. */
static int check_mount(const char *path, struct tern_err *err)
{
    if (!strpbrk(path, ",:"))
        return 0;
    return tern_err_set(err, TERN_USAGE,
                        "%s: cannot be mounted into the container: pyxis separates mounts by "
                        "commas and colons. Move it to another path.",
                        path);
}

static bool is_below(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    return strncmp(path, dir, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* Add `dir`, which may be NULL; it is made if it is absent, since only a folder can be mounted. */
static int add_mount(struct mounts *m, const char *dir, struct tern_err *err)
{
    if (!dir)
        return 0;
    if (tern_fs_mkdirs(dir, 0777, err) < 0)
        return -1;
    char *real = realpath(dir, NULL);
    if (!real)
        return tern_err_sys(err, "%s: cannot be mounted into the container", dir);
    if (check_mount(real, err) < 0) {
        free(real);
        return -1;
    }
    for (size_t i = 0; i < m->n; i++) {
        if (is_below(real, m->dir[i])) {
            free(real);
            return 0;
        }
        if (is_below(m->dir[i], real)) { /* the wider one takes its place */
            free(m->dir[i]);
            m->dir[i--] = m->dir[--m->n];
        }
    }
    m->dir[m->n++] = real;
    return 0;
}

/* The folder above the checkpoints of `pattern`. */
static char *glob_folder(const char *pattern)
{
    size_t n = pattern ? tern_retain_external_fixed(pattern) : 0;

    return n > 1 ? tern_strf("%.*s", (int)(n - 1), pattern) : NULL;
}

int tern_run_command_container(const struct tern_run_attempt *a, char **v, struct tern_err *err)
{
    const struct tern_recipe *r = a->o->recipe;
    struct mounts m = {0};
    struct tern_buf b = {0};
    char cwd[4096];
    int rc = -1;

    v[0] = NULL;
    if (!r->workload.container)
        return 0;
    if (!a->o->inside)
        tern_warn("%s: this tern was built without tern-inside (static libraries were missing): no "
                  "rank in the container is logged, and their metrics are not recorded",
                  r->workload.container);
    else if (check_mount(a->o->inside, err) < 0)
        return -1;
    char *home = tern_fs_dirname(a->o->recipe_path), *out = glob_folder(r->workload.progress.glob);
    if (!getcwd(cwd, sizeof cwd)) {
        tern_err_sys(err, "cannot determine the current folder");
        goto done;
    }
    const char *const dirs[] = {
        home, cwd, r->ledger.dir, r->checkpoint.dir, out, r->workload.precompile.cache};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        if (add_mount(&m, dirs[i], err) < 0)
            goto done;
    for (size_t i = 0; i < r->workload.metrics.n; i++)
        if (add_mount(&m, r->workload.metrics.v[i].tensorboard, err) < 0)
            goto done;
    for (size_t i = 0; i < m.n; i++)
        tern_buf_printf(&b, "%s%s:%s", i ? "," : "", m.dir[i], m.dir[i]);
    if (a->o->inside)
        tern_buf_printf(&b, ",%s:%s:ro", a->o->inside, a->o->inside);
    v[0] = tern_strf("--container-image=%s", r->workload.container);
    v[1] = tern_strf("--container-mounts=%s", b.data);
    v[2] = tern_strf("--container-workdir=%s", cwd);
    v[3] = NULL;
    rc = 0;
done:
    for (size_t i = 0; i < m.n; i++)
        free(m.dir[i]);
    tern_buf_free(&b);
    free(home);
    free(out);
    return rc;
}

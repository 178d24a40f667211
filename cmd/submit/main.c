/* tern submit: write the right sbatch line for a recipe, and run it. */
#include "cmd/cmd.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/check/check.h"
#include "core/ckpt/ckpt.h"
#include "core/recipe/recipe.h"
#include "core/slurm/slurm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct tern_opt_list overrides;
static bool dry_run, no_plugin;
static int64_t nodes = -1;

/* More than Slurm's MAX_SLURM_NODES ever was; products with ranks a node stay far below 2^63. */
enum { NODES_MAX = 1000000 };

static const struct tern_opt opts[] = {
    {"nodes", 'N', TERN_OPT_INT, "NODES", .to.integer = &nodes,
     .help = "nodes to ask for; default: the fewest that hold the recipe's tensor and pipeline "
             "degrees"},
    {"set", 0, TERN_OPT_LIST, "KEY=VALUE", .to.list = &overrides,
     .help = "change a key of the recipe, such as optimizer.lr=1e-4; may be given again"},
    {"dry-run", 0, TERN_OPT_FLAG, .to.flag = &dry_run, .help = "print the line, submit nothing"},
    {"no-plugin", 0, TERN_OPT_FLAG, .to.flag = &no_plugin,
     .help = "leave out --tern, for clusters without tern's Slurm plugin"},
    {0},
};

enum {
    OPTIONS_MAX = 200, /* of the user's; ours are some twenty */
    MAX_WORDS = 256,
    /* Time to finish a step and write a checkpoint; Slurm itself is up to 30 s late. */
    WARN_SECONDS = 120,
};

struct line {
    char *words[MAX_WORDS + 1];
    size_t n;
};

static void add(struct line *l, char *word)
{
    if (l->n < MAX_WORDS)
        l->words[l->n++] = word;
    else
        free(word);
}

/* `s` as one word of a shell. */
static void quote(struct tern_buf *b, const char *s)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./:=@%+,-";

    if (*s && s[strspn(s, plain)] == '\0') {
        tern_buf_puts(b, s);
        return;
    }
    tern_buf_puts(b, "'");
    for (; *s; s++)
        tern_buf_puts(b, *s == '\'' ? "'\\''" : (char[]){*s, '\0'});
    tern_buf_puts(b, "'");
}

/* The batch script's one line.  exec: the supervisor itself gets the batch script's signals. */
static char *script(const char *recipe)
{
    struct tern_buf b = {0};
    char self[4096] = "tern-submit";
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (n > 0)
        self[n] = '\0';
    char *folder = tern_fs_dirname(self), *tern = tern_strf("%s/tern", folder);
    tern_buf_puts(&b, "exec ");
    quote(&b, tern);
    tern_buf_puts(&b, " run");
    for (size_t i = 0; i < overrides.n; i++) {
        tern_buf_puts(&b, " --set ");
        quote(&b, overrides.values[i]);
    }
    tern_buf_puts(&b, " ");
    quote(&b, recipe);
    free(folder);
    free(tern);
    return b.data;
}

static void compose(struct line *l, const struct tern_recipe *r, const char *path, int64_t n_nodes,
                    int64_t per_node, int n_more, char **more)
{
    char id[TERN_CKPT_ULID];

    add(l, tern_strdup("sbatch"));
    add(l, tern_strf("--job-name=%s", r->name));
    add(l, tern_strf("--nodes=%" PRId64, n_nodes));
    add(l, tern_strf("--ntasks-per-node=%" PRId64, per_node));
    add(l, tern_strdup("--exclusive"));
    /* A lost node ends the attempt, not the job; a requeued job goes on in the same output. */
    add(l, tern_strdup("--no-kill"));
    add(l, tern_strdup("--requeue"));
    add(l, tern_strdup("--open-mode=append"));
    add(l, tern_strf("--signal=B:USR1@%d", (int)WARN_SECONDS));
    if (r->checkpoint.dir && tern_ckpt_run_read(r->checkpoint.dir, id, NULL) == 0)
        add(l, tern_strf("--comment=%s", id));
    if (!no_plugin)
        add(l, tern_strf("--tern=%s", path));
    for (int i = 0; i < n_more; i++)
        add(l, tern_strdup(more[i]));
    char *run = script(path);
    add(l, tern_strf("--wrap=%s", run));
    free(run);
}

static void print(const struct line *l)
{
    struct tern_buf b = {0};

    for (size_t i = 0; i < l->n; i++) {
        tern_buf_puts(&b, i ? " " : "");
        quote(&b, l->words[i]);
    }
    puts(b.data);
    tern_buf_free(&b);
}

/* Nodes that the recipe asks for, and whether the run works on them. */
static int shape(const struct tern_recipe *r, int64_t *n_nodes, int64_t *per_node,
                 struct tern_err *err)
{
    int64_t degrees = r->parallel.tensor * r->parallel.pipeline;

    *per_node = r->workload.command ? r->workload.tasks_per_node : r->launch.ranks_per_node;
    if (nodes == 0 || nodes > NODES_MAX)
        return tern_err_set(err, TERN_USAGE, "--nodes: from 1 to %d", NODES_MAX);
    *n_nodes = nodes > 0 ? nodes : (degrees + *per_node - 1) / *per_node;
    if (*n_nodes < 1)
        *n_nodes = 1;
    const struct tern_check_options known = {.submission = true, .ranks = *n_nodes * *per_node};
    return tern_check_recipe(r, &known, err);
}

static int run(int n, char **args, struct tern_err *err)
{
    struct line line = {0};
    struct tern_recipe *recipe = NULL;
    int64_t n_nodes = 0, per_node = 0;
    char *cwd = NULL, *path = NULL;
    int rc = -1;

    if (n - 1 > OPTIONS_MAX)
        return tern_err_set(err, TERN_USAGE, "more than %d options for sbatch", OPTIONS_MAX);
    cwd = getcwd(NULL, 0);
    if (!cwd)
        return tern_err_sys(err, "cannot tell the current folder");
    path = tern_fs_join(cwd, args[0]);
    recipe = tern_recipe_load(args[0], overrides.values, overrides.n, err);
    if (!recipe || shape(recipe, &n_nodes, &per_node, err) < 0)
        goto out;
    compose(&line, recipe, path, n_nodes, per_node, n - 1, args + 1);
    if (dry_run) {
        print(&line);
        rc = 0;
        goto out;
    }
    if (!tern_slurm_available()) {
        tern_err_set(err, TERN_FAILED,
                     "no Slurm configuration here. In a virtual cluster: `tern cluster exec NAME "
                     "-- tern submit ...`; without Slurm: `tern run %s`.",
                     args[0]);
        goto out;
    }
    execvp(line.words[0], line.words);
    tern_err_sys(err, "cannot run sbatch. Is this a login machine of a Slurm cluster?");
out:
    for (size_t i = 0; i < line.n; i++)
        free(line.words[i]);
    tern_recipe_free(recipe);
    free(path);
    free(cwd);
    return rc;
}

static const struct tern_cmd cmd = {
    .name = "submit",
    .args = "RECIPE [-- SBATCH-OPTION...]",
    .summary = "write and submit the right sbatch line for a recipe",
    .about =
        "Checks the recipe, then runs sbatch with the nodes and ranks that it asks for, with "
        "requeueing, one output file for all attempts, and a warning before the time limit, so "
        "that the run stops with a checkpoint. Options after -- are sbatch's own and win.",
    .examples = "  tern submit run.yaml -N 4 --dry-run\n"
                "  tern submit run.yaml -N 4 --set optimizer.lr=1e-4 -- --time=8:00:00 -p trn1\n",
    .opts = opts,
    .args_min = 1,
    .args_max = -1,
    .run = run,
};

int main(int argc, char **argv)
{
    return tern_cmd_main(&cmd, argc, argv);
}

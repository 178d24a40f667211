/* tern eval: perplexity of a checkpoint on the recipe's held-out sets. */
#include "cmd/cmd.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/fabric/fabric.h"
#include "core/infer/infer.h"
#include "core/recipe/recipe.h"
#include "core/tensor/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct tern_opt_list overrides;
static const char *checkpoint;
static bool json, only;

static const struct tern_opt opts[] = {
    {"checkpoint", 'c', TERN_OPT_TEXT, "PATH", "latest", .to.text = &checkpoint,
     .help = "a checkpoint or a Hugging Face folder; latest: the newest of checkpoint.dir; best: "
             "of its best evaluation (evaluate.stop)"},
    {"only", 0, TERN_OPT_FLAG, .to.flag = &only,
     .help = "leave out the model that the recipe begins from"},
    {"set", 0, TERN_OPT_LIST, "KEY=VALUE", .to.list = &overrides,
     .help = "change a key of the recipe; may be given again"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &json, .help = "print JSON"},
    {0},
};

/* Evaluate the weights at `path` on every held-out set: out [held_out.n]. */
static int evaluate(const struct tern_recipe *r, const char *path, struct tern_comm *comm,
                    struct tern_infer_eval *out, struct tern_err *err)
{
    const struct tern_recipe_sets *sets = &r->data.held_out;
    const int seq_len = (int)r->batch.seq_len, batch = (int)r->batch.micro;
    struct tern_infer_source source;
    struct tern_llama *m = NULL;
    int rc = -1;

    if (tern_infer_open(path, &source, err) < 0)
        return -1;
    if (seq_len > source.config.max_position) {
        tern_recipe_fail(r, "batch.seq_len", err,
                         "%d tokens, but %s was made for %d (max_position_embeddings).", seq_len,
                         path, source.config.max_position);
        goto out;
    }
    /* Rank 0 tells for all, which work at one speed. */
    if (tern_fabric_comm_rank(comm) == 0)
        tern_progress_begin("parameters", "%s", path);
    m = tern_llama_open(&(struct tern_llama_options){.config = &source.config,
                                                     .max_batch = batch,
                                                     .seq_len = seq_len,
                                                     .bf16 = r->precision == TERN_PRECISION_BF16},
                        err);
    if (!m || tern_infer_read(&source, m, err) < 0)
        goto out;
    for (size_t i = 0; i < sets->n; i++) {
        struct tern_data_set *set = tern_data_set_open(sets->sets[i].path, err);
        if (!set)
            goto out;
        struct tern_infer_group group = tern_infer_alone(m, comm, NULL);
        group.isolate = r->data.isolate;
        tern_progress_phase("tokens", sets->sets[i].name);
        int one = tern_infer_evaluate(&group, set, (uint32_t)seq_len, batch, comm, &out[i], err);
        tern_data_set_free(set);
        if (one > 0)
            tern_err_set(err, TERN_FAILED, "another rank failed; its message says why");
        if (one)
            goto out;
    }
    rc = 0;
out:
    tern_progress_end();
    tern_llama_free(m);
    tern_infer_close(&source);
    return rc;
}

/* The path of --checkpoint, malloc'ed. */
static char *resolve(const struct tern_recipe *r, struct tern_err *err)
{
    bool word = strcmp(checkpoint, "latest") == 0 || strcmp(checkpoint, "best") == 0;
    char *path = NULL,
         *typed = word ? tern_fs_join(r->checkpoint.dir, checkpoint) : tern_strdup(checkpoint);

    if (tern_str_ends(typed, "/latest") || tern_str_ends(typed, "/best"))
        tern_ckpt_resolve(typed, &path, err);
    else
        path = tern_strdup(typed);
    free(typed);
    return path;
}

/* Rank 0 resolves the path, so that all ranks read the same one while newer ones appear. malloc'ed.
 */
static char *agree_on_path(const struct tern_recipe *r, struct tern_comm *world,
                           struct tern_err *err)
{
    char shared[1024] = "", *path = tern_fabric_comm_rank(world) == 0 ? resolve(r, err) : NULL;

    if (path && strlen(path) >= sizeof shared) {
        tern_err_set(err, TERN_USAGE, "%s: the path is too long", path);
        free(path);
        path = NULL;
    }
    if (path)
        memcpy(shared, path, strlen(path));
    free(path);
    struct tern_err lost;
    if (tern_fabric_broadcast(world, shared, sizeof shared, TERN_U8, 0, &lost) < 0) {
        *err = lost;
        return NULL;
    }
    if (!*shared && tern_fabric_comm_rank(world) != 0)
        tern_err_set(err, TERN_USAGE, "rank 0 found no checkpoint");
    return *shared ? tern_strdup(shared) : NULL;
}

static double per_byte(const struct tern_infer_eval *e)
{
    return e->bytes ? exp(e->nll / (double)e->bytes) : NAN;
}

static json_t *as_json(const struct tern_infer_eval *e)
{
    json_t *j = json_object();

    tern_json_set_real(j, "nll", "class", e->nll);
    json_object_set_new(j, "tokens", json_integer((json_int_t)e->tokens));
    json_object_set_new(j, "bytes", json_integer((json_int_t)e->bytes));
    tern_json_set_real(j, "ppl_token", "ppl_token_class", exp(e->nll / (double)e->tokens));
    tern_json_set_real(j, "ppl_byte", "ppl_byte_class", per_byte(e));
    return j;
}

static int print(const struct tern_recipe *r, const struct tern_infer_eval *before,
                 const struct tern_infer_eval *after, const char *path, struct tern_err *err)
{
    const struct tern_recipe_sets *sets = &r->data.held_out;
    json_t *all = json_object();

    json_object_set_new(all, "checkpoint", json_string(path));
    if (!json) {
        printf("%-16s %12s  %22s  %22s\n", "", "", "perplexity a token", "perplexity a byte");
        printf("%-16s %12s  %10s %11s  %10s %11s\n", "set", "tokens", before ? "before" : "",
               "after", before ? "before" : "", "after");
    }
    for (size_t i = 0; i < sets->n; i++) {
        const struct tern_infer_eval *b = before ? &before[i] : NULL, *a = &after[i];
        json_t *row = json_object();
        if (b)
            json_object_set_new(row, "before", as_json(b));
        json_object_set_new(row, "after", as_json(a));
        json_object_set_new(all, sets->sets[i].name, row);
        if (json)
            continue;
        char ppl[2][24] = {"", ""};
        if (b) {
            snprintf(ppl[0], sizeof ppl[0], "%.2f", exp(b->nll / (double)b->tokens));
            if (b->bytes)
                snprintf(ppl[1], sizeof ppl[1], "%.3f", per_byte(b));
        }
        char after_byte[24] = "";
        if (a->bytes)
            snprintf(after_byte, sizeof after_byte, "%.3f", per_byte(a));
        printf("%-16s %12llu  %10s %11.2f  %10s %11s\n", sets->sets[i].name,
               (unsigned long long)a->tokens, ppl[0], exp(a->nll / (double)a->tokens), ppl[1],
               after_byte);
    }
    int rc = json ? tern_json_print(stdout, all, err) : 0;
    json_decref(all);
    return rc;
}

static int run(int n, char **args, struct tern_err *err)
{
    struct tern_fabric *fabric = NULL;
    struct tern_infer_eval *before = NULL, *after = NULL;
    char *path = NULL;
    int rc = -1;
    struct tern_recipe *r = tern_recipe_load(args[0], overrides.values, overrides.n, err);

    (void)n;
    if (!r)
        return -1;
    if (r->workload.command) {
        tern_recipe_fail(r, "workload.command", err,
                         "this recipe's trainer is not tern's: what it wrote cannot be read.");
        goto out;
    }
    if (r->data.held_out.n == 0) {
        tern_recipe_fail(r, "data.held_out", err, "names no set to evaluate on.");
        goto out;
    }
    before = tern_alloc(r->data.held_out.n, sizeof *before, "results", err);
    after = tern_alloc(r->data.held_out.n, sizeof *after, "results", err);
    if (!before || !after ||
        tern_tensor_start((int)r->launch.threads, (int)r->launch.ranks_per_node, err) < 0)
        goto out;
    fabric = tern_fabric_open(
        &(struct tern_fabric_options){.transport =
                                          r->launch.fabric == TERN_CARRY_MPI ? "mpi" : NULL},
        err);
    if (!fabric)
        goto out;
    tern_fabric_set_activity(fabric, TERN_FABRIC_EVALUATES, TERN_FABRIC_STORAGE_S);
    struct tern_comm *world = tern_fabric_world(fabric);
    path = agree_on_path(r, world, err);
    if (!path)
        goto out;
    bool compare = !only && r->model.from && tern_fs_exists(r->model.from);
    if ((compare && evaluate(r, r->model.from, world, before, err) < 0) ||
        evaluate(r, path, world, after, err) < 0)
        goto out;
    rc = tern_fabric_rank(fabric) ? 0 : print(r, compare ? before : NULL, after, path, err);
out:
    tern_fabric_close(fabric);
    free(path);
    free(before);
    free(after);
    tern_recipe_free(r);
    return rc;
}

static const struct tern_cmd cmd = {
    .name = "eval",
    .args = "RECIPE",
    .summary = "perplexity of a checkpoint on the recipe's held-out sets",
    .about = "Evaluates the model that the recipe begins from and a checkpoint of its run, row by "
             "row of batch.seq_len tokens. Runs on one machine if you call it directly, and on all "
             "ranks of a job with `srun --mpi=pmix tern eval RECIPE`.",
    .examples = "  tern eval run.yaml\n  srun --mpi=pmix tern eval run.yaml --checkpoint "
                "checkpoints/step-00000100\n",
    .opts = opts,
    .args_min = 1,
    .args_max = 1,
    .run = run,
};

int main(int argc, char **argv)
{
    return tern_cmd_main(&cmd, argc, argv);
}

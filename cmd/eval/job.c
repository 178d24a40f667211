/* The recipe, the sets and the ranks of an evaluation, and one model on one set. */
#include "cmd/eval/eval.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/site/site.h"
#include "core/tensor/tensor.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct eval_options eval;

bool eval_job_first(const struct eval_job *j)
{
    return tern_fabric_comm_rank(j->world) == 0;
}

int eval_job_agree(const struct eval_job *j, int rc, struct tern_err *err)
{
    int32_t code = rc < 0 ? (int32_t)err->code : 0;
    struct tern_err lost;

    if (tern_fabric_all_reduce(j->world, &code, 1, TERN_I32, TERN_MAX, &lost) < 0) {
        if (rc == 0)
            *err = lost;
        return -1;
    }
    if (code && rc == 0)
        tern_err_set(err, TERN_FAILED, "another rank failed; its message says why");
    if (code)
        err->code = (enum tern_code)code;
    return code ? -1 : 0;
}

int eval_job_share_path(const struct eval_job *j, char **path, struct tern_err *err)
{
    char shared[PATH_MAX] = "";
    struct tern_err lost;
    int rc = 0;

    if (eval_job_first(j) && *path) {
        if (strlen(*path) >= sizeof shared)
            rc = tern_err_set(err, TERN_USAGE, "%s: the path is too long", *path);
        else
            snprintf(shared, sizeof shared, "%s", *path);
    }
    if (eval_job_agree(j, rc, err) < 0)
        return -1;
    if (tern_fabric_broadcast(j->world, shared, sizeof shared, TERN_U8, 0, &lost) < 0) {
        *err = lost;
        return -1;
    }
    free(*path);
    *path = *shared ? tern_strdup(shared) : NULL;
    return 0;
}

/* ---------------------------------------------------------------- the run and its recipe */

/* --ledger, TERN_LEDGER, the site's, or the one here; NULL with `err`.  malloc'ed. */
static char *named_ledger(struct tern_err *err)
{
    return eval.ledger ? tern_strdup(eval.ledger) : tern_site_find_ledger(err);
}

static int open_run(struct eval_run *run, const char *ledger, const char *typed,
                    struct tern_err *err)
{
    if (tern_ledger_locate(ledger, typed, /* job= */ NULL, &run->home, run->id, err) < 0)
        return -1;
    run->ledger = tern_ledger_open_run(run->home, run->id, err);
    if (!run->ledger || tern_ledger_runs(run->ledger, &run->runs, err) < 0)
        return -1;
    return run->runs.n && run->runs.runs[0].recipe
               ? 0
               : tern_err_set(err, TERN_USAGE, "%s: the ledger has no recipe of run %s", run->home,
                              run->id);
}

static bool is_file(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* The run of a recipe's file, where it has one: by the identity of its checkpoint folder. */
static void find_run(struct eval_job *j)
{
    const struct tern_recipe *r = j->recipe;
    char *ledger = r->ledger.dir ? tern_strdup(r->ledger.dir) : named_ledger(NULL);
    char id[TERN_CKPT_ULID];
    struct tern_err why = {0};

    if (!ledger)
        tern_warn("no ledger is named, in the recipe or by --ledger: nothing is recorded");
    else if (tern_ckpt_run_read(r->checkpoint.dir, id, &why) != 0)
        tern_warn("%s: has no run's identity: nothing is recorded", r->checkpoint.dir);
    else if (open_run(&j->run, ledger, id, &why) < 0) {
        tern_warn("%s: nothing is recorded", why.text);
        tern_ledger_close(j->run.ledger);
        j->run.ledger = NULL;
    }
    free(ledger);
}

static int read_recipe(struct eval_job *j, const char *typed, struct tern_err *err)
{
    const size_t n = eval.overrides.n;

    if (!eval.checkpoints || is_file(typed)) {
        j->recipe = tern_recipe_load(typed, eval.overrides.values, n, err);
        return j->recipe ? 0 : -1;
    }
    char *ledger = named_ledger(err);
    int rc = ledger ? open_run(&j->run, ledger, typed, err) : -1;
    free(ledger);
    if (rc < 0)
        return -1;
    const struct tern_ledger_run *run = &j->run.runs.runs[0];
    j->recipe = tern_recipe_recorded(run->recipe_path ? run->recipe_path : "run.yaml", run->recipe,
                                     eval.overrides.values, n, err);
    return j->recipe ? 0 : -1;
}

/* ---------------------------------------------------------------- sets */

static int add_set(struct eval_job *j, char *name, char *path, struct tern_err *err)
{
    uint8_t digest[TERN_SHA256_BYTES];
    struct eval_set *s = &j->sets[j->n_sets];

    if (j->n_sets == EVAL_SETS_MAX) {
        free(name);
        free(path);
        return tern_err_set(err, TERN_USAGE, "more than %d held-out sets", EVAL_SETS_MAX);
    }
    for (size_t i = 0; i < j->n_sets; i++)
        if (strcmp(j->sets[i].name, name) == 0) {
            tern_err_set(err, TERN_USAGE,
                         "--data %s=%s: there is a set of that name already. Give it another.",
                         name, path);
            free(name);
            free(path);
            return -1;
        }
    *s = (struct eval_set){.name = name, .path = path};
    j->n_sets++;
    if (eval.json && !eval.checkpoints && strcmp(name, "checkpoint") == 0)
        return tern_err_set(err, TERN_USAGE,
                            "a held-out set is called checkpoint, and in --json that is the path "
                            "of the weights. Give the set another name (--set, --data), or leave "
                            "out --json.");
    s->set = tern_data_set_open(path, err);
    if (!s->set)
        return -1;
    tern_data_set_digest(s->set, digest);
    tern_hex(s->sha256, digest, sizeof digest);
    return 0;
}

static int open_sets(struct eval_job *j, struct tern_err *err)
{
    const struct tern_recipe *r = j->recipe;

    for (size_t i = 0; i < r->data.held_out.n; i++) {
        const struct tern_recipe_set *s = &r->data.held_out.sets[i];
        if (add_set(j, tern_strdup(s->name), tern_strdup(s->path), err) < 0)
            return -1;
    }
    for (size_t i = 0; i < eval.data.n; i++) {
        const char *eq = strchr(eval.data.values[i], '=');
        if (!eq || eq == eval.data.values[i] || !eq[1])
            return tern_err_set(err, TERN_USAGE, "--data %s: wanted NAME=FILE.tds",
                                eval.data.values[i]);
        char *name = tern_strf("%.*s", (int)(eq - eval.data.values[i]), eval.data.values[i]);
        if (add_set(j, name, tern_strdup(eq + 1), err) < 0)
            return -1;
    }
    return j->n_sets ? 0
                     : tern_recipe_fail(r, "data.held_out", err,
                                        "names no set to evaluate on. Name one by --data "
                                        "NAME=FILE.tds.");
}

/* ---------------------------------------------------------------- opening */

int eval_job_open(struct eval_job *j, const char *typed, const struct tern_fabric_options *fabric,
                  struct tern_err *err)
{
    struct tern_fabric_options o = *fabric;

    if (read_recipe(j, typed, err) < 0)
        return -1;
    const struct tern_recipe *r = j->recipe;
    if (r->workload.command)
        return tern_recipe_fail(r, "workload.command", err,
                                "this recipe's trainer is not tern's: what it wrote cannot be "
                                "read.");
    if (open_sets(j, err) < 0)
        return -1;
    const int per_node = eval.ranks > 0 ? (int)eval.ranks : (int)r->launch.ranks_per_node;
    if (tern_tensor_start((int)r->launch.threads, per_node, err) < 0)
        return -1;
    o.transport = r->launch.fabric == TERN_CARRY_MPI ? "mpi" : NULL;
    j->fabric = tern_fabric_open(&o, err);
    if (!j->fabric)
        return -1;
    tern_fabric_set_activity(j->fabric, TERN_FABRIC_EVALUATES, TERN_FABRIC_STORAGE_S);
    j->world = tern_fabric_world(j->fabric);
    if (eval.checkpoints && eval_job_first(j) && !j->run.ledger)
        find_run(j);
    return 0;
}

void eval_job_close(struct eval_job *j)
{
    tern_fabric_close(j->fabric);
    for (size_t i = 0; i < j->n_sets; i++) {
        free(j->sets[i].name);
        free(j->sets[i].path);
        tern_data_set_free(j->sets[i].set);
    }
    tern_ledger_rows_free(&j->run.runs);
    tern_ledger_close(j->run.ledger);
    free(j->run.home);
    tern_recipe_free(j->recipe);
}

/* ---------------------------------------------------------------- one model */

/* *ret_unread: what is at `path` is at fault. */
static struct tern_llama *load(const struct eval_job *j, const char *path, bool *ret_unread,
                               struct tern_err *err)
{
    const struct tern_recipe *r = j->recipe;
    struct tern_infer_source source;
    struct tern_llama *m = NULL;
    bool good = false;

    *ret_unread = false;
    if (tern_infer_open(path, &source, err) < 0) {
        *ret_unread = err->code != TERN_TEMPFAIL;
        return NULL;
    }
    if (r->batch.seq_len > source.config.max_position) {
        tern_recipe_fail(r, "batch.seq_len", err,
                         "%d tokens, but %s was made for %d (max_position_embeddings).",
                         (int)r->batch.seq_len, path, source.config.max_position);
        goto out;
    }
    m = tern_llama_open(&(struct tern_llama_options){.config = &source.config,
                                                     .max_batch = (int)r->batch.micro,
                                                     .seq_len = (int)r->batch.seq_len,
                                                     .bf16 = r->precision == TERN_PRECISION_BF16},
                        err);
    good = m && tern_infer_read(&source, m, err) == 0;
    *ret_unread = m && !good && err->code != TERN_TEMPFAIL;
out:
    tern_infer_close(&source);
    if (!good)
        tern_llama_free(m);
    return good ? m : NULL;
}

/* After a failure: the lowest rank that cannot read the weights; -1 where one failed otherwise. */
static int find_unread(const struct eval_job *j, bool failed, bool unread)
{
    /* The greatest: did a rank fail otherwise, and the lowest of the others. */
    int32_t v[2] = {failed && !unread, unread ? -tern_fabric_comm_rank(j->world) : -INT32_MAX};

    if (tern_fabric_all_reduce(j->world, v, 2, TERN_I32, TERN_MAX, NULL) < 0 || v[0])
        return -1;
    return v[1] == -INT32_MAX ? -1 : -v[1];
}

struct tern_llama *eval_job_load(const struct eval_job *j, const char *path, int *ret_unread,
                                 struct tern_err *err)
{
    bool unread;

    /* Rank 0 tells for all, which work at one speed. */
    if (eval_job_first(j))
        tern_progress_begin("parameters", "%s", path);
    struct tern_llama *m = load(j, path, &unread, err);
    if (eval_job_agree(j, m ? 0 : -1, err) < 0) {
        *ret_unread = find_unread(j, /* failed= */ !m, unread);
        tern_progress_end();
        tern_llama_free(m);
        return NULL;
    }
    return m;
}

int eval_job_measure(const struct eval_job *j, struct tern_llama *m, size_t i,
                     struct tern_infer_eval *ret_eval, struct tern_err *err)
{
    const struct tern_recipe *r = j->recipe;
    struct tern_infer_group group = tern_infer_alone(m, j->world, NULL);

    group.isolate = r->data.isolate;
    tern_progress_phase("tokens", j->sets[i].name);
    int rc = tern_infer_evaluate(&group, j->sets[i].set, (uint32_t)r->batch.seq_len,
                                 (int)r->batch.micro, j->world, ret_eval, err);
    if (rc > 0)
        tern_err_set(err, TERN_FAILED, "another rank failed; its message says why");
    else if (rc == 0 && ret_eval->tokens == 0)
        rc = tern_err_set(err, TERN_USAGE, "%s: every target is masked, so that there is no loss.",
                          j->sets[i].path);
    return rc ? -1 : 0;
}

double eval_per_token(const struct tern_infer_eval *e)
{
    return exp(e->nll / (double)e->tokens);
}

double eval_per_byte(const struct tern_infer_eval *e)
{
    return e->bytes ? exp(e->nll / (double)e->bytes) : NAN;
}

json_t *eval_json(const struct tern_infer_eval *e)
{
    json_t *j = json_object();

    tern_json_set_real(j, "nll", "class", e->nll);
    json_object_set_new(j, "tokens", json_integer((json_int_t)e->tokens));
    json_object_set_new(j, "bytes", json_integer((json_int_t)e->bytes));
    tern_json_set_real(j, "ppl_token", "ppl_token_class", eval_per_token(e));
    tern_json_set_real(j, "ppl_byte", "ppl_byte_class", eval_per_byte(e));
    return j;
}

/* The run's length, and the keys of tern's own trainer. */
#include "core/recipe/keys.h"
#include "core/recipe/lists.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------ steps, epochs, tokens */

int tern_recipe_read_length(struct tern_recipe *r, struct tern_err *err)
{
    static const char *const names[] = {"steps", "epochs", "tokens"};
    struct tern_yaml_node *n[3], *wrong = NULL;
    size_t given = 0, set = 0;
    bool use[3];

    if (tern_recipe_look_up(r, "schedule.epochs", &wrong, err) < 0)
        return -1;
    if (wrong)
        return tern_yaml_fail(wrong, err,
                              "the run's length stands at the top, 'epochs: %s' in place of "
                              "'steps', and the schedule follows it.",
                              tern_yaml_text(wrong) ? tern_yaml_text(wrong) : "3");
    for (size_t i = 0; i < 3; i++) {
        if (tern_recipe_look_up(r, names[i], &n[i], err) < 0)
            return -1;
        given += n[i] != NULL;
        set += n[i] && tern_yaml_line(n[i]) == 0;
    }
    for (size_t i = 0; i < 3; i++) /* --set overrides the file */
        use[i] = n[i] && (set == 0 || tern_yaml_line(n[i]) == 0);
    if (given > 1 && set != 1)
        return tern_recipe_fail(r, n[2] ? names[2] : names[1], err,
                                "the run's length is given twice. Give one of steps, epochs and "
                                "tokens.");
    r->steps = use[0] ? r->steps : 0;
    r->epochs = use[1] ? r->epochs : 0;
    r->tokens = use[2] ? r->tokens : 0;
    return 0;
}

/* In whole steps: the last one may go a little beyond `samples`. */
static int set_steps(struct tern_recipe *r, const char *key, double samples, struct tern_err *err)
{
    double steps = ceil(samples / (double)r->batch.global - 1e-9);

    if (steps > TERN_RECIPE_STEPS_MAX)
        return tern_recipe_fail(r, key, err, "these are %.0f steps; at most %d are allowed.", steps,
                                TERN_RECIPE_STEPS_MAX);
    r->steps = steps < 1 ? 1 : (int64_t)steps;
    return 0;
}

static int needs_batch(const struct tern_recipe *r, const char *key, struct tern_err *err)
{
    if (r->batch.global && r->batch.seq_len)
        return 0;
    return tern_recipe_fail(r, key, err,
                            "needs batch.global and batch.seq_len, which define a step.");
}

int tern_recipe_resolve(struct tern_recipe *r, uint64_t rows, struct tern_err *err)
{
    double all = 0;

    if (r->epochs <= 0)
        return 0;
    const struct tern_recipe_sets *s = &r->data.stages[0].train;
    for (size_t i = 0; i < s->n; i++)
        all += s->sets[i].weight;
    if (set_steps(r, "epochs", r->epochs * (double)rows * (all / s->sets[0].weight), err) < 0)
        return -1;
    return r->workload.command ? 0 : tern_recipe_check_length(r, err);
}

int tern_recipe_end_stage(struct tern_recipe *r, size_t k, int64_t end,
                          const struct tern_recipe_set *set, struct tern_err *err)
{
    struct tern_recipe_stage *s = &r->data.stages[k];
    const int64_t begin = k ? r->data.stages[k - 1].until : 0;
    const bool last = !s->until || s->until >= r->steps;

    if (end <= begin)
        return tern_recipe_fail(r, s->key, err,
                                "%s is exhausted before the first step of its stage is whole. "
                                "Raise its 'epochs', or let it repeat.",
                                set->path);
    s->asked = last ? r->steps : s->until;
    s->exhausted = set;
    if (s->until)
        s->until = end;
    if (!last)
        return 0;
    r->asked_steps = r->steps;
    r->steps = end;
    return tern_recipe_check_length(r, err);
}

static int check_stages(const struct tern_recipe *r, struct tern_err *err)
{
    const size_t n = r->data.n_stages;

    if (n && r->data.stages[n - 1].until && r->data.stages[n - 1].until < r->steps)
        return tern_recipe_fail(r, "data.stages", err,
                                "the last stage ends at step %" PRId64 ", but the run has %" PRId64
                                ". Leave out its 'until'.",
                                r->data.stages[n - 1].until, r->steps);
    return 0;
}

int tern_recipe_check_length(const struct tern_recipe *r, struct tern_err *err)
{
    if (tern_recipe_check_schedule(r, err) < 0)
        return -1;
    return r->steps ? check_stages(r, err) : 0;
}

int tern_recipe_find_length(struct tern_recipe *r, struct tern_err *err)
{
    if (r->tokens > 0) {
        if (needs_batch(r, "tokens", err) < 0)
            return -1;
        return set_steps(r, "tokens", r->tokens / (double)r->batch.seq_len, err);
    }
    if (r->epochs <= 0)
        return 0;
    if (r->data.n_stages > 1)
        return tern_recipe_fail(r, "epochs", err,
                                "data.stages are counted in steps: give steps or tokens.");
    if (r->data.n_stages == 0)
        return tern_recipe_fail(r, "epochs", err, "needs data.train, whose rows it counts.");
    return needs_batch(r, "epochs", err);
}

/* ------------------------------------------------------------------ tern's own trainer */

static int missing(const struct tern_recipe *r, const char *key, const char *example,
                   struct tern_err *err)
{
    return tern_recipe_fail(r, key, err, "is missing. For example: %s", example);
}

static int check_there(const struct tern_recipe *r, struct tern_err *err)
{
    if (!r->model.from == !r->model.config)
        return tern_recipe_fail(r, "model", err,
                                "give either 'from' (weights to start from) or 'config' (random "
                                "weights).");
    if (r->data.n_stages == 0 || r->data.stages[0].train.n == 0)
        return missing(r, "data.train", "data: {train: [{path: text.tds}]}", err);
    if (r->batch.global == 0)
        return missing(r, "batch.global", "batch: {global: 64, micro: 1, seq_len: 4096}", err);
    if (r->batch.seq_len == 0)
        return missing(r, "batch.seq_len", "batch: {global: 64, micro: 1, seq_len: 4096}", err);
    if (r->steps == 0 && r->epochs <= 0)
        return missing(r, "steps", "steps: 1000 (or epochs: 3, or tokens: 88e9)", err);
    if (!r->checkpoint.dir)
        return missing(r, "checkpoint.dir", "checkpoint: {dir: checkpoints, every: 100}", err);
    if (r->batch.global % r->batch.micro)
        return tern_recipe_fail(r, "batch.global", err,
                                "%" PRId64 " is not a multiple of batch.micro (%" PRId64 ").",
                                r->batch.global, r->batch.micro);
    return 0;
}

static int check_lora(const struct tern_recipe *r, struct tern_err *err)
{
    if (!r->lora.rank)
        return tern_recipe_given(r, "lora")
                   ? missing(r, "lora.rank", "lora: {rank: 16, alpha: 16}", err)
                   : 0;
    if (r->model.optimizer == TERN_OPTIMIZER_KEEP)
        return tern_recipe_fail(r, "model.optimizer", err,
                                "'keep', but adapters are new and have no moments yet. Say "
                                "'reset'.");
    return 0;
}

static int check_degrees(const struct tern_recipe *r, struct tern_err *err)
{
    if (r->parallel.sequence && r->parallel.tensor == 1)
        return tern_recipe_fail(r, "parallel.sequence", err,
                                "without parallel.tensor there are no ranks to cut the tokens "
                                "over. Take it out.");
    if (r->parallel.sequence && r->batch.micro * r->batch.seq_len % r->parallel.tensor)
        return tern_recipe_fail(r, "parallel.sequence", err,
                                "batch.micro x batch.seq_len (%" PRId64 ") tokens do not divide "
                                "over %" PRId64 " tensor ranks.",
                                r->batch.micro * r->batch.seq_len, r->parallel.tensor);
    if (r->parallel.interleave > 1 && r->parallel.pipeline == 1)
        return tern_recipe_fail(r, "parallel.interleave", err,
                                "without parallel.pipeline there is nothing to interleave. Take it "
                                "out.");
    return 0;
}

static int check_rounding(const struct tern_recipe *r, struct tern_err *err)
{
    if (!r->optimizer.stochastic_rounding)
        return 0;
    if (r->precision != TERN_PRECISION_BF16)
        return tern_recipe_fail(r, "optimizer.stochastic_rounding", err,
                                "without precision: bf16 no parameter is rounded. Take it out.");
    if (r->lora.rank)
        return tern_recipe_fail(r, "optimizer.stochastic_rounding", err,
                                "adapters are fp32: nothing that is trained is rounded. Take it "
                                "out.");
    return 0;
}

static int check_stop(const struct tern_recipe *r, struct tern_err *err)
{
    const struct tern_recipe_sets *sets = &r->data.held_out;
    const char *metric = r->evaluate.stop.metric;
    size_t i = 0;

    if (!metric)
        return tern_recipe_given(r, "evaluate.stop")
                   ? missing(r, "evaluate.stop.metric", "stop: {metric: pubmed, patience: 3}", err)
                   : 0;
    while (i < sets->n && strcmp(sets->sets[i].name, metric) != 0)
        i++;
    if (i == sets->n)
        return tern_recipe_fail(r, "evaluate.stop.metric", err,
                                "'%s' is not the name of a set in data.held_out.", metric);
    if (r->evaluate.every == 0)
        return tern_recipe_fail(r, "evaluate.stop", err,
                                "without evaluate.every there is one evaluation, and that is at "
                                "the end.");
    return 0;
}

static int check_packing(const struct tern_recipe *r, struct tern_err *err)
{
    if (r->data.longer == TERN_LONGER_CUT || r->data.packing != TERN_PACKING_CONCAT)
        return 0;
    return tern_recipe_fail(r, "data.longer", err,
                            "is for packing best-fit and padded; concat cuts where a row ends. "
                            "Change data.packing, or take it out.");
}

int tern_recipe_check_trainer(const struct tern_recipe *r, struct tern_err *err)
{
    if (check_there(r, err) < 0 || check_lora(r, err) < 0 || check_degrees(r, err) < 0 ||
        check_rounding(r, err) < 0 || check_stop(r, err) < 0 || check_packing(r, err) < 0)
        return -1;
    if (r->model.optimizer == TERN_OPTIMIZER_KEEP && r->model.config)
        return tern_recipe_fail(r, "model.optimizer", err,
                                "'keep', but random weights have no moments. Say 'reset'.");
    return tern_recipe_check_length(r, err);
}

/* tern data plan: tokens, steps and epochs of a recipe. */
#include "cmd/data/data.h"

#include "cmd/cmd.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/inputs/inputs.h"
#include "core/recipe/recipe.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct tern_opt_list overrides;
static bool as_json;

/* A set of one stage. */
struct line {
    size_t stage;
    const char *path;
    uint64_t rows, samples, tokens;
    double epochs;
};

struct plan {
    const struct tern_recipe *recipe;
    struct line *lines;
    size_t n;
};

static int make_lines(struct plan *p, const struct tern_data_stages *s, struct tern_err *err)
{
    const uint64_t end = (uint64_t)(p->recipe->steps * p->recipe->batch.global);
    const size_t n_stages = tern_data_stages_n(s);
    uint64_t samples[TERN_DATA_MIX_SOURCES_MAX], tokens[TERN_DATA_MIX_SOURCES_MAX];
    size_t most = 0;

    for (size_t k = 0; k < n_stages; k++)
        most += tern_data_mix_n_sources(tern_data_stages_mix(s, k));
    p->lines = tern_alloc(most, sizeof *p->lines, "a plan", err);
    for (size_t k = 0; p->lines && k < n_stages; k++) {
        const struct tern_data_mix *m = tern_data_stages_mix(s, k);
        const uint64_t first = tern_data_stages_first(s, k);
        const uint64_t until = k + 1 < n_stages && tern_data_stages_first(s, k + 1) < end
                                   ? tern_data_stages_first(s, k + 1)
                                   : end;
        const uint64_t n = until > first ? until - first : 0;
        tern_data_mix_counts(m, k, n, samples);
        tern_data_mix_tokens(m, k, n, tokens);
        for (size_t i = 0; i < tern_data_mix_n_sources(m); i++) {
            const struct tern_data_pack_counts c = tern_data_pack_counts(tern_data_mix_pack(m, i));
            p->lines[p->n++] = (struct line){.stage = k,
                                             .path = tern_data_set_path(tern_data_mix_set(m, i)),
                                             .rows = c.rows,
                                             .samples = samples[i],
                                             .tokens = tokens[i],
                                             .epochs = (double)samples[i] / (double)c.rows};
        }
    }
    return p->lines ? 0 : -1;
}

/* ---- for people ---- */

static void print_length(const struct tern_recipe *r)
{
    static const char *const packings[] = {"concat", "best-fit", "padded"};
    const uint64_t step = (uint64_t)(r->batch.global * r->batch.seq_len);
    char a[32], b[32], c[32];

    printf("step         %s sequences x %s tokens = %s tokens\n",
           tern_str_count(a, sizeof a, (uint64_t)r->batch.global),
           tern_str_count(b, sizeof b, (uint64_t)r->batch.seq_len),
           tern_str_count(c, sizeof c, step));
    printf("steps        %s", tern_str_count(a, sizeof a, (uint64_t)r->steps));
    if (r->asked_steps)
        printf(" of %s", tern_str_count(b, sizeof b, (uint64_t)r->asked_steps));
    else if (r->tokens > 0)
        printf(" (%.10g tokens = %.1f steps)", r->tokens, r->tokens / (double)step);
    else if (r->epochs > 0)
        printf(" (%g epochs of the first set)", r->epochs);
    printf("\ntokens       %s\n", tern_str_count(a, sizeof a, (uint64_t)r->steps * step));
    printf("packing      %s\n", packings[r->data.packing]);
    for (size_t k = 0; k < r->data.n_stages; k++)
        if (r->data.stages[k].exhausted)
            tern_cmd_say("exhausted    %s at step %" PRId64 " of %" PRId64,
                         r->data.stages[k].exhausted->path,
                         r->data.stages[k].until ? r->data.stages[k].until : r->steps,
                         r->data.stages[k].asked);
}

static void print_text(const struct plan *p)
{
    const bool stages = p->recipe->data.n_stages > 1;
    char rows[32], samples[32], tokens[32];

    print_length(p->recipe);
    printf("\n%s%13s %13s %19s %9s  %s\n", stages ? "stage " : "", "rows", "samples", "tokens",
           "epochs", "set");
    for (size_t i = 0; i < p->n; i++) {
        const struct line *l = &p->lines[i];
        if (stages)
            printf("%5zu ", l->stage);
        tern_cmd_say("%13s %13s %19s %9.3f  %s", tern_str_count(rows, sizeof rows, l->rows),
                     tern_str_count(samples, sizeof samples, l->samples),
                     tern_str_count(tokens, sizeof tokens, l->tokens), l->epochs, l->path);
    }
}

static int print_json(const struct plan *p, struct tern_err *err)
{
    const struct tern_recipe *r = p->recipe;
    json_t *list = json_array();

    for (size_t i = 0; i < p->n; i++) {
        const struct line *l = &p->lines[i];
        json_t *one = json_pack("{s:I, s:I, s:I, s:I, s:f}", "stage", (json_int_t)l->stage, "rows",
                                (json_int_t)l->rows, "samples", (json_int_t)l->samples, "tokens",
                                (json_int_t)l->tokens, "epochs", l->epochs);
        json_object_set_new(one, "path", tern_json_text(l->path));
        json_array_append_new(list, one);
    }
    json_t *j =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "steps", (json_int_t)r->steps, "asked_steps",
                  (json_int_t)(r->asked_steps ? r->asked_steps : r->steps), "global_batch",
                  (json_int_t)r->batch.global, "seq_len", (json_int_t)r->batch.seq_len,
                  "step_tokens", (json_int_t)(r->batch.global * r->batch.seq_len), "sources", list);
    int rc = tern_json_print(stdout, j, err);
    json_decref(j);
    return rc;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    struct plan p = {0};
    struct tern_data_stages *s = NULL;
    int rc = -1;

    (void)n_args;
    struct tern_recipe *r = tern_recipe_load(args[0], overrides.values, overrides.n, err);
    p.recipe = r;
    if (!r)
        return -1;
    if (r->data.n_stages == 0 || !r->batch.global || !r->batch.seq_len)
        tern_recipe_fail(r, "data", err,
                         "data.train, batch.global and batch.seq_len say what a step is.");
    else if (tern_inputs_length(r, err) == 0 && (s = tern_inputs_stages_open(r, err)) &&
             make_lines(&p, s, err) == 0)
        rc = 0;
    if (rc == 0 && as_json)
        rc = print_json(&p, err);
    else if (rc == 0)
        print_text(&p);
    free(p.lines);
    tern_data_stages_free(s);
    tern_recipe_free(r);
    return rc;
}

static const struct tern_opt opts[] = {
    {"json", 0, TERN_OPT_FLAG, .to.flag = &as_json, .help = "print JSON"},
    {"set", 0, TERN_OPT_LIST, "KEY=VALUE", .to.list = &overrides,
     .help = "change a key of the recipe; may be given again"},
    {0},
};

const struct tern_cmd data_plan = {
    .name = "plan",
    .args = "RECIPE",
    .summary = "show the steps, tokens and epochs of a recipe",
    .about = "A step has batch.global x batch.seq_len tokens; the last one is whole. Each set of "
             "data.train gets samples by its weight.",
    .examples = "  tern data plan run.yaml\n"
                "  tern data plan run.yaml --set tokens=88e9\n",
    .opts = opts,
    .args_min = 1,
    .args_max = 1,
    .run = run,
};

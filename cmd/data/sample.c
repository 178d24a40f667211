/* tern data sample: shows the samples of a run. */
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
static bool as_json, with_text;
static const char *tokenizer;

int data_read_range(const char *text, uint64_t *first, uint64_t *last, struct tern_err *err)
{
    char *copy = tern_strdup(text), *dash = strchr(copy, '-');
    int64_t from = 0, to = 0;

    if (dash)
        *dash = '\0';
    int rc = tern_str_int(copy, 0, INT64_MAX / 2, &from);
    to = from;
    if (rc == 0 && dash)
        rc = tern_str_int(dash + 1, from, INT64_MAX / 2, &to);
    free(copy);
    if (rc < 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: is not the number of a sample or a range such as 4096-4159", text);
    *first = (uint64_t)from;
    *last = (uint64_t)to;
    return 0;
}

struct printer {
    const struct tern_recipe *recipe;
    const struct tern_data_stages *stages;
    struct tern_token *tokenizer; /* NULL: no text */
    int32_t *tokens;              /* [seq_len + 1] */
    uint8_t *mask;                /* [seq_len] */
    json_t *list;                 /* NULL: print lines */
};

/* The text of row `where`, sample i: its targets, masked ones among them, without what fills up. */
static int decode(const struct printer *p, uint64_t i, const struct tern_data_mix_where *where,
                  struct tern_buf *to, struct tern_err *err)
{
    const struct tern_data_mix *m =
        tern_data_stages_mix(p->stages, tern_data_stages_at(p->stages, i));
    const size_t n = tern_data_pack_filled(tern_data_mix_pack(m, where->source), where->row);

    if (tern_data_stages_sample(p->stages, i, p->tokens, p->mask, NULL, err) < 0)
        return -1;
    return tern_token_decode(p->tokenizer, (const uint32_t *)p->tokens + 1, n, to, err);
}

static int print(const struct printer *p, uint64_t i, struct tern_err *err)
{
    const int64_t step = (int64_t)i / p->recipe->batch.global + 1;
    const size_t stage = tern_data_stages_at(p->stages, i);
    struct tern_buf text = {0};
    struct tern_data_mix_where w;
    const char *path = tern_data_set_path(tern_data_stages_locate(p->stages, i, &w));

    if (p->tokenizer && decode(p, i, &w, &text, err) < 0)
        return -1;
    if (p->list) {
        json_t *j =
            json_pack("{s:I, s:I, s:I, s:o, s:I, s:I}", "sample", (json_int_t)i, "step",
                      (json_int_t)step, "stage", (json_int_t)stage, "set", tern_json_text(path),
                      "epoch", (json_int_t)w.epoch, "row", (json_int_t)w.row);
        if (p->tokenizer)
            json_object_set_new(j, "text", tern_json_text(text.data ? text.data : ""));
        json_array_append_new(p->list, j);
    } else {
        tern_cmd_say("%10" PRIu64 " %8" PRId64 " %5zu %5" PRIu64 " %10" PRIu64 " %s", i, step,
                     stage, w.epoch, w.row, path);
        if (p->tokenizer) {
            fwrite(text.data, 1, text.len, stdout);
            putchar('\n');
        }
    }
    tern_buf_free(&text);
    return 0;
}

static int open_text(struct printer *p, struct tern_err *err)
{
    const struct tern_recipe *r = p->recipe;
    const size_t n = (size_t)r->batch.seq_len;
    char *from = tern_inputs_model_from(r);
    const char *path = tokenizer ? tokenizer : r->model.tokenizer ? r->model.tokenizer : from;

    p->tokenizer = data_load_tokenizer(path, err);
    free(from);
    p->tokens = tern_alloc(n + 1, sizeof *p->tokens, "a row", err);
    p->mask = tern_alloc(n, 1, "a row", err);
    return p->tokenizer && p->tokens && p->mask ? 0 : -1;
}

static int run_sample(int n_args, char **args, struct tern_err *err)
{
    enum { MOST = 1 << 20 }; /* rows of a table for people */
    struct printer p = {0};
    uint64_t first = 0, last = 0;
    int rc = -1;

    (void)n_args;
    if (data_read_range(args[1], &first, &last, err) < 0)
        return -1;
    if (last - first >= MOST)
        return tern_err_set(err, TERN_USAGE, "%s: at most %d at once", args[1], MOST);
    struct tern_recipe *r = tern_recipe_load(args[0], overrides.values, overrides.n, err);
    struct tern_data_stages *s =
        r && tern_inputs_length(r, err) == 0 ? tern_inputs_stages_open(r, err) : NULL;
    p.recipe = r;
    p.stages = s;
    if (!s || (with_text && open_text(&p, err) < 0))
        goto out;
    p.list = as_json ? json_array() : NULL;
    if (!as_json)
        printf("%10s %8s %5s %5s %10s %s\n", "sample", "step", "stage", "epoch", "row", "set");
    rc = 0;
    for (uint64_t i = first; i <= last && rc == 0; i++)
        rc = print(&p, i, err);
    if (rc == 0 && as_json)
        rc = tern_json_print(stdout, p.list, err);
out:
    json_decref(p.list);
    tern_token_free(p.tokenizer);
    free(p.tokens);
    free(p.mask);
    tern_data_stages_free(s);
    tern_recipe_free(r);
    return rc;
}

static const struct tern_opt opts[] = {
    {"text", 0, TERN_OPT_FLAG, .to.flag = &with_text, .help = "print each one's text, too"},
    {"tokenizer", 't', TERN_OPT_TEXT, "PATH", .to.text = &tokenizer,
     .help = "for --text; default: the recipe's"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &as_json, .help = "print JSON"},
    {"set", 0, TERN_OPT_LIST, "KEY=VALUE", .to.list = &overrides,
     .help = "change a key of the recipe; may be given again"},
    {0},
};

const struct tern_cmd data_sample = {
    .name = "sample",
    .args = "RECIPE SAMPLE[-SAMPLE]",
    .summary = "show which rows a run's samples are",
    .about = "Samples are counted over the whole run, from 0; step S takes batch.global of them "
             "from (S - 1) x batch.global on, whatever the ranks. The ledger's events of kind skip "
             "name the samples of steps that made no update.",
    .examples = "  tern data sample run.yaml 4096-4159\n"
                "  tern data sample --text run.yaml 4100\n",
    .opts = opts,
    .args_min = 2,
    .args_max = 2,
    .run = run_sample,
};

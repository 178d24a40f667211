/* tern cluster plan: the commands that make a cluster on AWS and take it away, and their cost. */
#include "cmd/cluster/plan.h"

#include "cmd/cluster/layout.h"
#include "core/base/str.h"
#include "core/render/render.h"

#include <stdlib.h>
#include <string.h>

static const char *plan_to = "pcluster", *plan_vars;
static const struct tern_opt plan_opts[] = {
    {"to", 0, TERN_OPT_TEXT, "FORM", "pcluster", .to.text = &plan_to,
     .help = "pcluster, cfn (CloudFormation), hyperpod (SageMaker) or batch"},
    {"vars", 0, TERN_OPT_TEXT, "FILE", .to.text = &plan_vars, .help = cluster_vars_help},
    {0},
};

enum { COLUMNS = 80 };

/* Where a line may go on in the next: the last blank before an option within `room` columns. Else
 * it is the last blank there, else the first one of all; never inside quotes. */
static size_t find_break(const char *s, size_t room)
{
    size_t at = 0, option = 0;
    bool quoted = false;

    for (size_t i = 0; s[i]; i++) {
        if (s[i] == '\'' && (quoted || i == 0 || s[i - 1] != '\\'))
            quoted = !quoted;
        if (s[i] != ' ' || quoted)
            continue;
        if (i > room)
            return option ? option : at ? at : i;
        at = i;
        option = tern_str_starts(s + i + 1, "--") ? i : option;
    }
    return strlen(s) <= room || !at ? strlen(s) : option ? option : at;
}

/* A line that begins with `first`, further ones with `next`; all but the last end with `end`. */
static void put_wrapped(const char *first, const char *next, const char *end, const char *text)
{
    for (const char *begin = first;; begin = next) {
        const size_t n = find_break(text, COLUMNS - strlen(begin) - strlen(end));
        printf("%s%.*s%s\n", begin, (int)n, text, text[n] ? end : "");
        if (!text[n])
            return;
        text += n + 1;
    }
}

static void put_words(const char *text)
{
    put_wrapped("#   ", "#     ", "", text);
}

/* Of lines, one each. */
static void put_list(const struct tern_buf *lines)
{
    char *text = tern_strdup(lines->data ? lines->data : ""), *at = NULL;

    for (char *line = strtok_r(text, "\n", &at); line; line = strtok_r(NULL, "\n", &at))
        put_words(line);
    free(text);
}

static void put_steps(const struct tern_render *r, enum tern_render_phase phase, const char *title)
{
    bool any = false;

    for (size_t i = 0; i < r->n_steps; i++) {
        const struct tern_render_step *s = &r->step[i];
        if (s->phase != phase)
            continue;
        if (!any)
            printf("\n# ---- %s\n", title);
        any = true;
        if (s->effect)
            put_words(s->effect);
        put_wrapped("", "    ", " \\", s->command);
    }
}

static void put_plan(const struct tern_render *r, const char *path)
{
    struct tern_buf render = {0}, missing = {0};
    char *prices = tern_strf("EC2 on demand in us-east-1 (trn2: us-east-2), %s; yours may differ",
                             tern_layout_price_month);

    printf("# tern runs none of these commands. Those of 'make' are create.sh's, those of\n"
           "# 'remove' are delete.sh's, in their order.\n\n# ---- files: they cost nothing\n");
    tern_buf_puts(&render, "tern cluster render ");
    tern_buf_word(&render, path);
    tern_buf_printf(&render, " --to %s", r->form);
    if (plan_vars) {
        tern_buf_puts(&render, " --vars ");
        tern_buf_word(&render, plan_vars);
    }
    tern_buf_puts(&render, " -o files && cd files");
    tern_str_mask(render.data);
    put_wrapped("", "    ", " \\", render.data);
    put_steps(r, TERN_RENDER_BUILD, "make");
    put_steps(r, TERN_RENDER_USE, "use");
    put_steps(r, TERN_RENDER_REMOVE, "remove");
    printf("\n# ---- what still costs after that\n");
    put_list(&r->left);
    printf("\n# ---- prices\n");
    put_words(prices);
    printf("#   without a price here:\n");
    put_list(&r->unpriced);
    for (size_t i = 0; i < r->n_missing; i++)
        tern_buf_printf(&missing, " ${%s}", r->missing[i]);
    if (missing.len)
        put_wrapped("\n# to fill in, with --vars FILE:", "#    ", "", missing.data);
    free(prices);
    tern_buf_free(&missing);
    tern_buf_free(&render);
}

static int run_plan(int n, char **args, struct tern_err *err)
{
    struct tern_render r;
    int rc = -1;

    (void)n;
    if (!tern_render_is_form(plan_to) || strcmp(plan_to, "slurm") == 0)
        return tern_err_set(err, TERN_USAGE,
                            "--to: '%s' is not one of: pcluster, cfn, hyperpod, "
                            "batch. For a Slurm: tern cluster apply.",
                            plan_to);
    struct tern_layout *l = cluster_load_draft(args[0], plan_vars, err);
    if (!l)
        return -1;
    if (tern_render_make(&r, l, plan_to, err) == 0) {
        put_plan(&r, args[0]);
        tern_render_free(&r);
        rc = 0;
    }
    tern_layout_free(l);
    return rc;
}

const struct tern_cmd plan_cmd = {
    .name = "plan",
    .args = "LAYOUT",
    .summary = "print the commands that make and remove a layout's cluster on AWS, and their cost",
    .about = "Prints commands of `aws` and `pcluster` in the order in which create.sh and "
             "delete.sh of `tern cluster render` run them. It says which resources cost by the "
             "hour from each command on, and which still cost after the last one. tern runs none "
             "of them. Prices are EC2's on demand, of the catalogue; storage, traffic and "
             "HyperPod's instances have none here, and are named.",
    .examples = "  tern cluster plan cluster.yaml --to cfn\n"
                "  tern cluster plan cluster.yaml --to pcluster --vars outputs.json\n",
    .opts = plan_opts,
    .args_min = 1,
    .args_max = 1,
    .run = run_plan,
};

/* tern env: the variables that this node, fabric and trainer want. */
#include "cmd/cmd.h"

#include "core/base/json.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/env/env.h"
#include "core/site/site.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static const char *profile;
static struct tern_opt_list assume;
static bool explain, json, export0, list;

static bool is_ours(const struct tern_env_row *r)
{
    return r->by == TERN_ENV_PROFILE || r->by == TERN_ENV_SITE;
}

/* ------------------------------------------------------------------ printing */

static int print_list(struct tern_err *err)
{
    json_t *all = json_array();
    const struct tern_env_profile *p;
    int rc = 0;

    for (size_t i = 0; (p = tern_env_profile(i)); i++) {
        if (json)
            json_array_append_new(all,
                                  json_pack("{ss ss}", "name", p->name, "summary", p->summary));
        else
            printf("%-10s  %s\n", p->name, p->summary);
    }
    if (json)
        rc = tern_json_print(stdout, all, err);
    json_decref(all);
    return rc;
}

/* Values go to terminals, too: no control characters there. */
static char *printable(const char *s)
{
    char *to = tern_strdup(s);

    tern_str_mask(to);
    return to;
}

static void print_wrapped(const char *indent, const char *text, int columns)
{
    int width = columns - (int)strlen(indent);

    if (width < 30)
        width = 30;
    while (*text) {
        int n = (int)strlen(text);
        if (n > width) {
            n = width;
            while (n > 0 && text[n] != ' ')
                n--;
            if (n == 0)
                n = (int)strcspn(text, " ");
        }
        printf("%s%.*s\n", indent, n, text);
        text += n;
        text += strspn(text, " ");
    }
}

static void explain_row(const struct tern_env_row *r, int columns)
{
    char *value = r->value ? printable(r->value) : NULL;
    char *left = value ? tern_strf("%s=%s", r->name, value) : tern_strdup(r->name);

    printf("%-48s  %s\n", left, tern_env_by_word(r->by));
    bool same = r->would && strcmp(r->would, r->value) == 0;
    char *would = r->would ? printable(r->would) : NULL;
    if (r->by == TERN_ENV_USER || would) {
        const char *whose = r->by == TERN_ENV_USER ? "your value stays" : "the site's settings";
        char *text = same    ? tern_strf("%s; it would be the same without", whose)
                     : would ? tern_strf("%s; without it: %s", whose, would)
                     : *r->why
                         ? tern_strf("%s; without it the variable is left unset: %s", whose, r->why)
                         : tern_strdup(whose);
        print_wrapped("    ", text, columns);
        free(text);
    }
    if (r->by != TERN_ENV_USER || (would && !same))
        print_wrapped("    ", r->why, columns);
    free(would);
    char *source = tern_strf("[%s]", r->origin);
    print_wrapped("    ", source, columns);
    free(source);
    free(left);
    free(value);
}

static void explain_step(const struct tern_env_step *s, int columns)
{
    char *head = NULL;

    if (s->n == 0)
        return;
    if (s->inside)
        head = tern_strf("step %s: srun has started this process. Its variables are not those of "
                         "the ranks that `tern run` starts from here:",
                         s->name);
    else
        head = tern_strdup("Slurm: variables of another step or job, and settings of srun, that "
                           "`tern run` finds here:");
    putchar('\n');
    print_wrapped("", head, columns);
    free(head);
    for (size_t i = 0; i < s->n; i++) {
        char *value = printable(s->left[i].value);
        char *left = tern_strf("%s=%s", s->left[i].name, value);
        printf("\n%-48s  %s\n", left, s->left[i].stays ? "you" : "left out");
        print_wrapped("    ", s->left[i].why, columns);
        free(left);
        free(value);
    }
}

static void print_explained(const struct tern_env_rows *rows, const struct tern_env_step *step)
{
    int columns = tern_cmd_columns();
    char *head = tern_strf("profile %s: %s", rows->profile, rows->profile_why);

    print_wrapped("", head, columns);
    free(head);
    for (size_t i = 0; i < rows->n; i++) {
        putchar('\n');
        explain_row(&rows->row[i], columns);
    }
    explain_step(step, columns);
    for (size_t i = 0; i < rows->n_advice; i++) {
        putchar('\n');
        print_wrapped(i ? "      " : "note: ", rows->advice[i], columns);
    }
}

static json_t *step_json(const struct tern_env_step *s)
{
    json_t *all = json_array();

    for (size_t i = 0; i < s->n; i++)
        json_array_append_new(all, json_pack("{so so sb ss}", "variable",
                                             tern_json_text(s->left[i].name), "value",
                                             tern_json_text(s->left[i].value), "stays",
                                             s->left[i].stays, "why", s->left[i].why));
    return json_pack("{so so}", "inside", s->inside ? json_string(s->name) : json_null(),
                     "variables", all);
}

static int print_json(const struct tern_env_rows *rows, const struct tern_env_step *step,
                      struct tern_err *err)
{
    static const char *const by[] = {[TERN_ENV_PROFILE] = "profile",
                                     [TERN_ENV_USER] = "user",
                                     [TERN_ENV_SITE] = "site",
                                     [TERN_ENV_UNSET] = "unset"};
    static const char *const scope[] = {"job", "node", "rank"};
    json_t *variables = json_array(), *advice = json_array();

    for (size_t i = 0; i < rows->n; i++) {
        const struct tern_env_row *r = &rows->row[i];
        json_array_append_new(variables,
                              json_pack("{ss so ss ss so ss so}", "name", r->name, "value",
                                        tern_json_text(r->value), "by", by[r->by], "scope",
                                        scope[r->scope], "why", tern_json_text(r->why), "source",
                                        r->origin, "profile_value",
                                        tern_json_text(r->by == TERN_ENV_USER ? r->would
                                                       : is_ours(r)           ? r->value
                                                                              : NULL)));
    }
    for (size_t i = 0; i < rows->n_advice; i++)
        json_array_append_new(advice, tern_json_text(rows->advice[i]));
    json_t *all = json_pack("{ss so so so so}", "profile", rows->profile, "why",
                            tern_json_text(rows->profile_why), "variables", variables, "advice",
                            advice, "step", step_json(step));
    int rc = tern_json_print(stdout, all, err);
    json_decref(all);
    return rc;
}

static void print_export(const char *name, const char *value)
{
    struct tern_buf b = {0};

    tern_buf_printf(&b, "export %s=", name);
    tern_buf_word(&b, value);
    printf("%s\n", b.data);
    tern_buf_free(&b);
}

static void print_exports(const struct tern_env_rows *rows)
{
    for (size_t i = 0; i < rows->n_stale; i++)
        printf("unset %s\n", rows->stale[i]);
    for (size_t i = 0; i < rows->n; i++) {
        if (!is_ours(&rows->row[i]))
            continue;
        print_export(rows->row[i].name, rows->row[i].value);
    }
    char *marks = tern_env_marks(rows);
    print_export("TERN_PROFILE_SET", marks);
    free(marks);
}

static void print_export0(const struct tern_env_rows *rows)
{
    for (size_t i = 0; i < rows->n; i++)
        if (is_ours(&rows->row[i]))
            printf("%s=%s%c", rows->row[i].name, rows->row[i].value, 0);
}

/* ------------------------------------------------------------------ the command */

static int become(const struct tern_env_rows *rows, char **args, struct tern_err *err)
{
    if (tern_env_apply(rows, err) < 0)
        return -1;
    execvp(args[0], args);
    tern_err_set(err, TERN_USAGE, "cannot run '%s': %s", args[0], strerror(errno));
    return -1;
}

static int print_all(const struct tern_env_rows *rows, struct tern_err *err)
{
    struct tern_env_step step;
    int rc = 0;

    tern_env_step_look(&step, environ);
    if (json)
        rc = print_json(rows, &step, err);
    else
        print_explained(rows, &step);
    tern_env_step_free(&step);
    return rc;
}

static int show(const struct tern_env_rows *rows, int n_args, char **args, struct tern_err *err)
{
    int rc = 0;

    if (n_args)
        rc = become(rows, args, err);
    else if (json || explain)
        rc = print_all(rows, err);
    else if (export0)
        print_export0(rows);
    else
        print_exports(rows);
    for (size_t i = 0; i < rows->n_advice && rc == 0 && !explain && !json && !export0; i++)
        fprintf(stderr, "tern env: note: %s\n", rows->advice[i]);
    return rc;
}

static int with_site(const struct tern_site *site, int n_args, char **args, struct tern_err *err)
{
    struct tern_env_setting settings[TERN_SITE_VARS];
    struct tern_env_facts facts;
    struct tern_env_rows rows;

    if (tern_env_facts_gather(&facts, err) < 0)
        return -1;
    for (size_t i = 0; i < assume.n; i++)
        if (tern_env_facts_assume(&facts, assume.values[i], err) < 0)
            return -1;
    if (!export0)
        tern_env_facts_blas(&facts);
    for (size_t i = 0; i < site->n_env; i++)
        settings[facts.n_site++] = (struct tern_env_setting){site->env[i].name, site->env[i].value};
    facts.site = settings;
    if (tern_env_build(profile ? profile : site->profile, &facts, environ, &rows, err) < 0)
        return -1;
    int rc = show(&rows, n_args, args, err);
    tern_env_rows_free(&rows);
    return rc;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    if (explain + json + export0 + (n_args > 0) > 1 && !(explain && json))
        return tern_err_set(err, TERN_USAGE,
                            "--explain, --json, --export0 and a command are alternatives");
    if (list)
        return print_list(err);
    struct tern_site *site = tern_site_load(NULL, err);
    if (!site)
        return -1;
    int rc = with_site(site, n_args, args, err);
    tern_site_free(site);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct tern_opt opts[] = {
        {"profile", 'p', TERN_OPT_TEXT, "NAME", .env = "TERN_PROFILE", .to.text = &profile,
         .help = "instead of the one that fits this node"},
        {"explain", 0, TERN_OPT_FLAG, .to.flag = &explain,
         .help = "every variable: its value, its setter, the reason and the source. In a step of "
                 "srun also which of its variables do not reach the ranks"},
        {"json", 0, TERN_OPT_FLAG, .to.flag = &json, .help = "the same as JSON"},
        {"export0", 0, TERN_OPT_FLAG, .to.flag = &export0,
         .help = "NAME=VALUE of what is to be set, each ended by a NUL"},
        {"list", 0, TERN_OPT_FLAG, .to.flag = &list, .help = "the profiles there are"},
        {"assume", 0, TERN_OPT_LIST, "FACT=VALUE", .to.list = &assume,
         .help = "as if this were so, for example instance=trn1.32xlarge, nodes=16, workers=32, "
                 "kernel=5.10, pipeline=8, precision=bf16"},
        {0},
    };
    static const struct tern_cmd cmd = {
        .name = "env",
        .args = "[COMMAND [ARGUMENT...]]",
        .summary = "the variables that this node, its fabric and the trainer want",
        .about = "Prints `export` lines for a shell, or runs COMMAND with them. tern does not "
                 "change a variable that you have set, and --explain says so. In a job, `tern run` "
                 "sets the variables of every rank; there you need this command only to look at "
                 "them.\n\nProfiles: cpu, and trn1 by generation of the Neuron SDK, since each SDK "
                 "has its own variables. Without --profile, tern chooses the profile by the node's "
                 "Neuron devices and its installed SDK.",
        .examples = "  tern env --explain\n"
                    "  eval \"$(tern env)\"\n"
                    "  tern env -- torchrun --nproc_per_node 32 train.py\n"
                    "  tern env -p trn1-2.31 --assume instance=trn1.32xlarge --assume nodes=16 "
                    "--explain\n",
        .opts = opts,
        .args_max = -1,
        .args_raw = true,
        .run = run,
    };

    return tern_cmd_main(&cmd, argc, argv);
}

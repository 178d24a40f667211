/* tern ledger reproduce: how to have a run again. */
#include "cmd/ledger/show.h"

#include "core/base/fs.h"
#include "core/check/check.h"
#include "core/recipe/recipe.h"
#include "core/slurm/slurm.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool check_inputs;

enum { PARAMS_MAX = 10000, SECONDS = 10, SETS_MAX = 64, RECIPE_BYTES = 1 << 20 };

static const char set_mark[] = "# --set ";

/* What the ledger knows of the run's last attempt at training. */
struct past {
    struct tern_ledger_rows runs, attempts;
    const struct tern_ledger_run *run;
    const struct tern_ledger_attempt *last;
    struct tern_ledger_table params; /* name, value */
};

static int read_past(struct tern_ledger *l, struct past *p, struct tern_err *err)
{
    if (tern_ledger_runs(l, &p->runs, err) < 0 || tern_ledger_attempts(l, &p->attempts, err) < 0)
        return -1;
    for (size_t i = 0; i < p->attempts.n; i++)
        if (strcmp(p->attempts.attempts[i].kind, "train") == 0)
            p->last = &p->attempts.attempts[i];
    if (p->runs.n == 0 || !p->runs.runs[0].recipe || !p->last)
        return tern_err_set(err, TERN_FAILED,
                            "the ledger has no recipe or no attempt at training of that run");
    p->run = &p->runs.runs[0];
    char *sql = tern_strf("SELECT name, value FROM param WHERE attempt = %" PRIu32 " ORDER BY name",
                          p->last->attempt);
    int rc = tern_ledger_sql(l, sql, PARAMS_MAX, SECONDS, &p->params, err);
    free(sql);
    return rc;
}

static void free_past(struct past *p)
{
    tern_ledger_table_free(&p->params);
    tern_ledger_rows_free(&p->runs);
    tern_ledger_rows_free(&p->attempts);
}

/* ------------------------------------------------------------------ the recipe's text */

/* The settings that stand behind the recipe, as the supervisor left them; *body: bytes before. */
static size_t find_settings(const char *recipe, char *sets[SETS_MAX], size_t *body)
{
    size_t n = 0;

    *body = strlen(recipe);
    for (const char *line = recipe; *line;) {
        size_t len = strcspn(line, "\n");
        if (strncmp(line, set_mark, sizeof set_mark - 1) == 0) {
            if (n == 0)
                *body = (size_t)(line - recipe);
            if (n < SETS_MAX)
                sets[n++] = tern_strf("%.*s", (int)(len - (sizeof set_mark - 1)),
                                      line + sizeof set_mark - 1);
        } else if (n) { /* it was a comment of the recipe's own */
            while (n)
                free(sets[--n]);
            *body = strlen(recipe);
        }
        line += len + (line[len] == '\n');
    }
    return n;
}

/* Is the recipe's file still what the run was made with?  Its last line may have had no end. */
static bool unchanged(const struct tern_ledger_run *r, size_t body)
{
    char *text = NULL;
    size_t len = 0;

    bool same = r->recipe_path &&
                tern_fs_read(r->recipe_path, RECIPE_BYTES, &text, &len, NULL) == 0 &&
                (len == body || (len + 1 == body && r->recipe[len] == '\n')) &&
                memcmp(text, r->recipe, len) == 0;
    free(text);
    return same;
}

/* Processes that were asked for on one machine: those of --ranks; what the recipe says for a
 * workload, whose processes start several ranks each; the trainer's ranks.  NULL: none. */
static char *ranks_asked(const struct past *p, char *const *sets, size_t n_sets)
{
    static const char key[] = "launch.ranks_per_node=";

    for (size_t i = n_sets; i-- > 0;)
        if (strncmp(sets[i], key, sizeof key - 1) == 0)
            return tern_strdup(sets[i] + sizeof key - 1);
    if (p->run->model && strncmp(p->run->model, "workload: ", 10) == 0)
        return NULL;
    return tern_strf("%" PRId64, p->last->world);
}

/* The command line that begins the run anew, in a folder of its own. */
static char *command(const struct past *p, char *const *sets, size_t n_sets, const char *recipe)
{
    struct tern_buf b = {0};
    char **hosts = NULL;
    size_t n_hosts = 0;

    if (p->last->job_id > 0 && p->last->nodes &&
        tern_slurm_hosts_expand(p->last->nodes, &hosts, &n_hosts, NULL) == 0) {
        tern_buf_printf(&b, "tern submit -N %zu", n_hosts);
        tern_slurm_hosts_free(hosts);
        if (strstr(p->run->recipe, "spares")) /* they are not among the attempt's nodes */
            tern_buf_puts(&b, " --set launch.spares=0");
    } else {
        char *ranks = ranks_asked(p, sets, n_sets);
        tern_buf_printf(&b, "tern run%s%s", ranks ? " --ranks " : "", ranks ? ranks : "");
        free(ranks);
    }
    for (size_t i = 0; i < n_sets; i++) {
        if (strncmp(sets[i], "checkpoint.dir=", 15) == 0 ||
            (p->last->job_id <= 0 && strncmp(sets[i], "launch.ranks_per_node=", 22) == 0))
            continue;
        tern_buf_puts(&b, " --set ");
        tern_buf_word(&b, sets[i]);
    }
    tern_buf_printf(&b, " --set checkpoint.dir=again-%s ", p->run->id + TERN_ULID_SIZE - 9);
    tern_buf_word(&b, recipe);
    return b.data;
}

/* ------------------------------------------------------------------ printing */

/* A line of remarks.  Whoever named a run or a parameter must not end the remark: what is printed
 * is made to be saved and run. */
static void remark(struct tern_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void remark(struct tern_buf *b, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    tern_str_mask(text);
    tern_buf_printf(b, "# %s\n", text);
    free(text);
}

static int print_text(const struct past *p, const char *line, bool same, size_t body,
                      struct tern_err *err)
{
    const struct tern_ledger_run *r = p->run;
    const struct tern_ledger_attempt *a = p->last;
    struct tern_buf b = {0};

    remark(&b, "run %s, '%s', by %s: %s", r->id, r->name, r->user, r->model);
    remark(&b, "identity %s", r->identity_hash);
    remark(&b, "full     %s", a->full_hash);
    remark(&b, "attempt %" PRIu32 ": %" PRId64 " ranks on %s", a->attempt, a->world, a->nodes);
    for (size_t i = 0; i < p->attempts.n; i++) {
        const struct tern_ledger_attempt *other = &p->attempts.attempts[i];
        if (strcmp(other->kind, "train") == 0 && other->full_hash &&
            strcmp(other->full_hash, a->full_hash) != 0)
            remark(&b, "attempt %" PRIu32 " ran with another recipe: full %s", other->attempt,
                   other->full_hash);
    }
    if (a->resumed_checkpoint)
        remark(&b, "went on from %s", a->resumed_checkpoint);
    for (size_t i = 0; i < p->params.n_rows; i++)
        remark(&b, "%s: %s", p->params.cells[2 * i].text, p->params.cells[2 * i + 1].text);
    tern_buf_printf(&b, "#\n# To have it again%s:\n#     %s\n\n",
                    same ? "" : ", save this beside the original, which has changed", line);
    tern_buf_add(&b, r->recipe, body);
    return show_buf(&b, err);
}

static int print_json(const struct past *p, const char *line, bool same, size_t body,
                      struct tern_err *err)
{
    json_t *j = json_object(), *facts = json_object();
    char *text = tern_strf("%.*s", (int)body, p->run->recipe);

    for (size_t i = 0; i < p->params.n_rows; i++)
        json_object_set_new(facts, p->params.cells[2 * i].text,
                            show_json_text(p->params.cells[2 * i + 1].text));
    json_object_set_new(j, "run", show_json_run(p->run));
    json_object_set_new(j, "attempt", show_json_attempt(p->last));
    json_object_set_new(j, "facts", facts);
    json_object_set_new(j, "command", show_json_text(line));
    json_object_set_new(j, "recipe_unchanged", json_boolean(same));
    json_object_set_new(j, "recipe", show_json_text(text));
    free(text);
    return show_json(j, err);
}

/* ------------------------------------------------------------------ are its inputs the same? */

static const char *digest_of(const struct tern_check_inputs *now, const char *key)
{
    for (size_t i = 0; i < now->n; i++)
        if (strcmp(now->v[i].key, key) == 0)
            return now->v[i].sha256;
    return NULL;
}

/* Exit status 1 when one is not. */
static int compare_inputs(const struct past *p, char *const *sets, size_t n_sets, bool same,
                          struct tern_err *err)
{
    static const char mark[] = "input.";
    struct tern_check_inputs now = {0};
    json_t *list;
    int bad = 0;

    if (!same)
        return tern_err_set(err, TERN_FAILED,
                            "%s: is not the recipe of that run any more; its inputs cannot be "
                            "compared",
                            p->run->recipe_path);
    struct tern_recipe *r =
        tern_recipe_load(p->run->recipe_path, (const char *const *)sets, n_sets, err);
    if (!r || tern_check_inputs(r, &now, err) < 0) {
        tern_recipe_free(r);
        return -1;
    }
    list = json_array();
    for (size_t i = 0; i < p->params.n_rows; i++) {
        const char *name = p->params.cells[2 * i].text, *then = p->params.cells[2 * i + 1].text;
        if (strncmp(name, mark, sizeof mark - 1) != 0 || !then || strlen(then) < TERN_SHA256_HEX)
            continue;
        const char *d = digest_of(&now, name + sizeof mark - 1);
        const char *word = !d ? "gone" : strncmp(d, then, TERN_SHA256_HEX - 1) ? "changed" : "same";
        bad |= strcmp(word, "same") != 0;
        const char *key = name + sizeof mark - 1, *path = then + TERN_SHA256_HEX;
        if (show.json)
            json_array_append_new(list, json_pack("{s:s,s:s,s:o}", "input", key, "state", word,
                                                  "path", show_json_text(path)));
        else
            printf("%-8s %s  %s\n", word, key, path);
    }
    tern_check_inputs_free(&now);
    tern_recipe_free(r);
    if (show.json &&
        show_json(json_pack("{s:s,s:b,s:O}", "run", p->run->id, "same", !bad, "inputs", list),
                  err) < 0)
        bad = -1;
    json_decref(list);
    return bad;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    struct past p = {0};
    char *sets[SETS_MAX];
    size_t n_sets = 0, body;
    int rc = -1;

    struct tern_ledger *l = show_open_run(n_args ? args[0] : NULL, err);
    if (!l || read_past(l, &p, err) < 0)
        goto out;
    n_sets = find_settings(p.run->recipe, sets, &body);
    bool same = unchanged(p.run, body);
    if (check_inputs) {
        rc = compare_inputs(&p, sets, n_sets, same, err);
        goto out;
    }
    char *folder = tern_fs_dirname(p.run->recipe_path ? p.run->recipe_path : "run.yaml");
    char *again = tern_fs_join(folder, "again.yaml");
    char *line = command(&p, sets, n_sets, same ? p.run->recipe_path : again);
    rc = show.json ? print_json(&p, line, same, body, err) : print_text(&p, line, same, body, err);
    free(folder);
    free(again);
    free(line);
out:
    while (n_sets)
        free(sets[--n_sets]);
    free_past(&p);
    tern_ledger_close(l);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    {"check", 0, TERN_OPT_FLAG, .to.flag = &check_inputs,
     .help = "only compare model and token sets with those the run had; exit status 1 when one "
             "has changed or is gone"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &show.json, .help = "print JSON"},
    {0},
};

const struct tern_cmd ledger_reproduce = {
    .name = "reproduce",
    .args = "[RUN]",
    .summary = "print recipe, hashes and command to have a run again",
    .about = "The recipe as the last attempt at training used it, with what was true of that "
             "attempt in comments (hashes, inputs and their digests, kernels, BLAS), and the "
             "command that begins the same run anew in a checkpoint folder of its own. On the same "
             "kernels, BLAS core type, threads and layout its losses are the same to the last bit.",
    .examples = "  tern ledger reproduce latest > again.yaml\n"
                "  tern ledger reproduce cpt --check\n",
    .opts = opts,
    .args_max = 1,
    .run = run,
};

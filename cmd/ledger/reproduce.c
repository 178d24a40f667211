/* tern ledger reproduce: how to have a run again. */
#include "cmd/ledger/recipe.h"
#include "cmd/ledger/show.h"

#include "core/base/fs.h"
#include "core/base/yaml.h"
#include "core/inputs/inputs.h"
#include "core/recipe/recipe.h"
#include "core/slurm/slurm.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool check_inputs;

enum { PARAMS_MAX = 10000, SECONDS = 10, RECIPE_BYTES = 1 << 20, COLUMNS = 100 };

/* Attempts at training that ran by one recipe, one after the other. */
struct part {
    const struct tern_ledger_attempt *first, *last;
    const char *text;       /* the recipe as it was recorded */
    struct tern_yaml *yaml; /* with what --set changed */
    char *differs;          /* from the first part's, as words of a command line */
    bool accept;            /* in what attempts of one run agree on otherwise */
};

/* The run's training attempts, from the ledger. */
struct past {
    struct tern_ledger_rows runs, attempts;
    const struct tern_ledger_run *run;
    const struct tern_ledger_attempt *last;
    struct tern_ledger_table params;  /* name, value; of the last */
    struct tern_ledger_table recipes; /* attempt, recipe */
    struct part *parts;
    size_t n_parts;
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
    return rc < 0 ? -1
                  : tern_ledger_sql(l, "SELECT attempt, recipe FROM attempt", PARAMS_MAX, SECONDS,
                                    &p->recipes, err);
}

static void free_past(struct past *p)
{
    for (size_t i = 0; i < p->n_parts; i++) {
        tern_yaml_free(p->parts[i].yaml);
        free(p->parts[i].differs);
    }
    free(p->parts);
    tern_ledger_table_free(&p->params);
    tern_ledger_table_free(&p->recipes);
    tern_ledger_rows_free(&p->runs);
    tern_ledger_rows_free(&p->attempts);
}

/* ------------------------------------------------------------------ the recipe's text */

static void add_setting(struct part *p, struct tern_buf *b, const char *key,
                        const struct tern_yaml_node *value)
{
    struct tern_buf word = {0};

    tern_buf_printf(&word, "%s=", key);
    if (value)
        tern_yaml_write(&word, value);
    else
        tern_buf_puts(&word, "null");
    tern_buf_puts(b, " --set ");
    tern_buf_word(b, word.data);
    tern_buf_free(&word);
    p->accept |= tern_recipe_is_identity(key);
}

/* What --set must say for `from` to become `to`. */
static void add_differences(struct part *p, struct tern_buf *b, const struct tern_yaml_node *from,
                            const struct tern_yaml_node *to, const char *where)
{
    for (size_t i = 0; i < tern_yaml_count(from) + tern_yaml_count(to); i++) {
        bool new = i >= tern_yaml_count(from);
        const char *key =
            new ? tern_yaml_key(to, i - tern_yaml_count(from)) : tern_yaml_key(from, i);
        const struct tern_yaml_node *x = tern_yaml_get(from, key), *y = tern_yaml_get(to, key);
        char *name = tern_strf("%s%s%s", where, *where ? "." : "", key);
        if ((new &&x) || tern_yaml_same(x, y) || strcmp(name, "checkpoint.dir") == 0)
            ; /* seen already, or nothing to say */
        else if (x && y && tern_yaml_kind(x) == TERN_YAML_MAP && tern_yaml_kind(y) == TERN_YAML_MAP)
            add_differences(p, b, x, y, name);
        else
            add_setting(p, b, name, y);
        free(name);
    }
}

static const char *recipe_of(const struct past *p, uint32_t attempt)
{
    for (size_t i = 0; i < p->recipes.n_rows; i++)
        if (p->recipes.cells[2 * i].integer == attempt &&
            p->recipes.cells[2 * i + 1].kind == TERN_LEDGER_TEXT)
            return p->recipes.cells[2 * i + 1].text;
    return p->run->recipe; /* an older ledger has the newest alone */
}

/* Nothing is left of a part when the next one began where it had begun, or before. */
static void drop_superseded(struct past *p)
{
    for (size_t i = 0; i + 1 < p->n_parts;) {
        int64_t from = p->parts[i].first->resumed_step;
        int64_t next = p->parts[i + 1].first->resumed_step;
        if (next < 0 || next > from) {
            i++;
            continue;
        }
        tern_yaml_free(p->parts[i].yaml);
        memmove(&p->parts[i], &p->parts[i + 1], (--p->n_parts - i) * sizeof *p->parts);
        i -= i > 0;
    }
}

static int find_parts(struct past *p, struct tern_err *err)
{
    struct part *now = NULL;

    p->parts = tern_alloc(p->attempts.n + 1, sizeof *p->parts, "attempts", err);
    if (!p->parts)
        return -1;
    for (size_t i = 0; i < p->attempts.n; i++) {
        const struct tern_ledger_attempt *a = &p->attempts.attempts[i];
        const char *text = recipe_of(p, a->attempt);
        if (strcmp(a->kind, "train") != 0)
            continue;
        if (!now || strcmp(text, now->text) != 0) {
            now = &p->parts[p->n_parts++];
            *now = (struct part){.first = a, .text = text, .yaml = show_recipe_parse(text, err)};
            if (!now->yaml)
                return -1;
        }
        now->last = a;
    }
    drop_superseded(p);
    for (size_t i = 0; i < p->n_parts; i++) {
        struct tern_buf b = {0};
        tern_buf_puts(&b, "");
        add_differences(&p->parts[i], &b, tern_yaml_root(p->parts[0].yaml),
                        tern_yaml_root(p->parts[i].yaml), "");
        p->parts[i].differs = b.data;
    }
    return 0;
}

/* Is the recipe's file still the run's?  Its last line may have had no end. */
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

static int64_t steps_of(const struct part *p)
{
    int64_t steps = -1;

    tern_yaml_read_int(tern_yaml_get(tern_yaml_root(p->yaml), "steps"), 0, INT64_MAX, &steps, NULL);
    return steps;
}

/* The command line that does the part again, by the recipe that is printed. */
static char *command(const struct past *p, size_t part, const char *recipe)
{
    const struct part *now = &p->parts[part];
    struct tern_buf b = {0};
    char **hosts = NULL;
    size_t n_hosts = 0;

    if (now->last->job_id > 0 && now->last->nodes &&
        tern_slurm_hosts_expand(now->last->nodes, &hosts, &n_hosts, NULL) == 0) {
        tern_buf_printf(&b, "tern submit -N %zu", n_hosts);
        tern_slurm_hosts_free(hosts);
        if (strstr(now->text, "spares")) /* they are not among the attempt's nodes */
            tern_buf_puts(&b, " --set launch.spares=0");
    } else {
        tern_buf_puts(&b, "tern run");
    }
    tern_buf_printf(&b, "%s%s", now->accept ? " --accept" : "", now->differs);
    /* The next went on from a step before this one's end. */
    int64_t next = part + 1 < p->n_parts ? p->parts[part + 1].first->resumed_step : -1;
    if (next > 0 && next != steps_of(now))
        tern_buf_printf(&b, " --set launch.stop_at=%" PRId64, next);
    tern_buf_puts(&b, " ");
    tern_buf_word(&b, recipe);
    if (now->last->job_id > 0 && part + 1 < p->n_parts)
        tern_buf_puts(&b, " -- --wait"); /* the next goes on where this one ends */
    return b.data;
}

/* The recipe of the first part, with checkpoints in a folder of its own. */
static char *recipe_again(const struct past *p)
{
    struct tern_yaml *y = p->parts[0].yaml;
    struct tern_buf b = {0};
    char *dir = tern_strf("again-%s", p->run->id + TERN_ULID_SIZE - 9);

    if (tern_yaml_get(tern_yaml_get(tern_yaml_root(y), "checkpoint"), "dir") ||
        !tern_yaml_get(tern_yaml_root(y), "workload"))
        tern_yaml_override(y, "checkpoint.dir", dir, NULL);
    free(dir);
    tern_yaml_write_document(&b, y, COLUMNS);
    return b.data;
}

/* ------------------------------------------------------------------ printing */

/* A line of remarks.  A name of a run or a parameter must not end the remark: the output is saved
 * and run. */
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

static int print_text(const struct past *p, const char *path, struct tern_err *err)
{
    const struct tern_ledger_run *r = p->run;
    const struct tern_ledger_attempt *a = p->last;
    struct tern_buf b = {0};

    remark(&b, "run %s, '%s', by %s: %s", r->id, r->name, r->user, r->model);
    remark(&b, "identity %s", r->identity_hash);
    remark(&b, "full     %s", a->full_hash);
    remark(&b, "attempt %" PRIu32 ": %" PRId64 " ranks on %s", a->attempt, a->world, a->nodes);
    if (a->resumed_checkpoint)
        remark(&b, "went on from %s", a->resumed_checkpoint);
    for (size_t i = 0; i < p->params.n_rows; i++)
        remark(&b, "%s: %s", p->params.cells[2 * i].text, p->params.cells[2 * i + 1].text);
    tern_buf_puts(&b, "#\n");
    remark(&b, "To reproduce it, save this as %s and run:", path);
    for (size_t i = 0; i < p->n_parts; i++) {
        const struct part *now = &p->parts[i];
        char *line = command(p, i, path);
        if (p->n_parts > 1)
            remark(&b, "  (from step %" PRId64 ": attempt %" PRIu32 "%s)",
                   now->first->resumed_step > 0 ? now->first->resumed_step : 0, now->first->attempt,
                   now->last == now->first ? "" : " and later");
        remark(&b, "    %s", line);
        free(line);
    }
    char *recipe = recipe_again(p);
    tern_buf_printf(&b, "\n%s", recipe);
    free(recipe);
    return show_buf(&b, err);
}

static int print_json(const struct past *p, const char *path, bool same, struct tern_err *err)
{
    json_t *j = json_object(), *facts = json_object(), *commands = json_array();

    for (size_t i = 0; i < p->params.n_rows; i++)
        json_object_set_new(facts, p->params.cells[2 * i].text,
                            show_json_text(p->params.cells[2 * i + 1].text));
    for (size_t i = 0; i < p->n_parts; i++) {
        char *line = command(p, i, path);
        json_array_append_new(commands, show_json_text(line));
        free(line);
    }
    char *recipe = recipe_again(p);
    json_object_set_new(j, "run", show_json_run(p->run));
    json_object_set_new(j, "attempt", show_json_attempt(p->last));
    json_object_set_new(j, "facts", facts);
    json_object_set_new(j, "commands", commands);
    json_object_set_new(j, "recipe_path", show_json_text(path));
    json_object_set_new(j, "recipe_unchanged", json_boolean(same));
    json_object_set_new(j, "recipe", show_json_text(recipe));
    free(recipe);
    return show_json(j, err);
}

/* ------------------------------------------------------------------ are its inputs the same? */

/* `path`: where the input was.  A workload's file may be named from another folder now. */
static const char *digest_of(const struct tern_inputs *now, const char *key, const char *path)
{
    static char hex[TERN_SHA256_HEX];
    uint8_t digest[TERN_SHA256_BYTES];

    if (strncmp(key, TERN_INPUTS_COMMAND "[", strlen(TERN_INPUTS_COMMAND "[")) == 0)
        return tern_sha256_file(path, digest, NULL) == 0 ? tern_hex(hex, digest, sizeof digest)
                                                         : NULL;
    for (size_t i = 0; i < now->n; i++)
        if (strcmp(now->v[i].key, key) == 0)
            return now->v[i].sha256;
    return NULL;
}

/* Exit status 1 when one is not. */
static int compare_inputs(const struct past *p, char *const *sets, size_t n_sets, bool same,
                          struct tern_err *err)
{
    static const char mark[] = TERN_LEDGER_INPUT;
    struct tern_inputs now = {0};
    json_t *list;
    int bad = 0;

    if (!same)
        return tern_err_set(err, TERN_FAILED,
                            "%s: is not the recipe of that run any more; its inputs cannot be "
                            "compared",
                            p->run->recipe_path);
    struct tern_recipe *r =
        tern_recipe_load(p->run->recipe_path, (const char *const *)sets, n_sets, err);
    if (!r || tern_inputs_list(r, &now, err) < 0) {
        tern_recipe_free(r);
        return -1;
    }
    list = json_array();
    for (size_t i = 0; i < p->params.n_rows; i++) {
        const char *name = p->params.cells[2 * i].text, *then = p->params.cells[2 * i + 1].text;
        if (strncmp(name, mark, sizeof mark - 1) != 0 || !then || strlen(then) < TERN_SHA256_HEX)
            continue;
        const char *d = digest_of(&now, name + sizeof mark - 1, then + TERN_SHA256_HEX);
        const char *word = !d ? "gone" : strncmp(d, then, TERN_SHA256_HEX - 1) ? "changed" : "same";
        bad |= strcmp(word, "same") != 0;
        const char *key = name + sizeof mark - 1, *path = then + TERN_SHA256_HEX;
        if (show.json)
            json_array_append_new(list, json_pack("{s:o,s:s,s:o}", "input", show_json_text(key),
                                                  "state", word, "path", show_json_text(path)));
        else
            tern_cmd_say("%-8s %s  %s", word, key, path);
    }
    tern_inputs_free(&now);
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
    char *sets[TERN_RECIPE_SETS];
    size_t n_sets = 0, body;
    int rc = -1;

    struct tern_ledger *l = show_open_run(n_args ? args[0] : NULL, err);
    if (!l || read_past(l, &p, err) < 0)
        goto out;
    n_sets = tern_recipe_settings(p.run->recipe, sets, &body);
    bool same = unchanged(p.run, body);
    if (check_inputs) {
        rc = compare_inputs(&p, sets, n_sets, same, err);
        goto out;
    }
    if (find_parts(&p, err) < 0)
        goto out;
    char *folder = tern_fs_dirname(p.run->recipe_path ? p.run->recipe_path : "run.yaml");
    char *path = tern_fs_join(folder, "again.yaml");
    rc = show.json ? print_json(&p, path, same, err) : print_text(&p, path, err);
    free(folder);
    free(path);
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
    .about = "The recipe as it ran, with the changes of --set, --array and --ranks in it, for a "
             "checkpoint folder of its own. Comments have the facts of the last attempt at "
             "training (hashes, inputs and their digests, kernels, BLAS) and the command that does "
             "the run again. There is one command for each recipe that attempts went by, an "
             "extended run's two. On the same kernels, BLAS core type, threads and layout its "
             "losses are the same to the last bit.",
    .examples = "  tern ledger reproduce latest > again.yaml\n"
                "  tern ledger reproduce cpt --check\n",
    .opts = opts,
    .args_max = 1,
    .run = run,
};

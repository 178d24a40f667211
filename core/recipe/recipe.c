#include "core/recipe/recipe.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/base/yaml.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Far beyond any run, and small enough that products of two fit in 64 bits. */
#define COUNT_MAX ((double)(1 << 30))

enum kind { TEXT, PATH, COUNT, REAL, WORD, YESNO };

struct key {
    const char *name; /* dotted */
    enum kind kind;
    size_t offset;
    double lo, hi, def; /* of COUNT, REAL; def also the index of WORD */
    const char *const *words;
    bool identity; /* may not change within a run */
    const char *help;
};

static const char *const schedules[] = {"constant", "linear", "cosine", NULL};
static const char *const optimizer_states[] = {"reset", "keep", NULL};
static const char *const precisions[] = {"fp32", NULL};
static const char *const optimizers[] = {"adamw", NULL};

#define AT(member) offsetof(struct tern_recipe, member)
/* Keys with one allowed word are read and checked, and stored nowhere. */
#define NOWHERE SIZE_MAX

static const struct key keys[] = {
    {"name", TEXT, AT(name), .help = "what people call the run"},
    {"model.from", PATH, AT(model.from), .identity = true,
     .help = "Hugging Face folder or checkpoint to start from"},
    {"model.config", PATH, AT(model.config), .identity = true,
     .help = "config.json for random weights, in place of model.from"},
    {"model.pending", YESNO, AT(model.pending),
     .help = "model.from is made by a job this one waits for: not looked for at submission"},
    {"model.tokenizer", PATH, AT(model.tokenizer),
     .help = "tokenizer that exports carry along, default that of model.from"},
    {"model.optimizer", WORD, AT(model.optimizer), .words = optimizer_states, .identity = true,
     .help = "moments found in model.from"},
    {"model.init_std", REAL, AT(model.init_std), 0, 1, 0.02, .identity = true,
     .help = "standard deviation of random weights"},
    {"precision", WORD, NOWHERE, .words = precisions, .help = "parameters and activations"},
    {"data.seed", COUNT, AT(data.seed), 0, COUNT_MAX, 1234, .identity = true,
     .help = "of the order of samples, and of random weights"},
    {"batch.global", COUNT, AT(batch.global), 1, COUNT_MAX, 0, .identity = true,
     .help = "sequences a step, over all ranks"},
    {"batch.micro", COUNT, AT(batch.micro), 1, 65536, 1, .identity = true,
     .help = "sequences a rank computes at once"},
    {"batch.seq_len", COUNT, AT(batch.seq_len), 2, 1 << 20, 0, .identity = true,
     .help = "tokens a sequence"},
    {"steps", COUNT, AT(steps), 1, COUNT_MAX, 0, .help = "optimizer steps of the whole run"},
    {"parallel.tensor", COUNT, AT(parallel.tensor), 1, 4096, 1, .help = "ranks that share a layer"},
    {"parallel.pipeline", COUNT, AT(parallel.pipeline), 1, 4096, 1,
     .help = "groups of layers on different ranks"},
    {"optimizer.name", WORD, NOWHERE, .words = optimizers, .help = "the optimizer"},
    {"optimizer.lr", REAL, AT(optimizer.lr), 0, 10, 3e-4, .identity = true,
     .help = "peak learning rate"},
    {"optimizer.eps", REAL, AT(optimizer.eps), 0, 1, 1e-8, .identity = true,
     .help = "added to the root of the second moment"},
    {"optimizer.weight_decay", REAL, AT(optimizer.weight_decay), 0, 1, 0.1, .identity = true,
     .help = "decoupled; matrices only, norms are not decayed"},
    {"optimizer.clip", REAL, AT(optimizer.clip), 0, 1e6, 1.0, .identity = true,
     .help = "largest global gradient norm, 0 for no clipping"},
    {"schedule.kind", WORD, AT(schedule.kind), .def = TERN_SCHEDULE_COSINE, .words = schedules,
     .identity = true, .help = "of the learning rate after the warm-up"},
    {"schedule.warmup", COUNT, AT(schedule.warmup), 0, COUNT_MAX, 0, .identity = true,
     .help = "steps from 0 to the peak"},
    {"schedule.min_lr", REAL, AT(schedule.min_lr), 0, 10, 0, .identity = true,
     .help = "learning rate at the end"},
    {"evaluate.every", COUNT, AT(evaluate.every), 0, COUNT_MAX, 0,
     .help = "steps between evaluations, 0 for before and after only"},
    {"checkpoint.dir", PATH, AT(checkpoint.dir), .help = "where step-%08d folders appear"},
    {"checkpoint.every", COUNT, AT(checkpoint.every), 0, COUNT_MAX, 0,
     .help = "steps between checkpoints, 0 for the end only"},
    {"checkpoint.keep", COUNT, AT(checkpoint.keep), 2, 1e6, 3, .help = "newest ones kept"},
    {"checkpoint.keep_every", COUNT, AT(checkpoint.keep_every), 0, COUNT_MAX, 0,
     .help = "multiples of this step are kept for good, 0 for none"},
    {"ledger.dir", PATH, AT(ledger.dir), .help = "the ledger, on shared storage"},
    {"launch.ranks_per_node", COUNT, AT(launch.ranks_per_node), 1, 4096, 1,
     .help = "processes a node"},
    {"launch.threads", COUNT, AT(launch.threads), 0, 4096, 0,
     .help = "a rank, 0 for an even share of the cores"},
    {"workload.tasks_per_node", COUNT, AT(workload.tasks_per_node), 1, 4096, 1,
     .help = "of workload.command"},
};
enum { N_KEYS = sizeof keys / sizeof *keys };

/* The value at a dotted key; its sections are checked to be maps. */
static int look_up(const struct tern_recipe *r, const char *name, struct tern_yaml_node **out,
                   struct tern_err *err)
{
    struct tern_yaml_node *n = tern_yaml_root(r->source);
    char part[64];

    for (const char *s = name; n; s += strlen(part) + 1) {
        size_t len = strcspn(s, ".");
        snprintf(part, sizeof part, "%.*s", (int)len, s);
        if (tern_yaml_want(n, TERN_YAML_MAP, err) < 0)
            return -1;
        n = tern_yaml_get(n, part);
        if (!s[len])
            break;
    }
    *out = n;
    return 0;
}

/* A path of the file, joined to the file's folder; URLs stay. */
static void join_to_recipe(const struct tern_recipe *r, char **path)
{
    if (!*path || strstr(*path, "://"))
        return;
    char *dir = tern_fs_dirname(r->path);
    char *joined = strcmp(dir, ".") == 0 ? tern_strdup(*path) : tern_fs_join(dir, *path);
    free(dir);
    free(*path);
    *path = joined;
}

static int read_key(struct tern_recipe *r, const struct key *k, struct tern_err *err)
{
    struct tern_yaml_node *n;
    void *to = k->offset == NOWHERE ? NULL : (char *)r + k->offset;
    int word = (int)k->def;

    if (look_up(r, k->name, &n, err) < 0)
        return -1;
    switch (k->kind) {
    case TEXT:
        return tern_yaml_read_text(n, to, err);
    case PATH:
        if (tern_yaml_read_text(n, to, err) < 0)
            return -1;
        join_to_recipe(r, to);
        return 0;
    case COUNT:
        *(int64_t *)to = (int64_t)k->def;
        return tern_yaml_read_int(n, (int64_t)k->lo, (int64_t)k->hi, to, err);
    case REAL:
        *(double *)to = k->def;
        return tern_yaml_read_real(n, k->lo, k->hi, to, err);
    case YESNO:
        return tern_yaml_read_bool(n, to, err);
    case WORD:
        if (tern_yaml_read_word(n, k->words, &word, err) < 0)
            return -1;
        if (to)
            *(int64_t *)to = word;
        return 0;
    }
    return 0;
}

static int read_sets(struct tern_recipe *r, const char *name, bool named,
                     struct tern_recipe_sets *out, struct tern_err *err)
{
    struct tern_yaml_node *list;

    if (look_up(r, name, &list, err) < 0 || tern_yaml_want(list, TERN_YAML_LIST, err) < 0)
        return -1;
    if (!list)
        return 0;
    out->sets = tern_alloc(tern_yaml_count(list), sizeof *out->sets, name, err);
    if (!out->sets)
        return -1;
    for (size_t i = 0; i < tern_yaml_count(list); i++) {
        struct tern_yaml_node *n = tern_yaml_at(list, i);
        struct tern_recipe_set *s = &out->sets[out->n++];
        s->weight = 1;
        if (tern_yaml_want(n, TERN_YAML_MAP, err) < 0 ||
            tern_yaml_read_text(tern_yaml_get(n, "path"), &s->path, err) < 0)
            return -1;
        if (!s->path)
            return tern_yaml_fail(n, err, "has no 'path'.");
        join_to_recipe(r, &s->path);
        if (!named) {
            struct tern_yaml_node *w = tern_yaml_get(n, "weight");
            if (tern_yaml_read_real(w, 0, 1e9, &s->weight, err) < 0)
                return -1;
            if (s->weight <= 0)
                return tern_yaml_fail(w, err, "must be more than 0. Take the set out instead.");
        } else if (tern_yaml_read_text(tern_yaml_get(n, "name"), &s->name, err) < 0) {
            return -1;
        } else if (!s->name) {
            return tern_yaml_fail(n, err, "has no 'name'.");
        }
        for (size_t j = 0; named && j + 1 < out->n; j++)
            if (strcmp(out->sets[j].name, s->name) == 0)
                return tern_yaml_fail(n, err, "a second set called '%s'.", s->name);
    }
    return 0;
}

static int read_betas(struct tern_recipe *r, struct tern_err *err)
{
    struct tern_yaml_node *n;

    r->optimizer.beta1 = 0.9;
    r->optimizer.beta2 = 0.95;
    if (look_up(r, "optimizer.betas", &n, err) < 0 || tern_yaml_want(n, TERN_YAML_LIST, err) < 0)
        return -1;
    if (!n)
        return 0;
    if (tern_yaml_count(n) != 2)
        return tern_yaml_fail(n, err, "has %zu numbers; two are wanted: [0.9, 0.95].",
                              tern_yaml_count(n));
    if (tern_yaml_read_real(tern_yaml_at(n, 0), 0, 0.999999, &r->optimizer.beta1, err) < 0)
        return -1;
    return tern_yaml_read_real(tern_yaml_at(n, 1), 0, 0.999999, &r->optimizer.beta2, err);
}

static int read_command(struct tern_recipe *r, struct tern_err *err)
{
    struct tern_yaml_node *n;

    if (look_up(r, "workload.command", &n, err) < 0 || tern_yaml_want(n, TERN_YAML_LIST, err) < 0)
        return -1;
    if (!n)
        return 0;
    size_t count = tern_yaml_count(n);
    if (count == 0)
        return tern_yaml_fail(n, err, "is empty. Give the program and its arguments.");
    r->workload.command = tern_alloc(count + 1, sizeof *r->workload.command, "a command", err);
    if (!r->workload.command)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (tern_yaml_read_text(tern_yaml_at(n, i), &r->workload.command[i], err) < 0)
            return -1;
    return 0;
}

static int read_version(struct tern_recipe *r, struct tern_err *err)
{
    struct tern_yaml_node *n = tern_yaml_get(tern_yaml_root(r->source), "version");
    int64_t version;

    if (!n)
        return tern_err_set(err, TERN_USAGE, "%s:1: no 'version'. Begin with 'version: 1'.",
                            r->path);
    if (tern_yaml_read_int(n, 1, 1000000, &version, err) < 0)
        return -1;
    if (version != 1)
        return tern_yaml_fail(n, err, "%" PRId64 " is newer than this tern, which reads 1.",
                              version);
    return 0;
}

/* ------------------------------------------------------------------ what cannot be together */

static int check_name(const struct tern_recipe *r, struct tern_err *err)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    if (!r->name)
        return tern_err_set(err, TERN_USAGE, "%s:1: no 'name'. Give the run a name.", r->path);
    if (!*r->name || strlen(r->name) > 64 || strspn(r->name, allowed) != strlen(r->name))
        return tern_recipe_fail(r, "name", err,
                                "'%s' is not 1 to 64 letters, digits, dots, dashes and "
                                "underscores.",
                                r->name);
    return 0;
}

static int missing(const struct tern_recipe *r, const char *key, const char *example,
                   struct tern_err *err)
{
    return tern_recipe_fail(r, key, err, "is missing. For example: %s", example);
}

/* What tern's own trainer needs; somebody else's reads its own settings. */
static int check_trainer(const struct tern_recipe *r, struct tern_err *err)
{
    if (!r->model.from == !r->model.config)
        return tern_recipe_fail(r, "model", err,
                                "give either 'from' (weights to start from) or 'config' (random "
                                "weights).");
    if (r->data.train.n == 0)
        return missing(r, "data.train", "data: {train: [{path: text.tds}]}", err);
    if (r->batch.global == 0)
        return missing(r, "batch.global", "batch: {global: 64, micro: 1, seq_len: 4096}", err);
    if (r->batch.seq_len == 0)
        return missing(r, "batch.seq_len", "batch: {global: 64, micro: 1, seq_len: 4096}", err);
    if (r->steps == 0)
        return missing(r, "steps", "steps: 1000", err);
    if (!r->checkpoint.dir)
        return missing(r, "checkpoint.dir", "checkpoint: {dir: checkpoints, every: 100}", err);
    if (r->batch.global % r->batch.micro)
        return tern_recipe_fail(r, "batch.global", err,
                                "%" PRId64 " is not a multiple of batch.micro (%" PRId64 ").",
                                r->batch.global, r->batch.micro);
    if (r->schedule.warmup > r->steps)
        return tern_recipe_fail(r, "schedule.warmup", err,
                                "%" PRId64 " steps of warm-up, but the run has %" PRId64
                                ": the peak learning rate is never reached. Shorten it.",
                                r->schedule.warmup, r->steps);
    if (r->schedule.min_lr > r->optimizer.lr)
        return tern_recipe_fail(r, "schedule.min_lr", err,
                                "%g is above the peak learning rate, optimizer.lr (%g).",
                                r->schedule.min_lr, r->optimizer.lr);
    if (r->parallel.tensor > 1 || r->parallel.pipeline > 1)
        return tern_recipe_fail(r, r->parallel.tensor > 1 ? "parallel.tensor" : "parallel.pipeline",
                                err,
                                "tern's own trainer is data-parallel: only 1 works. Trainers with "
                                "other degrees are launched by workload.command.");
    return 0;
}

static int read_all(struct tern_recipe *r, struct tern_err *err)
{
    if (read_version(r, err) < 0)
        return -1;
    for (size_t i = 0; i < N_KEYS; i++)
        if (read_key(r, &keys[i], err) < 0)
            return -1;
    if (read_sets(r, "data.train", false, &r->data.train, err) < 0 ||
        read_sets(r, "data.held_out", true, &r->data.held_out, err) < 0 || read_betas(r, err) < 0 ||
        read_command(r, err) < 0 || tern_yaml_no_others(tern_yaml_root(r->source), err) < 0 ||
        check_name(r, err) < 0)
        return -1;
    if (!r->ledger.dir)
        return missing(r, "ledger.dir", "ledger: {dir: ledger}", err);
    return r->workload.command ? 0 : check_trainer(r, err);
}

struct tern_recipe *tern_recipe_load(const char *path, const char *const *overrides, size_t n,
                                     struct tern_err *err)
{
    struct tern_recipe *r = tern_alloc(1, sizeof *r, "a recipe", err);

    if (!r)
        return NULL;
    r->path = tern_strdup(path);
    r->source = tern_yaml_load(path, err);
    if (!r->source || tern_yaml_want(tern_yaml_root(r->source), TERN_YAML_MAP, err) < 0)
        goto fail;
    for (size_t i = 0; i < n; i++) {
        const char *eq = strchr(overrides[i], '=');
        if (!eq || eq == overrides[i]) {
            tern_err_set(err, TERN_USAGE, "--set %s: is not KEY=VALUE, such as optimizer.lr=1e-4",
                         overrides[i]);
            goto fail;
        }
        char *key = tern_strf("%.*s", (int)(eq - overrides[i]), overrides[i]);
        int rc = tern_yaml_override(r->source, key, eq + 1, err);
        free(key);
        if (rc < 0)
            goto fail;
    }
    if (read_all(r, err) == 0)
        return r;
fail:
    tern_recipe_free(r);
    return NULL;
}

static void free_sets(struct tern_recipe_sets *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->sets[i].name);
        free(s->sets[i].path);
    }
    free(s->sets);
}

void tern_recipe_free(struct tern_recipe *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < N_KEYS; i++)
        if (keys[i].kind == TEXT || keys[i].kind == PATH)
            free(*(char **)((char *)r + keys[i].offset));
    free_sets(&r->data.train);
    free_sets(&r->data.held_out);
    for (char **c = r->workload.command; c && *c; c++)
        free(*c);
    free(r->workload.command);
    tern_yaml_free(r->source);
    free(r->path);
    free(r);
}

int tern_recipe_fail(const struct tern_recipe *r, const char *key, struct tern_err *err,
                     const char *fmt, ...)
{
    struct tern_yaml_node *n = tern_yaml_root(r->source);
    int line = 1;
    char part[64], text[800];
    va_list ap;

    for (const char *s = key; n && tern_yaml_kind(n) == TERN_YAML_MAP;) {
        size_t len = strcspn(s, ".");
        snprintf(part, sizeof part, "%.*s", (int)len, s);
        n = tern_yaml_get(n, part);
        if (n)
            line = tern_yaml_line(n);
        if (!s[len])
            break;
        s += len + 1;
    }
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (line == 0)
        return tern_err_set(err, TERN_USAGE, "--set %s: %s", key, text);
    return tern_err_set(err, TERN_USAGE, "%s:%d: %s: %s", r->path, line, key, text);
}

/* ------------------------------------------------------------------ hashes, arithmetic, help */

/* Paths count as they are written: a run goes on where its folder was moved to, and from whatever
 * folder it is started. */
static const char *as_written(const struct tern_yaml_node *n)
{
    const char *text = n ? tern_yaml_text(n) : NULL;

    return text ? text : "";
}

static void add_sets(struct tern_buf *b, const struct tern_recipe *r, const char *name,
                     const struct tern_recipe_sets *s)
{
    struct tern_yaml_node *list = NULL;

    look_up(r, name, &list, NULL);
    for (size_t i = 0; i < s->n; i++)
        tern_buf_printf(b, "%s[%zu]=%s %s %.17g\n", name, i,
                        as_written(tern_yaml_get(tern_yaml_at(list, i), "path")),
                        s->sets[i].name ? s->sets[i].name : "", s->sets[i].weight);
}

static void add_key(struct tern_buf *b, const struct tern_recipe *r, const struct key *k)
{
    const char *from = (const char *)r + k->offset;
    struct tern_yaml_node *n = NULL;

    look_up(r, k->name, &n, NULL);
    if (k->offset == NOWHERE)
        tern_buf_printf(b, "%s=%s\n", k->name, k->words[0]);
    else if (k->kind == TEXT || k->kind == PATH)
        tern_buf_printf(b, "%s=%s\n", k->name, as_written(n));
    else if (k->kind == YESNO)
        tern_buf_printf(b, "%s=%d\n", k->name, *(const bool *)from);
    else if (k->kind == REAL)
        tern_buf_printf(b, "%s=%.17g\n", k->name, *(const double *)from);
    else
        tern_buf_printf(b, "%s=%" PRId64 "\n", k->name, *(const int64_t *)from);
}

static void hash_text(const struct tern_buf *b, char hex[TERN_SHA256_HEX])
{
    uint8_t digest[TERN_SHA256_BYTES];

    tern_sha256(b->data, b->len, digest);
    tern_hex(hex, digest, sizeof digest);
}

void tern_recipe_hashes(const struct tern_recipe *r, char identity[TERN_SHA256_HEX],
                        char full[TERN_SHA256_HEX])
{
    struct tern_buf b = {0};

    for (size_t i = 0; i < N_KEYS; i++)
        if (keys[i].identity)
            add_key(&b, r, &keys[i]);
    tern_buf_printf(&b, "optimizer.betas=%.17g %.17g\n", r->optimizer.beta1, r->optimizer.beta2);
    add_sets(&b, r, "data.train", &r->data.train);
    hash_text(&b, identity);
    for (size_t i = 0; i < N_KEYS; i++)
        if (!keys[i].identity)
            add_key(&b, r, &keys[i]);
    add_sets(&b, r, "data.held_out", &r->data.held_out);
    for (char **c = r->workload.command; c && *c; c++)
        tern_buf_printf(&b, "workload.command=%s\n", *c);
    hash_text(&b, full);
    tern_buf_free(&b);
}

double tern_recipe_lr(const struct tern_recipe *r, int64_t step)
{
    double peak = r->optimizer.lr, end = r->schedule.min_lr;
    int64_t warmup = r->schedule.warmup;

    if (step <= warmup)
        return peak * (double)step / (double)warmup;
    if (r->schedule.kind == TERN_SCHEDULE_CONSTANT || step >= r->steps)
        return r->schedule.kind == TERN_SCHEDULE_CONSTANT ? peak : end;
    double part = (double)(step - warmup) / (double)(r->steps - warmup);
    if (r->schedule.kind == TERN_SCHEDULE_LINEAR)
        return end + (peak - end) * (1 - part);
    return end + (peak - end) * 0.5 * (1 + cos(M_PI * part));
}

int tern_recipe_split(const struct tern_recipe *r, int64_t world, int64_t *data_ranks,
                      int64_t *micro_batches, struct tern_err *err)
{
    int64_t model_ranks = r->parallel.tensor * r->parallel.pipeline;

    if (world % model_ranks)
        return tern_recipe_fail(r, "parallel", err,
                                "%" PRId64 " ranks are not a multiple of tensor x pipeline "
                                "(%" PRId64 ").",
                                world, model_ranks);
    int64_t data = world / model_ranks;
    if (r->batch.global % (data * r->batch.micro))
        return tern_recipe_fail(r, "batch.global", err,
                                "%" PRId64 " sequences do not divide over %" PRId64
                                " data-parallel ranks x %" PRId64
                                " (batch.micro). Use a multiple of %" PRId64 ".",
                                r->batch.global, data, r->batch.micro, data * r->batch.micro);
    *data_ranks = data;
    *micro_batches = r->batch.global / (data * r->batch.micro);
    return 0;
}

void tern_recipe_describe(FILE *to)
{
    fputs("version                  of the format: 1; required\n", to);
    for (size_t i = 0; i < N_KEYS; i++) {
        const struct key *k = &keys[i];
        fprintf(to, "%-24s %s", k->name, k->help);
        if (k->kind == WORD) {
            fputs(" (", to);
            for (size_t w = 0; k->words[w]; w++)
                fprintf(to, "%s%s", w ? " | " : "", k->words[w]);
            fprintf(to, ") [%s]", k->words[(int)k->def]);
        } else if (k->kind == REAL || (k->kind == COUNT && k->def >= k->lo)) {
            fprintf(to, " [%g]", k->def);
        } else if (k->kind == YESNO) {
            fputs(" (true | false) [false]", to);
        }
        fputc('\n', to);
    }
    fputs("data.train               token sets to train on: [{path: a.tds, weight: 0.99}, ...]\n"
          "data.held_out            token sets to evaluate on: [{name: a, path: a.tds}, ...]\n"
          "optimizer.betas          of the two moments [[0.9, 0.95]]\n"
          "workload.command         somebody else's trainer: [program, argument, ...]\n",
          to);
}

#include "core/recipe/lists.h"

#include "core/base/str.h"
#include "core/recipe/keys.h"

#include <inttypes.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

static const char *const trainers[] = {"nxd", "hf", "lightning", NULL};

static const char *const exhausted[] = {"repeat", "stop", NULL};

/* Keys of a set of training data. */
static int read_mixed(struct tern_yaml_node *n, struct tern_recipe_set *s, struct tern_err *err)
{
    struct tern_yaml_node *w = tern_yaml_get(n, "weight"), *e = tern_yaml_get(n, "epochs"),
                          *x = tern_yaml_get(n, "exhausted");
    int word = e ? 1 : 0;

    if (tern_yaml_read_real(w, 0, 1e9, &s->weight, err) < 0 ||
        tern_yaml_read_int(e, 1, 1000000, &s->epochs, err) < 0 ||
        tern_yaml_read_word(x, exhausted, &word, err) < 0)
        return -1;
    if (s->weight <= 0)
        return tern_yaml_fail(w, err, "must be more than 0. Take the set out instead.");
    if (e && word == 0)
        return tern_yaml_fail(x, err,
                              "'repeat' beside 'epochs', after which the set is exhausted. Take "
                              "one of them out.");
    if (word == 1 && !e)
        s->epochs = 1;
    return 0;
}

static int read_sets(struct tern_recipe *r, struct tern_yaml_node *list, bool named,
                     struct tern_recipe_sets *out, struct tern_err *err)
{
    if (tern_yaml_expect(list, TERN_YAML_LIST, err) < 0)
        return -1;
    if (!list)
        return 0;
    out->sets = tern_alloc(tern_yaml_count(list), sizeof *out->sets, "token sets", err);
    if (!out->sets)
        return -1;
    for (size_t i = 0; i < tern_yaml_count(list); i++) {
        struct tern_yaml_node *n = tern_yaml_at(list, i);
        struct tern_recipe_set *s = &out->sets[out->n++];
        s->weight = 1;
        if (tern_yaml_expect(n, TERN_YAML_MAP, err) < 0 ||
            tern_yaml_read_text(tern_yaml_get(n, "path"), &s->path, err) < 0)
            return -1;
        if (!s->path)
            return tern_yaml_fail(n, err, "has no 'path'.");
        tern_recipe_join(r, &s->path);
        if (!named) {
            if (read_mixed(n, s, err) < 0)
                return -1;
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

int tern_recipe_read_held_out(struct tern_recipe *r, struct tern_err *err)
{
    struct tern_yaml_node *list;

    if (tern_recipe_look_up(r, "data.held_out", &list, err) < 0)
        return -1;
    return read_sets(r, list, true, &r->data.held_out, err);
}

static int read_stage(struct tern_recipe *r, struct tern_yaml_node *n, bool last, int64_t after,
                      struct tern_err *err)
{
    struct tern_recipe_stage *s = &r->data.stages[r->data.n_stages];

    s->key = tern_strf("data.stages[%zu].train", r->data.n_stages++);
    if (tern_yaml_expect(n, TERN_YAML_MAP, err) < 0 ||
        tern_yaml_read_int(tern_yaml_get(n, "until"), 1, TERN_RECIPE_STEPS_MAX, &s->until, err) <
            0 ||
        read_sets(r, tern_yaml_get(n, "train"), false, &s->train, err) < 0)
        return -1;
    s->written = s->until;
    if (s->train.n == 0)
        return tern_yaml_fail(n, err, "has no 'train': [{path: text.tds}].");
    if (!s->until && !last)
        return tern_yaml_fail(n, err,
                              "has no 'until', its last step; only the last stage may go "
                              "without one.");
    if (s->until && s->until <= after)
        return tern_yaml_fail(tern_yaml_get(n, "until"), err,
                              "%" PRId64 " is not after the stage before, which goes to step "
                              "%" PRId64 ".",
                              s->until, after);
    return 0;
}

int tern_recipe_read_data(struct tern_recipe *r, struct tern_err *err)
{
    struct tern_yaml_node *train, *stages;

    if (tern_recipe_look_up(r, "data.train", &train, err) < 0 ||
        tern_recipe_look_up(r, "data.stages", &stages, err) < 0 ||
        tern_yaml_expect(stages, TERN_YAML_LIST, err) < 0)
        return -1;
    if (stages && train)
        return tern_yaml_fail(stages, err,
                              "beside data.train: give one of them. A single stage is data.train.");
    size_t n = stages ? tern_yaml_count(stages) : train != NULL;
    if ((stages && n == 0) || n > TERN_RECIPE_STAGES)
        return tern_yaml_fail(stages, err, "%zu stages; 1 to %d are allowed.", n,
                              TERN_RECIPE_STAGES);
    r->data.stages = tern_alloc(n, sizeof *r->data.stages, "stages of data", err);
    if (!r->data.stages)
        return -1;
    for (size_t i = 0; stages && i < n; i++)
        if (read_stage(r, tern_yaml_at(stages, i), i + 1 == n, i ? r->data.stages[i - 1].until : 0,
                       err) < 0)
            return -1;
    if (!train)
        return 0;
    r->data.stages[0].key = tern_strdup("data.train");
    r->data.n_stages = 1;
    return read_sets(r, train, false, &r->data.stages[0].train, err);
}

const char *const tern_recipe_lora_names[TERN_LORA_TARGETS + 1] = {
    [TERN_LORA_Q] = "q_proj",       [TERN_LORA_K] = "k_proj",       [TERN_LORA_V] = "v_proj",
    [TERN_LORA_O] = "o_proj",       [TERN_LORA_GATE] = "gate_proj", [TERN_LORA_UP] = "up_proj",
    [TERN_LORA_DOWN] = "down_proj",
};

int tern_recipe_read_targets(struct tern_recipe *r, struct tern_err *err)
{
    struct tern_yaml_node *list;

    r->lora.targets = r->lora.rank ? 1 << TERN_LORA_Q | 1 << TERN_LORA_V : 0;
    if (r->lora.rank && r->lora.alpha == 0)
        r->lora.alpha = (double)r->lora.rank;
    if (tern_recipe_look_up(r, "lora.targets", &list, err) < 0 ||
        tern_yaml_expect(list, TERN_YAML_LIST, err) < 0)
        return -1;
    if (!list)
        return 0;
    if (tern_yaml_count(list) == 0)
        return tern_yaml_fail(list, err, "is empty.");
    r->lora.targets = 0;
    for (size_t i = 0; i < tern_yaml_count(list); i++) {
        int word = 0;
        if (tern_yaml_read_word(tern_yaml_at(list, i), tern_recipe_lora_names, &word, err) < 0)
            return -1;
        if (r->lora.targets & 1U << word)
            return tern_yaml_fail(tern_yaml_at(list, i), err, "is there twice.");
        r->lora.targets |= 1U << word;
    }
    return 0;
}

int tern_recipe_read_betas(struct tern_recipe *r, struct tern_err *err)
{
    struct tern_yaml_node *n;

    r->optimizer.beta1 = 0.9;
    r->optimizer.beta2 = 0.95;
    if (tern_recipe_look_up(r, "optimizer.betas", &n, err) < 0 ||
        tern_yaml_expect(n, TERN_YAML_LIST, err) < 0)
        return -1;
    if (!n)
        return 0;
    if (tern_yaml_count(n) != 2)
        return tern_yaml_fail(n, err, "has %zu numbers; two are expected: [0.9, 0.95].",
                              tern_yaml_count(n));
    if (tern_yaml_read_real(tern_yaml_at(n, 0), 0, 0.999999, &r->optimizer.beta1, err) < 0)
        return -1;
    return tern_yaml_read_real(tern_yaml_at(n, 1), 0, 0.999999, &r->optimizer.beta2, err);
}

/* A list of texts, NULL-ended; *out stays NULL without one. */
static int read_words(struct tern_yaml_node *n, char ***out, size_t *n_out, struct tern_err *err)
{
    if (tern_yaml_expect(n, TERN_YAML_LIST, err) < 0)
        return -1;
    if (!n)
        return 0;
    size_t count = tern_yaml_count(n);
    if (count == 0)
        return tern_yaml_fail(n, err, "is empty.");
    *out = tern_alloc(count + 1, sizeof **out, "a list", err);
    if (!*out)
        return -1;
    if (n_out)
        *n_out = count;
    for (size_t i = 0; i < count; i++)
        if (tern_yaml_read_text(tern_yaml_at(n, i), &(*out)[i], err) < 0)
            return -1;
    return 0;
}

int tern_recipe_read_command(struct tern_recipe *r, const char *name, char ***out,
                             struct tern_err *err)
{
    struct tern_yaml_node *n;

    if (tern_recipe_look_up(r, name, &n, err) < 0)
        return -1;
    return read_words(n, out, NULL, err);
}

static int check_pattern(struct tern_yaml_node *n, const struct tern_recipe_metric *m,
                         struct tern_err *err)
{
    regex_t regex;
    char why[100];

    if (strpbrk(m->pattern, "\t\n"))
        return tern_yaml_fail(n, err, "holds a tab or newline. Write [[:blank:]].");
    int rc = regcomp(&regex, m->pattern, REG_EXTENDED);
    if (rc) {
        regerror(rc, &regex, why, sizeof why);
        return tern_yaml_fail(n, err, "is not an extended regular expression: %s", why);
    }
    size_t groups = regex.re_nsub;
    regfree(&regex);
    if (groups < m->n_names || m->n_names > TERN_RECIPE_GROUPS)
        return tern_yaml_fail(n, err, "has %zu groups in parentheses for %zu names (at most %d).",
                              groups, m->n_names, TERN_RECIPE_GROUPS);
    return 0;
}

/* A word, {pattern: ..., names: [...]} or {tensorboard: ...}. */
static int read_metric(struct tern_recipe *r, struct tern_yaml_node *n,
                       struct tern_recipe_metric *m, struct tern_err *err)
{
    int word = 0;

    if (tern_yaml_kind(n) == TERN_YAML_TEXT) {
        if (tern_yaml_read_word(n, trainers, &word, err) < 0)
            return -1;
        m->known = tern_strdup(trainers[word]);
        return 0;
    }
    if (tern_yaml_expect(n, TERN_YAML_MAP, err) < 0 ||
        tern_yaml_read_text(tern_yaml_get(n, "pattern"), &m->pattern, err) < 0 ||
        tern_yaml_read_text(tern_yaml_get(n, "tensorboard"), &m->tensorboard, err) < 0 ||
        read_words(tern_yaml_get(n, "names"), &m->names, &m->n_names, err) < 0)
        return -1;
    tern_recipe_join(r, &m->tensorboard);
    if (!m->pattern == !m->tensorboard)
        return tern_yaml_fail(n, err, "has neither or both of 'pattern' and 'tensorboard'.");
    if (m->pattern && !m->names)
        return tern_yaml_fail(n, err,
                              "has no 'names' for the groups of its pattern, such as [step, "
                              "loss].");
    return m->pattern ? check_pattern(tern_yaml_get(n, "pattern"), m, err) : 0;
}

/* The ranks refuse more, but only after the start. */
static int check_metric_count(struct tern_yaml_node *list, const struct tern_recipe_metrics *m,
                              struct tern_err *err)
{
    size_t patterns = 0, events = 0;

    for (size_t i = 0; i < m->n; i++) {
        const struct tern_recipe_metric *one = &m->v[i];
        patterns += one->pattern != NULL;
        events += one->tensorboard != NULL;
        if (patterns > TERN_RECIPE_PATTERNS || events > TERN_RECIPE_EVENTS)
            return tern_yaml_fail(tern_yaml_at(list, i), err,
                                  "is more than can be read (at most %d patterns and %d folders of "
                                  "event files).",
                                  TERN_RECIPE_PATTERNS, TERN_RECIPE_EVENTS);
        for (size_t k = 0; one->known && k < i; k++)
            if (m->v[k].known && strcmp(m->v[k].known, one->known) == 0)
                return tern_yaml_fail(tern_yaml_at(list, i), err, "is there twice.");
    }
    return 0;
}

int tern_recipe_read_metrics(struct tern_recipe *r, struct tern_err *err)
{
    struct tern_recipe_metrics *m = &r->workload.metrics;
    struct tern_yaml_node *list;

    if (tern_recipe_look_up(r, "workload.metrics", &list, err) < 0 ||
        tern_yaml_expect(list, TERN_YAML_LIST, err) < 0)
        return -1;
    if (!list || tern_yaml_count(list) == 0)
        return 0;
    m->v = tern_alloc(tern_yaml_count(list), sizeof *m->v, "workload.metrics", err);
    if (!m->v)
        return -1;
    for (; m->n < tern_yaml_count(list); m->n++)
        if (read_metric(r, tern_yaml_at(list, m->n), &m->v[m->n], err) < 0) {
            m->n++; /* its texts are to be freed, too */
            return -1;
        }
    return check_metric_count(list, m, err);
}

static void free_sets(struct tern_recipe_sets *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->sets[i].name);
        free(s->sets[i].path);
    }
    free(s->sets);
}

static void free_words(char **words)
{
    for (char **w = words; w && *w; w++)
        free(*w);
    free(words);
}

void tern_recipe_free_lists(struct tern_recipe *r)
{
    for (size_t i = 0; i < r->data.n_stages; i++) {
        free_sets(&r->data.stages[i].train);
        free(r->data.stages[i].key);
    }
    free(r->data.stages);
    free_sets(&r->data.held_out);
    free_words(r->workload.command);
    free_words(r->workload.precompile.command);
    for (size_t i = 0; i < r->workload.metrics.n; i++) {
        struct tern_recipe_metric *m = &r->workload.metrics.v[i];
        free(m->known);
        free(m->pattern);
        free(m->tensorboard);
        free_words(m->names);
    }
    free(r->workload.metrics.v);
}

/* Which runs tern ledger list shows. */
#include "cmd/ledger/list.h"

#include <fnmatch.h>
#include <math.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct list_filter list_filter;

/* Words of an option that takes commas and may be given again. */
struct words {
    char *text;
    const char **v;
    size_t n;
};

enum { WORDS_MAX = 4096 };

static int split(struct words *w, const struct tern_opt_list *list, const char *option,
                 struct tern_err *err)
{
    struct tern_buf all = {0};
    char *at = NULL;

    *w = (struct words){.v = tern_alloc(WORDS_MAX, sizeof *w->v, "words", err)};
    if (!w->v)
        return -1;
    for (size_t i = 0; i < list->n; i++)
        tern_buf_printf(&all, "%s,", list->values[i]);
    w->text = all.data;
    for (char *s = all.data ? strtok_r(all.data, ",", &at) : NULL; s;
         s = strtok_r(NULL, ",", &at)) {
        if (w->n == WORDS_MAX)
            return tern_err_set(err, TERN_USAGE, "--%s: more than %d", option, WORDS_MAX);
        w->v[w->n++] = s;
    }
    return list->n && !w->n ? tern_err_set(err, TERN_USAGE, "--%s: nothing is named", option) : 0;
}

static void free_words(struct words *w)
{
    free(w->text);
    free(w->v);
}

/* The filters go over the rows twice.  First each looks for its words in all rows: another filter
 * may drop the one that has them.  Then each drops rows. */
struct pass {
    struct list_row *rows;
    size_t *n;
    bool checks;
};

/* Keep the rows for which `keep` is true. */
static void retain(struct list_row *rows, size_t *n,
                   bool (*keep)(struct list_row *r, const void *arg), const void *arg)
{
    size_t kept = 0;

    for (size_t i = 0; i < *n; i++) {
        if (keep(&rows[i], arg))
            rows[kept++] = rows[i];
        else
            show_recipe_free(&rows[i].recipe);
    }
    *n = kept;
}

/* ---------------------------------------------------------------- words that must be there */

struct column {
    const char *what;                            /* "user" */
    const char *(*get)(const struct list_row *); /* or NULL */
    const char *const *known;                    /* further values, NULL-ended; or NULL */
    bool folded;                                 /* in any case */
    bool globs;
};

static const char *user_of(const struct list_row *r)
{
    return r->run->user;
}
static const char *name_of(const struct list_row *r)
{
    return r->run->name;
}
static const char *state_of(const struct list_row *r)
{
    return r->state;
}

static const char *const states[] = {"running",   "silent",    "done",        "failed",
                                     "refused",   "stopped",   "halted",      "killed",
                                     "fault",     "node_fail", "time_limit",  "preempted",
                                     "cancelled", "requeued",  "reservation", "precompile_failed",
                                     "imported",  NULL};

static const struct column users_column = {"user", user_of, NULL, false, false};
static const struct column names_column = {"run", name_of, NULL, false, true};
static const struct column states_column = {"state", state_of, states, true, false};

static bool is_glob(const char *word)
{
    return strpbrk(word, "*?[");
}

static bool equal(const struct column *c, const char *word, const char *value)
{
    return value && (c->globs    ? fnmatch(word, value, 0) == 0
                     : c->folded ? strcasecmp(word, value) == 0
                                 : strcmp(word, value) == 0);
}

/* A word that no row has may be a slip of the fingers. */
static int check_word(const struct column *c, const char *word, const struct list_row *rows,
                      size_t n, struct tern_err *err)
{
    size_t n_near = 0;

    if (c->globs && is_glob(word))
        return 0;
    for (size_t i = 0; i < n; i++)
        if (equal(c, word, c->get(&rows[i])))
            return 0;
    for (const char *const *k = c->known; k && *k; k++)
        if (equal(c, word, *k))
            return 0;
    if (c == &users_column && getpwnam(word))
        return 0; /* a user without runs */
    const char **near = tern_alloc(n + 64, sizeof *near, "names", err);
    if (!near)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (c->get(&rows[i]))
            near[n_near++] = c->get(&rows[i]);
    for (const char *const *k = c->known; k && *k; k++)
        near[n_near++] = *k;
    char *hint = show_did_you_mean(word, near, n_near);
    tern_err_set(err, TERN_USAGE,
                 c == &states_column ? "'%.200s' is no %s%s" : "no %2$s '%1$.200s'%3$s", word,
                 c->what, hint);
    free(hint);
    free(near);
    return -1;
}

struct wanted {
    const struct column *column;
    const struct words *words;
};

static bool has_word(struct list_row *r, const void *arg)
{
    const struct wanted *w = arg;

    for (size_t i = 0; i < w->words->n; i++)
        if (equal(w->column, w->words->v[i], w->column->get(r)))
            return true;
    return false;
}

static int by_words(const struct column *c, const struct tern_opt_list *list, const char *option,
                    const struct pass *p, struct tern_err *err)
{
    struct words w;
    int rc = list->n ? split(&w, list, option, err) : 0;

    if (!list->n)
        return 0;
    for (size_t i = 0; rc == 0 && p->checks && i < w.n; i++)
        rc = check_word(c, w.v[i], p->rows, *p->n, err);
    if (rc == 0 && !p->checks)
        retain(p->rows, p->n, has_word, &(struct wanted){c, &w});
    free_words(&w);
    return rc;
}

/* ---------------------------------------------------------------- jobs, tags, times */

/* Does one of the run's attempts belong to a job of -j? */
static bool of_jobs(struct list_row *r, const void *arg)
{
    const struct tern_ledger_rows *attempts = &r->home->attempts;
    const struct words *jobs = arg;

    for (size_t i = 0; i < attempts->n; i++)
        for (size_t k = 0; k < jobs->n; k++)
            if (tern_ledger_job_is(jobs->v[k], &attempts->attempts[i]) > 0 &&
                strcmp(attempts->attempts[i].run_id, r->run->id) == 0)
                return true;
    return false;
}

static int by_jobs(const struct pass *p, struct tern_err *err)
{
    struct words w;
    int rc = list_filter.jobs.n ? split(&w, &list_filter.jobs, "jobs", err) : 0;

    if (!list_filter.jobs.n)
        return 0;
    for (size_t i = 0; rc == 0 && i < w.n; i++)
        if (tern_ledger_job_is(w.v[i], &(struct tern_ledger_attempt){0}) < 0)
            rc = tern_err_set(err, TERN_USAGE,
                              "-j '%s': is no job's id, such as 4711, or 4711_3 of an array",
                              w.v[i]);
    if (rc == 0 && !p->checks)
        retain(p->rows, p->n, of_jobs, &w);
    free_words(&w);
    return rc;
}

static bool has_tag(const struct list_row *r, const char *tag)
{
    size_t len = strlen(tag);

    for (const char *s = r->run->tags ? r->run->tags : ""; *(s += strspn(s, " "));
         s += strcspn(s, " "))
        if (strcspn(s, " ") == len && strncmp(s, tag, len) == 0)
            return true;
    return false;
}

static bool has_tags(struct list_row *r, const void *arg)
{
    const struct words *w = arg;

    for (size_t i = 0; i < w->n; i++)
        if (!has_tag(r, w->v[i]))
            return false;
    return true;
}

static int no_tag(const char *tag, const struct list_row *rows, size_t n, struct tern_err *err)
{
    struct words all = {.v = tern_alloc(WORDS_MAX, sizeof *all.v, "tags", err)};
    struct tern_buf b = {0};
    char *at = NULL;

    for (size_t i = 0; i < n; i++)
        if (rows[i].run->tags)
            tern_buf_printf(&b, "%s ", rows[i].run->tags);
    for (char *s = b.data ? strtok_r(b.data, " ", &at) : NULL; all.v && s && all.n < WORDS_MAX;
         s = strtok_r(NULL, " ", &at))
        all.v[all.n++] = s;
    char *hint = all.v ? show_did_you_mean(tag, all.v, all.n) : tern_strdup("");
    tern_err_set(err, TERN_USAGE, "no run has the tag '%.200s'%s", tag, hint);
    free(hint);
    free(all.v);
    tern_buf_free(&b);
    return -1;
}

static int by_tags(const struct pass *p, struct tern_err *err)
{
    struct words w;
    int rc = list_filter.tags.n ? split(&w, &list_filter.tags, "tag", err) : 0;

    if (!list_filter.tags.n)
        return 0;
    for (size_t k = 0; rc == 0 && p->checks && k < w.n; k++) {
        bool there = false;
        for (size_t i = 0; i < *p->n && !there; i++)
            there = has_tag(&p->rows[i], w.v[k]);
        rc = there ? 0 : no_tag(w.v[k], p->rows, *p->n, err);
    }
    if (rc == 0 && !p->checks)
        retain(p->rows, p->n, has_tags, &w);
    free_words(&w);
    return rc;
}

static bool at_that_time(struct list_row *r, const void *arg)
{
    const int64_t *span = arg;

    return r->run->updated_ns >= span[0] && r->run->created_ns <= span[1];
}

static int by_time(const struct pass *p, struct tern_err *err)
{
    int64_t span[2] = {INT64_MIN, INT64_MAX};

    if ((list_filter.since && tern_cmd_parse_time(list_filter.since, &span[0], err) < 0) ||
        (list_filter.until && tern_cmd_parse_time(list_filter.until, &span[1], err) < 0))
        return -1;
    if (!p->checks && (list_filter.since || list_filter.until))
        retain(p->rows, p->n, at_that_time, span);
    return 0;
}

/* ---------------------------------------------------------------- values of recipes */

enum relation { EQUAL, DIFFERENT, LESS, GREATER, AT_MOST, AT_LEAST };

static const struct {
    const char *sign;
    enum relation relation;
} relations[] = {/* the longer first */
                 {"!=", DIFFERENT}, {"<=", AT_MOST}, {">=", AT_LEAST},
                 {"=", EQUAL},      {"<", LESS},     {">", GREATER}};
enum { N_RELATIONS = sizeof relations / sizeof *relations };

struct condition {
    char *key;
    const char *value;
    enum relation relation;
    double number; /* NAN: the value is none */
};

static int parse_condition(const char *typed, struct condition *ret_condition, struct tern_err *err)
{
    struct condition c = {.number = NAN};
    size_t len = strcspn(typed, "!<>=");

    for (size_t i = 0; i < N_RELATIONS && len && !c.value; i++)
        if (strncmp(typed + len, relations[i].sign, strlen(relations[i].sign)) == 0) {
            c.relation = relations[i].relation;
            c.value = typed + len + strlen(relations[i].sign);
        }
    if (!c.value)
        return tern_err_set(
            err, TERN_USAGE,
            "--where '%.200s': wanted KEY=VALUE, or with !=, <, >, <= or >=", typed);
    tern_str_real(c.value, -INFINITY, INFINITY, &c.number);
    if (c.relation >= LESS && isnan(c.number))
        return tern_err_set(err, TERN_USAGE,
                            "--where '%.200s': '%.100s' is no number to compare with", typed,
                            c.value);
    c.key = tern_strf("%.*s", (int)len, typed);
    *ret_condition = c;
    return 0;
}

static bool fulfils(struct list_row *r, const void *arg)
{
    const struct condition *c = arg;
    const char *value = show_recipe_get(list_recipe(r), c->key);
    double v = NAN;

    if (!value)
        return false;
    tern_str_real(value, -INFINITY, INFINITY, &v);
    const bool same =
        !isnan(c->number) && !isnan(v) ? v == c->number : fnmatch(c->value, value, 0) == 0;
    switch (c->relation) {
    case EQUAL:
        return same;
    case DIFFERENT:
        return !same;
    case LESS:
        return v < c->number;
    case GREATER:
        return v > c->number;
    case AT_MOST:
        return v <= c->number;
    case AT_LEAST:
        return v >= c->number;
    }
    return false;
}

static int no_key(const char *key, struct list_row *rows, size_t n, struct tern_err *err)
{
    enum { KEYS_MAX = 4096 };
    const char **keys = tern_alloc(KEYS_MAX, sizeof *keys, "keys", err);
    size_t n_keys = 0;

    if (!keys)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const struct show_recipe *recipe = list_recipe(&rows[i]);
        for (size_t k = 0; k < recipe->n && n_keys < KEYS_MAX; k++)
            keys[n_keys++] = recipe->settings[k].key;
    }
    char *hint = show_did_you_mean(key, keys, n_keys);
    tern_err_set(err, TERN_USAGE, "--where: no recipe of these runs has '%.200s'%s", key, hint);
    free(hint);
    free(keys);
    return -1;
}

static int by_recipe(const struct pass *p, struct tern_err *err)
{
    int rc = 0;

    for (size_t k = 0; rc == 0 && k < list_filter.where.n; k++) {
        struct condition c = {0};
        bool there = *p->n == 0 || !p->checks;
        rc = parse_condition(list_filter.where.values[k], &c, err);
        for (size_t i = 0; rc == 0 && i < *p->n && !there; i++)
            there = show_recipe_get(list_recipe(&p->rows[i]), c.key);
        if (rc == 0)
            rc = there ? 0 : no_key(c.key, p->rows, *p->n, err);
        if (rc == 0 && !p->checks)
            retain(p->rows, p->n, fulfils, &c);
        free(c.key);
    }
    return rc;
}

/* The costly comparisons come last. */
static int apply(const struct pass *p, struct tern_err *err)
{
    const struct list_filter *f = &list_filter;

    return by_words(&users_column, &f->users, "user", p, err) < 0 ||
                   by_words(&states_column, &f->states, "state", p, err) < 0 ||
                   by_words(&names_column, &f->names, "name", p, err) < 0 || by_time(p, err) < 0 ||
                   by_tags(p, err) < 0 || by_jobs(p, err) < 0 || by_recipe(p, err) < 0
               ? -1
               : 0;
}

int list_filter_apply(struct list_row *rows, size_t *n, struct tern_err *err)
{
    const struct pass check = {rows, n, true}, drop = {rows, n, false};

    return apply(&check, err) < 0 || apply(&drop, err) < 0 ? -1 : 0;
}

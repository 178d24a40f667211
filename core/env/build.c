/* From profile and facts to rows.  An outer call's variables are known by its marks. */
#include "core/env/env.h"

#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/env/profile.h"
#include "core/env/sdk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char marks_variable[] = "TERN_PROFILE_SET";

/* ------------------------------------------------------------------ profiles */

static const struct tern_env_profile profiles[] = {
    {"auto", "trn1 on nodes with Neuron devices, else cpu"},
    {"cpu", "nodes that compute with their CPUs: threads, pinning, BLAS"},
    {"trn1", "Trainium 1, by the Neuron SDK that is installed"},
    {"trn1-2.18", "Neuron SDK 2.18"},
    {"trn1-2.19", "Neuron SDK 2.19"},
    {"trn1-2.20", "Neuron SDK 2.20"},
    {"trn1-2.21", "Neuron SDK 2.21"},
    {"trn1-2.22", "Neuron SDK 2.22: the last with XLA_USE_BF16 and XLA_DOWNCAST_BF16"},
    {"trn1-2.23", "Neuron SDK 2.23"},
    {"trn1-2.24", "Neuron SDK 2.24"},
    {"trn1-2.25", "Neuron SDK 2.25"},
    {"trn1-2.26", "Neuron SDK 2.26"},
    {"trn1-2.27", "Neuron SDK 2.27"},
    {"trn1-2.28", "Neuron SDK 2.28"},
    {"trn1-2.29", "Neuron SDK 2.29"},
    {"trn1-2.30", "Neuron SDK 2.30: the last with the runtime's implicit asynchronous mode"},
    {"trn1-2.31", "Neuron SDK 2.31"},
};
enum {
    N_PROFILES = sizeof profiles / sizeof *profiles,
    TRN1_FIRST = 3, /* row of trn1-2.18 */
};
_Static_assert(N_PROFILES - TRN1_FIRST == TERN_ENV_SDK_LAST - TERN_ENV_SDK_FIRST + 1,
               "a row for each generation");

const struct tern_env_profile *tern_env_profile(size_t i)
{
    return i < N_PROFILES ? &profiles[i] : NULL;
}

static const char *generation_name(int generation)
{
    return profiles[TRN1_FIRST + generation - TERN_ENV_SDK_FIRST].name;
}

static const char *by_sdk(const struct tern_env_facts *f, char *why, size_t size)
{
    int n = f->sdk[0] ? tern_env_sdk_generation(f->sdk) : -1;
    const char *from = f->sdk_from[0] ? f->sdk_from : "as given";

    if (n < 0) {
        snprintf(why, size, "no Neuron SDK is installed here: the newest known, 2.%d",
                 TERN_ENV_SDK_LAST);
        n = TERN_ENV_SDK_LAST;
    } else if (n > TERN_ENV_SDK_LAST) {
        snprintf(why, size, "Neuron SDK %s (%s) is newer than the newest known, 2.%d", f->sdk, from,
                 TERN_ENV_SDK_LAST);
        n = TERN_ENV_SDK_LAST;
    } else if (n < TERN_ENV_SDK_FIRST) {
        snprintf(why, size, "Neuron SDK %s (%s) is older than the oldest known, 2.%d", f->sdk, from,
                 TERN_ENV_SDK_FIRST);
        n = TERN_ENV_SDK_FIRST;
    } else {
        snprintf(why, size, "Neuron SDK %s is installed: %s", f->sdk, from);
    }
    return generation_name(n);
}

static const char *by_node(const struct tern_env_facts *f, char *why, size_t size)
{
    char sdk[300];

    if (f->trainer) {
        snprintf(why, size, "tern's own trainer computes on CPUs");
        return "cpu";
    }
    if (f->neuron_devices == 0 && f->neuron_chips == 0) {
        snprintf(why, size, "this node has no Neuron device (/dev/neuron*)");
        return "cpu";
    }
    const char *name = by_sdk(f, sdk, sizeof sdk);
    if (f->neuron_devices)
        snprintf(why, size, "%d Neuron device%s here; %s", f->neuron_devices,
                 f->neuron_devices == 1 ? "" : "s", sdk);
    else
        snprintf(why, size,
                 "a %s has %d Neuron devices, but there is no /dev/neuron0: is the driver loaded, "
                 "or the device kept from this container?; %s",
                 f->instance, f->neuron_chips, sdk);
    return name;
}

const char *tern_env_resolve(const char *profile, const struct tern_env_facts *f, char *why,
                             size_t size, struct tern_err *err)
{
    const char *names[N_PROFILES + 1] = {NULL};

    if (!profile || !*profile || strcmp(profile, "auto") == 0)
        return by_node(f, why, size);
    if (strcmp(profile, "trn1") == 0)
        return by_sdk(f, why, size);
    for (size_t i = 0; i < N_PROFILES; i++) {
        names[i] = profiles[i].name;
        if (strcmp(profile, names[i]) != 0)
            continue;
        snprintf(why, size, "asked for");
        return names[i];
    }
    const char *near = tern_str_nearest(profile, names);
    tern_err_set(err, TERN_USAGE,
                 "there is no profile '%.64s'%s%s%s. `tern env --list` shows them.", profile,
                 near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    return NULL;
}

/* ------------------------------------------------------------------ marks */

/* TERN_PROFILE_SET is "NAME=1a2b3c4d NAME=...", each with its value's hash.  The plugin writes the
 * same (plugins/spank/profile.c) without linking tern. */
static uint32_t hash(const char *value)
{
    uint32_t h = 2166136261U; /* FNV-1a */

    for (; *value; value++)
        h = (h ^ (unsigned char)*value) * 16777619U;
    return h;
}

static const char *look_up(char *const *variables, const char *name)
{
    size_t len = strlen(name);

    for (; variables && *variables; variables++)
        if (strncmp(*variables, name, len) == 0 && (*variables)[len] == '=')
            return *variables + len + 1;
    return NULL;
}

/* After the hash of a value that the site's settings gave. */
static const char by_site[] = ":site";

enum mark { NOT_MARKED, MARKED, MARKED_SITE };

/* Has an outer call given `name` this value? */
static enum mark marked(const char *marks, const char *name, const char *value)
{
    char mark[128];
    int len = snprintf(mark, sizeof mark, "%s=%08x", name, hash(value));

    if (!marks || len >= (int)sizeof mark)
        return NOT_MARKED;
    for (const char *at = marks; (at = strstr(at, mark)); at += len) {
        size_t rest = strcspn(at + len, " ");
        if (at != marks && at[-1] != ' ')
            continue;
        if (rest == 0)
            return MARKED;
        if (rest == sizeof by_site - 1 && strncmp(at + len, by_site, rest) == 0)
            return MARKED_SITE;
    }
    return NOT_MARKED;
}

static bool is_ours(const struct tern_env_row *r)
{
    return r->by == TERN_ENV_PROFILE || r->by == TERN_ENV_SITE;
}

char *tern_env_marks(const struct tern_env_rows *rows)
{
    struct tern_buf b = {0};

    tern_buf_puts(&b, "");
    for (size_t i = 0; i < rows->n; i++)
        if (is_ours(&rows->row[i]))
            tern_buf_printf(&b, "%s%s=%08x%s", b.len ? " " : "", rows->row[i].name,
                            hash(rows->row[i].value),
                            rows->row[i].by == TERN_ENV_SITE ? by_site : "");
    return b.data;
}

void tern_env_forget(void)
{
    const char *set = tern_var(marks_variable);
    char *marks = set ? tern_strdup(set) : NULL, *copy = set ? tern_strdup(set) : NULL;
    char *at = NULL;

    for (char *w = copy ? strtok_r(copy, " ", &at) : NULL; w; w = strtok_r(NULL, " ", &at)) {
        w[strcspn(w, "=")] = '\0';
        const char *value = *w ? getenv(w) : NULL;
        if (value && marked(marks, w, value))
            unsetenv(w);
    }
    unsetenv(marks_variable);
    free(copy);
    free(marks);
}

/* ------------------------------------------------------------------ rows */

static bool holds(const struct tern_env_var *v, int generation)
{
    return !generation ||
           ((!v->first || generation >= v->first) && (!v->last || generation <= v->last));
}

static void answer(const struct tern_env_var *v, int generation, const struct tern_env_facts *f,
                   struct tern_env_answer *a)
{
    *a = (struct tern_env_answer){0};
    if (!holds(v, generation))
        tern_env_say(a, "%s", v->gone);
    else if (v->value)
        tern_env_let(a, "%s", v->value);
    else if (v->rule)
        v->rule(f, a);
    if (!a->why[0])
        tern_env_say(a, "%s", v->why ? v->why : "");
}

static const char *site_value(const struct tern_env_facts *f, const char *name)
{
    for (size_t i = 0; i < f->n_site; i++)
        if (strcmp(f->site[i].name, name) == 0)
            return f->site[i].value;
    return NULL;
}

static void settle(struct tern_env_row *r, enum tern_env_by by, const char *value, const char *why)
{
    r->by = by;
    r->value = value ? tern_strdup(value) : NULL;
    r->why = tern_strdup(why);
}

/* The user's before the site's before the profile's; but a value that this task's launcher has set
 * for the whole job stays. */
static void fill(struct tern_env_row *r, const struct tern_env_var *v, int generation,
                 const struct tern_env_facts *f, char *const *variables)
{
    const char *own = look_up(variables, v->name), *marks = look_up(variables, marks_variable);
    const char *site = site_value(f, v->name);
    enum mark mark = own ? marked(marks, v->name, own) : NOT_MARKED;
    struct tern_env_answer a;

    answer(v, generation, f, &a);
    *r =
        (struct tern_env_row){.name = tern_strdup(v->name), .origin = v->origin, .scope = v->scope};
    if (v->recipes && own && a.set && strcmp(own, a.value) == 0)
        mark = MARKED;
    if (mark == MARKED_SITE && f->launched)
        settle(r, TERN_ENV_SITE, own, "site settings");
    else if (mark == MARKED && f->launched && v->scope == TERN_ENV_JOB && holds(v, generation))
        settle(r, TERN_ENV_PROFILE, own,
               a.set && strcmp(own, a.value) == 0 ? a.why
                                                  : "as `tern run` set it: it knows the recipe");
    else if (own && mark == NOT_MARKED)
        settle(r, TERN_ENV_USER, own, a.why);
    else if (site)
        settle(r, TERN_ENV_SITE, site, "site settings");
    else
        settle(r, a.set ? TERN_ENV_PROFILE : TERN_ENV_UNSET, a.set ? a.value : NULL, a.why);
    if ((r->by == TERN_ENV_USER || r->by == TERN_ENV_SITE) && (a.set || site))
        r->would = tern_strdup(r->by == TERN_ENV_USER && site ? site : a.value);
}

static bool has_row(const struct tern_env_rows *rows, const char *name)
{
    for (size_t i = 0; i < rows->n; i++)
        if (strcmp(rows->row[i].name, name) == 0)
            return true;
    return false;
}

/* A variable that no profile has: the site's, also as an outer call has set it. */
static void add_site(struct tern_env_rows *rows, const char *name, const char *value,
                     char *const *variables)
{
    const char *own = look_up(variables, name), *marks = look_up(variables, marks_variable);
    bool users = own && marked(marks, name, own) == NOT_MARKED;
    struct tern_env_row *r = &rows->row[rows->n];

    if (has_row(rows, name))
        return;
    *r = (struct tern_env_row){
        .name = tern_strdup(name), .origin = "site settings, env", .scope = TERN_ENV_JOB};
    settle(r, users ? TERN_ENV_USER : TERN_ENV_SITE, users ? own : value, "site settings");
    if (users)
        r->would = tern_strdup(value);
    rows->n++;
}

/* A profile's variables, some twenty, and the site's (TERN_SITE_VARS). */
enum { MAX_MARKS = 128 };

/* NAME of each "NAME=hash", up to `max` of them; malloc'ed texts. */
static size_t mark_names(const char *marks, char **names)
{
    char *copy = marks ? tern_strdup(marks) : NULL, *at = NULL;
    size_t n = 0;

    for (char *w = copy ? strtok_r(copy, " ", &at) : NULL; w && n < MAX_MARKS;
         w = strtok_r(NULL, " ", &at)) {
        size_t len = strspn(w, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
        if (len == 0 || w[len] != '=' || (*w >= '0' && *w <= '9'))
            continue;
        w[len] = '\0';
        names[n++] = tern_strdup(w);
    }
    free(copy);
    return n;
}

/* Variables that an outer call has marked and no table has: a launched task keeps the site's, any
 * other is stale. */
static void look_at_marks(struct tern_env_rows *rows, const struct tern_env_facts *f,
                          char *const *variables)
{
    const char *marks = look_up(variables, marks_variable);
    char *names[MAX_MARKS];
    size_t n = mark_names(marks, names);

    for (size_t i = 0; i < n; i++) {
        const char *value = look_up(variables, names[i]);
        enum mark mark = value ? marked(marks, names[i], value) : NOT_MARKED;
        if (mark == MARKED_SITE && f->launched)
            add_site(rows, names[i], value, variables);
        bool stale = mark != NOT_MARKED;
        for (size_t j = 0; j < rows->n && stale; j++)
            stale = !is_ours(&rows->row[j]) || strcmp(rows->row[j].name, names[i]) != 0;
        if (stale)
            rows->stale[rows->n_stale++] = names[i];
        else
            free(names[i]);
    }
}

/* ------------------------------------------------------------------ advice */

enum { MAX_ADVICE = 4 };

static void advise(struct tern_env_rows *rows, char *text)
{
    if (rows->n_advice < MAX_ADVICE)
        rows->advice[rows->n_advice++] = text;
    else
        free(text);
}

/* Is `port` in "44000,48620-48630"? */
static bool reserved(const char *list, int port)
{
    while (*list) {
        char *end;
        long low = strtol(list, &end, 10), high = low;
        if (end == list)
            return false;
        if (*end == '-')
            high = strtol(end + 1, &end, 10);
        if (port >= low && port <= high)
            return true;
        if (*end != ',')
            return false;
        list = end + 1;
    }
    return false;
}

static void advise_ports(struct tern_env_rows *rows, const struct tern_env_facts *f, bool neuron)
{
    int port = tern_env_port(f), n = neuron ? 2 : 1;

    for (int p = port; p < port + n; p++) {
        if (f->port_low == 0 || p < f->port_low || p > f->port_high || reserved(f->ports, p))
            continue;
        advise(rows, tern_strf("port %d lies in net.ipv4.ip_local_port_range (%d-%d): an outgoing "
                               "connection may take it first. An admin can keep it free: sysctl -w "
                               "net.ipv4.ip_local_reserved_ports=%s%s%d-%d",
                               p, f->port_low, f->port_high, f->ports, f->ports[0] ? "," : "",
                               TERN_ENV_PORT_FIRST, TERN_ENV_PORT_LAST));
        return;
    }
}

static void advise_batch(struct tern_env_rows *rows, const struct tern_env_facts *f)
{
    if (f->tasks_to_come > 1)
        advise(rows, tern_strf("this is the batch script: the values are for one process, and the "
                               "job's %d tasks a node want their own: srun tern env -- COMMAND",
                               f->tasks_to_come));
}

static void advise_cores(struct tern_env_rows *rows, const struct tern_env_facts *f)
{
    int n = f->tasks_per_node > 0 ? f->neuron_cores / f->tasks_per_node : 0;

    if (f->neuron_devices == 0 && f->neuron_chips == 0)
        advise(rows, tern_strdup("this node has no Neuron device; --assume "
                                 "instance=trn1.32xlarge shows what such a node gets"));
    if (f->tasks_per_node > 1 && f->workers > 1)
        advise(rows, tern_strf("%d tasks a node start %d workers each: torchrun counts LOCAL_RANK "
                               "from 0 in each of them, so that their cores collide. Use one task "
                               "a node.",
                               f->tasks_per_node, f->workers));
    if (n > 1 && f->tasks_per_node > 1 && n != 2 && n != 8 && n != 32)
        advise(rows, tern_strf("%d NeuronCores a process: collectives on Trn1 work on 1, 2, 8 or "
                               "32 of them",
                               n));
    if (f->workers > 1 && f->neuron_cores > 0 && f->workers * f->tasks_per_node > f->neuron_cores)
        advise(rows, tern_strf("%d workers on %d NeuronCores: a core serves one process",
                               f->workers * f->tasks_per_node, f->neuron_cores));
}

/* ------------------------------------------------------------------ build, free */

int tern_env_build(const char *profile, const struct tern_env_facts *f, char *const *variables,
                   struct tern_env_rows *out, struct tern_err *err)
{
    char why[400] = "";
    const char *name = tern_env_resolve(profile, f, why, sizeof why, err);
    struct tern_env_rows rows = {.profile = name};
    size_t n = 0;

    if (!name)
        return -1;
    bool neuron = tern_str_starts(name, "trn1-");
    int generation = neuron ? tern_env_sdk_generation(name + strlen("trn1-")) : 0;
    const struct tern_env_var *vars = neuron ? tern_env_trn1 : tern_env_cpu;
    while (vars[n].name)
        n++;
    rows.row = tern_alloc(n + f->n_site + MAX_MARKS, sizeof *rows.row, "variables", err);
    rows.stale = tern_alloc(MAX_MARKS, sizeof *rows.stale, "variables", err);
    rows.advice = tern_alloc(MAX_ADVICE, sizeof *rows.advice, "variables", err);
    if (!rows.row || !rows.stale || !rows.advice) {
        tern_env_rows_free(&rows);
        return -1;
    }
    for (; rows.n < n; rows.n++)
        fill(&rows.row[rows.n], &vars[rows.n], generation, f, variables);
    for (size_t i = 0; i < f->n_site; i++)
        add_site(&rows, f->site[i].name, f->site[i].value, variables);
    look_at_marks(&rows, f, variables);
    rows.profile_why = tern_strdup(why);
    advise_ports(&rows, f, neuron);
    advise_batch(&rows, f);
    if (neuron)
        advise_cores(&rows, f);
    *out = rows;
    return 0;
}

void tern_env_rows_free(struct tern_env_rows *rows)
{
    for (size_t i = 0; i < rows->n; i++) {
        free(rows->row[i].name);
        free(rows->row[i].value);
        free(rows->row[i].why);
        free(rows->row[i].would);
    }
    for (size_t i = 0; i < rows->n_advice; i++)
        free(rows->advice[i]);
    for (size_t i = 0; i < rows->n_stale; i++)
        free(rows->stale[i]);
    free(rows->stale);
    free(rows->row);
    free(rows->advice);
    free(rows->profile_why);
    *rows = (struct tern_env_rows){0};
}

void tern_env_limit(struct tern_env_rows *rows, enum tern_env_scope scope)
{
    for (size_t i = 0; i < rows->n; i++) {
        struct tern_env_row *r = &rows->row[i];
        if (r->scope <= scope || r->by == TERN_ENV_USER || r->by == TERN_ENV_UNSET)
            continue;
        free(r->value);
        r->value = NULL;
        r->by = TERN_ENV_UNSET;
    }
}

int tern_env_apply(const struct tern_env_rows *rows, struct tern_err *err)
{
    char *marks = tern_env_marks(rows);
    int rc = 0;

    tern_env_forget();
    for (size_t i = 0; i < rows->n && rc == 0; i++) {
        if (is_ours(&rows->row[i]))
            rc = setenv(rows->row[i].name, rows->row[i].value, 1);
    }
    if (rc == 0)
        rc = setenv(marks_variable, marks, 1);
    free(marks);
    return rc < 0 ? tern_err_sys(err, "cannot set the environment") : 0;
}

const char *tern_env_by_word(enum tern_env_by by)
{
    static const char *const words[] = {[TERN_ENV_PROFILE] = "profile",
                                        [TERN_ENV_USER] = "you",
                                        [TERN_ENV_SITE] = "site",
                                        [TERN_ENV_UNSET] = "left unset"};

    return words[by];
}

/* Nodes and partitions as a file has them, beside those of slurmctld. */
#include "core/apply/parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ------------------------------------------------------------------ a file's lines */

static int64_t number(const char *line, const char *key, int64_t none)
{
    char *text = tern_apply_value(line, key);
    int64_t n = none;

    if (text)
        tern_str_int(text, 0, INT64_MAX, &n);
    free(text);
    return n;
}

static char *text_of(const char *line, const char *key)
{
    char *text = tern_apply_value(line, key);

    return text ? text : tern_strdup("");
}

static void *grow(void *all, size_t n, size_t more, size_t size)
{
    all = reallocarray(all, n + more + 1, size);
    if (!all)
        abort();
    return all;
}

static int read_nodes(struct tern_slurm_nodes *to, const char *line, char *list,
                      struct tern_err *err)
{
    char **names = NULL, *state = text_of(line, "State");
    size_t n = 0;

    if (tern_slurm_hosts_expand(list, &names, &n, err) < 0) {
        free(state);
        return -1;
    }
    to->node = grow(to->node, to->n, n, sizeof *to->node);
    for (size_t i = 0; i < n; i++)
        to->node[to->n++] = (struct tern_slurm_node){
            .name = tern_strdup(names[i]),
            .cpus = (uint32_t)number(line, "CPUs", 0),
            .sockets = (int)number(line, "Sockets", 0),
            .cores = (int)number(line, "CoresPerSocket", 0),
            .threads = (int)number(line, "ThreadsPerCore", 0),
            .memory_mib = (uint64_t)number(line, "RealMemory", 0),
            .weight = number(line, "Weight", -1),
            .features = text_of(line, "Feature"),
            .gres = text_of(line, "Gres"),
            .future = strcasecmp(state, "FUTURE") == 0,
        };
    tern_slurm_hosts_free(names);
    free(state);
    return 0;
}

static bool says(const char *line, const char *key, const char *value, bool otherwise)
{
    char *text = tern_apply_value(line, key);
    const bool is = text ? strcasecmp(text, value) == 0 : otherwise;

    free(text);
    return is;
}

static int read_partition(struct tern_slurm_partitions *to, const char *line, const char *name,
                          struct tern_err *err)
{
    char *list = text_of(line, "Nodes"), *limit = text_of(line, "MaxTime");
    struct tern_slurm_partition p = {
        .is_default = says(line, "Default", "YES", false),
        .up = says(line, "State", "UP", true),
        .exclusive = says(line, "OverSubscribe", "EXCLUSIVE", false),
    };
    int rc = tern_slurm_hosts_expand(list, &p.nodes, &p.n_nodes, err);

    if (rc == 0 && *limit && tern_slurm_time_read(limit, &p.max_time_s) < 0)
        rc = tern_err_set(err, TERN_USAGE, "partition %s: MaxTime=%s is no time.", name, limit);
    if (rc == 0) {
        p.name = tern_strdup(name);
        to->partition = grow(to->partition, to->n, 1, sizeof p);
        to->partition[to->n++] = p;
    } else {
        tern_slurm_hosts_free(p.nodes);
    }
    free(list);
    free(limit);
    return rc;
}

int tern_apply_read(const char *text, const char *path, struct tern_apply_expected *ret,
                    struct tern_err *err)
{
    struct tern_apply_expected w = {0};
    int line = 0, rc = 0;
    char *s;

    for (const char *at = text; rc == 0 && (s = tern_apply_line(&at, &line));) {
        char *nodes = tern_apply_value(s, "NodeName"), *part = tern_apply_value(s, "PartitionName");
        if (nodes)
            rc = read_nodes(&w.nodes, s, nodes, err);
        else if (part)
            rc = read_partition(&w.partitions, s, part, err);
        if (rc < 0)
            tern_err_prefix(err, "%s:%d", path, line);
        free(nodes);
        free(part);
        free(s);
    }
    if (rc < 0)
        tern_apply_expected_free(&w);
    else
        *ret = w;
    return rc;
}

void tern_apply_expected_free(struct tern_apply_expected *w)
{
    for (size_t i = 0; i < w->nodes.n; i++) {
        free(w->nodes.node[i].name);
        free(w->nodes.node[i].features);
        free(w->nodes.node[i].gres);
    }
    free(w->nodes.node);
    for (size_t i = 0; i < w->partitions.n; i++) {
        free(w->partitions.partition[i].name);
        tern_slurm_hosts_free(w->partitions.partition[i].nodes);
    }
    free(w->partitions.partition);
    *w = (struct tern_apply_expected){0};
}

/* ------------------------------------------------------------------ names, sorted */

struct names {
    size_t n;
    char **at;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort(struct names *s)
{
    if (s->n)
        qsort(s->at, s->n, sizeof *s->at, by_text);
}

static bool has(const struct names *s, const char *name)
{
    return s->n && bsearch(&name, s->at, s->n, sizeof *s->at, by_text);
}

static bool same_names(const struct names *a, const struct names *b)
{
    bool same = a->n == b->n;

    for (size_t i = 0; same && i < a->n; i++)
        same = strcmp(a->at[i], b->at[i]) == 0;
    return same;
}

/* The words of a list with commas between, without what stands in brackets: "neuron:trn1:16(S:0)".
 * They lie in `text`, which is cut. */
static struct names split(char *text)
{
    struct names s = {0, calloc(strlen(text) + 1, sizeof *s.at)};
    char *at = NULL;

    if (!s.at)
        abort();
    for (char *open; (open = strchr(text, '('));) {
        char *end = strchr(open, ')');
        memmove(open, end ? end + 1 : open + strlen(open), end ? strlen(end + 1) + 1 : 1);
    }
    for (char *w = strtok_r(text, ",", &at); w; w = strtok_r(NULL, ",", &at))
        s.at[s.n++] = w;
    sort(&s);
    return s;
}

static bool same_words(const char *a, const char *b)
{
    char *of_a = tern_strdup(a), *of_b = tern_strdup(b);
    struct names x = split(of_a), y = split(of_b);
    const bool same = same_names(&x, &y);

    free(x.at);
    free(y.at);
    free(of_a);
    free(of_b);
    return same;
}

/* ------------------------------------------------------------------ differences */

static void put(struct tern_buf *b, const char *key, const char *is, const char *wanted)
{
    tern_buf_printf(b, "%s%s %s -> %s", b->len ? ", " : "", key, *is ? is : "none",
                    *wanted ? wanted : "none");
}

static void put_number(struct tern_buf *b, const char *key, int64_t is, int64_t wanted, bool said)
{
    if (said && is != wanted)
        tern_buf_printf(b, "%s%s %" PRId64 " -> %" PRId64, b->len ? ", " : "", key, is, wanted);
}

static void differ_node(struct tern_buf *b, const struct tern_slurm_node *is,
                        const struct tern_slurm_node *w)
{
    put_number(b, "CPUs", is->cpus, w->cpus, w->cpus);
    put_number(b, "Sockets", is->sockets, w->sockets, w->sockets);
    put_number(b, "CoresPerSocket", is->cores, w->cores, w->cores);
    put_number(b, "ThreadsPerCore", is->threads, w->threads, w->threads);
    put_number(b, "RealMemory", (int64_t)is->memory_mib, (int64_t)w->memory_mib, w->memory_mib);
    put_number(b, "Weight", is->weight, w->weight, w->weight >= 0);
    if (!same_words(is->features, w->features))
        put(b, "Feature", is->features, w->features);
    if (!same_words(is->gres, w->gres))
        put(b, "Gres", is->gres, w->gres);
    if (is->future != w->future) { /* also a node whose name has no address; the reason says so */
        put(b, "State", is->future ? "FUTURE" : is->state, w->future ? "FUTURE" : "in service");
        if (*is->reason)
            tern_buf_printf(b, " (%s)", is->reason);
    }
}

static char *limit(int64_t seconds)
{
    return seconds ? tern_slurm_time_write(seconds) : tern_strdup("unlimited");
}

static void differ_partition(struct tern_buf *b, const struct tern_slurm_partition *is,
                             const struct tern_slurm_partition *w)
{
    struct names of_is = {is->n_nodes, is->nodes}, of_w = {w->n_nodes, w->nodes};

    sort(&of_is);
    sort(&of_w);
    if (!same_names(&of_is, &of_w)) {
        char *from = tern_slurm_hosts_compress(is->nodes, is->n_nodes);
        char *to = tern_slurm_hosts_compress(w->nodes, w->n_nodes);
        put(b, "Nodes", from, to);
        free(from);
        free(to);
    }
    if (is->max_time_s != w->max_time_s) {
        char *from = limit(is->max_time_s), *to = limit(w->max_time_s);
        put(b, "MaxTime", from, to);
        free(from);
        free(to);
    }
    if (is->is_default != w->is_default)
        put(b, "Default", is->is_default ? "YES" : "NO", w->is_default ? "YES" : "NO");
    if (is->up != w->up)
        put(b, "State", is->up ? "UP" : "not UP", w->up ? "UP" : "not UP");
    if (is->exclusive != w->exclusive)
        put(b, "OverSubscribe", is->exclusive ? "EXCLUSIVE" : "not EXCLUSIVE",
            w->exclusive ? "EXCLUSIVE" : "not EXCLUSIVE");
}

/* One more name of those to which `kind` and `what` happen. */
static void add(struct tern_apply_changes *all, enum tern_apply_kind kind, bool partition,
                const char *name, const char *what)
{
    size_t i = 0;

    while (i < all->n && (all->at[i].kind != kind || all->at[i].partition != partition ||
                          strcmp(all->at[i].what, what) != 0))
        i++;
    if (i == all->n) {
        all->at = grow(all->at, all->n, 1, sizeof *all->at);
        all->at[all->n++] = (struct tern_apply_change){
            .kind = kind, .partition = partition, .what = tern_strdup(what)};
    }
    struct tern_apply_change *c = &all->at[i];
    c->names = grow(c->names, c->n, 1, sizeof *c->names);
    c->names[c->n++] = tern_strdup(name);
    c->names[c->n] = NULL;
}

/* Names of what another file has: of nodes, or of partitions. */
static int names_elsewhere(const struct tern_apply_def *def, size_t n_def, bool partition,
                           struct names *ret, struct tern_err *err)
{
    for (size_t i = 0; i < n_def; i++) {
        char **names = NULL;
        size_t n = 0;
        if (def[i].partition != partition)
            continue;
        if (tern_slurm_hosts_expand(def[i].names, &names, &n, err) < 0)
            return tern_err_prefix(err, "%s:%d", def[i].file, def[i].line);
        ret->at = grow(ret->at, ret->n, n, sizeof *ret->at);
        for (size_t k = 0; k < n; k++)
            ret->at[ret->n++] = tern_strdup(names[k]);
        tern_slurm_hosts_free(names);
    }
    return 0;
}

static void free_names(struct names *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->at[i]);
    free(s->at);
}

static int by_node(const void *a, const void *b)
{
    return strcmp((*(const struct tern_slurm_node *const *)a)->name,
                  (*(const struct tern_slurm_node *const *)b)->name);
}

/* What other files define and slurmctld has not: it would come with the next reading, too. */
static void add_elsewhere(const struct tern_slurm_nodes *want, const struct names *elsewhere,
                          const struct tern_slurm_node **sorted, size_t n,
                          struct tern_apply_changes *ret)
{
    struct names wanted = {0, grow(NULL, want->n, 0, sizeof *wanted.at)};

    for (size_t i = 0; i < want->n; i++)
        wanted.at[wanted.n++] = want->node[i].name;
    sort(&wanted);
    for (size_t i = 0; i < elsewhere->n; i++) {
        const struct tern_slurm_node key = {.name = elsewhere->at[i]}, *k = &key;
        if (!has(&wanted, key.name) && !bsearch(&k, sorted, n, sizeof *sorted, by_node))
            add(ret, TERN_APPLY_ADD, false, key.name, "");
    }
    free(wanted.at);
}

/* `defined` has the names of other files, and gets the wanted ones. */
static void compare_nodes(const struct tern_slurm_nodes *want, const struct tern_slurm_nodes *is,
                          struct names *defined, struct tern_apply_changes *ret)
{
    const struct tern_slurm_node **sorted = grow(NULL, is->n, 0, sizeof *sorted);

    for (size_t i = 0; i < is->n; i++)
        sorted[i] = &is->node[i];
    qsort(sorted, is->n, sizeof *sorted, by_node);
    add_elsewhere(want, defined, sorted, is->n, ret);
    defined->at = grow(defined->at, defined->n, want->n, sizeof *defined->at);
    for (size_t i = 0; i < want->n; i++) {
        const struct tern_slurm_node *w = &want->node[i];
        const struct tern_slurm_node **found = bsearch(&w, sorted, is->n, sizeof *sorted, by_node);
        struct tern_buf what = {0};
        defined->at[defined->n++] = tern_strdup(w->name);
        if (found)
            differ_node(&what, *found, w);
        if (!found || what.len)
            add(ret, found ? TERN_APPLY_CHANGE : TERN_APPLY_ADD, false, w->name,
                what.data ? what.data : "");
        tern_buf_free(&what);
    }
    sort(defined);
    for (size_t i = 0; i < is->n; i++)
        if (!is->node[i].dynamic && !has(defined, is->node[i].name))
            add(ret, TERN_APPLY_REMOVE, false, is->node[i].name, "");
    free(sorted);
}

static void compare_partitions(const struct tern_slurm_partitions *want,
                               const struct tern_slurm_partitions *is, struct names *defined,
                               struct tern_apply_changes *ret)
{
    defined->at = grow(defined->at, defined->n, want->n, sizeof *defined->at);
    for (size_t i = 0; i < want->n; i++) {
        const struct tern_slurm_partition *w = &want->partition[i], *found = NULL;
        struct tern_buf what = {0};
        for (size_t k = 0; k < is->n && !found; k++)
            found = strcmp(is->partition[k].name, w->name) == 0 ? &is->partition[k] : NULL;
        defined->at[defined->n++] = tern_strdup(w->name);
        if (found)
            differ_partition(&what, found, w);
        if (!found || what.len)
            add(ret, found ? TERN_APPLY_CHANGE : TERN_APPLY_ADD, true, w->name,
                what.data ? what.data : "");
        tern_buf_free(&what);
    }
    sort(defined);
    for (size_t i = 0; i < is->n; i++)
        if (!has(defined, is->partition[i].name))
            add(ret, TERN_APPLY_REMOVE, true, is->partition[i].name, "");
}

int tern_apply_compare(const struct tern_apply_expected *want, const struct tern_apply_def *def,
                       size_t n_def, const struct tern_slurm_nodes *nodes,
                       const struct tern_slurm_partitions *partitions,
                       struct tern_apply_changes *ret, struct tern_err *err)
{
    struct names of_nodes = {0}, of_partitions = {0};
    int rc = names_elsewhere(def, n_def, false, &of_nodes, err) < 0 ||
                     names_elsewhere(def, n_def, true, &of_partitions, err) < 0
                 ? -1
                 : 0;

    *ret = (struct tern_apply_changes){0};
    if (rc == 0) {
        compare_nodes(&want->nodes, nodes, &of_nodes, ret);
        compare_partitions(&want->partitions, partitions, &of_partitions, ret);
    }
    free_names(&of_nodes);
    free_names(&of_partitions);
    return rc;
}

void tern_apply_changes_free(struct tern_apply_changes *c)
{
    for (size_t i = 0; i < c->n; i++) {
        for (size_t k = 0; k < c->at[i].n; k++)
            free(c->at[i].names[k]);
        free(c->at[i].names);
        free(c->at[i].what);
    }
    free(c->at);
    *c = (struct tern_apply_changes){0};
}

char *tern_apply_change_text(const struct tern_apply_change *c)
{
    static const char *const words[] = {"add", "change", "remove"};
    char *names = tern_slurm_hosts_compress(c->names, c->n);
    char *text = tern_strf("%-6s %s %s%s%s", words[c->kind], c->partition ? "partition" : "node",
                           names, *c->what ? ": " : "", c->what);

    free(names);
    return text;
}

/* tern cluster check: a layout's mistakes, its nodes, their price and the quota that they need. */
#include "cmd/cluster/layout.h"

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

const char cluster_vars_help[] =
    "the value of each ${NAME}: JSON {\"NAME\": \"value\"}, lines NAME=value, or the outputs that "
    "`aws cloudformation describe-stacks` prints";

void cluster_print_notes(const struct tern_layout *l, bool variables)
{
    fflush(stdout);
    for (size_t i = 0; i < l->n_notes; i++) {
        if (!variables && strcmp(l->notes[i].id, "value-variable") == 0)
            continue;
        char *line = tern_strdup(l->notes[i].text);
        tern_str_mask(line);
        fprintf(stderr, "%s\n", line);
        free(line);
    }
}

/* The findings of that severity that are kept. */
static size_t count(const struct tern_layout *l, bool error)
{
    size_t n = 0;

    for (size_t i = 0; i < l->n_notes; i++)
        n += l->notes[i].error == error;
    return n;
}

int cluster_count_errors(const struct tern_layout *l, struct tern_err *err)
{
    if (!l->n_errors)
        return 0;
    size_t named = count(l, /* error= */ true);
    if (named < l->n_errors)
        return tern_err_set(err, TERN_USAGE, "%s: %zu errors, of which %zu are named above.",
                            l->path, l->n_errors, named);
    return tern_err_set(err, TERN_USAGE, "%s: %zu error%s, named above.", l->path, l->n_errors,
                        l->n_errors == 1 ? "" : "s");
}

/* ------------------------------------------------------------------ price and quota */

/* EC2's quotas of vCPUs, by the beginning of an instance type. */
static const struct {
    const char *begin, *name;
} quotas[] = {
    {"trn", "Trn"}, {"hpc", "HPC"}, {"p", "P"}, {"", "Standard (A, C, D, H, I, M, R, T, Z)"}};
enum { N_QUOTAS = sizeof quotas / sizeof *quotas };

/* Of all nodes together, the head node and the login nodes included. */
struct total {
    int64_t on_demand[N_QUOTAS], spot[N_QUOTAS]; /* vCPUs */
    double least, most;                          /* USD an hour, on demand */
    bool all;                                    /* every price is known */
};

static size_t quota_of(const char *type)
{
    size_t i = 0;

    while (!tern_str_starts(type, quotas[i].begin))
        i++;
    return i;
}

static struct total total_of(const struct tern_layout *l)
{
    struct total t = {.all = true};
    const struct tern_layout_instance *head = l->head_type;

    if (head)
        t.on_demand[quota_of(head->name)] += tern_layout_vcpus(head);
    t.least = t.most = head ? head->usd_hour : 0;
    t.all = head && head->usd_hour > 0;
    for (size_t i = 0; i < l->n_logins; i++) {
        const struct tern_layout_instance *type = l->logins[i].type;
        const double usd = type ? l->logins[i].count * type->usd_hour : 0;
        if (type)
            t.on_demand[quota_of(type->name)] +=
                (int64_t)l->logins[i].count * tern_layout_vcpus(type);
        t.least += usd;
        t.most += usd;
        t.all = t.all && usd > 0;
    }
    for (size_t i = 0; i < l->n_queues; i++) {
        const struct tern_layout_queue *q = &l->queues[i];
        for (size_t k = 0; k < q->n_resources; k++) {
            const struct tern_layout_resource *r = &q->resources[k];
            bool priced = r->type && q->capacity == TERN_ONDEMAND && r->type->usd_hour > 0;
            t.all = t.all && priced;
            if (priced) {
                t.least += r->min * r->type->usd_hour;
                t.most += r->max * r->type->usd_hour;
            }
            if (r->type && q->capacity != TERN_CAPACITY_BLOCK)
                (q->capacity == TERN_SPOT ? t.spot : t.on_demand)[quota_of(r->type->name)] +=
                    (int64_t)r->max * tern_layout_vcpus(r->type);
        }
    }
    return t;
}

static void print_total(const struct tern_layout *l)
{
    struct total t = total_of(l);
    char logins[64] = "";
    int n_logins = 0;

    for (size_t i = 0; i < l->n_logins; i++)
        n_logins += l->logins[i].count;
    if (n_logins)
        snprintf(logins, sizeof logins, " and %d login node%s", n_logins, n_logins > 1 ? "s" : "");
    for (size_t i = 0; i < N_QUOTAS; i++) {
        if (t.on_demand[i])
            printf("quota: %lld vCPUs of Running On-Demand %s instances\n",
                   (long long)t.on_demand[i], quotas[i].name);
        if (t.spot[i])
            printf("quota: %lld vCPUs of All %s Spot Instance Requests\n", (long long)t.spot[i],
                   quotas[i].name);
    }
    printf("price: %.2f to %.2f USD an hour with the head node%s%s, without storage\n", t.least,
           t.most, logins, t.all ? "" : " and without the nodes whose price is not known");
}

static void describe(const struct tern_layout *l)
{
    for (size_t i = 0; i < l->n_queues; i++) {
        const struct tern_layout_queue *q = &l->queues[i];
        for (size_t k = 0; k < q->n_resources; k++) {
            const struct tern_layout_resource *r = &q->resources[k];
            const struct tern_layout_instance *t = r->type;
            printf("%s/%s: %d static and %d dynamic %s", q->name, r->name, r->min, r->max - r->min,
                   r->type_name ? r->type_name : "nodes of a reservation");
            if (t)
                printf(", each %d CPUs", tern_layout_vcpus(t) / (r->smt ? 1 : t->threads));
            if (t && t->chips)
                printf(", %d Neuron devices (%d NeuronCores)", t->chips, t->neuron_cores);
            if (t && r->efa)
                printf(", %d EFA devices", t->efa);
            if (t && t->usd_hour > 0 && q->capacity == TERN_ONDEMAND)
                printf("; %.2f to %.2f USD an hour on demand", r->min * t->usd_hour,
                       r->max * t->usd_hour);
            if (t && q->capacity != TERN_CAPACITY_BLOCK)
                printf("; quota %lld vCPUs (%d x %d)", (long long)tern_layout_vcpus(t) * r->max,
                       tern_layout_vcpus(t), r->max);
            printf("\n");
        }
    }
    for (size_t i = 0; i < l->n_storage; i++)
        printf("%s: %s at %s\n", l->storage[i].name, l->storage[i].type, l->storage[i].mount_dir);
    print_total(l);
}

/* ------------------------------------------------------------------ the command */

static bool as_json;
static const char *vars;
static const struct tern_opt check_opts[] = {
    {"json", 0, TERN_OPT_FLAG, .to.flag = &as_json,
     .help = "print each layout's findings, price and quota as JSON"},
    {"vars", 0, TERN_OPT_TEXT, "FILE", .to.text = &vars, .help = cluster_vars_help},
    {0},
};

static json_t *findings(const struct tern_layout *l)
{
    json_t *all = json_array();

    for (size_t i = 0; i < l->n_notes; i++) {
        const struct tern_layout_note *n = &l->notes[i];
        json_array_append_new(
            all, json_pack("{so si ss ss so so}", "file", tern_json_text(n->file), "line", n->line,
                           "severity", n->error ? "error" : "warning", "id", n->id, "where",
                           tern_json_text(n->where), "text", tern_json_text(n->said)));
    }
    return all;
}

static json_t *layout_json(const struct tern_layout *l)
{
    struct total t = total_of(l);
    json_t *quota = json_object();

    for (size_t i = 0; i < N_QUOTAS; i++) {
        char name[96];
        snprintf(name, sizeof name, "Running On-Demand %s instances", quotas[i].name);
        if (t.on_demand[i])
            json_object_set_new(quota, name, json_integer(t.on_demand[i]));
        snprintf(name, sizeof name, "All %s Spot Instance Requests", quotas[i].name);
        if (t.spot[i])
            json_object_set_new(quota, name, json_integer(t.spot[i]));
    }
    return json_pack("{so si si so so s{sf sf sb}}", "layout", tern_json_text(l->path), "errors",
                     (int)l->n_errors, "warnings", (int)count(l, /* error= */ false), "findings",
                     findings(l), "quota_vcpus", quota, "usd_hour", "least", t.least, "most",
                     t.most, "complete", t.all);
}

/* A file that is no layout at all: the one finding that it cannot be read, with its line where the
 * YAML is wrong ("PATH:LINE: ..."). */
static json_t *unreadable(const char *path, const struct tern_err *err)
{
    size_t len = strlen(path);
    int line = 0, text = 0;

    if (strncmp(err->text, path, len) == 0)
        sscanf(err->text + len, ":%d: %n", &line, &text);
    return json_pack("{so si si s[{so si ss ss ss so}]}", "layout", tern_json_text(path), "errors",
                     1, "warnings", 0, "findings", "file", tern_json_text(path), "line", line,
                     "severity", "error", "id", text ? "yaml-syntax" : "unreadable", "where", "",
                     "text", tern_json_text(err->text + (text ? len + (size_t)text : 0)));
}

/* -1 where it has errors; what there is to say of it goes to `all`, or is printed. */
static int check(const char *path, json_t *all, struct tern_err *err)
{
    struct tern_layout *l = tern_layout_load_with(path, vars, err);

    if (!l) {
        json_array_append_new(all, unreadable(path, err));
        return -1;
    }
    json_array_append_new(all, layout_json(l));
    if (!as_json)
        cluster_print_notes(l, /* variables= */ true);
    int rc = cluster_count_errors(l, err);
    if (rc == 0 && !as_json)
        describe(l);
    tern_layout_free(l);
    return rc;
}

/* HyperPod's files are judged together, wherever they stand among layouts: to the front with them.
 * Their number. */
static int gather_pods(int n, char **args)
{
    int pods = 0;

    for (int i = 0; i < n; i++)
        if (tern_str_ends(args[i], ".json")) {
            char *path = args[i];
            memmove(&args[pods + 1], &args[pods], (size_t)(i - pods) * sizeof *args);
            args[pods++] = path;
        }
    return pods;
}

static int check_pods(int n, char **args, json_t *all, struct tern_err *err)
{
    struct tern_layout *l = tern_layout_check_hyperpod(args, (size_t)n, vars, err);

    if (!l) {
        json_array_append_new(all, unreadable(args[0], err));
        return -1;
    }
    json_array_append_new(all,
                          json_pack("{so si si so}", "layout", tern_json_text(l->path), "errors",
                                    (int)l->n_errors, "warnings", (int)count(l, /* error= */ false),
                                    "findings", findings(l)));
    if (!as_json)
        cluster_print_notes(l, /* variables= */ true);
    int rc = cluster_count_errors(l, err);
    tern_layout_free(l);
    return rc;
}

static int run_check(int n, char **args, struct tern_err *err)
{
    struct tern_err last = {0};
    json_t *all = json_array();
    int rc = 0, pods = gather_pods(n, args);

    for (int i = 0; i < n; i += i == 0 && pods ? pods : 1) {
        if ((i == 0 && pods ? check_pods(pods, args, all, err) : check(args[i], all, err)) == 0)
            continue;
        if (rc < 0 && !as_json)
            tern_error("%s", last.text);
        last = *err;
        rc = -1;
    }
    if (rc < 0)
        *err = last;
    struct tern_err print_err;
    if (as_json && tern_json_print(stdout, all, &print_err) < 0) {
        *err = print_err;
        rc = -1;
    }
    json_decref(all);
    return rc;
}

#define ABOUT                                                                                      \
    "Judges ParallelCluster 3 YAML as pcluster 3.16.1 does: every key, type, range and form, and " \
    "the rules between keys. Also reads the .tern.yaml beside it where there is one. Prints "      \
    "FILE:LINE: SEVERITY: ID: TEXT for each finding, and then the nodes with their price and the " \
    "vCPU quota. `tern help checks` has the rules. An instance type that is not in the catalogue " \
    "is a warning. Files that end in .json are HyperPod's: cluster-config.json, "                  \
    "provisioning_parameters.json, and the file system as `aws fsx describe-file-systems` prints " \
    "it. Their groups, counts, scripts, partitions and ids must agree. Exit status 2 when there "  \
    "is an error; warnings alone are no failure."

const struct tern_cmd check_cmd = {
    .name = "check",
    .args = "FILE...",
    .summary = "name every mistake in a cluster.yaml, or in HyperPod's files",
    .about = ABOUT,
    .examples = "  tern cluster check cluster-templates/trn1-4/cluster.yaml\n"
                "  tern cluster check cluster.yaml --vars outputs.json --json\n"
                "  tern cluster check cluster-config.json provisioning_parameters.json\n",
    .opts = check_opts,
    .args_min = 1,
    .args_max = -1,
    .run = run_check,
};

const struct tern_cmd lint_cmd = {
    .name = "lint",
    .args = "FILE...",
    .summary = "the same as check",
    .about = ABOUT,
    .opts = check_opts,
    .args_min = 1,
    .args_max = -1,
    .run = run_check,
};

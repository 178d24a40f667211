/* tern ckpt diff: which arrays two checkpoints have in common, and how far they lie apart. */
#include "cmd/ckpt/diff.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/ckpt/diff.h"
#include "core/convert/convert.h"
#include "core/pytorch/pytorch.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static struct {
    bool full, all, json;
    const char *key;
} o;

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
    stopped = sig;
}

enum { CHANGES = TERN_CKPT_UNKNOWN + 1 };
static const char *const changes[CHANGES] = {
    [TERN_CKPT_SAME] = "same",        [TERN_CKPT_CHANGED] = "changed",
    [TERN_CKPT_RESHAPED] = "shape",   [TERN_CKPT_ONLY_A] = "only in A",
    [TERN_CKPT_ONLY_B] = "only in B", [TERN_CKPT_UNKNOWN] = "not read",
};

struct seen {
    uint64_t n[CHANGES], all;
    double most; /* relative distance */
    char *where;
    json_t *rows; /* NULL: they are printed */
};

/* ------------------------------------------------------------------ rows */

static double relative(const struct tern_ckpt_diff_row *r)
{
    return r->distance == 0 ? 0 : r->norm > 0 ? r->distance / r->norm : (double)INFINITY;
}

static const char *shape_text(const struct tern_ckpt_info *a, char *to, size_t n)
{
    snprintf(to, n, "%s", a->ndim ? "" : "scalar");
    for (int d = 0; d < a->ndim; d++) {
        const size_t used = strlen(to);
        snprintf(to + used, n - used, "%s%" PRIu64, d ? "x" : "", a->shape[d]);
    }
    return to;
}

/* "F32 800x64", and of two that differ "F32 800x64 -> BF16 800x64". */
static char *kind_text(const struct tern_ckpt_diff_row *r)
{
    char a[96], b[96];
    const char *of_a = tern_ckpt_info_type(&r->a), *of_b = tern_ckpt_info_type(&r->b);

    shape_text(&r->a, a, sizeof a);
    shape_text(&r->b, b, sizeof b);
    if (r->change == TERN_CKPT_ONLY_A)
        return tern_strf("%s %s", of_a, a);
    if (r->change == TERN_CKPT_ONLY_B)
        return tern_strf("%s %s", of_b, b);
    if (strcmp(of_a, of_b) == 0 && strcmp(a, b) == 0)
        return tern_strf("%s %s", of_a, a);
    return tern_strf("%s %s -> %s %s", of_a, a, of_b, b);
}

static json_t *kind_json(const struct tern_ckpt_info *a)
{
    json_t *shape = json_array();

    for (int d = 0; d < a->ndim; d++)
        json_array_append_new(shape, json_integer((json_int_t)a->shape[d]));
    return json_pack("{s:s, s:o}", "dtype", tern_ckpt_info_type(a), "shape", shape);
}

/* JSON has no infinity. */
static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *row_json(const struct tern_ckpt_diff_row *r)
{
    json_t *j =
        json_pack("{s:o, s:s}", "name", tern_json_text(r->name), "change", changes[r->change]);

    if (r->change != TERN_CKPT_ONLY_B)
        json_object_set_new(j, "a", kind_json(&r->a));
    if (r->change != TERN_CKPT_ONLY_A)
        json_object_set_new(j, "b", kind_json(&r->b));
    if (r->compared) {
        json_object_set_new(j, "elements", json_integer((json_int_t)r->elements));
        json_object_set_new(j, "changed", json_integer((json_int_t)r->changed));
        json_object_set_new(j, "largest", number(r->largest));
        json_object_set_new(j, "relative", number(relative(r)));
    }
    return j;
}

static void print_row(const struct tern_ckpt_diff_row *r)
{
    char *name = tern_strdup(r->name), *kind = kind_text(r);

    tern_str_mask(name);
    printf("%-9s  ", changes[r->change]);
    if (o.full && r->compared)
        printf("%7.2f %%  %9.3g  %9.3g  ",
               r->elements ? 100 * (double)r->changed / (double)r->elements : 0, r->largest,
               relative(r));
    else if (o.full)
        printf("%9s  %9s  %9s  ", "", "", "");
    printf("%-16s %s\n", kind, name);
    free(kind);
    free(name);
}

static int take(void *ctx, const struct tern_ckpt_diff_row *r, struct tern_err *err)
{
    struct seen *s = ctx;

    (void)err;
    tern_progress_hide();
    if (s->all++ == 0 && !s->rows && o.full)
        printf("%-9s  %9s  %9s  %9s  %-16s %s\n", "", "ELEMENTS", "LARGEST", "RELATIVE", "KIND",
               "NAME");
    s->n[r->change]++;
    if (r->compared && relative(r) > s->most) {
        s->most = relative(r);
        free(s->where);
        s->where = tern_strdup(r->name);
    }
    if (r->change == TERN_CKPT_SAME && !o.all)
        return 0;
    if (s->rows)
        json_array_append_new(s->rows, row_json(r));
    else
        print_row(r);
    return 0;
}

/* ------------------------------------------------------------------ the command */

static bool is_foreign(const char *path)
{
    return !tern_ckpt_is_ours(path) && !tern_str_starts(tern_fs_basename(path), "step-");
}

static struct tern_ckpt *open_side(const char *typed, bool *foreign, struct tern_err *err)
{
    char *path;

    if (tern_ckpt_resolve(typed, &path, err) < 0)
        return NULL;
    *foreign = is_foreign(path);
    struct tern_ckpt *c =
        *foreign ? tern_convert_open(path, o.key, err) : tern_ckpt_open(path, err);
    free(path);
    return c;
}

/* The weights of a checkpoint of tern's, beside a folder that has nothing else. */
static const char *weights_of(const struct tern_ckpt *c)
{
    struct tern_ckpt_info info;

    for (size_t i = 0; i < tern_ckpt_count(c); i++) {
        tern_ckpt_info(c, i, &info);
        if (tern_str_starts(info.name, "base/"))
            return "base/";
    }
    return "model/";
}

static void print_end(const struct seen *s)
{
    bool first = true;

    printf("%" PRIu64 " arrays: ", s->all);
    for (int i = 0; i < CHANGES; i++)
        if (s->n[i]) {
            printf("%s%" PRIu64 " %s", first ? "" : ", ", s->n[i], changes[i]);
            first = false;
        }
    if (s->where) {
        tern_str_mask(s->where);
        printf("; the farthest apart is %s (%.3g)", s->where, s->most);
    }
    printf("\n");
    if (s->n[TERN_CKPT_UNKNOWN])
        printf("Arrays that are not read may differ: --full compares every element.\n");
}

static int compare(struct tern_ckpt *a, bool a_foreign, struct tern_ckpt *b, bool b_foreign,
                   struct tern_err *err)
{
    struct seen seen = {.rows = o.json ? json_array() : NULL};
    const struct tern_ckpt_diff_how how = {.prefix_a = b_foreign && !a_foreign ? weights_of(a) : "",
                                           .prefix_b = a_foreign && !b_foreign ? weights_of(b) : "",
                                           .values = o.full,
                                           .stop = &stopped,
                                           .each = take,
                                           .ctx = &seen};
    if (o.full)
        tern_progress_begin(/* unit= */ NULL, "arrays");
    int rc = tern_ckpt_diff(a, b, &how, err);

    tern_progress_end();
    if (rc == 0 && seen.all == 0)
        rc = tern_err_set(err, TERN_USAGE, "%s and %s hold no arrays", tern_ckpt_path(a),
                          tern_ckpt_path(b));
    if (rc == 0 && o.json)
        rc = tern_json_print(stdout, seen.rows, err);
    else if (rc == 0)
        print_end(&seen);
    json_decref(seen.rows);
    free(seen.where);
    if (rc < 0)
        return -1;
    return seen.n[TERN_CKPT_SAME] == seen.all ? 0 : TERN_FAILED;
}

static int diff_run(int n_args, char **args, struct tern_err *err)
{
    const struct sigaction sa = {.sa_handler = on_signal};
    bool a_foreign = false, b_foreign = false;
    int rc = -1;

    (void)n_args;
    tern_pytorch_stop_at(&stopped);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    struct tern_ckpt *a = open_side(args[0], &a_foreign, err);
    struct tern_ckpt *b = a ? open_side(args[1], &b_foreign, err) : NULL;
    if (b)
        rc = compare(a, a_foreign, b, b_foreign, err);
    tern_ckpt_close(a);
    tern_ckpt_close(b);
    if (rc < 0 && stopped) { /* 1 would say that they differ */
        fprintf(stderr, "tern ckpt: %s\n", err->text);
        return 128 + stopped;
    }
    return rc;
}

static const struct tern_opt opts[] = {
    {"full", 0, TERN_OPT_FLAG, .to.flag = &o.full,
     .help = "read every byte and tell how far arrays lie apart; else types, shapes and digests"},
    {"all", 'a', TERN_OPT_FLAG, .to.flag = &o.all, .help = "also arrays that are the same"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &o.json, .help = "print JSON"},
    {"key", 0, TERN_OPT_TEXT, "KEY", .to.text = &o.key,
     .help = "of a file of PyTorch: what lies below this key"},
    {0},
};

const struct tern_cmd ckpt_diff_cmd = {
    .name = "diff",
    .args = "A B",
    .args_min = 2,
    .args_max = 2,
    .summary = "compare two checkpoints, array by array",
    .about =
        "A and B are what `tern ckpt show` takes. Of a checkpoint beside a model folder, the "
        "weights are compared. Without --full, digests tell whether two checkpoints of one layout "
        "are the same; of others only types and shapes are known.\n"
        "\n"
        "With --full: the share of elements that differ, the largest difference, and the distance "
        "|a - b| over |a| (Euclidean). Elements differ when their bits do: -0.0 is not 0.0. The "
        "exit status is 0 when all arrays are known "
        "to be the same, and 1 when one differs or was not read.",
    .examples = "  tern ckpt diff checkpoints/step-00000100 checkpoints/latest --full\n"
                "  tern ckpt diff checkpoints/latest hf --full\n",
    .opts = opts,
    .run = diff_run,
};

/* tern ckpt: list, show, compare, verify, copy, export, merge and blend checkpoints. */
#include "cmd/ckpt/blend.h"
#include "cmd/ckpt/diff.h"
#include "cmd/ckpt/export.h"
#include "cmd/ckpt/external.h"
#include "cmd/ckpt/reshard.h"
#include "cmd/ckpt/room.h"
#include "cmd/ckpt/show.h"
#include "cmd/cmd.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/ckpt/local.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The path that a user typed: a checkpoint, or a folder of them. */
static char *checkpoint(const char *typed, struct tern_err *err)
{
    char *path;

    return tern_ckpt_resolve(typed, &path, err) < 0 ? NULL : path;
}

/* ------------------------------------------------------------------ ls */

static struct {
    bool json, no_header, parsable;
    const char *format;
} ls;

static const char *const states[] = {
    [TERN_CKPT_GOOD] = "good",
    [TERN_CKPT_BROKEN] = "broken",
    [TERN_CKPT_BAD] = "bad",
    [TERN_CKPT_TEMP] = "unfinished",
};

/* A line of the list. */
struct row {
    struct tern_ckpt_entry *e;
    size_t here, of; /* of a node's part of a local checkpoint: shards there, and all; of 0: it is
                        none */
};

static const char *state_of(const struct row *r)
{
    return r->of ? "part" : states[r->e->state];
}

enum { COLUMNS = 7 };
static const struct {
    const char *name;
    int width; /* negative: to the left */
} columns[COLUMNS] = {{"STEP", 10},  {"STATE", -10},  {"SIZE", 10}, {"SHARDS", 6},
                      {"TIME", -25}, {"DIGEST", -12}, {"PATH", -4}};
static const char *const column_names[] = {"step", "state",  "size", "shards",
                                           "time", "digest", "path", NULL};

/* "step,state": *order holds column numbers. */
static int parse_format(const char *format, int order[COLUMNS], int *n, struct tern_err *err)
{
    char *text = tern_strdup(format), *save = NULL;
    int rc = 0;

    *n = 0;
    for (char *w = strtok_r(text, ",", &save); w && rc == 0; w = strtok_r(NULL, ",", &save)) {
        int c = 0;
        while (column_names[c] && strcasecmp(column_names[c], w) != 0)
            c++;
        if (!column_names[c])
            rc = tern_err_set(err, TERN_USAGE,
                              "--format: no column '%s' (step, state, size, shards, time, digest, "
                              "path)",
                              w);
        else if (*n == COLUMNS)
            rc = tern_err_set(err, TERN_USAGE, "--format: more than %d columns", COLUMNS);
        else
            order[(*n)++] = c;
    }
    free(text);
    if (rc == 0 && *n == 0)
        rc = tern_err_set(err, TERN_USAGE, "--format: names no column");
    return rc;
}

static void cell(const struct row *r, int column, bool people, char *to, size_t n)
{
    const struct tern_ckpt_entry *e = r->e;
    bool good = e->state == TERN_CKPT_GOOD;

    *to = '\0';
    switch (column) {
    case 0:
        snprintf(to, n, "%" PRIu64, e->step);
        break;
    case 1:
        snprintf(to, n, "%s", state_of(r));
        break;
    case 2:
        if (good && people)
            tern_str_bytes(to, n, e->bytes);
        else if (good)
            snprintf(to, n, "%" PRIu64, e->bytes);
        break;
    case 3:
        if (good)
            snprintf(to, n, "%u", e->shards);
        else if (r->of)
            snprintf(to, n, "%zu/%zu", r->here, r->of);
        break;
    case 4:
        if (good)
            tern_clock_iso8601(to, n, e->wall_ns);
        break;
    case 5:
        snprintf(to, n, people ? "%.12s" : "%s", e->digest);
        break;
    default:
        snprintf(to, n, "%s", e->path);
        break;
    }
}

static void print_row(const struct row *r, const int *order, int n)
{
    char text[4200];

    for (int i = 0; i < n; i++) {
        const char *gap = i + 1 == n ? "\n" : ls.parsable ? "|" : "  ";
        int width = ls.parsable || i + 1 == n ? 0 : columns[order[i]].width;
        if (r)
            cell(r, order[i], !ls.parsable, text, sizeof text);
        else
            snprintf(text, sizeof text, "%s", columns[order[i]].name);
        printf("%*s%s", width, text, gap);
    }
}

static json_t *row_json(const struct row *r)
{
    const struct tern_ckpt_entry *e = r->e;
    char when[32];
    json_t *j = json_pack("{s:I,s:s,s:s}", "step", (json_int_t)e->step, "state", state_of(r),
                          "path", e->path);

    if (e->state == TERN_CKPT_GOOD) {
        json_object_set_new(j, "bytes", json_integer((json_int_t)e->bytes));
        json_object_set_new(j, "shards", json_integer(e->shards));
        json_object_set_new(j, "time",
                            json_string(tern_clock_iso8601(when, sizeof when, e->wall_ns)));
        json_object_set_new(j, "digest", json_string(e->digest));
    }
    if (r->of) {
        json_object_set_new(j, "shards", json_integer((json_int_t)r->of));
        json_object_set_new(j, "shards_here", json_integer((json_int_t)r->here));
    }
    if (e->why)
        json_object_set_new(j, "why", json_string(e->why));
    return j;
}

/* [n], to be freed.  A node's part lacks files, and is not broken for that. */
static struct row *make_rows(struct tern_ckpt_entry *list, size_t n, struct tern_err *err)
{
    struct row *rows = tern_alloc(n + 1, sizeof *rows, "list of checkpoints", err);

    for (size_t i = 0; rows && i < n; i++) {
        struct row *r = &rows[i];
        r->e = &list[i];
        if (list[i].state != TERN_CKPT_BROKEN ||
            !tern_ckpt_local_count(list[i].path, &r->here, &r->of))
            continue;
        free(list[i].why);
        list[i].why = tern_strf("%s: is one node's part (%zu of %zu shards) of a local checkpoint",
                                list[i].path, r->here, r->of);
    }
    return rows;
}

static int ls_run(int n_args, char **args, struct tern_err *err)
{
    const char *dir = n_args ? args[0] : "checkpoints";
    struct tern_ckpt_entry *list;
    int order[COLUMNS], cols, rc = 0;
    size_t n;

    if (parse_format(ls.format, order, &cols, err) < 0)
        return -1;
    if (tern_ckpt_is_ours(dir))
        return tern_err_set(err, TERN_USAGE,
                            "%s: is one checkpoint; give the folder that holds it, or see `tern "
                            "ckpt show`",
                            dir);
    if (tern_ckpt_list(dir, &list, &n, err) < 0)
        return -1;
    struct row *rows = make_rows(list, n, err);
    if (!rows) {
        rc = -1;
    } else if (ls.json) {
        json_t *all = json_array();
        for (size_t i = 0; i < n; i++)
            json_array_append_new(all, row_json(&rows[i]));
        rc = tern_json_print(stdout, all, err);
        json_decref(all);
    } else {
        if (!ls.no_header)
            print_row(NULL, order, cols);
        for (size_t i = 0; i < n; i++)
            print_row(&rows[i], order, cols);
        for (size_t i = 0; i < n; i++)
            if (list[i].why)
                fprintf(stderr, "tern ckpt: %s\n", list[i].why);
    }
    free(rows);
    tern_ckpt_list_free(list, n);
    return rc;
}

static const struct tern_opt ls_opts[] = {
    {"json", 0, TERN_OPT_FLAG, .to.flag = &ls.json, .help = "print JSON"},
    {"format", 'o', TERN_OPT_TEXT, "COLUMNS", "step,state,size,shards,time,path",
     .to.text = &ls.format,
     .help = "columns, by commas: step, state, size, shards, time, digest, path"},
    {"noheader", 'n', TERN_OPT_FLAG, .to.flag = &ls.no_header, .help = "no line of names"},
    {"parsable", 'P', TERN_OPT_FLAG, .to.flag = &ls.parsable,
     .help = "columns parted by |, sizes in bytes, digests whole"},
    {0},
};

static const struct tern_cmd ls_cmd = {
    .name = "ls",
    .args = "[DIR]",
    .args_max = 1,
    .summary = "list the checkpoints in a folder",
    .about = "A checkpoint is good when its manifest and the sizes of all files verify, and broken "
             "when they do not. It is bad when a run refused it (.bad-K), and unfinished while a "
             "run writes it, or when the writer died. In a node's folder of checkpoint.local it is "
             "a part: that node's shards of it. The default DIR is `checkpoints`.",
    .examples = "  tern ckpt ls\n  tern ckpt ls -nP -o step,path run1/checkpoints\n",
    .opts = ls_opts,
    .run = ls_run,
};

/* ------------------------------------------------------------------ verify */

static struct {
    bool full;
    const char *manifest, *run, *ledger;
} verify;

static int verify_one(const char *path, struct tern_err *err)
{
    tern_progress_begin(/* unit= */ NULL, "%s", path);
    const int rc = tern_ckpt_verify(path, verify.full, err);
    tern_progress_end();
    if (rc < 0)
        return -1;
    printf("%s: %s\n", path, verify.full ? "good, every byte" : "good");
    return 0;
}

/* Every checkpoint in the folder; the first error is returned, all are said. */
static int verify_folder(const char *dir, struct tern_err *err)
{
    struct tern_ckpt_entry *list;
    struct tern_err first = {0}, one = {0};
    size_t n, looked = 0;

    if (tern_ckpt_list(dir, &list, &n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (list[i].state != TERN_CKPT_GOOD && list[i].state != TERN_CKPT_BROKEN)
            continue;
        looked++;
        int rc = list[i].why ? tern_err_set(&one, TERN_USAGE, "%s", list[i].why)
                             : verify_one(list[i].path, &one);
        if (rc < 0 && first.code)
            fprintf(stderr, "tern ckpt: %s\n", one.text);
        else if (rc < 0)
            first = one;
    }
    tern_ckpt_list_free(list, n);
    if (!looked)
        return tern_err_set(err, TERN_USAGE, "%s: holds no checkpoint", dir);
    if (first.code)
        return tern_err_set(err, first.code, "%s", first.text);
    return 0;
}

static int verify_run(int n_args, char **args, struct tern_err *err)
{
    (void)n_args;
    if (verify.manifest || verify.run)
        return ckpt_verify_external(args[0], verify.manifest, verify.run, verify.ledger, err);
    char *path = checkpoint(args[0], err);
    if (!path)
        return -1;
    /* A folder that has no manifest and no checkpoint's name: of checkpoints. */
    bool one = tern_ckpt_is_ours(path) || tern_str_starts(tern_fs_basename(path), "step-") ||
               !tern_fs_exists(path);
    int rc = one ? verify_one(path, err) : verify_folder(path, err);
    free(path);
    return rc;
}

static const struct tern_opt verify_opts[] = {
    {"full", 0, TERN_OPT_FLAG, .to.flag = &verify.full,
     .help = "read every byte and compare every digest; else the manifest's digest and all sizes"},
    {"run", 'r', TERN_OPT_TEXT, "RUN", .to.text = &verify.run,
     .help = "an external checkpoint, or a copy of one: compare every byte with the record "
             "of this run"},
    {"ledger", 'l', TERN_OPT_TEXT, "DIR", .env = "TERN_LEDGER", .to.text = &verify.ledger,
     .help = "the ledger that knows the run"},
    {"manifest", 0, TERN_OPT_TEXT, "FILE", .to.text = &verify.manifest,
     .help = "the same from a file of LEDGER/runs/RUN/external"},
    {0},
};

static const struct tern_cmd verify_cmd = {
    .name = "verify",
    .args = "PATH",
    .args_min = 1,
    .args_max = 1,
    .summary = "verify a checkpoint, or all in a folder",
    .about =
        "PATH is a checkpoint, a folder of checkpoints, DIR/latest or DIR/best. Checkpoints that a "
        "workload wrote have no manifest: `tern run` writes one for each, beside the ledger.",
    .examples = "  tern ckpt verify checkpoints/latest --full\n"
                "  tern ckpt verify out/step_100 --run llama-70b\n",
    .opts = verify_opts,
    .run = verify_run,
};

/* ------------------------------------------------------------------ mirror */

static const char *mirror_ledger;

static int mirror_run(int n_args, char **args, struct tern_err *err)
{
    (void)n_args;
    return ckpt_mirror(args[0], mirror_ledger, err);
}

static const struct tern_opt mirror_opts[] = {
    {"ledger", 'l', TERN_OPT_TEXT, "DIR", .env = "TERN_LEDGER", .to.text = &mirror_ledger,
     .help = "the ledger that knows the run"},
    {0},
};

static const struct tern_cmd mirror_cmd = {
    .name = "mirror",
    .args = "RUN",
    .args_min = 1,
    .args_max = 1,
    .summary = "verify and copy what a run has left",
    .about = "While it runs, `tern run` digests a workload's checkpoints. It copies them, and "
             "tern's own, to checkpoint.mirror. When a run is done, its job waits up to a minute "
             "for unfinished copies, or longer if it has few nodes. This command makes the copies "
             "that are then still missing, on any machine that sees the folders. If it is ended "
             "half-way, the next call keeps the files that it has copied. It prunes nothing. Exit "
             "status 75: some copies are still missing.",
    .examples = "  tern ckpt mirror llama-70b --ledger /shared/ledger\n",
    .opts = mirror_opts,
    .run = mirror_run,
};

/* ------------------------------------------------------------------ the program */

static const struct tern_cmd *const verbs[] = {&ls_cmd,         &ckpt_show_cmd,    &ckpt_diff_cmd,
                                               &verify_cmd,     &ckpt_du_cmd,      &ckpt_prune_cmd,
                                               &mirror_cmd,     &ckpt_export_cmd,  &ckpt_merge_cmd,
                                               &ckpt_blend_cmd, &ckpt_reshard_cmd, NULL};

static const struct tern_cmd ckpt = {
    .name = "ckpt",
    .summary = "list, compare, verify, prune, copy, export, merge, blend and reshard checkpoints",
    .about =
        "A checkpoint is a folder step-NNNNNNNN of safetensors shards and a manifest, published "
        "by one rename.  The newest is the highest step that verifies.",
    .verbs = verbs,
};

int main(int argc, char **argv)
{
    return tern_cmd_main(&ckpt, argc, argv);
}

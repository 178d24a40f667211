/* Files of NxD's ranks. */
#include "core/convert/nxd_ranks.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/progress.h"
#include "core/base/str.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

/* Where a rank's file lies, and under which name. */
static const struct {
    const char *dir; /* below the folder; NULL: that folder itself */
    bool old;        /* tp_rank_TT_pp_rank_PP, plain a folder with checkpoint.pt */
    bool expert;     /* with ep_rank_00 */
} forms[] = {{"model", false, false},
             {"model", false, true},
             {NULL, false, false},
             {NULL, false, true},
             {NULL, true, false}};
enum { FORMS = sizeof forms / sizeof *forms };

/* ------------------------------------------------------------------ names */

char *tern_convert_nxd_rank_name(size_t form, int tensor, int pipeline)
{
    if (form >= FORMS)
        return NULL;
    const char *dir = forms[form].dir;
    if (forms[form].old)
        return tern_strf("tp_rank_%02d_pp_rank_%02d", tensor, pipeline);
    return tern_strf("%s%sdp_rank_00_%stp_rank_%02d_pp_rank_%02d.pt", dir ? dir : "",
                     dir ? "/" : "", forms[form].expert ? "ep_rank_00_" : "", tensor, pipeline);
}

/* The number behind `key` in `name`; -1 when there is none. */
static int number_behind(const char *name, const char *key)
{
    const char *at = strstr(name, key);
    char digits[8] = "";
    int64_t n;

    if (!at)
        return -1;
    at += strlen(key);
    for (size_t i = 0; i < sizeof digits - 1 && at[i] >= '0' && at[i] <= '9'; i++)
        digits[i] = at[i];
    return tern_str_int(digits, 0, TERN_CONVERT_NXD_RANKS_MAX - 1, &n) == 0 ? (int)n : -1;
}

/* Does the name fit the form?  Then its ranks. */
static bool parse_name(size_t form, const char *name, int *ret_tensor, int *ret_pipeline)
{
    *ret_tensor = number_behind(name, "tp_rank_");
    *ret_pipeline = number_behind(name, "pp_rank_");
    if (*ret_tensor < 0 || *ret_pipeline < 0)
        return false;
    char *again = tern_convert_nxd_rank_name(form, *ret_tensor, *ret_pipeline);
    bool same = strcmp(tern_fs_basename(again), name) == 0;
    free(again);
    return same;
}

/* Which form the folder has, and how many ranks. */
static int find_ranks(struct tern_convert_nxd_ranks *r, struct tern_err *err)
{
    for (r->form = 0; r->form < FORMS; r->form++) {
        const char *below = forms[r->form].dir;
        char *dir = below ? tern_fs_join(r->dir, below) : tern_strdup(r->dir);
        DIR *d = TERN_AGAIN_PTR(opendir(dir));
        int t, p;
        free(dir);
        for (struct dirent *e; d && (e = readdir(d));) {
            if (!parse_name(r->form, e->d_name, &t, &p))
                continue;
            r->tensor = t + 1 > r->tensor ? t + 1 : r->tensor;
            r->pipeline = p + 1 > r->pipeline ? p + 1 : r->pipeline;
        }
        if (d)
            closedir(d);
        if (r->tensor)
            return 0;
    }
    return tern_err_set(err, TERN_USAGE,
                        "%s: holds no files of NxD's ranks "
                        "(model/dp_rank_00_tp_rank_00_pp_rank_00.pt, or tp_rank_00_pp_rank_00)",
                        r->dir);
}

/* Of a checkpoint that the trainer has not finished, or is about to remove, files may be cut off or
 * missing. */
static int check_markers(const struct tern_convert_nxd_ranks *r, struct tern_err *err)
{
    /* The folder of the files itself was given. */
    bool above = !forms[r->form].dir && strcmp(tern_fs_basename(r->dir), "model") == 0;
    char *dir = above ? tern_fs_join(r->dir, "..") : tern_strdup(r->dir);
    char *begun = tern_fs_join(dir, "checkpoint"), *done = tern_fs_join(dir, "done");
    int rc = 0;

    if (tern_fs_exists(begun) && !tern_fs_exists(done))
        rc = tern_err_set(err, TERN_USAGE,
                          "%s: has the marker 'checkpoint' and no marker 'done': the trainer has "
                          "not finished this checkpoint. Take one that is whole.",
                          r->dir);
    free(done);
    free(begun);
    free(dir);
    return rc;
}

/* ------------------------------------------------------------------ files */

static struct tern_convert_nxd_rank *rank_of(const struct tern_convert_nxd_ranks *r, int tensor,
                                             int pipeline)
{
    return &r->ranks[pipeline * r->tensor + tensor];
}

/* The weights lie at the top, or below "model". */
static int find_top(const struct tern_convert_nxd_ranks *r, struct tern_convert_nxd_rank *k,
                    struct tern_err *err)
{
    static const char model[] = "model.";
    bool top = false;

    for (size_t i = 0; i < k->file.n && k->skip == 0; i++) {
        top |= k->file.tensors[i].outer == 0;
        if (k->file.tensors[i].outer == strlen(model) &&
            tern_str_starts(k->file.tensors[i].name, model))
            k->skip = strlen(model);
    }
    return top || k->skip
               ? 0
               : tern_err_set(err, TERN_USAGE, "%s/%s: has no tensors at the top or below 'model'",
                              r->dir, k->name);
}

static int check_stop(const struct tern_convert_nxd_ranks *r, struct tern_err *err)
{
    return r->stop && *r->stop
               ? tern_err_set(err, TERN_FAILED, "interrupted; nothing was left behind")
               : 0;
}

static int open_rank(struct tern_convert_nxd_ranks *r, int tensor, int pipeline,
                     struct tern_err *err)
{
    struct tern_convert_nxd_rank *k = rank_of(r, tensor, pipeline);
    char *name = tern_convert_nxd_rank_name(r->form, tensor, pipeline);

    k->name = name;
    if (forms[r->form].old && !r->xser) {
        k->name = tern_strf("%s/checkpoint.pt", name);
        free(name);
    }
    char *path = tern_fs_join(r->dir, k->name);
    int rc = check_stop(r, err);
    if (rc == 0 && !tern_fs_exists(path))
        rc = tern_err_set(err, TERN_USAGE,
                          "%s: is missing; the folder has files of %d tensor and %d pipeline ranks",
                          path, r->tensor, r->pipeline);
    if (rc == 0)
        rc = tern_pytorch_open_parts(path, &k->file, err);
    free(path);
    if (rc == 0)
        rc = find_top(r, k, err);
    if (rc == 0) {
        k->found = tern_alloc(k->file.n + 1, sizeof *k->found, r->dir, err);
        rc = k->found ? 0 : -1;
    }
    k->in_list = (unsigned)r->list.n_files;
    return rc == 0 && !r->xser ? tern_convert_foreign_file(&r->list, k->name, k->file.bytes, err)
                               : rc;
}

int tern_convert_nxd_ranks_open(struct tern_convert_nxd_ranks *r, struct tern_err *err)
{
    if (find_ranks(r, err) < 0 || check_markers(r, err) < 0)
        return -1;
    char *name = tern_convert_nxd_rank_name(r->form, 0, 0);
    char *tensors = tern_strf("%s/%s.tensors", r->dir, name);
    r->xser = tern_fs_exists(tensors);
    free(tensors);
    free(name);
    r->ranks = tern_alloc((size_t)(r->tensor * r->pipeline), sizeof *r->ranks, r->dir, err);
    r->found = tern_alloc((size_t)r->tensor, sizeof *r->found, r->dir, err);
    if (!r->ranks || !r->found)
        return -1;
    tern_progress_phase("files", "opening them");
    tern_progress_expect((uint64_t)(r->tensor * r->pipeline));
    for (int p = 0; p < r->pipeline; p++) {
        for (int t = 0; t < r->tensor; t++) {
            if (open_rank(r, t, p, err) < 0)
                return -1;
            tern_progress_add(1);
        }
    }
    return 0;
}

static void drop_found(struct tern_convert_nxd_ranks *r)
{
    for (int t = 0; r->found && t < r->tensor; t++)
        tern_pytorch_free(&r->found[t].own);
    if (r->found)
        memset(r->found, 0, (size_t)r->tensor * sizeof *r->found);
}

void tern_convert_nxd_ranks_free(struct tern_convert_nxd_ranks *r)
{
    drop_found(r);
    for (int i = 0; r->ranks && i < r->tensor * r->pipeline; i++) {
        tern_pytorch_free(&r->ranks[i].file);
        free(r->ranks[i].found);
        free(r->ranks[i].name);
    }
    tern_convert_foreign_free(&r->list);
    free(r->ranks);
    free(r->found);
    r->ranks = NULL;
    r->found = NULL;
}

/* ------------------------------------------------------------------ tensors */

const char *tern_convert_nxd_shape(char *to, size_t size, int ndim, const uint64_t *shape)
{
    size_t at = 0;

    tern_assert(size > 2);
    to[at++] = '[';
    for (int d = 0; d < ndim && at < size; d++)
        at += (size_t)snprintf(to + at, size - at, "%s%llu", d ? ", " : "",
                               (unsigned long long)shape[d]);
    if (at < size)
        snprintf(to + at, size - at, "]");
    return to;
}

/* Which of the rank's tensors it is; file.n: none. */
static size_t look_up(const struct tern_convert_nxd_rank *k, const char *name)
{
    size_t i = 0;

    while (i < k->file.n && (k->file.tensors[i].outer != k->skip ||
                             strcmp(k->file.tensors[i].name + k->skip, name) != 0))
        i++;
    return i;
}

int tern_convert_nxd_ranks_stage(const struct tern_convert_nxd_ranks *r, const char *name)
{
    for (int p = 0; p < r->pipeline; p++)
        if (look_up(rank_of(r, 0, p), name) < rank_of(r, 0, p)->file.n)
            return p;
    return -1;
}

/* xser: the tensor that a reference stands for, in a file of its own. */
static int open_tensor(struct tern_convert_nxd_ranks *r, const struct tern_convert_nxd_rank *k,
                       int64_t number, struct tern_convert_nxd_found *to, struct tern_err *err)
{
    if (check_stop(r, err) < 0)
        return -1;
    char *name = tern_strf("%s.tensors/tensor_%lld.pt", k->name, (long long)number);
    char *path = tern_fs_join(r->dir, name);
    int rc = tern_pytorch_open_parts(path, &to->own, err);

    if (rc == 0 && (to->own.n != 1 || to->own.tensors[0].reference >= 0))
        rc = tern_err_set(err, TERN_USAGE, "%s: holds no tensor, or more than one", path);
    to->file = (unsigned)r->list.n_files;
    if (rc == 0)
        rc = tern_convert_foreign_file(&r->list, name, to->own.bytes, err);
    if (rc == 0)
        to->t = to->own.tensors;
    free(path);
    free(name);
    return rc;
}

/* Is it as on tensor rank 0? */
static int check_same(const struct tern_convert_nxd_ranks *r, const struct tern_convert_nxd_rank *k,
                      const char *name, const struct tern_pytorch_tensor *t, struct tern_err *err)
{
    const struct tern_pytorch_tensor *first = r->found[0].t;
    char a[100], b[100];

    if (t->type == first->type && t->ndim == first->ndim &&
        memcmp(t->shape, first->shape, sizeof t->shape) == 0)
        return 0;
    return tern_err_set(
        err, TERN_USAGE, "%s/%s: tensor '%s' is %s %s, and on tensor rank 0 it is %s %s", r->dir,
        k->name, name, tern_ckpt_type_name(t->type),
        tern_convert_nxd_shape(a, sizeof a, t->ndim, t->shape), tern_ckpt_type_name(first->type),
        tern_convert_nxd_shape(b, sizeof b, first->ndim, first->shape));
}

int tern_convert_nxd_ranks_find(struct tern_convert_nxd_ranks *r, int pipeline, const char *name,
                                bool whole, struct tern_err *err)
{
    drop_found(r);
    for (int t = 0; t < r->tensor; t++) {
        const struct tern_convert_nxd_rank *k = rank_of(r, t, pipeline);
        struct tern_convert_nxd_found *f = &r->found[t];
        size_t i = look_up(k, name);
        if (i == k->file.n)
            return tern_err_set(err, TERN_USAGE, "%s/%s: has no tensor '%s', as other ranks have",
                                r->dir, k->name, name);
        const struct tern_pytorch_tensor *one = &k->file.tensors[i];
        k->found[i] = true;
        if ((one->reference >= 0) != r->xser)
            return tern_err_set(err, TERN_USAGE, "%s/%s: tensor '%s' is %s", r->dir, k->name, name,
                                r->xser
                                    ? "in this file, and not in its folder .tensors"
                                    : "not in this file (xser), and there is no folder .tensors");
        if (whole && t > 0 && r->xser)
            continue;
        f->t = one;
        f->file = k->in_list;
        if (r->xser && open_tensor(r, k, one->reference, f, err) < 0)
            return -1;
        if (check_same(r, k, name, f->t, err) < 0)
            return -1;
    }
    return 0;
}

/* ------------------------------------------------------------------ the rest */

int tern_convert_nxd_ranks_check_rest(const struct tern_convert_nxd_ranks *r,
                                      bool (*may_be_left)(const void *user, const char *name),
                                      const void *user, const char *hint, struct tern_err *err)
{
    enum { SHOWN = 3 };
    const struct tern_convert_nxd_rank *first = NULL;
    struct tern_buf some = {.max = 600};
    size_t n = 0;

    for (int i = 0; !first && i < r->tensor * r->pipeline; i++) {
        const struct tern_convert_nxd_rank *k = &r->ranks[i];
        for (size_t j = 0; j < k->file.n; j++) {
            const char *name = k->file.tensors[j].name;
            /* The trainer's other data lies beside the dict of the weights. */
            if (k->found[j] || (k->skip && !tern_str_starts(name, "model.")) ||
                may_be_left(user, name + k->skip))
                continue;
            first = k;
            if (n++ < SHOWN)
                tern_buf_printf(&some, "%s'%.150s'", n > 1 ? ", " : "", name + k->skip);
        }
    }
    int rc = n == 0 ? 0
                    : tern_err_set(err, TERN_USAGE,
                                   "%s/%s: holds %zu tensor%s that would be left out: %s%s. %s",
                                   r->dir, first->name, n, n > 1 ? "s" : "", some.data,
                                   n > SHOWN ? ", ..." : "", hint);
    tern_buf_free(&some);
    return rc;
}

/* NeuronX Distributed's weights out. */
#include "core/convert/nxd.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/convert/export.h"
#include "core/convert/nxd_plan.h"
#include "core/pytorch/write.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    PIECE = 8 << 20,       /* bytes of weights in memory at a time */
    OTHER_FILES = 64 + 64, /* descriptors of the source's shards, and all else */
};

/* One file is open for each tensor rank. */
struct nxd {
    struct tern_convert_export x;
    const struct tern_convert_nxd *o;
    struct tern_convert_nxd_plan plan;
    struct tern_convert_nxd_run *runs; /* [slots] */
    struct tern_pytorch_write **to;    /* [tensor], NULL where none is open */
    char *piece, *part;                /* [PIECE] each; `part`: columns of `piece` */
    int pipeline_rank;
    uint64_t bytes, all; /* of tensors: so far; of all ranks */
};

static const char *const torch_names[] = {
    [TERN_CKPT_F64] = "float64",
    [TERN_CKPT_F32] = "float32",
    [TERN_CKPT_F16] = "float16",
    [TERN_CKPT_BF16] = "bfloat16",
};

/* ------------------------------------------------------------------ files */

/* The rank's file, or with xser the file of its names. */
static char *rank_path(const struct nxd *n, int rank)
{
    const char *temp = n->x.temp;

    switch (n->o->files) {
    case TERN_CONVERT_NXD_V1:
        return tern_strf("%s/tp_rank_%02d_pp_rank_%02d%s", temp, rank, n->pipeline_rank,
                         n->o->xser ? "" : "/checkpoint.pt");
    case TERN_CONVERT_NXD_V3:
        return tern_strf("%s/model/dp_rank_00_ep_rank_00_tp_rank_%02d_pp_rank_%02d.pt", temp, rank,
                         n->pipeline_rank);
    default:
        return tern_strf("%s/model/dp_rank_00_tp_rank_%02d_pp_rank_%02d.pt", temp, rank,
                         n->pipeline_rank);
    }
}

static int make_folder_of(const char *path, struct tern_err *err)
{
    char *dir = tern_fs_dirname(path);
    int rc = tern_fs_mkdirs(dir, 0777, err);

    free(dir);
    return rc;
}

/* As it is written: the type is that of its first source, as of its others. */
static struct tern_pytorch_array torch_tensor(const struct nxd *n,
                                              const struct tern_convert_nxd_tensor *t)
{
    struct tern_pytorch_array to = {.ndim = t->ndim,
                                    .dtype = torch_names[n->x.tensors[t->source[0]].type]};

    memcpy(to.shape, t->shape, sizeof t->shape);
    return to;
}

static struct tern_pytorch_object *pickle(const struct nxd *n,
                                          const struct tern_convert_nxd_tensor *t, size_t count)
{
    struct tern_pytorch_object *p = tern_pytorch_object_new();

    tern_pytorch_object_dict(p);
    for (size_t i = 0; i < count; i++) {
        struct tern_pytorch_array one = torch_tensor(n, &t[i]);
        tern_pytorch_object_text(p, t[i].name);
        if (n->o->xser)
            tern_pytorch_object_reference(p, (int64_t)i);
        else
            tern_pytorch_object_tensor(p, &one);
    }
    tern_pytorch_object_end(p);
    return p;
}

static struct tern_pytorch_object *
pickle_info(const struct nxd *n, const struct tern_convert_nxd_tensor *t, size_t count)
{
    struct tern_pytorch_object *p = tern_pytorch_object_new();

    tern_pytorch_object_dict(p);
    for (size_t i = 0; i < count; i++) {
        struct tern_pytorch_array one = torch_tensor(n, &t[i]);
        tern_pytorch_object_int(p, (int64_t)i);
        tern_pytorch_object_dict(p);
        tern_pytorch_object_text(p, "dtype");
        tern_pytorch_object_dtype(p, one.dtype);
        tern_pytorch_object_text(p, "shape");
        tern_pytorch_object_size(p, &one);
        tern_pytorch_object_text(p, "expert_model_parallel");
        tern_pytorch_object_bool(p, false);
        tern_pytorch_object_end(p);
    }
    tern_pytorch_object_end(p);
    return p;
}

/* A file with the tensors of `p`, which it takes. */
static struct tern_pytorch_write *open_file(const struct nxd *n, const char *path,
                                            struct tern_pytorch_object *p, struct tern_err *err)
{
    const struct tern_pytorch_write_how how = {.read_back = n->o->verify ? &n->x.read_back : NULL};

    return tern_pytorch_write_open(path, p, &how, err);
}

/* A file without a tensor's bytes. */
static int write_pickle(const struct nxd *n, const char *path, struct tern_pytorch_object *p,
                        struct tern_err *err)
{
    struct tern_pytorch_write *w = open_file(n, path, p, err);

    return w ? tern_pytorch_write_commit(w, err) : -1;
}

/* The files of one pipeline rank, before their tensors: open, or whole with xser. */
static int begin_ranks(struct nxd *n, const struct tern_convert_nxd_tensor *t, size_t count,
                       struct tern_err *err)
{
    int rc = 0;

    for (int r = 0; rc == 0 && r < n->plan.tensor; r++) {
        char *path = rank_path(n, r), *info = tern_strf("%s.info.pt", path);
        char *tensors = tern_strf("%s.tensors", path);
        rc = make_folder_of(path, err);
        if (rc == 0 && n->o->xser) {
            rc = tern_fs_mkdirs(tensors, 0777, err);
            if (rc == 0)
                rc = write_pickle(n, path, pickle(n, t, count), err);
            if (rc == 0)
                rc = write_pickle(n, info, pickle_info(n, t, count), err);
        } else if (rc == 0) {
            n->to[r] = open_file(n, path, pickle(n, t, count), err);
            rc = n->to[r] ? 0 : -1;
        }
        free(tensors);
        free(info);
        free(path);
    }
    return rc;
}

static char *tensor_path(const struct nxd *n, int rank, size_t i)
{
    char *at = rank_path(n, rank), *path = tern_strf("%s.tensors/tensor_%zu.pt", at, i);

    free(at);
    return path;
}

/* xser: a file of its own for tensor `i`, in each rank's folder. */
static int begin_tensor(struct nxd *n, const struct tern_convert_nxd_tensor *t, size_t i,
                        struct tern_err *err)
{
    struct tern_pytorch_array one = torch_tensor(n, t);
    int rc = 0;

    for (int r = 0; rc == 0 && r < n->plan.tensor; r++) {
        char *path = tensor_path(n, r, i);
        struct tern_pytorch_object *p = tern_pytorch_object_new();
        tern_pytorch_object_tensor(p, &one);
        n->to[r] = open_file(n, path, p, err);
        rc = n->to[r] ? 0 : -1;
        free(path);
    }
    return rc;
}

static int commit_all(struct nxd *n, struct tern_err *err)
{
    int rc = 0;

    for (int r = 0; rc == 0 && r < n->plan.tensor; r++) {
        rc = tern_pytorch_write_commit(n->to[r], err);
        n->to[r] = NULL;
    }
    return rc;
}

/* ------------------------------------------------------------------ weights */

static uint64_t row_bytes(const struct tern_ckpt_info *t)
{
    return tern_ckpt_type_bytes(t->type) * (t->ndim == 2 ? t->shape[1] : 1);
}

static int append(struct nxd *n, int rank, const char *data, uint64_t len, struct tern_err *err)
{
    n->bytes += len;
    tern_progress_add(len);
    return tern_pytorch_write_bytes(n->to[rank], data, len, err);
}

/* Rows from `from` on to `piece`, as many of `rows` as fit. *ret_rows: how many. */
static int read_rows(struct nxd *n, const struct tern_ckpt_info *t, uint64_t from, uint64_t rows,
                     uint64_t *ret_rows, struct tern_err *err)
{
    uint64_t start[TERN_CKPT_DIMS] = {from}, shape[TERN_CKPT_DIMS], row = row_bytes(t);
    uint64_t most = row <= PIECE ? PIECE / row : 0;

    if (n->o->stop && *n->o->stop)
        return tern_err_set(err, TERN_FAILED, "interrupted; nothing was left behind");
    if (most == 0)
        return tern_err_set(err, TERN_USAGE, "%s: tensor '%s' has rows of %llu bytes (at most %d)",
                            tern_ckpt_path(n->x.c), t->name, (unsigned long long)row, PIECE);
    memcpy(shape, t->shape, sizeof shape);
    shape[0] = rows < most ? rows : most;
    if (tern_ckpt_read(n->x.from, t->name - strlen(n->x.prefix), t->type, start, shape, n->piece,
                       err) < 0 ||
        tern_convert_check_range(&n->x, t, tern_convert_stored_type(&n->x, t->name), n->piece,
                                 shape[0] * row / tern_ckpt_type_bytes(t->type), err) < 0)
        return -1;
    *ret_rows = shape[0];
    return 0;
}

/* To each rank its rows. */
static int deal_rows(struct nxd *n, const struct tern_model_tensor *whole,
                     const struct tern_ckpt_info *t, struct tern_err *err)
{
    uint64_t got;

    for (int r = 0; r < n->plan.tensor; r++) {
        size_t runs = tern_convert_nxd_runs(&n->plan, whole, r, n->runs);
        for (size_t i = 0; i < runs; i++) {
            uint64_t at = (uint64_t)n->runs[i].start, end = at + (uint64_t)n->runs[i].count;
            for (; at < end; at += got) {
                if (read_rows(n, t, at, end - at, &got, err) < 0 ||
                    append(n, r, n->piece, got * row_bytes(t), err) < 0)
                    return -1;
            }
        }
    }
    return 0;
}

/* To each rank its columns of every row: all are read once. */
static int deal_columns(struct nxd *n, const struct tern_model_tensor *whole,
                        const struct tern_ckpt_info *t, struct tern_err *err)
{
    uint64_t size = tern_ckpt_type_bytes(t->type), row = row_bytes(t), got;

    for (uint64_t at = 0; at < t->shape[0]; at += got) {
        if (read_rows(n, t, at, t->shape[0] - at, &got, err) < 0)
            return -1;
        for (int r = 0; r < n->plan.tensor; r++) {
            size_t runs = tern_convert_nxd_runs(&n->plan, whole, r, n->runs);
            char *to = n->part;
            for (uint64_t k = 0; k < got; k++) {
                for (size_t i = 0; i < runs; i++) {
                    size_t len = (size_t)n->runs[i].count * size;
                    memcpy(to, n->piece + k * row + (size_t)n->runs[i].start * size, len);
                    to += len;
                }
            }
            if (append(n, r, n->part, (uint64_t)(to - n->part), err) < 0)
                return -1;
        }
    }
    return 0;
}

static int deal_whole(struct nxd *n, const struct tern_ckpt_info *t, struct tern_err *err)
{
    uint64_t got;

    for (uint64_t at = 0; at < t->shape[0]; at += got) {
        if (read_rows(n, t, at, t->shape[0] - at, &got, err) < 0)
            return -1;
        for (int r = 0; r < n->plan.tensor; r++)
            if (append(n, r, n->piece, got * row_bytes(t), err) < 0)
                return -1;
    }
    return 0;
}

static int deal(struct nxd *n, const struct tern_convert_nxd_tensor *t, struct tern_err *err)
{
    struct tern_model_tensor whole;
    int rc = 0;

    for (int i = 0; rc == 0 && i < t->sources; i++) {
        const struct tern_ckpt_info *info = &n->x.tensors[t->source[i]];
        tern_model_tensor(&n->plan.config, t->source[i], &whole);
        if (t->axis < 0)
            rc = deal_whole(n, info, err);
        else
            rc =
                t->axis == 0 ? deal_rows(n, &whole, info, err) : deal_columns(n, &whole, info, err);
    }
    return rc;
}

/* Weights are floats, and tensors that become one are of one type. */
static int check_types(const struct nxd *n, const struct tern_convert_nxd_tensor *t,
                       struct tern_err *err)
{
    enum tern_ckpt_type first = n->x.tensors[t->source[0]].type;

    if (!tern_ckpt_can_convert(TERN_CKPT_F32, first))
        return tern_err_set(err, TERN_USAGE, "%s: tensor '%s' is %s, no kind of float",
                            tern_ckpt_path(n->x.c), n->x.tensors[t->source[0]].name,
                            tern_ckpt_type_name(first));
    for (int i = 1; i < t->sources; i++) {
        const struct tern_ckpt_info *a = &n->x.tensors[t->source[0]],
                                    *b = &n->x.tensors[t->source[i]];
        if (a->type != b->type)
            return tern_err_set(err, TERN_USAGE,
                                "%s: tensors '%s' (%s) and '%s' (%s) become one in NxD: choose a "
                                "type (--dtype)",
                                tern_ckpt_path(n->x.c), a->name, tern_ckpt_type_name(a->type),
                                b->name, tern_ckpt_type_name(b->type));
    }
    return 0;
}

/* Of all tensor ranks. */
static uint64_t bytes_of(const struct nxd *n, const struct tern_convert_nxd_tensor *t)
{
    uint64_t bytes = tern_ckpt_type_bytes(n->x.tensors[t->source[0]].type);

    for (int d = 0; d < t->ndim; d++)
        bytes *= (uint64_t)t->shape[d];
    return bytes * (uint64_t)n->plan.tensor;
}

/* An earlier call wrote the files of all tensor ranks; xser: of tensor `i`. */
static bool are_there(const struct nxd *n, size_t i)
{
    bool all = true;

    for (int r = 0; all && r < n->plan.tensor; r++) {
        char *path = n->o->xser ? tensor_path(n, r, i) : rank_path(n, r);
        all = tern_fs_exists(path);
        free(path);
    }
    return all;
}

static void count_there(struct nxd *n, const struct tern_convert_nxd_tensor *t)
{
    n->bytes += bytes_of(n, t);
    tern_progress_add(n->o->verify ? 2 * bytes_of(n, t) : bytes_of(n, t));
}

static int write_tensor(struct nxd *n, const struct tern_convert_nxd_tensor *t, size_t i,
                        struct tern_err *err)
{
    if (!n->o->xser)
        return deal(n, t, err);
    if (are_there(n, i)) {
        count_there(n, t);
        return 0;
    }
    return begin_tensor(n, t, i, err) < 0 || deal(n, t, err) < 0 ? -1 : commit_all(n, err);
}

static int write_pipeline_rank(struct nxd *n, struct tern_err *err)
{
    struct tern_convert_nxd_tensor *t;
    size_t count;

    if (tern_convert_nxd_list(&n->plan, n->pipeline_rank, &t, &count, err) < 0)
        return -1;
    const bool whole = !n->o->xser && are_there(n, 0);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = check_types(n, &t[i], err);
    if (rc == 0 && !whole)
        rc = begin_ranks(n, t, count, err);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        if (whole)
            count_there(n, &t[i]);
        else
            rc = write_tensor(n, &t[i], i, err);
    }
    if (rc == 0 && !whole && !n->o->xser)
        rc = commit_all(n, err);
    free(t);
    return rc;
}

/* The bytes of all ranks' tensors. */
static int expect_bytes(struct nxd *n, struct tern_err *err)
{
    struct tern_convert_nxd_tensor *t;
    size_t count;

    for (int p = 0; p < n->plan.pipeline; p++) {
        if (tern_convert_nxd_list(&n->plan, p, &t, &count, err) < 0)
            return -1;
        for (size_t i = 0; i < count; i++)
            n->all += bytes_of(n, &t[i]);
        free(t);
    }
    tern_progress_expect(n->o->verify ? 2 * n->all : n->all);
    return 0;
}

/* ------------------------------------------------------------------ the whole */

static int open_source(struct nxd *n, const char *path, struct tern_err *err)
{
    bool ours = tern_ckpt_is_ours(path) || tern_str_starts(tern_fs_basename(path), "step-");
    struct tern_model_adapters adapters;

    if (n->o->from) {
        n->x.prefix = "";
        int rc = tern_convert_open_from_nxd(&n->x, path, n->o->from, err);
        n->x.from = n->x.c;
        return rc;
    }
    n->x.c = n->x.from =
        ours ? tern_ckpt_open(path, err) : tern_convert_open(path, /* key= */ NULL, err);
    n->x.prefix = ours ? "model/" : "";
    if (!n->x.c)
        return -1;
    if (ours && tern_convert_adapters(n->x.c, &adapters))
        return tern_err_set(err, TERN_USAGE,
                            "%s: holds adapters beside its weights. `tern ckpt merge` makes a "
                            "folder of both, which can be exported.",
                            path);
    return 0;
}

static int write_markers(const struct nxd *n, struct tern_err *err)
{
    static const char *const names[] = {"checkpoint", "done"};
    int rc = 0;

    for (int i = 0; rc == 0 && i < 2; i++) {
        char *path = tern_fs_join(n->x.temp, names[i]);
        rc = tern_fs_replace(path, "1", 1, 0644, err);
        free(path);
    }
    return rc;
}

static int begin(struct nxd *n, const char *out_dir, struct tern_err *err)
{
    const struct tern_convert_nxd *o = n->o;
    struct tern_buf what = {0};

    tern_buf_printf(&what,
                    "nxd tensor %d pipeline %d interleave %d copies %d qkv %d hw %d "
                    "files %d xser %d from %d\n",
                    n->plan.tensor, n->plan.pipeline, o->interleave, n->plan.copies,
                    (int)n->plan.qkv, (int)o->hw, (int)o->files, o->xser,
                    o->from ? (int)o->from->hw : -1);
    tern_convert_describe(&what, &n->x);
    const int rc = tern_convert_folder_begin(&n->x, out_dir, &what, err);
    tern_buf_free(&what);
    return rc;
}

static int run(struct nxd *n, const char *path, const char *out_dir, struct tern_err *err)
{
    if (open_source(n, path, err) < 0 || tern_convert_load_config(&n->x, err) < 0 ||
        tern_convert_nxd_plan(&n->x.config, n->o, path, &n->plan, err) < 0 ||
        tern_convert_list_tensors(&n->x, err) < 0)
        return -1;
    n->piece = tern_alloc(PIECE, 1, "weights", err);
    n->part = tern_alloc(PIECE, 1, "weights", err);
    n->runs = tern_alloc((size_t)n->plan.slots, sizeof *n->runs, "heads", err);
    n->to = tern_alloc((size_t)n->plan.tensor, sizeof *n->to, "files", err);
    if (!n->piece || !n->part || !n->runs || !n->to ||
        tern_fs_allow_open((size_t)n->plan.tensor + OTHER_FILES, err) < 0 ||
        expect_bytes(n, err) < 0)
        return -1;
    const int made = begin(n, out_dir, err);
    if (made) {
        n->bytes = n->all;
        return made < 0 ? -1 : 0;
    }
    for (; n->pipeline_rank < n->plan.pipeline; n->pipeline_rank++)
        if (write_pipeline_rank(n, err) < 0)
            return tern_convert_folder_stopped(&n->x, n->o->stop, err);
    if ((n->o->markers && write_markers(n, err) < 0) || tern_fs_sync_dir(n->x.temp, err) < 0)
        return -1;
    return tern_convert_folder_end(&n->x, out_dir, err);
}

int tern_convert_to_nxd(const char *path, const char *out_dir,
                        const struct tern_convert_nxd *options, struct tern_convert_nxd_out *out,
                        struct tern_err *err)
{
    struct tern_convert_hf as = {
        .dtype = options->dtype, .verify = options->verify, .stop = options->stop};
    struct nxd n = {
        .x = {.options = &as, .read_back = {.progress = tern_progress_add, .stop = options->stop}},
        .o = options};
    char *to = tern_strdup(out_dir);

    for (size_t k = strlen(to); k > 1 && to[k - 1] == '/';)
        to[--k] = '\0';
    int rc = run(&n, path, to, err);
    if (rc == 0 && out)
        *out = (struct tern_convert_nxd_out){n.bytes, (unsigned)(n.plan.tensor * n.plan.pipeline),
                                             n.plan.copies, n.plan.qkv};
    for (int r = 0; n.to && r < n.plan.tensor; r++)
        tern_pytorch_write_abort(n.to[r]);
    tern_convert_export_free(&n.x);
    free(n.to);
    free(n.runs);
    free(n.part);
    free(n.piece);
    free(to);
    return rc;
}

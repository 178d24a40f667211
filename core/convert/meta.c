/* Meta's folders: params.json, and consolidated.NN.pth for each rank of their model parallelism.
 *
 * Their names and the order of their rows are not Hugging Face's.  Their RoPE turns neighbouring
 * rows of a head, 2 j and 2 j + 1; Hugging Face's turns row j and row D/2 + j.  So of wq and wk the
 * even rows of each head come first.  Source: transformers, convert_llama_weights_to_hf.py; Meta's
 * llama/model.py. */
#include "core/convert/convert.h"
#include "core/convert/foreign.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/pytorch/pytorch.h"

#include <stdlib.h>
#include <string.h>

enum {
    FILES_MAX = 256,       /* Meta's largest model has 16 */
    TENSORS_MAX = 1 << 18, /* of all files: 16 of 1,138 make that model */
    OTHERS_MAX = 64,       /* tensors of a file beside the model's, and RoPE's of each layer */
    PIECES_MAX = 1 << 20,  /* of all arrays: heads of that model make 34,272 */
    ROPE_PAIR = 2,
};

/* ---------------------------------------------------------------- the files */

struct meta {
    const char *dir;
    struct tern_model_config config;
    bool guessed;                    /* params.json made it */
    struct tern_pytorch_file *files; /* [n]: their tensors by name */
    bool **used;                     /* [n]: of each file's tensors */
    size_t n, tensors, pieces;       /* files; tensors in them; pieces of arrays */
    struct tern_convert_foreign to;
};

static char *file_name(size_t i)
{
    return tern_strf("consolidated.%02zu.pth", i);
}

static int by_name(const void *a, const void *b)
{
    const struct tern_pytorch_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* A table with far more tensors than the model has is not taken into memory many times. */
static int check_count(struct meta *m, const char *path, struct tern_err *err)
{
    const size_t n = m->files[m->n].n, model = tern_model_tensors(&m->config);

    m->tensors += n;
    if (n > model + (size_t)m->config.layers + OTHERS_MAX)
        return tern_err_set(err, TERN_USAGE, "%s: holds %zu tensors, and its model has %zu", path,
                            n, model);
    if (m->tensors > TENSORS_MAX)
        return tern_err_set(err, TERN_USAGE, "%s: its files hold more than %d tensors", m->dir,
                            TENSORS_MAX);
    return 0;
}

/* Neighbours of one name: which of them counts, Python decides by their order. */
static int check_names(const struct tern_pytorch_file *f, const char *path, struct tern_err *err)
{
    for (size_t i = 1; i < f->n; i++)
        if (by_name(&f->tensors[i - 1], &f->tensors[i]) == 0)
            return tern_err_set(err, TERN_USAGE, "%s: tensor '%s' is there twice", path,
                                f->tensors[i].name);
    return 0;
}

static int open_file(struct meta *m, struct tern_err *err)
{
    char *name = file_name(m->n), *path = tern_fs_join(m->dir, name);
    struct tern_pytorch_file *f = &m->files[m->n];
    int rc = tern_pytorch_open(path, f, err);

    if (rc == 0) {
        rc = check_count(m, path, err);
        qsort(f->tensors, f->n, sizeof *f->tensors, by_name);
        if (rc == 0)
            rc = check_names(f, path, err);
        m->used[m->n] = tern_alloc(f->n + 1, sizeof **m->used, path, err);
        if (!m->used[m->n] || tern_convert_foreign_file(&m->to, name, f->bytes, err) < 0)
            rc = -1;
        m->n++;
    }
    free(path);
    free(name);
    return rc;
}

static int open_all(struct meta *m, struct tern_err *err)
{
    bool there = true;

    m->files = tern_alloc(FILES_MAX, sizeof *m->files, m->dir, err);
    m->used = tern_alloc(FILES_MAX, sizeof *m->used, m->dir, err);
    if (!m->files || !m->used)
        return -1;
    while (there && m->n < FILES_MAX) {
        if (open_file(m, err) < 0)
            return -1;
        char *name = file_name(m->n), *path = tern_fs_join(m->dir, name);
        there = tern_fs_exists(path);
        free(path);
        free(name);
    }
    return 0;
}

static void close_all(struct meta *m)
{
    for (size_t i = 0; i < m->n; i++) {
        tern_pytorch_free(&m->files[i]);
        free(m->used[i]);
    }
    free(m->files);
    free(m->used);
    tern_convert_foreign_free(&m->to);
}

/* NULL when it is not there. */
static const struct tern_pytorch_tensor *look(const struct meta *m, size_t i, const char *name)
{
    const struct tern_pytorch_tensor key = {.name = (char *)name};

    return bsearch(&key, m->files[i].tensors, m->files[i].n, sizeof key, by_name);
}

/* The tensor of file `i`; NULL with `err` when it is not there. */
static const struct tern_pytorch_tensor *find(const struct meta *m, size_t i, const char *name,
                                              struct tern_err *err)
{
    const struct tern_pytorch_tensor *t = look(m, i, name);

    if (t)
        m->used[i][t - m->files[i].tensors] = true;
    else
        tern_err_set(err, TERN_USAGE, "%s/%s: has no tensor '%s', which params.json asks for",
                     m->dir, m->to.names[i], name);
    return t;
}

/* ---------------------------------------------------------------- one tensor */

static void meta_name(const struct tern_model_tensor *t, char *to, size_t n)
{
    static const char *const names[] = {
        [TERN_MODEL_EMBED] = "tok_embeddings.weight",
        [TERN_MODEL_Q] = "attention.wq.weight",
        [TERN_MODEL_K] = "attention.wk.weight",
        [TERN_MODEL_V] = "attention.wv.weight",
        [TERN_MODEL_O] = "attention.wo.weight",
        [TERN_MODEL_GATE] = "feed_forward.w1.weight",
        [TERN_MODEL_UP] = "feed_forward.w3.weight",
        [TERN_MODEL_DOWN] = "feed_forward.w2.weight",
        [TERN_MODEL_INPUT_NORM] = "attention_norm.weight",
        [TERN_MODEL_POST_NORM] = "ffn_norm.weight",
        [TERN_MODEL_NORM] = "norm.weight",
        [TERN_MODEL_HEAD] = "output.weight",
    };

    if (t->layer >= 0)
        snprintf(to, n, "layers.%d.%s", t->layer, names[t->kind]);
    else
        snprintf(to, n, "%s", names[t->kind]);
}

/* How the files' parts make the whole. */
struct split {
    int axis;        /* along which they follow each other; -1: each file has all of it */
    size_t replicas; /* neighbouring files with the same part (key heads fewer than files) */
};

/* By the shapes: Llama 2 cuts the embedding by columns, Llama 3 by rows. */
static int find_split(const struct meta *m, const struct tern_model_tensor *t,
                      const struct tern_pytorch_tensor *part, struct split *ret_split,
                      struct tern_err *err)
{
    const uint64_t n = m->n, rows = (uint64_t)t->shape[0];
    const uint64_t columns = t->ndim > 1 ? (uint64_t)t->shape[1] : 1;
    const bool flat = part->ndim == 1;
    const uint64_t r = part->shape[0], c = flat ? 1 : part->shape[1];

    *ret_split = (struct split){.axis = -1, .replicas = 1};
    if (part->ndim == t->ndim && r == rows && c == columns)
        return 0;
    if (part->ndim == 2 && t->ndim == 2 && r == rows && c * n == columns) {
        ret_split->axis = 1;
        return 0;
    }
    if (part->ndim == 2 && t->ndim == 2 && c == columns && r > 0 && r < 1ull << 40 &&
        r * n % rows == 0 && n % (r * n / rows) == 0) {
        ret_split->axis = 0;
        ret_split->replicas = r * n / rows;
        return 0;
    }
    return tern_err_set(
        err, TERN_USAGE,
        "%s: '%s' is %llu x %llu in each of %zu files, which does not make the %lld "
        "x %lld of params.json. Is a file missing?",
        m->dir, part->name, (unsigned long long)r, (unsigned long long)c, m->n, (long long)rows,
        (long long)columns);
}

/* Rows [from, from + n) of `part`, each `step` rows behind the last, as a piece of the whole. */
struct rows {
    uint64_t at, from, n, step; /* at: in the whole */
};

static struct tern_ckpt_piece piece_of(const struct tern_pytorch_tensor *part, unsigned file,
                                       const struct rows *rows, uint64_t column)
{
    struct tern_ckpt_piece p = {.file = file, .start = {rows->at, column}};

    p.shape[0] = rows->n;
    p.shape[1] = part->ndim > 1 ? part->shape[1] : 0;
    p.stride[0] = part->stride[0] * rows->step;
    p.stride[1] = part->ndim > 1 ? part->stride[1] : 0;
    p.offset = part->offset + rows->from * part->stride[0] * tern_ckpt_type_bytes(part->type);
    return p;
}

/* Its rows are in another order. */
static bool is_turned(const struct tern_model_tensor *t)
{
    return t->kind == TERN_MODEL_Q || t->kind == TERN_MODEL_K;
}

/* The rows of file `i`, which begin at row `at` of the whole, in one piece; of wq and wk two for
 * each head. */
static size_t add_rows(const struct meta *m, const struct tern_model_tensor *t,
                       const struct tern_pytorch_tensor *part, size_t i, const uint64_t at[2],
                       struct tern_ckpt_piece *to)
{
    const uint64_t rows = part->shape[0], head = (uint64_t)m->config.head_dim, half = head / 2;
    size_t n = 0;

    if (!is_turned(t)) {
        to[n++] = piece_of(part, (unsigned)i, &(struct rows){at[0], 0, rows, 1}, at[1]);
        return n;
    }
    for (uint64_t h = 0; h < rows / head; h++)
        for (uint64_t b = 0; b < ROPE_PAIR; b++)
            to[n++] = piece_of(
                part, (unsigned)i,
                &(struct rows){at[0] + h * head + b * half, h * head + b, half, ROPE_PAIR}, at[1]);
    return n;
}

/* Room for the pieces of all files, each of which has `part`. */
static struct tern_ckpt_piece *alloc_pieces(struct meta *m, const struct tern_model_tensor *t,
                                            const struct tern_pytorch_tensor *part,
                                            const struct split *split, struct tern_err *err)
{
    const uint64_t head = (uint64_t)m->config.head_dim, parts = m->n / split->replicas;
    const uint64_t n =
        (is_turned(t) ? ROPE_PAIR * (part->shape[0] / head) : 1) * (split->axis < 0 ? 1 : parts);

    if (is_turned(t) && part->shape[0] % head != 0) {
        tern_err_set(err, TERN_USAGE,
                     "%s: '%s' has %llu rows in each of %zu files, which cuts a head of %llu rows. "
                     "Get the folder in Hugging Face's layout",
                     m->dir, part->name, (unsigned long long)part->shape[0], m->n,
                     (unsigned long long)head);
        return NULL;
    }
    if (n > PIECES_MAX || (m->pieces += n) > PIECES_MAX) {
        tern_err_set(err, TERN_USAGE, "%s: the rows of its heads make more than %d pieces", m->dir,
                     PIECES_MAX);
        return NULL;
    }
    return tern_alloc(n, sizeof(struct tern_ckpt_piece), m->dir, err);
}

static int add_tensor(struct meta *m, const struct tern_model_tensor *t, struct tern_err *err)
{
    struct tern_ckpt_info info = {.name = t->name, .ndim = t->ndim};
    const struct tern_pytorch_tensor *first, *part;
    struct split split;
    char name[96];
    size_t n = 0;

    meta_name(t, name, sizeof name);
    first = find(m, 0, name, err);
    if (!first || find_split(m, t, first, &split, err) < 0)
        return -1;
    info.type = first->type;
    for (int d = 0; d < t->ndim; d++)
        info.shape[d] = (uint64_t)t->shape[d];
    struct tern_ckpt_piece *pieces = alloc_pieces(m, t, first, &split, err);
    if (!pieces)
        return -1;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->n; i++) {
        part = find(m, i, name, err);
        if (!part) {
            rc = -1;
        } else if (part->ndim != first->ndim || part->type != first->type ||
                   memcmp(part->shape, first->shape, sizeof part->shape) != 0) {
            rc = tern_err_set(err, TERN_USAGE, "%s: '%s' has another shape in %s than in %s",
                              m->dir, name, m->to.names[i], m->to.names[0]);
        } else if (split.axis < 0 ? i == 0 : i % split.replicas == 0) {
            const uint64_t k = i / split.replicas;
            const uint64_t at[2] = {split.axis == 0 ? k * part->shape[0] : 0,
                                    split.axis == 1 ? k * part->shape[1] : 0};
            n += add_rows(m, t, part, i, at, pieces + n);
        }
    }
    if (rc == 0)
        rc = tern_convert_foreign_array(&m->to, &info, pieces, n, err);
    free(pieces);
    return rc;
}

/* ---------------------------------------------------------------- the whole */

/* The rows of the embedding in all files. */
static int find_vocabulary(struct meta *m, struct tern_err *err)
{
    const struct tern_pytorch_tensor *t = find(m, 0, "tok_embeddings.weight", err);

    if (!t)
        return -1;
    if (t->ndim != 2 || t->shape[0] == 0 || t->shape[0] > 1 << 24)
        return tern_err_set(err, TERN_USAGE, "%s: '%s' is no table of embeddings", m->dir, t->name);
    const bool by_rows = t->shape[1] == (uint64_t)m->config.dim;
    const uint64_t rows = t->shape[0] * (by_rows ? m->n : 1);
    if (rows > 1 << 24)
        return tern_err_set(err, TERN_USAGE, "%s: '%s' has too many rows", m->dir, t->name);
    m->config.vocab = (int)rows;
    return 0;
}

/* Tensors without a place are of another model; RoPE's frequencies follow from the config. */
static int check_rest(const struct meta *m, struct tern_err *err)
{
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->files[i].n; k++)
            if (!m->used[i][k] && !tern_str_ends(m->files[i].tensors[k].name, "rope.freqs"))
                return tern_err_set(err, TERN_USAGE,
                                    "%s/%s: holds tensor '%s', which has no place in the model of "
                                    "params.json",
                                    m->dir, m->to.names[i], m->files[i].tensors[k].name);
    return 0;
}

static int add_all(struct meta *m, struct tern_err *err)
{
    struct tern_model_config listed = m->config;
    struct tern_model_tensor t;

    /* One that is there is compared. */
    listed.tied = m->config.tied && !look(m, 0, "output.weight");
    for (size_t i = 0; i < tern_model_tensors(&listed); i++) {
        tern_model_tensor(&listed, i, &t);
        if (add_tensor(m, &t, err) < 0)
            return -1;
    }
    return check_rest(m, err);
}

/* config.json where one lies there, else params.json, which may leave the vocabulary's size open
 * (0). */
static int read_config(struct meta *m, struct tern_err *err)
{
    char *path = tern_fs_join(m->dir, "config.json");

    m->guessed = !tern_fs_exists(path);
    free(path);
    if (!m->guessed)
        return tern_model_config_load(m->dir, &m->config, err);
    if (tern_convert_params_read(m->dir, &m->config, err) < 0)
        return -1;
    struct tern_model_config c = m->config;
    c.vocab = c.vocab ? c.vocab : 1;
    return tern_model_config_check(&c, m->dir, err);
}

/* The config, the files where it is not whole or `all` are wanted, and the vocabulary's size. */
static int open_folder(struct meta *m, bool all, struct tern_err *err)
{
    if (read_config(m, err) < 0 || ((all || m->config.vocab == 0) && open_all(m, err) < 0) ||
        (m->config.vocab == 0 && find_vocabulary(m, err) < 0))
        return -1;
    return tern_model_config_check(&m->config, m->dir, err);
}

/* params.json does not say whether the head is the embedding.  Where we take it for that and the
 * files have it, it must lie in the same place, or be the same. */
static int check_guess(const struct meta *m, struct tern_ckpt *c, struct tern_err *err)
{
    const struct tern_pytorch_tensor *head = look(m, 0, "output.weight");
    const struct tern_pytorch_tensor *embed = look(m, 0, "tok_embeddings.weight");

    if (!m->guessed || !m->config.tied || !head ||
        (m->n == 1 && head->offset == embed->offset &&
         memcmp(head->stride, embed->stride, sizeof head->stride) == 0))
        return 0;
    const int same = tern_convert_head_is_embedding(c, /* stop= */ NULL, err);
    return same ? same < 0 ? -1 : 0
                : tern_err_set(err, TERN_USAGE,
                               "%s: a model of these sizes (Llama 3.2) has its embedding as its "
                               "head, and this output.weight is another. Put a config.json beside "
                               "params.json that says tie_word_embeddings false",
                               m->dir);
}

struct tern_ckpt *tern_convert_open_meta(const char *dir, struct tern_err *err)
{
    struct meta m = {.dir = dir, .to = {.dir = dir}};
    struct tern_ckpt *c = NULL;

    if (open_folder(&m, /* all= */ true, err) == 0 && add_all(&m, err) == 0)
        c = tern_convert_foreign_open(&m.to, err);
    if (c && check_guess(&m, c, err) < 0) {
        tern_ckpt_close(c);
        c = NULL;
    }
    close_all(&m);
    return c;
}

int tern_convert_config(const char *path, struct tern_model_config *ret_config,
                        struct tern_err *err)
{
    struct meta m = {.dir = path, .to = {.dir = path}};

    if (!tern_convert_params_is(path))
        return tern_model_config_load(path, ret_config, err);
    int rc = open_folder(&m, /* all= */ false, err);
    close_all(&m);
    if (rc == 0)
        *ret_config = m.config;
    return rc;
}

bool tern_convert_has_config(const char *dir)
{
    char *config = tern_fs_join(dir, "config.json");
    const bool has = tern_fs_exists(config) || tern_convert_params_is(dir);

    free(config);
    return has;
}

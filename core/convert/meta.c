/* Meta's folders: params.json, and consolidated.NN.pth for each rank of their model parallelism.
 *
 * Their names and the order of their rows are not Hugging Face's.  Their RoPE turns neighbouring
 * rows of a head, 2 j and 2 j + 1; Hugging Face's turns row j and row D/2 + j.  So of wq and wk the
 * even rows of each head come first.  Source: transformers, convert_llama_weights_to_hf.py; Meta's
 * llama/model.py. */
#include "core/convert/convert.h"
#include "core/convert/foreign.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/pytorch/pytorch.h"

#include <stdlib.h>
#include <string.h>

enum {
    PARAMS_MAX = 1 << 20,
    FILES_MAX = 256, /* Meta's largest model has 16 */
    ROPE_PAIR = 2,
};

/* ---------------------------------------------------------------- params.json */

struct params {
    json_t *j;
    const char *path;
    struct tern_err *err;
    bool failed;
};

/* A whole number; `def` when it is absent or null, which is an error where `def` is -1. */
static int whole(struct params *p, const char *key, int def, int lo)
{
    const json_t *v = json_object_get(p->j, key);
    const bool absent = !v || json_is_null(v);

    if (p->failed || (absent && def != -1))
        return def;
    if (!absent && json_is_integer(v) && json_integer_value(v) >= lo &&
        json_integer_value(v) <= 1 << 20)
        return (int)json_integer_value(v);
    tern_err_set(p->err, TERN_USAGE, "%s: %s %s", p->path, key,
                 absent ? "is missing" : "is no whole number of that kind");
    p->failed = true;
    return def;
}

static double real(struct params *p, const char *key, double def)
{
    const json_t *v = json_object_get(p->j, key);
    const bool absent = !v || json_is_null(v);

    if (p->failed || (absent && def > 0))
        return def;
    if (json_is_number(v) && json_number_value(v) > 0 && json_number_value(v) < 1e12)
        return json_number_value(v);
    tern_err_set(p->err, TERN_USAGE, "%s: %s %s", p->path, key,
                 absent ? "is missing" : "is no number above 0");
    p->failed = true;
    return def;
}

/* Sizes of Llama 3.2, whose RoPE is stretched further than 3.1's and whose head is its embedding;
 * params.json says neither. */
static bool is_llama_3_2(const struct tern_model_config *c)
{
    return (c->dim == 2048 && c->layers == 16) || (c->dim == 3072 && c->layers == 28);
}

/* What Meta's files leave open, as transformers' script sets it for each version. */
static void fill_version(struct params *p, struct tern_model_config *c)
{
    const bool llama_3 = c->rope_theta == 500000; /* Code Llama has 1,000,000 */

    c->pad_id = -1;
    c->bos_id = llama_3 ? 128000 : 1;
    c->eos_ids[0] = llama_3 ? 128001 : 2;
    c->n_eos = 1;
    c->init_std = 0.02;
    if (!llama_3)
        c->max_position = c->rope_theta > 10000 ? 16384 : c->norm_eps < 5e-6 ? 2048 : 4096;
    else
        c->max_position = 8192;
    if (!json_is_true(json_object_get(p->j, "use_scaled_rope")))
        return;
    c->max_position = 131072;
    c->rope = TERN_MODEL_ROPE_LLAMA3;
    c->rope_factor = is_llama_3_2(c) ? 32 : 8;
    c->rope_low_freq_factor = 1;
    c->rope_high_freq_factor = 4;
    c->rope_original_max_position = 8192;
    c->tied = is_llama_3_2(c);
}

/* Keys of models that are no plain Llama. */
static int refuse_others(const struct params *p)
{
    static const char *const keys[] = {"quantization_args", "lora_args",      "moe",
                                       "moe_args",          "sliding_window", "vision_chunk_size"};

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *v = json_object_get(p->j, keys[i]);
        if (v && !json_is_null(v))
            return tern_err_set(p->err, TERN_USAGE, "%s: has %s: another model than tern computes",
                                p->path, keys[i]);
    }
    return 0;
}

/* c->vocab is 0 where the file leaves it to the tokenizer (-1). */
static int read_params(const char *dir, struct tern_model_config *c, struct tern_err *err)
{
    char *path = tern_fs_join(dir, "params.json");
    json_t *root = tern_json_load(path, PARAMS_MAX, err), *in = json_object_get(root, "model");
    struct params p = {.j = json_is_object(in) ? in : root, .path = path, .err = err};
    int rc = !root ? -1 : refuse_others(&p);

    *c = (struct tern_model_config){0};
    if (rc == 0) {
        c->dim = whole(&p, "dim", -1, 1);
        c->layers = whole(&p, "n_layers", -1, 1);
        c->heads = whole(&p, "n_heads", -1, 1);
        c->kv_heads = whole(&p, "n_kv_heads", c->heads, 1);
        c->vocab = whole(&p, "vocab_size", 0, -1);
        c->vocab = c->vocab < 0 ? 0 : c->vocab;
        c->norm_eps = real(&p, "norm_eps", 0);
        c->rope_theta = real(&p, "rope_theta", 10000);
        const double multiplier = real(&p, "ffn_dim_multiplier", 1);
        const int multiple = whole(&p, "multiple_of", 256, 1);
        rc = p.failed ? -1 : 0;
        if (rc == 0 && c->dim % c->heads != 0)
            rc = tern_err_set(err, TERN_USAGE, "%s: dim %d is no multiple of n_heads %d", path,
                              c->dim, c->heads);
        if (rc == 0) {
            const double ffn = multiplier * (double)(8 * (int64_t)c->dim / 3);
            const int64_t blocks = ((int64_t)(ffn < 1e9 ? ffn : 1e9) + multiple - 1) / multiple;
            c->head_dim = c->dim / c->heads;
            c->ffn = (int)(blocks * multiple < 1 << 30 ? blocks * multiple : 1 << 30);
            fill_version(&p, c);
        }
    }
    json_decref(root);
    free(path);
    return rc;
}

/* ---------------------------------------------------------------- the files */

struct meta {
    const char *dir;
    struct tern_model_config config;
    struct tern_pytorch_file *files; /* [n] */
    bool **used;                     /* [n]: of each file's tensors */
    size_t n;
    struct tern_convert_foreign to;
};

static char *file_name(size_t i)
{
    return tern_strf("consolidated.%02zu.pth", i);
}

static int open_file(struct meta *m, struct tern_err *err)
{
    char *name = file_name(m->n), *path = tern_fs_join(m->dir, name);
    int rc = tern_pytorch_open(path, &m->files[m->n], err);

    if (rc == 0) {
        m->used[m->n] = tern_alloc(m->files[m->n].n + 1, sizeof **m->used, path, err);
        rc = tern_convert_foreign_file(&m->to, name, m->files[m->n].bytes, err);
        if (!m->used[m->n])
            rc = -1;
        m->n++;
    }
    free(path);
    free(name);
    return rc;
}

/* All of them; `one`: only the first. */
static int open_all(struct meta *m, bool one, struct tern_err *err)
{
    bool there = true;

    m->files = tern_alloc(FILES_MAX, sizeof *m->files, m->dir, err);
    m->used = tern_alloc(FILES_MAX, sizeof *m->used, m->dir, err);
    if (!m->files || !m->used)
        return -1;
    while (there && m->n < (one ? 1 : FILES_MAX)) {
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

/* The tensor of file `i`; NULL with `err` when it is not there. */
static const struct tern_pytorch_tensor *find(const struct meta *m, size_t i, const char *name,
                                              struct tern_err *err)
{
    for (size_t k = 0; k < m->files[i].n; k++) {
        if (strcmp(m->files[i].tensors[k].name, name) == 0) {
            m->used[i][k] = true;
            return &m->files[i].tensors[k];
        }
    }
    tern_err_set(err, TERN_USAGE, "%s/%s: has no tensor '%s', which params.json asks for", m->dir,
                 m->to.names[i], name);
    return NULL;
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

/* The rows of file `i`, which begin at row `at` of the whole, in one piece; of wq and wk two for
 * each head. */
static size_t add_rows(const struct meta *m, const struct tern_model_tensor *t,
                       const struct tern_pytorch_tensor *part, size_t i, const uint64_t at[2],
                       struct tern_ckpt_piece *to)
{
    const uint64_t rows = part->shape[0], head = (uint64_t)m->config.head_dim, half = head / 2;
    size_t n = 0;

    if (t->kind != TERN_MODEL_Q && t->kind != TERN_MODEL_K) {
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
    const size_t most = (2 * (size_t)m->config.heads + 2) * m->n;
    struct tern_ckpt_piece *pieces = tern_alloc(most, sizeof *pieces, m->dir, err);
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

static bool has_head(const struct meta *m)
{
    for (size_t k = 0; k < m->files[0].n; k++)
        if (strcmp(m->files[0].tensors[k].name, "output.weight") == 0)
            return true;
    return false;
}

static int add_all(struct meta *m, struct tern_err *err)
{
    struct tern_model_config listed = m->config;
    struct tern_model_tensor t;

    listed.tied = !has_head(m) && m->config.tied; /* one that is there is compared, as elsewhere */
    for (size_t i = 0; i < tern_model_tensors(&listed); i++) {
        tern_model_tensor(&listed, i, &t);
        if (add_tensor(m, &t, err) < 0)
            return -1;
    }
    return check_rest(m, err);
}

/* config.json where one lies there, else params.json; the vocabulary's size from the files where
 * neither says it. */
static int read_config(struct meta *m, struct tern_err *err)
{
    char *path = tern_fs_join(m->dir, "config.json");
    const bool there = tern_fs_exists(path);

    free(path);
    if (there)
        return tern_model_config_load(m->dir, &m->config, err);
    if (read_params(m->dir, &m->config, err) < 0 ||
        (m->config.vocab == 0 && find_vocabulary(m, err) < 0))
        return -1;
    return tern_model_config_check(&m->config, m->dir, err);
}

struct tern_ckpt *tern_convert_open_meta(const char *dir, struct tern_err *err)
{
    struct meta m = {.dir = dir, .to = {.dir = dir}};
    struct tern_ckpt *c = NULL;

    if (open_all(&m, false, err) == 0 && read_config(&m, err) == 0 && add_all(&m, err) == 0)
        c = tern_convert_foreign_open(&m.to, err);
    close_all(&m);
    return c;
}

static bool is_meta(const char *dir)
{
    char *params = tern_fs_join(dir, "params.json"), *config = tern_fs_join(dir, "config.json");
    const bool is = tern_fs_exists(params) && !tern_fs_exists(config);

    free(config);
    free(params);
    return is;
}

int tern_convert_config(const char *path, struct tern_model_config *ret_config,
                        struct tern_err *err)
{
    struct meta m = {.dir = path, .to = {.dir = path}};

    if (!is_meta(path))
        return tern_model_config_load(path, ret_config, err);
    int rc = read_params(path, &m.config, err);
    if (rc == 0 && m.config.vocab == 0) {
        rc = open_all(&m, false, err);
        if (rc == 0)
            rc = find_vocabulary(&m, err);
        close_all(&m);
    }
    if (rc == 0)
        rc = tern_model_config_check(&m.config, path, err);
    if (rc == 0)
        *ret_config = m.config;
    return rc;
}

bool tern_convert_has_config(const char *dir)
{
    char *config = tern_fs_join(dir, "config.json");
    const bool has = tern_fs_exists(config) || is_meta(dir);

    free(config);
    return has;
}

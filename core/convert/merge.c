/* Weights with their adapters put in. */
#include "core/convert/convert.h"
#include "core/convert/export.h"

#include "core/base/fs.h"
#include "core/base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 128 }; /* rows at a time: threads seldom meet, and the widest are 16 MB */

struct tern_convert_merge {
    struct tern_ckpt *base;
    char *name;
    size_t in, out, rank;
    double scale;
    double *a, *b, *magnitude; /* [rank,in], [out,rank], [out] or NULL */
    double *rows;              /* [BLOCK,in] */
};

bool tern_convert_adapters(const struct tern_ckpt *c, struct tern_model_adapters *out)
{
    json_t *lora = json_object_get(tern_ckpt_meta(c), "lora");

    if (!json_is_object(lora))
        return false;
    *out = (struct tern_model_adapters){
        .rank = (int)json_integer_value(json_object_get(lora, "rank")),
        .targets = (unsigned)json_integer_value(json_object_get(lora, "targets")),
        .scale = json_number_value(json_object_get(lora, "scale")),
        .dropout = json_number_value(json_object_get(lora, "dropout")),
        .dora = json_is_true(json_object_get(lora, "dora")),
    };
    return out->rank > 0;
}

struct tern_ckpt *tern_convert_open_base(const char *path, const char **ret_prefix,
                                         struct tern_err *err)
{
    struct tern_model_adapters own;
    char *at = NULL;

    if (tern_ckpt_resolve(path, &at, err) < 0)
        return NULL;
    const bool ours = tern_ckpt_is_ours(at) || tern_str_starts(tern_fs_basename(at), "step-");
    struct tern_ckpt *c =
        ours ? tern_ckpt_open(at, err) : tern_convert_open(at, /* key= */ NULL, err);
    free(at);
    if (c && ours && tern_convert_adapters(c, &own)) {
        tern_err_set(err, TERN_USAGE,
                     "%s: as a base it has adapters of its own. Put them into its weights (tern "
                     "ckpt merge), and give that model",
                     tern_ckpt_path(c));
        tern_ckpt_close(c);
        return NULL;
    }
    if (c)
        *ret_prefix = ours ? "model/" : "";
    return c;
}

/* All of the adapters' array `what` beside tensor `t`, [rows,columns] or with 0 columns [rows]. */
static double *read_array(struct tern_ckpt *c, const struct tern_model_tensor *t, const char *what,
                          size_t rows, size_t columns, struct tern_err *err)
{
    char *name = tern_strf("%sbase_model.model.%.*s.%s", tern_ckpt_manifest(c) ? "lora/" : "",
                           (int)(strlen(t->name) - strlen(".weight")), t->name, what);
    struct tern_ckpt_info info;
    double *to = NULL;

    if (!tern_ckpt_find(c, name, &info) || info.ndim != (columns ? 2 : 1) ||
        info.shape[0] != rows || (columns && info.shape[1] != columns))
        tern_err_set(err, TERN_USAGE, "%s: has no array '%s' of the shape that its adapters imply",
                     tern_ckpt_path(c), name);
    else
        to = tern_alloc(rows * (columns ? columns : 1), sizeof *to, "an adapter", err);
    if (to && tern_ckpt_read(c, name, TERN_CKPT_F64, NULL, NULL, to, err) < 0) {
        free(to);
        to = NULL;
    }
    free(name);
    return to;
}

struct tern_convert_merge *tern_convert_merge_open(struct tern_ckpt *base, const char *prefix,
                                                   struct tern_ckpt *adapters,
                                                   const struct tern_model_adapters *a,
                                                   const struct tern_model_tensor *t,
                                                   struct tern_err *err)
{
    struct tern_convert_merge *m = tern_alloc(1, sizeof *m, "a merge", err);

    if (!m)
        return NULL;
    *m = (struct tern_convert_merge){.base = base,
                                     .name = tern_strf("%s%s", prefix, t->name),
                                     .in = (size_t)t->shape[1],
                                     .out = (size_t)t->shape[0],
                                     .rank = (size_t)a->rank,
                                     .scale = a->scale};
    m->a = read_array(adapters, t, "lora_A.weight", m->rank, m->in, err);
    m->b = m->a ? read_array(adapters, t, "lora_B.weight", m->out, m->rank, err) : NULL;
    if (m->b && a->dora)
        m->magnitude = read_array(adapters, t, "lora_magnitude_vector", m->out, 0, err);
    if (m->b && (m->magnitude || !a->dora))
        m->rows = tern_alloc(BLOCK * m->in, sizeof *m->rows, "a weight's rows", err);
    if (m->rows)
        return m;
    tern_convert_merge_close(m);
    return NULL;
}

void tern_convert_merge_close(struct tern_convert_merge *m)
{
    if (!m)
        return;
    free(m->name);
    free(m->a);
    free(m->b);
    free(m->magnitude);
    free(m->rows);
    free(m);
}

/* Row `o` of the weight, of which w[n] are the columns from `first` on. */
static void merge_row(const struct tern_convert_merge *m, size_t o, size_t first, size_t n,
                      double *w)
{
    double squares = 0;

    for (size_t k = 0; k < m->rank; k++) {
        const double by = m->scale * m->b[o * m->rank + k], *a = m->a + k * m->in + first;
        for (size_t c = 0; c < n; c++)
            w[c] += by * a[c];
    }
    if (!m->magnitude)
        return;
    for (size_t c = 0; c < n; c++)
        squares += w[c] * w[c];
    for (size_t c = 0; c < n && squares > 0; c++)
        w[c] *= m->magnitude[o] / sqrt(squares);
}

/* Rows [from, from + n), n at most BLOCK. */
static int merge_block(struct tern_convert_merge *m, size_t from, size_t n, size_t first,
                       size_t columns, double *to, struct tern_err *err)
{
    const bool whole = m->magnitude != NULL; /* for its norm */
    const size_t read_first = whole ? 0 : first, width = whole ? m->in : columns;
    const uint64_t start[] = {from, read_first}, shape[] = {n, width};

    if (tern_ckpt_read(m->base, m->name, TERN_CKPT_F64, start, shape, m->rows, err) < 0)
        return -1;
#pragma omp parallel for schedule(static)
    for (size_t r = 0; r < n; r++)
        merge_row(m, from + r, read_first, width, m->rows + r * width);
    for (size_t r = 0; r < n; r++)
        memcpy(to + r * columns, m->rows + r * width + (first - read_first), columns * sizeof *to);
    return 0;
}

int tern_convert_merge_read(struct tern_convert_merge *m, const int64_t start[2],
                            const int64_t shape[2], double *to, struct tern_err *err)
{
    const size_t columns = (size_t)shape[1];

    for (size_t r = 0; r < (size_t)shape[0]; r += BLOCK) {
        size_t n = (size_t)shape[0] - r < BLOCK ? (size_t)shape[0] - r : BLOCK;
        if (merge_block(m, (size_t)start[0] + r, n, (size_t)start[1], columns, to + r * columns,
                        err) < 0)
            return -1;
    }
    return 0;
}

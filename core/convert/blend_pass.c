/* A blend's tensors in pieces: read of all models at once, computed in blocks by all threads. */
#include "core/convert/blend_pass.h"

#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/convert/blend_math.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 256 << 10,     /* elements in memory at a time: 1 MiB of floats a model */
    BLOCK = 4096,          /* elements that one thread adds up: sums do not depend on threads */
    BLOCKS = PIECE / BLOCK /* in a piece */
};

struct block {
    double sums[3];
    uint64_t equals; /* ties: of the smallest magnitude that stays; then those before them */
};

/* A model, or the base: its piece, and what is known of the tensor in hand. */
struct model {
    float *narrow; /* [PIECE]: of ties and dare, soon the difference from the base's */
    double *wide;  /* [PIECE]: the same, of linear and slerp; else NULL */
    float weight;
    struct tern_convert_blend_top top;   /* ties */
    uint64_t equals;                     /* ties: seen of the smallest magnitude */
    struct tern_convert_blend_part part; /* dare */
    double norms[2];                     /* dare: of the difference, of what stays */
    float scale;                         /* dare */
    struct block blocks[BLOCKS];
};

struct tern_convert_blend_pass {
    const struct tern_convert_blend *b;
    struct tern_convert_export *x; /* [n] */
    struct model *m;               /* [n]; with a base, m[0] is the base */
    size_t n, first;               /* m[first] is the first model */
    int threads;
    unsigned passes;                                    /* how often a tensor is read */
    char *out;                                          /* a piece as it is written */
    double factors[TERN_CONVERT_BLEND_MODELS], divisor; /* linear and slerp */
    uint64_t done, all;                                 /* elements, of all passes */
    const struct tern_ckpt_info *t;                     /* the tensor in hand */
    struct tern_behind *file;
};

/* Neighbouring elements of a tensor, as a block of it: whole rows, or a part of one. */
struct span {
    uint64_t start[TERN_CKPT_DIMS], shape[TERN_CKPT_DIMS];
    uint64_t first;
    size_t n;
};

static bool is_wide(const struct tern_convert_blend *b)
{
    return b->method == TERN_CONVERT_BLEND_LINEAR || b->method == TERN_CONVERT_BLEND_SLERP;
}

static bool is_dare(const struct tern_convert_blend *b)
{
    return b->method == TERN_CONVERT_BLEND_DARE_LINEAR || b->method == TERN_CONVERT_BLEND_DARE_TIES;
}

/* Does any of a difference go? */
static bool is_sparse(const struct tern_convert_blend_pass *p, size_t k)
{
    return p->first && p->b->models[k - p->first].density < 1;
}

static unsigned count_passes(const struct tern_convert_blend_pass *p)
{
    bool sparse = false;

    for (size_t k = p->first; k < p->n; k++)
        sparse |= is_sparse(p, k);
    if (p->b->method == TERN_CONVERT_BLEND_SLERP)
        return 2;
    if (p->b->method == TERN_CONVERT_BLEND_TIES)
        return sparse ? 3 : 1;
    return is_dare(p->b) && p->b->rescale && sparse ? 2 : 1;
}

static uint64_t elements(const struct tern_ckpt_info *t)
{
    uint64_t n = 1;

    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d]; /* cannot wrap: it was compared with the file */
    return n;
}

/* ------------------------------------------------------------------ pieces */

/* The elements from `at` on. */
static struct span span_at(const struct tern_ckpt_info *t, uint64_t at)
{
    const uint64_t columns = t->ndim == 2 ? t->shape[1] : 1;
    const uint64_t row = at / columns, column = at % columns;
    const uint64_t rows = columns <= PIECE ? PIECE / columns : 1;
    struct span s = {.start = {row, column}, .shape = {t->shape[0] - row, columns}, .first = at};

    if (s.shape[0] > rows)
        s.shape[0] = rows;
    if (columns > PIECE && (s.shape[1] = columns - column) > PIECE)
        s.shape[1] = PIECE;
    s.n = s.shape[0] * s.shape[1];
    tern_assert(s.n > 0 && s.n <= PIECE, "tensor '%s': %zu elements in a piece", t->name, s.n);
    return s;
}

/* How many of `n` elements are infinite or no number, by the bits of their exponents. */
static size_t not_finite(const char *x, enum tern_ckpt_type type, size_t n)
{
    size_t found = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t l;
        uint32_t u;
        uint16_t h;
        switch (type) {
        case TERN_CKPT_F64:
            memcpy(&l, x + 8 * i, 8);
            found += (l >> 52 & 0x7ff) == 0x7ff;
            break;
        case TERN_CKPT_F32:
            memcpy(&u, x + 4 * i, 4);
            found += (u >> 23 & 0xff) == 0xff;
            break;
        case TERN_CKPT_F16:
            memcpy(&h, x + 2 * i, 2);
            found += (h >> 10 & 0x1f) == 0x1f;
            break;
        default:
            memcpy(&h, x + 2 * i, 2);
            found += (h >> 7 & 0xff) == 0xff;
            break;
        }
    }
    return found;
}

static int read_model(struct tern_convert_blend_pass *p, size_t k, const struct span *s,
                      struct tern_err *err)
{
    struct tern_convert_export *x = &p->x[k];
    struct model *m = &p->m[k];
    char *name = tern_strf("%s%s", x->prefix, p->t->name);
    struct tern_ckpt_info own;
    int rc;

    const bool there = tern_ckpt_find(x->from, name, &own);
    tern_assert(there, "tensor '%s' was listed", name);
    if (m->wide && own.type == TERN_CKPT_F64) {
        rc = tern_ckpt_read(x->from, name, TERN_CKPT_F64, s->start, s->shape, m->wide, err);
    } else {
        rc = tern_ckpt_read(x->from, name, TERN_CKPT_F32, s->start, s->shape, m->narrow, err);
        for (size_t i = 0; rc == 0 && m->wide && i < s->n; i++)
            m->wide[i] = (double)m->narrow[i];
    }
    free(name);
    if (rc == 0 && (m->wide ? not_finite((char *)m->wide, TERN_CKPT_F64, s->n)
                            : not_finite((char *)m->narrow, TERN_CKPT_F32, s->n)) > 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: tensor '%s' holds values that are infinite or no numbers",
                            tern_ckpt_path(x->from), p->t->name);
    return rc;
}

/* Each model has a handle of its own. */
static int read_span(struct tern_convert_blend_pass *p, const struct span *s, struct tern_err *err)
{
    struct tern_err *each = tern_alloc(p->n, sizeof *each, "errors", err);
    int rc = each ? 0 : -1;

    if (!each)
        return -1;
#pragma omp parallel for schedule(dynamic, 1) num_threads(p->threads)
    for (size_t k = 0; k < p->n; k++)
        read_model(p, k, s, &each[k]);
    for (size_t k = 0; rc == 0 && k < p->n; k++)
        if (each[k].code)
            rc = tern_err_set(err, each[k].code, "%s", each[k].text);
    free(each);
    return rc;
}

typedef int pass_of(struct tern_convert_blend_pass *p, const struct span *s, struct tern_err *err);

/* The tensor once, piece by piece. */
static int each_span(struct tern_convert_blend_pass *p, pass_of *pass, struct tern_err *err)
{
    const uint64_t n = elements(p->t);

    for (uint64_t at = 0; at < n;) {
        const struct span s = span_at(p->t, at);
        if (p->b->out.stop && *p->b->out.stop)
            return tern_err_set(err, TERN_FAILED, "interrupted; nothing was left behind");
        if (read_span(p, &s, err) < 0 || pass(p, &s, err) < 0)
            return -1;
        at += s.n;
        p->done += s.n;
        if (p->b->progress)
            p->b->progress(p->b->ctx, p->done, p->all);
    }
    return 0;
}

static size_t blocks_of(const struct span *s)
{
    return (s->n + BLOCK - 1) / BLOCK;
}

static size_t block_length(const struct span *s, size_t block)
{
    const size_t left = s->n - block * BLOCK;

    return left < BLOCK ? left : BLOCK;
}

/* Block `j` of the model becomes its difference from the base. */
static float *difference(const struct tern_convert_blend_pass *p, size_t k, size_t j, size_t n)
{
    const float *base = p->m[0].narrow + j * BLOCK;
    float *x = p->m[k].narrow + j * BLOCK;

    for (size_t i = 0; i < n; i++)
        x[i] -= base[i];
    return x;
}

/* ------------------------------------------------------------------ what must be known first */

/* Slerp: lengths and product, in the first model's `norms` and the second's. */
static int pass_arc(struct tern_convert_blend_pass *p, const struct span *s, struct tern_err *err)
{
    struct model *m = p->m;
    const size_t blocks = blocks_of(s);

    (void)err;
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (size_t j = 0; j < blocks; j++) {
        const double *a = m[0].wide + j * BLOCK, *b = m[1].wide + j * BLOCK;
        double aa = 0, bb = 0, ab = 0;
        for (size_t i = 0, n = block_length(s, j); i < n; i++) {
            aa += a[i] * a[i];
            bb += b[i] * b[i];
            ab += a[i] * b[i];
        }
        m[0].blocks[j] = (struct block){.sums = {aa, bb, ab}};
    }
    for (size_t j = 0; j < blocks; j++) {
        m[0].norms[0] += m[0].blocks[j].sums[0];
        m[1].norms[0] += m[0].blocks[j].sums[1];
        m[1].norms[1] += m[0].blocks[j].sums[2];
    }
    return 0;
}

static int prepare_slerp(struct tern_convert_blend_pass *p, struct tern_err *err)
{
    struct model *m = p->m;

    for (int k = 0; k < 2; k++)
        m[k].norms[0] = m[k].norms[1] = 0;
    if (each_span(p, pass_arc, err) < 0)
        return -1;
    tern_convert_blend_arc(m[0].norms[0], m[1].norms[0], m[1].norms[1], p->b->t, &p->factors[0],
                           &p->factors[1]);
    return 0;
}

/* Ties: the greatest magnitudes, one of two passes. */
static int pass_top(struct tern_convert_blend_pass *p, const struct span *s, struct tern_err *err)
{
    (void)err;
#pragma omp parallel for schedule(dynamic, 1) num_threads(p->threads)
    for (size_t k = p->first; k < p->n; k++)
        for (size_t j = 0; is_sparse(p, k) && j < blocks_of(s); j++) {
            const size_t n = block_length(s, j);
            tern_convert_blend_top_add(&p->m[k].top, difference(p, k, j, n), n);
        }
    return 0;
}

static int prepare_ties(struct tern_convert_blend_pass *p, struct tern_err *err)
{
    const uint64_t n = elements(p->t);

    for (size_t k = p->first; k < p->n; k++) {
        p->m[k].equals = 0;
        tern_convert_blend_top_begin(
            &p->m[k].top, tern_convert_blend_top_of(n, p->b->models[k - p->first].density));
    }
    for (int pass = 0; pass < 2 && p->passes > 1; pass++) {
        if (each_span(p, pass_top, err) < 0)
            return -1;
        for (size_t k = p->first; k < p->n; k++)
            if (is_sparse(p, k))
                tern_convert_blend_top_next(&p->m[k].top);
    }
    return 0;
}

/* Dare: L1 norms of the differences and of what stays of them. */
static int pass_norms(struct tern_convert_blend_pass *p, const struct span *s, struct tern_err *err)
{
    const size_t blocks = blocks_of(s);

    (void)err;
#pragma omp parallel for collapse(2) schedule(static) num_threads(p->threads)
    for (size_t k = p->first; k < p->n; k++)
        for (size_t j = 0; j < blocks; j++) {
            const size_t n = block_length(s, j);
            struct block *b = &p->m[k].blocks[j];
            *b = (struct block){.equals = 0};
            if (is_sparse(p, k))
                tern_convert_blend_part_norms(&p->m[k].part, s->first + j * BLOCK,
                                              difference(p, k, j, n), n, &b->sums[0], &b->sums[1]);
        }
    for (size_t k = p->first; k < p->n; k++)
        for (size_t j = 0; j < blocks; j++)
            for (int d = 0; d < 2; d++)
                p->m[k].norms[d] += p->m[k].blocks[j].sums[d];
    return 0;
}

static int prepare_dare(struct tern_convert_blend_pass *p, struct tern_err *err)
{
    for (size_t k = p->first; k < p->n; k++) {
        struct model *m = &p->m[k];
        const size_t i = k - p->first;
        m->part = (struct tern_convert_blend_part){
            p->b->seed, tern_convert_blend_stream(p->t->name, i), p->b->models[i].density};
        m->norms[0] = m->norms[1] = 0;
        m->scale = 1;
    }
    if (p->passes == 1)
        return 0;
    if (each_span(p, pass_norms, err) < 0)
        return -1;
    for (size_t k = p->first; k < p->n; k++)
        p->m[k].scale = tern_convert_blend_rescale(p->m[k].norms[0], p->m[k].norms[1]);
    return 0;
}

/* ------------------------------------------------------------------ the blend */

/* Block `j` of the model becomes what stays of its difference; of ties that is only counted. */
static void keep_block(struct tern_convert_blend_pass *p, const struct span *s, size_t k, size_t j)
{
    const size_t n = block_length(s, j);
    struct model *m = &p->m[k];
    float *x = difference(p, k, j, n);

    if (!is_sparse(p, k))
        return;
    if (is_dare(p->b))
        tern_convert_blend_part_keep(&m->part, s->first + j * BLOCK, m->scale, x, n);
    else
        m->blocks[j].equals = tern_convert_blend_top_equals(&m->top, x, n);
}

static void keep(struct tern_convert_blend_pass *p, const struct span *s)
{
    const size_t blocks = blocks_of(s);

#pragma omp parallel for collapse(2) schedule(static) num_threads(p->threads)
    for (size_t k = p->first; k < p->n; k++)
        for (size_t j = 0; j < blocks; j++)
            keep_block(p, s, k, j);
    for (size_t k = p->first; k < p->n && !is_dare(p->b); k++) {
        struct model *m = &p->m[k];
        for (size_t j = 0; is_sparse(p, k) && j < blocks; j++) {
            const uint64_t here = m->blocks[j].equals;
            m->blocks[j].equals = m->equals;
            m->equals += here;
        }
    }
}

/* Block `j` of the result, in double. */
static void mix_block(struct tern_convert_blend_pass *p, size_t j, size_t n, double to[BLOCK])
{
    const struct tern_convert_blend *b = p->b;
    const float *x[TERN_CONVERT_BLEND_MODELS];
    const double *wide[TERN_CONVERT_BLEND_MODELS];
    float weights[TERN_CONVERT_BLEND_MODELS];

    for (size_t i = 0; i < b->n; i++) {
        struct model *m = &p->m[p->first + i];
        float *one = m->narrow + j * BLOCK;
        if (b->method == TERN_CONVERT_BLEND_TIES && is_sparse(p, p->first + i))
            tern_convert_blend_top_keep(&m->top, m->blocks[j].equals, one, n);
        x[i] = one;
        wide[i] = m->wide ? m->wide + j * BLOCK : NULL;
        weights[i] = m->weight;
    }
    if (is_wide(b)) {
        tern_convert_blend_mean(wide, p->factors, b->n, p->divisor, n, to);
        return;
    }
    const struct tern_convert_blend_sum sum = {.weights = weights,
                                               .n_models = b->n,
                                               .signs = b->method != TERN_CONVERT_BLEND_DARE_LINEAR,
                                               .normalize = b->normalize,
                                               .lambda = b->lambda};
    tern_convert_blend_add(&sum, p->m[0].narrow + j * BLOCK, x, n, to);
}

static int pass_write(struct tern_convert_blend_pass *p, const struct span *s, struct tern_err *err)
{
    const size_t blocks = blocks_of(s), size = tern_ckpt_type_bytes(p->t->type);
    size_t bad = 0;

    if (p->first)
        keep(p, s);
#pragma omp parallel for schedule(static) num_threads(p->threads) reduction(+ : bad)
    for (size_t j = 0; j < blocks; j++) {
        double mixed[BLOCK];
        char *to = p->out + j * BLOCK * size;
        mix_block(p, j, block_length(s, j), mixed);
        tern_ckpt_convert(to, p->t->type, mixed, TERN_CKPT_F64, block_length(s, j));
        bad += not_finite(to, p->t->type, block_length(s, j));
    }
    if (bad)
        return tern_err_set(err, TERN_USAGE,
                            "tensor '%s': %zu elements in a piece of the blend are beyond %s. "
                            "Give smaller weights, or another --dtype",
                            p->t->name, bad, tern_ckpt_type_name(p->t->type));
    return tern_behind_write(p->file, p->out, s->n * size, err);
}

int tern_convert_blend_pass_write(struct tern_convert_blend_pass *p, size_t i,
                                  struct tern_behind *out, struct tern_err *err)
{
    int rc = 0;

    p->t = &p->x[0].tensors[i];
    p->file = out;
    if (!out) {
        p->done += elements(p->t) * p->passes;
        if (p->b->progress)
            p->b->progress(p->b->ctx, p->done, p->all);
        return 0;
    }
    if (p->b->method == TERN_CONVERT_BLEND_SLERP)
        rc = prepare_slerp(p, err);
    else if (p->b->method == TERN_CONVERT_BLEND_TIES)
        rc = prepare_ties(p, err);
    else if (is_dare(p->b))
        rc = prepare_dare(p, err);
    return rc < 0 ? -1 : each_span(p, pass_write, err);
}

/* ------------------------------------------------------------------ memory */

static int allocate(struct tern_convert_blend_pass *p, struct tern_err *err)
{
    p->out = tern_alloc(PIECE, sizeof(double), "weights", err);
    p->m = tern_alloc(p->n, sizeof *p->m, "a blend", err);
    for (size_t k = 0; p->m && k < p->n; k++) {
        struct model *m = &p->m[k];
        m->narrow = tern_alloc(PIECE, sizeof *m->narrow, "weights", err);
        m->wide = is_wide(p->b) ? tern_alloc(PIECE, sizeof *m->wide, "weights", err) : NULL;
        if (!m->narrow || (is_wide(p->b) && !m->wide))
            return -1;
    }
    return p->out && p->m ? 0 : -1;
}

struct tern_convert_blend_pass *tern_convert_blend_pass_new(const struct tern_convert_blend *b,
                                                            struct tern_convert_export *x, size_t n,
                                                            struct tern_err *err)
{
    struct tern_convert_blend_pass *p = tern_alloc(1, sizeof *p, "a blend", err);

    if (!p)
        return NULL;
    *p = (struct tern_convert_blend_pass){.b = b, .x = x, .n = n, .first = n - b->n, .divisor = 1};
    p->threads = b->threads ? b->threads : omp_get_max_threads();
    p->passes = count_passes(p);
    if (allocate(p, err) < 0) {
        tern_convert_blend_pass_free(p);
        return NULL;
    }
    double sum = 0;
    for (size_t i = 0; i < b->n; i++) {
        p->m[p->first + i].weight = (float)b->models[i].weight;
        sum += p->factors[i] = b->models[i].weight;
    }
    if (b->method == TERN_CONVERT_BLEND_LINEAR && b->normalize)
        p->divisor = sum;
    for (size_t i = 0; i < x[0].n; i++)
        p->all += elements(&x[0].tensors[i]) * p->passes;
    return p;
}

void tern_convert_blend_pass_free(struct tern_convert_blend_pass *p)
{
    if (!p)
        return;
    for (size_t k = 0; p->m && k < p->n; k++) {
        free(p->m[k].narrow);
        free(p->m[k].wide);
    }
    free(p->m);
    free(p->out);
    free(p);
}

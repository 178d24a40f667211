/* Several models of one shape become one: `tern ckpt blend`.
 *
 * Methods and parameters are mergekit's (0.1.5; https://github.com/arcee-ai/mergekit), by these
 * papers:
 *
 *     linear       the mean of the weights (Wortsman et al. 2022, arXiv 2203.05482)
 *     slerp        a point of the arc between two weights, seen as vectors (Shoemake 1985)
 *     ties         of each difference from a base the greatest values; of these, at each element,
 *                  those of the sign that weighs more (Yadav et al. 2023, arXiv 2306.01708)
 *     dare_linear  of each difference from a base a random part, scaled up; their sum (Yu et al.
 *                  2023, arXiv 2311.03099)
 *     dare_ties    the same, with the choice of signs that ties makes
 */
#ifndef TERN_CONVERT_BLEND_H
#define TERN_CONVERT_BLEND_H

#include "core/convert/convert.h"

enum tern_convert_blend_method {
    TERN_CONVERT_BLEND_LINEAR,
    TERN_CONVERT_BLEND_SLERP,
    TERN_CONVERT_BLEND_TIES,
    TERN_CONVERT_BLEND_DARE_LINEAR,
    TERN_CONVERT_BLEND_DARE_TIES,
};

/* Memory: 2 MiB a model, or 3 MiB with linear and slerp, and 4 MiB that reading takes of each. */
enum { TERN_CONVERT_BLEND_MODELS = 32 };

struct tern_convert_blend_model {
    const char *path; /* a checkpoint of tern, or what tern_convert_open takes */
    double weight;    /* all but slerp */
    double density;   /* ties, dare: the part of its difference that stays, above 0 and up to 1 */
};

struct tern_convert_blend {
    enum tern_convert_blend_method method;
    const struct tern_convert_blend_model *models; /* [n] */
    size_t n;                                      /* 1 or more; slerp: 2 */
    const char *base; /* ties, dare: the models are differences from it; else NULL */
    double t;         /* slerp: 0 is the first model, 1 the second */
    double lambda;    /* ties, dare: the summed differences times this */
    bool normalize;   /* not slerp: divide by the sum of the weights; ties, dare_ties: of those that
                         count at the element */
    bool rescale;     /* dare: what is kept of a difference gets the L1 norm of all of it (the paper
                         divides it by the density) */
    uint64_t seed;    /* dare: which elements stay, by tensor, model and element */
    /* As of an export; of its members merge, base, key and from_nxd are not used. */
    struct tern_convert_hf out;
    int threads; /* 0: as many as OpenMP has; the bytes are the same with any number */
    /* After each piece: passes over elements, done and in all.  NULL: no calls. */
    void (*progress)(void *ctx, uint64_t done, uint64_t all);
    void *ctx;
};

/* Write the blend to the new folder `out_dir`, as tern_convert_to_hf does: it appears whole by a
 * rename, or not at all.  Config, tokenizer and generation config are those of the base or, without
 * one, of the first model, and so is the element type by default.
 *
 * Differences, their parts and their signs are computed in float, as mergekit does with dtype
 * float32.  Sums and means are in double; a result is rounded once.  Of equal magnitudes ties keeps
 * those with the lower places in the tensor.  A tensor is read once, by slerp and dare twice, by
 * ties three times, in pieces.
 *
 * TERN_USAGE where models differ in shape, vocabulary or what their config says of the computation.
 * Also where an array is no kind of float, or a result is not finite.  The vocabularies' pieces are
 * compared where `out.files_from` is NULL and both models have a tokenizer that tern reads. */
int tern_convert_blend(const struct tern_convert_blend *b, const char *out_dir,
                       struct tern_convert_out *ret_out, struct tern_err *err);

#endif

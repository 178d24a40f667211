/* The model from the inside: where everything lies, and the passes over it.
 *
 * Shapes: B rows of T positions, N = B*T, n of them here (N, or N / tensor ranks with `sequence`);
 * C dim, V vocab; H query heads, K key and value heads of D, F ffn: those of this tensor rank;
 * W = (H+2K)*D, the width of q, k and v side by side. */
#ifndef TERN_LLAMA_LAYERS_H
#define TERN_LLAMA_LAYERS_H

#include "core/llama/llama.h"

/* Where a layer's matrices begin in the blocks of parameters and gradients.  q, k, v follow each
 * other, and so do gate and up: each group is one matrix here, and one product. */
struct tern_llama_layer_at {
    size_t qkv;        /* [W,C] */
    size_t o;          /* [C,H*D] */
    size_t gate_up;    /* [2F,C] */
    size_t down;       /* [C,F] */
    size_t input_norm; /* [C] */
    size_t post_norm;  /* [C] */
};

enum { TERN_LLAMA_TARGETS = TERN_MODEL_DOWN - TERN_MODEL_Q + 1 };

/* Where a layer's adapters begin in their blocks; SIZE_MAX where there is none. */
struct tern_llama_adapter_at {
    size_t a[TERN_LLAMA_TARGETS], b[TERN_LLAMA_TARGETS];
    size_t magnitude[TERN_LLAMA_TARGETS], norm[TERN_LLAMA_TARGETS]; /* with DoRA; in m->a.norms */
};

/* What a layer's backward pass needs of its forward pass.  The normed inputs and the product of
 * gate and up are cheaper to compute again than to keep.  `void` is tern_real, or bf16 with
 * m->bf16: see keep.c. */
struct tern_llama_layer_acts {
    void *x;             /* [n,C] the layer's input */
    tern_real *rstd;     /* [n] of its norm */
    void *qkv;           /* [N,W] after RoPE */
    tern_real *stats;    /* [B,H,T,2] of attention */
    void *heads;         /* [N,H*D] attention's output */
    void *mid;           /* [n,C] after attention is added */
    tern_real *mid_rstd; /* [n] */
    void *gate_up;       /* [N,2F]; backward turns it into its gradient */
};

/* A micro-batch in a chunk. */
struct tern_llama_slot {
    struct tern_llama_layer_acts *layers; /* [the chunk's]; what is not kept is everybody's */
    void *out;                            /* [n,C] the last layer's output */
    tern_real *out_rstd;                  /* [n] */
};

enum { TERN_LLAMA_NORM_ROWS = 64 }; /* of a weight at a time: in a cache */

struct tern_llama_chunk {
    const struct tern_model_chunk *is;
    struct tern_llama_slot *slots;
    int n_slots;
};

/* Scratch, shared by all. */
struct tern_llama_scratch {
    tern_real *normed; /* [N,C] */
    tern_real *wide;   /* [N,max(F,H*D)] */
    tern_real *logits; /* [head_rows,V] */
    double *losses;    /* [head_rows] */
    double *sums;      /* [3*head_rows]: largest logit, sum of exponentials, target's logit */
    tern_real *attention;
    tern_real *low;     /* [N,2*rank] with adapters */
    tern_real *dropped; /* [N,max(C,F,H*D)] with adapters that drop */
    /* Only with bf16: what is kept, while something is computed with it. */
    tern_real *stream; /* [n,C] x, mid or out */
    tern_real *broad;  /* [N,max(W,2F)] qkv, heads or gate_up */
    tern_real *norm;   /* [C] a norm's weights */
    /* Only with DoRA. */
    tern_real *norms;   /* of the rows of W + scale B A, for each magnitude */
    tern_real *rows;    /* [TERN_LLAMA_NORM_ROWS,max(C,F,H*D)] */
    double *squares;    /* [max(C,F,H*D)] */
    tern_real *product; /* [N,max(C,F,H*D)] */
    /* Only with training. */
    tern_real *dx;      /* [n,C] gradient of the residual stream */
    tern_real *dnormed; /* [N,C] */
    tern_real *dqkv;    /* [N,W] */
};

struct tern_llama {
    struct tern_model_config c;
    struct tern_model_shard *shard;
    struct tern_llama_peers peers;
    int tensor, tensor_rank;
    int max_batch, seq_len;
    int threads; /* that its scratch is for; 0: this process's */
    bool training, sequence, bf16;
    bool lends;   /* gradients lend their memory to activations until they are written; */
    bool written; /* which they are since tern_llama_grads_zero */
    enum tern_llama_recompute recompute;
    int head_rows; /* positions whose logits are held at a time */
    uint64_t params;
    tern_real *w, *g; /* [params] each; g is NULL when adapters alone are trained */
    uint16_t *w_bf16; /* [params] in place of w, with bf16 */
    struct tern_llama_layer_at *layers; /* [the shard's] */
    size_t embed, norm, head;           /* [V,C], [C], [V,C]; where they are */
    struct tern_model_adapters lora;    /* rank 0: none */
    struct tern_model_shard *lora_shard;
    tern_real *lora_w, *lora_g;
    struct tern_llama_adapter_at *lora_at; /* [the shard's layers] */
    int *lora_layer;                       /* [the same] their numbers in the whole model */
    size_t n_magnitudes;                   /* here */
    struct tern_llama_chunk *chunks;
    struct tern_llama_slot *slots;            /* of all chunks */
    struct tern_llama_layer_acts *layer_acts; /* of all slots */
    struct tern_llama_scratch a;
    tern_real *cos, *sin; /* [seq_len, D/2], in the activations' block */
    void *acts_block;
    void *owned[4]; /* of w, lora_w, g or lora_g and acts_block those that are not the caller's */
    int n_owned;
};

/* y[n,out] = x[n,in] w[out,in]^T + beta * y */
void tern_llama_linear(tern_real *y, const tern_real *x, const tern_real *w, int n, int in, int out,
                       tern_real beta);
/* The same with the weight that begins at `at` among the parameters. */
void tern_llama_product(const struct tern_llama *m, size_t at, tern_real *y, const tern_real *x,
                        int n, int in, int out, tern_real beta);
/* Of the same with beta 0: its gradient += dy^T x, where one is wanted; and dx = dy w. */
void tern_llama_product_grad(const struct tern_llama *m, size_t at, const tern_real *dy,
                             const tern_real *x, int n, int in, int out);
void tern_llama_product_dx(const struct tern_llama *m, size_t at, tern_real *dx,
                           const tern_real *dy, int n, int in, int out);
/* The weights w[C] of a norm, until the next call. */
const tern_real *tern_llama_norm_weights(const struct tern_llama *m, size_t at);

/* ---- keep.c: what is kept, and in bf16 is computed with elsewhere ---- */

/* Where to compute what is to be kept in `kept`: there, or, with bf16, in `scratch`. */
tern_real *tern_llama_work(const struct tern_llama *m, void *kept, tern_real *scratch);
/* work[n] is ready: keep it.  With bf16 both are rounded. */
void tern_llama_keep(const struct tern_llama *m, void *kept, tern_real *work, size_t n);
/* kept[n], to compute with: itself, or, with bf16, widened in `scratch`. */
tern_real *tern_llama_recall(const struct tern_llama *m, void *kept, tern_real *scratch, size_t n);
/* With bf16 x[n] is rounded, though it is not kept. */
void tern_llama_round(const struct tern_llama *m, tern_real *x, size_t n);
/* Bytes of an element of what is kept, and of a parameter. */
size_t tern_llama_element(const struct tern_llama *m);

/* ---- memory.c ---- */

/* Sizes from the options; m->shard is made. */
int tern_llama_size(struct tern_llama *m, const struct tern_llama_options *o, struct tern_err *err);
/* Lay out the activations from `base` on; NULL: only count.  Returns the bytes they take. */
size_t tern_llama_carve(struct tern_llama *m, char *base);
/* How many things tern_llama_carve fills in. */
void tern_llama_carve_counts(const struct tern_llama *m, size_t *slots, size_t *layer_acts);

/* ---- peers.c: what tensor ranks do together; with one, nothing ---- */

/* This rank's tokens of `tokens`. */
int tern_llama_own(const struct tern_llama *m, int tokens);
/* Where they begin in an array of all tokens, C wide. */
tern_real *tern_llama_own_rows(const struct tern_llama *m, tern_real *all, int tokens);
/* The own rows of `all` are there: with `sequence`, get the others'. */
int tern_llama_gather(const struct tern_llama *m, tern_real *all, int tokens, struct tern_err *err);
/* The same from another array; returns it in *out (x itself where nothing is to be gathered). */
int tern_llama_gather_from(const struct tern_llama *m, tern_real *x, tern_real *all, int tokens,
                           tern_real **out, struct tern_err *err);
/* `all` holds this rank's addends: their sums over the ranks, own rows alone with `sequence`, are
 * in tern_llama_own_rows(all). */
int tern_llama_sum(const struct tern_llama *m, tern_real *all, int tokens, struct tern_err *err);

/* ---- adapters.c ---- */

/* Is anything beside this weight's input trained, the weight itself or an adapter?  Its input is
 * then wanted again in the backward pass. */
bool tern_llama_learns(const struct tern_llama *m, int layer, enum tern_model_kind kind);
/* Has this weight an adapter with magnitudes?  Its product is then to be made alone: they scale
 * it. */
bool tern_llama_scales(const struct tern_llama *m, int layer, enum tern_model_kind kind);
/* The norms that a layer's magnitudes are measured by, before its passes.  Collective over the
 * tensor ranks. */
int tern_llama_adapter_norms(struct tern_llama *m, int layer, struct tern_err *err);
/* A weight's product has been made: what its adapter makes of it.  y[N,out] has rows ldy apart. */
void tern_llama_adapt(struct tern_llama *m, int layer, enum tern_model_kind kind,
                      const struct tern_llama_batch *b, tern_real *y, int ldy, const tern_real *x);
/* Of the gradient dy of the same: the magnitudes' own; and the gradient that product and adapter
 * have then, which is to be used from here on: dy itself, changed (when `own`) or not, or another
 * array of this row distance, which lasts until the next call. */
tern_real *tern_llama_adapt_scale(struct tern_llama *m, int layer, enum tern_model_kind kind,
                                  const struct tern_llama_batch *b, tern_real *dy, int ldy,
                                  const tern_real *x, bool own);
/* For that: the adapter's gradients; and then, before the next one's, dx[N,in] += what goes through
 * it. */
void tern_llama_adapt_grads(struct tern_llama *m, int layer, enum tern_model_kind kind,
                            const struct tern_llama_batch *b, const tern_real *dy, int ldy,
                            const tern_real *x);
void tern_llama_adapt_dx(struct tern_llama *m, int layer, enum tern_model_kind kind,
                         const struct tern_llama_batch *b, tern_real *dx);
/* Where they begin: fills m->lora_at. */
void tern_llama_adapters_locate(struct tern_llama *m);

/* ---- the passes ---- */

/* The gradient of what begins at `at`, or NULL: not wanted. */
static inline tern_real *tern_llama_grad(const struct tern_llama *m, size_t at)
{
    return m->g ? m->g + at : NULL;
}

int tern_llama_forward(struct tern_llama *m, int chunk, int slot, const struct tern_llama_batch *b,
                       struct tern_err *err);
/* From `out` to the losses; with grad_scale not 0 also the head's gradients and m->a.dx. */
int tern_llama_head(struct tern_llama *m, int chunk, int slot, const struct tern_llama_batch *b,
                    double grad_scale, struct tern_llama_loss *loss, struct tern_err *err);
/* From dx[n,C], which becomes the gradient of the chunk's input, to the gradients of layers and
 * embedding. */
int tern_llama_backward(struct tern_llama *m, int chunk, int slot, const struct tern_llama_batch *b,
                        tern_real *dx, const struct tern_llama_ready *ready, struct tern_err *err);
/* One layer's forward pass up to gate_up; in backward.c it is done again.  With bf16 m->a.stream
 * holds `mid` then, and m->a.broad gate_up.  Attention alone: its output, kept as a->heads. */
int tern_llama_layer_inner(struct tern_llama *m, int layer, struct tern_llama_layer_acts *a,
                           const struct tern_llama_batch *b, struct tern_err *err);
tern_real *tern_llama_attend(struct tern_llama *m, struct tern_llama_layer_acts *a,
                             const tern_real *qkv, const struct tern_llama_batch *b);
struct tern_tensor_heads tern_llama_heads(const struct tern_llama *m,
                                          const struct tern_llama_batch *b);

#endif

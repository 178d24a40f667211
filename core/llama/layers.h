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

/* The arrays of a layer's forward pass that its backward pass needs.  The normed inputs and the
 * product of gate and up are cheaper to compute again than to store.  `void` is tern_real, or bf16
 * with m->bf16: see keep.c. */
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
    struct tern_llama_layer_acts *layers; /* [the chunk's]; arrays that are not stored are shared */
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
    /* Only with bf16: stored arrays, widened while they are computed with. */
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
    int threads; /* of its scratch; 0: this process's */
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
    void *owned[4]; /* w, lora_w, g or lora_g, acts_block: those that are not the caller's */
    int n_owned;
};

/* y[n,out] = x[n,in] w[out,in]^T */
void tern_llama_linear(tern_real *y, const tern_real *x, const tern_real *w, int n, int in,
                       int out);
/* The same with the weight that begins at `at` among the parameters; and y += it. */
void tern_llama_product(const struct tern_llama *m, size_t at, tern_real *y, const tern_real *x,
                        int n, int in, int out);
void tern_llama_product_add(const struct tern_llama *m, size_t at, tern_real *y, const tern_real *x,
                            int n, int in, int out);
/* Of the first: its gradient += dy^T x, where one is wanted; and dx = dy w. */
void tern_llama_product_grad(const struct tern_llama *m, size_t at, const tern_real *dy,
                             const tern_real *x, int n, int in, int out);
void tern_llama_product_dx(const struct tern_llama *m, size_t at, tern_real *dx,
                           const tern_real *dy, int n, int in, int out);
/* The weights w[C] of a norm, until the next call. */
const tern_real *tern_llama_norm_weights(const struct tern_llama *m, size_t at);

/* ---- keep.c: arrays that are stored, and with bf16 computed with elsewhere ---- */

/* Where to compute an array that is stored in `kept`: there, or, with bf16, in `scratch`. */
tern_real *tern_llama_work(const struct tern_llama *m, void *kept, tern_real *scratch);
/* Store work[n].  With bf16 both are rounded. */
void tern_llama_keep(const struct tern_llama *m, void *kept, tern_real *work, size_t n);
/* kept[n], to compute with: itself, or, with bf16, widened in `scratch`. */
tern_real *tern_llama_recall(const struct tern_llama *m, void *kept, tern_real *scratch, size_t n);
/* With bf16 round x[n], which is not stored. */
void tern_llama_round(const struct tern_llama *m, tern_real *x, size_t n);
/* The same of an array that products with parameters alone read: they may round it themselves, and
 * adapters may not. */
void tern_llama_round_input(const struct tern_llama *m, tern_real *x, size_t n);
/* Bytes of an element of a stored array, and of a parameter. */
size_t tern_llama_element(const struct tern_llama *m);

/* ---- llama.c ---- */

/* cos and sin [positions,D/2] of the angles of RoPE, stretched as the config says. */
void tern_llama_fill_rope(const struct tern_model_config *c, int positions, tern_real *to_cos,
                          tern_real *to_sin);
/* Memory of any contents, aligned for vectors, on huge pages where it is large; free() frees it.
 * NULL with a message about the model's `what`. */
void *tern_llama_block(size_t bytes, const char *what, struct tern_err *err);

/* ---- memory.c ---- */

/* Sizes from the options; m->shard is made. */
int tern_llama_size(struct tern_llama *m, const struct tern_llama_options *o, struct tern_err *err);
/* Lay out the activations from `base` on; NULL: only count.  Returns the bytes they take. */
size_t tern_llama_carve(struct tern_llama *m, char *base);
/* The numbers of slots and of layers' activations that tern_llama_carve fills in. */
void tern_llama_carve_counts(const struct tern_llama *m, size_t *ret_slots, size_t *ret_layer_acts);

/* ---- peers.c: operations of the tensor ranks; with one rank, nothing ---- */

/* This rank's tokens of `tokens`. */
int tern_llama_own(const struct tern_llama *m, int tokens);
/* Where they begin in an array of all tokens, C wide. */
tern_real *tern_llama_own_rows(const struct tern_llama *m, tern_real *all, int tokens);
/* With `sequence`, gather the other ranks' rows of `all`, where this rank's own are. */
int tern_llama_gather(const struct tern_llama *m, tern_real *all, int tokens, struct tern_err *err);
/* The same from another array; the result in *ret_x (x itself where nothing is gathered). */
int tern_llama_gather_from(const struct tern_llama *m, tern_real *x, tern_real *all, int tokens,
                           tern_real **ret_x, struct tern_err *err);
/* `all` holds this rank's addends: their sums over the ranks, own rows alone with `sequence`, are
 * in tern_llama_own_rows(all). */
int tern_llama_sum(const struct tern_llama *m, tern_real *all, int tokens, struct tern_err *err);

/* ---- adapters.c ---- */

/* A weight of a layer in a pass over a batch. */
struct tern_llama_use {
    int layer;
    enum tern_model_kind kind;
    const struct tern_llama_batch *b;
};

/* Is the weight or an adapter beside it trained?  Its input is then needed again in the backward
 * pass. */
bool tern_llama_learns(const struct tern_llama *m, int layer, enum tern_model_kind kind);
/* Has this weight an adapter with magnitudes?  They scale its product, which is then made alone. */
bool tern_llama_scales(const struct tern_llama *m, int layer, enum tern_model_kind kind);
/* The norms of the rows that a layer's magnitudes scale, before its passes.  Collective over the
 * tensor ranks. */
int tern_llama_adapter_norms(struct tern_llama *m, int layer, struct tern_err *err);
/* Add the adapter to its weight's product y[N,out], in rows ldy apart. */
void tern_llama_adapt(struct tern_llama *m, const struct tern_llama_use *u, tern_real *y, int ldy,
                      const tern_real *x);
/* From the gradient dy of that: add the magnitudes' gradients, and return the gradient of product
 * and adapter, which the caller uses from here on.  It is dy itself, changed (when `own`) or not,
 * or another array of the same row distance, which lasts until the next call. */
tern_real *tern_llama_adapt_scale(struct tern_llama *m, const struct tern_llama_use *u,
                                  tern_real *dy, int ldy, const tern_real *x, bool own);
/* From that: the adapter's gradients; and then, before the next adapter's, dx[N,in] += its part. */
void tern_llama_adapt_grads(struct tern_llama *m, const struct tern_llama_use *u,
                            const tern_real *dy, int ldy, const tern_real *x);
void tern_llama_adapt_dx(struct tern_llama *m, const struct tern_llama_use *u, tern_real *dx);
/* Find where adapters begin: fills m->lora_at. */
void tern_llama_adapters_locate(struct tern_llama *m);

/* ---- the passes ---- */

/* The gradient of the weight that begins at `at`, or NULL: not wanted. */
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
/* One layer's forward pass up to gate_up, also for recomputation.  Afterwards, with bf16,
 * m->a.stream holds `mid`, and m->a.broad gate_up.  Attention alone: its output, stored in
 * a->heads. */
int tern_llama_layer_inner(struct tern_llama *m, int layer, struct tern_llama_layer_acts *a,
                           const struct tern_llama_batch *b, struct tern_err *err);
tern_real *tern_llama_attend(struct tern_llama *m, struct tern_llama_layer_acts *a,
                             const tern_real *qkv, const struct tern_llama_batch *b);
struct tern_tensor_heads tern_llama_heads(const struct tern_llama *m,
                                          const struct tern_llama_batch *b);

#endif

/* The model from the inside: where everything lies, and the passes over it.
 *
 * Shapes: B rows of T positions, N = B*T; C dim, F ffn, L layers, V vocab; H query heads, K key and
 * value heads of D; W = (H+2K)*D, the width of q, k and v side by side. */
#ifndef TERN_LLAMA_LAYERS_H
#define TERN_LLAMA_LAYERS_H

#include "core/llama/llama.h"

/* Weights or their gradients.  q, k, v follow each other in memory, and so do gate and up: each
 * group is one matrix here, and one product. */
struct tern_llama_layer_weights {
    tern_real *qkv;        /* [W,C] */
    tern_real *o;          /* [C,H*D] */
    tern_real *gate_up;    /* [2F,C] */
    tern_real *down;       /* [C,F] */
    tern_real *input_norm; /* [C] */
    tern_real *post_norm;  /* [C] */
};

struct tern_llama_weights {
    tern_real *all;   /* the block */
    tern_real *embed; /* [V,C] */
    struct tern_llama_layer_weights *layers;
    tern_real *norm; /* [C] */
    tern_real *head; /* [V,C]; embed when tied */
};

/* What a layer's backward pass needs of its forward pass.  The normed inputs and the product of
 * gate and up are cheaper to compute again than to keep. */
struct tern_llama_layer_acts {
    tern_real *x;        /* [N,C] the layer's input */
    tern_real *rstd;     /* [N] of its norm */
    tern_real *qkv;      /* [N,W] after RoPE */
    tern_real *stats;    /* [B,H,T,2] of attention */
    tern_real *heads;    /* [N,H*D] attention's output */
    tern_real *mid;      /* [N,C] after attention is added */
    tern_real *mid_rstd; /* [N] */
    tern_real *gate_up;  /* [N,2F]; backward turns it into its gradient */
};

struct tern_llama_acts {
    struct tern_llama_layer_acts *layers; /* without training all are the same */
    tern_real *out;                       /* [N,C] the last layer's output */
    tern_real *out_rstd;                  /* [N] */
    /* Scratch, shared by all layers. */
    tern_real *normed; /* [N,C] */
    tern_real *wide;   /* [N,max(F,H*D)] */
    tern_real *logits; /* [head_rows,V] */
    double *losses;    /* [head_rows] */
    tern_real *attention;
    /* Only with training. */
    tern_real *dx;      /* [N,C] gradient of the residual stream */
    tern_real *dnormed; /* [N,C] */
    tern_real *dqkv;    /* [N,W] */
};

struct tern_llama {
    struct tern_model_config c;
    int max_batch, seq_len;
    bool training;
    int head_rows; /* positions whose logits are held at a time */
    uint64_t params;
    struct tern_llama_weights w, g;
    struct tern_llama_acts a;
    tern_real *cos, *sin; /* [seq_len, D/2], in the activations' block */
    void *acts_block;
};

/* A micro-batch on its way through the model. */
struct tern_llama_batch {
    const int32_t *tokens, *targets; /* [B,T] */
    const uint8_t *mask;             /* [B,T] or NULL */
    int B, T;
};

/* y[n,out] = x[n,in] w[out,in]^T + beta * y */
void tern_llama_linear(tern_real *y, const tern_real *x, const tern_real *w, int n, int in, int out,
                       tern_real beta);
/* Of the same with beta 0: dw += dy^T x and dx = dy w; either may be NULL: not wanted. */
void tern_llama_linear_backward(tern_real *dx, tern_real *dw, const tern_real *dy,
                                const tern_real *x, const tern_real *w, int n, int in, int out);

/* Fills m->a up to `out`. */
void tern_llama_forward(struct tern_llama *m, const struct tern_llama_batch *b);
/* From `out` to the losses; with grad_scale not 0 also the head's gradients and m->a.dx. */
void tern_llama_head(struct tern_llama *m, const struct tern_llama_batch *b, double grad_scale,
                     struct tern_llama_loss *loss);
/* From m->a.dx to the gradients of layers and embedding. */
void tern_llama_backward(struct tern_llama *m, const struct tern_llama_batch *b);

#endif

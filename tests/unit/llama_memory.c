/* The model's memory: bytes by kind, and blocks that are the caller's.  Built in float and in
 * double (llama_memory-f64). */
#include "tests/unit/llama.h"

static void memory(void)
{
    struct tern_llama_options o = {.config = &grouped, .max_batch = B, .seq_len = T};
    struct tern_llama_bytes train, infer;

    o.training = true;
    tern_llama_bytes(&o, tern_tensor_threads(), &train, NULL);
    o.training = false;
    tern_llama_bytes(&o, tern_tensor_threads(), &infer, NULL);
    ok(train.params == tern_model_params(&grouped) * sizeof(tern_real) &&
           train.grads == train.params && infer.grads == 0 && infer.activations < train.activations,
       "bytes by kind");
    o.training = o.bf16 = true;
    struct tern_llama_bytes half;
    tern_llama_bytes(&o, tern_tensor_threads(), &half, NULL);
    ok(half.params == tern_model_params(&grouped) * 2 && half.grads == train.grads &&
           half.activations < train.activations,
       "bf16: two bytes a parameter, fewer of activations");
}

/* Memory that is the test's: dirty, counted, and refused from the n-th block on. */
struct lender {
    void *blocks[TERN_LLAMA_BLOCKS];
    size_t bytes[TERN_LLAMA_BLOCKS];
    int n, most;
};

static void *lend(void *ctx, size_t bytes, struct tern_err *err)
{
    struct lender *l = ctx;

    if (l->n == l->most) {
        tern_err_set(err, TERN_FAILED, "no block %d", l->n);
        return NULL;
    }
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(p, 0x5a, bytes);
    l->blocks[l->n] = p;
    l->bytes[l->n++] = bytes;
    return p;
}

static void handed(int rank)
{
    const struct tern_model_adapters lora = {.rank = rank, .targets = 1, .scale = 1};
    struct lender lender = {.most = 2};
    struct tern_llama_memory memory = {.ctx = &lender, .alloc = lend};
    struct tern_llama_options o = {.config = &grouped,
                                   .max_batch = B,
                                   .seq_len = T,
                                   .training = true,
                                   .adapters = &lora,
                                   .memory = &memory};
    struct tern_err err = {0};

    for (int k = 0; k < TERN_LLAMA_BLOCKS; k++)
        memory.wanted[k] = true;
    ok(!tern_llama_open(&o, &err), "a model fails without the caller's memory, rank %d", rank);
    has(err.text, "no block 2", "the error is the caller's");
    for (int k = 0; k < 2; k++)
        free(lender.blocks[k]);
    lender = (struct lender){.most = 2};
    memory.wanted[TERN_LLAMA_BLOCK_ACTIVATIONS] = false;
    struct tern_llama *m = tern_llama_open(&o, &err);
    o.memory = NULL;
    struct tern_llama *own = tern_llama_open(&o, &err);
    uint64_t n;
    ok(m && own && tern_llama_trainable(m, &n) == lender.blocks[0] &&
           tern_llama_grads(m, NULL) == lender.blocks[1],
       "parameters and gradients that are trained lie where the caller has them");
    if (!m || !own)
        return;
    ok(lender.bytes[0] == n * sizeof(tern_real),
       "the caller's memory is as large as the trained parameters");
    tern_llama_init(m, 5, grouped.init_std);
    tern_llama_init(own, 5, grouped.init_std);
    tern_llama_adapters_init(m);
    tern_llama_adapters_init(own);
    ok(step(m, 0.01) == step(own, 0.01) &&
           memcmp(lender.blocks[1], tern_llama_grads(own, NULL), n * sizeof(tern_real)) == 0,
       "a step in the caller's memory has the same bits");
    tern_llama_free(own);
    free(lender.blocks[0]); /* before the model gets it */
    tern_llama_free(m);
    free(lender.blocks[1]);
}

int main(void)
{
    if (tern_tensor_start(2, 1, NULL) < 0)
        return 1;
    fill_batch();
    memory();
    handed(0);
    handed(3);
    return tap_done();
}

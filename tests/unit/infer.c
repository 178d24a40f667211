/* core/infer: a rank that cannot go on with an evaluation does not leave the others of its
 * model-parallel group waiting. */
#include "core/base/fs.h"
#include "core/fabric/fabric.h"
#include "core/infer/infer.h"
#include "core/tensor/tensor.h"
#include "tests/unit/tap.h"

#include <unistd.h>

static char work[] = "/tmp/tern-infer-XXXXXX";

enum { SEQ_LEN = 16, ROWS = 30, VOCAB = 40 };

/* The calls that the rank's group sees. */
struct seen {
    int batches, rounds;
    int ids;     /* outside the model's vocabulary */
    int counted; /* targets of batches after the first that had none */
    bool empty, requested;
};

static int loss(void *ctx, const struct tern_llama_batch *b, struct tern_llama_loss *out,
                struct tern_err *err)
{
    struct seen *s = ctx;
    int counted = 0;

    (void)err;
    for (int i = 0; i < b->B * b->T; i++) {
        counted += b->mask[i];
        s->ids += b->tokens[i] >= VOCAB || b->targets[i] >= VOCAB;
    }
    s->empty |= counted == 0;
    s->counted += s->empty ? counted : 0;
    s->batches++;
    *out = (struct tern_llama_loss){.sum = 1, .n = (uint64_t)counted};
    return 0;
}

static int agree_stop(void *ctx, bool *stop, struct tern_err *err)
{
    struct seen *s = ctx;

    (void)err;
    s->rounds++;
    s->requested |= *stop;
    return 0;
}

/* ROWS rows, all tokens 5 but token `at`, which is `id`. */
static struct tern_data_set *make_set(size_t at, uint32_t id, char **path)
{
    struct tern_data_set_kind kind = {1000, 2, -1, false, {7}};
    uint32_t ids[ROWS * SEQ_LEN - 1];

    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        ids[i] = i == at ? id : 5;
    *path = tern_fs_join(work, "set.tds");
    unlink(*path);
    struct tern_data_set_writer *w = tern_data_set_create(*path, &kind, NULL);
    if (!w || tern_data_set_add(w, ids, NULL, sizeof ids / sizeof *ids, 10, NULL) < 0 ||
        tern_data_set_commit(w, "{}", NULL) < 0)
        return NULL;
    return tern_data_set_open(*path, NULL);
}

/* The text's bytes and the targets are of the same tokens, or the bytes are not known. */
static void test_bytes(const struct tern_llama *m, struct tern_comm *world)
{
    struct seen s;
    const struct tern_infer_group group = {
        .ctx = &s, .model = m, .loss = loss, .agree_stop = agree_stop, .groups = 1, .counts = true};
    const uint32_t ids[] = {5, 6, 7, 8};

    for (int masked = 0; masked < 2; masked++) {
        struct tern_data_set_kind kind = {1000, 2, -1, masked, {7}};
        struct tern_infer_eval e = {0};
        char *path = tern_fs_join(work, "bytes.tds");
        unlink(path);
        struct tern_data_set_writer *w = tern_data_set_create(path, &kind, NULL);
        tern_data_set_add(w, ids, masked ? (const uint8_t[]){0, 0, 1, 1} : NULL, 4, 10, NULL);
        tern_data_set_commit(w, "{}", NULL);
        struct tern_data_set *set = tern_data_set_open(path, NULL);
        s = (struct seen){0};
        int rc = tern_infer_evaluate(&group, set, SEQ_LEN, 1, world, &e, NULL);
        ok(rc == 0 && e.tokens == (masked ? 3 : 5) && e.bytes == (masked ? 0 : 10),
           "a set with %s has %d targets and %d bytes", masked ? "a mask" : "no mask",
           (int)e.tokens, (int)e.bytes);
        tern_data_set_free(set);
        free(path);
    }
}

static int evaluate(struct seen *s, struct tern_data_set *set, const struct tern_llama *m,
                    struct tern_comm *world, struct tern_err *err)
{
    const struct tern_infer_group group = {
        .ctx = s, .model = m, .loss = loss, .agree_stop = agree_stop, .groups = 1, .counts = true};
    struct tern_infer_eval e;

    *s = (struct seen){0};
    return tern_infer_evaluate(&group, set, SEQ_LEN, 1, world, &e, err);
}

static void test_group(const struct tern_llama *m, struct tern_comm *world)
{
    struct tern_err err = {0};
    struct seen s;
    char *path;
    struct tern_data_set *set = make_set(0, 5, &path);
    int rc = evaluate(&s, set, m, world, &err);

    ok(rc == 0 && s.batches == ROWS && !s.requested && !s.empty, "a set of %d rows is %d batches",
       ROWS, s.batches);
    tern_data_set_free(set);
    free(path);

    /* A token that no model has: the embedding would be read outside. */
    set = make_set(10 * SEQ_LEN + 3, 999, &path);
    rc = evaluate(&s, set, m, world, &err);
    ok(rc < 0 && s.ids == 0 && strstr(err.text, "token id 999"),
       "a token outside the model's vocabulary is an error, and no rank computes with it: %s",
       err.text);
    ok(s.batches == 16 && s.rounds == 3 && s.requested && s.counted == 0,
       "the group goes on with empty batches until the next round of stop requests (%d batches)",
       s.batches);
    tern_data_set_free(set);
    free(path);

    /* Truncated while it is open, it cannot be read from somewhere on. */
    set = make_set(0, 5, &path);
    ok(truncate(path, 0) == 0, "a set is truncated while it is open");
    rc = evaluate(&s, set, m, world, &err);
    ok(rc < 0 && s.batches == 8 && s.requested && s.counted == 0,
       "a set truncated while it is open ends the evaluation in the next round (%d batches, %s)",
       s.batches, err.text);
    tern_data_set_free(set);
    free(path);
}

int main(void)
{
    const struct tern_model_config config = {.dim = 16,
                                             .ffn = 16,
                                             .layers = 1,
                                             .heads = 2,
                                             .kv_heads = 2,
                                             .head_dim = 8,
                                             .vocab = VOCAB,
                                             .max_position = 64,
                                             .norm_eps = 1e-5,
                                             .rope_theta = 1e4};
    const struct tern_fabric_options alone = {.wireup = TERN_WIREUP_ALONE};
    struct tern_err err = {0};

    if (!mkdtemp(work) || tern_tensor_start(1, 1, &err) < 0)
        return 1;
    struct tern_fabric *f = tern_fabric_open(&alone, &err);
    struct tern_llama *m = tern_llama_new(&config, 1, SEQ_LEN, false, &err);
    if (ok(f && m, "a rank and a model: %s", err.text)) {
        test_group(m, tern_fabric_world(f));
        test_bytes(m, tern_fabric_world(f));
    }
    tern_llama_free(m);
    tern_fabric_close(f);
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

/* The owners: slices of tensor ranks, chunks of pipeline stages, rows of data ranks. */
#include "core/model/model.h"
#include "tests/unit/tap.h"

#include <stdlib.h>

static const struct tern_model_config config = {.dim = 24,
                                                .ffn = 45,
                                                .layers = 7,
                                                .heads = 8,
                                                .kv_heads = 2,
                                                .head_dim = 6,
                                                .vocab = 53,
                                                .max_position = 64,
                                                .norm_eps = 1e-5,
                                                .rope_theta = 1e4};

/* Every element of every tensor has exactly one owner among the ranks; adds the holes and overlaps
 * of this layout to *wrong. */
static void tiles(const struct tern_model_config *c, struct tern_model_place p, int *wrong)
{
    size_t n = tern_model_tensors(c);

    for (size_t i = 0; i < n; i++) {
        struct tern_model_tensor t;
        tern_model_tensor(c, i, &t);
        int64_t width = t.ndim > 1 ? t.shape[1] : 1;
        unsigned char *seen = calloc(t.count, 1);
        for (p.stage = 0; p.stage < p.pipeline; p.stage++) {
            for (p.tensor_rank = 0; p.tensor_rank < p.tensor; p.tensor_rank++) {
                struct tern_model_shard *s = tern_model_shard_new(c, &p, NULL);
                for (size_t k = 0; k < s->n_parts; k++) {
                    const struct tern_model_part *q = &s->parts[k];
                    for (int64_t e = 0; q->index == i && q->owner && e < (int64_t)q->count; e++)
                        seen[(q->start[0] + e / q->shape[1]) * width + q->start[1] +
                             e % q->shape[1]]++;
                }
                tern_model_shard_free(s);
            }
        }
        for (uint64_t e = 0; e < t.count; e++)
            *wrong += seen[e] != 1;
        free(seen);
    }
}

static void every_layout(void)
{
    struct tern_model_config tied = config;
    int wrong = 0, layouts = 0;

    tied.tied = true;
    for (int tensor = 1; tensor <= 8; tensor *= 2)
        for (int pipeline = 1; pipeline <= 4; pipeline++)
            for (int v = 1; pipeline * v <= config.layers; v++, layouts++) {
                tiles(&config, (struct tern_model_place){tensor, 0, pipeline, 0, v}, &wrong);
                tiles(&tied, (struct tern_model_place){tensor, 0, pipeline, 0, v}, &wrong);
            }
    ok(wrong == 0, "every element has one owner in %d layouts, tied or not", layouts);
}

static void whole(void)
{
    struct tern_model_shard *s = tern_model_shard_new(&config, &tern_model_whole, NULL);
    int same = 1;

    for (size_t i = 0; i < s->n_parts; i++)
        same = same && s->parts[i].index == i && s->parts[i].offset == s->parts[i].whole.offset &&
               s->parts[i].count == s->parts[i].whole.count;
    ok(same && s->n_parts == tern_model_tensors(&config) && s->params == tern_model_params(&config),
       "one rank holds the table as it is");
    ok(s->n_units == 1 + 7 * 5 + 2 && s->units[1].rows == 6 * (8 + 2 * 2) &&
           s->units[1].width == 24 && s->units[5].rows == 48 && s->units[5].width == 1,
       "q, k and v are one matrix, norms another");
    tern_model_shard_free(s);
}

static void replicas(void)
{
    const struct tern_model_place p = {4, 3, 1, 0, 1};
    struct tern_model_shard *s = tern_model_shard_new(&config, &p, NULL);

    ok(s->heads == 2 && s->kv_heads == 1 && s->parts[2].start[0] == 6 &&
           s->parts[2].shape[0] == 6 && s->parts[2].replicas == 2 && !s->parts[2].owner,
       "tensor rank 3 of 4 has a copy of the second of two key heads");
    ok(s->vocab_start == 39 && s->vocab_rows == 14 && s->ffn == 12,
       "what does not divide is cut unevenly");
    tern_model_shard_free(s);
}

static void rows(void)
{
    const struct tern_model_unit u = {.rows = 14, .width = 3};
    int64_t from, to, at = 0;
    int good = 1;

    for (int r = 0; r < 4; r++, at = to) {
        tern_model_unit_cut(&u, r, 4, &from, &to);
        good = good && from == at && to - from == (r == 3 ? 5 : 3);
    }
    ok(good && at == 14, "equal blocks of rows, the last with the rest");
}

static void refusals(void)
{
    static const struct {
        struct tern_model_place p;
        const char *word;
    } bad[] = {
        {{3, 0, 1, 0, 1}, "8 attention heads do not divide over 3 tensor ranks"},
        {{1, 0, 4, 0, 2}, "7 layers are fewer than the 8 chunks"},
        {{0, 0, 1, 0, 1}, "at least 1"},
    };
    struct tern_model_config odd = config;
    struct tern_err err = {0};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ok(tern_model_place_check(&config, &bad[i].p, "model", &err) < 0, "a layout is refused: %s",
           bad[i].word);
        has(err.text, bad[i].word, "the refusal of a layout says why");
    }
    odd.heads = 12;
    odd.kv_heads = 6;
    ok(tern_model_place_check(&odd, &(struct tern_model_place){4, 0, 1, 0, 1}, "model", &err) < 0,
       "6 key heads over 4 ranks are refused");
    has(err.text, "6 key heads and 4 tensor ranks", "the refusal names key heads and ranks");
}

int main(void)
{
    whole();
    every_layout();
    replicas();
    rows();
    refusals();
    return tap_done();
}

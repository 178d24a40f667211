#include "core/infer/infer.h"

#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

/* Does the source hold every tensor that its config speaks of? */
static int check_tensors(const struct tern_infer_source *s, struct tern_err *err)
{
    char name[TERN_CKPT_NAME_MAX + 1];

    for (size_t i = 0; i < tern_model_tensors(&s->config); i++) {
        struct tern_model_tensor t;
        struct tern_ckpt_info info;
        tern_model_tensor(&s->config, i, &t);
        snprintf(name, sizeof name, "%s%s", s->prefix, t.name);
        if (!tern_ckpt_find(s->ckpt, name, &info))
            return tern_err_set(err, TERN_USAGE,
                                "%s: has no tensor '%s', which its config.json "
                                "asks for.",
                                tern_ckpt_path(s->ckpt), name);
        bool same = info.ndim == t.ndim;
        for (int d = 0; same && d < t.ndim; d++)
            same = info.shape[d] == (uint64_t)t.shape[d];
        if (!same)
            return tern_err_set(err, TERN_USAGE,
                                "%s: tensor '%s' has another shape (%llu x %llu) "
                                "than its config.json says (%lld x %lld).",
                                tern_ckpt_path(s->ckpt), name, (unsigned long long)info.shape[0],
                                info.ndim > 1 ? (unsigned long long)info.shape[1] : 1ull,
                                (long long)t.shape[0], t.ndim > 1 ? (long long)t.shape[1] : 1ll);
    }
    return 0;
}

int tern_infer_open(const char *path, struct tern_infer_source *out, struct tern_err *err)
{
    struct tern_infer_source s = {0};
    char *at = NULL;

    if (tern_str_ends(path, "/latest") ? tern_ckpt_resolve(path, &at, err) < 0
                                       : (at = tern_strdup(path)) == NULL)
        return -1;
    bool ours = tern_ckpt_is_ours(at);
    s.prefix = ours ? "model/" : "";
    s.ckpt = ours ? tern_ckpt_open(at, err) : tern_ckpt_open_hf(at, err);
    int rc =
        s.ckpt && tern_model_config_load(at, &s.config, err) == 0 && check_tensors(&s, err) == 0
            ? 0
            : -1;
    free(at);
    if (rc < 0)
        tern_infer_close(&s);
    else
        *out = s;
    return rc;
}

void tern_infer_close(struct tern_infer_source *s)
{
    tern_ckpt_close(s->ckpt);
    s->ckpt = NULL;
}

int tern_infer_read(const struct tern_infer_source *s, const char *prefix, tern_real *to,
                    struct tern_err *err)
{
    const enum tern_ckpt_type type = sizeof(tern_real) == 8 ? TERN_CKPT_F64 : TERN_CKPT_F32;
    char name[TERN_CKPT_NAME_MAX + 1];

    for (size_t i = 0; i < tern_model_tensors(&s->config); i++) {
        struct tern_model_tensor t;
        tern_model_tensor(&s->config, i, &t);
        snprintf(name, sizeof name, "%s%s", prefix, t.name);
        if (tern_ckpt_read(s->ckpt, name, type, NULL, NULL, to + t.offset, err) < 0)
            return -1;
    }
    return 0;
}

/* This rank's share of the rows: sums[0] += nats, sums[1] += targets.  1: stopped on the way. */
static int evaluate_share(struct tern_llama *m, const struct tern_set *set, uint32_t seq_len,
                          int batch, uint64_t rank, uint64_t size,
                          const volatile sig_atomic_t *stop, double sums[2], struct tern_err *err)
{
    const uint64_t rows = tern_set_rows(set, seq_len);
    const size_t n = (size_t)batch * seq_len;
    int32_t *tokens = tern_alloc(n, sizeof *tokens, "an evaluation's batch", err);
    int32_t *targets = tern_alloc(n, sizeof *targets, "an evaluation's batch", err);
    int32_t *row = tern_alloc(seq_len + 1, sizeof *row, "an evaluation's row", err);
    uint8_t *mask = tern_alloc(n, 1, "an evaluation's batch", err);
    int rc = -1;

    if (!tokens || !targets || !row || !mask)
        goto out;
    for (uint64_t r = rank; r < rows;) {
        int b = 0;
        if (stop && *stop) {
            rc = 1;
            goto out;
        }
        for (; b < batch && r < rows; b++, r += size) {
            if (tern_set_row(set, seq_len, r, row, mask + (size_t)b * seq_len, err) < 0)
                goto out;
            memcpy(tokens + (size_t)b * seq_len, row, seq_len * sizeof *row);
            memcpy(targets + (size_t)b * seq_len, row + 1, seq_len * sizeof *row);
        }
        struct tern_llama_loss loss;
        if (tern_llama_loss(m, tokens, targets, mask, b, (int)seq_len, &loss, err) < 0)
            goto out;
        sums[0] += loss.sum;
        sums[1] += (double)loss.n;
    }
    rc = 0;
out:
    free(mask);
    free(row);
    free(targets);
    free(tokens);
    return rc;
}

int tern_infer_evaluate(struct tern_llama *m, const struct tern_set *set, uint32_t seq_len,
                        int batch, struct tern_comm *comm, const volatile sig_atomic_t *stop,
                        struct tern_infer_eval *out, struct tern_err *err)
{
    double sums[3] = {0, 0, 0}; /* nats, targets (exact up to 2^53), ranks that gave up */
    int rc = evaluate_share(m, set, seq_len, batch, (uint64_t)tern_comm_rank(comm),
                            (uint64_t)tern_comm_size(comm), stop, sums, err);

    /* A rank that failed still meets the others: they would wait for it. */
    sums[2] = rc != 0;
    if (rc < 0) {
        tern_comm_all_reduce(comm, sums, 3, TERN_F64, TERN_SUM, NULL);
        return -1;
    }
    if (tern_comm_all_reduce(comm, sums, 3, TERN_F64, TERN_SUM, err) < 0)
        return -1;
    if (sums[2] > 0)
        return 1;
    *out = (struct tern_infer_eval){
        .nll = sums[0], .tokens = (uint64_t)sums[1], .bytes = tern_set_text_bytes(set)};
    return 0;
}

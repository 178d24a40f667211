/* Agreement of all ranks: on a failure, a sum, a step, a stop. */
#include "core/train/state.h"

#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

static enum tern_train_stop request_of(const struct train *t)
{
    return t->options->stop ? (enum tern_train_stop) * t->options->stop : TERN_TRAIN_GO_ON;
}

/* Some rank has failed: return its error on all ranks.  `mine`: this rank's; code 0: none. */
static int share_error(struct train *t, const struct tern_err *mine, struct tern_err *err)
{
    enum { TEXT = 400 }; /* a path and a cause; a thousand ranks gather 400 KB */
    struct {
        int32_t code;
        char text[TEXT];
    } mine_short = {(int32_t)mine->code, ""}, *all;

    snprintf(mine_short.text, sizeof mine_short.text, "%.*s", TEXT - 1, mine->text);
    all = tern_alloc((size_t)t->size, sizeof *all, "the ranks' errors", err);
    if (!all)
        return -1;
    if (tern_fabric_all_gather(t->world, &mine_short, all, sizeof mine_short, TERN_U8, err) == 0) {
        int r = 0;
        while (r < t->size - 1 && all[r].code == 0)
            r++;
        tern_err_set(err, (enum tern_code)all[r].code, "rank %d (%s): %s", r,
                     tern_fabric_node_name(t->options->fabric, r), all[r].text);
        t->together = true;
    }
    free(all);
    return -1;
}

static struct tern_err own(int rc, const struct tern_err *err)
{
    return rc < 0 && err ? *err : (struct tern_err){0};
}

int tern_train_agree(struct train *t, int rc, struct tern_err *err)
{
    double nothing = 0;

    return tern_train_agree_sum(t, rc, &nothing, err);
}

int tern_train_agree_sum(struct train *t, int rc, double *sum, struct tern_err *err)
{
    double v[] = {rc < 0, *sum};
    struct tern_err mine = own(rc, err);

    if (t->size == 1)
        return rc;
    if (tern_fabric_all_reduce(t->world, v, 2, TERN_F64, TERN_SUM, err) < 0)
        return -1;
    *sum = v[1];
    return v[0] > 0 ? share_error(t, &mine, err) : 0;
}

int tern_train_agree_step(struct train *t, int rc, double sum[TRAIN_SUMS],
                          enum tern_train_stop *ret_stop, struct tern_err *err)
{
    enum { FAILED = TRAIN_SUMS, READY, FLUSHED, IDLE, COPIED, REQUESTS };
    struct tern_err mine = own(rc, err);
    double v[REQUESTS + TERN_TRAIN_HALT + 1] = {0};

    if (t->size == 1 && rc < 0)
        return -1;
    for (int i = 0; i < TRAIN_SUMS && rc == 0; i++)
        v[i] = sum[i];
    v[FAILED] = rc < 0;
    v[READY] = t->checkpoint.saving && tern_ckpt_save_is_ready(t->checkpoint.saving);
    v[FLUSHED] = t->checkpoint.local.flush && tern_ckpt_save_is_ready(t->checkpoint.local.flush);
    v[IDLE] = tern_train_partner_is_idle(t);
    v[COPIED] = tern_train_partner_has_copied(t);
    v[REQUESTS + request_of(t)] = 1;
    if (tern_fabric_all_reduce(t->world, v, sizeof v / sizeof *v, TERN_F64, TERN_SUM, err) < 0)
        return -1;
    if (v[FAILED] > 0)
        return share_error(t, &mine, err);
    memcpy(sum, v, TRAIN_SUMS * sizeof *sum);
    t->checkpoint.all_ready = v[READY] == t->size;
    t->checkpoint.local.all_ready = v[FLUSHED] == t->size;
    t->checkpoint.local.all_idle = v[IDLE] == t->size;
    t->checkpoint.local.all_copied = v[COPIED] == t->size;
    *ret_stop = TERN_TRAIN_HALT;
    while (*ret_stop > TERN_TRAIN_GO_ON && v[REQUESTS + *ret_stop] == 0)
        --*ret_stop;
    return 0;
}

int tern_train_agree_stop(struct train *t, enum tern_train_stop *ret_stop, struct tern_err *err)
{
    int32_t request = (int32_t)request_of(t);

    if (tern_fabric_all_reduce(t->world, &request, 1, TERN_I32, TERN_MAX, err) < 0)
        return -1;
    *ret_stop = (enum tern_train_stop)request;
    return 0;
}

/* tern eval MODEL --choices: multiple choice by likelihood. */
#include "cmd/eval/choices.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/tensor/tensor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum rule { ACC, ACC_NORM, ACC_BYTES, RULES };
static const char *const rule_names[RULES] = {"acc", "acc_norm", "acc_bytes"};

/* The choice of an item by each rule. */
static void choose(const struct choices_set *s, const struct choices_item *item, const double *nats,
                   size_t ret_choice[RULES])
{
    double lengths[2][CHOICES_MAX];

    for (size_t i = 0; i < item->n; i++) {
        lengths[0][i] = s->all[item->first + i].characters;
        lengths[1][i] = s->all[item->first + i].bytes;
    }
    ret_choice[ACC] = tern_infer_choose(nats + item->first, NULL, item->n);
    ret_choice[ACC_NORM] = tern_infer_choose(nats + item->first, lengths[0], item->n);
    ret_choice[ACC_BYTES] = tern_infer_choose(nats + item->first, lengths[1], item->n);
}

/* ---------------------------------------------------------------- printing */

static json_t *json_item(const struct choices_set *s, const struct choices_item *item,
                         const double *nats, const size_t choice[RULES])
{
    json_t *list = json_array(), *tokens = json_array();

    for (size_t i = 0; i < item->n; i++) {
        json_array_append_new(list, tern_json_real(nats[item->first + i]));
        json_array_append_new(tokens, json_integer((json_int_t)s->all[item->first + i].row.scored));
    }
    json_t *j = json_pack("{s:I, s:I, s:o, s:o}", "line", (json_int_t)item->line, "gold",
                          (json_int_t)item->gold, "loglikelihoods", list, "tokens", tokens);
    for (int k = 0; k < RULES; k++)
        json_object_set_new(j, rule_names[k], json_boolean(choice[k] == item->gold));
    return j;
}

static int print(const struct choices_set *s, const char *path, const double *nats,
                 struct tern_err *err)
{
    uint64_t right[RULES] = {0};
    json_t *items = json_array(), *top = json_object();
    int rc = 0;

    for (size_t i = 0; i < s->n_items; i++) {
        size_t choice[RULES];
        choose(s, &s->items[i], nats, choice);
        for (int k = 0; k < RULES; k++)
            right[k] += choice[k] == s->items[i].gold;
        if (eval.json)
            json_array_append_new(items, json_item(s, &s->items[i], nats, choice));
    }
    if (!eval.json) {
        tern_cmd_say("%s: %zu items, %zu choices of %" PRIu64 " tokens", path, s->n_items, s->n,
                     s->scored);
        printf("%-10s %10s %10s\n", "METRIC", "VALUE", "STDERR");
    }
    for (int k = 0; k < RULES; k++) {
        const double value = (double)right[k] / (double)s->n_items;
        const double error = tern_infer_standard_error(right[k], s->n_items);
        if (!eval.json)
            printf("%-10s %10.4f %10.4f\n", rule_names[k], value, error);
        char *key = tern_strf("%s_stderr", rule_names[k]);
        json_object_set_new(top, rule_names[k], json_real(value));
        json_object_set_new(top, key, isfinite(error) ? json_real(error) : json_null());
        free(key);
    }
    json_object_set(top, "items", items);
    if (eval.json)
        rc = tern_json_print(stdout, top, err);
    json_decref(items);
    json_decref(top);
    return rc;
}

/* ---------------------------------------------------------------- scoring */

/* nats [n], of all choices on every rank, each of which scores its share. */
static int score(const struct eval_job *j, const struct choices_set *s, struct tern_llama *m,
                 double *nats, struct tern_err *err)
{
    const size_t size = (size_t)tern_fabric_comm_size(j->world);
    int rc = 0;

    tern_progress_phase("choices", NULL);
    tern_progress_expect(s->n);
    for (size_t i = (size_t)tern_fabric_comm_rank(j->world); i < s->n && rc == 0; i += size) {
        rc = tern_infer_row_score(m, &s->all[i].row, &nats[i], err);
        tern_progress_add(s->n - i < size ? s->n - i : size);
    }
    tern_progress_end();
    if (eval_job_agree(j, rc, err) < 0)
        return -1;
    return tern_fabric_all_reduce(j->world, nats, s->n, TERN_F64, TERN_SUM, err);
}

static int score_and_print(const struct eval_job *j, struct tern_infer_source *from,
                           const struct choices_set *s, struct tern_err *err)
{
    double *nats = tern_alloc(s->n, sizeof *nats, "log-likelihoods", err);
    const struct tern_llama_options options = {
        .config = &from->config, .max_batch = 1, .seq_len = (int)s->longest - 1};
    const bool first = eval_job_first(j);

    if (first)
        tern_progress_begin("parameters", "%s", tern_ckpt_path(from->ckpt));
    struct tern_llama *m = nats ? tern_llama_open(&options, err) : NULL;
    int rc = m ? tern_infer_read(from, m, err) : -1;
    if (first && s->n_cut)
        tern_warn("%zu of %zu choices are longer than the %d tokens that the model was made for: "
                  "their contexts lose the beginning",
                  s->n_cut, s->n, (int)from->config.max_position);
    if (eval_job_agree(j, rc, err) < 0)
        rc = -1;
    else
        rc = score(j, s, m, nats, err);
    tern_progress_end();
    tern_llama_free(m);
    if (rc == 0 && first)
        rc = print(s, eval.choices, nats, err);
    free(nats);
    return rc;
}

/* Does BOS stand before a context?  As the tokenizer's library does, unless the user says. */
static int choose_bos(const struct tern_token *t, bool *ret_bos, struct tern_err *err)
{
    if (eval.bos && tern_token_bos(t) < 0)
        return tern_err_set(err, TERN_USAGE, "--bos: %s has none", tern_token_path(t));
    *ret_bos = !eval.no_bos && (eval.bos || tern_token_begins(t));
    return 0;
}

/* The items as rows of ids. */
static int encode(const char *tokenizer, size_t max, struct choices_set *s, struct tern_err *err)
{
    struct tern_infer_tokens t = {.token = tern_token_load(tokenizer, err)};
    const struct choices_how how = {eval.choices, eval.delimiter ? eval.delimiter : " ", max};
    int rc = -1;

    t.encoder = t.token ? tern_token_encoder_new(t.token, err) : NULL;
    if (t.encoder && choose_bos(t.token, &t.bos, err) == 0) {
        tern_token_encoder_specials(t.encoder, true); /* as the libraries do that lm-eval calls */
        rc = choices_read(&how, &t, s, err);
    }
    tern_token_encoder_free(t.encoder);
    tern_token_free((struct tern_token *)t.token);
    return rc;
}

/* A word as DIR/latest may have stood for another checkpoint on rank 0: all take that one. */
static int same_model(const struct eval_job *j, char **path, struct tern_infer_source *from,
                      struct tern_err *err)
{
    char *mine = tern_strdup(*path);
    int rc = eval_job_share_path(j, path, err);

    if (rc == 0 && strcmp(mine, *path) != 0) {
        tern_infer_close(from);
        rc = tern_infer_open(*path, from, err);
    }
    free(mine);
    return rc;
}

int eval_choices(struct eval_job *j, const char *model, const struct tern_fabric_options *fabric,
                 struct tern_err *err)
{
    struct tern_infer_source from = {0};
    struct choices_set s = {0};
    char *path = NULL;
    int rc = -1;

    if (tern_ckpt_resolve(model, &path, err) < 0 || tern_infer_open(path, &from, err) < 0)
        goto out;
    if (encode(eval.tokenizer ? eval.tokenizer : path, (size_t)from.config.max_position, &s, err) <
            0 ||
        tern_tensor_start(/* threads= */ 0, eval.ranks > 0 ? (int)eval.ranks : 0, err) < 0)
        goto out;
    j->fabric = tern_fabric_open(fabric, err);
    if (!j->fabric)
        goto out;
    tern_fabric_set_activity(j->fabric, TERN_FABRIC_EVALUATES, TERN_FABRIC_STORAGE_S);
    j->world = tern_fabric_world(j->fabric);
    if (eval_job_agree(j, same_model(j, &path, &from, err), err) == 0)
        rc = score_and_print(j, &from, &s, err);
out:
    tern_infer_close(&from);
    choices_free(&s);
    free(path);
    return rc;
}

/* Adapters as PEFT keeps them (https://github.com/huggingface/peft, what save_pretrained writes).
 */
#include "core/convert/export.h"

#include "core/base/str.h"

#include <math.h>
#include <stdlib.h>

int tern_convert_list_adapters(struct tern_convert_export *x, struct tern_err *err)
{
    struct tern_model_shard *s =
        tern_model_shard_adapters(&x->config, &tern_model_whole, &x->adapters, err);
    int rc = s ? 0 : -1;

    if (rc == 0) {
        x->tensors = tern_alloc(s->n_parts, sizeof *x->tensors, "list of tensors", err);
        x->shard = tern_alloc(s->n_parts, sizeof *x->shard, "list of tensors", err);
        rc = x->tensors && x->shard ? 0 : -1;
    }
    for (size_t i = 0; rc == 0 && i < s->n_parts; i++)
        rc = tern_convert_add_tensor(x, &s->parts[i].whole, err);
    tern_model_shard_free(s);
    return rc;
}

/* alpha as people write it: 16, not 16.0. */
static json_t *number(double v)
{
    return v == floor(v) && fabs(v) < 1e15 ? json_integer((json_int_t)v) : json_real(v);
}

int tern_convert_write_adapter_config(struct tern_convert_export *x, struct tern_err *err)
{
    static const char *const names[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                        "gate_proj", "up_proj", "down_proj"};
    const struct tern_model_adapters *a = &x->adapters;
    json_t *lora = json_object_get(tern_ckpt_meta(x->c), "lora"), *targets = json_array();
    json_t *alpha = json_object_get(lora, "alpha"); /* a checkpoint may be older than this */
    const char *base =
        x->options->base ? x->options->base : json_string_value(json_object_get(lora, "base"));

    for (int t = 0; t < 7; t++)
        if (tern_model_adapter_beside(a, (enum tern_model_kind)(TERN_MODEL_Q + t)))
            json_array_append_new(targets, json_string(names[t]));
    json_t *j = json_pack(
        "{s:s, s:s, s:s?, s:i, s:o, s:o, s:o, s:b, s:b, s:s, s:b, s:b, s:b, s:n, s:{}, s:{}}",
        "peft_type", "LORA", "task_type", "CAUSAL_LM", "base_model_name_or_path", base, "r",
        a->rank, "lora_alpha", number(alpha ? json_number_value(alpha) : a->scale * a->rank),
        "lora_dropout", number(a->dropout), "target_modules", targets, "use_rslora",
        json_is_true(json_object_get(lora, "rslora")), "use_dora", a->dora, "bias", "none",
        "fan_in_fan_out", 0, "inference_mode", 1, "init_lora_weights", 1, "modules_to_save",
        "rank_pattern", "alpha_pattern");
    int rc = j ? tern_convert_write_json(x, "adapter_config.json", j, JSON_SORT_KEYS, err)
               : tern_err_set(err, TERN_FAILED, "%s: its adapters cannot be described",
                              tern_ckpt_path(x->c));
    json_decref(j);
    return rc;
}

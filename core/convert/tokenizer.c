/* The tokenizer of an exported folder, as programs other than tern read it.
 *
 * They differ where a folder says nothing: some put BOS before each text and others do not.  A bare
 * tokenizer.json has no EOS for them.  So the folder says it, in tokenizer_config.json.  Llama 3's
 * tokenizer.model, which only Meta's code reads under that name, becomes a tokenizer.json. */
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/convert/export.h"
#include "core/token/token.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_file(const struct tern_convert_export *x, const char *name)
{
    char *path = tern_fs_join(x->temp, name);
    bool there = tern_fs_exists(path);

    free(path);
    return there;
}

static void set_special(json_t *to, const char *key, const struct tern_token *t, int32_t id)
{
    size_t len;
    const char *text = id == TERN_TOKEN_NONE ? NULL : tern_token_piece(t, (uint32_t)id, &len);

    if (text)
        json_object_set_new(to, key, json_stringn(text, len));
}

static int write_tokenizer_config(const struct tern_convert_export *x, const struct tern_token *t,
                                  struct tern_err *err)
{
    const bool spm = strcmp(tern_token_format(t), "sentencepiece") == 0;
    json_t *length = json_object_get(x->config_json, "max_position_embeddings"), *j = json_object();

    if (spm && tern_token_bos(t) != TERN_TOKEN_NONE) {
        json_object_set_new(j, "add_bos_token", json_true());
        json_object_set_new(j, "add_eos_token", json_false());
    }
    set_special(j, "bos_token", t, tern_token_bos(t));
    json_object_set_new(j, "clean_up_tokenization_spaces", json_false());
    set_special(j, "eos_token", t, tern_token_eos(t));
    if (spm) /* sentencepiece's own ids, behind a special token too */
        json_object_set_new(j, "legacy", json_false());
    if (length)
        json_object_set(j, "model_max_length", length);
    json_object_set_new(j, "tokenizer_class",
                        json_string(spm ? "LlamaTokenizer" : "PreTrainedTokenizerFast"));
    set_special(j, "unk_token", t, tern_token_unk(t));
    int rc = tern_convert_write_json(x, "tokenizer_config.json", j, 0, err);
    json_decref(j);
    return rc;
}

/* tokenizer.json in place of the tiktoken file that `t` was read from. */
static int replace_tiktoken(const struct tern_convert_export *x, const struct tern_token *t,
                            struct tern_err *err)
{
    char *json = tern_fs_join(x->temp, "tokenizer.json");
    char *model = tern_fs_join(x->temp, "tokenizer.model");
    int rc = tern_fs_exists(json) ? 0 : tern_token_write_json(t, json, err);

    if (rc == 0 && unlink(model) < 0)
        rc = tern_err_sys(err, "%s: cannot be removed", model);
    if (rc == 0)
        tern_info("the tokenizer is written as tokenizer.json: only Meta's code and tern read its "
                  "tokenizer.model");
    free(json);
    free(model);
    return rc;
}

int tern_convert_complete_tokenizer(const struct tern_convert_export *x, struct tern_err *err)
{
    struct tern_err unread = {0};
    struct tern_token *t = tern_token_load(x->temp, &unread);
    int rc = 0;

    if (!t) { /* files that tern does not read are left as they are */
        tern_info("%s", unread.text);
        return 0;
    }
    if (strcmp(tern_token_format(t), "tiktoken") == 0)
        rc = replace_tiktoken(x, t, err);
    if (rc == 0 && !has_file(x, "tokenizer_config.json"))
        rc = write_tokenizer_config(x, t, err);
    tern_token_free(t);
    return rc;
}

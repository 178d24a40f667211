/* Hugging Face's tokenizer.json. */
#include "core/token/vocab.h"

int tern_token_json_parse(struct tern_token *t, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE, "%s: tokenizer.json is not supported", t->path);
}

/* tiktoken files, such as Llama 3's tokenizer.model: a line a piece, its bytes in base64 and its
 * rank. */
#include "core/token/vocab.h"

#include <string.h>

bool tern_token_is_tiktoken(const char *text, size_t len)
{
    size_t piece =
        strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=");
    size_t rank = text[piece] == ' ' ? strspn(text + piece + 1, "0123456789") : 0;

    (void)len;
    return piece > 0 && rank > 0 && text[piece + 1 + rank] == '\n';
}

int tern_token_tiktoken_parse(struct tern_token *t, size_t len, struct tern_err *err)
{
    (void)len;
    return tern_err_set(err, TERN_USAGE,
                        "%s: a tiktoken file, as Llama 3 has; only SentencePiece BPE models are "
                        "supported",
                        t->path);
}

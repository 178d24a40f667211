/* SentencePiece's precompiled character maps: a double-array trie and the texts that it leads to.
 */
#include "core/token/vocab.h"

struct tern_charsmap *tern_token_charsmap_new(const char *data, size_t len, const char *name,
                                              struct tern_err *err)
{
    (void)data, (void)len;
    tern_err_set(err, TERN_USAGE, "%s: a character map is not supported", name);
    return NULL;
}

void tern_token_charsmap_free(struct tern_charsmap *m)
{
    (void)m;
}

size_t tern_token_charsmap_next(const struct tern_charsmap *m, const char *s, size_t n,
                                const char **to, size_t *to_len)
{
    (void)m, (void)s, (void)n, (void)to, (void)to_len;
    return 0;
}

/* Names that MLflow takes for metrics and params. */
#include "core/mlflow/key.h"

#include "core/base/hash.h"
#include "core/base/str.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* mlflow/utils/validation.py: letters, digits, _ - . blank and slash; as a path it leads nowhere
 * else
 * ("a//b", "../a", "/a").  A colon is taken by newer servers alone. */
static bool is_fine(const char *s, size_t n)
{
    if (n == 0 || (n == 1 && s[0] == '.') || (n == 2 && memcmp(s, "..", 2) == 0))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!(isascii((unsigned char)s[i]) && isalnum((unsigned char)s[i])) &&
            !strchr("_-. ", s[i]))
            return false;
    return true;
}

char *tern_mlflow_key(const char *name, bool *ret_changed)
{
    struct tern_buf b = {0};
    const size_t len = strlen(name);

    *ret_changed = len > TERN_MLFLOW_KEY_MAX;
    for (const char *s = name;; s++) {
        const size_t n = strcspn(s, "/");
        const bool fine = is_fine(s, n);
        *ret_changed = *ret_changed || !fine;
        for (size_t i = 0; i < n; i++)
            tern_buf_add(&b, fine || is_fine(s + i, 1) ? s + i : "_", 1);
        if (n == 0)
            tern_buf_puts(&b, "_");
        s += n;
        if (!*s)
            break;
        tern_buf_puts(&b, "/");
    }
    char *key = tern_strdup(b.data ? b.data : "_");
    tern_buf_free(&b);
    if (*ret_changed) { /* two names may come to one: the sum keeps them apart */
        char *apart = tern_strf("%.*s.%08x", TERN_MLFLOW_KEY_MAX - 9, key,
                                (unsigned)tern_crc32c(0, name, len));
        free(key);
        key = apart;
    }
    return key;
}

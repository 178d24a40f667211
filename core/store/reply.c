/* The headers of an answer. */
#include "core/store/http.h"

#include <string.h>

void tern_store_reply_free(struct tern_store_reply *r)
{
    tern_buf_free(&r->headers);
    tern_buf_free(&r->text);
}

char *tern_store_reply_header(const struct tern_store_reply *r, const char *name, char *to,
                              size_t n)
{
    const size_t n_name = strlen(name);

    *to = '\0';
    for (const char *line = r->headers.data; line && *line; line = strchr(line, '\n') + 1) {
        if (strncmp(line, name, n_name) != 0 || line[n_name] != ':')
            continue;
        const char *value = line + n_name + 2;
        const size_t len = strcspn(value, "\n");
        if (len < n) {
            memcpy(to, value, len);
            to[len] = '\0';
        }
        break;
    }
    return to;
}

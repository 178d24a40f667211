/* Golden cases of tokenizers. */
#ifndef TERN_TESTS_TOKEN_CASES_H
#define TERN_TESTS_TOKEN_CASES_H

#include "core/base/str.h"
#include "core/token/token.h"
#include "tests/unit/tap.h"

static size_t unhex(const char *hex, size_t n, char *to)
{
    for (size_t i = 0; i + 1 < n; i += 2)
        to[i / 2] = (char)strtoul((char[]){hex[i], hex[i + 1], 0}, NULL, 16);
    return n / 2;
}

static bool same_ids(const uint32_t *ids, size_t n, const char *want)
{
    for (size_t i = 0; i < n; i++) {
        char *end;
        if (strtoul(want, &end, 10) != ids[i] || end == want)
            return false;
        want = end;
    }
    return strspn(want, " \r\n") == strlen(want);
}

/* Lines of text and decoded text in hex, with the ids between them; a tab parts them. */
static void test_cases(struct tern_token *t, struct tern_token_encoder *e, const char *path)
{
    FILE *f = fopen(path, "r");
    char line[8192], text[2048], back[2048];
    int n_cases = 0, bad_ids = 0, bad_text = 0;

    while (f && fgets(line, sizeof line, f)) {
        char *ids_text = strchr(line, '\t') + 1, *back_hex = strchr(ids_text, '\t') + 1;
        size_t len = unhex(line, (size_t)(ids_text - 1 - line), text), n;
        size_t back_len = unhex(back_hex, strcspn(back_hex, "\n"), back);
        const uint32_t *ids;
        struct tern_buf b = {0};
        back_hex[-1] = '\0';
        n_cases++;
        if (tern_token_encode(e, text, len, &ids, &n, NULL) < 0 || !same_ids(ids, n, ids_text)) {
            printf("# ids of case %d differ\n", n_cases);
            bad_ids++;
            continue;
        }
        if (tern_token_decode(t, ids, n, &b, NULL) < 0 || b.len != back_len ||
            (b.len && memcmp(b.data, back, b.len) != 0)) {
            printf("# text of case %d differs\n", n_cases);
            bad_text++;
        }
        tern_buf_free(&b);
    }
    if (f)
        fclose(f);
    ok(n_cases > 70 && bad_ids == 0, "%s: ids equal sentencepiece's on %d texts", path, n_cases);
    ok(n_cases > 70 && bad_text == 0, "%s: decoded text equals sentencepiece's", path);
}

#endif

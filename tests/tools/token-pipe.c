/* token-pipe MODEL: encodes and decodes what a test sends.
 *
 * In, again and again: u32 length, that many bytes of text.  Out: u32 number of ids, the ids (u32),
 * u32 length, the decoded text.  At the end, seconds spent in encoding go to stderr. */
#include "core/base/clock.h"
#include "core/token/token.h"

#include <stdio.h>
#include <stdlib.h>

static void send(const void *data, size_t size, size_t n)
{
    uint32_t count = (uint32_t)n;

    fwrite(&count, sizeof count, 1, stdout);
    fwrite(data, size, n, stdout);
}

int main(int argc, char **argv)
{
    struct tern_err err = {0};
    struct tern_token *t = argc == 2 ? tern_token_load(argv[1], &err) : NULL;
    struct tern_token_encoder *e = t ? tern_token_encoder_new(t, &err) : NULL;
    uint32_t len;
    int64_t ns = 0;

    if (!e)
        goto fail;
    while (fread(&len, sizeof len, 1, stdin) == 1) {
        char *text = malloc((size_t)len + 1);
        struct tern_buf back = {0};
        const uint32_t *ids;
        size_t n;
        if (!text || fread(text, 1, len, stdin) != len)
            goto fail;
        int64_t start = tern_clock_boot_ns();
        if (tern_token_encode(e, text, len, &ids, &n, &err) < 0)
            goto fail;
        ns += tern_clock_boot_ns() - start;
        if (tern_token_decode(t, ids, n, &back, &err) < 0)
            goto fail;
        send(ids, sizeof *ids, n);
        send(back.data, 1, back.len);
        tern_buf_free(&back);
        free(text);
    }
    fprintf(stderr, "%.6f\n", (double)ns / 1e9);
    tern_token_encoder_free(e);
    tern_token_free(t);
    return 0;
fail:
    fprintf(stderr, "token-pipe: %s\n", err.text);
    return 1;
}

/* token-pipe [-t] MODEL: encodes and decodes what a test sends.
 *
 * In, again and again: u32 length, that many bytes of text; or u32 IDS + n, n ids (u32).
 * Out for a text: u32 number of ids, the ids (u32), u32 length, their text; for ids: u32 length,
 * their text.  With -t, out for a text: u64 nanoseconds of CPU that a new encoder takes for it.
 * At the end, seconds spent in encoding go to stderr. */
#include "core/base/clock.h"
#include "core/token/token.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IDS 0x80000000u

static struct tern_token *t;
static struct tern_token_encoder *e;
static int64_t ns;
static struct tern_err err;

static void send(const void *data, size_t size, size_t n)
{
    uint32_t count = (uint32_t)n;

    fwrite(&count, sizeof count, 1, stdout);
    fwrite(data, size, n, stdout);
}

static int send_text(const uint32_t *ids, size_t n)
{
    struct tern_buf text = {0};

    if (tern_token_decode(t, ids, n, &text, &err) < 0)
        return -1;
    send(text.data, 1, text.len);
    tern_buf_free(&text);
    return 0;
}

static int encode(const char *text, size_t len)
{
    const uint32_t *ids;
    size_t n;
    int64_t start = tern_clock_boot_ns();

    if (tern_token_encode(e, text, len, &ids, &n, &err) < 0)
        return -1;
    ns += tern_clock_boot_ns() - start;
    send(ids, sizeof *ids, n);
    return send_text(ids, n);
}

static int64_t cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

static int measure(const char *text, size_t len)
{
    struct tern_token_encoder *new = tern_token_encoder_new(t, &err);
    const uint32_t *ids;
    size_t n;
    int64_t start = cpu_ns();
    int rc = new ? tern_token_encode(new, text, len, &ids, &n, &err) : -1;
    uint64_t took = (uint64_t)(cpu_ns() - start);

    fwrite(&took, sizeof took, 1, stdout);
    tern_token_encoder_free(new);
    return rc;
}

int main(int argc, char **argv)
{
    bool timed = argc == 3 && strcmp(argv[1], "-t") == 0;
    uint32_t len;

    t = argc == 2 || timed ? tern_token_load(argv[argc - 1], &err) : NULL;
    e = t ? tern_token_encoder_new(t, &err) : NULL;
    if (!e)
        goto fail;
    while (fread(&len, sizeof len, 1, stdin) == 1) {
        size_t size = len & IDS ? (len & ~IDS) * sizeof len : len;
        char *in = malloc(size + 1);
        if (!in || fread(in, 1, size, stdin) != size)
            goto fail;
        if ((timed       ? measure(in, size)
             : len & IDS ? send_text((uint32_t *)in, size / sizeof len)
                         : encode(in, size)) < 0)
            goto fail;
        fflush(stdout);
        free(in);
    }
    fprintf(stderr, "%.6f\n", (double)ns / 1e9);
    tern_token_encoder_free(e);
    tern_token_free(t);
    return 0;
fail:
    fprintf(stderr, "token-pipe: %s\n", err.text);
    return 1;
}

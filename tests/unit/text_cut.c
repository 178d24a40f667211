/* core/text: files cut off at any byte, or with any bit wrong, give no text that was not there. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/text/text.h"
#include "tests/unit/tap.h"

#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

static char work[] = "/tmp/tern-cut-XXXXXX";
static char *path;

/* The file's content; not made durable, which takes as long as all the rest. */
static void put(const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0)
        abort();
}

/* Documents as "[one][two]", with an error's words behind them; false: another error than one of
 * the input. */
static bool read_all(const struct tern_text_how *how, const void *bytes, size_t n,
                     struct tern_buf *got)
{
    struct tern_err err = {0};
    const char *text;
    size_t len;
    int rc = -1;

    tern_buf_clear(got);
    put(bytes, n);
    struct tern_text *t = tern_text_open(path, how, &err);
    while (t && (rc = tern_text_next(t, &text, &len, &err)) > 0) {
        tern_buf_puts(got, "[");
        tern_buf_add(got, text, len);
        tern_buf_puts(got, "]");
    }
    tern_text_close(t);
    if (rc < 0)
        tern_buf_puts(got, err.text);
    return rc == 0 || err.code == TERN_USAGE;
}

/* A part of a text ends where it does, and an error's words follow. */
static bool is_beginning(const char *got, const char *whole, bool *ret_error)
{
    const char *error = strstr(got, path);
    const size_t docs = error ? (size_t)(error - got) : strlen(got);

    *ret_error = error != NULL;
    return strncmp(got, whole, docs) == 0;
}

static void test_jsonl(void)
{
    static const char *const forms[] = {
        "{\"text\": \"one\"}\n{\"text\": \"t\\u00e9\\n\"}\n\n{\"text\": \"\"}\n",
        "{\"body_text\": [{\"text\": \"one\"}, {\"text\": \"b\"}]}\n{\"content\": {\"text\": "
        "\"two\"}}\n"
        "{\"body\": {\"text\": \"three\"}}\n"};
    static const char *const wholes[] = {"[one][t\xc3\xa9\n][]", "[one\nb][two][three]"};
    struct tern_buf got = {0};

    for (size_t f = 0; f < 2; f++) {
        const struct tern_text_how how = {.format = f ? TERN_TEXT_S2ORC : TERN_TEXT_JSONL};
        size_t wrong = 0;
        bool error;
        for (size_t n = 0; n <= strlen(forms[f]); n++) {
            const bool at_end = n == 0 || forms[f][n - 1] == '\n' || forms[f][n] == '\n';
            bool good = read_all(&how, forms[f], n, &got) &&
                        is_beginning(got.data ? got.data : "", wholes[f], &error) &&
                        error == !at_end;
            if (!good)
                printf("# %zu bytes: %s\n", n, got.data);
            wrong += !good;
        }
        ok(wrong == 0, "%s cut off at any byte is its whole lines, and an error",
           f ? "s2orc" : "JSONL");
    }
    tern_buf_free(&got);
}

/* Two members. */
static size_t pack(const char *text, uint8_t *to, size_t room)
{
    size_t n = 0;

    for (int i = 0; i < 2; i++) {
        z_stream z = {.next_in = (uint8_t *)text,
                      .avail_in = (unsigned)strlen(text),
                      .next_out = to + n,
                      .avail_out = (unsigned)(room - n)};
        if (deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK ||
            deflate(&z, Z_FINISH) != Z_STREAM_END)
            abort();
        n += z.total_out;
        deflateEnd(&z);
    }
    return n;
}

static void test_gzip(void)
{
    static const char text[] = "<doc id=\"1\">\nEl \xe0"
                               "bac\n</doc>\n<doc id=\"2\">\nDos\n</doc>\n";
    static const char whole[] = "[El \xc3\xa0"
                                "bac][Dos][El \xc3\xa0"
                                "bac][Dos]";
    const struct tern_text_how how = {.format = TERN_TEXT_WIKICORPUS};
    uint8_t packed[1024];
    const size_t n = pack(text, packed, sizeof packed);
    struct tern_buf got = {0};
    size_t wrong = 0, silent = 0;
    bool error = false;

    for (size_t len = 0; len <= n; len++) {
        bool good = read_all(&how, packed, len, &got) &&
                    is_beginning(got.data ? got.data : "", whole, &error) &&
                    error == (len != 0 && len != n / 2 && len != n);
        if (!good)
            printf("# %zu bytes of %zu: %s\n", len, n, got.data);
        wrong += !good;
    }
    ok(wrong == 0, "two members of gzip cut off at any byte are an error, but between them");
    for (size_t bit = 0; bit < 8 * n; bit++) {
        packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        bool good = read_all(&how, packed, n, &got) &&
                    is_beginning(got.data ? got.data : "", whole, &error) &&
                    (error || strcmp(got.data, whole) == 0);
        packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (!good)
            printf("# bit %zu: %s\n", bit, got.data);
        wrong += !good;
        silent += !error;
    }
    ok(wrong == 0, "gzip with any bit wrong is an error or the same text");
    /* Time, system and the like in the header of ten bytes. */
    ok(silent < 2 * 8 * 8, "few wrong bits change nothing");
    tern_buf_free(&got);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    path = tern_fs_join(work, "text");
    test_jsonl();
    test_gzip();
    unlink(path);
    rmdir(work);
    free(path);
    return tap_done();
}

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

/* The text of the packed files. */
static const char packed_text[] = "<doc id=\"1\">\nEl \xe0"
                                  "bac\n</doc>\n<doc id=\"2\">\nDos\n</doc>\n";

/* Two members of packed_text, cut off anywhere and with any bit wrong, or each `step`-th one.
 * `silent_max`: bits that say nothing of the text, at most. */
static void test_packed(const char *name, uint8_t *packed, size_t n, size_t step, size_t silent_max)
{
    static const char whole[] = "[El \xc3\xa0"
                                "bac][Dos][El \xc3\xa0"
                                "bac][Dos]";
    const struct tern_text_how how = {.format = TERN_TEXT_WIKICORPUS};
    struct tern_buf got = {0};
    size_t wrong = 0, silent = 0;
    bool error = false;

    if (read_all(&how, packed, n, &got) && strstr(got.data, "was built without")) {
        printf("# this tern was built without the library of %s\n", name);
        tap_skip("a codec that this tern was built without");
        tern_buf_free(&got);
        return;
    }
    for (size_t len = 0; len <= n; len++) {
        bool good = read_all(&how, packed, len, &got) &&
                    is_beginning(got.data ? got.data : "", whole, &error) &&
                    error == (len != 0 && len != n / 2 && len != n);
        if (!good)
            printf("# %zu bytes of %zu: %s\n", len, n, got.data);
        wrong += !good;
    }
    ok(wrong == 0, "two members of %s cut off at any byte are an error, but between them", name);
    wrong = 0;
    for (size_t bit = 0; bit < 8 * n; bit += step) {
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
    ok(wrong == 0, "%s with any bit wrong is an error or the same text", name);
    ok(silent < silent_max, "%s: few wrong bits change nothing (%zu)", name, silent);
    tern_buf_free(&got);
}

static void test_gzip(void)
{
    uint8_t packed[1024];

    /* Time, system and the like in the header of ten bytes. */
    test_packed("gzip", packed, pack(packed_text, packed, sizeof packed), 1, 2 * 8 * 8);
}

/* packed_text by `zstd -c`, `bzip2 -c` and `xz -c`. */
static const uint8_t zst[] = {0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0xa1, 0x01, 0x00, 0x3c, 0x64,
                              0x6f, 0x63, 0x20, 0x69, 0x64, 0x3d, 0x22, 0x31, 0x22, 0x3e, 0x0a,
                              0x45, 0x6c, 0x20, 0xe0, 0x62, 0x61, 0x63, 0x0a, 0x3c, 0x2f, 0x64,
                              0x6f, 0x63, 0x3e, 0x0a, 0x3c, 0x64, 0x6f, 0x63, 0x20, 0x69, 0x64,
                              0x3d, 0x22, 0x32, 0x22, 0x3e, 0x0a, 0x44, 0x6f, 0x73, 0x0a, 0x3c,
                              0x2f, 0x64, 0x6f, 0x63, 0x3e, 0x0a, 0x97, 0x17, 0x92, 0x41};
static const uint8_t bz2[] = {
    0x42, 0x5a, 0x68, 0x39, 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, 0xe1, 0xbf, 0x04, 0x3c, 0x00, 0x00,
    0x09, 0xdd, 0x81, 0x00, 0x10, 0x50, 0x00, 0xb0, 0x07, 0x06, 0x00, 0x3c, 0x24, 0x88, 0x00, 0x40,
    0x00, 0x20, 0x00, 0x20, 0xaa, 0xa1, 0xa0, 0x6d, 0x20, 0xc9, 0xea, 0x14, 0xc2, 0x69, 0xa0, 0x34,
    0xc4, 0xfb, 0xc8, 0x33, 0x62, 0xc8, 0x8b, 0x21, 0x52, 0xee, 0x54, 0x51, 0x79, 0xc4, 0x92, 0xab,
    0x0c, 0x27, 0xa2, 0x78, 0xd7, 0xf1, 0x77, 0x24, 0x53, 0x85, 0x09, 0x0e, 0x1b, 0xf0, 0x43, 0xc0};
static const uint8_t xz[] = {
    0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x04, 0xe6, 0xd6, 0xb4, 0x46, 0x02, 0x00, 0x21,
    0x01, 0x16, 0x00, 0x00, 0x00, 0x74, 0x2f, 0xe5, 0xa3, 0xe0, 0x00, 0x33, 0x00, 0x29, 0x5d,
    0x00, 0x1e, 0x19, 0x09, 0xe6, 0x44, 0x33, 0xcf, 0x61, 0xa7, 0xa2, 0x55, 0x7a, 0xc8, 0x24,
    0x66, 0xa8, 0x50, 0x1e, 0xb8, 0x35, 0xc6, 0x6d, 0xf2, 0x69, 0xdd, 0x1f, 0x5f, 0xcd, 0x57,
    0x33, 0x0c, 0x8a, 0x4f, 0x84, 0x38, 0x84, 0x39, 0xb7, 0x4d, 0x32, 0xc0, 0x00, 0x00, 0x00,
    0x00, 0xb8, 0x3c, 0xce, 0xe4, 0x33, 0xfa, 0x31, 0x21, 0x00, 0x01, 0x45, 0x34, 0xde, 0xfa,
    0x3c, 0x8c, 0x1f, 0xb6, 0xf3, 0x7d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x04, 0x59, 0x5a};

static void test_others(void)
{
    static const struct {
        const char *name;
        const uint8_t *member;
        size_t n, silent;
    } formats[] = {
        {"Zstandard", zst, sizeof zst, 2 * 16},
        {"bzip2", bz2, sizeof bz2, 2 * 64},
        {"xz", xz, sizeof xz, 2 * 16},
    };
    uint8_t two[1024];

    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        memcpy(two, formats[i].member, formats[i].n);
        memcpy(two + formats[i].n, formats[i].member, formats[i].n);
        test_packed(formats[i].name, two, 2 * formats[i].n, tap_long() ? 1 : 3, formats[i].silent);
    }
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    path = tern_fs_join(work, "text");
    test_jsonl();
    test_gzip();
    test_others();
    unlink(path);
    rmdir(work);
    free(path);
    return tap_done();
}

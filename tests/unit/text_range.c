/* core/text/range.c: a file cut at any byte gives the documents of the whole one, once each. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/text/parse.h"
#include "tests/unit/tap.h"

#include <unistd.h>

static char work[] = "/tmp/tern-range-XXXXXX";

/* The documents of bytes from .. to - 1, each with a bar behind it, appended. */
static int read_range(const char *path, const struct tern_text_how *how, uint64_t from, uint64_t to,
                      struct tern_buf *ret_docs)
{
    struct tern_text_source *s = tern_text_source_open(path, how, NULL);
    struct tern_text_chunk chunk = {0};
    struct tern_text_parser parser = {0};
    const char *text;
    size_t len;
    int rc = s ? tern_text_source_range(s, from, to, NULL) : -1;

    while (rc >= 0 && (rc = tern_text_source_cut(s, &chunk, NULL)) > 0) {
        tern_text_parser_begin(&parser, how, path, s->format, &chunk);
        while ((rc = tern_text_parser_next(&parser, &text, &len, NULL)) > 0) {
            tern_buf_add(ret_docs, text, len);
            tern_buf_puts(ret_docs, "|");
        }
        s->line = parser.line;
    }
    tern_text_parser_free(&parser);
    tern_text_chunk_free(&chunk);
    tern_text_source_close(s);
    return rc;
}

/* Where documents begin behind byte 0, by the words of source.h. */
static bool begins(const char *bytes, size_t at, const char *split)
{
    size_t from, end = at - 1;

    if (bytes[end] != '\n')
        return false;
    if (!split)
        return true;
    for (from = end; from > 0 && bytes[from - 1] != '\n'; from--)
        ;
    if (from == 0 && strncmp(bytes, "\xef\xbb\xbf", 3) == 0)
        from = 3;
    return tern_text_is_split(split, bytes + from, end - from);
}

static void test_file(const char *name, const char *bytes, const char *split)
{
    char *path = tern_fs_join(work, "file");
    const size_t n = strlen(bytes);
    const struct tern_text_how how = {.format = split ? TERN_TEXT_PLAIN : TERN_TEXT_JSONL,
                                      .split = split};
    struct tern_buf whole = {0}, parts = {0};
    bool places = true, same = true;

    tern_fs_replace(path, bytes, n, 0600, NULL);
    read_range(path, &how, 0, n, &whole);
    struct tern_text_source *s = tern_text_source_open(path, &how, NULL);
    ok(s && tern_text_source_cuttable(s), "%s: can be cut", name);
    for (size_t at = 0; s && at <= n; at++) {
        uint64_t got = 0, wanted = at;
        while (wanted && wanted < n && !begins(bytes, wanted, split))
            wanted++;
        tern_buf_clear(&parts);
        places = places && tern_text_source_boundary(s, at, &got, NULL) == 0 && got == wanted;
        same = same && read_range(path, &how, 0, got, &parts) == 0 &&
               read_range(path, &how, got, n, &parts) == 0 && parts.len == whole.len &&
               memcmp(parts.data, whole.data, whole.len) == 0;
        if (!places || !same)
            printf("# byte %zu: %llu, wanted %llu\n", at, (unsigned long long)got,
                   (unsigned long long)wanted);
    }
    ok(places, "%s: the boundary behind each byte", name);
    ok(same && whole.len > 5, "%s: cut at any byte, the documents are those of the whole", name);
    tern_text_source_close(s);
    tern_buf_free(&whole);
    tern_buf_free(&parts);
    free(path);
}

/* Longer than the window in which boundaries are looked for. */
static void test_long(void)
{
    enum { LONG = 3 << 20 };
    char *path = tern_fs_join(work, "long");
    struct tern_buf b = {0};
    const struct tern_text_how how = {.format = TERN_TEXT_PLAIN, .split = "%"};
    uint64_t at = 0;

    tern_buf_puts(&b, "one\n%\n");
    for (size_t i = 0; i < LONG; i++)
        tern_buf_puts(&b, i % 1000 ? "%" : "\n");
    tern_buf_puts(&b, "\n%\nlast");
    tern_fs_replace(path, b.data, b.len, 0600, NULL);
    struct tern_text_source *s = tern_text_source_open(path, &how, NULL);
    ok(tern_text_source_boundary(s, 7, &at, NULL) == 0 && at == b.len - 4,
       "the end of a document of 3 MiB is found");
    tern_text_source_close(s);
    tern_buf_free(&b);
    free(path);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_file("lines",
              "{\"text\":\"one\"}\n{\"text\":\"two\"}\r\n\n{\"text\":\"\"}\n \n{\"text\":\"x\"}",
              NULL);
    test_file("lines with a mark", "\xef\xbb\xbf{\"text\":\"one\"}\n{\"text\":\"two\"}\n", NULL);
    test_file("parts", "one\ntwo\n%\nthree\n%\r\n%\n%%\n %\nfour%\n%", "%");
    test_file("parts with a mark", "\xef\xbb\xbf%\none\n%\ntwo\n", "%");
    test_file("parts that begin at once", "%\none\n%\n%\n", "%");
    test_file("parts of blank lines", "one\n\ntwo\n\r\n\nthree\nfour\n\n", "");
    test_file("parts of long lines", "one\n=====\n====\ntwo\n=====\r\n=====x\nthree", "=====");
    test_long();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

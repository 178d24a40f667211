/* core/text: articles of Wikicorpus, text in Latin-1, files that are no text. */
#include "core/base/fs.h"
#include "core/base/rand.h"
#include "core/base/str.h"
#include "core/text/kind.h"
#include "core/text/latin1.h"
#include "core/text/text.h"
#include "tests/unit/tap.h"

#include <stdlib.h>
#include <unistd.h>

static char work[] = "/tmp/tern-article-XXXXXX";
static char *path;

/* The file's content; not made durable, which takes as long as all the rest. */
static void put(const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0)
        abort();
}

/* Documents of a text as "[one][two]", or the error; with what was left out behind it. */
static const char *read_as(const struct tern_text_how *how, const char *bytes, size_t n)
{
    static struct tern_buf got;
    struct tern_err err = {0};
    const char *text;
    size_t len;
    int rc = -1;

    tern_buf_clear(&got);
    put(bytes, n);
    struct tern_text *t = tern_text_open(path, how, &err);
    while (t && (rc = tern_text_next(t, &text, &len, &err)) > 0) {
        tern_buf_puts(&got, "[");
        tern_buf_add(&got, text, len);
        tern_buf_puts(&got, "]");
    }
    const struct tern_text_counts c = t ? tern_text_counts(t) : (struct tern_text_counts){0};
    if (rc < 0)
        tern_buf_printf(&got, "%s",
                        tern_str_starts(err.text, path) ? err.text + strlen(path) : err.text);
    if (rc < 0 && err.code != TERN_USAGE)
        tern_buf_puts(&got, " (not the input's fault)");
    for (uint64_t i = 0; i < c.bad && i < TERN_TEXT_BAD_NAMED; i++)
        tern_buf_printf(&got, " bad line %d", (int)c.bad_line[i]);
    if (c.skipped || c.too_short)
        tern_buf_printf(&got, " skipped %d short %d", (int)c.skipped, (int)c.too_short);
    tern_text_close(t);
    return got.data ? got.data : "";
}

static const char *reads(const struct tern_text_how *how, const char *text)
{
    return read_as(how, text, strlen(text));
}

static const struct tern_text_how automatic, skip_bad = {.skip_bad = true},
                                             utf8 = {.encoding = TERN_TEXT_UTF8},
                                             latin1 = {.encoding = TERN_TEXT_LATIN1};

#define HEAD(id)                                                                                   \
    "<doc id=\"" id "\" title=\"T\" nonfiltered=\"1\" processed=\"1\" dbindex=\"0\">\r\n"
#define TAIL "\r\n\r\nENDOFARTICLE.\r\n</doc>\r\n"

static void test_articles(void)
{
    is(reads(&automatic, HEAD("1") "\r\nEl \xc0"
                                   "bac .\r\n\r\n Notes .\r\n" TAIL HEAD("2") "Dos" TAIL),
       "[El \xc3\x80"
       "bac .\n\n Notes .][Dos]",
       "articles as they are published: Latin-1, CR LF, blank lines and a mark at their end");
    is(reads(&automatic, "<doc id=\"1\">\none\ntwo\n</doc>\n<doc id=\"2\">\n</doc>"),
       "[one\ntwo][]", "articles without CR, mark and last newline; an empty one");
    is(reads(&automatic, "<doc id=\"1\">\nR&amp;D &lt;b&gt;\n</doc>\n"), "[R&amp;D &lt;b&gt;]",
       "entities stay as they are");
    is(reads(&automatic, "\xef\xbb\xbf<doc id=\"1\">\nd\xc3\xa9j\xc3\xa0\n</doc>\n"),
       "[d\xc3\xa9j\xc3\xa0]", "articles with UTF-8's mark are UTF-8");
    is(reads(&automatic, "<doc id=\"1\">\ncaf\xc3\xa9 \xc3\xa0\n</doc>\n"),
       ": is UTF-8, and would be read as Latin-1, as Wikicorpus is published. Say --encoding "
       "utf-8.",
       "articles in UTF-8 are refused");
    is(reads(&utf8, "<doc id=\"1\">\ncaf\xc3\xa9 \xc3\xa0\n</doc>\n"), "[caf\xc3\xa9 \xc3\xa0]",
       "articles in UTF-8 are read with --encoding utf-8");
    is(reads(&latin1, "<doc id=\"1\">\n\xc3\xa9\xc3\xa9\n</doc>\n"),
       "[\xc3\x83\xc2\xa9\xc3\x83\xc2\xa9]", "with --encoding latin-1 every byte is a character");
    is(reads(&utf8, "<doc id=\"1\">\none\n</doc>\n<doc id=\"2\">\n\nbad \xe9\n</doc>\n"),
       "[one]:4: is not UTF-8: 0xe9 at byte 4 of the text, 1 such bytes in the file. Convert "
       "the file (iconv), or say --invalid replace or skip.",
       "an article that is not UTF-8 is named by its first line");
    is(read_as(&automatic, "<doc id=\"1\">\na\0b\n</doc>\n", 23),
       ":1: the article is not text: byte 1 of it is NUL. Say --invalid skip to leave it out.",
       "an article with a NUL byte is refused");
    is(reads(&automatic,
             "<doc id=\"1\" title=\"T\">\n\nHimno himno NCMS000 07034009\nde de SPS00 0\n"
             "las el DA0FP0 0\nAm am NP00SP0 0\n. . Fp 0\n</doc>\n"),
       ": is of the tagged Wikicorpus. Take the raw one: raw.ca, raw.en, raw.es.",
       "the tagged form is refused by name");
}

static void test_damage(void)
{
    static const char hint[] = ". Is the file whole? --skip-bad leaves such articles out.";
    char want[200];

    snprintf(want, sizeof want, "[one]:4: the article has no line </doc>%s", hint);
    is(reads(&automatic, "<doc id=\"1\">\none\n</doc>\n<doc id=\"2\">\ntwo\n"), want,
       "an article that is cut off is refused");
    is(reads(&skip_bad, "<doc id=\"1\">\none\n</doc>\n<doc id=\"2\">\ntwo\n"), "[one] bad line 4",
       "an article that is cut off is left out by --skip-bad");
    snprintf(want, sizeof want, ":1: the article has no line </doc>%s", hint);
    is(reads(&automatic, "<doc id=\"1\">\none\n<doc id=\"2\">\ntwo\n</doc>\n"), want,
       "an article inside another is refused");
    is(reads(&skip_bad, "<doc id=\"1\">\none\n<doc id=\"2\">\ntwo\n</doc>\n"), "[two] bad line 1",
       "of an article inside another the inner one is left by --skip-bad");
    snprintf(want, sizeof want, "[one]:5: text outside of <doc ...> and </doc>%s", hint);
    is(reads(&automatic, "<doc id=\"1\">\none\n</doc>\n\ngarbage\n<doc id=\"2\">\ntwo\n</doc>\n"),
       want, "text between articles is refused");
    is(reads(&skip_bad,
             "<doc id=\"1\">\none\n</doc>\n\ngarbage\nmore\n<doc id=\"2\">\ntwo\n</doc>\nend"),
       "[one][two] bad line 5 bad line 10", "text between articles is left out by --skip-bad");
    is(reads(&skip_bad, "<doc id=\"1\">\none\n</doc>\n</doc>\n"), "[one] bad line 4",
       "a second </doc> is bad");
}

/* Every beginning of a file: its whole articles, and an error unless it ends between two. */
static void test_cut_off(void)
{
    static const char whole[] = HEAD("1") "one" TAIL HEAD("2") "two" TAIL;
    const size_t n = sizeof whole - 1;
    const char *second = strstr(whole + 1, "<doc ");
    const size_t first_end = (size_t)(second - whole);
    size_t wrong = 0;

    for (size_t len = 0; len <= n; len++) {
        const char *got =
            read_as(&(struct tern_text_how){.format = TERN_TEXT_WIKICORPUS}, whole, len);
        const bool one = len >= first_end - 2, two = len >= n - 2;
        bool good = tern_str_starts(got, two ? "[one][two]" : one ? "[one]" : "");
        const char *rest = got + (two ? 10 : one ? 5 : 0);
        if (len == 0 || (len + 2 >= first_end && len <= first_end) || two)
            good = good && *rest == '\0';
        else
            good = good && *rest == ':';
        if (!good)
            printf("# %zu bytes: %s\n", len, got);
        wrong += !good;
    }
    ok(wrong == 0, "a file cut off at any byte gives its whole articles, and an error");
}

/* Articles of random lengths, larger than pieces at times: the same however they are cut. */
static void test_pieces(void)
{
    struct tern_buf file = {0}, want = {0};

    for (uint64_t d = 0; d < 60; d++) {
        uint64_t n = tern_rand_below(1, d, 0, d % 10 == 9 ? 900000 : 30000);
        tern_buf_printf(&file, "<doc id=\"%d\">\n%dx", (int)d, (int)d);
        tern_buf_printf(&want, "[%dx", (int)d);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t r = tern_rand_below(2, d, i, 40);
            tern_buf_puts(&file, r == 0 ? "\xe9" : r == 1 ? "\n" : r == 2 ? "</doc> " : "a");
            tern_buf_puts(&want, r == 0 ? "\xc3\xa9" : r == 1 ? "\n" : r == 2 ? "</doc> " : "a");
        }
        tern_buf_puts(&file, "z\nENDOFARTICLE.\n</doc>\n");
        tern_buf_puts(&want, "z]");
    }
    is(strcmp(read_as(&automatic, file.data, file.len), want.data) == 0 ? "same" : "different",
       "same", "articles in Latin-1 over many pieces are whole");
    tern_buf_free(&file);
    tern_buf_free(&want);
}

/* ---- Latin-1 ---- */

static void test_latin1(void)
{
    char all[256], wide[512], over[1024];
    size_t n, wrong = 0;

    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    n = tern_text_latin1_decode(all, sizeof all, wide);
    ok(n == 128 + 2 * 128, "128 characters of Latin-1 have two bytes in UTF-8");
    for (size_t i = 0, at = 0; i < 256; i++) {
        const unsigned char *w = (const unsigned char *)wide + at;
        wrong +=
            i < 128 ? w[0] != i : (((w[0] & 0x1fu) << 6) | (w[1] & 0x3fu)) != i || w[0] >> 5 != 6;
        at += i < 128 ? 1 : 2;
    }
    ok(wrong == 0, "every byte of Latin-1 is its code in UTF-8");
    for (uint64_t r = 0; r < 3000; r++) {
        const size_t len = tern_rand_below(3, r, 0, 300);
        char *from = over + 2 * len - len, apart[300];
        for (size_t i = 0; i < len; i++)
            apart[i] = from[i] =
                (char)(tern_rand_below(3, r, 1, 3) == 0 ? 'a' : (int)tern_rand_below(4, r, i, 256));
        char want[600];
        const size_t n_want = tern_text_latin1_decode(apart, len, want);
        n = tern_text_latin1_decode(from, len, over);
        wrong += n != n_want || memcmp(over, want, n) != 0;
    }
    ok(wrong == 0, "Latin-1 at the end of its own room is decoded as elsewhere");
    is(reads(&latin1, "caf\xe9\n"), "[caf\xc3\xa9\n]", "plain text in Latin-1");
    is(reads(&latin1, "{\"text\": \"caf\xe9 \\u00e9\"}\n"), "[caf\xc3\xa9 \xc3\xa9]",
       "JSONL in Latin-1, with an escape");
    ok(strstr(reads(&latin1, "\xef\xbb\xbf"
                             "text"),
              ": begins with UTF-8's byte order mark"),
       "a file with UTF-8's mark is not Latin-1");
}

static void test_doubt(void)
{
    static const struct {
        const char *text;
        bool utf8;
    } cases[] = {{"plain", false},
                 {"caf\xc3\xa9 \xc3\xa0", true},
                 {"caf\xc3\xa9", false},                     /* one may be chance */
                 {"\xc3\xa9 \xe9 \xc3\xa9 \xc3\xa9", false}, /* one that is not decides */
                 {"\xe2\x82\xac \xf0\x9f\x98\x80", true},
                 {"\xe2\x82 \xc3\xa9\xc3\xa9", false},
                 {"\x80\xc3\xa9\xc3\xa9", false},
                 {"\xc0\x80\xc3\xa9\xc3\xa9", false}};
    size_t wrong = 0;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t cut = 0; cut <= strlen(cases[i].text); cut++) {
            struct tern_text_latin1 l = {0};
            bool is_utf8 = tern_text_latin1_is_utf8(&l, cases[i].text, cut);
            is_utf8 |=
                tern_text_latin1_is_utf8(&l, cases[i].text + cut, strlen(cases[i].text + cut));
            wrong += is_utf8 != cases[i].utf8;
        }
    ok(wrong == 0,
       "two characters of UTF-8 and nothing else tell it from Latin-1, read in any pieces");
}

/* ---- no text ---- */

static void test_kinds(void)
{
    static char tar[600];
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } cases[] = {{"PAR1\x15\x04", 6, ": is a Parquet file, not text in UTF-8. Write its texts as"},
                 {"ARROW1\0\0", 8, ": is an Arrow file, not text in UTF-8. Name it decompressed"},
                 {"\xff\xff\xff\xff\x10\0\0\0", 8, ": is an Arrow stream"},
                 {"PK\x03\x04", 4, ": is a zip archive, not text in UTF-8. Unpack it (unzip)"},
                 {"%PDF-1.7\n", 9, ": is a PDF file, not text in UTF-8. Take its text out of it"},
                 {"\xff\xfe{\0", 4, ": is UTF-16 or UTF-32, not text in UTF-8. Convert it: iconv"},
                 {"\xfe\xff\0{", 4, ": is UTF-16, not text"},
                 {"T\0e\0x\0t\0", 8,
                  ": is UTF-16 without a mark, not text in UTF-8. Convert it: "
                  "iconv -f UTF-16LE"},
                 {"\0T\0e\0x\0t", 8, "iconv -f UTF-16BE"},
                 {"ternTDS\n", 8, ": is a token set already"},
                 {tar, sizeof tar, ": is a tar archive, not text in UTF-8. Unpack it (tar -xf)"}};

    memcpy(tar + 257, "ustar", 5);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        has(read_as(
                &(struct tern_text_how){.format = TERN_TEXT_PLAIN, .invalid = TERN_TEXT_REPLACE},
                cases[i].bytes, cases[i].n),
            cases[i].says, "known by its first bytes%s", cases[i].says);
    is(reads(&automatic, "PAR1 is a word\n"), "[PAR1 is a word\n]",
       "a text may begin as Parquet does");
    ok(!tern_text_kind_of("", 0) && !tern_text_kind_of("PAR1", 4), "short files are of no kind");
}

static void test_min_bytes(void)
{
    const struct tern_text_how how = {.min_bytes = 4};

    is(reads(&how, "{\"text\": \"abc\"}\n{\"text\": \"\"}\n{\"text\": \"abcd\"}\n{\"text\": "
                   "\"\xc3\xa9\xc3\xa9\"}\n"),
       "[][abcd][\xc3\xa9\xc3\xa9] skipped 0 short 1",
       "documents below the least length, in bytes of UTF-8, are left out and counted");
    is(reads(&(struct tern_text_how){.min_bytes = 4, .encoding = TERN_TEXT_LATIN1}, "\xe9\xe9"),
       "[\xc3\xa9\xc3\xa9]", "the length counts as UTF-8");
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    path = tern_fs_join(work, "text");
    test_articles();
    test_damage();
    test_cut_off();
    test_pieces();
    test_latin1();
    test_doubt();
    test_kinds();
    test_min_bytes();
    unlink(path);
    rmdir(work);
    free(path);
    return tap_done();
}

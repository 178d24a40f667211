/* core/text: JSON that no option named is never read as plain text; byte order marks inside a file;
 * control characters. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/text/json_like.h"
#include "core/text/text.h"
#include "tests/unit/tap.h"

#include <stdlib.h>
#include <unistd.h>

static char work[] = "/tmp/tern-like-XXXXXX";
static char *path;
static struct tern_text_counts counts;

/* Documents as "[one][two]", with an error's words behind them. */
static const char *reads_n(const struct tern_text_how *how, const char *bytes, size_t n)
{
    static struct tern_buf got;
    struct tern_err err = {0};
    const char *text;
    size_t len;
    int rc = -1;

    tern_buf_clear(&got);
    tern_buf_puts(&got, "");
    tern_fs_replace(path, bytes, n, 0644, NULL);
    struct tern_text *t = tern_text_open(path, how, &err);
    while (t && (rc = tern_text_next(t, &text, &len, &err)) > 0) {
        tern_buf_puts(&got, "[");
        tern_buf_add(&got, text, len);
        tern_buf_puts(&got, "]");
    }
    if (t)
        counts = tern_text_counts(t);
    tern_text_close(t);
    if (rc < 0)
        tern_buf_puts(&got, err.text);
    return got.data;
}

static const char *reads(const struct tern_text_how *how, const char *text)
{
    return reads_n(how, text, strlen(text));
}

static const struct tern_text_how automatic = {0}, plain = {.format = TERN_TEXT_PLAIN},
                                  jsonl = {.format = TERN_TEXT_JSONL},
                                  parted = {.format = TERN_TEXT_PLAIN, .split = "%"};

/* ---- what looks like JSON ---- */

static void test_asks(void)
{
    static const struct {
        const char *what, *text;
    } cases[] = {
        {"an array of objects", "[{\"text\": \"one\"},\n{\"text\": \"two\"}]\n"},
        {"an array of objects, line by line",
         "[\n  {\"text\": \"one\"},\n  {\"text\": \"two\"}\n]\n"},
        {"an array of strings", "[\"one\", \"two\"]\n"},
        {"an array a line", "[\"one\", 1]\n[\"two\", 2]\n"},
        {"an array of arrays", "[[\"one\"], [\"two\"]]\n"},
        {"an indented object", "{\n  \"text\": \"one\",\n  \"n\": 1\n}\n"},
        {"a first line cut off",
         "{\"text\":\"document one\n{\"text\":\"two\"}\n{\"text\":\"three\"}\n"},
        {"a first line cut off in front",
         "ment one\"}\n{\"text\":\"two\"}\n{\"text\":\"three\"}\n"},
        {"a TAB in a string", "{\"text\":\"a\tb\"}\n{\"text\":\"two\"}\n"},
        {"two objects on a line", "{\"text\":\"one\"}{\"text\":\"two\"}\n"},
        {"objects with commas", "{\"text\":\"one\"},\n{\"text\":\"two\"},\n"},
        {"lines that end in CR", "{\"text\":\"one\"}\r{\"text\":\"two\"}\r"},
        {"a comment first", "// made by a tool\n{\"text\":\"one\"}\n"},
        {"a comment before an indented object", "// made by a tool\n{\n \"text\":\"one\"\n}\n"},
        {"a string a line", "\"document one\"\n\"document two\"\n"},
        {"strings with commas", "\"document one\",\n\"document \\\"two\\\"\",\n"},
        {"a dict of Python", "{'text': 'one'}\n{'text': 'two'}\n"},
        {"another control character first", "\x02{\"text\": \"one\"\n"},
        {"marks before an array", "\xef\xbb\xbf\xef\xbb\xbf[{\"text\": \"one\"}]"},
        {"objects behind a line of names", "name,text\n{\"text\":\"one\"}\n{\"text\":\"two\"}\n"},
        {"objects behind eight lines of names",
         "1\n2\n3\n4\n5\n6\n7\n8\n{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n{\"n\":4}\n"
         "{\"n\":5}\n{\"n\":6}\n{\"n\":7}\n{\"n\":8}\n"},
        {"blanks before a colon", "  { \"text\" : \"one\",\n"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        has(reads(&automatic, cases[i].text), "Say --format jsonl", "asks for the format: %s",
            cases[i].what);
        struct tern_buf want = {0};
        const size_t mark = memcmp(cases[i].text, "\xef\xbb\xbf", 3) == 0 ? 6 : 0;
        tern_buf_printf(&want, "[%s]", cases[i].text + mark);
        is(reads(&plain, cases[i].text), want.data, "as plain text it is read whole: %s",
           cases[i].what);
        tern_buf_free(&want);
    }
}

static void test_plain(void)
{
    static const struct {
        const char *what, *text;
    } cases[] = {
        {"LaTeX in braces", "{\\rm Theorem} 1. Let \"x\": be\n"},
        {"an umlaut of LaTeX", "{\\\"o}sterreich ist sch\\\"on\n"},
        {"a list of references", "[1] Reference to a book.\n[2] Another one.\n"},
        {"rows of numbers in brackets", "[1, 2, 3]\n[4, 5, 6]\n"},
        {"a link of Markdown", "[link](http://example.org) and \"more\"\n"},
        {"speech in brackets", "[\"Hello\" said the cat] and went\n"},
        {"a link of a wiki", "[[Category:Cats]] are \"fine\"\n"},
        {"a template of a wiki", "{{Infobox person\n| name = \"Ada\"\n}}\nAda was\n"},
        {"a block of C", "{\n    int x = 1;\n    return x;\n}\n"},
        {"initialisers of C", "{ \"quoted\", 1 },\n{ \"more\", 2 },\n"},
        {"an apostrophe behind a brace", "{'tis the season}\n"},
        {"prose in braces", "{ this is prose }\n"},
        {"a file of C with a comment first",
         "// a C file\n#include <stdio.h>\nint main(void) { return 0; }\n"},
        {"speech with the rest of its sentences", "\"Hello there,\" she said.\n\"Yes.\"\n"},
        {"speech in paragraphs", "\"Yes.\"\n\n\"No.\"\n\n\"Why?\"\n"},
        {"a title in quotes", "\"A title\"\n"},
        {"prose with an object in it",
         "Settings are JSON:\n\n{\"a\": 1}\n\nThe first is a.\nThe second is b.\nSo it goes.\n"},
        {"a brace alone", "{"},
        {"a bracket alone", "["},
        {"a bracket and a quote", "[\""},
        {"a brace and a quote", "{\""},
        {"a quote alone", "\""},
        {"a comment alone", "//"},
        {"nothing", ""},
        {"a script with an object in quotes", "#!/bin/sh\necho '{\"a\": 1}'\n"},
        {"a quote that does not end in its line", "{\"\n"},
        {"LaTeX in brackets", "[{\\bf x}]\n"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tern_buf want = {0};
        tern_buf_printf(&want, "[%s]", cases[i].text);
        is(reads(&automatic, cases[i].text), want.data, "plain text without a question: %s",
           cases[i].what);
        tern_buf_free(&want);
    }
}

static void test_lines(void)
{
    is(reads(&automatic, "\x1e{\"text\": \"one\"}\n\x1e{\"text\": \"two\"}\n"), "[one][two]",
       "records of RFC 7464 are JSONL");
    is(reads(&automatic, "\n \n{\"text\": \"one\"}\n"), "[one]",
       "JSONL is found behind blank lines");
    /* Longer than what is looked at. */
    for (int space = 0; space < 2; space++) {
        struct tern_buf b = {0};
        tern_buf_printf(&b, "{%s\"text\": \"", space ? " " : "");
        for (int i = 0; i < 300 << 10; i++)
            tern_buf_puts(&b, "x");
        tern_buf_puts(&b, "\"}\n");
        has(reads(&automatic, b.data), "Say --format jsonl",
            "a first line of 300 KiB asks, blanks first: %d", space);
        ok(strlen(reads(&jsonl, b.data)) == 2 + (300 << 10),
           "a first line of 300 KiB is read as JSONL, blanks first: %d", space);
        tern_buf_free(&b);
    }
    struct tern_buf b = {0};
    tern_buf_puts(&b, "[\"");
    for (int i = 0; i < 300 << 10; i++)
        tern_buf_puts(&b, "y");
    has(reads(&automatic, b.data), "is a JSON array", "a first string of 300 KiB asks");
    tern_buf_free(&b);
    ok(!tern_text_json_like("", 0, true) && !tern_text_json_like("{", 1, false),
       "nothing, and a brace alone, are not JSON");
}

/* ---- byte order marks ---- */

#define M "\xef\xbb\xbf"

static void test_marks(void)
{
    is(reads(&automatic, M "one\n" M "two\n"), "[one\ntwo\n]",
       "a mark inside a joined text is none");
    ok(counts.marks == 1, "a mark before a line is counted");
    is(reads(&automatic, M M "one\n"), "[one\n]", "of two marks at the beginning none stays");
    ok(counts.marks == 1, "the second mark at the beginning is counted");
    is(reads(&automatic, "one" M " two\n"), "[one" M " two\n]", "inside a line it is a character");
    ok(counts.marks == 0, "a character is not counted");
    is(reads(&automatic, "a\n" M M M "b\r" M "c"), "[a\nb\rc]", "several marks before a line");
    ok(counts.marks == 4, "each is counted");
    is(reads(&automatic, M), "[]", "a file of a mark alone is empty");
    is(reads(&automatic, M "{\"text\": \"one\"}\n" M "{\"text\": \"two\"}\n" M "\n" M M),
       "[one][two]", "marks before lines of JSONL");
    ok(counts.marks == 4, "marks before lines of JSONL are counted");
    is(reads(&jsonl, M M "{\"text\": \"" M "x\"}\n"), "[" M "x]", "inside a JSON string it stays");
    is(reads(&parted, M "a\n%\n" M "b\nc\n" M "%\nd\n"), "[a][b\nc][d]", "marks in parted text");
    ok(counts.marks == 2, "marks in parted text are counted once");
    is(reads(&(struct tern_text_how){.invalid = TERN_TEXT_REPLACE}, "a\xff\n" M "b"),
       "[a\xef\xbf\xbd\nb]", "marks are left out of a mended text");
    has(reads(&plain, M "a\n" M "b\xff"), "0xff at byte 9",
        "an error's offset is that of the file");
    is(reads(&(struct tern_text_how){.format = TERN_TEXT_WIKICORPUS, .encoding = TERN_TEXT_UTF8},
             M "<doc id=\"1\">\n" M "a\n</doc>\n" M "<doc id=\"2\">\nb\n</doc>\n"),
       "[a][b]", "marks in joined articles");
}

/* ---- control characters ---- */

static void test_controls(void)
{
    static const struct {
        const char *what, *bytes;
        size_t n;
        const char *says;
    } bad[] = {
#define B(s) s, sizeof(s) - 1
        {"Russian", B("\x1f\x04\x40\x04\x38\x04\x32\x04\x35\x04\x42\x04"),
         "is UTF-16 without a mark, not text in UTF-8: 0x04 at byte 1. Convert it: iconv -f "
         "UTF-16LE"},
        {"Russian, big end first", B("\x04\x1f\x04\x40\x04\x38\x04\x32\x04\x35\x04\x42"),
         "0x04 at byte 0. Convert it: iconv -f UTF-16BE"},
        {"two letters", B("\x14\x04\x30\x04"), "UTF-16LE"},
        {"capitals, big end first", B("\x04\x14\x04\x10\x04\x19\x04\x12"), "UTF-16BE"},
        {"Russian with spaces", B("\x34\x04\x30\x04\x20\x00\x3d\x04\x35\x04\x42\x04"), "UTF-16LE"},
        {"Greek", B("\x51\x03\x3b\x03\x46\x03\x31\x03"), "UTF-16LE"},
        {"Hindi", B("(\t.\t8\tM\t$\tG\t"), "iconv -f UTF-16LE"},
        {"Hindi, big end first", B("\t(\t.\t8\tM\t$\tG"), "iconv -f UTF-16BE"},
        {"control characters",
         B("abc\x01"
           "de\x02"
           "fgh\x06"
           "ij\x0e"
           "kl\x0f"
           "mnopq"),
         "is not text: 5 of its first 22 bytes are control characters, the first 0x01 at byte 3"},
    };
    static const struct {
        const char *what, *text;
    } good[] = {
        {"colours", "\x1b[31mred\x1b[0m \x1b[32mgreen\x1b[0m\n\x1b[m\x1b[m\x1b[m\x1b[m\n"},
        {"overstrikes", "N\bNA\bAM\bME\bE\n_\bt_\be_\br_\bn\n"},
        {"TABs between letters", "a\tb\tc\n1\t2\t3\n4\t5\t6\n"},
        {"TABs between digits", "1\t2\t3\t4\t5\t6\t7\t8\n1\t2\t3\t4\t5\t6\t7\t8\n"},
        {"separators of records", "a\x1f"
                                  "b\x1f"
                                  "c\x1e"
                                  "d\x1f"
                                  "e\x1f"
                                  "f\x1e"},
        {"form feeds", "\f\n\v\n\f\n\v\n"},
        {"TABs alone", "\t\t\t\t\t\t\t\t\t\t"},
        {"newlines alone", "\n\n\n\n\n\n\n\n"},
        {"a bell", "one\x07\n"},
        {"three control characters", "\x03\x03\x03"},
        {"the end of a file of DOS", "the end of a file of DOS\r\n\x1a"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        has(reads_n(&automatic, bad[i].bytes, bad[i].n), bad[i].says, "refused: %s", bad[i].what);
        has(reads_n(&jsonl, bad[i].bytes, bad[i].n), bad[i].says, "refused as JSONL: %s",
            bad[i].what);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct tern_buf want = {0};
        tern_buf_printf(&want, "[%s]", good[i].text);
        is(reads(&automatic, good[i].text), want.data, "text with control characters: %s",
           good[i].what);
        tern_buf_free(&want);
    }
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    path = tern_fs_join(work, "text");
    test_asks();
    test_plain();
    test_lines();
    test_marks();
    test_controls();
    free(path);
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

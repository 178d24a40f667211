/* core/data: UTF-8 is distinguished from other bytes wherever it stands, and a line's field is what
 * a plain JSON reader finds. */
#include "core/base/rand.h"
#include "core/base/str.h"
#include "core/text/line.h"
#include "core/text/utf8.h"
#include "tests/unit/tap.h"

#include <jansson.h>

/* One character after the other. */
static size_t good_slowly(const char *s, size_t len)
{
    size_t at = 0, n;

    while (at < len && (n = tern_str_utf8(s + at, len - at)) > 0)
        at += n;
    return at;
}

/* Four bytes at each place of two blocks, behind and before ASCII or other characters. */
static uint64_t wrong_places(const unsigned char four[4], const char *around)
{
    uint64_t wrong = 0;
    char text[48];

    for (size_t place = 12; place <= 33; place++) {
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = around[i % strlen(around)];
        if (strlen(around) > 1) /* whole characters before */
            memset(text, 'x', place % strlen(around));
        for (size_t i = 0; strlen(around) > 1 && i + place % strlen(around) < place; i++)
            text[i + place % strlen(around)] = around[i % strlen(around)];
        memcpy(text + place, four, 4);
        memset(text + place + 4, 'y', sizeof text - place - 4);
        wrong += tern_text_utf8_good(text, sizeof text) != good_slowly(text, sizeof text);
    }
    return wrong;
}

static void test_utf8(void)
{
    /* Where a rule of UTF-8 begins or ends. */
    static const unsigned char edges[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                          0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee,
                                          0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xf8, 0xff};
    enum { N = sizeof edges };
    static const char *const around[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    uint64_t wrong = 0;

    for (size_t i = 0; i < (size_t)N * N * N * N; i++) {
        const unsigned char four[] = {edges[i % N], edges[i / N % N], edges[i / N / N % N],
                                      edges[i / N / N / N]};
        if (i % 4 == 0 || tap_long())
            wrong += wrong_places(four, around[i / 4 % 4]);
    }
    ok(wrong == 0, "four bytes at the edges of UTF-8's rules are good or not at each place");

    wrong = 0;
    for (uint64_t r = 0; r < 20000; r++) {
        char text[200];
        size_t len = tern_rand_below(1, 1, r, sizeof text), at = 0;
        while (at < len) { /* characters, and now and then a byte that is none */
            const char *c = around[tern_rand_below(1, 2 + r, at, 4)];
            size_t n = tern_rand_below(1, 90000 + r, at, 60) == 0 ? 1 : strlen(c);
            n = n < len - at ? n : len - at;
            memcpy(text + at, c, n);
            at += n;
        }
        wrong += tern_text_utf8_good(text, len) != good_slowly(text, len);
    }
    ok(wrong == 0, "random UTF-8 with single bad bytes is good up to the first of them");
}

/* ---- lines ---- */

static const char *const seeds[] = {
    "{\"text\": \"We the people of the United States, in order to form\", \"id\": 17}",
    "{\"a\": [1, -2.5e+10, {\"b\": null}, true, false, \"\\u00e9\\ud83d\\ude00\"], \"text\":\"x\\n"
    "y\\\"z\\\\ and so on, for more than sixteen bytes\\t\\/ \\u20ac\"}",
    " {\"text\" : \"\" , \"text\": \"second\", \"t\\u0065xt\": \"caf\xc3\xa9 au lait, encore\"} ",
    "{\"texts\": \"no\", \"tex\": {\"text\": \"inner\"}, \"text\": [\"a list\"]}",
    "{\"id\": 123456789012345678, \"meta\": {\"url\": \"http://example.org/a?b=c\"}, \"text\": "
    "\"t\"}",
};

/* What tern finds in a line that jansson reads is what jansson finds. */
static bool same(const char *line, size_t len, struct tern_buf *room)
{
    const struct tern_text_field field = tern_text_field_of("text");
    struct tern_text_line_text text;
    char *exact = malloc(len + 1); /* no byte behind the line is readable to sanitizers */
    memcpy(exact, line, len);
    exact = realloc(exact, len ? len : 1);
    enum tern_text_line_found found = tern_text_line_field(exact, len, &field, room, &text);
    json_t *object = json_loadb(line, len, JSON_ALLOW_NUL, NULL);
    const json_t *value = json_object_get(object, "text");
    bool good = true;

    if (object && !json_is_object(object))
        good = found == TERN_TEXT_LINE_NO_JSON;
    else if (object && !value)
        good = found == TERN_TEXT_LINE_NO_FIELD;
    else if (object && !json_is_string(value))
        good = found == TERN_TEXT_LINE_NO_STRING;
    else if (object)
        good = found == TERN_TEXT_LINE_STRING && text.len == json_string_length(value) &&
               memcmp(text.s, json_string_value(value), text.len) == 0 &&
               tern_text_utf8_good(text.s, text.len) == text.len;
    if (found == TERN_TEXT_LINE_STRING && text.ascii)
        for (size_t i = 0; i < text.len; i++)
            good = good && (text.s[i] & 0x80) == 0;
    json_decref(object);
    free(exact);
    return good;
}

static void test_lines(void)
{
    static const char pieces[] = "\"\\{}[]:, \t\n\rutnx0123456789eE+-.aN\x01\x80\xc3\xa9";
    struct tern_buf room = {0};
    uint64_t wrong = 0, rounds = tap_long() ? 400000 : 40000;

    for (uint64_t r = 0; r < rounds; r++) {
        char line[256];
        const char *seed = seeds[r % (sizeof seeds / sizeof seeds[0])];
        size_t len = strlen(seed), n = tern_rand_below(2, 1, r, 4);
        memcpy(line, seed, len);
        for (size_t k = 0; k < n; k++) {
            size_t at = tern_rand_below(2, 2 + k, r, len);
            char c = pieces[tern_rand_below(2, 10 + k, r, sizeof pieces - 1)];
            if (tern_rand_below(2, 20 + k, r, 3) == 0) {
                memmove(line + at, line + at + 1, len - at - 1);
                len--;
            } else {
                line[at] = c;
            }
        }
        if (!same(line, len, &room)) {
            printf("# %.*s\n", (int)len, line);
            wrong++;
        }
    }
    ok(wrong == 0, "mutated lines that jansson reads have the field that it finds");
    tern_buf_free(&room);
}

/* The text of a path, or the name of what was found. */
static const char *at_path(const char *path, const char *line)
{
    static struct tern_buf room;
    static char copy[256];
    const struct tern_text_field field = tern_text_field_of(path);
    struct tern_text_line_text text;

    switch (tern_text_line_field(line, strlen(line), &field, &room, &text)) {
    case TERN_TEXT_LINE_STRING:
        snprintf(copy, sizeof copy, "[%.*s]", (int)text.len, text.s);
        return copy;
    case TERN_TEXT_LINE_NO_STRING:
        return "no string";
    case TERN_TEXT_LINE_NO_FIELD:
        return "no field";
    default:
        return "no JSON";
    }
}

static void test_paths(void)
{
    static const char body[] = "body_text[].text";

    is(at_path("a.b", "{\"a\": {\"c\": 1, \"b\": \"x\"}, \"b\": \"y\"}"), "[x]",
       "a key inside an object");
    is(at_path("a.b", "{\"a.b\": \"x\"}"), "[x]", "a key with a dot");
    is(at_path("a.b", "{\"a.b\": \"x\", \"a\": {\"b\": \"y\"}}"), "[y]",
       "of a path and a key with a dot the path counts");
    is(at_path("a..b", "{\"a..b\": \"x\"}"), "[x]", "what is no path is a key");
    is(at_path(body, "{\"body_text\": [{\"text\": \"one\"}, {\"text\": \"t\\tw\"}, {\"no\": 1}, "
                     "{\"text\": \"three\"}]}"),
       "[one\nt\tw\nthree]", "strings of a list, with and without escapes");
    is(at_path(body, "{\"body_text\": []}"), "[]", "an empty list is an empty text");
    is(at_path(body, "{\"body_text\": null}"), "no string", "null is no list");
    is(at_path(body, "{\"body_text\": [{\"text\": \"a\"}, {\"text\": null}, {\"text\": \"b\"}]}"),
       "no string", "an element without a string");
    is(at_path(body, "{\"body_text\": [{\"text\": \"a\"}, {\"text\": \"b\\n\", \"text\": \"c\"}, "
                     "{\"text\": \"d\"}]}"),
       "[a\nc\nd]", "of two keys of a name in an element the last counts");
    is(at_path(body, "{\"body_text\": [{\"text\": \"a\"}], \"body_text\": [{\"text\": \"b\"}]}"),
       "[b]", "of two lists of a name the last counts");
    is(at_path("a[]", "{\"a\": [\"x\", \"y\"]}"), "[x\ny]", "a list of strings");
    is(at_path("a[].b[].c", "{\"a\": [{\"b\": [{\"c\": \"1\"}, {\"c\": \"2\"}]}, {\"b\": []}, "
                            "{\"b\": [{\"c\": \"3\"}]}]}"),
       "[1\n2\n3]", "lists in lists");
    is(at_path("a.b", "{\"a\": {\"b\": \"x\"}"), "no JSON", "a path in a line that is cut off");
    is(at_path("a.b", "{\"a\": \"x\"}"), "no field", "a string where an object should be");
}

int main(void)
{
    test_utf8();
    test_lines();
    test_paths();
    return tap_done();
}

/* JSON that Python's json reads and writes, and jansson does not. */
#include "core/base/json.h"

#include "core/base/str.h"
#include "tests/unit/tap.h"

#include <stdlib.h>
#include <string.h>

#define LARGE "1000000000000000019884624838656"

/* Read and written again: the text, or the error.  Valid until the next call. */
static const char *again(const char *text)
{
    static char *out;
    struct tern_err err = {0};
    json_t *j = tern_json_python_parse(text, strlen(text), "x.json", &err);

    free(out);
    out = j ? tern_json_python_restore(json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY))
            : tern_strdup(err.text);
    json_decref(j);
    return out;
}

static void test_kept(void)
{
    static const char *const texts[] = {
        "{\"a\":" LARGE "}",
        "{\"a\":[-" LARGE ",9223372036854775808,-9223372036854775809]}",
        "{\"a\":[1e999,-1E+999,1.5e4000]}",
        "{\"a\":[NaN,Infinity,-Infinity]}",
        "{\"a\":\"\\ud800\",\"b\":\"x\\udc00\",\"c\":\"\\ud800\\u0041\"}",
        "{\"a\":\"a\\u0000b \\\"q\\\" \\\\ \\/ \xc3\xa9\"}",
        "{\"k\\u0000\":{\"\\ud800\":[\"\\u0000\"]}}",
        "{\"a\":\"\\u0001python:NaN\",\"\\u0001\":1}",
        "{\"\\u0001python:\\u0000\":NaN}",
        "NaN",
        "\"\\u0000\"",
        "[]",
        "{\"a\":9223372036854775807,\"b\":-9223372036854775808,\"c\":\"NaN \\\" 1e999 "
        "\xf0\x9f\x98\x80\"}",
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        is(again(texts[i]), texts[i], "%s is read, and written as it was", texts[i]);
    is(again("{\"a\":\"\\ud83d\\ude00\"}"), "{\"a\":\"\xf0\x9f\x98\x80\"}",
       "a surrogate pair is a character");
}

/* Python refuses these, too. */
static void test_refused(void)
{
    static const char *const texts[] = {
        "{\"a\":NaNs}",
        "{\"a\":Nan}",
        "{\"a\":0" LARGE "}",
        "{\"a\":1e}",
        "{\"a\":1.e999}",
        "{\"a\":+1e999}",
        "{\"a\":--1e999}",
        "{\"a\":1e99999-}",
        "{\"a\":\"\\ud800\\q\"}",
        "{\"a\":\"\\u00\"}",
        "{\"a\":\"\\ud800\n\"}",
        "{\"a\":\"\\u0000",
        "{\"a\":\"\\",
        "{\"a\":NaN",
        "{\"a\":NaN \"b\":1}",
        "",
        "{\"a\":\"\\ud800\xff\"}",
        "{\"a\":1,\"a\":NaN}",
        "{\"a\":-}",
        "{NaN:1}x",
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        has(again(texts[i]), "not valid JSON", "text that Python's json refuses is refused: %s",
            texts[i]);
    has(again("{\"a\": NaN,\n \"b\": \"\\u0000\",\n \"c\": ]}"),
        "x.json:3:", "an error behind such values names its line");
}

/* A key that is used finds a string, whose words are those of the file. */
static void test_used(void)
{
    const char text[] = "{\"n\": " LARGE ", \"s\": \"\\ud800\", \"plain\": \"word\"}";
    json_t *j = tern_json_python_parse(text, strlen(text), "x.json", NULL);

    ok(json_is_string(json_object_get(j, "n")), "a number that no integer holds is no number");
    is(tern_json_python_shown(json_string_value(json_object_get(j, "n"))), LARGE,
       "a number that no integer holds is shown as it was");
    is(tern_json_python_shown(json_string_value(json_object_get(j, "s"))), "\"\\ud800\"",
       "half of a surrogate pair is shown as it was");
    is(tern_json_python_shown("word"), "word", "another string is shown as it is");
    ok(!tern_json_python_shown(NULL) && !tern_json_python_restore(NULL), "nothing stays nothing");
    json_decref(j);
}

int main(void)
{
    test_kept();
    test_refused();
    test_used();
    return tap_done();
}

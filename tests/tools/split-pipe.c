/* split-pipe gpt2 | llama3 | qwen2 | digit | word | named | nfc: cuts what a test sends into words,
 * tells whether its first character is one of words (\w) or which regular expression it is, or
 * composes it.
 *
 * In, again and again: u32 length, that many bytes of UTF-8.  Out: u32 number of words and the end
 * of each (u32); with word and named 1 and the answer; with nfc u32 length and the text.  A text
 * ends where its memory does, so that sanitizers see a byte read behind it. */
#include "core/token/split.h"
#include "core/token/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void send(const void *data, size_t size, size_t n)
{
    uint32_t count = (uint32_t)n;

    fwrite(&count, sizeof count, 1, stdout);
    fwrite(data, size, n, stdout);
}

static size_t digits(const char *text, size_t len, uint32_t *ends)
{
    size_t n = 0;

    for (size_t at = 0; at < len; ends[n++] = (uint32_t)at)
        at += tern_token_split_digit(text + at, len - at);
    return n;
}

static size_t is_word(const char *text, uint32_t *ends)
{
    unsigned bytes;

    *ends = tern_unicode_is_word(tern_unicode_decode(text, &bytes));
    return 1;
}

static size_t named(const char *text, size_t len, uint32_t *ends)
{
    char *regex = strndup(text, len);

    *ends = tern_token_split_named(regex);
    free(regex);
    return 1;
}

/* In batches of several sizes, which find what is found word by word. */
static size_t words(enum tern_split how, const char *text, size_t len, uint32_t *ends)
{
    size_t n = 0, at = 0, one = 0;

    for (unsigned round = 0; at < len; round++) {
        size_t max = round % 3 == 0 ? 70 : round % 3 == 1 ? 3 : len - at;
        uint32_t *some = malloc(max * sizeof *some);
        size_t found;
        if (!some)
            exit(1);
        found = tern_token_split_words(how, text + at, len - at, some, max);
        if (found == 0 || found > max)
            exit(1);
        for (size_t i = 0; i < found; i++) {
            ends[n] = (uint32_t)at + some[i];
            one += tern_token_split_next(how, text + one, len - one);
            if (ends[n++] != one) {
                fprintf(stderr, "split-pipe: a batch ends a word at %u, not at %zu\n", ends[n - 1],
                        one);
                exit(1);
            }
        }
        at = one;
        free(some);
    }
    return n;
}

int main(int argc, char **argv)
{
    const char *way = argc == 2 ? argv[1] : "";
    enum tern_split how = strcmp(way, "gpt2") == 0     ? TERN_SPLIT_GPT2
                          : strcmp(way, "llama3") == 0 ? TERN_SPLIT_LLAMA3
                                                       : TERN_SPLIT_QWEN2;
    uint32_t len;

    while (fread(&len, sizeof len, 1, stdin) == 1) {
        char *text = malloc(len ? len : 1);
        uint32_t *ends = malloc((len ? len : 1) * sizeof *ends);
        size_t n = 0;
        if (!text || !ends || fread(text, 1, len, stdin) != len)
            return 1;
        if (strcmp(way, "nfc") == 0) {
            struct tern_buf to = {0};
            if (!tern_token_is_nfc(text, len))
                tern_token_nfc(text, len, &to);
            else
                tern_buf_add(&to, text, len);
            send(to.data, 1, to.len);
            tern_buf_free(&to);
        } else {
            if (strcmp(way, "word") == 0)
                n = is_word(text, ends);
            else if (strcmp(way, "named") == 0)
                n = named(text, len, ends);
            else if (strcmp(way, "digit") == 0)
                n = digits(text, len, ends);
            else
                n = words(how, text, len, ends);
            send(ends, sizeof *ends, n);
        }
        free(text);
        free(ends);
    }
    return 0;
}

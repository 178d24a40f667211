/* core/token: words as the regular expressions of GPT-2, Llama 3 and Qwen 2 find them; digits;
 * classes of characters; NFC.  tests/peers/split.sh compares with the libraries. */
#include "core/base/rand.h"
#include "core/token/split.h"
#include "core/token/unicode.h"
#include "tests/unit/tap.h"

struct words {
    const char *words; /* with bars between them */
    const char *name;
};

static size_t without_bars(const char *words, char *to)
{
    size_t n = 0;

    for (const char *c = words; *c; c++)
        if (*c != '|')
            to[n++] = *c;
    return n;
}

static void with_bars(const char *text, const uint32_t *ends, size_t n, char *to)
{
    for (size_t i = 0, at = 0; i < n; at = ends[i++]) {
        if (i)
            *to++ = '|';
        memcpy(to, text + at, ends[i] - at);
        to += ends[i] - at;
    }
    *to = '\0';
}

static size_t one_by_one(enum tern_split how, const char *text, size_t len, uint32_t *ends)
{
    size_t n = 0;

    for (size_t at = 0; at < len; ends[n++] = (uint32_t)at)
        at += tern_token_split_next(how, text + at, len - at);
    return n;
}

/* The text is cut in batches and word by word; its memory ends where it does. */
static void cut(enum tern_split how, const char *way, const struct words *cases, size_t n_cases)
{
    uint32_t ends[256];
    char got[512];

    for (size_t i = 0; i < n_cases; i++) {
        char *text = malloc(strlen(cases[i].words));
        size_t len = without_bars(cases[i].words, text);
        char *exact = malloc(len);
        memcpy(exact, text, len);
        with_bars(exact, ends, tern_token_split_words(how, exact, len, ends, 256), got);
        is(got, cases[i].words, "%s: %s", way, cases[i].name);
        with_bars(exact, ends, one_by_one(how, exact, len, ends), got);
        is(got, cases[i].words, "%s, word by word: %s", way, cases[i].name);
        free(exact);
        free(text);
    }
}
#define CUT(how, way, cases) cut(how, way, cases, sizeof(cases) / sizeof *(cases))

static void test_gpt2(void)
{
    static const struct words cases[] = {
        {"Hello| world", "a space goes with letters"},
        {"a| 12| ?!|b", "a space goes with numbers and with other characters"},
        {"it|'s| he|'ll| we|'ve| I|'m| you|'re| she|'d| don|'t", "contractions are words"},
        {"x|'s|abc|'re|x|'ll|l", "a contraction ends in the middle of letters"},
        {"IT|'|S| WE|'|RE", "capitals make no contraction"},
        {"it|'|\xc5\xbf", "U+017F makes no contraction"},
        {"a| '|s", "an apostrophe behind a space begins no contraction"},
        {"a|''|s", "an apostrophe behind another begins no contraction"},
        {"a|\n|'s", "an apostrophe behind a line feed begins one"},
        {"a|'|r|'|v|'|l|'|x", "half a contraction is none"},
        {"a|'", "an apostrophe at the end is a word"},
        {"a|  | b", "the last of several spaces goes with letters"},
        {"a|\n\n|\n|b", "the last line feed of several stands alone"},
        {"a|\t|b", "a tab stands alone"},
        {"a| \t|\n|b", "white space is one word but for its last character"},
        {"a|  \n ", "white space at the end is one word"},
        {"a| ", "a space at the end is a word"},
        {"1234567890|b", "numbers are one word"},
        {"a|\xc2\xa0|b", "a no-break space goes with nothing"},
        {"a|\xe3\x80\x80|\xe3\x80\x80|b", "ideographic spaces are white space"},
        {"\xc3\xa9t\xc3\xa9| \xe4\xb8\xad\xe6\x96\x87", "letters above ASCII"},
        {"e|\xcc\x81|x", "a mark is no letter"},
        {"1\xd9\xa3\xc2\xb2|x", "numbers above ASCII"},
        {"\xf0\x9f\x98\x80!| \xf0\x9f\x98\x80", "emoji are other characters"},
        {"a|\xe2\x80\x99|s", "a typographic apostrophe makes no contraction"},
    };

    CUT(TERN_SPLIT_GPT2, "GPT-2", cases);
}

static void test_llama3(void)
{
    static const struct words cases[] = {
        {"Hello| world| again", "a space goes with letters"},
        {"a| |12| ?!|b", "a space goes with other characters, not with numbers"},
        {"it|'s| IT|'S| WE|'Re|'LL|'vE|'M|'D|'t", "contractions, in capitals too"},
        {"X|'S|ABC|'rE|X|'Ll|L|'T|x", "in the middle of letters"},
        {"it|'\xc5\xbf|x", "U+017F is an s"},
        {"x|'s|abc|'re|x", "a contraction ends in the middle of letters"},
        {"a| '|s", "an apostrophe behind a space begins no contraction"},
        {"a|''|s", "an apostrophe behind another begins no contraction"},
        {"a|\n|'s", "an apostrophe behind a line feed begins one"},
        {"a|'r|'v|'l|'xy", "an apostrophe goes with letters that are no contraction"},
        {"a|.b|!c|_d", "one other character goes with letters"},
        {"a|..|b| .|c", "two, or one behind a space, do not"},
        {"a|\tb|\xc2\xa0"
         "c|\xe3\x80\x80"
         "d",
         "white space of any kind goes with letters"},
        {"\xe2\x80\x9c"
         "a|\xe2\x80\x9d.|b|\xf0\x9f\x98\x80x|\xf0\x9f\x98\x80\xf0\x9f\x98\x80|x",
         "one other character above ASCII goes with letters"},
        {"1|.a|2| .|b", "behind a number, too"},
        {"a|\n|b|\r|c", "CR and LF do not go with letters"},
        {"123|456|7|a|12", "numbers by three"},
        {"123|\xd9\xa3\xc2\xb2"
         "4|5",
         "numbers above ASCII by three characters"},
        {"a|.\n\r\n|b|?!\n|  | c", "CR and LF go with other characters before them"},
        {"a|.\n|\t\n|b", "behind those white space begins anew"},
        {"a|\n\n|b", "line feeds are one word"},
        {"a| \t\n|  | b", "white space ends at its last line feed"},
        {"a|\n \n\t\r|b", "at the last of several"},
        {"a|\n| b|\n|  | c|\n|\t|\td", "of the white space behind it the last goes with letters"},
        {"a|\n| .\n| |1", "with other characters, not with numbers"},
        {"a| |\t|.b", "a tab goes with nothing but letters"},
        {"a|\n|  ", "white space at the end is one word but for line feeds"},
    };

    CUT(TERN_SPLIT_LLAMA3, "Llama 3", cases);
}

static void test_qwen2(void)
{
    static const struct words cases[] = {
        {"a|1|2|3|4|b", "every number is a word"},
        {"\xd9\xa3|\xc2\xb2| |1", "above ASCII, too"},
        {"it|'S| |2|.b|.\n\n|c", "all else as in Llama 3"},
    };

    CUT(TERN_SPLIT_QWEN2, "Qwen 2", cases);
}

/* Where a batch looks at 64 bytes at once: all words end as they do one by one. */
static void test_batches(void)
{
    static const char *const parts[] = {"a",
                                        "bc",
                                        "'",
                                        "s",
                                        "'LL",
                                        "'re",
                                        " ",
                                        "  ",
                                        "\n",
                                        "\r\n",
                                        "\t",
                                        "1",
                                        "23",
                                        "9",
                                        "4567",
                                        ".",
                                        "!!",
                                        "\xc3\xa9",
                                        "\xc5\xbf",
                                        "\xe2\x80\x99",
                                        "\xc2\xa0",
                                        "\xe3\x80\x80",
                                        "\xd9\xa3",
                                        "\xe4\xb8\xad",
                                        "\xf0\x9f\x98\x80",
                                        "\xcc\x81",
                                        "word",
                                        " the"};
    enum { N = sizeof parts / sizeof *parts, ROUNDS = 30000, ROOM = 4096 };
    static uint32_t ends[ROOM], want[ROOM];
    static char text[ROOM];
    uint64_t at = 0;
    int bad = 0;

    for (int round = 0; round < ROUNDS; round++) {
        size_t len = 0;
        for (uint64_t k = tern_rand_below(1, 0, at++, 60); k-- > 0;) {
            const char *part = parts[tern_rand_below(1, 1, at++, N)];
            /* Sometimes many times: words longer than a window. */
            uint64_t times = tern_rand_below(1, 2, at++, 20) ? 1 : tern_rand_below(1, 3, at++, 80);
            for (; times-- > 0 && len + 8 < ROOM; len += strlen(part))
                memcpy(text + len, part, strlen(part));
        }
        char *exact = malloc(len + !len);
        memcpy(exact, text, len);
        for (int how = TERN_SPLIT_GPT2; how <= TERN_SPLIT_QWEN2; how++) {
            size_t n = one_by_one((enum tern_split)how, exact, len, want);
            size_t count = tern_token_split_words((enum tern_split)how, exact, len, ends, ROOM);
            bad += count != n || memcmp(ends, want, n * sizeof *ends) != 0;
            size_t few = tern_token_split_words((enum tern_split)how, exact, len, ends, n / 2);
            bad +=
                few > n / 2 || (few == 0 && n >= 2) || memcmp(ends, want, few * sizeof *ends) != 0;
        }
        free(exact);
    }
    ok(bad == 0, "random texts: batches end words where one by one does (%d differ)", bad);
    ok(tern_token_split_words(TERN_SPLIT_NONE, "a b", 3, ends, 9) == 1 && *ends == 3 &&
           tern_token_split_next(TERN_SPLIT_NONE, "a b", 3) == 3,
       "without a way, a text is one word");
}

static void test_digits(void)
{
    static const char text[] = "ab12 c\xd9\xa3\xf0\x91\xb7\xa0\xf0\x91\xb7\xaax";
    static const size_t want[] = {2, 1, 1, 2, 2, 4, 5};
    size_t at = 0, good = 0;

    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        size_t n = tern_token_split_digit(text + at, sizeof text - 1 - at);
        good += n == want[i];
        at += n;
    }
    ok(good == 7 && at == sizeof text - 1,
       "every digit is a part by itself, one of Unicode 17.0 too, and all before it");
}

static void test_names(void)
{
#define SPACES "\\s+(?!\\S)|\\s+"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|" SPACES
    static const struct {
        enum tern_split how;
        const char *regex, *name;
    } cases[] = {
        {TERN_SPLIT_GPT2,
         "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" SPACES, "GPT-2"},
        {TERN_SPLIT_GPT2,
         "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s+(?!\\S)|\\s",
         "GPT-2 in another spelling"},
        {TERN_SPLIT_LLAMA3,
         "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" REST, "Llama 3"},
        {TERN_SPLIT_LLAMA3, "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}" REST,
         "Llama 3 in another spelling"},
        {TERN_SPLIT_QWEN2, "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" REST,
         "Qwen 2"},
        {TERN_SPLIT_NONE,
         "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,2}" REST,
         "another number of digits"},
        {TERN_SPLIT_NONE, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+",
         "a part less"},
        {TERN_SPLIT_NONE,
         "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" SPACES "|x",
         "a part more"},
        {TERN_SPLIT_NONE, "", "nothing"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ok(tern_token_split_named(cases[i].regex) == cases[i].how,
           "the way of a regular expression: %s", cases[i].name);
}

static void test_classes(void)
{
    static const struct {
        uint32_t code;
        enum tern_unicode_class class;
        bool word;
    } cases[] = {
        {'a', TERN_UNICODE_LETTER, true},     {'_', TERN_UNICODE_OTHER, true},
        {'0', TERN_UNICODE_NUMBER, true},     {' ', TERN_UNICODE_SPACE, false},
        {0x85, TERN_UNICODE_SPACE, false},    {0xb2, TERN_UNICODE_NUMBER, false},
        {0x200b, TERN_UNICODE_OTHER, false},  {0x200d, TERN_UNICODE_OTHER, true},
        {0x301, TERN_UNICODE_OTHER, true},    {0x2163, TERN_UNICODE_NUMBER, true},
        {0x24b6, TERN_UNICODE_OTHER, true},   {0x3000, TERN_UNICODE_SPACE, false},
        {0x9fff, TERN_UNICODE_LETTER, true},  {0x323af, TERN_UNICODE_LETTER, true},
        {0x323b0, TERN_UNICODE_OTHER, false}, {0xe0100, TERN_UNICODE_OTHER, true},
        {0xe01f0, TERN_UNICODE_OTHER, false}, {0x10ffff, TERN_UNICODE_OTHER, false},
        {0x1c89, TERN_UNICODE_LETTER, true}, /* since 16.0 */
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ok(tern_unicode_class(cases[i].code) == cases[i].class &&
               tern_unicode_is_word(cases[i].code) == cases[i].word,
           "U+%04X has its class", cases[i].code);
}

static void nfc(const char *text, const char *want, const char *name)
{
    struct tern_buf to = {0};

    tern_token_nfc(text, strlen(text), &to);
    is(to.data, want, "NFC: %s", name);
    tern_buf_free(&to);
}

static void test_nfc(void)
{
    nfc("plain text, caf\xc3\xa9", "plain text, caf\xc3\xa9", "Latin text is left as it is");
    nfc("longer than a word cafe\xcc\x81 x", "longer than a word caf\xc3\xa9 x", "a mark joins");
    nfc("a\xcc\x81\xcc\xa3", "\xe1\xba\xa1\xcc\x81", "marks are put in the order of their classes");
    nfc("a\xcc\x81\xcc\x80", "\xc3\xa1\xcc\x80", "marks of one class stay in their order");
    nfc("a\xcc\xb5\xcc\x81", "\xc3\xa1\xcc\xb5", "a mark of a lower class does not block");
    nfc("\xcd\x84", "\xcc\x88\xcc\x81", "a character that is only taken apart");
    nfc("\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc", "one that is excluded from composition");
    nfc("\xe2\x84\xab\xe2\x84\xaa", "\xc3\x85K", "singletons");
    nfc("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c", "jamo become a syllable");
    nfc("\xed\x95\x98\xe1\x86\xab", "\xed\x95\x9c", "a syllable takes a last jamo");
    nfc("\xed\x95\x9c\xe1\x86\xab", "\xed\x95\x9c\xe1\x86\xab", "but one");
    nfc("\xed\x95\x98\xcc\x81\xe1\x86\xab", "\xed\x95\x98\xcc\x81\xe1\x86\xab",
        "none behind a mark");
    nfc("a\xcc\x8d\xcc\x81", "a\xcc\x8d\xcc\x81", "a mark of the same class blocks");
    nfc("\xf0\x91\x82\x99\xf0\x91\x82\xba", "\xf0\x91\x82\x9a", "above U+FFFF");
    nfc("\xf0\x90\x97\x92\xcc\x87", "\xf0\x90\x97\x92\xcc\x87", "a pair since Unicode 9.0 stays");
    ok(tern_token_is_nfc("caf\xc3\xa9 \xe4\xb8\xad\xed\x95\x9c", 12),
       "composed text is known as such");
    ok(!tern_token_is_nfc("0123456789 e\xcc\x81", 14), "a mark makes it uncertain");
    ok(!tern_token_is_nfc("\xe2\x84\xab", 3), "a character that NFC changes makes it uncertain");
}

/* 2^20 marks in falling order: sorted, and not by a time that grows with their square. */
static void test_many_marks(void)
{
    enum { N = 1 << 20 };
    char *text = malloc(2 * N + 1);
    struct tern_buf to = {0};
    bool good = true;

    text[0] = 'x';
    for (size_t i = 0; i < N; i++)
        memcpy(text + 1 + 2 * i, i % 2 ? "\xcc\xa3" : "\xcc\x88", 2);
    tern_token_nfc(text, 2 * N + 1, &to);
    /* x with a diaeresis is one character; with a dot below it is not. */
    for (size_t i = 0; i < N / 2; i++)
        good = good && to.len > 3 + 2 * i && memcmp(to.data + 3 + 2 * i, "\xcc\xa3", 2) == 0;
    ok(good && to.len == 2 * N + 1 && memcmp(to.data, "\xe1\xba\x8d", 3) == 0,
       "NFC: a million marks on one letter");
    tern_buf_free(&to);
    free(text);
}

int main(void)
{
    test_gpt2();
    test_llama3();
    test_qwen2();
    test_batches();
    test_digits();
    test_names();
    test_classes();
    test_nfc();
    test_many_marks();
    return tap_done();
}

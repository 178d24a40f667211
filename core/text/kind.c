#include "core/text/kind.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct row {
    size_t at, n;
    const char *magic;
    struct tern_text_kind kind;
};

#define MAGIC(s) sizeof(s) - 1, s

static const struct row rows[] = {
    {0,
     MAGIC("PAR1\x15"),
     {"a Parquet file",
      "Write its texts as JSONL: datasets.Dataset.from_parquet('...').to_json('texts.jsonl')."}},
    {0,
     MAGIC("ARROW1"),
     {"an Arrow file", "Name it decompressed, not as standard input, and without --format."}},
    {0,
     MAGIC("\xff\xff\xff\xff"),
     {"an Arrow stream", "Name it decompressed, not as standard input, and without --format."}},
    {257, MAGIC("ustar"), {"a tar archive", "Unpack it (tar -xf) and name the folder."}},
    {0, MAGIC("PK\x03\x04"), {"a zip archive", "Unpack it (unzip) and name the folder."}},
    {0, MAGIC("PK\x05\x06"), {"an empty zip archive", "Leave it out."}},
    {0, MAGIC("7z\xbc\xaf\x27\x1c"), {"a 7z archive", "Unpack it and name the folder."}},
    {0, MAGIC("Rar!\x1a\x07"), {"a RAR archive", "Unpack it and name the folder."}},
    {0, MAGIC("%PDF-"), {"a PDF file", "Take its text out of it: pdftotext."}},
    {0, MAGIC("ternTDS\n"), {"a token set already", "Build from its text."}},
    {0, MAGIC("\x89HDF\r\n"), {"an HDF5 file", "Write its texts as JSONL."}},
    {0, MAGIC("\x93NUMPY"), {"a NumPy array", "Write its texts as JSONL."}},
    {0, MAGIC("SQLite format 3"), {"an SQLite database", "Write its texts as JSONL."}},
    {0, MAGIC("\x04\x22\x4d\x18"), {"compressed by LZ4", "Decompress it first: lz4 -d."}},
    {0, MAGIC("\x1f\x9d"), {"compressed by compress", "Decompress it first: gzip -d."}},
    {0, MAGIC("\xff\xfe"), {"UTF-16 or UTF-32", "Convert it: iconv -f UTF-16 -t UTF-8."}},
    {0, MAGIC("\xfe\xff"), {"UTF-16", "Convert it: iconv -f UTF-16 -t UTF-8."}},
};

/* Four characters of ASCII with a NUL before or behind each. */
static bool is_wide(const char *b, size_t n, size_t nul)
{
    for (size_t i = 0; i < 8; i++)
        if (i >= n || (b[i] == '\0') != (i % 2 == nul) || (b[i] & 0x80))
            return false;
    return true;
}

const struct tern_text_kind *tern_text_kind_of(const char *bytes, size_t n)
{
    static const struct tern_text_kind little = {"UTF-16 without a mark",
                                                 "Convert it: iconv -f UTF-16LE -t UTF-8."},
                                       big = {"UTF-16 without a mark",
                                              "Convert it: iconv -f UTF-16BE -t UTF-8."};

    for (const struct row *r = rows; r < rows + sizeof rows / sizeof rows[0]; r++)
        if (n >= r->at + r->n && memcmp(bytes + r->at, r->magic, r->n) == 0)
            return &r->kind;
    return is_wide(bytes, n, 1) ? &little : is_wide(bytes, n, 0) ? &big : NULL;
}

/* ---- control characters ---- */

enum {
    LOOKED_AT = 64 << 10, /* bytes */
    /* A text in which one byte of so many is a control character is none.  Lines of one word with a
     * stray character before each stay below; Cyrillic in UTF-16 has one in two. */
    SHARE = 8,
    LEAST = 4, /* such bytes: a few may be stray in a short text */
};

/* A control character that text has only by mistake.  Text has BS, TAB, LF, VT, FF, CR, ESC and
 * the four separators; NUL is refused where it stands. */
static bool is_stray(unsigned char c)
{
    return c && c < 0x1b && (c < '\b' || c > '\r');
}

/* Of the bytes at even places [0] and at odd ones [1]. */
struct places {
    size_t n, stray, first;
    bool control; /* all are stray, NUL, TAB, VT or FF */
    bool shown;   /* one is no control character and no blank */
    size_t same;  /* as the one before at such a place */
    size_t block; /* above 2, as the high bytes of alphabets are */
};

static void look(const char *bytes, size_t n, struct places ret_places[2])
{
    ret_places[0] = ret_places[1] = (struct places){.control = true};
    for (size_t i = 0; i < n; i++) {
        struct places *p = &ret_places[i % 2];
        const unsigned char c = (unsigned char)bytes[i];
        p->first = is_stray(c) && p->stray == 0 ? i : p->first;
        p->stray += is_stray(c);
        p->block += is_stray(c) && c > 2;
        p->control = p->control && (c < '\b' || is_stray(c) || c == '\t' || c == '\v' || c == '\f');
        p->shown = p->shown || c > ' ';
        p->same += i >= 2 && bytes[i] == bytes[i - 2];
        p->n++;
    }
}

/* High bytes of UTF-16 where a text has no spaces and no digits: all from one alphabet.  Hindi's
 * are TABs. */
static bool is_alphabet(const struct places *high, const struct places *low)
{
    const bool most = high->block >= 2 && 2 * high->block >= high->n && high->same >= low->same,
               all = high->control && low->shown && high->n >= 4 && high->n == low->n;

    return most || all;
}

int tern_text_kind_check(const char *path, const char *bytes, size_t n, struct tern_err *err)
{
    const struct tern_text_kind *kind = tern_text_kind_of(bytes, n);
    struct places p[2];

    if (kind)
        return tern_err_set(err, TERN_USAGE, "%s: is %s, not text in UTF-8. %s", path, kind->what,
                            kind->then);
    n = n < LOOKED_AT ? n : LOOKED_AT;
    look(bytes, n, p);
    for (int high = 1; high >= 0 && n % 2 == 0; high--)
        if (is_alphabet(&p[high], &p[!high]))
            return tern_err_set(err, TERN_USAGE,
                                "%s: is UTF-16 without a mark, not text in UTF-8: 0x%02x at byte "
                                "%zu. Convert it: iconv -f UTF-16%s -t UTF-8.",
                                path,
                                (unsigned char)bytes[p[high].stray ? p[high].first : (size_t)high],
                                p[high].stray ? p[high].first : (size_t)high, high ? "LE" : "BE");
    const size_t stray = p[0].stray + p[1].stray;
    if (stray < LEAST || stray * SHARE < n)
        return 0;
    const size_t first =
        p[0].stray && (!p[1].stray || p[0].first < p[1].first) ? p[0].first : p[1].first;
    return tern_err_set(err, TERN_USAGE,
                        "%s: is not text: %zu of its first %zu bytes are control characters, the "
                        "first 0x%02x at byte %zu. Convert it to UTF-8 (iconv), or take them out: "
                        "tr -d '\\001-\\007\\016-\\032'.",
                        path, stray, n, (unsigned char)bytes[first], first);
}

#include "core/text/kind.h"

#include <stdbool.h>
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

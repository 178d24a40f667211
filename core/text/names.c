#include "core/text/names.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

const char *const tern_text_suffixes[] = {".gz", ".zst", ".bz2", ".xz", NULL};

/* Does a name have `.word` at its end or before another suffix ("shard-1.jsonl-of-8")? */
static bool has_suffix(const char *name, const char *word)
{
    const size_t n = strlen(word);

    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
        if (strncasecmp(dot + 1, word, n) == 0 && !isalnum((unsigned char)dot[1 + n]))
            return true;
    return false;
}

/* A name without its ending for compression. */
static size_t plain_len(const char *name)
{
    const char *dot = strrchr(name, '.');

    for (const char *const *z = tern_text_suffixes; dot && *z; z++)
        if (strcasecmp(dot, *z) == 0)
            return (size_t)(dot - name);
    return strlen(name);
}

static bool is_one(const char *s, size_t len, const char *const *words)
{
    for (; *words; words++)
        if (strlen(*words) == len && strncasecmp(s, *words, len) == 0)
            return true;
    return false;
}

enum tern_text_name tern_text_name_of(const char *name)
{
    static const char *const lines[] = {"jsonl", "jsonlines", "ndjson", "ldjson", NULL};
    static const char *const prose[] = {"txt", "text", "md",  "markdown", "rst",
                                        "pod", "tex",  "org", "adoc",     NULL};
    static const char *const json[] = {"json", NULL}, *const parquet[] = {"parquet", NULL},
                             *const arrow[] = {"arrow", NULL};
    const size_t n = plain_len(name);
    const char *dot = memrchr(name, '.', n), *suffix = dot ? dot + 1 : name + n;
    const size_t len = (size_t)(name + n - suffix);
    size_t digits = 0;

    if (n == 0)
        return TERN_TEXT_NAME_OTHER;
    for (const char *const *w = lines; *w; w++)
        if (has_suffix(name, *w))
            return TERN_TEXT_NAME_JSONL;
    while (digits < len && isdigit((unsigned char)suffix[digits]))
        digits++;
    return is_one(suffix, len, json)      ? TERN_TEXT_NAME_JSON
           : is_one(suffix, len, prose)   ? TERN_TEXT_NAME_TEXT
           : is_one(suffix, len, parquet) ? TERN_TEXT_NAME_PARQUET
           : is_one(suffix, len, arrow)   ? TERN_TEXT_NAME_ARROW
           : digits == len                ? TERN_TEXT_NAME_BARE
                                          : TERN_TEXT_NAME_OTHER;
}

/* SHA256SUMS, data.jsonl.gz.md5, data.jsonl.part */
static bool is_no_data(const char *name)
{
    static const char *const suffixes[] = {"md5", "sha1",    "sha256", "sha512", "sig", "asc",
                                           "bak", "orig",    "tmp",    "part",   "swp", "lock",
                                           "crc", "partial", "idx",    "done",   NULL};
    const size_t n = strlen(name);
    const char *dot = strrchr(name, '.');

    return name[n - 1] == '~' || (n >= 4 && strcasecmp(name + n - 4, "SUMS") == 0) ||
           (dot && is_one(dot + 1, strlen(dot + 1), suffixes));
}

/* README.md, LICENSE-2.0 */
static bool is_about(const char *name)
{
    static const char *const stems[] = {"README", "LICENSE", "LICENCE",   "COPYING",
                                        "NOTICE", "CHANGES", "CHANGELOG", NULL};

    for (const char *const *s = stems; *s; s++)
        if (strncasecmp(name, *s, strlen(*s)) == 0 && !isalnum((unsigned char)name[strlen(*s)]))
            return true;
    return false;
}

enum tern_text_name tern_text_name_in_folder(const char *name)
{
    const enum tern_text_name kind = tern_text_name_of(name);
    /* Results that `datasets` keeps for itself. */
    const bool cache = kind == TERN_TEXT_NAME_ARROW && strncmp(name, "cache-", 6) == 0;
    const bool prose =
        kind == TERN_TEXT_NAME_TEXT || kind == TERN_TEXT_NAME_BARE || kind == TERN_TEXT_NAME_OTHER;

    return cache || is_no_data(name) || (prose && is_about(name)) ? TERN_TEXT_NAME_BESIDE : kind;
}

bool tern_text_name_taken(enum tern_text_name name, enum tern_text_format format,
                          const struct tern_text_names *all)
{
    const bool bare = name == TERN_TEXT_NAME_BARE, other = name == TERN_TEXT_NAME_OTHER,
               lines = all->has[TERN_TEXT_NAME_JSONL];

    switch (format) {
    case TERN_TEXT_AUTO:
        return lines                            ? name == TERN_TEXT_NAME_JSONL
               : all->has[TERN_TEXT_NAME_ARROW] ? name == TERN_TEXT_NAME_ARROW
                                                : name == TERN_TEXT_NAME_TEXT || bare;
    case TERN_TEXT_JSONL:
    case TERN_TEXT_S2ORC:
        return lines ? name == TERN_TEXT_NAME_JSONL : name == TERN_TEXT_NAME_JSON || bare || other;
    default:
        return name == TERN_TEXT_NAME_TEXT || bare || other;
    }
}

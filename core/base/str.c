#include "core/base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BUF_MAX_DEFAULT ((size_t)1 << 30)

static bool buf_reserve(struct tern_buf *b, size_t more)
{
    size_t max = b->max ? b->max : BUF_MAX_DEFAULT;

    if (b->failed || more > max || b->len > max - more) {
        b->failed = true;
        return false;
    }
    size_t need = b->len + more + 1;
    if (need > b->cap) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap < need)
            cap *= 2;
        char *p = realloc(b->data, cap);
        if (!p) {
            b->failed = true;
            return false;
        }
        b->data = p;
        b->cap = cap;
    }
    return true;
}

void tern_buf_add(struct tern_buf *b, const void *data, size_t len)
{
    if (!buf_reserve(b, len))
        return;
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void tern_buf_puts(struct tern_buf *b, const char *s)
{
    tern_buf_add(b, s, strlen(s));
}

void tern_buf_printf(struct tern_buf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !buf_reserve(b, (size_t)n)) {
        b->failed = true;
        return;
    }
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
}

void tern_buf_clear(struct tern_buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = '\0';
}

void tern_buf_free(struct tern_buf *b)
{
    free(b->data);
    *b = (struct tern_buf){.max = b->max};
}

void tern_buf_word(struct tern_buf *b, const char *s)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./:=@%+,-";

    if (*s && s[strspn(s, plain)] == '\0') {
        tern_buf_puts(b, s);
        return;
    }
    tern_buf_puts(b, "'");
    for (; *s; s++)
        tern_buf_puts(b, *s == '\'' ? "'\\''" : (char[]){*s, '\0'});
    tern_buf_puts(b, "'");
}

int tern_buf_check(const struct tern_buf *b, const char *what, struct tern_err *err)
{
    if (!b->failed)
        return 0;
    return tern_err_set(err, TERN_FAILED, "%s: larger than the %zu bytes allowed, or no memory",
                        what, b->max ? b->max : BUF_MAX_DEFAULT);
}

static void *or_abort(void *p)
{
    if (!p) {
        fputs("tern: out of memory for a name\n", stderr);
        abort();
    }
    return p;
}

char *tern_strf(const char *fmt, ...)
{
    va_list ap;
    char *s = NULL;

    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    return or_abort(n < 0 ? NULL : s);
}

size_t tern_str_utf8(const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t n = len == 0                      ? 0
               : s[0] < 0x80                 ? 1
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
               : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
               : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                             : 0;

    if (n > len)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return n > 1 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
                     (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
               ? 0 /* overlong, a surrogate, beyond Unicode */
               : n;
}

size_t tern_str_character(const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t n = tern_str_utf8(text, len);

    if ((n == 1 && (s[0] < ' ' || s[0] == 0x7f)) || (n == 2 && s[0] == 0xc2 && s[1] < 0xa0))
        return 0;
    /* U+061C, U+200E and F, U+202A to E, U+2066 to 9. */
    if ((n == 2 && s[0] == 0xd8 && s[1] == 0x9c) ||
        (n == 3 && s[0] == 0xe2 && s[1] == 0x80 &&
         (s[2] == 0x8e || s[2] == 0x8f || (s[2] >= 0xaa && s[2] <= 0xae))) ||
        (n == 3 && s[0] == 0xe2 && s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9))
        return 0;
    return n;
}

size_t tern_str_first(const char *s, size_t n)
{
    size_t i = 0;

    for (size_t begun = 0; s[i]; i++) {
        begun += ((unsigned char)s[i] & 0xc0) != 0x80;
        if (begun > n)
            break;
    }
    return i;
}

void tern_str_mask(char *s)
{
    for (size_t left = strlen(s); left > 0;) {
        size_t n = tern_str_character(s, left);
        /* Bytes of an unsafe character at `s`. */
        size_t bad = 1;
        while (n == 0 && bad < left && ((unsigned char)s[bad] & 0xc0) == 0x80)
            bad++;
        if (n == 0)
            memset(s, '?', n = bad);
        s += n;
        left -= n;
    }
}

const char *tern_str_run_name_fault(const char *s)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    if (!*s || strlen(s) > 64 || strspn(s, allowed) != strlen(s))
        return "is not 1 to 64 letters, digits, dots, dashes and underscores.";
    if (*s == '-' || *s == '.')
        return "begins with a dash or a dot: commands take it for something else.";
    /* Commands take them for a run of their choosing. */
    if (strcasecmp(s, "latest") == 0 || strcasecmp(s, "best") == 0)
        return "is a word of commands, and no name of a run.";
    return NULL;
}

char *tern_strdup(const char *s)
{
    return or_abort(strdup(s));
}

void *tern_alloc(size_t n, size_t size, const char *what, struct tern_err *err)
{
    void *p = calloc(n ? n : 1, size ? size : 1);

    if (!p)
        tern_err_set(err, TERN_TEMPFAIL, "no memory for %s (%zu x %zu bytes)", what, n, size);
    return p;
}

int tern_str_int(const char *s, int64_t lo, int64_t hi, int64_t *out)
{
    char *end;

    if (!*s || *s == ' ' || *s == '+')
        return -1;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || *end || end == s || v < lo || v > hi)
        return -1;
    *out = v;
    return 0;
}

int tern_str_real(const char *s, double lo, double hi, double *out)
{
    char *end;

    if (!*s || strspn(s, "0123456789+-.eE") != strlen(s))
        return -1;
    errno = 0;
    double v = strtod(s, &end);
    if (*end || end == s || !isfinite(v) || v < lo || v > hi)
        return -1;
    *out = v;
    return 0;
}

int tern_str_size(const char *s, uint64_t *out_bytes)
{
    static const char units[] = "KMGTPE";
    char *end;

    if (*s < '0' || *s > '9')
        return -1;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    if (errno)
        return -1;
    if (*end) {
        const char *u = strchr(units, *end);
        if (!u)
            return -1;
        unsigned shift = 10 * (unsigned)(u - units + 1);
        if (v > (ULLONG_MAX >> shift))
            return -1;
        v <<= shift;
        end++;
        if (end[0] == 'i' && end[1] == 'B')
            end += 2;
        if (*end)
            return -1;
    }
    *out_bytes = v;
    return 0;
}

bool tern_str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool tern_str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);

    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

char *tern_str_bytes(char *to, size_t n, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    int u = 0;

    while (v >= 1024 && u < 6) {
        v /= 1024;
        u++;
    }
    if (u == 0)
        snprintf(to, n, "%" PRIu64 " B", bytes);
    else
        snprintf(to, n, v < 10 ? "%.2f %s" : v < 100 ? "%.1f %s" : "%.0f %s", v, units[u]);
    return to;
}

char *tern_str_count(char *to, size_t n, uint64_t count)
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)count);
    size_t at = 0;

    for (int i = 0; i < len && at + 2 < n; i++) {
        if (i && (len - i) % 3 == 0)
            to[at++] = ',';
        to[at++] = digits[i];
    }
    if (n)
        to[at] = '\0';
    return to;
}

char *tern_str_seconds(char *to, size_t n, double seconds)
{
    if (seconds < 1e-3)
        snprintf(to, n, "%.0f us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(to, n, "%.0f ms", seconds * 1e3);
    else if (seconds < 120)
        snprintf(to, n, "%.1f s", seconds);
    else if (seconds < 3600)
        snprintf(to, n, "%d min %02d s", (int)seconds / 60, (int)seconds % 60);
    else if (seconds < 48 * 3600)
        snprintf(to, n, "%d h %02d min", (int)(seconds / 3600), (int)(seconds / 60) % 60);
    else
        snprintf(to, n, "%.1f days", seconds / 86400);
    return to;
}

/* Levenshtein distance, of names short enough to be typed; longer ones are never near. */
static size_t distance(const char *a, const char *b)
{
    enum { LONGEST = 63 };
    size_t n = strlen(a), m = strlen(b), row[LONGEST + 1];

    if (n > LONGEST || m > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t change = diagonal + (a[i - 1] != b[j - 1]);
            size_t grow = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < grow ? change : grow;
        }
    }
    return row[m];
}

const char *tern_str_nearest(const char *s, const char *const *candidates)
{
    const char *best = NULL;
    size_t best_distance = strlen(s) / 3 + 2; /* one slip in three letters, and one more */

    for (; *candidates; candidates++) {
        size_t d = distance(s, *candidates);
        if (d < best_distance) {
            best_distance = d;
            best = *candidates;
        }
    }
    return best;
}

char *tern_str_exact(char *to, size_t n, double v)
{
    if (!isfinite(v)) {
        snprintf(to, n, "%s", isnan(v) ? "NaN" : v > 0 ? "Infinity" : "-Infinity");
        return to;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(to, n, "%.*g", digits, v);
        if (strtod(to, NULL) == v)
            break;
    }
    size_t len = strlen(to);
    if (!strpbrk(to, ".e") && len + 2 < n) /* still a real */
        memcpy(to + len, ".0", 3);
    return to;
}

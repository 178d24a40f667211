/* A unified diff of two texts. */
#include "core/base/diff.h"

#include "core/base/str.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONTEXT = 3,         /* lines around a change */
    MAX_CELLS = 4 << 20, /* of the table of common lines; beyond, all between the ends differs */
};

struct lines {
    size_t n;
    const char **at; /* each ends at '\n', or at the end of the text */
    const char *end;
};

struct printer {
    FILE *to;
    bool clean;
};

static void split(struct lines *l, const char *text, size_t len)
{
    size_t n = 1;

    for (size_t i = 0; i < len; i++)
        n += text[i] == '\n';
    *l = (struct lines){.at = calloc(n, sizeof *l->at), .end = text + len};
    if (!l->at)
        abort();
    for (const char *s = text; s < l->end;) {
        const char *next = memchr(s, '\n', (size_t)(l->end - s));
        l->at[l->n++] = s;
        s = next ? next + 1 : l->end;
    }
}

static size_t length(const struct lines *l, size_t i)
{
    return (size_t)((i + 1 < l->n ? l->at[i + 1] : l->end) - l->at[i]);
}

static bool same(const struct lines *a, size_t i, const struct lines *b, size_t k)
{
    return length(a, i) == length(b, k) && memcmp(a->at[i], b->at[k], length(a, i)) == 0;
}

/* One step a letter: ' ' both, '-' of `a` alone, '+' of `b` alone.  Between the common ends, by the
 * longest common subsequence of lines. */
static char *compare(const struct lines *a, const struct lines *b)
{
    size_t head = 0, tail = 0, n = 0;

    while (head < a->n && head < b->n && same(a, head, b, head))
        head++;
    while (tail < a->n - head && tail < b->n - head && same(a, a->n - tail - 1, b, b->n - tail - 1))
        tail++;
    const size_t rows = a->n - head - tail, cols = b->n - head - tail;
    const bool table = rows && cols && rows + 1 <= MAX_CELLS / (cols + 1);
    uint32_t *common = table ? calloc((rows + 1) * (cols + 1), sizeof *common) : NULL;
    char *steps = malloc(a->n + b->n + 1);
    if (!steps || (table && !common))
        abort();
#define COMMON(i, k) common[(i) * (cols + 1) + (k)]
    for (size_t i = rows; table && i-- > 0;)
        for (size_t k = cols; k-- > 0;)
            COMMON(i, k) = same(a, head + i, b, head + k)         ? COMMON(i + 1, k + 1) + 1
                           : COMMON(i + 1, k) >= COMMON(i, k + 1) ? COMMON(i + 1, k)
                                                                  : COMMON(i, k + 1);
    for (; n < head; n++)
        steps[n] = ' ';
    for (size_t i = 0, k = 0; i < rows || k < cols;) {
        const bool both = i < rows && k < cols;
        if (both && same(a, head + i, b, head + k))
            steps[n++] = ' ', i++, k++;
        else if (i < rows && (!both || !table || COMMON(i + 1, k) >= COMMON(i, k + 1)))
            steps[n++] = '-', i++;
        else
            steps[n++] = '+', k++;
    }
#undef COMMON
    while (tail-- > 0)
        steps[n++] = ' ';
    steps[n] = '\0';
    free(common);
    return steps;
}

static void put_line(const struct printer *p, char mark, const struct lines *l, size_t i)
{
    size_t len = length(l, i);
    const bool whole = len && l->at[i][len - 1] == '\n';
    char *text = tern_strf("%.*s", (int)(len - whole), l->at[i]);

    if (p->clean)
        tern_str_mask(text);
    fprintf(p->to, "%c%s\n%s", mark, text, whole ? "" : "\\ No newline at end of file\n");
    free(text);
}

static void put_range(FILE *to, char mark, size_t from, size_t n)
{
    fprintf(to, " %c%zu", mark, n ? from + 1 : from);
    if (n != 1)
        fprintf(to, ",%zu", n);
}

/* The steps [s, e), before which `a` and `b` have had `i` and `k` lines. */
static void put_hunk(const struct printer *p, const char *s, const char *e, const struct lines *a,
                     const struct lines *b, size_t i, size_t k)
{
    size_t of_a = 0, of_b = 0;

    for (const char *c = s; c < e; c++) {
        of_a += *c != '+';
        of_b += *c != '-';
    }
    fputs("@@", p->to);
    put_range(p->to, '-', i, of_a);
    put_range(p->to, '+', k, of_b);
    fputs(" @@\n", p->to);
    for (; s < e; s++) {
        put_line(p, *s, *s == '+' ? b : a, *s == '+' ? k : i);
        i += *s != '+';
        k += *s != '-';
    }
}

static void put_hunks(const struct printer *p, const char *steps, const struct lines *a,
                      const struct lines *b)
{
    size_t i = 0, k = 0;

    for (const char *s = steps; *s;) {
        const char *change = s + strspn(s, " "), *end, *next;
        if (!*change)
            return;
        const char *begin = change - s > CONTEXT ? change - CONTEXT : s;
        for (end = change;; end = next) { /* changes whose contexts meet are one hunk */
            end += strcspn(end, " ");
            next = end + strspn(end, " ");
            if (!*next || next - end > 2 * CONTEXT)
                break;
        }
        end = next - end > CONTEXT ? end + CONTEXT : next;
        i += (size_t)(begin - s);
        k += (size_t)(begin - s);
        put_hunk(p, begin, end, a, b, i, k);
        for (s = begin; s < end; s++) {
            i += *s != '+';
            k += *s != '-';
        }
    }
}

bool tern_diff_print(const struct tern_diff *d)
{
    const struct printer p = {d->to, d->clean};
    struct lines a, b;

    split(&a, d->old ? d->old : "", d->old_len);
    split(&b, d->new ? d->new : "", d->new_len);
    char *steps = compare(&a, &b);
    const bool differs = !d->old || strpbrk(steps, "+-");
    if (differs) {
        char *name = tern_strdup(d->old ? d->old_name : "/dev/null");
        if (d->clean)
            tern_str_mask(name);
        fprintf(d->to, "--- %s\n+++ %s\n", name, d->new_name);
        put_hunks(&p, steps, &a, &b);
        free(name);
    }
    free(steps);
    free(a.at);
    free(b.at);
    return differs;
}

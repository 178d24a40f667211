/* Is a profile of `tern train` one that can be believed?
 *
 *     trace-check FILE        RANK NAME COUNT, a line for each name of a rank; and for those within
 *                             another, RANK NAME in OTHER COUNT
 *
 * Complete events of a rank lie apart, but for the model's own communication, which lies within its
 * pass; nothing is received before the other side began to send it, by more than the profile says
 * that its clocks may be wrong, which is less than a second.  Exit status 1 with a word on what is
 * wrong.
 */
#include "core/base/json.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 64 << 20 };

struct span {
    int rank, node, micro;
    double from, to;
    const char *name, *category, *pass;
    const char *within; /* the name of the span that it lies in, or NULL */
};

static struct span *spans;
static size_t n;

static void fail(const char *what, const struct span *s)
{
    fprintf(stderr, "%s: rank %d, %s from %.3f to %.3f us\n", what, s->rank, s->name, s->from,
            s->to);
    exit(1);
}

static int by_rank_and_time(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank - y->rank;
    if (x->from != y->from)
        return (x->from > y->from) - (x->from < y->from);
    return (x->to < y->to) - (x->to > y->to);
}

static void load(const json_t *events)
{
    const json_t *e;
    size_t i;

    spans = calloc(json_array_size(events) + 1, sizeof *spans);
    json_array_foreach(events, i, e)
    {
        const json_t *args = json_object_get(e, "args");
        const char *ph = json_string_value(json_object_get(e, "ph"));
        struct span *s = &spans[n];
        if (!ph || strcmp(ph, "X") != 0)
            continue;
        *s = (struct span){
            .rank = (int)json_integer_value(json_object_get(e, "tid")),
            .node = (int)json_integer_value(json_object_get(e, "pid")),
            .micro = (int)json_integer_value(json_object_get(args, "micro_batch")),
            .from = json_number_value(json_object_get(e, "ts")),
            .name = json_string_value(json_object_get(e, "name")),
            .category = json_string_value(json_object_get(e, "cat")),
            .pass = json_string_value(json_object_get(args, "pass")),
        };
        s->to = s->from + json_number_value(json_object_get(e, "dur"));
        if (!s->name || !s->category || s->from < 0 || s->to < s->from)
            fail("no span", s);
        n++;
    }
    qsort(spans, n, sizeof *spans, by_rank_and_time);
}

/* One after the other, but for what the model sends within a pass.  The last digit of a number in
 * JSON is a nanosecond. */
static void check_nesting(void)
{
    const double hair = 1e-4;
    const struct span *outer = NULL, *last = NULL;

    for (size_t i = 0; i < n; i++) {
        struct span *s = &spans[i];
        if (i == 0 || s[-1].rank != s->rank)
            outer = last = NULL;
        if (last && s->from < last->to - hair)
            fail("overlaps what is beside it", s);
        if (outer && s->from < outer->to - hair) {
            if (s->to > outer->to + hair)
                fail("ends after what it is within", s);
            if (strcmp(outer->category, "compute") != 0 ||
                (strcmp(s->name, "tensor ranks") != 0 && strcmp(s->name, "begin sums") != 0))
                fail("within what it is no part of", s);
            s->within = outer->name;
            last = s;
        } else {
            outer = s;
            last = NULL;
        }
    }
}

static double clock_error(const json_t *by_rank, int rank)
{
    const json_t *error = json_array_get(by_rank, (size_t)rank);

    if (!json_is_number(error) || json_number_value(error) < 0 || json_number_value(error) > 1e6) {
        fprintf(stderr, "rank %d: its clock_error_us is not there, or no error of a clock\n", rank);
        exit(1);
    }
    return json_number_value(error);
}

static void check_messages(const json_t *clock_errors)
{
    for (size_t i = 0; i < n; i++) {
        const struct span *r = &spans[i];
        bool sent = strcmp(r->name, "receive") != 0;
        for (size_t k = 0; k < n && !sent; k++)
            sent = strcmp(spans[k].name, "send") == 0 && r->pass && spans[k].pass &&
                   strcmp(spans[k].pass, r->pass) == 0 && spans[k].micro == r->micro &&
                   spans[k].rank != r->rank &&
                   spans[k].from <= r->to + clock_error(clock_errors, r->rank) +
                                        clock_error(clock_errors, spans[k].rank);
        if (!sent)
            fail("received before it was sent", r);
    }
}

static bool alike(const struct span *a, const struct span *b, bool within)
{
    if (a->rank != b->rank || strcmp(a->name, b->name) != 0)
        return false;
    return !within || (a->within && b->within && strcmp(a->within, b->within) == 0);
}

static void count(bool within)
{
    for (size_t i = 0; i < n; i++) {
        size_t times = 0;
        bool first = !within || spans[i].within;
        for (size_t k = 0; k < n; k++) {
            if (!alike(&spans[k], &spans[i], within))
                continue;
            first &= k >= i;
            times++;
        }
        if (first && within)
            printf("%d %s in %s %zu\n", spans[i].rank, spans[i].name, spans[i].within, times);
        else if (first)
            printf("%d %s %zu\n", spans[i].rank, spans[i].name, times);
    }
}

int main(int argc, char **argv)
{
    struct tern_err err = {0};
    json_t *j = argc == 2 ? tern_json_load(argv[1], MAX_BYTES, &err) : NULL;

    if (!j) {
        fprintf(stderr, "%s\n", argc == 2 ? err.text : "usage: trace-check FILE");
        return 2;
    }
    load(json_object_get(j, "traceEvents"));
    check_nesting();
    check_messages(json_object_get(json_object_get(j, "otherData"), "clock_error_us"));
    count(false);
    count(true);
    free(spans);
    json_decref(j);
    return 0;
}

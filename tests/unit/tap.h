/* The Test Anything Protocol for unit tests in C.
 *
 *     int main(void) { ok(1 + 1 == 2, "sums"); return tap_done(); }
 */
#ifndef TERN_TESTS_TAP_H
#define TERN_TESTS_TAP_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tap_count, tap_failed;

__attribute__((format(printf, 4, 5), unused)) static int tap_check(int good, const char *file,
                                                                   int line, const char *fmt, ...)
{
    va_list ap;

    printf("%sok %d - ", good ? "" : "not ", ++tap_count);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    if (!good) {
        tap_failed++;
        printf("# at %s:%d\n", file, line);
    }
    fflush(stdout);
    return good;
}

#define ok(good, ...) tap_check(!!(good), __FILE__, __LINE__, __VA_ARGS__)

/* Two texts are equal; both are shown when they are not. */
#define is(got, want, ...)                                                                         \
    do {                                                                                           \
        const char *g_ = (got), *w_ = (want);                                                      \
        if (!ok(g_ && strcmp(g_, w_) == 0, __VA_ARGS__))                                           \
            printf("# got  '%s'\n# want '%s'\n", g_ ? g_ : "(null)", w_);                          \
    } while (0)

/* `text` contains `part`. */
#define has(text, part, ...)                                                                       \
    do {                                                                                           \
        const char *g_ = (text), *w_ = (part);                                                     \
        if (!ok(g_ && strstr(g_, w_), __VA_ARGS__))                                                \
            printf("# got  '%s'\n# without '%s'\n", g_ ? g_ : "(null)", w_);                       \
    } while (0)

/* A measured time, rate or memory against what tern promises of it: a benchmark, asserted only
 * under `make bounds`, on a machine that does nothing else, and printed otherwise. */
#define bound(value, limit, ...)                                                                   \
    do {                                                                                           \
        double v_ = (value), l_ = (limit);                                                         \
        if (getenv("TERN_TEST_BOUNDS")) {                                                          \
            ok(v_ <= l_, __VA_ARGS__);                                                             \
        } else {                                                                                   \
            printf("# bound %s: ", v_ <= l_ ? "held" : "exceeded");                                \
            printf(__VA_ARGS__);                                                                   \
        }                                                                                          \
        printf("%s%g, at most %g\n", getenv("TERN_TEST_BOUNDS") ? "# " : ": ", v_, l_);            \
    } while (0)

/* Whether the whole list is asked for (tests/run -l), and not the part of every `make check`. */
__attribute__((unused)) static int tap_long(void)
{
    return getenv("TERN_TEST_LONG") != NULL;
}

__attribute__((unused)) static void tap_skip(const char *why)
{
    printf("ok %d # SKIP %s\n", ++tap_count, why);
}

/* Instead of all tests; what main returns. */
__attribute__((unused)) static int tap_skip_all(const char *why)
{
    printf("1..0 # SKIP %s\n", why);
    return 0;
}

__attribute__((unused)) static int tap_done(void)
{
    printf("1..%d\n", tap_count);
    return tap_failed ? 1 : 0;
}

#endif

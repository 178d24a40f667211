/* Invariants that are checked in every build, release builds too.
 *
 *     tern_assert(index < count);
 *     tern_assert(offset % 64 == 0, "offset %zu of %s", offset, name);
 *     tern_assert_cmp(written, ==, size);
 *
 * A failed assertion is a defect of tern, never bad input, a full disk or a lost peer: those are
 * errors (err.h).  It is logged with file, line, condition and the values; then the process aborts,
 * before a wrong byte reaches a disk or another rank.
 *
 * Assertions come in pairs around a disk write: before it, what is about to be written is checked;
 * after it, what was written is (sizes, counts, magic).  One costs a comparison: none stands inside
 * a loop over a tensor's elements.
 */
#ifndef TERN_BASE_ASSERT_H
#define TERN_BASE_ASSERT_H

/* The condition is evaluated once.  After it may come a format, as a literal, with its values. */
#define tern_assert(condition, ...)                                                                \
    (__builtin_expect(!!(condition), 1)                                                            \
         ? (void)0                                                                                 \
         : tern_assert_failed(__FILE__, __LINE__, #condition, " " __VA_ARGS__))

/* Two integers and the operator between them; both are logged, which evaluates them again. */
#define tern_assert_cmp(a, op, b)                                                                  \
    (__builtin_expect((a)op(b), 1)                                                                 \
         ? (void)0                                                                                 \
         : tern_assert_failed(__FILE__, __LINE__, #a " " #op " " #b, " %lld and %lld",             \
                              (long long)(a), (long long)(b)))

/* Logs one line and aborts; for the macros. */
_Noreturn void tern_assert_failed(const char *file, int line, const char *condition,
                                  const char *fmt, ...) __attribute__((format(printf, 4, 5), cold));

#endif

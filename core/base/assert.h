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
 * Assertions come in pairs around a disk write.  Before it, the bytes to be written are checked;
 * after it, the written ones (sizes, counts, magic).  One costs a comparison: none stands inside a
 * loop over a tensor's elements.
 */
#ifndef TERN_BASE_ASSERT_H
#define TERN_BASE_ASSERT_H

#include <stdbool.h>

/* The condition is evaluated once.  A format may follow, as a literal, with its values. */
#define tern_assert(condition, ...)                                                                \
    (__builtin_expect(!!(condition), 1)                                                            \
         ? (void)0                                                                                 \
         : tern_assert_failed(__FILE__, __LINE__, #condition, " " __VA_ARGS__))

/* Two integers, each evaluated once, and the operator between them; both are logged. */
#define tern_assert_cmp(a, op, b)                                                                  \
    do {                                                                                           \
        const __auto_type tern_assert_a = (a);                                                     \
        const __auto_type tern_assert_b = (b);                                                     \
        if (__builtin_expect(!(tern_assert_a op tern_assert_b), 0))                                \
            tern_assert_failed_cmp(__FILE__, __LINE__, #a " " #op " " #b,                          \
                                   TERN_ASSERT_VALUE(tern_assert_a),                               \
                                   TERN_ASSERT_VALUE(tern_assert_b));                              \
    } while (0)

/* For the macros: an integer of any type, and the lines that they log before they abort. */
struct tern_assert_value {
    unsigned long long bits;
    bool negative;
};
#define TERN_ASSERT_VALUE(v)                                                                       \
    ((struct tern_assert_value){(unsigned long long)(v), (v) < 1 && (v) != 0})

_Noreturn void tern_assert_failed_cmp(const char *file, int line, const char *condition,
                                      struct tern_assert_value a, struct tern_assert_value b)
    __attribute__((cold));
_Noreturn void tern_assert_failed(const char *file, int line, const char *condition,
                                  const char *fmt, ...) __attribute__((format(printf, 4, 5), cold));

#endif

#include "core/base/assert.h"

#include "core/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void tern_assert_failed(const char *file, int line, const char *condition, const char *fmt, ...)
{
    char values[500];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(values, sizeof values, fmt, ap);
    va_end(ap);
    tern_error("%s:%d: assertion failed: %s%s%s (a defect of tern: please report this line)", file,
               line, condition, values[1] ? ":" : "", values[1] ? values : "");
    abort();
}

static const char *print(char to[24], struct tern_assert_value v)
{
    if (v.negative)
        snprintf(to, 24, "%lld", (long long)v.bits);
    else
        snprintf(to, 24, "%llu", v.bits);
    return to;
}

void tern_assert_failed_cmp(const char *file, int line, const char *condition,
                            struct tern_assert_value a, struct tern_assert_value b)
{
    char first[24], second[24];

    tern_assert_failed(file, line, condition, " %s and %s", print(first, a), print(second, b));
}

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

/* A unified diff of two texts, as patch(1) takes it. */
#ifndef TERN_BASE_DIFF_H
#define TERN_BASE_DIFF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct tern_diff {
    FILE *to;
    bool clean; /* bytes that are unsafe on a terminal are masked */
    const char *old_name, *new_name;
    const char *old, *new; /* `old` NULL: there is no such file yet */
    size_t old_len, new_len;
};

/* Print how `old` becomes `new`; nothing, and false, where they are the same. */
bool tern_diff_print(const struct tern_diff *d);

#endif

#include "core/text/field.h"

#include <string.h>

struct tern_text_field tern_text_field_of(const char *whole)
{
    struct tern_text_field f = {.whole = whole};

    for (const char *at = whole;; at++) {
        size_t len = strcspn(at, ".");
        bool last = at[len] == '\0', each = len > 2 && memcmp(at + len - 2, "[]", 2) == 0;
        struct tern_text_field_step step = {at, each ? len - 2 : len, each};
        if (step.len == 0 || f.n_steps == TERN_TEXT_FIELD_STEPS) {
            f.n_steps = 1;
            f.step[0] = (struct tern_text_field_step){whole, strlen(whole), false};
            return f;
        }
        f.step[f.n_steps++] = step;
        at += len;
        if (last)
            return f;
    }
}

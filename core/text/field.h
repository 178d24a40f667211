/* The place of the text in a record: "text", "content.text", "body_text[].text". */
#ifndef TERN_TEXT_FIELD_H
#define TERN_TEXT_FIELD_H

#include <stdbool.h>
#include <stddef.h>

enum { TERN_TEXT_FIELD_STEPS = 8 };

/* One key after the other.  `each`: the key holds a list, and all its elements are meant. */
struct tern_text_field_step {
    const char *key; /* in `whole` */
    size_t len;
    bool each;
};

struct tern_text_field {
    const char *whole; /* is a key by itself, too, of the record */
    size_t n_steps;
    struct tern_text_field_step step[TERN_TEXT_FIELD_STEPS];
};

/* `whole` is kept.  What is no path (an empty step, more than there is room for) is a key alone. */
struct tern_text_field tern_text_field_of(const char *whole);

#endif

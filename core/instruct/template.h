/* Inside the room: a template as it was read, a record put into it. */
#ifndef TERN_INSTRUCT_TEMPLATE_H
#define TERN_INSTRUCT_TEMPLATE_H

#include "core/base/str.h"
#include "core/instruct/instruct.h"

#include <jansson.h>

/* ---- templates ---- */

enum tern_instruct_part_kind {
    TERN_INSTRUCT_TEXT,
    TERN_INSTRUCT_FIELD,   /* of the record; of a message, its content */
    TERN_INSTRUCT_SYSTEM,  /* of a user's message: the system's before it */
    TERN_INSTRUCT_IF,      /* the section stands only with this field, */
    TERN_INSTRUCT_UNLESS,  /* or only without; nothing is written */
    TERN_INSTRUCT_SPECIAL, /* `special`: which of the template's */
    TERN_INSTRUCT_BOS,
    TERN_INSTRUCT_EOS,
};

struct tern_instruct_part {
    enum tern_instruct_part_kind kind;
    char *text; /* of texts; a field's name */
    bool optional;
    size_t special;
};

/* "### Context\n{context?}" */
struct tern_instruct_line {
    struct tern_instruct_part *parts;
    size_t n;
};

enum {
    TERN_INSTRUCT_SECTIONS_MAX = 64,
    TERN_INSTRUCT_SPECIALS_MAX = 64,
    TERN_INSTRUCT_FILE_MAX = 64 << 10, /* bytes of a template */
};

struct tern_instruct_template {
    char *name;
    uint8_t digest[TERN_SHA256_BYTES];
    bool chat, bos, trim;
    char *specials[TERN_INSTRUCT_SPECIALS_MAX];
    size_t n_specials;
    struct tern_instruct_line answer;
    /* of fields: */
    struct tern_instruct_line prompt[TERN_INSTRUCT_SECTIONS_MAX], join;
    size_t n_prompt;
    /* of chats: */
    struct tern_instruct_line begin, system, user;
    bool system_in_user;
};

struct tern_instruct_template *tern_instruct_template_load(const char *name_or_file,
                                                           struct tern_err *err);
void tern_instruct_template_free(struct tern_instruct_template *t);

/* ---- records ---- */

enum { TERN_INSTRUCT_MESSAGES_MAX = 4096 }; /* each answer costs its prompt's tokens once more */

/* Text and special tokens, one after the other, each marked as a target or not. */
struct tern_instruct_piece {
    const struct tern_instruct_part *special; /* NULL: text */
    size_t end;                               /* of text in `text` */
    bool target;
};

struct tern_instruct_pieces {
    struct tern_buf text;
    struct tern_buf scratch; /* of a message */
    struct tern_instruct_piece *v;
    size_t n, cap;
    bool open; /* set by the caller: the record's last answer may be missing */
};

/* Put a record (an object) into `t`. */
int tern_instruct_render(const struct tern_instruct_template *t, const json_t *record,
                         struct tern_instruct_pieces *ret_pieces, struct tern_err *err);
/* Does putting records into `t` look at the field `path`?  "messages"; "messages[].role" */
bool tern_instruct_template_reads(const struct tern_instruct_template *t, const char *path);
void tern_instruct_pieces_free(struct tern_instruct_pieces *p);

/* What is left of a text without white space at its ends, as Python's str.strip has it. */
void tern_instruct_strip(const char **s, size_t *len);

#endif

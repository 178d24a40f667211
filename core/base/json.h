/* JSON by libjansson (https://jansson.readthedocs.io).  tern adds one-line errors and an encoding
 * of NaN and infinities, which JSON lacks. */
#ifndef TERN_BASE_JSON_H
#define TERN_BASE_JSON_H

#include <jansson.h>
#include <stdio.h>

#include "core/base/err.h"

/* Read a document; duplicate keys are errors.  `what` is a path for the message ("file:line: ...").
 * A new reference, or NULL. */
json_t *tern_json_parse(const char *text, size_t len, const char *what, struct tern_err *err);
/* The same from a file of at most `max` bytes. */
json_t *tern_json_load(const char *path, size_t max, struct tern_err *err);

/* The same of files that Python's json reads and tern only looks into.  Some values become strings
 * that tern_json_python_restore knows; so a key that is used refuses them by its type.  They are
 * NaN, Infinity, numbers that no integer or double holds, and strings and keys with half of a
 * surrogate pair or with NUL. */
json_t *tern_json_python_parse(const char *text, size_t len, const char *what,
                               struct tern_err *err);
json_t *tern_json_python_load(const char *path, size_t max, struct tern_err *err);
/* What json_dumps made of such a value, with those strings as the file had them.  Takes `text`,
 * malloc'ed or NULL, and returns such a text. */
char *tern_json_python_restore(char *text);
/* A string of such a value for a message: as the file had it.  NULL gives NULL. */
const char *tern_json_python_shown(const char *s);

/* A number, or the string "NaN", "Infinity" or "-Infinity". */
json_t *tern_json_real(double v);
/* Set in `to`: `key` to a finite number or null, and `class` to 0 for finite, 1 NaN, 2 Infinity, 3
 * -Infinity. */
void tern_json_set_real(json_t *to, const char *key, const char *class, double v);

/* A string; each byte that is not UTF-8 (in a typed name or reason, at a cut) becomes U+FFFD, since
 * JSON would refuse the text.  NULL gives null.  A new reference. */
json_t *tern_json_text(const char *s);
/* The same of `len` bytes, NULs among them. */
json_t *tern_json_textn(const char *s, size_t len);

/* Write indented, keys in the order they were set; adds a newline.  Characters that are unsafe on a
 * terminal (tern_str_character) are escaped, here and by tern_json_line. */
int tern_json_print(FILE *to, const json_t *j, struct tern_err *err);
/* The same in one line. */
void tern_json_line(FILE *to, const json_t *j);

#endif

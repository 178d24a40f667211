/* Texts whose format is not named: are they JSON, though not one object a line? */
#ifndef TERN_TEXT_JSON_LIKE_H
#define TERN_TEXT_JSON_LIKE_H

#include <stdbool.h>
#include <stddef.h>

/* Why the beginning of a text looks like JSON, in words behind its name ("is a JSON array"); NULL:
 * it does not.  It does where it begins as an object with a quoted key or as an array of objects or
 * strings.  Blanks, control characters and lines of // may stand before that.  It does where half
 * of the first lines, or of all, are objects, and where each line is a string.  `whole`: the text
 * ends behind the `n` bytes. Braces and brackets of LaTeX, Markdown, wikis and C are none of these.
 */
const char *tern_text_json_like(const char *bytes, size_t n, bool whole);

#endif

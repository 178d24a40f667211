/* Articles of Wikicorpus: lines between <doc id=...> and </doc>. */
#ifndef TERN_TEXT_ARTICLE_H
#define TERN_TEXT_ARTICLE_H

#include "core/text/parse.h"

#define TERN_TEXT_ARTICLE_END "</doc>" /* a line of its own */

/* Does a text begin with an article? */
bool tern_text_article_begins(const char *bytes, size_t n);
/* Has it a word, its lemma, tag and sense a line, as the tagged files have? */
bool tern_text_article_tagged(const char *bytes, size_t n);
/* As tern_text_parser_next; p->doc_line is that of <doc. */
int tern_text_article_next(struct tern_text_parser *p, const char **text, size_t *len,
                           struct tern_err *err);

#endif

/* A page of help, written once: for a terminal, or as a man page.
 *
 *     struct tern_page page = {.to = stdout, .columns = 80};     // .columns = 0: a man page
 *     tern_page_heading(&page, "KEYS");
 *     tern_page_text(&page, "A paragraph, wrapped.\n\n    tern run run.yaml   # as it is\n");
 *     tern_page_item(&page, "lora.rank", "of adapters beside frozen weights");
 *
 * The page keeps the distance between its blocks: no call writes a blank line of its own.
 */
#ifndef TERN_BASE_PAGE_H
#define TERN_BASE_PAGE_H

#include <stdio.h>

/* What stands last on a page. */
enum tern_page_block {
    TERN_PAGE_START,
    TERN_PAGE_HEADING,
    TERN_PAGE_PARAGRAPH,
    TERN_PAGE_CODE,
    TERN_PAGE_ITEM,
};

struct tern_page {
    FILE *to;
    int columns; /* of the terminal; 0: troff with the macros of man(7) */
    int left;    /* columns of an item's term; 0: 25.  A longer term has a line of its own */
    /* Writes what a line "@WORDS" of a text stands for: rows of a table.  NULL: there is none. */
    void (*insert)(struct tern_page *page, const char *words);
    enum tern_page_block last;
};

/* The header of a man page, and its NAME: "tern-run", 1, "supervise a training run".  Further names
 * stand behind commas. */
void tern_page_title(struct tern_page *page, const char *name, int section, const char *summary);
void tern_page_heading(struct tern_page *page, const char *heading);
/* A heading below a heading. */
void tern_page_subheading(struct tern_page *page, const char *heading);
/* A term and its explanation, which may be more than one paragraph long. */
void tern_page_item(struct tern_page *page, const char *term, const char *text);
/* Lines as they are, indented by four. */
void tern_page_code(struct tern_page *page, const char *lines);

/* A text of several blocks.  A line that begins with "# " is a heading, with four blanks a line of
 * code, with "@" a call of `insert`; "term :: explanation" is an item, whose explanation goes on in
 * the lines below; other lines are paragraphs, which end at a blank line. */
void tern_page_text(struct tern_page *page, const char *text);

/* Words of `text` wrapped at `columns`, every line indented by `indent`; a newline in `text` stays
 * one.  The cursor is at `at` on entry. */
void tern_page_wrap(FILE *to, const char *text, int indent, int columns, int at);
/* `text` for troff: what means something to it is escaped; `words in backticks` are bold. */
void tern_page_troff(FILE *to, const char *text);

#endif

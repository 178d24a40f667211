#include "core/base/page.h"

#include "core/base/str.h"
#include "core/base/version.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT = 25, CODE_INDENT = 4, TROFF_COLUMNS = 66 };

void tern_page_wrap(FILE *to, const char *text, int indent, int columns, int at)
{
    for (const char *s = text; *s;) {
        if (*s == '\n') {
            fputc('\n', to);
            at = 0;
            s++;
            continue;
        }
        size_t word = strcspn(s, " \n");
        if (word == 0) {
            s++;
            continue;
        }
        if (at > indent && at + 1 + (int)word > columns) {
            fputc('\n', to);
            at = 0;
        }
        if (at < indent)
            at += fprintf(to, "%*s", indent - at, "");
        else if (at > indent)
            at += fprintf(to, " ");
        at += fprintf(to, "%.*s", (int)word, s);
        s += word;
    }
    fputc('\n', to);
}

/* Where the backtick at `s` is closed, in the same paragraph; NULL: it is not. */
static const char *closing(const char *s)
{
    const char *end = strchr(s + 1, '`'), *paragraph = strstr(s + 1, "\n\n");

    return end && !(paragraph && paragraph < end) ? end : NULL;
}

static void troff(FILE *to, const char *s, bool code)
{
    bool start = true, bold = false;

    for (; *s; s++) {
        if (start && (*s == '.' || *s == '\''))
            fputs("\\&", to);
        start = *s == '\n';
        if (*s == '`' && !code && (bold || closing(s))) {
            bold = !bold;
            fputs(bold ? "\\fB" : "\\fR", to);
        } else if (*s == '\\') {
            fputs("\\e", to);
        } else if (*s == '`') {
            fputs("\\(ga", to);
        } else if (*s == '\'' && code) {
            fputs("\\(aq", to);
        } else if (*s == '-') {
            fputs("\\-", to);
        } else if (*s == '^') {
            fputs("\\(ha", to);
        } else if (*s == '~') {
            fputs("\\(ti", to);
        } else {
            fputc(*s, to);
        }
    }
}

void tern_page_troff(FILE *to, const char *text)
{
    troff(to, text, false);
}

/* Filled text, in lines that a person can read. */
static void troff_wrapped(FILE *to, const char *text)
{
    char *lines = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&lines, &n);

    if (f) {
        tern_page_wrap(f, text, 0, TROFF_COLUMNS, 0);
        fclose(f);
        troff(to, lines, false);
    }
    free(lines);
}

static void put(struct tern_page *page, const char *s)
{
    fputs(s, page->to);
}

/* The distance from what stands above. */
static void begin(struct tern_page *page, enum tern_page_block block)
{
    enum tern_page_block last = page->last;

    page->last = block;
    if (page->columns == 0 || last == TERN_PAGE_START || last == TERN_PAGE_HEADING)
        return;
    if (last != TERN_PAGE_ITEM || block != TERN_PAGE_ITEM)
        put(page, "\n");
}

void tern_page_title(struct tern_page *page, const char *name, int section, const char *summary)
{
    if (page->columns == 0) {
        put(page, ".TH ");
        for (const char *s = name; *s && *s != ','; s++)
            fputc(toupper((unsigned char)*s), page->to);
        fprintf(page->to, " %d %s \"tern %s\" \"tern manual\"\n", section, TERN_RELEASE_DATE,
                TERN_VERSION);
        put(page, ".SH NAME\n");
        troff(page->to, name, false);
        put(page, " \\- ");
        troff(page->to, summary, false);
        put(page, "\n");
    } else {
        char *line = tern_strf("%s: %s", name, summary);
        begin(page, TERN_PAGE_PARAGRAPH);
        tern_page_wrap(page->to, line, 0, page->columns, 0);
        free(line);
    }
}

void tern_page_heading(struct tern_page *page, const char *heading)
{
    begin(page, TERN_PAGE_HEADING);
    if (page->columns == 0)
        put(page, ".SH ");
    if (page->columns == 0)
        troff(page->to, heading, false);
    else
        put(page, heading);
    put(page, "\n");
}

void tern_page_subheading(struct tern_page *page, const char *heading)
{
    begin(page, TERN_PAGE_HEADING);
    put(page, page->columns == 0 ? ".SS " : "");
    if (page->columns == 0)
        troff(page->to, heading, false);
    else
        put(page, heading);
    put(page, "\n");
}

void tern_page_item(struct tern_page *page, const char *term, const char *text)
{
    int left = page->left ? page->left : LEFT;

    begin(page, TERN_PAGE_ITEM);
    if (page->columns == 0) {
        put(page, ".TP\n.B ");
        troff(page->to, term, true);
        put(page, "\n");
        troff_wrapped(page->to, text);
        return;
    }
    int at = fprintf(page->to, "  %s", term);
    if (at >= left) {
        put(page, "\n");
        at = 0;
    }
    tern_page_wrap(page->to, text, left, page->columns, at);
}

void tern_page_code(struct tern_page *page, const char *lines)
{
    bool first = page->last == TERN_PAGE_HEADING;

    begin(page, TERN_PAGE_CODE);
    if (page->columns == 0 && !first)
        put(page, ".PP\n");
    if (page->columns == 0)
        put(page, ".nf\n.RS 4\n");
    for (const char *s = lines; *s;) {
        size_t n = strcspn(s, "\n");
        char *line = tern_strf("%.*s", (int)n, s);
        if (page->columns == 0)
            troff(page->to, line, true);
        else if (n > 0)
            fprintf(page->to, "%*s%s", CODE_INDENT, "", line);
        put(page, "\n");
        free(line);
        s += n + (s[n] == '\n');
    }
    if (page->columns == 0)
        put(page, ".RE\n.fi\n");
}

static void paragraph(struct tern_page *page, const char *text)
{
    bool first = page->last == TERN_PAGE_HEADING;

    begin(page, TERN_PAGE_PARAGRAPH);
    if (page->columns == 0) {
        put(page, first ? "" : ".PP\n");
        troff_wrapped(page->to, text);
    } else {
        tern_page_wrap(page->to, text, 0, page->columns, 0);
    }
}

/* ------------------------------------------------------------------ a text of several blocks */

enum line { BLANK, HEADING, CODE, INSERT, ITEM, WORDS };

static enum line kind_of(const char *s, size_t n)
{
    const char *item = strstr(s, " :: ");

    if (n == 0)
        return BLANK;
    if (n > 2 && s[0] == '#' && s[1] == ' ')
        return HEADING;
    if (n > CODE_INDENT && strncmp(s, "    ", CODE_INDENT) == 0)
        return CODE;
    if (s[0] == '@')
        return INSERT;
    return item && item < s + n ? ITEM : WORDS;
}

/* The lines of a block that begins at `s`, whose first is of `kind`.  *text is malloc'ed: lines of
 * code without their indent, others joined by blanks.  Returns where it ends. */
static const char *take_block(const char *s, enum line kind, char **ret_text)
{
    struct tern_buf b = {0};
    size_t skip = kind == HEADING ? 2 : kind == CODE ? CODE_INDENT : kind == INSERT ? 1 : 0;
    enum line more = kind == CODE ? CODE : WORDS; /* the kind of line that goes on */
    bool single = kind == HEADING || kind == INSERT;

    for (enum line k = kind; k == kind || k == more;) {
        size_t n = strcspn(s, "\n");
        tern_buf_printf(&b, "%s%.*s", b.len ? (kind == CODE ? "\n" : " ") : "", (int)(n - skip),
                        s + skip);
        s += n + (s[n] == '\n');
        k = kind_of(s, strcspn(s, "\n"));
        /* A blank line between two lines of code is code. */
        if (kind == CODE && *s == '\n' && kind_of(s + 1, strcspn(s + 1, "\n")) == CODE) {
            tern_buf_puts(&b, "\n");
            s++;
            k = CODE;
        }
        if (single || !*s || (kind == ITEM && k == ITEM))
            break;
    }
    *ret_text = b.data ? b.data : tern_strdup("");
    return s;
}

static void put_item(struct tern_page *page, char *text)
{
    char *explanation = strstr(text, " :: ");

    *explanation = '\0';
    tern_page_item(page, text, explanation + 4);
}

void tern_page_text(struct tern_page *page, const char *text)
{
    for (const char *s = text; *s;) {
        enum line kind = kind_of(s, strcspn(s, "\n"));
        char *block;

        if (kind == BLANK) {
            s++;
            continue;
        }
        s = take_block(s, kind, &block);
        if (kind == HEADING)
            tern_page_heading(page, block);
        else if (kind == CODE)
            tern_page_code(page, block);
        else if (kind == ITEM)
            put_item(page, block);
        else if (kind == WORDS)
            paragraph(page, block);
        else if (page->insert)
            page->insert(page, block);
        free(block);
    }
}

/* Tables for terminals: widths by characters, one line a row. */
#include "core/report/report.h"

#include "core/base/str.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Characters in the first `len` bytes: UTF-8 continuation bytes take no place. */
static int width_of(const char *s, size_t len)
{
    int n = 0;

    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n;
}

/* Bytes that make up at most `width` characters. */
static size_t bytes_of(const char *s, int width)
{
    size_t i = 0;

    for (int n = 0; s[i]; i++) {
        n += ((unsigned char)s[i] & 0xc0) != 0x80;
        if (n > width)
            break;
    }
    return i;
}

static const struct tern_report_field *find(const struct tern_report_field *fields, size_t n,
                                            const char *name, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(fields[i].name) == len && strncasecmp(fields[i].name, name, len) == 0)
            return &fields[i];
    return NULL;
}

static int no_such(const struct tern_report_field *fields, size_t n_fields, const char *name,
                   size_t len, struct tern_err *err)
{
    const char *names[128];
    size_t n = 0;

    for (; n < n_fields && n + 1 < 128; n++)
        names[n] = fields[n].name;
    names[n] = NULL;
    char *typed = tern_strf("%.*s", (int)len, name);
    const char *near = tern_str_nearest(typed, names);
    tern_err_set(err, TERN_USAGE, "'%s' is no field%s%s%s See --helpformat.", typed,
                 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : ".");
    free(typed);
    return -1;
}

int tern_report_columns(const struct tern_report_field *fields, size_t n_fields, const char *format,
                        struct tern_report_column *to, size_t *n, struct tern_err *err)
{
    size_t got = 0;

    for (const char *s = format; *s;) {
        size_t len = strcspn(s, ","), name = strcspn(s, ",%");
        const struct tern_report_field *f = find(fields, n_fields, s, name);
        if (!f)
            return no_such(fields, n_fields, s, name, err);
        if (got == TERN_REPORT_MAX_COLUMNS)
            return tern_err_set(err, TERN_USAGE, "more than %d columns", TERN_REPORT_MAX_COLUMNS);
        struct tern_report_column c = {.field = (size_t)(f - fields), .right = f->right};
        if (name < len) {
            char *digits = tern_strf("%.*s", (int)(len - name - 1), s + name + 1);
            bool left = *digits == '-';
            int64_t width;
            int bad = tern_str_int(digits + left, 1, 1000, &width);
            free(digits);
            if (bad)
                return tern_err_set(err, TERN_USAGE,
                                    "'%.*s': a width is %%N or %%-N, N from 1 to 1000", (int)len,
                                    s);
            c.width = (int)width;
            c.right = !left;
        }
        to[got++] = c;
        s += len + (s[len] == ',');
    }
    if (got == 0)
        return tern_err_set(err, TERN_USAGE, "no columns are named. See --helpformat.");
    *n = got;
    return 0;
}

void tern_report_fields(struct tern_buf *to, const struct tern_report_field *fields,
                        size_t n_fields)
{
    for (size_t i = 0; i < n_fields; i++)
        tern_buf_printf(to, "%-16s %s\n", fields[i].name, fields[i].help);
}

/* A cell as it may stand in one line. */
static char *clean(const char *cell, bool parsable)
{
    char *s = tern_strdup(cell ? cell : "");

    for (char *c = s; *c; c++)
        if (iscntrl((unsigned char)*c) || (parsable && *c == '|'))
            *c = ' ';
    tern_str_mask(s); /* C1 in UTF-8 is two bytes */
    return s;
}

static void put_cell(struct tern_buf *to, const char *cell, const struct tern_report_column *c,
                     int width, bool last)
{
    size_t len = bytes_of(cell, width);
    int pad = width - width_of(cell, len);

    if (c->right)
        tern_buf_printf(to, "%*s", pad, "");
    tern_buf_add(to, cell, len);
    if (!c->right && !last)
        tern_buf_printf(to, "%*s", pad, "");
}

void tern_report_table(struct tern_buf *to, const struct tern_report_table *t)
{
    const struct tern_report_style *style = &t->style;
    int widths[TERN_REPORT_MAX_COLUMNS] = {0}, used = 0;

    for (size_t j = 0; j < t->n_columns && !style->parsable; j++) {
        const struct tern_report_column *c = &t->columns[j];
        widths[j] = c->width;
        if (!c->width && !style->no_header)
            widths[j] = width_of(t->fields[c->field].name, strlen(t->fields[c->field].name));
        for (size_t i = 0; !c->width && i < t->n_rows; i++) {
            const char *cell = t->cells[i * t->n_fields + c->field];
            int w = cell ? width_of(cell, strlen(cell)) : 0;
            widths[j] = w > widths[j] ? w : widths[j];
        }
        if (j + 1 == t->n_columns && style->columns && used + widths[j] > style->columns)
            widths[j] = style->columns > used + 8 ? style->columns - used : 8;
        used += widths[j] + 1;
    }
    for (size_t i = style->no_header ? 1 : 0; i <= t->n_rows; i++) {
        for (size_t j = 0; j < t->n_columns; j++) {
            size_t field = t->columns[j].field;
            char *cell = clean(i ? t->cells[(i - 1) * t->n_fields + field] : t->fields[field].name,
                               style->parsable);
            if (style->parsable)
                tern_buf_puts(to, cell);
            else
                put_cell(to, cell, &t->columns[j], widths[j], j + 1 == t->n_columns);
            free(cell);
            if (j + 1 < t->n_columns)
                tern_buf_puts(to, style->parsable ? "|" : " ");
        }
        tern_buf_puts(to, "\n");
    }
}

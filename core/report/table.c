/* Tables for terminals: widths by characters, one line a row. */
#include "core/report/report.h"

#include "core/base/str.h"

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

static const struct tern_report_field *find(const struct tern_report_field *fields, size_t n,
                                            const char *name, size_t len)
{
    for (size_t i = 0; i < n; i++) /* keys of recipes may differ in nothing but the case */
        if (strlen(fields[i].name) == len && strncmp(fields[i].name, name, len) == 0)
            return &fields[i];
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

/* A byte that may not stand in a line. */
static void put_byte(struct tern_buf *to, unsigned char c)
{
    if (c == '\n')
        tern_buf_puts(to, "\\n");
    else if (c == '\t')
        tern_buf_puts(to, "\\t");
    else
        tern_buf_printf(to, "\\x%02x", c);
}

/* A cell as it may stand in one line; malloc'ed. */
static char *clean(const char *cell, bool parsable)
{
    struct tern_buf b = {0};
    size_t len = cell ? strlen(cell) : 0;

    size_t plain = 0;
    while (plain < len && cell[plain] >= ' ' && cell[plain] < 127 &&
           (!parsable || (cell[plain] != '|' && cell[plain] != '\\')))
        plain++;
    if (plain == len)
        return tern_strdup(cell ? cell : "");
    tern_buf_puts(&b, "");
    for (size_t i = 0, n; i < len; i += n) {
        n = tern_str_character(cell + i, len - i);
        if (parsable && cell[i] == '\\')
            tern_buf_puts(&b, "\\\\");
        else if (n == 0 || (parsable && cell[i] == '|'))
            put_byte(&b, (unsigned char)cell[i]);
        else
            tern_buf_add(&b, cell + i, n);
        n = n ? n : 1;
    }
    return b.data ? b.data : tern_strdup("");
}

void tern_report_cut(struct tern_buf *to, const char *text, int width)
{
    const int head = (width - 1) / 2;
    const char *tail = text + strlen(text);

    tern_buf_add(to, text, tern_str_first(text, (size_t)head));
    tern_buf_puts(to, "+");
    for (int n = width - 1 - head; n > 0 && tail > text;)
        n -= ((unsigned char)*--tail & 0xc0) != 0x80;
    tern_buf_puts(to, tail);
}

static void put_spaces(struct tern_buf *to, int n)
{
    static const char spaces[] = "                                ";

    for (int len; n > 0; n -= len) {
        len = n < (int)sizeof spaces - 1 ? n : (int)sizeof spaces - 1;
        tern_buf_add(to, spaces, (size_t)len);
    }
}

static void put_cell(struct tern_buf *to, const char *cell, const struct tern_report_column *c,
                     int width, bool last)
{
    const size_t len = tern_str_first(cell, (size_t)width);
    const int pad = width - width_of(cell, len);

    if (c->least && cell[len]) {
        tern_report_cut(to, cell, width);
        return;
    }
    if (c->right)
        put_spaces(to, pad);
    tern_buf_add(to, cell, len);
    if (!c->right && !last)
        put_spaces(to, pad);
}

/* As wide as the widest cell, or as was asked for. */
static int natural_width(const struct tern_report_table *t, char *const *cells, size_t j)
{
    const struct tern_report_column *c = &t->columns[j];
    int width = c->width;

    for (size_t i = t->style.no_header; !c->width && i <= t->n_rows; i++) {
        const char *cell = cells[i * t->n_columns + j];
        int w = width_of(cell, strlen(cell));
        width = w > width ? w : width;
    }
    return width;
}

/* Cut the widest of the columns that may be cut, one by one, until the line fits. */
static void fit(const struct tern_report_table *t, int widths[TERN_REPORT_MAX_COLUMNS])
{
    int used = -1, over;

    for (size_t j = 0; j < t->n_columns; j++)
        used += widths[j] + 1;
    for (over = t->style.columns ? used - t->style.columns : 0; over > 0; over--) {
        size_t most = t->n_columns;
        for (size_t j = 0; j < t->n_columns; j++)
            if (t->columns[j].least && widths[j] > t->columns[j].least &&
                (most == t->n_columns || widths[j] > widths[most]))
                most = j;
        if (most == t->n_columns)
            break;
        widths[most]--;
    }
    if (over > 0 && t->n_columns && !t->columns[t->n_columns - 1].right) {
        int *last = &widths[t->n_columns - 1];
        *last = *last - over < 8 ? (*last < 8 ? *last : 8) : *last - over;
    }
}

void tern_report_table(struct tern_buf *to, const struct tern_report_table *t)
{
    const struct tern_report_style *style = &t->style;
    int widths[TERN_REPORT_MAX_COLUMNS] = {0};
    char **cells = tern_alloc((t->n_rows + 1) * t->n_columns + 1, sizeof *cells, "a table", NULL);

    if (!cells) {
        to->failed = true;
        return;
    }
    for (size_t i = 0; i <= t->n_rows; i++)
        for (size_t j = 0; j < t->n_columns; j++) {
            size_t field = t->columns[j].field;
            cells[i * t->n_columns + j] =
                clean(i ? t->cells[(i - 1) * t->n_fields + field] : t->fields[field].name,
                      style->parsable);
        }
    for (size_t j = 0; j < t->n_columns && !style->parsable; j++)
        widths[j] = natural_width(t, cells, j);
    fit(t, widths);
    for (size_t i = style->no_header ? 1 : 0; i <= t->n_rows; i++) {
        for (size_t j = 0; j < t->n_columns; j++) {
            const char *cell = cells[i * t->n_columns + j];
            if (style->parsable)
                tern_buf_puts(to, cell);
            else
                put_cell(to, cell, &t->columns[j], widths[j], j + 1 == t->n_columns);
            if (j + 1 < t->n_columns)
                tern_buf_puts(to, style->parsable ? "|" : " ");
        }
        tern_buf_puts(to, "\n");
    }
    for (size_t i = 0; i < (t->n_rows + 1) * t->n_columns; i++)
        free(cells[i]);
    free(cells);
}

/* From a document to text. */
#include "core/base/yaml_node.h"

#include <string.h>

/* In double quotes where a line or a control byte is in it, else in single ones; bare where every
 * reader takes it for the same text. */
static void write_text(struct tern_buf *to, const char *s, bool quoted)
{
    static const char bare[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-=";
    bool control = false;

    for (const char *c = s; *c; c++)
        control |= (unsigned char)*c < ' ' || *c == 0x7f;
    if (!quoted && *s && strspn(s, bare) == strlen(s) && (*s != '-' || s[1]) && *s != '=') {
        tern_buf_puts(to, s);
    } else if (!quoted && (!*s || strcmp(s, "~") == 0)) {
        tern_buf_puts(to, "null");
    } else if (control) {
        tern_buf_puts(to, "\"");
        for (const char *c = s; *c; c++) {
            if ((unsigned char)*c < ' ' || *c == 0x7f)
                tern_buf_printf(to, "\\x%02x", (unsigned char)*c);
            else
                tern_buf_printf(to, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
        }
        tern_buf_puts(to, "\"");
    } else {
        tern_buf_puts(to, "'");
        for (const char *c = s; *c; c++)
            tern_buf_puts(to, *c == '\'' ? "''" : (char[]){*c, '\0'});
        tern_buf_puts(to, "'");
    }
}

void tern_yaml_write(struct tern_buf *to, const struct tern_yaml_node *n)
{
    if (n->kind == TERN_YAML_TEXT) {
        write_text(to, n->text, n->quoted);
        return;
    }
    tern_buf_puts(to, n->kind == TERN_YAML_MAP ? "{" : "[");
    for (size_t i = 0; i < n->n; i++) {
        tern_buf_puts(to, i ? ", " : "");
        if (n->kind == TERN_YAML_MAP) {
            write_text(to, n->keys[i], false);
            tern_buf_puts(to, ": ");
        }
        tern_yaml_write(to, n->values[i]);
    }
    tern_buf_puts(to, n->kind == TERN_YAML_MAP ? "}" : "]");
}

/* A value behind its key or dash, which stand in `to` already from `from` on. */
static void write_block(struct tern_buf *to, const struct tern_yaml_node *n, size_t from,
                        int indent, size_t columns)
{
    struct tern_buf line = {0};

    tern_yaml_write(&line, n);
    if (n->kind == TERN_YAML_TEXT || n->n == 0 || to->len - from + 1 + line.len <= columns) {
        tern_buf_printf(to, " %s\n", line.data);
        tern_buf_free(&line);
        return;
    }
    tern_buf_free(&line);
    for (size_t i = 0; i < n->n; i++) {
        tern_buf_puts(to, i ? "" : "\n");
        from = to->len;
        tern_buf_printf(to, "%*s", indent, "");
        if (n->kind == TERN_YAML_MAP) {
            write_text(to, n->keys[i], false);
            tern_buf_puts(to, ":");
        } else {
            tern_buf_puts(to, "-");
        }
        write_block(to, n->values[i], from, indent + 2, columns);
    }
}

void tern_yaml_write_document(struct tern_buf *to, const struct tern_yaml *doc, size_t columns)
{
    for (size_t i = 0; i < doc->root->n; i++) {
        size_t from = to->len;
        write_text(to, doc->root->keys[i], false);
        tern_buf_puts(to, ":");
        write_block(to, doc->root->values[i], from, 2, columns);
    }
}

bool tern_yaml_same(const struct tern_yaml_node *a, const struct tern_yaml_node *b)
{
    struct tern_buf x = {0}, y = {0};

    if (!a || !b)
        return a == b;
    tern_yaml_write(&x, a);
    tern_yaml_write(&y, b);
    bool same = strcmp(x.data, y.data) == 0;
    tern_buf_free(&x);
    tern_buf_free(&y);
    return same;
}

char *tern_yaml_setting(const char *key, const char *text)
{
    struct tern_buf b = {0};

    tern_buf_printf(&b, "%s='", key);
    for (; *text; text++)
        tern_buf_puts(&b, *text == '\'' ? "''" : (char[]){*text, '\0'});
    tern_buf_puts(&b, "'");
    return b.data;
}

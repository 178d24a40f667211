#include "core/layout/notes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tern_layout_note(struct tern_layout *l, bool error, const char *id, const char *file, int line,
                      const char *where, const char *text)
{
    char *all = tern_strf("%s:%d: %s: %s: %s%s%s", file, line, error ? "error" : "warning", id,
                          where, *where ? ": " : "", text);

    for (size_t i = 0; i < l->n_notes; i++)
        if (strcmp(l->notes[i].text, all) == 0) {
            free(all);
            return;
        }
    l->n_errors += error; /* counted even when it is not kept */
    l->n_variables += error && strcmp(id, "value-variable") == 0;
    if (!l->notes)
        l->notes = tern_alloc(TERN_LAYOUT_MAX_NOTES, sizeof *l->notes, "notes", NULL);
    if (!l->notes || l->n_notes == TERN_LAYOUT_MAX_NOTES) {
        free(all);
        return;
    }
    struct tern_layout_note *n = &l->notes[l->n_notes++];
    *n = (struct tern_layout_note){.error = error, .line = line, .id = id, .text = all};
    n->file = tern_strdup(file);
    n->where = tern_strdup(where);
    n->said = all + strlen(all) - strlen(text);
}

void tern_layout_notes_free(struct tern_layout *l)
{
    for (size_t i = 0; i < l->n_notes; i++) {
        free(l->notes[i].text);
        free(l->notes[i].file);
        free(l->notes[i].where);
    }
    free(l->notes);
    l->notes = NULL;
    l->n_notes = 0;
}

static void note_at(struct tern_layout *l, bool error, const char *id,
                    const struct tern_yaml_node *n, const char *fmt, va_list ap)
{
    char text[1400];

    vsnprintf(text, sizeof text, fmt, ap);
    tern_layout_note(l, error, id, tern_yaml_file(n), tern_yaml_line(n), tern_yaml_where(n), text);
}

void tern_layout_error(struct tern_layout *l, const char *id, const struct tern_yaml_node *n,
                       const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    note_at(l, true, id, n, fmt, ap);
    va_end(ap);
}

void tern_layout_warn(struct tern_layout *l, const char *id, const struct tern_yaml_node *n,
                      const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    note_at(l, false, id, n, fmt, ap);
    va_end(ap);
}

int tern_layout_usable(const struct tern_layout *l, struct tern_err *err)
{
    for (size_t i = 0; i < l->n_notes; i++)
        if (l->notes[i].error)
            return tern_err_set(err, TERN_USAGE, "%s", l->notes[i].text);
    return tern_layout_types_known(l, err);
}

int tern_layout_types_known(const struct tern_layout *l, struct tern_err *err)
{
    if (l->unknown_type && *l->unknown_type)
        return tern_err_set(err, TERN_USAGE,
                            "%s: the CPUs and memory of %s are not in tern's catalogue, so that no "
                            "nodes can be made of it. Take another type, such as trn1.32xlarge.",
                            l->path, l->unknown_type);
    if (l->unknown_type)
        return tern_err_set(err, TERN_USAGE,
                            "%s: a reservation decides the instance type, so that no nodes can be "
                            "made of it. Write its InstanceType.",
                            l->path);
    return 0;
}

void tern_layout_sort_notes(struct tern_layout *l)
{
    for (size_t i = 1; i < l->n_notes; i++) {
        struct tern_layout_note n = l->notes[i];
        size_t k = i;
        for (; k > 0 && l->notes[k - 1].line > n.line; k--)
            l->notes[k] = l->notes[k - 1];
        l->notes[k] = n;
    }
}

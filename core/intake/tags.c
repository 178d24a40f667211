#include "core/intake/tags.h"

#include "core/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLAIMS_MAX = 1 << 16 };

/* A name, and the folder that has it. */
struct claim {
    char *name, *folder;
    struct tern_intake_writer writer;
    size_t order;
};

struct tern_intake_tags {
    struct claim *claims;
    size_t n, room;
};

struct tern_intake_tags *tern_intake_tags_open(void)
{
    return tern_alloc(1, sizeof(struct tern_intake_tags), "metrics", NULL);
}

void tern_intake_tags_close(struct tern_intake_tags *t)
{
    for (size_t k = 0; t && k < t->n; k++) {
        free(t->claims[k].name);
        free(t->claims[k].folder);
    }
    if (t)
        free(t->claims);
    free(t);
}

static struct claim *find(struct tern_intake_tags *t, const char *name)
{
    for (size_t k = 0; k < t->n; k++)
        if (strcmp(t->claims[k].name, name) == 0)
            return &t->claims[k];
    if (t->n == t->room) {
        size_t room = t->room ? 2 * t->room : 64;
        struct claim *more = t->room < CLAIMS_MAX ? realloc(t->claims, room * sizeof *more) : NULL;
        if (!more)
            return NULL;
        t->claims = more;
        t->room = room;
    }
    t->claims[t->n] = (struct claim){.name = tern_strdup(name)};
    return &t->claims[t->n++];
}

/* Does the folder have the name, or get it?  A later process takes it from one that has ended. */
static bool claim(struct tern_intake_tags *t, const char *name, const char *folder,
                  const struct tern_intake_writer *w, size_t order)
{
    struct claim *c = find(t, name);

    if (!c)
        return false;
    if (c->folder && strcmp(c->folder, folder) != 0 &&
        (w->pid < 0 || c->writer.pid < 0 || order < c->order ||
         tern_intake_writer_same(w, &c->writer) || tern_intake_writer_runs(&c->writer)))
        return false;
    if (!c->folder || strcmp(c->folder, folder) != 0) {
        free(c->folder);
        c->folder = tern_strdup(folder);
    }
    if (order >= c->order) {
        c->writer = *w;
        c->order = order;
    }
    return true;
}

/* add_scalars("a/loss", {"val": ...}) writes the tag a/loss in the folder a_loss_val (torch) or
 * a/loss/val (tensorboardX). */
static bool is_of_tag(const char *folder, const char *last, const char *tag)
{
    size_t len = strlen(tag), above = last > folder ? (size_t)(last - 1 - folder) : 0;

    if (above >= len && memcmp(last - 1 - len, tag, len) == 0 &&
        (above == len || last[-2 - (ptrdiff_t)len] == '/'))
        return true;
    if (strlen(last) <= len || last[len] != '_')
        return false;
    for (size_t k = 0; k < len; k++)
        if (last[k] != (tag[k] == '/' ? '_' : tag[k]))
            return false;
    return true;
}

void tern_intake_tags_name(struct tern_intake_tags *t, const char *folder,
                           const struct tern_intake_writer *w, size_t order, const char *tag,
                           char *to, size_t size)
{
    const char *slash = strrchr(folder, '/'), *last = slash ? slash + 1 : folder;

    snprintf(to, size, "%s", tag);
    if (!is_of_tag(folder, last, tag) && (claim(t, to, folder, w, order) || !*folder))
        return;
    snprintf(to, size, "%s/%s", last, tag);
    if (!claim(t, to, folder, w, order))
        snprintf(to, size, "%s/%s", folder, tag);
}

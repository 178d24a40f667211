/* The commands of a rendering's programs as steps, and what is paid for between them. */
#include "core/render/parts.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* A value that is missing stands as ${Name}, alone or inside a word that needs no quotes. */
static bool is_bare(const char *word)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "_./:=,-${}";

    return *word == '>' || (strstr(word, "${") && strspn(word, safe) == strlen(word));
}

void tern_render_step(struct tern_render *r, enum tern_render_phase phase, char *effect,
                      const char *const *words)
{
    struct tern_buf line = {0};

    for (size_t i = 0; words[i]; i++) {
        tern_buf_puts(&line, i ? " " : "");
        if (is_bare(words[i]))
            tern_buf_puts(&line, words[i]);
        else
            tern_buf_word(&line, words[i]);
    }
    tern_str_mask(line.data);
    r->step = reallocarray(r->step, r->n_steps + 1, sizeof *r->step);
    if (!r->step)
        abort();
    r->step[r->n_steps++] = (struct tern_render_step){phase, line.data, effect};
}

static void put_line(struct tern_buf *to, const char *fmt, va_list ap)
{
    char line[1000];

    vsnprintf(line, sizeof line, fmt, ap);
    tern_str_mask(line);
    tern_buf_printf(to, "%s\n", line);
}

void tern_render_leave(struct tern_render *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    put_line(&r->left, fmt, ap);
    va_end(ap);
}

void tern_render_unpriced(struct tern_render *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    put_line(&r->unpriced, fmt, ap);
    va_end(ap);
}

/* ------------------------------------------------------------------ nodes */

struct cost {
    struct tern_buf words;
    double usd;
    bool unknown; /* a price that is not in the sum */
};

/* "4 x trn1.32xlarge 86.00". */
static void put_nodes(struct cost *c, long n, const char *type, const char *what, bool on_demand)
{
    const struct tern_layout_instance *t = type ? tern_layout_instance(type) : NULL;
    const double usd = on_demand && t ? t->usd_hour * (double)n : 0;
    struct tern_buf *b = &c->words;

    if (!n)
        return;
    tern_buf_puts(b, b->len ? ", " : "");
    if (n > 1)
        tern_buf_printf(b, "%ld x ", n);
    tern_buf_printf(b, "%s%s", type ? type : "a reservation's nodes", what);
    if (usd > 0)
        tern_buf_printf(b, " %.2f", usd);
    else
        tern_buf_puts(b, on_demand ? " (price not known)" : " (not on demand: price not known)");
    c->unknown = c->unknown || usd <= 0;
    c->usd += usd;
}

char *tern_render_cost(const struct tern_render *r)
{
    const struct tern_layout *l = r->layout;
    struct cost is = {0}, more = {0};

    put_nodes(&is, 1, l->head_type_name, " (head node)", true);
    /* HyperPod has one group of them. */
    const size_t n_logins = strcmp(r->form, "hyperpod") == 0 && l->n_logins ? 1 : l->n_logins;
    for (size_t i = 0; i < n_logins; i++)
        put_nodes(&is, l->logins[i].count, l->logins[i].type_name, " (login)", true);
    for (size_t i = 0; i < l->n_queues; i++)
        for (size_t k = 0; k < l->queues[i].n_resources; k++) {
            const struct tern_layout_resource *n = &l->queues[i].resources[k];
            const bool on_demand = l->queues[i].capacity == TERN_ONDEMAND;
            put_nodes(&is, n->min, n->type_name, "", on_demand);
            put_nodes(&more, n->max - n->min, n->type_name, "", on_demand);
        }
    char *text = tern_strf("%s%.2f USD an hour: %s%s%s", is.unknown ? "at least " : "", is.usd,
                           is.words.data, more.words.len ? "; while jobs want them also " : "",
                           more.words.len ? more.words.data : "");
    tern_str_mask(text);
    tern_buf_free(&is.words);
    tern_buf_free(&more.words);
    return text;
}

/* ------------------------------------------------------------------ storage */

void tern_render_storage(struct tern_render *r, const struct tern_layout_storage *there)
{
    const struct tern_layout *l = r->layout;

    for (size_t i = 0; i < l->n_storage; i++) {
        const struct tern_layout_storage *s = &l->storage[i];
        const char *dir = s->mount_dir ? s->mount_dir : s->name, *type = s->type;
        if (s->existing || s == there) {
            tern_render_leave(r, "%s (%s): it was there before, and stays", dir, type);
            continue;
        }
        if (s->fsx_capacity_gib)
            tern_render_unpriced(r, "%s: %s of %lld GiB", dir, type,
                                 (long long)s->fsx_capacity_gib);
        else
            tern_render_unpriced(r, "%s: %s", dir, type);
        if (s->retained)
            tern_render_leave(r, "%s (%s): its DeletionPolicy is Retain", dir, type);
        if (s->snapshot)
            tern_render_leave(r, "%s (%s): a snapshot, by its DeletionPolicy", dir, type);
    }
}

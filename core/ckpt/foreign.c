/* Arrays in files of other formats, found by other rooms. */
#include "core/base/str.h"
#include "core/ckpt/table.h"

#include <string.h>

/* Do the elements follow each other, the last dimension's first? */
static bool is_dense(const struct tern_ckpt_piece *p, int ndim)
{
    uint64_t stride = 1;

    for (int d = ndim - 1; d >= 0; d--) {
        if (p->shape[d] > 1 && p->stride[d] != stride)
            return false;
        if (__builtin_mul_overflow(stride, p->shape[d], &stride))
            return false;
    }
    return true;
}

static int add_array(struct tern_ckpt *c, const struct tern_ckpt_pieces *a, struct tern_err *err)
{
    struct tern_ckpt_table_entry *e = &c->entries[c->n_entries];

    if (!a->info.name[0] || strlen(a->info.name) > TERN_CKPT_NAME_MAX)
        return tern_err_set(err, TERN_USAGE, "%s: an array's name has %zu bytes (1 to %d)", c->path,
                            strlen(a->info.name), TERN_CKPT_NAME_MAX);
    e->slices = tern_alloc(a->n + 1, sizeof *e->slices, c->path, err);
    if (!e->slices)
        return -1;
    c->n_entries++;
    e->info = a->info;
    e->info.name = tern_strdup(a->info.name);
    for (size_t i = 0; i < a->n; i++) {
        const struct tern_ckpt_piece *p = &a->pieces[i];
        bool empty = false;
        for (int d = 0; d < a->info.ndim; d++)
            empty |= p->shape[d] == 0;
        if (empty)
            continue;
        struct tern_ckpt_slice *s = &e->slices[e->n++];
        s->shard = p->file;
        s->offset = p->offset;
        s->strided = !is_dense(p, a->info.ndim);
        memcpy(s->start, p->start, sizeof s->start);
        memcpy(s->shape, p->shape, sizeof s->shape);
        memcpy(s->stride, p->stride, sizeof s->stride);
    }
    return 0;
}

static int fill(struct tern_ckpt *c, const struct tern_ckpt_files *f, struct tern_err *err)
{
    if (f->n > TERN_CKPT_SHARDS_MAX || f->n_arrays > TERN_CKPT_ENTRIES_MAX)
        return tern_err_set(err, TERN_USAGE, "%s: %zu files with %zu arrays are too many", f->dir,
                            f->n, f->n_arrays);
    c->shards = tern_alloc(f->n + 1, sizeof *c->shards, f->dir, err);
    c->entries = tern_alloc(f->n_arrays + 1, sizeof *c->entries, f->dir, err);
    if (!c->shards || !c->entries)
        return -1;
    for (size_t i = 0; i < f->n; i++)
        c->shards[c->n_shards++] = (struct tern_ckpt_shard){
            .name = tern_strdup(f->names[i]), .bytes = f->bytes[i], .fd = -1};
    for (size_t i = 0; i < f->n_arrays; i++)
        if (add_array(c, &f->arrays[i], err) < 0)
            return -1;
    return tern_ckpt_table_check(c, err) < 0 ? tern_err_prefix(err, "%s", c->path) : 0;
}

struct tern_ckpt *tern_ckpt_open_files(const struct tern_ckpt_files *f, struct tern_err *err)
{
    struct tern_ckpt *c = tern_ckpt_table_new(f->dir);

    if (fill(c, f, err) == 0)
        return c;
    tern_ckpt_close(c);
    return NULL;
}

#include "core/wire/ranks.h"

void *tern_wire_alloc(struct tern_wire_ranks *w, size_t bytes, bool huge, struct tern_err *err)
{
    struct tern_wire_transport *t = w->transport;
    int i = tern_wire_shm_buffer_new(&w->own, bytes, huge, err);

    if (i < 0)
        return NULL;
    struct tern_wire_shm_buffer *b = &w->own.buffers[i];
    if (t && t->ops->enroll(t, b->base, b->bytes, &b->mr, err) < 0) {
        tern_wire_shm_buffer_delete(&w->own, i);
        return NULL;
    }
    return b->base;
}

void tern_wire_free(struct tern_wire_ranks *w, void *p)
{
    int i = p ? tern_wire_shm_buffer_find(&w->own, p, 1) : -1;

    if (i < 0)
        return;
    if (w->transport)
        w->transport->ops->dismiss(w->transport, w->own.buffers[i].mr);
    tern_wire_shm_buffer_delete(&w->own, i);
}

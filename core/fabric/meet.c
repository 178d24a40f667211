#include "core/fabric/state.h"

#include <stdio.h>

static const struct shm_line *line_of(const struct tern_comm *c, int local)
{
    const struct tern_fabric *f = c->f;
    int w = c->world[c->mates[local]];

    return w == f->rank ? &f->own.head->lines[c->id] : &f->peers[w].shm.head->lines[c->id];
}

static int disagree(struct tern_comm *c, int local, uint64_t theirs, struct tern_err *err)
{
    char mine[80], other[80], what[240];

    snprintf(what, sizeof what, "called %s #%llu on communicator %d where rank %d called %s",
             tern_fabric_call_text(other, sizeof other, theirs), (unsigned long long)c->ops, c->id,
             c->f->rank, tern_fabric_call_text(mine, sizeof mine, c->desc));
    return tern_fabric_wait_blame(c, c->world[c->mates[local]], what, err);
}

int tern_fabric_meet(struct tern_comm *c, const void *buf, size_t bytes, struct tern_err *err)
{
    struct tern_fabric *f = c->f;
    struct shm_line *own = &f->own.head->lines[c->id];
    struct waiter w;
    bool waiting = false;

    if (c->p == 1)
        return 0;
    uint64_t phase = ++c->phase;
    struct shm_post *post = &own->post[phase & 1];
    int i = buf ? tern_fabric_shm_buffer_find(&f->own, buf, bytes) : -1;
    post->desc = c->desc;
    post->region = i;
    if (i >= 0) {
        post->generation = f->own.head->regions[i].generation;
        post->offset = (uint64_t)((const char *)buf - f->own.buffers[i].base);
    }
    if (phase > f->high_phase)
        f->high_phase = phase;
    atomic_store_explicit(&own->phase, phase, memory_order_release);
    for (int m = 0; m < c->p; m++) {
        const struct shm_line *l = line_of(c, m);
        while (atomic_load_explicit(&l->phase, memory_order_acquire) < phase) {
            if (!waiting)
                tern_fabric_wait_begin(&w, c);
            waiting = true;
            if (tern_fabric_wait_idle(&w, c->mates[m], err) < 0)
                return -1;
        }
        if (l->post[phase & 1].desc != c->desc)
            return disagree(c, m, l->post[phase & 1].desc, err);
    }
    return 0;
}

int tern_fabric_meet_views(struct tern_comm *c, size_t bytes, void **views, bool *all,
                           struct tern_err *err)
{
    struct tern_fabric *f = c->f;

    *all = false;
    for (int m = 0; m < c->p; m++)
        if (line_of(c, m)->post[c->phase & 1].region < 0)
            return 0;
    for (int m = 0; m < c->p; m++) {
        const struct shm_post *post = &line_of(c, m)->post[c->phase & 1];
        int w = c->world[c->mates[m]];
        views[m] = w == f->rank ? f->own.buffers[post->region].base + post->offset
                                : tern_fabric_shm_reach(&f->peers[w].shm, post, bytes, err);
        if (!views[m])
            return -1;
    }
    *all = true;
    return 0;
}

char *tern_fabric_stage_of(struct tern_comm *c, int local)
{
    int w = c->world[c->mates[local]];
    struct shm_head *h = w == c->f->rank ? c->f->own.head : c->f->peers[w].shm.head;

    return (char *)h + shm_stage_offset(c->id, c->half);
}

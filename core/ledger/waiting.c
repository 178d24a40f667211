#include "core/ledger/waiting.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct head {
    int64_t wall_ns;
    uint32_t type, len;
};

bool tern_ledger_waiting_add(struct tern_ledger_waiting *w,
                             const struct tern_ledger_waiting_record *r)
{
    const struct head h = {r->wall_ns, r->type, r->len};

    if (w->bytes.len - w->at + sizeof h + r->len > TERN_WAITING_MAX)
        return false;
    if (w->at) { /* what went before */
        memmove(w->bytes.data, w->bytes.data + w->at, w->bytes.len - w->at);
        w->bytes.len -= w->at;
        w->at = 0;
    }
    tern_buf_add(&w->bytes, &h, sizeof h);
    tern_buf_add(&w->bytes, r->payload, r->len);
    if (tern_buf_check(&w->bytes, "waiting records", NULL) < 0) {
        tern_ledger_waiting_free(w);
        return false;
    }
    w->n++;
    return true;
}

bool tern_ledger_waiting_first(const struct tern_ledger_waiting *w,
                               struct tern_ledger_waiting_record *r)
{
    struct head h;

    if (!w->n)
        return false;
    memcpy(&h, w->bytes.data + w->at, sizeof h);
    *r = (struct tern_ledger_waiting_record){(enum tern_ledger_frame_type)h.type, h.wall_ns,
                                             (const uint8_t *)w->bytes.data + w->at + sizeof h,
                                             h.len};
    return true;
}

void tern_ledger_waiting_pop(struct tern_ledger_waiting *w)
{
    struct tern_ledger_waiting_record r;

    if (!tern_ledger_waiting_first(w, &r))
        return;
    w->at += sizeof(struct head) + r.len;
    if (--w->n == 0) {
        tern_buf_clear(&w->bytes);
        w->at = 0;
    }
}

void tern_ledger_waiting_free(struct tern_ledger_waiting *w)
{
    tern_buf_free(&w->bytes);
    *w = (struct tern_ledger_waiting){0};
}

void tern_ledger_lost_add(struct tern_ledger_lost *l, const struct tern_ledger_waiting_record *r)
{
    int64_t step = -1;

    /* These begin with their step (record.h). */
    if ((r->type == TERN_FRAME_STEP || r->type == TERN_FRAME_EVAL ||
         r->type == TERN_FRAME_CHECKPOINT) &&
        r->len >= sizeof step)
        memcpy(&step, r->payload, sizeof step);
    tern_ledger_lost_join(l, 1, step, step);
}

void tern_ledger_lost_join(struct tern_ledger_lost *l, uint64_t n, int64_t first, int64_t last)
{
    if (n == 0)
        return;
    if (l->n == 0)
        l->first = l->last = -1;
    l->n += n;
    if (first < 0)
        return;
    l->first = l->first < 0 || first < l->first ? first : l->first;
    l->last = last > l->last ? last : l->last;
}

void tern_ledger_unwritten_set(struct tern_ledger_unwritten *u, const struct tern_ledger_lost *l)
{
    atomic_store(&u->first, l->first);
    atomic_store(&u->last, l->last);
    atomic_store(&u->n, l->n);
}

void tern_ledger_unwritten_join(const struct tern_ledger_unwritten *u, struct tern_ledger_lost *to)
{
    tern_ledger_lost_join(to, atomic_load(&u->n), atomic_load(&u->first), atomic_load(&u->last));
}

void tern_ledger_lost_words(const struct tern_ledger_lost *l, const char *cause, char *to,
                            size_t size)
{
    char steps[64] = "";

    if (l->first >= 0)
        snprintf(steps, sizeof steps, " (steps %" PRId64 " to %" PRId64 ")", l->first, l->last);
    snprintf(to, size, "%" PRIu64 " record%s lost%s: %s", l->n, l->n == 1 ? "" : "s", steps, cause);
}

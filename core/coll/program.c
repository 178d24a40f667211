#include "core/coll/program.h"

#include "core/base/assert.h"

#include <stdlib.h>
#include <string.h>

void tern_coll_program_clear(struct tern_coll_program *p)
{
    p->n = p->n_spots = p->work = 0;
    p->n_slots = 0;
    p->failed = false;
    p->of.call = TERN_CALL_NONE;
}

void tern_coll_program_free(struct tern_coll_program *p)
{
    free(p->steps);
    free(p->spots);
    *p = (struct tern_coll_program){0};
}

/* Lists only grow: once the longest has been made, nothing is allocated any more. */
static bool room(void **list, size_t size, size_t n, size_t *max)
{
    if (n <= *max)
        return true;
    size_t more = n * 2 < 32 ? 32 : n * 2;
    void *grown = realloc(*list, more * size);
    if (!grown)
        return false;
    *list = grown;
    *max = more;
    return true;
}

static struct step *add(struct tern_coll_program *p, enum step_kind kind)
{
    static struct step nowhere;

    if (p->failed || !room((void **)&p->steps, sizeof *p->steps, p->n + 1, &p->max)) {
        p->failed = true;
        return &nowhere;
    }
    struct step *s = &p->steps[p->n++];
    *s = (struct step){.kind = kind};
    return s;
}

static uint32_t add_spots(struct tern_coll_program *p, const struct tern_coll_spot *v, int n)
{
    size_t at = p->n_spots;

    if (p->failed || !room((void **)&p->spots, sizeof *p->spots, at + (size_t)n, &p->max_spots)) {
        p->failed = true;
        return 0;
    }
    memcpy(p->spots + at, v, (size_t)n * sizeof *v);
    p->n_spots += (size_t)n;
    return (uint32_t)at;
}

void tern_coll_program_meet(struct tern_coll_program *p)
{
    add(p, STEP_MEET);
}

void tern_coll_program_tell(struct tern_coll_program *p)
{
    add(p, STEP_TELL);
}

void tern_coll_program_hand(struct tern_coll_program *p, struct tern_coll_spot from, size_t bytes)
{
    uint32_t k = add_spots(p, &from, 1);
    struct step *s = add(p, STEP_MEET);

    tern_assert_cmp(bytes, <=, TERN_WIRE_SHM_INLINE);
    s->spot = k;
    s->n = bytes;
}

static struct span transfer(struct tern_coll_program *p, enum step_kind kind, int member,
                            struct tern_coll_spot at, size_t bytes)
{
    struct span span = {p->n_slots, 0};

    tern_assert_cmp(member, >=, 0);
    /* An empty message is one too: it synchronises. */
    for (size_t from = 0; from < bytes || span.n == 0; from += TERN_WIRE_CHUNK, span.n++) {
        size_t len = bytes - from < TERN_WIRE_CHUNK ? bytes - from : TERN_WIRE_CHUNK;
        struct tern_coll_spot here = spot_plus(at, from);
        uint32_t k = add_spots(p, &here, 1);
        struct step *s = add(p, kind);
        s->member = member;
        s->slot = p->n_slots++;
        s->spot = k;
        s->n = len;
    }
    return span;
}

struct span tern_coll_program_recv(struct tern_coll_program *p, int member,
                                   struct tern_coll_spot to, size_t bytes)
{
    return transfer(p, STEP_RECV, member, to, bytes);
}

struct span tern_coll_program_send(struct tern_coll_program *p, int member,
                                   struct tern_coll_spot from, size_t bytes)
{
    return transfer(p, STEP_SEND, member, from, bytes);
}

void tern_coll_program_wait(struct tern_coll_program *p, struct span span)
{
    tern_assert(span.first <= p->n_slots && span.n <= p->n_slots - span.first,
                "a wait for %u messages from %u on, of %u", span.n, span.first, p->n_slots);
    for (uint32_t i = 0; i < span.n; i++)
        add(p, STEP_WAIT)->slot = span.first + i;
}

void tern_coll_program_spread(struct tern_coll_program *p, const struct tern_coll_spot *to, int n,
                              struct tern_coll_spot from, size_t bytes)
{
    tern_assert_cmp(n, >=, 0);
    if (bytes == 0 || n == 0)
        return;
    uint32_t k = add_spots(p, to, n);
    add_spots(p, &from, 1);
    struct step *s = add(p, STEP_COPY);
    s->spot = k;
    s->n_dst = n;
    s->n = bytes;
}

void tern_coll_program_copy(struct tern_coll_program *p, struct tern_coll_spot to,
                            struct tern_coll_spot from, size_t bytes)
{
    tern_coll_program_spread(p, &to, 1, from, bytes);
}

void tern_coll_program_reduce(struct tern_coll_program *p, const struct tern_coll_reduce *r,
                              const struct tern_coll_spot *dst, int n_dst,
                              const struct tern_coll_spot *src, int n_src, size_t count)
{
    tern_assert(n_dst > 0 && n_src > 0, "from %d to %d places", n_src, n_dst);
    if (count == 0)
        return;
    uint32_t k = add_spots(p, dst, n_dst);
    add_spots(p, src, n_src);
    struct step *s = add(p, STEP_REDUCE);
    s->spot = k;
    s->n_dst = n_dst;
    s->n_src = n_src;
    s->n = count;
    s->reduce = *r;
}

struct tern_coll_spot tern_coll_program_work(struct tern_coll_program *p, size_t bytes)
{
    size_t at = p->work;

    p->work += (bytes + 127) & ~(size_t)127;
    if (p->work > TERN_COLL_WORK_BYTES) /* a mistake of the algorithm's */
        p->failed = true;
    return spot(PLACE_WORK, 0, at);
}

/* ---------------------------------------------------------------- for people */

static void print_spot(const struct tern_coll_program *p, uint32_t i,
                       const struct tern_coll_shape *c, struct tern_buf *to)
{
    static const char *const own[] = {
        [PLACE_IN] = "in", [PLACE_OUT] = "out", [PLACE_WORK] = "work"};
    static const char *const theirs[] = {"stage", "buffer", "line"};
    const struct tern_coll_spot *s = &p->spots[i];

    if (s->place >= PLACE_STAGE)
        tern_buf_printf(to, "rank %d's %s", c->peers[s->peer], theirs[s->place - PLACE_STAGE]);
    else
        tern_buf_puts(to, own[s->place]);
    if (s->at)
        tern_buf_printf(to, "+%zu", s->at);
}

static void print_spots(const struct tern_coll_program *p, uint32_t first, int n,
                        const struct tern_coll_shape *c, struct tern_buf *to)
{
    for (int i = 0; i < n; i++) {
        tern_buf_puts(to, i ? ", " : "");
        print_spot(p, first + (uint32_t)i, c, to);
    }
}

static void print_step(const struct tern_coll_program *p, const struct step *s,
                       const struct tern_coll_shape *c, struct tern_buf *to)
{
    switch (s->kind) {
    case STEP_MEET:
        tern_buf_puts(to, "meet the node");
        if (s->n) {
            tern_buf_printf(to, ", handing over %zu bytes: ", s->n);
            print_spot(p, s->spot, c, to);
        }
        break;
    case STEP_TELL:
        tern_buf_puts(to, "tell the node, and do not wait");
        break;
    case STEP_RECV:
    case STEP_SEND:
        tern_buf_printf(to,
                        "%s #%u: %zu bytes %s rank %d: ", s->kind == STEP_RECV ? "recv" : "send",
                        s->slot, s->n, s->kind == STEP_RECV ? "from" : "to", s->member);
        print_spot(p, s->spot, c, to);
        break;
    case STEP_WAIT:
        tern_buf_printf(to, "wait #%u", s->slot);
        break;
    case STEP_COPY:
        tern_buf_printf(to, "copy %zu bytes: ", s->n);
        print_spots(p, s->spot, s->n_dst, c, to);
        tern_buf_puts(to, " <- ");
        print_spot(p, s->spot + (uint32_t)s->n_dst, c, to);
        break;
    case STEP_REDUCE:
        tern_buf_printf(to, "reduce %zu %s: ", s->n, tern_type_name(s->reduce.src_type));
        print_spots(p, s->spot, s->n_dst, c, to);
        if (s->reduce.dst_type != s->reduce.src_type)
            tern_buf_printf(to, " (%s)", tern_type_name(s->reduce.dst_type));
        tern_buf_printf(to, " <- %s of ", tern_op_name(s->reduce.op));
        print_spots(p, s->spot + (uint32_t)s->n_dst, s->n_src, c, to);
        break;
    }
    tern_buf_puts(to, "\n");
}

void tern_coll_program_print(const struct tern_coll_program *p, const struct tern_coll_shape *c,
                             struct tern_buf *to)
{
    for (size_t i = 0; i < p->n; i++)
        print_step(p, &p->steps[i], c, to);
}

/* What the ranks would do, in words: nothing is opened. */
#include "core/fabric/program.h"

#include "core/fabric/copy.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 65536 };
#define MOST_BYTES ((1ull << 40) - 1) /* of a count, as fabric.h says */

static struct tern_comm *shape_of(const struct tern_fabric_shape *s, struct tern_err *err)
{
    if (s->ranks < 1 || s->ranks > MOST_RANKS || s->per_node < 1 || s->rank < 0 ||
        s->rank >= s->ranks) {
        tern_err_set(err, TERN_USAGE,
                     "rank %d of %d, %d a node: from 1 to %d ranks, and a rank of them", s->rank,
                     s->ranks, s->per_node, MOST_RANKS);
        return NULL;
    }
    int *node_of = tern_alloc((size_t)s->ranks, sizeof *node_of, "the nodes", err);
    if (!node_of)
        return NULL;
    for (int r = 0; r < s->ranks; r++)
        node_of[r] = r / s->per_node;
    struct tern_comm *c = tern_fabric_comm_shape(s->ranks, s->rank, node_of, err);
    free(node_of);
    return c;
}

static enum tern_call call_of(const char *name)
{
    char text[80];

    for (int call = TERN_CALL_ALL_REDUCE; call <= TERN_CALL_BARRIER; call++) {
        uint64_t desc = tern_call_pack((enum tern_call)call, TERN_F32, TERN_SUM, 0, 1);
        size_t n = strcspn(tern_call_text(text, sizeof text, desc), " ");
        if (strlen(name) == n && strncmp(name, text, n) == 0)
            return (enum tern_call)call;
    }
    return TERN_CALL_NONE;
}

/* What has one way only has no name to choose by. */
static const char *way_of(const struct tern_comm *c, const struct task *t)
{
    if (c->nodes > 1 && t->call == TERN_CALL_BROADCAST)
        return "a binomial tree between nodes";
    if (c->nodes > 1 && t->call == TERN_CALL_BARRIER)
        return "dissemination between nodes";
    return tern_fabric_algorithm_name(t->algorithm);
}

int tern_fabric_plan(const struct tern_fabric_shape *s, const char *call, enum tern_type type,
                     size_t count, struct tern_buf *to, struct tern_err *err)
{
    struct task t = {.call = call_of(call), .type = type, .op = TERN_SUM, .count = count};
    struct tern_comm *c;
    struct model m = tern_fabric_model();
    size_t cache;
    int rc = 0;

    if (!t.call)
        return tern_err_set(err, TERN_USAGE,
                            "'%s' is none of all_reduce, reduce_scatter, all_gather, broadcast, "
                            "barrier",
                            call);
    if (count > MOST_BYTES / tern_type_bytes(type))
        return tern_err_set(err, TERN_USAGE, "%zu elements of %s: an operation has at most 1 TiB",
                            count, tern_type_name(type));
    if (t.count == 0 || t.call == TERN_CALL_BARRIER)
        t.count = 1;
    if (tern_fabric_algorithm_check(err) < 0 || tern_fabric_cache_bytes(&cache, err) < 0 ||
        !(c = shape_of(s, err)))
        return -1;
    t.algorithm = tern_fabric_choose(c, &t, &m);
    t.past = tern_fabric_task_past(c, &t, cache);
    int offers = tern_fabric_task_offers(c, &t, NULL);
    t.direct = c->p == 1 || offers > 0;
    t.pushes = offers > 1;
    tern_buf_printf(to, "%s: %s", call, way_of(c, &t));
    if (t.algorithm != ALGO_NONE)
        tern_buf_printf(to, ", about %.0f us", tern_fabric_cost(c, &t, &m) * 1e6);
    tern_buf_puts(to, "\n");
    if (t.direct && c->p > 1)
        tern_buf_puts(to, "offer the buffer to the node, meet\n");
    for (size_t at = 0, done; at < t.count && rc == 0 && !to->failed; at += done) {
        tern_fabric_program_clear(c->program);
        done = tern_fabric_task_program(c, &t, at, c->program);
        if (c->program->failed)
            rc = tern_err_set(err, TERN_FAILED, "out of memory for the steps of an operation");
        else
            tern_fabric_program_print(c->program, c, to);
    }
    tern_fabric_comm_delete(c);
    return rc;
}

static void choices_of(const struct tern_comm *c, const struct model *m, enum tern_call call,
                       struct tern_buf *to)
{
    enum { MOST = 30 }; /* 1 GiB */
    char text[80];
    const char *was = NULL;
    size_t each = call == TERN_CALL_ALL_REDUCE ? 1 : (size_t)c->size;

    for (int k = 3; k <= MOST; k++) {
        struct task t = {
            .call = call, .type = TERN_F32, .op = TERN_SUM, .count = ((size_t)1 << k) / 4 / each};
        if (t.count == 0)
            continue;
        const char *name = tern_fabric_algorithm_name(tern_fabric_choose(c, &t, m));
        if (name == was)
            continue;
        char bytes[32];
        tern_call_text(text, sizeof text, tern_call_pack(call, TERN_F32, TERN_SUM, 0, 1));
        text[strcspn(text, " ")] = '\0';
        tern_buf_printf(to, "%-15s from %-8s %-9s %8.0f us there\n", text,
                        tern_str_bytes(bytes, sizeof bytes, (uint64_t)1 << k), name,
                        tern_fabric_cost(c, &t, m) * 1e6);
        was = name;
    }
}

int tern_fabric_choices(const struct tern_fabric *f, const struct tern_fabric_shape *s,
                        struct tern_buf *to, struct tern_err *err)
{
    if (tern_fabric_algorithm_check(err) < 0)
        return -1;
    struct tern_comm *made = f ? NULL : shape_of(s, err);
    const struct tern_comm *c = f ? f->comms[0] : made;
    struct model m = f ? f->model : tern_fabric_model();

    if (!c)
        return -1;
    if (c->nodes == 1) {
        tern_buf_puts(to, "all ranks share memory: nothing is to be chosen\n");
    } else {
        tern_buf_printf(to, "a round %.1f us, %.2f GB/s, %.2g ranks a core: %s\n", m.round * 1e6,
                        1e-9 / m.wire, m.load, m.measured ? "measured" : "typical");
        choices_of(c, &m, TERN_CALL_ALL_REDUCE, to);
        choices_of(c, &m, TERN_CALL_REDUCE_SCATTER, to);
        choices_of(c, &m, TERN_CALL_ALL_GATHER, to);
    }
    tern_fabric_comm_delete(made);
    return 0;
}

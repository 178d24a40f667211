/* The steps that ranks would run, in words: nothing is opened. */
#include "core/coll/program.h"

#include "core/coll/copy.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 65536 };
#define MOST_BYTES ((1ull << 40) - 1) /* of a count, as core/fabric says */

/* To be freed also after an error. */
static int make_shape(const struct tern_coll_cluster *in, struct tern_coll_shape *ret_shape,
                      struct tern_err *err)
{
    *ret_shape = (struct tern_coll_shape){0};
    if (in->ranks < 1 || in->ranks > MOST_RANKS || in->per_node < 1 || in->rank < 0 ||
        in->rank >= in->ranks)
        return tern_err_set(err, TERN_USAGE,
                            "rank %d of %d, %d a node: from 1 to %d ranks, and a rank of them",
                            in->rank, in->ranks, in->per_node, MOST_RANKS);
    int *node_of = tern_alloc((size_t)in->ranks, sizeof *node_of, "the nodes", err);
    if (!node_of)
        return -1;
    for (int r = 0; r < in->ranks; r++)
        node_of[r] = r / in->per_node;
    int rc = tern_coll_shape_make(ret_shape, in->ranks, in->rank, node_of, err);
    free(node_of);
    return rc;
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

/* Broadcast and barrier have one algorithm each, and no name to choose by. */
static const char *way_of(const struct tern_coll_shape *c, const struct tern_coll_task *t)
{
    if (c->nodes > 1 && t->call == TERN_CALL_BROADCAST)
        return "a binomial tree between nodes";
    if (c->nodes > 1 && t->call == TERN_CALL_BARRIER)
        return "dissemination between nodes";
    return tern_coll_algorithm_name(t->algorithm);
}

static int print_steps(const struct tern_coll_shape *c, const struct tern_coll_task *t,
                       struct tern_buf *to, struct tern_err *err)
{
    struct tern_coll_program p = {0};
    int rc = 0;

    for (size_t at = 0, done; at < t->count && rc == 0 && !to->failed; at += done) {
        tern_coll_program_clear(&p);
        done = tern_coll_task_program(c, t, at, &p);
        if (p.failed)
            rc = tern_err_set(err, TERN_FAILED, "out of memory for the steps of an operation");
        else
            tern_coll_program_print(&p, c, to);
    }
    tern_coll_program_free(&p);
    return rc;
}

int tern_coll_plan(const struct tern_coll_cluster *in, const char *call, enum tern_type type,
                   size_t count, struct tern_buf *to, struct tern_err *err)
{
    struct tern_coll_task t = {.call = call_of(call), .type = type, .op = TERN_SUM, .count = count};
    struct tern_coll_model m = tern_coll_model_typical();
    struct tern_coll_shape c;
    size_t cache;

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
    if (tern_coll_algorithm_check(err) < 0 || tern_coll_cache_bytes(&cache, err) < 0)
        return -1;
    int rc = make_shape(in, &c, err);
    if (rc == 0) {
        t.algorithm = tern_coll_choose(&c, &t, &m);
        t.past = tern_coll_task_past(&c, &t, cache);
        int offers = tern_coll_task_offers(&c, &t, NULL);
        t.direct = c.p == 1 || offers > 0;
        t.pushes = offers > 1;
        tern_buf_printf(to, "%s: %s", call, way_of(&c, &t));
        if (t.algorithm != TERN_COLL_NONE)
            tern_buf_printf(to, ", about %.0f us", tern_coll_cost(&c, &t, &m) * 1e6);
        tern_buf_puts(to, "\n");
        if (t.direct && c.p > 1)
            tern_buf_puts(to, "offer the buffer to the node, meet\n");
        rc = print_steps(&c, &t, to, err);
    }
    tern_coll_shape_free(&c);
    return rc;
}

static void choices_of(const struct tern_coll_shape *c, const struct tern_coll_model *m,
                       enum tern_call call, struct tern_buf *to)
{
    enum { MOST = 30 }; /* 1 GiB */
    char text[80];
    const char *was = NULL;
    size_t each = call == TERN_CALL_ALL_REDUCE ? 1 : (size_t)c->size;

    for (int k = 3; k <= MOST; k++) {
        struct tern_coll_task t = {
            .call = call, .type = TERN_F32, .op = TERN_SUM, .count = ((size_t)1 << k) / 4 / each};
        if (t.count == 0)
            continue;
        const char *name = tern_coll_algorithm_name(tern_coll_choose(c, &t, m));
        if (name == was)
            continue;
        char bytes[32];
        tern_call_text(text, sizeof text, tern_call_pack(call, TERN_F32, TERN_SUM, 0, 1));
        text[strcspn(text, " ")] = '\0';
        tern_buf_printf(to, "%-15s from %-8s %-9s %8.0f us there\n", text,
                        tern_str_bytes(bytes, sizeof bytes, (uint64_t)1 << k), name,
                        tern_coll_cost(c, &t, m) * 1e6);
        was = name;
    }
}

void tern_coll_choices(const struct tern_coll_shape *c, const struct tern_coll_model *m,
                       struct tern_buf *to)
{
    if (c->nodes == 1) {
        tern_buf_puts(to, "all ranks share memory: there is nothing to choose\n");
        return;
    }
    tern_buf_printf(to, "a round %.1f us, %.2f GB/s, %.2g ranks a core: %s\n", m->round * 1e6,
                    1e-9 / m->wire, m->load, m->measured ? "measured" : "typical");
    choices_of(c, m, TERN_CALL_ALL_REDUCE, to);
    choices_of(c, m, TERN_CALL_REDUCE_SCATTER, to);
    choices_of(c, m, TERN_CALL_ALL_GATHER, to);
}

int tern_coll_plan_choices(const struct tern_coll_cluster *in, struct tern_buf *to,
                           struct tern_err *err)
{
    struct tern_coll_model m = tern_coll_model_typical();
    struct tern_coll_shape c;

    if (tern_coll_algorithm_check(err) < 0)
        return -1;
    int rc = make_shape(in, &c, err);
    if (rc == 0)
        tern_coll_choices(&c, &m, to);
    tern_coll_shape_free(&c);
    return rc;
}

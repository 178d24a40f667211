/* The words of `tern fabric info`: transport, choices, what they rest on. */
#include "core/fabric/state.h"

#include "core/base/str.h"
#include "core/base/vars.h"

#include <string.h>

static void explain_nodes(const struct tern_fabric *f, struct tern_buf *to)
{
    int *ranks = f->mismatch.sorted, n;

    for (int node = 0; node < f->wire.nodes && node < 16; node++) {
        const char *name = "";
        char text[200];
        n = 0;
        for (int r = 0; r < f->wire.size; r++) {
            if (f->wire.peers[r].node != node)
                continue;
            name = f->wire.peers[r].node_name;
            ranks[n++] = r;
        }
        tern_buf_printf(to, "node %d (%s): %s %s%s\n", node, name, n > 1 ? "ranks" : "rank",
                        tern_flight_ranks_text(text, sizeof text, ranks, n),
                        n > 1 ? ", which map each other's memory: no messages among them" : "");
    }
    if (f->wire.nodes > 16)
        tern_buf_printf(to, "... and %d nodes more\n", f->wire.nodes - 16);
}

/* The transport that is there, or the one that would be taken. */
static void explain_transport(const struct tern_fabric *f, struct tern_buf *to)
{
    const struct tern_wire_options options = {
        .carrier = "ofi", .rank = f->wire.rank, .size = f->wire.size};
    struct tern_err err = {0};
    struct tern_wire_transport *t = f->wire.transport;
    const char *carrier = tern_var("TERN_FABRIC");

    if (!t && carrier && strcmp(carrier, "mpi") == 0) {
        tern_buf_puts(to, "between nodes: nothing to do for these ranks; it would be MPI\n");
        return;
    }
    if (!t) {
        tern_buf_puts(to, "between nodes: nothing to do for these ranks; it would be\n");
        t = tern_wire_open(&options, &err);
    } else {
        tern_buf_puts(to, "between nodes:\n");
    }
    if (!t) {
        tern_buf_printf(to, "  nothing: %s\n", err.text);
        return;
    }
    struct tern_buf lines = {0};
    t->ops->explain(t, &lines);
    for (char *at = lines.data, *next; at && *at; at = next) {
        next = at + strcspn(at, "\n");
        tern_buf_printf(to, "  %.*s\n", (int)(next - at), at);
        next += *next == '\n';
    }
    tern_buf_free(&lines);
    if (t != f->wire.transport)
        t->ops->close(t);
}

void tern_fabric_choices(const struct tern_fabric *f, struct tern_buf *to)
{
    tern_coll_choices(&f->coll.comms[0]->shape, &f->coll.model, to);
}

static void explain_variable(const char *name, struct tern_buf *to)
{
    const char *v = tern_var(name);

    if (v)
        tern_buf_printf(to, "%s=%s\n", name, v);
}

void tern_fabric_explain(const struct tern_fabric *f, struct tern_buf *to)
{
    tern_buf_printf(to, "rank %d of %d; %s\n", f->wire.rank, f->wire.size, f->about);
    explain_nodes(f, to);
    explain_transport(f, to);
    if (f->wire.nodes > 1) {
        tern_buf_puts(to, "algorithms: ");
        tern_fabric_choices(f, to);
    }
    if (f->coll.model.load > 1)
        tern_buf_printf(to, "cores: %.3g ranks for one, on the fullest machine",
                        f->coll.model.load);
    else
        tern_buf_puts(to, "cores: one for each rank");
    tern_buf_printf(to, ": a rank polls %u times before it gives its core away\n", f->wait.spins);
    tern_buf_printf(to, "deadline: a wait of %g s for another rank is an error\n",
                    (double)f->wait.deadline_ns / 1e9);
    if (f->wait.liveness)
        tern_buf_printf(
            to,
            "liveness: a rank that shows no life for %g s is named; one that lives has the time "
            "that its work takes\n",
            (double)f->wait.liveness_ns / 1e9);
    if (f->flight.dir[0])
        tern_buf_printf(to,
                        "flight recorder: the last %d operations are written to %s on failure and "
                        "on SIGUSR2\n",
                        TERN_FLIGHT_RING, f->flight.dir);
    else
        tern_buf_printf(to,
                        "flight recorder: the last %d operations are kept, and nowhere written: "
                        "TERN_FABRIC_DUMP is not set\n",
                        TERN_FLIGHT_RING);
    for (const struct tern_var *v = tern_vars; v->name; v++)
        if (tern_str_starts(v->name, "TERN_FABRIC") || strcmp(v->name, "TERN_DEADLINE") == 0 ||
            strcmp(v->name, "TERN_LIVENESS") == 0)
            explain_variable(v->name, to);
}

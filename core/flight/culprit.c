/* Which rank the others wait for: chains of ranks, each of which waits for the next. */
#include "core/flight/report_state.h"

#include <stdlib.h>
#include <string.h>

/* The operation that the rank was in. Of several begun at once: one that waits for a rank rather
 * than one behind it in the queue, and of these the newest. */
static const struct dump_record *open_record(const struct dump *d)
{
    const struct dump_record *best = NULL;

    for (int i = 0; i < d->n_records; i++) {
        const struct dump_record *r = &d->records[i];
        bool waits = r->waits_for >= 0,
             better = !best || waits > (best->waits_for >= 0) ||
                      (waits == (best->waits_for >= 0) && r->seq > best->seq);
        if (r->state != TERN_FLIGHT_DONE && better)
            best = r;
    }
    return best;
}

static const struct dump_comm *comm_of(const struct dump *d, const struct dump_record *r)
{
    for (int i = 0; i < d->n_comms; i++)
        if (d->comms[i].serial == r->comm)
            return &d->comms[i];
    return NULL;
}

/* Is the operation of `rank` in the communicator that `as` is in? */
static bool shares_comm(const struct tern_flight_report *a, const struct dump_record *const *open,
                        int rank, int as)
{
    const struct dump_comm *x = comm_of(a->dumps[rank], open[rank]);
    const struct dump_comm *y = comm_of(a->dumps[as], open[as]);

    return x && y && tern_flight_dump_same_comm(x, y);
}

/* The last rank of chain[0..n-1] is in it twice. Ranks call the operations of one communicator in
 * one order, so a circle within one comes of dumps that were written at different moments. */
static enum culprit_kind circle_kind(const struct tern_flight_report *a,
                                     const struct dump_record *const *open, const int *chain, int n)
{
    const int first = chain[n - 1];

    for (int i = n - 2; i >= 0 && chain[i] != first; i--)
        if (!shares_comm(a, open, chain[i], first))
            return CULPRIT_CIRCLE;
    return CULPRIT_MOMENTS;
}

/* From `rank` to the rank that it waits for, and so on; where the chain ends and why.  `chain` has
 * room for all ranks, seen[r] is `round` for the ranks of this chain. */
static int follow(const struct tern_flight_report *a, const struct dump_record *const *open,
                  int rank, int *chain, int *n, int *seen, enum culprit_kind *why)
{
    const int round = rank + 1;

    for (*n = 0;;) {
        const struct dump *d = a->dumps[rank];
        chain[(*n)++] = rank;
        *why = !d                          ? CULPRIT_NO_DUMP
               : seen[rank] == round       ? circle_kind(a, open, chain, *n)
               : d->written_by != rank     ? CULPRIT_ABSENT
               : !open[rank]               ? CULPRIT_BEHIND
               : open[rank]->waits_for < 0 ? CULPRIT_LOST
                                           : CULPRIT_NONE;
        if (*why != CULPRIT_NONE)
            return rank;
        seen[rank] = round;
        rank = open[rank]->waits_for;
    }
}

struct verdict {
    int n;
    enum culprit_kind why;
};

static bool is_member(const struct place *p, int rank)
{
    for (int i = 0; i < p->n; i++)
        if (p->members[i] == rank)
            return true;
    return false;
}

/* How little a chain's end says: a rank that is gone has hold of others whatever they wait for
 * besides.  One that heard of the failure between two waits has a chain that ends at once. */
enum { SURE, LIKELY, BY_MOMENT, UNKNOWN, DOUBTS };

static int doubt(enum culprit_kind why)
{
    return why == CULPRIT_NO_DUMP || why == CULPRIT_ABSENT ? SURE
           : why == CULPRIT_MOMENTS                        ? BY_MOMENT
           : why == CULPRIT_LOST                           ? UNKNOWN
                                                           : LIKELY;
}

/* The rank that most ranks wait for, of those whose chains end in the least doubt.  The ranks of
 * the doubtful chains waited, through the others of their operation, for the same rank. */
static void choose_culprit(struct tern_flight_report *a, const struct verdict *ends)
{
    int most = 0;

    a->kind = CULPRIT_NONE;
    for (int least = SURE; least < DOUBTS && !most; least++)
        for (int r = 0; r < a->size; r++)
            if (ends[r].n > most && doubt(ends[r].why) == least) {
                a->culprit = r;
                a->kind = ends[r].why;
                most = ends[r].n;
            }
    a->n_waiting = most;
    for (int r = 0; r < a->size && doubt(a->kind) < UNKNOWN; r++) {
        bool together = false;
        for (int i = 0; i < a->n_places && r != a->culprit && doubt(ends[r].why) >= BY_MOMENT; i++)
            together |= is_member(&a->places[i], r) && is_member(&a->places[i], a->culprit);
        a->n_waiting += together ? ends[r].n : 0;
    }
}

int tern_flight_culprit_find(struct tern_flight_report *a, struct tern_err *err)
{
    size_t n = (size_t)a->size;
    const struct dump_record **open = tern_alloc(n, sizeof *open, "the chains", err);
    struct verdict *ends = tern_alloc(n, sizeof *ends, "the chains", err);
    int *chain = tern_alloc(n + 1, sizeof *chain, "the chains", err);
    int *seen = tern_alloc(n, sizeof *seen, "the chains", err), rc = -1, len;
    enum culprit_kind why;

    a->chain = tern_alloc(n + 1, sizeof *a->chain, "the chains", err);
    if (!open || !ends || !chain || !seen || !a->chain)
        goto out;
    for (int r = 0; r < a->size; r++)
        open[r] = a->dumps[r] ? open_record(a->dumps[r]) : NULL;
    for (int r = 0; r < a->size; r++) {
        if (!open[r])
            continue;
        int end = follow(a, open, r, chain, &len, seen, &why);
        ends[end].n++;
        ends[end].why = why;
    }
    choose_culprit(a, ends);
    /* Its own chain is not one of a rank that waits for it, but in a circle. */
    a->n_waiting -= a->n_waiting > 1 && open[a->culprit] && a->kind != CULPRIT_CIRCLE &&
                    a->kind != CULPRIT_MOMENTS;
    memset(seen, 0, n * sizeof *seen);
    for (int r = 0; r < a->size; r++) {
        if (!open[r] || follow(a, open, r, chain, &len, seen, &why) != a->culprit ||
            len <= a->n_chain)
            continue;
        memcpy(a->chain, chain, (size_t)len * sizeof *chain);
        a->n_chain = len;
    }
    rc = 0;
out:
    free(open);
    free(ends);
    free(chain);
    free(seen);
    return rc;
}

#include "core/flight/report.h"
#include "core/flight/report_state.h"

#include "core/base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- the files */

static void free_dumps(struct dump **dumps, int n)
{
    for (int i = 0; i < n; i++)
        tern_flight_dump_free(dumps[i]);
    free(dumps);
}

static struct dump *load(const char *dir, const char *name, struct tern_buf *bad)
{
    struct tern_err err = {0};
    char *path = tern_strf("%s/%s", dir, name), *data = NULL;
    struct dump *d = NULL;
    size_t len = 0;

    if (tern_fs_read(path, DUMP_BYTES_MAX, &data, &len, &err) < 0)
        tern_buf_printf(bad, "%s\n", err.text);
    else if (!(d = tern_flight_dump_parse(data, len, &err)))
        tern_buf_printf(bad, "%s: %s\n", path, err.text);
    free(data);
    free(path);
    return d;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_dump(const struct dirent *e)
{
    return tern_str_starts(e->d_name, "fabric-rank-") && tern_str_ends(e->d_name, ".tfr");
}

/* The newest one tells how many ranks there are; of two of one rank the newer one counts. */
static int place_dumps(struct tern_flight_report *a, struct dump **found, int n,
                       struct tern_err *err)
{
    int64_t newest = -1;
    int strange = 0;

    for (int i = 0; i < n; i++)
        if (found[i]->wall_ns > newest) {
            newest = found[i]->wall_ns;
            a->size = found[i]->size;
        }
    a->dumps = tern_alloc((size_t)a->size, sizeof *a->dumps, "the dumps", err);
    if (!a->dumps)
        return -1;
    for (int i = 0; i < n; i++) {
        struct dump **at = &a->dumps[found[i]->size == a->size ? found[i]->rank : 0];
        if (found[i]->size != a->size || (*at && (*at)->wall_ns > found[i]->wall_ns)) {
            strange++;
            continue;
        }
        if (found[i]->nodes && !a->nodes) {
            a->nodes = found[i]->nodes;
            found[i]->nodes = NULL;
        }
        a->n_dumps += !*at;
        tern_flight_dump_free(*at);
        *at = found[i];
        found[i] = NULL;
    }
    if (strange)
        tern_buf_printf(&a->bad, "%d dump%s of an earlier start left out\n", strange,
                        strange > 1 ? "s" : "");
    return 0;
}

static int read_all(struct tern_flight_report *a, const char *dir, struct tern_err *err)
{
    struct dirent **names = NULL;
    int n_names = scandir(dir, &names, is_dump, by_name), n = 0, rc = -1;

    if (n_names < 0) {
        tern_err_sys(err, "%s", dir);
        if (err && errno == ENOENT)
            err->code = TERN_USAGE;
        return -1;
    }
    struct dump **found = tern_alloc((size_t)n_names + 1, sizeof *found, "the dumps", err);
    for (int i = 0; i < n_names; i++) {
        if (found && i < DUMP_WORLD_MAX && (found[n] = load(dir, names[i]->d_name, &a->bad))) {
            if (n && found[n]->size == found[n - 1]->size) { /* they all name the same nodes */
                free(found[n]->nodes);
                found[n]->nodes = NULL;
            }
            n++;
        }
        free(names[i]);
    }
    free(names);
    if (found && n == 0)
        tern_err_set(err, TERN_USAGE,
                     "%s: no fabric-rank-*.tfr in it that can be read%s%.*s. `tern run` has ranks "
                     "write them beside their logs: LEDGER/runs/RUN/logs/ATTEMPT.",
                     dir, a->bad.len ? ": " : "", a->bad.len ? (int)strcspn(a->bad.data, "\n") : 0,
                     a->bad.len ? a->bad.data : "");
    else if (found)
        rc = place_dumps(a, found, n, err);
    if (found)
        free_dumps(found, n);
    return rc;
}

/* ---------------------------------------------------------------- communicators */

struct view { /* a communicator as one rank knew it */
    const struct dump *d;
    const struct dump_comm *c;
};

static int by_comm(const void *a, const void *b)
{
    const struct view *x = a, *y = b;

    if (x->c->id != y->c->id)
        return x->c->id < y->c->id ? -1 : 1;
    if (x->c->phase != y->c->phase)
        return x->c->phase < y->c->phase ? -1 : 1;
    if (x->c->mark != y->c->mark)
        return x->c->mark < y->c->mark ? -1 : 1;
    return x->d->rank < y->d->rank ? -1 : x->d->rank > y->d->rank;
}

static const struct dump_record *find(const struct dump_comm *c, uint64_t op)
{
    for (int i = c->n_records - 1; i >= 0; i--)
        if (c->records[i].op == op)
            return &c->records[i];
    return NULL;
}

/* BEHIND: ended, failed, or under way, whatever it waits for. */
static int how_left(const struct part *x)
{
    return x->kind != PART_BEHIND           ? 0
           : x->state == TERN_FLIGHT_DONE   ? 1
           : x->state == TERN_FLIGHT_FAILED ? 2
                                            : 3;
}

static bool same_part(const struct part *x, const struct part *y)
{
    return x->kind == y->kind && x->desc == y->desc && x->waits_for == y->waits_for &&
           x->left_op == y->left_op && how_left(x) == how_left(y);
}

/* The last part takes what has no room of its own. */
static int add_part(struct place *p, int rank, const struct part *is, struct tern_err *err)
{
    struct part *at = p->parts;

    while (at < p->parts + p->n_parts && !same_part(at, is))
        at++;
    if (at == p->parts + REPORT_PARTS)
        at--;
    if (at == p->parts + p->n_parts) {
        p->n_parts++;
        *at = *is;
        at->ranks = tern_alloc((size_t)p->n, sizeof *at->ranks, "the ranks", err);
        if (!at->ranks)
            return -1;
    }
    at->seconds = is->seconds > at->seconds ? is->seconds : at->seconds;
    at->left_ns = is->left_ns > at->left_ns ? is->left_ns : at->left_ns;
    at->ranks[at->n++] = rank;
    return 0;
}

/* Where a rank with the dump `v->d` is, seen from operation `op`. */
static struct part part_of(const struct view *v, uint64_t op)
{
    struct part is = {.waits_for = -1};
    const struct dump_record *r = find(v->c, op);

    if (r) {
        is.kind = r->state == TERN_FLIGHT_DONE ? PART_FINISHED : PART_IN;
        is.desc = r->desc;
        is.state = r->state;
        is.waits_for = r->waits_for;
        is.seconds = (double)((r->end_ns ? r->end_ns : v->d->wall_ns) - r->begin_ns) / 1e9;
        return is;
    }
    if (v->c->n_records && v->c->records[v->c->n_records - 1].op > op)
        is.kind = PART_FINISHED;
    else if (!v->c->n_records && v->d->forgot)
        is.kind = PART_FORGOT;
    else
        is.kind = PART_BEHIND;
    if (is.kind == PART_BEHIND && v->c->n_records) {
        const struct dump_record *last = &v->c->records[v->c->n_records - 1];
        is.left_op = last->op;
        is.desc = last->desc;
        is.state = last->state;
        is.left_ns = last->end_ns;
    }
    return is;
}

static int set_members(struct place *p, const struct tern_flight_report *a, const struct view *v,
                       int n, struct tern_err *err)
{
    bool *in = tern_alloc((size_t)a->size, sizeof *in, "the members", err);

    p->members = tern_alloc((size_t)a->size, sizeof *p->members, "the members", err);
    if (!in || !p->members) {
        free(in);
        return -1;
    }
    for (int i = 0; i < v->c->n_members; i++)
        in[v->c->members[i]] = true;
    for (int i = 0; i < n; i++)
        in[v[i].d->rank] = true;
    for (int r = 0; r < a->size; r++)
        if (in[r])
            p->members[p->n++] = r;
    free(in);
    return 0;
}

/* The first operation that one of them has not finished; false if there is none. */
static bool first_open(const struct view *v, int n, uint64_t *op)
{
    bool any = false;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < v[i].c->n_records; k++) {
            const struct dump_record *r = &v[i].c->records[k];
            if (r->state != TERN_FLIGHT_DONE && (!any || r->op < *op)) {
                *op = r->op;
                any = true;
            }
        }
    return any;
}

/* The first operation from `from` on that two of them called differently; `from` if there is none.
 * Then it is the cause, also where a third rank had not finished the one before: ranks hear of the
 * end at different moments. */
static uint64_t first_difference(const struct view *v, int n, uint64_t from)
{
    enum { OPEN = 64 }; /* operations of a communicator that may be under way */
    uint64_t seen[OPEN] = {0}, best = OPEN;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < v[i].c->n_records; k++) {
            const struct dump_record *r = &v[i].c->records[k];
            const uint64_t at = r->op - from;
            if (r->op < from || at >= best)
                continue;
            if (seen[at] && seen[at] != r->desc)
                best = at;
            seen[at] = r->desc;
        }
    return best < OPEN ? from + best : from;
}

static void look_for_difference(struct place *p)
{
    const struct part *first = NULL;

    for (int k = 0; k < p->n_parts; k++) {
        const struct part *x = &p->parts[k];
        if (!x->desc || (x->kind != PART_IN && x->kind != PART_FINISHED))
            continue;
        p->differ |= first && first->desc != x->desc;
        first = first ? first : x;
    }
}

static int look_at(struct tern_flight_report *a, struct place *p, const struct view *v, int n,
                   struct tern_err *err)
{
    int next = 0;

    p->id = v->c->id;
    p->mark = v->c->mark;
    p->phase = v->c->phase;
    p->cut = v->c->cut;
    if (set_members(p, a, v, n, err) < 0)
        return -1;
    for (int i = 0; i < p->n; i++) {
        struct part is = {.waits_for = -1, .kind = PART_NO_DUMP};
        if (next < n && v[next].d->rank == p->members[i])
            is = part_of(&v[next++], p->op);
        else if (a->dumps[p->members[i]])
            is.kind = PART_FORGOT;
        const uint64_t done = is.left_op - (is.left_op && is.state != TERN_FLIGHT_DONE);
        if (is.kind == PART_BEHIND && done < p->finished)
            p->finished = done;
        if (add_part(p, p->members[i], &is, err) < 0)
            return -1;
    }
    look_for_difference(p);
    return 0;
}

/* ---------------------------------------------------------------- the verdict */

static bool has_rank(const struct part *x, int rank)
{
    for (int i = 0; i < x->n; i++)
        if (x->ranks[i] == rank)
            return true;
    return false;
}

/* Different calls explain everything that comes after them. */
static void judge(struct tern_flight_report *a)
{
    a->place = -1;
    for (int i = 0; i < a->n_places && a->kind != CULPRIT_DIFFERS; i++) {
        const struct place *p = &a->places[i];
        if (p->differ) {
            a->kind = CULPRIT_DIFFERS;
            a->place = i;
            a->culprit = -1;
        }
        for (int k = 0; k < p->n_parts && a->place < 0; k++)
            if (p->parts[k].kind == PART_BEHIND && has_rank(&p->parts[k], a->culprit))
                a->place = i;
    }
}

/* ---------------------------------------------------------------- the last to come */

struct lateness {
    int rank;
    uint64_t times;
    double seconds;
};

static void compare_comers(struct tern_flight_report *a, const struct view *v, int n, int *at,
                           struct lateness *late)
{
    if (n < 2 || n != v->c->size)
        return;
    memset(at, 0, (size_t)n * sizeof *at);
    for (int k = 0; k < v->c->n_records; k++) {
        uint64_t op = v->c->records[k].op;
        int64_t last = 0, before = 0;
        int who = -1, i = 0;
        for (; i < n; i++) {
            const struct dump_comm *c = v[i].c;
            while (at[i] < c->n_records && c->records[at[i]].op < op)
                at[i]++;
            if (at[i] == c->n_records || c->records[at[i]].op != op)
                break;
            int64_t t = c->records[at[i]].begin_ns;
            if (who < 0 || t > last) {
                before = who < 0 ? t : last;
                last = t;
                who = v[i].d->rank;
            } else if (t > before || i == 1) {
                before = t;
            }
        }
        if (i < n)
            continue;
        a->compared++;
        late[who].times++;
        late[who].seconds += (double)(last - before) / 1e9;
    }
}

static int by_seconds(const void *a, const void *b)
{
    const struct lateness *x = a, *y = b;

    return x->seconds > y->seconds ? -1 : x->seconds < y->seconds;
}

/* ---------------------------------------------------------------- all of it */

static int look_at_all(struct tern_flight_report *a, struct view *v, int n, struct tern_err *err)
{
    struct lateness *late = tern_alloc((size_t)a->size, sizeof *late, "the ranks", err);
    int *at = tern_alloc((size_t)n + 1, sizeof *at, "the ranks", err), rc = -1;

    a->places = tern_alloc((size_t)n + 1, sizeof *a->places, "the communicators", err);
    if (!late || !at || !a->places)
        goto out;
    for (int r = 0; r < a->size; r++)
        late[r].rank = r;
    qsort(v, (size_t)n, sizeof *v, by_comm);
    for (int i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && tern_flight_dump_same_comm(v[i].c, v[j].c);)
            j++;
        compare_comers(a, v + i, j - i, at, late);
        struct place *p = &a->places[a->n_places];
        uint64_t open;
        if (!first_open(v + i, j - i, &open))
            continue;
        p->finished = open ? open - 1 : 0;
        p->op = first_difference(v + i, j - i, open);
        a->n_places++;
        if (look_at(a, p, v + i, j - i, err) < 0)
            goto out;
    }
    qsort(late, (size_t)a->size, sizeof *late, by_seconds);
    for (int i = 0; i < REPORT_SLOW && i < a->size && late[i].times; i++)
        a->slow[a->n_slow++] = (struct slow){late[i].rank, late[i].times, late[i].seconds};
    rc = 0;
out:
    free(late);
    free(at);
    return rc;
}

struct tern_flight_report *tern_flight_report_read(const char *dir, struct tern_err *err)
{
    struct tern_flight_report *a = tern_alloc(1, sizeof *a, "the flight report", err);
    struct view *v = NULL;
    int n = 0, rc = -1;

    if (!a)
        return NULL;
    a->dir = tern_strdup(dir);
    if (read_all(a, dir, err) < 0)
        goto out;
    for (int r = 0; r < a->size; r++)
        n += a->dumps[r] ? a->dumps[r]->n_comms : 0;
    v = tern_alloc((size_t)n + 1, sizeof *v, "the communicators", err);
    if (!v)
        goto out;
    n = 0;
    for (int r = 0; r < a->size; r++)
        for (int k = 0; a->dumps[r] && k < a->dumps[r]->n_comms; k++)
            v[n++] = (struct view){a->dumps[r], &a->dumps[r]->comms[k]};
    if (look_at_all(a, v, n, err) < 0 || tern_flight_culprit_find(a, err) < 0)
        goto out;
    judge(a);
    rc = 0;
out:
    free(v);
    if (rc == 0)
        return a;
    tern_flight_report_free(a);
    return NULL;
}

void tern_flight_report_free(struct tern_flight_report *a)
{
    if (!a)
        return;
    if (a->dumps)
        free_dumps(a->dumps, a->size);
    for (int i = 0; a->places && i < a->n_places; i++) {
        for (int k = 0; k < a->places[i].n_parts; k++)
            free(a->places[i].parts[k].ranks);
        free(a->places[i].members);
    }
    free(a->places);
    free(a->nodes);
    free(a->chain);
    free(a->dir);
    tern_buf_free(&a->bad);
    free(a);
}

/* The flight report as text and as JSON. */
#include "core/flight/report.h"
#include "core/flight/report_state.h"

#include "core/base/clock.h"
#include "core/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NAMES = 300 }; /* bytes for a list of ranks */

static const char *node_of(const struct tern_flight_report *a, int rank)
{
    return a->nodes ? a->nodes[rank] : "";
}

/* "rank 3 (node-2)", "ranks 0-2". */
static char *name(const struct tern_flight_report *a, const int *ranks, int n, char to[NAMES])
{
    char list[200];

    tern_flight_ranks_text(list, sizeof list, ranks, n);
    if (n == 1)
        snprintf(to, NAMES, "rank %s (%s)", list, node_of(a, ranks[0]));
    else
        snprintf(to, NAMES, "ranks %s", list);
    return to;
}

static char *name_one(const struct tern_flight_report *a, int rank, char to[NAMES])
{
    return name(a, &rank, 1, to);
}

/* "10:02:11.123" */
static char *time_of_day(char to[32], int64_t wall_ns)
{
    int64_t ms = wall_ns > 0 ? wall_ns / 1000000 : 0;
    time_t s = (time_t)(ms / 1000);
    struct tm tm;

    if (!localtime_r(&s, &tm))
        memset(&tm, 0, sizeof tm);
    snprintf(to, 32, "%02d:%02d:%02d.%03d", tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(ms % 1000));
    return to;
}

static const char *const state_names[] = {
    [TERN_FLIGHT_QUEUED] = "queued",   [TERN_FLIGHT_RUNNING] = "running",
    [TERN_FLIGHT_WAITING] = "waiting", [TERN_FLIGHT_DONE] = "done",
    [TERN_FLIGHT_FAILED] = "failed",
};

/* ---------------------------------------------------------------- a communicator */

static void part_text(const struct tern_flight_report *a, const struct place *p,
                      const struct part *x, struct tern_buf *to)
{
    char names[NAMES], other[NAMES], call[100], at[32];
    const bool one = x->n == 1;
    unsigned long long op = p->op;

    tern_buf_printf(to, "  %s ", name(a, x->ranks, x->n, names));
    tern_call_text(call, sizeof call, x->desc);
    if (x->kind == PART_NO_DUMP) {
        tern_buf_printf(to, "%s no dump: %s died or %s cut off\n", one ? "has" : "have",
                        one ? "it" : "they", one ? "was" : "were");
    } else if (x->kind == PART_FORGOT) {
        tern_buf_printf(to, "%s no record of this communicator any more\n", one ? "has" : "have");
    } else if (x->kind == PART_FINISHED) {
        tern_buf_printf(to, "finished %s #%llu\n", x->desc ? call : "operation", op);
    } else if (x->kind == PART_BEHIND && !x->left_op) {
        tern_buf_printf(to, "called nothing on it\n");
    } else if (x->kind == PART_BEHIND && x->state == TERN_FLIGHT_FAILED) {
        tern_buf_printf(to, "%s in %s #%llu and never called #%llu\n", one ? "was" : "were", call,
                        (unsigned long long)x->left_op, op);
    } else if (x->kind == PART_BEHIND && x->state != TERN_FLIGHT_DONE) {
        tern_buf_printf(to, "%s in %s #%llu and %s not called #%llu\n", one ? "is" : "are", call,
                        (unsigned long long)x->left_op, one ? "has" : "have", op);
    } else if (x->kind == PART_BEHIND) {
        tern_buf_printf(to, "left %s #%llu at %s and never called #%llu\n", call,
                        (unsigned long long)x->left_op, time_of_day(at, x->left_ns), op);
    } else {
        tern_buf_printf(to, "%s in %s #%llu for %.1f s",
                        x->state == TERN_FLIGHT_FAILED ? (one ? "was" : "were")
                                                       : (one ? "is" : "are"),
                        call, op, x->seconds);
        if (x->state == TERN_FLIGHT_QUEUED)
            tern_buf_puts(to, ", behind another operation");
        if (x->waits_for >= 0)
            tern_buf_printf(to, ", waiting for %s", name_one(a, x->waits_for, other));
        tern_buf_puts(to, "\n");
    }
}

static void place_text(const struct tern_flight_report *a, const struct place *p,
                       struct tern_buf *to)
{
    char names[NAMES];

    tern_buf_printf(to, "communicator %d (%s%s): ", p->id, name(a, p->members, p->n, names),
                    p->cut ? " and others" : "");
    if (p->finished)
        tern_buf_printf(to, "all that left a dump finished #%llu\n",
                        (unsigned long long)p->finished);
    else
        tern_buf_puts(to, "nothing that all of them finished is known\n");
    for (int k = 0; k < p->n_parts; k++)
        part_text(a, p, &p->parts[k], to);
}

/* ---------------------------------------------------------------- the verdict */

static bool has_call(const struct part *x)
{
    return x->desc && (x->kind == PART_IN || x->kind == PART_FINISHED);
}

/* Members, in order, that called `desc`; their number. */
static int callers(const struct place *p, uint64_t desc, int *ranks)
{
    int n = 0;

    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < p->n_parts; k++)
            for (int m = 0; m < p->parts[k].n; m++)
                if (has_call(&p->parts[k]) && p->parts[k].desc == desc &&
                    p->parts[k].ranks[m] == p->members[i])
                    ranks[n++] = p->members[i];
    return n;
}

/* "rank 3 (node-2) called all_gather f32 64 #21 where ranks 0-2 called ...": the most last. */
static void differ_text(const struct tern_flight_report *a, const struct place *p,
                        struct tern_buf *to)
{
    uint64_t descs[REPORT_PARTS];
    char names[NAMES], call[100];
    int *ranks = calloc((size_t)p->n, sizeof *ranks), n = 0, most = 0, most_n = 0;

    for (int k = 0, j; ranks && k < p->n_parts; k++) {
        for (j = 0; j < n && descs[j] != p->parts[k].desc;)
            j++;
        if (!has_call(&p->parts[k]) || j < n)
            continue;
        int count = callers(p, p->parts[k].desc, ranks);
        most = count > most_n ? n : most;
        most_n = count > most_n ? count : most_n;
        descs[n++] = p->parts[k].desc;
    }
    for (int k = 0, told = 0; k < n; k++) {
        if (k == most)
            continue;
        name(a, ranks, callers(p, descs[k], ranks), names);
        tern_buf_printf(to, "%s%s called %s #%llu", told++ ? ", " : "", names,
                        tern_call_text(call, sizeof call, descs[k]), (unsigned long long)p->op);
    }
    if (n) {
        name(a, ranks, callers(p, descs[most], ranks), names);
        tern_buf_printf(to, " where %s called %s on communicator %d", names,
                        tern_call_text(call, sizeof call, descs[most]), p->id);
    }
    free(ranks);
}

static void chain_text(const struct tern_flight_report *a, struct tern_buf *to)
{
    if (a->n_chain < 3)
        return;
    tern_buf_puts(to, " (rank ");
    for (int i = 0; i < a->n_chain; i++) {
        if (i == 4 && a->n_chain > 8) { /* its middle says nothing more */
            tern_buf_puts(to, " ...");
            i = a->n_chain - 3;
        }
        tern_buf_printf(to, i ? " waits for %d" : "%d", a->chain[i]);
        if (i && i + 1 < a->n_chain)
            tern_buf_puts(to, ", which");
    }
    tern_buf_puts(to, ")");
}

static void verdict_text(const struct tern_flight_report *a, struct tern_buf *to)
{
    char names[NAMES], other[NAMES];
    const char *by = "";

    if (a->kind == CULPRIT_NONE) {
        tern_buf_puts(to, "no operation was under way: no rank waited for another");
        return;
    }
    if (a->kind == CULPRIT_DIFFERS) {
        differ_text(a, &a->places[a->place], to);
        return;
    }
    name_one(a, a->culprit, names);
    const struct dump *d = a->dumps[a->culprit];
    if (a->kind == CULPRIT_ABSENT)
        by = name_one(a, d->written_by, other);
    tern_buf_printf(to, "%d rank%s wait%s, directly or through others, for %s", a->n_waiting,
                    a->n_waiting == 1 ? "" : "s", a->n_waiting == 1 ? "s" : "", names);
    if (a->kind == CULPRIT_NO_DUMP)
        tern_buf_puts(to, ", which has no dump: it died or was cut off");
    else if (a->kind == CULPRIT_ABSENT)
        tern_buf_printf(to, ", which wrote no dump itself (%s wrote it): it was killed or hung",
                        by);
    else if (a->kind == CULPRIT_BEHIND)
        tern_buf_puts(to, ", which was in no operation: it computed, or was stuck elsewhere");
    else if (a->kind == CULPRIT_CIRCLE)
        tern_buf_puts(to, ", which waits for one of them: a circle");
    else if (a->kind == CULPRIT_MOMENTS)
        tern_buf_puts(to, ", which waits for one of them: the dumps are of different moments");
    else
        tern_buf_puts(to, ", which was in an operation and waited for no rank");
    chain_text(a, to);
}

/* ---------------------------------------------------------------- the ranks' errors */

/* The ranks whose words are those of `rank`, unless a lower one has said them; their number. */
static int same_words(const struct tern_flight_report *a, int rank, int *ranks)
{
    const char *why = a->dumps[rank] ? a->dumps[rank]->why : "";
    int n = 0;

    for (int r = 0; *why && r < a->size; r++) {
        if (!a->dumps[r] || strcmp(a->dumps[r]->why, why) != 0)
            continue;
        if (r < rank)
            return 0;
        ranks[n++] = r;
    }
    return n;
}

enum { SAID = 16 }; /* different errors printed */

static void missing(const struct tern_flight_report *a, int *ranks, int *n)
{
    *n = 0;
    for (int r = 0; r < a->size; r++)
        if (!a->dumps[r])
            ranks[(*n)++] = r;
}

static void slow_text(const struct tern_flight_report *a, struct tern_buf *to)
{
    char names[NAMES];

    if (!a->n_slow)
        return;
    tern_buf_printf(to, "last to come, of %llu operations by the nodes' clocks:",
                    (unsigned long long)a->compared);
    for (int i = 0; i < a->n_slow; i++)
        tern_buf_printf(to, "%s %s %llu times, %.3g s behind the others in all", i ? ";" : "",
                        name_one(a, a->slow[i].rank, names), (unsigned long long)a->slow[i].times,
                        a->slow[i].seconds);
    tern_buf_puts(to, "\n");
}

void tern_flight_report_text(const struct tern_flight_report *a, struct tern_buf *to)
{
    int *ranks = calloc((size_t)a->size, sizeof *ranks), n = 0;
    char names[NAMES];

    if (!ranks)
        return;
    verdict_text(a, to);
    tern_buf_printf(to, "\n\n%d rank%s, dumps of %d", a->size, a->size > 1 ? "s" : "", a->n_dumps);
    missing(a, ranks, &n);
    if (n)
        tern_buf_printf(to, "; none of %s", name(a, ranks, n, names));
    tern_buf_puts(to, "\n");
    for (int r = 0, said = 0; r < a->size && said < SAID; r++) {
        n = same_words(a, r, ranks);
        said += n > 0;
        if (n)
            tern_buf_printf(to, "%s said: %s\n", name(a, ranks, n, names), a->dumps[r]->why);
    }
    for (int i = 0; i < a->n_places; i++)
        place_text(a, &a->places[i], to);
    slow_text(a, to);
    if (a->bad.len)
        tern_buf_puts(to, a->bad.data);
    free(ranks);
}

/* ---------------------------------------------------------------- JSON */

static json_t *json_ranks(const int *ranks, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ranks[i]));
    return list;
}

static json_t *part_json(const struct part *x)
{
    static const char *const kinds[] = {"in", "finished", "behind", "forgotten", "no dump"};
    char call[100];
    json_t *j = json_object();

    json_object_set_new(j, "ranks", json_ranks(x->ranks, x->n));
    json_object_set_new(j, "is", json_string(kinds[x->kind]));
    if (x->desc)
        json_object_set_new(j, x->kind == PART_BEHIND ? "last_call" : "call",
                            tern_json_text(tern_call_text(call, sizeof call, x->desc)));
    if (x->kind == PART_IN) {
        json_object_set_new(j, "state", json_string(state_names[x->state]));
        json_object_set_new(j, "seconds", tern_json_real(x->seconds));
    }
    if (x->waits_for >= 0)
        json_object_set_new(j, "waits_for", json_integer(x->waits_for));
    if (x->kind == PART_BEHIND)
        json_object_set_new(j, "last", json_integer((json_int_t)x->left_op));
    return j;
}

static json_t *place_json(const struct place *p)
{
    json_t *j = json_object(), *parts = json_array();

    json_object_set_new(j, "communicator", json_integer(p->id));
    json_object_set_new(j, "ranks", json_ranks(p->members, p->n));
    json_object_set_new(j, "finished", json_integer((json_int_t)p->finished));
    json_object_set_new(j, "operation", json_integer((json_int_t)p->op));
    json_object_set_new(j, "calls_differ", json_boolean(p->differ));
    for (int k = 0; k < p->n_parts; k++)
        json_array_append_new(parts, part_json(&p->parts[k]));
    json_object_set_new(j, "members", parts);
    return j;
}

static json_t *said_json(const struct tern_flight_report *a, int *ranks)
{
    json_t *list = json_array();

    for (int r = 0; r < a->size && json_array_size(list) < SAID; r++) {
        int n = same_words(a, r, ranks);
        if (!n)
            continue;
        json_t *j = json_object();
        json_object_set_new(j, "ranks", json_ranks(ranks, n));
        json_object_set_new(j, "text", tern_json_text(a->dumps[r]->why));
        json_array_append_new(list, j);
    }
    return list;
}

json_t *tern_flight_report_json(const struct tern_flight_report *a)
{
    static const char *const kinds[] = {"none",   "different calls", "no dump", "not there",
                                        "killed", "circle",          "moments", "unknown"};
    json_t *j = json_object(), *places = json_array(), *slow = json_array();
    int *ranks = calloc((size_t)a->size, sizeof *ranks), n = 0;
    struct tern_buf text = {0};

    verdict_text(a, &text);
    json_object_set_new(j, "verdict", tern_json_text(text.data));
    json_object_set_new(j, "cause", json_string(kinds[a->kind]));
    json_object_set_new(j, "culprit",
                        a->kind == CULPRIT_NONE || a->culprit < 0 ? json_null()
                                                                  : json_integer(a->culprit));
    json_object_set_new(j, "ranks", json_integer(a->size));
    if (ranks) {
        missing(a, ranks, &n);
        json_object_set_new(j, "without_dump", json_ranks(ranks, n));
        json_object_set_new(j, "said", said_json(a, ranks));
    }
    for (int i = 0; i < a->n_places; i++)
        json_array_append_new(places, place_json(&a->places[i]));
    json_object_set_new(j, "communicators", places);
    for (int i = 0; i < a->n_slow; i++)
        json_array_append_new(slow, json_pack("{s:i,s:I,s:f}", "rank", a->slow[i].rank, "times",
                                              (json_int_t)a->slow[i].times, "seconds",
                                              a->slow[i].seconds));
    json_object_set_new(j, "last_to_come", slow);
    tern_buf_free(&text);
    free(ranks);
    return j;
}

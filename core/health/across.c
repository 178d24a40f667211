/* The rules between nodes: rows of all of them against each other.  Pure: the same rows give the
 * same verdicts. */
#include "core/base/str.h"
#include "core/health/probe.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A share of the median below which a number is an outlier.  Virtual nodes share cores, and their
 * numbers vary more. */
static const double SHARE = 0.8, SHARE_VIRTUAL = 0.25;
/* A message of theirs may have to wait for a turn on a core, some milliseconds. */
static const double TURN_US = 4000;
static const double CLOCK_MS = 100;

struct judge {
    struct tern_health_rows *rows;
    char *const *nodes;
    size_t n;
    int *of; /* [rows->n] the row's node; -1: it is not judged */
    double share;
    double turn_us; /* of a latency that does not count */
};

static void blame(struct tern_health_row *r, enum tern_health_verdict v, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void blame(struct tern_health_row *r, enum tern_health_verdict v, const char *fmt, ...)
{
    va_list ap;

    r->verdict = v;
    r->severity = TERN_RULES_ERROR;
    va_start(ap, fmt);
    vsnprintf(r->text, sizeof r->text, fmt, ap);
    va_end(ap);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

static bool is(const struct tern_health_row *r, const char *check, const char *unit)
{
    return strcmp(r->check, check) == 0 && strcmp(r->unit, unit) == 0;
}

/* Values of a check's good rows; malloc'ed; NULL with fewer than `least`. */
static double *values(const struct judge *j, const char *check, const char *unit, size_t least,
                      size_t *n)
{
    double *v = calloc(j->rows->n + 1, sizeof *v);

    *n = 0;
    for (size_t i = 0; v && i < j->rows->n; i++) {
        const struct tern_health_row *r = &j->rows->row[i];
        if (j->of[i] >= 0 && r->verdict == TERN_HEALTH_OK && is(r, check, unit) &&
            isfinite(r->value))
            v[(*n)++] = r->value;
    }
    if (*n >= least && *n)
        return v;
    free(v);
    return NULL;
}

/* ------------------------------------------------------------------ numbers of one node */

static void rule_clock(struct tern_rules_case *c)
{
    struct judge *j = c->to;
    size_t n;
    double *v = values(j, "clock", "ms", 2, &n);

    if (!v)
        return;
    double middle = median(v, n);
    for (size_t i = 0; i < j->rows->n; i++) {
        struct tern_health_row *r = &j->rows->row[i];
        if (r->verdict == TERN_HEALTH_OK && is(r, "clock", "ms") &&
            fabs(r->value - middle) > CLOCK_MS) {
            double off = r->value - middle;
            /* Of two clocks either may be wrong. */
            blame(r, n > 2 ? TERN_HEALTH_NODE_BAD : TERN_HEALTH_UNKNOWN,
                  "the clock is %.0f ms %s the other nodes'. Does chronyd run (chronyc tracking)?",
                  fabs(off), off > 0 ? "ahead of" : "behind");
        }
    }
    free(v);
}

static void rule_triad(struct tern_rules_case *c)
{
    struct judge *j = c->to;
    size_t n;
    double *v = values(j, "triad", "GB/s", 3, &n);

    if (!v)
        return;
    double middle = median(v, n);
    for (size_t i = 0; i < j->rows->n; i++) {
        struct tern_health_row *r = &j->rows->row[i];
        if (r->verdict == TERN_HEALTH_OK && is(r, "triad", "GB/s") && r->value < j->share * middle)
            blame(r, TERN_HEALTH_NODE_BAD,
                  "memory moves %.1f GB/s, the median of %zu nodes is %.1f. A memory module lost, "
                  "or another process at work?",
                  r->value, n, middle);
    }
    free(v);
}

/* ------------------------------------------------------------------ what must be the same */

/* The first word in which `a` differs from `b`: "kernel=6.1.0 (the others: kernel=6.1.2)". */
static void difference(char *to, size_t size, const char *a, const char *b)
{
    while (*a && *b) {
        size_t n = strcspn(a, " "), m = strcspn(b, " ");
        if (n != m || strncmp(a, b, n) != 0) {
            snprintf(to, size, "%.*s (the others: %.*s)", (int)n, a, (int)m, b);
            return;
        }
        a += n + (a[n] == ' ');
        b += m + (b[m] == ' ');
    }
    snprintf(to, size, "it differs");
}

/* Whose `same` most rows of the check have; NULL when no value is held by more than half. */
static const char *majority(const struct judge *j, const char *check, size_t *total)
{
    const char *best = NULL;
    size_t best_n = 0;

    *total = 0;
    for (size_t i = 0; i < j->rows->n; i++) {
        const struct tern_health_row *r = &j->rows->row[i];
        size_t n = 0;
        if (j->of[i] < 0 || strcmp(r->check, check) != 0 || !*r->same)
            continue;
        ++*total;
        if (best && strcmp(best, r->same) == 0)
            continue;
        for (size_t k = 0; k < j->rows->n; k++)
            n += j->of[k] >= 0 && strcmp(j->rows->row[k].check, check) == 0 &&
                 strcmp(j->rows->row[k].same, r->same) == 0;
        if (n > best_n) {
            best = r->same;
            best_n = n;
        }
    }
    return 2 * best_n > *total ? best : NULL;
}

/* Another tern, library or driver is the node's fault; another kernel is a warning only. */
static bool kernel_only(const char *a, const char *b)
{
    const char *ka = strstr(a, " kernel="), *kb = strstr(b, " kernel=");

    return ka && kb && ka - a == kb - b && strncmp(a, b, (size_t)(ka - a)) == 0;
}

static void rule_software(struct tern_rules_case *c)
{
    struct judge *j = c->to;
    size_t total;
    const char *most = majority(j, "software", &total);

    for (size_t i = 0; i < j->rows->n; i++) {
        struct tern_health_row *r = &j->rows->row[i];
        char what[300];
        if (j->of[i] < 0 || strcmp(r->check, "software") != 0 || !*r->same ||
            (most && strcmp(r->same, most) == 0))
            continue;
        if (!most) {
            blame(r, TERN_HEALTH_UNKNOWN,
                  "the %zu nodes have different software and no majority: %.240s", total, r->same);
            continue;
        }
        difference(what, sizeof what, r->same, most);
        bool kernel = kernel_only(r->same, most);
        blame(r, kernel ? TERN_HEALTH_OK : TERN_HEALTH_NODE_BAD,
              "other software than the other nodes': %s.%s", what,
              kernel ? "" : " Install the same everywhere.");
        if (kernel)
            r->severity = TERN_RULES_WARN;
    }
}

/* ------------------------------------------------------------------ links */

static bool slow(const struct judge *j, const struct tern_health_row *r, double middle)
{
    return strcmp(r->unit, "us") == 0 ? (r->value - j->turn_us) * j->share > middle
                                      : r->value < j->share * middle;
}

static void say_slow(struct tern_health_row *r, enum tern_health_verdict v, double middle,
                     const char *remedy)
{
    char peer[64];

    snprintf(peer, sizeof peer, "%s", r->subject);
    blame(r, v, "%.1f %s to %s, usual are %.1f. %s", r->value, r->unit, peer, middle, remedy);
}

/* The median; one bad node slows two links, which of fewer than six is a third and more, and there
 * it is the better quartile.  Of two in the middle the better one. */
static double usual(double *v, size_t n, bool high_is_good)
{
    enum { FEW = 12 }; /* each link is seen from both ends */
    size_t good = n < FEW ? n / 4 : (n - 1) / 2;

    qsort(v, n, sizeof *v, by_value);
    return v[high_is_good ? n - 1 - good : good];
}

/* A slow link shows at both its ends.  A node is bad when all its links are slow and each of its
 * neighbours has another that is not.  Then the slow links have the node in common. */
static void judge_links(struct judge *j, const char *unit)
{
    size_t n;
    double *v = values(j, "link", unit, 6, &n); /* a ring of three */
    size_t *all = calloc(j->n + 1, sizeof *all), *bad = calloc(j->n + 1, sizeof *bad);

    if (!v || !all || !bad)
        goto out;
    double middle = usual(v, n, strcmp(unit, "us") != 0);
    for (size_t i = 0; i < j->rows->n; i++) {
        const struct tern_health_row *r = &j->rows->row[i];
        if (j->of[i] < 0 || r->verdict != TERN_HEALTH_OK || !is(r, "link", unit))
            continue;
        all[j->of[i]]++;
        bad[j->of[i]] += slow(j, r, middle);
    }
    for (size_t i = 0; i < j->rows->n; i++) {
        struct tern_health_row *r = &j->rows->row[i];
        if (j->of[i] < 0 || r->verdict != TERN_HEALTH_OK || !is(r, "link", unit) ||
            !slow(j, r, middle))
            continue;
        int me = j->of[i];
        if (bad[me] == all[me] && all[me] > 1) {
            say_slow(r, TERN_HEALTH_NODE_BAD, middle, "All links of this node are slow.");
            continue;
        }
        /* Its other end may be the node that is slow. */
        size_t peer = 0;
        while (peer < j->n && strcmp(j->nodes[peer], r->subject) != 0)
            peer++;
        if (peer < j->n && bad[peer] == all[peer] && all[peer] > 1)
            r->severity = TERN_RULES_INFO;
        else
            say_slow(r, TERN_HEALTH_FABRIC_BAD, middle, "The way between these two is slow.");
    }
out:
    free(v);
    free(all);
    free(bad);
}

static void rule_rate(struct tern_rules_case *c)
{
    judge_links(c->to, "MB/s");
}

static void rule_latency(struct tern_rules_case *c)
{
    judge_links(c->to, "us");
}

/* ------------------------------------------------------------------ what many have in common */

static bool is_storage(const char *check)
{
    return strcmp(check, "mount") == 0;
}

static bool is_fabric(const char *check)
{
    return strcmp(check, "link") == 0;
}

static bool failed(const struct tern_health_row *r)
{
    return r->verdict >= TERN_HEALTH_FABRIC_BAD && r->severity == TERN_RULES_ERROR;
}

/* The row's failure is shared by so many nodes of those that tried. */
static void share(const struct judge *j, const struct tern_health_row *r, size_t *bad,
                  size_t *tried)
{
    char *seen = calloc(j->n + 1, 1);

    *bad = *tried = 0;
    for (size_t i = 0; seen && i < j->rows->n; i++) {
        const struct tern_health_row *o = &j->rows->row[i];
        bool same = j->of[i] >= 0 && strcmp(o->check, r->check) == 0 &&
                    (!is_storage(r->check) || strcmp(o->subject, r->subject) == 0);
        if (!same || o->verdict == TERN_HEALTH_SKIPPED || o->verdict == TERN_HEALTH_UNKNOWN)
            continue;
        if (!(seen[j->of[i]] & 1))
            ++*tried;
        if (failed(o) && !(seen[j->of[i]] & 2))
            ++*bad;
        seen[j->of[i]] |= failed(o) ? 3 : 1;
    }
    free(seen);
}

static void rule_common(struct tern_rules_case *c)
{
    struct judge *j = c->to;
    enum tern_health_verdict *v = calloc(j->rows->n + 1, sizeof *v);

    for (size_t i = 0; v && i < j->rows->n; i++) {
        const struct tern_health_row *r = &j->rows->row[i];
        size_t bad, tried;
        v[i] = r->verdict;
        if (j->of[i] < 0 || !failed(r))
            continue;
        share(j, r, &bad, &tried);
        bool common = tried > 1 && 2 * bad > tried;
        if (common)
            v[i] = is_storage(r->check)  ? TERN_HEALTH_STORAGE_BAD
                   : is_fabric(r->check) ? TERN_HEALTH_FABRIC_BAD
                                         : TERN_HEALTH_UNKNOWN;
        else if (tried > 1 && is_storage(r->check))
            v[i] = TERN_HEALTH_NODE_BAD;
        if (common) {
            char text[400];
            snprintf(text, sizeof text, "on %zu of %zu nodes%s: %.300s", bad, tried,
                     is_storage(r->check) || is_fabric(r->check) ? "" : " (a setting of the site?)",
                     r->text);
            memcpy(j->rows->row[i].text, text, sizeof text);
        }
    }
    for (size_t i = 0; v && i < j->rows->n; i++)
        j->rows->row[i].verdict = v[i];
    free(v);
}

/* ------------------------------------------------------------------ the table */

enum { ACROSS = TERN_HEALTH_ACROSS };

/* The last sees what the others found. */
const struct tern_rule tern_health_across[] = {
    {"clock", TERN_RULES_ERROR, ACROSS, rule_clock, "clocks are within 100 ms of their median",
     "Run chronyd (chronyc tracking)."},
    {"triad", TERN_RULES_ERROR, ACROSS, rule_triad,
     "memory moves 80 % of the nodes' median at least",
     "Look for other processes and lost memory modules."},
    {"software", TERN_RULES_ERROR, ACROSS, rule_software,
     "software is that of most nodes; another kernel is a warning", "Install the same everywhere."},
    {"link", TERN_RULES_ERROR, ACROSS, rule_rate,
     "links move 80 % of what is usual; a node with slow links alone is bad",
     "Replace the node, or look at the way between the two."},
    {"link", TERN_RULES_ERROR, ACROSS, rule_latency,
     "latencies of links are at most 125 % of what is usual",
     "Replace the node, or look at the way between the two."},
    {"(any)", TERN_RULES_ERROR, ACROSS, rule_common,
     "a failure on more than half of the nodes is no node's: storage, fabric or a setting",
     "Look at what the nodes share; none of them is drained."},
};
const size_t tern_health_n_across = sizeof tern_health_across / sizeof *tern_health_across;

/* ------------------------------------------------------------------ the whole */

static void conclude(const struct judge *j, struct tern_health_judged *out)
{
    for (size_t i = 0; i < j->n; i++) {
        struct tern_health_node *node = &out->node[i];
        bool answered = false;
        snprintf(node->name, sizeof node->name, "%s", j->nodes[i]);
        for (size_t k = 0; k < j->rows->n; k++) {
            const struct tern_health_row *r = &j->rows->row[k];
            enum tern_health_verdict v = r->verdict;
            if (j->of[k] != (int)i)
                continue;
            answered = true;
            if (v == TERN_HEALTH_SKIPPED || v <= node->verdict)
                continue;
            node->verdict = v;
            snprintf(node->check, sizeof node->check, "%s", r->check);
            snprintf(node->text, sizeof node->text, "%s", r->text);
        }
        if (!answered) {
            node->verdict = TERN_HEALTH_UNKNOWN;
            snprintf(node->check, sizeof node->check, "answer");
            snprintf(node->text, sizeof node->text, "the node gave no answer in time");
        }
        out->count[node->verdict]++;
        if (node->verdict > out->worst)
            out->worst = node->verdict;
    }
}

int tern_health_judge(struct tern_health_rows *rows, char *const *nodes, size_t n,
                      struct tern_health_judged *judged, struct tern_err *err)
{
    struct judge j = {.rows = rows, .nodes = nodes, .n = n, .share = SHARE};
    struct tern_health_judged out = {.n = n};

    j.of = tern_alloc(rows->n + 1, sizeof *j.of, "health rows", err);
    out.node = tern_alloc(n + 1, sizeof *out.node, "nodes", err);
    if (!j.of || !out.node) {
        free(j.of);
        free(out.node);
        return -1;
    }
    for (size_t i = 0; i < rows->n; i++) {
        size_t k = 0;
        while (k < n && strcmp(nodes[k], rows->row[i].node) != 0)
            k++;
        j.of[i] = k < n ? (int)k : -1;
        if (rows->row[i].virtual_node) {
            j.share = SHARE_VIRTUAL;
            j.turn_us = TURN_US;
        }
    }
    tern_rules_apply(tern_health_across, tern_health_n_across, TERN_HEALTH_ACROSS,
                     &(struct tern_rules_case){.to = &j});
    conclude(&j, &out);
    free(j.of);
    *judged = out;
    return 0;
}

void tern_health_judged_free(struct tern_health_judged *judged)
{
    free(judged->node);
    *judged = (struct tern_health_judged){0};
}

int tern_health_status(const struct tern_health_judged *judged)
{
    if (judged->worst == TERN_HEALTH_NODE_BAD)
        return 3;
    return judged->worst >= TERN_HEALTH_UNKNOWN ? 4 : 0;
}

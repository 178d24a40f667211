/* The loop: rules of the table applied to the cluster, this machine and its nodes. */
#include "core/base/str.h"
#include "core/doctor/rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tern_doctor_severity_name(enum tern_rules_severity s)
{
    static const char *const names[] = {"info", "warning", "error"};

    return names[s];
}

const struct tern_rule *tern_doctor_rule(size_t i)
{
    return i < tern_doctor_n_rules ? &tern_doctor_rules[i] : NULL;
}

/* ------------------------------------------------------------------ findings */

/* The finding with these words, added when it is not there. */
static struct tern_doctor_finding *finding(struct tern_doctor_findings *f,
                                           const struct tern_rule *rule, const char *what)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->v[i].id, rule->id) == 0 && strcmp(f->v[i].what, what) == 0)
            return &f->v[i];
    if (f->n == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 32;
        f->v = reallocarray(f->v, f->cap, sizeof *f->v);
        if (!f->v)
            abort();
    }
    f->v[f->n] = (struct tern_doctor_finding){.id = rule->id,
                                              .severity = rule->severity,
                                              .what = tern_strdup(what),
                                              .remedy = tern_strdup(rule->remedy)};
    return &f->v[f->n++];
}

void tern_doctor_found(struct tern_rules_case *c, const char *fmt, ...)
{
    char what[900];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    struct tern_doctor_finding *f = finding(c->to, c->rule, what);
    if (!c->subject)
        return;
    f->node = reallocarray(f->node, f->n_nodes + 1, sizeof *f->node);
    if (!f->node)
        abort();
    f->node[f->n_nodes++] = tern_strdup(c->subject);
}

void tern_doctor_findings_free(struct tern_doctor_findings *f)
{
    for (size_t i = 0; i < f->n; i++) {
        for (size_t k = 0; k < f->v[i].n_nodes; k++)
            free(f->v[i].node[k]);
        free(f->v[i].node);
        free(f->v[i].what);
        free(f->v[i].remedy);
    }
    free(f->v);
    *f = (struct tern_doctor_findings){0};
}

/* ------------------------------------------------------------------ the loop */

static void apply(unsigned where, const char *subject, const struct tern_doctor_evidence *e,
                  struct tern_doctor_findings *to)
{
    struct tern_rules_case c = {.subject = subject, .facts = e, .to = to};

    tern_rules_apply(tern_doctor_rules, tern_doctor_n_rules, where, &c);
}

/* The collector notes one such fact of every node that was to be looked at. */
static bool lists_node(const struct tern_doctor_fact *f)
{
    return strcmp(f->key, "asked") == 0 || strcmp(f->key, "busy") == 0 ||
           strcmp(f->key, "unusable") == 0;
}

static bool answered(const struct tern_doctor_facts *facts, const struct tern_doctor_fact *f)
{
    return strcmp(f->key, "asked") == 0 && tern_doctor_fact(facts, f->node, "done");
}

static int worst_first(const void *a, const void *b)
{
    const struct tern_doctor_finding *x = a, *y = b;

    return x->severity != y->severity ? (int)y->severity - (int)x->severity : strcmp(x->id, y->id);
}

void tern_doctor_judge(const struct tern_slurm_about *about, const struct tern_doctor_facts *facts,
                       struct tern_doctor_findings *to)
{
    const struct tern_doctor_evidence e = {about, facts};

    apply(TERN_DOCTOR_CLUSTER, NULL, &e, to);
    apply(TERN_DOCTOR_LOCAL, "", &e, to);
    for (size_t i = 0; i < about->n; i++)
        apply(TERN_DOCTOR_KNOWN, about->node[i].name, &e, to);
    for (size_t i = 0; i < facts->n; i++) {
        const struct tern_doctor_fact *f = &facts->fact[i];
        if (lists_node(f))
            apply(TERN_DOCTOR_LISTED, f->node, &e, to);
        if (answered(facts, f))
            apply(TERN_DOCTOR_ANSWERED, f->node, &e, to);
    }
    if (to->n)
        qsort(to->v, to->n, sizeof *to->v, worst_first);
}

/* Is tern installed right, on every node?  Facts are gathered on the nodes; rules (core/rules) make
 * findings of them in one place, each with its remedy.
 *
 *     tern_doctor_gather(&options, put, arg);               // this machine's facts, as lines
 *     tern_doctor_collect(&options, about, &facts, err);    // the same of every node, by srun
 *     tern_doctor_judge(about, &facts, &findings);          // plain data in, plain data out
 *
 * Bounded in time: a node that does not answer within the limit is a finding.  Not thread-safe.
 */
#ifndef TERN_DOCTOR_DOCTOR_H
#define TERN_DOCTOR_DOCTOR_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"
#include "core/rules/rules.h"
#include "core/slurm/slurm.h"

/* ------------------------------------------------------------------ facts */

enum { TERN_DOCTOR_VALUE = 512 }; /* a fact's line is one write, which Slurm passes on whole */

struct tern_doctor_fact {
    char node[65]; /* "" for the machine that collects */
    char key[24], value[TERN_DOCTOR_VALUE];
    size_t next; /* of its bucket, plus 1; 0: none */
};

/* Starts as {0}. */
struct tern_doctor_facts {
    size_t n, cap;
    struct tern_doctor_fact *fact;
    size_t *bucket; /* by node and key */
};

void tern_doctor_facts_add(struct tern_doctor_facts *f, const char *node, const char *key,
                           const char *value);
/* A line of tern_doctor_line; false for any other. */
bool tern_doctor_facts_parse(struct tern_doctor_facts *f, const char *line);
/* NULL when there is none; of several the one that was added first. */
const char *tern_doctor_fact(const struct tern_doctor_facts *f, const char *node, const char *key);
void tern_doctor_facts_free(struct tern_doctor_facts *f);

/* The fact as a line for stdout, malloc'ed, without its newline. */
char *tern_doctor_line(const char *node, const char *key, const char *value);

struct tern_doctor_gather_options {
    const char *plugstack, *plugin_dir, *tmp_fs; /* where Slurm looks; NULL: not looked at */
    const char *probe; /* folder on shared storage that tern_doctor_collect prepared; NULL: none */
};
/* This machine's facts, one call of `put` each. */
void tern_doctor_gather(const struct tern_doctor_gather_options *o,
                        void (*put)(void *arg, const char *key, const char *value), void *arg);

struct tern_doctor_options {
    const char *program;               /* absolute: `tern-cluster` as it is on the nodes too */
    const char *nodes;                 /* host list; NULL: all */
    const char *ledger;                /* folder on shared storage to probe; NULL: none */
    double timeout_s;                  /* for each partition's nodes */
    const volatile sig_atomic_t *stop; /* not 0: come to an end, leaving nothing; NULL: never */
};

/* This machine's facts and those of every node that is idle.  Fails only when no node can be
 * reached at all, or when it was stopped; a single node's trouble becomes a fact. */
int tern_doctor_collect(const struct tern_doctor_options *o, const struct tern_slurm_about *about,
                        struct tern_doctor_facts *facts, struct tern_err *err);

/* A fact where large files that will be made in `dir` would lie on one storage target of Lustre;
 * one for a folder.  None for a folder that is not there yet: tern spreads those that it makes. */
void tern_doctor_check_stripes(const char *dir, struct tern_doctor_facts *facts);

/* ------------------------------------------------------------------ findings */

struct tern_doctor_finding {
    const char *id; /* "plugin-build"; static */
    enum tern_rules_severity severity;
    char **node; /* n_nodes of them; none: all together; "" is the machine that collects */
    size_t n_nodes;
    char *what, *remedy;
};

/* Starts as {0}. */
struct tern_doctor_findings {
    size_t n, cap;
    struct tern_doctor_finding *v;
};

const char *tern_doctor_severity_name(enum tern_rules_severity s); /* "error" */

/* The i-th rule of the table, or NULL behind the last. */
const struct tern_rule *tern_doctor_rule(size_t i);

/* Worst first.  `about` may hold no nodes. */
void tern_doctor_judge(const struct tern_slurm_about *about, const struct tern_doctor_facts *facts,
                       struct tern_doctor_findings *to);
void tern_doctor_findings_free(struct tern_doctor_findings *f);

#endif

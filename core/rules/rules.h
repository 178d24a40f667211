/* Checks as tables.  A rule is a row: its id, its severity, where it applies, a function, what
 * should hold, and the remedy.  One loop applies a table to facts.
 *
 *     facts      the owner of a table gathers them on every node (health, doctor)
 *     rules      static const struct tern_rule rules[] = {{"clock", TERN_RULES_ERROR, ...}, ...};
 *     findings   rules report through their table's owner
 *
 *     struct tern_rules_case c = {.subject = node, .facts = facts, .to = findings};
 *     tern_rules_apply(rules, N_RULES, EVERY_NODE, &c);
 *
 * A new check is a new row, and a function beside the others of its table.  `tern help checks` is
 * made from the rows.
 */
#ifndef TERN_RULES_RULES_H
#define TERN_RULES_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

/* ------------------------------------------------------------------ rules */

enum tern_rules_severity { TERN_RULES_INFO, TERN_RULES_WARN, TERN_RULES_ERROR };

struct tern_rules_case;

struct tern_rule {
    const char *id;                    /* of several rows when they find different degrees of it */
    enum tern_rules_severity severity; /* of what it finds */
    unsigned where;                    /* bits of the table's owner: which subjects it applies to */
    void (*rule)(struct tern_rules_case *c);
    const char *holds;  /* what holds where nothing is found: "the clock is right" */
    const char *remedy; /* a sentence */
};

/* A rule applied to a subject. */
struct tern_rules_case {
    const struct tern_rule *rule; /* set by tern_rules_apply */
    const char *subject;          /* a node; "": this machine; NULL: all nodes together */
    const void *facts;            /* of the table's owner, as `to` is */
    void *to;                     /* findings go there */
};

/* Apply the `n` rules whose `where` has one of the bits, in their order. */
void tern_rules_apply(const struct tern_rule *rules, size_t n, unsigned where,
                      struct tern_rules_case *c);

/* ------------------------------------------------------------------ words of users and sites */

/* The checks of `tern health`, in the order of its table; the last is NULL.  A site leaves some out
 * in tern.yaml, which is read without them. */
extern const char *const tern_rules_node_ids[];

/* Is `id` a word of the list with commas between?  NULL is an empty list. */
bool tern_rules_listed(const char *list, const char *id);
/* Does the list name checks of nodes alone?  `what` stands before the message. */
int tern_rules_ids_check(const char *list, const char *what, struct tern_err *err);

enum { TERN_RULES_MAX_FOLDERS = 16 };

/* A folder that must take a file: "/fsx" or "/fsx:10G". */
struct tern_rules_folder {
    char dir[256];
    uint64_t need_bytes; /* free space that it must have; 0: not said */
};
int tern_rules_folder_read(const char *text, const char *what, struct tern_rules_folder *ret_folder,
                           struct tern_err *err);
/* The same of several with commas between: "/fsx:100G,/scratch". */
int tern_rules_folders_check(const char *list, const char *what, struct tern_err *err);

/* What a node must have; -1 where that is not known. */
struct tern_rules_expected {
    int64_t neuron, efa, memory_mib, hugepages;
};
/* "neuron=16,efa=8" or, for parts of a job, "trn1-[1-4]:neuron=16;cpu-1:neuron=0".  Sets the
 * numbers of those parts whose host list `is_in` says has `node`, the last of which counts; `is_in`
 * NULL: of all parts. */
int tern_rules_expected_read(const char *text, const char *what,
                             bool (*is_in)(const char *hosts, const char *node), const char *node,
                             struct tern_rules_expected *to, struct tern_err *err);
int tern_rules_expected_check(const char *text, const char *what, struct tern_err *err);

#endif

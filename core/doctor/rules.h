/* The table of findings, and how a rule reports one. */
#ifndef TERN_DOCTOR_RULES_H
#define TERN_DOCTOR_RULES_H

#include "core/doctor/doctor.h"

/* Which subjects a rule applies to. */
enum {
    TERN_DOCTOR_CLUSTER = 1,   /* all nodes together, once */
    TERN_DOCTOR_LOCAL = 2,     /* the machine that collects */
    TERN_DOCTOR_KNOWN = 4,     /* every node of Slurm's table */
    TERN_DOCTOR_LISTED = 8,    /* every node that was to be looked at, answered or not */
    TERN_DOCTOR_ANSWERED = 16, /* every node that answered to the end */
};

/* What `facts` of a case is; `to` is a struct tern_doctor_findings. */
struct tern_doctor_evidence {
    const struct tern_slurm_about *about;
    const struct tern_doctor_facts *facts;
};

extern const struct tern_rule tern_doctor_rules[];
extern const size_t tern_doctor_n_rules;

/* Report the case's rule of its subject.  Subjects with the same words share one finding. */
void tern_doctor_found(struct tern_rules_case *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif

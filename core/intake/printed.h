/* What known trainers print, as data. */
#ifndef TERN_INTAKE_PRINTED_H
#define TERN_INTAKE_PRINTED_H

enum tern_intake_printed_kind {
    TERN_INTAKE_PRINTED_GROUPS, /* the pattern's groups have the names */
    TERN_INTAKE_PRINTED_DICT,   /* a Python dict of numbers; the progress bar tells the step */
    TERN_INTAKE_PRINTED_BAR,    /* that progress bar; groups: step, total */
    TERN_INTAKE_PRINTED_PAIRS,  /* a bar of batches with "name=value, ...", which may tell the step
                                 */
};

struct tern_intake_printed {
    const char *trainer; /* the recipe's word */
    enum tern_intake_printed_kind kind;
    const char *must;         /* text in every such line: spares most lines the pattern */
    const char *pattern;      /* POSIX extended regular expression */
    const char *const *names; /* of its groups, NULL-ended: a metric, "step", "-" nothing, "@pairs"
                                 more values as "name=value, ..." */
};

/* Ended by a NULL trainer. */
extern const struct tern_intake_printed tern_intake_printed[];

#endif

/* The patterns of lines that known trainers print. */
#ifndef TERN_INTAKE_PATTERNS_H
#define TERN_INTAKE_PATTERNS_H

enum tern_intake_pattern_kind {
    TERN_INTAKE_PATTERN_GROUPS, /* the pattern's groups have the names */
    TERN_INTAKE_PATTERN_DICT,   /* a Python dict of numbers; the progress bar gives the step */
    TERN_INTAKE_PATTERN_BAR,    /* the progress bar; groups: step, total */
    TERN_INTAKE_PATTERN_PAIRS,  /* a bar of batches with "name=value, ...", which may give the step
                                 */
};

struct tern_intake_pattern {
    const char *trainer; /* its name in the recipe */
    enum tern_intake_pattern_kind kind;
    const char *must; /* text in every such line: most lines are passed over without the pattern */
    const char *pattern;      /* POSIX extended regular expression */
    const char *const *names; /* of its groups, NULL-ended: a metric, "step", "-" nothing, "@pairs"
                                 more values as "name=value, ..." */
};

/* The last row has a NULL trainer. */
extern const struct tern_intake_pattern tern_intake_patterns[];

#endif

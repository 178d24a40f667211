/* The TERN_* environment variables, declared once, with help.  Reading one that is not in the table
 * is a bug and aborts, so that the table, which `tern help environment` prints, is complete. */
#ifndef TERN_BASE_VARS_H
#define TERN_BASE_VARS_H

struct tern_var {
    const char *name;
    const char *def;  /* what holds when it is unset, as text; "" if nothing does */
    const char *help; /* one sentence */
};

/* The table, ended by a NULL name; sorted by name. */
extern const struct tern_var tern_vars[];

/* The variable's value, or NULL when it is unset or empty. */
const char *tern_var(const char *name);

#endif

/* The TERN_* environment variables, declared once, with help.  Reading one that is not in the table
 * is a bug and aborts: `tern help environment`, which prints the table, is complete. */
#ifndef TERN_BASE_VARS_H
#define TERN_BASE_VARS_H

struct tern_var {
    const char *name;
    const char *def;  /* its value when it is unset, as text; "": none */
    const char *help; /* one sentence */
};

/* The table, ended by a NULL name; sorted by name. */
extern const struct tern_var tern_vars[];

/* The variable's value, or NULL when it is unset or empty. */
const char *tern_var(const char *name);

#endif

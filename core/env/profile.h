/* Inside core/env: a profile is a table of variables. */
#ifndef TERN_ENV_PROFILE_H
#define TERN_ENV_PROFILE_H

#include "core/env/env.h"

/* A rule's result.  An untouched one means: left unset, for the row's reason. */
struct tern_env_answer {
    bool set;
    char value[640];
    char why[400]; /* "" takes the row's */
};

struct tern_env_var {
    const char *name;
    enum tern_env_scope scope;
    int first, last;  /* generations of the SDK in which it holds; 0: from the first, to the last */
    bool recipes;     /* by the recipe alone: the same value in the environment comes from it */
    const char *gone; /* why it is left out of the others */
    const char *why;  /* why it is set, or left unset, where `rule` gives no reason */
    const char *origin; /* public source */
    const char *value;  /* fixed; NULL: by `rule` */
    void (*rule)(const struct tern_env_facts *f, struct tern_env_answer *a);
};

/* Ended by a NULL name. */
extern const struct tern_env_var tern_env_trn1[], tern_env_cpu[];

__attribute__((format(printf, 2, 3))) void tern_env_say(struct tern_env_answer *a, const char *fmt,
                                                        ...);
__attribute__((format(printf, 2, 3))) void tern_env_let(struct tern_env_answer *a, const char *fmt,
                                                        ...);

/* Rules that both profiles have. */
void tern_env_rule_master(const struct tern_env_facts *f, struct tern_env_answer *a);
void tern_env_rule_port(const struct tern_env_facts *f, struct tern_env_answer *a);

/* The port of the job, and the one after it.  All lie below Linux's range for ephemeral ports
 * (32768-60999), so that no outgoing connection takes one first. */
enum { TERN_ENV_PORT_FIRST = 20000, TERN_ENV_PORT_JOBS = 4000, TERN_ENV_PORT_LAST = 27999 };
int tern_env_port(const struct tern_env_facts *f);
/* "host:port" of the collectives' root. */
const char *tern_env_master(const struct tern_env_facts *f);

#endif

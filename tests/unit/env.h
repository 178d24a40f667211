/* Facts of a node and rows of its environment. */
#ifndef TESTS_UNIT_ENV_H
#define TESTS_UNIT_ENV_H

#include "core/env/env.h"
#include "tests/unit/tap.h"

static struct tern_err e;
static char *nothing[] = {NULL};

static inline struct tern_env_facts facts(const char *const *assume)
{
    struct tern_env_facts f = {
        .nodes = 1, .tasks_per_node = 1, .workers = 1, .cpus = 8, .cores = 4, .node_cpus = 8};

    for (; assume && *assume; assume++)
        if (tern_env_facts_assume(&f, *assume, &e) < 0)
            printf("# %s\n", e.text);
    return f;
}

static inline const struct tern_env_row *row(const struct tern_env_rows *rows, const char *name)
{
    for (size_t i = 0; i < rows->n; i++)
        if (strcmp(rows->row[i].name, name) == 0)
            return &rows->row[i];
    return NULL;
}

#endif

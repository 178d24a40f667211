/* A ledger of its own for a unit test, and one run's id in it. */
#ifndef TESTS_UNIT_LEDGER_H
#define TESTS_UNIT_LEDGER_H

#include "tests/unit/tap.h"

#include "core/base/fs.h"
#include "core/ledger/ledger.h"

static struct tern_err err;
static char dir[] = "/tmp/tern-ledger-XXXXXX";
static char id[TERN_ULID_SIZE];

static inline void ledger_begin(void)
{
    if (!mkdtemp(dir))
        abort();
    tern_ledger_ulid_new(id);
}

static inline int ledger_end(void)
{
    tern_fs_remove_tree(dir, NULL);
    return tap_done();
}

/* Two values of step `n`. */
static inline void step(struct tern_ledger_spool *s, int64_t n, double loss)
{
    struct tern_ledger_value v[] = {{"loss", loss}, {"lr", 1e-4}};

    if (tern_ledger_spool_step(s, n, v, 2, &err) != 0)
        ok(0, "step %lld: %s", (long long)n, err.text);
}

#endif

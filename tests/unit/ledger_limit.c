/* core/ledger: a run with more names than are kept reports that once, as no damage; and verify sees
 * what is forged in such a run as in any other. */
#include "tests/unit/ledger.h"

#include "core/ledger/fold.h"
#include "core/ledger/pages.h"
#include "core/ledger/schema.h"

#include <stdlib.h>

enum { NAMES = 65536, RECORD = 1000, ALL = 100 };

static struct tern_ledger_spool *open_writer(const char *run, const char *writer)
{
    struct tern_ledger_spool *s = tern_ledger_spool_open(dir, run, 1, writer, &err);

    if (!s)
        abort();
    return s;
}

/* `n` names that begin with `start`, a value each. */
static void write_names(struct tern_ledger_spool *s, const char *start, int n)
{
    static char names[RECORD][32];
    struct tern_ledger_value v[RECORD];

    for (int from = 0; from < n; from += RECORD) {
        for (int i = 0; i < RECORD; i++) {
            snprintf(names[i], sizeof names[i], "%s%d", start, from + i);
            v[i] = (struct tern_ledger_value){names[i], 0.5 * i};
        }
        if (tern_ledger_spool_step(s, from / RECORD + 1, v, RECORD, &err) < 0)
            ok(0, "names of metrics: %s", err.text);
    }
}

static uint64_t damaged(const char *run, const char *what)
{
    struct tern_ledger_check c = {0};
    struct tern_buf findings = {0};

    if (tern_ledger_verify(dir, run, &c, &findings, &err) < 0)
        ok(0, "%s: verify: %s", what, err.text);
    if (c.damaged)
        printf("# %s: %s", what, findings.data);
    tern_buf_free(&findings);
    return c.damaged;
}

static int64_t ask(const char *run, const char *sql)
{
    char *path = tern_ledger_run_db(dir, run);
    struct tern_ledger_db_stamp stamp;
    sqlite3 *db = NULL;
    int64_t n = -1;

    if (tern_ledger_db_load(path, tern_schema_run, &db, &stamp, &err) == 0)
        n = tern_ledger_db_int(db, sql, -1);
    sqlite3_close(db);
    free(path);
    return n;
}

/* As a process could that publishes as a fold does. */
static void forge(const char *run, const char *sql)
{
    char *path = tern_ledger_run_db(dir, run), *of = tern_fs_dirname(path);
    struct tern_ledger_db_stamp stamp;
    sqlite3 *db = NULL;

    if (tern_ledger_db_load(path, tern_schema_run, &db, &stamp, &err) != 0 ||
        tern_ledger_db_exec(db, sql, &err) < 0 || sqlite3_changes(db) == 0 ||
        tern_ledger_db_publish(db, path, of, 0755, tern_ledger_pages_finish, &stamp, &err) != 0)
        ok(0, "not forged: %s: %s", sql, err.text);
    sqlite3_close(db);
    free(of);
    free(path);
}

static void check_forged(const char *run, const char *what, const char *const *sql, int n)
{
    for (int i = 0; i < n && sql[i]; i++) {
        forge(run, sql[i]);
        ok(damaged(run, what) > 0, "%s: verify finds %s", what, sql[i]);
        if (n > 1 && tern_ledger_rebuild(dir, run, &err) < 0)
            ok(0, "rebuild: %s", err.text);
    }
}

static const char *const everywhere[] = {
    "UPDATE point SET value = 99 WHERE metric_id = 7",
    "DELETE FROM point WHERE metric_id = 7",
    "UPDATE metric SET name = 'other' WHERE id = 7",
    "UPDATE metric SET value = 99 WHERE id = 7",
    "UPDATE span SET last_step = last_step + 1 WHERE metric_id = 7",
    "UPDATE event SET text = 'another' WHERE kind = 'gap'",
    "DELETE FROM event WHERE kind = 'gap'",
    NULL};

static void write_event(struct tern_ledger_spool *s, const char *kind)
{
    const struct tern_ledger_event e = {
        .kind = kind, .severity = "warn", .node = "n1", .text = "1 record lost"};

    tern_ledger_spool_event(s, &e, &err);
}

static void test_many_names(void)
{
    static const char *const own[] = {"UPDATE event SET text = 'another' WHERE kind = 'limit'",
                                      "DELETE FROM event WHERE kind = 'limit'", NULL};
    struct tern_ledger_spool *s = open_writer(id, "rank0");

    write_names(s, "m", NAMES + RECORD - NAMES % RECORD);
    write_event(s, "gap");
    tern_ledger_spool_close(s, &err);
    ok(tern_ledger_fold(dir, id, &err) == 0, "a run of too many names is folded: %s", err.text);
    ok(ask(id, "SELECT count(*) FROM metric") == NAMES, "65,536 names are kept");
    ok(ask(id, "SELECT count(*) FROM event WHERE kind = 'limit'") == 1,
       "one event reports that there were more names");
    ok(ask(id, "SELECT count(*) FROM damage") == 0 && damaged(id, "too many names") == 0,
       "too many names are no damage");
    check_forged(id, "too many names", everywhere, tap_long() ? ALL : 1); /* a second each */
    if (tap_long())
        check_forged(id, "too many names", own, ALL);
}

/* The names that are kept are not those of a rebuild. */
static void test_other_order(void)
{
    char run[TERN_ULID_SIZE];

    tern_ledger_ulid_new(run);
    struct tern_ledger_spool *s = open_writer(run, "rank1");
    write_names(s, "b", 40 * RECORD);
    ok(tern_ledger_fold(dir, run, &err) == 0, "half of the names are folded: %s", err.text);
    struct tern_ledger_spool *other = open_writer(run, "rank0");
    write_names(other, "a", 40 * RECORD);
    ok(damaged(run, "behind") == 0, "too many names behind the last fold are no damage");
    ok(tern_ledger_fold(dir, run, &err) == 0 &&
           ask(run, "SELECT count(*) FROM metric WHERE name LIKE 'b%'") == 40 * RECORD,
       "what an earlier fold kept stays: %s", err.text);
    ok(damaged(run, "in another order") == 0, "verify does not mind the order of folds");
    forge(run, "UPDATE point SET value = 99 WHERE metric_id = 7");
    ok(damaged(run, "in another order") > 0, "verify finds a forged value whatever the order");
    tern_ledger_spool_close(s, &err);
    tern_ledger_spool_close(other, &err);
}

/* The word of a fold, from a spool, hides nothing. */
static void test_word(void)
{
    static const char *const word[] = {
        "INSERT INTO event VALUES(0, 0, 1, 'fold', 1, 'limit', 'warn', NULL, 'more than')",
        "INSERT INTO event VALUES(7, 7, 1, 'rank0', 1, 'limit', 'warn', NULL, 'more than')", NULL};
    char run[TERN_ULID_SIZE];

    tern_ledger_ulid_new(run);
    struct tern_ledger_spool *s = open_writer(run, "rank0");
    write_names(s, "m", RECORD);
    write_event(s, "gap");
    ok(tern_ledger_fold(dir, run, &err) == 0 && damaged(run, "plain") == 0, "a plain run is sound");
    check_forged(run, "plain", everywhere, ALL);
    check_forged(run, "plain", word, ALL);
    write_event(s, "limit");
    step(s, 9, 2.5);
    tern_ledger_spool_close(s, &err);
    ok(tern_ledger_fold(dir, run, &err) == 0 &&
           ask(run, "SELECT count(*) FROM event WHERE kind = 'limit'") == 0 &&
           ask(run, "SELECT count(*) FROM damage") == 1,
       "an event of kind limit in a spool is damage: %s", err.text);
    ok(ask(run, "SELECT count(*) FROM step WHERE name = 'loss' AND value = 2.5") == 1,
       "a run with such an event has its other records");
    const uint64_t before = damaged(run, "limit in a spool");
    forge(run, "UPDATE point SET value = 99 WHERE metric_id = 7");
    ok(damaged(run, "limit in a spool") == before + 1,
       "a forged value is found beside an event of kind limit");
}

int main(void)
{
    ledger_begin();
    test_many_names();
    if (tap_long())
        test_other_order();
    test_word();
    return ledger_end();
}

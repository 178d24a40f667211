/* run.db and ledger.db from anybody: the ledger reads them, or what the spools say, or refuses in
 * words; nothing is read that is not there.  FUZZ_RUNS: how many of each. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ledger/ledger.h"
#include "tests/fuzz/mutate.h"

#include <unistd.h>

static char ledger[] = "/tmp/tern-fuzz-database-XXXXXX", run_id[TERN_ULID_SIZE];
static const char *const words[] = {
    "SQLite format 3",  "CREATE", "metric", "attempt", "\xff\xff", "\x7f\xff\xff\xff",
    "\x80\x80\x80\x80", "NULL",   "loss",   "train",   NULL};

static void write_run(void)
{
    struct tern_err err = {0};
    struct tern_ledger_spool *s =
        tern_ledger_spool_open(ledger, tern_ledger_ulid_new(run_id), 1, "run", &err);

    tern_ledger_spool_run(s, &(struct tern_ledger_run){.name = "fuzz", .recipe = "name: fuzz\n"},
                          NULL);
    tern_ledger_spool_attempt_begin(s, &(struct tern_ledger_attempt){.kind = "train", .world = 2},
                                    NULL);
    for (int64_t step = 1; step <= 40; step++)
        tern_ledger_spool_step(
            s, step, (struct tern_ledger_value[]){{"loss", 1.0 / (double)step}, {"lr", 1}}, 2,
            NULL);
    tern_ledger_spool_checkpoint(
        s, &(struct tern_ledger_checkpoint){.step = 40, .path = "/x", .state = "published"}, NULL);
    tern_ledger_spool_eval(s, &(struct tern_ledger_eval){.step = 40, .set = "a", .nll = 1}, NULL);
    tern_ledger_spool_event(
        s, &(struct tern_ledger_event){.kind = "x", .severity = "warn", .text = "y"}, NULL);
    if (tern_ledger_spool_close(s, &err) < 0 || tern_ledger_fold(ledger, run_id, &err) < 0 ||
        tern_ledger_fold_catalog(ledger, &err) < 0)
        ok(0, "%s", err.text);
}

/* Everything that a view has. */
static void read_all(struct tern_ledger *l)
{
    typedef int read_rows(struct tern_ledger *, struct tern_ledger_rows *, struct tern_err *);
    static read_rows *const all[] = {
        tern_ledger_runs,   tern_ledger_attempts,    tern_ledger_checkpoints, tern_ledger_evals,
        tern_ledger_events, tern_ledger_health_rows, tern_ledger_metrics};
    struct tern_ledger_series s = {0};
    struct tern_ledger_table t = {0};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct tern_ledger_rows r = {0};
        if (all[i](l, &r, NULL) == 0)
            tern_ledger_rows_free(&r);
    }
    if (tern_ledger_series(l, "loss", true, &s, NULL) == 0)
        tern_ledger_series_free(&s);
    if (tern_ledger_sql(l, "SELECT * FROM runs", 100, 1, &t, NULL) == 0)
        tern_ledger_table_free(&t);
}

static void put(const char *path, const char *data, size_t len)
{
    FILE *f = fopen(path, "w");

    if (!f || fwrite(data, 1, len, f) != len || fclose(f) != 0)
        abort();
}

static void forget_copies(const char *path)
{
    for (int i = 1; i < 4; i++) {
        char *bad = i == 1 ? tern_strf("%s.bad", path) : tern_strf("%s.bad.%d", path, i);
        unlink(bad);
        free(bad);
    }
}

static void fuzz(const char *path, bool catalogue, int n)
{
    struct tern_err err = {0};
    char *seed;
    size_t all, len;
    int opened = 0;

    if (tern_fs_read(path, 64 << 20, &seed, &all, &err) < 0) {
        ok(0, "%s", err.text);
        return;
    }
    for (int i = 0; i < n; i++) {
        char *data = fuzz_mutate(seed, all, words, &len);
        put(path, data, len);
        struct tern_ledger *l =
            catalogue ? tern_ledger_open(ledger, &err) : tern_ledger_open_run(ledger, run_id, &err);
        opened += l != NULL;
        if (l)
            read_all(l);
        else if (!err.text[0])
            ok(0, "round %d: refused in words", i);
        tern_ledger_close(l);
        if (i % 16 == 0 && catalogue)
            tern_ledger_fold_catalog(ledger, NULL);
        else if (i % 16 == 0)
            tern_ledger_fold(ledger, run_id, NULL);
        forget_copies(path);
        err = (struct tern_err){0};
        free(data);
    }
    put(path, seed, all);
    ok(opened > 0, "%s: %d of %d opened", tern_fs_basename(path), opened, n);
    free(seed);
}

int main(void)
{
    if (!mkdtemp(ledger))
        return 1;
    write_run();
    char *run = tern_strf("%s/runs/%s/run.db", ledger, run_id);
    char *catalogue = tern_fs_join(ledger, "ledger.db");
    if (!freopen("/dev/null", "w", stderr)) /* a warning for each that is damaged */
        return 1;
    fuzz(run, false, fuzz_runs(200));
    fuzz(catalogue, true, fuzz_runs(200));
    free(catalogue);
    free(run);
    tern_fs_remove_tree(ledger, NULL);
    return tap_done();
}

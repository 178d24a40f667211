/* core/ledger: spools are read in any order, and what they say is the same. */
#include "tests/unit/ledger.h"

enum { RECORDS = 4, ORDERS = 24 /* of that many records */ };

/* A record of one checkpoint; its time is its place in the list. */
struct said {
    const char *state;
    int64_t bytes;
    const char *sha256;
};

/* Writes record `i` to a spool whose name gives its place in the reading order. */
static void write_said(const char *run, const struct said *what, size_t i, int place)
{
    char writer[16];

    snprintf(writer, sizeof writer, "w%d", place);
    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, run, 1, writer, &err);
    const struct tern_ledger_checkpoint c = {.step = 1,
                                             .path = "/c/checkpoint-1",
                                             .bytes = what->bytes,
                                             .shards = what->bytes / 10,
                                             .manifest_sha256 = what->sha256,
                                             .state = what->state};
    tern_ledger_spool_set_time(w, 1000 + (int64_t)i);
    if (tern_ledger_spool_checkpoint(w, &c, &err) != 0 || tern_ledger_spool_close(w, &err) != 0)
        ok(0, "a checkpoint's record is written: %s", err.text);
}

/* The checkpoint's row as "state bytes shards digest". */
static char *row_of(const char *run)
{
    struct tern_ledger_rows rows = {0};
    struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
    char *text = NULL;

    if (l && tern_ledger_checkpoints(l, &rows, &err) == 0 && rows.n == 1) {
        const struct tern_ledger_checkpoint *c = &rows.checkpoints[0];
        text = tern_strf("%s %lld %lld %s", c->state, (long long)c->bytes, (long long)c->shards,
                         c->manifest_sha256 ? c->manifest_sha256 : "-");
    }
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
    return text ? text : tern_strdup(err.text);
}

static int damaged(const char *run)
{
    struct tern_ledger_check c;
    struct tern_buf found = {0};
    int bad = tern_ledger_verify(dir, run, &c, &found, &err) != 0 || c.damaged > 0;

    if (found.data)
        printf("# %s", found.data);
    tern_buf_free(&found);
    return bad;
}

/* All orders of `n` records, each folded at once and one record after the other. */
static int try_orders(const struct said *what, size_t n, const char *wanted)
{
    int wrong = 0;

    for (int order = 0; order < ORDERS; order += tap_long() ? 1 : 5) {
        int place[RECORDS], code = order;
        char run[TERN_ULID_SIZE];
        bool taken[RECORDS] = {false}, valid = true;
        for (size_t i = 0; i < n; i++) { /* a number of mixed base names a permutation */
            int skip = code % (int)(n - i), p = 0;
            code /= (int)(n - i);
            while (taken[p] || skip-- > 0)
                p++;
            taken[p] = true;
            place[i] = p;
        }
        valid = code == 0;
        for (int each = 0; valid && each < 2; each++) {
            tern_ledger_ulid_new(run);
            for (size_t i = 0; i < n; i++) {
                write_said(run, &what[i], i, place[i]);
                if (each || i + 1 == n)
                    tern_ledger_fold(dir, run, &err);
            }
            char *row = row_of(run);
            if (strcmp(row, wanted) != 0) {
                printf("# order %d%s: %s\n", order, each ? ", one by one" : "", row);
                wrong++;
            }
            free(row);
            wrong += damaged(run);
        }
    }
    return wrong;
}

static void test_checkpoint(void)
{
    const struct said told[] = {
        {"foreign", 0, NULL}, {"verified", 100, "aa"}, {"deleted", 0, NULL}};
    const struct said again[] = {{"published", 100, "aa"},
                                 {"verified", 100, "aa"},
                                 {"foreign", 0, NULL},
                                 {"verified", 200, "bb"}};
    const struct said late[] = {
        {"writing", 0, NULL}, {"published", 300, "cc"}, {"deleted", 0, NULL}, {"writing", 0, NULL}};

    ok(try_orders(told, 3, "deleted 100 10 aa") == 0,
       "a checkpoint's size and digest are the same in any order of its spools");
    ok(try_orders(again, 4, "verified 200 20 bb") == 0,
       "a checkpoint that was written again has its newest size in any order");
    ok(try_orders(late, 4, "writing 300 30 cc") == 0,
       "a checkpoint that is being written again keeps its known size in any order");
}

/* Attempt `n`, which began at `at`; its records come from a spool of that name. */
static void describe(const char *run, unsigned n, const char *writer, int64_t at, const char *model)
{
    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, run, n, writer, &err);
    const struct tern_ledger_run r = {.name = "cpt", .model = model, .created_ns = at};

    tern_ledger_spool_set_time(w, at);
    tern_ledger_spool_run(w, &r, &err);
    tern_ledger_spool_close(w, &err);
}

static void test_created(void)
{
    for (int order = 0; order < 4; order++) {
        struct tern_ledger_rows rows = {0};
        char run[TERN_ULID_SIZE];
        tern_ledger_ulid_new(run);
        /* Folded between, or not; the older record is read first, or last. */
        describe(run, order & 1 ? 2 : 1, "run", order & 1 ? 2000 : 1000, order & 1 ? "new" : "old");
        if (order & 2)
            tern_ledger_fold(dir, run, &err);
        describe(run, order & 1 ? 1 : 2, "run", order & 1 ? 1000 : 2000, order & 1 ? "old" : "new");
        describe(run, 3, "run", 0, "unknown");
        tern_ledger_fold(dir, run, &err);
        struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
        ok(l && tern_ledger_runs(l, &rows, &err) == 0 && rows.n == 1 &&
               rows.runs[0].created_ns == 1000,
           "a run began when its first attempt did, not when it was restarted (order %d)", order);
        tern_ledger_rows_free(&rows);
        tern_ledger_close(l);
        ok(!damaged(run), "the time at which a run began is that of a rebuild (order %d)", order);
    }
}

static void write_values(const char *run, unsigned attempt, const char *writer, double loss)
{
    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, run, attempt, writer, &err);

    for (int64_t n = 1; n <= 3; n++) {
        const struct tern_ledger_value v[] = {
            {"loss", loss - (double)n}, {"tokens_per_second", 100 * loss}, {"step_seconds", loss}};
        tern_ledger_spool_step(w, n, v, sizeof v / sizeof *v, &err);
    }
    tern_ledger_spool_close(w, &err);
}

static void begin(const char *run, unsigned attempt, const char *kind)
{
    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, run, attempt, "run", &err);

    tern_ledger_spool_attempt_begin(w, &(struct tern_ledger_attempt){.kind = kind}, &err);
    tern_ledger_spool_close(w, &err);
}

/* The values of `run`'s row, by the run's own file and by the catalogue. */
static int wrong_newest(const char *run, double loss, double pace, bool catalogue)
{
    struct tern_ledger_rows rows = {0};
    struct tern_ledger *l =
        catalogue ? tern_ledger_open(dir, &err) : tern_ledger_open_run(dir, run, &err);
    int wrong = 1;

    if (l && tern_ledger_runs(l, &rows, &err) == 0)
        for (size_t i = 0; i < rows.n; i++) {
            const struct tern_ledger_run *r = &rows.runs[i];
            if (strcmp(r->id, run) != 0)
                continue;
            wrong = r->last_loss != loss || !r->has_loss || r->step_seconds != pace ||
                    r->tokens_per_second != 100 * pace;
            if (wrong)
                printf("# loss %g, %g s a step, %g tokens/s\n", r->last_loss, r->step_seconds,
                       r->tokens_per_second);
        }
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
    return wrong;
}

/* An attempt that only tests the cluster has a loss of its own, which is not the run's. */
static void test_other_kinds(void)
{
    static const char *const kinds[] = {"smoke", "trial", "precompile", "health"};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char run[TERN_ULID_SIZE];
        tern_ledger_ulid_new(run);
        begin(run, 1, "train");
        write_values(run, 1, "rank0", 5);
        tern_ledger_fold(dir, run, &err);
        write_values(run, 2, "rank0", 9);
        if (i % 2) /* the values are folded before it is known that they are none of the run's */
            tern_ledger_fold(dir, run, &err);
        begin(run, 2, kinds[i]);
        ok(wrong_newest(run, 2, 5, false) == 0 && wrong_newest(run, 2, 5, true) == 0,
           "a %s behind the training leaves the run's loss and pace", kinds[i]);
        tern_ledger_fold(dir, run, &err);
        tern_ledger_fold_catalog(dir, &err);
        ok(wrong_newest(run, 2, 5, false) == 0 && wrong_newest(run, 2, 5, true) == 0,
           "a %s that is folded leaves the run's loss and pace", kinds[i]);
        begin(run, 3, "train");
        write_values(run, 3, "rank0", 4);
        ok(wrong_newest(run, 1, 4, true) == 0,
           "training that goes on behind a %s has the newest loss", kinds[i]);
        ok(!damaged(run), "a run with a %s is as a rebuild makes it", kinds[i]);
    }
}

int main(void)
{
    ledger_begin();
    test_checkpoint();
    test_created();
    test_other_kinds();
    return ledger_end();
}

/* core/ledger: what is written is read back, by views, names and SQL. */
#include "tests/unit/ledger.h"

#include <math.h>
#include <unistd.h>

static void test_ulid(void)
{
    char a[TERN_ULID_SIZE], b[TERN_ULID_SIZE];

    tern_ledger_ulid_new(a);
    usleep(2000);
    tern_ledger_ulid_new(b);
    ok(tern_ledger_ulid_valid(a) && strcmp(a, b) < 0, "ULIDs sort by time: %s %s", a, b);
    ok(!tern_ledger_ulid_valid("01ARZ3NDEKTSV4RRFFQ69G5FAU") && !tern_ledger_ulid_valid("x") &&
           !tern_ledger_ulid_valid("81ARZ3NDEKTSV4RRFFQ69G5FAV") &&
           tern_ledger_ulid_valid("01ARZ3NDEKTSV4RRFFQ69G5FAV"),
       "texts that are no ULIDs are refused (U is no digit, 8... has 131 bits)");
}

/* The catalogue of a run whose second attempt is at work. */
static void check_catalogue(void)
{
    struct tern_ledger_rows rows = {0};

    struct tern_ledger *l = tern_ledger_open(dir, &err);
    ok(l && tern_ledger_runs(l, &rows, &err) == 0 && rows.n == 1,
       "a catalogue that was never folded lists the run");
    ok(rows.runs[0].last_step == 7 && rows.runs[0].attempts == 2 && rows.runs[0].ckpt_step == 5 &&
           rows.runs[0].has_loss && rows.runs[0].last_loss == INFINITY,
       "the catalogue has what is not folded");
    is(rows.runs[0].state, "running", "the catalogue says that a run without an end is running");
    tern_ledger_rows_free(&rows);
    char found[TERN_ULID_SIZE];
    ok(tern_ledger_find(l, "cpt", found, &err) == 0 && strcmp(found, id) == 0 &&
           tern_ledger_find(l, NULL, found, &err) == 0 &&
           tern_ledger_find(l, "nobody", found, &err) < 0,
       "a run is found by its name or as the newest, and no other name finds one");
    tern_ledger_close(l);
}

static void test_rewind(void)
{
    struct tern_ledger_run run = {.name = "cpt", .user = "me", .recipe = "version: 1\n"};
    struct tern_ledger_attempt a = {.job_id = 7, .nodes = "n[1-2]", .world = 4};
    struct tern_ledger_checkpoint c = {
        .step = 5, .path = "/c/step-00000005", .bytes = 10, .shards = 2, .state = "published"};
    struct tern_ledger_rows rows = {0};
    struct tern_ledger_series s = {0};

    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, id, 1, "rank0", &err);
    ok(w != NULL, "a spool is opened %s", w ? "" : err.text);
    tern_ledger_spool_run(w, &run, &err);
    tern_ledger_spool_attempt_begin(w, &a, &err);
    for (int i = 1; i <= 8; i++) {
        step(w, i, 10 - i);
        if (i == 5)
            tern_ledger_spool_checkpoint(w, &c, &err);
    }
    struct tern_ledger_end e = {"node_fail", 75, 9, "rank 3 on n2 went away"};
    tern_ledger_spool_attempt_end(w, &e, &err);
    ok(tern_ledger_spool_close(w, &err) == 0, "a spool is synced and closed");
    ok(tern_ledger_fold(dir, id, &err) == 0, "a run of one attempt is folded");

    struct tern_ledger_attempt b = {
        .job_id = 7, .restart_count = 1, .resumed_checkpoint = c.path, .resumed_step = 5};
    w = tern_ledger_spool_open(dir, id, 2, "rank0", &err);
    tern_ledger_spool_attempt_begin(w, &b, &err);
    c.state = "verified";
    tern_ledger_spool_checkpoint(w, &c, &err);
    step(w, 6, NAN);
    step(w, 7, INFINITY);

    /* Not folded yet: the view lays the tail over the snapshot. */
    struct tern_ledger *l = tern_ledger_open_run(dir, id, &err);
    ok(l && tern_ledger_series(l, "loss", false, &s, &err) == 0,
       "a run that is written to has a view");
    ok(s.n == 7 && s.step[4] == 5 && s.attempt[4] == 1 && s.step[5] == 6 && s.attempt[5] == 2 &&
           isnan(s.value[5]) && s.value[6] == INFINITY,
       "attempt 2 supersedes steps 6 to 8; NaN and infinity are values");
    tern_ledger_series_free(&s);
    ok(tern_ledger_series(l, "loss", true, &s, &err) == 0 && s.n == 10,
       "superseded values stay in the view");
    tern_ledger_series_free(&s);
    ok(tern_ledger_series(l, "lss", true, &s, &err) < 0, "an unknown metric has no series");
    ok(tern_ledger_attempts(l, &rows, &err) == 0 && rows.n == 2, "the view has both attempts");
    is(rows.attempts[0].cause, "rank 3 on n2 went away", "an attempt has the cause of its end");
    ok(rows.attempts[1].outcome == NULL && rows.attempts[1].resumed_step == 5 &&
           rows.attempts[0].last_step == 8,
       "an attempt has the step that it resumed from");
    tern_ledger_rows_free(&rows);
    ok(tern_ledger_checkpoints(l, &rows, &err) == 0 && rows.n == 1 &&
           rows.checkpoints[0].attempt == 1 && rows.checkpoints[0].bytes == 10,
       "a checkpoint that a later attempt verified stays its maker's");
    is(rows.checkpoints[0].state, "verified", "a checkpoint's state is the newest");
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);

    check_catalogue();
    ok(tern_ledger_spool_close(w, &err) == 0 && tern_ledger_fold(dir, id, &err) == 0 &&
           tern_ledger_fold_catalog(dir, &err) == 0,
       "runs and catalogue are folded");
}

/* A trial of a run at step 7 changes nothing of the run, and its rows are in the ledger. */
static void test_kinds(void)
{
    const struct tern_ledger_attempt a = {.kind = "trial"};
    const struct tern_ledger_health h = {.check = "memory",
                                         .node = "n1",
                                         .verdict = "node_bad",
                                         .severity = "error",
                                         .value = 3.5,
                                         .unit = "GB/s",
                                         .seconds = 0.25};
    struct tern_ledger_rows rows = {0};
    struct tern_ledger_series s = {0};

    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, id, 3, "rank0", &err);
    tern_ledger_spool_attempt_begin(w, &a, &err);
    step(w, 1, 99);
    step(w, 900, 99);
    ok(tern_ledger_spool_health(w, &h, &err) == 0 && tern_ledger_spool_close(w, &err) == 0,
       "a trial's records are written");
    struct tern_ledger *l = tern_ledger_open_run(dir, id, &err);
    ok(l && tern_ledger_series(l, "loss", false, &s, &err) == 0 && s.n == 7,
       "values of a trial are not the run's, and supersede nothing");
    tern_ledger_series_free(&s);
    ok(tern_ledger_series(l, "loss", true, &s, &err) == 0 && s.n == 12,
       "values of a trial are in the view of all values");
    tern_ledger_series_free(&s);
    ok(tern_ledger_attempts(l, &rows, &err) == 0 && rows.n == 3, "a trial is an attempt");
    is(rows.attempts[2].kind, "trial", "a trial has its kind");
    is(rows.attempts[0].kind, "train", "a training attempt has its kind");
    tern_ledger_rows_free(&rows);
    ok(tern_ledger_runs(l, &rows, &err) == 0 && rows.runs[0].last_step == 7,
       "a trial does not change the run's last step");
    tern_ledger_rows_free(&rows);
    ok(tern_ledger_health_rows(l, &rows, &err) == 0 && rows.n == 1 && rows.health[0].value == 3.5 &&
           rows.health[0].seconds == 0.25 && rows.health[0].attempt == 3 && !rows.health[0].text,
       "a health check's row reads back");
    is(rows.health[0].verdict, "node_bad", "a health check's verdict reads back");
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
}

static void test_eval(void)
{
    struct tern_ledger_rows rows = {0};
    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, id, 2, "eval", &err);
    struct tern_ledger_eval e = {
        .step = 0, .set = "general", .nll = 200, .tokens = 100, .bytes = 400};
    struct tern_ledger_event ev = {.kind = "note", .severity = "info", .text = "a 'text'\nof two"};

    tern_ledger_spool_eval(w, &e, &err);
    e.step = 7;
    e.nll = NAN;
    tern_ledger_spool_eval(w, &e, &err);
    tern_ledger_spool_event(w, &ev, &err);
    tern_ledger_spool_param(w, "kernels", "avx512", &err);
    ok(tern_ledger_spool_close(w, &err) == 0, "evaluations are written");
    struct tern_ledger *l = tern_ledger_open_run(dir, id, &err);
    ok(tern_ledger_evals(l, &rows, &err) == 0 && rows.n == 2 &&
           fabs(rows.evals[0].ppl_token - exp(2)) < 1e-12 &&
           fabs(rows.evals[0].ppl_byte - exp(.5)) < 1e-12 && isnan(rows.evals[1].nll) &&
           isnan(rows.evals[1].ppl_token),
       "an evaluation has its perplexity per token and per byte, NaN as NaN");
    tern_ledger_rows_free(&rows);
    ok(tern_ledger_events(l, &rows, &err) == 0 && rows.n == 1, "an event reads back");
    is(rows.n ? rows.events[0].text : NULL, ev.text,
       "an event's text reads back, with its line break");
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
}

static void test_sql(void)
{
    struct tern_ledger *l = tern_ledger_open_run(dir, id, &err);
    struct tern_ledger_table t;

    ok(tern_ledger_sql(l, "SELECT step, value FROM step WHERE name = 'loss' AND step > 5", 10, 5,
                       &t, &err) == 0 &&
           t.n_rows == 2 && t.n_columns == 2,
       "a SELECT returns rows");
    ok(t.cells[1].kind == TERN_LEDGER_NULL && t.cells[3].real == INFINITY,
       "in SQL NaN is NULL, infinity is itself");
    tern_ledger_table_free(&t);
    static const char *const bad[] = {"DELETE FROM point",
                                      "ATTACH '/tmp/x' AS x",
                                      "PRAGMA journal_mode = WAL",
                                      "SELECT load_extension('x')",
                                      "SELECT 1; SELECT 2",
                                      "CREATE TABLE x(y)",
                                      "SELEC",
                                      ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ok(tern_ledger_sql(l, bad[i], 10, 5, &t, &err) < 0,
           "SQL that does not only read is refused: %s (%s)", bad[i], err.text);
    ok(tern_ledger_sql(l, "SELECT * FROM step_all", 3, 5, &t, &err) == 0 && t.cut && t.n_rows == 3,
       "the number of rows is limited");
    tern_ledger_table_free(&t);
    ok(tern_ledger_sql(l,
                       "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT"
                       " count(*) FROM c",
                       3, 0.1, &t, &err) < 0 &&
           strstr(err.text, "stopped after 0.1 s"),
       "the time of a query is limited");
    tern_ledger_close(l);
}

/* A run's name may be the beginning of another's id. */
static void test_find(void)
{
    char first[TERN_ULID_SIZE], second[TERN_ULID_SIZE], found[TERN_ULID_SIZE], name[9];
    struct tern_ledger *l;

    tern_ledger_ulid_new(first);
    usleep(2000);
    tern_ledger_ulid_new(second);
    snprintf(name, sizeof name, "%.8s", first);
    for (int i = 0; i < 2; i++) {
        struct tern_ledger_spool *s = tern_ledger_spool_open(dir, i ? second : first, 1, "w", &err);
        struct tern_ledger_run r = {.name = i ? name : "other", .created_ns = 1};
        tern_ledger_spool_run(s, &r, &err);
        tern_ledger_spool_close(s, &err);
    }
    l = tern_ledger_open(dir, &err);
    ok(l && tern_ledger_find(l, name, found, &err) == 0 && strcmp(found, second) == 0,
       "a run's name is preferred to the beginning of another's id");
    ok(l && tern_ledger_find(l, first, found, &err) == 0 && strcmp(found, first) == 0,
       "a run is found by its whole id");
    tern_ledger_close(l);
    for (int i = 0; i < 2; i++) {
        char *run = tern_strf("%s/runs/%s", dir, i ? second : first);
        tern_fs_remove_tree(run, NULL);
        free(run);
    }
}

static void test_paths(void)
{
    char run[TERN_ULID_SIZE], *spool = tern_ledger_spool_dir("/x/led ger", id, 12), *ledger;
    unsigned n;

    ok(tern_ledger_spool_dir_parse(spool, &ledger, run, &n, &err) == 0 && n == 12 &&
           strcmp(run, id) == 0,
       "a spool folder's path has the run's id and attempt");
    is(ledger, "/x/led ger", "a spool folder's path has the ledger's folder");
    free(ledger);
    free(spool);
    ok(tern_ledger_spool_dir_parse("/tmp", &ledger, run, &n, &err) < 0,
       "a path of another form is no spool folder");
    ok(tern_ledger_spool_open(dir, id, 1, "../evil", &err) == NULL &&
           tern_ledger_spool_open(dir, id, 1, ".w", &err) == NULL &&
           tern_ledger_spool_open(dir, "no", 1, "w", &err) == NULL &&
           tern_ledger_spool_open(dir, id, 0, "w", &err) == NULL,
       "a spool with a bad writer, run id or attempt is refused");
    ok(tern_ledger_spool_step(NULL, 1, (struct tern_ledger_value[]){{"x", 1}}, 1, &err) == 0 &&
           tern_ledger_spool_close(NULL, &err) == 0,
       "records to a spool that is NULL do nothing");
    ok(tern_ledger_open("/nowhere", &err) == NULL && strstr(err.text, "no such ledger"),
       "a ledger that does not exist is an error: %s", err.text);
}

/* ---------------------------------------------------------------- evaluated beside the run */

static void own_eval(struct tern_ledger_spool *w, int64_t step, double nll)
{
    const struct tern_ledger_eval e = {.step = step, .set = "a", .nll = nll, .tokens = 10};

    tern_ledger_spool_eval(w, &e, &err);
}

static int evaluated(const char *run, unsigned attempt, int64_t step, double nll, bool counts)
{
    struct tern_ledger_spool *s = tern_ledger_evaluated_open(dir, run, attempt, &err);
    const struct tern_ledger_evaluated e = {
        .eval = {.step = step, .set = "a", .nll = nll, .tokens = 10, .bytes = 40},
        .checkpoint_sha256 = "c0",
        .set_sha256 = "5e",
        .precision = "fp32",
        .seq_len = 64,
        .isolate = true,
        .by = "a test",
        .counts = counts};
    int rc = tern_ledger_evaluated_add(s, &e, &err);

    return tern_ledger_spool_close(s, &err) < 0 ? -1 : rc;
}

/* The effective values by step, "5:2 8:-": attempt, and - where tern eval measured it. */
static char *effective(struct tern_ledger *l)
{
    struct tern_ledger_rows evals = {0}, beside = {0};
    struct tern_buf b = {0};

    tern_buf_puts(&b, "");
    if (tern_ledger_evals(l, &evals, &err) == 0 &&
        tern_ledger_evaluated_rows(l, &beside, &err) == 0)
        for (size_t i = 0; i < evals.n; i++)
            if (evals.evals[i].effective)
                tern_buf_printf(&b, "%s%lld:%u%s", b.len ? " " : "", (long long)evals.evals[i].step,
                                evals.evals[i].attempt,
                                tern_ledger_evaluated_of(&beside, &evals.evals[i]) ? "-" : "");
    tern_ledger_rows_free(&evals);
    tern_ledger_rows_free(&beside);
    return b.data;
}

/* A later attempt of the run went on from step 5, which it evaluated itself. */
static void test_evaluated_later(const char *run)
{
    struct tern_ledger_attempt a = {.nodes = "n1", .world = 1, .resumed_step = 5};
    struct tern_ledger_rows rows = {0};

    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, run, 2, "rank0", &err);
    tern_ledger_spool_attempt_begin(w, &a, &err);
    own_eval(w, 5, 22);
    step(w, 6, 1);
    for (const char *const *text = (const char *const[]){"no JSON", "{\"step\": 1}", "[]", NULL};
         *text; text++) {
        const struct tern_ledger_event strange = {.kind = TERN_LEDGER_EVALUATED, .text = *text};
        tern_ledger_spool_event(w, &strange, &err);
    }
    tern_ledger_spool_close(w, &err);
    ok(evaluated(run, 2, 6, 23, true) == 0, "an evaluation of the later attempt's checkpoint");
    struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
    char *got = effective(l);
    is(got, "4:1 5:2 6:2-",
       "the run's own value is newer, and what a later attempt superseded is not effective");
    free(got);
    ok(tern_ledger_evaluated_rows(l, &rows, &err) == 0 && rows.n == 4,
       "events of that kind in another form are no evaluations");
    tern_ledger_rows_free(&rows);
    ok(tern_ledger_runs(l, &rows, &err) == 0 && rows.runs[0].last_step == 6,
       "an evaluation is no step of the run");
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);

    w = tern_ledger_spool_open(dir, run, 2, "rank0", &err);
    own_eval(w, 6, 24);
    tern_ledger_spool_close(w, &err);
    l = tern_ledger_open_run(dir, run, &err);
    got = effective(l);
    is(got, "4:1 5:2 6:2", "the run's own value replaces one that was measured beside it before");
    free(got);
    tern_ledger_close(l);
}

static void test_evaluated(void)
{
    struct tern_ledger_attempt a = {.nodes = "n1", .world = 1};
    struct tern_ledger_rows rows = {0};
    char run[TERN_ULID_SIZE];

    tern_ledger_ulid_new(run);
    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, run, 1, "rank0", &err);
    tern_ledger_spool_attempt_begin(w, &a, &err);
    for (int i = 1; i <= 8; i++)
        step(w, i, 1);
    own_eval(w, 4, 20);
    tern_ledger_spool_close(w, &err);
    ok(evaluated(run, 1, 5, 21, true) == 0 && evaluated(run, 1, 8, NAN, true) == 0 &&
           evaluated(run, 1, 4, 20, false) == 0,
       "evaluations beside the run are recorded");
    struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
    char *got = effective(l);
    is(got, "4:1 5:1- 8:1-", "a step that the run evaluated keeps its value, the others get one");
    free(got);
    ok(tern_ledger_evaluated_rows(l, &rows, &err) == 0 && rows.n == 3,
       "three evaluations are read back");
    const struct tern_ledger_evaluated *e = &rows.evaluated[0];
    ok(e->eval.step == 5 && e->eval.nll == 21 && e->eval.tokens == 10 && e->eval.bytes == 40 &&
           e->seq_len == 64 && e->isolate && e->counts && isnan(rows.evaluated[1].eval.nll) &&
           !rows.evaluated[2].counts && rows.evaluated[2].eval.attempt == 1,
       "numbers of an evaluation read back, NaN among them");
    is(e->checkpoint_sha256, "c0", "the weights' digest reads back");
    is(e->set_sha256, "5e", "the set's digest reads back");
    is(e->by, "a test", "what evaluated it reads back");
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);

    test_evaluated_later(run);
}

int main(void)
{
    ledger_begin();
    test_ulid();
    test_rewind();
    test_kinds();
    test_eval();
    test_sql();
    test_find();
    test_paths();
    test_evaluated();
    return ledger_end();
}

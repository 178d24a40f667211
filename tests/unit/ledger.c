/* core/ledger: frames, spools, folds, views. */
#include "tests/unit/tap.h"

#include "core/base/fs.h"
#include "core/ledger/frame.h"
#include "core/ledger/ledger.h"

#include <fcntl.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tern_err err;
static char dir[] = "/tmp/tern-ledger-XXXXXX";
static char id[TERN_ULID_SIZE];

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
       "what is none is refused (U is no digit, 8... has 131 bits)");
}

/* Every flipped bit and every cut of two frames is seen for what it is. */
static void test_frames(void)
{
    struct tern_buf one = {0}, all = {0};
    struct tern_ledger_frame f = {.type = TERN_FRAME_PARAM,
                                  .seq = 1,
                                  .wall_ns = 5,
                                  .payload = (const uint8_t *)"payload",
                                  .len = 7};
    tern_ledger_frame_encode(&one, &f);
    tern_buf_add(&all, one.data, one.len);
    size_t first = one.len;
    f.prev = f.crc;
    f.seq = 2;
    tern_ledger_frame_encode(&one, &f);
    tern_buf_add(&all, one.data, one.len);

    int missed = 0, harmless = 0;
    for (size_t bit = 0; bit < all.len * 8; bit++) {
        all.data[bit / 8] ^= (char)(1 << bit % 8);
        struct tern_ledger_frame_scan s = {.data = (const uint8_t *)all.data, .len = all.len};
        struct tern_ledger_frame g;
        enum tern_ledger_frame_found found;
        int sound = 0;
        bool seen = false;
        while ((found = tern_ledger_frame_next(&s, &g)) != TERN_FRAME_NO_MORE) {
            if (found == TERN_FRAME_OK)
                sound++;
            else if (found == TERN_FRAME_DAMAGE || found == TERN_FRAME_BREAK)
                seen = true;
            else {
                harmless++;
                break;
            }
        }
        missed += !seen || sound != 1;
        all.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    ok(missed == 0 && harmless == 0, "each of %zu flipped bits costs one record and is seen",
       all.len * 8);

    int wrong = 0;
    for (size_t len = 0; len < all.len; len++) {
        struct tern_ledger_frame_scan s = {.data = (const uint8_t *)all.data, .len = len};
        struct tern_ledger_frame g;
        enum tern_ledger_frame_found found;
        while ((found = tern_ledger_frame_next(&s, &g)) == TERN_FRAME_OK)
            ;
        wrong += found != (len == 0 || len == first ? TERN_FRAME_NO_MORE : TERN_FRAME_TORN);
    }
    ok(wrong == 0, "each cut is a torn end, not damage");

    wrong = 0;
    char *zeros = calloc(1, all.len);
    for (size_t len = 0; len < all.len; len++) { /* the rest has not arrived: zeros */
        memcpy(zeros, all.data, len);
        struct tern_ledger_frame_scan s = {.data = (const uint8_t *)zeros, .len = all.len};
        struct tern_ledger_frame g;
        enum tern_ledger_frame_found found;
        while ((found = tern_ledger_frame_next(&s, &g)) == TERN_FRAME_OK)
            ;
        wrong += found != TERN_FRAME_ZEROS;
    }
    /* Cuts inside the last CRC leave some of its bytes: those are damage until the rest is there.
     */
    ok(wrong <= 2 * (TERN_FRAME_TRAILER - 1), "zeros at the end are 'not here yet' (%d doubtful)",
       wrong);
    free(zeros);
    tern_buf_free(&one);
    tern_buf_free(&all);
}

static void step(struct tern_ledger_spool *s, int64_t n, double loss)
{
    struct tern_ledger_value v[] = {{"loss", loss}, {"lr", 1e-4}};

    if (tern_ledger_spool_step(s, n, v, 2, &err) != 0)
        ok(0, "step %lld: %s", (long long)n, err.text);
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
    ok(w != NULL, "open a spool %s", w ? "" : err.text);
    tern_ledger_spool_run(w, &run, &err);
    tern_ledger_spool_attempt_begin(w, &a, &err);
    for (int i = 1; i <= 8; i++) {
        step(w, i, 10 - i);
        if (i == 5)
            tern_ledger_spool_checkpoint(w, &c, &err);
    }
    struct tern_ledger_end e = {"node_fail", 75, 9, "rank 3 on n2 went away"};
    tern_ledger_spool_attempt_end(w, &e, &err);
    ok(tern_ledger_spool_close(w, &err) == 0, "sync and close");
    ok(tern_ledger_fold(dir, id, &err) == 0, "fold");

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
    ok(l && tern_ledger_series(l, "loss", false, &s, &err) == 0, "a view of a live run");
    ok(s.n == 7 && s.step[4] == 5 && s.attempt[4] == 1 && s.step[5] == 6 && s.attempt[5] == 2 &&
           isnan(s.value[5]) && s.value[6] == INFINITY,
       "attempt 2 supersedes steps 6 to 8; NaN and infinity are values");
    tern_ledger_series_free(&s);
    ok(tern_ledger_series(l, "loss", true, &s, &err) == 0 && s.n == 10, "superseded values stay");
    tern_ledger_series_free(&s);
    ok(tern_ledger_series(l, "lss", true, &s, &err) < 0, "an unknown metric");
    ok(tern_ledger_attempts(l, &rows, &err) == 0 && rows.n == 2, "two attempts");
    is(rows.attempts[0].cause, "rank 3 on n2 went away", "with the cause of the first's end");
    ok(rows.attempts[1].outcome == NULL && rows.attempts[1].resumed_step == 5 &&
           rows.attempts[0].last_step == 8,
       "and where the second began");
    tern_ledger_rows_free(&rows);
    ok(tern_ledger_checkpoints(l, &rows, &err) == 0 && rows.n == 1 &&
           rows.checkpoints[0].attempt == 1 && rows.checkpoints[0].bytes == 10,
       "a checkpoint stays its maker's");
    is(rows.checkpoints[0].state, "verified", "while its state is the newest");
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);

    l = tern_ledger_open(dir, &err);
    ok(l && tern_ledger_runs(l, &rows, &err) == 0 && rows.n == 1, "the catalogue, never folded");
    ok(rows.runs[0].last_step == 7 && rows.runs[0].attempts == 2 && rows.runs[0].ckpt_step == 5 &&
           rows.runs[0].has_loss && rows.runs[0].last_loss == INFINITY,
       "is fresh too");
    is(rows.runs[0].state, "running", "and says so");
    tern_ledger_rows_free(&rows);
    char found[TERN_ULID_SIZE];
    ok(tern_ledger_find(l, "cpt", found, &err) == 0 && strcmp(found, id) == 0 &&
           tern_ledger_find(l, NULL, found, &err) == 0 &&
           tern_ledger_find(l, "nobody", found, &err) < 0,
       "by name, newest, none");
    tern_ledger_close(l);
    ok(tern_ledger_spool_close(w, &err) == 0 && tern_ledger_fold(dir, id, &err) == 0 &&
           tern_ledger_fold_catalog(dir, &err) == 0,
       "fold everything");
}

/* ---------------------------------------------------------------- what supersedes what */

enum { TRIES = 4, SERIES = 3, STEPS = 12 };

/* What each attempt recorded; resumed -1: it is not known. */
struct history {
    int attempts, resumed[TRIES];
    bool told, train[TRIES], has[TRIES][SERIES][STEPS];
};

/* The definition (ledger.h), word for word. */
static bool holds(const struct history *h, int a, int m, int step)
{
    for (int b = a + 1; b < h->attempts; b++) {
        int first = 0;
        while (first < STEPS && !h->has[b][m][first])
            first++;
        int behind = h->resumed[b] >= 0 ? h->resumed[b] : first - 1;
        if (h->train[b] && (step > behind || h->has[b][m][step]))
            return false;
    }
    return h->train[a];
}

/* The newest step of a series that an attempt has, or where a later one cut it; -1 for none. */
static int newest(const struct history *h, int a, int m)
{
    int first = 0, last = STEPS - 1;

    while (first < STEPS && !h->has[a][m][first])
        first++;
    while (last >= 0 && !h->has[a][m][last])
        last--;
    for (int b = a + 1; b < h->attempts; b++) {
        int from = 0;
        while (from < STEPS && !h->has[b][m][from])
            from++;
        int behind = h->resumed[b] >= 0 ? h->resumed[b] : from - 1;
        if (h->train[b] && behind < last)
            last = behind;
    }
    return h->train[a] && first <= last ? last : -1;
}

static void write_history(const char *run, const struct history *h, bool fold)
{
    static const char *const names[] = {"loss", "acc", "grad"};

    for (int a = 0; a < h->attempts; a++) {
        struct tern_ledger_spool *w =
            tern_ledger_spool_open(dir, run, (unsigned)a + 1, "task0", &err);
        struct tern_ledger_attempt begin = {.kind = h->train[a] ? "train" : "trial",
                                            .resumed_step = h->told ? -1 : h->resumed[a]};
        char text[16];
        snprintf(text, sizeof text, "%d", h->resumed[a]);
        if (h->told && h->resumed[a] >= 0)
            tern_ledger_spool_param(w, TERN_LEDGER_RESUMED, text, &err);
        tern_ledger_spool_attempt_begin(w, &begin, &err);
        for (int step = 0; step < STEPS; step++) {
            for (int m = 0; m < SERIES; m++)
                if (h->has[a][m][step])
                    tern_ledger_spool_step(w, step, &(struct tern_ledger_value){names[m], a}, 1,
                                           &err);
            if (!h->has[a][0][step])
                continue;
            char *path = tern_strf("/c/%d/%d", a, step);
            tern_ledger_spool_eval(
                w, &(struct tern_ledger_eval){.step = step, .set = "set", .nll = a, .tokens = 1},
                &err);
            tern_ledger_spool_checkpoint(
                w, &(struct tern_ledger_checkpoint){step, path, .state = "foreign"}, &err);
            free(path);
            if (fold)
                tern_ledger_fold(dir, run, &err);
        }
        tern_ledger_spool_close(w, &err);
    }
}

/* What a statement returns, its rows in one text. */
static char *rows_of(struct tern_ledger *l, const char *sql)
{
    struct tern_ledger_table t = {0};
    struct tern_buf b = {0};

    if (tern_ledger_sql(l, sql, 1 << 20, 20, &t, &err) < 0)
        return tern_strdup(err.text);
    tern_buf_puts(&b, "");
    for (size_t i = 0; i < t.n_rows * t.n_columns; i++)
        tern_buf_printf(&b, "%s ", t.cells[i].text);
    tern_ledger_table_free(&t);
    return b.data;
}

static int differ(const char *what, char *got, struct tern_buf *wanted)
{
    int differs = strcmp(got, wanted->data ? wanted->data : "") != 0;

    if (differs)
        printf("# %s: %s\n# wanted %s\n", what, got, wanted->data);
    free(got);
    tern_buf_free(wanted);
    return differs;
}

static int check_history(const char *run, const struct history *h)
{
    struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
    struct tern_ledger_series s = {0};
    struct tern_buf steps = {0}, series = {0}, got = {0}, evals = {0}, checkpoints = {0};
    int last = -1;

    tern_buf_puts(&got, "");
    for (int m = 0; m < SERIES; m++)
        for (int step = 0; step < STEPS; step++)
            for (int a = 0; a < h->attempts; a++) {
                if (!h->has[a][m][step] || !holds(h, a, m, step))
                    continue;
                tern_buf_printf(&steps, "%d %d %d ", m, step, a + 1);
                if (m == 0) {
                    tern_buf_printf(&series, "%d %d ", step, a + 1);
                    tern_buf_printf(&evals, "%d %d ", step, a + 1);
                }
            }
    for (int m = 0; m < SERIES; m++)
        for (int a = 0; a < h->attempts; a++) {
            int reach = newest(h, a, m);
            last = reach > last ? reach : last;
        }
    /* A checkpoint is no value that a later one of the same step replaces: both are there. */
    for (int a = 0; a < h->attempts; a++)
        for (int step = 0; step < STEPS; step++) {
            bool good = h->has[a][0][step] && h->train[a];
            for (int b = a + 1; b < h->attempts && good; b++) {
                int first = 0;
                while (first < STEPS && !h->has[b][0][first])
                    first++;
                good = !h->train[b] || step <= (h->resumed[b] >= 0 ? h->resumed[b] : first - 1);
            }
            if (good)
                tern_buf_printf(&checkpoints, "%d %d ", a + 1, step);
        }
    int wrong = differ(
        "steps",
        rows_of(l, "SELECT CASE name WHEN 'loss' THEN 0 WHEN 'acc' THEN 1 ELSE 2 END, step, attempt"
                   " FROM step ORDER BY 1, 2, 3"),
        &steps);
    if (tern_ledger_series(l, "loss", false, &s, &err) == 0)
        for (size_t i = 0; i < s.n; i++)
            tern_buf_printf(&got, "%.0f %u ", s.step[i], s.attempt[i]);
    wrong += differ("series", got.data, &series);
    tern_ledger_series_free(&s);
    wrong += differ("evals",
                    rows_of(l, "SELECT step, attempt FROM eval_effective ORDER BY step, attempt"),
                    &evals);
    wrong += differ("checkpoints",
                    rows_of(l, "SELECT attempt, step FROM checkpoint_row WHERE effective ORDER BY"
                               " attempt, step"),
                    &checkpoints);
    tern_ledger_close(l);
    struct tern_ledger_rows rows = {0};
    l = tern_ledger_open(dir, &err);
    tern_ledger_runs(l, &rows, &err);
    for (size_t i = 0; i < rows.n; i++)
        if (strcmp(rows.runs[i].id, run) == 0 && rows.runs[i].last_step != last) {
            printf("# last step %d, wanted %d\n", (int)rows.runs[i].last_step, last);
            wrong++;
        }
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
    struct tern_ledger_check c;
    struct tern_buf found = {0};
    wrong += tern_ledger_verify(dir, run, &c, &found, &err) != 0 || c.damaged > 0;
    if (found.data)
        printf("# %s", found.data);
    tern_buf_free(&found);
    return wrong;
}

static void test_supersede(void)
{
    const int tries = tap_long() ? 600 : 60;
    /* A sanity evaluation at step 0 of an attempt that resumed from 5. */
    struct history h = {.attempts = 2, .resumed = {0, 5}, .train = {true, true}};
    char run[TERN_ULID_SIZE];
    int wrong = 0;

    for (int step = 1; step < STEPS; step++)
        h.has[step > 5][0][step] = true;
    h.has[1][1][0] = true;
    for (int known = 0; known < 3; known++) {
        h.resumed[1] = known ? 5 : -1;
        h.told = known == 2;
        tern_ledger_ulid_new(run);
        write_history(run, &h, true);
        wrong += check_history(run, &h);
        struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
        char *got = rows_of(l, "SELECT group_concat(attempt, '') FROM (SELECT attempt FROM step"
                               " WHERE name = 'loss' ORDER BY step)");
        is(got, "11111222222 ", "one early value hides no other, resume %s",
           known == 2 ? "told by the trainer"
           : known    ? "known"
                      : "unknown");
        free(got);
        tern_ledger_close(l);
    }
    srand(7);
    for (int i = 0; i < tries && wrong == 0; i++) {
        h = (struct history){.attempts = 1 + rand() % TRIES, .told = rand() % 2};
        for (int a = 0; a < h.attempts; a++) {
            int from = a ? rand() % STEPS : 0;
            h.train[a] = rand() % 5 > 0;
            h.resumed[a] = rand() % 2 ? from : -1;
            for (int m = 0; m < SERIES; m++)
                for (int step = from + 1; step < STEPS && rand() % 12; step++)
                    h.has[a][m][step] = rand() % 4 > 0;
            for (int m = 0; m < SERIES; m++)
                if (rand() % 3 == 0)
                    h.has[a][m][rand() % STEPS] = true;
        }
        tern_ledger_ulid_new(run);
        write_history(run, &h, rand() % 4 == 0);
        wrong += check_history(run, &h);
        char *path = tern_strf("%s/runs/%s", dir, run);
        tern_fs_remove_tree(path, NULL);
        free(path);
    }
    ok(wrong == 0, "%d random histories: what holds is what the definition says", tries);
}

/* A trial of a run that is at step 7: it counts for nothing, and its rows are there. */
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
       "a trial's records");
    struct tern_ledger *l = tern_ledger_open_run(dir, id, &err);
    ok(l && tern_ledger_series(l, "loss", false, &s, &err) == 0 && s.n == 7,
       "its values are not the run's, and supersede nothing");
    tern_ledger_series_free(&s);
    ok(tern_ledger_series(l, "loss", true, &s, &err) == 0 && s.n == 12, "but can be looked at");
    tern_ledger_series_free(&s);
    ok(tern_ledger_attempts(l, &rows, &err) == 0 && rows.n == 3, "an attempt more");
    is(rows.attempts[2].kind, "trial", "of its kind");
    is(rows.attempts[0].kind, "train", "beside those of the usual one");
    tern_ledger_rows_free(&rows);
    ok(tern_ledger_runs(l, &rows, &err) == 0 && rows.runs[0].last_step == 7, "the run's step");
    tern_ledger_rows_free(&rows);
    ok(tern_ledger_health_rows(l, &rows, &err) == 0 && rows.n == 1 && rows.health[0].value == 3.5 &&
           rows.health[0].seconds == 0.25 && rows.health[0].attempt == 3 && !rows.health[0].text,
       "what a check found");
    is(rows.health[0].verdict, "node_bad", "and its verdict");
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
    ok(tern_ledger_spool_close(w, &err) == 0, "evals");
    struct tern_ledger *l = tern_ledger_open_run(dir, id, &err);
    ok(tern_ledger_evals(l, &rows, &err) == 0 && rows.n == 2 &&
           fabs(rows.evals[0].ppl_token - exp(2)) < 1e-12 &&
           fabs(rows.evals[0].ppl_byte - exp(.5)) < 1e-12 && isnan(rows.evals[1].nll) &&
           isnan(rows.evals[1].ppl_token),
       "perplexity per token and per byte, NaN as NaN");
    tern_ledger_rows_free(&rows);
    ok(tern_ledger_events(l, &rows, &err) == 0 && rows.n == 1, "events");
    is(rows.n ? rows.events[0].text : NULL, ev.text, "with their words");
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
       "SQL");
    ok(t.cells[1].kind == TERN_LEDGER_NULL && t.cells[3].real == INFINITY,
       "NaN is NULL, infinity is itself");
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
        ok(tern_ledger_sql(l, bad[i], 10, 5, &t, &err) < 0, "refused: %s (%s)", bad[i], err.text);
    ok(tern_ledger_sql(l, "SELECT * FROM step_all", 3, 5, &t, &err) == 0 && t.cut && t.n_rows == 3,
       "rows are capped");
    tern_ledger_table_free(&t);
    ok(tern_ledger_sql(l,
                       "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT"
                       " count(*) FROM c",
                       3, 0.1, &t, &err) < 0 &&
           strstr(err.text, "stopped after 0.1 s"),
       "and time");
    tern_ledger_close(l);
}

/* One byte changed in the middle of a spool, its end cut off, a database changed. */
static void test_verify(void)
{
    struct tern_ledger_check c;
    struct tern_buf found = {0};
    char *spool = tern_strf("%s/runs/%s/spool/1/rank0.0.spool", dir, id), *data, *db;
    size_t len, db_len;

    int rc = tern_ledger_verify(dir, id, &c, &found, &err);
    ok(rc == 0 && c.damaged == 0 && c.files == 4 && c.records == 24,
       "all sound: %d files, %d records %s", (int)c.files, (int)c.records,
       found.data ? found.data : "");
    tern_fs_read(spool, 1 << 20, &data, &len, &err);
    data[len / 2] ^= 4;
    tern_fs_replace(spool, data, len, 0644, &err);
    ok(tern_ledger_verify(dir, id, &c, &found, &err) == 0 && c.damaged >= 1, "a flipped bit");
    has(found.data, "lost", "is named with what is lost");
    data[len / 2] ^= 4;
    tern_fs_replace(spool, data, len - 3, 0644, &err);
    tern_buf_clear(&found);
    ok(tern_ledger_verify(dir, id, &c, &found, &err) == 0 && c.damaged == 1, "a cut end");
    has(found.data, "which run.db has read, are gone", "is named");
    tern_fs_replace(spool, data, len, 0644, &err);
    free(data);

    char *path = tern_strf("%s/runs/%s/run.db", dir, id);
    tern_ledger_fold(dir, id, &err);
    tern_fs_read(path, 1 << 24, &db, &db_len, &err);
    /* Texts, and the bits of a learning rate of 1e-4: SQLite itself has no checksums. */
    static const struct {
        const char *bytes;
        size_t n;
    } targets[] = {{"went away", 9}, {"avx512", 6}, {"\x3f\x1a\x36\xe2\xeb\x1c\x43\x2d", 8}};
    int missed = 0;
    for (int i = 0; i < 3; i++) {
        char *at = memmem(db, db_len, targets[i].bytes, targets[i].n);
        missed += at == NULL;
        if (!at)
            continue;
        at[1] ^= 1;
        tern_fs_replace(path, db, db_len, 0644, &err);
        at[1] ^= 1;
        tern_buf_clear(&found);
        if (tern_ledger_verify(dir, id, &c, &found, &err) != 0 || c.damaged == 0) {
            missed++;
            printf("# missed %d\n", i);
        }
    }
    ok(missed == 0, "a changed text or value in run.db is noticed");
    /* Anywhere at all: never a crash. */
    for (size_t at = 16; at < db_len; at += db_len / 60) {
        db[at] ^= 0x55;
        tern_fs_replace(path, db, db_len, 0644, &err);
        db[at] ^= 0x55;
        missed += tern_ledger_verify(dir, id, &c, &found, &err) < 0;
        tern_ledger_close(tern_ledger_open_run(dir, id, &err));
    }
    ok(true, "bytes changed all over run.db: no crash (%d refused)", missed);
    ok(tern_ledger_rebuild(dir, id, &err) == 0 &&
           tern_ledger_verify(dir, id, &c, &found, &err) == 0 && c.damaged == 0,
       "and made again");
    free(db);
    free(path);
    free(spool);
    tern_buf_free(&found);
}

/* A spool as somebody may craft it: every checksum is right, the names are none. */
static void craft(struct tern_buf *file, struct tern_ledger_frame *last, uint16_t type,
                  const struct tern_buf *payload)
{
    struct tern_buf one = {0};
    struct tern_ledger_frame f = {.type = type,
                                  .prev = last->crc,
                                  .seq = last->seq + 1,
                                  .wall_ns = last->wall_ns + 1,
                                  .payload = (const uint8_t *)payload->data,
                                  .len = (uint32_t)payload->len};

    tern_ledger_frame_encode(&one, &f);
    tern_buf_add(file, one.data, one.len);
    *last = f;
    tern_buf_free(&one);
}

static void put_bytes(struct tern_buf *to, const char *s, uint32_t len)
{
    tern_buf_add(to, &len, sizeof len);
    tern_buf_add(to, s, len);
}

static void test_names(void)
{
    static const struct {
        uint16_t type;
        const char *name;
        uint32_t len;
    } bad[] = {{TERN_FRAME_STEP, "a\0BBBBBBBBBBBBBBBBBBBBBBBBBBBBB", 31},
               {TERN_FRAME_STEP, "a\033[31m", 6},
               {TERN_FRAME_STEP, "a\nb", 3},
               {TERN_FRAME_STEP, "a\177", 2},
               {TERN_FRAME_STEP, "", 0},
               {TERN_FRAME_EVAL, "a\0BBBB", 6},
               {TERN_FRAME_EVAL, "a\tb", 3},
               {TERN_FRAME_PARAM, "a\0BBBB", 6},
               {TERN_FRAME_PARAM, "a\rb", 3},
               {TERN_FRAME_EVENT, "a\0BBBB", 6}};
    char other[TERN_ULID_SIZE], *path, *db, *data;
    struct tern_ledger_spool *s =
        tern_ledger_spool_open(dir, tern_ledger_ulid_new(other), 1, "w", &err);
    struct tern_ledger_frame f, last = {0};
    struct tern_buf file = {0}, payload = {0}, found = {0};
    struct tern_ledger_check c;
    size_t len;

    ok(tern_ledger_spool_step(s, 1, (struct tern_ledger_value[]){{"x\033[2J", 1}}, 1, &err) < 0 &&
           tern_ledger_spool_param(s, "x\n", "1", &err) < 0 &&
           tern_ledger_spool_eval(s, &(struct tern_ledger_eval){.set = "x\r"}, &err) < 0,
       "a writer takes no name with a control byte: %s", err.text);
    step(s, 1, 2.0);
    tern_ledger_spool_close(s, &err);
    path = tern_strf("%s/runs/%s/spool/1/w.0.spool", dir, other);
    tern_fs_read(path, 1 << 20, &data, &len, &err);
    struct tern_ledger_frame_scan scan = {.data = (const uint8_t *)data, .len = len};
    while (tern_ledger_frame_next(&scan, &f) == TERN_FRAME_OK)
        last = f;
    tern_buf_add(&file, data, len);
    const size_t n = sizeof bad / sizeof *bad;
    for (size_t i = 0; i < n; i++) {
        const int64_t two[2] = {2, 2};
        const double value = 1.0;
        tern_buf_clear(&payload);
        if (bad[i].type == TERN_FRAME_STEP) { /* behind a good one, which does not count then */
            tern_buf_add(&payload, two, 16);
            put_bytes(&payload, "loss", 4);
            tern_buf_add(&payload, &value, 8);
        } else if (bad[i].type == TERN_FRAME_EVAL) {
            tern_buf_add(&payload, two, 8);
        }
        put_bytes(&payload, bad[i].name, bad[i].len);
        for (int k = 0; k < 3; k++) /* what else the kind has */
            if (bad[i].type == TERN_FRAME_STEP || bad[i].type == TERN_FRAME_EVAL)
                tern_buf_add(&payload, &value, 8);
            else
                put_bytes(&payload, "x", 1);
        craft(&file, &last, bad[i].type, &payload);
    }
    tern_fs_replace(path, file.data, file.len, 0644, &err);
    free(data);
    free(path);
    ok(tern_ledger_fold(dir, other, &err) == 0, "crafted names are folded: %s", err.text);
    path = tern_strf("%s/runs/%s/run.db", dir, other);
    tern_fs_read(path, 1 << 24, &db, &len, &err);
    ok(!memmem(db, len, "BBBB", 4), "nothing behind a NUL is in the database");
    struct tern_ledger *l = tern_ledger_open_run(dir, other, &err);
    struct tern_ledger_table t;
    ok(l &&
           tern_ledger_sql(l,
                           "SELECT (SELECT count(*) FROM metric), (SELECT count(*) FROM point), "
                           "(SELECT count(*) FROM eval) + (SELECT count(*) FROM param) + "
                           "(SELECT count(*) FROM event), (SELECT count(*) FROM damage)",
                           9, 9, &t, &err) == 0 &&
           t.cells[0].integer == 2 && t.cells[1].integer == 2 && t.cells[2].integer == 0 &&
           t.cells[3].integer == (int64_t)n,
       "none of them is taken, nor what stands in one record with it");
    tern_ledger_table_free(&t);
    tern_ledger_close(l);
    ok(tern_ledger_verify(dir, other, &c, &found, &err) == 0 && c.damaged == n,
       "and verify names each (%d): %s", (int)c.damaged, found.data ? found.data : "");
    char *run = tern_strf("%s/runs/%s", dir, other);
    tern_fs_remove_tree(run, NULL);
    free(run);
    free(db);
    free(path);
    tern_buf_free(&file);
    tern_buf_free(&payload);
    tern_buf_free(&found);
}

/* A run may be called what another's id begins with. */
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
       "a run's name goes before the beginning of another's id");
    ok(l && tern_ledger_find(l, first, found, &err) == 0 && strcmp(found, first) == 0,
       "which more of the id finds");
    tern_ledger_close(l);
    for (int i = 0; i < 2; i++) {
        char *run = tern_strf("%s/runs/%s", dir, i ? second : first);
        tern_fs_remove_tree(run, NULL);
        free(run);
    }
}

/* What people ask, as one text; NULL when it cannot be answered. */
static char *answers(const char *run)
{
    static const char *const asked[] = {
        "SELECT * FROM step_all ORDER BY name, attempt, step",
        "SELECT * FROM step ORDER BY name, step",
        "SELECT * FROM run_row",
        "SELECT * FROM attempt_row ORDER BY attempt",
        "SELECT * FROM checkpoint_row ORDER BY path",
        "SELECT * FROM eval_effective ORDER BY set_name, step",
        "SELECT * FROM event ORDER BY writer_id, seq",
        "SELECT * FROM health ORDER BY writer_id, seq",
        "SELECT * FROM param ORDER BY attempt, name",
        "SELECT name FROM metric ORDER BY name",
    };
    struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
    struct tern_buf b = {0};
    bool good = l != NULL;

    for (size_t i = 0; good && i < sizeof asked / sizeof *asked; i++) {
        struct tern_ledger_table t = {0};
        good = tern_ledger_sql(l, asked[i], 1 << 20, 20, &t, &err) == 0;
        for (size_t k = 0; good && k < t.n_rows * t.n_columns; k++)
            tern_buf_printf(&b, "%d %lld %.17g %s\n", (int)t.cells[k].kind,
                            (long long)t.cells[k].integer, t.cells[k].real,
                            t.cells[k].text ? t.cells[k].text : "");
        tern_ledger_table_free(&t);
    }
    tern_ledger_close(l);
    if (good)
        return b.data;
    tern_buf_free(&b);
    return NULL;
}

/* One to three bits anywhere in run.db: what verify passes changes no answer. */
static void test_flips(void)
{
    const int tries = tap_long() ? 2000 : 20;
    struct tern_ledger_check c;
    struct tern_buf found = {0};
    char *path = tern_strf("%s/runs/%s/run.db", dir, id), *db, *right = answers(id);
    int passed = 0, wrong = 0, real = dup(2), null = open("/dev/null", O_WRONLY);
    size_t len;

    tern_fs_read(path, 1 << 24, &db, &len, &err);
    dup2(null, 2); /* it warns of each */
    srand(1);
    for (int i = 0; i < tries; i++) {
        size_t bit[3];
        int n = i % 4 ? 1 : 3;
        for (int k = 0; k < n; k++) {
            bit[k] = ((size_t)rand() << 16 ^ (size_t)rand()) % (len * 8);
            db[bit[k] / 8] ^= (char)(1 << bit[k] % 8);
        }
        tern_fs_replace(path, db, len, 0644, &err);
        tern_buf_clear(&found);
        alarm(60); /* nothing takes that long, but a reader that hangs */
        bool good = tern_ledger_verify(dir, id, &c, &found, &err) == 0 && c.damaged == 0;
        char *now = answers(id);
        passed += good;
        if (good && (!now || strcmp(now, right) != 0)) {
            wrong++;
            printf("# try %d, bit %zu passes\n", i, bit[0]);
        }
        free(now);
        for (int k = 0; k < n; k++)
            db[bit[k] / 8] ^= (char)(1 << bit[k] % 8);
    }
    alarm(0);
    dup2(real, 2);
    close(real);
    close(null);
    tern_fs_replace(path, db, len, 0644, &err);
    ok(right && wrong == 0, "bits flipped in run.db %d times: the %d that pass answer as before",
       tries, passed);
    free(right);
    free(db);
    free(path);
    tern_buf_free(&found);
}

/* A file system that is full: nothing stops, the loss is counted and told, and it ends. */
static void test_full(void)
{
    char run[TERN_ULID_SIZE];
    struct rlimit old, small = {4096, RLIM_INFINITY};
    struct tern_ledger_rows rows = {0};
    struct tern_ledger_series s = {0};
    int lost = 0, quiet = 0, written = 0;

    tern_ledger_ulid_new(run);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, run, 1, "rank0", &err);
    for (int i = 1; i <= 100; i++) {
        if (i == 20)
            setrlimit(RLIMIT_FSIZE, &small);
        if (i == 90)
            setrlimit(RLIMIT_FSIZE, &old);
        struct tern_ledger_value v = {"loss", i};
        int rc = tern_ledger_spool_step(w, i, &v, 1, &err);
        written += rc == 0;
        lost += rc < 0;
        quiet += rc > 0;
    }
    ok(lost == 1 && quiet > 10 && tern_ledger_spool_dropped(w) == 0,
       "a full disk: told once, %d more wait quietly, %d written", quiet, written);
    ok(tern_ledger_spool_close(w, &err) == 0, "close");
    struct tern_ledger_check c;
    struct tern_buf found = {0};
    ok(tern_ledger_verify(dir, run, &c, &found, &err) == 0 && c.damaged == 0,
       "parts of records were taken back %s", found.data ? found.data : "");
    struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
    bool right = l && tern_ledger_series(l, "loss", false, &s, &err) == 0 && s.n == 100;
    for (size_t i = 0; right && i < s.n; i++)
        right = s.value[i] == (double)(i + 1);
    ok(right, "all that waited is there");
    tern_ledger_series_free(&s);
    ok(tern_ledger_events(l, &rows, &err) == 0 && rows.n == 0, "nothing was lost");
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);

    /* More than memory takes; and it stays full to the end. */
    static char name[200];
    memset(name, 'm', sizeof name - 1);
    struct tern_ledger_value many[100];
    for (int i = 0; i < 100; i++)
        many[i] = (struct tern_ledger_value){name, i};
    for (int end = 0; end < 2; end++) {
        tern_ledger_ulid_new(run);
        w = tern_ledger_spool_open(dir, run, 1, "rank0", &err);
        setrlimit(RLIMIT_FSIZE, &small);
        for (int i = 1; i <= 400; i++)
            tern_ledger_spool_step(w, i, many, 100, &err);
        uint64_t dropped = tern_ledger_spool_dropped(w);
        if (!end)
            setrlimit(RLIMIT_FSIZE, &old);
        int rc = tern_ledger_spool_close(w, &err);
        setrlimit(RLIMIT_FSIZE, &old);
        if (end) {
            ok(rc < 0 && strstr(err.text, "400 records lost (steps 1 to 400): File too large"),
               "what waits at the end is lost, which is told: %s", err.text);
            continue;
        }
        ok(rc == 0 && dropped > 100 && dropped < 300, "%d of 400 had no room to wait",
           (int)dropped);
        l = tern_ledger_open_run(dir, run, &err);
        char *want = tern_strf("%d records lost (steps %d to 400): File too large", (int)dropped,
                               401 - (int)dropped);
        ok(tern_ledger_events(l, &rows, &err) == 0 && rows.n == 1, "one gap");
        is(rows.n ? rows.events[0].text : NULL, want, "which steps");
        free(want);
        tern_ledger_rows_free(&rows);
        ok(tern_ledger_runs(l, &rows, &err) == 0 && rows.runs[0].lost == (int64_t)dropped,
           "the run says how many");
        tern_ledger_rows_free(&rows);
        tern_ledger_close(l);
        tern_buf_clear(&found);
        ok(tern_ledger_verify(dir, run, &c, &found, &err) == 0 && c.damaged == 0 && c.lost == 1 &&
               found.data && strstr(found.data, "records lost"),
           "verify, too");
    }
    tern_buf_free(&found);
}

/* The folder goes away, or becomes another's, while somebody writes. */
static void test_moved(void)
{
    for (int how = 0; how < 3; how++) {
        char run[TERN_ULID_SIZE], *away = tern_strf("%s-away", dir);
        struct tern_ledger_series s = {0};
        tern_ledger_ulid_new(run);
        struct tern_ledger_spool *w = tern_ledger_spool_open(dir, run, 1, "rank0", &err);
        for (int i = 1; i <= 30; i++) {
            if (i == 10) {
                char *folder = how == 0 ? tern_strf("%s/runs/%s", dir, run) : tern_strdup(dir);
                ok((how == 0 ? tern_fs_remove_tree(folder, NULL) : rename(folder, away)) == 0,
                   "the run's folder is gone");
                if (how == 2) { /* and another ledger in its place */
                    char *other = tern_strf("%s/runs", dir);
                    tern_fs_mkdirs(other, 0777, NULL);
                    free(other);
                }
                free(folder);
            }
            if (i == 12)
                usleep(1100000); /* it is looked for once a second */
            step(w, i, i);
        }
        ok(tern_ledger_spool_close(w, &err) == 0, "close");
        struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
        if (l)
            tern_ledger_series(l, "loss", false, &s, &err);
        ok(s.n == 30, "all is where the ledger is looked for (%d)", (int)s.n);
        tern_ledger_series_free(&s);
        tern_ledger_close(l);
        if (how) {
            tern_fs_remove_tree(dir, NULL);
            ok(rename(away, dir) == 0, "back");
        }
        free(away);
    }
}

static void test_paths(void)
{
    char run[TERN_ULID_SIZE], *spool = tern_ledger_spool_dir("/x/led ger", id, 12), *ledger;
    unsigned n;

    ok(tern_ledger_spool_dir_parse(spool, &ledger, run, &n, &err) == 0 && n == 12 &&
           strcmp(run, id) == 0,
       "a spool folder's path");
    is(ledger, "/x/led ger", "there and back");
    free(ledger);
    free(spool);
    ok(tern_ledger_spool_dir_parse("/tmp", &ledger, run, &n, &err) < 0, "and no other");
    ok(tern_ledger_spool_open(dir, id, 1, "../evil", &err) == NULL &&
           tern_ledger_spool_open(dir, "no", 1, "w", &err) == NULL &&
           tern_ledger_spool_open(dir, id, 0, "w", &err) == NULL,
       "names that are none are refused");
    ok(tern_ledger_spool_step(NULL, 1, (struct tern_ledger_value[]){{"x", 1}}, 1, &err) == 0 &&
           tern_ledger_spool_close(NULL, &err) == 0,
       "no spool, no harm");
    ok(tern_ledger_open("/nowhere", &err) == NULL && strstr(err.text, "no such ledger"),
       "no ledger: %s", err.text);
}

int main(void)
{
    if (!mkdtemp(dir))
        abort();
    tern_ledger_ulid_new(id);
    test_ulid();
    test_frames();
    test_rewind();
    test_kinds();
    test_eval();
    test_sql();
    test_verify();
    test_names();
    test_find();
    test_flips();
    test_full();
    test_moved();
    test_supersede();
    test_paths();
    tern_fs_remove_tree(dir, NULL);
    return tap_done();
}

/* core/ledger: which values of which attempt are effective. */
#include "tests/unit/ledger.h"

enum { TRIES = 4, SERIES = 3, STEPS = 12 };

/* What each attempt recorded; resumed -1: it is not known. */
struct history {
    int attempts, resumed[TRIES];
    bool reported, train[TRIES], has[TRIES][SERIES][STEPS];
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
                                            .resumed_step = h->reported ? -1 : h->resumed[a]};
        char text[16];
        snprintf(text, sizeof text, "%d", h->resumed[a]);
        if (h->reported && h->resumed[a] >= 0)
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

/* The checkpoints that count, as "attempt step " each. */
static void expected_checkpoints(const struct history *h, struct tern_buf *to)
{
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
                tern_buf_printf(to, "%d %d ", a + 1, step);
        }
}

/* What run_row and tern ledger verify say of `run`: the number of differences. */
static int check_end(const char *run, int last)
{
    struct tern_ledger_rows rows = {0};
    struct tern_ledger *l = tern_ledger_open(dir, &err);
    int wrong = 0;

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
    expected_checkpoints(h, &checkpoints);
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
    return wrong + check_end(run, last);
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
        h.reported = known == 2;
        tern_ledger_ulid_new(run);
        write_history(run, &h, true);
        wrong += check_history(run, &h);
        struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
        char *got = rows_of(l, "SELECT group_concat(attempt, '') FROM (SELECT attempt FROM step"
                               " WHERE name = 'loss' ORDER BY step)");
        is(got, "11111222222 ", "one early value hides no other (resume %s)",
           known == 2 ? "reported by the trainer"
           : known    ? "known"
                      : "unknown");
        free(got);
        tern_ledger_close(l);
    }
    srand(7);
    for (int i = 0; i < tries && wrong == 0; i++) {
        h = (struct history){.attempts = 1 + rand() % TRIES, .reported = rand() % 2};
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
    ok(wrong == 0, "effective values of %d random histories are those of the definition", tries);
}

int main(void)
{
    ledger_begin();
    test_supersede();
    return ledger_end();
}

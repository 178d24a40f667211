/* core/tensorboard: event files say what the ledger says, whenever they are written. */
#include "tests/unit/ledger.h"

#include "core/base/str.h"
#include "core/intake/tensorboard.h"
#include "core/tensorboard/tensorboard.h"

#include <dirent.h>
#include <sys/file.h>
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

static char *board, *folder; /* DIR, and the run's folder in it */

/* ---- reading ---- */

static void see(void *self, const struct tern_intake_tb_value *v)
{
    struct tern_buf *b = self;

    if (v->restart)
        tern_buf_printf(b, "from %lld|", (long long)v->step);
    else
        tern_buf_printf(b, "%lld %s %g|", (long long)v->step, v->tag, v->value);
}

/* The n-th event file of the folder by name (from 0); NULL: there are fewer. */
static char *nth(const char *in, int n)
{
    struct dirent **list;
    int count = scandir(in, &list, NULL, alphasort), seen = 0;
    char *path = NULL;

    for (int i = 0; i < count; i++) {
        if (strncmp(list[i]->d_name, "events.out.tfevents.", 20) == 0 && seen++ == n)
            path = tern_fs_join(in, list[i]->d_name);
        free(list[i]);
    }
    if (count >= 0)
        free(list);
    return path;
}

/* The values and restarts of a file, in words. */
static const char *text_of(const char *in, int n)
{
    static struct tern_buf b;
    char *path = nth(in, n), *data = NULL;
    size_t len = 0, used = 0;
    uint64_t bad = 0;

    tern_buf_clear(&b);
    tern_buf_puts(&b, "");
    if (path && tern_fs_read(path, 1 << 20, &data, &len, NULL) == 0 &&
        (tern_intake_tb_parse(data, len, see, &b, &used, &bad) < 0 || used != len || bad))
        tern_buf_printf(&b, "(%zu of %zu bytes, %llu bad)", used, len, (unsigned long long)bad);
    free(path);
    free(data);
    return b.len ? b.data : "";
}

static bool update(void)
{
    struct tern_ledger *l = tern_ledger_open_run(dir, id, &err);
    bool good = l && tern_tensorboard_update(l, board, &err) == 0;

    if (!good)
        printf("# %s\n", err.text);
    tern_ledger_close(l);
    return good;
}

/* ---- tests ---- */

static const char first[] = "1 loss 9|1 lr 0.0001|2 loss nan|2 lr 0.0001|2 held_out/pm/perplexity_"
                            "token 2.71828|2 held_out/pm/perplexity_byte 1.64872|";

static struct tern_ledger_spool *test_live(void)
{
    struct tern_ledger_run run = {.name = "../a run", .user = "me", .recipe = "version: 1\n"};
    struct tern_ledger_attempt a = {.host = "n1", .pid = 77};
    struct tern_ledger_eval e = {.step = 2, .set = "pm", .nll = 4, .tokens = 4, .bytes = 8};
    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, id, 1, "rank0", &err);

    tern_ledger_spool_run(w, &run, &err);
    tern_ledger_spool_attempt_begin(w, &a, &err);
    ok(update(), "a run without values is written");
    char *name = tern_strf("%s/.._a_run-%s", board, id + strlen(id) - 6);
    name[strlen(board) + 1] = '_';
    folder = name;
    ok(tern_fs_exists(folder) && !nth(folder, 0),
       "the folder has a plain name, and an attempt without values no file");
    step(w, 1, 9);
    ok(update(), "a run with a value is written");
    is(text_of(folder, 0), "1 loss 9|1 lr 0.0001|", "the first step's values are there");
    step(w, 2, NAN);
    tern_ledger_spool_eval(w, &e, &err);
    ok(update() && update(), "new values are written, and nothing twice");
    is(text_of(folder, 0), first, "later values stand behind them, a held-out set's too");
    return w;
}

static void test_restart(struct tern_ledger_spool *w)
{
    struct tern_ledger_attempt trial = {.kind = "trial"}, b = {.resumed_step = 1, .host = "n2"};

    tern_ledger_spool_close(w, &err);
    w = tern_ledger_spool_open(dir, id, 2, "task0", &err);
    tern_ledger_spool_attempt_begin(w, &trial, &err);
    step(w, 5, 1);
    tern_ledger_spool_close(w, &err);
    w = tern_ledger_spool_open(dir, id, 3, "rank0", &err);
    tern_ledger_spool_attempt_begin(w, &b, &err);
    step(w, 2, 4);
    tern_ledger_spool_close(w, &err);
    ok(update(), "a second attempt is written");
    is(text_of(folder, 0), first, "the first attempt's file stays as it was");
    is(text_of(folder, 1), "from 2|2 loss 4|2 lr 0.0001|",
       "the second attempt's file begins behind the step that it resumed from");
    ok(!nth(folder, 2), "values of a trial are in no file");
}

static void test_export(void)
{
    char *to = tern_fs_join(dir, "out"), *made = NULL;
    struct tern_ledger *l = tern_ledger_open_run(dir, id, &err);
    uint64_t n = 0;

    ok(tern_tensorboard_export(l, to, &made, &n, &err) == 0 && n == 8, "a run is exported");
    if (!made)
        return;
    for (int i = 0; i < 2; i++) {
        char *live = tern_strdup(text_of(folder, i));
        ok(strlen(live) > 20, "file %d has values", i);
        /* Metric by metric: only the order is another one. */
        ok(strlen(text_of(made, i)) == strlen(live),
           "an export of file %d has what was written live", i);
        free(live);
    }
    free(made);
    ok(tern_tensorboard_export(l, to, &made, &n, &err) < 0 && err.code == TERN_USAGE,
       "an export does not write over another");
    tern_ledger_close(l);
    free(to);
}

/* A process was killed between writing values and noting them, the machine lost power, a file was
 * damaged by another program: the next update mends it. */
static void test_killed(void)
{
    char *path = nth(folder, 0), *position = tern_fs_join(folder, ".tern-position"), *data;
    size_t len;
    struct tern_ledger_value v = {"late", 3};

    tern_fs_read(path, 1 << 20, &data, &len, NULL);
    int fd = open(path, O_WRONLY | O_APPEND);
    ok(write(fd, data, 30) == 30 && close(fd) == 0 && update(),
       "a file with a torn tail is mended");
    is(text_of(folder, 0), first, "the torn tail is gone");
    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, id, 1, "task0", &err);
    tern_ledger_spool_step(w, 3, &v, 1, &err);
    tern_ledger_spool_close(w, &err);
    ok(update(), "a value comes late");
    char *with_late = tern_strf("%s3 late 3|", first);
    is(text_of(folder, 0), with_late, "the late value stands behind the others");
    ok(truncate(path, 100) == 0 && update(), "a file that lost its end is mended");
    ok(strlen(text_of(folder, 0)) == strlen(with_late), "a mended file has all its values again");
    tern_fs_replace(position, "[", 1, 0644, NULL);
    ok(update() && strlen(text_of(folder, 0)) == strlen(with_late),
       "without a position the files are written from the start");
    int lock = open(folder, O_RDONLY | O_DIRECTORY);
    ok(flock(lock, LOCK_EX) == 0 && truncate(path, 100) == 0 && update() &&
           strlen(text_of(folder, 0)) < strlen(with_late),
       "a run that another process writes is left to it");
    close(lock);
    free(with_late);
    free(data);
    free(path);
    free(position);
}

/* Values of earlier steps than the last one, as evaluations of older checkpoints are; and a run
 * that is called otherwise now. */
static void test_late(void)
{
    struct tern_ledger_run run = {.name = "second", .user = "me", .recipe = "version: 1\n"};
    struct tern_ledger_attempt a = {.host = "n1", .pid = 5};
    struct tern_ledger_eval e = {.step = 8, .set = "pm", .nll = 4, .tokens = 4};

    tern_ledger_ulid_new(id);
    struct tern_ledger_spool *w = tern_ledger_spool_open(dir, id, 1, "rank0", &err);
    tern_ledger_spool_run(w, &run, &err);
    tern_ledger_spool_attempt_begin(w, &a, &err);
    step(w, 2, 9);
    step(w, 4, 8);
    tern_ledger_spool_eval(w, &e, &err);
    ok(update(), "a run with gaps is written");
    free(folder);
    folder = tern_strf("%s/second-%s", board, id + strlen(id) - 6);
    run.name = "renamed";
    tern_ledger_spool_run(w, &run, &err);
    step(w, 3, 7);
    step(w, 5, 6);
    e.step = 6;
    tern_ledger_spool_eval(w, &e, &err);
    tern_ledger_spool_close(w, &err);
    ok(update() && update(), "values between them come late, and the run has another name");
    is(text_of(folder, 0),
       "2 loss 9|4 loss 8|2 lr 0.0001|4 lr 0.0001|8 held_out/pm/perplexity_token 2.71828|3 loss "
       "7|5 "
       "loss 6|3 lr 0.0001|5 lr 0.0001|6 held_out/pm/perplexity_token 2.71828|",
       "late values stand in the file, each once, under the name that the run began with");
}

int main(void)
{
    ledger_begin();
    board = tern_fs_join(dir, "board");
    test_restart(test_live());
    test_export();
    test_killed();
    test_late();
    free(folder);
    free(board);
    return ledger_end();
}

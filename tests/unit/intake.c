/* core/intake: values in the output of ranks. */
#include "tests/unit/tap.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/intake/intake.h"
#include "core/intake/metric.h"
#include "core/ledger/ledger.h"
#include "core/recipe/recipe.h"

#include <inttypes.h>
#include <unistd.h>

static char work[] = "/tmp/tern-unit-intake-XXXXXX";
static const int64_t second = 1000000000;
#define PIECES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ------------------------------------------------------------------ values */

static const char *words(const char *line)
{
    static char out[300];
    static struct tern_intake_metric m;
    struct tern_err err = {0};
    char *copy = tern_strdup(line);
    int n = 0;

    tern_intake_metric_clear(&m);
    if (tern_intake_metric_parse_line(&m, copy, &err) < 0 ||
        tern_intake_metric_check(&m, &err) < 0) {
        snprintf(out, sizeof out, "%.200s", err.text);
    } else {
        n = snprintf(out, sizeof out, "%" PRId64, m.step);
        for (size_t i = 0; i < m.n; i++)
            n += snprintf(out + n, sizeof out - (size_t)n, " %s=%g", m.values[i].name,
                          m.values[i].value);
        if (m.checkpoint)
            snprintf(out + n, sizeof out - (size_t)n, " at %s", m.checkpoint);
        if (m.resumed >= 0)
            snprintf(out + n, sizeof out - (size_t)n, " from %" PRId64, m.resumed);
    }
    free(copy);
    return out;
}

static void grammar(void)
{
    is(words("step=7 loss=2.31 lr=1e-4\n"), "7 loss=2.31 lr=0.0001", "a step and its values");
    is(words(" loss=nan\tstep=0 a=-inf b=Infinity "), "0 loss=nan a=-inf b=inf",
       "values that are none");
    is(words("checkpoint=out/a step=3"), "3 at out/a", "a line with a checkpoint is read");
    is(words("resumed_step=20"), "-1 from 20", "resumed_step is taken");
    has(words("resumed_step=x"), "a step is a whole number", "which is a step");
    has(words("loss=2"), "which step?", "a value without its step");
    has(words("step=3"), "nothing to record", "a step alone");
    has(words("step=-1 a=1"), "a step is a whole number", "a step below 0");
    has(words("step=1 a=0x10"), "is no number", "hex is no number");
    has(words("step=1 a="), "is no number", "nothing is no number");
    has(words("step=1 =1"), "wanted NAME=VALUE", "a value without a name is refused");
    has(words("step=1 loss"), "wanted NAME=VALUE", "a name without a value is refused");
}

/* The ledger's values of a task that printed `lines`, as "step name=value ..." a row. */
static char *recorded(const char *config, int64_t rank, const char *const *printed)
{
    static int runs;
    struct tern_ledger_rows names = {0};
    struct tern_buf b = {0};
    struct tern_err err = {0};
    char id[TERN_ULID_SIZE];
    char *ledger = tern_strf("%s/l%d", work, runs++);
    int64_t now = 1000 * second;

    char *spool = tern_ledger_spool_dir(ledger, tern_ledger_ulid_new(id), 1);
    struct tern_intake *i = tern_intake_open(spool, rank, config, now, &err);
    if (!i) {
        tern_buf_puts(&b, err.text);
        goto out;
    }
    for (; *printed; printed++) {
        char *copy = tern_strdup(*printed);
        if (copy[0] == '>')
            tern_intake_take_metrics(i, copy + 1, strlen(copy + 1));
        else if (strcmp(copy, "gap") == 0)
            tern_intake_note_gap(i);
        else if (strcmp(copy, "pause") == 0) /* ten seconds */
            for (int k = 0; k < 40; k++)
                tern_intake_tick(i, now += second / 4, false);
        else if (copy[0] == '~') /* the line pauses here */
            tern_intake_take_printed(i, copy + 1, strlen(copy + 1), false);
        else
            tern_intake_take_printed(i, copy, strlen(copy), true);
        free(copy);
    }
    tern_intake_tick(i, now, true);
    tern_intake_close(i);
    struct tern_ledger *l = tern_ledger_open_run(ledger, id, &err);
    if (!l || tern_ledger_metrics(l, &names, &err) < 0)
        goto out;
    for (size_t n = 0; n < names.n; n++) {
        struct tern_ledger_series s = {0};
        tern_ledger_series(l, names.names[n], false, &s, &err);
        tern_buf_printf(&b, "%s", names.names[n]);
        for (size_t k = 0; k < s.n; k++)
            tern_buf_printf(&b, " %g:%g", s.step[k], s.value[k]);
        tern_buf_puts(&b, "\n");
        tern_ledger_series_free(&s);
    }
    tern_ledger_rows_free(&names);
    tern_ledger_close(l);
out:
    free(spool);
    free(ledger);
    return b.data ? b.data : tern_strdup("");
}

static void values(const char *what, const char *config, int64_t rank, const char *const *printed,
                   const char *want)
{
    char *got = recorded(config, rank, printed);

    is(got, want, "%s", what);
    free(got);
}

/* ------------------------------------------------------------------ printed lines */

/* Lines as the trainers print them; core/intake/patterns.c has the sources. */
static void printed_by_nxd(void)
{
    values("NxD, tensor and data parallel", "known\tnxd\n", 5,
           PIECES("LOG Sat Nov 21 08:31:07 2026 - (0, 7) step_loss : 2.3102 learning_rate : "
                  "1.50e-04 throughput : 12.34 seq/s grad-norm : 0.75",
                  "LOG Sat Nov 21 08:31:09 2026 - (1, 8) step_loss : nan learning_rate : "
                  "1.50e-04 throughput : 12.50 seq/s ",
                  "something else with step_loss in it"),
           "epoch 7:0 8:1\ngrad_norm 7:0.75\nloss 7:2.3102 8:nan\nlr 7:0.00015 8:0.00015\n"
           "throughput 7:12.34 8:12.5\n");
    values("NxD, pipeline parallel", "known\tnxd\n", 224,
           PIECES("step 0 step_time 11.532891750335693s throughput 18.02 seq/s loss "
                  "10.375 grad norm 6.21875",
                  "step 1 step_time 1.5s throughput 20 seq/s loss 10.25 grad norm None"),
           "grad_norm 0:6.21875\nloss 0:10.375 1:10.25\nstep_seconds 0:11.5329 1:1.5\n"
           "throughput 0:18.02 1:20\n");
    values("NxD by Lightning", "known\tlightning\n", 0,
           PIECES("step 12 loss is 3.5, lr is 0.0003, throughput 7.5 seq/s,  input_ids 29870654, "
                  "norm tensor([1.25], device='xla:0'), global rank 0"),
           "grad_norm 12:1.25\nloss 12:3.5\nlr 12:0.0003\nthroughput 12:7.5\n");
}

static void printed_by_hugging_face(void)
{
    values("Hugging Face with a bar", "known\thf\n", 0,
           PIECES("Map: 100%|##########| 1000/1000 [00:00<00:00, 9000.00 examples/s]",
                  "  0%|          | 0/500 [00:00<?, ?it/s]",
                  "  1%|#         | 8/500 [00:09<09:01,  1.10s/it]",
                  "                                                    ",
                  "{'loss': 2.5, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.02}",
                  "  2%|#         | 10/500 [00:11<09:01,  1.10s/it]",
                  " 50%|#####     | 5/10 [00:01<00:01,  4.00it/s]\033[A",
                  "  2%|#         | 11/500 [00:12<09:01,  1.10s/it]", "        ",
                  "{'loss': '2.25', 'grad_norm': 'nan', 'learning_rate': '9e-06', 'epoch': '0.04'}",
                  " 60%|######    | 6/10 [00:01<00:01,  4.00it/s]",
                  "  4%|#         | 20/500 [00:22<08:50,  1.10s/it]"),
           "epoch 10:0.02 20:0.04\ngrad_norm 10:0.5 20:nan\nlearning_rate 10:1e-05 20:9e-06\n"
           "loss 10:2.5 20:2.25\n");
    values("Hugging Face after other bars", "known\thf\n", 0,
           PIECES("100%|##########| 8/8 [00:01<00:00,  8.00it/s]",
                  "{'learning_rate': 1e-05, 'steps': 500}", "   ",
                  "  0%|          | 0/500 [00:00<?, ?it/s]", "   ", "{'loss': 2.5, 'epoch': 0.02}",
                  "  2%|#         | 10/500 [00:11<09:01,  1.10s/it]", "   ",
                  "{'loss': 2.25, 'epoch': 1}",
                  "100%|##########| 500/500 [09:00<00:00,  1.10s/it]"),
           "epoch 10:0.02 500:1\nloss 10:2.5 500:2.25\n");
    values("a delayed reader gets dicts and bars apart", "known\thf\n", 0,
           PIECES("  0%|          | 0/500 [00:00<?, ?it/s]", "{'loss': 2.5, 'epoch': '0.02'}",
                  "{'eval_loss': 2, 'epoch': '0.02'}", "{'loss': 2.25, 'epoch': '0.04'}",
                  "  2%|#         | 9/500 [00:10<09:01,  1.10s/it]", "   ",
                  "  2%|#         | 10/500 [00:11<09:01,  1.10s/it]", "   ",
                  "  2%|#         | 10/500 [00:11<09:01,  1.10s/it]",
                  "  4%|#         | 19/500 [00:22<09:01,  1.10s/it]", "   ",
                  "  4%|#         | 20/500 [00:22<09:01,  1.10s/it]"),
           "epoch 10:0.02 20:0.04\neval_loss 10:2\nloss 10:2.5 20:2.25\n");
    values(
        "a dict that a callback prints once more is of the step before", "known\thf\n", 0,
        PIECES("  0%|          | 0/500 [00:00<?, ?it/s]", "   ", "{'loss': '2.5', 'epoch': '0.02'}",
               "  2%|#         | 10/500 [00:11<09:01,  1.10s/it]",
               "{'loss': 2.50001, 'epoch': 0.0200001}", "   ", "{'loss': '2.25', 'epoch': '0.04'}",
               "  4%|#         | 20/500 [00:22<09:01,  1.10s/it]"),
        "epoch 10:0.02 20:0.04\nloss 10:2.5 20:2.25\n");
    values("Hugging Face at the start, where it may have resumed", "known\thf\n", 0,
           PIECES("  0%|          | 0/500 [00:00<?, ?it/s]", "   ",
                  "{'eval_loss': 2.5, 'epoch': 0}", "  0%|          | 0/500 [00:00<?, ?it/s]"),
           "");
    values("Hugging Face without a bar", "known\thf\n", 0,
           PIECES("{'loss': 2.5, 'epoch': 0.02}", "{'loss': 2.25, 'epoch': 0.04}",
                  "{'key': 'no number'}"),
           "");
}

/* Where stdout goes through a buffer or another program, dicts come after their redraws. */
static void late_dicts(void)
{
    values("a dict later than its redraw comes to no step, and no other after it", "known\thf\n", 0,
           PIECES("  0%|          | 0/500 [00:00<?, ?it/s]", "   ", "{'loss': 2.5, 'epoch': 0.02}",
                  "  2%|#         | 10/500 [00:11<09:01,  1.10s/it]", "   ",
                  "  4%|#         | 20/500 [00:22<09:01,  1.10s/it]",
                  "{'loss': 2.25, 'epoch': 0.04}", "   ",
                  "  6%|#         | 30/500 [00:33<09:01,  1.10s/it]",
                  "{'loss': 2.125, 'epoch': 0.06}", "   ", "{'loss': 2, 'epoch': 0.08}",
                  "  8%|#         | 40/500 [00:44<09:01,  1.10s/it]"),
           "epoch 10:0.02\nloss 10:2.5\n");
    values("stdout and stderr in one stream", "known\thf\n", 0,
           PIECES("  0%|          | 0/500 [00:00<?, ?it/s]", "   ", "{'loss': 2.5, 'epoch': 0.02}",
                  "  2%|#         | 10/500 [00:11<09:01,  1.10s/it]",
                  "  0%|          | 0/3 [00:00<?, ?it/s]\033[A", "    ", "    ",
                  "\033[A{'eval_loss': 2, 'epoch': 0.02}",
                  "  2%|#         | 10/500 [00:11<09:01,  1.10s/it]",
                  "100%|##########| 3/3 [00:00<00:00, 9.00it/s]\033[A", "   \033[A", "   ",
                  "{'loss': 2.25, 'epoch': 0.04}",
                  "  4%|#         | 20/500 [00:22<09:01,  1.10s/it]"),
           "epoch 10:0.02 20:0.04\neval_loss 10:2\nloss 10:2.5 20:2.25\n");
    values("dicts that a buffer held back come to no step", "known\thf\n", 0,
           PIECES("  0%|          | 0/500 [00:00<?, ?it/s]", "   ",
                  "  2%|#         | 10/500 [00:11<09:01,  1.10s/it]", "   ",
                  "  4%|#         | 20/500 [00:22<09:01,  1.10s/it]",
                  "{'loss': 2.5, 'epoch': 0.02}", "{'loss': 2.25, 'epoch': 0.04}", "   ",
                  "{'loss': 2.125, 'epoch': 0.06}", "  6%|#         | 30/500 [00:33<, 1.10s/it]"),
           "");
    values("steps whose printed epochs are equal stay apart", "known\thf\n", 0,
           PIECES("  0%|          | 0/900000 [00:00<?, ?it/s]", "{'loss': '9', 'epoch': '12.34'}",
                  "{'loss': '8', 'epoch': '12.34'}", "{'eval_loss': '7', 'epoch': '12.34'}", "   ",
                  "  0%|          | 10/900000 [00:11<, 1.10s/it]", "   ",
                  "  0%|          | 20/900000 [00:11<, 1.10s/it]", "   ",
                  "  0%|          | 20/900000 [00:11<, 1.10s/it]", "   ",
                  "{'loss': '6', 'epoch': '12.34'}",
                  "  0%|          | 30/900000 [00:11<, 1.10s/it]"),
           "epoch 10:12.34 20:12.34 30:12.34\neval_loss 20:7\nloss 10:9 20:8 30:6\n");
}

/* Dicts that other code than the bar's prints, and output that is lost. */
static void other_dicts(void)
{
    values("a dict that gets no redraw leaves no step to those beside it", "known\thf\n", 0,
           PIECES("  0%|          | 0/500 [00:00<?, ?it/s]", "{'mine': 1, 'epoch': 0.01}",
                  "{'loss': 2.5, 'epoch': 0.02}", "   ",
                  "  2%|#         | 10/500 [00:11<09:01,  1.10s/it]", "pause", "   ",
                  "{'loss': 2.25, 'epoch': 0.04}",
                  "  4%|#         | 20/500 [00:22<09:01,  1.10s/it]"),
           "");
    values("a dict that gets no redraw for seconds is left out alone", "known\thf\n", 0,
           PIECES("  0%|          | 0/500 [00:00<?, ?it/s]", "{'mine': 1, 'epoch': 0.01}", "pause",
                  "   ", "{'loss': 2.5, 'epoch': 0.02}",
                  "  2%|#         | 10/500 [00:11<09:01,  1.10s/it]"),
           "epoch 10:0.02\nloss 10:2.5\n");
    values("after lost output no dict has a certain step", "known\thf\n", 0,
           PIECES("  0%|          | 0/500 [00:00<?, ?it/s]", "{'loss': 2.5, 'epoch': 0.02}", "gap",
                  "   ", "{'loss': 2.25, 'epoch': 0.04}",
                  "  6%|#         | 30/500 [00:33<09:01,  1.10s/it]"),
           "");
    values("a callback that prints each dict before the bar does, and a part of it", "known\thf\n",
           0,
           PIECES("  0%|          | 0/500 [00:00<?, ?it/s]",
                  "{'loss': 2.50001, 'lr': 0.1, 'epoch': 0.0200001}",
                  "{'loss': '2.5', 'lr': '0.1', 'epoch': '0.02'}",
                  "{'loss': 2.25, 'lr': 0.1, 'epoch': 0.0400001}", "   ",
                  "  2%|#         | 10/500 [00:11<09:01,  1.10s/it]",
                  "{'loss': 2.25, 'epoch': 0.04}", "{'loss': '2.25', 'lr': '0.1', 'epoch': '0.04'}",
                  "   ", "  4%|#         | 20/500 [00:22<09:01,  1.10s/it]"),
           "epoch 10:0.0200001 20:0.0400001\nloss 10:2.50001 20:2.25\nlr 10:0.1 20:0.1\n");
}

static void printed_by_lightning(void)
{
    values("Lightning's bar with the step", "known\tlightning\n", 0,
           PIECES("Epoch 0:  50%|\xe2\x96\x88\xe2\x96\x88   | 5/10 [00:01<00:01,  4.21it/s, "
                  "v_num=0, train_loss=2.310, global_step=2.000]",
                  "Epoch 1:  50%|##   | 5/10 [00:01<00:01,  4.21it/s, train_loss=9, "
                  "global_step=1e+3]"),
           "train_loss 2:2.31\n");
    values("a bar without a length", "known\tlightning\n", 0,
           PIECES("Training: |    | 4/? [00:00<00:00, 28.1it/s, loss=1.5, global_step=12345.0]"),
           "loss 12345:1.5\n");
    values("Lightning's bar without the step", "known\tlightning\n", 0,
           PIECES("Epoch 0:  50%|\xe2\x96\x88\xe2\x96\x88   | 5/10 [00:01<00:01,  4.21it/s, "
                  "v_num=0, train_loss=2.310]",
                  "Epoch 0:  50%|\xe2\x96\x88\xe2\x96\x88   | 5/10 [00:01<00:01,  4.21it/s, "
                  "v_num=0, train_loss=2.310]",
                  "Epoch 1:  20%|##   | 2/10 [00:01<00:01,  4.21it/s, loss=1.5, v_num=0]",
                  "Validation DataLoader 0:  50%|##   | 5/10 [00:01<00:01,  4.21it/s]"),
           "");
    values(
        "names with control characters or without UTF-8, a step above 2^53",
        "known\thf\nknown\tlightning\n", 0,
        PIECES("  0%|          | 0/500 [00:00<?, ?it/s]", "   ",
               "{'\033[31mloss': 2.5, '\302\2331mlr': 1, 'epoch': 0.02}",
               "  0%|          | 1/500 [00:00<?, ?it/s]",
               "Epoch 0:  50%|##   | 5/10 [00:01<00:01,  4.21it/s, \033[2Jloss=2.3, caf\351=4, "
               "a=1, step=5]",
               "Epoch 0:  60%|##   | 6/10 [00:01<00:01,  4.21it/s, loss=3, step=9007199254740993]"),
        "a 5:1\nepoch 1:0.02\n");
}

/* A bar at a step, in the shape of Lightning's. */
#define EPOCH(values, step)                                                                        \
    "Epoch 1:  20%|##  | 1/5 [00:01<00:01,  4.21it/s, " values ", global_step=" step "]"

/* Lightning's bar shows what was logged last, of whatever step that was. */
static void shown_by_lightning(void)
{
    values("a validation's value that the bar still shows is no value of later steps",
           "known\tlightning\n", 0,
           PIECES("Epoch 0:   0%|    | 0/5 [00:00<?, ?it/s]", EPOCH("loss=9", "0.000"),
                  EPOCH("loss=9", "0.000"), EPOCH("loss=8", "1.000"),
                  EPOCH("loss=8, val_loss=5", "1.000"), EPOCH("loss=8, val_loss=5", "1.000"),
                  EPOCH("loss=7, val_loss=5", "2.000"), EPOCH("loss=6, val_loss=5", "3.000"),
                  EPOCH("loss=6, val_loss=4", "3.000"), EPOCH("loss=5, val_loss=4", "4.000")),
           "loss 0:9 1:8 2:7 3:6 4:5\nval_loss 1:5 3:4\n");
    values("a value that is first shown with the next epoch's first step is left out",
           "known\tlightning\n", 0,
           PIECES(EPOCH("loss=9", "0.000"), EPOCH("loss=8", "1.000"),
                  EPOCH("loss=7, acc_epoch=0.5", "2.000"), EPOCH("loss=6, acc_epoch=0.5", "3.000"),
                  EPOCH("loss=5, acc_epoch=0.6", "4.000")),
           "loss 0:9 1:8 2:7 3:6 4:5\n");
    values("a value that a bar without a step has shown is not of the first step",
           "known\tlightning\n", 0,
           PIECES("Epoch 1:   0%|    | 0/5 [00:00<?, ?it/s, val_loss=5]",
                  EPOCH("val_loss=5, loss=9", "20.00"), EPOCH("val_loss=5, loss=8", "21.00")),
           "loss 20:9 21:8\n");
    values("a value that is shown again is not known to be of the new step", "known\tlightning\n",
           0,
           PIECES(EPOCH("loss=9, lr=1", "0.000"), EPOCH("loss=9, lr=1", "1.000"),
                  EPOCH("loss=8, lr=1", "2.000"), EPOCH("loss=7, lr=2", "3.000")),
           "loss 0:9 2:8 3:7\nlr 0:1 3:2\n");
    values("where bars leave out steps, only what changes with each counts", "known\tlightning\n",
           0,
           PIECES(EPOCH("loss=9, norm=1", "9.000"), EPOCH("loss=8, norm=1", "19.00"),
                  EPOCH("loss=7, norm=2", "29.00")),
           "loss 9:9 19:8 29:7\nnorm 9:1\n");
    values("steps of several batches each", "known\tlightning\n", 0,
           PIECES(EPOCH("loss=9", "0.000"), EPOCH("loss=8", "0.000"), EPOCH("loss=7", "1.000"),
                  EPOCH("loss=6", "1.000")),
           "loss 0:8 1:6\n");
}

static void printed_for_patterns(void)
{
    values("a pattern of one's own", "pattern\titer ([0-9]+): (loss|cost) ([^ ]+)\tstep\t-\tloss\n",
           0, PIECES("iter 3: cost 1.5 s", "iter 4: loss inf", "iter 5: loss high"),
           "loss 3:1.5 4:inf\n");
    values("a pattern without a step gives no value", "pattern\tloss=([0-9.]+)\tloss\n", 0,
           PIECES("loss=3", "x", "loss=2"), "");
    values(
        "a line that pauses is taken when it is whole",
        "pattern\t([0-9]+) loss=([0-9.]+)\tstep\tloss\n", 0,
        PIECES("~1 loss=3", "1 loss=3.5 time=1", "~2 loss=2", "~2 loss=2 time", "2 loss=2 time=1"),
        "loss 1:3.5 2:2\n");
    struct tern_buf most = {0};
    tern_buf_puts(&most, "known\tnxd\nknown\thf\nknown\tlightning\n");
    for (int i = 0; i < TERN_RECIPE_PATTERNS; i++)
        tern_buf_printf(&most, "pattern\t([0-9]+) v%d=([0-9.]+)\tstep\tv\n", i);
    values("as many patterns as a recipe may have are taken", most.data, 0, PIECES("1 v63=4"),
           "v 1:4\n");
    tern_buf_free(&most);
    values("patterns are for rank 0", "pattern\t([0-9]+) loss=([0-9.]+)\tstep\tloss\n", 1,
           PIECES("1 loss=3"), "");
    values("lines of the descriptor", NULL, 3,
           PIECES(">step=1 loss=3 a/b=4\n", ">nonsense\033[2J", ">step=2 loss=nan"),
           "a/b 1:4\nloss 1:3 2:nan\n");
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    grammar();
    printed_by_nxd();
    printed_by_hugging_face();
    late_dicts();
    other_dicts();
    printed_by_lightning();
    shown_by_lightning();
    printed_for_patterns();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

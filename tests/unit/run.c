/* core/run: an attempt's command line, what became of the run so far, the compiler, stops. */
#include "tests/unit/recipe_text.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ledger/ledger.h"
#include "core/run/command.h"
#include "core/run/history.h"
#include "core/run/launch.h"
#include "core/run/pace.h"
#include "core/run/precompile.h"
#include "core/run/watch.h"

#include <unistd.h>

/* ------------------------------------------------------------------ command lines */

static char *joined(char **words)
{
    struct tern_buf b = {0};

    for (size_t i = 0; words[i]; i++) {
        tern_buf_printf(&b, "%s%s", i ? " " : "", words[i]);
        free(words[i]);
    }
    free(words);
    return b.data;
}

static const char trainer_text[] =
    "version: 1\nname: a\nmodel: {config: c.json}\ndata: {train: [{path: t.tds}]}\n"
    "batch: {global: 8, micro: 1, seq_len: 16}\nsteps: 2\ncheckpoint: {dir: c}\n"
    "optimizer: {lr: 1.0e-3}\nledger: {dir: l}\n";
static const char workload_text[] = "version: 1\nname: a\nledger: {dir: l}\n"
                                    "workload: {command: [torchrun, --nnodes, '4', a b]}\n";

/* The command line of attempt `a` is `want`. */
static void launches(const struct tern_run_attempt *a, const char *name, const char *hosts,
                     const char *want, const char *what)
{
    struct tern_err err = {0};
    char *s = joined(tern_run_argv_make(a, name, hosts, &err));

    is(s, want, "%s", what);
    free(s);
}

static struct tern_run_options options = {.recipe_path = "/x/run.yaml",
                                          .trainer = "/bin/tern-train"};
static const struct tern_place four_nodes = {
    .slurm = true, .groups = 1, .nodes = 4, .ranks_per_node = 2, .cpus_per_rank = 64};

static void recipe_commands(struct tern_recipe *trainer, struct tern_recipe *workload)
{
    struct tern_run_attempt a = {.o = &options, .place = four_nodes};
    const char *set[] = {"optimizer.lr=1e-4"};

    options.recipe = trainer;
    options.overrides = set;
    options.n_overrides = 1;
    launches(
        &a, "tern-3", NULL,
        "srun --mpi=none --nodes=4 --ntasks=8 --ntasks-per-node=2 --cpus-per-task=64 "
        "--distribution=block --kill-on-bad-exit=1 --export=ALL --input=none --job-name=tern-3 "
        "/bin/tern-train --set optimizer.lr=1e-4 /x/run.yaml",
        "the trainer under Slurm");
    a.place.slurm = false;
    options.n_overrides = 0;
    options.accept = true;
    launches(&a, "tern-3", NULL, "/bin/tern-train --accept /x/run.yaml",
             "the trainer on one machine");
    options.recipe = workload;
    launches(&a, "tern-3", NULL, "torchrun --nnodes 4 a b", "a workload on one machine");
    a.place.slurm = true;
    a.place.cpus_per_rank = 0;
    launches(
        &a, "tern-1", NULL,
        "srun --nodes=4 --ntasks=8 --ntasks-per-node=2 --distribution=block --kill-on-bad-exit=1 "
        "--export=ALL --input=none --job-name=tern-1 torchrun --nnodes 4 a b",
        "a workload under Slurm");
}

static char *own[] = {"smoke", "-1", NULL};

/* Another command than the recipe's, on a part of the job's nodes. */
static void other_commands(struct tern_recipe *trainer)
{
    struct tern_run_attempt a = {.o = &options, .place = four_nodes};
    struct tern_err err = {0};

    a.place.cpus_per_rank = 0;
    a.command = own;
    a.place.nodes = 2;
    a.place.chosen = true;
    strcpy(a.place.node_list, "n[2,4]");
    launches(&a, "tern-2", NULL,
             "srun --nodes=2 --nodelist=n[2,4] --ntasks=4 --ntasks-per-node=2 --distribution=block "
             "--kill-on-bad-exit=1 --export=ALL --input=none --job-name=tern-2 smoke -1",
             "another command on a part of the job's nodes");
    launches(&a, "tern-2", "/hosts",
             "srun --ntasks=4 --ntasks-per-node=2 --distribution=arbitrary "
             "--kill-on-bad-exit=1 --export=ALL --input=none --job-name=tern-2 smoke -1",
             "in an order of ours");
    a.place.groups = 3;
    launches(&a, "tern-2", NULL,
             "srun --het-group=0-2 --ntasks-per-node=2 --distribution=block --kill-on-bad-exit=1 "
             "--export=ALL --input=none --job-name=tern-2 smoke -1",
             "in a heterogeneous job");
    a.command = NULL;
    options.recipe = trainer;
    char *s = joined(tern_run_argv_make(&a, "tern-2", NULL, &err));
    has(s, "srun --mpi=none --het-group=0-2 ",
        "ranks of a heterogeneous job use the supervisor's rendezvous, too");
    free(s);
}

static void by_mpirun(struct tern_recipe *workload)
{
    struct tern_run_attempt a = {.o = &options, .place = four_nodes};

    options.recipe = workload;
    workload->launch.with = TERN_LAUNCH_MPIRUN;
    a.command = own;
    a.place.nodes = 2;
    const char *root = geteuid() == 0 ? " --allow-run-as-root" : "";
    char *want =
        tern_strf("mpirun%s -n 4 --map-by ppr:2:node:OVERSUBSCRIBE --bind-to none smoke -1", root);
    launches(&a, "tern-2", NULL, want, "by mpirun");
    free(want);
    want = tern_strf("mpirun%s -n 4 --map-by seq:OVERSUBSCRIBE --hostfile /hosts --bind-to none "
                     "smoke -1",
                     root);
    launches(&a, "tern-2", "/hosts", want, "mpirun with an order of tern's own");
    free(want);
}

static void command_lines(void)
{
    struct tern_recipe *trainer = recipe(trainer_text), *workload = recipe(workload_text);

    if (!trainer || !workload)
        return;
    recipe_commands(trainer, workload);
    other_commands(trainer);
    by_mpirun(workload);
    tern_recipe_free(trainer);
    tern_recipe_free(workload);
}

/* A word that differs from node to node: the launcher's variable gives the rank. */
static void node_index(void)
{
    struct tern_recipe *r = recipe("version: 1\nname: a\nledger: {dir: l}\n"
                                   "workload: {command: [\"it's\", \"{node_index}\"]}\n");
    if (!r)
        return;
    const struct tern_run_options o = {.recipe = r};
    struct tern_run_attempt a = {.o = &o, .kind = "train"};
    struct tern_err err = {0};
    char **words = NULL;

    a.place.slurm = true;
    a.place.nodes = 2;
    strcpy(a.place.node_list, "n[1-2]");
    static const struct {
        enum tern_launcher with;
        int64_t tasks;
        const char *want;
    } cases[] = {
        {TERN_LAUNCH_SRUN, 1, "exec it\\'s \"$SLURM_PROCID\""},
        {TERN_LAUNCH_SRUN, 4, "exec it\\'s $((SLURM_PROCID / 4))"},
        {TERN_LAUNCH_MPIRUN, 1, "exec it\\'s \"$OMPI_COMM_WORLD_RANK\""},
        {TERN_LAUNCH_MPIRUN, 4, "exec it\\'s $((OMPI_COMM_WORLD_RANK / 4))"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        r->launch.with = cases[i].with;
        a.place.ranks_per_node = cases[i].tasks;
        if (ok(tern_run_command_fill(&a, &words, &err) == 0 && words,
               "a command with {node_index} is completed"))
            is(words[2], cases[i].want, "{node_index} is computed from the launcher's rank");
        tern_recipe_words_free(words);
    }
    tern_recipe_free(r);
}

/* ------------------------------------------------------------------ what became of it so far */

/* An attempt "job kind outcome", with a checkpoint when a '+' follows. */
static void past(const char *id, unsigned number, const char *text)
{
    char kind[20], outcome[20], made[4] = "";
    unsigned job;
    struct tern_ledger_spool *s = tern_ledger_spool_open("ledger", id, number, "run", NULL);

    if (sscanf(text, "%u %19s %19s %3s", &job, kind, outcome, made) < 3 || !s)
        abort();
    tern_ledger_spool_run(s, &(struct tern_ledger_run){.name = "past"}, NULL);
    tern_ledger_spool_attempt_begin(s, &(struct tern_ledger_attempt){.kind = kind, .job_id = job},
                                    NULL);
    if (made[0])
        tern_ledger_spool_checkpoint(s,
                                     &(struct tern_ledger_checkpoint){
                                         .step = number,
                                         .path = made[0] == '+' ? "c" : "copy",
                                         .state = made[0] == '+' ? "published" : "verified",
                                     },
                                     NULL);
    if (strcmp(outcome, "-") != 0)
        tern_ledger_spool_attempt_end(s, &(struct tern_ledger_end){.outcome = outcome}, NULL);
    tern_ledger_spool_close(s, NULL);
}

static void histories(void)
{
    static const struct {
        const char *past[8], *kind;
        unsigned attempts, vain, faults;
    } cases[] = {
        {{"7 train killed", "7 train fault", "7 train killed"}, "train", 3, 3, 3},
        {{"7 train killed", "7 train killed +", "7 train killed"}, "train", 3, 1, 1},
        {{"7 train killed", "7 train killed =", "7 train killed"}, "train", 3, 3, 3},
        {{"7 train node_fail", "7 train node_fail", "7 train -"}, "train", 3, 3, 0},
        {{"7 train preempted", "7 train stopped", "7 train node_fail"}, "train", 1, 1, 0},
        {{"6 train killed", "7 train killed"}, "train", 1, 1, 2},
        {{"7 train killed", "7 train done", "7 train killed"}, "train", 2, 1, 1},
        {{"7 precompile node_fail", "7 precompile killed"}, "precompile", 2, 2, 1},
        {{"7 precompile killed", "7 precompile done", "7 train killed"}, "train", 1, 1, 1},
        {{"7 precompile node_fail", "7 train killed"}, "precompile", 1, 1, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tern_run_history h = {0};
        struct tern_err e = {0};
        char id[TERN_ULID_SIZE];
        tern_ledger_ulid_new(id);
        for (unsigned k = 0; k < 8 && cases[i].past[k]; k++)
            past(id, k + 1, cases[i].past[k]);
        ok(tern_run_history_read(&h, "ledger", id, 7, cases[i].kind, &e) == 0 &&
               h.attempts == cases[i].attempts && h.vain == cases[i].vain &&
               h.faults == cases[i].faults,
           "history %zu: %u attempts, %u in vain, %u by faults %s", i, h.attempts, h.vain, h.faults,
           e.text);
    }
    tern_fs_remove_tree("ledger", NULL);
}

/* A run of two steps and a checkpoint; `write`: what its trainer says that the save took, 0: it
 * does not say.  Seconds of a save. */
static double paced(const char *ledger, double write)
{
    const struct tern_ledger_value step = {"step_seconds", 600},
                                   took = {"checkpoint_write_seconds", write};
    struct tern_recipe *r = recipe(trainer_text);
    struct tern_run_pace p = {0};
    char id[TERN_ULID_SIZE];

    tern_ledger_ulid_new(id);
    struct tern_ledger_spool *s = tern_ledger_spool_open(ledger, id, 1, "rank0", NULL);
    tern_ledger_spool_run(s, &(struct tern_ledger_run){.name = "paced"}, NULL);
    tern_ledger_spool_attempt_begin(s, &(struct tern_ledger_attempt){.kind = "train", .world = 2},
                                    NULL);
    tern_ledger_spool_step(s, 1, &step, 1, NULL);
    usleep(20000);
    tern_ledger_spool_checkpoint(
        s, &(struct tern_ledger_checkpoint){.step = 1, .path = "c", .state = "published"}, NULL);
    if (write > 0)
        tern_ledger_spool_step(s, 1, &took, 1, NULL);
    tern_ledger_spool_close(s, NULL);
    free(r->ledger.dir);
    r->ledger.dir = tern_strdup(ledger);
    ok(tern_run_pace_read(&p, r, id, 2, NULL) == 0 && p.step_seconds == 600,
       "a run's steps are measured");
    tern_recipe_free(r);
    tern_fs_remove_tree(ledger, NULL);
    return p.save_seconds;
}

static void paces(void)
{
    ok(paced("ledger", 7) == 7, "a save takes as long as its trainer says, though the checkpoint "
                                "was published two steps later");
    ok(paced("ledger", 0) >= 0.02, "else as long as it was until it was published");
}

static void warnings(void)
{
    struct tern_run_pace p = {0};

    ok(tern_run_pace_need(&p) == TERN_RUN_WARN_S && tern_run_pace_warn(&p, 0) == TERN_RUN_WARN_S,
       "a stop has two minutes without measurements");
    ok(tern_run_pace_warn(&p, 60) == 30, "the warning comes never before half of the job's time");
    p.step_seconds = 1.5;
    p.save_seconds = 10;
    ok(tern_run_pace_need(&p) == 53 && tern_run_pace_warn(&p, 3600) == 53,
       "a stop has twice a step and a checkpoint, and half a minute");
    p.save_seconds = 900;
    ok(tern_run_pace_warn(&p, 86400) == 1833, "be that short or long");
}

/* ------------------------------------------------------------------ the compiler */

/* What ends a hang of one that answers, and what is waited for one that does not. */
enum { ANSWERS_S = 200, SILENT_S = 1 };

static const char *version(const char *script, int limit_s, enum tern_code *code)
{
    static char to[200];
    struct tern_err err = {0};
    char *text = tern_strf("#!/bin/sh\n%s\n", script);

    tern_fs_replace("neuronx-cc", text, strlen(text), 0755, NULL);
    free(text);
    strcpy(to, "?");
    if (tern_run_compiler_version(to, sizeof to, limit_s, &err) < 0)
        snprintf(to, sizeof to, "%.190s", err.text);
    *code = err.code;
    return to;
}

static void compilers(void)
{
    char *path = tern_strdup(getenv("PATH")), *with = tern_strf(".:%s", path), to[200];
    enum tern_code code;

    ok(tern_run_compiler_version(to, sizeof to, 5, NULL) == 0 && !*to, "no compiler, no version");
    setenv("PATH", with, 1);
    is(version("echo 'NeuronX Compiler version 2.16.345.0+69131dd3'; echo; echo 'Python version "
               "3.8.10'",
               ANSWERS_S, &code),
       "NeuronX Compiler version 2.16.345.0+69131dd3", "the compiler's version");
    is(version("echo warning: 1.0 >&2; echo 'Be warned.'; echo 'Compiler version 2.16'", ANSWERS_S,
               &code),
       "Compiler version 2.16", "whatever it says before");
    int64_t began = tern_clock_boot_ns();
    is(version("echo Compiler version 2.17; exec sleep 300 >&-", ANSWERS_S, &code),
       "Compiler version 2.17", "a compiler's version is taken before it ends");
    ok(tern_clock_boot_ns() - began < 100 * 1000000000ll,
       "a compiler that prints its version and does not end is not waited for");
    bound((double)(tern_clock_boot_ns() - began) / 1e9, 3, "seconds for its version");
    has(version("sleep 90; echo Compiler version 2.16", SILENT_S, &code), "no answer within 1 s",
        "a compiler that does not answer is an error");
    ok(code == TERN_TEMPFAIL,
       "a compiler without an answer fails the attempt, and names no other cache");
    has(version("echo broken; exit 1", ANSWERS_S, &code), "prints no version",
        "a compiler that prints no version is an error");
    setenv("PATH", path, 1);
    unlink("neuronx-cc");
    free(with);
    free(path);
}

/* Times in ms. */
static enum tern_run_stop classify(int asked, int64_t since, int sig)
{
    return tern_run_watch_classify(asked, since * 1000000, sig);
}

static void stop_requests(void)
{
    ok(classify(0, 5000, SIGINT) == TERN_RUN_PASS_ON, "the first Ctrl-C is passed on");
    ok(classify(SIGINT, 0, SIGINT) == TERN_RUN_SAME_STOP &&
           classify(SIGINT, 1999, SIGINT) == TERN_RUN_SAME_STOP,
       "within two seconds another one is the same stop request");
    ok(classify(SIGINT, 2000, SIGINT) == TERN_RUN_END_NOW,
       "a stop request after two seconds ends the ranks");
    ok(classify(SIGTERM, 10, SIGINT) == TERN_RUN_PASS_ON &&
           classify(SIGINT, 10, SIGTERM) == TERN_RUN_PASS_ON &&
           classify(SIGTERM, 9000, SIGTERM) == TERN_RUN_PASS_ON,
       "every other signal is passed on each time");
}

int main(void)
{
    char folder[] = "/tmp/tern-test-run-XXXXXX";

    if (!mkdtemp(folder) || chdir(folder) < 0)
        return 1;
    command_lines();
    node_index();
    histories();
    compilers();
    paces();
    warnings();
    stop_requests();
    rmdir(folder);
    return tap_done();
}

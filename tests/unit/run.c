/* core/run and core/place: the place of an attempt, its command line, the judgement of its end. */
#include "tap.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ledger/ledger.h"
#include "core/run/command.h"
#include "core/run/history.h"
#include "core/run/launch.h"
#include "core/run/outcome.h"
#include "core/run/pace.h"
#include "core/run/precompile.h"
#include "core/run/watch.h"

#include <unistd.h>

static void least_cpus(void)
{
    ok(tern_place_least_cpus("128(x4)") == 128, "CPUs: one kind of node");
    ok(tern_place_least_cpus("5,1(x3)") == 1, "the least number in a list of CPUs");
    ok(tern_place_least_cpus("64(x2),128,72") == 64, "CPUs: a longer list");
    ok(tern_place_least_cpus("") == -1 && tern_place_least_cpus("x") == -1 &&
           tern_place_least_cpus("4(x2") == -1 && tern_place_least_cpus("0") == -1,
       "a text that is no list of CPUs is refused");
}

/* ------------------------------------------------------------------ outcomes */

#define EXITED(n) ((n) << 8)
#define KILLED(n) (n)

static void outcomes(void)
{
    static const struct {
        const char *what;
        struct tern_run_facts f;
        const char *outcome;
        int status, sig;
        const char *why;
    } cases[] = {
        {"the trainer is done",
         {0, -1, 0, "RUNNING", "", 10, 10, "", false, "", -1, ""},
         "done",
         0,
         0,
         ""},
        {"killed for memory",
         {KILLED(9), 1, 0, "RUNNING", "", 0, -1, "", false, "", -1,
          "rank 1 on n2 was killed for memory"},
         "killed",
         75,
         9,
         "rank 1 on n2 was killed for memory"},
        {"a workload is done",
         {0, -1, 0, NULL, "", 0, -1, "", false, "", -1, ""},
         "done",
         0,
         0,
         ""},
        {"the trainer is done early",
         {0, -1, 0, NULL, "", 10, 7, "a has not got better", false, "", -1, ""},
         "done",
         0,
         0,
         "a has not got better"},
        {"over before it began",
         {0, -1, 0, NULL, "", 10, 7, "", false, "a has not got better", 7, ""},
         "done",
         0,
         0,
         "a has not got better"},
        {"the run is over, says a rank whose checkpoint was lost with a node",
         {0, -1, 0, "RUNNING", "n2", 10, 7, "", false, "a has not got better", 3, ""},
         "node_fail",
         75,
         0,
         "n2"},
        {"the run is over, says a rank, and srun had to be ended",
         {0, -1, 0, NULL, "", 10, 7, "", true, "a has not got better", 3, ""},
         "fault",
         75,
         0,
         "how the ranks ended is not known"},
        {"the run is over, says a rank, without any checkpoint",
         {0, -1, 0, NULL, "", 10, -1, "", false, "a has not got better", -1, ""},
         "failed",
         1,
         0,
         "no checkpoint"},
        {"the trainer says why it failed",
         {EXITED(1), 0, 0, NULL, "", 10, 7, "", false, "no update in 5 steps", 7, ""},
         "failed",
         1,
         0,
         "rank 0 ended with status 1: no update in 5 steps"},
        {"0 without the last checkpoint",
         {0, -1, 0, "RUNNING", "", 10, 7, "", false, "", -1, ""},
         "failed",
         1,
         0,
         "newest checkpoint is of step 7, not 10"},
        {"0 without any checkpoint",
         {0, -1, 0, NULL, "", 10, -1, "", false, "", -1, ""},
         "failed",
         1,
         0,
         "no checkpoint"},
        {"0 from srun after losing a node",
         {0, -1, 0, "RUNNING", "n2", 10, 7, "", false, "", -1, ""},
         "node_fail",
         75,
         0,
         "n2"},
        {"bad input",
         {EXITED(2), 1, 0, NULL, "", 10, -1, "", false, "", -1, ""},
         "refused",
         2,
         0,
         "rank 1"},
        {"the trainer failed",
         {EXITED(1), -1, 0, "RUNNING", "", 10, 3, "", false, "", -1, ""},
         "failed",
         1,
         0,
         "status 1"},
        {"a reason outside",
         {EXITED(75), -1, 0, "RUNNING", "", 10, 3, "", false, "", -1, ""},
         "fault",
         75,
         0,
         "outside"},
        {"a reason outside, known",
         {EXITED(75), -1, 0, "RUNNING", "n3", 10, 3, "", false, "", -1, ""},
         "node_fail",
         75,
         0,
         "n3 is down"},
        {"stopped",
         {EXITED(76), -1, 0, NULL, "", 10, 3, "", false, "", -1, ""},
         "stopped",
         76,
         0,
         "continued"},
        {"stopped by the time limit",
         {EXITED(76), -1, 0, "TIMEOUT", "", 10, 3, "", false, "", -1, ""},
         "time_limit",
         76,
         0,
         ""},
        {"stopped by preemption",
         {EXITED(76), -1, 0, "PREEMPTED", "", 10, 3, "", false, "", -1, ""},
         "preempted",
         76,
         0,
         ""},
        {"halted",
         {EXITED(77), -1, 0, NULL, "", 10, 3, "", false, "", -1, ""},
         "halted",
         77,
         0,
         "halted"},
        {"a rank was killed",
         {KILLED(9), 1, 0, NULL, "", 10, 3, "", false, "", -1, ""},
         "killed",
         75,
         9,
         "rank 1 ended by signal 9"},
        {"srun's word for it",
         {EXITED(137), -1, 0, "RUNNING", "", 10, 3, "", false, "", -1, ""},
         "killed",
         75,
         9,
         "signal 9"},
        {"killed with its node",
         {EXITED(137), -1, 0, "RUNNING", "n4", 10, 3, "", false, "", -1, ""},
         "node_fail",
         75,
         9,
         "n4"},
        {"killed, with srun's status of the other ranks",
         {EXITED(143), -1, 0, "RUNNING", "", 0, -1, "", false, "", -1, ""},
         "killed",
         75,
         15,
         "srun ended the others"},
        {"ended by a signal that was passed on",
         {EXITED(143), -1, 15, "RUNNING", "", 0, -1, "", false, "", -1, ""},
         "stopped",
         75,
         15,
         "signal 15 (Terminated), passed on"},
        {"scancel",
         {EXITED(143), -1, 0, "CANCELLED", "", 0, -1, "", false, "", -1, ""},
         "cancelled",
         75,
         15,
         "CANCELLED"},
        {"requeued",
         {EXITED(143), -1, 15, "PENDING", "", 0, -1, "", false, "", -1, ""},
         "requeued",
         75,
         15,
         "PENDING"},
        {"a workload's own status",
         {EXITED(3), 0, 0, NULL, "", 0, -1, "", false, "", -1, ""},
         "failed",
         3,
         0,
         "status 3"},
        {"a status that the trainer does not use",
         {EXITED(127), 0, 0, NULL, "", 10, -1, "", false, "", -1, ""},
         "failed",
         1,
         0,
         "127"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tern_run_result r = {0};
        int sig = -1;
        tern_run_judge(&cases[i].f, &r, &sig);
        is(r.outcome, cases[i].outcome, "%s: outcome", cases[i].what);
        ok(r.status == cases[i].status && sig == cases[i].sig, "%s: status %d, signal %d",
           cases[i].what, r.status, sig);
        has(r.why, cases[i].why, "%s: why", cases[i].what);
    }
}

/* An srun that stayed when its ranks were gone, and was ended. */
static void stayed(void)
{
    const struct {
        const char *what;
        struct tern_run_facts f;
        const char *outcome;
        int status;
        const char *why;
    } cases[] = {
        {"work done", {.job_word = "RUNNING", .steps = 10, .newest = 10}, "done", 0, ""},
        {"done before the last step",
         {.job_word = "RUNNING", .steps = 10, .newest = 7, .ended = "nothing is learnt"},
         "done",
         0,
         "nothing is learnt"},
        {"work not done",
         {.job_word = "RUNNING", .steps = 10, .newest = 7},
         "fault",
         75,
         "how the ranks ended is not known"},
        {"workload",
         {.job_word = "RUNNING", .newest = -1},
         "fault",
         75,
         "how the ranks ended is not known"},
        {"node lost",
         {.job_word = "RUNNING", .steps = 10, .newest = 7, .lost_node = "n3"},
         "node_fail",
         75,
         "node n3 is down"},
        {"job cancelled",
         {.job_word = "CANCELLED", .asked = 15, .steps = 10, .newest = 7},
         "cancelled",
         75,
         "not known"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tern_run_facts f = cases[i].f;
        struct tern_run_result r = {0};
        int sig = -1;
        f.status = SIGKILL;
        f.rank = -1;
        f.srun_hang = true;
        tern_run_judge(&f, &r, &sig);
        is(r.outcome, cases[i].outcome, "srun stayed, %s: outcome", cases[i].what);
        ok(r.status == cases[i].status && sig == 0, "srun stayed, %s: status %d, signal %d",
           cases[i].what, r.status, sig);
        has(r.why, cases[i].why, "srun stayed, %s: why", cases[i].what);
    }
}

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

static struct tern_recipe *recipe(const char *text)
{
    static const char path[] = "tern-test-run.yaml";
    struct tern_err err = {0};

    tern_fs_replace(path, text, strlen(text), 0600, &err);
    struct tern_recipe *r = tern_recipe_load(path, NULL, 0, &err);
    if (!ok(r != NULL, "a recipe"))
        printf("# %s\n", err.text);
    unlink(path);
    return r;
}

static void command_lines(void)
{
    struct tern_err err = {0};
    struct tern_run_options o = {.recipe_path = "/x/run.yaml", .trainer = "/bin/tern-train"};
    struct tern_run_attempt a = {
        .o = &o,
        .place = {
            .slurm = true, .groups = 1, .nodes = 4, .ranks_per_node = 2, .cpus_per_rank = 64}};
    const char *set[] = {"optimizer.lr=1e-4"};
    struct tern_recipe *trainer =
        recipe("version: 1\nname: a\nmodel: {config: c.json}\ndata: {train: [{path: t.tds}]}\n"
               "batch: {global: 8, micro: 1, seq_len: 16}\nsteps: 2\ncheckpoint: {dir: c}\n"
               "optimizer: {lr: 1.0e-3}\nledger: {dir: l}\n");
    struct tern_recipe *workload = recipe("version: 1\nname: a\nledger: {dir: l}\n"
                                          "workload: {command: [torchrun, --nnodes, '4', a b]}\n");

    if (!trainer || !workload)
        return;
    o.recipe = trainer;
    o.overrides = set;
    o.n_overrides = 1;
    char *s = joined(tern_run_argv_make(&a, "tern-3", NULL, &err));
    is(s,
       "srun --mpi=none --nodes=4 --ntasks=8 --ntasks-per-node=2 --cpus-per-task=64 "
       "--distribution=block --kill-on-bad-exit=1 --export=ALL --input=none --job-name=tern-3 "
       "/bin/tern-train --set optimizer.lr=1e-4 /x/run.yaml",
       "the trainer under Slurm");
    free(s);
    a.place.slurm = false;
    o.n_overrides = 0;
    o.accept = true;
    s = joined(tern_run_argv_make(&a, "tern-3", NULL, &err));
    is(s, "/bin/tern-train --accept /x/run.yaml", "the trainer on one machine");
    free(s);
    o.recipe = workload;
    s = joined(tern_run_argv_make(&a, "tern-3", NULL, &err));
    is(s, "torchrun --nnodes 4 a b", "a workload on one machine");
    free(s);
    a.place.slurm = true;
    a.place.cpus_per_rank = 0;
    s = joined(tern_run_argv_make(&a, "tern-1", NULL, &err));
    is(s,
       "srun --nodes=4 --ntasks=8 --ntasks-per-node=2 --distribution=block --kill-on-bad-exit=1 "
       "--export=ALL --input=none --job-name=tern-1 torchrun --nnodes 4 a b",
       "a workload under Slurm");
    free(s);
    char *own[] = {"smoke", "-1", NULL};
    a.command = own;
    a.place.nodes = 2;
    a.place.chosen = true;
    strcpy(a.place.node_list, "n[2,4]");
    s = joined(tern_run_argv_make(&a, "tern-2", NULL, &err));
    is(s,
       "srun --nodes=2 --nodelist=n[2,4] --ntasks=4 --ntasks-per-node=2 --distribution=block "
       "--kill-on-bad-exit=1 --export=ALL --input=none --job-name=tern-2 smoke -1",
       "another command on a part of the job's nodes");
    free(s);
    s = joined(tern_run_argv_make(&a, "tern-2", "/hosts", &err));
    is(s,
       "srun --ntasks=4 --ntasks-per-node=2 --distribution=arbitrary "
       "--kill-on-bad-exit=1 --export=ALL --input=none --job-name=tern-2 smoke -1",
       "in an order of ours");
    free(s);
    a.place.groups = 3;
    s = joined(tern_run_argv_make(&a, "tern-2", NULL, &err));
    is(s,
       "srun --het-group=0-2 --ntasks-per-node=2 --distribution=block --kill-on-bad-exit=1 "
       "--export=ALL --input=none --job-name=tern-2 smoke -1",
       "in a heterogeneous job");
    free(s);
    a.command = NULL;
    o.recipe = trainer;
    s = joined(tern_run_argv_make(&a, "tern-2", NULL, &err));
    has(s, "srun --mpi=none --het-group=0-2 ",
        "ranks of a heterogeneous job use the supervisor's rendezvous, too");
    free(s);
    a.command = own;
    o.recipe = workload;
    a.place.groups = 1;
    workload->launch.with = TERN_LAUNCH_MPIRUN;
    const char *root = geteuid() == 0 ? " --allow-run-as-root" : "";
    char *want =
        tern_strf("mpirun%s -n 4 --map-by ppr:2:node:OVERSUBSCRIBE --bind-to none smoke -1", root);
    s = joined(tern_run_argv_make(&a, "tern-2", NULL, &err));
    is(s, want, "by mpirun");
    free(s);
    free(want);
    want = tern_strf("mpirun%s -n 4 --map-by seq:OVERSUBSCRIBE --hostfile /hosts --bind-to none "
                     "smoke -1",
                     root);
    s = joined(tern_run_argv_make(&a, "tern-2", "/hosts", &err));
    is(s, want, "mpirun with an order of tern's own");
    free(s);
    free(want);
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

/* ------------------------------------------------------------------ the job's shape */

static void places(void)
{
    struct tern_err err = {0};
    struct tern_place p;
    struct tern_recipe *r = recipe("version: 1\nname: a\nledger: {dir: l}\n"
                                   "workload: {command: [x], tasks_per_node: 2}\n");

    if (!r)
        return;
    unsetenv("SLURM_JOB_ID");
    ok(tern_place_read(&p, r, 0, &err) == 0 && !p.slurm && p.nodes == 1 && p.ranks_per_node == 2,
       "outside Slurm: the recipe's ranks");
    ok(tern_place_read(&p, r, 5, &err) == 0 && p.ranks_per_node == 5, "or as many as asked for");
    setenv("SLURM_JOB_ID", "12", 1);
    ok(tern_place_read(&p, r, 5, &err) < 0 && err.code == TERN_USAGE, "--ranks in a job");
    ok(tern_place_read(&p, r, 0, &err) < 0, "no node list");
    has(err.text, "SLURM_JOB_NODELIST", "is named");
    setenv("SLURM_JOB_NODELIST", "n[1-3]", 1);
    setenv("SLURM_JOB_NUM_NODES", "3", 1);
    setenv("SLURM_JOB_CPUS_PER_NODE", "4(x3)", 1);
    setenv("SLURM_RESTART_COUNT", "2", 1);
    ok(tern_place_read(&p, r, 0, &err) == 0 && p.slurm && p.job == 12 && p.nodes == 3 &&
           p.restarts == 2 && p.cpus_per_rank == 2,
       "in a job: its nodes, CPUs shared by the ranks");
    setenv("SLURM_JOB_CPUS_PER_NODE", "4,1(x2)", 1);
    ok(tern_place_read(&p, r, 0, &err) < 0 && err.code == TERN_USAGE, "an uneven allocation");
    has(err.text, "--ntasks-per-node=2", "an uneven job is refused with what to request");
    setenv("SLURM_JOB_CPUS_PER_NODE", "4(x3)", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "3", 1);
    ok(tern_place_read(&p, r, 0, &err) < 0 && err.code == TERN_USAGE, "one of srun's tasks");
    has(err.text, "one of the 3 tasks of step 12.0", "is refused");
    has(err.text, "srun -N1 -n1 tern run", "with the way out");
    setenv("SLURM_STEP_NUM_TASKS", "x", 1);
    ok(tern_place_read(&p, r, 0, &err) < 0, "bad values in the environment are refused");
    has(err.text, "SLURM_STEP_NUM_TASKS", "is named");
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    setenv("SLURM_JOB_NUM_NODES", "1", 1);
    setenv("SLURM_CPUS_PER_TASK", "4", 1);
    ok(tern_place_read(&p, r, 0, &err) == 0 && p.in_step && p.nodes == 3 && p.cpus_per_rank == 2,
       "srun's only task: the job's nodes and CPUs, not the step's");
    ok(!getenv("SLURM_STEP_ID") && !getenv("SLURM_STEP_NUM_TASKS"), "the step is left");
    setenv("SLURM_JOB_NUM_NODES", "3", 1);
    setenv("SLURM_STEP_ID", "4294967290", 1);
    ok(tern_place_read(&p, r, 0, &err) == 0 && !p.in_step,
       "salloc's interactive step is no step around tern run");
    tern_recipe_free(r);
}

/* The options of sbatch against the recipe. */
static void mistakes(void)
{
    struct tern_err err = {0};
    struct tern_place p;
    struct tern_recipe *r =
        recipe("version: 1\nname: a\nledger: {dir: l}\nparallel: {tensor: 4, pipeline: 3}\n"
               "workload: {command: [x], tasks_per_node: 2, workers_per_node: 8}\n");

    setenv("SLURM_CPUS_PER_TASK", "3", 1);
    ok(tern_place_read(&p, r, 0, &err) < 0 && err.code == TERN_USAGE, "--cpus-per-task too large");
    has(err.text,
        "--cpus-per-task=3, and 2 ranks a node (workload.tasks_per_node) would need 6 of "
        "a node's 4 CPUs. Leave it out, or submit with --cpus-per-task=2.",
        "a --cpus-per-task that is too large is refused with one that fits");
    unsetenv("SLURM_CPUS_PER_TASK");
    ok(tern_place_read(&p, r, 0, &err) == 0 && tern_place_ranks_on_node(&p, r) == 8,
       "3 nodes x 8 workers over 4 x 3");
    setenv("SLURM_JOB_NUM_NODES", "4", 1);
    ok(tern_place_read(&p, r, 0, &err) < 0 && err.code == TERN_USAGE, "32 over 12: refused");
    has(err.text,
        "parallel: 4 nodes x 8 ranks are 32, no multiple of parallel.tensor x "
        "parallel.pipeline (4 x 3 = 12)",
        "and why");
    setenv("SLURM_JOB_NUM_NODES", "3", 1);

    setenv("SLURM_HET_SIZE", "2", 1);
    setenv("SLURM_JOB_ID_HET_GROUP_0", "12", 1);
    setenv("SLURM_JOB_ID_HET_GROUP_1", "13", 1);
    setenv("SLURM_JOB_NODELIST_HET_GROUP_0", "n[1-2]", 1);
    setenv("SLURM_JOB_NODELIST_HET_GROUP_1", "m1", 1);
    setenv("SLURM_JOB_NUM_NODES_HET_GROUP_0", "2", 1);
    setenv("SLURM_JOB_NUM_NODES_HET_GROUP_1", "1", 1);
    setenv("SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0", "4(x2)", 1);
    setenv("SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1", "2", 1);
    ok(tern_place_read(&p, r, 0, &err) == 0 && p.groups == 2 && p.nodes == 3 &&
           p.group_job[0] == 12 && p.group_job[1] == 13 && p.cpus_per_rank == 1,
       "a heterogeneous job: all groups' nodes, the CPUs of the least");
    is(p.node_list, "n[1-2],m1", "in their order");
    setenv("SLURM_NTASKS_PER_NODE_HET_GROUP_0", "2", 1);
    setenv("SLURM_NTASKS_PER_NODE_HET_GROUP_1", "4", 1);
    ok(tern_place_read(&p, r, 0, &err) < 0 && err.code == TERN_USAGE, "uneven groups: refused");
    has(err.text, "the job's groups ask for 2 and 4 tasks a node", "and why");
    unsetenv("SLURM_HET_SIZE");
    unsetenv("SLURM_JOB_ID");
    tern_recipe_free(r);
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

static const char *version(const char *script, enum tern_code *code)
{
    static char to[200];
    struct tern_err err = {0};
    char *text = tern_strf("#!/bin/sh\n%s\n", script);

    tern_fs_replace("neuronx-cc", text, strlen(text), 0755, NULL);
    free(text);
    strcpy(to, "?");
    if (tern_run_compiler_version(to, sizeof to, 1, &err) < 0)
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
               &code),
       "NeuronX Compiler version 2.16.345.0+69131dd3", "the compiler's version");
    is(version("echo warning: 1.0 >&2; echo 'Be warned.'; echo 'Compiler version 2.16'", &code),
       "Compiler version 2.16", "whatever it says before");
    int64_t began = tern_clock_boot_ns();
    is(version("echo Compiler version 2.17; exec sleep 90 >&-", &code), "Compiler version 2.17",
       "one that has answered");
    ok(tern_clock_boot_ns() - began < 80 * 1000000000ll,
       "a compiler that prints its version and does not end is not waited for");
    bound((double)(tern_clock_boot_ns() - began) / 1e9, 3, "seconds for its version");
    has(version("sleep 90; echo Compiler version 2.16", &code), "no answer within 1 s",
        "one that does not answer");
    ok(code == TERN_TEMPFAIL,
       "a compiler without an answer fails the attempt, and names no other cache");
    has(version("echo broken; exit 1", &code), "prints no version", "one that is broken");
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
    ok(classify(SIGINT, 2000, SIGINT) == TERN_RUN_END_NOW, "then it ends the ranks");
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
    least_cpus();
    outcomes();
    stayed();
    command_lines();
    node_index();
    histories();
    compilers();
    places();
    mistakes();
    warnings();
    stop_requests();
    rmdir(folder);
    return tap_done();
}

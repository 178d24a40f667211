/* core/run: where it runs, what it launches, what it makes of an end. */
#include "tap.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/run/launch.h"
#include "core/run/outcome.h"

#include <unistd.h>

static void least_cpus(void)
{
    ok(tern_run_least_cpus("128(x4)") == 128, "CPUs: one kind of node");
    ok(tern_run_least_cpus("5,1(x3)") == 1, "CPUs: the least of several");
    ok(tern_run_least_cpus("64(x2),128,72") == 64, "CPUs: a longer list");
    ok(tern_run_least_cpus("") == -1 && tern_run_least_cpus("x") == -1 &&
           tern_run_least_cpus("4(x2") == -1 && tern_run_least_cpus("0") == -1,
       "CPUs: what is no such list");
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
        {"the trainer is done", {0, -1, 0, "RUNNING", "", 10, 10}, "done", 0, 0, ""},
        {"a workload is done", {0, -1, 0, NULL, "", 0, -1}, "done", 0, 0, ""},
        {"0 without the last checkpoint",
         {0, -1, 0, "RUNNING", "", 10, 7},
         "failed",
         1,
         0,
         "newest checkpoint is of step 7, not 10"},
        {"0 without any checkpoint", {0, -1, 0, NULL, "", 10, -1}, "failed", 1, 0, "no checkpoint"},
        {"0 from srun after losing a node",
         {0, -1, 0, "RUNNING", "n2", 10, 7},
         "node_fail",
         75,
         0,
         "n2"},
        {"bad input", {EXITED(2), 1, 0, NULL, "", 10, -1}, "refused", 2, 0, "rank 1"},
        {"the trainer failed",
         {EXITED(1), -1, 0, "RUNNING", "", 10, 3},
         "failed",
         1,
         0,
         "status 1"},
        {"a reason outside", {EXITED(75), -1, 0, "RUNNING", "", 10, 3}, "fault", 75, 0, "outside"},
        {"a reason outside, known",
         {EXITED(75), -1, 0, "RUNNING", "n3", 10, 3},
         "node_fail",
         75,
         0,
         "n3 is down"},
        {"stopped", {EXITED(76), -1, 0, NULL, "", 10, 3}, "stopped", 76, 0, "continued"},
        {"stopped by the time limit",
         {EXITED(76), -1, 0, "TIMEOUT", "", 10, 3},
         "time_limit",
         76,
         0,
         ""},
        {"stopped by preemption",
         {EXITED(76), -1, 0, "PREEMPTED", "", 10, 3},
         "preempted",
         76,
         0,
         ""},
        {"halted", {EXITED(77), -1, 0, NULL, "", 10, 3}, "halted", 77, 0, "halted"},
        {"a rank was killed",
         {KILLED(9), 1, 0, NULL, "", 10, 3},
         "killed",
         75,
         9,
         "rank 1 ended by signal 9"},
        {"srun's word for it",
         {EXITED(137), -1, 0, "RUNNING", "", 10, 3},
         "killed",
         75,
         9,
         "signal 9"},
        {"killed with its node",
         {EXITED(137), -1, 0, "RUNNING", "n4", 10, 3},
         "node_fail",
         75,
         9,
         "n4"},
        {"killed, as srun tells it of the others",
         {EXITED(143), -1, 0, "RUNNING", "", 0, -1},
         "killed",
         75,
         15,
         "srun ended the others"},
        {"ended by a signal that was passed on",
         {EXITED(143), -1, 15, "RUNNING", "", 0, -1},
         "killed",
         75,
         15,
         "signal 15 (Terminated), passed on"},
        {"scancel", {EXITED(143), -1, 0, "CANCELLED", "", 0, -1}, "cancelled", 75, 15, "CANCELLED"},
        {"requeued", {EXITED(143), -1, 15, "PENDING", "", 0, -1}, "requeued", 75, 15, "PENDING"},
        {"a workload's own status", {EXITED(3), 0, 0, NULL, "", 0, -1}, "failed", 3, 0, "status 3"},
        {"a status that the trainer has not",
         {EXITED(127), 0, 0, NULL, "", 10, -1},
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
    struct tern_run_place p = {.slurm = true, .nodes = 4, .ranks_per_node = 2, .cpus_per_rank = 64};
    const char *set[] = {"optimizer.lr=1e-4"};
    struct tern_run_options o = {.recipe_path = "/x/run.yaml", .trainer = "/bin/tern-train"};
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
    char *s = joined(tern_run_command(&p, &o, "tern-3", &err));
    is(s,
       "srun --mpi=pmix --nodes=4 --ntasks=8 --ntasks-per-node=2 --cpus-per-task=64 "
       "--distribution=block --kill-on-bad-exit=1 --export=ALL --input=none --job-name=tern-3 "
       "/bin/tern-train --set optimizer.lr=1e-4 /x/run.yaml",
       "the trainer under Slurm");
    free(s);
    p.slurm = false;
    o.n_overrides = 0;
    o.accept = true;
    s = joined(tern_run_command(&p, &o, "tern-3", &err));
    is(s, "/bin/tern-train --accept /x/run.yaml", "the trainer on one machine");
    free(s);
    o.recipe = workload;
    s = joined(tern_run_command(&p, &o, "tern-3", &err));
    is(s, "torchrun --nnodes 4 a b", "a workload on one machine");
    free(s);
    p.slurm = true;
    p.cpus_per_rank = 0;
    s = joined(tern_run_command(&p, &o, "tern-1", &err));
    is(s,
       "srun --nodes=4 --ntasks=8 --ntasks-per-node=2 --distribution=block --kill-on-bad-exit=1 "
       "--export=ALL --input=none --job-name=tern-1 torchrun --nnodes 4 a b",
       "a workload under Slurm");
    free(s);
    tern_recipe_free(trainer);
    tern_recipe_free(workload);
}

/* ------------------------------------------------------------------ the job's shape */

static void places(void)
{
    struct tern_err err = {0};
    struct tern_run_place p;
    struct tern_recipe *r = recipe("version: 1\nname: a\nledger: {dir: l}\n"
                                   "workload: {command: [x], tasks_per_node: 2}\n");

    if (!r)
        return;
    unsetenv("SLURM_JOB_ID");
    ok(tern_run_place(&p, r, 0, &err) == 0 && !p.slurm && p.nodes == 1 && p.ranks_per_node == 2,
       "outside Slurm: the recipe's ranks");
    ok(tern_run_place(&p, r, 5, &err) == 0 && p.ranks_per_node == 5, "or as many as asked for");
    setenv("SLURM_JOB_ID", "12", 1);
    ok(tern_run_place(&p, r, 5, &err) < 0 && err.code == TERN_USAGE, "--ranks in a job");
    ok(tern_run_place(&p, r, 0, &err) < 0, "no node list");
    has(err.text, "SLURM_JOB_NODELIST", "is named");
    setenv("SLURM_JOB_NODELIST", "n[1-3]", 1);
    setenv("SLURM_JOB_NUM_NODES", "3", 1);
    setenv("SLURM_JOB_CPUS_PER_NODE", "4(x3)", 1);
    setenv("SLURM_RESTART_COUNT", "2", 1);
    ok(tern_run_place(&p, r, 0, &err) == 0 && p.slurm && p.job == 12 && p.nodes == 3 &&
           p.restarts == 2 && p.cpus_per_rank == 2,
       "in a job: its nodes, CPUs shared by the ranks");
    setenv("SLURM_JOB_CPUS_PER_NODE", "4,1(x2)", 1);
    ok(tern_run_place(&p, r, 0, &err) < 0 && err.code == TERN_USAGE, "an uneven allocation");
    has(err.text, "--ntasks-per-node=2", "is answered with what to ask for");
    setenv("SLURM_JOB_CPUS_PER_NODE", "4(x3)", 1);
    setenv("SLURM_STEP_NUM_TASKS", "3", 1);
    ok(tern_run_place(&p, r, 0, &err) < 0, "under srun");
    has(err.text, "batch script", "is refused");
    setenv("SLURM_STEP_NUM_TASKS", "x", 1);
    ok(tern_run_place(&p, r, 0, &err) < 0, "nonsense in the environment");
    has(err.text, "SLURM_STEP_NUM_TASKS", "is named");
    tern_recipe_free(r);
}

int main(void)
{
    char folder[] = "/tmp/tern-test-run-XXXXXX";

    if (!mkdtemp(folder) || chdir(folder) < 0)
        return 1;
    least_cpus();
    outcomes();
    command_lines();
    places();
    rmdir(folder);
    return tap_done();
}

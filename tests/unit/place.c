/* core/place: the place of an attempt, in a job and out of one. */
#include "tests/unit/recipe_text.h"

#include "core/place/place.h"

static void least_cpus(void)
{
    ok(tern_place_least_cpus("128(x4)") == 128, "CPUs: one kind of node");
    ok(tern_place_least_cpus("5,1(x3)") == 1, "the least number in a list of CPUs");
    ok(tern_place_least_cpus("64(x2),128,72") == 64, "CPUs: a longer list");
    ok(tern_place_least_cpus("") == -1 && tern_place_least_cpus("x") == -1 &&
           tern_place_least_cpus("4(x2") == -1 && tern_place_least_cpus("0") == -1,
       "a text that is no list of CPUs is refused");
}

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
    has(err.text, "SLURM_JOB_NODELIST", "the error names SLURM_JOB_NODELIST");
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
    ok(tern_place_read(&p, r, 0, &err) < 0 && err.code == TERN_USAGE,
       "one of several tasks of srun is refused");
    has(err.text, "one of the 3 tasks of step 12.0", "the error names the task and its step");
    has(err.text, "srun -N1 -n1 tern run", "the error has the command to use instead");
    setenv("SLURM_STEP_NUM_TASKS", "x", 1);
    ok(tern_place_read(&p, r, 0, &err) < 0, "bad values in the environment are refused");
    has(err.text, "SLURM_STEP_NUM_TASKS", "the error names SLURM_STEP_NUM_TASKS");
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
        "the error names the ranks and the multiple");
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
    is(p.node_list, "n[1-2],m1", "a heterogeneous job's nodes come in their order");
    setenv("SLURM_NTASKS_PER_NODE_HET_GROUP_0", "2", 1);
    setenv("SLURM_NTASKS_PER_NODE_HET_GROUP_1", "4", 1);
    ok(tern_place_read(&p, r, 0, &err) < 0 && err.code == TERN_USAGE, "uneven groups: refused");
    has(err.text, "the job's groups ask for 2 and 4 tasks a node",
        "the error names the groups' tasks a node");
    unsetenv("SLURM_HET_SIZE");
    unsetenv("SLURM_JOB_ID");
    tern_recipe_free(r);
}

int main(void)
{
    char folder[] = "/tmp/tern-test-place-XXXXXX";

    if (!mkdtemp(folder) || chdir(folder) < 0)
        return 1;
    least_cpus();
    places();
    mistakes();
    rmdir(folder);
    return tap_done();
}

/* core/run: which nodes watch the supervisor's, and the step that watches. */
#include "core/slurm/slurm.h"

#include "tests/unit/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static int fake_load(uint32_t id, struct tern_slurm_job **job, struct tern_err *err)
{
    (void)err;
    *job = calloc(1, sizeof **job);
    (*job)->id = id;
    (*job)->nodes = strdup("n[1-2]");
    return 0;
}
static void fake_free(struct tern_slurm_job *job)
{
    free(job->nodes);
    free(job);
}
static int fake_signal(uint32_t job, const char *name, int sig, struct tern_err *err)
{
    (void)job, (void)name, (void)sig, (void)err;
    return -1; /* srun itself gets it */
}

/* In each process the first file cannot be opened: the node has no free descriptor just then. */
static int fake_open(const char *path, int flags)
{
    static bool failed;

    if (strcmp(path, "/dev/null") == 0 && !failed) {
        failed = true;
        errno = ENFILE;
        return -1;
    }
    return open(path, flags);
}

/* There is no controller: what it says is this test's. */
#define open(path, flags) fake_open(path, flags)
#define tern_slurm_job_load fake_load
#define tern_slurm_job_free fake_free
#define tern_slurm_step_signal fake_signal
#include "core/run/watchers.c"

static void test_watchers(void)
{
    char *hosts[] = {"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"};
    size_t which[TERN_RUN_WATCHERS];

    ok(tern_run_watchers_choose(hosts, 1, "n1", which) == 0,
       "without another node no node watches");
    ok(tern_run_watchers_choose(hosts, 2, "n1", which) == 1 && which[0] == 1,
       "of two nodes the other one watches");
    ok(tern_run_watchers_choose(hosts, 3, "n2", which) == 2 && which[0] == 0 && which[1] == 2,
       "of three nodes both others watch");
    ok(tern_run_watchers_choose(hosts, 9, "n1", which) == 4 && which[0] == 1 && which[3] == 8,
       "of nine four that are far from each other: the first and the last are among them");
}

/* The job's nodes and SLURMD_NODENAME are NodeName of slurm.conf, letter by letter. */
static void test_names(void)
{
    struct tern_err err = {0};
    size_t which[TERN_RUN_WATCHERS], n = 0;
    char **hosts = NULL;

    ok(tern_slurm_hosts_expand("N1.Example.ORG,N2.Example.ORG,n1", &hosts, &n, &err) == 0 && n == 3,
       "a list of NodeNames with domains and capitals expands");
    ok(n == 3 && tern_run_watchers_choose(hosts, n, "N1.Example.ORG", which) == 2 &&
           which[0] == 1 && which[1] == 2,
       "a NodeName with a domain and capitals does not watch itself");
    ok(n == 3 && tern_run_watchers_choose(hosts, n, "n1", which) == 2 && which[0] == 0 &&
           which[1] == 1,
       "a NodeName that differs from its own in capitals and domain is another node");
    char *list = n == 3 ? tern_slurm_hosts_compress(hosts, 2) : strdup("");
    is(list, "N1.Example.ORG,N2.Example.ORG",
       "srun's --nodelist keeps domains and capitals of NodeNames");
    free(list);
    tern_slurm_hosts_free(hosts);
}

/* The first line of `path` once it is there. */
static bool read_line(const char *path, char line[800])
{
    for (int i = 0; i < 30000; i++, usleep(20000)) {
        FILE *f = fopen(path, "r");
        const bool got = f && fgets(line, 800, f) && strchr(line, '\n');
        if (f)
            fclose(f);
        if (got)
            return true;
    }
    return false;
}

/* The supervisor of a job of spares starts a step on the other node; srun is a script. */
static void test_step(void)
{
    char dir[] = "/tmp/tern-watchers-XXXXXX", line[800] = "";
    const struct tern_place place = {.slurm = true, .nodes = 2, .groups = 1, .job = 7};

    if (!mkdtemp(dir))
        abort();
    char *srun = tern_fs_join(dir, "srun"), *log = tern_fs_join(dir, "log");
    char *text = tern_strf("#!/bin/sh\necho \"$*\" >%s\nexec sleep 600\n", log);
    char *path = tern_strf("%s:%s", dir, getenv("PATH"));
    if (tern_fs_replace(srun, text, strlen(text), 0755, NULL) < 0)
        abort();
    setenv("PATH", path, 1);
    setenv("SLURMD_NODENAME", "n1", 1);
    ok(tern_run_watchers_start(&place, 0, true) == 0, "ranks that watch need no watching step");
    pid_t child = tern_run_watchers_start(&place, 0, false);
    ok(child > 0 && read_line(log, line), "ranks that cannot watch have a watching step");
    tern_run_watchers_stop(&child);
    unlink(log);
    child = tern_run_watchers_start(&place, 1, true);
    ok(child > 0 && read_line(log, line), "a job of spares: a step begins that watches this node");
    ok(line[0], "a node that is out of descriptors for a moment has a watching step all the same");
    has(line, "--nodelist=n2 ", "the watching step runs on the other node");
    has(line, " --overlap ", "the watching step takes nothing from the ranks' share");
    tern_run_watchers_stop(&child);
    ok(child == 0, "the watching step ends with the supervisor");
    tern_fs_remove_tree(dir, NULL);
    free(path), free(text), free(log), free(srun);
}

int main(void)
{
    test_watchers();
    test_names();
    test_step();
    return tap_done();
}

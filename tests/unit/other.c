/* core/run/other: the words for runs that are in jobs already. */
#include "tests/unit/tap.h"

#include "core/slurm/slurm.h"

/* Instead of Slurm: what each run is found in. */
static const struct tern_slurm_found *in_jobs;

static int find_jobs(const char (*id)[TERN_SLURM_ID], size_t n, struct tern_slurm_found *ret,
                     struct tern_err *err)
{
    (void)id, (void)err;
    memcpy(ret, in_jobs, n * sizeof *ret);
    return 0;
}
#define tern_slurm_jobs_find find_jobs
#define tern_slurm_available() true
#include "core/run/other.c"

static const char *told(const struct tern_slurm_found *all, size_t n, const char *before)
{
    static char text[2000];
    char path[] = "/tmp/tern-other-XXXXXX";
    static char id[3][TERN_CKPT_ULID] = {"A", "B", "C"};
    const struct tern_run_ids ids = {.id = id, .n = n};
    const int fd = mkstemp(path), was = dup(STDERR_FILENO);

    in_jobs = all;
    fflush(stderr);
    dup2(fd, STDERR_FILENO);
    tern_run_other_tell(&ids, before);
    fflush(stderr);
    dup2(was, STDERR_FILENO);
    const ssize_t len = pread(fd, text, sizeof text - 1, 0);
    text[len > 0 ? len : 0] = '\0';
    close(fd);
    close(was);
    unlink(path);
    return text;
}

int main(void)
{
    const struct tern_slurm_found none[1] = {{.job = 0}};
    const struct tern_slurm_found one[3] = {{.job = 0}, {7, 7, "7", "RUNNING"}, {.job = 0}};
    const struct tern_slurm_found array[3] = {
        {13, 12, "12_0", "RUNNING"}, {14, 12, "12_1", "RUNNING"}, {20, 1, "1_3", "PENDING"}};

    ok(!*told(none, 1, "-- "), "no message names a run that is in no job");
    const char *t = told(one, 3, "-- ");
    ok(strstr(t, "run B is job 7 already (RUNNING): ") &&
           strstr(t, "To run after it: -- --dependency=afterany:7\n"),
       "the run's job, and the dependency behind tern submit's --");
    t = told(array, 3, "-- ");
    ok(strstr(t, "run A is job 12_0 already (RUNNING), and so are 2 more: "),
       "of an array's runs the first, and how many more");
    ok(strstr(t, "--dependency=afterany:12:1\n"), "the message names each job to wait for, once");
    t = told(one, 3, NULL);
    ok(strstr(t, "Unless this one waits for it (--dependency=afterany:7)"),
       "where the options are not known, the dependency may be there");
    return tap_done();
}

/* core/run/attempt: the lease of an attempt between its begin and its ranks. */
#include "tests/unit/tap.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/place/place.h"
#include "core/run/attempt.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char text[] = "version: 1\nname: a\nledger: {dir: ledger}\ncheckpoint: {dir: ck}\n"
                           "workload: {command: [\"true\"]}\n";
static const char lease[] = "ck/claim-000001";

/* As old as a lease that its owner has not renewed for an hour. */
static void make_old(void)
{
    const struct timespec old[2] = {{.tv_sec = time(NULL) - 3600}, {.tv_sec = time(NULL) - 3600}};

    if (utimensat(AT_FDCWD, lease, old, 0) < 0)
        abort();
}

/* Is it renewed?  Within ten minutes, which end a hang. */
static bool renewed(void)
{
    struct stat st;

    for (int i = 0; i < 60000; i++, tern_clock_sleep_ns(10000000))
        if (stat(lease, &st) == 0 && st.st_mtime > time(NULL) - 60)
            return true;
    return false;
}

static void begun(struct tern_run_attempt *a)
{
    struct tern_run_result result = {0};
    struct tern_err err = {0};

    make_old();
    ok(renewed(), "the lease is kept alive while the nodes are looked at");
    make_old();
    ok(renewed(), "the lease is kept alive a second time");

    /* Another attempt takes it, as after a pause of this machine. */
    make_old();
    if (link(lease, "ck/claim-000002") < 0)
        abort();
    ok(tern_run_attempt_launch(a, &result, &err) < 0 && err.code == TERN_FAILED,
       "one that was lost meanwhile starts no ranks");
    has(err.text, "lost its lease", "the error says that the lease is lost");
    tern_run_attempt_end(a);
    ok(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD, "no child is left that renews the lease");
}

int main(void)
{
    char folder[] = "/tmp/tern-unit-attempt-XXXXXX";
    struct tern_err err = {0};

    unsetenv("SLURM_JOB_ID");
    if (!mkdtemp(folder) || chdir(folder) < 0 ||
        tern_fs_replace("run.yaml", text, strlen(text), 0644, &err) < 0)
        return 1;
    struct tern_recipe *r = tern_recipe_load("run.yaml", NULL, 0, &err);
    const struct tern_run_options o = {.recipe = r, .recipe_path = "run.yaml"};
    struct tern_run_attempt a = {.o = &o, .recipe_text = text, .kind = "train"};
    if (ok(r && tern_place_read(&a.place, r, 1, &err) == 0 && tern_run_attempt_begin(&a, &err) == 0,
           "an attempt begins"))
        begun(&a);
    else
        printf("# %s\n", err.text);
    tern_recipe_free(r);
    if (chdir("/") == 0)
        tern_fs_remove_tree(folder, NULL);
    return tap_done();
}

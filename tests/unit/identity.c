/* core/run: which run a recipe goes on with in its job, and which attempts live. */
#include "tests/unit/tap.h"

#include "core/base/fs.h"
#include "core/ledger/ledger.h"
#include "core/run/attempt.h"
#include "core/run/identity.h"
#include "core/run/requeue.h"

#include <sys/wait.h>
#include <unistd.h>

static char ledger[] = "/tmp/tern-test-identity-XXXXXX";

/* A run that has one attempt, in job 7, whose owner was process `pid` of this host; with an end if
 * `outcome` is set. */
static void make_run(char id[TERN_ULID_SIZE], const char *name, int64_t pid, const char *outcome)
{
    struct tern_err err = {0};

    tern_ledger_ulid_new(id);
    struct tern_ledger_spool *s = tern_ledger_spool_open(ledger, id, 1, "run", &err);
    const struct tern_ledger_run run = {.name = name, .recipe_path = "/x/run.yaml"};
    const struct tern_ledger_attempt a = {
        .kind = "train", .job_id = 7, .host = "here", .pid = pid, .world = 1};
    const struct tern_ledger_end end = {.outcome = outcome};
    if (!s || tern_ledger_spool_run(s, &run, &err) < 0 ||
        tern_ledger_spool_attempt_begin(s, &a, &err) < 0 ||
        (outcome && tern_ledger_spool_attempt_end(s, &end, &err) < 0) ||
        tern_ledger_spool_close(s, &err) < 0)
        abort();
}

/* The run that recipe `name` takes of the Comment; "" for a new one. */
static const char *chosen(const char *name, const char *path, const char *comment)
{
    static struct tern_run_attempt a;
    struct tern_recipe r = {.name = (char *)name, .ledger.dir = ledger};
    const struct tern_run_options o = {.recipe = &r, .recipe_path = path};
    struct tern_err err = {0};

    a = (struct tern_run_attempt){.o = &o, .place = {.slurm = true, .job = 7, .host = "here"}};
    if (tern_run_comment_choose(&a, comment, &err) < 0)
        abort();
    return a.id;
}

static void test_comment(pid_t living, pid_t dead)
{
    char prep[TERN_ULID_SIZE], main_run[TERN_ULID_SIZE], works[TERN_ULID_SIZE];
    char killed[TERN_ULID_SIZE], fresh[TERN_ULID_SIZE], text[200];

    make_run(prep, "prep", dead, "done");
    make_run(main_run, "main", dead, "requeued");
    make_run(works, "works", living, NULL);
    make_run(killed, "killed", dead, NULL);
    tern_ledger_ulid_new(fresh);
    is(chosen("prep", "/x/run.yaml", prep), prep, "a recipe goes on with its run of the job");
    is(chosen("main", "/x/run.yaml", prep), "", "another recipe begins a run of its own");
    is(chosen("prep", "/y/run.yaml", prep), "", "so does one of that name in another file");
    snprintf(text, sizeof text, "%s %s words of mine", prep, main_run);
    is(chosen("main", "/x/run.yaml", text), main_run, "each finds its own among the job's");
    is(chosen("prep", "/x/run.yaml", text), prep, "whichever came last");
    is(chosen("new", "/x/run.yaml", fresh), fresh, "an id that tern submit made is taken");
    snprintf(text, sizeof text, "%s %s", fresh, main_run);
    is(chosen("main", "/x/run.yaml", text), main_run, "but not before a run of the recipe");
    is(chosen("works", "/x/run.yaml", works), "",
       "a run that is at work in this job is left alone");
    is(chosen("killed", "/x/run.yaml", killed), killed, "one whose process is gone goes on");
    is(chosen("main", "/x/run.yaml", "01J words of mine"), "", "words that are no id are none");

    char *with = tern_run_comment_with("words of mine", prep);
    snprintf(text, sizeof text, "%s words of mine", prep);
    is(with, text, "the Comment keeps the user's words behind the run");
    char *two = tern_run_comment_with(with, main_run);
    snprintf(text, sizeof text, "%s %s words of mine", main_run, prep);
    is(two, text, "a second run stands in front of the first");
    char *back = tern_run_comment_with(two, prep);
    snprintf(text, sizeof text, "%s %s words of mine", prep, main_run);
    is(back, text, "each of them once");
    free(with), free(two), free(back);
}

static void test_lives(pid_t living, pid_t dead)
{
    const struct tern_run_options o = {.recipe = &(struct tern_recipe){.ledger.dir = ledger}};
    const struct tern_run_attempt a = {.o = &o, .place = {.slurm = true, .job = 7, .host = "here"}};
    struct tern_ledger_attempt other = {.job_id = 7, .host = "here", .pid = living};

    ok(tern_run_lives(&a, &other), "an attempt of this job whose process is there lives");
    other.outcome = "done";
    ok(!tern_run_lives(&a, &other), "not one that has an end");
    other.outcome = NULL;
    other.restart_count = 1;
    ok(!tern_run_lives(&a, &other), "not one of another start of the job");
    other.restart_count = 0;
    other.job_id = 8;
    ok(!tern_run_lives(&a, &other), "not one of another job");
    other.job_id = 7;
    other.pid = dead;
    ok(!tern_run_lives(&a, &other), "not one whose process is gone");
}

int main(void)
{
    pid_t living = fork(), dead;

    if (living == 0) {
        sleep(600);
        _exit(0);
    }
    dead = fork();
    if (dead == 0)
        _exit(0);
    waitpid(dead, NULL, 0);
    if (!mkdtemp(ledger))
        return 1;
    test_comment(living, dead);
    test_lives(living, dead);
    kill(living, SIGKILL);
    waitpid(living, NULL, 0);
    tern_fs_remove_tree(ledger, NULL);
    return tap_done();
}

/* core/retain: checkpoints that a workload's trainer writes. */
#include "tests/unit/disk.h"
#include "tests/unit/tap.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ledger/ledger.h"
#include "core/retain/external.h"
#include "core/retain/look.h"
#include "core/retain/retain.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static void put(const char *path, const char *text)
{
    char *dir = tern_fs_dirname(path);

    if (tern_fs_mkdirs(dir, 0777, NULL) < 0 ||
        tern_fs_replace(path, text, strlen(text), 0644, NULL) < 0)
        abort();
    free(dir);
}

static void checkpoint(const char *dir, const char *content)
{
    char *a = tern_strf("%s/model/dp_rank_00.pt", dir), *b = tern_strf("%s/done", dir);

    put(a, content);
    put(b, "1");
    free(a);
    free(b);
}

static void steps(void)
{
    static const struct {
        const char *name;
        int64_t step;
    } names[] = {{"out/step_100", 100},
                 {"checkpoint-1251", 1251},
                 {"global_step0", 0},
                 {"step_0000200", 200},
                 {"epoch=3-step=40.ckpt", 40},
                 {"v2/final", -1},
                 {"step_10_verified", 10},
                 {"latest", -1},
                 {"step_99999999999999999999", -1}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ok(tern_retain_external_step(names[i].name) == names[i].step, "step of %s", names[i].name);
}

/* Root may look everywhere. */
static void as_nobody(bool on)
{
    if (getuid() == 0 && seteuid(on ? 65534 : 0) < 0)
        abort();
}

static void finding(void)
{
    struct tern_retain_founds f = {0};
    struct tern_err e = {0};

    checkpoint("o/a/step_20", "x");
    checkpoint("o/a/step_9", "x");
    checkpoint("o/b/step_9", "x");
    checkpoint("o/b/final", "x");
    put("o/a/step_30/model/half", "no marker yet");
    put("o/a/step_40", "a file");
    if (symlink("step_20", "o/a/step_99") < 0)
        abort();
    ok(tern_retain_external_find("o/*/step_*", "done", &f, &e) == 0 && f.n == 3,
       "only complete folders are found: none half written, no file, no link, none without a "
       "number");
    ok(f.n == 3 && f.v[0].step == 9 && f.v[1].step == 9 && f.v[2].step == 20, "lowest step first");
    is(f.v[2].name, "a/step_20",
       "a checkpoint is named by its path below the fixed folders of the pattern");
    ok(f.v[2].path[0] == '/', "by a whole path");
    tern_retain_external_free(&f);
    ok(tern_retain_external_find(NULL, "done", &f, &e) == 0 && f.n == 0, "no pattern finds none");
    ok(tern_retain_external_find("none/step_*", "done", &f, &e) == 0 && f.n == 0,
       "a pattern in a missing folder finds no checkpoint");

    /* As when the storage fails for a moment: a folder that cannot be read is not gone. */
    chmod("o/a", 0600);
    as_nobody(true);
    ok(tern_retain_external_find("o/*/step_*", "done", &f, &e) < 0 && f.n == 0,
       "a folder that cannot be read is an error");
    has(e.text, "o/a", "the error names the folder that cannot be read");
    struct stat st;
    ok(tern_retain_external_there("o/a/step_9", "done", &st, &e) < 0 &&
           tern_retain_external_there("o/b/step_8", "done", &st, &e) == 0 &&
           tern_retain_external_there("o/b/step_9", "done", &st, &e) == 1,
       "a checkpoint in a folder that cannot be read is not gone");
    as_nobody(false);
    chmod("o/a", 0777);
}

/* The pruned steps of `may` ("10 20! 30": those with ! are no candidates) as text. */
static const char *choose(const char *what, int64_t keep, int64_t keep_every)
{
    static char out[200];
    int64_t step[16];
    bool may[16], drop[16];
    size_t n = 0;
    char *copy = tern_strdup(what), *at = NULL;

    for (char *w = strtok_r(copy, " ", &at); w; w = strtok_r(NULL, " ", &at)) {
        may[n] = !strchr(w, '!');
        step[n++] = atoll(w);
    }
    tern_retain_external_choose(step, may, n, keep, keep_every, drop);
    out[0] = '\0';
    for (size_t i = 0; i < n; i++)
        if (drop[i])
            snprintf(out + strlen(out), sizeof out - strlen(out), "%lld ", (long long)step[i]);
    free(copy);
    return out;
}

static void choosing(void)
{
    is(choose("10 20 30 40", 2, 0), "10 20 ", "the newest two stay");
    is(choose("10 20 30 40", 0, 0), "", "keep 0 prunes nothing");
    is(choose("10 20 30 40", 2, 20), "10 ", "multiples stay for good");
    is(choose("10 20 30 40!", 2, 0), "10 ",
       "an unverified checkpoint is neither counted nor pruned");
    is(choose("10! 20! 30 40", 2, 0), "", "an old unverified checkpoint is not pruned");
    is(choose("10 20 30 40! 50!", 1, 0), "10 20 ", "the newest verified checkpoints stay");
    is(choose("40 40", 1, 0), "", "a checkpoint of the newest step is never pruned");
    is(choose("", 2, 0), "", "without checkpoints none is pruned");
}

/* ------------------------------------------------------------------ looks */

static char run_id[TERN_ULID_SIZE];

static struct tern_retain_options options(void)
{
    return (struct tern_retain_options){.ledger_dir = "ledger",
                                        .run_id = run_id,
                                        .attempt = 1,
                                        .glob = "out/step_*",
                                        .marker = "done"};
}

/* "10 verified, 20 foreign": the newest state of each path below `under`. */
static const char *rows(const char *under)
{
    static char out[400];
    struct tern_ledger_rows r = {0};
    struct tern_err e = {0};
    struct tern_ledger *l = tern_ledger_open_run("ledger", run_id, &e);

    out[0] = '\0';
    if (!l || tern_ledger_checkpoints(l, &r, &e) < 0) {
        snprintf(out, sizeof out, "%.390s", e.text);
        return out;
    }
    for (int64_t step = 0; step < 100; step++)
        for (size_t i = 0; i < r.n; i++)
            if (r.checkpoints[i].step == step && strstr(r.checkpoints[i].path, under))
                snprintf(out + strlen(out), sizeof out - strlen(out), "%s%lld %s", *out ? ", " : "",
                         (long long)step, r.checkpoints[i].state);
    tern_ledger_rows_free(&r);
    tern_ledger_close(l);
    return out;
}

static void keep(const struct tern_retain_options *o)
{
    struct tern_err e = {0};

    if (!ok(tern_retain_once(o, &e) == 0, "a look succeeds"))
        printf("# %s\n", e.text);
}

/* Folder `path` got a name that begins with `trash`; that was durable before anything in it went.
 */
static bool pruned_in_order(const char *path, const char *trash)
{
    char *from = realpath("out", NULL), *hidden = tern_fs_join(from, tern_fs_basename(trash));
    int moved = -1, gone = -1;

    for (int i = 0; i < disk_n; i++) {
        const struct disk_event *e = &disk_events[i];
        if (strcmp(e->call, "rename") == 0 && tern_str_ends(e->path, path) && moved < 0)
            moved = i;
        if (strcmp(e->call, "unlink") == 0 && tern_str_starts(e->path, hidden) && gone < 0)
            gone = i;
    }
    bool good = moved >= 0 && gone > moved && disk_synced(from, moved, gone);
    if (!good)
        disk_print();
    free(hidden);
    free(from);
    return good;
}

static void registering(const struct tern_retain_options *o)
{
    struct tern_retain_record r = {0};
    struct tern_err e = {0};

    checkpoint("out/step_5", "of a run before this one");
    keep(o);
    is(rows("out/"), "", "a checkpoint from before the run is not registered");
    checkpoint("out/step_10", "ten");
    checkpoint("out/step_20", "twenty");
    put("out/step_30/model/half", "");
    keep(o);
    is(rows("out/"), "10 verified, 20 verified",
       "checkpoints of the run are registered and verified");
    char *dir = tern_retain_external_dir("ledger", run_id), *path = realpath("out/step_20", NULL);
    char *file = tern_retain_record_path(dir, path);
    ok(tern_retain_record_read(file, &r, NULL, &e) == 0 && r.step == 20 && r.files == 2 &&
           r.bytes == 7 && !r.deleted && !r.mirror,
       "a verified checkpoint has its record beside the ledger");
    tern_retain_record_free(&r);
    ok(!tern_fs_exists("out/step_20/manifest.json"), "no record is in the trainer's folder");
    free(file);
    free(path);
    free(dir);
}

static void mirroring(const struct tern_retain_options *o)
{
    struct tern_err e = {0};

    keep(o);
    is(rows("mirror/"), "10 verified, 20 verified", "copies have rows of their own in the ledger");
    ok(tern_fs_exists("mirror/step_10/model/dp_rank_00.pt") && !tern_fs_exists("mirror/step_5"),
       "the mirror has the copies");

    checkpoint("out/step_20", "twenty, again"); /* by an attempt that began before it */
    keep(o);
    char *text = NULL;
    size_t len = 0;
    ok(tern_fs_read("mirror/step_20/model/dp_rank_00.pt", 100, &text, &len, &e) == 0,
       "a checkpoint written again has its copy");
    is(text, "twenty, again", "a mirror follows a checkpoint that is written again");
    free(text);
}

/* All but the newest two, once they are mirrored. */
static void pruning(const struct tern_retain_options *o)
{
    put("mirror/step_30/else", "somebody's");
    checkpoint("out/step_30", "thirty");
    checkpoint("out/step_40", "forty");
    keep(o);
    is(rows("out/"), "10 deleted, 20 verified, 30 verified, 40 verified",
       "only mirrored checkpoints count: 20 and 40 are the newest two");
    ok(tern_fs_exists("mirror/step_30/else") && !tern_fs_exists("mirror/step_30/model"),
       "another user's file in the mirror stays");
    tern_fs_remove_tree("mirror/step_30", NULL);
    disk_clear();
    keep(o);
    ok(pruned_in_order("out/step_20", "out/.step_20."),
       "a pruned checkpoint's rename is durable before its first file is removed");
    is(rows("out/"), "10 deleted, 20 deleted, 30 verified, 40 verified",
       "the newest two checkpoints stay registered");
    ok(!tern_fs_exists("out/step_10") && tern_fs_exists("out/step_5") &&
           tern_fs_exists("mirror/step_10"),
       "only verified and mirrored checkpoints are pruned");

    tern_fs_remove_tree("out/step_30", NULL);
    keep(o);
    is(rows("out/"), "10 deleted, 20 deleted, 30 deleted, 40 verified",
       "a checkpoint that the trainer removes is recorded as deleted");
}

/* Checkpoints that came by tern metric, and one with a link that leads out. */
static void mirroring_others(const struct tern_retain_options *o, struct tern_ledger_spool *s)
{
    checkpoint("elsewhere/best", "registered");
    char *best = realpath("elsewhere/best", NULL);
    tern_ledger_spool_checkpoint(
        s, &(struct tern_ledger_checkpoint){.step = 7, .path = best, .state = "foreign"}, NULL);
    keep(o);
    is(rows("elsewhere/"), "7 verified", "a checkpoint that tern metric registered is verified");
    ok(tern_fs_exists("mirror/best/done"), "is mirrored, too");
    if (symlink("/etc", "out/step_40/etc") < 0)
        abort();
    checkpoint("out/step_50", "fifty");
    if (symlink("/etc", "out/step_50/etc") < 0)
        abort();
    keep(o);
    has(rows("out/"), "50 foreign", "a checkpoint with a link that leads out is never verified");
    free(best);
}

static void keeping(void)
{
    struct tern_retain_options o = options();
    struct tern_ledger_spool *s =
        tern_ledger_spool_open("ledger", tern_ledger_ulid_new(run_id), 1, "run", NULL);

    tern_ledger_spool_run(s, &(struct tern_ledger_run){.name = "unit"}, NULL);
    registering(&o);
    o.mirror = "mirror";
    mirroring(&o);
    o.keep = 2;
    pruning(&o);
    mirroring_others(&o, s);
    tern_ledger_spool_close(s, NULL);
}

static void tell(struct tern_ledger_spool *s, int64_t step, const char *path)
{
    char *real = realpath(path, NULL);

    tern_ledger_spool_checkpoint(
        s, &(struct tern_ledger_checkpoint){.step = step, .path = real, .state = "foreign"}, NULL);
    free(real);
}

/* A trainer whose checkpoints are known only by `tern metric checkpoint=DIR`. */
static void registered(void)
{
    struct tern_retain_options o = options();
    struct tern_ledger_spool *s =
        tern_ledger_spool_open("ledger", tern_ledger_ulid_new(run_id), 1, "run", NULL);

    tern_ledger_spool_run(s, &(struct tern_ledger_run){.name = "unit"}, NULL);
    const struct timespec past[2] = {{.tv_sec = 1700000000}, {.tv_sec = 1700000000}};
    checkpoint("reg/base-1", "there before the run");
    if (utimensat(AT_FDCWD, "reg/base-1", past, 0) < 0)
        abort();
    o.glob = o.marker = NULL;
    o.keep = 2;
    keep(&o);
    static const char *const made[] = {"reg/at-2", "reg/best", "reg/at-10", "reg/at-20",
                                       "reg/at-30"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        checkpoint(made[i], "x");
    tell(s, 1, "reg/base-1");
    tell(s, 2, "reg/at-2");
    tell(s, 5, "reg/best");
    tell(s, 10, "reg/at-10");
    tell(s, 20, "reg/at-20");
    tell(s, 30, "reg/at-30");
    put("reg/at-10.new", "beside it");
    keep(&o);
    is(rows("reg/"), "1 verified, 2 deleted, 5 verified, 10 deleted, 20 verified, 30 verified",
       "registered checkpoints are pruned to the newest two");
    ok(!tern_fs_exists("reg/at-10") && tern_fs_exists("reg/at-20") && tern_fs_exists("reg/best") &&
           tern_fs_exists("reg/base-1") && tern_fs_exists("reg/at-10.new"),
       "folders from before the run, or without a step in the name, are not pruned");
    ok(symlink("at-30", "reg/gold") == 0, "a person names one of them by a link");
    tell(s, 20, "reg/at-20");
    checkpoint("reg/at-40", "x");
    checkpoint("reg/at-50", "x");
    put("reg/at-20/in-60/w", "x");
    tell(s, 60, "reg/at-20/in-60");
    tell(s, 40, "reg/at-40");
    tell(s, 50, "reg/at-50");
    keep(&o);
    is(rows("reg/"),
       "1 verified, 2 deleted, 5 verified, 10 deleted, 20 verified, 30 verified, 40 deleted, "
       "50 verified, 60 verified",
       "a folder that holds another checkpoint, or that a link names, is not pruned");
    tern_ledger_spool_close(s, NULL);
}

/* A trainer may make and tell a folder before it has written to it, or never write to it. */
static void empty(void)
{
    struct tern_retain_options o = options();
    struct tern_ledger_spool *s =
        tern_ledger_spool_open("ledger", tern_ledger_ulid_new(run_id), 1, "run", NULL);

    tern_ledger_spool_run(s, &(struct tern_ledger_run){.name = "unit"}, NULL);
    o.glob = o.marker = NULL;
    keep(&o);
    if (tern_fs_mkdirs("empty/at-10/model", 0777, NULL) < 0)
        abort();
    put("empty/at-20/done", "");
    tell(s, 10, "empty/at-10");
    tell(s, 20, "empty/at-20");
    keep(&o);
    is(rows("empty/"), "10 foreign, 20 foreign",
       "neither an empty folder nor one of empty files is a verified checkpoint");
    put("empty/at-10/model/w", "written");
    keep(&o);
    is(rows("empty/"), "10 verified, 20 foreign",
       "a folder that was registered while it was empty is verified once it has its files");
    tern_ledger_spool_close(s, NULL);
}

/* The attempt that made `path` by the ledger, its state and its bytes. */
static const char *maker(const char *under)
{
    static char out[100];
    struct tern_ledger_rows r = {0};
    struct tern_ledger *l = tern_ledger_open_run("ledger", run_id, NULL);

    strcpy(out, "none");
    if (l && tern_ledger_checkpoints_made(l, &r, NULL) == 0)
        for (size_t i = 0; i < r.n; i++)
            if (strstr(r.checkpoints[i].path, under))
                snprintf(out, sizeof out, "%u %s %lld", r.checkpoints[i].attempt,
                         r.checkpoints[i].state, (long long)r.checkpoints[i].bytes);
    tern_ledger_rows_free(&r);
    tern_ledger_close(l);
    return out;
}

/* Whether a run makes headway depends on the attempt that made a checkpoint (history.h): later
 * attempts do not make it again. */
static void makers(void)
{
    struct tern_retain_options o = options();
    struct tern_ledger_spool *s =
        tern_ledger_spool_open("ledger", tern_ledger_ulid_new(run_id), 1, "run", NULL);

    tern_fs_remove_tree("out", NULL);
    tern_ledger_spool_run(s, &(struct tern_ledger_run){.name = "unit"}, NULL);
    tern_ledger_spool_close(s, NULL);
    keep(&o);
    checkpoint("out/step_10", "ten");
    if (symlink("/etc", "out/step_10/etc") < 0)
        abort();
    keep(&o);
    is(maker("out/step_10"), "1 foreign 0",
       "a checkpoint is made by the attempt that saw it first");
    o.attempt = 2;
    keep(&o);
    o.attempt = 3;
    keep(&o);
    is(maker("out/step_10"), "1 foreign 0", "later attempts do not make it again, verified or not");
    if (unlink("out/step_10/etc") < 0)
        abort();
    o.attempt = 4;
    o.mirror = "mirror";
    keep(&o);
    is(maker("out/step_10"), "1 verified 4", "the attempt that verifies it does not make it");
    is(maker("mirror/step_10"), "none", "a copy is made by no attempt");
    checkpoint("out/step_10", "again");
    o.attempt = 5;
    keep(&o);
    is(maker("out/step_10"), "5 verified 6", "a checkpoint written again is made again");

    chmod("out", 0);
    as_nobody(true);
    ok(tern_retain_once(&o, NULL) < 0, "a look at a folder that cannot be read fails");
    as_nobody(false);
    chmod("out", 0777);
    is(maker("out/step_10"), "5 verified 6", "a failed look records no checkpoint as deleted");
    tern_fs_remove_tree("out/step_10", NULL);
    keep(&o);
    is(maker("out/step_10"), "5 deleted 6", "a removed checkpoint is recorded as deleted");
    checkpoint("out/step_10", "and again");
    keep(&o);
    char *text = NULL;
    size_t len = 0;
    ok(tern_fs_read("mirror/step_10/model/dp_rank_00.pt", 100, &text, &len, NULL) == 0,
       "a checkpoint written again has its copy");
    is(text ? text : "", "and again", "the copy is that of the new checkpoint");
    free(text);
}

/* A run that tern 0.3 began goes on with its records, which lie in the folder "foreign". */
static void old_records(void)
{
    struct tern_retain_options o = options();
    struct tern_ledger_spool *s =
        tern_ledger_spool_open("ledger", tern_ledger_ulid_new(run_id), 1, "run", NULL);
    char old[200], new[200];

    snprintf(old, sizeof old, "ledger/runs/%s/foreign", run_id);
    snprintf(new, sizeof new, "ledger/runs/%s/external", run_id);
    tern_fs_remove_tree("out", NULL);
    tern_ledger_spool_run(s, &(struct tern_ledger_run){.name = "unit"}, NULL);
    tern_ledger_spool_close(s, NULL);
    keep(&o);
    checkpoint("out/step_10", "ten");
    keep(&o);
    char *dir = tern_retain_external_dir("ledger", run_id);
    is(dir, new, "records of a run lie in its folder external");
    free(dir);
    ok(rename(new, old) == 0, "the records lie in the folder foreign, as of tern 0.3");
    dir = tern_retain_external_dir("ledger", run_id);
    is(dir, old, "the records of a run of tern 0.3 are found");
    free(dir);
    o.attempt = 2;
    checkpoint("out/step_20", "twenty");
    keep(&o);
    is(maker("out/step_10"), "1 verified 4",
       "checkpoints of an earlier attempt are not registered again");
    is(maker("out/step_20"), "2 verified 7", "a new checkpoint is registered and verified");
    ok(!tern_fs_exists(new), "the run keeps one folder of records");
}

/* Failed work is not tried again at every look. */
static void retries(void)
{
    struct tern_retain_options o = options();
    struct tern_ledger_spool *s =
        tern_ledger_spool_open("ledger", tern_ledger_ulid_new(run_id), 1, "run", NULL);
    struct tern_retain_look k;
    struct tern_err e = {0};

    tern_fs_remove_tree("out", NULL);
    tern_ledger_spool_run(s, &(struct tern_ledger_run){.name = "unit"}, NULL);
    tern_ledger_spool_close(s, NULL);
    put("wall", "no folder");
    o.mirror = "wall/mirror";
    if (!ok(tern_retain_note_before(&o, &e) == 0 && tern_retain_look_open(&k, &o, &e) == 0,
            "the retention process opens"))
        return;
    checkpoint("out/step_10", "ten");
    tern_retain_look_find(&k, &e);
    tern_retain_work(&k);
    ok(k.n == 1 && k.item[0].reported && !k.item[0].r.mirror,
       "a mirror that cannot be written is reported");
    unlink("wall");
    tern_retain_look_find(&k, &e);
    tern_retain_work(&k);
    ok(!tern_fs_exists("wall/mirror/step_10"), "failed work is not tried again at once");
    k.last = true;
    tern_retain_work(&k);
    ok(tern_fs_exists("wall/mirror/step_10/done"), "failed work is tried again in the last look");
    tern_retain_look_close(&k);
}

/* What was there before the run is not the run's, until it is written again. */
static void before(void)
{
    struct tern_retain_options o = options();
    struct tern_ledger_spool *s =
        tern_ledger_spool_open("ledger", tern_ledger_ulid_new(run_id), 1, "run", NULL);

    tern_ledger_spool_run(s, &(struct tern_ledger_run){.name = "unit"}, NULL);
    tern_fs_remove_tree("out", NULL);
    checkpoint("out/step_10", "of a run before");
    keep(&o);
    is(rows("out/"), "", "a checkpoint of an earlier run is not registered");
    checkpoint("out/step_10", "of this run");
    keep(&o);
    is(rows("out/"), "10 verified", "one that the run writes again, under that name, is its own");
    chmod("out", 0600); /* as when storage fails for a moment */
    struct tern_retain_look k;
    struct tern_err e = {0};
    if (tern_retain_look_open(&k, &o, &e) == 0) {
        k.o.glob = NULL;
        as_nobody(true);
        tern_retain_look_find(&k, &e);
        as_nobody(false);
        ok(k.n == 1, "a checkpoint that cannot be looked at is not gone");
        tern_retain_look_close(&k);
    }
    chmod("out", 0777);
    tern_ledger_spool_close(s, NULL);
}

/* Failed work is tried again after a minute, two, four, up to an hour. */
static void delays(void)
{
    const double minute = 60e9;
    struct tern_retain_retry r = {0};
    bool doubled = true;

    for (int i = 0; i < 9; i++) {
        const double now = (double)tern_clock_boot_ns(), want = i < 6 ? 1 << i : 60;
        tern_retain_retry_later(&r);
        const double got = ((double)r.at_ns - now) / minute;
        const double took = ((double)tern_clock_boot_ns() - now) / minute;
        doubled = doubled && got >= want && got <= want + took + 0.01;
    }
    ok(doubled, "failed work is tried again after 1, 2, 4 .. 32 minutes, then each hour");
}

int main(void)
{
    char dir[] = "/tmp/tern-unit-retain-XXXXXX";

    if (!mkdtemp(dir) || chmod(dir, 0755) < 0 || chdir(dir) < 0)
        return 1;
    steps();
    finding();
    choosing();
    keeping();
    registered();
    empty();
    makers();
    old_records();
    retries();
    before();
    delays();
    if (chdir("/") == 0)
        tern_fs_remove_tree(dir, NULL);
    return tap_done();
}

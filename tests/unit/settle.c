/* core/run/settle: rows of checkpoints that a killed trainer left, beside what lies in its folder.
 */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/run/settle.h"
#include "tests/unit/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char work[] = "/tmp/tern-settle-XXXXXX";
static char *ledger, *dir;
static struct tern_recipe recipe;
static struct tern_run_options options = {.recipe = &recipe};
static struct tern_run_attempt attempt = {.o = &options, .kind = "train"};

static char *path_of(uint64_t step)
{
    return tern_strf("%s/step-%08llu", dir, (unsigned long long)step);
}

/* A checkpoint of `step`, by attempt `by`. */
static void save(uint64_t step, unsigned by)
{
    struct tern_ckpt_array x = {"x", TERN_CKPT_F64, 0, {0}, {0}, {0}, &(double){1}, .owner = true};
    static struct tern_ckpt_lease *lease;
    struct tern_err err = {0};
    json_t *meta = json_object();

    if (lease && tern_ckpt_lease_attempt(lease) != by) {
        tern_ckpt_lease_free(lease, false);
        lease = NULL;
    }
    if (!lease && tern_ckpt_lease_acquire(dir, by, "test", &lease, &err) < 0)
        abort();
    const struct tern_ckpt_save_options o = {
        .dir = dir, .step = step, .arrays = &x, .n = 1, .meta = meta, .lease = lease};
    if (tern_ckpt_save(&o, NULL, &err) < 0)
        abort();
    json_decref(meta);
}

static void row(struct tern_ledger_spool *s, const char *path, int64_t step, const char *state)
{
    const struct tern_ledger_checkpoint c = {
        .step = step, .path = path, .bytes = 7, .shards = 1, .state = state};

    if (tern_ledger_spool_checkpoint(s, &c, NULL) != 0)
        abort();
}

static void row_of(struct tern_ledger_spool *s, int64_t step, const char *state)
{
    char *path = path_of((uint64_t)step);

    row(s, path, step, state);
    free(path);
}

/* "3 published 1," a checkpoint: step, state, attempt. */
static void states(char *to, size_t size)
{
    struct tern_ledger_rows rows = {0};
    struct tern_ledger *l = tern_ledger_open_run(ledger, attempt.id, NULL);
    size_t len = 0;

    to[0] = '\0';
    if (!l || tern_ledger_checkpoints(l, &rows, NULL) < 0)
        abort();
    for (size_t i = 0; i < rows.n; i++)
        len += (size_t)snprintf(to + len, size - len, "%lld %s %u,",
                                (long long)rows.checkpoints[i].step, rows.checkpoints[i].state,
                                rows.checkpoints[i].attempt);
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
}

static uint64_t records(void)
{
    struct tern_ledger_check c = {0};

    return tern_ledger_verify(ledger, attempt.id, &c, NULL, NULL) < 0 ? 0 : c.records;
}

static struct tern_ledger_spool *begin(unsigned number)
{
    struct tern_ledger_spool *s = tern_ledger_spool_open(ledger, attempt.id, number, "run", NULL);

    if (!s || tern_ledger_spool_attempt_begin(
                  s, &(struct tern_ledger_attempt){.world = 1, .kind = "train"}, NULL) != 0)
        abort();
    return s;
}

static void damage(uint64_t step)
{
    char *path = path_of(step), *file = tern_fs_join(path, "manifest.json");

    if (tern_fs_replace(file, "{", 1, 0644, NULL) < 0)
        abort();
    free(path), free(file);
}

static void test_rows(void)
{
    char *elsewhere = tern_fs_join(work, "other/step-00000009"), text[400];
    struct tern_ledger_spool *first = begin(1);

    row_of(first, 1, "published"); /* deleted, and the row did not get there */
    row_of(first, 2, "published");
    save(2, 1);
    row_of(first, 3, "writing"); /* got its name */
    save(3, 1);
    row_of(first, 4, "writing"); /* did not */
    save(5, 1);                  /* has no row */
    save(6, 5);                  /* of an attempt that is not in the ledger */
    row_of(first, 7, "published");
    save(7, 6);
    damage(7); /* for people to see */
    row_of(first, 8, "deleted");
    row(first, elsewhere, 9, "published");
    tern_ledger_spool_close(first, NULL);

    attempt.number = 2;
    attempt.spool = begin(2);
    tern_run_settle_checkpoints(&attempt);
    states(text, sizeof text);
    is(text,
       "1 deleted 1,2 published 1,3 published 1,4 failed 1,5 published 1,7 published 1,"
       "8 deleted 1,9 published 1,",
       "rows say what lies in the folder, and which attempt made it");
    const uint64_t before = records();
    tern_run_settle_checkpoints(&attempt);
    ok(before && records() == before, "rows that are right are not written again");

    row_of(attempt.spool, 12, "writing");
    save(12, 7);
    row_of(attempt.spool, 13, "writing");
    tern_run_settle_checkpoints(&attempt);
    states(text, sizeof text);
    ok(strstr(text, "12 published 2,13 failed 2,"), "rows of the attempt itself are set right: %s",
       text);
    attempt.kind = "trial";
    row_of(attempt.spool, 14, "writing");
    tern_run_settle_checkpoints(&attempt);
    states(text, sizeof text);
    ok(strstr(text, "14 writing 2,"), "an attempt of another kind changes nothing");
    tern_ledger_spool_close(attempt.spool, NULL);
    free(elsewhere);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    ledger = tern_fs_join(work, "ledger");
    dir = tern_fs_join(work, "checkpoints");
    recipe.ledger.dir = ledger;
    recipe.checkpoint.dir = dir;
    tern_ledger_ulid_new(attempt.id);
    if (tern_fs_mkdirs(dir, 0777, NULL) < 0)
        return 1;
    test_rows();
    free(ledger), free(dir);
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

/* Folders that appear whole, of other rooms than durable.c has: their files, the folder and its
 * name are made durable in that order.  The last two come from a server. */
#include "tests/unit/placed.h"
#include "tests/unit/s3.h"

#include "core/base/json.h"
#include "core/ckpt/ckpt.h"
#include "core/ckpt/local.h"
#include "core/convert/export.h"
#include "core/export/folder.h"
#include "core/fetch/fetch.h"
#include "core/ledger/fold.h"
#include "core/ledger/ledger.h"
#include "core/render/render.h"
#include "core/retain/restore_parts.h"
#include "core/tensorboard/tensorboard.h"

#include <dirent.h>
#include <sys/stat.h>

static void test_local(void)
{
    char *root = in_work("nodes/local"), *above = in_work("nodes"),
         *run = tern_fs_join(root, "run"), *node = tern_fs_join(run, "node-0");

    disk_clear();
    ok(tern_ckpt_local_make(node, &err) == 0 && checked(disk_synced(above, 0, -1)),
       "checkpoint.local: the name of a folder that a run makes on a node is durable");
    ok(checked(disk_synced(root, 0, -1) && disk_synced(run, 0, -1)),
       "checkpoint.local: the names of a run's folder and its node's are durable");
    free(node), free(run), free(above), free(root);
}

/* ------------------------------------------------------------------ conversions */

static int begin(struct tern_convert_export *x, const char *out)
{
    struct tern_buf what = {0};

    *x = (struct tern_convert_export){0};
    tern_buf_puts(&what, "a conversion");
    disk_clear();
    const int rc = tern_convert_folder_begin(x, out, &what, &err);
    tern_buf_free(&what);
    return rc;
}

/* The name of the one file in a conversion's folder that has just begun: what it is of. */
static char *job_of(const struct tern_convert_export *x)
{
    DIR *d = opendir(x->temp);
    char *path = NULL;

    for (struct dirent *e; d && !path && (e = readdir(d));)
        path = e->d_type == DT_REG ? tern_fs_join(x->temp, e->d_name) : NULL;
    if (d)
        closedir(d);
    return path;
}

static void test_conversion(void)
{
    struct tern_convert_export x, again;
    char *out = in_work("converted");

    ok(begin(&x, out) == 0, "a conversion begins");
    char *job = job_of(&x);
    ok(job && checked(disk_synced(job, 0, -1)),
       "what a conversion's folder is of is durable before the first file is in it");
    /* As if it was killed just behind its rename. */
    ok(rename(x.temp, out) == 0 && close(x.job) == 0, "its folder has its name");
    ok(begin(&again, out) == 1 && checked(disk_synced(work, 0, -1)),
       "a conversion that was killed behind its rename: the next call makes the name durable");
    free(x.temp);
    free(job);
    free(out);
}

/* ------------------------------------------------------------------ token sets for others */

static void test_export(void)
{
    char *out = in_work("exported");
    struct tern_export_folder f;
    struct tern_export_file x;

    disk_clear();
    int rc = tern_export_folder_begin(&f, out, &err);
    for (int i = 0; rc == 0 && i < 2; i++) {
        rc = tern_export_file_open(&x, &f, i ? "tokens.idx" : "tokens.bin", &err);
        if (rc == 0)
            rc = tern_export_file_close(&x, tern_export_file_add(&x, "text", 4, &err), &err);
    }
    ok(tern_export_folder_end(&f, rc, &err) == 0 && checked(folder_placed(out, 2)),
       "an exported token set: files and folder are durable before its name, and that after");
    free(out);
}

/* ------------------------------------------------------------------ what is made of a ledger */

/* A name that no link(2) can keep: that of a folder, where a file should be. */
static void test_aside(void)
{
    char *path = in_work("run.db"), *kept = in_work("run.db.bad"),
         *second = in_work("run.db.bad.2");

    ok(mkdir(path, 0755) == 0 && tern_ledger_aside_put(path, &err) == 0 && !tern_fs_exists(path) &&
           tern_fs_exists(kept),
       "a folder in a database's place is kept aside under another name");
    ok(mkdir(path, 0755) == 0 && tern_ledger_aside_put(path, &err) == 0 && tern_fs_exists(kept) &&
           tern_fs_exists(second),
       "a second one as well");
    free(second), free(kept), free(path);
}

static void test_ledger(void)
{
    char id[TERN_ULID_SIZE], *ledger = in_work("ledger"), *to = in_work("other"), *made = NULL;
    struct tern_ledger_merged merged;
    int files = 0;
    uint64_t n;

    tern_ledger_ulid_new(id);
    struct tern_ledger_spool *s = tern_ledger_spool_open(ledger, id, 1, "run", &err);
    tern_ledger_spool_run(s, &(struct tern_ledger_run){.name = "x"}, &err);
    tern_ledger_spool_attempt_begin(s, &(struct tern_ledger_attempt){.host = "n", .pid = 7}, &err);
    tern_ledger_spool_step(s, 1, &(struct tern_ledger_value){"loss", 2}, 1, &err);

    char *run = tern_strf("%s/runs/%s", to, id), *spool = tern_strf("%s/spool/1/run.0.spool", run);
    disk_clear();
    ok(tern_ledger_merge(ledger, to, id, /* dry_run= */ false, &merged, &err) == 0 &&
           merged.new_run && tern_fs_exists(spool),
       "a run is merged into another ledger");
    const int at = disk_find(0, "rename", run);
    char *above = tern_fs_dirname(run);
    ok(checked(at >= 0 && disk_synced(above, at, -1)), "a merged run's name is durable");
    ok(checked(at >= 0 && tree_synced(run, at, &files)) && files > 0,
       "a merged run's files and folders are durable before it has its name");
    tern_ledger_spool_step(s, 2, &(struct tern_ledger_value){"loss", 1}, 1, &err);
    tern_ledger_spool_close(s, &err);
    disk_clear();
    ok(tern_ledger_merge(ledger, to, id, /* dry_run= */ false, &merged, &err) == 0 &&
           merged.grown == 1 && checked(placed("rename", spool)),
       "a longer spool is durable before it takes the shorter one's place, and that after");

    char *board = in_work("board");
    struct tern_ledger *l = tern_ledger_open_run(ledger, id, &err);
    disk_clear();
    ok(l && tern_tensorboard_export(l, board, &made, &n, &err) == 0 && n == 2,
       "event files of a run are exported");
    ok(made && checked(folder_placed(made, 1)),
       "event files and their folder are durable before its name, and that after");
    tern_ledger_close(l);
    free(board), free(made), free(above), free(spool), free(run), free(to), free(ledger);
}

/* ------------------------------------------------------------------ files of a layout */

static void test_render(void)
{
    static struct tern_render r = {.form = "pcluster", .n_files = 2};
    char *out = in_work("rendered"), *file = tern_fs_join(out, "cluster.yaml");
    int files = 0;

    r.file[0].name = "cluster.yaml";
    tern_buf_puts(&r.file[0].text, "first");
    r.file[1].name = "scripts/setup.sh";
    tern_buf_puts(&r.file[1].text, "true");
    disk_clear();
    ok(tern_render_write(&r, out, &err) == 0, "files of a layout are written");
    const int at = disk_find(0, "rename", out);
    ok(checked(at >= 0 && placed("rename", out) && tree_synced(out, at, &files)) && files >= 2,
       "a layout's files and folders are durable before the whole gets its name, and that after");
    tern_buf_clear(&r.file[0].text);
    tern_buf_puts(&r.file[0].text, "second");
    disk_clear();
    ok(tern_render_write(&r, out, &err) == 0 && checked(placed("rename", out)),
       "a folder that takes an earlier one's place is durable before, and the exchange after");
    char *text = NULL;
    size_t len;
    ok(tern_fs_read(file, 100, &text, &len, &err) == 0, "the file is there");
    is(text, "second", "the newer files have the folder's name");
    tern_buf_free(&r.file[0].text);
    tern_buf_free(&r.file[1].text);
    free(text), free(file), free(out);
}

/* ------------------------------------------------------------------ from a server */

static void test_fetch(void)
{
    struct tern_store *s = tern_store_open("s3://bucket/set/", NULL, &err);
    const struct tern_fetch_how how = {.threads = 1};
    struct tern_fetch_list l = {0};
    struct tern_fetch_done done;
    char *dir = in_work("fetched"), *in = tern_fs_join(dir, "in");
    char *one = tern_fs_join(dir, "above"), *two = tern_fs_join(in, "two");

    ok(s && tern_store_put(s, "above", "1", 1, NULL, &err) == 0 &&
           tern_store_put(s, "in/two", "22", 2, NULL, &err) == 0,
       "a bucket has two files");
    tern_store_close(s);
    disk_clear();
    ok(tern_fetch_list("s3://bucket/set/", &how, &l, &err) == 0 &&
           tern_fetch_get(&l, dir, &how, &done, &err) == 0 && done.fetched_files == 2,
       "both are fetched: %s", err.text);
    ok(checked(placed("rename", one)) && checked(placed("rename", two)),
       "a fetched file is durable before its name, and that after");
    ok(checked(disk_synced(dir, disk_find(0, "rename", two), -1) && disk_synced(work, 0, -1)),
       "the names of the folders that a fetch makes are durable");
    tern_fetch_list_free(&l);
    free(two), free(one), free(in), free(dir);
}

/* A checkpoint of one array lies in a bucket as s3://bucket/copies/step-00000001. */
static void put_checkpoint(const char *dir)
{
    const float x[] = {1, 2, 3};
    struct tern_ckpt_array a = {"x", TERN_CKPT_F32, 1, {3}, {0}, {3}, x, .owner = true};
    json_t *meta = json_pack("{s:s}", "run", "01J00000000000000000000001");
    struct tern_ckpt_save_options o = {.dir = dir, .step = 1, .arrays = &a, .n = 1, .meta = meta};
    char *from = tern_fs_join(dir, "step-00000001");
    struct tern_store *s = tern_store_open("s3://bucket/copies/step-00000001/", NULL, &err);

    ok(tern_ckpt_save(&o, NULL, &err) == 0, "a checkpoint is saved: %s", err.text);
    DIR *d = opendir(from);
    for (struct dirent *e; d && (e = readdir(d));) {
        char *path = tern_fs_join(from, e->d_name), *text = NULL;
        size_t len;
        if (e->d_type == DT_REG && tern_fs_read(path, 1 << 20, &text, &len, &err) == 0)
            ok(tern_store_put(s, e->d_name, text, len, NULL, &err) == 0, "%s is put", e->d_name);
        free(text);
        free(path);
    }
    if (d)
        closedir(d);
    tern_store_close(s);
    free(from);
    json_decref(meta);
}

static void test_restore(void)
{
    const struct tern_retain_restore how = {.mirror = "s3://bucket/copies", .run_id = ""};
    struct tern_retain_restore_shared shared = {0};
    struct tern_retain_restored copy = {0};
    char *dir = in_work("saved"), *to = in_work("step-00000001"), *aside = in_work("aside");

    put_checkpoint(dir);
    ok(tern_retain_restore_bucket_find(&how, UINT64_MAX, &copy, &err) == 1, "its copy is found: %s",
       err.text);
    disk_clear();
    ok(copy.manifest &&
           tern_retain_restore_bucket_bring(&how, &copy, aside, to, &shared, &err) == 0,
       "the copy comes back: %s", err.text);
    ok(checked(folder_placed(to, 2)),
       "a checkpoint from object storage is durable before its name, and that after");
    tern_retain_restore_free(&copy);
    free(aside), free(to), free(dir);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_local();
    test_conversion();
    test_export();
    test_aside();
    test_ledger();
    test_render();
    if (!s3_built()) {
        tap_skip("built without libcurl");
    } else if (s3_start()) {
        test_fetch();
        test_restore();
    } else {
        tap_skip("no python3 for a server of object storage");
    }
    s3_end();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

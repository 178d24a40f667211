/* What a power cut could take is made durable in time: a file before its name appears, the folder
 * after.  Each test removes nothing and cuts no power: it looks at the order of the system calls.
 */
#include "tests/unit/placed.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/base/tree.h"
#include "core/ckpt/ckpt.h"
#include "core/convert/convert.h"
#include "core/convert/nxd.h"
#include "core/data/data.h"
#include "core/ledger/ledger.h"
#include "core/model/model.h"
#include "tests/unit/tap.h"

#include <stdlib.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------ checkpoints */

/* Saves the one weight of a model that is none, as step `step`. */
static int save(const char *dir, uint64_t step, struct tern_ckpt_lease *lease)
{
    const float x[] = {1, 2, 3};
    char *config = in_work("config.json");
    struct tern_ckpt_array a = {"x", TERN_CKPT_F32, 1, {3}, {0}, {3}, x, .owner = true};
    struct tern_ckpt_file file = {.name = "config.json", .path = config};
    json_t *meta = json_object();
    struct tern_ckpt_save_options o = {.dir = dir,
                                       .step = step,
                                       .arrays = &a,
                                       .n = 1,
                                       .meta = meta,
                                       .files = &file,
                                       .n_files = 1,
                                       .lease = lease};

    int rc = tern_ckpt_save(&o, NULL, &err);
    json_decref(meta);
    free(config);
    return rc;
}

static void test_lease(void)
{
    char *dir = in_work("lease"), *id = in_work("lease/run.id"),
         *file = in_work("lease/claim-000001");
    char ulid[TERN_CKPT_ULID] = "01J00000000000000000000001";
    struct tern_ckpt_lease *lease = NULL;

    disk_clear();
    ok(tern_ckpt_run_identity(dir, ulid, &err) == 0 && checked(placed("link", id)),
       "run.id is synced before it is linked, the folder after");
    ok(disk_synced(work, 0, disk_find(0, "link", id)),
       "the folder above a new checkpoint folder is synced");
    disk_clear();
    ok(tern_ckpt_lease_acquire(dir, 0, "test", &lease, &err) == 0 && checked(placed("link", file)),
       "a lease is synced before it is linked, the folder after");
    tern_ckpt_lease_free(lease, true);
    ok(!tern_fs_exists(file) && tern_ckpt_lease_acquire(dir, 0, "test", &lease, &err) == 0 &&
           tern_ckpt_lease_attempt(lease) == 2,
       "a released lease has another name, and the next number follows it");
    tern_ckpt_lease_free(lease, false);
    free(dir), free(id), free(file);
}

static void test_save(void)
{
    char *dir = in_work("run"), *one = in_work("run/step-00000001"),
         *bad = in_work("run/step-00000001.bad-1");

    disk_clear();
    ok(save(dir, 1, NULL) == 0 && checked(folder_placed(one, 3)),
       "a checkpoint's files and folder are synced before its rename, the folder above after");
    ok(disk_synced(work, 0, disk_find(0, "rename", one)),
       "the folder above a new checkpoint folder is synced before a checkpoint is in it");
    disk_clear();
    ok(tern_ckpt_mark_bad(one, NULL, &err) == 0 && disk_find(0, "rename", bad) >= 0 &&
           checked(disk_synced(dir, disk_find(0, "rename", bad), -1)),
       "a checkpoint that is marked bad is so after a power cut, too");

    /* Retired: no checkpoint is half deleted under its name. */
    for (uint64_t step = 2; step <= 4; step++)
        if (save(dir, step, NULL) < 0)
            ok(false, "save: %s", err.text);
    unsigned removed = 0;
    disk_clear();
    const struct tern_ckpt_prune_how two = {.keep = 2, .best = -1};
    ok(tern_ckpt_prune(dir, &two, &removed, &err) == 0 && removed == 1,
       "prune retires one of three checkpoints");
    int at = -1, gone = -1;
    for (int i = 0; i < disk_n; i++) {
        at = at < 0 && strcmp(disk_events[i].call, "rename") == 0 ? i : at;
        gone = gone < 0 && strcmp(disk_events[i].call, "unlink") == 0 ? i : gone;
    }
    ok(at >= 0 && strstr(disk_events[at].to, "/.trash-step-00000002"),
       "a retired checkpoint is renamed before it is deleted");
    ok(gone > at && at >= 0 && checked(disk_synced(dir, at, gone)),
       "the rename of a retired checkpoint is durable before its first file is deleted");
    ok(gone >= 0 && strcmp(tern_fs_basename(disk_events[gone].path), "manifest.json") == 0,
       "of a retired checkpoint the manifest is deleted first");

    /* What was learnt later. */
    char *after = in_work("run/after.json");
    json_t *what = json_pack("{s:i}", "best_step", 3);
    disk_clear();
    ok(tern_ckpt_after_write(dir, "x", what, &err) == 0 && checked(placed("rename", after)),
       "after.json is synced before its rename, the folder after");
    json_decref(what);
    free(dir), free(one), free(bad), free(after);
}

/* The folder cannot be synced behind the rename: the checkpoint is not acknowledged. */
static void test_unpublish(void)
{
    char *dir = in_work("unpublished"), *one = in_work("unpublished/step-00000001");

    tern_fs_mkdirs(dir, 0777, NULL);
    disk_clear();
    ok(save(dir, 1, NULL) == 0, "a save that passes, for its number of syncs");
    int at = disk_find(0, "rename", one), syncs = 0;
    for (int i = 0; i < at; i++)
        syncs += strcmp(disk_events[i].call, "fsync") == 0;
    tern_fs_remove_tree(one, NULL);
    disk_clear();
    disk_fails_after = syncs;
    disk_fails = "fsync";
    ok(save(dir, 1, NULL) < 0 && !tern_fs_exists(one),
       "a checkpoint whose rename is not durable is taken back");
    ok(checked(disk_find(0, "rename", one) >= 0 &&
               disk_synced(dir, disk_find(0, "rename", one), -1)),
       "a power cut does not bring back a checkpoint that was taken back");
    disk_fails = NULL;
    free(dir), free(one);
}

static void test_short(void)
{
    char *dir = in_work("short"), *one = in_work("short/step-00000001");

    disk_drops = "/config.json";
    ok(save(dir, 1, NULL) < 0 && !tern_fs_exists(one),
       "a checkpoint with a file that is shorter than written is not published");
    disk_drops = NULL;
    has(err.text, "were written", "a file that is shorter than written is named");
    free(dir), free(one);
}

/* ------------------------------------------------------------------ exports */

/* Ranks' files lie in folders of a folder. */
static void test_export_ranks(const char *from)
{
    static const struct {
        struct tern_convert_nxd o;
        const char *what;
        int least;
    } forms[] = {{{.xser = true, .markers = true}, "xser", 4},
                 {{.files = TERN_CONVERT_NXD_V1}, "v1", 1}};

    for (int i = 0; i < 2; i++) {
        char *out = in_work(i ? "ranks-v1" : "ranks-xser");
        int files = 0;
        disk_clear();
        ok(tern_convert_to_nxd(from, out, &forms[i].o, NULL, &err) == 0,
           "%s: it is exported for NxD's ranks: %s", forms[i].what, err.text);
        int at = disk_find(0, "rename", out);
        ok(checked(at >= 0 && placed("rename", out) && tree_synced(out, at, &files)) &&
               files >= forms[i].least,
           "%s: files and folders of ranks are synced before the whole gets its name",
           forms[i].what);
        free(out);
    }
}

static void test_export(void)
{
    struct tern_model_config c;
    char *dir = in_work("model"), *out = in_work("out"), *config = in_work("config.json");

    if (tern_model_config_load(config, &c, &err) < 0) {
        ok(false, "%s", err.text);
        return;
    }
    size_t n = tern_model_tensors(&c);
    struct tern_ckpt_array *a = calloc(n, sizeof *a);
    float *zeros = calloc(65536, sizeof *zeros);
    for (size_t i = 0; i < n; i++) {
        struct tern_model_tensor t;
        tern_model_tensor(&c, i, &t);
        a[i] = (struct tern_ckpt_array){.name = tern_strf("model/%s", t.name),
                                        .type = TERN_CKPT_F32,
                                        .ndim = t.ndim,
                                        .global = {(uint64_t)t.shape[0], (uint64_t)t.shape[1]},
                                        .shape = {(uint64_t)t.shape[0], (uint64_t)t.shape[1]},
                                        .data = zeros,
                                        .owner = true};
    }
    struct tern_ckpt_file file = {.name = "config.json", .path = config};
    json_t *meta = json_object();
    struct tern_ckpt_save_options o = {
        .dir = dir, .step = 1, .arrays = a, .n = n, .meta = meta, .files = &file, .n_files = 1};
    ok(tern_ckpt_save(&o, NULL, &err) == 0, "a model's checkpoint is saved");
    char *one = in_work("model/step-00000001");
    struct tern_convert_hf options = {.max_shard_bytes = 4096};
    struct tern_convert_out got;
    disk_clear();
    ok(tern_convert_to_hf(one, out, &options, &got, &err) == 0 && got.shards > 1,
       "a checkpoint is exported to several files");
    ok(checked(folder_placed(out, (int)got.shards + 2)),
       "an export's files and folder are synced before its rename, the folder above after");
    test_export_ranks(one);
    for (size_t i = 0; i < n; i++)
        free((char *)a[i].name);
    free(a), free(zeros), free(one), free(dir), free(out), free(config);
    json_decref(meta);
}

/* ------------------------------------------------------------------ the ledger */

static bool chain_synced(const char *path, int levels)
{
    char *at = tern_fs_dirname(path);
    bool good = true;

    for (int i = 0; i < levels; i++) {
        if (!disk_synced(at, 0, -1)) {
            printf("# %s was not synced\n", at);
            good = false;
        }
        char *up = tern_fs_dirname(at);
        free(at);
        at = up;
    }
    free(at);
    return good;
}

static void test_ledger(void)
{
    char id[TERN_ULID_SIZE], *ledger = in_work("ledger");

    tern_ledger_ulid_new(id);
    char *spool = tern_strf("%s/runs/%s/spool/1/run.0.spool", ledger, id);
    char *second = tern_strf("%s/runs/%s/spool/1/run.1.spool", ledger, id);
    char *db = tern_strf("%s/runs/%s/run.db", ledger, id), *all = tern_fs_join(ledger, "ledger.db");
    struct tern_ledger_spool *s = tern_ledger_spool_open(ledger, id, 1, "run", &err);

    disk_clear();
    ok(s && tern_ledger_spool_run(s, &(struct tern_ledger_run){.name = "x"}, &err) == 0 &&
           tern_ledger_spool_param(s, "a", "1", &err) == 0 && disk_n == 0,
       "writing a record costs no sync");
    ok(tern_ledger_spool_sync(s, &err) == 0 && checked(disk_synced(spool, 0, -1)),
       "tern_ledger_spool_sync syncs the spool");
    ok(checked(chain_synced(spool, 5)),
       "with a new spool every folder up to the ledger's is synced");
    disk_clear();
    ok(tern_ledger_spool_param(s, "b", "1", &err) == 0 && tern_ledger_spool_sync(s, &err) == 0 &&
           checked(disk_synced(spool, 0, -1)),
       "records of a spool that was synced before are synced as well");
    tern_ledger_spool_param(s, "c", "1", &err);
    disk_clear();
    disk_fails_after = 0;
    disk_fails = "fdatasync";
    ok(tern_ledger_spool_sync(s, &err) == 0 && !disk_synced(spool, 0, -1) &&
           checked(disk_synced(second, 0, -1) && chain_synced(second, 5)),
       "a spool whose sync failed is not asked again: its records are synced in a new file");
    tern_ledger_spool_param(s, "d", "1", &err);
    disk_clear();
    ok(tern_ledger_spool_close(s, &err) == 0 && checked(disk_synced(second, 0, -1)),
       "closing a spool syncs its last records");

    disk_clear();
    ok(tern_ledger_fold(ledger, id, &err) == 0 && checked(placed("rename", db)),
       "run.db is synced before its rename, the folder after");
    disk_clear();
    ok(tern_ledger_fold_catalog(ledger, &err) == 0 && checked(placed("rename", all)),
       "ledger.db is synced before its rename, the folder after");
    free(spool), free(second), free(db), free(all), free(ledger);
}

/* ------------------------------------------------------------------ files, trees, token sets */

static void test_files(void)
{
    char *path = in_work("file"), *sub = in_work("sub"), *data = in_work("set.tds");
    const struct tern_data_set_kind kind = {.n_vocab = 100, .eos = 2, .bos = -1};

    for (int again = 0; again < 2; again++) {
        disk_clear();
        ok(tern_fs_replace(path, "text", 4, 0644, &err) == 0 && checked(placed("rename", path)),
           again ? "a file that replaces another is durable before and after its rename"
                 : "a new file is durable before and after its rename");
    }
    disk_clear();
    ok(mkdir(sub, 0755) == 0 && tern_fs_sync_parent(sub, &err) == 0 &&
           checked(disk_synced(work, 0, -1)),
       "the folder above a path is synced on request");
    disk_clear();
    ok(tern_fs_sync_dir(sub, &err) == 0 && checked(disk_synced(sub, 0, -1)),
       "a folder is synced on request");
    disk_clear();
    struct tern_data_set_writer *w = tern_data_set_create(data, &kind, &err);
    ok(w && tern_data_set_add(w, (uint32_t[]){5, 6}, NULL, 2, 8, &err) == 0 &&
           tern_data_set_commit(w, "{}", &err) == 0 && checked(placed("rename", data)),
       "a token set is durable before and after its rename");
    free(path);
    free(sub);
    free(data);
}

/* Two files at the top and one two folders down, as an outside trainer's checkpoint. */
static void make_tree(const char *dir)
{
    static const char *const names[] = {"a", "b", "in/deeper/c"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = tern_fs_join(dir, names[i]), *above = tern_fs_dirname(path);
        if (tern_fs_mkdirs(above, 0755, &err) < 0 ||
            tern_fs_replace(path, names[i], strlen(names[i]), 0644, &err) < 0)
            exit(1);
        free(above);
        free(path);
    }
}

static void test_tree(void)
{
    char *from = in_work("tree"), *aside = in_work(".copy"), *to = in_work("copy");
    char *left = tern_fs_join(aside, "a"), *in = tern_fs_join(aside, "in");
    char *deeper = tern_fs_join(in, "deeper"), *file = tern_fs_join(deeper, "c");
    struct tern_tree t = {0};

    make_tree(from);
    /* Of an ended copy: whole, and perhaps not durable. */
    if (tern_tree_take(from, &t, &err) < 0 || mkdir(aside, 0755) < 0 ||
        tern_fs_replace(left, "a", 1, 0644, &err) < 0)
        exit(1);
    disk_clear();
    ok(tern_tree_copy(from, &t, aside, to, &err) == 0 && checked(placed("rename", to)),
       "a copied tree is durable before and after its rename");
    int at = disk_find(0, "rename", to);
    ok(checked(disk_synced(left, 0, at)), "a file that an ended copy left is synced");
    ok(checked(disk_synced(file, 0, at)), "a file in a folder of the tree is synced");
    ok(checked(disk_synced(in, 0, at) && disk_synced(deeper, 0, at)),
       "each folder of the tree is synced");
    tern_tree_free(&t);
    free(file);
    free(deeper);
    free(in);
    free(left);
    free(to);
    free(aside);
    free(from);
}

int main(void)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 16, \"intermediate_size\": 32,"
        " \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1,"
        " \"vocab_size\": 64, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-05,"
        " \"rope_theta\": 10000.0, \"tie_word_embeddings\": true, \"hidden_act\": \"silu\"}\n";

    if (!mkdtemp(work))
        return 1;
    char *path = in_work("config.json");
    FILE *f = fopen(path, "w");
    if (!f || fputs(config, f) < 0 || fclose(f) != 0)
        return 1;
    free(path);
    test_files();
    test_tree();
    test_lease();
    test_save();
    test_unpublish();
    test_short();
    test_export();
    test_ledger();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

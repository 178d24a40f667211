/* core/ckpt: rank 0 tells of a checkpoint before it gets its name and after, in the save's thread.
 */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ckpt/ckpt.h"
#include "tests/unit/tap.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static char work[] = "/tmp/tern-ckpt-tell-XXXXXX";

enum { TOLD_MAX = 4 };

static struct told {
    enum tern_ckpt_word word;
    struct tern_ckpt_saved saved;
    bool temp, manifest, final; /* are there */
    bool aside;                 /* another thread tells */
} told[TOLD_MAX];
static int n_told;
static bool blocks; /* a folder takes the name before the checkpoint gets it */
static pthread_t caller;

static void listen(void *ctx, enum tern_ckpt_word word, const struct tern_ckpt_saved *saved)
{
    char *temp = tern_strf("%s.tmp-0", saved->path), *in = tern_strf("%s/x", saved->path);
    char *manifest = tern_fs_join(temp, "manifest.json");

    if (n_told < TOLD_MAX && ctx == work)
        told[n_told] = (struct told){.word = word,
                                     .saved = *saved,
                                     .temp = tern_fs_exists(temp),
                                     .manifest = tern_fs_exists(manifest),
                                     .final = tern_fs_exists(saved->path),
                                     .aside = !pthread_equal(caller, pthread_self())};
    n_told++;
    if (blocks && word == TERN_CKPT_WRITTEN && tern_fs_mkdirs(in, 0755, NULL) < 0)
        abort();
    free(temp), free(manifest), free(in);
}

/* Of a checkpoint with one array, whose global shape is `global`. */
static int save(uint64_t step, uint64_t global, bool background, struct tern_ckpt_saved *ret_saved,
                struct tern_err *err)
{
    const float x[] = {1, 2, 3};
    struct tern_ckpt_array a = {"x", TERN_CKPT_F32, 1, {global}, {0}, {3}, x, .owner = true};
    struct tern_ckpt_staging *staging =
        background ? tern_ckpt_staging_new(tern_ckpt_staging_bytes(&a, 1), err) : NULL;
    json_t *meta = json_object();
    const struct tern_ckpt_save_options o = {
        .dir = work, .step = step, .arrays = &a, .n = 1, .meta = meta, .tell = listen, .ctx = work};
    struct tern_ckpt_saving *s = NULL;
    int rc = tern_ckpt_save_begin(&o, staging, &s, err);

    while (rc == 0)
        rc = tern_ckpt_save_advance(s, ret_saved, err);
    tern_ckpt_save_free(s);
    tern_ckpt_staging_free(staging);
    json_decref(meta);
    return rc;
}

static void test_told(bool background)
{
    const char *how = background ? "in the background" : "while training waits";
    struct tern_ckpt_saved saved = {0};
    struct tern_err err = {0};
    bool same = true;

    n_told = 0;
    ok(save(1 + background, 3, background, &saved, &err) == 1 && n_told == 2,
       "a save %s tells twice: %s", how, err.text);
    ok(told[0].aside == background && told[1].aside == background,
       "a save %s tells in the thread that publishes", how);
    ok(told[0].word == TERN_CKPT_WRITTEN && told[0].temp && told[0].manifest && !told[0].final,
       "a save %s: first the checkpoint is whole, and does not have its name", how);
    ok(told[1].word == TERN_CKPT_PUBLISHED && told[1].final && !told[1].temp,
       "a save %s: then it has its name", how);
    for (int i = 0; i < 2; i++)
        same = same && strcmp(told[i].saved.path, saved.path) == 0 &&
               strcmp(told[i].saved.digest, saved.digest) == 0 &&
               told[i].saved.bytes == saved.bytes && told[i].saved.shards == 1 &&
               told[i].saved.write_seconds == saved.write_seconds;
    ok(same && saved.bytes > 0 && strlen(saved.digest) == 64 && saved.write_seconds > 0,
       "a save %s tells the path, digest, bytes and seconds that the caller gets", how);
}

static void test_refused(void)
{
    struct tern_err err = {0};

    n_told = 0;
    blocks = true;
    ok(save(5, 3, true, NULL, &err) < 0 && n_told == 2 && told[0].word == TERN_CKPT_WRITTEN &&
           told[1].word == TERN_CKPT_REFUSED,
       "of a checkpoint that does not get its name the caller hears so");
    blocks = false;
    has(err.text, "already exists", "a checkpoint that does not get its name: why");
    n_told = 0;
    ok(save(6, 4, true, NULL, &err) < 0 && n_told == 0,
       "a checkpoint that lacks a part of an array is not reported");
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    caller = pthread_self();
    test_told(false);
    test_told(true);
    test_refused();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

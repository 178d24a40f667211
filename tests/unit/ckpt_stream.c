/* core/ckpt, the files of a local checkpoint on the way to another node, and read back there: files
 * without a byte, names that are durable, and reads that fail for a reason that may pass. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ckpt/local.h"
#include "core/ckpt/stream.h"
#include "tests/unit/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char work[] = "/tmp/tern-ckpt-stream-XXXXXX";
static const char *unreadable; /* reads of a path with this word fail with EIO */
static int synced;             /* syncs of a folder of step 5 */
static int named;              /* renames of files, since the last of them */

static bool leads_to(int fd, const char *word, const char *end)
{
    char link[64], path[512];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return strstr(path, word) && tern_str_ends(path, end);
}

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    if (unreadable && leads_to(fd, unreadable, "")) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, to, n, at);
}

int fsync(int fd)
{
    if (leads_to(fd, "/step-", "/step-00000005")) {
        synced++;
        named = 0;
    }
    return (int)syscall(SYS_fsync, fd);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    named++;
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* ------------------------------------------------------------------ a checkpoint of one rank */

static char *node, *other; /* nodes' folders */
static char digest[65];

static int save(uint64_t step)
{
    static const float w[1000] = {1};
    struct tern_err err = {0};
    const struct tern_ckpt_array a = {.name = "model/w",
                                      .type = TERN_CKPT_F32,
                                      .ndim = 1,
                                      .global = {1000},
                                      .shape = {1000},
                                      .data = w,
                                      .owner = true};
    const struct tern_ckpt_file files[] = {{.name = "added_tokens.json", .text = ""},
                                           {.name = "config.json", .text = "{}"},
                                           {.name = "merges.txt", .text = ""}};
    json_t *meta = json_pack("{s:s}", "run", "one");
    const struct tern_ckpt_save_options o = {.dir = node,
                                             .step = step,
                                             .arrays = &a,
                                             .n = 1,
                                             .meta = meta,
                                             .files = files,
                                             .n_files = 3,
                                             .local = true};
    struct tern_ckpt_saved saved;
    const int rc = tern_ckpt_save(&o, &saved, &err);

    if (rc < 0)
        printf("# %s\n", err.text);
    else
        snprintf(digest, sizeof digest, "%s", saved.digest);
    json_decref(meta);
    return rc;
}

/* ------------------------------------------------------------------ what is found */

/* The other of two ranks, on a node of its own, has nothing of its own and `has` of all files. */
static unsigned char has;
enum { FILES = 4 };

static int gather(void *ctx, const void *in, void *out, size_t bytes, struct tern_err *err)
{
    char *theirs = (char *)out + bytes;

    (void)ctx, (void)err;
    memcpy(out, in, bytes);
    memset(theirs, 0, bytes);
    if (bytes == sizeof(int32_t) && *(const int32_t *)in == 0)
        theirs[0] = 1; /* its node */
    if (bytes == FILES && has)
        memset(theirs, 1, bytes);
    return 0;
}

static int take(void *ctx, const struct tern_ckpt *c, struct tern_err *err)
{
    (void)ctx, (void)c, (void)err;
    return 1;
}

static int find(bool two, uint64_t *ret_step, struct tern_err *err)
{
    const struct tern_ckpt_peers peers = {0, 2, NULL, NULL, gather};
    const struct tern_ckpt_local_options o = {
        .dir = node, .peers = two ? &peers : NULL, .may_take = take};
    struct tern_ckpt_local found = {0};
    const int rc = tern_ckpt_local_find(&o, &found, err);

    *ret_step = found.step;
    free(found.parts);
    return rc;
}

/* ------------------------------------------------------------------ the tests */

static void test_copy(void)
{
    struct tern_err err = {0};
    char *manifest = tern_strf("%s/step-00000005/manifest.json", node), *text = NULL;
    size_t len = 0;

    ok(save(5) == 0 && tern_fs_read(manifest, 1 << 20, &text, &len, &err) == 0 &&
           tern_ckpt_local_put_manifest(other, 5, digest, text, len, &err) == 0,
       "another node gets the checkpoint's manifest: %s", err.text);
    struct tern_ckpt_stream *from = tern_ckpt_stream_open(node, 5, 0, /* writes= */ false, &err);
    struct tern_ckpt_stream *into = tern_ckpt_stream_open(other, 5, 0, /* writes= */ true, &err);
    const uint64_t bytes = from ? tern_ckpt_stream_bytes(from) : 0;
    char *all = malloc(bytes + 1);
    synced = 0;
    ok(bytes > 4000 && into && tern_ckpt_stream_read(from, 0, bytes, all, &err) == 0 &&
           tern_ckpt_stream_write(into, all, bytes, &err) == 0,
       "another node gets the files of a rank: %s", err.text);
    ok(synced > 0 && named == 0, "the names of all files are durable then");
    tern_ckpt_stream_end(from);
    tern_ckpt_stream_end(into);
    char *copy = tern_strf("%s/step-00000005", other);
    ok(tern_ckpt_verify(copy, true, &err) == 0,
       "files without a byte are there, too, and the copy verifies: %s", err.text);
    free(manifest), free(text), free(all), free(copy);
}

static void test_unread(void)
{
    struct tern_err err = {0};
    uint64_t step = 0;

    ok(save(6) == 0 && find(false, &step, &err) == 1 && step == 6, "the newest is found: %s",
       err.text);
    static const char *const words[] = {"step-00000006/shard-", "step-00000006/config.json"};
    for (int i = 0; i < 2; i++) {
        unreadable = words[i];
        ok(find(false, &step, &err) < 0 && err.code == TERN_TEMPFAIL &&
               strstr(err.text, words[i]) && strstr(err.text, "Input/output error"),
           "%s cannot be read now: the error says so, and no older one is taken: %s", words[i],
           err.text);
        has = 0;
        ok(find(true, &step, &err) < 0 && err.code == TERN_TEMPFAIL,
           "%s: two nodes without a copy of it give the same error", words[i]);
        has = 1;
        ok(find(true, &step, &err) == 1 && step == 6, "%s: the other node's copy serves", words[i]);
    }
    unreadable = NULL;
    ok(find(false, &step, &err) == 1 && step == 6, "once it can be read it is taken");
}

static void test_count(void)
{
    struct tern_err err = {0};
    size_t here = 9, all = 9;
    char *path = tern_strf("%s/step-00000006", node), *shard;

    const bool is = tern_ckpt_local_count(path, &here, &all);
    ok(is && here == 1 && all == 1, "a node's folder has one of one shards: %zu of %zu", here, all);
    shard = tern_strf("%s/shard-00000-of-00001.safetensors", path);
    ok(truncate(shard, 10) == 0 && !tern_ckpt_local_count(path, &here, &all),
       "one whose shard is cut off is damaged, and no node's part");
    free(shard), free(path);
    path = tern_strf("%s/all", work);
    ok(tern_fs_mkdirs(path, 0700, &err) == 0, "(a folder of all ranks)");
    char *moved = tern_strf("%s/step-00000005", path), *copy = tern_strf("%s/step-00000005", other);
    ok(rename(copy, moved) == 0 && !tern_ckpt_local_count(moved, &here, &all),
       "in another folder than DIR/RUN/NODE it is no node's part");
    free(path), free(moved), free(copy);
}

int main(void)
{
    if (!mkdtemp(work))
        abort();
    umask(022);
    node = tern_strf("%s/local/one/node-0", work);
    other = tern_strf("%s/local/one/node-1", work);
    test_copy();
    test_unread();
    test_count();
    free(node), free(other);
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

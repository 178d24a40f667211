/* core/ckpt, checkpoints on the nodes: each has its ranks' files, all of them make a whole one,
 * which is flushed to a folder of all ranks; and a copy that lacks a byte is none. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ckpt/local.h"
#include "core/ckpt/stream.h"
#include "tests/unit/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char work[] = "/tmp/tern-ckpt-local-XXXXXX";
static const char *refused; /* a path with this word has no room */

int fallocate(int fd, int mode, off_t from, off_t len)
{
    char link[64], path[512];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    if (refused && strstr(path, refused)) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, from, len);
}

/* ------------------------------------------------------------------ ranks as threads */

enum { RANKS = 4, ROWS = 400, COLS = 100 };

static pthread_barrier_t barrier;
static const void *given[RANKS];

struct rank {
    int rank, node;
    char *local; /* the node's folder */
    uint64_t step;
    bool background;
    bool redirect; /* a save that fails goes to the folder of all ranks */
    const struct tern_ckpt_local *found;
    int rc;
    struct tern_ckpt_saved saved;
    struct tern_ckpt_local got;
    struct tern_err err;
};

static char *shared;
static const char *run = "one"; /* of the manifest's meta */
static struct rank ranks[RANKS];

static int gather(void *ctx, const void *in, void *out, size_t bytes, struct tern_err *err)
{
    const struct rank *r = ctx;

    (void)err;
    given[r->rank] = in;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < RANKS; i++)
        memcpy((char *)out + (size_t)i * bytes, given[i], bytes);
    pthread_barrier_wait(&barrier);
    return 0;
}

static float value(uint64_t step, uint64_t i)
{
    return (float)i * 0.5f + (float)step;
}

static void *save(void *arg)
{
    struct rank *r = arg;
    const struct tern_ckpt_peers peers = {r->rank, RANKS, r, NULL, gather};
    const uint64_t rows = ROWS / RANKS, from = rows * (uint64_t)r->rank;
    float *m = calloc(rows * COLS, sizeof *m);
    const struct tern_ckpt_array a = {.name = "model/w",
                                      .type = TERN_CKPT_F32,
                                      .ndim = 2,
                                      .global = {ROWS, COLS},
                                      .start = {from, 0},
                                      .shape = {rows, COLS},
                                      .data = m,
                                      .owner = true};
    const struct tern_ckpt_file file = {.name = "config.json", .text = "{}"};
    json_t *meta = r->rank == 0 ? json_pack("{s:s}", "run", run) : NULL;
    const struct tern_ckpt_save_options o = {.dir = r->local,
                                             .step = r->step,
                                             .arrays = &a,
                                             .n = 1,
                                             .meta = meta,
                                             .files = &file,
                                             .n_files = r->rank == 0,
                                             .peers = &peers,
                                             .local = true,
                                             .node = r->node};
    struct tern_ckpt_staging *staging = NULL;
    struct tern_ckpt_saving *s = NULL;

    for (uint64_t i = 0; i < rows * COLS; i++)
        m[i] = value(r->step, from * COLS + i);
    if (r->background)
        staging = tern_ckpt_staging_new(tern_ckpt_staging_bytes(&a, 1), &r->err);
    r->rc = tern_ckpt_save_begin(&o, staging, &s, &r->err);
    if (r->background)
        memset(m, 0xff, rows * COLS * sizeof *m);
    while (r->rc == 0) {
        r->rc = tern_ckpt_save_advance(s, &r->saved, &r->err);
        if (r->rc < 0 && r->redirect) {
            r->redirect = false;
            r->rc = tern_ckpt_save_redirect(s, shared, &r->err);
        }
    }
    tern_ckpt_save_free(s);
    tern_ckpt_staging_free(staging);
    json_decref(meta);
    free(m);
    return NULL;
}

static void *flush(void *arg)
{
    struct rank *r = arg;
    const struct tern_ckpt_peers peers = {r->rank, RANKS, r, NULL, gather};
    const struct tern_ckpt_flush_options o = {.from = r->local,
                                              .step = r->step,
                                              .parts = r->found ? r->found->parts : NULL,
                                              .digest = r->found ? r->found->digest : NULL,
                                              .dir = shared,
                                              .peers = &peers};
    struct tern_ckpt_saving *s = NULL;

    r->rc = tern_ckpt_flush_begin(&o, r->background, &s, &r->err);
    while (r->rc == 0)
        r->rc = tern_ckpt_save_advance(s, &r->saved, &r->err);
    tern_ckpt_save_free(s);
    return NULL;
}

/* Step 3 is of another run, and step 7 is not known now. */
static int may_take(void *ctx, const struct tern_ckpt *c, struct tern_err *err)
{
    (void)ctx;
    if (tern_ckpt_step(c) == 7)
        return tern_err_set(err, TERN_TEMPFAIL, "storage is away");
    return tern_ckpt_step(c) == 3 ? tern_err_set(err, TERN_FAILED, "of another run") : 1;
}

static void *find(void *arg)
{
    struct rank *r = arg;
    const struct tern_ckpt_peers peers = {r->rank, RANKS, r, NULL, gather};
    const struct tern_ckpt_local_options o = {
        .dir = r->local, .node = r->node, .peers = &peers, .may_take = may_take};

    free(r->got.parts);
    r->got = (struct tern_ckpt_local){0};
    r->rc = tern_ckpt_local_find(&o, &r->got, &r->err);
    return NULL;
}

/* All ranks do it; true when all return `rc`. */
static bool all(void *(*work_of)(void *), int rc)
{
    pthread_t t[RANKS];
    bool same = true;

    for (int i = 0; i < RANKS; i++)
        pthread_create(&t[i], NULL, work_of, &ranks[i]);
    for (int i = 0; i < RANKS; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < RANKS; i++)
        same = same && ranks[i].rc == rc;
    return same;
}

/* New folders; ranks 0 and 1 on the first node, or on the second. */
static void begin(const char *name, bool swapped)
{
    free(shared);
    shared = tern_strf("%s/%s/all", work, name);
    for (int i = 0; i < RANKS; i++) {
        struct rank *r = &ranks[i];
        free(r->local);
        free(r->got.parts);
        *r = (struct rank){.rank = i, .node = i / 2, .step = 5};
        r->local = tern_strf("%s/%s/node-%d", work, name, swapped ? 1 - i / 2 : i / 2);
    }
}

static char *file_of(int rank, uint64_t step, const char *name)
{
    return tern_strf("%s/step-%08llu/%s", ranks[rank].local, (unsigned long long)step, name);
}

static bool is_there(int rank, uint64_t step, const char *name)
{
    char *path = file_of(rank, step, name);
    const bool is = tern_fs_exists(path);

    free(path);
    return is;
}

static char *shard(int i)
{
    static char name[64];

    snprintf(name, sizeof name, "shard-%05d-of-%05d.safetensors", i, RANKS);
    return name;
}

/* The last byte of a file is another one. */
static void damage(const char *path)
{
    struct stat st;
    const int fd = open(path, O_RDWR);
    unsigned char c = 0;

    if (fd < 0 || fstat(fd, &st) < 0 || pread(fd, &c, 1, st.st_size - 1) != 1)
        abort();
    c ^= 1;
    if (pwrite(fd, &c, 1, st.st_size - 1) != 1)
        abort();
    close(fd);
}

static void save_step(uint64_t step)
{
    for (int i = 0; i < RANKS; i++)
        ranks[i].step = step;
    if (!all(save, 1))
        printf("# %s\n", ranks[0].err.text);
}

/* ------------------------------------------------------------------ the tests */

static void test_save(void)
{
    struct tern_err err;
    char *path, *theirs;

    begin("save", false);
    ok(all(save, 1), "four ranks on two nodes save there: %s", ranks[0].err.text);
    ok(is_there(0, 5, shard(0)) && is_there(0, 5, shard(1)) && !is_there(0, 5, shard(2)) &&
           is_there(2, 5, shard(2)) && is_there(2, 5, shard(3)) && !is_there(2, 5, shard(0)),
       "each node has the shards of its ranks, and no others");
    ok(is_there(0, 5, "config.json") && !is_there(2, 5, "config.json"),
       "the node of rank 0 has the small files");
    path = file_of(0, 5, "manifest.json"), theirs = file_of(2, 5, "manifest.json");
    char *text[2] = {0};
    size_t len[2] = {0};
    ok(tern_fs_read(path, 1 << 20, &text[0], &len[0], &err) == 0 &&
           tern_fs_read(theirs, 1 << 20, &text[1], &len[1], &err) == 0 && len[0] == len[1] &&
           memcmp(text[0], text[1], len[0]) == 0,
       "both nodes write the same manifest");
    free(path), free(theirs), free(text[0]), free(text[1]);
    path = tern_strf("%s/step-00000005", ranks[2].local);
    ok(!tern_ckpt_open(path, &err) && err.code == TERN_USAGE,
       "one node's part is no checkpoint for a reader");
    struct tern_ckpt *c = tern_ckpt_local_open(path, &err);
    ok(c && strcmp(tern_ckpt_digest(c), ranks[0].saved.digest) == 0,
       "but opens as a node's part, with the digest of the whole");
    tern_ckpt_close(c);
    free(path);
}

static void test_flush(void)
{
    struct tern_err err = {0};

    for (int background = 0; background < 2; background++) {
        begin(background ? "flush-back" : "flush", false);
        save_step(5);
        char digest[65];
        snprintf(digest, sizeof digest, "%s", ranks[0].saved.digest);
        for (int i = 0; i < RANKS; i++)
            ranks[i].background = background;
        ok(all(flush, 1), "%s: the nodes' checkpoint is flushed: %s",
           background ? "in threads" : "at once", ranks[0].err.text);
        char *path = tern_strf("%s/step-00000005", shared);
        ok(tern_ckpt_verify(path, true, &err) == 0, "the flushed checkpoint verifies there: %s",
           err.text);
        ok(strcmp(ranks[3].saved.digest, digest) == 0 && ranks[3].saved.shards == RANKS &&
               strcmp(ranks[3].saved.path, path) == 0,
           "each rank knows its path, shards and digest, which is that on the nodes");
        free(path);
    }
    begin("flush-bad", false);
    save_step(5);
    char *path = file_of(3, 5, shard(3));
    damage(path);
    free(path);
    ok(all(flush, -1) && strstr(ranks[0].err.text, "is damaged: array model/w"),
       "a damaged byte on a node is not flushed, and all ranks know: %s", ranks[0].err.text);
    path = tern_strf("%s/step-00000005", shared);
    char *temp = tern_strf("%s.tmp-0", path);
    ok(!tern_fs_exists(path) && !tern_fs_exists(temp), "nothing of it stays");
    free(path), free(temp);
}

static void test_find(void)
{
    begin("find", false);
    ok(all(find, 0), "where the nodes have nothing, nothing is found");
    save_step(1);
    save_step(2);
    ok(all(find, 1) && ranks[3].got.step == 2, "the newest is found");
    bool once = true;
    for (int p = 0; p < RANKS + 1; p++) {
        int n = 0;
        for (int i = 0; i < RANKS; i++)
            n += ranks[i].got.parts[p];
        once = once && n == 1;
    }
    ok(once, "each of its files is one rank's to bring");
    char *path = file_of(2, 2, shard(2));
    damage(path);
    ok(all(find, 1) && ranks[0].got.step == 1, "one with a damaged byte on the other node is none");
    free(path);
    path = file_of(2, 1, shard(3));
    unlink(path);
    free(path);
    ok(all(find, 0), "a checkpoint that lacks a file is not found");
    begin("find-mixed", false);
    save_step(4);
    char *mine = tern_strf("%s/step-00000004", ranks[2].local);
    begin("find-other", false);
    run = "two";
    save_step(4);
    run = "one";
    char *theirs = tern_strf("%s/step-00000004", ranks[2].local);
    tern_fs_remove_tree(mine, NULL);
    rename(theirs, mine);
    free(mine), free(theirs);
    begin("find-mixed", false);
    ok(all(find, 0), "a checkpoint whose parts are of two saves is not found");
    begin("find-other", false);
    path = tern_strf("%s/step-00000004", ranks[0].local);
    tern_fs_remove_tree(path, NULL);
    free(path);
    ok(all(find, 0), "a checkpoint that a node has lost is not found");
    begin("find-order", false);
    save_step(4);
    begin("find-order", true);
    for (int i = 0; i < RANKS; i++)
        ranks[i].step = 4;
    ok(all(find, 1), "where nodes have changed places it is found all the same: %s",
       ranks[0].err.text);
    for (int i = 0; i < RANKS; i++)
        ranks[i].found = &ranks[i].got;
    struct tern_err err = {0};
    char *whole = tern_strf("%s/step-00000004", shared);
    ok(all(flush, 1) && tern_ckpt_verify(whole, true, &err) == 0,
       "the save that was begun anew is flushed: %s", ranks[0].err.text);
    free(whole);
    chmod(ranks[0].local, 0777);
    ok(all(find, 0), "a folder that others can write to is not believed");
}

static void test_find_refused(void)
{
    begin("find-run", false);
    save_step(2);
    save_step(3);
    ok(all(find, 1) && ranks[0].got.step == 2, "one that may not be taken is passed over");
    save_step(7);
    ok(all(find, -1) && ranks[2].err.code == TERN_TEMPFAIL &&
           strstr(ranks[2].err.text, "storage is away"),
       "one that cannot be read now is not passed over: the search fails on all ranks: %s",
       ranks[2].err.text);
}

static void test_redirect(void)
{
    struct tern_err err = {0};

    for (int background = 0; background < 2; background++) {
        begin(background ? "full-back" : "full", false);
        refused = "node-1";
        for (int i = 0; i < RANKS; i++) {
            ranks[i].background = background;
            ranks[i].redirect = true;
        }
        ok(all(save, 1), "without room on a node a save goes to the folder of all ranks: %s",
           ranks[0].err.text);
        refused = NULL;
        char *path = tern_strf("%s/step-00000005", shared);
        ok(tern_ckpt_verify(path, true, &err) == 0,
           "the checkpoint of a repeated save verifies: %s", err.text);
        struct tern_ckpt *c = tern_ckpt_open(path, &err);
        float last = 0;
        const uint64_t start[] = {ROWS - 1, COLS - 1}, one[] = {1, 1};
        ok(c && tern_ckpt_read(c, "model/w", TERN_CKPT_F32, start, one, &last, &err) == 0 &&
               last == value(5, ROWS * COLS - 1),
           "with what the arrays held when the save began");
        tern_ckpt_close(c);
        ok(!is_there(0, 5, "") && !is_there(2, 5, ""),
           "nothing of a repeated save stays on the nodes");
        free(path);
    }
}

static void test_near(void)
{
    struct tern_err err = {0};
    float *m = calloc((size_t)ROWS * COLS, sizeof *m);

    begin("near", false);
    save_step(5);
    all(flush, 1);
    char *path = tern_strf("%s/step-00000005", shared), *far = tern_fs_join(path, shard(0)),
         *near = file_of(0, 5, shard(1));
    damage(far);
    damage(near);
    struct tern_ckpt *c = tern_ckpt_open(path, &err);
    tern_ckpt_read_near(c, ranks[0].local);
    bool right = tern_ckpt_read(c, "model/w", TERN_CKPT_F32, NULL, NULL, m, &err) == 0;
    for (uint64_t i = 0; i < ROWS * COLS; i++)
        right = right && m[i] == value(5, i);
    ok(right, "a node's files are read in place of those of all ranks, unless they are damaged: %s",
       err.text);
    tern_ckpt_close(c);
    begin("near", true);
    c = tern_ckpt_open(path, &err);
    tern_ckpt_read_near(c, ranks[0].local);
    ok(tern_ckpt_read(c, "model/w", TERN_CKPT_F32, NULL, NULL, m, &err) < 0,
       "on the other node the damaged file is read");
    tern_ckpt_close(c);
    free(path), free(far), free(near), free(m);
}

/* The files of rank `r` come to the node of rank `to`, `chunk` bytes at a time. */
static bool copy_rank(int r, int to, uint64_t step, size_t chunk)
{
    struct tern_err err = {0};
    struct tern_ckpt_stream *from =
        tern_ckpt_stream_open(ranks[r].local, step, r, /* writes= */ false, &err);
    struct tern_ckpt_stream *into =
        tern_ckpt_stream_open(ranks[to].local, step, r, /* writes= */ true, &err);
    const uint64_t bytes = from ? tern_ckpt_stream_bytes(from) : 0;
    char *piece = calloc(1, chunk);
    bool good = from && into && bytes == tern_ckpt_stream_bytes(into);

    for (uint64_t at = 0; good && at < bytes; at += chunk) {
        const size_t n = bytes - at < chunk ? bytes - at : chunk;
        good = tern_ckpt_stream_read(from, at, n, piece, &err) == 0 &&
               tern_ckpt_stream_write(into, piece, chunk, &err) == 0; /* more than is wanted */
    }
    if (!good)
        printf("# %s\n", err.text);
    tern_ckpt_stream_end(from);
    tern_ckpt_stream_end(into);
    free(piece);
    return good;
}

static void test_partner(void)
{
    struct tern_err err = {0};

    begin("partner", false);
    save_step(5);
    ok(copy_rank(0, 2, 5, 4096) && copy_rank(1, 2, 5, 1 << 20) && copy_rank(2, 0, 5, 777),
       "ranks' files are copied to the other node, in chunks of any size");
    ok(is_there(2, 5, shard(0)) && is_there(2, 5, "config.json") && is_there(0, 5, shard(2)),
       "shards, and the small files of rank 0");
    struct tern_ckpt_stream *half =
        tern_ckpt_stream_open(ranks[0].local, 5, 3, /* writes= */ true, &err);
    char some[100] = {0};
    ok(half && tern_ckpt_stream_write(half, some, sizeof some, &err) == 0 &&
           !is_there(0, 5, shard(3)),
       "a file that is not whole yet does not have its name");
    tern_ckpt_stream_end(half);
    char *text = NULL, *path = file_of(0, 5, "manifest.json");
    size_t len = 0;
    ok(tern_fs_read(path, 1 << 20, &text, &len, &err) == 0, "(the manifest is read)");
    free(path);
    tern_fs_remove_tree(ranks[0].local, NULL);
    ok(all(find, 1) && ranks[1].got.rank == 2,
       "the node of rank 0 is lost: the other has the whole, and says so");
    ok(tern_ckpt_local_put_manifest(ranks[0].local, 5, ranks[0].got.digest, text, len, &err) == 0,
       "the lost node gets the manifest: %s", err.text);
    free(text);
    for (int i = 0; i < RANKS; i++)
        ranks[i].found = &ranks[i].got;
    path = tern_strf("%s/step-00000005", shared);
    ok(all(flush, 1) && tern_ckpt_verify(path, true, &err) == 0,
       "the newest checkpoint of the nodes is flushed: %s", ranks[0].err.text);
    free(path);
}

/* The first node has another save of the step, as of an attempt in which it was away. */
static void test_other_save(void)
{
    struct tern_err err = {0};

    begin("other-save", false);
    run = "two";
    save_step(5);
    run = "one";
    char *other = tern_strf("%s/step-00000005", ranks[0].local);
    begin("true-save", false);
    save_step(5);
    if (!copy_rank(0, 2, 5, 1 << 20) || !copy_rank(1, 2, 5, 1 << 20))
        abort();
    char *mine = tern_strf("%s/step-00000005", ranks[0].local);
    tern_fs_remove_tree(mine, NULL);
    rename(other, mine);
    ok(all(find, 1) && ranks[0].got.rank == 2 &&
           strcmp(ranks[0].got.digest, ranks[0].saved.digest) == 0,
       "where a node has a part of another save of the step, the whole one is found");
    for (int i = 0; i < RANKS; i++)
        ranks[i].found = &ranks[i].got;
    ok(all(flush, -1) && strstr(ranks[1].err.text, "is another checkpoint of that step"),
       "the other save is not taken for it: %s", ranks[1].err.text);
    char *text = NULL, *path = file_of(2, 5, "manifest.json");
    size_t len = 0;
    ok(tern_fs_read(path, 1 << 20, &text, &len, &err) == 0 &&
           tern_ckpt_local_put_manifest(ranks[0].local, 5, ranks[0].got.digest, text, len, &err) ==
               0 &&
           !is_there(0, 5, shard(0)),
       "the manifest takes the other save's place: %s", err.text);
    free(path), free(text);
    path = tern_strf("%s/step-00000005", shared);
    ok(all(flush, 1) && tern_ckpt_verify(path, true, &err) == 0,
       "after the failure the checkpoint is flushed: %s", ranks[0].err.text);
    free(path), free(mine), free(other);
}

static void test_prune(void)
{
    struct tern_err err = {0};

    begin("prune", false);
    save_step(1);
    save_step(2);
    save_step(3);
    ok(!is_there(0, 1, "") && is_there(0, 2, "") && is_there(0, 3, "") && !is_there(2, 1, ""),
       "the newest two stay on each node");
    char *temp = tern_strf("%s/step-00000009.tmp-4", ranks[0].local);
    mkdir(temp, 0777);
    ok(tern_ckpt_local_prune(ranks[0].local, (uint64_t[TERN_CKPT_KEPT]){0, 2}, &err) == 0 &&
           is_there(0, 2, "") && is_there(0, 3, ""),
       "one that is being flushed stays: %s", err.text);
    ok(!tern_fs_exists(temp), "what was left half-written goes");
    free(temp);
    temp = tern_strf("%s/step-00000003", ranks[0].local);
    ok(!tern_ckpt_local_is_marked(temp) && tern_ckpt_local_mark(ranks[0].local, 3, &err) == 0 &&
           tern_ckpt_local_is_marked(temp),
       "a flushed one is marked");
    ok(tern_ckpt_local_prune(ranks[0].local, (uint64_t[TERN_CKPT_KEPT]){0}, &err) == 0 &&
           !is_there(0, 2, "") && is_there(0, 3, ""),
       "else the newest alone stays");
    free(temp);
}

int main(void)
{
    if (!mkdtemp(work))
        abort();
    umask(022);
    pthread_barrier_init(&barrier, NULL, RANKS);
    test_save();
    test_flush();
    test_find();
    test_find_refused();
    test_redirect();
    test_near();
    test_partner();
    test_other_save();
    test_prune();
    for (int i = 0; i < RANKS; i++)
        free(ranks[i].local), free(ranks[i].got.parts);
    free(shared);
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

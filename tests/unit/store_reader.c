/* core/store/reader.h and the cache: right bytes at any place, read-ahead, damage, limits. */
#include "tests/unit/s3.h"

#include "core/base/rand.h"
#include "core/store/cache.h"
#include "core/store/reader.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>

enum { BYTES = 300000, ORIGIN = 100, BLOCK = 4096 };
static char *data;
static struct tern_store *s;

static struct tern_store_reader *open_it(const char *url, unsigned blocks)
{
    const struct tern_store_reader_how how = {
        .store = {.deadline_s = 60, .stall_s = 20, .backoff_s = 0.001},
        .origin = ORIGIN,
        .block_bytes = BLOCK,
        .blocks = blocks};
    struct tern_err err = {0};
    struct tern_store_reader *r = tern_store_reader_open(url, &how, &err);

    ok(r && tern_store_reader_bytes(r) == BYTES, "%s opens: %s", url, err.text);
    return r;
}

static int wrong_reads(struct tern_store_reader *r, uint64_t seed, int n)
{
    char got[20000];
    int wrong = 0;

    for (int i = 0; i < n; i++) {
        const uint64_t at = tern_rand_below(seed, 1, (uint64_t)i, BYTES);
        uint64_t len = tern_rand_below(seed, 2, (uint64_t)i, sizeof got);
        len = len < BYTES - at ? len : BYTES - at;
        wrong +=
            tern_store_reader_pread(r, got, len, at, NULL) < 0 || memcmp(got, data + at, len) != 0;
    }
    return wrong;
}

static void test_reads(void)
{
    struct tern_store_reader *r = open_it("s3://b/o", 3);
    struct tern_store_ahead a;
    char got[10];

    for (int i = 0; i < BYTES; i += 4096)
        tern_store_reader_pread(r, got, 1, (uint64_t)i, NULL);
    ok(wrong_reads(r, 1, 200) == 0, "200 reads at random, three blocks in memory");
    tern_store_reader_ahead(r, &a);
    ok(a.fetched_bytes == BYTES, "every block was fetched once (%llu bytes)",
       (unsigned long long)a.fetched_bytes);
    ok(tern_store_reader_pread(r, got, 10, BYTES - 9, NULL) < 0,
       "a read behind the end is an error");
    ok(tern_store_reader_pread(r, got, 0, BYTES, NULL) == 0,
       "a read of nothing at the end is none");
    tern_store_reader_close(r);
    const int before = s3_count("GET /b/o");
    r = open_it("s3://b/o", 3);
    ok(wrong_reads(r, 2, 100) == 0 && s3_count("GET /b/o") == before,
       "a second reader asks the server for nothing");
    tern_store_reader_close(r);
}

static void wait_ahead(struct tern_store_reader *r, struct tern_store_ahead *a)
{
    for (int i = 0; i < 12000; i++) {
        tern_store_reader_ahead(r, a);
        if (a->pending == 0)
            return;
        tern_clock_sleep_ns(50000000);
    }
}

static void test_ahead(void)
{
    struct tern_store_reader *r;
    struct tern_store_ahead a;
    char got[BLOCK];

    tern_store_put(s, "ahead", data, BYTES, NULL, NULL);
    r = open_it("s3://b/ahead", 8);
    tern_store_reader_prefetch(r, ORIGIN, 40 * BLOCK);
    tern_store_reader_prefetch(r, ORIGIN, 40 * BLOCK);
    tern_store_reader_prefetch(r, BYTES, 100);
    wait_ahead(r, &a);
    ok(a.ready == 40 && a.pending == 0, "forty blocks come ahead of the reads (%llu)",
       (unsigned long long)a.ready);
    for (int i = 0; i < 10; i++)
        tern_store_reader_pread(r, got, BLOCK, (uint64_t)(ORIGIN + i * BLOCK), NULL);
    tern_store_reader_ahead(r, &a);
    ok(a.ready == 30 && a.waits == 0, "ten of them are read without a wait: thirty are ahead");
    tern_store_reader_pread(r, got, BLOCK, ORIGIN + 50 * BLOCK, NULL);
    tern_store_reader_ahead(r, &a);
    ok(a.waits == 1 && a.waited_ns > 0, "a read that was not announced waits");
    tern_store_reader_prefetch(r, ORIGIN, BLOCK);
    tern_store_reader_ahead(r, &a);
    ok(a.ready == 31 && a.pending == 0, "a block that is wanted again is ahead at once");
    tern_store_reader_close(r);

    setenv("TERN_CACHE_BYTES", "0", 1);
    r = open_it("s3://b/ahead", 8);
    tern_store_reader_prefetch(r, ORIGIN, 40 * BLOCK);
    wait_ahead(r, &a);
    ok(a.ready == 4, "without a disk, half of memory is read ahead (%llu)",
       (unsigned long long)a.ready);
    ok(wrong_reads(r, 3, 10) == 0, "reads without a disk cache give the right bytes");
    tern_store_reader_close(r);
    unsetenv("TERN_CACHE_BYTES");
}

static struct tern_store_reader *shared;

static void *read_often(void *ctx)
{
    return (void *)(long)wrong_reads(shared, (uint64_t)(long)ctx, 20);
}

static void test_threads(void)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    void *wrong;
    long all = 0;

    tern_store_put(s, "threads", data, BYTES, NULL, NULL);
    shared = open_it("s3://b/threads", 2);
    s3_say("/_fault?503=5&cut=5&reset=5&match=GET.*/threads");
    tern_store_reader_prefetch(shared, 0, BYTES);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, read_often, (void *)(i + 10));
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &wrong);
        all += (long)wrong;
    }
    ok(all == 0, "eight threads, two blocks in memory, through faults");
    tern_store_reader_close(shared);
    s3_say("/_clear");
}

static void test_checks(void)
{
    enum { END = BYTES - 1000, N = (END - ORIGIN - 1) / BLOCK + 1 };
    uint32_t crc[N];
    struct tern_err err = {0};
    char got[100];

    for (size_t i = 0; i < N; i++) {
        const size_t at = ORIGIN + i * BLOCK, left = END - at;
        crc[i] = tern_crc32c(0, data + at, left < BLOCK ? left : BLOCK);
    }
    tern_store_put(s, "checks", data, BYTES, NULL, NULL);
    struct tern_store_reader *r = open_it("s3://b/checks", 4);
    s3_say("/_fault?flip=3&match=GET.*/checks");
    tern_store_reader_pread(r, got, sizeof got, END - 50, NULL);
    ok(tern_store_reader_check(r, crc, END, NULL) == 0, "checksums are given");
    ok(wrong_reads(r, 4, 100) == 0, "wrong bytes are fetched again");
    tern_store_reader_close(r);
    r = open_it("s3://b/checks", 4);
    crc[5] ^= 1;
    tern_store_reader_check(r, crc, END, NULL);
    ok(tern_store_reader_pread(r, got, sizeof got, ORIGIN + 5 * BLOCK, &err) < 0,
       "bytes that never match are an error");
    has(err.text, "do not match their checksum", "the error says why");
    ok(tern_store_reader_pread(r, got, sizeof got, ORIGIN + 4 * BLOCK, &err) == 0,
       "the block before is read");
    tern_store_reader_close(r);
    s3_say("/_clear");
}

static void test_changed(void)
{
    struct tern_store_reader *r;
    struct tern_err err = {0};
    char got[100];

    tern_store_put(s, "changes", data, BYTES, NULL, NULL);
    r = open_it("s3://b/changes", 4);
    data[0] ^= 1;
    tern_store_put(s, "changes", data, BYTES, NULL, NULL);
    ok(tern_store_reader_pread(r, got, sizeof got, 0, &err) < 0 && err.code == TERN_FAILED,
       "an object that changed after opening is an error");
    has(err.text, "another object has taken its place", "the error says that it changed");
    tern_store_reader_close(r);
    r = open_it("s3://b/changes", 4);
    ok(tern_store_reader_pread(r, got, sizeof got, 0, &err) == 0 && memcmp(got, data, 100) == 0,
       "a new reader reads the new object");
    tern_store_reader_close(r);
    r = tern_store_reader_open("s3://b/none", NULL, &err);
    ok(!r && err.code == TERN_USAGE, "what is not there is not opened: %s", err.text);
}

/* ---- the cache alone ---- */

static void test_cache(void)
{
    char *dir = tern_fs_join(s3_dir, "own"), *path, got[1000];
    uint8_t key[TERN_SHA256_BYTES] = {0xab, 1, 2, 3};
    struct stat st;

    setenv("TERN_CACHE", dir, 1);
    setenv("TERN_CACHE_BYTES", "20K", 1);
    struct tern_store_cache *c = tern_store_cache_open();
    ok(c && !tern_store_cache_get(c, key, got, 1000), "an empty cache has nothing");
    ok(tern_store_cache_put(c, key, data, 1000) && tern_store_cache_get(c, key, got, 1000) &&
           memcmp(got, data, 1000) == 0,
       "a block comes back");
    ok(!tern_store_cache_get(c, key, got, 999), "a block of another length is none");
    ok(!tern_store_cache_has(c, key), "a block that did not match is removed");
    int good = 0;
    for (off_t n = 0; n < 1048; n += 13) {
        tern_store_cache_put(c, key, data, 1000);
        path = tern_strf("%s/blocks/ab/%s", dir,
                         "01020300000000000000000000000000000000000000000000000000000000");
        if (n == 0)
            ok(stat(path, &st) == 0 && st.st_size == 1048, "the file of a block");
        good += truncate(path, n) == 0 && tern_store_cache_get(c, key, got, 1000);
        tern_store_cache_put(c, key, data, 1000);
        const int fd = open(path, O_RDWR | O_CLOEXEC);
        char byte = 0;
        if (pread(fd, &byte, 1, n) == 1) {
            byte = (char)(byte ^ 4);
            good += pwrite(fd, &byte, 1, n) != 1;
        }
        close(fd);
        good += tern_store_cache_get(c, key, got, 1000);
        free(path);
    }
    ok(good == 0, "a block that is cut or flipped anywhere is not given (%d were)", good);
    for (int i = 0; i < 100; i++) {
        key[0] = (uint8_t)i;
        tern_store_cache_put(c, key, data, 1000);
    }
    int have = 0;
    for (int i = 0; i < 100; i++) {
        key[0] = (uint8_t)i;
        have += tern_store_cache_has(c, key);
    }
    ok(have >= 5 && have <= 20, "the oldest blocks are removed at the limit (%d are left)", have);
    tern_store_cache_close(c);
    unsetenv("TERN_CACHE");
    unsetenv("TERN_CACHE_BYTES");
    free(dir);
}

int main(void)
{
    struct tern_err err = {0};

    if (!s3_built())
        return tap_skip_all("built without libcurl");
    if (!s3_start())
        return tap_skip_all("no python3");
    data = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (char)((i * 2654435761u) >> 13);
    s = tern_store_open("s3://b", NULL, &err);
    ok(s && tern_store_put(s, "o", data, BYTES, NULL, &err) == 0, "an object is there: %s",
       err.text);
    test_reads();
    test_ahead();
    test_threads();
    test_checks();
    test_changed();
    test_cache();
    tern_store_close(s);
    free(data);
    s3_end();
    return tap_done();
}

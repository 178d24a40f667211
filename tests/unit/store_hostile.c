/* core/store against servers that answer wrong, or not at all: each call ends, with an error or the
 * right bytes. */
#include "tests/unit/s3.h"

#include "core/store/call.h"
#include "core/store/push.h"
#include "core/store/reader.h"

#include <pthread.h>

enum { BYTES = 50000 };
static char data[BYTES], got[BYTES];

static struct tern_store *open_at(const char *url, double deadline_s)
{
    const struct tern_store_how how = {.deadline_s = deadline_s, .stall_s = 20, .backoff_s = 0.001};
    struct tern_err err = {0};
    struct tern_store *s = tern_store_open(url, &how, &err);

    ok(s != NULL, "%s opens%s%s", url, *err.text ? ": " : "", err.text);
    return s;
}

static int read_all(struct tern_store *s, const char *name, struct tern_err *err)
{
    memset(got, 0, sizeof got);
    *err = (struct tern_err){0};
    return tern_store_read(s, name, NULL, 0, BYTES, got, err);
}

/* ---- ranges ---- */

static void test_ranges(void)
{
    struct tern_store *s = open_at("s3://bucket", 60), *whole = open_at("s3://whole", 60);
    struct tern_err err = {0};

    tern_store_put(s, "r", data, BYTES, NULL, NULL);
    tern_store_put(whole, "r", data, BYTES, NULL, NULL);
    int before = s3_count("GET /bucket/r ");
    s3_say("/_fault?cut=1&match=GET./bucket/r");
    ok(read_all(s, "r", &err) == 0 && memcmp(got, data, BYTES) == 0, "a cut body is read: %s",
       err.text);
    ok(s3_count("GET /bucket/r ") - before == 2 && s3_count("range=bytes=25000-49999") == 1,
       "a cut body costs one request more, for the rest");
    s3_say("/_fault?cut=1&match=GET./whole/r");
    before = s3_count("GET /whole/r ");
    ok(read_all(whole, "r", &err) == 0 && memcmp(got, data, BYTES) == 0,
       "a cut body of a server without ranges is read: %s", err.text);
    ok(s3_count("GET /whole/r ") - before == 2, "a server without ranges is asked once more");
    before = s3_count("GET /whole/r ");
    ok(tern_store_read(whole, "r", NULL, 100, 50, got, &err) < 0 && err.code == TERN_USAGE,
       "a range of a server without ranges is refused");
    has(err.text, "sends files whole alone", "the error says that the server knows no ranges");
    ok(s3_count("GET /whole/r ") - before == 3, "a server without ranges is asked three times");
    s3_say("/_clear");
    tern_store_close(whole);
    tern_store_close(s);
}

/* ---- lists ---- */

static int count_part(void *ctx, const struct tern_store_part *p)
{
    *(int *)ctx += p->number >= 1 && p->number <= TERN_STORE_PARTS ? 1 : 1000;
    return 0;
}

static int count_entry(void *ctx, const struct tern_store_entry *e)
{
    (void)e;
    return ++*(int *)ctx > 50 ? -1 : 0;
}

static void say_text(const char *match, const char *text)
{
    struct tern_buf url = {0};

    tern_buf_printf(&url, "/_fault?say=1000&match=%s&text=", match);
    tern_store_encode(&url, text, /* slashes= */ false);
    s3_say(url.data);
    tern_buf_free(&url);
}

static void test_lists(void)
{
    static const char *const parts[] = {
        "<Part><ETag>e</ETag><Size>5</Size></Part>",
        "<Part><PartNumber>0</PartNumber><Size>5</Size></Part>",
        "<Part><PartNumber>10001</PartNumber><Size>5</Size></Part>",
        "<Part><PartNumber>-1</PartNumber><Size>5</Size></Part>",
        "<Part><PartNumber>x</PartNumber><Size>5</Size></Part>",
        "<Part><PartNumber>1</PartNumber><Size>-5</Size></Part>",
        "<Part><PartNumber>1</PartNumber><Size>5</Size></Part><IsTruncated>true</IsTruncated>",
        "<IsTruncated>true</IsTruncated>",
    };
    static const char *const lists[] = {
        "<Contents><Key>k</Key><Size>1</Size></Contents><IsTruncated>true</IsTruncated>",
        "<Contents><Key>k</Key><Size>1</Size></Contents><IsTruncated>true</IsTruncated>"
        "<NextContinuationToken>t</NextContinuationToken>",
        "<Contents><Key>k</Key><Size>-1</Size></Contents>",
        "<Contents><Key>%ZZ</Key><Size>1</Size></Contents>",
    };
    struct tern_store *s = open_at("s3://bucket", 60);

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct tern_err err = {0};
        int n = 0;
        char *text = tern_strf("<ListPartsResult>%s</ListPartsResult>", parts[i]);
        say_text("uploadId", text);
        ok(tern_store_upload_parts(s, "k", "id", count_part, &n, &err) < 0 && n < 3,
           "parts %s: an error: %s", parts[i], err.text);
        has(err.text, "list of parts is damaged", "parts %s: the error says why", parts[i]);
        s3_say("/_clear");
        free(text);
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct tern_err err = {0};
        int n = 0;
        char *text = tern_strf("<ListBucketResult>%s</ListBucketResult>", lists[i]);
        say_text("list-type", text);
        ok(tern_store_list(s, "", count_entry, &n, &err) < 0 && n < 3, "list %s: an error: %s",
           lists[i], err.text);
        has(err.text, "list is damaged", "list %s: the error says why", lists[i]);
        s3_say("/_clear");
        free(text);
    }
    tern_store_close(s);
}

/* ---- heads, and remedies that do not help ---- */

static void test_heads(void)
{
    struct tern_store *s = open_at("s3://bucket", 60);
    struct tern_err err = {0};

    s3_say("/_fault?nul=1&match=GET./bucket/r");
    ok(read_all(s, "r", &err) == 0 && memcmp(got, data, BYTES) == 0,
       "a header with a NUL in its name changes nothing: %s", err.text);
    s3_say("/_clear");
    tern_store_close(s);
}

static void test_remedies(void)
{
    static const char *const kinds[] = {"moved", "skew", "expired"};

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct tern_store *s = open_at("s3://bucket", 3600);
        struct tern_err err = {0};
        char *fault = tern_strf("/_fault?%s=1000000&match=GET./bucket/r", kinds[i]);
        const int before = s3_count("GET /bucket/r ");
        s3_say(fault);
        ok(read_all(s, "r", &err) < 0 && err.code == TERN_USAGE, "%s for ever: an error: %s",
           kinds[i], err.text);
        const int n = s3_count("GET /bucket/r ") - before;
        ok(n >= 2 && n <= 3, "%s for ever: tried anew at most twice (%d)", kinds[i], n);
        s3_say("/_clear");
        tern_store_close(s);
        free(fault);
    }
}

/* ---- a push whose object goes ---- */

static void test_push(void)
{
    const struct tern_store_push_how how = {0};
    struct tern_store *s = open_at("s3://bucket", 60);
    struct tern_store_pushed pushed;
    struct tern_err err = {0};
    char *path = tern_fs_join(s3_dir, "pushed");

    tern_fs_replace(path, data, 1000, 0600, NULL);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    s3_say("/_fault?404=1&match=HEAD./bucket/pushed");
    ok(tern_store_push(s, "pushed", fd, path, &how, &pushed, &err) < 0 && err.code == TERN_TEMPFAIL,
       "an object that is gone after its push is an error: %s", err.text);
    s3_say("/_clear");
    ok(tern_store_push(s, "pushed", fd, path, &how, &pushed, &err) == 0 && pushed.bytes == 1000,
       "the next push succeeds: %s", err.text);
    close(fd);
    free(path);
    tern_store_close(s);
}

/* A push again: what is there with the same bytes is not sent, what differs is. */
static void test_push_same(void)
{
    enum { LARGE = (5 << 20) + 100 };
    const struct tern_store_push_how how = {.keep_same = true, .part_bytes = 5 << 20};
    static const size_t sizes[] = {0, 1000, LARGE};
    struct tern_store *s = open_at("s3://bucket", 60);
    char *path = tern_fs_join(s3_dir, "same"), *bytes = calloc(1, LARGE);

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct tern_store_pushed pushed = {0};
        struct tern_err err = {0};
        tern_fs_replace(path, bytes, sizes[i], 0600, NULL);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        tern_store_push(s, "same", fd, path, &how, &pushed, &err);
        const int before = s3_count("PUT /bucket/same");
        ok(tern_store_push(s, "same", fd, path, &how, &pushed, &err) == 0 &&
               s3_count("PUT /bucket/same") == before && pushed.sent_bytes == 0 &&
               pushed.bytes == sizes[i] && *pushed.etag,
           "%zu bytes that are there are not sent again: %s", sizes[i], err.text);
        close(fd);
        if (sizes[i] == 0)
            continue;
        bytes[sizes[i] - 1] ^= 1;
        tern_fs_replace(path, bytes, sizes[i], 0600, NULL);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        ok(tern_store_push(s, "same", fd, path, &how, &pushed, &err) == 0 &&
               pushed.sent_bytes == sizes[i],
           "%zu bytes of which the last is another are sent: %s", sizes[i], err.text);
        close(fd);
    }
    free(bytes);
    free(path);
    tern_store_close(s);
}

static void test_clear(void)
{
    struct tern_store *s = open_at("s3://bucket/root", 60);
    char id[TERN_STORE_ID], found[TERN_STORE_ID];
    struct tern_err err = {0};

    tern_store_upload_begin(s, "half/a", id, &err);
    tern_store_upload_begin(s, "half/a", id, &err);
    tern_store_upload_begin(s, "half/b", id, &err);
    tern_store_upload_begin(s, "other", id, &err);
    ok(tern_store_upload_clear(s, "half/", &err) == 0 &&
           tern_store_upload_find(s, "half/a", found, &err) == 0 &&
           tern_store_upload_find(s, "half/b", found, &err) == 0,
       "unfinished uploads below a prefix are aborted: %s", err.text);
    ok(tern_store_upload_find(s, "other", found, &err) == 1,
       "unfinished uploads of other names stay");
    tern_store_close(s);
}

/* ---- threads that meet ---- */

enum { THREADS = 8 };
static struct tern_store *shared;
static pthread_barrier_t together;

static void *read_once(void *ctx)
{
    char mine[100];
    struct tern_err err = {0};

    (void)ctx;
    pthread_barrier_wait(&together);
    const int rc = tern_store_read(shared, "r", NULL, 0, sizeof mine, mine, &err);
    if (rc < 0)
        printf("# %s\n", err.text);
    return (void *)(long)(rc < 0 || memcmp(mine, data, sizeof mine) != 0);
}

/* All are sent to the wrong region before one of them learns the right one. */
static void test_moved_threads(void)
{
    pthread_t threads[THREADS];
    void *bad;
    long all = 0;

    shared = open_at("s3://elsewhere", 60);
    tern_store_put(shared, "r", data, BYTES, NULL, NULL);
    for (int round = 0; round < 5; round++) {
        tern_store_close(shared);
        shared = open_at("s3://elsewhere", 60);
        pthread_barrier_init(&together, NULL, THREADS);
        for (int i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, read_once, NULL);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], &bad);
            all += (long)bad;
        }
        pthread_barrier_destroy(&together);
    }
    ok(all == 0, "eight threads find a bucket of another region (%ld did not)", all);
    tern_store_close(shared);
}

/* ---- halt ---- */

static void *read_on(void *ctx)
{
    char mine[100];
    struct tern_err *err = ctx;

    return (void *)(long)tern_store_read(shared, "r", NULL, 0, sizeof mine, mine, err);
}

static void wait_for_tries(int n)
{
    for (int i = 0; i < 12000 && s3_count("GET /bucket/r ") < n; i++)
        tern_clock_sleep_ns(50000000);
}

static void test_halt(void)
{
    struct tern_err err = {0};
    pthread_t thread;
    void *rc;

    shared = open_at("s3://bucket", 3600);
    const int before = s3_count("GET /bucket/r ");
    s3_say("/_fault?503=1000000&stall=0&match=GET./bucket/r");
    pthread_create(&thread, NULL, read_on, &err);
    wait_for_tries(before + 2);
    tern_store_halt(shared);
    pthread_join(thread, &rc);
    ok((long)rc < 0 && strstr(err.text, "interrupted"), "a halt ends the retries of a thread: %s",
       err.text);
    ok(tern_store_read(shared, "r", NULL, 0, 10, got, &err) < 0, "a halted store reads no more");
    tern_store_close(shared);

    const struct tern_store_reader_how how = {.store = {.deadline_s = 3600}, .block_bytes = 4096};
    struct tern_store_reader *r = tern_store_reader_open("s3://bucket/r", &how, &err);
    const int asked = s3_count("GET /bucket/r ");
    tern_store_reader_prefetch(r, 0, BYTES);
    wait_for_tries(asked + 2);
    tern_store_reader_close(r);
    ok(true, "a reader closes although its read-ahead would try for an hour");
    s3_say("/_clear");
}

/* ---- the cache's keys ---- */

static void reads_query(const char *query)
{
    char *url = tern_strf("%s/plain/query?%s", s3_endpoint, query), text[8];
    struct tern_err err = {0};
    struct tern_store_reader *r = tern_store_reader_open(url, NULL, &err);

    ok(r && tern_store_reader_pread(r, text, 4, 0, &err) == 0 && memcmp(text, query, 4) == 0,
       "the file of ?%s has its own bytes: %s", query, err.text);
    tern_store_reader_close(r);
    free(url);
}

static char *place_of(const char *url)
{
    struct tern_store *s = tern_store_open(url, NULL, NULL);
    char *place = tern_store_place(s);

    tern_store_close(s);
    return place;
}

/* Presigned URLs: AWS's and Google's signatures of version 4, those of version 2, CloudFront's,
 * Azure's shared access. */
static void test_presigned(void)
{
    static const struct {
        const char *kind, *a, *b, *c; /* a and b: one object; c: another */
    } rows[] = {
        {"S3", "id=1&X-Amz-Date=1&x-amz-signature=a&v=2", "id=1&X-Amz-Date=2&x-amz-signature=b&v=2",
         "id=2&X-Amz-Date=1&x-amz-signature=a&v=2"},
        {"Google", "X-Goog-Date=1&X-Goog-Signature=a&generation=7",
         "X-Goog-Date=2&X-Goog-Signature=b&generation=7",
         "X-Goog-Date=1&X-Goog-Signature=a&generation=8"},
        {"older S3", "AWSAccessKeyId=A&Expires=1&Signature=a&versionId=1",
         "AWSAccessKeyId=A&Expires=2&Signature=b&versionId=1",
         "AWSAccessKeyId=A&Expires=1&Signature=a&versionId=2"},
        {"CloudFront", "Policy=p&Signature=a&Key-Pair-Id=K", "Policy=q&Signature=b&Key-Pair-Id=K",
         "Policy=p&Signature=a&Key-Pair-Id=K&part=2"},
        {"Azure", "snapshot=1&sv=2024&se=1&sp=r&sig=a", "snapshot=1&sv=2025&se=2&sp=r&sig=b",
         "snapshot=2&sv=2024&se=1&sp=r&sig=a"},
        {"an unsigned", "se=1", "se=1", "se=2"}, /* of no signature: the server's own */
        {"an unsigned", "Policy=p", "Policy=p", "Policy=q"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *url[3] = {tern_strf("https://h/f?%s", rows[i].a),
                        tern_strf("https://h/f?%s", rows[i].b),
                        tern_strf("https://h/f?%s", rows[i].c)};
        char *place[3] = {place_of(url[0]), place_of(url[1]), place_of(url[2])};
        ok(strcmp(place[0], place[1]) == 0, "%s URL: one object stays one when signed again",
           rows[i].kind);
        ok(strcmp(place[0], place[2]) != 0, "%s URL: another object is another", rows[i].kind);
        for (int k = 0; k < 3; k++) {
            free(url[k]);
            free(place[k]);
        }
    }
}

static void test_places(void)
{
    char *plain, *other;

    reads_query("id=1");
    reads_query("id=2");
    test_presigned();
    plain = place_of("s3://bucket/r");
    setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1", 1);
    other = place_of("s3://bucket/r");
    ok(strcmp(plain, other) != 0, "one key of two endpoints is two places");
    setenv("AWS_ENDPOINT_URL", s3_endpoint, 1);
    free(plain);
    free(other);
}

int main(void)
{
    if (!s3_built())
        return tap_skip_all("built without libcurl");
    if (!s3_start())
        return tap_skip_all("no python3");
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (char)((i * 2654435761u) >> 13);
    test_ranges();
    test_lists();
    test_heads();
    test_remedies();
    test_push();
    test_push_same();
    test_clear();
    test_moved_threads();
    test_halt();
    test_places();
    s3_end();
    return tap_done();
}

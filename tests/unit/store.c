/* core/store against a server that fails as the test says (tests/tools/s3.py). */
#include "tests/unit/s3.h"

#include <pthread.h>

static double stall_s = 20;

static struct tern_store *open_at(const char *url, double deadline_s, const int *stop)
{
    const struct tern_store_how how = {
        .deadline_s = deadline_s, .stall_s = stall_s, .backoff_s = 0.001, .stop = stop};
    struct tern_err err = {0};
    struct tern_store *s = tern_store_open(url, &how, &err);

    ok(s != NULL, "%s opens%s%s", url, *err.text ? ": " : "", err.text);
    return s;
}

/* Bytes that repeat nowhere. */
static char *bytes_of(size_t n)
{
    char *data = malloc(n + 1);

    for (size_t i = 0; i < n; i++)
        data[i] = (char)((i * 2654435761u) >> 13);
    return data;
}

enum { BYTES = 50000 };
static char *data, got[BYTES + 1];

static int read_all(struct tern_store *s, const char *name, struct tern_err *err)
{
    memset(got, 0, sizeof got);
    *err = (struct tern_err){0};
    return tern_store_read(s, name, NULL, 0, BYTES, got, err);
}

static void test_objects(struct tern_store *s)
{
    static const char *const names[] = {"plain",       "a b+c%d&e=f?g", "\xc3\xa9/\xe2\x82\xac",
                                        "star*~(x)'!", "a//b",          "../up",
                                        "./dot",       "end/"};
    struct tern_store_head h;
    struct tern_err err = {0};
    char etag[TERN_STORE_ETAG];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ok(tern_store_put(s, names[i], data, BYTES, etag, &err) == 0, "%s is put: %s", names[i],
           err.text);
        ok(tern_store_head(s, names[i], &h, &err) == 1 && h.bytes == BYTES &&
               strcmp(h.etag, etag) == 0 && strcmp(h.version, "v1") == 0,
           "%s: its head", names[i]);
        ok(read_all(s, names[i], &err) == 0 && memcmp(got, data, BYTES) == 0, "%s is read: %s",
           names[i], err.text);
        ok(tern_store_read(s, names[i], etag, 77, 1000, got, &err) == 0 &&
               memcmp(got, data + 77, 1000) == 0,
           "%s: a range of it", names[i]);
        ok(tern_store_delete(s, names[i], &err) == 0 && tern_store_head(s, names[i], &h, &err) == 0,
           "%s is deleted", names[i]);
        ok(tern_store_delete(s, names[i], &err) == 0, "%s is deleted again", names[i]);
    }
    ok(tern_store_put(s, "empty", NULL, 0, NULL, &err) == 0 &&
           tern_store_head(s, "empty", &h, &err) == 1 && h.bytes == 0,
       "an empty object");
    ok(tern_store_read(s, "gone", NULL, 0, 5, got, &err) < 0 && err.code == TERN_USAGE,
       "what is not there is not read");
    has(err.text, "s3://bucket/root/gone: there is no such object", "the error names it");
    tern_store_put(s, "plain", data, BYTES, etag, &err);
    ok(tern_store_read(s, "plain", etag, BYTES - 5, 6, got, &err) < 0 && err.code == TERN_FAILED,
       "a range behind the end is an error: %s", err.text);
    ok(tern_store_read(s, "plain", "\"other\"", 0, 5, got, &err) < 0 && err.code == TERN_FAILED,
       "an object with another ETag is an error");
    has(err.text, "another object has taken its place", "the error says that it changed");
}

static int add_name(void *ctx, const struct tern_store_entry *e)
{
    tern_buf_printf(ctx, "%s %llu;", e->name, (unsigned long long)e->bytes);
    return 0;
}

static void test_list(struct tern_store *s)
{
    static const char *const names[] = {"l/1", "l/2 &<>", "l/3", "l/4\xc3\xa9",
                                        "l/5", "l/6",     "l/7"};
    struct tern_buf all = {0};
    struct tern_err err = {0};

    for (size_t i = 0; i < 7; i++)
        tern_store_put(s, names[i], "xyz", i % 3, NULL, NULL);
    ok(tern_store_list(s, "l/", add_name, &all, &err) == 0, "a list of several pages: %s",
       err.text);
    is(all.data, "l/1 0;l/2 &<> 1;l/3 2;l/4\xc3\xa9 0;l/5 1;l/6 2;l/7 0;",
       "the list has every name once");
    ok(tern_store_list(s, "nothing/", add_name, &all, &err) == 0, "an empty list");
    s3_say("/_fault?bomb=1&match=list-type");
    ok(tern_store_list(s, "l/", add_name, &all, &err) < 0,
       "XML with entities of its own is refused");
    s3_say("/_fault?endless=1&match=list-type");
    ok(tern_store_list(s, "l/", add_name, &all, &err) < 0, "an endless list is refused: %s",
       err.text);
    s3_say("/_clear");
    tern_buf_free(&all);
}

/* Each fault once or twice: the call succeeds, and made as many requests more. */
static void test_retries(struct tern_store *patient, struct tern_store *quick)
{
    static const char *const kinds[] = {"500", "503",  "429",   "slowdown", "reset",
                                        "cut", "flip", "range", "stall",    "headers"};
    struct tern_err err = {0};

    tern_store_put(patient, "r", data, BYTES, NULL, NULL);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char *fault = tern_strf("/_fault?%s=2&match=GET.*/r", kinds[i]);
        const int before = s3_count("GET /bucket/root/r ");
        struct tern_store *s = strcmp(kinds[i], "stall") == 0 ? quick : patient;
        s3_say(fault);
        ok(read_all(s, "r", &err) == 0 && memcmp(got, data, BYTES) == 0,
           "%s twice: read in the end: %s", kinds[i], err.text);
        const int n = s3_count("GET /bucket/root/r ") - before;
        ok(s == quick ? n >= 3 : n == 3, "%s twice: three requests (%d)", kinds[i], n);
        free(fault);
    }
    const int cut = s3_count("range=bytes=25000-49999");
    ok(cut >= 1, "a body cut short goes on where it ended");
    s3_say("/_fault?flipped=1&503=1&reset=1&lost=1&match=PUT.*/w");
    ok(tern_store_put(patient, "w", data, BYTES, NULL, &err) == 0, "a put that fails four ways: %s",
       err.text);
    ok(read_all(patient, "w", &err) == 0 && memcmp(got, data, BYTES) == 0, "what was put is right");
    s3_say("/_clear");
}

static void test_gives_up(void)
{
    struct tern_store *s = open_at("s3://bucket/root", 0.5, NULL);
    struct tern_err err = {0};
    const int before = s3_count("GET /bucket/root/r ");

    s3_say("/_fault?403=1&match=GET.*/r");
    ok(read_all(s, "r", &err) < 0 && err.code == TERN_USAGE, "403 is an error at once");
    has(err.text, "403 AccessDenied", "the error has S3's word for it");
    ok(s3_count("GET /bucket/root/r ") - before == 1, "403 is not tried again");
    s3_say("/_clear");
    s3_say("/_fault?503=1000000&match=GET.*/r");
    ok(read_all(s, "r", &err) < 0 && err.code == TERN_TEMPFAIL,
       "503 for ever is an error that may pass");
    has(err.text, "TERN_STORE_DEADLINE", "the error names the limit");
    s3_say("/_clear");
    s3_say("/_fault?drip=1000000&match=GET.*/r");
    ok(read_all(s, "r", &err) < 0 && err.code == TERN_TEMPFAIL, "a slow server: %s", err.text);
    s3_say("/_clear");
    tern_store_close(s);
}

static void test_wrong_for_ever(void)
{
    struct tern_store *s = open_at("s3://bucket/root", 10, NULL);
    struct tern_err err = {0};

    s3_say("/_fault?flip=1000000&match=GET.*/r");
    ok(read_all(s, "r", &err) < 0 && err.code == TERN_TEMPFAIL,
       "wrong bytes for ever are an error");
    s3_say("/_clear");
    tern_store_close(s);
}

static void *stop_soon(void *flag)
{
    tern_clock_sleep_ns(100000000);
    __atomic_store_n((int *)flag, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void test_stop(void)
{
    int stop = 0;
    struct tern_store *s = open_at("s3://bucket/root", 3600, &stop);
    struct tern_err err = {0};
    pthread_t thread;

    s3_say("/_fault?503=1000000&match=GET.*/r");
    pthread_create(&thread, NULL, stop_soon, &stop);
    ok(read_all(s, "r", &err) < 0 && strstr(err.text, "interrupted") != NULL,
       "a stop ends the retries: %s", err.text);
    pthread_join(thread, NULL);
    s3_say("/_clear");
    tern_store_close(s);
}

/* ---- uploads ---- */

static int note_part(void *ctx, const struct tern_store_part *p)
{
    tern_buf_printf(ctx, "%u:%llu;", p->number, (unsigned long long)p->bytes);
    return 0;
}

static void test_upload(struct tern_store *s)
{
    enum { PARTS = 5 };
    struct tern_store_part parts[PARTS];
    struct tern_store_head h;
    struct tern_err err = {0};
    struct tern_buf seen = {0};
    char id[TERN_STORE_ID], found[TERN_STORE_ID];

    ok(tern_store_upload_begin(s, "multi", id, &err) == 0, "an upload begins: %s", err.text);
    s3_say("/_fault?flipped=1&503=1&cut=1&match=partNumber=3");
    for (unsigned i = 0; i < PARTS; i++) {
        parts[i] = (struct tern_store_part){.number = i + 1, .bytes = 10000};
        ok(tern_store_upload_part(s, "multi", id, data + (size_t)i * 10000, &parts[i], &err) == 0,
           "part %u is sent: %s", i + 1, err.text);
    }
    ok(tern_store_head(s, "multi", &h, &err) == 0, "nothing is to be seen before the end");
    ok(tern_store_upload_parts(s, "multi", id, note_part, &seen, &err) == 0,
       "the parts are listed");
    is(seen.data, "1:10000;2:10000;3:10000;4:10000;5:10000;", "every part once, over pages");
    ok(tern_store_upload_find(s, "multi", found, &err) == 1 && strcmp(found, id) == 0,
       "the upload is found again");
    ok(tern_store_upload_find(s, "mult", found, &err) == 0, "an upload of a longer name is not");
    s3_say("/_fault?200=1&lost=1&match=POST.*uploadId");
    ok(tern_store_upload_end(s, "multi", id, parts, PARTS, &err) == 0,
       "an end that fails in a 200, and one whose answer is lost: %s", err.text);
    ok(read_all(s, "multi", &err) == 0 && memcmp(got, data, BYTES) == 0, "the object is whole");
    ok(tern_store_upload_end(s, "never", "none", parts, PARTS, &err) < 0, "no such upload");
    ok(tern_store_upload_begin(s, "multi2", id, &err) == 0 &&
           tern_store_upload_abort(s, "multi2", id, &err) == 0 &&
           tern_store_upload_abort(s, "multi2", id, &err) == 0 &&
           tern_store_upload_find(s, "multi2", found, &err) == 0,
       "an aborted upload is gone, and may be aborted again");
    s3_say("/_clear");
    tern_buf_free(&seen);
}

/* ---- credentials ---- */

static void write_text(const char *name, const char *text)
{
    char *path = tern_fs_join(s3_dir, name);

    tern_fs_replace(path, text, strlen(text), 0600, NULL);
    free(path);
}

static void is_read(const char *how)
{
    struct tern_store *s = open_at("s3://bucket/root", 10, NULL);
    struct tern_err err = {0};

    ok(s && read_all(s, "r", &err) == 0, "read with credentials of %s%s%s", how,
       *err.text ? ": " : "", err.text);
    tern_store_close(s);
}

static void not_read(const char *part, const char *name)
{
    struct tern_store *s = tern_store_open("s3://bucket/root", NULL, NULL);
    struct tern_err err = {0};

    ok(s && read_all(s, "r", &err) < 0 && err.code == TERN_USAGE, "%s: a read is refused", name);
    has(err.text, part, "%s: the error says why", name);
    ok(!strstr(err.text, "secret"), "%s: the error shows no secret", name);
    tern_store_close(s);
}

static void test_credentials(void)
{
    char *url;

    setenv("AWS_SESSION_TOKEN", "token/of+tests", 1);
    is_read("the environment, with a session token");
    ok(s3_count("token=yes") > 0, "the session token was sent");
    unsetenv("AWS_SESSION_TOKEN");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    not_read("AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY", "half of the environment");
    unsetenv("AWS_ACCESS_KEY_ID");
    not_read("needs credentials", "no credentials");
    url = tern_fs_join(s3_dir, ".aws");
    tern_fs_mkdirs(url, 0700, NULL);
    free(url);
    write_text(".aws/credentials", "[default]\naws_access_key_id = AKIDTEST\naws_secret_access_key "
                                   "= secret+key/of=tests\n[bad]\naws_access_key_id = AKIDTEST\n"
                                   "aws_secret_access_key = secret-wrong\n");
    write_text(".aws/config", "[profile process]\ncredential_process = secret\n");
    is_read("~/.aws/credentials");
    setenv("AWS_PROFILE", "bad", 1);
    not_read("SignatureDoesNotMatch", "a wrong secret");
    setenv("AWS_PROFILE", "process", 1);
    not_read("credential_process", "a process of credentials");
    setenv("AWS_PROFILE", "nobody", 1);
    not_read("AWS_PROFILE=nobody", "an unknown profile");
    unsetenv("AWS_PROFILE");
    write_text(".aws/credentials", "");
    unsetenv("AWS_EC2_METADATA_DISABLED");
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", s3_endpoint, 1);
    const int before = s3_count("security-credentials/a-role");
    is_read("the instance's metadata");
    struct tern_store *s = open_at("s3://bucket/root", 10, NULL);
    struct tern_err err = {0};
    s3_say("/_fault?expired=1&match=GET.*/r");
    ok(read_all(s, "r", &err) == 0, "expired credentials are renewed: %s", err.text);
    ok(s3_count("security-credentials/a-role") - before >= 2, "the metadata were asked again");
    tern_store_close(s);
    url = tern_strf("%s/container", s3_endpoint);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    free(url);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "of-container", 1);
    is_read("a container");
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.org/x", 1);
    not_read("AWS_CONTAINER_CREDENTIALS_FULL_URI", "a container's address elsewhere");
    unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("AWS_ACCESS_KEY_ID", "AKIDTEST", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret+key/of=tests", 1);
}

/* ---- clocks, regions, plain URLs ---- */

static void test_places(void)
{
    struct tern_err err = {0};
    struct tern_store *s;
    char *url = tern_strf("%s/plain/file?X-Amz-Signature=secret", s3_endpoint), *text;
    size_t len;

    s3_say("/_hour?5");
    s = open_at("s3://bucket/root", 10, NULL);
    ok(read_all(s, "r", &err) == 0, "a clock that is wrong by hours is corrected: %s", err.text);
    tern_store_close(s);
    s3_say("/_hour?0");
    s = open_at("s3://elsewhere", 10, NULL);
    ok(tern_store_put(s, "r", data, BYTES, NULL, &err) == 0, "a bucket of another region: %s",
       err.text);
    tern_store_close(s);

    s = open_at("s3://plain", 10, NULL);
    tern_store_put(s, "file", data, BYTES, NULL, &err);
    tern_store_close(s);
    s = open_at(url, 10, NULL);
    ok(!strstr(tern_store_url(s), "secret"), "a signed URL is not shown: %s", tern_store_url(s));
    ok(read_all(s, NULL, &err) == 0 && memcmp(got, data, BYTES) == 0, "http on this machine: %s",
       err.text);
    ok(tern_store_put(s, NULL, data, 1, NULL, &err) < 0 && err.code == TERN_USAGE,
       "http is not written to");
    s3_say("/_fault?redirect=1&match=plain/file&to=file:///etc/passwd");
    ok(read_all(s, NULL, &err) < 0 && !strstr(err.text, "secret"), "no redirect to a file: %s",
       err.text);
    s3_say("/_fault?redirect=1000&match=plain/file&to=/plain/file");
    ok(read_all(s, NULL, &err) < 0, "redirects without an end: %s", err.text);
    s3_say("/_clear");
    ok(tern_store_text(s, NULL, 10, &text, &len, NULL, &err) < 0, "a text that is too long: %s",
       err.text);
    tern_store_close(s);
    free(url);
}

/* The token goes to the first host, not to where that redirects. */
static void test_bearer(void)
{
    char *url = tern_strf("%s/plain/file", s3_endpoint), *fault;
    const struct tern_store_how how = {.bearer = "hf_secret", .deadline_s = 10};
    struct tern_store *s = tern_store_open(url, &how, NULL);
    struct tern_err err = {0};
    const char *port = strrchr(s3_endpoint, ':');
    const int before = s3_count("auth=Bearer");

    fault = tern_strf("/_fault?redirect=1&match=plain/file&to=http://localhost%s/plain/file", port);
    s3_say(fault);
    ok(read_all(s, NULL, &err) == 0, "a redirect to another host is followed: %s", err.text);
    ok(s3_count("auth=Bearer") - before == 1, "the token goes to the first host alone");
    s3_say("/_clear");
    tern_store_close(s);
    free(fault);
    free(url);
}

/* ---- threads ---- */

static struct tern_store *shared;

static void *read_often(void *ctx)
{
    char mine[500];
    struct tern_err err = {0};
    long bad = 0;

    for (int i = 0; i < 20; i++) {
        const size_t at = (size_t)((i * 997 + (long)ctx * 131) % (BYTES - 500));
        const int rc = tern_store_read(shared, "r", NULL, at, sizeof mine, mine, &err);
        if (rc < 0)
            printf("# %s\n", err.text);
        bad += rc < 0 || memcmp(mine, data + at, sizeof mine) != 0;
    }
    return (void *)bad;
}

static void test_threads(struct tern_store *s)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    void *bad;
    long all = 0;

    shared = s;
    s3_say("/_fault?503=5&cut=5&reset=5&match=GET.*/r");
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, read_often, (void *)i);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &bad);
        all += (long)bad;
    }
    ok(all == 0, "eight threads read at once, through faults");
    s3_say("/_clear");
}

int main(void)
{
    if (!s3_built())
        return tap_skip_all("built without libcurl");
    if (!s3_start())
        return tap_skip_all("no python3");
    data = bytes_of(BYTES);
    struct tern_store *s = open_at("s3://bucket/root", 60, NULL);
    test_objects(s);
    test_list(s);
    stall_s = 1;
    struct tern_store *quick = open_at("s3://bucket/root", 60, NULL);
    stall_s = 20;
    test_retries(s, quick);
    tern_store_close(quick);
    test_gives_up();
    test_wrong_for_ever();
    test_stop();
    test_upload(s);
    test_credentials();
    test_places();
    test_bearer();
    test_threads(s);
    tern_store_close(s);
    free(data);
    s3_end();
    return tap_done();
}

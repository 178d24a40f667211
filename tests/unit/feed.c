/* core/data/feed.h: records become tokens with a mask, the same from any number of threads; bad
 * ones are reported by line, or left out, at no cost; hashes are those of tokens and masks. */
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/data/feed.h"
#include "core/token/token.h"
#include "tests/unit/tap.h"

#include <unistd.h>

static char work[] = "/tmp/tern-feed-XXXXXX";
static int n_open;

/* Records of a test: "bad" is refused, "none" has no text; another becomes its bytes, of which
 * those that are 'x' are targets.  "all" leaves the mask away. */
struct state {
    uint32_t ids[4096];
    uint8_t mask[4096];
};

static void *open_state(const void *arg, const struct tern_token *t, struct tern_err *err)
{
    (void)t;
    if (arg)
        return tern_err_set(err, TERN_FAILED, "no state"), NULL;
    __atomic_fetch_add(&n_open, 1, __ATOMIC_RELAXED);
    return malloc(sizeof(struct state));
}

static int encode(void *state, const char *line, size_t len, struct tern_data_feed_tokens *ret,
                  struct tern_err *err)
{
    struct state *s = state;

    if (strncmp(line, "{\"bad", 5) == 0)
        return tern_err_set(err, TERN_USAGE, "no answer");
    for (size_t i = 0; i < len; i++) {
        s->ids[i] = (unsigned char)line[i];
        s->mask[i] = line[i] == 'x';
    }
    *ret = (struct tern_data_feed_tokens){s->ids, strncmp(line, "{\"all", 5) == 0 ? NULL : s->mask,
                                          strncmp(line, "{\"none", 6) == 0 ? 0 : len, len / 2,
                                          len % 3 == 0};
    return 0;
}

static void close_state(void *state)
{
    __atomic_fetch_sub(&n_open, 1, __ATOMIC_RELAXED);
    free(state);
}

static const struct tern_data_feed_records records = {
    .open = open_state, .encode = encode, .close = close_state};

/* Line i of the file of records; malloc'ed. */
static char *record(int i)
{
    const char *kind = i % 97 == 13 ? "bad" : i % 89 == 7 ? "none" : i % 5 == 0 ? "all" : "mask";

    return tern_strf("{\"%s\": \"%d xx%*sx\"}", kind, i, i % 300, "");
}

enum { RECORDS = 5000 };

static void write_records(const char *path, bool bad)
{
    struct tern_buf b = {0};

    for (int i = 0; i < RECORDS; i++) {
        char *line = record(i);
        if (bad || strncmp(line, "{\"bad", 5) != 0)
            tern_buf_printf(&b, "%s\n%s", line, i % 50 ? "" : " \n");
        free(line);
    }
    if (tern_fs_replace(path, b.data, b.len, 0600, NULL) < 0)
        abort();
    tern_buf_free(&b);
}

static bool is_doc(const struct tern_data_feed_doc *d, const char *line)
{
    const struct tern_data_feed_tokens *t = &d->tokens;
    const bool all = strncmp(line, "{\"all", 5) == 0;
    uint8_t hash[TERN_SHA256_BYTES];
    const size_t n = strlen(line), wanted = strncmp(line, "{\"none", 6) == 0 ? 0 : n;
    const uint8_t kind[2] = {!all, n % 3 == 0};
    struct tern_sha256 *h = tern_sha256_new();
    bool same =
        t->n_ids == wanted && t->cut == (n % 3 == 0) && t->text_bytes == n / 2 && d->path == 0;

    tern_sha256_add(h, kind, sizeof kind);
    for (size_t i = 0; i < wanted; i++) {
        const uint32_t id = (unsigned char)line[i];
        tern_sha256_add(h, &id, sizeof id);
    }
    for (size_t i = 0; same && i < wanted; i++) {
        const uint8_t target = line[i] == 'x';
        same =
            t->ids[i] == (unsigned char)line[i] && (t->mask ? t->mask[i] == (all || target) : all);
        if (!all)
            tern_sha256_add(h, &target, 1);
    }
    tern_sha256_end(h, hash);
    return same && d->hash && memcmp(d->hash, hash, TERN_DATA_HASH) == 0;
}

static void test_records(char *path, unsigned threads)
{
    struct tern_data_feed_how how = {.paths = &path,
                                     .n_paths = 1,
                                     .threads = threads,
                                     .hash = true,
                                     .records = &records,
                                     .text.skip_bad = true};
    struct tern_data_feed *f = tern_data_feed_open(&how, NULL);
    struct tern_data_feed_doc d;
    uint64_t bad = 0;
    bool same = true;

    for (int i = 0; i < RECORDS; i++) {
        char *line = record(i);
        if (strncmp(line, "{\"bad", 5) == 0)
            bad++;
        else
            same = same && tern_data_feed_next(f, &d, NULL) == 1 && is_doc(&d, line);
        free(line);
    }
    ok(same, "%u threads: the records' tokens, masks and hashes, in order", threads);
    ok(tern_data_feed_next(f, &d, NULL) == 0, "%u threads: no document behind the last", threads);
    const struct tern_text_counts c = tern_data_feed_counts(f, 0);
    ok(c.bad == bad && c.bad_line[0] == 15, "%u threads: bad records are counted by line", threads);
    tern_data_feed_close(f);
    ok(n_open == 0, "%u threads: each thread's state is closed", threads);
}

static void test_bad(char *path, unsigned threads)
{
    struct tern_data_feed_how how = {
        .paths = &path, .n_paths = 1, .threads = threads, .records = &records};
    struct tern_data_feed *f = tern_data_feed_open(&how, NULL);
    struct tern_data_feed_doc d;
    struct tern_err err = {0};
    int rc, n = 0;

    while ((rc = tern_data_feed_next(f, &d, &err)) > 0)
        n++;
    ok(rc < 0 && n == 13 && err.code == TERN_USAGE, "%u threads: a bad record ends it", threads);
    has(err.text, "records.jsonl:15: no answer", "%u threads: the bad record's line", threads);
    tern_data_feed_close(f);
    how.records = &(struct tern_data_feed_records){
        .arg = "", .open = open_state, .encode = encode, .close = close_state};
    f = tern_data_feed_open(&how, NULL);
    ok(tern_data_feed_next(f, &d, &err) < 0 && strcmp(err.text, "no state") == 0,
       "%u threads: an encoder that cannot begin is an error", threads);
    tern_data_feed_close(f);
}

static void test_plain(char *path)
{
    struct tern_data_feed_how how = {
        .paths = &path, .n_paths = 1, .threads = 1, .records = &records};
    struct tern_data_feed *f;
    struct tern_data_feed_doc d;
    struct tern_err err = {0};

    tern_fs_replace(path, "words\n", 6, 0600, NULL);
    f = tern_data_feed_open(&how, NULL);
    ok(tern_data_feed_next(f, &d, &err) < 0, "records are not read from plain text");
    has(err.text, "plain.txt: is not JSONL, nor an Arrow file", "plain text is named");
    tern_data_feed_close(f);
}

/* ---- what bad lines cost ---- */

enum { LINE = 100, LINES = 80000, FROM = 70000 };

/* Bytes that this process has read so far; 0: the system does not count them. */
static uint64_t bytes_read(void)
{
    unsigned long long n = 0;
    FILE *f = fopen("/proc/self/io", "r");

    if (f && fscanf(f, "rchar: %llu", &n) != 1)
        n = 0;
    if (f)
        fclose(f);
    return n;
}

/* The last eighth of a file, as a share of a build has it, with bad lines in it. */
static void test_cost(char *path, const struct tern_token *token, const char *bad, const char *what,
                      bool is_records, unsigned threads)
{
    struct tern_data_feed_how how = {.token = token,
                                     .paths = &path,
                                     .n_paths = 1,
                                     .threads = threads,
                                     .from = FROM * LINE,
                                     .records = is_records ? &records : NULL,
                                     .text.skip_bad = true};
    struct tern_data_feed_doc d;
    struct tern_buf b = {0};
    uint64_t n = 0;

    for (int i = 0; i < LINES; i++)
        tern_buf_printf(&b, "%-*.*s\n", LINE - 1, LINE - 1,
                        i >= FROM && i % 1000 == 7 ? bad : "{\"text\": \"word\"}");
    if (tern_fs_replace(path, b.data, b.len, 0600, NULL) < 0)
        abort();
    const uint64_t before = bytes_read();
    struct tern_data_feed *f = tern_data_feed_open(&how, NULL);
    while (tern_data_feed_next(f, &d, NULL) > 0)
        n++;
    const uint64_t read = bytes_read() - before;
    const struct tern_text_counts c = tern_data_feed_counts(f, 0);
    ok(n == LINES - FROM - 10 && c.bad == 10 && c.bad_line[9] == 9008,
       "%u threads: the bad lines of a share are left out, and counted from where it begins: %s",
       threads, what);
    if (before)
        ok(read < 2 * (LINES - FROM) * LINE,
           "%u threads: what is before the share is not read for their numbers: %s", threads, what);
    else
        tap_skip("no /proc/self/io");
    tern_data_feed_close(f);
    tern_buf_free(&b);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    char *path = tern_fs_join(work, "records.jsonl"), *plain = tern_fs_join(work, "plain.txt");
    write_records(path, /* bad= */ true);
    for (unsigned threads = 1; threads <= 3; threads++) {
        test_records(path, threads);
        test_bad(path, threads);
    }
    test_plain(plain);
    struct tern_token *token = tern_token_load("tests/golden/spm-bpe-800.model", NULL);
    for (unsigned threads = 1; threads <= 2; threads++) {
        test_cost(path, token, "no JSON", "no JSON", /* is_records= */ false, threads);
        test_cost(path, token, "{\"other\": 1}", "no field", /* is_records= */ false, threads);
        test_cost(path, token, "{\"text\": \"\xff\"}", "no UTF-8", /* is_records= */ false,
                  threads);
        test_cost(path, token, "{\"bad\": 1}", "a bad record", /* is_records= */ true, threads);
        test_cost(path, token, "{\"text\": \"\xff\"}", "a record in no UTF-8",
                  /* is_records= */ true, threads);
    }
    tern_token_free(token);
    tern_fs_remove_tree(work, NULL);
    free(path);
    free(plain);
    return tap_done();
}

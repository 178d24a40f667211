/* core/ledger: damage to frames, spools and run.db is seen, and reaches no reader. */
#include "tests/unit/ledger.h"

#include "core/base/hash.h"
#include "core/ledger/frame.h"

#include <fcntl.h>
#include <unistd.h>

/* Every flipped bit of two frames is seen for what it is. */
static void test_flipped_bits(struct tern_buf *all)
{
    int missed = 0, harmless = 0;

    for (size_t bit = 0; bit < all->len * 8; bit++) {
        all->data[bit / 8] ^= (char)(1 << bit % 8);
        struct tern_ledger_frame_scan s = {.data = (const uint8_t *)all->data, .len = all->len};
        struct tern_ledger_frame g;
        enum tern_ledger_frame_found found;
        int sound = 0;
        bool seen = false;
        while ((found = tern_ledger_frame_next(&s, &g)) != TERN_FRAME_NO_MORE) {
            if (found == TERN_FRAME_OK)
                sound++;
            else if (found == TERN_FRAME_DAMAGE || found == TERN_FRAME_BREAK)
                seen = true;
            else {
                harmless++;
                break;
            }
        }
        missed += !seen || sound != 1;
        all->data[bit / 8] ^= (char)(1 << bit % 8);
    }
    ok(missed == 0 && harmless == 0,
       "each of %zu flipped bits in two frames costs one record and is seen", all->len * 8);
}

/* Every cut of two frames, the first of `first` bytes, is seen for what it is. */
static void test_cuts(const struct tern_buf *all, size_t first)
{
    int wrong = 0;

    for (size_t len = 0; len < all->len; len++) {
        struct tern_ledger_frame_scan s = {.data = (const uint8_t *)all->data, .len = len};
        struct tern_ledger_frame g;
        enum tern_ledger_frame_found found;
        while ((found = tern_ledger_frame_next(&s, &g)) == TERN_FRAME_OK)
            ;
        wrong += found != (len == 0 || len == first ? TERN_FRAME_NO_MORE : TERN_FRAME_TORN);
    }
    ok(wrong == 0, "each cut is a torn end, not damage");

    wrong = 0;
    char *zeros = calloc(1, all->len);
    for (size_t len = 0; len < all->len; len++) { /* the rest has not arrived: zeros */
        memcpy(zeros, all->data, len);
        struct tern_ledger_frame_scan s = {.data = (const uint8_t *)zeros, .len = all->len};
        struct tern_ledger_frame g;
        enum tern_ledger_frame_found found;
        while ((found = tern_ledger_frame_next(&s, &g)) == TERN_FRAME_OK)
            ;
        wrong += found != TERN_FRAME_ZEROS;
    }
    /* Cuts inside the last CRC leave some of its bytes: those are damage until the rest is there.
     */
    ok(wrong <= 2 * (TERN_FRAME_TRAILER - 1), "zeros at the end are 'not here yet' (%d doubtful)",
       wrong);
    free(zeros);
}

static void test_frames(void)
{
    struct tern_buf one = {0}, all = {0};
    struct tern_ledger_frame f = {.type = TERN_FRAME_PARAM,
                                  .seq = 1,
                                  .wall_ns = 5,
                                  .payload = (const uint8_t *)"payload",
                                  .len = 7};
    tern_ledger_frame_encode(&one, &f);
    tern_buf_add(&all, one.data, one.len);
    size_t first = one.len;
    f.prev = f.crc;
    f.seq = 2;
    tern_ledger_frame_encode(&one, &f);
    tern_buf_add(&all, one.data, one.len);
    test_flipped_bits(&all);
    test_cuts(&all, first);
    tern_buf_free(&one);
    tern_buf_free(&all);
}

/* Frames with right checksums that say what no writer says. */
static void test_liars(void)
{
    struct tern_buf one = {0}, all = {0};
    struct tern_ledger_frame f = {.type = TERN_FRAME_PARAM,
                                  .seq = 1,
                                  .payload = (const uint8_t *)"payload",
                                  .len = 7},
                             g;

    tern_ledger_frame_encode(&one, &f);
    tern_buf_add(&all, one.data, one.len);
    f.prev = f.crc;
    f.seq = 3;
    tern_ledger_frame_encode(&one, &f);
    tern_buf_add(&all, one.data, one.len);
    struct tern_ledger_frame_scan s = {.data = (const uint8_t *)all.data, .len = all.len};
    ok(tern_ledger_frame_next(&s, &g) == TERN_FRAME_OK &&
           tern_ledger_frame_next(&s, &g) == TERN_FRAME_BREAK,
       "a frame that skips a seq breaks the chain, whatever its link");

    const uint32_t length = TERN_FRAME_MAX + 1;
    memcpy(one.data + 4, &length, 4); /* little-endian */
    const uint32_t crc = tern_crc32c(0, one.data, 32);
    memcpy(one.data + 32, &crc, 4);
    s = (struct tern_ledger_frame_scan){.data = (const uint8_t *)one.data, .len = one.len};
    ok(tern_ledger_frame_next(&s, &g) == TERN_FRAME_DAMAGE,
       "a frame longer than the limit is damage, no torn end");
    tern_buf_free(&one);
    tern_buf_free(&all);
}

/* A run of two attempts, one cut off. */
static void make_run(void)
{
    struct tern_ledger_run run = {.name = "cpt", .user = "me", .recipe = "version: 1\n"};
    struct tern_ledger_end e = {"node_fail", 75, 9, "rank 3 on n2 went away"};
    struct tern_ledger_checkpoint c = {.step = 5, .path = "/c/step-00000005", .state = "published"};

    for (unsigned attempt = 1; attempt <= 2; attempt++) {
        struct tern_ledger_spool *w = tern_ledger_spool_open(dir, id, attempt, "rank0", &err);
        struct tern_ledger_attempt a = {.job_id = 7, .resumed_step = attempt == 1 ? 0 : 5};
        tern_ledger_spool_run(w, &run, &err);
        tern_ledger_spool_attempt_begin(w, &a, &err);
        tern_ledger_spool_param(w, "kernels", "avx512", &err);
        for (int i = attempt == 1 ? 1 : 6; i <= 8; i++)
            step(w, i, 10 - i);
        if (attempt == 1) {
            tern_ledger_spool_checkpoint(w, &c, &err);
            tern_ledger_spool_attempt_end(w, &e, &err);
        }
        ok(tern_ledger_spool_close(w, &err) == 0, "attempt %u of a run is written", attempt);
    }
    ok(tern_ledger_fold(dir, id, &err) == 0, "the run is folded");
}

/* One byte changed in the middle of a spool, its end cut off. */
static void test_verify(void)
{
    struct tern_ledger_check c;
    struct tern_buf found = {0};
    char *spool = tern_strf("%s/runs/%s/spool/1/rank0.0.spool", dir, id), *data;
    size_t len;

    int rc = tern_ledger_verify(dir, id, &c, &found, &err);
    ok(rc == 0 && c.damaged == 0 && c.files == 2 && c.records == 19,
       "a sound run verifies: %d files, %d records %s", (int)c.files, (int)c.records,
       found.data ? found.data : "");
    tern_fs_read(spool, 1 << 20, &data, &len, &err);
    data[len / 2] ^= 4;
    tern_fs_replace(spool, data, len, 0644, &err);
    ok(tern_ledger_verify(dir, id, &c, &found, &err) == 0 && c.damaged >= 1,
       "verify finds a flipped bit in a spool");
    has(found.data, "lost", "verify reports the lost record");
    data[len / 2] ^= 4;
    tern_fs_replace(spool, data, len - 3, 0644, &err);
    tern_buf_clear(&found);
    ok(tern_ledger_verify(dir, id, &c, &found, &err) == 0 && c.damaged == 1,
       "verify finds a spool whose end is cut off");
    has(found.data, "which run.db has read, are gone",
        "verify reports that records of run.db are gone from the spool");
    tern_fs_replace(spool, data, len, 0644, &err);
    free(data);

    free(spool);
    tern_buf_free(&found);
}

/* Bytes of run.db changed: SQLite itself has no checksums. */
static void test_database(void)
{
    struct tern_ledger_check c;
    struct tern_buf found = {0};
    char *db;
    size_t db_len;

    char *path = tern_strf("%s/runs/%s/run.db", dir, id);
    tern_ledger_fold(dir, id, &err);
    tern_fs_read(path, 1 << 24, &db, &db_len, &err);
    /* Texts, and the bits of a learning rate of 1e-4: SQLite itself has no checksums. */
    static const struct {
        const char *bytes;
        size_t n;
    } targets[] = {{"went away", 9}, {"avx512", 6}, {"\x3f\x1a\x36\xe2\xeb\x1c\x43\x2d", 8}};
    int missed = 0;
    for (int i = 0; i < 3; i++) {
        char *at = memmem(db, db_len, targets[i].bytes, targets[i].n);
        missed += at == NULL;
        if (!at)
            continue;
        at[1] ^= 1;
        tern_fs_replace(path, db, db_len, 0644, &err);
        at[1] ^= 1;
        tern_buf_clear(&found);
        if (tern_ledger_verify(dir, id, &c, &found, &err) != 0 || c.damaged == 0) {
            missed++;
            printf("# missed %d\n", i);
        }
    }
    ok(missed == 0, "verify finds a changed text or value in run.db");
    /* Anywhere at all: never a crash. */
    for (size_t at = 16; at < db_len; at += db_len / 60) {
        db[at] ^= 0x55;
        tern_fs_replace(path, db, db_len, 0644, &err);
        db[at] ^= 0x55;
        missed += tern_ledger_verify(dir, id, &c, &found, &err) < 0;
        tern_ledger_close(tern_ledger_open_run(dir, id, &err));
    }
    ok(true, "no reader crashes on bytes changed all over run.db (%d refused)", missed);
    ok(tern_ledger_rebuild(dir, id, &err) == 0 &&
           tern_ledger_verify(dir, id, &c, &found, &err) == 0 && c.damaged == 0,
       "a damaged run.db is rebuilt");
    free(db);
    free(path);
    tern_buf_free(&found);
}

/* A crafted spool: every checksum is right, the names are bad. */
static void craft(struct tern_buf *file, struct tern_ledger_frame *last, uint16_t type,
                  const struct tern_buf *payload)
{
    struct tern_buf one = {0};
    struct tern_ledger_frame f = {.type = type,
                                  .prev = last->crc,
                                  .seq = last->seq + 1,
                                  .wall_ns = last->wall_ns + 1,
                                  .payload = (const uint8_t *)payload->data,
                                  .len = (uint32_t)payload->len};

    tern_ledger_frame_encode(&one, &f);
    tern_buf_add(file, one.data, one.len);
    *last = f;
    tern_buf_free(&one);
}

static void put_bytes(struct tern_buf *to, const char *s, uint32_t len)
{
    tern_buf_add(to, &len, sizeof len);
    tern_buf_add(to, s, len);
}

/* Names that no writer writes. */
static const struct {
    uint16_t type;
    const char *name;
    uint32_t len;
} bad[] = {{TERN_FRAME_STEP, "a\0BBBBBBBBBBBBBBBBBBBBBBBBBBBBB", 31},
           {TERN_FRAME_STEP, "a\033[31m", 6},
           {TERN_FRAME_STEP, "a\nb", 3},
           {TERN_FRAME_STEP, "a\177", 2},
           {TERN_FRAME_STEP, "a\302\233b", 4},     /* C1 */
           {TERN_FRAME_STEP, "a\342\200\256b", 5}, /* from right to left */
           {TERN_FRAME_STEP, "a\233b", 3},         /* C1 of eight bits */
           {TERN_FRAME_STEP, "", 0},
           {TERN_FRAME_EVAL, "a\0BBBB", 6},
           {TERN_FRAME_EVAL, "a\tb", 3},
           {TERN_FRAME_EVAL, "a\342\201\246b", 5},
           {TERN_FRAME_PARAM, "a\0BBBB", 6},
           {TERN_FRAME_PARAM, "a\rb", 3},
           {TERN_FRAME_PARAM, "a\233b", 3},
           {TERN_FRAME_EVENT, "a\0BBBB", 6}};

/* What a frame of `type` has around a name. */
static void name_payload(struct tern_buf *to, uint16_t type, const char *name, uint32_t len)
{
    const int64_t two[2] = {2, 2};
    const double value = 1.0;

    tern_buf_clear(to);
    if (type == TERN_FRAME_STEP) { /* behind a good one, which does not count then */
        tern_buf_add(to, two, 16);
        put_bytes(to, "loss", 4);
        tern_buf_add(to, &value, 8);
    } else if (type == TERN_FRAME_EVAL) {
        tern_buf_add(to, two, 8);
    }
    put_bytes(to, name, len);
    for (int k = 0; k < 3; k++) /* what else the kind has */
        if (type == TERN_FRAME_STEP || type == TERN_FRAME_EVAL)
            tern_buf_add(to, &value, 8);
        else
            put_bytes(to, "x", 1);
}

/* Of `n` records with crafted names, run.db of `run` has the damage alone. */
static void no_record_of(const char *run, size_t n)
{
    struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
    struct tern_ledger_table t;
    ok(l &&
           tern_ledger_sql(l,
                           "SELECT (SELECT count(*) FROM metric), (SELECT count(*) FROM point), "
                           "(SELECT count(*) FROM eval) + (SELECT count(*) FROM param) + "
                           "(SELECT count(*) FROM event), (SELECT count(*) FROM damage)",
                           9, 9, &t, &err) == 0 &&
           t.cells[0].integer == 3 && t.cells[1].integer == 4 && t.cells[2].integer == 0 &&
           t.cells[3].integer == (int64_t)n, /* loss, lr and that of the older writer */
       "no record with a crafted name is taken");
    tern_ledger_table_free(&t);
    tern_ledger_close(l);
}

/* A writer before 0.4 took names that are not UTF-8: their values stay. */
static void old_name_of(const char *run)
{
    struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
    struct tern_ledger_table t = {0};

    ok(l &&
           tern_ledger_sql(l, "SELECT hex(name), value FROM step WHERE name LIKE 'caf%'", 9, 9, &t,
                           &err) == 0 &&
           t.n_rows == 1 && strcmp(t.cells[0].text, "636166E9") == 0,
       "a metric of an older writer, whose name is Latin-1, has its value");
    tern_ledger_table_free(&t);
    tern_ledger_close(l);
}

static void test_names(void)
{
    char other[TERN_ULID_SIZE], *path, *db, *data;
    struct tern_ledger_spool *s =
        tern_ledger_spool_open(dir, tern_ledger_ulid_new(other), 1, "w", &err);
    struct tern_ledger_frame f, last = {0};
    struct tern_buf file = {0}, payload = {0}, found = {0};
    struct tern_ledger_check c;
    size_t len;

    ok(tern_ledger_spool_step(s, 1, (struct tern_ledger_value[]){{"x\033[2J", 1}}, 1, &err) < 0 &&
           tern_ledger_spool_param(s, "x\n", "1", &err) < 0 &&
           tern_ledger_spool_eval(s, &(struct tern_ledger_eval){.set = "x\r"}, &err) < 0,
       "a writer takes no name with a control byte: %s", err.text);
    step(s, 1, 2.0);
    tern_ledger_spool_close(s, &err);
    path = tern_strf("%s/runs/%s/spool/1/w.0.spool", dir, other);
    tern_fs_read(path, 1 << 20, &data, &len, &err);
    struct tern_ledger_frame_scan scan = {.data = (const uint8_t *)data, .len = len};
    while (tern_ledger_frame_next(&scan, &f) == TERN_FRAME_OK)
        last = f;
    tern_buf_add(&file, data, len);
    const size_t n = sizeof bad / sizeof *bad;
    for (size_t i = 0; i < n; i++) {
        name_payload(&payload, bad[i].type, bad[i].name, bad[i].len);
        craft(&file, &last, bad[i].type, &payload);
    }
    name_payload(&payload, TERN_FRAME_STEP, "caf\351", 4);
    craft(&file, &last, TERN_FRAME_STEP, &payload);
    tern_fs_replace(path, file.data, file.len, 0644, &err);
    free(data);
    free(path);
    ok(tern_ledger_fold(dir, other, &err) == 0, "a spool with crafted names is folded: %s",
       err.text);
    path = tern_strf("%s/runs/%s/run.db", dir, other);
    tern_fs_read(path, 1 << 24, &db, &len, &err);
    ok(!memmem(db, len, "BBBB", 4), "of a name with a NUL nothing behind it is in run.db");
    old_name_of(other);
    no_record_of(other, n);
    ok(tern_ledger_verify(dir, other, &c, &found, &err) == 0 && c.damaged == n,
       "verify reports each record with a crafted name (%d): %s", (int)c.damaged,
       found.data ? found.data : "");
    char *run = tern_strf("%s/runs/%s", dir, other);
    tern_fs_remove_tree(run, NULL);
    free(run);
    free(db);
    free(path);
    tern_buf_free(&file);
    tern_buf_free(&payload);
    tern_buf_free(&found);
}

/* The answers to usual queries, as one text; NULL when one fails. */
static char *answers(const char *run)
{
    static const char *const queries[] = {
        "SELECT * FROM step_all ORDER BY name, attempt, step",
        "SELECT * FROM step ORDER BY name, step",
        "SELECT * FROM run_row",
        "SELECT * FROM attempt_row ORDER BY attempt",
        "SELECT * FROM checkpoint_row ORDER BY path",
        "SELECT * FROM eval_effective ORDER BY set_name, step",
        "SELECT * FROM event ORDER BY writer_id, seq",
        "SELECT * FROM health ORDER BY writer_id, seq",
        "SELECT * FROM param ORDER BY attempt, name",
        "SELECT name FROM metric ORDER BY name",
    };
    struct tern_ledger *l = tern_ledger_open_run(dir, run, &err);
    struct tern_buf b = {0};
    bool good = l != NULL;

    for (size_t i = 0; good && i < sizeof queries / sizeof *queries; i++) {
        struct tern_ledger_table t = {0};
        good = tern_ledger_sql(l, queries[i], 1 << 20, 20, &t, &err) == 0;
        for (size_t k = 0; good && k < t.n_rows * t.n_columns; k++)
            tern_buf_printf(&b, "%d %lld %.17g %s\n", (int)t.cells[k].kind,
                            (long long)t.cells[k].integer, t.cells[k].real,
                            t.cells[k].text ? t.cells[k].text : "");
        tern_ledger_table_free(&t);
    }
    tern_ledger_close(l);
    if (good)
        return b.data;
    tern_buf_free(&b);
    return NULL;
}

/* One to three bits anywhere in run.db: a database that verifies changes no answer. */
static void test_flips(void)
{
    const int tries = tap_long() ? 2000 : 20;
    struct tern_ledger_check c;
    struct tern_buf found = {0};
    char *path = tern_strf("%s/runs/%s/run.db", dir, id), *db, *right = answers(id);
    int passed = 0, wrong = 0, real = dup(2), null = open("/dev/null", O_WRONLY);
    size_t len;

    tern_fs_read(path, 1 << 24, &db, &len, &err);
    dup2(null, 2); /* it warns of each */
    srand(1);
    for (int i = 0; i < tries; i++) {
        size_t bit[3];
        int n = i % 4 ? 1 : 3;
        for (int k = 0; k < n; k++) {
            bit[k] = ((size_t)rand() << 16 ^ (size_t)rand()) % (len * 8);
            db[bit[k] / 8] ^= (char)(1 << bit[k] % 8);
        }
        tern_fs_replace(path, db, len, 0644, &err);
        tern_buf_clear(&found);
        alarm(60); /* nothing takes that long, but a reader that hangs */
        bool good = tern_ledger_verify(dir, id, &c, &found, &err) == 0 && c.damaged == 0;
        char *now = answers(id);
        passed += good;
        if (good && (!now || strcmp(now, right) != 0)) {
            wrong++;
            printf("# try %d, bit %zu passes\n", i, bit[0]);
        }
        free(now);
        for (int k = 0; k < n; k++)
            db[bit[k] / 8] ^= (char)(1 << bit[k] % 8);
    }
    alarm(0);
    dup2(real, 2);
    close(real);
    close(null);
    tern_fs_replace(path, db, len, 0644, &err);
    ok(right && wrong == 0,
       "of %d run.db with flipped bits, the %d that verify give the right answers", tries, passed);
    free(right);
    free(db);
    free(path);
    tern_buf_free(&found);
}

int main(void)
{
    ledger_begin();
    test_frames();
    test_liars();
    make_run();
    test_verify();
    test_database();
    test_names();
    test_flips();
    return ledger_end();
}

#include "core/ledger/parts.h"

#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/le.h"
#include "core/ledger/db.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PART = 72, ENTRY = 32, FOOT = 40, VERSION = 1, COUNTERS_AT = 24, COUNTERS = 8 };

static const char word[8] = {'t', 'e', 'r', 'n', 'p', 'a', 'r', 't'};

const char tern_ledger_parts_rows[] =
    "SELECT step, value FROM point WHERE metric_id = ?1 AND attempt = ?2 AND step > ?3 AND"
    " step <= ?4 ORDER BY step";

/* ---------------------------------------------------------------- one part */

void tern_ledger_part_add(struct tern_ledger_part *p, int64_t step, double value)
{
    if (p->points++ == 0)
        p->from = step;
    p->to = step;
    if (!isfinite(value))
        return;
    if (p->finite++ == 0) {
        p->first_step = step;
        p->first = p->low = p->high = value;
    }
    p->last_step = step;
    p->last = value;
    p->low = value < p->low ? value : p->low;
    p->high = value > p->high ? value : p->high;
}

static uint8_t *put_real(uint8_t *to, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    return tern_le_put64(to, bits);
}

static double get_real(const uint8_t *at)
{
    uint64_t bits = tern_le_get64(at);
    double v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

static void encode(const struct tern_ledger_part *p, uint8_t to[PART])
{
    to = tern_le_put64(to, (uint64_t)p->from);
    to = tern_le_put64(to, (uint64_t)p->to);
    to = tern_le_put64(to, (uint64_t)p->first_step);
    to = tern_le_put64(to, (uint64_t)p->last_step);
    to = put_real(to, p->first);
    to = put_real(to, p->last);
    to = put_real(to, p->low);
    to = put_real(to, p->high);
    to = tern_le_put32(to, p->finite);
    tern_le_put32(to, 0);
}

static struct tern_ledger_part decode(const uint8_t at[PART])
{
    return (struct tern_ledger_part){.from = (int64_t)tern_le_get64(at),
                                     .to = (int64_t)tern_le_get64(at + 8),
                                     .first_step = (int64_t)tern_le_get64(at + 16),
                                     .last_step = (int64_t)tern_le_get64(at + 24),
                                     .first = get_real(at + 32),
                                     .last = get_real(at + 40),
                                     .low = get_real(at + 48),
                                     .high = get_real(at + 56),
                                     .finite = tern_le_get32(at + 64),
                                     .points = TERN_LEDGER_PART_POINTS};
}

/* ---------------------------------------------------------------- in a file */

/* Parts as bytes. */
struct bytes {
    uint8_t *data; /* malloc'ed; NULL: there are none */
    size_t n;      /* of parts, or entries */
};

/* The file that `db` was opened from; NULL: it is in memory.  By SQLite's own descriptor, since the
 * name may be another file's by now. */
static sqlite3_file *file_of(sqlite3 *db)
{
    const char *name = sqlite3_db_filename(db, "main");
    sqlite3_file *f = NULL;

    if (!name || !*name ||
        sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &f) != SQLITE_OK)
        return NULL;
    return f && f->pMethods ? f : NULL;
}

/* `n` things of `size` bytes at `at`, whose checksum is `crc`. */
static struct bytes read_bytes(sqlite3_file *f, uint64_t at, uint64_t n, size_t size, uint32_t crc)
{
    struct bytes b = {0};
    sqlite3_int64 end;

    if (f->pMethods->xFileSize(f, &end) != SQLITE_OK || n == 0 || n > INT_MAX / size ||
        at > (uint64_t)end || n * size > (uint64_t)end - at || !(b.data = malloc(n * size)))
        return b;
    if (f->pMethods->xRead(f, b.data, (int)(n * size), (sqlite3_int64)at) == SQLITE_OK &&
        tern_crc32c(0, b.data, n * size) == crc) {
        b.n = n;
        return b;
    }
    free(b.data);
    return (struct bytes){0};
}

/* Bytes behind SQLite's pages. */
static int64_t bytes_behind(sqlite3_file *f, sqlite3 *db)
{
    sqlite3_int64 end = 0;

    if (f->pMethods->xFileSize(f, &end) != SQLITE_OK)
        return 0;
    return end - tern_ledger_db_int(db, "PRAGMA page_count", 0) *
                     tern_ledger_db_int(db, "PRAGMA page_size", 0);
}

/* The index of the file, sorted by metric and attempt. */
static struct bytes read_index(sqlite3_file *f)
{
    uint8_t foot[FOOT], counters[COUNTERS];
    sqlite3_int64 end;

    if (f->pMethods->xFileSize(f, &end) != SQLITE_OK || end < FOOT ||
        f->pMethods->xRead(f, foot, FOOT, end - FOOT) != SQLITE_OK ||
        f->pMethods->xRead(f, counters, COUNTERS, COUNTERS_AT) != SQLITE_OK ||
        memcmp(foot, word, sizeof word) != 0 || tern_le_get32(foot + 8) != VERSION ||
        memcmp(foot + 28, counters, COUNTERS) != 0 ||
        tern_crc32c(0, foot, FOOT - 4) != tern_le_get32(foot + FOOT - 4))
        return (struct bytes){0};
    return read_bytes(f, tern_le_get64(foot + 16), tern_le_get32(foot + 12), ENTRY,
                      tern_le_get32(foot + 24));
}

static int64_t entry_metric(const struct bytes *index, size_t i)
{
    return (int64_t)tern_le_get64(index->data + i * ENTRY);
}

static int64_t entry_attempt(const struct bytes *index, size_t i)
{
    return tern_le_get32(index->data + i * ENTRY + 8);
}

static struct bytes read_entry(sqlite3_file *f, const struct bytes *index, size_t i)
{
    const uint8_t *e = index->data + i * ENTRY;

    return read_bytes(f, tern_le_get64(e + 16), tern_le_get64(e + 24), PART, tern_le_get32(e + 12));
}

static struct bytes of_file(sqlite3_file *f, int64_t metric_id, int64_t attempt)
{
    struct bytes index = read_index(f), b = {0};
    size_t lo = 0, hi = index.n;

    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        const int64_t m = entry_metric(&index, mid), a = entry_attempt(&index, mid);
        if (m < metric_id || (m == metric_id && a < attempt))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < index.n && entry_metric(&index, lo) == metric_id &&
        entry_attempt(&index, lo) == attempt)
        b = read_entry(f, &index, lo);
    free(index.data);
    return b;
}

/* ---------------------------------------------------------------- in memory */

static const char sql_begin[] =
    "PRAGMA temp_store = MEMORY;"
    "CREATE TEMP TABLE IF NOT EXISTS tern_part(metric_id INT, attempt INT, data BLOB,"
    " PRIMARY KEY(metric_id, attempt));"
    "CREATE TEMP TABLE IF NOT EXISTS tern_touched(metric_id INT, attempt INT, step INT,"
    " PRIMARY KEY(metric_id, attempt))";
static const char sql_part[] =
    "SELECT data FROM temp.tern_part WHERE metric_id = ? AND attempt = ?";
static const char sql_touched[] =
    "SELECT step FROM temp.tern_touched WHERE metric_id = ? AND attempt = ?";

int tern_ledger_parts_begin(sqlite3 *db, struct tern_err *err)
{
    return tern_ledger_db_exec(db, sql_begin, err);
}

/* The first row of a statement about a metric and attempt; NULL: there is none. */
static sqlite3_stmt *row_of(sqlite3 *db, const char *sql, int64_t metric_id, int64_t attempt)
{
    sqlite3_stmt *st = tern_ledger_db_prepare(db, sql, NULL);

    if (!st)
        return NULL;
    sqlite3_bind_int64(st, 1, metric_id);
    sqlite3_bind_int64(st, 2, attempt);
    if (sqlite3_step(st) == SQLITE_ROW)
        return st;
    sqlite3_finalize(st);
    return NULL;
}

static struct bytes of_memory(sqlite3 *db, int64_t metric_id, int64_t attempt)
{
    struct bytes b = {0};
    sqlite3_stmt *st = row_of(db, sql_part, metric_id, attempt);
    const size_t n = st ? (size_t)sqlite3_column_bytes(st, 0) : 0;

    if (n >= PART && (b.data = malloc(n))) {
        memcpy(b.data, sqlite3_column_blob(st, 0), n);
        b.n = n / PART;
    }
    sqlite3_finalize(st);
    return b;
}

/* The first step that newer records have; INT64_MAX: they have none. */
static int64_t touched_from(sqlite3 *db, int64_t metric_id, int64_t attempt)
{
    sqlite3_stmt *st = row_of(db, sql_touched, metric_id, attempt);
    const int64_t step = st ? sqlite3_column_int64(st, 0) : INT64_MAX;

    sqlite3_finalize(st);
    return step;
}

struct tern_ledger_part *tern_ledger_parts_get(sqlite3 *db, int64_t metric_id, int64_t attempt,
                                               size_t *ret_n)
{
    sqlite3_file *f = file_of(db);
    struct bytes b = f ? of_file(f, metric_id, attempt) : of_memory(db, metric_id, attempt);
    const int64_t touched = f || !b.n ? INT64_MAX : touched_from(db, metric_id, attempt);
    struct tern_ledger_part *p = b.n ? malloc(b.n * sizeof *p) : NULL;
    size_t n = 0;

    for (; p && n < b.n; n++) {
        p[n] = decode(b.data + n * PART);
        if (p[n].to >= touched)
            break;
        if (p[n].from > p[n].to || (n && p[n].from <= p[n - 1].to)) { /* not of this tern */
            n = 0;
            break;
        }
    }
    free(b.data);
    if (n == 0) {
        free(p);
        p = NULL;
    }
    *ret_n = n;
    return p;
}

/* Has an attempt of `db` so many points of a metric that there should be parts? */
static bool wants_parts(sqlite3 *db)
{
    return tern_ledger_db_int(db,
                              "SELECT EXISTS (SELECT 1 FROM span n WHERE last_step - first_step >="
                              " 127 AND (SELECT count(*) FROM (SELECT 1 FROM point p WHERE"
                              " p.metric_id = n.metric_id AND p.attempt = n.attempt LIMIT 128)) ="
                              " 128)",
                              0) > 0;
}

static int keep_entry(sqlite3_stmt *add, const struct bytes *index, size_t i, const struct bytes *b,
                      struct tern_err *err)
{
    sqlite3_bind_int64(add, 1, entry_metric(index, i));
    sqlite3_bind_int64(add, 2, entry_attempt(index, i));
    sqlite3_bind_blob64(add, 3, b->data, b->n * PART, SQLITE_TRANSIENT);
    return tern_ledger_db_run(add, err);
}

int tern_ledger_parts_keep(sqlite3 *file, sqlite3 *db, bool *ret_lost, struct tern_err *err)
{
    sqlite3_file *f = file_of(file);
    struct bytes index = f ? read_index(f) : (struct bytes){0};
    bool lost = index.n == 0 && wants_parts(db);
    sqlite3_stmt *add = NULL;
    int rc = tern_ledger_parts_begin(db, err);

    if (rc == 0 && !(add = tern_ledger_db_prepare(
                         db, "INSERT OR REPLACE INTO temp.tern_part VALUES(?, ?, ?)", err)))
        rc = -1;
    for (size_t i = 0; i < index.n && rc == 0; i++) {
        struct bytes b = read_entry(f, &index, i);
        lost |= b.n == 0;
        if (b.n)
            rc = keep_entry(add, &index, i, &b, err);
        free(b.data);
    }
    sqlite3_finalize(add);
    free(index.data);
    if (rc == 0)
        *ret_lost = lost;
    return rc;
}

/* ---------------------------------------------------------------- making */

/* Adds to `to` the whole parts of a metric and attempt behind those in it, the last of which ends
 * at step `behind`.  `rows` is of tern_ledger_parts_rows. */
static int make_parts(sqlite3_stmt *rows, int64_t metric_id, int64_t attempt, int64_t behind,
                      struct tern_buf *to, struct tern_err *err)
{
    struct tern_ledger_part p = {0};
    uint8_t bytes[PART];
    int step;

    sqlite3_bind_int64(rows, 1, metric_id);
    sqlite3_bind_int64(rows, 2, attempt);
    sqlite3_bind_int64(rows, 3, behind);
    sqlite3_bind_int64(rows, 4, INT64_MAX);
    while ((step = sqlite3_step(rows)) == SQLITE_ROW) {
        tern_ledger_part_add(&p, sqlite3_column_int64(rows, 0),
                             tern_ledger_db_column_real(rows, 1));
        if (p.points < TERN_LEDGER_PART_POINTS)
            continue;
        encode(&p, bytes);
        tern_buf_add(to, bytes, PART);
        p = (struct tern_ledger_part){0};
    }
    if (step != SQLITE_DONE)
        tern_ledger_db_fail(sqlite3_db_handle(rows), err, "ledger");
    sqlite3_reset(rows);
    return step == SQLITE_DONE ? tern_buf_check(to, "parts of curves", err) : -1;
}

/* A walk over all metrics and attempts. */
struct walk {
    sqlite3 *db;
    sqlite3_stmt *spans, *rows;
};

static int walk_begin(struct walk *w, sqlite3 *db, struct tern_err *err)
{
    *w = (struct walk){.db = db};
    w->spans = tern_ledger_db_prepare(db, "SELECT metric_id, attempt FROM span ORDER BY 1, 2", err);
    w->rows = tern_ledger_db_prepare(db, tern_ledger_parts_rows, err);
    return w->spans && w->rows ? 0 : -1;
}

/* 1 with the next metric and attempt, 0 at the end, or -1. */
static int walk_next(struct walk *w, int64_t *metric_id, int64_t *attempt, struct tern_err *err)
{
    const int step = sqlite3_step(w->spans);

    if (step != SQLITE_ROW)
        return step == SQLITE_DONE ? 0 : tern_ledger_db_fail(w->db, err, "ledger");
    *metric_id = sqlite3_column_int64(w->spans, 0);
    *attempt = sqlite3_column_int64(w->spans, 1);
    return 1;
}

static void walk_end(struct walk *w)
{
    sqlite3_finalize(w->spans);
    sqlite3_finalize(w->rows);
}

/* All whole parts of one metric and attempt, those that hold already among them. */
static int renew(struct walk *w, int64_t metric_id, int64_t attempt, struct tern_buf *to,
                 struct tern_err *err)
{
    size_t n;
    struct tern_ledger_part *kept = tern_ledger_parts_get(w->db, metric_id, attempt, &n);
    const int64_t behind = n ? kept[n - 1].to : -1;
    uint8_t bytes[PART];

    tern_buf_clear(to);
    for (size_t i = 0; i < n; i++) {
        encode(&kept[i], bytes);
        tern_buf_add(to, bytes, PART);
    }
    free(kept);
    return make_parts(w->rows, metric_id, attempt, behind, to, err);
}

static void add_entry(struct tern_buf *index, int64_t metric_id, int64_t attempt, uint64_t at,
                      const struct tern_buf *parts)
{
    uint8_t e[ENTRY], *to = e;

    to = tern_le_put64(to, (uint64_t)metric_id);
    to = tern_le_put32(to, (uint32_t)attempt);
    to = tern_le_put32(to, tern_crc32c(0, parts->data, parts->len));
    to = tern_le_put64(to, at);
    tern_le_put64(to, parts->len / PART);
    tern_buf_add(index, e, ENTRY);
}

/* The index, which begins at `at`, and the foot. */
static int write_end(int fd, const char *path, uint64_t at, const struct tern_buf *index,
                     struct tern_err *err)
{
    uint8_t foot[FOOT], *to = foot + sizeof word;

    if (tern_buf_check(index, path, err) < 0)
        return -1;
    memcpy(foot, word, sizeof word);
    to = tern_le_put32(to, VERSION);
    to = tern_le_put32(to, (uint32_t)(index->len / ENTRY));
    to = tern_le_put64(to, at);
    to = tern_le_put32(to, tern_crc32c(0, index->data, index->len));
    if (tern_fs_pread(fd, to, COUNTERS, COUNTERS_AT, path, err) < 0)
        return -1;
    to += COUNTERS;
    tern_assert_cmp(to - foot, ==, FOOT - 4);
    tern_le_put32(to, tern_crc32c(0, foot, FOOT - 4));
    return tern_fs_write(fd, index->data, index->len, path, err) < 0
               ? -1
               : tern_fs_write(fd, foot, FOOT, path, err);
}

int tern_ledger_parts_write(sqlite3 *db, int fd, const char *path, struct tern_err *err)
{
    struct tern_buf parts = {0}, index = {0};
    struct walk w;
    int64_t metric_id = 0, attempt = 0;
    const off_t end = lseek(fd, 0, SEEK_END);
    uint64_t at = (uint64_t)end;
    int rc = end < 0 ? tern_err_sys(err, "%s: cannot seek", path) : walk_begin(&w, db, err);

    if (end < 0)
        return -1;
    while (rc == 0 && (rc = walk_next(&w, &metric_id, &attempt, err)) > 0) {
        rc = renew(&w, metric_id, attempt, &parts, err);
        if (rc == 0 && parts.len) {
            add_entry(&index, metric_id, attempt, at, &parts);
            rc = tern_fs_write(fd, parts.data, parts.len, path, err);
            at += parts.len;
        }
    }
    if (rc == 0 && index.len)
        rc = write_end(fd, path, at, &index, err);
    walk_end(&w);
    tern_buf_free(&parts);
    tern_buf_free(&index);
    return rc;
}

/* ---------------------------------------------------------------- verifying */

static int check_entries(sqlite3 *file, sqlite3_file *f, const struct bytes *index,
                         bool *ret_differ, struct tern_err *err)
{
    struct tern_buf parts = {0};
    struct walk w;
    int64_t metric_id = 0, attempt = 0;
    size_t i = 0;
    int rc = walk_begin(&w, file, err), next = 0;

    *ret_differ = false;
    while (rc == 0 && !*ret_differ && (next = walk_next(&w, &metric_id, &attempt, err)) > 0) {
        tern_buf_clear(&parts);
        rc = make_parts(w.rows, metric_id, attempt, /* behind= */ -1, &parts, err);
        if (rc < 0 || !parts.len)
            continue;
        *ret_differ = i == index->n || entry_metric(index, i) != metric_id ||
                      entry_attempt(index, i) != attempt;
        struct bytes b = *ret_differ ? (struct bytes){0} : read_entry(f, index, i++);
        *ret_differ = b.n * PART != parts.len || memcmp(b.data, parts.data, parts.len) != 0;
        free(b.data);
    }
    if (next < 0)
        rc = -1;
    *ret_differ |= i < index->n;
    walk_end(&w);
    tern_buf_free(&parts);
    return rc;
}

int tern_ledger_parts_check(sqlite3 *file, bool *ret_differ, struct tern_err *err)
{
    sqlite3_file *f = file_of(file);

    *ret_differ = false;
    if (!f || bytes_behind(f, file) <= 0) /* another program's copy, or an older tern's */
        return 0;
    struct bytes index = read_index(f);
    int rc = check_entries(file, f, &index, ret_differ, err);
    free(index.data);
    return rc;
}

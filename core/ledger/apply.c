#include "core/ledger/apply.h"

#include "core/ledger/apply_sql.h"
#include "core/ledger/db.h"
#include "core/ledger/parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_METRICS = 1 << 16, /* names in one run: 512 ranks with a hundred each */
    MAX_VALUES = 1 << 16,  /* in one record: what fits a frame anyway */
    MAX_NAME = 200,        /* bytes of a metric's */
};

struct metric {
    char *name;
    size_t len;
    int64_t id, attempt, step, wall_ns;
    double value;
    /* Steps that are not in the table span yet, and the value of the last one.  span_attempt -1:
     * none are. */
    int64_t span_attempt, first, last, last_ns;
    double last_value;
    bool changed;
};

struct tern_ledger_apply {
    sqlite3_stmt *st[N];
    bool points, limit_reported;
    struct metric *metrics; /* [MAX_METRICS] */
    uint32_t *slots;        /* [2 * MAX_METRICS]: index + 1 into metrics, by hash of the name */
    size_t n_metrics;
    uint64_t instance; /* of the newest head seen: its run and attempt rows are there */
    int64_t attempt, first, last;
};

static uint32_t hash(const char *s, size_t n)
{
    uint32_t h = 2166136261u; /* FNV-1a */

    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)s[i]) * 16777619u;
    return h;
}

/* The metric of that name, new with id = its place + 1; NULL over the ceiling. */
static struct metric *metric(struct tern_ledger_apply *a, const char *name, size_t len)
{
    for (uint32_t i = hash(name, len);; i++) {
        uint32_t *slot = &a->slots[i % (2 * MAX_METRICS)];
        struct metric *m = *slot ? &a->metrics[*slot - 1] : NULL;
        if (m && m->len == len && memcmp(m->name, name, len) == 0)
            return m;
        if (m)
            continue;
        if (a->n_metrics == MAX_METRICS)
            return NULL;
        m = &a->metrics[a->n_metrics++];
        *m = (struct metric){.name = tern_strf("%.*s", (int)len, name),
                             .len = len,
                             .id = (int64_t)a->n_metrics,
                             .attempt = -1,
                             .span_attempt = -1,
                             .changed = true};
        *slot = (uint32_t)a->n_metrics;
        return m;
    }
}

static int load_metrics(struct tern_ledger_apply *a, sqlite3 *db, struct tern_err *err)
{
    sqlite3_stmt *st = tern_ledger_db_prepare(
        db, "SELECT id, name, attempt, step, value, wall_ns FROM metric ORDER BY id", err);
    int rc;

    if (!st)
        return -1;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(st, 1);
        struct metric *m = name ? metric(a, name, (size_t)sqlite3_column_bytes(st, 1)) : NULL;
        if (!m || m->id != sqlite3_column_int64(st, 0)) {
            sqlite3_finalize(st);
            return tern_err_set(err, TERN_FAILED,
                                "run.db: its metric ids are not 1, 2, 3, ... Rebuild it with "
                                "'tern ledger fold --rebuild'.");
        }
        m->attempt = sqlite3_column_int64(st, 2);
        m->step = sqlite3_column_int64(st, 3);
        m->value = tern_ledger_db_column_real(st, 4);
        m->wall_ns = sqlite3_column_int64(st, 5);
        m->changed = false;
    }
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? 0 : tern_ledger_db_fail(db, err, "ledger");
}

struct tern_ledger_apply *tern_ledger_apply_new(sqlite3 *db, bool points, struct tern_err *err)
{
    struct tern_ledger_apply *a = tern_alloc(1, sizeof *a, "fold", err);

    if (!a)
        return NULL;
    a->points = points;
    a->attempt = -1;
    a->metrics = tern_alloc(MAX_METRICS, sizeof *a->metrics, "fold", err);
    a->slots = tern_alloc((size_t)2 * MAX_METRICS, sizeof *a->slots, "fold", err);
    bool good = a->metrics && a->slots && tern_ledger_parts_begin(db, err) == 0;
    for (int i = 0; good && i < N; i++)
        good = (a->st[i] = tern_ledger_db_prepare(db, texts[i], err)) != NULL;
    if (good && load_metrics(a, db, err) == 0)
        return a;
    tern_ledger_apply_free(a);
    return NULL;
}

void tern_ledger_apply_free(struct tern_ledger_apply *a)
{
    if (!a)
        return;
    for (int i = 0; i < N; i++)
        sqlite3_finalize(a->st[i]);
    for (size_t i = 0; i < a->n_metrics; i++)
        free(a->metrics[i].name);
    free(a->metrics);
    free(a->slots);
    free(a);
}

/* ---------------------------------------------------------------- binding fields in order */

struct binder {
    struct tern_ledger_record_reader r;
    sqlite3_stmt *st;
};

static struct binder bind(struct tern_ledger_apply *a, int which, const struct tern_ledger_frame *f,
                          int64_t attempt)
{
    struct binder b = {{.at = f->payload, .end = f->payload + f->len}, a->st[which]};

    sqlite3_clear_bindings(b.st);
    sqlite3_bind_int64(b.st, 1, f->wall_ns);
    if (attempt)
        sqlite3_bind_int64(b.st, 2, attempt);
    return b;
}

static int64_t bind_int(struct binder *b, int i)
{
    int64_t v = tern_ledger_record_get_int(&b->r);

    sqlite3_bind_int64(b->st, i, v);
    return v;
}

static void bind_text(struct binder *b, int i)
{
    size_t len;
    const char *s = tern_ledger_record_get_text(&b->r, &len);

    if (s)
        sqlite3_bind_text(b->st, i, s, (int)len, SQLITE_STATIC);
}

static void bind_name(struct binder *b, int i)
{
    size_t len;
    const char *s = tern_ledger_record_get_name(&b->r, &len);

    if (s)
        sqlite3_bind_text(b->st, i, s, (int)len, SQLITE_STATIC);
}

/* A name that a record can do without, as NULL is one. */
static void bind_some_name(struct binder *b, int i)
{
    size_t len;
    const char *s = tern_ledger_record_get_some_name(&b->r, &len);

    if (s)
        sqlite3_bind_text(b->st, i, s, (int)len, SQLITE_STATIC);
}

/* 1 where something of the record is not taken, or all of it. */
static int run(struct binder *b, struct tern_err *err)
{
    if (b->r.bad)
        return 1;
    return tern_ledger_db_run(b->st, err) < 0 ? -1 : b->r.odd;
}

/* ---------------------------------------------------------------- one function a record */

/* Each attempt describes the run, with its own recipe. */
static int apply_run(struct tern_ledger_apply *a, const struct tern_ledger_frame *f,
                     int64_t attempt, struct tern_err *err)
{
    enum { NAME = 2, USER = 3, RECIPE = 5 };
    struct binder b = bind(a, SET_RUN, f, 0);
    sqlite3_stmt *st = a->st[ATTEMPT_RECIPE];

    sqlite3_bind_int64(st, 1, attempt);
    for (int i = 2; i <= 8; i++) {
        size_t len;
        const char *s = i == NAME || i == USER ? tern_ledger_record_get_some_name(&b.r, &len)
                                               : tern_ledger_record_get_text(&b.r, &len);
        if (s)
            sqlite3_bind_text(b.st, i, s, (int)len, SQLITE_STATIC);
        if (i == RECIPE)
            sqlite3_bind_text(st, 2, s, (int)len, SQLITE_STATIC);
    }
    sqlite3_bind_int64(a->st[CREATED], 1, tern_ledger_record_get_int(&b.r));
    const int rc = run(&b, err);
    if (b.r.bad || rc < 0)
        return rc;
    return tern_ledger_db_run(a->st[CREATED], err) < 0 || tern_ledger_db_run(st, err) < 0 ? -1 : rc;
}

static int apply_begin(struct tern_ledger_apply *a, const struct tern_ledger_frame *f,
                       int64_t attempt, struct tern_err *err)
{
    struct binder b = bind(a, BEGIN, f, attempt);

    bind_int(&b, 3);
    bind_int(&b, 4);
    bind_some_name(&b, 5);
    bind_some_name(&b, 6);
    bind_int(&b, 7);
    bind_int(&b, 8);
    bind_text(&b, 9);
    if (bind_int(&b, 10) < 0)
        sqlite3_bind_null(b.st, 10);
    bind_text(&b, 11);
    if (b.r.at < b.r.end) /* a tern before the kinds ended here */
        bind_text(&b, 12);
    sqlite3_bind_int64(b.st, 13, 0);
    sqlite3_bind_int64(b.st, 14, 0);
    if (b.r.at < b.r.end) { /* one before the arrays, here */
        bind_int(&b, 13);
        bind_int(&b, 14);
    }
    return run(&b, err);
}

static int apply_end_record(struct tern_ledger_apply *a, const struct tern_ledger_frame *f,
                            int64_t attempt, struct tern_err *err)
{
    struct binder b = bind(a, END, f, attempt);

    bind_text(&b, 3);
    bind_int(&b, 4);
    bind_int(&b, 5);
    bind_text(&b, 6);
    return run(&b, err);
}

static int put_point(struct tern_ledger_apply *a, struct metric *m, int64_t attempt, int64_t step,
                     double value, int64_t wall_ns, struct tern_err *err)
{
    sqlite3_stmt *st = a->st[POINT];
    int class = tern_ledger_db_class(value);

    sqlite3_bind_int64(st, 1, m->id);
    sqlite3_bind_int64(st, 2, attempt);
    sqlite3_bind_int64(st, 3, step);
    sqlite3_bind_double(st, 4, value); /* SQLite takes a NaN for NULL: point.class says it */
    sqlite3_bind_int(st, 5, class);
    sqlite3_bind_int64(st, 6, wall_ns);
    return tern_ledger_db_run(st, err);
}

static bool newer(const struct metric *m, int64_t attempt, int64_t step, int64_t wall_ns)
{
    if (attempt != m->attempt)
        return attempt > m->attempt;
    return step != m->step ? step > m->step : wall_ns > m->wall_ns;
}

static int flush_span(struct tern_ledger_apply *a, struct tern_err *err)
{
    sqlite3_stmt *st = a->st[SPAN];

    if (a->attempt < 0)
        return 0;
    sqlite3_bind_int64(st, 1, a->attempt);
    sqlite3_bind_int64(st, 2, a->first);
    sqlite3_bind_int64(st, 3, a->last);
    a->attempt = -1;
    return tern_ledger_db_run(st, err);
}

static int flush_metric_span(struct tern_ledger_apply *a, struct metric *m, struct tern_err *err)
{
    sqlite3_stmt *st = a->st[METRIC_SPAN];

    if (m->span_attempt < 0)
        return 0;
    sqlite3_bind_int64(st, 1, m->id);
    sqlite3_bind_int64(st, 2, m->span_attempt);
    sqlite3_bind_int64(st, 3, m->first);
    sqlite3_bind_int64(st, 4, m->last);
    sqlite3_bind_double(st, 5, m->last_value); /* SQLite takes a NaN for NULL */
    sqlite3_bind_int(st, 6, tern_ledger_db_class(m->last_value));
    sqlite3_bind_int64(st, 7, m->last_ns);
    if (tern_ledger_db_run(st, err) < 0)
        return -1;
    st = a->st[TOUCHED];
    sqlite3_bind_int64(st, 1, m->id);
    sqlite3_bind_int64(st, 2, m->span_attempt);
    sqlite3_bind_int64(st, 3, m->first);
    m->span_attempt = -1;
    return tern_ledger_db_run(st, err);
}

static int extend_metric_span(struct tern_ledger_apply *a, struct metric *m, int64_t attempt,
                              int64_t step, double value, int64_t wall_ns, struct tern_err *err)
{
    const bool begins = attempt != m->span_attempt;

    if (begins) {
        if (flush_metric_span(a, m, err) < 0)
            return -1;
        m->span_attempt = attempt;
        m->first = step;
    }
    m->first = step < m->first ? step : m->first;
    if (begins || step > m->last || (step == m->last && wall_ns > m->last_ns)) {
        m->last = step;
        m->last_value = value;
        m->last_ns = wall_ns;
    }
    return 0;
}

/* Names over the ceiling are left out; one event reports that. */
static int report_limit(struct tern_ledger_apply *a, const struct tern_ledger_frame *f,
                        int64_t attempt, struct tern_err *err)
{
    sqlite3_stmt *st = a->st[LIMIT];
    char text[100];

    if (a->limit_reported)
        return 0;
    a->limit_reported = true;
    snprintf(text, sizeof text,
             "more than %d names of metrics: the values of the others are left out", MAX_METRICS);
    sqlite3_bind_int64(st, 1, attempt);
    sqlite3_bind_int64(st, 2, f->wall_ns);
    sqlite3_bind_text(st, 3, text, -1, SQLITE_TRANSIENT);
    return tern_ledger_db_run(st, err);
}

/* All of a record's values count, or none. */
static bool names_good(struct tern_ledger_record_reader r, int64_t n)
{
    for (int64_t i = 0; i < n && !r.bad; i++) {
        size_t len;
        tern_ledger_record_get_name(&r, &len);
        r.bad |= len > MAX_NAME;
        tern_ledger_record_get_real(&r);
    }
    return !r.bad;
}

static int apply_step(struct tern_ledger_apply *a, const struct tern_ledger_frame *f,
                      int64_t attempt, struct tern_err *err)
{
    struct tern_ledger_record_reader r = {.at = f->payload, .end = f->payload + f->len};
    int64_t step = tern_ledger_record_get_int(&r), n = tern_ledger_record_get_int(&r);

    if (r.bad || n < 1 || n > MAX_VALUES || step < 0 || !names_good(r, n))
        return 1;
    for (int64_t i = 0; i < n; i++) {
        size_t len;
        const char *name = tern_ledger_record_get_name(&r, &len);
        double value = tern_ledger_record_get_real(&r);
        struct metric *m = metric(a, name, len);
        if (!m) {
            if (report_limit(a, f, attempt, err) < 0)
                return -1;
            continue;
        }
        if (newer(m, attempt, step, f->wall_ns)) {
            m->attempt = attempt;
            m->step = step;
            m->value = value;
            m->wall_ns = f->wall_ns;
            m->changed = true;
        }
        if (extend_metric_span(a, m, attempt, step, value, f->wall_ns, err) < 0)
            return -1;
        if (a->points && put_point(a, m, attempt, step, value, f->wall_ns, err) < 0)
            return -1;
    }
    if (attempt != a->attempt) {
        if (flush_span(a, err) < 0)
            return -1;
        a->attempt = attempt;
        a->first = a->last = step;
    }
    a->first = step < a->first ? step : a->first;
    a->last = step > a->last ? step : a->last;
    return 0;
}

static int apply_eval(struct tern_ledger_apply *a, const struct tern_ledger_frame *f,
                      int64_t attempt, struct tern_err *err)
{
    struct binder b = bind(a, EVAL, f, attempt);

    bind_int(&b, 3);
    bind_name(&b, 4);
    double nll = tern_ledger_record_get_real(&b.r);
    sqlite3_bind_double(b.st, 5, nll); /* SQLite takes a NaN for NULL */
    sqlite3_bind_int(b.st, 10, tern_ledger_db_class(nll));
    int64_t tokens = bind_int(&b, 6), bytes = bind_int(&b, 7);
    if (tokens > 0)
        sqlite3_bind_double(b.st, 8, exp(nll / (double)tokens));
    if (bytes > 0)
        sqlite3_bind_double(b.st, 9, exp(nll / (double)bytes));
    return run(&b, err);
}

static int apply_checkpoint(struct tern_ledger_apply *a, const struct tern_ledger_frame *f,
                            int64_t attempt, struct tern_err *err)
{
    struct binder b = bind(a, CHECKPOINT, f, attempt);

    bind_int(&b, 4);
    bind_text(&b, 3);
    bind_int(&b, 5);
    bind_int(&b, 6);
    bind_text(&b, 7);
    bind_text(&b, 8);
    return run(&b, err);
}

static bool is_limit(struct tern_ledger_record_reader r)
{
    size_t len;
    const char *kind = tern_ledger_record_get_text(&r, &len);

    return kind && len == strlen(TERN_APPLY_LIMIT) && memcmp(kind, TERN_APPLY_LIMIT, len) == 0;
}

static int apply_event(struct tern_ledger_apply *a, const struct tern_ledger_record_head *h,
                       const struct tern_ledger_frame *f, struct tern_err *err)
{
    struct binder b = bind(a, EVENT, f, h->attempt);

    sqlite3_bind_int64(b.st, 3, (int64_t)h->instance);
    sqlite3_bind_int64(b.st, 4, (int64_t)f->seq);
    sqlite3_bind_text(b.st, 5, h->writer, -1, SQLITE_STATIC);
    if (is_limit(b.r)) /* only a fold knows what it left out */
        return 1;
    bind_text(&b, 6);
    bind_text(&b, 7);
    bind_some_name(&b, 8);
    bind_text(&b, 9);
    return run(&b, err);
}

static int apply_health(struct tern_ledger_apply *a, const struct tern_ledger_record_head *h,
                        const struct tern_ledger_frame *f, struct tern_err *err)
{
    struct binder b = bind(a, HEALTH, f, h->attempt);

    sqlite3_bind_int64(b.st, 3, (int64_t)h->instance);
    sqlite3_bind_int64(b.st, 4, (int64_t)f->seq);
    sqlite3_bind_text(b.st, 5, h->writer, -1, SQLITE_STATIC);
    bind_text(&b, 6);
    bind_some_name(&b, 7);
    for (int i = 8; i <= 10; i++)
        bind_text(&b, i);
    /* SQLite takes a NaN for NULL, and so it reads back. */
    sqlite3_bind_double(b.st, 11, tern_ledger_record_get_real(&b.r));
    bind_text(&b, 12);
    sqlite3_bind_double(b.st, 13, tern_ledger_record_get_real(&b.r));
    return run(&b, err);
}

static int apply_param(struct tern_ledger_apply *a, const struct tern_ledger_frame *f,
                       int64_t attempt, struct tern_err *err)
{
    struct binder b = bind(a, PARAM, f, attempt);

    bind_name(&b, 3);
    bind_text(&b, 4);
    return run(&b, err);
}

/* Rows of the run and the attempt exist from the first record of any writer. */
static int see_head(struct tern_ledger_apply *a, const struct tern_ledger_record_head *h,
                    struct tern_err *err)
{
    if (h->instance == a->instance)
        return 0;
    sqlite3_bind_text(a->st[RUN], 1, h->run_id, -1, SQLITE_STATIC);
    sqlite3_bind_int64(a->st[ATTEMPT], 1, h->attempt);
    if (tern_ledger_db_run(a->st[RUN], err) < 0 || tern_ledger_db_run(a->st[ATTEMPT], err) < 0)
        return -1;
    a->instance = h->instance;
    return 0;
}

int tern_ledger_apply_frame(struct tern_ledger_apply *a, const struct tern_ledger_record_head *h,
                            const struct tern_ledger_frame *f, struct tern_err *err)
{
    if (see_head(a, h, err) < 0)
        return -1;
    switch (f->type) {
    case TERN_FRAME_RUN:
        return apply_run(a, f, h->attempt, err);
    case TERN_FRAME_BEGIN:
        return apply_begin(a, f, h->attempt, err);
    case TERN_FRAME_END:
        return apply_end_record(a, f, h->attempt, err);
    case TERN_FRAME_STEP:
        return apply_step(a, f, h->attempt, err);
    case TERN_FRAME_EVAL:
        return apply_eval(a, f, h->attempt, err);
    case TERN_FRAME_CHECKPOINT:
        return apply_checkpoint(a, f, h->attempt, err);
    case TERN_FRAME_EVENT:
        return apply_event(a, h, f, err);
    case TERN_FRAME_HEALTH:
        return apply_health(a, h, f, err);
    case TERN_FRAME_PARAM:
        return apply_param(a, f, h->attempt, err);
    default:
        return 0; /* a head, or a kind that a newer tern writes */
    }
}

int tern_ledger_apply_end(struct tern_ledger_apply *a, struct tern_err *err)
{
    sqlite3_stmt *st = a->st[METRIC];

    if (flush_span(a, err) < 0)
        return -1;
    for (size_t i = 0; i < a->n_metrics; i++)
        if (flush_metric_span(a, &a->metrics[i], err) < 0)
            return -1;
    if (tern_ledger_db_run(a->st[RESUMED], err) < 0 ||
        tern_ledger_db_run(a->st[SUPERSEDE], err) < 0 ||
        tern_ledger_db_run(a->st[SUPERSEDE_SPANS], err) < 0)
        return -1;
    for (size_t i = 0; i < a->n_metrics; i++) {
        struct metric *m = &a->metrics[i];
        if (!m->changed)
            continue;
        int class = tern_ledger_db_class(m->value);
        sqlite3_bind_int64(st, 1, m->id);
        sqlite3_bind_text(st, 2, m->name, (int)m->len, SQLITE_STATIC);
        sqlite3_bind_int64(st, 3, m->attempt);
        sqlite3_bind_int64(st, 4, m->step);
        sqlite3_bind_double(st, 5, m->value);
        sqlite3_bind_int(st, 6, class);
        sqlite3_bind_int64(st, 7, m->wall_ns);
        if (tern_ledger_db_run(st, err) < 0)
            return -1;
        m->changed = false;
    }
    return 0;
}

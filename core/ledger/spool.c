/* Writing: one file a writer, one write(2) a record; records that wait. */
#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/rand.h"
#include "core/ledger/homes.h"
#include "core/ledger/spool_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_ATTEMPT = 999999,
    MAX_WRITER = 64,
    MAX_NAME = 200,
    MAX_VALUES = 1024,
    MAX_FILE = 64 << 20, /* a reader holds a file in memory; half a million steps of six values */
};

char *tern_ledger_spool_dir(const char *ledger_dir, const char *run_id, unsigned attempt)
{
    return tern_strf("%s/runs/%s/spool/%u", ledger_dir, run_id, attempt);
}

int tern_ledger_spool_dir_parse(const char *spool_dir, char **ledger_dir,
                                char run_id[TERN_ULID_SIZE], unsigned *attempt,
                                struct tern_err *err)
{
    char *s = tern_strdup(spool_dir), *part[4] = {NULL};
    int64_t n = 0;
    size_t len = strlen(s);

    while (len > 1 && s[len - 1] == '/')
        s[--len] = '\0';
    for (int i = 0; i < 4; i++) {
        char *slash = strrchr(s, '/');
        if (!slash)
            break;
        *slash = '\0';
        part[i] = slash + 1;
    }
    bool good = part[3] && tern_str_int(part[0], 1, MAX_ATTEMPT, &n) == 0 &&
                strcmp(part[1], "spool") == 0 && tern_ledger_ulid_valid(part[2]) &&
                strcmp(part[3], "runs") == 0;
    if (good) {
        *ledger_dir = tern_strdup(*s ? s : "/");
        snprintf(run_id, TERN_ULID_SIZE, "%s", part[2]);
        *attempt = (unsigned)n;
    }
    free(s);
    return good ? 0
                : tern_err_set(err, TERN_USAGE,
                               "%s: is not a spool folder (LEDGER/runs/RUN/spool/ATTEMPT)",
                               spool_dir);
}

static bool writer_good(const char *w)
{
    size_t n = strlen(w);

    return n > 0 && n <= MAX_WRITER && w[0] != '.' &&
           strspn(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == n;
}

static struct tern_ledger_spool *open_spool(const char *dir, const char *run_id, unsigned attempt,
                                            const char *writer, struct tern_err *err)
{
    if (!writer_good(writer)) {
        tern_err_set(err, TERN_USAGE, "'%s' is not a spool writer's name (letters, digits, _.-)",
                     writer);
        return NULL;
    }
    if (!tern_ledger_ulid_valid(run_id) || attempt < 1 || attempt > MAX_ATTEMPT) {
        tern_err_set(err, TERN_USAGE, "run '%s' attempt %u: wanted a ULID and 1 to %d", run_id,
                     attempt, MAX_ATTEMPT);
        return NULL;
    }
    int bits = -1;
    if (tern_ledger_home_make_attempt(dir, run_id, &bits, err) < 0)
        return NULL;
    struct tern_ledger_spool *s = tern_alloc(1, sizeof *s, "spool", err);
    if (!s)
        return NULL;
    pthread_mutex_init(&s->lock, NULL);
    s->head.format = TERN_FRAME_FORMAT;
    snprintf(s->head.run_id, sizeof s->head.run_id, "%s", run_id);
    s->head.attempt = attempt;
    snprintf(s->head.writer, sizeof s->head.writer, "%s", writer);
    tern_rand_system(&s->head.instance, sizeof s->head.instance);
    gethostname(s->head.host, sizeof s->head.host - 1);
    s->head.pid = getpid();
    s->dir = tern_strdup(dir);
    s->bits = bits < 0 ? 0755 : bits;
    s->fd = -1;
    s->payload.max = s->frame.max = TERN_FRAME_MAX + TERN_FRAME_HEADER + TERN_FRAME_TRAILER;
    if (tern_ledger_spool_begin_file(s, err) < 0) {
        tern_ledger_spool_close(s, NULL);
        return NULL;
    }
    return s;
}

struct tern_ledger_spool *tern_ledger_spool_open(const char *ledger_dir, const char *run_id,
                                                 unsigned attempt, const char *writer,
                                                 struct tern_err *err)
{
    char *dir = tern_ledger_spool_dir(ledger_dir, run_id, attempt);
    struct tern_ledger_spool *s = open_spool(dir, run_id, attempt, writer, err);

    free(dir);
    return s;
}

struct tern_ledger_spool *tern_ledger_spool_open_dir(const char *spool_dir, const char *writer,
                                                     struct tern_err *err)
{
    char run_id[TERN_ULID_SIZE], *ledger_dir;
    unsigned attempt;

    if (tern_ledger_spool_dir_parse(spool_dir, &ledger_dir, run_id, &attempt, err) < 0)
        return NULL;
    free(ledger_dir);
    return open_spool(spool_dir, run_id, attempt, writer, err);
}

void tern_ledger_spool_heartbeat(struct tern_ledger_spool *s)
{
    struct tern_err err;

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    tern_ledger_spool_follow(s, false, &err); /* the next record reports it */
    if (s->fd >= 0)
        futimens(s->fd, NULL); /* the file server's time */
    pthread_mutex_unlock(&s->lock);
}

uint64_t tern_ledger_spool_dropped(struct tern_ledger_spool *s)
{
    if (!s)
        return 0;
    pthread_mutex_lock(&s->lock);
    const uint64_t dropped = s->dropped;
    pthread_mutex_unlock(&s->lock);
    return dropped;
}

void tern_ledger_spool_show(struct tern_ledger_spool *s, struct tern_ledger_unwritten *u)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->shown = u;
    pthread_mutex_unlock(&s->lock);
}

/* ---------------------------------------------------------------- records */

static void show(struct tern_ledger_spool *s)
{
    struct tern_ledger_lost all = s->waits;

    tern_ledger_lost_join(&all, s->lost.n, s->lost.first, s->lost.last);
    if (s->shown)
        tern_ledger_unwritten_set(s->shown, &all);
}

/* The oldest that waits is written, or lost. */
static void pop(struct tern_ledger_spool *s)
{
    struct tern_ledger_waiting_record next;
    struct tern_ledger_lost rest = {0};
    const int64_t last = s->waits.last;

    tern_ledger_waiting_pop(&s->waiting);
    if (tern_ledger_waiting_first(&s->waiting, &next)) {
        tern_ledger_lost_add(&rest, &next);
        tern_ledger_lost_join(&rest, s->waiting.n - 1, rest.first < 0 ? s->waits.first : rest.first,
                              last);
    }
    s->waits = rest;
    show(s);
}

static int write_frame(struct tern_ledger_spool *s, const struct tern_ledger_waiting_record *r,
                       struct tern_err *err)
{
    if (s->fd >= 0 && (s->torn || s->end.offset >= MAX_FILE)) {
        if (tern_ledger_spool_sync_locked(s, err) < 0)
            return -1;
        tern_ledger_spool_close_file(s);
    }
    if (s->fd < 0 && tern_ledger_spool_begin_file(s, err) < 0)
        return -1;
    struct tern_ledger_frame f = {.type = (uint16_t)r->type,
                                  .prev = s->end.crc,
                                  .seq = s->end.seq + 1,
                                  .wall_ns = r->wall_ns,
                                  .payload = r->payload,
                                  .len = r->len};
    tern_ledger_frame_encode(&s->frame, &f);
    return tern_ledger_spool_append(s, &f, err);
}

/* The time of a record that is made now: a writer's times only grow, but for given ones. */
static int64_t new_time(struct tern_ledger_spool *s)
{
    int64_t now = tern_clock_wall_ns();

    s->wall_ns = s->given_ns ? s->given_ns : now > s->wall_ns ? now : s->wall_ns + 1;
    return s->wall_ns;
}

void tern_ledger_spool_set_time(struct tern_ledger_spool *s, int64_t wall_ns)
{
    pthread_mutex_lock(&s->lock);
    s->given_ns = wall_ns;
    pthread_mutex_unlock(&s->lock);
}

static void put_event(struct tern_buf *p, const struct tern_ledger_event *e)
{
    tern_ledger_record_put_text(p, e->kind);
    tern_ledger_record_put_text(p, e->severity);
    tern_ledger_record_put_name(p, e->node);
    tern_ledger_record_put_text(p, e->text);
}

/* An event in the ledger reports lost records. */
static int report_gap(struct tern_ledger_spool *s, struct tern_err *err)
{
    struct tern_buf p = {0};
    char text[300];

    const char *cause = *s->reported ? s->reported
                        : s->gone    ? "the files that had them were removed"
                                     : "storage error";
    tern_ledger_lost_words(&s->lost, cause, text, sizeof text);
    put_event(&p, &(struct tern_ledger_event){
                      .kind = "gap", .severity = "warn", .node = s->head.host, .text = text});
    const struct tern_ledger_waiting_record r = {TERN_FRAME_EVENT, new_time(s),
                                                 (const uint8_t *)p.data, (uint32_t)p.len};
    int rc = write_frame(s, &r, err);
    tern_buf_free(&p);
    if (rc == 0)
        s->lost = (struct tern_ledger_lost){0};
    show(s);
    return rc;
}

/* All that waits, oldest first, and the event of records that had no room. */
static int write_waiting(struct tern_ledger_spool *s, struct tern_err *err)
{
    struct tern_ledger_waiting_record r;

    while (tern_ledger_waiting_first(&s->waiting, &r)) {
        if (write_frame(s, &r, err) < 0)
            return -1;
        pop(s);
    }
    return s->lost.n ? report_gap(s, err) : 0;
}

/* The cause, without the path: a file's number may change from try to try.  False: it was reported.
 */
static bool is_news(struct tern_ledger_spool *s, const struct tern_err *why)
{
    const char *cause = strrchr(why->text, ':');

    cause = cause ? cause + 1 + strspn(cause + 1, " ") : why->text;
    if (strncmp(s->reported, cause, sizeof s->reported - 1) == 0)
        return false;
    snprintf(s->reported, sizeof s->reported, "%.*s", (int)sizeof s->reported - 1, cause);
    return true;
}

/* Locks; what is put into the payload is written by finish, which unlocks. */
static struct tern_buf *begin(struct tern_ledger_spool *s)
{
    pthread_mutex_lock(&s->lock);
    tern_buf_clear(&s->payload);
    return &s->payload;
}

/* Write the payload at hand, behind what waits; else it waits, too, or is lost. */
static int write_payload(struct tern_ledger_spool *s, enum tern_ledger_frame_type type,
                         struct tern_err *err)
{
    struct tern_err why = {0};

    if (tern_buf_check(&s->payload, "a ledger record", err) < 0)
        return -1;
    if (s->payload.len > TERN_FRAME_MAX)
        return tern_err_set(err, TERN_USAGE, "a ledger record of %zu bytes is over the limit of %d",
                            s->payload.len, TERN_FRAME_MAX);
    bool ready = tern_ledger_spool_follow(s, false, &why) == 0 && write_waiting(s, &why) == 0;
    const struct tern_ledger_waiting_record r = {
        type, new_time(s), (const uint8_t *)s->payload.data, (uint32_t)s->payload.len};
    if (ready && write_frame(s, &r, &why) == 0) {
        s->reported[0] = '\0';
        return 0;
    }
    if (tern_ledger_waiting_add(&s->waiting, &r)) {
        tern_ledger_lost_add(&s->waits, &r);
    } else {
        s->dropped++;
        tern_ledger_lost_add(&s->lost, &r);
    }
    show(s);
    if (!is_news(s, &why))
        return 1;
    if (err)
        *err = why;
    return -1;
}

static int finish(struct tern_ledger_spool *s, enum tern_ledger_frame_type type,
                  struct tern_err *err)
{
    const int rc = write_payload(s, type, err);

    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* The last try.  Records that still wait are lost; the room that was kept reports them. */
static int end_waiting(struct tern_ledger_spool *s, struct tern_err *err)
{
    struct tern_err why = {0};
    struct tern_ledger_waiting_record r;
    char text[300];

    if (tern_ledger_spool_follow(s, true, &why) == 0 && write_waiting(s, &why) == 0)
        return 0;
    is_news(s, &why);
    for (; tern_ledger_waiting_first(&s->waiting, &r); pop(s)) {
        tern_ledger_lost_add(&s->lost, &r);
        s->dropped++;
    }
    tern_ledger_lost_words(&s->lost, s->reported, text, sizeof text);
    s->closing = true;
    if (s->lost.n)
        report_gap(s, NULL);
    return tern_err_set(err, TERN_TEMPFAIL, "ledger: %s", text);
}

int tern_ledger_spool_close(struct tern_ledger_spool *s, struct tern_err *err)
{
    if (!s)
        return 0;
    int rc = end_waiting(s, err);
    if (tern_ledger_spool_sync(s, rc == 0 ? err : NULL) < 0)
        rc = -1;
    if (s->fd >= 0)
        tern_ledger_spool_close_file(s);
    free(s->dir);
    free(s->path);
    free(s->earlier);
    tern_ledger_waiting_free(&s->waiting);
    tern_buf_free(&s->payload);
    tern_buf_free(&s->frame);
    pthread_mutex_destroy(&s->lock);
    free(s);
    return rc;
}

int tern_ledger_spool_run(struct tern_ledger_spool *s, const struct tern_ledger_run *r,
                          struct tern_err *err)
{
    if (!s)
        return 0;
    struct tern_buf *p = begin(s);
    tern_ledger_record_put_name(p, r->name);
    tern_ledger_record_put_name(p, r->user);
    tern_ledger_record_put_text(p, r->recipe_path);
    tern_ledger_record_put_text(p, r->recipe);
    tern_ledger_record_put_text(p, r->identity_hash);
    tern_ledger_record_put_text(p, r->full_hash);
    tern_ledger_record_put_text(p, r->model);
    tern_ledger_record_put_int(p, r->created_ns);
    return finish(s, TERN_FRAME_RUN, err);
}

int tern_ledger_spool_attempt_begin(struct tern_ledger_spool *s,
                                    const struct tern_ledger_attempt *a, struct tern_err *err)
{
    if (!s)
        return 0;
    struct tern_buf *p = begin(s);
    tern_ledger_record_put_int(p, a->job_id);
    tern_ledger_record_put_int(p, a->restart_count);
    tern_ledger_record_put_name(p, a->nodes);
    tern_ledger_record_put_name(p, a->host);
    tern_ledger_record_put_int(p, a->pid);
    tern_ledger_record_put_int(p, a->world);
    tern_ledger_record_put_text(p, a->resumed_checkpoint);
    tern_ledger_record_put_int(p, a->resumed_step);
    tern_ledger_record_put_text(p, a->full_hash);
    tern_ledger_record_put_text(p, a->kind ? a->kind : "train");
    tern_ledger_record_put_int(p, a->array_job);
    tern_ledger_record_put_int(p, a->array_task);
    return finish(s, TERN_FRAME_BEGIN, err);
}

int tern_ledger_spool_attempt_end(struct tern_ledger_spool *s, const struct tern_ledger_end *e,
                                  struct tern_err *err)
{
    if (!s)
        return 0;
    struct tern_buf *p = begin(s);
    tern_ledger_record_put_text(p, e->outcome ? e->outcome : "unknown");
    tern_ledger_record_put_int(p, e->exit_code);
    tern_ledger_record_put_int(p, e->signal);
    tern_ledger_record_put_text(p, e->cause);
    return finish(s, TERN_FRAME_END, err);
}

int tern_ledger_spool_step(struct tern_ledger_spool *s, int64_t step,
                           const struct tern_ledger_value *values, size_t n, struct tern_err *err)
{
    if (step < 0 || n < 1 || n > MAX_VALUES)
        return tern_err_set(err, TERN_USAGE, "step %lld with %zu values: wanted 0 or more, 1 to %d",
                            (long long)step, n, MAX_VALUES);
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(values[i].name);
        if (len < 1 || len > MAX_NAME)
            return tern_err_set(err, TERN_USAGE, "a metric's name has 1 to %d bytes, not %zu",
                                MAX_NAME, len);
        if (!tern_ledger_record_name_good(values[i].name, len))
            return tern_err_set(err, TERN_USAGE,
                                "a metric's name is UTF-8 and has no control characters");
    }
    if (!s)
        return 0;
    struct tern_buf *p = begin(s);
    tern_ledger_record_put_int(p, step);
    tern_ledger_record_put_int(p, (int64_t)n);
    for (size_t i = 0; i < n; i++) {
        tern_ledger_record_put_text(p, values[i].name);
        tern_ledger_record_put_real(p, values[i].value);
    }
    return finish(s, TERN_FRAME_STEP, err);
}

static int check_name(const char *name, const char *what, struct tern_err *err)
{
    if (name && tern_ledger_record_name_good(name, strlen(name)))
        return 0;
    return tern_err_set(err, TERN_USAGE, "%s has a name in UTF-8 without control characters", what);
}

int tern_ledger_spool_eval(struct tern_ledger_spool *s, const struct tern_ledger_eval *e,
                           struct tern_err *err)
{
    if (check_name(e->set, "a held-out set", err) < 0)
        return -1;
    if (!s)
        return 0;
    struct tern_buf *p = begin(s);
    tern_ledger_record_put_int(p, e->step);
    tern_ledger_record_put_text(p, e->set);
    tern_ledger_record_put_real(p, e->nll);
    tern_ledger_record_put_int(p, e->tokens);
    tern_ledger_record_put_int(p, e->bytes);
    return finish(s, TERN_FRAME_EVAL, err);
}

int tern_ledger_spool_checkpoint(struct tern_ledger_spool *s,
                                 const struct tern_ledger_checkpoint *c, struct tern_err *err)
{
    if (!s)
        return 0;
    struct tern_buf *p = begin(s);
    tern_ledger_record_put_int(p, c->step);
    tern_ledger_record_put_text(p, c->path);
    tern_ledger_record_put_int(p, c->bytes);
    tern_ledger_record_put_int(p, c->shards);
    tern_ledger_record_put_text(p, c->manifest_sha256);
    tern_ledger_record_put_text(p, c->state);
    return finish(s, TERN_FRAME_CHECKPOINT, err);
}

int tern_ledger_spool_event(struct tern_ledger_spool *s, const struct tern_ledger_event *e,
                            struct tern_err *err)
{
    if (!s)
        return 0;
    put_event(begin(s), e);
    return finish(s, TERN_FRAME_EVENT, err);
}

int tern_ledger_spool_param(struct tern_ledger_spool *s, const char *name, const char *value,
                            struct tern_err *err)
{
    if (check_name(name, "a parameter", err) < 0)
        return -1;
    if (!s)
        return 0;
    struct tern_buf *p = begin(s);
    tern_ledger_record_put_text(p, name);
    tern_ledger_record_put_text(p, value);
    return finish(s, TERN_FRAME_PARAM, err);
}

int tern_ledger_spool_health(struct tern_ledger_spool *s, const struct tern_ledger_health *h,
                             struct tern_err *err)
{
    if (!s)
        return 0;
    struct tern_buf *p = begin(s);
    tern_ledger_record_put_text(p, h->check);
    tern_ledger_record_put_name(p, h->node);
    tern_ledger_record_put_text(p, h->verdict);
    tern_ledger_record_put_text(p, h->severity);
    tern_ledger_record_put_text(p, h->text);
    tern_ledger_record_put_real(p, h->value);
    tern_ledger_record_put_text(p, h->unit);
    tern_ledger_record_put_real(p, h->seconds);
    return finish(s, TERN_FRAME_HEALTH, err);
}

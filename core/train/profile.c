/* A Chrome trace of one step: https://chromium.googlesource.com/catapult, "Trace Event Format".
 * Each rank notes its spans in memory that is there from the start.  After the step rank 0 receives
 * them one rank after the other, so that no rank holds all of them. */
#include "core/train/state.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WARM = 2, /* steps that are not typical: memory is faulted in, connections are made */
    /* Of a rank; 80 layers in 128 micro-batches with 8 sums each are 82 thousand.  4 MiB, of which
     * only used pages are ever touched. */
    SPANS = 1 << 17,
    BARRIERS = 16, /* that bound how clocks of nodes lie apart: the quickest bound them best */
};

static const struct {
    const char *name, *category;
} kinds[] = {
    [TRAIN_SPAN_DATA] = {"data", "data"},
    [TRAIN_SPAN_FORWARD] = {"forward", "compute"},
    [TRAIN_SPAN_BACKWARD] = {"backward", "compute"},
    [TRAIN_SPAN_RECEIVE] = {"receive", "comm"},
    [TRAIN_SPAN_SEND] = {"send", "comm"},
    [TRAIN_SPAN_SENT] = {"wait until sent", "comm"},
    [TRAIN_SPAN_TENSOR] = {"tensor ranks", "comm"},
    [TRAIN_SPAN_BUCKET] = {"begin sums", "comm"},
    [TRAIN_SPAN_SUMS] = {"wait for sums", "comm"},
    [TRAIN_SPAN_NORM] = {"norm", "optimizer"},
    [TRAIN_SPAN_AGREE] = {"agree", "comm"},
    [TRAIN_SPAN_UPDATE] = {"update", "optimizer"},
    [TRAIN_SPAN_GATHER] = {"gather", "comm"},
};

struct span {
    int64_t from, to; /* boot clock */
    int64_t micro;    /* -1: of no micro-batch */
    int32_t chunk;
    uint8_t kind;
    bool backward;
};

/* What rank 0 needs to know of a rank's spans. */
struct head {
    int64_t came[BARRIERS], left[BARRIERS]; /* boot clock, at barriers before the step */
    uint64_t n, lost;
    int32_t node, stage, data_rank, tensor_rank;
};

struct train_profile {
    uint64_t step; /* the profiled one */
    bool active, done;
    struct head head, *heads;    /* [size] */
    struct span *mine, *another; /* [SPANS] */
    uint64_t written;            /* bytes of the file */
    int64_t begun;               /* where rank 0 writes: the step, by its clock */
};

/* With what a profile begins. */
static const char mark[] = "{\"traceEvents\": [\n";

int tern_train_profile_check(const char *path, struct tern_err *err)
{
    char head[sizeof mark] = "";
    struct tern_err why;

    if (tern_fs_check_out(path, &why) < 0 && why.code == TERN_USAGE) {
        *err = why;
        return -1;
    }
    const int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (fd < 0) /* it is not there, or cannot be written either: the run goes on without it */
        return 0;
    const ssize_t n = TERN_AGAIN(pread(fd, head, sizeof mark - 1, 0));
    close(fd);
    if (n == sizeof mark - 1 && memcmp(head, mark, sizeof mark - 1) == 0)
        return 0;
    return tern_err_set(err, TERN_USAGE,
                        "%s: exists and is no profile of a step; it is left as it is. Name another "
                        "file.",
                        path);
}

int tern_train_profile_open(struct train *t, struct tern_err *err)
{
    struct train_profile *p;
    uint64_t last = (uint64_t)t->recipe->steps;

    if (!t->options->profile)
        return 0;
    p = t->profile = tern_alloc(1, sizeof *p, "the profile", err);
    if (!p)
        return -1;
    p->step = t->progress.step + WARM + 1 < last ? t->progress.step + WARM + 1 : last;
    p->head = (struct head){.node = tern_fabric_node(t->options->fabric),
                            .stage = t->me.place.stage,
                            .data_rank = t->me.data_rank,
                            .tensor_rank = t->me.place.tensor_rank};
    p->heads = tern_alloc((size_t)t->size, sizeof *p->heads, "the profile", err);
    p->mine = tern_alloc(SPANS, sizeof *p->mine, "the profile", err);
    p->another = tern_alloc(SPANS, sizeof *p->another, "the profile", err);
    return p->heads && p->mine && p->another ? 0 : -1;
}

void tern_train_profile_close(struct train *t)
{
    struct train_profile *p = t->profile;

    if (!p)
        return;
    if (t->rank == 0 && !p->done)
        tern_warn("no profile: the run ended before step %" PRIu64 ", which was to be profiled",
                  p->step);
    free(p->heads);
    free(p->mine);
    free(p->another);
    free(p);
}

int tern_train_profile_begin(struct train *t, struct tern_err *err)
{
    struct train_profile *p = t->profile;

    if (!p || t->progress.step + 1 != p->step)
        return 0;
    for (int k = 0; k < BARRIERS; k++) {
        p->head.came[k] = tern_clock_boot_ns();
        if (tern_fabric_barrier(t->world, err) < 0)
            return -1;
        p->head.left[k] = tern_clock_boot_ns();
    }
    p->active = true;
    return 0;
}

void tern_train_add_span(struct train_profile *p, enum train_span_kind kind, int64_t from,
                         const struct tern_plan_step *of)
{
    if (!p || !p->active)
        return;
    if (p->head.n == SPANS) {
        p->head.lost++;
        return;
    }
    p->mine[p->head.n++] = (struct span){.from = from,
                                         .to = tern_clock_boot_ns(),
                                         .micro = of ? of->micro : -1,
                                         .chunk = of ? of->chunk : 0,
                                         .kind = (uint8_t)kind,
                                         .backward = of && of->backward};
}

/* ---------------------------------------------------------------- rank 0 writes it */

static void put_name(struct tern_buf *b, const char *what, int node, int rank, const char *name)
{
    json_t *text = tern_json_text(name);
    char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;

    tern_buf_printf(b,
                    "{\"ph\": \"M\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, \"args\": "
                    "{\"name\": %s}}",
                    what, node, rank, quoted ? quoted : "\"\"");
    free(quoted);
    json_decref(text);
}

/* Microseconds, exact to the nanosecond: spans must lie inside each other as they did. */
static void put_us(struct tern_buf *b, const char *name, int64_t ns)
{
    tern_buf_printf(b, ", \"%s\": %" PRId64 ".%03d", name, ns / 1000, (int)(ns % 1000));
}

static void put_span(struct tern_buf *b, const struct span *s, int node, int rank, int64_t zero)
{
    tern_buf_printf(
        b, ",\n{\"ph\": \"X\", \"name\": \"%s\", \"cat\": \"%s\", \"pid\": %d, \"tid\": %d",
        kinds[s->kind].name, kinds[s->kind].category, node, rank);
    put_us(b, "ts", s->from - zero);
    put_us(b, "dur", s->to - s->from);
    if (s->micro >= 0)
        tern_buf_printf(
            b, ", \"args\": {\"pass\": \"%s\", \"chunk\": %d, \"micro_batch\": %" PRId64 "}",
            s->backward ? "backward" : "forward", s->chunk, s->micro);
    tern_buf_puts(b, "}");
}

/* When the last rank of a node came to barrier `k`, and the first left it, by the node's clock. */
static void find_barrier(const struct train *t, int node, int k, int64_t *ret_last_came,
                         int64_t *ret_first_left)
{
    const struct head *h = t->profile->heads;

    *ret_last_came = INT64_MIN;
    *ret_first_left = INT64_MAX;
    for (int r = 0; r < t->size; r++) {
        if (h[r].node != node)
            continue;
        *ret_last_came = h[r].came[k] > *ret_last_came ? h[r].came[k] : *ret_last_came;
        *ret_first_left = h[r].left[k] < *ret_first_left ? h[r].left[k] : *ret_first_left;
    }
}

/* The time of a node's clock when the clock of rank 0's node shows 0.  Ranks of a node have one
 * clock.  No rank leaves a barrier before all ranks have come to it.  So each barrier bounds the
 * difference of two nodes' clocks from both sides, and the middle of the closest bounds is taken.
 * *ret_error, unless NULL: how far that may be from the true value. */
static int64_t offset_of(const struct train *t, int node, int64_t *ret_error)
{
    const int own = t->profile->heads[0].node;
    int64_t low = INT64_MIN, high = INT64_MAX;

    for (int k = 0; k < BARRIERS && node != own; k++) {
        int64_t came, left, own_came, own_left;
        find_barrier(t, own, k, &own_came, &own_left);
        find_barrier(t, node, k, &came, &left);
        low = came - own_left > low ? came - own_left : low;
        high = left - own_came < high ? left - own_came : high;
    }
    if (ret_error)
        *ret_error = node == own ? 0 : (high - low + 1) / 2;
    return node == own ? 0 : low + (high - low) / 2;
}

/* The step begins, by the clock of rank 0's node, when the first of all leaves the last barrier. */
static int64_t beginning(const struct train *t)
{
    const struct head *h = t->profile->heads;
    int64_t first = INT64_MAX, offset = 0;

    for (int r = 0; r < t->size; r++) {
        if (r == 0 || h[r].node != h[r - 1].node)
            offset = offset_of(t, h[r].node, NULL);
        int64_t at = h[r].left[BARRIERS - 1] - offset;
        first = at < first ? at : first;
    }
    return first;
}

static void put_rank(struct tern_buf *b, const struct train *t, int rank, const struct span *spans)
{
    const struct head *h = &t->profile->heads[rank];
    int64_t zero = t->profile->begun + offset_of(t, h->node, NULL);
    char name[96];

    tern_buf_puts(b, rank > 0 ? ",\n" : "");
    put_name(b, "process_name", h->node, rank, tern_fabric_node_name(t->options->fabric, rank));
    snprintf(name, sizeof name, "rank %d: stage %d, data %d, tensor %d", rank, h->stage,
             h->data_rank, h->tensor_rank);
    tern_buf_puts(b, ",\n");
    put_name(b, "thread_name", h->node, rank, name);
    for (uint64_t i = 0; i < h->n; i++)
        put_span(b, &spans[i], h->node, rank, zero);
}

/* The end of the file. */
static void put_end(struct tern_buf *b, const struct train *t)
{
    uint64_t lost = 0;

    for (int r = 0; r < t->size; r++)
        lost += t->profile->heads[r].lost;
    tern_buf_printf(b,
                    "\n], \"displayTimeUnit\": \"ms\", "
                    "\"otherData\": {\"run\": \"%s\", \"step\": %" PRIu64 ", \"ranks\": %d, "
                    "\"lost_spans\": %" PRIu64 ", \"clock_error_us\": [",
                    t->run_id, t->profile->step, t->size, lost);
    for (int r = 0; r < t->size; r++) {
        int64_t error;
        offset_of(t, t->profile->heads[r].node, &error);
        tern_buf_printf(b, "%s%" PRId64 ".%03d", r > 0 ? ", " : "", error / 1000,
                        (int)(error % 1000));
    }
    tern_buf_puts(b, "]}}\n");
    if (lost)
        tern_warn("%s: %" PRIu64 " spans are not in it: of each rank it has the first %d",
                  t->options->profile, lost, SPANS);
}

static int flush(struct train_profile *p, struct tern_buf *b, const struct tern_fs_new *f,
                 struct tern_err *err)
{
    int rc = tern_buf_check(b, f->path, err);

    if (rc == 0)
        rc = tern_fs_write_at(f->fd, p->written, b->data, b->len, f->path, err);
    p->written += b->len;
    tern_buf_clear(b);
    return rc;
}

/* Bring the spans of one rank after the other to rank 0, which writes them to `f`.  *rc: of the
 * file. */
static int gather(struct train *t, const struct tern_fs_new *f, struct tern_buf *b, int *rc,
                  struct tern_err *lost, struct tern_err *err)
{
    struct train_profile *p = t->profile;

    for (int r = 0; r < t->size; r++) {
        struct span *spans = r == t->rank ? p->mine : p->another;
        if (r > 0 && tern_fabric_broadcast(t->world, spans, p->heads[r].n * sizeof *spans, TERN_U8,
                                           r, err) < 0)
            return -1;
        if (t->rank != 0 || *rc < 0)
            continue;
        put_rank(b, t, r, spans);
        *rc = flush(p, b, f, lost);
    }
    return 0;
}

int tern_train_profile_write(struct train *t, struct tern_err *err)
{
    struct train_profile *p = t->profile;
    struct tern_fs_new f = {.fd = -1};
    struct tern_buf b = {0};
    struct tern_err lost;
    int rc = 0;

    if (!p || !p->active)
        return 0;
    p->active = false;
    p->done = true;
    if (tern_fabric_all_gather(t->world, &p->head, p->heads, sizeof p->head, TERN_U8, err) < 0)
        return -1;
    bool opened =
        t->rank == 0 && (rc = tern_fs_new_open(&f, t->options->profile, 0644, &lost)) == 0;
    p->begun = beginning(t);
    tern_buf_puts(&b, mark);
    int met = gather(t, &f, &b, &rc, &lost, err);
    if (opened && met == 0 && rc == 0) {
        put_end(&b, t);
        rc = flush(p, &b, &f, &lost);
    }
    if (opened && met == 0 && rc == 0)
        rc = tern_fs_new_commit(&f, &lost);
    else if (opened)
        tern_fs_new_abort(&f);
    tern_buf_free(&b);
    if (rc < 0 && met == 0)
        tern_warn("no profile: %s", lost.text); /* no reason to end a run */
    else if (opened && met == 0)
        tern_info("%s: where the time of step %" PRIu64 " went; for https://ui.perfetto.dev or "
                  "chrome://tracing",
                  t->options->profile, p->step);
    return met;
}

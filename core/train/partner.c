/* checkpoint.partner: each rank's files of a local checkpoint are copied to another node, so that
 * the loss of one node loses no local checkpoint.
 *
 * Nodes are in pairs, and the last three of an odd number are together.  Ranks of the same local
 * rank in a pair exchange their files beside the steps, a chunk at a time:
 *
 *     OPENS    a thread opens the files, and finds out how long they are
 *     AGREES   the longest of the pair's; then, that all have memory; one that has failed ends it
 *     READS    a thread writes the chunk that came, and reads the next
 *     SENDS    the chunks of all are on their way
 *
 * A step's end takes what is ready one state further and waits for nothing.  All ranks begin a new
 * exchange together, of the newest checkpoint that all nodes have.  Restarts count the copies as
 * they count any file on a node (core/ckpt/local.h). */
#include "core/train/state.h"

#include "core/base/log.h"
#include "core/base/str.h"
#include "core/ckpt/stream.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAIR_MAX = 3,
    CHUNKS =
        32, /* a step's share of an exchange; between two checkpoints are more steps, as a rule */
    CHUNK_MIN = 1 << 20,
    CHUNK_MAX = 256 << 20, /* of memory, PAIR_MAX + 1 times */
};

enum state { IDLE, OPENS, AGREES, READS, SENDS };

/* What a rank says with each chunk. */
struct word {
    uint64_t bytes; /* its stream's, with the first; 0: it has failed */
    uint64_t stop;  /* the exchange is to end here */
};

struct train_partner {
    struct tern_comm *comm; /* of the pair */
    int size, me;           /* in it */
    int ranks[PAIR_MAX];    /* in the world */
    char *dir;              /* of the node */
    enum state state;
    int64_t step;     /* of the exchange under way, or the last one; -1: none */
    int64_t copied;   /* the newest step that all pairs have copied; -1: none */
    bool open;        /* not all ranks are known to have ended it */
    bool whole;       /* this rank ended it with all files */
    bool sized;       /* there is memory for its chunks */
    bool stopping;    /* no further chunk is wanted */
    uint64_t at, end; /* the next chunk's first byte, and the end of the longest stream */
    size_t chunk, n;  /* bytes: the most of this exchange, and those of the chunk under way */
    char *out, *in;   /* [sizeof word + n], [size of these] */
    size_t room;      /* bytes of `out` */
    struct tern_pending pending;
    struct tern_ckpt_stream *streams[PAIR_MAX]; /* this rank's is read, the others' are written */
    pthread_t thread;
    bool threaded, taken; /* taken: a chunk has come, and is to be written */
    atomic_bool ready;
    int rc; /* of the thread, */
    struct tern_err err;
};

/* ------------------------------------------------------------------ in the thread */

static void open_streams(struct train_partner *p)
{
    for (int i = 0; p->rc == 0 && i < p->size; i++) {
        p->streams[i] = tern_ckpt_stream_open(p->dir, (uint64_t)p->step, p->ranks[i],
                                              /* writes= */ i != p->me, &p->err);
        p->rc = p->streams[i] ? 0 : -1;
    }
}

static void write_and_read(struct train_partner *p)
{
    const size_t pitch = sizeof(struct word) + p->n;

    for (int i = 0; p->taken && p->rc == 0 && i < p->size; i++)
        if (i != p->me)
            p->rc = tern_ckpt_stream_write(
                p->streams[i], p->in + (size_t)i * pitch + sizeof(struct word), p->n, &p->err);
    if (p->taken)
        p->at += p->n;
    const uint64_t mine = p->rc == 0 ? tern_ckpt_stream_bytes(p->streams[p->me]) : 0;
    p->n = p->end - p->at < p->chunk ? (size_t)(p->end - p->at) : p->chunk;
    const size_t n = mine <= p->at ? 0 : mine - p->at < p->n ? (size_t)(mine - p->at) : p->n;
    if (p->rc == 0 && n > 0)
        p->rc = tern_ckpt_stream_read(p->streams[p->me], p->at, n, p->out + sizeof(struct word),
                                      &p->err);
}

static void *work(void *ctx)
{
    struct train_partner *p = ctx;

    if (p->state == OPENS)
        open_streams(p);
    else
        write_and_read(p);
    atomic_store(&p->ready, true);
    return NULL;
}

static void *work_beside(void *ctx)
{
    tern_ckpt_make_way();
    return work(ctx);
}

/* In a thread, which gets no signals, or at once where there is none. */
static void enter(struct train_partner *p, enum state state)
{
    sigset_t all, before;

    p->state = state;
    atomic_store(&p->ready, false);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    p->threaded = pthread_create(&p->thread, NULL, work_beside, p) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!p->threaded)
        work(p);
}

static void leave(struct train_partner *p)
{
    if (p->threaded)
        pthread_join(p->thread, NULL);
    p->threaded = false;
}

/* ------------------------------------------------------------------ the exchange */

static void end_exchange(struct train_partner *p, bool whole)
{
    for (int i = 0; i < p->size; i++) {
        tern_ckpt_stream_end(p->streams[i]);
        p->streams[i] = NULL;
    }
    if (p->rc < 0)
        tern_warn("step %" PRId64 " has no copy on another node: %s", p->step, p->err.text);
    p->whole = whole && p->rc == 0;
    p->state = IDLE;
}

static int send_words(struct train_partner *p, enum state state, struct tern_err *err)
{
    const struct word w = {
        .bytes = p->rc == 0 && p->streams[p->me] ? tern_ckpt_stream_bytes(p->streams[p->me]) : 0,
        .stop = p->stopping || p->rc < 0};

    memcpy(p->out, &w, sizeof w);
    p->state = state;
    return tern_fabric_all_gather_begin(p->comm, p->out, p->in, sizeof w + p->n, TERN_U8,
                                        &p->pending, err);
}

/* The pair's words, behind an operation.  False: the exchange ends here. */
static bool read_words(struct train_partner *p)
{
    bool on = true;

    p->end = p->state == AGREES ? 0 : p->end;
    for (int i = 0; i < p->size; i++) {
        struct word w;
        memcpy(&w, p->in + (size_t)i * (sizeof w + p->n), sizeof w);
        on = on && !w.stop && w.bytes > 0;
        p->end = w.bytes > p->end ? w.bytes : p->end;
    }
    return on;
}

/* Memory for chunks of this exchange; what is there is kept. */
static void make_room(struct train_partner *p)
{
    const uint64_t share = (p->end + CHUNKS - 1) / CHUNKS;
    char *out, *in;

    p->chunk = share < CHUNK_MIN ? CHUNK_MIN : share > CHUNK_MAX ? CHUNK_MAX : (size_t)share;
    const size_t room = sizeof(struct word) + p->chunk;
    if (room <= p->room)
        return;
    out = tern_alloc(room, 1, "a partner's copy", &p->err);
    in = tern_alloc((size_t)p->size, room, "partners' copies", &p->err);
    if (!out || !in) {
        free(out);
        free(in);
        p->rc = -1;
        return;
    }
    free(p->out);
    free(p->in);
    p->out = out;
    p->in = in;
    p->room = room;
}

/* An operation is over. */
static int take(struct train_partner *p, struct tern_err *err)
{
    if (!read_words(p)) {
        end_exchange(p, /* whole= */ false);
        return 0;
    }
    if (p->state == AGREES && !p->sized) { /* all have the memory, or none goes on */
        p->sized = true;
        make_room(p);
        return send_words(p, AGREES, err);
    }
    p->taken = p->state == SENDS;
    p->at = p->taken ? p->at : 0;
    enter(p, READS);
    return 0;
}

/* A thread is done. */
static int go_on_behind(struct train_partner *p, struct tern_err *err)
{
    leave(p);
    if (p->state == OPENS) {
        p->n = 0;
        return send_words(p, AGREES, err);
    }
    if (p->at < p->end)
        return send_words(p, SENDS, err);
    end_exchange(p, /* whole= */ true); /* the others end it here, too */
    return 0;
}

int tern_train_partner_go_on(struct train *t, struct tern_err *err)
{
    struct train_partner *p = t->checkpoint.local.partner;
    bool done = true;

    while (p && done && p->state != IDLE) {
        if (p->state == OPENS || p->state == READS) {
            done = atomic_load(&p->ready);
            if (done && go_on_behind(p, err) < 0)
                return -1;
        } else {
            if (tern_fabric_test(&p->pending, &done, err) < 0)
                return -1;
            if (done && take(p, err) < 0)
                return -1;
        }
    }
    return 0;
}

bool tern_train_partner_is_idle(const struct train *t)
{
    return !t->checkpoint.local.partner || t->checkpoint.local.partner->state == IDLE;
}

bool tern_train_partner_has_copied(const struct train *t)
{
    const struct train_partner *p = t->checkpoint.local.partner;

    return p && p->state == IDLE && p->whole;
}

void tern_train_partner_begin(struct train *t)
{
    struct train_partner *p = t->checkpoint.local.partner;

    if (!p)
        return;
    if (p->open && t->checkpoint.local.all_copied)
        p->copied = p->step;
    p->open = false;
    if (t->checkpoint.local.step <= p->step)
        return;
    p->step = t->checkpoint.local.step;
    p->open = true;
    p->whole = p->stopping = p->sized = false;
    p->rc = 0;
    enter(p, OPENS);
}

void tern_train_partner_keeps(const struct train *t, uint64_t kept[2])
{
    const struct train_partner *p = t->checkpoint.local.partner;

    kept[0] = p && p->copied > 0 ? (uint64_t)p->copied : 0;
    kept[1] = p && p->open ? (uint64_t)p->step : 0;
}

int tern_train_partner_stop(struct train *t, struct tern_err *err)
{
    struct train_partner *p = t->checkpoint.local.partner;

    if (p)
        p->stopping = true;
    while (p && p->state != IDLE) {
        if (p->state == OPENS || p->state == READS) {
            if (go_on_behind(p, err) < 0)
                return -1;
        } else {
            if (tern_fabric_wait(&p->pending, err) < 0 || take(p, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------ from begin to end */

int tern_train_partner_open(struct train *t, struct tern_err *err)
{
    struct tern_fabric *f = t->options->fabric;
    struct train_local *l = &t->checkpoint.local;
    const int nodes = tern_fabric_nodes(f), local = tern_fabric_local_rank(f);
    int pair = tern_fabric_node(f) / 2;

    if (!l->dir || !t->recipe->checkpoint.partner)
        return 0;
    if (nodes % 2 && pair == nodes / 2 && pair > 0)
        pair--; /* the last one of an odd number */
    struct train_partner *p = tern_alloc(1, sizeof *p, "a partner", err);
    if (tern_train_agree(t, p ? 0 : -1, err) < 0) {
        free(p);
        return -1;
    }
    l->partner = p;
    *p = (struct train_partner){.step = -1, .copied = -1, .room = sizeof(struct word)};
    p->dir = tern_strdup(l->dir);
    if (tern_fabric_comm_split(t->world, pair * t->size + local, t->rank, &p->comm, err) < 0)
        return -1;
    p->size = tern_fabric_comm_size(p->comm);
    p->me = tern_fabric_comm_rank(p->comm);
    p->out = tern_alloc(1, sizeof(struct word), "a partner", err);
    p->in = tern_alloc(PAIR_MAX, sizeof(struct word), "a partner", err);
    if (tern_train_agree(t, p->out && p->in ? 0 : -1, err) < 0)
        return -1;
    for (int i = 0; i < p->size && i < PAIR_MAX; i++)
        p->ranks[i] = tern_fabric_comm_world_rank(p->comm, i);
    double alone = p->size < 2;
    if (tern_train_agree_sum(t, 0, &alone, err) < 0)
        return -1;
    if (alone > 0) {
        if (t->rank == 0)
            tern_warn("checkpoint.partner is not used: %s",
                      nodes < 2 ? "there is one node" : "the nodes have unlike numbers of ranks");
        tern_fabric_comm_free(p->comm);
        tern_train_partner_free(t);
    }
    return 0;
}

void tern_train_partner_close(struct train *t)
{
    struct train_partner *p = t->checkpoint.local.partner;

    if (!p)
        return;
    leave(p);
    for (int i = 0; i < p->size; i++) {
        tern_ckpt_stream_end(p->streams[i]);
        p->streams[i] = NULL;
    }
}

void tern_train_partner_free(struct train *t)
{
    struct train_partner *p = t->checkpoint.local.partner;

    if (!p)
        return;
    free(p->dir);
    free(p->out);
    free(p->in);
    free(p);
    t->checkpoint.local.partner = NULL;
}

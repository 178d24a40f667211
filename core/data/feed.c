/* A reader cuts files into pieces, workers tokenise pieces, the caller takes them in order.  Pieces
 * go round in a ring of slots: slot i % n_slots holds piece i. */
#include "core/base/str.h"
#include "core/data/coder.h"
#include "core/text/bytes.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOTS_A_THREAD = 4,      /* others go on for a while beside a long document */
    KEEP = 4 << 20,          /* bytes of a slot that are kept for the next piece */
    FLIGHT = 256 << 20,      /* bytes of text in all slots: long documents come one by one */
    PIECE_BYTES = 256 << 10, /* of most pieces */
};

struct doc {
    size_t n_ids, text_bytes;
    bool cut, masked;
    uint8_t hash[TERN_DATA_HASH];
};

struct slot {
    struct tern_text_chunk chunk;
    size_t path;
    enum tern_text_format format;
    uint64_t done_bytes; /* of all files, with this piece */
    bool done;           /* tokenised, or failed */
    bool failed;         /* behind its documents */
    struct tern_err err;
    struct tern_text_counts counts;
    struct doc *docs;
    size_t n_docs, docs_cap;
    uint32_t *ids;
    uint8_t *mask; /* of records */
    size_t n_ids, ids_cap, mask_cap;
};

struct worker {
    struct tern_data_feed *feed;
    struct tern_data_coder coder;
    pthread_t thread;
};

struct tern_data_feed {
    struct tern_data_feed_how how;
    const int *stop;                 /* the caller's */
    struct tern_text_counts *counts; /* by path */
    uint64_t all_bytes, done_bytes;
    struct tern_text_source *source; /* the reader's */
    size_t n_opened;                 /* paths */
    uint64_t before_bytes;           /* of the paths before */

    struct worker *workers; /* one, without a thread, where the caller does all */
    unsigned n_workers, n_threads;
    pthread_t reader;
    bool reading;

    /* What follows is guarded by `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t to_cut, to_tokenise, to_take;
    struct slot *slots;
    size_t n_slots;
    uint64_t n_cut, n_begun, n_taken; /* pieces */
    size_t flight;                    /* bytes of text in slots */
    bool all_cut;
    int quit; /* also read by tern_text_bytes_read */

    /* The caller's place in the oldest piece. */
    bool inside;
    size_t doc, id;
};

/* ---- cutting ---- */

static bool all_fields(const void *arg, const char *path)
{
    (void)arg;
    (void)path;
    return true;
}

void tern_data_feed_read_records(const struct tern_data_feed_records *records,
                                 struct tern_text_how *ret_how)
{
    ret_how->records = records != NULL;
    ret_how->reads = records && records->reads ? records->reads : all_fields;
    ret_how->reads_arg = records ? records->arg : NULL;
}

/* The source of paths[i], or of the part of it that is asked for. */
static struct tern_text_source *open_source(const struct tern_data_feed_how *how, size_t i,
                                            struct tern_err *err)
{
    const uint64_t from = i == 0 ? how->from : 0, to = i == how->n_paths - 1 ? how->to : 0;
    struct tern_text_source *s = tern_text_source_open(how->paths[i], &how->text, err);
    const bool lines = s && (s->format == TERN_TEXT_JSONL || s->format == TERN_TEXT_S2ORC);
    int rc = 0;

    if (s && how->records && !lines && s->format != TERN_TEXT_ARROW)
        rc = tern_err_set(err, TERN_USAGE,
                          "%s: is not JSONL, nor an Arrow file: records are lines or rows of them. "
                          "Say --format jsonl if each line is an object.",
                          s->path);
    else if (s && (from || to))
        rc = tern_text_source_range(s, from, to ? to : s->file_bytes, err);
    if (rc < 0)
        tern_text_source_close(s);
    return rc < 0 ? NULL : s;
}

/* The next piece of the files: 1, 0 at the end, -1.  *ret_path is set in any case. */
static int cut(struct tern_data_feed *f, struct tern_text_chunk *c, size_t *ret_path,
               struct tern_err *err)
{
    for (;;) {
        *ret_path = f->n_opened ? f->n_opened - 1 : 0;
        if (!f->source) {
            if (f->n_opened == f->how.n_paths)
                return 0;
            *ret_path = f->n_opened++;
            f->source = open_source(&f->how, *ret_path, err);
            if (!f->source)
                return -1;
        }
        int rc = tern_text_source_cut(f->source, c, err);
        if (rc != 0)
            return rc;
        f->before_bytes += f->source->file_bytes;
        tern_text_source_close(f->source);
        f->source = NULL;
    }
}

static uint64_t cut_bytes(const struct tern_data_feed *f)
{
    return f->before_bytes + tern_text_source_done(f->source);
}

/* Workers see single pieces: the reader counts the lines before them. */
static void count_lines(struct tern_text_source *s, const struct tern_text_chunk *c)
{
    const char *at = c->bytes + c->at, *end = c->bytes + c->end, *nl;

    for (; s->format != TERN_TEXT_PLAIN && (nl = memchr(at, '\n', (size_t)(end - at))); at = nl + 1)
        s->line++;
}

static bool has_room(const struct tern_data_feed *f)
{
    return f->n_cut - f->n_taken < f->n_slots && (f->flight < FLIGHT || f->n_cut == f->n_taken);
}

static void *read_files(void *arg)
{
    struct tern_data_feed *f = arg;
    int rc = 1;

    while (rc > 0) {
        pthread_mutex_lock(&f->lock);
        while (!has_room(f) && !f->quit)
            pthread_cond_wait(&f->to_cut, &f->lock);
        bool quit = f->quit;
        struct slot *s = &f->slots[f->n_cut % f->n_slots];
        pthread_mutex_unlock(&f->lock);
        if (quit)
            break;
        s->err = (struct tern_err){0};
        rc = cut(f, &s->chunk, &s->path, &s->err);
        if (rc < 0)
            s->n_docs = s->chunk.end = 0;
        if (rc > 0) {
            s->format = f->source->format;
            s->done_bytes = cut_bytes(f);
            count_lines(f->source, &s->chunk);
        }
        pthread_mutex_lock(&f->lock);
        s->done = s->failed = rc < 0;
        if (rc != 0)
            f->n_cut++;
        if (rc > 0)
            f->flight += s->chunk.end;
        f->all_cut = rc <= 0;
        if (rc > 0)
            pthread_cond_signal(&f->to_tokenise);
        else
            pthread_cond_broadcast(&f->to_tokenise);
        if (rc <= 0)
            pthread_cond_signal(&f->to_take);
        pthread_mutex_unlock(&f->lock);
    }
    return NULL;
}

/* ---- tokenising ---- */

static int grow(void **array, size_t *cap, size_t need, size_t size, struct tern_err *err)
{
    if (need <= *cap)
        return 0;
    size_t more = need + need / 2 + 1024;
    void *grown = realloc(*array, more * size);
    if (!grown)
        return tern_err_sys(err, "tokens of a document");
    *array = grown;
    *cap = more;
    return 0;
}

static int keep_doc(struct slot *s, const struct tern_data_feed_doc *d, bool masks,
                    struct tern_err *err)
{
    const struct tern_data_feed_tokens *t = &d->tokens;
    const size_t n = t->n_ids;

    if (grow((void **)&s->docs, &s->docs_cap, s->n_docs + 1, sizeof *s->docs, err) < 0 ||
        grow((void **)&s->ids, &s->ids_cap, s->n_ids + n, sizeof *s->ids, err) < 0 ||
        (masks && grow((void **)&s->mask, &s->mask_cap, s->n_ids + n, 1, err) < 0))
        return -1;
    if (n)
        memcpy(s->ids + s->n_ids, t->ids, n * sizeof *t->ids);
    if (n && masks && t->mask)
        memcpy(s->mask + s->n_ids, t->mask, n);
    else if (n && masks)
        memset(s->mask + s->n_ids, 1, n);
    struct doc *doc = &s->docs[s->n_docs++];
    *doc = (struct doc){
        .n_ids = n, .text_bytes = t->text_bytes, .cut = t->cut, .masked = t->mask != NULL};
    if (d->hash)
        memcpy(doc->hash, d->hash, sizeof doc->hash);
    s->n_ids += n;
    return 0;
}

static int tokenise(struct worker *w, struct slot *s)
{
    const bool masks = w->feed->how.records != NULL;
    struct tern_data_feed_doc doc;
    int rc;

    s->n_docs = s->n_ids = 0;
    tern_data_coder_begin(&w->coder, s->path, s->format, &s->chunk);
    while ((rc = tern_data_coder_next(&w->coder, s->path, &doc, &s->err)) > 0)
        if (__atomic_load_n(&w->feed->quit, __ATOMIC_RELAXED) ||
            keep_doc(s, &doc, masks, &s->err) < 0)
            return -1;
    s->counts = w->coder.parser.counts;
    return rc;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct tern_data_feed *f = w->feed;

    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (!f->quit && f->n_begun == f->n_cut && !f->all_cut)
            pthread_cond_wait(&f->to_tokenise, &f->lock);
        if (f->quit || f->n_begun == f->n_cut)
            break;
        struct slot *s = &f->slots[f->n_begun++ % f->n_slots];
        if (s->done) /* the reader failed */
            continue;
        pthread_mutex_unlock(&f->lock);
        int rc = tokenise(w, s);
        pthread_mutex_lock(&f->lock);
        s->failed = rc < 0;
        s->done = true;
        pthread_cond_signal(&f->to_take);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- taking ---- */

static void drop_large(struct slot *s)
{
    if (s->chunk.cap > KEEP)
        tern_text_chunk_free(&s->chunk);
    if (s->ids_cap > KEEP / sizeof *s->ids) {
        free(s->ids);
        free(s->mask);
        s->ids = NULL;
        s->mask = NULL;
        s->ids_cap = s->mask_cap = 0;
    }
}

static void leave_slot(struct tern_data_feed *f, struct slot *s)
{
    const size_t bytes = s->chunk.end;

    drop_large(s);
    pthread_mutex_lock(&f->lock);
    s->done = false;
    f->flight -= bytes;
    f->n_taken++;
    pthread_cond_signal(&f->to_cut);
    pthread_mutex_unlock(&f->lock);
    f->inside = false;
}

static bool stopped(const struct tern_data_feed *f)
{
    return f->stop && __atomic_load_n(f->stop, __ATOMIC_RELAXED);
}

/* Wait for the oldest piece: 1, 0 at the end, -1 when the feed is to stop. */
static int wait_slot(struct tern_data_feed *f, struct tern_err *err)
{
    enum { LOOK_NS = 100 * 1000 * 1000 };
    int rc;

    pthread_mutex_lock(&f->lock);
    for (;;) {
        bool some = f->n_taken < f->n_cut;
        rc = some && f->slots[f->n_taken % f->n_slots].done ? 1 : 0;
        if (rc || (!some && f->all_cut))
            break;
        if (stopped(f)) {
            rc = tern_err_set(err, TERN_FAILED, "interrupted");
            break;
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&f->to_take, &f->lock, &until);
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static int next_threaded(struct tern_data_feed *f, struct tern_data_feed_doc *ret_doc,
                         struct tern_err *err)
{
    for (;;) {
        struct slot *s = &f->slots[f->n_taken % f->n_slots];
        if (!f->inside) {
            int rc = wait_slot(f, err);
            if (rc <= 0)
                return rc;
            f->inside = true;
            f->doc = f->id = 0;
            f->done_bytes = s->done_bytes;
        }
        if (f->doc < s->n_docs) {
            const struct doc *d = &s->docs[f->doc++];
            *ret_doc =
                (struct tern_data_feed_doc){.tokens = {.ids = s->ids + f->id,
                                                       .mask = d->masked ? s->mask + f->id : NULL,
                                                       .n_ids = d->n_ids,
                                                       .text_bytes = d->text_bytes,
                                                       .cut = d->cut},
                                            .path = s->path,
                                            .hash = f->how.hash ? d->hash : NULL};
            f->id += d->n_ids;
            return 1;
        }
        if (s->failed) {
            if (err)
                *err = s->err;
            return -1;
        }
        tern_text_counts_add(&f->counts[s->path], &s->counts);
        leave_slot(f, s);
    }
}

/* The caller's thread alone, without a copy of the ids. */
static int next_alone(struct tern_data_feed *f, struct tern_data_feed_doc *ret_doc,
                      struct tern_err *err)
{
    struct tern_data_coder *c = &f->workers[0].coder;
    struct slot *s = &f->slots[0];
    int rc;

    for (;;) {
        if (f->inside && (rc = tern_data_coder_next(c, s->path, ret_doc, err)) != 0)
            return rc;
        if (f->inside) {
            f->source->line = c->parser.line;
            tern_text_counts_add(&f->counts[s->path], &c->parser.counts);
            drop_large(s);
        }
        f->inside = false;
        if ((rc = cut(f, &s->chunk, &s->path, err)) <= 0)
            return rc;
        f->inside = true;
        f->done_bytes = cut_bytes(f);
        tern_data_coder_begin(c, s->path, f->source->format, &s->chunk);
    }
}

int tern_data_feed_next(struct tern_data_feed *f, struct tern_data_feed_doc *ret_doc,
                        struct tern_err *err)
{
    if (stopped(f))
        return tern_err_set(err, TERN_FAILED, "interrupted");
    return f->n_workers == 1 ? next_alone(f, ret_doc, err) : next_threaded(f, ret_doc, err);
}

void tern_data_feed_progress(const struct tern_data_feed *f, uint64_t *ret_done, uint64_t *ret_all)
{
    *ret_done = f->done_bytes;
    *ret_all = f->all_bytes;
}

struct tern_text_counts tern_data_feed_counts(const struct tern_data_feed *f, size_t path)
{
    return f->counts[path];
}

/* ---- opening and closing ---- */

unsigned tern_data_feed_threads(void)
{
    cpu_set_t cpus;
    long n = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus)
                                                           : sysconf(_SC_NPROCESSORS_ONLN);

    return n < 1 ? 1 : n > TERN_DATA_FEED_THREADS_MAX ? TERN_DATA_FEED_THREADS_MAX : (unsigned)n;
}

/* Their size, and whether it tells how much text there is. */
static bool measure(struct tern_data_feed *f)
{
    struct stat st;
    bool all = true;

    for (size_t i = 0; i < f->how.n_paths; i++) {
        const char *path = f->how.paths[i];
        bool is = strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode);
        uint64_t bytes = is ? (uint64_t)st.st_size : 0;
        if (is && i == f->how.n_paths - 1 && f->how.to && f->how.to < bytes)
            bytes = f->how.to;
        if (is && i == 0)
            bytes -= f->how.from < bytes ? f->how.from : bytes;
        f->all_bytes += bytes;
        all = all && is;
    }
    if (!all)
        f->all_bytes = 0;
    return all;
}

static int start_threads(struct tern_data_feed *f, struct tern_err *err)
{
    sigset_t all, before;
    int rc = 0;

    sigfillset(&all); /* the caller's thread has the signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; rc == 0 && f->n_threads < f->n_workers; f->n_threads += rc == 0)
        rc =
            pthread_create(&f->workers[f->n_threads].thread, NULL, work, &f->workers[f->n_threads]);
    if (rc == 0)
        rc = pthread_create(&f->reader, NULL, read_files, f);
    f->reading = rc == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? 0
                   : tern_err_set(err, TERN_FAILED, "cannot start %u threads: %s", f->n_workers + 1,
                                  strerror(rc));
}

struct tern_data_feed *tern_data_feed_open(const struct tern_data_feed_how *how,
                                           struct tern_err *err)
{
    struct tern_data_feed *f = tern_alloc(1, sizeof *f, "texts", err);
    pthread_condattr_t attr;

    if (!f)
        return NULL;
    f->how = *how;
    tern_data_feed_read_records(how->records, &f->how.text);
    f->stop = how->text.stop;
    f->n_workers = how->threads ? how->threads : 1;
    /* More threads than pieces would find nothing to do. */
    if (measure(f) && f->n_workers > 1 + f->all_bytes / PIECE_BYTES && f->all_bytes)
        f->n_workers = (unsigned)(1 + f->all_bytes / PIECE_BYTES);
    pthread_mutex_init(&f->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&f->to_cut, NULL);
    pthread_cond_init(&f->to_tokenise, NULL);
    pthread_cond_init(&f->to_take, &attr);
    pthread_condattr_destroy(&attr);
    f->n_slots = f->n_workers == 1 ? 1 : (size_t)f->n_workers * SLOTS_A_THREAD;
    f->slots = tern_alloc(f->n_slots, sizeof *f->slots, "texts", err);
    f->workers = tern_alloc(f->n_workers, sizeof *f->workers, "texts", err);
    f->counts = tern_alloc(how->n_paths, sizeof *f->counts, "texts", err);
    if (!f->slots || !f->workers || !f->counts)
        goto fail;
    for (unsigned i = 0; i < f->n_workers; i++)
        f->workers[i] = (struct worker){.feed = f, .coder.how = &f->how};
    if (f->n_workers > 1) {
        f->how.text.stop = &f->quit;
        if (start_threads(f, err) < 0)
            goto fail;
    }
    return f;
fail:
    tern_data_feed_close(f);
    return NULL;
}

void tern_data_feed_close(struct tern_data_feed *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    __atomic_store_n(&f->quit, 1, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&f->to_cut);
    pthread_cond_broadcast(&f->to_tokenise);
    pthread_mutex_unlock(&f->lock);
    if (f->reading)
        pthread_join(f->reader, NULL);
    for (unsigned i = 0; i < f->n_threads; i++)
        pthread_join(f->workers[i].thread, NULL);
    for (unsigned i = 0; f->workers && i < f->n_workers; i++)
        tern_data_coder_free(&f->workers[i].coder);
    for (size_t i = 0; f->slots && i < f->n_slots; i++) {
        tern_text_chunk_free(&f->slots[i].chunk);
        free(f->slots[i].docs);
        free(f->slots[i].ids);
        free(f->slots[i].mask);
    }
    tern_text_source_close(f->source);
    pthread_cond_destroy(&f->to_cut);
    pthread_cond_destroy(&f->to_tokenise);
    pthread_cond_destroy(&f->to_take);
    pthread_mutex_destroy(&f->lock);
    free(f->slots);
    free(f->workers);
    free(f->counts);
    free(f);
}

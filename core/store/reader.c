#include "core/store/reader.h"

#include "core/base/clock.h"
#include "core/base/str.h"
#include "core/store/cache.h"
#include "core/store/call.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 1 << 20,
    SLOTS = 32,
    THREADS = 4,
    THREADS_MAX = 64,
    REQUESTS = 4096,
    WRONG_MAX = 4, /* times that a block is fetched whose checksum is wrong */
};

/* Of a block of the object. */
enum { WANTED = 1, HERE = 2, READ = 4 };

enum slot_state { EMPTY, LOADING, FULL };

/* A block in memory. */
struct slot {
    enum slot_state state;
    uint64_t block, used;
    unsigned users;
    char *bytes;
};

struct tern_store_reader {
    struct tern_store *store;
    struct tern_store_cache *cache;
    struct tern_store_head head;
    char *place; /* of the object, for keys of the cache */
    size_t origin, block_bytes;
    uint64_t n_blocks;
    uint32_t *crc; /* of blocks from origin to crc_end; or NULL */
    uint64_t crc_end;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed, requested;
    struct slot *slots;
    unsigned n_slots, n_threads, threads;
    uint64_t tick;
    uint8_t *flags; /* of each block */
    uint64_t requests[REQUESTS];
    size_t first_request, n_requests, max_requests;
    bool closing;
    pthread_t thread[THREADS_MAX];
    struct tern_store_ahead ahead;
};

/* ---- blocks ---- */

static uint64_t block_of(const struct tern_store_reader *r, uint64_t at)
{
    if (r->origin == 0)
        return at / r->block_bytes;
    return at < r->origin ? 0 : 1 + (at - r->origin) / r->block_bytes;
}

static uint64_t block_at(const struct tern_store_reader *r, uint64_t block)
{
    if (r->origin == 0)
        return block * r->block_bytes;
    return block == 0 ? 0 : r->origin + (block - 1) * r->block_bytes;
}

static size_t block_len(const struct tern_store_reader *r, uint64_t block)
{
    const uint64_t end = block_at(r, block + 1);

    return (size_t)((end < r->head.bytes ? end : r->head.bytes) - block_at(r, block));
}

static void block_key(const struct tern_store_reader *r, uint64_t block,
                      uint8_t ret_key[TERN_SHA256_BYTES])
{
    const uint64_t place[2] = {block_at(r, block), block_len(r, block)};
    struct tern_sha256 *s = tern_sha256_new();

    tern_sha256_add(s, r->place, strlen(r->place) + 1);
    tern_sha256_add(s, r->head.etag, strlen(r->head.etag) + 1);
    tern_sha256_add(s, place, sizeof place);
    tern_sha256_end(s, ret_key);
}

static bool right(const struct tern_store_reader *r, uint64_t block, const char *bytes)
{
    const uint64_t at = block_at(r, block);
    size_t len = block_len(r, block);

    if (!r->crc || at < r->origin || at >= r->crc_end)
        return true;
    if (len > r->crc_end - at)
        len = (size_t)(r->crc_end - at);
    return tern_crc32c(0, bytes, len) == r->crc[(at - r->origin) / r->block_bytes];
}

/* From the disk, else from the server, without the lock. */
static int load(struct tern_store_reader *r, uint64_t block, char *to, struct tern_err *err)
{
    const size_t len = block_len(r, block);
    uint8_t key[TERN_SHA256_BYTES];
    /* Without an ETag, a later object under the same name would look like this one. */
    struct tern_store_cache *cache = *r->head.etag ? r->cache : NULL;

    block_key(r, block, key);
    if (tern_store_cache_get(cache, key, to, len)) {
        if (right(r, block, to))
            return 0;
        tern_store_cache_drop(cache, key);
    }
    for (int i = 0; i < WRONG_MAX; i++) {
        if (tern_store_read(r->store, NULL, r->head.etag, block_at(r, block), len, to, err) < 0)
            return -1;
        __atomic_add_fetch(&r->ahead.fetched_bytes, len, __ATOMIC_RELAXED);
        if (right(r, block, to)) {
            tern_store_cache_put(cache, key, to, len);
            return 0;
        }
    }
    return tern_err_set(err, TERN_USAGE,
                        "%s: bytes %llu to %llu do not match their checksum in the object. Copy or "
                        "build it again.",
                        tern_store_url(r->store), (unsigned long long)block_at(r, block),
                        (unsigned long long)(block_at(r, block) + len - 1));
}

/* ---- slots: with the lock ---- */

static struct slot *slot_of(struct tern_store_reader *r, uint64_t block)
{
    for (unsigned i = 0; i < r->n_slots; i++)
        if (r->slots[i].state != EMPTY && r->slots[i].block == block)
            return &r->slots[i];
    return NULL;
}

/* The one whose block was not used for longest; NULL where all are in use. */
static struct slot *free_slot(struct tern_store_reader *r)
{
    struct slot *best = NULL;

    for (unsigned i = 0; i < r->n_slots; i++) {
        struct slot *s = &r->slots[i];
        if (s->state == EMPTY)
            return s;
        if (s->state == FULL && s->users == 0 && (!best || s->used < best->used))
            best = s;
    }
    return best;
}

static void mark_present(struct tern_store_reader *r, uint64_t block)
{
    uint8_t *f = &r->flags[block];

    if ((*f & WANTED) && !(*f & HERE)) {
        r->ahead.pending--;
        if (!(*f & READ))
            r->ahead.ready++;
    }
    *f |= HERE;
}

static void set_read(struct tern_store_reader *r, uint64_t block)
{
    uint8_t *f = &r->flags[block];

    if ((*f & WANTED) && !(*f & READ) && (*f & HERE))
        r->ahead.ready--;
    *f |= READ;
}

/* The block in memory, with one user more; NULL with `err`. */
static struct slot *take(struct tern_store_reader *r, uint64_t block, struct tern_err *err)
{
    struct slot *s;

    for (;;) {
        s = slot_of(r, block);
        if (s && s->state == FULL)
            break;
        if (!s && (s = free_slot(r))) {
            s->state = LOADING;
            s->block = block;
            pthread_mutex_unlock(&r->lock);
            const int rc = load(r, block, s->bytes, err);
            pthread_mutex_lock(&r->lock);
            s->state = rc < 0 ? EMPTY : FULL;
            pthread_cond_broadcast(&r->changed);
            if (rc < 0)
                return NULL;
            mark_present(r, block);
            break;
        }
        pthread_cond_wait(&r->changed, &r->lock);
    }
    s->users++;
    s->used = ++r->tick;
    return s;
}

static void drop(struct tern_store_reader *r, struct slot *s)
{
    if (--s->users == 0)
        pthread_cond_broadcast(&r->changed);
}

int tern_store_reader_pread(struct tern_store_reader *r, void *to, size_t len, uint64_t at,
                            struct tern_err *err)
{
    char *out = to;
    int rc = 0;

    if (at > r->head.bytes || len > r->head.bytes - at)
        return tern_err_set(err, TERN_USAGE, "%s: %zu bytes at %llu requested, it has %llu",
                            tern_store_url(r->store), len, (unsigned long long)at,
                            (unsigned long long)r->head.bytes);
    pthread_mutex_lock(&r->lock);
    while (len && rc == 0) {
        const uint64_t block = block_of(r, at);
        const size_t skip = (size_t)(at - block_at(r, block)), have = block_len(r, block) - skip;
        const size_t n = have < len ? have : len;
        const bool waits = !(r->flags[block] & HERE);
        const int64_t begun_ns = waits ? tern_clock_boot_ns() : 0;
        struct slot *s = take(r, block, err);
        if (waits) {
            r->ahead.waits++;
            r->ahead.waited_ns += (uint64_t)(tern_clock_boot_ns() - begun_ns);
        }
        if (!s) {
            rc = -1;
            break;
        }
        set_read(r, block);
        pthread_mutex_unlock(&r->lock);
        memcpy(out, s->bytes + skip, n);
        pthread_mutex_lock(&r->lock);
        drop(r, s);
        out += n;
        at += n;
        len -= n;
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

/* ---- read-ahead ---- */

/* Brings one block here: to the disk, where that keeps it, else into memory. */
static void fulfil(struct tern_store_reader *r, uint64_t block)
{
    uint8_t key[TERN_SHA256_BYTES];

    if (r->cache && *r->head.etag) {
        pthread_mutex_unlock(&r->lock);
        block_key(r, block, key);
        const bool has = tern_store_cache_has(r->cache, key);
        pthread_mutex_lock(&r->lock);
        if (has) {
            mark_present(r, block);
            return;
        }
    }
    struct slot *s = take(r, block, NULL);
    if (s)
        drop(r, s);
}

static void *work(void *ctx)
{
    struct tern_store_reader *r = ctx;

    pthread_mutex_lock(&r->lock);
    while (!r->closing) {
        if (r->n_requests == 0) {
            pthread_cond_wait(&r->requested, &r->lock);
            continue;
        }
        const uint64_t block = r->requests[r->first_request];
        r->first_request = (r->first_request + 1) % REQUESTS;
        r->n_requests--;
        if (!(r->flags[block] & HERE))
            fulfil(r, block);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

void tern_store_reader_prefetch(struct tern_store_reader *r, uint64_t at, size_t len)
{
    if (len == 0 || at >= r->head.bytes || len > r->head.bytes - at)
        return;
    pthread_mutex_lock(&r->lock);
    for (uint64_t b = block_of(r, at); b <= block_of(r, at + len - 1); b++) {
        uint8_t *f = &r->flags[b];
        if ((*f & WANTED) && !(*f & READ))
            continue;
        /* On the disk it stays; in memory it may be gone. */
        const bool here = (*f & HERE) && (r->cache || slot_of(r, b));
        if (!here && r->n_requests >= r->max_requests)
            break;
        *f = (uint8_t)(WANTED | (here ? HERE : 0));
        r->ahead.ready += here;
        if (here)
            continue;
        r->ahead.pending++;
        r->requests[(r->first_request + r->n_requests++) % REQUESTS] = b;
        if (r->n_threads < r->threads &&
            pthread_create(&r->thread[r->n_threads], NULL, work, r) == 0)
            r->n_threads++;
        pthread_cond_signal(&r->requested);
    }
    pthread_mutex_unlock(&r->lock);
}

void tern_store_reader_drop(struct tern_store_reader *r, uint64_t at, size_t len)
{
    uint8_t key[TERN_SHA256_BYTES];

    if (len == 0 || at >= r->head.bytes || len > r->head.bytes - at)
        return;
    pthread_mutex_lock(&r->lock);
    for (uint64_t b = block_of(r, at); b <= block_of(r, at + len - 1); b++) {
        struct slot *s = slot_of(r, b);
        if (s && s->state == FULL && s->users == 0)
            s->state = EMPTY;
        block_key(r, b, key);
        tern_store_cache_drop(r->cache, key);
    }
    pthread_mutex_unlock(&r->lock);
}

void tern_store_reader_ahead(struct tern_store_reader *r, struct tern_store_ahead *ret_ahead)
{
    pthread_mutex_lock(&r->lock);
    *ret_ahead = r->ahead;
    ret_ahead->fetched_bytes = __atomic_load_n(&r->ahead.fetched_bytes, __ATOMIC_RELAXED);
    ret_ahead->block_bytes = r->block_bytes;
    pthread_mutex_unlock(&r->lock);
}

/* ---- opening ---- */

static int make_slots(struct tern_store_reader *r, struct tern_err *err)
{
    r->slots = tern_alloc(r->n_slots, sizeof *r->slots, "blocks of an object", err);
    r->flags = tern_alloc(r->n_blocks + 1, 1, "blocks of an object", err);
    if (!r->slots || !r->flags)
        return -1;
    const size_t most = r->origin > r->block_bytes ? r->origin : r->block_bytes;
    for (unsigned i = 0; i < r->n_slots; i++) {
        r->slots[i].bytes = malloc(most);
        if (!r->slots[i].bytes)
            return tern_err_set(err, TERN_FAILED, "no memory for blocks of an object");
    }
    return 0;
}

struct tern_store_reader *tern_store_reader_open(const char *url,
                                                 const struct tern_store_reader_how *how,
                                                 struct tern_err *err)
{
    static const struct tern_store_reader_how plain;
    struct tern_store_reader *r = tern_alloc(1, sizeof *r, "a reader", err);

    if (!r)
        return NULL;
    how = how ? how : &plain;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    pthread_cond_init(&r->requested, NULL);
    r->origin = how->origin;
    r->block_bytes = how->block_bytes ? how->block_bytes : BLOCK;
    r->n_slots = how->blocks ? how->blocks : SLOTS;
    r->threads = how->threads ? how->threads : THREADS;
    if (r->threads > THREADS_MAX)
        r->threads = THREADS_MAX;
    r->store = tern_store_open(url, &how->store, err);
    if (!r->store)
        goto fail;
    r->place = tern_store_place(r->store);
    const int rc = tern_store_head(r->store, NULL, &r->head, err);
    if (rc == 0)
        tern_err_set(err, TERN_USAGE, "%s: there is no such object", tern_store_url(r->store));
    if (rc <= 0)
        goto fail;
    r->n_blocks = r->head.bytes ? block_of(r, r->head.bytes - 1) + 1 : 0;
    r->cache = tern_store_cache_open();
    r->max_requests = r->cache && *r->head.etag ? REQUESTS : r->n_slots / 2;
    if (make_slots(r, err) < 0)
        goto fail;
    return r;
fail:
    tern_store_reader_close(r);
    return NULL;
}

void tern_store_reader_halt(struct tern_store_reader *r)
{
    if (r)
        tern_store_halt(r->store);
}

void tern_store_reader_close(struct tern_store_reader *r)
{
    if (!r)
        return;
    tern_store_halt(r->store);
    pthread_mutex_lock(&r->lock);
    r->closing = true;
    pthread_cond_broadcast(&r->requested);
    pthread_mutex_unlock(&r->lock);
    for (unsigned i = 0; i < r->n_threads; i++)
        pthread_join(r->thread[i], NULL);
    for (unsigned i = 0; r->slots && i < r->n_slots; i++)
        free(r->slots[i].bytes);
    free(r->slots);
    free(r->flags);
    free(r->crc);
    free(r->place);
    tern_store_cache_close(r->cache);
    tern_store_close(r->store);
    pthread_cond_destroy(&r->changed);
    pthread_cond_destroy(&r->requested);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

uint64_t tern_store_reader_bytes(const struct tern_store_reader *r)
{
    return r->head.bytes;
}

const char *tern_store_reader_etag(const struct tern_store_reader *r)
{
    return r->head.etag;
}

const char *tern_store_reader_url(const struct tern_store_reader *r)
{
    return tern_store_url(r->store);
}

int tern_store_reader_check(struct tern_store_reader *r, const uint32_t *crc, uint64_t end,
                            struct tern_err *err)
{
    const uint64_t n = end > r->origin ? (end - r->origin - 1) / r->block_bytes + 1 : 0;

    r->crc = tern_alloc(n + 1, sizeof *crc, "checksums", err);
    if (!r->crc)
        return -1;
    memcpy(r->crc, crc, n * sizeof *crc);
    r->crc_end = end;
    /* What came before is compared now, and else fetched again when it is read. */
    pthread_mutex_lock(&r->lock);
    for (unsigned i = 0; i < r->n_slots; i++)
        if (r->slots[i].state == FULL && r->slots[i].users == 0 &&
            !right(r, r->slots[i].block, r->slots[i].bytes))
            r->slots[i].state = EMPTY;
    pthread_mutex_unlock(&r->lock);
    return 0;
}

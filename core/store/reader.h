/* An object read as a file is: at any place, by any threads, through a cache on this machine's disk
 * (TERN_CACHE) and read-ahead.
 *
 *     struct tern_store_reader *r = tern_store_reader_open("s3://b/train.tds", NULL, err);
 *     tern_store_reader_prefetch(r, at, len);                    (soon: returns at once)
 *     tern_store_reader_pread(r, to, len, at, err);
 *
 * The object is the one that was there at opening: another in its place is an error.  Memory: 32
 * blocks of 1 MiB, or as asked. */
#ifndef TERN_STORE_READER_H
#define TERN_STORE_READER_H

#include "core/store/store.h"

struct tern_store_reader_how {
    struct tern_store_how store;
    /* The object in blocks: the first of `origin` bytes (0: there is none), then each of
     * `block_bytes` (0: 1 MiB), the last perhaps shorter. */
    size_t origin, block_bytes;
    unsigned blocks;  /* in memory; 0: 32 */
    unsigned threads; /* of read-ahead; 0: 4 */
};

struct tern_store_reader;
/* TERN_USAGE where there is no such object.  `how` may be NULL. */
struct tern_store_reader *tern_store_reader_open(const char *url,
                                                 const struct tern_store_reader_how *how,
                                                 struct tern_err *err);
/* Waits for read-ahead's transfers at most a second. */
void tern_store_reader_close(struct tern_store_reader *r); /* NULL is fine */
/* Reads of other threads end within a second, with an error, as do all later ones that need the
 * server.  NULL is fine. */
void tern_store_reader_halt(struct tern_store_reader *r);

uint64_t tern_store_reader_bytes(const struct tern_store_reader *r);
const char *tern_store_reader_etag(const struct tern_store_reader *r);
/* For messages: without its query. */
const char *tern_store_reader_url(const struct tern_store_reader *r);

/* CRC-32C of each block from `origin` to `end`, the last perhaps shorter.  From now on a block is
 * compared when it comes, and fetched again where it is wrong.  Before other threads read.  `crc`
 * is copied. */
int tern_store_reader_check(struct tern_store_reader *r, const uint32_t *crc, uint64_t end,
                            struct tern_err *err);

/* Exactly `len` bytes from `at` on. */
int tern_store_reader_pread(struct tern_store_reader *r, void *to, size_t len, uint64_t at,
                            struct tern_err *err);

/* These bytes are not what they should be: they are forgotten, here and on the disk, and fetched
 * again when they are read. */
void tern_store_reader_drop(struct tern_store_reader *r, uint64_t at, size_t len);

/* These bytes will be read: their blocks are brought here by other threads.  Never waits; requests
 * beyond 4,096 blocks are forgotten (or beyond half of the blocks in memory, where no disk keeps
 * them).  A failure is met by the read itself. */
void tern_store_reader_prefetch(struct tern_store_reader *r, uint64_t at, size_t len);

struct tern_store_ahead {
    uint64_t ready;            /* blocks that were wanted, are here, and were not read yet */
    uint64_t pending;          /* blocks that were wanted and are not here */
    uint64_t waits, waited_ns; /* reads that waited for the network, and for how long */
    uint64_t fetched_bytes;    /* from the server */
    uint64_t block_bytes;
};
void tern_store_reader_ahead(struct tern_store_reader *r, struct tern_store_ahead *ret_ahead);

#endif

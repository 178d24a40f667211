/* The file that a spool's writer appends to. */
#ifndef TERN_LEDGER_SPOOL_FILE_H
#define TERN_LEDGER_SPOOL_FILE_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "core/ledger/record.h"
#include "core/ledger/waiting.h"

/* A place in the file: behind a frame. */
struct tern_ledger_spool_place {
    off_t offset;
    uint64_t seq;
    uint32_t crc;
};

struct tern_ledger_spool {
    pthread_mutex_t lock; /* of all below; not held while a sync waits for the storage */
    struct tern_ledger_record_head head;
    char *dir, *path; /* path: of the file being written */
    int bits;         /* permissions of the run's folder, which all in it has */
    int fd;           /* -1: the next record begins a new file */
    bool torn;        /* the file ends in part of a record: nothing may follow it there */
    struct tern_ledger_spool_place begin, end, durable; /* begin: before the file's first record */
    off_t reserved;    /* bytes of the file that the storage has promised; 0: it does not do that */
    bool closing;      /* the last words are allowed */
    int64_t wall_ns;   /* of the newest record */
    int64_t given_ns;  /* of the next ones, instead of the clock's; 0: the clock's */
    int64_t looked_ns; /* on the boot clock: that the file was in its place */
    uint64_t dropped;
    char *earlier; /* path of the file before this one; NULL: there is none */
    uint64_t gone; /* records up to this seq are in no file any more */
    struct tern_ledger_lost here,
        further; /* records in this file, and in earlier ones behind `gone` */
    struct tern_ledger_waiting waiting;
    struct tern_ledger_lost waits;       /* the same records as in `waiting` */
    struct tern_ledger_lost lost;        /* and not in the ledger yet */
    struct tern_ledger_unwritten *shown; /* the caller's; NULL: it does not look */
    char reported[200]; /* the failure that the caller knows of; "" while all is well */
    struct tern_buf payload, frame;
};

/* Begin the next file, with its head. */
int tern_ledger_spool_begin_file(struct tern_ledger_spool *s, struct tern_err *err);
void tern_ledger_spool_close_file(struct tern_ledger_spool *s);
/* Write all of s->frame, which is `f`, at the end of the file, or take back what was written of it.
 */
int tern_ledger_spool_append(struct tern_ledger_spool *s, const struct tern_ledger_frame *f,
                             struct tern_err *err);
/* Once a second, or `now`: is the file still in its place?  When its folder was removed, moved or
 * replaced, all of the file is written there once more, under the same seqs. */
int tern_ledger_spool_follow(struct tern_ledger_spool *s, bool now, struct tern_err *err);
/* tern_ledger_spool_sync by a caller that has the lock, and keeps it. */
int tern_ledger_spool_sync_locked(struct tern_ledger_spool *s, struct tern_err *err);

#endif

/* One look of the retention process (retain.h): its state and its parts. */
#ifndef TERN_RETAIN_LOOK_H
#define TERN_RETAIN_LOOK_H

#include "core/ledger/ledger.h"
#include "core/retain/bucket.h"
#include "core/retain/external.h"
#include "core/retain/retain.h"

/* When failed work is tried again: not every two seconds, it may read a terabyte. */
struct tern_retain_retry {
    int64_t at_ns; /* CLOCK_BOOTTIME: not before this */
    unsigned times;
};

/* A known external checkpoint. */
struct tern_retain_item {
    struct tern_retain_record r;
    bool bad;      /* cannot be verified, and that is logged; until it is written again */
    bool seen;     /* in this look */
    bool reported; /* trouble with its mirror is logged */
    struct tern_retain_retry retry;
};

/* A checkpoint of tern's own trainer whose mirror makes trouble; that is logged. */
struct tern_retain_own {
    char *path;
    struct tern_retain_retry retry;
};

struct tern_retain_look {
    struct tern_retain_options o;
    char *dir; /* of the records */
    struct tern_retain_item *item;
    size_t n, cap;
    struct tern_retain_founds before;
    struct tern_ledger_spool *spool; /* NULL until there is something to write */
    struct tern_retain_own *own;
    size_t n_own;
    struct tern_retain_bucket *bucket; /* the mirror, if it is object storage; NULL: not open yet */
    char **known; /* [n_known]: digests of tern's own checkpoints that have copy and row */
    size_t n_known;
    bool probed;
    size_t copied, left, bad; /* copies made; in the last work: not copied or verified yet, and
                                 never to be verified */
    bool swept;
    bool last;   /* the last look: failed work is tried once more at once */
    char *doing; /* retain.h; NULL: no supervisor reads it */
};

/* Record, once, the folders that are there when the run begins. */
int tern_retain_note_before(const struct tern_retain_options *o, struct tern_err *err);

int tern_retain_look_open(struct tern_retain_look *k, const struct tern_retain_options *o,
                          struct tern_err *err);
void tern_retain_look_close(struct tern_retain_look *k);

/* Find checkpoints that are new, written again or gone, and record them in the ledger. */
int tern_retain_look_find(struct tern_retain_look *k, struct tern_err *err);

/* Log trouble, as an event of the ledger, too. */
void tern_retain_look_complain(struct tern_retain_look *k, const char *text);

/* Report the present work to the supervisor; `to` may be NULL. */
void tern_retain_look_report(struct tern_retain_look *k, const char *what, const char *path,
                             const char *to);
/* The hidden folder beside `path`, of this run alone, where a copy is made or removed.  Freed by
 * the caller. */
char *tern_retain_look_beside(const struct tern_retain_look *k, const char *path, const char *what);
/* May failed work be tried again?  In the last look always. */
bool tern_retain_retry_is_due(const struct tern_retain_look *k, const struct tern_retain_retry *r);
void tern_retain_retry_later(struct tern_retain_retry *r);

/* The spool of the retention process; NULL when it cannot be opened, which is logged. */
struct tern_ledger_spool *tern_retain_look_spool(struct tern_retain_look *k);
/* Add a checkpoint's row; an error of the ledger is logged. */
void tern_retain_look_add_row(struct tern_retain_look *k, const char *path, int64_t step,
                              const char *state, uint64_t bytes, size_t files, const char *digest);
void tern_retain_look_add_item(struct tern_retain_look *k, const struct tern_retain_item *i,
                               const char *state);
/* Write the item's record again, with the files of the old record. */
int tern_retain_look_rewrite(struct tern_retain_look *k, const struct tern_retain_item *i,
                             struct tern_err *err);
void tern_retain_look_drop(struct tern_retain_look *k, struct tern_retain_item *i);

/* ---- work.c: verify, mirror, prune.  Failed work is logged once and tried again. */
void tern_retain_work(struct tern_retain_look *k);

/* ---- mirror.c */

/* The end of a copy's name while it is made: the retention process and `tern ckpt mirror` may work
 * at the same time. */
#define TERN_RETAIN_COPY_ONLINE "new"
#define TERN_RETAIN_COPY_OFFLINE "mirror"

/* Is the mirror object storage? */
bool tern_retain_mirror_is_bucket(const struct tern_retain_look *k);
/* Once: a bucket that cannot be used is logged before there is a checkpoint. */
void tern_retain_mirror_probe(struct tern_retain_look *k);
/* Has the checkpoint its copy, as far as this process knows? */
bool tern_retain_mirror_knows(const struct tern_retain_look *k, const struct tern_ckpt_entry *c);
/* A checkpoint of tern's own trainer has its copy.  Adds the copy's row where the ledger has none:
 * the process that made the copy may have been killed before. */
void tern_retain_mirror_note(struct tern_retain_look *k, const struct tern_ckpt_entry *c);
/* Copy a verified external checkpoint to the mirror. */
void tern_retain_mirror(struct tern_retain_look *k, struct tern_retain_item *i);
/* Copy a checkpoint of tern's own trainer; -1 when that failed, which is logged once. */
int tern_retain_mirror_own(struct tern_retain_look *k, const struct tern_ckpt_entry *c);
/* The trouble with that checkpoint's mirror; NULL: none is known. */
struct tern_retain_own *tern_retain_mirror_find_own(struct tern_retain_look *k, const char *path);

/* ---- prune.c */

/* Remove the external checkpoints that the recipe does not keep. */
void tern_retain_prune(struct tern_retain_look *k);
/* Remove a folder so that no moment shows half of it. */
int tern_retain_prune_remove(const struct tern_retain_look *k, const char *path,
                             struct tern_err *err);
/* Remove hidden folders with this run's id that an earlier retention process left. They are folders
 * it was removing, or with `copies` half copies of checkpoints that have a copy now or need none.
 */
void tern_retain_prune_sweep(const struct tern_retain_look *k, bool copies);

#endif

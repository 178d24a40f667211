/* What the keeper knows and does in one look (retain.h): the parts of it. */
#ifndef TERN_RETAIN_LOOK_H
#define TERN_RETAIN_LOOK_H

#include "core/ledger/ledger.h"
#include "core/retain/external.h"
#include "core/retain/retain.h"

/* Work that failed: reading a terabyte again every two seconds helps nobody. */
struct tern_retain_retry {
    int64_t at_ns; /* CLOCK_BOOTTIME: not before this */
    unsigned times;
};

/* One checkpoint that is known. */
struct tern_retain_item {
    struct tern_retain_record r;
    bool bad;  /* cannot be verified, which was told: until it is written again */
    bool seen; /* in this look */
    bool told; /* that its mirror makes trouble */
    struct tern_retain_retry retry;
};

/* One of tern's own, whose mirror makes trouble, which was told. */
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
    size_t copied, left, bad; /* copies made; of the last work: what has no copy yet or is not
                                 verified yet, and what can never be */
    bool swept;
    bool last;   /* the last look: what failed is tried once more, whenever that was */
    char *doing; /* retain.h; NULL: no supervisor reads it */
};

/* What lies there when the run begins, written down once. */
int tern_retain_note_before(const struct tern_retain_options *o, struct tern_err *err);

int tern_retain_look_open(struct tern_retain_look *k, const struct tern_retain_options *o,
                          struct tern_err *err);
void tern_retain_look_close(struct tern_retain_look *k);

/* Find what is new, written again or gone, and say so in the ledger. */
int tern_retain_look_find(struct tern_retain_look *k, struct tern_err *err);
/* Verify, mirror, prune.  Trouble is told once and tried again. */
void tern_retain_look_work(struct tern_retain_look *k);

/* Let the supervisor know what is being done now; `to` may be NULL. */
void tern_retain_look_report(struct tern_retain_look *k, const char *what, const char *path,
                             const char *to);

/* How a copy's name ends while it is made: the run's keeper and `tern ckpt mirror` may work at the
 * same time. */
#define TERN_RETAIN_COPY_ONLINE "new"
#define TERN_RETAIN_COPY_OFFLINE "mirror"

/* Remove what a keeper that was ended has left, hidden folders with this run's id: what it was
 * removing, or with `copies` half copies of what has one now or needs none. */
void tern_retain_look_sweep(const struct tern_retain_look *k, bool copies);

/* The keeper's spool; NULL, told in the log, when it cannot be opened. */
struct tern_ledger_spool *tern_retain_look_spool(struct tern_retain_look *k);
/* A checkpoint's row; trouble with the ledger is told in the log. */
void tern_retain_look_add_row(struct tern_retain_look *k, const char *path, int64_t step,
                              const char *state, uint64_t bytes, size_t files, const char *digest);
void tern_retain_look_add_item(struct tern_retain_look *k, const struct tern_retain_item *i,
                               const char *state);
/* Write the item's record anew with the files that the old one has. */
int tern_retain_look_rewrite(struct tern_retain_look *k, const struct tern_retain_item *i,
                             struct tern_err *err);
void tern_retain_look_drop(struct tern_retain_look *k, struct tern_retain_item *i);

#endif

/* Does another rank run at all?
 *
 * A rank that computes, reads its data or writes a checkpoint says nothing to the others for as
 * long as that takes.  A rank that was stopped or whose machine is frozen says nothing either.
 * A thread of each rank tells them apart.  It answers questions and does nothing else, and it runs
 * when the process does.  Questions and answers are datagrams (UDP), to every address of the rank's
 * node, whatever network the messages themselves take.  Each begins with 128 bits that the receiver
 * drew, and gave to the ranks at wire-up.
 *
 * Only a rank that has answered before is known to live. Where datagrams do not get through, no
 * rank is, and waits have their deadline alone. */
#ifndef TERN_FABRIC_LIVENESS_H
#define TERN_FABRIC_LIVENESS_H

#include <stdint.h>

#include "core/base/datagram.h"
#include "core/fabric/fabric.h"

enum { LIVENESS_KEY = 16 };

/* The data with which others ask a rank; exchanged at wire-up. */
struct liveness_card {
    uint8_t key[LIVENESS_KEY];
    struct tern_datagram_place place; /* no port: it does not answer */
};

struct liveness;

/* Fills *card.  NULL when this rank cannot ask or answer (no socket, no memory): that is logged,
 * and the fabric does without. */
struct liveness *tern_fabric_liveness_open(int rank, int size, struct liveness_card *card);
/* Begins to answer, and asks every rank once.  `card`: of rank r; copied. */
void tern_fabric_liveness_meet(struct liveness *l, int r, const struct liveness_card *card);
void tern_fabric_liveness_start(struct liveness *l);
void tern_fabric_liveness_close(struct liveness *l);

/* The following take NULL for `l` and then know nothing.  Any thread may call them. */

/* Does not wait. */
void tern_fabric_liveness_probe(struct liveness *l, int r);
/* When rank r last answered, on the boot clock; 0: never. */
int64_t tern_fabric_liveness_heard(const struct liveness *l, int r);
/* How long the work of rank r may take, by its last answer; 0 when not known. */
int64_t tern_fabric_liveness_patience(const struct liveness *l, int r);
/* When that work began, on this rank's boot clock; 0 when not known. */
int64_t tern_fabric_liveness_since(const struct liveness *l, int r);
/* That work. */
enum tern_fabric_activity tern_fabric_liveness_doing(const struct liveness *l, int r);
/* Nanoseconds in which this rank did not run so far (core/base/clock.h): it was stopped. */
int64_t tern_fabric_liveness_lost_ns(struct liveness *l, int64_t now_ns);
/* Of this rank. */
void tern_fabric_liveness_tell(struct liveness *l, enum tern_fabric_activity doing,
                               int64_t patience_ns);

#endif

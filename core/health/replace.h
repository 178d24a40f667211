/* A bad node replaced, by a request that its platform understands.
 *
 *   HyperPod         state FAIL with the reason "Action:Replace", which its agent acts on; the
 *                    replacement keeps the node's name
 *   ParallelCluster  the node is powered down by force: its instance is terminated, and a static
 *                    node gets a new one by itself, a dynamic one with the next job
 *   virtual          the node of `tern cluster up` loses its power and boots anew
 */
#ifndef TERN_HEALTH_REPLACE_H
#define TERN_HEALTH_REPLACE_H

#include <stddef.h>

#include "core/base/err.h"

enum tern_health_platform {
    TERN_HEALTH_PLATFORM_NONE, /* an administrator does it by hand */
    TERN_HEALTH_PLATFORM_HYPERPOD,
    TERN_HEALTH_PLATFORM_PCLUSTER,
    TERN_HEALTH_PLATFORM_VIRTUAL,
};

/* Found by files that the platforms leave on their nodes. */
enum tern_health_platform tern_health_platform_find(void);
/* "none", "hyperpod", "pcluster", "virtual"; -1 for another word. */
int tern_health_platform_of(const char *word);
const char *tern_health_platform_name(enum tern_health_platform p);

/* Request that `node` be replaced because of `why`, and wait up to `wait_s` seconds (0: not at all)
 * for the new one.  `said`, of `size` bytes, gets the outcome in a sentence.  A node that carries
 * another reason than tern's is left alone (TERN_FAILED); one that has not come back in time is
 * TERN_TEMPFAIL. */
int tern_health_replace(enum tern_health_platform p, const char *node, const char *why,
                        double wait_s, char *said, size_t size, struct tern_err *err);

#endif

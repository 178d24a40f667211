/* Graphs compiled before a workload trains: once for a recipe and layout, then found again.
 *
 * Compilers for fixed graphs (neuronx-cc) take an hour for a graph that training then runs in
 * seconds.  So `workload.precompile.command` (neuron_parallel_compile ...) runs first, as an
 * attempt of its own kind, on the same nodes with the same degrees.  Its output goes to
 * <cache>/<key>/, where <key> is a digest of all that may change a graph:
 *
 *     the words of workload.command and workload.precompile.command, and the container
 *     workload.precompile.steps
 *     the content of the model's config.json
 *     nodes, tasks and workers a node, tensor and pipeline degree
 *     batch.global, batch.micro, batch.seq_len
 *     `neuronx-cc --version`, where there is no container
 *     NEURON_CC_FLAGS, XLA_USE_BF16, XLA_DOWNCAST_BF16: the user's, the site's or the profile's
 *
 * TERN_COMPILE_CACHE and NEURON_COMPILE_CACHE_URL name that folder in every attempt of the
 * workload.  The file `complete.json` in it says that the command came to a good end; it appears by
 * rename.  Two jobs of one key may compile at once: the compiler's cache has a lock a graph, and
 * the mark of either is right.
 */
#ifndef TERN_RUN_PRECOMPILE_H
#define TERN_RUN_PRECOMPILE_H

#include <stdbool.h>

#include "core/base/hash.h"
#include "core/run/attempt.h"

struct tern_run_precompile {
    char *dir;                 /* <cache>/<key>; NULL: nothing is compiled beforehand */
    char key[TERN_SHA256_HEX]; /* its first KEY_DIGITS name the folder */
    char *words;               /* the parts of the key, a line each */
    bool complete;
};

/* Find or make the cache's folder for an attempt like `a`, and set it in the environment.  Of `a`,
 * o and place are known (its nodes without spares).  Does nothing without workload.precompile.
 */
int tern_run_precompile_open(struct tern_run_precompile *p, const struct tern_run_attempt *a,
                             struct tern_err *err);
/* The command came to a good end in attempt `attempt` of run `run_id`. */
int tern_run_precompile_mark(struct tern_run_precompile *p, const char *run_id, unsigned attempt,
                             struct tern_err *err);
void tern_run_precompile_free(struct tern_run_precompile *p);

/* The line of `neuronx-cc --version` with a version, into `to`; "" without neuronx-cc.  No answer
 * within `seconds` is an error: a key without the version would name another cache. */
int tern_run_compiler_version(char *to, size_t size, int seconds, struct tern_err *err);

#endif

/* Recipe x model x data x cluster: mistakes, with the recipe's line, before anything starts.
 *
 * Everything here reads headers only and takes milliseconds: it runs inside `sbatch`.  A recipe of
 * another trainer is checked as far as it goes: it may leave out model, data and degrees.
 */
#ifndef TERN_CHECK_CHECK_H
#define TERN_CHECK_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/model/model.h"
#include "core/recipe/recipe.h"

struct tern_check_options {
    bool submission;        /* at sbatch: a model that another job makes first may be absent */
    int64_t nodes;          /* that will work, 0 when it is not known */
    int64_t ranks;          /* of all nodes together; of a workload its workers; 0: not known */
    int64_t cluster_nodes;  /* that there are at all; 0: not known */
    uint64_t node_memory;   /* bytes, of the largest node there is, or that as many nodes of one
                             * queue have as will work; 0: not known */
    bool larger;            /* there are larger nodes, but too few of them in one queue */
    char partition[96];     /* the nodes are those of this partition of Slurm, and why; "": of any,
                             * or of a layout */
    bool here;              /* node_memory is this machine's: no cluster is known */
    uint64_t device_memory; /* bytes, of a NeuronCore; 0: none, or not known */
};

/* 0, or -1 with one line about the first thing that cannot work.  It is an absent or damaged file,
 * or a model and a token set of different vocabularies.  Or tensor groups do not fit the nodes, a
 * batch does not divide over the ranks, or a model does not fit the memory.  Where the number of
 * nodes is not known, only a recipe that works on no number of them is refused. */
int tern_check_recipe(const struct tern_recipe *r, const struct tern_check_options *options,
                      struct tern_err *err);

/* The part of it that needs no file: degrees, cuts and memory of a model of this config. */
int tern_check_fits(const struct tern_recipe *r, const struct tern_check_options *options,
                    const struct tern_model_config *config, struct tern_err *err);

/* Judge by the machines of a layout (its path), not by those of a Slurm or by this one.  Fills in
 * cluster_nodes (of its largest queue), node_memory and device_memory.  A job is in one queue.  The
 * memory is that of known->nodes nodes of some queue (0: the fewest that the recipe needs), and as
 * many more as the recipe's spares.  TERN_USAGE when it has errors or fewer nodes.  Also when the
 * NeuronCores of so many nodes cannot be dealt to as many workers as `r` starts on a node. */
int tern_check_assume(const char *layout, const struct tern_recipe *r,
                      struct tern_check_options *known, struct tern_err *err);

/* Does a command line say `srun --auto-resume=1`, HyperPod's own restart of a step? */
bool tern_check_has_auto_resume(const char *line);

/* 0, or -1 when a command of the workload says so and tern would restart the run as well,
 * `restarts` times. */
int tern_check_restarts(const struct tern_recipe *r, int64_t restarts, struct tern_err *err);

/* The fewest nodes whose ranks divide over tensor x pipeline, and so over any multiple; none of
 * them in reserve. */
int64_t tern_check_fewest_nodes(const struct tern_recipe *r);

#endif

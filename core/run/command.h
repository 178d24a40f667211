/* A workload's command line: what stands in its recipe, made whole for one attempt. */
#ifndef TERN_RUN_COMMAND_H
#define TERN_RUN_COMMAND_H

#include "core/run/attempt.h"

/* Ranks of a node as the world counts them: a workload's tasks may start several workers each. */
int64_t tern_run_workers(const struct tern_recipe *r, const struct tern_place *p);

/* The attempt's command with every {name} filled in; *out NULL when it is not the recipe's.
 * {node_index} differs from node to node: a command that has it is run by `sh -c 'exec ...'`, which
 * every node and container image has, with the task's number by its launcher ($SLURM_PROCID,
 * $OMPI_COMM_WORLD_RANK) in its place and all else quoted.  Free with tern_recipe_words_free. */
int tern_run_command_fill(const struct tern_run_attempt *a, char ***out, struct tern_err *err);

/* srun's options for workload.container, NULL-ended, in `v` (room for TERN_RUN_CONTAINER_OPTIONS +
 * 1):
 * --container-image, --container-mounts of the folders that the run writes, of the recipe's and of
 * tern-inside, each at its own place, and --container-workdir.  They are pyxis's
 * (https://github.com/NVIDIA/pyxis); an srun without it refuses them.  v[0] is NULL without a
 * container. */
enum { TERN_RUN_CONTAINER_OPTIONS = 3 };
int tern_run_command_container(const struct tern_run_attempt *a, char **v, struct tern_err *err);

#endif

/* A workload's command line: the recipe's command, completed for one attempt. */
#ifndef TERN_RUN_COMMAND_H
#define TERN_RUN_COMMAND_H

#include "core/run/attempt.h"

/* Ranks on a node: the workers that a workload's tasks start, each one or more. */
int64_t tern_run_workers(const struct tern_recipe *r, const struct tern_place *p);

/* The attempt's command with every {name} filled in; *out NULL when the command is not the
 * recipe's. {node_index} differs from node to node.  A command that has it runs by `sh -c 'exec
 * ...'`, which every node and container image has: the launcher's number of the task
 * ($SLURM_PROCID, $OMPI_COMM_WORLD_RANK) stands in its place, and all else is quoted.  Free with
 * tern_recipe_words_free. */
int tern_run_command_fill(const struct tern_run_attempt *a, char ***out, struct tern_err *err);

/* srun's options for workload.container, NULL-ended, in `v` (room for TERN_RUN_CONTAINER_OPTIONS +
 * 1).  They are --container-image and --container-workdir.  --container-mounts has the folders that
 * the run writes, the recipe's folder and tern-inside, each under its own path.  They are options
 * of pyxis (https://github.com/NVIDIA/pyxis); srun refuses them without it.  v[0] is NULL without a
 * container. */
enum { TERN_RUN_CONTAINER_OPTIONS = 3 };
int tern_run_command_container(const struct tern_run_attempt *a, char **v, struct tern_err *err);

#endif

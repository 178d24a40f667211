/* What is known of the machines that a recipe is to run on, before it runs. */
#ifndef TERN_RUN_KNOWN_H
#define TERN_RUN_KNOWN_H

#include "core/check/check.h"

/* Fill the number of nodes of the Slurm cluster, the memory of the largest, and of a NeuronCore
 * where nodes have them; without Slurm, the memory of this machine.  One question to the
 * controller; what cannot be found out stays 0. */
void tern_run_known_machines(struct tern_check_options *known);

#endif

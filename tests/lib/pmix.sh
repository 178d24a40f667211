# Sourced by tests that start ranks with srun --mpi=pmix.  Not every Slurm has the plugin: Debian's 26.05
# is packaged without.
#
#   has_pmix COMMAND...   COMMAND runs what follows it on the head
NO_PMIX="this Slurm has no PMIx plugin"
has_pmix() { "$@" srun --mpi=list 2>&1 | tr -s ' \t' '\n' | grep -qx pmix; }

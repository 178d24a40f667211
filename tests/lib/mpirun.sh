# Sourced after tap.sh by tests that start mpirun; $root is its option for root.
root=; [ "$(id -u)" = 0 ] && root=--allow-run-as-root
# Open MPI has one folder in /tmp for all that a user starts on a machine.  Two mpirun at once may
# remove it under each other.
export OMPI_MCA_orte_tmpdir_base=$WORK PRTE_MCA_prte_tmpdir_base=$WORK

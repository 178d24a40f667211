/* MPI's own collectives beside ours. */
#ifndef TERN_CMD_BENCH_PEER_H
#define TERN_CMD_BENCH_PEER_H

#include "core/fabric/fabric.h"
#include "core/wire/mpi/table.h"

/* In each rank, which MPI's launcher started. */
struct bench_peer {
    const struct tern_mpi *mpi;
    enum tern_mpi_type type;
    enum tern_mpi_op op;
};

/* Has MPI this type and operation? */
int bench_peer_has(enum tern_type type, enum tern_op op, struct tern_err *err);
/* Before tern_fabric_open with TERN_WIREUP_MPI; NULL with `err` where MPI is not there. */
struct bench_peer *bench_peer_open(enum tern_type type, enum tern_op op, struct tern_err *err);
void bench_peer_close(struct bench_peer *p); /* after tern_fabric_close; NULL is fine */
const char *bench_peer_name(void);           /* "Open MPI v4.1.4"; after open */
/* What one of MPI's functions returned, as ours do. */
int bench_peer_check(const struct bench_peer *p, int code, struct tern_err *err);

/* Start `n` ranks of this program by mpirun, with the options in args[n_args]. They run once in
 * each of Open MPI's settings that are worth a try (all, or those in `only`, with commas between).
 * Print of every row the one in which MPI was fastest. */
int bench_peer_settings(int n, const char *only, char **args, int n_args, bool json,
                        struct tern_err *err);
/* Is `name` in "a,b,c"?  All are in NULL. */
bool bench_peer_listed(const char *list, const char *name);
/* The settings and what they are, a line each; for the help. */
int bench_peer_list(struct tern_err *err);

#endif

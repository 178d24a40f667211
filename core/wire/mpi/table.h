/* What plugins/fabric-mpi offers to a program that loads it: MPI behind one table of plain C, so
 * that nothing else is linked with an MPI library.  This header knows neither MPI nor the rest of
 * tern.
 *
 *     void *so = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
 *     const struct tern_mpi *m = dlsym(so, TERN_MPI_SYMBOL);      then look at m->version
 *     m->start(...);  m->send(...);  m->recv(...);  m->poll(...);  m->finish(...);
 *
 * Functions that can fail return 0 or MPI's error code, which `text` puts into words.  All calls
 * from one thread at a time.  MPI can be started once in a process, and not again after finish. */
#ifndef TERN_WIRE_MPI_TABLE_H
#define TERN_WIRE_MPI_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define TERN_MPI_SYMBOL "tern_mpi_table"
enum { TERN_MPI_VERSION = 3 };
enum { TERN_MPI_ANY = -1 }; /* any sender */
enum { TERN_MPI_LATE = -1 } /* not an error of MPI: the time was over */;

/* Something posted is over. */
struct tern_mpi_done {
    void *context; /* as given when it was posted */
    int code;      /* 0, or why it failed */
    size_t bytes;  /* that came, of a receive */
};

enum tern_mpi_type {
    TERN_MPI_F32,
    TERN_MPI_F64,
    TERN_MPI_I32,
    TERN_MPI_I64,
    TERN_MPI_U8,
};
enum tern_mpi_op { TERN_MPI_SUM, TERN_MPI_MAX, TERN_MPI_MIN };

struct tern_mpi {
    uint32_t version; /* TERN_MPI_VERSION; the rest may differ in another */

    /* Join the ranks that the launcher started, all together.  `library`, of `size` bytes: "Open
     * MPI v4.1.4".  TERN_MPI_LATE when that took longer than `limit_ns`, as for a rank that never
     * comes.  A thread is then left waiting in MPI_Init, and nothing of MPI is of any use. */
    int (*start)(char *library, size_t size, int64_t limit_ns);
    int (*rank)(void);
    int (*size)(void);
    int (*longest_tag)(void);      /* tags are from 0 to this */
    const char *(*text)(int code); /* valid until the next call */

    /* mine[bytes] of every rank to all[size][bytes].  TERN_MPI_LATE when that took longer than
     * `limit_ns`: then nothing of MPI is of use any more. */
    int (*gather)(const void *mine, size_t bytes, void *all, int64_t limit_ns);

    /* Messages.  Order is kept between two ranks for one tag.  `buf` stays with MPI until `poll`
     * has given the context back. */
    int (*send)(const void *buf, size_t bytes, int to, int tag, void *context);
    int (*recv)(void *buf, size_t bytes, int from, int tag, void *context);
    /* Move things; up to `most` that are over now. */
    int (*poll)(struct tern_mpi_done *done, int most);
    /* Take back receives that nothing came for; no context is given back after that. */
    void (*forget)(void);

    /* Leave: wait up to `limit_ns` for all ranks to come here, then end MPI.  TERN_MPI_LATE when
     * they did not: MPI is then left as it is, for its own end would wait for them for ever. */
    int (*finish)(int64_t limit_ns);

    /* MPI's own collectives over all ranks, to compare with.  Counts are of elements; at most
     * INT_MAX. `buf`, `in`, `out` as in core/fabric/fabric.h, but apart.  `in` NULL: in place, as
     * MPI has it.  all_gather finds the own block in out[size * count_per_rank].  reduce_scatter
     * takes its input from there and leaves the result at its beginning. */
    int (*barrier)(void);
    int (*all_reduce)(void *buf, size_t count, enum tern_mpi_type type, enum tern_mpi_op op);
    int (*reduce_scatter)(const void *in, void *out, size_t count_per_rank, enum tern_mpi_type type,
                          enum tern_mpi_op op);
    int (*all_gather)(const void *in, void *out, size_t count_per_rank, enum tern_mpi_type type);
    int (*broadcast)(void *buf, size_t count, enum tern_mpi_type type, int root);
};

#endif

/* The only file that includes <mpi.h>: MPI behind the table of core/wire/mpi/table.h.
 *
 * Everything runs on a duplicate of MPI_COMM_WORLD whose errors are returned.  Open MPI still ends
 * the process by itself where its own lower layers take an error for fatal; core/wire/mpi/mpi.h
 * says what was seen of that. */
#include "core/wire/mpi/table.h"

#include <mpi.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static MPI_Comm world = MPI_COMM_NULL;

/* What is on its way, for MPI_Testsome: the n-th request belongs to the n-th context. */
static struct {
    MPI_Request *request;
    void **context;
    int *index; /* of those that are over */
    MPI_Status *status;
    int n, room;
    struct tern_mpi_done *done; /* and not returned yet */
    int n_done, told;
} flight;

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Open MPI 4.1 under Slurm 22.05, once in some fifty starts, on a machine with more processes than
 * cores: a rank leaves MPI_Init while another is still in it and cannot take messages yet.  That
 * one dies of the first that comes.  With this pause before the first it was not seen again. */
#define SETTLE_NS 100000000

static int join_world(void)
{
    int given, rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given);

    if (rc)
        return rc;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    nanosleep(&(struct timespec){.tv_nsec = SETTLE_NS}, NULL);
    rc = MPI_Comm_dup(MPI_COMM_WORLD, &world);
    if (rc == 0)
        rc = MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    return rc;
}

static struct {
    _Atomic int over;
    int rc;
} joined;

static void *join_thread(void *unused)
{
    joined.rc = join_world();
    joined.over = 1;
    return unused;
}

/* MPI_Init knows no limit and cannot be called off: a thread of its own waits in it.  Signals are
 * for the others. */
static int start(char *library, size_t size, int64_t limit_ns)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "MPI";
    int64_t until = now_ns() + limit_ns;
    sigset_t all, before;
    pthread_t thread;
    int n;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, NULL, join_thread, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return MPI_ERR_NO_MEM;
    while (!joined.over && now_ns() < until)
        nanosleep(&nap, NULL);
    if (!joined.over) {
        pthread_detach(thread);
        return TERN_MPI_LATE;
    }
    pthread_join(thread, NULL);
    if (joined.rc)
        return joined.rc;
    MPI_Get_library_version(version, &n);
    version[strcspn(version, ",\n")] = '\0';
    snprintf(library, size, "%s", version);
    return 0;
}

static int rank_here(void)
{
    int r = 0;

    MPI_Comm_rank(world, &r);
    return r;
}

static int ranks(void)
{
    int n = 0;

    MPI_Comm_size(world, &n);
    return n;
}

static int longest_tag(void)
{
    int *most = NULL, found = 0;

    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
    return found ? *most : 32767; /* the least that MPI allows */
}

static const char *text(int code)
{
    static char to[MPI_MAX_ERROR_STRING];
    int n;

    if (code == TERN_MPI_LATE)
        return "the time is over";
    if (MPI_Error_string(code, to, &n) != MPI_SUCCESS)
        snprintf(to, sizeof to, "error %d", code);
    return to;
}

/* Sleeps between looks: the awaited rank may need this core. */
static int wait_until(MPI_Request *r, int64_t until)
{
    const struct timespec nap = {.tv_nsec = 200000};
    int over = 0, rc = 0;

    for (int looks = 0; rc == 0 && !over; looks++) {
        rc = MPI_Test(r, &over, MPI_STATUS_IGNORE);
        if (rc == 0 && !over && now_ns() > until)
            return TERN_MPI_LATE;
        if (rc == 0 && !over && looks > 100)
            nanosleep(&nap, NULL);
    }
    return rc;
}

static int gather(const void *mine, size_t bytes, void *all, int64_t limit_ns)
{
    MPI_Request r;
    int rc = MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, world, &r);

    return rc ? rc : wait_until(&r, now_ns() + limit_ns);
}

/* ---------------------------------------------------------------- messages */

static int grow(void **array, size_t size, int n)
{
    void *p = realloc(*array, size * (size_t)n);

    *array = p ? p : *array;
    return p ? 0 : MPI_ERR_NO_MEM;
}

static int make_room(void)
{
    int room = flight.room ? 2 * flight.room : 256;

    /* What is over and not returned yet fits the larger array too. */
    if (grow((void **)&flight.request, sizeof *flight.request, room) ||
        grow((void **)&flight.context, sizeof *flight.context, room) ||
        grow((void **)&flight.index, sizeof *flight.index, room) ||
        grow((void **)&flight.status, sizeof *flight.status, room) ||
        grow((void **)&flight.done, sizeof *flight.done, room))
        return MPI_ERR_NO_MEM;
    flight.room = room;
    return 0;
}

static int post_send(const void *buf, size_t bytes, int to, int tag, void *context)
{
    if (bytes > INT_MAX)
        return MPI_ERR_COUNT;
    int rc = flight.n == flight.room ? make_room() : 0;
    if (rc == 0)
        rc = MPI_Isend(buf, (int)bytes, MPI_BYTE, to, tag, world, &flight.request[flight.n]);
    if (rc == 0)
        flight.context[flight.n++] = context;
    return rc;
}

static int post_recv(void *buf, size_t bytes, int from, int tag, void *context)
{
    if (bytes > INT_MAX)
        return MPI_ERR_COUNT;
    int rc = flight.n == flight.room ? make_room() : 0;
    if (rc == 0)
        rc = MPI_Irecv(buf, (int)bytes, MPI_BYTE, from == TERN_MPI_ANY ? MPI_ANY_SOURCE : from, tag,
                       world, &flight.request[flight.n]);
    if (rc == 0)
        flight.context[flight.n++] = context;
    return rc;
}

/* Those that are over went to MPI_REQUEST_NULL; the others close ranks. */
static void close_ranks(void)
{
    int kept = 0;

    for (int i = 0; i < flight.n; i++) {
        if (flight.request[i] == MPI_REQUEST_NULL)
            continue;
        flight.request[kept] = flight.request[i];
        flight.context[kept++] = flight.context[i];
    }
    flight.n = kept;
}

static void look(void)
{
    int over = 0, bytes;
    int rc = MPI_Testsome(flight.n, flight.request, &over, flight.index, flight.status);

    if (over == MPI_UNDEFINED || over <= 0)
        return;
    for (int i = 0; i < over; i++) {
        MPI_Status *s = &flight.status[i];
        int at = flight.index[i], code = rc == MPI_ERR_IN_STATUS ? s->MPI_ERROR : rc;
        bytes = 0;
        if (code == 0)
            MPI_Get_count(s, MPI_BYTE, &bytes);
        flight.done[i] =
            (struct tern_mpi_done){flight.context[at], code, (size_t)(bytes > 0 ? bytes : 0)};
        flight.request[at] = MPI_REQUEST_NULL; /* also of one that failed */
    }
    flight.n_done = over;
    flight.told = 0;
    close_ranks();
}

static int poll_some(struct tern_mpi_done *done, int most)
{
    int n;

    if (flight.told == flight.n_done && flight.n > 0)
        look();
    for (n = 0; n < most && flight.told < flight.n_done; n++)
        done[n] = flight.done[flight.told++];
    return n;
}

static void forget(void)
{
    for (int i = 0; i < flight.n; i++) {
        MPI_Cancel(&flight.request[i]); /* of a send it does nothing in Open MPI */
        MPI_Request_free(&flight.request[i]);
    }
    flight.n = flight.n_done = flight.told = 0;
}

static int finish(int64_t limit_ns)
{
    MPI_Request r;
    int rc = MPI_Ibarrier(world, &r);

    if (rc == 0)
        rc = wait_until(&r, now_ns() + limit_ns);
    if (rc)
        return rc;
    free(flight.request);
    free(flight.context);
    free(flight.index);
    free(flight.status);
    free(flight.done);
    memset(&flight, 0, sizeof flight);
    MPI_Comm_free(&world);
    return MPI_Finalize();
}

/* ---------------------------------------------------------------- MPI's own collectives */

static MPI_Datatype type_of(enum tern_mpi_type t)
{
    return t == TERN_MPI_F32   ? MPI_FLOAT
           : t == TERN_MPI_F64 ? MPI_DOUBLE
           : t == TERN_MPI_I32 ? MPI_INT32_T
           : t == TERN_MPI_I64 ? MPI_INT64_T
                               : MPI_UINT8_T;
}

static MPI_Op op_of(enum tern_mpi_op o)
{
    return o == TERN_MPI_MAX ? MPI_MAX : o == TERN_MPI_MIN ? MPI_MIN : MPI_SUM;
}

static int barrier(void)
{
    return MPI_Barrier(world);
}

static int all_reduce(void *buf, size_t count, enum tern_mpi_type type, enum tern_mpi_op op)
{
    return MPI_Allreduce(MPI_IN_PLACE, buf, (int)count, type_of(type), op_of(op), world);
}

static int reduce_scatter(const void *in, void *out, size_t count, enum tern_mpi_type type,
                          enum tern_mpi_op op)
{
    return MPI_Reduce_scatter_block(in ? in : MPI_IN_PLACE, out, (int)count, type_of(type),
                                    op_of(op), world);
}

static int all_gather(const void *in, void *out, size_t count, enum tern_mpi_type type)
{
    return MPI_Allgather(in ? in : MPI_IN_PLACE, (int)count, type_of(type), out, (int)count,
                         type_of(type), world);
}

static int broadcast(void *buf, size_t count, enum tern_mpi_type type, int root)
{
    return MPI_Bcast(buf, (int)count, type_of(type), root, world);
}

extern const struct tern_mpi tern_mpi_table;
__attribute__((visibility("default"))) const struct tern_mpi tern_mpi_table = {
    .version = TERN_MPI_VERSION,
    .start = start,
    .rank = rank_here,
    .size = ranks,
    .longest_tag = longest_tag,
    .text = text,
    .gather = gather,
    .send = post_send,
    .recv = post_recv,
    .poll = poll_some,
    .forget = forget,
    .finish = finish,
    .barrier = barrier,
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .broadcast = broadcast,
};

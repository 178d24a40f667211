/* Loading MPI, and the plugin that speaks to it. */
#include "core/wire/mpi/mpi.h"

#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/wire/plugin.h"
#include "core/wire/wireup.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char name[] = "tern_fabric_mpi.so";

/* MPI is of the process, not of a fabric. */
static const struct tern_mpi *mpi;
static int users;
static bool over;
static int64_t patience_ns = 60000000000;
static char library[80];

bool tern_wire_up_mpi_launched(void)
{
    return getenv("PMIX_RANK") || getenv("OMPI_COMM_WORLD_RANK") || getenv("PMI_RANK");
}

const char *tern_wire_mpi_library(void)
{
    return library;
}

char *tern_wire_mpi_plugin(struct tern_err *err)
{
    const char *given = tern_var("TERN_FABRIC_MPI_PLUGIN");

    if (given && access(given, R_OK) < 0) {
        tern_err_sys(err, "TERN_FABRIC_MPI_PLUGIN: %s", given);
        return NULL;
    }
    char *path = given ? tern_strdup(given) : tern_wire_plugin(name);
    if (!path)
        tern_err_set(err, TERN_FAILED,
                     "there is no %s in ../plugins or ../lib/tern beside the programs: this tern "
                     "was built where mpicc was not. Install Open MPI's headers (libopenmpi-dev) "
                     "and build again, or set TERN_FABRIC_MPI_PLUGIN.",
                     name);
    return path;
}

/* Global: MPI's own plugins look for its symbols there. */
static int load(struct tern_err *err)
{
    char *path = tern_wire_mpi_plugin(err);

    if (!path)
        return -1;
    void *so = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    const struct tern_mpi *table = so ? dlsym(so, TERN_MPI_SYMBOL) : NULL;
    if (!table)
        tern_err_set(err, TERN_FAILED, "cannot load the plugin for MPI: %s", dlerror());
    else if (table->version != TERN_MPI_VERSION)
        tern_err_set(err, TERN_FAILED,
                     "%s is of another tern (table %u, this one wants %d): install both anew", path,
                     table->version, TERN_MPI_VERSION);
    else
        mpi = table;
    free(path);
    return mpi ? 0 : -1;
}

const struct tern_mpi *tern_wire_mpi_start(int64_t limit_ns, struct tern_err *err)
{
    if (limit_ns > 0)
        patience_ns = limit_ns;
    if (users > 0) {
        users++;
        return mpi;
    }
    if (over) {
        tern_err_set(err, TERN_TEMPFAIL,
                     "MPI was ended in this process and cannot be started again: start the ranks "
                     "anew");
        return NULL;
    }
    if (!tern_wire_up_mpi_launched()) {
        tern_err_set(err, TERN_USAGE,
                     "MPI cannot find the other ranks: nothing that speaks MPI has started this "
                     "one. Start it with srun --mpi=pmix or mpirun, or use launch.fabric: ofi "
                     "(TERN_FABRIC=ofi).");
        return NULL;
    }
    if (!mpi && load(err) < 0)
        return NULL;
    int rc = mpi->start(library, sizeof library, patience_ns);
    if (rc == TERN_MPI_LATE) {
        over = true;
        tern_err_set(err, TERN_TEMPFAIL,
                     "MPI has not started within the deadline of %.3g s: MPI_Init waits for ranks "
                     "that were not started or do not come to it. See what became of them "
                     "(TERN_DEADLINE sets how long they are waited for).",
                     (double)patience_ns / 1e9);
        return NULL;
    }
    if (rc) {
        over = true;
        tern_err_set(err, TERN_TEMPFAIL, "MPI cannot be started: %s", mpi->text(rc));
        return NULL;
    }
    users = 1;
    return mpi;
}

void tern_wire_mpi_stop(bool alone)
{
    static bool left_alone;
    int saved = errno;

    left_alone |= alone;
    if (--users > 0)
        return;
    over = true;
    if (!left_alone)
        mpi->finish(patience_ns);
    errno = saved;
}

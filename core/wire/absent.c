/* In place of this room where tern is built without its trainer (make WITH_TRAINER=no), except the
 * rendezvous: the functions that other programs call. */
#include "core/wire/wire.h"

int tern_wire_provider(const char *name, char *about, size_t about_size, struct tern_err *err)
{
    (void)name, (void)about, (void)about_size;
    return tern_err_set(err, TERN_FAILED,
                        "this tern is built without its trainer, and without libfabric");
}

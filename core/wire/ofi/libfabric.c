/* libfabric is not linked: most programs and most runs on one node never need it, and Debian's
 * brings libraries that take long to load.  Its few functions stand here under their names, and
 * load it when one of them is called first. */
#include "core/wire/ofi/libfabric.h"

#include "core/base/vars.h"
#include "core/wire/plugin.h"

#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef TERN_FI_ABI
#define TERN_FI_ABI "" /* the newest */
#endif

static struct {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
    const char *(*strerror)(int code);
    uint32_t (*version)(void);
} lib;

static char failure[512]; /* why it cannot be loaded; empty: it was not tried, or it is there */

/* Is there a device of theirs, or is a provider of theirs asked for? */
static bool wants_psm(const char *provider)
{
    const char *said[] = {provider, tern_var("TERN_FABRIC_PROVIDER"), getenv("FI_PROVIDER")};

    if (access("/dev/ipath", F_OK) == 0 || access("/dev/hfi1_0", F_OK) == 0)
        return true;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (said[i] && *said[i] != '^' && strstr(said[i], "psm"))
            return true;
    return false;
}

/* Debian's libfabric is linked with the libraries of TrueScale (PSM) and Omni-Path (PSM2).  Each
 * takes 100 ms of every start to count the cycles of core 0.  It binds its thread to that core (all
 * of a node's ranks the same).  One sets handlers for SIGSEGV and SIGTERM.  Libraries of these
 * names that are loaded before are taken for them by the whole process: ours fail every call.
 * plugins/no-psm makes them; without them all is the same, later. */
static void no_psm(void *held[2])
{
    static const char *const names[2] = {"no-psm/libpsm_infinipath.so.1", "no-psm/libpsm2.so.2"};

    for (int i = 0; i < 2; i++) {
        char *path = tern_wire_plugin(names[i]);
        held[i] = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
        free(path);
    }
}

static void *symbol(void *so, const char *name)
{
    return *TERN_FI_ABI ? dlvsym(so, name, TERN_FI_ABI) : dlsym(so, name);
}

int tern_wire_libfabric_load(const char *provider, struct tern_err *err)
{
    static const char name[] = "libfabric.so.1";
    void *held[2] = {NULL, NULL};

    if (lib.getinfo)
        return 0;
    if (*failure)
        return tern_err_set(err, TERN_FAILED, "%s", failure);
    if (!wants_psm(provider))
        no_psm(held);
    void *so = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!so && (held[0] || held[1])) { /* it wants more of them than what it was built with here */
        for (int i = 0; i < 2; i++)
            if (held[i])
                dlclose(held[i]);
        so = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (!so) {
        snprintf(failure, sizeof failure,
                 "cannot load libfabric: %s. Install it (Debian: libfabric1).", dlerror());
        return tern_err_set(err, TERN_FAILED, "%s", failure);
    }
    /* What takes a struct fi_info is of the header's shape of it, all else of any. */
    *(void **)&lib.freeinfo = symbol(so, "fi_freeinfo");
    *(void **)&lib.dupinfo = symbol(so, "fi_dupinfo");
    *(void **)&lib.fabric = dlsym(so, "fi_fabric");
    *(void **)&lib.strerror = dlsym(so, "fi_strerror");
    *(void **)&lib.version = dlsym(so, "fi_version");
    void *getinfo = symbol(so, "fi_getinfo");
    if (getinfo && lib.freeinfo && lib.dupinfo && lib.fabric && lib.strerror && lib.version) {
        *(void **)&lib.getinfo = getinfo;
        return 0;
    }
    snprintf(failure, sizeof failure,
             "%s here is older than what this tern was built with (%s): install that one, or build "
             "tern here",
             name, *TERN_FI_ABI ? TERN_FI_ABI : "its functions are missing");
    return tern_err_set(err, TERN_FAILED, "%s", failure);
}

/* ---------------------------------------------------------------- libfabric's, by its header */

#define MINE __attribute__((visibility("hidden"))) /* libfabric is to call its own */

static bool loaded(void)
{
    struct tern_err err;

    return tern_wire_libfabric_load(NULL, &err) == 0;
}

MINE int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                    const struct fi_info *hints, struct fi_info **info)
{
    return loaded() ? lib.getinfo(version, node, service, flags, hints, info) : -FI_ENODATA;
}

MINE void fi_freeinfo(struct fi_info *info)
{
    if (loaded())
        lib.freeinfo(info);
}

MINE struct fi_info *fi_dupinfo(const struct fi_info *info)
{
    return loaded() ? lib.dupinfo(info) : NULL;
}

MINE int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
    return loaded() ? lib.fabric(attr, fabric, context) : -FI_ENODATA;
}

MINE const char *fi_strerror(int code)
{
    return loaded() ? lib.strerror(code) : failure;
}

MINE uint32_t fi_version(void)
{
    return loaded() ? lib.version() : 0;
}

uint32_t tern_wire_libfabric_api(void)
{
    const uint32_t wanted = FI_VERSION(1, 14), own = fi_version();

    return own && FI_VERSION_LT(own, wanted) ? own : wanted;
}

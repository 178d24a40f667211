/* Which provider of libfabric is used, and why. */
#include "core/base/vars.h"
#include "core/wire/ofi/libfabric.h"
#include "core/wire/ofi/ofi.h"
#include "core/wire/ofi/state.h"

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* FI_PROVIDER hides all providers that it does not name: asking for another one would find nothing.
 * Its first name is meant; one that it forbids ("^name") says nothing of what is wanted. */
static bool told_to_libfabric(char name[TERN_WIRE_PROVIDER_NAME])
{
    const char *list = getenv("FI_PROVIDER");
    size_t n = list ? strcspn(list, ",") : 0;

    if (n == 0 || n >= TERN_WIRE_PROVIDER_NAME || *list == '^')
        return false;
    memcpy(name, list, n);
    name[n] = '\0';
    return true;
}

/* Over "tcp" tern takes tcp's own reliable endpoints where there are any.  A list that names tcp
 * alone, as profiles and sites have it, would hide them where they go by another name: libfabric
 * 1.16 and 1.17's "net".  For tcp;ofi_rxm, set TERN_FABRIC_PROVIDER. */
static void show_net(void)
{
    const char *list = getenv("FI_PROVIDER");
    char more[256];

    if (!list || !*list || *list == '^' || strstr(list, "net"))
        return;
    if (snprintf(more, sizeof more, "%s,net", list) < (int)sizeof more)
        setenv("FI_PROVIDER", more, 1);
}

/* Does libfabric offer EFA here? Without a device it is not asked: that takes its time. */
static bool has_efa(void)
{
    if (access("/sys/class/infiniband", F_OK) < 0)
        return false;
    struct fi_info *hints = tern_wire_ofi_hints("efa", OFI_RMA), *info = NULL;
    bool found = hints && fi_getinfo(tern_wire_libfabric_api(), NULL, NULL, 0, hints, &info) == 0;

    fi_freeinfo(hints);
    if (info)
        fi_freeinfo(info);
    return found;
}

const char *tern_wire_ofi_provider_choose(const char *provider, char name[TERN_WIRE_PROVIDER_NAME])
{
    const char *wanted = provider ? provider : tern_var("TERN_FABRIC_PROVIDER");

    if (!wanted && !told_to_libfabric(name))
        snprintf(name, TERN_WIRE_PROVIDER_NAME, "%s", has_efa() ? "efa" : "tcp");
    if (!wanted)
        wanted = name;
    if (strcmp(wanted, "tcp") == 0)
        show_net();
    return wanted;
}

const char *tern_wire_ofi_provider_why(const char *name)
{
    char chosen[TERN_WIRE_PROVIDER_NAME];

    if (strcmp(tern_wire_ofi_provider_choose(NULL, chosen), name) != 0)
        return "the program asks for it";
    if (tern_var("TERN_FABRIC_PROVIDER"))
        return "TERN_FABRIC_PROVIDER says so";
    if (told_to_libfabric(chosen))
        return "FI_PROVIDER names it first";
    return strcmp(name, "efa") == 0 ? "there is an EFA device here" : "there is no EFA device here";
}

/* Does this provider send tagged messages, which do not name their sender? */
static bool is_tagged(const char *name)
{
    const char *asked = tern_var("TERN_FABRIC_MODE");
    struct fi_info *hints = tern_wire_ofi_hints(name, OFI_RMA), *info = NULL;
    bool rma = hints && fi_getinfo(tern_wire_libfabric_api(), NULL, NULL, 0, hints, &info) == 0;

    fi_freeinfo(hints);
    if (info)
        fi_freeinfo(info);
    return !rma || (asked && strcmp(asked, "tagged") == 0);
}

int tern_wire_provider(const char *provider, char *about, size_t size, struct tern_err *err)
{
    char chosen[TERN_WIRE_PROVIDER_NAME];
    /* A process that only asks may fork afterwards, and libfabric 1.11's EFA provider aborts one
     * that does, also where there is no such device. */
    setenv("RDMAV_FORK_SAFE", "1", 0);
    const char *name = tern_wire_ofi_provider_choose(provider, chosen);

    if (tern_wire_libfabric_load(name, err) < 0)
        return -1;
    struct fi_info *hints = tern_wire_ofi_hints(name, OFI_TAGGED), *info = NULL;
    if (!hints)
        return tern_err_set(err, TERN_FAILED, "out of memory for libfabric");
    int rc = fi_getinfo(tern_wire_libfabric_api(), NULL, NULL, 0, hints, &info);
    if (rc == -FI_ENODATA) {
        fi_freeinfo(hints);
        hints = tern_wire_ofi_hints(name, OFI_RMA);
        rc =
            hints ? fi_getinfo(tern_wire_libfabric_api(), NULL, NULL, 0, hints, &info) : -FI_ENOMEM;
    }
    if (rc)
        tern_err_set(err, TERN_FAILED,
                     "libfabric has no provider '%s' here (%s). `fi_info -l` lists what there is; "
                     "set TERN_FABRIC_PROVIDER.",
                     name, fi_strerror(-rc));
    else
        snprintf(about, size, "libfabric %u.%u: %s%s", FI_MAJOR(fi_version()),
                 FI_MINOR(fi_version()), info->fabric_attr->prov_name,
                 is_tagged(name) ? " (tagged messages, unauthenticated)" : "");
    fi_freeinfo(hints);
    if (info)
        fi_freeinfo(info);
    return rc ? -1 : 0;
}

/* The installed Neuron SDK, by the version of its runtime library. */
#include "core/env/sdk.h"

#include "core/base/fs.h"
#include "core/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* SDK 2.N ships runtime library 2.(N + 2): 2.18 with 2.20.22, 2.25 with 2.27.23, 2.30 with 2.32.31,
 * 2.31 with 2.33.10, 2.33 with 2.35.30 (the SDK's pages on release content and on the runtime's
 * releases). */
enum { RUNTIME_AHEAD = 2 };

int tern_env_sdk_generation(const char *version)
{
    char *end;

    if (strncmp(version, "2.", 2) != 0)
        return -1;
    long n = strtol(version + 2, &end, 10);
    return end == version + 2 || n < 0 || n > 999 || (*end && *end != '.') ? -1 : (int)n;
}

static bool from_runtime(struct tern_env_facts *f, const char *version, const char *where)
{
    int n = tern_env_sdk_generation(version);

    if (n < RUNTIME_AHEAD)
        return false;
    snprintf(f->sdk, sizeof f->sdk, "2.%d", n - RUNTIME_AHEAD);
    snprintf(f->sdk_from, sizeof f->sdk_from, "runtime library %.24s (%.100s)", version, where);
    return true;
}

/* The link libnrt.so.1 ends at libnrt.so.2.33.10.0. */
static bool by_library(const char *root, struct tern_env_facts *f)
{
    static const char *const names[] = {"/opt/aws/neuron/lib/libnrt.so.1",
                                        "/opt/aws/neuron/lib/libnrt.so", NULL};
    char path[512];

    for (int i = 0; names[i]; i++) {
        if (snprintf(path, sizeof path, "%s%s", root, names[i]) >= (int)sizeof path)
            continue;
        char *real = realpath(path, NULL);
        const char *name = real ? tern_fs_basename(real) : "";
        bool found = tern_str_starts(name, "libnrt.so.") &&
                     from_runtime(f, name + strlen("libnrt.so."), names[i]);
        free(real);
        if (found)
            return true;
    }
    return false;
}

/* Debian's list of packages, a file of a few MiB. It is read when the library's name has no version
 * and there is a trace of the package. */
static void by_dpkg(const char *root, struct tern_env_facts *f)
{
    enum { MAX_STATUS = 64 << 20 };
    char *trace = tern_strf("%s/var/lib/dpkg/info/aws-neuronx-runtime-lib.list", root);
    char *status = tern_strf("%s/var/lib/dpkg/status", root), *text = NULL;
    size_t len;

    if (access(trace, F_OK) == 0 && tern_fs_read(status, MAX_STATUS, &text, &len, NULL) == 0) {
        const char *at = strstr(text, "\nPackage: aws-neuronx-runtime-lib\n");
        const char *end = at ? strstr(at, "\n\n") : NULL;
        const char *version = at ? strstr(at, "\nVersion: ") : NULL;
        if (version && (!end || version < end)) {
            char number[32];
            snprintf(number, sizeof number, "%.31s", version + strlen("\nVersion: "));
            number[strcspn(number, "-\n")] = '\0';
            from_runtime(f, number, "package aws-neuronx-runtime-lib");
        }
    }
    free(text);
    free(trace);
    free(status);
}

void tern_env_sdk_find(const char *root, struct tern_env_facts *f)
{
    if (!by_library(root, f))
        by_dpkg(root, f);
}

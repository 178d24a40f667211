#include "core/fabric/plugin.h"

#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *tern_fabric_plugin(const char *name)
{
    static const char *const folders[] = {"../plugins", "../../plugins", "../lib/tern"};
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);

    exe[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash)
        *slash = '\0';
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char *path = tern_strf("%s/%s/%s", exe, folders[i], name);
        if (access(path, R_OK) == 0)
            return path;
        free(path);
    }
    return NULL;
}

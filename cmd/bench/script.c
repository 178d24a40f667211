#include "cmd/bench/script.h"

#include "core/base/str.h"

#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *bench_script_find(const char *given, const char *name, const char *peer, const char *option,
                        struct tern_err *err)
{
    struct stat st;
    char exe[2048];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    char *path;

    exe[n < 0 ? 0 : n] = '\0';
    path = given ? tern_strdup(given) : tern_strf("%s/../../tests/bench/%s", dirname(exe), name);
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    else if (access(path, R_OK) == 0)
        return path;
    tern_err_set(err, TERN_USAGE,
                 "--peer %s: %s: %s. It is tests/bench/%s of tern's source; say where with "
                 "--%s",
                 peer, path, strerror(errno), name, option);
    free(path);
    return NULL;
}

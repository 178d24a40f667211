/* Facts that must be the same on every node of a job, as text that is compared between nodes. */
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/health/probe.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The file behind a link names the library's version: libpmix.so.2 -> libpmix.so.2.9.0.  No library
 * is loaded for it: libfabric alone needs 0.2 s.  The first one in the loader's order counts. */
static void version(char *to, size_t n, const char *file, const char *const *patterns)
{
    const char *library_path = getenv("LD_LIBRARY_PATH");
    char *found = NULL, *copy = tern_strdup(library_path ? library_path : ""), *save = NULL;

    for (char *dir = strtok_r(copy, ":", &save); dir && !found; dir = strtok_r(NULL, ":", &save)) {
        char *path = tern_strf("%s/%s", dir, file);
        found = realpath(path, NULL);
        free(path);
    }
    for (size_t i = 0; !found && patterns[i]; i++) {
        char *path = tern_strf("%s/%s", patterns[i], file);
        glob_t g;
        if (glob(path, 0, NULL, &g) == 0)
            found = realpath(g.gl_pathv[0], NULL);
        globfree(&g);
        free(path);
    }
    const char *base = found ? strrchr(found, '/') : NULL, *so = base ? strstr(base, ".so.") : NULL;
    const char *dash = base ? strstr(base, "-r") : NULL; /* libopenblasp-r0.3.21.so */
    snprintf(to, n, "%s", so ? so + 4 : dash ? dash + 2 : base ? base + 1 : "none");
    if (tern_str_ends(to, ".so"))
        to[strlen(to) - 3] = '\0';
    free(found);
    free(copy);
}

/* The trainer beside this program, else this program: 12 digits of its SHA-256. */
static void binary_digest(char to[13])
{
    uint8_t digest[TERN_SHA256_BYTES];
    char *exe = tern_fs_beside("tern-train"), hex[TERN_SHA256_HEX];

    snprintf(to, 13, "unreadable");
    if (tern_sha256_file(exe, digest, NULL) == 0 ||
        tern_sha256_file("/proc/self/exe", digest, NULL) == 0)
        snprintf(to, 13, "%.12s", tern_hex(hex, digest, sizeof digest));
    free(exe);
}

void tern_health_gather_software(const struct tern_health_probe *p, struct tern_health_facts *f)
{
    static const char *const usual[] = {"/opt/amazon/efa/lib*", "/usr/local/lib",
                                        "/usr/lib/*-linux-*", "/usr/lib64", NULL};
    static const char *const pmix_in[] = {"/usr/lib/*/pmix2/lib", "/usr/local/lib", "/opt/pmix/lib",
                                          "/usr/lib64", NULL};
    static const char *const blas_in[] = {"/usr/lib/*/openblas-openmp", "/usr/lib/*/openblas-*",
                                          "/usr/lib64", NULL};
    char tern[13], pmix[24], blas[24], fabric[24], driver[24], path[512];
    struct utsname u;

    if (p->options->unattended) /* nothing to compare with */
        return;
    if (uname(&u) < 0)
        snprintf(u.release, sizeof u.release, "unknown");
    binary_digest(tern);
    version(fabric, sizeof fabric, "libfabric.so.1", usual);
    version(pmix, sizeof pmix, "libpmix.so.2", pmix_in);
    version(blas, sizeof blas, "libopenblas.so.0", blas_in);
    if (tern_health_line(tern_health_path(p, path, "/sys/module/neuron/version"), driver,
                         sizeof driver) < 0)
        snprintf(driver, sizeof driver, "none");
    snprintf(f->software.same, sizeof f->software.same,
             "tern=%s libfabric=%s pmix=%s openblas=%s neuron=%s kernel=%.60s", tern, fabric, pmix,
             blas, driver, u.release);
}

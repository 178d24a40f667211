/* The facts of one machine. */
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/doctor/doctor.h"
#include "core/doctor/plugin.h"
#include "core/doctor/probe.h"
#include "core/wire/wire.h"
#include "core/site/site.h"
#include "core/tensor/tensor.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef void put_fn(void *arg, const char *key, const char *value);

__attribute__((format(printf, 4, 5))) static void say(put_fn *put, void *arg, const char *key,
                                                      const char *fmt, ...)
{
    char value[TERN_DOCTOR_VALUE];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    put(arg, key, value);
}

/* ------------------------------------------------------------------ software */

static int is_tern(const struct dirent *e)
{
    return strcmp(e->d_name, "tern") == 0 || tern_str_starts(e->d_name, "tern-");
}

/* One digest of all programs that lie beside this one. */
static void say_build(put_fn *put, void *arg)
{
    char hex[TERN_SHA256_HEX];
    uint8_t digest[TERN_SHA256_BYTES];
    struct dirent **list = NULL;
    char *folder = tern_fs_self_dir();
    bool all = true;

    if (!folder)
        return;
    int n = scandir(folder, &list, is_tern, alphasort);
    struct tern_sha256 *sum = tern_sha256_new();
    for (int i = 0; i < n; i++) {
        char *path = tern_fs_join(folder, list[i]->d_name);
        all = all && tern_sha256_file(path, digest, NULL) == 0;
        tern_sha256_add(sum, list[i]->d_name, strlen(list[i]->d_name) + 1);
        tern_sha256_add(sum, digest, sizeof digest);
        free(path);
        free(list[i]);
    }
    tern_sha256_end(sum, digest);
    tern_hex(hex, digest, sizeof digest);
    say(put, arg, "tern", "%.12s", n > 0 && all ? hex : "unreadable");
    free(list);
    free(folder);
}

static void say_plugin(const char *plugstack, put_fn *put, void *arg)
{
    struct tern_doctor_plugin p;
    uint8_t digest[TERN_SHA256_BYTES];
    char hex[TERN_SHA256_HEX], release[16];

    tern_doctor_plugin_find(plugstack, &p);
    say(put, arg, "plugstack", "%s", access(plugstack, R_OK) == 0 ? plugstack : "");
    say(put, arg, "plugin", "%s", p.file);
    if (!p.file[0])
        return;
    say(put, arg, "plugin-line", "%s", p.where);
    if (p.required)
        say(put, arg, "plugin-required", "%s", p.where);
    if (p.health_prolog)
        say(put, arg, "plugin-health", "prolog");
    tern_doctor_plugin_release(p.file, release);
    say(put, arg, "plugin-release", "%s", release);
    if (release[0] && tern_sha256_file(p.file, digest, NULL) == 0)
        say(put, arg, "plugin-build", "%.12s", tern_hex(hex, digest, sizeof digest));
    if (p.tern[0] && access(p.tern, X_OK) < 0)
        say(put, arg, "plugin-tern", "%s: %s", p.tern, strerror(errno));
}

static void say_pmix(const char *plugin_dir, put_fn *put, void *arg)
{
    struct tern_buf b = {.max = 400};
    DIR *d = opendir(plugin_dir);

    for (struct dirent *e; d && (e = readdir(d));)
        if (tern_str_starts(e->d_name, "mpi_pmix") && tern_str_ends(e->d_name, ".so"))
            tern_buf_printf(&b, "%s%s", b.len ? " " : "", e->d_name);
    if (d)
        closedir(d);
    say(put, arg, "pmix", "%s", b.data ? b.data : "");
    tern_buf_free(&b);
}

static void say_software(put_fn *put, void *arg)
{
    char about[200];
    struct tern_err err = {0};

    if (tern_wire_provider(NULL, about, sizeof about, &err) == 0)
        say(put, arg, "fabric", "%s", about);
    else
        say(put, arg, "fabric-error", "%s", err.text);
    if (tern_tensor_start(1, 1, &err) == 0)
        say(put, arg, "blas", "%s, %s kernels; tern's own: %s", tern_tensor_blas(),
            tern_tensor_core(), tern_tensor_kernels());
    else
        say(put, arg, "blas-error", "%s", err.text);
    if (getenv("OPENBLAS_CORETYPE"))
        say(put, arg, "coretype", "%.60s", getenv("OPENBLAS_CORETYPE"));
}

/* ------------------------------------------------------------------ surroundings */

static void say_limit(const char *key, int which, put_fn *put, void *arg)
{
    struct rlimit r;

    if (getrlimit(which, &r) < 0)
        return;
    if (r.rlim_cur == RLIM_INFINITY)
        say(put, arg, key, "unlimited");
    else
        say(put, arg, key, "%llu", (unsigned long long)r.rlim_cur);
}

static void say_site(put_fn *put, void *arg)
{
    uint8_t digest[TERN_SHA256_BYTES];
    char hex[TERN_SHA256_HEX];
    struct tern_err err = {0};
    struct tern_site *s = tern_site_load(NULL, &err);

    if (!s)
        say(put, arg, "site-error", "%s", err.text);
    else if (!s->present)
        say(put, arg, "site", "none");
    else if (tern_sha256_file(s->path, digest, NULL) == 0)
        say(put, arg, "site", "%s %.12s", s->path, tern_hex(hex, digest, sizeof digest));
    tern_site_free(s);
}

/* TmpFS may hold %n, the node's name, and %h, its host's. */
static char *expand(const char *path)
{
    const char *node = getenv("SLURMD_NODENAME");
    char host[65] = "";
    struct tern_buf b = {.max = 4096};

    gethostname(host, sizeof host - 1);
    for (const char *s = path; *s; s++) {
        bool name = s[0] == '%' && (s[1] == 'n' || s[1] == 'h');
        if (name)
            tern_buf_puts(&b, *++s == 'n' && node ? node : host);
        else
            tern_buf_add(&b, s, 1);
    }
    char *whole = tern_strdup(b.data ? b.data : "");
    tern_buf_free(&b);
    return whole;
}

static void say_tmp(const char *pattern, put_fn *put, void *arg)
{
    struct stat st;
    char *tmp = expand(pattern);

    if (stat(tmp, &st) < 0)
        say(put, arg, "tmp-error", "%s: %s", tmp, strerror(errno));
    else if (!S_ISDIR(st.st_mode) || access(tmp, W_OK | X_OK) < 0)
        say(put, arg, "tmp-error", "%s: is no folder that jobs may write", tmp);
    free(tmp);
}

static void say_devices(put_fn *put, void *arg)
{
    DIR *d = opendir("/sys/class/infiniband");
    int n = 0;

    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    say(put, arg, "rdma-devices", "%d", n);
}

void tern_doctor_gather(const struct tern_doctor_gather_options *o, put_fn *put, void *arg)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    say(put, arg, "clock", "%.3f", (double)now.tv_sec + (double)now.tv_nsec / 1e9);
    if (o->probe) /* early: others wait for this node's part */
        tern_doctor_probe_node(o->probe, put, arg);
    say_build(put, arg);
    if (o->plugstack)
        say_plugin(o->plugstack, put, arg);
    if (o->plugin_dir)
        say_pmix(o->plugin_dir, put, arg);
    if (o->tmp_fs)
        say_tmp(o->tmp_fs, put, arg);
    say_site(put, arg);
    say_limit("memlock", RLIMIT_MEMLOCK, put, arg);
    say_limit("nofile", RLIMIT_NOFILE, put, arg);
    say_devices(put, arg);
    say_software(put, arg);
    put(arg, "done", "1");
}

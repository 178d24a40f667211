/* Facts of the machine's parts: Neuron devices, EFA, network links, memory, limits.
 *
 * Sources: the Neuron SDK's sysfs user guide and nrt-troubleshoot (counters, NEURON_HW_ERR lines);
 * the kernel's Documentation/ABI for class/net and class/infiniband. */
#include "core/base/str.h"
#include "core/health/probe.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------ Neuron */

/* "neuron12" -> 12; -1 for other names. */
static int device_number(const char *name)
{
    int64_t n;

    if (!tern_str_starts(name, "neuron") || tern_str_int(name + 6, 0, 1023, &n) < 0)
        return -1;
    return (int)n;
}

void tern_health_gather_neuron(const struct tern_health_probe *p, struct tern_health_facts *f)
{
    char path[512];
    DIR *d = opendir(tern_health_path(p, path, "/dev"));

    for (struct dirent *e; d && (e = readdir(d));) {
        char one[800];
        if (device_number(e->d_name) < 0)
            continue;
        f->neuron.n++;
        snprintf(one, sizeof one, "%s/%s", path, e->d_name);
        bool may = access(one, R_OK | W_OK) == 0;
        f->neuron.hidden += !may && errno == EPERM; /* by the cgroup; the file's mode says EACCES */
        f->neuron.mute += !may && errno != EPERM;
    }
    if (d)
        closedir(d);
}

const struct tern_health_counter_kind tern_health_counters[] = {
    {"sram_ecc_uncorrected", "Stop and start the instance, or replace it."},
    {"mem_ecc_uncorrected", "Replace the instance: this memory cannot be repaired."},
    {"mem_ecc_repairable_uncorrected", "Reload the Neuron driver or reboot: that repairs it."},
    {NULL, NULL},
};

/* -1: not there; -2: may not be read. */
static int64_t counter(const char *dir, const char *file)
{
    char path[900];

    snprintf(path, sizeof path, "%s/stats/hardware/%s", dir, file);
    struct stat st;
    if (stat(path, &st) < 0)
        return errno == EACCES ? -2 : -1;
    if (S_ISDIR(st.st_mode)) /* newer drivers: total and present */
        snprintf(path, sizeof path, "%s/stats/hardware/%s/total", dir, file);
    int64_t v = tern_health_number(path);
    return v < 0 && errno == EACCES ? -2 : v;
}

static void gather_counters(const char *dir, const char *device, struct tern_health_facts *f)
{
    for (int i = 0; tern_health_counters[i].file; i++) {
        int64_t v = counter(dir, tern_health_counters[i].file);
        f->ecc.n_read += v >= 0;
        f->ecc.n_unreadable += v == -2;
        if (v <= 0 || f->ecc.n_bad == TERN_HEALTH_MAX_COUNTERS)
            continue;
        struct tern_health_counter *bad = &f->ecc.bad[f->ecc.n_bad++];
        *bad = (struct tern_health_counter){.which = i, .value = v};
        snprintf(bad->device, sizeof bad->device, "%.31s", device);
    }
}

void tern_health_gather_ecc(const struct tern_health_probe *p, struct tern_health_facts *f)
{
    char path[512];
    DIR *d = opendir(tern_health_path(p, path, "/sys/devices/virtual/neuron_device"));

    for (struct dirent *e; d && (e = readdir(d));) {
        char dir[800];
        if (device_number(e->d_name) < 0)
            continue;
        snprintf(dir, sizeof dir, "%s/%s", path, e->d_name);
        gather_counters(dir, e->d_name, f);
    }
    if (d)
        closedir(d);
}

/* The driver's line in a record of /dev/kmsg ("PRIORITY,NUMBER,TIME,FLAGS;TEXT"), or NULL.  Other
 * lines hold text that users choose, such as the names of their programs.  So only a line that
 * looks like the driver's from its first byte counts. */
static const char *hardware_error(const char *record)
{
    static const char begins[] = "NEURON_HW_ERR=";
    const char *text = strchr(record, ';');

    if (!text || !tern_str_starts(text + 1, begins))
        return NULL;
    const char *kind = text + sizeof begins;
    size_t n = strspn(kind, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
    return n >= 2 && (tern_str_starts(kind + n, " instance-id=") ||
                      tern_str_starts(kind + n, " nd-id="))
               ? text + 1
               : NULL;
}

void tern_health_gather_kernel(const struct tern_health_probe *p, struct tern_health_facts *f)
{
    enum { RECORDS = 200000 }; /* the ring buffer holds fewer */
    char path[512], record[8192];
    int fd = open(tern_health_path(p, path, "/dev/kmsg"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0) {
        f->kernel.error = errno;
        return;
    }
    for (int i = 0; i < RECORDS; i++) {
        ssize_t n = read(fd, record, sizeof record - 1);
        if (n < 0 && errno == EPIPE) /* overwritten meanwhile: the next one */
            continue;
        if (n <= 0)
            break;
        record[n] = '\0';
        const char *at = hardware_error(record);
        f->kernel.n += at != NULL;
        if (at)
            snprintf(f->kernel.last, sizeof f->kernel.last, "%.*s", (int)strcspn(at, "\n"), at);
    }
    close(fd);
}

/* ------------------------------------------------------------------ EFA and links */

static bool is_efa(const char *class, const char *name)
{
    char path[800], target[256];

    snprintf(path, sizeof path, "%s/%s/device/driver", class, name);
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n > 0) {
        target[n] = '\0';
        return tern_str_ends(target, "/efa");
    }
    return tern_str_starts(name, "efa") || tern_str_starts(name, "rdmap");
}

void tern_health_gather_efa(const struct tern_health_probe *p, struct tern_health_facts *f)
{
    char path[512];
    DIR *d = opendir(tern_health_path(p, path, "/sys/class/infiniband"));

    for (struct dirent *e; d && (e = readdir(d));) {
        char state[800], line[64];
        if (e->d_name[0] == '.' || !is_efa(path, e->d_name))
            continue;
        f->efa.n++;
        snprintf(state, sizeof state, "%s/%s/ports/1/state", path, e->d_name);
        if (tern_health_line(state, line, sizeof line) == 0 && strstr(line, "ACTIVE"))
            f->efa.up++;
        else
            snprintf(f->efa.down, sizeof f->efa.down, "%.190s", e->d_name);
    }
    if (d)
        closedir(d);
}

/* Switched on and used: packets are routed through it.  An unused port without a cable may well be
 * up. */
static bool in_use(const struct tern_health_probe *p, const char *class, const char *name)
{
    char path[800], line[256];
    size_t n = strlen(name);
    bool routed = false;

    snprintf(path, sizeof path, "%s/%s/flags", class, name);
    if (tern_health_line(path, line, sizeof line) < 0 || !(strtol(line, NULL, 0) & IFF_UP))
        return false;
    FILE *f = fopen(tern_health_path(p, path, "/proc/net/route"), "re");
    while (f && !routed && fgets(line, sizeof line, f))
        routed = strncmp(line, name, n) == 0 && isspace((unsigned char)line[n]);
    if (f)
        fclose(f);
    return routed;
}

/* A bridge among the machine's own containers or guests has no link while none of them runs. */
static bool inner_bridge(const char *class, const char *name)
{
    char path[800];

    snprintf(path, sizeof path, "%s/%s/bridge", class, name);
    return access(path, F_OK) == 0 || tern_str_starts(name, "docker") ||
           tern_str_starts(name, "virbr");
}

void tern_health_gather_nic(const struct tern_health_probe *p, struct tern_health_facts *f)
{
    char path[512];
    DIR *d = opendir(tern_health_path(p, path, "/sys/class/net"));

    for (struct dirent *e; d && (e = readdir(d));) {
        char file[800], line[32] = "";
        if (e->d_name[0] == '.' || strcmp(e->d_name, "lo") == 0 || inner_bridge(path, e->d_name) ||
            !in_use(p, path, e->d_name))
            continue;
        f->nic.n++;
        snprintf(file, sizeof file, "%s/%s/carrier", path, e->d_name);
        bool up = tern_health_number(file) == 1;
        snprintf(file, sizeof file, "%s/%s/operstate", path, e->d_name);
        if (up && tern_health_line(file, line, sizeof line) == 0)
            up = strcmp(line, "up") == 0 || strcmp(line, "unknown") == 0;
        f->nic.up += up;
        if (!up)
            snprintf(f->nic.down, sizeof f->nic.down, "%.63s", e->d_name);
    }
    if (d)
        closedir(d);
}

/* ------------------------------------------------------------------ memory and limits */

/* A line of /proc/meminfo in kB (or a count); -1 without it. */
static int64_t meminfo(const struct tern_health_probe *p, const char *key)
{
    char path[512], line[128];
    FILE *f = fopen(tern_health_path(p, path, "/proc/meminfo"), "re");
    int64_t v = -1;

    while (f && v < 0 && fgets(line, sizeof line, f))
        if (tern_str_starts(line, key) && line[strlen(key)] == ':')
            v = strtoll(line + strlen(key) + 1, NULL, 10);
    if (f)
        fclose(f);
    return v;
}

void tern_health_gather_memory(const struct tern_health_probe *p, struct tern_health_facts *f)
{
    f->memory.total_kib = meminfo(p, "MemTotal");
    f->memory.free_kib = meminfo(p, "MemAvailable");
    f->memory.hugepages = meminfo(p, "HugePages_Total");
}

void tern_health_gather_limits(const struct tern_health_probe *p, struct tern_health_facts *f)
{
    struct rlimit lock, files;

    (void)p;
    if (getrlimit(RLIMIT_MEMLOCK, &lock) < 0 || getrlimit(RLIMIT_NOFILE, &files) < 0) {
        f->limits.error = errno;
        return;
    }
    f->limits.memlock = lock.rlim_max; /* RLIM_INFINITY is the largest */
    f->limits.memlock_soft = lock.rlim_cur;
    f->limits.nofile = files.rlim_max;
}

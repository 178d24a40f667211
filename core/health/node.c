/* The machine's parts: Neuron devices, EFA, network links, memory, limits.
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

void tern_health_check_neuron(struct tern_health_probe *p)
{
    char path[512];
    DIR *d = opendir(tern_health_path(p, path, "/dev"));
    int n = 0, mute = 0, hidden = 0;
    int64_t want = p->want->has.neuron;

    for (struct dirent *e; d && (e = readdir(d));) {
        char one[800];
        if (device_number(e->d_name) < 0)
            continue;
        n++;
        snprintf(one, sizeof one, "%s/%s", path, e->d_name);
        bool may = access(one, R_OK | W_OK) == 0;
        hidden += !may && errno == EPERM; /* by the job's cgroup; the file's mode says EACCES */
        mute += !may && errno != EPERM;
    }
    if (d)
        closedir(d);
    if (p->want->plain)
        tern_health_say(p, TERN_HEALTH_SKIPPED, "", n, "devices",
                        "a virtual node in plain mode has no /dev of its own");
    else if (want < 0 && n == 0)
        tern_health_say(p, TERN_HEALTH_SKIPPED, "", 0, "devices",
                        "no Neuron device, and none is expected");
    else if (want >= 0 && n < want)
        tern_health_say(p, TERN_HEALTH_NODE_BAD, "", n, "devices",
                        "%d of %lld Neuron devices are there%s. Is the driver loaded (modprobe "
                        "neuron)? Else stop and start the instance, or replace it.",
                        n, (long long)want, n ? "" : " (/dev/neuron*)");
    else if (mute)
        tern_health_say(p, TERN_HEALTH_NODE_BAD, "", n - mute, "devices",
                        "%d of %d Neuron devices may not be opened by this user. See the udev rule "
                        "of aws-neuronx-dkms.",
                        mute, n);
    else if (hidden)
        tern_health_say(p, TERN_HEALTH_UNKNOWN, "", n - hidden, "devices",
                        "%d of %d Neuron devices are not this job's to open (ConstrainDevices). "
                        "Ask for all of them (--gres) to have them checked.",
                        hidden, n);
    else
        tern_health_say(p, TERN_HEALTH_OK, "", n, "devices", "%d Neuron device%s%s", n,
                        n == 1 ? "" : "s",
                        want < 0 ? "; --expect neuron=N tells how many there should be" : "");
}

static const struct {
    const char *file, *remedy;
} counters[] = {
    {"sram_ecc_uncorrected", "Stop and start the instance, or replace it."},
    {"mem_ecc_uncorrected", "Replace the instance: this memory cannot be repaired."},
    {"mem_ecc_repairable_uncorrected", "Reload the Neuron driver or reboot: that repairs it."},
};
enum { N_COUNTERS = sizeof counters / sizeof *counters };

/* -1: not there; -2: may not be read. */
static int64_t counter(const char *dir, const char *file)
{
    char path[900];

    snprintf(path, sizeof path, "%s/stats/hardware/%s", dir, file);
    struct stat st;
    if (stat(path, &st) < 0)
        return errno == EACCES ? -2 : -1;
    if (S_ISDIR(st.st_mode)) /* newer drivers: total and present */
        strcat(path, "/total");
    int64_t v = tern_health_number(path);
    return v < 0 && errno == EACCES ? -2 : v;
}

void tern_health_check_ecc(struct tern_health_probe *p)
{
    char path[512];
    DIR *d = opendir(tern_health_path(p, path, "/sys/devices/virtual/neuron_device"));
    int read_ok = 0, mute = 0, bad = 0;

    for (struct dirent *e; d && (e = readdir(d));) {
        char dir[800];
        if (device_number(e->d_name) < 0)
            continue;
        snprintf(dir, sizeof dir, "%s/%s", path, e->d_name);
        for (int i = 0; i < N_COUNTERS; i++) {
            int64_t v = counter(dir, counters[i].file);
            read_ok += v >= 0;
            mute += v == -2;
            if (v <= 0)
                continue;
            bad++;
            tern_health_say(p, TERN_HEALTH_NODE_BAD, e->d_name, (double)v, "errors",
                            "%s: %s is %lld. %s", e->d_name, counters[i].file, (long long)v,
                            counters[i].remedy);
        }
    }
    if (d)
        closedir(d);
    if (bad)
        return;
    if (read_ok)
        tern_health_say(p, TERN_HEALTH_OK, "", 0, "errors", "%d counters at 0", read_ok);
    else if (mute)
        tern_health_say(p, TERN_HEALTH_UNKNOWN, "", 0, "",
                        "the Neuron driver's counters may be read by root alone. Let slurmd run "
                        "this as HealthCheckProgram.");
    else
        tern_health_say(p, TERN_HEALTH_SKIPPED, "", 0, "", "no Neuron driver's counters here");
}

/* The driver's line in a record of /dev/kmsg ("PRIORITY,NUMBER,TIME,FLAGS;TEXT"), or NULL.  Other
 * lines hold words that users choose, the names of their programs for one: only what stands as the
 * driver prints it counts, from the text's first byte. */
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

void tern_health_check_kernel(struct tern_health_probe *p)
{
    enum { RECORDS = 200000 }; /* the ring buffer holds fewer */
    char path[512], record[8192], last[300] = "";
    int fd = open(tern_health_path(p, path, "/dev/kmsg"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int found = 0;

    if (fd < 0) {
        bool may = errno != EACCES && errno != EPERM;
        tern_health_say(p, TERN_HEALTH_SKIPPED, "", 0, "", "%s",
                        may ? "there is no kernel log here"
                            : "root alone may read the kernel's log");
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
        found += at != NULL;
        if (at)
            snprintf(last, sizeof last, "%.*s", (int)strcspn(at, "\n"), at);
    }
    close(fd);
    if (found)
        tern_health_say(p, TERN_HEALTH_NODE_BAD, "", found, "errors",
                        "the kernel's log has %s. Replace the instance.", last);
    else
        tern_health_say(p, TERN_HEALTH_OK, "", 0, "errors", "no NEURON_HW_ERR");
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

void tern_health_check_efa(struct tern_health_probe *p)
{
    char path[512];
    DIR *d = opendir(tern_health_path(p, path, "/sys/class/infiniband"));
    int n = 0, up = 0;
    char down[200] = "";
    int64_t want = p->want->has.efa;

    for (struct dirent *e; d && (e = readdir(d));) {
        char state[800], line[64];
        if (e->d_name[0] == '.' || !is_efa(path, e->d_name))
            continue;
        n++;
        snprintf(state, sizeof state, "%s/%s/ports/1/state", path, e->d_name);
        if (tern_health_line(state, line, sizeof line) == 0 && strstr(line, "ACTIVE"))
            up++;
        else
            snprintf(down, sizeof down, "%.190s", e->d_name);
    }
    if (d)
        closedir(d);
    if (p->want->virtual_node)
        tern_health_say(p, TERN_HEALTH_SKIPPED, "", n, "devices", "a virtual node has no EFA");
    else if (want <= 0 && n == 0)
        tern_health_say(p, TERN_HEALTH_SKIPPED, "", 0, "devices",
                        "no EFA device, and none is expected");
    else if (want > 0 && n < want)
        tern_health_say(
            p, TERN_HEALTH_NODE_BAD, "", n, "devices",
            "%d of %lld EFA devices are there. Is the driver loaded (modprobe efa), and "
            "does the launch template give every network card an EFA interface?",
            n, (long long)want);
    else if (up < n)
        tern_health_say(p, TERN_HEALTH_NODE_BAD, down, up, "devices",
                        "%d of %d EFA devices are active; %s is not. Stop and start the instance.",
                        up, n, down);
    else
        tern_health_say(p, TERN_HEALTH_OK, "", n, "devices", "%d EFA device%s active%s", n,
                        n == 1 ? "" : "s",
                        want <= 0 ? "; --expect efa=N tells how many there should be" : "");
}

/* Switched on and used: packets are routed through it.  A port without a cable that nobody uses may
 * well be up. */
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

void tern_health_check_nic(struct tern_health_probe *p)
{
    char path[512], down[64] = "";
    DIR *d = opendir(tern_health_path(p, path, "/sys/class/net"));
    int on = 0, n = 0;

    for (struct dirent *e; d && (e = readdir(d));) {
        char file[800], line[32] = "";
        if (e->d_name[0] == '.' || strcmp(e->d_name, "lo") == 0 || inner_bridge(path, e->d_name) ||
            !in_use(p, path, e->d_name))
            continue;
        n++;
        snprintf(file, sizeof file, "%s/%s/carrier", path, e->d_name);
        bool up = tern_health_number(file) == 1;
        snprintf(file, sizeof file, "%s/%s/operstate", path, e->d_name);
        if (up && tern_health_line(file, line, sizeof line) == 0)
            up = strcmp(line, "up") == 0 || strcmp(line, "unknown") == 0;
        on += up;
        if (!up)
            snprintf(down, sizeof down, "%.63s", e->d_name);
    }
    if (d)
        closedir(d);
    if (n == 0)
        tern_health_say(p, TERN_HEALTH_SKIPPED, "", 0, "links", "no network link is in use");
    else if (on < n)
        tern_health_say(p, TERN_HEALTH_NODE_BAD, down, on, "links",
                        "%s is in use and has no link. Look at its cable or port; on EC2 stop and "
                        "start the instance.",
                        down);
    else
        tern_health_say(p, TERN_HEALTH_OK, "", on, "links", "%d link%s up", on, on == 1 ? "" : "s");
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

void tern_health_check_memory(struct tern_health_probe *p)
{
    int64_t total = meminfo(p, "MemTotal"), free_now = meminfo(p, "MemAvailable");
    int64_t want = p->want->has.memory_mib;

    if (total < 0 || free_now < 0) {
        tern_health_say(p, TERN_HEALTH_UNKNOWN, "", 0, "", "/proc/meminfo cannot be read");
        return;
    }
    total >>= 10;
    free_now >>= 10;
    if (p->want->virtual_node || want < 0)
        want = total;
    if (total < want)
        tern_health_say(p, TERN_HEALTH_NODE_BAD, "", (double)total, "MiB",
                        "%lld MiB of memory, and Slurm believes %lld (RealMemory): a module may "
                        "have failed. Replace the node, or mend RealMemory.",
                        (long long)total, (long long)want);
    else if (free_now < want / 10)
        tern_health_say(p, p->options->unattended ? TERN_HEALTH_UNKNOWN : TERN_HEALTH_NODE_BAD, "",
                        (double)free_now, "MiB",
                        "%lld of %lld MiB of memory are free. Leftover processes or files in "
                        "/dev/shm?",
                        (long long)free_now, (long long)want);
    else if (free_now < want / 2 && !p->options->unattended)
        tern_health_warn(p, "", (double)free_now, "MiB", "%lld of %lld MiB of memory are free",
                         (long long)free_now, (long long)want);
    else
        tern_health_say(p, TERN_HEALTH_OK, "", (double)free_now, "MiB",
                        "%lld of %lld MiB of memory are free", (long long)free_now,
                        (long long)want);
}

void tern_health_check_hugepages(struct tern_health_probe *p)
{
    int64_t n = meminfo(p, "HugePages_Total"), want = p->want->has.hugepages;

    if (want < 0)
        tern_health_say(p, TERN_HEALTH_SKIPPED, "", (double)(n < 0 ? 0 : n), "pages",
                        "no number is expected (--expect hugepages=N)");
    else if (n < want)
        tern_health_say(p, TERN_HEALTH_NODE_BAD, "", (double)n, "pages",
                        "%lld of %lld huge pages. Set vm.nr_hugepages (sysctl); after long uptime "
                        "only a reboot finds so much memory in one piece.",
                        (long long)n, (long long)want);
    else
        tern_health_say(p, TERN_HEALTH_OK, "", (double)n, "pages", "%lld huge pages", (long long)n);
}

void tern_health_check_limits(struct tern_health_probe *p)
{
    struct rlimit lock, files;
    bool pinned = !p->want->virtual_node && (p->want->has.efa > 0 || p->want->has.neuron > 0);
    const rlim_t enough = UINT64_C(16) << 30; /* EFA registers what it sends; its checks ask this */

    if (getrlimit(RLIMIT_MEMLOCK, &lock) < 0 || getrlimit(RLIMIT_NOFILE, &files) < 0) {
        tern_health_say(p, TERN_HEALTH_UNKNOWN, "", 0, "", "getrlimit: %s", strerror(errno));
        return;
    }
    if (pinned && lock.rlim_max < enough) /* RLIM_INFINITY is the largest */
        tern_health_say(
            p, TERN_HEALTH_NODE_BAD, "memlock", (double)(lock.rlim_max >> 20), "MiB",
            "%llu MiB may be locked and EFA needs unlimited. Set LimitMEMLOCK=infinity "
            "in slurmd.service and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf.",
            (unsigned long long)lock.rlim_max >> 20);
    else if (files.rlim_max < 4096)
        tern_health_say(p, TERN_HEALTH_NODE_BAD, "nofile", (double)files.rlim_max, "files",
                        "%llu open files at most, and 4096 are needed. Set LimitNOFILE in "
                        "slurmd.service.",
                        (unsigned long long)files.rlim_max);
    else if (pinned && lock.rlim_cur < enough)
        /* Slurm took it over from the shell that submitted: no fault of the node's. */
        tern_health_say(p, TERN_HEALTH_UNKNOWN, "memlock", (double)(lock.rlim_cur >> 20), "MiB",
                        "%llu MiB may be locked by the job's own soft limit, and EFA needs "
                        "unlimited. Say `ulimit -l unlimited` before sbatch.",
                        (unsigned long long)lock.rlim_cur >> 20);
    else
        tern_health_say(p, TERN_HEALTH_OK, "", 0, "", "memlock and nofile suffice");
}

/* The table of checks of a node: from the facts of each to its rows. */
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/health/probe.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const enum tern_health_verdict OK = TERN_HEALTH_OK, SKIPPED = TERN_HEALTH_SKIPPED,
                                      UNKNOWN = TERN_HEALTH_UNKNOWN,
                                      NODE_BAD = TERN_HEALTH_NODE_BAD,
                                      STORAGE_BAD = TERN_HEALTH_STORAGE_BAD;

static const struct tern_health_facts *facts(const struct tern_rules_case *c)
{
    return c->facts;
}

static const struct tern_health_expected *expected(const struct tern_rules_case *c)
{
    return ((const struct tern_health_probe *)c->to)->expected;
}

static bool unattended(const struct tern_rules_case *c)
{
    return ((const struct tern_health_probe *)c->to)->options->unattended;
}

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* ------------------------------------------------------------------ Neuron */

static void rule_neuron(struct tern_rules_case *c)
{
    const int n = facts(c)->neuron.n, mute = facts(c)->neuron.mute;
    const int hidden = facts(c)->neuron.hidden;
    const int64_t needed = expected(c)->has.neuron;
    static const char unit[] = "devices";

    if (expected(c)->plain)
        tern_health_report(c->to, SKIPPED, "", n, unit,
                           "a virtual node in plain mode has no /dev of its own");
    else if (needed < 0 && n == 0)
        tern_health_report(c->to, SKIPPED, "", 0, unit, "no Neuron device, and none is expected");
    else if (needed >= 0 && n < needed)
        tern_health_report(c->to, NODE_BAD, "", n, unit,
                           "%d of %lld Neuron devices are there%s. Is the driver loaded (modprobe "
                           "neuron)? Else stop and start the instance, or replace it.",
                           n, (long long)needed, n ? "" : " (/dev/neuron*)");
    else if (mute)
        tern_health_report(
            c->to, NODE_BAD, "", n - mute, unit,
            "%d of %d Neuron devices may not be opened by this user. See the udev rule "
            "of aws-neuronx-dkms.",
            mute, n);
    else if (hidden)
        tern_health_report(
            c->to, UNKNOWN, "", n - hidden, unit,
            "%d of %d Neuron devices are not allocated to this job (ConstrainDevices). "
            "Ask for all of them (--gres) to have them checked.",
            hidden, n);
    else
        tern_health_report(c->to, OK, "", n, unit, "%d Neuron device%s%s", n, plural(n),
                           needed < 0 ? "; --expect neuron=N sets the expected number" : "");
}

static void rule_ecc(struct tern_rules_case *c)
{
    for (int i = 0; i < facts(c)->ecc.n_bad; i++) {
        const struct tern_health_counter *bad = &facts(c)->ecc.bad[i];
        const struct tern_health_counter_kind *kind = &tern_health_counters[bad->which];
        tern_health_report(c->to, NODE_BAD, bad->device, (double)bad->value, "errors",
                           "%s: %s is %lld. %s", bad->device, kind->file, (long long)bad->value,
                           kind->remedy);
    }
    if (facts(c)->ecc.n_bad)
        return;
    if (facts(c)->ecc.n_read)
        tern_health_report(c->to, OK, "", 0, "errors", "%d counters at 0", facts(c)->ecc.n_read);
    else if (facts(c)->ecc.n_unreadable)
        tern_health_report_only(
            c->to, UNKNOWN,
            "the Neuron driver's counters may be read by root alone. Let slurmd run "
            "this as HealthCheckProgram.");
    else
        tern_health_report_only(c->to, SKIPPED, "no Neuron driver's counters here");
}

static void rule_kernel(struct tern_rules_case *c)
{
    const int e = facts(c)->kernel.error;

    if (e)
        tern_health_report_only(c->to, SKIPPED, "%s",
                                e == EACCES || e == EPERM ? "root alone may read the kernel's log"
                                                          : "there is no kernel log here");
    else if (facts(c)->kernel.n)
        tern_health_report(c->to, NODE_BAD, "", facts(c)->kernel.n, "errors",
                           "the kernel's log has %s. Replace the instance.", facts(c)->kernel.last);
    else
        tern_health_report(c->to, OK, "", 0, "errors", "no NEURON_HW_ERR");
}

/* ------------------------------------------------------------------ EFA and links */

static void rule_efa(struct tern_rules_case *c)
{
    const int n = facts(c)->efa.n, up = facts(c)->efa.up;
    const char *down = facts(c)->efa.down;
    const int64_t needed = expected(c)->has.efa;
    static const char unit[] = "devices";

    if (expected(c)->virtual_node)
        tern_health_report(c->to, SKIPPED, "", n, unit, "a virtual node has no EFA");
    else if (needed <= 0 && n == 0)
        tern_health_report(c->to, SKIPPED, "", 0, unit, "no EFA device, and none is expected");
    else if (needed > 0 && n < needed)
        tern_health_report(c->to, NODE_BAD, "", n, unit,
                           "%d of %lld EFA devices are there. Is the driver loaded (modprobe efa), "
                           "and does the launch template give every network card an EFA interface?",
                           n, (long long)needed);
    else if (up < n)
        tern_health_report(
            c->to, NODE_BAD, down, up, unit,
            "%d of %d EFA devices are active; %s is not. Stop and start the instance.", up, n,
            down);
    else
        tern_health_report(c->to, OK, "", n, unit, "%d EFA device%s active%s", n, plural(n),
                           needed <= 0 ? "; --expect efa=N sets the expected number" : "");
}

static void rule_nic(struct tern_rules_case *c)
{
    const int n = facts(c)->nic.n, up = facts(c)->nic.up;
    const char *down = facts(c)->nic.down;

    if (n == 0)
        tern_health_report(c->to, SKIPPED, "", 0, "links", "no network link is in use");
    else if (up < n)
        tern_health_report(
            c->to, NODE_BAD, down, up, "links",
            "%s is in use and has no link. Look at its cable or port; on EC2 stop and "
            "start the instance.",
            down);
    else
        tern_health_report(c->to, OK, "", up, "links", "%d link%s up", up, plural(up));
}

/* Rows of tern-link, which has the verdicts: it talks to the other nodes. */
/* The rows themselves were reported as they came (relay.c). */
static void rule_relayed(struct tern_rules_case *c)
{
    if (facts(c)->relayed.n == 0)
        tern_health_report_only(c->to, UNKNOWN,
                                "tern-link, beside this program, %s. Was tern installed whole?",
                                facts(c)->relayed.started ? "said nothing" : "cannot be started");
}

static void rule_provider(struct tern_rules_case *c)
{
    const char *name = tern_var("TERN_FABRIC_PROVIDER");

    if (unattended(c))
        tern_health_report_only(c->to, SKIPPED, "a job chooses the provider");
    else if (!name || strcmp(name, "tcp") == 0)
        tern_health_report_only(c->to, OK, "tcp, a part of every libfabric");
    else
        rule_relayed(c);
}

/* ------------------------------------------------------------------ memory and limits */

static void rule_memory(struct tern_rules_case *c)
{
    const long long total = facts(c)->memory.total_kib >> 10;
    const long long free_now = facts(c)->memory.free_kib >> 10;
    long long needed = expected(c)->has.memory_mib;

    if (facts(c)->memory.total_kib < 0 || facts(c)->memory.free_kib < 0) {
        tern_health_report_only(c->to, UNKNOWN, "/proc/meminfo cannot be read");
        return;
    }
    if (expected(c)->virtual_node || needed < 0)
        needed = total;
    if (total < needed)
        tern_health_report(c->to, NODE_BAD, "", (double)total, "MiB",
                           "%lld MiB of memory, and Slurm believes %lld (RealMemory): a module may "
                           "have failed. Replace the node, or fix RealMemory.",
                           total, needed);
    else if (free_now < needed / 10)
        tern_health_report(c->to, unattended(c) ? UNKNOWN : NODE_BAD, "", (double)free_now, "MiB",
                           "%lld of %lld MiB of memory are free. Leftover processes or files in "
                           "/dev/shm?",
                           free_now, needed);
    else if (free_now < needed / 2 && !unattended(c))
        tern_health_warn(c->to, "", (double)free_now, "MiB", "%lld of %lld MiB of memory are free",
                         free_now, needed);
    else
        tern_health_report(c->to, OK, "", (double)free_now, "MiB",
                           "%lld of %lld MiB of memory are free", free_now, needed);
}

static void rule_hugepages(struct tern_rules_case *c)
{
    const long long n = facts(c)->memory.hugepages, needed = expected(c)->has.hugepages;

    if (needed < 0)
        tern_health_report(c->to, SKIPPED, "", (double)(n < 0 ? 0 : n), "pages",
                           "no number is expected (--expect hugepages=N)");
    else if (n < needed)
        tern_health_report(
            c->to, NODE_BAD, "", (double)n, "pages",
            "%lld of %lld huge pages. Set vm.nr_hugepages (sysctl); after long uptime "
            "only a reboot finds so much memory in one piece.",
            n, needed);
    else
        tern_health_report(c->to, OK, "", (double)n, "pages", "%lld huge pages", n);
}

static void rule_limits(struct tern_rules_case *c)
{
    const uint64_t enough = UINT64_C(16)
                            << 30; /* EFA registers what it sends; its checks ask this */
    const struct tern_health_expected *e = expected(c);
    const uint64_t lock = facts(c)->limits.memlock, soft = facts(c)->limits.memlock_soft;
    const uint64_t files = facts(c)->limits.nofile;
    const bool pinned = !e->virtual_node && (e->has.efa > 0 || e->has.neuron > 0);

    if (facts(c)->limits.error)
        tern_health_report_only(c->to, UNKNOWN, "getrlimit: %s", strerror(facts(c)->limits.error));
    else if (pinned && lock < enough)
        tern_health_report(
            c->to, NODE_BAD, "memlock", (double)(lock >> 20), "MiB",
            "%llu MiB may be locked and EFA needs unlimited. Set LimitMEMLOCK=infinity "
            "in slurmd.service and PropagateResourceLimitsExcept=MEMLOCK in "
            "slurm.conf.",
            (unsigned long long)lock >> 20);
    else if (files < 4096)
        tern_health_report(c->to, NODE_BAD, "nofile", (double)files, "files",
                           "%llu open files at most, and 4096 are needed. Set LimitNOFILE in "
                           "slurmd.service.",
                           (unsigned long long)files);
    else if (pinned && soft < enough)
        /* Slurm took it over from the shell that submitted: no fault of the node's. */
        tern_health_report(c->to, UNKNOWN, "memlock", (double)(soft >> 20), "MiB",
                           "%llu MiB may be locked by the job's own soft limit, and EFA needs "
                           "unlimited. Say `ulimit -l unlimited` before sbatch.",
                           (unsigned long long)soft >> 20);
    else
        tern_health_report_only(c->to, OK, "memlock and nofile suffice");
}

/* ------------------------------------------------------------------ clock and software */

static void rule_clock(struct tern_rules_case *c)
{
    const double offset = facts(c)->clock.offset_ms, error = facts(c)->clock.error_ms;

    if (!((const struct tern_health_probe *)c->to)->options->collect)
        tern_health_report_only(c->to, SKIPPED, "compared between the nodes of a job");
    else if (facts(c)->clock.failed)
        tern_health_report_only(c->to, UNKNOWN, "%.390s", facts(c)->clock.why);
    else if (error > 50)
        tern_health_report_only(c->to, UNKNOWN,
                                "the round trip to the first node takes %.0f ms: too long to tell",
                                2 * error);
    else
        tern_health_report(c->to, OK, "", offset, "ms",
                           "%+.3f ms from the first node, give or take %.3f", offset, error);
}

static void rule_software(struct tern_rules_case *c)
{
    if (unattended(c))
        tern_health_report_only(c->to, SKIPPED, "compared between the nodes of a job");
    else
        tern_health_report_same(c->to, facts(c)->software.same, facts(c)->software.same);
}

/* ------------------------------------------------------------------ processes */

static void rule_leftovers(struct tern_rules_case *c)
{
    const int pid = facts(c)->leftovers.pid, strays = facts(c)->leftovers.strays;
    const long job = facts(c)->leftovers.job;

    if (job)
        tern_health_report_only(
            c->to, NODE_BAD,
            "process %d of job %ld, which is over, holds a Neuron device. kill -9 %d", pid, job,
            pid);
    else if (pid)
        tern_health_report_only(c->to, UNKNOWN,
                                "process %d holds a Neuron device, and no cgroup tells its job "
                                "(ProctrackType=proctrack/cgroup). If it is left over: kill -9 %d",
                                pid, pid);
    else if (strays)
        tern_health_warn(c->to, "", strays, "files", "/dev/shm/%s was left there. Remove it.",
                         facts(c)->leftovers.name);
    else
        tern_health_report_only(c->to, OK, "%s",
                                geteuid() ? "none among this user's processes" : "none");
}

static void rule_stuck(struct tern_rules_case *c)
{
    const int pid = facts(c)->hung.pid;

    if (facts(c)->hung.unreadable)
        tern_health_report_only(c->to, UNKNOWN, "/proc cannot be read");
    else if (facts(c)->hung.n)
        tern_health_report(
            c->to, UNKNOWN, "", (double)facts(c)->hung.n, "processes",
            "process %d (%s) hangs in the kernel%s: storage that does not answer? cat "
            "/proc/%d/stack",
            pid, facts(c)->hung.name, facts(c)->hung.n > 1 ? ", and others" : "", pid);
    else
        tern_health_report(c->to, OK, "", 0, "processes", "none");
}

/* ------------------------------------------------------------------ mounts */

static void say_failed(struct tern_rules_case *c, const char *dir, const char *what, int e)
{
    bool ours = e == EACCES || e == EPERM || e == EDQUOT;
    const char *remedy = e == EROFS    ? "Mount it again, read-write."
                         : e == ENOSPC ? "Make room."
                         : e == EDQUOT ? "Make room in the quota."
                         : ours        ? "Whose folder is it?"
                                       : "Look at the file system's server and the kernel's log.";

    /* A full or broken server fails for all; a mount turned read-only is first this node's. */
    tern_health_report(c->to,
                       ours         ? UNKNOWN
                       : e == EROFS ? NODE_BAD
                                    : STORAGE_BAD,
                       tern_health_subject(dir), 0, "", "%.200s: cannot %s: %s. %s", dir, what,
                       strerror(e), remedy);
}

/* Was a row made of too little space? */
static bool say_full(struct tern_rules_case *c, const struct tern_rules_folder *folder)
{
    const uint64_t room = facts(c)->mount.free_bytes;
    const uint64_t need = folder->need_bytes ? folder->need_bytes : TERN_HEALTH_LEAST_BYTES;
    const unsigned long long inodes = facts(c)->mount.free_inodes;
    char have[24], least[24];

    if (facts(c)->mount.has_blocks && room < need)
        tern_health_report(
            c->to, STORAGE_BAD, tern_health_subject(folder->dir), (double)(room >> 20), "MiB",
            "%.200s: %s free, and %s are needed. Make room.", folder->dir,
            tern_str_bytes(have, sizeof have, room), tern_str_bytes(least, sizeof least, need));
    else if (facts(c)->mount.has_inodes && inodes < TERN_HEALTH_LEAST_INODES)
        tern_health_report(c->to, STORAGE_BAD, tern_health_subject(folder->dir), (double)inodes,
                           "inodes", "%.200s: %llu inodes are left. Remove small files.",
                           folder->dir, inodes);
    else
        return false;
    return true;
}

static void say_taken(struct tern_rules_case *c, const struct tern_health_mount *m)
{
    static const char *const steps[] = {
        [TERN_HEALTH_CREATE] = "create a file", [TERN_HEALTH_WRITE] = "write to a file",
        [TERN_HEALTH_FSYNC] = "fsync a file",   [TERN_HEALTH_CLOSE] = "close a file",
        [TERN_HEALTH_REMOVE] = "remove a file",
    };
    const struct tern_health_taken t = facts(c)->mount.taken;
    const char *dir = m->folder.dir;
    const double free_mib = (double)(facts(c)->mount.free_bytes >> 20);

    if (t.failed == TERN_HEALTH_STEP_DOWN || t.failed == TERN_HEALTH_LOST)
        tern_health_report(
            c->to, UNKNOWN, tern_health_subject(dir), 0, "", "cannot step down from root: %s",
            t.failed == TERN_HEALTH_LOST ? "the process that did was ended" : strerror(t.error));
    else if (t.failed != TERN_HEALTH_DONE && (m->asked || (t.error != EACCES && t.error != EPERM)))
        say_failed(c, dir, steps[t.failed], t.error);
    else
        tern_health_report(c->to, OK, tern_health_subject(dir), free_mib, "MiB",
                           "%.200s: %s, %.0f MiB free", dir,
                           t.failed == TERN_HEALTH_DONE ? "takes a file" : "answers", free_mib);
}

static void rule_mount(struct tern_rules_case *c)
{
    const struct tern_health_probe *p = c->to;
    const struct tern_health_mount *m = &p->expected->mount[p->index];
    const char *dir = m->folder.dir;

    if (facts(c)->mount.open_error == ENOENT)
        tern_health_report(c->to, NODE_BAD, tern_health_subject(dir), 0, "",
                           "%.200s is not there. Is its file system mounted?", dir);
    else if (facts(c)->mount.open_error)
        say_failed(c, dir, "open it", facts(c)->mount.open_error);
    else if (m->fstab && !facts(c)->mount.mounted)
        tern_health_report(c->to, NODE_BAD, tern_health_subject(dir), 0, "",
                           "%.200s is in /etc/fstab but not mounted. mount %.100s", dir, dir);
    else if (facts(c)->mount.room_error)
        say_failed(c, dir, "ask for its free space", facts(c)->mount.room_error);
    else if (!say_full(c, &m->folder))
        say_taken(c, m);
}

/* ------------------------------------------------------------------ memory and arithmetic */

static void rule_triad(struct tern_rules_case *c)
{
    const size_t n = facts(c)->triad.n, wrong = facts(c)->triad.wrong;
    const double rate = facts(c)->triad.gb_s;

    if (facts(c)->triad.no_memory)
        tern_health_report_only(c->to, UNKNOWN, "no memory for three arrays of %zu MiB",
                                n * sizeof(double) >> 20);
    else if (wrong)
        tern_health_report(c->to, NODE_BAD, "", rate, "GB/s",
                           "%zu of %zu sums came back from memory wrong. Replace the node.", wrong,
                           n);
    else
        tern_health_report(c->to, OK, "", rate, "GB/s", "%.1f GB/s", rate);
}

static void rule_compute(struct tern_rules_case *c)
{
    const int n = facts(c)->compute.n, right = facts(c)->compute.right;
    const int bad = facts(c)->compute.bad;

    if (facts(c)->compute.error)
        tern_health_report_only(c->to, UNKNOWN, "cannot tell which cores there are: %s",
                                strerror(facts(c)->compute.error));
    else if (bad)
        tern_health_report(
            c->to, NODE_BAD, "", bad, "cores",
            "%d of %d cores compute another result than the stored one, core %d among "
            "them. Replace the node.",
            bad, n, facts(c)->compute.first_bad);
    else if (right < n)
        tern_health_report(c->to, UNKNOWN, "", right, "cores",
                           "%d of %d cores could not be tried (memory, or a cpuset that changes)",
                           n - right, n);
    else
        tern_health_report(c->to, OK, "", n, "cores",
                           "%d cores agree with the stored result, bit for bit", n);
}

/* ------------------------------------------------------------------ the table */

#define ERROR TERN_RULES_ERROR
#define WARN TERN_RULES_WARN
enum {
    QUICK = TERN_HEALTH_ON_QUICK | TERN_HEALTH_ON_DEEP,
    SPOT = TERN_HEALTH_ON_SPOT | TERN_HEALTH_ON_DEEP,
    FABRIC = TERN_HEALTH_ON_FABRIC | TERN_HEALTH_ON_DEEP,
};
#define LATE_UNKNOWN TERN_HEALTH_UNKNOWN
#define LATE_STORAGE TERN_HEALTH_STORAGE_BAD
#define LATE_FABRIC TERN_HEALTH_FABRIC_BAD
#define ROW(id, severity, stages, holds, remedy)                                                   \
    {                                                                                              \
#id, severity, stages, rule_##id, holds, remedy                                            \
    }
#define GATHER(what) tern_health_gather_##what

/* Limits, in seconds: a check of /proc and /sys takes under a millisecond, and 1 s means that it
 * hangs.  A network file system may be busy for a second or two.  Mounts are looked at last:
 * several that hang take all the time that is left. */
const struct tern_health_check tern_health_checks[] = {
    {ROW(neuron, ERROR, QUICK, "Neuron devices are there and as many as expected (/dev/neuron*)",
         "Load the driver (modprobe neuron), stop and start the instance, or replace it."),
     1, LATE_UNKNOWN, GATHER(neuron)},
    {ROW(ecc, ERROR, QUICK, "no uncorrected memory errors of Neuron devices (sysfs counters)",
         "Reload the driver or reboot where the counter is repairable; else replace the instance."),
     2, LATE_UNKNOWN, GATHER(ecc)},
    {ROW(kernel, ERROR, QUICK, "no NEURON_HW_ERR in the kernel's log (needs root)",
         "Replace the instance."),
     1, LATE_UNKNOWN, GATHER(kernel)},
    {ROW(efa, ERROR, QUICK, "EFA devices: as many as expected, ports active",
         "Load the driver (modprobe efa), see that the launch template gives every network card an "
         "EFA interface, or stop and start the instance."),
     1, LATE_UNKNOWN, GATHER(efa)},
    {ROW(nic, ERROR, QUICK, "network links that are in use have a carrier",
         "Look at the cable or port; on EC2 stop and start the instance."),
     1, LATE_UNKNOWN, GATHER(nic)},
    {ROW(provider, ERROR, QUICK, "libfabric has the provider that training uses",
         "Install libfabric with that provider (for EFA: the EFA installer)."),
     2, LATE_UNKNOWN, GATHER(provider)},
    {ROW(memory, ERROR, QUICK, "as much memory as Slurm believes, and free",
         "End leftover processes, remove files in /dev/shm; replace the node, or fix RealMemory."),
     1, LATE_UNKNOWN, GATHER(memory)},
    {ROW(hugepages, ERROR, QUICK, "huge pages as expected",
         "Set vm.nr_hugepages (sysctl), and reboot after long uptime."),
     1, LATE_UNKNOWN, GATHER(memory)},
    {ROW(limits, ERROR, QUICK, "memlock and nofile limits that the fabric needs",
         "Set LimitMEMLOCK=infinity and LimitNOFILE in slurmd.service, and "
         "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf."),
     1, LATE_UNKNOWN, GATHER(limits)},
    {ROW(clock, ERROR, QUICK, "the clock is within 100 ms of the other nodes' (in a job)",
         "Run chronyd (chronyc tracking)."),
     2, LATE_UNKNOWN, GATHER(clock)},
    {ROW(leftovers, ERROR, QUICK,
         "no process of an ended job holds a Neuron device, no stray shared memory of tern",
         "End the process, remove the file."),
     2, LATE_UNKNOWN, GATHER(leftovers)},
    {ROW(stuck, WARN, QUICK, "no process hangs in the kernel (D state)",
         "Look at the storage that it waits for: cat /proc/PID/stack."),
     2, LATE_UNKNOWN, GATHER(hung)},
    {ROW(software, ERROR, QUICK,
         "tern, libfabric, PMIx, OpenBLAS, kernel and Neuron driver are the other nodes'",
         "Install the same everywhere."),
     3, LATE_UNKNOWN, GATHER(software)},
    {ROW(mount, ERROR, QUICK,
         "file systems are mounted, take a file (create, fsync, remove), have room and inodes",
         "Mount it, read-write; make room; else look at the file system's server."),
     3, LATE_STORAGE, GATHER(mount)},
    {ROW(triad, ERROR, SPOT,
         "memory bandwidth (STREAM triad), 80 % of the other nodes' median at least",
         "Look for other processes and lost memory modules; replace the node."),
     30, LATE_UNKNOWN, GATHER(triad)},
    {ROW(compute, ERROR, SPOT,
         "every core computes the stored result of a training-like sum, bit for bit",
         "Replace the node."),
     60, LATE_UNKNOWN, GATHER(compute)},
    {{"link", ERROR, FABRIC, rule_relayed,
      "bandwidth and latency to two neighbours, and an all-reduce with a known result",
      "Run `tern health fabric` on halves of the nodes to find the slow node or way."},
     300,
     LATE_FABRIC,
     GATHER(link)},
};
const size_t tern_health_n_checks = sizeof tern_health_checks / sizeof *tern_health_checks;

void tern_health_apply(const struct tern_health_check *check, struct tern_health_probe *p)
{
    static struct tern_health_facts f; /* some 15 KiB */
    struct tern_rules_case c = {.subject = "", .facts = &f, .to = p};

    memset(&f, 0, sizeof f);
    check->gather(p, &f);
    tern_rules_apply(&check->rule, 1, check->rule.where, &c);
}

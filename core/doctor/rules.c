/* What may be wrong with an installation: a function a rule, and the table. */
#include "core/doctor/rules.h"

#include "core/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tern_slurm_about *about(const struct tern_rules_case *c)
{
    return ((const struct tern_doctor_evidence *)c->facts)->about;
}

static const struct tern_doctor_facts *facts(const struct tern_rules_case *c)
{
    return ((const struct tern_doctor_evidence *)c->facts)->facts;
}

/* The subject's. */
static const char *fact(const struct tern_rules_case *c, const char *key)
{
    return tern_doctor_fact(facts(c), c->subject, key);
}

/* This machine's. */
static const char *local(const struct tern_rules_case *c, const char *key)
{
    return tern_doctor_fact(facts(c), "", key);
}

/* Are "22.05.8" and "22.05.3" of one release? */
static bool same_release(const char *a, const char *b)
{
    const char *dot = strchr(a, '.');
    size_t n = dot ? (size_t)(dot - a) + 1 + strcspn(dot + 1, ".") : strlen(a);

    return strncmp(a, b, n) == 0 && (b[n] == '.' || b[n] == '\0');
}

/* Has the subject another value of `key` than this machine? */
static bool differs(const struct tern_rules_case *c, const char *key)
{
    const char *there = fact(c, key), *mine = local(c, key);

    return there && mine && strcmp(there, mine) != 0;
}

/* Rule "blas": the words of the fact "blas-error" are the finding's. */
static void rule_error(struct tern_rules_case *c)
{
    char key[24];

    snprintf(key, sizeof key, "%s-error", c->rule->id);
    if (fact(c, key))
        tern_doctor_found(c, "%s", fact(c, key));
}

/* ------------------------------------------------------------------ nodes that answered, or not */

/* "down*": Slurm's mark of a slurmd that does not answer. */
static bool is_mute(const char *state)
{
    return state[strcspn(state, ":*")] == '*';
}

static void rule_node_mute(struct tern_rules_case *c)
{
    const char *state = fact(c, "unusable");

    if (state && is_mute(state))
        tern_doctor_found(c, "the node is %s: its slurmd does not answer slurmctld", state);
}

static void rule_node_state(struct tern_rules_case *c)
{
    const char *state = fact(c, "unusable");

    if (state && !is_mute(state))
        tern_doctor_found(c, "the node is %s", state);
}

static void rule_node_busy(struct tern_rules_case *c)
{
    const char *state = fact(c, "busy");

    if (state)
        tern_doctor_found(c, "the node is %s", state);
}

static void rule_node_answer(struct tern_rules_case *c)
{
    const char *words = fact(c, "words");

    if (!fact(c, "asked") || fact(c, "done"))
        return;
    if (!words)
        words = local(c, "words");
    tern_doctor_found(c, "no answer%s%s", words ? ": " : " in time", words ? words : "");
}

/* ------------------------------------------------------------------ Slurm's releases */

static void rule_slurm_built_for(struct tern_rules_case *c)
{
    const char *client = local(c, "client");

    if (client && !same_release(client, tern_slurm_release()))
        tern_doctor_found(c, "tern was built for Slurm %s; Slurm's commands here are %s",
                          tern_slurm_release(), client);
}

static void rule_slurm_client(struct tern_rules_case *c)
{
    const char *client = local(c, "client");

    if (client && !same_release(about(c)->version, client))
        tern_doctor_found(c, "slurmctld is %s, Slurm's commands here are %s", about(c)->version,
                          client);
}

/* Of the node's slurmd; NULL where Slurm does not know it. */
static const char *slurmd_of(const struct tern_rules_case *c)
{
    for (size_t i = 0; i < about(c)->n; i++)
        if (strcmp(about(c)->node[i].name, c->subject) == 0 && *about(c)->node[i].version)
            return about(c)->node[i].version;
    return NULL;
}

static void rule_slurmd_version(struct tern_rules_case *c)
{
    const char *slurmd = slurmd_of(c);

    if (slurmd && !same_release(slurmd, about(c)->version))
        tern_doctor_found(c, "slurmd is %s, slurmctld is %s", slurmd, about(c)->version);
}

/* ------------------------------------------------------------------ the plugin */

/* The Slurm that loads the plugin there. */
static const char *loads_plugin(const struct tern_rules_case *c)
{
    const char *client = *c->subject ? NULL : local(c, "client"), *slurmd = slurmd_of(c);

    return client ? client : slurmd ? slurmd : about(c)->version;
}

/* What it was built for; NULL where no such file is named or it is no plugin. */
static const char *plugin_release(const struct tern_rules_case *c)
{
    const char *file = fact(c, "plugin"), *release = fact(c, "plugin-release");

    return file && *file && release && *release ? release : NULL;
}

static void rule_plugin_line(struct tern_rules_case *c)
{
    const char *file = fact(c, "plugin");

    if (file && !*file)
        tern_doctor_found(c, "no line of %s, or of what it includes, loads tern_spank",
                          about(c)->plugstack);
}

static void rule_plugin_file(struct tern_rules_case *c)
{
    const char *file = fact(c, "plugin");

    if (file && *file && !plugin_release(c))
        tern_doctor_found(c, "%s is not there or is no plugin", file);
}

static void rule_plugin_release(struct tern_rules_case *c)
{
    const char *release = plugin_release(c), *runs = loads_plugin(c);

    if (release && !same_release(release, runs))
        tern_doctor_found(
            c, "the plugin was built for Slurm %s, and Slurm is %s there: it is not loaded",
            release, runs);
}

static void rule_plugin_build(struct tern_rules_case *c)
{
    const char *release = plugin_release(c);

    if (release && same_release(release, loads_plugin(c)) && differs(c, "plugin-build"))
        tern_doctor_found(c, "the plugin is another build (%s) than on this machine (%s)",
                          fact(c, "plugin-build"), local(c, "plugin-build"));
}

static void rule_plugin_tern(struct tern_rules_case *c)
{
    const char *tern = fact(c, "plugin-tern");

    if (plugin_release(c) && tern)
        tern_doctor_found(c, "the plugin's tern=PATH cannot be run: %s", tern);
}

static void rule_plugin_health(struct tern_rules_case *c)
{
    if (plugin_release(c) && fact(c, "plugin-health") && !fact(c, "plugin-required"))
        tern_doctor_found(c, "health=prolog has no effect: the plugin is 'optional', and Slurm "
                             "ignores what it answers");
}

static void rule_plugin_required(struct tern_rules_case *c)
{
    if (plugin_release(c) && fact(c, "plugin-required") && !fact(c, "plugin-health"))
        tern_doctor_found(
            c, "the plugin is 'required': a node without it drains, and its job is held");
}

/* ------------------------------------------------------------------ software */

static void rule_tern_build(struct tern_rules_case *c)
{
    if (differs(c, "tern"))
        tern_doctor_found(c, "tern's programs are another build (%s) than on this machine (%s)",
                          fact(c, "tern"), local(c, "tern"));
}

static void rule_fabric_version(struct tern_rules_case *c)
{
    if (differs(c, "fabric"))
        tern_doctor_found(c, "%s, and on this machine %s", fact(c, "fabric"), local(c, "fabric"));
}

static void rule_fabric_tagged(struct tern_rules_case *c)
{
    const char *fabric = fact(c, "fabric");

    if (fabric && strstr(fabric, "unauthenticated"))
        tern_doctor_found(c, "%s: a rank accepts messages from any sender", fabric);
}

static void rule_pmix(struct tern_rules_case *c)
{
    const char *files = fact(c, "pmix");

    if (files && !*files)
        tern_doctor_found(c, "no mpi_pmix*.so in %s", about(c)->plugin_dir);
}

static void rule_blas_differs(struct tern_rules_case *c)
{
    if (differs(c, "blas"))
        tern_doctor_found(c, "%s; on this machine %s", fact(c, "blas"), local(c, "blas"));
}

static void rule_blas_core(struct tern_rules_case *c)
{
    static const char *const plain[] = {"Prescott", "Core2", "Penryn", "Nehalem", "Generic", NULL};
    const char *core = fact(c, "coretype"), *blas = fact(c, "blas");

    for (size_t i = 0; core && blas && !strstr(blas, ": plain") && plain[i]; i++)
        if (strcasecmp(core, plain[i]) == 0)
            tern_doctor_found(c, "OPENBLAS_CORETYPE=%s leaves this CPU's vector units idle", core);
}

/* ------------------------------------------------------------------ surroundings */

static void rule_limit_memlock(struct tern_rules_case *c)
{
    const char *memlock = fact(c, "memlock"), *devices = fact(c, "rdma-devices");
    bool rdma = devices && strcmp(devices, "0") != 0;
    int64_t n;

    if (rdma && memlock && tern_str_int(memlock, 0, INT64_MAX, &n) == 0)
        tern_doctor_found(
            c, "jobs may lock %s bytes of memory only; EFA registers all that it sends", memlock);
}

static void rule_limit_nofile(struct tern_rules_case *c)
{
    const char *nofile = fact(c, "nofile");
    int64_t n;

    if (nofile && tern_str_int(nofile, 0, 4095, &n) == 0)
        tern_doctor_found(c, "jobs may open %s files only; 4096 is safe", nofile);
}

/* Seconds that the node's clock is ahead, at least.  The node read it after its step began and
 * before its answer came. */
static double clock_off(const struct tern_rules_case *c)
{
    const char *asked = fact(c, "asked"), *clock = fact(c, "clock");
    const char *heard = fact(c, "clock-heard");

    if (!asked || !clock || !heard)
        return 0;
    double t = strtod(clock, NULL);
    return t < strtod(asked, NULL)   ? t - strtod(asked, NULL)
           : t > strtod(heard, NULL) ? t - strtod(heard, NULL)
                                     : 0;
}

/* Two rows: an error where it is far off, else a warning. */
static void rule_clock(struct tern_rules_case *c)
{
    enum { FAR_S = 30, OFF_S = 1 };
    double off = clock_off(c), size = off < 0 ? -off : off;

    if (size > OFF_S && (size > FAR_S) == (c->rule->severity == TERN_RULES_ERROR))
        tern_doctor_found(c, "the clock is %s by %.0f s or more", off < 0 ? "behind" : "ahead",
                          size);
}

static void rule_tmp_fs(struct tern_rules_case *c)
{
    const char *value = fact(c, "tmp-error");

    if (value)
        tern_doctor_found(c, "TmpFS: %s", value);
}

static void rule_site_differs(struct tern_rules_case *c)
{
    if (differs(c, "site"))
        tern_doctor_found(c, "site settings differ: %s, and on this machine %s", fact(c, "site"),
                          local(c, "site"));
}

/* ------------------------------------------------------------------ shared storage */

static void rule_storage(struct tern_rules_case *c)
{
    if (!local(c, "ledger"))
        tern_doctor_found(c, "no ledger folder is known: shared storage was not checked");
}

/* Has the node found the collector's folder?  `token` is what it read there, NULL where it did not
 * look. */
static bool sees_folder(const struct tern_rules_case *c, const char **token)
{
    const char *expected = local(c, "probe-token");

    *token = expected ? fact(c, "probe-token") : NULL;
    return *token && strcmp(*token, expected) == 0;
}

static void rule_storage_shared(struct tern_rules_case *c)
{
    const char *token;

    if (!sees_folder(c, &token) && token)
        tern_doctor_found(c, "%s is not the folder of this name on this machine",
                          local(c, "ledger"));
}

static void rule_storage_write(struct tern_rules_case *c)
{
    const char *error = fact(c, "probe-error"), *token;

    if (sees_folder(c, &token) && error)
        tern_doctor_found(c, "%s: %s", local(c, "ledger"), error);
}

static void rule_storage_late(struct tern_rules_case *c)
{
    const char *seen = fact(c, "probe-seen"), *token;

    if (sees_folder(c, &token) && seen && strcmp(seen, "no") == 0)
        tern_doctor_found(c, "%s: what the node wrote is not seen here after 5 s",
                          local(c, "ledger"));
}

static void rule_storage_locks(struct tern_rules_case *c)
{
    const char *token;

    for (int i = 0; i < 2 && sees_folder(c, &token); i++) {
        const char *lock = fact(c, i ? "probe-flock" : "probe-fcntl");
        if (lock && strcmp(lock, "held") != 0)
            tern_doctor_found(c, "%s: %s locks do not hold between nodes (%s)", local(c, "ledger"),
                              i ? "flock" : "fcntl", lock);
    }
}

static void rule_storage_atomic(struct tern_rules_case *c)
{
    static const char *const keys[] = {"probe-link", "probe-excl"};
    const char *dir = local(c, "ledger");

    for (int k = 0; dir && k < 2; k++) {
        size_t won = 0, tried = 0;
        for (size_t i = 0; i < facts(c)->n; i++) {
            if (strcmp(facts(c)->fact[i].key, keys[k]) != 0)
                continue;
            tried++;
            won += strcmp(facts(c)->fact[i].value, "won") == 0;
        }
        if (tried && won != 1)
            tern_doctor_found(c, "%s: %s made by %zu nodes at once succeeded on %zu, not on one",
                              dir, k ? "a file with O_EXCL" : "a link(2)", tried, won);
    }
}

/* Several facts may have the name of one rule: of runs in a ledger, of folders. */
static void rule_each(struct tern_rules_case *c)
{
    for (size_t i = 0; fact(c, c->rule->id) && i < facts(c)->n; i++) {
        const struct tern_doctor_fact *f = &facts(c)->fact[i];
        if (strcmp(f->key, c->rule->id) == 0 && strcmp(f->node, c->subject) == 0)
            tern_doctor_found(c, "%s", f->value);
    }
}

/* ------------------------------------------------------------------ Slurm's settings */

static void rule_conf_requeue(struct tern_rules_case *c)
{
    if (!about(c)->requeue)
        tern_doctor_found(c, "JobRequeue=0: a job whose node died is not queued again by itself");
}

static void rule_conf_return(struct tern_rules_case *c)
{
    if (about(c)->return_to_service == 0)
        tern_doctor_found(
            c, "ReturnToService=0: a node that came back stays down until an admin resumes it");
}

static void rule_conf_kill_wait(struct tern_rules_case *c)
{
    int s = about(c)->kill_wait_s;

    if (s < 5)
        tern_doctor_found(c, "KillWait=%d: ranks have %d s from SIGTERM to SIGKILL", s, s);
}

static void rule_conf_cred_expire(struct tern_rules_case *c)
{
    static const char key[] = "cred_expire=";
    const char *at = strstr(about(c)->auth_info, key);
    long long expire = at ? strtoll(at + strlen(key), NULL, 10) : 120; /* Slurm's own */

    if (expire > 30)
        tern_doctor_found(c, "a requeued job waits for its old credentials: %lld s", expire);
}

static void rule_conf_prolog_hold(struct tern_rules_case *c)
{
    if (!strstr(about(c)->scheduler, "nohold_on_prolog_fail"))
        tern_doctor_found(c, "a job that the node's check sends back is held until it is released");
}

static void rule_conf_prolog_alloc(struct tern_rules_case *c)
{
    if (!about(c)->prolog_alloc)
        tern_doctor_found(c, "a prolog runs when a node's first step starts, not before the batch "
                             "script: bad nodes are found late (matters with health=prolog)");
}

static void rule_conf_mpi(struct tern_rules_case *c)
{
    const char *mpi = about(c)->mpi_default;

    if (!strstr(mpi, "pmix"))
        tern_doctor_found(c,
                          "MpiDefault=%s: a plain srun of an MPI program starts separate ones; "
                          "tern run says itself how its ranks meet",
                          *mpi ? mpi : "none");
}

static void rule_conf_task(struct tern_rules_case *c)
{
    if (strstr(about(c)->task_plugin, "none"))
        tern_doctor_found(c, "%s: Slurm pins no ranks to cores", about(c)->task_plugin);
}

/* ------------------------------------------------------------------ the table */

#define INFO TERN_RULES_INFO
#define WARN TERN_RULES_WARN
#define ERROR TERN_RULES_ERROR
enum {
    CLUSTER = TERN_DOCTOR_CLUSTER,
    LOCAL = TERN_DOCTOR_LOCAL,
    KNOWN = TERN_DOCTOR_KNOWN,
    LISTED = TERN_DOCTOR_LISTED,
    NODE = TERN_DOCTOR_ANSWERED,
    EACH = LOCAL | NODE,
    SENT = LOCAL | LISTED, /* also of a node that did not answer to the end */
};

static const char set_clock[] =
    "Run chrony or ntpd there: munge refuses credentials of other times, and the ledger "
    "orders by them.";
static const char permissions[] = "Fix permissions or the mount.";

const struct tern_rule tern_doctor_rules[] = {
    {"node-answer", ERROR, LISTED, rule_node_answer, "every idle node answers in time",
     "Is tern installed there, at the same path and of the same build? Then look into slurmd's "
     "log on the node."},
    {"node-state", WARN, LISTED, rule_node_mute, "slurmctld reaches every slurmd",
     "Not checked. Look whether its slurmd runs and the controller's port is open."},
    {"node-state", WARN, LISTED, rule_node_state, "every node is up",
     "Not checked. Fix it, then: scontrol update nodename=NODE state=resume"},
    {"node-busy", INFO, LISTED, rule_node_busy, "every node is idle, and so checked",
     "Not checked. Run it again when the node is idle, or inside a job on it."},
    {"slurm-built-for", ERROR, LOCAL, rule_slurm_built_for, "tern is built for the Slurm that runs",
     "Build tern with the headers of the Slurm that runs: make SLURM_PREFIX=DIR"},
    {"slurm-client", WARN, LOCAL, rule_slurm_client, "Slurm's commands are of slurmctld's release",
     "Install the controller's release on this machine; clients work within two releases."},
    {"slurmd-version", WARN, KNOWN, rule_slurmd_version, "slurmd is of slurmctld's release",
     "Bring slurmd and slurmctld to one release; the plugin must be slurmd's."},
    {"plugin-line", ERROR, EACH, rule_plugin_line, "plugstack.conf has the plugin's line",
     "Run make install there, or add the line it prints. Without it --tern is unknown or does "
     "nothing."},
    {"plugin-file", ERROR, EACH, rule_plugin_file, "the line names a plugin",
     "Run make install there, or fix the path in the line."},
    {"plugin-release", ERROR, EACH, rule_plugin_release,
     "the plugin is built for the Slurm that loads it",
     "Build it with that Slurm's headers: make install SLURM_PREFIX=DIR"},
    {"plugin-build", ERROR, NODE, rule_plugin_build, "the plugin is this machine's build",
     "Run make install there with the same build."},
    {"plugin-tern", ERROR, EACH, rule_plugin_tern, "tern=PATH on the plugin's line can be run",
     "Fix tern=PATH on the plugin's line."},
    {"plugin-health", WARN, EACH, rule_plugin_health,
     "health=prolog stands on a 'required' line alone",
     "Write 'required' (a bad node then drains), or take health=prolog out and let "
     "HealthCheckProgram run tern health --program."},
    {"plugin-required", WARN, EACH, rule_plugin_required,
     "the plugin is 'optional' without health=prolog", "Write 'optional'."},
    {"tern-build", ERROR, NODE, rule_tern_build, "tern's programs are this machine's build",
     "Install the same build on every node."},
    {"fabric", ERROR, EACH, rule_error, "libfabric has the provider that ranks use",
     "Install libfabric with that provider (for EFA: the EFA installer)."},
    {"fabric-version", WARN, NODE, rule_fabric_version, "libfabric is this machine's release",
     "Install one libfabric everywhere."},
    {"fabric-tagged", INFO, EACH, rule_fabric_tagged, "messages carry proof of their sender",
     "Keep strangers off this network, or let the provider write (TERN_FABRIC_MODE=rma)."},
    {"pmix", WARN, EACH, rule_pmix, "Slurm has its PMIx plugin",
     "Install Slurm's PMIx plugin (mpi_pmix.so) there. Up to 512 ranks of tern run work without "
     "it. More ranks, workloads, `launch.fabric: mpi` and srun --mpi=pmix need it."},
    {"blas", ERROR, EACH, rule_error, "OpenBLAS can be loaded", "Install libopenblas0-openmp."},
    {"blas-differs", INFO, NODE, rule_blas_differs, "OpenBLAS and its kernels are this machine's",
     "Results are bit-identical on nodes with the same BLAS and core type only."},
    {"blas-core", WARN, EACH, rule_blas_core, "OPENBLAS_CORETYPE leaves no vector units idle",
     "Unset OPENBLAS_CORETYPE: tern picks the right one."},
    {"limit-memlock", ERROR, EACH, rule_limit_memlock, "jobs may lock memory for EFA",
     "LimitMEMLOCK=infinity for slurmd, and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf."},
    {"limit-nofile", WARN, EACH, rule_limit_nofile, "jobs may open 4096 files",
     "Raise it where you log in (ulimit -n), since Slurm passes limits on, or set "
     "PropagateResourceLimitsExcept=NOFILE and LimitNOFILE for slurmd."},
    {"clock", ERROR, NODE, rule_clock, "the clock is right within 30 s", set_clock},
    {"clock", WARN, NODE, rule_clock, "the clock is right within a second", set_clock},
    {"tmp-fs", ERROR, EACH, rule_tmp_fs, "TmpFS is a folder that jobs may write",
     "Fix TmpFS in slurm.conf; PMIx keeps its sockets there."},
    {"site", ERROR, EACH, rule_error, "tern.yaml can be read", "`tern help site` lists the keys."},
    {"site-differs", WARN, NODE, rule_site_differs, "tern.yaml is this machine's",
     "Install the same tern.yaml on every node."},
    {"storage", INFO, CLUSTER, rule_storage, "the ledger's folder is known, and so checked",
     "Name it: --ledger DIR, TERN_LEDGER, or ledger.dir in the site settings."},
    {"storage-shared", ERROR, NODE, rule_storage_shared, "the ledger's folder is one for all nodes",
     "Mount it there, or name a folder that all nodes share (ledger.dir in the site settings or "
     "the recipe)."},
    {"storage-write", ERROR, LOCAL, rule_error, "a folder can be made there", permissions},
    {"storage-write", ERROR, NODE, rule_storage_write, "every node can write there", permissions},
    {"storage-late", ERROR, NODE, rule_storage_late, "a node's file is seen here within 5 s",
     "Shorten the attribute cache (NFS: actimeo=3) or use one file system for all."},
    {"storage-atomic", ERROR, CLUSTER, rule_storage_atomic,
     "of nodes that make one file or link at once, one succeeds",
     "Use a file system with POSIX semantics for ledger and checkpoints (Lustre, NFSv4, GPFS)."},
    {"storage-locks", WARN, NODE, rule_storage_locks, "locks hold between nodes",
     "tern needs no locks there; other tools may (Lustre: mount with flock; NFS: without nolock)."},
    {"storage-stripes", WARN, LOCAL, rule_each,
     "on Lustre, large files are spread over several storage targets",
     "lfs setstripe -E 100M -c 1 -E -1 -c 8 DIR, before files are made there. tern does it for its "
     "users' own checkpoint.dir and folders of token sets."},
    {"ledger-open", WARN, SENT, rule_each, "private runs are not in a ledger that others read",
     "Its user folds it anew, or makes it theirs: tern ledger fold, chmod go-r."},
    {"ledger-others", WARN, SENT, rule_each, "a user's runs are that user's alone to write",
     "chmod go-w."},
    {"ledger-taken", ERROR, SENT, rule_each, "a user's folder in the ledger is that user's",
     "Remove it, or give it to its user (chown)."},
    {"ledger-sticky", WARN, SENT, rule_each, "the ledger's shared folder is sticky", "chmod +t."},
    {"conf-requeue", INFO, CLUSTER, rule_conf_requeue, "Slurm queues a job again by itself",
     "JobRequeue=1, or sbatch --requeue (tern submit does)."},
    {"conf-return", INFO, CLUSTER, rule_conf_return, "a node that came back is used again",
     "ReturnToService=2"},
    {"conf-kill-wait", WARN, CLUSTER, rule_conf_kill_wait, "ranks have 5 s from SIGTERM to SIGKILL",
     "KillWait=30"},
    {"conf-cred-expire", INFO, CLUSTER, rule_conf_cred_expire, "a requeued job starts within 30 s",
     "AuthInfo=cred_expire=30"},
    {"conf-prolog-hold", INFO, CLUSTER, rule_conf_prolog_hold,
     "a job that a prolog sends back is not held", "SchedulerParameters=nohold_on_prolog_fail"},
    {"conf-prolog-alloc", INFO, CLUSTER, rule_conf_prolog_alloc,
     "prologs run before the batch script", "PrologFlags=Alloc"},
    {"conf-mpi", INFO, CLUSTER, rule_conf_mpi, "a plain srun starts an MPI program as one",
     "MpiDefault=pmix"},
    {"conf-task", INFO, CLUSTER, rule_conf_task, "Slurm pins ranks to cores",
     "TaskPlugin=task/affinity,task/cgroup"},
};
const size_t tern_doctor_n_rules = sizeof tern_doctor_rules / sizeof *tern_doctor_rules;

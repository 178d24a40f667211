/* From facts to findings. */
#include "core/base/str.h"
#include "core/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const enum tern_doctor_severity INFO = TERN_DOCTOR_INFO, WARN = TERN_DOCTOR_WARN,
                                       ERROR = TERN_DOCTOR_ERROR;

struct judge {
    const struct tern_slurm_about *about;
    const struct tern_doctor_facts *facts;
    struct tern_doctor_findings *to;
    char **node; /* those that answered to the end */
    size_t n;
};

const char *tern_doctor_severity_name(enum tern_doctor_severity s)
{
    static const char *const names[] = {"info", "warning", "error"};

    return names[s];
}

/* The finding with these words, made when it is not there: what several nodes have is one. */
static struct tern_doctor_finding *finding(struct tern_doctor_findings *f, const char *id,
                                           enum tern_doctor_severity severity, const char *what,
                                           const char *remedy)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->v[i].id, id) == 0 && strcmp(f->v[i].what, what) == 0)
            return &f->v[i];
    if (f->n == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 32;
        f->v = reallocarray(f->v, f->cap, sizeof *f->v);
        if (!f->v)
            abort();
    }
    f->v[f->n] = (struct tern_doctor_finding){
        .id = id, .severity = severity, .what = tern_strdup(what), .remedy = tern_strdup(remedy)};
    return &f->v[f->n++];
}

/* `node` NULL: the cluster as a whole. */
__attribute__((format(printf, 6, 7))) static void found(struct judge *j, const char *id,
                                                        enum tern_doctor_severity severity,
                                                        const char *node, const char *remedy,
                                                        const char *fmt, ...)
{
    char what[900];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    struct tern_doctor_finding *f = finding(j->to, id, severity, what, remedy);
    if (!node)
        return;
    f->node = reallocarray(f->node, f->n_nodes + 1, sizeof *f->node);
    if (!f->node)
        abort();
    f->node[f->n_nodes++] = tern_strdup(node);
}

static const char *fact(const struct judge *j, const char *node, const char *key)
{
    return tern_doctor_fact(j->facts, node, key);
}

/* Are "22.05.8" and "22.05.3" of one release? */
static bool same_release(const char *a, const char *b)
{
    const char *dot = strchr(a, '.');
    size_t n = dot ? (size_t)(dot - a) + 1 + strcspn(dot + 1, ".") : strlen(a);

    return strncmp(a, b, n) == 0 && (b[n] == '.' || b[n] == '\0');
}

/* ------------------------------------------------------------------ who answered */

static void judge_answers(struct judge *j)
{
    for (size_t i = 0; i < j->facts->n; i++) {
        const struct tern_doctor_fact *f = &j->facts->fact[i];
        if (strcmp(f->key, "unusable") == 0 && f->value[strcspn(f->value, ":*")] == '*')
            found(j, "node-state", WARN, f->node,
                  "Not checked. Look whether its slurmd runs and the controller's port is open.",
                  "the node is %s: its slurmd does not answer slurmctld", f->value);
        else if (strcmp(f->key, "unusable") == 0)
            found(j, "node-state", WARN, f->node,
                  "Not checked. Mend it, then: scontrol update nodename=NODE state=resume",
                  "the node is %s", f->value);
        else if (strcmp(f->key, "busy") == 0)
            found(j, "node-busy", INFO, f->node,
                  "Not checked. Run it again when the node is idle, or inside a job on it.",
                  "the node is %s", f->value);
        if (strcmp(f->key, "asked") != 0)
            continue;
        if (fact(j, f->node, "done")) {
            j->node[j->n++] = (char *)f->node;
            continue;
        }
        const char *words = fact(j, f->node, "words");
        if (!words)
            words = fact(j, "", "words");
        found(j, "node-answer", ERROR, f->node,
              "Is tern installed there, at the same path and of the same build? Then look into "
              "slurmd's log on the node.",
              "no answer%s%s", words ? ": " : " in time", words ? words : "");
    }
}

/* ------------------------------------------------------------------ versions and builds */

static void judge_versions(struct judge *j)
{
    const struct tern_slurm_about *a = j->about;

    const char *client = fact(j, "", "client");

    if (client && !same_release(client, tern_slurm_release()))
        found(j, "slurm-built-for", ERROR, "",
              "Build tern with the headers of the Slurm that runs: make SLURM_PREFIX=DIR",
              "tern was built for Slurm %s; Slurm's commands here are %s", tern_slurm_release(),
              client);
    if (client && !same_release(a->version, client))
        found(j, "slurm-client", WARN, "",
              "Install the controller's release on this machine; clients work within two releases.",
              "slurmctld is %s, Slurm's commands here are %s", a->version, client);
    for (size_t i = 0; i < a->n; i++)
        if (*a->node[i].version && !same_release(a->node[i].version, a->version))
            found(j, "slurmd-version", WARN, a->node[i].name,
                  "Bring slurmd and slurmctld to one release; the plugin must be slurmd's.",
                  "slurmd is %s, slurmctld is %s", a->node[i].version, a->version);
}

/* The Slurm that loads the plugin there. */
static const char *slurm_of(const struct judge *j, const char *node)
{
    const char *client = *node ? NULL : fact(j, "", "client");

    if (client)
        return client;
    for (size_t i = 0; i < j->about->n; i++)
        if (strcmp(j->about->node[i].name, node) == 0 && *j->about->node[i].version)
            return j->about->node[i].version;
    return j->about->version;
}

static void judge_plugin(struct judge *j, const char *node)
{
    const char *file = fact(j, node, "plugin"), *release = fact(j, node, "plugin-release");
    const char *build = fact(j, node, "plugin-build"), *here = fact(j, "", "plugin-build");
    const char *runs = slurm_of(j, node), *tern;

    if (!file)
        return;
    if (!*file) {
        found(j, "plugin-line", ERROR, node,
              "Run make install there, or add the line it prints. Without it --tern is unknown or "
              "does nothing.",
              "no line of %s, or of what it includes, loads tern_spank", j->about->plugstack);
        return;
    }
    if (!release || !*release) {
        found(j, "plugin-file", ERROR, node,
              "Run make install there, or mend the path in the line.",
              "%s is not there or is no plugin", file);
        return;
    }
    if (!same_release(release, runs))
        found(j, "plugin-release", ERROR, node,
              "Build it with that Slurm's headers: make install SLURM_PREFIX=DIR",
              "the plugin was built for Slurm %s, and Slurm is %s there: it is not loaded", release,
              runs);
    else if (*node && build && here && strcmp(build, here) != 0)
        found(j, "plugin-build", ERROR, node, "Run make install there with the same build.",
              "the plugin is another build (%s) than on this machine (%s)", build, here);
    if ((tern = fact(j, node, "plugin-tern")))
        found(j, "plugin-tern", ERROR, node, "Mend tern=PATH on the plugin's line.",
              "the plugin's tern=PATH cannot be run: %s", tern);
    bool required = fact(j, node, "plugin-required"), health = fact(j, node, "plugin-health");
    if (health && !required)
        found(j, "plugin-health", WARN, node,
              "Write 'required' (a bad node then drains), or take health=prolog out and let "
              "HealthCheckProgram run tern health --program.",
              "health=prolog has no effect: the plugin is 'optional', and Slurm ignores what it "
              "answers");
    if (required && !health)
        found(j, "plugin-required", WARN, node, "Write 'optional'.",
              "the plugin is 'required': a node without it drains, and its job is held");
}

static void judge_build(struct judge *j, const char *node)
{
    const char *here = fact(j, "", "tern"), *there = fact(j, node, "tern");

    if (there && here && strcmp(here, there) != 0)
        found(j, "tern-build", ERROR, node, "Install the same build on every node.",
              "tern's programs are another build (%s) than on this machine (%s)", there, here);
}

static void judge_software(struct judge *j, const char *node)
{
    static const char *const plain[] = {"Prescott", "Core2", "Penryn", "Nehalem", "Generic", NULL};
    const char *value = fact(j, node, "fabric-error"), *here;

    if (value)
        found(j, "fabric", ERROR, node,
              "Install libfabric with that provider (for EFA: the EFA installer).", "%s", value);
    value = fact(j, node, "fabric"), here = fact(j, "", "fabric");
    if (*node && value && here && strcmp(value, here) != 0)
        found(j, "fabric-version", WARN, node, "Install one libfabric everywhere.",
              "%s, and on this machine %s", value, here);
    if (value && strstr(value, "unauthenticated"))
        found(j, "fabric-tagged", INFO, node,
              "Keep strangers off this network, or let the provider write (TERN_FABRIC_MODE=rma).",
              "%s: a rank accepts messages from any sender", value);
    value = fact(j, node, "pmix");
    if (value && !*value)
        found(j, "pmix", WARN, node,
              "Install Slurm's PMIx plugin (mpi_pmix.so) there. Up to 512 ranks of tern run meet "
              "without it; more of them, workloads, `launch.fabric: mpi` and srun --mpi=pmix do "
              "not.",
              "no mpi_pmix*.so in %s", j->about->plugin_dir);
    if ((value = fact(j, node, "blas-error")))
        found(j, "blas", ERROR, node, "Install libopenblas0-openmp.", "%s", value);
    value = fact(j, node, "blas"), here = fact(j, "", "blas");
    if (*node && value && here && strcmp(value, here) != 0)
        found(j, "blas-differs", INFO, node,
              "Results are bit-identical on nodes with the same BLAS and core type only.",
              "%s; on this machine %s", value, here);
    const char *core = fact(j, node, "coretype");
    for (size_t i = 0; core && value && !strstr(value, ": plain") && plain[i]; i++)
        if (strcasecmp(core, plain[i]) == 0)
            found(j, "blas-core", WARN, node, "Unset OPENBLAS_CORETYPE: tern picks the right one.",
                  "OPENBLAS_CORETYPE=%s leaves this CPU's vector units idle", core);
}

/* ------------------------------------------------------------------ surroundings */

static void judge_limits(struct judge *j, const char *node)
{
    const char *memlock = fact(j, node, "memlock"), *nofile = fact(j, node, "nofile");
    const char *devices = fact(j, node, "rdma-devices");
    bool rdma = devices && strcmp(devices, "0") != 0;
    int64_t n;

    if (rdma && memlock && tern_str_int(memlock, 0, INT64_MAX, &n) == 0)
        found(j, "limit-memlock", ERROR, node,
              "LimitMEMLOCK=infinity for slurmd, and PropagateResourceLimitsExcept=MEMLOCK in "
              "slurm.conf.",
              "jobs may lock %s bytes of memory only; EFA registers all that it sends", memlock);
    if (nofile && tern_str_int(nofile, 0, 4095, &n) == 0)
        found(j, "limit-nofile", WARN, node,
              "Raise it where you log in (ulimit -n), since Slurm passes limits on, or set "
              "PropagateResourceLimitsExcept=NOFILE and LimitNOFILE for slurmd.",
              "jobs may open %s files only; 4096 is safe", nofile);
}

static void judge_clock(struct judge *j, const char *node)
{
    const char *began = fact(j, node, "asked"), *clock = fact(j, node, "clock");
    const char *heard = fact(j, node, "clock-heard");

    if (!began || !clock || !heard)
        return;
    /* It looked at its clock after it was asked and before it was heard. */
    double t = atof(clock), off = t < atof(began)   ? t - atof(began)
                                  : t > atof(heard) ? t - atof(heard)
                                                    : 0;
    double size = off < 0 ? -off : off;
    if (size > 1)
        found(j, "clock", size > 30 ? ERROR : WARN, node,
              "Run chrony or ntpd there: munge refuses credentials of other times, and the ledger "
              "orders by them.",
              "the clock is %s by %.0f s or more", off < 0 ? "behind" : "ahead", size);
}

static void judge_place(struct judge *j, const char *node)
{
    const char *value;

    if ((value = fact(j, node, "tmp-error")))
        found(j, "tmp-fs", ERROR, node, "Mend TmpFS in slurm.conf; PMIx keeps its sockets there.",
              "TmpFS: %s", value);
    if ((value = fact(j, node, "site-error")))
        found(j, "site", ERROR, node, "`tern help site` lists the keys.", "%s", value);
    value = fact(j, node, "site");
    const char *here = fact(j, "", "site");
    if (*node && value && here && strcmp(value, here) != 0)
        found(j, "site-differs", WARN, node, "Put one file everywhere.",
              "site settings differ: %s, and on this machine %s", value, here);
}

static void judge_storage_node(struct judge *j, const char *node)
{
    const char *token = fact(j, node, "probe-token"), *want = fact(j, "", "probe-token"), *value;
    const char *dir = fact(j, "", "ledger");

    if (!token || !want)
        return;
    if (strcmp(token, want) != 0) {
        found(j, "storage-shared", ERROR, node,
              "Mount it there, or name a folder that all nodes share (ledger.dir in the site "
              "settings or the recipe).",
              "%s is not the folder of this name on this machine", dir);
        return;
    }
    if ((value = fact(j, node, "probe-error")))
        found(j, "storage-write", ERROR, node, "Mend permissions or the mount.", "%s: %s", dir,
              value);
    if ((value = fact(j, node, "probe-seen")) && strcmp(value, "no") == 0)
        found(j, "storage-late", ERROR, node,
              "Shorten the attribute cache (NFS: actimeo=3) or use one file system for all.",
              "%s: what the node wrote is not seen here after 5 s", dir);
    for (int i = 0; i < 2; i++) {
        value = fact(j, node, i ? "probe-flock" : "probe-fcntl");
        if (value && strcmp(value, "held") != 0)
            found(j, "storage-locks", WARN, node,
                  "tern needs no locks there; other tools may (Lustre: mount with flock; NFS: "
                  "without nolock).",
                  "%s: %s locks do not hold between nodes (%s)", dir, i ? "flock" : "fcntl", value);
    }
}

/* What tern_ledger_guard told. */
static void judge_ledger(struct judge *j)
{
    static const struct {
        const char *id, *remedy;
        enum tern_doctor_severity severity;
    } rules[] = {
        {"ledger-open", "Its user folds it anew, or makes it theirs: tern ledger fold, chmod go-r.",
         TERN_DOCTOR_WARN},
        {"ledger-others", "chmod go-w.", TERN_DOCTOR_WARN},
        {"ledger-taken", "Remove it, or give it to its user (chown).", TERN_DOCTOR_ERROR},
        {"ledger-sticky", "chmod +t.", TERN_DOCTOR_WARN},
    };

    for (size_t i = 0; i < j->facts->n; i++)
        for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
            if (strcmp(j->facts->fact[i].key, rules[k].id) == 0)
                found(j, rules[k].id, rules[k].severity, j->facts->fact[i].node, rules[k].remedy,
                      "%s", j->facts->fact[i].value);
}

static void judge_storage(struct judge *j)
{
    static const char *const keys[] = {"probe-link", "probe-excl"};
    const char *dir = fact(j, "", "ledger"), *error = fact(j, "", "probe-error");

    if (!dir)
        found(j, "storage", INFO, NULL,
              "Name it: --ledger DIR, TERN_LEDGER, or ledger.dir in the site settings.",
              "no ledger folder is known: shared storage was not checked");
    if (error)
        found(j, "storage-write", ERROR, "", "Mend permissions or the mount.", "%s", error);
    for (int k = 0; dir && k < 2; k++) {
        size_t won = 0, tried = 0;
        for (size_t i = 0; i < j->facts->n; i++) {
            if (strcmp(j->facts->fact[i].key, keys[k]) != 0)
                continue;
            tried++;
            won += strcmp(j->facts->fact[i].value, "won") == 0;
        }
        if (tried && won != 1)
            found(
                j, "storage-atomic", ERROR, NULL,
                "Use a file system with POSIX semantics for ledger and checkpoints (Lustre, NFSv4, "
                "GPFS).",
                "%s: %s made by %zu nodes at once succeeded on %zu, not on one", dir,
                k ? "a file with O_EXCL" : "a link(2)", tried, won);
    }
}

/* ------------------------------------------------------------------ Slurm's settings */

static int64_t number_after(const char *text, const char *key, int64_t otherwise)
{
    const char *at = strstr(text, key);

    return at ? strtoll(at + strlen(key), NULL, 10) : otherwise;
}

static void judge_settings(struct judge *j)
{
    const struct tern_slurm_about *a = j->about;
    int64_t expire = number_after(a->auth_info, "cred_expire=", 120);

    if (!a->requeue)
        found(j, "conf-requeue", INFO, NULL,
              "JobRequeue=1, or sbatch --requeue (tern submit does).",
              "JobRequeue=0: a job whose node died is not queued again by itself");
    if (a->return_to_service == 0)
        found(j, "conf-return", INFO, NULL, "ReturnToService=2",
              "ReturnToService=0: a node that came back stays down until an admin resumes it");
    if (a->kill_wait_s < 5)
        found(j, "conf-kill-wait", WARN, NULL, "KillWait=30",
              "KillWait=%d: ranks have %d s from SIGTERM to SIGKILL", a->kill_wait_s,
              a->kill_wait_s);
    if (expire > 30)
        found(j, "conf-cred-expire", INFO, NULL, "AuthInfo=cred_expire=30",
              "a requeued job waits for its old credentials: %lld s", (long long)expire);
    if (!strstr(a->scheduler, "nohold_on_prolog_fail"))
        found(j, "conf-prolog-hold", INFO, NULL, "SchedulerParameters=nohold_on_prolog_fail",
              "a job that the node's check sends back is held until somebody releases it");
    if (!a->prolog_alloc)
        found(j, "conf-prolog-alloc", INFO, NULL, "PrologFlags=Alloc",
              "a prolog runs when a node's first step starts, not before the batch script: bad "
              "nodes are found late (matters with health=prolog)");
    if (!strstr(a->mpi_default, "pmix"))
        found(j, "conf-mpi", INFO, NULL, "MpiDefault=pmix",
              "MpiDefault=%s: a plain srun of an MPI program starts separate ones; tern run says "
              "itself how its ranks meet",
              *a->mpi_default ? a->mpi_default : "none");
    if (strstr(a->task_plugin, "none"))
        found(j, "conf-task", INFO, NULL, "TaskPlugin=task/affinity,task/cgroup",
              "%s: Slurm pins no ranks to cores", a->task_plugin);
}

/* ------------------------------------------------------------------ the whole */

static int worst_first(const void *a, const void *b)
{
    const struct tern_doctor_finding *x = a, *y = b;

    return x->severity != y->severity ? (int)y->severity - (int)x->severity : strcmp(x->id, y->id);
}

static void judge_node(struct judge *j, const char *node)
{
    judge_plugin(j, node);
    judge_software(j, node);
    judge_limits(j, node);
    judge_place(j, node);
    if (!*node)
        return;
    judge_build(j, node);
    judge_clock(j, node);
    judge_storage_node(j, node);
}

void tern_doctor_judge(const struct tern_slurm_about *about, const struct tern_doctor_facts *facts,
                       struct tern_doctor_findings *to)
{
    struct judge j = {.about = about, .facts = facts, .to = to};

    j.node = calloc(facts->n + 1, sizeof *j.node);
    if (!j.node)
        abort();
    judge_answers(&j);
    judge_versions(&j);
    judge_storage(&j);
    judge_ledger(&j);
    judge_settings(&j);
    judge_node(&j, "");
    for (size_t i = 0; i < j.n; i++)
        judge_node(&j, j.node[i]);
    free(j.node);
    if (to->n)
        qsort(to->v, to->n, sizeof *to->v, worst_first);
}

void tern_doctor_findings_free(struct tern_doctor_findings *f)
{
    for (size_t i = 0; i < f->n; i++) {
        for (size_t k = 0; k < f->v[i].n_nodes; k++)
            free(f->v[i].node[k]);
        free(f->v[i].node);
        free(f->v[i].what);
        free(f->v[i].remedy);
    }
    free(f->v);
    *f = (struct tern_doctor_findings){0};
}

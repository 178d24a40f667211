/* One srun a partition over its idle nodes, and their answers. */
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/lustre.h"
#include "core/base/str.h"
#include "core/doctor/doctor.h"
#include "core/doctor/probe.h"
#include "core/ledger/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A line of facts has less than a KiB; what is longer is none. */
enum { LINE = 2048 };

struct collector {
    const struct tern_doctor_options *o;
    const struct tern_slurm_about *about;
    const char *probe;
    struct tern_doctor_facts *facts;
};

static double real_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double mono_s(void)
{
    return (double)tern_clock_boot_ns() / 1e9;
}

static bool stopped(const struct collector *a)
{
    return a->o->stop && *a->o->stop;
}

static void put_local(void *arg, const char *key, const char *value)
{
    tern_doctor_facts_add(arg, "", key, value);
}

/* ------------------------------------------------------------------ listening */

/* Slurm's words about a node: "slurmstepd-n3: error: execve(): ...", "srun: error: n3: ...". */
static void note_words(struct collector *a, char *const *nodes, size_t n, const char *line)
{
    const char *error = strstr(line, "error: ");

    /* Every node of a step reports its end, which another node caused. */
    if (strstr(line, ": Killed") || strstr(line, "error: *** "))
        return;
    for (size_t i = 0; error && i < n; i++) {
        const char *at = strstr(line, nodes[i]);
        size_t len = strlen(nodes[i]);
        if (at && !(at[len] >= '0' && at[len] <= '9') &&
            !tern_doctor_fact(a->facts, nodes[i], "words"))
            tern_doctor_facts_add(a->facts, nodes[i], "words", error + strlen("error: "));
    }
    if (error && !tern_doctor_fact(a->facts, "", "words"))
        tern_doctor_facts_add(a->facts, "", "words", error + strlen("error: "));
}

/* "srun: job 7 queued and waiting for resources", "... step creation temporarily disabled,
 * retrying": logged at once, since the answer may take as long as the other jobs do. */
static bool is_waiting(const char *line)
{
    return tern_str_starts(line, "srun: ") &&
           (strstr(line, "waiting for resources") || strstr(line, "retrying"));
}

static void take_line(struct collector *a, char *const *nodes, size_t n, const char *line)
{
    size_t before = a->facts->n;
    char text[64];

    if (!tern_doctor_facts_parse(a->facts, line)) {
        if (is_waiting(line))
            tern_info("%s", line);
        note_words(a, nodes, n, line);
        return;
    }
    const struct tern_doctor_fact *f = &a->facts->fact[before];
    if (strcmp(f->key, "clock") == 0) {
        char node[65];
        snprintf(node, sizeof node, "%s", f->node);
        snprintf(text, sizeof text, "%.3f", real_now());
        tern_doctor_facts_add(a->facts, node, "clock-heard", text);
    }
}

static void listen_to(struct collector *a, char *const *nodes, size_t n, int fd, double until)
{
    char line[LINE];
    size_t len = 0;

    while (!stopped(a)) {
        char buf[4096];
        double left = until - mono_s();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        /* Not all of it: a signal may come just before. */
        int ready = left > 0 ? poll(&p, 1, left < 0.2 ? (int)(left * 1000) + 1 : 200) : 0;
        if ((ready < 0 && errno == EINTR) || (ready == 0 && left > 0))
            continue;
        ssize_t got = ready > 0 ? read(fd, buf, sizeof buf) : 0;
        if (got <= 0)
            return;
        for (ssize_t i = 0; i < got; i++) {
            if (buf[i] == '\n') {
                line[len] = '\0';
                take_line(a, nodes, n, line);
                len = 0;
            } else if (len < sizeof line - 1) {
                line[len++] = buf[i];
            }
        }
    }
}

/* ------------------------------------------------------------------ srun */

static void become_srun(const struct collector *a, const char *list, size_t n,
                        const char *partition, int words)
{
    char *argv[32], *nodes = tern_strf("--nodes=%zu", n), *tasks = tern_strf("--ntasks=%zu", n);
    char *where = tern_strf("--nodelist=%s", list);
    size_t k = 0;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    argv[k++] = (char *)"srun";
    argv[k++] = (char *)"--mpi=none";
    argv[k++] = nodes;
    argv[k++] = tasks;
    argv[k++] = where;
    argv[k++] = (char *)"--ntasks-per-node=1";
    argv[k++] = (char *)"--input=none";
    argv[k++] = (char *)"--no-kill";
    argv[k++] = (char *)"--kill-on-bad-exit=0";
    argv[k++] = (char *)"--gres=none";
    argv[k++] = (char *)"--job-name=tern-doctor";
    if (getenv("SLURM_JOB_ID")) {
        argv[k++] = (char *)"--overlap";
    } else {
        argv[k++] = (char *)"--time=2";
        if (*partition)
            argv[k++] = tern_strf("--partition=%s", partition);
    }
    argv[k++] = (char *)a->o->program;
    argv[k++] = (char *)"doctor";
    argv[k++] = (char *)"--this-node";
    argv[k++] = tern_strf("--plugstack=%s", a->about->plugstack);
    argv[k++] = tern_strf("--plugin-dir=%s", a->about->plugin_dir);
    argv[k++] = tern_strf("--tmp-dir=%s", a->about->tmp_fs);
    if (a->probe)
        argv[k++] = tern_strf("--probe=%s", a->probe);
    argv[k] = NULL;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (null < 0 || dup2(null, 0) < 0 || dup2(words, 1) < 0 || dup2(words, 2) < 0)
        _exit(126);
    execvp("srun", argv);
    dprintf(2, "error: cannot run srun: %s\n", strerror(errno));
    _exit(127);
}

/* SIGTERM makes srun end its job; it has 3 s for that. */
static void finish(pid_t pid, bool in_time)
{
    double until = mono_s() + 3;
    int status;

    if (!in_time)
        kill(pid, SIGTERM);
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (mono_s() > until) {
            kill(-pid, SIGKILL);
            waitpid(pid, &status, 0);
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

static void collect_group(struct collector *a, char *const *nodes, size_t n, const char *partition)
{
    int words[2];

    if (n == 0 || stopped(a) || pipe2(words, O_CLOEXEC) < 0)
        return;
    char *list = tern_slurm_hosts_compress(nodes, n), began[32];
    double until = mono_s() + a->o->timeout_s;
    snprintf(began, sizeof began, "%.3f", real_now());
    for (size_t i = 0; i < n; i++)
        if (!tern_doctor_fact(a->facts, nodes[i], "asked"))
            tern_doctor_facts_add(a->facts, nodes[i], "asked", began);
    pid_t pid = fork();
    if (pid == 0)
        become_srun(a, list, n, partition, words[1]);
    close(words[1]);
    if (pid > 0) {
        listen_to(a, nodes, n, words[0], until);
        finish(pid, mono_s() < until && !stopped(a));
    }
    close(words[0]);
    free(list);
}

/* A node that cannot launch ends the step for the others: those get one more step. */
static void collect_again(struct collector *a, char **nodes, size_t n, const char *partition)
{
    size_t k = 0;

    for (size_t i = 0; i < n; i++)
        if (!tern_doctor_fact(a->facts, nodes[i], "done") &&
            !tern_doctor_fact(a->facts, nodes[i], "words"))
            nodes[k++] = nodes[i];
    if (k < n)
        collect_group(a, nodes, k, partition);
}

/* "slurm-wlm 22.05.8" -> 22.05.8: the client, which loads the plugin on this machine. */
static void find_client(struct tern_doctor_facts *facts)
{
    FILE *f = popen("srun --version 2>/dev/null", "re");
    char name[64], version[64];

    if (f && fscanf(f, "%63s %63s", name, version) == 2)
        tern_doctor_facts_add(facts, "", "client", version);
    if (f)
        pclose(f);
}

/* ------------------------------------------------------------------ which nodes */

static bool in_list(char *const *hosts, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(hosts[i], name) == 0)
            return true;
    return n == 0 && !hosts;
}

/* Idle nodes (in a job its own) go to `ask`; each other node gets a fact that says why not. */
static int choose(struct collector *a, char **wanted, size_t n_wanted, const char **partition,
                  char **ask, size_t *n_ask, struct tern_err *err)
{
    char **own = NULL, text[300];
    size_t n_own = 0;
    struct tern_slurm_nodes *nodes;
    const char *job = getenv("SLURM_JOB_ID") ? getenv("SLURM_JOB_NODELIST") : NULL;

    if (tern_slurm_nodes_load(&nodes, err) < 0)
        return -1;
    if (job && tern_slurm_hosts_expand(job, &own, &n_own, err) < 0) {
        tern_slurm_nodes_free(nodes);
        return -1;
    }
    *n_ask = 0;
    for (size_t i = 0; i < nodes->n && i < a->about->n; i++) {
        const struct tern_slurm_node *node = &nodes->node[i];
        if (tern_str_starts(node->state, "future") || !in_list(wanted, n_wanted, node->name))
            continue;
        bool mine = job && in_list(own, n_own, node->name);
        if (mine || (!job && strcmp(node->state, "idle") == 0)) {
            partition[*n_ask] = a->about->node[i].partition;
            ask[(*n_ask)++] = a->about->node[i].name;
        } else {
            snprintf(text, sizeof text, "%s%s%s", node->state, *node->reason ? ": " : "",
                     node->reason);
            tern_doctor_facts_add(a->facts, node->name, node->usable ? "busy" : "unusable",
                                  job ? "not in this job" : text);
        }
    }
    if (own)
        tern_slurm_hosts_free(own);
    tern_slurm_nodes_free(nodes);
    return 0;
}

static void collect_all(struct collector *a, char **ask, const char **partition, size_t n)
{
    char **group = calloc(n + 1, sizeof *group);

    if (!group)
        abort();
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        const char *of = partition[i];
        for (size_t j = i; of && j < n; j++) {
            if (partition[j] && strcmp(partition[j], of) == 0) {
                group[k++] = ask[j];
                partition[j] = NULL;
            }
        }
        collect_group(a, group, k, of ? of : "");
        collect_again(a, group, k, of ? of : "");
    }
    free(group);
}

void tern_doctor_check_stripes(const char *dir, struct tern_doctor_facts *facts)
{
    char text[TERN_DOCTOR_VALUE];

    snprintf(text, sizeof text, "%.400s: a new file there lies on one of Lustre's storage targets",
             dir);
    for (size_t i = 0; i < facts->n; i++)
        if (strcmp(facts->fact[i].key, "storage-stripes") == 0 &&
            strcmp(facts->fact[i].value, text) == 0)
            return;
    if (tern_lustre_stripes(dir) == 1)
        tern_doctor_facts_add(facts, "", "storage-stripes", text);
}

int tern_doctor_collect(const struct tern_doctor_options *o, const struct tern_slurm_about *about,
                        struct tern_doctor_facts *facts, struct tern_err *err)
{
    struct collector a = {.o = o, .about = about, .facts = facts};
    struct tern_doctor_probe probe = {.fcntl = -1, .flock = -1};
    const struct tern_doctor_gather_options local = {.plugstack = about->plugstack,
                                                     .plugin_dir = about->plugin_dir};
    struct tern_err why = {0};
    char **wanted = NULL, **ask = tern_alloc(about->n + 1, sizeof *ask, "nodes", err);
    const char **partition = tern_alloc(about->n + 1, sizeof *partition, "nodes", err);
    size_t n_wanted = 0, n_ask = 0;
    int rc = -1;

    if (!ask || !partition ||
        (o->nodes && tern_slurm_hosts_expand(o->nodes, &wanted, &n_wanted, err) < 0))
        goto out;
    tern_doctor_gather(&local, put_local, facts);
    find_client(facts);
    if (choose(&a, wanted, n_wanted, partition, ask, &n_ask, err) < 0)
        goto out;
    for (size_t i = 0; i < n_wanted; i++) {
        bool known = false;
        for (size_t k = 0; !known && k < about->n; k++)
            known = strcmp(about->node[k].name, wanted[i]) == 0;
        if (!known) {
            tern_err_set(err, TERN_USAGE, "--node: Slurm knows no node '%s'", wanted[i]);
            goto out;
        }
    }
    if (o->ledger) {
        tern_doctor_check_stripes(o->ledger, facts);
        tern_doctor_facts_add(facts, "", "ledger", o->ledger);
        tern_ledger_check_permissions(o->ledger, put_local, facts);
        if (tern_doctor_probe_open(&probe, o->ledger, &why) < 0)
            tern_doctor_facts_add(facts, "", "storage-write-error", why.text);
        a.probe = probe.dir;
    }
    collect_all(&a, ask, partition, n_ask);
    if (probe.dir)
        tern_doctor_probe_close(&probe, stopped(&a) ? NULL : facts);
    rc = stopped(&a) ? tern_err_set(err, TERN_FAILED, "stopped by a signal; nothing is left behind")
                     : 0;
out:
    if (wanted)
        tern_slurm_hosts_free(wanted);
    free(partition);
    free(ask);
    return rc;
}

/* tern cluster smoke: two training steps on every node, by the parts of a real run. These are
 * sbatch, tern run with its checks, srun, the trainer, a checkpoint, the ledger. */
#include "cmd/cluster/smoke.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/data/data.h"
#include "core/slurm/slurm.h"
#include "core/vcluster/vcluster.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VOCAB = 256, DOCS = 64, DOC_TOKENS = 64, SAID = 400 };

static const char *where, *ledger, *partition, *only_nodes;
static double limit_s = 120;
static bool keep;
static const struct tern_opt opts[] = {
    {"dir", 0, TERN_OPT_TEXT, "DIR", .to.text = &where,
     .help = "a folder on shared storage for its files, which go again; default: this one"},
    {"ledger", 0, TERN_OPT_TEXT, "DIR", .env = "TERN_LEDGER", .to.text = &ledger,
     .help = "where it is recorded; default: ledger in --dir"},
    {"partition", 'p', TERN_OPT_TEXT, "NAME", .to.text = &partition,
     .help = "submit there, not to the default partition"},
    {"nodes", 'w', TERN_OPT_TEXT, "LIST", .to.text = &only_nodes,
     .help = "these nodes alone: trn1-[1-4]"},
    {"timeout", 0, TERN_OPT_REAL, "SECONDS", "120", .to.real = &limit_s,
     .help = "for each of its jobs"},
    {"keep", 0, TERN_OPT_FLAG, .to.flag = &keep, .help = "leave its files"},
    {0},
};

struct node {
    char name[80];
    char said[SAID]; /* why not */
    uint32_t job;
    enum { WAITING, GOOD, BAD, BUSY } state;
};

struct smoke {
    char *dir, *bin, *ledger;
    size_t n, n_free;
    struct node *node;
    char apart[SAID]; /* why the nodes did not work together; "" when they did */
};

/* ------------------------------------------------------------------ its files */

static int write_set(const struct smoke *s, struct tern_err *err)
{
    const struct tern_data_set_kind kind = {.n_vocab = VOCAB, .bos = -1};
    char *path = tern_strf("%s/smoke.tds", s->dir);
    struct tern_data_set_writer *w = tern_data_set_create(path, &kind, err);
    uint32_t ids[DOC_TOKENS];
    int rc = w ? 0 : -1;

    for (uint32_t d = 0; rc == 0 && d < DOCS; d++) {
        for (uint32_t i = 0; i < DOC_TOKENS; i++)
            ids[i] = 1 + (d * 31 + i * i * 7) % (VOCAB - 1);
        rc = tern_data_set_add(w, ids, NULL, DOC_TOKENS, DOC_TOKENS, err);
    }
    if (rc == 0)
        rc = tern_data_set_commit(w, "{}", err);
    else
        tern_data_set_abort(w);
    free(path);
    return rc;
}

static int write_text(const struct smoke *s, const char *name, char *text, struct tern_err *err)
{
    char *path = tern_strf("%s/%s", s->dir, name);
    int rc = tern_fs_replace(path, text, strlen(text), 0644, err);

    free(path);
    free(text);
    return rc;
}

/* The recipe for so many nodes, under a name that tells its run from others. */
static int write_recipe(const struct smoke *s, const char *name, size_t nodes, struct tern_err *err)
{
    char *file = tern_strf("%s.yaml", name);
    int rc = write_text(s, file,
                        tern_strf("version: 1\n"
                                  "name: %s\n"
                                  "model: {config: config.json}\n"
                                  "data: {train: [{path: smoke.tds}], seed: 1}\n"
                                  "batch: {global: %zu, micro: 1, seq_len: 32}\n"
                                  "steps: 2\n"
                                  "optimizer: {lr: 1.0e-3}\n"
                                  "schedule: {kind: constant, warmup: 0}\n"
                                  "checkpoint: {dir: checkpoints-%s, every: 2}\n"
                                  "ledger: {dir: '%s'}\n"
                                  "launch: {ranks_per_node: 1, threads: 1, restarts: 0, health: "
                                  "quick}\n",
                                  name, nodes, name, s->ledger),
                        err);
    free(file);
    return rc;
}

static int write_files(const struct smoke *s, struct tern_err *err)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 32, \"intermediate_size\": 64,\n"
        " \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,\n"
        " \"vocab_size\": 256, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-05,\n"
        " \"rope_theta\": 10000.0, \"tie_word_embeddings\": true, \"hidden_act\": \"silu\",\n"
        " \"bos_token_id\": 1, \"eos_token_id\": 0}\n";

    if (write_set(s, err) < 0 || write_text(s, "config.json", tern_strdup(config), err) < 0)
        return -1;
    return write_text(s, "job.sbatch",
                      tern_strf("#!/bin/bash\nexec '%s/tern' run --kind smoke \"$1\"\n", s->bin),
                      err);
}

/* ------------------------------------------------------------------ jobs */

/* sbatch's answer is the job's number. */
static int submit(const struct smoke *s, const char *name, const char *nodes, size_t n,
                  uint32_t *job, struct tern_err *err)
{
    char *argv[20], text[SAID] = "";
    size_t k = 0, len = 0;
    int fd[2], status = 0;
    int64_t id = 0;

    if (pipe(fd) < 0)
        return tern_err_sys(err, "cannot make a pipe");
    argv[k++] = tern_strdup("sbatch");
    argv[k++] = tern_strdup("--parsable");
    argv[k++] = tern_strf("--job-name=tern-%s", name);
    argv[k++] = tern_strf("--nodes=%zu", n);
    argv[k++] = tern_strdup("--ntasks-per-node=1");
    argv[k++] = tern_strdup("--exclusive");
    argv[k++] = tern_strdup("--no-requeue");
    argv[k++] = tern_strf("--nodelist=%s", nodes);
    argv[k++] = tern_strf("--chdir=%s", s->dir);
    argv[k++] = tern_strf("--output=%s/%s.out", s->dir, name);
    argv[k++] = tern_strdup("--time=10");
    if (partition)
        argv[k++] = tern_strf("--partition=%s", partition);
    argv[k++] = tern_strf("%s/job.sbatch", s->dir);
    argv[k++] = tern_strf("%s/%s.yaml", s->dir, name);
    argv[k] = NULL;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd[1], 1);
        dup2(fd[1], 2);
        close(fd[0]);
        close(fd[1]);
        execvp(argv[0], argv);
        dprintf(2, "cannot run sbatch: %s\n", strerror(errno));
        _exit(127);
    }
    close(fd[1]);
    for (ssize_t got; pid > 0 && len + 1 < sizeof text &&
                      (got = read(fd[0], text + len, sizeof text - 1 - len)) > 0;)
        len += (size_t)got;
    close(fd[0]);
    text[len] = '\0';
    if (pid > 0)
        waitpid(pid, &status, 0);
    for (size_t i = 0; i < k; i++)
        free(argv[i]);
    text[strcspn(text, "\n;")] = '\0';
    if (pid < 0 || status || tern_str_int(text, 1, UINT32_MAX, &id) < 0)
        return tern_err_set(err, TERN_FAILED, "sbatch: %s", *text ? text : "no answer");
    *job = (uint32_t)id;
    return 0;
}

static void cancel(uint32_t job)
{
    char number[16];

    snprintf(number, sizeof number, "%u", job);
    pid_t pid = fork();
    if (pid == 0) {
        execlp("scancel", "scancel", number, (char *)NULL);
        _exit(127);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

/* The cause, from a job's output: the last line, `tern run`'s verdict, and Slurm's first error.  A
 * task that Slurm could not start has the error as its cause, and the verdict is the effect. */
static void say_why(const struct smoke *s, const char *name, char to[SAID])
{
    char *path = tern_strf("%s/%s.out", s->dir, name), *text = NULL, *save = NULL;
    const char *last = NULL, *slurm = NULL;
    size_t len;

    if (tern_fs_read(path, 1 << 20, &text, &len, NULL) == 0) {
        for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
            last = l;
            if (!slurm &&
                (tern_str_starts(l, "srun: error: ") || tern_str_starts(l, "slurmstepd: error: ")))
                slurm = l;
        }
    }
    if (slurm && slurm != last)
        snprintf(to, SAID, "%.190s; %.190s", slurm, last);
    else if (last)
        snprintf(to, SAID, "%s", last);
    free(text);
    free(path);
}

enum { NEVER_BEGAN = 2 };

/* 1 good, 0 bad, NEVER_BEGAN when it was pending at the limit, -1 unknown; `said` then has the
 * reason. */
static int wait_for(const struct smoke *s, uint32_t id, const char *name, int64_t until,
                    char said[SAID], struct tern_err *err)
{
    for (;;) {
        struct tern_slurm_job *job;
        if (tern_slurm_job_load(id, &job, err) < 0)
            return -1;
        bool ended = job->state == TERN_SLURM_JOB_ENDED;
        bool good = ended && strcmp(job->word, "COMPLETED") == 0 && job->exit_status == 0;
        bool waits = job->state == TERN_SLURM_JOB_PENDING;
        snprintf(said, SAID, waits ? "job %u: %s (%.200s)" : "job %u: %s", id, job->word,
                 job->reason);
        tern_slurm_job_free(job);
        if (ended && !good)
            say_why(s, name, said);
        if (ended)
            return good;
        if (tern_clock_boot_ns() > until) {
            cancel(id);
            snprintf(said + strlen(said), SAID - strlen(said), " after %g s", limit_s);
            return waits ? NEVER_BEGAN : 0;
        }
        tern_clock_sleep_ns(100000000);
    }
}

/* ------------------------------------------------------------------ nodes */

static bool wanted(char *const *hosts, const char *name)
{
    for (size_t i = 0; hosts && hosts[i]; i++)
        if (strcmp(hosts[i], name) == 0)
            return true;
    return !hosts;
}

static int find_nodes(struct smoke *s, struct tern_err *err)
{
    struct tern_slurm_nodes *all = NULL;
    char **hosts = NULL;
    size_t n;

    if (only_nodes && tern_slurm_hosts_expand(only_nodes, &hosts, &n, err) < 0)
        return -1;
    if (tern_slurm_nodes_load(&all, err) < 0 ||
        !(s->node = tern_alloc(all->n + 1, sizeof *s->node, "nodes", err)))
        goto out;
    for (size_t i = 0; i < all->n; i++) {
        const struct tern_slurm_node *from = &all->node[i];
        struct node *to = &s->node[s->n];
        if (!wanted(hosts, from->name) || tern_str_starts(from->state, "future"))
            continue;
        s->n++;
        snprintf(to->name, sizeof to->name, "%s", from->name);
        if (from->usable && strcmp(from->state, "idle") == 0) {
            s->n_free++;
        } else {
            to->state = from->usable ? BUSY : BAD;
            snprintf(to->said, sizeof to->said, "%s%s%.300s", from->state,
                     *from->reason ? ": " : "", from->reason);
        }
    }
out:
    tern_slurm_nodes_free(all);
    tern_slurm_hosts_free(hosts);
    if (!s->node)
        return -1;
    return s->n_free ? 0
                     : tern_err_set(err, TERN_TEMPFAIL, "no node is idle: nothing can be tried");
}

/* All idle nodes in one job. */
static int together(struct smoke *s, struct tern_err *err)
{
    char **names = tern_alloc(s->n + 1, sizeof *names, "nodes", err), said[SAID] = "";
    uint32_t job;
    size_t n = 0;

    if (!names)
        return -1;
    for (size_t i = 0; i < s->n; i++)
        if (s->node[i].state == WAITING)
            names[n++] = s->node[i].name;
    char *list = tern_slurm_hosts_compress(names, n);
    int64_t until = tern_clock_boot_ns() + (int64_t)(limit_s * 1e9);
    int rc = write_recipe(s, "smoke", n, err);
    if (rc == 0)
        rc = submit(s, "smoke", list, n, &job, err);
    if (rc == 0)
        rc = wait_for(s, job, "smoke", until, said, err);
    for (size_t i = 0; rc == 1 && i < s->n; i++)
        if (s->node[i].state == WAITING)
            s->node[i].state = GOOD;
    if (rc == 0 || rc == NEVER_BEGAN)
        tern_warn("all together: %s. Each node by itself:", said);
    if (rc == 0)
        snprintf(s->apart, sizeof s->apart, "%s", said);
    free(list);
    free(names);
    return rc < 0 ? -1 : 0;
}

/* The remaining nodes, a job each, at the same time. */
static int one_by_one(struct smoke *s, struct tern_err *err)
{
    int64_t until = tern_clock_boot_ns() + (int64_t)(limit_s * 1e9);

    for (size_t i = 0; i < s->n; i++) {
        struct node *n = &s->node[i];
        struct tern_slurm_node_state now;
        char name[100];
        if (n->state != WAITING)
            continue;
        snprintf(name, sizeof name, "smoke-%s", n->name);
        if (tern_slurm_node_load_state(n->name, &now, err) < 0)
            return -1;
        if (now.drained || now.down || now.failed) { /* found out by the first job's checks */
            n->state = BAD;
            snprintf(n->said, sizeof n->said, "%s: %.300s", now.word, now.reason);
        } else if (write_recipe(s, name, 1, err) < 0 ||
                   submit(s, name, n->name, 1, &n->job, err) < 0) {
            return -1;
        }
    }
    for (size_t i = 0; i < s->n; i++) {
        struct node *n = &s->node[i];
        char name[100];
        if (n->state != WAITING)
            continue;
        snprintf(name, sizeof name, "smoke-%s", n->name);
        int good = wait_for(s, n->job, name, until, n->said, err);
        if (good < 0)
            return -1;
        n->state = good == 1 ? GOOD : good == NEVER_BEGAN ? BUSY : BAD;
    }
    return 0;
}

/* ------------------------------------------------------------------ the verb */

static int prepare(struct smoke *s, struct tern_err *err)
{
    char *base = realpath(where ? where : ".", NULL);

    if (!base)
        return tern_err_sys(err, "%s: cannot be used", where ? where : ".");
    s->bin = tern_fs_self_dir();
    if (!s->bin)
        return tern_err_sys(err, "cannot determine where this program is");
    s->dir = tern_strf("%s/tern-smoke-XXXXXX", base);
    s->ledger = ledger && *ledger == '/' ? tern_strdup(ledger)
                                         : tern_strf("%s/%s", base, ledger ? ledger : "ledger");
    free(base);
    if (!mkdtemp(s->dir))
        return tern_err_sys(err, "%s: cannot make it", s->dir);
    return write_files(s, err);
}

static int report(const struct smoke *s)
{
    static const char *const words[] = {"unknown", "ok", "bad", "busy"};
    int bad = 0, good = 0;

    for (size_t i = 0; i < s->n; i++) {
        const struct node *n = &s->node[i];
        printf("%s: %s%s%s\n", n->name, words[n->state], n->state == GOOD ? "" : ": ",
               n->state == GOOD ? "" : n->said);
        bad += n->state == BAD;
        good += n->state == GOOD;
    }
    /* Each node works alone: the fault lies between them. */
    if (!bad && *s->apart) {
        printf("all together: bad: %s\n", s->apart);
        bad++;
    }
    if (!bad && !good)
        tern_warn("nothing was tried: no job began within %g s", limit_s);
    return bad || !good ? TERN_TEMPFAIL : 0;
}

static int smoke_local(struct tern_err *err)
{
    struct smoke s = {0};
    int rc = tern_fs_check_folder(where ? where : ".", /* or_none= */ false, err);

    if (rc == 0 && ledger)
        rc = tern_fs_check_folder(ledger, /* or_none= */ true, err);
    if (rc == 0)
        rc = find_nodes(&s, err);
    if (rc == 0)
        rc = prepare(&s, err);
    if (rc == 0)
        rc = together(&s, err);
    if (rc == 0)
        rc = one_by_one(&s, err);
    if (rc == 0)
        rc = report(&s);
    if (s.dir && rc == 0 && !keep)
        tern_fs_remove_tree(s.dir, NULL);
    else if (s.dir)
        tern_info("its files are in %s", s.dir);
    free(s.node);
    free(s.dir);
    free(s.bin);
    free(s.ledger);
    return rc;
}

/* On a virtual cluster's head, by this same program. */
static int smoke_there(const char *name, struct tern_err *err)
{
    char *program = tern_fs_beside("tern"), limit[32], *argv[20];
    int n = 0, status = 0;

    snprintf(limit, sizeof limit, "--timeout=%g", limit_s);
    argv[n++] = program;
    argv[n++] = "cluster";
    argv[n++] = "smoke";
    argv[n++] = limit;
    const struct {
        const char *option, *value;
    } given[] = {{"--dir", where},
                 {"--ledger", ledger},
                 {"--partition", partition},
                 {"--nodes", only_nodes}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        if (given[i].value) {
            argv[n++] = (char *)given[i].option;
            argv[n++] = (char *)given[i].value;
        }
    }
    if (keep)
        argv[n++] = "--keep";
    argv[n++] = "here";
    argv[n] = NULL;
    int rc = tern_vcluster_exec(name, NULL, argv, &status, err);
    free(program);
    return rc < 0 ? -1 : status;
}

static int run_smoke(int n, char **args, struct tern_err *err)
{
    if (n && strcmp(args[0], "here") == 0)
        return smoke_local(err);
    char *name = tern_vcluster_find(n ? args[0] : NULL, err);
    int rc = name ? smoke_there(name, err) : -1;
    free(name);
    return rc;
}

const struct tern_cmd smoke_cmd = {
    .name = "smoke",
    .args = "[NAME|here]",
    .summary = "train two steps of a tiny model on every idle node",
    .about = "Runs all parts of a real run: sbatch, `tern run` with its checks, and srun. The "
             "trainer runs on every node at once; a checkpoint and the ledger are written "
             "(attempts of kind 'smoke'). When that fails, every node is tried by itself. Says ok, "
             "bad or busy for each node. 'here' is the Slurm of this machine; else NAME is a "
             "virtual cluster. Exit status 75 when a node is bad, and when none was found good.",
    .examples = "  tern cluster smoke here --dir /fsx\n"
                "  tern cluster smoke trn1-4\n",
    .opts = opts,
    .args_max = 1,
    .run = run_smoke,
};

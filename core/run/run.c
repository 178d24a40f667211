#include "core/run/run.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/check/check.h"
#include "core/run/outcome.h"
#include "core/run/watch.h"
#include "core/slurm/slurm.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One attempt in the making. */
struct attempt {
    const struct tern_run_options *o;
    struct tern_run_place place;
    char id[TERN_ULID_SIZE];
    unsigned number;
    struct tern_ckpt_claim *claim; /* NULL: a workload without checkpoint.dir */
    struct tern_spool *spool;
    char *spool_dir;
    char *resumed; /* the checkpoint it goes on from, or NULL */
    int64_t resumed_step;
    char full[TERN_SHA256_HEX], identity[TERN_SHA256_HEX];
};

static bool is_trainer(const struct attempt *a)
{
    return !a->o->recipe->workload.command;
}

/* ------------------------------------------------------------------ identity */

/* "01J... words of the user": the run that the job has been before it was queued again. */
static bool id_in_comment(const char *comment, char id[TERN_ULID_SIZE])
{
    char word[TERN_ULID_SIZE];

    snprintf(word, sizeof word, "%s", comment);
    if (strlen(word) != TERN_ULID_SIZE - 1 || !tern_ulid_valid(word) ||
        (comment[TERN_ULID_SIZE - 1] && comment[TERN_ULID_SIZE - 1] != ' '))
        return false;
    memcpy(id, word, TERN_ULID_SIZE);
    return true;
}

/* The job's Comment names the run, so that squeue and sacct find it. */
static void set_comment(const struct attempt *a)
{
    struct tern_slurm_job *job = NULL;
    struct tern_err err = {0};
    char id[TERN_ULID_SIZE];

    if (!a->place.slurm)
        return;
    if (tern_slurm_job_load(a->place.job, &job, &err) < 0) {
        tern_warn("%s", err.text);
        return;
    }
    bool has = id_in_comment(job->comment, id);
    if (!has || strcmp(id, a->id) != 0) {
        const char *rest = has ? job->comment + TERN_ULID_SIZE - 1 : job->comment;
        char *text = tern_strf("%s%s%s", a->id, *rest && *rest != ' ' ? " " : "", rest);
        if (tern_slurm_job_set_comment(a->place.job, text, &err) < 0)
            tern_warn("%s", err.text);
        free(text);
    }
    tern_slurm_job_free(job);
}

/* A workload that keeps its checkpoints to itself is known by the job. */
static int identify_by_job(struct attempt *a, struct tern_err *err)
{
    struct tern_slurm_job *job = NULL;
    unsigned last = 0;

    a->resumed_step = -1;
    tern_ulid_new(a->id);
    if (a->place.slurm && a->place.restarts > 0) {
        if (tern_slurm_job_load(a->place.job, &job, err) < 0)
            return -1;
        id_in_comment(job->comment, a->id);
        tern_slurm_job_free(job);
    }
    if (tern_ledger_last_attempt(a->o->recipe->ledger.dir, a->id, &last, err) < 0)
        return -1;
    a->number = last + 1;
    return 0;
}

static int claim(struct attempt *a, struct tern_err *err)
{
    const struct tern_recipe *r = a->o->recipe;
    char owner[400];
    unsigned last = 0;

    tern_ulid_new(a->id);
    if (tern_ckpt_run_identity(r->checkpoint.dir, a->id, err) < 0 ||
        tern_ledger_last_attempt(r->ledger.dir, a->id, &last, err) < 0)
        return -1;
    if (a->place.slurm)
        snprintf(owner, sizeof owner, "%s job %u", a->place.host, a->place.job);
    else
        snprintf(owner, sizeof owner, "%s pid %d", a->place.host, (int)getpid());
    if (tern_ckpt_claim(r->checkpoint.dir, 0, owner, &a->claim, err) < 0)
        return -1;
    /* The ledger may have seen more of this run than a checkpoint folder that was moved. */
    if (tern_ckpt_claim_attempt(a->claim) <= last) {
        tern_ckpt_claim_free(a->claim, true);
        a->claim = NULL;
        if (tern_ckpt_claim(r->checkpoint.dir, last + 1, owner, &a->claim, err) < 0)
            return -1;
    }
    a->number = tern_ckpt_claim_attempt(a->claim);
    return 0;
}

/* A recipe of another run is refused before anything is recorded. */
static int check_same_run(const struct attempt *a, struct tern_err *err)
{
    if (!a->resumed || a->o->accept)
        return 0;
    struct tern_ckpt *c = tern_ckpt_open(a->resumed, err);
    if (!c)
        return -1;
    const char *identity = json_string_value(json_object_get(tern_ckpt_meta(c), "identity_hash"));
    int rc = tern_check_same_run(a->o->recipe, a->resumed, identity, err);
    tern_ckpt_close(c);
    return rc;
}

static int identify(struct attempt *a, struct tern_err *err)
{
    uint64_t step = 0;

    if (!a->o->recipe->checkpoint.dir)
        return identify_by_job(a, err);
    if (claim(a, err) < 0)
        return -1;
    a->resumed_step = -1; /* somebody else's trainer knows itself */
    if (!is_trainer(a))
        return 0;
    if (tern_ckpt_latest(a->o->recipe->checkpoint.dir, &a->resumed, &step, err) < 0)
        return -1;
    a->resumed_step = (int64_t)step;
    return check_same_run(a, err);
}

/* ------------------------------------------------------------------ the ledger's rows */

/* The recipe as used: its text, and what the command line changed. */
static char *recipe_text(const struct attempt *a)
{
    enum { RECIPE_BYTES = 1 << 20 }; /* yaml.h reads no more */
    struct tern_buf b = {0};
    char *text = NULL;
    size_t len = 0;

    if (tern_fs_read(a->o->recipe_path, RECIPE_BYTES, &text, &len, NULL) == 0)
        tern_buf_add(&b, text, len);
    free(text);
    for (size_t i = 0; i < a->o->n_overrides; i++)
        tern_buf_printf(&b, "# --set %s\n", a->o->overrides[i]);
    return b.data;
}

static char *model_words(const struct tern_recipe *r)
{
    if (r->workload.command)
        return tern_strf("workload: %s", r->workload.command[0]);
    if (r->model.from)
        return tern_strf("from %s", r->model.from);
    return tern_strf("random weights, %s", r->model.config);
}

static int write_run(struct attempt *a, struct tern_err *err)
{
    const struct tern_recipe *r = a->o->recipe;
    const struct passwd *pw = getpwuid(getuid());
    char uid[24], *text = recipe_text(a), *model = model_words(r);

    snprintf(uid, sizeof uid, "%u", (unsigned)getuid());
    const struct tern_ledger_run run = {
        .name = r->name,
        .user = pw ? pw->pw_name : uid,
        .recipe_path = a->o->recipe_path,
        .recipe = text,
        .identity_hash = a->identity,
        .full_hash = a->full,
        .model = model,
        .created_ns = tern_clock_wall_ns(),
    };
    int rc = tern_spool_run(a->spool, &run, err);
    free(text);
    free(model);
    return rc;
}

static int write_begin(struct attempt *a, struct tern_err *err)
{
    const struct tern_ledger_attempt row = {
        .job_id = a->place.job,
        .restart_count = a->place.restarts,
        .nodes = a->place.node_list,
        .host = a->place.host,
        .pid = getpid(),
        .world = a->place.nodes * a->place.ranks_per_node,
        .resumed_checkpoint = a->resumed,
        .resumed_step = a->resumed_step,
        .full_hash = a->full,
    };

    return tern_spool_attempt_begin(a->spool, &row, err);
}

/* Opens the spool; whoever comes after finds ledger and spool in the environment. */
static int open_rows(struct attempt *a, struct tern_err *err)
{
    const struct tern_recipe *r = a->o->recipe;

    tern_recipe_hashes(r, a->identity, a->full);
    a->spool_dir = tern_spool_dir(r->ledger.dir, a->id, a->number);
    a->spool = tern_spool_open(r->ledger.dir, a->id, a->number, "run", err);
    if (!a->spool || write_run(a, err) < 0 || write_begin(a, err) < 0 ||
        tern_spool_sync(a->spool, err) < 0)
        return -1;
    setenv("TERN_LEDGER", r->ledger.dir, 1);
    setenv("TERN_RUN_SPOOL", a->spool_dir, 1);
    setenv("TERN_RECIPE", a->o->recipe_path, 1);
    /* Of this step alone: each node's plugin gives the ranks theirs. */
    unsetenv("TERN_RECEIPT");
    return 0;
}

static void write_end(struct attempt *a, const struct tern_run_result *result, int sig)
{
    struct tern_err err = {0};
    const struct tern_ledger_end end = {
        .outcome = result->outcome,
        .exit_code = result->status,
        .signal = sig,
        .cause = result->why[0] ? result->why : NULL,
    };

    int rc = tern_spool_attempt_end(a->spool, &end, &err);
    int rc2 = tern_spool_close(a->spool, rc < 0 ? NULL : &err);
    a->spool = NULL;
    if (rc < 0 || rc2 < 0)
        tern_warn("the ledger does not know how the attempt ended: %s", err.text);
}

/* ------------------------------------------------------------------ running it */

/* A node of the job that Slurm has given up, into `to`. */
static void find_lost_node(const struct attempt *a, char *to, size_t size)
{
    struct tern_slurm_nodes *nodes = NULL;
    struct tern_err err = {0};
    char **hosts = NULL;
    size_t n = 0;

    if (tern_slurm_hosts_expand(a->place.node_list, &hosts, &n, &err) < 0 ||
        tern_slurm_nodes_load(&nodes, &err) < 0) {
        tern_warn("%s", err.text);
        tern_slurm_hosts_free(hosts);
        return;
    }
    for (size_t i = 0; i < nodes->n && !*to; i++) {
        const struct tern_slurm_node *node = &nodes->node[i];
        for (size_t j = 0; j < n && node->down && !*to; j++)
            if (strcmp(hosts[j], node->name) == 0)
                snprintf(to, size, "%s", node->name);
    }
    tern_slurm_nodes_free(nodes);
    tern_slurm_hosts_free(hosts);
}

static void collect(const struct attempt *a, const struct tern_run_watch *w,
                    struct tern_run_facts *f)
{
    struct tern_slurm_job *job = NULL;
    struct tern_err err = {0};
    uint64_t step = 0;
    char *path = NULL;

    f->status = w->first >= 0 ? w->ranks->status[w->first] : 0;
    f->rank = a->place.slurm || w->ranks->n == 1 ? -1 : w->first;
    f->asked = w->asked;
    f->steps = is_trainer(a) ? a->o->recipe->steps : 0;
    f->newest = -1;
    if (is_trainer(a) && tern_ckpt_latest(a->o->recipe->checkpoint.dir, &path, &step, &err) == 0 &&
        path)
        f->newest = (int64_t)step;
    free(path);
    if (!a->place.slurm || (f->status == 0 && f->newest >= f->steps))
        return;
    if (tern_slurm_job_load(a->place.job, &job, &err) == 0)
        f->job_word = job->word;
    else
        tern_warn("%s", err.text);
    tern_slurm_job_free(job);
    find_lost_node(a, f->lost_node, sizeof f->lost_node);
}

static int launch_and_watch(struct attempt *a, struct tern_run_result *result, struct tern_err *err)
{
    struct tern_run_ranks ranks = {0};
    struct tern_run_facts facts = {0};
    sigset_t old;
    struct tern_run_watch w = {
        .ranks = &ranks,
        .spool = a->spool,
        .claim = a->claim,
        .checkpoint_dir = a->o->recipe->checkpoint.dir,
        .ledger_dir = a->o->recipe->ledger.dir,
        .run_id = a->id,
    };
    int sig = 0;

    if (!a->place.slurm && is_trainer(a)) {
        w.meeting = tern_rendezvous_open("127.0.0.1", (int)a->place.ranks_per_node, err);
        if (!w.meeting)
            return -1;
        setenv("TERN_RUN_SOCKET", tern_rendezvous_address(w.meeting), 1);
    }
    tern_run_watch_signals(&w.signals);
    sigprocmask(SIG_BLOCK, &w.signals, &old);
    ranks.old_mask = &old;
    if (tern_run_ranks_start(&ranks, &a->place, a->o, a->number, err) < 0) {
        tern_run_watch(&w);
        result->outcome = "failed";
        result->status = err->code;
        snprintf(result->why, sizeof result->why, "%.500s", err->text);
    } else {
        tern_run_watch(&w);
        collect(a, &w, &facts);
        tern_run_judge(&facts, result, &sig);
    }
    if (w.fenced.code) {
        result->outcome = "failed";
        result->status = w.fenced.code;
        snprintf(result->why, sizeof result->why, "%.500s", w.fenced.text);
    }
    write_end(a, result, sig);
    tern_run_ranks_free(&ranks);
    tern_rendezvous_close(w.meeting);
    tern_run_watch_last_fold(w.ledger_dir, a->id);
    sigprocmask(SIG_SETMASK, &old, NULL);
    return 0;
}

static void announce(const struct attempt *a)
{
    char from[80] = "";

    if (a->resumed)
        snprintf(from, sizeof from, ", from step %" PRId64, a->resumed_step);
    tern_info("run %s, attempt %u: %" PRId64 " node%s x %" PRId64 " rank%s on %s%s", a->id,
              a->number, a->place.nodes, a->place.nodes == 1 ? "" : "s", a->place.ranks_per_node,
              a->place.ranks_per_node == 1 ? "" : "s", a->place.node_list, from);
}

int tern_run(const struct tern_run_options *options, struct tern_run_result *result,
             struct tern_err *err)
{
    struct attempt a = {.o = options};
    int rc = -1;

    if (tern_run_place(&a.place, options->recipe, options->ranks, err) < 0)
        return -1;
    const struct tern_check_options known = {.ranks = a.place.nodes * a.place.ranks_per_node};
    if (tern_check_recipe(options->recipe, &known, err) < 0)
        return -1;
    if (identify(&a, err) < 0 || open_rows(&a, err) < 0)
        goto out;
    set_comment(&a);
    announce(&a);
    memcpy(result->run_id, a.id, sizeof result->run_id);
    result->attempt = a.number;
    result->why[0] = '\0';
    rc = launch_and_watch(&a, result, err);
out:
    tern_spool_close(a.spool, NULL);
    tern_ckpt_claim_free(a.claim, true);
    free(a.resumed);
    free(a.spool_dir);
    return rc;
}

/* ------------------------------------------------------------------ the plugin's word */

int tern_run_job_recipe(const char **path, struct tern_err *err)
{
    const char *node = getenv("SLURMD_NODENAME");

    if (getenv("SLURM_SPANK__SLURM_SPANK_OPTION_tern_tern") && !tern_var("TERN_RECEIPT"))
        return tern_err_set(err, TERN_TEMPFAIL,
                            "the job was submitted with --tern, but tern's plugin did not run on "
                            "node %s. Is tern_spank.so in its plugstack.conf?",
                            node ? node : "(unknown)");
    *path = tern_var("TERN_RECIPE");
    return 0;
}

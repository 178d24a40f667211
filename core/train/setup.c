/* From a recipe to a rank that can take its first step, and back. */
#include "core/train/state.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/inputs/inputs.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { START_PATH = 1024, START_AFTER = 1024 };

/* The checkpoint that all ranks go on from, and what was evaluated after it was published; or the
 * one that model.from's word (DIR/latest) stands for.  "": none. */
struct start {
    char path[START_PATH], after[START_AFTER], model[START_PATH];
    bool damaged; /* some in checkpoint.dir were */
};

/* Rename `path`, so that nothing takes it for a checkpoint. */
static int set_aside(struct train *t, const char *path, const char *why, struct tern_err *err)
{
    char *to = NULL;

    if (tern_ckpt_lease_check(t->checkpoint.lease, err) < 0 ||
        tern_ckpt_mark_bad(path, &to, err) < 0)
        return -1;
    tern_warn("%s; it is now %s", why, to);
    free(to);
    return 0;
}

/* 1: `path` is whole. 0: it is damaged and has been set aside, or has another's name. -1: storage
 * or the lease gives no answer. */
static int whole_or_set_aside(struct train *t, const char *path, struct tern_err *err)
{
    struct tern_err why;

    if (tern_ckpt_verify(path, true, &why) == 0)
        return 1;
    if (why.code == TERN_TEMPFAIL) {
        *err = why; /* storage that fails now is no damage */
        return -1;
    }
    if (!tern_ckpt_is_misnamed(path))
        return set_aside(t, path, why.text, err);
    tern_warn("passed over as a checkpoint: %s", why.text);
    return 0;
}

/* A person can rename those that have another's name.  They are set aside only where the run goes
 * on from an older one, and publishes their steps again. */
static int set_misnamed_aside(struct train *t, const struct tern_ckpt_entry *newer, size_t n,
                              struct tern_err *err)
{
    for (size_t i = 0; i < n; i++)
        if (newer[i].state == TERN_CKPT_BROKEN && tern_ckpt_is_misnamed(newer[i].path) &&
            set_aside(t, newer[i].path, newer[i].why, err) < 0)
            return -1;
    return 0;
}

/* Rank 0: the newest checkpoint whose every byte verifies, or NULL.  Newer ones that are damaged
 * are set aside: their steps are published again. */
static int newest_whole(struct train *t, char **found, bool *damaged, struct tern_err *err)
{
    struct tern_ckpt_entry *had = NULL;
    size_t n = 0;
    int rc = 0;

    *found = NULL;
    if (!tern_fs_exists(t->recipe->checkpoint.dir))
        return 0;
    if (tern_ckpt_list(t->recipe->checkpoint.dir, &had, &n, err) < 0)
        return -1;
    for (size_t i = n; i-- > 0 && rc == 0;) {
        if (had[i].state != TERN_CKPT_GOOD && had[i].state != TERN_CKPT_BROKEN)
            continue;
        rc = whole_or_set_aside(t, had[i].path, err);
        *damaged |= rc == 0;
        if (rc > 0) {
            *found = tern_strdup(had[i].path);
            rc = set_misnamed_aside(t, had + i + 1, n - i - 1, err) < 0 ? -1 : 1;
        }
    }
    tern_ckpt_list_free(had, n);
    if (rc < 0) {
        free(*found);
        *found = NULL;
    }
    return rc < 0 ? -1 : 0;
}

/* Rank 0: neither checkpoint.dir nor the nodes have one to go on from. */
static int may_begin(const struct train *t, const struct start *from, struct tern_err *err)
{
    if (t->rank != 0 || *from->path)
        return 0;
    if (from->damaged && t->recipe->checkpoint.mirror)
        return tern_err_set(err, TERN_TEMPFAIL,
                            "%s: no checkpoint there is whole. The next attempt (`tern run`) takes "
                            "the newest copy in checkpoint.mirror.",
                            t->recipe->checkpoint.dir);
    return tern_ckpt_may_begin(t->recipe->checkpoint.dir, err);
}

/* Rank 0: check that `path` is of this run, and remember which model the recipe names; what it
 * named before stays when it is gone. */
static int remember_model(struct train *t, const char *path, struct tern_err *err)
{
    json_decref(t->checkpoint.model); /* of a checkpoint that was damaged */
    t->checkpoint.model = tern_inputs_model(t->recipe);
    if (!path)
        return 0;
    struct tern_ckpt *c = tern_ckpt_open(path, err);
    if (!c)
        return -1;
    json_t *was = json_object_get(tern_ckpt_meta(c), "model");
    int rc = tern_inputs_same_run(t->recipe, path, tern_ckpt_meta(c), t->options->accept, err);
    if (json_is_null(t->checkpoint.model) && was) {
        json_decref(t->checkpoint.model);
        t->checkpoint.model = json_incref(was);
    }
    tern_ckpt_close(c);
    return rc;
}

/* What was evaluated after `path` was published, as JSON, or "". */
static void find_after(const struct train *t, const char *path, char text[START_AFTER])
{
    struct tern_ckpt *c = tern_ckpt_open(path, NULL);
    json_t *after = c ? tern_ckpt_after_read(t->recipe->checkpoint.dir, tern_ckpt_digest(c)) : NULL;
    char *dump = after ? json_dumps(after, JSON_COMPACT) : NULL;

    if (dump && strlen(dump) < START_AFTER)
        snprintf(text, START_AFTER, "%s", dump);
    free(dump);
    json_decref(after);
    tern_ckpt_close(c);
}

/* Rank 0: the checkpoint to go on from; path "" when there is none.  `brought`: the one that was
 * verified on its way from the nodes just now, or NULL. */
static int find_checkpoint(struct train *t, const char *brought, struct start *to,
                           struct tern_err *err)
{
    char *found = brought ? tern_strdup(brought) : NULL;

    *to = (struct start){.damaged = to->damaged};
    if (t->rank != 0) {
        free(found);
        return 0;
    }
    int rc = found ? 0 : newest_whole(t, &found, &to->damaged, err);
    if (rc == 0 && found && strlen(found) >= sizeof to->path)
        rc = tern_err_set(err, TERN_USAGE, "%s: the path is too long", found);
    if (rc == 0)
        rc = remember_model(t, found, err);
    if (rc == 0 && found) {
        snprintf(to->path, sizeof to->path, "%s", found);
        find_after(t, found, to->after);
    }
    free(found);
    return rc;
}

/* With checkpoint.local: `from`, on rank 0.  A checkpoint that the nodes have, too, may turn out
 * damaged in checkpoint.dir: then theirs is brought. */
static int find_level(struct train *t, struct start *from, struct tern_err *err)
{
    int32_t again = 1;
    int rc = 0;

    for (int tries = 0; rc == 0 && again && tries < 2; tries++) {
        char *brought = NULL;
        if (tern_train_local_recover(t, &brought, err) < 0)
            return -1;
        rc = tern_train_agree(t, find_checkpoint(t, brought, from, err), err);
        const char *step = strrchr(from->path, '-'); /* step-00001500 */
        again = t->checkpoint.local.found > (step ? strtoll(step + 1, NULL, 10) : -1);
        free(brought);
        if (rc == 0)
            rc = tern_fabric_broadcast(t->world, &again, 1, TERN_I32, /* root= */ 0, err);
    }
    return rc < 0 ? -1 : tern_train_agree(t, may_begin(t, from, err), err);
}

/* Rank 0: which checkpoint model.from's word stands for.  While another run writes there, each rank
 * by itself could find another one. */
static int find_model(const struct train *t, struct start *to, struct tern_err *err)
{
    const char *from = t->recipe->model.from;
    char *at = NULL;

    if (t->rank != 0 || *to->path || !from || !tern_ckpt_is_word(from))
        return 0;
    if (tern_ckpt_resolve(from, &at, err) < 0)
        return -1;
    int rc = strlen(at) < sizeof to->model
                 ? 0
                 : tern_err_set(err, TERN_USAGE, "%s: the path is too long", at);
    if (rc == 0)
        snprintf(to->model, sizeof to->model, "%s", at);
    free(at);
    return rc;
}

static int check_vocabulary(const struct train *t, const struct tern_data_set *s,
                            struct tern_err *err)
{
    const uint32_t vocab = (uint32_t)tern_llama_config(t->model)->vocab;

    if (tern_data_set_n_vocab(s) <= vocab)
        return 0;
    return tern_recipe_fail(t->recipe, "data", err,
                            "%s: was tokenised with %u ids, but the model's vocabulary has %u. "
                            "Build it with the model's tokenizer.",
                            tern_data_set_path(s), tern_data_set_n_vocab(s), vocab);
}

static int open_data(struct train *t, struct tern_err *err)
{
    struct train_sets *sets = &t->sets;
    const struct tern_recipe_sets *held_out = &t->recipe->data.held_out;

    sets->stages = tern_inputs_stages_open(t->recipe, err);
    if (!sets->stages || /* all stages have one vocabulary: one set is enough */
        check_vocabulary(t, tern_data_mix_set(tern_data_stages_mix(sets->stages, 0), 0), err) < 0)
        return -1;
    sets->held_out = tern_alloc(held_out->n, sizeof(struct tern_data_set *), "held-out sets", err);
    for (size_t i = 0; sets->held_out && i < held_out->n; i++) {
        sets->held_out[i] = tern_data_set_open(held_out->sets[i].path, err);
        if (!sets->held_out[i] || check_vocabulary(t, sets->held_out[i], err) < 0)
            return -1;
    }
    return sets->held_out ? 0 : -1;
}

static int make_buffers(struct train *t, struct tern_err *err)
{
    struct train_batch *x = &t->batch;
    size_t row = (size_t)t->recipe->batch.seq_len;
    size_t n = (size_t)(t->me.micro_batches * t->recipe->batch.micro) * row;

    x->tokens = tern_alloc(n, sizeof *x->tokens, "a step's samples", err);
    x->targets = tern_alloc(n, sizeof *x->targets, "a step's samples", err);
    x->row = tern_alloc(row + 1, sizeof *x->row, "a row", err);
    x->mask = tern_alloc(n, 1, "a step's samples", err);
    if (t->recipe->data.isolate) {
        x->starts = tern_alloc(n, sizeof *x->starts, "a step's samples", err);
        if (!x->starts)
            return -1;
    }
    t->meter.ranks = tern_alloc((size_t)t->size, sizeof *t->meter.ranks, "the ranks' times", err);
    t->meter.sorted = tern_alloc((size_t)t->size, sizeof *t->meter.sorted, "the ranks' times", err);
    if (!x->tokens || !x->targets || !x->row || !x->mask || !t->meter.ranks || !t->meter.sorted)
        return -1;
    return tern_train_profile_open(t, err) < 0 ? -1 : tern_train_ahead_open(t, err);
}

/* Rank 0: open the ledger's spool, and take the lease on the checkpoint folder. */
static int open_records(struct train *t, struct tern_err *err)
{
    const char *dir = t->recipe->checkpoint.dir, *spool = t->options->spool_dir;
    char *ledger_dir, host[256] = "", owner[320];
    unsigned attempt = 0;

    if (t->rank != 0)
        return 0;
    if (spool) {
        if (tern_ledger_spool_dir_parse(spool, &ledger_dir, t->run_id, &attempt, err) < 0)
            return -1;
        free(ledger_dir);
        struct tern_err lost;
        t->spool = tern_ledger_spool_open_dir(spool, "rank0", &lost);
        if (!t->spool)
            tern_warn("nothing will be recorded: %s", lost.text);
        return tern_ckpt_lease_attach(dir, attempt, &t->checkpoint.lease, err);
    }
    tern_info("no supervisor (tern run): nothing is recorded in the ledger");
    if (tern_inputs_check_vocabulary(t->recipe, err) < 0)
        return -1;
    tern_ledger_ulid_new(t->run_id);
    gethostname(host, sizeof host - 1);
    snprintf(owner, sizeof owner, "tern train on %s", host);
    if (tern_ckpt_run_identity(dir, t->run_id, err) < 0)
        return -1;
    return tern_ckpt_lease_acquire(dir, 0, owner, &t->checkpoint.lease, err);
}

static int set_up(struct train *t, struct tern_err *err)
{
    struct start from = {0};

    t->progress.loss = NAN;
    tern_train_guard_init(&t->progress.guard, t->recipe);
    tern_train_stop_init(&t->progress.stop_rule, t->recipe);
    if (tern_plan_rank(t->recipe, t->size, t->rank, &t->me, err) < 0)
        return -1; /* every rank has the same error */
    t->me.wired = tern_fabric_nodes(t->options->fabric) > 1;
    int rc = open_records(t, err);
    if (t->recipe->checkpoint.local) {
        if (tern_train_agree(t, rc, err) < 0 || tern_train_local_open(t, err) < 0 ||
            find_level(t, &from, err) < 0)
            return -1;
    } else if (rc == 0) {
        rc = find_checkpoint(t, /* brought= */ NULL, &from, err);
        rc = rc < 0 ? -1 : may_begin(t, &from, err);
    }
    if (rc == 0)
        rc = find_model(t, &from, err);
    /* Rank 0's own work is done by now, so that one round shares its outcome. */
    if (tern_train_measure_peak(t, rc, err) < 0 ||
        tern_fabric_broadcast(t->world, &from, sizeof from, TERN_U8, 0, err) < 0)
        return -1;
    rc = *from.path ? tern_train_resume(t, from.path, from.after, err)
                    : tern_train_begin(t, *from.model ? from.model : t->recipe->model.from, err);
    if (rc == 0 && (open_data(t, err) < 0 || make_buffers(t, err) < 0))
        rc = -1;
    if (rc == 0)
        tern_train_local_trim(t);
    if (t->recipe->checkpoint.partner &&
        (tern_train_agree(t, rc, err) < 0 || tern_train_partner_open(t, err) < 0))
        return -1;
    double lacking = rc == 0 ? tern_train_staging_open(t) : 0;
    if (tern_train_agree_sum(t, rc, &lacking, err) < 0)
        return -1;
    if (lacking > 0)
        tern_train_staging_drop(t);
    if (tern_train_groups_open(t, tern_llama_config(t->model), err) < 0)
        return -1;
    return *from.path ? 0 : tern_llama_magnitudes_init(t->model, err);
}

int tern_train_setup(struct train *t, struct tern_err *err)
{
    int rc = set_up(t, err);

    if (rc < 0 && !t->options->spool_dir) { /* nothing was done under its number */
        tern_ckpt_lease_withdraw(t->checkpoint.lease);
        t->checkpoint.lease = NULL;
    }
    return rc;
}

void tern_train_teardown(struct train *t)
{
    struct train_batch *x = &t->batch;
    struct tern_err err;

    tern_train_save_close(t); /* its thread uses the lease, and the model's arrays */
    if (tern_ledger_spool_close(t->spool, &err) < 0)
        tern_warn("%s", err.text);
    tern_ckpt_lease_free(t->checkpoint.lease, t->options->spool_dir == NULL);
    tern_train_ahead_close(t);
    for (size_t i = 0; t->sets.held_out && i < t->recipe->data.held_out.n; i++)
        tern_data_set_free(t->sets.held_out[i]);
    free(t->sets.held_out);
    tern_data_stages_free(t->sets.stages);
    json_decref(t->checkpoint.model);
    tern_train_stop_free(&t->progress.stop_rule);
    tern_train_groups_close(t);
    tern_fabric_close(t->options->fabric); /* after an error messages may still come into arrays */
    tern_train_partner_free(t);
    tern_train_pass_close(t);
    tern_train_units_close(t);
    tern_llama_free(t->model);
    free(t->optimizer.master);
    free(t->optimizer.exp_avg);
    free(t->optimizer.exp_avg_sq);
    free(x->tokens);
    free(x->targets);
    free(x->row);
    free(x->mask);
    free(x->starts);
    free(t->meter.ranks);
    free(t->meter.sorted);
    tern_train_profile_close(t);
    free(t->checkpoint.files_dir);
    free(t->checkpoint.resumed_from);
}

/* What the files of this room share. */
#ifndef TERN_TRAIN_STATE_H
#define TERN_TRAIN_STATE_H

#include "core/ckpt/ckpt.h"
#include "core/data/data.h"
#include "core/fabric/fabric.h"
#include "core/infer/infer.h"
#include "core/ledger/ledger.h"
#include "core/llama/llama.h"
#include "core/plan/plan.h"
#include "core/recipe/recipe.h"
#include "core/train/interval.h"
#include "core/train/guard.h"
#include "core/train/stop.h"
#include "core/train/train.h"

#define TRAIN_REAL (sizeof(tern_real) == sizeof(double) ? TERN_F64 : TERN_F32)

/* Communicators; NULL where this rank has no other to talk to. */
struct train_groups {
    struct tern_comm *tensor, *data;
    struct tern_comm *model;                /* the model-parallel group: tensor x pipeline */
    struct tern_comm *kv_heads;             /* tensor ranks with the same head of keys and values */
    struct tern_comm *tied;                 /* the stages of embedding and head, of a tied model */
    struct tern_comm *receive[2], *send[2]; /* from and to a neighbour stage: [0] activations
                                               forward, [1] gradients backward */
};

/* What is trained of this rank's shard; the model's own arrays. */
struct train_weights {
    tern_real *params, *grads; /* [n] */
    uint16_t *bf16;            /* [n] in place of params, where they are in bf16 */
};

/* Gradients that wait for more, so that one sum over the data ranks is begun for all. */
struct train_held {
    size_t unit;      /* the first */
    uint64_t from, n; /* elements */
};

/* grads.c: the rows that this rank updates, and AdamW's state of them. */
struct train_optimizer {
    struct train_unit *units; /* by the model's units */
    size_t begun;             /* units whose sums this step has begun */
    struct train_held held;
    uint64_t n;                      /* elements of the moments */
    tern_real *master;               /* [n] in fp32, where the parameters are in bf16 */
    tern_real *exp_avg, *exp_avg_sq; /* [n] */
};

/* pass.c: this stage's list of passes, and its messages that are on their way, by slot. */
struct train_passes {
    struct tern_plan_pipeline plan;
    struct train_send *sends;
};

/* Token sets. */
struct train_sets {
    struct tern_data_stages *stages;
    struct tern_data_set **held_out; /* [recipe->data.held_out.n] */
};

/* A step's micro-batches: [micro_batches, micro, seq_len], and a row with its last target. */
struct train_batch {
    int32_t *tokens, *targets, *row;
    uint8_t *mask;
    int32_t *starts; /* where documents begin; NULL: they see each other */
};

/* Where a step's time went, in seconds on this rank. */
struct train_phases {
    double data, forward, backward, comm, optimizer;
    double inside;            /* the model's own communication in the pass under way */
    double memory, predicted; /* bytes: the most so far, and what core/plan predicts */
};

/* record.c: what is measured. */
struct train_meter {
    struct train_phases phases; /* of the present step */
    struct train_phases *ranks; /* [size], of all ranks */
    double *sorted;             /* [size] */
    double peak;                /* FLOP/s of all ranks' matrix products; 0: nothing is recorded */
    uint64_t predicted_bytes;   /* of memory, by core/plan */
    uint64_t resident_bytes;    /* the most that the kernel counted so far, */
    uint64_t memory_bytes;      /* and of it what is this rank's */
};

struct train_partner;

/* local.c: the checkpoints on the nodes. */
struct train_local {
    char *dir;       /* this node's folder of the run; NULL: checkpoint.local is not set */
    bool off;        /* it has failed several times in a row, and is not used any more */
    unsigned failed; /* saves there in a row, up to the newest */
    int64_t step;    /* of the newest that all nodes have; -1: of none in this attempt, */
    int64_t best;    /* and the best step then; */
    uint64_t bytes;  /* of all its files; 0: not known */
    int64_t done;    /* the newest step that was or is being flushed, or need not be; -1: none */
    int64_t first;   /* on the nodes, too, of the best evaluation: flushed before `step`, if it is
                      * newer than `done`; -1: none, */
    int64_t first_best; /* and the best step when it was saved */
    bool owed;     /* that of `step` is given up for a save to checkpoint.dir, which may fail */
    int64_t found; /* at the start: the newest that was complete on the nodes; -1: none */
    struct tern_ckpt_saving *flush; /* under way, or NULL */
    bool all_ready;                 /* all ranks have done their part of its stage */
    struct train_partner *partner;  /* partner.c; NULL: no other node has copies */
    bool all_idle;                  /* no rank exchanges files, */
    bool all_copied;                /* and each has those of its last exchange */
};

/* Rank 0's hold on the checkpoint folder, and what the next checkpoint is made of. */
struct train_checkpoint {
    struct tern_ckpt_lease *lease;     /* of rank 0, else NULL */
    int64_t heartbeat_ns;              /* the lease's last one (boot clock) */
    char *resumed_from;                /* the checkpoint that this attempt began from, or NULL */
    char *files_dir;                   /* config.json and the tokenizer are copied from here */
    char *config;                      /* of rank 0: config.json, where no file is one; or NULL */
    json_t *model;                     /* of rank 0: tern_inputs_model */
    char digest[65];                   /* of the newest checkpoint; "" without one */
    struct tern_ckpt_staging *staging; /* NULL: training waits for its checkpoints */
    struct tern_ckpt_saving *saving;   /* under way, or NULL: */
    uint64_t saving_step;              /* its step, */
    int64_t saving_best;               /* the best step then, -1: none, */
    bool saving_local;                 /* it goes to the nodes, */
    char *saving_files;                /* files_dir as it was when it began, or NULL, */
    int64_t stall_ns;                  /* how long this rank waited for it, */
    bool all_ready;                    /* all ranks have done their part of its stage, */
    bool met;                          /* and met in its last exchange */
    /* The save or flush to checkpoint.dir: its step, the best step then, and whether rank 0 has
     * given it its name. */
    uint64_t publishing_step;
    int64_t publishing_best;
    bool published;
    /* Of a flush: saving_files of the save to the nodes that was under way when it began, or NULL.
     * Without it pruning would take the tokenizer away before it is copied. */
    char *publishing_files;
    unsigned failed; /* of these in a row, up to the newest */
    struct train_local local;
    struct tern_train_interval interval;
};

/* What a checkpoint remembers of the run. */
struct train_progress {
    uint64_t step;    /* finished */
    uint64_t sample;  /* the next one */
    uint64_t updates; /* that the moments have seen */
    double loss;      /* of the last step */
    bool evaluated;   /* the held-out sets, at this step */
    bool ended;       /* by evaluate.stop, before the last step */
    const char
        *not_finite_set; /* a held-out set whose last loss is not finite; borrowed, or NULL */
    struct tern_train_guard guard;
    struct tern_train_stop_rule stop_rule;
};

/* patience.c */
struct train_patience {
    enum tern_fabric_activity doing;
    int64_t since_ns;                   /* boot clock */
    int64_t lost_ns;                    /* stopped or waiting, so far, then */
    int64_t saved_lost_ns;              /* stopped, so far, at the last save */
    double longest[TERN_FABRIC_DOINGS]; /* seconds */
    bool computed;                      /* a step is behind it */
};

struct train_ahead; /* ahead.c */

struct train {
    const struct tern_train_options *options;
    const struct tern_recipe *recipe;
    struct tern_comm *world;
    int rank, size;
    struct tern_plan_rank me;        /* this rank's place in the layout */
    struct tern_llama *model;        /* this rank's shard */
    struct tern_ledger_spool *spool; /* of rank 0, else NULL */
    char run_id[TERN_ULID_SIZE];
    struct train_groups groups;
    struct train_weights weights;
    struct train_optimizer optimizer;
    struct train_passes passes;
    struct train_sets sets;
    struct train_batch batch;
    struct train_ahead *ahead; /* NULL: every set is on disk */
    struct train_meter meter;
    struct train_profile *profile; /* profile.c; NULL: none is written */
    struct train_checkpoint checkpoint;
    struct train_progress progress;
    struct train_patience patience;
    bool together; /* the run has failed, all ranks know, and they still answer each other */
};

/* ---- patience.c ---- */

/* What this rank does from now on.  Ranks that wait for it allow ten times the longest that it has
 * taken so far in this attempt.  They allow at least 5 seconds for a step, and ten minutes where
 * that depends on storage, or no step has been measured.  Time in which this rank was stopped, or
 * waited for others, is no time that it took. */
void tern_train_set_doing(struct train *t, enum tern_fabric_activity doing);
/* The same, of a clock of the caller's: at `now_ns` rank has lost `lost_ns` so far.  Returns the
 * seconds that others allow. */
double tern_train_patience_turn(struct train_patience *p, enum tern_fabric_activity doing,
                                int64_t now_ns, int64_t lost_ns);
/* A save of `seconds` has ended, likewise. */
void tern_train_patience_save(struct train_patience *p, double seconds, int64_t lost_ns);
/* A save took `seconds` in the background: as long as a rank may take that waits for one. */
void tern_train_note_save(struct train *t, double seconds);

/* ---- ahead.c ---- */

/* Begin to read ahead, where a set is at a URL, from t->progress.sample on. */
int tern_train_ahead_open(struct train *t, struct tern_err *err);
void tern_train_ahead_close(struct train *t);
/* A step begins, at t->progress.sample. */
void tern_train_ahead_move(struct train *t);
/* How many samples of later steps are here, without a gap. */
double tern_train_ahead_samples(struct train *t);

/* ---- groups.c ---- */

/* Make the communicators that t->me asks for.  Collective. */
int tern_train_groups_open(struct train *t, const struct tern_model_config *c,
                           struct tern_err *err);
void tern_train_groups_close(struct train *t);
/* The groups in which this rank has node peers: ranks whose memory it reaches. */
struct train_node_peers {
    bool tensor, data, kv_heads, tied,
        neighbours; /* neighbours: stages before and after this one */
};
struct train_node_peers tern_train_find_node_peers(const struct train *t,
                                                   const struct tern_model_config *c);
/* The table of the tensor ranks' operations, timed. */
struct tern_llama_peers tern_train_make_peers(struct train *t);

/* ---- model.c ---- */

/* Make this rank's shard, and fill it from a checkpoint of this run, or from the model at `from`,
 * the same on all ranks; NULL: at random. */
int tern_train_resume(struct train *t, const char *path, const char *after, struct tern_err *err);
int tern_train_begin(struct train *t, const char *from, struct tern_err *err);

/* ---- pass.c ---- */

int tern_train_pass_open(struct train *t, struct tern_err *err);
void tern_train_pass_close(struct train *t);
/* All micro-batches forward and backward: gradients of scale times the summed loss are added, and
 * their sums over the data ranks are begun.  `sum` is set where the head is, on each of its tensor
 * ranks. Collective. */
int tern_train_run_passes(struct train *t, double scale, struct tern_llama_loss *sum,
                          struct tern_err *err);
/* The loss of one batch, where the head is; `ctx` is the struct train.  Collective in the
 * model-parallel group. */
int tern_train_compute_loss(void *ctx, const struct tern_llama_batch *b,
                            struct tern_llama_loss *ret_loss, struct tern_err *err);

/* ---- grads.c ---- */

/* Deal the model's units to the data ranks; sets the optimizer's `n`. */
int tern_train_units_open(struct train *t, struct tern_err *err);
void tern_train_units_close(struct train *t);

/* Rows of a part whose moments are here. */
struct train_rows {
    int64_t from, rows;            /* in the part */
    uint64_t offset, state, count; /* in the parameters, in the moments; elements */
};
/* False when there are none.  `own`: each row on one data rank alone, also where every data rank
 * holds all of them. */
bool tern_train_find_rows(const struct train *t, size_t part, bool own,
                          struct train_rows *ret_rows);

/* A bucket's gradients are whole on this rank: begin their sums. */
int tern_train_begin_bucket(void *ctx, int bucket, struct tern_err *err);
/* Wait until all sums are there. */
int tern_train_finish_sums(struct train *t, struct tern_err *err);
/* The parameters from element `offset` on, of type *ret_type. */
void *tern_train_params_at(const struct train_weights *w, uint64_t offset,
                           enum tern_type *ret_type);

/* Of the gradients that this rank counts; the sum over the world is the whole model's. */
double tern_train_sum_squares(const struct train *t);
void tern_train_update(struct train *t, double lr, double grad_scale);
/* Gather the updated rows on all data ranks. */
int tern_train_gather_params(struct train *t, struct tern_err *err);

/* ---- setup.c ---- */

/* Everything up to the first step.  Collective. */
int tern_train_setup(struct train *t, struct tern_err *err);
void tern_train_teardown(struct train *t);

/* ---- agree.c ---- */

/* Ranks compare `rc` of what they just did: where any failed, all return -1 with the error of the
 * first that did, "rank 2 (node): ...".  Collective. */
int tern_train_agree(struct train *t, int rc, struct tern_err *err);
/* Likewise, and *sum becomes the sum over ranks, in the same round. */
int tern_train_agree_sum(struct train *t, int rc, double *sum, struct tern_err *err);
/* Errors, `sum` (which becomes the sums over ranks) and stop requests in one round, for the end of
 * a step.  Also whether all ranks have done their part of a save (checkpoint.all_ready).
 * Collective. */
enum { TRAIN_LOSS, TRAIN_TARGETS, TRAIN_SQUARES, TRAIN_SUMS };
int tern_train_agree_step(struct train *t, int rc, double sum[TRAIN_SUMS],
                          enum tern_train_stop *ret_stop, struct tern_err *err);
/* The strongest stop request of any rank.  Collective. */
int tern_train_agree_stop(struct train *t, enum tern_train_stop *ret_stop, struct tern_err *err);

/* ---- step.c ---- */

struct tern_llama_batch tern_train_batch(const struct train *t, int64_t micro);
/* One optimizer step, recorded.  *stop: the stop request that the ranks agree on.  Collective. */
int tern_train_take_step(struct train *t, enum tern_train_stop *stop, struct tern_err *err);

/* ---- record.c ---- */

/* Compare `rc` as tern_train_agree does.  If values are recorded, measure the peak that MFU is a
 * share of: products of squares by all ranks at once, some milliseconds.  Collective. */
int tern_train_measure_peak(struct train *t, int rc, struct tern_err *err);
/* Look how much memory this rank uses; cheap unless it is more than ever.  The ledger's
 * memory_bytes is the most that was resident (ru_maxrss), less what belongs to node peers
 * (tern_fabric_peers_bytes).  So sums over ranks count nothing twice, and core/plan predicts it.
 * Slurm's MaxRSS is larger by the node peers' part. */
void tern_train_measure_memory(struct train_meter *m, const struct tern_fabric *f);
/* Write the present step's values into the ledger.  `seconds`: the step's.  The part that no phase
 * of a rank has is added to the rank's comm in t->meter.ranks. */
void tern_train_record_step(struct train *t, double lr, double norm, double tokens, double seconds);

/* ---- mix.c ---- */

/* Rank 0: record each training set's tokenizer as a parameter "tokenizer/PATH", and its packing,
 * which is logged, too, as "packing/PATH", unless it is concat. */
void tern_train_record_sets(struct train *t);
/* Record how many samples, tokens and epochs of each training set the run has had so far, as values
 * "mix/PATH/samples", ... of the present step. */
void tern_train_record_mix(struct train *t);

/* ---- profile.c ---- */

enum train_span_kind {
    TRAIN_SPAN_DATA,
    TRAIN_SPAN_FORWARD,
    TRAIN_SPAN_BACKWARD,
    TRAIN_SPAN_RECEIVE,
    TRAIN_SPAN_SEND,
    TRAIN_SPAN_SENT,   /* until a message has left */
    TRAIN_SPAN_TENSOR, /* an operation of the tensor ranks */
    TRAIN_SPAN_BUCKET, /* sums over the data ranks are begun */
    TRAIN_SPAN_SUMS,
    TRAIN_SPAN_NORM,
    TRAIN_SPAN_AGREE,
    TRAIN_SPAN_UPDATE,
    TRAIN_SPAN_GATHER,
};

/* Allocate the profile, where options->profile names one; after the model is there. */
int tern_train_profile_open(struct train *t, struct tern_err *err);
void tern_train_profile_close(struct train *t);
/* Before and after each step; only at the profiled one they do something.  Collective. */
int tern_train_profile_begin(struct train *t, struct tern_err *err);
int tern_train_profile_write(struct train *t, struct tern_err *err);
/* A span from `from` (boot clock) until now, of step `of` of the pipeline, or NULL.  Spans lie
 * apart or one in the other.  `p` may be NULL. */
void tern_train_add_span(struct train_profile *p, enum train_span_kind kind, int64_t from,
                         const struct tern_plan_step *of);

/* ---- skip.c ---- */

/* Forget what was usual before, if the next step is the first of a stage of data. */
void tern_train_enter_stage(struct train *t);
/* Log and record that the next step made no update, for the reason `why`, with its samples.  -1
 * when it was one too many. */
int tern_train_skip(struct train *t, const char *why, struct tern_err *err);
/* Does evaluate.stop end the run after this step?  If so, log it and record an event; the step's
 * checkpoint, saved afterwards, says it too.  `already`: this step's checkpoint is there and does
 * not say it; the event is of kind "over". */
void tern_train_check_end(struct train *t, bool already);
/* Record an event, with a text that is logged elsewhere. */
void tern_train_record_event(struct train *t, const char *kind, const char *severity,
                             const char *text);
/* Record why the run cannot go on; the supervisor prints it. */
void tern_train_record_failure(struct train *t, const struct tern_err *err);
/* After the last step: -1 where the model is worthless, so that the run has failed. */
int tern_train_check_result(const struct train *t, struct tern_err *err);

/* ---- save.c ---- */

/* The arrays that this rank saves, into `arrays` (tern_train_most_arrays); returns how many, with
 * malloc'ed names. */
size_t tern_train_arrays(const struct train *t, struct tern_ckpt_array *arrays);
size_t tern_train_most_arrays(const struct train *t);
/* Begin to save the present step: t->checkpoint.saving.  Collective. */
int tern_train_begin_save(struct train *t, struct tern_ckpt_staging *staging, struct tern_err *err);
/* Where a save that has ended put its checkpoint. */
enum train_saved {
    TRAIN_DIRECT,  /* into checkpoint.dir, by a save */
    TRAIN_LOCAL,   /* into checkpoint.local */
    TRAIN_FLUSHED, /* into checkpoint.dir, by a flush */
};
/* A checkpoint is there: record what it took.  In checkpoint.dir its row is there, too, and older
 * ones are pruned. */
void tern_train_record_save(struct train *t, const struct tern_ckpt_saved *saved,
                            enum train_saved where);
/* A save or flush of step `step` to checkpoint.dir begins. */
void tern_train_begin_publishing(struct train_checkpoint *c, uint64_t step, int64_t best);
/* How the ranks of a save or flush communicate. */
struct tern_ckpt_peers tern_train_save_peers(struct train *t);
/* `tell` of a save or flush to checkpoint.dir; `ctx` is the struct train. */
void tern_train_follow_save(void *ctx, enum tern_ckpt_word word,
                            const struct tern_ckpt_saved *saved);
/* Note that the last step was evaluated after it was saved: a later attempt does not repeat it. */
void tern_train_save_evaluated(const struct train *t);

/* ---- interval.c ---- */

/* Is there to be a checkpoint of this step?  Every rank gives the same answer.  Once a step. */
bool tern_train_save_due(struct train *t);
/* With checkpoint.every: auto, a checkpoint was published: rank 0 decides when the next ones are
 * due, and says so where that changes.  Collective. */
int tern_train_interval_update(struct train *t, const struct tern_ckpt_saved *saved,
                               struct tern_err *err);

/* ---- local.c, recover.c ---- */

struct tern_ckpt_local;

/* Does this rank work in its node's folder?  One of each node does. */
bool tern_train_local_leads(const struct train *t);
/* Rank 0: an event of kind checkpoint, logged as well. */
void tern_train_local_say(struct train *t, const char *severity, const char *text);
/* Bring `found` to checkpoint.dir, as t->checkpoint.local.best wants it pruned.  Collective.  1: it
 * is published.  0: it is damaged, and passed over with a word.  -1: it cannot be read or written
 * now, or ranks have lost each other. */
int tern_train_local_bring(struct train *t, const struct tern_ckpt_local *found,
                           struct tern_err *err);

/* Where this node's checkpoints lie, if the recipe has checkpoint.local.  Collective, as is each of
 * these that returns an int. */
int tern_train_local_open(struct train *t, struct tern_err *err);
/* Give up a flush that is under way. */
void tern_train_local_close(struct train *t);
/* Before a start is chosen: bring the newest checkpoint that is complete on the nodes to
 * checkpoint.dir, if that has none as new. *ret_path, malloc'ed, is then that one's, else
 * unchanged. t->checkpoint.local.found is set. */
int tern_train_local_recover(struct train *t, char **ret_path, struct tern_err *err);
/* The start is chosen: remove newer ones from the node, whose steps come again. */
void tern_train_local_trim(struct train *t);
/* The run needs none any more: remove this node's. */
void tern_train_local_end(struct train *t);
/* Does the next save go to the nodes? */
bool tern_train_local_is_used(const struct train *t);
/* The save under way is on the nodes: it is flushed next. */
void tern_train_local_saved(struct train *t, const struct tern_ckpt_saved *saved);
/* A save to checkpoint.dir is to begin: no flush goes on beside it, and no flush of an older step
 * begins. */
int tern_train_local_give_way(struct train *t, struct tern_err *err);
/* It has failed: the newest on the nodes shall be in checkpoint.dir after all. */
void tern_train_local_take_back(struct train *t);
/* It has failed there for reason `why`: it begins anew, to checkpoint.dir. */
int tern_train_local_redirect(struct train *t, const struct tern_err *why, struct tern_err *err);
/* Behind a step: go on with the flush under way where all ranks are ready, or begin the next. */
int tern_train_local_go_on(struct train *t, struct tern_err *err);
/* Before a save: wait for the flush of a step that checkpoint.keep_every keeps. Note that of the
 * best evaluation, which stays on the nodes until it is flushed. */
int tern_train_local_settle(struct train *t, struct tern_err *err);
/* Is a checkpoint on the nodes that is not in checkpoint.dir yet, and shall be? */
bool tern_train_local_is_pending(const struct train *t);
/* Flush the newest, and wait for it.  -1: it has failed. */
int tern_train_local_finish(struct train *t, struct tern_err *err);

/* ---- partner.c ---- */

/* With checkpoint.partner: the ranks choose the node that gets copies of their files.  Collective.
 */
int tern_train_partner_open(struct train *t, struct tern_err *err);
/* Behind a step: what is ready of the exchange under way goes on. */
int tern_train_partner_go_on(struct train *t, struct tern_err *err);
/* Is none under way on this rank? */
bool tern_train_partner_is_idle(const struct train *t);
/* Has this rank ended its last exchange, with all files? */
bool tern_train_partner_has_copied(const struct train *t);
/* Where all ranks are idle: the step of the last exchange counts as copied, if all ranks have it.
 * Exchange the files of the newest step that all nodes have, if that is a new one. */
void tern_train_partner_begin(struct train *t);
/* Steps that stay on this node: the newest that all pairs have copied, and the one that some still
 * copy. */
void tern_train_partner_keeps(const struct train *t, uint64_t kept[2]);
/* No more is wanted of the exchange under way: wait for its end, soon.  Collective. */
int tern_train_partner_stop(struct train *t, struct tern_err *err);
/* Close its files; and, when the fabric is closed, free its memory. */
void tern_train_partner_close(struct train *t);
void tern_train_partner_free(struct train *t);

/* ---- background.c ---- */

/* The staging, where checkpoints are to be written while training goes on.  1: no memory for it. */
int tern_train_staging_open(struct train *t);
/* Some rank has no memory for it: none uses one. */
void tern_train_staging_drop(struct train *t);
/* Publish a checkpoint of the present step, and wait for it; before, for the one under way.
 * Collective. */
int tern_train_save(struct train *t, struct tern_err *err);
/* A checkpoint of checkpoint.every: begun, with a staging; else published.  One that fails for a
 * reason that may pass is logged and recorded, and training goes on.  Collective. */
int tern_train_save_periodic(struct train *t, struct tern_err *err);
/* Behind a step: go on with the save under way where all ranks are ready.  Collective. */
int tern_train_save_go_on(struct train *t, struct tern_err *err);
/* Wait for the save under way, if there is one.  Collective. */
int tern_train_save_settle(struct train *t, struct tern_err *err);
/* The run has failed, and the ranks are still together: finish the save under way.  Collective. */
void tern_train_save_last(struct train *t);
/* `what` has failed (a save or a flush to checkpoint.dir): 0 where training goes on all the same,
 * which is logged and recorded.  The same on all ranks. */
int tern_train_save_failed(struct train *t, const char *what, const struct tern_err *why,
                           struct tern_err *err);
/* Give up the save under way, and free the staging. */
void tern_train_save_close(struct train *t);

#endif

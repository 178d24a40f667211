/* The run ledger: the history of every run, kept so that no crash loses it.
 *
 *     LEDGER/ledger.db                                   catalogue of runs, attempts, checkpoints
 *     LEDGER/runs/RUN/run.db                             everything about one run
 *     LEDGER/runs/RUN/spool/ATTEMPT/WRITER.N.spool       the truth: the records of each process
 *
 *     rank 0 --append--> rank0.0.spool --+
 *     tern run --------> run.0.spool ----+--fold--> run.db --fold--> ledger.db
 *     tern metric -----> metric-7.0.spool+             |                |
 *                              |                       +------ read ----+
 *                              +------- records that no fold has seen --+
 *
 * Writers, folders and readers never wait for each other:
 *
 *   A writer appends records to a spool file of its own, each by one write(2) of a framed,
 *   checksummed, chained piece (frame.h).  A written record survives a kill -9 of the writer; after
 *   tern_ledger_spool_sync() it survives a power cut.  There is no lock, rename or database.
 *
 *   A folder (the run's owner, or any process later) turns spools into run.db and ledger.db.  Each
 *   is a whole SQLite snapshot, put in place by rename.  So no SQLite lock depends on a network
 *   file system, and plain `sqlite3` reads it anywhere.  Folding is idempotent: killed at any
 *   moment, or done twice or by two at once, it gives the content of a rebuild from the spools.
 *
 *   A reader takes a snapshot and adds, in memory, the newer records of the spools.
 *
 * Steps count finished optimizer steps: the first is 1; 0 is before training.  An *attempt* is one
 * try under one Slurm job and restart count, counted from 1.  A value of attempt A at step S is
 * effective if every later attempt began after S.  An attempt begins after the step it resumed
 * from.  Where that is not known, it begins at its first value of the same metric (or evaluation
 * set, or checkpoint).  Of two values at one step (an evaluation after a resume) the newer is
 * effective.  Superseded values stay queryable.  NaN and infinities are values: in SQL NaN is NULL
 * with class 1, the infinities are REAL with classes 2 and 3.
 *
 * Threads: any number may use this room; each struct belongs to one thread at a time.
 */
#ifndef TERN_LEDGER_LEDGER_H
#define TERN_LEDGER_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/str.h"

/* ---------------------------------------------------------------- run identity */

#define TERN_ULID_SIZE 27 /* 26 characters and the NUL */

/* A new ULID (https://github.com/ulid/spec): 48 bits of milliseconds, 80 of the kernel's
 * randomness, Crockford base 32; sorts by time of creation.  Returns `to`. */
char *tern_ledger_ulid_new(char to[TERN_ULID_SIZE]);
/* Is `s` a ULID in capitals? */
bool tern_ledger_ulid_valid(const char *s);

/* ---------------------------------------------------------------- records
 *
 * One struct for writing and reading.  A text may be NULL (unknown) and then reads back as NULL.
 * Members under "read only" are filled in by readers and ignored by writers.
 */

struct tern_ledger_run {
    const char *name;          /* from the recipe */
    const char *user;          /* login name */
    const char *recipe_path;   /* as given */
    const char *recipe;        /* its text as used */
    const char *identity_hash; /* of what may not change between attempts */
    const char *full_hash;     /* of the whole recipe */
    const char *model;         /* short words for lists: "llama 25.3M, from models/base" */
    int64_t created_ns;        /* wall clock */
    /* read only */
    const char *id;
    const char *state;             /* the newest attempt's outcome; "running" while it has none */
    uint32_t attempts;             /* how many */
    int64_t job_id;                /* the newest attempt's, 0 for none */
    int64_t array_job, array_task; /* likewise, as an attempt's */
    int64_t last_step;             /* the newest, or where a later attempt cut it; -1 for none */
    double last_loss;   /* metric "loss" of the newest step that has it; NaN for none or NaN */
    bool has_loss;      /* false: none */
    int64_t updated_ns; /* of the newest record */
    int64_t lost;       /* records that the storage did not take */
    int64_t ckpt_step;  /* the newest published or verified checkpoint, -1 for none */
    int64_t steps;      /* of the whole run, as planned (TERN_LEDGER_STEPS); -1: not recorded */
    double tokens_per_second, step_seconds; /* of the newest step that has them; NaN for none */
    const char *tags;                       /* between blanks, sorted; NULL for none */
};

struct tern_ledger_attempt {
    const char *kind;               /* "train" (also when NULL); precompile, trial, smoke, health:
                                       then its values never count as the run's */
    int64_t job_id;                 /* Slurm's, 0 outside Slurm */
    int64_t restart_count;          /* SLURM_RESTART_COUNT */
    const char *nodes;              /* host list: "trn1-dy-compute-[1-4]" */
    const char *host;               /* where the owner ran */
    int64_t pid;                    /* of the owner */
    int64_t world;                  /* ranks */
    const char *resumed_checkpoint; /* path; NULL when it began from scratch */
    int64_t resumed_step;           /* -1 when unknown (an external trainer); 0 from scratch */
    const char *full_hash;          /* the recipe this attempt ran with */
    int64_t array_job, array_task;  /* of a member of a job array, SLURM_ARRAY_JOB_ID and
                                       SLURM_ARRAY_TASK_ID; else array_job is 0 */
    /* read only */
    const char *run_id;
    uint32_t attempt;
    int64_t begin_ns, end_ns; /* wall clock; 0 when not known, not ended */
    const char *outcome;      /* NULL while it runs */
    int64_t exit_code, signal;
    const char *cause;
    int64_t first_step, last_step; /* that have values; -1 for none */
};

struct tern_ledger_end {
    const char *outcome; /* one word: done, failed, node_fail, time_limit, preempted, reservation,
                            halted, ... */
    int64_t exit_code;   /* of tern_code */
    int64_t signal;      /* that ended it, 0 for none */
    const char *cause;   /* a sentence: what ended it, with rank and node */
};

#define TERN_LEDGER_STEP_MAX (INT64_C(1) << 53) /* of writers: readers have steps as doubles */

struct tern_ledger_value {
    const char *name; /* "loss", "lr", "rank3/step_seconds": 1 to 200 bytes */
    double value;
};

struct tern_ledger_eval {
    int64_t step;
    const char *set;       /* the held-out set's name */
    double nll;            /* negative log-likelihood in nats, summed over the predicted tokens */
    int64_t tokens, bytes; /* predicted tokens; bytes of text they stand for, 0 when unknown */
    /* read only */
    uint32_t attempt;
    bool effective;
    double ppl_token, ppl_byte; /* exp(nll / tokens), exp(nll / bytes); NaN without a divisor */
    int64_t wall_ns;
};

struct tern_ledger_checkpoint {
    int64_t step;
    const char *path;
    int64_t bytes, shards;
    const char *manifest_sha256; /* hex */
    const char *state; /* writing, published, verified, failed, deleted; foreign for a path that an
                          external trainer reported */
    /* read only */
    const char *run_id;
    uint32_t attempt;
    bool effective;
    int64_t wall_ns;
};

struct tern_ledger_event {
    const char *kind;     /* one word: restart, node, signal, gap, note, ... */
    const char *severity; /* info, warn, error */
    const char *node;
    const char *text;
    /* read only */
    uint32_t attempt;
    const char *writer;
    int64_t wall_ns;
};

/* One check of one node, or of all of them together. */
struct tern_ledger_health {
    const char *check;    /* its id: "mounts", "neuron-ecc", "ring-bandwidth" */
    const char *node;     /* NULL: not of one node */
    const char *verdict;  /* ok, node_bad, fabric_bad, storage_bad, unknown, skipped */
    const char *severity; /* info, warn, error */
    const char *text;     /* the finding and its remedy; NULL for none */
    double value;         /* the measured value; NaN for none */
    const char *unit;     /* "GB/s"; NULL without a value */
    double seconds;       /* that the check took */
    /* read only */
    uint32_t attempt;
    const char *writer;
    int64_t wall_ns;
};

/* ---------------------------------------------------------------- writing: a spool
 *
 * A full disk must not end a training run.  So every record call returns
 *     0   written: in the ledger even if this process is killed now,
 *    -1   not written, and `err` says why: the caller logs it and goes on,
 *     1   not written for a reason that was already reported: `err` is untouched.
 * A record that cannot be written waits in memory, up to 4 MiB, until the storage takes it. Without
 * room to wait it is lost, and a value that still waits at the close is lost, too.  An event of
 * kind "gap" gives the number of lost records and their steps.  A file system that can promise room
 * (fallocate) keeps a little for that event.  A ledger whose folder is removed, moved or replaced
 * gets the file once more.  The calls allocate nothing after the first ones of each size.
 *
 * Several threads may write one spool; a record does not wait for another thread's sync.  Open and
 * close are of one thread.
 */

struct tern_ledger_spool;
struct tern_ledger_rows;

/* The spool folder of an attempt, malloc'ed: what `tern run` puts into TERN_RUN_SPOOL. */
char *tern_ledger_spool_dir(const char *ledger_dir, const char *run_id, unsigned attempt);
/* Undo it: the three parts of a spool folder's path.  *ledger_dir is malloc'ed. */
int tern_ledger_spool_dir_parse(const char *spool_dir, char **ledger_dir,
                                char run_id[TERN_ULID_SIZE], unsigned *attempt,
                                struct tern_err *err);

/* Begin a new file, making folders as needed.  `writer` names the process ([a-zA-Z0-9_.-], at most
 * 64): "run", "rank0", "metric-1234"; the same name twice makes two files, never one shared.
 * `run_id` is a ULID, `attempt` 1 to 999999.  NULL with `err` on failure.  A caller that can live
 * without a ledger may pass NULL to every call below, which then does nothing and returns 0. */
struct tern_ledger_spool *tern_ledger_spool_open(const char *ledger_dir, const char *run_id,
                                                 unsigned attempt, const char *writer,
                                                 struct tern_err *err);
/* The same from TERN_RUN_SPOOL's value. */
struct tern_ledger_spool *tern_ledger_spool_open_dir(const char *spool_dir, const char *writer,
                                                     struct tern_err *err);
/* Write what waits, sync and free.  Also frees when it fails; on -1 `err` gives the number of
 * lost records and their steps. */
int tern_ledger_spool_close(struct tern_ledger_spool *s, struct tern_err *err);

/* Make everything written so far survive a power cut.  If the storage refuses, the records since
 * the last good sync are written again to a new file, which is synced instead. */
int tern_ledger_spool_sync(struct tern_ledger_spool *s, struct tern_err *err);

/* Show without a record that the attempt is at work (by the file's mtime).  Its owner calls this
 * many times in TERN_LEDGER_SILENT_S. */
void tern_ledger_spool_heartbeat(struct tern_ledger_spool *s);

/* Records lost so far, those that wait not among them. */
uint64_t tern_ledger_spool_dropped(struct tern_ledger_spool *s);

/* Records that follow were made at this time (since 1970), which other programs noted: for imports.
 * 0: at the clock's time again. */
void tern_ledger_spool_set_time(struct tern_ledger_spool *s, int64_t wall_ns);

/* Describes the run; each attempt writes it again, the newest holds. */
int tern_ledger_spool_run(struct tern_ledger_spool *s, const struct tern_ledger_run *r,
                          struct tern_err *err);
int tern_ledger_spool_attempt_begin(struct tern_ledger_spool *s,
                                    const struct tern_ledger_attempt *a, struct tern_err *err);
int tern_ledger_spool_attempt_end(struct tern_ledger_spool *s, const struct tern_ledger_end *e,
                                  struct tern_err *err);
/* `n` values (1 to 1024) of one step.  Of two values of one name and step in one attempt the newer
 * holds: ranks that all report prefix the name ("rank3/..."). */
int tern_ledger_spool_step(struct tern_ledger_spool *s, int64_t step,
                           const struct tern_ledger_value *values, size_t n, struct tern_err *err);
int tern_ledger_spool_eval(struct tern_ledger_spool *s, const struct tern_ledger_eval *e,
                           struct tern_err *err);
/* A checkpoint is known by its path; the newest record of it holds.  Write "writing", and sync,
 * before it gets its name, and "published" behind that: a reader that sees the name finds a row. */
int tern_ledger_spool_checkpoint(struct tern_ledger_spool *s,
                                 const struct tern_ledger_checkpoint *c, struct tern_err *err);
int tern_ledger_spool_event(struct tern_ledger_spool *s, const struct tern_ledger_event *e,
                            struct tern_err *err);
int tern_ledger_spool_health(struct tern_ledger_spool *s, const struct tern_ledger_health *h,
                             struct tern_err *err);
/* A fact of the attempt: "kernels" = "avx512", "blas" = "openblas 0.3.21 SKYLAKEX". */
#define TERN_LEDGER_RESUMED "resumed_step"  /* of an attempt that did not begin with it */
#define TERN_LEDGER_STEPS "steps"           /* of the whole run, as planned */
#define TERN_LEDGER_PARAMETERS "parameters" /* of the whole model, not of a rank's part */
#define TERN_LEDGER_TRAINABLE "trainable_parameters"
#define TERN_LEDGER_TERN "tern"                  /* the version that ran the attempt */
#define TERN_LEDGER_TOKENIZER "tokenizer_sha256" /* of its vocabulary, as in a token set's head */
#define TERN_LEDGER_INPUT "input."               /* input.KEY: "SHA256 PATH" */
#define TERN_LEDGER_PARENT_RUN "parent.run"      /* whose checkpoint the weights are from */
#define TERN_LEDGER_PARENT_STEP "parent.step"
int tern_ledger_spool_param(struct tern_ledger_spool *s, const char *name, const char *value,
                            struct tern_err *err);

/* ---------------------------------------------------------------- tags and notes
 *
 * A user's words about a run, at any time; only its owner may add some.  They are events (tag,
 * untag, note, unnote) in a spool of their own; views `tag` and `note` of run.db have those that
 * hold.  Neither makes a run look alive, or newer than it is.
 */

enum { TERN_LEDGER_TAG_MAX = 64, TERN_LEDGER_NOTE_MAX = 4000 };

/* [A-Za-z0-9._:/+-], at most TERN_LEDGER_TAG_MAX of them, not - first; else TERN_USAGE. */
int tern_ledger_tag_check(const char *tag, struct tern_err *err);
/* Give the run that tag, or take it away.  Nothing is folded. */
int tern_ledger_tag(const char *ledger_dir, const char *run_id, const char *tag, bool remove,
                    struct tern_err *err);
/* Add a note: UTF-8 without control characters but line breaks, 1 to TERN_LEDGER_NOTE_MAX bytes. */
int tern_ledger_note(const char *ledger_dir, const char *run_id, const char *text,
                     struct tern_err *err);
/* Take away the note whose `record` the view `note` has. */
int tern_ledger_note_remove(const char *ledger_dir, const char *run_id, const char *record,
                            struct tern_err *err);

/* ---------------------------------------------------------------- evaluations beside the run
 *
 * A checkpoint's perplexity by another process than the run's (`tern eval RUN --checkpoints`).  It
 * is an event (eval) in the attempt that made the checkpoint, in a spool of its own as notes have.
 * The event tells what was evaluated, how and by what.  Where it `counts`, a value of the run goes
 * with it (tern_ledger_evals), so that lists and plots have it.  The run's own evaluation of a step
 * is not replaced: then it does not count.  It does not count either where it was done in another
 * way than the run does.
 */

#define TERN_LEDGER_EVALUATED "eval" /* the kind of these events */
struct tern_ledger_evaluated {
    struct tern_ledger_eval eval;  /* its attempt, too, is written */
    const char *checkpoint_sha256; /* of the checkpoint's manifest, hex */
    const char *set_sha256;        /* of the token set's header, hex */
    const char *precision;         /* "fp32" */
    int64_t seq_len;               /* tokens of a row */
    bool isolate;                  /* documents of a row did not see each other */
    const char *by;                /* "tern 0.4.0, avx2 kernels, 2 ranks" */
    bool counts;
};

/* The spool for such evaluations of one attempt. */
struct tern_ledger_spool *tern_ledger_evaluated_open(const char *ledger_dir, const char *run_id,
                                                     unsigned attempt, struct tern_err *err);
/* Record one there, and sync. */
int tern_ledger_evaluated_add(struct tern_ledger_spool *s, const struct tern_ledger_evaluated *e,
                              struct tern_err *err);

/* ---------------------------------------------------------------- shared ledgers
 *
 * A ledger whose folder other users may write to is shared. Each user has a ledger of their own in
 * it, to which no other user writes:
 *
 *     LEDGER/u/UID/ledger.db, LEDGER/u/UID/runs/...
 *
 * Such a folder is called a home; every function here takes one as `ledger_dir`.  Below a home only
 * files of its owner or of root are read, and no links.  Of a ledger that is not shared, or was not
 * when the caller's runs began, the home is the ledger's folder itself.
 */

/* The readers of a run: by the umask of its first attempt; its user; the group; all users.  The
 * latter two make a new ledger a shared one. */
enum tern_ledger_mode {
    TERN_LEDGER_UMASK,
    TERN_LEDGER_PRIVATE,
    TERN_LEDGER_GROUP,
    TERN_LEDGER_ALL,
};

/* The home that the caller writes to; *out is malloc'ed.  TERN_USAGE where another user has taken
 * its name.  Makes nothing. */
int tern_ledger_home(const char *ledger_dir, enum tern_ledger_mode mode, char **out,
                     struct tern_err *err);
/* Make the run's folder in that home, with its permissions; files that are there already get them.
 * `run_id` NULL: the home alone, where it is a user's in a shared ledger. */
int tern_ledger_make(const char *home, const char *run_id, enum tern_ledger_mode mode,
                     struct tern_err *err);
/* Is it the home of a user in a shared ledger, and whose? */
bool tern_ledger_home_uid(const char *home, uint32_t *uid);
/* May a folder or file below a home be read: is it its owner's (or root's), and no link?  True of
 * a path that does not exist or lies below no home; one that may not be read is logged once. */
bool tern_ledger_sound(const char *path, bool folder);
/* A user's name, or number; malloc'ed. */
char *tern_ledger_user(uint32_t uid);

/* The homes of a ledger: the caller's own, and with `all` those of all users that may be read, the
 * caller's first.  Free with tern_ledger_rows_free, as
 * rows->names. */
int tern_ledger_homes(const char *ledger_dir, bool all, struct tern_ledger_rows *out,
                      struct tern_err *err);
/* The run that a user typed (tern_ledger_find; a whole id goes before a name), or that job `job`
 * belongs to (NULL: any). Its home is malloc'ed. It is looked for among the caller's runs, then
 * among all users'. */
int tern_ledger_locate(const char *ledger_dir, const char *typed, const char *job, char **home,
                       char run_id[TERN_ULID_SIZE], struct tern_err *err);

/* The faults of a ledger's permissions, a call each: `id` is ledger-open (a catalogue is read by
 * more than a run in it) or ledger-others (others may write to a user's folder). Or it is
 * ledger-taken (it is another's) or ledger-sticky (others may rename it); `text` begins with the
 * path. */
void tern_ledger_check_permissions(const char *ledger_dir,
                                   void (*put)(void *arg, const char *id, const char *text),
                                   void *arg);

/* ---------------------------------------------------------------- folding
 *
 * A fold costs about as much as copying run.db. A process that folds again and again should rest
 * between two folds for some ten times the last one's time.
 */

/* Bring runs/RUN/run.db up to its spools; does nothing when nothing is new. */
int tern_ledger_fold(const char *ledger_dir, const char *run_id, struct tern_err *err);
/* The same from the spools alone. */
int tern_ledger_rebuild(const char *ledger_dir, const char *run_id, struct tern_err *err);
/* Bring ledger.db up to all run.db.  Reads only those that changed. */
int tern_ledger_fold_catalog(const char *ledger_dir, struct tern_err *err);
/* The same from every run.db, whatever ledger.db says. */
int tern_ledger_rebuild_catalog(const char *ledger_dir, struct tern_err *err);

/* ---------------------------------------------------------------- reading */

/* A fresh view of the catalogue, or of one run; frees with tern_ledger_close.  A view does not
 * change while it is open.  The catalogue's view holds no values of steps. */
struct tern_ledger;
struct tern_ledger *tern_ledger_open(const char *ledger_dir, struct tern_err *err);
struct tern_ledger *tern_ledger_open_run(const char *ledger_dir, const char *run_id,
                                         struct tern_err *err);
/* The catalogues of several homes in one.  Where two have a run of one id, the later home's is
 * called ID@UID there.  A home that cannot be read is left out with a word. */
struct tern_ledger *tern_ledger_open_homes(const struct tern_ledger_rows *homes,
                                           struct tern_err *err);
void tern_ledger_close(struct tern_ledger *l);

/* A run by a name that a user may type: its id, or a unique beginning of it.  Or its name (then the
 * newest of that name), "latest" or NULL (the newest).  From the catalogue's view. */
int tern_ledger_find(struct tern_ledger *catalogue, const char *typed, char run_id[TERN_ULID_SIZE],
                     struct tern_err *err);

/* Rows of one kind, with the memory of their texts: free with tern_ledger_rows_free.  Start from
 * {0}. */
struct tern_ledger_rows {
    size_t n;
    union {
        void *any;
        struct tern_ledger_run *runs;
        struct tern_ledger_attempt *attempts;
        struct tern_ledger_checkpoint *checkpoints;
        struct tern_ledger_eval *evals;
        struct tern_ledger_evaluated *evaluated;
        struct tern_ledger_event *events;
        struct tern_ledger_health *health;
        const char **names;
    };
    void *texts;
};
void tern_ledger_rows_free(struct tern_ledger_rows *rows);

/* Newest last.  A run's view has one run; the catalogue has runs, attempts and checkpoints. */
int tern_ledger_runs(struct tern_ledger *l, struct tern_ledger_rows *out, struct tern_err *err);
/* Without the recipes of runs whose number of steps is known: most of the bytes. */
int tern_ledger_runs_brief(struct tern_ledger *l, struct tern_ledger_rows *out,
                           struct tern_err *err);
int tern_ledger_attempts(struct tern_ledger *l, struct tern_ledger_rows *out, struct tern_err *err);
/* Of one run: those that an attempt of it made; a copy, say, was only ever verified.  wall_ns is
 * that time, also of one that was deleted since. */
int tern_ledger_checkpoints_made(struct tern_ledger *l, struct tern_ledger_rows *out,
                                 struct tern_err *err);
int tern_ledger_checkpoints(struct tern_ledger *l, struct tern_ledger_rows *out,
                            struct tern_err *err);
int tern_ledger_evals(struct tern_ledger *l, struct tern_ledger_rows *out, struct tern_err *err);
int tern_ledger_events(struct tern_ledger *l, struct tern_ledger_rows *out, struct tern_err *err);
/* Those that were evaluated beside the run, oldest first (a run's view). */
int tern_ledger_evaluated_rows(struct tern_ledger *l, struct tern_ledger_rows *out,
                               struct tern_err *err);
/* The one that `e`, a row of tern_ledger_evals, came from; NULL: the run evaluated it itself. */
const struct tern_ledger_evaluated *tern_ledger_evaluated_of(const struct tern_ledger_rows *rows,
                                                             const struct tern_ledger_eval *e);
int tern_ledger_health_rows(struct tern_ledger *l, struct tern_ledger_rows *out,
                            struct tern_err *err);
/* Names of all metrics, sorted (a run's view). */
int tern_ledger_metrics(struct tern_ledger *l, struct tern_ledger_rows *out, struct tern_err *err);

/* A job as squeue shows it: "4711", or "4711_3" for a member of an array; "" for none.  Returns
 * `to`. */
enum { TERN_LEDGER_JOB_SIZE = 48 };
char *tern_ledger_job_name(char to[TERN_LEDGER_JOB_SIZE], int64_t job_id, int64_t array_job,
                           int64_t array_task);
/* Is `name` a job by that name or by its own number (of an array's master: any of its members)? 1,
 * 0, or -1 when they are no job's name. */
int tern_ledger_job_is(const char *name, const struct tern_ledger_attempt *a);

/* The points of one metric in order of step: effective ones, or with `all` the superseded too (in
 * order of attempt, then step).  Free with tern_ledger_series_free; start from {0}. */
struct tern_ledger_series {
    size_t n;
    double *step, *value; /* [n]; as doubles, exact to 2^53, since that is what plots take; below
                             2^63, so that int64_t has them */
    uint32_t *attempt;    /* [n] */
    int64_t *wall_ns;     /* [n] */
};
int tern_ledger_series(struct tern_ledger *l, const char *metric, bool all,
                       struct tern_ledger_series *out, struct tern_err *err);
void tern_ledger_series_free(struct tern_ledger_series *s);

/* The effective points of one metric for a picture, most of them summed up in parts: consecutive
 * points, at most TERN_LEDGER_PART_POINTS.  A part whose points the picture needs is read. */
enum { TERN_LEDGER_PART_POINTS = 128 };
struct tern_ledger_part {
    int64_t from, to;              /* steps of its first and its last point */
    int64_t first_step, last_step; /* of its first and last finite value */
    double first, last, low, high; /* finite values; 0 where there is none */
    uint32_t points, finite;       /* how many, and how many of them are finite */
};
struct tern_ledger_curve;
/* 0 with a curve, which belongs to the view `l` and is freed before it; or 1, and the series is to
 * be read. That is of a run that is short, has a metric's steps again, or is not sound. */
int tern_ledger_curve_open(struct tern_ledger *l, const char *metric,
                           struct tern_ledger_curve **ret_curve);
void tern_ledger_curve_free(struct tern_ledger_curve *c);
/* Its parts in order of step, of the curve. */
const struct tern_ledger_part *tern_ledger_curve_parts(const struct tern_ledger_curve *c,
                                                       size_t *ret_n);
/* The points of its part `i`, as a series has them: *ret_step and *ret_value [*ret_n] hold until
 * the next call. */
int tern_ledger_curve_read(struct tern_ledger_curve *c, size_t i, const double **ret_step,
                           const double **ret_value, size_t *ret_n, struct tern_err *err);

/* The points of one metric in one attempt, superseded ones too, in order of step.  Each goes to
 * `take`, which may end the walk with -1.  None of that name: no point. */
struct tern_ledger_point {
    int64_t step;
    double value;
    int64_t wall_ns;
};
typedef int tern_ledger_take_point(void *self, const struct tern_ledger_point *p,
                                   struct tern_err *err);
/* Those behind step `behind`, or up to it and made later than `later_ns`. */
struct tern_ledger_points {
    const char *metric;
    uint32_t attempt;
    int64_t behind;   /* -1: all steps are behind it */
    int64_t later_ns; /* of those up to `behind`; INT64_MAX: none of them */
};
int tern_ledger_points(struct tern_ledger *l, const struct tern_ledger_points *which,
                       tern_ledger_take_point *take, void *self, struct tern_err *err);
/* How many there are up to step `behind`. */
int tern_ledger_points_count(struct tern_ledger *l, const struct tern_ledger_points *which,
                             uint64_t *ret_n, struct tern_err *err);

/* ---------------------------------------------------------------- SQL for people */

enum tern_ledger_cell_kind {
    TERN_LEDGER_NULL,
    TERN_LEDGER_INT,
    TERN_LEDGER_REAL,
    TERN_LEDGER_TEXT
};

struct tern_ledger_cell {
    enum tern_ledger_cell_kind kind;
    int64_t integer;
    double real;
    const char *text; /* of every kind but NULL, as sqlite3 would print it; blobs as hex */
};

struct tern_ledger_table {
    size_t n_rows, n_columns;
    const char **names;             /* [n_columns] */
    struct tern_ledger_cell *cells; /* [n_rows][n_columns] */
    bool cut;                       /* there were more rows than `max_rows` */
    void *texts;
};

/* Run one statement that only reads; anything else is refused by SQLite's authorizer.  At most
 * `max_rows` rows, 64 MiB of text and `seconds` of work. */
int tern_ledger_sql(struct tern_ledger *l, const char *sql, size_t max_rows, double seconds,
                    struct tern_ledger_table *out, struct tern_err *err);
void tern_ledger_table_free(struct tern_ledger_table *t);

/* ---------------------------------------------------------------- verifying */

struct tern_ledger_check {
    uint64_t files, records, bytes; /* looked at, sound */
    uint64_t in_flight;             /* files that end in a torn record or in zeros: harmless */
    uint64_t damaged;               /* places where bytes differ from those written */
    uint64_t lost;                  /* gap events of writers: records that they could not write */
    bool unfolded;                  /* run.db is behind the spools: harmless */
};

/* Check one run: every frame of every spool, and that run.db is sound and says what a rebuild would
 * say.  One line for each finding goes to `findings` (path, byte range, lost records).  0 also when
 * there are findings. */
int tern_ledger_verify(const char *ledger_dir, const char *run_id, struct tern_ledger_check *out,
                       struct tern_buf *findings, struct tern_err *err);

/* Check ledger.db: that it is as it was published, and says of the runs `ids` (as of
 * tern_ledger_ids) what their run.db say.  *ret_damaged: the number of findings, one line each.  A
 * ledger.db that is not there, or behind, is no finding: readers bring it up to the runs. */
int tern_ledger_verify_catalogue(const char *ledger_dir, const struct tern_ledger_rows *ids,
                                 uint64_t *ret_damaged, struct tern_buf *findings,
                                 struct tern_err *err);

/* ---------------------------------------------------------------- attempts */

/* An attempt without an end whose files were not touched for so long has lost its owner. */
enum { TERN_LEDGER_SILENT_S = 180 };
/* Seconds since the newest attempt's last record or heartbeat, by this machine's clock against the
 * file server's; 0 where that is not known. */
double tern_ledger_silence(const char *ledger_dir, const char *run_id);

/* The greatest attempt that has a spool folder, 0 for none: the next one is one more. */
int tern_ledger_last_attempt(const char *ledger_dir, const char *run_id, unsigned *out,
                             struct tern_err *err);

/* Take what home `from` has of a run into home `to`: spools and logs that `to` lacks, and longer
 * ones of those it has.  A run that is new in `to` appears whole, with the permissions it had.
 * TERN_USAGE where a file contradicts that of `to`; then nothing is taken.  A call that is killed
 * leaves whole files, and the next one goes on.  Nothing is folded.  `dry_run`: only counts. */
struct tern_ledger_merged {
    bool new_run;          /* `to` did not have the run */
    uint64_t files, bytes; /* taken */
    uint64_t grown;        /* of the files: longer than those in `to` */
};
int tern_ledger_merge(const char *from_home, const char *to_home, const char *run_id, bool dry_run,
                      struct tern_ledger_merged *ret_merged, struct tern_err *err);

/* The ids of all runs under `ledger_dir`, sorted, as rows->names. */
int tern_ledger_ids(const char *ledger_dir, struct tern_ledger_rows *out, struct tern_err *err);

#endif

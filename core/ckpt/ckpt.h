/* Checkpoints: named sharded arrays on disk.  Published whole, verified, loaded into any layout.
 *
 * This room knows arrays, a barrier and a gather; it knows no model.  A checkpoint is a folder
 *
 *     step-00001500/
 *         shard-00000-of-00004.safetensors    one a rank: the slices that rank owns
 *         manifest.json                       global shapes, slices, digests, and the caller's meta
 *         config.json tokenizer.model ...     small files that make it complete on its own
 *
 * whose name appears by one rename, after every byte is durable and checked.  There is no pointer
 * file: the newest checkpoint is the highest step whose manifest verifies.  Beside it may lie
 * `step-N.tmp-A` (being written by attempt A), `step-N.bad-K` (refused once, kept for people) and
 * `.trash-...` (being deleted).  No reader takes one of these for a checkpoint.
 *
 * Order of calls, on every rank:
 *
 *     tern_ckpt_lease_acquire        the fence, once an attempt: its owner...
 *     tern_ckpt_lease_attach         ...and the other ranks
 *     tern_ckpt_latest, tern_ckpt_open, tern_ckpt_read...    resume
 *     tern_ckpt_save ...             collective; or in the background, with a staging:
 *     tern_ckpt_save_begin, _is_ready, _advance until it is published
 *     tern_ckpt_prune                one rank, after the ledger has the new row; as the save tells
 *
 * Every array is rectangular and C-contiguous: a rank's slice is `start[d] .. start[d] + shape[d]`
 * of the global shape in each dimension d.  Shards are safetensors files
 * (https://github.com/huggingface/safetensors#format), little-endian.
 *
 * No function here is to be called by two threads at once with the same handle, but for a lease's
 * check and renewal.  Functions that take `peers` are collective: every rank calls them with the
 * same dir, step and attempt, and all return the same status.
 */
#ifndef TERN_CKPT_CKPT_H
#define TERN_CKPT_CKPT_H

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

/* ------------------------------------------------------------------ arrays */

/* Element types, on disk by their safetensors names ("F32"). */
enum tern_ckpt_type {
    TERN_CKPT_F64,
    TERN_CKPT_F32,
    TERN_CKPT_F16,
    TERN_CKPT_BF16,
    TERN_CKPT_I64,
    TERN_CKPT_I32,
    TERN_CKPT_I16,
    TERN_CKPT_I8,
    TERN_CKPT_U64,
    TERN_CKPT_U32,
    TERN_CKPT_U16,
    TERN_CKPT_U8,
    TERN_CKPT_BOOL,
    TERN_CKPT_OTHER, /* one that tern does not read, as bytes: of other writers' files alone */
};

enum {
    TERN_CKPT_DIMS = 4,       /* weights have two at most; two to spare */
    TERN_CKPT_NAME_MAX = 255, /* bytes of an array's name */
    TERN_CKPT_ULID = 27,      /* a ULID's 26 characters and the NUL */
    TERN_CKPT_KEPT = 5,       /* local checkpoints that a save keeps beside the newest */
};

/* The manifest's name in a checkpoint's folder, and its largest size: 200 bytes a slice, a million
 * slices. */
#define TERN_CKPT_MANIFEST "manifest.json"
enum { TERN_CKPT_MANIFEST_MAX = 256 << 20 };

size_t tern_ckpt_type_bytes(enum tern_ckpt_type type);
const char *tern_ckpt_type_name(enum tern_ckpt_type type);
/* -1 when `name` is no type of ours ("F8_E4M3"). */
int tern_ckpt_type_parse(const char *name, enum tern_ckpt_type *type);

/* May `from` be turned into `to`?  The same type, or both of F64, F32, F16, BF16. */
bool tern_ckpt_can_convert(enum tern_ckpt_type to, enum tern_ckpt_type from);
/* `n` elements, rounded to nearest even; NaN stays NaN, too large becomes infinity.  `to` and
 * `from` need not be aligned and may not overlap. */
void tern_ckpt_convert(void *to, enum tern_ckpt_type to_type, const void *from,
                       enum tern_ckpt_type from_type, size_t n);

/* One rank's slice of one array, as given to tern_ckpt_save. */
struct tern_ckpt_array {
    const char *name; /* "model/model.layers.0.mlp.up_proj.weight"; once a rank */
    enum tern_ckpt_type type;
    int ndim; /* 0 (a scalar) to TERN_CKPT_DIMS */
    uint64_t global[TERN_CKPT_DIMS];
    uint64_t start[TERN_CKPT_DIMS], shape[TERN_CKPT_DIMS]; /* a zero in `shape`: nothing here */
    const void *data; /* prod(shape) elements; unchanged until they are copied or written */
    bool owner;       /* this rank writes it; replicas do not */
    bool constant; /* `data` never changes: not copied to a staging, read until the save is freed */
};

/* How ranks communicate.  With size 1 the functions may be NULL.  Both return 0 or -1 with `err`.
 */
struct tern_ckpt_peers {
    int rank, size;
    void *ctx;
    int (*barrier)(void *ctx, struct tern_err *err);
    /* out[r * bytes_per_rank ...] = rank r's `in`, on every rank. */
    int (*all_gather)(void *ctx, const void *in, void *out, size_t bytes_per_rank,
                      struct tern_err *err);
};

/* ------------------------------------------------------------------ run identity and fence */

/* The run that checkpoint folder `dir` belongs to.  `ulid` holds a fresh ULID on entry: it becomes
 * the folder's, in `run.id`, unless the folder has one, which then replaces it.  The folder is made
 * if need be.  Of several callers the first wins: a temporary file is linked to the name. */
int tern_ckpt_run_identity(const char *dir, char ulid[TERN_CKPT_ULID], struct tern_err *err);
/* The folder's ULID; 1 when it has none yet. */
int tern_ckpt_run_read(const char *dir, char ulid[TERN_CKPT_ULID], struct tern_err *err);

/* The lease: the right of attempt N to publish and prune in `dir`.  It is the file `claim-%06u`,
 * made by link(2), and holds until a higher one exists.  `lease-%06u`, as it will be called, counts
 * as well.
 *
 * A new lease is refused while the owner of the highest one lives.  That owner is
 *   - dead, when it released the lease;
 *   - the caller itself (same boot, pid namespace, pid and start time): it may take another;
 *   - alive or dead for certain, when it ran in this boot and pid namespace: its pid and start time
 *     are looked up;
 *   - dead, when it was this Slurm job with a lower restart count: Slurm ends a job's processes
 *     before it starts them anew;
 *   - else alive while its heartbeat (the file's mtime, by the file server's clock) is younger than
 *     TERN_CKPT_LEASE_S.
 * A paused owner that wakes later finds the higher lease before it publishes or prunes.  Between
 * that check and the rename lie microseconds.  An owner paused there can still only add a whole
 * checkpoint of its own run, and never replace one. */
struct tern_ckpt_lease;

enum {
    TERN_CKPT_LEASE_S = 60, /* four missed heartbeats */
    TERN_CKPT_HEARTBEAT_S = 15,
};

/* Take the lease on `dir` as `attempt` (1 or more; 0: the next free number).  `owner` is free text
 * for people
 * ("node3 job 4711").  TERN_TEMPFAIL when only a young heartbeat speaks against it. */
int tern_ckpt_lease_acquire(const char *dir, unsigned attempt, const char *owner,
                            struct tern_ckpt_lease **lease, struct tern_err *err);
/* The lease that another process (`tern run`) took as `attempt`, for a rank that publishes. */
int tern_ckpt_lease_attach(const char *dir, unsigned attempt, struct tern_ckpt_lease **lease,
                           struct tern_err *err);
unsigned tern_ckpt_lease_attempt(const struct tern_ckpt_lease *lease);
/* The attempt that the folder's newest lease is of, held or released; 0: it has none. */
int tern_ckpt_lease_last(const char *dir, unsigned *ret_attempt, struct tern_err *err);
/* The lease still holds, and is renewed; else an error that names its new owner.  Any thread. */
int tern_ckpt_lease_check(struct tern_ckpt_lease *lease, struct tern_err *err);
/* Heartbeat: to be called every TERN_CKPT_HEARTBEAT_S by the owner.  Any thread. */
int tern_ckpt_lease_renew(struct tern_ckpt_lease *lease, struct tern_err *err);
/* Frees `lease` (NULL will do).  `released`: the owner is done and the next may start at once. */
void tern_ckpt_lease_free(struct tern_ckpt_lease *lease, bool released);
/* Frees the owner's `lease` (NULL will do) as if it had never been: the next one gets its number.
 * For an attempt that was refused before anything was recorded or written under that number. */
void tern_ckpt_lease_withdraw(struct tern_ckpt_lease *lease);

/* ------------------------------------------------------------------ save */

/* A small file that is published with the checkpoint (config.json, tokenizer.model). */
struct tern_ckpt_file {
    const char *name; /* in the checkpoint; no slash */
    const char *path; /* copied from; at most 64 MiB */
    const char *text; /* with `path` NULL: its content */
};

enum { TERN_CKPT_COMPANIONS = 16 };

/* Those of the files that belong to a Hugging Face model folder besides its weights (config.json,
 * generation_config.json, the tokenizer's) that `dir` has.  `dir` may also be a tokenizer's single
 * file, *.model or tokenizer.json.  `files` has room for TERN_CKPT_COMPANIONS; returns how many;
 * free them with tern_ckpt_companions_free. */
size_t tern_ckpt_companions(const char *dir, struct tern_ckpt_file *files);
void tern_ckpt_companions_free(struct tern_ckpt_file *files, size_t n);

/* What rank 0 does with a checkpoint. */
enum tern_ckpt_word {
    TERN_CKPT_WRITTEN,   /* whole, durable and read back; it gets its name next */
    TERN_CKPT_PUBLISHED, /* it has its name, also after a power cut */
    TERN_CKPT_REFUSED,   /* it was WRITTEN, and did not get its name */
};
struct tern_ckpt_saved;

/* The content of a checkpoint.  The ranks agree on `dir` and `step`; of meta, files, lease and
 * tell rank 0's count. */
struct tern_ckpt_save_options {
    const char *dir;
    uint64_t step;
    const struct tern_ckpt_array *arrays; /* [n]: this rank's slices, owned and not */
    size_t n;
    /* A JSON object, kept as "meta" in the manifest; borrowed.  By convention: "run", "config" (the
     * model's config.json), sample index, RNG, hashes, layout, kernel set, BLAS core type, threads
     */
    json_t *meta;
    const struct tern_ckpt_file *files; /* [n_files]; copied */
    size_t n_files;
    /* In place of `files`, on rank 0, as the temporary folder is made: fills `files`, which has
     * room for TERN_CKPT_COMPANIONS, and returns how many.  Paths are freed
     * (tern_ckpt_companions_free); names and texts last as long as the save. */
    size_t (*find_files)(void *ctx, struct tern_ckpt_file *files);
    const struct tern_ckpt_peers *peers; /* NULL: one rank */
    struct tern_ckpt_lease *lease;       /* NULL: no fence (tools and tests) */
    /* On rank 0, in the save's thread where there is one: WRITTEN, and then one of the others,
     * after which the save has ended but for the ranks' agreement.  Pruning has its place there.
     * NULL: no calls.  `ctx` is used until tern_ckpt_save_free. */
    void (*tell)(void *ctx, enum tern_ckpt_word word, const struct tern_ckpt_saved *saved);
    void *ctx; /* of both; used until tern_ckpt_save_free */
    /* `dir` is a folder of each node, and its checkpoint has the shards of that node's ranks
     * (local.h).  Its `tell` is not called, and the fence is rank 0's. */
    bool local;
    int node; /* of a local save: the same on the ranks that share `dir`, and on no others */
    uint64_t kept[TERN_CKPT_KEPT]; /* of a local save: steps in `dir` that stay; 0: none */
};

struct tern_ckpt_saved {
    char path[1024];
    uint64_t bytes; /* of all files */
    unsigned shards;
    char digest[65]; /* SHA-256 of the manifest, hex: names the content */
    /* Of the slowest rank, in seconds: its copy to the staging; digesting, writing and sealing its
     * shard. */
    double copy_seconds, write_seconds;
};

/* Publish `o->dir`/step-%08d.  Collective.
 *
 * Each rank streams its owned slices to its shard, digests them on the way, makes them durable, and
 * checks their size.  Rank 0 collects the table and checks that the slices of every array tile it
 * exactly.  Then it writes the manifest, checks the lease, renames, and makes the rename durable.
 * A failure on any rank fails all: nothing appears, and the temporary folder is removed.  Every
 * rank's `err` names the rank and the cause (no space: TERN_TEMPFAIL).  A step that is there
 * already is an error.  When ranks lose each other after the rename, all get an error although the
 * checkpoint is there.  It is whole, and the next attempt finds it.  *ret_saved (may be NULL) is
 * set on every rank. */
int tern_ckpt_save(const struct tern_ckpt_save_options *o, struct tern_ckpt_saved *ret_saved,
                   struct tern_err *err);

/* ---- the same in the background
 *
 *     begin      each rank copies its slices; all ranks agree
 *     PREPARES   a thread of rank 0 makes the temporary folder
 *     advance    all ranks agree
 *     WRITES     a thread of each rank digests, writes and seals its shard
 *     advance    all ranks agree; rank 0 gets their tables
 *     PUBLISHES  a thread of rank 0 writes the manifest, renames, and tells
 *     advance    all ranks agree
 *
 * In a local save the first rank of each node does what rank 0 does here, in its node's folder.
 *
 * Threads of a save never communicate; begin and advance do.  A rank may change its arrays as soon
 * as begin has returned, other than those that are constant. */

/* Memory that holds the slices of one save; kept between saves. */
struct tern_ckpt_staging;
/* Of `bytes` (0 will do), in memory at once, so that a lack of it shows here: TERN_TEMPFAIL. */
struct tern_ckpt_staging *tern_ckpt_staging_new(uint64_t bytes, struct tern_err *err);
/* After the saves that use it; NULL will do. */
void tern_ckpt_staging_free(struct tern_ckpt_staging *staging);
/* The bytes that a save of these arrays copies. */
uint64_t tern_ckpt_staging_bytes(const struct tern_ckpt_array *arrays, size_t n);

struct tern_ckpt_saving; /* a save under way */

/* The calling thread writes beside others that compute.  It may use all cores that the process has
 * (OpenMP binds the thread that begins a save to one), and leaves them to those threads. */
void tern_ckpt_make_way(void);

/* Collective.  What `o` points to may be freed on return, other than the lease, the peers' context
 * and constant data.  `staging` NULL: nothing is copied, and each advance does its stage's work
 * itself; no array may change before tern_ckpt_save_free.  After a failure, which is one of all
 * ranks, nothing is left. */
int tern_ckpt_save_begin(const struct tern_ckpt_save_options *o, struct tern_ckpt_staging *staging,
                         struct tern_ckpt_saving **ret_saving, struct tern_err *err);
/* Has this rank done its part of the stage, well or not?  Advance would not wait for it. */
bool tern_ckpt_save_is_ready(const struct tern_ckpt_saving *s);
/* Collective.  Wait for all ranks' parts of the stage.  0: the next one has begun; 1: published,
 * and *ret_saved (may be NULL) is set; -1: the save has failed, on all ranks. */
int tern_ckpt_save_advance(struct tern_ckpt_saving *s, struct tern_ckpt_saved *ret_saved,
                           struct tern_err *err);
/* Collective.  A local save that has failed on all ranks, and is not freed, begins anew in `dir`, a
 * folder of all ranks.  It has the bytes that it began with.  -1: it is to be freed. */
int tern_ckpt_save_redirect(struct tern_ckpt_saving *s, const char *dir, struct tern_err *err);
/* Not collective; NULL will do.  A save that is not published is given up: waits until this rank's
 * thread has noticed, and removes the temporary folder (rank 0). */
void tern_ckpt_save_free(struct tern_ckpt_saving *s);

/* ------------------------------------------------------------------ find */

enum tern_ckpt_state {
    TERN_CKPT_GOOD,   /* published, and the manifest and all sizes verify */
    TERN_CKPT_BROKEN, /* has a checkpoint's name, and does not verify */
    TERN_CKPT_BAD,    /* marked .bad-K */
    TERN_CKPT_TEMP,   /* being written, or left by a writer that died */
};

struct tern_ckpt_entry {
    uint64_t step;
    enum tern_ckpt_state state;
    char *path;
    uint64_t bytes;  /* of all files; GOOD only */
    unsigned shards; /* GOOD only */
    int64_t wall_ns; /* when it was published; GOOD only */
    char digest[65]; /* of the manifest; GOOD only */
    char *why;       /* what is wrong with a BROKEN one; else NULL */
};

/* The checkpoints in `dir`, of every state, lowest step first.  An absent folder is an error. */
int tern_ckpt_list(const char *dir, struct tern_ckpt_entry **entries, size_t *n,
                   struct tern_err *err);
void tern_ckpt_list_free(struct tern_ckpt_entry *entries, size_t n);

/* The newest good one by step number; a warning says why a newer one was passed over.  *path is
 * malloc'ed; NULL, with 0 returned, when there is none or no such folder.  Several ranks: call it
 * on one and send it to the others. */
int tern_ckpt_latest(const char *dir, char **path, uint64_t *step, struct tern_err *err);

/* Facts about a checkpoint in `dir` that came after it was published (an evaluation), by its
 * digest. Those of the newest one are kept, in `dir`/after.json.  `what` is a JSON object;
 * borrowed. */
int tern_ckpt_after_write(const char *dir, const char *digest, json_t *what, struct tern_err *err);
/* A new reference; NULL when nothing is known. */
json_t *tern_ckpt_after_read(const char *dir, const char *digest);

/* May a run that finds no good one begin from nothing?  An error where `dir` has checkpoints all
 * the same: their training would be ignored silently. */
int tern_ckpt_may_begin(const char *dir, struct tern_err *err);

/* Is what a user typed "DIR/latest" or "DIR/best", and no file or folder of that name?  It stands
 * for a checkpoint in DIR then, which may be another one later. */
bool tern_ckpt_is_word(const char *typed);
/* Resolve what a user typed: a checkpoint's folder, "DIR/latest", or "DIR/best".  The best one is
 * that of the best evaluation of evaluate.stop's held-out set, else of the first set.  It is the
 * newest before that where there is none, as the newest checkpoint knows it.  Any other path stays
 * as it is.  *path is malloc'ed. */
int tern_ckpt_resolve(const char *typed, char **path, struct tern_err *err);

/* ------------------------------------------------------------------ load */

struct tern_ckpt; /* an open checkpoint */

struct tern_ckpt_info {
    const char *name; /* lives as long as the handle */
    enum tern_ckpt_type type;
    int ndim;
    uint64_t shape[TERN_CKPT_DIMS]; /* global; of OTHER one dimension, its bytes */
    char other[16];                 /* of OTHER: the type by its file, cut to fit; else empty */
};
/* The type's name, also of one that tern does not read ("F8_E4M3").  Lives as long as `info`. */
const char *tern_ckpt_info_type(const struct tern_ckpt_info *info);

/* Opens and verifies quickly: the manifest's digest, its sense, the size of every file, and that a
 * checkpoint's name is that of its step. */
struct tern_ckpt *tern_ckpt_open(const char *path, struct tern_err *err);
/* Opens the manifest alone, from its bytes: of a checkpoint that lies elsewhere.  `path` is its
 * folder, for messages.  Arrays and files cannot be read. */
struct tern_ckpt *tern_ckpt_open_manifest(const char *path, const char *text, size_t len,
                                          struct tern_err *err);
/* The files that the manifest names, shards first: their number, and one of them.  The name lives
 * as long as the handle. */
size_t tern_ckpt_parts(const struct tern_ckpt *c);
const char *tern_ckpt_part(const struct tern_ckpt *c, size_t i, uint64_t *ret_bytes);
/* A Hugging Face folder: model.safetensors, or the shards that model.safetensors.index.json names.
 * All tensors of the shards are listed, also those that the index leaves out.  Names are as in the
 * files, without a prefix; there are no digests to check. */
struct tern_ckpt *tern_ckpt_open_hf(const char *dir, struct tern_err *err);
/* The same of one safetensors file in `dir`. */
struct tern_ckpt *tern_ckpt_open_safetensors(const char *dir, const char *name,
                                             struct tern_err *err);
/* A part of an array in a file of another format: element i of its dimension d lies stride[d] * i
 * elements behind its first one.  Strides may be 0, and in any order. */
struct tern_ckpt_piece {
    unsigned file;
    uint64_t start[TERN_CKPT_DIMS], shape[TERN_CKPT_DIMS]; /* in the array */
    uint64_t offset;                                       /* of its first byte in the file */
    uint64_t stride[TERN_CKPT_DIMS];                       /* elements */
};

struct tern_ckpt_pieces {
    struct tern_ckpt_info info;
    const struct tern_ckpt_piece *pieces; /* [n]: they tile the array */
    size_t n;
};

struct tern_ckpt_files {
    const char *dir;
    const char *const *names; /* [n]: in `dir` */
    const uint64_t *bytes;    /* [n] */
    size_t n;
    const struct tern_ckpt_pieces *arrays; /* [n_arrays] */
    size_t n_arrays;
};

/* A handle for arrays that another room found in files.  Everything is checked and copied; the
 * files are opened when an array is read.  As of a Hugging Face folder: no step, no digests. */
struct tern_ckpt *tern_ckpt_open_files(const struct tern_ckpt_files *files, struct tern_err *err);

/* Does `dir` hold a manifest (a checkpoint of ours), or is it something else? */
bool tern_ckpt_is_ours(const char *dir);
void tern_ckpt_close(struct tern_ckpt *c);

const char *tern_ckpt_path(const struct tern_ckpt *c);
/* 0, NULL and "" for a Hugging Face folder.  `meta` is borrowed. */
uint64_t tern_ckpt_step(const struct tern_ckpt *c);
json_t *tern_ckpt_meta(const struct tern_ckpt *c);
const char *tern_ckpt_digest(const struct tern_ckpt *c);
/* The whole manifest (borrowed), for printing; NULL for a Hugging Face folder. */
json_t *tern_ckpt_manifest(const struct tern_ckpt *c);

/* Arrays in the order in which they were saved. */
size_t tern_ckpt_count(const struct tern_ckpt *c);
void tern_ckpt_info(const struct tern_ckpt *c, size_t i, struct tern_ckpt_info *info);
/* False when there is no such array; `info` may be NULL. */
bool tern_ckpt_find(const struct tern_ckpt *c, const char *name, struct tern_ckpt_info *info);

/* `start .. start + shape` of array `name` as `type`, assembled from whatever shards hold it.
 * `to` has prod(shape) elements, C-contiguous; its content is undefined on error.  `start` and
 * `shape` NULL: the whole array.  The first time a slice on disk is touched through this handle it
 * is read whole and its SHA-256 compared.  So no byte is used unverified; a mismatch names the file
 * and the array. */
int tern_ckpt_read(struct tern_ckpt *c, const char *name, enum tern_ckpt_type type,
                   const uint64_t *start, const uint64_t *shape, void *to, struct tern_err *err);

/* A small file that was published with the checkpoint, NUL-terminated and malloc'ed, its digest
 * checked.  1 when there is none of that name.  In a Hugging Face folder: the file there.
 * `data` and `len` may be NULL. */
int tern_ckpt_file_read(const struct tern_ckpt *c, const char *name, char **data, size_t *len,
                        struct tern_err *err);

/* Is the checkpoint `path` wrong in its name alone, as far as its manifest tells: of another step
 * than it has, or a link's? */
bool tern_ckpt_is_misnamed(const char *path);

/* Opens; a folder with a checkpoint's name must be of that step and no link; with `full` reads
 * every byte and compares every digest. */
int tern_ckpt_verify(const char *path, bool full, struct tern_err *err);

/* ------------------------------------------------------------------ safetensors */

/* The beginning of a safetensors file that holds `arrays` [n] whole, one after the other in this
 * order.  It is eight bytes of length and the JSON header, padded so that the data begins at a
 * multiple of eight.  *head is malloc'ed; *len its bytes, *data_bytes those that must follow. */
int tern_ckpt_safetensors_head(const struct tern_ckpt_info *arrays, size_t n, char **head,
                               size_t *len, uint64_t *data_bytes, struct tern_err *err);

/* ------------------------------------------------------------------ retire */

/* Rename `path` to `path`.bad-K, never to be chosen again; *to (malloc'ed, may be NULL) is the new
 * name. */
int tern_ckpt_mark_bad(const char *path, char **to, struct tern_err *err);

struct tern_ckpt_prune_how {
    unsigned keep;                     /* the newest ones; at least 2 */
    uint64_t keep_every;               /* and those whose step is a multiple of it; 0: none */
    int64_t best;                      /* and the newest of this step or before it; -1: none */
    const char *kept;                  /* and the one of this path, DIR/step-N; NULL: none */
    struct tern_ckpt_lease *lease;     /* NULL: no fence (tools and tests) */
    bool dry_run;                      /* nothing is removed, and no lease asked for */
    bool later;                        /* what goes is renamed alone, for tern_ckpt_empty_trash */
    const volatile sig_atomic_t *stop; /* not 0: nothing more is removed (Ctrl-C); NULL: never */
    /* Each that goes, before it does, and what it is: GOOD, TEMP (a writer died), or BROKEN (half
     * deleted); NULL: no calls. */
    void (*each)(void *ctx, const char *path, enum tern_ckpt_state state);
    void *ctx;
};

/* Does a symbolic link in the same folder lead to checkpoint `path`?  A user has named it so.
 * If the folder cannot be read: yes. */
bool tern_ckpt_is_linked(const char *path);

/* Deletes the good checkpoints that `how` does not keep and no link names, and old trash. With a
 * lease it deletes the temporary folders of its attempt and of those before, too: no save of the
 * attempt may be writing. Broken and bad ones are kept for people.  Deletion renames first, so that
 * a half-deleted checkpoint has no checkpoint's name.  The lease is checked and renewed before each
 * of them.  One that cannot be removed holds up no other: the first error is returned in the end.
 * *removed (may be NULL): checkpoints, also on an error. */
int tern_ckpt_prune(const char *dir, const struct tern_ckpt_prune_how *how, unsigned *removed,
                    struct tern_err *err);
/* Deletes the trash in `dir`, which takes long and needs no lease: a run may begin there meanwhile.
 * What a kill leaves goes with the next one.  A signal sets *stop, and ends it; one that came
 * before does not, since the user knows what goes. */
int tern_ckpt_empty_trash(const char *dir, volatile sig_atomic_t *stop, struct tern_err *err);

#endif

/* The local level: checkpoints on the nodes' own storage, from where they are flushed to a folder
 * of all ranks.
 *
 *     DIR/RUN/node-7/                         on node-7; on node-8 its own
 *         step-00001500/
 *             shard-00002-of-00004.safetensors    the shards of this node's ranks
 *             manifest.json                       the whole checkpoint's, the same on each node
 *             config.json ...                     on the node of rank 0
 *             flushed                             it was published in the folder of all ranks
 *
 * A local checkpoint is complete when the nodes of all ranks have all its files.  Unless a node has
 * copies of another's (stream.h), losing one node loses the newest local checkpoint.  The folder of
 * all ranks has an older one.
 *
 *     tern_ckpt_save_begin           with `local`: saved on the nodes
 *     tern_ckpt_flush_begin, _is_ready, _advance, _free    brought to the folder of all ranks
 *     tern_ckpt_local_find           at a start: the newest that is complete, verified
 */
#ifndef TERN_CKPT_LOCAL_H
#define TERN_CKPT_LOCAL_H

#include "core/ckpt/ckpt.h"

/* As tern_ckpt_open, of a folder that may have some of its checkpoint's files alone. */
struct tern_ckpt *tern_ckpt_local_open(const char *path, struct tern_err *err);

/* The node's folder `dir`, DIR/RUN/NODE: RUN and NODE must be folders, and no links, that belong to
 * this user and that others cannot write to.  Else another user of the node could lead what is
 * written or removed there to any place.  1: they are; 0: one is not there; -1: TERN_USAGE where
 * one is not such a folder. */
int tern_ckpt_local_check(const char *dir, struct tern_err *err);
/* Makes what is not there.  Other users may make their own folders in a DIR that is new. */
int tern_ckpt_local_make(const char *dir, struct tern_err *err);

/* Removes from the node's folder `dir` what a save left half-written, and all checkpoints but the
 * newest and those of steps `kept` (0: none). */
int tern_ckpt_local_prune(const char *dir, const uint64_t kept[TERN_CKPT_KEPT],
                          struct tern_err *err);

/* The manifest of step `step`, of `len` bytes and digest `digest`, from another node, for the
 * node's folder `dir`, unless it has that one.  Another save of the step is removed. */
int tern_ckpt_local_put_manifest(const char *dir, uint64_t step, const char *digest,
                                 const char *text, size_t len, struct tern_err *err);

/* The checkpoint of step `step` in the node's folder `dir` is in the folder of all ranks, too. */
int tern_ckpt_local_mark(const char *dir, uint64_t step, struct tern_err *err);
bool tern_ckpt_local_is_marked(const char *path);

/* Is the checkpoint `path` one node's part, DIR/RUN/NODE/step-N?  If so, the number of its shards
 * that are there, and of all.  One with a shard of another size is damaged, and none. */
bool tern_ckpt_local_count(const char *path, size_t *ret_here, size_t *ret_all);

/* ------------------------------------------------------------------ flush */

struct tern_ckpt_flush_options {
    const char *from; /* the node's folder of the run; read on ranks that have parts */
    uint64_t step;
    uint64_t bytes; /* of the checkpoint, so that a lack of room shows early; 0: not known */
    /* The files that this rank brings, each of one rank, by index (tern_ckpt_part),
     * [tern_ckpt_parts]; NULL: its own shard, and on rank 0 the small files. */
    const unsigned char *parts;
    const char *digest; /* with `parts`: that of the checkpoint they are of */
    const char *dir;    /* the folder of all ranks */
    const struct tern_ckpt_peers *peers;
    struct tern_ckpt_lease *lease;
    /* As of a save. */
    void (*tell)(void *ctx, enum tern_ckpt_word word, const struct tern_ckpt_saved *saved);
    void *ctx;
};

/* Collective.  A save under way, with the stages of one.  Each rank copies its files and compares
 * each byte with its digest; rank 0 publishes them with the manifest of the nodes' copy.  With
 * `background` in threads; else each advance does its stage's work.  What `o` points to may be
 * freed on return, other than the lease and the contexts. */
int tern_ckpt_flush_begin(const struct tern_ckpt_flush_options *o, bool background,
                          struct tern_ckpt_saving **ret_saving, struct tern_err *err);

/* ------------------------------------------------------------------ find */

struct tern_ckpt_local_options {
    const char *dir; /* the node's folder of the run */
    int node;        /* the same on the ranks that share `dir` */
    const struct tern_ckpt_peers *peers;
    /* On the first rank of each node. 1: the run may go on from `c`. 0: it is older than others
     * that are at hand, and not wanted. -1 with `err`: the reason, for people. */
    int (*may_take)(void *ctx, const struct tern_ckpt *c, struct tern_err *err);
    void *ctx;
};

/* A complete local checkpoint. */
struct tern_ckpt_local {
    uint64_t step;
    int rank; /* one whose node has the manifest */
    char digest[65];
    unsigned char *parts; /* the files that this rank has verified, for a flush; to be freed */
};

/* The newest local checkpoint that is complete on the nodes of these ranks.  Collective: the ranks
 * of a node share the work of verifying every byte there.  Collective: the ranks of a node share
 * the work of verifying every byte there.  1: found; 0: none, and rank 0 has logged why each newer
 * one is passed over.  -1, on all ranks: one cannot be read now (TERN_TEMPFAIL), or ranks have lost
 * each other.  *ret_found is set when found. */
int tern_ckpt_local_find(const struct tern_ckpt_local_options *o, struct tern_ckpt_local *ret_found,
                         struct tern_err *err);

/* ------------------------------------------------------------------ read */

/* From now on `c`'s shards are read from the node's folder `dir` of the same checkpoint, where that
 * has them.  One that cannot be read there, or is damaged, is read from its own place. */
void tern_ckpt_read_near(struct tern_ckpt *c, const char *dir);

#endif

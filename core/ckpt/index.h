/* model.safetensors.index.json and pytorch_model.bin.index.json: which tensor lies in which file.
 *
 *     struct tern_ckpt_index x = {.spare = NULL};
 *     tern_ckpt_index_load(path, &x, err);
 *     json_object_foreach(x.map, tensor, value) ...          (the files)
 *         if (tern_ckpt_index_takes(&x, name, file)) ...     (each tensor that a file has)
 *     tern_ckpt_index_check(&x, c, err);                     (`c`: what was taken)
 *     tern_ckpt_index_free(&x);
 *
 * As transformers does, it takes all that the files hold: tensors that the index leaves out, too.
 */
#ifndef TERN_CKPT_INDEX_H
#define TERN_CKPT_INDEX_H

#include "core/ckpt/ckpt.h"

struct tern_ckpt_index {
    /* From the caller.  May the tensor be absent, though the index names it?  NULL: none may, but
     * those of tern_ckpt_index_idle. */
    bool (*spare)(const void *ctx, const char *tensor);
    const void *ctx;

    char *path;    /* of the index, for messages */
    json_t *root;  /* the whole file */
    json_t *map;   /* tensor to file; belongs to `root` */
    json_t *stray; /* tensors that lie in another file than the index says */
};

/* As tern_ckpt_open_hf.  `x` has the caller's part alone; it is freed. */
struct tern_ckpt *tern_ckpt_open_hf_with(const char *dir, struct tern_ckpt_index *x,
                                         struct tern_err *err);

/* On error nothing is to be freed. */
int tern_ckpt_index_load(const char *path, struct tern_ckpt_index *x, struct tern_err *err);
void tern_ckpt_index_free(struct tern_ckpt_index *x);

/* Tensors that older files have or name, and that no model reads: RoPE's frequencies, and the
 * output matrix, which a model that reads it reports by name. */
bool tern_ckpt_index_idle(const char *tensor);
/* Is a tensor that lies in `file` taken from there?  Not if the index places it in another. */
bool tern_ckpt_index_takes(struct tern_ckpt_index *x, const char *tensor, const char *file);
/* Does the index place a tensor there that may not be absent? */
bool tern_ckpt_index_wants(const struct tern_ckpt_index *x, const char *file);
/* Has `c` all tensors that may not be absent?  Says which others it has not. */
int tern_ckpt_index_check(const struct tern_ckpt_index *x, const struct tern_ckpt *c,
                          struct tern_err *err);

#endif

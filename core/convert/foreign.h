/* Weights of other tools, while their arrays are listed. */
#ifndef TERN_CONVERT_FOREIGN_H
#define TERN_CONVERT_FOREIGN_H

#include <signal.h>

#include "core/ckpt/ckpt.h"
#include "core/ckpt/index.h"
#include "core/model/model.h"

/* Files and arrays for tern_ckpt_open_files, growing.  Starts as {.dir = ...}. */
struct tern_convert_foreign {
    const char *dir;
    char **names; /* [n_files]: owned */
    uint64_t *bytes;
    size_t n_files, files_room;
    struct tern_ckpt_pieces *arrays; /* [n]: names and pieces are owned */
    size_t n, room;
};

int tern_convert_foreign_file(struct tern_convert_foreign *f, const char *name, uint64_t bytes,
                              struct tern_err *err);
/* Takes a copy of the name and of the pieces. */
int tern_convert_foreign_array(struct tern_convert_foreign *f, const struct tern_ckpt_info *info,
                               const struct tern_ckpt_piece *pieces, size_t n,
                               struct tern_err *err);
/* The handle of what was listed; frees `f`'s lists in any case. */
struct tern_ckpt *tern_convert_foreign_open(struct tern_convert_foreign *f, struct tern_err *err);
void tern_convert_foreign_free(struct tern_convert_foreign *f);

/* ---- bin.c ---- */

/* pytorch_model.bin, or another file of PyTorch in `dir`; `key`: see tern_convert_open. */
struct tern_ckpt *tern_convert_open_bin(const char *dir, const char *file, const char *key,
                                        struct tern_err *err);
/* The files that pytorch_model.bin.index.json names.  `x` has the caller's part alone; it is freed.
 */
struct tern_ckpt *tern_convert_open_bins(const char *dir, struct tern_ckpt_index *x,
                                         struct tern_err *err);

/* ---- params.c ---- */

/* Is params.json the config of the folder?  A config.json beside it comes first. */
bool tern_convert_params_is(const char *dir);
/* params.json of the folder.  ret_config->vocab is 0 where it leaves that to the tokenizer (-1);
 * the numbers are not checked together (tern_model_config_check). */
int tern_convert_params_read(const char *dir, struct tern_model_config *ret_config,
                             struct tern_err *err);
/* Where `path` is such a folder: says what `c` has that params.json does not tell. */
void tern_convert_params_warn(const char *path, const struct tern_model_config *c);

/* ---- meta.c ---- */

/* params.json and consolidated.NN.pth, under Hugging Face's names, in its order of rows. */
struct tern_ckpt *tern_convert_open_meta(const char *dir, struct tern_err *err);

#endif

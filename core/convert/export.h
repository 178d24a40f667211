/* An export under way, shared by the files of this room. */
#ifndef TERN_CONVERT_EXPORT_H
#define TERN_CONVERT_EXPORT_H

#include "core/base/behind.h"
#include "core/base/str.h"
#include "core/convert/convert.h"

struct tern_convert_export {
    struct tern_ckpt *c;            /* NULL with `peft` */
    struct tern_convert_peft *peft; /* adapters of PEFT for `base`; or NULL */
    json_t *adapter_config; /* `c` holds adapters under PEFT's names, and this is their config;
                               or NULL */
    struct tern_ckpt *base; /* a folder of other weights, or NULL */
    const struct tern_convert_hf *options;
    struct tern_model_config config;
    json_t *config_json;
    struct tern_model_adapters adapters; /* rank 0: none */
    struct tern_ckpt *from;              /* `c` or `base` */
    const char *prefix;                  /* of the arrays in it */
    struct tern_ckpt_info *tensors; /* [n], under their Hugging Face names, in Hugging Face order */
    unsigned *shard;                /* [n]: which file, from 0 */
    size_t n;
    unsigned n_shards;
    uint64_t total;
    struct tern_behind_read_back read_back; /* with options->verify */
    char *temp;                             /* the folder while it grows; else NULL */
    int job;                                /* a locked file in it, while `temp` is there */
};

/* The model's config: as the checkpoint's meta keeps it, else its own config.json. */
int tern_convert_load_config(struct tern_convert_export *x, struct tern_err *err);
/* Open `path` as a folder of NxD's ranks: `x->c` and the config are there. */
int tern_convert_open_from_nxd(struct tern_convert_export *x, const char *path,
                               const struct tern_convert_from_nxd *from, struct tern_err *err);
/* The list is of the config's tensors: each is there in its shape, and `prefix` has no others. */
int tern_convert_list_tensors(struct tern_convert_export *x, struct tern_err *err);
/* The list is of all arrays of `x->c`. */
int tern_convert_list_arrays(struct tern_convert_export *x, struct tern_err *err);
/* Append a tensor to the list, which has room for it: it is there in its shape. */
int tern_convert_add_tensor(struct tern_convert_export *x, const struct tern_model_tensor *t,
                            struct tern_err *err);
/* The type in which `x->from` has a tensor of the list; TERN_CKPT_OTHER where it has none. */
enum tern_ckpt_type tern_convert_stored_type(const struct tern_convert_export *x,
                                             const char *tensor);
/* f16 ends at 65504, where the other types go on.  An error when one of the `n` elements in
 * `piece`, which are of t's type, is infinite and may have become so.  `from`: the type that they
 * had before (TERN_CKPT_F64: they were computed); one that reaches no further than t's cannot make
 * infinite ones. */
int tern_convert_check_range(const struct tern_convert_export *x, const struct tern_ckpt_info *t,
                             enum tern_ckpt_type from, const char *piece, uint64_t n,
                             struct tern_err *err);
/* Removes a folder that got no name. */
void tern_convert_export_free(struct tern_convert_export *x);
/* ---- folder.c ---- */

/* Is what is written adapters alone: one file, no config of a model? */
bool tern_convert_is_adapters(const struct tern_convert_export *x);
/* It cannot wrap: the shape was compared with a file. */
uint64_t tern_convert_tensor_bytes(const struct tern_ckpt_info *t);
/* Deal the list into files of options->max_shard_bytes (0: 5 GB); it is then in their order. */
int tern_convert_deal_files(struct tern_convert_export *x, struct tern_err *err);
/* Append all bytes of tensor `i` of the list, in the type that stands there, to `out`.  NULL: they
 * were written by an earlier call, and only progress counts them. */
typedef int tern_convert_write_tensor(void *ctx, size_t i, struct tern_behind *out,
                                      struct tern_err *err);
/* The files of weights, durable, and their index where they are several.  Whole files that are
 * there already stay. */
int tern_convert_write_weights(const struct tern_convert_export *x,
                               tern_convert_write_tensor *write_tensor, void *ctx,
                               struct tern_err *err);
/* config.json of the types that were written, the tokenizer's files (*ret_tokenizer: there were
 * some) and the generation config. */
int tern_convert_write_beside(struct tern_convert_export *x, bool *ret_tokenizer,
                              struct tern_err *err);
/* The file `name` of the folder. */
int tern_convert_write_json(const struct tern_convert_export *x, const char *name, const json_t *j,
                            size_t flags, struct tern_err *err);

/* ---- unfinished.c ---- */

/* Append all that the files of weights depend on.  They are the sources' files (their inodes, sizes
 * and times), the config, the tensors with their types and files, and tern's version.  The caller
 * adds its own options. */
void tern_convert_describe(struct tern_buf *to, const struct tern_convert_export *x);
/* Make the folder `x->temp`, OUT_DIR.unfinished, beside `out_dir`, which is absent or empty.  1: an
 * earlier call with the same description was killed when it had made `out_dir`; nothing is left to
 * do.  Where
 * an earlier call with the same description, `what`, left whole files of weights there
 * (.safetensors, .pt), they stay; all else that it left goes.  TERN_TEMPFAIL: another process is
 * writing there.  TERN_USAGE: what is there was left by no conversion of this user. */
int tern_convert_folder_begin(struct tern_convert_export *x, const char *out_dir,
                              const struct tern_buf *what, struct tern_err *err);
/* Give it its name, when its files are durable. */
int tern_convert_folder_end(struct tern_convert_export *x, const char *out_dir,
                            struct tern_err *err);
/* The conversion failed.  If `*stop` asked for that (NULL: never) and whole files are there, they
 * stay for the next call, and `err` says so.  Returns -1. */
int tern_convert_folder_stopped(struct tern_convert_export *x, const volatile sig_atomic_t *stop,
                                struct tern_err *err);
/* Remove a folder that got no name; does nothing without one. */
void tern_convert_folder_drop(struct tern_convert_export *x);

/* ---- tokenizer.c ---- */

/* The tokenizer's files lie in `x->temp`: make them ones that transformers, vLLM and llama.cpp's
 * converter read as the model was trained.  A tiktoken file becomes a tokenizer.json, and
 * tokenizer_config.json is written where there is none.  A tokenizer that tern does not read is
 * left as it is, with a word. */
int tern_convert_complete_tokenizer(const struct tern_convert_export *x, struct tern_err *err);

/* ---- merge.c ---- */

/* The weights that adapters are put into: of a checkpoint of ours (DIR/latest and DIR/best, too),
 * whose arrays begin with *ret_prefix, or what tern_convert_open takes.  NULL with `err`, also for
 * a checkpoint that has adapters. */
struct tern_ckpt *tern_convert_open_base(const char *path, const char **ret_prefix,
                                         struct tern_err *err);

/* ---- peft_in.c ---- */

/* Does `dir` hold adapters of PEFT? */
bool tern_convert_peft_is(const char *dir);
/* They are no model: names them, their base and the command that makes a model of both.  0 with no
 * word when adapter_config.json cannot be read; else -1. */
int tern_convert_peft_refuse(const char *dir, struct tern_err *err);
/* Adapters whose config says nothing that tern would compute otherwise. */
struct tern_convert_peft *tern_convert_peft_open(const char *dir, struct tern_err *err);
/* The same of a config and arrays that are at hand; takes both, also when it fails. */
struct tern_convert_peft *tern_convert_peft_of(const char *dir, json_t *config, struct tern_ckpt *c,
                                               struct tern_err *err);
void tern_convert_peft_close(struct tern_convert_peft *p);
/* Borrowed. */
struct tern_ckpt *tern_convert_peft_arrays(const struct tern_convert_peft *p);
/* The folder of the base model that they name (malloc'ed); NULL with `err` when it is none. */
char *tern_convert_peft_base(const struct tern_convert_peft *p, struct tern_err *err);
/* Every array belongs to a weight of the model. */
int tern_convert_peft_check(const struct tern_convert_peft *p,
                            const struct tern_model_config *config, struct tern_err *err);
/* 1 with *ret_adapter: the weight has an adapter; 0: it has none; -1. */
int tern_convert_peft_beside(const struct tern_convert_peft *p, const struct tern_model_tensor *t,
                             struct tern_model_adapters *ret_adapter, struct tern_err *err);
/* The array with the whole of this weight, which was trained (modules_to_save); NULL: none. */
const char *tern_convert_peft_saved(const struct tern_convert_peft *p, const char *tensor);

/* ---- peft.c ---- */

/* The list is of the adapters' arrays, by PEFT's names; `x->adapters` is there. */
int tern_convert_list_adapters(struct tern_convert_export *x, struct tern_err *err);
/* adapter_config.json. */
int tern_convert_write_adapter_config(struct tern_convert_export *x, struct tern_err *err);

#endif

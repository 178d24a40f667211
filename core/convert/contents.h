/* What lies in a folder of weights: each file below it, and what that file is.
 *
 *     struct tern_convert_contents in;
 *     if (tern_convert_contents(dir, NULL, &in, err) < 0) return -1;
 *     ... in.files[i]: name, bytes, words ...
 *     tern_convert_contents_free(&in);
 *
 * Files are known by their names.  None is opened but by tern_convert_contents_count.
 */
#ifndef TERN_CONVERT_CONTENTS_H
#define TERN_CONVERT_CONTENTS_H

#include "core/ckpt/ckpt.h"

enum tern_convert_holds { TERN_CONVERT_NO_ARRAYS, TERN_CONVERT_SAFETENSORS, TERN_CONVERT_PYTORCH };

struct tern_convert_file {
    char *name;     /* its path below the folder, as on disk: "model/dp_rank_00_...pt" */
    unsigned depth; /* folders above it */
    bool folder;
    bool absent;    /* the manifest names it, and it is not there */
    uint64_t bytes; /* of a folder: of all files below it */
    char what[100]; /* words for people; "": tern does not know it */
    enum tern_convert_holds holds;
    int64_t arrays; /* in a shard of tern's, by the manifest; -1: of another file */
};

struct tern_convert_contents {
    struct tern_convert_file *files; /* [n]: a folder before the files in it, by name */
    size_t n, room;
};

/* Hidden files are left out; linked folders are not entered.  `ours`: the checkpoint of tern's that
 * lies there, with which files are compared; NULL: none.  `ret` is set on success only. */
int tern_convert_contents(const char *dir, const struct tern_ckpt *ours,
                          struct tern_convert_contents *ret, struct tern_err *err);
void tern_convert_contents_free(struct tern_convert_contents *c);

/* The arrays in file `f` below `dir`, by its header.  Of PyTorch's that is its pickle, which a
 * child reads.  1 with *ret_n; 0: it holds none; -1: it cannot be read. */
int tern_convert_contents_count(const char *dir, const struct tern_convert_file *f, size_t *ret_n,
                                struct tern_err *err);

/* A folder that tern_convert_open refuses, of a kind that other calls take. */
enum tern_convert_kind {
    TERN_CONVERT_UNKNOWN,
    TERN_CONVERT_PEFT,  /* adapter_config.json and the adapters: tern_convert_open_adapters */
    TERN_CONVERT_RANKS, /* files of NxD's or Optimum Neuron's ranks */
};
enum tern_convert_kind tern_convert_kind(const char *dir);
/* The arrays of PEFT's folder `dir`, under its names; the config is not looked at. */
struct tern_ckpt *tern_convert_open_adapters(const char *dir, struct tern_err *err);

#endif

/* What a recipe reads: its model, its token sets, their digests.  Are they the run's own?
 *
 * Everything here reads headers only.  Nothing is written.
 */
#ifndef TERN_INPUTS_INPUTS_H
#define TERN_INPUTS_INPUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/data/data.h"
#include "core/model/model.h"
#include "core/recipe/recipe.h"
#include "core/token/token.h"

/* ------------------------------------------------------------------ the list of them */

/* The files that a recipe reads, and a digest of each that changes with the file.  A token set's is
 * its header, which holds the checksum of all digests; a checkpoint's its manifest.  A Hugging Face
 * folder's is its config and the heads and sizes of its weights, not the weights themselves (they
 * are tens of GiB).  The files that words of a workload's command name count whole, up to 16 MiB,
 * by their absolute paths.  An input that is not there is left out. */
struct tern_inputs_one {
    char *key, *path; /* "data.train[0]" */
    char sha256[TERN_SHA256_HEX];
};
struct tern_inputs {
    struct tern_inputs_one *v;
    size_t n;
};
#define TERN_INPUTS_COMMAND "workload.command" /* "workload.command[1]": a word's place in it */
/* *ret_inputs is freed with tern_inputs_free. */
int tern_inputs_list(const struct tern_recipe *r, struct tern_inputs *ret_inputs,
                     struct tern_err *err);
void tern_inputs_free(struct tern_inputs *inputs);

/* Find `r->steps` of a recipe that says `epochs`, by a look at its first training set (see
 * tern_recipe_resolve).  Find also the ends of stages whose sets are exhausted
 * (tern_recipe_end_stage).  Any other recipe stays as it is.  Call it right after the recipe was
 * loaded. */
int tern_inputs_length(struct tern_recipe *r, struct tern_err *err);

/* How its training sets lie in rows. */
struct tern_data_pack_how tern_inputs_pack_how(const struct tern_recipe *r);

/* The template that made the set's documents of records (tern data build --template), malloc'ed;
 * NULL where it is of texts, or cannot be read. */
char *tern_inputs_template(const char *set);

/* The samples of the run: its stages, opened. */
struct tern_data_stages *tern_inputs_stages_open(const struct tern_recipe *r, struct tern_err *err);

/* ------------------------------------------------------------------ the vocabulary */

/* The model's vocabulary, by its hash where a tokenizer names it, else by its size. */
struct tern_inputs_vocabulary {
    bool have_config; /* set by the caller, with `config` */
    struct tern_model_config config;
    size_t n_hashes; /* 0: not known; the vocabulary is any of them */
    uint8_t hash[TERN_TOKEN_NAMES][TERN_SHA256_BYTES];
    char source[32]; /* the file they are from */
};

/* The tokenizer beside the model, where there is one that tern reads, names the vocabulary. */
int tern_inputs_vocabulary_find(const struct tern_recipe *r, struct tern_inputs_vocabulary *v,
                                struct tern_err *err);
/* Are all token sets there, and of this vocabulary? */
int tern_inputs_vocabulary_compare(const struct tern_recipe *r,
                                   const struct tern_inputs_vocabulary *v, struct tern_err *err);
/* Both, for a trainer that no supervisor has checked the recipe for. */
int tern_inputs_check_vocabulary(const struct tern_recipe *r, struct tern_err *err);

/* The vocabulary that its token sets were made with: the hash in the head of the first that can be
 * read.  Without one, that of the tokenizer beside the model.  -1: neither is known. */
int tern_inputs_vocabulary_hash(const struct tern_recipe *r, uint8_t ret_hash[TERN_SHA256_BYTES]);

/* Put the recipe's line before the cause that `err` holds; -1. */
int tern_inputs_at_line(const struct tern_recipe *r, const char *key, struct tern_err *err);

/* ------------------------------------------------------------------ the same run */

/* May `r` go on from checkpoint `path`, whose manifest says `meta`?  0, or -1 with TERN_USAGE: its
 * identity hash, its model, its token sets or, with data.stages, its batches are others.  `accept`
 * lets all but the last pass.  A field that `meta` lacks is not compared. */
int tern_inputs_same_run(const struct tern_recipe *r, const char *path, json_t *meta, bool accept,
                         struct tern_err *err);
/* Where the recipe's model.from is: of DIR/latest or DIR/best the checkpoint that it is now.
 * Malloc'ed; NULL where the recipe names none, or DIR has none yet. */
char *tern_inputs_model_from(const struct tern_recipe *r);
/* What a checkpoint's meta keeps as "model": the config that the recipe names now, a new reference;
 * null when there is none to compare with. */
json_t *tern_inputs_model(const struct tern_recipe *r);

#endif

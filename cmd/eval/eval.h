/* tern eval: what its ways share, and its ranks. */
#ifndef TERN_CMD_EVAL_EVAL_H
#define TERN_CMD_EVAL_EVAL_H

#include "cmd/cmd.h"
#include "core/base/hash.h"
#include "core/fabric/fabric.h"
#include "core/infer/infer.h"
#include "core/ledger/ledger.h"
#include "core/recipe/recipe.h"

struct eval_options {
    struct tern_opt_list overrides, data;
    const char *checkpoint, *checkpoints, *ledger, *choices, *tokenizer, *delimiter;
    bool json, only, again, bos, no_bos;
    int64_t ranks;
};
extern struct eval_options eval;

enum { EVAL_SETS_MAX = 64 };

/* A held-out set: the recipe's, or of --data. */
struct eval_set {
    char *name, *path;
    struct tern_data_set *set;
    char sha256[TERN_SHA256_HEX]; /* of its header */
};

/* The run in the ledger, of rank 0; `ledger` NULL: no ledger has it. */
struct eval_run {
    char *home;
    char id[TERN_ULID_SIZE];
    struct tern_ledger *ledger;
    struct tern_ledger_rows runs;
};

struct eval_job {
    struct tern_recipe *recipe;
    struct eval_run run;
    struct tern_fabric *fabric;
    struct tern_comm *world;
    struct eval_set sets[EVAL_SETS_MAX];
    size_t n_sets;
};

/* Read the recipe that `typed` names: a file, or a run in the ledger; then the sets and the fabric
 * are opened.  To be closed also after a failure; start from {0}. */
int eval_job_open(struct eval_job *j, const char *typed, const struct tern_fabric_options *fabric,
                  struct tern_err *err);
void eval_job_close(struct eval_job *j);
bool eval_job_first(const struct eval_job *j); /* is this rank 0? */

/* All ranks together: -1 where one of them has `rc` below 0.  Each `err` has then the gravest code
 * of all (TERN_TEMPFAIL before the others); that of a rank that did not fail says that another did.
 */
int eval_job_agree(const struct eval_job *j, int rc, struct tern_err *err);

/* All ranks together: *path of rank 0 becomes that of all, malloc'ed or NULL, so that all read the
 * same checkpoint while newer ones appear.  Those of the others are freed. */
int eval_job_share_path(const struct eval_job *j, char **path, struct tern_err *err);

/* The weights at `path`, on every rank; NULL on all where one fails.  *ret_unread, the same on all,
 * is then the lowest rank that can never read the files there.  -1: a passing fault, or of
 * something else. */
struct tern_llama *eval_job_load(const struct eval_job *j, const char *path, int *ret_unread,
                                 struct tern_err *err);
/* Perplexity on set `i`. */
int eval_job_measure(const struct eval_job *j, struct tern_llama *m, size_t i,
                     struct tern_infer_eval *ret_eval, struct tern_err *err);

double eval_per_token(const struct tern_infer_eval *e);
double eval_per_byte(const struct tern_infer_eval *e); /* NAN: bytes are not known */
/* nll, tokens, bytes and perplexities as JSON. */
json_t *eval_json(const struct tern_infer_eval *e);

/* --ranks: `n` processes of this machine go on behind it, each with its *ret_options, and 0.  1 in
 * the process that started them, when all have ended: *ret_status is the exit status. */
int eval_start_ranks(int n, struct tern_fabric_options *ret_options, int *ret_status,
                     struct tern_err *err);

/* tern eval RUN --checkpoints. */
int eval_checkpoints(struct eval_job *j, struct tern_err *err);
/* tern eval MODEL --choices.  `j` holds the fabric alone, and is to be closed as after
 * eval_job_open. */
int eval_choices(struct eval_job *j, const char *model, const struct tern_fabric_options *fabric,
                 struct tern_err *err);

#endif

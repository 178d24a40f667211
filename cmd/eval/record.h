/* What the ledger knows of evaluations of a run's checkpoints, and what is added to it. */
#ifndef TERN_CMD_EVAL_RECORD_H
#define TERN_CMD_EVAL_RECORD_H

#include "cmd/eval/eval.h"

struct eval_record {
    const struct eval_job *job;
    struct tern_ledger_rows evals, evaluated; /* read again before each value is added */
    struct tern_ledger_rows checkpoints;
    struct tern_ledger_spool *spool; /* of `attempt` */
    unsigned attempt;
    char *by;      /* what evaluates */
    bool as_run;   /* the settings are the run's own */
    bool writable; /* the ledger takes records */
};

/* Rank 0's.  An error where a set is not the one that the run was evaluated on under that name. To
 * be closed also after a failure. */
int eval_record_open(struct eval_record *r, const struct eval_job *job, struct tern_err *err);
void eval_record_close(struct eval_record *r);

/* What was recorded of the checkpoint on set `i`, evaluated as this process would, until the next
 * is recorded; NULL: nothing. */
const struct tern_ledger_evaluated *eval_record_known(const struct eval_record *r,
                                                      const struct tern_ckpt_entry *c, size_t i);
/* Record it; where the run has evaluated the step itself by then, not as a value of the run.  A
 * ledger that cannot take it is a warning. */
void eval_record_add(struct eval_record *r, const struct tern_ckpt_entry *c, size_t i,
                     const struct tern_infer_eval *e);
/* Tokens of training up to the step; NAN: not known. */
double eval_record_tokens(const struct eval_record *r, uint64_t step);

#endif

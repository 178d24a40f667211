/* tern ckpt verify and mirror, by the records that `tern run` wrote in the ledger. */
#ifndef TERN_CMD_CKPT_EXTERNAL_H
#define TERN_CMD_CKPT_EXTERNAL_H

#include "core/base/err.h"

/* Verify folder `path`, every byte, against `manifest`. Without one the record of run `run` of
 * ledger `ledger` counts: of the folder, or of the checkpoint that it is a copy of. */
int ckpt_verify_external(const char *path, const char *manifest, const char *run,
                         const char *ledger, struct tern_err *err);

/* Verify and copy the checkpoints that run `run` of ledger `ledger` has left. */
int ckpt_mirror(const char *run, const char *ledger, struct tern_err *err);

#endif

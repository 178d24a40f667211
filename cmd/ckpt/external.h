/* tern ckpt verify and mirror by what `tern run` wrote down in the ledger. */
#ifndef TERN_CMD_CKPT_EXTERNAL_H
#define TERN_CMD_CKPT_EXTERNAL_H

#include "core/base/err.h"

/* Verify folder `path`, every byte, against `manifest`; or, when that is NULL, against what run
 * `run` of ledger `ledger` knows of it, as the trainer's checkpoint or as a copy of one. */
int ckpt_verify_foreign(const char *path, const char *manifest, const char *run, const char *ledger,
                        struct tern_err *err);

/* Verify and copy what run `run` of ledger `ledger` has left. */
int ckpt_mirror(const char *run, const char *ledger, struct tern_err *err);

#endif

#include "core/run/rehearsal.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/ckpt/ckpt.h"
#include "core/ledger/ledger.h"

#include <string.h>

void tern_run_rehearsal_clear(const struct tern_run_attempt *a,
                              const struct tern_run_result *result)
{
    struct tern_ckpt_entry *had = NULL;
    struct tern_err err = {0};
    size_t n = 0;

    if (result->status != TERN_OK || (strcmp(a->kind, "trial") && strcmp(a->kind, "smoke")))
        return;
    if (tern_ckpt_list(a->o->recipe->checkpoint.dir, &had, &n, &err) < 0)
        tern_warn("%s", err.text);
    for (size_t i = 0; i < n; i++) {
        const struct tern_ledger_checkpoint row = {
            .step = (int64_t)had[i].step,
            .path = had[i].path,
            .bytes = (int64_t)had[i].bytes,
            .shards = had[i].shards,
            .manifest_sha256 = had[i].digest,
            .state = "deleted",
        };
        if (had[i].state == TERN_CKPT_GOOD &&
            (tern_fs_remove_tree(had[i].path, &err) < 0 ||
             tern_ledger_spool_checkpoint(a->spool, &row, &err) < 0))
            tern_warn("%s", err.text);
    }
    tern_ckpt_list_free(had, n);
}

#include "core/run/home.h"

#include "core/base/fs.h"
#include "core/ledger/ledger.h"

#include <stdlib.h>
#include <string.h>

int tern_run_apply_site(const struct tern_site *site, struct tern_recipe *r, struct tern_err *err)
{
    char *home = NULL;

    if (tern_site_fill(site, r, err) < 0)
        return -1;
    if (tern_ledger_home(r->ledger.dir, (enum tern_ledger_mode)r->ledger.mode, &home, err) < 0)
        return tern_recipe_fail(r, "ledger.dir", err, "%s", err->text);
    if (strcmp(home, r->ledger.dir) != 0 && r->workload.precompile.cache &&
        !tern_recipe_given(r, "workload.precompile.cache")) {
        free(r->workload.precompile.cache);
        r->workload.precompile.cache = tern_fs_join(home, "graphs");
    }
    free(r->ledger.dir);
    r->ledger.dir = home;
    return 0;
}

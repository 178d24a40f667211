/* The folder of the ledger where a run is recorded. */
#ifndef TERN_RUN_HOME_H
#define TERN_RUN_HOME_H

#include "core/recipe/recipe.h"
#include "core/site/site.h"

/* tern_site_fill, and then ledger.dir becomes the caller's home in it (ledger.h), with
 * workload.precompile.cache where that is below it.  No folder is made. */
int tern_run_apply_site(const struct tern_site *site, struct tern_recipe *r, struct tern_err *err);

#endif

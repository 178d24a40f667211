/* Are the programs of a workload there?  They may be on compute nodes alone, so submission checks
 * only the patterns of its metrics. */
#ifndef TERN_CHECK_WORKLOAD_H
#define TERN_CHECK_WORKLOAD_H

#include "core/check/check.h"

int tern_check_workload(const struct tern_recipe *r, const struct tern_check_options *options,
                        struct tern_err *err);

#endif

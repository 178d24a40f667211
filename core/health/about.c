/* The tables as they are printed. */
#include "core/health/probe.h"

bool tern_health_about(size_t i, struct tern_health_about *ret_about)
{
    if (i >= tern_health_n_checks + tern_health_n_across)
        return false;
    if (i >= tern_health_n_checks) {
        *ret_about =
            (struct tern_health_about){&tern_health_across[i - tern_health_n_checks], "nodes", 0};
        return true;
    }
    const struct tern_health_check *c = &tern_health_checks[i];
    *ret_about = (struct tern_health_about){&c->rule,
                                            c->rule.where & TERN_HEALTH_ON_QUICK  ? "quick deep"
                                            : c->rule.where & TERN_HEALTH_ON_SPOT ? "spot deep"
                                                                                  : "fabric deep",
                                            c->limit_s};
    return true;
}

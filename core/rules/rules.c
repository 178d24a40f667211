#include "core/rules/rules.h"

void tern_rules_apply(const struct tern_rule *rules, size_t n, unsigned where,
                      struct tern_rules_case *c)
{
    for (size_t i = 0; i < n; i++) {
        if (!(rules[i].where & where))
            continue;
        c->rule = &rules[i];
        rules[i].rule(c);
    }
}

/* tern fabric: what ranks speak over, and what they left behind. */
#include "cmd/fabric/fabric.h"

static const struct tern_cmd *const verbs[] = {&fabric_info, &fabric_plan, &fabric_autopsy, NULL};

int main(int argc, char **argv)
{
    static const struct tern_cmd cmd = {
        .name = "fabric",
        .summary = "what ranks speak over and how; who was missing where when they failed",
        .verbs = verbs,
    };
    return tern_cmd_main(&cmd, argc, argv);
}

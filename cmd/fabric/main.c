/* tern fabric: the network that ranks use, and the reports of their flight recorders. */
#include "cmd/fabric/fabric.h"

#include <string.h>

static const struct tern_cmd *const verbs[] = {&fabric_info, &fabric_plan, &fabric_flight_report,
                                               NULL};

int main(int argc, char **argv)
{
    static const struct tern_cmd cmd = {
        .name = "fabric",
        .summary = "the network that ranks use; which rank was missing when they failed",
        .verbs = verbs,
    };
    static char flight_report[] = "flight-report";

    if (argc > 1 && strcmp(argv[1], "autopsy") == 0) /* its name in tern 0.3 */
        argv[1] = flight_report;
    return tern_cmd_main(&cmd, argc, argv);
}

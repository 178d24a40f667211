/* tern bench: measure. */
#include "cmd/bench/bench.h"
#include "cmd/cmd.h"

static const struct tern_cmd *const verbs[] = {&bench_data, &bench_fabric, &bench_products,
                                               &bench_train, NULL};

int main(int argc, char **argv)
{
    static const struct tern_cmd cmd = {
        .name = "bench",
        .summary = "measure tokenising, the fabric, matrix products and the trainer",
        .verbs = verbs,
    };
    return tern_cmd_main(&cmd, argc, argv);
}

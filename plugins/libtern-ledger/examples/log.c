/* cc log.c $(pkg-config --cflags --libs tern-ledger) -o log && ./log LEDGER
 * tern ledger plot from-c -l LEDGER */
#include <stdio.h>
#include <tern/ledger.h>

int main(int n_args, char **args)
{
    static const char *const names[] = {"loss", "lr"};
    struct tern_log *log = tern_log_open(n_args > 1 ? args[1] : NULL, "from-c");

    for (int step = 1; log && step <= 100; step++) {
        const double values[] = {4.0 / step, 1e-3};
        if (tern_log_values(log, step, names, values, 2) < 0)
            fprintf(stderr, "step %d: %s\n", step, tern_log_error());
    }
    if (!log || tern_log_close(log) < 0) {
        fprintf(stderr, "%s\n", tern_log_error());
        return 1;
    }
    return 0;
}

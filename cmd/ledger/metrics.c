/* The metrics of a run, a row each. */
#include "cmd/ledger/show.h"

#include "core/base/str.h"

#include <math.h>
#include <string.h>

const struct tern_report_field show_metric_fields[] = {
    {"metric", "its name", false},
    {"last", "newest effective value", true},
    {"step", "of that value", true},
    {"min", "least effective value", true},
    {"max", "greatest effective value", true},
    {"n", "effective values", true},
};

size_t show_rank_metric(const char *metric)
{
    size_t digits = tern_str_starts(metric, "rank") ? strspn(metric + 4, "0123456789") : 0;

    return digits && metric[4 + digits] == '/' ? digits + 5 : 0;
}

int show_metrics(struct tern_ledger *l, const struct tern_ledger_rows *names, struct tern_err *err)
{
    struct show_cells t = {.fields = show_metric_fields, .n_fields = SHOW_METRIC_FIELDS};

    for (size_t i = 0; i < names->n; i++) {
        struct tern_ledger_series s = {0};
        double least = NAN, greatest = NAN;
        if (tern_ledger_series(l, names->names[i], /* all= */ false, &s, err) < 0)
            return -1;
        for (size_t k = 0; k < s.n; k++) {
            least = isnan(least) || s.value[k] < least ? s.value[k] : least;
            greatest = isnan(greatest) || s.value[k] > greatest ? s.value[k] : greatest;
        }
        show_cell_text(&t, names->names[i]);
        show_cell_real(&t, s.n ? s.value[s.n - 1] : NAN, s.n > 0);
        show_cell_int(&t, s.n ? (int64_t)s.step[s.n - 1] : -1, -1);
        show_cell_real(&t, least, s.n > 0);
        show_cell_real(&t, greatest, s.n > 0);
        show_cell_int(&t, (int64_t)s.n, -1);
        tern_ledger_series_free(&s);
    }
    return show_table(&t, "metric,last,step,min,max,n", "metric", err);
}

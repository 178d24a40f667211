/* The realised mix of a run: the newest values "mix/SET/samples", "mix/SET/tokens" and
 * "mix/SET/epochs", which the trainer records with each checkpoint. */
#include "cmd/ledger/show.h"

#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

const struct tern_report_field show_mix_fields[] = {
    {"set", "training set", false},
    {"samples", "rows that the run has had from it", true},
    {"tokens", "of the set in them, padding not among them", true},
    {"epochs", "passes over the set", true},
    {"step", "up to this one, a checkpoint's", true},
};

struct row {
    char *set;
    double samples, tokens, epochs, step;
};

/* The newest effective value; false without one. */
static bool newest(struct tern_ledger *l, const char *set, const char *what, double *ret_value,
                   double *ret_step)
{
    struct tern_ledger_series s = {0};
    char *name = tern_strf("mix/%s/%s", set, what);
    bool there = tern_ledger_series(l, name, /* all= */ false, &s, NULL) == 0 && s.n > 0;

    if (there) {
        *ret_value = s.value[s.n - 1];
        *ret_step = s.step[s.n - 1];
    }
    tern_ledger_series_free(&s);
    free(name);
    return there;
}

/* The set of a name "mix/SET/samples", malloc'ed; NULL: it is another. */
static char *set_of(const char *name)
{
    static const char begin[] = "mix/", end[] = "/samples";
    const size_t len = strlen(name), around = sizeof begin + sizeof end - 2;

    if (!tern_str_starts(name, begin) || !tern_str_ends(name, end) || len <= around)
        return NULL;
    return tern_strf("%.*s", (int)(len - around), name + sizeof begin - 1);
}

/* The row that begins with this metric, if one does; free its set. */
static bool read_row(struct tern_ledger *l, const char *metric, struct row *ret_row)
{
    struct row r = {.set = set_of(metric)};

    if (r.set && newest(l, r.set, "samples", &r.samples, &r.step) &&
        newest(l, r.set, "tokens", &r.tokens, &r.step) &&
        newest(l, r.set, "epochs", &r.epochs, &r.step)) {
        *ret_row = r;
        return true;
    }
    free(r.set);
    return false;
}

bool show_is_mix(const char *metric)
{
    return tern_str_starts(metric, "mix/");
}

bool show_has_mix(const struct tern_ledger_rows *metrics)
{
    for (size_t i = 0; i < metrics->n; i++)
        if (show_is_mix(metrics->names[i]))
            return true;
    return false;
}

int show_mix(struct tern_ledger *l, const struct tern_ledger_rows *metrics, struct tern_err *err)
{
    struct show_cells t = {.fields = show_mix_fields, .n_fields = SHOW_MIX_FIELDS};
    struct row r;

    for (size_t i = 0; i < metrics->n; i++) {
        if (!read_row(l, metrics->names[i], &r))
            continue;
        show_cell_text(&t, r.set);
        show_cell(&t, "%.0f", r.samples);
        show_cell(&t, "%.0f", r.tokens);
        show_cell(&t, "%.4f", r.epochs);
        show_cell(&t, "%.0f", r.step);
        free(r.set);
    }
    return show_table(&t, "set,samples,tokens,epochs,step", "set", err);
}

json_t *show_json_mix(struct tern_ledger *l, const struct tern_ledger_rows *metrics)
{
    json_t *list = json_array();
    struct row r;

    for (size_t i = 0; i < metrics->n; i++) {
        if (!read_row(l, metrics->names[i], &r))
            continue;
        json_t *j = json_pack("{s:I, s:I, s:f, s:I}", "samples", (json_int_t)r.samples, "tokens",
                              (json_int_t)r.tokens, "epochs", r.epochs, "step", (json_int_t)r.step);
        json_object_set_new(j, "set", show_json_text(r.set));
        json_array_append_new(list, j);
        free(r.set);
    }
    return list;
}

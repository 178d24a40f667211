#include "core/train/stop.h"

#include "core/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Of a loss.  Another number of ranks changes some 1e-7 of it in fp32 without any training: a
 * smaller difference is no improvement. */
static const double ROUNDING = 1e-6;

void tern_train_stop_init(struct tern_train_stop_rule *s, const struct tern_recipe *r)
{
    const struct tern_recipe_sets *sets = &r->data.held_out;
    const char *metric = r->evaluate.stop.metric;

    *s = (struct tern_train_stop_rule){
        .metric = metric    ? metric
                  : sets->n ? sets->sets[0].name
                            : NULL,
        .patience = metric ? r->evaluate.stop.patience : 0,
        .best = INFINITY,
        .best_step = -1,
        .last_step = -1,
    };
}

void tern_train_stop_see(struct tern_train_stop_rule *s, const char *name, int64_t step,
                         double loss)
{
    if (!s->metric || strcmp(name, s->metric) != 0 || step <= s->last_step || !isfinite(loss))
        return;
    s->last_step = step;
    if (loss < s->best * (1 - ROUNDING)) {
        s->best = loss;
        s->best_step = step;
        s->since = 0;
    } else {
        s->since++;
    }
}

bool tern_train_stop_is_over(const struct tern_train_stop_rule *s)
{
    return s->patience > 0 && s->since >= s->patience;
}

json_t *tern_train_stop_describe(const struct tern_train_stop_rule *s)
{
    char text[300];

    snprintf(text, sizeof text,
             "%.100s has not got better than %.4f a token of step %" PRId64 " in %" PRId64
             " evaluations (evaluate.stop)",
             s->metric, s->best, s->best_step, s->since);
    return tern_json_text(text);
}

json_t *tern_train_stop_save(const struct tern_train_stop_rule *s)
{
    if (!s->metric)
        return json_null();
    return json_pack("{s:s, s:o, s:I, s:I, s:I}", "metric", s->metric, "best",
                     tern_json_real(s->best), "best_step", (json_int_t)s->best_step, "last_step",
                     (json_int_t)s->last_step, "since", (json_int_t)s->since);
}

void tern_train_stop_load(struct tern_train_stop_rule *s, json_t *from)
{
    const char *metric = json_string_value(json_object_get(from, "metric"));
    json_t *best = json_object_get(from, "best");

    if (!metric || !s->metric || strcmp(metric, s->metric) != 0)
        return;
    s->best = json_is_number(best) ? json_number_value(best) : INFINITY;
    s->best_step = json_integer_value(json_object_get(from, "best_step"));
    s->last_step = json_integer_value(json_object_get(from, "last_step"));
    s->since = json_integer_value(json_object_get(from, "since"));
}

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
        .sets = sets,
    };
}

void tern_train_stop_free(struct tern_train_stop_rule *s)
{
    json_decref(s->others);
    s->others = NULL;
}

static void set_other(struct tern_train_stop_rule *s, const char *name, double best, int64_t step)
{
    if (!s->others)
        s->others = json_object();
    json_object_set_new(
        s->others, name,
        json_pack("{s:o, s:I}", "best", tern_json_real(best), "best_step", (json_int_t)step));
}

static void see_other(struct tern_train_stop_rule *s, const char *name, int64_t step, double loss)
{
    json_t *best = json_object_get(json_object_get(s->others, name), "best");

    if (isfinite(loss) &&
        (!json_is_number(best) || loss < json_number_value(best) * (1 - ROUNDING)))
        set_other(s, name, loss, step);
}

void tern_train_stop_see(struct tern_train_stop_rule *s, const char *name, int64_t step,
                         double loss)
{
    if (!s->metric)
        return;
    if (strcmp(name, s->metric) != 0) {
        see_other(s, name, step, loss);
        return;
    }
    if (step <= s->last_step || !isfinite(loss))
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
    json_t *j = json_pack("{s:s, s:o, s:I, s:I, s:I}", "metric", s->metric, "best",
                          tern_json_real(s->best), "best_step", (json_int_t)s->best_step,
                          "last_step", (json_int_t)s->last_step, "since", (json_int_t)s->since);
    if (s->others)
        json_object_set_new(j, "others", json_deep_copy(s->others));
    return j;
}

static void load_other(struct tern_train_stop_rule *s, const char *name, json_t *from)
{
    json_t *best = json_object_get(from, "best"), *step = json_object_get(from, "best_step");

    if (json_is_number(best) && json_is_integer(step))
        set_other(s, name, json_number_value(best), json_integer_value(step));
}

void tern_train_stop_load(struct tern_train_stop_rule *s, json_t *from)
{
    const char *metric = json_string_value(json_object_get(from, "metric"));
    json_t *best = json_object_get(from, "best"), *others = json_object_get(from, "others");

    if (!metric || !s->metric)
        return;
    for (size_t i = 0; i < s->sets->n; i++) {
        const char *name = s->sets->sets[i].name;
        if (strcmp(name, s->metric) != 0)
            load_other(s, name, strcmp(name, metric) == 0 ? from : json_object_get(others, name));
    }
    if (strcmp(metric, s->metric) != 0)
        return;
    s->best = json_is_number(best) ? json_number_value(best) : INFINITY;
    s->best_step = json_integer_value(json_object_get(from, "best_step"));
    s->last_step = json_integer_value(json_object_get(from, "last_step"));
    s->since = json_integer_value(json_object_get(from, "since"));
}

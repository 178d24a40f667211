#include "core/mlflow/history.h"

#include "core/base/str.h"
#include "core/store/url.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE = 25000,         /* servers that have pages take no more */
    POINTS_MAX = 1 << 28, /* of one metric: 6 GiB */
};

int tern_mlflow_points_add(struct tern_mlflow_points *p, int64_t step, int64_t time_ms,
                           double value, struct tern_err *err)
{
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 1024;
        struct tern_mlflow_point *more =
            cap <= POINTS_MAX ? realloc(p->point, cap * sizeof *more) : NULL;
        if (!more)
            return tern_err_set(err, TERN_TEMPFAIL, "no memory for %zu values of a metric", cap);
        p->point = more;
        p->cap = cap;
    }
    p->point[p->n++] = (struct tern_mlflow_point){step, time_ms, value};
    return 0;
}

void tern_mlflow_points_free(struct tern_mlflow_points *p)
{
    free(p->point);
    *p = (struct tern_mlflow_points){0};
}

static int by_step(const void *x, const void *y)
{
    const struct tern_mlflow_point *a = x, *b = y;

    return a->step < b->step ? -1 : a->step > b->step;
}

/* As a database of MLflow stores it: it has no infinity. */
static double stored(double v)
{
    return isinf(v) ? copysign(DBL_MAX, v) : v;
}

static bool same_value(double a, double b)
{
    return isnan(a) || isnan(b) ? isnan(a) && isnan(b) : stored(a) == stored(b);
}

bool tern_mlflow_points_have(const struct tern_mlflow_points *p, const struct tern_mlflow_point *q)
{
    size_t low = 0, high = p->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (p->point[mid].step < q->step)
            low = mid + 1;
        else
            high = mid;
    }
    for (; low < p->n && p->point[low].step == q->step; low++)
        if (p->point[low].time_ms == q->time_ms && same_value(p->point[low].value, q->value))
            return true;
    return false;
}

/* A number, or a word that stands for one. */
static bool read_value(const json_t *j, double *ret_value)
{
    static const struct {
        const char *word;
        double value;
    } words[] = {{"NaN", NAN},           {"nan", NAN},
                 {"Infinity", INFINITY}, {"-Infinity", -INFINITY},
                 {"inf", INFINITY},      {"-inf", -INFINITY}};
    const char *s = json_string_value(j);

    if (json_is_number(j)) {
        *ret_value = json_number_value(j);
        return true;
    }
    for (size_t i = 0; s && i < sizeof words / sizeof *words; i++)
        if (strcmp(s, words[i].word) == 0) {
            *ret_value = words[i].value;
            return true;
        }
    return s && tern_str_real(s, -DBL_MAX, DBL_MAX, ret_value) == 0;
}

/* Integers of 64 bits are texts in JSON that protobuf writes; one that is 0 may be left out. */
static bool read_integer(const json_t *j, int64_t *ret_value)
{
    *ret_value = json_integer_value(j);
    return !j || json_is_integer(j) ||
           (json_is_string(j) &&
            tern_str_int(json_string_value(j), INT64_MIN, INT64_MAX, ret_value) == 0);
}

static int take_page(struct tern_mlflow *m, const char *call, const json_t *answer,
                     struct tern_mlflow_points *to, struct tern_err *err)
{
    const json_t *list = json_object_get(answer, "metrics");
    size_t n = json_array_size(list);

    if (list && !json_is_array(list))
        return tern_mlflow_strange(m, call, err);
    for (size_t i = 0; i < n; i++) {
        const json_t *j = json_array_get(list, i);
        struct tern_mlflow_point p;
        if (!json_is_object(j) || !read_integer(json_object_get(j, "step"), &p.step) ||
            !read_integer(json_object_get(j, "timestamp"), &p.time_ms))
            return tern_mlflow_strange(m, call, err);
        const json_t *value = json_object_get(j, "value");
        p.value = 0;
        if (value && !read_value(value, &p.value))
            return tern_mlflow_strange(m, call, err);
        if (tern_mlflow_points_add(to, p.step, p.time_ms, p.value, err) < 0)
            return -1;
    }
    return 0;
}

int tern_mlflow_history(struct tern_mlflow *m, const char *run_id, const char *key,
                        struct tern_mlflow_points *ret_points, struct tern_err *err)
{
    struct tern_mlflow_points p = {0};
    char *page = NULL;
    int rc = 0;

    do {
        struct tern_buf call = {0};
        json_t *answer = NULL;
        tern_buf_printf(&call, "metrics/get-history?run_id=%s&max_results=%d&metric_key=", run_id,
                        PAGE);
        tern_store_encode(&call, key, /* slashes= */ true);
        if (page) {
            tern_buf_puts(&call, "&page_token=");
            tern_store_encode(&call, page, /* slashes= */ true);
        }
        free(page);
        page = NULL;
        rc = tern_buf_check(&call, "a request", err);
        if (rc == 0)
            rc = (int)tern_mlflow_do(m, call.data, NULL, &answer, err);
        if (rc == TERN_MLFLOW_DONE)
            rc = take_page(m, call.data, answer, &p, err);
        else if (rc > 0) /* no such metric there */
            rc = 0;
        const char *next = json_string_value(json_object_get(answer, "next_page_token"));
        if (rc == 0 && next && *next)
            page = tern_strdup(next);
        json_decref(answer);
        tern_buf_free(&call);
    } while (rc == 0 && page);
    free(page);
    if (rc < 0) {
        tern_mlflow_points_free(&p);
        return -1;
    }
    if (p.n)
        qsort(p.point, p.n, sizeof *p.point, by_step);
    *ret_points = p;
    return 0;
}

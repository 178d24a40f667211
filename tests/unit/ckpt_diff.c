/* core/ckpt/diff.h: arrays of all shapes and types, in pieces, against plain loops. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ckpt/diff.h"
#include "tests/unit/tap.h"

#include <math.h>

static char root[] = "/tmp/tern-ckpt-diff-XXXXXX";

/* More elements than are read at once, in rows that are not, and in rows that are too long. */
static const uint64_t shapes[][TERN_CKPT_DIMS] = {
    {0}, {1}, {7}, {3, 5}, {1500, 1000}, {3, 700000}, {2, 3, 250000}, {5, 0, 3}, {2, 2, 3, 2}};
static const int dims[] = {0, 1, 1, 2, 2, 2, 3, 3, 4};
enum { ARRAYS = sizeof dims / sizeof *dims };

static uint64_t elements(int i)
{
    uint64_t n = 1;

    for (int d = 0; d < dims[i]; d++)
        n *= shapes[i][d];
    return n;
}

static struct tern_ckpt *save(const char *name, float *const data[ARRAYS])
{
    struct tern_ckpt_array arrays[ARRAYS];
    char names[ARRAYS][16], *dir = tern_fs_join(root, name);
    struct tern_ckpt_saved saved;
    struct tern_err err = {0};

    for (int i = 0; i < ARRAYS; i++) {
        snprintf(names[i], sizeof names[i], "array%d", i);
        arrays[i] = (struct tern_ckpt_array){.name = names[i],
                                             .type = TERN_CKPT_F32,
                                             .ndim = dims[i],
                                             .data = data[i],
                                             .owner = true};
        memcpy(arrays[i].global, shapes[i], sizeof shapes[i]);
        memcpy(arrays[i].shape, shapes[i], sizeof shapes[i]);
    }
    json_t *meta = json_object();
    const struct tern_ckpt_save_options o = {
        .dir = dir, .step = 1, .arrays = arrays, .n = ARRAYS, .meta = meta};
    tern_fs_mkdirs(dir, 0700, NULL);
    ok(tern_ckpt_save(&o, &saved, &err) == 0, "%s is saved: %s", name, err.text);
    json_decref(meta);
    free(dir);
    struct tern_ckpt *c = tern_ckpt_open(saved.path, &err);
    ok(c != NULL, "%s opens: %s", name, err.text);
    return c;
}

struct expected {
    uint64_t changed[ARRAYS];
    double largest[ARRAYS], distance[ARRAYS], norm[ARRAYS];
    int seen, wrong, same;
};

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static int check(void *ctx, const struct tern_ckpt_diff_row *row, struct tern_err *err)
{
    struct expected *e = ctx;
    const int i = atoi((row->change == TERN_CKPT_ONLY_B ? row->b.name : row->a.name) + 5);

    (void)err;
    e->seen++;
    e->same += row->change == TERN_CKPT_SAME;
    const enum tern_ckpt_change change = e->changed[i] ? TERN_CKPT_CHANGED : TERN_CKPT_SAME;
    const bool right =
        row->change == change &&
        (!row->compared ||
         (row->elements == elements(i) && row->changed == e->changed[i] &&
          row->largest == e->largest[i] && near(row->distance, sqrt(e->distance[i])) &&
          near(row->norm, sqrt(e->norm[i]))));
    if (!right)
        printf("# %s: %d, %llu changed, %g %g %g\n", row->name, (int)row->change,
               (unsigned long long)row->changed, row->largest, row->distance, row->norm);
    e->wrong += !right;
    return 0;
}

static int stop_at_second(void *ctx, const struct tern_ckpt_diff_row *row, struct tern_err *err)
{
    (void)row;
    return ++*(int *)ctx == 2 ? tern_err_set(err, TERN_FAILED, "enough") : 0;
}

/* ------------------------------------------------------------------ elements of every type */

static struct tern_ckpt *put(const char *name, const char *type, const void *data, size_t bytes,
                             size_t n)
{
    char *dir = tern_fs_join(root, name), *file = tern_fs_join(dir, "model.safetensors");
    char *text = tern_strf("{\"x\":{\"dtype\":\"%s\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
                           type, n, bytes);
    struct tern_err err = {0};
    struct tern_buf b = {0};
    const uint64_t len = strlen(text);

    tern_buf_add(&b, &len, sizeof len);
    tern_buf_puts(&b, text);
    tern_buf_add(&b, data, bytes);
    tern_fs_mkdirs(dir, 0700, NULL);
    if (tern_fs_replace(file, b.data, b.len, 0600, &err) < 0)
        abort();
    struct tern_ckpt *c = tern_ckpt_open_hf(dir, &err);
    tern_buf_free(&b);
    free(text);
    free(file);
    free(dir);
    return c;
}

static int keep_row(void *ctx, const struct tern_ckpt_diff_row *row, struct tern_err *err)
{
    (void)err;
    *(struct tern_ckpt_diff_row *)ctx = *row;
    return 0;
}

#define BYTES(type, ...) (const type[]){__VA_ARGS__}, sizeof((const type[]){__VA_ARGS__})

static const struct {
    const char *name, *type_a, *type_b;
    const void *a;
    size_t bytes_a;
    const void *b;
    size_t bytes_b, n;
    enum tern_ckpt_change change;
    uint64_t changed;
    double largest, distance, norm;
} elements_of[] = {
    {"zeros of both signs", "F32", "F32", BYTES(float, 0.0f, 1), BYTES(float, -0.0f, 1), 2,
     TERN_CKPT_CHANGED, 1, 0, 0, 1},
    {"NaNs of two kinds", "F32", "F32", BYTES(uint32_t, 0x7fc00000), BYTES(uint32_t, 0x7fc00001), 1,
     TERN_CKPT_CHANGED, 1, 0, 0, 0},
    {"a NaN beside itself", "F32", "F32", BYTES(uint32_t, 0x7fc00000), BYTES(uint32_t, 0x7fc00000),
     1, TERN_CKPT_SAME, 0, 0, 0, 0},
    {"zeros of two types", "F32", "F64", BYTES(float, 0, 0, 2), BYTES(double, -0.0, 0, 2), 3,
     TERN_CKPT_CHANGED, 1, 0, 0, 2},
    {"squares that overflow", "F64", "F64", BYTES(double, 3e200, 4e200, 1), BYTES(double, 0, 0, 1),
     3, TERN_CKPT_CHANGED, 2, 4e200, 5e200, 5e200},
    {"squares that vanish", "F64", "F64", BYTES(double, 3e-200, 4e-200), BYTES(double, 0, 0), 2,
     TERN_CKPT_CHANGED, 2, 4e-200, 5e-200, 5e-200},
    {"infinity", "F64", "F64", BYTES(double, INFINITY, 3), BYTES(double, 1, 3), 2,
     TERN_CKPT_CHANGED, 1, INFINITY, INFINITY, 3},
    {"integers beyond 2^53", "I64", "I64", BYTES(int64_t, 9007199254740993, 3),
     BYTES(int64_t, 9007199254740992, 3), 2, TERN_CKPT_CHANGED, 1, 1, 1, 9007199254740992},
    {"the farthest integers", "I64", "I64", BYTES(int64_t, INT64_MIN), BYTES(int64_t, INT64_MAX), 1,
     TERN_CKPT_CHANGED, 1, 18446744073709551615.0, 18446744073709551615.0, 9223372036854775808.0},
    {"large unsigned integers", "U64", "U64", BYTES(uint64_t, UINT64_MAX), BYTES(uint64_t, 0), 1,
     TERN_CKPT_CHANGED, 1, 18446744073709551615.0, 18446744073709551615.0, 18446744073709551615.0},
    {"small integers below zero", "I8", "I8", BYTES(int8_t, -3, 4), BYTES(int8_t, 4, 4), 2,
     TERN_CKPT_CHANGED, 1, 7, 7, 5},
    {"integers that are the same", "I32", "I32", BYTES(int32_t, -3, 4), BYTES(int32_t, -3, 4), 2,
     TERN_CKPT_SAME, 0, 0, 0, 5},
    {"a type that tern does not know", "F8_E4M3", "F8_E4M3", BYTES(char, 1, 2, 3),
     BYTES(char, 1, 5, 3), 3, TERN_CKPT_CHANGED, 1, 0, 0, 0},
    {"an unknown type, the same bytes", "F8_E4M3", "F8_E4M3", BYTES(char, 1, 2, 3),
     BYTES(char, 1, 2, 3), 3, TERN_CKPT_SAME, 0, 0, 0, 0},
    {"the same bytes of two unknown types", "F8_E4M3", "F8_E5M2", BYTES(char, 1, 2),
     BYTES(char, 1, 2), 2, TERN_CKPT_CHANGED, 0, 0, 0, 0},
};

static void test_elements(void)
{
    for (size_t i = 0; i < sizeof elements_of / sizeof *elements_of; i++) {
        const __typeof__(*elements_of) *e = &elements_of[i];
        struct tern_ckpt *x = put("x", e->type_a, e->a, e->bytes_a, e->n);
        struct tern_ckpt *y = put("y", e->type_b, e->b, e->bytes_b, e->n);
        struct tern_ckpt_diff_row row = {0};
        struct tern_err err = {0};
        const struct tern_ckpt_diff_how how = {
            .prefix_a = "", .prefix_b = "", .values = true, .each = keep_row, .ctx = &row};
        const bool right = x && y && tern_ckpt_diff(x, y, &how, &err) == 0 &&
                           row.change == e->change && row.changed == e->changed &&
                           row.largest == e->largest &&
                           (row.distance == e->distance || near(row.distance, e->distance)) &&
                           (row.norm == e->norm || near(row.norm, e->norm));
        ok(right, "%s: %d, %llu changed, at most %g, %g of %g %s", e->name, (int)row.change,
           (unsigned long long)row.changed, row.largest, row.distance, row.norm, err.text);
        tern_ckpt_close(x);
        tern_ckpt_close(y);
    }
}

int main(void)
{
    float *a[ARRAYS], *b[ARRAYS];
    struct expected e = {0};
    struct tern_err err = {0};

    if (!mkdtemp(root))
        return 1;
    test_elements();
    for (int i = 0; i < ARRAYS; i++) {
        const uint64_t n = elements(i);
        a[i] = malloc((n + 1) * sizeof(float));
        b[i] = malloc((n + 1) * sizeof(float));
        for (uint64_t k = 0; k < n; k++) {
            a[i][k] = (float)((k * 2654435761U % 1000) / 500.0 - 1);
            b[i][k] = a[i][k];
            if (i % 2 == 0 && k * 40503 % 97 < 30)
                b[i][k] += (float)(k % 13) / 64;
            const double d = fabs((double)a[i][k] - (double)b[i][k]);
            e.changed[i] += d > 0;
            e.largest[i] = d > e.largest[i] ? d : e.largest[i];
            e.distance[i] += d * d;
            e.norm[i] += (double)a[i][k] * (double)a[i][k];
        }
    }
    struct tern_ckpt *x = save("a", a), *y = save("b", b);
    struct tern_ckpt_diff_how how = {
        .prefix_a = "", .prefix_b = "", .values = true, .each = check, .ctx = &e};
    ok(tern_ckpt_diff(x, y, &how, &err) == 0 && e.seen == ARRAYS && e.wrong == 0,
       "every array's elements, largest difference, distance and length: %s", err.text);
    how.values = false;
    e.seen = e.wrong = 0;
    ok(tern_ckpt_diff(x, y, &how, &err) == 0 && e.seen == ARRAYS && e.wrong == 0,
       "digests tell the same: %s", err.text);
    how.prefix_a = how.prefix_b = "array1";
    e.seen = 0;
    ok(tern_ckpt_diff(x, y, &how, &err) == 0 && e.seen == 1, "a prefix chooses arrays");
    int n = 0;
    const struct tern_ckpt_diff_how ends = {
        .prefix_a = "", .prefix_b = "", .each = stop_at_second, .ctx = &n};
    ok(tern_ckpt_diff(x, y, &ends, &err) < 0 && n == 2, "an error of the caller's ends it");
    volatile sig_atomic_t stop = 1;
    how.prefix_a = how.prefix_b = "";
    how.values = true;
    how.stop = &stop;
    ok(tern_ckpt_diff(x, y, &how, &err) < 0 && strstr(err.text, "interrupted"), "Ctrl-C ends it");
    tern_ckpt_close(x);
    tern_ckpt_close(y);
    for (int i = 0; i < ARRAYS; i++) {
        free(a[i]);
        free(b[i]);
    }
    tern_fs_remove_tree(root, NULL);
    return tap_done();
}

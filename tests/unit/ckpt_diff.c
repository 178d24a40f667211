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

int main(void)
{
    float *a[ARRAYS], *b[ARRAYS];
    struct expected e = {0};
    struct tern_err err = {0};

    if (!mkdtemp(root))
        return 1;
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

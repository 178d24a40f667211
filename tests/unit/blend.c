/* core/convert: blends, by values computed by hand, and on whole models. */
#include "tests/unit/disk.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/convert/blend.h"
#include "core/convert/blend_math.h"
#include "core/model/model.h"
#include "tests/unit/tap.h"

#include <fcntl.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char work[] = "/tmp/tern-blend-XXXXXX";
static struct tern_err err;

/* ------------------------------------------------------------------ arithmetic */

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-9;
}

static bool near_floats(const float *x, const float *want, size_t n)
{
    bool same = true;

    for (size_t i = 0; i < n; i++)
        same = same && x[i] == want[i];
    for (size_t i = 0; !same && i < n; i++)
        printf("# [%zu] %g, wanted %g\n", i, (double)x[i], (double)want[i]);
    return same;
}

static bool near_doubles(const double *x, const double *want, size_t n)
{
    bool same = true;

    for (size_t i = 0; i < n; i++)
        same = same && near(x[i], want[i]);
    for (size_t i = 0; !same && i < n; i++)
        printf("# [%zu] %.17g, wanted %.17g\n", i, x[i], want[i]);
    return same;
}

static void test_mean(void)
{
    const double a[] = {2, 2, 1, 8}, b[] = {0, 5, 2, 4}, *const x[] = {a, b};
    const double weights[] = {1, 3}, mean[] = {0.5, 4.25, 1.75, 5}, sum[] = {2, 17, 7, 20};
    double got[4];

    tern_convert_blend_mean(x, weights, 2, 4, 4, got);
    ok(near_doubles(got, mean, 4), "linear: a mean by weights");
    tern_convert_blend_mean(x, weights, 2, 1, 4, got);
    ok(near_doubles(got, sum, 4), "linear: a sum by weights");
}

static void test_arc(void)
{
    double a, b;

    tern_convert_blend_arc(4, 9, 0, 0.5, &a, &b);
    ok(near(a, sqrt(0.5)) && near(b, sqrt(0.5)), "slerp: half way between vectors at right angles");
    tern_convert_blend_arc(4, 9, 3, 1.0 / 3, &a, &b); /* an angle of 60 degrees */
    ok(near(a, sin(M_PI / 9 * 2) / sin(M_PI / 3)) && near(b, sin(M_PI / 9) / sin(M_PI / 3)),
       "slerp: a third of the way, at an angle of 60 degrees");
    tern_convert_blend_arc(4, 9, 3, 0, &a, &b);
    ok(near(a, 1) && near(b, 0), "slerp: t = 0 is the first model");
    tern_convert_blend_arc(4, 9, 3, 1, &a, &b);
    ok(near(a, 0) && near(b, 1), "slerp: t = 1 is the second model");
    tern_convert_blend_arc(4, 16, 8, 0.25, &a, &b);
    ok(near(a, 0.75) && near(b, 0.25), "slerp: parallel vectors lie on a line");
    tern_convert_blend_arc(4, 16, -8, 0.25, &a, &b);
    ok(near(a, 0.75) && near(b, 0.25), "slerp: opposite vectors lie on a line");
    tern_convert_blend_arc(1, 1, 0.9994, 0.5, &a, &b);
    ok(a > 0.50007 && near(a, b), "slerp: a cosine of 0.9994 is still an arc");
    tern_convert_blend_arc(1, 1, 0.9996, 0.5, &a, &b);
    ok(near(a, 0.5), "slerp: a cosine of 0.9996 is a line");
    tern_convert_blend_arc(0, 9, 0, 0.5, &a, &b);
    ok(near(b, sqrt(0.5)), "slerp: a vector of zeros makes a right angle");
}

/* `x` with the k greatest magnitudes kept, seen in pieces of `piece`. */
static void keep_top(float *x, size_t n, uint64_t k, size_t piece)
{
    struct tern_convert_blend_top *t = tern_alloc(1, sizeof *t, "counts", NULL);
    uint64_t before = 0;

    tern_convert_blend_top_begin(t, k);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t at = 0; at < n; at += piece)
            tern_convert_blend_top_add(t, x + at, n - at < piece ? n - at : piece);
        tern_convert_blend_top_next(t);
    }
    for (size_t at = 0; at < n; at += piece) {
        const size_t some = n - at < piece ? n - at : piece;
        const uint64_t here = tern_convert_blend_top_equals(t, x + at, some);
        tern_convert_blend_top_keep(t, before, x + at, some);
        before += here;
    }
    free(t);
}

static int by_magnitude(const void *a, const void *b)
{
    const float x = fabsf(*(const float *)a), y = fabsf(*(const float *)b);

    return x < y ? 1 : x > y ? -1 : 0;
}

static void test_top(void)
{
    enum { N = 5000 };
    float *x = tern_alloc(N, sizeof *x, "values", NULL), *sorted = tern_alloc(N, 4, "values", NULL);
    size_t good = 0, cases = 0;

    for (size_t piece = 1; piece <= 4; piece++) {
        float few[] = {1, -3, 2, -1, 1, 0}, want[] = {1, -3, 2, -1, 0, 0},
              one[] = {0, -3, 0, 0, 0, 0};
        float again[] = {1, -3, 2, -1, 1, 0};
        keep_top(few, 6, 4, piece);
        keep_top(again, 6, 1, piece);
        ok(near_floats(few, want, 6) && near_floats(again, one, 6),
           "ties: of equal magnitudes the first ones stay, in pieces of %zu", piece);
    }
    for (uint64_t k = 1; k <= N; k += 617, cases++) {
        for (size_t i = 0; i < N; i++) {
            const int32_t odd = (int32_t)((i * 2654435761u) % 65521) - 32760;
            x[i] = sorted[i] = (float)odd * 1.0000001f / 4096;
        }
        qsort(sorted, N, sizeof *sorted, by_magnitude);
        keep_top(x, N, k, 777);
        size_t kept = 0, small = 0;
        for (size_t i = 0; i < N; i++) {
            kept += x[i] != 0;
            small += x[i] != 0 && fabsf(x[i]) < fabsf(sorted[k - 1]);
        }
        const bool zero = sorted[k - 1] == 0;
        good += small == 0 && (kept == k || (zero && kept < k));
    }
    ok(good == cases, "ties: the k greatest of %d values stay: %zu of %zu", N, good, cases);
    ok(tern_convert_blend_top_of(4, 0.5) == 2 && tern_convert_blend_top_of(7, 0.5) == 3 &&
           tern_convert_blend_top_of(3, 0.01) == 1 && tern_convert_blend_top_of(3, 1) == 3,
       "ties: the share of a tensor is rounded down, and one element at least");
    free(x);
    free(sorted);
}

static void test_add(void)
{
    const float base[] = {1, 2, 3, 4}, a[] = {1, 0, -2, 4}, b[] = {-1, 3, -1, 0};
    const float *const x[] = {a, b}, weights[] = {1, 2}, equal[] = {1, 1}, none[] = {1, -1};
    struct tern_convert_blend_sum s = {
        .weights = weights, .n_models = 2, .signs = true, .normalize = true, .lambda = 1};
    const double signs[] = {0, 5, 3 - 4.0 / 3, 8}, whole[] = {-1, 8, -1, 8};
    const double twice[] = {-3, 14, -5, 12}, even[] = {2, 5, 1.5, 8};
    const double sum[] = {0, 8, -1, 8}, mean[] = {1 - 1.0 / 3, 4, 3 - 4.0 / 3, 4 + 4.0 / 3};
    const double difference[] = {3, -1, 2, 8};
    double got[4];

    tern_convert_blend_add(&s, base, x, 4, got);
    ok(near_doubles(got, signs, 4), "ties: the sign that weighs more, over the weights that count");
    s.normalize = false;
    tern_convert_blend_add(&s, base, x, 4, got);
    ok(near_doubles(got, whole, 4), "ties: not normalized");
    s.lambda = 2;
    tern_convert_blend_add(&s, base, x, 4, got);
    ok(near_doubles(got, twice, 4), "ties: lambda scales what is added to the base");
    s = (struct tern_convert_blend_sum){equal, 2, true, true, 1};
    tern_convert_blend_add(&s, base, x, 4, got);
    ok(near_doubles(got, even, 4), "ties: differences that weigh the same go up");
    s = (struct tern_convert_blend_sum){weights, 2, false, false, 1};
    tern_convert_blend_add(&s, base, x, 4, got);
    ok(near_doubles(got, sum, 4), "dare: the sum by weights");
    s.normalize = true;
    tern_convert_blend_add(&s, base, x, 4, got);
    ok(near_doubles(got, mean, 4), "dare: the mean by weights");
    s.weights = none;
    tern_convert_blend_add(&s, base, x, 4, got);
    ok(near_doubles(got, difference, 4), "dare: weights that sum up to nothing divide by 1");
}

static void test_part(void)
{
    enum { N = 1000000 };
    const char *name = "model.norm.weight";
    const struct tern_convert_blend_part p = {7, tern_convert_blend_stream(name, 0), 0.3},
                                         q = {7, tern_convert_blend_stream(name, 1), 0.3},
                                         r = {8, tern_convert_blend_stream(name, 0), 0.3};
    float x[] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8], all[] = {1, 2, 3, 4, 5, 6, 7, 8};
    double kept = 0, both = 0, other = 0, norm = 0, kept_norm = 0;
    unsigned first = 0;

    for (uint64_t i = 0; i < N; i++) {
        const bool a = tern_convert_blend_stays(&p, i);
        kept += a;
        both += a == tern_convert_blend_stays(&q, i);
        other += a == tern_convert_blend_stays(&r, i);
        if (i < 32)
            first |= (unsigned)a << i;
    }
    ok(fabs(kept - 0.3 * N) < 3 * sqrt(0.3 * 0.7 * N), "dare: %g of %d stay at a density of 0.3",
       kept, N);
    ok(fabs(both - 0.58 * N) < 3 * sqrt(0.58 * 0.42 * N) &&
           fabs(other - 0.58 * N) < 3 * sqrt(0.58 * 0.42 * N),
       "dare: each model and each seed has a choice of its own (%g, %g agree)", both, other);
    ok(first == 0x710548cau, "dare: the choice of a seed never changes (%#x)", first);
    tern_convert_blend_part_norms(&p, 0, x, 8, &norm, &kept_norm);
    double want = 0;
    for (int i = 0; i < 8; i++) {
        y[i] = first >> i & 1 ? x[i] * 2 : 0;
        want += first >> i & 1 ? (double)x[i] : 0;
    }
    ok(norm == 36 && kept_norm == want && want > 0, "dare: norms of all, and of what stays");
    tern_convert_blend_part_keep(&p, 0, 2, x, 5);
    tern_convert_blend_part_keep(&p, 5, 2, x + 5, 3);
    ok(near_floats(x, y, 8), "dare: what stays is scaled, in pieces as in one");
    const struct tern_convert_blend_part whole = {7, p.stream, 1};
    tern_convert_blend_part_keep(&whole, 0, 1, all, 8);
    ok(all[0] == 1 && all[7] == 8, "dare: at a density of 1 all stay");
    ok(tern_convert_blend_rescale(6, 2) == 3 && tern_convert_blend_rescale(6, 0) == 1 &&
           tern_convert_blend_rescale(1e-8, 5e-9) == 1,
       "dare: the factor is that of the norms; nothing is not scaled");
}

/* ------------------------------------------------------------------ models */

enum { MODELS = 3 };
static const char *const names[MODELS] = {"base", "one", "two"};

/* A model's element. */
static float value(int model, uint64_t tensor, uint64_t i)
{
    const uint64_t r = ((i + 1) * 2654435761u + tensor * 40503u + (uint64_t)model * 97) % 65521;
    const float base = (float)((i * 7 + tensor) % 64) / 32 - 1;

    return model == 0 ? base : base + (float)((int64_t)r - 32760) / 65536;
}

static char *in_work(const char *name)
{
    return tern_fs_join(work, name);
}

/* Model `m` as a Hugging Face folder; `zeros`: its file is a hole. */
static void write_model(const char *prefix, int m, const struct tern_model_config *c,
                        enum tern_ckpt_type type, bool zeros)
{
    char *folder = tern_strf("%s/%s-%s", work, prefix, names[m]);
    char *config = tern_fs_join(folder, "config.json");
    char *path = tern_fs_join(folder, "model.safetensors");
    char *text = tern_model_config_json(c, "float32"), *head;
    const size_t n = tern_model_tensors(c);
    struct tern_model_tensor *t = tern_alloc(n, sizeof *t, "tensors", NULL);
    struct tern_ckpt_info *info = tern_alloc(n, sizeof *info, "tensors", NULL);
    size_t len;
    uint64_t data;

    mkdir(folder, 0777);
    tern_fs_replace(config, text, strlen(text), 0644, NULL);
    for (size_t i = 0; i < n; i++) {
        tern_model_tensor(c, i, &t[i]);
        info[i] = (struct tern_ckpt_info){
            .name = t[i].name,
            .type = type,
            .ndim = t[i].ndim,
            .shape = {(uint64_t)t[i].shape[0], t[i].ndim > 1 ? (uint64_t)t[i].shape[1] : 0}};
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    int rc = tern_ckpt_safetensors_head(info, n, &head, &len, &data, &err);
    if (rc == 0)
        rc = tern_fs_write(fd, head, len, path, &err);
    for (size_t i = 0; rc == 0 && !zeros && i < n; i++) {
        double *x = tern_alloc(t[i].count, 2 * sizeof *x, "values", NULL);
        for (uint64_t k = 0; k < t[i].count; k++)
            x[k] = (double)value(m, i, k) + (type == TERN_CKPT_F64 ? 1e-10 * m : 0);
        tern_ckpt_convert(x + t[i].count, type, x, TERN_CKPT_F64, t[i].count);
        rc = tern_fs_write(fd, x + t[i].count, t[i].count * tern_ckpt_type_bytes(type), path, &err);
        free(x);
    }
    if (rc == 0 && zeros)
        rc = ftruncate(fd, (off_t)(len + data));
    close(fd);
    if (rc < 0)
        ok(false, "%s: %s", path, err.text);
    free(head), free(info), free(t), free(text), free(path), free(config), free(folder);
}

static void write_models(const char *prefix, const struct tern_model_config *c, bool zeros)
{
    for (int m = 0; m < MODELS; m++) /* the base in F32, one in BF16 */
        write_model(prefix, m, c, m == 1 && !zeros ? TERN_CKPT_BF16 : TERN_CKPT_F32, zeros);
}

/* The two models of `prefix`, blended to `out`. */
static int blend(const char *prefix, const char *out, struct tern_convert_blend b)
{
    char *path[MODELS], *to = in_work(out);

    for (int m = 0; m < MODELS; m++)
        path[m] = tern_strf("%s/%s-%s", work, prefix, names[m]);
    const struct tern_convert_blend_model models[] = {{path[1], 1, 0.4}, {path[2], 0.5, 0.6}};
    b.models = models;
    b.n = 2;
    b.base = b.method >= TERN_CONVERT_BLEND_TIES ? path[0] : NULL;
    b.lambda = 1;
    b.t = 0.3;
    int rc = tern_convert_blend(&b, to, NULL, &err);
    if (rc < 0)
        printf("# %s\n", err.text);
    for (int m = 0; m < MODELS; m++)
        free(path[m]);
    free(to);
    return rc;
}

static bool same_file(const char *a, const char *b)
{
    char *one = tern_strf("%s/%s/model.safetensors", work, a), *data = NULL;
    char *two = tern_strf("%s/%s/model.safetensors", work, b), *other = NULL;
    size_t len = 0, others = 0;
    bool same = tern_fs_read(one, 256 << 20, &data, &len, &err) == 0 &&
                tern_fs_read(two, 256 << 20, &other, &others, &err) == 0 && len == others &&
                memcmp(data, other, len) == 0;

    free(one), free(two), free(data), free(other);
    return same;
}

/* Rows that are longer than what is in memory at a time, and tensors of many blocks. */
static const struct tern_model_config wide = {.dim = (256 << 10) + 24,
                                              .ffn = 1,
                                              .layers = 1,
                                              .heads = 1,
                                              .kv_heads = 1,
                                              .head_dim = 2,
                                              .vocab = 3,
                                              .max_position = 16,
                                              .norm_eps = 1e-5,
                                              .init_std = 0.02,
                                              .tied = true,
                                              .rope_theta = 10000,
                                              .bos_id = -1,
                                              .pad_id = -1};

static const struct {
    const char *name;
    struct tern_convert_blend b;
} methods[] = {
    {"linear", {.method = TERN_CONVERT_BLEND_LINEAR, .normalize = true}},
    {"slerp", {.method = TERN_CONVERT_BLEND_SLERP}},
    {"ties", {.method = TERN_CONVERT_BLEND_TIES, .normalize = true}},
    {"dare_linear", {.method = TERN_CONVERT_BLEND_DARE_LINEAR, .rescale = true, .seed = 3}},
    {"dare_ties", {.method = TERN_CONVERT_BLEND_DARE_TIES, .rescale = true, .seed = 3}},
};
enum { METHODS = sizeof methods / sizeof *methods };

static void test_threads(void)
{
    write_models("wide", &wide, /* zeros= */ false);
    for (int i = 0; i < METHODS; i++) {
        struct tern_convert_blend b = methods[i].b;
        char *one = tern_strf("%s-1", methods[i].name), *three = in_work("three");
        b.threads = 1;
        int rc = blend("wide", one, b);
        b.threads = 3;
        ok(rc == 0 && blend("wide", "three", b) == 0 && same_file(one, "three"),
           "%s: one thread and three write the same bytes", methods[i].name);
        tern_fs_remove_tree(three, NULL);
        free(one), free(three);
    }
    struct tern_convert_blend b = methods[3].b;
    b.seed = 4;
    ok(blend("wide", "other", b) == 0 && !same_file("dare_linear-1", "other"),
       "dare: another seed chooses other elements");
}

/* All of one tensor of a blend, as doubles. */
static double *read_tensor(const char *folder, const char *name, size_t n)
{
    char *path = in_work(folder);
    struct tern_ckpt *c = tern_ckpt_open_hf(path, &err);
    double *x = tern_alloc(n, sizeof *x, "values", NULL);

    if (!c || tern_ckpt_read(c, name, TERN_CKPT_F64, NULL, NULL, x, &err) < 0) {
        ok(false, "%s: %s", folder, err.text);
        memset(x, 0, n * sizeof *x);
    }
    tern_ckpt_close(c);
    free(path);
    return x;
}

/* The whole against the definition, of a tensor in several pieces. */
static void test_whole(void)
{
    const size_t n = (size_t)(wide.dim * wide.vocab);
    const char *name = "model.embed_tokens.weight";
    float *d[2] = {tern_alloc(n, 4, "values", NULL), tern_alloc(n, 4, "values", NULL)};
    double worst[METHODS] = {0}, aa = 0, bb = 0, ab = 0, fa, fb;
    const double density[2] = {0.4, 0.6};
    double *a[2] = {tern_alloc(n, 8, "values", NULL), tern_alloc(n, 8, "values", NULL)};

    for (size_t i = 0; i < n; i++) {
        float x = value(1, 0, i);
        uint16_t h;
        tern_ckpt_convert(&h, TERN_CKPT_BF16, &x, TERN_CKPT_F32, 1);
        tern_ckpt_convert(&x, TERN_CKPT_F32, &h, TERN_CKPT_BF16, 1);
        a[0][i] = (double)x;
        a[1][i] = (double)value(2, 0, i);
        aa += a[0][i] * a[0][i], bb += a[1][i] * a[1][i], ab += a[0][i] * a[1][i];
    }
    tern_convert_blend_arc(aa, bb, ab, 0.3, &fa, &fb);
    for (int m = 0; m < METHODS; m++) {
        char *folder = tern_strf("%s-1", methods[m].name);
        double *got = read_tensor(folder, name, n);
        for (int k = 0; k < 2 && m >= 2; k++) {
            double all = 0, kept = 0;
            const struct tern_convert_blend_part p = {3, tern_convert_blend_stream(name, (size_t)k),
                                                      density[k]};
            for (size_t i = 0; i < n; i++)
                d[k][i] = (float)a[k][i] - value(0, 0, i);
            if (m == 2)
                keep_top(d[k], n, tern_convert_blend_top_of(n, density[k]), n);
            tern_convert_blend_part_norms(&p, 0, d[k], n, &all, &kept);
            if (m > 2)
                tern_convert_blend_part_keep(&p, 0, tern_convert_blend_rescale(all, kept), d[k], n);
        }
        for (size_t i = 0; i < n; i++) {
            const double one = (double)d[0][i], two = 0.5 * (double)d[1][i], sum = one + two;
            const bool first = m == 3 || (sum >= 0 ? one > 0 : one < 0);
            const bool second = m == 3 || (sum >= 0 ? two > 0 : two < 0);
            const double divisor = m == 2 && (first || second) ? first + 0.5 * second : 1;
            double want = m == 0 ? (a[0][i] + 0.5 * a[1][i]) / 1.5
                          : m == 1
                              ? fa * a[0][i] + fb * a[1][i]
                              : (double)value(0, 0, i) + (first * one + second * two) / divisor;
            const double off = fabs(got[i] - want);
            worst[m] = off > worst[m] ? off : worst[m];
        }
        /* Without a base the type is BF16, that of the first model: half a unit in its eight bits.
         */
        ok(worst[m] <= (m < 2 ? 4e-3 : 2e-7), "%s: on a whole tensor at most %g off the definition",
           methods[m].name, worst[m]);
        free(got);
        free(folder);
    }
    free(d[0]), free(d[1]), free(a[0]), free(a[1]);
}

/* What float has no room for. */
static void test_double(void)
{
    struct tern_model_config small = wide;
    const char *name = "model.embed_tokens.weight";
    double worst = 0;

    small.dim = 8;
    for (int m = 0; m < MODELS; m++)
        write_model("double", m, &small, TERN_CKPT_F64, /* zeros= */ false);
    ok(blend("double", "double", methods[0].b) == 0, "linear: models in F64 are blended");
    const size_t n = (size_t)(small.dim * small.vocab);
    double *got = read_tensor("double", name, n);
    for (size_t i = 0; i < n; i++) {
        const double a = (double)value(1, 0, i) + 1e-10, b = (double)value(2, 0, i) + 2e-10;
        worst = fmax(worst, fabs(got[i] - (a + 0.5 * b) / 1.5));
    }
    ok(worst < 1e-15, "linear: models in F64 are at most %g off the definition", worst);
    free(got);
}

/* What a power cut could take. */
static void test_durable(void)
{
    static const char *const files[] = {"model.safetensors", "config.json"};
    char *out = in_work("durable");

    disk_clear();
    int rc = blend("wide", "durable", methods[0].b);
    const int at = disk_find(0, "rename", out);
    for (int i = 0; i < 2 && at >= 0; i++) {
        char *file = tern_fs_join(disk_events[at].path, files[i]);
        const int own = disk_find(0, "rename", file);
        ok(own >= 0 && own < at && disk_synced(disk_events[own].path, 0, own) &&
               disk_synced(disk_events[at].path, own, at),
           "a blend's %s is synced before it gets its name, and its folder after", files[i]);
        free(file);
    }
    ok(rc == 0 && at >= 0 && disk_synced(work, at, -1), "a blend's own name is synced");
    free(out);
}

/* ------------------------------------------------------------------ memory */

static const struct tern_model_config tall = {.dim = 1024,
                                              .ffn = 8,
                                              .layers = 1,
                                              .heads = 8,
                                              .kv_heads = 2,
                                              .head_dim = 128,
                                              .vocab = 8192,
                                              .max_position = 16,
                                              .norm_eps = 1e-5,
                                              .init_std = 0.02,
                                              .tied = true,
                                              .rope_theta = 10000,
                                              .bos_id = -1,
                                              .pad_id = -1};

/* In a process of its own, before this one has threads. */
static void test_memory(void)
{
    write_models("tall", &tall, /* zeros= */ true);
    for (int i = 0; i <= 2; i += 2) { /* linear, ties */
        struct rusage used;
        int status = -1;
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            struct tern_convert_blend b = methods[i].b;
            b.out.dtype = TERN_CONVERT_BF16;
            b.threads = 2;
            _exit(blend("tall", "tall-out", b) == 0 ? 0 : 1);
        }
        ok(pid > 0 && wait4(pid, &status, 0, &used) == pid && status == 0,
           "%s: models of one tensor of 32 MiB are blended", methods[i].name);
        bound((double)used.ru_maxrss / 1024, 24, "%s: MiB resident, of tensors of 32 MiB",
              methods[i].name);
        char *out = in_work("tall-out");
        tern_fs_remove_tree(out, NULL);
        free(out);
    }
}

int main(void)
{
    if (!mkdtemp(work))
        return tap_skip_all("no temporary folder");
    test_memory();
    test_mean();
    test_arc();
    test_top();
    test_add();
    test_part();
    test_threads();
    test_whole();
    test_double();
    test_durable();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

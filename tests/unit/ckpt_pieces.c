/* core/ckpt: arrays in files of other formats, by pieces with strides. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ckpt/ckpt.h"
#include "tests/unit/tap.h"

#include <unistd.h>

static char work[] = "/tmp/tern-pieces-XXXXXX";
static struct tern_err err;

enum { N = 6000 * 700 }; /* more than one read's piece of floats */

/* A file of floats 0, 1, 2, ... behind eight bytes. */
static uint64_t make_file(void)
{
    char *path = tern_fs_join(work, "x.bin");
    float *x = malloc(sizeof *x * N);
    FILE *f = fopen(path, "wb");

    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    if (!f || fwrite("12345678", 1, 8, f) != 8 || fwrite(x, sizeof *x, N, f) != N || fclose(f) != 0)
        abort();
    free(x);
    free(path);
    return 8 + sizeof(float) * (uint64_t)N;
}

static struct tern_ckpt *open_with(const struct tern_ckpt_pieces *arrays, size_t n, uint64_t bytes)
{
    const char *const names[] = {"x.bin"};
    const struct tern_ckpt_files files = {
        .dir = work, .names = names, .bytes = &bytes, .n = 1, .arrays = arrays, .n_arrays = n};

    return tern_ckpt_open_files(&files, &err);
}

static const struct tern_ckpt_piece transposed = {
    .shape = {700, 6000}, .offset = 8, .stride = {1, 700}};
static const struct tern_ckpt_piece plain = {.shape = {6000, 700}, .offset = 8, .stride = {700, 1}};
static const struct tern_ckpt_piece repeated = {.shape = {3, 5}, .offset = 48, .stride = {0, 2}};
/* Rows 0, 2 and then 1, 3 of [4,10], as RoPE's halves lie in Meta's files; two columns by two. */
static const struct tern_ckpt_piece halves[] = {
    {.start = {0, 0}, .shape = {2, 5}, .offset = 8, .stride = {20, 1}},
    {.start = {2, 0}, .shape = {2, 5}, .offset = 8 + 4 * 10, .stride = {20, 1}},
    {.start = {0, 5}, .shape = {2, 5}, .offset = 8 + 4 * 5, .stride = {20, 1}},
    {.start = {2, 5}, .shape = {2, 5}, .offset = 8 + 4 * 15, .stride = {20, 1}},
};

static void test_read(uint64_t bytes)
{
    const struct tern_ckpt_pieces arrays[] = {
        {{.name = "transposed", .type = TERN_CKPT_F32, .ndim = 2, .shape = {700, 6000}},
         &transposed,
         1},
        {{.name = "plain", .type = TERN_CKPT_F32, .ndim = 2, .shape = {6000, 700}}, &plain, 1},
        {{.name = "repeated", .type = TERN_CKPT_F32, .ndim = 2, .shape = {3, 5}}, &repeated, 1},
        {{.name = "halves", .type = TERN_CKPT_F32, .ndim = 2, .shape = {4, 10}}, halves, 4},
        {{.name = "scalar", .type = TERN_CKPT_F32, .ndim = 0, .shape = {0}},
         &(struct tern_ckpt_piece){.offset = 8 + 4 * 17},
         1},
        {{.name = "empty", .type = TERN_CKPT_F32, .ndim = 2, .shape = {0, 5}}, NULL, 0},
    };
    struct tern_ckpt *c = open_with(arrays, 6, bytes);
    float *x = malloc(sizeof *x * N);
    int wrong = 0;

    ok(c && tern_ckpt_count(c) == 6, "a file's arrays are listed");
    if (!c)
        return;
    ok(tern_ckpt_read(c, "transposed", TERN_CKPT_F32, NULL, NULL, x, &err) == 0,
       "a transposed array is read");
    for (int i = 0; i < 700; i++)
        for (int j = 0; j < 6000; j++)
            wrong += x[i * 6000 + j] != (float)(j * 700 + i);
    ok(wrong == 0, "a transposed array is right in every element");
    const uint64_t start[] = {690, 17}, shape[] = {7, 5900};
    ok(tern_ckpt_read(c, "transposed", TERN_CKPT_F32, start, shape, x, &err) == 0,
       "a part of it is read");
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < 5900; j++)
            wrong += x[i * 5900 + j] != (float)((j + 17) * 700 + i + 690);
    ok(wrong == 0, "a part of a transposed array is right in every element");
    ok(tern_ckpt_read(c, "plain", TERN_CKPT_F32, NULL, NULL, x, &err) == 0 && x[N - 1] == N - 1,
       "an array without gaps is read");
    double d[40];
    tern_ckpt_read(c, "repeated", TERN_CKPT_F64, NULL, NULL, d, &err);
    for (int i = 0; i < 15; i++)
        wrong += d[i] != 10 + 2 * (i % 5);
    ok(wrong == 0, "stride 0 repeats a row, and elements are converted");
    tern_ckpt_read(c, "halves", TERN_CKPT_F64, NULL, NULL, d, &err);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 10; j++)
            wrong += d[i * 10 + j] != (i % 2 * 2 + i / 2) * 10 + j;
    ok(wrong == 0, "an array of several interleaved pieces is right");
    ok(tern_ckpt_read(c, "scalar", TERN_CKPT_F32, NULL, NULL, x, &err) == 0 && *x == 17,
       "a scalar is read");
    ok(tern_ckpt_read(c, "empty", TERN_CKPT_F32, NULL, NULL, x, &err) == 0,
       "an empty array is read");
    free(x);
    tern_ckpt_close(c);
}

static void refused(const struct tern_ckpt_pieces *a, uint64_t bytes, const char *why,
                    const char *what)
{
    err.text[0] = '\0';
    struct tern_ckpt *c = open_with(a, 1, bytes);

    ok(!c && err.code == TERN_USAGE, "%s is refused", what);
    has(err.text, why, "%s: the message says why", what);
    tern_ckpt_close(c);
}

static void test_refuse(uint64_t bytes)
{
    const struct tern_ckpt_piece far = {.shape = {2, 3}, .offset = 8, .stride = {N, 1}};
    const struct tern_ckpt_piece wraps = {.shape = {2, 3}, .offset = 8, .stride = {UINT64_MAX, 1}};
    const struct tern_ckpt_piece other = {
        .file = 1, .shape = {2, 3}, .offset = 8, .stride = {3, 1}};
    const struct tern_ckpt_piece half = {.shape = {1, 3}, .offset = 8, .stride = {3, 1}};
    const struct tern_ckpt_info info = {
        .name = "a", .type = TERN_CKPT_F32, .ndim = 2, .shape = {2, 3}};

    refused(&(struct tern_ckpt_pieces){info, &far, 1}, bytes, "reaches outside",
            "an array whose strides lead out of its file");
    refused(&(struct tern_ckpt_pieces){info, &wraps, 1}, bytes, "reaches outside",
            "an array whose strides wrap around");
    refused(&(struct tern_ckpt_pieces){info, &other, 1}, bytes, "names shard 1",
            "an array of a file that is not there");
    refused(&(struct tern_ckpt_pieces){info, &half, 1}, bytes, "not whole",
            "an array of which a row is missing");
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    const uint64_t bytes = make_file();
    test_read(bytes);
    test_refuse(bytes);
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

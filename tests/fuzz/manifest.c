/* Manifests of checkpoints from anybody, with a digest that is right: each is taken or refused in
 * words, and nothing is read that is not there.  FUZZ_RUNS: how many. */
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/ckpt/ckpt.h"
#include "tests/fuzz/mutate.h"

#include <unistd.h>

enum { ROWS = 6, COLUMNS = 4, TAIL = 64 + 15 }; /* ,"digest":"..."} with its line ends */
static char work[] = "/tmp/tern-fuzz-manifest-XXXXXX";
static const char *const words[] = {"{",
                                    "}",
                                    "[",
                                    "]",
                                    ",",
                                    ":",
                                    "\"",
                                    "null",
                                    "0",
                                    "1",
                                    "-1",
                                    "6",
                                    "24",
                                    "96",
                                    "4611686018427387904",
                                    "9223372036854775807",
                                    "99999999999999999999",
                                    "\"BF16\"",
                                    "\"F32\"",
                                    "..",
                                    "/",
                                    "shard",
                                    "\"start\"",
                                    "\"shape\"",
                                    "\"slices\":[]",
                                    NULL};

static char *save(void)
{
    float x[ROWS * COLUMNS], y[3] = {1, 2, 3};
    struct tern_ckpt_array a[] = {
        {"x", TERN_CKPT_F32, 2, {ROWS, COLUMNS}, {0, 0}, {ROWS, COLUMNS}, x, .owner = true},
        {"y", TERN_CKPT_F32, 1, {3}, {0}, {3}, y, .owner = true}};
    char *file = tern_fs_join(work, "config.json"), *dir = tern_fs_join(work, "run");
    struct tern_ckpt_file extra = {.name = "config.json", .path = file};
    struct tern_ckpt_saved saved;
    struct tern_err err = {0};
    json_t *meta = json_object();

    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i] = (float)i;
    struct tern_ckpt_save_options o = {
        .dir = dir, .step = 7, .arrays = a, .n = 2, .meta = meta, .files = &extra, .n_files = 1};
    if (tern_fs_replace(file, "{}\n", 3, 0644, &err) < 0 || tern_ckpt_save(&o, &saved, &err) < 0) {
        printf("# %s\n", err.text);
        return NULL;
    }
    json_decref(meta);
    free(dir);
    free(file);
    return tern_strdup(saved.path);
}

/* data[len] is the manifest without its end; the digest of it makes it whole. */
static void put(const char *path, const char *data, size_t len)
{
    uint8_t sha[TERN_SHA256_BYTES];
    char hex[TERN_SHA256_HEX];
    FILE *f = fopen(path, "w");

    tern_sha256(data, len, sha);
    if (!f || fwrite(data, 1, len, f) != len ||
        fprintf(f, "\n,\"digest\":\"%s\"}\n", tern_hex(hex, sha, sizeof sha)) < 0 || fclose(f) != 0)
        abort();
}

/* Every array that is small enough, whole and in parts. */
static void read_all(struct tern_ckpt *c)
{
    for (size_t i = 0; i < tern_ckpt_count(c); i++) {
        struct tern_ckpt_info info;
        uint64_t bytes = 1, start[TERN_CKPT_DIMS] = {0}, shape[TERN_CKPT_DIMS];
        tern_ckpt_info(c, i, &info);
        for (int d = 0; d < info.ndim && bytes <= 1 << 16; d++) {
            bytes *= info.shape[d];
            start[d] = info.shape[d] / 3;
            shape[d] = info.shape[d] - start[d];
        }
        if (bytes > 1 << 16)
            continue;
        char *to = malloc(bytes * 8 + 1);
        tern_ckpt_read(c, info.name, info.type, NULL, NULL, to, NULL);
        tern_ckpt_read(c, info.name, info.type, start, shape, to, NULL);
        free(to);
    }
}

int main(void)
{
    struct tern_err err = {0};
    size_t all, len;
    char *text, *dir = mkdtemp(work) ? save() : NULL;
    int taken = 0, refused = 0, n = fuzz_runs(5000);

    if (!dir)
        return 1;
    char *path = tern_fs_join(dir, "manifest.json");
    if (tern_fs_read(path, 1 << 20, &text, &all, &err) < 0 || all <= TAIL)
        return 1;
    for (int i = 0; i < n; i++) {
        char *data = i ? fuzz_mutate(text, all - TAIL, words, &len) : NULL;
        put(path, data ? data : text, data ? len : all - TAIL);
        struct tern_ckpt *c = tern_ckpt_open(dir, &err);
        taken += c != NULL;
        refused += !c;
        if (i == 0)
            ok(c != NULL, "the manifest as it was written is taken: %s", err.text);
        if (c)
            read_all(c);
        else if (!err.text[0])
            ok(0, "round %d: refused in words", i);
        tern_ckpt_close(c);
        if (i % 8 == 0)
            tern_ckpt_verify(dir, /* full= */ true, &err);
        err = (struct tern_err){0};
        free(data);
    }
    ok(taken > 1 && refused > 0, "%d manifests: %d taken, %d refused", n, taken, refused);
    free(text);
    free(path);
    free(dir);
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

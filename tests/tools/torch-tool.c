/* Folders as other tools leave them, made of a Hugging Face folder with safetensors.
 *
 *     torch-tool bin FROM TO           pytorch_model.bin, in the form of a zip archive
 *     torch-tool old FROM TO           pytorch_model.bin in the older form
 *     torch-tool bins FROM TO N        N files and pytorch_model.bin.index.json
 *     torch-tool odd FROM TO           one file: every matrix transposed, all in one storage
 *     torch-tool below FROM TO KEY     one file: {KEY: the model, "step": 7}
 *     torch-tool mixed FROM TO KEY     the same, with the model's first tensor also beside it
 *     torch-tool meta FROM TO N AXIS   consolidated.NN.pth of N files, the embedding cut along AXIS
 *     torch-tool dump PATH [KEY]       NAME TYPE SHAPE SHA256 of each array that can be opened
 * there
 *
 * config.json is copied, but for meta; params.json is the test's to write. */
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/ckpt/ckpt.h"
#include "core/convert/convert.h"
#include "core/model/model.h"
#include "tests/lib/torch_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tern_err err;

static _Noreturn void fail(void)
{
    fprintf(stderr, "torch-tool: %s\n", err.text);
    exit(1);
}

static const char *storage_type(enum tern_ckpt_type t)
{
    return t == TERN_CKPT_F32    ? "FloatStorage"
           : t == TERN_CKPT_F16  ? "HalfStorage"
           : t == TERN_CKPT_BF16 ? "BFloat16Storage"
                                 : "DoubleStorage";
}

/* A tensor in memory. */
struct tensor {
    struct tern_ckpt_info info;
    char *data;
    size_t rows, columns, size;
};

static struct tensor load(struct tern_ckpt *c, const struct tern_ckpt_info *info)
{
    struct tensor t = {.info = *info, .size = tern_ckpt_type_bytes(info->type)};

    t.rows = info->shape[0];
    t.columns = info->ndim > 1 ? info->shape[1] : 1;
    t.data = malloc(t.rows * t.columns * t.size + 1);
    if (tern_ckpt_read(c, info->name, info->type, NULL, NULL, t.data, &err) < 0)
        fail();
    return t;
}

static void add(struct torch_file *f, const char *name, const struct tensor *t)
{
    struct torch_tensor x = {.ndim = t->info.ndim,
                             .shape = {(uint32_t)t->rows, (uint32_t)t->columns},
                             .stride = {(uint32_t)t->columns, 1}};

    if (x.ndim == 1)
        x.stride[0] = 1;
    torch_key(f, name);
    x.storage =
        torch_storage(f, storage_type(t->info.type), t->size, t->data, t->rows * t->columns);
    torch_tensor(f, &x);
}

static void save(struct torch_file *f, const char *dir, const char *name)
{
    char *path = tern_fs_join(dir, name);
    struct tern_buf file;

    (f->old ? torch_old : torch_zip)(f, &file);
    if (tern_fs_mkdirs(dir, 0777, &err) < 0 ||
        tern_fs_replace(path, file.data, file.len, 0644, &err) < 0)
        fail();
    tern_buf_free(&file);
    free(path);
    for (int i = 0; i < f->n; i++)
        free((void *)f->storages[i].data);
    tern_buf_free(&f->p);
    *f = (struct torch_file){.old = f->old};
}

static void copy_config(const char *from, const char *to)
{
    char *a = tern_fs_join(from, "config.json"), *b = tern_fs_join(to, "config.json"), *text;
    size_t len;

    if (tern_fs_read(a, 1 << 20, &text, &len, &err) < 0 ||
        tern_fs_replace(b, text, len, 0644, &err) < 0)
        fail();
    free(text);
    free(a);
    free(b);
}

/* ---------------------------------------------------------------- Hugging Face's */

static void write_bins(struct tern_ckpt *c, const char *to, size_t n, bool old)
{
    json_t *map = json_object(), *index;
    struct tern_ckpt_info info;

    for (size_t k = 0; k < n; k++) {
        struct torch_file f = {.old = old};
        char *name = n == 1 ? tern_strdup("pytorch_model.bin")
                            : tern_strf("pytorch_model-%05zu-of-%05zu.bin", k + 1, n);
        torch_begin(&f);
        for (size_t i = k; i < tern_ckpt_count(c); i += n) {
            tern_ckpt_info(c, i, &info);
            struct tensor t = load(c, &info);
            add(&f, info.name, &t);
            json_object_set_new(map, info.name, json_string(name));
        }
        torch_end(&f);
        save(&f, to, name);
        free(name);
    }
    index = json_pack("{s:{s:i},s:o}", "metadata", "total_size", 0, "weight_map", map);
    char *path = tern_fs_join(to, "pytorch_model.bin.index.json");
    if (n > 1 && json_dump_file(index, path, 0) < 0)
        exit(1);
    free(path);
    json_decref(index);
}

/* Matrices lie by columns; all tensors are parts of one storage of their type. */
static void write_odd(struct tern_ckpt *c, const char *to)
{
    struct torch_file f = {0};
    struct tern_ckpt_info info;
    size_t all = 0, at = 0;

    for (size_t i = 0; i < tern_ckpt_count(c); i++) {
        tern_ckpt_info(c, i, &info);
        all += info.shape[0] * (info.ndim > 1 ? info.shape[1] : 1);
    }
    char *data = malloc(all * 8);
    torch_begin(&f);
    tern_ckpt_info(c, 0, &info);
    const int storage =
        torch_storage(&f, storage_type(info.type), tern_ckpt_type_bytes(info.type), data, all);
    for (size_t i = 0; i < tern_ckpt_count(c); i++) {
        tern_ckpt_info(c, i, &info);
        struct tensor t = load(c, &info);
        struct torch_tensor x = {.storage = storage,
                                 .ndim = info.ndim,
                                 .offset = (uint32_t)at,
                                 .shape = {(uint32_t)t.rows, (uint32_t)t.columns},
                                 .stride = {1, (uint32_t)t.rows}};
        for (size_t r = 0; r < t.rows; r++)
            for (size_t k = 0; k < t.columns; k++)
                memcpy(data + (at + k * t.rows + r) * t.size, t.data + (r * t.columns + k) * t.size,
                       t.size);
        torch_key(&f, info.name);
        torch_tensor(&f, &x);
        at += t.rows * t.columns;
        free(t.data);
    }
    torch_end(&f);
    save(&f, to, "pytorch_model.bin");
}

static void write_below(struct tern_ckpt *c, const char *to, const char *key, bool mixed)
{
    struct torch_file f = {0};
    struct tern_ckpt_info info;

    torch_begin(&f);
    torch_key(&f, key);
    torch_dict(&f);
    for (size_t i = 0; i < tern_ckpt_count(c); i++) {
        tern_ckpt_info(c, i, &info);
        struct tensor t = load(c, &info);
        add(&f, info.name, &t);
    }
    tern_buf_puts(&f.p, "u");
    torch_key(&f, "step");
    torch_int(&f, 7);
    if (mixed) {
        tern_ckpt_info(c, 0, &info);
        struct tensor t = load(c, &info);
        add(&f, info.name, &t);
    }
    torch_end(&f);
    save(&f, to, "pytorch_model.bin");
}

/* ---------------------------------------------------------------- Meta's */

/* Hugging Face's row j of a head is Meta's row 2 j, row D/2 + j its row 2 j + 1. */
static void interleave(struct tensor *t, size_t head)
{
    const size_t row = t->columns * t->size;
    char *to = malloc(t->rows * row);

    for (size_t r = 0; r < t->rows; r++) {
        const size_t h = r / head, j = r % head, half = head / 2;
        const size_t meta = h * head + (j < half ? 2 * j : 2 * (j - half) + 1);
        memcpy(to + meta * row, t->data + r * row, row);
    }
    free(t->data);
    t->data = to;
}

/* Part k of n along an axis; -1: all of it. */
static struct tensor cut(const struct tensor *t, int axis, size_t k, size_t n)
{
    struct tensor part = *t;

    part.rows = axis == 0 ? t->rows / n : t->rows;
    part.columns = axis == 1 ? t->columns / n : t->columns;
    part.data = malloc(part.rows * part.columns * t->size + 1);
    for (size_t r = 0; r < part.rows; r++)
        memcpy(part.data + r * part.columns * t->size,
               t->data + ((r + (axis == 0 ? k * part.rows : 0)) * t->columns +
                          (axis == 1 ? k * part.columns : 0)) *
                             t->size,
               part.columns * t->size);
    return part;
}

static void write_meta(struct tern_ckpt *c, const char *from, const char *to, size_t n, int embed)
{
    static const struct {
        const char *name;
        int axis;
    } kinds[] = {
        [TERN_MODEL_EMBED] = {"tok_embeddings", 2},
        [TERN_MODEL_Q] = {"attention.wq", 0},
        [TERN_MODEL_K] = {"attention.wk", 0},
        [TERN_MODEL_V] = {"attention.wv", 0},
        [TERN_MODEL_O] = {"attention.wo", 1},
        [TERN_MODEL_GATE] = {"feed_forward.w1", 0},
        [TERN_MODEL_UP] = {"feed_forward.w3", 0},
        [TERN_MODEL_DOWN] = {"feed_forward.w2", 1},
        [TERN_MODEL_INPUT_NORM] = {"attention_norm", -1},
        [TERN_MODEL_POST_NORM] = {"ffn_norm", -1},
        [TERN_MODEL_NORM] = {"norm", -1},
        [TERN_MODEL_HEAD] = {"output", 0},
    };
    struct tern_model_config config;
    struct tern_model_tensor m;
    struct tern_ckpt_info info;

    if (tern_model_config_load(from, &config, &err) < 0)
        fail();
    for (size_t k = 0; k < n; k++) {
        struct torch_file f = {0};
        char *file = tern_strf("consolidated.%02zu.pth", k);
        torch_begin(&f);
        for (size_t i = 0; i < tern_model_tensors(&config); i++) {
            tern_model_tensor(&config, i, &m);
            if (!tern_ckpt_find(c, m.name, &info))
                exit(1);
            struct tensor t = load(c, &info);
            if (m.kind == TERN_MODEL_Q || m.kind == TERN_MODEL_K)
                interleave(&t, (size_t)config.head_dim);
            const int axis = kinds[m.kind].axis == 2 ? embed : kinds[m.kind].axis;
            struct tensor part = cut(&t, n > 1 ? axis : -1, k, n);
            char *name = m.layer < 0
                             ? tern_strf("%s.weight", kinds[m.kind].name)
                             : tern_strf("layers.%d.%s.weight", m.layer, kinds[m.kind].name);
            add(&f, name, &part);
            free(name);
            free(t.data);
        }
        torch_end(&f);
        save(&f, to, file);
        free(file);
    }
}

static int dump(const char *path, const char *key)
{
    struct tern_ckpt *c = tern_convert_open(path, key, &err);
    char hex[TERN_SHA256_HEX];
    uint8_t sha[TERN_SHA256_BYTES];

    if (!c)
        fail();
    for (size_t i = 0; i < tern_ckpt_count(c); i++) {
        struct tern_ckpt_info a;
        tern_ckpt_info(c, i, &a);
        uint64_t bytes = tern_ckpt_type_bytes(a.type);
        for (int d = 0; d < a.ndim; d++)
            bytes *= a.shape[d];
        char *data = malloc(bytes + 1);
        if (tern_ckpt_read(c, a.name, a.type, NULL, NULL, data, &err) < 0)
            fail();
        tern_sha256(data, bytes, sha);
        printf("%s\t%s\t", a.name, tern_ckpt_type_name(a.type));
        for (int d = 0; d < a.ndim; d++)
            printf("%s%llu", d ? "x" : "", (unsigned long long)a.shape[d]);
        printf("\t%s\n", tern_hex(hex, sha, sizeof sha));
        free(data);
    }
    tern_ckpt_close(c);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "dump") == 0)
        return dump(argv[2], argc > 3 ? argv[3] : NULL);
    const char *what = argc > 3 ? argv[1] : "";
    struct tern_ckpt *c = argc > 3 ? tern_ckpt_open_hf(argv[2], &err) : NULL;

    if (!c)
        fail();
    if (strcmp(what, "meta") == 0 && argc == 6) {
        write_meta(c, argv[2], argv[3], (size_t)strtoul(argv[4], NULL, 10),
                   (int)strtol(argv[5], NULL, 10));
        tern_ckpt_close(c);
        return 0;
    }
    if (strcmp(what, "bins") == 0 && argc == 5)
        write_bins(c, argv[3], (size_t)strtoul(argv[4], NULL, 10), false);
    else if (strcmp(what, "odd") == 0)
        write_odd(c, argv[3]);
    else if ((strcmp(what, "below") == 0 || strcmp(what, "mixed") == 0) && argc == 5)
        write_below(c, argv[3], argv[4], *what == 'm');
    else
        write_bins(c, argv[3], 1, strcmp(what, "old") == 0);
    copy_config(argv[2], argv[3]);
    tern_ckpt_close(c);
    return 0;
}

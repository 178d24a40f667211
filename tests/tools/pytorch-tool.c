/* Files of PyTorch's format for tests that read them with torch.
 *
 *     pytorch-tool sample PATH ZIP64 PIECE   every type and shape, and the other objects of
 * write.h; element i of tensor k is (7 k + i) % 100.  The sizes from ZIP64 on are zip64's; PIECE
 * bytes at a time pytorch-tool zeros PATH BYTES          one uint8 tensor, zeros but for its last
 * byte, 7
 */
#include "core/base/str.h"
#include "core/ckpt/ckpt.h"
#include "core/pytorch/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *dtype;
    enum tern_ckpt_type type;
} types[] = {{"float64", TERN_CKPT_F64},   {"float32", TERN_CKPT_F32}, {"float16", TERN_CKPT_F16},
             {"bfloat16", TERN_CKPT_BF16}, {"int64", TERN_CKPT_I64},   {"int32", TERN_CKPT_I32},
             {"int16", TERN_CKPT_I16},     {"int8", TERN_CKPT_I8},     {"uint8", TERN_CKPT_U8},
             {"bool", TERN_CKPT_BOOL}};
enum { TYPES = sizeof types / sizeof *types, SHAPES = 5 };
static const struct {
    int ndim;
    uint64_t shape[TERN_PYTORCH_DIMS];
} shapes[SHAPES] = {{0, {0}}, {1, {65}}, {2, {3, 0}}, {3, {2, 3, 5}}, {4, {1, 2, 3, 4}}};

static int say(const struct tern_err *err)
{
    fprintf(stderr, "pytorch-tool: %s\n", err->text);
    return err->code ? (int)err->code : TERN_FAILED;
}

/* Element i of a type that is no kind of float, little-endian. */
static void put(char *to, enum tern_ckpt_type type, unsigned v)
{
    double real = v;

    if (type <= TERN_CKPT_BF16) {
        tern_ckpt_convert(to, type, &real, TERN_CKPT_F64, 1);
        return;
    }
    memset(to, 0, tern_ckpt_type_bytes(type));
    *to = (char)(type == TERN_CKPT_BOOL ? v % 2 : v);
}

static struct tern_pytorch_object *sample_object(void)
{
    struct tern_pytorch_object *p = tern_pytorch_object_new();
    struct tern_pytorch_array t = {.dtype = "float32", .ndim = 2, .shape = {3, 5}};
    char name[64];

    tern_pytorch_object_dict(p);
    for (unsigned i = 0; i < TYPES; i++) {
        for (unsigned s = 0; s < SHAPES; s++) {
            struct tern_pytorch_array one = {.dtype = types[i].dtype, .ndim = shapes[s].ndim};
            memcpy(one.shape, shapes[s].shape, sizeof one.shape);
            snprintf(name, sizeof name, "%s %u", types[i].dtype, s);
            tern_pytorch_object_text(p, name);
            tern_pytorch_object_tensor(p, &one);
        }
    }
    tern_pytorch_object_text(p, "größe");
    tern_pytorch_object_size(p, &t);
    tern_pytorch_object_text(p, "dtype");
    tern_pytorch_object_dtype(p, "float16");
    tern_pytorch_object_int(p, 1);
    tern_pytorch_object_dict(p);
    tern_pytorch_object_text(p, "large");
    tern_pytorch_object_int(p, INT64_MIN);
    tern_pytorch_object_text(p, "yes");
    tern_pytorch_object_bool(p, true);
    tern_pytorch_object_text(p, "no");
    tern_pytorch_object_bool(p, false);
    tern_pytorch_object_end(p);
    tern_pytorch_object_end(p);
    return p;
}

static int sample(const char *path, uint64_t zip64_from, size_t piece)
{
    struct tern_err err = {0};
    struct tern_pytorch_write *w = tern_pytorch_write_open(
        path, sample_object(), &(struct tern_pytorch_write_how){.zip64_from = zip64_from}, &err);
    char data[16384];
    size_t len = 0;
    int rc = w ? 0 : -1;

    for (unsigned k = 0; k < TYPES * SHAPES; k++) {
        enum tern_ckpt_type type = types[k / SHAPES].type;
        uint64_t n = 1;
        for (int d = 0; d < shapes[k % SHAPES].ndim; d++)
            n *= shapes[k % SHAPES].shape[d];
        for (unsigned i = 0; i < n; i++, len += tern_ckpt_type_bytes(type))
            put(data + len, type, (7 * k + i) % 100);
    }
    for (size_t at = 0; rc == 0 && at < len; at += piece)
        rc = tern_pytorch_write_bytes(w, data + at, len - at < piece ? len - at : piece, &err);
    if (rc == 0)
        rc = tern_pytorch_write_commit(w, &err);
    return rc == 0 ? 0 : say(&err);
}

static int zeros(const char *path, uint64_t bytes)
{
    static char piece[1 << 20];
    struct tern_pytorch_array t = {.dtype = "uint8", .ndim = 1, .shape = {bytes}};
    struct tern_pytorch_object *p = tern_pytorch_object_new();
    struct tern_err err = {0};

    tern_pytorch_object_dict(p);
    for (int i = 0; i < 2; i++) { /* the second lies beyond the first */
        tern_pytorch_object_text(p, i ? "behind" : "large");
        tern_pytorch_object_tensor(p, &t);
        t.shape[0] = 1;
    }
    tern_pytorch_object_end(p);
    struct tern_pytorch_write *w = tern_pytorch_write_open(path, p, NULL, &err);
    int rc = w ? 0 : -1;
    for (uint64_t left = bytes - 1; rc == 0 && left > 0;) {
        size_t n = left < sizeof piece ? (size_t)left : sizeof piece;
        rc = tern_pytorch_write_bytes(w, piece, n, &err);
        left -= n;
    }
    if (rc == 0 && (rc = tern_pytorch_write_bytes(w, "\7\11", 2, &err)) == 0)
        rc = tern_pytorch_write_commit(w, &err);
    return rc == 0 ? 0 : say(&err);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "sample") == 0)
        return sample(argv[2], strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
    if (argc == 4 && strcmp(argv[1], "zeros") == 0)
        return zeros(argv[2], strtoull(argv[3], NULL, 10));
    fprintf(stderr, "usage: pytorch-tool sample PATH ZIP64 PIECE | zeros PATH BYTES\n");
    return 2;
}

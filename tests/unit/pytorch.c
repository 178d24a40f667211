/* core/pytorch: the tensors of torch.save's files, both forms; what is damaged or hostile is
 * refused in words, and runs nothing. */
#include "core/pytorch/pytorch.h"

#include "core/base/fs.h"
#include "tests/lib/torch_file.h"
#include "tests/unit/tap.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char work[] = "/tmp/tern-pytorch-XXXXXX";
static struct tern_err err;
static float values[12];

static void put(const char *path, const void *data, size_t len)
{
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(data, 1, len, f) != len || fclose(f) != 0)
        abort();
}

/* Parsed from a copy of its exact size, so that a byte too far is seen. */
static int parse(const char *data, size_t len, struct tern_pytorch_file *f)
{
    char *copy = malloc(len ? len : 1);

    err = (struct tern_err){0};
    memcpy(copy, data, len);
    const int rc = tern_pytorch_parse(copy, len, "x.pt", f, &err);
    free(copy);
    return rc;
}

static const struct tern_pytorch_tensor *find(const struct tern_pytorch_file *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->tensors[i].name, name) == 0)
            return &f->tensors[i];
    return NULL;
}

/* ---------------------------------------------------------------- what is there */

/* Two tensors of one storage, a parameter, a scalar, an empty one, other types, dicts in dicts. */
static void make_all(struct torch_file *t)
{
    static const uint16_t half[] = {0x3f80, 0x4000};
    static const int64_t number[] = {7};
    static const unsigned char yes[] = {1, 0, 1};

    torch_begin(t);
    const int w = torch_storage(t, "FloatStorage", 4, values, 12);
    torch_key(t, "w");
    torch_tensor(
        t, &(struct torch_tensor){.storage = w, .ndim = 2, .shape = {3, 4}, .stride = {4, 1}});
    torch_key(t, "w_t");
    torch_tensor(t, &(struct torch_tensor){.storage = w,
                                           .ndim = 2,
                                           .offset = 1,
                                           .shape = {3, 3},
                                           .stride = {1, 4},
                                           .parameter = true});
    torch_key(t, "half");
    torch_tensor(t,
                 &(struct torch_tensor){.storage = torch_storage(t, "BFloat16Storage", 2, half, 2),
                                        .ndim = 1,
                                        .shape = {2},
                                        .stride = {1}});
    torch_key(t, "step");
    torch_tensor(t,
                 &(struct torch_tensor){.storage = torch_storage(t, "LongStorage", 8, number, 1)});
    torch_key(t, "note");
    tern_buf_puts(&t->p, "N");
    torch_key(t, "model");
    torch_dict(t);
    torch_key(t, "mask.a");
    torch_tensor(t, &(struct torch_tensor){.storage = torch_storage(t, "BoolStorage", 1, yes, 3),
                                           .ndim = 1,
                                           .shape = {3},
                                           .stride = {1}});
    torch_key(t, "list");
    tern_buf_puts(&t->p, "](");
    torch_int(t, 5);
    torch_tensor(t,
                 &(struct torch_tensor){.storage = torch_storage(t, "FloatStorage", 4, values, 0),
                                        .ndim = 2,
                                        .shape = {0, 5},
                                        .stride = {5, 1}});
    tern_buf_puts(&t->p, "eu");
    torch_key(t, "last");
    torch_tensor(t,
                 &(struct torch_tensor){.storage = torch_storage(t, "LongStorage", 8, number, 1)});
    torch_end(t);
}

static void check_all(const char *path, const struct tern_buf *file, const char *form)
{
    struct tern_pytorch_file f = {0};

    put(path, file->data, file->len);
    ok(tern_pytorch_open(path, &f, &err) == 0, "%s: it is read", form);
    const struct tern_pytorch_tensor *w = find(&f, "w"), *wt = find(&f, "w_t"),
                                     *half = find(&f, "half"), *step = find(&f, "step"),
                                     *mask = find(&f, "model.mask.a"),
                                     *empty = find(&f, "model.list.1");
    ok(f.n == 7 && w && wt && half && step && mask && empty && f.bytes == file->len,
       "%s: every tensor is named by its keys", form);
    if (!w || !wt || !half || !step || !mask || !empty)
        return;
    ok(w->type == TERN_CKPT_F32 && w->ndim == 2 && w->shape[0] == 3 && w->shape[1] == 4 &&
           w->stride[0] == 4 && w->stride[1] == 1,
       "%s: type, shape and strides", form);
    ok(memcmp(file->data + w->offset, values, sizeof values) == 0,
       "%s: a tensor's bytes lie where it says", form);
    ok(wt->storage == w->storage && wt->offset == w->offset + 4 && wt->stride[0] == 1,
       "%s: a transposed part of the same storage", form);
    ok(half->type == TERN_CKPT_BF16 && half->storage != w->storage, "%s: a bfloat16 tensor", form);
    ok(step->ndim == 0 && step->type == TERN_CKPT_I64 && file->data[step->offset] == 7,
       "%s: a scalar", form);
    ok(mask->type == TERN_CKPT_BOOL && mask->outer == strlen("model.") && w->outer == 0,
       "%s: dicts in dicts are distinguished from dots in a key", form);
    ok(empty->shape[0] == 0 && empty->shape[1] == 5, "%s: an empty tensor", form);
    tern_pytorch_free(&f);
}

static void test_forms(void)
{
    char *path = tern_fs_join(work, "x.pt");
    struct torch_file t = {0}, old = {.old = true};
    struct torch_archive wide = {0};
    struct tern_buf file;

    make_all(&t);
    torch_zip(&t, &file);
    check_all(path, &file, "a zip archive");
    tern_buf_free(&file);
    torch_put_all(&t, &wide);
    torch_close(&wide, true);
    check_all(path, &wide.b, "a zip64 archive");
    tern_buf_free(&wide.b);
    make_all(&old);
    torch_old(&old, &file);
    check_all(path, &file, "the older form");
    tern_buf_free(&file);
    tern_buf_free(&t.p);
    tern_buf_free(&old.p);
    free(path);
}

/* A storage behind 4 GiB, in a file of holes. */
static void test_large(void)
{
    const uint64_t far = (9ull << 29) + 64;
    char *path = tern_fs_join(work, "large.pt");
    struct torch_file t = {0};
    struct torch_archive a = {0};
    struct tern_pytorch_file f = {0};

    torch_begin(&t);
    torch_key(&t, "w");
    torch_tensor(&t,
                 &(struct torch_tensor){.storage = torch_storage(&t, "FloatStorage", 4, values, 12),
                                        .ndim = 1,
                                        .shape = {12},
                                        .stride = {1}});
    torch_end(&t);
    torch_put_all(&t, &a);
    /* The storage's entry and what follows move; the pickle stays. */
    const uint64_t from = a.e[2].at, gap = far - from;
    const size_t cut = (size_t)from;
    for (int i = 2; i < a.n; i++)
        a.e[i].at += gap;
    const uint64_t data_end = a.b.len;
    torch_close(&a, true);
    /* The directory's place is in the zip64 record and its locator. */
    char *end64 = a.b.data + a.b.len - 22 - 20 - 56;
    const uint64_t directory = data_end + gap, record = (uint64_t)(end64 - a.b.data) + gap;
    memcpy(end64 + 48, &directory, 8);
    memcpy(end64 + 56 + 8, &record, 8);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || pwrite(fd, a.b.data, cut, 0) != (ssize_t)cut ||
        pwrite(fd, a.b.data + cut, a.b.len - cut, (off_t)far) != (ssize_t)(a.b.len - cut))
        abort();
    close(fd);
    ok(tern_pytorch_open(path, &f, &err) == 0 && f.n == 1 && f.tensors[0].offset > far,
       "a storage beyond 4 GiB is found");
    if (f.n == 0)
        printf("# %s\n", err.text);
    tern_pytorch_free(&f);
    tern_buf_free(&a.b);
    tern_buf_free(&t.p);
    free(path);
}

/* ---------------------------------------------------------------- damaged */

static int inside(const struct tern_pytorch_file *f, size_t len)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct tern_pytorch_tensor *t = &f->tensors[i];
        uint64_t n = 1;
        bool empty = false;
        for (int d = 0; d < t->ndim; d++) {
            empty |= t->shape[d] == 0;
            n += (t->shape[d] - 1) * t->stride[d];
        }
        if (t->offset > len || (!empty && n * tern_ckpt_type_bytes(t->type) > len - t->offset))
            return 0;
    }
    return 1;
}

static void test_damage(const struct tern_buf *file, const char *form)
{
    struct tern_pytorch_file f;
    int whole = 0, wordless = 0, astray = 0, refused = 0;
    char *copy = malloc(file->len);

    for (size_t n = 0; n < file->len; n++) {
        f = (struct tern_pytorch_file){0};
        if (parse(file->data, n, &f) == 0)
            whole++;
        else
            wordless += err.code != TERN_USAGE || !err.text[0];
        tern_pytorch_free(&f);
    }
    ok(whole == 0, "%s: cut off at any byte it is refused", form);
    memcpy(copy, file->data, file->len);
    for (size_t bit = 0; bit < 8 * file->len; bit++) {
        f = (struct tern_pytorch_file){0};
        copy[bit / 8] ^= (char)(1 << bit % 8);
        if (parse(copy, file->len, &f) == 0) {
            astray += !inside(&f, file->len);
        } else {
            refused++;
            wordless += err.code != TERN_USAGE || !err.text[0];
        }
        copy[bit / 8] ^= (char)(1 << bit % 8);
        tern_pytorch_free(&f);
    }
    ok(astray == 0 && refused > 0, "%s: with any bit changed no tensor leads out of the file",
       form);
    ok(wordless == 0, "%s: every refusal is in words", form);
    free(copy);
}

static void test_damages(void)
{
    struct torch_file t = {0}, old = {.old = true};
    struct torch_archive wide = {0};
    struct tern_buf file;

    make_all(&t);
    torch_zip(&t, &file);
    test_damage(&file, "a zip archive");
    tern_buf_free(&file);
    torch_put_all(&t, &wide);
    torch_close(&wide, true);
    test_damage(&wide.b, "a zip64 archive");
    tern_buf_free(&wide.b);
    make_all(&old);
    torch_old(&old, &file);
    test_damage(&file, "the older form");
    tern_buf_free(&file);
    tern_buf_free(&t.p);
    tern_buf_free(&old.p);
}

/* ---------------------------------------------------------------- hostile */

/* The pickle that `t` holds, in an archive, is refused with `why`. */
static void refuse(struct torch_file *t, const char *why, const char *what)
{
    struct tern_pytorch_file f = {0};
    struct tern_buf file;

    torch_zip(t, &file);
    ok(parse(file.data, file.len, &f) < 0 && err.code == TERN_USAGE, "%s is refused", what);
    has(err.text, why, "%s: the message says so", what);
    tern_pytorch_free(&f);
    tern_buf_free(&file);
    tern_buf_free(&t->p);
    *t = (struct torch_file){0};
}

static void refuse_text(const char *pickle, size_t len, const char *why, const char *what)
{
    struct torch_file t = {0};

    tern_buf_add(&t.p, pickle, len);
    refuse(&t, why, what);
}

#define REFUSE(pickle, why, what) refuse_text(pickle, sizeof(pickle) - 1, why, what)

static void test_opcodes(void)
{
    REFUSE("\x80\x02"
           "cos\nsystem\nX\x04\0\0\0true\x85R.",
           "'os.system'", "a global that runs commands");
    REFUSE("\x80\x04\x8c\x08"
           "builtins\x8c\x04"
           "eval\x93.",
           "'builtins.eval'", "a global taken from the stack");
    REFUSE("\x80\x02(ios\nsystem\n.", "INST", "an opcode that makes objects");
    REFUSE("\x80\x02\x82\x01.", "EXT1", "an opcode of the extension registry");
    REFUSE("\x80\x02\xf7.", "0xf7", "an unknown opcode");
    REFUSE("\x80\x09}.", "protocol 9", "a later protocol");
    REFUSE("\x80\x02R.", "not there", "a call with nothing on the stack");
    REFUSE("\x80\x02)K\x01R.", "no global", "a call of a number");
    REFUSE("\x80\x02t.", "did not begin", "the end of a list without its beginning");
    REFUSE("\x80\x02h\x07.", "did not name", "a value that was not named");
    REFUSE("\x80\x02}r\xff\xff\xff\xff.", "names a value", "a name of four billion");
    REFUSE("\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.", "cut off", "a text of eight exabytes");
    REFUSE("\x80\x02\x8d\xfe\xff\xff\xff\xff\xff\xff\xff.", "cut off",
           "a text of 2^64 bytes less two");
    REFUSE("\x80\x02\x8b\xff\xff\xff\x7f.", "cut off", "a number of two gigabytes");
    REFUSE("\x80\x02}K\x01K\x02K\x03(K\x04u.", "something else", "an item put into a number");
    REFUSE("\x80\x02}(K\x01u.", "something else", "a dict's key without a value");
    REFUSE("\x80\x02}}.", "2 values", "a pickle that ends with two values");
    REFUSE("\x80\x02}.", "holds no tensor", "a pickle without a tensor");
    REFUSE("\x80\x02(X\x07\0\0\0storageX\x01\0\0\0"
           "0tQ.",
           "no storage", "a persistent id that is no storage");
    REFUSE("\x80\x02"
           "ccollections\nOrderedDict\nK\x01\x85R.",
           "arguments", "an OrderedDict of a number");
    REFUSE("\x80\x02K\x01}b.", "attributes", "attributes of a number");
}

/* Lists in lists, in themselves, and one that is named again and again. */
static void test_graphs(void)
{
    struct torch_file t = {0};

    REFUSE("\x80\x02]q\x00h\x00"
           "a.",
           "deep", "a list that lies in itself");
    tern_buf_puts(&t.p, "\x80\x02");
    for (int i = 0; i < 100; i++)
        tern_buf_puts(&t.p, "]");
    for (int i = 0; i < 99; i++)
        tern_buf_puts(&t.p, "a");
    tern_buf_puts(&t.p, ".");
    refuse(&t, "deep", "a list a hundred deep");
    /* Each list holds the one before it ten times. */
    tern_buf_puts(&t.p, "\x80\x02]");
    for (unsigned char i = 0; i < 20; i++) {
        tern_buf_puts(&t.p, "q");
        torch_byte(&t.p, i);
        tern_buf_puts(&t.p, "0](");
        for (int k = 0; k < 10; k++) {
            tern_buf_puts(&t.p, "h");
            torch_byte(&t.p, i);
        }
        tern_buf_puts(&t.p, "e");
    }
    tern_buf_puts(&t.p, ".");
    refuse(&t, "more than", "lists that multiply");
}

/* One tensor with these numbers, behind the key `name`. */
static void one(struct torch_file *t, const char *name, const struct torch_tensor *x)
{
    torch_begin(t);
    torch_key(t, name);
    torch_storage(t, "FloatStorage", 4, values, 12);
    torch_tensor(t, x);
    torch_end(t);
}

static void test_tensors(void)
{
    struct torch_file t = {0};
    char long_name[300];

    one(&t, "a", &(struct torch_tensor){.ndim = 2, .shape = {3, 4}, .stride = {5, 1}});
    refuse(&t, "'a' reaches outside", "a tensor whose strides lead out of its storage");
    one(&t, "a", &(struct torch_tensor){.ndim = 1, .offset = 9, .shape = {4}, .stride = {1}});
    refuse(&t, "reaches outside", "a tensor that begins too late");
    one(&t, "a",
        &(struct torch_tensor){.ndim = 1, .offset = 0x80000000, .shape = {4}, .stride = {1}});
    refuse(&t, "reaches outside", "a tensor that begins before its storage");
    one(&t, "a", &(struct torch_tensor){.ndim = 1, .shape = {0xffffffff}, .stride = {1}});
    refuse(&t, "impossible", "a tensor of a negative size");
    one(&t, "a",
        &(struct torch_tensor){
            .ndim = 4, .shape = {0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff}, .stride = {0}});
    refuse(&t, "reaches outside", "a tensor of 2^124 elements");
    one(&t, "a",
        &(struct torch_tensor){.ndim = 2, .shape = {0x7fffffff, 0x7fffffff}, .stride = {0}});
    refuse(&t, "reaches outside", "one element repeated to 2^64 bytes");
    one(&t, "a", &(struct torch_tensor){.ndim = 5, .shape = {1, 1, 1, 1, 1}});
    refuse(&t, "more than 4 dimensions", "a tensor of five dimensions");
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    one(&t, long_name, &(struct torch_tensor){.ndim = 1, .shape = {4}, .stride = {1}});
    refuse(&t, "longer than 255", "a name of 299 bytes");
    one(&t, "a\x01", &(struct torch_tensor){.ndim = 1, .shape = {4}, .stride = {1}});
    refuse(&t, "no text", "a name with a control character");
    one(&t, "a\xff", &(struct torch_tensor){.ndim = 1, .shape = {4}, .stride = {1}});
    refuse(&t, "no text", "a name that is not UTF-8");
    one(&t, "a", &(struct torch_tensor){.ndim = 1, .shape = {4}, .stride = {1}});
    t.storages[0].elements = 11;
    refuse(&t, "has 44 bytes, and its pickle says 48", "a storage that is too short");
    one(&t, "a", &(struct torch_tensor){.ndim = 1, .shape = {4}, .stride = {1}});
    t.n = 0;
    refuse(&t, "not in the file", "a storage that is missing");
}

/* ---------------------------------------------------------------- hostile archives */

static void refuse_archive(struct torch_archive *a, const char *why, const char *what)
{
    struct tern_pytorch_file f = {0};

    ok(parse(a->b.data, a->b.len, &f) < 0 && err.code == TERN_USAGE, "%s is refused", what);
    has(err.text, why, "%s: the message says so", what);
    tern_pytorch_free(&f);
    tern_buf_free(&a->b);
}

static void archive(const struct torch_file *t, struct torch_archive *a)
{
    *a = (struct torch_archive){0};
    torch_put_all(t, a);
}

static void test_archives(void)
{
    struct torch_file t = {0};
    struct torch_archive a;

    make_all(&t);
    archive(&t, &a);
    a.e[3].at = a.e[2].at;
    snprintf(a.e[3].name, sizeof a.e[3].name, "%s", a.e[2].name);
    torch_close(&a, false);
    refuse_archive(&a, "overlap", "an archive of two entries in one place");
    archive(&t, &a);
    a.e[2].bytes += 200;
    torch_close(&a, false);
    refuse_archive(&a, "overlap", "an archive whose entry reaches into the next");
    archive(&t, &a);
    a.e[a.n - 1].bytes += 100000;
    torch_close(&a, false);
    refuse_archive(&a, "reaches outside", "an archive whose last entry leads out of it");
    archive(&t, &a);
    snprintf(a.e[3].name, sizeof a.e[3].name, "archive/data/9");
    torch_close(&a, false);
    refuse_archive(&a, "two names", "an archive whose directory renames an entry");
    archive(&t, &a);
    torch_put(&a, "archive/data/0", values, 48);
    torch_close(&a, false);
    refuse_archive(&a, "there twice", "an archive with a name given twice");
    archive(&t, &a);
    a.e[2].method = 8;
    torch_close(&a, false);
    refuse_archive(&a, "compressed", "an archive whose tensors are compressed");
    archive(&t, &a);
    a.e[0].method = 8;
    torch_close(&a, false);
    refuse_archive(&a, "compressed", "an archive whose pickle is compressed");
    archive(&t, &a);
    torch_put(&a, "archive/constants.pkl", ".", 1);
    torch_close(&a, false);
    refuse_archive(&a, "TorchScript", "a TorchScript program");
    a = (struct torch_archive){0};
    torch_put(&a, "archive/data.pkl", t.p.data, t.p.len);
    torch_put(&a, "archive/byteorder", "big", 3);
    torch_close(&a, false);
    refuse_archive(&a, "little-endian", "an archive of a big-endian machine");
    a = (struct torch_archive){0};
    torch_put(&a, "x.npy", "1", 1);
    torch_close(&a, false);
    refuse_archive(&a, "no data.pkl", "an archive of another kind");
    archive(&t, &a);
    torch_put(&a, "other/data.pkl", t.p.data, t.p.len);
    torch_close(&a, false);
    refuse_archive(&a, "2 folders with a data.pkl", "an archive of two files of torch.save");
    tern_buf_free(&t.p);
}

static void test_old_size(void)
{
    struct torch_file t = {.old = true};
    struct tern_pytorch_file f = {0};
    struct tern_buf file;

    make_all(&t);
    t.storages[0].elements = 11;
    torch_old(&t, &file);
    ok(parse(file.data, file.len, &f) < 0,
       "a storage of another size than its pickle says is refused");
    has(err.text, "another size", "the message says so");
    tern_buf_free(&file);
    tern_buf_free(&t.p);
}

/* A tensor in the part ("v", from, elements) of storage 0, in the older form. */
static void put_view(struct torch_file *t, const char *name, uint32_t from, uint32_t elements)
{
    torch_key(t, name);
    torch_global(t, "torch._utils", "_rebuild_tensor_v2");
    tern_buf_puts(&t->p, "(");
    torch_storage_id(t, 0);
    t->p.len -= strlen("NtQ");
    tern_buf_puts(&t->p, "(");
    torch_key(t, "v");
    torch_int(t, from);
    torch_int(t, elements);
    tern_buf_puts(&t->p, "ttQ");
    torch_int(t, 0);
    torch_dims(t, &(uint32_t){2}, 1);
    torch_dims(t, &(uint32_t){1}, 1);
    torch_byte(&t->p, 0x89);
    torch_global(t, "collections", "OrderedDict");
    tern_buf_puts(&t->p, ")RtR");
}

static int parse_views(uint32_t from, uint32_t elements, struct tern_pytorch_file *f)
{
    struct torch_file t = {.old = true};
    struct tern_buf file;

    torch_begin(&t);
    torch_storage(&t, "FloatStorage", 4, values, 12);
    put_view(&t, "a", 2, 3);
    put_view(&t, "b", from, elements);
    torch_end(&t);
    torch_old(&t, &file);
    const int rc = parse(file.data, file.len, f);
    tern_buf_free(&file);
    tern_buf_free(&t.p);
    return rc;
}

static void test_views(void)
{
    struct tern_pytorch_file f = {0};

    ok(parse_views(2, 3, &f) == 0 && f.n == 2 && f.tensors[0].offset == f.tensors[1].offset,
       "two tensors in the same part of a storage");
    tern_pytorch_free(&f);
    ok(parse_views(4, 3, &f) < 0, "a part of a storage that is given another place is refused");
    has(err.text, "two places", "the message says that the part has two places");
    ok(parse_views(2, 4, &f) < 0, "a part of a storage that is given another size is refused");
    ok(parse_views(10, 3, &f) < 0, "a part of a storage that leads out of it is refused");
}

static void test_kinds(void)
{
    static const char *const kinds[][2] = {
        {"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"},
        {"GGUF\3\0\0\0", "GGUF"},
        {"<!DOCTYPE html>", "web page"},
        {"\x93NUMPY", "NumPy"},
        {"\x80\x02}.", "did not write"},
        {"", "is empty"},
        {"hello", "no file of PyTorch"},
    };
    char *path = tern_fs_join(work, "kind.bin");
    struct tern_pytorch_file f;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        put(path, kinds[i][0], strlen(kinds[i][0]));
        ok(tern_pytorch_open(path, &f, &err) < 0 && err.code == TERN_USAGE, "'%.8s' is refused",
           kinds[i][1]);
        has(err.text, kinds[i][1], "'%.8s': it is named", kinds[i][1]);
        has(err.text, path, "'%.8s': so is the file", kinds[i][1]);
    }
    ok(tern_pytorch_open(work, &f, &err) < 0 && err.code == TERN_USAGE, "a folder is refused");
    unlink(path);
    ok(tern_pytorch_open(path, &f, &err) < 0 && err.code == TERN_USAGE,
       "a file that is not there is refused");
    free(path);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    for (int i = 0; i < 12; i++)
        values[i] = (float)i;
    test_forms();
    test_large();
    test_damages();
    test_opcodes();
    test_graphs();
    test_tensors();
    test_archives();
    test_old_size();
    test_views();
    test_kinds();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

/* core/pytorch: what is wrong around the pickles of a file: the zip archive, the older form's heads
 * and list of storages, files of other kinds. */
#include "core/base/le.h"
#include "core/pytorch/pytorch.h"
#include "tests/lib/torch_file.h"
#include "tests/unit/tap.h"

static struct tern_err err;
static const float values[12];

/* Parsed from a copy of its exact size, so that a byte too far is seen. */
static int parse(const char *data, size_t len)
{
    struct tern_pytorch_file f = {0};
    char *copy = malloc(len ? len : 1);

    err = (struct tern_err){0};
    memcpy(copy, data, len);
    const int rc = tern_pytorch_parse(copy, len, "x.pt", &f, &err);
    free(copy);
    tern_pytorch_free(&f);
    return rc;
}

static void refuse(const char *data, size_t len, const char *why, const char *what)
{
    ok(parse(data, len) < 0 && err.code == TERN_USAGE, "%s is refused", what);
    has(err.text, why, "%s: the message says so", what);
}

/* One tensor, "a", of twelve floats. */
static void make(struct torch_file *t)
{
    torch_begin(t);
    torch_key(t, "a");
    torch_tensor(t,
                 &(struct torch_tensor){.storage = torch_storage(t, "FloatStorage", 4, values, 12),
                                        .ndim = 1,
                                        .shape = {12},
                                        .stride = {1}});
    torch_end(t);
}

/* ---------------------------------------------------------------- archives */

/* A number of the archive's directory or end: `from` 'd' counts from the directory, 'e' from the
 * end. */
struct change {
    char from;
    int at, bytes;
    uint64_t to;
    bool wide; /* of a zip64 archive */
    const char *why, *what;
};

/* Its central header is 46 bytes, then "archive/data.pkl" (16), in zip64 28 more. */
static const struct change changes[] = {
    {'d', 0, 4, 0, false, "its directory is cut off", "an archive whose directory is none"},
    {'d', 28, 2, 60000, false, "its directory is cut off", "an archive with an endless name"},
    {'d', 8, 2, 1, false, "data.pkl is compressed or encrypted", "an archive with a password"},
    {'d', 24, 4, 5, false, "an entry has two sizes", "an archive whose entry has two sizes"},
    {'d', 42, 4, 7, false, "an entry is not where its directory says",
     "an archive whose entry is elsewhere"},
    {'d', 42, 4, 0x7fffffff, false, "an entry is not where its directory says",
     "an archive whose entry is beyond its end"},
    {'e', -22 + 10, 2, 500, false, "more entries than it has room for",
     "an archive of 500 entries in 7's room"},
    {'e', -22 + 12, 4, 100000, false, "its directory is not where it says",
     "an archive whose directory is longer than it"},
    {'e', -22 + 16, 4, 100000, false, "its directory is not where it says",
     "an archive whose directory is beyond its end"},
    {'e', -22 + 20, 2, 3, false, "has no directory at the end",
     "an archive whose comment is not there"},
    {'d', 46 + 16 + 2, 2, 16, true, "an entry's zip64 field is cut off",
     "an archive of two numbers where three are needed"},
    {'d', 46 + 16 + 2, 2, 60, true, "an entry's zip64 field is cut off",
     "an archive whose zip64 field leads out of its entry"},
    {'e', -22 - 20, 4, 0, true, "it has no zip64 directory",
     "an archive without its zip64 locator"},
    {'e', -22 - 20 + 8, 8, 3, true, "its zip64 directory is not where it says",
     "an archive whose zip64 directory is elsewhere"},
    {'e', -22 - 20 + 8, 8, UINT64_MAX, true, "its zip64 directory is not where it says",
     "an archive whose zip64 directory is beyond all files"},
    {'e', -22 - 20 - 56 + 32, 8, UINT64_C(1) << 40, true, "more entries than it has room for",
     "an archive of a trillion entries"},
};

static void test_archives(void)
{
    struct torch_file t = {0};

    make(&t);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const struct change *c = &changes[i];
        struct torch_archive a = {0};
        torch_put_all(&t, &a);
        const size_t directory = a.b.len;
        torch_close(&a, c->wide);
        if (i == 0)
            ok(parse(a.b.data, a.b.len) == 0, "an archive that nothing is wrong with is read");
        char *at = a.b.data + (c->from == 'd' ? directory : a.b.len);
        for (int k = 0; k < c->bytes; k++)
            at[c->at + k] = (char)(c->to >> 8 * k);
        refuse(a.b.data, a.b.len, c->why, c->what);
        tern_buf_free(&a.b);
    }
    tern_buf_free(&t.p);
    refuse("PK\3\4", 4, "is cut off: 4 bytes are no zip archive", "four bytes of an archive");
    refuse("PK\3\4                         ", 30, "no directory at the end",
           "an archive's beginning");
}

/* The pickle's bytes are bounded, as its values take more. */
static void test_large_pickle(void)
{
    const size_t n = (64u << 20) + 1;
    struct torch_archive a = {0};
    char *zeros = calloc(n, 1);

    torch_put(&a, "archive/data.pkl", zeros, n);
    torch_close(&a, false);
    free(zeros);
    refuse(a.b.data, a.b.len, "data.pkl has more than 64 MiB", "a pickle of 64 MiB and a byte");
    tern_buf_free(&a.b);
}

/* ---------------------------------------------------------------- the older form */

#define MAGIC "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
#define VERSION "\x80\x02M\xe9\x03."
#define LITTLE "\x80\x02}(X\x0d\0\0\0little_endian\x88u."
#define LIST                                                                                       \
    "\x80\x02](X\1\0\0\0"                                                                          \
    "0e."

struct old {
    const char *head; /* magic number, version, machine */
    size_t head_len;
    const char *list; /* of storages */
    size_t list_len;
    uint64_t elements;
    size_t tail; /* bytes of storages */
};

/* NULL for `why`: it is read. */
static void refuse_old(const struct old *o, const char *why, const char *what)
{
    struct torch_file t = {.old = true};
    struct tern_buf b = {0};
    char storage[8 + sizeof values] = {(char)o->elements};

    make(&t);
    tern_buf_add(&b, o->head, o->head_len);
    tern_buf_add(&b, t.p.data, t.p.len);
    tern_buf_add(&b, o->list, o->list_len);
    tern_buf_add(&b, storage, o->tail);
    if (why)
        refuse(b.data, b.len, why, what);
    else
        ok(parse(b.data, b.len) == 0, "%s is read", what);
    tern_buf_free(&b);
    tern_buf_free(&t.p);
}

#define OLD(head, list, elements, tail, why, what)                                                 \
    refuse_old(&(struct old){head, sizeof(head) - 1, list, sizeof(list) - 1, elements, tail}, why, \
               what)

static void test_old(void)
{
    enum { ALL = 8 + sizeof values };

    OLD(MAGIC VERSION LITTLE, LIST, 12, ALL, NULL, "a file of the older form");
    OLD("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x18." VERSION LITTLE, LIST, 12, ALL,
        "a pickle that torch.save did not write", "a file with another magic number");
    OLD("\x80\x02K\x01." VERSION LITTLE, LIST, 12, ALL, "a pickle that torch.save did not write",
        "a file that begins with another number");
    OLD(MAGIC "\x80\x02M\xea\x03." LITTLE, LIST, 12, ALL, "another version of torch.save's format",
        "a file of format 1002");
    OLD(MAGIC "\x80\x02N." LITTLE, LIST, 12, ALL, "another version of torch.save's format",
        "a file without a version");
    OLD(MAGIC VERSION "\x80\x02}(X\x0d\0\0\0little_endian\x89u.", LIST, 12, ALL,
        "not in little-endian order", "a file of a big-endian machine");
    OLD(MAGIC VERSION "\x80\x02}.", LIST, 12, ALL, "not in little-endian order",
        "a file that says nothing of its bytes' order");
    OLD(MAGIC VERSION "\x80\x02K\x01.", LIST, 12, ALL, "not in little-endian order",
        "a file whose machine is a number");
    OLD("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19q\0."
        "\x80\x02h\0." LITTLE,
        LIST, 12, ALL, "a value 0 that it did not name", "a value of another pickle of the file");
    OLD(MAGIC VERSION LITTLE, "\x80\x02}.", 12, ALL, "no list of its storages",
        "a dict for a list of storages");
    OLD(MAGIC VERSION LITTLE,
        "\x80\x02](X\1\0\0\0"
        "1e.",
        12, ALL, "does not agree with its pickle", "a list of unknown storages");
    OLD(MAGIC VERSION LITTLE, "\x80\x02](K\0e.", 12, ALL, "does not agree with its pickle",
        "a list of numbers for storages");
    OLD(MAGIC VERSION LITTLE,
        "\x80\x02](X\1\0\0\0"
        "0X\1\0\0\0"
        "0e.",
        12, ALL, "does not agree with its pickle", "a storage listed twice");
    OLD(MAGIC VERSION LITTLE, "\x80\x02].", 12, ALL, "'a' has a storage that is not in the file",
        "an empty list of storages");
    OLD(MAGIC VERSION LITTLE, LIST, 11, ALL, "another size than its pickle says",
        "a storage of eleven elements for twelve");
    OLD(MAGIC VERSION LITTLE, LIST, 12, 7, "cut off before storage 1 of 1",
        "a file that ends before its storage");
    OLD(MAGIC VERSION LITTLE, LIST, 12, ALL - 1, "cut off in storage 1 of 1",
        "a storage shorter than its tensor");
}

/* ---------------------------------------------------------------- other kinds */

static void test_kinds(void)
{
    char tar[512] = "pickle";

    memcpy(tar + 257, "ustar", 5);
    refuse(tar, sizeof tar, "is a tar archive", "a file of PyTorch before 0.1.10");
    refuse("\x89HDF\r\n\x1a\n", 8, "is an HDF5 file", "a file of Keras");
    refuse("\x40\0\0\0\0\0\0\0{\"a\":{}}", 16, "is a safetensors file",
           "a safetensors file of another name");
    refuse("(dp0\ns.", 7, "is no file of PyTorch", "a pickle of protocol 0");
    refuse("", 0, "is empty", "an empty file");
}

int main(void)
{
    test_archives();
    test_large_pickle();
    test_old();
    test_kinds();
    return tap_done();
}

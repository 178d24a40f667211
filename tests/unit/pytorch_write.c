/* core/pytorch/write.h: the zip is as its format says, whatever pieces it came in. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/pytorch/pytorch.h"
#include "core/pytorch/write.h"
#include "tests/unit/tap.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

static char dir[] = "/tmp/tern-pytorch-XXXXXX";

/* "model/data/0" holds 12 bytes, "/1" none, "/2" 200. */
static const uint64_t bytes[] = {12, 0, 200};
enum { ALL = 212 };

static struct tern_pytorch_object *object(void)
{
    struct tern_pytorch_object *p = tern_pytorch_object_new();
    struct tern_pytorch_array t[] = {
        {"float32", 2, {3, 1}}, {"int64", 2, {0, 9}}, {"bfloat16", 1, {100}}};

    tern_pytorch_object_dict(p);
    for (int i = 0; i < 3; i++) {
        tern_pytorch_object_int(p, i);
        tern_pytorch_object_tensor(p, &t[i]);
    }
    tern_pytorch_object_end(p);
    return p;
}

static char *write_file(const char *name, uint64_t zip64_from, size_t piece, struct tern_err *err)
{
    char *path = tern_fs_join(dir, name), data[ALL];
    struct tern_pytorch_write *w = tern_pytorch_write_open(
        path, object(), &(struct tern_pytorch_write_how){.zip64_from = zip64_from}, err);
    int rc = w ? 0 : -1;

    for (int i = 0; i < ALL; i++)
        data[i] = (char)(i * 7);
    for (size_t at = 0; rc == 0 && at < ALL; at += piece) {
        rc = tern_pytorch_write_bytes(w, data + at, ALL - at < piece ? ALL - at : piece, err);
        if (rc < 0)
            tern_pytorch_write_abort(w);
    }
    if (rc == 0)
        rc = tern_pytorch_write_commit(w, err);
    if (rc == 0)
        return path;
    free(path);
    return NULL;
}

static uint64_t get(const uint8_t *at, int n)
{
    uint64_t v = 0;

    while (n-- > 0)
        v = v << 8 | at[n];
    return v;
}

/* An entry as the directory has it. */
struct entry {
    char name[64];
    uint64_t bytes, at;
    const uint8_t *content;
    uint32_t crc;
};

/* By the directory alone, with zip64's fields where the others are full.  The number of entries. */
static int entries(const uint8_t *file, size_t len, struct entry *e, int max)
{
    const uint8_t *end = file + len - 22, *c;
    uint64_t n = get(end + 10, 2), at = get(end + 16, 4);

    if (get(end, 4) != 0x06054b50)
        return -1;
    if (at == 0xffffffff) {
        const uint8_t *far = file + get(end - 20 + 8, 8);
        if (get(end - 20, 4) != 0x07064b50 || get(far, 4) != 0x06064b50)
            return -1;
        n = get(far + 32, 8);
        at = get(far + 48, 8);
    }
    c = file + at;
    for (uint64_t i = 0; i < n && (int)i < max; i++, e++) {
        size_t name = get(c + 28, 2), extra = get(c + 30, 2);
        const uint8_t *x = c + 46 + name + 4;
        if (get(c, 4) != 0x02014b50 || get(c + 10, 2) != 0)
            return -1;
        snprintf(e->name, sizeof e->name, "%.*s", (int)name, (const char *)c + 46);
        e->crc = (uint32_t)get(c + 16, 4);
        e->bytes = get(c + 24, 4);
        e->at = get(c + 42, 4);
        if (e->bytes == 0xffffffff) {
            e->bytes = get(x, 8);
            x += 16;
        }
        if (e->at == 0xffffffff)
            e->at = get(x, 8);
        const uint8_t *local = file + e->at;
        if (get(local, 4) != 0x04034b50 || get(local + 14, 4) != e->crc)
            return -1;
        e->content = local + 30 + get(local + 26, 2) + get(local + 28, 2);
        c += 46 + name + extra;
    }
    return (int)n;
}

static void test_file(const char *what, const char *path)
{
    struct entry e[9] = {0};
    size_t len = 0, from = 0;
    char *file = NULL, name[64];
    struct tern_err err = {0};

    ok(path && tern_fs_read(path, 1 << 20, &file, &len, &err) == 0, "%s: is written: %s", what,
       err.text);
    if (!file)
        return;
    int n = entries((uint8_t *)file, len, e, 9), aligned = 0, sums = 0, same = 0;
    ok(n == 6 && strcmp(e[0].name, "model/data.pkl") == 0 &&
           strcmp(e[1].name, "model/byteorder") == 0 && strcmp(e[5].name, "model/version") == 0,
       "%s: pickle, byte order, three storages and version, under the file's name", what);
    for (int i = 0; i < n; i++) {
        aligned += (e[i].content - (uint8_t *)file) % 64 == 0;
        sums += crc32(0, e[i].content, (uInt)e[i].bytes) == e[i].crc;
    }
    for (int i = 0; i < 3 && n == 6; i++) {
        snprintf(name, sizeof name, "model/data/%d", i);
        same += strcmp(e[2 + i].name, name) == 0 && e[2 + i].bytes == bytes[i];
        for (uint64_t k = 0; k < bytes[i]; k++)
            same -= e[2 + i].content[k] != (uint8_t)((from + k) * 7);
        from += bytes[i];
    }
    ok(aligned == n, "%s: every entry begins at a multiple of 64 bytes", what);
    ok(sums == n, "%s: every checksum is that of the bytes", what);
    ok(same == 3, "%s: the storages hold the bytes in the order in which they came", what);
    free(file);
}

static int files_in(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.' || (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0);
    if (d)
        closedir(d);
    return n;
}

/* No file grows beyond `most` bytes: each write from there on fails. */
static void limit(rlim_t most)
{
    struct rlimit l = {most, RLIM_INFINITY};

    setrlimit(RLIMIT_FSIZE, &l);
}

static void test_errors(void)
{
    struct tern_err err = {0};
    int before = files_in(dir), whole = 0, left = 0, silent = 0;
    char *path;

    signal(SIGXFSZ, SIG_IGN);
    for (unsigned most = 1; most < 4000 && whole == 0; most += 61) {
        limit(most);
        err = (struct tern_err){0};
        path = write_file("full.pt", 0, 100, &err);
        limit(RLIM_INFINITY);
        whole = path != NULL;
        silent += !path && err.code == 0;
        left += !path && files_in(dir) != before;
        free(path);
    }
    ok(whole && left == 0 && silent == 0,
       "a file that finds no room is an error, and nothing is left");
    /* Written behind: the failure is known only when all bytes are given. */
    enum { LATE = 3 << 20 };
    struct tern_pytorch_array late = {"float32", 1, {LATE / 4}};
    struct tern_pytorch_object *p = tern_pytorch_object_new();
    char *zeros = calloc(LATE, 1);
    tern_pytorch_object_dict(p);
    tern_pytorch_object_int(p, 0);
    tern_pytorch_object_tensor(p, &late);
    tern_pytorch_object_end(p);
    path = tern_fs_join(dir, "late.pt");
    limit(1 << 20);
    struct tern_pytorch_write *l = tern_pytorch_write_open(path, p, NULL, &err);
    int rc = l ? tern_pytorch_write_bytes(l, zeros, LATE, &err) : -1;
    usleep(200000);
    if (rc == 0)
        rc = tern_pytorch_write_commit(l, &err);
    else
        tern_pytorch_write_abort(l);
    limit(RLIM_INFINITY);
    ok(rc < 0 && strstr(err.text, "late.pt") && files_in(dir) == before + 1,
       "a write that fails behind the last bytes is an error, and nothing is left (%s)", err.text);
    free(zeros);
    free(path);
    path = tern_fs_join(dir, "none/model.pt");
    ok(!tern_pytorch_write_open(path, object(), NULL, &err) && strstr(err.text, "none/model.pt"),
       "a file in no folder is an error that names it");
    free(path);
    path = tern_fs_join(dir, "stopped.pt");
    before = files_in(dir);
    struct tern_pytorch_write *w = tern_pytorch_write_open(path, object(), NULL, &err);
    ok(w && tern_pytorch_write_bytes(w, "abc", 3, &err) == 0 && !tern_fs_exists(path),
       "a file has no name before it is whole");
    tern_pytorch_write_abort(w);
    ok(files_in(dir) == before, "a file that is given up leaves nothing");
    free(path);
}

/* A file without a storage's bytes. */
static char *write_object(const char *name, struct tern_pytorch_object *p)
{
    char *path = tern_fs_join(dir, name);
    struct tern_pytorch_write *w = tern_pytorch_write_open(path, p, NULL, NULL);

    ok(w && tern_pytorch_write_commit(w, NULL) == 0, "%s is written", name);
    return path;
}

/* The files of PyTorch/XLA: names with numbers, and one tensor alone. */
static void test_parts(void)
{
    struct tern_pytorch_object *p = tern_pytorch_object_new();
    struct tern_pytorch_array none = {"bfloat16", 2, {0, 3}};
    struct tern_pytorch_file f = {0};
    struct tern_err err = {0};
    size_t len = 0;

    tern_pytorch_object_dict(p);
    tern_pytorch_object_text(p, "a.weight");
    tern_pytorch_object_reference(p, 7);
    tern_pytorch_object_text(p, "b");
    tern_pytorch_object_reference(p, 1 << 20);
    tern_pytorch_object_end(p);
    char *path = write_object("names.pt", p), *file = NULL;
    ok(tern_pytorch_open(path, &f, &err) < 0 && strstr(err.text, "TensorReference"),
       "references are refused where all of a model is expected");
    ok(tern_pytorch_open_parts(path, &f, &err) == 0 && f.n == 2 &&
           strcmp(f.tensors[0].name, "a.weight") == 0 && f.tensors[0].reference == 7 &&
           strcmp(f.tensors[1].name, "b") == 0 && f.tensors[1].reference == 1 << 20,
       "references are read where files belong together");
    tern_pytorch_free(&f);
    int wrong = tern_fs_read(path, 1 << 20, &file, &len, &err) < 0;
    for (size_t cut = 0; cut < len; cut++) {
        wrong +=
            tern_pytorch_parse_parts(file, cut, "cut", &f, &err) == 0 || err.code != TERN_USAGE;
        tern_pytorch_free(&f);
    }
    ok(len > 0 && wrong == 0, "references cut off at any byte are an error");
    free(file);
    free(path);
    p = tern_pytorch_object_new();
    tern_pytorch_object_tensor(p, &none);
    path = write_object("tensor_0.pt", p);
    ok(tern_pytorch_open(path, &f, &err) < 0, "a tensor without a dict is no model");
    ok(tern_pytorch_open_parts(path, &f, &err) == 0 && f.n == 1 && f.tensors[0].reference == -1 &&
           f.tensors[0].ndim == 2 && f.tensors[0].shape[1] == 3,
       "a tensor without a dict is read where files belong together");
    tern_pytorch_free(&f);
    free(path);
}

int main(void)
{
    struct tern_err err = {0};
    static const size_t pieces[] = {1, 5, 12, 13, ALL};
    char what[64];

    if (!mkdtemp(dir))
        return 1;
    for (int far = 0; far < 3; far++) {
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
            snprintf(what, sizeof what, "%s, %zu bytes at a time",
                     far == 0   ? "plain"
                     : far == 1 ? "zip64 from 1 byte on"
                                : "zip64 from 100 bytes on",
                     pieces[i]);
            char *path = write_file("model.pt", far == 0 ? 0 : far == 1 ? 1 : 100, pieces[i], &err);
            test_file(what, path);
            free(path);
        }
    }
    ok(tern_pytorch_dtype_bytes("bfloat16") == 2 && tern_pytorch_dtype_bytes("uint32") == 0,
       "types are known by PyTorch's names, and no others");
    test_errors();
    test_parts();
    tern_fs_remove_tree(dir, NULL);
    return tap_done();
}

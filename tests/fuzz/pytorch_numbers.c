/* Mutated files of torch.save whose whole numbers are asked for, as a trainer's step count and
 * sizes are: each is read or refused in words; a name is text, a number is not below 0, no tensor
 * leads out of its file.  The process that opens a file says the same (run under
 * SANITIZE=address,undefined to know that nothing reads astray). */
#include "core/pytorch/pickle.h"
#include "core/pytorch/pytorch.h"

#include "core/base/fs.h"
#include "tests/fuzz/mutate.h"
#include "tests/lib/torch_file.h"

#include <unistd.h>

enum { OPENED = 100 }; /* one file of so many is opened, too: that starts a process */

static const char *const words[] = {
    "ctorch._utils\n_rebuild_tensor_v2\n",
    "ccollections\nOrderedDict\n",
    "ctorch\nSize\n",
    "ctorch_xla.utils.serialization\nTensorReference\n",
    "K\x01K\x02K\x03",
    "M\xff\xff",
    "J\xff\xff\xff\xff",
    "J\xff\xff\xff\x7f",
    "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
    "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\xff",
    "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    "\x8b\x02\x01\x01\x01\x01\x01",
    "\x88\x89N",
    "G\x40\x01\x01\x01\x01\x01\x01\x01",
    "X\x01\x01\x01\x01",
    "h\x01h\x02h\x03",
    "((((((((((((((((",
    "]]]]]]]]]]]]]]]]",
    "}}}}uuuu",
    "](K\x05K\x06"
    "e",
    "\x85\x86\x87",
    "q\x01r\xff\xff\x01\x01",
    "....",
    "\xff\xff\xff\xff",
    NULL,
};

static const float values[12];

/* A step and sizes, in dicts and a list, beside a tensor: numbers of each width. */
static void make(struct torch_file *t)
{
    torch_begin(t);
    torch_key(t, "step");
    torch_int(t, 1200);
    torch_key(t, "w");
    torch_tensor(t,
                 &(struct torch_tensor){.storage = torch_storage(t, "FloatStorage", 4, values, 12),
                                        .ndim = 2,
                                        .shape = {3, 4},
                                        .stride = {4, 1}});
    torch_key(t, "sizes");
    tern_buf_puts(&t->p, "](K\x07M\x01\x02\x8a\x05\x01\x02\x03\x04\x05"
                         "J\xff\xff\xff\xff\x88NG\x40\x01\x01\x01\x01\x01\x01\x01"
                         "eq\x01");
    torch_key(t, "state");
    tern_buf_puts(&t->p, "q\x02");
    torch_dict(t);
    torch_int(t, 0);
    torch_dict(t);
    torch_key(t, "step");
    torch_int(t, 7);
    torch_key(t, "again");
    tern_buf_puts(&t->p, "h\x01uu");
    torch_end(t);
}

static bool is_text(const char *s)
{
    for (size_t n; *s; s += n)
        if ((n = tern_str_utf8(s, strlen(s))) == 0 || (unsigned char)*s < ' ')
            return false;
    return true;
}

static bool is_inside(const struct tern_pytorch_tensor *t, size_t len)
{
    uint64_t n = 1;

    if (t->reference >= 0)
        return t->ndim == 0 && t->offset == 0;
    for (int d = 0; d < t->ndim; d++) {
        if (t->shape[d] == 0)
            return t->offset <= len;
        n += (t->shape[d] - 1) * t->stride[d];
    }
    return t->offset <= len && n * tern_ckpt_type_bytes(t->type) <= len - t->offset;
}

struct seen {
    int read, refused, wrong, opened, otherwise;
    uint64_t numbers;
};

/* What the process that opens it says of the same file. */
static void open_it(const char *path, const char *data, size_t len,
                    const struct tern_pytorch_file *f, const struct tern_err *why,
                    struct seen *seen)
{
    struct tern_pytorch_file g = {0};
    struct tern_err err = {0};

    if (tern_fs_replace(path, data, len, 0600, NULL) < 0)
        abort();
    const int rc = tern_pytorch_open_numbers(path, &g, &err);
    seen->opened++;
    seen->otherwise += (rc < 0) != (why->code != 0) || g.n != f->n;
    for (size_t i = 0; i < g.n && i < f->n; i++)
        seen->otherwise += strcmp(g.tensors[i].name, f->tensors[i].name) != 0 ||
                           g.tensors[i].reference != f->tensors[i].reference ||
                           g.tensors[i].offset != f->tensors[i].offset;
    tern_pytorch_free(&g);
}

static void use(const char *path, const char *data, size_t len, int run, struct seen *seen)
{
    struct tern_pytorch_file f = {0};
    struct tern_err err = {0};

    if (tern_pytorch_parse_as(data, len, path, TERN_PYTORCH_NUMBERS, &f, &err) < 0) {
        seen->refused++;
        seen->wrong += err.code != TERN_USAGE || !err.text[0] || strchr(err.text, '\n');
    } else {
        seen->read++;
    }
    for (size_t i = 0; i < f.n; i++) {
        const struct tern_pytorch_tensor *t = &f.tensors[i];
        seen->numbers += t->reference >= 0;
        seen->wrong += !t->name[0] || !is_text(t->name) || strlen(t->name) > TERN_CKPT_NAME_MAX ||
                       t->outer >= strlen(t->name) || t->reference < -1 || !is_inside(t, len);
    }
    if (run % OPENED == 0)
        open_it(path, data, len, &f, &err, seen);
    tern_pytorch_free(&f);
}

static void say(const struct seen *seen, const char *what)
{
    ok(seen->wrong == 0 && seen->read > 0 && seen->refused > 0 && seen->numbers > 0,
       "%s: %d are refused in words, %d are read, with %llu numbers", what, seen->refused,
       seen->read, (unsigned long long)seen->numbers);
    ok(seen->opened > 0 && seen->otherwise == 0,
       "%s: the process that opens a file says the same of %d of them", what, seen->opened);
}

/* The whole file is changed, or its pickle alone. */
static void test_form(const char *path, bool old, bool inner, int runs, const char *what)
{
    struct torch_file t = {.old = old};
    struct seen seen = {0};
    struct tern_buf file;

    make(&t);
    (old ? torch_old : torch_zip)(&t, &file);
    for (int i = 0; i < runs; i++) {
        struct torch_file changed = t;
        struct tern_buf b = {0};
        size_t n;
        char *x = inner ? fuzz_mutate(t.p.data, t.p.len, words, &n)
                        : fuzz_mutate(file.data, file.len, words, &n);
        if (inner) {
            changed.p = (struct tern_buf){.data = x, .len = n, .cap = n};
            (old ? torch_old : torch_zip)(&changed, &b);
            free(x);
            n = b.len;
            x = malloc(n ? n : 1); /* of its exact size, so that a byte too far is seen */
            memcpy(x, b.data, n);
        }
        use(path, x, n, i, &seen);
        free(x);
        tern_buf_free(&b);
    }
    say(&seen, what);
    tern_buf_free(&file);
    tern_buf_free(&t.p);
}

int main(void)
{
    char work[] = "/tmp/tern-fuzz-XXXXXX";
    const int runs = fuzz_runs(5000);

    if (!mkdtemp(work))
        return 1;
    char *path = tern_fs_join(work, "x.pt");
    test_form(path, false, false, runs, "changed archives");
    test_form(path, true, false, runs, "changed files of the older form");
    test_form(path, false, true, runs, "archives with a changed pickle");
    test_form(path, true, true, runs, "files of the older form with a changed pickle");
    free(path);
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

/* Mutated files of torch.save, whole and by their pickles: each is read or refused in words, no
 * tensor leads out of its file, nothing crashes, hangs or reads astray (run under
 * SANITIZE=address,undefined to know that). */
#include "core/pytorch/pytorch.h"

#include "tests/fuzz/mutate.h"
#include "tests/lib/torch_file.h"

static const char *const words[] = {
    "cos\nsystem\n",
    "ctorch._utils\n_rebuild_tensor_v2\n",
    "ctorch._utils\n_rebuild_parameter\n",
    "ccollections\nOrderedDict\n",
    "ctorch\nFloatStorage\n",
    "ctorch_xla.utils.serialization\nTensorReference\n",
    ")\x81}X\x03\x01\x01\x01tidK\x01sb",
    "X\x07\x01\x01\x01storage",
    "K\x01K\x02K\x03",
    "J\xff\xff\xff\xff",
    "J\xff\xff\xff\x7f",
    "h\x01h\x02h\x03",
    "((((((((((((((((",
    "]]]]]]]]]]]]]]]]",
    "}}}}uuuu",
    "tttt",
    "\x85\x86\x87",
    "RRRR",
    "QQQQ",
    "q\x01r\xff\xff\x01\x01",
    "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    "....",
    "PK\x03\x04",
    "PK\x01\x02",
    "PK\x05\x06",
    "\xff\xff\xff\xff",
    "archive/data/1",
    NULL,
};

static const float values[12];

static void make(struct torch_file *t)
{
    static const int64_t number[] = {7};

    torch_begin(t);
    const int w = torch_storage(t, "FloatStorage", 4, values, 12);
    torch_key(t, "w");
    torch_tensor(
        t, &(struct torch_tensor){.storage = w, .ndim = 2, .shape = {3, 4}, .stride = {4, 1}});
    torch_key(t, "model");
    tern_buf_puts(&t->p, "q\x01");
    torch_dict(t);
    torch_key(t, "b");
    torch_tensor(t, &(struct torch_tensor){.storage = w,
                                           .ndim = 2,
                                           .offset = 1,
                                           .shape = {3, 3},
                                           .stride = {1, 4},
                                           .parameter = true});
    torch_key(t, "step");
    torch_tensor(t,
                 &(struct torch_tensor){.storage = torch_storage(t, "LongStorage", 8, number, 1)});
    tern_buf_puts(&t->p, "q\x02u");
    torch_end(t);
}

static int is_inside(const struct tern_pytorch_tensor *t, size_t len)
{
    uint64_t n = 1;

    for (int d = 0; d < t->ndim; d++) {
        if (t->shape[d] == 0)
            return t->offset <= len;
        n += (t->shape[d] - 1) * t->stride[d];
    }
    return t->offset <= len && n * tern_ckpt_type_bytes(t->type) <= len - t->offset;
}

struct seen {
    int read, refused, wrong;
};

static void use(const char *data, size_t len, bool parts, struct seen *seen)
{
    struct tern_pytorch_file f = {0};
    struct tern_err err = {0};

    if ((parts ? tern_pytorch_parse_parts : tern_pytorch_parse)(data, len, "x.pt", &f, &err) < 0) {
        seen->refused++;
        seen->wrong += err.code != TERN_USAGE || !err.text[0] || strchr(err.text, '\n');
        return;
    }
    seen->read++;
    for (size_t i = 0; i < f.n; i++)
        seen->wrong += !is_inside(&f.tensors[i], len) || !f.tensors[i].name[0];
    tern_pytorch_free(&f);
}

static void say(const struct seen *seen, const char *what)
{
    ok(seen->wrong == 0 && seen->read > 0 && seen->refused > 0,
       "%s: %d are refused in words, %d are read", what, seen->refused, seen->read);
}

/* A file of names with references to other files' tensors. */
static void test_references(int runs)
{
    static const char reference[] =
        "ctorch_xla.utils.serialization\nTensorReference\n)\x81}X\x03\0\0\0tidK\x07sb";
    struct torch_file t = {0};
    struct seen seen = {0};
    struct tern_buf file;

    torch_begin(&t);
    for (int i = 0; i < 3; i++) {
        torch_key(&t, i ? "w" : "a.weight");
        tern_buf_add(&t.p, reference, sizeof reference - 1);
    }
    torch_end(&t);
    for (int i = 0; i < runs; i++) {
        struct torch_file changed = t;
        size_t n;
        char *x = fuzz_mutate(t.p.data, t.p.len, words, &n);
        changed.p = (struct tern_buf){.data = x, .len = n, .cap = n};
        torch_zip(&changed, &file);
        char *exact = malloc(file.len);
        memcpy(exact, file.data, file.len);
        use(exact, file.len, true, &seen);
        free(exact);
        tern_buf_free(&file);
        free(x);
    }
    say(&seen, "archives with references and a changed pickle");
    tern_buf_free(&t.p);
}

int main(void)
{
    static const char *const forms[] = {"changed archives", "changed files of the older form"};
    static const char *const pickles[] = {"archives with a changed pickle",
                                          "files of the older form with a changed pickle"};
    const int runs = fuzz_runs(5000);

    for (int old = 0; old < 2; old++) {
        struct torch_file t = {.old = old};
        struct seen whole = {0}, inner = {0};
        struct tern_buf file;
        make(&t);
        (old ? torch_old : torch_zip)(&t, &file);
        for (int i = 0; i < runs; i++) {
            size_t n;
            char *x = fuzz_mutate(file.data, file.len, words, &n);
            use(x, n, false, &whole);
            free(x);
        }
        say(&whole, forms[old]);
        tern_buf_free(&file);
        for (int i = 0; i < runs; i++) {
            struct torch_file changed = t;
            size_t n;
            char *x = fuzz_mutate(t.p.data, t.p.len, words, &n);
            changed.p = (struct tern_buf){.data = x, .len = n, .cap = n};
            (old ? torch_old : torch_zip)(&changed, &file);
            char *exact = malloc(file.len);
            memcpy(exact, file.data, file.len);
            use(exact, file.len, false, &inner);
            free(exact);
            tern_buf_free(&file);
            free(x);
        }
        say(&inner, pickles[old]);
        tern_buf_free(&t.p);
    }
    test_references(runs);
    return tap_done();
}

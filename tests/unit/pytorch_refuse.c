/* core/pytorch: each refusal of a pickle, an archive or an older file by its own words; and the
 * forms beside them that are read. */
#include "core/pytorch/pickle.h"
#include "core/pytorch/pytorch.h"
#include "tests/lib/torch_file.h"
#include "tests/unit/tap.h"

static struct tern_err err;
static const float values[12] = {1, 2, 3};

/* Parsed from a copy of its exact size, so that a byte too far is seen. */
static int parse(const struct tern_buf *file, enum tern_pytorch_take take,
                 struct tern_pytorch_file *f)
{
    char *copy = malloc(file->len ? file->len : 1);

    *f = (struct tern_pytorch_file){0};
    err = (struct tern_err){0};
    memcpy(copy, file->data, file->len);
    const int rc = tern_pytorch_parse_as(copy, file->len, "x.pt", take, f, &err);
    free(copy);
    return rc;
}

static void refuse_file(struct tern_buf *file, enum tern_pytorch_take take, const char *why,
                        const char *what)
{
    struct tern_pytorch_file f;

    ok(parse(file, take, &f) < 0 && err.code == TERN_USAGE, "%s is refused", what);
    has(err.text, why, "%s: the message says so", what);
    tern_pytorch_free(&f);
    tern_buf_free(file);
}

/* ---------------------------------------------------------------- pickles in an archive */

/* An archive of this pickle and one storage, 0, of twelve floats. */
static struct tern_buf archive(const char *pickle, size_t len)
{
    struct torch_file t = {0};
    struct tern_buf file;

    tern_buf_add(&t.p, pickle, len);
    torch_storage(&t, "FloatStorage", 4, values, 12);
    torch_zip(&t, &file);
    tern_buf_free(&t.p);
    return file;
}

static void refuse(enum tern_pytorch_take take, const char *pickle, size_t len, const char *why,
                   const char *what)
{
    struct tern_buf file = archive(pickle, len);

    refuse_file(&file, take, why, what);
}

/* What is read, as "name type shape" for each tensor (without a type: bytes), a number as "name=7".
 */
static void take(enum tern_pytorch_take how, const char *pickle, size_t len, const char *want,
                 const char *what)
{
    struct tern_buf file = archive(pickle, len), got = {0};
    struct tern_pytorch_file f;

    ok(parse(&file, how, &f) == 0, "%s: it is read", what);
    if (err.text[0])
        printf("# %s\n", err.text);
    for (size_t i = 0; i < f.n; i++) {
        const struct tern_pytorch_tensor *t = &f.tensors[i];
        tern_buf_printf(&got, "%s%s", i ? ", " : "", t->name);
        if (t->reference >= 0)
            tern_buf_printf(&got, "=%lld", (long long)t->reference);
        else
            tern_buf_printf(&got, " %s", tern_ckpt_type_name(t->type));
        for (int d = 0; d < t->ndim; d++)
            tern_buf_printf(&got, "%c%llu", d ? 'x' : ' ', (unsigned long long)t->shape[d]);
    }
    is(got.data ? got.data : "", want, "%s: what is there", what);
    tern_pytorch_free(&f);
    tern_buf_free(&file);
    tern_buf_free(&got);
}

#define TENSORS TERN_PYTORCH_TENSORS
#define REFUSE(pickle, why, what)                                                                  \
    refuse(TENSORS, "\x80\x02" pickle ".", sizeof("\x80\x02" pickle ".") - 1, why, what)
#define TAKE(pickle, want, what)                                                                   \
    take(TENSORS, "\x80\x02" pickle ".", sizeof("\x80\x02" pickle ".") - 1, want, what)
#define REFUSE_AS(how, pickle, why, what)                                                          \
    refuse(how, "\x80\x02" pickle ".", sizeof("\x80\x02" pickle ".") - 1, why, what)
#define TAKE_AS(how, pickle, want, what)                                                           \
    take(how, "\x80\x02" pickle ".", sizeof("\x80\x02" pickle ".") - 1, want, what)

#define KEY(letter) "X\1\0\0\0" letter
#define DICT(items) "}(" items "u"
#define ORDERED "ccollections\nOrderedDict\n"
#define STORAGE(type, rest) "(X\7\0\0\0storagectorch\n" type "\n" KEY("0") "X\3\0\0\0cpu" rest "tQ"
#define FLOATS STORAGE("FloatStorage", "K\x0c")
#define SHAPE "K\3K\4\x86"
#define STRIDE "K\4K\1\x86"
#define HOOKS "\x89" ORDERED ")R"
#define V2 "ctorch._utils\n_rebuild_tensor_v2\n"
#define V3 "ctorch._utils\n_rebuild_tensor_v3\n"
#define PARAMETER "ctorch._utils\n_rebuild_parameter\n"
#define FROM_TYPE "ctorch._tensor\n_rebuild_from_type_v2\n"
#define REFERENCE "ctorch_xla.utils.serialization\nTensorReference\n"
#define ARGS FLOATS "K\0" SHAPE STRIDE HOOKS
#define TENSOR V2 "(" ARGS "tR"
#define A(tensor) DICT(KEY("a") tensor)

static void test_opcodes(void)
{
    static const struct {
        char op;
        const char *name;
    } ops[] = {
        {'i', "INST"},    {'o', "OBJ"},    {'\x82', "EXT1"},      {'\x83', "EXT2"},
        {'\x84', "EXT4"}, {'P', "PERSID"}, {'\x92', "NEWOBJ_EX"}, {'\x97', "NEXT_BUFFER"},
        {'I', "INT"},     {'L', "LONG"},   {'F', "FLOAT"},        {'S', "STRING"},
        {'V', "UNICODE"}, {'p', "0x70"},   {'g', "0x67"},         {'\x98', "READONLY_BUFFER"},
        {'\0', "0x00"},
    };

    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        const char pickle[] = {'\x80', 2, ops[i].op, '.'};
        char *why = tern_strf("opcode %s, which is not among", ops[i].name);
        char *what = tern_strf("the opcode %s", ops[i].name);
        refuse(TENSORS, pickle, sizeof pickle, why, what);
        free(what);
        free(why);
    }
}

static void test_stack(void)
{
    REFUSE("(K\1d", "not there", "a dict of a key alone");
    REFUSE("K\1\x86", "not there", "a pair of one value");
    REFUSE("K\1(K\2\x86", "not there", "a pair over a mark");
    REFUSE("K\1(0", "not there", "a value taken from below a mark");
    REFUSE("(2", "not there", "nothing doubled");
    REFUSE("a", "not there", "nothing appended");
    REFUSE("K\1a", "not there", "a value appended to nothing");
    REFUSE("K\1s", "not there", "an item of a key alone");
    REFUSE("Q", "not there", "a persistent id of nothing");
    REFUSE("K\1b", "not there", "attributes of nothing");
    REFUSE("q\0", "not there", "nothing named");
    REFUSE("K\1\x93", "not there", "a global of a name alone");
    REFUSE("1", "did not begin", "a mark taken away that is not there");
    REFUSE("}u", "did not begin", "items without a mark");
    REFUSE("K\1K\2\x93", "something else than text", "a global named by numbers");
    REFUSE("]K\1K\2s", "something else than a list", "an item put into a list");
    REFUSE("}K\1a", "something else than a list", "a value appended to a dict");
    REFUSE("]K\1b", "attributes to a value that has none", "attributes of a list");
    REFUSE("))b", "attributes to a value that has none", "attributes of a tuple");
    REFUSE("}(", "1 values", "a pickle that ends behind a mark");
    REFUSE("K\1K\2", "2 values on its stack", "a pickle of two values");
    TAKE("K\1(K\2K\3"
         "10" A(TENSOR),
         "a F32 3x4", "values that are taken away again");
    TAKE(DICT(KEY("s") "\x8f(K\1\x90" KEY("f") "(K\1\x91" KEY("a") TENSOR), "a F32 3x4",
         "sets beside a tensor");
}

/* Values that are named and asked for: in this pickle, once they are there. */
static void test_memo(void)
{
    REFUSE("}\x94h\1", "a value 1 that it did not name", "the second of one named value");
    REFUSE("j\xff\xff\xff\xff", "a value 4294967295", "a value of a name of four bytes");
    REFUSE("h\0}q\0", "a value 0 that it did not name", "a value asked for before it is named");
    REFUSE("}q\xff" A(TENSOR), "names a value 255", "a name larger than the bytes before it");
    REFUSE("}q\0" KEY("a") "h\0s", "32 deep", "a dict that lies in itself");
    REFUSE("]q\0h\0\x85\x61", "32 deep", "a list that lies in itself by way of a tuple");
    REFUSE("]q\0h\0Q", "no storage", "a list as a persistent id");
    TAKE(DICT(KEY("a") TENSOR "q\1" KEY("b") "h\1"), "a F32 3x4, b F32 3x4",
         "a tensor named in two places");
    TAKE(DICT(KEY("a") TENSOR "q\1" KEY("b") "K\1q\1"), "a F32 3x4", "a name given twice");
}

static void test_protocols(void)
{
    static const char four[] =
        "\x95\0\0\0\0\0\0\0\0}\x94(\x8c\1a\x94\x8c\x0ctorch._utils\x94\x8c\x12_rebuild_tensor_v2"
        "\x94\x93\x94((\x8c\7storage\x94\x8c\5torch\x94\x8c\x0c"
        "FloatStorage\x94\x93\x94\x8c\1"
        "0"
        "\x94\x8c\3cpu\x94K\x0ct\x94QK\0K\3K\4\x86\x94K\4K\1\x86\x94\x89\x8c\x0b"
        "collections\x94"
        "\x8c\x0bOrderedDict\x94\x93\x94)R\x94t\x94R\x94u.";
    char *what, pickle[400] = "\x80";

    for (char v = 2; v <= 7; v++) {
        const char *old = A(TENSOR) ".";
        const size_t n = v < 4 ? sizeof A(TENSOR) : sizeof four - 1;
        what = tern_strf("a pickle of protocol %d", v);
        pickle[1] = v;
        memcpy(pickle + 2, v < 4 ? old : four, n);
        if (v <= 5)
            take(TENSORS, pickle, n + 2, "a F32 3x4", what);
        else
            refuse(TENSORS, pickle, n + 2, v == 6 ? "protocol 6 (at most 5)" : "protocol 7", what);
        free(what);
    }
    REFUSE("\x80", "protocol 46", "a protocol without its number"); /* STOP is taken for it */
    refuse(TENSORS, "(dp0\ns.", 7, "opcode 0x70", "a pickle of protocol 0");
}

static void test_storages(void)
{
    REFUSE(A(V2 "(" STORAGE("FloatStorage", "J\xff\xff\xff\xff") "K\0" SHAPE STRIDE HOOKS "tR"),
           "impossible size", "a storage of -1 elements");
    REFUSE(
        A(V2 "(" STORAGE("FloatStorage",
                         "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f") "K\0" SHAPE STRIDE HOOKS "tR"),
        "impossible size", "a storage of 2^65 bytes");
    REFUSE(A(V2 "(" STORAGE("FloatStorage", KEY("9")) "K\0" SHAPE STRIDE HOOKS "tR"),
           "impossible size", "a storage whose size is a text");
    REFUSE(DICT(KEY("a") TENSOR KEY("b") V2
                "(" STORAGE("FloatStorage", "K\x0b") "K\0" SHAPE STRIDE HOOKS "tR"),
           "two sizes", "a storage with two sizes");
    REFUSE(A(V2 "(" STORAGE("FloatStorage", "K\x0cK\1") "K\0" SHAPE STRIDE HOOKS "tR"),
           "in an unknown way", "a part of a storage that is a number");
    REFUSE(A(V2 "(" STORAGE("FloatStorage", "K\x0c(" KEY("0") "K\0K\x0ct") "K\0" SHAPE STRIDE HOOKS
                                                                           "tR"),
           "not in its storage", "a storage that is a part of itself");
    REFUSE(A(V2 "(" STORAGE("FloatStorage", "K\x0c(" KEY("1") "K\1K\x0ct") "K\0" SHAPE STRIDE HOOKS
                                                                           "tR"),
           "not in its storage", "a part that is longer than its storage");
    REFUSE(A(V2 "(" STORAGE("FloatStorage", "K\x0c(" KEY("1") "N)t") "K\0" SHAPE STRIDE HOOKS "tR"),
           "impossible size", "a part without numbers");
    REFUSE(A(V2 "(" STORAGE("float32", "K\x0c") "K\0" SHAPE STRIDE HOOKS "tR"), "no storage",
           "a storage of a type that has none");
    REFUSE("K\1Q", "no storage", "a persistent id that is a number");
    TAKE(A(V2 "(" STORAGE("FloatStorage", "K\x0cN") "K\0" SHAPE STRIDE HOOKS "tR"), "a F32 3x4",
         "a storage with None for a part");
}

static void test_calls(void)
{
    static const char args[] = "arguments that it does not take";

    REFUSE(A(V2 "(" FLOATS "K\0" SHAPE "tR"), args, "a tensor without strides");
    REFUSE(A(V2 "(" FLOATS "N" SHAPE STRIDE HOOKS "tR"), args, "a tensor without a place");
    REFUSE(A(V2 "(" FLOATS "K\0](K\3K\4e" STRIDE HOOKS "tR"), args, "a tensor of a listed shape");
    REFUSE(A(V2 "(" FLOATS "K\0" SHAPE "N" HOOKS "tR"), args, "a tensor whose strides are None");
    REFUSE(A(V2 "(K\1K\0" SHAPE STRIDE HOOKS "tR"), args, "a tensor of a number");
    REFUSE(A(V2 "(" ARGS "NNtR"), args, "a tensor of eight arguments");
    REFUSE(A(V2 "(" ARGS DICT("X\4\0\0\0conj\x88") "tR"), "conjugated or negated",
           "a tensor that is kept conjugated");
    REFUSE(A(V3 "(" ARGS "tR"), args, "a tensor of a dtype without one");
    REFUSE(A(V3 "(" ARGS "ctorch\nFloatStorage\ntR"), args, "a tensor whose dtype is a storage");
    REFUSE(A(PARAMETER "(K\1\x88" ORDERED ")RtR"), args, "a parameter of a number");
    REFUSE(A(PARAMETER ")R"), args, "a parameter of nothing");
    REFUSE(A(FROM_TYPE "(" V2 "N"
                       "K\1NtR"),
           args, "a tensor of a type, without arguments");
    REFUSE(A(FROM_TYPE "(" ORDERED "N)NtR"), args, "a tensor of a type, made by a dict");
    REFUSE(A("ctorch\nSize\nK\1\x85R"), args, "a size of a number");
    REFUSE(A("ctorch\nTensor\n)R"), args, "a tensor's type that is called");
    REFUSE(A("ctorch\nfloat32\n)R"), args, "a dtype that is called");
    REFUSE(A(ORDERED "](K\1e\x85R"), args, "a dict of numbers for items");
    REFUSE(A(ORDERED "]]\x86R"), args, "a dict of two lists");
    REFUSE(A("cbuiltins\nset\nK\1R"), "calls what is no global", "a call without a tuple");
    REFUSE(A(REFERENCE ")R"), "'torch_xla.utils.serialization.TensorReference'",
           "a reference to another file, in a file that stands alone");
    REFUSE(A("ctorch._utils\n_rebuild_sparse_tensor\n"), "_rebuild_sparse_tensor",
           "a sparse tensor");
    REFUSE(A("ctorch._utils\n_rebuild_qtensor\n"), "_rebuild_qtensor", "a quantised tensor");
    REFUSE(A("ctorch.nn.modules.linear\nLinear\n"),
           "Save these alone: torch.save(model.state_dict()", "a whole module");

    TAKE(A(V2 "(" ARGS ORDERED ")RtR"), "a F32 3x4", "a tensor with empty metadata");
    TAKE(
        A(V3 "(" STORAGE("UntypedStorage", "K\x30") "K\0" SHAPE STRIDE HOOKS "ctorch\nfloat32\ntR"),
        "a F32 3x4", "a tensor of a dtype in untyped bytes");
    TAKE(A(V2 "(" STORAGE("ComplexFloatStorage", "K\6") "K\0K\6\x85K\1\x85" HOOKS "tR"), "a  48",
         "complex numbers, which are bytes");
    TAKE(A(PARAMETER "(" TENSOR "\x88" ORDERED ")RtR"), "a F32 3x4", "a parameter");
    TAKE(A(FROM_TYPE "(" V2 "ctorch.nn.parameter\nParameter\n(" ARGS "t}tR"), "a F32 3x4",
         "a tensor with attributes");
    TAKE(A(V2 "(" FLOATS "K\0ctorch\nSize\n" SHAPE "\x85R" STRIDE HOOKS "tR"), "a F32 3x4",
         "a tensor whose shape is a torch.Size");
    TAKE(ORDERED "](" KEY("a") TENSOR "\x86"
                                      "e\x85R",
         "a F32 3x4", "a dict of Python 2");
    TAKE(ORDERED ")\x81(" KEY("a") TENSOR "u", "a F32 3x4", "a dict made by NEWOBJ");
}

static void test_tensors(void)
{
    REFUSE(A(V2 "(" FLOATS "K\0" SHAPE "K\1\x85" HOOKS "tR"), "another number of strides",
           "a tensor of two dimensions and one stride");
    REFUSE(A(V2 "(" FLOATS "K\0" SHAPE "K\4J\xff\xff\xff\xff\x86" HOOKS "tR"),
           "impossible shape or stride", "a tensor with a negative stride");
    REFUSE(A(V2 "(" FLOATS "K\0" KEY("3") "K\4\x86" STRIDE HOOKS "tR"),
           "impossible shape or stride", "a tensor whose shape is a text");
    REFUSE(TENSOR, "one tensor without a name", "a tensor without a dict");
    REFUSE(DICT("X\0\0\0\0" TENSOR), "a name that is empty", "a tensor with an empty name");
    TAKE(DICT("K\1" TENSOR "N" TENSOR "J\xff\xff\xff\xff" TENSOR),
         "1 F32 3x4, ? F32 3x4, -1 F32 3x4", "keys that are numbers, or nothing");
    TAKE(A(V2 "(" FLOATS "K\x0bK\2K\2\x86K\0K\0\x86" HOOKS "tR"), "a F32 2x2",
         "one element repeated");
}

static void test_parts(void)
{
    static const char number[] = "a tensor without a number";

    TAKE_AS(TERN_PYTORCH_PARTS, TENSOR, "tensor F32 3x4", "one tensor in a file of several");
    TAKE_AS(TERN_PYTORCH_PARTS, A(REFERENCE ")\x81" DICT("X\3\0\0\0tidK\7") "b"), "a=7",
            "a reference to another file");
    REFUSE_AS(TERN_PYTORCH_PARTS, A(REFERENCE ")\x81"), "'a' is a reference without a number",
              "a reference that is never given its number");
    REFUSE_AS(TERN_PYTORCH_PARTS, A(REFERENCE ")\x81" DICT("X\3\0\0\0tidJ\xff\xff\xff\xff") "b"),
              number, "a reference with a negative number");
    REFUSE_AS(TERN_PYTORCH_PARTS, A(REFERENCE ")\x81" DICT("X\3\0\0\0tadK\7") "b"), number,
              "a reference with another attribute");
    REFUSE_AS(TERN_PYTORCH_PARTS,
              A(REFERENCE ")\x81K\7"
                          "b"),
              number, "a reference whose attributes are a number");
    REFUSE_AS(TERN_PYTORCH_PARTS, A(REFERENCE "K\1\x85\x81"), "arguments",
              "a reference of a number");

    TAKE_AS(TERN_PYTORCH_NUMBERS,
            DICT(KEY("a") "K\7" KEY("b") "J\xff\xff\xff\xff" KEY("c") "\x88" KEY("d")
                     DICT(KEY("e") "M\1\1") KEY("f") "](K\2e"),
            "a=7, d.e=257, f.0=2", "whole numbers from 0 on, in dicts and lists");
    TAKE_AS(TERN_PYTORCH_NUMBERS, "}", "", "a file that holds no number");
    REFUSE_AS(TERN_PYTORCH_NUMBERS, A(REFERENCE ")\x81"), "TensorReference",
              "a reference where numbers are asked for");
}

/* More tensors than a checkpoint may have, by naming one again and again. */
static void test_many(void)
{
    enum { MANY = (1 << 20) + 1 };
    static const char begin[] = "\x80\x02](" TENSOR "q\1";
    struct torch_file t = {0};
    struct tern_buf file;

    tern_buf_add(&t.p, begin, sizeof begin - 1);
    for (int i = 1; i < MANY; i++)
        tern_buf_puts(&t.p, "h\1");
    tern_buf_puts(&t.p, "e.");
    torch_storage(&t, "FloatStorage", 4, values, 12);
    torch_zip(&t, &file);
    tern_buf_free(&t.p);
    refuse_file(&file, TENSORS, "more than 1048576 tensors", "a file of 1,048,577 tensors");
}

int main(void)
{
    test_opcodes();
    test_stack();
    test_memo();
    test_protocols();
    test_storages();
    test_calls();
    test_tensors();
    test_parts();
    test_many();
    return tap_done();
}

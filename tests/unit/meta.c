/* core/convert: Meta's folders, of files whose tensors repeat one element: sizes of real models
 * take no room. */
#include "core/base/fs.h"
#include "core/convert/convert.h"
#include "tests/lib/torch_file.h"
#include "tests/unit/tap.h"

#include <unistd.h>

static char work[] = "/tmp/tern-meta-XXXXXX";
static struct tern_err err;
static float values[2][8 * 2048]; /* of storages 0 and 1: embedding, head */

enum head { HEAD_NONE, HEAD_SHARED, HEAD_ALONE };

/* `repeat`: its elements are the first of storage 0; else they follow each other. */
static void add(struct torch_file *t, const char *name, const uint64_t shape[2], int storage,
                bool repeat)
{
    struct torch_tensor x = {.storage = storage, .ndim = shape[1] ? 2 : 1};

    x.shape[0] = (uint32_t)shape[0];
    x.shape[1] = (uint32_t)shape[1];
    if (!repeat) {
        x.stride[0] = (uint32_t)shape[1];
        x.stride[1] = 1;
    }
    torch_key(t, name);
    torch_tensor(t, &x);
}

static void add_layer(struct torch_file *t, const struct tern_model_config *c, int layer,
                      uint64_t q_rows)
{
    const uint64_t dim = (uint64_t)c->dim, ffn = (uint64_t)c->ffn;
    const uint64_t kv = (uint64_t)c->kv_heads * (uint64_t)c->head_dim;
    const struct {
        const char *name;
        uint64_t shape[2];
    } all[] = {
        {"attention.wq", {q_rows, dim}}, {"attention.wk", {kv, dim}},
        {"attention.wv", {kv, dim}},     {"attention.wo", {dim, dim}},
        {"feed_forward.w1", {ffn, dim}}, {"feed_forward.w2", {dim, ffn}},
        {"feed_forward.w3", {ffn, dim}}, {"attention_norm", {dim, 0}},
        {"ffn_norm", {dim, 0}},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *name = tern_strf("layers.%d.%s.weight", layer, all[i].name);
        add(t, name, all[i].shape, 0, /* repeat= */ true);
        free(name);
    }
}

/* The file that params.json describes; wq with `q_rows` rows (0: all); `others` more tensors. */
static void put_model(const char *name, enum head head, uint64_t q_rows, int others)
{
    struct tern_model_config c;
    struct torch_file t = {0};
    struct tern_buf file;
    char *path = tern_fs_join(work, name);

    if (tern_convert_config(work, &c, &err) < 0) {
        printf("# %s\n", err.text);
        abort();
    }
    const uint64_t vocab[] = {(uint64_t)c.vocab, (uint64_t)c.dim}, norm[] = {(uint64_t)c.dim, 0};
    const size_t n = (size_t)c.vocab * (size_t)c.dim;
    const bool fits = n <= sizeof values[0] / sizeof **values;
    torch_begin(&t);
    torch_storage(&t, "FloatStorage", 4, values[0], fits ? n : 1);
    torch_storage(&t, "FloatStorage", 4, values[1], fits ? n : 1);
    add(&t, "tok_embeddings.weight", vocab, 0, !fits);
    for (int i = 0; i < c.layers; i++)
        add_layer(&t, &c, i, q_rows ? q_rows : (uint64_t)c.heads * (uint64_t)c.head_dim);
    add(&t, "norm.weight", norm, 0, /* repeat= */ true);
    if (head != HEAD_NONE)
        add(&t, "output.weight", vocab, head == HEAD_ALONE, !fits);
    for (int i = 0; i < others; i++) {
        char *other = tern_strf("x.%d", i);
        add(&t, other, norm, 0, /* repeat= */ true);
        free(other);
    }
    torch_end(&t);
    torch_zip(&t, &file);
    if (tern_fs_replace(path, file.data, file.len, 0600, &err) < 0)
        abort();
    tern_buf_free(&file);
    tern_buf_free(&t.p);
    free(path);
}

static void put_params(const char *text)
{
    char *path = tern_fs_join(work, "params.json");

    if (tern_fs_replace(path, text, strlen(text), 0600, &err) < 0)
        abort();
    free(path);
}

static void refused(const char *why, const char *what)
{
    struct tern_ckpt *c;

    err = (struct tern_err){0};
    c = tern_convert_open(work, NULL, &err);
    ok(!c && err.code == TERN_USAGE, "%s is refused", what);
    has(err.text, why, "%s: the message says so", what);
    tern_ckpt_close(c);
}

static void accepted(bool head, const char *what)
{
    struct tern_ckpt *c = tern_convert_open(work, NULL, &err);

    ok(c && tern_ckpt_find(c, "lm_head.weight", NULL) == head, "%s is taken", what);
    if (!c)
        printf("# %s\n", err.text);
    tern_ckpt_close(c);
}

/* A model of Llama 3.2's sizes, whose head is its embedding, though params.json does not say so. */
static void test_tied(void)
{
    static const char file[] = "consolidated.00.pth";
    struct tern_model_config c;

    put_params("{\"dim\": 2048, \"n_layers\": 16, \"n_heads\": 32, \"n_kv_heads\": 8, "
               "\"vocab_size\": 8, \"ffn_dim_multiplier\": 1.5, \"multiple_of\": 256, "
               "\"norm_eps\": 1e-5, \"rope_theta\": 500000, \"use_scaled_rope\": true, "
               "\"max_seq_len\": 512, \"moe_args\": null}");
    ok(tern_convert_config(work, &c, &err) == 0 && c.tied && c.rope_factor == 32 && c.ffn == 8192,
       "params.json of Llama 3.2's sizes makes a tied model");
    put_model(file, HEAD_NONE, 0, 0);
    accepted(false, "a tied model without a head");
    put_model(file, HEAD_SHARED, 0, 0);
    accepted(true, "a tied model whose head lies where its embedding lies");
    put_model(file, HEAD_ALONE, 0, 0);
    accepted(true, "a tied model whose head has its embedding's values");
    values[1][8 * 2048 - 1] = 1;
    put_model(file, HEAD_ALONE, 0, 0);
    refused("this output.weight is another", "a tied model with another head");
    put_model(file, HEAD_NONE, 0, 5);
    refused("'x.0', which has no place", "a tensor that the model has not");
    put_model(file, HEAD_NONE, 0, 200);
    refused("holds 346 tensors, and its model has 146",
            "a file of far more tensors than the model");
}

/* Files whose lists would fill memory. */
static void test_many(void)
{
    put_params("{\"dim\": 2, \"n_layers\": 4096, \"n_heads\": 1, \"vocab_size\": 1, "
               "\"multiple_of\": 1, \"norm_eps\": 1e-5}");
    put_model("consolidated.00.pth", HEAD_ALONE, 0, 0);
    for (int i = 1; i < 8; i++) {
        char *name = tern_strf("consolidated.%02d.pth", i), *path = tern_fs_join(work, name);
        if (symlink("consolidated.00.pth", path) < 0)
            abort();
        free(path);
        free(name);
    }
    refused("more than 262144 tensors", "eight files of 36,867 tensors");
    put_params("{\"dim\": 2, \"n_layers\": 4097, \"n_heads\": 1, \"vocab_size\": 1, "
               "\"multiple_of\": 1, \"norm_eps\": 1e-5}");
    refused("num_hidden_layers is 4097", "a model of more layers than any has");
    for (int i = 1; i < 8; i++) {
        char *name = tern_strf("consolidated.%02d.pth", i), *path = tern_fs_join(work, name);
        unlink(path);
        free(path);
        free(name);
    }
}

/* Rows of heads are put in order one by one. */
static void test_heads(void)
{
    put_params("{\"dim\": 262144, \"n_layers\": 3, \"n_heads\": 131072, \"vocab_size\": 1, "
               "\"multiple_of\": 1, \"ffn_dim_multiplier\": 1e-5, \"norm_eps\": 1e-5}");
    put_model("consolidated.00.pth", HEAD_ALONE, 0, 0);
    refused("more than 1048576 pieces", "a model of 131,072 heads");
    put_params("{\"dim\": 6, \"n_layers\": 1, \"n_heads\": 3, \"vocab_size\": 4, "
               "\"multiple_of\": 1, \"norm_eps\": 1e-5}");
    put_model("consolidated.00.pth", HEAD_ALONE, 3, 0);
    put_model("consolidated.01.pth", HEAD_ALONE, 3, 0);
    refused("cuts a head of 2 rows", "files that share a head");
}

/* params.json: what it lacks and what no Llama has. */
static void test_params(void)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"{\"n_layers\": 1, \"n_heads\": 3, \"norm_eps\": 1e-5}", "dim is missing"},
        {"{\"dim\": 6, \"n_heads\": 3, \"norm_eps\": 1e-5}", "n_layers is missing"},
        {"{\"dim\": 6, \"n_layers\": 1, \"norm_eps\": 1e-5}", "n_heads is missing"},
        {"{\"dim\": 6, \"n_layers\": 1, \"n_heads\": 3}", "norm_eps is missing"},
        {"{\"dim\": null, \"n_layers\": 1, \"n_heads\": 3, \"norm_eps\": 1e-5}", "dim is missing"},
        {"{\"dim\": 6.5, \"n_layers\": 1, \"n_heads\": 3, \"norm_eps\": 1e-5}",
         "dim is no whole number"},
        {"{\"dim\": 1048577, \"n_layers\": 1, \"n_heads\": 1, \"norm_eps\": 1e-5}",
         "dim is no whole number"},
        {"{\"dim\": 6, \"n_layers\": 0, \"n_heads\": 3, \"norm_eps\": 1e-5}",
         "n_layers is no whole number"},
        {"{\"dim\": 6, \"n_layers\": 1, \"n_heads\": -3, \"norm_eps\": 1e-5}",
         "n_heads is no whole number"},
        {"{\"dim\": 6, \"n_layers\": 1, \"n_heads\": 4, \"norm_eps\": 1e-5}",
         "dim 6 is no multiple of n_heads 4"},
        {"{\"dim\": 6, \"n_layers\": 1, \"n_heads\": 3, \"norm_eps\": 0}",
         "norm_eps is no number above 0"},
        {"{\"dim\": 6, \"n_layers\": 1, \"n_heads\": 3, \"norm_eps\": \"1e-5\"}",
         "norm_eps is no number above 0"},
        {"{\"dim\": 6, \"n_layers\": 1, \"n_heads\": 3, \"norm_eps\": 1e-5, \"rope_theta\": -1}",
         "rope_theta is no number above 0"},
        {"{\"dim\": 6, \"n_layers\": 1, \"n_heads\": 3, \"norm_eps\": 1e-5, "
         "\"ffn_dim_multiplier\": 0}",
         "ffn_dim_multiplier is no number above 0"},
        {"{\"dim\": 6, \"n_layers\": 1, \"n_heads\": 3, \"norm_eps\": 1e-5, \"vocab_size\": -2}",
         "vocab_size is no whole number"},
        {"{\"dim\": 6, \"n_layers\": 1, \"n_heads\": 3, \"norm_eps\": 1e-5, \"multiple_of\": 0}",
         "multiple_of is no whole number"},
        {"{\"dim\": 6, \"n_layers\": 1, \"n_heads\": 3, \"norm_eps\": 1e-5, \"n_kv_heads\": 2}",
         "num_key_value_heads"},
        {"{\"model\": {\"dim\": 6, \"n_layers\": 1, \"n_heads\": 3, \"norm_eps\": 1e-5, "
         "\"moe\": 8}}",
         "has moe, which tern does not know"},
        {"[6, 1, 3]", "params.json"},
        {"{\"dim\": 6", "params.json"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_params(bad[i].text);
        refused(bad[i].why, bad[i].text);
    }
}

/* The FFN's width is 2/3 of 4 dim times the multiplier, rounded up to multiple_of. */
static void test_ffn(void)
{
    static const struct {
        const char *more;
        int ffn;
    } each[] = {
        {"", 256},
        {", \"multiple_of\": null", 256},
        {", \"multiple_of\": 1", 16},
        {", \"multiple_of\": 5", 20},
        {", \"multiple_of\": 16", 16},
        {", \"multiple_of\": 1, \"ffn_dim_multiplier\": 1.3", 20},
        {", \"multiple_of\": 8, \"ffn_dim_multiplier\": 1.3", 24},
    };

    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        struct tern_model_config c = {0};
        char *text = tern_strf("{\"dim\": 6, \"n_layers\": 1, \"n_heads\": 3, \"norm_eps\": 1e-5, "
                               "\"vocab_size\": 4%s}",
                               each[i].more);
        put_params(text);
        ok(tern_convert_config(work, &c, &err) == 0 && c.ffn == each[i].ffn,
           "params.json with '%s' makes an FFN %d wide (%d)", each[i].more, each[i].ffn, c.ffn);
        free(text);
    }
}

/* A file of one tensor, its key given `times` times. */
static void put_tensors(const char *file, const char *name, const uint64_t shape[2], int times)
{
    struct torch_file t = {0};
    struct tern_buf b;
    char *path = tern_fs_join(work, file);

    torch_begin(&t);
    torch_storage(&t, "FloatStorage", 4, values[0], 1);
    for (int i = 0; i < times; i++)
        add(&t, name, shape, 0, /* repeat= */ true);
    torch_end(&t);
    torch_zip(&t, &b);
    if (tern_fs_replace(path, b.data, b.len, 0600, &err) < 0)
        abort();
    tern_buf_free(&b);
    tern_buf_free(&t.p);
    free(path);
}

/* vocab_size is left to the embedding, and its files say something else. */
static void test_vocabulary(void)
{
    static const char open[] = "{\"dim\": 6, \"n_layers\": 1, \"n_heads\": 3, \"multiple_of\": 1, "
                               "\"norm_eps\": 1e-5, \"vocab_size\": -1}";
    static const struct {
        const char *name;
        uint64_t shape[2];
        const char *why, *what;
    } bad[] = {
        {"norm.weight",
         {6, 0},
         "has no tensor 'tok_embeddings.weight'",
         "a file without an embedding"},
        {"tok_embeddings.weight",
         {6, 0},
         "is no table of embeddings",
         "an embedding of one dimension"},
        {"tok_embeddings.weight", {0, 6}, "is no table of embeddings", "an embedding of no rows"},
        {"tok_embeddings.weight",
         {(1 << 24) + 1, 6},
         "is no table of embeddings",
         "an embedding of 16,777,217 rows"},
        {"tok_embeddings.weight",
         {4, 5},
         "does not make the 4 x 6 of params.json",
         "an embedding of other columns"},
    };
    struct tern_model_config c;
    char *path = tern_fs_join(work, "consolidated.01.pth");

    unlink(path);
    put_params(open);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_tensors("consolidated.00.pth", bad[i].name, bad[i].shape, 1);
        refused(bad[i].why, bad[i].what);
    }
    put_tensors("consolidated.00.pth", "tok_embeddings.weight", (uint64_t[]){9, 6}, 1);
    ok(tern_convert_config(work, &c, &err) == 0 && c.vocab == 9,
       "a vocab_size of -1 is that of the embedding");
    put_tensors("consolidated.01.pth", "tok_embeddings.weight", (uint64_t[]){9, 6}, 1);
    ok(tern_convert_config(work, &c, &err) == 0 && c.vocab == 18,
       "a vocab_size of -1 is that of both files' rows");
    put_tensors("consolidated.01.pth", "tok_embeddings.weight", (uint64_t[]){8, 6}, 1);
    refused("has another shape in consolidated.01.pth", "a file whose part has other rows");
    put_tensors("consolidated.01.pth", "norm.weight", (uint64_t[]){6, 0}, 1);
    refused("consolidated.01.pth: has no tensor 'tok_embeddings.weight'",
            "a second file without the embedding");
    unlink(path);
    free(path);
}

/* A dict of Python has a key once; a pickle may say it twice. */
static void test_twice(void)
{
    char *params = tern_fs_join(work, "params.json");
    char *file = tern_fs_join(work, "pytorch_model.bin");
    struct tern_ckpt *c;

    put_tensors("pytorch_model.bin", "model.norm.weight", (uint64_t[]){6, 0}, 1);
    c = tern_convert_open(work, NULL, &err);
    ok(c != NULL, "a file of one key is read");
    tern_ckpt_close(c);
    put_tensors("pytorch_model.bin", "model.norm.weight", (uint64_t[]){6, 0}, 2);
    refused("'model.norm.weight' is there twice", "a file with a key given twice");
    unlink(file);
    put_tensors("consolidated.00.pth", "tok_embeddings.weight", (uint64_t[]){4, 6}, 2);
    refused("consolidated.00.pth: tensor 'tok_embeddings.weight' is there twice",
            "Meta's file with a key given twice");
    unlink(params);
    refused("not both consolidated.00.pth and params.json", "Meta's file without params.json");
    free(file);
    free(params);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_tied();
    test_many();
    test_heads();
    test_params();
    test_ffn();
    test_vocabulary();
    test_twice();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

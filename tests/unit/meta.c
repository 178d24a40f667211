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

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    test_tied();
    test_many();
    test_heads();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

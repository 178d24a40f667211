/* Weights as other tools leave them: which kind lies in a folder, and its arrays. */
#include "core/convert/foreign.h"
#include "core/convert/convert.h"
#include "core/convert/export.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/str.h"

#include <fnmatch.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---------------------------------------------------------------- lists */

int tern_convert_foreign_file(struct tern_convert_foreign *f, const char *name, uint64_t bytes,
                              struct tern_err *err)
{
    if (f->n_files == f->files_room) {
        const size_t room = f->files_room ? 2 * f->files_room : 16;
        char **names = realloc(f->names, room * sizeof *names);
        f->names = names ? names : f->names;
        uint64_t *sizes = names ? realloc(f->bytes, room * sizeof *sizes) : NULL;
        f->bytes = sizes ? sizes : f->bytes;
        if (!sizes)
            return tern_err_set(err, TERN_TEMPFAIL, "%s: no memory for %zu files", f->dir, room);
        f->files_room = room;
    }
    f->names[f->n_files] = tern_strdup(name);
    f->bytes[f->n_files++] = bytes;
    return 0;
}

int tern_convert_foreign_array(struct tern_convert_foreign *f, const struct tern_ckpt_info *info,
                               const struct tern_ckpt_piece *pieces, size_t n, struct tern_err *err)
{
    if (f->n == f->room) {
        const size_t room = f->room ? 2 * f->room : 256;
        void *more = realloc(f->arrays, room * sizeof *f->arrays);
        if (!more)
            return tern_err_set(err, TERN_TEMPFAIL, "%s: no memory for %zu arrays", f->dir, room);
        f->arrays = more;
        f->room = room;
    }
    struct tern_ckpt_piece *copy = tern_alloc(n + 1, sizeof *copy, f->dir, err);
    if (!copy)
        return -1;
    memcpy(copy, pieces, n * sizeof *copy);
    f->arrays[f->n] = (struct tern_ckpt_pieces){.info = *info, .pieces = copy, .n = n};
    f->arrays[f->n++].info.name = tern_strdup(info->name);
    return 0;
}

void tern_convert_foreign_free(struct tern_convert_foreign *f)
{
    for (size_t i = 0; i < f->n_files; i++)
        free(f->names[i]);
    for (size_t i = 0; i < f->n; i++) {
        free((char *)f->arrays[i].info.name);
        free((struct tern_ckpt_piece *)f->arrays[i].pieces);
    }
    free(f->names);
    free(f->bytes);
    free(f->arrays);
    *f = (struct tern_convert_foreign){.dir = f->dir};
}

struct tern_ckpt *tern_convert_foreign_open(struct tern_convert_foreign *f, struct tern_err *err)
{
    const struct tern_ckpt_files files = {.dir = f->dir,
                                          .names = (const char *const *)f->names,
                                          .bytes = f->bytes,
                                          .n = f->n_files,
                                          .arrays = f->arrays,
                                          .n_arrays = f->n};
    struct tern_ckpt *c = tern_ckpt_open_files(&files, err);

    tern_convert_foreign_free(f);
    return c;
}

/* ---------------------------------------------------------------- what lies in a folder */

/* What is known by a file's name and is no whole model that tern reads, and what to do. */
static const struct {
    const char *pattern, *words;
} kinds[] = {
    {"adapter_shards",
     "adapters on Optimum Neuron's ranks. Make adapters of PEFT of them: tern ckpt export "
     "--from nxd"},
    {"adapter_model.*", "adapters alone (PEFT). Put them into their base: tern ckpt merge"},
    {"adapter_config.json", "adapters alone (PEFT). Put them into their base: tern ckpt merge"},
    {"consolidated.safetensors",
     "a model in Mistral's layout. Get its folder in Hugging Face's layout"},
    {"consolidated.*.pth",
     "Meta's files, but not both consolidated.00.pth and params.json, which tells the sizes"},
    {"*.gguf", "a GGUF file of llama.cpp. Get the safetensors that it was made from"},
    {"*.distcp", "a checkpoint of torch.distributed. Write it as one file: python -m "
                 "torch.distributed.checkpoint.format_utils dcp_to_torch"},
    {"zero_pp_rank_*", "a checkpoint of DeepSpeed. Put it together with its zero_to_fp32.py"},
    {"zero_to_fp32.py", "a checkpoint of DeepSpeed. Put it together with its zero_to_fp32.py"},
    {"tp_rank_*",
     "files of NeuronX Distributed's ranks. Make a model of them: tern ckpt export --from nxd"},
    {"dp_rank_*",
     "files of NeuronX Distributed's ranks. Make a model of them: tern ckpt export --from nxd"},
    {"shards",
     "a model on Optimum Neuron's ranks. Make one model of it: tern ckpt export --from nxd"},
    {"adapter_default",
     "adapters on Optimum Neuron's ranks. Make adapters of PEFT of them: tern ckpt export "
     "--from nxd"},
    {"mp_rank_*", "a checkpoint of Megatron. Convert it to Hugging Face's layout"},
    {"*.nemo", "a model of NeMo. Convert it to Hugging Face's layout"},
    {"tf_model.h5", "a model of TensorFlow. Get its safetensors"},
    {"flax_model.msgpack", "a model of Flax. Get its safetensors"},
    {"*.safetensors", "safetensors files without model.safetensors.index.json. Get the index, too"},
    {"pytorch_model-*.bin",
     "parts of a model without pytorch_model.bin.index.json. Get the index, too"},
    {"model-*.bin", "parts of a model under unknown names. The index names pytorch_model-*.bin"},
    {"step-????????", "checkpoints of tern. Give one of them, or its folder with /latest"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Of the kinds above the first that is there, with a file of it in *ret_file (malloc'ed); -1 when
 * there is none.  *ret_some: names in the folder, for words. */
static int find_kind(const char *dir, char **ret_file, struct tern_buf *ret_some)
{
    DIR *d = TERN_AGAIN_PTR(opendir(dir));
    int found = KINDS;
    unsigned n = 0;

    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        if (n++ < 5)
            tern_buf_printf(ret_some, "%s%s", ret_some->len ? ", " : "", e->d_name);
        for (int k = 0; k < found; k++) {
            if (fnmatch(kinds[k].pattern, e->d_name, 0) == 0) {
                found = k;
                free(*ret_file);
                *ret_file = tern_strdup(e->d_name);
            }
        }
    }
    if (n > 5)
        tern_buf_puts(ret_some, ", ...");
    if (d)
        closedir(d);
    return found < KINDS ? found : -1;
}

static bool has(const char *dir, const char *name)
{
    char *path = tern_fs_join(dir, name);
    const bool there = tern_fs_exists(path);

    free(path);
    return there;
}

/* NxD keeps the ranks' files in a folder `model`.  As find_kind. */
static int find_ranks_below(const char *dir, char **ret_file)
{
    char *below = tern_fs_join(dir, "model"), *file = NULL;
    struct tern_buf names = {.max = 400};
    int k = find_kind(below, &file, &names);

    if (file && tern_str_starts(file, "dp_rank_"))
        *ret_file = tern_strf("model/%s", file);
    else
        k = -1;
    tern_buf_free(&names);
    free(file);
    free(below);
    return k;
}

/* There are no weights in `dir`: what is there. */
static int refuse_folder(const char *dir, struct tern_err *err)
{
    struct tern_buf some = {.max = 400};
    char *file = NULL;
    int k;

    if (!tern_fs_exists(dir))
        return tern_err_set(err, TERN_USAGE, "%s: there is no such folder", dir);
    k = find_kind(dir, &file, &some);
    if (k < 0)
        k = find_ranks_below(dir, &file);
    if (file)
        tern_str_mask(file);
    if (some.data)
        tern_str_mask(some.data);
    const bool peft = k >= 0 && tern_str_starts(kinds[k].words, "adapters alone");
    if (peft && tern_convert_peft_refuse(dir, err) < 0)
        ; /* it has said more */
    else if (k >= 0)
        tern_err_set(err, TERN_USAGE, "%s: holds %s: %s.", dir, file, kinds[k].words);
    else
        tern_err_set(err, TERN_USAGE,
                     "%s: holds no weights that tern reads (model.safetensors, pytorch_model.bin, "
                     "their indices, Meta's consolidated.00.pth, a checkpoint's manifest.json). It "
                     "holds %s.",
                     dir, some.len ? some.data : "nothing");
    tern_buf_free(&some);
    free(file);
    return -1;
}

/* ---------------------------------------------------------------- several files with an index */

/* Names of the tensors that the folder's config places, sorted. */
struct wanted {
    char (*names)[sizeof((struct tern_model_tensor *)0)->name];
    size_t n; /* 0: the config cannot be read, which is said elsewhere */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool is_not_wanted(const void *ctx, const char *tensor)
{
    const struct wanted *w = ctx;

    return w->n ? !bsearch(tensor, w->names, w->n, sizeof *w->names, by_name)
                : tern_ckpt_index_idle(tensor);
}

static struct tern_ckpt *open_index(const char *dir, bool bins, struct tern_err *err)
{
    struct tern_model_config config;
    struct tern_model_tensor t;
    struct wanted w = {0};
    struct tern_ckpt_index x = {.spare = is_not_wanted, .ctx = &w};

    if (tern_convert_has_config(dir) && tern_convert_config(dir, &config, NULL) == 0) {
        w.n = tern_model_tensors(&config);
        w.names = tern_alloc(w.n, sizeof *w.names, dir, err);
        if (!w.names)
            return NULL;
        for (size_t i = 0; i < w.n; i++) {
            tern_model_tensor(&config, i, &t);
            memcpy(w.names[i], t.name, sizeof t.name);
        }
        qsort(w.names, w.n, sizeof *w.names, by_name);
    }
    struct tern_ckpt *c =
        bins ? tern_convert_open_bins(dir, &x, err) : tern_ckpt_open_hf_with(dir, &x, err);
    free(w.names);
    return c;
}

struct tern_ckpt *tern_convert_open(const char *dir, const char *key, struct tern_err *err)
{
    struct stat st;

    if (TERN_AGAIN(stat(dir, &st)) == 0 && S_ISREG(st.st_mode)) {
        char *folder = tern_fs_dirname(dir);
        struct tern_ckpt *c = tern_convert_open_bin(folder, tern_fs_basename(dir), key, err);
        free(folder);
        return c;
    }
    if (key && !has(dir, "pytorch_model.bin")) {
        tern_err_set(err, TERN_USAGE, "%s: a key is of one file of PyTorch; there is none here",
                     dir);
        return NULL;
    }
    if (!key && (has(dir, "model.safetensors") || has(dir, "model.safetensors.index.json")))
        return open_index(dir, /* bins= */ false, err);
    if (has(dir, "pytorch_model.bin"))
        return tern_convert_open_bin(dir, "pytorch_model.bin", key, err);
    if (has(dir, "pytorch_model.bin.index.json"))
        return open_index(dir, /* bins= */ true, err);
    if (has(dir, "params.json") && has(dir, "consolidated.00.pth"))
        return tern_convert_open_meta(dir, err);
    refuse_folder(dir, err);
    return NULL;
}

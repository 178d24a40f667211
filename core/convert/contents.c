/* Files of a folder of weights, and what they are, by their names. */
#include "core/convert/contents.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/convert/export.h"
#include "core/convert/foreign.h"
#include "core/convert/nxd_adapters.h"
#include "core/pytorch/pytorch.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    DEPTH = 6,           /* OUT/adapter_default/adapter_shards/model/X.pt.tensors/ has 4 */
    FILES_MAX = 1 << 20, /* xser: a file a tensor and rank; 700 tensors on 1,024 ranks */
};

/* ---------------------------------------------------------------- what a file is */

#define OF_RANK "of tensor rank {tp_rank_}, pipeline rank {pp_rank_}"

/* The first pattern that fits; one with a slash is compared with the whole path.  {key} becomes the
 * number that stands behind `key` in the name. */
static const struct kind {
    const char *pattern, *words;
    enum tern_convert_holds holds;
} kinds[] = {
    {"manifest.json", "manifest: arrays, digests", TERN_CONVERT_NO_ARRAYS},
    {"shard-*-of-*.safetensors", "shard of rank {shard-}", TERN_CONVERT_SAFETENSORS},
    {"flushed", "marker: in checkpoint.dir, too", TERN_CONVERT_NO_ARRAYS},
    {"model.safetensors", "weights", TERN_CONVERT_SAFETENSORS},
    {"model-*-of-*.safetensors", "weights, part {model-} of {-of-}", TERN_CONVERT_SAFETENSORS},
    {"adapter_model.safetensors", "adapters of PEFT", TERN_CONVERT_SAFETENSORS},
    {"adapter_model.bin", "adapters of PEFT", TERN_CONVERT_PYTORCH},
    {"adapter_config.json", "config of the adapters", TERN_CONVERT_NO_ARRAYS},
    {"consolidated.safetensors", "weights in Mistral's layout", TERN_CONVERT_SAFETENSORS},
    {"*.safetensors", "arrays (safetensors)", TERN_CONVERT_SAFETENSORS},
    {"pytorch_model.bin", "weights", TERN_CONVERT_PYTORCH},
    {"pytorch_model-*-of-*.bin", "weights, part {model-} of {-of-}", TERN_CONVERT_PYTORCH},
    {"consolidated.*.pth", "weights as Meta's, part {consolidated.}", TERN_CONVERT_PYTORCH},
    {"params.json", "config as Meta's", TERN_CONVERT_NO_ARRAYS},
    {"*.index.json", "index: the file of each tensor", TERN_CONVERT_NO_ARRAYS},
    {"config.json", "config of the model", TERN_CONVERT_NO_ARRAYS},
    {"generation_config.json", "settings of generation", TERN_CONVERT_NO_ARRAYS},
    {"tokenizer_config.json", "config of the tokenizer", TERN_CONVERT_NO_ARRAYS},
    {"special_tokens_map.json", "special tokens of the tokenizer", TERN_CONVERT_NO_ARRAYS},
    {"added_tokens.json", "special tokens of the tokenizer", TERN_CONVERT_NO_ARRAYS},
    {"tokenizer.json", "tokenizer", TERN_CONVERT_NO_ARRAYS},
    {"tokenizer.model", "tokenizer", TERN_CONVERT_NO_ARRAYS},
    {"vocab.json", "tokenizer: its vocabulary", TERN_CONVERT_NO_ARRAYS},
    {"merges.txt", "tokenizer: its merges", TERN_CONVERT_NO_ARRAYS},
    {"chat_template.*", "template of chats", TERN_CONVERT_NO_ARRAYS},
    {"*.tensors/tensor_*.pt", "one tensor", TERN_CONVERT_NO_ARRAYS},
    {"*.info.pt", "shapes of the tensors (xser)", TERN_CONVERT_NO_ARRAYS},
    {"*/optim/*rank_*.pt", "optimizer's state " OF_RANK, TERN_CONVERT_NO_ARRAYS},
    {"*adapter_shards/*rank_*.pt", "adapters " OF_RANK, TERN_CONVERT_PYTORCH},
    {"*tp_rank_*_pp_rank_*.pt", "weights " OF_RANK, TERN_CONVERT_PYTORCH},
    {"*tp_rank_*_pp_rank_*/checkpoint.pt", "weights of this rank", TERN_CONVERT_PYTORCH},
    {"tp_rank_*_pp_rank_*", "weights " OF_RANK, TERN_CONVERT_PYTORCH},
    {"mp_metadata_pp_rank_*", "how parts of pipeline rank {pp_rank_} are put together",
     TERN_CONVERT_NO_ARRAYS},
    {"checkpoint", "marker: begun", TERN_CONVERT_NO_ARRAYS},
    {"done", "marker: finished", TERN_CONVERT_NO_ARRAYS},
    {"optimizer.*", "optimizer's state", TERN_CONVERT_NO_ARRAYS},
    {"scheduler.pt", "learning rate's state", TERN_CONVERT_NO_ARRAYS},
    {"user_content.pt", "the trainer's own values", TERN_CONVERT_NO_ARRAYS},
    {"trainer_state.json", "a trainer's history", TERN_CONVERT_NO_ARRAYS},
    {"training_args.bin", "a trainer's settings", TERN_CONVERT_NO_ARRAYS},
    {"rng_state*", "state of random numbers", TERN_CONVERT_NO_ARRAYS},
    {"*.gguf", "GGUF of llama.cpp", TERN_CONVERT_NO_ARRAYS},
    {"README*", "text for people", TERN_CONVERT_NO_ARRAYS},
    {"LICENSE*", "license", TERN_CONVERT_NO_ARRAYS},
    {NULL, "", TERN_CONVERT_NO_ARRAYS},
};

static const struct kind folders[] = {
    {"*.tensors", "tensors of this rank (xser)", TERN_CONVERT_NO_ARRAYS},
    {"tp_rank_*_pp_rank_*", "weights " OF_RANK, TERN_CONVERT_NO_ARRAYS},
    {"adapter_shards", "adapters by rank", TERN_CONVERT_NO_ARRAYS},
    {"shards", "weights by rank", TERN_CONVERT_NO_ARRAYS},
    {"adapter_*", "adapters", TERN_CONVERT_NO_ARRAYS},
    {"model", "weights by rank", TERN_CONVERT_NO_ARRAYS},
    {"optim", "optimizer's state by rank", TERN_CONVERT_NO_ARRAYS},
    {"original", "files as first published", TERN_CONVERT_NO_ARRAYS},
    {NULL, "", TERN_CONVERT_NO_ARRAYS},
};

static const struct kind *find_kind(const struct kind *k, const char *name)
{
    char *path = tern_strf("/%s", name);
    const char *base = strrchr(path, '/') + 1;

    while (k->pattern && fnmatch(k->pattern, strchr(k->pattern, '/') ? path : base, 0) != 0)
        k++;
    free(path);
    return k;
}

static void put_words(char *to, size_t size, const char *words, const char *name)
{
    struct tern_buf b = {.max = size};

    for (const char *w = words; *w; w++) {
        const char *end = *w == '{' ? strchr(w, '}') : NULL;
        if (!end) {
            tern_buf_add(&b, w, 1);
            continue;
        }
        char *key = tern_strf("%.*s", (int)(end - w - 1), w + 1);
        const char *at = strstr(name, key);
        tern_buf_printf(&b, "%lu", at ? strtoul(at + strlen(key), NULL, 10) : 0);
        free(key);
        w = end;
    }
    snprintf(to, size, "%s", b.data ? b.data : "");
    tern_buf_free(&b);
}

/* ---------------------------------------------------------------- the walk */

struct walk {
    const char *dir;
    const struct tern_ckpt *ours;
    struct tern_convert_contents *to;
    struct tern_err *err;
};

static struct tern_convert_file *add_file(struct walk *w, char *name, unsigned depth)
{
    struct tern_convert_contents *c = w->to;

    if (c->n == c->room) {
        const size_t room = c->room ? 2 * c->room : 64;
        void *more = room > FILES_MAX ? NULL : realloc(c->files, room * sizeof *c->files);
        if (!more) {
            tern_err_set(w->err, TERN_USAGE, "%s: holds more than %zu files", w->dir, c->n);
            free(name);
            return NULL;
        }
        c->files = more;
        c->room = room;
    }
    struct tern_convert_file *f = &c->files[c->n++];
    *f = (struct tern_convert_file){.name = name, .depth = depth, .arrays = -1};
    return f;
}

/* The number of the part of our checkpoint that has this name; -1: none. */
static int64_t part_of(const struct tern_ckpt *ours, const char *name, uint64_t *ret_bytes)
{
    for (size_t i = 0; i < tern_ckpt_parts(ours); i++)
        if (strcmp(tern_ckpt_part(ours, i, ret_bytes), name) == 0)
            return (int64_t)i;
    return -1;
}

/* Fills in what is known without opening the file. */
static void look_at(struct walk *w, struct tern_convert_file *f, bool *ret_enter)
{
    char *path = tern_fs_join(w->dir, f->name);
    struct stat st = {0};

    *ret_enter = false;
    if (TERN_AGAIN(stat(path, &st)) == 0) {
        f->folder = S_ISDIR(st.st_mode);
        f->bytes = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
        *ret_enter = f->folder && f->depth < DEPTH && TERN_AGAIN(lstat(path, &st)) == 0 &&
                     S_ISDIR(st.st_mode);
    }
    const struct kind *k = find_kind(f->folder ? folders : kinds, f->name);
    const bool regular = S_ISREG(st.st_mode);
    uint64_t bytes;
    put_words(f->what, sizeof f->what, k->words, f->name);
    f->holds = regular ? k->holds : TERN_CONVERT_NO_ARRAYS;
    if (w->ours && f->depth == 0 && strcmp(f->name, "manifest.json") != 0 &&
        strcmp(f->name, "flushed") != 0 && part_of(w->ours, f->name, &bytes) < 0) {
        snprintf(f->what, sizeof f->what, "not of this checkpoint");
        f->holds = TERN_CONVERT_NO_ARRAYS;
    }
    free(path);
}

static int add_folder(struct walk *w, const char *below, unsigned depth, uint64_t *ret_bytes);

static int add_one(struct walk *w, const char *below, const char *base, unsigned depth,
                   uint64_t *bytes)
{
    const size_t at = w->to->n;
    struct tern_convert_file *f =
        add_file(w, *below ? tern_fs_join(below, base) : tern_strdup(base), depth);
    bool enter;

    if (!f)
        return -1;
    look_at(w, f, &enter);
    char *name = tern_strdup(f->name);
    uint64_t inside = 0;
    const int rc = enter ? add_folder(w, name, depth + 1, &inside) : 0;
    free(name);
    w->to->files[at].bytes += inside; /* (it may have moved) */
    *bytes += w->to->files[at].bytes;
    return rc;
}

static int is_seen(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* Files in the folder `below`, by name, numbers in them by their value. */
static int add_folder(struct walk *w, const char *below, unsigned depth, uint64_t *ret_bytes)
{
    char *path = *below ? tern_fs_join(w->dir, below) : tern_strdup(w->dir);
    struct dirent **names;
    const int n = scandir(path, &names, is_seen, versionsort);
    int rc = n < 0 ? tern_err_sys(w->err, "%s: cannot open folder", path) : 0;

    for (int i = 0; i < n; i++) {
        if (rc == 0)
            rc = add_one(w, below, names[i]->d_name, depth, ret_bytes);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    free(path);
    return rc;
}

/* ---------------------------------------------------------------- our own */

/* The slices in each shard, by the manifest, which was checked as it was opened. */
static void count_slices(const struct tern_ckpt *ours, int64_t *counts, size_t n)
{
    const json_t *arrays = json_object_get(tern_ckpt_manifest(ours), "arrays");
    const char *name;
    json_t *a, *s;
    size_t i;

    json_object_foreach((json_t *)arrays, name, a)
    {
        json_array_foreach(json_object_get(a, "slices"), i, s)
        {
            const json_int_t shard = json_integer_value(json_object_get(s, "shard"));
            if (shard >= 0 && (size_t)shard < n)
                counts[shard]++;
        }
    }
}

static int by_name(const void *a, const void *b)
{
    const struct tern_convert_file *x = a, *y = b;

    return strverscmp(x->name, y->name);
}

/* Parts that are on other nodes, and the arrays in shards. */
static int compare(struct walk *w)
{
    const size_t parts = tern_ckpt_parts(w->ours);
    int64_t *counts = tern_alloc(parts + 1, sizeof *counts, w->dir, w->err);
    bool *there = tern_alloc(parts + 1, sizeof *there, w->dir, w->err), nested = false;
    uint64_t bytes;
    int rc = counts && there ? 0 : -1;

    if (rc == 0)
        count_slices(w->ours, counts, parts);
    for (size_t i = 0; rc == 0 && i < w->to->n; i++) {
        struct tern_convert_file *f = &w->to->files[i];
        const int64_t part = f->depth == 0 ? part_of(w->ours, f->name, &bytes) : -1;
        nested |= f->depth > 0;
        if (part < 0)
            continue;
        there[part] = true;
        f->arrays = f->holds ? counts[part] : -1;
    }
    for (size_t i = 0; rc == 0 && i < parts; i++) {
        const char *name = there[i] ? NULL : tern_ckpt_part(w->ours, i, &bytes);
        struct tern_convert_file *f = name ? add_file(w, tern_strdup(name), 0) : NULL;
        if (name && !f)
            rc = -1;
        if (!f)
            continue;
        put_words(f->what, sizeof f->what, find_kind(kinds, name)->words, name);
        f->absent = true;
        f->bytes = bytes;
    }
    if (rc == 0 && !nested && w->to->n)
        qsort(w->to->files, w->to->n, sizeof *w->to->files, by_name);
    free(there);
    free(counts);
    return rc;
}

/* ---------------------------------------------------------------- the whole */

int tern_convert_contents(const char *dir, const struct tern_ckpt *ours,
                          struct tern_convert_contents *ret, struct tern_err *err)
{
    struct tern_convert_contents c = {0};
    struct walk w = {.dir = dir, .ours = ours, .to = &c, .err = err};
    uint64_t bytes = 0;

    if (add_folder(&w, "", 0, &bytes) < 0 || (ours && compare(&w) < 0)) {
        tern_convert_contents_free(&c);
        return -1;
    }
    *ret = c;
    return 0;
}

void tern_convert_contents_free(struct tern_convert_contents *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->files[i].name);
    free(c->files);
    *c = (struct tern_convert_contents){0};
}

int tern_convert_contents_count(const char *dir, const struct tern_convert_file *f, size_t *ret_n,
                                struct tern_err *err)
{
    struct tern_pytorch_file pt = {0};
    int rc = f->holds == TERN_CONVERT_NO_ARRAYS ? 0 : 1;

    if (f->arrays >= 0) {
        *ret_n = (size_t)f->arrays;
        return 1;
    }
    char *path = tern_fs_join(dir, f->name), *folder = tern_fs_dirname(path);
    if (f->holds == TERN_CONVERT_SAFETENSORS) {
        struct tern_ckpt *c = tern_ckpt_open_safetensors(folder, tern_fs_basename(path), err);
        if (c)
            *ret_n = tern_ckpt_count(c);
        else
            rc = -1;
        tern_ckpt_close(c);
    } else if (f->holds == TERN_CONVERT_PYTORCH) {
        if (tern_pytorch_open_parts(path, &pt, err) < 0)
            rc = -1;
        else
            *ret_n = pt.n;
        tern_pytorch_free(&pt);
    }
    free(folder);
    free(path);
    return rc;
}

/* ---------------------------------------------------------------- what the folder is */

/* Is a file of NxD's ranks in the folder `dir`/`below`? */
static bool has_ranks(const char *dir, const char *below)
{
    char *path = tern_fs_join(dir, below);
    DIR *d = TERN_AGAIN_PTR(opendir(path));
    bool has = false;

    for (struct dirent *e; d && !has && (e = readdir(d));)
        has = fnmatch("*tp_rank_*_pp_rank_*", e->d_name, 0) == 0;
    if (d)
        closedir(d);
    free(path);
    return has;
}

enum tern_convert_kind tern_convert_kind(const char *dir)
{
    char *adapters = NULL;
    const bool of_ranks = tern_convert_nxd_adapters_find(dir, &adapters, NULL) != 0;

    free(adapters);
    if (has_ranks(dir, ".") || has_ranks(dir, "model") || has_ranks(dir, "shards/model"))
        return TERN_CONVERT_RANKS;
    char *own = tern_fs_join(dir, "adapter_model.safetensors");
    char *bin = tern_fs_join(dir, "adapter_model.bin");
    const bool arrays = tern_fs_exists(own) || tern_fs_exists(bin);
    free(bin);
    free(own);
    return tern_convert_peft_is(dir) && arrays ? TERN_CONVERT_PEFT
           : of_ranks                          ? TERN_CONVERT_RANKS
                                               : TERN_CONVERT_UNKNOWN;
}

struct tern_ckpt *tern_convert_open_adapters(const char *dir, struct tern_err *err)
{
    static const char st[] = "adapter_model.safetensors";
    char *path = tern_fs_join(dir, st);
    const bool there = tern_fs_exists(path);

    free(path);
    return there ? tern_ckpt_open_safetensors(dir, st, err)
                 : tern_convert_open_bin(dir, "adapter_model.bin", /* key= */ NULL, err);
}

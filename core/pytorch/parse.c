/* A file's bytes as a list of tensors: the archive or the older form, the pickle, the storages. */
#include "core/pytorch/pickle.h"
#include "core/pytorch/pytorch.h"
#include "core/pytorch/zip.h"

#include "core/base/le.h"
#include "core/base/rand.h"
#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

enum {
    PICKLE_MAX = 64 << 20, /* 300 bytes a tensor: 200,000 of them */
    TENSORS_MAX = 1 << 20, /* as many arrays as a checkpoint may have */
    DEPTH_MAX = 32,        /* of dicts in dicts */
    VISITS_MAX = 1 << 22,  /* of values, one that is named in several places as often */
};

/* Of a tensor, repeated elements counted: sizes fit into int64_t. */
#define BYTES_MAX (1ull << 62)

/* ---------------------------------------------------------------- values to tensors */

struct walk {
    struct tern_pytorch_pickle *p;
    struct tern_pytorch_file *to;
    size_t room;
    struct tern_buf name;
    unsigned visits;
};

static int say(const struct walk *w, const char *what)
{
    char *name = tern_strdup(w->name.data ? w->name.data : "");

    tern_str_mask(name);
    tern_err_set(w->p->err, TERN_USAGE, "%s: tensor '%.100s' %s", w->p->path, name, what);
    free(name);
    return -1;
}

static bool is_name(const struct tern_buf *b)
{
    if (b->failed || b->len == 0 || b->len > TERN_CKPT_NAME_MAX)
        return false;
    for (size_t i = 0, n; i < b->len; i += n) {
        n = tern_str_utf8(b->data + i, b->len - i);
        if (n == 0 || (unsigned char)b->data[i] < ' ')
            return false;
    }
    return true;
}

/* A tuple of whole numbers from 0 on. */
static int dims(const struct walk *w, const struct tern_pytorch_value *from, uint64_t *to)
{
    for (size_t d = 0; d < from->items.n; d++) {
        const struct tern_pytorch_value *v = from->items.v[d];
        if (v->kind != TERN_PYTORCH_INT || v->integer < 0)
            return say(w, "has an impossible shape or stride");
        to[d] = (uint64_t)v->integer;
    }
    return 0;
}

int tern_pytorch_extent(const struct tern_pytorch_tensor *t, unsigned element, uint64_t *ret_bytes)
{
    uint64_t n = 1, way, count = 1;

    *ret_bytes = 0;
    for (int d = 0; d < t->ndim; d++)
        if (t->shape[d] == 0)
            return 0;
    for (int d = 0; d < t->ndim; d++)
        if (__builtin_mul_overflow(count, t->shape[d], &count) || count > BYTES_MAX / element ||
            __builtin_mul_overflow(t->shape[d] - 1, t->stride[d], &way) ||
            __builtin_add_overflow(n, way, &n) || n > BYTES_MAX / element)
            return -1;
    *ret_bytes = n * element;
    return 0;
}

/* Its place in the file, if all of it lies in its storage. */
static int place(const struct walk *w, const struct tern_pytorch_tensor_value *v,
                 struct tern_pytorch_tensor *t)
{
    uint64_t bytes, from;

    if (!v->storage->found)
        return say(w, "has a storage that is not in the file");
    if (tern_pytorch_extent(t, v->bytes, &bytes) < 0 || v->offset < 0 ||
        __builtin_mul_overflow((uint64_t)v->offset, v->bytes, &from) || from > v->storage->bytes ||
        bytes > v->storage->bytes - from)
        return say(w, "reaches outside its storage");
    t->offset = v->storage->at + from;
    t->storage = v->storage->number;
    if (t->type == TERN_CKPT_OTHER) {
        t->ndim = 1;
        t->shape[0] = bytes;
        t->stride[0] = 1;
    }
    return 0;
}

/* Another one in the list, under the name at hand; NULL with an error. */
static struct tern_pytorch_tensor *add(struct walk *w, size_t outer)
{
    struct tern_pytorch_file *f = w->to;

    if (!is_name(&w->name)) {
        say(w, "has a name that is empty, longer than 255 bytes, or no text");
        return NULL;
    }
    if (f->n == TENSORS_MAX) {
        tern_err_set(w->p->err, TERN_USAGE, "%s: holds more than %d tensors", w->p->path,
                     TENSORS_MAX);
        return NULL;
    }
    if (f->n == w->room) {
        const size_t room = w->room ? 2 * w->room : 256;
        void *more = realloc(f->tensors, room * sizeof *f->tensors);
        if (!more) {
            tern_err_set(w->p->err, TERN_TEMPFAIL, "%s: no memory for %zu tensors", w->p->path,
                         room);
            return NULL;
        }
        f->tensors = more;
        w->room = room;
    }
    f->tensors[f->n] = (struct tern_pytorch_tensor){
        .name = tern_strdup(w->name.data), .outer = outer, .type = TERN_CKPT_U8, .reference = -1};
    return &f->tensors[f->n++];
}

static int add_tensor(struct walk *w, const struct tern_pytorch_tensor_value *v, size_t outer)
{
    if (v->shape->items.n != v->stride->items.n)
        return say(w, "has another number of strides than of dimensions");
    if (v->shape->items.n > TERN_CKPT_DIMS)
        return say(w, "has more than 4 dimensions");
    struct tern_pytorch_tensor *t = add(w, outer);
    if (!t)
        return -1;
    t->type = v->type;
    t->ndim = (int)v->shape->items.n;
    return dims(w, v->shape, t->shape) < 0 || dims(w, v->stride, t->stride) < 0 ? -1
                                                                                : place(w, v, t);
}

static int add_reference(struct walk *w, const struct tern_pytorch_value *v, size_t outer)
{
    struct tern_pytorch_tensor *t = v->integer < 0 ? NULL : add(w, outer);

    if (v->integer < 0)
        return say(w, "is a reference without a number");
    if (!t)
        return -1;
    t->reference = v->integer;
    return 0;
}

/* A key behind what is there; a longer one is no name. */
static void put_key(struct tern_buf *b, const struct tern_pytorch_value *key, size_t index)
{
    enum { SOME = TERN_CKPT_NAME_MAX + 1 };

    if (b->len > TERN_CKPT_NAME_MAX)
        return;
    if (!key)
        tern_buf_printf(b, "%zu", index);
    else if (key->kind == TERN_PYTORCH_TEXT)
        tern_buf_add(b, key->text.at, key->text.len < SOME ? key->text.len : SOME);
    else if (key->kind == TERN_PYTORCH_INT)
        tern_buf_printf(b, "%lld", (long long)key->integer);
    else
        tern_buf_puts(b, "?");
}

static void cut_back(struct tern_buf *b, size_t len)
{
    b->len = len;
    if (b->data)
        b->data[len] = '\0';
}

static bool has_more(const struct tern_pytorch_value *v)
{
    return v->kind == TERN_PYTORCH_TENSOR || v->kind == TERN_PYTORCH_REFERENCE ||
           v->kind == TERN_PYTORCH_DICT || v->kind == TERN_PYTORCH_LIST ||
           v->kind == TERN_PYTORCH_TUPLE;
}

/* `v` is what the name says; `outer` bytes of it are those of the dicts around. */
static int visit(struct walk *w, const struct tern_pytorch_value *v, size_t outer, int depth)
{
    const size_t len = w->name.len, step = v->kind == TERN_PYTORCH_DICT ? 2 : 1;

    if (++w->visits > VISITS_MAX)
        return tern_err_set(w->p->err, TERN_USAGE, "%s: its dicts lead to more than %d values",
                            w->p->path, VISITS_MAX);
    if (v->kind == TERN_PYTORCH_TENSOR)
        return add_tensor(w, v->tensor, outer);
    if (v->kind == TERN_PYTORCH_REFERENCE || v->kind == TERN_PYTORCH_INT)
        return add_reference(w, v, outer);
    if (depth == DEPTH_MAX)
        return tern_err_set(w->p->err, TERN_USAGE, "%s: its dicts lie in each other %d deep",
                            w->p->path, DEPTH_MAX);
    if (depth > 0 && len <= TERN_CKPT_NAME_MAX)
        tern_buf_puts(&w->name, ".");
    const size_t here = w->name.len;
    for (size_t i = 0; i + step <= v->items.n; i += step) {
        const struct tern_pytorch_value *in = v->items.v[i + step - 1];
        const bool number =
            w->p->take == TERN_PYTORCH_NUMBERS && in->kind == TERN_PYTORCH_INT && in->integer >= 0;
        if (!has_more(in) && !number) {
            w->visits++;
            continue;
        }
        put_key(&w->name, step == 2 ? v->items.v[i] : NULL, i);
        if (visit(w, in, here, depth + 1) < 0)
            return -1;
        cut_back(&w->name, here);
    }
    cut_back(&w->name, len);
    return 0;
}

static int list(struct tern_pytorch_pickle *p, const struct tern_pytorch_value *root,
                struct tern_pytorch_file *to)
{
    struct walk w = {.p = p, .to = to};

    if (root->kind == TERN_PYTORCH_TENSOR && p->take == TERN_PYTORCH_PARTS)
        tern_buf_puts(&w.name, "tensor");
    else if (root->kind == TERN_PYTORCH_TENSOR)
        return tern_err_set(p->err, TERN_USAGE,
                            "%s: holds one tensor without a name, and no dict of tensors", p->path);
    int rc = has_more(root) ? visit(&w, root, 0, 0) : 0;

    tern_buf_free(&w.name);
    if (rc == 0 && to->n == 0 && p->take != TERN_PYTORCH_NUMBERS)
        rc = tern_err_set(p->err, TERN_USAGE, "%s: holds no tensor", p->path);
    return rc;
}

/* ---------------------------------------------------------------- the zip archive */

/* The folder of the archive: NAME in NAME/data.pkl.  *ret_all: how many there are. */
static const struct tern_pytorch_zip_entry *find_pickle(const struct tern_pytorch_zip *z,
                                                        size_t *ret_folder, size_t *ret_all)
{
    static const char end[] = "/data.pkl";
    const struct tern_pytorch_zip_entry *found = NULL;
    const size_t n = sizeof end - 1;

    *ret_all = 0;

    for (size_t i = 0; i < z->n; i++) {
        const struct tern_pytorch_zip_entry *e = &z->entries[i];
        if (e->name_len > n && memcmp(e->name + e->name_len - n, end, n) == 0 &&
            !memchr(e->name, '/', e->name_len - n)) {
            *ret_folder = e->name_len - n + 1;
            found = e;
            ++*ret_all;
        }
    }
    return found;
}

/* The entry "data/KEY" of the folder that the pickle lies in. */
static const struct tern_pytorch_zip_entry *find_beside(const struct tern_pytorch_zip *z,
                                                        const char *folder, size_t folder_len,
                                                        const char *sub, const char *key,
                                                        size_t key_len)
{
    char name[512];
    const size_t sub_len = strlen(sub);

    if (folder_len + sub_len + key_len > sizeof name)
        return NULL;
    memcpy(name, folder, folder_len);
    memcpy(name + folder_len, sub, sub_len);
    memcpy(name + folder_len + sub_len, key, key_len);
    return tern_pytorch_zip_find(z, name, folder_len + sub_len + key_len);
}

static int find_storages(struct tern_pytorch_pickle *p, const struct tern_pytorch_zip *z,
                         const char *folder, size_t folder_len)
{
    for (size_t i = 0; i < p->n_storages; i++) {
        struct tern_pytorch_storage *s = p->storages[i];
        const struct tern_pytorch_zip_entry *e =
            find_beside(z, folder, folder_len, "data/", s->key, s->key_len);
        if (!e)
            continue; /* reported with the name of its tensor */
        if (!e->plain)
            return tern_err_set(
                p->err, TERN_USAGE,
                "%s: its tensors are compressed or encrypted, which torch.save does "
                "not do",
                p->path);
        if (s->root || e->bytes < s->bytes)
            return tern_err_set(p->err, TERN_USAGE,
                                "%s: a storage has %llu bytes, and its pickle says %llu", p->path,
                                (unsigned long long)e->bytes, (unsigned long long)s->bytes);
        s->at = e->at;
        s->found = true;
    }
    return 0;
}

static int load_zip(struct tern_pytorch_pickle *p, const struct tern_pytorch_zip *z,
                    struct tern_pytorch_file *to)
{
    size_t folder_len = 0, all;
    const struct tern_pytorch_zip_entry *e = find_pickle(z, &folder_len, &all), *order;

    if (!e)
        return tern_err_set(
            p->err, TERN_USAGE,
            "%s: is a zip archive that torch.save did not write: it has no data.pkl", p->path);
    if (all > 1)
        return tern_err_set(p->err, TERN_USAGE,
                            "%s: is a zip archive that torch.save did not write: it has %zu "
                            "folders with a data.pkl",
                            p->path, all);
    const char *folder = e->name;
    if (find_beside(z, folder, folder_len, "constants.pkl", "", 0))
        return tern_err_set(p->err, TERN_USAGE,
                            "%s: is a TorchScript program. Save its tensors alone: "
                            "torch.save(torch.jit.load(...).state_dict(), ...)",
                            p->path);
    order = find_beside(z, folder, folder_len, "byteorder", "", 0);
    if (order && (order->bytes != 6 || memcmp(p->data + order->at, "little", 6) != 0))
        return tern_err_set(p->err, TERN_USAGE, "%s: its bytes are not in little-endian order",
                            p->path);
    if (!e->plain || e->bytes > PICKLE_MAX)
        return tern_err_set(p->err, TERN_USAGE, "%s: its data.pkl %s", p->path,
                            e->plain ? "has more than 64 MiB" : "is compressed or encrypted");
    p->at = e->at;
    p->len = e->at + e->bytes;
    const struct tern_pytorch_value *root = tern_pytorch_pickle_load(p);
    if (!root || find_storages(p, z, folder, folder_len) < 0)
        return -1;
    return list(p, root, to);
}

/* ---------------------------------------------------------------- the older form */

/* The key of dict `v`; NULL when it has none. */
static const struct tern_pytorch_value *get(const struct tern_pytorch_value *v, const char *key)
{
    for (size_t i = 0; v->kind == TERN_PYTORCH_DICT && i + 1 < v->items.n; i += 2) {
        const struct tern_pytorch_value *k = v->items.v[i];
        if (k->kind == TERN_PYTORCH_TEXT && k->text.len == strlen(key) &&
            memcmp(k->text.at, key, k->text.len) == 0)
            return v->items.v[i + 1];
    }
    return NULL;
}

/* Magic number, protocol, the machine that wrote it. */
static int read_head(struct tern_pytorch_pickle *p)
{
    static const uint8_t magic[10] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
    const struct tern_pytorch_value *v = tern_pytorch_pickle_load(p);

    if (!v)
        return -1;
    if (v->kind != TERN_PYTORCH_LONG || v->text.len != sizeof magic ||
        memcmp(v->text.at, magic, sizeof magic) != 0)
        return tern_err_set(p->err, TERN_USAGE, "%s: is a pickle that torch.save did not write",
                            p->path);
    v = tern_pytorch_pickle_load(p);
    if (!v)
        return -1;
    if (v->kind != TERN_PYTORCH_INT || v->integer != 1001)
        return tern_err_set(p->err, TERN_USAGE, "%s: is of another version of torch.save's format",
                            p->path);
    v = tern_pytorch_pickle_load(p);
    if (!v)
        return -1;
    v = get(v, "little_endian");
    if (!v || v->kind != TERN_PYTORCH_BOOL || !v->integer)
        return tern_err_set(p->err, TERN_USAGE, "%s: its bytes are not in little-endian order",
                            p->path);
    return 0;
}

/* The storages follow each other in the order of `keys`: their elements' number, and the bytes. */
static int read_storages(struct tern_pytorch_pickle *p, const struct tern_pytorch_value *keys,
                         size_t len)
{
    uint64_t at = p->at, n;

    for (size_t i = 0; i < keys->items.n; i++) {
        const struct tern_pytorch_value *k = keys->items.v[i];
        struct tern_pytorch_storage *s = k->kind == TERN_PYTORCH_TEXT
                                             ? tern_pytorch_storage_find(p, k->text.at, k->text.len)
                                             : NULL;
        if (!s || s->found || s->root)
            return tern_err_set(p->err, TERN_USAGE,
                                "%s: its list of storages does not agree with its pickle", p->path);
        if (len - at < 8)
            return tern_err_set(p->err, TERN_USAGE, "%s: is cut off before storage %zu of %zu",
                                p->path, i + 1, keys->items.n);
        if (__builtin_mul_overflow(tern_le_get64(p->data + at), s->element, &n) || n != s->bytes)
            return tern_err_set(p->err, TERN_USAGE,
                                "%s: storage %zu has another size than its pickle says", p->path,
                                i + 1);
        at += 8;
        if (n > len - at)
            return tern_err_set(p->err, TERN_USAGE, "%s: is cut off in storage %zu of %zu", p->path,
                                i + 1, keys->items.n);
        s->at = at;
        s->found = true;
        at += n;
    }
    for (size_t i = 0; i < p->n_storages; i++) {
        struct tern_pytorch_storage *s = p->storages[i];
        if (s->root && s->root->found && !s->found) {
            s->at = s->root->at + s->root_at;
            s->found = true;
        }
    }
    return 0;
}

static int load_old(struct tern_pytorch_pickle *p, struct tern_pytorch_file *to)
{
    const size_t len = p->len;

    p->len = len < PICKLE_MAX ? len : PICKLE_MAX;
    if (read_head(p) < 0)
        return -1;
    const struct tern_pytorch_value *root = tern_pytorch_pickle_load(p);
    const struct tern_pytorch_value *keys = root ? tern_pytorch_pickle_load(p) : NULL;
    if (!keys)
        return -1;
    if (keys->kind != TERN_PYTORCH_LIST)
        return tern_err_set(p->err, TERN_USAGE, "%s: has no list of its storages", p->path);
    return read_storages(p, keys, len) < 0 ? -1 : list(p, root, to);
}

/* ---------------------------------------------------------------- the whole */

/* Words for what is often found under such a name. */
static int refuse_kind(const uint8_t *data, size_t len, const char *path, struct tern_err *err)
{
    static const struct {
        size_t at;
        const char *bytes, *words;
    } kinds[] = {
        {0, "version https://git-lfs",
         "is a Git LFS pointer, and not the file it stands for. Get that: git lfs pull."},
        {257, "ustar",
         "is a tar archive, as PyTorch before 0.1.10 wrote it. Load and save it anew "
         "with any later PyTorch."},
        {0, "GGUF", "is a GGUF file, and none of PyTorch"},
        {1, "HDF", "is an HDF5 file, and none of PyTorch"},
        {1, "NUMPY", "is a NumPy file, and none of PyTorch"},
        {0, "<", "is a web page, and none of PyTorch"},
        {8, "{\"", "is a safetensors file: give it the name model.safetensors"},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const size_t n = strlen(kinds[i].bytes);
        if (len >= kinds[i].at + n && memcmp(data + kinds[i].at, kinds[i].bytes, n) == 0)
            return tern_err_set(err, TERN_USAGE, "%s: %s", path, kinds[i].words);
    }
    return tern_err_set(err, TERN_USAGE, "%s: %s", path,
                        len ? "is no file of PyTorch: torch.save writes a zip archive or a pickle"
                            : "is empty");
}

int tern_pytorch_parse_as(const void *data, size_t len, const char *path,
                          enum tern_pytorch_take take, struct tern_pytorch_file *ret_file,
                          struct tern_err *err)
{
    struct tern_pytorch_pickle p = {
        .path = path, .data = data, .len = len, .take = take, .err = err};
    struct tern_pytorch_file f = {.bytes = len};
    struct tern_pytorch_zip z = {0};
    int rc = -1;

    tern_rand_system(p.hash_key, sizeof p.hash_key);
    if (tern_pytorch_zip_is(data, len))
        rc = tern_pytorch_zip_read(data, len, path, &z, err) < 0 ? -1 : load_zip(&p, &z, &f);
    else if (len && *p.data == 0x80)
        rc = load_old(&p, &f);
    else
        refuse_kind(data, len, path, err);
    tern_pytorch_zip_free(&z);
    tern_pytorch_pickle_free(&p);
    if (rc < 0)
        tern_pytorch_free(&f);
    else
        *ret_file = f;
    return rc;
}

int tern_pytorch_parse(const void *data, size_t len, const char *path,
                       struct tern_pytorch_file *ret_file, struct tern_err *err)
{
    return tern_pytorch_parse_as(data, len, path, TERN_PYTORCH_TENSORS, ret_file, err);
}

int tern_pytorch_parse_parts(const void *data, size_t len, const char *path,
                             struct tern_pytorch_file *ret_file, struct tern_err *err)
{
    return tern_pytorch_parse_as(data, len, path, TERN_PYTORCH_PARTS, ret_file, err);
}

void tern_pytorch_free(struct tern_pytorch_file *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->tensors[i].name);
    free(f->tensors);
    *f = (struct tern_pytorch_file){0};
}

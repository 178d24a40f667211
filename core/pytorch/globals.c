/* The globals that a pickle of torch.save may name, and what becomes of a call to one. */
#include "core/pytorch/pickle.h"

#include "core/base/hash.h"

#include <string.h>

#define STORAGE(name_, type_, bytes_)                                                              \
    {                                                                                              \
        .module = "torch", .name = name_, .storage = true, .type = TERN_CKPT_##type_,              \
        .bytes = bytes_                                                                            \
    }
#define DTYPE(name_, type_, bytes_)                                                                \
    {                                                                                              \
        .module = "torch", .name = name_, .dtype = true, .type = TERN_CKPT_##type_,                \
        .bytes = bytes_                                                                            \
    }
#define CALL(module_, name_, call_)                                                                \
    {                                                                                              \
        .module = module_, .name = name_, .call = TERN_PYTORCH_CALL_##call_                        \
    }

static const struct tern_pytorch_global globals[] = {
    CALL("collections", "OrderedDict", DICT),
    CALL("torch", "Size", SIZE),
    CALL("torch", "device", OPAQUE),
    CALL("builtins", "set", OPAQUE),
    CALL("__builtin__", "set", OPAQUE),
    CALL("_codecs", "encode", OPAQUE), /* bytes, in protocol 2 */
    CALL("torch._utils", "_rebuild_tensor", TENSOR),
    CALL("torch._utils", "_rebuild_tensor_v2", TENSOR),
    CALL("torch._utils", "_rebuild_tensor_v3", TENSOR_V3),
    CALL("torch._utils", "_rebuild_parameter", PARAMETER),
    CALL("torch._utils", "_rebuild_parameter_with_state", PARAMETER),
    CALL("torch._tensor", "_rebuild_from_type_v2", FROM_TYPE),
    CALL("torch_xla.utils.serialization", "TensorReference", REFERENCE),
    CALL("torch", "Tensor", NONE),
    CALL("torch.nn.parameter", "Parameter", NONE),
    STORAGE("DoubleStorage", F64, 8),
    STORAGE("FloatStorage", F32, 4),
    STORAGE("HalfStorage", F16, 2),
    STORAGE("BFloat16Storage", BF16, 2),
    STORAGE("LongStorage", I64, 8),
    STORAGE("IntStorage", I32, 4),
    STORAGE("ShortStorage", I16, 2),
    STORAGE("CharStorage", I8, 1),
    STORAGE("ByteStorage", U8, 1),
    STORAGE("BoolStorage", BOOL, 1),
    STORAGE("ComplexFloatStorage", OTHER, 8),
    STORAGE("ComplexDoubleStorage", OTHER, 16),
    {.module = "torch.storage",
     .name = "UntypedStorage",
     .storage = true,
     .type = TERN_CKPT_U8,
     .bytes = 1},
    STORAGE("UntypedStorage", U8, 1),
    DTYPE("float64", F64, 8),
    DTYPE("float32", F32, 4),
    DTYPE("float16", F16, 2),
    DTYPE("bfloat16", BF16, 2),
    DTYPE("int64", I64, 8),
    DTYPE("int32", I32, 4),
    DTYPE("int16", I16, 2),
    DTYPE("int8", I8, 1),
    DTYPE("uint64", U64, 8),
    DTYPE("uint32", U32, 4),
    DTYPE("uint16", U16, 2),
    DTYPE("uint8", U8, 1),
    DTYPE("bool", BOOL, 1),
    DTYPE("complex64", OTHER, 8),
    DTYPE("complex128", OTHER, 16),
    DTYPE("float8_e4m3fn", OTHER, 1),
    DTYPE("float8_e5m2", OTHER, 1),
    DTYPE("float8_e4m3fnuz", OTHER, 1),
    DTYPE("float8_e5m2fnuz", OTHER, 1),
    DTYPE("float8_e8m0fnu", OTHER, 1),
};

static bool same(const char *known, const char *s, size_t len)
{
    return strlen(known) == len && memcmp(known, s, len) == 0;
}

const struct tern_pytorch_global *tern_pytorch_global_find(struct tern_pytorch_pickle *p,
                                                           const char *module, size_t module_len,
                                                           const char *name, size_t name_len)
{
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++)
        if (same(globals[i].module, module, module_len) && same(globals[i].name, name, name_len) &&
            (p->take == TERN_PYTORCH_PARTS || globals[i].call != TERN_PYTORCH_CALL_REFERENCE))
            return &globals[i];
    tern_pytorch_pickle_fail(
        p,
        "its pickle asks for '%.*s.%.*s', which tern does not run: it reads tensors, numbers, "
        "texts, "
        "lists and dicts. Save these alone: torch.save(model.state_dict(), ...)",
        (int)(module_len < 100 ? module_len : 100), module, (int)(name_len < 100 ? name_len : 100),
        name);
    return NULL;
}

/* ---------------------------------------------------------------- storages */

static size_t slot(const struct tern_pytorch_pickle *p, const char *key, size_t len)
{
    uint8_t sum[TERN_SIPHASH_BYTES]; /* no file can make its keys meet */
    size_t i;

    tern_siphash(p->hash_key, key, len, sum);
    memcpy(&i, sum, sizeof i);
    i &= p->table_room - 1;

    while (p->table[i]) {
        const struct tern_pytorch_storage *s = p->storages[p->table[i] - 1];
        if (s->key_len == len && memcmp(s->key, key, len) == 0)
            break;
        i = (i + 1) & (p->table_room - 1);
    }
    return i;
}

struct tern_pytorch_storage *tern_pytorch_storage_find(const struct tern_pytorch_pickle *p,
                                                       const char *key, size_t len)
{
    unsigned number = p->table_room ? p->table[slot(p, key, len)] : 0;

    return number ? p->storages[number - 1] : NULL;
}

/* Twice the room, for table and list: the table is never more than half full. */
static int grow_storages(struct tern_pytorch_pickle *p)
{
    const size_t room = p->storages_room ? 2 * p->storages_room : 64;
    struct tern_pytorch_storage **list = tern_pytorch_pickle_alloc(p, room * sizeof *list);
    unsigned *table = tern_pytorch_pickle_alloc(p, 2 * room * sizeof *table);

    if (!list || !table)
        return -1;
    if (p->n_storages)
        memcpy(list, p->storages, p->n_storages * sizeof *list);
    p->storages = list;
    p->storages_room = room;
    p->table = table;
    p->table_room = 2 * room;
    for (size_t i = 0; i < p->n_storages; i++)
        p->table[slot(p, list[i]->key, list[i]->key_len)] = (unsigned)i + 1;
    return 0;
}

static struct tern_pytorch_storage *storage_of(struct tern_pytorch_pickle *p,
                                               const struct tern_pytorch_value *key)
{
    struct tern_pytorch_storage *s = tern_pytorch_storage_find(p, key->text.at, key->text.len);

    if (s)
        return s;
    if (p->n_storages == p->storages_room && grow_storages(p) < 0)
        return NULL;
    s = tern_pytorch_pickle_alloc(p, sizeof *s);
    if (!s)
        return NULL;
    s->key = key->text.at;
    s->key_len = key->text.len;
    s->number = (unsigned)p->n_storages;
    p->storages[p->n_storages++] = s;
    p->table[slot(p, s->key, s->key_len)] = s->number + 1;
    return s;
}

static bool is_text(const struct tern_pytorch_value *v, const char *text)
{
    return v->kind == TERN_PYTORCH_TEXT && same(text, v->text.at, v->text.len);
}

static const struct tern_pytorch_value *item(const struct tern_pytorch_value *v, size_t i)
{
    return v->items.v[i];
}

/* Elements as bytes; -1 with `p->err`. */
static int bytes_of(struct tern_pytorch_pickle *p, const struct tern_pytorch_value *n,
                    unsigned element, uint64_t *bytes)
{
    if (n->kind != TERN_PYTORCH_INT || n->integer < 0 ||
        __builtin_mul_overflow((uint64_t)n->integer, element, bytes) || *bytes > 1ull << 62)
        return tern_pytorch_pickle_fail(p, "its pickle names a storage of an impossible size");
    return 0;
}

/* Of old files: this storage is `view`, a part of `s`, as (its key, elements before it, its size).
 */
static struct tern_pytorch_storage *view_of(struct tern_pytorch_pickle *p,
                                            struct tern_pytorch_storage *s,
                                            const struct tern_pytorch_value *view, unsigned element)
{
    struct tern_pytorch_storage *part = NULL;
    uint64_t from = 0, bytes = 0;

    if (view->kind != TERN_PYTORCH_TUPLE || view->items.n != 3 ||
        item(view, 0)->kind != TERN_PYTORCH_TEXT) {
        tern_pytorch_pickle_fail(p, "its pickle names a part of a storage in an unknown way");
        return NULL;
    }
    if (bytes_of(p, item(view, 1), element, &from) < 0 ||
        bytes_of(p, item(view, 2), element, &bytes) < 0)
        return NULL;
    part = storage_of(p, item(view, 0));
    if (!part)
        return NULL;
    if (part == s || s->root || from > s->bytes || bytes > s->bytes - from) {
        tern_pytorch_pickle_fail(p, "its pickle names a part that is not in its storage");
        return NULL;
    }
    if (part->element && (part->root != s || part->root_at != from || part->bytes != bytes ||
                          part->element != element)) {
        tern_pytorch_pickle_fail(p, "its pickle gives a part of a storage two places");
        return NULL;
    }
    part->root = s;
    part->root_at = from;
    part->bytes = bytes;
    part->element = element;
    return part;
}

/* ("storage", type, key, place, elements), of old files with a view or None behind. */
struct tern_pytorch_value *tern_pytorch_global_storage(struct tern_pytorch_pickle *p,
                                                       const struct tern_pytorch_value *id)
{
    const bool good = id->kind == TERN_PYTORCH_TUPLE && id->items.n >= 5 && id->items.n <= 6 &&
                      is_text(item(id, 0), "storage") && item(id, 1)->kind == TERN_PYTORCH_GLOBAL &&
                      item(id, 1)->global->storage && item(id, 2)->kind == TERN_PYTORCH_TEXT;
    uint64_t bytes = 0;

    if (!good) {
        tern_pytorch_pickle_fail(p, "its pickle refers to something outside that is no storage");
        return NULL;
    }
    const struct tern_pytorch_global *type = item(id, 1)->global;
    struct tern_pytorch_storage *s;
    if (bytes_of(p, item(id, 4), type->bytes, &bytes) < 0 || !(s = storage_of(p, item(id, 2))))
        return NULL;
    if (s->element && s->bytes != bytes) {
        tern_pytorch_pickle_fail(p, "its pickle gives a storage two sizes");
        return NULL;
    }
    s->bytes = bytes;
    s->element = type->bytes;
    if (id->items.n == 6 && item(id, 5)->kind != TERN_PYTORCH_NONE &&
        !(s = view_of(p, s, item(id, 5), type->bytes)))
        return NULL;
    struct tern_pytorch_value *v = tern_pytorch_pickle_new(p, TERN_PYTORCH_STORAGE);
    if (v) {
        v->storage.storage = s;
        v->storage.type = type;
    }
    return v;
}

/* ---------------------------------------------------------------- calls */

static struct tern_pytorch_value *wrong_args(struct tern_pytorch_pickle *p,
                                             const struct tern_pytorch_global *g)
{
    tern_pytorch_pickle_fail(p, "its pickle calls %s.%s with arguments that it does not take",
                             g->module, g->name);
    return NULL;
}

/* OrderedDict(), or of a list of pairs, as Python 2 wrote it. */
static struct tern_pytorch_value *make_dict(struct tern_pytorch_pickle *p,
                                            const struct tern_pytorch_global *g,
                                            const struct tern_pytorch_value *args)
{
    struct tern_pytorch_value *v = tern_pytorch_pickle_new(p, TERN_PYTORCH_DICT);

    if (!v || args->items.n == 0)
        return v;
    const struct tern_pytorch_value *list = item(args, 0);
    if (args->items.n != 1 || list->kind != TERN_PYTORCH_LIST)
        return wrong_args(p, g);
    for (size_t i = 0; i < list->items.n; i++) {
        const struct tern_pytorch_value *pair = item(list, i);
        if ((pair->kind != TERN_PYTORCH_TUPLE && pair->kind != TERN_PYTORCH_LIST) ||
            pair->items.n != 2)
            return wrong_args(p, g);
        if (tern_pytorch_pickle_add(p, v, pair->items.v[0]) < 0 ||
            tern_pytorch_pickle_add(p, v, pair->items.v[1]) < 0)
            return NULL;
    }
    return v;
}

/* (storage, offset, size, stride, requires_grad, hooks, [dtype,] [metadata]) */
static struct tern_pytorch_value *make_tensor(struct tern_pytorch_pickle *p,
                                              const struct tern_pytorch_global *g,
                                              const struct tern_pytorch_value *args)
{
    const bool v3 = g->call == TERN_PYTORCH_CALL_TENSOR_V3;
    const size_t n = args->items.n, plain = v3 ? 7 : 6;

    if (n < (v3 ? 7 : 4) || n > plain + 1 || item(args, 0)->kind != TERN_PYTORCH_STORAGE ||
        item(args, 1)->kind != TERN_PYTORCH_INT || item(args, 2)->kind != TERN_PYTORCH_TUPLE ||
        item(args, 3)->kind != TERN_PYTORCH_TUPLE ||
        (v3 && (item(args, 6)->kind != TERN_PYTORCH_GLOBAL || !item(args, 6)->global->dtype)))
        return wrong_args(p, g);
    if (n > plain && (item(args, plain)->kind != TERN_PYTORCH_DICT || item(args, plain)->items.n) &&
        item(args, plain)->kind != TERN_PYTORCH_NONE) {
        tern_pytorch_pickle_fail(p, "it holds a tensor that is kept conjugated or negated");
        return NULL;
    }
    const struct tern_pytorch_global *type =
        v3 ? item(args, 6)->global : item(args, 0)->storage.type;
    struct tern_pytorch_value *v = tern_pytorch_pickle_new(p, TERN_PYTORCH_TENSOR);
    struct tern_pytorch_tensor_value *t = v ? tern_pytorch_pickle_alloc(p, sizeof *t) : NULL;
    if (!t)
        return NULL;
    *t = (struct tern_pytorch_tensor_value){.storage = item(args, 0)->storage.storage,
                                            .type = type->type,
                                            .bytes = type->bytes,
                                            .offset = item(args, 1)->integer,
                                            .shape = item(args, 2),
                                            .stride = item(args, 3)};
    v->tensor = t;
    return v;
}

/* (function, type, its arguments, attributes): a tensor or parameter with attributes of its own. */
static struct tern_pytorch_value *from_type(struct tern_pytorch_pickle *p,
                                            const struct tern_pytorch_global *g,
                                            const struct tern_pytorch_value *args)
{
    if (args->items.n != 4 || item(args, 0)->kind != TERN_PYTORCH_GLOBAL ||
        item(args, 2)->kind != TERN_PYTORCH_TUPLE)
        return wrong_args(p, g);
    switch (item(args, 0)->global->call) {
    case TERN_PYTORCH_CALL_TENSOR:
    case TERN_PYTORCH_CALL_TENSOR_V3:
    case TERN_PYTORCH_CALL_PARAMETER:
        return tern_pytorch_global_call(p, item(args, 0), item(args, 2));
    default:
        return wrong_args(p, g);
    }
}

/* Its attribute, the number, follows. */
static struct tern_pytorch_value *make_reference(struct tern_pytorch_pickle *p,
                                                 const struct tern_pytorch_global *g,
                                                 const struct tern_pytorch_value *args)
{
    struct tern_pytorch_value *v =
        args->items.n ? wrong_args(p, g) : tern_pytorch_pickle_new(p, TERN_PYTORCH_REFERENCE);

    if (v)
        v->integer = -1;
    return v;
}

struct tern_pytorch_value *tern_pytorch_global_call(struct tern_pytorch_pickle *p,
                                                    const struct tern_pytorch_value *global,
                                                    const struct tern_pytorch_value *args)
{
    const struct tern_pytorch_global *g = global->global;

    switch (g->call) {
    case TERN_PYTORCH_CALL_DICT:
        return make_dict(p, g, args);
    case TERN_PYTORCH_CALL_SIZE:
        return args->items.n == 1 && item(args, 0)->kind == TERN_PYTORCH_TUPLE ? args->items.v[0]
                                                                               : wrong_args(p, g);
    case TERN_PYTORCH_CALL_OPAQUE:
        return tern_pytorch_pickle_new(p, TERN_PYTORCH_OPAQUE);
    case TERN_PYTORCH_CALL_TENSOR:
    case TERN_PYTORCH_CALL_TENSOR_V3:
        return make_tensor(p, g, args);
    case TERN_PYTORCH_CALL_PARAMETER:
        return args->items.n >= 1 && item(args, 0)->kind == TERN_PYTORCH_TENSOR ? args->items.v[0]
                                                                                : wrong_args(p, g);
    case TERN_PYTORCH_CALL_FROM_TYPE:
        return from_type(p, g, args);
    case TERN_PYTORCH_CALL_REFERENCE:
        return make_reference(p, g, args);
    default:
        return wrong_args(p, g);
    }
}

/* The opcodes of a pickle.  Each pushes, pops or names values; none runs anything. */
#include "core/pytorch/pickle.h"

#include <string.h>

enum { PROTOCOL_MAX = 5 };

/* ---------------------------------------------------------------- bytes */

static int cut_off(struct tern_pytorch_pickle *p)
{
    return tern_pytorch_pickle_fail(p, "its pickle is cut off");
}

/* The next `n` bytes; NULL when they are not there. */
static const uint8_t *take(struct tern_pytorch_pickle *p, uint64_t n)
{
    if (n > p->len - p->at) {
        cut_off(p);
        return NULL;
    }
    p->at += n;
    return p->data + p->at - n;
}

/* A whole number of `n` bytes, little-endian, without sign. */
static int take_number(struct tern_pytorch_pickle *p, unsigned n, uint64_t *v)
{
    const uint8_t *b = take(p, n);

    *v = 0;
    for (unsigned i = 0; b && i < n; i++)
        *v |= (uint64_t)b[i] << 8 * i;
    return b ? 0 : -1;
}

/* Bytes to the end of the line, which is taken, too. */
static int take_line(struct tern_pytorch_pickle *p, const char **line, size_t *len)
{
    const uint8_t *from = p->data + p->at, *end = memchr(from, '\n', p->len - p->at);

    if (!end)
        return cut_off(p);
    *line = (const char *)from;
    *len = (size_t)(end - from);
    p->at += *len + 1;
    return 0;
}

/* ---------------------------------------------------------------- the stack */

static int underflow(struct tern_pytorch_pickle *p)
{
    return tern_pytorch_pickle_fail(p, "its pickle takes a value that is not there");
}

static int push(struct tern_pytorch_pickle *p, struct tern_pytorch_value *v)
{
    if (!v ||
        tern_pytorch_pickle_grow(p, &p->stack, sizeof *p->stack, p->n_stack, &p->stack_room) < 0)
        return -1;
    p->stack[p->n_stack++] = v;
    return 0;
}

/* Values above the newest mark. */
static size_t above(const struct tern_pytorch_pickle *p)
{
    return p->n_stack - (p->n_marks ? p->marks[p->n_marks - 1] : 0);
}

static struct tern_pytorch_value *pop(struct tern_pytorch_pickle *p)
{
    if (above(p) == 0) {
        underflow(p);
        return NULL;
    }
    return p->stack[--p->n_stack];
}

static struct tern_pytorch_value *top(struct tern_pytorch_pickle *p)
{
    if (above(p) == 0) {
        underflow(p);
        return NULL;
    }
    return p->stack[p->n_stack - 1];
}

static int push_integer(struct tern_pytorch_pickle *p, enum tern_pytorch_kind kind, int64_t n)
{
    struct tern_pytorch_value *v = tern_pytorch_pickle_new(p, kind);

    if (v)
        v->integer = n;
    return push(p, v);
}

static int push_text(struct tern_pytorch_pickle *p, enum tern_pytorch_kind kind, uint64_t len)
{
    const uint8_t *at = take(p, len);
    struct tern_pytorch_value *v = at ? tern_pytorch_pickle_new(p, kind) : NULL;

    if (!v)
        return -1;
    v->text.at = (const char *)at;
    v->text.len = len;
    return push(p, v);
}

/* A text whose length stands before it, in `n` bytes. */
static int push_counted(struct tern_pytorch_pickle *p, enum tern_pytorch_kind kind, unsigned n)
{
    uint64_t len;

    return take_number(p, n, &len) < 0 ? -1 : push_text(p, kind, len);
}

/* LONG1 and LONG4: little-endian, with a sign. */
static int push_long(struct tern_pytorch_pickle *p, unsigned n)
{
    uint64_t len, v = 0;

    if (take_number(p, n, &len) < 0)
        return -1;
    if (len > 8)
        return push_text(p, TERN_PYTORCH_LONG, len);
    const uint8_t *b = take(p, len);
    if (!b)
        return -1;
    for (unsigned i = 0; i < 8; i++)
        v |= (uint64_t)(i < len ? b[i] : len && b[len - 1] & 0x80 ? 0xff : 0) << 8 * i;
    return push_integer(p, TERN_PYTORCH_INT, (int64_t)v);
}

static int mark(struct tern_pytorch_pickle *p)
{
    if (tern_pytorch_pickle_grow(p, &p->marks, sizeof *p->marks, p->n_marks, &p->marks_room) < 0)
        return -1;
    p->marks[p->n_marks++] = p->n_stack;
    return 0;
}

/* Where the values above the newest mark begin, which is taken away; their number in *n. */
static struct tern_pytorch_value **unmark(struct tern_pytorch_pickle *p, size_t *n)
{
    if (p->n_marks == 0) {
        tern_pytorch_pickle_fail(p, "its pickle ends a list that it did not begin");
        return NULL;
    }
    const size_t from = p->marks[--p->n_marks];
    *n = p->n_stack - from;
    p->n_stack = from;
    return p->stack + from;
}

static int add_all(struct tern_pytorch_pickle *p, struct tern_pytorch_value *to,
                   struct tern_pytorch_value **from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tern_pytorch_pickle_add(p, to, from[i]) < 0)
            return -1;
    return 0;
}

/* The values above the newest mark as a tuple, list or dict. */
static int push_marked(struct tern_pytorch_pickle *p, enum tern_pytorch_kind kind)
{
    size_t n;
    struct tern_pytorch_value **from = unmark(p, &n), *v;

    if (!from || !(v = tern_pytorch_pickle_new(p, kind)))
        return -1;
    if (kind == TERN_PYTORCH_DICT && n % 2)
        return underflow(p);
    return add_all(p, v, from, n) < 0 ? -1 : push(p, v);
}

/* TUPLE1 to TUPLE3. */
static int push_tuple(struct tern_pytorch_pickle *p, size_t n)
{
    struct tern_pytorch_value *v = tern_pytorch_pickle_new(p, TERN_PYTORCH_TUPLE);

    if (!v)
        return -1;
    if (above(p) < n)
        return underflow(p);
    p->n_stack -= n;
    return add_all(p, v, p->stack + p->n_stack, n) < 0 ? -1 : push(p, v);
}

/* APPEND, APPENDS, SETITEM, SETITEMS, ADDITEMS: the values behind a container go into it. */
static int put_into(struct tern_pytorch_pickle *p, bool marked, size_t count,
                    enum tern_pytorch_kind kind)
{
    size_t n = count;
    struct tern_pytorch_value **from, *to;

    if (marked) {
        from = unmark(p, &n);
        if (!from)
            return -1;
    } else {
        if (above(p) < n)
            return underflow(p);
        p->n_stack -= n;
        from = p->stack + p->n_stack;
    }
    to = top(p);
    if (!to)
        return -1;
    if (to->kind != kind || (kind == TERN_PYTORCH_DICT && n % 2))
        return tern_pytorch_pickle_fail(p, "its pickle puts a value into something else than a "
                                           "list or dict");
    return kind == TERN_PYTORCH_OPAQUE ? 0 : add_all(p, to, from, n);
}

/* ---------------------------------------------------------------- the memo */

/* Names are given one after the other, so none is larger than the bytes that were read. */
static int memo_put(struct tern_pytorch_pickle *p, uint64_t i)
{
    struct tern_pytorch_value *v = top(p);

    if (!v)
        return -1;
    if (i > p->at)
        return tern_pytorch_pickle_fail(p, "its pickle names a value %llu", (unsigned long long)i);
    while (i >= p->memo_room)
        if (tern_pytorch_pickle_grow(p, &p->memo, sizeof *p->memo, p->memo_room, &p->memo_room) < 0)
            return -1;
    p->memo[i] = v;
    return 0;
}

static int memo_put_numbered(struct tern_pytorch_pickle *p, unsigned n)
{
    uint64_t i;

    return take_number(p, n, &i) < 0 ? -1 : memo_put(p, i);
}

static int memo_get(struct tern_pytorch_pickle *p, unsigned n)
{
    uint64_t i;

    if (take_number(p, n, &i) < 0)
        return -1;
    if (i >= p->memo_room || !p->memo[i])
        return tern_pytorch_pickle_fail(p, "its pickle asks for a value %llu that it did not name",
                                        (unsigned long long)i);
    return push(p, p->memo[i]);
}

/* ---------------------------------------------------------------- globals and calls */

static int push_global(struct tern_pytorch_pickle *p, const char *module, size_t module_len,
                       const char *name, size_t name_len)
{
    const struct tern_pytorch_global *g =
        tern_pytorch_global_find(p, module, module_len, name, name_len);
    struct tern_pytorch_value *v = g ? tern_pytorch_pickle_new(p, TERN_PYTORCH_GLOBAL) : NULL;

    if (!v)
        return -1;
    v->global = g;
    return push(p, v);
}

static int global(struct tern_pytorch_pickle *p)
{
    const char *module = NULL, *name = NULL;
    size_t module_len = 0, name_len = 0;

    return take_line(p, &module, &module_len) < 0 || take_line(p, &name, &name_len) < 0
               ? -1
               : push_global(p, module, module_len, name, name_len);
}

static int stack_global(struct tern_pytorch_pickle *p)
{
    const struct tern_pytorch_value *name = pop(p), *module = name ? pop(p) : NULL;

    if (!module)
        return -1;
    if (name->kind != TERN_PYTORCH_TEXT || module->kind != TERN_PYTORCH_TEXT)
        return tern_pytorch_pickle_fail(p, "its pickle names a global by something else than text");
    return push_global(p, module->text.at, module->text.len, name->text.at, name->text.len);
}

static int call(struct tern_pytorch_pickle *p)
{
    const struct tern_pytorch_value *args = pop(p), *what = args ? pop(p) : NULL;

    if (!what)
        return -1;
    if (what->kind != TERN_PYTORCH_GLOBAL || args->kind != TERN_PYTORCH_TUPLE)
        return tern_pytorch_pickle_fail(p, "its pickle calls what is no global");
    return push(p, tern_pytorch_global_call(p, what, args));
}

static int persistent_id(struct tern_pytorch_pickle *p)
{
    const struct tern_pytorch_value *id = pop(p);

    return id ? push(p, tern_pytorch_global_storage(p, id)) : -1;
}

/* {"tid": number} */
static int build_reference(struct tern_pytorch_pickle *p, struct tern_pytorch_value *to,
                           const struct tern_pytorch_value *state)
{
    const struct tern_pytorch_value *const *v =
        (const struct tern_pytorch_value *const *)(state->kind == TERN_PYTORCH_DICT &&
                                                           state->items.n == 2
                                                       ? state->items.v
                                                       : NULL);

    if (!v || v[0]->kind != TERN_PYTORCH_TEXT || v[0]->text.len != 3 ||
        memcmp(v[0]->text.at, "tid", 3) != 0 || v[1]->kind != TERN_PYTORCH_INT || v[1]->integer < 0)
        return tern_pytorch_pickle_fail(p, "its pickle refers to a tensor without a number");
    to->integer = v[1]->integer;
    return 0;
}

/* Attributes: those of a dict or tensor are of no use here. */
static int build(struct tern_pytorch_pickle *p)
{
    const struct tern_pytorch_value *state = pop(p);
    struct tern_pytorch_value *to = state ? top(p) : NULL;

    if (!to)
        return -1;
    if (to->kind == TERN_PYTORCH_REFERENCE)
        return build_reference(p, to, state);
    if (to->kind != TERN_PYTORCH_DICT && to->kind != TERN_PYTORCH_TENSOR &&
        to->kind != TERN_PYTORCH_OPAQUE)
        return tern_pytorch_pickle_fail(p, "its pickle gives attributes to a value that has none");
    return 0;
}

/* ---------------------------------------------------------------- the opcodes */

static int refuse_opcode(struct tern_pytorch_pickle *p, uint8_t op)
{
    static const struct {
        uint8_t op;
        const char *name;
    } names[] = {{'i', "INST"},    {'o', "OBJ"},
                 {0x82, "EXT1"},   {0x83, "EXT2"},
                 {0x84, "EXT4"},   {0x92, "NEWOBJ_EX"},
                 {'P', "PERSID"},  {0x97, "NEXT_BUFFER"},
                 {'I', "INT"},     {'L', "LONG"},
                 {'F', "FLOAT"},   {'S', "STRING"},
                 {'V', "UNICODE"}, {0x98, "READONLY_BUFFER"}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].op == op)
            return tern_pytorch_pickle_fail(
                p, "its pickle uses the opcode %s, which is not among those of torch.save",
                names[i].name);
    return tern_pytorch_pickle_fail(
        p, "its pickle uses the opcode 0x%02x, which is not among those of torch.save", op);
}

static int skip(struct tern_pytorch_pickle *p, unsigned n)
{
    return take(p, n) ? 0 : -1;
}

static int number(struct tern_pytorch_pickle *p, unsigned n)
{
    uint64_t v;

    if (take_number(p, n, &v) < 0)
        return -1;
    return push_integer(p, TERN_PYTORCH_INT, n == 4 ? (int32_t)v : (int64_t)v);
}

static int protocol(struct tern_pytorch_pickle *p)
{
    const uint8_t *v = take(p, 1);

    if (!v)
        return -1;
    return *v <= PROTOCOL_MAX ? 0
                              : tern_pytorch_pickle_fail(
                                    p, "its pickle has protocol %u (at most %d)", *v, PROTOCOL_MAX);
}

static int pop_mark(struct tern_pytorch_pickle *p)
{
    size_t n;

    return unmark(p, &n) ? 0 : -1;
}

/* Constants, numbers and texts. */
static int run_value(struct tern_pytorch_pickle *p, uint8_t op)
{
    switch (op) {
    case 'N': /* NONE */
        return push_integer(p, TERN_PYTORCH_NONE, 0);
    case 0x88: /* NEWTRUE */
    case 0x89: /* NEWFALSE */
        return push_integer(p, TERN_PYTORCH_BOOL, op == 0x88);
    case 'J': /* BININT */
        return number(p, 4);
    case 'K': /* BININT1 */
        return number(p, 1);
    case 'M': /* BININT2 */
        return number(p, 2);
    case 0x8a: /* LONG1 */
        return push_long(p, 1);
    case 0x8b: /* LONG4 */
        return push_long(p, 4);
    case 'G': /* BINFLOAT */
        return push_text(p, TERN_PYTORCH_OPAQUE, 8);
    case 'X': /* BINUNICODE */
    case 'T': /* BINSTRING, as Python 2 writes texts */
        return push_counted(p, TERN_PYTORCH_TEXT, 4);
    case 'U':  /* SHORT_BINSTRING */
    case 0x8c: /* SHORT_BINUNICODE */
        return push_counted(p, TERN_PYTORCH_TEXT, 1);
    case 0x8d: /* BINUNICODE8 */
        return push_counted(p, TERN_PYTORCH_TEXT, 8);
    case 'C': /* SHORT_BINBYTES */
        return push_counted(p, TERN_PYTORCH_OPAQUE, 1);
    case 'B': /* BINBYTES */
        return push_counted(p, TERN_PYTORCH_OPAQUE, 4);
    case 0x8e: /* BINBYTES8 */
    case 0x96: /* BYTEARRAY8 */
        return push_counted(p, TERN_PYTORCH_OPAQUE, 8);
    default:
        return refuse_opcode(p, op);
    }
}

static int run_container(struct tern_pytorch_pickle *p, uint8_t op)
{
    switch (op) {
    case ')': /* EMPTY_TUPLE */
        return push(p, tern_pytorch_pickle_new(p, TERN_PYTORCH_TUPLE));
    case ']': /* EMPTY_LIST */
        return push(p, tern_pytorch_pickle_new(p, TERN_PYTORCH_LIST));
    case '}': /* EMPTY_DICT */
        return push(p, tern_pytorch_pickle_new(p, TERN_PYTORCH_DICT));
    case 0x8f: /* EMPTY_SET */
        return push(p, tern_pytorch_pickle_new(p, TERN_PYTORCH_OPAQUE));
    case 't': /* TUPLE */
        return push_marked(p, TERN_PYTORCH_TUPLE);
    case 'l': /* LIST */
        return push_marked(p, TERN_PYTORCH_LIST);
    case 'd': /* DICT */
        return push_marked(p, TERN_PYTORCH_DICT);
    case 0x91: /* FROZENSET */
        return push_marked(p, TERN_PYTORCH_OPAQUE);
    case 0x85: /* TUPLE1 */
    case 0x86:
    case 0x87:
        return push_tuple(p, op - 0x84u);
    case 'a': /* APPEND */
        return put_into(p, false, 1, TERN_PYTORCH_LIST);
    case 'e': /* APPENDS */
        return put_into(p, true, 0, TERN_PYTORCH_LIST);
    case 's': /* SETITEM */
        return put_into(p, false, 2, TERN_PYTORCH_DICT);
    case 'u': /* SETITEMS */
        return put_into(p, true, 0, TERN_PYTORCH_DICT);
    case 0x90: /* ADDITEMS, of a set */
        return put_into(p, true, 0, TERN_PYTORCH_OPAQUE);
    default:
        return run_value(p, op);
    }
}

static int run(struct tern_pytorch_pickle *p, uint8_t op)
{
    switch (op) {
    case 0x80: /* PROTO */
        return protocol(p);
    case 0x95: /* FRAME */
        return skip(p, 8);
    case '(': /* MARK */
        return mark(p);
    case '0': /* POP */
        return pop(p) ? 0 : -1;
    case '1': /* POP_MARK */
        return pop_mark(p);
    case '2': /* DUP */
        return push(p, top(p));
    case 'q': /* BINPUT */
        return memo_put_numbered(p, 1);
    case 'r': /* LONG_BINPUT */
        return memo_put_numbered(p, 4);
    case 'h': /* BINGET */
        return memo_get(p, 1);
    case 'j': /* LONG_BINGET */
        return memo_get(p, 4);
    case 'c': /* GLOBAL */
        return global(p);
    case 0x93: /* STACK_GLOBAL */
        return stack_global(p);
    case 'R':  /* REDUCE */
    case 0x81: /* NEWOBJ */
        return call(p);
    case 'Q': /* BINPERSID */
        return persistent_id(p);
    case 'b': /* BUILD */
        return build(p);
    default:
        return run_container(p, op);
    }
}

struct tern_pytorch_value *tern_pytorch_pickle_load(struct tern_pytorch_pickle *p)
{
    const uint8_t *op;
    size_t memoized = 0;

    p->n_stack = p->n_marks = 0;
    p->memo = NULL;
    p->memo_room = 0;
    if (tern_pytorch_pickle_grow(p, &p->stack, sizeof *p->stack, 0, &p->stack_room) < 0)
        return NULL;
    while ((op = take(p, 1))) {
        if (*op == '.') { /* STOP */
            if (p->n_marks == 0 && p->n_stack == 1)
                return p->stack[0];
            tern_pytorch_pickle_fail(p, "its pickle ends with %zu values on its stack", p->n_stack);
            return NULL;
        }
        if (*op == 0x94 /* MEMOIZE */ ? memo_put(p, memoized++) < 0 : run(p, *op) < 0)
            return NULL;
    }
    return NULL;
}

/* tern ckpt show: the folder, each file in it, and the arrays, by headers alone. */
#include "cmd/ckpt/show.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/ckpt/local.h"
#include "core/convert/contents.h"
#include "core/convert/convert.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    COLUMNS = 80,
    SIZE = 8,     /* "1023 MiB" */
    ALIKE = 8,    /* of more files whose names differ in numbers alone not all are drawn */
    DRAWN = 2,    /* but the first ones, and the last */
    LEFT_MAX = 68 /* of the tree, so that a size stands beside it */
};

static struct {
    bool json;
    const char *key;
} show;

/* ------------------------------------------------------------------ the folder as a tree */

/* A line; `under` is the tree's part of a line below it. */
struct line {
    char *left, *under, *what;
    uint64_t bytes;
};

struct tree {
    const char *dir;
    const struct tern_convert_contents *in;
    struct line *lines;
    size_t n, room;
    struct tern_err *err; /* the first file that cannot be read */
    int rc;
};

static struct line *add_line(struct tree *t)
{
    if (t->n == t->room) {
        t->room = t->room ? 2 * t->room : 64;
        t->lines = realloc(t->lines, t->room * sizeof *t->lines);
        if (!t->lines)
            abort(); /* a tree of names, as tern_strdup */
    }
    t->lines[t->n] = (struct line){0};
    return &t->lines[t->n++];
}

static const char *base_of(const struct tern_convert_file *f)
{
    const char *slash = strrchr(f->name, '/');

    return slash ? slash + 1 : f->name;
}

/* Do the names differ in their numbers alone? */
static bool are_alike(const struct tern_convert_file *a, const struct tern_convert_file *b)
{
    const char *x = base_of(a), *y = base_of(b);

    while (*x && *y) {
        const bool digit = isdigit((unsigned char)*x);
        if (digit != (bool)isdigit((unsigned char)*y) || (!digit && *x != *y))
            return false;
        for (; digit && isdigit((unsigned char)x[1]); x++)
            ;
        for (; digit && isdigit((unsigned char)y[1]); y++)
            ;
        x++;
        y++;
    }
    return *x == *y && a->folder == b->folder && a->absent == b->absent;
}

/* The file behind `i` and all that lies in it. */
static size_t behind(const struct tree *t, size_t i)
{
    const unsigned depth = t->in->files[i].depth;

    do
        i++;
    while (i < t->in->n && t->in->files[i].depth > depth);
    return i;
}

/* The words for a file: what it is, and what its header tells. */
static char *words_of(struct tree *t, const struct tern_convert_file *f)
{
    struct tern_err why = {0};
    size_t n;

    if (f->absent)
        return tern_strf("%s: not on this node", f->what);
    const int rc = tern_convert_contents_count(t->dir, f, &n, &why);
    if (rc < 0 && t->rc == 0) {
        *t->err = why;
        t->rc = -1;
    }
    return rc < 0   ? tern_strf("%s: cannot be read", f->what)
           : rc > 0 ? tern_strf("%s: %zu array%s", f->what, n, n == 1 ? "" : "s")
                    : tern_strdup(f->what);
}

static void draw_level(struct tree *t, size_t at, size_t end, const char *prefix);

static void draw_file(struct tree *t, size_t i, bool last, const char *prefix)
{
    const struct tern_convert_file *f = &t->in->files[i];
    char *name = tern_strdup(base_of(f));
    struct line *l = add_line(t);

    tern_str_mask(name);
    l->left = tern_strf("%s%s %s%s", prefix, last ? "`--" : "|--", name, f->folder ? "/" : "");
    l->under = tern_strf("%s%s", prefix, last ? "    " : "|   ");
    l->bytes = f->bytes;
    l->what = words_of(t, f);
    char *deeper = tern_strdup(l->under); /* (lines may move) */
    free(name);
    draw_level(t, i + 1, behind(t, i), deeper);
    free(deeper);
}

/* Files and folders of a level whose names are alike. */
struct group {
    size_t first, n, drawn;
    uint64_t bytes; /* of those that are not drawn */
};

static void draw_many(struct tree *t, const struct group *g, const char *prefix)
{
    struct line *l = add_line(t);

    l->left = tern_strf("%s|-- ... %zu more", prefix, g->n - DRAWN - 1);
    l->under = tern_strf("%s|   ", prefix);
    l->what = tern_strdup("");
    l->bytes = g->bytes;
}

/* The group that file `i` belongs to: one of `groups` [*n], which it may add to. */
static struct group *group_of(const struct tree *t, struct group *groups, size_t *n, size_t i)
{
    for (size_t k = *n; k-- > 0;)
        if (are_alike(&t->in->files[groups[k].first], &t->in->files[i]))
            return &groups[k];
    groups[*n] = (struct group){.first = i};
    return &groups[(*n)++];
}

/* Files and folders [at, end) and all in them. */
static void draw_level(struct tree *t, size_t at, size_t end, const char *prefix)
{
    struct group *groups = at < end ? calloc(end - at, sizeof *groups) : NULL;
    size_t n = 0;

    if (at < end && !groups)
        abort(); /* as tern_strdup */
    for (size_t i = at; i < end; i = behind(t, i))
        group_of(t, groups, &n, i)->n++;
    for (size_t i = at, next; i < end; i = next) {
        struct group *g = group_of(t, groups, &n, i);
        next = behind(t, i);
        g->drawn++;
        if (g->n > ALIKE && g->drawn > DRAWN && g->drawn < g->n) {
            g->bytes += t->in->files[i].bytes;
            continue;
        }
        if (g->n > ALIKE && g->drawn == g->n)
            draw_many(t, g, prefix);
        draw_file(t, i, next >= end, prefix);
    }
    free(groups);
}

/* Columns of text that is safe for a terminal. */
static int columns_of(const char *s)
{
    int n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void print_line(const struct line *l, int width)
{
    char size[32] = "";
    int pad = width - columns_of(l->left);

    printf("%s", l->left);
    if (pad < 0) {
        pad = width - columns_of(l->under);
        printf("\n%s", l->under);
    }
    tern_str_bytes(size, sizeof size, l->bytes);
    printf("%*s  %*s", pad, "", SIZE, size);
    if (*l->what && width + 2 + SIZE + 2 + columns_of(l->what) > COLUMNS)
        printf("\n%s    %s\n", l->under, l->what);
    else
        printf("%s%s\n", *l->what ? "  " : "", l->what);
}

static int draw(const char *dir, const struct tern_convert_contents *in, struct tern_err *err)
{
    struct tree t = {.dir = dir, .in = in, .err = err};
    int width = 0;

    draw_level(&t, 0, in->n, "");
    for (size_t i = 0; i < t.n; i++)
        if (columns_of(t.lines[i].left) > width)
            width = columns_of(t.lines[i].left);
    width = width > LEFT_MAX ? LEFT_MAX : width;
    for (size_t i = 0; i < t.n; i++) {
        print_line(&t.lines[i], width);
        free(t.lines[i].left);
        free(t.lines[i].under);
        free(t.lines[i].what);
    }
    free(t.lines);
    return t.rc;
}

/* ------------------------------------------------------------------ arrays */

static void show_arrays(const struct tern_ckpt *c)
{
    struct tern_ckpt_info a;
    uint64_t bytes, total = 0;

    for (size_t i = 0; i < tern_ckpt_count(c); i++) {
        char shape[96] = "";
        tern_ckpt_info(c, i, &a);
        bytes = tern_ckpt_type_bytes(a.type);
        for (int d = 0; d < a.ndim; d++) {
            size_t n = strlen(shape);
            snprintf(shape + n, sizeof shape - n, "%s%" PRIu64, d ? "x" : "", a.shape[d]);
            bytes *= a.shape[d];
        }
        char *name = tern_strdup(a.name); /* as the file has it */
        tern_str_mask(name);
        printf("  %-5s %-16s %s\n", tern_ckpt_info_type(&a), a.ndim ? shape : "scalar", name);
        free(name);
        total += bytes;
    }
    char text[32];
    printf("%zu arrays, %s\n", tern_ckpt_count(c), tern_str_bytes(text, sizeof text, total));
}

/* ------------------------------------------------------------------ JSON */

static json_t *folder_json(const struct tern_convert_contents *in)
{
    json_t *all = json_array();

    for (size_t i = 0; i < in->n; i++) {
        const struct tern_convert_file *f = &in->files[i];
        json_t *j = json_pack("{s:o, s:I, s:s}", "name", tern_json_text(f->name), "bytes",
                              (json_int_t)f->bytes, "what", f->what);
        if (f->folder)
            json_object_set_new(j, "folder", json_true());
        if (f->absent)
            json_object_set_new(j, "absent", json_true());
        json_array_append_new(all, j);
    }
    return all;
}

/* As in a manifest, without the places of slices. */
static json_t *arrays_json(const struct tern_ckpt *c)
{
    json_t *all = json_object();
    struct tern_ckpt_info a;

    for (size_t i = 0; i < tern_ckpt_count(c); i++) {
        json_t *shape = json_array();
        tern_ckpt_info(c, i, &a);
        for (int d = 0; d < a.ndim; d++)
            json_array_append_new(shape, json_integer((json_int_t)a.shape[d]));
        json_object_set_new(
            all, a.name, json_pack("{s:s, s:o}", "dtype", tern_ckpt_info_type(&a), "shape", shape));
    }
    return all;
}

/* The manifest's members, or what stands for them, and the folder. */
static int print_json(const char *path, const struct tern_ckpt *c,
                      const struct tern_convert_contents *in, struct tern_err *err)
{
    json_t *manifest = c ? tern_ckpt_manifest(c) : NULL;
    json_t *j = manifest ? json_copy(manifest)
                         : json_pack("{s:o, s:o}", "path", tern_json_text(path), "arrays",
                                     c ? arrays_json(c) : json_object());

    json_object_set_new(j, "folder", folder_json(in));
    const int rc = tern_json_print(stdout, j, err);
    json_decref(j);
    return rc;
}

/* ------------------------------------------------------------------ the verb */

/* What was typed, open. */
struct shown {
    char *path;
    struct tern_ckpt
        *c; /* NULL: files of ranks, which are no arrays before they are put together */
    bool ours, ranks;
    size_t here, of; /* shards of a node's part; of 0: it is none */
};

static int open_shown(const char *typed, struct shown *s, struct tern_err *err)
{
    struct tern_err why = {0};

    if (tern_ckpt_resolve(typed, &s->path, err) < 0)
        return -1;
    s->ours = tern_ckpt_is_ours(s->path) || tern_str_starts(tern_fs_basename(s->path), "step-");
    if (s->ours) {
        const bool part = tern_ckpt_local_count(s->path, &s->here, &s->of);
        s->c = part ? tern_ckpt_local_open(s->path, err) : tern_ckpt_open(s->path, err);
        return s->c ? 0 : -1;
    }
    s->c = tern_convert_open(s->path, show.key, &why);
    if (s->c)
        return 0;
    const enum tern_convert_kind kind =
        show.key ? TERN_CONVERT_UNKNOWN : tern_convert_kind(s->path);
    s->ranks = kind == TERN_CONVERT_RANKS;
    if (kind == TERN_CONVERT_PEFT)
        s->c = tern_convert_open_adapters(s->path, err);
    else if (kind == TERN_CONVERT_UNKNOWN)
        *err = why;
    return s->c || s->ranks ? 0 : -1;
}

static int print_shown(const struct shown *s, const struct tern_convert_contents *in,
                       struct tern_err *err)
{
    printf("%s\n", s->path);
    int rc = draw(s->path, in, err);
    if (s->of)
        printf("one node's part of a local checkpoint: %zu of %zu shards\n", s->here, s->of);
    if (s->ours) {
        printf("step %" PRIu64 ", digest %s\nmeta ", tern_ckpt_step(s->c), tern_ckpt_digest(s->c));
        if (tern_json_print(stdout, tern_ckpt_meta(s->c), rc < 0 ? NULL : err) < 0)
            rc = -1;
    }
    if (s->c)
        show_arrays(s->c);
    else
        printf("files of ranks; tern ckpt export --from nxd puts them together\n");
    return rc;
}

static int show_run(int n_args, char **args, struct tern_err *err)
{
    struct tern_convert_contents in = {0};
    struct shown s = {0};
    struct stat st;
    int rc = open_shown(args[0], &s, err);

    (void)n_args;
    /* One file of PyTorch lies in no folder of a checkpoint. */
    if (rc == 0 && TERN_AGAIN(stat(s.path, &st)) == 0 && S_ISDIR(st.st_mode))
        rc = tern_convert_contents(s.path, s.ours ? s.c : NULL, &in, err);
    if (rc == 0)
        rc = show.json ? print_json(s.path, s.c, &in, err) : print_shown(&s, &in, err);
    tern_convert_contents_free(&in);
    tern_ckpt_close(s.c);
    free(s.path);
    return rc;
}

static const struct tern_opt show_opts[] = {
    {"json", 0, TERN_OPT_FLAG, .to.flag = &show.json,
     .help = "print JSON: the whole manifest of a checkpoint, and the folder's files"},
    {"key", 0, TERN_OPT_TEXT, "KEY", .to.text = &show.key,
     .help = "of a file of PyTorch: what lies below this key"},
    {0},
};

const struct tern_cmd ckpt_show_cmd = {
    .name = "show",
    .args = "PATH",
    .args_min = 1,
    .args_max = 1,
    .summary = "draw a checkpoint's folder, what each file is, and its arrays",
    .about =
        "PATH is a checkpoint, a node's part of one, DIR/latest or DIR/best. Or it is a model "
        "folder of Hugging Face (safetensors, pytorch_model.bin) or Meta (consolidated.00.pth). "
        "It may also be a folder of PEFT's adapters, or of NxD's or Optimum Neuron's ranks, or "
        "one file of PyTorch. Headers alone are read. Of many files whose names differ in "
        "numbers alone, the first and the last are drawn.",
    .examples = "  tern ckpt show checkpoints/latest\n"
                "  tern ckpt show --json llama-70b | jq '.folder[] | .name, .what'\n",
    .opts = show_opts,
    .run = show_run,
};

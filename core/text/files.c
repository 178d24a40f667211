/* Folders as files of text: which files are taken, in which order. */
#include "core/arrow/arrow.h"
#include "core/base/again.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/store/store.h"
#include "core/text/names.h"
#include "core/text/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    DEPTH_MAX = 64,      /* folders in folders: each keeps a descriptor open */
    LINKS_MAX = 4096,    /* to folders */
    FILES_MAX = 1 << 24, /* names of about 100 bytes each: below 2 GiB */
    NAMED = 5,           /* in a message; the others are counted */
};

struct found {
    char *path;
    dev_t dev;
    ino_t ino;
    enum tern_text_name name;
    bool given; /* as a file, not in a folder */
};

struct list {
    struct found *files;
    size_t n, cap;
};

struct folder {
    dev_t dev;
    ino_t ino;
};

/* Names for a message. */
struct names {
    struct tern_buf words;
    size_t n;
};

/* One folder of the arguments. */
struct walk {
    const char *top;
    struct list all;
    struct folder above[DEPTH_MAX];
    struct folder outer[DEPTH_MAX]; /* that hold the top */
    size_t n_outer;
    struct folder links[LINKS_MAX]; /* folders that links led to */
    size_t n_links;
    struct names left; /* left out */
    struct tern_err *err;
};

static int list_add(struct list *l, struct found f, struct tern_err *err)
{
    if (l->n == FILES_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "%s: more than %d files. Put the texts into larger files.", f.path,
                            FILES_MAX);
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 64;
        void *grown = realloc(l->files, cap * sizeof *l->files);
        if (!grown)
            return tern_err_sys(err, "names of files");
        l->files = grown;
        l->cap = cap;
    }
    l->files[l->n++] = f;
    return 0;
}

static void list_free(struct list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->files[i].path);
    free(l->files);
    *l = (struct list){0};
}

static void add_name(struct names *to, const char *path, const char *why)
{
    if (to->n++ < NAMED)
        tern_buf_printf(&to->words, "%s%s%s", to->words.len ? ", " : "", path, why);
}

static void end_names(struct names *to)
{
    if (to->n > NAMED)
        tern_buf_printf(&to->words, " and %zu more", to->n - NAMED);
}

static void leave_out(struct walk *w, const char *path, const char *why)
{
    path += strlen(w->top);
    add_name(&w->left, path + strspn(path, "/"), why);
}

/* ---- going through a folder ---- */

static int walk_folder(struct walk *w, int fd, const char *path, size_t depth);

static bool is_folder(const struct folder *f, const struct stat *st)
{
    return f->dev == st->st_dev && f->ino == st->st_ino;
}

/* Did a link lead to the folder before?  1, 0, -1 where there are too many. */
static int was_linked(struct walk *w, int folder, const char *entry, const char *path,
                      const struct stat *st)
{
    struct stat itself;

    if (TERN_AGAIN(fstatat(folder, entry, &itself, AT_SYMLINK_NOFOLLOW)) < 0 ||
        !S_ISLNK(itself.st_mode))
        return 0;
    for (size_t i = 0; i < w->n_links; i++)
        if (is_folder(&w->links[i], st))
            return 1;
    if (w->n_links == LINKS_MAX)
        return tern_err_set(w->err, TERN_USAGE, "%s: more than %d links to folders", path,
                            LINKS_MAX);
    w->links[w->n_links++] = (struct folder){st->st_dev, st->st_ino};
    return 0;
}

/* Takes `fd` over. */
static int enter(struct walk *w, int fd, const char *path, const struct stat *st, size_t depth)
{
    bool back = false;

    for (size_t i = 0; i < depth; i++)
        back = back || is_folder(&w->above[i], st);
    for (size_t i = 0; i < w->n_outer && depth > 0; i++)
        back = back || is_folder(&w->outer[i], st);
    if (back) {
        close(fd);
        leave_out(w, path, " (a link to a folder that it is in)");
        return 0;
    }
    if (depth == DEPTH_MAX) {
        close(fd);
        return tern_err_set(w->err, TERN_USAGE, "%s: more than %d folders deep. Name this folder.",
                            path, DEPTH_MAX);
    }
    w->above[depth] = (struct folder){st->st_dev, st->st_ino};
    return walk_folder(w, fd, path, depth + 1);
}

/* One entry of a folder.  Takes `path` over. */
static int take_entry(struct walk *w, int folder, const char *entry, char *path, size_t depth)
{
    struct stat st;
    int rc = 0;

    if (TERN_AGAIN(fstatat(folder, entry, &st, 0)) < 0) {
        rc = tern_err_sys(w->err, "%s: cannot open", path);
    } else if (S_ISDIR(st.st_mode)) {
        rc = was_linked(w, folder, entry, path, &st);
        int fd =
            rc != 0 ? -1 : TERN_AGAIN(openat(folder, entry, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (rc > 0)
            rc = 0; /* its files are in the list */
        else if (rc == 0)
            rc = fd < 0 ? tern_err_sys(w->err, "%s: cannot open", path)
                        : enter(w, fd, path, &st, depth);
    } else if (!S_ISREG(st.st_mode)) {
        leave_out(w, path, " (a device, pipe or socket)");
    } else {
        struct found f = {path, st.st_dev, st.st_ino, tern_text_name_in_folder(entry), false};
        rc = list_add(&w->all, f, w->err);
        path = rc == 0 ? NULL : path;
    }
    free(path);
    return rc;
}

/* Not `.` and `..`, nor hidden ones. */
static int is_seen(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* Not alphasort's order, which is the locale's. */
static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Takes `fd` over. */
static int walk_folder(struct walk *w, int fd, const char *path, size_t depth)
{
    const char *slash = path[strlen(path) - 1] == '/' ? "" : "/";
    struct dirent **entries = NULL;
    const int n = scandirat(fd, ".", &entries, is_seen, by_bytes);
    int rc = n < 0 ? tern_err_sys(w->err, "%s: cannot read the folder", path) : 0;

    for (int i = 0; i < n; i++) {
        const char *entry = entries[i]->d_name;
        if (rc == 0)
            rc = take_entry(w, fd, entry, tern_strf("%s%s%s", path, slash, entry), depth);
        free(entries[i]);
    }
    free(entries);
    close(fd);
    return rc;
}

/* ---- choosing ---- */

/* An error: the folder has no text. */
static int nothing(const struct walk *w, struct tern_err *err)
{
    size_t n[TERN_TEXT_NAME_OTHER + 1] = {0};

    for (size_t i = 0; i < w->all.n; i++)
        n[w->all.files[i].name]++;
    if (n[TERN_TEXT_NAME_PARQUET])
        return tern_err_set(err, TERN_USAGE,
                            "%s: its files are Parquet, which tern does not read. Write their "
                            "texts as JSONL: "
                            "datasets.Dataset.from_parquet('...').to_json('texts.jsonl').",
                            w->top);
    if (n[TERN_TEXT_NAME_ARROW])
        return tern_err_set(err, TERN_USAGE,
                            "%s: its files are Arrow. Leave --format away: the column of --field "
                            "is read.",
                            w->top);
    if (n[TERN_TEXT_NAME_JSON])
        return tern_err_set(err, TERN_USAGE,
                            "%s: no files of text but .json. Say --format jsonl if each line is "
                            "an object.",
                            w->top);
    return tern_err_set(err, TERN_USAGE, "%s: no files of text in this folder%s", w->top,
                        w->all.n ? ", by their names. Name them, or say --format." : "");
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct found *)a)->path, ((const struct found *)b)->path);
}

/* Move the files of a folder that are read to `to`. */
static int choose(struct walk *w, enum tern_text_format format, struct list *to)
{
    const size_t before = to->n;
    struct tern_text_names names = {0};

    if (w->all.n)
        qsort(w->all.files, w->all.n, sizeof *w->all.files, by_path);
    for (size_t i = 0; i < w->all.n; i++)
        names.has[w->all.files[i].name] = true;
    for (size_t i = 0; i < w->all.n; i++) {
        struct found *f = &w->all.files[i];
        if (!tern_text_name_taken(f->name, format, &names)) {
            leave_out(w, f->path, "");
            continue;
        }
        if (list_add(to, *f, w->err) < 0)
            return -1;
        f->path = NULL;
    }
    if (to->n == before)
        return nothing(w, w->err);
    end_names(&w->left);
    if (w->left.n)
        tern_info("%s: %zu files; left out: %s", w->top, to->n - before, w->left.words.data);
    return 0;
}

/* The folders that hold the one open as `fd`, up to the root. */
static void find_outer(struct walk *w, int fd)
{
    int at = TERN_AGAIN(openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    struct stat st;

    while (at >= 0 && w->n_outer < DEPTH_MAX && fstat(at, &st) == 0) {
        if (w->n_outer && is_folder(&w->outer[w->n_outer - 1], &st)) /* the root's is itself */
            break;
        w->outer[w->n_outer++] = (struct folder){st.st_dev, st.st_ino};
        int up = TERN_AGAIN(openat(at, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        close(at);
        at = up;
    }
    if (at >= 0)
        close(at);
}

static int add_folder(const char *path, enum tern_text_format format, struct list *to,
                      const struct stat *st, struct tern_err *err)
{
    struct walk *w = tern_alloc(1, sizeof *w, "a folder of texts", err);
    int fd, rc = -1;

    if (!w)
        return -1;
    w->top = path;
    w->err = err;
    fd = TERN_AGAIN(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0)
        tern_err_sys(err, "%s: cannot open", path);
    else
        find_outer(w, fd);
    if (fd >= 0 && enter(w, fd, path, st, 0) == 0)
        rc = choose(w, format, to);
    list_free(&w->all);
    tern_buf_free(&w->left.words);
    free(w);
    return rc;
}

/* A folder that `datasets` saved: its files, in the order of its rows. */
static int add_dataset(const char *path, struct list *to, struct tern_err *err)
{
    struct tern_arrow_dataset d;
    struct stat st;
    int rc = 0;

    if (tern_arrow_dataset_list(path, &d, err) < 0)
        return -1;
    if (d.n == 0)
        rc = tern_err_set(err, TERN_USAGE, "%s: a data set without files", path);
    for (size_t i = 0; i < d.n && rc == 0; i++) {
        struct found f = {NULL, 0, 0, TERN_TEXT_NAME_ARROW, false};
        if (TERN_AGAIN(stat(d.path[i], &st)) < 0) {
            rc = tern_err_sys(err, "%s: cannot open", d.path[i]);
            break;
        }
        f.dev = st.st_dev;
        f.ino = st.st_ino;
        f.path = tern_strdup(d.path[i]);
        if ((rc = list_add(to, f, err)) < 0)
            free(f.path);
    }
    tern_arrow_dataset_free(&d);
    return rc;
}

/* ---- files that are there twice ---- */

static int by_file(const void *a, const void *b)
{
    const struct found *x = *(struct found *const *)a, *y = *(struct found *const *)b;

    return x->dev != y->dev   ? (x->dev < y->dev ? -1 : 1)
           : x->ino != y->ino ? (x->ino < y->ino ? -1 : 1)
                              : (x > y) - (x < y);
}

/* A file that was found in folders is taken once; one that was given is taken each time. */
static int find_doubles(struct list *l, struct tern_err *err)
{
    struct found **order = tern_alloc(l->n, sizeof(struct found *), "names of files", err);
    struct names again = {0};
    const struct found *first = NULL;

    if (!order)
        return -1;
    for (size_t i = 0; i < l->n; i++)
        order[i] = &l->files[i];
    qsort(order, l->n, sizeof *order, by_file);
    for (size_t i = 0; i < l->n; i++) {
        struct found *f = order[i];
        if (!first || f->ino == 0 || f->dev != first->dev || f->ino != first->ino) {
            first = f;
        } else if (f->given) {
            tern_warn("%s: is named twice; its documents are read twice", f->path);
        } else {
            add_name(&again, f->path, "");
            free(f->path);
            f->path = NULL;
        }
    }
    end_names(&again);
    if (again.n)
        tern_warn("files that were found twice are read once: %s", again.words.data);
    tern_buf_free(&again.words);
    free(order);
    return 0;
}

/* The names of texts stand in messages and in the set, where a signature in a query may not. */
static int check_url(const char *path, struct tern_err *err)
{
    const char *query = tern_str_starts(path, "s3://") ? NULL : strchr(path, '?');

    if (!tern_store_is(path) || !query)
        return 0;
    return tern_err_set(err, TERN_USAGE,
                        "%.*s: a URL with a query, which may be secret, but would be written into "
                        "the set. Bring the file here by `tern fetch` first.",
                        (int)(query - path), path);
}

int tern_text_files_find(char *const *args, size_t n_args, enum tern_text_format format,
                         struct tern_text_files *ret_files, struct tern_err *err)
{
    struct list all = {0};
    struct stat st;
    size_t n = 0;
    int rc = 0;

    for (size_t i = 0; i < n_args && rc == 0; i++) {
        struct found f = {NULL, 0, 0, TERN_TEXT_NAME_OTHER, true};
        if ((rc = check_url(args[i], err)) < 0)
            break;
        if (strcmp(args[i], "-") != 0 && !tern_store_is(args[i])) {
            if (TERN_AGAIN(stat(args[i], &st)) < 0) {
                rc = tern_err_sys(err, "%s: cannot open", args[i]);
                if (err && errno == ENOENT)
                    err->code = TERN_USAGE;
                break;
            }
            if (S_ISDIR(st.st_mode)) {
                rc = format == TERN_TEXT_AUTO && tern_arrow_is_dataset(args[i])
                         ? add_dataset(args[i], &all, err)
                         : add_folder(args[i], format, &all, &st, err);
                continue;
            }
            f.dev = st.st_dev;
            f.ino = S_ISREG(st.st_mode) ? st.st_ino : 0;
        }
        f.path = tern_strdup(args[i]);
        if ((rc = list_add(&all, f, err)) < 0)
            free(f.path);
    }
    if (rc < 0 || find_doubles(&all, err) < 0)
        goto fail;
    char **paths = tern_alloc(all.n + 1, sizeof *paths, "names of files", err);
    if (!paths)
        goto fail;
    for (size_t i = 0; i < all.n; i++)
        if (all.files[i].path)
            paths[n++] = all.files[i].path;
    free(all.files);
    *ret_files = (struct tern_text_files){paths, n};
    return 0;
fail:
    list_free(&all);
    return -1;
}

void tern_text_files_free(struct tern_text_files *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->paths[i]);
    free(f->paths);
    *f = (struct tern_text_files){0};
}

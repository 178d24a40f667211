#include "core/base/tree_file.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/progress.h"
#include "core/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PIECE = 1 << 20, /* bytes read at a time: storage's stripes are no larger as a rule */
    LINK_MAX_BYTES = 4095,
};

/* ------------------------------------------------------------------ listing */

struct walk {
    const char *root;
    struct tern_tree *t;
    size_t cap;
    dev_t device;
    bool files_only; /* all else is passed over */
    struct tern_err *err;
};

static int64_t changed_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* JSON holds no other text. */
static bool is_utf8(const char *s)
{
    json_t *j = json_string(s);

    json_decref(j);
    return j != NULL;
}

static struct tern_tree_file *new_file(struct walk *w, const char *name)
{
    struct tern_tree *t = w->t;

    if (!is_utf8(name)) {
        tern_err_set(w->err, TERN_USAGE, "%s: holds a file whose name is not UTF-8", w->root);
        return NULL;
    }
    if (t->n == TERN_TREE_FILES) {
        tern_err_set(w->err, TERN_USAGE, "%s: holds more than %d files", w->root,
                     (int)TERN_TREE_FILES);
        return NULL;
    }
    if (t->n == w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 64;
        void *more = reallocarray(t->file, cap, sizeof *t->file);
        if (!more) {
            tern_err_set(w->err, TERN_TEMPFAIL, "%s: no memory for its list of files", w->root);
            return NULL;
        }
        t->file = more;
        w->cap = cap;
    }
    struct tern_tree_file *f = &t->file[t->n++];
    *f = (struct tern_tree_file){.name = tern_strdup(name)};
    return f;
}

/* Does a link at `name` with this target stay inside the folder?  Judged by its text: links are not
 * followed, so ".." counts folders of names. */
static bool stays_inside(const char *name, const char *target)
{
    int depth = 0;

    if (*target == '/' || !*target)
        return false;
    for (const char *s = name; (s = strchr(s, '/')); s++)
        depth++;
    for (const char *s = target; *s;) {
        size_t len = strcspn(s, "/");
        if (len == 2 && strncmp(s, "..", 2) == 0)
            depth--;
        else if (len && !(len == 1 && *s == '.'))
            depth++;
        if (depth < 0)
            return false;
        s += len + strspn(s + len, "/");
    }
    return true;
}

static int list_link(struct walk *w, int parent, const char *leaf, const char *name)
{
    char target[LINK_MAX_BYTES + 1];
    ssize_t n = TERN_AGAIN(readlinkat(parent, leaf, target, LINK_MAX_BYTES));

    if (n < 0)
        return tern_err_sys(w->err, "%s/%s: cannot read the link", w->root, name);
    target[n] = '\0';
    if (!is_utf8(target) || !stays_inside(name, target))
        return tern_err_set(w->err, TERN_USAGE,
                            "%s/%s: a link that leads out of the folder (to %s). A copy would lack "
                            "its target.",
                            w->root, name, target);
    struct tern_tree_file *f = new_file(w, name);
    if (!f)
        return -1;
    f->link = tern_strdup(target);
    return 0;
}

static int list_folder(struct walk *w, int fd, const char *name, int depth);

static int list_entry(struct walk *w, int parent, const char *leaf, const char *name, int depth)
{
    struct stat st;

    if (TERN_AGAIN(fstatat(parent, leaf, &st, AT_SYMLINK_NOFOLLOW)) < 0)
        return tern_err_set(w->err, TERN_TEMPFAIL, "%s/%s: vanished while the folder was listed",
                            w->root, name);
    if (w->files_only && !S_ISREG(st.st_mode) &&
        (!S_ISDIR(st.st_mode) || st.st_dev != w->device || depth == TERN_TREE_DEPTH))
        return 0;
    if (S_ISLNK(st.st_mode))
        return list_link(w, parent, leaf, name);
    if (S_ISREG(st.st_mode)) {
        struct tern_tree_file *f = new_file(w, name);
        if (!f)
            return -1;
        f->bytes = (uint64_t)st.st_size;
        f->mode = st.st_mode & 0777;
        f->changed_ns = changed_ns(&st);
        w->t->bytes += f->bytes;
        return 0;
    }
    if (!S_ISDIR(st.st_mode) || st.st_dev != w->device)
        return tern_err_set(w->err, TERN_USAGE, "%s/%s: is %s; only files can be kept", w->root,
                            name, S_ISDIR(st.st_mode) ? "a mount" : "a device, pipe or socket");
    if (depth == TERN_TREE_DEPTH)
        return tern_err_set(w->err, TERN_USAGE, "%s/%s: more than %d folders deep", w->root, name,
                            (int)TERN_TREE_DEPTH);
    int fd = TERN_AGAIN(openat(parent, leaf, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (fd < 0)
        return tern_err_sys(w->err, "%s/%s: cannot open folder", w->root, name);
    return list_folder(w, fd, name, depth + 1);
}

/* Closes `fd`. */
static int list_folder(struct walk *w, int fd, const char *name, int depth)
{
    DIR *d = fdopendir(fd);
    int rc = 0;

    if (!d) {
        tern_err_sys(w->err, "%s/%s: cannot open folder", w->root, name);
        close(fd);
        return -1;
    }
    for (struct dirent *e; rc == 0 && (errno = 0, e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        char *sub = *name ? tern_strf("%s/%s", name, e->d_name) : tern_strdup(e->d_name);
        rc = list_entry(w, dirfd(d), e->d_name, sub, depth);
        free(sub);
    }
    if (rc == 0 && errno)
        rc = tern_err_sys(w->err, "%s/%s: cannot read folder", w->root, name);
    closedir(d);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tern_tree_file *)a)->name,
                  ((const struct tern_tree_file *)b)->name);
}

static int list(const char *dir, bool files_only, struct tern_tree *out, struct tern_err *err)
{
    struct tern_tree t = {0};
    struct walk w = {.root = dir, .t = &t, .files_only = files_only, .err = err};
    struct stat st;
    int fd = TERN_AGAIN(open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));

    if (fd < 0 || fstat(fd, &st) < 0) {
        tern_err_sys(err, "%s: cannot open folder", dir);
        if (err && errno == ENOENT)
            err->code = TERN_USAGE;
        if (fd >= 0)
            close(fd);
        return -1;
    }
    w.device = st.st_dev;
    if (list_folder(&w, fd, "", 1) < 0) {
        tern_tree_free(&t);
        return -1;
    }
    if (t.n)
        qsort(t.file, t.n, sizeof *t.file, by_name);
    *out = t;
    return 0;
}

int tern_tree_list(const char *dir, struct tern_tree *out, struct tern_err *err)
{
    return list(dir, /* files_only= */ false, out, err);
}

int tern_tree_list_files(const char *dir, struct tern_tree *out, struct tern_err *err)
{
    return list(dir, /* files_only= */ true, out, err);
}

void tern_tree_free(struct tern_tree *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free(t->file[i].name);
        free(t->file[i].link);
    }
    free(t->file);
    *t = (struct tern_tree){0};
}

/* ------------------------------------------------------------------ digests */

static void tree_digest(const struct tern_tree *t, char hex[TERN_SHA256_HEX])
{
    struct tern_sha256 *s = tern_sha256_new();
    uint8_t digest[TERN_SHA256_BYTES];
    char line[160];

    for (size_t i = 0; i < t->n; i++) {
        const struct tern_tree_file *f = &t->file[i];
        int n = snprintf(line, sizeof line, "%s %s %" PRIu64 " ", f->sha256, f->link ? "l" : "f",
                         f->bytes);
        tern_sha256_add(s, line, (size_t)n);
        tern_sha256_add(s, f->name, strlen(f->name) + 1); /* no name has a NUL */
    }
    tern_sha256_end(s, digest);
    tern_hex(hex, digest, sizeof digest);
}

int tern_tree_open_file(const char *path, struct stat *st, struct tern_err *err)
{
    int fd = TERN_AGAIN(open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));

    if (fd < 0)
        return tern_err_sys(err, "%s: cannot open", path);
    if (fstat(fd, st) == 0 && S_ISREG(st->st_mode))
        return fd;
    close(fd);
    return tern_err_set(err, TERN_TEMPFAIL, "%s: is not a regular file any more", path);
}

int tern_tree_stream(int fd, const char *path, int to, const char *to_path,
                     char hex[TERN_SHA256_HEX], struct tern_err *err)
{
    uint8_t digest[TERN_SHA256_BYTES];
    char *piece = tern_alloc(PIECE, 1, "a piece of a file", err);
    struct tern_sha256 *s = piece ? tern_sha256_new() : NULL;
    uint64_t at = 0;
    ssize_t n = -1;

    while (s && (n = read(fd, piece, PIECE)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            tern_err_sys(err, "%s: cannot read", path);
            break;
        }
        tern_sha256_add(s, piece, (size_t)n);
        tern_progress_add((uint64_t)n);
        if (to >= 0 && tern_fs_write_at(to, at, piece, (size_t)n, to_path, err) < 0) {
            n = -1;
            break;
        }
        at += (uint64_t)n;
    }
    if (s)
        tern_sha256_end(s, digest);
    free(piece);
    if (n != 0)
        return -1;
    tern_hex(hex, digest, sizeof digest);
    return 0;
}

/* The digest of one file or link as it is in `dir`; a file's size is compared with the list's. */
static int digest_once(const char *dir, const struct tern_tree_file *f, char hex[TERN_SHA256_HEX],
                       struct stat *after, struct tern_err *err)
{
    uint8_t digest[TERN_SHA256_BYTES];
    struct stat st;

    if (f->link) {
        tern_sha256(f->link, strlen(f->link), digest);
        tern_hex(hex, digest, sizeof digest);
        return 0;
    }
    char *path = tern_strf("%s/%s", dir, f->name);
    int fd = tern_tree_open_file(path, &st, err);
    int rc = fd < 0 ? -1 : tern_tree_stream(fd, path, -1, NULL, hex, err);
    if (rc == 0 && after && fstat(fd, after) < 0)
        rc = tern_err_sys(err, "%s: cannot stat", path);
    if (fd >= 0) {
        /* Read once: other files deserve the page cache more. */
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    free(path);
    return rc;
}

static int digest_one(const char *dir, const struct tern_tree_file *f, char hex[TERN_SHA256_HEX],
                      struct stat *after, struct tern_err *err)
{
    struct tern_again a = {0};
    int rc;

    do {
        errno = 0;
        rc = digest_once(dir, f, hex, after, err);
    } while (rc < 0 && tern_again_stale(&a));
    return rc;
}

int tern_tree_take(const char *dir, struct tern_tree *out, struct tern_err *err)
{
    struct tern_tree t = {0}, again = {0};
    struct stat st;

    if (tern_tree_list(dir, &t, err) < 0)
        return -1;
    for (size_t i = 0; i < t.n; i++) {
        struct tern_tree_file *f = &t.file[i];
        if (digest_one(dir, f, f->sha256, &st, err) < 0)
            goto fail;
        if (!f->link && ((uint64_t)st.st_size != f->bytes || changed_ns(&st) != f->changed_ns)) {
            tern_err_set(err, TERN_TEMPFAIL, "%s/%s: changed while it was read", dir, f->name);
            goto fail;
        }
    }
    /* No file came, went or changed meanwhile. */
    if (tern_tree_list(dir, &again, err) < 0)
        goto fail;
    bool same = again.n == t.n;
    for (size_t i = 0; same && i < t.n; i++)
        same = strcmp(t.file[i].name, again.file[i].name) == 0 &&
               t.file[i].changed_ns == again.file[i].changed_ns &&
               t.file[i].bytes == again.file[i].bytes;
    tern_tree_free(&again);
    if (!same) {
        tern_err_set(err, TERN_TEMPFAIL, "%s: changed while it was read", dir);
        goto fail;
    }
    tree_digest(&t, t.digest);
    *out = t;
    return 0;
fail:
    tern_tree_free(&t);
    return -1;
}

int tern_tree_verify(const char *dir, const struct tern_tree *t, bool full, struct tern_err *err)
{
    struct tern_tree now = {0};
    char hex[TERN_SHA256_HEX];
    int rc = 0;

    if (tern_tree_list(dir, &now, err) < 0)
        return -1;
    for (size_t i = 0; full && i < t->n; i++)
        tern_progress_expect(t->file[i].bytes);
    for (size_t i = 0, j = 0; rc == 0 && (i < t->n || j < now.n);) {
        const struct tern_tree_file *want = i < t->n ? &t->file[i] : NULL;
        const struct tern_tree_file *have = j < now.n ? &now.file[j] : NULL;
        int order = !want ? 1 : !have ? -1 : strcmp(want->name, have->name);
        if (order < 0)
            rc = tern_err_set(err, TERN_FAILED, "%s/%s: is missing", dir, want->name);
        else if (order > 0)
            rc = tern_err_set(err, TERN_FAILED, "%s/%s: was not there when it was verified", dir,
                              have->name);
        else if (!want->link != !have->link || (want->link && strcmp(want->link, have->link) != 0))
            rc = tern_err_set(err, TERN_FAILED, "%s/%s: is another link or file now", dir,
                              want->name);
        else if (want->bytes != have->bytes)
            rc = tern_err_set(err, TERN_FAILED,
                              "%s/%s: has %" PRIu64 " bytes; %" PRIu64 " were verified", dir,
                              want->name, have->bytes, want->bytes);
        else if (full && !want->link) {
            rc = digest_one(dir, have, hex, NULL, err);
            if (rc == 0 && strcmp(hex, want->sha256) != 0)
                rc = tern_err_set(err, TERN_FAILED,
                                  "%s/%s: its content has changed (SHA-256 %.12s, verified was "
                                  "%.12s)",
                                  dir, want->name, hex, want->sha256);
        }
        i++;
        j++;
    }
    tern_tree_free(&now);
    return rc;
}

/* ------------------------------------------------------------------ JSON */

json_t *tern_tree_json(const struct tern_tree *t)
{
    json_t *files = json_array();

    for (size_t i = 0; i < t->n; i++) {
        const struct tern_tree_file *f = &t->file[i];
        json_t *j = json_pack("{s:s}", "name", f->name);
        if (f->link) {
            json_object_set_new(j, "link", json_string(f->link));
        } else {
            json_object_set_new(j, "bytes", json_integer((json_int_t)f->bytes));
            json_object_set_new(j, "mode", json_integer(f->mode));
        }
        json_object_set_new(j, "sha256", json_string(f->sha256));
        json_array_append_new(files, j);
    }
    return json_pack("{s:I,s:s,s:o}", "bytes", (json_int_t)t->bytes, "digest", t->digest, "files",
                     files);
}

/* A relative name without empty, "." and ".." parts. */
static bool name_is_plain(const char *s)
{
    if (!s || !*s)
        return false;
    for (;;) {
        size_t len = strcspn(s, "/");
        if (!len || (len == 1 && s[0] == '.') || (len == 2 && s[0] == '.' && s[1] == '.'))
            return false;
        if (!s[len])
            return true;
        s += len + 1;
    }
}

static bool is_hex(const char *s)
{
    return s && strlen(s) == TERN_SHA256_HEX - 1 &&
           strspn(s, "0123456789abcdef") == TERN_SHA256_HEX - 1;
}

static int parse_file(const json_t *j, struct walk *w)
{
    const char *name = json_string_value(json_object_get(j, "name"));
    const char *link = json_string_value(json_object_get(j, "link"));
    const char *sha = json_string_value(json_object_get(j, "sha256"));
    const json_t *bytes = json_object_get(j, "bytes"), *mode = json_object_get(j, "mode");
    const struct tern_tree *t = w->t;

    if (!name_is_plain(name) || !is_hex(sha) || (link && !stays_inside(name, link)) ||
        (!link &&
         (!json_is_integer(bytes) || json_integer_value(bytes) < 0 || !json_is_integer(mode))) ||
        (t->n && strcmp(t->file[t->n - 1].name, name) >= 0))
        return tern_err_set(w->err, TERN_USAGE, "%s: entry %zu of its files makes no sense",
                            w->root, t->n);
    struct tern_tree_file *f = new_file(w, name);
    if (!f)
        return -1;
    if (link) {
        f->link = tern_strdup(link);
    } else {
        f->bytes = (uint64_t)json_integer_value(bytes);
        f->mode = (unsigned)json_integer_value(mode) & 0777;
        w->t->bytes += f->bytes;
    }
    memcpy(f->sha256, sha, sizeof f->sha256);
    return 0;
}

int tern_tree_parse(const json_t *j, const char *what, struct tern_tree *out, struct tern_err *err)
{
    const json_t *files = json_object_get(j, "files");
    const char *digest = json_string_value(json_object_get(j, "digest"));
    struct tern_tree t = {0};
    struct walk w = {.root = what, .t = &t, .err = err};

    if (!json_is_array(files) || !is_hex(digest))
        return tern_err_set(err, TERN_USAGE, "%s: is not a list of files with digests", what);
    for (size_t i = 0; i < json_array_size(files); i++)
        if (parse_file(json_array_get(files, i), &w) < 0)
            goto fail;
    tree_digest(&t, t.digest);
    if (strcmp(t.digest, digest) != 0) {
        tern_err_set(err, TERN_USAGE,
                     "%s: its digest is not that of its list: the list was changed", what);
        goto fail;
    }
    *out = t;
    return 0;
fail:
    tern_tree_free(&t);
    return -1;
}

#include "core/retain/bucket.h"

#include "core/base/progress.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/base/tree_file.h"
#include "core/ckpt/ckpt.h"
#include "core/retain/look.h"
#include "core/store/push.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* 300 bytes a file, of TERN_TREE_FILES. */
enum { LIST_MAX = 300 << 20 };

struct tern_retain_bucket {
    struct tern_store *store;
    char *run_id;
};

struct tern_retain_bucket *tern_retain_bucket_open(const char *url, const char *run_id,
                                                   const struct tern_store_how *how,
                                                   struct tern_err *err)
{
    struct tern_retain_bucket *b = tern_alloc(1, sizeof *b, "a bucket", err);

    if (!b)
        return NULL;
    b->run_id = tern_strdup(run_id);
    b->store = tern_store_open(url, how, err);
    if (b->store)
        return b;
    tern_retain_bucket_close(b);
    return NULL;
}

void tern_retain_bucket_close(struct tern_retain_bucket *b)
{
    if (!b)
        return;
    tern_store_close(b->store);
    free(b->run_id);
    free(b);
}

/* ------------------------------------------------------------------ names */

char *tern_retain_bucket_seal(const char *name, bool own)
{
    return own ? tern_strf("%s/" TERN_CKPT_MANIFEST, name) : tern_strf("%s.files.json", name);
}

/* The object that is there while the run copies `name`. */
static char *mark_of(const struct tern_retain_bucket *b, const char *name)
{
    const char *leaf = tern_fs_basename(name);

    return tern_strf("%.*s.%s.%s." TERN_RETAIN_COPY_ONLINE, (int)(leaf - name), name, leaf,
                     b->run_id);
}

int tern_retain_bucket_sealed(struct tern_retain_bucket *b, const char *name, bool own,
                              char **ret_text, size_t *ret_len, struct tern_err *err)
{
    char *seal = tern_retain_bucket_seal(name, own), *text = NULL;
    struct tern_store_head head;
    size_t len = 0;
    int rc = tern_store_head(b->store, seal, &head, err);

    if (rc > 0)
        rc = tern_store_text(b->store, seal, own ? TERN_CKPT_MANIFEST_MAX : LIST_MAX, &text, &len,
                             /* ret_next= */ NULL, err);
    free(seal);
    if (rc < 0)
        return -1;
    *ret_text = text;
    *ret_len = len;
    return 0;
}

static char *bad_of(const char *name)
{
    return tern_strf("%s/" TERN_CKPT_MANIFEST ".bad", name);
}

int tern_retain_bucket_mark_bad(struct tern_retain_bucket *b, const char *name, const char *text,
                                size_t len, struct tern_err *err)
{
    char *bad = bad_of(name), *seal = tern_retain_bucket_seal(name, /* own= */ true);
    int rc = tern_store_put(b->store, bad, text, len, /* ret_etag= */ NULL, err);

    if (rc == 0)
        rc = tern_store_delete(b->store, seal, err);
    free(bad);
    free(seal);
    return rc;
}

/* ------------------------------------------------------------------ what is there */

struct names {
    char **v;
    size_t n;
    const char *end; /* of those that are wanted; NULL: all */
};

static int add_name(void *ctx, const struct tern_store_entry *e)
{
    struct names *l = ctx;

    if (l->end && !tern_str_ends(e->name, l->end))
        return 0;
    char **more = reallocarray(l->v, l->n + 1, sizeof *more);
    if (!more)
        return -1;
    l->v = more;
    l->v[l->n++] = tern_strdup(e->name);
    return 0;
}

static void names_free(struct names *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->v[i]);
    free(l->v);
}

struct whole {
    const struct tern_ckpt *c;
    size_t n_name, right;
};

static int count_part(void *ctx, const struct tern_store_entry *e)
{
    struct whole *w = ctx;
    uint64_t bytes;

    for (size_t i = 0; i < tern_ckpt_parts(w->c); i++)
        if (strcmp(tern_ckpt_part(w->c, i, &bytes), e->name + w->n_name) == 0)
            w->right += bytes == e->bytes;
    return 0;
}

int tern_retain_bucket_is_whole(struct tern_retain_bucket *b, const char *name,
                                const struct tern_ckpt *c, struct tern_err *err)
{
    char *under = tern_strf("%s/", name);
    struct whole w = {.c = c, .n_name = strlen(under)};
    const int rc = tern_store_list(b->store, under, count_part, &w, err);

    free(under);
    return rc < 0 ? -1 : w.right == tern_ckpt_parts(c);
}

struct there {
    const struct tern_retain_bucket_copy *c;
    size_t n_name;  /* bytes of "NAME/" */
    size_t right;   /* files of the copy that are there with their sizes */
    size_t objects; /* all that is there */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tern_tree_file *)a)->name,
                  ((const struct tern_tree_file *)b)->name);
}

static const struct tern_tree_file *find_file(const struct tern_retain_bucket_copy *c,
                                              const char *name)
{
    const struct tern_tree *files = c->files;
    const struct tern_tree_file key = {.name = (char *)name};

    return files->n ? bsearch(&key, files->file, files->n, sizeof key, by_name) : NULL;
}

static int count_one(void *ctx, const struct tern_store_entry *e)
{
    struct there *t = ctx;
    const struct tern_tree_file *f = find_file(t->c, e->name + t->n_name);

    t->objects++;
    t->right += f && !f->link && f->bytes == e->bytes;
    return 0;
}

static int look_there(struct tern_retain_bucket *b, const struct tern_retain_bucket_copy *c,
                      struct there *out, struct tern_err *err)
{
    char *under = tern_strf("%s/", c->name);

    *out = (struct there){.c = c, .n_name = strlen(under)};
    const int rc = tern_store_list(b->store, under, count_one, out, err);
    free(under);
    return rc;
}

/* The files that must be there, the manifest of one of tern's own among them. */
static size_t wanted(const struct tern_retain_bucket_copy *c)
{
    size_t n = 0;

    for (size_t i = 0; i < c->files->n; i++)
        n += !c->files->file[i].link;
    return n;
}

int tern_retain_bucket_has_all(struct tern_retain_bucket *b,
                               const struct tern_retain_bucket_copy *c, struct tern_err *err)
{
    struct there t;

    return look_there(b, c, &t, err) < 0 ? -1 : t.right == wanted(c);
}

/* ------------------------------------------------------------------ copying */

static bool is_seal(const struct tern_retain_bucket_copy *c, const struct tern_tree_file *f)
{
    return c->own && strcmp(f->name, TERN_CKPT_MANIFEST) == 0;
}

/* Is the open file still the one of the list? */
static int check_file(const struct tern_tree_file *f, int fd, const char *path,
                      const struct stat *st, struct tern_err *err)
{
    const int64_t changed = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    char hex[TERN_SHA256_HEX];

    if ((uint64_t)st->st_size != f->bytes || (f->changed_ns && f->changed_ns != changed))
        return tern_err_set(err, TERN_TEMPFAIL, "%s: has changed since it was verified", path);
    if (!*f->sha256)
        return 0;
    if (tern_tree_stream(fd, path, /* to= */ -1, NULL, hex, err) < 0)
        return -1;
    return strcmp(hex, f->sha256) == 0
               ? 0
               : tern_err_set(err, TERN_TEMPFAIL, "%s: has changed since it was verified", path);
}

/* `done` of a file so far; *before: what was counted of it. */
static void count_sent(void *before, uint64_t done, uint64_t all)
{
    uint64_t *was = before;

    (void)all;
    tern_progress_add(done > *was ? done - *was : 0);
    *was = done;
}

static int send_file(struct tern_retain_bucket *b, const struct tern_retain_bucket_copy *c,
                     const struct tern_tree_file *f, bool keep_same, struct tern_err *err)
{
    uint64_t sent = 0;
    const struct tern_store_push_how how = {
        .keep_same = keep_same, .progress = count_sent, .ctx = &sent};
    char *path = tern_strf("%s/%s", c->from, f->name), *to = tern_strf("%s/%s", c->name, f->name);
    struct tern_store_pushed pushed;
    struct stat st;
    const int fd = tern_tree_open_file(path, &st, err);
    int rc = fd < 0 ? -1 : check_file(f, fd, path, &st, err);

    if (rc == 0)
        rc = tern_store_push(b->store, to, fd, path, &how, &pushed, err);
    if (rc == 0)
        count_sent(&sent, f->bytes, f->bytes); /* also of one that was there */
    if (fd >= 0)
        close(fd);
    free(path);
    free(to);
    return rc;
}

/* With this object the copy counts. */
static int seal_it(struct tern_retain_bucket *b, const struct tern_retain_bucket_copy *c,
                   struct tern_err *err)
{
    char *seal = tern_retain_bucket_seal(c->name, c->own), *text = NULL;
    json_t *list = NULL;
    int rc = -1;

    if (c->own) {
        for (size_t i = 0; i < c->files->n; i++)
            if (is_seal(c, &c->files->file[i]))
                rc = send_file(b, c, &c->files->file[i], /* keep_same= */ true, err);
    } else {
        list = tern_tree_json(c->files);
        text = json_dumps(list, JSON_COMPACT);
        rc = text
                 ? tern_store_put(b->store, seal, text, strlen(text), /* ret_etag= */ NULL, err)
                 : tern_err_set(err, TERN_TEMPFAIL, "%s: no memory for its list of files", c->from);
    }
    json_decref(list);
    free(text);
    free(seal);
    return rc;
}

struct others {
    const char *mine; /* the run's own mark */
    char *theirs;     /* another run's; malloc'ed, or NULL */
};

static int find_theirs(void *ctx, const struct tern_store_entry *e)
{
    struct others *o = ctx;

    if (!tern_str_ends(e->name, "." TERN_RETAIN_COPY_ONLINE) || strcmp(e->name, o->mine) == 0 ||
        strlen(e->name) != strlen(o->mine))
        return 0;
    o->theirs = tern_strdup(e->name);
    return 1;
}

/* 1: another run copies under the name of the mark `mine`, and *ret_mark (malloc'ed) is its mark;
 * 0; -1. */
static int has_other_mark(struct tern_retain_bucket *b, const char *mine, char **ret_mark,
                          struct tern_err *err)
{
    struct others o = {.mine = mine};
    char *under = tern_strf(
        "%.*s", (int)(strlen(mine) - strlen(b->run_id) - strlen("." TERN_RETAIN_COPY_ONLINE)),
        mine);
    const int rc = tern_store_list(b->store, under, find_theirs, &o, err);

    free(under);
    *ret_mark = o.theirs;
    return rc < 0 ? -1 : o.theirs != NULL;
}

static int no_copy(const struct tern_retain_bucket *b, const struct tern_retain_bucket_copy *c,
                   size_t objects, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE,
                        "%s/%s: %zu object%s already and no copy of this run. Move %s away or give "
                        "another checkpoint.mirror.",
                        tern_store_url(b->store), c->name, objects,
                        objects == 1 ? " is there" : "s are there", objects == 1 ? "it" : "them");
}

/* With the run's mark in place: is the name free of other runs?  Of two runs that put their marks
 * at the same time, at least one sees the other's, as lists of S3 are consistent.  A run that has
 * finished since `c` was looked at has left its objects. */
static int check_others(struct tern_retain_bucket *b, const struct tern_retain_bucket_copy *c,
                        const char *mine, bool empty, struct tern_err *err)
{
    char *theirs = NULL;
    struct there t = {0};
    int rc = has_other_mark(b, mine, &theirs, err);

    if (rc > 0)
        rc = tern_err_set(err, TERN_USAGE,
                          "%s/%s: another run copies a checkpoint of that name there, or was "
                          "interrupted: its mark is %s. Give each run a checkpoint.mirror of its "
                          "own, or remove that object and those of the name if no run copies.",
                          tern_store_url(b->store), c->name, theirs);
    if (rc == 0 && empty)
        rc = look_there(b, c, &t, err);
    if (rc == 0 && t.objects)
        rc = no_copy(b, c, t.objects, err);
    free(theirs);
    return rc;
}

/* Put the run's mark, unless it is there.  An error where objects are there without it, or another
 * run's mark. */
static int mark(struct tern_retain_bucket *b, const struct tern_retain_bucket_copy *c,
                const struct there *t, bool was_bad, const char *name, struct tern_err *err)
{
    struct tern_store_head head;
    const int had = tern_store_head(b->store, name, &head, err);

    if (had < 0)
        return -1;
    if (had > 0)
        return check_others(b, c, name, /* empty= */ false, err);
    const bool empty = !was_bad && c->kind == TERN_RETAIN_BUCKET_NEW;
    if (empty && t->objects)
        return no_copy(b, c, t->objects, err);
    int rc =
        tern_store_put(b->store, name, b->run_id, strlen(b->run_id), /* ret_etag= */ NULL, err);
    if (rc == 0 && check_others(b, c, name, empty, err) < 0) {
        tern_store_delete(b->store, name, NULL); /* it announces nothing */
        rc = -1;
    }
    return rc;
}

struct stale {
    const struct tern_retain_bucket_copy *c;
    size_t n_name; /* bytes of "NAME/" */
    struct names found;
};

static int add_stale(void *ctx, const struct tern_store_entry *e)
{
    struct stale *s = ctx;
    const char *leaf = e->name + s->n_name;

    /* The mark of damage goes when the new copy is complete. */
    return find_file(s->c, leaf) || strcmp(leaf, TERN_CKPT_MANIFEST ".bad") == 0
               ? 0
               : add_name(&s->found, e);
}

/* Files of the copy that gives way, or of a half one, which the new copy lacks. */
static int remove_stale(struct tern_retain_bucket *b, const struct tern_retain_bucket_copy *c,
                        struct tern_err *err)
{
    char *under = tern_strf("%s/", c->name);
    struct stale s = {.c = c, .n_name = strlen(under)};
    int rc = tern_store_list(b->store, under, add_stale, &s, err);

    for (size_t i = 0; i < s.found.n && rc == 0; i++)
        rc = tern_store_delete(b->store, s.found.v[i], err);
    names_free(&s.found);
    free(under);
    return rc < 0 ? -1 : 0;
}

/* `keep_same`: an object with the file's ETag stays.  Of a copy that was found damaged none does:
 * its server may list the ETag of bytes that it has no more. */
static int send_all(struct tern_retain_bucket *b, const struct tern_retain_bucket_copy *c,
                    bool keep_same, struct tern_err *err)
{
    struct there t;
    size_t seals = 0;

    for (size_t i = 0; i < c->files->n; i++) /* its digest, if that is looked at, and its bytes */
        tern_progress_expect(c->files->file[i].bytes * (*c->files->file[i].sha256 ? 2 : 1));
    for (size_t i = 0; i < c->files->n; i++) {
        const struct tern_tree_file *f = &c->files->file[i];
        seals += is_seal(c, f);
        if (!is_seal(c, f) && !f->link && send_file(b, c, f, keep_same, err) < 0)
            return -1;
    }
    if (c->kind != TERN_RETAIN_BUCKET_SAME && remove_stale(b, c, err) < 0)
        return -1;
    if (look_there(b, c, &t, err) < 0)
        return -1;
    if (t.right >= wanted(c) - seals)
        return seal_it(b, c, err);
    return tern_err_set(err, TERN_TEMPFAIL,
                        "%s/%s: of %zu files that were sent, only %zu are there with their sizes",
                        tern_store_url(b->store), c->name, wanted(c) - seals, t.right);
}

int tern_retain_bucket_copy(struct tern_retain_bucket *b, const struct tern_retain_bucket_copy *c,
                            struct tern_err *err)
{
    char *name = mark_of(b, c->name), *seal = tern_retain_bucket_seal(c->name, c->own);
    char *bad = bad_of(c->name);
    struct tern_store_head head;
    struct there t;
    int was_bad = 0, rc = look_there(b, c, &t, err);

    if (rc == 0 && c->kind == TERN_RETAIN_BUCKET_SAME && t.right == wanted(c))
        rc = 1;
    if (rc == 0 && c->own && (was_bad = tern_store_head(b->store, bad, &head, err)) < 0)
        rc = -1;
    if (rc == 0)
        rc = mark(b, c, &t, was_bad, name, err);
    if (rc == 0 && c->kind == TERN_RETAIN_BUCKET_REPLACE)
        rc = tern_store_delete(b->store, seal, err);
    if (rc == 0)
        rc = send_all(b, c, /* keep_same= */ !was_bad, err);
    if (rc == 0 && c->own)
        rc = tern_store_delete(b->store, bad, err);
    if (rc == 0)
        rc = tern_store_delete(b->store, name, err);
    free(bad);
    free(name);
    free(seal);
    return rc;
}

/* ------------------------------------------------------------------ the whole bucket */

static int stop_at_first(void *ctx, const struct tern_store_entry *e)
{
    (void)ctx, (void)e;
    return 1;
}

int tern_retain_bucket_probe(const char *url, struct tern_err *err)
{
    const struct tern_store_how how = {.deadline_s = 15};

    return tern_retain_bucket_probe_by(url, &how, err);
}

int tern_retain_bucket_probe_by(const char *url, const struct tern_store_how *how,
                                struct tern_err *err)
{
    struct tern_store *s = tern_store_open(url, how, err);
    const int rc = s ? tern_store_list(s, "", stop_at_first, NULL, err) : -1;

    tern_store_close(s);
    return rc < 0 ? -1 : 0;
}

static int remove_half(struct tern_retain_bucket *b, const char *under, const struct names *objects,
                       struct tern_err *err)
{
    int rc = 0;

    for (size_t i = 0; i < objects->n && rc == 0; i++)
        rc = tern_store_delete(b->store, objects->v[i], err);
    return rc == 0 ? tern_store_upload_clear(b->store, under, err) : -1;
}

/* Remove the half copy `name`, which the run's mark `mine` announces; a complete one stays.  1: all
 * that two runs' marks announce stays, too. */
static int sweep_one(struct tern_retain_bucket *b, const char *name, const char *mine,
                     struct tern_err *err)
{
    char *under = tern_strf("%s/", name), *theirs = NULL;
    char *seals[] = {tern_retain_bucket_seal(name, true), tern_retain_bucket_seal(name, false)};
    struct tern_store_head head;
    struct names objects = {0};
    int there = tern_store_head(b->store, seals[0], &head, err);

    if (there == 0)
        there = tern_store_head(b->store, seals[1], &head, err);
    int rc = there < 0 ? -1 : 0;
    if (there == 0)
        rc = tern_store_list(b->store, under, add_name, &objects, err);
    if (there == 0 && rc == 0)
        rc = has_other_mark(b, mine, &theirs, err);
    if (rc > 0)
        rc = objects.n > 0; /* without any, the mark may go */
    else if (there == 0 && rc == 0)
        rc = remove_half(b, under, &objects, err);
    names_free(&objects);
    free(theirs);
    free(seals[0]);
    free(seals[1]);
    free(under);
    return rc;
}

int tern_retain_bucket_sweep(struct tern_retain_bucket *b, struct tern_err *err)
{
    char *end = tern_strf(".%s." TERN_RETAIN_COPY_ONLINE, b->run_id);
    struct names marks = {.end = end};
    int rc = tern_store_list(b->store, ".", add_name, &marks, err);

    for (size_t i = 0; i < marks.n && rc >= 0; i++) {
        const char *mine = marks.v[i];
        char *name = tern_strf("%.*s", (int)(strlen(mine) - strlen(end) - 1), mine + 1);
        rc = *name && !strchr(name, '/') ? sweep_one(b, name, mine, err) : 0;
        if (rc == 0)
            rc = tern_store_delete(b->store, mine, err);
        free(name);
    }
    names_free(&marks);
    free(end);
    return rc < 0 ? -1 : 0;
}

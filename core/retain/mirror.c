/* Copies of checkpoints under checkpoint.mirror. */
#include "core/retain/look.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/tree.h"
#include "core/ckpt/ckpt.h"
#include "core/retain/room.h"
#include "core/store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Copy `from`, whose files are `t`, to `to`.  A folder that is there already stays when it is the
 * same (an earlier process was ended just then).  Otherwise it is replaced if `replace`, else it is
 * an error. */
static int mirror_to(struct tern_retain_look *k, const char *from, const struct tern_tree *t,
                     const char *to, bool replace, struct tern_err *err)
{
    struct stat st;

    if (TERN_AGAIN(lstat(to, &st)) == 0) {
        if (tern_tree_verify(to, t, true, NULL) == 0)
            return 0;
        if (!replace)
            return tern_err_set(err, TERN_USAGE,
                                "%s: is there already and is not a copy of %s. Move it away or "
                                "give another checkpoint.mirror.",
                                to, from);
        if (tern_retain_prune_remove(k, to, err) < 0)
            return -1;
    }
    if (tern_retain_room_check(to, t->bytes, err) < 0)
        return -1;
    char *aside = tern_retain_look_beside(
        k, to, k->o.offline ? TERN_RETAIN_COPY_OFFLINE : TERN_RETAIN_COPY_ONLINE);
    int rc = tern_tree_copy(from, t, aside, to, err);
    free(aside);
    return rc;
}

/* ------------------------------------------------------------------ object storage */

bool tern_retain_mirror_is_bucket(const struct tern_retain_look *k)
{
    return k->o.mirror && tern_store_is(k->o.mirror);
}

/* malloc'ed: the place of the copy `name`. */
static char *place_of(const struct tern_retain_look *k, const char *name)
{
    size_t n = strlen(k->o.mirror);

    while (n > 1 && k->o.mirror[n - 1] == '/')
        n--;
    return tern_strf("%.*s/%s", (int)n, k->o.mirror, name);
}

static struct tern_retain_bucket *bucket_of(struct tern_retain_look *k, struct tern_err *err)
{
    if (!k->bucket)
        k->bucket = tern_retain_bucket_open(k->o.mirror, k->o.run_id, /* how= */ NULL, err);
    return k->bucket;
}

void tern_retain_mirror_probe(struct tern_retain_look *k)
{
    struct tern_err err = {0};
    char text[1100];

    if (k->probed || !tern_retain_mirror_is_bucket(k))
        return;
    k->probed = true;
    if (tern_retain_bucket_probe(k->o.mirror, &err) == 0 && bucket_of(k, &err))
        return;
    snprintf(text, sizeof text, "checkpoint.mirror cannot be used now: %s", err.text);
    tern_retain_look_complain(k, text);
}

bool tern_retain_mirror_knows(const struct tern_retain_look *k, const struct tern_ckpt_entry *c)
{
    for (size_t i = 0; i < k->n_known; i++)
        if (strcmp(k->known[i], c->digest) == 0)
            return true;
    return false;
}

static void know(struct tern_retain_look *k, const struct tern_ckpt_entry *c)
{
    if (tern_retain_mirror_knows(k, c))
        return;
    char **more = reallocarray(k->known, k->n_known + 1, sizeof *more);

    if (!more)
        return;
    k->known = more;
    k->known[k->n_known++] = tern_strdup(c->digest);
}

static int no_copy(const struct tern_retain_look *k, const char *name, const char *from,
                   struct tern_err *err)
{
    char *place = place_of(k, name);

    tern_err_set(err, TERN_USAGE,
                 "%s: is there already and is not a copy of %s. Move it away or give another "
                 "checkpoint.mirror.",
                 place, from);
    free(place);
    return -1;
}

/* Is `text` the list of files `t`? */
static bool same_list(const char *text, size_t len, const struct tern_tree *t)
{
    json_t *j = tern_json_parse(text, len, "a list of files", NULL);
    struct tern_tree there = {0};
    const bool same = j && tern_tree_parse(j, "a list of files", &there, NULL) == 0 &&
                      strcmp(there.digest, t->digest) == 0;

    tern_tree_free(&there);
    json_decref(j);
    return same;
}

/* 0: copied; 1: it was there. */
static int external_to_bucket(struct tern_retain_look *k, const struct tern_retain_item *i,
                              const struct tern_tree *t, bool replace, struct tern_err *err)
{
    struct tern_retain_bucket_copy c = {.from = i->r.path, .name = i->r.name, .files = t};
    struct tern_retain_bucket *b = bucket_of(k, err);
    char *text = NULL;
    size_t len = 0;
    int rc = b ? tern_retain_bucket_sealed(b, c.name, c.own, &text, &len, err) : -1;

    if (rc == 0 && text) {
        c.kind = same_list(text, len, t) ? TERN_RETAIN_BUCKET_SAME : TERN_RETAIN_BUCKET_REPLACE;
        if (c.kind == TERN_RETAIN_BUCKET_REPLACE && !replace)
            rc = no_copy(k, c.name, c.from, err);
    }
    if (rc == 0)
        rc = tern_retain_bucket_copy(b, &c, err);
    free(text);
    return rc;
}

/* ------------------------------------------------------------------ of another trainer */

void tern_retain_mirror(struct tern_retain_look *k, struct tern_retain_item *i)
{
    struct tern_retain_record old = {0};
    struct tern_tree t = {0};
    struct tern_err err = {0};
    char *file = tern_retain_record_path(k->dir, i->r.path);
    char *to = place_of(k, i->r.name), text[1100];
    const bool replace = i->r.replaces && strcmp(i->r.replaces, to) == 0;

    tern_retain_look_report(k, "copying", i->r.path, to);
    int rc = tern_retain_record_read(file, &old, &t, &err);
    if (rc == 0)
        rc = tern_retain_mirror_is_bucket(k) ? external_to_bucket(k, i, &t, replace, &err)
                                             : mirror_to(k, i->r.path, &t, to, replace, &err);
    if (rc >= 0) {
        free(i->r.replaces);
        i->r.replaces = NULL;
        i->r.mirror = to;
        to = NULL;
        k->copied++;
        tern_retain_look_add_row(k, i->r.mirror, i->r.step, "verified", i->r.bytes, i->r.files,
                                 i->r.digest);
        rc = tern_retain_record_write(k->dir, &i->r, &t, &err);
    }
    if (rc < 0)
        tern_retain_retry_later(&i->retry);
    if (rc < 0 && !i->reported) {
        i->reported = true;
        snprintf(text, sizeof text, "the checkpoint of step %" PRId64 " has no mirror: %s",
                 i->r.step, err.text);
        tern_retain_look_complain(k, text);
    }
    tern_retain_record_free(&old);
    tern_tree_free(&t);
    free(file);
    free(to);
}

/* ------------------------------------------------------------------ tern's own checkpoints */

struct tern_retain_own *tern_retain_mirror_find_own(struct tern_retain_look *k, const char *path)
{
    for (size_t i = 0; i < k->n_own; i++)
        if (strcmp(k->own[i].path, path) == 0)
            return &k->own[i];
    return NULL;
}

static void own_failed(struct tern_retain_look *k, const struct tern_ckpt_entry *c, const char *why)
{
    struct tern_retain_own *o = tern_retain_mirror_find_own(k, c->path);
    char text[1100];

    if (!o) {
        struct tern_retain_own *more = reallocarray(k->own, k->n_own + 1, sizeof *more);
        if (!more)
            return;
        k->own = more;
        o = &k->own[k->n_own++];
        *o = (struct tern_retain_own){.path = tern_strdup(c->path)};
        snprintf(text, sizeof text, "the checkpoint of step %" PRIu64 " has no mirror: %s", c->step,
                 why);
        tern_retain_look_complain(k, text);
    }
    tern_retain_retry_later(&o->retry);
}

/* Is the folder a checkpoint of this run? */
static bool of_this_run(const struct tern_retain_look *k, const char *path)
{
    struct tern_ckpt *c = tern_ckpt_open(path, NULL);
    const char *run = c ? json_string_value(json_object_get(tern_ckpt_meta(c), "run")) : NULL;
    bool same = run && strcmp(run, k->o.run_id) == 0;

    tern_ckpt_close(c);
    return same;
}

/* Was the step set aside as damaged and trained again, so that its mirror is the damaged one?
 * Called when the new checkpoint is there: its trainer set the old one aside first, and a list
 * begun before that may show neither. */
static bool is_made_again(const struct tern_retain_look *k, const struct tern_ckpt_entry *c)
{
    struct tern_ckpt_entry *have = NULL;
    size_t n = 0;
    bool again = false;

    if (tern_ckpt_list(k->o.own_dir, &have, &n, NULL) < 0)
        return false;
    for (size_t i = 0; i < n; i++)
        again |= have[i].state == TERN_CKPT_BAD && have[i].step == c->step;
    tern_ckpt_list_free(have, n);
    return again;
}

/* May the copy whose manifest is `text` give way?  One of this run, if it lacks files, or if it was
 * trained again.  1, 0, -1. */
static int may_replace(struct tern_retain_look *k, const struct tern_ckpt_entry *c,
                       const char *name, const char *text, size_t len, struct tern_err *err)
{
    struct tern_ckpt *there = tern_ckpt_open_manifest(k->o.mirror, text, len, NULL);
    const char *run =
        there ? json_string_value(json_object_get(tern_ckpt_meta(there), "run")) : NULL;
    int rc = run && strcmp(run, k->o.run_id) == 0;

    if (rc > 0 && !is_made_again(k, c)) {
        rc = tern_retain_bucket_is_whole(k->bucket, name, there, err);
        rc = rc < 0 ? -1 : !rc;
    }
    tern_ckpt_close(there);
    return rc;
}

/* The manifest in the bucket, compared with the one here. */
static int find_kind(struct tern_retain_look *k, const struct tern_ckpt_entry *c, const char *name,
                     enum tern_retain_bucket_kind *ret_kind, struct tern_err *err)
{
    char *path = tern_strf("%s/" TERN_CKPT_MANIFEST, c->path), *text = NULL, *mine = NULL;
    size_t len = 0, n = 0;
    int rc = tern_retain_bucket_sealed(k->bucket, name, /* own= */ true, &text, &len, err);

    if (rc == 0 && text)
        rc = tern_fs_read(path, TERN_CKPT_MANIFEST_MAX, &mine, &n, err);
    *ret_kind = TERN_RETAIN_BUCKET_NEW;
    if (rc == 0 && text) {
        const bool same = n == len && memcmp(mine, text, n) == 0;
        *ret_kind = same ? TERN_RETAIN_BUCKET_SAME : TERN_RETAIN_BUCKET_REPLACE;
        const int may = same ? 1 : may_replace(k, c, name, text, len, err);
        rc = may > 0 ? 0 : may < 0 ? -1 : no_copy(k, name, c->path, err);
    }
    free(path);
    free(text);
    free(mine);
    return rc;
}

/* Has the ledger a row of that copy?  Where it cannot be read, it may have. */
static bool has_row(const struct tern_retain_look *k, const char *path, const char *digest)
{
    struct tern_ledger *l = tern_ledger_open_run(k->o.ledger_dir, k->o.run_id, NULL);
    struct tern_ledger_rows rows = {0};
    bool has = !l || tern_ledger_checkpoints(l, &rows, NULL) < 0;

    for (size_t i = 0; i < rows.n && !has; i++) {
        const struct tern_ledger_checkpoint *c = &rows.checkpoints[i];
        has = strcmp(c->path, path) == 0 && strcmp(c->state, "verified") == 0 &&
              c->manifest_sha256 && strcmp(c->manifest_sha256, digest) == 0;
    }
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
    return has;
}

static void add_own_row(struct tern_retain_look *k, const struct tern_ckpt_entry *c, const char *to)
{
    tern_retain_look_add_row(k, to, (int64_t)c->step, "verified", c->bytes, c->shards, c->digest);
}

void tern_retain_mirror_note(struct tern_retain_look *k, const struct tern_ckpt_entry *c)
{
    char *to = place_of(k, tern_fs_basename(c->path));

    if (!tern_retain_mirror_knows(k, c) && !has_row(k, to, c->digest))
        add_own_row(k, c, to);
    know(k, c);
    free(to);
}

/* 0: copied; 1: it was there.  Its bytes are those of the manifest: all are read first, and no file
 * changes after. */
static int own_to_bucket(struct tern_retain_look *k, const struct tern_ckpt_entry *c,
                         struct tern_err *err)
{
    struct tern_tree t = {0};
    struct tern_retain_bucket_copy copy = {
        .from = c->path, .name = tern_fs_basename(c->path), .files = &t, .own = true};
    int rc = bucket_of(k, err) ? tern_tree_list(c->path, &t, err) : -1;

    if (rc == 0)
        rc = find_kind(k, c, copy.name, &copy.kind, err);
    if (rc == 0 && copy.kind == TERN_RETAIN_BUCKET_SAME)
        rc = tern_retain_bucket_has_all(k->bucket, &copy, err);
    if (rc == 0)
        rc = tern_ckpt_verify(c->path, /* full= */ true, err);
    if (rc == 0)
        rc = tern_retain_bucket_copy(k->bucket, &copy, err);
    tern_tree_free(&t);
    return rc;
}

static int own_to_folder(struct tern_retain_look *k, const struct tern_ckpt_entry *c,
                         const char *to, struct tern_err *err)
{
    struct tern_tree t = {0};
    int rc = tern_retain_room_check(to, c->bytes, err);

    if (rc == 0)
        rc = tern_tree_take(c->path, &t, err);
    if (rc == 0)
        rc = mirror_to(k, c->path, &t, to, of_this_run(k, to) && is_made_again(k, c), err);
    tern_tree_free(&t);
    return rc;
}

int tern_retain_mirror_own(struct tern_retain_look *k, const struct tern_ckpt_entry *c)
{
    struct tern_err err = {0};
    char *to = place_of(k, tern_fs_basename(c->path));

    tern_retain_look_report(k, "copying", c->path, to);
    int rc =
        tern_retain_mirror_is_bucket(k) ? own_to_bucket(k, c, &err) : own_to_folder(k, c, to, &err);
    /* The trainer prunes meanwhile: a checkpoint that is gone is no error. */
    const bool gone = rc < 0 && !tern_fs_exists(c->path);
    if (rc == 0) {
        k->copied++;
        add_own_row(k, c, to);
        know(k, c);
    } else if (rc > 0) {
        tern_retain_mirror_note(k, c);
    } else if (rc < 0 && !gone) {
        own_failed(k, c, err.text);
    }
    free(to);
    return gone || rc > 0 ? 0 : rc;
}

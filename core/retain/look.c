#include "core/retain/look.h"

#include "core/base/again.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BEFORE_BYTES = 64 << 20 };

/* ------------------------------------------------------------------ the ledger's rows */

struct tern_ledger_spool *tern_retain_look_spool(struct tern_retain_look *k)
{
    struct tern_err err = {0};

    if (!k->spool) {
        k->spool =
            tern_ledger_spool_open(k->o.ledger_dir, k->o.run_id, k->o.attempt, "retention", &err);
        if (!k->spool)
            tern_warn("checkpoints are not recorded in the ledger: %s", err.text);
    }
    return k->spool;
}

void tern_retain_look_add_row(struct tern_retain_look *k, const char *path, int64_t step,
                              const char *state, uint64_t bytes, size_t files, const char *digest)
{
    struct tern_err err = {0};
    const struct tern_ledger_checkpoint c = {
        .step = step,
        .path = path,
        .bytes = (int64_t)bytes,
        .shards = (int64_t)files,
        .manifest_sha256 = digest && *digest ? digest : NULL,
        .state = state,
    };

    if (tern_ledger_spool_checkpoint(tern_retain_look_spool(k), &c, &err) < 0)
        tern_warn("%s", err.text);
}

void tern_retain_look_add_item(struct tern_retain_look *k, const struct tern_retain_item *i,
                               const char *state)
{
    tern_retain_look_add_row(k, i->r.path, i->r.step, state, i->r.bytes, i->r.files, i->r.digest);
}

void tern_retain_look_complain(struct tern_retain_look *k, const char *text)
{
    struct tern_err err = {0};
    const struct tern_ledger_event e = {.kind = "checkpoint", .severity = "warn", .text = text};

    tern_warn("%s", text);
    if (tern_ledger_spool_event(tern_retain_look_spool(k), &e, &err) < 0)
        tern_warn("%s", err.text);
}

void tern_retain_look_report(struct tern_retain_look *k, const char *what, const char *path,
                             const char *to)
{
    if (k->doing)
        snprintf(k->doing, TERN_RETAIN_DOING, "%s %.400s%s%.400s", what, path, to ? " to " : "",
                 to ? to : "");
}

/* ------------------------------------------------------------------ what is known */

static struct tern_retain_item *find_item(struct tern_retain_look *k, const char *path)
{
    for (size_t i = 0; i < k->n; i++)
        if (strcmp(k->item[i].r.path, path) == 0)
            return &k->item[i];
    return NULL;
}

/* NULL when there are too many. */
static struct tern_retain_item *new_item(struct tern_retain_look *k, const char *path,
                                         const char *name, int64_t step)
{
    if (k->n == k->cap) {
        size_t cap = k->cap ? 2 * k->cap : 32;
        void *more =
            cap > 4 * TERN_RETAIN_EXTERNAL_MAX ? NULL : reallocarray(k->item, cap, sizeof *k->item);
        if (!more) {
            tern_warn("%s: too many checkpoints", path);
            return NULL;
        }
        k->item = more;
        k->cap = cap;
    }
    struct tern_retain_item *i = &k->item[k->n++];
    *i = (struct tern_retain_item){
        .r = {.path = tern_strdup(path), .name = tern_strdup(name), .step = step}};
    return i;
}

void tern_retain_look_drop(struct tern_retain_look *k, struct tern_retain_item *i)
{
    tern_retain_record_free(&i->r);
    *i = k->item[--k->n];
}

static void load_records(struct tern_retain_look *k)
{
    DIR *d = TERN_AGAIN_PTR(opendir(k->dir));
    struct tern_retain_record r = {0};
    struct tern_err err = {0};

    for (struct dirent *e; d && (e = readdir(d));) {
        if (!tern_str_ends(e->d_name, ".json") || strcmp(e->d_name, "before.json") == 0)
            continue;
        char *file = tern_strf("%s/%s", k->dir, e->d_name);
        if (tern_retain_record_read(file, &r, NULL, &err) < 0) {
            tern_warn("%s; its checkpoint is verified again", err.text);
        } else if (!r.deleted) {
            struct tern_retain_item *i = new_item(k, r.path, r.name, r.step);
            if (i) {
                tern_retain_record_free(&i->r);
                i->r = r;
                r = (struct tern_retain_record){0};
            }
        }
        tern_retain_record_free(&r);
        free(file);
    }
    if (d)
        closedir(d);
}

int tern_retain_look_rewrite(struct tern_retain_look *k, const struct tern_retain_item *i,
                             struct tern_err *err)
{
    struct tern_retain_record old = {0};
    struct tern_tree t = {0};
    char *file = tern_retain_record_path(k->dir, i->r.path);
    int rc = tern_retain_record_read(file, &old, &t, err);

    if (rc == 0)
        rc = tern_retain_record_write(k->dir, &i->r, &t, err);
    tern_retain_record_free(&old);
    tern_tree_free(&t);
    free(file);
    return rc;
}

/* ------------------------------------------------------------------ before the run */

static char *before_path(const struct tern_retain_options *o)
{
    char *dir = tern_retain_external_dir(o->ledger_dir, o->run_id);
    char *path = tern_strf("%s/before.json", dir);

    free(dir);
    return path;
}

int tern_retain_note_before(const struct tern_retain_options *o, struct tern_err *err)
{
    char *path = before_path(o), *text = NULL;
    char *dir = tern_fs_dirname(path);
    struct tern_retain_founds f = {0};
    json_t *list = json_array();
    int rc = 0;

    if (tern_fs_exists(path))
        goto out;
    rc = tern_retain_external_find(o->glob, o->marker, &f, err);
    for (size_t i = 0; rc == 0 && i < f.n; i++)
        json_array_append_new(
            list, json_pack("{s:s,s:s}", "path", f.v[i].path, "written", f.v[i].written));
    text = json_dumps(list, JSON_INDENT(1));
    if (rc == 0)
        rc = tern_fs_mkdirs_like(dir, err);
    if (rc == 0)
        rc = tern_fs_replace(path, text, strlen(text), tern_fs_bits_in(dir), err);
out:
    tern_retain_external_free(&f);
    json_decref(list);
    free(text);
    free(dir);
    free(path);
    return rc;
}

static int load_before(struct tern_retain_look *k, struct tern_err *err)
{
    char *path = before_path(&k->o);
    json_t *list = tern_json_load(path, BEFORE_BYTES, err);

    free(path);
    if (!list)
        return -1;
    k->before.v = tern_alloc(json_array_size(list) + 1, sizeof *k->before.v, "checkpoints", err);
    for (size_t i = 0; k->before.v && i < json_array_size(list); i++) {
        const json_t *j = json_array_get(list, i);
        const char *old = json_string_value(json_object_get(j, "path"));
        const char *written = json_string_value(json_object_get(j, "written"));
        if (!old || !written || strlen(written) >= TERN_RETAIN_WRITTEN)
            continue;
        struct tern_retain_found *f = &k->before.v[k->before.n++];
        f->path = tern_strdup(old);
        snprintf(f->written, sizeof f->written, "%s", written);
    }
    json_decref(list);
    return k->before.v ? 0 : -1;
}

static bool was_before(const struct tern_retain_look *k, const struct tern_retain_found *f)
{
    for (size_t i = 0; i < k->before.n; i++)
        if (strcmp(k->before.v[i].path, f->path) == 0 &&
            strcmp(k->before.v[i].written, f->written) == 0)
            return true;
    return false;
}

/* ------------------------------------------------------------------ looking */

/* Take over the copy of an earlier checkpoint of this path, which is gone. */
static void recall(const struct tern_retain_look *k, struct tern_retain_item *i)
{
    char *file = tern_retain_record_path(k->dir, i->r.path);
    struct tern_retain_record old = {0};

    if (tern_fs_exists(file) && tern_retain_record_read(file, &old, NULL, NULL) == 0) {
        i->r.mirror = old.mirror;
        i->r.replaces = old.replaces;
        old.mirror = old.replaces = NULL;
    }
    tern_retain_record_free(&old);
    free(file);
}

/* The checkpoint of this path was replaced: its verification no longer holds. */
static void written_again(struct tern_retain_item *i, const char *written)
{
    if (i->r.mirror) {
        free(i->r.replaces);
        i->r.replaces = i->r.mirror;
        i->r.mirror = NULL;
    }
    i->r.verified = i->bad = i->reported = false;
    i->retry = (struct tern_retain_retry){0};
    i->r.bytes = 0;
    i->r.files = 0;
    i->r.digest[0] = '\0';
    snprintf(i->r.written, sizeof i->r.written, "%s", written);
}

/* Register it in the ledger once, for this attempt: the record keeps later attempts from that. */
static void register_it(struct tern_retain_look *k, const struct tern_retain_item *i)
{
    const struct tern_tree none = {0};
    struct tern_err err = {0};

    tern_retain_look_add_item(k, i, "foreign");
    if (tern_retain_record_write(k->dir, &i->r, &none, &err) < 0)
        tern_warn("%s", err.text);
}

static int look_by_glob(struct tern_retain_look *k, struct tern_err *err)
{
    struct tern_retain_founds f = {0};

    if (tern_retain_external_find(k->o.glob, k->o.marker, &f, err) < 0)
        return -1;
    for (size_t j = 0; j < f.n; j++) {
        const struct tern_retain_found *one = &f.v[j];
        if (was_before(k, one))
            continue;
        struct tern_retain_item *i = find_item(k, one->path);
        bool fresh = !i;
        if (!i && !(i = new_item(k, one->path, one->name, one->step)))
            break;
        if (fresh)
            recall(k, i);
        i->seen = i->r.in_glob = true;
        if (fresh || strcmp(i->r.written, one->written) != 0) {
            written_again(i, one->written);
            register_it(k, i);
        }
    }
    tern_retain_external_free(&f);
    return 0;
}

/* What `tern metric checkpoint=DIR` registered: its row is the newest of that path. */
static int look_by_ledger(struct tern_retain_look *k, struct tern_err *err)
{
    struct tern_ledger *l = tern_ledger_open_run(k->o.ledger_dir, k->o.run_id, err);
    struct tern_ledger_rows rows = {0};
    char written[TERN_RETAIN_WRITTEN];

    if (!l)
        return -1;
    int rc = tern_ledger_checkpoints(l, &rows, err);
    for (size_t j = 0; rc == 0 && j < rows.n; j++) {
        const struct tern_ledger_checkpoint *c = &rows.checkpoints[j];
        struct tern_retain_item *i = find_item(k, c->path);
        if (strcmp(c->state, "foreign") != 0 || (i && i->r.in_glob))
            continue;
        snprintf(written, sizeof written, "told-%" PRId64, c->wall_ns);
        if (!i) {
            i = new_item(k, c->path, tern_fs_basename(c->path), c->step);
            if (!i)
                break;
            recall(k, i);
        }
        i->r.step = c->step;
        if (strcmp(i->r.written, written) != 0)
            written_again(i, written);
    }
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
    return rc;
}

/* Checkpoints that the trainer or a user has removed. */
static void notice_gone(struct tern_retain_look *k)
{
    struct tern_err err = {0};

    for (size_t j = 0; j < k->n;) {
        struct tern_retain_item *i = &k->item[j];
        struct stat st;
        /* glob() passes over entries that it cannot read behind its last wildcard. */
        if (i->seen || tern_retain_external_there(i->r.path, i->r.in_glob ? k->o.marker : NULL, &st,
                                                  NULL) != 0) {
            j++;
            continue;
        }
        tern_retain_look_add_item(k, i, "deleted");
        i->r.deleted = true;
        if ((i->r.verified || i->r.in_glob) && tern_retain_look_rewrite(k, i, &err) < 0)
            tern_warn("%s", err.text);
        tern_retain_look_drop(k, i);
    }
}

/* ------------------------------------------------------------------ trying again */

static const int64_t minute = 60 * (int64_t)1000000000;

enum { RETRY_DOUBLED = 6 }; /* from a minute to an hour */

bool tern_retain_retry_is_due(const struct tern_retain_look *k, const struct tern_retain_retry *r)
{
    return k->last || tern_clock_boot_ns() >= r->at_ns;
}

void tern_retain_retry_later(struct tern_retain_retry *r)
{
    r->at_ns = tern_clock_boot_ns() + (r->times < RETRY_DOUBLED ? minute << r->times : 60 * minute);
    r->times++;
}

/* ------------------------------------------------------------------ one look */

char *tern_retain_look_beside(const struct tern_retain_look *k, const char *path, const char *what)
{
    char *dir = tern_fs_dirname(path);
    char *to = tern_strf("%s/.%s.%s.%s", dir, tern_fs_basename(path), k->o.run_id, what);

    free(dir);
    return to;
}

int tern_retain_look_find(struct tern_retain_look *k, struct tern_err *err)
{
    for (size_t i = 0; i < k->n; i++)
        k->item[i].seen = false;
    if (look_by_glob(k, err) < 0)
        return -1;
    notice_gone(k);
    return k->o.own_dir ? 0 : look_by_ledger(k, err);
}

int tern_retain_look_open(struct tern_retain_look *k, const struct tern_retain_options *o,
                          struct tern_err *err)
{
    *k = (struct tern_retain_look){.o = *o};
    k->dir = tern_retain_external_dir(o->ledger_dir, o->run_id);
    if (!o->own_dir) {
        if (load_before(k, err) < 0)
            return -1;
        load_records(k);
    }
    if (!o->offline)
        tern_retain_prune_sweep(k, false);
    return 0;
}

void tern_retain_look_close(struct tern_retain_look *k)
{
    for (size_t i = 0; i < k->n; i++)
        tern_retain_record_free(&k->item[i].r);
    for (size_t i = 0; i < k->n_own; i++)
        free(k->own[i].path);
    for (size_t i = 0; i < k->n_known; i++)
        free(k->known[i]);
    free(k->known);
    tern_retain_bucket_close(k->bucket);
    free(k->own);
    free(k->item);
    free(k->dir);
    tern_retain_external_free(&k->before);
    tern_ledger_spool_close(k->spool, NULL);
}

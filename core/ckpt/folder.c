/* Find, list and mark checkpoints in their folder. */
#include "core/ckpt/folder.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/ckpt/table.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder with more names than this is no folder of checkpoints. */
enum { NAMES_MAX = 1000000 };

int tern_ckpt_rename_new(const char *from, const char *to, struct tern_err *err)
{
    /* Where that is a plain rename, it replaces an empty folder only, and ours are never empty. */
    if (tern_fs_rename(from, to, /* only_new= */ true) == 0)
        return 0;
    if (errno == EEXIST || errno == ENOTEMPTY)
        return tern_err_set(err, TERN_FAILED, "%s: already exists; each step is published once",
                            to);
    return tern_err_sys(err, "%s: cannot be put in place", to);
}

/* ------------------------------------------------------------------ names */

static bool digits(const char **s, uint64_t *v)
{
    char *end;

    if (**s < '0' || **s > '9')
        return false;
    errno = 0;
    *v = strtoull(*s, &end, 10);
    *s = end;
    return errno == 0;
}

/* "step-00001500", ".tmp-3" and ".bad-1" after it. */
static bool name_parse(const char *text, struct tern_ckpt_name *n)
{
    char again[64];
    uint64_t step, k;
    const char *s = text + 5;

    if (!tern_str_starts(text, "step-") || !digits(&s, &step))
        return false;
    snprintf(again, sizeof again, "step-%08" PRIu64, step);
    if (strlen(again) != (size_t)(s - text) || strncmp(again, text, strlen(again)) != 0)
        return false;
    *n = (struct tern_ckpt_name){.step = step, .state = TERN_CKPT_GOOD};
    if (*s == '\0')
        return true;
    if (!tern_str_starts(s, ".tmp-") && !tern_str_starts(s, ".bad-"))
        return false;
    n->state = s[1] == 't' ? TERN_CKPT_TEMP : TERN_CKPT_BAD;
    s += 5;
    if (!digits(&s, &k) || *s || k > UINT32_MAX)
        return false;
    n->attempt = (unsigned)k;
    return true;
}

static int by_step(const void *a, const void *b)
{
    const struct tern_ckpt_name *x = a, *y = b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return strcmp(x->text, y->text);
}

void tern_ckpt_names_free(struct tern_ckpt_name *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(names[i].text);
    free(names);
}

int tern_ckpt_names_read(const char *dir, struct tern_ckpt_name **ret_names, size_t *ret_n,
                         struct tern_err *err)
{
    DIR *d = TERN_AGAIN_PTR(opendir(dir));
    struct tern_ckpt_name *list = NULL, one;
    size_t len = 0, cap = 0;

    if (!d) {
        tern_err_sys(err, "%s: cannot open folder", dir);
        if (err && errno == ENOENT)
            err->code = TERN_USAGE;
        return -1;
    }
    int rc = 0;
    for (struct dirent *e; rc == 0 && (errno = 0, e = readdir(d));) {
        if (!name_parse(e->d_name, &one))
            continue;
        if (len == cap) {
            cap = cap ? 2 * cap : 64;
            struct tern_ckpt_name *more =
                cap > NAMES_MAX ? NULL : realloc(list, cap * sizeof *list);
            if (!more) {
                rc = tern_err_set(err, TERN_FAILED, "%s: holds too many checkpoints", dir);
                break;
            }
            list = more;
        }
        one.text = tern_strdup(e->d_name);
        list[len++] = one;
    }
    if (rc == 0 && errno)
        rc = tern_err_sys(err, "%s: cannot read folder", dir);
    closedir(d);
    if (rc < 0) {
        tern_ckpt_names_free(list, len);
        return -1;
    }
    if (len)
        qsort(list, len, sizeof *list, by_step);
    *ret_names = list;
    *ret_n = len;
    return 0;
}

/* ------------------------------------------------------------------ list and find */

int tern_ckpt_step_check(uint64_t step, const char *path, struct tern_err *err)
{
    char *plain = tern_strdup(path);
    struct tern_ckpt_name n;

    for (size_t end = strlen(plain); end > 1 && plain[end - 1] == '/';)
        plain[--end] = '\0';
    const bool named = name_parse(tern_fs_basename(plain), &n);
    free(plain);
    return named && n.step != step
               ? tern_err_set(err, TERN_USAGE,
                              "%s: its manifest is of step %" PRIu64
                              ": a copy under another name? Name the folder step-%08" PRIu64 ".",
                              path, step, step)
               : 0;
}

int tern_ckpt_link_check(const char *path, struct tern_err *err)
{
    struct stat st;
    struct tern_ckpt_name n;

    return name_parse(tern_fs_basename(path), &n) && TERN_AGAIN(lstat(path, &st)) == 0 &&
                   S_ISLNK(st.st_mode)
               ? tern_err_set(err, TERN_USAGE, "%s: is a symbolic link, no checkpoint", path)
               : 0;
}

struct tern_ckpt *tern_ckpt_open_named(const char *path, struct tern_err *err)
{
    return tern_ckpt_link_check(path, err) < 0 ? NULL : tern_ckpt_open(path, err);
}

static void entry_fill(struct tern_ckpt_entry *e)
{
    struct tern_err err = {0};
    struct stat st;

    if (e->state != TERN_CKPT_GOOD)
        return;
    struct tern_ckpt *c = tern_ckpt_open_named(e->path, &err);
    if (!c) {
        e->state = TERN_CKPT_BROKEN;
        e->why = tern_strdup(err.text);
        return;
    }
    char *manifest = tern_fs_join(e->path, "manifest.json");
    if (TERN_AGAIN(stat(manifest, &st)) == 0) {
        e->bytes = (uint64_t)st.st_size;
        e->wall_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    }
    free(manifest);
    for (size_t i = 0; i < c->n_shards; i++)
        e->bytes += c->shards[i].bytes;
    for (size_t i = 0; i < c->n_files; i++)
        e->bytes += c->files[i].bytes;
    e->shards = (unsigned)c->n_shards;
    snprintf(e->digest, sizeof e->digest, "%s", c->digest);
    tern_ckpt_close(c);
}

int tern_ckpt_list(const char *dir, struct tern_ckpt_entry **entries, size_t *n,
                   struct tern_err *err)
{
    struct tern_ckpt_name *names;
    size_t len;

    if (tern_ckpt_names_read(dir, &names, &len, err) < 0)
        return -1;
    struct tern_ckpt_entry *list = tern_alloc(len + 1, sizeof *list, dir, err);
    for (size_t i = 0; list && i < len; i++) {
        list[i].step = names[i].step;
        list[i].state = names[i].state;
        list[i].path = tern_fs_join(dir, names[i].text);
        entry_fill(&list[i]);
    }
    tern_ckpt_names_free(names, len);
    if (!list)
        return -1;
    *entries = list;
    *n = len;
    return 0;
}

void tern_ckpt_list_free(struct tern_ckpt_entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(entries[i].path);
        free(entries[i].why);
    }
    free(entries);
}

int tern_ckpt_latest(const char *dir, char **path, uint64_t *step, struct tern_err *err)
{
    struct tern_ckpt_name *names;
    struct tern_err why;
    size_t n;
    char *found = NULL;

    if (TERN_AGAIN(access(dir, F_OK)) < 0 && errno == ENOENT) {
        *path = NULL;
        return 0;
    }
    if (tern_ckpt_names_read(dir, &names, &n, err) < 0)
        return -1;
    for (size_t i = n; i-- > 0 && !found;) {
        if (names[i].state != TERN_CKPT_GOOD)
            continue;
        char *p = tern_fs_join(dir, names[i].text);
        struct tern_ckpt *c = tern_ckpt_open_named(p, &why);
        if (c) {
            found = p;
            *step = names[i].step;
            tern_ckpt_close(c);
        } else {
            tern_warn("passed over as a checkpoint: %s", why.text);
            free(p);
        }
    }
    tern_ckpt_names_free(names, n);
    *path = found;
    return 0;
}

int tern_ckpt_may_begin(const char *dir, struct tern_err *err)
{
    struct tern_ckpt_name *names;
    size_t n, damaged = 0;

    if (TERN_AGAIN(access(dir, F_OK)) < 0 && errno == ENOENT)
        return 0;
    if (tern_ckpt_names_read(dir, &names, &n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        damaged += names[i].state == TERN_CKPT_GOOD || names[i].state == TERN_CKPT_BAD;
    tern_ckpt_names_free(names, n);
    return damaged == 0
               ? 0
               : tern_err_set(
                     err, TERN_FAILED,
                     "%s: holds %zu checkpoint%s, and none is whole: 'tern ckpt ls %s' says what "
                     "is wrong. To begin from nothing, remove or move %s.",
                     dir, damaged, damaged == 1 ? "" : "s", dir, damaged == 1 ? "it" : "them");
}

/* The good one of step `best`, or the newest before it. */
static int find_until(const char *dir, uint64_t best, char **path, uint64_t *step,
                      struct tern_err *err)
{
    struct tern_ckpt_name *names;
    size_t n;

    *path = NULL;
    if (tern_ckpt_names_read(dir, &names, &n, err) < 0)
        return -1;
    for (size_t i = n; i-- > 0 && !*path;) {
        if (names[i].state != TERN_CKPT_GOOD || names[i].step > best)
            continue;
        char *p = tern_fs_join(dir, names[i].text);
        struct tern_ckpt *c = tern_ckpt_open_named(p, NULL);
        if (c) {
            *path = p;
            *step = names[i].step;
            tern_ckpt_close(c);
        } else {
            free(p);
        }
    }
    tern_ckpt_names_free(names, n);
    return 0;
}

enum { AFTER_MAX = 1 << 16 };

int tern_ckpt_after_write(const char *dir, const char *digest, json_t *what, struct tern_err *err)
{
    char *path = tern_fs_join(dir, "after.json");
    json_t *j = json_pack("{s:s, s:O}", "manifest_sha256", digest, "after", what);
    char *text = j ? json_dumps(j, JSON_COMPACT) : NULL;
    int rc = text ? tern_fs_replace(path, text, strlen(text), 0644, err)
                  : tern_err_set(err, TERN_TEMPFAIL, "%s: no memory", path);

    free(text);
    json_decref(j);
    free(path);
    return rc;
}

json_t *tern_ckpt_after_read(const char *dir, const char *digest)
{
    char *path = tern_fs_join(dir, "after.json");
    json_t *j = tern_fs_exists(path) ? tern_json_load(path, AFTER_MAX, NULL) : NULL;
    const char *of = json_string_value(json_object_get(j, "manifest_sha256"));
    json_t *after = of && strcmp(of, digest) == 0 ? json_object_get(j, "after") : NULL;

    json_incref(after);
    json_decref(j);
    free(path);
    return after;
}

/* There is no checkpoint of the best evaluation, that of step `best`, nor one before it. */
static int fail_best(const char *dir, int64_t best, json_t *meta, struct tern_err *err)
{
    json_t *from = json_object_get(meta, "model_from"); /* not in those of 0.3 */

    if (best < 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: no best evaluation is recorded: its run has no data.held_out, or "
                            "was not evaluated yet",
                            dir);
    if (best > 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: the best evaluation was at step %lld, and no checkpoint of that "
                            "step or before it is there",
                            dir, (long long)best);
    return tern_err_set(err, TERN_USAGE,
                        "%s: the best evaluation was that of step 0, before any training: no "
                        "checkpoint is as good as %s, which the run began with",
                        dir,
                        json_is_string(from) ? json_string_value(from)
                        : json_is_null(from) ? "the random weights"
                                             : "the model");
}

/* From the newest one, *path, to that of the best evaluation, by its meta or a later
 * evaluation. */
static int find_best(const char *dir, char **path, struct tern_err *err)
{
    struct tern_ckpt *c = tern_ckpt_open(*path, err);
    uint64_t step = 0;

    if (!c)
        return -1;
    json_t *after = tern_ckpt_after_read(dir, tern_ckpt_digest(c));
    json_t *stop = json_object_get(after ? after : tern_ckpt_meta(c), "stop");
    json_t *best = json_object_get(stop, "best_step");
    const int64_t at = json_is_integer(best) ? json_integer_value(best) : -1;
    json_decref(after);
    free(*path);
    *path = NULL;
    int rc = at < 0 ? 0 : find_until(dir, (uint64_t)at, path, &step, err);
    if (rc == 0 && !*path)
        rc = fail_best(dir, at, tern_ckpt_meta(c), err);
    tern_ckpt_close(c);
    if (rc < 0)
        return -1;
    if (step != (uint64_t)at)
        tern_warn(
            "%s: the best evaluation was at step %lld, and step %llu is the newest checkpoint "
            "until then",
            dir, (long long)at, (unsigned long long)step);
    return 0;
}

bool tern_ckpt_is_word(const char *typed)
{
    const char *word = tern_fs_basename(typed);

    return (strcmp(word, "latest") == 0 || strcmp(word, "best") == 0) && !tern_fs_exists(typed);
}

int tern_ckpt_resolve(const char *typed, char **path, struct tern_err *err)
{
    const bool best = strcmp(tern_fs_basename(typed), "best") == 0;
    uint64_t step;

    if (!tern_ckpt_is_word(typed)) {
        *path = tern_strdup(typed);
        return 0;
    }
    char *dir = tern_fs_dirname(typed), *found = NULL;
    int rc = tern_ckpt_latest(dir, &found, &step, err);
    if (rc == 0 && !found)
        rc = tern_err_set(err, TERN_USAGE, "%s: holds no checkpoint that verifies", dir);
    if (rc == 0 && best && (rc = find_best(dir, &found, err)) < 0)
        free(found);
    free(dir);
    if (rc == 0)
        *path = found;
    return rc;
}

/* ------------------------------------------------------------------ mark */

int tern_ckpt_mark_bad(const char *path, char **to, struct tern_err *err)
{
    /* A step is tried again a few times, not a thousand. */
    for (unsigned k = 1; k < 1000; k++) {
        char *name = tern_strf("%s.bad-%u", path, k);
        if (!tern_fs_exists(name)) {
            int rc = tern_ckpt_rename_new(path, name, err);
            if (rc == 0)
                rc = tern_fs_sync_parent(name, err);
            if (rc == 0 && to)
                *to = tern_strdup(name);
            free(name);
            return rc;
        }
        free(name);
    }
    return tern_err_set(err, TERN_FAILED, "%s: 999 bad ones of this step lie there; remove some",
                        path);
}

#include "core/retain/external.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"

#include <ctype.h>
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A record of TERN_TREE_FILES files of some 200 bytes each, and room for long names. */
#define RECORD_BYTES ((size_t)512 << 20)

/* ------------------------------------------------------------------ finding */

int64_t tern_retain_external_step(const char *name)
{
    const char *base = tern_fs_basename(name), *end = base + strlen(base);
    int64_t step;
    char digits[24];

    while (end > base && !isdigit((unsigned char)end[-1]))
        end--;
    const char *from = end;
    while (from > base && isdigit((unsigned char)from[-1]))
        from--;
    if (from == end || (size_t)(end - from) >= sizeof digits)
        return -1;
    snprintf(digits, sizeof digits, "%.*s", (int)(end - from), from);
    return tern_str_int(digits, 0, INT64_MAX, &step) < 0 ? -1 : step;
}

size_t tern_retain_external_fixed(const char *pattern)
{
    size_t n = strcspn(pattern, "*?[\\");

    while (n && pattern[n - 1] != '/')
        n--;
    return n;
}

static size_t slashes(const char *s, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += s[i] == '/';
    return count;
}

/* The parts of a match behind the fixed parts of the pattern. */
static const char *name_part(const char *pattern, const char *path)
{
    for (size_t skip = slashes(pattern, tern_retain_external_fixed(pattern)); skip; skip--) {
        const char *slash = strchr(path, '/');
        if (!slash)
            break;
        path = slash + 1;
    }
    return path;
}

/* Only these errors mean absence; with any other the file may be there. */
static bool is_absent(int why)
{
    return why == ENOENT || why == ENOTDIR;
}

int tern_retain_external_there(const char *path, const char *marker, struct stat *st,
                               struct tern_err *err)
{
    char *file = tern_strf("%s/%s", path, marker ? marker : ".");
    int rc = TERN_AGAIN(lstat(path, st));

    if (rc == 0 && S_ISDIR(st->st_mode))
        rc = TERN_AGAIN(lstat(file, st)) == 0 ? !marker || S_ISREG(st->st_mode) : -1;
    if (rc < 0)
        rc = is_absent(errno) ? 0 : tern_err_sys(err, "%s: cannot look at it", file);
    free(file);
    return rc;
}

/* Is it a checkpoint?  1: fills `f` but for its name; 0: no; -1: unknown. */
static int look(const char *path, const char *marker, struct tern_retain_found *f,
                struct tern_err *err)
{
    struct stat st;
    int rc = tern_retain_external_there(path, marker, &st, err);

    if (rc <= 0 || (f->step = tern_retain_external_step(path)) < 0)
        return rc < 0 ? -1 : 0;
    f->path = realpath(path, NULL);
    if (!f->path)
        return is_absent(errno) ? 0 : tern_err_sys(err, "%s: cannot look at it", path);
    snprintf(f->written, sizeof f->written, "%lld.%09ld-%llu", (long long)st.st_mtim.tv_sec,
             st.st_mtim.tv_nsec, (unsigned long long)st.st_ino);
    return 1;
}

static int by_step(const void *a, const void *b)
{
    const struct tern_retain_found *x = a, *y = b;

    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return strcmp(x->path, y->path);
}

/* glob() passes its error function no other data. */
static _Thread_local char *unreadable;

static int on_error(const char *path, int why)
{
    if (is_absent(why))
        return 0;
    free(unreadable);
    unreadable = tern_strdup(path);
    errno = why;
    return 1;
}

int tern_retain_external_find(const char *pattern, const char *marker,
                              struct tern_retain_founds *out, struct tern_err *err)
{
    glob_t g = {0};

    *out = (struct tern_retain_founds){0};
    if (!pattern || !marker)
        return 0;
    int rc = glob(pattern, GLOB_NOSORT, on_error, &g);
    if (rc == GLOB_NOMATCH)
        return 0;
    if (rc != 0) {
        if (rc == GLOB_NOSPACE)
            errno = ENOMEM;
        tern_err_sys(err, "%s: cannot look for checkpoints in %s", pattern,
                     unreadable ? unreadable : "it");
        rc = -1;
        goto done;
    }
    if (g.gl_pathc > TERN_RETAIN_EXTERNAL_MAX) {
        rc = tern_err_set(err, TERN_USAGE, "%s: matches %zu folders; at most %d are watched",
                          pattern, g.gl_pathc, (int)TERN_RETAIN_EXTERNAL_MAX);
        goto done;
    }
    out->v = tern_alloc(g.gl_pathc, sizeof *out->v, "checkpoints", err);
    if (!out->v) {
        rc = -1;
        goto done;
    }
    for (size_t i = 0; i < g.gl_pathc; i++) {
        char *path = g.gl_pathv[i];
        for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
            path[n - 1] = '\0';
        const char *name = name_part(pattern, path);
        int found = strstr(name, "..") ? 0 : look(path, marker, &out->v[out->n], err);
        if (found > 0)
            out->v[out->n++].name = tern_strdup(name);
        else if (found < 0)
            rc = -1;
        if (rc < 0)
            break;
    }
    if (out->n)
        qsort(out->v, out->n, sizeof *out->v, by_step);
done:
    if (rc < 0)
        tern_retain_external_free(out);
    free(unreadable);
    unreadable = NULL;
    globfree(&g);
    return rc;
}

void tern_retain_external_free(struct tern_retain_founds *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free(f->v[i].path);
        free(f->v[i].name);
    }
    free(f->v);
    *f = (struct tern_retain_founds){0};
}

/* ------------------------------------------------------------------ choosing */

void tern_retain_external_choose(const int64_t *step, const bool *may, size_t n, int64_t keep,
                                 int64_t keep_every, bool *drop)
{
    int64_t kept = 0;

    for (size_t i = n; i-- > 0;) {
        drop[i] = false;
        if (!may[i])
            continue;
        bool stays =
            kept < keep || step[i] == step[n - 1] || (keep_every > 0 && step[i] % keep_every == 0);
        if (kept < keep)
            kept++;
        drop[i] = keep > 0 && !stays;
    }
}

/* ------------------------------------------------------------------ what is written down */

char *tern_retain_external_dir(const char *ledger_dir, const char *run_id)
{
    char *dir = tern_strf("%s/runs/%s/external", ledger_dir, run_id);
    char *old = tern_strf("%s/runs/%s/foreign", ledger_dir, run_id);

    if (!tern_fs_exists(dir) && tern_fs_exists(old)) {
        free(dir);
        return old;
    }
    free(old);
    return dir;
}

char *tern_retain_record_path(const char *dir, const char *checkpoint)
{
    uint8_t digest[TERN_SHA256_BYTES];
    char hex[TERN_SHA256_HEX];

    /* Two folders of one name, under different parents, are two. */
    tern_sha256(checkpoint, strlen(checkpoint), digest);
    tern_hex(hex, digest, sizeof digest);
    return tern_strf("%s/%.120s-%.8s.json", dir, tern_fs_basename(checkpoint), hex);
}

static void set_text(json_t *j, const char *key, const char *text)
{
    if (text)
        json_object_set_new(j, key, json_string(text));
}

int tern_retain_record_write(const char *dir, const struct tern_retain_record *r,
                             const struct tern_tree *t, struct tern_err *err)
{
    json_t *j = tern_tree_json(t);
    char *path = tern_retain_record_path(dir, r->path), *text = NULL;
    int rc = -1;

    json_object_set_new(j, "version", json_integer(1));
    set_text(j, "path", r->path);
    set_text(j, "name", r->name);
    json_object_set_new(j, "step", json_integer(r->step));
    set_text(j, "written", r->written);
    set_text(j, "state", r->deleted ? "deleted" : r->verified ? "verified" : "seen");
    json_object_set_new(j, "in_glob", json_boolean(r->in_glob));
    set_text(j, "mirror", r->mirror);
    set_text(j, "replaces", r->replaces);
    text = json_dumps(j, JSON_INDENT(1));
    if (!text)
        tern_err_set(err, TERN_FAILED, "%s: cannot be written down; is the path UTF-8?", r->path);
    else if (tern_fs_mkdirs_like(dir, err) == 0)
        rc = tern_fs_replace(path, text, strlen(text), tern_fs_bits_in(dir), err);
    free(text);
    free(path);
    json_decref(j);
    return rc;
}

static char *get_text(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));

    return s ? tern_strdup(s) : NULL;
}

int tern_retain_record_read(const char *file, struct tern_retain_record *r, struct tern_tree *t,
                            struct tern_err *err)
{
    struct tern_tree tree = {0};
    json_t *j = tern_json_load(file, RECORD_BYTES, err);
    int rc = -1;

    if (!j)
        return -1;
    const char *written = json_string_value(json_object_get(j, "written"));
    const char *state = json_string_value(json_object_get(j, "state"));
    const char *digest = json_string_value(json_object_get(j, "digest"));
    const bool verified = state && strcmp(state, "verified") == 0;
    if ((verified || !digest || *digest) && tern_tree_parse(j, file, &tree, err) < 0)
        goto done;
    *r = (struct tern_retain_record){
        .path = get_text(j, "path"),
        .name = get_text(j, "name"),
        .step = json_integer_value(json_object_get(j, "step")),
        .verified = verified,
        .deleted = state && strcmp(state, "deleted") == 0,
        .in_glob = json_is_true(json_object_get(j, "in_glob")),
        .mirror = get_text(j, "mirror"),
        .replaces = get_text(j, "replaces"),
        .bytes = tree.bytes,
        .files = tree.n,
    };
    memcpy(r->digest, tree.digest, sizeof r->digest);
    if (!r->path || !r->name || !written || strlen(written) >= sizeof r->written ||
        json_integer_value(json_object_get(j, "version")) != 1) {
        tern_retain_record_free(r);
        tern_err_set(err, TERN_USAGE, "%s: is no record of a checkpoint (version 1)", file);
        goto done;
    }
    snprintf(r->written, sizeof r->written, "%s", written);
    if (t) {
        *t = tree;
        tree = (struct tern_tree){0};
    }
    rc = 0;
done:
    tern_tree_free(&tree);
    json_decref(j);
    return rc;
}

void tern_retain_record_free(struct tern_retain_record *r)
{
    free(r->path);
    free(r->name);
    free(r->mirror);
    free(r->replaces);
    *r = (struct tern_retain_record){0};
}

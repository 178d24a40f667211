#include "core/fetch/list.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/store/store.h"
#include "core/store/url.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_MAX = 1000000 };

void tern_fetch_list_free(struct tern_fetch_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->files[i].name);
        free(l->files[i].path);
    }
    free(l->files);
    free(l->shown);
    tern_store_close(l->store);
    *l = (struct tern_fetch_list){0};
}

/* Stays inside the folder, whatever a server says; on any terminal, too. */
static bool good_path(const char *path)
{
    const size_t n = strlen(path);

    if (n == 0 || n > 1024 || path[0] == '/' || tern_str_starts(path, ".tern-fetch"))
        return false;
    for (size_t i = 0, len; i < n; i += len)
        if ((len = tern_str_character(path + i, n - i)) == 0 || path[i] == '\\')
            return false;
    for (const char *part = path;; part += strcspn(part, "/") + 1) {
        const size_t len = strcspn(part, "/");
        if (len == 0 || len > 255 || (len == 1 && part[0] == '.') ||
            (len == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        if (!part[len])
            return true;
    }
}

static bool matches(const char *const *patterns, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++)
        if (fnmatch(patterns[i], path, 0) == 0)
            return true;
    return false;
}

int tern_fetch_list_add(struct tern_fetch_list *l, const struct tern_fetch_how *how,
                        struct tern_fetch_file file, struct tern_err *err)
{
    if (!good_path(file.path)) {
        char shown[80];
        snprintf(shown, sizeof shown, "%s", file.path);
        tern_str_mask(shown);
        return tern_err_set(err, TERN_USAGE,
                            "%s: a file's name there is no path inside a folder: %s", l->shown,
                            shown);
    }
    if ((how->n_include && !matches(how->include, how->n_include, file.path)) ||
        matches(how->exclude, how->n_exclude, file.path))
        return 0;
    if (l->n == FILES_MAX)
        return tern_err_set(err, TERN_USAGE, "%s: more than %d files", l->shown, FILES_MAX);
    if ((l->n & (l->n - 1)) == 0) { /* room for the next power of two */
        struct tern_fetch_file *files = realloc(l->files, (l->n ? 2 * l->n : 1) * sizeof *l->files);
        if (!files)
            return tern_err_set(err, TERN_FAILED, "no memory for a list of files");
        l->files = files;
    }
    file.name = tern_strdup(file.name);
    file.path = tern_strdup(file.path);
    l->files[l->n++] = file;
    return 0;
}

/* ---- object storage ---- */

struct add {
    struct tern_fetch_list *l;
    const struct tern_fetch_how *how;
    struct tern_err *err;
};

void tern_fetch_file_etag(struct tern_fetch_file *f, const char *etag)
{
    const char *hex = etag + (*etag == '"');

    snprintf(f->etag, sizeof f->etag, "%s", strlen(etag) < sizeof f->etag ? etag : "");
    if (strspn(hex, "0123456789abcdef") == 32 && strcmp(hex + 32, *etag == '"' ? "\"" : "") == 0) {
        f->kind = TERN_FETCH_MD5;
        snprintf(f->digest, sizeof f->digest, "%.32s", hex);
    }
}

static int add_object(void *ctx, const struct tern_store_entry *e)
{
    const struct add *a = ctx;
    struct tern_fetch_file f = {
        .name = (char *)e->name, .path = (char *)e->name, .bytes = e->bytes};

    if (tern_str_ends(e->name, "/") || !*e->name) /* a console's "folder" */
        return 0;
    tern_fetch_file_etag(&f, e->etag);
    return tern_fetch_list_add(a->l, a->how, f, a->err);
}

static int add_one(struct tern_fetch_list *l, const struct tern_fetch_how *how, const char *url,
                   struct tern_err *err)
{
    struct tern_store_head h;
    struct tern_store_url u;
    const int rc = tern_store_head(l->store, NULL, &h, err);

    if (rc <= 0)
        return rc < 0 ? -1
                      : tern_err_set(err, TERN_USAGE, "%s: there is no such %s%s", l->shown,
                                     tern_str_starts(url, "s3://") ? "object" : "file",
                                     tern_str_starts(url, "s3://") ? ". End a prefix with a slash."
                                                                   : "");
    if (tern_store_url_parse(url, &u, err) < 0)
        return -1;
    struct tern_fetch_file f = {
        .name = (char *)"", .path = (char *)tern_fs_basename(u.path), .bytes = h.bytes};
    if (u.scheme == TERN_STORE_S3)
        tern_fetch_file_etag(&f, h.etag);
    else
        snprintf(f.etag, sizeof f.etag, "%s", strlen(h.etag) < sizeof f.etag ? h.etag : "");
    if (how->sha256) {
        f.kind = TERN_FETCH_SHA256;
        snprintf(f.digest, sizeof f.digest, "%s", how->sha256);
    }
    const int added = tern_fetch_list_add(l, how, f, err);
    tern_store_url_free(&u);
    return added;
}

static int list_store(const char *url, const struct tern_fetch_how *how, struct tern_fetch_list *l,
                      struct tern_err *err)
{
    const struct tern_store_how store = {.stop = how->stop};
    struct add a = {l, how, err};

    l->store = tern_store_open(url, &store, err);
    if (!l->store)
        return -1;
    l->shown = tern_strdup(tern_store_url(l->store));
    if (tern_str_starts(url, "s3://") && tern_str_ends(url, "/")) {
        if (how->sha256)
            return tern_err_set(err, TERN_USAGE, "%s: --sha256 is of one file, not of a prefix",
                                l->shown);
        return tern_store_list(l->store, "", add_object, &a, err);
    }
    return add_one(l, how, url, err);
}

int tern_fetch_list(const char *url, const struct tern_fetch_how *how,
                    struct tern_fetch_list *ret_list, struct tern_err *err)
{
    struct tern_fetch_list l = {0};
    int rc;

    if (how->sha256 && (strlen(how->sha256) != 64 || strspn(how->sha256, "0123456789abcdef") != 64))
        return tern_err_set(err, TERN_USAGE, "--sha256 takes 64 hexadecimal digits, lower case");
    if (tern_str_starts(url, "hf://"))
        rc = how->sha256
                 ? tern_err_set(err, TERN_USAGE,
                                "--sha256 is for one file at s3:// or https://, not for a hub")
                 : tern_fetch_list_hub(url, how, &l, err);
    else if (tern_store_is(url))
        rc = list_store(url, how, &l, err);
    else
        rc = tern_err_set(err, TERN_USAGE,
                          "%.80s: nothing to fetch from. Allowed are hf://ORG/NAME, s3:// and "
                          "https://.",
                          url);
    if (rc == 0 && l.n == 0)
        rc = tern_err_set(err, TERN_USAGE, "%s: no file there is to be fetched%s", l.shown,
                          how->n_include || how->n_exclude ? " (--include, --exclude)" : "");
    if (rc < 0)
        tern_fetch_list_free(&l);
    else
        *ret_list = l;
    return rc;
}

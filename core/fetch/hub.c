/* Hugging Face hubs.  https://huggingface.co/docs/hub/api */
#include "core/fetch/list.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/store/store.h"
#include "core/store/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ANSWER_BYTES =
        64 << 20, /* of a page of a tree: at most 1,000 files; a model's page: all of them */
    PAGES_MAX = 10000,
};

struct hub {
    char *endpoint, *kind, *repo, *revision; /* "https://...", "models", "ORG/NAME", "main" */
    char *token, *denied;
    const struct tern_fetch_how *how;
    struct tern_fetch_list *l;
};

static void hub_free(struct hub *h)
{
    if (h->token)
        explicit_bzero(h->token, strlen(h->token));
    free(h->token);
    free(h->endpoint);
    free(h->kind);
    free(h->repo);
    free(h->revision);
    free(h->denied);
}

static bool good_name(const char *s, size_t n)
{
    return n > 0 && n <= 96 && s[0] != '.' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") >= n;
}

/* "[datasets/]ORG/NAME[@REV]". */
static int parse(struct hub *h, const char *url, struct tern_err *err)
{
    const char *rest = url + strlen("hf://"), *at = strchr(rest, '@');
    const bool data = tern_str_starts(rest, "datasets/");

    if (data)
        rest += strlen("datasets/");
    else if (tern_str_starts(rest, "models/"))
        rest += strlen("models/");
    const size_t n = at ? (size_t)(at - rest) : strlen(rest);
    const char *slash = memchr(rest, '/', n);
    if (!slash || !good_name(rest, (size_t)(slash - rest)) ||
        !good_name(slash + 1, n - (size_t)(slash - rest) - 1) || (at && !at[1]))
        return tern_err_set(err, TERN_USAGE,
                            "%.120s: not a name on a hub. Write hf://ORG/NAME, "
                            "hf://datasets/ORG/NAME, and @REVISION behind it if need be.",
                            url);
    h->kind = tern_strdup(data ? "datasets" : "models");
    h->repo = tern_strf("%.*s", (int)n, rest);
    h->revision = tern_strdup(at ? at + 1 : "main");
    if (strlen(h->revision) > 200)
        return tern_err_set(err, TERN_USAGE, "hf://%s: a revision has at most 200 bytes", h->repo);
    return 0;
}

/* HF_TOKEN, else the file that `huggingface-cli login` writes. */
static int read_token(struct hub *h, struct tern_err *err)
{
    const char *token = getenv("HF_TOKEN"), *path = getenv("HF_TOKEN_PATH"),
               *home = getenv("HF_HOME"), *user = getenv("HOME");
    char *file = NULL, *text = NULL;
    size_t len;

    if (!token || !*token) {
        file = path && *path   ? tern_strdup(path)
               : home && *home ? tern_fs_join(home, "token")
               : user && *user ? tern_fs_join(user, ".cache/huggingface/token")
                               : NULL;
        if (file && tern_fs_exists(file) && tern_fs_read(file, 4096, &text, &len, err) < 0) {
            free(file);
            return -1;
        }
        token = text;
    }
    if (token) {
        token += strspn(token, " \t\r\n");
        const size_t n = strcspn(token, " \t\r\n");
        h->token = n ? tern_strf("%.*s", (int)n, token) : NULL;
    }
    if (text)
        explicit_bzero(text, len);
    free(text);
    free(file);
    return 0;
}

static struct tern_store *open_at(const struct hub *h, const char *url, struct tern_err *err)
{
    const struct tern_store_how how = {
        .stop = h->how->stop, .bearer = h->token, .denied = h->denied};

    return tern_store_open(url, &how, err);
}

/* JSON from `url`, and the URL of the next page; the token goes there only if it is on the same
 * hub. */
static json_t *ask(const struct hub *h, const char *url, char **ret_next, struct tern_err *err)
{
    struct tern_store *s = open_at(h, url, err);
    char *text, *next = NULL;
    size_t len;
    json_t *j = NULL;

    if (!s)
        return NULL;
    if (tern_store_text(s, NULL, ANSWER_BYTES, &text, &len, ret_next ? &next : NULL, err) == 0) {
        j = tern_json_parse(text, len, h->l->shown, err);
        free(text);
    }
    const size_t n = strlen(h->endpoint);
    if (j && next && (strncmp(next, h->endpoint, n) != 0 || next[n] != '/')) {
        json_decref(j);
        j = NULL;
        tern_err_set(err, TERN_FAILED, "%s: the hub's next page is on another server", h->l->shown);
    }
    if (ret_next)
        *ret_next = j ? next : NULL;
    if (!j)
        free(next);
    tern_store_close(s);
    return j;
}

static bool is_hex(const char *s, size_t n)
{
    return s && strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

static int add_entry(const struct hub *h, const json_t *e, struct tern_err *err)
{
    const json_t *lfs = json_object_get(e, "lfs");
    const char *type = json_string_value(json_object_get(e, "type")),
               *path = json_string_value(json_object_get(e, "path")),
               *oid = json_string_value(json_object_get(lfs ? lfs : e, "oid"));
    const json_int_t bytes = json_integer_value(json_object_get(lfs ? lfs : e, "size"));
    struct tern_fetch_file f = {.bytes = (uint64_t)bytes};

    if (type && strcmp(type, "file") != 0)
        return 0;
    if (!type || !path || bytes < 0 || !is_hex(oid, lfs ? 64 : 40))
        return tern_err_set(err, TERN_FAILED,
                            "%s: the hub's list of files is not as expected: a file without path, "
                            "size or digest",
                            h->l->shown);
    f.kind = lfs ? TERN_FETCH_SHA256 : TERN_FETCH_GIT_SHA1;
    snprintf(f.digest, sizeof f.digest, "%s", oid);
    f.name = f.path = (char *)path;
    return tern_fetch_list_add(h->l, h->how, f, err);
}

static int read_tree(const struct hub *h, struct tern_err *err)
{
    char *url = tern_strf("%s/api/%s/%s/tree/%s?recursive=true", h->endpoint, h->kind, h->repo,
                          h->l->commit),
         *next;
    int rc = 0;

    for (int page = 0; url && rc == 0; page++) {
        json_t *j = page < PAGES_MAX ? ask(h, url, &next, err) : NULL, *e;
        size_t i;
        free(url);
        url = NULL;
        if (!j)
            return page < PAGES_MAX ? -1
                                    : tern_err_set(err, TERN_FAILED,
                                                   "%s: the hub's list has no end", h->l->shown);
        url = next;
        json_array_foreach(j, i, e)
        {
            if (rc == 0)
                rc = add_entry(h, e, err);
        }
        json_decref(j);
    }
    free(url);
    return rc;
}

static int read_commit(const struct hub *h, struct tern_err *err)
{
    struct tern_buf url = {0};

    tern_buf_printf(&url, "%s/api/%s/%s/revision/", h->endpoint, h->kind, h->repo);
    tern_store_encode(&url, h->revision, /* slashes= */ false);
    json_t *j = ask(h, url.data, NULL, err);
    const char *sha = json_string_value(json_object_get(j, "sha"));
    int rc = j ? 0 : -1;
    if (j && !is_hex(sha, 40))
        rc = tern_err_set(err, TERN_FAILED, "%s: the hub names no commit", h->l->shown);
    if (rc == 0)
        snprintf(h->l->commit, sizeof h->l->commit, "%s", sha);
    json_decref(j);
    tern_buf_free(&url);
    return rc;
}

/* A model has its weights once: as .safetensors, where it has those. */
static void drop_copies(struct tern_fetch_list *l)
{
    static const char *const other[] = {".bin",     ".pt",   ".pth",  ".h5",
                                        ".msgpack", ".onnx", ".gguf", ".ot"};
    bool have = false;
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++)
        have |= tern_str_ends(l->files[i].path, ".safetensors") && !strchr(l->files[i].path, '/');
    for (size_t i = 0; have && i < l->n; i++) {
        bool copy = tern_str_starts(l->files[i].path, "original/");
        for (size_t k = 0; k < sizeof other / sizeof *other; k++)
            copy |= tern_str_ends(l->files[i].path, other[k]);
        if (copy) {
            free(l->files[i].name);
            free(l->files[i].path);
        } else {
            l->files[n++] = l->files[i];
        }
    }
    if (have)
        l->n = n;
}

int tern_fetch_list_hub(const char *url, const struct tern_fetch_how *how,
                        struct tern_fetch_list *l, struct tern_err *err)
{
    const char *endpoint = getenv("HF_ENDPOINT");
    struct hub h = {.how = how, .l = l};
    int rc = parse(&h, url, err);

    if (rc < 0)
        goto out;
    h.endpoint = tern_strdup(endpoint && *endpoint ? endpoint : "https://huggingface.co");
    for (size_t n = strlen(h.endpoint); n && h.endpoint[n - 1] == '/'; n--)
        h.endpoint[n - 1] = '\0';
    const bool data = strcmp(h.kind, "datasets") == 0;
    l->shown = tern_strf("hf://%s%s@%s", data ? "datasets/" : "", h.repo, h.revision);
    h.denied =
        tern_strf(". There is no such name, or it wants permission: open %s/%s%s, agree to its "
                  "licence, and set HF_TOKEN to your token.",
                  h.endpoint, data ? "datasets/" : "", h.repo);
    rc = read_token(&h, err);
    if (rc == 0)
        rc = read_commit(&h, err);
    if (rc == 0)
        rc = read_tree(&h, err);
    if (rc == 0 && !data && how->n_include == 0)
        drop_copies(l);
    if (rc == 0) {
        char *root =
            tern_strf("%s/%s%s/resolve/%s", h.endpoint, data ? "datasets/" : "", h.repo, l->commit);
        l->store = open_at(&h, root, err);
        rc = l->store ? 0 : -1;
        free(root);
    }
out:
    hub_free(&h);
    return rc;
}

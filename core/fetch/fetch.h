/* Files from elsewhere into a folder: models and data of a Hugging Face hub (hf://), objects below
 * a prefix (s3://), one file (https://).
 *
 *     struct tern_fetch f = {.threads = 4};
 *     tern_fetch_list("hf://meta-llama/Llama-3.2-1B@main", &how, &list, err);
 *     tern_fetch_get(&list, "Llama-3.2-1B", &how, &done, err);
 *     tern_fetch_list_free(&list);
 *
 * Files wait in DIR/.tern-fetch until all are there and their digests are right; then they get
 * their names.  The next call goes on with them.  A file that is in DIR already and right is not
 * fetched; one that differs is replaced only where the caller says so. */
#ifndef TERN_FETCH_FETCH_H
#define TERN_FETCH_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

struct tern_store;

/* On a server, as listed: what a file's digest is of. */
enum tern_fetch_digest {
    TERN_FETCH_NONE,
    TERN_FETCH_SHA256,
    TERN_FETCH_GIT_SHA1, /* of "blob SIZE", a NUL and the contents */
    TERN_FETCH_MD5,
};

struct tern_fetch_file {
    char *name; /* in the store */
    char *path; /* in the folder */
    uint64_t bytes;
    enum tern_fetch_digest kind;
    char digest[65]; /* hex */
    char etag[256];  /* the object must still be that one; "": any */
    /* The caller has a digest of its own. Bytes that are wrong each time are taken, and judged by
     * that; an error would hide the state of the other files. */
    bool judged_later;
};

/* Sets the file's etag, as a list of object storage has it, and kind and digest from one that is an
 * MD5 of contents. */
void tern_fetch_file_etag(struct tern_fetch_file *f, const char *etag);

struct tern_fetch_list {
    struct tern_store *store;
    char *shown;     /* the source, for messages */
    char commit[64]; /* of a hub; "" elsewhere */
    struct tern_fetch_file *files;
    size_t n;
};

struct tern_fetch_how {
    /* Patterns of paths (fnmatch(3); * matches slashes, too).  None to include: all; of a hub's
     * model that has .safetensors files, not the same weights in other formats. */
    const char *const *include, *const *exclude;
    size_t n_include, n_exclude;
    const char *sha256; /* of https:// and of one object; NULL: not known */
    unsigned threads;   /* files at once; 0: 4 */
    bool replace;       /* files that are there and differ, else TERN_USAGE, and nothing changes */
    const int *stop;
    void (*progress)(void *ctx, uint64_t done_bytes, uint64_t all_bytes);
    void *ctx;
};

/* hf://ORG/NAME[@REV], hf://datasets/ORG/NAME[@REV], s3://BUCKET/PREFIX/, s3://BUCKET/KEY,
 * https://HOST/FILE.  A hub's address is HF_ENDPOINT; its token HF_TOKEN, or what `huggingface-cli
 * login` stored. */
int tern_fetch_list(const char *url, const struct tern_fetch_how *how,
                    struct tern_fetch_list *ret_list, struct tern_err *err);
void tern_fetch_list_free(struct tern_fetch_list *l);

struct tern_fetch_done {
    uint64_t files, bytes;             /* all of them */
    uint64_t fetched_files, got_bytes; /* those that were not there before */
    uint64_t other_bytes;              /* of other fetches that did not end, in DIR/.tern-fetch */
};
int tern_fetch_get(const struct tern_fetch_list *l, const char *dir,
                   const struct tern_fetch_how *how, struct tern_fetch_done *ret_done,
                   struct tern_err *err);

#endif

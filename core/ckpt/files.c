/* The small files that lie beside weights and make a folder complete on its own. */
#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/ckpt/manifest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What transformers, vLLM and llama.cpp look for. */
static const char *const companions[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
};
enum { COMPANIONS = sizeof companions / sizeof *companions };
_Static_assert(COMPANIONS <= (int)TERN_CKPT_COMPANIONS, "ckpt.h promises room for all");

static bool is_file(const char *path)
{
    struct stat st;

    return TERN_AGAIN(stat(path, &st)) == 0 && S_ISREG(st.st_mode);
}

size_t tern_ckpt_companions(const char *dir, struct tern_ckpt_file *files)
{
    size_t n = 0;

    if (is_file(dir)) {
        bool json = tern_str_ends(dir, ".json");
        if (json || tern_str_ends(dir, ".model"))
            files[n++] = (struct tern_ckpt_file){
                .name = json ? "tokenizer.json" : "tokenizer.model", .path = tern_strdup(dir)};
        return n;
    }
    for (size_t i = 0; i < COMPANIONS; i++) {
        char *path = tern_fs_join(dir, companions[i]);
        if (is_file(path))
            files[n++] = (struct tern_ckpt_file){.name = companions[i], .path = path};
        else
            free(path);
    }
    return n;
}

void tern_ckpt_companions_free(struct tern_ckpt_file *files, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free((char *)files[i].path);
}

int tern_ckpt_file_read(const struct tern_ckpt *c, const char *name, char **data, size_t *len,
                        struct tern_err *err)
{
    const struct tern_ckpt_extra *f = NULL;
    uint8_t sha[TERN_SHA256_BYTES];
    char *text = NULL;
    size_t n;
    int rc;

    for (size_t i = 0; i < c->n_files && !f; i++)
        if (strcmp(c->files[i].name, name) == 0)
            f = &c->files[i];
    char *path = tern_fs_join(c->path, name);
    if (c->manifest ? !f : !is_file(path)) {
        free(path);
        return 1;
    }
    rc = tern_fs_read(path, TERN_CKPT_FILE_MAX, &text, &n, err);
    if (rc == 0 && f) {
        tern_sha256(text, n, sha);
        if (memcmp(sha, f->sha256, sizeof sha) != 0)
            rc =
                tern_err_set(err, TERN_USAGE, "%s: is damaged: it does not match its digest", path);
    }
    free(path);
    if (rc < 0 || !data) {
        free(text);
        return rc;
    }
    *data = text;
    if (len)
        *len = n;
    return 0;
}

/* The files that a recipe reads, with what tells them from others. */
#include "core/inputs/inputs.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/str.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    INPUTS_MAX = 2, /* beside the token sets and a workload's files */
    HEAD_BYTES = 1 << 20,
    SCRIPT_BYTES = 16 << 20, /* a word may also name data of any size, which is no code */
};

struct list {
    struct tern_inputs_one *v;
    size_t n;
};

/* An input that cannot be read is left out. */
static void add(struct list *l, char *key, const char *path, const uint8_t *digest)
{
    if (!digest) {
        free(key);
        return;
    }
    struct tern_inputs_one *i = &l->v[l->n++];
    i->key = key;
    i->path = tern_strdup(path);
    tern_hex(i->sha256, digest, TERN_SHA256_BYTES);
}

static void add_sets(struct list *l, const char *key, const struct tern_recipe_sets *sets)
{
    uint8_t digest[TERN_SHA256_BYTES];

    for (size_t i = 0; i < sets->n; i++) {
        struct tern_data_set *s = tern_data_set_open(sets->sets[i].path, NULL);
        if (s)
            tern_data_set_digest(s, digest);
        add(l, tern_strf("%s[%zu]", key, i), sets->sets[i].path, s ? digest : NULL);
        tern_data_set_free(s);
    }
}

char *tern_inputs_template(const char *set)
{
    struct tern_data_set *s = tern_data_set_open(set, NULL);
    const char *meta = s ? tern_data_set_meta(s) : "";
    json_t *notes = *meta ? tern_json_parse(meta, strlen(meta), "notes", NULL) : NULL;
    const char *name =
        json_string_value(json_object_get(json_object_get(notes, "records"), "template"));
    char *found = name ? tern_strdup(name) : NULL;

    json_decref(notes);
    tern_data_set_free(s);
    return found;
}

static void add_file(struct list *l, const char *key, const char *path)
{
    uint8_t digest[TERN_SHA256_BYTES];

    add(l, tern_strdup(key), path, tern_sha256_file(path, digest, NULL) == 0 ? digest : NULL);
}

/* Name, size and head of every weights file: a safetensors head lists all arrays in it, and the
 * beginning of PyTorch's files does, too.  The number of files. */
static size_t add_heads(struct tern_sha256 *h, const char *dir, const char *files)
{
    char *pattern = tern_fs_join(dir, files), *head = malloc(HEAD_BYTES);
    glob_t g = {0};
    size_t n_files = 0;

    if (head && glob(pattern, GLOB_NOESCAPE, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc; i++) {
            struct stat st;
            FILE *f = TERN_AGAIN_PTR(fopen(g.gl_pathv[i], "re"));
            if (!f)
                continue;
            size_t n = fread(head, 1, HEAD_BYTES, f);
            int64_t bytes = TERN_AGAIN(fstat(fileno(f), &st)) == 0 ? st.st_size : -1;
            const char *name = tern_fs_basename(g.gl_pathv[i]);
            fclose(f);
            tern_sha256_add(h, name, strlen(name) + 1);
            tern_sha256_add(h, &bytes, sizeof bytes);
            tern_sha256_add(h, head, n);
            n_files++;
        }
    }
    globfree(&g);
    free(head);
    free(pattern);
    return n_files;
}

/* A checkpoint is known by its manifest, which has the digests of its shards. */
static void add_model(struct list *l, const char *from)
{
    uint8_t digest[TERN_SHA256_BYTES], config[TERN_SHA256_BYTES];
    char *manifest = tern_fs_join(from, "manifest.json"), *json = tern_fs_join(from, "config.json");

    if (!tern_fs_exists(json)) { /* Meta's */
        free(json);
        json = tern_fs_join(from, "params.json");
    }
    if (tern_sha256_file(manifest, digest, NULL) == 0) {
        add(l, tern_strdup("model.from"), from, digest);
    } else if (tern_sha256_file(json, config, NULL) == 0) {
        struct tern_sha256 *h = tern_sha256_new();
        tern_sha256_add(h, config, sizeof config);
        if (!add_heads(h, from, "*.safetensors") && !add_heads(h, from, "*.bin"))
            add_heads(h, from, "*.pth");
        tern_sha256_end(h, digest);
        add(l, tern_strdup("model.from"), from, digest);
    }
    free(manifest);
    free(json);
}

/* The files that words of a workload's command name: its script, a file of its settings.  The
 * program itself counts where it is a path.  In a container, an absolute path is another file. */
static void add_command(struct list *l, const struct tern_recipe *r)
{
    char **words = r->workload.command;

    for (size_t i = 0; words && words[i]; i++) {
        struct stat st;
        char *path;
        if ((i == 0 && !strchr(words[0], '/')) || (r->workload.container && words[i][0] == '/') ||
            TERN_AGAIN(stat(words[i], &st)) < 0 || !S_ISREG(st.st_mode) ||
            st.st_size > SCRIPT_BYTES || !(path = realpath(words[i], NULL)))
            continue;
        char *key = tern_strf("%s[%zu]", TERN_INPUTS_COMMAND, i);
        add_file(l, key, path);
        free(key);
        free(path);
    }
}

int tern_inputs_list(const struct tern_recipe *r, struct tern_inputs *out, struct tern_err *err)
{
    struct list l = {0};
    char *from = tern_inputs_model_from(r);

    size_t n_sets = r->data.held_out.n, n_words = 0;
    for (size_t k = 0; k < r->data.n_stages; k++)
        n_sets += r->data.stages[k].train.n;
    while (r->workload.command && r->workload.command[n_words])
        n_words++;
    l.v = tern_alloc(n_sets + n_words + INPUTS_MAX, sizeof *l.v, "a recipe's inputs", err);
    if (!l.v) {
        free(from);
        return -1;
    }
    if (from)
        add_model(&l, from);
    free(from);
    if (r->model.config)
        add_file(&l, "model.config", r->model.config);
    for (size_t k = 0; k < r->data.n_stages; k++)
        add_sets(&l, r->data.stages[k].key, &r->data.stages[k].train);
    add_sets(&l, "data.held_out", &r->data.held_out);
    add_command(&l, r);
    *out = (struct tern_inputs){l.v, l.n};
    return 0;
}

void tern_inputs_free(struct tern_inputs *inputs)
{
    for (size_t i = 0; i < inputs->n; i++) {
        free(inputs->v[i].key);
        free(inputs->v[i].path);
    }
    free(inputs->v);
    *inputs = (struct tern_inputs){0};
}

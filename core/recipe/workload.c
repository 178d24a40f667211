/* Recipes whose program is not tern's trainer: refused combinations, and {words} filled in. */
#include "core/base/str.h"
#include "core/base/yaml.h"
#include "core/recipe/lists.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ refused combinations */

static int check_progress(const struct tern_recipe *r, struct tern_err *err)
{
    const char *glob = r->workload.progress.glob, *marker = r->workload.progress.marker;

    if (!glob && !marker)
        return 0;
    if (!glob)
        return tern_recipe_fail(r, "workload.progress.marker", err,
                                "without 'glob', which says where the checkpoints are, such as "
                                "out/step_*.");
    if (!marker)
        return tern_recipe_fail(r, "workload.progress.glob", err,
                                "without 'marker', the file that says that a checkpoint is "
                                "complete: done (NeuronX Distributed), trainer_state.json "
                                "(Hugging Face's Trainer).");
    if (!*marker || strchr(marker, '/') || strcmp(marker, ".") == 0 || strcmp(marker, "..") == 0)
        return tern_recipe_fail(r, "workload.progress.marker", err,
                                "'%s' is not the name of a file in the checkpoint's folder.",
                                marker);
    return 0;
}

static bool is_file_like(const char *image)
{
    static const char *const ends[] = {".sqsh", ".squashfs", ".sqfs", ".img", NULL};

    for (size_t i = 0; ends[i]; i++)
        if (tern_str_ends(image, ends[i]))
            return true;
    return false;
}

static int check_container(const struct tern_recipe *r, struct tern_err *err)
{
    const char *image = r->workload.container;

    if (!image)
        return 0;
    if (!*image)
        return tern_recipe_fail(r, "workload.container", err, "is empty.");
    if (r->launch.with == TERN_LAUNCH_MPIRUN)
        return tern_recipe_fail(r, "workload.container", err,
                                "is for srun (pyxis); launch.with says mpirun.");
    if (is_file_like(image) && *image != '/' && strncmp(image, "./", 2) != 0)
        return tern_recipe_fail(r, "workload.container", err,
                                "'%s' would be an image of a registry: for pyxis a file's name "
                                "begins with / or ./ . Write ./%s, or its whole path.",
                                image, image);
    return 0;
}

static int check_precompile(const struct tern_recipe *r, struct tern_err *err)
{
    if (r->workload.precompile.cache && !r->workload.precompile.command)
        return tern_recipe_fail(r, "workload.precompile.cache", err,
                                "without precompile.command nothing would fill it. Give the "
                                "command, or set NEURON_COMPILE_CACHE_URL yourself.");
    return 0;
}

int tern_recipe_check_workload(const struct tern_recipe *r, struct tern_err *err)
{
    int64_t tasks = r->workload.tasks_per_node, workers = r->workload.workers_per_node;

    if (workers % tasks)
        return tern_recipe_fail(r, "workload.workers_per_node", err,
                                "%" PRId64 " workers do not divide over %" PRId64 " tasks a node.",
                                workers, tasks);
    if (check_progress(r, err) < 0 || check_container(r, err) < 0 || check_precompile(r, err) < 0)
        return -1;
    char **out = NULL;
    if (tern_recipe_fill(r, "workload.command", r->workload.command, NULL, &out, err) < 0)
        return -1;
    return tern_recipe_fill(r, "workload.precompile.command", r->workload.precompile.command, NULL,
                            &out, err);
}

int tern_recipe_check_mirror(const struct tern_recipe *r, struct tern_err *err)
{
    const char *mirror = r->checkpoint.mirror, *dir = r->checkpoint.dir;
    const char *local = r->checkpoint.local;

    const bool bucket = mirror && tern_str_starts(mirror, "s3://");

    if (bucket && (mirror[5] == '\0' || mirror[5] == '/'))
        return tern_recipe_fail(r, "checkpoint.mirror", err,
                                "'%s' names no bucket. Write s3://BUCKET/PREFIX.", mirror);
    if (mirror && !bucket && strstr(mirror, "://"))
        return tern_recipe_fail(r, "checkpoint.mirror", err,
                                "'%s' is neither a folder nor s3://BUCKET/PREFIX.", mirror);
    if (mirror && dir && strcmp(mirror, dir) == 0)
        return tern_recipe_fail(r, "checkpoint.mirror", err, "is checkpoint.dir itself.");
    if (local && r->workload.command)
        return tern_recipe_fail(r, "checkpoint.local", err,
                                "is for tern's own trainer; workload.command saves by itself.");
    if (r->checkpoint.partner && !local)
        return tern_recipe_fail(r, "checkpoint.partner", err,
                                "without checkpoint.local there is nothing to copy.");
    if (local && strstr(local, "://"))
        return tern_recipe_fail(r, "checkpoint.local", err,
                                "'%s' is no folder on a node's own storage.", local);
    if (local && ((dir && strcmp(local, dir) == 0) || (mirror && strcmp(local, mirror) == 0)))
        return tern_recipe_fail(r, "checkpoint.local", err,
                                "is checkpoint.dir or checkpoint.mirror itself.");
    return 0;
}

/* ------------------------------------------------------------------ {nodes} */

const struct tern_recipe_fill_name tern_recipe_fills[TERN_FILLS + 1] = {
    [TERN_FILL_ACCUMULATE] = {"accumulate", "micro-batches that a worker adds up in a step"},
    [TERN_FILL_ATTEMPT] = {"attempt", "the attempt's number, from 1"},
    [TERN_FILL_CACHE] = {"cache", "the folder of graphs compiled for this recipe and layout"},
    [TERN_FILL_DATA] = {"data", "data-parallel degree: world / (tensor x pipeline)"},
    [TERN_FILL_GLOBAL_BATCH] = {"global_batch", "batch.global"},
    [TERN_FILL_MASTER_ADDR] = {"master_addr", "name of the first node"},
    [TERN_FILL_MASTER_PORT] = {"master_port", "a port on the first node"},
    [TERN_FILL_MICRO_BATCH] = {"micro_batch", "batch.micro"},
    [TERN_FILL_NODE_INDEX] = {"node_index", "the node's number, from 0"},
    [TERN_FILL_NODES] = {"nodes", "number of nodes"},
    [TERN_FILL_PIPELINE] = {"pipeline", "parallel.pipeline"},
    [TERN_FILL_RUN] = {"run", "the run's id"},
    [TERN_FILL_SEQ_LEN] = {"seq_len", "batch.seq_len"},
    [TERN_FILL_STEPS] = {"steps", "the run's steps; in precompile.command, precompile.steps"},
    [TERN_FILL_TENSOR] = {"tensor", "parallel.tensor"},
    [TERN_FILL_WORKERS] = {"workers",
                           "workers that a task starts: workers_per_node / tasks_per_node"},
    [TERN_FILL_WORLD] = {"world", "number of all workers"},
    [TERN_FILLS] = {NULL, NULL},
};

static int fill_fail(const struct tern_recipe *r, const char *key, const char *word,
                     const char *name, struct tern_err *err)
{
    const char *names[TERN_FILLS + 1];

    for (size_t i = 0; i <= TERN_FILLS; i++)
        names[i] = tern_recipe_fills[i].name;
    const char *near = tern_str_nearest(name, names);
    return tern_recipe_fail(r, key, err,
                            "'%s': tern fills in no {%s}%s%s%s. See `tern help recipe`; write "
                            "{{%s}} for the text {%s}.",
                            word, name, near ? "; did you mean {" : "", near ? near : "",
                            near ? "}?" : "", name, name);
}

/* "{name}" at `s`?  Its length; 0 when these are braces of another kind, such as JSON's or a
 * shell's ${name}. */
static size_t placeholder(const char *word, const char *s, char name[32])
{
    size_t len = strspn(s + 1, "abcdefghijklmnopqrstuvwxyz_");

    if (!len || len > 31 || s[1 + len] != '}' || (s > word && s[-1] == '$'))
        return 0;
    snprintf(name, 32, "%.*s", (int)len, s + 1);
    return len + 2;
}

/* "{{name}}" at `s`: its length. */
static size_t escaped(const char *word, const char *s, char name[32])
{
    size_t len = s[0] == '{' && s[1] == '{' ? placeholder(word, s + 1, name) : 0;

    return len && s[1 + len] == '}' ? len + 2 : 0;
}

/* One word; `to` NULL only checks. */
static int fill_word(const struct tern_recipe *r, const char *key, const char *word,
                     const char *const *values, struct tern_buf *to, struct tern_err *err)
{
    char name[32];

    for (const char *s = word; *s;) {
        size_t len = *s == '{' ? escaped(word, s, name) : 0;
        if (len) {
            if (to)
                tern_buf_printf(to, "{%s}", name);
            s += len;
            continue;
        }
        len = *s == '{' ? placeholder(word, s, name) : 0;
        if (!len) {
            if (to)
                tern_buf_add(to, s, 1);
            s++;
            continue;
        }
        size_t i = 0;
        while (i < TERN_FILLS && strcmp(tern_recipe_fills[i].name, name) != 0)
            i++;
        if (i == TERN_FILLS)
            return fill_fail(r, key, word, name, err);
        if (to && !values[i])
            return tern_recipe_fail(r, key, err,
                                    "'%s': {%s} is not known here: the recipe does not say it, or "
                                    "there is none.",
                                    word, name);
        if (to)
            tern_buf_puts(to, values[i]);
        s += len;
    }
    return to ? tern_buf_check(to, "a word of a command", err) : 0;
}

void tern_recipe_words_free(char **words)
{
    for (char **w = words; w && *w; w++)
        free(*w);
    free(words);
}

int tern_recipe_fill(const struct tern_recipe *r, const char *key, char *const *words,
                     const char *const *values, char ***out, struct tern_err *err)
{
    size_t n = 0;
    char **filled = NULL;

    while (words && words[n])
        n++;
    if (values && !(filled = tern_alloc(n + 1, sizeof *filled, "a command", err)))
        return -1;
    for (size_t i = 0; i < n; i++) {
        struct tern_buf b = {.max = 1 << 20};
        if (fill_word(r, key, words[i], values, values ? &b : NULL, err) < 0) {
            tern_buf_free(&b);
            tern_recipe_words_free(filled);
            return -1;
        }
        if (filled)
            filled[i] = tern_strdup(b.data ? b.data : "");
        tern_buf_free(&b);
    }
    if (values)
        *out = filled;
    return 0;
}

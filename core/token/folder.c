/* A model's folder: which file of it is read, and what its configuration says of BOS and EOS.
 *
 * As transformers does it, tokenizer_config.json counts before special_tokens_map.json.  Where
 * neither names a token, config.json and generation_config.json may have its id. */
#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/token/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool holds(const char *folder, const char *name)
{
    char *file = tern_fs_join(folder, name);
    bool there = tern_fs_exists(file);

    free(file);
    return there;
}

char *tern_token_file(const char *path, struct tern_err *err)
{
    struct stat st;

    if (TERN_AGAIN(stat(path, &st)) < 0 || !S_ISDIR(st.st_mode))
        return tern_strdup(path);
    const bool model = holds(path, "tokenizer.model"), json = holds(path, "tokenizer.json");
    if (model && json)
        tern_info("%s: tokenizer.model is read, not tokenizer.json", path);
    if (model || json)
        return tern_fs_join(path, model ? "tokenizer.model" : "tokenizer.json");
    if (holds(path, "vocab.json") && holds(path, "merges.txt"))
        tern_err_set(err, TERN_USAGE,
                     "%s: vocab.json and merges.txt are not read. Make a tokenizer.json of them: "
                     "AutoTokenizer.from_pretrained('%s').save_pretrained('%s')",
                     path, path, path);
    else
        tern_err_set(err, TERN_USAGE,
                     "%s: holds no tokenizer.model and no tokenizer.json. Name a folder that does, "
                     "or such a file.",
                     path);
    return NULL;
}

/* ---- BOS and EOS ---- */

enum { BOS, EOS, N_SPECIALS };
static const char *const token_keys[] = {"bos_token", "eos_token"};
static const char *const id_keys[] = {"bos_token_id", "eos_token_id"};

struct specials {
    struct tern_token *t;
    int32_t *id[N_SPECIALS];
    bool found[N_SPECIALS];
};

/* Added tokens come first. */
static int32_t id_of(const struct tern_token *t, const char *text)
{
    const size_t len = strlen(text);

    for (uint32_t i = 0; i < t->n_added; i++)
        if (t->added[i].len == len && memcmp(t->added[i].text, text, len) == 0)
            return (int32_t)t->added[i].id;
    for (uint32_t i = 0; i < t->n_vocab; i++)
        if (t->pieces[i].len == len && memcmp(t->pieces[i].text, text, len) == 0)
            return (int32_t)i;
    return TERN_TOKEN_NONE;
}

/* "</s>", or an object with the text as its content; NULL means none.  Older converters wrote an
 * empty text where they knew nothing. */
static int by_name(struct specials *s, const json_t *j, int which, const char *path,
                   struct tern_err *err)
{
    const json_t *v = json_object_get(j, token_keys[which]);
    const char *text = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);

    if (!v || (text && !*text))
        return 0;
    if (!text && !json_is_null(v))
        return tern_err_set(err, TERN_USAGE, "%s: %s is no text", path, token_keys[which]);
    int32_t id = text ? id_of(s->t, text) : TERN_TOKEN_NONE;
    if (text && id < 0) {
        char shown[64];
        snprintf(shown, sizeof shown, "%s", text);
        tern_str_mask(shown);
        if (s->t->format == TERN_TOKEN_JSON)
            return tern_err_set(err, TERN_USAGE, "%s: %s '%s' is not in the vocabulary of %s", path,
                                token_keys[which], shown, s->t->path);
        tern_warn("%s: %s '%s' is not in the vocabulary of %s, which keeps its own", path,
                  token_keys[which], shown, s->t->path);
        return 0;
    }
    *s->id[which] = id;
    s->found[which] = true;
    return 0;
}

/* Of several ids that end a text the first one ends documents. */
static int by_id(struct specials *s, const json_t *j, int which, const char *path,
                 struct tern_err *err)
{
    const json_t *v = json_object_get(j, id_keys[which]);

    if (json_is_array(v))
        v = json_array_get(v, 0);
    if (!v)
        return 0;
    const double id = json_is_number(v) ? json_number_value(v) : TERN_TOKEN_NONE;
    if (!json_is_null(v) && !(id >= 0 && id < s->t->n_vocab && id == (double)(int32_t)id))
        return tern_err_set(err, TERN_USAGE, "%s: %s is no id of %s, which has 0 to %u", path,
                            id_keys[which], s->t->path, s->t->n_vocab - 1);
    *s->id[which] = (int32_t)id;
    s->found[which] = true;
    return 0;
}

static int read_config(struct specials *s, const char *folder, const char *name, bool ids,
                       struct tern_err *err)
{
    char *path = tern_fs_join(folder, name);
    json_t *j = NULL;
    int rc = 0;

    if (!tern_fs_exists(path))
        goto out;
    j = tern_json_python_load(path, TERN_TOKEN_CONFIG_MAX, err);
    if (!j)
        rc = -1;
    else if (!json_is_object(j))
        rc = tern_err_set(err, TERN_USAGE, "%s: is no JSON object", path);
    for (int k = 0; k < N_SPECIALS && rc == 0; k++)
        if (!s->found[k])
            rc = ids ? by_id(s, j, k, path, err) : by_name(s, j, k, path, err);
out:
    json_decref(j);
    free(path);
    return rc;
}

/* The one special token with a well-known name. */
static const char *guess(struct specials *s, int which)
{
    static const char *const names[N_SPECIALS][6] = {
        {"<s>", "<|begin_of_text|>", "<bos>"},
        {"</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>"}};
    const char *found = NULL;

    for (uint32_t i = 0; i < s->t->n_added; i++) {
        const struct tern_added *a = &s->t->added[i];
        for (const char *const *name = names[which]; a->special && *name; name++) {
            if (a->len != strlen(*name) || memcmp(a->text, *name, a->len) != 0)
                continue;
            if (found) {
                *s->id[which] = TERN_TOKEN_NONE;
                return NULL;
            }
            found = *name;
            *s->id[which] = (int32_t)a->id;
        }
    }
    return found;
}

int tern_token_specials(struct tern_token *t, const char *file, struct tern_err *err)
{
    static const struct {
        const char *name;
        bool ids;
    } configs[] = {{"tokenizer_config.json", false},
                   {"special_tokens_map.json", false},
                   {"config.json", true},
                   {"generation_config.json", true}};
    struct specials s = {.t = t, .id = {&t->bos, &t->eos}};
    char *folder = tern_fs_dirname(file);
    int rc = 0;

    /* Other formats know their own: an id of the model's configuration tells nothing new. */
    for (size_t i = 0; i < sizeof configs / sizeof configs[0] && rc == 0; i++)
        if (!configs[i].ids || t->format == TERN_TOKEN_JSON)
            rc = read_config(&s, folder, configs[i].name, configs[i].ids, err);
    free(folder);
    if (rc < 0 || t->format != TERN_TOKEN_JSON || s.found[EOS])
        return rc;
    const char *bos = s.found[BOS] ? NULL : guess(&s, BOS), *eos = guess(&s, EOS);
    if (eos)
        tern_info("%s: no configuration beside it names its EOS: %s is taken%s%s", file, eos,
                  bos ? ", as BOS " : "", bos ? bos : "");
    return 0;
}

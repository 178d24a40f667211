/* Adapters as PEFT keeps them, in: adapter_config.json and adapter_model.safetensors or .bin.
 *
 * Each weight's adapter is known by its arrays, so target_modules and its like need no reading. Its
 * rank is known by their shapes, its alpha by lora_alpha and alpha_pattern (PEFT 0.21,
 * utils/other.py, get_pattern_key). */
#include "core/convert/export.h"
#include "core/convert/foreign.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"

#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#define NAMES "base_model.model." /* before each name in the file */

enum {
    PATTERNS_MAX = 4096, /* one for each matrix of 500 layers */
    PATTERN_MAX = 200,   /* bytes; a module's whole name has 40 */
    NESTED_MAX = 4,      /* groups in each other */
};

/* The modules that have this alpha. */
struct pattern {
    regex_t re;
    double alpha;
};

struct tern_convert_peft {
    char *path;
    json_t *config;
    struct tern_ckpt *c;
    double alpha;
    struct pattern *patterns; /* [n_patterns]: the first that matches counts */
    size_t n_patterns;
    bool rslora, dora;
};

/* ---------------------------------------------------------------- adapter_config.json */

enum meaning {
    READ,     /* its value is used, or the arrays tell it */
    HARMLESS, /* the merged weights do not depend on it */
    REFUSED,  /* another value than null, false or empty is another computation */
};

/* The fields of LoraConfig and PeftConfig, PEFT 0.21.2.  tests/peers/adapters-in.sh compares. */
static const struct {
    const char *name;
    enum meaning meaning;
} fields[] = {
    {"peft_type", READ},
    {"r", READ},
    {"lora_alpha", READ},
    {"use_rslora", READ},
    {"use_dora", READ},
    {"rank_pattern", READ},
    {"alpha_pattern", READ},
    {"target_modules", READ},
    {"exclude_modules", READ},
    {"layers_to_transform", READ},
    {"layers_pattern", READ},
    {"modules_to_save", READ},
    {"bias", READ},           /* Llama has none: arrays of some are refused */
    {"fan_in_fan_out", READ}, /* PEFT itself takes it for false at linear layers */
    {"init_lora_weights", READ},
    {"base_model_name_or_path", READ},
    {"lora_dropout", HARMLESS},
    {"task_type", HARMLESS},
    {"auto_mapping", HARMLESS},
    {"peft_version", HARMLESS},
    {"revision", HARMLESS},
    {"inference_mode", HARMLESS},
    {"megatron_core", HARMLESS},
    {"loftq_config", HARMLESS}, /* of init_lora_weights, as the three below */
    {"eva_config", HARMLESS},
    {"corda_config", HARMLESS},
    {"lora_ga_config", HARMLESS},
    {"qalora_group_size", HARMLESS},
    {"runtime_config", HARMLESS},
    {"megatron_config", REFUSED},
    {"trainable_token_indices", REFUSED},
    {"velora_config", REFUSED},
    {"alora_invocation_tokens", REFUSED},
    {"use_qalora", REFUSED},
    {"monteclora_config", REFUSED},
    {"layer_replication", REFUSED},
    {"lora_bias", REFUSED},
    {"target_parameters", REFUSED},
    {"use_bdlora", REFUSED},
    {"arrow_config", REFUSED},
    {"kasa_config", REFUSED},
    {"ensure_weight_tying", REFUSED},
};

static bool is_nothing(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

static int check_fields(const struct tern_convert_peft *p, struct tern_err *err)
{
    const char *key;
    json_t *v;

    json_object_foreach(p->config, key, v)
    {
        enum meaning m = REFUSED; /* of a later PEFT */
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
            if (strcmp(fields[i].name, key) == 0)
                m = fields[i].meaning;
        if (m == REFUSED && !is_nothing(v))
            return tern_err_set(err, TERN_USAGE,
                                "%s: adapter_config.json has %.60s, which tern does not put into "
                                "weights. Merge with PEFT itself: merge_and_unload()",
                                p->path, key);
    }
    return 0;
}

/* Some begin from a base that they have changed: added to the untouched one they are wrong. */
static int check_start(const struct tern_convert_peft *p, struct tern_err *err)
{
    static const char *const good[] = {"gaussian", "eva", "orthogonal"};
    const json_t *v = json_object_get(p->config, "init_lora_weights");
    const char *word = json_string_value(v);

    if (!v || json_is_null(v) || json_is_boolean(v))
        return 0;
    for (size_t i = 0; word && i < sizeof good / sizeof *good; i++)
        if (strcmp(good[i], word) == 0)
            return 0;
    return tern_err_set(err, TERN_USAGE,
                        "%s: init_lora_weights is %.40s: these adapters belong to a changed base. "
                        "Convert them with PEFT: save_pretrained(..., "
                        "path_initial_model_for_weight_conversion=...)",
                        p->path, word ? word : "of an unknown kind");
}

/* ---------------------------------------------------------------- alpha_pattern */

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

/* Behind the class whose '[' is before `s`; NULL when Python and POSIX may read it differently. */
static const char *pass_class(const char *s)
{
    s += *s == '^';
    if (!is_plain(*s))
        return NULL;
    while (*s != ']') {
        if (*s == '-' && s[1] == ']')
            return s + 2;
        if (!is_plain(*s) || (s[1] == '-' && s[2] != ']' && !is_plain(s[2])))
            return NULL;
        s += s[1] == '-' && s[2] != ']' ? 3 : 1;
    }
    return s + 1;
}

/* Is it an expression that means the same in Python and in POSIX, and is cheap?  Of letters,
 * digits, _ . \. ^ $ | groups, classes, and * + ? behind one of these. */
static bool is_common(const char *s)
{
    bool atom = false; /* before `s` is what can be repeated */
    int depth = 0;

    if (strlen(s) > PATTERN_MAX)
        return false;
    while (s && *s) {
        const char c = *s++;
        if (c == '(') {
            atom = false;
            depth++;
        } else if (c == ')') {
            atom = true;
            depth--;
        } else if (c == '|' || c == '^' || c == '$') {
            atom = false;
        } else if (c == '*' || c == '+' || c == '?') {
            if (!atom)
                return false;
            atom = false;
        } else {
            atom = true;
            if (c == '[')
                s = pass_class(s);
            else if (c == '\\' ? *s++ != '.' : !is_plain(c))
                return false;
        }
        if (depth < 0 || depth > NESTED_MAX)
            return false;
    }
    return s && depth == 0;
}

/* As re.match("(.*\.)?(KEY)$", module) of Python. */
static bool compile(const char *key, regex_t *ret_re)
{
    if (!is_common(key))
        return false;
    char *text = tern_strf("^(.*\\.)?(%s)$", key);
    const int rc = regcomp(ret_re, text, REG_EXTENDED | REG_NOSUB);
    free(text);
    return rc == 0;
}

static int read_patterns(struct tern_convert_peft *p, struct tern_err *err)
{
    json_t *all = json_object_get(p->config, "alpha_pattern"), *v;
    const char *key;

    if (is_nothing(all))
        return 0;
    if (!json_is_object(all) || json_object_size(all) > PATTERNS_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "%s: alpha_pattern is no object of at most %d patterns", p->path,
                            PATTERNS_MAX);
    p->patterns = tern_alloc(json_object_size(all), sizeof *p->patterns, p->path, err);
    if (!p->patterns)
        return -1;
    json_object_foreach(all, key, v)
    {
        if (!json_is_number(v))
            return tern_err_set(err, TERN_USAGE, "%s: alpha_pattern '%.80s' has no number", p->path,
                                key);
        if (!compile(key, &p->patterns[p->n_patterns].re))
            return tern_err_set(err, TERN_USAGE,
                                "%s: alpha_pattern '%.80s' cannot be read: tern knows letters, "
                                "digits, _ . \\. ^ $ | ( ) [ ] * + ? in up to %d bytes. Merge with "
                                "PEFT itself: merge_and_unload()",
                                p->path, key, PATTERN_MAX);
        p->patterns[p->n_patterns++].alpha = json_number_value(v);
    }
    return 0;
}

/* ---------------------------------------------------------------- the folder */

static int read_config(struct tern_convert_peft *p, struct tern_err *err)
{
    char *path = tern_fs_join(p->path, "adapter_config.json");
    if (!p->config)
        p->config = tern_json_python_load(path, 1 << 20, err);
    free(path);
    if (!p->config)
        return -1;
    const char *type = json_string_value(json_object_get(p->config, "peft_type"));
    const json_t *alpha = json_object_get(p->config, "lora_alpha");
    if (!type || strcmp(type, "LORA") != 0)
        return tern_err_set(err, TERN_USAGE, "%s: peft_type is %.40s; tern merges LORA alone",
                            p->path, type ? type : "absent");
    if (!json_is_number(alpha))
        return tern_err_set(err, TERN_USAGE, "%s: adapter_config.json has no lora_alpha", p->path);
    p->alpha = json_number_value(alpha);
    p->rslora = json_is_true(json_object_get(p->config, "use_rslora"));
    p->dora = json_is_true(json_object_get(p->config, "use_dora"));
    return check_fields(p, err) < 0 || check_start(p, err) < 0 ? -1 : read_patterns(p, err);
}

bool tern_convert_peft_is(const char *dir)
{
    char *path = tern_fs_join(dir, "adapter_config.json");
    const bool is = tern_fs_exists(path);

    free(path);
    return is;
}

int tern_convert_peft_refuse(const char *dir, struct tern_err *err)
{
    char *path = tern_fs_join(dir, "adapter_config.json");
    json_t *config = tern_json_python_load(path, 1 << 20, NULL);
    const char *type = json_string_value(json_object_get(config, "peft_type"));
    const char *base = json_string_value(json_object_get(config, "base_model_name_or_path"));
    const bool there = base && *base && tern_fs_exists(base);
    const int rc = config ? -1 : 0;

    if (config) {
        tern_err_set(err, TERN_USAGE,
                     "%s: holds adapters of PEFT (%.40s), and no model. Their base is '%.200s', "
                     "which is %s here. Put them into it, and give the new folder: tern ckpt merge "
                     "%s%s -o FOLDER",
                     dir, type ? type : "of no kind", base ? base : "",
                     there ? "a folder" : "no folder", dir, there ? "" : " --base BASE");
        if (err)
            tern_str_mask(err->text);
    }
    json_decref(config);
    free(path);
    return rc;
}

struct tern_convert_peft *tern_convert_peft_open(const char *dir, struct tern_err *err)
{
    static const char st[] = "adapter_model.safetensors";
    struct tern_convert_peft *p = tern_alloc(1, sizeof *p, dir, err);

    if (!p)
        return NULL;
    p->path = tern_strdup(dir);
    char *file = tern_fs_join(dir, st);
    if (read_config(p, err) == 0)
        p->c = tern_fs_exists(file)
                   ? tern_ckpt_open_safetensors(dir, st, err)
                   : tern_convert_open_bin(dir, "adapter_model.bin", /* key= */ NULL, err);
    free(file);
    if (p->c)
        return p;
    if (err)
        tern_str_mask(err->text); /* words come from the file */
    tern_convert_peft_close(p);
    return NULL;
}

struct tern_convert_peft *tern_convert_peft_of(const char *dir, json_t *config, struct tern_ckpt *c,
                                               struct tern_err *err)
{
    struct tern_convert_peft *p = tern_alloc(1, sizeof *p, dir, err);

    if (!p) {
        json_decref(config);
        tern_ckpt_close(c);
        return NULL;
    }
    *p = (struct tern_convert_peft){.path = tern_strdup(dir), .config = config, .c = c};
    if (read_config(p, err) == 0)
        return p;
    tern_convert_peft_close(p);
    return NULL;
}

void tern_convert_peft_close(struct tern_convert_peft *p)
{
    if (!p)
        return;
    tern_ckpt_close(p->c);
    for (size_t i = 0; i < p->n_patterns; i++)
        regfree(&p->patterns[i].re);
    free(p->patterns);
    json_decref(p->config);
    free(p->path);
    free(p);
}

struct tern_ckpt *tern_convert_peft_arrays(const struct tern_convert_peft *p)
{
    return p->c;
}

char *tern_convert_peft_base(const struct tern_convert_peft *p, struct tern_err *err)
{
    const char *base = json_string_value(json_object_get(p->config, "base_model_name_or_path"));

    if (base && *base && tern_fs_exists(base))
        return tern_strdup(base);
    tern_err_set(err, TERN_USAGE,
                 "%s: names '%.200s' as its base model, which is no folder here. "
                 "Give --base.",
                 p->path, base ? base : "");
    return NULL;
}

/* ---------------------------------------------------------------- a weight's adapter */

/* "model.layers.0.self_attn.q_proj" of its weight's name. */
static char *module_of(const struct tern_model_tensor *t)
{
    return tern_strf("%.*s", (int)(strlen(t->name) - strlen(".weight")), t->name);
}

static double alpha_of(const struct tern_convert_peft *p, const char *module)
{
    for (size_t i = 0; i < p->n_patterns; i++)
        if (regexec(&p->patterns[i].re, module, 0, NULL, 0) == 0)
            return p->patterns[i].alpha;
    return p->alpha;
}

int tern_convert_peft_beside(const struct tern_convert_peft *p, const struct tern_model_tensor *t,
                             struct tern_model_adapters *ret_adapter, struct tern_err *err)
{
    char *module = module_of(t), *name = tern_strf(NAMES "%s.lora_A.weight", module);
    struct tern_ckpt_info a;
    int rc = tern_ckpt_find(p->c, name, &a);

    if (rc && (a.ndim != 2 || a.shape[0] == 0 || a.shape[0] > 1 << 20))
        rc = tern_err_set(err, TERN_USAGE, "%s: '%s' is no matrix", p->path, name);
    if (rc > 0) {
        const double r = (double)a.shape[0], alpha = alpha_of(p, module);
        *ret_adapter = (struct tern_model_adapters){
            .rank = (int)a.shape[0], .scale = alpha / (p->rslora ? sqrt(r) : r), .dora = p->dora};
    }
    free(name);
    free(module);
    return rc;
}

const char *tern_convert_peft_saved(const struct tern_convert_peft *p, const char *tensor)
{
    struct tern_ckpt_info info;
    char *name = tern_strf(NAMES "%s", tensor);
    const bool there = tern_ckpt_find(p->c, name, &info);

    free(name);
    return there ? info.name : NULL;
}

/* ---------------------------------------------------------------- the whole */

/* The owner of an array of the file: a module's adapter (its weight's name in `of`), a whole weight
 * of a module that was trained, or neither. */
static bool place_of(const char *array, char *of, size_t n, bool *whole)
{
    static const char *const ends[] = {".lora_A.weight", ".lora_B.weight",
                                       ".lora_magnitude_vector"};

    if (!tern_str_starts(array, NAMES))
        return false;
    array += sizeof NAMES - 1;
    *whole = true;
    snprintf(of, n, "%s", array);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (tern_str_ends(array, ends[i])) {
            *whole = false;
            snprintf(of, n, "%.*s.weight", (int)(strlen(array) - strlen(ends[i])), array);
        }
    }
    return true;
}

static int check_array(const struct tern_convert_peft *p, const struct tern_ckpt_info *a,
                       const struct tern_model_config *config, struct tern_err *err)
{
    struct tern_model_tensor t;
    char of[TERN_CKPT_NAME_MAX + 16], pair[TERN_CKPT_NAME_MAX + 32];
    bool whole = false;
    const int64_t i =
        place_of(a->name, of, sizeof of, &whole) ? tern_model_tensor_find(config, of) : -1;

    if (i < 0)
        return tern_err_set(err, TERN_USAGE,
                            "%s: array '%s' has no place in the base model, or is of a kind that "
                            "tern does not put into weights",
                            p->path, a->name);
    tern_model_tensor(config, (size_t)i, &t);
    snprintf(pair, sizeof pair, NAMES "%.*s.lora_%c.weight", (int)(strlen(of) - strlen(".weight")),
             of, tern_str_ends(a->name, ".lora_A.weight") ? 'B' : 'A');
    if (!whole) {
        if (t.ndim != 2 || !tern_ckpt_find(p->c, pair, NULL))
            return tern_err_set(err, TERN_USAGE, "%s: array '%s' stands alone: there is no '%s'",
                                p->path, a->name, pair);
        if (tern_str_ends(a->name, ".lora_magnitude_vector") && !p->dora)
            return tern_err_set(err, TERN_USAGE, "%s: holds '%s', and use_dora is false", p->path,
                                a->name);
        return 0;
    }
    if (tern_ckpt_find(p->c, pair, NULL))
        return tern_err_set(err, TERN_USAGE,
                            "%s: holds all of '%s', and an adapter of it ('%s'). Which of them "
                            "counts is not known: merge with PEFT itself: merge_and_unload()",
                            p->path, of, pair);
    bool same = a->ndim == t.ndim && tern_ckpt_can_convert(TERN_CKPT_F32, a->type);
    for (int d = 0; same && d < t.ndim; d++)
        same = a->shape[d] == (uint64_t)t.shape[d];
    if (!same)
        return tern_err_set(err, TERN_USAGE, "%s: '%s' has another shape than in the base model",
                            p->path, a->name);
    if (config->tied && t.kind == TERN_MODEL_EMBED)
        return tern_err_set(err, TERN_USAGE,
                            "%s: has trained the embedding of a model whose head is its embedding. "
                            "PEFT parts the two; merge with PEFT itself: merge_and_unload()",
                            p->path);
    return 0;
}

int tern_convert_peft_check(const struct tern_convert_peft *p,
                            const struct tern_model_config *config, struct tern_err *err)
{
    struct tern_ckpt_info a;

    for (size_t i = 0; i < tern_ckpt_count(p->c); i++) {
        tern_ckpt_info(p->c, i, &a);
        if (check_array(p, &a, config, err) < 0)
            return -1;
    }
    return 0;
}

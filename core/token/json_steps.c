/* tokenizer.json's normalizer, pre_tokenizer and decoder: lists of steps by name.
 *
 * A list means what Hugging Face's tokenizers 0.23 makes of it; one that tern's encoder cannot
 * follow is refused by the name of the step. */
#include "core/token/json.h"

#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 8 }; /* of lists in lists; published files have one */

struct steps {
    struct tern_token_json *j;
    const char *member; /* "normalizer", for messages */
    struct tern_err *err;
    bool replaced;              /* normalizer: a space has become U+2581 */
    bool split;                 /* pre_tokenizer: Split was there */
    bool fuse, fallback, strip; /* decoder */
    unsigned n;
};

static const char *word(const json_t *j, const char *key)
{
    return json_string_value(json_object_get(j, key));
}

static bool is(const char *s, const char *value)
{
    return s && strcmp(s, value) == 0;
}

static int refuse(const struct steps *s, const char *type, const char *why)
{
    return tern_err_set(s->err, TERN_USAGE, "%s: %s %s%s is not supported", s->j->t->path,
                        s->member, type ? type : "without a type", why);
}

/* A boolean that must be there, unless `missing` is 0 or 1. */
static int flag(const struct steps *s, const json_t *step, const char *key, int missing, bool *to)
{
    const json_t *v = json_object_get(step, key);

    if (v ? !json_is_boolean(v) : missing < 0)
        return tern_err_set(s->err, TERN_USAGE, "%s: %s %s has no true or false as '%s'",
                            s->j->t->path, s->member, word(step, "type"), key);
    *to = v ? json_is_true(v) : missing;
    return 0;
}

/* `one` for each step of a list in a list; null is an empty one. */
static int each(struct steps *s, const json_t *step, const char *list, int depth,
                int (*one)(struct steps *, const char *type, const json_t *))
{
    const char *type = word(step, "type");
    const json_t *inner = json_object_get(step, list);
    size_t i;

    if (!step || json_is_null(step))
        return 0;
    if (!type)
        return refuse(s, NULL, "");
    if (!is(type, "Sequence")) {
        s->n++;
        return one(s, type, step);
    }
    if (depth == DEPTH_MAX || !json_is_array(inner))
        return refuse(s, type, depth == DEPTH_MAX ? " so deep" : " without a list");
    for (i = 0; i < json_array_size(inner); i++)
        if (each(s, json_array_get(inner, i), list, depth + 1, one) < 0)
            return -1;
    return 0;
}

/* ---- normalizer ---- */

static const char *keep(const struct steps *s, const char *text)
{
    const size_t n = strlen(text) + 1;
    char *to = tern_token_keep(s->j->t, n, s->err);

    return to ? memcpy(to, text, n) : NULL;
}

static int normal(struct steps *s, const char *type, const json_t *step)
{
    struct tern_token *t = s->j->t;
    struct tern_normal n = {.kind = TERN_NORMAL_NFC};
    const char *from = NULL, *to = NULL;

    if (is(type, "Prepend")) {
        n.kind = TERN_NORMAL_PREPEND;
        to = word(step, "prepend");
        if (!to)
            return refuse(s, type, " without a text");
        t->add_dummy_prefix |= is(to, TERN_SPACE_MARK);
    } else if (is(type, "Replace")) {
        n.kind = TERN_NORMAL_REPLACE;
        from = word(json_object_get(step, "pattern"), "String");
        to = word(step, "content");
        if (!from || !to || !*from)
            return refuse(s, type, from ? " of nothing" : " by a regular expression");
        t->escape_whitespaces |= is(from, " ") && is(to, TERN_SPACE_MARK);
    } else if (!is(type, "NFC")) {
        return refuse(s, type, "");
    }
    if (s->replaced && to && strchr(to, ' '))
        return refuse(s, type, " that puts a space where spaces are U+2581");
    s->replaced = t->escape_whitespaces;
    if (t->n_normals == TERN_NORMALS_MAX)
        return tern_err_set(s->err, TERN_USAGE, "%s: more than %d steps in the normalizer", t->path,
                            TERN_NORMALS_MAX);
    if ((from && !(n.from = keep(s, from))) || (to && !(n.to = keep(s, to))))
        return -1;
    t->normals[t->n_normals++] = n;
    return 0;
}

int tern_token_json_normalizer(struct tern_token_json *j, struct tern_err *err)
{
    struct steps s = {.j = j, .member = "normalizer", .err = err};

    return each(&s, json_object_get(j->tree, "normalizer"), "normalizers", 0, normal);
}

/* ---- pre_tokenizer ---- */

static int split(struct steps *s, const char *type, const json_t *step)
{
    struct tern_token *t = s->j->t;
    const char *regex = word(json_object_get(step, "pattern"), "Regex");
    const char *behavior = word(step, "behavior");
    bool invert;

    if (flag(s, step, "invert", -1, &invert) < 0)
        return -1;
    if (t->byte_level || t->metaspace || s->split)
        return refuse(s, type, " behind another step that splits");
    if (!regex)
        return refuse(s, type, " by a text");
    /* Every text is covered, so that nothing is between the words to be removed or kept. */
    if (!is(behavior, "Isolated") && !(is(behavior, "Removed") && invert))
        return refuse(s, type, " with this behavior");
    t->split = tern_token_split_named(regex);
    if (t->split == TERN_SPLIT_NONE)
        return tern_err_set(s->err, TERN_USAGE,
                            "%s: pre_tokenizer Split by the regular expression %s is not supported",
                            t->path, regex);
    s->split = true;
    return 0;
}

static int byte_level(struct steps *s, const char *type, const json_t *step)
{
    struct tern_token *t = s->j->t;
    bool regex, trim;

    if (flag(s, step, "add_prefix_space", -1, &t->prefix_space) < 0 ||
        flag(s, step, "use_regex", 1, &regex) < 0 || flag(s, step, "trim_offsets", 1, &trim) < 0)
        return -1;
    if (t->byte_level || t->metaspace)
        return refuse(s, type, " behind another step that splits");
    if (t->prefix_space && (s->split || t->split_digits))
        return refuse(s, type, " with add_prefix_space behind another step that splits");
    if (regex && s->split)
        return refuse(s, type, " with use_regex behind Split");
    if (regex)
        t->split = TERN_SPLIT_GPT2;
    t->byte_level = true;
    return 0;
}

static int digits(struct steps *s, const char *type, const json_t *step)
{
    struct tern_token *t = s->j->t;
    bool individual;

    if (flag(s, step, "individual_digits", -1, &individual) < 0)
        return -1;
    if (!individual)
        return refuse(s, type, " with individual_digits off");
    if (t->byte_level || t->metaspace || s->split)
        return refuse(s, type, " behind another step that splits");
    t->split_digits = true;
    return 0;
}

static int metaspace(struct steps *s, const char *type, const json_t *step)
{
    static const char *const schemes[] = {[TERN_METASPACE_NEVER] = "never",
                                          [TERN_METASPACE_FIRST] = "first",
                                          [TERN_METASPACE_ALWAYS] = "always"};
    struct tern_token *t = s->j->t;
    const char *scheme = word(step, "prepend_scheme");
    bool prefix;

    if (flag(s, step, "add_prefix_space", 1, &prefix) < 0 ||
        flag(s, step, "split", 1, &t->metaspace_split) < 0)
        return -1;
    if (!is(word(step, "replacement"), TERN_SPACE_MARK))
        return refuse(s, type, " with a replacement other than U+2581");
    if (t->byte_level || t->metaspace || s->split || t->split_digits)
        return refuse(s, type, " behind another step that splits");
    if (!scheme) /* older files */
        scheme = prefix ? "always" : "never";
    for (enum tern_metaspace k = TERN_METASPACE_NEVER; k <= TERN_METASPACE_ALWAYS; k++)
        if (is(scheme, schemes[k]))
            t->metaspace = k;
    if (!t->metaspace)
        return refuse(s, type, " with this prepend_scheme");
    if (!prefix && t->metaspace != TERN_METASPACE_NEVER)
        return refuse(s, type, " whose add_prefix_space contradicts its prepend_scheme");
    t->escape_whitespaces = true;
    t->add_dummy_prefix |= t->metaspace != TERN_METASPACE_NEVER;
    return 0;
}

static int pre(struct steps *s, const char *type, const json_t *step)
{
    if (is(type, "Split"))
        return split(s, type, step);
    if (is(type, "ByteLevel"))
        return byte_level(s, type, step);
    if (is(type, "Digits"))
        return digits(s, type, step);
    if (is(type, "Metaspace"))
        return metaspace(s, type, step);
    return refuse(s, type, "");
}

int tern_token_json_pre_tokenizer(struct tern_token_json *j, struct tern_err *err)
{
    struct steps s = {.j = j, .member = "pre_tokenizer", .err = err};
    const struct tern_token *t = j->t;

    if (each(&s, json_object_get(j->tree, "pre_tokenizer"), "pretokenizers", 0, pre) < 0)
        return -1;
    if ((s.split || t->split_digits) && !t->byte_level)
        return refuse(&s, s.split ? "Split" : "Digits", " without ByteLevel");
    return 0;
}

/* ---- decoder ---- */

/* Llama's: Replace, ByteFallback, Fuse, Strip. */
static int decode_replace(struct steps *s, const char *type, const json_t *step)
{
    const char *from = word(json_object_get(step, "pattern"), "String");

    if (!is(from, TERN_SPACE_MARK) || !is(word(step, "content"), " ") || s->n > 1)
        return refuse(s, type, " other than U+2581 by a space at first");
    return 0;
}

static int decode_strip(struct steps *s, const char *type, const json_t *step)
{
    json_int_t start = json_integer_value(json_object_get(step, "start"));
    json_int_t stop = json_integer_value(json_object_get(step, "stop"));

    if (!s->fuse || s->strip || !is(word(step, "content"), " ") || start < 0 || start > 1 ||
        stop != 0)
        return refuse(s, type, " other than of one space at the text's start");
    s->strip = true;
    s->j->t->strip_first = start == 1;
    return 0;
}

static int decode(struct steps *s, const char *type, const json_t *step)
{
    struct tern_token *t = s->j->t;

    if (is(type, "ByteLevel") || is(type, "Metaspace")) {
        if (s->n > 1 || t->byte_level != is(type, "ByteLevel"))
            return refuse(s, type, s->n > 1 ? " behind another one" : " with this pre_tokenizer");
        if (is(type, "ByteLevel"))
            return 0;
        if (!is(word(step, "replacement"), TERN_SPACE_MARK))
            return refuse(s, type, " with a replacement other than U+2581");
        const char *scheme = word(step, "prepend_scheme");
        t->drop_first = scheme ? !is(scheme, "never")
                               : !json_is_false(json_object_get(step, "add_prefix_space"));
        return 0;
    }
    if (t->byte_level)
        return refuse(s, type, " with ByteLevel");
    if (is(type, "Replace"))
        return decode_replace(s, type, step);
    if (is(type, "Strip"))
        return decode_strip(s, type, step);
    bool *seen = is(type, "ByteFallback") ? &s->fallback : is(type, "Fuse") ? &s->fuse : NULL;
    if (!seen || *seen || (seen == &s->fallback && s->fuse))
        return refuse(s, type, seen ? " at this place" : "");
    *seen = true;
    return 0;
}

int tern_token_json_decoder(struct tern_token_json *j, struct tern_err *err)
{
    struct steps s = {.j = j, .member = "decoder", .err = err};

    if (each(&s, json_object_get(j->tree, "decoder"), "decoders", 0, decode) < 0)
        return -1;
    j->t->show_bytes = !s.fallback;
    return 0;
}

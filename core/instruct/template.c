/* Templates: YAML to lines of parts. */
#include "core/instruct/template.h"

#include "core/base/fs.h"
#include "core/base/yaml.h"

#include <stdlib.h>
#include <string.h>

/* ---- a line: text, fields and special tokens ---- */

static struct tern_instruct_part *add_part(struct tern_instruct_line *l,
                                           enum tern_instruct_part_kind kind)
{
    enum { STEP = 16 };

    if (l->n % STEP == 0) {
        void *more = realloc(l->parts, (l->n + STEP) * sizeof *l->parts);
        if (!more)
            return NULL;
        l->parts = more;
    }
    l->parts[l->n] = (struct tern_instruct_part){.kind = kind};
    return &l->parts[l->n++];
}

static int no_memory(struct tern_err *err)
{
    return tern_err_set(err, TERN_FAILED, "a template: out of memory");
}

/* `len` more bytes of text: the line's last part, if that is text. */
static int add_text(struct tern_instruct_line *l, const char *s, size_t len, struct tern_err *err)
{
    struct tern_instruct_part *p = l->n ? &l->parts[l->n - 1] : NULL;

    if (!p || p->kind != TERN_INSTRUCT_TEXT)
        p = add_part(l, TERN_INSTRUCT_TEXT);
    if (!p)
        return no_memory(err);
    char *joined = tern_strf("%s%.*s", p->text ? p->text : "", (int)len, s);
    free(p->text);
    p->text = joined;
    return 0;
}

static bool is_name(const char *s, size_t len)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";

    for (size_t i = 0; i < len; i++)
        if (!strchr(letters, s[i]))
            return false;
    return len > 0;
}

/* "{instruction}", "{context?}", "{if context}", "{bos}": what stands between the braces. */
static int add_braced(struct tern_instruct_line *l, const struct tern_yaml_node *n, const char *s,
                      size_t len, struct tern_err *err)
{
    static const struct {
        const char *word;
        enum tern_instruct_part_kind kind;
    } conditions[] = {{"if ", TERN_INSTRUCT_IF}, {"unless ", TERN_INSTRUCT_UNLESS}},
      words[] = {
          {"bos", TERN_INSTRUCT_BOS}, {"eos", TERN_INSTRUCT_EOS}, {"system", TERN_INSTRUCT_SYSTEM}};
    struct tern_instruct_part part = {.kind = TERN_INSTRUCT_FIELD};
    const char *name = s;
    size_t name_len = len;

    for (size_t i = 0; i < sizeof conditions / sizeof conditions[0]; i++) {
        const size_t w = strlen(conditions[i].word);
        if (len > w && strncmp(s, conditions[i].word, w) == 0) {
            part.kind = conditions[i].kind;
            name = s + w;
            name_len = len - w;
        }
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (len == strlen(words[i].word) && strncmp(s, words[i].word, len) == 0)
            part.kind = words[i].kind;
    if (part.kind == TERN_INSTRUCT_FIELD && name_len && name[name_len - 1] == '?') {
        part.optional = true;
        name_len--;
    }
    if (!is_name(name, name_len))
        return tern_yaml_fail(n, err,
                              "{%.*s} is not known; {FIELD}, {FIELD?}, {if FIELD}, {unless FIELD}, "
                              "{bos} and {eos} are. A brace is written {{ or }}.",
                              (int)(len < 60 ? len : 60), s);
    struct tern_instruct_part *p = add_part(l, part.kind);
    if (!p)
        return no_memory(err);
    *p = part;
    p->text = tern_strf("%.*s", (int)name_len, name);
    return 0;
}

/* The longest of the template's special tokens that `s` begins with; its bytes, or 0. */
static size_t special_at(const struct tern_instruct_template *t, const char *s, size_t *ret_special)
{
    size_t best = 0;

    for (size_t i = 0; i < t->n_specials; i++) {
        const size_t len = strlen(t->specials[i]);
        if (len > best && strncmp(s, t->specials[i], len) == 0) {
            best = len;
            *ret_special = i;
        }
    }
    return best;
}

static int read_part(const struct tern_instruct_template *t, const struct tern_yaml_node *n,
                     const char **at, struct tern_instruct_line *l, struct tern_err *err)
{
    const char *s = *at;
    size_t special = 0, len = special_at(t, s, &special);

    *at += 1;
    if (len) {
        struct tern_instruct_part *p = add_part(l, TERN_INSTRUCT_SPECIAL);
        if (!p)
            return no_memory(err);
        p->special = special;
        p->text = tern_strdup(t->specials[special]);
        *at = s + len;
        return 0;
    }
    if ((*s == '{' || *s == '}') && s[1] == *s) {
        *at = s + 2;
        return add_text(l, s, 1, err);
    }
    if (*s == '{') {
        const char *end = strchr(s, '}');
        if (!end)
            return tern_yaml_fail(n, err, "a { without its }. A brace is written {{ or }}.");
        *at = end + 1;
        return add_braced(l, n, s + 1, (size_t)(end - s - 1), err);
    }
    if (*s == '}')
        return tern_yaml_fail(n, err, "a } without its {. A brace is written {{ or }}.");
    len = strcspn(s, "{}");
    for (size_t i = 1; i < len; i++)
        if (special_at(t, s + i, &special))
            len = i;
    *at = s + len;
    return add_text(l, s, len, err);
}

static int read_line(const struct tern_instruct_template *t, const struct tern_yaml_node *n,
                     struct tern_instruct_line *ret_line, struct tern_err *err)
{
    if (!n)
        return 0;
    if (tern_yaml_expect(n, TERN_YAML_TEXT, err) < 0)
        return -1;
    for (const char *at = tern_yaml_text(n); *at;)
        if (read_part(t, n, &at, ret_line, err) < 0)
            return -1;
    return 0;
}

static void line_free(struct tern_instruct_line *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->parts[i].text);
    free(l->parts);
}

static bool line_has(const struct tern_instruct_line *l, enum tern_instruct_part_kind kind,
                     const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->parts[i].kind == kind && (!name || strcmp(l->parts[i].text, name) == 0))
            return true;
    return false;
}

static bool begins_with_bos(const struct tern_instruct_line *l)
{
    return l->n && l->parts[0].kind == TERN_INSTRUCT_BOS;
}

/* ---- files ---- */

static int read_specials(struct tern_instruct_template *t, const struct tern_yaml_node *list,
                         struct tern_err *err)
{
    if (!list)
        return 0;
    if (tern_yaml_expect(list, TERN_YAML_LIST, err) < 0)
        return -1;
    for (size_t i = 0; i < tern_yaml_count(list); i++) {
        const struct tern_yaml_node *n = tern_yaml_at(list, i);
        if (tern_yaml_expect(n, TERN_YAML_TEXT, err) < 0)
            return -1;
        if (t->n_specials == TERN_INSTRUCT_SPECIALS_MAX)
            return tern_yaml_fail(n, err, "a template may have %d special tokens",
                                  TERN_INSTRUCT_SPECIALS_MAX);
        if (!*tern_yaml_text(n))
            return tern_yaml_fail(n, err, "is empty; a special token such as <|eot_id|> is wanted");
        t->specials[t->n_specials++] = tern_strdup(tern_yaml_text(n));
    }
    return 0;
}

/* Fields alone, {content} alone, or neither: what a line may name. */
static int check_line(const struct tern_yaml_node *n, const struct tern_instruct_line *l, bool chat,
                      struct tern_err *err)
{
    for (size_t i = 0; i < l->n; i++) {
        const struct tern_instruct_part *p = &l->parts[i];
        const bool names = p->kind == TERN_INSTRUCT_FIELD || p->kind == TERN_INSTRUCT_IF ||
                           p->kind == TERN_INSTRUCT_UNLESS;
        if (chat && names &&
            (p->kind != TERN_INSTRUCT_FIELD || p->optional || strcmp(p->text, "content") != 0))
            return tern_yaml_fail(n, err, "'%s' stands here; of a message there is {content} alone",
                                  p->text);
        if (!chat && p->kind == TERN_INSTRUCT_SYSTEM)
            return tern_yaml_fail(n, err, "{system} stands in a chat's user alone");
    }
    return 0;
}

static int read_fields(struct tern_instruct_template *t, const struct tern_yaml_node *root,
                       const struct tern_yaml_node *prompt, struct tern_err *err)
{
    const struct tern_yaml_node *join = tern_yaml_get(root, "join");

    if (tern_yaml_expect(prompt, TERN_YAML_LIST, err) < 0)
        return -1;
    if (tern_yaml_count(prompt) > TERN_INSTRUCT_SECTIONS_MAX)
        return tern_yaml_fail(prompt, err, "a template may have %d sections",
                              TERN_INSTRUCT_SECTIONS_MAX);
    for (size_t i = 0; i < tern_yaml_count(prompt); i++) {
        const struct tern_yaml_node *n = tern_yaml_at(prompt, i);
        struct tern_instruct_line *l = &t->prompt[t->n_prompt++];
        if (read_line(t, n, l, err) < 0 || check_line(n, l, /* chat= */ false, err) < 0)
            return -1;
    }
    t->bos = t->n_prompt && begins_with_bos(&t->prompt[0]);
    if (!join)
        return add_text(&t->join, "\n\n", 2, err);
    return read_line(t, join, &t->join, err) < 0 ||
                   check_line(join, &t->join, /* chat= */ false, err) < 0
               ? -1
               : 0;
}

/* The system's message goes with the user's as one text. */
static int check_system(const struct tern_instruct_template *t, const struct tern_yaml_node *user,
                        struct tern_err *err)
{
    bool good = t->system.n > 0;

    for (size_t i = 0; i < t->system.n; i++)
        good = good && (t->system.parts[i].kind == TERN_INSTRUCT_TEXT ||
                        t->system.parts[i].kind == TERN_INSTRUCT_FIELD);
    if (!good)
        return tern_yaml_fail(user, err,
                              "has {system}: a chat.system of text and {content} is wanted");
    for (size_t i = 0; i < t->user.n; i++)
        if (t->user.parts[i].kind == TERN_INSTRUCT_SYSTEM &&
            (i + 1 == t->user.n || t->user.parts[i + 1].kind != TERN_INSTRUCT_FIELD))
            return tern_yaml_fail(user, err,
                                  "{system} stands directly before {content} or not at all");
    return 0;
}

static int read_chat(struct tern_instruct_template *t, const struct tern_yaml_node *chat,
                     struct tern_err *err)
{
    const struct tern_yaml_node *begin, *system, *user, *trim;

    if (tern_yaml_expect(chat, TERN_YAML_MAP, err) < 0)
        return -1;
    begin = tern_yaml_get(chat, "begin");
    system = tern_yaml_get(chat, "system");
    user = tern_yaml_get(chat, "user");
    trim = tern_yaml_get(chat, "trim");
    if (!user)
        return tern_yaml_fail(chat, err, "has no user, the text of a user's message");
    if (tern_yaml_read_bool(trim, &t->trim, err) < 0 || read_line(t, begin, &t->begin, err) < 0 ||
        read_line(t, system, &t->system, err) < 0 || read_line(t, user, &t->user, err) < 0 ||
        check_line(user, &t->user, /* chat= */ true, err) < 0 ||
        (system && check_line(system, &t->system, /* chat= */ true, err) < 0) ||
        (begin && check_line(begin, &t->begin, /* chat= */ true, err) < 0))
        return -1;
    if (line_has(&t->begin, TERN_INSTRUCT_SYSTEM, NULL) ||
        line_has(&t->begin, TERN_INSTRUCT_FIELD, NULL) ||
        line_has(&t->system, TERN_INSTRUCT_SYSTEM, NULL))
        return tern_yaml_fail(chat, err,
                              "{system} stands in user alone, and {content} not in begin");
    t->system_in_user = line_has(&t->user, TERN_INSTRUCT_SYSTEM, NULL);
    if (!line_has(&t->user, TERN_INSTRUCT_FIELD, "content"))
        return tern_yaml_fail(user, err, "has no {content}, the text of the message");
    if (t->system_in_user && check_system(t, user, err) < 0)
        return -1;
    t->bos = t->begin.n ? begins_with_bos(&t->begin)
                        : begins_with_bos(&t->user) &&
                              (!system || t->system_in_user || begins_with_bos(&t->system));
    return 0;
}

/* An answer is the last thing of a document: it has a field, and nothing stands between. */
static int read_answer(struct tern_instruct_template *t, const struct tern_yaml_node *root,
                       struct tern_err *err)
{
    const struct tern_yaml_node *n = tern_yaml_get(root, "answer");

    if (!n)
        return tern_yaml_fail(root, err, "has no answer, such as answer: \"{response}\"");
    if (read_line(t, n, &t->answer, err) < 0 || check_line(n, &t->answer, t->chat, err) < 0)
        return -1;
    for (size_t i = 0; i < t->answer.n; i++)
        if (t->answer.parts[i].optional || t->answer.parts[i].kind == TERN_INSTRUCT_IF ||
            t->answer.parts[i].kind == TERN_INSTRUCT_UNLESS)
            return tern_yaml_fail(n, err, "'%s': a field of an answer must be there",
                                  t->answer.parts[i].text);
    if (!line_has(&t->answer, TERN_INSTRUCT_FIELD, NULL))
        return tern_yaml_fail(n, err, "has no field, such as {response}");
    if (line_has(&t->answer, TERN_INSTRUCT_SYSTEM, NULL))
        return tern_yaml_fail(n, err, "{system} stands in a chat's user alone");
    if (begins_with_bos(&t->answer))
        return tern_yaml_fail(n, err, "begins with {bos}, which belongs to what stands before");
    return 0;
}

static int read_root(struct tern_instruct_template *t, const struct tern_yaml_node *root,
                     struct tern_err *err)
{
    if (tern_yaml_expect(root, TERN_YAML_MAP, err) < 0)
        return -1;
    const struct tern_yaml_node *prompt = tern_yaml_get(root, "prompt"),
                                *chat = tern_yaml_get(root, "chat");
    if (!prompt == !chat)
        return tern_yaml_fail(
            root, err, "a template has either prompt, a list of sections, or chat; this has %s",
            prompt ? "both" : "neither");
    t->chat = chat != NULL;
    if (read_specials(t, tern_yaml_get(root, "specials"), err) < 0 ||
        (chat ? read_chat(t, chat, err) : read_fields(t, root, prompt, err)) < 0 ||
        read_answer(t, root, err) < 0)
        return -1;
    return tern_yaml_no_others(root, err);
}

static int not_found(const char *name, struct tern_err *err)
{
    const char *near = tern_str_nearest(name, tern_instruct_names);
    struct tern_buf names = {0};

    for (size_t i = 0; tern_instruct_names[i]; i++)
        tern_buf_printf(&names, "%s%s", i ? ", " : "", tern_instruct_names[i]);
    tern_err_set(err, TERN_USAGE,
                 "--template %s: is neither a file nor a template's name (%s)%s%s%s", name,
                 names.data ? names.data : "", near ? ". Did you mean " : "", near ? near : "",
                 near ? "?" : "");
    tern_buf_free(&names);
    return -1;
}

struct tern_instruct_template *tern_instruct_template_load(const char *name, struct tern_err *err)
{
    const char *known = tern_instruct_text(name);
    struct tern_instruct_template *t = NULL;
    struct tern_yaml *doc = NULL;
    char *text = NULL;
    size_t len = 0;
    int rc = -1;

    if (known) {
        text = tern_strdup(known);
        len = strlen(text);
    } else if (!tern_fs_exists(name)) {
        not_found(name, err);
        return NULL;
    } else if (tern_fs_read(name, TERN_INSTRUCT_FILE_MAX, &text, &len, err) < 0) {
        return NULL;
    }
    t = tern_alloc(1, sizeof *t, "a template", err);
    doc = t ? tern_yaml_parse(text, len, name, err) : NULL;
    if (doc) {
        t->name = tern_strdup(known ? name : tern_fs_basename(name));
        tern_sha256(text, len, t->digest);
        rc = read_root(t, tern_yaml_root(doc), err);
    }
    tern_yaml_free(doc);
    free(text);
    if (rc == 0)
        return t;
    tern_instruct_template_free(t);
    return NULL;
}

void tern_instruct_template_free(struct tern_instruct_template *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_prompt; i++)
        line_free(&t->prompt[i]);
    for (size_t i = 0; i < t->n_specials; i++)
        free(t->specials[i]);
    line_free(&t->answer);
    line_free(&t->join);
    line_free(&t->begin);
    line_free(&t->system);
    line_free(&t->user);
    free(t->name);
    free(t);
}

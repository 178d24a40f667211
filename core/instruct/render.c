/* A record put into a template: pieces of text and special tokens, with targets marked. */
#include "core/instruct/template.h"

#include <stdlib.h>
#include <string.h>

void tern_instruct_pieces_free(struct tern_instruct_pieces *p)
{
    tern_buf_free(&p->text);
    tern_buf_free(&p->scratch);
    free(p->v);
}

static int add_piece(struct tern_instruct_pieces *p, const struct tern_instruct_part *special,
                     bool target, struct tern_err *err)
{
    if (p->n == p->cap) {
        const size_t cap = p->cap ? 2 * p->cap : 64;
        void *more = realloc(p->v, cap * sizeof *p->v);
        if (!more)
            return tern_err_sys(err, "a record's pieces");
        p->v = more;
        p->cap = cap;
    }
    p->v[p->n++] = (struct tern_instruct_piece){special, p->text.len, target};
    return 0;
}

/* Text goes on where the piece before is text of the same kind. */
static int add_text(struct tern_instruct_pieces *p, const char *s, size_t len, bool target,
                    struct tern_err *err)
{
    struct tern_instruct_piece *last = p->n ? &p->v[p->n - 1] : NULL;

    if (len == 0)
        return 0;
    tern_buf_add(&p->text, s, len);
    if (tern_buf_check(&p->text, "a record", err) < 0)
        return -1;
    if (!last || last->special || last->target != target)
        return add_piece(p, NULL, target, err);
    last->end = p->text.len;
    return 0;
}

/* ---- white space ---- */

/* Bytes of the white space that `s` begins with (str.isspace of Python), or 0. */
static size_t space_at(const char *s, size_t len)
{
    static const char *const wide[] = {
        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
        "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
        "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
        "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};

    if (len == 0)
        return 0;
    if (*s == ' ' || (*s >= 0x09 && *s <= 0x0d) || (*s >= 0x1c && *s <= 0x1f))
        return 1;
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++)
        if (strlen(wide[i]) <= len && memcmp(s, wide[i], strlen(wide[i])) == 0)
            return strlen(wide[i]);
    return 0;
}

void tern_instruct_strip(const char **s, size_t *len)
{
    size_t n;

    while ((n = space_at(*s, *len)) > 0) {
        *s += n;
        *len -= n;
    }
    for (size_t k = 1; k <= 3; k++)
        if (k <= *len && space_at(*s + *len - k, k) == k) {
            *len -= k;
            k = 0;
        }
}

/* ---- records ---- */

struct text {
    const char *s;
    size_t len;
};

static const char *type_name(const json_t *v)
{
    return json_is_object(v)    ? "an object"
           : json_is_array(v)   ? "a list"
           : json_is_number(v)  ? "a number"
           : json_is_boolean(v) ? "true or false"
                                : "null";
}

/* A record's keys, for messages. */
static void list_keys(const json_t *record, struct tern_buf *to)
{
    const char *key;
    json_t *value;

    to->max = 200;
    json_object_foreach((json_t *)record, key, value)
        tern_buf_printf(to, "%s%s", to->len ? ", " : "", key);
    if (!to->len)
        tern_buf_puts(to, "none");
}

/* What others call a field; NULL: nothing else. */
static const char *other_name(const char *name)
{
    static const char *const same[][2] = {{"context", "input"}, {"response", "output"}};

    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        for (size_t k = 0; k < 2; k++)
            if (strcmp(name, same[i][k]) == 0)
                return same[i][1 - k];
    return NULL;
}

/* The field, or what others call it; NULL where it is missing, or null. */
static const json_t *find(const json_t *record, const char *name)
{
    const char *other = other_name(name);
    const json_t *v = json_object_get(record, name);

    if ((!v || json_is_null(v)) && other)
        v = json_object_get(record, other);
    return json_is_null(v) ? NULL : v;
}

/* Is it there, and not empty? */
static bool is_filled(const json_t *record, const char *name)
{
    const json_t *v = find(record, name);

    return v && !(json_is_string(v) && json_string_length(v) == 0);
}

/* 1 and the field's text; 0 where it is missing or empty; -1. */
static int get(const json_t *record, const char *name, struct text *ret, struct tern_err *err)
{
    const json_t *v = find(record, name);

    if (!v)
        return 0;
    if (!json_is_string(v))
        return tern_err_set(err, TERN_USAGE, "field '%s' is %s; a string is wanted", name,
                            type_name(v));
    *ret = (struct text){json_string_value(v), json_string_length(v)};
    return ret->len > 0;
}

/* A field that must be there. */
static int need(const struct tern_instruct_template *t, const json_t *record, const char *name,
                struct text *ret, struct tern_err *err)
{
    int rc = get(record, name, ret, err);
    struct tern_buf keys = {0};

    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (find(record, name))
        return tern_err_set(err, TERN_USAGE, "field '%s' is empty; template %s wants text there",
                            name, t->name);
    list_keys(record, &keys);
    tern_err_set(err, TERN_USAGE, "no field '%s', which template %s wants (found: %s)", name,
                 t->name, keys.data ? keys.data : "");
    tern_buf_free(&keys);
    return -1;
}

/* ---- fields ---- */

/* Does a section stand?  1, 0, -1. */
static int stands(const struct tern_instruct_line *l, const json_t *record, struct tern_err *err)
{
    struct text text;

    for (size_t i = 0; i < l->n; i++) {
        const struct tern_instruct_part *p = &l->parts[i];
        const bool only =
            p->kind == TERN_INSTRUCT_IF || (p->kind == TERN_INSTRUCT_FIELD && p->optional);
        if (!only && p->kind != TERN_INSTRUCT_UNLESS)
            continue;
        int rc = get(record, p->text, &text, err);
        if (rc < 0 || (rc > 0) != only)
            return rc < 0 ? -1 : 0;
    }
    return 1;
}

static int put_line(const struct tern_instruct_template *t, const struct tern_instruct_line *l,
                    const json_t *record, bool target, struct tern_instruct_pieces *p,
                    struct tern_err *err)
{
    struct text text;
    int rc = 0;

    for (size_t i = 0; i < l->n && rc == 0; i++) {
        const struct tern_instruct_part *part = &l->parts[i];
        switch (part->kind) {
        case TERN_INSTRUCT_TEXT:
            rc = add_text(p, part->text, strlen(part->text), target, err);
            break;
        case TERN_INSTRUCT_FIELD:
            rc = need(t, record, part->text, &text, err);
            if (rc == 0)
                rc = add_text(p, text.s, text.len, target, err);
            break;
        case TERN_INSTRUCT_IF:
        case TERN_INSTRUCT_UNLESS:
        case TERN_INSTRUCT_SYSTEM:
            break;
        case TERN_INSTRUCT_SPECIAL:
        case TERN_INSTRUCT_BOS:
        case TERN_INSTRUCT_EOS:
            rc = add_piece(p, part, target, err);
        }
    }
    return rc;
}

static int no_chat(const struct tern_instruct_template *t, const char *name, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE,
                        "has a list of %s, and template %s is of fields. Choose one of chats, such "
                        "as llama3-chat.",
                        name, t->name);
}

/* Are the fields filled that a line must have? */
static bool is_given(const struct tern_instruct_line *l, const json_t *record)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->parts[i].kind == TERN_INSTRUCT_FIELD && !is_filled(record, l->parts[i].text))
            return false;
    return true;
}

static int render_fields(const struct tern_instruct_template *t, const json_t *record,
                         struct tern_instruct_pieces *p, struct tern_err *err)
{
    bool first = true;

    for (size_t i = 0; i < t->n_prompt; i++) {
        int rc = stands(&t->prompt[i], record, err);
        if (rc < 0)
            return -1;
        if (rc == 0)
            continue;
        if ((!first && put_line(t, &t->join, record, /* target= */ false, p, err) < 0) ||
            put_line(t, &t->prompt[i], record, /* target= */ false, p, err) < 0)
            return -1;
        first = false;
    }
    return p->open && !is_given(&t->answer, record)
               ? 0
               : put_line(t, &t->answer, record, /* target= */ true, p, err);
}

/* ---- conversations ---- */

enum role { SYSTEM, USER, ASSISTANT };
static const char *const role_names[] = {"system", "user", "assistant"};

struct message {
    enum role role;
    struct text text;
};

static int read_role(const json_t *m, size_t i, enum role *ret_role, struct tern_err *err)
{
    static const struct {
        const char *name;
        enum role role;
    } roles[] = {{"system", SYSTEM},
                 {"user", USER},
                 {"human", USER},
                 {"assistant", ASSISTANT},
                 {"gpt", ASSISTANT}};
    const json_t *v = json_object_get(m, "role");
    const char *name = json_string_value(v ? v : json_object_get(m, "from"));

    if (!name)
        return tern_err_set(err, TERN_USAGE,
                            "message %zu has no role; system, user or assistant is wanted", i + 1);
    for (size_t k = 0; k < sizeof roles / sizeof roles[0]; k++)
        if (strcmp(name, roles[k].name) == 0) {
            *ret_role = roles[k].role;
            return 0;
        }
    return tern_err_set(err, TERN_USAGE,
                        "message %zu: role '%.40s' is not known; system, user (human) or assistant "
                        "(gpt) is wanted",
                        i + 1, name);
}

/* `open`: the last answer may be empty. */
static int read_message(const json_t *list, size_t i, bool open, struct message *ret,
                        struct tern_err *err)
{
    const json_t *m = json_array_get(list, i), *v;

    if (!json_is_object(m))
        return tern_err_set(err, TERN_USAGE,
                            "message %zu is no object; {\"role\": ..., \"content\": ...} is wanted",
                            i + 1);
    if (read_role(m, i, &ret->role, err) < 0)
        return -1;
    v = json_object_get(m, "content");
    if (!v)
        v = json_object_get(m, "value");
    if (!json_is_string(v))
        return tern_err_set(err, TERN_USAGE, "message %zu: its content is %s; a string is wanted",
                            i + 1, v ? type_name(v) : "missing");
    ret->text = (struct text){json_string_value(v), json_string_length(v)};
    return ret->text.len || (open && ret->role == ASSISTANT && i + 1 == json_array_size(list))
               ? 0
               : tern_err_set(err, TERN_USAGE, "message %zu (%s) is empty; text is wanted", i + 1,
                              role_names[ret->role]);
}

/* A message's text into the line of its role. */
static int put_message(const struct tern_instruct_template *t, const struct tern_instruct_line *l,
                       struct text text, bool target, struct tern_instruct_pieces *p,
                       struct tern_err *err)
{
    int rc = 0;

    if (t->trim)
        tern_instruct_strip(&text.s, &text.len);
    for (size_t i = 0; i < l->n && rc == 0; i++) {
        const struct tern_instruct_part *part = &l->parts[i];
        if (part->kind == TERN_INSTRUCT_TEXT)
            rc = add_text(p, part->text, strlen(part->text), target, err);
        else if (part->kind == TERN_INSTRUCT_FIELD)
            rc = add_text(p, text.s, text.len, target, err);
        else if (part->kind != TERN_INSTRUCT_SYSTEM)
            rc = add_piece(p, part, target, err);
    }
    return rc;
}

/* The system's message inside the user's: both are one text. */
static int join_system(const struct tern_instruct_template *t, struct text system,
                       struct text *user, struct tern_buf *room, struct tern_err *err)
{
    tern_buf_clear(room);
    for (size_t i = 0; i < t->system.n; i++)
        if (t->system.parts[i].kind == TERN_INSTRUCT_TEXT)
            tern_buf_puts(room, t->system.parts[i].text);
        else
            tern_buf_add(room, system.s, system.len);
    tern_buf_add(room, user->s, user->len);
    *user = (struct text){room->data, room->len};
    return tern_buf_check(room, "a record", err);
}

static int out_of_order(const struct message *m, size_t i, enum role wanted, struct tern_err *err)
{
    return tern_err_set(
        err, TERN_USAGE,
        "message %zu is of role %s, %s is wanted: perhaps one system, then user and "
        "assistant in turns",
        i + 1, role_names[m->role], role_names[wanted]);
}

static int render_chat(const struct tern_instruct_template *t, const json_t *list,
                       struct tern_instruct_pieces *p, struct tern_err *err)
{
    const size_t n = json_array_size(list);
    struct message m = {0}, system = {0};
    enum role wanted = USER;

    if (n == 0 || n > TERN_INSTRUCT_MESSAGES_MAX)
        return tern_err_set(err, TERN_USAGE, "has %zu messages; 2 to %d are wanted", n,
                            TERN_INSTRUCT_MESSAGES_MAX);
    if (put_message(t, &t->begin, (struct text){"", 0}, /* target= */ false, p, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (read_message(list, i, p->open, &m, err) < 0)
            return -1;
        if (i == 0 && m.role == SYSTEM && !t->system.n)
            return tern_err_set(err, TERN_USAGE,
                                "message 1 is of role system, and template %s has none", t->name);
        if (i == 0 && m.role == SYSTEM) {
            system = m;
            if (!t->system_in_user &&
                put_message(t, &t->system, m.text, /* target= */ false, p, err) < 0)
                return -1;
            continue;
        }
        if (m.role != wanted)
            return out_of_order(&m, i, wanted, err);
        if (m.role == USER && system.text.len && t->system_in_user &&
            join_system(t, system.text, &m.text, &p->scratch, err) < 0)
            return -1;
        system.text.len = m.role == USER ? 0 : system.text.len;
        if (m.text.len == 0) /* no answer yet */
            break;
        if (put_message(t, m.role == USER ? &t->user : &t->answer, m.text, m.role == ASSISTANT, p,
                        err) < 0)
            return -1;
        wanted = m.role == USER ? ASSISTANT : USER;
    }
    return m.role == ASSISTANT || (p->open && m.role == USER)
               ? 0
               : tern_err_set(err, TERN_USAGE,
                              "ends with the message of role %s; an answer of the assistant is "
                              "wanted",
                              role_names[m.role]);
}

/* One of two fields, which must be there. */
static int need_either(const struct tern_instruct_template *t, const json_t *record,
                       const char *name, const char *other, struct text *ret, struct tern_err *err)
{
    return need(t, record, find(record, name) || !find(record, other) ? name : other, ret, err);
}

/* A question and an answer as a conversation. */
static int render_turn(const struct tern_instruct_template *t, const json_t *record,
                       struct tern_instruct_pieces *p, struct tern_err *err)
{
    const bool asks = p->open && !is_filled(record, "response") && !is_filled(record, "completion");
    struct text user, context = {0}, answer;

    if (need_either(t, record, "instruction", "prompt", &user, err) < 0 ||
        get(record, "context", &context, err) < 0 ||
        (!asks && need_either(t, record, "response", "completion", &answer, err) < 0) ||
        put_message(t, &t->begin, (struct text){"", 0}, /* target= */ false, p, err) < 0)
        return -1;
    if (context.len) {
        tern_buf_clear(&p->scratch);
        tern_buf_add(&p->scratch, user.s, user.len);
        tern_buf_puts(&p->scratch, "\n\n");
        tern_buf_add(&p->scratch, context.s, context.len);
        user = (struct text){p->scratch.data, p->scratch.len};
        if (tern_buf_check(&p->scratch, "a record", err) < 0)
            return -1;
    }
    int rc = put_message(t, &t->user, user, /* target= */ false, p, err);
    return rc < 0 || asks ? rc : put_message(t, &t->answer, answer, /* target= */ true, p, err);
}

static const char *const lists[] = {"messages", "conversations"};

/* ---- which fields are read ---- */

static bool is_among(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static bool line_reads(const struct tern_instruct_line *l, const char *name)
{
    const char *other = other_name(name);

    for (size_t i = 0; i < l->n; i++) {
        const struct tern_instruct_part *p = &l->parts[i];
        const bool field = p->kind == TERN_INSTRUCT_FIELD || p->kind == TERN_INSTRUCT_IF ||
                           p->kind == TERN_INSTRUCT_UNLESS;
        if (field && (strcmp(p->text, name) == 0 || (other && strcmp(p->text, other) == 0)))
            return true;
    }
    return false;
}

bool tern_instruct_template_reads(const struct tern_instruct_template *t, const char *path)
{
    static const char *const message[] = {"role", "from", "content", "value"};
    static const char *const turn[] = {"instruction", "prompt", "context",   "input",
                                       "response",    "output", "completion"};
    const char *in = strstr(path, "[].");

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        const size_t n = strlen(lists[i]);
        if (strcmp(path, lists[i]) == 0)
            return true;
        if (in == path + n && strncmp(path, lists[i], n) == 0)
            return is_among(in + strlen("[]."), message, sizeof message / sizeof message[0]);
    }
    if (t->chat)
        return is_among(path, turn, sizeof turn / sizeof turn[0]);
    bool reads = line_reads(&t->answer, path) || line_reads(&t->join, path);
    for (size_t i = 0; i < t->n_prompt; i++)
        reads = reads || line_reads(&t->prompt[i], path);
    return reads;
}

int tern_instruct_render(const struct tern_instruct_template *t, const json_t *record,
                         struct tern_instruct_pieces *p, struct tern_err *err)
{

    p->n = 0;
    tern_buf_clear(&p->text);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        const json_t *list = json_object_get(record, lists[i]);
        if (!list || json_is_null(list) || (!t->chat && !json_is_array(list)))
            continue;
        if (!t->chat)
            return no_chat(t, lists[i], err);
        if (!json_is_array(list))
            return tern_err_set(err, TERN_USAGE, "field '%s' is %s; a list is wanted", lists[i],
                                json_is_string(list) ? "a string" : type_name(list));
        return render_chat(t, list, p, err);
    }
    return t->chat ? render_turn(t, record, p, err) : render_fields(t, record, p, err);
}

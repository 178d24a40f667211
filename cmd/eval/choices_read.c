/* Items of multiple choice, from lines of JSON. */
#include "cmd/eval/choices.h"

#include "core/base/json.h"
#include "core/base/str.h"
#include "core/text/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ITEMS_MAX = 1 << 24 };

/* An item as it stands in the file. */
struct read {
    const struct choices_how *how;
    uint64_t line;
    json_t *item;
    const json_t *texts, *labels; /* arrays; labels may be NULL */
};

static int bad(const struct read *r, struct tern_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int bad(const struct read *r, struct tern_err *err, const char *fmt, ...)
{
    char text[600];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return tern_err_set(err, TERN_USAGE, "%s:%" PRIu64 ": %s", r->how->path, r->line, text);
}

/* The first of the NULL-ended names that the item has. */
static const json_t *field(const struct read *r, const char *const *names)
{
    const json_t *v = NULL;

    for (; *names && !v; names++)
        v = json_object_get(r->item, *names);
    return v;
}

static const char *const contexts[] = {"context", "query", "question", "ctx", NULL};
static const char *const lists[] = {"choices", "endings", NULL};
static const char *const golds[] = {"answer", "gold", "label", "answerKey", NULL};

static const char *context_of(const struct read *r, struct tern_err *err)
{
    const json_t *v = field(r, contexts);

    if (json_is_string(v))
        return json_string_value(v);
    bad(r, err, v ? "its context is no text" : "no context, query, question or ctx");
    return NULL;
}

/* A list of texts, or {"text": [...], "label": [...]}. */
static int find_choices(struct read *r, struct tern_err *err)
{
    const json_t *v = field(r, lists);

    r->texts = json_is_object(v) ? json_object_get(v, "text") : v;
    r->labels = json_is_object(v) ? json_object_get(v, "label") : NULL;
    if (!v)
        return bad(r, err, "no choices or endings");
    if (!json_is_array(r->texts) || json_array_size(r->texts) < 2)
        return bad(r, err, "its choices are no list of two texts or more");
    if (json_array_size(r->texts) > CHOICES_MAX)
        return bad(r, err, "more than %d choices", CHOICES_MAX);
    for (size_t i = 0; i < json_array_size(r->texts); i++) {
        const char *s = json_string_value(json_array_get(r->texts, i));
        if (!s || !*s)
            return bad(r, err, "choice %zu is %s", i, s ? "empty" : "no text");
    }
    return 0;
}

/* Which choice is right: its number from 0, also as text, or its label. */
static int gold_of(const struct read *r, size_t *ret_gold, struct tern_err *err)
{
    const json_t *v = field(r, golds);
    const char *word = json_string_value(v);
    const size_t n = json_array_size(r->texts);
    int64_t number = -1;

    if (!v)
        return bad(r, err, "no answer, gold, label or answerKey");
    for (size_t i = 0; word && i < json_array_size(r->labels); i++) {
        const char *label = json_string_value(json_array_get(r->labels, i));
        if (label && strcmp(label, word) == 0 && i < n) {
            *ret_gold = i;
            return 0;
        }
    }
    if (json_is_integer(v))
        number = json_integer_value(v);
    else if (!word || r->labels || tern_str_int(word, 0, INT64_MAX, &number) < 0)
        return bad(r, err, "its answer is no number of a choice, and no label of one");
    if (number < 0 || number >= (int64_t)n)
        return bad(r, err, "its answer is %" PRId64 "; choices are 0 to %zu", number, n - 1);
    *ret_gold = (size_t)number;
    return 0;
}

/* ---------------------------------------------------------------- all of them */

static void *room_for(void *array, size_t n, size_t size, struct tern_err *err)
{
    if (n & (n - 1)) /* full at each power of two */
        return array;
    void *more = realloc(array, (n ? 2 * n : 1) * size);
    if (!more)
        tern_err_set(err, TERN_TEMPFAIL, "no memory for %zu choices", n);
    return more;
}

static double characters(const char *s)
{
    double n = 0;

    for (; *s; s++)
        n += (*s & 0xc0) != 0x80;
    return n;
}

static int add_choice(const struct read *r, const struct tern_infer_tokens *t, const char *context,
                      const char *choice, struct choices_set *s, struct tern_err *err)
{
    struct choices_one *more = room_for(s->all, s->n, sizeof *more, err);

    if (!more)
        return -1;
    s->all = more;
    struct choices_one *c = &s->all[s->n];
    *c = (struct choices_one){.characters = characters(choice), .bytes = (double)strlen(choice)};
    char *continuation = tern_strf("%s%s", r->how->delimiter, choice);
    int rc = tern_infer_row_encode(t, context, continuation, r->how->max, &c->row, err);
    free(continuation);
    if (rc < 0)
        return tern_err_prefix(err, "%s:%" PRIu64, r->how->path, r->line);
    s->n++;
    s->longest = c->row.n > s->longest ? c->row.n : s->longest;
    s->n_cut += c->row.cut > 0;
    s->scored += c->row.scored;
    return 0;
}

static int add_item(struct read *r, const struct tern_infer_tokens *t, struct choices_set *s,
                    struct tern_err *err)
{
    const char *context = context_of(r, err);
    struct choices_item item = {.line = r->line, .first = s->n};

    if (!context || find_choices(r, err) < 0 || gold_of(r, &item.gold, err) < 0)
        return -1;
    if (s->n_items == ITEMS_MAX)
        return bad(r, err, "more than %d items", ITEMS_MAX);
    item.n = json_array_size(r->texts);
    for (size_t i = 0; i < item.n; i++)
        if (add_choice(r, t, context, json_string_value(json_array_get(r->texts, i)), s, err) < 0)
            return -1;
    struct choices_item *more = room_for(s->items, s->n_items, sizeof *more, err);
    if (!more)
        return -1;
    s->items = more;
    s->items[s->n_items++] = item;
    return 0;
}

int choices_read(const struct choices_how *how, const struct tern_infer_tokens *t,
                 struct choices_set *s, struct tern_err *err)
{
    const struct tern_text_how jsonl = {.format = TERN_TEXT_JSONL, .records = true};
    struct tern_text *text = tern_text_open(how->path, &jsonl, err);
    const char *line;
    size_t len;
    int rc = -1;

    while (text && (rc = tern_text_next(text, &line, &len, err)) > 0) {
        struct read r = {.how = how, .line = tern_text_counts(text).lines};
        char *place = tern_strf("%s:%" PRIu64, how->path, r.line);
        r.item = tern_json_parse(line, len, place, err);
        free(place);
        rc = !r.item                  ? -1
             : json_is_object(r.item) ? add_item(&r, t, s, err)
                                      : bad(&r, err, "is no JSON object");
        json_decref(r.item);
        if (rc < 0)
            break;
    }
    tern_text_close(text);
    if (rc == 0 && s->n_items == 0)
        return tern_err_set(err, TERN_USAGE, "%s: holds no item", how->path);
    return rc < 0 ? -1 : 0;
}

void choices_free(struct choices_set *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->all[i].row.ids);
    free(s->all);
    free(s->items);
    *s = (struct choices_set){0};
}

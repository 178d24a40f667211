#include "core/text/line.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum {
    MAX_DEPTH = 2048, /* jansson's */
    STEP = 16,        /* bytes looked at together */
};

struct scan {
    const char *at, *end;
};

/* ---- runs of bytes that mean themselves ---- */

static bool is_plain(char c)
{
    return c != '"' && c != '\\' && (unsigned char)c >= ' ';
}

/* A bit for each of the STEP bytes at `s`: in the result those that are not plain, in *high those
 * that are not ASCII. */
#ifdef __SSE2__
static inline uint32_t look(const char *s, uint32_t *high)
{
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)s);
    const __m128i control = _mm_set1_epi8(0x1f);
    __m128i odd =
        _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')), _mm_cmpeq_epi8(v, _mm_set1_epi8('\\')));

    odd = _mm_or_si128(odd, _mm_cmpeq_epi8(_mm_max_epu8(v, control), control));
    *high = (uint32_t)_mm_movemask_epi8(v);
    return (uint32_t)_mm_movemask_epi8(odd);
}
#else
static inline uint32_t look(const char *s, uint32_t *high)
{
    uint32_t odd = 0, above = 0;

    for (int i = 0; i < STEP; i++) {
        odd |= (uint32_t)!is_plain(s[i]) << i;
        above |= (uint32_t)((unsigned char)s[i] >> 7) << i;
    }
    *high = above;
    return odd;
}
#endif

/* Behind the plain bytes. */
static inline const char *skip_plain(const char *s, const char *end, bool *ascii)
{
    uint32_t odd, high, seen = 0;

    for (; end - s >= STEP; s += STEP) {
        odd = look(s, &high);
        seen |= high;
        if (odd) {
            *ascii = *ascii && seen == 0;
            return s + __builtin_ctz(odd);
        }
    }
    for (; s < end && is_plain(*s); s++)
        seen |= *s & 0x80;
    *ascii = *ascii && seen == 0;
    return s;
}

/* The same, and copies them: behind the copy.  `to` has room for the whole rest and STEP bytes. */
static inline char *copy_plain(char *to, struct scan *s, bool *ascii)
{
    uint32_t odd, high, seen = 0;

    for (; s->end - s->at >= STEP; s->at += STEP, to += STEP) {
        odd = look(s->at, &high);
        seen |= high;
        memcpy(to, s->at, STEP);
        if (odd) {
            *ascii = *ascii && seen == 0;
            s->at += __builtin_ctz(odd);
            return to + __builtin_ctz(odd);
        }
    }
    for (; s->at < s->end && is_plain(*s->at); s->at++) {
        seen |= *s->at & 0x80;
        *to++ = *s->at;
    }
    *ascii = *ascii && seen == 0;
    return to;
}

/* ---- strings ---- */

static void blanks(struct scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r' || *s->at == '\n'))
        s->at++;
}

/* The next byte that is no blank; '\0' at the end. */
static char peek(struct scan *s)
{
    blanks(s);
    return s->at < s->end ? *s->at : '\0';
}

static bool take(struct scan *s, char c)
{
    if (peek(s) != c || s->at == s->end)
        return false;
    s->at++;
    return true;
}

static bool hex4(struct scan *s, uint32_t *code)
{
    *code = 0;
    if (s->end - s->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        uint32_t c = (unsigned char)*s->at++, letter = (c | 0x20) - 'a';
        if (c - '0' > 9 && letter > 5)
            return false;
        *code = *code << 4 | (c - '0' <= 9 ? c - '0' : letter + 10);
    }
    return true;
}

static char *put(char *to, uint32_t c)
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

    if (n == 1)
        to[0] = (char)c;
    else
        to[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c >> 6 * (n - 1));
    for (size_t i = 1; i < n; i++)
        to[i] = (char)(0x80 | (c >> 6 * (n - 1 - i) & 0x3f));
    return to + n;
}

/* The rest of an escape, behind the backslash: its character. */
static bool escape(struct scan *s, uint32_t *ret_code)
{
    static const char is[128] = {['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
                                 ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t'};
    uint32_t code, low;

    if (s->at == s->end)
        return false;
    unsigned char c = (unsigned char)*s->at++;
    if (c < sizeof is && is[c]) {
        *ret_code = (unsigned char)is[c];
        return true;
    }
    if (c != 'u' || !hex4(s, &code))
        return false;
    if (code >= 0xd800 && code < 0xdc00 && s->end - s->at >= 6 && s->at[0] == '\\' &&
        s->at[1] == 'u') {
        struct scan after = {s->at + 2, s->end};
        if (hex4(&after, &low) && low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            s->at = after.at;
        }
    }
    *ret_code = code;
    return true;
}

/* A string, behind its first quote. */
static bool skip_string(struct scan *s)
{
    uint32_t code;
    bool ascii = true;

    for (;;) {
        s->at = skip_plain(s->at, s->end, &ascii);
        if (s->at == s->end)
            return false;
        char c = *s->at++;
        if (c == '"')
            return true;
        if (c != '\\' || !escape(s, &code))
            return false;
    }
}

/* Room for `n` bytes more, which the line has, and STEP more, which copy_plain may write. */
static bool reserve(struct tern_buf *b, size_t n)
{
    n += b->len;
    if (b->cap >= n + STEP)
        return true;
    size_t cap = n + n / 4 + 4096;
    char *data = realloc(b->data, cap);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

/* A string, behind its first quote, as text: in the line, or appended to `room`. */
static bool take_string(struct scan *s, struct tern_buf *room, struct tern_text_line_text *text)
{
    const char *from = s->at;
    uint32_t code;

    text->ascii = true;
    const char *stop = skip_plain(from, s->end, &text->ascii);
    if (stop < s->end && *stop == '"') {
        text->s = from;
        text->len = (size_t)(stop - from);
        s->at = stop + 1;
        return true;
    }
    /* An escape is longer than its character. */
    if (!reserve(room, (size_t)(s->end - from)))
        return skip_string(s);
    char *to = room->data + room->len;
    for (;;) {
        to = copy_plain(to, s, &text->ascii);
        if (s->at == s->end)
            return false;
        char c = *s->at++;
        if (c == '"')
            break;
        if (c != '\\' || !escape(s, &code))
            return false;
        text->ascii = text->ascii && code < 0x80;
        to = put(to, code);
    }
    text->s = room->data + room->len;
    text->len = (size_t)(to - text->s);
    room->len += text->len;
    return true;
}

/* ---- values ---- */

static size_t digits(struct scan *s)
{
    const char *from = s->at;

    while (s->at < s->end && *s->at >= '0' && *s->at <= '9')
        s->at++;
    return (size_t)(s->at - from);
}

static bool word(struct scan *s, const char *w)
{
    size_t n = strlen(w);

    if ((size_t)(s->end - s->at) < n || memcmp(s->at, w, n) != 0)
        return false;
    s->at += n;
    return true;
}

static bool number(struct scan *s)
{
    bool minus = word(s, "-");

    if (word(s, "Infinity") || (!minus && word(s, "NaN")))
        return true;
    if (!word(s, "0") && digits(s) == 0)
        return false;
    if (word(s, ".") && digits(s) == 0)
        return false;
    if (!word(s, "e") && !word(s, "E"))
        return true;
    if (!word(s, "+"))
        word(s, "-");
    return digits(s) > 0;
}

static bool value(struct scan *s, int depth);

/* Members or elements, behind the bracket, to the other one. */
static bool inside(struct scan *s, char last, int depth)
{
    if (depth > MAX_DEPTH)
        return false;
    if (take(s, last))
        return true;
    do {
        if (last == '}' && !(take(s, '"') && skip_string(s) && take(s, ':')))
            return false;
        if (!value(s, depth))
            return false;
    } while (take(s, ','));
    return take(s, last);
}

static bool value(struct scan *s, int depth)
{
    switch (peek(s)) {
    case '"':
        s->at++;
        return skip_string(s);
    case '{':
        s->at++;
        return inside(s, '}', depth + 1);
    case '[':
        s->at++;
        return inside(s, ']', depth + 1);
    default:
        return word(s, "true") || word(s, "false") || word(s, "null") || number(s);
    }
}

/* ---- the field ---- */

/* What was found so far.  Strings that follow are appended in the room, so that an older state
 * stays good. */
struct state {
    enum tern_text_line_found found;
    bool in_room; /* from its beginning; else text.s is in the line */
    struct tern_text_line_text text;
    size_t n_strings;
};

struct find {
    struct scan s;
    const struct tern_text_field *field;
    struct tern_buf *room;
    struct state now;
};

/* One more string, behind its first quote, where there are some. */
static bool join_string(struct find *f)
{
    struct tern_text_line_text *all = &f->now.text, more;
    struct tern_buf *room = f->room;

    room->len = f->now.in_room ? all->len : 0;
    if (!reserve(room, all->len + 1 + (size_t)(f->s.end - f->s.at)))
        return false;
    if (!f->now.in_room)
        memcpy(room->data, all->s, all->len);
    room->len = all->len;
    room->data[room->len++] = '\n';
    const size_t at = room->len;
    if (!take_string(&f->s, room, &more) || room->failed)
        return false;
    if (room->len == at) { /* it is in the line */
        memcpy(room->data + at, more.s, more.len);
        room->len += more.len;
    }
    *all = (struct tern_text_line_text){room->data, room->len, all->ascii && more.ascii};
    f->now.in_room = true;
    return true;
}

/* A string behind its first quote: all of the text, or more of it. */
static bool found_string(struct find *f)
{
    if (f->now.found != TERN_TEXT_LINE_NO_STRING)
        f->now.found = TERN_TEXT_LINE_STRING;
    if (f->now.n_strings++ > 0)
        return join_string(f);
    f->room->len = 0;
    bool good = take_string(&f->s, f->room, &f->now.text);
    f->now.in_room = f->room->len > 0;
    return good && !f->room->failed;
}

/* A key, behind its first quote, and its colon. */
static bool take_key(struct scan *s, const char *wanted, size_t len, bool *ret_ours)
{
    const char *from = s->at;
    struct tern_buf room = {0};
    struct tern_text_line_text key;

    if (!skip_string(s))
        return false;
    const size_t n = (size_t)(s->at - from) - 1;
    *ret_ours = n == len && memcmp(from, wanted, len) == 0;
    if (!*ret_ours && n > len && memchr(from, '\\', n)) {
        struct scan again = {from, s->end};
        *ret_ours = take_string(&again, &room, &key) && !room.failed && key.len == len &&
                    memcmp(key.s, wanted, len) == 0;
        tern_buf_free(&room);
    }
    return take(s, ':');
}

static bool follow(struct find *f, size_t step, int depth);

/* A list, whose elements have the path's next step. */
static bool follow_each(struct find *f, size_t step, int depth)
{
    if (f->now.found == TERN_TEXT_LINE_NO_FIELD) {
        f->now.found = TERN_TEXT_LINE_STRING;
        f->now.text = (struct tern_text_line_text){"", 0, true};
    }
    if (take(&f->s, ']'))
        return true;
    do
        if (!follow(f, step, depth))
            return false;
    while (take(&f->s, ','));
    return take(&f->s, ']');
}

/* The members of an object, behind its bracket; of those named as the step the last counts. */
static bool follow_members(struct find *f, size_t step, int depth)
{
    const struct tern_text_field_step *k = &f->field->step[step];
    const struct state before = f->now;
    bool ours;

    if (take(&f->s, '}'))
        return true;
    do {
        if (!take(&f->s, '"') || !take_key(&f->s, k->key, k->len, &ours))
            return false;
        if (ours) {
            f->now = before;
            if (k->each && peek(&f->s) == '[') {
                f->s.at++;
                ours = follow_each(f, step + 1, depth + 1);
            } else if (k->each) {
                f->now.found = TERN_TEXT_LINE_NO_STRING;
                ours = value(&f->s, depth);
            } else {
                ours = follow(f, step + 1, depth);
            }
            if (!ours)
                return false;
        } else if (!value(&f->s, depth)) {
            return false;
        }
    } while (take(&f->s, ','));
    return take(&f->s, '}');
}

/* The value that the path's first `step` keys lead to. */
static bool follow(struct find *f, size_t step, int depth)
{
    const char next = peek(&f->s);

    if (step == f->field->n_steps && next == '"') {
        f->s.at++;
        return found_string(f);
    }
    if (step < f->field->n_steps && next == '{') {
        f->s.at++;
        return follow_members(f, step, depth + 1);
    }
    if (step == f->field->n_steps)
        f->now.found = TERN_TEXT_LINE_NO_STRING;
    return value(&f->s, depth);
}

static enum tern_text_line_found look_for(const char *line, size_t len,
                                          const struct tern_text_field *field,
                                          struct tern_buf *room,
                                          struct tern_text_line_text *ret_text)
{
    struct find f = {{line, line + len}, field, room, {.found = TERN_TEXT_LINE_NO_FIELD}};

    tern_buf_clear(room);
    if (!take(&f.s, '{') || !follow_members(&f, /* step= */ 0, /* depth= */ 0))
        return TERN_TEXT_LINE_NO_JSON;
    blanks(&f.s);
    if (f.s.at != f.s.end)
        return TERN_TEXT_LINE_NO_JSON;
    if (f.now.found != TERN_TEXT_LINE_STRING)
        return f.now.found;
    *ret_text = f.now.text;
    if (f.now.in_room)
        ret_text->s = room->data;
    return f.now.found;
}

enum tern_text_line_found tern_text_line_field(const char *line, size_t len,
                                               const struct tern_text_field *field,
                                               struct tern_buf *room,
                                               struct tern_text_line_text *ret_text)
{
    struct tern_text_field key = {field->whole, 1, {{field->whole, strlen(field->whole), false}}};
    enum tern_text_line_found found = look_for(line, len, field, room, ret_text);

    /* A key may have dots in it. */
    if (found == TERN_TEXT_LINE_NO_FIELD && (field->n_steps > 1 || field->step[0].each))
        found = look_for(line, len, &key, room, ret_text);
    return found;
}

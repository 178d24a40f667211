/* All tokens are decoded again for each new one: at 10,000 tokens this takes 0.2 ms.  A pass
 * through a model takes a hundred times as long.  So the text is the decoder's, by construction. */
#include "core/infer/stream.h"

#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

struct tern_infer_stream {
    const struct tern_token *token;
    const char *const *stops;
    size_t n_stops;
    uint32_t *ids;
    size_t n, cap;
    size_t before;        /* ids at the beginning that the text follows: 0 or 1 */
    struct tern_buf text; /* of all ids; `begin` bytes are of the id before */
    size_t begin, given, end;
    bool in_bytes; /* the text ends with a run of bytes that may go on */
    bool stopped;
};

static int decode(struct tern_infer_stream *s, struct tern_err *err)
{
    tern_buf_clear(&s->text);
    if (tern_token_decode_two(s->token, s->ids, s->n, s->before, &s->text, &s->begin, err) < 0)
        return -1;
    s->end = s->text.len;
    return 0;
}

static int append(struct tern_infer_stream *s, uint32_t id, struct tern_err *err)
{
    if (s->n == s->cap) {
        const size_t cap = s->cap ? 2 * s->cap : 256;
        void *more = realloc(s->ids, cap * sizeof *s->ids);
        if (!more)
            return tern_err_sys(err, "generated tokens");
        s->ids = more;
        s->cap = cap;
    }
    s->ids[s->n++] = id;
    return decode(s, err);
}

struct tern_infer_stream *tern_infer_stream_new(const struct tern_token *t, int32_t before,
                                                const char *const *stops, size_t n_stops,
                                                struct tern_err *err)
{
    struct tern_infer_stream *s = tern_alloc(1, sizeof *s, "a text", err);

    if (!s)
        return NULL;
    *s = (struct tern_infer_stream){.token = t, .stops = stops, .n_stops = n_stops};
    if (before >= 0 && (uint32_t)before < tern_token_n_vocab(t)) {
        s->before = 1;
        if (append(s, (uint32_t)before, err) < 0) {
            tern_infer_stream_free(s);
            return NULL;
        }
    }
    s->given = s->begin;
    return s;
}

void tern_infer_stream_free(struct tern_infer_stream *s)
{
    if (!s)
        return;
    tern_buf_free(&s->text);
    free(s->ids);
    free(s);
}

/* "<0xE2>": a byte of a character that the vocabulary lacks. */
static bool is_byte(const struct tern_token *t, uint32_t id)
{
    size_t len;
    const char *piece = tern_token_piece(t, id, &len);

    return piece && len == 6 && memcmp(piece, "<0x", 3) == 0 && piece[5] == '>';
}

/* The end of the text that no later token changes. A character may still be made of the bytes at
 * the end, which are U+FFFD until then. */
static size_t certain(const struct tern_infer_stream *s)
{
    static const char bad[] = "\xef\xbf\xbd";
    size_t end = s->end;

    while (end >= s->begin + 3 && memcmp(s->text.data + end - 3, bad, 3) == 0)
        end -= 3;
    return end;
}

/* Where a stop begins at or behind `from`, or may begin with the next token; or the text's end. */
static size_t find_stop(struct tern_infer_stream *s, size_t from)
{
    size_t first = s->end;

    for (size_t i = 0; i < s->n_stops; i++) {
        const char *stop = s->stops[i];
        size_t len = strlen(stop);
        const char *at =
            s->end > from ? memmem(s->text.data + from, s->end - from, stop, len) : NULL;
        if (at && (size_t)(at - s->text.data) <= first) {
            first = (size_t)(at - s->text.data);
            s->stopped = true;
        }
    }
    if (s->stopped)
        return s->end = first;
    for (size_t i = 0; i < s->n_stops; i++)
        for (size_t k = strlen(s->stops[i]) - 1; k > 0; k--)
            if (from + k <= s->end && memcmp(s->text.data + s->end - k, s->stops[i], k) == 0 &&
                s->end - k < first)
                first = s->end - k;
    return first;
}

int tern_infer_stream_add(struct tern_infer_stream *s, uint32_t id, const char **ret_text,
                          size_t *ret_len, struct tern_err *err)
{
    *ret_text = "";
    *ret_len = 0;
    if (id >= tern_token_n_vocab(s->token)) /* of a model that has spare ids: no text */
        return 0;
    const size_t before = s->end;
    if (append(s, id, err) < 0)
        return -1;
    s->in_bytes = is_byte(s->token, id) || (s->in_bytes && s->end == before); /* a special token */
    size_t stop = find_stop(s, s->given), to = certain(s);

    /* tokenizer.json reads a run of bytes as a whole: one that is wrong changes all of them. */
    if (!s->stopped && s->in_bytes && strcmp(tern_token_format(s->token), "tokenizer.json") == 0)
        return 0;
    to = to < stop ? to : stop;
    if (to > s->given) {
        *ret_text = s->text.data + s->given;
        *ret_len = to - s->given;
        s->given = to;
    }
    return s->stopped;
}

void tern_infer_stream_end(struct tern_infer_stream *s, const char **ret_text, size_t *ret_len)
{
    *ret_text = s->end > s->given ? s->text.data + s->given : "";
    *ret_len = s->end > s->given ? s->end - s->given : 0;
    s->given = s->end;
}

const char *tern_infer_stream_text(const struct tern_infer_stream *s, size_t *ret_len)
{
    *ret_len = s->end > s->begin ? s->end - s->begin : 0;
    return *ret_len ? s->text.data + s->begin : "";
}

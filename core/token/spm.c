/* SentencePiece .model files: the protocol buffer of sentencepiece_model.proto, read directly.  A
 * message is a list of (field << 3 | wire type, value); unknown fields are skipped. */
#include "core/token/vocab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Field numbers and model types of sentencepiece_model.proto. */
enum { MODEL_PIECE = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3, MODEL_DENORMALIZER = 5 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_KIND = 3 };
enum {
    TRAINER_MODEL_TYPE = 3,
    TRAINER_WHITESPACE_AS_SUFFIX = 24,
    TRAINER_BYTE_FALLBACK = 35,
    TRAINER_UNK_SURFACE = 44,
    TRAINER_BOS_PIECE = 46,
    TRAINER_EOS_PIECE = 47,
};
enum {
    NORMALIZER_CHARSMAP = 2,
    NORMALIZER_DUMMY_PREFIX = 3,
    NORMALIZER_REMOVE_EXTRA = 4,
    NORMALIZER_ESCAPE = 5,
};
enum { TYPE_UNIGRAM = 1, TYPE_BPE = 2, TYPE_WORD = 3, TYPE_CHAR = 4 };

enum wire { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct message {
    const char *at, *end;
};

struct field {
    uint32_t number;
    enum wire wire;
    uint64_t number_value; /* varint, or the bits of a fixed value */
    struct message bytes;
};

static bool varint(struct message *m, uint64_t *value)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (m->at == m->end)
            return false;
        uint8_t b = (uint8_t)*m->at++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *value = v;
            return true;
        }
    }
    return false;
}

static bool take(struct message *m, uint64_t n, struct message *part)
{
    if (n > (uint64_t)(m->end - m->at))
        return false;
    *part = (struct message){m->at, m->at + n};
    m->at += n;
    return true;
}

/* 1 and the next field, 0 at the end, -1 when the bytes make no sense. */
static int next(struct message *m, struct field *f)
{
    uint64_t key, n;
    struct message fixed;

    if (m->at == m->end)
        return 0;
    if (!varint(m, &key) || key >> 3 == 0 || key >> 3 > 0x1fffffff)
        return -1;
    *f = (struct field){.number = (uint32_t)(key >> 3), .wire = (enum wire)(key & 7)};
    switch (f->wire) {
    case WIRE_VARINT:
        return varint(m, &f->number_value) ? 1 : -1;
    case WIRE_BYTES:
        return varint(m, &n) && take(m, n, &f->bytes) ? 1 : -1;
    case WIRE_FIXED64:
    case WIRE_FIXED32:
        n = f->wire == WIRE_FIXED64 ? 8 : 4;
        if (!take(m, n, &fixed))
            return -1;
        memcpy(&f->number_value, fixed.at, n);
        return 1;
    }
    return -1;
}

static bool is(const struct field *f, uint32_t number, enum wire wire)
{
    return f->number == number && f->wire == wire;
}

/* The pieces that texts name; the proto's defaults until the file says otherwise. */
struct spec {
    bool has_trainer, has_normalizer;
    uint64_t model_type;
    struct message unk_surface, bos_piece, eos_piece;
    struct message charsmap;
    uint64_t denormalizer_bytes;
};

#define LITERAL(s)                                                                                 \
    {                                                                                              \
        (s), (s) + sizeof(s) - 1                                                                   \
    } /* as an initializer */

static int read_trainer(struct tern_token *t, struct message m, struct spec *spec)
{
    struct field f;
    int rc;

    spec->has_trainer = true;
    while ((rc = next(&m, &f)) > 0) {
        if (is(&f, TRAINER_MODEL_TYPE, WIRE_VARINT))
            spec->model_type = f.number_value;
        else if (is(&f, TRAINER_WHITESPACE_AS_SUFFIX, WIRE_VARINT))
            t->whitespace_as_suffix = f.number_value != 0;
        else if (is(&f, TRAINER_BYTE_FALLBACK, WIRE_VARINT))
            t->byte_fallback = f.number_value != 0;
        else if (is(&f, TRAINER_UNK_SURFACE, WIRE_BYTES))
            spec->unk_surface = f.bytes;
        else if (is(&f, TRAINER_BOS_PIECE, WIRE_BYTES))
            spec->bos_piece = f.bytes;
        else if (is(&f, TRAINER_EOS_PIECE, WIRE_BYTES))
            spec->eos_piece = f.bytes;
    }
    return rc;
}

static int read_normalizer(struct tern_token *t, struct message m, struct spec *spec)
{
    struct field f;
    int rc;

    spec->has_normalizer = true;
    while ((rc = next(&m, &f)) > 0) {
        if (is(&f, NORMALIZER_CHARSMAP, WIRE_BYTES))
            spec->charsmap = f.bytes;
        else if (is(&f, NORMALIZER_DUMMY_PREFIX, WIRE_VARINT))
            t->add_dummy_prefix = f.number_value != 0;
        else if (is(&f, NORMALIZER_REMOVE_EXTRA, WIRE_VARINT))
            t->remove_extra_whitespaces = f.number_value != 0;
        else if (is(&f, NORMALIZER_ESCAPE, WIRE_VARINT))
            t->escape_whitespaces = f.number_value != 0;
    }
    return rc;
}

static int read_denormalizer(struct message m, struct spec *spec)
{
    struct field f;
    int rc;

    while ((rc = next(&m, &f)) > 0)
        if (is(&f, NORMALIZER_CHARSMAP, WIRE_BYTES))
            spec->denormalizer_bytes = (uint64_t)(f.bytes.end - f.bytes.at);
    return rc;
}

static int read_piece(struct message m, struct tern_piece *p)
{
    struct field f;
    int rc;

    *p = (struct tern_piece){
        .text = m.at, .kind = TERN_PIECE_NORMAL, .rank = TERN_RANK_NONE, .order = TERN_RANK_NONE};
    while ((rc = next(&m, &f)) > 0) {
        if (is(&f, PIECE_TEXT, WIRE_BYTES)) {
            size_t len = (size_t)(f.bytes.end - f.bytes.at);
            p->text = f.bytes.at;
            p->len = len > UINT32_MAX ? UINT32_MAX : (uint32_t)len;
        } else if (is(&f, PIECE_SCORE, WIRE_FIXED32)) {
            uint32_t bits = (uint32_t)f.number_value;
            memcpy(&p->score, &bits, sizeof p->score);
        } else if (is(&f, PIECE_KIND, WIRE_VARINT)) {
            p->kind = f.number_value > TERN_PIECE_BYTE ? 0 : (uint8_t)f.number_value;
        }
    }
    return rc;
}

static int damaged(const struct tern_token *t, const char *where, struct tern_err *err)
{
    return tern_err_set(err, TERN_USAGE,
                        "%s: damaged or not a SentencePiece model (%s). Fetch it again.", t->path,
                        where);
}

static int check_spec(const struct tern_token *t, const struct spec *spec, struct tern_err *err)
{
    static const char *const types[] = {"?", "unigram", "BPE", "word", "char"};

    if (t->n_vocab == 0)
        return damaged(t, "no pieces", err);
    /* They follow the pieces: without them the file was cut where a piece ends. */
    if (!spec->has_trainer || !spec->has_normalizer)
        return damaged(t, "ends after its pieces", err);
    if (spec->model_type != TYPE_BPE)
        return tern_err_set(err, TERN_USAGE,
                            "%s: a SentencePiece %s model; only BPE models are supported", t->path,
                            spec->model_type <= TYPE_CHAR ? types[spec->model_type] : "?");
    if (spec->denormalizer_bytes)
        return tern_err_set(err, TERN_USAGE, "%s: a denormaliser is not supported", t->path);
    return 0;
}

/* The id of the control piece called `name`, or `usual` where the file has none. */
static int32_t control(const struct tern_token *t, struct message name, const char *usual)
{
    if (name.at == name.end)
        name = (struct message){usual, usual + strlen(usual)};
    size_t len = (size_t)(name.end - name.at);

    for (uint32_t i = 0; i < t->n_vocab; i++)
        if (t->pieces[i].kind == TERN_PIECE_CONTROL && t->pieces[i].len == len &&
            memcmp(t->pieces[i].text, name.at, len) == 0)
            return (int32_t)i;
    return TERN_TOKEN_NONE;
}

static bool is_nul(const struct tern_piece *p)
{
    return p->len == 1 && p->text[0] == '\0';
}

static int check_pieces(struct tern_token *t, struct tern_err *err)
{
    bool found[256] = {false};
    unsigned n_bytes = 0;

    t->unk = TERN_TOKEN_NONE;
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        struct tern_piece *p = &t->pieces[i];
        const char *bad = NULL;
        char digits[3] = "", *end;

        /* Some converters add a NUL to the bytes' pieces: it is never met. */
        if (is_nul(p) && t->byte_fallback)
            p->kind = TERN_PIECE_UNUSED;
        if (p->len == 0)
            bad = "is empty";
        else if (p->len > TERN_PIECE_BYTES_MAX)
            bad = "is longer than 4096 bytes";
        else if (isnan(p->score))
            bad = "has no score";
        else if (p->kind == 0)
            bad = "is of an unknown kind";
        else if (memchr(p->text, '\0', p->len) && !(is_nul(p) && p->kind == TERN_PIECE_UNUSED))
            bad = "holds a NUL";
        else if (p->kind == TERN_PIECE_UNUSED)
            t->has_unused |= !is_nul(p);
        else if (p->kind == TERN_PIECE_UNKNOWN && t->unk != TERN_TOKEN_NONE)
            bad = "is a second one for unknown text";
        else if (p->kind == TERN_PIECE_UNKNOWN)
            t->unk = (int32_t)i;
        else if (p->kind == TERN_PIECE_BYTE) {
            if (p->len == 6 && memcmp(p->text, "<0x", 3) == 0 && p->text[5] == '>')
                memcpy(digits, p->text + 3, 2);
            unsigned long b = strtoul(digits, &end, 16);
            if (end != digits + 2 || digits[0] == '+' || digits[0] == '-' || digits[0] == ' ')
                bad = "stands for no byte";
            else if (!t->byte_fallback)
                bad = "stands for a byte, but byte_fallback is off";
            else if (!found[b]) {
                found[b] = true;
                t->byte_id[b] = i;
                n_bytes++;
            }
        }
        if (bad)
            return tern_err_set(err, TERN_USAGE, "%s: piece %u %s", t->path, i, bad);
    }
    if (t->unk == TERN_TOKEN_NONE && !t->byte_fallback)
        return tern_err_set(err, TERN_USAGE, "%s: no piece for unknown text", t->path);
    if (t->byte_fallback && n_bytes != 256)
        return tern_err_set(err, TERN_USAGE,
                            "%s: byte_fallback is on, but %u of 256 bytes have a "
                            "piece",
                            t->path, n_bytes);
    return 0;
}

/* What the normaliser needs beside its flags: the character map, and the pieces that it leaves as
 * they are.  Without a map those show in extra spaces alone. */
static int make_normalizer(struct tern_token *t, const struct spec *spec, struct tern_err *err)
{
    struct tern_prefixes *raw = &t->user_raw;
    bool space = false;

    if (spec->charsmap.at < spec->charsmap.end) {
        t->charsmap = tern_token_charsmap_new(
            spec->charsmap.at, (size_t)(spec->charsmap.end - spec->charsmap.at), t->path, err);
        if (!t->charsmap)
            return -1;
    }
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        const struct tern_piece *p = &t->pieces[i];
        raw->n += p->kind == TERN_PIECE_USER_DEFINED;
        space |= p->kind == TERN_PIECE_USER_DEFINED && memchr(p->text, ' ', p->len);
    }
    if (!t->charsmap && !(space && t->remove_extra_whitespaces))
        raw->n = 0;
    if (raw->n == 0)
        return 0;
    raw->v = tern_alloc(raw->n, sizeof *raw->v, "user-defined pieces", err);
    if (!raw->v)
        return -1;
    raw->n = 0;
    for (uint32_t i = 0; i < t->n_vocab; i++)
        if (t->pieces[i].kind == TERN_PIECE_USER_DEFINED)
            raw->v[raw->n++] = (struct tern_prefix){t->pieces[i].text, t->pieces[i].len, i};
    tern_token_prefixes_sort(raw);
    return 0;
}

static int add_piece(struct tern_token *t, struct message m, size_t *cap, struct tern_err *err)
{
    if (t->n_vocab == *cap) {
        size_t grown = *cap ? 2 * *cap : 4096;
        void *p =
            grown > TERN_TOKEN_VOCAB_MAX ? NULL : realloc(t->pieces, grown * sizeof *t->pieces);
        if (!p)
            return tern_err_set(err, TERN_USAGE, "%s: more than %zu pieces", t->path, *cap);
        t->pieces = p;
        *cap = grown;
    }
    if (read_piece(m, &t->pieces[t->n_vocab]) < 0) {
        char where[64];
        snprintf(where, sizeof where, "piece %u", t->n_vocab);
        return damaged(t, where, err);
    }
    t->n_vocab++;
    return 0;
}

int tern_token_spm_parse(struct tern_token *t, size_t len, struct tern_err *err)
{
    struct message m = {t->pool, t->pool + len};
    struct spec spec = {.model_type = TYPE_UNIGRAM, .unk_surface = LITERAL(" \xe2\x81\x87 ")};
    struct field f;
    size_t cap = 0;
    int rc;

    t->add_dummy_prefix = t->remove_extra_whitespaces = t->escape_whitespaces = true;
    while ((rc = next(&m, &f)) > 0) {
        if (f.wire != WIRE_BYTES)
            continue;
        if (f.number == MODEL_PIECE && add_piece(t, f.bytes, &cap, err) < 0)
            return -1;
        if ((f.number == MODEL_TRAINER && read_trainer(t, f.bytes, &spec) < 0) ||
            (f.number == MODEL_NORMALIZER && read_normalizer(t, f.bytes, &spec) < 0) ||
            (f.number == MODEL_DENORMALIZER && read_denormalizer(f.bytes, &spec) < 0))
            return damaged(t, "its settings", err);
    }
    if (rc < 0) {
        char where[64];
        snprintf(where, sizeof where, "near byte %zu of %zu", (size_t)(m.at - t->pool), len);
        return damaged(t, where, err);
    }
    if (check_spec(t, &spec, err) < 0 || check_pieces(t, err) < 0 ||
        make_normalizer(t, &spec, err) < 0)
        return -1;
    t->bos = control(t, spec.bos_piece, "<s>");
    t->eos = control(t, spec.eos_piece, "</s>");
    t->unk_surface =
        strndup(spec.unk_surface.at, (size_t)(spec.unk_surface.end - spec.unk_surface.at));
    return t->unk_surface ? 0 : tern_err_sys(err, "%s", t->path);
}

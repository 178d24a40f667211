/* Texts and records as tokens. */
#include "core/data/coder.h"

#include "core/base/hash.h"
#include "core/token/token.h"

#include <string.h>

void tern_data_coder_begin(struct tern_data_coder *c, size_t path, enum tern_text_format format,
                           struct tern_text_chunk *chunk)
{
    tern_text_parser_begin(&c->parser, &c->how->text, tern_text_source_name(c->how->paths[path]),
                           format, chunk);
}

void tern_data_coder_free(struct tern_data_coder *c)
{
    tern_token_encoder_free(c->encoder);
    if (c->records)
        c->how->records->close(c->records);
    tern_text_parser_free(&c->parser);
}

static int encode_text(struct tern_data_coder *c, const char *text, size_t len,
                       struct tern_data_feed_doc *ret_doc, struct tern_err *err)
{
    if (!c->encoder && !(c->encoder = tern_token_encoder_new(c->how->token, err)))
        return -1;
    tern_token_encoder_specials(c->encoder, c->how->specials);
    if (tern_token_encode(c->encoder, text, len, &ret_doc->tokens.ids, &ret_doc->tokens.n_ids,
                          err) < 0)
        return tern_err_prefix(err, "%s", c->how->paths[ret_doc->path]);
    ret_doc->tokens.mask = NULL;
    ret_doc->tokens.text_bytes = len;
    ret_doc->tokens.cut = false;
    return 1;
}

/* 1, 0 where the record is bad and left out, -1. */
static int encode_record(struct tern_data_coder *c, const char *line, size_t len,
                         struct tern_data_feed_doc *ret_doc, struct tern_err *err)
{
    const struct tern_data_feed_records *r = c->how->records;
    struct tern_err why = {0};

    if (!c->records && !(c->records = r->open(r->arg, c->how->token, err)))
        return -1;
    if (r->encode(c->records, line, len, &ret_doc->tokens, &why) == 0)
        return 1;
    if (c->how->text.skip_bad && why.code == TERN_USAGE) {
        tern_text_parser_bad(&c->parser);
        return 0;
    }
    if (err)
        *err = why;
    return tern_err_prefix(err, "%s:%llu", c->parser.path,
                           (unsigned long long)tern_text_parser_line(&c->parser));
}

static void hash_text(const char *text, size_t len, uint8_t to[TERN_DATA_HASH])
{
    uint8_t whole[TERN_SHA256_BYTES];

    tern_sha256(text, len, whole);
    memcpy(to, whole, TERN_DATA_HASH);
}

/* Two records are the same document where their tokens and targets are, whatever else they say. */
static void hash_tokens(const struct tern_data_feed_tokens *t, uint8_t to[TERN_DATA_HASH])
{
    const uint8_t kind[2] = {t->mask != NULL, t->cut};
    uint8_t whole[TERN_SHA256_BYTES];
    struct tern_sha256 *h = tern_sha256_new();

    tern_sha256_add(h, kind, sizeof kind);
    tern_sha256_add(h, t->ids, t->n_ids * sizeof *t->ids);
    if (t->mask)
        tern_sha256_add(h, t->mask, t->n_ids);
    tern_sha256_end(h, whole);
    memcpy(to, whole, TERN_DATA_HASH);
}

/* Is a record's document shorter than is wanted?  It is counted then. */
static bool is_short(struct tern_data_coder *c, const struct tern_data_feed_tokens *t)
{
    const bool is = t->n_ids && t->text_bytes < c->how->text.min_bytes;

    c->parser.counts.too_short += is;
    return is;
}

int tern_data_coder_next(struct tern_data_coder *c, size_t path, struct tern_data_feed_doc *ret_doc,
                         struct tern_err *err)
{
    const char *text;
    size_t len;
    int rc;

    ret_doc->path = path;
    ret_doc->hash = c->how->hash ? c->hash : NULL;
    while ((rc = tern_text_parser_next(&c->parser, &text, &len, err)) > 0) {
        rc = c->how->records ? encode_record(c, text, len, ret_doc, err)
                             : encode_text(c, text, len, ret_doc, err);
        if (rc > 0 && c->how->records && is_short(c, &ret_doc->tokens))
            continue;
        if (rc > 0 && c->how->hash && c->how->records)
            hash_tokens(&ret_doc->tokens, c->hash);
        else if (rc > 0 && c->how->hash)
            hash_text(text, len, c->hash);
        if (rc != 0)
            break;
    }
    return rc;
}

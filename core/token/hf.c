/* The names of tokenizer.json's vocabulary. */
#include "core/token/json.h"

#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

static bool is_spaces(const struct tern_piece *p)
{
    static const size_t one = sizeof TERN_SPACE_MARK - 1;

    for (size_t i = 0; i < p->len; i += one)
        if (p->len - i < one || memcmp(p->text + i, TERN_SPACE_MARK, one) != 0)
            return false;
    return p->order != TERN_RANK_NONE;
}

/* Llama's runs of spaces have one score between them.  Equals come by id in tern's digest; older
 * converters give them that order, newer ones begin with the longest. */
static void sort_spaces(struct tern_token *t)
{
    for (uint32_t i = 0; i < t->n_model; i++) {
        if (!is_spaces(&t->pieces[i]))
            continue;
        uint32_t least = i; /* of the places that are left; a vocabulary has 15 such pieces or so */
        for (uint32_t k = i + 1; k < t->n_model; k++)
            if (is_spaces(&t->pieces[k]) && t->pieces[k].order < t->pieces[least].order)
                least = k;
        int32_t order = t->pieces[least].order;
        t->pieces[least].order = t->pieces[i].order;
        t->pieces[i].order = order;
    }
}

/* transformers 5 puts merges in the order of ids, runs of spaces among them. These have the least
 * score in Llama's model, and so are behind all others. */
static void spaces_last(struct tern_token *t)
{
    int32_t n = 0, moved = 0;
    int32_t *place = tern_alloc(t->n_model, sizeof *place, "a vocabulary", NULL); /* by order */

    for (uint32_t i = 0; i < t->n_model; i++)
        n = t->pieces[i].order >= n ? t->pieces[i].order + 1 : n;
    for (uint32_t i = 0; place && i < t->n_model; i++)
        if (t->pieces[i].order != TERN_RANK_NONE && is_spaces(&t->pieces[i]))
            place[t->pieces[i].order] = 1;
    for (int32_t k = 0; place && k < n; k++) {
        bool spaces = place[k];
        place[k] = spaces ? -1 : k - moved;
        moved += spaces;
    }
    for (uint32_t i = 0, last = 0; place && i < t->n_model; i++) {
        int32_t *order = &t->pieces[i].order;
        if (*order != TERN_RANK_NONE)
            *order = place[*order] >= 0 ? place[*order] : n - moved + (int32_t)last++;
    }
    free(place);
}

static void digest(struct tern_token *t, uint8_t hash[TERN_TOKEN_NAMES][TERN_SHA256_BYTES])
{
    tern_token_hash(t, hash[0]);
    if (t->byte_level) { /* its order of merges is no part of the name */
        memcpy(hash[1], hash[0], TERN_SHA256_BYTES);
        memcpy(hash[2], hash[0], TERN_SHA256_BYTES);
        return;
    }
    sort_spaces(t);
    tern_token_hash(t, hash[1]);
    spaces_last(t);
    tern_token_hash(t, hash[2]);
}

/* Every id has a piece of the model. */
static bool is_whole(const struct tern_token *t)
{
    for (uint32_t i = 0; i < t->n_model; i++)
        if (t->pieces[i].kind == TERN_PIECE_UNUSED)
            return false;
    return true;
}

int tern_token_json_hash(const char *path, uint8_t hash[TERN_TOKEN_NAMES][TERN_SHA256_BYTES],
                         struct tern_err *err)
{
    struct tern_token *t = tern_token_new(err);
    struct tern_token_json j = {.t = t};
    int rc = -1;

    if (!t)
        return -1;
    t->format = TERN_TOKEN_JSON;
    t->path = tern_strdup(path);
    if (tern_token_json_open(&j, err) == 0)
        rc = tern_token_json_settings(&j, NULL) < 0 ? 0
             : tern_token_json_pieces(&j, err) < 0  ? -1
             : t->byte_level || is_whole(t)         ? 1
                                                    : 0;
    if (rc == 1)
        digest(t, hash);
    tern_token_json_close(&j);
    tern_token_free(t);
    return rc;
}

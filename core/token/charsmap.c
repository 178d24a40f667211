/* SentencePiece's precompiled character maps (nfkc, nmt_nfkc and the like): a trie of texts, and
 * the texts that they become.
 *
 *     u32 bytes of the trie | u32 units of the trie | texts, each with a NUL behind it
 *
 * all little-endian.  The trie is a double array of Darts-clone.  A unit has a label, which is one
 * byte of a key, and a base.  Its child by byte b is the unit at base ^ b, if that one's label is
 * b. Where a key ends, the unit at the base itself is a leaf, whose value is the place of the text.
 */
#include "core/token/vocab.h"

#include "core/base/le.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAP_MAX = 8 << 20,              /* bytes; the largest published map has 320 KiB */
    BLOCK = 256,                    /* units are stored in blocks */
    KEY_MAX = TERN_PIECE_BYTES_MAX, /* bytes; keys of nfkc have at most 54 */
    LEAVES_MAX = 32,                /* so many keys of one text are looked at, the shortest first */
};

struct tern_charsmap {
    uint32_t *units;
    uint32_t n_units;
    char *texts;
    uint32_t texts_len;
};

static bool is_leaf(uint32_t unit)
{
    return unit >> 31;
}

/* Above 255 for a leaf. */
static uint32_t label(uint32_t unit)
{
    return unit & 0x800000ff;
}

static bool has_leaf(uint32_t unit)
{
    return unit >> 8 & 1;
}

static uint32_t offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & 1 << 9) >> 6);
}

static uint32_t value(uint32_t unit)
{
    return unit & 0x7fffffff;
}

/* Every way from the root stays inside the units and ends in a text: NULL, or what is wrong. */
static const char *check_units(const struct tern_charsmap *m)
{
    const uint32_t *units = m->units;

    if (label(units[0]) != 0 || has_leaf(units[0]) || offset(units[0]) == 0)
        return "its trie has no root";
    for (uint32_t i = 0; i < m->n_units; i++) {
        uint32_t base = i ^ offset(units[i]);
        if (is_leaf(units[i])) {
            if (value(units[i]) >= m->texts_len)
                return "its trie points outside its texts";
            if (((uint8_t)m->texts[value(units[i])] & 0xc0) == 0x80)
                return "its trie points into a character";
        } else if ((base | (BLOCK - 1)) >= m->n_units) {
            return "its trie leads outside itself";
        } else if (has_leaf(units[i]) && !is_leaf(units[base])) {
            return "its trie has no text for a key";
        }
    }
    return NULL;
}

static const char *check_texts(const struct tern_charsmap *m)
{
    unsigned n;

    if (m->texts_len == 0 || m->texts[m->texts_len - 1] != '\0')
        return "its last text is cut off";
    for (uint32_t i = 0; i < m->texts_len; i += n) {
        tern_token_utf8_decode(m->texts + i, m->texts_len - i, &n);
        if (n == 0)
            return "a text is not UTF-8";
    }
    return NULL;
}

/* Every key ends: no way leads back to a unit that it came from.  Goes down to the children of each
 * base once; `height` is 0 before that, ON_WAY during it, and then one more than the bytes that may
 * still follow. */
static const char *check_keys(const struct tern_charsmap *m)
{
    enum { ON_WAY = UINT16_MAX };
    struct step {
        uint32_t base;
        uint16_t next, longest;
    } *way = malloc((KEY_MAX + 1) * sizeof *way);
    uint16_t *height = calloc(m->n_units, sizeof *height);
    const char *bad = way && height ? NULL : "no memory";
    int depth = -1;

    if (!bad) {
        way[++depth] = (struct step){.base = offset(m->units[0])};
        height[way[0].base] = ON_WAY;
    }
    while (depth >= 0 && !bad) {
        struct step *at = &way[depth];
        if (at->next == BLOCK) {
            height[at->base] = at->longest + 1;
            if (depth-- > 0 && way[depth].longest < at->longest + 1)
                way[depth].longest = at->longest + 1;
            continue;
        }
        uint32_t unit = at->base ^ at->next;
        if (label(m->units[unit]) != at->next++)
            continue;
        uint32_t base = unit ^ offset(m->units[unit]);
        if (height[base] == ON_WAY)
            bad = "its trie has no end";
        else if (depth + 1 + (height[base] ? height[base] : 1) > KEY_MAX)
            bad = "a key is longer than 4096 bytes";
        else if (height[base] > at->longest)
            at->longest = height[base];
        else if (!height[base]) {
            way[++depth] = (struct step){.base = base};
            height[base] = ON_WAY;
        }
    }
    free(way);
    free(height);
    return bad;
}

struct tern_charsmap *tern_token_charsmap_new(const char *data, size_t len, const char *name,
                                              struct tern_err *err)
{
    struct tern_charsmap *m = tern_alloc(1, sizeof *m, "a character map", err);
    const char *bad = NULL;
    uint32_t trie = 0;

    if (!m)
        return NULL;
    if (len >= sizeof trie)
        trie = tern_le_get32(data);
    if (len > MAP_MAX)
        bad = "it has more than 8 MiB";
    else if (trie == 0 || trie % (BLOCK * sizeof *m->units) || trie >= len - sizeof trie)
        bad = "its trie is cut off";
    if (!bad) {
        m->n_units = trie / (uint32_t)sizeof *m->units;
        m->texts_len = (uint32_t)(len - sizeof trie - trie);
        m->units = tern_alloc(m->n_units, sizeof *m->units, "a character map", err);
        m->texts = tern_alloc(m->texts_len, 1, "a character map", err);
        if (!m->units || !m->texts)
            goto fail;
        for (uint32_t i = 0; i < m->n_units; i++)
            m->units[i] = tern_le_get32(data + sizeof trie + i * sizeof *m->units);
        memcpy(m->texts, data + sizeof trie + trie, m->texts_len);
        bad = check_texts(m);
    }
    if (!bad)
        bad = check_units(m);
    if (!bad)
        bad = check_keys(m);
    if (!bad)
        return m;
    tern_err_set(err, TERN_USAGE,
                 "%s: the normaliser's character map is damaged: %s. Fetch it again.", name, bad);
fail:
    tern_token_charsmap_free(m);
    return NULL;
}

void tern_token_charsmap_free(struct tern_charsmap *m)
{
    if (!m)
        return;
    free(m->units);
    free(m->texts);
    free(m);
}

void tern_token_charsmap_digest(const struct tern_charsmap *m, struct tern_sha256 *s)
{
    for (uint32_t i = 0; i < m->n_units; i++) {
        uint8_t unit[4];
        tern_le_put32(unit, m->units[i]);
        tern_sha256_add(s, unit, sizeof unit);
    }
    tern_sha256_add(s, m->texts, m->texts_len);
}

size_t tern_token_charsmap_next(const struct tern_charsmap *m, const char *s, size_t n,
                                const char **to, size_t *to_len)
{
    uint32_t base = offset(m->units[0]), text = 0;
    size_t longest = 0;
    unsigned leaves = 0;

    for (size_t i = 0; i < n && leaves < LEAVES_MAX; i++) {
        uint32_t at = base ^ (uint8_t)s[i], unit = m->units[at];
        if (label(unit) != (uint8_t)s[i])
            break;
        base = at ^ offset(unit);
        if (has_leaf(unit)) {
            longest = i + 1;
            text = value(m->units[base]);
            leaves++;
        }
    }
    if (longest) {
        *to = m->texts + text;
        *to_len = strlen(*to);
    }
    return longest;
}

#include "core/ledger/frame.h"

#include "core/base/hash.h"
#include "core/base/le.h"

#include <string.h>

static const uint8_t sync_word[4] = {'T', 'E', 'R', 'N'};

void tern_ledger_frame_encode(struct tern_buf *to, struct tern_ledger_frame *f)
{
    uint8_t h[TERN_FRAME_HEADER], t[TERN_FRAME_TRAILER];

    memcpy(h, sync_word, 4);
    tern_le_put32(h + 4, f->len);
    tern_le_put32(h + 8, f->type);
    tern_le_put32(h + 12, f->prev);
    tern_le_put64(h + 16, f->seq);
    tern_le_put64(h + 24, (uint64_t)f->wall_ns);
    tern_le_put32(h + 32, tern_crc32c(0, h, 32));
    f->crc = tern_crc32c(tern_crc32c(0, h, sizeof h), f->payload, f->len);
    tern_le_put32(t, f->crc);
    tern_buf_clear(to);
    tern_buf_add(to, h, sizeof h);
    tern_buf_add(to, f->payload, f->len);
    tern_buf_add(to, t, sizeof t);
}

static bool header_good(const uint8_t *p)
{
    return memcmp(p, sync_word, 4) == 0 && tern_le_get32(p + 32) == tern_crc32c(0, p, 32) &&
           tern_le_get32(p + 4) <= TERN_FRAME_MAX;
}

/* A whole frame at `at`? */
static bool frame_good(const struct tern_ledger_frame_scan *s, size_t at)
{
    if (s->len - at < TERN_FRAME_HEADER || !header_good(s->data + at))
        return false;
    size_t body = TERN_FRAME_HEADER + (size_t)tern_le_get32(s->data + at + 4);
    return s->len - at >= body + TERN_FRAME_TRAILER &&
           tern_le_get32(s->data + at + body) == tern_crc32c(0, s->data + at, body);
}

/* One past the last byte that is not zero. */
static size_t last_byte(const struct tern_ledger_frame_scan *s)
{
    size_t n = s->len;

    while (n > s->at && s->data[n - 1] == 0)
        n--;
    return n;
}

static enum tern_ledger_frame_found damage(struct tern_ledger_frame_scan *s, size_t look_from)
{
    size_t to = look_from;

    while (to < s->len) {
        const uint8_t *p = memchr(s->data + to, sync_word[0], s->len - to);
        to = p ? (size_t)(p - s->data) : s->len;
        if (!p || frame_good(s, to))
            break;
        to++;
    }
    s->from = s->at;
    s->to = to < s->len ? to : s->len;
    s->at = s->to;
    s->reported = true; /* the link behind damage is broken too: one finding is enough */
    return TERN_FRAME_DAMAGE;
}

/* The kind of bytes at s->at that are no frame. */
static enum tern_ledger_frame_found no_frame(struct tern_ledger_frame_scan *s)
{
    const uint8_t *p = s->data + s->at;
    size_t left = s->len - s->at, used = last_byte(s) - s->at;

    if (used == 0)
        return TERN_FRAME_ZEROS;
    if (left < TERN_FRAME_HEADER)
        return memcmp(p, sync_word, left < 4 ? left : 4) == 0 ? TERN_FRAME_TORN : damage(s, s->len);
    if (!header_good(p))
        return used < TERN_FRAME_HEADER ? TERN_FRAME_ZEROS : damage(s, s->at + 1);
    size_t body = TERN_FRAME_HEADER + (size_t)tern_le_get32(p + 4);
    if (left < body + TERN_FRAME_TRAILER)
        return TERN_FRAME_TORN;
    if (used <= body)
        return TERN_FRAME_ZEROS;
    return damage(s, s->at + body + TERN_FRAME_TRAILER);
}

enum tern_ledger_frame_found tern_ledger_frame_next(struct tern_ledger_frame_scan *s,
                                                    struct tern_ledger_frame *out)
{
    if (s->at >= s->len)
        return TERN_FRAME_NO_MORE;
    if (!frame_good(s, s->at))
        return no_frame(s);
    const uint8_t *p = s->data + s->at;
    struct tern_ledger_frame f = {.len = tern_le_get32(p + 4),
                                  .type = (uint16_t)tern_le_get32(p + 8),
                                  .prev = tern_le_get32(p + 12),
                                  .seq = tern_le_get64(p + 16),
                                  .wall_ns = (int64_t)tern_le_get64(p + 24),
                                  .payload = p + TERN_FRAME_HEADER};
    size_t body = TERN_FRAME_HEADER + (size_t)f.len;
    f.crc = tern_le_get32(p + body);
    if (s->linked && !s->reported && (f.prev != s->prev || f.seq != s->seq + 1)) {
        s->reported = true;
        s->from = s->to = s->at;
        return TERN_FRAME_BREAK;
    }
    s->linked = true;
    s->reported = false;
    s->prev = f.crc;
    s->seq = f.seq;
    s->at += body + TERN_FRAME_TRAILER;
    *out = f;
    return TERN_FRAME_OK;
}

#include "core/wire/ofi/record.h"

#include "core/base/hash.h"

#include <string.h>

static int refuse(const char **why, const char *word)
{
    *why = word;
    return -1;
}

static int read_ready(const struct record_reader *reader, struct record_view *v, const char **why)
{
    const struct record *h = &v->head;

    memcpy(&v->ready, v->payload, sizeof v->ready);
    tern_wire_ofi_ready_mask(reader->secrets[h->sender], reader->rank, h, &v->ready);
    if (h->bytes <= reader->eager_max || h->bytes > TERN_WIRE_CHUNK)
        return refuse(why, "a receive of an impossible size");
    if (!v->ready.chunk || v->ready.chunk > TERN_WIRE_CHUNK ||
        record_chunks(h->bytes, v->ready.chunk) > CHUNKS)
        return refuse(why, "impossible chunks");
    return 0;
}

static int read_control(struct record_view *v, int size, const char **why)
{
    memcpy(&v->control, v->payload, sizeof v->control);
    v->control.text[sizeof v->control.text - 1] = '\0';
    if (v->control.sender < 0 || (uint32_t)v->control.sender != v->head.sender)
        return refuse(why, "a control message in another's name");
    if (v->control.rank < 0 || v->control.rank >= size)
        return refuse(why, "a control message about no rank");
    return 0;
}

void tern_wire_ofi_ready_mask(const uint8_t secret[RECORD_SECRET], int to,
                              const struct record *head, struct record_ready *ready)
{
    enum { BLOCKS = (sizeof(uint64_t) * (1 + RAILS) + sizeof(uint32_t) + 15) / 16 };
    uint32_t in[4] = {(uint32_t)to, head->number, head->id, 0}, token;
    uint64_t mask[2 * BLOCKS];

    for (; in[3] < BLOCKS; in[3]++)
        tern_siphash(secret, in, sizeof in, (uint8_t *)&mask[2 * in[3]]);
    ready->address ^= mask[0];
    for (int i = 0; i < RAILS; i++)
        ready->key[i] ^= mask[1 + i];
    memcpy(&token, &mask[1 + RAILS], sizeof token);
    ready->token ^= token;
}

int tern_wire_ofi_record_read(const struct record_reader *reader, const void *bytes, size_t n,
                              struct record_view *v, const char **why)
{
    struct record *h = &v->head;
    uint8_t seal[RECORD_SECRET];

    if (n < sizeof *h)
        return refuse(why, "too short");
    tern_wire_ofi_record_hash(reader->secret, bytes, (const char *)bytes + sizeof *h, n - sizeof *h,
                              seal);
    if (!tern_hash_same(bytes, seal, RECORD_SECRET))
        return refuse(why, "a stranger's");
    memcpy(h, bytes, sizeof *h);
    v->payload = (const char *)bytes + sizeof *h;
    if (h->magic != RECORD_MAGIC || h->kind < RECORD_EAGER || h->kind >= RECORD_KINDS)
        return refuse(why, "not a record");
    if (h->sender >= (uint32_t)reader->size || h->sender == (uint32_t)reader->rank)
        return refuse(why, "from no rank");
    if (h->id >= (uint32_t)REQUESTS * GENERATIONS)
        return refuse(why, "about no request");
    if (h->kind == RECORD_EAGER && h->bytes > reader->eager_max)
        return refuse(why, "a short message that is long");
    size_t more = h->kind == RECORD_EAGER     ? h->bytes
                  : h->kind == RECORD_READY   ? sizeof v->ready
                  : h->kind == RECORD_CONTROL ? sizeof v->control
                                              : 0;
    if (n != sizeof *h + more)
        return refuse(why, "of the wrong length");
    if (h->kind == RECORD_READY)
        return read_ready(reader, v, why);
    if (h->kind == RECORD_CONTROL)
        return read_control(v, reader->size, why);
    return 0;
}

bool tern_wire_ofi_window_add(struct window *w, uint32_t number)
{
    int32_t ahead = window_ahead(number, w->low);

    if (ahead < 0 || ahead >= WINDOW)
        return false;
    uint64_t *word = &w->bits[number % WINDOW / 64], bit = 1ull << number % 64;
    if (*word & bit)
        return false;
    *word |= bit;
    while (w->bits[w->low % WINDOW / 64] & 1ull << w->low % 64) {
        w->bits[w->low % WINDOW / 64] &= ~(1ull << w->low % 64);
        w->low++;
    }
    return true;
}

#include "core/tensorboard/record.h"

#include "core/base/assert.h"
#include "core/base/hash.h"
#include "core/base/le.h"

#include <string.h>

/* Protobuf's encoding of a message of few bytes. */
struct message {
    uint8_t data[512];
    size_t len;
};

enum { VARINT = 0, BYTES_8 = 1, BYTES = 2, BYTES_4 = 5 };

static void put_byte(struct message *m, uint8_t b)
{
    tern_assert(m->len < sizeof m->data);
    m->data[m->len++] = b;
}

static void put_varint(struct message *m, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        put_byte(m, (uint8_t)(v | 0x80));
    put_byte(m, (uint8_t)v);
}

static void put_key(struct message *m, unsigned field, unsigned type)
{
    put_varint(m, field << 3 | type);
}

static void put_bytes(struct message *m, unsigned field, const void *data, size_t len)
{
    put_key(m, field, BYTES);
    put_varint(m, len);
    tern_assert(len <= sizeof m->data - m->len);
    memcpy(m->data + m->len, data, len);
    m->len += len;
}

static void put_little(struct message *m, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        put_byte(m, (uint8_t)(v >> 8 * i));
}

/* An Event's first fields. */
static struct message event(int64_t wall_ns, int64_t step)
{
    struct message m = {.len = 0};
    double seconds = (double)wall_ns / 1e9;
    uint64_t bits;

    memcpy(&bits, &seconds, sizeof bits);
    put_key(&m, 1, BYTES_8);
    put_little(&m, bits, 8);
    if (step) {
        put_key(&m, 2, VARINT);
        put_varint(&m, (uint64_t)step);
    }
    return m;
}

static void put_record(struct tern_buf *to, const struct message *m)
{
    uint8_t head[12], tail[4];

    tern_le_put64(head, m->len);
    tern_le_put32(head + 8, tern_crc32c_masked(head, 8));
    tern_le_put32(tail, tern_crc32c_masked(m->data, m->len));
    tern_buf_add(to, head, sizeof head);
    tern_buf_add(to, m->data, m->len);
    tern_buf_add(to, tail, sizeof tail);
}

void tern_tensorboard_put_version(struct tern_buf *to, int64_t wall_ns)
{
    static const char version[] = "brain.Event:2";
    struct message m = event(wall_ns, 0);

    put_bytes(&m, 3, version, sizeof version - 1);
    put_record(to, &m);
}

void tern_tensorboard_put_start(struct tern_buf *to, int64_t wall_ns, int64_t step)
{
    static const uint8_t start[] = {1 << 3 | VARINT, 1};
    struct message m = event(wall_ns, step);

    put_bytes(&m, 7, start, sizeof start);
    put_record(to, &m);
}

void tern_tensorboard_put_scalar(struct tern_buf *to, int64_t wall_ns, int64_t step,
                                 const char *tag, double value)
{
    struct message m = event(wall_ns, step), scalar = {.len = 0}, summary = {.len = 0};
    float v = (float)value;
    uint32_t bits;

    tern_assert(strlen(tag) <= TERN_TENSORBOARD_TAG_MAX);
    memcpy(&bits, &v, sizeof bits);
    put_bytes(&scalar, 1, tag, strlen(tag));
    put_key(&scalar, 2, BYTES_4);
    put_little(&scalar, bits, 4);
    put_bytes(&summary, 1, scalar.data, scalar.len);
    put_bytes(&m, 5, summary.data, summary.len);
    put_record(to, &m);
}

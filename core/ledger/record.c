#include "core/ledger/record.h"

#include "core/base/le.h"

#include <stdlib.h>
#include <string.h>

enum { NULL_TEXT = -1 };

static void put32(struct tern_buf *to, uint32_t v)
{
    uint8_t le[4];

    tern_le_put32(le, v);
    tern_buf_add(to, le, sizeof le);
}

void tern_ledger_record_put_int(struct tern_buf *to, int64_t v)
{
    uint8_t le[8];

    tern_le_put64(le, (uint64_t)v);
    tern_buf_add(to, le, sizeof le);
}

void tern_ledger_record_put_real(struct tern_buf *to, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    tern_ledger_record_put_int(to, (int64_t)bits);
}

void tern_ledger_record_put_text(struct tern_buf *to, const char *s)
{
    put32(to, s ? (uint32_t)strlen(s) : (uint32_t)NULL_TEXT);
    if (s)
        tern_buf_add(to, s, strlen(s));
}

static const uint8_t *take(struct tern_ledger_record_reader *r, size_t n)
{
    if (r->bad || (size_t)(r->end - r->at) < n) {
        r->bad = true;
        return NULL;
    }
    r->at += n;
    return r->at - n;
}

static uint32_t get32(struct tern_ledger_record_reader *r)
{
    const uint8_t *p = take(r, 4);

    return p ? tern_le_get32(p) : 0;
}

int64_t tern_ledger_record_get_int(struct tern_ledger_record_reader *r)
{
    const uint8_t *p = take(r, 8);

    return p ? (int64_t)tern_le_get64(p) : 0;
}

double tern_ledger_record_get_real(struct tern_ledger_record_reader *r)
{
    uint64_t bits = (uint64_t)tern_ledger_record_get_int(r);
    double v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

const char *tern_ledger_record_get_text(struct tern_ledger_record_reader *r, size_t *len)
{
    uint32_t n = get32(r);

    *len = 0;
    if (r->bad || n == (uint32_t)NULL_TEXT)
        return NULL;
    const char *s = (const char *)take(r, n);
    if (s && memchr(s, '\0', n)) {
        r->bad = true;
        return NULL;
    }
    if (s)
        *len = n;
    return s;
}

void tern_ledger_record_put_name(struct tern_buf *to, const char *s)
{
    char *masked = s ? tern_strdup(s) : NULL;

    if (masked)
        tern_str_mask(masked);
    tern_ledger_record_put_text(to, masked);
    free(masked);
}

bool tern_ledger_record_name_good(const char *s, size_t len)
{
    for (size_t i = 0, n; s && i < len; i += n)
        if ((n = tern_str_character(s + i, len - i)) == 0)
            return false;
    return s && len > 0;
}

/* May it be read?  Writers of older terns took names that are not UTF-8: a byte from 0xa0 on passes
 * by itself.  Each control character above ASCII has a byte below that. */
static bool may_read(const char *s, size_t len)
{
    for (size_t i = 0, n; s && i < len; i += n)
        if ((n = tern_str_character(s + i, len - i)) == 0) {
            if ((unsigned char)s[i] < 0xa0)
                return false;
            n = 1;
        }
    return s && len > 0;
}

const char *tern_ledger_record_get_name(struct tern_ledger_record_reader *r, size_t *len)
{
    const char *s = tern_ledger_record_get_text(r, len);

    r->bad |= !may_read(s, *len);
    if (!r->bad)
        return s;
    *len = 0;
    return NULL;
}

const char *tern_ledger_record_get_some_name(struct tern_ledger_record_reader *r, size_t *len)
{
    const char *s = tern_ledger_record_get_text(r, len);

    if (!s || !*len || may_read(s, *len))
        return s;
    r->odd = true;
    *len = 0;
    return NULL;
}

/* A text into an array of `size`; one that does not fit is bad. */
static void get_array(struct tern_ledger_record_reader *r, char *to, size_t size)
{
    size_t len;
    const char *s = tern_ledger_record_get_text(r, &len);

    if (len >= size) {
        r->bad = true;
        len = 0;
    }
    if (len)
        memcpy(to, s, len);
    to[len] = '\0';
}

/* The same of a name; one that is none is odd, and masked. */
static void get_name_array(struct tern_ledger_record_reader *r, char *to, size_t size)
{
    get_array(r, to, size);
    r->odd |= *to && !may_read(to, strlen(to));
    tern_str_mask(to);
}

void tern_ledger_record_put_head(struct tern_buf *to, const struct tern_ledger_record_head *h)
{
    put32(to, h->format);
    tern_ledger_record_put_text(to, h->run_id);
    put32(to, h->attempt);
    tern_ledger_record_put_text(to, h->writer);
    put32(to, h->number);
    tern_ledger_record_put_int(to, (int64_t)h->instance);
    tern_ledger_record_put_int(to, (int64_t)h->first_seq);
    tern_ledger_record_put_name(to, h->host);
    tern_ledger_record_put_int(to, h->pid);
}

int tern_ledger_record_get_head(const struct tern_ledger_frame *f, const char *path,
                                struct tern_ledger_record_head *h, struct tern_err *err)
{
    struct tern_ledger_record_reader r = {.at = f->payload, .end = f->payload + f->len};
    struct tern_ledger_record_head got = {0};

    if (f->type != TERN_FRAME_HEAD)
        return tern_err_set(err, TERN_FAILED, "%s: does not begin like a spool file", path);
    got.format = get32(&r);
    if (!r.bad && got.format > TERN_FRAME_FORMAT)
        return tern_err_set(
            err, TERN_FAILED,
            "%s: format %u is newer than this tern's %d. Read it with a newer tern.", path,
            got.format, TERN_FRAME_FORMAT);
    get_array(&r, got.run_id, sizeof got.run_id);
    got.attempt = get32(&r);
    get_name_array(&r, got.writer, sizeof got.writer);
    got.number = get32(&r);
    got.instance = (uint64_t)tern_ledger_record_get_int(&r);
    got.first_seq = (uint64_t)tern_ledger_record_get_int(&r);
    get_name_array(&r, got.host, sizeof got.host);
    got.pid = tern_ledger_record_get_int(&r);
    if (r.bad || got.format == 0 || got.attempt == 0 || got.first_seq == 0 ||
        !tern_ledger_ulid_valid(got.run_id))
        return tern_err_set(err, TERN_FAILED, "%s: its head makes no sense", path);
    got.odd = r.odd;
    *h = got;
    return 0;
}

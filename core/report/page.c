/* Pages of HTML: their beginning and end, their data, and the policy that browsers hold them to. */
#include "core/report/page.h"

#include "core/base/again.h"
#include "core/base/assert.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report_files.h" /* made from the files by make */

/* In the head of every page, within its first bytes. */
static const char mark[] = "<meta name=\"generator\" content=\"tern ledger report\">";
enum { MARK_WITHIN = 1024, CHUNK = 64 << 10 };

struct tern_report_page {
    int fd;
    char *name;
    const char *rest;  /* of page.html, behind the place of the data */
    struct tern_buf b; /* not yet written */
    uint64_t written;
    bool failed;
    struct tern_err err; /* of a write between two calls of jansson's */
};

uint64_t tern_report_page_size(const struct tern_report_page *p)
{
    return p->written + p->b.len;
}

/* Write what waits, if there is `least` of it.  Nothing comes behind a write that failed. */
static int flush(struct tern_report_page *p, size_t least, struct tern_err *err)
{
    tern_assert(!p->failed, "%s: behind %" PRIu64 " bytes", p->name, p->written);
    if (tern_buf_check(&p->b, p->name, err) < 0 ||
        (p->b.len >= least && tern_fs_write(p->fd, p->b.data, p->b.len, p->name, err) < 0)) {
        p->failed = true;
        return -1;
    }
    if (p->b.len >= least) {
        p->written += p->b.len;
        tern_buf_clear(&p->b);
    }
    return 0;
}

/* ---------------------------------------------------------------- head and tail */

static void put_escaped(struct tern_buf *b, const char *text)
{
    char *clean = tern_strdup(text);

    tern_str_mask(clean);
    for (const char *s = clean; *s; s++)
        switch (*s) {
        case '&':
            tern_buf_puts(b, "&amp;");
            break;
        case '<':
            tern_buf_puts(b, "&lt;");
            break;
        case '>':
            tern_buf_puts(b, "&gt;");
            break;
        case '"':
            tern_buf_puts(b, "&quot;");
            break;
        case '\'':
            tern_buf_puts(b, "&#39;");
            break;
        default:
            tern_buf_add(b, s, 1);
        }
    free(clean);
}

/* 'sha256-...' of the policy, in base64 (RFC 4648). */
static void put_digest(struct tern_buf *b, const char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t d[TERN_SHA256_BYTES + 1] = {0}; /* 33 bytes are 44 digits, of which the last is '=' */

    tern_sha256(text, strlen(text), d);
    tern_buf_puts(b, "'sha256-");
    for (size_t i = 0; i < sizeof d; i += 3) {
        const uint32_t w = (uint32_t)d[i] << 16 | (uint32_t)d[i + 1] << 8 | d[i + 2];
        const char four[] = {digits[w >> 18], digits[w >> 12 & 63], digits[w >> 6 & 63],
                             i + 3 < sizeof d ? digits[w & 63] : '='};
        tern_buf_add(b, four, sizeof four);
    }
    tern_buf_puts(b, "'");
}

/* Append page.html from `from` on, with each @NAME@ replaced, up to @DATA@ or the end.  `live`: the
 * page may ask where it came from. */
static const char *put_html(struct tern_buf *b, const char *from, const char *title, bool live)
{
    static const char *const names[] = {"@TITLE@", "@STYLE@",     "@SCRIPT@",     "@DATA@",
                                        "@MARK@",  "@STYLE_SHA@", "@SCRIPT_SHA@", "@CONNECT@"};
    enum { TITLE, STYLE, SCRIPT, DATA, MARK, STYLE_SHA, SCRIPT_SHA, CONNECT, N };

    while (*from) {
        size_t plain = strcspn(from, "@"), k = 0;
        tern_buf_add(b, from, plain);
        from += plain;
        while (*from && k < N && !tern_str_starts(from, names[k]))
            k++;
        if (*from && k == N)
            tern_buf_add(b, from++, 1);
        if (!*from || k == N)
            continue;
        from += strlen(names[k]);
        if (k == DATA)
            break;
        if (k == TITLE)
            put_escaped(b, title);
        else if (k == MARK)
            tern_buf_puts(b, mark);
        else if (k == STYLE)
            tern_buf_puts(b, report_page_css);
        else if (k == SCRIPT)
            tern_buf_puts(b, report_page_js);
        else if (k == CONNECT)
            tern_buf_puts(b, live ? "connect-src 'self'; " : "");
        else
            put_digest(b, k == STYLE_SHA ? report_page_css : report_page_js);
    }
    return from;
}

static struct tern_report_page *open_page(int fd, const char *name, const char *title, bool live,
                                          struct tern_err *err)
{
    struct tern_report_page *p = tern_alloc(1, sizeof *p, "a page", err);

    if (!p)
        return NULL;
    p->fd = fd;
    p->name = tern_strdup(name);
    p->rest = put_html(&p->b, report_page_html, title, live);
    return p;
}

struct tern_report_page *tern_report_page_open(int fd, const char *name, const char *title,
                                               struct tern_err *err)
{
    return open_page(fd, name, title, /* live= */ false, err);
}

struct tern_report_page *tern_report_page_open_live(int fd, const char *name, const char *title,
                                                    struct tern_err *err)
{
    return open_page(fd, name, title, /* live= */ true, err);
}

int tern_report_page_close(struct tern_report_page *p, struct tern_err *err)
{
    int rc = p->failed ? -1 : 0;

    if (rc == 0 && err) {
        put_html(&p->b, p->rest, "", /* live= */ false);
        rc = flush(p, 0, err);
    }
    tern_buf_free(&p->b);
    free(p->name);
    free(p);
    return rc;
}

/* ---------------------------------------------------------------- data */

/* JSON in ASCII, so that no line separator and no mark of direction is left.  Its texts alone have
 * characters that end or begin an element; escaped they are the same texts. */
static int put_json(const char *s, size_t n, void *arg)
{
    struct tern_report_page *p = arg;

    for (size_t at = 0; at < n;) {
        size_t plain = at;
        while (plain < n && s[plain] != '<' && s[plain] != '>' && s[plain] != '&')
            plain++;
        tern_buf_add(&p->b, s + at, plain - at);
        if (plain < n)
            tern_buf_printf(&p->b, "\\u%04x", (unsigned)s[plain++]);
        at = plain;
    }
    return flush(p, CHUNK, &p->err);
}

int tern_report_page_data(struct tern_report_page *p, const char *kind, json_t *j,
                          struct tern_err *err)
{
    int rc = -1;

    tern_buf_printf(&p->b, "<script type=\"application/json\" class=\"%s\">", kind);
    if (!j || json_dump_callback(j, put_json, p,
                                 JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9)) < 0) {
        if (!p->failed)
            tern_err_set(&p->err, TERN_TEMPFAIL, "%s: no memory for a part of the page", p->name);
        p->failed = true;
        if (err)
            *err = p->err;
        goto out;
    }
    tern_buf_puts(&p->b, "</script>\n");
    rc = flush(p, CHUNK, err);
out:
    json_decref(j);
    return rc;
}

/* ---------------------------------------------------------------- files */

bool tern_report_page_is(const char *path)
{
    char head[MARK_WITHIN + 1] = "";
    int fd = TERN_AGAIN(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC));

    if (fd < 0)
        return errno == ENOENT;
    ssize_t n = TERN_AGAIN(pread(fd, head, MARK_WITHIN, 0));
    close(fd);
    return n > 0 && strstr(head, mark);
}

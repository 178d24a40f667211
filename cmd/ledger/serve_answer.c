/* What tern ledger serve answers: the right to ask, the page, its data, the list of runs. */
#include "cmd/ledger/serve.h"

#include "core/base/again.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/report/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    LIST = 200,          /* runs of the list: the newest */
    PAGE_MAX = 16 << 20, /* bytes of a page without data: 100 KB */
};

/* ---------------------------------------------------------------- the right to ask */

/* A page of another site can make a browser ask under a name of that site's, which leads here. Then
 * the name gives it away. */
static bool is_local_name(const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t n = strlen(names[i]);
        const char *port = host + n;
        if (strncmp(host, names[i], n) != 0)
            continue;
        if (!*port)
            return true;
        return *port == ':' && port[1] && strlen(port) <= 6 &&
               strspn(port + 1, "0123456789") == strlen(port + 1);
    }
    return false;
}

/* In the same time for any other token. */
static bool same_token(const char *a, const char *b)
{
    unsigned char differ = 0;

    for (size_t i = 0; i < SERVE_TOKEN; i++)
        differ |= (unsigned char)(a[i] ^ b[i]);
    return differ == 0;
}

/* What stands behind the token, or NULL. */
static const char *behind_token(const struct serve *s, const char *path)
{
    if (*path++ != '/')
        return NULL;
    if (!*s->token)
        return path;
    if (strnlen(path, SERVE_TOKEN + 1) <= SERVE_TOKEN || !same_token(path, s->token) ||
        path[SERVE_TOKEN] != '/')
        return NULL;
    return path + SERVE_TOKEN + 1;
}

static void say(struct serve_answer *a, unsigned status, const char *words)
{
    *a = (struct serve_answer){status, "text/plain; charset=utf-8", tern_strf("%s\n", words), 0};
    a->len = strlen(a->body);
}

/* ---------------------------------------------------------------- data */

static void put_json(struct serve_answer *a, json_t *j)
{
    char *text =
        j ? json_dumps(j, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9)) : NULL;

    json_decref(j);
    if (!text) {
        say(a, 503, "no memory");
        return;
    }
    *a = (struct serve_answer){200, "application/json", text, strlen(text)};
}

static void fail(struct serve_answer *a, const struct tern_err *err)
{
    char *words = tern_strdup(err->text);

    tern_str_mask(words);
    tern_warn("%s", words);
    say(a, err->code == TERN_USAGE ? 404 : 500, words);
    free(words);
}

/* As tern ledger list says it: silent, where the run's home shows no sign of life. */
static const char *state_of(const struct tern_ledger_rows *homes, const struct tern_ledger_run *r)
{
    const char *const named = show.ledger;

    for (size_t i = homes->n; i-- > 0;) { /* the first that has it */
        char *folder = tern_strf("%s/runs/%s", homes->names[i], r->id);
        if (tern_fs_exists(folder))
            show.ledger = homes->names[i];
        free(folder);
    }
    const char *state = show_state(r);
    show.ledger = named;
    return state;
}

/* The caller's runs, newest first. */
static void answer_list(const struct serve *s, struct serve_answer *a)
{
    struct tern_ledger_rows homes = {0}, rows = {0};
    struct tern_err err = {0};
    struct tern_ledger *l = NULL;

    if (tern_ledger_homes(s->ledger, /* all= */ false, &homes, &err) < 0 ||
        !(l = tern_ledger_open_homes(&homes, &err)) || tern_ledger_runs(l, &rows, &err) < 0) {
        fail(a, &err);
    } else {
        json_t *list = json_array();
        for (size_t i = rows.n; i-- > 0 && json_array_size(list) < LIST;) {
            const struct tern_ledger_run *r = &rows.runs[i];
            json_array_append_new(list,
                                  json_pack("{s:o, s:o, s:o, s:o}", "id", show_json_text(r->id),
                                            "name", show_json_text(r->name), "state",
                                            show_json_text(state_of(&homes, r)), "step",
                                            show_json_int(r->last_step, -1)));
        }
        put_json(a, list);
    }
    tern_ledger_rows_free(&rows);
    tern_ledger_close(l);
    tern_ledger_rows_free(&homes);
}

/* How far the spools are read: grows with every record. */
static int read_bytes(struct tern_ledger *l, char to[32], struct tern_err *err)
{
    struct tern_ledger_table t = {0};

    if (tern_ledger_sql(l, "SELECT coalesce(sum(bytes), 0) FROM ingest", /* max_rows= */ 1,
                        /* seconds= */ 10, &t, err) < 0)
        return -1;
    snprintf(to, 32, "%s", t.n_rows ? t.cells[0].text : "");
    tern_ledger_table_free(&t);
    return 0;
}

/* Changes when a run does. */
static int make_stamp(const struct report_runs *r, char stamp[TERN_SHA256_HEX],
                      struct tern_err *err)
{
    struct tern_sha256 *h = tern_sha256_new();
    uint8_t digest[TERN_SHA256_BYTES];
    const char *const named = show.ledger;
    int rc = 0;

    for (size_t i = 0; i < r->n && rc == 0; i++) {
        struct tern_ledger_rows rows = {0};
        struct tern_ledger *l = show_open_run(report_runs_typed(r, i), err);
        char bytes[32];
        rc = l && tern_ledger_runs(l, &rows, err) == 0 ? read_bytes(l, bytes, err) : -1;
        for (size_t k = 0; k < rows.n && rc == 0; k++) {
            char *text = tern_strf("%s %s %s\n", rows.runs[k].id, show_state(&rows.runs[k]), bytes);
            tern_sha256_add(h, text, strlen(text));
            free(text);
        }
        tern_ledger_rows_free(&rows);
        tern_ledger_close(l);
        show_forget_home(named);
    }
    tern_sha256_end(h, digest);
    tern_hex(stamp, digest, sizeof digest);
    return rc;
}

static int read_runs(struct report_runs *r, json_t *to, struct tern_err *err)
{
    for (size_t i = 0; i < r->n; i++) {
        json_t *j = NULL;
        if (report_runs_read(r, i, &j, err) < 0)
            return -1;
        json_array_append_new(to, j);
    }
    return 0;
}

static void answer_data(const struct serve *s, const struct serve_request *q,
                        struct serve_answer *a)
{
    struct report_runs r = {0};
    struct tern_err err = {0};
    char stamp[TERN_SHA256_HEX] = "";
    json_t *runs = json_array();

    for (size_t i = 0; i < q->n_runs; i++)
        if (!tern_ledger_ulid_valid(q->runs[i])) {
            json_decref(runs);
            say(a, 404, "a run is asked for by its id");
            return;
        }
    int rc = q->n_runs ? report_runs_open(&r, (int)q->n_runs, (char **)q->runs, s->baseline,
                                          s->usd_hour, &err)
                       : report_runs_open(&r, s->n_args, s->args, s->baseline, s->usd_hour, &err);
    if (rc == 0)
        rc = make_stamp(&r, stamp, &err);
    const bool same = rc == 0 && q->have && strcmp(q->have, stamp) == 0;
    if (rc == 0 && !same)
        rc = read_runs(&r, runs, &err);
    if (rc < 0) {
        fail(a, &err);
    } else {
        json_t *j = json_pack("{s:s}", "stamp", stamp);
        if (!same) {
            json_object_set(j, "runs", runs);
            json_object_set_new(j, "page", report_runs_page(&r));
        }
        put_json(a, j);
    }
    json_decref(runs);
    report_runs_close(&r);
}

/* ---------------------------------------------------------------- the page */

/* The page asks for its data itself. */
static void answer_page(const struct serve *s, struct serve_answer *a)
{
    struct tern_err err = {0};
    struct tern_report_page *page = NULL;
    const int fd = memfd_create("tern-page", MFD_CLOEXEC);
    uint64_t n = 0;
    int rc = fd < 0 ? tern_err_sys(&err, "a page") : 0;

    if (rc == 0 && !(page = tern_report_page_open_live(fd, "the page", "tern ledger", &err)))
        rc = -1;
    if (rc == 0)
        rc = tern_report_page_data(page, "live", json_pack("{s:i}", "every", s->every_s), &err);
    if (page && tern_report_page_close(page, rc == 0 ? &err : NULL) < 0)
        rc = -1;
    const off_t end = rc == 0 ? lseek(fd, 0, SEEK_END) : -1;
    char *body = end > 0 && end < PAGE_MAX ? malloc((size_t)end + 1) : NULL;
    while (body && n < (uint64_t)end) {
        ssize_t got = TERN_AGAIN(pread(fd, body + n, (size_t)end - n, (off_t)n));
        if (got <= 0)
            break;
        n += (uint64_t)got;
    }
    if (fd >= 0)
        close(fd);
    if (body && n == (uint64_t)end) {
        *a = (struct serve_answer){200, "text/html; charset=utf-8", body, (size_t)n};
        return;
    }
    free(body);
    say(a, 500, *err.text ? err.text : "no memory");
}

void serve_answer(const struct serve *s, const struct serve_request *q,
                  struct serve_answer *ret_answer)
{
    if (strcmp(q->method, "GET") != 0 && strcmp(q->method, "HEAD") != 0) {
        say(ret_answer, 405, "GET and HEAD alone");
        return;
    }
    if (q->n_hosts != 1 || !is_local_name(q->host)) {
        say(ret_answer, 403, "the host is to be localhost or 127.0.0.1");
        return;
    }
    if (q->site && strcmp(q->site, "same-origin") != 0 && strcmp(q->site, "none") != 0) {
        say(ret_answer, 403, "not for pages of other sites");
        return;
    }
    const char *what = behind_token(s, q->path);
    if (!what || q->too_many)
        say(ret_answer, 404, "not found");
    else if (!*what)
        answer_page(s, ret_answer);
    else if (strcmp(what, "data") == 0)
        answer_data(s, q, ret_answer);
    else if (strcmp(what, "list") == 0)
        answer_list(s, ret_answer);
    else
        say(ret_answer, 404, "not found");
}

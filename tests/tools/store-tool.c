/* core/store for shell tests and peers:
 *
 *   store-tool sign                 requests from standard input, as JSON one a line; their
 *                                   Authorization and their query as it is sent, one a line
 *   store-tool put URL [FILE]       standard input, or FILE in parts
 *   store-tool get URL              to standard output
 *   store-tool head URL             size and ETag
 *   store-tool list URL             names and sizes
 *   store-tool rm URL
 *   store-tool parts URL            standard input in one part: its ETag is no MD5 of contents
 *   store-tool uploads URL          begins an upload of two parts, lists them, ends it
 */
#include "core/base/json.h"
#include "core/store/push.h"
#include "core/store/reader.h"
#include "core/store/sign.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *text(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));

    return s ? s : "";
}

static size_t pairs(const json_t *j, const char *key, struct tern_store_pair *to, size_t most)
{
    const json_t *list = json_object_get(j, key), *pair;
    size_t i, n = 0;

    json_array_foreach(list, i, pair)
    {
        if (n < most)
            to[n++] = (struct tern_store_pair){json_string_value(json_array_get(pair, 0)),
                                               json_string_value(json_array_get(pair, 1))};
    }
    return n;
}

static int sign(void)
{
    struct tern_store_pair query[64], headers[32];
    char *line = NULL;
    size_t room = 0;

    while (getline(&line, &room, stdin) > 0) {
        json_t *j = json_loads(line, 0, NULL);
        struct tern_buf authorization = {0}, sent = {0};
        struct tern_store_sign s = {.method = text(j, "method"),
                                    .host = text(j, "host"),
                                    .path = text(j, "path"),
                                    .query = query,
                                    .headers = headers,
                                    .payload = text(j, "payload"),
                                    .access = text(j, "access"),
                                    .secret = text(j, "secret"),
                                    .region = text(j, "region"),
                                    .service = "s3",
                                    .time = text(j, "time")};
        s.n_query = pairs(j, "query", query, 64);
        s.n_headers = pairs(j, "headers", headers, 32);
        tern_store_sign(&s, &authorization);
        tern_store_query(&sent, s.query, s.n_query);
        printf("%s\t%s\n", authorization.data, sent.data ? sent.data : "");
        tern_buf_free(&authorization);
        tern_buf_free(&sent);
        json_decref(j);
    }
    free(line);
    return 0;
}

static int put(struct tern_store *s, const char *file, struct tern_err *err)
{
    const struct tern_store_push_how how = {.part_bytes = 5 << 20};
    struct tern_store_pushed pushed;
    struct tern_buf all = {0};
    char piece[65536];
    ssize_t n;

    if (file) {
        const int fd = open(file, O_RDONLY | O_CLOEXEC);
        const int rc = tern_store_push(s, NULL, fd, file, &how, &pushed, err);
        if (rc == 0)
            printf("%llu %llu %s\n", (unsigned long long)pushed.bytes,
                   (unsigned long long)pushed.sent_bytes, pushed.etag);
        close(fd);
        return rc;
    }
    while ((n = read(0, piece, sizeof piece)) > 0)
        tern_buf_add(&all, piece, (size_t)n);
    const int rc = tern_store_put(s, NULL, all.data, all.len, NULL, err);
    tern_buf_free(&all);
    return rc;
}

static int get(const char *url, struct tern_err *err)
{
    const struct tern_store_reader_how how = {.block_bytes = 100000};
    struct tern_store_reader *r = tern_store_reader_open(url, &how, err);
    char piece[65537];
    int rc = r ? 0 : -1;

    for (uint64_t at = 0; rc == 0 && at < tern_store_reader_bytes(r);) {
        const uint64_t left = tern_store_reader_bytes(r) - at;
        const size_t n = left < sizeof piece ? (size_t)left : sizeof piece;
        tern_store_reader_prefetch(r, at, left < 1000000 ? (size_t)left : 1000000);
        rc = tern_store_reader_pread(r, piece, n, at, err);
        if (rc == 0)
            fwrite(piece, 1, n, stdout);
        at += n;
    }
    tern_store_reader_close(r);
    return rc;
}

static int print_entry(void *ctx, const struct tern_store_entry *e)
{
    (void)ctx;
    printf("%s\t%llu\n", e->name, (unsigned long long)e->bytes);
    return 0;
}

static int print_part(void *ctx, const struct tern_store_part *p)
{
    (void)ctx;
    printf("part %u: %llu bytes\n", p->number, (unsigned long long)p->bytes);
    return 0;
}

static int uploads(struct tern_store *s, struct tern_err *err)
{
    enum { FIRST = 5 << 20, SECOND = 1000 };
    char *bytes = calloc(1, FIRST), id[TERN_STORE_ID], found[TERN_STORE_ID];
    struct tern_store_part parts[2] = {{.number = 1, .bytes = FIRST},
                                       {.number = 2, .bytes = SECOND}};
    struct tern_store_head h;
    int rc = tern_store_upload_begin(s, NULL, id, err);

    if (rc == 0)
        rc = tern_store_upload_part(s, NULL, id, bytes, &parts[1], err);
    if (rc == 0)
        rc = tern_store_upload_part(s, NULL, id, bytes, &parts[0], err);
    if (rc == 0)
        rc = tern_store_upload_parts(s, NULL, id, print_part, NULL, err);
    if (rc == 0 && tern_store_upload_find(s, NULL, found, err) == 1)
        printf("found: %s\n", strcmp(found, id) == 0 ? "yes" : "no");
    if (rc == 0)
        printf("seen: %d\n", tern_store_head(s, NULL, &h, err));
    if (rc == 0)
        rc = tern_store_upload_end(s, NULL, id, parts, 2, err);
    free(bytes);
    return rc;
}

static int one_part(struct tern_store *s, struct tern_err *err)
{
    enum { MOST = 16 << 20 };
    char *bytes = calloc(1, MOST), id[TERN_STORE_ID];
    const size_t n = bytes ? fread(bytes, 1, MOST, stdin) : 0;
    struct tern_store_part part = {.number = 1, .bytes = n};
    int rc = tern_store_upload_begin(s, NULL, id, err);

    if (rc == 0)
        rc = tern_store_upload_part(s, NULL, id, bytes, &part, err);
    if (rc == 0)
        rc = tern_store_upload_end(s, NULL, id, &part, 1, err);
    free(bytes);
    return rc;
}

int main(int argc, char **argv)
{
    struct tern_err err = {0};
    struct tern_store_head h;

    if (argc == 2 && strcmp(argv[1], "sign") == 0)
        return sign();
    if (argc < 3)
        return 2;
    const char *verb = argv[1];
    struct tern_store *s = tern_store_open(argv[2], NULL, &err);
    int rc = s ? 0 : -1;
    if (s && strcmp(verb, "put") == 0)
        rc = put(s, argv[3], &err);
    else if (s && strcmp(verb, "get") == 0)
        rc = get(argv[2], &err);
    else if (s && strcmp(verb, "list") == 0)
        rc = tern_store_list(s, "", print_entry, NULL, &err);
    else if (s && strcmp(verb, "rm") == 0)
        rc = tern_store_delete(s, NULL, &err);
    else if (s && strcmp(verb, "parts") == 0)
        rc = one_part(s, &err);
    else if (s && strcmp(verb, "uploads") == 0)
        rc = uploads(s, &err);
    else if (s && (rc = tern_store_head(s, NULL, &h, &err)) >= 0)
        rc = printf(rc ? "%llu %s\n" : "none\n", (unsigned long long)h.bytes, h.etag) < 0;
    tern_store_close(s);
    if (rc < 0)
        fprintf(stderr, "%s\n", err.text);
    return rc < 0 ? (int)err.code : 0;
}

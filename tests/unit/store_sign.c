/* core/store without a server: signatures of AWS's documentation, URLs, XML, profile files. */
#include "core/base/fs.h"
#include "core/store/digest.h"
#include "core/store/credentials.h"
#include "core/store/sign.h"
#include "core/store/store.h"
#include "core/store/url.h"
#include "core/store/xml.h"
#include "tests/unit/tap.h"

#include <unistd.h>

static const char empty[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/* ---- signatures ---- */

/* https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html */
static void test_s3_documentation(void)
{
    static const char put[] = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    static const struct tern_store_pair range[] = {{"x-amz-date", "20130524T000000Z"},
                                                   {"x-amz-content-sha256", empty},
                                                   {"Range", "bytes=0-9"}},
                                        putting[] = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                                     {"x-amz-date", "20130524T000000Z"},
                                                     {"x-amz-storage-class", "REDUCED_REDUNDANCY"},
                                                     {"x-amz-content-sha256", put}},
                                        lifecycle[] = {{"lifecycle", ""}},
                                        list[] = {{"prefix", "J"}, {"max-keys", "2"}};
    const struct {
        const char *method, *path, *payload, *signature;
        const struct tern_store_pair *headers, *query;
        size_t n_headers, n_query;
    } cases[] = {
        {"GET", "/test.txt", empty,
         "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41", range, NULL, 3, 0},
        {"PUT", "/test$file.text", put,
         "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd", putting, NULL, 4, 0},
        {"GET", "/", empty, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
         range, lifecycle, 2, 1},
        {"GET", "/", empty, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
         range, list, 2, 2},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tern_store_sign s = {.method = cases[i].method,
                                          .host = "examplebucket.s3.amazonaws.com",
                                          .path = cases[i].path,
                                          .query = cases[i].query,
                                          .n_query = cases[i].n_query,
                                          .headers = cases[i].headers,
                                          .n_headers = cases[i].n_headers,
                                          .payload = cases[i].payload,
                                          .access = "AKIAIOSFODNN7EXAMPLE",
                                          .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                          .region = "us-east-1",
                                          .service = "s3",
                                          .time = "20130524T000000Z"};
        struct tern_buf to = {0};
        tern_store_sign(&s, &to);
        has(to.data, cases[i].signature, "S3's documentation, request %zu: the signature", i);
        if (i == 0)
            has(to.data, "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,",
                "the signed headers are named in order");
        tern_buf_free(&to);
    }
}

/* Of the suite of Signature Version 4 that AWS published (aws-sig-v4-test-suite). */
static void test_suite(void)
{
    static const struct tern_store_pair date[] = {{"X-Amz-Date", "20150830T123600Z"}},
                                        order[] = {{"Param2", "value2"}, {"Param1", "value1"}};
    const struct {
        const char *method, *signature;
        size_t n_query;
    } cases[] = {
        {"GET", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31", 0},
        {"GET", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500", 2},
        {"POST", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b", 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tern_store_sign s = {.method = cases[i].method,
                                          .host = "example.amazonaws.com",
                                          .path = "/",
                                          .query = order,
                                          .n_query = cases[i].n_query,
                                          .headers = date,
                                          .n_headers = 1,
                                          .payload = empty,
                                          .access = "AKIDEXAMPLE",
                                          .secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                                          .region = "us-east-1",
                                          .service = "service",
                                          .time = "20150830T123600Z"};
        struct tern_buf to = {0};
        tern_store_sign(&s, &to);
        has(to.data, cases[i].signature, "the published suite, request %zu: the signature", i);
        tern_buf_free(&to);
    }
}

/* RFC 4231, cases 1 and 6 (a key longer than a block). */
static void test_hmac(void)
{
    uint8_t key[131], digest[TERN_SHA256_BYTES];
    char hex[TERN_SHA256_HEX];

    memset(key, 0x0b, 20);
    tern_store_hmac(key, 20, "Hi There", 8, digest);
    is(tern_hex(hex, digest, sizeof digest),
       "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7", "HMAC, a short key");
    memset(key, 0xaa, sizeof key);
    static const char text[] = "Test Using Larger Than Block-Size Key - Hash Key First";
    tern_store_hmac(key, sizeof key, text, sizeof text - 1, digest);
    is(tern_hex(hex, digest, sizeof digest),
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54", "HMAC, a long key");
}

/* ---- URLs ---- */

static void test_urls(void)
{
    static const struct {
        const char *url, *host, *path, *query, *shown;
    } good[] = {
        {"s3://b", "b", "", NULL, "s3://b/"},
        {"s3://buck.et/a b/c?d#e%20", "buck.et", "a b/c?d#e%20", NULL, "s3://buck.et/a b/c?d#e%20"},
        {"https://h.org", "h.org", "/", NULL, "https://h.org/"},
        {"https://h:8443/a/b?X-Amz-Signature=secret#f", "h:8443", "/a/b", "X-Amz-Signature=secret",
         "https://h:8443/a/b"},
        {"http://127.0.0.1:80/x", "127.0.0.1:80", "/x", NULL, "http://127.0.0.1:80/x"},
        {"http://[::1]:9/x", "[::1]:9", "/x", NULL, "http://[::1]:9/x"},
    };
    static const char *const bad[] = {"s3://",
                                      "s3:///key",
                                      "s3://b\n/x",
                                      "s3://b ucket/x",
                                      "http://",
                                      "http://h.org/x",
                                      "http://127.0.0.1.evil.org/",
                                      "https://u:p@h/x",
                                      "https:///x",
                                      "https://h/a b",
                                      "file:///etc/passwd",
                                      "https://h\x01/x",
                                      "http://1270.0.0.1/x",
                                      "s3://../x"};

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct tern_store_url u = {0};
        ok(tern_store_url_parse(good[i].url, &u, NULL) == 0, "URL %zu is read", i);
        is(u.host, good[i].host, "URL %zu: its host", i);
        is(u.path, good[i].path, "URL %zu: its path", i);
        ok((u.query == NULL) == (good[i].query == NULL) &&
               (!u.query || strcmp(u.query, good[i].query) == 0),
           "URL %zu: its query", i);
        is(u.shown, good[i].shown, "URL %zu: messages show no query", i);
        tern_store_url_free(&u);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tern_store_url u = {0};
        struct tern_err err = {0};
        ok(tern_store_url_parse(bad[i], &u, &err) < 0 && err.code == TERN_USAGE &&
               !strstr(err.text, "u:p"),
           "URL refused, %zu: %s", i, err.text);
    }
}

static void test_redirects(void)
{
    static const struct {
        const char *from, *location, *to;
    } cases[] = {
        {"https://h/a", "/b?c", "https://h/b"},
        {"https://h/a", "https://other/b", "https://other/b"},
        {"https://h/a", "//other/b", "https://other/b"},
        {"https://h/a", "http://h/b", NULL},
        {"https://h/a", "http://127.0.0.1/b", NULL},
        {"https://h/a", "file:///etc/passwd", NULL},
        {"https://h/a", "s3://b/k", NULL},
        {"https://h/a", "ftp://h/b", NULL},
        {"http://127.0.0.1/a", "http://127.0.0.1:8/b", "http://127.0.0.1:8/b"},
        {"http://127.0.0.1/a", "http://h.org/b", NULL},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tern_store_url from = {0}, to = {0};
        tern_store_url_parse(cases[i].from, &from, NULL);
        const int rc = tern_store_url_redirect(&from, cases[i].location, &to, NULL);
        ok(cases[i].to ? rc == 0 && strcmp(to.shown, cases[i].to) == 0 : rc < 0,
           "redirect from %s to %s: %s", cases[i].from, cases[i].location,
           cases[i].to ? "followed" : "refused");
        tern_store_url_free(&from);
        tern_store_url_free(&to);
    }
}

/* ---- XML ---- */

static struct tern_buf seen;

static int note(void *ctx, const char *path, const char *value)
{
    (void)ctx;
    tern_buf_printf(&seen, "%s=%s;", path, value);
    return strcmp(path, "stop") == 0 ? 7 : 0;
}

/* In memory of its own size, so that a sanitizer sees a read behind it. */
static int scan(const char *text, size_t len, struct tern_err *err)
{
    char *copy = malloc(len + 1);
    memcpy(copy, text, len);
    copy[len] = '\0';
    tern_buf_clear(&seen);
    const int rc = tern_store_xml(copy, len, "test", note, NULL, err);
    free(copy);
    return rc;
}

static void test_xml(void)
{
    static const char whole[] = "<?xml version=\"1.0\"?>\n<r xmlns='a>b' z=\"/\"><k>a &amp;&#x20AC;"
                                "&#65;&lt;</k><e/><p>x<c>y</c>z</p>\n<q a='1' /></r>\n";
    static const char *const bad[] = {"",
                                      "text",
                                      "<a>",
                                      "<a></b>",
                                      "<a></a><b/>",
                                      "</a>",
                                      "<a>&b;</a>",
                                      "<a>&#0;</a>",
                                      "<a>&#xD800;</a>",
                                      "<a>&#99999999999999999999;</a>",
                                      "<!DOCTYPE a><a/>",
                                      "<a><![CDATA[x]]></a>",
                                      "<a b='",
                                      "<a><a><a><a><a><a><a><a><a><a><a><a><a><a>",
                                      "<a>&#65</a>",
                                      "<a>&",
                                      "<a <b></b></a>",
                                      "<?xml",
                                      "<a/>x"};

    ok(scan(whole, sizeof whole - 1, NULL) == 0, "XML is read");
    is(seen.data,
       "r/k=a &\xe2\x82\xac"
       "A<;r/e=;r/p/c=y;r/p=xz;r/q=;r=\n;",
       "XML's elements are read with their paths");
    ok(scan("<stop/>", 7, NULL) == 7, "XML: the reader may stop");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tern_err err = {0};
        ok(scan(bad[i], strlen(bad[i]), &err) == -1 && *err.text, "XML refused: %s", bad[i]);
    }
    int good = 0;
    for (size_t n = 0; n < sizeof whole - 1; n++)
        good += scan(whole, n, NULL) == 0;
    ok(good == 1, "XML that is cut anywhere is refused, but for the newline behind it");
    ok(scan("<a>\0</a>", 8, NULL) == -1, "XML with a NUL is refused");
    tern_buf_free(&seen);
}

/* ---- digests ---- */

static void test_digests(void)
{
    char to[32], hex[33];
    uint8_t md5[TERN_STORE_MD5];

    is(tern_store_base64(to, (const uint8_t *)"", 0), "", "base64 of nothing");
    is(tern_store_base64(to, (const uint8_t *)"f", 1), "Zg==", "base64 of one byte");
    is(tern_store_base64(to, (const uint8_t *)"fo", 2), "Zm8=", "base64 of two bytes");
    is(tern_store_base64(to, (const uint8_t *)"foobar", 6), "Zm9vYmFy", "base64 of six bytes");
    ok(tern_store_etag_md5("\"900150983CD24FB0D6963F7D28E17F72\"", hex), "an ETag that is an MD5");
    ok(!tern_store_etag_md5("\"900150983cd24fb0d6963f7d28e17f72-2\"", hex),
       "an ETag of parts is no MD5");
    ok(tern_store_md5("abc", 3, md5), "an MD5 is made");
    is(tern_hex(hex, md5, sizeof md5), "900150983cd24fb0d6963f7d28e17f72", "the MD5 of abc");
}

/* ---- profiles ---- */

static char *profile(const char *path, const char *section, const char *under, const char *key)
{
    char *value = NULL;
    struct tern_err err = {0};

    if (tern_store_profile(path, section, under, key, &value, &err) < 0)
        printf("# %s\n", err.text);
    return value;
}

static void is_value(char *got, const char *want, const char *name)
{
    ok(got && want ? strcmp(got, want) == 0 : got == want, "%s", name);
    free(got);
}

static void test_profiles(void)
{
    static const char text[] =
        "# a comment\naws_access_key_id = outside\n[default]\r\naws_access_key_id=AKID\r\n"
        "aws_secret_access_key = a=b c \nregion=\ns3 =\n  addressing_style = virtual\n  x = y\n"
        "region = eu-west-3\n[ profile  two ]\nregion=two\n[three]\n ;region = no\nregion=three";
    char path[] = "/tmp/tern-profile-XXXXXX";
    const int fd = mkstemp(path);

    ok(write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1, "a profile file is written");
    close(fd);
    is_value(profile(path, "default", NULL, "aws_access_key_id"), "AKID", "profile: a key");
    is_value(profile(path, "default", NULL, "aws_secret_access_key"), "a=b c",
             "profile: a value with = and blanks");
    is_value(profile(path, "default", NULL, "region"), "eu-west-3",
             "profile: the last value counts");
    is_value(profile(path, "default", "s3", "addressing_style"), "virtual",
             "profile: a key below s3");
    is_value(profile(path, "default", NULL, "addressing_style"), NULL,
             "profile: a key below s3 is none of the profile's");
    is_value(profile(path, "two", NULL, "region"), "two", "profile: [profile two]");
    is_value(profile(path, "three", NULL, "region"), "three",
             "profile: [three], no newline at the end");
    is_value(profile(path, "four", NULL, "region"), NULL, "profile: no such section");
    is_value(profile("/nowhere/file", "default", NULL, "region"), NULL, "profile: no such file");
    unlink(path);
}

int main(void)
{
    test_s3_documentation();
    test_suite();
    test_hmac();
    test_urls();
    test_redirects();
    test_xml();
    test_digests();
    test_profiles();
    return tap_done();
}

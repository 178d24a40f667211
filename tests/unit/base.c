/* core/base: what the other rooms stand on. */
#include "tests/unit/tap.h"

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/listen.h"
#include "core/base/opt.h"
#include "core/base/page.h"
#include "core/base/rand.h"
#include "core/base/str.h"
#include "core/base/yaml.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_err(void)
{
    struct tern_err e = {0};

    errno = ENOSPC;
    ok(tern_err_sys(&e, "%s: cannot write", "x") == -1 && e.code == TERN_TEMPFAIL,
       "a full disk is a reason outside the run");
    tern_err_prefix(&e, "saving step %d", 7);
    is(e.text, "saving step 7: x: cannot write: No space left on device",
       "a prefix keeps the cause");
    ok(tern_err_set(NULL, TERN_FAILED, "dropped") == -1, "err may be NULL");
}

static void test_hash(void)
{
    uint8_t d[TERN_SHA256_BYTES];
    char hex[TERN_SHA256_HEX], zeros[32] = {0};

    uint8_t key[TERN_SIPHASH_BYTES], mac[TERN_SIPHASH_BYTES];
    for (int i = 0; i < TERN_SIPHASH_BYTES; i++)
        key[i] = (uint8_t)i;
    tern_siphash(key, "", 0, mac);
    ok(strcmp(tern_hex(hex, mac, sizeof mac), "a3817f04ba25a8e66df67214c7550293") == 0,
       "siphash of nothing, its authors' value");
    tern_siphash(key, key, 15, mac);
    ok(strcmp(tern_hex(hex, mac, sizeof mac), "5493e99933b0a8117e08ec0f97cfc3d9") == 0,
       "siphash of 15 bytes, its authors' value");
    ok(tern_crc32c(0, "123456789", 9) == 0xe3069283u, "crc32c check value");
    ok(tern_crc32c(0, zeros, 32) == 0x8a9136aau, "crc32c of 32 zeros (RFC 3720)");
    ok(tern_crc32c(tern_crc32c(0, "1234", 4), "56789", 5) == 0xe3069283u,
       "crc32c of two parts is that of the whole");
    tern_sha256("abc", 3, d);
    is(tern_hex(hex, d, sizeof d),
       "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "sha256 of abc");
}

static void test_str(void)
{
    int64_t i = 5;
    double d;
    uint64_t b;
    char t[40];
    static const char *const words[] = {"seq_len", "micro", "global", NULL};

    ok(tern_str_int("12", 0, 20, &i) == 0 && i == 12, "a number is read");
    ok(tern_str_int("12x", 0, 20, &i) < 0 && tern_str_int("", 0, 1, &i) < 0 &&
           tern_str_int("99999999999999999999", 0, INT64_MAX, &i) < 0 && i == 12,
       "a text that is not a number leaves the output untouched");
    ok(tern_str_real("nan", -1, 1, &d) < 0 && tern_str_real("0x1p3", 0, 10, &d) < 0,
       "NaN and hexadecimal are refused as reals");
    ok(tern_str_size("3MiB", &b) == 0 && b == 3u << 20 && tern_str_size("3 MB", &b) < 0,
       "a size has a binary unit");
    ok(tern_str_size("99999999E", &b) < 0, "a size beyond 64 bits is refused");
    is(tern_str_bytes(t, sizeof t, 1536), "1.50 KiB", "bytes are printed for people");
    is(tern_str_nearest("seqlen", words), "seq_len", "a near miss is suggested");
    ok(tern_str_nearest("optimizer", words) == NULL, "a distant name is not suggested");
    struct tern_buf buf = {.max = 10};
    tern_buf_puts(&buf, "12345678");
    tern_buf_puts(&buf, "901");
    ok(buf.failed && tern_buf_check(&buf, "text", NULL) < 0, "a buffer keeps its ceiling");
    tern_buf_free(&buf);
}

static void test_word(void)
{
    static const char *const words[][2] = {
        {"a-b_c/1.2:3,4+5@x%y=z", "a-b_c/1.2:3,4+5@x%y=z"},
        {"", "''"},
        {"a b'c$(d)`e`\"\n", "'a b'\\''c$(d)`e`\"\n'"},
    };
    for (size_t i = 0; i < 3; i++) {
        struct tern_buf word = {0};
        tern_buf_word(&word, words[i][0]);
        is(word.data, words[i][1], "'%s' as a shell's word", words[i][0]);
        tern_buf_free(&word);
    }
}

static void test_text(void)
{
    static const struct {
        const char *in, *mask, *json;
    } all[] = {
        {"", "", ""},
        {"a \xc3\xa9", "a \xc3\xa9", "a \xc3\xa9"},
        {"\x1b[1m\t\x7f", "?[1m??", "\x1b[1m\t\x7f"},
        {"\xc2\x9b"
         "1m\xc2\xa0",
         "??1m\xc2\xa0",
         "\xc2\x9b"
         "1m\xc2\xa0"},
        {"x\xff\xe2\x82", "x???", "x\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xff\xe2\x82\xac.", "?\xe2\x82\xac.", "\xef\xbf\xbd\xe2\x82\xac."},
        {"a\xe2\x80\xaex\xd8\x9c.", "a???x??.", "a\xe2\x80\xaex\xd8\x9c."},
        {"\x9b"
         "2J\xed\xa0\x80",
         "?2J???",
         "\xef\xbf\xbd"
         "2J\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xc2", "?", "\xef\xbf\xbd"},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char *s = tern_strdup(all[i].in);
        json_t *j = tern_json_text(s);
        ok(j && strcmp(json_string_value(j), all[i].json) == 0, "text %zu as JSON", i);
        json_decref(j);
        tern_str_mask(s);
        ok(strcmp(s, all[i].mask) == 0, "text %zu on a terminal", i);
        free(s);
    }
    json_t *j = tern_json_text(NULL);
    ok(json_is_null(j), "no text is null");
    json_decref(j);
    j = tern_json_textn("a\0\xff\0z!", 5);
    ok(json_string_length(j) == 7 && memcmp(json_string_value(j), "a\0\xef\xbf\xbd\0z", 7) == 0,
       "text of a given length as JSON keeps its NULs");
    json_decref(j);
}

static void test_fs(void)
{
    char dir[] = "/tmp/tern-base-XXXXXX";
    struct tern_err e = {0};
    char *data;
    size_t len;

    if (!mkdtemp(dir))
        abort();
    char *path = tern_fs_join(dir, "a/b/file");
    char *parent = tern_fs_dirname(path);
    ok(tern_fs_mkdirs(parent, 0755, &e) == 0, "missing folders are made");
    ok(tern_fs_replace(path, "one", 3, 0640, &e) == 0 &&
           tern_fs_replace(path, "two!", 4, 0640, &e) == 0,
       "a file is replaced");
    ok(tern_fs_read(path, 100, &data, &len, &e) == 0 && len == 4, "a file is read whole");
    is(data, "two!", "a replaced file has the new content");
    free(data);
    ok(tern_fs_read(path, 3, &data, &len, &e) < 0, "read keeps its ceiling");
    has(e.text, "4 bytes are more than the 3 allowed",
        "a file above the ceiling is an error with both sizes");
    ok(tern_fs_read(dir, 100, &data, &len, &e) < 0 && strstr(e.text, "not a regular file"),
       "a folder is not read as a file");
    char *fifo = tern_fs_join(dir, "fifo");
    struct stat st;
    ok(mkfifo(fifo, 0600) == 0 && tern_fs_replace(fifo, "x", 1, 0644, &e) == -1 &&
           e.code == TERN_USAGE && strstr(e.text, "a device, pipe or socket"),
       "a pipe is not replaced: %s", e.text);
    ok(lstat(fifo, &st) == 0 && S_ISFIFO(st.st_mode),
       "a pipe that was not replaced is still a pipe");
    ok(tern_fs_replace(dir, "x", 1, 0644, &e) == -1 && strstr(e.text, "is a folder"),
       "a folder is not replaced");
    unlink(fifo);
    free(fifo);
    struct tern_fs_new f;
    ok(tern_fs_new_open(&f, path, 0640, &e) == 0, "a replacement begins");
    char *temp = tern_strdup(f.temp);
    tern_fs_new_abort(&f);
    ok(!tern_fs_exists(temp) && tern_fs_exists(path),
       "an aborted replacement leaves only the old file");
    free(temp);
    char *link = tern_fs_join(dir, "a/out");
    ok(symlink("/usr", link) == 0 && tern_fs_remove_tree(dir, &e) == 0 && !tern_fs_exists(dir) &&
           tern_fs_exists("/usr/bin"),
       "a tree is removed without following its links");
    free(link);
    free(parent);
    free(path);
}

static const char *refused(const char *text)
{
    static struct tern_err e;
    struct tern_yaml *y = tern_yaml_parse(text, strlen(text), "f.yaml", &e);

    tern_yaml_free(y);
    return y ? "accepted" : e.text;
}

/* Written documents read back as the same values. */
static void yaml_written(void)
{
    static const char *const texts[] = {
        "a: 1\nb: {c: [1, 2, {d: x}], e: \"\", f: null, g: ~, h: }\n",
        "a: 'it''s'\nb: \"tab\\there\\nline\\x01 \\\"q\\\" \\\\\"\nc: \"a: b\"\nd: '#x'\n",
        "a: - x\n",
        "a: |\n  two\n  lines\nb: >\n  folded\n  text\nc: 'null'\nd: '1'\ne: a b\nf: -\n",
        "'odd key': 1\n'k: 2': {'': x}\nlist: []\nmap: {}\n",
        "a: \xc3\xa9\nb: '%x @y `z'\nc: 1e-4\nd: -0.5\ne: /p/q-1_2.x\n",
    };
    int wrong = 0;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct tern_yaml *x = tern_yaml_parse(texts[i], strlen(texts[i]), "t", NULL);
        for (size_t columns = 1; x && columns <= 1000; columns *= 30) {
            struct tern_buf b = {0};
            struct tern_err e = {0};
            tern_yaml_write_document(&b, x, columns);
            struct tern_yaml *y = tern_yaml_parse(b.data, b.len, "written", &e);
            if (!y || !tern_yaml_same(tern_yaml_root(x), tern_yaml_root(y))) {
                wrong++;
                printf("# %s\n# becomes: %s\n# %s\n", texts[i], b.data, y ? "" : e.text);
            }
            tern_yaml_free(y);
            tern_buf_free(&b);
        }
        tern_yaml_free(x);
    }
    ok(wrong == 0, "a written document is read back as the same values");
}

static void test_yaml(void)
{
    struct tern_err e = {0};
    const char *text = "name: x\nbatch:\n  micro: 4 # four\n  list: [1, {a: b}]\n  empty:\n";
    struct tern_yaml *y = tern_yaml_parse(text, strlen(text), "f.yaml", &e);
    struct tern_yaml_node *root = tern_yaml_root(y), *batch = tern_yaml_get(root, "batch");
    int64_t n = 0;

    ok(tern_yaml_read_int(tern_yaml_get(batch, "micro"), 1, 8, &n, &e) == 0 && n == 4,
       "a whole number is read from YAML");
    ok(tern_yaml_read_int(tern_yaml_get(batch, "absent"), 1, 8, &n, &e) == 0 && n == 4,
       "an absent key leaves the default");
    ok(tern_yaml_read_int(tern_yaml_get(batch, "micro"), 5, 8, &n, &e) < 0,
       "a number out of range is refused");
    is(e.text, "f.yaml:3: batch.micro: '4' is not a whole number from 5 to 8.",
       "a refused value is named with line and range");
    ok(tern_yaml_no_others(root, &e) < 0, "an unknown key is refused");
    is(e.text, "f.yaml:1: name: unknown key.", "an unknown key is named");
    tern_yaml_get(root, "name");
    tern_yaml_get(batch, "lists");
    tern_yaml_get(batch, "empty");
    tern_yaml_no_others(root, &e);
    is(e.text, "f.yaml:4: batch.list: unknown key. Did you mean 'lists'?",
       "an unknown key comes with the nearest known one");
    ok(tern_yaml_override(y, "batch.micro", "7", &e) == 0 &&
           tern_yaml_read_int(tern_yaml_get(batch, "micro"), 1, 8, &n, &e) == 0 && n == 7,
       "--set replaces a value");
    ok(tern_yaml_override(y, "new.deep.key", "[1, 2]", &e) == 0 &&
           tern_yaml_count(
               tern_yaml_get(tern_yaml_get(tern_yaml_get(root, "new"), "deep"), "key")) == 2,
       "--set adds a value and the maps above it");
    ok(tern_yaml_override(y, "new.deep.key", "null", &e) == 0 &&
           !tern_yaml_get(tern_yaml_get(tern_yaml_get(tern_yaml_root(y), "new"), "deep"), "key"),
       "--set to null removes a key");
    ok(tern_yaml_override(y, "name.sub", "1", &e) < 0, "--set below a value is refused");
    tern_yaml_free(y);
    has(refused("a: 1\nb: 2\na: 3\n"), "f.yaml:3: key 'a' is given twice (first on line 1)",
        "duplicate keys are refused");
    has(refused("a: &x 1\n"), "f.yaml:1: anchors", "anchors are refused");
    has(refused("a: 1\nb: *x\n"), "f.yaml:2: aliases", "aliases are refused");
    has(refused("a: !!int 1\n"), "tags", "tags are refused");
    has(refused("a: 1\n---\nb: 1\n"), "second document", "two documents are refused");
    has(refused("a: [1, 2\n"), "not valid YAML", "bad syntax is refused");
    has(refused("? [a]\n: 1\n"), "a key must be plain text", "a list as a key is refused");
    struct tern_buf deep = {0};
    for (int i = 0; i < 5000; i++)
        tern_buf_puts(&deep, "[");
    has(refused(deep.data), "32 levels", "a document that is too deep is refused");
    tern_buf_free(&deep);
    is(refused(""), "accepted", "an empty document is an empty map");
}

static void test_rand(void)
{
    enum { N = 1000 };
    bool seen[N] = {false};
    int hit = 0;
    double sum = 0, squares = 0;

    for (uint64_t i = 0; i < N; i++) {
        uint64_t j = tern_rand_permute(42, 1, i, N);
        if (j < N && !seen[j]) {
            seen[j] = true;
            hit++;
        }
    }
    ok(hit == N, "a permutation hits every place once");
    uint64_t wrong = 0;
    for (uint64_t n = 1; n < 300; n++)
        for (uint64_t i = 0; i < n; i++)
            wrong += tern_rand_permute_back(7, n, tern_rand_permute(7, n, i, n), n) != i;
    ok(wrong == 0, "the inverse of a permutation finds every element");
    ok(tern_rand_permute(1, 1, 0, 1) == 0, "a permutation of one element is the identity");
    for (uint64_t i = 0; i < 100000; i++) {
        double x = tern_rand_normal(7, 0, i);
        sum += x;
        squares += x * x;
    }
    ok(fabs(sum / 1e5) < 0.02 && fabs(squares / 1e5 - 1) < 0.02,
       "normal numbers: mean %.4f, variance %.4f", sum / 1e5, squares / 1e5);
    ok(tern_rand_u64(1, 2, 3) == tern_rand_u64(1, 2, 3) &&
           tern_rand_u64(1, 2, 3) != tern_rand_u64(1, 3, 2),
       "random numbers are a function of their arguments");
}

static bool flag;
static const char *text;
static int64_t integer;
static struct tern_opt_list list;

static void test_opt(void)
{
    const struct tern_opt opts[] = {
        {"json", 'j', TERN_OPT_FLAG, .to.flag = &flag, .help = "print JSON"},
        {"out", 'o', TERN_OPT_TEXT, "FILE", .to.text = &text, .help = "write here"},
        {"steps", 0, TERN_OPT_INT, "N", "10", .to.integer = &integer, .help = "how many"},
        {"set", 0, TERN_OPT_LIST, "KEY=VALUE", .to.list = &list, .help = "override"},
        {0},
    };
    const struct tern_cmd cmd = {.name = "x",
                                 .args = "FILE",
                                 .summary = "try it",
                                 .opts = opts,
                                 .args_min = 1,
                                 .args_max = 1};
    struct tern_err e = {0};
    int n = 0;
    char *argv[] = {"x", "-jo", "f", "--set=a=1", "in", "--se", "b=2", NULL};

    ok(tern_opt_parse(&cmd, "tern x", 7, argv, &n, &e) == 0 && n == 1,
       "options and arguments are parsed");
    ok(flag && integer == 10 && list.n == 2, "flags, defaults and lists are set");
    is(text, "f", "a value follows clustered letters");
    is(argv[1], "in", "the remaining argument is kept");
    char *bad[] = {"x", "--stepz", "3", "in", NULL};
    ok(tern_opt_parse(&cmd, "tern x", 4, bad, &n, &e) < 0, "an unknown option is refused");
    has(e.text, "did you mean --steps?", "the nearest option is suggested");
    char *none[] = {"x", NULL};
    ok(tern_opt_parse(&cmd, "tern x", 1, none, &n, &e) < 0 && strstr(e.text, "expected: FILE"),
       "a missing argument is named");
    char *help = NULL, *man = NULL;
    size_t len;
    FILE *f = open_memstream(&help, &len);
    tern_opt_help(f, &cmd, "tern x", 80);
    fclose(f);
    f = open_memstream(&man, &len);
    tern_opt_man(f, &cmd, "tern x");
    fclose(f);
    bool agree = true;
    for (const struct tern_opt *o = opts; o->name; o++) {
        char *option = tern_strf("\\-\\-%s", o->name);
        agree = agree && strstr(help, o->name) && strstr(man, option) && strstr(help, o->help);
        free(option);
    }
    ok(agree, "help and man page name every option");
    free(help);
    free(man);
}

/* ------------------------------------------------------------------ pages of help */

static void insert_row(struct tern_page *page, const char *words)
{
    tern_page_item(page, words, "a row");
}

/* `source` as a page, malloc'ed. */
static char *page_of(const char *source, int columns)
{
    char *to = NULL;
    size_t len;
    FILE *f = open_memstream(&to, &len);
    struct tern_page page = {.to = f, .columns = columns, .insert = insert_row};

    tern_page_text(&page, source);
    fclose(f);
    return to;
}

static void test_page(void)
{
    static const char source[] = "One `two`\nthree.\n\nFour.\n# KEYS\nkey :: explained\nfurther\n"
                                 "a.very.long.key.of.a.recipe :: too long for its column\n"
                                 "@table lora.\n    .code 'x'\n\n    more  code\nlast `tick\n";
    char *page = page_of(source, 80), *narrow = page_of("aaa bbb ccc\n", 7),
         *man = page_of(source, 0);

    is(page,
       "One `two` three.\n\nFour.\n\nKEYS\n  key                    explained further\n"
       "  a.very.long.key.of.a.recipe\n                         too long for its column\n"
       "  table lora.            a row\n\n    .code 'x'\n\n    more  code\n\nlast `tick\n",
       "a page of help on a terminal");
    is(narrow, "aaa bbb\nccc\n", "a paragraph is wrapped at the terminal's columns");
    is(man,
       ".PP\nOne \\fBtwo\\fR three.\n.PP\nFour.\n.SH KEYS\n.TP\n.B key\nexplained further\n.TP\n"
       ".B a.very.long.key.of.a.recipe\ntoo long for its column\n.TP\n.B table lora.\na row\n"
       ".PP\n.nf\n.RS 4\n\\&.code \\(aqx\\(aq\n\nmore  code\n.RE\n.fi\n.PP\nlast \\(gatick\n",
       "a page of help as troff");
    free(page);
    free(narrow);
    free(man);
}

/* ------------------------------------------------------------------ programs */

static void programs(void)
{
    char *self = tern_fs_self(), *dir = tern_fs_self_dir(), *beside = tern_fs_beside("other");
    char *other = tern_fs_join(dir, "other"), *path = tern_strdup(getenv("PATH"));

    is(tern_fs_basename(self), "base", "a program knows its own file");
    is(beside, other, "a program finds another beside it");
    ok(tern_fs_on_path("sh", true) && !tern_fs_on_path("no-such-program", false),
       "programs are found on PATH");
    ok(chdir(dir) == 0 && tern_fs_replace("plain", "x", 1, 0644, NULL) == 0,
       "a plain file is written");
    setenv("PATH", "/nowhere::/bin", 1); /* an empty part is the current folder */
    ok(tern_fs_on_path("plain", false) && !tern_fs_on_path("plain", true),
       "a plain file on PATH is found, but not as a program");
    ok(!tern_fs_on_path(".", true), "a folder on PATH is not a program");
    unlink("plain");
    setenv("PATH", path, 1);
    free(path);
    free(other);
    free(beside);
    free(dir);
    free(self);
}

/* A limit on waiting stands still while this process does: here, while it does not look. */
static void test_limit(void)
{
    struct tern_clock_limit l = tern_clock_limit(1000000000, 1000000);

    tern_clock_sleep_ns(20000000);
    ok(tern_clock_left_ns(&l) == 999000000,
       "a limit counts a gap only up to the time between two looks");
    l = tern_clock_limit(3000000, 1000000000);
    tern_clock_sleep_ns(5000000);
    ok(tern_clock_left_ns(&l) <= 0, "a limit counts a whole wait between looks");
}

static bool reaches(int family, unsigned port)
{
    struct sockaddr_in a4 = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6,
                              .sin6_port = htons((uint16_t)port),
                              .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = family == AF_INET ? connect(fd, (struct sockaddr *)&a4, sizeof a4)
                               : connect(fd, (struct sockaddr *)&a6, sizeof a6);

    close(fd);
    return rc == 0;
}

static void test_listen(void)
{
    struct tern_err err = {0};
    unsigned port = 0, own = 0;
    int fd = tern_listen(NULL, 8, &port, &err), six = tern_listen("::1", 8, &own, NULL);

    ok(fd >= 0 && reaches(AF_INET, port), "a listener is reached over IPv4");
    if (six >= 0) {
        ok(reaches(AF_INET6, port), "a listener is reached over IPv6");
        ok(reaches(AF_INET6, own), "a listener on an IPv6 address is reached");
    } else {
        printf("# no IPv6 here\n");
    }
    close(fd);
    close(six);
    ok(tern_listen("no such host", 8, &port, &err) < 0 && strstr(err.text, "no such host"),
       "an unknown host name is an error that names it");
}

/* Which failures may pass, by errno. */
static void test_codes(void)
{
    struct tern_err full = {0};
    static const int passing[] = {ENOSPC, EDQUOT, ESTALE, EINTR, EMFILE, ENFILE, EAGAIN, EIO};
    static const int named[] = {ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG};
    bool good = true;

    errno = EDQUOT;
    tern_err_sys(&full, "shard");
    is(full.text,
       "shard: Disk quota exceeded (`quota -s`, on Lustre `lfs quota -h DIR`, shows whose)",
       "a full quota is told with the commands that show it");
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        struct tern_err e = {0};
        errno = passing[i];
        tern_err_sys(&e, "x");
        good = good && e.code == TERN_TEMPFAIL;
    }
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        struct tern_err e = {0};
        errno = named[i];
        tern_err_sys(&e, "x");
        good = good && e.code == TERN_USAGE;
    }
    ok(good, "errors of storage and limits may pass; a path of the wrong kind is bad input");
}

int main(void)
{
    char t[40];

    test_err();
    test_codes();
    test_listen();
    test_hash();
    test_str();
    test_word();
    test_text();
    test_fs();
    test_yaml();
    yaml_written();
    test_rand();
    test_opt();
    test_page();
    test_limit();
    ok(strlen(tern_clock_iso8601(t, sizeof t, tern_clock_wall_ns())) == 25,
       "a time in ISO 8601 has 25 letters: %s", t);
    json_t *j = tern_json_real(NAN);
    is(json_string_value(j), "NaN", "NaN is a word in JSON");
    json_decref(j);
    programs();
    return tap_done();
}

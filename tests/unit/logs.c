/* core/logs: output of ranks on disk and back. */
#include "tests/unit/tap.h"

#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/logs/lines.h"
#include "core/logs/logs.h"
#include "core/logs/read.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char work[] = "/tmp/tern-unit-logs-XXXXXX";
static const int64_t second = 1000000000;

/* ------------------------------------------------------------------ lines */

struct seen {
    struct tern_buf log, lines;
};

static void see_log(void *self, int64_t wall_ns, char stream, char mark, const char *text,
                    size_t len)
{
    struct seen *s = self;

    tern_buf_printf(&s->log, "%" PRId64 "%c%c%.*s|", wall_ns / second, stream, mark, (int)len,
                    text);
}

static void see_line(void *self, int64_t wall_ns, char stream, const char *text, size_t len,
                     bool whole)
{
    struct seen *s = self;

    (void)wall_ns, (void)stream, (void)len;
    tern_buf_printf(&s->lines, "%s%s|", text, whole ? "" : "..");
}

#define GAP "\001"       /* a piece that got lost; it ended within a line */
#define GAP_LINES "\002" /* it ended with a newline */

/* Pieces of text a second apart, with idle moments between; "" is an idle moment alone. */
static void shown(const char *what, const char *const *pieces, const char *log, const char *lines)
{
    struct seen s = {0};
    struct tern_logs_lines l = {.to = {&s, see_log, see_line}, .stream = 'o'};
    int64_t now = 100 * second;

    for (; *pieces; pieces++, now += second) {
        if (strcmp(*pieces, GAP) == 0 || strcmp(*pieces, GAP_LINES) == 0) {
            tern_logs_lines_gap(&l, strcmp(*pieces, GAP) == 0);
            continue;
        }
        tern_logs_lines_take(&l, now, *pieces, strlen(*pieces));
        tern_logs_lines_idle(&l, now + second / 2, false);
        if (!**pieces)
            tern_logs_lines_idle(&l, now + 2 * second, false);
    }
    tern_logs_lines_idle(&l, now, true);
    is(s.log.data ? s.log.data : "", log, "%s: the log", what);
    is(s.lines.data ? s.lines.data : "", lines, "%s: what patterns see", what);
    tern_logs_lines_free(&l);
    tern_buf_free(&s.log);
    tern_buf_free(&s.lines);
}
#define PIECES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void lines(void)
{
    shown("lines", PIECES("a\nb\n\nc\n"), "100o a|100o b|100o |100o c|", "a|b|c|");
    shown("a line in two pieces", PIECES("a", "b\n"), "100o ab|", "ab|");
    shown("a line that waits", PIECES("a", "", "b\n"), "100o+a|102o b|", "ab|");
    shown("no newline at the end", PIECES("a"), "100o+a|", "a|");
    shown("lines of Windows", PIECES("a\r\nb\r\n"), "100o a|100o b|", "a|b|");
    shown("a bar", PIECES("\r 1%|", "", "\r 2%|", "\r 3%|\n"), "100o~ 1%||103o  3%||",
          " 1%|..| 1%|| 2%|..| 2%|| 3%||");
    shown("a gap", PIECES("step=1", GAP, "7 loss=2\nnext\n"),
          "100o+step=1|102o 7 loss=2|102o next|", "next|");
    shown("a gap between lines", PIECES("a\n", GAP, "b\nc\n"), "100o a|102o b|102o c|", "a|c|");
    shown("a gap that ends with a line", PIECES("ste", GAP_LINES, "b\nc\n"),
          "100o+ste|102o b|102o c|", "b|c|");
    shown("a gap in a bar", PIECES("\r 1%", GAP, "|\r 2%|\n"), "100o+ 1%|102o  2%||",
          " 1%..| 2%||");
    shown("a fast bar", PIECES("\r1\r2\r3\r4", "", "\r5\n"), "100o~4|102o 5|", "1|2|3|4..|4|5|");

    struct seen s = {0};
    struct tern_logs_lines l = {.to = {&s, see_log, see_line}, .stream = 'e'};
    char *big = malloc(TERN_LOGS_TEXT_MAX * 2 + 10);
    memset(big, 'x', TERN_LOGS_TEXT_MAX * 2 + 10);
    big[TERN_LOGS_TEXT_MAX * 2 + 9] = '\n';
    tern_logs_lines_take(&l, 1, big, TERN_LOGS_TEXT_MAX * 2 + 10);
    ok(s.log.len == TERN_LOGS_TEXT_MAX * 2 + 9 + 3 * 4, "a long line comes in three pieces");
    tern_logs_lines_free(&l);
    tern_buf_free(&s.log);
    tern_buf_free(&s.lines);
    free(big);
}

struct counted {
    struct tern_logs_lines l;
    unsigned whole, torn;
};

static void count(void *self, int64_t wall_ns, char stream, char mark, const char *text, size_t len)
{
    struct counted *c = self;

    (void)wall_ns, (void)stream, (void)text, (void)len;
    if (mark == ' ')
        *(c->l.missing ? &c->torn : &c->whole) += 1;
}

/* Lines of `text` without its bytes from `a` to `b`: whole ones, torn ones and dropped newlines. */
static unsigned count_with_gap(const char *text, size_t a, size_t b, unsigned *whole)
{
    struct counted c = {.l = {.stream = 'm'}};
    unsigned dropped = 0;

    c.l.to = (struct tern_logs_lines_to){&c, count, NULL};
    for (size_t i = a; i < b; i++)
        dropped += text[i] == '\n';
    tern_logs_lines_take(&c.l, 1, text, a);
    tern_logs_lines_gap(&c.l, text[b - 1] != '\n');
    tern_logs_lines_take(&c.l, 2, text + b, strlen(text + b));
    tern_logs_lines_free(&c.l);
    *whole = c.whole;
    return c.whole + c.torn + dropped;
}

/* Wherever bytes get lost, every line is there or counted, and none that they touch looks whole. */
static void accounts(void)
{
    static const char *const texts[] = {"a=1 b=2\nc=3\n\nd=4\n", "a=1\r\nb=2\r\nc=3\r\n"};
    unsigned n, wrong = 0, torn = 0;

    for (size_t t = 0; t < 2; t++) {
        size_t len = strlen(texts[t]), lines = 0;
        for (size_t i = 0; i < len; i++)
            lines += texts[t][i] == '\n';
        for (size_t a = 0; a < len; a++)
            for (size_t b = a + 1; b <= len; b++) {
                size_t touched = 0, begin = 0;
                wrong += count_with_gap(texts[t], a, b, &n) != lines;
                for (size_t i = 0; i < len; i++)
                    if (texts[t][i] == '\n') {
                        touched += begin < b && a <= i;
                        begin = i + 1;
                    }
                torn += n != lines - touched;
            }
    }
    ok(wrong == 0, "wherever bytes are lost, all lines are counted (%u times not)", wrong);
    ok(torn == 0, "a line that lost a byte is not whole, every other one is (%u times not)", torn);
}

/* ------------------------------------------------------------------ logs */

static char *merged(const char *dir, int64_t tail)
{
    struct tern_logs_reader *r = tern_logs_reader_open(dir, NULL, NULL, NULL);
    struct tern_logs_line l;
    struct tern_buf b = {0};

    if (tail)
        tern_logs_reader_tail(r, (uint64_t)tail, false);
    tern_logs_reader_refresh(r);
    while (tern_logs_reader_next(r, &l))
        tern_buf_printf(&b, "%" PRId64 " %s@%s %c%c%.*s\n", l.wall_ns, l.name, l.node, l.stream,
                        l.mark, (int)l.len, l.text);
    tern_logs_reader_close(r);
    return b.data ? b.data : tern_strdup("");
}

static void names(void)
{
    char name[32];
    unsigned part = 7;

    ok(tern_logs_parse_name("12.log", name, &part) == 0 && part == 0 && strcmp(name, "12") == 0 &&
           tern_logs_parse_name("run.000012.log", name, &part) == 0 && part == 12 &&
           strcmp(name, "run") == 0,
       "names of logs");
    ok(tern_logs_parse_name("a-b.log", name, &part) < 0 &&
           tern_logs_parse_name("1.12.log", name, &part) < 0 &&
           tern_logs_parse_name("1.000000.log", name, &part) < 0 &&
           tern_logs_parse_name("..log", name, &part) < 0 &&
           tern_logs_parse_name("0123456789012345678901234567890123456789.log", name, &part) < 0,
       "names of none");
}

static void merging(void)
{
    struct tern_err err = {0};
    char *dir = tern_strf("%s/ledger/logs", work), *s;
    struct tern_logs_file *a = tern_logs_file_open(dir, "1", "n1", 1 << 20, &err);
    struct tern_logs_file *b = tern_logs_file_open(dir, "run", "n0", 1 << 20, &err);
    ok(a && b, "two logs: %s", err.text);
    tern_logs_file_add(a, 10, 'o', ' ', "one", 3);
    tern_logs_file_add(b, 5, 't', ' ', "begin", 5);
    tern_logs_file_add(a, 30, 'e', '+', "th", 2);
    tern_logs_file_add(b, 20, 't', ' ', "", 0);
    tern_logs_file_add(b, 30, 't', ' ', "same", 4);
    tern_logs_file_flush(a);
    tern_logs_file_flush(b);
    s = merged(dir, 0);
    is(s, "5 run@n0 t begin\n10 1@n1 o one\n20 run@n0 t \n30 run@n0 t same\n30 1@n1 e+th\n",
       "merged by time; the supervisor first");
    free(s);
    s = merged(dir, 1);
    is(s, "30 run@n0 t same\n30 1@n1 e+th\n", "the last line of each");
    free(s);

    /* A torn record at the end is not read yet; bad lines are left out. */
    char *path = tern_logs_path(dir, "1", 0);
    FILE *f = fopen(path, "a");
    fputs("rubbish\n99999999999999999999 o x\n40 q x\n40 o torn", f);
    fclose(f);
    s = merged(dir, 0);
    has(s, "30 1@n1 e+th\n", "a torn record at the end of a log is not read");
    ok(!strstr(s, "torn") && !strstr(s, "rubbish"), "rubbish at the end of a log is not read");
    free(s);
    free(path);
    tern_logs_file_close(a);
    tern_logs_file_close(b);
    free(dir);
}

/* A log is bounded: the beginning and the newest stay, the gap is reported. */
static void bounded(void)
{
    struct tern_err err = {0};
    char *small = tern_strf("%s/small", work), line[120], *path, *s;
    struct tern_logs_file *a = tern_logs_file_open(small, "0", "n", 1 << 20, &err);
    for (int i = 0; i < 50000; i++) {
        int n = snprintf(line, sizeof line, "line %06d of a talkative program", i);
        tern_logs_file_add(a, i, 'o', ' ', line, (size_t)n);
    }
    tern_logs_file_close(a);
    uint64_t bytes = 0;
    int files = 0;
    for (unsigned i = 0; i < 100; i++) {
        struct stat st;
        path = tern_logs_path(small, "0", i);
        if (stat(path, &st) == 0) {
            files++;
            bytes += (uint64_t)st.st_size;
        }
        free(path);
    }
    ok(files == TERN_LOGS_PARTS && bytes <= 1 << 20, "%d files, %" PRIu64 " bytes of %d", files,
       bytes, 1 << 20);
    ok(bytes > (1 << 20) * 3 / 4, "the parts of a log use most of the room");
    s = merged(small, 0);
    has(s, "line 000000", "the beginning is there");
    has(s, "line 049999", "the end is there");
    has(s, "t lines are left out here", "a gap in a log is reported");
    ok(strstr(s, "left out") == strstr(s, "left out here") && strstr(s, "left out") &&
           !strstr(strstr(s, "left out") + 5, "left out"),
       "the gap is reported once");
    free(s);
    s = merged(small, 3);
    is(s,
       "49997 0@n o line 049997 of a talkative program\n"
       "49998 0@n o line 049998 of a talkative program\n"
       "49999 0@n o line 049999 of a talkative program\n",
       "the last three lines of many files");
    free(s);
    free(small);
}

/* A storage that refuses writes: lines are lost, and that is reported when it takes writes again.
 */
static void lost(void)
{
    struct tern_err err = {0};
    char *full = tern_strf("%s/full", work);
    struct rlimit old, tiny;
    getrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_IGN);
    struct tern_logs_file *a = tern_logs_file_open(full, "0", "n", 1 << 20, &err);
    tiny = (struct rlimit){40, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &tiny);
    for (int i = 0; i < 5; i++)
        tern_logs_file_add(a, i, 'o', ' ', "0123456789", 10);
    tern_logs_file_flush(a);
    ok(tern_logs_file_unreported(a) == 4, "of five lines four did not fit: %" PRIu64,
       tern_logs_file_unreported(a));
    tern_logs_file_add(a, 8, 'o', ' ', "0123456789", 10);
    tern_logs_file_flush(a);
    ok(tern_logs_file_unreported(a) == 5,
       "the report of lost lines is lost, too, and is no line: %" PRIu64,
       tern_logs_file_unreported(a));
    setrlimit(RLIMIT_FSIZE, &old);
    tern_logs_file_add(a, 9, 'o', ' ', "again", 5);
    tern_logs_file_close(a);
    char *s = merged(full, 0);
    is(s, "0 0@n o 0123456789\n9 0@n t 5 lines are missing here: File too large\n9 0@n o again\n",
       "the log reports lost lines in their place");
    free(s);
    free(full);
}

/* Which attempts of `n`, with `bytes` each, have logs before the next one begins. */
static const char *kept(unsigned n, size_t bytes, uint64_t share)
{
    static char out[200];
    char *ledger = tern_strf("%s/trim", work), *text = calloc(1, bytes + 1);

    for (unsigned a = 1; a <= n; a++) {
        char *dir = tern_logs_dir(ledger, "R", a), *file = tern_logs_path(dir, "0", 0);
        tern_fs_mkdirs(dir, 0777, NULL);
        tern_fs_replace(file, text, bytes, 0644, NULL);
        free(dir);
        free(file);
    }
    tern_logs_trim(ledger, "R", n + 1, share);
    out[0] = '\0';
    for (unsigned a = 1; a <= n; a++) {
        char *dir = tern_logs_dir(ledger, "R", a);
        if (tern_fs_exists(dir))
            snprintf(out + strlen(out), sizeof out - strlen(out), "%u ", a);
        free(dir);
    }
    tern_fs_remove_tree(ledger, NULL);
    free(ledger);
    free(text);
    return out;
}

static void trims(void)
{
    is(kept(8, 1000, 1000), "1 7 8 ",
       "a run keeps the first log and the newest that there is room for");
    is(kept(8, 100, 1000), "1 2 3 4 5 6 7 8 ", "small logs of all attempts are kept");
    is(kept(6, 9000, 1000), "1 6 ", "the logs of the first and the previous attempt always stay");
    is(kept(3, 9000, 1000), "1 2 3 ", "few need no look");
}

/* ------------------------------------------------------------------ ends */

static void end_rank(const char *dir, const char *rank, int64_t at, int status, bool told)
{
    struct tern_logs_file *f = tern_logs_file_open(dir, rank, "n", 1 << 20, NULL);

    tern_logs_file_add(f, second, 'o', ' ', "a line", 6);
    tern_logs_file_add_end(f, at * second, status, told);
    tern_logs_file_close(f);
}

static void ends(void)
{
    enum { EXIT_1 = 1 << 8, EXIT_3 = 3 << 8, EXIT_76 = 76 << 8, EXIT_143 = 143 << 8 };
    char *dir = tern_fs_join(work, "ends");
    int status = 0;

    end_rank(dir, "0", 12, SIGTERM, true);
    end_rank(dir, "1", 10, EXIT_3, false);
    ok(tern_logs_first_failed(dir, 3, &status) == -1,
       "no rank is the first that failed before every rank has ended");
    end_rank(dir, "2", 9, 0, false);
    ok(tern_logs_first_failed(dir, 3, &status) == 1 && status == EXIT_3,
       "the first that failed is the rank that exited 3 before the others got a signal");
    end_rank(dir, "3", 8, EXIT_1, true);
    ok(tern_logs_first_failed(dir, 4, &status) == 1,
       "a rank that exits 1 after a signal to end is not the first that failed");
    end_rank(dir, "4", 7, SIGKILL, false);
    ok(tern_logs_first_failed(dir, 5, &status) == 4 && status == SIGKILL,
       "an earlier rank that a signal ended is the first that failed");
    ok(tern_logs_first_exit(dir, 5, &status) == 3 && status == EXIT_1,
       "a killed rank is not the first that exited");
    end_rank(dir, "4", 6, EXIT_143, true);
    ok(tern_logs_first_exit(dir, 5, &status) == 3,
       "a shell that tells of a signal is not the first that exited");
    end_rank(dir, "4", 6, EXIT_76, true);
    ok(tern_logs_first_exit(dir, 5, &status) == 4 && status == EXIT_76,
       "the first that exited had got a signal to end, and exited 76");
    ok(tern_logs_first_failed(dir, 5, &status) == 1,
       "a rank that exits 76 after a signal to end is not the first that failed");
    int64_t last = 0;
    ok(tern_logs_ended(dir, 5, &status, &last) && status == SIGTERM && last == 12 * second,
       "all ranks have ended, also those that got a signal, the last of them at 12 s");
    ok(tern_logs_left(dir, 6) == -1, "beside ranks that failed, none counts as left");
    free(dir);
    dir = tern_fs_join(work, "left");
    ok(tern_logs_left(dir, 3) == -1, "without logs no rank is left");
    end_rank(dir, "0", 3, 0, false);
    end_rank(dir, "2", 4, 0, false);
    ok(tern_logs_left(dir, 3) == 1, "the rank whose log does not end is left");
    end_rank(dir, "1", 5, 0, false);
    ok(tern_logs_left(dir, 3) == -1, "none is left when all have ended");
    free(dir);
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    lines();
    accounts();
    names();
    merging();
    bounded();
    lost();
    trims();
    ends();
    tern_fs_remove_tree(work, NULL);
    return tap_done();
}

/* Logs, printed lines and event files from a hostile program: nothing is read that is not there.
 * FUZZ_RUNS: how many inputs. */

#include "core/base/hash.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/intake/intake.h"
#include "core/logs/lines.h"
#include "core/logs/read.h"
#include "core/intake/tensorboard.h"
#include "tests/unit/tap.h"

#include <unistd.h>

static uint64_t state = 1;

static uint32_t pick(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static const char *const seeds[] = {
    "tern-log 1 0 n\n1 o a\n2 e+b\n3 o~ c\n9223372036854775807 t d\n",
    "LOG x - (0, 7) step_loss : 2.3 learning_rate : 1e-4 throughput : 1 seq/s grad-norm : 1\n",
    "step 1 step_time 1.5s throughput 20 seq/s loss 1 grad norm 2\r\n{'loss': 1, 'epoch': '2'}\n",
    "  0%|#| 0/5 [0\r   \r{'loss': 1, 'epoch': 2}\n 2%|#| 1/5 [0\r  \r{'a': 2, 'epoch': 2}\n 2%|#| "
    "2/5 [0\r",
    "Epoch 1:  20%|##   | 2/10 [00:01<00:01,  4.21it/s, loss=1.5, v_num=0]\r 2%|#| 1/5 [0\r\n",
    "step=7 loss=2.31 checkpoint=x\n{'a':'b','c': 1}{''}\n{'\n",
};

static size_t mutate(char *to, size_t cap)
{
    size_t len = 0;

    for (uint32_t n = 1 + pick(3); n > 0; n--) {
        const char *s = seeds[pick(sizeof seeds / sizeof *seeds)];
        size_t k = strlen(s);
        if (len + k > cap)
            break;
        memcpy(to + len, s, k);
        len += k;
    }
    for (uint32_t n = pick(12); n > 0; n--)
        to[pick((uint32_t)len)] = pick(4) ? "0129 \n\r='{},:|%"[pick(15)] : (char)pick(256);
    return len ? len - pick((uint32_t)len) : 0;
}

static void see_line(void *self, int64_t ns, char stream, const char *text, size_t len, bool whole)
{
    char *copy = malloc(len + 1);

    (void)ns, (void)stream;
    memcpy(copy, text, len + 1);
    tern_intake_take_printed(self, copy, len, whole);
    tern_intake_take_metrics(self, copy, len);
    free(copy);
}

static void see_log(void *self, int64_t ns, char stream, char mark, const char *text, size_t len)
{
    volatile char sum = 0;

    (void)self, (void)ns, (void)stream, (void)mark;
    for (size_t i = 0; i < len; i++)
        sum = (char)(sum + text[i]);
}

static void see_value(void *self, const struct tern_intake_tb_value *v)
{
    *(double *)self += v->value;
}

/* An event whose checksums are right, and whose inside is not. */
static void parse_event(void)
{
    static const unsigned char event[] = {
        0x09, 0, 0,   0x40, 0x40, 0xfc, 0x54, 0xd9, 0x41, 0x10, 7, 0x2a, 0x10, 0x0a, 0x0e,
        0x0a, 1, 'a', 0x42, 9,    8,    1,    0x2a, 4,    0,    0, 0x20, 0x40, 0x30, 1};
    unsigned char record[sizeof event + 16] = {sizeof event};
    memcpy(record + 12, event, sizeof event);
    for (uint32_t k = pick(4); k > 0; k--)
        record[12 + pick(sizeof event)] = (unsigned char)pick(256);
    uint32_t crc = tern_crc32c_masked(record, 8);
    memcpy(record + 8, &crc, 4);
    crc = tern_crc32c_masked(record + 12, sizeof event);
    memcpy(record + 12 + sizeof event, &crc, 4);
    uint64_t bad = 0;
    size_t used;
    double sum = 0;
    if (tern_intake_tb_parse((char *)record, sizeof record, see_value, &sum, &used, &bad) < 0 ||
        bad)
        ok(0, "a record with good checksums is read");
}

int main(void)
{
    char dir[] = "/tmp/tern-fuzz-task-XXXXXX", data[4096];
    const char *runs = getenv("FUZZ_RUNS");
    int n = runs ? atoi(runs) : tap_long() ? 400000 : 20000;

    if (!mkdtemp(dir))
        return 1;
    char *path = tern_strf("%s/0.log", dir);
    struct tern_intake *in =
        tern_intake_open(NULL, 0, "known\tnxd\nknown\thf\nknown\tlightning\n", 1, NULL);
    for (int i = 0; i < n; i++) {
        size_t len = mutate(data, sizeof data);
        char *exact = malloc(len + 1); /* so that a byte too far is seen */
        memcpy(exact, data, len);
        struct tern_logs_lines l = {.to = {in, see_log, see_line}, .stream = 'o'};
        for (size_t at = 0; at < len;) {
            size_t k = 1 + pick((uint32_t)(len - at));
            tern_logs_lines_take(&l, i, exact + at, k);
            tern_logs_lines_idle(&l, i + (int64_t)pick(3) * 1000000000, false);
            at += k;
        }
        tern_logs_lines_idle(&l, i, true);
        tern_logs_lines_free(&l);
        tern_intake_tick(in, i, 1);
        FILE *f = i % 16 ? NULL : fopen(path, "w");
        if (f) {
            struct tern_logs_line line;
            fwrite(exact, 1, len, f);
            fclose(f);
            struct tern_logs_reader *r = tern_logs_reader_open(dir, NULL, NULL, NULL);
            if (pick(2))
                tern_logs_reader_tail(r, pick(4), pick(2));
            tern_logs_reader_refresh(r);
            while (tern_logs_reader_next(r, &line))
                see_log(NULL, line.wall_ns, line.stream, line.mark, line.text, line.len);
            tern_logs_reader_close(r);
        }
        free(exact);
        parse_event();
    }
    tern_intake_close(in);
    tern_fs_remove_tree(dir, NULL);
    free(path);
    ok(1, "tern-task survived %d inputs", n);
    return tap_done();
}

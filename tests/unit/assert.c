/* core/base/assert: assertions that stay on. */
#include "tests/unit/tap.h"

#include "core/base/assert.h"
#include "core/base/fs.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a child logs before `fails` aborts it. */
static const char *last_words(void (*fails)(void))
{
    static char words[1000];
    int ends[2], status = 0;
    size_t n = 0;

    fflush(stdout);
    if (pipe(ends) < 0)
        return "no pipe";
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(ends[1], STDERR_FILENO);
        fails();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], words + n, sizeof words - 1 - n)) > 0;)
        n += (size_t)got;
    words[n] = '\0';
    close(ends[0]);
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT ? words : "not aborted";
}

static int evaluated;

static void fails_bare(void)
{
    tern_assert(evaluated > 7);
}

static void fails_with_word(void)
{
    tern_assert(evaluated > 7, "%s after %d bytes", "out/step_3", 12);
}

static void fails_with_values(void)
{
    size_t written = 12;
    tern_assert_cmp(written + 1, ==, sizeof(char[16]));
}

static void fails_with_large_values(void)
{
    uint64_t large = UINT64_MAX;
    tern_assert_cmp(large, <, large);
}

static void fails_with_negative_values(void)
{
    int64_t at = -1;
    tern_assert_cmp(at, ==, 1);
}

static void fails_once(void)
{
    tern_assert_cmp(++evaluated, ==, 0);
}

/* A file of four bytes whose writer believes that it has three. */
static void fails_behind_the_end(void)
{
    char path[] = "/tmp/tern-assert-XXXXXX";
    const int fd = tern_fs_temp(path);

    if (fd < 0 || unlink(path) < 0 || tern_fs_write_at(fd, 0, "four", 4, path, NULL) < 0)
        _exit(1);
    tern_fs_write_at(fd, 3, "more", 4, "out/shard", NULL);
}

static void fails_at_no_place(void)
{
    tern_fs_write_at(0, UINT64_MAX - 1, "more", 4, "out/shard", NULL);
}

/* What a user may name in a file's place: their positions say nothing. */
static void write_without_position(void)
{
    int ends[2], null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    char got[8] = "";

    ok(null >= 0 && tern_fs_write_at(null, 0, "four", 4, "/dev/null", NULL) == 0 &&
           tern_fs_write_at(null, 4, "more", 4, "/dev/null", NULL) == 0,
       "two writes, one behind the other, go to /dev/null");
    if (null >= 0)
        close(null);
    ok(pipe(ends) == 0 && tern_fs_write_at(ends[1], 0, "fo", 2, "pipe", NULL) == 0 &&
           tern_fs_write_at(ends[1], 2, "ur", 2, "pipe", NULL) == 0 &&
           read(ends[0], got, sizeof got) == 4 && memcmp(got, "four", 4) == 0,
       "two writes, one behind the other, go into a pipe");
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    tern_assert(++evaluated == 1, "evaluated %d times", evaluated);
    tern_assert_cmp(evaluated++, <, 2);
    ok(evaluated == 2, "an assertion that holds evaluates its condition once and goes on");
    const char *words = last_words(fails_bare);
    has(words,
        "tests/unit/assert.c:", "an assertion that fails aborts and names its file and line");
    has(words, ": assertion failed: evaluated > 7 (",
        "an assertion that fails shows its condition");
    has(last_words(fails_with_word), "evaluated > 7: out/step_3 after 12 bytes (",
        "an assertion's format follows its condition");
    has(last_words(fails_with_values), "written + 1 == sizeof(char[16]): 13 and 16 (",
        "an assertion of two values shows both");
    has(last_words(fails_with_large_values), ": 18446744073709551615 and 18446744073709551615 (",
        "an assertion shows unsigned values of 64 bits");
    has(last_words(fails_with_negative_values), ": -1 and 1 (",
        "an assertion shows negative values");
    evaluated = 2;
    has(last_words(fails_once), ": 3 and 0 (", "an assertion that fails evaluates a value once");
    has(last_words(fails_behind_the_end), "out/shard: stands at 4, not at 3 (",
        "a write whose place is not the file's position aborts before a byte is written");
    has(last_words(fails_at_no_place), "out/shard: 4 bytes at 18446744073709551614 (",
        "a write at a place that no file has aborts");
    write_without_position();
    return tap_done();
}

/* tests/tools/s3.py beside a unit test. */
#ifndef TERN_TESTS_S3_H
#define TERN_TESTS_S3_H

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/store/store.h"
#include "tests/unit/tap.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static char s3_dir[] = "/tmp/tern-s3-XXXXXX";
static char s3_endpoint[64];
static pid_t s3_pid;
static int s3_stdin;

/* Was the store built with libcurl, which it needs to reach a server? */
__attribute__((unused)) static bool s3_built(void)
{
    struct tern_err why = {0};
    struct tern_store *s = tern_store_open("s3://b", NULL, &why);
    const bool built = s || !strstr(why.text, "built without");

    tern_store_close(s);
    return built;
}

/* Sets the environment: endpoint, keys, and nothing of the user's.  False without python3. */
__attribute__((unused)) static bool s3_start(void)
{
    int in[2];
    char *text;
    size_t len;

    if (!mkdtemp(s3_dir) || pipe2(in, O_CLOEXEC) < 0 || !tern_fs_on_path("python3", true))
        return false;
    char *port = tern_fs_join(s3_dir, "port"), *log = tern_fs_join(s3_dir, "log");
    s3_pid = fork();
    if (s3_pid == 0) {
        dup2(in[0], 0);
        execlp("python3", "python3", "tests/tools/s3.py", port, log, NULL);
        _exit(127);
    }
    s3_stdin = in[1];
    close(in[0]);
    for (int i = 0; i < 1200 && !tern_fs_exists(port); i++)
        tern_clock_sleep_ns(50000000);
    if (tern_fs_read(port, 100, &text, &len, NULL) == 0) {
        text[strcspn(text, "\n")] = '\0';
        snprintf(s3_endpoint, sizeof s3_endpoint, "http://127.0.0.1:%s", text);
        free(text);
    }
    free(port);
    free(log);
    for (char **e = environ; *e;) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
        if (tern_str_starts(*e, "AWS_") || strstr(name, "_proxy") || tern_str_starts(*e, "HF_"))
            unsetenv(name);
        else
            e++;
    }
    setenv("HOME", s3_dir, 1);
    setenv("XDG_CACHE_HOME", s3_dir, 1);
    setenv("AWS_ENDPOINT_URL", s3_endpoint, 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("AWS_ACCESS_KEY_ID", "AKIDTEST", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret+key/of=tests", 1);
    return *s3_endpoint != '\0';
}

__attribute__((unused)) static void s3_end(void)
{
    if (s3_pid <= 0)
        return;
    close(s3_stdin);
    kill(s3_pid, SIGKILL);
    waitpid(s3_pid, NULL, 0);
    tern_fs_remove_tree(s3_dir, NULL);
}

/* "/_fault?503=2&match=GET" and the like. */
__attribute__((unused)) static void s3_say(const char *path)
{
    char *url = tern_strf("%s%s", s3_endpoint, path), *text = NULL;
    size_t len;
    struct tern_store *s = tern_store_open(url, NULL, NULL);

    if (!s || tern_store_text(s, NULL, 100, &text, &len, NULL, NULL) < 0)
        printf("# %s: failed\n", path);
    free(text);
    free(url);
    tern_store_close(s);
}

/* How many lines of the server's log have `part`. */
__attribute__((unused)) static int s3_count(const char *part)
{
    char *path = tern_fs_join(s3_dir, "log"), *text;
    size_t len;
    int n = 0;

    if (tern_fs_read(path, 64 << 20, &text, &len, NULL) == 0) {
        for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
            n++;
        free(text);
    }
    free(path);
    return n;
}

#endif

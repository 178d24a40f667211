/* plugins/spank: what the submitting side makes of the words and the end of `tern run --check`, and
 * that no hook waits for longer than its limit. */
#include "plugins/spank/plugin.h"

#include "tests/unit/tap.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The plugin is built by itself and knows no room: its files are this test's. */
#include "plugins/spank/child.c"

/* A child as the hooks start it, but for its limit: that is noted, and cut where the test has no
 * time for it. */
static int limit_ms, cut_ms;

static int child(struct tern_spank_child *c)
{
    limit_ms = c->limit_ms;
    if (cut_ms)
        c->limit_ms = cut_ms;
    return tern_spank_child(c);
}

/* On a file system that hangs for a while, when `hangs`. */
static bool hangs;

static char *look_up(const char *path, char *to)
{
    if (hangs)
        sleep(90);
    return realpath(path, to);
}

#define tern_spank_child(c) child(c)
#define realpath(path, to) look_up(path, to)
#define LIMIT_MS CHECK_LIMIT_MS
#include "plugins/spank/check.c"
#undef LIMIT_MS
#define LIMIT_MS PROLOG_LIMIT_MS
#include "plugins/spank/prolog.c"
#undef tern_spank_child
#undef realpath

static char said[8192];

void slurm_error(const char *fmt, ...)
{
    size_t n = strlen(said);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(said + n, sizeof said - n, fmt, ap);
    va_end(ap);
}

void slurm_info(const char *fmt, ...)
{
    (void)fmt;
}

spank_err_t spank_get_item(spank_t sp, spank_item_t item, ...)
{
    (void)sp, (void)item;
    return ESPANK_ERROR;
}

/* What a `tern` that is the shell script `script` makes of a recipe. */
static int check(const char *script)
{
    char path[] = "/tmp/tern-spank-XXXXXX";
    int fd = mkstemp(path);

    said[0] = '\0';
    dprintf(fd, "#!/bin/sh\n%s\n", script);
    fchmod(fd, 0700);
    close(fd);
    int rc = tern_spank_check(path, "run.yaml", NULL);
    unlink(path);
    return rc;
}

/* The same of a profile; with `script` a `tern env`. */
static int profile(const char *script)
{
    char path[] = "/tmp/tern-spank-XXXXXX";
    int fd = mkstemp(path);

    said[0] = '\0';
    dprintf(fd, "#!/bin/sh\n%s\n", script);
    fchmod(fd, 0700);
    close(fd);
    int rc = tern_spank_check_profile(path, "trn2");
    unlink(path);
    return rc;
}

static void answers(const char *how)
{
    ok(profile("exit 0") == 0, "%s: a profile that is there", how);
    ok(profile("echo 'tern env: error: no profile trn2' >&2; exit 2") < 0 &&
           strcmp(said, "tern: no profile trn2") == 0,
       "%s: one that is not: %s", how, said);
    ok(check("exit 0") == 0, "%s: a good recipe", how);
    ok(check("echo 'tern run: warning: much memory' >&2; exit 0") == 0 && strstr(said, "much"),
       "%s: with a warning", how);
    ok(check("echo 'tern run: error: run.yaml:3: no' >&2; exit 2") < 0, "%s: a bad one", how);
    ok(strcmp(said, "tern: run.yaml:3: no") == 0, "%s: in its words: %s", how, said);
    said[0] = '\0';
    ok(tern_spank_check("/no/such/tern", "run.yaml", NULL) < 0 && strstr(said, "cannot run"),
       "%s: a tern that is not there", how);
}

/* Neither the user nor the node waits for longer than the limit. */
static void limits(void)
{
    const struct tern_spank_config config = {.program = "/bin/true", .health_prolog = true};
    int64_t began = now_ms();

    cut_ms = 200;
    ok(check("sleep 90") < 0 && strstr(said, "took more than 20 s"), "a check that hangs: %s", said);
    ok(limit_ms == 20000 && now_ms() < began + 80000, "is ended at its limit, 20 s");
    bound((double)(now_ms() - began), 2000, "milliseconds, of a limit cut to 200");
    hangs = true, said[0] = '\0', began = now_ms();
    ok(tern_spank_prolog(NULL, &config) == 0 && strstr(said, "took more than 10 s"),
       "the prolog's program is on a file system that hangs: %s", said);
    ok(limit_ms == 10000 && now_ms() < began + 80000, "the job starts after the limit, 10 s");
    bound((double)(now_ms() - began), 2000, "milliseconds until the job starts");
    hangs = false, said[0] = '\0', cut_ms = 0;
    ok(tern_spank_prolog(NULL, &config) == 0 && !*said, "one that is there is run: %s", said);
}

int main(void)
{
    limits();
    answers("as usual");
    signal(SIGCHLD, SIG_IGN); /* children end unseen: a shell's trap '' CHLD, a daemon's habit */
    answers("SIGCHLD ignored");
    struct sigaction now;
    ok(sigaction(SIGCHLD, NULL, &now) == 0 && now.sa_handler == SIG_IGN, "and ignored afterwards");
    return tap_done();
}

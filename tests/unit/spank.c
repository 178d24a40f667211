/* plugins/spank: what the submitting side makes of the words and the end of `tern run --check`, and
 * that no hook waits for longer than its limit. */
#include "plugins/spank/plugin.h"

#include "tests/unit/tap.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
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
#undef LIMIT_MS
#define LIMIT_MS TASK_LIMIT_MS
#include "plugins/spank/profile.c"
#include "plugins/spank/options.c"
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

spank_err_t spank_option_register(spank_t sp, struct spank_option *o)
{
    (void)sp, (void)o;
    return ESPANK_SUCCESS;
}

/* The task's environment, as far as it was set here: "A=1 B=2 ". */
static char task_env[4096];

spank_err_t spank_setenv(spank_t sp, const char *name, const char *value, int overwrite)
{
    size_t n = strlen(task_env);

    (void)sp, (void)overwrite;
    snprintf(task_env + n, sizeof task_env - n, "%s=%s ", name, value);
    return ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t sp, const char *name)
{
    (void)sp, (void)name;
    return ESPANK_SUCCESS;
}

spank_err_t spank_getenv(spank_t sp, const char *name, char *to, int n)
{
    (void)sp, (void)name, (void)to, (void)n;
    return ESPANK_ENV_NOEXIST;
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

/* `unseen`: how children ended may be lost to somebody else, and a profile that may be there
 * passes. */
static void answers(const char *how, bool unseen)
{
    ok(profile("exit 0") == 0, "%s: a profile that is there", how);
    ok(unseen || (profile("echo 'tern env: error: no profile trn2' >&2; exit 2") < 0 &&
                  strcmp(said, "tern: no profile trn2") == 0),
       "%s: one that is not: %s", how, said);
    ok(check("exit 0") == 0, "%s: a good recipe", how);
    ok(check("echo 'tern run: warning: much memory' >&2; exit 0") == 0 && strstr(said, "much"),
       "%s: with a warning", how);
    ok(check("echo 'tern run: error: run.yaml:3: no' >&2; exit 2") < 0, "%s: a bad one", how);
    ok(strcmp(said, "tern: run.yaml:3: no") == 0, "%s: in its words: %s", how, said);
    ok(check("echo 'error: the library libyaml is missing' >&2; exit 127") < 0,
       "%s: a tern that cannot start refuses the job: %s", how, said);
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
    ok(check("sleep 90") < 0 && strstr(said, "took more than 20 s"), "a check that hangs: %s",
       said);
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

/* ------------------------------------------------------------------ the prolog, as root */

static void chmod_or_abort(const char *path, mode_t mode)
{
    if (chmod(path, mode) < 0)
        abort();
}

/* Root runs a program only when no user but root (here: the test's user) may change it. */
static void safety(void)
{
    char dir[] = "/tmp/tern-spank-XXXXXX", folder[64], file[80], link[80];

    if (!mkdtemp(dir))
        abort();
    snprintf(folder, sizeof folder, "%s/bin", dir);
    snprintf(file, sizeof file, "%s/tern", folder);
    snprintf(link, sizeof link, "%s/link", dir);
    int fd = mkdir(folder, 0755) == 0 ? creat(file, 0755) : -1;
    if (fd < 0 || symlink(file, link) < 0 || (getuid() == 0 && chown(file, 0, 1) < 0))
        abort();
    close(fd);
    ok(is_safe_all_up(file), "a program that only its owner may change is safe");
    ok(find(link) && strcmp(find(link), file) == 0, "a link leads to the program itself");
    ok(!find("bin/tern"), "a relative path is refused");
    chmod_or_abort(file, 0757);
    ok(!is_safe_all_up(file), "a program that all may change is not safe");
    chmod_or_abort(file, 0775);
    ok(!is_safe_all_up(file), "a program that a group may change is not safe");
    if (getuid() == 0) {
        ok(chown(file, 0, 0) == 0 && is_safe_all_up(file), "root's group is root");
        chmod_or_abort(file, 0755);
        ok(chown(file, 65534, 0) == 0 && !is_safe_all_up(file),
           "a program of another user is not safe");
        if (chown(file, 0, 0) < 0)
            abort();
    }
    chmod_or_abort(file, 0755);
    chmod_or_abort(folder, 0777);
    ok(!is_safe_all_up(file), "a program in a folder that all may change is not safe");
    chmod_or_abort(folder, 01777);
    ok(is_safe_all_up(file), "a sticky folder keeps others from renaming the program");
    unlink(file);
    unlink(link);
    rmdir(folder);
    rmdir(dir);
}

/* The prolog's verdict on a child that ended with `status`. */
static int verdict(int status, bool late)
{
    struct tern_spank_child c = {.status = status, .late = late};

    said[0] = '\0';
    return judge(&c);
}

static void prolog(void)
{
    char to[PATH_MAX];

    ok(verdict(0, false) == 0 && !*said, "a good node takes the job in silence");
    ok(verdict(3 << 8, false) < 0 && strstr(said, "this node is bad"),
       "a bad node refuses the job");
    ok(verdict(1 << 8, false) == 0, "a check that failed is no verdict: the job starts");
    ok(verdict(127 << 8, false) == 0, "a check that is missing is no verdict: the job starts");
    ok(verdict(SIGKILL, false) == 0 && strstr(said, "signal 9"),
       "a check that was killed is no verdict: the job starts");
    ok(verdict(3 << 8, true) == 0 && strstr(said, "took more"),
       "a check that took too long is no verdict: the job starts");
    setenv("TERN_TEST_A", "/etc/slurm/slurm.conf", 1);
    copy_variable(to, "TERN_TEST_A");
    ok(strcmp(to, "TERN_TEST_A=/etc/slurm/slurm.conf") == 0, "a path is handed to root's program");
    setenv("TERN_TEST_A", "/etc/$(id)", 1);
    copy_variable(to, "TERN_TEST_A");
    ok(!*to, "a value with other characters is not");
}

/* ------------------------------------------------------------------ options and profiles */

static void options(void)
{
    char to[TERN_SPANK_VALUE];

    ok(tern_spank_value(to, TERN_SPANK_RESTARTS, "1000000") && strcmp(to, "1000000") == 0,
       "a million restarts are allowed");
    ok(!tern_spank_value(to, TERN_SPANK_RESTARTS, "1000001"),
       "more than a million restarts are refused");
    ok(tern_spank_value(to, TERN_SPANK_RESTARTS, "007") && strcmp(to, "7") == 0,
       "leading zeros go");
    ok(!tern_spank_value(to, TERN_SPANK_RESTARTS, "") &&
           !tern_spank_value(to, TERN_SPANK_RESTARTS, "-1") &&
           !tern_spank_value(to, TERN_SPANK_RESTARTS, "1x"),
       "no number of restarts");
    ok(tern_spank_value(to, TERN_SPANK_HEALTH, "deep") &&
           !tern_spank_value(to, TERN_SPANK_HEALTH, "deeper"),
       "health is one of three words");
    ok(tern_spank_value(to, TERN_SPANK_PROFILE, "trn2") &&
           !tern_spank_value(to, TERN_SPANK_PROFILE, "-trn2") &&
           !tern_spank_value(to, TERN_SPANK_PROFILE, "../trn2"),
       "a profile is a name, no option and no path");
}

static void variables(void)
{
    char good[] = "A=1\0B=x y", cut[] = "A=1\0B=2", bare[] = "A=1\0B", digit[] = "1A=x";
    char own[] = "LIST=a b", *no_list = own + 5;

    task_env[0] = '\0';
    ok(set_all(NULL, "trn2", good, sizeof good) == 0 && strncmp(task_env, "A=1 B=x y ", 10) == 0,
       "a profile's variables are set: %s", task_env);
    ok(strstr(task_env, "TERN_PROFILE_SET=A="),
       "a profile's variables are noted in TERN_PROFILE_SET");
    task_env[0] = '\0';
    ok(set_all(NULL, "trn2", cut, sizeof cut - 1) < 0 && !*task_env,
       "of a list that ends in the middle none is set");
    ok(set_all(NULL, "trn2", bare, sizeof bare) < 0 && !*task_env,
       "a list with a word that is no variable sets none");
    ok(set_all(NULL, "trn2", digit, sizeof digit) < 0 && !*task_env,
       "a list with a name that begins with a digit sets none");
    char list[64];
    snprintf(list, sizeof list, "LIST=%08x", hash(no_list));
    ok(was_ours(list, own) && !was_ours(list, "LIST=a") && !was_ours(list, "IST=a b"),
       "a variable that still has its value was the profile's");
}

/* ------------------------------------------------------------------ children */

static void reap(int signal)
{
    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

static bool runs(pid_t pid)
{
    char path[40], c;

    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid); /* a zombie's is empty */
    int fd = open(path, O_RDONLY);
    bool is = fd >= 0 && read(fd, &c, 1) == 1;
    if (fd >= 0)
        close(fd);
    return is;
}

static void children(void)
{
    char path[] = "/tmp/tern-spank-XXXXXX", script[100], text[20] = "";
    int fd = mkstemp(path);

    cut_ms = 300;
    snprintf(script, sizeof script, "sleep 97 & echo $! >%s; wait", path);
    ok(check(script) < 0, "a check that waits for its own child is ended");
    cut_ms = 0;
    pid_t pid = pread(fd, text, sizeof text - 1, 0) > 0 ? atoi(text) : 0;
    for (int i = 0; pid && runs(pid) && i < 2000; i++)
        usleep(5000);
    ok(pid == 0 || !runs(pid), "the check's own children end, too");
    close(fd);
    unlink(path);
    ok(tern_spank_control("\x7f") && tern_spank_control("\x1b") && tern_spank_control("\xc2\x9b") &&
           !tern_spank_control("\xc2\xa9") && !tern_spank_control("a"),
       "escape, delete and the control characters of Latin-1 are such");
}

int main(void)
{
    struct sigaction reaps = {.sa_handler = reap};

    limits();
    children();
    safety();
    prolog();
    options();
    variables();
    answers("as usual", false);
    sigaction(SIGCHLD, &reaps, NULL);
    answers("a handler takes the children", true);
    signal(SIGCHLD, SIG_IGN); /* children end unseen: a shell's trap '' CHLD, a daemon's habit */
    answers("SIGCHLD ignored", false);
    struct sigaction now;
    ok(sigaction(SIGCHLD, NULL, &now) == 0 && now.sa_handler == SIG_IGN,
       "SIGCHLD is ignored again afterwards");
    return tap_done();
}

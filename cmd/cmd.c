#include "cmd/cmd.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* The clock's nanoseconds reach from the year 1677 to 2262; what lies outside is its end. */
static int64_t nanoseconds(int64_t s)
{
    const int64_t second = 1000000000, most = INT64_MAX / second;

    return s > most ? INT64_MAX : s < -most ? INT64_MIN : s * second;
}

/* With a zone, as tern prints times, or without one, in the local zone.  -1: it is none, such as
 * 31 February, which mktime(3) would take for 3 March. */
static int parse_date(const char *s, int64_t *wall_ns)
{
    static const char *const forms[] = {"%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S",
                                        "%Y-%m-%dT%H:%M%z", "%Y-%m-%dT%H:%M", "%Y-%m-%d"};

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct tm tm = {.tm_isdst = -1};
        const char *end = strptime(s, forms[i], &tm);
        if (!end || *end)
            continue;
        struct tm day = {.tm_year = tm.tm_year, .tm_mon = tm.tm_mon, .tm_mday = tm.tm_mday};
        timegm(&day);
        if (day.tm_mday != tm.tm_mday)
            return -1;
        const long zone = tm.tm_gmtoff;
        *wall_ns = nanoseconds(tern_str_ends(forms[i], "%z") ? timegm(&tm) - zone : mktime(&tm));
        return 0;
    }
    return -1;
}

int tern_cmd_parse_time(const char *s, int64_t *wall_ns, struct tern_err *err)
{
    static const struct {
        const char *name;
        int64_t seconds;
    } units[] = {{"minutes", 60}, {"hours", 3600}, {"days", 86400}, {"weeks", 604800}};

    if (tern_str_starts(s, "now-")) {
        char *unit;
        long n = strtol(s + 4, &unit, 10);
        for (int i = 0; i < 4; i++) {
            if (n >= 0 && n < 100000 && unit != s + 4 && *unit &&
                tern_str_starts(units[i].name, unit)) {
                *wall_ns = tern_clock_wall_ns() - nanoseconds(n * units[i].seconds);
                return 0;
            }
        }
    }
    if (parse_date(s, wall_ns) == 0)
        return 0;
    return tern_err_set(err, TERN_USAGE,
                        "'%s' is not a time (YYYY-MM-DD[THH:MM[:SS][+HH:MM]], or now-3days, "
                        "now-2hours)",
                        s);
}

int tern_cmd_columns(void)
{
    struct winsize w;
    const char *s = getenv("COLUMNS");
    int64_t n;

    if (s && tern_str_int(s, 20, 1000, &n) == 0)
        return (int)n;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 20)
        return w.ws_col;
    return 80;
}

void tern_cmd_say(const char *fmt, ...)
{
    char *line;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&line, fmt, ap) < 0)
        abort();
    va_end(ap);
    tern_str_mask(line);
    tern_progress_hide();
    puts(line);
    free(line);
}

bool tern_cmd_color(int fd)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    return isatty(fd) && !(no && *no) && !(term && strcmp(term, "dumb") == 0);
}

/* The text may repeat bytes of a user's file. */
static int say(struct tern_err *err)
{
    tern_str_mask(err->text);
    tern_error("%s", err->text);
    return err->code ? (int)err->code : TERN_FAILED;
}

static int unknown_verb(const struct tern_cmd *cmd, const char *full_name, const char *verb)
{
    const char *names[64];
    size_t n = 0;

    for (const struct tern_cmd *const *v = cmd->verbs; *v && n + 1 < 64; v++)
        names[n++] = (*v)->name;
    names[n] = NULL;
    const char *near = tern_str_nearest(verb, names);
    tern_error("'%s' is not a verb%s%s%s See '%s -h'.", verb, near ? "; did you mean '" : "",
               near ? near : "", near ? "'?" : ".", full_name);
    return TERN_USAGE;
}

/* Data that did not reach stdout is a failure, unless its reader has closed the pipe (head). */
static int flush(int status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    if (errno != EPIPE)
        tern_error("cannot write to stdout: %s", strerror(errno));
    return status ? status : TERN_FAILED;
}

static int run(const struct tern_cmd *cmd, const char *full_name, int argc, char **argv)
{
    struct tern_err err = {0};
    int n_args = 0;

    if (cmd->verbs) {
        if (argc > 1 && argv[1][0] != '-') {
            for (const struct tern_cmd *const *v = cmd->verbs; *v; v++) {
                if (strcmp((*v)->name, argv[1]) == 0) {
                    char *sub = tern_strf("%s %s", full_name, argv[1]);
                    int rc = run(*v, sub, argc - 1, argv + 1);
                    free(sub);
                    return rc;
                }
            }
            return unknown_verb(cmd, full_name, argv[1]);
        }
        bool asked = argc > 1 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0);
        tern_opt_help(asked ? stdout : stderr, cmd, full_name, tern_cmd_columns());
        return asked ? flush(TERN_OK) : TERN_USAGE;
    }
    int rc = tern_opt_parse(cmd, full_name, argc, argv, &n_args, &err);
    if (rc < 0)
        return say(&err);
    if (rc > 0) {
        tern_opt_help(stdout, cmd, full_name, tern_cmd_columns());
        return flush(TERN_OK);
    }
    rc = cmd->run(n_args, argv + 1, &err);
    tern_progress_end();
    return flush(rc < 0 ? say(&err) : rc);
}

/* libfabric's PSM catches signals before main() and calls exit() in the handler.  A process that is
 * inside libfabric then waits for itself for ever, and a crash looks like an exit with 1.  An
 * ignored signal stays ignored. */
static void take_signals_back(void)
{
    static const int signals[] = {
        SIGHUP, SIGINT,  SIGTERM,
#ifndef __SANITIZE_ADDRESS__ /* the sanitizer reports these itself */
        SIGILL, SIGABRT, SIGBUS,  SIGFPE, SIGSEGV,
#endif
    };
    struct sigaction now;

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            signal(signals[i], SIG_DFL);
}

int tern_cmd_main(const struct tern_cmd *cmd, int argc, char **argv)
{
    char *full_name =
        strcmp(cmd->name, "tern") == 0 ? tern_strdup("tern") : tern_strf("tern %s", cmd->name);
    int rc = 0;

    take_signals_back();
    /* `tern ledger list | head`: end quietly, as other tools do. */
    signal(SIGPIPE, SIG_DFL);
    tern_log_name(full_name);
    if (argc > 1 && strcmp(argv[1], "--help-man") == 0)
        tern_opt_man(stdout, cmd, full_name);
    else if (argc > 1 && strcmp(argv[1], "--help-words") == 0)
        tern_opt_words(stdout, cmd, full_name);
    else
        rc = run(cmd, full_name, argc, argv);
    free(full_name);
    return rc;
}

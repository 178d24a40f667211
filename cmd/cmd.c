#include "cmd/cmd.h"

#include "core/base/log.h"
#include "core/base/str.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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

bool tern_cmd_color(int fd)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    return isatty(fd) && !(no && *no) && !(term && strcmp(term, "dumb") == 0);
}

static int say(const struct tern_err *err)
{
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
    tern_error("'%s' is not a verb%s%s%s. See '%s -h'.", verb, near ? "; did you mean '" : "",
               near ? near : "", near ? "'?" : "", full_name);
    return TERN_USAGE;
}

/* Data that did not reach stdout is a failure, unless nobody wanted it any more (head). */
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
    return flush(rc < 0 ? say(&err) : rc);
}

int tern_cmd_main(const struct tern_cmd *cmd, int argc, char **argv)
{
    char *full_name =
        strcmp(cmd->name, "tern") == 0 ? tern_strdup("tern") : tern_strf("tern %s", cmd->name);
    int rc = 0;

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

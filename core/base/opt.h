/* Options and commands as tables.  One row an option; the parser, `-h`, the man page and the
 * completion all come from the row, so they cannot disagree.
 *
 *     static struct tern_opt_list files;
 *     static bool json;
 *     static const struct tern_opt opts[] = {
 *         {"json", 0, TERN_OPT_FLAG, .to.flag = &json, .help = "print JSON"},
 *         {"out", 'o', TERN_OPT_TEXT, "FILE", .to.text = &out, .help = "write the set here"},
 *         {0},
 *     };
 *
 * A value comes from the command line, else from the row's environment variable, else `def`.
 */
#ifndef TERN_BASE_OPT_H
#define TERN_BASE_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/base/err.h"

enum tern_opt_kind {
    TERN_OPT_FLAG, /* no value; true when given */
    TERN_OPT_TEXT,
    TERN_OPT_INT, /* whole number, not negative */
    TERN_OPT_REAL,
    TERN_OPT_SIZE, /* bytes: 64K, 1MiB */
    TERN_OPT_LIST, /* text; may be given again, each adds one */
};

/* Values of a TERN_OPT_LIST row, in order; the texts belong to argv. */
struct tern_opt_list {
    const char *values[64];
    size_t n;
};

struct tern_opt {
    const char *name; /* long form without dashes; NULL ends the table */
    char letter;      /* short form, or 0 */
    enum tern_opt_kind kind;
    const char *arg; /* the value's name, with its unit: "SECONDS"; NULL for a flag */
    const char *def; /* default, as a user would type it; NULL for none */
    const char *env; /* declared in vars.h; NULL for none */
    const char *help;
    union {
        bool *flag;
        const char **text;
        int64_t *integer;
        double *real;
        uint64_t *bytes;
        struct tern_opt_list *list;
    } to;
};

struct tern_cmd {
    const char *name;                    /* "build" */
    const char *args;                    /* "FILE...", or NULL when it takes none */
    const char *summary;                 /* one line, no full stop */
    const char *about;                   /* a paragraph or more, or NULL */
    const char *examples;                /* lines as typed, or NULL */
    const struct tern_opt *opts;         /* or NULL */
    const struct tern_cmd *const *verbs; /* NULL-ended; or NULL for a command that runs */
    int args_min, args_max;              /* args_max -1: any number */
    bool args_raw; /* words behind the first argument are arguments, also with a dash */
    /* `args` are the arguments left over.  The exit status, or -1 with `err`. */
    int (*run)(int n_args, char **args, struct tern_err *err);
};

/* Parse argv[1..] (argv[0] is the verb's or program's name) against `cmd->opts`, and fill the
 * destinations.  The arguments left over move to argv[1] and on; *n_args counts them.  `--` ends
 * the options; a unique beginning of a long name will do.  1 when -h or --help was met. */
int tern_opt_parse(const struct tern_cmd *cmd, const char *full_name, int argc, char **argv,
                   int *n_args, struct tern_err *err);

/* `full_name` is the command as typed: "tern data build". */
void tern_opt_help(FILE *to, const struct tern_cmd *cmd, const char *full_name, int columns);
/* A man page (section 1) for `cmd` and all its verbs. */
void tern_opt_man(FILE *to, const struct tern_cmd *cmd, const char *full_name);
/* What stands near the end of every page: the files of `program` ("run"; "tern": all of them) and
 * the exit status. */
void tern_opt_man_end(FILE *to, const char *program);
struct tern_page;
/* The section FILES of a topic of help ("recipe"); nothing where its text has its own. */
void tern_opt_topic_files(struct tern_page *page, const char *topic);
/* Words for shell completion, one a line: "<full name>\t--option" or "<full name>\tverb". */
void tern_opt_words(FILE *to, const struct tern_cmd *cmd, const char *full_name);

#endif

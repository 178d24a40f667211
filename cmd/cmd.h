/* Shared by every program: dispatch over a table of verbs, help, the exit status.
 *
 * Adding a program `tern x`:
 *   1. cmd/x/main.c: a `struct tern_cmd` (core/base/opt.h) and `return tern_cmd_main(&cmd, ...)`;
 *   2. its line in the list of cmd/tern/main.c, and its files in core/base/opt_files.c;
 *   3. a test in tests/cli.
 * The Makefile finds the folder; the man page comes from the table.
 */
#ifndef TERN_CMD_CMD_H
#define TERN_CMD_CMD_H

#include "core/base/opt.h"

/* The body of main().  `cmd->name` is the program's noun: "data" for tern-data.  Prints the error,
 * if any, and returns the exit status.  `--help-man` and `--help-words` print the man page and the
 * completion words. */
int tern_cmd_main(const struct tern_cmd *cmd, int argc, char **argv);

/* "2026-11-21", "2026-11-21T05:04[:25]", "now-3days": as sacct(1)'s -S, in the local zone; and
 * "2026-11-21T05:04:25+00:00", as tern prints times. */
int tern_cmd_parse_time(const char *s, int64_t *wall_ns, struct tern_err *err);

/* Columns of the terminal on stdout; COLUMNS wins; 80 where there is no terminal. */
int tern_cmd_columns(void);
/* A line to stdout, safe on a terminal: names and paths come from other people's files. */
void tern_cmd_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* May stdout (`fd` 1) or stderr (2) carry colour?  NO_COLOR, TERM=dumb and isatty decide. */
bool tern_cmd_color(int fd);

#endif

/* Inside opt: a row of the table as text, for `-h` and for the man page. */
#ifndef TERN_BASE_OPT_ROW_H
#define TERN_BASE_OPT_ROW_H

#include "core/base/opt.h"

/* "tern data build [OPTION...] FILE..." */
void tern_opt_usage(FILE *to, const struct tern_cmd *cmd, const char *full_name);
/* "-o, --out FILE" into the `n` bytes at `to`; a row without a letter is indented by four. */
void tern_opt_left(char *to, size_t n, const struct tern_opt *o);
/* The help with default and environment variable; malloc'ed. */
char *tern_opt_help_text(const struct tern_opt *o);

struct tern_page;
/* The section FILES of a program's page ("run"; "tern": all of them). */
void tern_opt_program_files(struct tern_page *page, const char *program);

#endif

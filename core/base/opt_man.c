/* Man pages from the tables of options. */
#include "core/base/opt.h"

#include "core/base/opt_row.h"
#include "core/base/page.h"
#include "core/base/str.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void man_options(struct tern_page *page, const struct tern_cmd *cmd)
{
    char left[128];

    for (const struct tern_opt *o = cmd->opts; o && o->name; o++) {
        tern_opt_left(left, sizeof left, o);
        char *help = tern_opt_help_text(o);
        tern_page_item(page, left + strspn(left, " "), help);
        free(help);
    }
}

static void man_about(struct tern_page *page, const struct tern_cmd *cmd)
{
    if (cmd->about)
        tern_page_text(page, cmd->about);
}

static void add_usage(FILE *to, const struct tern_cmd *cmd, const char *full_name)
{
    if (!cmd->verbs) {
        tern_opt_usage(to, cmd, full_name);
        fputc('\n', to);
    }
    for (const struct tern_cmd *const *v = cmd->verbs; v && *v; v++) {
        char *sub = tern_strf("%s %s", full_name, (*v)->name);
        add_usage(to, *v, sub);
        free(sub);
    }
}

static void man_synopsis(struct tern_page *page, const struct tern_cmd *cmd, const char *full_name)
{
    char *usage = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&usage, &n);

    tern_page_heading(page, "SYNOPSIS");
    if (!f)
        return;
    add_usage(f, cmd, full_name);
    fclose(f);
    tern_page_code(page, usage);
    free(usage);
}

static void man_verb(struct tern_page *page, const struct tern_cmd *cmd, const char *full_name)
{
    char *heading =
        tern_strf("%s%s%s", full_name, cmd->args ? " " : "", cmd->args ? cmd->args : "");
    char *summary = tern_strf("%c%s.", toupper((unsigned char)cmd->summary[0]), cmd->summary + 1);

    tern_page_subheading(page, heading);
    tern_page_text(page, summary);
    man_about(page, cmd);
    man_options(page, cmd);
    for (const struct tern_cmd *const *v = cmd->verbs; v && *v; v++) {
        char *sub = tern_strf("%s %s", full_name, (*v)->name);
        man_verb(page, *v, sub);
        free(sub);
    }
    free(summary);
    free(heading);
}

/* Lines without the blanks that they begin with; malloc'ed. */
static char *without_indent(const char *lines)
{
    struct tern_buf b = {0};

    for (const char *s = lines + strspn(lines, " "); *s; s += strspn(s, " ")) {
        size_t n = strcspn(s, "\n");
        tern_buf_printf(&b, "%.*s\n", (int)n, s);
        s += n + (s[n] == '\n');
    }
    return b.data ? b.data : tern_strdup("");
}

/* The examples of `cmd` and of its verbs; how many commands had some. */
static int man_examples(struct tern_page *page, const struct tern_cmd *cmd)
{
    int n = 0;

    if (cmd->examples) {
        char *lines = without_indent(cmd->examples);
        tern_page_code(page, lines);
        free(lines);
        n++;
    }
    for (const struct tern_cmd *const *v = cmd->verbs; v && *v; v++)
        n += man_examples(page, *v);
    return n;
}

void tern_opt_man_end(FILE *to, const char *program)
{
    struct tern_page page = {.to = to};

    tern_opt_program_files(&page, program);
    tern_page_text(&page, "# EXIT STATUS\n"
                          "0 :: Done.\n"
                          "1 :: Failed; another try will not help.\n"
                          "2 :: Usage or bad input.\n"
                          "75 :: Failed for a reason outside the run: node, fabric or storage.\n"
                          "76 :: Stopped with a checkpoint, to be continued.\n"
                          "77 :: A person halted it, with a checkpoint.\n");
}

void tern_opt_man(FILE *to, const struct tern_cmd *cmd, const char *full_name)
{
    struct tern_page page = {.to = to};
    char *name = tern_strdup(full_name);

    for (char *s = name; *s; s++)
        if (*s == ' ')
            *s = '-';
    tern_page_title(&page, name, 1, cmd->summary);
    man_synopsis(&page, cmd, full_name);
    tern_page_heading(&page, "DESCRIPTION");
    tern_page_text(&page, cmd->about ? cmd->about : cmd->summary);
    if (cmd->verbs)
        tern_page_heading(&page, "VERBS");
    for (const struct tern_cmd *const *v = cmd->verbs; v && *v; v++) {
        char *sub = tern_strf("%s %s", full_name, (*v)->name);
        man_verb(&page, *v, sub);
        free(sub);
    }
    tern_page_heading(&page, "OPTIONS");
    if (cmd->verbs)
        tern_page_text(&page, "Each verb above has its own. All of them have:\n");
    man_options(&page, cmd);
    tern_page_item(&page, "-h, --help", "Print the usage and stop.");
    tern_page_heading(&page, "EXAMPLES");
    if (man_examples(&page, cmd) == 0) {
        char *help = tern_strf("%s -h\n", full_name);
        tern_page_code(&page, help);
        free(help);
    }
    tern_opt_man_end(to, cmd->name);
    tern_page_heading(&page, "SEE ALSO");
    fputs(".BR tern (1)\n", to);
    free(name);
}

#include "core/base/opt.h"

#include "core/base/opt_row.h"
#include "core/base/page.h"
#include "core/base/str.h"
#include "core/base/vars.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *kind_name(enum tern_opt_kind kind)
{
    switch (kind) {
    case TERN_OPT_INT:
        return "a whole number";
    case TERN_OPT_REAL:
        return "a number";
    case TERN_OPT_SIZE:
        return "a size such as 64K or 1MiB";
    default:
        return "a value";
    }
}

static int store(const struct tern_opt *o, const char *value, const char *from,
                 struct tern_err *err)
{
    int rc = 0;

    switch (o->kind) {
    case TERN_OPT_FLAG:
        *o->to.flag = true;
        break;
    case TERN_OPT_TEXT:
        *o->to.text = value;
        break;
    case TERN_OPT_INT:
        rc = tern_str_int(value, 0, INT64_MAX, o->to.integer);
        break;
    case TERN_OPT_REAL:
        rc = tern_str_real(value, -1e300, 1e300, o->to.real);
        break;
    case TERN_OPT_SIZE:
        rc = tern_str_size(value, o->to.bytes);
        break;
    case TERN_OPT_LIST:
        if (o->to.list->n == sizeof o->to.list->values / sizeof *o->to.list->values)
            return tern_err_set(err, TERN_USAGE, "%s: given more than %zu times", from,
                                o->to.list->n);
        o->to.list->values[o->to.list->n++] = value;
        break;
    }
    if (rc < 0)
        return tern_err_set(err, TERN_USAGE, "%s: '%s' is not %s", from, value, kind_name(o->kind));
    return 0;
}

static int defaults(const struct tern_cmd *cmd, struct tern_err *err)
{
    for (const struct tern_opt *o = cmd->opts; o && o->name; o++) {
        const char *env = o->env ? tern_var(o->env) : NULL;
        if (env ? store(o, env, o->env, err) < 0 : o->def && store(o, o->def, o->name, err) < 0)
            return -1;
    }
    return 0;
}

/* The row for `--name` (of `len` bytes); a unique beginning will do. */
static const struct tern_opt *find_long(const struct tern_cmd *cmd, const char *name, size_t len,
                                        const char *full_name, struct tern_err *err)
{
    const struct tern_opt *found = NULL;
    const char *names[128];
    size_t n = 0;

    for (const struct tern_opt *o = cmd->opts; o && o->name; o++) {
        if (n + 1 < sizeof names / sizeof *names)
            names[n++] = o->name;
        if (strncmp(o->name, name, len) != 0)
            continue;
        if (o->name[len] == '\0')
            return o;
        if (found) {
            tern_err_set(err, TERN_USAGE, "--%.*s: may be --%s or --%s", (int)len, name,
                         found->name, o->name);
            return NULL;
        }
        found = o;
    }
    if (!found) {
        names[n] = NULL;
        char *typed = tern_strf("%.*s", (int)len, name);
        const char *near = tern_str_nearest(typed, names);
        tern_err_set(err, TERN_USAGE, "--%s: no such option%s%s%s See '%s -h'.", typed,
                     near ? "; did you mean --" : "", near ? near : "", near ? "?" : ".",
                     full_name);
        free(typed);
    }
    return found;
}

static const struct tern_opt *find_letter(const struct tern_cmd *cmd, char c)
{
    for (const struct tern_opt *o = cmd->opts; o && o->name; o++)
        if (o->letter == c)
            return o;
    return NULL;
}

/* One argument that begins with a dash; *i is moved past a value it took. */
static int take(const struct tern_cmd *cmd, const char *full_name, int argc, char **argv, int *i,
                struct tern_err *err)
{
    const char *a = argv[*i];

    if (a[1] == '-') {
        const char *eq = strchr(a, '=');
        size_t len = eq ? (size_t)(eq - a - 2) : strlen(a + 2);
        const struct tern_opt *o = find_long(cmd, a + 2, len, full_name, err);
        if (!o)
            return -1;
        if (o->kind == TERN_OPT_FLAG && eq)
            return tern_err_set(err, TERN_USAGE, "--%s: takes no value", o->name);
        if (o->kind != TERN_OPT_FLAG && !eq && *i + 1 >= argc)
            return tern_err_set(err, TERN_USAGE, "--%s: needs %s (%s)", o->name, kind_name(o->kind),
                                o->arg);
        char from[72];
        snprintf(from, sizeof from, "--%s", o->name);
        return store(o, o->kind == TERN_OPT_FLAG ? NULL : eq ? eq + 1 : argv[++*i], from, err);
    }
    for (const char *c = a + 1; *c; c++) {
        const struct tern_opt *o = find_letter(cmd, *c);
        if (!o)
            return tern_err_set(err, TERN_USAGE, "-%c: no such option. See '%s -h'.", *c,
                                full_name);
        char from[] = {'-', *c, '\0'};
        if (o->kind == TERN_OPT_FLAG) {
            if (store(o, NULL, from, err) < 0)
                return -1;
            continue;
        }
        if (!c[1] && *i + 1 >= argc)
            return tern_err_set(err, TERN_USAGE, "-%c: needs %s (%s)", *c, kind_name(o->kind),
                                o->arg);
        return store(o, c[1] ? c + 1 : argv[++*i], from, err);
    }
    return 0;
}

int tern_opt_parse(const struct tern_cmd *cmd, const char *full_name, int argc, char **argv,
                   int *n_args, struct tern_err *err)
{
    bool options = true;
    int n = 0;

    if (defaults(cmd, err) < 0)
        return -1;
    for (int i = 1; i < argc; i++) {
        if (options && strcmp(argv[i], "--") == 0) {
            options = false;
        } else if (options && argv[i][0] == '-' && argv[i][1]) {
            if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0)
                return 1;
            if (take(cmd, full_name, argc, argv, &i, err) < 0)
                return -1;
        } else {
            argv[++n] = argv[i];
            if (cmd->args_raw)
                options = false;
        }
    }
    if (n < cmd->args_min)
        return tern_err_set(err, TERN_USAGE, "too few arguments (expected: %s). See '%s -h'.",
                            cmd->args ? cmd->args : "none", full_name);
    if (cmd->args_max >= 0 && n > cmd->args_max)
        return tern_err_set(err, TERN_USAGE, "'%s' is one argument too many. See '%s -h'.",
                            argv[cmd->args_max + 1], full_name);
    *n_args = n;
    return 0;
}

/* ------------------------------------------------------------------ texts from the table */

void tern_opt_usage(FILE *to, const struct tern_cmd *cmd, const char *full_name)
{
    fprintf(to, "%s%s%s%s%s", full_name, cmd->opts && cmd->opts->name ? " [OPTION...]" : "",
            cmd->verbs ? " VERB ..." : "", cmd->args ? " " : "", cmd->args ? cmd->args : "");
}

void tern_opt_left(char *to, size_t n, const struct tern_opt *o)
{
    char letter[8] = "    ";

    if (o->letter)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(to, n, "%s--%s%s%s", letter, o->name, o->arg ? " " : "", o->arg ? o->arg : "");
}

char *tern_opt_help_text(const struct tern_opt *o)
{
    return tern_strf("%s%s%s%s%s%s%s", o->help, o->def ? " [" : "", o->def ? o->def : "",
                     o->def ? "]" : "", o->env ? " (or " : "", o->env ? o->env : "",
                     o->env ? ")" : "");
}

void tern_opt_help(FILE *to, const struct tern_cmd *cmd, const char *full_name, int columns)
{
    enum { LEFT = 30 };
    char left[128];

    if (columns < 60 || columns > 100)
        columns = columns < 60 ? 60 : 100;
    fputs("usage: ", to);
    tern_opt_usage(to, cmd, full_name);
    fprintf(to, "\n\n%c%s.\n", toupper((unsigned char)cmd->summary[0]), cmd->summary + 1);
    if (cmd->about) {
        fputc('\n', to);
        tern_page_wrap(to, cmd->about, 0, columns, 0);
    }
    if (cmd->verbs) {
        fputs("\nverbs:\n", to);
        for (const struct tern_cmd *const *v = cmd->verbs; *v; v++) {
            int at = fprintf(to, "  %-14s", (*v)->name);
            tern_page_wrap(to, (*v)->summary, 18, columns, at);
        }
    }
    fputs("\noptions:\n", to);
    for (const struct tern_opt *o = cmd->opts; o && o->name; o++) {
        tern_opt_left(left, sizeof left, o);
        int at = fprintf(to, "  %s ", left);
        if (at > LEFT) {
            fputc('\n', to);
            at = 0;
        }
        char *help = tern_opt_help_text(o);
        tern_page_wrap(to, help, LEFT, columns, at);
        free(help);
    }
    int at = fprintf(to, "  -h, --help ");
    tern_page_wrap(to, "print this and stop", LEFT, columns, at);
    if (cmd->examples)
        fputs("\nexamples:\n", to);
    for (const char *s = cmd->examples; s && *s;) {
        s += strspn(s, " ");
        size_t line = strcspn(s, "\n");
        fprintf(to, "  %.*s\n", (int)line, s);
        s += line + (s[line] == '\n');
    }
}

void tern_opt_words(FILE *to, const struct tern_cmd *cmd, const char *full_name)
{
    for (const struct tern_opt *o = cmd->opts; o && o->name; o++)
        fprintf(to, "%s\t--%s\n", full_name, o->name);
    for (const struct tern_cmd *const *v = cmd->verbs; v && *v; v++) {
        char *sub = tern_strf("%s %s", full_name, (*v)->name);
        fprintf(to, "%s\t%s\n", full_name, (*v)->name);
        tern_opt_words(to, *v, sub);
        free(sub);
    }
}

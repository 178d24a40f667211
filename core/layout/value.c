#include "core/layout/value.h"

#include "core/base/str.h"

#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

bool tern_layout_matches(const char *pattern, const char *text)
{
    regex_t re;

    if (regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB) != 0)
        abort();
    bool found = regexec(&re, text, 0, NULL, 0) == 0;
    regfree(&re);
    return found;
}

/* The pattern holds for all of the text. */
static bool is(const char *pattern, const char *text)
{
    char *whole = tern_strf("^(%s)$", pattern);
    bool all = tern_layout_matches(whole, text);

    free(whole);
    return all;
}

static bool listed(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

static const char *const yes[] = {"yes",  "Yes", "YES", "true", "True",
                                  "TRUE", "on",  "On",  "ON",   NULL};
static const char *const no[] = {"no",    "No",  "NO",  "false", "False",
                                 "FALSE", "off", "Off", "OFF",   NULL};

/* YAML 1.1's numbers and dates (https://yaml.org/type/), as PyYAML has them. */
static const char integer[] = "[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?(0|[1-9][0-9_]*)|"
                              "[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+";
static const char real[] = "[-+]?[0-9][0-9_]*\\.[0-9_]*([eE][-+][0-9]+)?|"
                           "[-+]?\\.[0-9][0-9_]*([eE][-+][0-9]+)?|"
                           "[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\\.[0-9_]*|"
                           "[-+]?\\.(inf|Inf|INF)|\\.(nan|NaN|NAN)";
static const char date[] = "[0-9]{4}-[0-9][0-9]-[0-9][0-9]|[0-9]{4}-[0-9][0-9]?-[0-9][0-9]?"
                           "([Tt]|[ \t]+)[0-9][0-9]?:[0-9][0-9]:[0-9][0-9](\\.[0-9]*)?"
                           "([ \t]*(Z|[-+][0-9][0-9]?(:[0-9][0-9])?))?";

enum tern_layout_kind tern_layout_kind(const struct tern_yaml_node *n)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    const char *text = tern_yaml_text(n);

    if (!tern_yaml_is_plain(n))
        return TERN_LAYOUT_TEXT;
    if (listed(text, nulls))
        return TERN_LAYOUT_NULL;
    if (listed(text, yes) || listed(text, no))
        return TERN_LAYOUT_BOOL;
    if (strcmp(text, "=") == 0)
        return TERN_LAYOUT_EQUAL;
    if (!strchr("-+.0123456789", text[0]))
        return TERN_LAYOUT_TEXT;
    return is(integer, text) ? TERN_LAYOUT_INT
           : is(real, text)  ? TERN_LAYOUT_REAL
           : is(date, text)  ? TERN_LAYOUT_DATE
                             : TERN_LAYOUT_TEXT;
}

const char *tern_layout_kind_name(const struct tern_yaml_node *n)
{
    static const char *const names[] = {
        "nothing", "true or false", "a whole number", "a number", "a text", "a date", "'='"};

    if (tern_yaml_kind(n) != TERN_YAML_TEXT)
        return tern_yaml_kind(n) == TERN_YAML_MAP ? "a map (key: value)" : "a list";
    return names[tern_layout_kind(n)];
}

bool tern_layout_as_bool(const struct tern_yaml_node *n, bool *ret_value)
{
    static const char *const true_texts[] = {"t", "T", "y", "Y", "1", NULL};
    static const char *const false_texts[] = {"f", "F", "n", "N", "0", NULL};
    const char *text = n ? tern_yaml_text(n) : NULL;
    double number;

    if (!text)
        return false;
    if (tern_layout_kind(n) == TERN_LAYOUT_INT || tern_layout_kind(n) == TERN_LAYOUT_REAL) {
        if (!tern_layout_as_real(n, &number) || (number != 0 && number != 1))
            return false;
        *ret_value = number == 1;
        return true;
    }
    bool is_yes = listed(text, yes) || listed(text, true_texts);
    if (!is_yes && !listed(text, no) && !listed(text, false_texts))
        return false;
    *ret_value = is_yes;
    return true;
}

/* malloc'ed: the digits without the underscores between them. */
static char *without_underscores(const char *text)
{
    char *bare = tern_strdup(text), *to = bare;

    for (const char *s = text; *s; s++)
        if (*s != '_')
            *to++ = *s;
    *to = '\0';
    return bare;
}

/* A plain number of YAML 1.1: sign, base and parts of sixty. */
static double number(const char *text)
{
    char *bare = without_underscores(text);
    double value = 0;

    const char *digits = bare + (*bare == '-' || *bare == '+');
    if (*digits == '.' && strchr("iInN", digits[1]) && digits[1])
        value = strchr("nN", digits[1]) ? (double)NAN : (double)INFINITY;
    else if (strncmp(digits, "0b", 2) == 0)
        value = (double)strtoull(digits + 2, NULL, 2);
    else if (strncmp(digits, "0x", 2) == 0)
        value = (double)strtoull(digits + 2, NULL, 16);
    else if (digits[0] == '0' && !strpbrk(digits, ".:"))
        value = (double)strtoull(digits, NULL, 8);
    else
        for (const char *s = digits; s; s = strchr(s, ':') ? strchr(s, ':') + 1 : NULL)
            value = value * 60 + strtod(s, NULL);
    if (*bare == '-')
        value = -value;
    free(bare);
    return value;
}

/* A finite number: one by its kind, or a text of the form `text_form`. */
static bool read_number(const struct tern_yaml_node *n, const char *text_form, double *ret_value)
{
    const char *text = n ? tern_yaml_text(n) : NULL;
    double value;

    if (!text)
        return false;
    enum tern_layout_kind kind = tern_layout_kind(n);
    if (kind == TERN_LAYOUT_INT || kind == TERN_LAYOUT_REAL) {
        value = number(text);
    } else if (kind == TERN_LAYOUT_TEXT && is(text_form, text)) {
        char *bare = without_underscores(text);
        value = strtod(bare, NULL);
        free(bare);
    } else {
        return false;
    }
    if (!isfinite(value))
        return false;
    *ret_value = value;
    return true;
}

bool tern_layout_as_int(const struct tern_yaml_node *n, int64_t *ret_value, bool *ret_exact)
{
    double value;

    if (!read_number(n, "[ \t\n]*[-+]?[0-9]+(_[0-9]+)*[ \t\n]*", &value))
        return false;
    *ret_exact = value == trunc(value);
    *ret_value = value >= 0x1p63 ? INT64_MAX : value <= -0x1p63 ? INT64_MIN : (int64_t)value;
    return true;
}

bool tern_layout_as_real(const struct tern_yaml_node *n, double *ret_value)
{
    return read_number(n, "[ \t\n]*[-+]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][-+]?[0-9]+)?[ \t\n]*",
                       ret_value);
}

const char *tern_layout_as_text(const struct tern_yaml_node *n)
{
    const char *text = n ? tern_yaml_text(n) : NULL;

    return text && tern_layout_kind(n) == TERN_LAYOUT_TEXT ? text : NULL;
}

static const struct tern_yaml_node *of_kind(const struct tern_yaml_node *map, const char *key,
                                            enum tern_yaml_kind kind)
{
    const struct tern_yaml_node *n = tern_yaml_get(map, key);

    return n && tern_yaml_kind(n) == kind ? n : NULL;
}

const struct tern_yaml_node *tern_layout_map(const struct tern_yaml_node *map, const char *key)
{
    return of_kind(map, key, TERN_YAML_MAP);
}

const struct tern_yaml_node *tern_layout_list(const struct tern_yaml_node *map, const char *key)
{
    return of_kind(map, key, TERN_YAML_LIST);
}

const char *tern_layout_text(const struct tern_yaml_node *map, const char *key)
{
    return tern_layout_as_text(tern_yaml_get(map, key));
}

bool tern_layout_bool(const struct tern_yaml_node *map, const char *key, bool other)
{
    tern_layout_as_bool(tern_yaml_get(map, key), &other);
    return other;
}

int64_t tern_layout_int(const struct tern_yaml_node *map, const char *key, int64_t other)
{
    bool exact;

    tern_layout_as_int(tern_yaml_get(map, key), &other, &exact);
    return other;
}

size_t tern_layout_count(const struct tern_yaml_node *list)
{
    return list && tern_yaml_kind(list) == TERN_YAML_LIST ? tern_yaml_count(list) : 0;
}

size_t tern_layout_count_keys(const struct tern_yaml_node *map)
{
    return map && tern_yaml_kind(map) == TERN_YAML_MAP ? tern_yaml_count(map) : 0;
}

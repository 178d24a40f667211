/* Values from lines that a trainer prints, and the step that each belongs to. */
#include "core/base/str.h"
#include "core/intake/intake.h"
#include "core/intake/state.h"

#include <regex.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ values */

static uint64_t fingerprint(const struct tern_intake_metric *m)
{
    uint64_t h = 1469598103934665603u; /* FNV-1a */

    for (size_t k = 0; k < m->n; k++) {
        unsigned char bytes[sizeof(double)];
        memcpy(bytes, &m->values[k].value, sizeof bytes);
        for (size_t b = 0; b < sizeof bytes; b++)
            h = (h ^ bytes[b]) * 1099511628211u;
        for (const char *c = m->values[k].name; *c; c++)
            h = (h ^ (unsigned char)*c) * 1099511628211u;
    }
    return h ^ (uint64_t)m->step;
}

static void record_once(struct tern_intake *i, struct row *r, const struct tern_intake_metric *m)
{
    uint64_t h = fingerprint(m);

    if (h == r->seen)
        return;
    r->seen = h;
    tern_intake_record_or_warn(i, m);
}

void tern_intake_printed_add(struct tern_intake_metric *m, const char *name, const char *text)
{
    double v;

    size_t len = strlen(name);

    if (m->n == TERN_INTAKE_METRIC_VALUES || len > 200 ||
        !tern_intake_metric_name_is_good(name, len) || tern_intake_metric_parse_value(text, &v) < 0)
        return;
    m->values[m->n++] = (struct tern_ledger_value){.name = name, .value = v};
}

/* "00:10<01:30, 9.90it/s, v_num=0, train_loss=2.310, global_step=7.000": the names and values, and
 * the step if one of them is it.  tqdm shortens large numbers, which are then no step. */
static void add_pairs(struct tern_intake *i, char *text, int64_t *ret_step)
{
    struct {
        const char *name, *text;
    } pairs[SHOWN_MAX];
    size_t n = 0;
    char *at = NULL;
    int64_t step = -1;

    for (char *w = strtok_r(text, ", ", &at); w; w = strtok_r(NULL, ", ", &at)) {
        char *eq = strchr(w, '=');
        if (!eq || strncmp(w, "v_num=", 6) == 0)
            continue;
        *eq = '\0';
        if (strcmp(w, "global_step") != 0 && strcmp(w, "step") != 0) {
            pairs[n].name = w;
            pairs[n].text = eq + 1;
            n += n < SHOWN_MAX - 1;
            continue;
        }
        char *point = strchr(eq + 1, '.');
        if (point && strspn(point + 1, "0") == strlen(point + 1))
            *point = '\0';
        tern_str_int(eq + 1, 0, TERN_LEDGER_STEP_MAX, &step);
    }
    for (size_t k = 0; k < n; k++)
        if (tern_intake_shown_counts(i, step, pairs[k].name, pairs[k].text) || step < 0)
            tern_intake_printed_add(i->m, pairs[k].name, pairs[k].text);
    i->shown_step = step >= 0 ? step : i->shown_step;
    *ret_step = step;
}

/* The groups of a match become values, in i->words. */
static void groups(struct tern_intake *i, struct row *r, const char *line, const regmatch_t *match)
{
    struct tern_intake_metric *m = i->m;
    char *to = i->words;

    tern_intake_metric_clear(m);
    for (size_t k = 0; r->names[k]; k++) {
        const char *name = r->names[k];
        if (match[k + 1].rm_so < 0 || strcmp(name, "-") == 0)
            continue;
        size_t len = (size_t)(match[k + 1].rm_eo - match[k + 1].rm_so);
        char *text = to;
        if (to + len + 1 > i->words + LINE_MAX_BYTES)
            break; /* groups within groups */
        memcpy(text, line + match[k + 1].rm_so, len);
        text[len] = '\0';
        to += len + 1;
        if (strcmp(name, "step") == 0)
            tern_str_int(text, 0, TERN_LEDGER_STEP_MAX, &m->step);
        else if (strcmp(name, "@pairs") == 0)
            add_pairs(i, text, &m->step);
        else
            tern_intake_printed_add(m, name, text);
    }
    if (m->step >= 0)
        record_once(i, r, m);
    else if (m->n)
        i->left[r->kind == TERN_INTAKE_PATTERN_PAIRS ? LEFT_BAR : LEFT_PATTERN]++;
}

/* ------------------------------------------------------------------ a line */

static bool blank(const char *line)
{
    return line[strspn(line, " ")] == '\0';
}

void tern_intake_take_printed(struct tern_intake *i, const char *line, size_t len, bool whole)
{
    regmatch_t match[TERN_RECIPE_GROUPS + 1];

    if (len > LINE_MAX_BYTES)
        return;
    i->cleared |= whole && blank(line);
    for (size_t k = 0; k < i->n_rows; k++) {
        struct row *r = &i->rows[k];
        if ((!whole && !r->has_step) || (r->must && !strstr(line, r->must)) ||
            regexec(&r->regex, line, TERN_RECIPE_GROUPS + 1, match, 0) != 0)
            continue;
        if (r->kind == TERN_INTAKE_PATTERN_DICT)
            tern_intake_dicts_take(i, line);
        else if (r->kind == TERN_INTAKE_PATTERN_BAR)
            tern_intake_dicts_bar(i, line, strtoll(line + match[1].rm_so, NULL, 10),
                                  strtoll(line + match[2].rm_so, NULL, 10));
        else
            groups(i, r, line, match);
    }
}

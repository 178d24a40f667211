/* Values from lines that a trainer prints, and the step that each belongs to. */
#include "core/base/str.h"
#include "core/intake/intake.h"
#include "core/intake/state.h"

#include <regex.h>
#include <stdio.h>
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

static void add_value(struct tern_intake_metric *m, const char *name, const char *text)
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
static void add_pairs(struct tern_intake_metric *m, char *text, int64_t *step)
{
    char *at = NULL;

    *step = -1;
    for (char *w = strtok_r(text, ", ", &at); w; w = strtok_r(NULL, ", ", &at)) {
        char *eq = strchr(w, '=');
        if (!eq || strncmp(w, "v_num=", 6) == 0)
            continue;
        *eq = '\0';
        if (strcmp(w, "global_step") != 0 && strcmp(w, "step") != 0) {
            add_value(m, w, eq + 1);
            continue;
        }
        char *point = strchr(eq + 1, '.');
        if (point && strspn(point + 1, "0") == strlen(point + 1))
            *point = '\0';
        tern_str_int(eq + 1, 0, TERN_LEDGER_STEP_MAX, step);
    }
}

/* The dict's 'name': value and 'name': 'value'. */
static void add_dict(struct tern_intake_metric *m, char *text)
{
    for (char *name = strchr(text, '\''); name; name = strchr(text, '\'')) {
        char *end = strchr(++name, '\'');
        if (!end)
            return;
        *end = '\0';
        text = end + 1;
        if (*text != ':')
            continue;
        text += 1 + strspn(text + 1, " ");
        char *value = text + (*text == '\'');
        text = value + strcspn(value, "',}");
        if (!*text)
            return;
        *text++ = '\0';
        add_value(m, name, value);
    }
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
            add_pairs(m, text, &m->step);
        else
            add_value(m, name, text);
    }
    if (m->step >= 0)
        record_once(i, r, m);
    else if (m->n)
        i->left[r->kind == TERN_INTAKE_PATTERN_PAIRS ? LEFT_BAR : LEFT_PATTERN]++;
}

/* ------------------------------------------------------------------ Hugging Face's dicts and bar
 */

void tern_intake_printed_forget(struct tern_intake *i, size_t n)
{
    for (size_t k = 0; k < n; k++)
        free(i->dicts[k].line);
    i->n_dicts -= n;
    memmove(i->dicts, i->dicts + n, i->n_dicts * sizeof *i->dicts);
}

/* The bar was cleared, a line was printed and the bar is drawn again, at `step`.  When only the
 * trainer prints, each such redraw belongs to one dict of values, in order.  Other lines may be
 * printed so, too, and dicts without a redraw: equal epochs are one step, different ones are not.
 */
static void place_dicts(struct tern_intake *i, int64_t step)
{
    struct dict *d = i->dicts;
    size_t n = 1, known = strcmp(d->epoch, i->epoch) == 0;

    while (n < i->n_dicts && strcmp(d[n].epoch, d->epoch) == 0)
        n++;
    if (step == i->step && i->epoch[0] && !known)
        return; /* again of the last step */
    if (step != i->step && known &&
        n < i->n_dicts) { /* printed after their redraw: they have their step */
        tern_intake_printed_forget(i, n);
        place_dicts(i, step);
        return;
    }
    snprintf(i->epoch, sizeof i->epoch, "%s", d->epoch);
    i->step = step;
    for (size_t k = 0; k < n; k++) {
        tern_intake_metric_clear(i->m);
        i->m->step = step;
        add_dict(i->m, d[k].line);
        /* A bar at 0 may be of a run that begins or of one that resumes. */
        if (step > 0)
            tern_intake_record_or_warn(i, i->m);
        else
            i->left[LEFT_DICT]++;
    }
    tern_intake_printed_forget(i, n);
}

static void bar(struct tern_intake *i, const char *line, const regmatch_t *match)
{
    int64_t step = strtoll(line + match[1].rm_so, NULL, 10);
    int64_t total = strtoll(line + match[2].rm_so, NULL, 10);

    if (strstr(line, "\033[A")) /* the bar of an evaluation, below the one of training */
        return;
    /* The bar of training comes first, unless another bar has ended before it. */
    if (i->bar_total < 0 || (!i->trained && i->bar_step == i->bar_total))
        i->bar_total = total;
    if (total != i->bar_total)
        return;
    i->bar_step = step;
    if (i->cleared && i->n_dicts)
        place_dicts(i, step);
    i->cleared = false;
}

void tern_intake_printed_give_up(struct tern_intake *i)
{
    i->left[LEFT_DICT] += strcmp(i->dicts[0].epoch, i->epoch) != 0;
    tern_intake_printed_forget(i, 1);
}

/* Only a dict with an epoch comes from Trainer. */
static void dict(struct tern_intake *i, int64_t wall_ns, const char *line)
{
    const char *epoch = strstr(line, "'epoch': ");

    if (!epoch)
        return;
    i->trained |= !strstr(line, "'eval_");
    if (i->n_dicts == DICTS_MAX)
        tern_intake_printed_give_up(i);
    struct dict *d = &i->dicts[i->n_dicts++];
    *d = (struct dict){.line = tern_strdup(line), .wall_ns = wall_ns};
    epoch += strlen("'epoch': ");
    snprintf(d->epoch, sizeof d->epoch, "%.4g", strtod(epoch + (*epoch == '\''), NULL));
}

/* ------------------------------------------------------------------ a line */

static bool blank(const char *line)
{
    return line[strspn(line, " ")] == '\0';
}

void tern_intake_take_printed(struct tern_intake *i, int64_t wall_ns, const char *line, size_t len,
                              bool whole)
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
            dict(i, wall_ns, line);
        else if (r->kind == TERN_INTAKE_PATTERN_BAR)
            bar(i, line, match);
        else
            groups(i, r, line, match);
    }
}

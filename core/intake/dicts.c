/* Hugging Face's dicts of values, and the progress bar that gives their steps.
 *
 * For each dict, tqdm.write clears the bar on stderr, prints the dict on stdout and draws the bar
 * again.  tern-task passes on stdout before stderr, so a dict comes before its redraw.  The n-th
 * dict belongs to the n-th redraw, however late both are read.
 *
 * A redraw without a dict shows that stdout is later than stderr.  stdout then goes through a
 * buffer or another program (tee, awk).  The first late dict is always seen in this way, since the
 * dicts before it had their redraws.  From then on no step is certain.
 */
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/intake/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t second = 1000000000;

enum { PATIENCE_S = 5 }; /* a trainer redraws its bar at once, unless its node is very busy */

void tern_intake_dicts_forget(struct tern_intake *i, size_t n)
{
    for (size_t k = 0; k < n; k++)
        free(i->dicts[k].line);
    i->n_dicts -= n;
    memmove(i->dicts, i->dicts + n, i->n_dicts * sizeof *i->dicts);
}

/* Count `n` dicts whose step is not known. */
static void leave(struct tern_intake *i, size_t n)
{
    const bool no_bar = i->bar_step < 0;

    if (n && !no_bar && i->left[LEFT_LATE] == 0 && !i->counts)
        tern_warn("rank %" PRId64 ": workload.metrics: hf: values and the progress bar come "
                  "apart: from here on the steps of values are not known, and they are left out",
                  i->rank);
    i->left[no_bar ? LEFT_DICT : LEFT_LATE] += n;
}

void tern_intake_dicts_stop(struct tern_intake *i)
{
    i->stopped = true;
    leave(i, i->n_dicts);
    tern_intake_dicts_forget(i, i->n_dicts);
    i->n_steps = 0;
}

/* ------------------------------------------------------------------ dicts */

/* The dict's 'name': value and 'name': 'value'; the bytes of `text` are changed. */
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
        tern_intake_printed_add(m, name, value);
    }
}

/* Is the dict in i->m printed once more, by a callback?  Then it has values of the newest dict, the
 * same in four digits (as ProgressCallback has them), and no other value of its names. */
static bool repeats(const struct tern_intake *i)
{
    size_t shared = 0;

    for (size_t k = 0; i->newest && k < i->m->n; k++) {
        const struct tern_ledger_value *v = &i->m->values[k];
        char *key = tern_strf("\n%s=", v->name), *pair = tern_strf("%s%.4g\n", key, v->value);
        bool has = strstr(i->newest, key) != NULL, same = strstr(i->newest, pair) != NULL;
        free(key);
        free(pair);
        if (has && !same)
            return false;
        shared += has && strcmp(v->name, "epoch") != 0;
    }
    return shared > 0;
}

static void note_newest(struct tern_intake *i)
{
    struct tern_buf b = {0};

    tern_buf_puts(&b, "\n");
    for (size_t k = 0; k < i->m->n; k++)
        tern_buf_printf(&b, "%s=%.4g\n", i->m->values[k].name, i->m->values[k].value);
    free(i->newest);
    i->newest = b.data;
}

void tern_intake_dicts_take(struct tern_intake *i, const char *line)
{
    char *copy;

    if (!strstr(line, "'epoch': ")) /* only a dict with an epoch comes from Trainer */
        return;
    i->trained |= !strstr(line, "'eval_");
    copy = tern_strdup(line);
    tern_intake_metric_clear(i->m);
    add_dict(i->m, copy);
    bool again = repeats(i);
    if (!again)
        note_newest(i);
    free(copy);
    if (again)
        return;
    if (i->n_dicts == DICTS_MAX)
        tern_intake_dicts_stop(i);
    if (i->stopped)
        leave(i, 1);
    else
        i->dicts[i->n_dicts++] = (struct dict){.line = tern_strdup(line), .at_ns = i->clock_ns};
}

/* ------------------------------------------------------------------ the bar */

/* Each dict that waits has its redraw. */
static void place(struct tern_intake *i)
{
    for (size_t k = 0; k < i->n_dicts; k++) {
        tern_intake_metric_clear(i->m);
        i->m->step = i->steps[k];
        add_dict(i->m, i->dicts[k].line);
        /* A bar at 0 may be of a run that begins or of one that resumes. */
        if (i->steps[k] > 0)
            tern_intake_record_or_warn(i, i->m);
        else
            i->left[LEFT_DICT]++;
    }
    tern_intake_dicts_forget(i, i->n_dicts);
    i->n_steps = 0;
}

void tern_intake_dicts_bar(struct tern_intake *i, const char *line, int64_t step, int64_t total)
{
    bool first = i->bar_total < 0 || step < i->bar_step; /* drawn for the first time */

    if (strstr(line, "\033[A")) /* the bar of an evaluation, below the one of training */
        return;
    /* The bar of training comes first, unless another bar has ended before it. */
    if (i->bar_total < 0 || (!i->trained && i->bar_step == i->bar_total)) {
        first |= total != i->bar_total;
        i->bar_total = total;
    }
    if (total != i->bar_total)
        return;
    i->bar_step = step;
    if (i->cleared && !first && !i->stopped) {
        if (i->n_dicts > i->n_steps)
            i->steps[i->n_steps++] = step;
        else
            tern_intake_dicts_stop(i);
        if (i->n_dicts == i->n_steps)
            place(i);
    }
    i->cleared = false;
}

/* ------------------------------------------------------------------ time */

/* Only the time between two ticks counts, a short one: this process may have been stopped. */
void tern_intake_dicts_tick(struct tern_intake *i, int64_t now_ns, int end)
{
    int64_t gap = now_ns - i->ticked_ns;

    i->clock_ns += gap < 0 ? 0 : gap < second / 4 ? gap : second / 4;
    i->ticked_ns = now_ns;
    while (i->n_dicts && (end || i->clock_ns - i->dicts[0].at_ns >= PATIENCE_S * second)) {
        if (i->n_steps) { /* a dict too many: which one is not known */
            tern_intake_dicts_stop(i);
            return;
        }
        i->left[LEFT_DICT]++;
        tern_intake_dicts_forget(i, 1);
    }
}

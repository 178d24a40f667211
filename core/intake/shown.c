/* Values that Lightning's bar shows beside global_step, and whether they are of that step.
 *
 * The bar shows what was logged last under each name.  A name that training_step logs is as new as
 * the step.  One that a validation or the end of an epoch logs is shown on, for a whole epoch.
 * LightningModule's on_train_epoch_end comes after the last bar of its epoch: what it logs is first
 * shown with the next step.  So a value counts when its text has changed, and either
 *
 *     the step has not: it was logged since the last bar, at this step; or
 *     its name was in the first bar that had a step, as names that training_step logs are.  Where
 *     bars leave out steps (refresh_rate), it must have changed at the bar before, too.
 */
#include "core/base/str.h"
#include "core/intake/state.h"

#include <stdlib.h>
#include <string.h>

/* NULL: there are too many. */
static struct shown *find(struct tern_intake *i, int64_t step, const char *name)
{
    for (size_t k = 0; k < i->n_shown; k++)
        if (strcmp(i->shown[k].name, name) == 0)
            return &i->shown[k];
    if (i->n_shown == SHOWN_MAX)
        return NULL;
    struct shown *s = &i->shown[i->n_shown++];
    *s = (struct shown){.name = tern_strdup(name), .from_start = step >= 0 && i->shown_step < 0};
    return s;
}

bool tern_intake_shown_counts(struct tern_intake *i, int64_t step, const char *name,
                              const char *text)
{
    const bool begins = i->shown_step < 0, moved = step != i->shown_step;
    const bool leaves_out = !begins && step - i->shown_step != 1;
    struct shown *s = find(i, step, name);

    if (!s)
        return false;
    const bool changed = !s->text || strcmp(s->text, text) != 0;
    const bool counts =
        step >= 0 && changed && (!moved || (s->from_start && (begins || !leaves_out || !s->stale)));
    if (changed) {
        free(s->text);
        s->text = tern_strdup(text);
    }
    if (moved)
        s->stale = !changed;
    if (step >= 0 && changed && !counts)
        i->left[LEFT_SHOWN]++;
    return counts;
}

void tern_intake_shown_free(struct tern_intake *i)
{
    for (size_t k = 0; k < i->n_shown; k++) {
        free(i->shown[k].name);
        free(i->shown[k].text);
    }
    i->n_shown = 0;
}

#include "core/task/left.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"

struct counter {
    struct tern_intake *intake;
    struct tern_logs_lines lines[TERN_TASK_FEED_STREAMS];
    uint64_t skip; /* lines of the piece at hand that are recorded, or counted already */
    uint64_t lost; /* lines whose bytes were dropped */
    bool later;    /* the first piece is behind */
};

static size_t index_of(char stream)
{
    return (size_t)(strchr(TERN_TASK_FEED_NAMES, stream) - TERN_TASK_FEED_NAMES);
}

static bool skips(struct counter *c)
{
    if (c->skip == 0)
        return false;
    c->skip--;
    return true;
}

/* As the task's own thread reads a line of stdout or stderr. */
static void take_line(void *self, int64_t wall_ns, char stream, const char *text, size_t len,
                      bool whole)
{
    struct counter *c = self;

    (void)wall_ns;
    if (stream != 'm' && !(whole && skips(c)))
        tern_intake_take_printed(c->intake, text, len, whole);
}

/* Likewise of the descriptor for metrics. */
static void take_words(void *self, int64_t wall_ns, char stream, char mark, const char *text,
                       size_t len)
{
    struct counter *c = self;

    (void)wall_ns;
    if (stream != 'm')
        return;
    const struct tern_logs_lines *lines = &c->lines[index_of('m')];
    if (lines->missing && mark == ' ')
        c->lost++;
    if (lines->missing || lines->broken || skips(c) || mark != ' ')
        return;
    char *line = strndup(text, len);
    if (line)
        tern_intake_take_metrics(c->intake, line, len);
    free(line);
}

static void take(void *self, int64_t wall_ns, char stream, const char *data, size_t len)
{
    struct counter *c = self;

    if (c->later)
        c->skip = 0;
    c->later = true;
    tern_logs_lines_take(&c->lines[index_of(stream)], wall_ns, data, len);
}

static void lose(void *self, char stream, uint64_t lines, bool inside)
{
    struct counter *c = self;

    tern_logs_lines_gap(&c->lines[index_of(stream)], inside);
    if (stream == 'm')
        c->lost += lines;
}

/* Lines whose beginning the other thread has; where it is busy with the stream, it works on them.
 */
static void begin_lines(struct counter *c, const struct tern_task_left *from)
{
    for (size_t i = 0; i < TERN_TASK_FEED_STREAMS; i++) {
        const char stream = TERN_TASK_FEED_NAMES[i];
        const struct tern_logs_lines *there = &from->lines[i];
        c->lines[i].stream = stream;
        c->lines[i].to =
            (struct tern_logs_lines_to){c, take_words, stream == 'm' ? NULL : take_line};
        if (stream != from->stream && there->text && there->len)
            tern_logs_lines_take(&c->lines[i], there->wall_ns, there->text, there->len);
    }
}

struct tern_ledger_lost tern_task_left_count(struct tern_task_feed *f,
                                             const struct tern_task_left *from)
{
    struct tern_err err = {0};
    struct tern_ledger_lost all = {0}, counted;
    struct counter c = {.skip = from->begun,
                        .intake = tern_intake_open_counter(from->rank, from->metrics, &err)};
    const struct tern_task_feed_taker to = {.self = &c, .take = take, .lost = lose};

    tern_ledger_unwritten_join(&from->unwritten->waiting, &all);
    tern_ledger_unwritten_join(&from->unwritten->at_hand, &all);
    tern_ledger_lost_join(&all, atomic_load(&from->unwritten->lost), -1, -1);
    if (!c.intake) {
        tern_warn("%s", err.text);
        return all;
    }
    begin_lines(&c, from);
    tern_task_feed_leave(f, &to);
    for (size_t i = 0; i < TERN_TASK_FEED_STREAMS; i++) {
        tern_logs_lines_idle(&c.lines[i], /* now_ns= */ 0, true);
        tern_logs_lines_free(&c.lines[i]);
    }
    tern_intake_tick(c.intake, /* now_ns= */ 0, true);
    counted = tern_intake_counted(c.intake);
    tern_ledger_lost_join(&all, counted.n, counted.first, counted.last);
    tern_ledger_lost_join(&all, c.lost, -1, -1);
    tern_intake_close(c.intake);
    return all;
}

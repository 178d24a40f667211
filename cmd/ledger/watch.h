/* tern ledger watch: a run on the whole screen of a terminal, while it goes on.
 *
 *     watch.c         the command: reads the ledger, takes keys, puts the frame together
 *     watch_panes.c   what the panes show, as lines of text
 *     watch_screen.c  the frame, and the terminal: its modes, signals, keys, the lines that changed
 */
#ifndef TERN_CMD_LEDGER_WATCH_H
#define TERN_CMD_LEDGER_WATCH_H

#include "cmd/ledger/show.h"

/* ---- the terminal (watch_screen.c) ---- */

enum { WATCH_ROWS_MAX = 500, WATCH_COLUMNS_MAX = 300 };

/* Lines from the top of the screen. */
struct watch_frame {
    int columns, rows; /* at most the two above */
    bool utf8, color;
    int n;
    char *lines[WATCH_ROWS_MAX];
};

/* Begin anew: no lines, and a size that is in its bounds. */
void watch_frame_begin(struct watch_frame *f, int columns, int rows);
/* Add the first `len` bytes of `text` as a line; beyond the last row it is left out.  It is cut,
 * with a '+', where the frame ends.  Bytes that are not safe on a terminal become '?'; so do
 * characters that are not ASCII where the locale has no UTF-8.  Colours (ESC [ ... m) stay where
 * the frame has colour. */
void watch_frame_add(struct watch_frame *f, const char *text, size_t len);
void watch_frame_free(struct watch_frame *f);

/* Are stdout and the keys' side of it a terminal that can be drawn on? */
bool watch_screen_can(void);
/* Take the terminal: its other screen, without echo, each key at once.  It is given back by
 * watch_screen_close, at exit, before the process stops or is ended by a signal, and when it
 * crashes. Messages of the log are kept back until then. */
int watch_screen_open(struct tern_err *err);
void watch_screen_close(void);
/* As the terminal tells it; 80 by 24 where it does not. */
void watch_screen_size(int *ret_columns, int *ret_rows);
/* Send the lines that are not on the screen yet, by one write; nothing where none changed. */
int watch_screen_draw(const struct watch_frame *f, struct tern_err *err);
/* The whole screen is sent again by the next draw. */
void watch_screen_again(void);

enum watch_key {                      /* a character is itself */
                 WATCH_KEY_NONE = -1, /* none came in time */
                 WATCH_KEY_REDRAW =
                     -2,             /* the terminal has another size, or came back from a stop */
                 WATCH_KEY_END = -3, /* the terminal is gone */
                 WATCH_KEY_OTHER = -4,
                 WATCH_KEY_UP = 0x100,
                 WATCH_KEY_DOWN,
                 WATCH_KEY_LEFT,
                 WATCH_KEY_RIGHT,
                 WATCH_KEY_PAGE_UP,
                 WATCH_KEY_PAGE_DOWN,
                 WATCH_KEY_HOME,
                 WATCH_KEY_LAST,
                 WATCH_KEY_BACK_TAB,
                 WATCH_KEY_ESCAPE,
};
/* Wait at most `seconds` for a key. */
int watch_screen_key(double seconds);

/* ---- the panes (watch_panes.c) ---- */

enum watch_pane {
    WATCH_CURVES,
    WATCH_PHASES,
    WATCH_RANKS,
    WATCH_EVENTS,
    WATCH_CHECKPOINTS,
    WATCH_PANES
};

/* The newest view of the run. */
struct watch_run {
    struct tern_ledger *ledger;
    struct tern_ledger_rows runs, attempts, checkpoints, evals, events, metrics;
    const struct tern_ledger_run *run; /* NULL: it has no record yet */
    const char *state;                 /* as tern ledger list has it */
};

struct watch_place {
    int columns, rows;
    bool utf8, color;
    size_t metric; /* of the curves: 0 loss and held-out sets, then one of the others each */
    bool log_y;
};

/* Metrics that curves can show one by one: none of a single rank, a training set or a spread. */
size_t watch_metrics(const struct watch_run *r);
/* The name of the `which`-th of them, from 1, of the ledger's memory; NULL: there is none. */
const char *watch_metric_name(const struct watch_run *r, size_t which);
/* Its number, from 1; 0: there is none of that name (or `name` is NULL). */
size_t watch_metric_number(const struct watch_run *r, const char *name);
/* Add the lines of a pane, each at most as wide as the place; pictures as high as it. */
int watch_pane(struct tern_buf *to, enum watch_pane pane, const struct watch_run *r,
               const struct watch_place *p, struct tern_err *err);

#endif

/* A page of HTML that holds its data, style and script, and asks no network for anything.
 *
 *     struct tern_report_page *p = tern_report_page_open(fd, name, title, err);
 *     tern_report_page_data(p, "run", j, err);          as often as there are runs
 *     tern_report_page_close(p, err);
 *
 * Each call of tern_report_page_data writes one <script type="application/json" class="KIND">,
 * which the page's own script (page.js, plot.js) reads.  So the page is written as it comes, and no
 * more than one piece of data lies in memory.  Browsers run no script but that one: the page's
 * policy has its SHA-256.
 *
 * The page's files (page.html, page.css, plot.js, page.js) lie beside this header, and are in the
 * program; page.html tells what stands for what.
 */
#ifndef TERN_REPORT_PAGE_H
#define TERN_REPORT_PAGE_H

#include "core/base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tern_report_page;

/* Writes the page's beginning to `fd`, which stays the caller's; `name` is the file's, for
 * messages. `title` may be any text: it is escaped, and characters that are unsafe in a line are
 * masked. */
struct tern_report_page *tern_report_page_open(int fd, const char *name, const char *title,
                                               struct tern_err *err);
/* A page that may ask the server it came from for data. One of kind "live" (every: seconds) has it
 * ask for `data` and `list`, beside the page (tern ledger serve). */
struct tern_report_page *tern_report_page_open_live(int fd, const char *name, const char *title,
                                                    struct tern_err *err);
/* `kind` is a word of letters; `j` is released, and may be NULL (then nothing fits in memory).
 * Numbers have nine digits. */
int tern_report_page_data(struct tern_report_page *p, const char *kind, json_t *j,
                          struct tern_err *err);
/* Writes the end and frees, also after a failure; -1 where any byte was not written.  With `err`
 * NULL: gives the page up. */
int tern_report_page_close(struct tern_report_page *p, struct tern_err *err);
/* Bytes so far. */
uint64_t tern_report_page_size(const struct tern_report_page *p);

/* Was the file at `path` written by this room?  Also true where there is none. */
bool tern_report_page_is(const char *path);

/* A curve of at most `most` points.  One that has more becomes most / 2 parts of equal width in x,
 * which is still more than a picture has columns.  Of the points of a part, low and high are the
 * least and greatest finite y, value is their mean (NaN: none is finite).  x is the last one's, and
 * class is the greatest: 0 finite, 1 NaN, 2 Infinity, 3 -Infinity. */
struct tern_report_thin {
    size_t n;
    double *x, *value, *low, *high;
    uint32_t *count; /* of points */
    uint8_t *class;
};
/* x does not decrease, and is finite.  Free with tern_report_thin_free; start from {0}. */
int tern_report_thin(const double *x, const double *y, size_t n, size_t most,
                     struct tern_report_thin *ret_thin, struct tern_err *err);
void tern_report_thin_free(struct tern_report_thin *t);

#endif

/* tern ledger report: runs as a page of HTML. */
#include "cmd/ledger/report.h"

#include "core/base/fs.h"
#include "core/base/progress.h"
#include "core/report/page.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *path, *baseline;

static int put_run(struct report_runs *r, size_t i, struct tern_report_page *page,
                   struct tern_err *err)
{
    json_t *j = NULL;

    if (report_runs_read(r, i, &j, err) < 0)
        return -1;
    tern_progress_add(1);
    return tern_report_page_data(page, "run", j, err);
}

static int write_page(struct report_runs *r, int fd, const char *name, const char *title,
                      uint64_t *ret_bytes, struct tern_err *err)
{
    struct tern_report_page *page = tern_report_page_open(fd, name, title, err);

    if (!page)
        return -1;
    int rc = 0;
    for (size_t i = 0; i < r->n && rc == 0; i++)
        rc = put_run(r, i, page, err);
    if (rc == 0)
        rc = tern_report_page_data(page, "page", report_runs_page(r), err);
    const uint64_t bytes = tern_report_page_size(page);
    if (tern_report_page_close(page, rc == 0 ? err : NULL) < 0)
        rc = -1;
    if (rc == 0)
        *ret_bytes = bytes;
    return rc;
}

/* NAME.html, in which a name is a file's; malloc'ed. */
static char *file_of(const char *name)
{
    char *file = tern_strf("%s.html", *name ? name : "run");

    for (char *s = file; *s; s++)
        if (!isalnum((unsigned char)*s) && (!strchr("-_.", *s) || (s == file && *s != '_')))
            *s = '_';
    return file;
}

static int write_file(struct report_runs *r, const char *to, const char *title,
                      struct tern_err *err)
{
    enum { MODE = 0644 }; /* as other outputs */
    struct tern_fs_new f;
    uint64_t bytes = 0;
    char text[32];

    if (tern_fs_check_out(to, err) < 0)
        return -1;
    if (!tern_report_page_is(to))
        return tern_err_set(err, TERN_USAGE,
                            "%s: exists and is no page of tern ledger report; it is left as it "
                            "is. Name another file with -o.",
                            to);
    if (tern_fs_new_open(&f, to, MODE, err) < 0)
        return -1;
    tern_progress_begin("runs", "%s", to);
    tern_progress_expect(r->n);
    int rc = write_page(r, f.fd, to, title, &bytes, err);
    tern_progress_end();
    if (rc < 0) {
        tern_fs_new_abort(&f);
        return -1;
    }
    if (tern_fs_new_commit(&f, err) < 0)
        return -1;
    char *clean = tern_strdup(to);
    tern_str_mask(clean);
    printf("%s: %s\n", clean, tern_str_bytes(text, sizeof text, bytes));
    free(clean);
    return 0;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    struct report_runs r = {0};
    char *title = NULL, *name = NULL;
    double usd_hour;
    uint64_t bytes = 0;
    int rc = -1;

    if (show_need_ledger(err) < 0 || show_price(&usd_hour, err) < 0 ||
        report_runs_open(&r, n_args, args, baseline, usd_hour, err) < 0)
        return -1;
    if (report_runs_title(&r, &title, &name, err) < 0)
        goto out;
    char *own = path ? NULL : file_of(name);
    const char *to = path ? path : own;
    rc = strcmp(to, "-") == 0 ? write_page(&r, STDOUT_FILENO, "stdout", title, &bytes, err)
                              : write_file(&r, to, title, err);
    free(own);
out:
    report_runs_close(&r);
    free(title);
    free(name);
    return rc;
}

static const struct tern_opt opts[] = {
    SHOW_OPT_LEDGER,
    {"out", 'o', TERN_OPT_TEXT, "FILE", .to.text = &path,
     .help = "write the page there, - for stdout (default: NAME.html of the first run)"},
    {"baseline", 0, TERN_OPT_TEXT, "RUN", .to.text = &baseline,
     .help = "also this run: its newest perplexities are lines to compare with"},
    SHOW_OPT_PRICE,
    {0},
};

const struct tern_cmd ledger_report = {
    .name = "report",
    .args = "[RUN...]",
    .summary = "write runs as a page of HTML: curves, attempts, checkpoints, cost",
    .about = "The page is one file that any browser shows, without a network. It has perplexities "
             "of held-out sets against tokens, steps, time and cost, and losses, with a "
             "logarithmic axis and smoothing. It has tokens a second and the phases of a step, and "
             "attempts, nodes and causes of failures in time. It has checkpoints, the data mix as "
             "planned and as it was, goodput and cost, and differences of recipes. Superseded "
             "values are left out. Point at a curve for its values, drag to zoom, double-click to "
             "return; a click on a run's name hides it. A curve of more than 2,000 points is drawn "
             "as 1,000 means, with the least and greatest value of each. A file that exists is "
             "replaced only if it is such a page. Without RUN: the newest run.",
    .examples = "  tern ledger report pubmed-cpt\n"
                "  tern ledger report cpt lora --baseline base -o runs.html\n",
    .opts = opts,
    .args_max = -1,
    .run = run,
};

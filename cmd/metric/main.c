/* tern metric: record values from a workload's trainer. */
#include "cmd/cmd.h"

#include "core/base/log.h"
#include "core/base/vars.h"
#include "core/intake/metric.h"
#include "core/ledger/ledger.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool from_stdin;

/* One line, without its end, as far as it fits; its whole length, or -1 at the end of the input. */
static ssize_t next_line(char line[static TERN_INTAKE_METRIC_LINE])
{
    ssize_t n = 0;
    int c;

    while ((c = getc_unlocked(stdin)) != EOF && c != '\n') {
        if (n < TERN_INTAKE_METRIC_LINE - 1)
            line[n] = (char)(c ? c : '?');
        n++;
    }
    line[n < TERN_INTAKE_METRIC_LINE ? n : TERN_INTAKE_METRIC_LINE - 1] = '\0';
    return n == 0 && c == EOF ? -1 : n;
}

static int take_line(struct tern_ledger_spool *s, struct tern_intake_metric *m, char *line,
                     ssize_t len, struct tern_err *err)
{
    tern_intake_metric_clear(m);
    if (len >= TERN_INTAKE_METRIC_LINE)
        return tern_err_set(err, TERN_USAGE, "of %zd bytes (%d at most)", len,
                            TERN_INTAKE_METRIC_LINE - 1);
    if (tern_intake_metric_parse_line(m, line, err) < 0)
        return -1;
    return m->n || m->step >= 0 || m->checkpoint || m->resumed >= 0
               ? tern_intake_metric_record(s, m, err)
               : 0;
}

/* Is each word NAME=VALUE?  Then the line was meant for the ledger. */
static bool is_of_values(const char *line)
{
    bool any = false;

    for (const char *s = line + strspn(line, " \t\r"); *s; s += strspn(s, " \t\r")) {
        const size_t len = strcspn(s, " \t\r");
        const char *eq = memchr(s, '=', len);
        if (!eq || eq == s)
            return false;
        any = true;
        s += len;
    }
    return any;
}

/* A line of standard input is like the arguments of one call.  The input is read to its end, since
 * a trainer that prints there would not survive its reader.  Lines of values that cannot be taken
 * are an error in the end.  It may print other lines: they are one only when no value came. */
static int lines(struct tern_ledger_spool *s, struct tern_intake_metric *m, struct tern_err *err)
{
    static char line[TERN_INTAKE_METRIC_LINE];
    unsigned long number = 0, bad = 0, lost = 0; /* lost: values that were meant */
    enum tern_code code = TERN_OK;
    ssize_t len;

    while ((len = next_line(line)) >= 0) {
        struct tern_err why = {0};
        number++;
        const bool values = is_of_values(line); /* before it is cut into words */
        if (take_line(s, m, line, len, &why) == 0)
            continue;
        for (char *c = why.text; *c; c++)
            if (iscntrl((unsigned char)*c))
                *c = '?';
        if (bad++ == 0)
            tern_warn("standard input, line %lu: %s (further ones are counted)", number, why.text);
        lost += values || why.code != TERN_USAGE;
        if (code == TERN_OK || why.code != TERN_USAGE)
            code = why.code;
    }
    if (lost || (bad && bad == number))
        return tern_err_set(err, code, "standard input: %lu of %lu lines could not be taken", bad,
                            number);
    if (bad)
        tern_warn("standard input: %lu of %lu lines were no values", bad, number);
    return 0;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    const char *spool = tern_var("TERN_RUN_SPOOL");
    char host[64] = "", writer[65];

    if (!spool)
        return tern_err_set(err, TERN_USAGE,
                            "TERN_RUN_SPOOL is not set: this is no process of a run. Start the "
                            "trainer with `tern run` (workload.command).");
    struct tern_intake_metric *r = tern_alloc(1, sizeof *r, "values", err);
    if (!r)
        return -1;
    tern_intake_metric_clear(r);
    int rc = 0;
    for (int i = 0; i < n_args && rc == 0; i++)
        rc = tern_intake_metric_parse_word(r, args[i], err);
    if (rc == 0 && (r->n || !from_stdin))
        rc = tern_intake_metric_check(r, err);
    if (rc < 0) {
        free(r);
        return -1;
    }
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", *c))
            *c = '_';
    snprintf(writer, sizeof writer, "metric-%.40s-%d", host, (int)getpid());
    struct tern_ledger_spool *s = tern_ledger_spool_open_dir(spool, writer, err);
    rc = s ? 0 : -1;
    if (rc == 0 && (r->n || r->checkpoint || r->resumed >= 0))
        rc = tern_intake_metric_record(s, r, err);
    if (rc == 0 && from_stdin)
        rc = lines(s, r, err);

    if (rc == 0)
        rc = tern_ledger_spool_close(s, err);
    else
        tern_ledger_spool_close(s, NULL);
    free(r);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct tern_opt opts[] = {
        {"stdin", 0, TERN_OPT_FLAG, .to.flag = &from_stdin,
         .help = "go on with lines of standard input, each like the arguments of one call. Other "
                 "lines are counted; values that cannot be taken make its status 2"},
        {0},
    };
    static const struct tern_cmd cmd = {
        .name = "metric",
        .args = "step=N NAME=VALUE...",
        .summary = "record a value from a workload's trainer",
        .about = "Works in processes that `tern run` started: it sets TERN_RUN_SPOOL, which names "
                 "the run and the attempt. nan, inf and -inf are values. checkpoint=DIR registers "
                 "a checkpoint that the trainer wrote by itself. resumed_step=N says that this "
                 "attempt resumes after step N: values of later steps from earlier attempts are "
                 "superseded. Without it, tern decides for each metric by its first value. A "
                 "trainer that reports often should keep one `tern metric --stdin` open: each call "
                 "of `tern metric` makes a file.",
        .examples = "  tern metric step=7 loss=2.31 lr=1e-4\n"
                    "  tern metric step=100 checkpoint=out/checkpoint-100\n"
                    "  tern metric resumed_step=100\n"
                    "  train.sh | tern metric --stdin\n",
        .opts = opts,
        .args_max = -1,
        .run = run,
    };

    return tern_cmd_main(&cmd, argc, argv);
}

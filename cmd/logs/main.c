/* tern logs: the output of the ranks, merged by time. */
#include "cmd/logs/logs.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/logs/logs.h"
#include "core/site/site.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct logs_options logs;

static const char *ledger, *ranks, *attempt, *since, *pattern, *job;

/* ---------------------------------------------------------------- which run, which attempts */

static int want_ledger(struct tern_err *err)
{
    if (!ledger)
        ledger = logs.found = tern_site_find_ledger(err);
    return ledger ? 0 : -1;
}

static int find_run(const char *words, char id[TERN_ULID_SIZE], struct tern_err *err)
{
    char *home = NULL;

    if (want_ledger(err) < 0 || tern_ledger_locate(ledger, words, job, &home, id, err) < 0)
        return -1;
    ledger = home; /* until the program ends */
    return 0;
}

/* ---------------------------------------------------------------- which lines */

/* "0", "0,3", "0-3,run" */
static int parse_ranks(struct tern_err *err)
{
    for (const char *s = ranks; s && *s;) {
        size_t len = strcspn(s, ",");
        char one[40];
        snprintf(one, sizeof one, "%.*s", (int)len, s);
        s += len + (s[len] == ',');
        struct logs_range *r = &logs.ranks[logs.n_ranks];
        char *dash = strchr(one, '-');
        if (dash)
            *dash = '\0';
        if (logs.n_ranks == LOGS_RANGES || len >= sizeof one)
            return tern_err_set(err, TERN_USAGE, "--rank: more than %d parts", LOGS_RANGES);
        if (strcmp(one, "run") == 0 && !dash)
            r->from = r->to = -1;
        else if (tern_str_int(one, 0, INT32_MAX, &r->from) < 0 ||
                 tern_str_int(dash ? dash + 1 : one, r->from, INT32_MAX, &r->to) < 0)
            return tern_err_set(err, TERN_USAGE,
                                "--rank '%s': wanted numbers, ranges and commas, such as "
                                "0,4-7, or 'run' for the supervisor",
                                ranks);
        logs.n_ranks++;
    }
    return 0;
}

static int parse(struct tern_err *err)
{
    char why[100];

    if (parse_ranks(err) < 0)
        return -1;
    if (since && tern_cmd_parse_time(since, &logs.since_ns, err) < 0)
        return -1;
    if (logs.raw && isatty(STDOUT_FILENO))
        return tern_err_set(err, TERN_USAGE,
                            "--raw writes the ranks' bytes unchanged, with control sequences for a "
                            "terminal: send it to a file or a pipe");
    if (logs.tail > LOGS_TAIL)
        return tern_err_set(err, TERN_USAGE, "--tail: at most %d", LOGS_TAIL);
    int rc = pattern ? regcomp(&logs.grep, pattern, REG_EXTENDED | REG_NOSUB) : 0;
    if (rc) {
        regerror(rc, &logs.grep, why, sizeof why);
        return tern_err_set(err, TERN_USAGE, "--grep '%s': %s", pattern, why);
    }
    logs.has_grep = pattern;
    logs.color = !logs.raw && !logs.json && tern_cmd_color(STDOUT_FILENO);
    return 0;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    char id[TERN_ULID_SIZE];
    unsigned last = 0;
    int64_t only = 0;

    if (parse(err) < 0 || find_run(n_args ? args[0] : NULL, id, err) < 0)
        return -1;
    const bool all = attempt && strcmp(attempt, "all") == 0;
    if (attempt && !all && tern_str_int(attempt, 1, 999999, &only) < 0)
        return tern_err_set(err, TERN_USAGE, "--attempt '%s': wanted a number from 1, or 'all'",
                            attempt);
    if (tern_ledger_last_attempt(ledger, id, &last, err) < 0)
        return -1;
    if (last == 0)
        return tern_err_set(err, TERN_USAGE, "%s: run %s has no attempts yet, or is not there",
                            ledger, id);
    if (only > last)
        return tern_err_set(err, TERN_USAGE, "%s: run %s has no attempt %lld", ledger, id,
                            (long long)only);
    unsigned first = all ? 1 : only ? (unsigned)only : last;
    if (logs.follow && (!only || only == last))
        return logs_follow(ledger, id, first, err);
    if (logs.follow)
        tern_info("attempt %u has ended: attempt %u is the newest", first, last);
    return logs_print(ledger, id, first, only ? first : last, err);
}

int main(int argc, char **argv)
{
    static const struct tern_opt opts[] = {
        {"ledger", 'l', TERN_OPT_TEXT, "DIR", .env = "TERN_LEDGER", .to.text = &ledger,
         .help = "the ledger's folder; default: that of the site settings, else ./ledger"},
        {"job", 'j', TERN_OPT_TEXT, "JOBID", .to.text = &job,
         .help = "the run of this Slurm job (4711, or 4711_3 of an array), in place of RUN"},
        {"follow", 'f', TERN_OPT_FLAG, .to.flag = &logs.follow,
         .help = "print new lines as they come, over new attempts, until the run ends"},
        {"rank", 'r', TERN_OPT_TEXT, "RANKS", .to.text = &ranks,
         .help = "only these: 0,4-7; 'run' is the supervisor"},
        {"node", 'w', TERN_OPT_TEXT, "NODE", .to.text = &logs.node,
         .help = "only ranks on this node"},
        {"attempt", 'a', TERN_OPT_TEXT, "N", .to.text = &attempt,
         .help = "this attempt, or 'all'; default: the newest"},
        {"grep", 'g', TERN_OPT_TEXT, "ERE", .to.text = &pattern,
         .help = "only lines that this extended regular expression matches"},
        {"since", 'S', TERN_OPT_TEXT, "TIME", .to.text = &since,
         .help = "only lines since TIME: YYYY-MM-DD[THH:MM[:SS][+HH:MM]], now-2hours"},
        {"tail", 'n', TERN_OPT_INT, "LINES", .to.integer = &logs.tail,
         .help = "only the last LINES of them"},
        {"progress", 0, TERN_OPT_FLAG, .to.flag = &logs.progress,
         .help = "also lines that progress bars overwrote, once a second"},
        {"no-time", 0, TERN_OPT_FLAG, .to.flag = &logs.no_time, .help = "leave out the times"},
        {"json", 0, TERN_OPT_FLAG, .to.flag = &logs.json, .help = "print a JSON object a line"},
        {"raw", 0, TERN_OPT_FLAG, .to.flag = &logs.raw,
         .help = "the bytes alone, unchanged, to a file or a pipe"},
        {0},
    };
    static const struct tern_cmd cmd = {
        .name = "logs",
        .args = "[RUN]",
        .summary = "print the output of a run's ranks, merged by time",
        .about = "Each line has: time, rank, node, stream (o stdout, e stderr, t tern's own "
                 "lines), text. The rank 'run' is the supervisor. RUN is an id or its beginning, a "
                 "name, or 'latest', the default. Control characters are made visible. A line that "
                 "took more than a second, or has more than 64 KiB, is printed in pieces.\n\nEach "
                 "rank has its own log in each attempt, kept across requeues. A log has at most "
                 "TERN_LOG_BYTES (64 MiB): an eighth of it for the beginning, the rest for the "
                 "newest lines. If all logs are full, those of the first attempt and of the newest "
                 "three stay. Logs are text files: LEDGER/runs/RUN/logs/ATTEMPT/RANK.log.",
        .examples = "  tern logs                           # the newest run's newest attempt\n"
                    "  tern logs pubmed-cpt -f --rank 0\n"
                    "  tern logs -j 1234 --attempt all --grep 'error|Traceback'\n"
                    "  tern logs latest --node trn1-st-trn1-3 --tail 50\n",
        .opts = opts,
        .args_max = 1,
        .run = run,
    };

    return tern_cmd_main(&cmd, argc, argv);
}

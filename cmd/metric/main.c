/* tern metric: record values from somebody else's trainer. */
#include "cmd/cmd.h"

#include "core/base/vars.h"
#include "core/ledger/ledger.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_VALUES = 1024 };

static bool from_stdin;

/* One line's worth of words. */
struct request {
    int64_t step;
    bool has_step;
    const char *checkpoint;
    struct tern_ledger_value values[MAX_VALUES];
    size_t n;
};

/* A number, or nan, inf, infinity with or without a sign: what trainers print. */
static int parse_value(const char *s, double *out)
{
    char *end;

    if (!*s || strspn(s, "0123456789+-.eEnNaAiIfFtTyY") != strlen(s))
        return -1;
    *out = strtod(s, &end);
    return *end ? -1 : 0;
}

static int take(struct request *r, const char *word, struct tern_err *err)
{
    const char *eq = strchr(word, '=');

    if (!eq || eq == word)
        return tern_err_set(err, TERN_USAGE, "'%s': wanted NAME=VALUE, for example loss=2.31",
                            word);
    if (tern_str_starts(word, "step=")) {
        if (tern_str_int(eq + 1, 0, INT64_MAX, &r->step) < 0)
            return tern_err_set(err, TERN_USAGE, "'%s': a step is a whole number from 0", word);
        r->has_step = true;
        return 0;
    }
    if (tern_str_starts(word, "checkpoint=")) {
        r->checkpoint = eq + 1;
        return *r->checkpoint ? 0 : tern_err_set(err, TERN_USAGE, "checkpoint= names no folder");
    }
    if (r->n == MAX_VALUES)
        return tern_err_set(err, TERN_USAGE, "more than %d values of one step", MAX_VALUES);
    struct tern_ledger_value *v = &r->values[r->n];
    if (parse_value(eq + 1, &v->value) < 0)
        return tern_err_set(err, TERN_USAGE, "'%s': '%s' is no number", word, eq + 1);
    v->name = word;
    *strchr(word, '=') = '\0';
    r->n++;
    return 0;
}

static int record(struct tern_spool *s, struct request *r, struct tern_err *err)
{
    if (!r->n && !r->checkpoint)
        return tern_err_set(err, TERN_USAGE,
                            "nothing to record: wanted NAME=VALUE or "
                            "checkpoint=DIR");
    if (r->n && !r->has_step)
        return tern_err_set(err, TERN_USAGE, "which step? Give step=N, too");
    if (r->n && tern_spool_step(s, r->step, r->values, r->n, err) != 0)
        return -1;
    if (!r->checkpoint)
        return 0;
    char *path = realpath(r->checkpoint, NULL);
    if (!path) {
        tern_err_sys(err, "checkpoint=%s", r->checkpoint);
        if (err)
            err->code = TERN_USAGE;
        return -1;
    }
    struct tern_ledger_checkpoint c = {
        .step = r->has_step ? r->step : 0, .path = path, .state = "foreign"};
    int rc = tern_spool_checkpoint(s, &c, err);
    free(path);
    return rc ? -1 : 0;
}

/* A line of standard input is what one call's arguments are. */
static int lines(struct tern_spool *s, struct request *r, struct tern_err *err)
{
    char *line = NULL;
    size_t room = 0;
    int rc = 0;
    unsigned long number = 0;

    while (rc == 0 && getline(&line, &room, stdin) >= 0) {
        number++;
        r->n = 0;
        r->has_step = false;
        r->checkpoint = NULL;
        char *at = NULL;
        for (char *w = strtok_r(line, " \t\r\n", &at); w && rc == 0;
             w = strtok_r(NULL, " \t\r\n", &at))
            rc = take(r, w, err);
        if (rc == 0 && (r->n || r->has_step || r->checkpoint))
            rc = record(s, r, err);
    }
    free(line);
    return rc < 0 ? tern_err_prefix(err, "standard input, line %lu", number) : 0;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    const char *spool = tern_var("TERN_RUN_SPOOL");
    char host[64] = "", writer[65];

    if (!spool)
        return tern_err_set(err, TERN_USAGE,
                            "TERN_RUN_SPOOL is not set: this is no process of a run. Start the "
                            "trainer with `tern run` (workload.command).");
    struct request *r = tern_alloc(1, sizeof *r, "values", err);
    if (!r)
        return -1;
    int rc = 0;
    for (int i = 0; i < n_args && rc == 0; i++)
        rc = take(r, args[i], err);
    if (rc == 0 && !from_stdin && !r->n && !r->checkpoint)
        rc = record(NULL, r, err);
    if (rc == 0 && r->n && !r->has_step)
        rc = record(NULL, r, err);
    if (rc < 0) {
        free(r);
        return -1;
    }
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", *c))
            *c = '_';
    snprintf(writer, sizeof writer, "metric-%.40s-%d", host, (int)getpid());
    struct tern_spool *s = tern_spool_open_dir(spool, writer, err);
    rc = s ? 0 : -1;
    if (rc == 0 && (r->n || r->checkpoint))
        rc = record(s, r, err);
    if (rc == 0 && from_stdin)
        rc = lines(s, r, err);

    if (rc == 0)
        rc = tern_spool_close(s, err);
    else
        tern_spool_close(s, NULL);
    free(r);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct tern_opt opts[] = {
        {"stdin", 0, TERN_OPT_FLAG, .to.flag = &from_stdin,
         .help = "go on with lines of standard input, each like the arguments of one call"},
        {0},
    };
    static const struct tern_cmd cmd = {
        .name = "metric",
        .args = "step=N NAME=VALUE...",
        .summary = "record a value from somebody else's trainer",
        .about = "Works in processes that `tern run` started: it sets TERN_RUN_SPOOL, which names "
                 "the run and the attempt. nan, inf and -inf are values. checkpoint=DIR registers "
                 "a checkpoint that the trainer wrote by itself. A trainer that reports often "
                 "should keep one `tern metric --stdin` open: each call makes a file.",
        .examples = "  tern metric step=7 loss=2.31 lr=1e-4\n"
                    "  tern metric step=100 checkpoint=out/checkpoint-100\n"
                    "  train.sh | tern metric --stdin\n",
        .opts = opts,
        .args_max = -1,
        .run = run,
    };

    return tern_cmd_main(&cmd, argc, argv);
}

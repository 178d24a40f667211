#include "core/intake/intake.h"

#include "core/base/log.h"
#include "core/base/str.h"
#include "core/intake/metric.h"
#include "core/intake/printed.h"
#include "core/intake/tensorboard.h"
#include "core/recipe/recipe.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <regex.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const int64_t second = 1000000000;

enum {
    LINE_MAX_BYTES = 4096, /* that patterns look at: a line of values is shorter */
    EVENT_FILES_S = 2,     /* between two looks at event files */
    DICTS_MAX = 64,        /* that wait for their bar; many come at once after a delay */
    KNOWN_MAX = 16,        /* patterns of all known trainers */
    ROWS_MAX = TERN_RECIPE_PATTERNS + KNOWN_MAX,
};

/* One pattern at work. */
struct row {
    regex_t regex;
    enum tern_intake_printed_kind kind;
    const char *must; /* or NULL */
    char *names[TERN_RECIPE_GROUPS + 1];
    bool has_step; /* among the names */
    uint64_t seen; /* hash of the values recorded last: bars repeat themselves */
};

/* Values without a certain step are left out and counted. */
enum left { LEFT_DICT, LEFT_BAR, LEFT_PATTERN, N_LEFT };

/* Hugging Face's dict of values until its bar comes. */
struct dict {
    char *line;
    char epoch[16]; /* "%.4g": as its progress bar's dicts have it */
    int64_t wall_ns;
};

struct tern_intake {
    char *spool_dir; /* NULL: no ledger */
    int64_t rank;
    struct tern_ledger_spool *spool;
    bool spool_failed;
    struct row rows[ROWS_MAX];
    size_t n_rows;
    struct tern_intake_tb *tb[TERN_RECIPE_EVENTS];
    size_t n_tb;
    int64_t tb_next_ns;
    struct tern_intake_metric *m; /* of the line at hand */
    char *words;                  /* [LINE_MAX_BYTES + 1], that m's names lie in */
    /* Hugging Face's: tqdm.write clears the bar, prints the dict and draws the bar again */
    struct dict dicts[DICTS_MAX]; /* oldest first */
    size_t n_dicts;
    bool cleared;   /* a bar was, and no bar of training has come since */
    char epoch[16]; /* of the last dict that got a step, "" for none; and its step */
    int64_t step;
    int64_t bar_step, bar_total; /* -1: none seen */
    bool trained;                /* a dict of training came: the bar before it was its bar */
    uint64_t left[N_LEFT];
    /* event files: values of one step together */
    struct tern_intake_metric *events;
    char (*tags)[201]; /* [TERN_INTAKE_METRIC_VALUES] */
    uint64_t refused;  /* lines of TERN_METRIC_FD */
    uint64_t lost;     /* lines of TERN_METRIC_FD that came faster than they could be recorded */
};

/* ------------------------------------------------------------------ opening */

static int compile(regex_t *to, const char *pattern, char *why, size_t size)
{
    int rc = regcomp(to, pattern, REG_EXTENDED);

    if (rc)
        regerror(rc, to, why, size);
    return rc ? -1 : 0;
}

static int add_row(struct tern_intake *i, enum tern_intake_printed_kind kind, const char *must,
                   const char *pattern, const char *const *names, struct tern_err *err)
{
    char why[100];

    if (i->n_rows == ROWS_MAX)
        return tern_err_set(err, TERN_USAGE, "workload.metrics: more than %d patterns", ROWS_MAX);
    struct row *r = &i->rows[i->n_rows];
    if (compile(&r->regex, pattern, why, sizeof why) < 0)
        return tern_err_set(err, TERN_USAGE, "workload.metrics: pattern '%s': %s", pattern, why);
    i->n_rows++;
    r->kind = kind;
    r->must = must;
    for (size_t k = 0; names && names[k] && k < TERN_RECIPE_GROUPS; k++) {
        r->names[k] = tern_strdup(names[k]);
        r->has_step = r->has_step || strcmp(names[k], "step") == 0;
    }
    return 0;
}

static int add_known(struct tern_intake *i, const char *trainer, struct tern_err *err)
{
    int rc = 0;

    for (const struct tern_intake_printed *k = tern_intake_printed; k->trainer && rc == 0; k++)
        if (strcmp(k->trainer, trainer) == 0)
            rc = add_row(i, k->kind, k->must, k->pattern, k->names, err);
    return rc;
}

/* A line of the text; its bytes are changed. */
static int configure(struct tern_intake *i, char *line, int64_t now_ns, struct tern_err *err)
{
    const char *names[TERN_RECIPE_GROUPS + 1] = {NULL};
    size_t n = 0;
    char *at = NULL, *what = strtok_r(line, "\t", &at), *value = strtok_r(NULL, "\t", &at), *name;

    if (!what || !value)
        return 0;
    if (strcmp(what, "known") == 0)
        return add_known(i, value, err);
    if (i->rank != 0)
        return 0;
    if (strcmp(what, "tensorboard") == 0) {
        if (i->n_tb == TERN_RECIPE_EVENTS)
            return tern_err_set(err, TERN_USAGE, "workload.metrics: more than %d folders",
                                TERN_RECIPE_EVENTS);
        i->tb[i->n_tb++] = tern_intake_tb_open(value, (double)now_ns / 1e9);
        return 0;
    }
    while (n < TERN_RECIPE_GROUPS && (name = strtok_r(NULL, "\t", &at)))
        names[n++] = name;
    return add_row(i, TERN_INTAKE_PRINTED_GROUPS, NULL, value, names, err);
}

struct tern_intake *tern_intake_open(const char *spool_dir, int64_t rank, const char *text,
                                     int64_t now_ns, struct tern_err *err)
{
    struct tern_intake *i = tern_alloc(1, sizeof *i, "metrics", err);
    char *copy = NULL, *at = NULL;
    int rc = -1;

    if (!i)
        return NULL;
    i->spool_dir = spool_dir ? tern_strdup(spool_dir) : NULL;
    i->rank = rank;
    i->bar_step = i->bar_total = -1;
    i->m = tern_alloc(1, sizeof *i->m, "metrics", err);
    i->words = tern_alloc(1, LINE_MAX_BYTES + 1, "metrics", err);
    if (!i->m || !i->words)
        goto out;
    copy = tern_strdup(text ? text : "");
    rc = 0;
    for (char *line = strtok_r(copy, "\n", &at); line && rc == 0; line = strtok_r(NULL, "\n", &at))
        rc = configure(i, line, now_ns, err);
    if (rc == 0 && i->n_tb) {
        i->events = tern_alloc(1, sizeof *i->events, "metrics", err);
        i->tags = tern_alloc(TERN_INTAKE_METRIC_VALUES, sizeof *i->tags, "metrics", err);
        rc = i->events && i->tags ? 0 : -1;
        if (rc == 0)
            tern_intake_metric_clear(i->events);
    }
out:
    free(copy);
    if (rc < 0) {
        tern_intake_close(i);
        return NULL;
    }
    return i;
}

/* ------------------------------------------------------------------ into the ledger */

/* Is there a file to write to?  A spool that failed once may work again. */
static bool spool(struct tern_intake *i, struct tern_err *err)
{
    char writer[40];

    if (!i->spool && i->spool_dir) {
        snprintf(writer, sizeof writer, "task%" PRId64, i->rank);
        i->spool = tern_ledger_spool_open_dir(i->spool_dir, writer, err);
    }
    return i->spool != NULL;
}

static int record(struct tern_intake *i, const struct tern_intake_metric *m, struct tern_err *err)
{
    bool reported = i->spool_failed;

    if (spool(i, err))
        return tern_intake_metric_record(i->spool, m, err);
    i->spool_failed = i->spool_dir != NULL;
    return i->spool_failed && !reported ? -1 : 0;
}

static void record_or_tell(struct tern_intake *i, const struct tern_intake_metric *m)
{
    struct tern_err err = {0};

    if ((m->n || m->resumed >= 0) && record(i, m, &err) < 0)
        tern_warn("a metric is lost: %s", err.text);
}

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
    record_or_tell(i, m);
}

static void add_value(struct tern_intake_metric *m, const char *name, const char *text)
{
    double v;

    size_t len = strlen(name);

    if (m->n == TERN_INTAKE_METRIC_VALUES || !len || len > 200 ||
        tern_intake_metric_has_controls(name, len) || tern_intake_metric_parse_value(text, &v) < 0)
        return;
    m->values[m->n++] = (struct tern_ledger_value){.name = name, .value = v};
}

/* ------------------------------------------------------------------ printed lines */

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
        tern_str_int(eq + 1, 0, INT64_MAX, step);
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
            tern_str_int(text, 0, INT64_MAX, &m->step);
        else if (strcmp(name, "@pairs") == 0)
            add_pairs(m, text, &m->step);
        else
            add_value(m, name, text);
    }
    if (m->step >= 0)
        record_once(i, r, m);
    else if (m->n)
        i->left[r->kind == TERN_INTAKE_PRINTED_PAIRS ? LEFT_BAR : LEFT_PATTERN]++;
}

static void forget_dicts(struct tern_intake *i, size_t n)
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
        forget_dicts(i, n);
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
            record_or_tell(i, i->m);
        else
            i->left[LEFT_DICT]++;
    }
    forget_dicts(i, n);
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

/* Waited too long: no bar gives its step. */
static void give_up_dict(struct tern_intake *i)
{
    i->left[LEFT_DICT] += strcmp(i->dicts[0].epoch, i->epoch) != 0;
    forget_dicts(i, 1);
}

/* Only a dict with an epoch comes from Trainer. */
static void dict(struct tern_intake *i, int64_t wall_ns, const char *line)
{
    const char *epoch = strstr(line, "'epoch': ");

    if (!epoch)
        return;
    i->trained |= !strstr(line, "'eval_");
    if (i->n_dicts == DICTS_MAX)
        give_up_dict(i);
    struct dict *d = &i->dicts[i->n_dicts++];
    *d = (struct dict){.line = tern_strdup(line), .wall_ns = wall_ns};
    epoch += strlen("'epoch': ");
    snprintf(d->epoch, sizeof d->epoch, "%.4g", strtod(epoch + (*epoch == '\''), NULL));
}

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
        if (r->kind == TERN_INTAKE_PRINTED_DICT)
            dict(i, wall_ns, line);
        else if (r->kind == TERN_INTAKE_PRINTED_BAR)
            bar(i, line, match);
        else
            groups(i, r, line, match);
    }
}

/* ------------------------------------------------------------------ lines of the descriptor */

/* Logged once: a program that writes bad lines writes many. */
static void refuse(struct tern_intake *i, struct tern_err *err)
{
    for (char *c = err->text; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
    if (i->refused++ == 0)
        tern_warn("TERN_METRIC_FD: %s (further ones are counted)", err->text);
}

void tern_intake_take_metrics(struct tern_intake *i, char *line, size_t len)
{
    struct tern_err err = {0};

    tern_intake_metric_clear(i->m);
    if (len >= TERN_INTAKE_METRIC_LINE) {
        tern_err_set(&err, TERN_USAGE, "a line of %zu bytes and more (%d at most)", len,
                     TERN_INTAKE_METRIC_LINE - 1);
        refuse(i, &err);
        return;
    }
    if (tern_intake_metric_parse_line(i->m, line, &err) < 0) {
        refuse(i, &err);
        return;
    }
    if ((i->m->n || i->m->step >= 0 || i->m->checkpoint || i->m->resumed >= 0) &&
        record(i, i->m, &err) < 0)
        refuse(i, &err);
}

void tern_intake_note_cut(struct tern_intake *i)
{
    struct tern_err err = {0};

    tern_err_set(&err, TERN_USAGE, "a line without its end is left out");
    refuse(i, &err);
}

void tern_intake_note_lost(struct tern_intake *i, uint64_t lines)
{
    if (i->lost == 0)
        tern_warn("rank %" PRId64
                  ": lines of TERN_METRIC_FD come faster than they can be recorded: "
                  "some are lost (a line may have many values)",
                  i->rank);
    i->lost += lines;
}

/* ------------------------------------------------------------------ event files */

static void flush_events(struct tern_intake *i)
{
    record_or_tell(i, i->events);
    i->events->n = 0;
}

static void take_event(void *self, const struct tern_intake_tb_value *v)
{
    struct tern_intake *i = self;
    struct tern_intake_metric *m = i->events;

    if (v->restart) {
        flush_events(i);
        tern_intake_metric_clear(i->m);
        i->m->resumed = v->step - 1;
        record_or_tell(i, i->m);
        return;
    }
    if (m->n == TERN_INTAKE_METRIC_VALUES || (m->n && m->step != v->step))
        flush_events(i);
    m->step = v->step;
    memcpy(i->tags[m->n], v->tag, sizeof *i->tags);
    m->values[m->n] = (struct tern_ledger_value){.name = i->tags[m->n], .value = v->value};
    m->n++;
}

void tern_intake_tick(struct tern_intake *i, int64_t now_ns, int end)
{
    while (i->n_dicts && (end || now_ns - i->dicts[0].wall_ns >= second))
        give_up_dict(i);
    if (!i->n_tb || (now_ns < i->tb_next_ns && !end))
        return;
    for (size_t k = 0; k < i->n_tb; k++)
        if (i->tb[k])
            tern_intake_tb_look(i->tb[k], take_event, i);
    flush_events(i);
    i->tb_next_ns = now_ns + EVENT_FILES_S * second;
}

void tern_intake_add_event(struct tern_intake *i, const char *kind, const char *severity,
                           const char *text)
{
    const struct tern_ledger_event e = {.kind = kind, .severity = severity, .text = text};
    struct tern_err err = {0};

    if (spool(i, &err))
        tern_ledger_spool_event(i->spool, &e, &err);
}

/* ------------------------------------------------------------------ closing */

static void report_lost(struct tern_intake *i)
{
    char text[120];

    snprintf(text, sizeof text,
             "%" PRIu64
             " records lost: lines of TERN_METRIC_FD came faster than they could be written",
             i->lost);
    tern_intake_add_event(i, "gap", "warn", text);
}

static void report_left(struct tern_intake *i, enum left kind)
{
    static const char *const why[N_LEFT] = {
        [LEFT_DICT] =
            "hf: %" PRIu64 " dicts of values are left out: no progress bar gives their "
            "step (disable_tqdm: false; or report_to: tensorboard and {tensorboard: DIR})",
        [LEFT_BAR] =
            "lightning: the values of %" PRIu64 " bars are left out: a bar counts batches. "
            "A bar with global_step gives the step; {tensorboard: lightning_logs} reads "
            "what its logger writes",
        [LEFT_PATTERN] = "%" PRIu64 " lines that match a pattern without a group 'step' are left "
                         "out: their step is not known",
    };
    char text[300], whole[400];

    snprintf(text, sizeof text, why[kind], i->left[kind]);
    snprintf(whole, sizeof whole, "workload.metrics: %s", text);
    tern_warn("rank %" PRId64 ": %s", i->rank, whole);
    tern_intake_add_event(i, "metrics", "warn", whole);
}

void tern_intake_close(struct tern_intake *i)
{
    struct tern_err err = {0};

    if (!i)
        return;
    if (i->refused > 1)
        tern_warn("TERN_METRIC_FD: %" PRIu64 " lines in all could not be read", i->refused);
    for (int k = 0; k < N_LEFT; k++)
        if (i->left[k])
            report_left(i, (enum left)k);
    if (i->lost)
        report_lost(i);
    if (i->spool && tern_ledger_spool_close(i->spool, &err) < 0)
        tern_warn("%s", err.text);
    for (size_t k = 0; k < i->n_rows; k++) {
        regfree(&i->rows[k].regex);
        for (size_t n = 0; i->rows[k].names[n]; n++)
            free(i->rows[k].names[n]);
    }
    for (size_t k = 0; k < i->n_tb; k++)
        tern_intake_tb_close(i->tb[k]);
    forget_dicts(i, i->n_dicts);
    free(i->events);
    free(i->tags);
    free(i->m);
    free(i->words);
    free(i->spool_dir);
    free(i);
}

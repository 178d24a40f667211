#include "core/intake/metric.h"

#include "core/base/str.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tern_intake_metric_clear(struct tern_intake_metric *m)
{
    m->step = -1;
    m->checkpoint = NULL;
    m->resumed = -1;
    m->n = 0;
}

int tern_intake_metric_parse_value(const char *s, double *out)
{
    char *end;

    if (!*s || strspn(s, "0123456789+-.eEnNaAiIfFtTyY") != strlen(s))
        return -1;
    double v = strtod(s, &end);
    if (*end || (isinf(v) && !strpbrk(s, "iI"))) /* beyond the range of a double */
        return -1;
    if (v == 0 && strcspn(s, "123456789") < strcspn(s, "eE")) /* too small for one */
        return -1;
    *out = v;
    return 0;
}

bool tern_intake_metric_name_is_good(const char *name, size_t len)
{
    for (size_t i = 0, n; i < len; i += n)
        if ((n = tern_str_character(name + i, len - i)) == 0)
            return false;
    return len > 0;
}

static int parse_step(const char *word, const char *number, int64_t *ret_step, struct tern_err *err)
{
    if (tern_str_int(number, 0, TERN_LEDGER_STEP_MAX, ret_step) < 0)
        return tern_err_set(err, TERN_USAGE, "'%.100s': a step is a whole number from 0 to 2^53",
                            word);
    return 0;
}

int tern_intake_metric_parse_word(struct tern_intake_metric *m, char *word, struct tern_err *err)
{
    enum { NAME_MAX_BYTES = 200 }; /* the ledger's */
    char *eq = strchr(word, '=');

    if (!eq || eq == word)
        return tern_err_set(err, TERN_USAGE, "'%.100s': wanted NAME=VALUE, for example loss=2.31",
                            word);
    if (tern_str_starts(word, "step=")) {
        if (m->step >= 0)
            return tern_err_set(err, TERN_USAGE, "'%.100s': step= is given twice", word);
        return parse_step(word, eq + 1, &m->step, err);
    }
    if (tern_str_starts(word, "checkpoint=")) {
        if (m->checkpoint)
            return tern_err_set(err, TERN_USAGE, "'%.100s': checkpoint= is given twice", word);
        m->checkpoint = eq + 1;
        return *m->checkpoint ? 0 : tern_err_set(err, TERN_USAGE, "checkpoint= names no folder");
    }
    if (tern_str_starts(word, "resumed_step=")) {
        if (m->resumed >= 0)
            return tern_err_set(err, TERN_USAGE, "'%.100s': resumed_step= is given twice", word);
        return parse_step(word, eq + 1, &m->resumed, err);
    }
    if (m->n == TERN_INTAKE_METRIC_VALUES)
        return tern_err_set(err, TERN_USAGE, "more than %d values of one step",
                            TERN_INTAKE_METRIC_VALUES);
    if (eq - word > NAME_MAX_BYTES)
        return tern_err_set(err, TERN_USAGE, "'%.40s...': a name has at most %d bytes", word,
                            NAME_MAX_BYTES);
    if (!tern_intake_metric_name_is_good(word, (size_t)(eq - word)))
        return tern_err_set(err, TERN_USAGE,
                            "a metric's name is UTF-8 and has no control characters");
    for (size_t i = 0; i < m->n; i++)
        if (strlen(m->values[i].name) == (size_t)(eq - word) &&
            memcmp(m->values[i].name, word, (size_t)(eq - word)) == 0)
            return tern_err_set(err, TERN_USAGE, "'%.200s': %s is given twice", word,
                                m->values[i].name);
    struct tern_ledger_value *v = &m->values[m->n];
    if (tern_intake_metric_parse_value(eq + 1, &v->value) < 0)
        return tern_err_set(err, TERN_USAGE, "'%.200s': '%.100s' is no number", word, eq + 1);
    v->name = word;
    *eq = '\0';
    m->n++;
    return 0;
}

int tern_intake_metric_parse_line(struct tern_intake_metric *m, char *line, struct tern_err *err)
{
    char *at = NULL;
    int rc = 0;

    for (char *w = strtok_r(line, " \t\r\n", &at); w && rc == 0; w = strtok_r(NULL, " \t\r\n", &at))
        rc = tern_intake_metric_parse_word(m, w, err);
    return rc;
}

int tern_intake_metric_check(const struct tern_intake_metric *m, struct tern_err *err)
{
    if (!m->n && !m->checkpoint && m->resumed < 0)
        return tern_err_set(
            err, TERN_USAGE,
            "nothing to record: wanted NAME=VALUE, checkpoint=DIR or resumed_step=N");
    if (m->n && m->step < 0)
        return tern_err_set(err, TERN_USAGE, "which step? Give step=N, too");
    if (m->step > TERN_LEDGER_STEP_MAX || m->resumed > TERN_LEDGER_STEP_MAX)
        return tern_err_set(err, TERN_USAGE, "step %" PRId64 ": above 2^53",
                            m->step > m->resumed ? m->step : m->resumed);
    return 0;
}

int tern_intake_metric_record(struct tern_ledger_spool *s, const struct tern_intake_metric *m,
                              struct tern_err *err)
{
    char resumed[32];

    snprintf(resumed, sizeof resumed, "%" PRId64, m->resumed);
    if (tern_intake_metric_check(m, err) < 0 ||
        (m->resumed >= 0 && tern_ledger_spool_param(s, TERN_LEDGER_RESUMED, resumed, err) < 0) ||
        (m->n && tern_ledger_spool_step(s, m->step, m->values, m->n, err) < 0))
        return -1;
    if (!m->checkpoint)
        return 0;
    char *path = realpath(m->checkpoint, NULL);
    if (!path) {
        tern_err_sys(err, "checkpoint=%s", m->checkpoint);
        if (err)
            err->code = TERN_USAGE;
        return -1;
    }
    const struct tern_ledger_checkpoint c = {
        .step = m->step < 0 ? 0 : m->step, .path = path, .state = "foreign"};
    int rc = tern_ledger_spool_checkpoint(s, &c, err);
    free(path);
    return rc < 0 ? -1 : 0;
}

/* A check's result: one printable line, and JSON. */
#include "core/health/health.h"

#include "core/base/assert.h"
#include "core/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const verdicts[] = {"ok",         "skipped",     "unknown",
                                       "fabric_bad", "storage_bad", "node_bad"};
static const char *const severities[] = {"info", "warn", "error"};

const char *tern_health_verdict_name(enum tern_health_verdict v)
{
    tern_assert(v <= TERN_HEALTH_NODE_BAD);
    return verdicts[v];
}

const char *tern_health_severity_name(enum tern_rules_severity s)
{
    tern_assert(s <= TERN_RULES_ERROR);
    return severities[s];
}

/* One printable line: rows come from other machines and end on terminals. */
static void clean(char *s)
{
    for (unsigned char *c = (unsigned char *)s; *c; c++)
        if (*c < ' ' || *c >= 127)
            *c = '?';
}

void tern_health_rows_add(struct tern_health_rows *rows, const struct tern_health_row *row)
{
    enum { MOST = 1000000 };

    if (rows->n == MOST)
        return;
    if (rows->n == rows->cap) {
        size_t cap = rows->cap ? 2 * rows->cap : 32;
        struct tern_health_row *more = realloc(rows->row, cap * sizeof *more);
        if (!more)
            return;
        rows->row = more;
        rows->cap = cap;
    }
    struct tern_health_row *to = &rows->row[rows->n++];
    *to = *row;
    clean(to->check);
    clean(to->subject);
    clean(to->node);
    clean(to->unit);
    clean(to->text);
    clean(to->same);
}

void tern_health_rows_free(struct tern_health_rows *rows)
{
    free(rows->row);
    *rows = (struct tern_health_rows){0};
}

json_t *tern_health_row_json(const struct tern_health_row *r)
{
    json_t *j = json_object();

    json_object_set_new(j, "check", json_string(r->check));
    if (*r->subject)
        json_object_set_new(j, "subject", json_string(r->subject));
    json_object_set_new(j, "node", json_string(r->node));
    json_object_set_new(j, "verdict", json_string(verdicts[r->verdict]));
    json_object_set_new(j, "severity", json_string(severities[r->severity]));
    if (*r->unit) {
        json_object_set_new(j, "value", tern_json_real(r->value));
        json_object_set_new(j, "unit", json_string(r->unit));
    }
    json_object_set_new(j, "seconds", tern_json_real(r->seconds));
    json_object_set_new(j, "text", json_string(r->text));
    if (r->virtual_node)
        json_object_set_new(j, "virtual", json_true());
    if (*r->same)
        json_object_set_new(j, "same", json_string(r->same));
    return j;
}

static void take(char *to, size_t n, const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));

    snprintf(to, n, "%s", s ? s : "");
    clean(to);
}

/* The index of the word under `key`, or -1. */
static int word(const json_t *j, const char *key, const char *const *words, int n)
{
    const char *s = json_string_value(json_object_get(j, key));

    for (int i = 0; s && i < n; i++)
        if (strcmp(s, words[i]) == 0)
            return i;
    return -1;
}

int tern_health_row_parse(const char *text, size_t len, struct tern_health_row *row,
                          struct tern_err *err)
{
    struct tern_health_row r = {0};
    json_t *j = tern_json_parse(text, len, "a health row", err);

    if (!j)
        return -1;
    int verdict = word(j, "verdict", verdicts, TERN_HEALTH_NODE_BAD + 1);
    int severity = word(j, "severity", severities, TERN_RULES_ERROR + 1);
    take(r.check, sizeof r.check, j, "check");
    take(r.subject, sizeof r.subject, j, "subject");
    take(r.node, sizeof r.node, j, "node");
    take(r.unit, sizeof r.unit, j, "unit");
    take(r.text, sizeof r.text, j, "text");
    take(r.same, sizeof r.same, j, "same");
    r.value = json_number_value(json_object_get(j, "value"));
    r.seconds = json_number_value(json_object_get(j, "seconds"));
    r.virtual_node = json_is_true(json_object_get(j, "virtual"));
    json_decref(j);
    if (verdict < 0 || severity < 0 || !*r.check)
        return tern_err_set(err, TERN_USAGE,
                            "a health row lacks its check, or has an unknown verdict or severity");
    r.verdict = (enum tern_health_verdict)verdict;
    r.severity = (enum tern_rules_severity)severity;
    *row = r;
    return 0;
}

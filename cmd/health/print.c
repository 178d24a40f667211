/* Results of checks as text and JSON. */
#include "cmd/health/health.h"

#include "cmd/cmd.h"
#include "core/base/json.h"

#include <stdio.h>
#include <string.h>

static int print_json(const struct tern_health_rows *rows, const struct tern_health_judged *judged,
                      struct tern_err *err)
{
    json_t *j = json_object(), *all = json_array(), *nodes = json_array();

    for (size_t i = 0; i < rows->n; i++)
        json_array_append_new(all, tern_health_row_json(&rows->row[i]));
    for (size_t i = 0; i < judged->n; i++) {
        const struct tern_health_node *n = &judged->node[i];
        json_array_append_new(nodes, json_pack("{ss ss ss ss}", "node", n->name, "verdict",
                                               tern_health_verdict_name(n->verdict), "check",
                                               n->check, "text", n->text));
    }
    json_object_set_new(j, "verdict", json_string(tern_health_verdict_name(judged->worst)));
    json_object_set_new(j, "nodes", nodes);
    json_object_set_new(j, "rows", all);
    int rc = tern_json_print(stdout, j, err);
    json_decref(j);
    return rc;
}

static const char *color(const struct tern_health_row *r)
{
    if (!tern_cmd_color(1))
        return "";
    if (r->severity == TERN_RULES_WARN || r->verdict == TERN_HEALTH_UNKNOWN)
        return "\033[33m";
    return r->verdict > TERN_HEALTH_UNKNOWN ? "\033[31m" : "";
}

static bool worth_telling(const struct tern_health_row *r)
{
    return r->severity != TERN_RULES_INFO ||
           (r->verdict != TERN_HEALTH_OK && r->verdict != TERN_HEALTH_SKIPPED);
}

static void print_row(const struct tern_health_row *r)
{
    const char *on = color(r);

    printf("%-10s %s%-11s%s %8.3f  %s\n", r->check, on,
           r->severity == TERN_RULES_WARN && r->verdict == TERN_HEALTH_OK
               ? "warning"
               : tern_health_verdict_name(r->verdict),
           *on ? "\033[0m" : "", r->seconds, r->text);
}

static void print_head(void)
{
    printf("%-10s %-11s %8s  %s\n", "CHECK", "VERDICT", "SECONDS", "");
}

/* What is not well, node by node: the rows lie in the order in which nodes answered. */
static void print_trouble(const struct tern_health_rows *rows,
                          const struct tern_health_judged *judged)
{
    size_t width = 4, n = 0;

    for (size_t i = 0; i < rows->n; i++)
        if (worth_telling(&rows->row[i]) && ++n && strlen(rows->row[i].node) > width)
            width = strlen(rows->row[i].node);
    if (n) {
        printf("%-*s ", (int)width, "NODE");
        print_head();
    }
    for (size_t k = 0; n && k < judged->n; k++)
        for (size_t i = 0; i < rows->n; i++)
            if (worth_telling(&rows->row[i]) &&
                strcmp(rows->row[i].node, judged->node[k].name) == 0) {
                printf("%-*s ", (int)width, rows->row[i].node);
                print_row(&rows->row[i]);
            }
}

int health_print(const struct tern_health_rows *rows, const struct tern_health_judged *judged,
                 bool json, struct tern_err *err)
{
    bool many = judged->n > 1;

    if (json)
        return print_json(rows, judged, err);
    if (many)
        print_trouble(rows, judged);
    else if (rows->n)
        print_head();
    for (size_t i = 0; !many && i < rows->n; i++)
        print_row(&rows->row[i]);
    for (size_t i = 0; many && i < judged->n; i++)
        if (strcmp(judged->node[i].check, "answer") == 0)
            printf("%s: %s\n", judged->node[i].name, judged->node[i].text);
    if (!many)
        return 0;
    printf("%zu nodes:", judged->n);
    for (int v = TERN_HEALTH_NODE_BAD; v >= 0; v--)
        if (judged->count[v])
            printf(" %zu %s", judged->count[v],
                   tern_health_verdict_name((enum tern_health_verdict)v));
    printf("\n");
    return 0;
}

int health_print_checks(bool json, struct tern_err *err)
{
    struct tern_health_about a;
    json_t *all = json_array();
    int rc = 0;

    if (!json)
        printf("%-10s %-12s %-8s %6s  %s\n", "CHECK", "STAGES", "SEVERITY", "LIMIT", "");
    for (size_t i = 0; tern_health_about(i, &a) && a.limit_s > 0; i++) {
        const char *severity = tern_health_severity_name(a.rule->severity);
        if (json)
            json_array_append_new(all, json_pack("{ss ss ss sf ss}", "check", a.rule->id, "stages",
                                                 a.stages, "severity", severity, "limit_s",
                                                 a.limit_s, "what", a.rule->holds));
        else
            printf("%-10s %-12s %-8s %4.0f s  %s\n", a.rule->id, a.stages, severity, a.limit_s,
                   a.rule->holds);
    }
    if (json)
        rc = tern_json_print(stdout, all, err);
    json_decref(all);
    return rc;
}

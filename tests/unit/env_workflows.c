/* core/env: how the profiles stand to published workflows. */
#include "tests/unit/env.h"

#include "core/base/fs.h"

#define WORKFLOWS "tests/golden/env-workflows.tsv"

struct line {
    char *workflow, *generations, *name, *script, *profile, *verdict;
};

enum { MAX_LINES = 400, MAX_WORKFLOWS = 16 };

static int cut(char *text, char **to, int n)
{
    int i = 0;

    for (char *at = text; at && i < n; i++) {
        to[i] = at;
        at = strchr(at, '\t');
        if (at)
            *at++ = '\0';
    }
    return i;
}

static bool covers(const char *generations, int n)
{
    char *end;
    long low = strtol(generations, &end, 10);

    return n >= low && n <= (*end == '-' ? strtol(end + 1, NULL, 10) : low);
}

/* One workflow under one generation; the first disagreement into `found`. */
static void compare(const struct line *lines, size_t n, const char *workflow,
                    const struct tern_env_facts *f, int generation, char *found, size_t size)
{
    char profile[16];
    struct tern_env_rows rows;
    size_t seen = 0;

    snprintf(profile, sizeof profile, "trn1-2.%d", generation);
    if (tern_env_build(profile, f, nothing, &rows, &e) < 0) {
        snprintf(found, size, "%.800s", e.text);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct line *l = &lines[i];
        if (strcmp(l->workflow, workflow) != 0 || !covers(l->generations, generation))
            continue;
        const struct tern_env_row *r = row(&rows, l->name);
        const char *got = r && r->value ? r->value : "-";
        seen += strcmp(got, "-") != 0;
        bool same = strcmp(l->script, l->profile) == 0;
        if (strcmp(got, l->profile) != 0)
            snprintf(found, size, "%s: %s is %s, the table says %s", profile, l->name, got,
                     l->profile);
        else if (same != (strcmp(l->verdict, "same") == 0) || (!same && strlen(l->verdict) < 10))
            snprintf(found, size, "%s: %s: the script's %s needs a reason to differ", profile,
                     l->name, l->script);
    }
    size_t set = 0;
    for (size_t i = 0; i < rows.n; i++)
        set += rows.row[i].value != NULL;
    if (set != seen)
        snprintf(found, size, "%s sets %zu variables, %zu of them in the table", profile, set,
                 seen);
    tern_env_rows_free(&rows);
}

static void test_workflows(void)
{
    static struct line lines[MAX_LINES];
    char *names[MAX_WORKFLOWS], *assume[MAX_WORKFLOWS], *data = NULL, *at = NULL;
    size_t len, n = 0, n_workflows = 0, n_same = 0;

    if (!ok(tern_fs_read(WORKFLOWS, 1 << 20, &data, &len, &e) == 0,
            "the table of published workflows is read"))
        return;
    for (char *l = strtok_r(data, "\n", &at); l; l = strtok_r(NULL, "\n", &at)) {
        char *cell[6];
        int cells = cut(l, cell, 6);
        if (strcmp(cell[0], "# facts") == 0 && cells == 4 && n_workflows < MAX_WORKFLOWS) {
            names[n_workflows] = cell[1];
            assume[n_workflows++] = cell[2];
        } else if (*l != '#' &&
                   ok(cells == 6, "%s %s: six cells", cell[0], cells > 2 ? cell[2] : "") &&
                   n < MAX_LINES) {
            lines[n] = (struct line){cell[0], cell[1], cell[2], cell[3], cell[4], cell[5]};
            n_same += strcmp(lines[n++].verdict, "same") == 0;
        }
    }
    ok(n_workflows == 4 && n_same > 20, "four workflows, %zu values the same of %zu", n_same, n);
    for (size_t w = 0; w < n_workflows; w++) {
        struct tern_env_facts f = facts(NULL);
        char *word = NULL;
        for (char *a = strtok_r(assume[w], " ", &word); a; a = strtok_r(NULL, " ", &word))
            if (tern_env_facts_assume(&f, a, &e) < 0)
                ok(0, "%s: %s", names[w], e.text);
        char found[1200] = "";
        for (int g = 18; g <= 31 && !found[0]; g++)
            compare(lines, n, names[w], &f, g, found, sizeof found);
        is(found, "", "%s: SDK 2.18 to 2.31 agree with the table", names[w]);
    }
    free(data);
}

int main(void)
{
    test_workflows();
    return tap_done();
}

/* A run's lineage: the weights it began from, its data, its tokenizer, its code. */
#include "cmd/ledger/show.h"

#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/inputs/inputs.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    PARAMS_MAX = 10000,
    SECONDS = 10,
    SETS_SHOWN = 6, /* a block of a screen's third; JSON and reproduce have all */
    DIGITS = 12,    /* of a digest: as many as a recipe's are shown with */
};

struct lineage {
    struct tern_ledger_table begun, last; /* name, value: of the attempt that read the base; */
};                                        /* of the newest one */

/* The newest attempt at training, and the newest that began with the first step: the ones behind it
 * had weights of the run's own, whatever model.from names by then. */
static int read_lineage(struct tern_ledger *l, const struct tern_ledger_rows *attempts,
                        struct lineage *ret, struct tern_err *err)
{
    const struct tern_ledger_attempt *last = NULL, *begun = NULL;
    struct lineage x = {0};

    for (size_t i = 0; i < attempts->n; i++) {
        const struct tern_ledger_attempt *a = &attempts->attempts[i];
        if (!a->kind || strcmp(a->kind, "train") != 0)
            continue;
        last = a;
        if (a->resumed_step <= 0)
            begun = a;
    }
    if (!last && attempts->n)
        last = &attempts->attempts[attempts->n - 1];
    if (!begun)
        begun = last;
    const struct tern_ledger_attempt *of[] = {begun, last};
    struct tern_ledger_table *to[] = {&x.begun, &x.last};
    for (size_t i = 0; last && i < 2; i++) {
        char *sql =
            tern_strf("SELECT name, value FROM param WHERE attempt = %" PRIu32 " ORDER BY name",
                      of[i]->attempt);
        int rc = tern_ledger_sql(l, sql, PARAMS_MAX, SECONDS, to[i], err);
        free(sql);
        if (rc < 0) {
            tern_ledger_table_free(&x.begun);
            return -1;
        }
    }
    *ret = x;
    return 0;
}

static void free_lineage(struct lineage *x)
{
    tern_ledger_table_free(&x->begun);
    tern_ledger_table_free(&x->last);
}

/* NULL: it was not recorded. */
static const char *param(const struct tern_ledger_table *t, const char *name)
{
    for (size_t i = 0; i < t->n_rows; i++)
        if (t->cells[2 * i].text && strcmp(t->cells[2 * i].text, name) == 0)
            return t->cells[2 * i + 1].text;
    return NULL;
}

/* An input as a param has it: "SHA256 PATH". */
struct input {
    const char *key, *sha256, *path;
};

static bool is_input(const char *name, const char *value, struct input *ret)
{
    const size_t mark = strlen(TERN_LEDGER_INPUT);

    if (!name || !value || strncmp(name, TERN_LEDGER_INPUT, mark) != 0 ||
        strlen(value) < TERN_SHA256_HEX)
        return false;
    *ret = (struct input){name + mark, value, value + TERN_SHA256_HEX};
    return true;
}

/* The next input from row *at on whose key begins with `prefix`. */
static bool next_input(const struct tern_ledger_table *t, const char *prefix, size_t *at,
                       struct input *ret)
{
    while (*at < t->n_rows) {
        const struct tern_ledger_cell *row = &t->cells[2 * (*at)++];
        if (is_input(row[0].text, row[1].text, ret) &&
            strncmp(ret->key, prefix, strlen(prefix)) == 0)
            return true;
    }
    return false;
}

static bool find_base(const struct lineage *x, struct input *ret)
{
    static const char *const keys[] = {"model.from", "model.config"};

    for (size_t i = 0; i < 2; i++) {
        size_t at = 0;
        if (next_input(&x->begun, keys[i], &at, ret))
            return true;
    }
    return false;
}

/* ------------------------------------------------------------------ as text */

static void put_base(struct tern_buf *to, const struct lineage *x, int columns)
{
    const char *run = param(&x->begun, TERN_LEDGER_PARENT_RUN);
    const char *step = param(&x->begun, TERN_LEDGER_PARENT_STEP);
    struct input base;

    if (find_base(x, &base))
        show_wrap(to, columns, "base", "%s%s  sha256 %.*s",
                  strcmp(base.key, "model.config") == 0 ? "random weights, " : "", base.path,
                  DIGITS, base.sha256);
    if (run)
        show_wrap(to, columns, "parent", "run %s%s%s", run, step ? ", step " : "",
                  step ? step : "");
}

static void put_data(struct tern_buf *to, const struct lineage *x, int columns)
{
    struct input set;
    size_t n = 0;

    for (size_t at = 0; next_input(&x->last, "data.", &at, &set); n++)
        if (n < SETS_SHOWN)
            show_wrap(to, columns, n ? "" : "data", "%s %s  sha256 %.*s", set.key, set.path, DIGITS,
                      set.sha256);
    if (n > SETS_SHOWN)
        show_wrap(to, columns, "", "and %zu more (tern ledger reproduce)", n - SETS_SHOWN);
}

static void put_code(struct tern_buf *to, const struct lineage *x, int columns)
{
    const char *version = param(&x->last, TERN_LEDGER_TERN);
    struct input file;

    if (version)
        show_wrap(to, columns, "code", "tern %s", version);
    for (size_t at = 0; next_input(&x->last, TERN_INPUTS_COMMAND, &at, &file);)
        show_wrap(to, columns, version ? "" : "code", "%s  sha256 %.*s", file.path, DIGITS,
                  file.sha256);
}

int show_lineage(struct tern_buf *to, struct tern_ledger *l,
                 const struct tern_ledger_rows *attempts, int columns, struct tern_err *err)
{
    struct tern_buf b = {0};
    struct lineage x;

    if (read_lineage(l, attempts, &x, err) < 0)
        return -1;
    put_base(&b, &x, columns);
    put_data(&b, &x, columns);
    const char *tokenizer = param(&x.last, TERN_LEDGER_TOKENIZER);
    if (tokenizer)
        show_wrap(&b, columns, "tokenizer", "sha256 %.*s", DIGITS, tokenizer);
    put_code(&b, &x, columns);
    if (b.len)
        tern_buf_printf(to, "\nlineage\n%s", b.data);
    tern_buf_free(&b);
    free_lineage(&x);
    return 0;
}

/* ------------------------------------------------------------------ as JSON */

static json_t *json_input(const struct input *i)
{
    json_t *j = json_object();

    json_object_set_new(j, "input", show_json_text(i->key));
    json_object_set_new(j, "path", show_json_text(i->path));
    json_object_set_new(j, "sha256", json_stringn(i->sha256, TERN_SHA256_HEX - 1));
    return j;
}

static json_t *json_inputs(const struct tern_ledger_table *t, const char *prefix)
{
    json_t *list = json_array();
    struct input i;

    for (size_t at = 0; next_input(t, prefix, &at, &i);)
        json_array_append_new(list, json_input(&i));
    return list;
}

static json_t *json_parent(const struct lineage *x)
{
    const char *run = param(&x->begun, TERN_LEDGER_PARENT_RUN);
    const char *step = param(&x->begun, TERN_LEDGER_PARENT_STEP);

    return run ? json_pack("{s:o, s:o}", "run", show_json_text(run), "step",
                           show_json_int(step ? strtoll(step, NULL, 10) : -1, -1))
               : json_null();
}

json_t *show_json_lineage(struct tern_ledger *l, const struct tern_ledger_rows *attempts)
{
    json_t *j = json_object();
    struct lineage x;
    struct input base;

    if (read_lineage(l, attempts, &x, NULL) < 0)
        return j;
    json_object_set_new(j, "base", find_base(&x, &base) ? json_input(&base) : json_null());
    json_object_set_new(j, "parent", json_parent(&x));
    json_object_set_new(j, "data", json_inputs(&x.last, "data."));
    json_object_set_new(j, "tokenizer_sha256",
                        show_json_text(param(&x.last, TERN_LEDGER_TOKENIZER)));
    json_object_set_new(j, "tern", show_json_text(param(&x.last, TERN_LEDGER_TERN)));
    json_object_set_new(j, "files", json_inputs(&x.last, TERN_INPUTS_COMMAND));
    free_lineage(&x);
    return j;
}

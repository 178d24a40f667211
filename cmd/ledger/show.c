#include "cmd/ledger/recipe.h"
#include "cmd/ledger/show.h"

#include "core/base/clock.h"
#include "core/base/str.h"
#include "core/site/site.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

struct show_options show;

int show_need_ledger(struct tern_err *err)
{
    if (!show.ledger)
        show.ledger = show.found = tern_site_find_ledger(err);
    return show.ledger ? 0 : -1;
}

int show_find(const char *typed, char run_id[TERN_ULID_SIZE], struct tern_err *err)
{
    char *home = NULL;

    if (show_need_ledger(err) < 0 ||
        tern_ledger_locate(show.ledger, typed, /* job= */ NULL, &home, run_id, err) < 0)
        return -1;
    show.ledger = home; /* until the program ends */
    return 0;
}

void show_forget_home(const char *named)
{
    if (show.ledger != named)
        free((char *)show.ledger);
    show.ledger = named;
}

struct tern_ledger *show_open_run(const char *typed, struct tern_err *err)
{
    char id[TERN_ULID_SIZE];

    return show_find(typed, id, err) < 0 ? NULL : tern_ledger_open_run(show.ledger, id, err);
}

/* ---------------------------------------------------------------- tables */

static void add(struct show_cells *t, char *cell)
{
    if ((t->n & (t->n - 1)) == 0) { /* full at each power of two */
        char **more = realloc(t->cells, (t->n ? 2 * t->n : 1) * sizeof *more);
        if (!more)
            abort();
        t->cells = more;
    }
    t->cells[t->n++] = cell;
    t->n_rows = t->n / t->n_fields;
}

void show_cell(struct show_cells *t, const char *fmt, ...)
{
    char *s;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&s, fmt, ap) < 0)
        abort();
    va_end(ap);
    add(t, s);
}

void show_cell_text(struct show_cells *t, const char *s)
{
    add(t, s ? tern_strdup(s) : NULL);
}

void show_cell_int(struct show_cells *t, int64_t v, int64_t unknown)
{
    add(t, v == unknown ? NULL : tern_strf("%lld", (long long)v));
}

void show_cell_time(struct show_cells *t, int64_t wall_ns)
{
    enum { WITHOUT_ZONE = 19 };
    char s[40];

    if (wall_ns)
        tern_clock_iso8601(s, sizeof s, wall_ns);
    if (wall_ns && !show.parsable) /* as sacct has it */
        s[WITHOUT_ZONE] = '\0';
    add(t, wall_ns ? tern_strdup(s) : NULL);
}

void show_cell_real(struct show_cells *t, double v, bool known)
{
    char exact[32];

    if (known && show.parsable)
        show_cell_text(t, tern_str_exact(exact, sizeof exact, v));
    else if (known)
        show_cell(t, isnan(v) ? "NaN" : "%.6g", v);
    else
        show_cell_text(t, NULL);
}

/* Characters in the first `len` bytes of UTF-8. */
static int width_of(const char *s, size_t len)
{
    int n = 0;

    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n;
}

static void wrap(struct tern_buf *to, int columns, const char *label, char *text)
{
    enum { INDENT = 12 };

    for (char *s = text; *s; s++)
        if (*s == '\n' || *s == '\t')
            *s = ' ';
    tern_str_mask(text);
    tern_buf_printf(to, "  %-9s", label);
    int at = 11;
    for (const char *s = text + strspn(text, " "); *s; s += strspn(s, " ")) {
        size_t len = strcspn(s, " ");
        int width = width_of(s, len);
        if (at > INDENT && at + 1 + width > columns) {
            tern_buf_printf(to, "\n%*s", INDENT - 1, "");
            at = INDENT - 1;
        }
        tern_buf_printf(to, " %.*s", (int)len, s);
        at += 1 + width;
        s += len;
    }
    tern_buf_puts(to, "\n");
}

void show_wrap(struct tern_buf *to, int columns, const char *label, const char *fmt, ...)
{
    char *text;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        abort();
    va_end(ap);
    wrap(to, columns, label, text);
    free(text);
}

void show_wrapped(const char *label, const char *fmt, ...)
{
    struct tern_buf b = {0};
    char *text;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        abort();
    va_end(ap);
    wrap(&b, tern_cmd_columns(), label, text);
    show_buf(&b, NULL);
    free(text);
}

int show_buf(struct tern_buf *b, struct tern_err *err)
{
    int rc = tern_buf_check(b, "the output", err);

    if (rc == 0 && b->len)
        fwrite(b->data, 1, b->len, stdout);
    tern_buf_free(b);
    return rc;
}

/* Is `name` one of the words of `list`? */
static bool listed(const char *list, const char *name)
{
    size_t len = strlen(name);

    for (const char *s = list; s && *s; s += strcspn(s, ",") + (s[strcspn(s, ",")] == ','))
        if (strcspn(s, ",") == len && strncmp(s, name, len) == 0)
            return true;
    return false;
}

enum { LEAST = 8 }; /* characters of a cell that is cut */

/* `columns_max`: of the terminal; 0: no limit. */
static void put_table(struct tern_buf *to, const struct show_cells *t,
                      const struct tern_report_column *columns, size_t n, int columns_max)
{
    const struct tern_report_table table = {
        .fields = t->fields,
        .n_fields = t->n_fields,
        .columns = columns,
        .n_columns = n,
        .cells = (const char *const *)t->cells,
        .n_rows = t->n_rows,
        .style = {.parsable = show.parsable,
                  .no_header = show.no_header,
                  .columns = show.parsable ? 0 : columns_max},
    };

    tern_report_table(to, &table);
}

static void free_cells(struct show_cells *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->cells[i]);
    free(t->cells);
}

int show_table_put(struct tern_buf *to, struct show_cells *t, const char *format, const char *cut,
                   int columns_max, struct tern_err *err)
{
    struct tern_report_column columns[TERN_REPORT_MAX_COLUMNS];
    size_t n;
    int rc = tern_report_columns(t->fields, t->n_fields, show.format ? show.format : format,
                                 columns, &n, err);

    if (rc == 0) {
        for (size_t j = 0; j < n && !show.format; j++)
            if (!columns[j].width && listed(cut, t->fields[columns[j].field].name))
                columns[j].least = LEAST;
        put_table(to, t, columns, n, show.format || !cut ? 0 : columns_max);
    }
    free_cells(t);
    return rc;
}

int show_table_all(struct show_cells *t, const bool *cut, struct tern_err *err)
{
    struct tern_report_column columns[TERN_REPORT_MAX_COLUMNS];
    struct tern_buf b = {0};
    int rc = 0;

    if (t->n_fields > TERN_REPORT_MAX_COLUMNS)
        rc = tern_err_set(err, TERN_USAGE, "%zu columns are more than the %d a table shows",
                          t->n_fields, TERN_REPORT_MAX_COLUMNS);
    for (size_t j = 0; rc == 0 && j < t->n_fields; j++)
        columns[j] = (struct tern_report_column){
            .field = j, .right = t->fields[j].right, .least = cut[j] ? LEAST : 0};
    if (rc == 0)
        put_table(&b, t, columns, t->n_fields, tern_cmd_columns());
    free_cells(t);
    return rc == 0 ? show_buf(&b, err) : -1;
}

int show_table(struct show_cells *t, const char *format, const char *cut, struct tern_err *err)
{
    struct tern_buf b = {0};
    int rc = show_table_put(&b, t, format, cut, tern_cmd_columns(), err);

    if (rc == 0)
        return show_buf(&b, err);
    tern_buf_free(&b);
    return rc;
}

bool show_has_fields(void)
{
    return show.helpformat || (show.format && strcasecmp(show.format, "help") == 0);
}

char *show_short_count(char to[16], double v)
{
    static const char units[] = " kMGTPE";
    int unit = 0;

    if (!isfinite(v)) {
        snprintf(to, 16, "%s", isnan(v) ? "NaN" : v > 0 ? "inf" : "-inf");
        return to;
    }
    for (; fabs(v) >= 999.5 && units[unit + 1]; unit++)
        v /= 1000;
    if (unit)
        snprintf(to, 16, "%.*f%c", fabs(v) < 99.95, v, units[unit]);
    else
        snprintf(to, 16, fabs(v) < 9.995 ? "%.2f" : fabs(v) < 99.95 ? "%.1f" : "%.0f", v);
    return to;
}

char *show_short_seconds(char to[16], double s)
{
    static const struct {
        double from, unit;
        const char *name;
    } units[] = {{86400 * 2, 86400, "d"}, {3600 * 1.5, 3600, "h"}, {99.5, 60, "min"}, {0, 1, "s"}};
    int i = 0;

    if (!isfinite(s))
        return show_short_count(to, s);
    while (s < units[i].from && units[i].from > 0)
        i++;
    double v = s / units[i].unit;
    snprintf(to, 16, v < 9.95 && i < 2 ? "%.1f %s" : "%.0f %s", v, units[i].name);
    return to;
}

char *show_did_you_mean(const char *typed, const char *const *candidates, size_t n)
{
    const char **list = tern_alloc(n + 1, sizeof *list, "names", NULL);
    const char *near = NULL;

    if (list) {
        memcpy(list, candidates, n * sizeof *list);
        list[n] = NULL;
        near = tern_str_nearest(typed, list);
    }
    free(list);
    return near ? tern_strf("; did you mean '%.100s'?", near) : tern_strdup(".");
}

int show_fields(const struct tern_report_field *fields, size_t n)
{
    struct tern_buf b = {0};

    tern_report_fields(&b, fields, n);
    return show_buf(&b, NULL);
}

/* ---------------------------------------------------------------- JSON */

json_t *show_json_text(const char *s)
{
    json_t *j = s ? json_string(s) : json_null();

    if (j)
        return j;
    /* No UTF-8: binary data in a cause or a name. */
    char *mended = tern_strdup(s);
    for (char *c = mended; *c; c++)
        if (*c & 0x80)
            *c = '?';
    j = json_string(mended);
    free(mended);
    return j;
}

char *show_json_key(const char *name)
{
    struct tern_buf b = {0};

    tern_buf_puts(&b, "");
    for (size_t n; *name; name += n ? n : 1) {
        n = tern_str_character(name, strlen(name));
        if (n == 0 || (name[0] == '\\' && name[1] == 'x')) /* of a name that has it already */
            n = 0;
        if (n)
            tern_buf_add(&b, name, n);
        else
            tern_buf_printf(&b, "\\x%02x", (unsigned char)*name);
    }
    return b.data;
}

json_t *show_json_int(int64_t v, int64_t unknown)
{
    return v == unknown ? json_null() : json_integer(v);
}

void show_json_number(json_t *j, const char *key, double v)
{
    json_object_set_new(j, key, isfinite(v) ? json_real(v) : json_null());
}

json_t *show_json_time(int64_t wall_ns)
{
    char s[40];

    return wall_ns ? json_string(tern_clock_iso8601(s, sizeof s, wall_ns)) : json_null();
}

bool show_silent(const char *run_id)
{
    return tern_ledger_silence(show.ledger, run_id) > TERN_LEDGER_SILENT_S;
}

const char *show_state(const struct tern_ledger_run *r)
{
    return r->state && strcmp(r->state, "running") == 0 && show_silent(r->id) ? "silent" : r->state;
}

int64_t show_steps(const struct tern_ledger_run *r)
{
    return r->steps > 0 ? r->steps : show_recipe_steps(r->recipe);
}

double show_seconds_left(const struct tern_ledger_run *r, const char *state, int64_t steps)
{
    return state && strcmp(state, "running") == 0 && steps >= 0 && r->last_step >= 0
               ? (double)(steps > r->last_step ? steps - r->last_step : 0) * r->step_seconds
               : NAN;
}

double show_age(const struct tern_ledger_run *r)
{
    return r->updated_ns ? fmax(0, (double)(tern_clock_wall_ns() - r->updated_ns) * 1e-9) : NAN;
}

static void set_array(json_t *j, int64_t job, int64_t task)
{
    json_object_set_new(j, "array_job", show_json_int(job, 0));
    json_object_set_new(j, "array_task", job > 0 ? json_integer(task) : json_null());
}

/* The words of a text, as a list. */
static json_t *json_words(const char *text)
{
    json_t *list = json_array();

    for (const char *s = text ? text : ""; *(s += strspn(s, " "));) {
        size_t len = strcspn(s, " ");
        char *word = tern_strf("%.*s", (int)len, s);
        json_array_append_new(list, show_json_text(word));
        free(word);
        s += len;
    }
    return list;
}

json_t *show_json_run(const struct tern_ledger_run *r)
{
    json_t *j = json_object();

    json_object_set_new(j, "id", show_json_text(r->id));
    json_object_set_new(j, "name", show_json_text(r->name));
    json_object_set_new(j, "state", show_json_text(show_state(r)));
    json_object_set_new(j, "user", show_json_text(r->user));
    json_object_set_new(j, "model", show_json_text(r->model));
    json_object_set_new(j, "job_id", show_json_int(r->job_id, 0));
    set_array(j, r->array_job, r->array_task);
    json_object_set_new(j, "attempts", json_integer(r->attempts));
    json_object_set_new(j, "last_step", show_json_int(r->last_step, -1));
    tern_json_set_real(j, "last_loss", "last_loss_class", r->last_loss);
    if (!r->has_loss)
        json_object_set_new(j, "last_loss_class", json_null());
    json_object_set_new(j, "steps", show_json_int(r->steps, -1));
    show_json_number(j, "tokens_per_second", r->tokens_per_second);
    show_json_number(j, "step_seconds", r->step_seconds);
    json_object_set_new(j, "tags", json_words(r->tags));
    json_object_set_new(j, "checkpoint_step", show_json_int(r->ckpt_step, -1));
    json_object_set_new(j, "lost_records", json_integer(r->lost));
    json_object_set_new(j, "created", show_json_time(r->created_ns));
    json_object_set_new(j, "updated", show_json_time(r->updated_ns));
    json_object_set_new(j, "recipe_path", show_json_text(r->recipe_path));
    json_object_set_new(j, "identity_hash", show_json_text(r->identity_hash));
    json_object_set_new(j, "full_hash", show_json_text(r->full_hash));
    return j;
}

json_t *show_json_attempt(const struct tern_ledger_attempt *a)
{
    json_t *j = json_object();

    json_object_set_new(j, "attempt", json_integer(a->attempt));
    json_object_set_new(j, "kind", show_json_text(a->kind));
    json_object_set_new(j, "job_id", show_json_int(a->job_id, 0));
    set_array(j, a->array_job, a->array_task);
    json_object_set_new(j, "restart_count", json_integer(a->restart_count));
    json_object_set_new(j, "nodes", show_json_text(a->nodes));
    json_object_set_new(j, "world", show_json_int(a->world, 0));
    json_object_set_new(j, "host", show_json_text(a->host));
    json_object_set_new(j, "pid", show_json_int(a->pid, 0));
    json_object_set_new(j, "resumed_checkpoint", show_json_text(a->resumed_checkpoint));
    json_object_set_new(j, "resumed_step", show_json_int(a->resumed_step, -1));
    json_object_set_new(j, "begin", show_json_time(a->begin_ns));
    json_object_set_new(j, "end", show_json_time(a->end_ns));
    json_object_set_new(j, "outcome", show_json_text(a->outcome));
    json_object_set_new(j, "exit_code", a->outcome ? json_integer(a->exit_code) : json_null());
    json_object_set_new(j, "signal", show_json_int(a->signal, 0));
    json_object_set_new(j, "cause", show_json_text(a->cause));
    json_object_set_new(j, "first_step", show_json_int(a->first_step, -1));
    json_object_set_new(j, "last_step", show_json_int(a->last_step, -1));
    return j;
}

json_t *show_json_checkpoint(const struct tern_ledger_checkpoint *c)
{
    json_t *j = json_object();

    json_object_set_new(j, "step", show_json_int(c->step, -1));
    json_object_set_new(j, "state", show_json_text(c->state));
    json_object_set_new(j, "attempt", json_integer(c->attempt));
    json_object_set_new(j, "effective", json_boolean(c->effective));
    json_object_set_new(j, "bytes", json_integer(c->bytes));
    json_object_set_new(j, "shards", json_integer(c->shards));
    json_object_set_new(j, "path", show_json_text(c->path));
    json_object_set_new(j, "manifest_sha256", show_json_text(c->manifest_sha256));
    json_object_set_new(j, "time", show_json_time(c->wall_ns));
    return j;
}

int show_json(json_t *j, struct tern_err *err)
{
    int rc = j ? tern_json_print(stdout, j, err) : tern_err_set(err, TERN_TEMPFAIL, "no memory");

    json_decref(j);
    return rc;
}

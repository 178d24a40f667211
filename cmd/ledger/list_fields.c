/* The fields of tern ledger list. */
#include "cmd/ledger/list.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum field {
    ID,
    NAME,
    STATE,
    JOBID,
    ATTEMPTS,
    STEP,
    STEPS,
    PROGRESS,
    RATE,
    LEFT,
    LOSS,
    CKPT,
    LOST,
    AGE,
    ELAPSED,
    UPDATED,
    CREATED,
    USER,
    TAGS,
    MODEL,
    RECIPE,
    N_FIELDS
};

static const struct tern_report_field usual[N_FIELDS] = {
    [ID] = {"id", "the run's ULID", false},
    [NAME] = {"name", "its name in the recipe", false},
    [STATE] = {"state",
               "running, silent (no end, and its owner is gone), or how the newest attempt ended",
               false},
    [JOBID] = {"jobid", "Slurm job of the newest attempt", true},
    [ATTEMPTS] = {"attempts", "how many there were", true},
    [STEP] = {"step", "newest effective step", true},
    [STEPS] = {"steps", "of the whole run, as planned", true},
    [PROGRESS] = {"progress", "step/steps", true},
    [RATE] = {"tok/s", "tokens a second, of the newest step", true},
    [LEFT] = {"left", "time left of a running run, at the pace of its newest step", true},
    [LOSS] = {"loss", "training loss of the newest step", true},
    [CKPT] = {"ckpt", "step of the newest checkpoint", true},
    [LOST] = {"lost", "records that the storage did not take", true},
    [AGE] = {"age", "time since its newest record", true},
    [ELAPSED] = {"elapsed", "from its beginning to its newest record, waiting included", true},
    [UPDATED] = {"updated", "time of the newest record", false},
    [CREATED] = {"created", "when the run began", false},
    [USER] = {"user", "user that began it", false},
    [TAGS] = {"tags", "tags that users gave it (tern ledger tag)", false},
    [MODEL] = {"model", "what it trains", false},
    [RECIPE] = {"recipe", "the recipe's path", false},
};

/* ---------------------------------------------------------------- the fields that there are */

/* Keys of a recipe that differ in the case are two: env.path and env.PATH. */
static bool known(const struct list_fields *f, const char *name, size_t len)
{
    for (size_t i = 0; i < f->n; i++)
        if (strlen(f->fields[i].name) == len && strncmp(f->fields[i].name, name, len) == 0)
            return true;
    return false;
}

/* A key of the recipe has a '.' in it, or a '['; "recipe.steps" is that of one without. */
static bool is_key(const char *word, size_t len)
{
    return memchr(word, '.', len) || memchr(word, '[', len);
}

static int add_keys(struct list_fields *f, const char *words, struct tern_err *err)
{
    for (const char *s = words; s && *s; s += strcspn(s, ",") + (s[strcspn(s, ",")] == ',')) {
        const char *word = s + (*s == '-' || *s == '+');
        size_t len = strcspn(word, ",%");
        if (!is_key(word, len) || known(f, word, len))
            continue;
        if (f->n >= N_FIELDS + TERN_REPORT_MAX_COLUMNS)
            return tern_err_set(err, TERN_USAGE, "more than %d keys", TERN_REPORT_MAX_COLUMNS);
        f->fields[f->n++] =
            (struct tern_report_field){tern_strf("%.*s", (int)len, word), "key of the recipe", 0};
    }
    return 0;
}

int list_fields_make(struct list_fields *ret_fields, const char *format, const char *sort,
                     struct tern_err *err)
{
    struct list_fields f = {
        .fields = tern_alloc(N_FIELDS + TERN_REPORT_MAX_COLUMNS, sizeof *f.fields, "fields", err),
        .n = N_FIELDS};

    if (!f.fields)
        return -1;
    memcpy(f.fields, usual, sizeof usual);
    if (add_keys(&f, format, err) < 0 || add_keys(&f, sort, err) < 0) {
        list_fields_free(&f);
        return -1;
    }
    *ret_fields = f;
    return 0;
}

int list_fields_show(struct list_fields *f, const char *format, struct tern_err *err)
{
    struct tern_report_column columns[TERN_REPORT_MAX_COLUMNS];
    size_t n;

    free(f->shown);
    f->shown = tern_alloc(f->n, sizeof *f->shown, "fields", err);
    if (!f->shown || tern_report_columns(f->fields, f->n, format, columns, &n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        f->shown[columns[i].field] = true;
    return 0;
}

bool list_fields_have_keys(const struct list_fields *f)
{
    return f->n > N_FIELDS;
}

void list_fields_free(struct list_fields *f)
{
    for (size_t i = N_FIELDS; i < f->n; i++)
        free((char *)f->fields[i].name);
    free(f->fields);
    free(f->shown);
    *f = (struct list_fields){0};
}

/* ---------------------------------------------------------------- values */

const struct show_recipe *list_recipe(struct list_row *r)
{
    if (!r->parsed && r->run->recipe)
        show_recipe_read(r->run->recipe, &r->recipe, NULL);
    r->parsed = true;
    return &r->recipe;
}

static const char *setting(struct list_row *r, const char *key)
{
    static const char plain[] = "recipe.";

    if (strncasecmp(key, plain, sizeof plain - 1) == 0)
        key += sizeof plain - 1;
    return show_recipe_get(list_recipe(r), key);
}

/* Seconds; NAN: not known. */
static double left(const struct list_row *r)
{
    return show_seconds_left(r->run, r->state, r->steps);
}

static double seconds_of(int64_t ns)
{
    return (double)ns * 1e-9;
}

/* A field as a number; NAN: it is none, or has none. */
static double number(struct list_row *r, enum field f)
{
    const struct tern_ledger_run *u = r->run;

    switch (f) {
    case JOBID:
        return u->job_id > 0 ? (double)u->job_id : NAN;
    case ATTEMPTS:
        return u->attempts;
    case STEP:
        return u->last_step >= 0 ? (double)u->last_step : NAN;
    case STEPS:
        return r->steps >= 0 ? (double)r->steps : NAN;
    case PROGRESS:
        return u->last_step >= 0 && r->steps > 0 ? (double)u->last_step / (double)r->steps : NAN;
    case RATE:
        return u->tokens_per_second;
    case LEFT:
        return left(r);
    case LOSS:
        return u->has_loss ? u->last_loss : NAN;
    case CKPT:
        return u->ckpt_step >= 0 ? (double)u->ckpt_step : NAN;
    case LOST:
        return (double)u->lost;
    case AGE:
        return show_age(u);
    case ELAPSED:
        return u->updated_ns && u->created_ns ? seconds_of(u->updated_ns - u->created_ns) : NAN;
    case UPDATED:
        return u->updated_ns ? (double)u->updated_ns : NAN;
    case CREATED:
        return u->created_ns ? (double)u->created_ns : NAN;
    default:
        return NAN;
    }
}

/* A field that is a text; NULL: it is none, or has none. */
static const char *text(const struct list_row *r, enum field f)
{
    const struct tern_ledger_run *u = r->run;

    return f == ID       ? u->id
           : f == NAME   ? u->name
           : f == STATE  ? r->state
           : f == USER   ? u->user
           : f == TAGS   ? u->tags
           : f == MODEL  ? u->model
           : f == RECIPE ? u->recipe_path
                         : NULL;
}

/* ---------------------------------------------------------------- cells */

static void cell_number(struct show_cells *t, struct list_row *r, enum field f)
{
    double v = number(r, f);
    char s[32];

    if (isnan(v) && !(f == LOSS && r->run->has_loss))
        show_cell_text(t, NULL);
    else if (show.parsable)
        show_cell_text(t, tern_str_exact(s, sizeof s, v));
    else if (f == LOSS)
        show_cell(t, "%.4f", v);
    else if (f == RATE)
        show_cell_text(t, show_short_count(s, v));
    else
        show_cell_text(t, show_short_seconds(s, v));
}

static void cell_progress(struct show_cells *t, const struct list_row *r)
{
    if (r->run->last_step < 0 && r->steps < 0)
        show_cell_text(t, NULL);
    else if (r->steps < 0)
        show_cell(t, "%" PRId64, r->run->last_step);
    else
        show_cell(t, "%" PRId64 "/%" PRId64, r->run->last_step < 0 ? 0 : r->run->last_step,
                  r->steps);
}

static void cell(struct show_cells *t, struct list_row *r, enum field f)
{
    const struct tern_ledger_run *u = r->run;
    char job[TERN_LEDGER_JOB_SIZE];

    switch (f) {
    case JOBID:
        show_cell_text(t, tern_ledger_job_name(job, u->job_id, u->array_job, u->array_task));
        break;
    case ATTEMPTS:
        show_cell_int(t, u->attempts, -1);
        break;
    case STEP:
        show_cell_int(t, u->last_step, -1);
        break;
    case STEPS:
        show_cell_int(t, r->steps, -1);
        break;
    case PROGRESS:
        cell_progress(t, r);
        break;
    case CKPT:
        show_cell_int(t, u->ckpt_step, -1);
        break;
    case LOST:
        show_cell_int(t, u->lost, -1);
        break;
    case UPDATED:
        show_cell_time(t, u->updated_ns);
        break;
    case CREATED:
        show_cell_time(t, u->created_ns);
        break;
    case RATE:
    case LEFT:
    case LOSS:
    case AGE:
    case ELAPSED:
        cell_number(t, r, f);
        break;
    default:
        show_cell_text(t, text(r, f));
    }
}

void list_fields_cells(const struct list_fields *f, struct show_cells *t, struct list_row *r)
{
    for (size_t i = 0; i < f->n; i++) {
        if (!f->shown[i])
            show_cell_text(t, NULL);
        else if (i < N_FIELDS)
            cell(t, r, (enum field)i);
        else
            show_cell_text(t, setting(r, f->fields[i].name));
    }
}

json_t *list_fields_json(struct list_row *r)
{
    json_t *j = show_json_run(r->run);
    double s = left(r);

    json_object_set_new(j, "steps", show_json_int(r->steps, -1));
    json_object_set_new(j, "seconds_left", isfinite(s) ? json_real(s) : json_null());
    return j;
}

/* ---------------------------------------------------------------- order */

enum { KEYS_MAX = 16 };

static struct sort {
    const struct list_fields *fields;
    struct {
        size_t field;
        bool falling;
    } keys[KEYS_MAX];
    size_t n;
} sort; /* for qsort's function */

static int compare_numbers(double a, double b, bool falling)
{
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return (falling ? -1 : 1) * ((a > b) - (a < b));
}

/* Numbers as such, behind them other texts, at last rows that have none. */
static int compare_texts(const char *a, const char *b, bool falling)
{
    double x = NAN, y = NAN;

    if (!a || !b)
        return !a - !b;
    tern_str_real(a, -INFINITY, INFINITY, &x);
    tern_str_real(b, -INFINITY, INFINITY, &y);
    int rc = compare_numbers(x, y, falling);
    return rc ? rc : (falling ? -1 : 1) * (isnan(x) ? strcmp(a, b) : 0);
}

static int compare(const void *x, const void *y)
{
    struct list_row *a = (struct list_row *)x, *b = (struct list_row *)y;
    int rc = 0;

    for (size_t i = 0; i < sort.n && rc == 0; i++) {
        const size_t f = sort.keys[i].field;
        const bool falling = sort.keys[i].falling;
        if (f >= N_FIELDS)
            rc = compare_texts(setting(a, sort.fields->fields[f].name),
                               setting(b, sort.fields->fields[f].name), falling);
        else if (text(a, (enum field)f) || text(b, (enum field)f))
            rc = compare_texts(text(a, (enum field)f), text(b, (enum field)f), falling);
        else
            rc = compare_numbers(number(a, (enum field)f), number(b, (enum field)f), falling);
    }
    return rc ? rc : strcmp(a->run->id, b->run->id);
}

int list_fields_sort(const struct list_fields *f, const char *words, struct list_row *rows,
                     size_t n, struct tern_err *err)
{
    struct tern_report_column column;
    size_t one;

    sort = (struct sort){.fields = f};
    for (const char *s = words; *s; s += strcspn(s, ",") + (s[strcspn(s, ",")] == ',')) {
        const bool signed_ = *s == '-' || *s == '+';
        char *name = tern_strf("%.*s", (int)strcspn(s + signed_, ","), s + signed_);
        int rc = sort.n == KEYS_MAX
                     ? tern_err_set(err, TERN_USAGE, "--sort: more than %d fields", KEYS_MAX)
                     : tern_report_columns(f->fields, f->n, name, &column, &one, err);
        free(name);
        if (rc < 0)
            return tern_err_prefix(err, "--sort");
        sort.keys[sort.n].field = column.field;
        sort.keys[sort.n++].falling = *s == '-';
    }
    if (n)
        qsort(rows, n, sizeof *rows, compare);
    return 0;
}

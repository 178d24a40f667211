/* The rows of a list as OpenMetrics text, which Prometheus reads.
 *
 * Format: https://prometheus.io/docs/specs/om/open_metrics_spec/ (1.0).  All samples of a family
 * stand together. */
#include "cmd/ledger/list.h"

#include <math.h>

static double of_steps(const struct list_row *r)
{
    return r->steps > 0 ? (double)r->steps : NAN;
}

static double of_step(const struct list_row *r)
{
    return r->run->last_step >= 0 ? (double)r->run->last_step : NAN;
}

static double of_checkpoint(const struct list_row *r)
{
    return r->run->ckpt_step >= 0 ? (double)r->run->ckpt_step : NAN;
}

static double of_loss(const struct list_row *r)
{
    return r->run->last_loss;
}

static double of_rate(const struct list_row *r)
{
    return r->run->tokens_per_second;
}

static double of_seconds(const struct list_row *r)
{
    return r->run->step_seconds;
}

static double of_attempts(const struct list_row *r)
{
    return r->run->attempts;
}

static double of_lost(const struct list_row *r)
{
    return (double)r->run->lost;
}

static double of_update(const struct list_row *r)
{
    return r->run->updated_ns > 0 ? (double)r->run->updated_ns / 1e9 : NAN;
}

static const struct family {
    const char *name, *unit, *help;
    double (*value)(const struct list_row *r); /* NaN: not known, but of a loss */
} families[] = {
    {"tern_run_step", NULL, "The newest step.", of_step},
    {"tern_run_planned_steps", NULL, "Steps of the whole run.", of_steps},
    {"tern_run_loss", NULL, "The newest loss, in nats a token.", of_loss},
    {"tern_run_tokens_per_second", NULL, "Tokens a second of the newest step.", of_rate},
    {"tern_run_step_seconds", "seconds", "The time of the newest step.", of_seconds},
    {"tern_run_checkpoint_step", NULL, "The step of the newest checkpoint.", of_checkpoint},
    {"tern_run_attempts", NULL, "Attempts so far.", of_attempts},
    {"tern_run_lost_records", NULL, "Records that the storage did not take.", of_lost},
    {"tern_run_updated_timestamp_seconds", "seconds", "The time of the newest record, since 1970.",
     of_update},
};

/* A label's value; bytes that are no text or unsafe on a terminal are masked. */
static void put_label(const char *name, const char *value, const char *before)
{
    char *clean = tern_strdup(value ? value : "");

    tern_str_mask(clean);
    printf("%s%s=\"", before, name);
    for (const char *c = clean; *c; c++) {
        if (*c == '"' || *c == '\\')
            putchar('\\');
        putchar(*c);
    }
    putchar('"');
    free(clean);
}

static void put_run(const struct list_row *r)
{
    put_label("run", r->run->id, "{");
    put_label("name", r->run->name, ",");
}

static void put_family(const struct family *f, const struct list_row *rows, size_t n)
{
    char exact[32];

    printf("# TYPE %s gauge\n", f->name);
    if (f->unit)
        printf("# UNIT %s %s\n", f->name, f->unit);
    printf("# HELP %s %s\n", f->name, f->help);
    for (size_t i = 0; i < n; i++) {
        double v = f->value(&rows[i]);
        const bool known = f->value == of_loss ? rows[i].run->has_loss : !isnan(v);
        if (!known)
            continue;
        fputs(f->name, stdout);
        put_run(&rows[i]);
        printf("} %s\n", isnan(v)   ? "NaN"
                         : isinf(v) ? (v > 0 ? "+Inf" : "-Inf")
                                    : tern_str_exact(exact, sizeof exact, v));
    }
}

void list_openmetrics(const struct list_row *rows, size_t n)
{
    /* A gauge: the text file collector knows no type "info". */
    puts("# TYPE tern_run_info gauge\n# HELP tern_run_info A run of a tern ledger.");
    for (size_t i = 0; i < n; i++) {
        fputs("tern_run_info", stdout);
        put_run(&rows[i]);
        put_label("user", rows[i].run->user, ",");
        put_label("state", rows[i].state, ",");
        put_label("model", rows[i].run->model, ",");
        puts("} 1");
    }
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        put_family(&families[i], rows, n);
    puts("# EOF");
}

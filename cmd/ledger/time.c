/* tern ledger goodput, tern ledger cost: where a run's time and money went. */
#include "cmd/ledger/facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Times that are no parts of training and its pauses are left out: a run whose trainer records no
 * times is no waste. */
static void add_to(struct show_facts *sum, const struct show_facts *f)
{
    sum->node_hours += f->node_hours;
    sum->rank_hours += f->rank_hours;
    sum->trained_tokens += f->trained_tokens;
    sum->repeated_steps += f->repeated_steps;
    if (!f->timed)
        return;
    sum->timed = true;
    sum->wall_s += f->wall_s;
    sum->training_s += f->training_s;
    sum->repeated_s += f->repeated_s;
    sum->stall_s += f->stall_s;
    sum->startup_s += f->startup_s;
    sum->waiting_s += f->waiting_s;
    sum->other_s += f->other_s;
}

/* The runs that are named, else the newest; their rows come from `add`, and with several that of
 * their sum. */
static int each_run(int n_args, char **args, struct show_cells *t, json_t *j,
                    void (*add)(struct show_cells *t, json_t *j, const struct show_facts *f),
                    struct show_facts *sum, struct tern_err *err)
{
    int n = n_args ? n_args : 1;

    for (int i = 0; i < n; i++) {
        struct show_facts f;
        if (show_facts_read(n_args ? args[i] : NULL, &f, err) < 0)
            return -1;
        add(t, j, &f);
        add_to(sum, &f);
        show_facts_free(&f);
    }
    if (!sum->timed)
        sum->wall_s = NAN;
    if (n > 1 && !show.json)
        add(t, j, sum);
    return 0;
}

static void free_cells(struct show_cells *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->cells[i]);
    free(t->cells);
}

static json_t *of_run(const struct show_facts *f)
{
    return json_pack("{s:s, s:o, s:o}", "id", f->id, "name", show_json_text(f->run->name), "state",
                     show_json_text(f->state));
}

static void cell_real(struct show_cells *t, const char *fmt, double v)
{
    char exact[32];

    if (!isfinite(v))
        show_cell_text(t, NULL);
    else if (show.parsable)
        show_cell_text(t, tern_str_exact(exact, sizeof exact, v));
    else {
        char text[64];
        snprintf(text, sizeof text, strcmp(fmt, "2") == 0 ? "%.2f" : "%.1f", v);
        show_cell_text(t, text);
    }
}

/* ---------------------------------------------------------------- goodput */

static const struct tern_report_field goodput_fields[] = {
    {"id", "the run's ULID; total: of all the named runs", false},
    {"name", "its name in the recipe", false},
    {"state", "as in tern ledger list", false},
    {"wall", "from its beginning to its end, in all attempts", true},
    {"goodput", "% of it in training steps that count", true},
    {"repeated", "% in steps that a later attempt did again", true},
    {"ckpt", "% in which training stood still for a checkpoint", true},
    {"startup", "% from the beginning of an attempt to its first step", true},
    {"waiting", "% between attempts: in the queue, for nodes, until a restart", true},
    {"other", "% of evaluations, ends of attempts, and what is not known", true},
    {"steps", "that were done again", true},
};
enum { GOODPUT_FIELDS = sizeof goodput_fields / sizeof *goodput_fields };

enum { PARTS = 6 };

/* The parts of a run's time that add up to it; false: they are not known. */
static bool parts_of(const struct show_facts *f, double ret_parts[PARTS])
{
    const double parts[PARTS] = {f->training_s, f->repeated_s, f->stall_s,
                                 f->startup_s,  f->waiting_s,  f->other_s};

    memcpy(ret_parts, parts, sizeof parts);
    return f->timed && f->wall_s > 0;
}

json_t *show_json_goodput(const struct show_facts *f)
{
    static const char *const keys[PARTS] = {"training_seconds",   "repeated_seconds",
                                            "checkpoint_seconds", "startup_seconds",
                                            "waiting_seconds",    "other_seconds"};
    double parts[PARTS];
    const bool known = parts_of(f, parts);
    json_t *r = of_run(f);

    show_json_number(r, "wall_seconds", f->wall_s);
    show_json_number(r, "goodput", known ? f->training_s / f->wall_s : NAN);
    for (size_t i = 0; i < PARTS; i++)
        show_json_number(r, keys[i], known ? parts[i] : NAN);
    json_object_set_new(r, "repeated_steps", json_integer((json_int_t)f->repeated_steps));
    return r;
}

static void add_goodput(struct show_cells *t, json_t *j, const struct show_facts *f)
{
    double parts[PARTS];
    const bool known = parts_of(f, parts);
    char text[16];

    if (j) {
        json_array_append_new(j, show_json_goodput(f));
        return;
    }
    show_cell_text(t, f->run ? f->id : "total");
    show_cell_text(t, f->run ? f->run->name : NULL);
    show_cell_text(t, f->state);
    if (show.parsable || !isfinite(f->wall_s))
        cell_real(t, "2", f->wall_s);
    else
        show_cell_text(t, show_short_seconds(text, f->wall_s));
    for (size_t i = 0; i < PARTS; i++)
        cell_real(t, "1", known ? 100 * parts[i] / f->wall_s : NAN);
    show_cell_int(t, (int64_t)f->repeated_steps, -1);
}

static int run_goodput(int n_args, char **args, struct tern_err *err)
{
    struct show_cells t = {.fields = goodput_fields, .n_fields = GOODPUT_FIELDS};
    struct show_facts sum = {0};

    if (show_has_fields())
        return show_fields(goodput_fields, GOODPUT_FIELDS);
    json_t *j = show.json ? json_array() : NULL;
    if (each_run(n_args, args, &t, j, add_goodput, &sum, err) < 0) {
        free_cells(&t);
        json_decref(j);
        return -1;
    }
    return j ? show_json(j, err)
             : show_table(&t, "id%-12,name,wall,goodput,repeated,ckpt,startup,waiting,other",
                          "name", err);
}

static const struct tern_opt goodput_opts[] = {
    SHOW_OPT_LEDGER, SHOW_OPT_FORMAT, SHOW_OPT_STYLE, {0}};

const struct tern_cmd ledger_goodput = {
    .name = "goodput",
    .args = "[RUN...]",
    .summary = "print the share of a run's time that was training, and where the rest went",
    .about = "The parts are a run's time from its beginning to its end, or its newest record, and "
             "add up to 100 %. A step that a later attempt did again does not count as training. A "
             "trainer that does not record step_seconds has no parts, and the total's times are "
             "without it. Without RUN: the newest run.",
    .examples = "  tern ledger goodput pubmed-cpt\n",
    .opts = goodput_opts,
    .args_max = -1,
    .run = run_goodput,
};

/* ---------------------------------------------------------------- cost */

static const struct tern_report_field cost_fields[] = {
    {"id", "the run's ULID; total: of all the named runs", false},
    {"name", "its name in the recipe", false},
    {"state", "as in tern ledger list", false},
    {"attempts", "how many there were", true},
    {"nodes", "of the newest attempt", true},
    {"node-h", "hours of nodes, of all attempts", true},
    {"rank-h", "hours of ranks", true},
    {"tokens", "of training that counts", true},
    {"usd", "node-hours at the price of a node", true},
    {"usd/Mtok", "of that, for a million tokens", true},
    {"wasted", "% of the time that was no training that counts", true},
};
enum { COST_FIELDS = sizeof cost_fields / sizeof *cost_fields };
static double usd_hour;

static double wasted_of(const struct show_facts *f)
{
    return f->timed && f->wall_s > 0 ? 1 - f->training_s / f->wall_s : NAN;
}

json_t *show_json_cost(const struct show_facts *f, double price)
{
    const double usd = f->node_hours * price;
    json_t *r = of_run(f);

    json_object_set_new(r, "attempts", json_integer(f->run->attempts));
    json_object_set_new(r, "nodes", json_integer((json_int_t)f->nodes));
    show_json_number(r, "node_hours", f->node_hours);
    show_json_number(r, "rank_hours", f->rank_hours);
    show_json_number(r, "tokens", f->trained_tokens);
    show_json_number(r, "usd", usd);
    show_json_number(r, "usd_per_million_tokens", usd / f->trained_tokens * 1e6);
    show_json_number(r, "wasted", wasted_of(f));
    return r;
}

static void add_cost(struct show_cells *t, json_t *j, const struct show_facts *f)
{
    const double usd = f->node_hours * usd_hour;
    char text[16];

    if (j) {
        json_array_append_new(j, show_json_cost(f, usd_hour));
        return;
    }
    show_cell_text(t, f->run ? f->id : "total");
    show_cell_text(t, f->run ? f->run->name : NULL);
    show_cell_text(t, f->state);
    show_cell_int(t, f->run ? (int64_t)f->run->attempts : -1, -1);
    show_cell_int(t, f->run ? (int64_t)f->nodes : -1, -1);
    cell_real(t, "2", f->node_hours);
    cell_real(t, "2", f->rank_hours);
    if (show.parsable || !isfinite(f->trained_tokens))
        cell_real(t, "1", f->trained_tokens);
    else
        show_cell_text(t, show_short_count(text, f->trained_tokens));
    cell_real(t, "2", usd);
    cell_real(t, "2", usd / f->trained_tokens * 1e6);
    cell_real(t, "1", 100 * wasted_of(f));
}

static int run_cost(int n_args, char **args, struct tern_err *err)
{
    struct show_cells t = {.fields = cost_fields, .n_fields = COST_FIELDS};
    struct show_facts sum = {0};

    if (show_has_fields())
        return show_fields(cost_fields, COST_FIELDS);
    if (show_price(&usd_hour, err) < 0)
        return -1;
    json_t *j = show.json ? json_array() : NULL;
    if (each_run(n_args, args, &t, j, add_cost, &sum, err) < 0) {
        free_cells(&t);
        json_decref(j);
        return -1;
    }
    return j ? show_json(j, err)
             : show_table(&t, "id%-12,name,attempts,nodes,node-h,tokens,usd,usd/Mtok,wasted",
                          "name", err);
}

static const struct tern_opt cost_opts[] = {
    SHOW_OPT_LEDGER, SHOW_OPT_PRICE, SHOW_OPT_FORMAT, SHOW_OPT_STYLE, {0}};

const struct tern_cmd ledger_cost = {
    .name = "cost",
    .args = "[RUN...]",
    .summary = "print the node-hours of runs, and their price",
    .about =
        "The hours of all attempts, precompilations and trials among them, times their nodes. "
        "The ledger knows no prices: give the type of the nodes, or what one costs. The share "
        "that was wasted is of runs whose trainer records step_seconds. Without RUN: the newest "
        "run.",
    .examples = "  tern ledger cost pubmed-cpt --instance trn1.32xlarge\n"
                "  tern ledger cost run-a run-b --usd-hour 3.5\n",
    .opts = cost_opts,
    .args_max = -1,
    .run = run_cost,
};

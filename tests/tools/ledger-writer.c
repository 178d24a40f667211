/* A trainer's ledger without the trainer, for tests:
 *
 *     ledger-writer LEDGER RUN ATTEMPT RESUMED FROM TO [OUTCOME]
 *
 * begins the attempt, writes the steps FROM to TO (loss, lr), a checkpoint and an eval at every
 * hundredth, and the attempt's end when OUTCOME is given.  After each step that the ledger took it
 * writes the step's number to standard output, in one write(2): the acknowledgement.  RUN "new"
 * makes one and says its id first.  From the environment:
 *
 *     WRITER_NAME, WRITER_USER, WRITER_RECIPE, WRITER_CAUSE    as texts
 *     WRITER_PID=N        the supervisor's process, in place of this one
 *     WRITER_SPEED=S      tokens, tokens_per_second and step_seconds (S) of each step, too; facts
 * of the run: steps, parameters, rows and records WRITER_STEPS=N      the steps of those facts
 *     WRITER_EVERY=N      a checkpoint and an eval every N steps, in place of every hundredth
 *     WRITER_DOMAIN=X     an eval of a second set, domain, too: X times the nats of the other
 *     WRITER_SETS=LIST    held-out sets, with commas between (default: general)
 *     WRITER_METRICS=LIST metrics beside loss and lr, with commas between; 1 at each step
 *     WRITER_PHASES=1     phases of each step, its gradient's norm, the mix at each hundredth, too
 *     WRITER_SYNC=1       each step is durable before it is acknowledged
 *     WRITER_RANKS=N      with WRITER_SPEED: N ranks (1 to 8), the last one slowest; stalls, too
 *     WRITER_EVENT=TEXT   an event (fault, error) at the end; WRITER_HEALTH=TEXT likewise a check
 */
#include "core/base/clock.h"
#include "core/ledger/ledger.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct tern_err err;

static int check(int rc)
{
    if (rc < 0)
        fprintf(stderr, "ledger-writer: %s\n", err.text);
    return rc;
}

static const char *get(const char *name, const char *def)
{
    const char *value = getenv(name);

    return value ? value : def;
}

/* Each set is a little harder than the one before it. */
static void evaluate(struct tern_ledger_spool *s, int64_t step)
{
    char *sets = strdup(get("WRITER_SETS", "general")), *rest = sets;
    const char *domain = getenv("WRITER_DOMAIN");
    double harder = 0;

    for (char *set; (set = strsep(&rest, ",")); harder += 100) {
        struct tern_ledger_eval e = {.step = step,
                                     .set = set,
                                     .nll = 2000 + harder + 1e5 / (double)step,
                                     .tokens = 1000,
                                     .bytes = 4000};
        check(tern_ledger_spool_eval(s, &e, &err));
        if (!rest && domain) {
            e.set = "domain";
            e.nll *= atof(domain);
            check(tern_ledger_spool_eval(s, &e, &err));
        }
    }
    free(sets);
}

static void hundredth(struct tern_ledger_spool *s, const char *dir, int64_t step)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/step-%08lld", dir, (long long)step);
    struct tern_ledger_checkpoint c = {
        .step = step, .path = path, .bytes = 123456789, .shards = 4, .state = "published"};
    check(tern_ledger_spool_checkpoint(s, &c, &err));
    if (getenv("WRITER_RANKS")) {
        const struct tern_ledger_value stall = {"checkpoint_stall_seconds", 1e-3 * (double)step};
        check(tern_ledger_spool_step(s, step, &stall, 1, &err));
    }
    evaluate(s, step);
    if (getenv("WRITER_PHASES")) {
        const double samples = 8 * (double)step;
        const struct tern_ledger_value mix[] = {
            {"mix/data/a.tds/samples", 0.75 * samples}, {"mix/data/a.tds/tokens", 48 * samples},
            {"mix/data/a.tds/epochs", samples / 1000},  {"mix/b.tds/samples", 0.25 * samples},
            {"mix/b.tds/tokens", 16 * samples},         {"mix/b.tds/epochs", samples / 5000}};
        check(tern_ledger_spool_step(s, step, mix, sizeof mix / sizeof *mix, &err));
    }
    check(tern_ledger_spool_sync(s, &err));
}

/* What a trainer says of itself. */
static void describe(struct tern_ledger_spool *s)
{
    check(tern_ledger_spool_param(s, TERN_LEDGER_STEPS, get("WRITER_STEPS", "400"), &err));
    check(tern_ledger_spool_param(s, TERN_LEDGER_PARAMETERS, "8030261248", &err));
    check(tern_ledger_spool_param(s, TERN_LEDGER_TRAINABLE, get("WRITER_TRAINABLE", "6815744"),
                                  &err));
    check(tern_ledger_spool_param(s, "rows/a.tds", "1000", &err));
    check(tern_ledger_spool_param(s, "records/a.tds", "5000", &err));
}

static void write_findings(struct tern_ledger_spool *s)
{
    struct tern_ledger_event e = {
        .kind = "fault", .severity = "error", .node = "trn1-2", .text = getenv("WRITER_EVENT")};
    struct tern_ledger_health h = {.check = "neuron-ecc",
                                   .node = "trn1-2",
                                   .verdict = "node_bad",
                                   .severity = "error",
                                   .text = getenv("WRITER_HEALTH"),
                                   .value = 3,
                                   .unit = "errors",
                                   .seconds = 1};

    if (e.text)
        check(tern_ledger_spool_event(s, &e, &err));
    if (h.text)
        check(tern_ledger_spool_health(s, &h, &err));
}

/* Each rank computes 2 % longer than the one before it, and waits as much less. */
static int ranks_at(struct tern_ledger_spool *s, int64_t step, double seconds, int ranks)
{
    enum { MAX = 8, PHASES = 3 };
    struct tern_ledger_value v[MAX * PHASES + 1];
    char names[MAX * PHASES][40];
    size_t n = 0;

    for (int r = 0; r < ranks && r < MAX; r++) {
        const double values[PHASES] = {0.02 * seconds, (0.6 + 0.02 * r) * seconds,
                                       (0.3 - 0.02 * r) * seconds};
        static const char *const phases[PHASES] = {"data", "forward", "comm"};
        for (int p = 0; p < PHASES; p++, n++) {
            snprintf(names[n], sizeof names[n], "rank%d/%s_seconds", r, phases[p]);
            v[n] = (struct tern_ledger_value){names[n], values[p]};
        }
    }
    v[n++] = (struct tern_ledger_value){"slowest_rank", ranks - 1};
    return tern_ledger_spool_step(s, step, v, n, &err);
}

/* `seconds` NAN: loss and lr alone. */
static int step_at(struct tern_ledger_spool *s, int64_t step, double seconds)
{
    const double wobble = 1 + 0.1 * sin(0.7 * (double)step);
    struct tern_ledger_value v[] = {{"loss", 10 / sqrt((double)step) + 0.1 * sin((double)step)},
                                    {"lr", 1e-4},
                                    {"tokens", 1000},
                                    {"tokens_per_second", 1000 / seconds},
                                    {"step_seconds", seconds},
                                    {"grad_norm", wobble},
                                    {"data_seconds", 0.02 * seconds},
                                    {"forward_seconds", 0.25 * seconds * wobble},
                                    {"backward_seconds", 0.5 * seconds},
                                    {"comm_seconds", 0.15 * seconds},
                                    {"update_seconds", 0.05 * seconds}};
    const size_t n_values = isnan(seconds) ? 2 : getenv("WRITER_PHASES") ? sizeof v / sizeof *v : 5;
    const int ranks = atoi(get("WRITER_RANKS", "0"));

    char *names = strdup(get("WRITER_METRICS", "")), *rest = names;
    for (char *name; (name = strsep(&rest, ","));)
        if (*name)
            check(tern_ledger_spool_step(s, step, &(struct tern_ledger_value){name, 1}, 1, &err));
    free(names);
    if (ranks > 0 && !isnan(seconds) && check(ranks_at(s, step, seconds, ranks)) < 0)
        return -1;
    return check(tern_ledger_spool_step(s, step, v, n_values, &err));
}

int main(int argc, char **argv)
{
    char id[TERN_ULID_SIZE], ack[32], own[16];

    if (argc < 7)
        return 2;
    bool anew = strcmp(argv[2], "new") == 0;
    snprintf(id, sizeof id, "%s", anew ? tern_ledger_ulid_new(ack) : argv[2]);
    if (anew)
        dprintf(1, "%s\n", id);
    int64_t from = atoll(argv[5]), to = atoll(argv[6]);
    struct tern_ledger_spool *s =
        tern_ledger_spool_open(argv[1], id, (unsigned)atoi(argv[3]), "rank0", &err);
    if (!s)
        return check(-1), 1;
    const char *const speed = getenv("WRITER_SPEED");
    const double seconds = speed ? atof(speed) : 0;
    const int64_t every = atoll(get("WRITER_EVERY", "100"));
    snprintf(own, sizeof own, "%d", (int)getpid());
    struct tern_ledger_run run = {.name = get("WRITER_NAME", "tried"),
                                  .user = get("WRITER_USER", "someone"),
                                  .recipe_path = "run.yaml",
                                  .recipe = get("WRITER_RECIPE", "version: 1\nname: tried\n"),
                                  .model = "llama 1.2M",
                                  .created_ns = tern_clock_wall_ns()};
    struct tern_ledger_attempt a = {.job_id = 4711,
                                    .restart_count = atoll(argv[3]) - 1,
                                    .nodes = "trn1-[1-2]",
                                    .host = "trn1-1",
                                    .pid = atoll(get("WRITER_PID", own)),
                                    .world = 4,
                                    .resumed_step = atoll(argv[4])};
    check(tern_ledger_spool_run(s, &run, &err));
    check(tern_ledger_spool_attempt_begin(s, &a, &err));
    if (speed)
        describe(s);
    for (int64_t i = from; i <= to; i++) {
        if (step_at(s, i, speed ? seconds : NAN) == 0 &&
            (!getenv("WRITER_SYNC") || check(tern_ledger_spool_sync(s, &err)) == 0)) {
            int n = snprintf(ack, sizeof ack, "%lld\n", (long long)i);
            if (write(1, ack, (size_t)n) != n)
                return 3;
        }
        if (i % every == 0)
            hundredth(s, argv[1], i);
    }
    write_findings(s);
    if (argc > 7) {
        struct tern_ledger_end e = {.outcome = argv[7],
                                    .cause = get("WRITER_CAUSE", "the test said so")};
        check(tern_ledger_spool_attempt_end(s, &e, &err));
    }
    return check(tern_ledger_spool_close(s, &err)) < 0;
}

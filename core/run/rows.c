#include "core/run/rows.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/base/vars.h"
#include "core/base/version.h"
#include "core/inputs/inputs.h"
#include "core/logs/logs.h"
#include "core/run/command.h"
#include "core/task/task.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *tern_run_recipe_text(const struct tern_run_options *o)
{
    enum { RECIPE_BYTES = 1 << 20 }; /* yaml.h reads no more */
    char *text = NULL;
    size_t len = 0;

    if (tern_fs_read(o->recipe_path, RECIPE_BYTES, &text, &len, NULL) == 0)
        return text;
    return tern_strdup("");
}

void tern_run_rows_recipe(struct tern_run_attempt *a)
{
    char *now = tern_run_recipe_text(a->o), text[600];

    if (strcmp(now, a->recipe_text) != 0) {
        snprintf(text, sizeof text,
                 "%.400s was changed after this job had read it: %s. To use the new one, "
                 "start the job again.",
                 a->o->recipe_path,
                 tern_run_attempt_is_trainer(a) ? "only the ranks read it again"
                                                : "this attempt uses the old one");
        tern_run_attempt_add_event(a, "recipe", "warn", NULL, text);
    }
    free(now);
}

static char *model_words(const struct tern_recipe *r)
{
    if (r->workload.command)
        return tern_strf("workload: %s", r->workload.command[0]);
    if (r->model.from)
        return tern_strf("from %s", r->model.from);
    return tern_strf("random weights, %s", r->model.config);
}

static int write_run(struct tern_run_attempt *a, struct tern_err *err)
{
    const struct tern_recipe *r = a->o->recipe;
    const struct passwd *pw = getpwuid(getuid());
    char uid[24], *model = model_words(r);
    char *text = tern_recipe_record(a->recipe_text, a->o->overrides, a->o->n_overrides);

    snprintf(uid, sizeof uid, "%u", (unsigned)getuid());
    const struct tern_ledger_run run = {
        .name = r->name,
        .user = pw ? pw->pw_name : uid,
        .recipe_path = a->o->recipe_path,
        .recipe = text,
        .identity_hash = a->identity,
        .full_hash = a->full,
        .model = model,
        .created_ns = tern_clock_wall_ns(),
    };
    int rc = tern_ledger_spool_run(a->spool, &run, err);
    free(text);
    free(model);
    return rc;
}

int tern_run_rows_begin(struct tern_run_attempt *a, struct tern_err *err)
{
    const struct tern_ledger_attempt row = {
        .kind = a->kind,
        .job_id = a->place.job,
        .restart_count = a->place.restarts,
        .nodes = a->place.node_list,
        .host = a->place.host,
        .pid = getpid(),
        .world = a->place.nodes * tern_run_workers(a->o->recipe, &a->place),
        .resumed_checkpoint = a->resumed,
        .resumed_step = a->resumed_step,
        .full_hash = a->full,
        .array_job = a->place.array_job,
        .array_task = a->place.array_task,
    };

    return tern_ledger_spool_attempt_begin(a->spool, &row, err);
}

static void write_fact(struct tern_run_attempt *a, const char *name, const char *value)
{
    struct tern_err err = {0};

    if (tern_ledger_spool_param(a->spool, name, value, &err) < 0)
        tern_warn("%s", err.text);
}

/* Its lineage: tern's version, the tokenizer, and the digests of its inputs, with which `tern
 * ledger reproduce` detects a change.  A trainer adds its parent run. */
static void write_lineage(struct tern_run_attempt *a)
{
    struct tern_inputs inputs = {0};
    struct tern_err err = {0};
    uint8_t hash[TERN_SHA256_BYTES];
    char hex[TERN_SHA256_HEX];

    write_fact(a, TERN_LEDGER_TERN, TERN_VERSION);
    if (tern_inputs_vocabulary_hash(a->o->recipe, hash) == 0)
        write_fact(a, TERN_LEDGER_TOKENIZER, tern_hex(hex, hash, sizeof hash));
    if (tern_inputs_list(a->o->recipe, &inputs, &err) < 0)
        tern_warn("%s", err.text);
    for (size_t i = 0; i < inputs.n; i++) {
        char *name = tern_strf("%s%s", TERN_LEDGER_INPUT, inputs.v[i].key);
        char *value = tern_strf("%s %s", inputs.v[i].sha256, inputs.v[i].path);
        write_fact(a, name, value);
        free(name);
        free(value);
    }
    tern_inputs_free(&inputs);
}

int tern_run_rows_open(struct tern_run_attempt *a, struct tern_err *err)
{
    const struct tern_recipe *r = a->o->recipe;

    tern_recipe_hashes(r, a->identity, a->full);
    a->spool_dir = tern_ledger_spool_dir(r->ledger.dir, a->id, a->number);
    if (tern_ledger_make(r->ledger.dir, a->id, (enum tern_ledger_mode)r->ledger.mode, err) < 0)
        return -1;
    a->spool = tern_ledger_spool_open(r->ledger.dir, a->id, a->number, "run", err);
    if (!a->spool || write_run(a, err) < 0 || tern_run_rows_begin(a, err) < 0 ||
        tern_ledger_spool_sync(a->spool, err) < 0)
        return -1;
    write_lineage(a);
    setenv("TERN_LEDGER", r->ledger.dir, 1);
    setenv("TERN_RUN_SPOOL", a->spool_dir, 1);
    setenv("TERN_RECIPE", a->o->recipe_path, 1);
    if (r->launch.rails && !tern_var("TERN_FABRIC_RAILS"))
        setenv("TERN_FABRIC_RAILS", r->launch.rails, 1);
    tern_task_export(r, a->id, a->number);
    tern_logs_trim(r->ledger.dir, a->id, a->number,
                   tern_logs_bytes() * (uint64_t)(a->place.nodes * a->place.ranks_per_node + 1));
    return 0;
}

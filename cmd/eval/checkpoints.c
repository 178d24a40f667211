/* tern eval RUN --checkpoints: perplexity of a run's checkpoints, recorded in the ledger. */
#include "cmd/eval/record.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What rank 0 has all ranks do next. */
struct order {
    char path[1024]; /* "": nothing more */
    uint64_t sets;   /* a bit each set */
};

struct best {
    double nll_token;
    uint64_t step;
};

/* Rank 0's. */
struct work {
    struct eval_job *job;
    struct eval_record record;
    struct tern_ckpt_entry *entries; /* all of the folder */
    size_t n_entries;
    const struct tern_ckpt_entry **chosen;
    size_t n_chosen, n_damaged, n_removed;
    struct best best[EVAL_SETS_MAX];
    json_t *rows, *damaged, *removed; /* with --json */
};

/* ---------------------------------------------------------------- which */

/* Steps "A..B", "A..", "..B" or "A". */
static int parse_range(const char *what, uint64_t *ret_from, uint64_t *ret_to, struct tern_err *err)
{
    const char *dots = strstr(what, "..");
    char *first = dots ? tern_strf("%.*s", (int)(dots - what), what) : tern_strdup(what);
    const char *second = dots ? dots + 2 : first;
    int64_t from = 0, to = INT64_MAX;
    int rc = (*first || dots) && (dots || *first) && !(dots && !*first && !*second) ? 0 : -1;

    if (rc == 0 && *first)
        rc = tern_str_int(first, 0, INT64_MAX, &from);
    if (rc == 0 && *second)
        rc = tern_str_int(second, 0, INT64_MAX, &to);
    free(first);
    *ret_from = (uint64_t)from;
    *ret_to = (uint64_t)to;
    return rc == 0 && from <= to
               ? 0
               : tern_err_set(err, TERN_USAGE,
                              "--checkpoints '%.80s': wanted all, best, latest, a step, or steps "
                              "A..B",
                              what);
}

static bool is_candidate(const struct tern_ckpt_entry *e)
{
    return e->state == TERN_CKPT_GOOD || e->state == TERN_CKPT_BROKEN;
}

static int none_there(const struct work *w, const char *dir, struct tern_err *err)
{
    const struct tern_ckpt_entry *first = NULL, *last = NULL;

    for (size_t i = 0; i < w->n_entries; i++)
        if (is_candidate(&w->entries[i])) {
            first = first ? first : &w->entries[i];
            last = &w->entries[i];
        }
    return first ? tern_err_set(err, TERN_USAGE,
                                "--checkpoints %s: %s has none of these steps; there are %" PRIu64
                                " to %" PRIu64,
                                eval.checkpoints, dir, first->step, last->step)
                 : tern_err_set(err, TERN_USAGE, "%s: there is no checkpoint", dir);
}

static int choose(struct work *w, struct tern_err *err)
{
    const char *dir = w->job->recipe->checkpoint.dir, *what = eval.checkpoints;
    const bool best = strcmp(what, "best") == 0, latest = strcmp(what, "latest") == 0;
    uint64_t from = 0, to = UINT64_MAX;
    char *path = NULL;

    if (best || latest) {
        char *typed = tern_fs_join(dir, what);
        int rc = tern_ckpt_resolve(typed, &path, err);
        free(typed);
        if (rc < 0)
            return -1;
    } else if (strcmp(what, "all") != 0 && parse_range(what, &from, &to, err) < 0) {
        return -1;
    }
    int rc = tern_ckpt_list(dir, &w->entries, &w->n_entries, err);
    if (rc == 0 &&
        !(w->chosen = tern_alloc(w->n_entries + 1, sizeof *w->chosen, "checkpoints", err)))
        rc = -1;
    for (size_t i = 0; rc == 0 && i < w->n_entries; i++) {
        const struct tern_ckpt_entry *e = &w->entries[i];
        if (is_candidate(e) && e->step >= from && e->step <= to &&
            (!path || strcmp(tern_fs_basename(e->path), tern_fs_basename(path)) == 0))
            w->chosen[w->n_chosen++] = e;
    }
    free(path);
    return rc < 0 || w->n_chosen ? rc : none_there(w, dir, err);
}

/* ---------------------------------------------------------------- printing */

static void print_head(void)
{
    if (!eval.json)
        printf("%8s %16s  %-20s %10s %9s\n", "STEP", "TOKENS", "SET", "PPL/TOKEN", "PPL/BYTE");
}

static void print_row(const struct work *w, const struct tern_ckpt_entry *c, size_t i, bool first,
                      const struct tern_infer_eval *e, bool known)
{
    char step[24] = "", tokens[32] = "", a_byte[24] = "";
    const double trained = first ? eval_record_tokens(&w->record, c->step) : NAN;

    if (first)
        snprintf(step, sizeof step, "%" PRIu64, c->step);
    if (isfinite(trained))
        tern_str_count(tokens, sizeof tokens, (uint64_t)trained);
    if (e->bytes)
        snprintf(a_byte, sizeof a_byte, "%.4f", eval_per_byte(e));
    tern_progress_hide();
    tern_cmd_say("%8s %16s  %-20.20s %10.4f %9s%s", step, tokens, w->job->sets[i].name,
                 eval_per_token(e), a_byte, known ? "  known" : "");
    fflush(stdout);
}

/* The result on a set, new or from the ledger. */
static void tell(struct work *w, json_t *sets, const struct tern_ckpt_entry *c, size_t i,
                 const struct tern_infer_eval *e, bool known, bool first)
{
    const double nll_token = e->nll / (double)e->tokens;
    struct best *b = &w->best[i];

    if (isfinite(nll_token) && (b->step == 0 || nll_token < b->nll_token))
        *b = (struct best){nll_token, c->step};
    if (!eval.json) {
        print_row(w, c, i, first, e, known);
        return;
    }
    json_t *row = eval_json(e);
    json_object_set_new(row, "known", json_boolean(known));
    json_object_set_new(sets, w->job->sets[i].name, row);
}

static void print_best(const struct work *w)
{
    const size_t n = w->n_chosen - w->n_damaged - w->n_removed;

    for (size_t i = 0; !eval.json && n > 1 && i < w->job->n_sets; i++)
        if (w->best[i].step)
            tern_cmd_say("best on %s: %.4f a token, step %" PRIu64, w->job->sets[i].name,
                         exp(w->best[i].nll_token), w->best[i].step);
}

static int print_json(struct work *w, struct tern_err *err)
{
    const struct eval_run *run = &w->job->run;
    json_t *top = json_object();

    json_object_set_new(top, "run", run->ledger ? json_string(run->id) : json_null());
    json_object_set_new(top, "by", json_string(w->record.by));
    json_object_set(top, "checkpoints", w->rows);
    json_object_set(top, "damaged", w->damaged);
    json_object_set(top, "removed", w->removed);
    int rc = tern_json_print(stdout, top, err);
    json_decref(top);
    return rc;
}

/* ---------------------------------------------------------------- one checkpoint */

/* One that cannot be read is named, and left out. */
static void set_aside(struct work *w, const struct tern_ckpt_entry *c, const char *why)
{
    if (!tern_fs_exists(c->path)) {
        w->n_removed++;
        tern_warn("%s: was removed before it was evaluated", c->path);
        json_array_append_new(w->removed, json_pack("{s:I, s:o}", "step", (json_int_t)c->step,
                                                    "path", tern_json_text(c->path)));
        return;
    }
    w->n_damaged++;
    tern_warn("%s%s%s: left out", strstr(why, c->path) ? "" : c->path,
              strstr(why, c->path) ? "" : ": ", why);
    json_array_append_new(w->damaged,
                          json_pack("{s:I, s:o, s:o}", "step", (json_int_t)c->step, "path",
                                    tern_json_text(c->path), "why", tern_json_text(why)));
}

/* All ranks: give the order of rank 0 out. */
static int agree_on(const struct eval_job *j, struct order *o, struct tern_err *err)
{
    return tern_fabric_broadcast(j->world, o, sizeof *o, TERN_U8, 0, err);
}

/* All ranks: evaluate the ordered sets into out[n_sets].  1, on all: the weights cannot be read,
 * and tried again they would be no better; `err` says why. */
static int carry_out(const struct eval_job *j, const struct order *o, struct work *w,
                     const struct tern_ckpt_entry *c, struct tern_infer_eval *out,
                     struct tern_err *err)
{
    int unread;
    struct tern_llama *m = eval_job_load(j, o->path, &unread, err);

    if (!m) {
        /* Rank 0 names it, and knows why only where it cannot read it, either. */
        if (unread > 0 && unread == tern_fabric_comm_rank(j->world))
            tern_warn("rank %d: %s", unread, err->text);
        if (unread > 0 && w)
            tern_err_set(err, err->code, "rank %d cannot read it; its message says why", unread);
        return unread < 0 ? -1 : 1;
    }
    int rc = 0;
    for (size_t i = 0; i < j->n_sets && rc == 0; i++) {
        if (!(o->sets >> i & 1))
            continue;
        rc = eval_job_measure(j, m, i, &out[i], err);
        if (rc == 0 && w)
            eval_record_add(&w->record, c, i, &out[i]);
    }
    tern_progress_end();
    tern_llama_free(m);
    return rc;
}

/* Rank 0: reports the evaluations that are known, and orders the rest. */
static int one(struct work *w, const struct tern_ckpt_entry *c, struct tern_err *err)
{
    const struct eval_job *j = w->job;
    struct tern_infer_eval out[EVAL_SETS_MAX];
    uint64_t known = 0;
    struct order o = {.sets = 0};
    int rc = 0;

    if (c->state == TERN_CKPT_BROKEN) {
        set_aside(w, c, c->why ? c->why : "it does not verify");
        return 0;
    }
    for (size_t i = 0; i < j->n_sets; i++) {
        const struct tern_ledger_evaluated *e =
            eval.again ? NULL : eval_record_known(&w->record, c, i);
        if (e)
            out[i] = (struct tern_infer_eval){.nll = e->eval.nll,
                                              .tokens = (uint64_t)e->eval.tokens,
                                              .bytes = (uint64_t)e->eval.bytes};
        known |= (uint64_t)(e != NULL) << i;
        o.sets |= (uint64_t)(e == NULL) << i;
    }
    if (o.sets && strlen(c->path) >= sizeof o.path)
        return tern_err_set(err, TERN_USAGE, "%s: the path is too long", c->path);
    if (o.sets) {
        memcpy(o.path, c->path, strlen(c->path) + 1);
        rc = agree_on(j, &o, err) < 0 ? -1 : carry_out(j, &o, w, c, out, err);
    }
    if (rc > 0)
        set_aside(w, c, err->text);
    if (rc)
        return rc > 0 ? 0 : -1;
    json_t *sets = json_object();
    for (size_t i = 0; i < j->n_sets; i++)
        tell(w, sets, c, i, &out[i], known >> i & 1, /* first= */ i == 0);
    json_array_append_new(w->rows,
                          json_pack("{s:I, s:o, s:s, s:o}", "step", (json_int_t)c->step, "path",
                                    tern_json_text(c->path), "sha256", c->digest, "sets", sets));
    return 0;
}

/* Is all done that was chosen, as far as it is there? */
static int judge(const struct work *w, struct tern_err *err)
{
    if (w->n_damaged)
        return tern_err_set(err, TERN_FAILED,
                            "%zu of %zu checkpoints cannot be read, and %s left out", w->n_damaged,
                            w->n_chosen, w->n_damaged > 1 ? "were" : "was");
    return w->n_removed < w->n_chosen
               ? 0
               : tern_err_set(err, TERN_FAILED,
                              "nothing was evaluated: what was chosen was removed before its turn");
}

static int lead(struct eval_job *j, struct tern_err *err)
{
    struct work w = {
        .job = j, .rows = json_array(), .damaged = json_array(), .removed = json_array()};
    struct order end = {.sets = 0};
    int rc = eval_record_open(&w.record, j, err);

    if (rc == 0)
        rc = choose(&w, err);
    if (rc == 0)
        print_head();
    for (size_t i = 0; i < w.n_chosen && rc == 0; i++)
        rc = one(&w, w.chosen[i], err);
    if (rc == 0) {
        print_best(&w);
        rc = eval.json ? print_json(&w, err) : 0;
    }
    /* Whatever happened, the other ranks wait for it. */
    agree_on(j, &end, NULL);
    rc = rc == 0 ? judge(&w, err) : rc;
    eval_record_close(&w.record);
    tern_ckpt_list_free(w.entries, w.n_entries);
    free(w.chosen);
    json_decref(w.rows);
    json_decref(w.damaged);
    json_decref(w.removed);
    return rc;
}

static int follow(struct eval_job *j, struct tern_err *err)
{
    struct tern_infer_eval out[EVAL_SETS_MAX];
    struct order o;
    int rc;

    for (;;) {
        if (agree_on(j, &o, err) < 0)
            return -1;
        if (!o.path[0])
            return 0;
        rc = carry_out(j, &o, NULL, NULL, out, err);
        if (rc < 0)
            return -1;
    }
}

int eval_checkpoints(struct eval_job *j, struct tern_err *err)
{
    return eval_job_first(j) ? lead(j, err) : follow(j, err);
}

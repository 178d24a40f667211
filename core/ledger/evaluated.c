/* Evaluations of checkpoints beside the run: events with the facts as JSON, and values. */
#include "core/ledger/files.h"
#include "core/ledger/ledger.h"
#include "core/ledger/texts.h"

#include "core/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS_MAX = 1 << 20 };

struct tern_ledger_spool *tern_ledger_evaluated_open(const char *ledger_dir, const char *run_id,
                                                     unsigned attempt, struct tern_err *err)
{
    char *writer = tern_ledger_note_writer("eval-");
    struct tern_ledger_spool *s = tern_ledger_spool_open(ledger_dir, run_id, attempt, writer, err);

    free(writer);
    return s;
}

int tern_ledger_evaluated_add(struct tern_ledger_spool *s, const struct tern_ledger_evaluated *e,
                              struct tern_err *err)
{
    json_t *j = json_pack("{s:I, s:o, s:I, s:I, s:s, s:s, s:s, s:I, s:b, s:s, s:b}", "step",
                          (json_int_t)e->eval.step, "set", tern_json_text(e->eval.set), "tokens",
                          (json_int_t)e->eval.tokens, "bytes", (json_int_t)e->eval.bytes,
                          "checkpoint_sha256", e->checkpoint_sha256, "set_sha256", e->set_sha256,
                          "precision", e->precision, "seq_len", (json_int_t)e->seq_len, "isolate",
                          (int)e->isolate, "by", e->by, "counts", (int)e->counts);

    tern_json_set_real(j, "nll", "class", e->eval.nll);
    char *text = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    const struct tern_ledger_event event = {
        .kind = TERN_LEDGER_EVALUATED, .severity = "info", .text = text};
    int rc = text ? 0
                  : tern_err_set(err, TERN_FAILED, "an evaluation of step %lld is no JSON",
                                 (long long)e->eval.step);
    /* The value first: killed in between, the evaluation counts as not done, and is done again. */
    if (rc == 0 && e->counts)
        rc = tern_ledger_spool_eval(s, &e->eval, err);
    if (rc == 0)
        rc = tern_ledger_spool_event(s, &event, err);
    if (rc == 0)
        rc = tern_ledger_spool_sync(s, err);
    free(text);
    json_decref(j);
    return rc > 0 ? tern_err_set(err, TERN_TEMPFAIL, "the ledger's storage takes no more records")
                  : rc;
}

/* ---------------------------------------------------------------- reading */

static double real_of(const json_t *j, const char *key, const char *class)
{
    const json_t *v = json_object_get(j, key);
    const json_t *c = json_object_get(j, class);

    if (json_is_number(v))
        return json_number_value(v);
    return json_integer_value(c) == 2 ? INFINITY : json_integer_value(c) == 3 ? -INFINITY : NAN;
}

/* The event's facts; false where it is none that this tern wrote. */
static bool read_event(const struct tern_ledger_event *event, void **texts,
                       struct tern_ledger_evaluated *ret_e)
{
    json_t *j =
        event->text ? tern_json_parse(event->text, strlen(event->text), "an event", NULL) : NULL;
    const char *text[5];
    static const char *const keys[] = {"set", "checkpoint_sha256", "set_sha256", "precision", "by"};
    bool good = json_is_object(j) && json_is_integer(json_object_get(j, "step"));

    for (int i = 0; i < 5; i++) {
        text[i] = json_string_value(json_object_get(j, keys[i]));
        good = good && text[i];
    }
    if (good)
        *ret_e = (struct tern_ledger_evaluated){
            .eval = {.step = json_integer_value(json_object_get(j, "step")),
                     .set = tern_ledger_text(texts, text[0]),
                     .nll = real_of(j, "nll", "class"),
                     .tokens = json_integer_value(json_object_get(j, "tokens")),
                     .bytes = json_integer_value(json_object_get(j, "bytes")),
                     .attempt = event->attempt,
                     .wall_ns = event->wall_ns},
            .checkpoint_sha256 = tern_ledger_text(texts, text[1]),
            .set_sha256 = tern_ledger_text(texts, text[2]),
            .precision = tern_ledger_text(texts, text[3]),
            .seq_len = json_integer_value(json_object_get(j, "seq_len")),
            .isolate = json_is_true(json_object_get(j, "isolate")),
            .by = tern_ledger_text(texts, text[4]),
            .counts = json_is_true(json_object_get(j, "counts"))};
    json_decref(j);
    return good;
}

int tern_ledger_evaluated_rows(struct tern_ledger *l, struct tern_ledger_rows *out,
                               struct tern_err *err)
{
    struct tern_ledger_rows events = {0}, got = {0};

    if (tern_ledger_events(l, &events, err) < 0)
        return -1;
    for (size_t i = 0; i < events.n; i++) {
        struct tern_ledger_evaluated e;
        if (!events.events[i].kind || strcmp(events.events[i].kind, TERN_LEDGER_EVALUATED) != 0 ||
            !read_event(&events.events[i], &got.texts, &e))
            continue;
        struct tern_ledger_evaluated *row = tern_ledger_rows_add(&got, sizeof *row, ROWS_MAX, err);
        if (!row) {
            tern_ledger_rows_free(&got);
            tern_ledger_rows_free(&events);
            return -1;
        }
        *row = e;
    }
    tern_ledger_rows_free(&events);
    *out = got;
    return 0;
}

const struct tern_ledger_evaluated *tern_ledger_evaluated_of(const struct tern_ledger_rows *rows,
                                                             const struct tern_ledger_eval *e)
{
    for (size_t i = rows->n; i-- > 0;) {
        const struct tern_ledger_evaluated *v = &rows->evaluated[i];
        if (v->counts && v->eval.step == e->step && v->eval.attempt == e->attempt &&
            strcmp(v->eval.set, e->set) == 0 &&
            (v->eval.nll == e->nll || (isnan(v->eval.nll) && isnan(e->nll))))
            return v;
    }
    return NULL;
}

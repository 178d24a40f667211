/* The held-out sets of tern ledger show. */
#include "cmd/ledger/show.h"

const struct tern_report_field show_eval_fields[SHOW_EVAL_FIELDS] = {
    {"step", "of the parameters", true},
    {"set", "held-out set", false},
    {"ppl", "perplexity per token", true},
    {"ppl_byte", "perplexity per byte of text", true},
    {"nll", "negative log-likelihood, nats, summed", true},
    {"tokens", "predicted", true},
    {"bytes", "of text they stand for", true},
    {"attempt", "that measured it, or made the checkpoint that was evaluated", true},
    {"effective", "no: superseded by a later attempt", false},
    {"time", "when", false},
    {"by", "tern eval that evaluated the checkpoint; empty: the run itself", false},
    {"precision", "in which tern eval computed", false},
    {"checkpoint", "SHA-256 of the manifest of the checkpoint that tern eval evaluated", false},
    {"data", "SHA-256 of the header of the token set that it evaluated it on", false},
};

int show_evals(const struct tern_ledger_rows *rows, const struct tern_ledger_rows *evaluated,
               struct tern_err *err)
{
    struct show_cells t = {.fields = show_eval_fields, .n_fields = SHOW_EVAL_FIELDS};
    bool beside = false;

    for (size_t i = 0; i < rows->n; i++) {
        const struct tern_ledger_eval *e = &rows->evals[i];
        const struct tern_ledger_evaluated *v = tern_ledger_evaluated_of(evaluated, e);
        beside |= v != NULL;
        show_cell_int(&t, e->step, -1);
        show_cell_text(&t, e->set);
        show_cell_real(&t, e->ppl_token, e->tokens > 0);
        show_cell_real(&t, e->ppl_byte, e->bytes > 0);
        show_cell_real(&t, e->nll, true);
        show_cell_int(&t, e->tokens, 0);
        show_cell_int(&t, e->bytes, 0);
        show_cell_int(&t, e->attempt, -1);
        show_cell_text(&t, e->effective ? "yes" : "no");
        show_cell_time(&t, e->wall_ns);
        show_cell_text(&t, v ? v->by : NULL);
        show_cell_text(&t, v ? v->precision : NULL);
        show_cell_text(&t, v ? v->checkpoint_sha256 : NULL);
        show_cell_text(&t, v ? v->set_sha256 : NULL);
    }
    return show_table(&t,
                      beside && !show.parsable ? "step,set,ppl,ppl_byte,tokens,attempt,effective,by"
                                               : "step,set,ppl,ppl_byte,tokens,attempt,effective",
                      "set,by", err);
}

json_t *show_json_eval(const struct tern_ledger_eval *e, const struct tern_ledger_rows *evaluated)
{
    const struct tern_ledger_evaluated *v = tern_ledger_evaluated_of(evaluated, e);
    json_t *j = json_object();

    json_object_set_new(j, "step", json_integer(e->step));
    json_object_set_new(j, "set", show_json_text(e->set));
    tern_json_set_real(j, "ppl", "ppl_class", e->ppl_token);
    tern_json_set_real(j, "ppl_byte", "ppl_byte_class", e->ppl_byte);
    tern_json_set_real(j, "nll", "class", e->nll);
    if (e->tokens <= 0)
        json_object_set_new(j, "ppl_class", json_null());
    if (e->bytes <= 0)
        json_object_set_new(j, "ppl_byte_class", json_null());
    json_object_set_new(j, "tokens", json_integer(e->tokens));
    json_object_set_new(j, "bytes", json_integer(e->bytes));
    json_object_set_new(j, "attempt", json_integer(e->attempt));
    json_object_set_new(j, "effective", json_boolean(e->effective));
    json_object_set_new(j, "time", show_json_time(e->wall_ns));
    if (v) {
        json_object_set_new(j, "by", show_json_text(v->by));
        json_object_set_new(j, "precision", show_json_text(v->precision));
        json_object_set_new(j, "checkpoint_sha256", show_json_text(v->checkpoint_sha256));
        json_object_set_new(j, "set_sha256", show_json_text(v->set_sha256));
    }
    return j;
}

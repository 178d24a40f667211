/* tern eval: perplexity of a checkpoint, or of all of a run, on the recipe's held-out sets. */
#include "cmd/eval/eval.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/inputs/inputs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct tern_opt opts[] = {
    {"checkpoint", 'c', TERN_OPT_TEXT, "PATH", "latest", .to.text = &eval.checkpoint,
     .help = "a checkpoint or a Hugging Face folder; latest: the newest of checkpoint.dir; best: "
             "of its best evaluation (evaluate.stop)"},
    {"checkpoints", 0, TERN_OPT_TEXT, "WHICH", .to.text = &eval.checkpoints,
     .help = "checkpoints of the run, each recorded in the ledger: all, best, latest, a step, or "
             "steps A..B"},
    {"again", 0, TERN_OPT_FLAG, .to.flag = &eval.again,
     .help = "with --checkpoints, also those that the ledger has: of the same weights, set and "
             "precision"},
    {"data", 0, TERN_OPT_LIST, "NAME=FILE", .to.list = &eval.data,
     .help = "a token set besides the recipe's held-out sets; may be given again"},
    {"choices", 0, TERN_OPT_TEXT, "FILE", .to.text = &eval.choices,
     .help = "multiple choice: items of this JSONL file, by the model's likelihoods"},
    {"tokenizer", 't', TERN_OPT_TEXT, "PATH", .to.text = &eval.tokenizer,
     .help = "with --choices, a tokenizer; default: the one in MODEL"},
    {"delimiter", 0, TERN_OPT_TEXT, "TEXT", .to.text = &eval.delimiter,
     .help = "with --choices, what stands between context and choice; default: a blank"},
    {"bos", 0, TERN_OPT_FLAG, .to.flag = &eval.bos,
     .help = "with --choices, put BOS before each context; default: as the tokenizer does"},
    {"no-bos", 0, TERN_OPT_FLAG, .to.flag = &eval.no_bos, .help = "or do not"},
    {"ledger", 'l', TERN_OPT_TEXT, "DIR", .env = "TERN_LEDGER", .to.text = &eval.ledger,
     .help = "the ledger's folder, for RUN; default: that of the site settings, else ./ledger"},
    {"ranks", 0, TERN_OPT_INT, "N", .to.integer = &eval.ranks,
     .help = "so many ranks on this machine; in a Slurm job: srun --mpi=pmix tern eval"},
    {"only", 0, TERN_OPT_FLAG, .to.flag = &eval.only,
     .help = "leave out the model that the recipe begins from"},
    {"set", 0, TERN_OPT_LIST, "KEY=VALUE", .to.list = &eval.overrides,
     .help = "change a key of the recipe; may be given again"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &eval.json, .help = "print JSON"},
    {0},
};

/* Evaluate the weights at `path` on every set: out [n_sets]. */
static int evaluate(const struct eval_job *j, const char *path, struct tern_infer_eval *out,
                    struct tern_err *err)
{
    int unread;
    struct tern_llama *m = eval_job_load(j, path, &unread, err);
    int rc = m ? 0 : -1;

    for (size_t i = 0; i < j->n_sets && rc == 0; i++)
        rc = eval_job_measure(j, m, i, &out[i], err);
    tern_progress_end();
    tern_llama_free(m);
    return rc;
}

/* The path of --checkpoint, malloc'ed. */
static char *resolve(const struct tern_recipe *r, struct tern_err *err)
{
    const bool word =
        strcmp(eval.checkpoint, "latest") == 0 || strcmp(eval.checkpoint, "best") == 0;
    char *path = NULL, *typed = word ? tern_fs_join(r->checkpoint.dir, eval.checkpoint)
                                     : tern_strdup(eval.checkpoint);

    tern_ckpt_resolve(typed, &path, err);
    free(typed);
    return path;
}

static int print(const struct eval_job *j, const struct tern_infer_eval *before,
                 const struct tern_infer_eval *after, const char *path, struct tern_err *err)
{
    json_t *all = json_object();

    json_object_set_new(all, "checkpoint", tern_json_text(path));
    if (!eval.json) {
        printf("%-16s %12s  %22s  %22s\n", "", "", "perplexity a token", "perplexity a byte");
        printf("%-16s %12s  %10s %11s  %10s %11s\n", "set", "tokens", before ? "before" : "",
               "after", before ? "before" : "", "after");
    }
    for (size_t i = 0; i < j->n_sets; i++) {
        const struct tern_infer_eval *b = before ? &before[i] : NULL, *a = &after[i];
        json_t *row = json_object();
        if (b)
            json_object_set_new(row, "before", eval_json(b));
        json_object_set_new(row, "after", eval_json(a));
        json_object_set_new(all, j->sets[i].name, row);
        if (eval.json)
            continue;
        char ppl[2][24] = {"", ""};
        if (b) {
            snprintf(ppl[0], sizeof ppl[0], "%.2f", eval_per_token(b));
            if (b->bytes)
                snprintf(ppl[1], sizeof ppl[1], "%.3f", eval_per_byte(b));
        }
        char after_byte[24] = "";
        if (a->bytes)
            snprintf(after_byte, sizeof after_byte, "%.3f", eval_per_byte(a));
        printf("%-16s %12llu  %10s %11.2f  %10s %11s\n", j->sets[i].name,
               (unsigned long long)a->tokens, ppl[0], eval_per_token(a), ppl[1], after_byte);
    }
    int rc = eval.json ? tern_json_print(stdout, all, err) : 0;
    json_decref(all);
    return rc;
}

/* The recipe's model and one checkpoint, side by side. */
static int eval_one(struct eval_job *j, struct tern_err *err)
{
    const struct tern_recipe *r = j->recipe;
    struct tern_infer_eval *before = tern_alloc(j->n_sets, sizeof *before, "results", err);
    struct tern_infer_eval *after = tern_alloc(j->n_sets, sizeof *after, "results", err);
    const bool first = eval_job_first(j);
    char *path = first ? resolve(r, err) : NULL;
    char *from = first && !eval.only ? tern_inputs_model_from(r) : NULL;
    int rc = before && after && (path || !first) ? 0 : -1;

    if (from && !tern_fs_exists(from)) {
        free(from);
        from = NULL;
    }
    if (eval_job_agree(j, rc, err) < 0 || eval_job_share_path(j, &path, err) < 0 ||
        eval_job_share_path(j, &from, err) < 0 || (from && evaluate(j, from, before, err) < 0) ||
        evaluate(j, path, after, err) < 0)
        rc = -1;
    if (rc == 0 && first)
        rc = print(j, from ? before : NULL, after, path, err);
    free(path);
    free(from);
    free(before);
    free(after);
    return rc;
}

static int check_options(struct tern_err *err)
{
    if (eval.again && !eval.checkpoints)
        return tern_err_set(err, TERN_USAGE, "--again is about --checkpoints");
    if (eval.choices && (eval.checkpoints || eval.data.n || eval.overrides.n || eval.only))
        return tern_err_set(err, TERN_USAGE,
                            "--choices takes a model's folder: no --checkpoints, --data, --set or "
                            "--only");
    if (!eval.choices && (eval.tokenizer || eval.bos || eval.no_bos))
        return tern_err_set(err, TERN_USAGE, "--tokenizer, --bos and --no-bos are about --choices");
    if (eval.bos && eval.no_bos)
        return tern_err_set(err, TERN_USAGE, "--bos and --no-bos: one of them");
    return 0;
}

static int run(int n, char **args, struct tern_err *err)
{
    struct tern_fabric_options fabric = {0};
    struct eval_job j = {0};
    int status;

    (void)n;
    if (check_options(err) < 0)
        return -1;
    if (eval.ranks > 1) {
        int rc = eval_start_ranks((int)(eval.ranks < INT32_MAX ? eval.ranks : INT32_MAX), &fabric,
                                  &status, err);
        if (rc)
            return rc < 0 ? -1 : status;
    }
    int rc = eval.choices ? eval_choices(&j, args[0], &fabric, err)
                          : eval_job_open(&j, args[0], &fabric, err);
    if (rc == 0 && !eval.choices)
        rc = eval.checkpoints ? eval_checkpoints(&j, err) : eval_one(&j, err);
    /* What keeps a command from beginning keeps all of its ranks: one of them tells. */
    if (rc < 0 && !j.fabric && fabric.rank > 0 && err->code == TERN_USAGE)
        rc = TERN_USAGE;
    eval_job_close(&j);
    return rc;
}

static const struct tern_cmd cmd = {
    .name = "eval",
    .args = "RECIPE | RUN | MODEL",
    .summary = "perplexity of checkpoints on held-out sets, and multiple choice",
    .about =
        "Evaluates the model that the recipe begins from and a checkpoint of its run, row by "
        "row of batch.seq_len tokens. Runs on one machine if you call it directly, and on all "
        "ranks of a job with `srun --mpi=pmix tern eval RECIPE`.\n\n"
        "With --checkpoints, evaluates those of a run, which RUN (a name or id in the ledger) or "
        "its recipe's file names. It records each value in the ledger, with the digests of weights "
        "and set, the precision and the tern that evaluated it. `tern ledger show`, `plot "
        "--held-out` and `compare` have them. A value that the run measured itself at a step stays "
        "the run's. With another precision, batch.seq_len or data.isolate (--set), values are "
        "recorded, and not shown there. Values that are recorded are not evaluated again, so an "
        "interrupted command goes on where it was. Their weights are not read again either, so "
        "damage to them is not seen (--again reads them). A checkpoint that cannot be read is "
        "named and left out; the exit status is then 1. One that is removed before its turn is "
        "named, too; the status is 1 where nothing is left.\n\nWith --choices, MODEL is a "
        "checkpoint or a Hugging Face folder. An item of FILE is a line: {\"context\": TEXT, "
        "\"choices\": [TEXT, ...], \"answer\": N}. The context may be called query, question or "
        "ctx, and the choices endings. The answer (from 0, or a label of choices {\"text\": [...], "
        "\"label\": [...]}) may be called gold, label or answerKey. acc counts the items whose "
        "answer is the most likely choice; acc_norm divides log-likelihoods by the choice's "
        "characters, acc_bytes by its bytes in UTF-8. Tokens, values and standard errors are those "
        "of lm-eval 0.4.13. --json has each log-likelihood.",
    .examples = "  tern eval run.yaml\n  srun --mpi=pmix tern eval run.yaml --checkpoint "
                "checkpoints/step-00000100\n"
                "  tern eval pubmed-cpt --checkpoints all --ranks 4\n"
                "  tern eval pubmed-cpt --checkpoints 1000..2000 --data law=law-test.tds\n"
                "  tern eval checkpoints/latest --choices arc.jsonl --ranks 4\n",
    .opts = opts,
    .args_min = 1,
    .args_max = 1,
    .run = run,
};

int main(int argc, char **argv)
{
    return tern_cmd_main(&cmd, argc, argv);
}

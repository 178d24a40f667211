/* tern generate: a model goes on with prompts. */
#include "cmd/cmd.h"
#include "cmd/generate/generate.h"

#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/convert/convert.h"
#include "core/infer/infer.h"
#include "core/tensor/tensor.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct generate_source source;
static struct tern_opt_list stops;
static const char *tokenizer;
static int64_t max_tokens, top_k, seed, batch, threads;
static double temperature, top_p;
static bool json, print_ids, logprobs, ignore_eos;
static volatile sig_atomic_t stopped;

static const struct tern_opt opts[] = {
    {"prompt", 'p', TERN_OPT_LIST, "TEXT", .to.list = &source.texts,
     .help = "the text to go on with; may be given again"},
    {"prompt-file", 'f', TERN_OPT_LIST, "FILE", .to.list = &source.files,
     .help = "a file is a prompt, but for a newline at its end; -: standard input, which is read "
             "if there is no other prompt"},
    {"chat", 0, TERN_OPT_TEXT, "TEXT", .to.text = &source.chat,
     .help = "a user's message, put into --template"},
    {"system", 0, TERN_OPT_TEXT, "TEXT", .to.text = &source.system,
     .help = "with --chat: the system's message"},
    {"from", 0, TERN_OPT_TEXT, "FILE", .to.text = &source.from,
     .help =
         "records of instruct data, put into --template up to their answers: prompt, answer and "
         "reference are printed"},
    {"row", 0, TERN_OPT_TEXT, "N[..M]", .to.text = &source.rows,
     .help = "with --from: these records, counted from 0; default: 0"},
    {"template", 0, TERN_OPT_TEXT, "TEMPLATE", .to.text = &source.template,
     .help = "of tern data template, or a file; default for --chat: llama3-chat or llama2-chat, by "
             "the tokenizer"},
    {"prompt-ids", 0, TERN_OPT_TEXT, "FILE", .to.text = &source.ids,
     .help = "a prompt is a line of ids; with --ids no tokenizer is needed"},
    {"tokenizer", 't', TERN_OPT_TEXT, "PATH", .to.text = &tokenizer,
     .help = "default: the model's, or what its run named"},
    {"max-tokens", 'n', TERN_OPT_INT, "N", "128", .to.integer = &max_tokens,
     .help = "end after so many tokens"},
    {"temperature", 0, TERN_OPT_REAL, "T", "0", .to.real = &temperature,
     .help = "divide logits by T and draw; 0: take the most probable token"},
    {"top-k", 0, TERN_OPT_INT, "K", "0", .to.integer = &top_k,
     .help = "draw from the K most probable tokens; 0: from all"},
    {"top-p", 0, TERN_OPT_REAL, "P", "1", .to.real = &top_p,
     .help = "after that, from the most probable ones that have this share together"},
    {"seed", 0, TERN_OPT_INT, "N", "0", .to.integer = &seed,
     .help = "of the draws: the same seed is the same text"},
    {"batch", 'b', TERN_OPT_INT, "N", "1", .to.integer = &batch, .help = "prompts at a time"},
    {"stop", 0, TERN_OPT_LIST, "TEXT", .to.list = &stops,
     .help = "end before this text; may be given again"},
    {"ignore-eos", 0, TERN_OPT_FLAG, .to.flag = &ignore_eos,
     .help = "do not end at the tokens that end a text"},
    {"bos", 0, TERN_OPT_FLAG, .to.flag = &source.bos,
     .help = "put BOS before each prompt; default: "
             "as the tokenizer says"},
    {"no-bos", 0, TERN_OPT_FLAG, .to.flag = &source.no_bos,
     .help = "put none, as for a model of token sets that have none"},
    {"ids", 0, TERN_OPT_FLAG, .to.flag = &print_ids,
     .help = "print ids, not text; with --json those of the prompt, too"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &json, .help = "print a line of JSON a prompt"},
    {"logprobs", 0, TERN_OPT_FLAG, .to.flag = &logprobs,
     .help = "with --json: the logarithm of each token's probability, without --temperature"},
    {"threads", 0, TERN_OPT_INT, "N", "0", .to.integer = &threads,
     .help = "0: OMP_NUM_THREADS, or this process's CPUs"},
    {0},
};

/* The first one ends the generation, the second one the process. */
static void interrupt(int signal_)
{
    stopped = signal_;
    signal(signal_, SIG_DFL);
}

static int check_options(struct tern_err *err)
{
    if (temperature < 0 || temperature > 1e6)
        return tern_err_set(err, TERN_USAGE, "--temperature %g: 0 or more is wanted", temperature);
    if (!(top_p > 0 && top_p <= 1))
        return tern_err_set(err, TERN_USAGE, "--top-p %g: a share above 0, at most 1, is wanted",
                            top_p);
    if (max_tokens < 1 || max_tokens > INT32_MAX / 2)
        return tern_err_set(err, TERN_USAGE, "--max-tokens %lld: 1 to %d is wanted",
                            (long long)max_tokens, INT32_MAX / 2);
    if (batch < 1 || batch > 4096)
        return tern_err_set(err, TERN_USAGE, "--batch %lld: 1 to 4096 is wanted", (long long)batch);
    if (threads > 4096 || top_k > INT32_MAX)
        return tern_err_set(err, TERN_USAGE, "--threads, --top-k: the number is too large");
    for (size_t i = 0; i < stops.n; i++)
        if (!*stops.values[i])
            return tern_err_set(err, TERN_USAGE, "--stop: an empty text would end every answer");
    if (logprobs && !json)
        return tern_err_set(err, TERN_USAGE, "--logprobs is for --json");
    if (stops.n && print_ids)
        return tern_err_set(err, TERN_USAGE, "--stop is of text, and --ids prints none");
    return 0;
}

/* The folder of checkpoints means its newest one.  malloc'ed. */
static char *locate(const char *typed, struct tern_err *err)
{
    struct stat st;
    char *path = NULL;
    uint64_t step;

    if (tern_ckpt_is_word(typed)) {
        tern_ckpt_resolve(typed, &path, err);
        return path;
    }
    if (stat(typed, &st) < 0 || !S_ISDIR(st.st_mode)) {
        tern_err_set(err, TERN_USAGE,
                     "%s: is %s: a checkpoint is wanted, a folder of them (checkpoint.dir of a "
                     "recipe), or one of weights",
                     typed, tern_fs_exists(typed) ? "no folder" : "not there");
        return NULL;
    }
    if (!tern_ckpt_is_ours(typed) && !tern_convert_has_config(typed) &&
        tern_ckpt_latest(typed, &path, &step, err) < 0)
        return NULL;
    return path ? path : tern_strdup(typed);
}

/* The tokenizer of the model at `path`; *ret NULL where none is needed and there is none. */
static int load_tokenizer(const struct tern_infer_source *from, const char *path,
                          struct tern_token **ret, struct tern_err *err)
{
    static const char *const files[] = {"tokenizer.model", "tokenizer.json"};
    const bool needed = !(source.ids && print_ids);
    const char *named = json_string_value(json_object_get(tern_ckpt_meta(from->ckpt), "tokenizer"));
    bool there = tokenizer != NULL;

    *ret = NULL;
    for (size_t i = 0; i < 2 && !there; i++) {
        char *file = tern_fs_join(path, files[i]);
        there = tern_fs_exists(file);
        free(file);
    }
    const char *use = tokenizer                                  ? tokenizer
                      : there                                    ? path
                      : named && *named && tern_fs_exists(named) ? named
                                                                 : NULL;
    if (!use && needed)
        return tern_err_set(err, TERN_USAGE,
                            "%s: has no tokenizer beside it: say --tokenizer, or give --prompt-ids "
                            "with --ids",
                            path);
    *ret = use && (needed || tokenizer) ? tern_token_load(use, err) : NULL;
    return *ret || !use || !(needed || tokenizer) ? 0 : -1;
}

/* Are all weights stored in bf16?  They are kept so then, without loss, in half the memory. */
static bool all_bf16(const struct tern_infer_source *s)
{
    struct tern_ckpt_info info;
    struct tern_model_tensor t;
    bool all = s->adapters.rank == 0;

    for (size_t i = 0; all && i < tern_model_tensors(&s->config); i++) {
        tern_model_tensor(&s->config, i, &t);
        char *name = tern_strf("%s%s", s->prefix, t.name);
        all = tern_ckpt_find(s->ckpt, name, &info) && info.type == TERN_CKPT_BF16;
        free(name);
    }
    return all;
}

/* Do the prompts fit?  *ret_positions: of a row. */
static int check_prompts(const struct generate_prompts *p, const struct tern_model_config *c,
                         int *ret_positions, struct tern_err *err)
{
    int64_t longest = 0;

    for (size_t i = 0; i < p->n; i++) {
        if (p->v[i].n >= c->max_position)
            return tern_err_set(
                err, TERN_USAGE,
                "prompt %llu has %d tokens, and the model was made for %d positions "
                "(max_position_embeddings): no token can follow",
                (unsigned long long)p->v[i].number, p->v[i].n, c->max_position);
        for (int k = 0; k < p->v[i].n; k++)
            if (p->v[i].ids[k] >= c->vocab)
                return tern_err_set(err, TERN_USAGE,
                                    "prompt %llu: id %d is outside the model's vocabulary of %d",
                                    (unsigned long long)p->v[i].number, p->v[i].ids[k], c->vocab);
        longest = p->v[i].n > longest ? p->v[i].n : longest;
    }
    *ret_positions =
        (int)(longest + max_tokens < c->max_position ? longest + max_tokens : c->max_position);
    return 0;
}

static struct tern_llama *load(const struct tern_infer_source *from, const char *path, int rows,
                               int positions, struct tern_err *err)
{
    const struct tern_llama_options o = {
        .config = &from->config, .max_batch = 1, .seq_len = 1, .bf16 = all_bf16(from)};
    struct tern_llama_bytes model;
    uint64_t cache, rest = tern_infer_generate_bytes(&from->config, rows, positions, 0, &cache);
    char text[3][32];
    struct tern_llama *m = NULL;

    if (tern_llama_bytes(&o, 0, &model, err) < 0)
        return NULL;
    rest += model.activations;
    if (generate_check_memory(model.params, cache, rest, err) < 0)
        return NULL;
    tern_info("weights %s%s, keys and values %s (%d row%s of %d positions), the rest %s",
              tern_str_bytes(text[0], sizeof text[0], model.params), o.bf16 ? " in bf16" : "",
              tern_str_bytes(text[1], sizeof text[1], cache), rows, rows > 1 ? "s" : "", positions,
              tern_str_bytes(text[2], sizeof text[2], rest));
    tern_progress_begin("parameters", "%s", path);
    m = tern_llama_open(&o, err);
    if (m && tern_infer_read(from, m, err) < 0) {
        tern_llama_free(m);
        m = NULL;
    }
    tern_progress_end();
    return m;
}

static void tell_rates(const struct tern_infer_rates *r)
{
    char read[32], made[32];

    tern_info("prompts: %llu tokens in %s, %.1f a second; then %llu in %s, %.1f a second",
              (unsigned long long)r->read, tern_str_seconds(read, sizeof read, r->read_s),
              r->read_s > 0 ? (double)r->read / r->read_s : 0.0, (unsigned long long)r->made,
              tern_str_seconds(made, sizeof made, r->made_s),
              r->made_s > 0 ? (double)r->made / r->made_s : 0.0);
}

/* The prompts' tokens, printed. */
static int generate(struct tern_llama *m, const struct generate_prompts *prompts,
                    struct tern_infer_generation *g, const struct tern_token *token,
                    struct tern_err *err)
{
    const struct generate_output output = {.prompts = prompts,
                                           .token = print_ids ? NULL : token,
                                           .json = json,
                                           .ids = print_ids,
                                           .logprobs = logprobs,
                                           .headings =
                                               source.from || (!print_ids && prompts->n > 1),
                                           .stops = stops.values,
                                           .n_stops = stops.n};
    struct tern_infer_prompt *in = tern_alloc(prompts->n, sizeof *in, "prompts", err);
    struct generate_printer *printer = generate_printer_new(&output, err);
    struct tern_infer_rates rates = {0};
    int rc = -1;

    if (in && printer) {
        for (size_t i = 0; i < prompts->n; i++)
            in[i] = (struct tern_infer_prompt){prompts->v[i].ids, prompts->v[i].n, 0};
        g->ctx = printer;
        g->logprobs = logprobs;
        g->token = generate_printer_token;
        g->end = generate_printer_end;
        rc = tern_infer_generate(m, g, in, prompts->n, &rates, err);
        if (rc > 0)
            generate_printer_finish(printer);
        if (rc >= 0)
            tell_rates(&rates);
    }
    generate_printer_free(printer);
    free(in);
    return rc > 0 ? 128 + (int)stopped : rc;
}

static int run(int n, char **args, struct tern_err *err)
{
    struct tern_infer_source weights = {0};
    struct tern_token *token = NULL;
    struct generate_prompts prompts = {0};
    struct tern_llama *m = NULL;
    int32_t eos[GENERATE_ENDS];
    struct tern_infer_generation g = {.eos = eos, .stop = &stopped};
    int rc = -1;

    (void)n;
    if (check_options(err) < 0)
        return -1;
    char *path = locate(args[0], err);
    if (!path)
        return -1;
    if (tern_infer_open(path, &weights, err) < 0)
        goto out;
    if (load_tokenizer(&weights, path, &token, err) < 0 ||
        generate_prompts_read(&source, token, &prompts, err) < 0 ||
        check_prompts(&prompts, &weights.config, &g.positions, err) < 0 ||
        (g.n_eos = generate_ends(path, &weights.config, token, prompts.end, eos, err)) < 0)
        goto out;
    g.n_eos = ignore_eos ? 0 : g.n_eos;
    g.max_tokens = (int)max_tokens;
    g.batch = batch < (int64_t)prompts.n ? (int)batch : (int)prompts.n;
    g.sampling = (struct tern_infer_sampling){temperature, (int)top_k, top_p, (uint64_t)seed};
    if (tern_tensor_start((int)threads, 1, err) < 0)
        goto out;
    m = load(&weights, path, g.batch, g.positions, err);
    if (!m)
        goto out;
    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    rc = generate(m, &prompts, &g, token, err);
out:
    tern_llama_free(m);
    generate_prompts_free(&prompts);
    tern_token_free(token);
    tern_infer_close(&weights);
    free(path);
    return rc;
}

static const struct tern_cmd cmd = {
    .name = "generate",
    .args = "MODEL",
    .summary = "text that a checkpoint, or a Hugging Face folder, goes on with",
    .about =
        "MODEL is a folder of checkpoints (its newest one is taken), DIR/latest, DIR/best, one "
        "checkpoint, or a folder of Hugging Face or Meta. A checkpoint's adapters are put into its "
        "weights. Weights in bf16 are kept so; everything is computed in float.\n\n"
        "The text is what follows the prompt. It ends at an EOS, at the special token that ends an "
        "answer of --template, at --stop and after --max-tokens. It also ends where the model's "
        "positions are full. The EOS is eos_token_id of generation_config.json (a number or a "
        "list), else of config.json, else the tokenizer's.\n\nWithout --temperature the most "
        "probable token is taken, the first of equals. With it, the k-th token of every prompt is "
        "drawn by the k-th number of the seed (SplitMix64's finaliser in three rounds). Threads "
        "and --batch change no token.\n\nPrompts are printed in their order; with several, or with "
        "--from, under headings. The rates of reading prompts and of making tokens are logged at "
        "the end. Ctrl-C ends with what is there, and status 130; a second one at once.",
    .examples =
        "  tern generate checkpoints -p 'Insulin is'\n"
        "  tern generate models/Llama-3.2-1B-Instruct --chat 'Name three rivers.' -n 300\n"
        "  tern generate checkpoints/best --from test.jsonl --row 0..9 --template dolly -b 8\n"
        "  tern generate models/my-llama -f notes.txt --temperature 0.8 --top-p 0.95 --seed "
        "1\n",
    .opts = opts,
    .args_min = 1,
    .args_max = 1,
    .run = run,
};

/* A token meets the threads a hundred times.  By default one that waits spins for 5 ms, in the way
 * of the thread that it waits for, where other programs run.  That was measured to be 4 to 15 times
 * as slow. libgomp reads its variables before main, so the program begins anew with them. */
static void spin_briefly(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT"))
        return;
    setenv("GOMP_SPINCOUNT", "1000", 1);
    execv("/proc/self/exe", argv); /* where it fails, all is slower and right */
}

int main(int argc, char **argv)
{
    spin_briefly(argv);
    return tern_cmd_main(&cmd, argc, argv);
}

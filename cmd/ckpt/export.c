/* tern ckpt export and merge: a checkpoint's model for other programs. */
#include "cmd/ckpt/export.h"

#include "core/base/str.h"
#include "core/ckpt/ckpt.h"
#include "core/convert/convert.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ export */

static struct {
    const char *out, *dtype, *tokenizer, *max_shard, *base;
} ex; /* of merge, too */

static volatile sig_atomic_t interrupted;

static void interrupt(int sig)
{
    interrupted = sig;
}

static int parse_dtype(const char *word, enum tern_convert_dtype *dtype, struct tern_err *err)
{
    static const char *const words[] = {
        [TERN_CONVERT_AS_IS] = "as-is",
        [TERN_CONVERT_F32] = "f32",
        [TERN_CONVERT_BF16] = "bf16",
        [TERN_CONVERT_F16] = "f16",
    };

    for (int i = 0; i < 4; i++) {
        if (strcmp(words[i], word) == 0) {
            *dtype = (enum tern_convert_dtype)i;
            return 0;
        }
    }
    return tern_err_set(err, TERN_USAGE, "--dtype: '%s' is none of as-is, f32, bf16, f16", word);
}

/* "5GB" is decimal, as on the Hub; "5G" and "5GiB" are binary, as everywhere in tern. */
static int parse_max_shard(const char *text, uint64_t *bytes, struct tern_err *err)
{
    static const struct {
        const char *end;
        uint64_t unit;
    } decimal[] = {{"GB", 1000000000}, {"MB", 1000000}, {"KB", 1000}};
    int64_t n;

    for (size_t i = 0; i < sizeof decimal / sizeof *decimal; i++) {
        if (!tern_str_ends(text, decimal[i].end))
            continue;
        char *digits = tern_strf("%.*s", (int)(strlen(text) - 2), text);
        int rc = tern_str_int(digits, 1, 1000000, &n);
        free(digits);
        if (rc == 0) {
            *bytes = (uint64_t)n * decimal[i].unit;
            return 0;
        }
    }
    if (tern_str_size(text, bytes) < 0 || *bytes == 0)
        return tern_err_set(err, TERN_USAGE, "--max-shard: '%s' is no size such as 5GB or 512MiB",
                            text);
    return 0;
}

static int convert(const char *typed, bool merge, struct tern_err *err)
{
    struct tern_convert_hf o = {
        .files_from = ex.tokenizer, .merge = merge, .base = ex.base, .stop = &interrupted};
    struct tern_convert_out done;
    char bytes[32], *path;

    if (!ex.out)
        return tern_err_set(err, TERN_USAGE, "--out: say where to write");
    if (parse_dtype(ex.dtype, &o.dtype, err) < 0 ||
        parse_max_shard(ex.max_shard, &o.max_shard_bytes, err) < 0)
        return -1;
    if (tern_ckpt_resolve(typed, &path, err) < 0)
        return -1;
    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    int rc = tern_convert_to_hf(path, ex.out, &o, &done, err);
    free(path);
    if (rc < 0)
        return interrupted ? (fprintf(stderr, "tern ckpt: %s\n", err->text), 128 + interrupted)
                           : -1;
    fprintf(stderr, "%s: %u tensors%s, %s in %u file%s%s\n", ex.out, done.tensors,
            done.adapters ? " of adapters (`tern ckpt merge` writes the whole model)" : "",
            tern_str_bytes(bytes, sizeof bytes, done.bytes), done.shards,
            done.shards > 1 ? "s" : "",
            done.tokenizer || done.adapters ? "" : "; no tokenizer was found (see --tokenizer)");
    return 0;
}

static int export_run(int n_args, char **args, struct tern_err *err)
{
    (void)n_args;
    return convert(args[0], false, err);
}

static const struct tern_opt export_opts[] = {
    {"out", 'o', TERN_OPT_TEXT, "DIR", .to.text = &ex.out, .help = "the new folder"},
    {"dtype", 0, TERN_OPT_TEXT, "TYPE", "as-is", .to.text = &ex.dtype,
     .help = "element type of the weights: as-is, f32, bf16, f16"},
    {"max-shard", 0, TERN_OPT_TEXT, "BYTES", "5GB", .to.text = &ex.max_shard,
     .help = "begin a new file before one grows beyond this"},
    {"tokenizer", 0, TERN_OPT_TEXT, "PATH", .to.text = &ex.tokenizer,
     .help = "take the tokenizer's files from this folder; else from the checkpoint"},
    {"base", 0, TERN_OPT_TEXT, "NAME", .to.text = &ex.base,
     .help =
         "of adapters: what their config names as base model; default: the recipe's model.from"},
    {0},
};

const struct tern_cmd ckpt_export_cmd = {
    .name = "export",
    .args = "PATH",
    .args_min = 1,
    .args_max = 1,
    .summary = "write a checkpoint's model as a Hugging Face folder",
    .about = "Writes a folder that transformers, vLLM and llama.cpp load: config.json, the "
             "tokenizer's files, and safetensors, in one file or several with an index.  If the "
             "run trained adapters (LoRA, DoRA), this command writes only the adapters, as PEFT "
             "does: adapter_model.safetensors and adapter_config.json.  The folder appears whole "
             "or not at all.  PATH is a checkpoint, DIR/latest or DIR/best.",
    .examples = "  tern ckpt export checkpoints/latest -o out-hf --dtype bf16\n",
    .opts = export_opts,
    .run = export_run,
};

/* ------------------------------------------------------------------ merge */

static int merge_run(int n_args, char **args, struct tern_err *err)
{
    (void)n_args;
    return convert(args[0], true, err);
}

static const struct tern_opt merge_opts[] = {
    {"out", 'o', TERN_OPT_TEXT, "DIR", .to.text = &ex.out, .help = "the new folder"},
    {"base", 0, TERN_OPT_TEXT, "DIR", .to.text = &ex.base,
     .help = "take the weights from this Hugging Face folder; else from the checkpoint"},
    {"dtype", 0, TERN_OPT_TEXT, "TYPE", "as-is", .to.text = &ex.dtype,
     .help = "element type of the weights: as-is (as they are before), f32, bf16, f16"},
    {"max-shard", 0, TERN_OPT_TEXT, "BYTES", "5GB", .to.text = &ex.max_shard,
     .help = "begin a new file before one grows beyond this"},
    {"tokenizer", 0, TERN_OPT_TEXT, "PATH", .to.text = &ex.tokenizer,
     .help = "take the tokenizer's files from this folder; else from the checkpoint"},
    {0},
};

const struct tern_cmd ckpt_merge_cmd = {
    .name = "merge",
    .args = "PATH",
    .args_min = 1,
    .args_max = 1,
    .summary = "put a checkpoint's adapters into its weights: a Hugging Face folder",
    .about = "Writes the whole model of a run that trained adapters (LoRA, DoRA), for programs "
             "that do not know adapters. Each weight W with an adapter becomes W + scale B A; DoRA "
             "then scales it to its magnitudes. tern computes this in double precision and rounds "
             "once, to the type that it writes.  One weight is in memory at a time.  The folder "
             "appears whole or not at all.  PATH is a checkpoint, DIR/latest or DIR/best.",
    .examples = "  tern ckpt merge checkpoints/latest -o out-hf --dtype bf16\n",
    .opts = merge_opts,
    .run = merge_run,
};

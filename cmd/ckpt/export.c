/* tern ckpt export and merge: a checkpoint's model for other programs. */
#include "cmd/ckpt/export.h"

#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/ckpt/ckpt.h"
#include "core/convert/convert.h"
#include "core/convert/nxd.h"
#include "core/pytorch/pytorch.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ Hugging Face folders */

static struct {
    const char *out, *dtype, *tokenizer, *max_shard, *base, *key;
    bool verify;
} ex; /* of merge, too */

static volatile sig_atomic_t interrupted;

static void interrupt(int sig)
{
    interrupted = sig;
}

int ckpt_parse_dtype(const char *word, enum tern_convert_dtype *ret_dtype, struct tern_err *err)
{
    static const char *const words[] = {
        [TERN_CONVERT_AS_IS] = "as-is",
        [TERN_CONVERT_F32] = "f32",
        [TERN_CONVERT_BF16] = "bf16",
        [TERN_CONVERT_F16] = "f16",
    };

    for (int i = 0; i < 4; i++) {
        if (strcmp(words[i], word) == 0) {
            *ret_dtype = (enum tern_convert_dtype)i;
            return 0;
        }
    }
    return tern_err_set(err, TERN_USAGE, "--dtype: '%s' is none of as-is, f32, bf16, f16", word);
}

int ckpt_parse_max_shard(const char *text, uint64_t *ret_bytes, struct tern_err *err)
{
    static const struct {
        const char *end;
        double unit;
    } decimal[] = {{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}};
    double n;

    for (size_t i = 0; i < sizeof decimal / sizeof *decimal; i++) {
        if (!tern_str_ends(text, decimal[i].end))
            continue;
        char *digits = tern_strf("%.*s", (int)(strlen(text) - 2), text);
        const int rc = tern_str_real(digits, 0, 1e6, &n);
        free(digits);
        if (rc == 0 && n * decimal[i].unit >= 1) {
            *ret_bytes = (uint64_t)(n * decimal[i].unit);
            return 0;
        }
    }
    if (tern_str_size(text, ret_bytes) < 0 || *ret_bytes == 0)
        return tern_err_set(err, TERN_USAGE,
                            "--max-shard-size: '%s' is no size such as 5GB or 512MiB", text);
    return 0;
}

static struct {
    const char *to, *from, *config, *qkv, *hw, *files;
    int64_t tensor, pipeline, interleave, kv_replicator;
    bool xser, markers;
} nxd;

/* Words of an option, by the values that they stand for. */
static const char *const qkv_words[] = {
    [TERN_CONVERT_NXD_AUTO] = "auto",         [TERN_CONVERT_NXD_FUSED] = "fused",
    [TERN_CONVERT_NXD_SPLIT] = "split",       [TERN_CONVERT_NXD_COALESCED] = "coalesced",
    [TERN_CONVERT_NXD_SEPARATE] = "separate", NULL,
};
static const char *const hw_words[] = {
    [TERN_CONVERT_NXD_TRN1] = "trn1", [TERN_CONVERT_NXD_TRN2] = "trn2", NULL};
static const char *const files_words[] = {
    [TERN_CONVERT_NXD_V2] = "v2", [TERN_CONVERT_NXD_V1] = "v1", [TERN_CONVERT_NXD_V3] = "v3", NULL};

static int parse_word(const char *option, const char *const *words, const char *word,
                      int *ret_value, struct tern_err *err)
{
    struct tern_buf all = {0};

    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], word) == 0) {
            *ret_value = i;
            tern_buf_free(&all);
            return 0;
        }
        tern_buf_printf(&all, "%s%s", i ? ", " : "", words[i]);
    }
    tern_err_set(err, TERN_USAGE, "--%s: '%s' is none of %s", option, word, all.data);
    tern_buf_free(&all);
    return -1;
}

/* --from and --config: *ret_from is NULL where the source is no folder of NxD's. */
static int parse_from(struct tern_convert_from_nxd *from,
                      const struct tern_convert_from_nxd **ret_from, struct tern_err *err)
{
    bool is = nxd.from && strcmp(nxd.from, "nxd") == 0;
    int hw;

    if (nxd.from && !is)
        return tern_err_set(err, TERN_USAGE, "--from: '%s' is not nxd; other formats are seen",
                            nxd.from);
    if (!is && nxd.config)
        return tern_err_set(err, TERN_USAGE, "--config: goes with --from nxd alone");
    if (is && ex.key)
        return tern_err_set(err, TERN_USAGE, "--key: does not go with --from nxd");
    if (is && parse_word("hw", hw_words, nxd.hw, &hw, err) < 0)
        return -1;
    if (is)
        *from = (struct tern_convert_from_nxd){
            .config = nxd.config, .hw = (enum tern_convert_nxd_hw)hw, .stop = &interrupted};
    *ret_from = is ? from : NULL;
    return 0;
}

static int convert(const char *typed, bool merge, struct tern_err *err)
{
    struct tern_convert_from_nxd from;
    struct tern_convert_hf o = {.files_from = ex.tokenizer,
                                .merge = merge,
                                .base = ex.base,
                                .key = ex.key,
                                .verify = ex.verify,
                                .stop = &interrupted};
    struct tern_convert_out done;
    char bytes[32], *path;

    if (!ex.out)
        return tern_err_set(err, TERN_USAGE, "--out: say where to write");
    if (ckpt_parse_dtype(ex.dtype, &o.dtype, err) < 0 ||
        ckpt_parse_max_shard(ex.max_shard, &o.max_shard_bytes, err) < 0 ||
        parse_from(&from, &o.from_nxd, err) < 0)
        return -1;
    if (o.from_nxd && !o.files_from && nxd.config && !tern_str_ends(nxd.config, ".json"))
        o.files_from = nxd.config; /* the tokenizer lies beside it */
    if (tern_ckpt_resolve(typed, &path, err) < 0)
        return -1;
    tern_pytorch_stop_at(&interrupted);
    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    tern_progress_begin(/* unit= */ NULL, "%s", ex.out);
    int rc = tern_convert_to_hf(path, ex.out, &o, &done, err);
    tern_progress_end();
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

/* ------------------------------------------------------------------ to NeuronX Distributed */

static int parse_nxd(struct tern_convert_nxd *o, struct tern_err *err)
{
    const struct {
        const char *name;
        int64_t value, least;
        int *to;
    } counts[] = {{"tensor", nxd.tensor, 1, &o->tensor},
                  {"pipeline", nxd.pipeline, 1, &o->pipeline},
                  {"interleave", nxd.interleave, 1, &o->interleave},
                  {"kv-replicator", nxd.kv_replicator, 0, &o->kv_replicator}};
    int qkv, hw, files;

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (counts[i].value < counts[i].least || counts[i].value > 1024)
            return tern_err_set(err, TERN_USAGE, "--%s: must be %d to 1024", counts[i].name,
                                (int)counts[i].least);
        *counts[i].to = (int)counts[i].value;
    }
    if (parse_word("qkv", qkv_words, nxd.qkv, &qkv, err) < 0 ||
        parse_word("hw", hw_words, nxd.hw, &hw, err) < 0 ||
        parse_word("files", files_words, nxd.files, &files, err) < 0 ||
        ckpt_parse_dtype(ex.dtype, &o->dtype, err) < 0)
        return -1;
    o->qkv = (enum tern_convert_nxd_qkv)qkv;
    o->hw = (enum tern_convert_nxd_hw)hw;
    o->files = (enum tern_convert_nxd_files)files;
    o->xser = nxd.xser;
    o->verify = ex.verify;
    o->markers = nxd.markers;
    return 0;
}

/* The flags of run_llama_nxd.py that go with the folder. */
static void print_nxd(const struct tern_convert_nxd *o, const struct tern_convert_nxd_out *done)
{
    bool linear = done->qkv == TERN_CONVERT_NXD_FUSED || done->qkv == TERN_CONVERT_NXD_SPLIT;
    bool fuse = done->qkv == TERN_CONVERT_NXD_FUSED || done->qkv == TERN_CONVERT_NXD_COALESCED;
    char bytes[32];

    fprintf(stderr,
            "%s: %u ranks, %s, for --tensor_parallel_size %d --pipeline_parallel_size %d "
            "--virtual_pipeline_size %d --qkv_linear %d --fuse_qkv %d --kv_replicator %d\n",
            ex.out, done->ranks, tern_str_bytes(bytes, sizeof bytes, done->bytes), o->tensor,
            o->pipeline, o->interleave, linear, fuse, done->kv_replicator);
}

static int export_nxd(const char *typed, struct tern_err *err)
{
    struct tern_convert_nxd o = {.stop = &interrupted};
    struct tern_convert_from_nxd from;
    struct tern_convert_nxd_out done;
    char *path;

    if (!ex.out)
        return tern_err_set(err, TERN_USAGE, "--out: say where to write");
    if (ex.tokenizer || ex.base || ex.key || strcmp(ex.max_shard, CKPT_MAX_SHARD) != 0)
        return tern_err_set(err, TERN_USAGE, "--%s: goes with --to hf alone",
                            ex.tokenizer ? "tokenizer"
                            : ex.base    ? "base"
                            : ex.key     ? "key"
                                         : "max-shard-size");
    if (parse_nxd(&o, err) < 0 || parse_from(&from, &o.from, err) < 0 ||
        tern_ckpt_resolve(typed, &path, err) < 0)
        return -1;
    tern_pytorch_stop_at(&interrupted);
    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    tern_progress_begin(/* unit= */ NULL, "%s", ex.out);
    int rc = tern_convert_to_nxd(path, ex.out, &o, &done, err);
    tern_progress_end();
    free(path);
    if (rc < 0)
        return interrupted ? (fprintf(stderr, "tern ckpt: %s\n", err->text), 128 + interrupted)
                           : -1;
    print_nxd(&o, &done);
    return 0;
}

/* ------------------------------------------------------------------ export */

static int export_run(int n_args, char **args, struct tern_err *err)
{
    struct tern_convert_nxd o = {0};

    (void)n_args;
    if (strcmp(nxd.to, "nxd") == 0)
        return export_nxd(args[0], err);
    if (strcmp(nxd.to, "hf") != 0)
        return tern_err_set(err, TERN_USAGE, "--to: '%s' is none of hf, nxd", nxd.to);
    if (parse_nxd(&o, err) < 0)
        return -1;
    if (o.tensor * o.pipeline * o.interleave > 1 || o.kv_replicator || o.qkv ||
        (o.hw && !nxd.from) || o.files || o.xser || o.markers)
        return tern_err_set(err, TERN_USAGE,
                            "%s writes one model for all ranks; give --to nxd for files of ranks",
                            ex.out ? ex.out : "export");
    return convert(args[0], false, err);
}

static const struct tern_opt export_opts[] = {
    {"out", 'o', TERN_OPT_TEXT, "DIR", .to.text = &ex.out, .help = "the new folder"},
    {"to", 0, TERN_OPT_TEXT, "FORMAT", "hf", .to.text = &nxd.to,
     .help = "hf: a Hugging Face folder; nxd: files of NeuronX Distributed's ranks"},
    {"from", 0, TERN_OPT_TEXT, "FORMAT", .to.text = &nxd.from,
     .help = "nxd: PATH holds files of NeuronX Distributed's ranks; other formats are seen"},
    {"config", 0, TERN_OPT_TEXT, "PATH", .to.text = &nxd.config,
     .help = "of --from nxd: the model's config.json, or the folder that holds it and the "
             "tokenizer"},
    {"dtype", 0, TERN_OPT_TEXT, "TYPE", "as-is", .to.text = &ex.dtype,
     .help = "element type of the weights: as-is, f32, bf16, f16"},
    {"max-shard-size", 0, TERN_OPT_TEXT, "BYTES", CKPT_MAX_SHARD, .to.text = &ex.max_shard,
     .help = "begin a new file before one grows beyond this, as 5GB or 512MiB; a larger tensor has "
             "a file of its own"},
    {"tokenizer", 0, TERN_OPT_TEXT, "PATH", .to.text = &ex.tokenizer,
     .help = "take the tokenizer's files from this folder; else from the checkpoint"},
    {"base", 0, TERN_OPT_TEXT, "NAME", .to.text = &ex.base,
     .help =
         "of adapters: what their config names as base model; default: the recipe's model.from"},
    {"key", 0, TERN_OPT_TEXT, "KEY", .to.text = &ex.key,
     .help = "of a file of PyTorch: take what lies below this key, as state_dict or a.b"},
    {"tensor", 0, TERN_OPT_INT, "RANKS", "1", .to.integer = &nxd.tensor,
     .help = "nxd: tensor_parallel_size"},
    {"pipeline", 0, TERN_OPT_INT, "RANKS", "1", .to.integer = &nxd.pipeline,
     .help = "nxd: pipeline_parallel_size"},
    {"interleave", 0, TERN_OPT_INT, "PARTS", "1", .to.integer = &nxd.interleave,
     .help = "nxd: virtual_pipeline_size"},
    {"kv-replicator", 0, TERN_OPT_INT, "COPIES", "0", .to.integer = &nxd.kv_replicator,
     .help = "nxd: copies of each key head; 0: the fewest that tensor ranks can share"},
    {"qkv", 0, TERN_OPT_TEXT, "FORM", "auto", .to.text = &nxd.qkv,
     .help = "nxd: by qkv_linear and fuse_qkv: fused (1, 1), split (1, 0), coalesced (0, 1), "
             "separate (0, 0); auto: coalesced without grouped queries, else fused"},
    {"hw", 0, TERN_OPT_TEXT, "CHIP", "trn1", .to.text = &nxd.hw,
     .help = "nxd: copies of key heads as on trn1 (all heads, then again) or trn2 (side by side)"},
    {"files", 0, TERN_OPT_TEXT, "NAMES", "v2", .to.text = &nxd.files,
     .help = "nxd: v2: model/dp_rank_00_tp_rank_TT_pp_rank_PP.pt; v1, of older trainers: "
             "tp_rank_TT_pp_rank_PP/checkpoint.pt; v3: v2's with ep_rank_00"},
    {"xser", 0, TERN_OPT_FLAG, .to.flag = &nxd.xser,
     .help = "nxd: a file for each tensor, as with save_load_xser 1"},
    {"markers", 0, TERN_OPT_FLAG, .to.flag = &nxd.markers,
     .help = "nxd: files checkpoint and done, as in the trainer's own; its weights to begin with "
             "(pretrained_weight) have none"},
    {"verify", 0, TERN_OPT_FLAG, .to.flag = &ex.verify,
     .help =
         "read each file of weights back from the storage and compare it with what was written"},
    {0},
};

const struct tern_cmd ckpt_export_cmd = {
    .name = "export",
    .args = "PATH",
    .args_min = 1,
    .args_max = 1,
    .summary = "write a checkpoint's model for other programs",
    .about =
        "Writes a folder that transformers, vLLM and llama.cpp load: config.json, the "
        "tokenizer's files, and safetensors, in one file or several with an index.  Llama 3's "
        "tokenizer.model of Meta is written as tokenizer.json.  If no tokenizer_config.json "
        "is there, one is written: it names BOS, EOS and the class.  If the "
        "run trained adapters (LoRA, DoRA), this command writes only the adapters, as PEFT "
        "does: adapter_model.safetensors and adapter_config.json.  The folder appears whole or not "
        "at all; while it grows it is called DIR.unfinished. After Ctrl-C or a kill the same "
        "command goes on behind the whole files there.  PATH is a checkpoint, DIR/latest or "
        "DIR/best. Or it is a folder with safetensors, with pytorch_model.bin or its index, or "
        "with Meta's params.json and consolidated.00.pth. Or it is one file of PyTorch beside its "
        "config.json.  No code in such a file is run.\n\nWith --to nxd: the weights as NeuronX "
        "Distributed's run_llama_nxd.py loads them with --pretrained_weight 1, from the folder "
        "pretrained_weight of its checkpoint_dir.  The command prints the trainer's flags that go "
        "with the files.\n\nWith --from nxd: PATH is a folder of such files, as that trainer saves "
        "them.  Their ranks and their form are seen; the model's config is named by --config.  "
        "Folders of Optimum Neuron are taken, too. Shards beside their config.json are a model. "
        "adapter_NAME with its adapter_shards holds adapters, which become a folder of PEFT.",
    .examples = "  tern ckpt export checkpoints/latest -o out-hf --dtype bf16\n"
                "  tern ckpt export Llama-2-7b -o llama-2-7b-hf\n"
                "  tern ckpt export trainer/last.pt --key state_dict -o last-hf\n"
                "  tern ckpt export hf -o ckpt/pretrained_weight --to nxd --tensor 8 "
                "--pipeline 8\n"
                "  tern ckpt export ckpt/step_1500 -o out-hf --from nxd --config hf\n"
                "  tern ckpt export out/adapter_default -o my-adapters --from nxd\n",
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
     .help = "take the weights from this folder or checkpoint; else from the checkpoint of the "
             "adapters, or from the base that PEFT's config names"},
    {"dtype", 0, TERN_OPT_TEXT, "TYPE", "as-is", .to.text = &ex.dtype,
     .help = "element type of the weights: as-is (as they are before), f32, bf16, f16"},
    {"max-shard-size", 0, TERN_OPT_TEXT, "BYTES", CKPT_MAX_SHARD, .to.text = &ex.max_shard,
     .help = "begin a new file before one grows beyond this, as 5GB or 512MiB; a larger tensor has "
             "a file of its own"},
    {"tokenizer", 0, TERN_OPT_TEXT, "PATH", .to.text = &ex.tokenizer,
     .help = "take the tokenizer's files from this folder; else from the checkpoint"},
    {"verify", 0, TERN_OPT_FLAG, .to.flag = &ex.verify,
     .help =
         "read each file of weights back from the storage and compare it with what was written"},
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
             "appears whole or not at all, and the same command goes on with one that was cut off "
             "(see export).  PATH is a checkpoint, DIR/latest or DIR/best; or a "
             "folder of PEFT (adapter_config.json: LoRA, rsLoRA, DoRA, patterns of ranks and "
             "alphas, modules_to_save). What tern would compute otherwise than PEFT is refused.  "
             "PATH may also be adapter_NAME with its adapter_shards, as Optimum Neuron saves "
             "adapters.",
    .examples = "  tern ckpt merge checkpoints/latest -o out-hf --dtype bf16\n"
                "  tern ckpt merge my-adapters --base llama-2-7b-hf -o out-hf\n",
    .opts = merge_opts,
    .run = merge_run,
};

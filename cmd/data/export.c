/* tern data export and import: token sets of other trainers. */
#include "cmd/data/data.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/export/export.h"
#include "core/inputs/inputs.h"
#include "core/recipe/recipe.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- shared by both ---- */

static int stopped;
static const char *out;
static int64_t start_ns;

static void on_signal(int number)
{
    __atomic_store_n(&stopped, number, __ATOMIC_RELAXED);
}

static void begin(const char *unit)
{
    struct sigaction sa = {.sa_handler = on_signal};

    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
    start_ns = tern_clock_boot_ns();
    tern_progress_begin(unit, "%s", out);
}

/* ---- export ---- */

static struct {
    const char *to, *split, *samples;
    int64_t length;
    uint64_t file_bytes;
    bool drop_last;
    struct tern_opt_list overrides;
} ex;

static int set_row(const void *of, uint64_t row, int32_t *tokens, uint8_t *mask,
                   struct tern_err *err)
{
    return tern_data_set_row(of, (uint32_t)ex.length, row, tokens, mask, err);
}

static int run_row(const void *of, uint64_t row, int32_t *tokens, uint8_t *mask,
                   struct tern_err *err)
{
    return tern_data_stages_sample(of, row, tokens, mask, /* starts= */ NULL, err);
}

static uint32_t set_filled(const void *of, uint64_t row)
{
    const uint64_t left = tern_data_set_n_tokens(of) - row * (uint64_t)ex.length;

    return left < (uint64_t)ex.length ? (uint32_t)left : (uint32_t)ex.length;
}

static uint32_t run_filled(const void *of, uint64_t row)
{
    const struct tern_data_mix *m = tern_data_stages_mix(of, tern_data_stages_at(of, row));
    struct tern_data_mix_where where;

    tern_data_stages_locate(of, row, &where);
    return tern_data_pack_filled(tern_data_mix_pack(m, where.source), where.row);
}

static void report(const struct tern_export_done *d, bool rows)
{
    char bytes[32], seconds[32];
    const double s = (double)(tern_clock_boot_ns() - start_ns) / 1e9;

    tern_info("%s: %" PRIu64 " %s, %" PRIu64 " tokens, %s in %u files, in %s", out,
              rows ? d->rows : d->documents, rows ? "rows" : "documents", d->tokens,
              tern_str_bytes(bytes, sizeof bytes, d->bytes), d->files,
              tern_str_seconds(seconds, sizeof seconds, s));
}

static int write_rows(struct tern_export_rows *r, struct tern_err *err)
{
    const struct tern_export_to to = {.dir = out, .stop = &stopped, .progress = tern_progress_set};
    struct tern_export_done done;

    r->split = ex.split;
    r->file_bytes = ex.file_bytes;
    begin("rows");
    const int rc = tern_export_datasets(r, &to, &done, err);
    tern_progress_end();
    if (rc == 0)
        report(&done, true);
    return rc;
}

static int check_length(struct tern_err *err)
{
    if (ex.length >= 1 && ex.length <= TERN_EXPORT_LENGTH_MAX)
        return 0;
    return tern_err_set(err, TERN_USAGE, "--seq-len %" PRId64 "; 1 to %d are allowed", ex.length,
                        TERN_EXPORT_LENGTH_MAX);
}

static void set_identity(struct tern_export_rows *r, const struct tern_data_set *s)
{
    const uint64_t numbers[] = {r->first, r->n, r->seq_len};
    struct tern_sha256 *sha = tern_sha256_new();
    uint8_t digest[TERN_SHA256_BYTES];

    tern_data_set_digest(s, digest);
    tern_sha256_add(sha, digest, sizeof digest);
    tern_sha256_add(sha, numbers, sizeof numbers);
    tern_sha256_end(sha, r->identity);
}

static int export_set(const struct tern_data_set *s, struct tern_err *err)
{
    struct tern_export_rows r = {
        .row = set_row, .filled = set_filled, .of = s, .eos = tern_data_set_eos(s)};

    if (ex.samples || ex.overrides.n)
        return tern_err_set(err, TERN_USAGE, "%s: is of a recipe, and a token set is given",
                            ex.samples ? "--samples" : "--set");
    if (check_length(err) < 0)
        return -1;
    r.seq_len = (uint32_t)ex.length;
    r.n = ex.drop_last ? tern_data_set_n_tokens(s) / r.seq_len : tern_data_set_rows(s, r.seq_len);
    if (r.n == 0)
        return tern_err_set(err, TERN_USAGE, "%s: has no %s", tern_data_set_path(s),
                            ex.drop_last ? "whole row; leave out --drop-last" : "tokens");
    char *about =
        tern_strf("Rows of %u tokens of %s, cut by tern", r.seq_len, tern_data_set_path(s));
    r.about = about;
    set_identity(&r, s);
    const int rc = write_rows(&r, err);
    free(about);
    return rc;
}

static int export_documents(const struct tern_data_set *s, struct tern_err *err)
{
    const struct tern_export_to to = {.dir = out, .stop = &stopped, .progress = tern_progress_set};
    struct tern_export_done done;

    if (ex.length || ex.split || ex.samples || ex.drop_last || ex.overrides.n)
        return tern_err_set(err, TERN_USAGE,
                            "--to megatron writes documents, not rows: --seq-len, --split-name, "
                            "--samples, --drop-last and --set are of rows");
    begin("tokens");
    const int rc = tern_export_megatron(s, &to, &done, err);
    tern_progress_end();
    if (rc == 0)
        report(&done, false);
    return rc;
}

/* The samples of a run: all, or --samples FIRST-LAST. */
static int run_samples(const struct tern_recipe *recipe, struct tern_export_rows *r,
                       struct tern_err *err)
{
    const uint64_t all = (uint64_t)recipe->steps * (uint64_t)recipe->batch.global;
    uint64_t first = 0, last = all ? all - 1 : 0;

    if (ex.samples && data_read_range(ex.samples, &first, &last, err) < 0)
        return -1;
    if (all == 0 || last >= all)
        return tern_err_set(err, TERN_USAGE, "the run has %" PRIu64 " samples", all);
    r->first = first;
    r->n = last - first + 1;
    return 0;
}

static void run_identity(struct tern_export_rows *r, const struct tern_recipe *recipe)
{
    const uint64_t numbers[] = {r->first, r->n, r->seq_len};
    char identity[TERN_SHA256_HEX], whole[TERN_SHA256_HEX];
    struct tern_sha256 *sha = tern_sha256_new();

    tern_recipe_hashes(recipe, identity, whole);
    tern_sha256_add(sha, whole, sizeof whole);
    tern_sha256_add(sha, numbers, sizeof numbers);
    const struct tern_data_stages *s = r->of;
    for (size_t i = 0; i < tern_data_stages_n(s); i++) {
        const struct tern_data_mix *m = tern_data_stages_mix(s, i);
        for (size_t k = 0; k < tern_data_mix_n_sources(m); k++) {
            uint8_t digest[TERN_SHA256_BYTES];
            tern_data_set_digest(tern_data_mix_set(m, k), digest);
            tern_sha256_add(sha, digest, sizeof digest);
        }
    }
    tern_sha256_end(sha, r->identity);
}

/* In packed rows of a set with BOS the BOS of the first document is input 0, which is no target. */
static int check_bos(const struct tern_data_stages *s, const char *path, struct tern_err *err)
{
    for (size_t k = 0; k < tern_data_stages_n(s); k++) {
        const struct tern_data_mix *m = tern_data_stages_mix(s, k);
        for (size_t i = 0; i < tern_data_mix_n_sources(m); i++)
            if (tern_data_set_bos(tern_data_mix_set(m, i)) >= 0)
                return tern_err_set(
                    err, TERN_USAGE,
                    "%s: %s has BOS, which packed rows begin behind: the first document of a row "
                    "would have none. Export with --set data.packing=concat",
                    path, tern_data_set_path(tern_data_mix_set(m, i)));
    }
    return 0;
}

static int export_run(const char *path, struct tern_err *err)
{
    struct tern_export_rows r = {.row = run_row, .filled = run_filled};
    struct tern_recipe *recipe = tern_recipe_load(path, ex.overrides.values, ex.overrides.n, err);
    struct tern_data_stages *s = NULL;
    char *about = NULL;
    int rc = -1;

    if (!recipe || tern_inputs_length(recipe, err) < 0)
        goto out;
    if (ex.drop_last || (ex.length && ex.length != recipe->batch.seq_len)) {
        tern_err_set(err, TERN_USAGE,
                     "%s: rows are the run's own, of batch.seq_len %" PRId64
                     " tokens: leave out %s",
                     path, recipe->batch.seq_len, ex.drop_last ? "--drop-last" : "--seq-len");
        goto out;
    }
    ex.length = recipe->batch.seq_len;
    s = check_length(err) < 0 ? NULL : tern_inputs_stages_open(recipe, err);
    if (!s || run_samples(recipe, &r, err) < 0)
        goto out;
    r.of = s;
    r.seq_len = (uint32_t)ex.length;
    r.eos = tern_data_set_eos(tern_data_mix_set(tern_data_stages_mix(s, 0), 0));
    if (recipe->data.packing != TERN_PACKING_CONCAT && check_bos(s, path, err) < 0)
        goto out;
    about = tern_strf("Samples %" PRIu64 " to %" PRIu64 " of %s, mixed by tern", r.first,
                      r.first + r.n - 1, path);
    r.about = about;
    run_identity(&r, recipe);
    rc = write_rows(&r, err);
out:
    free(about);
    tern_data_stages_free(s);
    tern_recipe_free(recipe);
    return rc;
}

static int run_export(int n_args, char **args, struct tern_err *err)
{
    const bool megatron = strcmp(ex.to, "megatron") == 0,
               recipe = tern_str_ends(args[0], ".yaml") || tern_str_ends(args[0], ".yml");

    (void)n_args;
    if (!out)
        return tern_err_set(err, TERN_USAGE, "--out is missing: the folder to write");
    if (!megatron && strcmp(ex.to, "datasets") != 0)
        return tern_err_set(err, TERN_USAGE, "--to %s; allowed are datasets and megatron", ex.to);
    if (ex.file_bytes == 0)
        return tern_err_set(err, TERN_USAGE, "--max-shard 0; 1 byte or more is needed");
    /* A recipe's sets may take minutes to pack. */
    if ((ex.split && tern_export_check_split(ex.split, err) < 0) || tern_fs_is_free(out, err) < 0)
        return -1;
    if (recipe && !megatron)
        return export_run(args[0], err);
    if (recipe)
        return tern_err_set(err, TERN_USAGE,
                            "%s: --to megatron takes a token set: Megatron mixes by itself",
                            args[0]);
    struct tern_data_set *s = tern_data_set_open(args[0], err);
    const int rc = !s ? -1 : megatron ? export_documents(s, err) : export_set(s, err);
    tern_data_set_free(s);
    return rc;
}

static const struct tern_opt export_opts[] = {
    {"to", 0, TERN_OPT_TEXT, "FORM", .def = "datasets", .to.text = &ex.to,
     .help = "datasets (rows, as load_from_disk reads them) or megatron (documents, .bin and "
             ".idx)"},
    {"out", 'o', TERN_OPT_TEXT, "DIR", .to.text = &out, .help = "the folder to write"},
    {"seq-len", 'L', TERN_OPT_INT, "TOKENS", .def = "0", .to.integer = &ex.length,
     .help = "tokens of a row; with a recipe the recipe's"},
    {"drop-last", 0, TERN_OPT_FLAG, .to.flag = &ex.drop_last,
     .help = "leave out the last row if it is not whole, instead of filling it up"},
    {"samples", 0, TERN_OPT_TEXT, "FIRST-LAST", .to.text = &ex.samples,
     .help = "of a recipe: these samples, as `tern data sample` counts them; else all of the run"},
    {"set", 0, TERN_OPT_LIST, "KEY=VALUE", .to.list = &ex.overrides,
     .help = "change a key of the recipe; may be given again"},
    {"split-name", 0, TERN_OPT_TEXT, "NAME", .to.text = &ex.split,
     .help = "note this as the split's name, such as train"},
    {"max-shard", 0, TERN_OPT_SIZE, "SIZE", .def = "500M", .to.bytes = &ex.file_bytes,
     .help = "bytes of one .arrow file at most"},
    {0},
};

const struct tern_cmd data_export = {
    .name = "export",
    .args = "SET|RECIPE",
    .summary = "write a set or a run's samples for other trainers",
    .about = "With --to datasets, row r has the tokens r x L to r x L + L - 1 of the set. Its "
             "columns are input_ids, attention_mask and labels. Each token is in exactly one row. "
             "These are the targets of row r of a run, the text that `tern data sample --text` "
             "prints. The labels are the ids. Trainers such as run_llama_nxd.py, Optimum Neuron "
             "and run_clm shift them themselves, so that the first token of a row is no target. A "
             "token that the set's mask leaves out has the label -100. The last row is filled up "
             "with EOS; there attention_mask is 0 and labels are -100. With a recipe (.yaml) the "
             "rows are the run's samples, mixed and in its order: train on them without "
             "shuffling.\n\n--to megatron: DIR/tokens.bin and DIR/tokens.idx, which Megatron-LM "
             "and NeMo open as DIR/tokens. Documents end with EOS. Ids are u16 where the "
             "vocabulary is below 65,500, else i32.\n\nDIR appears whole or not at all.",
    .examples = "tern data export pubmed.tds --to datasets -L 4096 -o pubmed-4096\n"
                "tern data export run.yaml --samples 0-99999 -o mixed\n"
                "tern data export pubmed.tds --to megatron -o pubmed-megatron",
    .opts = export_opts,
    .args_min = 1,
    .args_max = 1,
    .run = run_export,
};

/* ---- import ---- */

static struct {
    const char *tokenizer, *column, *documents;
    bool bos, mask;
} im;

static int commit(struct tern_data_set_writer *w, const struct tern_export_from *from,
                  const struct tern_export_back *back, struct tern_err *err)
{
    json_t *meta = json_pack(
        "{s:o, s:o, s:s, s:[{s:o, s:I, s:I}]}", "tokenizer", tern_json_text(im.tokenizer),
        "tokenizer_file", tern_json_text(tern_token_path(from->token)), "tokenizer_format",
        tern_token_format(from->token), "files", "path", tern_json_text(from->path), "documents",
        (json_int_t)back->documents, "tokens", (json_int_t)back->tokens);
    char *words = meta ? json_dumps(meta, JSON_COMPACT) : NULL;

    json_decref(meta);
    if (!words) {
        tern_data_set_abort(w);
        return tern_err_set(err, TERN_FAILED, "%s: no memory for its notes", out);
    }
    const int rc = tern_data_set_commit(w, words, err);
    free(words);
    return rc;
}

static int import(const struct tern_export_from *from, struct tern_err *err)
{
    struct tern_data_set_kind kind;
    struct tern_export_back back;

    if (tern_export_kind(from, &kind, err) < 0)
        return -1;
    struct tern_data_set_writer *w = tern_data_set_create(out, &kind, err);
    if (!w)
        return -1;
    begin(/* bytes */ NULL);
    const int rc = tern_export_read(from, w, &back, err);
    tern_progress_end();
    if (rc < 0) {
        tern_data_set_abort(w);
        return -1;
    }
    if (commit(w, from, &back, err) < 0)
        return -1;
    tern_info("%s: %" PRIu64 " documents, %" PRIu64 " tokens", out, back.documents, back.tokens);
    if (back.filled)
        tern_info("%" PRIu64 " places where attention_mask is 0 were left out", back.filled);
    return 0;
}

static int run_import(int n_args, char **args, struct tern_err *err)
{
    enum tern_export_documents documents = TERN_EXPORT_AS_STORED;

    (void)n_args;
    if (!out)
        return tern_err_set(err, TERN_USAGE, "--out is missing: the set to write");
    if (im.documents && strcmp(im.documents, "eos") != 0 && strcmp(im.documents, "rows") != 0)
        return tern_err_set(err, TERN_USAGE, "--documents %s; allowed are eos and rows",
                            im.documents);
    if (im.documents)
        documents = *im.documents == 'e' ? TERN_EXPORT_BY_EOS : TERN_EXPORT_BY_ROW;
    struct tern_token *t = data_load_tokenizer(im.tokenizer, err);
    if (!t)
        return -1;
    const struct tern_export_from from = {.path = args[0],
                                          .column = im.column,
                                          .token = t,
                                          .bos = im.bos,
                                          .mask = im.mask,
                                          .documents = documents,
                                          .stop = &stopped,
                                          .progress = tern_progress_set};
    const int rc = import(&from, err);
    tern_token_free(t);
    return rc;
}

static const struct tern_opt import_opts[] = {
    DATA_TOKENIZER_ROW(im.tokenizer),
    {"out", 'o', TERN_OPT_TEXT, "SET", .to.text = &out, .help = "the set to write"},
    {"column", 0, TERN_OPT_TEXT, "NAME", .def = "input_ids", .to.text = &im.column,
     .help = "of `datasets`: the column of ids"},
    {"documents", 0, TERN_OPT_TEXT, "HOW", .to.text = &im.documents,
     .help = "where documents end: eos (with EOS, wherever rows end) or rows (with a row of "
             "`datasets`, or a document of Megatron's index; EOS may stand inside, as in chats). "
             "Default: eos for `datasets`, rows for Megatron"},
    {"mask", 0, TERN_OPT_FLAG, .to.flag = &im.mask,
     .help = "of `datasets`: keep which tokens labels leave out (-100) as the set's mask"},
    {"bos", 0, TERN_OPT_FLAG, .to.flag = &im.bos,
     .help = "documents begin with BOS, which the set keeps as its own"},
    {0},
};

const struct tern_cmd data_import = {
    .name = "import",
    .args = "DIR|FILE|PREFIX",
    .summary = "make a token set of tokens that another tool wrote",
    .about = "Reads a folder of Hugging Face's datasets (save_to_disk) or one .arrow file of it "
             "with a column of ids, and Megatron's PREFIX.bin with PREFIX.idx. Places where "
             "attention_mask is 0 are left out. A document that lacks its EOS gets it. The "
             "tokenizer must be the one that the ids are of: it names the vocabulary, and "
             "tells how many bytes of text a document has. Texts in such folders are for `tern "
             "data build`.",
    .examples = "tern data import pubmed-4096 -t model/ -o pubmed.tds\n"
                "tern data import my_text_document -t model/ -o my.tds",
    .opts = import_opts,
    .args_min = 1,
    .args_max = 1,
    .run = run_import,
};

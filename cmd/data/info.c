/* tern data info: the numbers of a token set. */
#include "cmd/data/data.h"
#include "cmd/data/summary.h"

#include "cmd/cmd.h"
#include "core/base/json.h"
#include "core/base/str.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool as_json;
static int64_t seq_len;

static json_t *info_json(const struct tern_data_set *s, struct tern_err *err)
{
    char hash[TERN_SHA256_HEX];
    const char *meta = tern_data_set_meta(s);
    json_t *notes =
        *meta ? tern_json_parse(meta, strlen(meta), tern_data_set_path(s), err) : json_object();
    if (!notes)
        return NULL;
    json_t *j = json_pack(
        "{s:o, s:I, s:I, s:I, s:I, s:i, s:i, s:i, s:i, s:b, s:s, s:o}", "path",
        tern_json_text(tern_data_set_path(s)), "documents", (json_int_t)tern_data_set_n_docs(s),
        "tokens", (json_int_t)tern_data_set_n_tokens(s), "text_bytes",
        (json_int_t)tern_data_set_text_bytes(s), "file_bytes",
        (json_int_t)tern_data_set_file_bytes(s), "vocabulary", (int)tern_data_set_n_vocab(s),
        "token_bytes", (int)tern_data_set_token_bytes(s), "eos", (int)tern_data_set_eos(s), "bos",
        (int)tern_data_set_bos(s), "mask", (int)tern_data_set_has_mask(s), "vocabulary_sha256",
        tern_hex(hash, tern_data_set_vocab_hash(s), TERN_SHA256_BYTES), "source", notes);
    if (!j)
        tern_err_set(err, TERN_FAILED, "%s: no memory for its numbers", tern_data_set_path(s));
    else if (seq_len)
        json_object_set_new(j, "rows",
                            json_integer((json_int_t)tern_data_set_rows(s, (uint32_t)seq_len)));
    return j;
}

/* How a template made documents of records. */
static void print_records(const json_t *records)
{
    const char *name = json_string_value(json_object_get(records, "template")),
               *loss = json_string_value(json_object_get(records, "loss")),
               *longer = json_string_value(json_object_get(records, "longer"));
    char most[80] = "";

    if (longer)
        snprintf(most, sizeof most, "; --max-tokens %lld, --longer %.20s",
                 (long long)json_integer_value(json_object_get(records, "max_tokens")), longer);
    tern_cmd_say("template     %s; --loss %s%s", name ? name : "", loss ? loss : "", most);
}

/* The tokenizer and the texts that `tern data build` noted. */
static void print_source(const struct tern_data_set *s)
{
    const char *meta = tern_data_set_meta(s);
    json_t *notes = *meta ? tern_json_parse(meta, strlen(meta), "notes", NULL) : NULL;
    const char *tokenizer = json_string_value(json_object_get(notes, "tokenizer_file"));
    json_t *files = json_object_get(notes, "files");
    const char *first = json_string_value(json_object_get(json_array_get(files, 0), "path"));
    const json_t *summary = json_object_get(notes, "summary"),
                 *records = json_object_get(notes, "records");
    struct tern_buf words = {0};

    if (tokenizer)
        tern_cmd_say("tokenizer    %s", tokenizer);
    if (first && json_array_size(files) > 1)
        tern_cmd_say("made from    %s and %zu more", first, json_array_size(files) - 1);
    else if (first)
        tern_cmd_say("made from    %s", first);
    if (records)
        print_records(records);
    if (summary)
        data_summary_words(summary, records != NULL, &words);
    if (words.len)
        tern_cmd_say("build        %s", words.data);
    tern_buf_free(&words);
    json_decref(notes);
}

static void info_text(const struct tern_data_set *s)
{
    char hash[TERN_SHA256_HEX], bytes[32], n[32];
    const uint64_t tokens = tern_data_set_n_tokens(s), docs = tern_data_set_n_docs(s);

    tern_cmd_say("path         %s", tern_data_set_path(s));
    tern_cmd_say("documents    %s", tern_str_count(n, sizeof n, docs));
    tern_cmd_say("tokens       %s (%u bytes each; %.1f a document)",
                 tern_str_count(n, sizeof n, tokens), tern_data_set_token_bytes(s),
                 docs ? (double)tokens / (double)docs : 0.0);
    if (seq_len)
        tern_cmd_say("rows         %s of %" PRId64 " tokens",
                     tern_str_count(n, sizeof n, tern_data_set_rows(s, (uint32_t)seq_len)),
                     seq_len);
    tern_cmd_say("text         %s (%.3f bytes a token)",
                 tern_str_bytes(bytes, sizeof bytes, tern_data_set_text_bytes(s)),
                 tokens ? (double)tern_data_set_text_bytes(s) / (double)tokens : 0.0);
    tern_cmd_say("file         %s",
                 tern_str_bytes(bytes, sizeof bytes, tern_data_set_file_bytes(s)));
    tern_cmd_say("vocabulary   %u pieces", tern_data_set_n_vocab(s));
    tern_cmd_say("sha256       %s", tern_hex(hash, tern_data_set_vocab_hash(s), TERN_SHA256_BYTES));
    tern_cmd_say("ends         EOS %u behind each document%s", tern_data_set_eos(s),
                 tern_data_set_bos(s) < 0 ? "; no BOS" : "");
    if (tern_data_set_bos(s) >= 0)
        tern_cmd_say("begins       BOS %d before each document", tern_data_set_bos(s));
    tern_cmd_say("mask         %s",
                 tern_data_set_has_mask(s) ? "some tokens are no targets" : "none");
    print_source(s);
}

static int run_info(int n_args, char **args, struct tern_err *err)
{
    (void)n_args;
    int rc = 0;

    if (seq_len > INT32_MAX)
        return tern_err_set(err, TERN_USAGE, "--seq-len %" PRId64 "; up to %d is allowed", seq_len,
                            INT32_MAX);
    struct tern_data_set *s = tern_data_set_open(args[0], err);
    if (!s)
        return -1;
    if (as_json) {
        json_t *j = info_json(s, err);
        rc = j ? tern_json_print(stdout, j, err) : -1;
        json_decref(j);
    } else {
        info_text(s);
    }
    tern_data_set_free(s);
    return rc;
}

static const struct tern_opt info_opts[] = {
    {"json", 0, TERN_OPT_FLAG, .to.flag = &as_json, .help = "print JSON"},
    {"seq-len", 'L', TERN_OPT_INT, "TOKENS", .def = "0", .to.integer = &seq_len,
     .help = "also print how many rows of this length there are"},
    {0},
};

const struct tern_cmd data_info = {
    .name = "info",
    .args = "SET",
    .summary = "show the numbers of a token set",
    .opts = info_opts,
    .args_min = 1,
    .args_max = 1,
    .run = run_info,
};

/* tern data: build, inspect and check token sets. */
#include "cmd/data/data.h"
#include "cmd/data/instruct.h"

#include "cmd/cmd.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tern_token *data_load_tokenizer(const char *path, struct tern_err *err)
{
    if (!path) {
        tern_err_set(err, TERN_USAGE,
                     "--tokenizer is missing. Give the model's folder or its tokenizer file.");
        return NULL;
    }
    return tern_token_load(path, err);
}

/* The place of a word in a list; `option` and `allowed` are for the message. */
static int choice(const char *word, const char *const *words, const char *option,
                  const char *allowed, struct tern_err *err)
{
    for (int k = 0; words[k]; k++)
        if (strcmp(word, words[k]) == 0)
            return k;
    return tern_err_set(err, TERN_USAGE, "--%s %s; allowed are %s", option, word, allowed);
}

static int text_format(const struct data_text_opts *o, struct tern_err *err)
{
    static const char *const formats[] = {"auto", "jsonl", "s2orc", "text", "wikicorpus", NULL};

    return choice(o->format, formats, "format", "auto, jsonl, s2orc, wikicorpus and text", err);
}

int data_files(const struct data_text_opts *o, char *const *args, int n_args,
               struct tern_text_files *ret_files, struct tern_err *err)
{
    const int format = text_format(o, err);

    if (format < 0)
        return -1;
    return tern_text_files_find(args, (size_t)n_args, (enum tern_text_format)format, ret_files,
                                err);
}

int data_check_vocabulary(const struct tern_data_set *s, const struct tern_token *t,
                          struct tern_err *err)
{
    uint8_t hash[TERN_SHA256_BYTES];

    tern_token_hash(t, hash);
    if (memcmp(hash, tern_data_set_vocab_hash(s), sizeof hash) == 0)
        return 0;
    return tern_err_set(err, TERN_USAGE, "%s: tokenised with another vocabulary than %s",
                        tern_data_set_path(s), tern_token_path(t));
}

/* Names in JSON and Arrow are UTF-8: no other is found, and parts note it. */
static int check_field(const char *field, struct tern_err *err)
{
    size_t n;

    for (const char *s = field; s && *s; s += n) {
        n = tern_str_utf8(s, strlen(s));
        if (n == 0)
            return tern_err_set(err, TERN_USAGE, "--field %s: not UTF-8, as names of fields are",
                                field);
    }
    return 0;
}

int data_text_how(const struct data_text_opts *o, struct tern_text_how *how, struct tern_err *err)
{
    static const char *const policies[] = {"refuse", "replace", "skip", NULL};
    static const char *const encodings[] = {"auto", "utf-8", "latin-1", NULL};
    const int format = text_format(o, err);
    const int invalid =
        format < 0 ? -1 : choice(o->invalid, policies, "invalid", "refuse, replace and skip", err);
    const int encoding =
        invalid < 0 ? -1
                    : choice(o->encoding, encodings, "encoding", "auto, utf-8 and latin-1", err);

    if (encoding < 0 || check_field(o->field, err) < 0)
        return -1;
    *how = (struct tern_text_how){.format = (enum tern_text_format)format,
                                  .field = o->field,
                                  .split = o->split,
                                  .encoding = (enum tern_text_encoding)encoding,
                                  .invalid = (enum tern_text_invalid)invalid,
                                  .min_bytes = (uint64_t)o->min_length,
                                  .skip_bad = o->skip_bad};
    return 0;
}

int data_feed_how(const struct data_text_opts *o, const struct tern_token *t, char *const *paths,
                  int n_paths, const int *stop, struct tern_data_feed_how *ret_how,
                  struct tern_err *err)
{
    *ret_how = (struct tern_data_feed_how){.token = t,
                                           .paths = paths,
                                           .n_paths = (size_t)n_paths,
                                           .specials = o->specials,
                                           .threads = o->threads ? (unsigned)o->threads
                                                                 : tern_data_feed_threads()};

    if (o->threads > TERN_DATA_FEED_THREADS_MAX)
        return tern_err_set(err, TERN_USAGE, "--threads %lld; allowed are 0 to %d",
                            (long long)o->threads, TERN_DATA_FEED_THREADS_MAX);
    if (o->specials && strcmp(tern_token_format(t), "sentencepiece") == 0)
        return tern_err_set(err, TERN_USAGE,
                            "--specials: %s is a SentencePiece model, and its library finds no "
                            "special tokens in text. Name a tokenizer.json, or leave it out.",
                            tern_token_path(t));
    if (data_text_how(o, &ret_how->text, err) < 0)
        return -1;
    ret_how->text.stop = stop;
    return 0;
}

struct tern_data_feed *data_feed_open(const struct data_text_opts *o, const struct tern_token *t,
                                      char *const *paths, int n_paths, const int *stop,
                                      struct tern_err *err)
{
    struct tern_data_feed_how how;

    return data_feed_how(o, t, paths, n_paths, stop, &how, err) < 0
               ? NULL
               : tern_data_feed_open(&how, err);
}

static void log_bad(const char *path, const struct tern_text_counts *c)
{
    struct tern_buf lines = {0};

    if (c->bad_line[0] == 0) { /* of a part */
        tern_warn("%s: %llu lines that cannot be read were left out; tern data merge numbers them",
                  path, (unsigned long long)c->bad);
        return;
    }
    for (uint64_t i = 0; i < c->bad && i < TERN_TEXT_BAD_NAMED; i++)
        tern_buf_printf(&lines, "%s%llu", i ? ", " : "", (unsigned long long)c->bad_line[i]);
    tern_warn("%s: %llu lines that cannot be read were left out: %s%s", path,
              (unsigned long long)c->bad, lines.data ? lines.data : "",
              c->bad > TERN_TEXT_BAD_NAMED ? " ..." : "");
    tern_buf_free(&lines);
}

void data_log_path(const char *path, const struct tern_text_counts *c)
{
    if (c->replaced)
        tern_warn("%s: %llu bytes that are not UTF-8 were replaced", path,
                  (unsigned long long)c->replaced);
    if (c->marks)
        tern_warn(
            "%s: %llu byte order marks at the beginning of lines were left out. Was it joined "
            "of several files?",
            path, (unsigned long long)c->marks);
    if (c->skipped)
        tern_warn("%s: %llu documents that are not UTF-8 were left out", path,
                  (unsigned long long)c->skipped);
    if (c->too_short)
        tern_info("%s: %llu documents below --min-length were left out", path,
                  (unsigned long long)c->too_short);
    if (c->bad)
        log_bad(path, c);
}

void data_log_counts(const struct tern_data_feed *f, char *const *paths, int n_paths)
{
    for (int i = 0; i < n_paths; i++) {
        const struct tern_text_counts c = tern_data_feed_counts(f, (size_t)i);
        data_log_path(paths[i], &c);
    }
}

/* ---- verify ---- */

static int run_verify(int n_args, char **args, struct tern_err *err)
{
    for (int i = 0; i < n_args; i++) {
        struct tern_data_set *s = tern_data_set_open(args[i], err);
        tern_progress_begin(/* unit= */ NULL, "%s", args[i]);
        int rc = s ? tern_data_set_verify(s, err) : -1;
        tern_progress_end();
        if (rc == 0)
            printf("%s: ok\n", tern_data_set_path(s));
        tern_data_set_free(s);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static const struct tern_cmd verify = {
    .name = "verify",
    .args = "SET...",
    .summary = "read every byte and compare the digests",
    .about = "Training does not verify a set: a step reads only its rows and checks that their "
             "tokens are in the vocabulary. Verify a set after you have copied it.",
    .args_min = 1,
    .args_max = -1,
    .run = run_verify,
};

/* ---- encode and decode ---- */

static struct data_text_opts text;

static int encode_files(struct tern_data_feed *f, struct tern_err *err)
{
    struct tern_data_feed_doc doc;
    int rc;

    while ((rc = tern_data_feed_next(f, &doc, err)) > 0)
        if (doc.tokens.n_ids && fwrite(doc.tokens.ids, sizeof *doc.tokens.ids, doc.tokens.n_ids,
                                       stdout) != doc.tokens.n_ids)
            return tern_err_sys(err, "cannot write to stdout");
    return rc;
}

static int run_encode(int n_args, char **args, struct tern_err *err)
{
    struct tern_text_files files = {0};
    struct tern_token *t = data_load_tokenizer(text.tokenizer, err);
    struct tern_data_feed *f = NULL;

    if (t && data_files(&text, args, n_args, &files, err) == 0)
        f = data_feed_open(&text, t, files.paths, (int)files.n, /* stop= */ NULL, err);
    int rc = f ? encode_files(f, err) : -1;
    if (f)
        data_log_counts(f, files.paths, (int)files.n);
    tern_data_feed_close(f);
    tern_text_files_free(&files);
    tern_token_free(t);
    return rc;
}

static const struct tern_opt encode_opts[] = {DATA_TEXT_ROWS(text), {0}};

static const struct tern_cmd encode = {
    .name = "encode",
    .args = "FILE...",
    .summary = "write the ids of text or JSONL files to stdout",
    .about = "Ids are u32 little-endian, in the order of the files, without BOS and EOS. FILE may "
             "be a folder or - for standard input, as for build.",
    .examples = "tern data encode --tokenizer model/ corpus.jsonl | sha256sum",
    .opts = encode_opts,
    .args_min = 1,
    .args_max = -1,
    .run = run_encode,
};

/* All of a file (or standard input) as ids. */
static int read_ids(const char *path, struct tern_buf *raw, struct tern_err *err)
{
    char piece[65536];
    size_t n;
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");

    if (!f && errno == ENOENT)
        return tern_err_set(err, TERN_USAGE, "%s: there is no such file", path);
    if (!f)
        return tern_err_sys(err, "%s: cannot open", path);
    while ((n = fread(piece, 1, sizeof piece, f)) > 0)
        tern_buf_add(raw, piece, n);
    int rc =
        ferror(f) ? tern_err_sys(err, "%s: cannot read", path) : tern_buf_check(raw, path, err);
    if (f != stdin)
        fclose(f);
    if (rc == 0 && raw->len % sizeof(uint32_t))
        rc = tern_err_set(err, TERN_USAGE, "%s: %zu bytes are not a whole number of u32 ids", path,
                          raw->len);
    return rc;
}

static int print_ids(const struct tern_token *t, const uint32_t *ids, size_t n,
                     struct tern_err *err)
{
    struct tern_buf to = {0};
    int rc = tern_token_decode(t, ids, n, &to, err);

    if (rc == 0)
        fwrite(to.data, 1, to.len, stdout);
    tern_buf_free(&to);
    return rc;
}

static const char *tokenizer;

static int run_decode(int n_args, char **args, struct tern_err *err)
{
    struct tern_buf raw = {0};
    struct tern_token *t = data_load_tokenizer(tokenizer, err);
    int rc = t ? read_ids(n_args ? args[0] : "-", &raw, err) : -1;

    if (rc == 0 && raw.len)
        rc = print_ids(t, (const uint32_t *)raw.data, raw.len / sizeof(uint32_t), err);
    tern_buf_free(&raw);
    tern_token_free(t);
    return rc;
}

static const struct tern_opt decode_opts[] = {DATA_TOKENIZER_ROW(tokenizer), {0}};

static const struct tern_cmd decode = {
    .name = "decode",
    .args = "[FILE]",
    .summary = "turn ids (u32 little-endian) back into text",
    .opts = decode_opts,
    .args_min = 0,
    .args_max = 1,
    .run = run_decode,
};

/* ---- head ---- */

static int64_t n_docs, first_doc;

static int print_title(const struct tern_data_set *s, uint64_t i,
                       const struct tern_data_set_doc *doc, struct tern_err *err)
{
    char tokens[32], bytes[32], n[32];
    uint64_t targets = 0;

    printf("--- document %" PRIu64 ": %s tokens, %s bytes", i,
           tern_str_count(tokens, sizeof tokens, doc->n_tokens),
           tern_str_count(bytes, sizeof bytes, doc->text_bytes));
    if (tern_data_set_has_mask(s)) {
        uint8_t *mask = tern_alloc(doc->n_tokens, 1, "a document", err);
        if (!mask || tern_data_set_mask(s, doc->first_token, doc->n_tokens, mask, err) < 0) {
            free(mask);
            return -1;
        }
        for (uint64_t k = 0; k < doc->n_tokens; k++)
            targets += mask[k];
        free(mask);
        printf(", %s targets", tern_str_count(n, sizeof n, targets));
    }
    putchar('\n');
    return 0;
}

/* Targets and what is none, each under its heading. */
static int print_parts(const struct tern_token *t, const uint32_t *ids, const uint8_t *mask,
                       size_t n, struct tern_err *err)
{
    struct tern_buf whole = {0};
    size_t shown = 0;
    int rc = 0;

    for (size_t at = 0, end; at < n && rc == 0; at = end) {
        for (end = at + 1; end < n && mask[end] == mask[at]; end++)
            ;
        /* From the beginning: a word that begins a text would lose its space. */
        tern_buf_clear(&whole);
        rc = tern_token_decode(t, ids, end, &whole, err);
        if (rc < 0 || whole.len <= shown)
            continue;
        puts(mask[at] ? "--- answer:" : "--- prompt:");
        fwrite(whole.data + shown, 1, whole.len - shown, stdout);
        if (end < n && whole.data[whole.len - 1] != '\n')
            putchar('\n');
        shown = whole.len;
    }
    tern_buf_free(&whole);
    return rc;
}

static int print_text(const struct tern_data_set *s, const struct tern_token *t,
                      const struct tern_data_set_doc *doc, const int32_t *ids, struct tern_err *err)
{
    if (!tern_data_set_has_mask(s))
        return print_ids(t, (const uint32_t *)ids, doc->n_tokens, err);
    uint8_t *mask = tern_alloc(doc->n_tokens, 1, "a document's mask", err);
    int rc = mask ? tern_data_set_mask(s, doc->first_token, doc->n_tokens, mask, err) : -1;
    if (rc == 0)
        rc = print_parts(t, (const uint32_t *)ids, mask, doc->n_tokens, err);
    free(mask);
    return rc;
}

static int print_doc(const struct tern_data_set *s, const struct tern_token *t, uint64_t i,
                     struct tern_err *err)
{
    struct tern_data_set_doc doc;

    if (tern_data_set_doc(s, i, &doc, err) < 0)
        return -1;
    int32_t *ids = tern_alloc(doc.n_tokens, sizeof *ids, "a document", err);
    if (!ids)
        return -1;
    int rc = tern_data_set_read(s, doc.first_token, doc.n_tokens, ids, err);
    if (rc == 0)
        rc = print_title(s, i, &doc, err);
    if (rc == 0)
        rc = print_text(s, t, &doc, ids, err);
    putchar('\n');
    free(ids);
    return rc;
}

static int run_head(int n_args, char **args, struct tern_err *err)
{
    int rc = -1;
    struct tern_token *t = data_load_tokenizer(tokenizer, err);
    struct tern_data_set *s = t ? tern_data_set_open(args[0], err) : NULL;

    (void)n_args;
    if (!s)
        goto out;
    if (data_check_vocabulary(s, t, err) < 0)
        goto out;
    uint64_t first = (uint64_t)first_doc, end = tern_data_set_n_docs(s);
    for (uint64_t i = first; i < end && i - first < (uint64_t)n_docs; i++)
        if (print_doc(s, t, i, err) < 0)
            goto out;
    rc = 0;
out:
    tern_data_set_free(s);
    tern_token_free(t);
    return rc;
}

static const struct tern_opt head_opts[] = {
    DATA_TOKENIZER_ROW(tokenizer),
    {"number", 'n', TERN_OPT_INT, "DOCUMENTS", .def = "3", .to.integer = &n_docs,
     .help = "how many"},
    {"first", 0, TERN_OPT_INT, "DOCUMENT", .def = "0", .to.integer = &first_doc,
     .help = "begin with this one"},
    {0},
};

static const struct tern_cmd head = {
    .name = "head",
    .args = "SET",
    .summary = "print the first documents of a set as text",
    .about = "In a set with a mask, what is a target stands under `--- answer:`, and what is none "
             "under `--- prompt:`.",
    .opts = head_opts,
    .args_min = 1,
    .args_max = 1,
    .run = run_head,
};

static const struct tern_cmd *const verbs[] = {
    &data_build,  &data_merge_cmd, &data_info,     &data_stat,    &data_plan,   &verify,
    &encode,      &decode,         &head,          &data_overlap, &data_sample, &data_export,
    &data_import, &data_push,      &data_template, NULL};

int main(int argc, char **argv)
{
    static const struct tern_cmd cmd = {
        .name = "data",
        .summary = "build, inspect and check token sets",
        .verbs = verbs,
    };

    return tern_cmd_main(&cmd, argc, argv);
}

/* tern data build: text to a token set. */
#include "cmd/data/data.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct data_text_opts text;
static const char *out;
static bool bos;

/* Set by a signal and looked at between documents, so that an unfinished set is removed. */
static int stopped;

static void on_signal(int number)
{
    __atomic_store_n(&stopped, number, __ATOMIC_RELAXED);
}

static int stop_signal(void)
{
    return __atomic_load_n(&stopped, __ATOMIC_RELAXED);
}

static void catch_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal};

    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
}

struct build {
    struct tern_token *token;
    struct tern_data_feed *feed;
    struct tern_data_set_writer *writer;
    json_t *files; /* [{path, documents, tokens}, ...] */
    char **paths;
    int n_paths, path;               /* path: of the document added last */
    uint64_t path_docs, path_tokens; /* of the paths before it */
    uint64_t n_docs, n_tokens, n_bytes, n_empty;
    int64_t start_ns, shown_ns;
    bool show; /* stderr is a terminal */
};

enum {
    FILES_NAMED = 1000, /* meta data names this many files; the others are in its counts only */
    SHOW_MS = 200,      /* on a terminal */
    LOG_MS = 60 * 1000, /* elsewhere */
};

/* Share, rate and time left: one line on a terminal, a line a minute elsewhere. */
static void show(struct build *b)
{
    uint64_t done, all;
    char bytes[32], left[32], share[80] = "";
    const int64_t now = tern_clock_boot_ns(),
                  every = (b->show ? SHOW_MS : LOG_MS) * INT64_C(1000000);

    if (now - b->shown_ns < every)
        return;
    b->shown_ns = now;
    const double s = (double)(now - b->start_ns) / 1e9;
    tern_data_feed_progress(b->feed, &done, &all);
    if (all && done)
        snprintf(share, sizeof share, "%.0f %%, %s left, ", 100.0 * (double)done / (double)all,
                 tern_str_seconds(left, sizeof left,
                                  done < all ? s * (double)(all - done) / (double)done : 0));
    tern_str_bytes(bytes, sizeof bytes, b->n_bytes);
    if (b->show)
        fprintf(stderr, "\r\033[K%s: %s%s of text, %.2f M tokens, %.1f MB/s", out, share, bytes,
                (double)b->n_tokens / 1e6, (double)b->n_bytes / 1e6 / s);
    else
        tern_info("%s: %s%s of text, %.2f M tokens, %.1f MB/s", out, share, bytes,
                  (double)b->n_tokens / 1e6, (double)b->n_bytes / 1e6 / s);
}

static void show_end(const struct build *b)
{
    if (b->show)
        fputs("\r\033[K", stderr);
}

static int add_document(struct build *b, const struct tern_data_feed_doc *d, struct tern_err *err)
{
    const struct tern_data_feed_tokens *t = &d->tokens;

    if (t->n_ids == 0) {
        b->n_empty++;
        return 0;
    }
    if (tern_data_set_add_cut(b->writer, t->ids, t->mask, t->n_ids, t->cut, t->text_bytes, err) < 0)
        return -1;
    b->n_docs++;
    b->n_tokens += t->n_ids + 1 + bos;
    b->n_bytes += t->text_bytes;
    return 0;
}

static int interrupted(struct tern_err *err)
{
    return tern_err_set(err, TERN_FAILED, "%s: interrupted (signal %d); nothing was written", out,
                        stop_signal());
}

/* Note the files before `path`. */
static void end_files(struct build *b, int path)
{
    for (; b->path < path; b->path++) {
        if (b->path < FILES_NAMED)
            json_array_append_new(b->files,
                                  json_pack("{s:s, s:I, s:I}", "path", b->paths[b->path],
                                            "documents", (json_int_t)(b->n_docs - b->path_docs),
                                            "tokens", (json_int_t)(b->n_tokens - b->path_tokens)));
        b->path_docs = b->n_docs;
        b->path_tokens = b->n_tokens;
    }
}

static int add_files(struct build *b, struct tern_err *err)
{
    struct tern_data_feed_doc doc;
    int rc;

    b->feed = data_feed_open(&text, b->token, b->paths, b->n_paths, &stopped, err);
    if (!b->feed)
        return -1;
    while ((rc = tern_data_feed_next(b->feed, &doc, err)) > 0) {
        end_files(b, (int)doc.path);
        if (add_document(b, &doc, err) < 0)
            return tern_err_prefix(err, "%s", b->paths[doc.path]);
        show(b);
    }
    show_end(b);
    if (stop_signal())
        return interrupted(err);
    if (rc < 0)
        return -1;
    end_files(b, b->n_paths);
    data_log_counts(b->feed, b->paths, b->n_paths);
    return 0;
}

/* A model that was trained by way of tokenizer.json may have met other ids. */
static void warn_of_other_ids(const struct tern_token *t)
{
    const char *probe = tern_token_disagree(text.tokenizer, t);
    char shown[64];

    if (!probe)
        return;
    json_t *j = json_string(probe);
    char *quoted = json_dumps(j, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    snprintf(shown, sizeof shown, "%s", quoted ? quoted : "?");
    free(quoted);
    json_decref(j);
    tern_warn("%s: tokenizer.model and tokenizer.json differ, first in the ids of %s; those of "
              "tokenizer.model are written. Name the file to take the other one.",
              text.tokenizer, shown);
}

static int build_open(struct build *b, struct tern_err *err)
{
    struct tern_data_set_kind kind = {.bos = TERN_TOKEN_NONE};

    b->token = data_load_tokenizer(text.tokenizer, err);
    if (!b->token)
        return -1;
    if (tern_token_eos(b->token) < 0 || (bos && tern_token_bos(b->token) < 0))
        return tern_err_set(err, TERN_USAGE,
                            "%s: has no %s token, which documents need. Its name is expected as "
                            "%s_token in a tokenizer_config.json beside it.",
                            tern_token_path(b->token), tern_token_eos(b->token) < 0 ? "EOS" : "BOS",
                            tern_token_eos(b->token) < 0 ? "eos" : "bos");
    warn_of_other_ids(b->token);
    kind.n_vocab = tern_token_n_vocab(b->token);
    kind.eos = (uint32_t)tern_token_eos(b->token);
    if (bos)
        kind.bos = tern_token_bos(b->token);
    tern_token_hash(b->token, kind.vocab_hash);
    b->writer = tern_data_set_create(out, &kind, err);
    return b->writer ? 0 : -1;
}

static int build_commit(struct build *b, struct tern_err *err)
{
    if (b->n_docs == 0)
        return tern_err_set(err, TERN_USAGE, "%s: no text in the files given; nothing was written",
                            out);
    json_t *meta = json_pack("{s:s, s:s, s:s, s:O}", "tokenizer", text.tokenizer, "tokenizer_file",
                             tern_token_path(b->token), "tokenizer_format",
                             tern_token_format(b->token), "files", b->files);
    char *words = meta ? json_dumps(meta, JSON_COMPACT) : NULL;
    json_decref(meta);
    if (!words)
        return tern_err_set(err, TERN_FAILED, "%s: file names that are not UTF-8", out);
    struct tern_data_set_writer *writer = b->writer;
    b->writer = NULL;
    int rc = stop_signal() ? (tern_data_set_abort(writer), interrupted(err))
                           : tern_data_set_commit(writer, words, err);
    free(words);
    return rc;
}

static void report(const struct build *b)
{
    char bytes[32], seconds[32];
    double s = (double)(tern_clock_boot_ns() - b->start_ns) / 1e9;

    tern_info("%s: %" PRIu64 " documents, %" PRIu64 " tokens, %s of text (%.2f bytes a token), "
              "in %s (%.1f MB/s)",
              out, b->n_docs, b->n_tokens, tern_str_bytes(bytes, sizeof bytes, b->n_bytes),
              (double)b->n_bytes / (double)b->n_tokens,
              tern_str_seconds(seconds, sizeof seconds, s), (double)b->n_bytes / 1e6 / s);
    if (b->n_empty)
        tern_info("%" PRIu64 " empty documents were left out", b->n_empty);
}

/* "pubmed/train.jsonl.gz" becomes "train.tds" in the current folder, "pubmed/" "pubmed.tds";
 * malloc'ed. */
static char *default_out(const char *path)
{
    static const char *const suffixes[] = {".jsonl", ".ndjson", ".txt", ".md", NULL};
    const char *const *const lists[] = {tern_text_suffixes, suffixes};
    char *whole = tern_strdup(strcmp(path, "-") == 0 ? "stdin" : path);

    for (size_t n = strlen(whole); n > 1 && whole[n - 1] == '/'; n--)
        whole[n - 1] = '\0';
    char *name = tern_strdup(tern_fs_basename(whole));
    free(whole);
    if (strspn(name, "./") == strlen(name)) {
        free(name);
        name = tern_strdup("texts");
    }
    for (int i = 0; i < 2; i++)
        for (const char *const *s = lists[i]; *s; s++)
            if (tern_str_ends(name, *s) && strlen(name) > strlen(*s))
                name[strlen(name) - strlen(*s)] = '\0';
    char *to = tern_strf("%s.tds", name);
    free(name);
    return to;
}

/* The set must not be one of its sources. */
static int check_out(int n_args, char **args, bool by_default, struct tern_err *err)
{
    struct stat set, from;
    char *inside[] = {tern_fs_join(text.tokenizer ? text.tokenizer : "", "tokenizer.model"),
                      tern_fs_join(text.tokenizer ? text.tokenizer : "", "tokenizer.json")};
    const char *tokenizers[] = {text.tokenizer, inside[0], inside[1]};
    int rc = 0;

    if (stat(out, &set) < 0)
        goto free;
    if (by_default)
        rc = tern_err_set(err, TERN_USAGE,
                          "%s: is there already; it has the first file's name. Say where to write: "
                          "-o SET",
                          out);
    for (int i = 0; i < n_args + 3 && rc == 0; i++) {
        const char *path = i < n_args ? args[i] : tokenizers[i - n_args];
        int found = !path                    ? -1
                    : strcmp(path, "-") == 0 ? fstat(STDIN_FILENO, &from)
                                             : stat(path, &from);
        if (found == 0 && from.st_dev == set.st_dev && from.st_ino == set.st_ino)
            rc = tern_err_set(err, TERN_USAGE, "-o %s: is %s itself; it is left as it is", out,
                              i < n_args ? "an input" : "the tokenizer");
    }
free:
    free(inside[0]);
    free(inside[1]);
    return rc;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    const int64_t now = tern_clock_boot_ns();
    struct tern_text_files files = {0};
    struct build b = {.start_ns = now, .shown_ns = now, .show = isatty(STDERR_FILENO)};
    char *by_default = out ? NULL : default_out(args[0]);
    int rc = -1;

    if (!out)
        out = by_default;
    catch_signals();
    b.files = json_array();
    if (b.files && data_files(&text, args, n_args, &files, err) == 0) {
        b.paths = files.paths;
        b.n_paths = (int)files.n;
    }
    if (b.paths && check_out(b.n_paths, b.paths, by_default != NULL, err) == 0 &&
        build_open(&b, err) == 0 && add_files(&b, err) == 0)
        rc = build_commit(&b, err);
    show_end(&b);
    if (rc == 0)
        report(&b);
    tern_data_feed_close(b.feed);
    tern_data_set_abort(b.writer);
    tern_token_free(b.token);
    tern_text_files_free(&files);
    json_decref(b.files);
    free(by_default);
    out = NULL;
    return rc;
}

static const struct tern_opt opts[] = {
    DATA_TEXT_ROWS(text),
    {"out", 'o', TERN_OPT_TEXT, "SET", .to.text = &out,
     .help = "write the set here (else the first FILE's name, ending in .tds)"},
    {"bos", 0, TERN_OPT_FLAG, .to.flag = &bos,
     .help = "begin every document with BOS, too; usual is EOS behind each alone"},
    {0},
};

const struct tern_cmd data_build = {
    .name = "build",
    .args = "FILE...",
    .summary = "tokenise text into a token set (.tds)",
    .about = "Each document becomes its tokens and an EOS. The set appears whole or not at all; it "
             "holds no rows, so any seq_len can be cut from it. FILE may be - for standard input, "
             "or a folder. That means its JSONL files (by their names); where it has none, its "
             "Arrow files, as `datasets` saves them; else .txt, .md and others of prose and files "
             "without a suffix: in the order of their paths' bytes, and those of `datasets` in "
             "the order of its rows. With a --format, files with unknown suffixes are taken, too. "
             "Hidden files, README and the like are left out; the log names them. "
             "Text is UTF-8; a byte order mark at its beginning is skipped. Tokenizers are "
             "SentencePiece BPE models, tiktoken files (Llama 3's tokenizer.model) and "
             "tokenizer.json; ids are those of the library that each belongs to. Special tokens "
             "are never found in text.",
    .examples = "tern data build --tokenizer model/ -o pubmed.tds pubmed/*.jsonl.gz\n"
                "tern data build -t tokenizer.model --split % -o fortunes.tds fortunes.txt",
    .opts = opts,
    .args_min = 1,
    .args_max = -1,
    .run = run,
};

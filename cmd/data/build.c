/* tern data build: text to a token set. */
#include "cmd/data/build.h"
#include "cmd/data/instruct.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/str.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of this many bytes on, a build is kept in parts as it goes, so that it is not lost: half an hour
 * of one core. */
#define LARGE (UINT64_C(64) << 30)

static struct data_text_opts text;
static struct data_instruct_opts instruct;
static const char *out, *part;
static bool bos, dedup, resume;
static bool one_process; /* has encoded all records of what is written */
static bool pushed;      /* the set is built in a folder of its own first */
static uint64_t share_size;

/* Set by a signal and looked at between documents, so that an unfinished set is removed. */
static int stopped;

static void on_signal(int number)
{
    __atomic_store_n(&stopped, number, __ATOMIC_RELAXED);
}

static void catch_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal};

    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
}

/* As JSON, in ASCII. */
static const char *quote(const char *probe, char *to, size_t n)
{
    json_t *j = json_string(probe);
    char *quoted = json_dumps(j, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);

    snprintf(to, n, "%s", quoted ? quoted : "?");
    free(quoted);
    json_decref(j);
    return to;
}

/* A model that was trained by way of tokenizer.json or AutoTokenizer may have met other ids. */
static void warn_of_other_ids(const struct tern_token *t)
{
    const char *class, *probe = tern_token_disagree(text.tokenizer, t);
    const char *other = probe ? NULL : tern_token_auto_differs(text.tokenizer, t, &class);
    char shown[64];

    if (other)
        tern_warn("%s: AutoTokenizer of transformers 5 reads it as %s, by the rules of that class, "
                  "and gives other ids to %s. Those of %s are written.",
                  text.tokenizer, class, quote(other, shown, sizeof shown),
                  tern_fs_basename(tern_token_path(t)));
    if (probe)
        tern_warn("%s: tokenizer.model and tokenizer.json differ, first in the ids of %s; those of "
                  "tokenizer.model are written. Name the file to take the other one.",
                  text.tokenizer, quote(probe, shown, sizeof shown));
}

static int open_tokenizer(struct data_build *b, struct tern_err *err)
{
    struct tern_data_set_kind *kind = &b->kind;

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
    kind->n_vocab = tern_token_n_vocab(b->token);
    kind->eos = (uint32_t)tern_token_eos(b->token);
    kind->bos = bos ? tern_token_bos(b->token) : TERN_TOKEN_NONE;
    tern_token_hash(b->token, kind->vocab_hash);
    return 0;
}

/* With a --template files hold records. */
static int open_records(struct data_build *b, struct tern_data_feed_records *room,
                        struct tern_instruct **ret_instruct, struct tern_err *err)
{
    if (data_instruct_open(&instruct, bos, b->token, ret_instruct, err) < 0)
        return -1;
    if (!*ret_instruct)
        return 0;
    if (text.specials)
        return tern_err_set(err, TERN_USAGE,
                            "--specials: with a --template special tokens are the template's "
                            "alone, and text of records has none");
    if (strcmp(text.format, "auto") != 0 && strcmp(text.format, "jsonl") != 0)
        return tern_err_set(err, TERN_USAGE, "--format %s: with a --template it is auto or jsonl",
                            text.format);
    *room = data_instruct_records(*ret_instruct);
    b->records = room;
    b->notes = data_instruct_notes(&instruct, *ret_instruct);
    b->bos = tern_instruct_bos(*ret_instruct);
    b->kind.bos = b->bos ? tern_token_bos(b->token) : TERN_TOKEN_NONE;
    b->kind.mask = tern_instruct_masks(*ret_instruct);
    return 0;
}

/* ---- one pass ---- */

static int build_at_once(const struct data_build *b, struct data_sums *sums, struct tern_err *err)
{
    const struct data_tick shown = {data_show, NULL};
    const struct data_share all = {.parts = 0};

    tern_progress_begin(/* unit= */ NULL, "%s", out);
    int rc = data_write(b, &all, out, sums, &shown, err);
    tern_progress_end();
    return rc;
}

/* ---- in parts ---- */

static bool is_large(const struct data_build *b)
{
    uint64_t bytes = 0;
    struct stat st;

    for (size_t i = 0; i < b->n_paths; i++) {
        if (strcmp(b->paths[i], "-") == 0 || stat(b->paths[i], &st) < 0 || !S_ISREG(st.st_mode))
            return false;
        bytes += (uint64_t)st.st_size;
    }
    return bytes >= LARGE;
}

/* The exit status, or -1 with `err`. */
static int build(const struct data_build *b, const struct data_step *step, struct tern_err *err)
{
    const int64_t start_ns = tern_clock_boot_ns();
    struct data_sums sums, merged = {0};
    uint64_t k, n;
    int rc = -1;

    if (data_sums_open(&sums, b->paths, b->n_paths, err) < 0)
        return -1;
    sums.records = b->records != NULL;
    one_process =
        part || !(step->tasks > 1 || resume || data_share_begun(out) || (!pushed && is_large(b)));
    if (part)
        rc = data_part_parse(part, &k, &n, err) < 0 ? -1 : data_part_build(b, k, n, &sums, err);
    else if (one_process)
        rc = build_at_once(b, &sums, err);
    else
        rc = data_share_build(b, step, share_size, &merged, err);
    struct data_sums *s = merged.n_paths ? &merged : &sums;
    if (rc == 0 && (s->docs || part)) {
        if (b->records)
            s->empty = 0; /* records left out are counted apart */
        data_report(out, s, (double)(tern_clock_boot_ns() - start_ns) / 1e9);
        for (size_t i = 0; i < s->n_paths; i++)
            data_log_path(s->paths[i], &s->path[i].counts);
    }
    data_sums_free(&sums);
    data_merge_free(&merged);
    return rc;
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
static int check_out(int n_args, char *const *args, bool by_default, struct tern_err *err)
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

/* Before work for hours: the object must be free or a token set, and no input. */
static int check_url(const char *url, int n_args, char *const *args, struct tern_err *err)
{
    for (int i = 0; i < n_args; i++)
        if (strcmp(args[i], url) == 0)
            return tern_err_set(err, TERN_USAGE, "-o %s: is an input itself; it is left as it is",
                                url);
    catch_signals();
    return data_push_check(url, &stopped, err);
}

/* -o s3://BUCKET/KEY: the set is built in a folder of this machine, then pushed.  It stays there
 * where that fails. */
static int build_local(int n_args, char **args, struct tern_err *err);
static int run_pushed(int n_args, char **args, struct tern_err *err)
{
    const char *url = out, *tmp = getenv("TMPDIR");
    char *dir = tern_strf("%s/tern-build-XXXXXX", tmp && *tmp ? tmp : "/tmp"), *path = NULL;
    int rc = -1;

    if (tern_str_ends(url, "/") || part || resume || data_step_local().tasks > 1) {
        tern_err_set(err, TERN_USAGE, "-o %s: %s", url,
                     tern_str_ends(url, "/") ? "it names no object. Write s3://BUCKET/KEY."
                                             : "parts are kept on a disk that all tasks see. Build "
                                               "the set there, then: tern data push");
    } else if (check_url(url, n_args, args, err) < 0) {
        rc = -1;
    } else if (!mkdtemp(dir)) {
        tern_err_sys(err, "%s: cannot make it", dir);
    } else {
        path = tern_fs_join(dir, tern_fs_basename(url));
        out = path;
        pushed = true;
        rc = build_local(n_args, args, err);
        if (rc == 0 && data_push_file(path, url, &stopped, err) < 0) {
            rc = tern_err_prefix(
                err, "the set is built, but not pushed: `tern data push %s %s` goes on", path, url);
        } else {
            tern_fs_remove_tree(dir, NULL);
        }
    }
    free(path);
    free(dir);
    out = NULL;
    return rc;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    return out && tern_str_starts(out, "s3://") ? run_pushed(n_args, args, err)
                                                : build_local(n_args, args, err);
}

static int build_local(int n_args, char **args, struct tern_err *err)
{
    struct tern_text_files files = {0};
    struct data_build b = {.text = text, .bos = bos, .dedup = dedup, .stop = &stopped};
    const struct data_step step = part ? (struct data_step){.tasks = 1} : data_step_local();
    char *by_default = out ? NULL : default_out(args[0]);
    struct tern_data_feed_records records;
    struct tern_instruct *template = NULL;
    int rc = -1;

    if (part && by_default) {
        free(by_default);
        return tern_err_set(err, TERN_USAGE, "--part %s: say where to write the part: -o PART",
                            part);
    }
    if (!out)
        out = by_default;
    b.out = out;
    catch_signals();
    if (data_files(&text, args, n_args, &files, err) == 0) {
        b.paths = files.paths;
        b.n_paths = files.n;
    }
    if (b.paths &&
        check_out((int)b.n_paths, b.paths, by_default && !data_share_begun(out), err) == 0 &&
        open_tokenizer(&b, err) == 0 && open_records(&b, &records, &template, err) == 0)
        rc = build(&b, &step, err);
    if (rc == 0 && template && one_process) /* else others have encoded some of it */
        data_instruct_log(out, template);
    json_decref(b.notes);
    tern_instruct_free(template);
    tern_token_free(b.token);
    tern_text_files_free(&files);
    free(by_default);
    out = NULL;
    return rc;
}

static const struct tern_opt opts[] = {
    DATA_TEXT_ROWS(text),
    {"out", 'o', TERN_OPT_TEXT, "SET", .to.text = &out,
     .help =
         "write the set here, or to s3://BUCKET/KEY (else the first FILE's name, ending in .tds)"},
    DATA_INSTRUCT_ROWS(instruct),
    {"bos", 0, TERN_OPT_FLAG, .to.flag = &bos,
     .help = "begin every document with BOS, too; usual is EOS behind each alone"},
    {"dedup", 0, TERN_OPT_FLAG, .to.flag = &dedup,
     .help = "leave out a document whose text came before; takes 24 bytes of memory a document"},
    {"part", 0, TERN_OPT_TEXT, "K/N", .to.text = &part,
     .help = "only share K of N of the files, as a part for tern data merge"},
    {"resume", 0, TERN_OPT_FLAG, .to.flag = &resume,
     .help = "keep finished parts in SET.parts: the same command goes on with them after a kill. "
             "So it is without this, too, from 64 GiB of files on and under srun"},
    {"share-size", 0, TERN_OPT_SIZE, "SIZE", .def = "0", .to.bytes = &share_size,
     .help = "bytes of files in such a part; 0: a thousandth of them, at least 16 MiB"},
    {0},
};

const struct tern_cmd data_build = {
    .name = "build",
    .args = "FILE...",
    .summary = "tokenise text into a token set (.tds)",
    .about =
        "Each document becomes its tokens and an EOS. The set appears whole or not at all; it "
        "holds no rows, so any seq_len can be cut from it. FILE may be - for standard input, "
        "or a folder. That means its JSONL files (by their names); where it has none, its Arrow "
        "files, as `datasets` saves them. Else it means .txt, .md and others of prose and files "
        "without a suffix. They are read in the order of their paths' bytes, and those of "
        "`datasets` in the order of its rows. With a --format, files with unknown suffixes are "
        "taken, too. Hidden files, README and the like are left out; the log names them. Text is "
        "UTF-8; byte order marks at its beginning, and at that of lines as joined files have them, "
        "are left out. Tokenizers are SentencePiece BPE models, tiktoken files (Llama 3's "
        "tokenizer.model) and tokenizer.json; ids are those of the library that each belongs to. "
        "Special tokens are found in text with --specials alone.\n\nWith a --template each line, "
        "or row of an "
        "Arrow file, is a record, which becomes the text of the template. Its answers are the part "
        "that is learnt (tern data template -h). --bos is then for tokenizers that put BOS before "
        "a prompt, as Llama's do; chats have it by their templates. What --longer cut leaves ends "
        "with an EOS that is no target.\n\nSeveral processes may build one set, which is the same "
        "as from one. The tasks of an srun share the work by way of the folder SET.parts, on a "
        "file system that all see. Work that a lost task had begun is done again by another. "
        "Elsewhere each builds a --part, and tern data merge puts them together. Files of lines "
        "that are not compressed are cut inside, others are taken whole; standard input cannot be "
        "shared. A build in parts takes the set's space twice.",
    .examples = "tern data build --tokenizer model/ -o pubmed.tds pubmed/*.jsonl.gz\n"
                "tern data build -t tokenizer.model --split % -o fortunes.tds fortunes.txt\n"
                "tern data build -t model/ --template dolly --bos -o dolly.tds dolly.jsonl\n"
                "srun -N4 tern data build -t model/ -o pubmed.tds pubmed/*.jsonl.gz",
    .opts = opts,
    .args_min = 1,
    .args_max = -1,
    .run = run,
};

/* tern bench data: how fast text becomes a token set, beside other libraries' tokenizing.  What
 * each number is: tests/bench/data.md. */
#include "cmd/bench/bench.h"
#include "cmd/bench/pass.h"
#include "cmd/bench/script.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/token/token.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *tokenizer, *peer_text, *python, *script_text, *parent;
static int64_t rounds;
static bool all_cores, json;

static const char *const names[] = {"gigatoken", "tokenizers", "tiktoken", "sentencepiece"};

enum { PEERS = 4, ROUNDS_MAX = 1000 };

/* A side's passes: `n` of them, alternating with the other sides'. */
struct side {
    const char *name;
    struct bench_pass last;
    double seconds[ROUNDS_MAX], own[ROUNDS_MAX], cpu[ROUNDS_MAX];
    int64_t n;
};

struct bench {
    struct bench_pass_options o;
    char *model;
    char folder[4096];
    struct side ours, peers[PEERS];
    int n_peers;
};

/* ---------------------------------------------------------------- numbers */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(const double *v, int64_t n)
{
    static double sorted[ROUNDS_MAX];

    memcpy(sorted, v, (size_t)n * sizeof *v);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static double least(const double *v, int64_t n)
{
    double best = v[0];

    for (int64_t i = 1; i < n; i++)
        best = v[i] < best ? v[i] : best;
    return best;
}

/* Megabytes of text in a second. */
static double rate(const struct bench *b, double seconds)
{
    return (double)b->ours.last.text_bytes * 1e-6 / seconds;
}

static bool same_ids(const struct bench *b, const struct side *p)
{
    return strcmp(p->last.sha256, b->ours.last.sha256) == 0;
}

/* ---------------------------------------------------------------- passes */

static int add(struct side *s, const struct bench_pass *pass, struct tern_err *err)
{
    if (s->n && strcmp(s->last.sha256, pass->sha256) != 0)
        return tern_err_set(err, TERN_FAILED, "%s: ids of two passes differ", s->name);
    s->seconds[s->n] = pass->seconds;
    s->own[s->n] = pass->own_seconds;
    s->cpu[s->n] = pass->cpu_seconds;
    s->last = *pass;
    s->n++;
    return 0;
}

/* All sides once, ours first.  TERN_USAGE: a file was refused, with words on stderr. */
static int one_round(struct bench *b, struct tern_err *err)
{
    struct bench_pass pass;
    int rc = bench_pass_ours(&b->o, &pass, err);

    if (rc == 0)
        rc = add(&b->ours, &pass, err);
    if (rc != 0)
        return rc;
    for (int k = 0; k < b->n_peers; k++) {
        struct side *p = &b->peers[k];
        if (p->last.cannot[0])
            continue;
        if (bench_pass_peer(&b->o, p->name, &pass, err) < 0 || add(p, &pass, err) < 0)
            return -1;
    }
    return 0;
}

/* Read the files once, so that every pass finds them in memory. */
static int warm(const struct bench *b, struct tern_err *err)
{
    static char block[1 << 20];

    for (int i = 0; i < b->o.n_files; i++) {
        int fd = open(b->o.files[i], O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : 1;
        while (n > 0)
            n = read(fd, block, sizeof block);
        if (n < 0)
            tern_err_set(err, TERN_USAGE, "%s: %s", b->o.files[i], strerror(errno));
        if (fd >= 0)
            close(fd);
        if (n < 0)
            return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------- results */

static json_t *side_json(const struct bench *b, const struct side *s)
{
    return json_pack("{s:s, s:o, s:o, s:o, s:I, s:s}", "name", s->name, "mb_per_second",
                     tern_json_real(rate(b, median(s->seconds, s->n))), "best_mb_per_second",
                     tern_json_real(rate(b, least(s->seconds, s->n))), "cpu_seconds",
                     tern_json_real(median(s->cpu, s->n)), "tokens", (json_int_t)s->last.n_tokens,
                     "sha256", s->last.sha256);
}

static json_t *peer_json(const struct bench *b, const struct side *p)
{
    if (p->last.cannot[0])
        return json_pack("{s:s, s:s, s:s}", "name", p->name, "version", p->last.version, "cannot",
                         p->last.cannot);
    double ours = median(b->ours.seconds, b->ours.n);
    json_t *j = side_json(b, p);
    json_object_set_new(j, "version", json_string(p->last.version));
    json_object_set_new(j, "same_ids", json_boolean(same_ids(b, p)));
    json_object_set_new(j, "ratio", tern_json_real(median(p->seconds, p->n) / ours));
    json_object_set_new(j, "loaded_mb_per_second", tern_json_real(rate(b, median(p->own, p->n))));
    json_object_set_new(j, "loaded_ratio", tern_json_real(median(p->own, p->n) / ours));
    return j;
}

static json_t *result(const struct bench *b)
{
    json_t *peers = json_array(), *j = side_json(b, &b->ours);

    for (int k = 0; k < b->n_peers; k++)
        json_array_append_new(peers, peer_json(b, &b->peers[k]));
    json_t *all = json_pack("{s:s, s:s, s:I, s:I, s:I}", "tokenizer", b->model, "cores",
                            all_cores ? "all" : "one", "rounds", (json_int_t)rounds, "documents",
                            (json_int_t)b->ours.last.n_docs, "text_bytes",
                            (json_int_t)b->ours.last.text_bytes);
    json_object_update(all, j);
    json_object_set_new(all, "peers", peers);
    json_decref(j);
    return all;
}

static void print_side(const struct bench *b, const struct side *s, const double *seconds,
                       const char *label)
{
    printf("%-24s %8.1f %8.1f", label, rate(b, median(seconds, s->n)),
           rate(b, least(seconds, s->n)));
}

static void print_peer(const struct bench *b, const struct side *p)
{
    char label[128];
    double ours = median(b->ours.seconds, b->ours.n);

    snprintf(label, sizeof label, "%s %s", p->name, p->last.version);
    if (p->last.cannot[0]) {
        printf("%-24s %s\n", label, p->last.cannot);
        return;
    }
    print_side(b, p, p->seconds, label);
    printf(" %8.2f %8.2f x  ids %s\n", median(p->cpu, p->n), median(p->seconds, p->n) / ours,
           same_ids(b, p) ? "equal" : "DIFFER");
    print_side(b, p, p->own, "  without Python's start");
    printf(" %8s %8.2f x\n", "", median(p->own, p->n) / ours);
}

static void print_text(const struct bench *b)
{
    char bytes[32];

    printf("%s: %" PRIu64 " documents, %s of text, %" PRIu64 " tokens; %s\n", b->model,
           b->ours.last.n_docs, tern_str_bytes(bytes, sizeof bytes, b->ours.last.text_bytes),
           b->ours.last.n_tokens, all_cores ? "all cores" : "one core");
    printf("%-24s %8s %8s %8s %10s\n", "", "MB/s", "best", "CPU s", b->n_peers ? "tern is" : "");
    print_side(b, &b->ours, b->ours.seconds, "tern data build");
    printf(" %8.2f\n", median(b->ours.cpu, b->ours.n));
    for (int k = 0; k < b->n_peers; k++)
        print_peer(b, &b->peers[k]);
}

static int report(const struct bench *b, struct tern_err *err)
{
    json_t *j = json ? result(b) : NULL;
    int rc = j ? tern_json_print(stdout, j, err) : 0;

    if (!json)
        print_text(b);
    json_decref(j);
    for (int k = 0; k < b->n_peers && rc == 0; k++)
        if (!b->peers[k].last.cannot[0] && !same_ids(b, &b->peers[k]))
            rc = tern_err_set(err, TERN_FAILED, "ids of %s differ from tern's", b->peers[k].name);
    return rc;
}

/* ---------------------------------------------------------------- all of it */

/* The names of --peer, parted by commas. */
static int find_peers(struct bench *b, struct tern_err *err)
{
    for (const char *s = peer_text ? peer_text : ""; *s;) {
        size_t n = strcspn(s, ","), k = 0;
        while (k < PEERS && (strlen(names[k]) != n || strncmp(names[k], s, n) != 0))
            k++;
        for (int i = 0; k < PEERS && i < b->n_peers; i++)
            if (b->peers[i].name == names[k])
                return tern_err_set(err, TERN_USAGE, "--peer: %s stands twice", names[k]);
        if (k == PEERS)
            return tern_err_set(err, TERN_USAGE,
                                "--peer: '%.*s' is not gigatoken, tokenizers, tiktoken or "
                                "sentencepiece",
                                (int)n, s);
        b->peers[b->n_peers++].name = names[k];
        s += n + (s[n] == ',');
    }
    return 0;
}

static int find_model(struct bench *b, struct tern_err *err)
{
    struct tern_token *t = tern_token_load(tokenizer, err);

    if (!t)
        return -1;
    b->model = tern_strdup(tern_token_path(t));
    b->o.model = b->model;
    tern_token_free(t);
    return 0;
}

static int measure(struct bench *b, struct tern_err *err)
{
    char *set = tern_fs_join(b->folder, "out.tds"), *script = NULL;
    int rc = -1;

    b->o.set = set;
    if (b->n_peers) {
        script = bench_script_find(script_text, "token_peers.py", peer_text, "script", err);
        if (!script)
            goto done;
        b->o.script = script;
    }
    rc = warm(b, err);
    for (int64_t i = 0; i < rounds && rc == 0; i++)
        rc = one_round(b, err);
    if (rc == 0)
        rc = report(b, err);
done:
    unlink(set);
    free(set);
    free(script);
    return rc;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    static struct bench b;

    if (!tokenizer)
        return tern_err_set(
            err, TERN_USAGE,
            "--tokenizer is missing. Give the model's folder or its tokenizer file.");
    if (rounds < 1 || rounds > ROUNDS_MAX)
        return tern_err_set(err, TERN_USAGE, "from 1 to %d --rounds", ROUNDS_MAX);
    b.o = (struct bench_pass_options){.tokenizer = tokenizer,
                                      .files = args,
                                      .n_files = n_args,
                                      .all_cores = all_cores,
                                      .python = python};
    b.ours.name = "tern";
    if (find_peers(&b, err) < 0 || find_model(&b, err) < 0)
        return -1;
    bench_pass_catch_signals();
    snprintf(b.folder, sizeof b.folder, "%s/tern-bench-XXXXXX", parent);
    int rc = mkdtemp(b.folder)
                 ? measure(&b, err)
                 : tern_err_set(err, TERN_USAGE, "--dir %s: %s", parent, strerror(errno));
    rmdir(b.folder);
    free(b.model);
    return rc;
}

static const struct tern_opt options[] = {
    {"tokenizer", 't', TERN_OPT_TEXT, "PATH", .to.text = &tokenizer,
     .help = "the model's folder or its tokenizer file"},
    {"rounds", 'n', TERN_OPT_INT, "N", "5", .to.integer = &rounds,
     .help = "passes of each side, in turns"},
    {"cores", 0, TERN_OPT_FLAG, .to.flag = &all_cores,
     .help = "on all cores; else all sides stay on one"},
    {"peer", 0, TERN_OPT_TEXT, "NAME,...", .to.text = &peer_text,
     .help = "libraries that tokenise the same files in turns with us: gigatoken, tokenizers, "
             "tiktoken, sentencepiece"},
    {"python", 0, TERN_OPT_TEXT, "PROGRAM", "python3", .to.text = &python,
     .help = "the Python that has them; `make deps-peers` prints one"},
    {"script", 0, TERN_OPT_TEXT, "FILE", .to.text = &script_text,
     .help = "tests/bench/token_peers.py, where it is not in the source beside this program"},
    {"dir", 0, TERN_OPT_TEXT, "FOLDER", "/tmp", .to.text = &parent,
     .help = "where the token set is written, and removed at the end"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &json, .help = "print JSON"},
    {0},
};

const struct tern_cmd bench_data = {
    .name = "data",
    .args = "FILE.jsonl...",
    .summary = "time tokenising, beside gigatoken and other libraries",
    .about =
        "A pass is a new process, from its start to its end: JSONL on disk becomes a token set "
        "on disk. A peer's ends when the ids are in its memory; it is shown from its start, "
        "and from loading its model on. MB are of text; numbers are medians and the best. Ids "
        "of all sides are compared; exit status 1 when they differ.",
    .examples = "tern bench data -t Llama-2-7b-hf --peer gigatoken,sentencepiece corpus.jsonl\n"
                "tern bench data -t gpt2/tokenizer.json --peer gigatoken --cores --json *.jsonl",
    .opts = options,
    .args_min = 1,
    .args_max = -1,
    .run = run,
};

/* tern data overlap: does a held-out set occur in the training sets? */
#include "cmd/data/data.h"

#include "cmd/cmd.h"
#include "core/base/json.h"
#include "core/base/progress.h"
#include "core/base/str.h"
#include "core/data/overlap.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *held_out;
static int64_t gram, threads, listed;
static double fail_above;
static bool as_json;

static double share(const struct tern_data_overlap_count *c)
{
    return c->grams ? (double)c->found / (double)c->grams : 0;
}

/* ---- the worst documents ---- */

static const struct tern_data_overlap *sorted; /* qsort has no context */

static int by_share(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    const double of_x = share(&sorted->docs[x]), of_y = share(&sorted->docs[y]);

    if (of_x < of_y || of_x > of_y)
        return of_x > of_y ? -1 : 1;
    if (sorted->docs[x].found != sorted->docs[y].found)
        return sorted->docs[x].found > sorted->docs[y].found ? -1 : 1;
    return x < y ? -1 : 1;
}

/* Numbers of the documents with something found, the largest share first. */
static uint64_t *worst(const struct tern_data_overlap *o, uint64_t *ret_n, struct tern_err *err)
{
    uint64_t *list = tern_alloc(o->n_docs, sizeof *list, "documents", err), n = 0;

    for (uint64_t d = 0; list && d < o->n_docs; d++)
        if (o->docs[d].found)
            list[n++] = d;
    sorted = o;
    if (list)
        qsort(list, n, sizeof *list, by_share);
    *ret_n = n;
    return list;
}

static void print_text(const struct tern_data_overlap *o, const uint64_t *list, uint64_t n)
{
    char a[32], b[32];

    tern_cmd_say("held-out     %s", held_out);
    printf("n-grams      %s of %" PRId64 " ids\n", tern_str_count(a, sizeof a, o->all.grams), gram);
    printf("found        %s in training (%.4f %%)\n", tern_str_count(a, sizeof a, o->all.found),
           100 * share(&o->all));
    printf("documents    %s of %s have some\n", tern_str_count(a, sizeof a, n),
           tern_str_count(b, sizeof b, o->n_docs));
    if (!n || !listed)
        return;
    printf("\n%12s %12s %12s %9s\n", "document", "n-grams", "found", "share");
    for (uint64_t i = 0; i < n && i < (uint64_t)listed; i++) {
        const struct tern_data_overlap_count *c = &o->docs[list[i]];
        printf("%12" PRIu64 " %12s %12s %7.2f %%\n", list[i], tern_str_count(a, sizeof a, c->grams),
               tern_str_count(b, sizeof b, c->found), 100 * share(c));
    }
    if (n > (uint64_t)listed)
        printf("... and %s more\n", tern_str_count(a, sizeof a, n - (uint64_t)listed));
}

static int print_json(const struct tern_data_overlap *o, const uint64_t *list, uint64_t n,
                      struct tern_err *err)
{
    json_t *docs = json_array();

    for (uint64_t i = 0; i < n && i < (uint64_t)listed; i++) {
        const struct tern_data_overlap_count *c = &o->docs[list[i]];
        json_array_append_new(docs, json_pack("{s:I, s:I, s:I, s:f}", "document",
                                              (json_int_t)list[i], "ngrams", (json_int_t)c->grams,
                                              "found", (json_int_t)c->found, "share", share(c)));
    }
    json_t *j =
        json_pack("{s:o, s:I, s:I, s:I, s:f, s:I, s:I, s:o}", "held_out", tern_json_text(held_out),
                  "n", (json_int_t)gram, "ngrams", (json_int_t)o->all.grams, "found",
                  (json_int_t)o->all.found, "share", share(&o->all), "documents",
                  (json_int_t)o->n_docs, "documents_with_some", (json_int_t)n, "worst", docs);
    int rc = tern_json_print(stdout, j, err);
    json_decref(j);
    return rc;
}

static int report(const struct tern_data_overlap *o, struct tern_err *err)
{
    uint64_t n;
    uint64_t *list = worst(o, &n, err);
    int rc = list ? 0 : -1;

    if (rc == 0 && as_json)
        rc = print_json(o, list, n, err);
    else if (rc == 0)
        print_text(o, list, n);
    free(list);
    if (rc == 0 && share(&o->all) > fail_above)
        rc = tern_err_set(err, TERN_FAILED,
                          "%s: a share of %g of its %" PRId64 "-grams occurs in training, above "
                          "--fail-above %g",
                          held_out, share(&o->all), gram, fail_above);
    return rc;
}

static int check_options(struct tern_err *err)
{
    if (!held_out)
        return tern_err_set(err, TERN_USAGE, "--held-out is missing. Name the held-out set.");
    if (gram < 1 || gram > TERN_DATA_OVERLAP_GRAM_MAX)
        return tern_err_set(err, TERN_USAGE, "--ngram %" PRId64 "; 1 to %d are allowed", gram,
                            TERN_DATA_OVERLAP_GRAM_MAX);
    if (threads > TERN_DATA_OVERLAP_THREADS_MAX)
        return tern_err_set(err, TERN_USAGE, "--threads %" PRId64 "; allowed are 0 to %d", threads,
                            TERN_DATA_OVERLAP_THREADS_MAX);
    if (isnan(fail_above) || fail_above < 0 || fail_above > 1)
        return tern_err_set(err, TERN_USAGE, "--fail-above %g; a share from 0 to 1 is needed",
                            fail_above);
    return 0;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    struct tern_data_overlap o = {0};
    int rc = check_options(err);
    const struct tern_data_overlap_how how = {
        .gram = (unsigned)gram, .threads = threads ? (unsigned)threads : tern_data_feed_threads()};
    struct tern_data_set **train = tern_alloc((size_t)n_args, sizeof *train, "sets", err), *test;

    test = rc == 0 && train ? tern_data_set_open(held_out, err) : NULL;
    rc = test ? 0 : -1;
    for (int i = 0; rc == 0 && i < n_args; i++)
        rc = (train[i] = tern_data_set_open(args[i], err)) ? 0 : -1;
    tern_progress_begin("tokens", "training sets");
    if (rc == 0)
        rc = tern_data_overlap(train, (size_t)n_args, test, &how, &o, err);
    tern_progress_end();
    if (rc == 0)
        rc = report(&o, err);
    tern_data_overlap_free(&o);
    for (int i = 0; train && i < n_args; i++)
        tern_data_set_free(train[i]);
    free(train);
    tern_data_set_free(test);
    return rc;
}

static const struct tern_opt opts[] = {
    {"held-out", 0, TERN_OPT_TEXT, "SET", .to.text = &held_out,
     .help = "the set whose documents are looked for"},
    {"ngram", 'N', TERN_OPT_INT, "IDS", .def = "13", .to.integer = &gram,
     .help = "length of the sequences that are compared"},
    {"fail-above", 0, TERN_OPT_REAL, "SHARE", .def = "1", .to.real = &fail_above,
     .help = "exit with 1 when a larger share (0 to 1) of all n-grams is found"},
    {"number", 'n', TERN_OPT_INT, "DOCUMENTS", .def = "10", .to.integer = &listed,
     .help = "how many of the documents with the largest shares to list"},
    {"threads", 0, TERN_OPT_INT, "N", .def = "0", .to.integer = &threads,
     .help = "threads that read training sets; 0: one for each CPU. The result is the same"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &as_json, .help = "print JSON"},
    {0},
};

const struct tern_cmd data_overlap = {
    .name = "overlap",
    .args = "TRAIN...",
    .summary = "show how much of a held-out set occurs in training sets",
    .about = "Compares sequences of ids inside documents (13-grams), exactly: by hash, then id by "
             "id. Memory: 24 to 44 bytes a token of the held-out set; training sets are read once. "
             "A document's number is that of `tern data head --first`.",
    .examples = "  tern data overlap pubmed.tds general.tds --held-out pubmed-test.tds\n"
                "  tern data overlap train.tds --held-out test.tds --fail-above 0.01\n",
    .opts = opts,
    .args_min = 1,
    .args_max = -1,
    .run = run,
};

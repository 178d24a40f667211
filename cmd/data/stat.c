/* tern data stat: how long the documents of a set are, and what each packing makes of them. */
#include "cmd/data/data.h"

#include "cmd/cmd.h"
#include "core/base/json.h"
#include "core/base/progress.h"
#include "core/base/str.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool as_json;
static int64_t seq_len;
static const char *tokenizer;

enum { BINS = 33 }; /* of lengths: 0, then one for each power of two that a u32 can reach */

static const int percents[] = {0, 5, 25, 50, 75, 95, 99, 100};
enum { PERCENTS = sizeof percents / sizeof *percents };

struct packing {
    const char *name;
    enum tern_data_packing packing;
    enum tern_data_longer longer;
    struct tern_data_pack_counts counts;
};

struct stats {
    struct tern_data_set *set;
    uint64_t targets;  /* of a set with a mask */
    int32_t unk;       /* -1: not counted */
    uint64_t unknown;  /* tokens that are `unk` */
    uint32_t *lengths; /* [n]: of documents, rising; longer ones than 2^32 - 1 count as that */
    uint64_t n;
    uint64_t bins[BINS];
    uint64_t longer, longer_tokens; /* documents that no row holds */
    struct packing packings[5];
    size_t n_packings;
};

static unsigned bin_of(uint32_t length)
{
    return length ? 32U - (unsigned)__builtin_clz(length) : 0;
}

static int by_length(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static int read_lengths(struct stats *st, struct tern_err *err)
{
    enum { AT_ONCE = 512 };
    struct tern_data_set_doc docs[AT_ONCE];
    /* A set with BOS has a document's BOS as input 0. */
    const uint64_t row = (uint64_t)seq_len + (tern_data_set_bos(st->set) >= 0);

    st->n = tern_data_set_n_docs(st->set);
    st->lengths = tern_alloc(st->n, sizeof *st->lengths, "lengths of documents", err);
    tern_progress_phase("documents", /* what= */ NULL);
    tern_progress_expect(st->n);
    for (uint64_t at = 0; st->lengths && at < st->n; at += AT_ONCE) {
        const size_t take = st->n - at < AT_ONCE ? (size_t)(st->n - at) : AT_ONCE;
        if (tern_data_set_docs(st->set, at, take, docs, err) < 0)
            return -1;
        for (size_t i = 0; i < take; i++) {
            const uint64_t n = docs[i].n_tokens;
            st->lengths[at + i] = n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
            st->bins[bin_of(st->lengths[at + i])]++;
            if (seq_len && n > row) {
                st->longer++;
                st->longer_tokens += n;
            }
        }
        tern_progress_add(take);
    }
    if (st->lengths)
        qsort(st->lengths, st->n, sizeof *st->lengths, by_length);
    return st->lengths ? 0 : -1;
}

static int read_targets(struct stats *st, struct tern_err *err)
{
    static uint8_t mask[1 << 16];
    const uint64_t n = tern_data_set_n_tokens(st->set);

    tern_progress_phase("tokens", "mask");
    tern_progress_expect(n);
    for (uint64_t at = 0; tern_data_set_has_mask(st->set) && at < n; at += sizeof mask) {
        const size_t take = n - at < sizeof mask ? (size_t)(n - at) : sizeof mask;
        if (tern_data_set_mask(st->set, at, take, mask, err) < 0)
            return -1;
        for (size_t i = 0; i < take; i++)
            st->targets += mask[i];
        tern_progress_add(take);
    }
    return 0;
}

/* Reads every token. */
static int read_unknown(struct stats *st, const struct tern_token *t, struct tern_err *err)
{
    static int32_t tokens[1 << 16];
    const uint64_t n = tern_data_set_n_tokens(st->set), most = sizeof tokens / sizeof *tokens;

    if (!t)
        return 0;
    if (data_check_vocabulary(st->set, t, err) < 0)
        return -1;
    st->unk = tern_token_unk(t);
    tern_progress_phase("tokens", /* what= */ NULL);
    tern_progress_expect(n);
    for (uint64_t at = 0; st->unk >= 0 && at < n; at += most) {
        const size_t take = (size_t)(n - at < most ? n - at : most);
        if (tern_data_set_read(st->set, at, take, tokens, err) < 0)
            return -1;
        for (size_t i = 0; i < take; i++)
            st->unknown += tokens[i] == st->unk;
        tern_progress_add(take);
    }
    return 0;
}

static int read_packings(struct stats *st, struct tern_err *err)
{
    static const struct packing all[] = {
        {.name = "concat"},
        {.name = "best-fit", TERN_DATA_BEST_FIT, TERN_DATA_LONGER_CUT, {0}},
        {.name = "best-fit", TERN_DATA_BEST_FIT, TERN_DATA_LONGER_DROP, {0}},
        {.name = "padded", TERN_DATA_PADDED, TERN_DATA_LONGER_CUT, {0}},
        {.name = "padded", TERN_DATA_PADDED, TERN_DATA_LONGER_DROP, {0}},
    };

    for (size_t i = 0; seq_len && i < sizeof all / sizeof *all; i++) {
        const struct tern_data_pack_how how = {(uint32_t)seq_len, all[i].packing, all[i].longer};
        if (all[i].longer == TERN_DATA_LONGER_DROP && st->longer == 0)
            continue; /* as with cut */
        struct tern_data_pack *p = tern_data_pack_new(st->set, &how, err);
        if (!p)
            return -1;
        st->packings[st->n_packings] = all[i];
        st->packings[st->n_packings++].counts = tern_data_pack_counts(p);
        tern_data_pack_free(p);
    }
    return 0;
}

/* The smallest length that at least `percent` of the documents do not exceed. */
static uint32_t percentile(const struct stats *st, int percent)
{
    const uint64_t rank = (st->n * (uint64_t)percent + 99) / 100;

    return st->n ? st->lengths[rank ? rank - 1 : 0] : 0;
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

/* ---- for people ---- */

static void print_lengths(const struct stats *st)
{
    enum { LABEL = 42, SIGN = '#' }; /* columns before the bars */
    const int room = tern_cmd_columns() - LABEL;
    uint64_t most = 1;
    char from[32], to[32], count[32];

    printf("\ntokens of a document, EOS among them\n");
    for (int i = 0; i < PERCENTS; i++) {
        char label[16];
        snprintf(label, sizeof label, "%d %%", percents[i]);
        printf("%10s", percents[i] == 0     ? "shortest"
                       : percents[i] == 50  ? "median"
                       : percents[i] == 100 ? "longest"
                                            : label);
    }
    printf("\n");
    for (int i = 0; i < PERCENTS; i++)
        printf("%10s", tern_str_count(count, sizeof count, percentile(st, percents[i])));
    printf("\n\n%19s %13s %6s\n", "tokens", "documents", "share");
    for (unsigned b = 0; b < BINS; b++)
        most = st->bins[b] > most ? st->bins[b] : most;
    const unsigned last = bin_of(percentile(st, 100));
    for (unsigned b = bin_of(percentile(st, 0)); st->n && b <= last; b++) {
        const uint64_t low = b ? UINT64_C(1) << (b - 1) : 0, high = b ? 2 * low - 1 : 0;
        char *label = low == high ? tern_strf("%" PRIu64, low)
                                  : tern_strf("%s-%s", tern_str_count(from, sizeof from, low),
                                              tern_str_count(to, sizeof to, high));
        printf("%19s %13s %5.1f %%%s", label, tern_str_count(count, sizeof count, st->bins[b]),
               100 * share(st->bins[b], st->n), st->bins[b] ? " " : "");
        const uint64_t bar = (st->bins[b] * (uint64_t)(room > 1 ? room : 1) + most - 1) / most;
        for (uint64_t i = 0; i < bar; i++)
            putchar(SIGN);
        putchar('\n');
        free(label);
    }
}

static void print_packings(const struct stats *st)
{
    char n[32], docs[32], tokens[32];

    if (!seq_len)
        return;
    printf("\nrows of %s tokens: %s documents are longer (%.1f %%; %.1f %% of the tokens)\n\n",
           tern_str_count(n, sizeof n, (uint64_t)seq_len),
           tern_str_count(docs, sizeof docs, st->longer), 100 * share(st->longer, st->n),
           100 * share(st->longer_tokens, tern_data_set_n_tokens(st->set)));
    printf("%-9s %15s %9s  %s\n", "packing", "rows", "padding", "documents longer than a row");
    for (size_t i = 0; i < st->n_packings; i++) {
        const struct packing *p = &st->packings[i];
        const struct tern_data_pack_counts *c = &p->counts;
        printf("%-9s %15s %7.2f %%  ", p->name, tern_str_count(n, sizeof n, c->rows),
               100 * share(c->padding, c->rows * (uint64_t)seq_len));
        if (p->packing == TERN_DATA_CONCAT)
            printf("any is cut where a row ends\n");
        else if (p->longer == TERN_DATA_LONGER_CUT)
            printf("%s cut\n", tern_str_count(docs, sizeof docs, c->cut));
        else
            printf("%s dropped, %s tokens\n", tern_str_count(docs, sizeof docs, c->dropped),
                   tern_str_count(tokens, sizeof tokens, c->dropped_tokens));
    }
}

static void print_stat(const struct stats *st)
{
    const uint64_t tokens = tern_data_set_n_tokens(st->set);
    char n[32];

    tern_cmd_say("path         %s", tern_data_set_path(st->set));
    printf("documents    %s\n", tern_str_count(n, sizeof n, st->n));
    printf("tokens       %s (%.1f a document)\n", tern_str_count(n, sizeof n, tokens),
           share(tokens, st->n));
    if (tern_data_set_has_mask(st->set))
        printf("targets      %s (%.1f %% of the tokens)\n",
               tern_str_count(n, sizeof n, st->targets), 100 * share(st->targets, tokens));
    if (st->unk >= 0)
        printf("unknown      %s (%.4f %% of the tokens)\n",
               tern_str_count(n, sizeof n, st->unknown), 100 * share(st->unknown, tokens));
    print_lengths(st);
    print_packings(st);
}

/* ---- JSON ---- */

static json_t *json_lengths(const struct stats *st)
{
    json_t *j = json_object();
    char name[16];

    for (int i = 0; i < PERCENTS; i++) {
        snprintf(name, sizeof name, "p%d", percents[i]);
        json_object_set_new(j, name, json_integer(percentile(st, percents[i])));
    }
    return j;
}

static json_t *json_bins(const struct stats *st)
{
    json_t *list = json_array();
    const unsigned last = bin_of(percentile(st, 100));

    for (unsigned b = bin_of(percentile(st, 0)); st->n && b <= last; b++) {
        const json_int_t low = b ? (json_int_t)1 << (b - 1) : 0;
        json_array_append_new(list,
                              json_pack("{s:I, s:I, s:I}", "from", low, "to", b ? 2 * low - 1 : 0,
                                        "documents", (json_int_t)st->bins[b]));
    }
    return list;
}

static json_t *json_packings(const struct stats *st)
{
    json_t *list = json_array();

    for (size_t i = 0; i < st->n_packings; i++) {
        const struct packing *p = &st->packings[i];
        const struct tern_data_pack_counts *c = &p->counts;
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:I, s:I, s:f, s:I, s:I, s:I}", "packing", p->name,
                            "longer", p->longer == TERN_DATA_LONGER_CUT ? "cut" : "drop", "rows",
                            (json_int_t)c->rows, "padding", (json_int_t)c->padding, "padding_share",
                            share(c->padding, c->rows * (uint64_t)seq_len), "cut",
                            (json_int_t)c->cut, "dropped", (json_int_t)c->dropped, "dropped_tokens",
                            (json_int_t)c->dropped_tokens));
    }
    return list;
}

static json_t *json_stat(const struct stats *st)
{
    json_t *j = json_object();

    json_object_set_new(j, "path", tern_json_text(tern_data_set_path(st->set)));
    json_object_set_new(j, "documents", json_integer((json_int_t)st->n));
    json_object_set_new(j, "tokens", json_integer((json_int_t)tern_data_set_n_tokens(st->set)));
    if (tern_data_set_has_mask(st->set))
        json_object_set_new(j, "targets", json_integer((json_int_t)st->targets));
    if (st->unk >= 0)
        json_object_set_new(j, "unknown", json_integer((json_int_t)st->unknown));
    json_object_set_new(j, "lengths", json_lengths(st));
    json_object_set_new(j, "histogram", json_bins(st));
    if (seq_len) {
        json_object_set_new(j, "seq_len", json_integer(seq_len));
        json_object_set_new(j, "longer_documents", json_integer((json_int_t)st->longer));
        json_object_set_new(j, "longer_tokens", json_integer((json_int_t)st->longer_tokens));
        json_object_set_new(j, "packings", json_packings(st));
    }
    return j;
}

static int stat_one(const char *path, const struct tern_token *t, json_t *list,
                    struct tern_err *err)
{
    struct stats st = {.set = tern_data_set_open(path, err), .unk = -1};
    int rc = -1;

    tern_progress_begin("documents", "%s", path);
    if (st.set && read_lengths(&st, err) == 0 && read_targets(&st, err) == 0 &&
        read_unknown(&st, t, err) == 0 && read_packings(&st, err) == 0) {
        tern_progress_end();
        rc = 0;
        if (list)
            json_array_append_new(list, json_stat(&st));
        else
            print_stat(&st);
    }
    free(st.lengths);
    tern_data_set_free(st.set);
    return rc;
}

static int run(int n_args, char **args, struct tern_err *err)
{
    json_t *list = as_json ? json_array() : NULL;
    struct tern_token *t = tokenizer ? tern_token_load(tokenizer, err) : NULL;
    int rc = tokenizer && !t ? -1 : 0;

    if (rc == 0 && seq_len > 1 << 20)
        rc = tern_err_set(err, TERN_USAGE, "--seq-len %" PRId64 "; up to %d is allowed", seq_len,
                          1 << 20);
    for (int i = 0; i < n_args && rc == 0; i++) {
        if (i && !as_json)
            printf("\n");
        rc = stat_one(args[i], t, list, err);
    }
    if (rc == 0 && list)
        rc = tern_json_print(stdout, list, err);
    json_decref(list);
    tern_token_free(t);
    return rc;
}

static const struct tern_opt opts[] = {
    {"seq-len", 'L', TERN_OPT_INT, "TOKENS", .def = "0", .to.integer = &seq_len,
     .help = "also show how each packing fills rows of this length"},
    {"tokenizer", 't', TERN_OPT_TEXT, "PATH", .to.text = &tokenizer,
     .help = "also read every token, and count those that are the tokenizer's unknown one"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &as_json, .help = "print JSON"},
    {0},
};

const struct tern_cmd data_stat = {
    .name = "stat",
    .args = "SET...",
    .summary = "show how long documents are, and how rows would be filled",
    .about = "Reads the list of documents, and a mask, not the tokens. Padding is the share of a "
             "row's places "
             "that hold no token; data.packing of a recipe chooses the packing.",
    .examples = "  tern data stat pubmed.tds -L 4096\n",
    .opts = opts,
    .args_min = 1,
    .args_max = -1,
    .run = run,
};

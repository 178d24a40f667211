/* Rows of whole documents: which pieces of which documents are in a row, and what a row reads. */
#include "core/data/pack.h"

#include "core/base/assert.h"
#include "core/base/str.h"
#include "core/data/data.h"

#include <stdlib.h>
#include <string.h>

/* A document that is cut.  Its whole rows are behind those of the ones before it. */
struct longer {
    uint64_t doc;
    uint64_t end; /* whole rows of it and of those before */
};

/* Rows 0 .. n_whole - 1 are whole rows of cut documents; the others hold pieces, each the rest of a
 * document: all of one that is not cut. */
struct tern_data_pack {
    const struct tern_data_set *set;
    struct tern_data_pack_how how;
    struct tern_data_pack_counts counts;
    uint32_t context; /* tokens of a piece that are no targets: 1, its BOS, in a set with BOS */
    struct longer *longer;
    size_t n_longer;
    uint64_t n_whole;
    struct tern_data_bins rows; /* of documents; `first` is NULL where each has a row of its own */
    uint32_t *filled;           /* [rows.n_bins] */
};

/* Where a piece lies in its document. */
struct piece {
    uint64_t first;  /* target */
    uint64_t n;      /* of them */
    bool has_before; /* a token stands before its first target */
};

/* Whole rows of a document of n tokens that is longer than a row; 0 of any other. */
static uint64_t whole_rows(const struct tern_data_pack *p, uint64_t n)
{
    const uint64_t len = p->how.seq_len;

    return n > len + p->context ? (n - p->context) / len : 0;
}

/* What is left of it. */
static struct piece rest_of(const struct tern_data_pack *p, uint64_t n)
{
    const uint64_t done = p->context + whole_rows(p, n) * p->how.seq_len;

    return (struct piece){.first = done, .n = n > done ? n - done : 0, .has_before = done > 0};
}

/* ---- building ---- */

static int add_longer(struct tern_data_pack *p, uint64_t doc, uint64_t rows, struct tern_err *err)
{
    if ((p->n_longer & (p->n_longer - 1)) == 0) { /* full at each power of two */
        size_t room = p->n_longer ? 2 * p->n_longer : 1;
        struct longer *more = realloc(p->longer, room * sizeof *more);
        if (!more)
            return tern_err_set(err, TERN_TEMPFAIL, "no memory for %zu long documents", room);
        p->longer = more;
    }
    p->n_whole += rows;
    p->longer[p->n_longer++] = (struct longer){doc, p->n_whole};
    return 0;
}

/* The places that document `doc`, of n tokens, takes of a row that it shares; 0 for none. */
static int size_of(struct tern_data_pack *p, uint64_t doc, uint64_t n, uint32_t *ret_size,
                   struct tern_err *err)
{
    const uint64_t rows = whole_rows(p, n);
    const struct piece rest = rest_of(p, n);

    *ret_size = 0;
    if (rows && p->how.longer == TERN_DATA_LONGER_DROP) {
        p->counts.dropped++;
        p->counts.dropped_tokens += n;
        return 0;
    }
    if (n && (rest.n || !rows))
        *ret_size = (uint32_t)(p->context + rest.n);
    if (!rows)
        return 0;
    p->counts.cut++;
    return add_longer(p, doc, rows, err);
}

static uint32_t *read_sizes(struct tern_data_pack *p, uint32_t n, struct tern_err *err)
{
    enum { AT_ONCE = 512 };
    struct tern_data_set_doc docs[AT_ONCE];
    uint32_t *sizes = tern_alloc(n, sizeof *sizes, "lengths of documents", err);

    for (uint32_t at = 0; sizes && at < n; at += AT_ONCE) {
        uint32_t take = n - at < AT_ONCE ? n - at : AT_ONCE;
        int rc = tern_data_set_docs(p->set, at, take, docs, err);
        for (uint32_t i = 0; rc == 0 && i < take; i++)
            rc = size_of(p, at + i, docs[i].n_tokens, &sizes[at + i], err);
        if (rc < 0) {
            free(sizes);
            return NULL;
        }
    }
    return sizes;
}

/* Each in a row of its own; `sizes` becomes the list of them. */
static void one_each(struct tern_data_pack *p, uint32_t *sizes, uint32_t n)
{
    struct tern_data_bins *b = &p->rows;

    b->things = sizes;
    for (uint32_t i = 0; i < n; i++) {
        if (!sizes[i])
            continue;
        p->filled[b->n] = sizes[i] - p->context;
        b->things[b->n++] = i;
    }
    b->n_bins = b->n;
}

static int best_fit(struct tern_data_pack *p, uint32_t *sizes, uint32_t n, struct tern_err *err)
{
    struct tern_data_bins *b = &p->rows;
    int rc = tern_data_bins_fit(sizes, n, p->how.seq_len + p->context, b, err);

    if (rc == 0 && !(p->filled = tern_alloc(b->n_bins, sizeof *p->filled, "rows", err)))
        rc = -1;
    for (uint32_t r = 0; rc == 0 && r < b->n_bins; r++) {
        for (uint32_t k = b->first[r]; k < b->first[r + 1]; k++)
            p->filled[r] += sizes[b->things[k]];
        p->filled[r] -= p->context; /* the first one's is input 0 */
    }
    free(sizes);
    return rc;
}

static int pack(struct tern_data_pack *p, struct tern_err *err)
{
    struct tern_data_pack_counts *c = &p->counts;
    const uint64_t n_docs = tern_data_set_n_docs(p->set);

    if (n_docs >= UINT32_MAX)
        return tern_err_set(err, TERN_USAGE,
                            "%s: %llu documents; packing best-fit and padded take fewer than 2^32. "
                            "Divide the set.",
                            tern_data_set_path(p->set), (unsigned long long)n_docs);
    const uint32_t n = (uint32_t)n_docs;
    uint32_t *sizes = read_sizes(p, n, err);
    if (!sizes)
        return -1;
    if (p->how.packing == TERN_DATA_BEST_FIT) {
        if (best_fit(p, sizes, n, err) < 0)
            return -1;
    } else {
        p->filled = tern_alloc(n, sizeof *p->filled, "rows", err);
        if (!p->filled) {
            free(sizes);
            return -1;
        }
        one_each(p, sizes, n);
    }
    c->rows = p->n_whole + p->rows.n_bins;
    for (uint32_t r = 0; r < p->rows.n_bins; r++)
        c->padding += p->how.seq_len - p->filled[r];
    return 0;
}

struct tern_data_pack *tern_data_pack_new(const struct tern_data_set *s,
                                          const struct tern_data_pack_how *how,
                                          struct tern_err *err)
{
    struct tern_data_pack *p = tern_alloc(1, sizeof *p, "packing", err);

    if (!p)
        return NULL;
    p->set = s;
    p->how = *how;
    p->context = tern_data_set_bos(s) >= 0;
    if (how->packing == TERN_DATA_CONCAT) {
        p->counts.rows = tern_data_set_rows(s, how->seq_len);
        p->counts.padding = p->counts.rows * how->seq_len - tern_data_set_n_tokens(s);
    } else if (pack(p, err) < 0) {
        tern_data_pack_free(p);
        return NULL;
    }
    return p;
}

void tern_data_pack_free(struct tern_data_pack *p)
{
    if (!p)
        return;
    tern_data_bins_free(&p->rows);
    free(p->longer);
    free(p->filled);
    free(p);
}

/* ---- reading ---- */

struct tern_data_pack_counts tern_data_pack_counts(const struct tern_data_pack *p)
{
    return p->counts;
}

uint32_t tern_data_pack_filled(const struct tern_data_pack *p, uint64_t r)
{
    tern_assert_cmp(r, <, p->counts.rows);
    if (p->how.packing == TERN_DATA_CONCAT)
        return r + 1 < p->counts.rows ? p->how.seq_len
                                      : (uint32_t)(p->how.seq_len - p->counts.padding);
    return r < p->n_whole ? p->how.seq_len : p->filled[r - p->n_whole];
}

/* A row under way: `n` inputs are written.  Those before `told` have their starts; the others are
 * of the document that begins at it. */
struct row {
    int32_t *tokens;
    uint8_t *mask;
    int32_t *starts; /* NULL: not asked for */
    uint32_t n, told, start;
};

/* Inputs before `end` are of the document under way. */
static void tell_until(struct row *row, uint32_t end)
{
    for (; row->starts && row->told < end; row->told++)
        row->starts[row->told] = (int32_t)row->start;
}

/* Add a piece of `doc`.  Input 0 of the row is the token before its first target.  Later a piece
 * follows the EOS before it.  In a set with BOS the token before its first target comes too. */
static int add(const struct tern_data_pack *p, struct row *row, const struct tern_data_set_doc *doc,
               struct piece piece, struct tern_err *err)
{
    const struct tern_data_set *s = p->set;
    const bool before = piece.has_before && (row->n == 0 || p->context);
    const uint64_t first = doc->first_token + piece.first - before, n = piece.n + before;

    if (row->n == 0 && !before)
        row->tokens[row->n++] = (int32_t)tern_data_set_eos(s);
    if (row->n + n > (uint64_t)p->how.seq_len + 1)
        return tern_err_set(err, TERN_FAILED,
                            "%s: its documents have other lengths than when they were packed",
                            tern_data_set_path(s));
    if (tern_data_set_read(s, first, (size_t)n, row->tokens + row->n, err) < 0)
        return -1;
    if (row->n && before)
        row->mask[row->n - 1] = 0;
    tell_until(row, before ? row->n : row->n - 1);
    row->start = row->told;
    row->n += before;
    /* tokens[n] is the target of place n - 1 */
    if (tern_data_set_mask(s, doc->first_token + piece.first, (size_t)piece.n,
                           row->mask + row->n - 1, err) < 0)
        return -1;
    row->n += (uint32_t)piece.n;
    return 0;
}

static int add_whole(const struct tern_data_pack *p, struct row *row, uint64_t r,
                     struct tern_err *err)
{
    const struct longer *l = p->longer;
    struct tern_data_set_doc doc;
    size_t low = 0, high = p->n_longer - 1;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (l[middle].end > r)
            high = middle;
        else
            low = middle + 1;
    }
    if (tern_data_set_doc(p->set, l[low].doc, &doc, err) < 0)
        return -1;
    const uint64_t of_doc = r - (low ? l[low - 1].end : 0);
    const uint64_t first = p->context + of_doc * p->how.seq_len;
    return add(p, row, &doc,
               (struct piece){.first = first, .n = p->how.seq_len, .has_before = first > 0}, err);
}

static int add_pieces(const struct tern_data_pack *p, struct row *row, uint64_t r,
                      struct tern_err *err)
{
    const struct tern_data_bins *b = &p->rows;
    struct tern_data_set_doc doc;
    const uint64_t from = b->first ? b->first[r] : r, to = b->first ? b->first[r + 1] : r + 1;

    for (uint64_t k = from; k < to; k++)
        if (tern_data_set_doc(p->set, b->things[k], &doc, err) < 0 ||
            add(p, row, &doc, rest_of(p, doc.n_tokens), err) < 0)
            return -1;
    return 0;
}

static int concat_row(const struct tern_data_pack *p, uint64_t r, const struct row *to,
                      struct tern_err *err)
{
    const uint32_t len = p->how.seq_len;

    if (tern_data_set_row(p->set, len, r, to->tokens, to->mask, err) < 0)
        return -1;
    return to->starts ? tern_data_set_starts(p->set, len, r, to->starts, err) : 0;
}

int tern_data_pack_row(const struct tern_data_pack *p, uint64_t r, int32_t *tokens, uint8_t *mask,
                       int32_t *starts, struct tern_err *err)
{
    const uint32_t len = p->how.seq_len;
    struct row row = {tokens, mask, starts, 0, 0, 0};

    if (p->how.packing == TERN_DATA_CONCAT)
        return concat_row(p, r, &row, err);
    if (r >= p->counts.rows)
        return tern_err_set(err, TERN_FAILED, "%s: row %llu of %llu requested",
                            tern_data_set_path(p->set), (unsigned long long)r,
                            (unsigned long long)p->counts.rows);
    if ((r < p->n_whole ? add_whole(p, &row, r, err) : add_pieces(p, &row, r - p->n_whole, err)) <
        0)
        return -1;
    for (uint32_t j = row.n; j <= len; j++) {
        tokens[j] = (int32_t)tern_data_set_eos(p->set);
        mask[j - 1] = 0;
    }
    /* What fills up is behind the last document, as in a row of concat. */
    const uint32_t end = row.n - !p->context;
    tell_until(&row, end < len ? end : len);
    for (uint32_t j = row.told; starts && j < len; j++)
        starts[j] = (int32_t)j;
    return 0;
}

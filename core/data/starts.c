/* Where documents begin in a row, by the set's list of documents. */
#include "core/data/data.h"

#include <string.h>

/* The first document that begins at token `at` or behind it; n_docs where none does. */
static int find_doc(const struct tern_data_set *s, uint64_t at, uint64_t *ret_doc,
                    struct tern_err *err)
{
    uint64_t low = 0, high = tern_data_set_n_docs(s);
    struct tern_data_set_doc doc;

    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (tern_data_set_doc(s, middle, &doc, err) < 0)
            return -1;
        if (doc.first_token < at)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_doc = low;
    return 0;
}

/* Set starts[j] to j where a document begins, for tokens first .. first + n - 1 of the set; the
 * place of token t is t - first + shift. */
static int mark(const struct tern_data_set *s, uint64_t first, uint64_t n, uint32_t shift,
                int32_t *starts, struct tern_err *err)
{
    enum { AT_ONCE = 64 };
    struct tern_data_set_doc docs[AT_ONCE];
    const uint64_t n_docs = tern_data_set_n_docs(s);
    uint64_t d;

    if (find_doc(s, first, &d, err) < 0)
        return -1;
    while (d < n_docs) {
        const size_t take = n_docs - d < AT_ONCE ? (size_t)(n_docs - d) : AT_ONCE;
        if (tern_data_set_docs(s, d, take, docs, err) < 0)
            return -1;
        for (size_t i = 0; i < take; i++) {
            const uint64_t at = docs[i].first_token;
            if (at < first)
                return tern_err_set(err, TERN_USAGE,
                                    "%s: damaged token set: its documents are out of order. Build "
                                    "it again.",
                                    tern_data_set_path(s));
            if (at - first >= n)
                return 0;
            starts[at - first + shift] = (int32_t)(at - first + shift);
        }
        d += take;
    }
    return 0;
}

int tern_data_set_starts(const struct tern_data_set *s, uint32_t seq_len, uint64_t r,
                         int32_t *starts, struct tern_err *err)
{
    const uint64_t first = r * seq_len, all = tern_data_set_n_tokens(s);
    /* Input j is token first + j - 1: the EOS in front of a document stands at its first token's
     * place as a target. A BOS stands one place behind that. */
    const uint32_t shift = tern_data_set_bos(s) >= 0;

    if (r >= tern_data_set_rows(s, seq_len))
        return tern_err_set(err, TERN_FAILED, "%s: row %llu of %llu requested",
                            tern_data_set_path(s), (unsigned long long)r,
                            (unsigned long long)tern_data_set_rows(s, seq_len));
    memset(starts, 0, seq_len * sizeof *starts);
    if (mark(s, first, seq_len - shift, shift, starts, err) < 0)
        return -1;
    for (uint32_t j = 1; j < seq_len; j++) {
        const bool fills_up = j >= all - first + shift; /* each EOS alone */
        starts[j] = fills_up ? (int32_t)j : starts[j] ? starts[j] : starts[j - 1];
    }
    return 0;
}

/* Items of multiple choice. */
#ifndef TERN_CMD_EVAL_CHOICES_H
#define TERN_CMD_EVAL_CHOICES_H

#include "cmd/eval/eval.h"
#include "core/infer/choices.h"

enum { CHOICES_MAX = 256 };

struct choices_item {
    uint64_t line; /* of the file, from 1 */
    size_t gold;
    size_t n;
    size_t first; /* its first choice, of all */
};

/* A choice of an item. */
struct choices_one {
    struct tern_infer_row row;
    double characters, bytes; /* of its text, without the delimiter */
};

struct choices_set {
    struct choices_item *items; /* [n_items] */
    struct choices_one *all;    /* [n] */
    size_t n_items, n;
    size_t longest;  /* ids of a row */
    size_t n_cut;    /* rows that lost ids at their beginning */
    uint64_t scored; /* ids */
};

struct choices_how {
    const char *path, *delimiter; /* between context and choice */
    size_t max;                   /* positions of the model */
};

/* Every item of the file, encoded.  TERN_USAGE with FILE:LINE.  To be freed also after a failure;
 * start from {0}. */
int choices_read(const struct choices_how *how, const struct tern_infer_tokens *t,
                 struct choices_set *ret_set, struct tern_err *err);
void choices_free(struct choices_set *s);

#endif

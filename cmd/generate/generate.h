/* tern generate, in pieces: the prompts, the tokens that end a text, and what is printed. */
#ifndef TERN_CMD_GENERATE_GENERATE_H
#define TERN_CMD_GENERATE_GENERATE_H

#include "core/base/opt.h"
#include "core/infer/generate.h"
#include "core/token/token.h"

/* ---------------------------------------------------------------- prompts */

/* Where prompts come from, as the options say. */
struct generate_source {
    struct tern_opt_list texts, files;
    const char *chat, *system;
    const char *from, *rows; /* a file of records, and "N", "N..M" or NULL for the first */
    const char *template;
    const char *ids; /* a file of ids, a prompt a line */
    bool bos, no_bos;
};

struct generate_prompt {
    int32_t *ids; /* [n], malloc'ed */
    int n;
    char *text;   /* as it is printed, malloc'ed; NULL: of ids */
    char *answer; /* the record's own, malloc'ed, or NULL */
    size_t text_len, answer_len;
    uint64_t number; /* of its row in the file, or among the prompts, from 0 */
    bool alone;      /* its answer does not go on with a text: it begins anew */
};

struct generate_prompts {
    struct generate_prompt *v; /* [n], malloc'ed */
    size_t n;
    int32_t end; /* a special token of the template that ends an answer; -1: none */
};

/* With `t` NULL only ids can be read. */
int generate_prompts_read(const struct generate_source *from, const struct tern_token *t,
                          struct generate_prompts *ret_prompts, struct tern_err *err);
void generate_prompts_free(struct generate_prompts *p);

/* ---------------------------------------------------------------- the model's folder */

enum { GENERATE_ENDS = TERN_MODEL_EOS_MAX + 2 };

/* The ids that end a text: of generation_config.json in `dir`, else of the config, else of the
 * tokenizer (may be NULL).  `more` is one, too, unless it is -1.  Returns how many, or -1. */
int generate_ends(const char *dir, const struct tern_model_config *c, const struct tern_token *t,
                  int32_t more, int32_t ret_ids[GENERATE_ENDS], struct tern_err *err);

/* Refuse what needs more memory than is there: `weights` and the cache, and the rest. */
int generate_check_memory(uint64_t weights, uint64_t cache, uint64_t rest, struct tern_err *err);

/* ---------------------------------------------------------------- output */

struct generate_output {
    const struct generate_prompts *prompts;
    const struct tern_token *token; /* NULL with `ids` */
    bool json, ids, logprobs;
    bool headings; /* prompts, answers and references stand under headings */
    const char *const *stops;
    size_t n_stops;
};

struct generate_printer;
struct generate_printer *generate_printer_new(const struct generate_output *o,
                                              struct tern_err *err);
void generate_printer_free(struct generate_printer *p); /* NULL is fine */
/* The callbacks of struct tern_infer_generation.  Prompts are printed in order: the first that has
 * not ended as its tokens come, the others after it. */
int generate_printer_token(void *printer, size_t prompt, int32_t id, double logprob,
                           struct tern_err *err);
int generate_printer_end(void *printer, size_t prompt, enum tern_infer_end why,
                         struct tern_err *err);
/* After a stop request: prompts that have ended and were not printed yet. */
void generate_printer_finish(struct generate_printer *p);

#endif

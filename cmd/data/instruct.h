/* tern data build --template: records of instruct data as documents. */
#ifndef TERN_CMD_DATA_INSTRUCT_H
#define TERN_CMD_DATA_INSTRUCT_H

#include "core/base/json.h"
#include "core/base/opt.h"
#include "core/data/feed.h"
#include "core/instruct/instruct.h"

struct data_instruct_opts {
    const char *template, *loss, *longer;
    int64_t max_tokens;
};

#define DATA_INSTRUCT_ROWS(o)                                                                      \
    {"template",                                                                                   \
     0,                                                                                            \
     TERN_OPT_TEXT,                                                                                \
     "NAME",                                                                                       \
     .to.text = &(o).template,                                                                     \
     .help = "FILE holds records (instruction, context, response; prompt, completion; messages) "  \
             "that become documents by this template: a name or a file (tern data template)"},     \
        {"loss",                                                                                   \
         0,                                                                                        \
         TERN_OPT_TEXT,                                                                            \
         "OF",                                                                                     \
         .to.text = &(o).loss,                                                                     \
         .help = "with --template: what is learnt, response (the answers and their ends; the "     \
                 "default) or all"},                                                               \
        {"max-tokens",                                                                             \
         0,                                                                                        \
         TERN_OPT_INT,                                                                             \
         "TOKENS",                                                                                 \
         .def = "0",                                                                               \
         .to.integer = &(o).max_tokens,                                                            \
         .help = "with --template: as many as a record may have, BOS and EOS included; 0: any"},   \
    {                                                                                              \
        "longer", 0, TERN_OPT_TEXT, "HOW",                                                         \
            .to.text = &(o).longer,                                                                \
            .help =                                                                                \
                "records above --max-tokens: refuse (the default), cut (the first tokens stay; "   \
                "one without an answer then goes) or drop"                                         \
    }

/* *ret_instruct is NULL without a template; the other options are refused then.  `bos`: documents
 * begin with BOS whatever the template says. */
int data_instruct_open(const struct data_instruct_opts *o, bool bos, const struct tern_token *t,
                       struct tern_instruct **ret_instruct, struct tern_err *err);
/* How a feed reads records; `t` and what is returned live as long as the feed. */
struct tern_data_feed_records data_instruct_records(struct tern_instruct *t);
/* The template's name and digest and the other options.  A new reference. */
json_t *data_instruct_notes(const struct data_instruct_opts *o, const struct tern_instruct *t);
/* How many records were cut or left out, of this process. */
void data_instruct_log(const char *out, const struct tern_instruct *t);

extern const struct tern_cmd data_template;

#endif

/* Records of standard input as the documents of a set: a line each, "ID:MASK ID:MASK ...", with BOS
 * and EOS.
 *
 *   instruct-pipe TOKENIZER TEMPLATE response|all BOS MAX-TOKENS refuse|cut|drop
 *
 * For tests/peers/instruct.sh. */
#include "core/instruct/instruct.h"
#include "core/token/token.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const struct tern_err *err)
{
    fprintf(stderr, "%s\n", err->text);
    return 1;
}

static void print(const struct tern_instruct *t, const struct tern_token *token,
                  const struct tern_instruct_row *row)
{
    if (tern_instruct_bos(t))
        printf("%d:%d ", tern_token_bos(token), !row->mask);
    for (size_t i = 0; i < row->n; i++)
        printf("%u:%d ", row->ids[i], row->mask ? row->mask[i] : 1);
    printf("%d:%d\n", tern_token_eos(token), row->eos);
}

int main(int argc, char **argv)
{
    struct tern_err err = {0};
    struct tern_instruct_row row;
    char *line = NULL;
    size_t room = 0;
    ssize_t len;

    if (argc != 7)
        return 2;
    const struct tern_instruct_how how = {.template = argv[2],
                                          .all = strcmp(argv[3], "all") == 0,
                                          .bos = atoi(argv[4]),
                                          .max_tokens = (size_t)atoi(argv[5]),
                                          .longer = strcmp(argv[6], "cut") == 0 ? TERN_INSTRUCT_CUT
                                                    : strcmp(argv[6], "drop") == 0
                                                        ? TERN_INSTRUCT_DROP
                                                        : TERN_INSTRUCT_REFUSE};
    struct tern_token *token = tern_token_load(argv[1], &err);
    struct tern_instruct *t = token ? tern_instruct_open(&how, token, &err) : NULL;
    struct tern_instruct_encoder *e = t ? tern_instruct_encoder_new(t, &err) : NULL;
    if (!e)
        return fail(&err);
    while ((len = getline(&line, &room, stdin)) > 0) {
        if (tern_instruct_encode(e, line, (size_t)len, &row, &err) < 0)
            return fail(&err);
        if (row.n)
            print(t, token, &row);
    }
    free(line);
    tern_instruct_encoder_free(e);
    tern_instruct_free(t);
    tern_token_free(token);
    return 0;
}

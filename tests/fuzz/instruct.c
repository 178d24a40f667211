/* Records of instruct data and templates that others wrote: each is taken or refused in words, ids
 * are in the vocabulary and masks as long, nothing is read that is not there.  FUZZ_RUNS: how many
 * inputs of each. */
#include "core/base/fs.h"
#include "core/base/str.h"
#include "core/instruct/instruct.h"
#include "core/token/token.h"
#include "tests/fuzz/mutate.h"

#include <unistd.h>

static char work[] = "/tmp/tern-fuzz-instruct-XXXXXX";
static struct tern_token *token;
static int taken, refused, wrong;

static const char *const records[] = {"{\"instruction\": \"Say <|eot_id|>\", \"context\": "
                                      "\"a\\u0000b\\n\\ud83d\\ude00\", \"response\": \"So "
                                      "it is.\", \"category\": \"x\", \"id\": 12}",
                                      "{\"instruction\": \"Why?\", \"input\": null, \"output\": "
                                      "\"\xe4\xbb\x8a\xe5\xa4\xa9 \xd7\xa9\"}",
                                      "{\"prompt\": \"the govern\", \"completion\": \"ment\"}",
                                      "{\"messages\": [{\"role\": \"system\", \"content\": "
                                      "\"Be.\"}, {\"role\": \"user\", \"content\": \" a \"}, "
                                      "{\"role\": \"assistant\", \"content\": \"b\\n\"}, "
                                      "{\"role\": \"user\", \"content\": \"c\"}, {\"role\": "
                                      "\"assistant\", \"content\": \"\\u3000d\"}]}",
                                      "{\"conversations\": [{\"from\": \"human\", \"value\": "
                                      "\"a\"}, {\"from\": \"gpt\", \"value\": \"b\"}]}",
                                      NULL};
static const char *const record_words[] = {"\"",
                                           "{",
                                           "}",
                                           "[",
                                           "]",
                                           ":",
                                           ",",
                                           "null",
                                           "true",
                                           "1e999",
                                           "-0",
                                           "\\u0000",
                                           "\\ud800",
                                           "\\",
                                           "\"role\": ",
                                           "\"content\": ",
                                           "\"messages\": ",
                                           "\"response\": ",
                                           "user",
                                           "assistant",
                                           "\xff",
                                           "\xe2\x80",
                                           "[[[[[[[[[[[[[[[[",
                                           "99999999999999999999999",
                                           NULL};
static const char *const template_words[] = {
    "{",          "}",          "{{",        "}}",       "{bos}",    "{eos}",  "{if x}",
    "{unless x}", "{x?}",       "{content}", "{system}", "prompt: ", "chat: ", "answer: ",
    "join: ",     "specials: ", "- ",        "\n",       "  ",       "\"",     "[",
    "]",          "null",       "&a",        "*a",       "\xff",     NULL};

static void encode(struct tern_instruct *t, struct tern_instruct_encoder *e, const char *record,
                   size_t len)
{
    struct tern_instruct_row row;
    struct tern_err err = {0};

    if (tern_instruct_encode(e, record, len, &row, &err) < 0) {
        refused++;
        wrong += !err.text[0] || err.code != TERN_USAGE;
        return;
    }
    taken++;
    wrong += !row.mask != !tern_instruct_masks(t);
    for (size_t i = 0; i < row.n; i++)
        wrong += row.ids[i] >= tern_token_n_vocab(token) || (row.mask && row.mask[i] > 1);
}

static void told(const char *what)
{
    ok(taken > 0 && refused > 0 && wrong == 0, "%s: %d taken, %d refused, %d wrong", what, taken,
       refused, wrong);
    taken = refused = wrong = 0;
}

static void fuzz_records(const struct tern_instruct_how *how, int n)
{
    struct tern_instruct *t = tern_instruct_open(how, token, NULL);
    struct tern_instruct_encoder *e = tern_instruct_encoder_new(t, NULL);

    for (int r = 0; records[r]; r++) {
        const size_t whole = strlen(records[r]);
        for (size_t cut = 0; cut <= whole; cut++) {
            char *exact = malloc(cut ? cut : 1);
            memcpy(exact, records[r], cut);
            encode(t, e, exact, cut);
            free(exact);
        }
        for (int i = 0; i < n; i++) {
            size_t len;
            char *data = fuzz_mutate(records[r], whole, record_words, &len);
            encode(t, e, data, len);
            free(data);
        }
    }
    told(tern_instruct_name(t));
    tern_instruct_encoder_free(e);
    tern_instruct_free(t);
}

static void try_template(const char *path)
{
    struct tern_err err = {0};
    struct tern_instruct *t =
        tern_instruct_open(&(struct tern_instruct_how){.template = path}, token, &err);
    struct tern_instruct_encoder *e = t ? tern_instruct_encoder_new(t, &err) : NULL;

    taken += t != NULL;
    refused += !t;
    wrong += !t && !err.text[0];
    for (int r = 0; e && records[r]; r++) {
        const int before[] = {taken, refused};
        encode(t, e, records[r], strlen(records[r]));
        taken = before[0];
        refused = before[1];
    }
    tern_instruct_encoder_free(e);
    tern_instruct_free(t);
}

static void fuzz_templates(int n)
{
    char *path = tern_fs_join(work, "own");

    for (int k = 0; tern_instruct_names[k]; k++)
        for (int i = 0; i < n; i++) {
            const char *text = tern_instruct_text(tern_instruct_names[k]);
            size_t len;
            char *data = fuzz_mutate(text, strlen(text), template_words, &len);
            FILE *f = fopen(path, "w");
            if (!f || fwrite(data, 1, len, f) != len || fclose(f) != 0)
                abort();
            free(data);
            try_template(path);
        }
    told("templates");
    unlink(path);
    free(path);
}

int main(void)
{
    const int n = fuzz_runs(2000);
    const struct tern_instruct_how hows[] = {
        {.template = "dolly"},
        {.template = "alpaca", .all = true},
        {.template = "completion", .max_tokens = 6, .longer = TERN_INSTRUCT_CUT},
        {.template = "llama2-chat", .max_tokens = 20, .longer = TERN_INSTRUCT_DROP}};

    token = tern_token_load("tests/golden/spm-bpe-800.model", NULL);
    if (!token || !mkdtemp(work))
        return 1;
    for (size_t i = 0; i < sizeof hows / sizeof hows[0]; i++)
        fuzz_records(&hows[i], n);
    fuzz_templates(n);
    rmdir(work);
    tern_token_free(token);
    return tap_done();
}

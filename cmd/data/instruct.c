/* tern data build --template, and tern data template. */
#include "cmd/data/instruct.h"

#include "core/base/log.h"
#include "core/base/str.h"

#include <inttypes.h>
#include <string.h>

static int word(const char *option, const char *given, const char *const *words, int *ret,
                struct tern_err *err)
{
    struct tern_buf all = {0};

    *ret = 0;
    for (int i = 0; given && words[i]; i++) {
        tern_buf_printf(&all, "%s%s", i ? ", " : "", words[i]);
        if (strcmp(given, words[i]) == 0) {
            *ret = i;
            given = NULL;
        }
    }
    if (given)
        tern_err_set(err, TERN_USAGE, "--%s %s: is none of %s", option, given,
                     all.data ? all.data : "");
    tern_buf_free(&all);
    return given ? -1 : 0;
}

int data_instruct_open(const struct data_instruct_opts *o, bool bos, const struct tern_token *t,
                       struct tern_instruct **ret_instruct, struct tern_err *err)
{
    static const char *const losses[] = {"response", "all", NULL};
    static const char *const longer[] = {[TERN_INSTRUCT_REFUSE] = "refuse",
                                         [TERN_INSTRUCT_CUT] = "cut",
                                         [TERN_INSTRUCT_DROP] = "drop",
                                         NULL};
    int loss, how;

    *ret_instruct = NULL;
    if (!o->template && (o->loss || o->longer || o->max_tokens))
        return tern_err_set(err, TERN_USAGE,
                            "--loss, --longer and --max-tokens are for records: say which "
                            "--template");
    if (!o->template)
        return 0;
    if (word("loss", o->loss, losses, &loss, err) < 0 ||
        word("longer", o->longer, longer, &how, err) < 0)
        return -1;
    if (o->longer && !o->max_tokens)
        return tern_err_set(err, TERN_USAGE, "--longer %s: longer than what? Say --max-tokens",
                            o->longer);
    const struct tern_instruct_how asked = {.template = o->template,
                                            .all = loss == 1,
                                            .bos = bos,
                                            .max_tokens = (size_t)o->max_tokens,
                                            .longer = (enum tern_instruct_longer)how};
    *ret_instruct = tern_instruct_open(&asked, t, err);
    return *ret_instruct ? 0 : -1;
}

/* ---- a feed's records ---- */

static void *open_records(const void *arg, const struct tern_token *t, struct tern_err *err)
{
    (void)t;
    return tern_instruct_encoder_new((struct tern_instruct *)arg, err);
}

static int encode_record(void *state, const char *line, size_t len,
                         struct tern_data_feed_tokens *ret, struct tern_err *err)
{
    struct tern_instruct_row row;

    if (tern_instruct_encode(state, line, len, &row, err) < 0)
        return -1;
    *ret = (struct tern_data_feed_tokens){.ids = row.ids,
                                          .mask = row.mask,
                                          .n_ids = row.n,
                                          .text_bytes = row.text_bytes,
                                          .cut = !row.eos};
    return 0;
}

static void close_records(void *state)
{
    tern_instruct_encoder_free(state);
}

static bool reads_field(const void *arg, const char *path)
{
    return tern_instruct_reads(arg, path);
}

struct tern_data_feed_records data_instruct_records(struct tern_instruct *t)
{
    return (struct tern_data_feed_records){.arg = t,
                                           .open = open_records,
                                           .encode = encode_record,
                                           .close = close_records,
                                           .reads = reads_field};
}

/* ---- what a build says ---- */

json_t *data_instruct_notes(const struct data_instruct_opts *o, const struct tern_instruct *t)
{
    uint8_t digest[TERN_SHA256_BYTES];
    char hex[TERN_SHA256_HEX];
    json_t *to = json_object();

    tern_instruct_digest(t, digest);
    tern_hex(hex, digest, sizeof digest);
    json_object_set_new(to, "template", tern_json_text(tern_instruct_name(t)));
    json_object_set_new(to, "template_sha256", json_string(hex));
    json_object_set_new(to, "loss", json_string(o->loss ? o->loss : "response"));
    if (o->max_tokens) {
        json_object_set_new(to, "max_tokens", json_integer((json_int_t)o->max_tokens));
        json_object_set_new(to, "longer", json_string(o->longer ? o->longer : "refuse"));
    }
    return to;
}

void data_instruct_log(const char *out, const struct tern_instruct *t)
{
    const struct tern_instruct_counts c = tern_instruct_counts(t);

    tern_info("%s: template %s: %" PRIu64 " records, %" PRIu64 " tokens are targets", out,
              tern_instruct_name(t), c.records, c.targets);
    if (c.cut)
        tern_info("%s: %" PRIu64 " records above --max-tokens were cut", out, c.cut);
    if (c.dropped)
        tern_info("%s: %" PRIu64 " records above --max-tokens were left out", out, c.dropped);
    if (c.unanswered)
        tern_info("%s: %" PRIu64 " records were left out: their prompts fill --max-tokens", out,
                  c.unanswered);
}

/* ---- tern data template ---- */

static int run_template(int n_args, char **args, struct tern_err *err)
{
    const char *text = n_args ? tern_instruct_text(args[0]) : NULL;

    if (text) {
        fputs(text, stdout);
        return 0;
    }
    if (n_args)
        return tern_err_set(err, TERN_USAGE,
                            "%s: is no template's name; without a name all are listed", args[0]);
    for (size_t i = 0; tern_instruct_names[i]; i++)
        puts(tern_instruct_names[i]);
    return 0;
}

const struct tern_cmd data_template = {
    .name = "template",
    .args = "[NAME]",
    .summary = "list the templates of instruct data, or print one to begin your own with",
    .about =
        "A template is a YAML file. `prompt` is a list of sections, parted by `join` (a blank "
        "line). "
        "`answer` follows directly; it is what is learnt, with the EOS behind it. {FIELD} is a "
        "field "
        "of the record, which must be there. {FIELD?} leaves its section out where the field is "
        "missing, null or empty; spaces are text. {if FIELD} and {unless FIELD} do so, too, and "
        "write nothing. context may be called input, and response output.\n\n"
        "A template of conversations has `chat` in the place of `prompt`. `begin` stands before "
        "all "
        "messages. `system` and `user` have {content}, the message; {system} in `user` puts the "
        "system's message inside the user's. `trim: true` takes off white space at both ends of "
        "messages. `answer` has {content}, too; every answer is learnt. Records have messages "
        "(role and content: perhaps one of system, then user and assistant in turns). Or they have "
        "conversations (from and value: human and gpt), or a prompt and its answer.\n\n{bos} and "
        "{eos} are the tokenizer's; `specials` lists other special tokens. A brace is doubled: {{. "
        "What a record says is text: special tokens come from the template alone.\n\n"
        "llama2-chat is [INST] and <<SYS>> as Meta wrote it (llama/generation.py). Ids and masks "
        "of the others are those of trl's SFTTrainer; an EOS that is no target stands behind "
        "those of llama3-chat.",
    .examples = "tern data template llama3-chat >own.yaml\n"
                "tern data build -t model/ --template own.yaml -o train.tds train.jsonl",
    .args_min = 0,
    .args_max = 1,
    .run = run_template,
};

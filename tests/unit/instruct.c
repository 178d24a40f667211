/* core/instruct: templates are read, records become text and special tokens, answers are targets.
 *
 * A row is shown as the text of its ids, with brackets around targets. */
#include "core/instruct/instruct.h"
#include "core/instruct/template.h"
#include "core/token/token.h"
#include "tests/unit/token_file.h"

static struct tern_token *bytes, *pieces; /* GPT-2's way with special tokens; SentencePiece */

#define HEADERS                                                                                    \
    ADDED("261", "<|start_header_id|>", "true")                                                    \
    "," ADDED("262", "<|end_header_id|>", "true") "," ADDED(                                       \
        "263", "<|eot_id|>", "true") "," ADDED("264", "<|end_of_text|>",                           \
                                               "true") "," ADDED("265", "<|begin_of_text|>",       \
                                                                 "true")
enum { FIRST_SPECIAL = 261 };

static void load_tokenizers(void)
{
    static const char config[] =
        "{\"bos_token\": \"<|begin_of_text|>\", \"eos_token\": \"<|end_of_text|>\"}";
    char *vocab;
    struct file f = bytes_file(&vocab);
    struct tern_err err = {0};

    f.added = "[" HEADERS "]";
    write_file("tokenizer_config.json", config, strlen(config));
    bytes = load(&f, &err);
    ok(bytes != NULL, "the tokenizer of bytes is read: %s", err.text);
    pieces = tern_token_load("tests/golden/spm-bpe-800.model", &err);
    free(vocab);
}

/* ---- rows as text ---- */

static void add_id(struct tern_buf *to, const struct tern_token *t, uint32_t id)
{
    size_t len;
    const char *s = tern_token_piece(t, id, &len);

    if (t != pieces && id < 256) {
        const char byte = (char)id;
        tern_buf_add(to, &byte, 1);
    } else if (len == 6 && memcmp(s, "<0x", 3) == 0) {
        const char byte = (char)strtol(s + 3, NULL, 16);
        tern_buf_add(to, &byte, 1);
    } else {
        tern_buf_add(to, s, len);
    }
}

/* malloc'ed; "left out", or "error: ..." */
static char *row_of(struct tern_instruct_encoder *e, const struct tern_token *t, const char *record,
                    size_t len)
{
    struct tern_instruct_row row;
    struct tern_err err = {0};
    struct tern_buf b = {0};
    bool inside = false;

    if (tern_instruct_encode(e, record, len, &row, &err) < 0)
        return tern_strf("error %d: %s", err.code, err.text);
    if (row.n == 0)
        return tern_strdup("left out");
    for (size_t i = 0; i < row.n; i++) {
        const bool target = !row.mask || row.mask[i];
        if (target != inside)
            tern_buf_puts(&b, target ? "[" : "]");
        inside = target;
        add_id(&b, t, row.ids[i]);
    }
    tern_buf_printf(&b, "%s", inside == row.eos ? "" : row.eos ? "[" : "]");
    tern_buf_puts(&b, row.eos ? "EOS]" : "EOS");
    return b.data;
}

static char *show_how(const struct tern_instruct_how *how, const struct tern_token *t,
                      const char *record)
{
    struct tern_err err = {0};
    struct tern_instruct *i = tern_instruct_open(how, t, &err);
    struct tern_instruct_encoder *e = i ? tern_instruct_encoder_new(i, &err) : NULL;
    char *row = e ? row_of(e, t, record, strlen(record))
                  : tern_strf("not opened %d: %s", err.code, err.text);

    tern_instruct_encoder_free(e);
    tern_instruct_free(i);
    return row;
}

static char *show(const char *template, const struct tern_token *t, const char *record)
{
    return show_how(&(struct tern_instruct_how){.template = template}, t, record);
}

struct example {
    const char *template, *record, *row, *what;
};

static void check_rows(const struct tern_token *t, const struct example *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *row = show(v[i].template, t, v[i].record);
        is(row, v[i].row, "%s: %s", v[i].template, v[i].what);
        free(row);
    }
}

#define R(instruction, context, response)                                                          \
    "{\"instruction\": \"" instruction "\", \"context\": " context ", \"response\": \"" response   \
    "\"}"
#define M(role, text) "{\"role\": \"" role "\", \"content\": \"" text "\"}"
#define CHAT(list) "{\"messages\": [" list "]}"
#define H3(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"

static void test_fields(void)
{
    static const struct example v[] = {
        {"dolly", R("Why?", "\"Sky.\"", "So."),
         "### Instruction\nWhy?\n\n### Context\nSky.\n\n### Answer\n[So.EOS]",
         "sections are parted by a blank line; the answer and its EOS are targets"},
        {"dolly", R("Why?", "\"\"", "So."), "### Instruction\nWhy?\n\n### Answer\n[So.EOS]",
         "an empty context leaves no section"},
        {"dolly", R("Why?", "null", "So."), "### Instruction\nWhy?\n\n### Answer\n[So.EOS]",
         "null is a context that is missing"},
        {"dolly", "{\"response\": \"So.\", \"instruction\": \"Why?\"}",
         "### Instruction\nWhy?\n\n### Answer\n[So.EOS]", "keys come in any order, or not at all"},
        {"dolly", R("Why?", "\" \"", "So."),
         "### Instruction\nWhy?\n\n### Context\n \n\n### Answer\n[So.EOS]",
         "a context of spaces is one"},
        {"dolly", R(" a\\n", "\"b \"", "\\n c\\n"),
         "### Instruction\n a\n\n\n### Context\nb \n\n### Answer\n[\n c\nEOS]",
         "texts keep their white space"},
        {"dolly-lines", R("Why?", "\"Sky.\"", "So."),
         "### Instruction\nWhy?\n### Context\nSky.\n### Answer\n[So.EOS]",
         "sections are parted by a newline"},
        {"dolly", "{\"instruction\": \"Why?\", \"input\": \"Sky.\", \"output\": \"So.\"}",
         "### Instruction\nWhy?\n\n### Context\nSky.\n\n### Answer\n[So.EOS]",
         "input and output are context and response"},
        {"completion", "{\"prompt\": \"1 + 1 =\", \"completion\": \" 2\"}", "1 + 1 =[ 2EOS]",
         "prompt and completion stay as they are"},
        {"completion", "{\"prompt\": \"\", \"completion\": \"2\"}", "[2EOS]", "no prompt"},
    };

    check_rows(bytes, v, sizeof v / sizeof v[0]);
    char *row = show("alpaca", bytes, R("Why?", "\"Sky.\"", "So."));
    has(row,
        "further context. Write a response that appropriately completes the request.\n\n"
        "### Instruction:\nWhy?\n\n### Input:\nSky.\n\n### Response:[So.EOS]",
        "alpaca, with an input");
    free(row);
    row = show("alpaca", bytes, R("Why?", "\"\"", "So."));
    has(row,
        "describes a task. Write a response that appropriately completes the request.\n\n"
        "### Instruction:\nWhy?\n\n### Response:[So.EOS]",
        "alpaca without an input");
    free(row);
}

static void test_chats(void)
{
    static const struct example three[] = {
        {"llama3-chat", CHAT(M("user", " Why? ") "," M("assistant", "So.\\n")),
         H3("user") "Why?<|eot_id|>" H3("assistant") "[So.<|eot_id|>]EOS",
         "messages without the space around them; the EOS of the set is no target"},
        {"llama3-chat",
         CHAT(M("system", "Be.") "," M("user", "a") "," M("assistant", "b") "," M(
             "user", "c") "," M("assistant", "d")),
         H3("system") "Be.<|eot_id|>" H3("user") "a<|eot_id|>" H3("assistant") "[b<|eot_id|>]" H3(
             "user") "c<|eot_id|>" H3("assistant") "[d<|eot_id|>]EOS",
         "each answer of a conversation is a target"},
        {"llama3-chat",
         "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
         "\"value\": \"b\"}]}",
         H3("user") "a<|eot_id|>" H3("assistant") "[b<|eot_id|>]EOS",
         "conversations with from and value are messages"},
        {"llama3-chat", R("a", "\"c\"", "b"),
         H3("user") "a\n\nc<|eot_id|>" H3("assistant") "[b<|eot_id|>]EOS",
         "instruction and context are the user's message"},
        {"llama3-chat", "{\"prompt\": \"a\", \"completion\": \"b\"}",
         H3("user") "a<|eot_id|>" H3("assistant") "[b<|eot_id|>]EOS", "prompt and completion, too"},
    };
    static const struct example two[] = {
        {"llama2-chat", CHAT(M("user", " Why? ") "," M("assistant", " So.\\n")),
         "▁[INST]▁Why?▁[/INST][▁So.▁EOS]", "as Meta wrote it"},
        {"llama2-chat",
         CHAT(M("system", " Be. ") "," M("user", " a ") "," M("assistant", "b") "," M(
             "user", "c") "," M("assistant", "d")),
         "▁[INST]▁<<SYS>>\n▁Be.▁\n<</SYS>>\n\n▁a▁[/INST][▁b▁</s>]<s>▁[INST]▁c▁[/INST][▁d▁EOS]",
         "the system's message is inside the first; EOS and BOS stand between turns"},
    };

    check_rows(bytes, three, sizeof three / sizeof three[0]);
    check_rows(pieces, two, sizeof two / sizeof two[0]);
}

/* A tokenizer whose EOS is the end of a message, as those of models for chats have it. */
static void test_eos_of_messages(void)
{
    static const char config[] =
        "{\"bos_token\": \"<|begin_of_text|>\", \"eos_token\": \"<|eot_id|>\"}";
    char *vocab;
    struct file f = bytes_file(&vocab);

    f.added = "[" HEADERS "]";
    write_file("tokenizer_config.json", config, strlen(config));
    struct tern_token *t = load(&f, NULL);
    char *row = show("llama3-chat", t, CHAT(M("user", "a") "," M("assistant", "b")));
    is(row, H3("user") "a<|eot_id|>" H3("assistant") "[bEOS]",
       "where EOS ends messages the last one's is the document's");
    free(row);
    tern_token_free(t);
    free(vocab);
}

/* Ids of `text` alone. */
static size_t ids_of(const struct tern_token *t, const char *text, uint32_t *to, size_t room)
{
    struct tern_token_encoder *e = tern_token_encoder_new(t, NULL);
    const uint32_t *ids;
    size_t n;

    if (tern_token_encode(e, text, strlen(text), &ids, &n, NULL) < 0 || n > room)
        abort();
    memcpy(to, ids, n * sizeof *to);
    tern_token_encoder_free(e);
    return n;
}

static void test_special_text(void)
{
    static const char record[] =
        CHAT(M("user", "<|eot_id|>") "," M("assistant", "a<|end_header_id|>\\u0000b"));
    struct tern_instruct *i =
        tern_instruct_open(&(struct tern_instruct_how){.template = "llama3-chat"}, bytes, NULL);
    struct tern_instruct_encoder *e = tern_instruct_encoder_new(i, NULL);
    struct tern_instruct_row row;
    size_t special = 0, nul = 0;

    ok(tern_instruct_encode(e, record, strlen(record), &row, NULL) == 0, "a record is read");
    for (size_t k = 0; k < row.n; k++) {
        special += row.ids[k] >= FIRST_SPECIAL;
        nul += row.ids[k] == 0;
    }
    ok(special == 6, "special tokens are the template's alone (%zu)", special);
    ok(nul == 1, "an escaped NUL is a character of the text");
    tern_instruct_encoder_free(e);
    tern_instruct_free(i);
}

/* A token that joins prompt and answer belongs to the answer. */
static void test_boundary(void)
{
    uint32_t whole[16], prompt[16];
    struct tern_instruct *i =
        tern_instruct_open(&(struct tern_instruct_how){.template = "completion"}, pieces, NULL);
    struct tern_instruct_encoder *e = tern_instruct_encoder_new(i, NULL);
    static const char record[] = "{\"prompt\": \"the govern\", \"completion\": \"ment is\"}";
    const size_t n = ids_of(pieces, "the government is", whole, 16),
                 n_prompt = ids_of(pieces, "the govern", prompt, 16);
    struct tern_instruct_row row;
    size_t same = 0;

    while (same < n_prompt && whole[same] == prompt[same])
        same++;
    ok(same < n_prompt, "a merge crosses the boundary of this record");
    ok(tern_instruct_encode(e, record, strlen(record), &row, NULL) == 0 && row.n == n &&
           memcmp(row.ids, whole, n * sizeof *whole) == 0,
       "prompt and answer are tokenised together");
    ok(row.mask && memchr(row.mask, 1, n) == row.mask + same,
       "the answer begins where its ids part from the prompt's");
    tern_instruct_encoder_free(e);
    tern_instruct_free(i);
}

static void test_limits(void)
{
    static const char record[] = "{\"prompt\": \"abcd\", \"completion\": \"efgh\"}";
    static const struct {
        struct tern_instruct_how how;
        const char *row, *what;
    } v[] = {
        {{.template = "completion", .max_tokens = 9}, "abcd[efghEOS]", "a record that just fits"},
        {{.template = "completion", .max_tokens = 8},
         "error 2: has 9 tokens, and --max-tokens is 8. Say --longer cut or drop.",
         "a longer one is refused"},
        {{.template = "completion", .max_tokens = 8, .longer = TERN_INSTRUCT_CUT},
         "abcd[efg]EOS",
         "a longer one is cut; its EOS is no target"},
        {{.template = "completion", .max_tokens = 8, .longer = TERN_INSTRUCT_CUT, .bos = true},
         "abcd[ef]EOS",
         "BOS counts"},
        {{.template = "completion", .max_tokens = 5, .longer = TERN_INSTRUCT_CUT},
         "left out",
         "a prompt alone is left out"},
        {{.template = "completion", .max_tokens = 1, .longer = TERN_INSTRUCT_CUT},
         "left out",
         "so is nothing"},
        {{.template = "completion", .max_tokens = 8, .longer = TERN_INSTRUCT_DROP},
         "left out",
         "a longer one is dropped"},
        {{.template = "completion", .all = true}, "[abcdefghEOS]", "all tokens are targets"},
        {{.template = "llama3-chat", .all = true},
         "[<|start_header_id|>user<|end_header_id|>\n\nabcd<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\nefgh<|eot_id|>EOS]",
         "without a mask the set's EOS is a target, too"},
        {{.template = "completion", .all = true, .max_tokens = 4, .longer = TERN_INSTRUCT_CUT},
         "[abc]EOS",
         "all tokens of a cut record, without its EOS"},
    };

    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        char *row = show_how(&v[i].how, bytes, record);
        is(row, v[i].row, "%s", v[i].what);
        free(row);
    }
}

static void test_counts(void)
{
    struct tern_instruct_how how = {
        .template = "completion", .max_tokens = 6, .longer = TERN_INSTRUCT_CUT};
    struct tern_instruct *i = tern_instruct_open(&how, bytes, NULL);
    struct tern_instruct_encoder *e = tern_instruct_encoder_new(i, NULL);
    static const char *const records[] = {"{\"prompt\": \"ab\", \"completion\": \"cd\"}",
                                          "{\"prompt\": \"ab\", \"completion\": \"cdefgh\"}",
                                          "{\"prompt\": \"abcdefgh\", \"completion\": \"c\"}"};
    struct tern_instruct_row row;

    for (size_t k = 0; k < 3; k++)
        ok(tern_instruct_encode(e, records[k], strlen(records[k]), &row, NULL) == 0,
           "record %zu of three", k);
    const struct tern_instruct_counts c = tern_instruct_counts(i);
    ok(c.records == 3 && c.cut == 1 && c.unanswered == 1 && c.dropped == 0,
       "records are counted as whole, cut or without an answer");
    ok(c.targets == 3 + 3, "targets are counted, of whole records with their EOS");
    tern_instruct_encoder_free(e);
    tern_instruct_free(i);
    how = (struct tern_instruct_how){.template = "completion", .all = true, .bos = true};
    i = tern_instruct_open(&how, bytes, NULL);
    e = tern_instruct_encoder_new(i, NULL);
    ok(tern_instruct_encode(e, records[0], strlen(records[0]), &row, NULL) == 0 && !row.mask &&
           tern_instruct_counts(i).targets == row.n + 2,
       "without a mask all tokens of a set are counted as targets, BOS and EOS among them");
    tern_instruct_encoder_free(e);
    tern_instruct_free(i);
}

static const struct {
    const char *template, *record, *word, *what;
} bad_records[] = {
    {"dolly", "{\"instruction\": \"a\"}",
     "no field 'response', which template dolly wants (found: instruction)", "no response"},
    {"dolly", "{\"instruction\": \"a\", \"response\": null}", "no field 'response'",
     "null for a response"},
    {"dolly", "{\"instruction\": \"a\", \"response\": \"\"}", "field 'response' is empty",
     "an empty response"},
    {"dolly", "{\"instruction\": \"a\", \"response\": 3}",
     "field 'response' is a number; a string is wanted", "a number for a response"},
    {"dolly", "{\"instruction\": [], \"response\": \"b\"}", "field 'instruction' is a list",
     "a list for an instruction"},
    {"dolly", "{\"instruction\": \"a\", \"context\": {}, \"response\": \"b\"}",
     "field 'context' is an object", "an object for a context"},
    {"dolly", "{}", "(found: none)", "an empty record"},
    {"dolly", "[1]", "not a JSON object", "a list"},
    {"dolly", "{\"instruction\": \"a\"", "not a JSON object on one line: ", "half a record"},
    {"dolly", CHAT(M("user", "a") "," M("assistant", "b")),
     "has a list of messages, and template dolly is of fields",
     "messages for a template of fields"},
    {"llama3-chat", CHAT(""), "has 0 messages", "no messages"},
    {"llama3-chat", "{\"messages\": \"a\"}", "field 'messages' is a string; a list is wanted",
     "a text for messages"},
    {"llama3-chat", "{\"messages\": [3]}", "message 1 is no object", "a number for a message"},
    {"llama3-chat", CHAT(M("user", "a") "," M("tool", "b")),
     "message 2: role 'tool' is not known; system, user (human) or assistant (gpt) is wanted",
     "an unknown role"},
    {"llama3-chat", "{\"messages\": [{\"content\": \"a\"}]}", "message 1 has no role", "no role"},
    {"llama3-chat", "{\"messages\": [{\"role\": \"user\"}]}", "message 1: its content is missing",
     "no content"},
    {"llama3-chat", "{\"messages\": [{\"role\": \"user\", \"content\": []}]}",
     "message 1: its content is a list", "a list for a content"},
    {"llama3-chat", CHAT(M("user", "")), "message 1 (user) is empty", "an empty message"},
    {"llama3-chat", CHAT(M("user", "a") "," M("user", "b")),
     "message 2 is of role user, assistant is wanted", "two of a user in turn"},
    {"llama3-chat", CHAT(M("assistant", "a")), "message 1 is of role assistant, user is wanted",
     "an answer first"},
    {"llama3-chat", CHAT(M("user", "a") "," M("system", "b")), "message 2 is of role system",
     "a system's message later on"},
    {"llama3-chat", CHAT(M("user", "a")),
     "ends with the message of role user; an answer of the assistant is wanted",
     "a question alone"},
    {"llama3-chat", CHAT(M("system", "a")), "ends with the message of role system",
     "a system's message alone"},
    {"llama3-chat", CHAT(M("user", "a") "," M("assistant", "b") "," M("user", "c")),
     "ends with the message of role user", "a question last"},
    {"llama3-chat", "{\"text\": \"a\"}",
     "no field 'instruction', which template llama3-chat wants (found: text)", "another record"},
};

/* EOS between turns stays inside the document: its bounds are those of the record. */
static void test_eos_inside(void)
{
    static const char record[] =
        CHAT(M("user", "a") "," M("assistant", "b") "," M("user", "c") "," M("assistant", "d"));
    struct tern_instruct *i =
        tern_instruct_open(&(struct tern_instruct_how){.template = "llama2-chat"}, pieces, NULL);
    struct tern_instruct_encoder *e = tern_instruct_encoder_new(i, NULL);
    struct tern_instruct_row row;
    int n = 0;

    tern_instruct_encode(e, record, strlen(record), &row, NULL);
    for (size_t k = 0; k < row.n; k++)
        n += (int32_t)row.ids[k] == tern_token_eos(pieces);
    ok(n == 1, "two turns of llama2-chat are one document with EOS between them");
    ok(tern_instruct_bos(i), "documents of llama2-chat begin with BOS");
    tern_instruct_encoder_free(e);
    tern_instruct_free(i);
}

static void test_bad_records(void)
{

    for (size_t i = 0; i < sizeof bad_records / sizeof bad_records[0]; i++) {
        char *row = show(bad_records[i].template, bytes, bad_records[i].record);
        has(row, "error 2: ", "%s: bad input", bad_records[i].what);
        has(row, bad_records[i].word, "%s: said what is wanted", bad_records[i].what);
        free(row);
    }
}

static const struct {
    const char *text, *word;
} bad_templates[] = {
    {"answer: '{s}'\n",
     "a template has either prompt, a list of sections, or chat; this has neither"},
    {"prompt: []\nchat: {user: '{content}'}\nanswer: '{s}'\n", "this has both"},
    {"prompt: []\n", "has no answer"},
    {"prompt: []\nanswer: 'x'\n", "has no field, such as {response}"},
    {"prompt: []\nanswer: '{s?}'\n", "a field of an answer must be there"},
    {"prompt: []\nanswer: '{bos}{s}'\n", "begins with {bos}"},
    {"prompt: []\nanswer: '{s'\n", "a { without its }"},
    {"prompt: []\nanswer: 's}{s}'\n", "a } without its {"},
    {"prompt: ['{a b}']\nanswer: '{s}'\n", "own:1: prompt[0]: {a b} is not known"},
    {"prompt: ['{}']\nanswer: '{s}'\n", "{} is not known"},
    {"prompt: a\nanswer: '{s}'\n", "own:1: prompt"},
    {"prompt: []\nanswer: '{s}'\nanwser: 'x'\n", "own:3: "},
    {"prompt: ['{system}']\nanswer: '{s}'\n", "{system} stands in a chat's user alone"},
    {"chat: {user: '{q}'}\nanswer: '{content}'\n",
     "'q' stands here; of a message there is {content} alone"},
    {"chat: {user: 'x'}\nanswer: '{content}'\n", "has no {content}"},
    {"chat: {begin: ''}\nanswer: '{content}'\n", "has no user"},
    {"chat: {user: '{system}{content}'}\nanswer: '{content}'\n",
     "has {system}: a chat.system of text and {content} is wanted"},
    {"chat: {system: '{content}', user: '{system} {content}'}\nanswer: '{content}'\n",
     "stands directly before {content}"},
    {"specials: ['<|nothing|>']\nprompt: []\nanswer: '{s}'\n", "has no special token <|nothing|>"},
    {"specials: ['a']\nprompt: []\nanswer: '{s}'\n", "has no special token a"},
    {"specials: ['']\nprompt: []\nanswer: '{s}'\n", "is empty"},
    {"prompt: [\n", "not valid YAML"},
    {"", "this has neither"},
};

static void test_own_templates(void)
{
    static const char record[] = "{\"q\": \"a\", \"r\": \"\", \"s\": \"c\"}";
    static const struct {
        const char *text, *row, *what;
    } v[] = {
        {"prompt: ['Q: {q}', 'R: {r?}', '{if r}with', '{unless r}without', 'A:']\njoin: ' | "
         "'\nanswer: ' {s}'\n",
         "Q: a | without | A:[ cEOS]", "sections, conditions, another join"},
        {"prompt: ['{{q}} {q}']\nanswer: '{s}.'\n", "{q} a[c.EOS]", "doubled braces are braces"},
        {"prompt: ['{bos}{q}<|eot_id|>']\nspecials: ['<|eot_id|>']\nanswer: '{s}{eos}'\n",
         "a<|eot_id|>[cEOS]", "special tokens of fields; the set adds BOS and EOS"},
        {"prompt: ['{q}<|eot_id|>']\nanswer: '{s}'\n", "a<|eot_id|>[cEOS]",
         "a token that is not listed is text"},
        {"prompt: []\nanswer: '{s}'\n", "[cEOS]", "no prompt"},
    };
    char *path = tern_fs_join(work, "own");

    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        write_file("own", v[i].text, strlen(v[i].text));
        char *row = show(path, bytes, record);
        is(row, v[i].row, "own template: %s", v[i].what);
        free(row);
    }
    for (size_t i = 0; i < sizeof bad_templates / sizeof bad_templates[0]; i++) {
        write_file("own", bad_templates[i].text, strlen(bad_templates[i].text));
        char *row = show(path, bytes, record);
        has(row, "not opened 2: ", "bad template %zu is refused", i);
        has(row, bad_templates[i].word, "bad template %zu: said why (%s)", i,
            bad_templates[i].word);
        free(row);
    }
    free(path);
    char *row = show("doly", bytes, record);
    has(row,
        "--template doly: is neither a file nor a template's name (dolly, dolly-lines, alpaca, "
        "completion, "
        "llama2-chat, llama3-chat). Did you mean dolly?",
        "a name with a typo");
    free(row);
    row = show("llama3-chat", pieces, record);
    has(row, "has no special token <|start_header_id|>, which the template wants",
        "a template for another tokenizer");
    free(row);
}

static void test_longest_special(void)
{
    static const char text[] = "specials: ['<a', '<a>b', '<a>']\nprompt: []\nanswer: '<a>b{s}'\n";
    char *path = tern_fs_join(work, "own");

    write_file("own", text, strlen(text));
    struct tern_instruct_template *t = tern_instruct_template_load(path, NULL);
    is(t && t->answer.n ? t->answer.parts[0].text : NULL, "<a>b",
       "of special tokens that begin alike the longest is found");
    tern_instruct_template_free(t);
    free(path);
}

/* Each prefix of each built-in template, and each with one byte changed: read or refused. */
static void test_damaged_templates(void)
{
    char *path = tern_fs_join(work, "own");
    size_t refused = 0;

    for (size_t k = 0; tern_instruct_names[k]; k++) {
        char *text = tern_strdup(tern_instruct_text(tern_instruct_names[k]));
        const size_t len = strlen(text);
        for (size_t cut = 0; cut < len; cut += 3) {
            struct tern_err err = {0};
            write_file("own", text, cut);
            struct tern_instruct_template *t = tern_instruct_template_load(path, &err);
            refused += !t && err.code == TERN_USAGE;
            tern_instruct_template_free(t);
            text[cut] ^= (char)(1 << cut % 8);
            write_file("own", text, len);
            text[cut] ^= (char)(1 << cut % 8);
            tern_instruct_template_free(tern_instruct_template_load(path, NULL));
        }
        free(text);
    }
    ok(refused > 100, "damaged templates are read or refused (%zu cut ones refused)", refused);
    write_file("own", "", 0);
    free(path);
}

static void test_strip(void)
{
    static const char *const v[][2] = {
        {" a ", "a"},
        {"\t\n\v\f\r\x1c\x1f a b\xc2\x85\xc2\xa0", "a b"},
        {"\xe2\x80\x83\xe3\x80\x80x\xe2\x80\xa8", "x"},
        {"\xe2\x80\x8bx", "\xe2\x80\x8bx"}, /* a zero-width space is none */
        {" \n ", ""},
        {"", ""},
        {"\xc3\xa0", "\xc3\xa0"},
    };

    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        const char *s = v[i][0];
        size_t len = strlen(s);
        tern_instruct_strip(&s, &len);
        ok(len == strlen(v[i][1]) && memcmp(s, v[i][1], len) == 0,
           "white space at the ends of text %zu goes as in Python", i);
    }
}

int main(void)
{
    if (!mkdtemp(work))
        return 1;
    load_tokenizers();
    test_strip();
    test_fields();
    test_chats();
    test_eos_of_messages();
    test_special_text();
    test_boundary();
    test_limits();
    test_counts();
    test_eos_inside();
    test_bad_records();
    test_own_templates();
    test_longest_special();
    test_damaged_templates();
    tern_token_free(bytes);
    tern_token_free(pieces);
    remove_file("own");
    remove_file("tokenizer.json");
    remove_file("tokenizer_config.json");
    rmdir(work);
    return tap_done();
}

/* Prompts: texts, conversations, records of a file, ids. */
#include "cmd/generate/generate.h"

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "core/instruct/instruct.h"
#include "core/text/text.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 1 << 20 };

void generate_prompts_free(struct generate_prompts *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->v[i].ids);
        free(p->v[i].text);
        free(p->v[i].answer);
    }
    free(p->v);
    *p = (struct generate_prompts){0};
}

/* A copy that ends with NUL. */
static char *copy(const char *s, size_t len, struct tern_err *err)
{
    char *to = tern_alloc(len + 1, 1, "a prompt", err);

    if (to && len)
        memcpy(to, s, len);
    return to;
}

/* The whole of a file of text, perhaps compressed; "-": standard input.  malloc'ed, ended by NUL.
 */
static char *read_whole(const char *path, size_t *ret_len, struct tern_err *err)
{
    const struct tern_text_how how = {.format = TERN_TEXT_PLAIN};
    struct tern_text *file = tern_text_open(path, &how, err);
    const char *text = "";
    char *whole = NULL;

    *ret_len = 0;
    if (file && tern_text_next(file, &text, ret_len, err) >= 0)
        whole = copy(text, *ret_len, err);
    tern_text_close(file);
    return whole;
}

/* Room for one more prompt, which is empty. */
static struct generate_prompt *add(struct generate_prompts *p, struct tern_err *err)
{
    void *more =
        (p->n & (p->n - 1)) == 0 ? realloc(p->v, (p->n ? 2 * p->n : 1) * sizeof *p->v) : p->v;

    if (!more) {
        tern_err_sys(err, "prompts");
        return NULL;
    }
    p->v = more;
    p->v[p->n] = (struct generate_prompt){.number = p->n};
    return &p->v[p->n++];
}

/* BOS (unless `bos` is -1) and the ids. */
static int set_ids(struct generate_prompt *p, int32_t bos, const uint32_t *ids, size_t n,
                   struct tern_err *err)
{
    const size_t first = bos >= 0;

    if (n + first == 0)
        return tern_err_set(err, TERN_USAGE,
                            "prompt %llu is empty, and the tokenizer begins a "
                            "text with nothing: give it a word",
                            (unsigned long long)p->number);
    if (n > INT32_MAX / 2)
        return tern_err_set(err, TERN_USAGE, "prompt %llu has %zu tokens: too many",
                            (unsigned long long)p->number, n);
    p->ids = tern_alloc(n + first, sizeof *p->ids, "a prompt", err);
    if (!p->ids)
        return -1;
    if (first)
        p->ids[0] = bos;
    for (size_t i = 0; i < n; i++)
        p->ids[first + i] = (int32_t)ids[i];
    p->n = (int)(n + first);
    return 0;
}

/* The id that texts begin with; -1: none. */
static int begin_with(const struct generate_source *from, const struct tern_token *t,
                      bool by_itself, int32_t *ret_bos, struct tern_err *err)
{
    if (from->bos && tern_token_bos(t) < 0)
        return tern_err_set(err, TERN_USAGE, "--bos: %s has none", tern_token_path(t));
    *ret_bos = from->no_bos || !(from->bos || by_itself) ? TERN_TOKEN_NONE : tern_token_bos(t);
    return 0;
}

/* ---- texts ---- */

static int add_text(struct generate_prompts *to, struct tern_token_encoder *e, int32_t bos,
                    const char *text, size_t len, const char *what, struct tern_err *err)
{
    struct generate_prompt *p;
    const uint32_t *ids;
    size_t n;

    for (size_t at = 0, step; at < len; at += step)
        if ((step = tern_str_utf8(text + at, len - at)) == 0)
            return tern_err_set(err, TERN_USAGE, "%s: byte %zu is not UTF-8", what, at);
    if (!(p = add(to, err)) || !(p->text = copy(text, len, err)) ||
        tern_token_encode(e, text, len, &ids, &n, err) < 0)
        return -1;
    p->text_len = len;
    return set_ids(p, bos, ids, n, err);
}

static int read_texts(const struct generate_source *from, const struct tern_token *t,
                      struct generate_prompts *to, struct tern_err *err)
{
    const bool input = from->texts.n + from->files.n == 0;
    struct tern_token_encoder *e = tern_token_encoder_new(t, err);
    int32_t bos;
    int rc = e ? begin_with(from, t, tern_token_begins(t), &bos, err) : -1;

    for (size_t i = 0; i < from->texts.n && rc == 0; i++)
        rc = add_text(to, e, bos, from->texts.values[i], strlen(from->texts.values[i]), "--prompt",
                      err);
    for (size_t i = 0; i < from->files.n + input && rc == 0; i++) {
        const char *path = input ? "-" : from->files.values[i];
        size_t len;
        char *text = read_whole(path, &len, err);
        if (text && len && text[len - 1] == '\n')
            len--;
        rc = text ? add_text(to, e, bos, text, len, path, err) : -1;
        free(text);
    }
    tern_token_encoder_free(e);
    return rc;
}

/* ---- records ---- */

struct records {
    struct tern_instruct *instruct;
    struct tern_instruct_encoder *encoder;
    int32_t bos;
};

static void close_records(struct records *r)
{
    tern_instruct_encoder_free(r->encoder);
    tern_instruct_free(r->instruct);
}

static int open_records(struct records *r, const struct generate_source *from,
                        const struct tern_token *t, struct tern_err *err)
{
    struct tern_err first = {0};
    const char *name = from->template ? from->template : "llama3-chat";

    r->instruct = tern_instruct_open(&(struct tern_instruct_how){.template = name}, t,
                                     from->template ? err : &first);
    if (!r->instruct && !from->template) {
        name = "llama2-chat";
        r->instruct = tern_instruct_open(&(struct tern_instruct_how){.template = name}, t, err);
    }
    if (!r->instruct)
        return -1;
    if (!from->template)
        tern_info("template %s is taken, as the tokenizer suggests (--template)", name);
    r->encoder = tern_instruct_encoder_new(r->instruct, err);
    if (!r->encoder)
        return -1;
    /* The encoder leaves out the BOS that a template begins with, as it is the document's. */
    return begin_with(from, t, tern_instruct_bos(r->instruct) || tern_token_begins(t), &r->bos,
                      err);
}

static int add_record(struct generate_prompts *to, struct records *r, const char *record,
                      size_t len, uint64_t number, struct tern_err *err)
{
    struct tern_instruct_prompt prompt;
    struct generate_prompt *p = add(to, err);

    if (!p || tern_instruct_prompt(r->encoder, record, len, &prompt, err) < 0)
        return -1;
    /* A template that puts BOS before every turn has put it there by itself. */
    const bool has = r->bos >= 0 && prompt.n && prompt.ids[0] == (uint32_t)r->bos;
    p->number = number;
    p->alone = true;
    p->text = copy(prompt.text, prompt.text_len, err);
    p->text_len = prompt.text_len;
    if (!p->text || (prompt.answer && !(p->answer = copy(prompt.answer, prompt.answer_len, err))))
        return -1;
    p->answer_len = prompt.answer_len;
    return set_ids(p, has ? TERN_TOKEN_NONE : r->bos, prompt.ids, prompt.n, err);
}

/* "N" or "N..M", counted from 0. */
static int parse_rows(const char *s, int64_t *ret_first, int64_t *ret_last, struct tern_err *err)
{
    const char *dots = strstr(s, "..");
    char *first = dots ? strndup(s, (size_t)(dots - s)) : strdup(s);
    int bad = !first || tern_str_int(first, 0, INT64_MAX - 1, ret_first) < 0;

    *ret_last = *ret_first;
    bad |= dots && tern_str_int(dots + 2, 0, INT64_MAX - 1, ret_last) < 0;
    free(first);
    if (bad || *ret_last < *ret_first)
        return tern_err_set(err, TERN_USAGE,
                            "--row %s: a row's number is wanted, or two (0..9), counted from 0", s);
    if (*ret_last - *ret_first >= ROWS_MAX)
        return tern_err_set(err, TERN_USAGE, "--row %s: these are more than %d rows", s, ROWS_MAX);
    return 0;
}

static bool reads_field(const void *arg, const char *path)
{
    return tern_instruct_reads(arg, path);
}

static int read_records(const struct generate_source *from, struct records *r,
                        struct generate_prompts *to, struct tern_err *err)
{
    int64_t first, last, at = 0;
    const char *line;
    size_t len;

    if (parse_rows(from->rows ? from->rows : "0", &first, &last, err) < 0)
        return -1;
    struct tern_text *file = tern_text_open(
        from->from,
        &(struct tern_text_how){.records = true, .reads = reads_field, .reads_arg = r->instruct},
        err);
    int rc = file ? 1 : -1;
    for (; rc > 0 && at <= last && (rc = tern_text_next(file, &line, &len, err)) > 0; at++)
        if (at >= first && add_record(to, r, line, len, (uint64_t)at, err) < 0) {
            tern_err_prefix(err, "%s: row %lld", from->from, (long long)at);
            rc = -1;
        }
    tern_text_close(file);
    return rc < 0 ? -1
           : at > last
               ? 0
               : tern_err_set(err, TERN_USAGE, "%s: has no row %lld: it has %lld, counted from 0",
                              from->from, (long long)last, (long long)at);
}

/* --chat as a record: templates of fields take it as an instruction. */
static int read_chat(const struct generate_source *from, struct records *r,
                     struct generate_prompts *to, struct tern_err *err)
{
    json_t *j = from->system
                    ? json_pack("{s:[{s:s,s:s},{s:s,s:s}]}", "messages", "role", "system",
                                "content", from->system, "role", "user", "content", from->chat)
                    : json_pack("{s:s,s:s}", "instruction", from->chat, "prompt", from->chat);
    char *record = j ? json_dumps(j, JSON_COMPACT) : NULL;
    int rc = record ? add_record(to, r, record, strlen(record), 0, err)
                    : tern_err_set(err, TERN_USAGE, "--chat, --system: the text is not UTF-8");

    free(record);
    json_decref(j);
    return rc;
}

static int read_templated(const struct generate_source *from, const struct tern_token *t,
                          struct generate_prompts *to, struct tern_err *err)
{
    struct records r = {0};
    int rc = open_records(&r, from, t, err);

    if (rc == 0)
        rc = from->chat ? read_chat(from, &r, to, err) : read_records(from, &r, to, err);
    if (rc == 0)
        to->end = tern_instruct_end(r.instruct);
    close_records(&r);
    return rc;
}

/* ---- ids ---- */

static int add_ids(struct generate_prompts *to, char *line, const char *path, struct tern_err *err)
{
    struct generate_prompt *p = add(to, err);
    size_t n = 0;
    int64_t id;

    if (!p || !(p->ids = tern_alloc(strlen(line) / 2 + 1, sizeof *p->ids, "a prompt", err)))
        return -1;
    for (char *save = NULL, *w = strtok_r(line, " \t\r,", &save); w;
         w = strtok_r(NULL, " \t\r,", &save)) {
        if (tern_str_int(w, 0, INT32_MAX, &id) < 0)
            return tern_err_set(err, TERN_USAGE, "%s:%zu: '%.40s' is not an id", path, to->n, w);
        p->ids[n++] = (int32_t)id;
    }
    p->n = (int)n;
    return n ? 0
             : tern_err_set(err, TERN_USAGE, "%s:%zu: an empty prompt; ids are wanted", path,
                            to->n);
}

static int read_ids(const struct generate_source *from, struct generate_prompts *to,
                    struct tern_err *err)
{
    const char *path = from->ids;
    size_t len;
    char *text = read_whole(path, &len, err);
    int rc = text ? 0 : -1;

    for (char *line = text; rc == 0 && line < text + len;) {
        char *end = strchrnul(line, '\n');
        *end = 0;
        rc = add_ids(to, line, path, err);
        line = end + 1;
    }
    free(text);
    return rc == 0 && to->n == 0 ? tern_err_set(err, TERN_USAGE, "%s: has no prompts", path) : rc;
}

/* ---- all ---- */

static int check(const struct generate_source *from, struct tern_err *err)
{
    const int kinds = (from->texts.n + from->files.n > 0) + (from->chat != NULL) +
                      (from->from != NULL) + (from->ids != NULL);

    if (kinds > 1)
        return tern_err_set(err, TERN_USAGE,
                            "prompts come from one place: --prompt and --prompt-file, --chat, "
                            "--from or --prompt-ids");
    if (from->template && !from->chat && !from->from)
        return tern_err_set(err, TERN_USAGE, "--template is for --chat and --from");
    if (from->from && !from->template)
        return tern_err_set(err, TERN_USAGE,
                            "--from %s: say which --template its records are put into (`tern data "
                            "template` lists them)",
                            from->from);
    if (from->rows && !from->from)
        return tern_err_set(err, TERN_USAGE, "--row is for --from");
    if (from->system && !from->chat)
        return tern_err_set(err, TERN_USAGE, "--system is for --chat");
    if (from->bos && from->no_bos)
        return tern_err_set(err, TERN_USAGE, "--bos and --no-bos: one of them");
    return 0;
}

int generate_prompts_read(const struct generate_source *from, const struct tern_token *t,
                          struct generate_prompts *ret_prompts, struct tern_err *err)
{
    struct generate_prompts p = {.end = TERN_TOKEN_NONE};
    int rc = check(from, err);

    if (rc == 0)
        rc = from->ids                  ? read_ids(from, &p, err)
             : from->chat || from->from ? read_templated(from, t, &p, err)
                                        : read_texts(from, t, &p, err);
    if (rc < 0)
        generate_prompts_free(&p);
    else
        *ret_prompts = p;
    return rc;
}

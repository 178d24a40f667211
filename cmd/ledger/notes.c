/* tern ledger tag, tern ledger note: a user's own words about a run. */
#include "cmd/ledger/show.h"

#include "core/base/log.h"

#include <stdlib.h>
#include <string.h>

static bool remove_tags;
static int64_t remove_note;

enum { ROWS_MAX = 10000, SQL_SECONDS = 30 };

/* The words are in the spool; a database that cannot be written only lags behind. */
static void fold(const char *id)
{
    struct tern_err err;

    if (tern_ledger_fold(show.ledger, id, &err) < 0 ||
        tern_ledger_fold_catalog(show.ledger, &err) < 0)
        tern_warn("recorded, but not folded yet: %s", err.text);
}

static int read_rows(const char *id, const char *sql, struct tern_ledger_table *ret_table,
                     struct tern_err *err)
{
    struct tern_ledger *l = tern_ledger_open_run(show.ledger, id, err);
    int rc = l ? tern_ledger_sql(l, sql, ROWS_MAX, SQL_SECONDS, ret_table, err) : -1;

    tern_ledger_close(l);
    return rc;
}

/* ---------------------------------------------------------------- tags */

static int find_tag(const struct tern_ledger_table *t, const char *tag, struct tern_err *err)
{
    const char **tags = tern_alloc(t->n_rows + 1, sizeof *tags, "tags", err);
    size_t n = 0;

    for (size_t i = 0; tags && i < t->n_rows; i++) {
        tags[n++] = t->cells[i].text;
        if (strcmp(t->cells[i].text, tag) == 0) {
            free(tags);
            return 0;
        }
    }
    char *hint = tags ? show_did_you_mean(tag, tags, n) : tern_strdup("");
    free(tags);
    tern_err_set(err, TERN_USAGE, "the run has no tag '%.100s'%s", tag, hint);
    free(hint);
    return -1;
}

static int print_tags(const struct tern_ledger_table *t, struct tern_err *err)
{
    json_t *j = show.json ? json_array() : NULL;

    for (size_t i = 0; i < t->n_rows; i++) {
        if (show.json)
            json_array_append_new(j, show_json_text(t->cells[i].text));
        else
            tern_cmd_say("%s", t->cells[i].text);
    }
    return show.json ? show_json(j, err) : 0;
}

static int run_tag(int n_args, char **args, struct tern_err *err)
{
    struct tern_ledger_table t = {0};
    char id[TERN_ULID_SIZE];
    int rc = show_find(args[0], id, err);

    for (int i = 1; rc == 0 && i < n_args; i++)
        rc = tern_ledger_tag_check(args[i], err);
    if (rc == 0 && (n_args == 1 || remove_tags))
        rc = read_rows(id, "SELECT tag FROM tag ORDER BY tag", &t, err);
    for (int i = 1; rc == 0 && i < n_args && remove_tags; i++)
        rc = find_tag(&t, args[i], err);
    for (int i = 1; rc == 0 && i < n_args; i++)
        rc = tern_ledger_tag(show.ledger, id, args[i], remove_tags, err);
    if (rc == 0 && n_args > 1)
        fold(id);
    else if (rc == 0)
        rc = print_tags(&t, err);
    tern_ledger_table_free(&t);
    return rc;
}

static const struct tern_opt tag_opts[] = {
    SHOW_OPT_LEDGER,
    {"remove", 'r', TERN_OPT_FLAG, .to.flag = &remove_tags, .help = "take these tags away"},
    {"json", 0, TERN_OPT_FLAG, .to.flag = &show.json, .help = "print JSON"},
    {0},
};

const struct tern_cmd ledger_tag = {
    .name = "tag",
    .args = "RUN [TAG...]",
    .summary = "give a run tags, take them away, or print them",
    .about = "A tag is a word of A-Z a-z 0-9 . _ : / + -, at most 64 of them. `tern ledger list "
             "-t TAG` shows the runs that have it. Only the owner of a run may give it some. "
             "Without TAG the run's tags are printed.",
    .examples = "  tern ledger tag latest paper baseline\n"
                "  tern ledger tag -r pubmed-cpt baseline\n",
    .opts = tag_opts,
    .args_min = 1,
    .args_max = -1,
    .run = run_tag,
};

/* ---------------------------------------------------------------- notes */

static const struct tern_report_field note_fields[] = {
    {"note", "its number, which --remove takes", true},
    {"time", "when", false},
    {"text", "the note", false},
};
enum { NOTE_FIELDS = sizeof note_fields / sizeof *note_fields, NUMBER = 0, TIME, TEXT, RECORD };

static const char notes_sql[] = "SELECT number, wall_ns, text, record FROM note ORDER BY number";

static int print_notes(const struct tern_ledger_table *t, struct tern_err *err)
{
    struct show_cells cells = {.fields = note_fields, .n_fields = NOTE_FIELDS};
    json_t *j = show.json ? json_array() : NULL;

    for (size_t i = 0; i < t->n_rows; i++) {
        const struct tern_ledger_cell *c = &t->cells[i * t->n_columns];
        if (show.json) {
            json_array_append_new(j, json_pack("{s:I, s:o, s:o}", "note",
                                               (json_int_t)c[NUMBER].integer, "time",
                                               show_json_time(c[TIME].integer), "text",
                                               show_json_text(c[TEXT].text)));
            continue;
        }
        show_cell_int(&cells, c[NUMBER].integer, -1);
        show_cell_time(&cells, c[TIME].integer);
        show_cell_text(&cells, c[TEXT].text);
    }
    return show.json ? show_json(j, err) : show_table(&cells, "note,time,text", NULL, err);
}

static int remove_one(const char *id, const struct tern_ledger_table *t, struct tern_err *err)
{
    for (size_t i = 0; i < t->n_rows; i++)
        if (t->cells[i * t->n_columns + NUMBER].integer == remove_note)
            return tern_ledger_note_remove(show.ledger, id,
                                           t->cells[i * t->n_columns + RECORD].text, err);
    return tern_err_set(err, TERN_USAGE,
                        "the run has no note %lld. 'tern ledger note RUN' prints them.",
                        (long long)remove_note);
}

static int run_note(int n_args, char **args, struct tern_err *err)
{
    struct tern_ledger_table t = {0};
    struct tern_buf text = {0};
    char id[TERN_ULID_SIZE];
    int rc = show_find(args[0], id, err);

    for (int i = 1; i < n_args; i++)
        tern_buf_printf(&text, "%s%s", i > 1 ? " " : "", args[i]);
    if (rc == 0 && remove_note && n_args > 1)
        rc = tern_err_set(err, TERN_USAGE, "--remove takes a note away; it needs no TEXT");
    else if (rc == 0 && n_args > 1)
        rc = tern_ledger_note(show.ledger, id, text.data, err);
    else if (rc == 0)
        rc = read_rows(id, notes_sql, &t, err);
    if (rc == 0 && remove_note)
        rc = remove_one(id, &t, err);
    if (rc == 0 && (remove_note || n_args > 1))
        fold(id);
    else if (rc == 0)
        rc = print_notes(&t, err);
    tern_ledger_table_free(&t);
    tern_buf_free(&text);
    return rc;
}

static const struct tern_opt note_opts[] = {
    SHOW_OPT_LEDGER,
    {"remove", 'r', TERN_OPT_INT, "N", .to.integer = &remove_note, .help = "take note N away"},
    SHOW_OPT_FORMAT,
    SHOW_OPT_STYLE,
    {0},
};

const struct tern_cmd ledger_note = {
    .name = "note",
    .args = "RUN [TEXT...]",
    .summary = "add a note to a run, take one away, or print them",
    .about = "A note is a text of at most 4000 bytes. Only the owner of a run may add one. Without "
             "TEXT the run's notes are printed, with their numbers.",
    .examples = "  tern ledger note latest 'the loss jumped after the drive was full'\n"
                "  tern ledger note -r 2 latest\n",
    .opts = note_opts,
    .args_min = 1,
    .args_max = -1,
    .run = run_note,
};

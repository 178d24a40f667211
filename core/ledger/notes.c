/* Tags and notes: a user's events in a run's newest attempt. */
#include "core/ledger/files.h"
#include "core/ledger/ledger.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int tern_ledger_tag_check(const char *tag, struct tern_err *err)
{
    size_t len = strlen(tag);
    bool good = len > 0 && len <= TERN_LEDGER_TAG_MAX && tag[0] != '-';

    for (size_t i = 0; good && i < len; i++)
        good = isalnum((unsigned char)tag[i]) || strchr("._:/+-", tag[i]);
    return good ? 0
                : tern_err_set(err, TERN_USAGE,
                               "'%.80s': a tag is 1 to %d of the characters A-Z a-z 0-9 . _ : / + "
                               "-, and does not begin with -",
                               tag, TERN_LEDGER_TAG_MAX);
}

/* One event, and it is on the disk. */
static int add_event(const char *ledger_dir, const char *run_id, const char *kind, const char *text,
                     struct tern_err *err)
{
    const struct tern_ledger_event e = {.kind = kind, .severity = "info", .text = text};
    unsigned attempt;

    if (tern_ledger_last_attempt(ledger_dir, run_id, &attempt, err) < 0)
        return -1;
    if (attempt == 0)
        return tern_err_set(err, TERN_USAGE, "%s: run %s has no attempt yet", ledger_dir, run_id);
    char *writer = tern_ledger_note_writer("");
    struct tern_ledger_spool *s = tern_ledger_spool_open(ledger_dir, run_id, attempt, writer, err);
    free(writer);
    if (!s)
        return -1;
    int rc = tern_ledger_spool_event(s, &e, err);
    if (rc == 0)
        rc = tern_ledger_spool_sync(s, err);
    if (tern_ledger_spool_close(s, rc < 0 ? NULL : err) < 0)
        rc = -1;
    return rc;
}

int tern_ledger_tag(const char *ledger_dir, const char *run_id, const char *tag, bool remove,
                    struct tern_err *err)
{
    return tern_ledger_tag_check(tag, err) < 0
               ? -1
               : add_event(ledger_dir, run_id, remove ? "untag" : "tag", tag, err);
}

int tern_ledger_note(const char *ledger_dir, const char *run_id, const char *text,
                     struct tern_err *err)
{
    size_t len = strlen(text);

    if (len == 0 || len > TERN_LEDGER_NOTE_MAX)
        return tern_err_set(err, TERN_USAGE, "a note of %zu bytes: 1 to %d are possible", len,
                            TERN_LEDGER_NOTE_MAX);
    for (size_t i = 0, n; i < len; i += n) {
        n = text[i] == '\n' || text[i] == '\t' ? 1 : tern_str_character(text + i, len - i);
        if (n == 0)
            return tern_err_set(err, TERN_USAGE,
                                "byte %zu of the note is no character of UTF-8 that a terminal "
                                "may show",
                                i + 1);
    }
    return add_event(ledger_dir, run_id, "note", text, err);
}

int tern_ledger_note_remove(const char *ledger_dir, const char *run_id, const char *record,
                            struct tern_err *err)
{
    return add_event(ledger_dir, run_id, "unnote", record, err);
}

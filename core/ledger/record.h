/* A frame's payload as a struct, and back.  Fields are in the order of the struct's below.  Numbers
 * are u64 (signed ones in two's complement, reals by their IEEE 754 bits), texts u32 length (all
 * ones for NULL) and bytes.  A step is: step, count, then name and value for each.
 *
 *     RUN         name, user, recipe_path, recipe, identity_hash, full_hash, model, created_ns
 *     BEGIN       job_id, restart_count, nodes, host, pid, world, resumed_checkpoint, resumed_step,
 *                 full_hash, kind, array_job, array_task
 *     END         outcome, exit_code, signal, cause
 *     STEP        step, n, n x (name, value)
 *     EVAL        step, set, nll, tokens, bytes
 *     CHECKPOINT  step, path, bytes, shards, manifest_sha256, state
 *     EVENT       kind, severity, node, text
 *     PARAM       name, value
 *     HEALTH      check, node, verdict, severity, text, value, unit, seconds
 */
#ifndef TERN_LEDGER_RECORD_H
#define TERN_LEDGER_RECORD_H

#include <stdbool.h>

#include "core/base/str.h"
#include "core/ledger/frame.h"
#include "core/ledger/ledger.h"

/* Writing a payload: append to a buffer. */
void tern_ledger_record_put_int(struct tern_buf *to, int64_t v);
void tern_ledger_record_put_real(struct tern_buf *to, double v);
void tern_ledger_record_put_text(struct tern_buf *to, const char *s);
/* The system's name of a user or host: what readers would refuse in it is masked. */
void tern_ledger_record_put_name(struct tern_buf *to, const char *s);

/* Reading one: a field that is missing or wrong sets `bad` and reads as 0 or NULL. */
struct tern_ledger_record_reader {
    const uint8_t *at, *end;
    bool bad;
    bool odd; /* a name that is none was left out */
};

int64_t tern_ledger_record_get_int(struct tern_ledger_record_reader *r);
double tern_ledger_record_get_real(struct tern_ledger_record_reader *r);
/* Bytes inside the payload, not NUL-terminated; *len 0 and NULL for a NULL text.  A NUL byte in it
 * is bad: a reader of the text would take its beginning for all of it. */
const char *tern_ledger_record_get_text(struct tern_ledger_record_reader *r, size_t *len);
/* May a writer take it for a name, of a metric, run, user, set, parameter, host or writer?  It is
 * UTF-8, not empty, and has no character that is unsafe on a terminal (tern_str_character).  Unsafe
 * are control characters, NUL and C1 among them, and those that change the direction of writing. */
bool tern_ledger_record_name_good(const char *s, size_t len);
/* A text that is a name; else it is bad.  Bytes that are not UTF-8, of a writer before 0.4, are no
 * fault where they hold no control character. */
const char *tern_ledger_record_get_name(struct tern_ledger_record_reader *r, size_t *len);
/* Such a text, also a NULL or empty one.  Else it is `odd` and NULL: the record holds without it.
 */
const char *tern_ledger_record_get_some_name(struct tern_ledger_record_reader *r, size_t *len);

struct tern_ledger_record_head {
    uint32_t format, attempt, number;
    char run_id[TERN_ULID_SIZE];
    char writer[65];
    char host[65];
    uint64_t instance, first_seq;
    int64_t pid;
    bool odd; /* of one that was read: its writer or host is no name, and was masked */
};

void tern_ledger_record_put_head(struct tern_buf *to, const struct tern_ledger_record_head *h);
/* 0, or -1 when `f` is no head that this version can read; `path` for the message. */
int tern_ledger_record_get_head(const struct tern_ledger_frame *f, const char *path,
                                struct tern_ledger_record_head *h, struct tern_err *err);

#endif

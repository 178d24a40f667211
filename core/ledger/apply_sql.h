/* The statements by which records become rows.  Included once, by apply.c. */
#ifndef TERN_LEDGER_APPLY_SQL_H
#define TERN_LEDGER_APPLY_SQL_H

#include "core/ledger/apply.h"
#include "core/ledger/ledger.h"

static const char sql_seen_run[] = "INSERT OR IGNORE INTO run(id, wall_ns) VALUES(?, 0)";
static const char sql_seen_attempt[] = "INSERT OR IGNORE INTO attempt(attempt) VALUES(?)";
static const char sql_run[] =
    "UPDATE run SET name = ?2, user = ?3, recipe_path = ?4, recipe = ?5, identity_hash = ?6,"
    " full_hash = ?7, model = ?8, wall_ns = ?1 WHERE wall_ns < ?1";
/* Each attempt says when it began; the run began with the first of them, in any order. */
static const char sql_created[] =
    "UPDATE run SET created_ns = min(coalesce(created_ns, ?1), ?1) WHERE ?1 > 0";
static const char sql_attempt_recipe[] = "UPDATE attempt SET recipe = ?2 WHERE attempt = ?1";
static const char sql_begin[] =
    "UPDATE attempt SET job_id = ?3, restart_count = ?4, nodes = ?5, host = ?6, pid = ?7,"
    " world = ?8, resumed_checkpoint = ?9, begun_from = ?10, full_hash = ?11,"
    " kind = coalesce(?12, 'train'), array_job = ?13, array_task = ?14, begin_ns = ?1"
    " WHERE attempt = ?2 AND begin_ns < ?1";
static const char sql_end[] =
    "UPDATE attempt SET outcome = ?3, exit_code = ?4, signal = ?5, cause = ?6, end_ns = ?1"
    " WHERE attempt = ?2 AND end_ns < ?1";
static const char sql_span[] = "UPDATE attempt SET first_step = min(coalesce(first_step, ?2), ?2),"
                               " last_step = max(coalesce(last_step, ?3), ?3) WHERE attempt = ?1";
/* The value of the last step is the newest one. */
#define LATER(column, value)                                                                       \
    column " = CASE WHEN (?4, ?7) > (last_step, wall_ns) THEN " value " ELSE " column " END, "
static const char sql_metric_span[] =
    "INSERT INTO span VALUES(?1, ?2, ?3, ?4, NULL, NULL, ?5, ?6, ?7)"
    " ON CONFLICT(metric_id, attempt) DO UPDATE SET " LATER("value", "?5") LATER("class", "?6")
        LATER("wall_ns", "?7") "first_step = min(first_step, ?3), last_step = max(last_step, ?4)";
/* Parts of curves from here on are no more what the rows say (parts.h). */
static const char sql_touched[] =
    "INSERT INTO temp.tern_touched VALUES(?1, ?2, ?3) ON CONFLICT(metric_id, attempt) DO UPDATE SET"
    " step = min(step, ?3)";
/* A trainer knows better than its launcher, which looks at checkpoints before it. */
static const char sql_resumed[] =
    "UPDATE attempt SET resumed_step = coalesce((SELECT CAST(p.value AS INT) FROM param p WHERE"
    " p.attempt = attempt.attempt AND p.name = '" TERN_LEDGER_RESUMED "' AND p.value <> ''"
    " AND p.value NOT GLOB '*[^0-9]*' AND length(p.value) < 16), begun_from)";
static const char sql_supersede[] =
    "UPDATE attempt SET to_step = CASE kind WHEN 'train' THEN (SELECT min(b.resumed_step) FROM"
    " attempt b WHERE b.attempt > attempt.attempt AND b.kind = 'train') ELSE -1 END";
static const char sql_supersede_spans[] =
    "UPDATE span SET (to_step, again_step) = (SELECT"
    " min(CASE WHEN b.resumed_step IS NULL THEN t.first_step - 1 END),"
    " max(CASE WHEN t.first_step <= b.resumed_step THEN min(b.resumed_step, t.last_step) END)"
    " FROM span t JOIN attempt b ON b.attempt = t.attempt WHERE t.metric_id = span.metric_id AND"
    " t.attempt > span.attempt AND b.kind = 'train')"
    " WHERE to_step IS NOT NULL OR again_step IS NOT NULL OR EXISTS (SELECT 1 FROM attempt b WHERE"
    " b.attempt > span.attempt AND b.kind = 'train' AND"
    " (b.resumed_step IS NULL OR b.first_step <= b.resumed_step))";
static const char sql_metric[] =
    "INSERT INTO metric VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT(id) DO UPDATE SET"
    " attempt = ?3, step = ?4, value = ?5, class = ?6, wall_ns = ?7";
static const char sql_point[] =
    "INSERT INTO point VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT(metric_id, attempt, step) DO UPDATE"
    " SET value = excluded.value, class = excluded.class, wall_ns = excluded.wall_ns"
    " WHERE excluded.wall_ns > point.wall_ns";
/* Records come in any order, so each column has a rule that does not depend on it.  The maker: of
 * the newest record that made it.  The size: of the newest record that knows it, which made or
 * verified it; sized_ns is that record's time.  The state: of the newest record. */
#define NEWLY_MADE "(excluded.made_ns, excluded.wall_ns) > (made_ns, checkpoint.wall_ns)"
#define IF(condition, column)                                                                      \
    column " = CASE WHEN " condition " THEN excluded." column " ELSE " column " END, "
#define MADE(column) IF(NEWLY_MADE, column)
#define SIZE(column) IF("excluded.sized_ns > sized_ns", column)
#define SIZE_KNOWN                                                                                 \
    "(?5 > 0 OR ?7 NOT NULL) AND ?8 IN ('writing', 'published', 'verified', 'foreign')"
#define KNOWN(value) "CASE WHEN " SIZE_KNOWN " THEN " value " ELSE 0 END"
static const char sql_checkpoint[] =
    "INSERT INTO checkpoint VALUES(?3, ?2, ?4, " KNOWN("?5") ", " KNOWN("?6") ", nullif(" KNOWN(
        "?7") ", 0), CASE WHEN ?8 IN ('writing', 'published', 'foreign') THEN ?1 ELSE 0 END, ?8,"
              " ?1, " KNOWN("?1") ") ON CONFLICT(path) DO UPDATE SET " MADE("attempt") MADE("step")
                  SIZE("bytes") SIZE("shards") SIZE("manifest_sha256") MADE("made_ns")
                      SIZE("sized_ns")
                          IF("excluded.wall_ns > checkpoint.wall_ns",
                             "state") "wall_ns = max(excluded.wall_ns, checkpoint.wall_ns)";
static const char sql_eval[] =
    "INSERT INTO eval VALUES(?2, ?3, ?4, ?5, ?10, ?6, ?7, ?8, ?9, ?1)"
    " ON CONFLICT(attempt, step, set_name) DO UPDATE SET"
    " nll = excluded.nll, class = excluded.class, tokens = excluded.tokens, bytes = excluded.bytes,"
    " ppl_token = excluded.ppl_token, ppl_byte = excluded.ppl_byte, wall_ns = excluded.wall_ns"
    " WHERE excluded.wall_ns > eval.wall_ns";
static const char sql_event[] =
    "INSERT OR IGNORE INTO event VALUES(?3, ?4, ?2, ?5, ?1, ?6, ?7, ?8, ?9)";
static const char sql_limit[] =
    "INSERT OR IGNORE INTO event VALUES(0, 0, ?1, 'fold', ?2, '" TERN_APPLY_LIMIT
    "', 'warn', NULL, ?3)";
static const char sql_health[] =
    "INSERT OR IGNORE INTO health VALUES(?3, ?4, ?2, ?5, ?1, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
static const char sql_param[] =
    "INSERT INTO param VALUES(?2, ?3, ?4, ?1) ON CONFLICT(attempt, name) DO UPDATE SET"
    " value = excluded.value, wall_ns = excluded.wall_ns WHERE excluded.wall_ns > param.wall_ns";

enum {
    RUN,
    ATTEMPT,
    SET_RUN,
    CREATED,
    ATTEMPT_RECIPE,
    BEGIN,
    END,
    SPAN,
    METRIC_SPAN,
    TOUCHED,
    RESUMED,
    SUPERSEDE,
    SUPERSEDE_SPANS,
    METRIC,
    POINT,
    CHECKPOINT,
    EVAL,
    EVENT,
    LIMIT,
    HEALTH,
    PARAM,
    N
};

static const char *const texts[N] = {
    [RUN] = sql_seen_run,
    [ATTEMPT] = sql_seen_attempt,
    [SET_RUN] = sql_run,
    [CREATED] = sql_created,
    [ATTEMPT_RECIPE] = sql_attempt_recipe,
    [BEGIN] = sql_begin,
    [END] = sql_end,
    [SPAN] = sql_span,
    [METRIC_SPAN] = sql_metric_span,
    [TOUCHED] = sql_touched,
    [RESUMED] = sql_resumed,
    [SUPERSEDE] = sql_supersede,
    [SUPERSEDE_SPANS] = sql_supersede_spans,
    [METRIC] = sql_metric,
    [POINT] = sql_point,
    [CHECKPOINT] = sql_checkpoint,
    [EVAL] = sql_eval,
    [EVENT] = sql_event,
    [LIMIT] = sql_limit,
    [HEALTH] = sql_health,
    [PARAM] = sql_param,
};

#endif

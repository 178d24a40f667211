/* The SQL of run.db and ledger.db.  `sqlite3 run.db .schema` shows it to people, so the comments
 * stand inside. */
#ifndef TERN_LEDGER_SCHEMA_H
#define TERN_LEDGER_SCHEMA_H

enum {
    TERN_SCHEMA_APPLICATION = 0x7465726e, /* "tern": file(1) and PRAGMA application_id show it */
    TERN_SCHEMA_VERSION = 1,              /* user_version, of both files */
};

/* Columns that run.db's views and the catalogue's tables have in common, in the order in which
 * read.c takes them. */
#define TERN_SCHEMA_RUN_COLUMNS                                                                    \
    "id, name, user, recipe_path, recipe, identity_hash, full_hash, model, created_ns, state, "    \
    "attempts, job_id, last_step, last_loss, updated_ns, ckpt_step"
#define TERN_SCHEMA_ATTEMPT_COLUMNS                                                                \
    "run_id, attempt, job_id, restart_count, nodes, host, pid, world, resumed_checkpoint, "        \
    "resumed_step, full_hash, begin_ns, end_ns, outcome, exit_code, signal, cause, first_step, "   \
    "last_step"
#define TERN_SCHEMA_CHECKPOINT_COLUMNS                                                             \
    "run_id, attempt, step, path, bytes, shards, manifest_sha256, state, effective, wall_ns"

static const char tern_schema_run[] =
    "CREATE TABLE run( -- one row; times are ns since 1970\n"
    "  id TEXT PRIMARY KEY, name TEXT, user TEXT, recipe_path TEXT, recipe TEXT,\n"
    "  identity_hash TEXT, full_hash TEXT, model TEXT, created_ns INT, wall_ns INT NOT NULL\n"
    ") STRICT;\n"
    "CREATE TABLE attempt( -- one try under one Slurm job and restart count\n"
    "  attempt INTEGER PRIMARY KEY, job_id INT NOT NULL DEFAULT 0, restart_count INT NOT NULL\n"
    "  DEFAULT 0, nodes TEXT, host TEXT, pid INT NOT NULL DEFAULT 0, world INT NOT NULL DEFAULT "
    "0,\n"
    "  resumed_checkpoint TEXT, resumed_step INT, -- NULL: not known; 0: from scratch\n"
    "  full_hash TEXT, begin_ns INT NOT NULL DEFAULT 0, end_ns INT NOT NULL DEFAULT 0,\n"
    "  outcome TEXT, -- NULL while it runs\n"
    "  exit_code INT, signal INT, cause TEXT, first_step INT, last_step INT,\n"
    "  to_step INT -- its values are effective up to here; NULL: no later attempt ended that\n"
    ") STRICT;\n"
    "CREATE TABLE metric( -- with its newest value\n"
    "  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, attempt INT, step INT, value REAL,\n"
    "  class INT NOT NULL DEFAULT 0, wall_ns INT NOT NULL DEFAULT 0\n"
    ") STRICT;\n"
    "CREATE TABLE point(\n"
    "  metric_id INT NOT NULL, attempt INT NOT NULL, step INT NOT NULL,\n"
    "  value REAL, class INT NOT NULL, -- class 0: value; 1: NaN, value is NULL; 2: +Inf; 3: -Inf\n"
    "  wall_ns INT NOT NULL, PRIMARY KEY(metric_id, attempt, step)\n"
    ") STRICT, WITHOUT ROWID;\n"
    "CREATE TABLE checkpoint(\n"
    "  path TEXT PRIMARY KEY, attempt INT NOT NULL, step INT NOT NULL, bytes INT NOT NULL,\n"
    "  shards INT NOT NULL, manifest_sha256 TEXT, made_ns INT NOT NULL, state TEXT,\n"
    "  wall_ns INT NOT NULL\n"
    ") STRICT;\n"
    "CREATE TABLE eval( -- not finite ones as the texts NaN, Infinity, -Infinity\n"
    "  attempt INT NOT NULL, step INT NOT NULL, set_name TEXT NOT NULL,\n"
    "  nll ANY NOT NULL, -- nats, summed over the tokens\n"
    "  tokens INT NOT NULL, bytes INT NOT NULL, ppl_token ANY, ppl_byte ANY,\n"
    "  wall_ns INT NOT NULL, PRIMARY KEY(attempt, step, set_name)\n"
    ") STRICT, WITHOUT ROWID;\n"
    "CREATE TABLE event(\n"
    "  writer_id INT NOT NULL, seq INT NOT NULL, attempt INT NOT NULL, writer TEXT NOT NULL,\n"
    "  wall_ns INT NOT NULL, kind TEXT, severity TEXT, node TEXT, text TEXT,\n"
    "  PRIMARY KEY(writer_id, seq)\n"
    ") STRICT, WITHOUT ROWID;\n"
    "CREATE TABLE param(\n"
    "  attempt INT NOT NULL, name TEXT NOT NULL, value TEXT, wall_ns INT NOT NULL,\n"
    "  PRIMARY KEY(attempt, name)\n"
    ") STRICT, WITHOUT ROWID;\n"
    "CREATE TABLE ingest( -- how far each spool file is folded\n"
    "  file TEXT PRIMARY KEY, bytes INT NOT NULL, crc INT NOT NULL, seq INT NOT NULL,\n"
    "  wall_ns INT NOT NULL -- of its newest record\n"
    ") STRICT;\n"
    "CREATE TABLE damage( -- bytes of spool files that are not what was written\n"
    "  file TEXT NOT NULL, from_byte INT NOT NULL, to_byte INT NOT NULL, what TEXT NOT NULL,\n"
    "  PRIMARY KEY(file, from_byte)\n"
    ") STRICT, WITHOUT ROWID;\n"
    "CREATE VIEW step_all AS -- every value; effective 0: superseded by a later attempt\n"
    "  SELECT p.step, m.name, CASE p.class WHEN 0 THEN p.value WHEN 1 THEN 'NaN' WHEN 2 THEN\n"
    "  'Infinity' ELSE '-Infinity' END AS value, p.attempt,\n"
    "  s.to_step IS NULL OR p.step <= s.to_step AS effective, p.wall_ns\n"
    "  FROM metric m JOIN point p ON p.metric_id = m.id JOIN attempt s ON\n"
    "  s.attempt = p.attempt;\n"
    "CREATE VIEW step AS -- one value a step and name: what an uninterrupted run would show\n"
    "  SELECT step, name, value, attempt, wall_ns FROM step_all WHERE effective;\n"
    "CREATE VIEW eval_effective AS SELECT e.* FROM eval e JOIN attempt s USING(attempt)\n"
    "  WHERE (s.to_step IS NULL OR e.step <= s.to_step) AND NOT EXISTS (SELECT 1 FROM eval f\n"
    "  WHERE f.set_name = e.set_name AND f.step = e.step AND f.attempt > e.attempt);\n"
    "CREATE VIEW attempt_row AS SELECT (SELECT id FROM run) AS run_id, * FROM attempt;\n"
    "CREATE VIEW checkpoint_row AS SELECT (SELECT id FROM run) AS run_id, c.*,\n"
    "  s.to_step IS NULL OR c.step <= s.to_step AS effective FROM checkpoint c\n"
    "  JOIN attempt s USING(attempt);\n"
    "CREATE VIEW run_row AS SELECT id, name, user, recipe_path, recipe, identity_hash, full_hash,\n"
    "  model, created_ns,\n"
    "  (SELECT coalesce(outcome, 'running') FROM attempt ORDER BY attempt DESC LIMIT 1) AS state,\n"
    "  (SELECT count(*) FROM attempt) AS attempts,\n"
    "  (SELECT job_id FROM attempt ORDER BY attempt DESC LIMIT 1) AS job_id,\n"
    "  (SELECT max(CASE WHEN to_step < last_step THEN to_step ELSE last_step END)\n"
    "    FROM attempt) AS last_step,\n"
    "  (SELECT CASE class WHEN 0 THEN value WHEN 1 THEN 'NaN' WHEN 2 THEN 'Infinity' ELSE\n"
    "    '-Infinity' END FROM metric WHERE name = 'loss') AS last_loss,\n"
    "  (SELECT max(wall_ns) FROM ingest) AS updated_ns,\n"
    "  (SELECT max(step) FROM checkpoint_row WHERE effective AND\n"
    "    state IN ('published', 'verified')) AS ckpt_step FROM run;\n";

static const char tern_schema_catalogue[] =
    "CREATE TABLE run( -- one row a run; times are ns since 1970\n"
    "  id TEXT PRIMARY KEY, name TEXT, user TEXT, recipe_path TEXT, recipe TEXT,\n"
    "  identity_hash TEXT, full_hash TEXT, model TEXT, created_ns INT,\n"
    "  state TEXT, -- the newest attempt's outcome, or running\n"
    "  attempts INT, job_id INT, last_step INT, last_loss ANY, updated_ns INT, ckpt_step INT\n"
    ") STRICT;\n"
    "CREATE TABLE attempt( -- one row a try under one Slurm job and restart count\n"
    "  run_id TEXT NOT NULL, attempt INT NOT NULL, job_id INT, restart_count INT, nodes TEXT,\n"
    "  host TEXT, pid INT, world INT, resumed_checkpoint TEXT, resumed_step INT,\n"
    "  full_hash TEXT, begin_ns INT, end_ns INT, outcome TEXT, exit_code INT, signal INT,\n"
    "  cause TEXT, first_step INT, last_step INT, PRIMARY KEY(run_id, attempt)\n"
    ") STRICT, WITHOUT ROWID;\n"
    "CREATE TABLE checkpoint(\n"
    "  run_id TEXT NOT NULL, attempt INT, step INT, path TEXT NOT NULL, bytes INT, shards INT,\n"
    "  manifest_sha256 TEXT, state TEXT, effective INT, wall_ns INT, PRIMARY KEY(run_id, path)\n"
    ") STRICT, WITHOUT ROWID;\n"
    "CREATE TABLE source( -- the run.db that a run's rows came from\n"
    "  run_id TEXT PRIMARY KEY, inode INT NOT NULL, mtime_ns INT NOT NULL, bytes INT NOT NULL\n"
    ") STRICT, WITHOUT ROWID;\n"
    "CREATE VIEW run_row AS SELECT * FROM run;\n"
    "CREATE VIEW attempt_row AS SELECT * FROM attempt;\n"
    "CREATE VIEW checkpoint_row AS SELECT * FROM checkpoint;\n";

#endif

-- A run.db as tern 0.4's development made them (user_version 6, without a seal), by sqlite3's .dump.
PRAGMA application_id = 1952805486;
PRAGMA user_version = 6;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE run( -- one row; times are ns since 1970
  id TEXT NOT NULL PRIMARY KEY, name TEXT, user TEXT, recipe_path TEXT, recipe TEXT,
  identity_hash TEXT, full_hash TEXT, model TEXT, created_ns INT, wall_ns INT NOT NULL,
  CHECK(typeof(wall_ns) = 'integer' AND typeof(created_ns) IN ('integer', 'null') AND
    typeof(id) = 'text' AND typeof(name) IN ('text', 'null') AND
    typeof(user) IN ('text', 'null') AND typeof(recipe_path) IN ('text', 'null') AND
    typeof(recipe) IN ('text', 'null') AND
    typeof(identity_hash) IN ('text', 'null') AND
    typeof(full_hash) IN ('text', 'null') AND typeof(model) IN ('text', 'null'))
);
INSERT INTO run VALUES('01M89WXS0HK79DY31FETTCRVM4','tried','someone','run.yaml',replace('version: 1\nname: tried\n','\n',char(10)),NULL,NULL,'llama 1.2M',0,1795628655639726171);
CREATE TABLE attempt( -- one try under one Slurm job and restart count
  attempt INTEGER PRIMARY KEY,
  kind TEXT NOT NULL DEFAULT 'train', -- values of any other kind are never effective
  job_id INT NOT NULL DEFAULT 0, restart_count INT NOT NULL DEFAULT 0, nodes TEXT,
  host TEXT, pid INT NOT NULL DEFAULT 0, world INT NOT NULL DEFAULT 0,
  resumed_checkpoint TEXT,
  resumed_step INT, -- it goes on behind this step; 0: from scratch; NULL: not known
  full_hash TEXT, begin_ns INT NOT NULL DEFAULT 0, end_ns INT NOT NULL DEFAULT 0,
  outcome TEXT, -- NULL while it runs
  exit_code INT, signal INT, cause TEXT, first_step INT, last_step INT,
  to_step INT, -- a later attempt resumed from here: what is behind is superseded
  begun_from INT, -- resumed_step as its begin says, before the trainer does
  recipe TEXT, -- as it ran: the file, and what --set changed behind it
  array_job INT NOT NULL DEFAULT 0, array_task INT NOT NULL DEFAULT 0, -- squeue's 4711_3
  CHECK(typeof(job_id) = 'integer' AND typeof(restart_count) = 'integer' AND
    typeof(pid) = 'integer' AND typeof(world) = 'integer' AND
    typeof(begin_ns) = 'integer' AND typeof(end_ns) = 'integer' AND
    typeof(resumed_step) IN ('integer', 'null') AND
    typeof(exit_code) IN ('integer', 'null') AND
    typeof(signal) IN ('integer', 'null') AND
    typeof(first_step) IN ('integer', 'null') AND
    typeof(last_step) IN ('integer', 'null') AND
    typeof(to_step) IN ('integer', 'null') AND
    typeof(begun_from) IN ('integer', 'null') AND typeof(kind) = 'text' AND
    typeof(recipe) IN ('text', 'null') AND
    typeof(array_job) = 'integer' AND typeof(array_task) = 'integer' AND
    typeof(nodes) IN ('text', 'null') AND typeof(host) IN ('text', 'null') AND
    typeof(resumed_checkpoint) IN ('text', 'null') AND
    typeof(full_hash) IN ('text', 'null') AND typeof(outcome) IN ('text', 'null') AND
    typeof(cause) IN ('text', 'null'))
);
INSERT INTO attempt VALUES(1,'train',4711,0,'trn1-[1-2]','trn1-1',28510,4,NULL,0,NULL,1795628655635638994,0,NULL,NULL,NULL,NULL,1,1,8,0,NULL,0,0);
INSERT INTO attempt VALUES(2,'train',4711,1,'trn1-[1-2]','trn1-1',28512,4,NULL,8,NULL,1795628655639729217,1795628655639800009,'completed',0,0,'the test said so',9,14,NULL,8,NULL,0,0);
CREATE TABLE metric( -- with its newest value
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, attempt INT, step INT, value REAL,
  class INT NOT NULL DEFAULT 0, wall_ns INT NOT NULL DEFAULT 0, -- class as point's
  CHECK(typeof(class) = 'integer' AND typeof(wall_ns) = 'integer' AND
    typeof(attempt) IN ('integer', 'null') AND
    typeof(step) IN ('integer', 'null') AND typeof(name) = 'text' AND
    typeof(value) IN ('real', 'null'))
);
INSERT INTO metric VALUES(1,'loss',2,14,2.7716731546937309893,0,1795628655639796603);
INSERT INTO metric VALUES(2,'lr',2,14,0.00010000000000000000479,0,1795628655639796603);
INSERT INTO metric VALUES(3,'acc',2,13,0.5,0,1795628665213878627);
INSERT INTO metric VALUES(4,'top',2,13,1e999,2,1795628665213878627);
CREATE TABLE span( -- what an attempt has of a metric
  metric_id INT NOT NULL, attempt INT NOT NULL, first_step INT NOT NULL,
  last_step INT NOT NULL,
  to_step INT, -- a later attempt of unknown resume has it from here + 1 on
  again_step INT, -- up to here a later attempt may have it again
  value REAL, class INT NOT NULL, wall_ns INT NOT NULL, -- of last_step, as point's
  PRIMARY KEY(metric_id, attempt),
  CHECK(typeof(metric_id) = 'integer' AND typeof(attempt) = 'integer' AND
    typeof(first_step) = 'integer' AND typeof(last_step) = 'integer' AND
    typeof(to_step) IN ('integer', 'null') AND
    typeof(again_step) IN ('integer', 'null') AND typeof(value) IN ('real', 'null') AND
    typeof(class) = 'integer' AND typeof(wall_ns) = 'integer')
) WITHOUT ROWID;
INSERT INTO span VALUES(1,1,1,1,NULL,NULL,10.084147098480789495,0,1795628655635674521);
INSERT INTO span VALUES(1,2,9,14,NULL,NULL,2.7716731546937309893,0,1795628655639796603);
INSERT INTO span VALUES(2,1,1,1,NULL,NULL,0.00010000000000000000479,0,1795628655635674521);
INSERT INTO span VALUES(2,2,9,14,NULL,NULL,0.00010000000000000000479,0,1795628655639796603);
INSERT INTO span VALUES(3,2,13,13,NULL,NULL,0.5,0,1795628665213878627);
INSERT INTO span VALUES(4,2,13,13,NULL,NULL,1e999,2,1795628665213878627);
CREATE TABLE point(
  metric_id INT NOT NULL, attempt INT NOT NULL, step INT NOT NULL, value REAL,
  class INT NOT NULL, -- 0: finite; 1: NaN, of which value is NULL; 2: Inf; 3: -Inf
  wall_ns INT NOT NULL, PRIMARY KEY(metric_id, attempt, step),
  CHECK(typeof(metric_id) = 'integer' AND typeof(attempt) = 'integer' AND
    typeof(step) = 'integer' AND typeof(class) = 'integer' AND
    typeof(wall_ns) = 'integer' AND typeof(value) IN ('real', 'null'))
) WITHOUT ROWID;
INSERT INTO point VALUES(1,1,1,10.084147098480789495,0,1795628655635674521);
INSERT INTO point VALUES(1,2,9,3.3745451818575089575,0,1795628655639762690);
INSERT INTO point VALUES(1,2,10,3.107875549079442301,0,1795628655639783709);
INSERT INTO point VALUES(1,2,11,2.9151144251225655779,0,1795628655639787616);
INSERT INTO point VALUES(1,2,12,2.8330940541480855721,0,1795628655639790462);
INSERT INTO point VALUES(1,2,13,NULL,1,1795628665213878627);
INSERT INTO point VALUES(1,2,14,2.7716731546937309893,0,1795628655639796603);
INSERT INTO point VALUES(2,1,1,0.00010000000000000000479,0,1795628655635674521);
INSERT INTO point VALUES(2,2,9,0.00010000000000000000479,0,1795628655639762690);
INSERT INTO point VALUES(2,2,10,0.00010000000000000000479,0,1795628655639783709);
INSERT INTO point VALUES(2,2,11,0.00010000000000000000479,0,1795628655639787616);
INSERT INTO point VALUES(2,2,12,0.00010000000000000000479,0,1795628655639790462);
INSERT INTO point VALUES(2,2,13,0.00010000000000000000479,0,1795628655639793467);
INSERT INTO point VALUES(2,2,14,0.00010000000000000000479,0,1795628655639796603);
INSERT INTO point VALUES(3,2,13,0.5,0,1795628665213878627);
INSERT INTO point VALUES(4,2,13,1e999,2,1795628665213878627);
CREATE TABLE checkpoint(
  path TEXT NOT NULL PRIMARY KEY, attempt INT NOT NULL, step INT NOT NULL,
  bytes INT NOT NULL, shards INT NOT NULL, manifest_sha256 TEXT, made_ns INT NOT NULL,
  state TEXT,
  wall_ns INT NOT NULL,
  sized_ns INT NOT NULL, -- of the record that bytes, shards and digest are from; 0: none
  CHECK(typeof(attempt) = 'integer' AND typeof(step) = 'integer' AND
    typeof(sized_ns) = 'integer' AND
    typeof(bytes) = 'integer' AND typeof(shards) = 'integer' AND
    typeof(made_ns) = 'integer' AND typeof(wall_ns) = 'integer' AND
    typeof(path) = 'text' AND typeof(manifest_sha256) IN ('text', 'null') AND
    typeof(state) IN ('text', 'null'))
);
INSERT INTO checkpoint VALUES('/fsx/ck/step-00000008',1,8,1234567,4,'c0ffee',1795628655638000000,'verified',1795628655638500000,1795628655638500000);
CREATE TABLE eval(
  attempt INT NOT NULL, step INT NOT NULL, set_name TEXT NOT NULL,
  nll REAL, class INT NOT NULL, -- nats, summed over the tokens; its class as point's
  tokens INT NOT NULL, bytes INT NOT NULL, ppl_token REAL, ppl_byte REAL,
  wall_ns INT NOT NULL, PRIMARY KEY(attempt, step, set_name),
  CHECK(typeof(attempt) = 'integer' AND typeof(step) = 'integer' AND
    typeof(tokens) = 'integer' AND typeof(bytes) = 'integer' AND
    typeof(class) = 'integer' AND typeof(nll) IN ('real', 'null') AND
    typeof(ppl_token) IN ('real', 'null') AND typeof(ppl_byte) IN ('real', 'null') AND
    typeof(wall_ns) = 'integer' AND typeof(set_name) = 'text')
) WITHOUT ROWID;
INSERT INTO eval VALUES(2,14,'broken',NULL,1,400,1600,NULL,NULL,1795628655639900000);
INSERT INTO eval VALUES(2,14,'heldout',1234.5,0,400,1600,21.879999999999999004,2.1600000000000001421,1795628655639900000);
CREATE TABLE event(
  writer_id INT NOT NULL, seq INT NOT NULL, attempt INT NOT NULL, writer TEXT NOT NULL,
  wall_ns INT NOT NULL, kind TEXT, severity TEXT, node TEXT, text TEXT,
  PRIMARY KEY(writer_id, seq),
  CHECK(typeof(writer_id) = 'integer' AND typeof(seq) = 'integer' AND
    typeof(attempt) = 'integer' AND typeof(wall_ns) = 'integer' AND
    typeof(writer) = 'text' AND typeof(kind) IN ('text', 'null') AND
    typeof(severity) IN ('text', 'null') AND typeof(node) IN ('text', 'null') AND
    typeof(text) IN ('text', 'null'))
) WITHOUT ROWID;
INSERT INTO event VALUES(77,3,1,'rank0',1795628655638600000,'node','error','trn1-2','died');
CREATE TABLE health( -- what each check of a node found
  writer_id INT NOT NULL, seq INT NOT NULL, attempt INT NOT NULL, writer TEXT NOT NULL,
  wall_ns INT NOT NULL, check_id TEXT, node TEXT, -- NULL: not of one node
  verdict TEXT, severity TEXT, text TEXT, value REAL, unit TEXT, seconds REAL,
  PRIMARY KEY(writer_id, seq),
  CHECK(typeof(writer_id) = 'integer' AND typeof(seq) = 'integer' AND
    typeof(attempt) = 'integer' AND typeof(wall_ns) = 'integer' AND
    typeof(writer) = 'text' AND typeof(check_id) IN ('text', 'null') AND
    typeof(node) IN ('text', 'null') AND typeof(verdict) IN ('text', 'null') AND
    typeof(severity) IN ('text', 'null') AND typeof(text) IN ('text', 'null') AND
    typeof(unit) IN ('text', 'null') AND typeof(value) IN ('real', 'null') AND
    typeof(seconds) IN ('real', 'null'))
) WITHOUT ROWID;
INSERT INTO health VALUES(77,4,1,'rank0',1795628655635638999,'memory','trn1-1','pass','info','fine',0.96999999999999997335,'share',1.5);
CREATE TABLE param(
  attempt INT NOT NULL, name TEXT NOT NULL, value TEXT, wall_ns INT NOT NULL,
  PRIMARY KEY(attempt, name),
  CHECK(typeof(attempt) = 'integer' AND typeof(wall_ns) = 'integer' AND
    typeof(name) = 'text' AND typeof(value) IN ('text', 'null'))
) WITHOUT ROWID;
INSERT INTO param VALUES(2,'lr','0.0001',1795628655639729300);
CREATE TABLE ingest( -- how far each spool file is folded
  file TEXT NOT NULL PRIMARY KEY, bytes INT NOT NULL, crc INT NOT NULL, seq INT NOT NULL,
  wall_ns INT NOT NULL, -- of its newest record
  CHECK(typeof(bytes) = 'integer' AND typeof(crc) = 'integer' AND
    typeof(seq) = 'integer' AND typeof(wall_ns) = 'integer' AND
    typeof(file) = 'text')
);
INSERT INTO ingest VALUES('1/rank0.0.spool',457,4265713942,3,1795628655635674521);
INSERT INTO ingest VALUES('2/metric-vm-29820.0.spool',233,2930837463,1,1795628665213878627);
INSERT INTO ingest VALUES('2/rank0.0.spool',976,2307372461,9,1795628655639800009);
CREATE TABLE damage( -- bytes of spool files that are not what was written
  file TEXT NOT NULL, from_byte INT NOT NULL, to_byte INT NOT NULL, what TEXT NOT NULL,
  PRIMARY KEY(file, from_byte),
  CHECK(typeof(from_byte) = 'integer' AND typeof(to_byte) = 'integer' AND
    typeof(file) = 'text' AND typeof(what) = 'text')
) WITHOUT ROWID;
INSERT INTO damage VALUES('1/rank0.0.spool',300,457,'records 3 to 4 are not what was written');
CREATE VIEW step_all AS -- every value; effective 0: superseded by a later attempt
  SELECT p.step, m.name, p.value, p.class, p.attempt,
  (s.to_step IS NULL OR p.step <= s.to_step) AND (n.to_step IS NULL OR p.step <= n.to_step)
  AND (n.again_step IS NULL OR p.step > n.again_step OR NOT EXISTS (SELECT 1 FROM span l
  CROSS JOIN attempt b ON b.attempt = l.attempt CROSS JOIN point q ON
  q.metric_id = l.metric_id AND q.attempt = l.attempt AND q.step = p.step WHERE
  l.metric_id = p.metric_id AND l.attempt > p.attempt AND l.first_step <= p.step AND
  b.kind = 'train')) AS effective, p.wall_ns
  FROM metric m CROSS JOIN span n ON n.metric_id = m.id CROSS JOIN attempt s ON
  s.attempt = n.attempt CROSS JOIN point p ON p.metric_id = n.metric_id AND
  p.attempt = n.attempt
;
CREATE VIEW step AS -- one value a step and name: what an uninterrupted run would show
  SELECT step, name, value, class, attempt, wall_ns FROM step_all WHERE effective
;
CREATE VIEW eval_effective AS SELECT e.* FROM eval e JOIN attempt s USING(attempt)
  WHERE (s.to_step IS NULL OR e.step <= s.to_step) AND NOT EXISTS (SELECT 1 FROM attempt b
  CROSS JOIN eval f ON f.attempt = b.attempt AND f.step = e.step AND
  f.set_name = e.set_name WHERE b.attempt > e.attempt AND b.kind = 'train') AND NOT EXISTS
  (SELECT 1 FROM attempt b CROSS JOIN eval f ON f.attempt = b.attempt AND
  f.step < e.step AND f.set_name = e.set_name WHERE b.attempt > e.attempt AND
  b.kind = 'train' AND b.resumed_step IS NULL);
CREATE VIEW tag AS -- words that users gave the run, and have not taken away
  SELECT text AS tag, max(wall_ns) AS wall_ns FROM event e WHERE kind = 'tag' AND
  text NOT NULL AND NOT EXISTS (SELECT 1 FROM event u WHERE u.kind = 'untag' AND
  u.text = e.text AND u.wall_ns > e.wall_ns) GROUP BY text
;
CREATE VIEW note AS -- users' remarks; number: as tern ledger note shows it
  SELECT (SELECT count(*) FROM event b WHERE b.kind = 'note' AND
  (b.wall_ns, b.writer_id, b.seq) <= (e.wall_ns, e.writer_id, e.seq)) AS number, wall_ns,
  text, writer_id || '.' || seq AS record FROM event e WHERE kind = 'note' AND NOT EXISTS
  (SELECT 1 FROM event u WHERE u.kind = 'unnote' AND
  u.text = e.writer_id || '.' || e.seq)
;
CREATE VIEW attempt_row AS SELECT (SELECT id FROM run) AS run_id, * FROM attempt;
CREATE VIEW checkpoint_row AS SELECT (SELECT id FROM run) AS run_id, c.*,
  (s.to_step IS NULL OR c.step <= s.to_step) AND NOT EXISTS (SELECT 1 FROM attempt b
  CROSS JOIN checkpoint k ON k.attempt = b.attempt WHERE b.attempt > c.attempt AND
  b.kind = 'train' AND b.resumed_step IS NULL AND k.step <= c.step AND k.made_ns > 0) AS
  effective
  FROM checkpoint c JOIN attempt s USING(attempt);
CREATE VIEW run_row AS SELECT id, name, user, recipe_path, recipe, identity_hash, full_hash,
  model, created_ns,
  (SELECT coalesce(outcome, 'running') FROM attempt ORDER BY attempt DESC LIMIT 1) AS state,
  (SELECT count(*) FROM attempt) AS attempts,
  (SELECT job_id FROM attempt ORDER BY attempt DESC LIMIT 1) AS job_id,
  (SELECT array_job FROM attempt ORDER BY attempt DESC LIMIT 1) AS array_job,
  (SELECT array_task FROM attempt ORDER BY attempt DESC LIMIT 1) AS array_task,
  (SELECT max(min(n.last_step, coalesce(s.to_step, n.last_step),
    coalesce(n.to_step, n.last_step))) FROM span n JOIN attempt s USING(attempt) WHERE
    n.first_step <= coalesce(s.to_step, n.last_step) AND
    n.first_step <= coalesce(n.to_step, n.last_step)) AS last_step,
  (SELECT n.value FROM metric m CROSS JOIN span n ON n.metric_id = m.id JOIN attempt s
    ON s.attempt = n.attempt WHERE m.name = 'loss' AND s.kind = 'train'
    ORDER BY n.attempt DESC LIMIT 1) AS last_loss,
  (SELECT n.class FROM metric m CROSS JOIN span n ON n.metric_id = m.id JOIN attempt s
    ON s.attempt = n.attempt WHERE m.name = 'loss' AND s.kind = 'train'
    ORDER BY n.attempt DESC LIMIT 1) AS last_loss_class, -- as point's
  (SELECT max(wall_ns) FROM ingest WHERE file NOT LIKE '%/note-%') AS updated_ns,
  (SELECT max(step) FROM checkpoint_row WHERE effective AND
    state IN ('published', 'verified')) AS ckpt_step,
  (SELECT coalesce(sum(CAST(text AS INT)), 0) FROM event WHERE kind = 'gap') AS lost, -- records
  (SELECT CAST(value AS INT) FROM param JOIN attempt s USING(attempt) WHERE name = 'steps'
    AND length(value) < 16 ORDER BY s.kind = 'train' DESC, attempt DESC LIMIT 1)
    AS steps, -- of the whole run, as planned
  (SELECT n.value FROM metric m CROSS JOIN span n ON n.metric_id = m.id JOIN attempt s
    ON s.attempt = n.attempt WHERE m.name = 'tokens_per_second' AND s.kind = 'train'
    ORDER BY n.attempt DESC LIMIT 1) AS tokens_per_second,
  (SELECT n.value FROM metric m CROSS JOIN span n ON n.metric_id = m.id JOIN attempt s
    ON s.attempt = n.attempt WHERE m.name = 'step_seconds' AND s.kind = 'train'
    ORDER BY n.attempt DESC LIMIT 1) AS step_seconds,
  (SELECT group_concat(tag, ' ') FROM (SELECT tag FROM tag ORDER BY tag)) AS tags
  FROM run
;
COMMIT;

-- A run.db as tern 0.4's development made them (user_version 3), by sqlite3's .dump.
PRAGMA application_id = 1952805486;
PRAGMA user_version = 3;
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
  resumed_checkpoint TEXT, resumed_step INT, -- NULL: not known; 0: from scratch
  full_hash TEXT, begin_ns INT NOT NULL DEFAULT 0, end_ns INT NOT NULL DEFAULT 0,
  outcome TEXT, -- NULL while it runs
  exit_code INT, signal INT, cause TEXT, first_step INT, last_step INT,
  to_step INT, -- its values are effective up to here; NULL: no later attempt ended that
  CHECK(typeof(job_id) = 'integer' AND typeof(restart_count) = 'integer' AND
    typeof(pid) = 'integer' AND typeof(world) = 'integer' AND
    typeof(begin_ns) = 'integer' AND typeof(end_ns) = 'integer' AND
    typeof(resumed_step) IN ('integer', 'null') AND
    typeof(exit_code) IN ('integer', 'null') AND
    typeof(signal) IN ('integer', 'null') AND
    typeof(first_step) IN ('integer', 'null') AND
    typeof(last_step) IN ('integer', 'null') AND
    typeof(to_step) IN ('integer', 'null') AND typeof(kind) = 'text' AND
    typeof(nodes) IN ('text', 'null') AND typeof(host) IN ('text', 'null') AND
    typeof(resumed_checkpoint) IN ('text', 'null') AND
    typeof(full_hash) IN ('text', 'null') AND typeof(outcome) IN ('text', 'null') AND
    typeof(cause) IN ('text', 'null'))
);
INSERT INTO attempt VALUES(1,'train',4711,0,'trn1-[1-2]','trn1-1',28510,4,NULL,0,NULL,1795628655635638994,0,NULL,NULL,NULL,NULL,1,1,8);
INSERT INTO attempt VALUES(2,'train',4711,1,'trn1-[1-2]','trn1-1',28512,4,NULL,8,NULL,1795628655639729217,1795628655639800009,'completed',0,0,'the test said so',9,14,NULL);
CREATE TABLE metric( -- with its newest value
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, attempt INT, step INT, value REAL,
  class INT NOT NULL DEFAULT 0, wall_ns INT NOT NULL DEFAULT 0,
  CHECK(typeof(class) = 'integer' AND typeof(wall_ns) = 'integer' AND
    typeof(attempt) IN ('integer', 'null') AND
    typeof(step) IN ('integer', 'null') AND typeof(name) = 'text' AND
    typeof(value) IN ('real', 'null'))
);
INSERT INTO metric VALUES(1,'loss',2,14,2.7716731546937309893,0,1795628655639796603);
INSERT INTO metric VALUES(2,'lr',2,14,0.00010000000000000000479,0,1795628655639796603);
INSERT INTO metric VALUES(3,'acc',2,13,0.5,0,1795628665213878627);
INSERT INTO metric VALUES(4,'top',2,13,1e999,2,1795628665213878627);
CREATE TABLE point(
  metric_id INT NOT NULL, attempt INT NOT NULL, step INT NOT NULL,
  value REAL, class INT NOT NULL, -- class 0: value; 1: NaN, value is NULL; 2: +Inf; 3: -Inf
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
  CHECK(typeof(attempt) = 'integer' AND typeof(step) = 'integer' AND
    typeof(bytes) = 'integer' AND typeof(shards) = 'integer' AND
    typeof(made_ns) = 'integer' AND typeof(wall_ns) = 'integer' AND
    typeof(path) = 'text' AND typeof(manifest_sha256) IN ('text', 'null') AND
    typeof(state) IN ('text', 'null'))
);
INSERT INTO checkpoint VALUES('/fsx/ck/step-00000008',1,8,1234567,4,'c0ffee',1795628655638000000,'verified',1795628655638500000);
CREATE TABLE eval( -- not finite ones as the texts NaN, Infinity, -Infinity
  attempt INT NOT NULL, step INT NOT NULL, set_name TEXT NOT NULL,
  nll NOT NULL, -- nats, summed over the tokens
  tokens INT NOT NULL, bytes INT NOT NULL, ppl_token, ppl_byte,
  wall_ns INT NOT NULL, PRIMARY KEY(attempt, step, set_name),
  CHECK(typeof(attempt) = 'integer' AND typeof(step) = 'integer' AND
    typeof(tokens) = 'integer' AND typeof(bytes) = 'integer' AND
    typeof(wall_ns) = 'integer' AND typeof(set_name) = 'text')
) WITHOUT ROWID;
INSERT INTO eval VALUES(2,14,'broken','NaN',400,1600,'NaN','NaN',1795628655639900000);
INSERT INTO eval VALUES(2,14,'heldout',1234.5,400,1600,21.879999999999999004,2.1600000000000001421,1795628655639900000);
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
  SELECT p.step, m.name, CASE p.class WHEN 0 THEN p.value WHEN 1 THEN 'NaN' WHEN 2 THEN
  'Infinity' ELSE '-Infinity' END AS value, p.attempt,
  s.to_step IS NULL OR p.step <= s.to_step AS effective, p.wall_ns
  FROM metric m JOIN point p ON p.metric_id = m.id JOIN attempt s ON
  s.attempt = p.attempt
;
CREATE VIEW step AS -- one value a step and name: what an uninterrupted run would show
  SELECT step, name, value, attempt, wall_ns FROM step_all WHERE effective
;
CREATE VIEW eval_effective AS SELECT e.* FROM eval e JOIN attempt s USING(attempt)
  WHERE (s.to_step IS NULL OR e.step <= s.to_step) AND NOT EXISTS (SELECT 1 FROM eval f
  WHERE f.set_name = e.set_name AND f.step = e.step AND f.attempt > e.attempt);
CREATE VIEW attempt_row AS SELECT (SELECT id FROM run) AS run_id, * FROM attempt;
CREATE VIEW checkpoint_row AS SELECT (SELECT id FROM run) AS run_id, c.*,
  s.to_step IS NULL OR c.step <= s.to_step AS effective FROM checkpoint c
  JOIN attempt s USING(attempt);
CREATE VIEW run_row AS SELECT id, name, user, recipe_path, recipe, identity_hash, full_hash,
  model, created_ns,
  (SELECT coalesce(outcome, 'running') FROM attempt ORDER BY attempt DESC LIMIT 1) AS state,
  (SELECT count(*) FROM attempt) AS attempts,
  (SELECT job_id FROM attempt ORDER BY attempt DESC LIMIT 1) AS job_id,
  (SELECT max(CASE WHEN to_step < last_step THEN to_step ELSE last_step END)
    FROM attempt) AS last_step,
  (SELECT CASE class WHEN 0 THEN value WHEN 1 THEN 'NaN' WHEN 2 THEN 'Infinity' ELSE
    '-Infinity' END FROM metric m JOIN attempt s USING(attempt) WHERE m.name = 'loss' AND
    s.kind = 'train') AS last_loss,
  (SELECT max(wall_ns) FROM ingest) AS updated_ns,
  (SELECT max(step) FROM checkpoint_row WHERE effective AND
    state IN ('published', 'verified')) AS ckpt_step FROM run;
COMMIT;

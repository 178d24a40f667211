# Sourced by what makes and what reads tests/golden/old-run.tar.gz, a run folder of tern 0.3.
# Absolute paths stand in its records, under checksums, so it has one place, and one user at a time.
OLD=/tmp/tern-run-0.3
old_place() {
    exec 9</tmp && flock -w 600 9 || return 1 # children hold it, too, while they write there
    rm -rf $OLD 2>/dev/null
    mkdir $OLD 2>/dev/null
}

# TABLE.COLUMN of every table and view in a database.
old_columns() { sqlite3 "$1" "SELECT m.name || '.' || c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type IN ('table', 'view') ORDER BY 1"; }

# Into the current folder: what tern answers about the runs there.
old_answers() {
    local r db
    for r in own other; do
        export TERN_LEDGER=$OLD/$r/ledger
        tern ledger list -P -o id,name,attempts,step,loss,ckpt >$r.list
        tern ledger sql -P "SELECT * FROM attempt ORDER BY attempt" >$r.attempts
        tern ledger show -P -c -o attempt,step,state,effective,path >$r.checkpoints
        tern ledger sql -r latest -P "SELECT step, name, printf('%.17g', value), attempt, wall_ns FROM step ORDER BY name, step" >$r.values
        tern ledger sql -r latest -P 'SELECT step, set_name, nll, ppl_token FROM eval_effective ORDER BY step' >$r.evals
        tern ledger sql -r latest -P 'SELECT attempt, kind, severity, text FROM event ORDER BY attempt, wall_ns, writer_id, seq' >$r.events
        tern ledger plot --json >$r.plot
        tern logs --attempt all latest >$r.logs
        for db in $(cd $TERN_LEDGER && echo ledger.db runs/*/run.db); do
            old_columns $TERN_LEDGER/$db >$r.${db##*/}.columns
        done
        unset TERN_LEDGER
    done
    tern ckpt ls -P -o step,state,shards,path $OLD/own/checkpoints >own.ckpts
    tern ckpt show --json $OLD/own/checkpoints/latest | grep '"sha256"' >own.digests
    tern fabric autopsy --json $OLD/dumps | grep -E '"(culprit|waits_for)"' >dumps.culprit
}
# The losses behind the step where the old tern was killed, of the newest attempt.
old_next() {
    tern ledger sql -l $OLD/own/ledger -r latest -P -n "SELECT step, name, printf('%.17g', value) FROM step WHERE name IN ('loss', 'grad_norm') AND attempt = 3 ORDER BY name, step"
    tern ledger sql -l $OLD/own/ledger -r latest -P -n "SELECT step, nll FROM eval WHERE attempt = 3 ORDER BY step"
}

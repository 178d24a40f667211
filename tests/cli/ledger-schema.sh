#!/bin/bash
# tern-ledger-schema(5) has every table, view and column of the files that tern makes, and no other.
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_LEDGER TERN_RUN_SPOOL COLUMNS
id=$("$TOOLS/ledger-writer" l new 1 0 1 10 done); id=${id%%[!0-9A-Z]*}
tern ledger fold -l l
run tern help ledger-schema; status 0; cp out page
tern help run.db >other 2>&1; cmp -s page other; ok $? "run.db is another name of the topic"

# Lines FILE TABLE COLUMN TYPE of the man page; "as in X" has the columns in its text, and no types.
man_lines() {
    tern --help-man tern-ledger-schema.5 | sed 's/\\-/-/g' | awk '
        /^\.SH / {done(); file = ""}
        /^\.SH [A-Z.]+: (TABLE|VIEW) / {file = tolower($2); sub(":", "", file); table = $4; next}
        /^\.TP/ {done(); next}
        /^\.B / {term = substr($0, 4); next}
        term != "" {text = text " " $0}
        END {done()}
        function done(  list, type, n, c, i) {
            list = term; type = text; sub(/^ /, "", type); sub(/\..*/, "", type)
            if (term ~ /^as in /) {list = text; gsub(/[ .]/, "", list); gsub(/,/, ", ", list); type = "-"}
            n = file == "" || term == "" ? 0 : split(list, c, ", ")
            for (i = 1; i <= n; i++) print file, table, c[i], type
            term = text = ""
        }'
}
columns_of_file() { # FILE NAME
    sqlite3 -separator ' ' "$1" "select '$2', m.name, c.name from sqlite_master m, pragma_table_info(m.name) c where m.type in ('table', 'view')" | sort -u
}
man_lines >lines
cut -d ' ' -f 1-3 lines | sort >told
is "$(uniq -d told)" "" "the page tells no column twice"
{ columns_of_file "l/runs/$id/run.db" run.db; columns_of_file l/ledger.db ledger.db; } | sort -u >there
[ "$(wc -l <there)" -gt 200 ]; ok $? "the files have columns to be described"
missing=$(comm -13 told there); [ -z "$missing" ]; ok $? "every column of every table and view has a line in the page" || sed 's/^/# /' <<<"$missing"
gone=$(comm -23 told there); [ -z "$gone" ]; ok $? "the page tells no column that is not there" || sed 's/^/# /' <<<"$gone"
awk '$1 == "run.db" && $4 !~ /^(INT|REAL|TEXT|-)$/ && !($2 == "metric" || $2 == "point")' lines >bare
[ ! -s bare ]; ok $? "columns have their types" || cat bare
tr -s ' \n' '  ' <page >flat; has flat "PRAGMA user_version is $(sqlite3 "l/runs/$id/run.db" 'PRAGMA user_version')." "the page has the version of run.db"
is "$(sqlite3 l/ledger.db 'PRAGMA user_version')" "$(sqlite3 "l/runs/$id/run.db" 'PRAGMA user_version')" "both files have one version"
has page "$(printf '0x%x' "$(sqlite3 l/ledger.db 'PRAGMA application_id')")" "the page has the files' application_id"
is "$(sqlite3 l/ledger.db .schema | grep -c STRICT)" 0 "no table is STRICT"
# What the page says of types, of every row that a run has: INT, REAL and TEXT, or NULL.
awk '$1 == "run.db" && $4 ~ /^(INT|REAL|TEXT)$/ {print $2, $3, $4}' lines >types
wrong=
while read -r table column type; do
    case $type in INT) t=integer ;; REAL) t=real ;; *) t=text ;; esac
    n=$(sqlite3 "l/runs/$id/run.db" "select count(*) from $table where typeof($column) not in ('$t', 'null')")
    [ "$n" = 0 ] || wrong="$wrong $table.$column"
done <types
[ -z "$wrong" ] && [ "$(wc -l <types)" -gt 90 ]; ok $? "columns hold what the page says" || echo "#$wrong, $(wc -l <types) columns"

# ---- newer and older files
newer() { cp "$1" newer.db; chmod u+w newer.db; sqlite3 newer.db "PRAGMA user_version = 99"; [ "${1##*/}" = ledger.db ] || python3 "$ROOT/tests/lib/seal.py" newer.db; chmod --reference="$1" newer.db; mv -f newer.db "$1"; }
newer "l/runs/$id/run.db"; newer l/ledger.db # this tern's tables: the version is wrong
is "$(sqlite3 -readonly "l/runs/$id/run.db" "select count(*) from step where name = 'loss'")" 10 "sqlite3 reads a run.db of a newer version"
run tern ledger fold -l l; status 0; err_has "run.db: version 99 is newer than this tern's"
is "$(sqlite3 "l/runs/$id/run.db" 'PRAGMA user_version') $(sqlite3 l/ledger.db 'PRAGMA user_version')" "7 7" "a version that no tern has yet, on tables of today, is made right by a fold"
tap_done

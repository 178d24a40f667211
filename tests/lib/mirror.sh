# Sourced by tests of copies in a bucket, after tap.sh: a tiny run whose mirror is s3://copies/tiny.
. "$ROOT/tests/lib/s3.sh"
. "$ROOT/tests/lib/tiny.sh"
for v in $(compgen -e | grep -E '^(SLURM|TERN_(R|L))'); do unset "$v"; done
tiny_make >made 2>&1 || { cat made; exit 1; }
sed -i 's/^launch: .*/launch: {threads: 1, health: off}/; s#keep: 2}#keep: 2, mirror: "s3://copies/tiny"}#' run.yaml
names() { "$TOOLS/store-tool" list "s3://copies/${1-tiny}" 2>/dev/null | cut -f1; } # of its objects

# Sourced after tap.sh: an S3 server on loopback (tests/tools/s3.py), and an environment that leads to
# it and has nothing of the user's.  Skips all where it cannot be had.
#
# fault 503=2 'match=GET.*key'; fault_none; asked 'TEXT of log lines' counts.
tern data info s3://b/x 2>&1 | grep -q 'built without' && skip_all "built without libcurl"
while read -r name; do unset "$name"; done < <(env | sed -n 's/^\(AWS_[A-Z0-9_]*\|HF_[A-Z0-9_]*\|[a-z]*_proxy\)=.*/\1/p')
mkdir -p "$WORK/home" && export HOME=$WORK/home
export AWS_EC2_METADATA_DISABLED=true AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=secret+key/of=tests
export TERN_CACHE=$WORK/cache
mkfifo "$WORK/s3.hold"
python3 "$ROOT/tests/tools/s3.py" "$WORK/s3.port" "$WORK/s3.log" <"$WORK/s3.hold" 2>"$WORK/s3.err" &
s3_pid=$!
exec 9>"$WORK/s3.hold"
s3_end() { kill $s3_pid; } 2>/dev/null
tap_cleanup=s3_end
until_true [ -e "$WORK/s3.port" ] || skip_all "no python3 that serves"
S3=http://127.0.0.1:$(cat "$WORK/s3.port")
export AWS_ENDPOINT_URL=$S3
s3_say() { python3 -c 'import sys, urllib.request as u; u.build_opener(u.ProxyHandler({})).open(sys.argv[1].replace(" ", "%20")).read()' "$S3$1"; }
fault() { s3_say "/_fault?$(printf '%s&' "$@")"; }
fault_none() { s3_say /_clear; }
asked() { grep -cE -- "$1" "$WORK/s3.log"; }

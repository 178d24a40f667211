#!/bin/bash
# tern ledger serve: the page, its data and the list, with the secret and without it; hostile requests.
# (tests/peers/serve.sh has it in Chromium.)
. "$(dirname "$0")/../lib/tap.sh"
unset TERN_RUN_SPOOL COLUMNS XDG_RUNTIME_DIR
W=$TOOLS/ledger-writer
export TERN_LEDGER=$WORK/l; mkdir l run
run tern ledger serve; if grep -q 'built without libmicrohttpd' err; then
    status 2 "without libmicrohttpd serve says how to get it"; has err libmicrohttpd-dev; one_line; tap_done
fi
make() { id=$(WRITER_NAME=$1 WRITER_SPEED=1 "$W" l new 1 0 1 "$2" ${3-}); id=${id%%[!0-9A-Z]*}; }
make first 100 done; first=$id; make second 150; second=$id
evil=$("$W" l new 1 0 1 1 done >ids; head -n 1 ids); WRITER_NAME=$(printf '</script><img src=x onerror=alert(1)>\033[31m') "$W" l "$evil" 2 1 2 3 done >/dev/null
run timeout 600 tern ledger serve; status 2 "without a place serve asks for one"; err_has '--socket PATH'; one_line
raw() { python3 "$ROOT/tests/tools/raw_http.py" "$@"; }
ask() { # PLACE METHOD PATH [HEADER...]: the answer in ./answer, its status in $code, its body in ./body
    local place=$1 method=$2 path=$3; shift 3
    { printf '%s %s HTTP/1.1\r\n' "$method" "$path"; printf '%s\r\n' "${@:-Host: localhost}" 'Connection: close' ''; } >request
    raw "$place" request >answer
    code=$(head -n 1 answer | tr -d '\r' | cut -d ' ' -f 2); sed '1,/^\r$/d' answer >body
}
case_of() { (IFS='|'; printf '%s\n' "$*") >>cases; } # CODES NAME METHOD PATH HEADER...
play() { raw "$1" --cases cases >lines; tap_lines <lines; : >cases; }
code() { is "$code" "$1" "$2"; }
begin() { # OPTION...: serves; the first line of its output is ./told
    : >told; tern ledger serve "$@" >told 2>said & pid=$!
    until_true [ -s told ]
}
finish() { kill -"${1:-INT}" $pid; wait $pid; rc=$?; }
pid=; serve_end() { [ -z "$pid" ] || kill $pid; } 2>/dev/null
tap_cleanup=serve_end

# ---- a socket
begin --socket "$WORK/run/s" first second; S=$WORK/run/s
is "$(cat told)" "$S" "the socket's path is printed"; has said "ssh -N -L 8080:$S"
is "$(stat -c %a "$S")" 600 "its user alone may connect"
ask "$S" GET /; code 200 "the page"; has body '<!DOCTYPE html>'; has body '"every":5'; has body "connect-src 'self'"
grep -qiE '^Content-Security-Policy: frame-ancestors' answer && grep -qi '^X-Content-Type-Options: nosniff' answer && grep -qi '^Referrer-Policy: no-referrer' answer && grep -qi '^Cache-Control: no-store' answer; ok $? "the page's HTTP headers are strict" || head -20 answer
grep -q 'https\?://' body; [ $? = 1 ] || ! grep -oE '(src|href)="[^"]*"' body | grep -q .; ok $? "the page loads nothing from elsewhere"
ask "$S" GET /data; code 200 "the data"; is "$(jq -r '[.runs[].name] | join(" ")' body)" "first second" "of the runs that were named"
is "$(jq -r '.runs[0].curves.loss.step | length' body)" 100 "/data has the runs' curves"; is "$(jq -r '.page.most_points' body)" 2000 "/data has the page's own settings"
tern ledger report first second -o page.html >/dev/null
is "$(jq -S '.runs' body | md5sum)" "$(sed -n 's,.*<script type="application/json" class="run">\(.*\)</script>,\1,p' page.html | jq -S -s . | md5sum)" "the same as in the page of tern ledger report"
stamp=$(jq -r .stamp body)
ask "$S" GET "/data?have=$stamp"; is "$(cat body)" "{\"stamp\":\"$stamp\"}" "what the page has is not sent again"
TERN_RUN_SPOOL=$WORK/l/runs/$second/spool/1 tern metric step=151 loss=0.5
ask "$S" GET "/data?have=$stamp"; is "$(jq -r '.runs[1].curves.loss.step[-1]' body)" 151 "news is sent, before any fold"
ask "$S" GET "/data?run=$first"; is "$(jq -r '[.runs[].name] | join(" ")' body)" first "a page may ask for a run by its id"
ask "$S" GET "/data?run=$second&run=$first"; is "$(jq -r '[.runs[].name] | join(" ")' body)" "second first" "or for several"
ask "$S" GET /list; code 200 "the list"; is "$(jq -r '[.[].id] | join(" ")' body)" "$evil $second $first" "of all runs, newest first"
is "$(jq -r '.[1].state' body)" running "/list has the state of each run"
touch -d '1 hour ago' l/runs/"$second"/spool/*/*; ask "$S" GET /list; is "$(jq -r '.[1].state' body)" "$(tern ledger list -P -n -o state -N second)" "a run whose owner is gone has the state of tern ledger list"
is "$(jq -r '.[1].state' body)" silent "/list shows a run whose owner is gone as silent"
grep -q $'\033' body; [ $? = 1 ]; ok $? "no byte of a name is unsafe"; grep -qi '^Content-Type: application/json' answer; ok $? "/list is served as JSON"
ask "$S" HEAD /; code 200 "HEAD"; [ ! -s body ]; ok $? "has no body"

# ---- requests that are refused
for m in POST PUT DELETE OPTIONS PATCH TRACE CONNECT X; do case_of 405 "$m is refused" $m / 'Host: localhost'; done
{ printf 'POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n'; head -c 100000 /dev/zero; } >request; raw "$S" request >answer
head -n 1 answer | grep -qE ' 405 |^$' || [ ! -s answer ]; ok $? "a body is not read" || head -1 answer
for h in evil.example localhost.evil.example 127.0.0.1.evil.example evil.example:8080 '' '[::2]' 'localhost:' 'localhost:x' 'localhost:123456' 'localhost@evil' '127.0.0.2'; do
    case_of 403,400 "Host: '$h' is refused" GET /data "Host: $h"
done
for h in localhost localhost:8080 127.0.0.1:1 '[::1]:65535'; do case_of 200 "Host: $h is local" GET /list "Host: $h"; done
case_of 403,400 "two hosts are refused" GET /data 'Host: localhost' 'Host: evil.example'
for site in cross-site same-site x; do case_of 403 "a request of another site's page ($site) is refused" GET /data 'Host: localhost' "Sec-Fetch-Site: $site"; done
case_of 200 "one of this page is not" GET /list 'Host: localhost' 'Sec-Fetch-Site: same-origin'
for p in /x /data/ //data /../data /%2e%2e/data /data%00 /%64ata /index.html '/data?run=latest' '/data?run=../../etc' "/data?x=1" '/data?run=%00' /list/..; do
    case_of 404,400 "$p is not found" GET "$p" 'Host: localhost'
done
case_of 404 "nor are seventy runs" GET "/data?run=$first$(printf '&run=x%.0s' $(seq 70))" 'Host: localhost'
case_of 404 "nor is a run that is not there" GET "/data?run=01ARZ3NDEKTSV4RRFFQ69G5FAV" 'Host: localhost'
long=$(head -c 100000 /dev/zero | tr '\0' a)
case_of 414,431,413,400,- "a path of 100,000 bytes is refused" GET "/$long" 'Host: localhost'
case_of 414,431,413,400,- "and so is such a header" GET / 'Host: localhost' "X: $long"
play "$S"
printf 'GET /data HTTP/1.0\r\n\r\n' >request; raw "$S" request | head -n 1 | grep -q ' 403 '; ok $? "no host is refused"
head -c 20000 /dev/urandom >request; raw "$S" request >answer; [ "$(head -c 12 answer)" != 'HTTP/1.1 200' ]; ok $? "noise gets no answer of worth"
printf 'GET / HTTP/1.1\r\nHost: localhost\r\n' >request; raw "$S" request >answer; ok 0 "half a request ends"
mkfifo hold; (raw "$S" --hold 40 <hold >held 2>/dev/null) & holder=$!; exec 7>hold; until_true [ -s held ]; exec 7>&-; wait $holder
answers() { ask "$S" GET /list 2>/dev/null; [ "$code" = 200 ]; }
until_true answers; ok $? "forty connections that say nothing do not end the server"
kill -0 $pid; ok $? "the server still runs after that"

# ---- a place that is taken
run timeout 600 tern ledger serve --socket "$S"; status 2; one_line; err_has 'another process serves there'
finish; is $rc 0 "Ctrl-C ends it"; [ ! -e "$S" ]; ok $? "Ctrl-C removes the socket"
begin --socket "$S" first; kill -9 $pid; wait $pid 2>/dev/null; [ -S "$S" ]; ok $? "one that is killed leaves its socket"
begin --socket "$S" first; ask "$S" GET /list; code 200 "the next one takes its place"; finish TERM; is $rc 0 "a signal ends it"
echo mine >file; run timeout 600 tern ledger serve --socket "$WORK/file"; status 2; one_line; is "$(cat file)" mine "a file there stays"
run timeout 600 tern ledger serve --socket "$WORK/$(printf 'x%.0s' $(seq 200))"; status 2; one_line
run timeout 600 tern ledger serve --socket "$WORK/no/such/s"; [ $rc != 0 ]; ok $? "a folder that is not there"; one_line
mkdir -m 700 rt; XDG_RUNTIME_DIR=$WORK/rt begin; is "$(cat told)" "$WORK/rt/tern-ledger.sock" "the usual place is in XDG_RUNTIME_DIR"
ask "$WORK/rt/tern-ledger.sock" GET /data; is "$(jq -r '.runs | length' body)" 1 "without a name it is the newest run"; finish

# ---- a port
begin --tcp first; url=$(cat told); P=${url#http://}; P=${P%%/*}; token=${url#"http://$P/"}; token=${token%/}
[ ${#token} = 32 ] && [ "${P%:*}" = 127.0.0.1 ]; ok $? "a port of this machine, with a secret in the address"
grep -q "$token" said "/proc/$pid/cmdline" "/proc/$pid/environ"; [ $? = 1 ]; ok $? "the secret is in no message, argument or variable"
ask "$P" GET "/$token/"; code 200 "the address gives the page"; ask "$P" GET "/$token/data"; code 200 "and the data"
for p in / /data "/${token:0:31}/data" "/${token}0/data" "/$(tr 0-9a-f 1-9a-f0 <<<"$token")/data" "/${token^^}x/" "//$token/data" "/x/$token/"; do
    case_of 404 "without the secret there is no answer" GET "$p" 'Host: localhost'
done
play "$P"
ask "$P" GET "/$token/data" 'Host: evil.example'; code 403 "with it there is none under another name"
ss=$(cat /proc/net/tcp | awk -v p="$(printf '%04X' "${P#*:}")" '$2 ~ ":" p "$" && $4 == "0A" {print $2}'); is "$ss" "0100007F:$(printf '%04X' "${P#*:}")" "serve --tcp listens on 127.0.0.1 alone"
was=$token; finish; begin --tcp; url=$(cat told); [ "${url%/}" != "${url%%"$was"*}$was" ]; ok $? "each server has a secret of its own"; finish

# ---- mistakes
run tern ledger serve --tcp --socket x; status 2; one_line
run tern ledger serve --tcp --every 0; status 2; one_line
run timeout 600 tern ledger serve --tcp frst; status 2; one_line; err_has "did you mean 'first'"
run timeout 600 tern ledger serve --tcp -l nowhere; status 2; one_line
tap_done

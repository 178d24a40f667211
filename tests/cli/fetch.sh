#!/bin/bash
# tern fetch: a hub, object storage and one file: whole or not at all, gone on with, checked, and no
# token in any message or at another host.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/s3.sh"

mkdir -p hub/org/model/original hub/gated/model hub/org/data
for n in 1 2; do head -c 9000000 /dev/urandom >hub/org/model/model-0000$n.safetensors; done
head -c 200000 /dev/urandom >hub/org/model/pytorch_model.bin
head -c 200000 /dev/urandom >hub/org/model/original/consolidated.00.pth
echo '{"a": 1}' >hub/org/model/config.json
: >hub/org/model/empty.txt
mkdir -p 'hub/org/model/a b' && echo text >'hub/org/model/a b/c%d#e.txt'
echo '{"b": 2}' >hub/gated/model/config.json
head -c 150000 /dev/urandom >hub/org/data/train.jsonl
mkfifo hub.hold
python3 "$ROOT/tests/tools/hub.py" hub.port hub.log hub <hub.hold 2>hub.err &
hub_pid=$!
exec 8>hub.hold
hub_end() { kill $s3_pid $hub_pid; } 2>/dev/null
tap_cleanup=hub_end
until_true [ -e hub.port ]
export HF_ENDPOINT=http://127.0.0.1:$(cat hub.port)
hub_asked() { grep -cE -- "$1" hub.log; }

# ---- a model
run tern fetch hf://org/model --list
status 0
is "$(wc -l <out)" 5 "the same weights in other formats are left out"
run tern fetch hf://org/model -o m
status 0
is "$(cat out)" m "the folder is printed"
err_has 'commit 0123456789abcdef0123456789abcdef01234567'
same=0
for f in model-00001.safetensors model-00002.safetensors config.json empty.txt 'a b/c%d#e.txt'; do
    cmp -s "hub/org/model/$f" "m/$f" || same=1
done
ok $same "every file is the hub's"
[ ! -e m/.tern-fetch ] && [ ! -e m/pytorch_model.bin ]; ok $? "nothing else is there"

# ---- its line of progress
TERN_PROGRESS_MS=0 run tern fetch hf://org/model -o told --threads 1
status 0; cp err told.err
grep -qE '^tern fetch: (hf://)?org/model[^ ]*: [0-9]+ %, [0-9.]+ [kMG]?B/s, [0-9]+ s left$' told.err; ok $? "in a file, a fetch says its share, rate and time left" || cat told.err
sed -nE 's/.*: ([0-9]+) %.*/\1/p' told.err >shares; sort -n shares | cmp -s - shares && [ "$(sort -u shares | wc -l)" -gt 1 ]; ok $? "the share of a fetch grows with what has come" || cat told.err
if command -v script >/dev/null; then
    TERM=xterm TERN_PROGRESS_MS=0 script -qec "stty cols 60; tern fetch hf://org/model -o drawn" /dev/null >seen 2>&1 </dev/null; rc=$?; cmd="tern fetch on a terminal"
    status 0
    tr '\r' '\n' <seen | sed -n 's/^\x1b\[K\(..*\)/\1/p' | grep -v '^tern' >lines
    grep -qE ': [0-9]+ %' lines; ok $? "on a terminal, a fetch draws its line" || cat -v seen
    sed -e 's/\r$//' -e 's/.*\r\x1b\[K//' seen | grep -qE '[0-9] %'; is $? 1 "a fetch leaves no line of progress on the terminal"
    [ -z "$(wider 59 lines)" ]; ok $? "the line of a fetch fits the terminal" || cat lines
    cmp -s drawn/model-00002.safetensors hub/org/model/model-00002.safetensors; ok $? "a fetch on a terminal has the file"
else
    skip "util-linux's script is not installed"
fi

: >hub.log
run tern fetch hf://org/model@v1 -o m
status 0
err_has 'fetched now: 0'
is "$(hub_asked resolve)" 0 "what is there and right is not fetched again"
printf X | dd of=m/config.json bs=1 conv=notrunc 2>/dev/null
cp m/config.json changed; : >hub.log
run tern fetch hf://org/model@refs/pr/1 -o m
status 2 "a file of one's own is where one of the source would go"; one_line
err_has "m/config.json: is there, and is not the file of the source; it is left as it is. --replace takes its place"
cmp -s m/config.json changed; ok $? "a file that was changed stays as it is"
rm m/empty.txt; echo longer >m/config.json
run tern fetch hf://org/model@refs/pr/1 -o m
status 2; [ ! -e m/empty.txt ]; ok $? "of a fetch that is refused no file gets its name"
run tern fetch hf://org/model@refs/pr/1 -o m --replace
status 0
cmp -s m/config.json hub/org/model/config.json && [ -e m/empty.txt ]; ok $? "--replace fetches a file that was changed again"
run tern fetch hf://org/model -o some --include '*.bin' --include '*.json' --exclude 'config*'
status 0
is "$(ls some)" pytorch_model.bin "--include and --exclude choose"
mkdir here && cd here && run tern fetch hf://org/model@v1 --include config.json; cd ..
is "$rc $(cat here/out) $(ls here/model)" "0 model config.json" "the folder is named for the model, without its revision"
run tern fetch hf://org/model -o none --threads 33; status 2; one_line; err_has 'allowed are 0 to 32'
run tern fetch hf://org/model -o none --include '*.gguf'
status 2
err_has 'no file there is to be fetched'
[ ! -e none ]; ok $? "nothing to fetch leaves no folder"
run tern fetch hf://datasets/org/data
status 0
cmp -s data/train.jsonl hub/org/data/train.jsonl; ok $? "a dataset, into a folder of its name"

# ---- tokens and permissions
run tern fetch hf://gated/model -o g
status 2
err_has "open $HF_ENDPOINT/gated/model, agree to its licence"
[ ! -e g ]; ok $? "a refusal leaves no folder"
HF_TOKEN=hf_wrong run tern fetch hf://gated/model -o g
status 2
err_has "open $HF_ENDPOINT/gated/model, agree to its licence, and set HF_TOKEN" "a token without permission: the error names the page of the licence"
! grep -q hf_wrong out err; ok $? "a token is not shown"
HF_TOKEN=hf_right run tern fetch hf://gated/model -o g
status 0
mkdir -p home/.cache/huggingface && echo hf_right >home/.cache/huggingface/token
rm -rf g
run tern fetch hf://gated/model -o g
status 0 "the token that a login stored"
: >hub.log
HF_TOKEN=hf_right run tern fetch hf://org/model -o m2
is "$(grep localhost hub.log | grep -vc 'token=none')" 0 "no token goes to the host that a redirect leads to"
[ "$(hub_asked '127.0.0.1.*token=Bearer hf_right')" -gt 3 ]; ok $? "the token goes to the hub"

# ---- a server that fails
printf '%s\n' '500 3 resolve' '429 2 api' 'reset 2 localhost|safetensors' 'cut 4 safetensors' 'flip 1 00002' >hub/fault
run tern fetch hf://org/model -o m3
status 0 "a fetch through faults"
cmp -s m3/model-00001.safetensors hub/org/model/model-00001.safetensors &&
    cmp -s m3/model-00002.safetensors hub/org/model/model-00002.safetensors
ok $? "a fetch through faults is right"
echo 'flip 1000 00002' >hub/fault
run tern fetch hf://org/model -o m4
status 1 "bytes that are always wrong"
err_has 'model-00002.safetensors: its bytes do not have the digest'
[ ! -e m4/model-00002.safetensors ] && [ ! -e m4/config.json ]; ok $? "wrong bytes get no name, nor does anything else"
rm hub/fault
: >hub.log
run tern fetch hf://org/model -o m4
status 0 "the same fetch goes on after an interruption"
is "$(hub_asked 'GET .*00001.safetensors')" 0 "what was right is not fetched again"
echo 'tree 1 tree' >hub/fault
run tern fetch hf://org/model -o m5
status 2
err_has 'no path inside a folder'
echo 'page 1 tree' >hub/fault
HF_TOKEN=hf_right run tern fetch hf://org/model -o m5
status 1 "a next page on another server"
echo 'html 100 api' >hub/fault
run tern fetch hf://org/model -o m5
[ "$rc" != 0 ] && [ ! -e m5 ] && [ ! -e ../../outside ]; ok $? "answers that are no list leave nothing"
rm hub/fault

# ---- several fetches, one folder
echo 'flip 1000 00002' >hub/fault
run tern fetch hf://org/model -o m7
status 1 "a fetch into a folder that another will use"
rm hub/fault
run tern fetch hf://datasets/org/data -o m7
status 0 "another fetch into the folder ends well"
err_has 'of other fetches, for their next call'
: >hub.log
run tern fetch hf://org/model -o m7
status 0 "the first fetch goes on"
is "$(hub_asked 'GET .*00001.safetensors')" 0 "the end of another fetch leaves what the first had"
[ ! -e m7/.tern-fetch ]; ok $? "the folder of what waits goes with the last fetch"

# ---- refused
run tern fetch hf://org/model --sha256 "$(printf '0%.0s' {1..64})" -o m8
status 2 "--sha256 for a hub's folder"
err_has 'not for a hub'
mkdir -p hub/org/names
for name in $'a\xc2\x9b31m' $'a\x7fb' $'a\e[31m' $'\xe2\x80\xaea'; do
    rm -f hub/org/names/*
    echo x >"hub/org/names/$name"
    run tern fetch hf://org/names -o m8
    status 2 "a name with control characters ($(printf %q "$name"))"
    LC_ALL=C grep -q $'\e\|\xc2[\x80-\x9f]\|\x7f' err; is $? 1 "the message shows no control characters"
done
[ ! -e m8 ]; ok $? "refusals leave no folder"

# ---- killed and gone on with
echo '500 100000 localhost.*00002|/org/model/model-00002' >hub/fault
tern fetch hf://org/model -o m6 2>err >out &
pid=$!
until_true grep -q '00002.*range=' hub.log
kill -9 $pid; wait $pid 2>/dev/null
[ ! -e m6/config.json ]; ok $? "kill -9: no file has its name"
: >hub.log
tern fetch hf://org/model -o m6 2>err2 >out2 &
pid=$!
until_true grep -q '00002.*range=' hub.log
run tern fetch hf://org/model -o m6
status 75 "two at once into one folder: the second says so"
err_has 'another process is fetching into it'
kill -INT $pid; wait $pid
is $? 1 "an interrupted fetch fails"
has err2 'goes on where it stopped' "an interrupted fetch says how to go on"
rm hub/fault
run tern fetch hf://org/model -o m6
status 0 "the same command goes on after kill -9"
diff -r m m6 >/dev/null; ok $? "the folder of three tries is right"

# ---- object storage, one file
head -c 12000000 /dev/urandom >large
"$TOOLS/store-tool" put s3://b/p/large large >/dev/null
echo small | "$TOOLS/store-tool" put s3://b/p/d/small
run tern fetch s3://b/p/ -o o
status 0
cmp -s o/large large && is "$(cat o/d/small)" small "objects below a prefix"
run tern fetch s3://b/p/large -o one
status 0
is "$(cat out)" one/large "the file's path is printed"
cmp -s one/large large; ok $? "one object of a bucket is fetched whole"
fault flip=1000 'match=GET.*small'
TERN_STORE_DEADLINE=1 run tern fetch s3://b/p/ -o o2
[ "$rc" != 0 ] && [ ! -e o2/large ]; ok $? "an object that comes wrong: nothing gets a name"
fault_none
"$TOOLS/store-tool" put s3://plain/file.bin <large
sum=$(sha256sum large | cut -d' ' -f1)
run tern fetch "$S3/plain/file.bin?token=secret" --sha256 "$sum" -o w
status 0
cmp -s w/file.bin large; ok $? "one file is fetched with its digest"
! grep -q secret out err; ok $? "a URL's query is not shown"
run tern fetch "$S3/plain/file.bin" --sha256 "$(printf '0%.0s' {1..64})" -o w2
status 1
[ ! -e w2/file.bin ]; ok $? "a file with another digest is not left there"
# Two files of one length and no digest: what waits of the first is none of the second's.
head -c 9000000 /dev/urandom >first; head -c 9000000 /dev/urandom >second
# Of a file of the web no digest is known: it is compared when it is there.
mkdir web; run tern fetch "$S3/plain/file.bin" -o web; status 0
run tern fetch "$S3/plain/file.bin" -o web; status 0 "a file of the web that is there already"
size=$(stat -c %s web/file.bin); head -c "$size" /dev/zero >web/file.bin
run tern fetch "$S3/plain/file.bin" -o web; status 2 "a file of the same length that is another"; err_has "web/file.bin: is there, and is not the file of the source"
head -c "$size" /dev/zero | cmp -s - web/file.bin; ok $? "the file that was there stays as it was"
: >"$WORK/s3.log"
run tern fetch "$S3/plain/file.bin" -o web --replace; status 0
cmp -s web/file.bin large; ok $? "--replace takes its place"
is "$(asked 'GET /plain/file.bin')" 0 "what was fetched before the refusal is not fetched again"
for f in first second; do "$TOOLS/store-tool" put s3://plain/$f/same.bin <$f; done
fault cut=1000 'match=GET.*plain/first'
TERN_STORE_DEADLINE=0.5 run tern fetch "$S3/plain/first/same.bin" -o mixed
[ "$rc" != 0 ] && [ ! -e mixed/same.bin ]; ok $? "a body that is always cut: no file"
fault_none
run tern fetch "$S3/plain/second/same.bin" -o mixed
status 0 "a file of the same name and length from another URL"
cmp -s mixed/same.bin second; ok $? "nothing of the first URL's file is in it"
for url in hf://model hf://a/b/c hf://../x hf://a/b@ ftp://h/x file:///etc/passwd; do
    run tern fetch "$url"
    status 2
done
tap_done

#!/bin/bash
# Token sets at s3:// and http://: pushed whole or not at all, gone on with, read through the cache,
# right whatever the server does.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/s3.sh"
T=$ROOT/tests/golden/spm-bpe-800.model

python3 - >tenth.jsonl <<'END'
import json, random
r = random.Random(7)
words = "we the people of united states in order to form a more perfect union establish justice".split()
for i in range(6000):
    print(json.dumps({"text": " ".join(r.choice(words) for _ in range(r.randint(50, 100)))}))
END
for i in 1 2 3 4 5 6 7 8 9 10; do cat tenth.jsonl; done >a.jsonl
tern data build -t "$T" -o set.tds a.jsonl 2>err || cat err
bytes=$(stat -c %s set.tds)
[ "$bytes" -gt 11000000 ]; ok $? "the set has several parts ($bytes bytes)"

# ---- push
run tern data push set.tds s3://corpora/deep/set.tds --part 5M
status 0
err_has 's3://corpora/deep/set.tds'
! grep -rq 'secret' out err; ok $? "push shows no secret"
is "$(tern data info set.tds | sed 1d | sha256sum)" "$(tern data info s3://corpora/deep/set.tds | sed 1d | sha256sum)" \
    "info of the object is that of the file"
run tern data verify s3://corpora/deep/set.tds
status 0
out_has 's3://corpora/deep/set.tds: ok'
run tern data head s3://corpora/deep/set.tds -t "$T" -n 2
status 0
tern data head set.tds -t "$T" -n 2 | cmp -s - out; ok $? "head of the object is that of the file"
head -c 1000 set.tds >bad.tds
run tern data push bad.tds s3://corpora/bad.tds
status 2
is "$(asked 'bad.tds')" 0 "a damaged set is not sent"
run tern data push set.tds /tmp/x
status 2
run tern data push set.tds https://example.org/x
status 2
err_has 's3://BUCKET/KEY'

# ---- a push that is killed: nothing is to be seen, and the rest is sent later
fault stall=1000 'match=PUT.*killed.*partNumber=3'
tern data push set.tds s3://corpora/killed.tds --part 5M --threads 1 2>err &
pid=$!
until_true grep -q '^PUT.*killed.*partNumber=3' s3.log
kill -9 $pid; wait $pid 2>/dev/null
fault_none
run tern data info s3://corpora/killed.tds
status 2 "kill -9 in a push: no such object"
err_has 'there is no such object'
: >s3.log
run tern data push set.tds s3://corpora/killed.tds --part 5M --threads 1
status 0
is "$(asked '^PUT.*partNumber=[12]&')" 0 "parts that were there are not sent again"
run tern data verify s3://corpora/killed.tds
status 0 "the object of two tries is whole"

# ---- a push that is interrupted, or whose server never recovers
fault 503=100000 'match=PUT.*partNumber=2'
tern data push set.tds s3://corpora/stopped.tds --part 5M 2>err &
pid=$!
until_true grep -q '^PUT.*stopped.*partNumber=2' s3.log
kill -INT $pid; wait $pid
is $? 1 "an interrupted push fails"
has err 'interrupted' "an interrupted push says so"
has err 'goes on with them' "an interrupted push says how to go on"
TERN_STORE_DEADLINE=0.3 run tern data push set.tds s3://corpora/stopped.tds --part 5M
status 75 "a server that is down for long: try again later"
err_has TERN_STORE_DEADLINE
fault_none
fault 500=2 reset=2 flipped=2 slowdown=1 lost=1 'match=PUT'
run tern data push set.tds s3://corpora/stopped.tds --part 5M
status 0 "a push through faults"
fault_none
run tern data verify s3://corpora/stopped.tds
status 0 "what was pushed through faults is whole"

# ---- reading through faults; wrong bytes are noticed by the set's own digests
rm -rf cache
: >s3.log
fault 500=3 reset=3 cut=3 flip=3 range=2 slowdown=1 'match=GET /corpora/deep'
run tern data verify s3://corpora/deep/set.tds
status 0 "a set is read through faults"
blocks=$(((bytes - 4096 + 1048575) / 1048576 + 1))
[ "$(asked '^GET /corpora/deep/set.tds')" -ge $((blocks + 15)) ]; ok $? "blocks that were wrong are asked for again"
fault_none
: >s3.log
run tern data verify s3://corpora/deep/set.tds
status 0
is "$(asked '^GET /corpora/deep/set.tds')" 0 "a set that was read lies in the cache"

# ---- the cache
for f in cache/blocks/*/*; do printf X | dd of="$f" bs=1 seek=3000 conv=notrunc 2>/dev/null; done
run tern data verify s3://corpora/deep/set.tds
status 0 "a cache whose every block is damaged"
[ "$(asked '^GET /corpora/deep/set.tds')" -gt 10 ]; ok $? "damaged blocks are fetched again"
tern data verify s3://corpora/deep/set.tds >/dev/null & tern data verify s3://corpora/deep/set.tds >/dev/null & wait %2 %3
ok $? "two processes share a cache"
export TERN_CACHE_BYTES=3M
run tern data verify s3://corpora/deep/set.tds
run tern data verify s3://corpora/deep/set.tds
status 0 "a cache that is smaller than the set"
[ "$(du -sb cache/blocks | cut -f1)" -lt 5000000 ]; ok $? "the cache keeps to its limit"
TERN_CACHE_BYTES=0 TERN_CACHE=$WORK/none run tern data verify s3://corpora/deep/set.tds
status 0 "a verification without a cache ends well"
[ ! -e none ]; ok $? "no cache leaves nothing"
unset TERN_CACHE_BYTES
: >file
TERN_CACHE=$WORK/file/x run tern data verify s3://corpora/deep/set.tds
status 0 "a folder of the cache that cannot be made"
err_has 'nothing is cached'

# ---- another object in its place, other answers
tern data push set.tds s3://corpora/moved.tds 2>/dev/null
head -n 5 a.jsonl >b.jsonl && tern data build -t "$T" -o small.tds b.jsonl 2>/dev/null
run tern data push small.tds s3://corpora/moved.tds
status 0 "a set takes the place of another"
is "$(tern data info s3://corpora/moved.tds | grep documents)" "documents    5" "the new set is read, not the cached one"
run tern data info s3://nowhere/set.tds
status 2
err_has 's3://nowhere/set.tds: there is no such object'
AWS_SECRET_ACCESS_KEY=wrong-secret run tern data info s3://corpora/moved.tds
status 2
! grep -q 'wrong-secret' err; ok $? "a refused secret is not shown"

# ---- one wrong bit on the way, where no digest of a block covers it
tern data push small.tds s3://corpora/flip.tds 2>/dev/null
flips() { # WHERE FAULT...
    rm -rf cache; fault "${@:2}" 'match=GET /corpora/flip'
    run tern data verify s3://corpora/flip.tds; status 0 "a wrong bit in $1 is read again"
    fault_none
}
flips "the header" flip=1 at=20
flips "the list of digests" flip=1 after=1 at=-3
flips "the list of digests, twice" flip=2 after=1 at=-3
"$TOOLS/store-tool" parts s3://corpora/parts <b.jsonl
fault flip=1 'match=GET /corpora/parts'
"$TOOLS/store-tool" get s3://corpora/parts 2>err | cmp -s - b.jsonl; ok $? "an object whose ETag is no digest: a wrong bit is found by its checksum"
fault_none

# ---- http://, read alone
tern data push small.tds s3://plain/small.tds 2>/dev/null
run tern data verify "$S3/plain/small.tds?X-Amz-Signature=secret-query"
status 0
! grep -q 'secret-query' out err; ok $? "a signed URL's query is not shown"
run tern data verify http://example.org/x.tds
status 2
err_has 'Use https://'
run tern data verify "https://user:secret-word@example.org/x.tds"
status 2
! grep -q 'secret-word' out err; ok $? "a password in a URL is not shown"

# ---- texts
gzip -kc a.jsonl >c.jsonl.gz
"$TOOLS/store-tool" put s3://corpora/c.jsonl.gz c.jsonl.gz >/dev/null
"$TOOLS/store-tool" put s3://plain/b.jsonl <b.jsonl
fault 503=2 cut=2 'match=GET /corpora/c.jsonl'
run tern data encode -t "$T" s3://corpora/c.jsonl.gz "$S3/plain/b.jsonl"
status 0 "texts at URLs, compressed ones too"
mv out urls
tern data encode -t "$T" c.jsonl.gz b.jsonl | cmp -s - urls; ok $? "texts at URLs have the ids of texts on disk"
fault_none
run tern data build -t "$T" -o texts.tds "$S3/plain/b.jsonl"
status 0 "a set is built from a text at a URL"
run tern data build -t "$T" -o signed.tds "$S3/plain/b.jsonl?X-Amz-Signature=secret-query"
status 2 "a text at a signed URL is refused"
[ ! -e signed.tds ] && ! grep -q secret-query out err; ok $? "a text's signed URL is not shown"
run tern data build -t "$T" -o none.tds s3://corpora/none.jsonl
status 2
err_has 's3://corpora/none.jsonl: there is no such object'
[ ! -e none.tds ]; ok $? "a text that is not there: no set"

# ---- build to object storage
run env TMPDIR="$WORK" tern data build -t "$T" -o s3://corpora/built.tds b.jsonl
status 0 "a set is built to s3://"
run tern data verify s3://corpora/built.tds
status 0 "the set that was built to s3:// is whole"
is "$(ls -d tern-build-* 2>/dev/null)" "" "no copy of a set built to s3:// stays here"
fault 403=1 'match=PUT /corpora/denied'
run env TMPDIR="$WORK" tern data build -t "$T" -o s3://corpora/denied.tds b.jsonl
status 2 "a set whose bucket refuses it"
err_has 'goes on'
[ -s tern-build-*/denied.tds ]; ok $? "the set that was not pushed stays here"
fault_none

# ---- an object that is there: only a token set gives way, as a file does
echo mine >notes.txt; : >empty
for o in notes.txt b.jsonl empty; do "$TOOLS/store-tool" put s3://kept/$o <$o >/dev/null; done
kept() { # NAME WHAT
    "$TOOLS/store-tool" get s3://kept/$1 2>/dev/null | cmp -s - $1; ok $? "$2: the object is as it was"
    [ "$(asked "^PUT /kept/|^POST /kept/")" = 0 ]; ok $? "$2: nothing was sent"
    is "$(ls -d tern-build-* 2>/dev/null | grep -v "$left")" "" "$2: no set is built"
}
left=$(ls -d tern-build-*); : >s3.log
for o in notes.txt b.jsonl empty; do
    run env TMPDIR="$WORK" tern data build -t "$T" -o s3://kept/$o b.jsonl
    status 2 "data build: -o of an object that is $o"; one_line
    err_has "s3://kept/$o: exists and is not a token set; it is left as it is" "data build: says why $o stays"; kept $o "data build onto $o"
    run tern data push small.tds s3://kept/$o
    status 2 "data push: onto an object that is $o"; one_line
    err_has "s3://kept/$o: exists and is not a token set; it is left as it is" "data push: says why $o stays"; kept $o "data push onto $o"
done
run env TMPDIR="$WORK" tern data build -t "$T" -o s3://kept/b.jsonl s3://kept/b.jsonl
status 2 "data build: -o of its own input in a bucket"; one_line; err_has "-o s3://kept/b.jsonl: is an input itself"; kept b.jsonl "data build onto its input"
cp b.jsonl b.jsonl.copy; "$TOOLS/store-tool" put s3://kept/folder/small.tds <notes.txt >/dev/null
run tern data push small.tds s3://kept/folder/; status 2 "data push: into a folder whose object of that name is no set"; err_has 's3://kept/folder/small.tds: exists and is not a token set'
run env TMPDIR="$WORK" tern data build -t "$T" -o s3://corpora/built.tds b.jsonl b.jsonl.copy; status 0 "a set that is built takes the place of another in a bucket"
is "$(tern data info s3://corpora/built.tds | grep documents)" "documents    10" "the object of an earlier build is the new set"
fault 403=1 'match=HEAD /corpora/unseen'
run tern data push small.tds s3://corpora/unseen.tds; status 2 "an object that may not be looked at is not replaced"; err_has 'do not allow it'; one_line
fault_none
tap_done

#!/bin/bash
# The host that S3 requests go to: BUCKET.HOST or, by addressing_style and for some buckets, HOST/BUCKET.
# The server is a proxy here, so that names need no DNS.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/s3.sh"
T=$ROOT/tests/golden/spm-bpe-800.model
python3 -c 'import json, random
r = random.Random(7)
for i in range(60000):
    print(json.dumps({"text": " ".join(r.choice("we the people of united states".split()) for _ in range(50))}))' >a.jsonl
tern data build -t "$T" -o set.tds a.jsonl 2>err || cat err
[ "$(stat -c %s set.tds)" -gt 5242880 ]; ok $? "the set has several parts"
mkdir -p "$HOME/.aws"
style() { printf '[default]\ns3 =\n  addressing_style = %s\n' "$1" >"$HOME/.aws/config"; }
hosts() { sed -n 's/.*host=//p' s3.log | sort -u | paste -sd' '; }

export http_proxy=$S3 AWS_ENDPOINT_URL=http://s3.test
style virtual
run tern data push set.tds "s3://corpora/deep/a set+1.tds" --part 5M; status 0 "tern pushes a set in several parts to BUCKET.HOST"
is "$(hosts)" "corpora.s3.test" "each request of a push goes to BUCKET.HOST"
[ "$(asked '^PUT /deep/a%20set%2B1.tds\?.*partNumber=')" -ge 2 ] && [ "$(asked '^[A-Z]* /corpora')" = 0 ]; ok $? "the path of a request to BUCKET.HOST has the key alone" || cat s3.log
fault 503=1 reset=1 'match=GET /deep'
run tern data verify "s3://corpora/deep/a set+1.tds"; status 0 "a set at BUCKET.HOST is read by ranges, and tried again"
fault_none
run tern data info s3://corpora/none.tds; status 2; err_has 'there is no such object' "an object that is not at BUCKET.HOST is an error in words"
: >s3.log
run tern data push set.tds s3://elsewhere/b.tds --part 5M; status 0 "a bucket of another region is found at BUCKET.HOST"
is "$(hosts)" "elsewhere.s3.test" "requests to another region go to BUCKET.HOST of the same endpoint"
: >s3.log
run tern data push set.tds s3://with.dot/a.tds --part 5M; status 0 "tern pushes a set to a bucket with a dot"
is "$(hosts) $(asked '^PUT /with.dot/a.tds')" "s3.test $(asked '^PUT')" "a bucket with a dot, which no certificate holds for, is in the path"
style path; : >s3.log
run env TERN_CACHE="$WORK/other" tern data verify "s3://corpora/deep/a set+1.tds"; status 0 "the same object is read with the bucket in the path"
is "$(hosts) $(asked '^GET /corpora/deep/a%20set%2B1.tds')" "s3.test $(asked '^GET')" "with addressing_style path the bucket is in the path"

# ---- AWS itself: the proxy is asked for its host, and refuses
unset AWS_ENDPOINT_URL http_proxy; export https_proxy=$S3
aws() { # BUCKET REGION STYLE HOST
    style "$3"; : >s3.log
    AWS_REGION=$2 tern data info "s3://$1/a.tds" >out 2>err </dev/null &
    local pid=$!
    until_true grep -q '^CONNECT' s3.log; kill $pid 2>/dev/null; wait $pid 2>/dev/null
    is "$(head -n 1 s3.log)" "CONNECT $4:443" "bucket $1 in $2, addressing_style $3: the host is $4"
}
aws corpora eu-west-3 auto corpora.s3.eu-west-3.amazonaws.com
aws corpora eu-west-3 path s3.eu-west-3.amazonaws.com
aws with.dot eu-west-3 virtual s3.eu-west-3.amazonaws.com
aws corpora cn-north-1 auto corpora.s3.cn-north-1.amazonaws.com.cn
tap_done

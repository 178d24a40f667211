#!/bin/bash
# Object storage beside other people's: botocore's signatures, and moto's S3, which checks ours.
. "$(dirname "$0")/../lib/tap.sh"
. "$ROOT/tests/lib/venv.sh"
venv moto-5.2 'boto3, moto.server, flask' 'moto[s3,server]==5.2.5' botocore==1.44.8 ||
    skip_all "no moto and botocore (PyPI)"
python="$VENV/bin/python -I"
tool=$TOOLS/store-tool
"$tool" head s3://b/x 2>&1 | grep -q 'built without' && skip_all "built without libcurl"
while read -r name; do unset "$name"; done < <(env | sed -n 's/^\(AWS_[A-Z0-9_]*\|[a-z]*_proxy\)=.*/\1/p')
export HOME=$WORK XDG_CACHE_HOME=$WORK AWS_EC2_METADATA_DISABLED=true

n=1000; long && n=20000
while IFS= read -r line; do
    case $line in
    ok*) ok 0 "${line#ok - }" ;;
    "not ok"*) ok 1 "${line#not ok - }" ;;
    *) echo "$line" ;;
    esac
done < <($python "$ROOT/tests/peers/store.py" sign "$tool" $n 2>&1 || echo "not ok - botocore ran to its end")

mkfifo hold
$python "$ROOT/tests/peers/store.py" serve port <hold >moto.out 2>&1 &
server=$!
exec 9>hold
moto_end() { kill $server; } 2>/dev/null
tap_cleanup=moto_end
for _ in $(seq 2400); do [ -e port ] || ! kill -0 $server 2>/dev/null || { sleep 0.05; continue; }; break; done
[ -e port ] || { tail -5 moto.out; ok 1 "moto's server begins"; tap_done; }
read -r port AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY <port
export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_ENDPOINT_URL_S3=http://127.0.0.1:$port AWS_REGION=us-east-1

head -c 300000 /dev/urandom >small
head -c 12000000 /dev/urandom >large
for key in plain 'a b+c%d&e' $'\xc3\xa9\xe2\x82\xac' 'star*~' deep/er/name; do
    "$tool" put "s3://corpora/k/$key" <small 2>err && "$tool" get "s3://corpora/k/$key" >got 2>>err && cmp -s small got
    ok $? "put and read: $key" || cat err
done
"$tool" list s3://corpora/k >list 2>err
is "$(cut -f2 list | sort | uniq -c | tr -s ' ')" " 5 300000" "the list has five objects"
"$tool" rm s3://corpora/k/plain && "$tool" head s3://corpora/k/plain >got
is "$(cat got)" none "a deleted object is gone"
"$tool" put s3://corpora/large large >pushed 2>err
ok $? "a file of three parts" || cat err
is "$(cut -d' ' -f1,2 pushed)" "12000000 12000000" "all bytes of the file were sent"
"$tool" get s3://corpora/large >got && cmp -s large got
ok $? "a file of three parts comes back"
"$tool" uploads s3://corpora/parts >got 2>err
ok $? "an upload by hand" || cat err
is "$(tr '\n' ';' <got)" "part 1: 5242880 bytes;part 2: 1000 bytes;found: yes;seen: 0;" "its parts are there, the object is not"
AWS_SECRET_ACCESS_KEY=wrong run "$tool" head s3://corpora/large
ok $((rc == 0)) "moto refuses a wrong secret"
run "$tool" get s3://nobucket/x
status 2
tap_done

"""What tests/peers/store.sh does in Python: botocore's signatures, moto's server.

store.py sign TOOL N       N random requests: the tool's signatures are botocore's
store.py serve PORT-FILE   moto's S3, which checks signatures; a user is made, whose keys go into
                           PORT-FILE; until standard input ends
"""
import datetime, hashlib, json, os, random, subprocess, sys, threading

os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")


def text(r, most):
    bits = ["a", "B", "7", "-", "_", ".", "~", "*", "'", "(", ")", "!", " ", "+", "%", "%20", "&", "=", "?", "#", "@", ":",
            ";", ",", "$", "[", "]", "\\", "|", "\"", "<", ">", "^", "`", "{", "}", "\u00e9", "\u20ac", "\U0001f600"]
    return "".join(r.choice(bits) for _ in range(r.randint(0, most)))


def request(r):
    path = "/" + "/".join(r.choice([text(r, 6), text(r, 6), "", ".", "..", "x"]) for _ in range(r.randint(0, 5)))
    query = [[r.choice(["uploads", "partNumber", "prefix", "a", "A", "B", "aa", "a-b", text(r, 4) or "z"]),
              r.choice(["", "1", text(r, 8)])] for _ in range(r.randint(0, 5))]
    headers = [[n, v] for n, v in [["Range", "bytes=0-%d" % r.randint(0, 9)], ["x-amz-meta-note", "  two   words  "],
                                   ["Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg=="], ["x-amz-storage-class", "STANDARD"],
                                   ["If-Match", '"abc"']] if r.random() < 0.4]
    return {"method": r.choice(["GET", "PUT", "POST", "HEAD", "DELETE"]),
            "host": r.choice(["bucket.s3.us-east-1.amazonaws.com", "127.0.0.1:9000", "s3.example.org"]),
            "path": path, "query": query, "headers": headers, "payload": hashlib.sha256(text(r, 9).encode()).hexdigest(),
            "access": "AKID%d" % r.randint(0, 99), "secret": "s3cr/t+%d" % r.randint(0, 10**12),
            "token": "to/ken+==" if r.random() < 0.5 else None,
            "region": r.choice(["us-east-1", "eu-west-3", "cn-north-1"]),
            "time": "2026%02d%02dT%02d0000Z" % (r.randint(1, 12), r.randint(1, 28), r.randint(0, 23))}


def theirs(q):
    """botocore's Authorization: the URL is encoded by its own rules, the query as it stands."""
    import botocore.auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
    from urllib.parse import quote

    when = datetime.datetime.strptime(q["time"], "%Y%m%dT%H%M%SZ")
    for name in ("get_current_datetime",):
        if hasattr(botocore.auth, name):
            setattr(botocore.auth, name, lambda *a, **k: when)
    url = "http://" + q["host"] + quote(q["path"], safe="/-_.~")
    if q["query"]:
        url += "?" + "&".join("%s=%s" % (quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in q["query"])
    ask = AWSRequest(method=q["method"], url=url, headers=dict(q["headers"]))
    ask.context["timestamp"] = q["time"]
    auth = botocore.auth.S3SigV4Auth(Credentials(q["access"], q["secret"], q["token"]), "s3", q["region"])
    auth.payload = lambda request: q["payload"]
    ask.headers["X-Amz-Content-SHA256"] = q["payload"]
    auth.add_auth(ask)
    return ask.headers["Authorization"], ask.headers["X-Amz-Date"]


def sign(tool, n):
    r = random.Random(20130524)
    asked, wanted = [], []
    while len(asked) < n:
        q = request(r)
        authorization, stamp = theirs(q)
        if stamp != q["time"]:  # a botocore that takes the time elsewhere
            q["time"] = stamp
        mine = dict(q)
        mine["headers"] = q["headers"] + [["x-amz-content-sha256", q["payload"]], ["X-Amz-Date", q["time"]]]
        if q["token"]:
            mine["headers"].append(["X-Amz-Security-Token", q["token"]])
        asked.append(json.dumps(mine))
        wanted.append(authorization)
    out = subprocess.run([tool, "sign"], input="\n".join(asked) + "\n", text=True, capture_output=True).stdout.splitlines()
    bad = [i for i in range(n) if i >= len(out) or out[i].split("\t")[0] != wanted[i]]
    for i in bad[:3]:
        print("# %s\n# ours   %s\n# theirs %s" % (asked[i], out[i] if i < len(out) else None, wanted[i]))
    print("%sok - botocore signs %d random requests as we do (%d differ)" % ("not " if bad else "", n, len(bad)))


def serve(port_file):
    os.environ.setdefault("MOTO_S3_DEFAULT_MAX_KEYS", "1000")
    # From the fourth request on signatures are checked: the first three make the user.
    os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "3"
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    at = "http://127.0.0.1:%d" % port
    first = dict(endpoint_url=at, aws_access_key_id="first", aws_secret_access_key="first", region_name="us-east-1")
    iam = boto3.client("iam", **first)
    iam.create_user(UserName="tern")
    policy = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
    iam.put_user_policy(UserName="tern", PolicyName="all", PolicyDocument=policy)
    key = iam.create_access_key(UserName="tern")["AccessKey"]
    s3 = boto3.client("s3", endpoint_url=at, aws_access_key_id=key["AccessKeyId"], region_name="us-east-1",
                      aws_secret_access_key=key["SecretAccessKey"])
    s3.create_bucket(Bucket="corpora")
    with open(port_file + ".new", "w") as f:
        print(port, key["AccessKeyId"], key["SecretAccessKey"], file=f)
    os.rename(port_file + ".new", port_file)
    sys.stdin.read()
    server.stop()


if sys.argv[1] == "sign":
    sign(sys.argv[2], int(sys.argv[3]))
else:
    serve(sys.argv[2])

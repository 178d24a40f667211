#!/usr/bin/env python3
"""An S3 server on loopback for tests: checks signatures, and fails as the test says.

s3.py PORT-FILE LOG-FILE [--tls CERT]   serves until its standard input ends

Objects live in memory.  Buckets are there when first used; objects of the bucket "elsewhere" are in
eu-west-1.  Access key AKIDTEST, secret "secret+key/of=tests"; a session token, where there is one, is
"token/of+tests".  Also here: an instance's metadata (IMDSv2) and a container's credentials.

GET /_fault?KIND=N[&match=REGEX]   the next N requests whose "METHOD /path?query" has the regex fail:
  500 503 429 403 404  that status        slowdown  503 with S3's code
  reset     the connection is reset       cut       half of the body, then the end
  flip      a byte of the body is wrong   range     another range than was asked for
  stall     nothing more comes            drip      one byte each 50 ms
  headers   headers without an end        endless   a body without an end
  bomb      XML with entities             skewed    RequestTimeTooSkewed, once an hour's skew is seen
  lost      done, and then the connection is reset    expired  ExpiredToken
  to=URL    is where `redirect` leads     flipped   a byte of what is sent to the server is wrong
  say       200 and text=TEXT             nul       a header with a NUL in its name
  moved     another region each time      skew      RequestTimeTooSkewed, whatever the time
&at=BYTE of the body is the wrong one of `flip`, from its end where negative (else the middle);
&after=N: the first N such requests do not fail.
Requests to NAME.s3.test are of the bucket NAME, those to s3.test have it in their path: the server is
a proxy to both (http_proxy), and logs where else it would be one (CONNECT).
Objects of the bucket "whole" are sent whole, whatever the range; /plain/query has the query for its
contents, and one ETag for all of them.
GET /_clear  no faults any more;  GET /_hour?N  the server's clock is N hours ahead
"""
import base64, datetime, hashlib, hmac, http.server, json, os, re, socket, struct, sys, threading, time
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

ACCESS, SECRET, TOKEN = "AKIDTEST", "secret+key/of=tests", "token/of+tests"
objects, uploads, faults = {}, {}, []
lock = threading.Lock()
state = {"id": 0, "hours": 0, "to": "", "keys": 0, "text": ""}


def now():
    return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=state["hours"])


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def etag(data):
    return '"%s"' % hashlib.md5(data).hexdigest()


def crc32c(data, table=[]):
    if not table:
        for i in range(256):
            c = i
            for _ in range(8):
                c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
            table.append(c)
    crc = 0xFFFFFFFF
    for b in data:
        crc = crc >> 8 ^ table[(crc ^ b) & 255]
    return crc ^ 0xFFFFFFFF


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    at = None

    def log_message(self, *args):
        pass

    def date_time_string(self, timestamp=None):
        return now().strftime("%a, %d %b %Y %H:%M:%S GMT")

    # ---- answers

    def answer(self, status, body=b"", headers=()):
        kind = self.fault
        if kind == "lost":
            return self.reset()
        if isinstance(body, str):
            body = body.encode()
        if kind == "flip" and body:
            at = len(body) // 2 if self.at is None else self.at % len(body)
            body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1:]
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(n.lower() == "content-length" for n, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.send_header("x-amz-request-id", "1")
        if kind == "nul":
            self.send_header("x\0etag", "of a NUL")
        self.end_headers()
        if self.command == "HEAD":
            return
        if kind == "cut":
            self.wfile.write(body[:len(body) // 2])
            self.close_connection = True
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        elif kind == "stall":
            self.wfile.write(body[:1])
            self.wfile.flush()
            time.sleep(30)
            self.close_connection = True
        elif kind == "drip":
            for i in range(len(body)):
                self.wfile.write(body[i:i + 1])
                self.wfile.flush()
                time.sleep(0.05)
        else:
            self.wfile.write(body)

    def error(self, status, code, more="", headers=()):
        self.answer(status, "<?xml version=\"1.0\"?>\n<Error><Code>%s</Code><Message>m</Message>%s</Error>" % (code, more),
                    headers)

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()
        self.wfile = open("/dev/null", "wb")

    # ---- faults

    def take_fault(self):
        with lock:
            for f in faults:
                if f["n"] > 0 and re.search(f["match"], "%s %s" % (self.command, self.path)):
                    if f["after"] > 0:
                        f["after"] -= 1
                        continue
                    f["n"] -= 1
                    self.at = f["at"]
                    return f["kind"]

    def fail(self, kind):
        if kind == "reset":
            self.reset()
        elif kind == "slowdown":
            self.error(503, "SlowDown")
        elif kind == "say":
            self.answer(200, state["text"])
        elif kind == "moved":
            state["id"] += 1
            self.error(301, "PermanentRedirect", "", [("x-amz-bucket-region", "moved-%d" % state["id"])])
        elif kind == "skew":
            self.error(403, "RequestTimeTooSkewed")
        elif kind == "expired":
            state["keys"] += 1
            self.error(400, "ExpiredToken")
        elif kind == "redirect":
            self.answer(302, b"", [("Location", state["to"])])
        elif kind == "headers":
            try:
                self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                for i in range(1 << 20):
                    self.wfile.write(b"X-%d: %s\r\n" % (i, b"a" * 1000))
            except OSError:
                pass
            self.close_connection = True
        elif kind == "endless":
            try:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nETag: \"e\"\r\nConnection: close\r\n\r\n")
                while True:
                    self.wfile.write(b"<a>" * 10000)
            except OSError:
                pass
            self.close_connection = True
        elif kind == "bomb":
            self.answer(200, '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;">]>'
                             "<ListBucketResult><Contents><Key>&c;</Key></Contents></ListBucketResult>")
        elif kind.isdigit():
            self.error(int(kind), {"503": "ServiceUnavailable", "403": "AccessDenied"}.get(kind, "InternalError"))
        else:
            return False
        return True

    # ---- signatures, written apart from the product's

    def signed(self, bucket, path, query, body):
        m = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, "
                         r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})", self.headers.get("Authorization", ""))
        if not m:
            return self.error(403, "AccessDenied")
        access, day, region, names, signature = m.groups()
        if access != ACCESS:
            return self.error(403, "InvalidAccessKeyId")
        stamp = self.headers["x-amz-date"]
        seen = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
        if abs((now() - seen).total_seconds()) > 900:
            return self.error(403, "RequestTimeTooSkewed")
        token = self.headers.get("x-amz-security-token")
        if token not in (None, TOKEN):
            return self.error(400, "InvalidToken")
        names = names.split(";")
        if not {"host", "x-amz-date", "x-amz-content-sha256"} <= set(names):
            return self.error(403, "AccessDenied")
        payload = hashlib.sha256(body).hexdigest()
        if self.headers["x-amz-content-sha256"] != payload:
            return self.error(400, "XAmzContentSHA256Mismatch")
        pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in query)
        canonical = "\n".join([self.command, quote(unquote(path), safe="/-_.~"), "&".join("%s=%s" % p for p in pairs)] +
                              ["%s:%s" % (n, " ".join(self.headers[n].split())) for n in names] +
                              ["", ";".join(names), payload])
        scope = "%s/%s/s3/aws4_request" % (day, region)
        key = mac(mac(mac(mac(("AWS4" + SECRET).encode(), day), region), "s3"), "aws4_request")
        text = "AWS4-HMAC-SHA256\n%s\n%s\n%s" % (stamp, scope, hashlib.sha256(canonical.encode()).hexdigest())
        if mac(key, text).hex() != signature:
            return self.error(403, "SignatureDoesNotMatch", escape("<StringToSign>%s</StringToSign>" % text))
        home = "eu-west-1" if bucket == "elsewhere" else region
        if region != home:
            return self.error(301, "PermanentRedirect", "", [("x-amz-bucket-region", home)])
        return True

    # ---- requests

    def handle_any(self):
        self.fault = None
        host = self.headers.get("Host", "")
        if self.path.startswith("http://" + host + "/"):
            self.path = self.path[7 + len(host):]
        url = urlsplit(self.path)
        query = parse_qsl(url.query, keep_blank_values=True)
        with lock:
            log.write("%s %s range=%s token=%s auth=%s host=%s\n" % (
                self.command, self.path, self.headers.get("Range", ""), "yes" if self.headers.get("x-amz-security-token")
                else "no", (self.headers.get("Authorization") or "none").split(" ")[0], host))
            log.flush()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if url.path in ("/_fault", "/_clear", "/_hour"):
            return self.control(url.path, dict(query), url.query)
        self.fault = self.take_fault()
        if self.fault and self.fail(self.fault):
            return
        if self.fault == "flipped" and body:
            body = bytes([body[0] ^ 1]) + body[1:]
            self.headers.replace_header("x-amz-content-sha256", hashlib.sha256(body).hexdigest())
        elif url.path.startswith("/latest/") or url.path == "/container":
            return self.metadata(url.path)
        if url.path == "/plain/query":
            return self.get((url.query * 1000).encode(), '"one"')
        bucket = host[:-len(".s3.test")] if host.endswith(".s3.test") else ""
        if bucket:
            key = unquote(url.path)[1:]
        else:
            _, bucket, key = (unquote(url.path) + "/").split("/", 2)
            key = key[:-1]
        if url.path.startswith("/plain/"):
            pass
        elif self.fault != "flipped" and self.signed(bucket, url.path, query, body) is not True:
            return
        self.serve(bucket, key, dict(query), body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    def do_CONNECT(self):
        with lock:
            log.write("CONNECT %s\n" % self.path)
            log.flush()
        self.send_error(403)

    def control(self, path, query, raw):
        if path == "/_clear":
            faults.clear()
        elif path == "/_hour":
            state["hours"] = int(raw)
        else:
            state["to"] = query.pop("to", state["to"])
            state["text"] = query.pop("text", state["text"])
            match, after = query.pop("match", "."), int(query.pop("after", 0))
            at = int(query.pop("at")) if "at" in query else None
            for kind, n in query.items():
                faults.append({"kind": kind, "n": int(n), "match": match, "after": after, "at": at})
        self.answer(200)

    def metadata(self, path):
        life = 3600 if state["keys"] else 100  # the first ones are about to expire
        keys = json.dumps({"AccessKeyId": ACCESS, "SecretAccessKey": SECRET, "Token": TOKEN, "Code": "Success",
                           "Expiration": (now() + datetime.timedelta(seconds=life)).strftime("%Y-%m-%dT%H:%M:%SZ")})
        if path == "/container":
            good = self.headers.get("Authorization") == "of-container"
            return self.answer(200, keys) if good else self.answer(403)
        if path == "/latest/api/token":
            good = self.command == "PUT" and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            return self.answer(200, "imds-token") if good else self.answer(400)
        if self.headers.get("X-aws-ec2-metadata-token") != "imds-token":
            return self.answer(401)
        if path == "/latest/meta-data/iam/security-credentials/":
            return self.answer(200, "a-role")
        if path == "/latest/meta-data/iam/security-credentials/a-role":
            state["keys"] += 1
            return self.answer(200, keys)
        return self.answer(404)

    def serve(self, bucket, key, q, body):
        at = (bucket, key)
        if self.command in ("PUT", "POST") and "Content-MD5" in self.headers and self.headers["Content-MD5"] != \
                base64.b64encode(hashlib.md5(body).digest()).decode():
            return self.error(400, "BadDigest")
        if self.command == "GET" and not key and "uploads" in q:
            items = "".join("<Upload><Key>%s</Key><UploadId>%s</UploadId><Initiated>%s</Initiated></Upload>" % (
                escape(u["at"][1]), i, u["time"]) for i, u in uploads.items()
                if u["at"][0] == bucket and u["at"][1].startswith(q.get("prefix", "")))
            return self.answer(200, "<ListMultipartUploadsResult>%s</ListMultipartUploadsResult>" % items)
        if self.command == "GET" and not key:
            return self.list(bucket, q)
        if self.command == "POST" and "uploads" in q:
            with lock:
                state["id"] += 1
                name = "up+load/%d=" % state["id"]
                uploads[name] = {"at": at, "parts": {}, "time": now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
            return self.answer(200, "<?xml version='1.0'?><InitiateMultipartUploadResult xmlns='http://x/'>"
                                    "<UploadId>%s</UploadId></InitiateMultipartUploadResult>" % name)
        if "uploadId" in q:
            return self.upload(at, q, body)
        if self.command == "PUT":
            with lock:
                objects[at] = (body, etag(body))
            return self.answer(200, b"", [("ETag", etag(body))])
        if self.command == "DELETE":
            objects.pop(at, None)
            return self.answer(204, b"", [("Content-Length", "0")])
        if at not in objects:
            return self.error(404, "NoSuchKey")
        self.get(*objects[at])

    def get(self, data, tag):
        if self.headers.get("If-Match", tag) != tag:
            return self.error(412, "PreconditionFailed")
        headers = [("ETag", tag), ("x-amz-version-id", "v1")]
        if len(data) <= 1 << 16:
            headers.append(("x-amz-checksum-crc32c", base64.b64encode(struct.pack(">I", crc32c(data))).decode()))
        if self.command == "HEAD":
            return self.answer(200, b"", headers + [("Content-Length", str(len(data)))])
        m = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not m or self.path.startswith("/whole/"):
            return self.answer(200, data, headers)
        first, last = int(m[1]), min(int(m[2]), len(data) - 1)
        if first >= len(data):
            return self.error(416, "InvalidRange")
        if self.fault == "range":
            first, last = first + 1, last
        self.answer(206, data[first:last + 1], headers + [("Content-Range", "bytes %d-%d/%d" % (first, last, len(data)))])

    def list(self, bucket, q):
        prefix, start = q.get("prefix", ""), q.get("continuation-token", "")
        names = sorted((k for b, k in objects if b == bucket and k.startswith(prefix) and k > start),
                       key=lambda k: k.encode())
        page = names[:3]
        body = "".join("<Contents><Key>%s</Key><LastModified>x</LastModified><ETag>%s</ETag><Size>%d</Size></Contents>" % (
            quote(k, safe="/"), objects[bucket, k][1].replace('"', "&quot;"), len(objects[bucket, k][0])) for k in page)
        more = len(names) > len(page)
        self.answer(200, '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
                         "<Name>%s</Name><Prefix/><IsTruncated>%s</IsTruncated>%s%s</ListBucketResult>" % (
                             bucket, str(more).lower(), body,
                             "<NextContinuationToken>%s</NextContinuationToken>" % escape(page[-1]) if more else ""))

    def upload(self, at, q, body):
        up = uploads.get(q["uploadId"])
        if not up or up["at"] != at:
            return self.error(404, "NoSuchUpload")
        if self.command == "PUT":
            up["parts"][int(q["partNumber"])] = (body, etag(body))
            return self.answer(200, b"", [("ETag", etag(body))])
        if self.command == "DELETE":
            uploads.pop(q["uploadId"])
            return self.answer(204, b"", [("Content-Length", "0")])
        if self.command == "GET":
            after = int(q.get("part-number-marker", 0))
            numbers = sorted(n for n in up["parts"] if n > after)
            page = numbers[:2]
            return self.answer(200, "<ListPartsResult><IsTruncated>%s</IsTruncated>%s</ListPartsResult>" % (
                str(len(numbers) > 2).lower(), "".join("<Part><PartNumber>%d</PartNumber><ETag>%s</ETag><Size>%d</Size></Part>"
                % (n, escape(up["parts"][n][1]), len(up["parts"][n][0])) for n in page)))
        asked = re.findall(r"<PartNumber>(\d+)</PartNumber><ETag>&quot;(\w+)&quot;</ETag>", body.decode())
        if any(int(n) not in up["parts"] or up["parts"][int(n)][1] != '"%s"' % t for n, t in asked) or not asked:
            return self.error(400, "InvalidPart")
        if self.fault == "200":
            return self.error(200, "InternalError")
        data = b"".join(up["parts"][int(n)][0] for n, _ in asked)
        tag = '"%s-%d"' % (hashlib.md5(b"".join(bytes.fromhex(t) for _, t in asked)).hexdigest(), len(asked))
        with lock:
            objects[at] = (data, tag)
            uploads.pop(q["uploadId"])
        self.answer(200, "<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>" % escape(tag))


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, address):
        pass


log = open(sys.argv[2], "a")
server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
with open(sys.argv[1] + ".new", "w") as f:
    f.write("%d\n" % server.server_port)
os.rename(sys.argv[1] + ".new", sys.argv[1])
sys.stdin.read()

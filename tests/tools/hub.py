#!/usr/bin/env python3
"""A Hugging Face hub on loopback for tests.

hub.py PORT-FILE LOG-FILE FOLDER    serves FOLDER/ORG/NAME/FILES until its standard input ends

Files of 100,000 bytes and more are LFS files: their digest is SHA-256, and they are served by another
host (localhost instead of 127.0.0.1), which gets no token.  ORG "gated" wants the token "hf_right".
Revisions: main, v1, refs/pr/1; all are the one commit.  A file FOLDER/fault has lines "KIND N REGEX":
the next N requests whose "METHOD /path" has the regex fail: 500, 429, reset, cut, flip, html; `tree`
lists a path that leads out of the folder; `page` leads to another server.
"""
import hashlib, http.server, json, os, re, socket, struct, sys, threading
from urllib.parse import parse_qsl, quote, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
root = sys.argv[3]
lock = threading.Lock()


def files(repo):
    for folder, dirs, names in os.walk(os.path.join(root, repo)):
        dirs.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            yield os.path.relpath(path, os.path.join(root, repo)), path


def entry(name, path):
    with open(path, "rb") as f:
        data = f.read()
    e = {"type": "file", "path": name, "size": len(data),
         "oid": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
    if len(data) >= 100000:
        e["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return e


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", headers=()):
        if isinstance(body, str):
            body = body.encode()
        if self.fault == "flip" and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        self.send_response(status)
        for h in headers:
            self.send_header(*h)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.fault == "cut":
            body = body[:len(body) // 3]
            self.close_connection = True
        self.wfile.write(body)
        self.wfile.flush()
        if self.fault == "cut":
            self.connection.shutdown(socket.SHUT_RDWR)

    def take_fault(self):
        path = os.path.join(root, "fault")
        with lock:
            if not os.path.exists(path):
                return None
            rows = [line.split(" ", 2) for line in open(path).read().splitlines()]
            for row in rows:
                if int(row[1]) > 0 and re.search(row[2], "%s %s" % (self.command, self.path)):
                    row[1] = str(int(row[1]) - 1)
                    with open(path, "w") as f:
                        f.write("".join(" ".join(r) + "\n" for r in rows))
                    return row[0]
        return None

    def do_GET(self):
        token = self.headers.get("Authorization", "none")
        host = self.headers.get("Host", "")
        with lock:
            log.write("%s %s%s range=%s token=%s\n" % (self.command, host.split(":")[0], self.path,
                                                     self.headers.get("Range", ""), token))
            log.flush()
        self.fault = self.take_fault()
        if self.fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            self.wfile = open("/dev/null", "wb")
            return
        if self.fault and self.fault.isdigit():
            return self.answer(int(self.fault))
        if self.fault == "html":
            return self.answer(200, "<html>not JSON</html>")
        url = urlsplit(self.path)
        path = url.path
        if host.startswith("localhost"):
            return self.send_file(os.path.join(root, unquote(path[1:])), '"cdn"')
        if "/gated/" in path and token != "Bearer hf_right":
            return self.answer(401 if token == "none" else 403, '{"error":"gated"}')
        m = re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/revision/([^/]+)", path)
        if m:
            if unquote(m[3]) not in ("main", "v1", "refs/pr/1") or not os.path.isdir(os.path.join(root, m[2])):
                return self.answer(404, "{}")
            return self.answer(200, json.dumps({"id": m[2], "sha": COMMIT, "private": False}))
        m = re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/tree/" + COMMIT, path)
        if m:
            return self.tree(m[2], dict(parse_qsl(url.query)))
        m = re.fullmatch(r"/(?:datasets/)?([^/]+/[^/]+)/resolve/" + COMMIT + "/(.+)", path)
        if m:
            return self.resolve(m[1], unquote(m[2]))
        self.answer(404)

    do_HEAD = do_GET

    def tree(self, repo, q):
        entries = [entry(*f) for f in files(repo)]
        if self.fault == "tree":
            entries[0]["path"] = "../../outside"
        at, n = int(q.get("cursor", 0)), 2
        headers = []
        if at + n < len(entries):
            base = "http://localhost:1" if self.fault == "page" else "http://" + self.headers["Host"]
            headers.append(("Link", '<%s%s?recursive=true&cursor=%d>; rel="next"' % (base, urlsplit(self.path).path, at + n)))
        self.answer(200, json.dumps([{"type": "directory", "path": "d", "oid": "0" * 40, "size": 0}] + entries[at:at + n]),
                    headers)

    def resolve(self, repo, name):
        path = os.path.join(root, repo, name)
        if not os.path.isfile(path):
            return self.answer(404)
        e = entry(name, path)
        headers = [("X-Repo-Commit", COMMIT)]
        if "lfs" in e:
            port = self.headers["Host"].split(":")[1]
            return self.answer(302, b"", headers + [("X-Linked-Etag", '"%s"' % e["lfs"]["oid"]), ("X-Linked-Size", str(e["size"])),
                                                    ("Location", "http://localhost:%s/%s/%s" % (port, repo, quote(name)))])
        self.send_file(path, '"%s"' % e["oid"], headers)

    def send_file(self, path, tag, headers=()):
        with open(path, "rb") as f:
            data = f.read()
        headers = list(headers) + [("ETag", tag)]
        m = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not m:
            return self.answer(200, data, headers)
        first, last = int(m[1]), min(int(m[2]), len(data) - 1)
        self.answer(206, data[first:last + 1], headers + [("Content-Range", "bytes %d-%d/%d" % (first, last, len(data)))])


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        pass


log = open(sys.argv[2], "a")
server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
with open(sys.argv[1] + ".new", "w") as f:
    f.write("%d\n" % server.server_port)
os.rename(sys.argv[1] + ".new", sys.argv[1])
sys.stdin.read()

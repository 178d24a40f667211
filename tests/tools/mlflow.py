#!/usr/bin/env python3
"""A tracking server of MLflow on loopback for tests: what tern asks of one, and faults.

mlflow.py PORT-FILE LOG-FILE FOLDER    serves until its standard input ends

The store is FOLDER/store.json, written at its end of each request.  A file FOLDER/token holds the
value of Authorization that is wanted.  A file FOLDER/fault has lines "KIND N REGEX": the next N
requests whose "METHOD /path" has the regex fail: a number is that status, with MLflow's JSON; reset,
cut, html, list, strange (members of other types), lost (done, and the answer lost), mute (no answer),
move.
"""
import http.server, json, os, re, socket, struct, sys, threading
from urllib.parse import parse_qs, urlsplit

root = sys.argv[3]
lock = threading.Lock()
store = {"experiments": {}, "runs": {}}
LIMITS = {"metrics": 1000, "params": 100, "tags": 100}


class Refused(Exception):
    pass


def run_of(q):
    if q["run_id"] not in store["runs"]:
        raise Refused(404, "RESOURCE_DOES_NOT_EXIST", "no such run")
    return store["runs"][q["run_id"]]


def info(r):
    return {k: r[k] for k in ("run_id", "experiment_id", "status", "start_time", "end_time", "run_name")}


def log_batch(q):
    r = run_of(q)
    for kind, limit in LIMITS.items():
        if len(q.get(kind, [])) > limit:
            raise Refused(400, "INVALID_PARAMETER_VALUE", "a batch of too many %s" % kind)
    for p in q.get("params", []):
        if r["params"].get(p["key"], p["value"]) != p["value"]:
            raise Refused(400, "INVALID_PARAMETER_VALUE", "params do not change")
        if len(p["value"].encode()) > 500:
            raise Refused(400, "INVALID_PARAMETER_VALUE", "a long param")
        r["params"][p["key"]] = p["value"]
    for m in q.get("metrics", []):
        if not re.fullmatch(r"[A-Za-z0-9_\-. /]{1,250}", m["key"]) or os.path.normpath(m["key"]) != m["key"]:
            raise Refused(400, "INVALID_PARAMETER_VALUE", "metric name %r" % m["key"])
        point = [m["step"], m["timestamp"], m["value"]]
        points = r["metrics"].setdefault(m["key"], [])
        if point not in points:
            points.append(point)
    for t in q.get("tags", []):
        r["tags"][t["key"]] = t["value"]
    return {}


def call(path, q):
    if path == "experiments/get-by-name":
        e = store["experiments"].get(q["experiment_name"])
        if e is None:
            raise Refused(404, "RESOURCE_DOES_NOT_EXIST", "no such experiment")
        return {"experiment": {"experiment_id": e["id"], "name": q["experiment_name"], "lifecycle_stage": e["stage"]}}
    if path == "experiments/create":
        if q["name"] in store["experiments"]:
            raise Refused(400, "RESOURCE_ALREADY_EXISTS", "there is one")
        e = store["experiments"][q["name"]] = {"id": str(len(store["experiments"]) + 1), "stage": "active"}
        return {"experiment_id": e["id"]}
    if path == "runs/search":
        wanted = re.fullmatch(r"tags\.`(.*)` = '(.*)'", q["filter"])
        found = [r for r in store["runs"].values() if r["experiment_id"] in q["experiment_ids"]
                 and r["stage"] == "active" and r["tags"].get(wanted[1]) == wanted[2]]
        return {"runs": [{"info": info(r)} for r in found[:q["max_results"]]]} if found else {}
    if path == "runs/create":
        r = {"run_id": "%032x" % (len(store["runs"]) + 1), "experiment_id": q["experiment_id"], "status": "RUNNING",
             "start_time": q["start_time"], "end_time": 0, "run_name": q["run_name"], "stage": "active",
             "params": {}, "metrics": {}, "tags": {t["key"]: t["value"] for t in q["tags"]}}
        store["runs"][r["run_id"]] = r
        return {"run": {"info": info(r)}}
    if path == "runs/get":
        r = run_of(q)
        return {"run": {"info": info(r), "data": {"params": [{"key": k, "value": v} for k, v in r["params"].items()]}}}
    if path == "runs/log-batch":
        return log_batch(q)
    if path == "runs/update":
        r = run_of(q)
        r["status"], r["end_time"] = q["status"], q.get("end_time", 0)
        return {"run_info": info(r)}
    if path == "metrics/get-history":  # in pages of 100, integers as protobuf's JSON has them
        points = run_of(q)["metrics"].get(q["metric_key"], [])
        at = int(q.get("page_token", 0))
        answer = {"metrics": [{"key": q["metric_key"], "step": str(s), "timestamp": str(t), "value": v}
                              for s, t, v in points[at:at + 100]]}
        if at + 100 < len(points):
            answer["next_page_token"] = str(at + 100)
        return answer
    raise Refused(404, "ENDPOINT_NOT_FOUND", "no such call")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body, kind="application/json", headers=()):
        self.send_response(status)
        for h in headers:
            self.send_header(*h)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.fault == "cut":
            body = body[:len(body) // 2]
        self.wfile.write(body)
        self.wfile.flush()
        if self.fault == "cut":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def take_fault(self):
        path = os.path.join(root, "fault")
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

    def reset(self):
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urlsplit(self.path)
        with lock:
            self.fault = self.take_fault()
            with open(sys.argv[2], "a") as f:
                f.write("%s %s %d bytes %s\n" % (self.command, self.path, len(body), self.fault or ""))
            wanted = os.path.join(root, "token")
            if os.path.exists(wanted) and self.headers.get("Authorization", "") != open(wanted).read().strip():
                return self.answer(401, b"no\x1b[31m")
            if self.fault == "mute":
                self.close_connection = True
                return self.rfile.read(1)
            if self.fault == "reset":
                return self.reset()
            if self.fault == "html":
                return self.answer(200, b"<html>a proxy's page</html>", "text/html")
            if self.fault == "list":
                return self.answer(200, b"[1, 2]")
            if self.fault == "strange":
                return self.answer(200, b'{"experiment": 3, "experiment_id": "../x", "runs": [{"info": {"run_id": 7}}], '
                                        b'"run": [], "metrics": [{"step": "x"}]}')
            if self.fault == "move":
                return self.answer(302, b"", headers=[("Location", "https://elsewhere.example/x")])
            if self.fault and self.fault.isdigit():
                return self.answer(int(self.fault), json.dumps(
                    {"error_code": "SOME_ERROR", "message": "the database\n\x1b[31mis away"}).encode())
            q = json.loads(body) if body else {k: v[0] for k, v in parse_qs(url.query).items()}
            try:
                status, answer = 200, call(url.path.partition("/api/2.0/mlflow/")[2], q)
            except Refused as e:
                status, answer = e.args[0], {"error_code": e.args[1], "message": e.args[2]}
            with open(os.path.join(root, "store.json.new"), "w") as f:
                json.dump(store, f)
            os.rename(os.path.join(root, "store.json.new"), os.path.join(root, "store.json"))
            if self.fault == "lost":
                return self.reset()
            self.answer(status, json.dumps(answer).encode())

    do_GET = do_POST = serve


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
with open(sys.argv[1] + ".new", "w") as f:
    f.write(str(server.server_address[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
sys.stdin.read()

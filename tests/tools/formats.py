"""Read files of tern by what its pages say of their formats, and by nothing else:

    formats.py spool PAGE FILE...      frames and records; a line a record
    formats.py parts PAGE RUN_DB       what lies behind the pages of SQLite, against the rows
    formats.py seal LEDGER_DB
    formats.py external FOLDER FILE... records of checkpoints, against the folders
    formats.py shares PAGE FOLDER      a folder of parts of a token set

PAGE is what `tern help` prints. Exit status 1 with the first thing that is not as the page says.
"""
import hashlib
import json
import os
import re
import sqlite3
import struct
import sys


def crc32c(data):
    if not crc32c.table:
        for i in range(256):
            for _ in range(8):
                i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
            crc32c.table.append(i)
    crc = 0xFFFFFFFF
    for b in data:
        crc = crc32c.table[(crc ^ b) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


crc32c.table = []


def check(good, words):
    if not good:
        sys.exit("formats: " + words)


def section(page, heading):
    text = open(page).read().split("\n" + heading + "\n")[1]
    return re.split(r"\n\n[A-Z][A-Z .]+\n", text)[0]


def fields_of(page):
    """{type: (name, [fields])} of the section RECORDS."""
    records, last = {}, None
    for line in section(page, "RECORDS").split("\n"):
        first = re.match(r"    (\d+) +([a-z]+) +(.*)", line)
        if first:
            last = int(first[1])
            records[last] = (first[2], first[3].split())
        elif last and re.match(r" {10,}[a-z]", line):
            records[last][1].extend(line.split())
    check(sorted(records) == list(range(1, 11)), "the page has not the ten records: %s" % sorted(records))
    return records


class Payload:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        check(self.at + n <= len(self.data), "a payload ends inside a field")
        self.at += n
        return self.data[self.at - n:self.at]

    def field(self, word):
        if word.endswith("(u)"):
            return struct.unpack("<I", self.take(4))[0]
        if word.endswith("(i)"):
            return struct.unpack("<q", self.take(8))[0]
        if word.endswith("(r)"):
            return struct.unpack("<d", self.take(8))[0]
        n = struct.unpack("<I", self.take(4))[0]
        return None if n == 2**32 - 1 else self.take(n).decode()


def record(fields, payload):
    got, p = {}, Payload(payload)
    words = " ".join(fields)
    once, _, repeated = words.partition(", then n times: ")
    for word in once.split():
        got[re.sub(r"\(.\)", "", word)] = p.field(word)
    if repeated:
        got["values"] = [[p.field(word) for word in repeated.split()] for _ in range(got["n"])]
    check(p.at == len(payload), "%d bytes of a payload are not told" % (len(payload) - p.at))
    return got


def spool(page, *paths):
    records = fields_of(page)
    for path in paths:
        data, at, before, head = open(path, "rb").read(), 0, None, None
        while data[at:at + 4] == b"TERN":
            n, kind, zero, prev, seq, wall, crc = struct.unpack("<IHHIQQI", data[at + 4:at + 36])
            check(crc32c(data[at:at + 32]) == crc, path + ": a header's CRC")
            check(struct.unpack("<I", data[at + 36 + n:at + 40 + n])[0] == crc32c(data[at:at + 36 + n]), path + ": a frame's CRC")
            check(zero == 0 and prev == (before or 0), path + ": the CRC of the frame before")
            before = struct.unpack("<I", data[at + 36 + n:at + 40 + n])[0]
            name, fields = records[kind]
            got = record(fields, data[at + 36:at + 36 + n])
            if head is None:
                check(kind == 1 and seq == 0 and got["first_seq"] == 1, path + ": begins with no head of a first file")
                check("%s.%d.spool" % (got["writer"], got["number"]) == os.path.basename(path), path + ": its name is not its head's")
                head = got
            print(name, json.dumps(got))
            at += 40 + n
        check(head and not data[at:].strip(b"\0"), path + ": bytes behind the last frame")


def sizes_of(page):
    """{"part": 72, ...} of the section on what lies behind the pages; its rows leave no gap."""
    sizes, name, at = {}, None, 0
    for line in section(page, "BEHIND THE PAGES OF SQLITE").split("\n"):
        block = re.match(r"    (seal|part|index|foot), (\d+) bytes", line)
        row = re.match(r"     +(\d+) +(\d+)  \S", line)
        if block:
            check(not name or at == sizes[name], "the page's rows of %s end at %d" % (name, at))
            name, at = block[1], 0
            sizes[name] = int(block[2])
        elif row and name:
            check(int(row[1]) == at, "the page has a gap in %s at %d" % (name, at))
            at += int(row[2])
            check(at <= sizes[name], "the page has too much in " + name)
    check(len(sizes) == 4 and at == sizes["foot"], "the page's sizes: %s" % sizes)
    return sizes


def parts(page, path):
    size, data = sizes_of(page), open(path, "rb").read()
    bytes_a_page, pages = struct.unpack(">H", data[16:18])[0], struct.unpack(">I", data[28:32])[0]
    end = bytes_a_page * pages
    head = data[end:end + size["seal"]]
    own = data[end + size["seal"]:end + size["seal"] + 4 * pages]
    check(struct.unpack("<8sIIIII", head[:28]) == (b"ternpage", 1, bytes_a_page, pages, crc32c(own), 0), "the seal")
    check(struct.unpack("<I", head[28:])[0] == crc32c(head[:28]), "the seal's own CRC")
    for i in range(pages):
        check(struct.unpack("<I", own[4 * i:4 * i + 4])[0] == crc32c(data[i * bytes_a_page:(i + 1) * bytes_a_page]), "the CRC of page %d" % (i + 1))
    behind = end + len(head) + len(own)
    foot = data[-size["foot"]:]
    word, version, n, at, crc = struct.unpack("<8sIIQI", foot[:28])
    check(word == b"ternpart" and version == 1 and foot[28:36] == data[24:32], "the foot")
    check(struct.unpack("<I", foot[36:])[0] == crc32c(foot[:36]), "the foot's CRC")
    index = data[at:at + n * size["index"]]
    check(n > 0 and len(data) == at + len(index) + len(foot) and crc32c(index) == crc, "the index")
    db, keys = sqlite3.connect("file:%s?mode=ro" % path, uri=True), []
    for i in range(n):
        metric, attempt, crc, at, number = struct.unpack("<QIIQQ", index[i * 32:i * 32 + 32])
        own = data[at:at + number * size["part"]]
        check(crc32c(own) == crc, "the CRC of parts")
        check(at == behind or not number, "parts begin behind the seal, one behind the other")
        behind = at + len(own)
        keys.append((metric, attempt))
        rows = db.execute("select step, value from point where metric_id = ? and attempt = ? order by step", (metric, attempt)).fetchall()
        check(number == len(rows) // 128, "the number of parts of metric %d" % metric)
        for k in range(number):
            got = struct.unpack("<qqqqddddII", own[k * 72:k * 72 + 72])
            values = rows[128 * k:128 * k + 128]
            finite = [r for r in values if r[1] is not None and abs(r[1]) != float("inf")]
            want = (values[0][0], values[-1][0]) + ((finite[0][0], finite[-1][0], finite[0][1], finite[-1][1],
                    min(r[1] for r in finite), max(r[1] for r in finite)) if finite else (0,) * 6) + (len(finite), 0)
            check(got == want, "part %d of metric %d: %s, not %s" % (k, metric, got, want))
    check(keys == sorted(keys), "the index is sorted")
    print(n, "entries")


def seal(path):
    data = open(path, "rb").read()
    word, crc, zero = struct.unpack("<8sII", data[-16:])
    check(word == b"ternseal" and zero == 0 and crc == crc32c(data[:-16]), "the seal")


def external(folder, *paths):
    for path in paths:
        r = json.load(open(path))
        name = os.path.basename(r["path"])[:120] + "-" + hashlib.sha256(r["path"].encode()).hexdigest()[:8] + ".json"
        check(os.path.basename(path) == name, "%s: its name is not %s" % (path, name))
        text = hashlib.sha256()
        for f in r["files"]:
            link = "link" in f
            check(set(f) == ({"name", "link", "sha256"} if link else {"name", "bytes", "mode", "sha256"}), "keys of a file")
            text.update(("%s %s %d %s\0" % (f["sha256"], "l" if link else "f", 0 if link else f["bytes"], f["name"])).encode())
            there = os.path.join(folder, r["name"], f["name"])
            if os.path.lexists(there):
                own = os.readlink(there).encode() if link else open(there, "rb").read()
                check(hashlib.sha256(own).hexdigest() == f["sha256"], there + ": its digest")
                check(link or (len(own) == f["bytes"] and os.stat(there).st_mode & 0o777 == f["mode"]), there + ": size and mode")
        check(r["digest"] == text.hexdigest(), path + ": the digest")
        check([f["name"] for f in r["files"]] == sorted(f["name"] for f in r["files"]), path + ": the order of files")
        check(re.fullmatch(r"\d+\.\d{9}-\d+", r["written"]), path + ": written")
        print(r["state"], " ".join(sorted(r)))


def shares(page, folder):
    text = section(page, "PARTS")
    plan = open(os.path.join(folder, "plan.json")).read().split("\n", 1)[1]
    p = hashlib.sha256(plan.encode()).hexdigest()[:16]
    told = re.search(r"one JSON object:(.*?)\.\s+A", text, re.S)[1]
    for key in json.loads(plan):
        check(re.search(r"\b%s\b" % key, told), "the page does not tell the plan's key " + key)
    # Names at the beginnings of the page's items.
    forms = [re.sub(r"\bP\b", p, re.escape(w)).replace("NNNN", r"\d{4,}") for w in re.findall(r"^  (\S+)", text, re.M)]
    forms = [f.replace("STEP", ".+").replace("RANK", r"\d+") for f in forms]
    forms += [f + r"\.tmp-.+-\d+-\d+-.{6}" for f in forms] # the page's FILE.tmp-HOST-NAMESPACE-PID-XXXXXX
    check("FILE.tmp-HOST-NAMESPACE-PID-XXXXXX" in text, "the page does not tell how files are named that are not whole")
    names = sorted(os.listdir(folder))
    for name in names:
        if name.endswith(".lease"):
            line = open(os.path.join(folder, name)).readline()
            check(re.fullmatch(re.escape(name) + r"\.tmp-.+-\d+-\d+-.{6}\n", line), "the first line of a lease: " + line)
        check(any(re.fullmatch(f, name) for f in forms), "the page does not tell of " + name)
    print(" ".join(names).replace(p, "P"))


{"spool": spool, "parts": parts, "seal": seal, "external": external, "shares": shares}[sys.argv[1]](*sys.argv[2:])

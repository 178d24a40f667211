"""Files of text as their publishers write them, and their texts as Python reads them.

texts.py FOLDER SOURCE...: JSONL files give the words; of each form FORM.* is written into FOLDER,
and FORM.want.jsonl with the texts that json and str find in it."""
import json
import random
import re
import sys

folder, sources = sys.argv[1], sys.argv[2:]
rng = random.Random(7)
texts = [json.loads(line)["text"] for s in sources for line in open(s, encoding="utf-8")]
rng.shuffle(texts)
texts = texts[:1500] + ["", " ", "x", "\u0000a", "é" * 3, "\u2028\u2029\x85", "\U0001f600", '\\"\n\t']


def want(form, found):
    with open(f"{folder}/{form}.want.jsonl", "w", encoding="utf-8") as f:
        for t in found:
            f.write(json.dumps({"text": t}) + "\n")


def spans(text):
    """Annotations as Semantic Scholar has them: JSON in a string, with names that lead astray."""
    return json.dumps([{"start": 0, "end": len(text), "attributes": {"text": "no", "body": {"text": "no"}}}])


def lines(form, records, read):
    path = f"{folder}/{form}"
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        for r in records:
            if rng.random() < 0.5:
                keys = list(r)
                rng.shuffle(keys)
                r = {k: r[k] for k in keys}
            f.write(json.dumps(r, ensure_ascii=rng.random() < 0.5, separators=rng.choice([(",", ":"), (", ", ": ")])) + "\n")
            if rng.random() < 0.05:
                f.write("  \n")
    want(form, [read(json.loads(x)) for x in open(path, encoding="utf-8", newline="\n") if x.strip()])


def of_2020(t):
    return {"paper_id": str(rng.random()), "abstract": [{"text": "not the body", "section": "Abstract"}],
            "body_text": [{"section": "A", "text": p, "cite_spans": [{"start": 1, "text": "[1]", "ref_id": None}]} for p in t.split("\n")],
            "bib_entries": {"BIBREF0": {"title": "text", "other_ids": {}}}, "_pdf_hash": None}


def of_content(t):
    return {"corpusid": rng.randrange(10**9), "externalids": {"arxiv": None},
            "content": {"source": {"pdfurls": None, "oainfo": {"text": "no"}}, "text": t,
                        "annotations": {"paragraph": spans(t), "text": spans(t)}}, "updated": "2022-01-01"}


def of_body(t):
    return {"corpusid": rng.randrange(10**9), "title": "text", "authors": [{"text": "no"}],
            "body": {"text": t, "annotations": {"section_header": spans(t)}},
            "bibliography": {"text": "no", "annotations": None}}


lines("s2orc-2020", map(of_2020, texts), lambda r: "\n".join(p["text"] for p in r["body_text"]))
lines("s2orc-content", map(of_content, texts), lambda r: r["content"]["text"])
lines("s2orc-body", map(of_body, texts), lambda r: r["body"]["text"])

# Articles, in Latin-1 and in UTF-8, with both kinds of line ends.
for encoding in "latin-1", "utf-8":
    for end in "\r\n", "\n":
        form = f"articles-{encoding}-{len(end)}"
        with open(f"{folder}/{form}", "wb") as f:
            for i, t in enumerate(texts):
                t = t.replace("\u0000", "").replace("\r", "").encode(encoding, "ignore").decode(encoding)
                t = "\n".join(x for x in t.split("\n") if not re.match("(<doc |</doc>$|ENDOFARTICLE)", x))
                mark = "" if rng.random() < 0.1 else "ENDOFARTICLE.\n"
                whole = f'<doc id="{i}" title="{i} &amp; é" nonfiltered="{i}" processed="{i}" dbindex="{i}">\n{t}\n\n\n{mark}</doc>\n'
                f.write(whole.replace("\n", end).encode(encoding))
        found = []
        for a in open(f"{folder}/{form}", "rb").read().decode(encoding).replace("\r\n", "\n").split("\n</doc>\n")[:-1]:
            body = a.split(">\n", 1)[1] if ">\n" in a else ""
            if body == "ENDOFARTICLE." or body.endswith("\nENDOFARTICLE."):
                body = body[:-len("ENDOFARTICLE.")]
            found.append(body.strip(" \t\n\r\f\v"))
        assert len(found) == len(texts)
        want(form, found)

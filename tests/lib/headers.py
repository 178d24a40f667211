# headers.py FOLDER: files of safetensors, one in each folder FOLDER/CASE, most with something wrong in
# them.  Prints a line for each: CASE, tab, what safetensors' validator says of it (takes, refuses), tab,
# what tern does (takes, refuses), tab, words of tern's message.
import json, os, struct, sys

DATA = struct.pack("<6f", 1, 2, 3, 4, 5, 6)
A = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
B = {"dtype": "F32", "shape": [2], "data_offsets": [16, 24]}
LIMIT = 100_000_000

def file(head, data=DATA, length=None):
    head = head if isinstance(head, bytes) else head.encode() if isinstance(head, str) else json.dumps(head).encode()
    return struct.pack("<Q", len(head) if length is None else length) + head + data

def tensors(**change):
    """a and b, with fields of a changed."""
    a = dict(A, **change)
    return {"a": {k: v for k, v in a.items() if v is not None}, "b": B}

def text(a):
    """A header with this text as tensor a."""
    return '{"a":%s,"b":%s}' % (a, json.dumps(B))

good = file(tensors())
plain = '"dtype":"F32","shape":[2,2],"data_offsets":[0,16]'
T, R = "takes", "refuses"
CASES = [
    # name, bytes, the validator's verdict, tern's, words of its message
    ("plain", good, T, T, ""),
    ("other-order", file({"b": B, "a": A}), T, T, ""),
    ("padded", file(json.dumps(tensors()) + " " * 61), T, T, ""),
    ("odd-length", file(json.dumps(tensors()) + " " * ((6 - len(json.dumps(tensors()))) % 8 + 1)), T, T, ""),
    ("metadata", file({"__metadata__": {"format": "pt", "x": ""}, **tensors()}), T, T, ""),
    ("unknown-field", file(tensors(more=[1, {"x": None}])), T, T, ""),
    ("escaped-name", file(json.dumps(tensors()).replace('"a"', '"\\u0061"')), T, T, ""),
    ("empty-tensor", file({**tensors(), "c": {"dtype": "F32", "shape": [0, 7], "data_offsets": [16, 16]}}), T, T, ""),
    ("scalar", file({"a": A, "b": {"dtype": "F64", "shape": [], "data_offsets": [16, 24]}}), T, T, ""),
    # The validator takes it, and tern does not: by name.
    ("five-dimensions", file(tensors(shape=[1, 1, 1, 2, 2])), T, R, "has 5 dimensions"),
    ("long-name", file({"a" * 300: A, "b": B}), T, R, "a tensor's name has 300 bytes"),
    ("no-name", file({"": A, "b": B}), T, R, "a tensor's name has 0 bytes"),
    ("name-with-nul", file(text("{%s}" % plain).replace('"a"', '"a\\u0000"')), T, R, "not valid JSON"),
    # The file
    ("no-bytes", b"", R, R, "0 bytes are no safetensors file"),
    ("seven-bytes", good[:7], R, R, "7 bytes are no safetensors file"),
    ("length-alone", good[:8], R, R, "is truncated inside its header"),
    ("cut-header", good[:40], R, R, "is truncated inside its header"),
    ("length-beyond", file(tensors(), length=1 << 20), R, R, "is truncated inside its header"),
    ("length-huge", file(tensors(), length=LIMIT + 1), R, R, "at most 100000000"),
    ("length-all-bits", file(tensors(), length=(1 << 64) - 1), R, R, "at most 100000000"),
    ("length-zero", file("", b""), R, R, "not valid JSON"),
    ("length-short", file(tensors(), length=20), R, R, "not valid JSON"),
    ("cut-data", good[:-1], R, R, "is truncated: it ends inside tensor 'b'"),
    ("no-data", good[:-24], R, R, "is truncated: it ends inside tensor 'a'"),
    ("more-data", good + b"\0", R, R, "1 bytes follow the last tensor"),
    # The JSON
    ("not-utf8", file(json.dumps(tensors()).encode().replace(b'"b"', b'"\xff"')), R, R, "not valid JSON"),
    ("a-list", file("[]", b""), R, R, "its header is no JSON object"),
    ("a-number", file("7", b""), R, R, "its header is no JSON object"),
    ("a-text", file("x", b""), R, R, "not valid JSON"),
    ("text-behind", file(json.dumps(tensors()) + "x"), R, R, "not valid JSON"),
    ("space-before", file(" " + json.dumps(tensors())), T, T, ""),
    ("comma-behind", file(json.dumps(tensors())[:-1] + ",}"), R, R, "not valid JSON"),
    ("name-twice", file('{"a":{%s},"a":{%s},"b":%s}' % (plain, plain, json.dumps(B))), T, R, "not valid JSON: duplicate object key"),
    ("half-surrogate", file(json.dumps(tensors()).replace('"a"', '"\\ud800"')), R, R, "not valid JSON"),
    ("metadata-of-numbers", file({"__metadata__": {"step": 7}, **tensors()}), R, R, "__metadata__"),
    ("metadata-list", file({"__metadata__": ["x"], **tensors()}), R, R, "__metadata__"),
    ("tensor-list", file({"a": [], "b": B}), R, R, "tensor 'a' lacks a dtype, shape or data_offsets"),
    ("tensor-null", file({"a": None, "b": B}), R, R, "tensor 'a' lacks a dtype, shape or data_offsets"),
    ("no-dtype", file(tensors(dtype=None)), R, R, "tensor 'a' lacks a dtype, shape or data_offsets"),
    ("no-shape", file(tensors(shape=None)), R, R, "tensor 'a' lacks a dtype, shape or data_offsets"),
    ("no-offsets", file(tensors(data_offsets=None)), R, R, "tensor 'a' lacks a dtype, shape or data_offsets"),
    ("dtype-number", file(tensors(dtype=32)), R, R, "tensor 'a' lacks a dtype, shape or data_offsets"),
    ("dtype-unknown", file(tensors(dtype="F31")), R, R, "tensor 'a' is of type 'F31'"),
    ("dtype-lower", file(tensors(dtype="f32")), R, R, "tensor 'a' is of type 'f32'"),
    ("field-twice", file(text('{%s,"shape":[2,2]}' % plain)), R, R, "not valid JSON"),
    # The shape
    ("shape-number", file(tensors(shape=4)), R, R, "tensor 'a' lacks a dtype, shape or data_offsets"),
    ("shape-negative", file(tensors(shape=[-2, -2])), R, R, "tensor 'a' has an impossible shape"),
    ("shape-fraction", file(tensors(shape=[2.0, 2])), R, R, "tensor 'a' has an impossible shape"),
    ("shape-text", file(tensors(shape=["2", 2])), R, R, "tensor 'a' has an impossible shape"),
    ("shape-larger", file(tensors(shape=[2, 3])), R, R, "tensor 'a': its offsets contradict its shape"),
    ("shape-smaller", file(tensors(shape=[2, 1])), R, R, "tensor 'a': its offsets contradict its shape"),
    ("shape-wraps", file(tensors(shape=[1 << 62, 4, 4])), R, R, "tensor 'a'"),
    ("shape-wraps-to-size", file(tensors(shape=[(1 << 62) + 1, 4])), R, R, "tensor 'a'"),
    ("shape-beyond-64-bits", file(tensors(shape=[1 << 64, 2])), R, R, "not valid JSON"),
    # The offsets
    ("offsets-one", file(tensors(data_offsets=[0])), R, R, "tensor 'a' lacks a dtype, shape or data_offsets"),
    ("offsets-three", file(tensors(data_offsets=[0, 16, 24])), R, R, "tensor 'a' lacks a dtype, shape or data_offsets"),
    ("offsets-negative", file(tensors(data_offsets=[-16, 0])), R, R, "tensor 'a' lacks a dtype, shape or data_offsets"),
    ("offsets-fraction", file(tensors(data_offsets=[0, 16.0])), R, R, "tensor 'a' lacks a dtype, shape or data_offsets"),
    ("offsets-backwards", file(tensors(data_offsets=[16, 0])), R, R, "tensor 'a': its offsets contradict its shape"),
    ("offsets-overlap", file({"a": A, "b": dict(B, data_offsets=[12, 20])}, DATA[:20]), R, R, "overlaps another or leaves a hole"),
    ("offsets-the-same", file({"a": A, "b": dict(A)}, DATA[:16]), R, R, "overlaps another or leaves a hole"),
    ("offsets-hole", file({"a": A, "b": dict(B, data_offsets=[20, 28])}, DATA + b"\0" * 4), R, R, "overlaps another or leaves a hole"),
    ("offsets-late", file({"a": dict(A, data_offsets=[8, 24]), "b": dict(B, data_offsets=[24, 32])}, DATA + b"\0" * 8), R, R,
     "overlaps another or leaves a hole"),
    ("offsets-beyond", file({"a": A, "b": dict(B, shape=[2, 1 << 40], data_offsets=[16, 16 + (8 << 40)])}), R, R,
     "is truncated: it ends inside tensor 'b'"),
    ("offsets-wrap", file(tensors(data_offsets=[(1 << 63) - 8, (1 << 63) + 8])), R, R, "not valid JSON"),
    ("empty-inside", file({**tensors(), "c": {"dtype": "F32", "shape": [0], "data_offsets": [8, 8]}}), R, R, "overlaps another or leaves a hole"),
    # Types that tern does not read have their sizes, too.
    ("f8", file(tensors(dtype="F8_E4M3", shape=[16])), T, T, ""),
    ("f8-shape", file(tensors(dtype="F8_E4M3", shape=[15])), R, R, "tensor 'a': its offsets contradict its shape"),
    ("f4", file(tensors(dtype="F4", shape=[2, 16])), T, T, ""),
    ("f4-half-a-byte", file(tensors(dtype="F4", shape=[31])), R, R, "tensor 'a': its offsets contradict its shape"),
    ("c64-five", file(tensors(dtype="C64", shape=[1, 1, 1, 1, 2])), T, T, ""),
]

def main(folder):
    for name, content, validator, tern, words in CASES:
        os.makedirs(os.path.join(folder, name))
        with open(os.path.join(folder, name, "model.safetensors"), "wb") as f:
            f.write(content)
        print(name, validator, tern, words, sep="\t")

if __name__ == "__main__":
    main(sys.argv[1])

"""Token sets for tests in Python, by their description (core/data/format.h)."""
import struct


def sections(path):
    """The counts of the head, then the sections by their kinds: 1 ids, 2 documents, 3 the mask."""
    raw = open(path, "rb").read()
    assert raw[:8] == b"ternTDS\n"
    at = {}
    for i in range(struct.unpack_from("<I", raw, 100)[0]):
        kind, _, offset, size = struct.unpack_from("<IIQQ", raw, 104 + 24 * i)
        at[kind] = raw[offset:offset + size]
    return raw[24:48], at


def read(path):
    """Ids, mask (None: all are targets) and the number of documents of a small vocabulary's set."""
    counts, at = sections(path)
    n, docs = struct.unpack_from("<QQ", counts)
    ids = struct.unpack(f"<{n}H", at[1])
    return ids, [at[3][i // 8] >> i % 8 & 1 for i in range(n)] if 3 in at else None, docs


def same(one, other):
    """Have both the same documents and targets?"""
    (a, x), (b, y) = sections(one), sections(other)
    return a == b and all(x.get(kind) == y.get(kind) for kind in (1, 2, 3))

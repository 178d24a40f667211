# seal.py FILE: the seal of a ledger.db that a test changed (core/ledger/db.h), so that tern takes it for its own.
import sys
path = sys.argv[1]
b = open(path, 'rb').read()
assert b[-16:-8] == b'ternseal'
table = []
for i in range(256):
    for _ in range(8):
        i = i >> 1 ^ (0x82f63b78 if i & 1 else 0)
    table.append(i)
crc = 0xffffffff
for x in b[:-16]:
    crc = crc >> 8 ^ table[(crc ^ x) & 255]
with open(path, 'r+b') as f:
    f.seek(-8, 2)
    f.write((crc ^ 0xffffffff).to_bytes(4, 'little'))

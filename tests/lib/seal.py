# seal.py FILE: the seal of a ledger.db or run.db that a test changed (core/ledger/db.h, pages.h), so that tern
# takes it for its own.
import struct, sys
path = sys.argv[1]
b = open(path, 'rb').read()
table = []
for i in range(256):
    for _ in range(8):
        i = i >> 1 ^ (0x82f63b78 if i & 1 else 0)
    table.append(i)
def crc32c(data):
    crc = 0xffffffff
    for x in data:
        crc = crc >> 8 ^ table[(crc ^ x) & 255]
    return crc ^ 0xffffffff
if b[-16:-8] == b'ternseal':
    b = b[:-8] + struct.pack('<II', crc32c(b[:-16]), 0)
else:
    size, pages = struct.unpack('>H', b[16:18])[0], struct.unpack('>I', b[28:32])[0]
    b = b[:size * pages]
    sums = b''.join(struct.pack('<I', crc32c(b[i:i + size])) for i in range(0, len(b), size))
    head = b'ternpage' + struct.pack('<IIIII', 1, size, pages, crc32c(sums), 0)
    b += head + struct.pack('<I', crc32c(head)) + sums
open(path, 'r+b').write(b)
open(path, 'r+b').truncate(len(b))

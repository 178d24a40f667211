# python3 log.py LEDGER; tern ledger plot from-python -l LEDGER
import ctypes as c, sys

tern = c.CDLL("libtern-ledger.so.0")
tern.tern_log_open.restype = c.c_void_p
tern.tern_log_open.argtypes = c.c_char_p, c.c_char_p
tern.tern_log_value.argtypes = c.c_void_p, c.c_int64, c.c_char_p, c.c_double
tern.tern_log_close.argtypes = (c.c_void_p,)
tern.tern_log_error.restype = c.c_char_p


def check(good):
    if not good:
        sys.exit(tern.tern_log_error().decode())


log = tern.tern_log_open(sys.argv[1].encode() if len(sys.argv) > 1 else None, b"from-python")
check(log)
for step in range(1, 101):
    check(tern.tern_log_value(log, step, b"loss", 4 / step) == 0)
check(tern.tern_log_close(log) == 0)

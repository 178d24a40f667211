#!/usr/bin/env python3
"""Raw HTTP requests, for tests of a server that must stand hostile ones.

raw_http.py PLACE FILE        PLACE is a Unix socket's path, or host:port; FILE holds the request's
                              bytes; the answer goes to standard output
raw_http.py PLACE --cases FILE
                              lines CODES|NAME|METHOD|PATH|HEADER|... of requests, each answered by one of
                              the codes (- for no answer); prints lines of TAP without numbers
raw_http.py PLACE --hold N    N connections that send half a request and wait until standard input ends
"""
import socket, sys


def connect(place):
    if place.startswith("/"):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(600)
        s.connect(place)
        return s
    host, _, port = place.rpartition(":")
    return socket.create_connection((host, int(port)), 600)


place = sys.argv[1]
if sys.argv[2] == "--hold":
    held = []
    for _ in range(int(sys.argv[3])):
        try:
            s = connect(place)
            s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            held.append(s)
        except OSError:
            break
    print(len(held), flush=True)
    sys.stdin.read()
    sys.exit(0)


def ask(data):
    answer = b""
    with connect(place) as s:
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        while True:
            try:
                piece = s.recv(1 << 16)
            except OSError:
                return answer
            if not piece:
                return answer
            answer += piece


if sys.argv[2] == "--cases":
    for line in open(sys.argv[3], encoding="latin-1").read().splitlines():
        codes, name, method, path, *headers = line.split("|")
        answer = ask("\r\n".join(["%s %s HTTP/1.1" % (method, path), *headers, "Connection: close", "", ""]).encode("latin-1"))
        code = answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.") else "-"
        print("%sok - %s" % ("" if code in codes.split(",") else "not ", name))
        if code not in codes.split(","):
            print("# got", code)
else:
    sys.stdout.buffer.write(ask(open(sys.argv[2], "rb").read()))

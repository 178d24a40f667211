"""A terminal for tests: a command runs on a pseudoterminal, its screen is kept as lines of text.

    t = Terminal(80, 24, ["tern", "ledger", "watch"])
    t.wait("[1 curves]")          until that is on the screen, for a minute at most
    t.send("2")
    t.rows                        the rows that were written since t.rows.clear()

It knows the sequences that tern sends; any other one is an error.
"""
import fcntl, os, pty, re, select, struct, sys, termios, time

SEQUENCE = re.compile(rb"\x1b\[(\??)([0-9;]*)([A-Za-z])")


class Terminal:
    def __init__(self, columns, rows, argv):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execvp(argv[0], argv)
        self.columns, self.height = columns, rows
        self.kept = b""  # bytes of a sequence or character that is not whole
        self.rows, self.modes = [], set()
        self.main = self.other = None
        self.x = self.y = 0
        self.lines = self.blank()

    def blank(self):
        return [[" "] * self.columns for _ in range(self.height)]

    def resize(self, columns, rows):
        self.columns, self.height = columns, rows
        self.lines = self.blank()
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def sequence(self, private, arguments, final):
        if private:
            on = final == "h"
            (self.modes.add if on else self.modes.discard)(int(arguments))
            if arguments == "1049":
                if on:
                    self.main, self.lines = self.lines, self.blank()
                elif self.main:
                    self.lines, self.main = self.main, None
                    self.x, self.y = 0, self.height - 1
        elif final == "H":
            y, x = ([int(v) for v in arguments.split(";")] + [1, 1])[:2] if arguments else (1, 1)
            self.y, self.x = min(y, self.height) - 1, min(x, self.columns) - 1
            self.rows.append(self.y)
        elif final == "K":
            self.lines[self.y][self.x:] = [" "] * (self.columns - self.x)
        elif final == "J":
            if arguments == "2":
                self.lines = self.blank()
        else:
            assert final == "m", (arguments, final)

    def character(self, c):
        if c == "\r":
            self.x = 0
        elif c == "\n":
            self.y += 1
            if self.y == self.height:
                self.lines = self.lines[1:] + [[" "] * self.columns]
                self.y -= 1
        elif c >= " ":
            if self.x >= self.columns:
                assert self.main is None, "a line is wider than the screen"
                self.x = 0
                self.character("\n")
            self.lines[self.y][self.x] = c
            self.x += 1

    def feed(self, data):
        data, self.kept, at = self.kept + data, b"", 0
        while at < len(data):
            if data[at] == 0x1B:
                m = SEQUENCE.match(data, at)
                if not m:
                    assert len(data) - at < 16, data[at : at + 20]
                    self.kept = data[at:]
                    return
                self.sequence(m[1], m[2].decode(), m[3].decode())
                at = m.end()
                continue
            n = 1 if data[at] < 0x80 else 2 if data[at] < 0xE0 else 3 if data[at] < 0xF0 else 4
            if at + n > len(data):
                self.kept = data[at:]
                return
            self.character(data[at : at + n].decode())
            at += n

    def text(self):
        return "\n".join("".join(line).rstrip() for line in self.lines)

    def until(self, what, condition):
        end = time.monotonic() + 600
        while not condition():
            if time.monotonic() > end:
                sys.exit(f"in ten minutes not seen: {what}\n{self.text()}")
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self.feed(os.read(self.fd, 65536))
                except OSError:  # the command has closed it, and ends
                    time.sleep(0.02)

    def wait(self, *words, without=()):
        self.until((words, without), lambda: all(w in self.text() for w in words) and not any(w in self.text() for w in without))

    def send(self, keys):
        os.write(self.fd, keys.encode())

    def stty(self):
        return termios.tcgetattr(self.fd)

    def front(self):
        """The process group in front."""
        return os.tcgetpgrp(self.fd)

    def end(self):
        """Waits for the command's end; its status as the shell has it."""
        done = []

        def gone():
            if not done:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    done.append(status)
            return bool(done)

        self.until("the end", gone)
        while select.select([self.fd], [], [], 0)[0]:
            try:
                self.feed(os.read(self.fd, 65536))
            except OSError:
                break
        s = done[0]
        return os.WEXITSTATUS(s) if os.WIFEXITED(s) else 128 + os.WTERMSIG(s)

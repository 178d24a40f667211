"""Chromium without a window, driven by its DevTools protocol over a pipe (standard library alone).

    with Browser() as b:
        b.open("file:///page.html", width=820, dark=True)
        b.eval("document.title")
        b.mouse("mouseMoved", x, y)
        b.faults        what the console, exceptions and the page's policy had to say
        b.picture("shot.png")

Browser.find() is the program's path, or None.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Browser:
    LIMIT = 120  # seconds, for a hang

    @staticmethod
    def find():
        return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="tern-browser-")
        self.faults, self.requests, self.waiting, self.n, self.left = [], [], {}, 0, b""
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()

        def descriptors():  # 3 and 4 are the pipe's, by Chromium's rule
            a, b = os.dup(to_read), os.dup(back_write)
            os.dup2(a, 3)
            os.dup2(b, 4)
            os.closerange(5, 256)

        self.process = subprocess.Popen(
            [self.find(), "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", "--disable-component-update", "--user-data-dir=" + self.folder,
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=descriptors, close_fds=False)
        os.close(to_read)
        os.close(back_write)
        target = self.call("Target.createTarget", url="about:blank", session=None)["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True, session=None)["sessionId"]
        for domain in "Page", "Runtime", "Log", "Network":
            self.call(domain + ".enable")
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close", session=None)
            self.process.wait(20)
        except Exception:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def messages(self, until):
        while b"\0" not in self.left:
            if not select.select([self.back], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self.back, 1 << 16)
            if not more:
                raise EOFError("the browser has ended")
            self.left += more
        *whole, self.left = self.left.split(b"\0")
        return [json.loads(m) for m in whole]

    def take(self, message):
        method, p = message.get("method"), message.get("params", {})
        if "id" in message:
            self.waiting[message["id"]] = message
        elif method == "Runtime.exceptionThrown":
            self.faults.append("exception: " + json.dumps(p["exceptionDetails"])[:600])
        elif method == "Log.entryAdded":
            self.faults.append(p["entry"]["source"] + ": " + p["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.faults.append("console: " + json.dumps(p["args"])[:300])
        elif method == "Network.requestWillBeSent":
            self.requests.append(p["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def call(self, method, session="own", **params):
        self.n += 1
        message = {"id": self.n, "method": method, "params": params}
        if session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + self.LIMIT
        while self.n not in self.waiting:
            for m in self.messages(until):
                self.take(m)
        answer = self.waiting.pop(self.n)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, url, width=1000, height=900, dark=False, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.loaded = False
        self.call("Page.navigate", url=url)
        until = time.monotonic() + self.LIMIT
        while not self.loaded:
            for m in self.messages(until):
                self.take(m)
        self.frame()

    def eval(self, text):
        r = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(json.dumps(r["exceptionDetails"])[:600])
        return r["result"].get("value")

    def frame(self):
        """Until the page has drawn twice: observers of sizes have been called."""
        self.eval("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def mouse(self, kind, x, y, button="none", clicks=0):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=clicks,
                  buttons=1 if kind == "mouseMoved" and button == "left" else 0)

    def click(self, x, y, clicks=1):
        for n in range(1, clicks + 1):
            self.mouse("mousePressed", x, y, "left", n)
            self.mouse("mouseReleased", x, y, "left", n)

    def picture(self, path, whole=True):
        r = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as f:
            f.write(base64.b64decode(r["data"]))

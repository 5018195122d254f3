"""Headless Chromium over its debugging pipe, which needs nothing but Python: clicks, keys and screenshots as a person has
them. Chromium is optional: find() is None where there is none."""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find():
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One page. errors: what its scripts threw and logged as errors. requests: every address it asked for."""

    def __init__(self, width=1200, height=900, dark=False):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        # Above the descriptors that the browser uses: a shell that moves them there overwrites none.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in (*os.pipe(), *os.pipe())]
        to_browser, self.out, self.read, from_browser = high

        words = [find(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", "about:blank"]
        # The browser reads descriptor 3 and writes 4, which a shell can move there.
        self.process = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "browser", *words],
                                        pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.rest, self.number, self.session, self.errors, self.requests = b"", 0, None, [], []
        target = next(each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")
        self.size(width, height, dark)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.out)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read)
        self.folder.cleanup()

    def message(self, seconds):
        while b"\0" not in self.rest:
            if not select.select([self.read], [], [], max(0, seconds))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.read, 1 << 20)
            if not part:
                raise ConnectionError("the browser is gone")
            self.rest += part
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def call(self, method, seconds=60, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + seconds
        while True:
            got = self.message(end - time.monotonic())
            if got.get("id") == self.number:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]
            self.note(got)

    def note(self, event):
        what = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            details = what["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif event.get("method") == "Log.entryAdded" and what["entry"]["level"] == "error":
            self.errors.append(what["entry"]["text"])
        elif event.get("method") == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])

    def size(self, width, height=900, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, address):
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def value(self, expression):
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in got:
            raise RuntimeError(got["exceptionDetails"].get("exception", {}).get("description", expression))
        return got["result"].get("value")

    def until(self, expression, seconds=30):
        end = time.monotonic() + seconds
        while not self.value(f"Boolean({expression})"):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {expression}; errors of the page: {self.errors}")
            time.sleep(0.03)

    def place(self, selector):
        """The middle of an element, which is scrolled into view."""
        spot = self.value(f"""(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null;
            e.scrollIntoView({{block: 'center', behavior: 'instant'}}); const r = e.getBoundingClientRect();
            return [r.x, r.y, r.width, r.height]; }})()""")
        assert spot, f"there is no {selector}"
        return spot

    def click(self, selector, share=0.5):
        """With the mouse, at a share of the element's width."""
        x, y, width, height = self.place(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x + width * share, y=y + height / 2,
                      button="none" if kind == "mouseMoved" else "left", clickCount=1)

    def point_at(self, selector, share=0.5):
        x, y, width, height = self.place(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + width * share, y=y + height / 2)

    def drag(self, selector, begin, end, moves=8):
        x, y, width, height = self.place(selector)
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x + width * begin, y=y + height / 2, button="left", clickCount=1)
        for i in range(1, moves + 1):
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + width * (begin + (end - begin) * i / moves), y=y + height / 2,
                      button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=x + width * end, y=y + height / 2, button="left", clickCount=1)

    def press(self, key, code=None):
        codes = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowLeft": 37}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=code or key, windowsVirtualKeyCode=codes.get(key, 0), **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=code or key, windowsVirtualKeyCode=codes.get(key, 0))

    def type(self, text):
        self.call("Input.insertText", text=text)

    def choose(self, selector, value):
        """What a choice in a list does."""
        self.value(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(value)};"
                   "e.dispatchEvent(new Event('change', {bubbles: true})); })()")

    def screenshot(self, file, whole=True):
        parameters = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            parameters = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 5000), "scale": 1},
                          "captureBeyondViewport": True}
        with open(file, "wb") as out:
            out.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", **parameters)["data"]))

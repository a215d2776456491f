"""The HTML report of `fulcrum bench` in a real browser, without a network.

Run by `cargo xtask ci`. FULCRUM_REPORT names the page, FULCRUM_SCREENSHOTS a folder for pictures of
it. The browser is Debian's `chromium`, asked over its DevTools pipe; without one the test fails on
CI and is skipped elsewhere.
"""

import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time
import unittest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Name, width and height of the window in CSS pixels.
WINDOWS = (("desktop", 1280, 900), ("phone", 390, 844))
SCHEMES = ("light", "dark")
# Of one answer of the browser.
SECONDS_MAX = 20

# What is wrong with the page, in words. Half a pixel is rounding.
FAULTS = """
(() => {
  const faults = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth)
    faults.push(`the page is ${root.scrollWidth} px wide in a window of ${root.clientWidth}`);
  const within = (inner, outer) =>
    inner.left >= outer.left - 0.5 && inner.right <= outer.right + 0.5 &&
    inner.top >= outer.top - 0.5 && inner.bottom <= outer.bottom + 0.5;
  const plots = [...document.querySelectorAll("svg")];
  if (plots.length === 0) faults.push("no plot");
  for (const plot of plots) {
    const name = plot.getAttribute("aria-label");
    const box = plot.getBoundingClientRect();
    if (box.width < 200 || box.height < 80) faults.push(`${name}: ${box.width} x ${box.height} px`);
    // Where the window is narrow, wide plots may scroll within their frame, but the page may not.
    const frame = plot.closest("figure");
    const outer = getComputedStyle(frame).overflowX === "auto" ? frame.getBoundingClientRect() : box;
    if (outer.left < 0 || outer.right > root.clientWidth) faults.push(`${name}: beside the page`);
    const marks = [...plot.querySelectorAll("path,polyline,polygon,line,rect,circle")];
    const drawn = marks.filter((mark) => {
      const size = mark.getBoundingClientRect();
      return size.width > 0.5 || size.height > 0.5;
    });
    if (drawn.length < 5) faults.push(`${name}: ${drawn.length} visible marks`);
    for (const text of plot.querySelectorAll("text")) {
      const size = text.getBoundingClientRect();
      if (text.textContent.trim() === "") continue;
      if (size.height < 9) faults.push(`${name}: too small to read: ${text.textContent}`);
      if (size.width === 0) faults.push(`${name}: invisible: ${text.textContent}`);
      if (!within(size, box)) faults.push(`${name}: cut off: ${text.textContent}`);
    }
  }
  return faults;
})()
"""


def browser():
    for name in BROWSERS:
        if path := shutil.which(name):
            return path
    return None


class Browser:
    """Headless Chromium and its one page."""

    def __init__(self, path, profile):
        to_read, self.to_write = os.pipe()
        self.to_read, to_write = os.pipe()
        # Above the numbers that the browser expects them at.
        to_read, to_write = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_read, to_write))

        def at_three_and_four():
            os.dup2(to_read, 3)
            os.dup2(to_write, 4)

        self.process = subprocess.Popen(
            [
                path,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--remote-debugging-pipe",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=at_three_and_four,
            pass_fds=(3, 4),
        )
        os.close(to_read)
        os.close(to_write)
        self.received = b""
        self.number = 0
        self.events = []
        self.session = None
        page = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        offline = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        self.ask("Network.emulateNetworkConditions", **offline)

    def ask(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.next_message()
            if answer.get("id") != self.number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def next_message(self):
        deadline = time.monotonic() + SECONDS_MAX
        while b"\0" not in self.received:
            ready, _, _ = select.select([self.to_read], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(self.to_read, 1 << 16) if ready else b""
            if not piece:
                raise RuntimeError("the browser does not answer")
            self.received += piece
        message, self.received = self.received.split(b"\0", 1)
        return json.loads(message)

    def open(self, url):
        """Loads a page and forgets what happened before."""
        self.events.clear()
        self.ask("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.next_message())

    def value(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"]["value"]

    def told(self, method):
        return [event["params"] for event in self.events if event.get("method") == method]

    def close(self):
        self.process.terminate()
        self.process.wait(SECONDS_MAX)
        os.close(self.to_read)
        os.close(self.to_write)


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        path = browser()
        if path is None:
            if os.environ.get("CI"):
                raise RuntimeError("no browser: install chromium")
            raise unittest.SkipTest("no browser here: install chromium")
        cls.url = pathlib.Path(os.environ["FULCRUM_REPORT"]).resolve().as_uri()
        cls.pictures = pathlib.Path(os.environ["FULCRUM_SCREENSHOTS"])
        cls.pictures.mkdir(parents=True, exist_ok=True)
        cls.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.browser = Browser(path, cls.profile.name)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.profile.cleanup()

    def show(self, width, height, scheme):
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.browser.ask("Emulation.setDeviceMetricsOverride", **metrics)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.browser.ask("Emulation.setEmulatedMedia", features=[feature])
        self.browser.open(self.url)

    def test_the_page_shows_its_plots_at_every_size_and_asks_nobody(self):
        pages = {}
        for name, width, height in WINDOWS:
            for scheme in SCHEMES:
                with self.subTest(window=name, scheme=scheme):
                    self.show(width, height, scheme)
                    pages[scheme] = self.browser.value("getComputedStyle(document.body).backgroundColor")
                    faults = self.browser.value(FAULTS)
                    self.picture(f"{name}-{scheme}", width)
                    self.assertEqual(faults, [])
                    self.assertEqual(self.browser.told("Runtime.exceptionThrown"), [])
                    self.assertEqual(self.browser.told("Runtime.consoleAPICalled"), [])
                    self.assertEqual(self.browser.told("Log.entryAdded"), [])
                    requests = self.browser.told("Network.requestWillBeSent")
                    addresses = {request["request"]["url"] for request in requests}
                    self.assertEqual(addresses, {self.url})
        self.assertNotEqual(pages["light"], pages["dark"])

    def picture(self, name, width):
        height = min(self.browser.value("document.documentElement.scrollHeight"), 12000)
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        answer = self.browser.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        (self.pictures / f"{name}.png").write_bytes(base64.b64decode(answer["data"]))

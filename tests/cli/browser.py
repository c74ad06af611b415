"""browser.py CHROMIUM PAGE: opens a report page as people do, and prints "ok WHAT" or "FAILED WHAT".

Chromium's debugging protocol through a pipe: a JSON message ends with a zero byte, commands go to
file descriptor 3 and answers come from 4. Nothing but Python's standard library is needed."""
import json
import os
import pathlib
import signal
import subprocess
import sys

SECONDS = 60

# Elements outside tables that scroll may not reach past the window.
WIDER = """(() => {
  const width = document.documentElement.clientWidth;
  const out = document.documentElement.scrollWidth > width ? ['the page scrolls sideways'] : [];
  document.querySelectorAll('body *:not(svg *)').forEach(e => {
    const r = e.getBoundingClientRect();
    if (r.width > 0 && r.right > width + 1 && !e.closest('.scroll') && !e.closest('pre'))
      out.push(e.tagName + '.' + e.className + ' ends at ' + r.right);
  });
  return out.slice(0, 3).join('; ');
})()"""

PLOT = """(() => {
  const plot = Array.from(document.querySelectorAll('svg.plot'))
    .find(p => getComputedStyle(p).display !== 'none');
  plot.scrollIntoView({ block: 'center' });
  const r = plot.getBoundingClientRect();
  return [r.left + r.width / 2, r.top + r.height / 2];
})()"""

SHOWN = """Array.from(document.querySelectorAll('.readout')).filter(r => !r.hidden)
  .map(r => r.innerText.replace(/\\s+/g, ' ')).join('; ')"""

LIGHT = """getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3)
  .reduce((sum, v) => sum + Number(v), 0) / 765"""


class Browser:
    def __init__(self, program):
        command, self.answers = os.pipe(), os.pipe()
        arguments = [program, "--headless", "--remote-debugging-pipe", "--disable-gpu",
                     "--no-first-run", "--disable-extensions", "--user-data-dir=profile"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")

        def descriptors():
            os.dup2(command[0], 103)
            os.dup2(self.answers[1], 104)
            os.dup2(103, 3)
            os.dup2(104, 4)

        self.process = subprocess.Popen(arguments, preexec_fn=descriptors, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(command[0])
        os.close(self.answers[1])
        self.to, self.number, self.buffer = command[1], 0, b""
        self.session, self.events = None, []

    def receive(self):
        while b"\0" not in self.buffer:
            more = os.read(self.answers[0], 65536)
            if not more:
                sys.exit("FAILED the browser: it ended early")
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"FAILED {method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def wait(self, event):
        while not any(e.get("method") == event for e in self.events):
            self.events.append(self.receive())

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def open(self, url, width, scheme):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=800,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events = []
        self.call("Page.navigate", url=url)
        self.wait("Page.loadEventFired")

    def complaints(self):
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [json.dumps(e["params"])[:300] for e in self.events if e.get("method") in kinds]


def say(good, what, why=""):
    print(f"ok {what}" if good else f"FAILED {what}: {why}")


def look(browser, url, width, scheme):
    where = f"at {width} pixels, {scheme}"
    browser.open(url, width, scheme)
    light = browser.evaluate(LIGHT)
    say((light > 0.7) == (scheme == "light"), f"the background {where}", f"brightness {light}")
    x, y = browser.evaluate(PLOT)
    say(browser.evaluate(SHOWN) == "", f"no values before a touch {where}", "there are some")
    for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
        browser.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)
    shown = browser.evaluate(SHOWN)
    say("alibi" in shown and "±" in shown, f"a touch shows values {where}", f"'{shown}'")
    wider = browser.evaluate(WIDER)
    say(not wider, f"nothing is wider than the window {where}", wider)
    complaints = browser.complaints()
    say(not complaints, f"no message in the console {where}", complaints)


def main():
    browser = Browser(sys.argv[1])
    url = pathlib.Path(sys.argv[2]).resolve().as_uri()
    signal.signal(signal.SIGALRM, lambda *_: browser.process.kill())
    signal.alarm(SECONDS)
    try:
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        browser.session = browser.call("Target.attachToTarget", targetId=target,
                                       flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            browser.call(domain + ".enable")
        browser.call("Emulation.setTouchEmulationEnabled", enabled=True)
        for width in (1280, 390):
            for scheme in ("light", "dark"):
                look(browser, url, width, scheme)
        browser.session = None
        browser.call("Browser.close")
        browser.process.wait(timeout=10)
    finally:
        browser.process.kill() # does nothing if it has ended
        browser.process.wait()


main()

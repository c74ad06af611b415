"""browser.py CHROMIUM COMPARISON EXPERIMENT: opens two report pages as people do, and prints
"ok WHAT" or "FAILED WHAT".

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

# The cells of a column, and how it is sorted. The button of its heading gets the focus.
COLUMN = """(() => {
  const table = document.querySelectorAll('table.data')[0];
  const heads = Array.from(table.tHead.rows[0].cells);
  const at = heads.findIndex(h => h.textContent.startsWith('%s'));
  heads[at].querySelector('button').focus();
  return Array.from(table.tBodies[0].rows).map(r => r.cells[at].textContent).join(' ') + ' ' +
    heads[at].getAttribute('aria-sort');
})()"""

CELLS = """%s.forEach((text, row) => {
  document.querySelectorAll('table.data')[0].tBodies[0].rows[row].cells[1].textContent = text;
})"""

COPY = """(() => {
  document.querySelector('.tools:has(+ .scroll) button').click();
  return 'clicked';
})()"""

WITHOUT_CLIPBOARD = """(() => {
  Object.defineProperty(navigator, 'clipboard', { value: undefined });
  document.addEventListener('copy', () => {
    window.copied = document.activeElement.value;
  });
})()"""

# The place of a cell in the first heat map: the second range of distances of head 1.
CELL = """(() => {
  const map = document.querySelector('.heat');
  map.scrollIntoView({ block: 'center' });
  const r = map.getBoundingClientRect();
  return [r.left + 1.5 * r.width / map.dataset.columns.split(',').length, r.top + 2];
})()"""

# A figure as the button saves it: what other programs would not understand in it.
SAVED = """Array.from(document.querySelectorAll('figure')).map(figure => {
  const text = new XMLSerializer().serializeToString(standAlone(figure));
  const wrong = text.slice(4).match(/var\\(|color-mix|color\\(srgb|viewBox|<svg|style=|="[0-9.]+%/);
  return !/<(path|circle|rect)/.test(text) ? 'nothing drawn' : wrong ? wrong[0] : '';
}).join('')"""

OF_THE_FIRST = """Array.from(document.querySelectorAll('.of0, .s0'))
  .filter(e => e.getClientRects().length > 0).length"""


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
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True, userGesture=True)
        return answer["result"].get("value")

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      text="\r" if key == "Enter" else "", windowsVirtualKeyCode=code)

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


def touch(browser, place):
    x, y = browser.evaluate(place)
    for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
        browser.call("Input.dispatchTouchEvent", type=kind, touchPoints=points)
    return browser.evaluate(SHOWN)


def look(browser, url, width, scheme, kind="comparison"):
    where = f"at {width} pixels, {scheme}, {kind}"
    browser.open(url, width, scheme)
    light = browser.evaluate(LIGHT)
    say((light > 0.7) == (scheme == "light"), f"the background {where}", f"brightness {light}")
    say(browser.evaluate(SHOWN) == "", f"no values before a touch {where}", "there are some")
    shown = touch(browser, PLOT)
    say("alibi" in shown and "±" in shown, f"a touch shows values {where}", f"'{shown}'")
    wider = browser.evaluate(WIDER)
    say(not wider, f"nothing is wider than the window {where}", wider)
    complaints = browser.complaints()
    say(not complaints, f"no message in the console {where}", complaints)


def orders(browser, heading):
    """A column as given, and after one, two and three presses of the return key."""
    yield browser.evaluate(COLUMN % heading)
    for _ in range(3):
        browser.press("Enter", 13)
        yield browser.evaluate(COLUMN % heading)


def tables(browser, url):
    browser.open(url, 1280, "light")
    for cells, up, down in ((["10.1", "–", "1.2e+05", "9.5"], "9.5 10.1 1.2e+05 –",
                             "1.2e+05 10.1 9.5 –"),
                            (["2.00MiB", "∞", "9KiB", "–"], "9KiB 2.00MiB ∞ –",
                             "∞ 2.00MiB 9KiB –"),
                            (["a-512", "b", "–", "a-64"], "a-64 a-512 b –", "b a-512 a-64 –")):
        browser.evaluate(CELLS % json.dumps(cells))
        found = list(orders(browser, "16"))
        wanted = [" ".join(cells) + " null", up + " ascending", down + " descending",
                  " ".join(cells) + " null"]
        say(found == wanted, f"a heading sorts {cells[0]} and the like", found)
    browser.open(url, 1280, "light")
    browser.evaluate(COLUMN % "method")
    browser.press("Enter", 13)
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    browser.evaluate(COPY)
    text = browser.evaluate("new Promise(d => setTimeout(d, 100)).then("
                            "() => navigator.clipboard.readText())") or ""
    rows = [line.split("\t") for line in text.rstrip("\n").split("\n")]
    say([row[0].rstrip("†") for row in rows] == ["method", "alibi", "none", "rotary", "sinusoidal"] and
        {len(row) for row in rows} == {4} and "±" in rows[1][1], "a table is copied", repr(text))
    browser.evaluate(WITHOUT_CLIPBOARD)
    browser.evaluate(COPY)
    older = browser.evaluate("window.copied")
    say(older == text, "and where the clipboard is not allowed", older)
    complaints = browser.complaints()
    say(not complaints, "no message in the console from tables", complaints)


def experiment(browser, url):
    browser.open(url, 1280, "light")
    shown = touch(browser, CELL)
    say("layer 1, head 1" in shown and "1 token back" in shown and "%" in shown,
        "a touch shows a cell of a heat map", shown)
    browser.evaluate("document.querySelector('.heat').focus()")
    browser.press("ArrowRight", 39)
    browser.press("ArrowDown", 40)
    shown = browser.evaluate(SHOWN)
    say("layer 1, head 2 2–3 tokens back" in shown, "arrow keys move to another cell", shown)
    wrong = browser.evaluate(SAVED)
    say(wrong == "", "every figure is saved with its final colours and places", wrong)
    before = browser.evaluate(OF_THE_FIRST)
    browser.evaluate("document.getElementById('show-0').click()")
    after = browser.evaluate(OF_THE_FIRST)
    say(before > 5 and after == 0, "a box hides a model in all figures", (before, after))
    browser.evaluate("window.addEventListener('beforeprint', () => { window.unfolded ="
                     " document.querySelectorAll('details:not([open])').length; })")
    paper = browser.call("Page.printToPDF")["data"]
    unfolded = browser.evaluate("window.unfolded")
    say(len(paper) > 20000 and unfolded == 0, "what is folded is printed", unfolded)
    folded = browser.evaluate("document.querySelectorAll('details[open]').length")
    say(folded == 0, "and folded again", folded)
    complaints = browser.complaints()
    say(not complaints, "no message in the console from the experiment", complaints)


def main():
    browser = Browser(sys.argv[1])
    url, other = (pathlib.Path(path).resolve().as_uri() for path in sys.argv[2:4])
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
        tables(browser, url)
        look(browser, other, 1280, "dark", "experiment")
        look(browser, other, 390, "light", "experiment")
        experiment(browser, other)
        browser.session = None
        browser.call("Browser.close")
        browser.process.wait(timeout=10)
    finally:
        browser.process.kill() # does nothing if it has ended
        browser.process.wait()


main()

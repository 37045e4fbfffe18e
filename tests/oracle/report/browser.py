"""The report's page in a real browser: no text lies on another or leaves its picture, nothing is wider than the screen, every text can be read
against what is behind it, nothing is fetched; on a desk and on a phone, light and dark, and printed; and four pages look as they are expected to
(browser_pictures.py). Usage: browser.py SPILLWAY SOURCE [PICTURES] [--accept]

Chromium draws the page and says where each text is; this file asks it over its debugging pipe. Pages that are wrong on purpose must be found.
PICTURES is a folder for a picture of each page, to be looked at; --accept stores how the four pages look.
"""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from browser_pictures import Pictures

accept = "--accept" in sys.argv
if accept:
    sys.argv.remove("--accept")
program, source = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
pictures = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None

SCREENS = [(1280, "screen"), (390, "screen"), (718, "print")]  # the last: an A4 sheet between margins of 1 cm, at 96 pixels an inch
MOST_SCREENS = {"real": 4, "deepseek": 4, "pair": 4}  # of 800 pixels on a desk; what is folded is not counted
CONTRAST = {"screen": 3.0, "print": 3.0}  # WCAG 2.1, AA, of large texts and of graphics; small texts: 4.5

# Everything that the browser is asked of one page; the answer is a list of complaints.
LOOK = r"""
((least) => {
  const bad = [], said = new Set();
  const say = (text) => { if (!said.has(text)) { said.add(text); bad.push(text); } };
  const wide = document.documentElement.clientWidth;
  if (document.scrollingElement.scrollWidth > wide + 1) say(`the page is ${document.scrollingElement.scrollWidth} pixels wide on a screen of ${wide}`);
  const clip = (node) => { // what scrolls may hide a part of what it holds
    let box = {left: -1e9, right: 1e9, top: -1e9, bottom: 1e9};
    for (let e = node; e && e !== document.documentElement; e = e.parentElement) {
      if (getComputedStyle(e).overflowX === 'visible' || e instanceof SVGElement) continue;
      const r = e.getBoundingClientRect();
      box = {left: Math.max(box.left, r.left), right: Math.min(box.right, r.right), top: Math.max(box.top, r.top), bottom: Math.min(box.bottom, r.bottom)};
    }
    return box;
  };
  const colour = (text) => (text.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = (c) => {
    const part = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); };
    return 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = colour(getComputedStyle(e).backgroundColor);
      if (!(e instanceof SVGElement) && (c.length < 4 || c[3] === 1)) return c;
    }
    return [255, 255, 255];
  };
  const boxes = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    const text = node.textContent.trim(), parent = node.parentElement;
    if (!text || parent.closest('title, style, script, desc') || !parent.checkVisibility({visibilityProperty: true})) continue;
    const style = getComputedStyle(parent), drawn = parent instanceof SVGElement;
    const range = document.createRange();
    range.selectNodeContents(node);
    const hole = clip(parent);
    for (const r of range.getClientRects()) {
      const box = {left: Math.max(r.left, hole.left), right: Math.min(r.right, hole.right), top: r.top, bottom: r.bottom, text, drawn, parent};
      if (box.right - box.left < 1 || r.bottom < hole.top || r.top > hole.bottom) continue;
      const trim = (box.bottom - box.top) * 0.14; // letters are lower than their line
      box.top += trim, box.bottom -= trim;
      boxes.push(box);
      if (box.left < -1 || box.right > wide + 1) say(`'${text}' leaves the screen`);
    }
    const svg = drawn && parent.closest('svg');
    if (svg && getComputedStyle(svg).overflow === 'hidden') {
      const r = parent.getBoundingClientRect(), s = svg.getBoundingClientRect();
      if (r.left < s.left - 1 || r.right > s.right + 1 || r.top < s.top - 2 || r.bottom > s.bottom + 2) say(`'${text}' leaves its picture`);
    }
    if (!(drawn && parent.classList.contains('name'))) { // a name inside of a mark stands on the mark, not on the page
      const a = light(colour(drawn ? style.fill : style.color)), b = light(behind(parent));
      const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), size = parseFloat(style.fontSize);
      const large = size >= 24 || (size >= 18.5 && Number(style.fontWeight) >= 700);
      if (contrast < (large || style.fontWeight >= 600 ? least : 4.5)) say(`'${text}' has a contrast of ${contrast.toFixed(2)}`);
    }
  }
  boxes.sort((a, b) => a.top - b.top);
  for (let i = 0; i < boxes.length; i++) {
    for (let j = i + 1; j < boxes.length && boxes[j].top < boxes[i].bottom; j++) {
      const a = boxes[i], b = boxes[j];
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left), down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 1 && down > 1 && a.parent !== b.parent) say(`'${a.text}' lies on '${b.text}' (${across.toFixed(0)} x ${down.toFixed(0)} pixels)`);
    }
  }
  if (!boxes.length) say('the page has no text');
  return {bad, texts: boxes.length, wide};
})"""


class Browser:
    """Chromium without a window, spoken to through two pipes: one JSON text, then a zero byte."""

    def __init__(self, folder):
        chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if not chromium:
            raise SystemExit("browser.py: no Chromium here (Debian's package chromium)")
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()
        arguments = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--font-render-hinting=none", "--no-first-run",
                     "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]

        def ends():  # Chromium listens on 3 and answers on 4
            a, b = os.dup(to_read), os.dup(to_write)
            os.dup2(a, 3), os.dup2(b, 4)

        self.process = subprocess.Popen(arguments, close_fds=False, preexec_fn=ends, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read), os.close(to_write)
        self.rest, self.count, self.session, self.asked = b"", 0, None, []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def message(self):
        while b"\0" not in self.rest:
            more = os.read(self.back, 1 << 20)
            if not more:
                raise SystemExit("browser.py: Chromium has ended")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        answer = json.loads(text)
        if answer.get("method") in ("Network.requestWillBeSent", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.asked.append(answer)
        return answer

    def call(self, method, **parameters):
        self.count += 1
        request = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise SystemExit(f"browser.py: {method}: {answer['error']}")
                return answer["result"]

    def ask(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise SystemExit(f"browser.py: {answer['exceptionDetails']}")
        return answer["result"]["value"]

    def open(self, page, width, media, scheme):
        self.asked.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=page.as_uri())
        while self.message().get("method") != "Page.loadEventFired":
            pass
        high = self.ask("document.scrollingElement.scrollHeight")
        self.ask("document.querySelectorAll('details.fold, details.every').forEach((d) => { d.open = true; }), 0")
        found = {**self.ask(f"{LOOK}({CONTRAST[media]})"), "high": high}
        for event in self.asked:
            url = event["params"].get("request", {}).get("url", "")
            if url != page.as_uri() and not url.startswith("data:"):
                found["bad"].append(f"the page asks for, or complains of: {url or event['params']}")
        return found

    def picture(self, to):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        to.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]))

    def paper(self, to):
        pdf = base64.b64decode(self.call("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)["data"])
        if to:
            to.write_bytes(pdf)
        return pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") + pdf.count(b"/Type/Page/")

    def end(self):
        self.call("Browser.close")
        self.process.wait()


def spillway(*arguments, to=None):
    done = subprocess.run([program, *map(str, arguments)], cwd=source, capture_output=True)
    if done.returncode:
        raise SystemExit(f"browser.py: spillway {' '.join(map(str, arguments))}: {done.stderr.decode()}")
    if to:
        to.write_bytes(done.stdout)


def pages(folder):
    """What users make: replays of real and of generated routing, with and without times, plans, a search, two plans side by side, a plan beside a replay."""
    slice_, jobs = "traces/data/training_aux_e64_slice.h5", source / "sim/jobs"
    schemes = ["--scheme", "dense:capacity_factor=1.25", "--scheme", "ragged", "--scheme", "gmm", "--scheme", "gmm:buffer_factor=2", "--scheme", "ring"]
    spillway("replay", slice_, "--job", jobs / "scratch-moe-e64.yaml", "--output", folder / "real.h5")
    spillway("trace", "generate", folder / "deepseek_trace.h5", "--experts", 256, "--top-k", 8, "--layers", 4, "--first-layer", 3, "--steps", 2,
             "--ranks", 64, "--tokens-per-rank", 512, "--hidden", 7168, "--distribution", "lognormal:sigma=0.5", "--seed", 1)
    spillway("replay", folder / "deepseek_trace.h5", "--job", jobs / "deepseek-v3-mi355x.yaml", "--sequences-per-gpu", 1, "--sequence-length", 512,
             "--stack", "maxtext-rocm-2026-05", "--output", folder / "deepseek.h5", *schemes)
    spillway("plan", "--job", jobs / "deepseek-v3-mi355x-plan.yaml", "--format", "json", to=folder / "plan.json")
    spillway("plan", "--model", "glm-4.5", "--cluster", "h200:8x16", "--scheme", "megatron-alltoall",
             "--sequence-length", 4096, "--expert-parallel", "8,16,32", "--sequences-per-gpu", "1,2,4,8", "--remat", "full", "--price", 2.5,
             "--imbalance", 1.3, "--format", "json", to=folder / "megatron.json")
    spillway("plan", "--search", "--model", "olmoe-1b-7b", "--cluster", "h100-1x8", "--optimizer", "distributed", "--scheme", "megatron-alltoall",
             "--over", "pipeline=1,2", "--over", "micro-batches=1,2,4", "--price", 2, "--format", "json", to=folder / "search.json")
    for name in ("real.h5", "deepseek.h5", "plan.json", "megatron.json", "search.json"):
        page = folder / (pathlib.Path(name).stem + ".html")
        spillway("report", folder / name, "--output", page)
        yield page
    spillway("report", folder / "plan.json", folder / "megatron.json", "--output", folder / "pair.html")
    yield folder / "pair.html"
    spillway("report", folder / "plan.json", "--replay", folder / "deepseek.h5", "--output", folder / "beside.html")
    yield folder / "beside.html"


WRONG = [  # what a change of the style sheet could do, and the word of the complaint
    ("letters of pictures twice as large", "svg text { font-size: 30px !important; }", "leaves its picture"),
    ("a table that is wider than a phone", ".wide { overflow-x: visible !important; } .wide table { min-width: 900px; }", "wide on a screen"),
    ("soft letters that nobody can read", ":root { --soft: #c8cdd2 !important; }", "contrast"),
    ("a line that stands on the next", "h2 { margin-bottom: -30px !important; }", "lies on"),
    ("a letter from another site", "@font-face { font-family: x; src: url(https://example.org/x.woff2); } body { font-family: x !important; }", "asks for"),
]


def main():
    wrong, looked = [], 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        browser = Browser(folder / "profile")
        for page in pages(folder):
            for width, media in SCREENS:
                for scheme in ("light", "dark"):
                    found = browser.open(page, width, media, scheme)
                    looked += 1
                    high = found["high"]
                    if (width, media) == SCREENS[0] and high > 800 * MOST_SCREENS.get(page.stem, 100):
                        wrong.append(f"{page.name}: {high} pixels high, {MOST_SCREENS[page.stem]} screens of 800 would be right")
                    view = f"{page.name}, {width} pixels, {media}, {scheme}"
                    wrong += [f"{view}: {text}" for text in found["bad"]]
                    print(f"{view}: {found['texts']} texts, {len(found['bad'])} complaints", flush=True)
                    if pictures:
                        pictures.mkdir(parents=True, exist_ok=True)
                        browser.picture(pictures / f"{page.stem}_{width}_{scheme}.png")
            sheets = browser.paper(pictures and pictures / f"{page.stem}.pdf")
            print(f"{page.name}: {sheets} sheets of paper")
            if not 0 < sheets < 40:
                wrong.append(f"{page.name}: {sheets} sheets")
        good = (folder / "deepseek.html").read_text()
        for what, style, word in WRONG:
            bad = folder / "wrong.html"
            bad.write_text(good.replace("</style>", style + "</style>", 1))
            found = browser.open(bad, 390, "screen", "light")["bad"]
            if not any(word in text for text in found):
                wrong.append(f"not noticed: {what}: {found[:3]}")
        wrong += Pictures(browser, spillway, source, folder, accept).look()
        browser.end()
    for text in wrong[:60]:
        print(text, file=sys.stderr)
    print(f"{looked} views, {len(WRONG)} wrong pages rejected, {len(wrong)} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Pages as they are expected to look: small pictures in tests/pictures, of four pages on a desk and on a phone, light and dark.

The pages are made of answers that are stored beside the pictures, so that a picture changes when the page does, not when a figure does. Letters
are DejaVu Sans without hinting. A picture has one pixel for 4 x 4 of the screen; squares of 8 x 8 of its pixels are compared by their mean
colour. One square differs when red, green or blue is more than COLOUR of 255 away. What differs between machines is the edge of a letter, which
moves a mean by less; a text that is missing, has moved or lies on another moves it by more, and so does another colour.
"""

import base64
import gzip
import json
import pathlib

SCALE, SQUARE = 0.25, 8
COLOUR, SQUARES = 16, 2  # more than SQUARES that differ are a complaint
VIEWS = [(width, scheme) for width in (1280, 390) for scheme in ("light", "dark")]
FONT = "<style>* { font-family: 'DejaVu Sans' !important; }</style>"

ANSWERS = {  # what is stored, and the question
    "plan.json": ["plan", "--model", "qwen3-30b-a3b", "--cluster", "h100:8x4", "--scheme", "megatron-alltoall", "--scheme", "megatron-flex",
                  "--optimizer", "distributed", "--sequences-per-gpu", "1,4", "--expert-parallel", "8,16", "--micro-batches", "1", "--price", "2.5",
                  "--format", "json"],
    "other.json": ["plan", "--model", "qwen3-30b-a3b", "--cluster", "h200:8x4", "--scheme", "megatron-flex", "--optimizer", "distributed",
                   "--sequences-per-gpu", "8", "--micro-batches", "4", "--remat", "none", "--price", "3.5", "--format", "json"],
    "search.json": ["plan", "--search", "--model", "olmoe-1b-7b", "--cluster", "h100-1x8", "--optimizer", "distributed", "--scheme",
                    "megatron-alltoall", "--over", "pipeline=1,2", "--over", "micro-batches=1,2", "--price", "2", "--format", "json"],
    "replay.h5": ["replay", "traces/data/training_aux_e64_slice.h5", "--job", "sim/jobs/scratch-moe-e64.yaml"],
}
PAGES = {"plan": ["plan.json"], "search": ["search.json"], "replay": ["replay.h5"], "compare": ["plan.json", "other.json"]}

# How many squares of two pictures differ, and where the first does; of other sizes, the sizes.
COMPARE = r"""
(async (a, b, side, most) => {
  const load = async (data) => {
    const image = new Image();
    image.src = 'data:image/webp;base64,' + data;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext('2d');
    pen.drawImage(image, 0, 0);
    return pen.getImageData(0, 0, image.width, image.height);
  };
  const [was, is] = [await load(a), await load(b)], bad = [];
  if (was.width !== is.width || Math.abs(was.height - is.height) > side / 2) return {sizes: [was.width, was.height, is.width, is.height]};
  const high = Math.min(was.height, is.height);
  for (let y = 0; y < high; y += side) {
    for (let x = 0; x < was.width; x += side) {
      const sum = [0, 0, 0], across = Math.min(side, was.width - x), down = Math.min(side, high - y);
      for (let j = y; j < y + down; j++)
        for (let i = x; i < x + across; i++)
          for (let c = 0; c < 3; c++) sum[c] += is.data[4 * (j * is.width + i) + c] - was.data[4 * (j * was.width + i) + c];
      const off = Math.max(...sum.map((s) => Math.abs(s) / (across * down)));
      if (off > most) bad.push([x, y, Math.round(off)]);
    }
  }
  return {bad: bad.length, first: bad[0], worst: Math.max(0, ...bad.map((b) => b[2]))};
})"""

# What a change of the page could do, which the pictures must show, and one that is no change to a reader.
MUTANTS = [
    ("a picture is gone", "plan", "light", "figure svg, section svg, svg { visibility: hidden !important; }", True),
    ("the dark page has the letters of the light one", "search", "dark", ":root { --ink: #22262a !important; --soft: #4a5056 !important; }", True),
    ("the dark page is light", "compare", "dark", ":root { --paper: #ffffff !important; } body { background: #ffffff !important; }", True),
    ("the answer has moved", "replay", "light", "h1 { margin-left: 60px !important; }", True),
    ("a line lies on the next", "plan", "light", "h2 { margin-bottom: -24px !important; margin-top: 24px; }", True),
    ("letters drawn a little bolder, as another machine may", "plan", "light", "* { -webkit-text-stroke: 0.2px currentColor; }", False),
]


class Pictures:
    def __init__(self, browser, spillway, source, folder, accept):
        self.browser, self.spillway, self.accept = browser, spillway, accept
        self.stored, self.folder, self.source = source / "tests/pictures", folder, source

    def answers(self):
        """The stored answers, or with --accept those of today, unpacked."""
        for name, question in ANSWERS.items():
            packed, path = self.stored / f"{name}.gz", self.folder / f"pictured_{name}"
            if self.accept:
                self.stored.mkdir(exist_ok=True)
                if name.endswith(".h5"):
                    self.spillway(*question, "--output", path)
                else:
                    self.spillway(*question, to=path)
                packed.write_bytes(gzip.compress(path.read_bytes(), 9, mtime=0))
            elif packed.exists():
                path.write_bytes(gzip.decompress(packed.read_bytes()))
            else:
                raise SystemExit(f"browser.py: {packed} is missing; --accept makes it")

    def pages(self):
        for page, names in PAGES.items():
            path = self.folder / f"pictured_{page}.html"
            self.spillway("report", *(self.folder / f"pictured_{name}" for name in names), "--output", path)
            path.write_text(path.read_text().replace("</head>", FONT + "</head>", 1))
            yield page, path

    def taken(self, path, width, scheme):
        self.browser.open(path, width, "screen", scheme)
        size = self.browser.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": SCALE}
        return self.browser.call("Page.captureScreenshot", format="webp", quality=60, captureBeyondViewport=True, clip=clip)["data"]

    def differ(self, was, now):
        """"" where two pictures look alike, else what is different."""
        self.browser.call("Page.navigate", url="about:blank")  # the report's pages load no pictures
        words = ", ".join(map(json.dumps, (was, now, SQUARE, COLOUR)))
        got = self.browser.ask(f"{COMPARE}({words})")
        if "sizes" in got:
            return "{} x {} pixels were expected, and it has {} x {}".format(*(round(n / SCALE) for n in got["sizes"]))
        if got["bad"] <= SQUARES:
            return ""
        x, y, off = (round(n / s) for n, s in zip(got["first"], (SCALE, SCALE, 1)))
        return f"{got['bad']} squares of {round(SQUARE / SCALE)} pixels differ, the first at {x}, {y} by {off} of 255, one by {got['worst']}"

    def mutants(self):
        """Changes of the pages that the pictures must show."""
        for what, page, scheme, style, seen in MUTANTS:
            good = (self.folder / f"pictured_{page}.html").read_text()
            bad = self.folder / "mutant.html"
            bad.write_text(good.replace("</head>", f"<style>{style}</style></head>", 1))
            expected = base64.b64encode((self.stored / f"{page}_1280_{scheme}.webp").read_bytes()).decode()
            told = self.differ(expected, self.taken(bad, 1280, scheme))
            if bool(told) != seen:
                yield f"pictures: {'not noticed' if seen else 'noticed'}: {what}: {told}"

    def look(self):
        """Complaints about pages that look other than stored; with --accept what is seen is stored."""
        wrong, views = [], 0
        self.answers()
        for page, path in self.pages():
            for width, scheme in VIEWS:
                stored, now, views = self.stored / f"{page}_{width}_{scheme}.webp", self.taken(path, width, scheme), views + 1
                if self.accept:
                    stored.write_bytes(base64.b64decode(now))
                told = self.differ(base64.b64encode(stored.read_bytes()).decode(), now) if stored.exists() else "no picture is stored"
                if told:
                    (self.folder / f"new_{stored.name}").write_bytes(base64.b64decode(now))
                    wrong.append(f"{stored.name}: {told}; ./run browser --accept stores what it looks like now")
        wrong += self.mutants()
        print(f"{views} pictures {'stored' if self.accept else 'compared'}, {len(MUTANTS)} changes tried, {len(wrong)} complaints", flush=True)
        return wrong

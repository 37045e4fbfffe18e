"""A page of `spillway report` as Python's own HTML parser reads it, and checks that are counted."""
import html.parser
import json
import pathlib
import re
import shutil
import sys

from replay_case import run

program, unit = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
folder, root = pathlib.Path(sys.argv[3]).resolve() / pathlib.Path(sys.argv[0]).stem, pathlib.Path(sys.argv[4]).resolve()
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
failures, checks = [], 0
GIB, VOID = 2.0**30, {"meta", "br"}


def expect(what, good, detail=""):
    global checks
    checks += 1
    if not good:
        failures.append(f"{what}: {detail}")


class Node:
    def __init__(self, tag, attributes=(), parent=None):
        self.tag, self.attributes, self.parent, self.parts = tag, dict(attributes), parent, []

    def all(self, tag=None, mark=None):
        for part in self.parts:
            if isinstance(part, Node):
                if (tag is None or part.tag == tag) and (mark is None or mark in part.attributes.get("class", "").split()):
                    yield part
                yield from part.all(tag, mark)

    def text(self):
        return "".join(part if isinstance(part, str) else part.text() for part in self.parts)

    def values(self):
        return [float(node.attributes["value"]) for node in self.all("data")]


class Page(html.parser.HTMLParser):
    """Every element is closed, in order; whatever could fetch or run something is a failure."""
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.root = self.at = Node("")
        self.feed(text)
        self.close()
        expect("html", self.at is self.root, f"<{self.at.tag}> is left open")
        places = [node.attributes["id"] for node in self.root.all() if "id" in node.attributes]
        expect("html", len(set(places)) == len(places), f"places that stand twice: {places}")
        links = {node.attributes["href"][1:] for node in self.root.all("a")}
        expect("html", links <= set(places), f"links to nowhere: {links - set(places)}")

    def handle_starttag(self, tag, attributes):
        expect("html", tag not in ("script", "iframe", "img", "link", "object", "embed", "base", "form", "image", "use", "foreignobject"),
               f"<{tag}>")
        expect("html", len({name for name, _ in attributes}) == len(attributes), f"<{tag}> has an attribute twice")
        for name, value in attributes:
            expect("html", not name.startswith("on") and name not in ("src", "xlink:href", "srcset", "action"), f"<{tag} {name}={value!r}>")
            expect("html", name != "href" or (tag == "a" and re.fullmatch(r"#[a-z-]+", value)), f"<{tag} {name}={value!r}>")
        node = Node(tag, attributes, self.at)
        self.at.parts.append(node)
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):
            self.at = node

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        expect("html", self.at.tag == tag, f"</{tag}> closes <{self.at.tag}>")
        self.at = self.at.parent or self.at

    def handle_data(self, data):
        self.at.parts.append(data)

    def handle_decl(self, declaration):
        expect("html", declaration == "DOCTYPE html", declaration)

    def section(self, head):
        found = [s for s in self.root.all("section") if any(h.text() == head for h in s.all("h2"))]
        expect("html", len(found) == 1, f"{len(found)} sections '{head}'")
        return found[0] if found else Node("")


def report(result, *extra, name=None):
    """The page of a result, made in silence and the same twice."""
    out = folder / (name or "report.html")
    for _ in range(2):
        before = out.read_bytes() if out.exists() else None
        done = run(program, "report", result, "--output", out, *extra)
        expect(f"report {result}", done.returncode == 0 and not done.stderr and not done.stdout, f"{done.returncode} {done.stderr}")
    text = out.read_text()
    expect(f"report {result}", before is None or before == out.read_bytes(), "the same result makes another page")
    expect(f"report {result}", "url(" not in text and "@import" not in text and "http://" not in text.replace("http-equiv", ""),
           "the page refers to something outside of it")
    expect(f"report {result}", "default-src 'none'" in text, "no content policy")
    out.unlink()
    return Page(text)


def replayed(what, trace, job, *arguments, cwd=None):
    """A replay that writes a result; its JSON."""
    result = folder / f"{what}.h5"
    done = run(program, "replay", trace, "--job", job, "--output", result, "--format", "json", *arguments, cwd=cwd)
    if done.returncode != 0:
        sys.exit(f"{what}: {done.stderr}")
    return result, json.loads(done.stdout)


def close(a, b, within=1e-12):
    return abs(a - b) <= within * max(abs(a), abs(b), 1e-300)


def finish(least):
    """Ends the test, in which nothing failed and enough was checked."""
    for failure in failures[:40]:
        print("FAIL", failure[:1500])
    print(f"{checks} checks, {len(failures)} failed")
    sys.exit(1 if failures or checks < least else 0)

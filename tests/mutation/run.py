#!/usr/bin/env python3
"""Do the tests notice a mistake? Every row of mutations.tsv is a change of one line: in a scratch copy of the tree the change is
made, what its test needs is built, and the test must fail. It must pass without the change, within 30 s, and be no golden
file of the command line, which would only say that something is different.

run.py ROOT --check            the rows fit the tree: one file, one place, a test; nothing is built
run.py ROOT --build FOLDER [--only FILE...] [--sample N [--turn T]]
                               FOLDER is kept between runs; --only: the rows of these files;
                               --sample: N rows, others from one turn (default: the day) to the next"""
import argparse
import collections
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

MOST_SECONDS = 30
FOLDERS = ("base", "traces", "reference", "kernels", "sim")
GOLDEN = re.compile(r"cli(_|$)|\w+_kept$")  # and what keeps sums of answers
Row = collections.namedtuple("Row", "line file old new test")


def read_rows(table):
    lines = [(n, text) for n, text in enumerate(table.read_text().splitlines(), 1) if text and not text.startswith("#")]
    rows = [Row(n, *text.split("\t")) for n, text in lines[1:]]
    if lines[0][1] != "file\tfrom\tto\ttest" or not rows:
        sys.exit(f"{table}: the first line must be file, from, to and test between tabs, and rows must follow")
    return rows


def find(root, row):
    """The one file of that name and the one place in it; a message instead where there is none."""
    paths = [path for folder in FOLDERS for path in (root / folder).rglob(row.file)]
    if len(paths) != 1:
        return None, f"{len(paths)} files are called {row.file}"
    count = paths[0].read_text().count(row.old)
    if count != 1:
        return None, f"'{row.old}' is {count} times in {row.file}: make the same mistake in the code as it is now, or another one"
    return paths[0], None


def check(root, rows):
    """Every row fits the tree, no two are the same, and tests that it names are declared."""
    declared = " ".join(path.read_text() for path in (root / "tests").rglob("CMakeLists.txt"))
    bad = []
    for row in rows:
        path, message = find(root, row)
        if path is not None and (row.old == row.new or "\n" in row.old):
            message = "the change changes nothing"
        if not re.search(rf"(?<![\w-]){re.escape(row.test)}(?![\w-])", declared):
            message = f"there is no test {row.test}"
        if GOLDEN.match(row.test):
            message = f"{row.test} is a golden file"
        if message:
            bad.append(f"mutations.tsv:{row.line}: {message}")
    rooms = {path.parent.relative_to(root).as_posix() for path in (find(root, row)[0] for row in rows) if path}
    for folder in ("traces", "reference", *(p.relative_to(root).as_posix() for p in (root / "sim").iterdir() if list(p.rglob("*.c")))):
        if not any(room == folder or room.startswith(folder + "/") for room in rooms):
            bad.append(f"mutations.tsv: no mistake is made in {folder}/")
    return bad


def copy_tree(root, to):
    """The files of the working tree that git knows or would know; unchanged ones keep their time, so that little is built anew."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, check=True)
    names = [name for name in listed.stdout.decode().split("\0") if name and (root / name).is_file()]
    for name in names:
        source, target = root / name, to / name
        if not target.exists() or target.read_bytes() != source.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for path in sorted(to.rglob("*"), reverse=True):
        if path.is_file() and path.relative_to(to).as_posix() not in set(names) and "__pycache__" not in path.parts:
            path.unlink()


class Tree:
    """The copy and its build."""

    def __init__(self, root, folder):
        self.source, self.build, self.root = folder / "source", folder / "build", root
        copy_tree(root, self.source)
        self.run("cmake", "-S", self.source, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_C_FLAGS=-O1",
                 "-DPython3_EXECUTABLE=" + sys.executable)
        self.commands = {}
        for path in self.build.rglob("CTestTestfile.cmake"):  # ctest itself does not say what a program is that is not built yet
            for name, words in re.findall(r"^add_test\(\[=\[(.*?)\]=\] (.*)\)$", path.read_text(), re.M):
                self.commands[name] = re.findall(r'"([^"]*)"', words)

    def run(self, *command, check=True):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if check and done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}:\n{(done.stdout + done.stderr)[-4000:]}")
        return done

    def make(self, tests, check=True):
        """Builds the programs that stand in the commands of the tests."""
        words = {pathlib.Path(word) for test in tests for word in self.commands[test]}
        known = set(self.run("ninja", "-C", self.build, "-t", "targets", "all").stdout.replace(": ", "\n").splitlines())
        targets = [name for name in (str(w.relative_to(self.build)) for w in words if w.is_relative_to(self.build)) if name in known]
        return self.run("ninja", "-C", self.build, *sorted(targets), check=check)

    def test(self, name):
        """Whether the test passes, and the seconds of processor time that it takes; a test that does not end has failed."""
        spent = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        start = spent()
        done = self.run("ctest", "--test-dir", self.build, "-R", f"^{name}$", "--timeout", 4 * MOST_SECONDS, "--no-tests=error", check=False)
        return done.returncode == 0, spent() - start


def mutate(tree, row):
    """None when the test notices the change, else what happened."""
    path = find(tree.source, row)[0]
    whole = path.read_text()
    path.write_text(whole.replace(row.old, row.new))
    try:
        built = tree.make([row.test], check=False)
        if built.returncode != 0:
            return "does not compile: " + (re.search(r"error: .*", built.stdout) or ["?"])[0]
        passed, _ = tree.test(row.test)
        return f"{row.test} does not notice" if passed else None
    finally:
        path.write_text(whole)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--sample", type=int)
    parser.add_argument("--turn", type=int, default=int(time.time() // 86400))
    parser.add_argument("--only", nargs="+", metavar="FILE")
    o = parser.parse_args()
    root = o.root.resolve()
    rows = read_rows(pathlib.Path(__file__).resolve().parent / "mutations.tsv")
    bad = check(root, rows)
    if o.check or bad:
        print("\n".join([*bad, f"{len(rows)} rows, {len(bad)} that do not fit"]))
        sys.exit(1 if bad or len(rows) < 30 else 0)
    if o.only:
        rows = [row for row in rows if row.file in o.only]
    if o.sample and o.sample < len(rows):
        first = o.turn * o.sample % len(rows)
        rows = (rows + rows)[first:first + o.sample]
    if not rows or o.build is None:
        parser.error("no row is left" if o.build else "--build FOLDER is missing")
    tree = Tree(root, o.build.resolve())
    tests = list(dict.fromkeys(row.test for row in rows))
    tree.make(tests)
    for test in tests:
        passed, seconds = tree.test(test)
        if not passed or seconds > MOST_SECONDS:
            bad.append(f"{test} {f'takes {seconds:.0f} s' if passed else 'fails'} without any change")
    for row in rows if not bad else []:
        start = time.monotonic()
        message = mutate(tree, row)
        print(f"{'noticed' if message is None else 'MISSED '} {time.monotonic() - start:5.1f} s  {row.file}: {row.old}  ->  {row.new}"
              f"  ({message or row.test})", flush=True)
        bad += [f"mutations.tsv:{row.line}: {message}"] if message else []
    print("\n".join([*bad, f"{len(rows)} mistakes, {len(bad)} problems"]))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Manual pages and completions against the help of the program: every option of every command is in its page, in the
completions for bash and zsh, and none that is not; what bash is offered; every example of a manual works, run in order.

manual.py SPILLWAY MADE SCRATCH ROOT    MADE holds what spillway-manual wrote"""
import gzip
import os
import pathlib
import re
import shlex
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import program as caller

program, made, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:5])
failures, checks = [], 0


def check(good, what):
    global checks
    checks += 1
    if not good:
        failures.append(what)


def run(*words, **options):
    return caller.call([str(w) for w in words], capture_output=True, text=True, **options)


def groups_of(text):
    """By option, the heading above it in a help text."""
    found, heading = {}, None
    for line in text.splitlines():
        head, option = re.fullmatch(r" ([A-Z][a-z ]+):", line), re.match(r" +(?:-\S, +)?--([a-z][\w-]*)", line)
        heading = head[1] if head else None if line == "" else heading
        if option:
            found[option[1]] = heading
    return found


def options_of(text):
    return set(re.findall(r"^ +(?:-\S, +)?--([a-z][\w-]*)", text, re.M))


def plain(troff):
    return re.sub(r"\\f[BRI]", "", troff).replace(r"\-", "-").replace(r"\(aq", "'").replace(r"\e", "\\")


# Commands and parts, as their help lists them.
names = re.findall(r"^  ([a-z-]+) ", run(program, "--help").stdout, re.M)
names.remove("help")
TOPICS = ("schemes", "models", "clusters", "routing", "words")
whole = []
for name in names:
    parts = re.findall(r"^  ([a-z-]+) ", run(program, name, "--help").stdout, re.M) if name in ("trace", "calibrate", "bench") else []
    whole += [f"{name} {part}" for part in parts] or [name]
check(len(whole) > 15, f"commands: {whole}")
pages = {path.name.removesuffix(".gz"): gzip.decompress(path.read_bytes()).decode() for path in made.glob("*.gz")}
check(set(pages) == {f"spillway-{name.replace(' ', '-')}.1" for name in [*whole, "trace", "calibrate", "bench"]} |
      {"spillway.1", "spillway-job.5", "spillway-cluster.5"} | {f"spillway-{topic}.7" for topic in TOPICS}, f"pages: {sorted(pages)}")
for name, text in pages.items():
    check(re.search(r'^\.TH \S+ [157] "20\d\d-\d\d-\d\d" "Spillway \d', text, re.M), f"{name}: no heading")
    check(re.search(r"^\.SH NAME\n" + re.escape(name[:-2].replace("-", r"\-")) + r" \\- \S", text, re.M), f"{name}: NAME")
    for section in ("DESCRIPTION", "SEE ALSO", *(("SYNOPSIS", "EXIT STATUS") if name.endswith(".1") else ("KEYS",) if name.endswith(".5") else ())):
        check(f"\n.SH {section}\n" in text, f"{name}: no {section}")
    for other, section in re.findall(r"\\fB(\S+)\\fR\(([157])\)", text):
        check(f"{plain(other)}.{section}" in pages, f"{name}: there is no {plain(other)}({section})")

bash = made / "spillway"
ask = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }; _spillway; '
       'printf "%s\\n" "${COMPREPLY[@]}"')


def offered(*words):
    done = run("bash", "-c", ask, "bash", bash, "spillway", *words, cwd=scratch)
    check(done.stderr == "", f"completion of {words}: {done.stderr}")
    return {line for line in done.stdout.split("\n") if line}


shutil.rmtree(scratch, ignore_errors=True)
scratch.mkdir(parents=True)
zsh = (made / "_spillway").read_text()
for name in whole:
    helped = options_of(run(program, *name.split(), "--help").stdout)
    page = pages[f"spillway-{name.replace(' ', '-')}.1"]
    there = set(re.findall(r"--([a-z][\w-]*)", "\n".join(
        line for line in map(plain, re.findall(r"^\.TP\n(.*)", page.split(".SH OPTIONS")[1].split("\n.SH ")[0], re.M)))))
    check(there == helped, f"page of {name}: {there ^ helped}")
    there = {word[2:] for word in offered(*name.split(), "--")}
    check(there == helped, f"bash, {name}: {there ^ helped}")
    part = zsh.split(f"    ('{name}') _arguments")[1].split(";;")[0]
    there = set(re.findall(r"^        '\*--([\w-]+)", part, re.M)) | {"help", "usage"}
    check(there == helped, f"zsh, {name}: {there ^ helped}")

# Options of commands on a job stand in groups, the same in help and page; every command has four examples below its options.
for name in ("plan", "replay", "explain", "job"):
    groups = groups_of(run(program, name, "--help").stdout.split("\nExamples:\n")[0])
    check(len(set(groups.values())) >= 4, f"{name}: groups {set(groups.values())}")
    heads = re.findall(r'^\.SS "(.*)"', pages[f"spillway-{name}.1"].split(".SH OPTIONS")[1].split("\n.SH ")[0], re.M)
    check(len(heads) == len(set(heads)), f"page of {name}: headings {heads}")
    page, heading = {}, None
    for line in map(plain, pages[f"spillway-{name}.1"].split(".SH OPTIONS")[1].split("\n.SH ")[0].splitlines()):
        head, option = re.match(r'\.SS "(.*)"', line), re.match(r"(?:-\S, )?--([a-z][\w-]*)", line)
        heading = head[1] if head else heading
        if option:
            page[option[1]] = heading
    for option in groups:
        check(option in ("help", "usage") or (groups[option] is not None and groups[option] == page.get(option)),
              f"{name} --{option}: group {groups[option]} in the help, {page.get(option)} in the page")
for name in names:
    helped = "".join(run(program, *full.split(), "--help").stdout for full in whole if full.split()[0] == name)
    there = re.findall(r"^  spillway (\S+)", helped.split("\nExamples:\n")[-1] if name in whole else helped, re.M)
    check(len(there) >= {"doctor": 1, "report": 2, "ask-xla": 0}.get(name, 4), f"{name}: {len(there)} examples")
    check(set(there) <= {name}, f"{name}: examples of {set(there)}")
    check(max(map(len, helped.splitlines())) < 80, f"{name}: a line of the help over 79 characters")

# What bash offers, from what the program and the tree know.
refused = run(program, "explain", "--job", root / "sim/jobs/scratch-moe-e64.yaml", "--scheme", "none-such").stderr
schemes = set(refused.split("known schemes: ")[1].strip().split(", "))
models = {path.stem for path in (root / "sim/models").glob("*.json")}
clusters = {path.stem for path in (root / "sim/clusters").glob("*.yaml")}
words = re.search(r"^remat: .*one of: (.*), or several, .* of: (.*)", re.sub(r"\n +", " ", run(program, "help", "job").stdout), re.M)
remats = {name for part in words.groups() for name in part.split(", ")}
formats = set(re.findall(r"^  ([\w-]+): ", run(program, "trace", "import", "--help").stdout, re.M))
for name in ("a.h5", "b.json", "c.yaml", "d.txt"):
    (scratch / name).touch()
(scratch / "folder").mkdir()
cases = {
    ("",): set(names) | {"help", "--help", "--version"}, ("tr",): {"trace"},
    ("help", ""): set(names) | {"job", "cluster", *TOPICS},
    ("trace", "s"): {"slice"},
    ("plan", "--scheme", ""): schemes,
    ("plan", "--scheme", "=", "deepep"): {s for s in schemes if s.startswith("deepep")},
    ("plan", "--scheme", "dense", ":", "cap"): {"capacity_factor="},
    ("plan", "--remat", ""): remats,
    ("replay", "a.h5", "--format", ""): {"table", "json", "csv"},
    ("replay", ""): {"a.h5", "folder/"},
    ("replay", "--job", ""): {"c.yaml", "folder/"},
    ("plan", "--model", ""): models | {"b.json", "folder/"},
    ("plan", "--cluster", "=", "mi3"): {c for c in clusters if c.startswith("mi3")},
    ("plan", "--tokens", ""): set(), ("plan", "--all", "--until", ""): {"oom", "step="},
    ("trace", "import", ""): formats | {path.name for path in scratch.iterdir()} ^ {"folder", "folder/"},
    ("explain", "--as", "s"): {"simumax"},
}
for words, want in cases.items():
    got = offered(*words)
    check(got == want, f"bash, {words}: {got ^ want}")

# The examples.
for path in scratch.iterdir():
    path.rmdir() if path.is_dir() else path.unlink()
(scratch / "notebooks_data").symlink_to(root / "notebooks_data")
(scratch / "train.sh").write_text((pathlib.Path(__file__).parents[2] / "frameworks/megatron_mixtral_8x7b.sh").read_text())
lines = [plain(line).strip() for line in re.findall(r"^\.ad l\n(\\fB.*)\n\.ad$", pages["spillway.1"].replace("\\fR", ""), re.M)]
check(len(lines) >= 10, f"{len(lines)} examples")
for line in lines:
    words = shlex.split(line)
    done = run(program, *words[1:], cwd=scratch, env={**os.environ, "OMP_NUM_THREADS": "2"})
    check(words[0] == "spillway" and done.returncode == 0 and "the cluster has" not in done.stderr, f"{line}: {done.returncode} {done.stderr}")

print("\n".join(failures))
print(f"{checks} checks, {len(failures)} failed")
sys.exit(1 if failures or not checks else 0)

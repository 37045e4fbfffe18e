#!/usr/bin/env python3
"""Manners of the command line and of the house: --help of every command and of every part of one ends with status 0 and says something on
stdout alone; the version is the one of CMakeLists.txt, CHANGELOG.md and CITATION.cff,
whose sections have a version and a date; one thing is no "1 things"; nothing stray lies at the top level.

manners.py SPILLWAY ROOT"""
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import program as caller

program, root = sys.argv[1], pathlib.Path(sys.argv[2])
failures, checks = [], 0


def check(good, what):
    global checks
    checks += 1
    if not good:
        failures.append(what)


def run(*words):
    return caller.call([program, *words], capture_output=True, text=True)


def helped(*words):
    """The help of a command; the words that begin its indented lines, which may be its parts."""
    for asked in ("--help", "-?", "help") if not words else ("--help",):
        if words or asked != "-?":
            done = run(*words, asked)
            check(done.returncode == 0 and done.stdout.lower().startswith(" ".join(("usage: spillway", *(w for w in words if w != "help")))) and not done.stderr,
                  f"{' '.join(words)} {asked}: {done.returncode} {done.stdout[:80]!r} {done.stderr!r}")
    return re.findall(r"^  ([a-z]+) ", done.stdout, re.M)


commands = helped()
check({"trace", "replay", "calibrate", "bench"} <= set(commands), f"commands: {commands}")
for command in commands:
    parts = helped(command)
    for part in parts if command in ("trace", "calibrate", "bench") else []:
        helped(command, part)
    check(len(parts) > 1 or command not in ("trace", "calibrate", "bench"), f"{command} has the parts {parts}")

version = re.search(r"project\(spillway VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text())[1]
done = run("--version")
check((done.returncode, done.stdout, done.stderr) == (0, f"spillway {version}\n", ""), f"--version: {done}")
plain = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
for more in ({}, {"OMP_NUM_THREADS": "1000000"}):  # the program starts itself again, with threads that wait
    done = subprocess.run([program, "--version"], capture_output=True, text=True, env={**plain, **more})
    check((done.returncode, done.stdout, done.stderr) == (0, f"spillway {version}\n", ""), f"--version, {more}: {done}")
changes = re.findall(r"^## (.*)", (root / "CHANGELOG.md").read_text(), re.M)
check(changes[0].split()[0] == version, f"CHANGELOG.md begins with {changes[0]}, not with {version}")
cited = (root / "CITATION.cff").read_text()
check(f"\nversion: {version}\n" in cited and f'"{changes[0][-11:-1]}"' in cited, f"CITATION.cff has not the version and the date of {changes[0]}")
for heading in changes:
    check(re.fullmatch(r"\d+\.\d+\.\d+ \(20\d\d-\d\d-\d\d\)", heading), f"CHANGELOG.md: '{heading}' is not 'VERSION (DATE)'")

# doctor: what it finds against what Python finds; a plan needs no temporary file.
done = caller.call([program, "doctor"], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "2", "TMPDIR": "/tmp"})
found = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()}
check(done.returncode == 0 and {"threads", "memory", "HDF5", "GSL", "temporary"} <= {what for what, state in found.items() if state == "works"}, f"doctor: {done}")
check(f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GiB in this machine" in done.stdout, f"doctor, memory: {done.stdout}")
check(re.search(r"^threads .* 2 threads on .*OMP_NUM_THREADS is 2$", done.stdout, re.M), f"doctor, threads: {done.stdout}")
done = caller.call([program, "doctor"], capture_output=True, text=True, env={**os.environ, "TMPDIR": "/no/such/folder"})
check(done.returncode == 0 and re.search("^temporary +absent .*/no/such/folder: No such file.*set TMPDIR", done.stdout, re.M), f"doctor without TMPDIR: {done}")
small = [program, "plan", "--model", "olmoe-1b-7b", "--cluster", "h200:8x1", "--sequences-per-gpu", "1", "--sequence-length", "64", "--scheme", "megatron-alltoall"]
done = caller.call(small, capture_output=True, text=True, env={**os.environ, "TMPDIR": "/no/such/folder"})
check(done.returncode == 0, f"a plan without a trace writes no file: {done}")

things = r"(sequences|steps|layers|MoE layers|source ranks|micro-batches|stages|tokens)"
for path in sorted((root / "tests/cli").rglob("*.*")):
    if path.suffix in (".out", ".err"):
        for line in path.read_text().splitlines():
            check(not re.search(rf"(?<![\d.x:-])(?<!x )\b1 {things}\b(?! a GPU)", line), f"{path.name}: {line}")

# What may stand at the top level. A folder or file more is a decision, not a by-product: it goes here and into CONTRIBUTING.md.
FOLDERS = {"base", "docs", "kernels", "notebooks_data", "packaging", "python", "reference", "sim", "tests", "traces"}
FILES = {"CHANGELOG.md", "CITATION.cff", "CMakeLists.txt", "CMakePresets.json", "CONTRIBUTING.md", "Dockerfile", "LICENSE", "NOTICE", "README.md", "run"}
if (root / ".git").exists():
    listed = subprocess.run(["git", "-C", root, "-c", "safe.directory=*", "ls-tree", "HEAD", "--name-only"], capture_output=True, text=True, check=True)
    there = {name for name in listed.stdout.splitlines() if not name.startswith(".")}
    check(there == FOLDERS | FILES, f"at the top level: stray {sorted(there - FOLDERS - FILES)}, missing {sorted((FOLDERS | FILES) - there)}")

print("\n".join(failures))
print(f"{checks} checks, {len(failures)} failed")
sys.exit(1 if failures or not checks else 0)

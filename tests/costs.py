#!/usr/bin/env python3
"""Processor time of tests, each run by itself: costs.py BUILD [REGEX]... prints it, the costliest first.

costs.py BUILD --write puts those that need more than 2 s into tests/slow.tsv, which the configuration reads: all others have the label
`fast`. costs.py BUILD --check holds the labels to the tree and runs nothing."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

FAST_S = 2.0
here = pathlib.Path(__file__).resolve().parent
table = here / "slow.tsv"
build, words = sys.argv[1], sys.argv[2:]


def tests_of(folder):
    told = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1"], capture_output=True, text=True, check=True).stdout
    for test in json.loads(told)["tests"]:
        yield test["name"], test.get("command"), {p["name"]: p["value"] for p in test.get("properties", [])}


def listed():
    lines = (line.split("\t") for line in table.read_text().splitlines() if line and not line.startswith("#"))
    return {name: float(seconds) for name, seconds in lines}


def check():
    """Every test has a room's label; a room is a folder, or `house`. What is listed as slow is a test, and not fast."""
    rooms = {path.name for top in (".", "sim", "kernels", "tests") for path in (here.parent / top).iterdir() if path.is_dir()} | {"house"}
    bad, tests = [], list(tests_of(build))
    for name, _, properties in tests:
        labels = properties.get("LABELS", [])
        bad += [f"{name} has the label {label}, which is no room" for label in labels if label not in rooms | {"fast"}]
        if not set(labels) - {"fast"}:
            bad.append(f"{name} has no room: spw_tests_of(ROOM) behind it in its CMakeLists.txt")
        if ("fast" in labels) == (name in listed()):
            bad.append(f"{name} is {'in' if name in listed() else 'neither fast nor in'} tests/slow.tsv: configure again")
    for name in listed():  # not of this machine: a sanitizer, no MPI
        if not re.search(rf"\b{name}\b", "".join(path.read_text() for path in here.rglob("CMakeLists.txt"))) and not name.startswith("cli_"):
            bad.append(f"tests/slow.tsv: there is no test {name}")
    print("\n".join([*bad, f"{len(tests)} tests, {len(bad)} faults"]))
    return bool(bad) or len(tests) < 100


def processor_s(command, properties):
    child = subprocess.Popen(command, cwd=properties.get("WORKING_DIRECTORY"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL,
                             env=os.environ | {"OMP_WAIT_POLICY": "passive"} | dict(e.split("=", 1) for e in properties.get("ENVIRONMENT", [])))
    _, status, used = os.wait4(child.pid, 0)
    return used.ru_utime + used.ru_stime, status


def measure():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background ignores it, and tests that interrupt what they start would wait
    patterns = [word for word in words if not word.startswith("--")]
    cost = {}
    for name, command, properties in tests_of(build):
        if properties.get("DISABLED") or (patterns and not any(re.search(p, name) for p in patterns)):
            continue
        cost[name], status = processor_s(command, properties)
        if status != 0 and "PASS_REGULAR_EXPRESSION" not in properties:
            print(f"{name} fails", file=sys.stderr)
        print(f"{cost[name]:8.2f} {name}", flush=True)
    print(f"\n{sum(cost.values()):.1f} s of {len(cost)} tests; the costliest:")
    for name in sorted(cost, key=cost.get, reverse=True)[:30]:
        print(f"{cost[name]:8.2f} {name}")
    if "--write" in words:
        slow = {name: seconds for name, seconds in {**(listed() if table.exists() else {}), **cost}.items() if seconds > FAST_S}
        rows = "".join(f"{name}\t{seconds:.1f}\n" for name, seconds in sorted(slow.items()))
        table.write_text("# Tests that need more than 2 s of processor time, in seconds: tests/costs.py BUILD --write\n" + rows)
    return False


sys.exit(check() if "--check" in words else measure())

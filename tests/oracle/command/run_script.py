#!/usr/bin/env python3
"""./run spillway configures where that is needed and builds the program alone; on a tree that is configured as asked it builds at once.

run_script.py ROOT    The tools in front of which it stands are stand-ins that write down what they were asked."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(sys.argv[1])
checks = failures = 0

TOOLS = {
    "cmake": """#!/bin/sh
echo "$*" >> "$LOG"
[ "$1" = --preset ] || exit 0
mkdir -p build/release/sim
for word in "$@"; do case "$word" in -DSPW_TESTS=*) tests=${word#*=} ;; -DSPW_SANITIZE_WHOLE=*) whole=${word#*=} ;; esac; done
printf 'CMAKE_HOME_DIRECTORY:INTERNAL=%s\\nSPW_TESTS:BOOL=%s\\nSPW_SANITIZE_WHOLE:BOOL=%s\\n' "$PWD" "$tests" "$whole" > build/release/CMakeCache.txt
touch build/release/build.ninja
printf '#!/bin/sh\\necho "$@"\\n' > build/release/sim/spillway
chmod +x build/release/sim/spillway
""",
    "dpkg-query": """#!/bin/sh
case "$*" in -W\\ -f*) echo "install ok installed" ;; *) exit "$LACKS_TESTS" ;; esac
"""}


def check(good, what):
    global checks, failures
    checks += 1
    if not good:
        failures += 1
        print(f"FAILED: {what}")


with tempfile.TemporaryDirectory() as scratch:
    at = pathlib.Path(scratch)
    tools, tree = at / "tools", at / "tree"
    tools.mkdir()
    tree.mkdir()
    for name, text in TOOLS.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    shutil.copy(root / "run", tree)
    (tree / "CMakePresets.json").write_text("{}\n")
    os.utime(tree / "CMakePresets.json", (1, 1))

    def asked(folder, lacks=0):
        """What cmake was asked by one ./run spillway."""
        log = at / "log"
        log.write_text("")
        done = subprocess.run([folder / "run", "spillway", "plan", "a b"], capture_output=True, text=True,
                              env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "LOG": str(log), "LACKS_TESTS": str(lacks)})
        check(done.returncode == 0 and done.stdout == "plan a b\n", f"./run spillway: {done.returncode} {done.stdout!r} {done.stderr!r}")
        return log.read_text().splitlines()

    def configures(lines, tests="ON", fresh=False):
        words = lines[0].split() if lines else []
        return len(lines) == 2 and words[:2] == ["--preset", "release"] and f"-DSPW_TESTS={tests}" in words and ("--fresh" in words) == fresh

    build = "--build --preset release --target spillway"
    first = asked(tree)
    check(configures(first) and first[-1] == build, f"at first: {first}")
    check(asked(tree) == [build], "a configured tree is configured again")
    check(configures(asked(tree, lacks=1), tests="OFF"), "packages of the tests are gone: it must be configured without them")
    check(asked(tree, lacks=1) == [build], "configured without tests, and again")
    check(configures(asked(tree)), "packages of the tests have come: it must be configured with them")
    os.utime(tree / "CMakePresets.json", (time.time() + 60, time.time() + 60))
    check(configures(asked(tree)), "the presets have changed: it must be configured")
    os.utime(tree / "CMakePresets.json", (1, 1))
    shutil.copytree(tree, at / "copy")
    check(configures(asked(at / "copy"), fresh=True), "a tree that was copied must be configured afresh")
    check(asked(at / "copy") == [build], "a copied tree is configured again")

print(f"{checks} checks, {failures} failed")
sys.exit(failures > 0 or checks == 0)

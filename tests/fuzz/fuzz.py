#!/usr/bin/env python3
"""Fuzzes one target after the other, and goes on where it stopped: fuzz.py BUILD MINUTES [TARGET]...

BUILD is the folder of `cmake --preset fuzz`. Every target gets so many minutes of processor time in all, in slices. What it found stands in
BUILD/fuzz/NAME: corpus/, found/ (inputs that crash, hang or take too much memory) and log; BUILD/fuzz/spent.json has the processor seconds.
Without TARGET all that are built. Ends with 1 when anything was found.

fuzz.py BUILD --minimise [TARGET]... adds to tests/fuzz/corpus what libFuzzer needs to reach all that was reached: at most 100 inputs, of all
sizes, up to 48 kB a target with those that are there (--most KILOBYTES), which stay."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SLICE_S = 120  # of wall time
HANG_S, MEMORY_MB = 25, 2048
MOST_NEW = 100  # inputs that --minimise adds to a corpus
here = pathlib.Path(__file__).resolve().parent
words = sys.argv[1:]
most = int(words.pop(words.index("--most") + 1)) * 1024 if "--most" in words else 48 * 1024
words = [word for word in words if word != "--most"]
build = pathlib.Path(words[0]).resolve()
minimise = words[1] == "--minimise"
programs = build / "tests/fuzz"
targets = words[2:] or sorted(path.stem for path in here.glob("fuzz_*.c")
                              if path.stem not in ("fuzz_input", "fuzz_replay_main") and (programs / path.stem).exists())


def place(target):
    root = build / "fuzz" / target
    for name in ("corpus", "found"):
        (root / name).mkdir(parents=True, exist_ok=True)
    return root


def shipped(target):
    return here / "corpus" / target.removeprefix("fuzz_")


def program_of(target):
    """Where strangers' files are read in a child process, the variant that reads them in its own."""
    alone = programs / (target + "_in_process")
    return alone if alone.exists() else programs / target


def fuzz_once(target, seconds):
    root, program = place(target), program_of(target)
    command = [program, root / "corpus", shipped(target), f"-max_total_time={seconds}", f"-timeout={HANG_S}", f"-rss_limit_mb={MEMORY_MB}",
               f"-artifact_prefix={root / 'found'}/", "-print_final_stats=1", "-verbosity=1"]
    if program.name.endswith("_in_process"):  # HDF5 crashes there; a child of the program bears it
        command += ["-fork=1", "-ignore_crashes=1"]
    with open(root / "log", "ab") as log:
        child = subprocess.Popen([str(word) for word in command], cwd=root, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                 env={**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=1" + (":detect_leaks=0" if len(command) > 10 else "")})
        _, status, used = os.wait4(child.pid, 0)
    return used.ru_utime + used.ru_stime, status


def fuzz(minutes):
    record = build / "fuzz/spent.json"
    record.parent.mkdir(exist_ok=True)
    spent = json.loads(record.read_text()) if record.exists() else {}
    while True:
        left = [target for target in targets if spent.get(target, 0.0) < 60 * minutes]
        if not left:
            break
        for target in left:
            used, status = fuzz_once(target, SLICE_S)
            spent[target] = spent.get(target, 0.0) + used
            record.write_text(json.dumps(spent, indent=1))
            found = len(list((place(target) / "found").iterdir()))
            print(f"{target}: {spent[target] / 60:.1f} minutes, {len(list((place(target) / 'corpus').iterdir()))} inputs, "
                  f"{found} found{'' if status == 0 else f', ended with {status:#x}'}", flush=True)
    return any(any((place(target) / "found").iterdir()) for target in targets if not program_of(target).name.endswith("_in_process"))


def merge(target):
    root, kept = place(target), shipped(target)
    with tempfile.TemporaryDirectory() as folder:
        merged = pathlib.Path(folder)
        subprocess.run([str(programs / target), "-merge=1", f"-timeout={HANG_S}", folder, str(kept), str(root / "corpus")], check=True,
                       cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       env={**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=1:detect_leaks=0"})
        had = {path.read_bytes() for path in kept.iterdir()}
        size = sum(len(data) for data in had)
        new = sorted((path for path in merged.iterdir() if path.read_bytes() not in had), key=lambda path: path.stat().st_size)
        for path in new[::max(1, len(new) // MOST_NEW)][:MOST_NEW]:
            size += path.stat().st_size
            if size <= most:
                shutil.copy(path, kept / path.name)
    print(f"{target}: {len(had)} inputs before, {len(list(kept.iterdir()))} of {sum(p.stat().st_size for p in kept.iterdir())} bytes now")


if minimise:
    for name in targets:
        merge(name)
    sys.exit(0)
sys.exit(fuzz(float(words[1])))

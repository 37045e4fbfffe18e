#!/usr/bin/env python3
"""Lets one call of the C library after another fail under every command of the program, and judges what comes of it.

For every call k of an operation (an allocation, a write, a read, a close, an fsync, a rename, a fork, a thread ...)
the command runs once with that call failing. It must end in one of two ways:
  exit 0  with the output and the files of a run without faults, bit for bit;
  exit 3  with one message that names the kind of the failure, with the old files as they were;
and it leaves nothing behind in either case.

sweep.py SPILLWAY FAIL_CALL.so SCRATCH [--command NAME]... [--operation NAME]... [--sample N] [--jobs N] [--table FILE]
  --sample N  at most N faults a command and kind, spread evenly, first and last among them (default: every call)
"""
import argparse
import concurrent.futures
import errno
import io
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import threading
import time

import h5py

import cases

OPERATIONS = ["alloc", "write", "read", "close", "sync", "rename", "truncate", "open", "create", "fork", "pipe", "thread", "lose"]
# The ways in which a call of an operation fails: errno (0: half of the bytes), and whether all calls after it do too.
WAYS = {
    "alloc": [(errno.ENOMEM, ""), (errno.ENOMEM, ":on")],
    "write": [(errno.ENOSPC, ""), (errno.ENOSPC, ":on"), (errno.EIO, ""), (0, "")],
    "read": [(errno.EIO, ""), (errno.EIO, ":on"), (0, "")],
    "close": [(errno.EIO, ""), (errno.ENOSPC, ":on")],
    "sync": [(errno.EIO, ""), (errno.EIO, ":on")],
    "rename": [(errno.EIO, "")],
    "truncate": [(errno.EIO, ""), (errno.ENOSPC, ":on")],
    "open": [(errno.EMFILE, ""), (errno.EIO, ""), (errno.EMFILE, ":on")],
    "create": [(errno.EACCES, "")],
    "fork": [(errno.EAGAIN, "")],
    "pipe": [(errno.EMFILE, "")],
    "thread": [(errno.EAGAIN, ""), (errno.EAGAIN, ":on")],
    "lose": [(0, "")],
}
MEMORY = re.compile(r"memory|allocate")
SLANDER = re.compile(r"damaged|not YAML|not JSON|not HDF5|no HDF5|cut short|wrong checksum")
OLD = b"what stood here before\n" * 64
TIMEOUT = 1800  # a call that hangs; a busy machine is slower than any shorter limit


class Worker:
    """A folder of its own in which one process at a time runs."""

    def __init__(self, options, number):
        self.folder = options.scratch / f"worker{number}"
        self.folder.mkdir(parents=True)
        self.counts = options.scratch / f"counts{number}"
        self.environment = {
            "PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": str(options.scratch), "TMPDIR": ".",
            "OMP_WAIT_POLICY": "passive", "LD_PRELOAD": str(options.shim), "SPW_FAULT_COUNTS": str(self.counts),
        }

    def run(self, program, case, fault):
        """(exit status, stdout, stderr, {file: bytes}, calls of every operation + how many failed)"""
        for path in self.folder.iterdir():
            path.unlink()
        for name in case.outputs:
            (self.folder / name).write_bytes(OLD)
        self.counts.write_bytes(bytes(8 * (len(OPERATIONS) + 1)))
        environment = dict(self.environment, OMP_NUM_THREADS=str(case.threads))
        if fault is not None:
            environment["SPW_FAULT"] = fault
        try:
            done = subprocess.run([program, *case.arguments], cwd=self.folder, env=environment, capture_output=True,
                                  stdin=subprocess.DEVNULL, timeout=TIMEOUT)
            status, out, err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            status, out, err = "timeout", late.stdout or b"", late.stderr or b""
        files = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        return status, out, err, files, struct.unpack(f"{len(OPERATIONS) + 1}Q", self.counts.read_bytes())


def content(data):
    """What an HDF5 file says, whatever its bytes: without memory HDF5 stores a chunk uncompressed."""
    said = {}

    def take(name, item):
        said[name] = {key: repr(value) for key, value in item.attrs.items() if key not in ("DIMENSION_LIST", "REFERENCE_LIST")}
        if isinstance(item, h5py.Dataset):
            said[name]["content"] = (str(item.dtype), item.shape, item[()].tobytes() if item.dtype.kind != "O" else repr(item[()]))

    with h5py.File(io.BytesIO(data), "r") as file:
        take("/", file)
        file.visititems(take)
    return said


def same(name, got, want):
    if got == want:
        return True
    try:
        return got is not None and name.endswith(".h5") and content(got) == content(want)
    except (OSError, RuntimeError, KeyError):
        return False


def judge(case, operation, clean, got):
    """The class of an ending, and what is wrong with it (None: nothing)."""
    status, out, err, files, _ = got
    text = err.decode("utf-8", "replace")
    left = sorted(set(files) - set(case.outputs))
    if status == "timeout":
        return "timeout", "does not end"
    if status < 0:
        return "crash", f"signal {-status}"
    if status == clean[0]:
        if out != clean[1]:
            return "silent", "another output"
        # What was written may be said in fewer words, never in others.
        if err != clean[2] and not (err and clean[2].startswith(err.rstrip(b"\n"))):
            return "silent", f"says {text.strip()[:120]}"
        for name in case.outputs:
            if not same(name, files.get(name), clean[3][name]):
                return "silent", f"{name} differs"
        return ("leftovers", " ".join(left)) if left else ("right", None)
    if status != 3:
        return "status", f"exit {status}: {text.strip()[:160]}"
    for name in case.outputs:
        if "is complete" in text and files.get(name) == clean[3][name]:
            continue  # the one failure after the rename: the folder cannot be brought to the disk
        if files.get(name) != OLD:
            return "lost", f"{name} is not what it was"
    if left:
        return "leftovers", " ".join(left)
    lines = text.splitlines()
    if not lines or not lines[-1].startswith("spillway: "):
        return "message", f"{len(lines)} lines: {text.strip()[:160]}"
    if operation == "alloc" and not MEMORY.search(text):
        return "message", text.strip()[:200]
    if operation != "alloc" and SLANDER.search(text):
        return "message", text.strip()[:200]
    return "exit 3", None


def chosen(count, sample):
    """Which of `count` calls fail: all, or so many of them, evenly spread, first and last among them."""
    if not sample or count <= sample:
        return range(count)
    return sorted({round(i * (count - 1) / max(1, sample - 1)) for i in range(sample)})


CLASSES = ["right", "exit 3", "silent", "status", "crash", "timeout", "lost", "leftovers", "message"]


class Sweep:
    def __init__(self, options):
        self.options = options
        self.workers = [Worker(options, i) for i in range(options.jobs)]
        self.free = list(self.workers)
        self.lock = threading.Lock()
        self.totals = {}
        self.shown = {}

    def run(self, case, fault):
        with self.lock:
            worker = self.free.pop()
        try:
            return worker.run(self.options.spillway, case, fault)
        finally:
            with self.lock:
                self.free.append(worker)

    def one(self, case, clean, operation, number, way, after):
        fault = f"{operation}:{number}:{way}{after}"
        got = self.run(case, fault)
        if got[4][-1] == 0:  # the call was not made this time: threads share work in another order
            return fault, None, None
        return (fault, *judge(case, operation, clean, got))

    def command(self, pool, case):
        clean = self.run(case, None)
        if clean[0] not in (0,) or self.run(case, None)[:4] != clean[:4]:
            sys.exit(f"{case.name}: is not the same twice: exit {clean[0]}, {clean[2].decode()[:300]}")
        tasks = []
        for index, operation in enumerate(OPERATIONS):
            if self.options.operation and operation not in self.options.operation:
                continue
            for way, after in WAYS[operation]:
                for number in chosen(clean[4][index], self.options.sample):
                    tasks.append(pool.submit(self.one, case, clean, operation, number, way, after))
        totals = {}
        for task in concurrent.futures.as_completed(tasks):
            fault, verdict, why = task.result()
            if verdict is None:
                continue
            kind = "alloc" if fault.startswith("alloc") else "io"
            row = totals.setdefault(kind, dict.fromkeys(CLASSES, 0))
            row[verdict] += 1
            if why is None:
                continue
            key = (case.name, verdict, re.sub(r"\d+", "N", why))
            self.shown[key] = self.shown.get(key, 0) + 1
            if self.shown[key] <= 2:
                print(f"  {case.name} {fault}: {verdict}: {why}", flush=True)
        self.totals[case.name] = totals
        for kind, row in totals.items():
            print(f"{case.name:14} {kind:6}", " ".join(f"{name} {count}" for name, count in row.items() if count),
                  flush=True)

    def bad(self):
        return sum(row[name] for kinds in self.totals.values() for row in kinds.values() for name in CLASSES[2:])

    def tried(self):
        return sum(sum(row.values()) for kinds in self.totals.values() for row in kinds.values())

    def table(self):
        head = ["command", "faults", "calls", "right result", "exit 3", "silent difference", "wrong status", "crash",
                "old file lost", "left behind", "wrong message"]
        lines = ["| " + " | ".join(head) + " |", "|---|---|" + "---:|" * (len(head) - 2)]
        for name, kinds in self.totals.items():
            for kind, row in kinds.items():
                lines.append(f"| {name} | {kind} | {sum(row.values())} | {row['right']} | {row['exit 3']} | {row['silent']} | "
                             f"{row['status']} | {row['crash'] + row['timeout']} | {row['lost']} | {row['leftovers']} | "
                             f"{row['message']} |")
        return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("spillway", type=pathlib.Path)
    parser.add_argument("shim", type=pathlib.Path)
    parser.add_argument("scratch", type=pathlib.Path)
    parser.add_argument("--command", action="append", default=[])
    parser.add_argument("--operation", action="append", default=[], choices=OPERATIONS)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--table", type=pathlib.Path)
    options = parser.parse_args()
    for name in ("spillway", "shim", "scratch"):
        setattr(options, name, getattr(options, name).resolve())
    shutil.rmtree(options.scratch, ignore_errors=True)
    options.scratch.mkdir(parents=True)
    todo = [case for case in cases.make(options.spillway, options.scratch / "inputs")
            if not options.command or case.name in options.command]
    sweep, begin = Sweep(options), time.time()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for case in todo:
            sweep.command(pool, case)
    if options.table:
        options.table.write_text(sweep.table())
    print(f"{len(todo)} commands, {sweep.tried()} faults, {sweep.bad()} ended wrongly, {time.time() - begin:.0f} s")
    for (name, verdict, why), count in sorted(sweep.shown.items(), key=lambda item: -item[1]):
        print(f"  {count:6} {name} {verdict}: {why}")
    sys.exit(1 if sweep.bad() or not sweep.tried() else 0)


if __name__ == "__main__":
    main()

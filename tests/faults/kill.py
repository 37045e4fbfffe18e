#!/usr/bin/env python3
"""Ends writers by signals at random moments. What stood at the output stands there still, or the whole new file does; and no
temporary file is left, by any signal. SIGKILL goes to the program that was started, to the process that works for it, or
to both at once, as when a group of processes is killed; in the last case the next run removes what was left.

kill.py SPILLWAY SCRATCH [--kills N] [--seed N] [--table FILE]"""
import argparse
import collections
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import cases

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
from processes import HANG_S, wait_for_group  # noqa: E402

OLD = b"what stood here before\n" * 64
SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGABRT", "SIGKILL", "worker", "group"]
LARGER = ["--experts", "64", "--top-k", "8", "--layers", "4", "--steps", "4", "--ranks", "4", "--tokens-per-rank", "512"]


def children(pid):
    """Of the main thread, which is the only one that forks."""
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


class Killer:
    def __init__(self, options):
        self.options, self.random = options, random.Random(options.seed)
        self.scratch = options.scratch / "kill"
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.inputs, self.folder = self.scratch / "inputs", self.scratch / "work"
        self.folder.mkdir(parents=True)
        self.all = {case.name: case for case in cases.make(options.spillway, self.inputs)}
        self.environment = dict(os.environ, OMP_WAIT_POLICY="passive", TMPDIR=".")

    def start(self, case):
        for path in self.folder.iterdir():
            path.unlink()
        for name in case.outputs:
            (self.folder / name).write_bytes(OLD)
        return subprocess.Popen([self.options.spillway, *case.arguments], cwd=self.folder, env=self.environment,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def kill(self, process, how):
        if how == "group":
            os.killpg(process.pid, signal.SIGKILL)
        elif how == "worker":
            for worker in children(process.pid):
                os.kill(worker, signal.SIGKILL)
        else:
            process.send_signal(getattr(signal, how))

    def whole(self, case, new):
        """None, or what is wrong with an output; `new`: bytes of a whole one, in which a time may differ."""
        for name in case.outputs:
            data = (self.folder / name).read_bytes() if (self.folder / name).exists() else None
            if data == OLD:
                return None
            if data is None or abs(len(data) - new[name]) > 64:
                return f"{name} is torn"
        return None

    def left(self, case):
        return sorted(path.name for path in self.folder.iterdir() if path.name not in case.outputs)

    def one(self, case, how, seconds, new):
        process = self.start(case)
        time.sleep(self.random.random() * seconds * 1.1)
        self.kill(process, how)
        process.wait(timeout=HANG_S)
        # A worker ends by itself when the program was killed, and leaves nothing either.
        gone = wait_for_group(process.pid)
        wrong, left = self.whole(case, new), self.left(case)
        if left and how == "group":
            subprocess.run([self.options.spillway, *case.arguments], cwd=self.folder, env=self.environment,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            left = self.left(case)
        return wrong or (None if gone else "a process goes on") or (f"left {' '.join(left)}" if left else None)

    def case(self, case, table):
        times = []
        for _ in range(3):
            begin = time.time()
            self.start(case).wait()
            times.append(time.time() - begin)
        new = {name: (self.folder / name).stat().st_size for name in case.outputs}
        for how in SIGNALS:
            for _ in range(self.options.kills):
                wrong = self.one(case, how, sorted(times)[1], new)
                table[how, "whole" if wrong is None else "wrong"] += 1
                if wrong:
                    print(f"  {case.name} {how}: {wrong}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("spillway", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("scratch", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--kills", type=int, default=1, help="of every signal and command")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", type=pathlib.Path)
    killer = Killer(parser.parse_args())
    table = collections.Counter()
    larger = cases.Case("generate", ["trace", "generate", "out.h5", *LARGER], ["out.h5"])
    for name in ("slice", "import", "replay-output", "report", "plan", "record", "calibrate"):
        killer.case(killer.all[name], table)
    killer.case(larger, table)
    lines = ["| signal | kills | old or whole new file, nothing left | wrong |", "|---|---:|---:|---:|"]
    for how in SIGNALS:
        good, bad = table[how, "whole"], table[how, "wrong"]
        lines.append(f"| {how} | {good + bad} | {good} | {bad} |")
    if killer.options.table:
        killer.options.table.write_text("\n".join(lines) + "\n")
    bad = sum(count for (_, verdict), count in table.items() if verdict == "wrong")
    print(f"{sum(table.values())} kills, {bad} wrong")
    sys.exit(1 if bad or not table else 0)


if __name__ == "__main__":
    main()

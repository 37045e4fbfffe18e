#!/usr/bin/env python3
"""Runs of the whole program in a hostile place: forged traces, absurd environments, FIFOs, full devices, large and misleading
files, many rows. It must answer or refuse in a line, in time; it must not crash, wait for ever or read for nothing.

hostile_runs.py SPILLWAY SCRATCH ROOT"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from processes import HANG_S, drawn_on_terminal, processor_s

program, folder, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
folder = folder / "hostile_runs"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
failures, checks = [], 0
SLOW = 12 if "asan" in str(program) or "tsan" in str(program) else 1


def check(good, what):
    global checks
    checks += 1
    if not good:
        failures.append(what)


def run(*arguments, **keywords):
    environment = dict(os.environ, **keywords.pop("environment", {}))
    return subprocess.run([program, *map(str, arguments)], cwd=folder, env=environment, text=True, timeout=HANG_S,
                          **{"capture_output": True, "stdin": subprocess.DEVNULL, **keywords})


def one_line(done, status, words, what):
    said = done.stderr.rstrip("\n")
    check(done.returncode == status, f"{what}: exit {done.returncode}, want {status}: {said!r}")
    check("\n" not in said and words in said, f"{what}: {said!r} does not say '{words}' in a line")


files = root / "tests" / "cli" / "files"
for name in ("job.yaml", "model.json", "cluster.yaml"):
    if (files / name).exists():
        shutil.copy(files / name, folder)
for path in files.iterdir():
    if path.is_file():
        shutil.copy(path, folder)
made = run(*(files / "trace.arguments").read_text().split())
check(made.returncode == 0, f"the trace: {made.stderr}")

# --- A forged attribute that HDF5 does not survive: the slice is refused, or done, and never a crash ---
forged = bytearray((root / "tests/fuzz/corpus/trace/weights.h5").read_bytes())
for value in (2, 128, 255):
    forged[1096] = value
    (folder / "forged.h5").write_bytes(forged)
    done = run("trace", "slice", "forged.h5", "slice.h5")
    check(done.returncode in (0, 3), f"forged.h5, {value}: exit {done.returncode}: {done.stderr}")
    if done.returncode == 3:
        one_line(done, 3, "damaged", f"forged.h5, {value}")

# --- Threads that no machine has ---
for threads in ("100000", "99999999999"):
    for command in (["replay", "trace.h5", "--job", "job.yaml"], ["trace", "slice", "trace.h5", "slice.h5"],
                    ["verify", "--random", "1"]):
        done = run(*command, environment={"OMP_NUM_THREADS": threads})
        check(done.returncode == 0, f"{threads} threads, {command}: exit {done.returncode}: {done.stderr}")

# --- What cannot be printed is an error, in a help too ---
with open("/dev/full", "w") as full:
    for command in (["help"], ["replay", "--help"], ["trace", "info", "trace.h5"]):
        done = run(*command, capture_output=False, stdout=full, stderr=subprocess.PIPE)
        one_line(done, 3, "standard output", f"{command} on a full device")

# --- FIFOs: refused where nobody writes, read where somebody does ---
os.mkfifo(folder / "fifo")
for command in (["replay", "trace.h5", "--job", "fifo"], ["replay", "fifo", "--job", "job.yaml"], ["score", "fifo"],
                ["report", "fifo", "--output", "r.html"],
                ["trace", "import", "array", "fifo", "--output", "o.h5", "--experts", "8", "--top-k", "2", "--axes", "tokens,layers,k"],
                ["trace", "import", "megatron-router", "fifo", "--output", "o.h5", "--experts", "8", "--top-k", "2", "--ranks", "1"]):
    done = run(*command)  # one that waits for a FIFO waits for ever
    check(done.returncode == 3 and "fifo" in done.stderr, f"{command}: exit {done.returncode}: {done.stderr}")
job = root / "sim" / "jobs" / "deepseek-v3-mi355x.yaml"
writer = subprocess.Popen(["sh", "-c", f"sleep 3; cat '{job}'"], stdout=subprocess.PIPE)
piped = run("explain", "--job", "/dev/stdin", "--scheme", "gmm", stdin=writer.stdout)
check(piped.returncode == 0 and "gmm" in piped.stdout, f"a job from a slow pipe: {piped.stderr}")
writer.wait()

# --- A file of 200 GB that is no array, or whose header does not fit it: told by its first bytes ---
for header in (False, True):
    with open(folder / "large.npy", "wb") as file:
        if header:
            np.lib.format.write_array_header_1_0(file, {"descr": "<i4", "fortran_order": False, "shape": (10, 2, 2)})
        file.truncate(200 << 30)
    begin = processor_s()
    done = run("trace", "import", "array", "large.npy", "--output", "o.h5", "--experts", "8", "--top-k", "2",
               "--axes", "tokens,layers,k")
    one_line(done, 3, "large.npy", "a large file that is no array")
    check(processor_s() - begin < 10, "a large file that is no array is read whole")
(folder / "large.npy").unlink()

# --- A report of many sentences takes time in proportion; one of many values is refused before it fills the memory ---
check(run("replay", "trace.h5", "--job", "job.yaml", "--output", "r.h5").returncode == 0, "a result")


def forge_result(rows, sentences, junk):
    """The first result `rows` times, each with sentences of its own."""
    shutil.copy(folder / "r.h5", folder / "many.h5")
    with h5py.File(folder / "many.h5", "r+") as file:
        summary = json.loads(file["summary_json"][()])
        results = len(summary["rows"])
        first = json.dumps(summary["rows"][0])
        summary["rows"] = []
        for row in range(rows):
            summary["rows"].append(json.loads(first))
            summary["rows"][-1]["assumptions"] = [f"{row} assumes {i}, and says so at some length" for i in range(sentences)]
        summary["answers"].update(least_memory=0, order=list(range(rows)), front=[0])
        summary["junk"] = [1] * junk
        text = json.dumps(summary, separators=(",", ":")).encode()
        del file["summary_json"]
        file.create_dataset("summary_json", data=np.bytes_(text), dtype=f"S{len(text)}")
        for name in list(file):
            data = file[name]
            if name == "summary_json" or name in ("step", "layer", "rank") or not data.shape or data.shape[0] != results:
                continue
            values = data[...]
            del file[name]
            file.create_dataset(name, data=np.arange(rows) if name == "result" else np.repeat(values[:1], rows, 0))
    return len(text)


forge_result(64, 1024, 0)
begin = processor_s()
done = run("report", "many.h5", "--output", "r.html")
check(done.returncode == 0, f"a report of 65,536 sentences: {done.stderr}")
taken = processor_s() - begin
check(taken < 10 * SLOW, f"a report of 65,536 sentences takes {taken:.0f} s")
check((folder / "r.html").read_text().count("and says so at some length") >= 65536, "a sentence is missing from the report")
length = forge_result(1, 1, 6_000_000)
one_line(run("report", "many.h5", "--output", "r.html"), 3, "values", f"a result of 6 million values in {length} bytes")

# --- A table of many steps ---
check(run("trace", "generate", "steps.h5", "--experts", 12, "--top-k", 3, "--layers", 1, "--steps", 4000,
          "--ranks", 4, "--tokens-per-rank", 16, "--distribution", "uniform").returncode == 0, "4,000 steps")
taken = {}
for form in ("csv", "table"):
    begin = processor_s()
    done = run("replay", "steps.h5", "--job", "job.yaml", "--each-step", "--format", form)
    taken[form] = processor_s() - begin
    check(done.returncode == 0, f"--each-step as {form}: {done.stderr}")
check(taken["table"] < 4 * taken["csv"] + 2 * SLOW, f"--each-step: {taken} s")

# --- A check of a large trace shows where it is, on a terminal ---
check(run("trace", "generate", "wide.h5", "--experts", 64, "--top-k", 8, "--layers", 24, "--steps", 1, "--ranks", 8,
          "--tokens-per-rank", 16384, "--distribution", "zipf:exponent=1").returncode == 0, "a large step")
for command in (["trace", "verify", "wide.h5"], ["verify", "--trace", "wide.h5", "--layers", "0:1"]):
    said, _ = drawn_on_terminal([program, *command], re.compile(rb"verify \["), to_end=False, cwd=folder)
    check("verify [" in said, f"{command}: no bar: {said[:300]!r}")

# --- The same run gives the same bytes ---
for i in (1, 2):
    check(run("replay", "trace.h5", "--job", "job.yaml", "--output", f"same{i}.h5", environment={"OMP_NUM_THREADS": str(i)}).returncode == 0,
          "a result")
    time.sleep(1.1)
check((folder / "same1.h5").read_bytes() == (folder / "same2.h5").read_bytes(), "two results of the same run differ")

# --- Names and arguments that would steer a terminal or turn a text around ---
evil = "\x1b[31m\u202eX\u2066\u200f\x7f"
shutil.copy(folder / "trace.h5", folder / f"{evil}.h5")
with h5py.File(folder / f"{evil}.h5", "r+") as file:
    for key in ("source", "license", "generator", "created", "note"):
        file.attrs[key] = evil
    file["model"].attrs["name"] = evil
quoted = "\\e[31m\u202e"
(folder / f"{evil}.json").write_text((folder / "model.json").read_text())
cluster = (folder / "cluster.yaml").read_text().replace("two-nodes", f'"{quoted}"').replace("made for", f"made {quoted} for")
(folder / f"{evil}.yaml").write_text(cluster)
(folder / "evil_job.yaml").write_text((folder / "job.yaml").read_text())
for command in (["replay", f"{evil}.h5", "--job", "job.yaml"], ["replay", f"{evil}.h5", "--job", "job.yaml", "--format", "csv"],
                ["replay", f"{evil}.h5", "--job", "job.yaml", "--format", "json"], ["trace", "info", f"{evil}.h5"],
                ["trace", "info", f"{evil}.h5", "--format", "json"], ["trace", "verify", f"{evil}.h5"],
                ["plan", "--job", "job.yaml", "--trace", f"{evil}.h5"], ["explain", "--job", "job.yaml", "--scheme", evil],
                ["replay", f"{evil}.h5", "--job", "job.yaml", "--output", f"{evil}.result"], ["report", f"{evil}.result", "--output", "evil.html"],
                [evil], ["trace", evil], ["bench", evil], ["score", evil], ["verify", evil], ["plan", evil], ["replay", evil, evil],
                ["replay", f"-{evil}"], ["replay", f"--{evil}=1"], ["trace", "import", evil, "x"], ["calibrate", "memory", evil, "--stack", evil],
                ["replay", "trace.h5", "--job", evil], ["replay", "trace.h5", "--job", "job.yaml", "--scheme", evil],
                ["replay", "trace.h5", "--job", "job.yaml", "--allocator", evil], ["trace", "generate", evil, "--distribution", evil]):
    done = run(*command)
    said = done.stdout + done.stderr
    odd = [c for c in said if (ord(c) < 32 and c not in "\n\t") or c in "\u202e\u2066\u200f\x7f\x1b"]
    check(not odd, f"{command}: {odd[:4]} in {said[:200]!r}")
    check(done.returncode in (0, 2, 3) and "ended by" not in said, f"{command}: exit {done.returncode}: {said[-200:]}")
page = (folder / "evil.html").read_text()
check(not any(c in page for c in "\x1b\u202e\u2066\u200f"), "a report holds what its names held")
done = run("replay", f"{evil}.h5", "--job", "job.yaml", "--format", "json")
check(done.stdout.isascii() and json.loads(done.stdout)["trace"]["model"] == evil if "model" in json.loads(done.stdout)["trace"]
      else done.stdout.isascii(), "JSON is not ASCII, or lost a character")

# --- Paths of more than a kilobyte still say what is wrong; marks of byte order; numbers ---
long_path = "/".join(c * 200 for c in "abcdefg")
for command in (["replay", long_path, "--job", "job.yaml"], ["replay", "trace.h5", "--job", long_path], ["score", long_path]):
    one_line(run(*command), 3, "No such file", f"{command[0]} of a long path")
(folder / "marked.json").write_bytes(b"\xef\xbb\xbf" + (folder / "model.json").read_bytes())
(folder / "marked.yaml").write_bytes(b"\xef\xbb\xbf" + (folder / "job.yaml").read_bytes().replace(b"model.json", b"marked.json"))
check(run("replay", "trace.h5", "--job", "marked.yaml").returncode == 0, "a job and a model with marks of byte order")
(folder / "real.json").write_text((folder / "model.json").read_text().replace("4096,", "4096.0,", 1))
(folder / "real.yaml").write_text((folder / "job.yaml").read_text().replace("model.json", "real.json").replace("expert: 4", "expert: 4.0"))
check(run("replay", "trace.h5", "--job", "real.yaml").returncode == 0, "4096.0 and 4.0 are whole numbers")
(folder / "half.json").write_text((folder / "model.json").read_text().replace("4096,", "4096.5,", 1))
(folder / "half.yaml").write_text((folder / "job.yaml").read_text().replace("model.json", "half.json"))
one_line(run("replay", "trace.h5", "--job", "half.yaml"), 2, "4096.5", "half a channel")
for tokens in ("0x10B", "0x1p4", "1e400", "inf", "nan", " 5"):
    one_line(run("plan", "--job", "job.yaml", "--trace", "trace.h5", "--tokens", tokens), 2, "--tokens", f"--tokens {tokens!r}")
(folder / "wide.yaml").write_text((folder / "cluster.yaml").read_text().replace("nodes: 2", "nodes: 65537").replace("gpus_per_node: 2", "gpus_per_node: 1"))
(folder / "wide_job.yaml").write_text((folder / "job.yaml").read_text().replace("cluster.yaml", "wide.yaml").replace("fsdp: 1", "fsdp: 65537").replace("expert: 4", "expert: 1"))
done = run("plan", "--job", "wide_job.yaml")
check(done.returncode == 2 and "65536" in done.stderr, f"65,537 GPUs: exit {done.returncode}: {done.stderr}")

print(f"{checks} checks, {len(failures)} failed")
for failure in failures:
    print("FAIL", failure)
sys.exit(1 if failures or not checks else 0)

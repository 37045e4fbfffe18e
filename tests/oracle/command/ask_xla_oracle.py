#!/usr/bin/env python3
"""spillway ask-xla with a stand-in for Python, MaxText and XLA: what it is asked is what `plan --flags maxtext` writes, what it
answers becomes a row that score and calibrate read, and what goes wrong is told by name. And the script's own parsers, on dumps
written by hand. ask_xla_oracle.py SPILLWAY ROOT SCRATCH"""
import csv
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

program, root, scratch = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
scratch /= "ask_xla"
shutil.rmtree(scratch, ignore_errors=True)
scratch.mkdir(parents=True)
failed = checks = 0


def check(good, what):
    global failed, checks
    checks += 1
    if not good:
        failed += 1
        print(f"FAIL {what}")


STUB = '''#!%s
import json, os, sys
assert sys.argv[1] == "-c" and "def compile_step" in sys.argv[2]
open("request.json", "w").write(sys.argv[3])
mode = os.environ.get("STUB", "answers")
if mode == "fails":
    print("ValueError: model_name nobody", file=sys.stderr)
    sys.exit(1)
if mode == "dies":
    os.kill(os.getpid(), 9)
if mode == "speaks":
    print("hello")
    sys.exit(0)
print(json.dumps({"argument_bytes": 4380026824, "temporary_bytes": 12919920832, "output_bytes": 1, "peak_gib": "1.75x3 1 0.4375",
                  "jax": "0.12.0.1", "maxtext": "0.2.5", "attention": "opaque", "seconds": 1, "left_out": ["grain"]}))
'''
stub = scratch / "stub"
stub.write_text(STUB % sys.executable)
stub.chmod(0o755)
JOB = ("--model mixtral-8x7b --cluster h200:8x8 --expert-parallel 8 --sequence-length 4096 --sequences-per-gpu 1 --precision bf16 "
       "--scheme ring").split()


def run(*arguments, mode="answers"):
    environment = dict(os.environ, STUB=mode, LC_ALL="C", OMP_NUM_THREADS="1")
    return subprocess.run([program, *arguments], cwd=scratch, env=environment, capture_output=True, text=True, check=False)


def ask(*arguments, mode="answers"):
    return run("ask-xla", *arguments, "--python", "./stub", mode=mode)


def pairs_of(*job):
    return dict(re.findall(r"^ +(\w+)=(\S+?)(?: \\)?$", run("plan", *job, "--flags", "maxtext").stdout, re.M))


# What is asked
got = ask(*JOB, "--format", "json")
check(got.returncode == 0, got.stderr)
request = json.loads((scratch / "request.json").read_text())
check(request["settings"] == pairs_of(*JOB) and len(request["settings"]) > 12, f"settings {request['settings']}")
check(request["settings"]["grad_dtype"] == "bfloat16" and request["settings"]["use_ring_of_experts"] == "true", "formats")
check((request["nodes"], request["gpus_per_node"], request["generation"], request["maxtext"]) == (8, 8, "hopper", None), str(request))
deepseek = ["deepseek-v3" if a == "mixtral-8x7b" else a for a in JOB]
got = ask(*deepseek, "--output", "other.csv", "--maxtext", "somewhere")
request = json.loads((scratch / "request.json").read_text())
check(request["settings"]["model_name"] == "deepseek3-671b" and request["maxtext"] == "somewhere", "MaxText's own name of a model")

# What is answered
rows = list(csv.DictReader(open(scratch / "asked_xla.csv")))
check(len(rows) == 1, f"{len(rows)} rows")
row = rows[0]
want = {"model": "mixtral-8x7b", "cluster": "h200:8x8", "scheme": "ring", "expert_parallel": "8", "fsdp": "8", "pipeline": "1",
        "sequences_per_gpu": "1", "sequence_length": "4096", "remat": "full", "precision": "bf16", "status": "compiled",
        "argument_bytes": "4380026824", "temporary_bytes": "12919920832", "peak_gib": "1.75x3 1 0.4375",
        "stack": "maxtext@0.2.5+xla-cuda-0.12.0.1-default"}
check(all(row[k] == v for k, v in want.items()), f"row {row}")
answer = {a["what"]: a for a in json.loads(ask(*JOB, "--format", "json", "--id", "again").stdout)}
explained = json.loads(run("explain", *JOB, "--stack", "xla-cuda-0.12.0-maxtext-0.2.5", "--format", "json").stdout)
said = [e for e in explained if e["moment"] == "fullest"][-1]["upto_bytes"]
check(abs(answer["total"]["predicted_bytes"] - said) < 1e-6 * said, "the prediction is explain's")
check(answer["temporaries"]["xla_bytes"] == 12919920832.0, "XLA's figure")
check(abs(answer["total"]["error"] - (said / (4380026824 + 12919920832) - 1)) < 1e-6, "the error")
rows = list(csv.DictReader(open(scratch / "asked_xla.csv")))
check([r["id"] for r in rows][1:] == ["again"] and rows[0] == row, "a second row, behind the first")
text = ask(*JOB).stdout
check("grain" in text and "xla-cuda-0.12.0-maxtext-0.2.5" in text and "XLA GiB" in text, text)

# Who reads the table
score = json.loads(run("score", "asked_xla.csv", "--format", "json").stdout)
check(len(score["rows"]) == 3 and not score["skipped_rows"], "score reads it")
check(abs(score["rows"][0]["true_temporary_gib"] - 12919920832 / 2**30) < 1e-9, "score's figure")
for scheme in ("gmm", "ring", "ragged"):
    ask(*[scheme if a == "ring" else a for a in JOB])
fitted = run("calibrate", "memory", "asked_xla.csv", "--stack", "xla-cuda-0.12.0-maxtext-0.2.5")
check(fitted.returncode == 0 and "6 figures" in fitted.stdout, fitted.stdout + fitted.stderr)

# Micro-batches: the table counts per_device_batch_size
more = [*JOB[:JOB.index("--sequences-per-gpu")], "--sequences-per-gpu", "8", "--precision", "bf16", "--scheme", "ring", "--set",
        "batch.micro_batches=4", "--output", "parts.csv"]
check(ask(*more).returncode == 0, "micro-batches")
parts = list(csv.DictReader(open(scratch / "parts.csv")))[0]
check((parts["micro_batches"], parts["sequences_per_gpu"]) == ("4", "2"), str(parts))
check(json.loads(run("score", "parts.csv", "--format", "json").stdout)["rows"][0]["sequences_per_gpu"] == 8, "score multiplies again")

# What goes wrong
(scratch / "foreign.csv").write_text("id,scheme\nx,gmm\n")
before = (scratch / "asked_xla.csv").read_bytes()
for what, arguments, mode, words in (
        ("fails", JOB, "fails", ["model_name nobody", "exit status 1"]),
        ("dies", JOB, "dies", ["signal 9"]),
        ("speaks", JOB, "speaks", ["argument_bytes"]),
        ("foreign table", [*JOB, "--output", "foreign.csv"], "answers", ["foreign.csv", "'scheme'", "'model'"]),
        ("two schemes", [*JOB, "--scheme", "gmm"], "answers", ["one scheme"]),
        ("AMD", ["mi355x:8x8" if a == "h200:8x8" else a for a in JOB], "answers", ["NVIDIA"]),
        ("tensor", [*JOB, "--tensor", "2"], "answers", ["tensor 2"]),
        ("a scheme of Megatron-Core", ["megatron-alltoall" if a == "ring" else a for a in JOB], "answers", ["maxtext"])):
    got = ask(*arguments, mode=mode)
    check(got.returncode != 0 and all(w in got.stderr for w in words), f"{what}: {got.returncode} {got.stderr}")
got = run("ask-xla", *JOB, "--python", "./nobody")
check(got.returncode != 0 and "./nobody: does not start" in got.stderr, got.stderr)
check((scratch / "asked_xla.csv").read_bytes() == before, "no row of a failure")

# The script's parsers
spec = importlib.util.spec_from_file_location("ask_xla", root / "python/spillway_moe/ask_xla.py")
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
ASSIGNMENT = """allocation 0: size 4096, parameter 0, shape |bf16[2048]|:
 value: <1 p.1 @0> (size=4096,offset=0): bf16[2048]{0}
allocation 1: size 4294967296, page 0, preallocated-temp:
 value: <2 a.1 @0> (size=2147483648,offset=0): bf16[1]{0}
 value: <3 while.2{3} (phi) @0> (size=1073741824,offset=2147483648): bf16[1]{0}
 value: <4 b @0> (size=1073741824,offset=3221225472): bf16[1]{0}
"""
LIVE = """HloLiveRange (max 9):
  Live ranges at 5 (peak):
    a.1{}: 2147483648 bytes (cumulative: 2147483648 bytes)
    while.2{3}: 1073741824 bytes (cumulative: 3221225472 bytes)
    p.1{}: 4096 bytes (cumulative: 3221229568 bytes)
    b{}: 1073741824 bytes (cumulative: 4294971392 bytes)
  Stack trace breakdown for peak usage: 4 294 971 392 bytes
    b{}: 1073741824 bytes (cumulative: 4294971392 bytes)
"""
check(script.peak_of(ASSIGNMENT, LIVE, 4294967296) == "2 1x2", script.peak_of(ASSIGNMENT, LIVE, 4294967296))
check(script.peak_of(ASSIGNMENT, LIVE, 2 * 4294967296) == "", "another moment than the fullest is left out")
small = {"settings": {"attention": "mine", "use_ragged_sort": "true"}, "nodes": 2, "gpus_per_node": 8, "generation": "hopper",
         "pool_bytes": 2**33, "hbm_bytes_per_s": 4.8e12}
arguments = script.arguments_of(small)
check("attention=mine" in arguments and "ragged_gather_fallback=true" in arguments and "compile_topology_num_slices=2" in arguments,
      str(arguments))
# XLA plans for 80 % of a device whose process says nothing, and a run's process says its pool
check("device_memory_size: 10737418240 " in script.target_of(small) and "major: 9 }" in script.target_of(small), "the GPU's text")
(scratch / "checkout/src/maxtext").mkdir(parents=True)
check(script.tree_of(str(scratch / "checkout"))[0] == str(scratch / "checkout/src"), "a checkout's package")
try:
    script.tree_of(str(scratch))
    check(False, "a folder without MaxText")
except SystemExit as error:
    check("no folder maxtext" in str(error), str(error))

print(f"{checks - failed} of {checks} checks passed")
sys.exit(1 if failed or not checks else 0)

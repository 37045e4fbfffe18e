#!/usr/bin/env python3
"""The answers of replay, asked again: the smallest factor keeps to its limit and a thousandth less does not; the largest
number of sequences fits and one more does not.

replay_answers.py SPILLWAY SCRATCH"""
import json
import pathlib
import shlex
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import program as caller

program, scratch = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve() / "answers"
files = pathlib.Path(__file__).resolve().parents[2] / "cli" / "files"
shutil.rmtree(scratch, ignore_errors=True)
shutil.copytree(files, scratch)
checks = failed = 0


def run(*arguments):
    done = caller.call([program, *arguments], cwd=scratch, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{arguments}: {done.stderr}")
    return done.stdout


def replay(*arguments):
    return json.loads(run("replay", "trace.h5", "--job", "job.yaml", "--format", "json", *arguments))


def check(good, what):
    global checks, failed
    checks += 1
    if not good:
        failed += 1
        print("FAIL", what)


run(*shlex.split((files / "trace.arguments").read_text()))
PADDED = "--scheme=megatron-alltoall:capacity_factor=1,pad=true"  # takes at most experts / top_k: half of the factors tried first are refused
for limit, asked in ((0.0, []), (0.7, []), (5.0, []), (40.0, []), (0.0, [PADDED]), (2.0, [PADDED]), (40.0, [PADDED])):
    answers = replay("--drop-at-most", str(limit), *asked)["smallest_factors"]
    check(answers and all(answer["factor"] > 0 for answer in answers), f"{asked} {limit} %: no factor found")
    for answer in answers:
        name, *options = answer["scheme"].split(":")
        others = [o for o in ",".join(options).split(",") if o and not o.startswith(answer["option"])]
        got = []
        for factor in (answer["factor"], answer["factor"] - 0.001):
            if factor < 0.001:
                continue
            scheme = name + ":" + ",".join([f"{answer['option']}={factor:.3f}", *others])
            got.append(replay("--scheme", scheme)["rows"][0]["drops"]["fraction"])
        what = f"{answer['scheme']} {limit} %: {answer['factor']} drops {got}"
        check(got[0] <= limit / 100 and abs(got[0] - answer["fraction"]) < 1e-12, what)
        check(len(got) < 2 or got[1] > limit / 100, what)
asked = ("dense:capacity_factor=1.25", "gmm:buffer_factor=1.25", "dense:capacity_factor=2", "ring:buffer_factor=1.25")
text = run("replay", "trace.h5", "--job", "job.yaml", "--drop-at-most", "5", *(f"--scheme={scheme}" for scheme in asked))
lines = [line for line in text.splitlines() if "the smallest " in line]
check([line.split(" at ")[0] for line in lines] == [f"{asked[0]}, {asked[2]}", asked[1], asked[3]], f"schemes that differ in their factor alone: {lines}")
for answer in replay("--fits-at", "99.9")["largest_batches"]:
    most = answer["sequences_per_gpu"]
    rows = replay("--scheme", answer["scheme"], "--sequences-per-gpu", f"{most},{most + 1}")["rows"]
    verdicts = [row["memory"]["verdict"] for row in rows]
    check(verdicts[0] != "oom" and verdicts[1] == "oom", f"{answer['scheme']}: {most} {verdicts}")
# Before a step, and in its optimizer, no layer of a pass is at work: none is named.
root = pathlib.Path(__file__).resolve().parents[3]
died = json.loads(run("replay", root / "traces/data/training_aux_e64_slice.h5", "--job", root / "sim/jobs/scratch-moe-e64.yaml", "--format", "json",
                      "--scheme", "megatron-alltoall", "--optimizer", "distributed", "--allocator", "expandable_segments:False",
                      "--sequences-per-gpu", "1", "--memory-fraction", "0.002"))["rows"][0]["memory"]["allocator"]["runs_out"]
check(died["backward"] is None and died["micro_batch"] is None and died["layer"] is None, f"at the start of a step: {died}")
print(f"{checks} checks, {failed} failed")
sys.exit(1 if failed or not checks else 0)

#!/usr/bin/env python3
"""Whatever a command prints for a person has lines of 120 characters at most, and --wide has every word of it, its tables unfolded.

lines_oracle.py SPILLWAY SCRATCH SOURCE_ROOT"""
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch, root = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
oracle = Oracle(program, "lines_oracle")
check = oracle.check
TRACE = root / "traces/data/training_aux_e64_slice.h5"
JOBS = root / "sim/jobs"
DATA = root / "notebooks_data"
MOST = 120
SCRATCH_JOB = ["--job", JOBS / "scratch-moe-e64.yaml"]
MEGATRON = ["--job", JOBS / "olmoe-h200-megatron.yaml"]
DEEPSEEK = ["--job", JOBS / "deepseek-v3-mi355x.yaml"]
ARRIVING = ["--scheme", "megatron-alltoall", "--scheme", "deepep", "--scheme", "gmm"]
COMMANDS = [
    ["replay", TRACE, *SCRATCH_JOB],
    ["replay", TRACE, *SCRATCH_JOB, "--stack", "maxtext-rocm-2026-05", "--each-step"],
    ["replay", TRACE, *SCRATCH_JOB, *ARRIVING, "--allocator", "expandable_segments:False"],
    ["replay", TRACE, *SCRATCH_JOB, "--balancer", "eplb:replicas=8,every=1"],
    ["replay", TRACE, *SCRATCH_JOB, "--overload"],
    ["plan", *SCRATCH_JOB, "--trace", TRACE, "--all", "--tokens", "1T", "--price", "2.5"],
    ["plan", *MEGATRON, "--tokens", "1T", "--price", "2.5", "--expert-parallel", "4,8"],
    ["plan", *SCRATCH_JOB, "--search", "--trace", TRACE, "--over", "pipeline=1", "--over", "micro-batches=1",
     "--sequences-per-gpu", "1,2"],
    ["explain", *SCRATCH_JOB, "--scheme", "gmm"],
    ["explain", *SCRATCH_JOB, "--scheme", "gmm", "--traffic"],
    ["explain", *SCRATCH_JOB, "--scheme", "megatron-alltoall", "--as", "simumax"],
    ["explain", *DEEPSEEK, "--scheme", "gmm", "--stack", "maxtext-rocm-2026-05"],
    ["explain", *MEGATRON, "--scheme", "megatron-alltoall"],
    ["model", "deepseek-v3", "--check", "671"],
    ["model", "jamba-1.5-large"],
    ["trace", "info", TRACE, "--expert-parallel", "8"],
    ["trace", "verify", TRACE],
    ["verify", "--random", "2"],
    ["score", DATA / "published/deepseek3_mi355x_2026_05.csv"],
    ["score", DATA / "measured/megatron_h200_reserved.csv"],
    ["score", DATA / "compiled/maxtext_pipeline.csv"],
    ["report", "--help"],
]


def judge(arguments):
    folded, wide = (oracle.call(*arguments, *extra) for extra in ([], ["--wide"]))
    words = set(folded.stdout.split())
    check(folded.returncode == wide.returncode and folded.returncode in (0, 1), f"{arguments}: {folded.stderr}")
    long = [line for line in folded.stdout.splitlines() if len(line) > MOST and " " in line.strip()]
    check(not long, f"{arguments}: {len(long)} lines of more than {MOST} characters, as\n{long[:1]}")
    check(words == set(wide.stdout.split()), f"{arguments}: {words ^ set(wide.stdout.split())} is in one of the two")
    return max(map(len, wide.stdout.splitlines()), default=0)


shutil.rmtree(scratch, ignore_errors=True)
scratch.mkdir(parents=True)
widest = [judge(arguments) for arguments in COMMANDS]
check(sum(w > MOST for w in widest) >= 10, f"--wide folds: {widest}")
long = [oracle.call(*arguments, "--format", "csv").stdout for arguments in (COMMANDS[0], COMMANDS[5])]
check(all(len({line.count(",") for line in text.splitlines()}) == 1 and max(map(len, text.splitlines())) > MOST for text in long),
      "CSV is broken at blanks")
oracle.finish(least=3 * len(COMMANDS))

#!/usr/bin/env python3
"""What a plan advises where nothing fits is the first that does, in the order of the table in sim/plan/plan_advice.c; and where nothing does, what is named was
tried: state that is too large alone is not helped by fewer sequences, remat or another scheme. Every earlier change is planned here by itself.

advice_order_oracle.py SPILLWAY"""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program = pathlib.Path(sys.argv[1]).resolve()
oracle = Oracle(str(program), "advice_order_oracle")


def plan(*words):
    return json.loads(oracle.must("plan", *words, "--format", "json"))


def fits(row):
    memory = row["memory"]
    replayed = memory["allocator"]
    return not replayed["failed_steps"] if replayed else memory["max_bytes"] <= memory["budget_bytes"]


def told(answer):
    misfit, = answer["plan"]["does_not_fit"]
    return misfit


def fewer_sequences(sequences, parts):
    """Halves, quarters, ... in whole micro-batches; the first that fits."""
    words = ["--model", "olmoe-1b-7b", "--cluster", "h100:8x1", "--scheme", "megatron-alltoall", "--remat", "none", "--micro-batches", parts]
    misfit = told(plan(*words, "--sequences-per-gpu", sequences))
    for amount in (2, 4, 8, 16, 64):
        fewer = sequences // amount // parts * parts
        if fewer > 0 and fits(plan(*words, "--sequences-per-gpu", fewer)["rows"][0]):
            oracle.check(misfit["advice"].startswith(f"{fewer} sequence"), f"{sequences} in {parts}: {fewer} do, advised: {misfit['advice']}")
            return
    oracle.check(False, f"{sequences} in {parts}: the case says nothing")


def more_micro_batches(batch, parts):
    """With a global batch a rank's sequences stay as they are: twice, four times, ... the micro-batches; the first that fits."""
    words = ["--model", "olmoe-1b-7b", "--cluster", "h100:8x1", "--scheme", "megatron-alltoall", "--remat", "none", "--global-batch", batch]
    misfit = told(plan(*words, "--micro-batches", parts))
    for amount in (2, 4, 8, 16, 64):
        if fits(plan(*words, "--micro-batches", parts * amount)["rows"][0]):
            oracle.check(misfit["advice"].startswith(f"--micro-batches {parts * amount} "), f"batch {batch} in {parts}: {parts * amount} do, advised: {misfit['advice']}")
            return
    oracle.check(False, f"batch {batch} in {parts}: the case says nothing")


def one_state():
    """A plan of two frameworks' schemes says whose state all have, unless it was said which."""
    words = ["plan", "--model", "olmoe-1b-7b", "--cluster", "h100:8x1", "--scheme", "gmm", "--scheme", "megatron-flex"]
    for first in ("gmm", "torchtitan"):
        words[-3] = first
        oracle.check(f"\nbeside    megatron-flex is planned with the state of {first}" in oracle.must(*words), f"{first}: not said whose state all have")
    for said in (["--optimizer", "sharded"], ["--set", "optimizer=distributed"]):
        oracle.check("\nbeside " not in oracle.must(*words[:-4], "--scheme", "torchtitan", *words[-2:], *said), f"{said}: the state was said")
    oracle.check("\nbeside " not in oracle.must(*words[:-4], "--scheme", "torchtitan", "--scheme", "gmm"), "torchtitan's own state is sharded")


def in_vain(gpus, also):
    """Names of what was tried, where the state alone is too large and nothing helps."""
    words = ["--model", "deepseek-v3", "--cluster", f"h100:{gpus}x1", "--scheme", "megatron-alltoall", "--scheme", "megatron-allgather", "--remat", "none"]
    answer = plan(*words)
    for misfit in answer["plan"]["does_not_fit"]:
        oracle.check(misfit["state_alone"] and misfit["gpus"] is None, f"{gpus} GPUs: {misfit}")
        oracle.check(misfit["advice"] == "nothing that was tried helps: " + also + "pipeline stages of the same GPUs, precision.optimizer bf16, "
                     "all splits of up to 16 times the GPUs, one sequence a micro-batch and remat full; not tried: --tensor, --context", f"{gpus} GPUs: {misfit}")
    oracle.check(answer["plan"]["does_not_fit"], f"{gpus} GPUs: the case says nothing")


def whole_nodes(model, gpus):
    """More GPUs than a part of a node are whole nodes of the preset: what is advised can be asked."""
    misfit = told(plan("--model", model, "--cluster", "h100", "--gpus", gpus, "--scheme", "megatron-alltoall"))
    found = re.match(r"(\d+) GPUs \(expert (\d+) x fsdp \d+(?: x pipeline (\d+), (\d+) micro-batches)?\)", misfit["advice"])
    oracle.check(found is not None and int(found[1]) % 8 == 0, f"{model} on {gpus}: {misfit['advice']}")
    if found is None or int(found[1]) % 8 != 0:
        return
    there, expert, stages, parts = (int(x or 1) for x in found.groups())
    row = plan("--model", model, "--cluster", "h100", "--gpus", there, "--scheme", "megatron-alltoall", "--expert-parallel", expert, "--pipeline", stages,
               "--micro-batches", parts, "--sequences-per-gpu", parts)["rows"][0]
    oracle.check(fits(row), f"{model} on {gpus}: {misfit['advice']}, and that does not fit")


whole_nodes("phi-3.5-moe", 4)
whole_nodes("qwen3-30b-a3b", 6)
fewer_sequences(66, 3)
fewer_sequences(60, 5)
more_micro_batches(512, 1)
more_micro_batches(384, 3)
one_state()
in_vain(1, "")
oracle.finish(least=18)

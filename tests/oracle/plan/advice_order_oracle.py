#!/usr/bin/env python3
"""What a plan advises where nothing fits is the first that does, in the order of the table in sim/plan/plan_advice.c; and where nothing does, what is named was
tried: state that is too large alone is not helped by fewer sequences, remat or another scheme. Every earlier change is planned here by itself.

advice_order_oracle.py SPILLWAY"""
import json
import pathlib
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


def in_vain(gpus, also):
    """Names of what was tried, where the state alone is too large and nothing helps."""
    words = ["--model", "deepseek-v3", "--cluster", f"h100:{gpus}x1", "--scheme", "megatron-alltoall", "--scheme", "megatron-allgather", "--remat", "none"]
    answer = plan(*words)
    for misfit in answer["plan"]["does_not_fit"]:
        oracle.check(misfit["state_alone"] and misfit["gpus"] is None, f"{gpus} GPUs: {misfit}")
        oracle.check(misfit["advice"] == "nothing that was tried helps: " + also + "pipeline stages of the same GPUs, precision.optimizer bf16, "
                     "all splits of up to 16 times the GPUs, one sequence a micro-batch and remat full; not tried: --tensor, --context", f"{gpus} GPUs: {misfit}")
    oracle.check(answer["plan"]["does_not_fit"], f"{gpus} GPUs: the case says nothing")


fewer_sequences(66, 3)
fewer_sequences(60, 5)
in_vain(1, "")
oracle.finish(least=7)

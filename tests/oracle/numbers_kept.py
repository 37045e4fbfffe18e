#!/usr/bin/env python3
"""Every number that plan, replay and explain give of 80 jobs is as it was: a sum a group of each answer, in which every number has a
weight of its own, against numbers_kept.tsv. It proves nothing right; it shows which answers a change reaches, and those that nobody meant.

numbers_kept.py SPILLWAY SCRATCH ROOT [--accept]      numbers_kept.py SPILLWAY SCRATCH ROOT --show JOB prints all numbers of one"""
import json
import os
import pathlib
import random
import sys

import numpy as np

from kept_sums import compare, numbers, sums
from oracle_run import Oracle
from random_jobs import Job
from replay_case import Case, Tokens

program, scratch, root = sys.argv[1], pathlib.Path(sys.argv[2]) / "numbers_kept", pathlib.Path(sys.argv[3])
scratch.mkdir(parents=True, exist_ok=True)
show = sys.argv[sys.argv.index("--show") + 1] if "--show" in sys.argv else None
os.environ["OMP_NUM_THREADS"] = "1"  # short questions, whose threads would wait for each other
oracle = Oracle(program, "numbers_kept")


def answers():
    """name, words, of every question."""
    rng = random.Random(5)
    for number in range(48):
        job = Job(rng, number, scratch)
        words = ["--job", job.path, *job.set, "--format", "json"]
        yield f"random{number}", ["plan", *words, "--routing-tokens", "20000", "--tokens", "1T", "--price", "2.5"]
        if number % 3 == 0:
            yield f"random{number}.explain", ["explain", *words, "--traffic"]
    for number, words in enumerate(PLANS):
        yield f"plan{number}", ["plan", *words.split(), "--format", "json", "--routing-tokens", "20000"]
    for path in sorted((root / "sim/models").glob("*.json")):
        yield f"model.{path.stem}", ["model", path.stem, "--format", "json"]
    for number, words in enumerate(SCORES):
        yield f"score{number}", ["score", *[root / "notebooks_data" / word if word.endswith(".csv") else word for word in words.split()], "--format", "json"]
    for number, (trace, job, words) in enumerate(replays()):
        yield f"replay{number}", ["replay", trace, "--job", job, *words.split(), "--format", "json"]


PLANS = [
    "--model deepseek-v3 --cluster mi355x-8x8 --scheme gmm --scheme dense:capacity_factor=1.25 --scheme ring --sequences-per-gpu 1,2",
    "--model mixtral-8x7b --cluster h100:8x8 --scheme gmm --scheme ragged --remat minimal --sequences-per-gpu 2 --tokens 1T",
    "--model qwen3-30b-a3b --cluster h200:8x8 --expert-parallel 4,8 --sequences-per-gpu 4 --price 3",
    "--model deepseek-v3 --cluster h200:8x32 --optimizer distributed --scheme megatron-flex --set parallel.pipeline=4 --set parallel.expert=16"
    " --set parallel.virtual_stages=2 --sequences-per-gpu 16 --micro-batches 16 --remat moe_act+layernorm",
    "--model deepseek-v3 --cluster gb200:4x64 --optimizer distributed --scheme megatron-alltoall:align=32 --set precision.recipe=mxfp8"
    " --set parallel.pipeline=4 --set parallel.expert=64 --sequences-per-gpu 8 --micro-batches 8",
    "--model qwen3-next-80b-a3b --cluster h200:8x8 --set parallel.expert=16 --tensor 2 --context 2 --expert-tensor 1 --optimizer distributed"
    " --scheme megatron-alltoall",
    "--model kimi-linear-48b-a3b --cluster h200:8x8 --set parallel.expert=8 --optimizer distributed --scheme megatron-alltoall",
    "--model mixtral-8x7b --cluster h200:8x4 --set parallel.expert=8 --optimizer distributed --scheme megatron-alltoall --scheme megatron-allgather"
    " --scheme megatron-flex:backend=hybridep --set overlap_grad_reduce=true --set overlap_param_gather=true",
    "--model olmoe-1b-7b --cluster h200:8x8 --optimizer distributed --remat none --scheme megatron-alltoall --set optimizer_on_host=0.5"
    " --set offload_modules=expert_fc1,moe_act",
    "--model qwen3-30b-a3b --cluster h200:8x6 --expert-parallel 2 --scheme torchtitan --set fsdp2.replicas=4"
    " --set fsdp2.reshard_after_forward=always",
    "--model gpt-oss-20b --cluster h100:8x4 --scheme gmm --scheme torchtitan --sequences-per-gpu 2",
    "--model llama-4-scout --cluster h200:8x8 --scheme gmm --scheme dense:capacity_factor=1 --sequences-per-gpu 1",
    "--model deepseek-v3.2 --cluster h200:8x32 --set parallel.expert=64 --optimizer distributed --scheme megatron-alltoall",
    "--model qwen3-30b-a3b --cluster h200:8x4 --scheme megatron-alltoall --optimizer distributed --set finetune.frozen=base --set finetune.lora_rank=16",
]


SCORES = ["compiled/maxtext_pipeline.csv", "compiled/maxtext_fp32.csv", "published/deepseek3_mi355x_2026_05.csv", "measured/megatron_h200_reserved.csv",
          "measured/megatron_h200_runs.csv", "measured/megatron_h200_phases.csv", "measured/megatron_h200_shapes.csv", "measured/megatron_h200_two_ranks.csv",
          "figures/sonicmoe_figures_digitised.csv", "kernels/h200_dispatch.csv", "kernels/h200_layer.csv",
          "judged/deepseek3_mi355x_pipeline.csv"]


def replays():
    """trace, job, words. Ranks, layers, steps and sequences are of unequal load."""
    draw = np.random.default_rng(3)
    for number, case in enumerate([
            Case(nodes=2, gpus_per_node=4, expert=4, experts=8, top_k=2, sequences=2, length=8, model_layers=3, hidden=64, ffn=32,
                 schemes=("dense:capacity_factor=1.25", "gmm", "gmm-deepep", "megatron-alltoall", "ring", "tutel:capacity_factor=1.25")),
            Case(nodes=2, gpus_per_node=2, expert=4, experts=12, top_k=3, sequences=1, length=20, model_layers=2, hidden=96, ffn=64, remat="none",
                 schemes=("megatron-flex", "megatron-allgather", "megatron-syncfree:rank_capacity=1.5,stash=1.2", "megatron-alltoall:capacity_factor=1",
                          "deepep", "hybrid-ep", "torchtitan", "moe-dedup:buffer_factor=1.5"))]):
        rows, steps = case.ranks * case.tokens, 3
        weight = draw.random((steps * rows, case.model_layers, case.experts)) + 1.5 * np.linspace(1, 0, case.experts)
        weight[:rows] += np.roll(np.linspace(1, 0, case.experts), 3)  # a first step of its own
        ids = np.argsort(-weight, axis=2)[:, :, :case.top_k].astype(np.uint8)
        tokens = Tokens(ids, [rows] * steps, case.experts, case.ranks, np.tile(np.repeat(np.arange(case.ranks), case.tokens), steps),
                        np.tile(np.repeat(np.arange(case.ranks * case.sequences), case.length), steps),
                        np.tile(np.arange(case.length), steps * case.ranks * case.sequences))
        job, trace = case.write(scratch, f"kept{number}"), tokens.write(scratch / f"kept{number}.h5")
        for words in ("", "--overload --tokens 1T --price 2", "--steps 1:3 --layers 0:1", "--balancer eplb:replicas=4,every=1 --overload",
                      "--allocator max_split_size_mb:32 --scheme megatron-alltoall",
                      "--set optimizer=distributed --set precision.optimizer=fp32 --scheme megatron-alltoall"):
            yield trace, job, words
    shipped, jobs = root / "traces/data/training_aux_e64_slice.h5", root / "sim/jobs"
    for job, words in (("scratch-moe-e64.yaml", "--scheme gmm --scheme dense:capacity_factor=1.25 --overload"),
                       ("olmoe-h200-megatron.yaml", "--sequences-per-gpu 2"),
                       ("scratch-moe-e64.yaml", "--scheme megatron-alltoall --balancer eplb:replicas=8,every=1")):
        yield shipped, jobs / job, words


def main():
    now = {}
    for name, words in answers():
        if show and name != show:
            continue
        done = oracle.call(*words)
        if done.returncode > 1:
            now[f"{name}\trefused"] = float(done.returncode)
            if show or "--accept" in sys.argv and not name.startswith("random"):
                print(name, done.stderr)
            continue
        answer = json.loads(done.stdout)
        if show:
            print("\n".join(f"{'.'.join(path)}\t{value!r}" for path, value in numbers(answer)))
        now.update((f"{name}\t{group}", value) for group, value in sums(answer).items())
    if show:
        return
    compare(oracle, now, root / "tests/oracle/numbers_kept.tsv", 800)


main()

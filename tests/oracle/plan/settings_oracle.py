#!/usr/bin/env python3
"""What a plan says of its job is what was asked, for jobs whose sizes all differ: settings_oracle.py SPILLWAY"""
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

oracle = Oracle(sys.argv[1], "settings_oracle")
GPUS, CASES = 64, 5
words = random.Random(7)
seen = set()
while len(seen) < CASES:
    pipeline, tensor, context, shared, expert = (words.choice(n) for n in ((1, 2, 4), (1, 2, 4), (1, 2), (1, 2), (2, 4, 8)))
    fsdp, data = GPUS // (pipeline * shared * expert), GPUS // (pipeline * tensor * context)
    if len({tensor, context, shared, expert, fsdp, data}) < 5 or (pipeline, tensor, shared) in seen:
        continue
    seen.add((pipeline, tensor, shared))
    length, micro, sequences = words.choice((1024, 2048)), words.choice((4, 8)), words.choice((1, 3))
    sequences *= micro
    fraction, price, seed, layers = words.choice((0.8, 0.9)), words.choice((2.5, 3.25)), words.randrange(2, 99), 16
    remat, cross = words.choice(("none", "full", "moe_act")), words.choice(("fused", "te_in_place"))
    policy = words.choice((("bf16", "fp32", "fp32", "fp32"), ("bf16", "bf16", "fp32", "fp32")))
    sets = {"parallel.pipeline": pipeline, "parallel.tensor": tensor, "parallel.context": context, "parallel.expert_tensor": shared,
            "parallel.expert": expert, "parallel.fsdp": fsdp, "batch.sequence_length": length, "batch.micro_batches": micro,
            "batch.sequences_per_gpu": sequences, "memory_fraction": fraction, "optimizer": "distributed", "cross_entropy": cross,
            "precision.weights": policy[0], "precision.gradients": policy[1], "precision.optimizer": policy[2], "precision.master": policy[3],
            "remat": remat}
    asked = ["plan", "--model", "olmoe-1b-7b", "--cluster", "h200-8x8", "--scheme", "megatron-alltoall", "--price", price, "--tokens", "3T",
             "--seed", seed, "--routing", "uniform", "--format", "json"]
    for key, value in sets.items():
        asked += ["--set", f"{key}={value}"]
    said = json.loads(oracle.must(*asked))["settings"]
    want = {"command": "plan", "job_file": None, "model": "olmoe-1b-7b", "cluster": "h200-8x8", "seed": seed,
            "parallel": {"expert": expert, "fsdp": fsdp, "pipeline": pipeline, "tensor": tensor, "context": context, "expert_tensor": shared,
                         "data": data, "virtual_stages": 1},
            "batch": {"sequences_per_gpu": [sequences], "global_batch": None, "sequence_length": length, "micro_batches": micro},
            "remat": remat, "optimizer": "distributed", "memory_fraction": fraction, "model_layers": layers, "gpus_per_node": 8, "hbm_gib": 139.8,
            "cross_entropy": cross, "schemes": ["megatron-alltoall"], "price_per_gpu_hour": price, "tokens": 3e12}
    for key, value in want.items():
        oracle.check(said.get(key) == value, f"{sets}: {key} is {said.get(key)}, not {value}")
    got = [said["precision"].get(key) for key in ("weights", "gradients", "optimizer", "master")]
    oracle.check(tuple(got) == policy, f"{sets}: precision {said['precision']}")
    parts = said["parameters_active"] / 1e9, said["parameters_total"] / 1e9
    oracle.check(1.2 < parts[0] < 1.4 and 6.8 < parts[1] < 7.0, f"OLMoE has 1.3 of 6.9 billion parameters, not {parts}")
oracle.finish(90)

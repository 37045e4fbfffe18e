#!/usr/bin/env python3
"""Which groups of a trace's ranks `verify` executes: of each step and layer one, in turn, or with --all-groups each; rows and drops of a capacity
are counted here from the trace's counts by rank.

trace_groups_oracle.py SPILLWAY SCRATCH ROOT"""
import json
import math
import pathlib
import sys

import h5py

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

oracle = Oracle(sys.argv[1], "trace_groups_oracle")
trace = pathlib.Path(sys.argv[3]) / "traces/data/training_aux_e64_slice.h5"
with h5py.File(trace) as file:
    counts = file["counts/by_rank"][...].astype(int)  # [steps][ranks][layers][experts]
STEPS, RANKS, LAYERS, EXPERTS = counts.shape


def asked(ranks, factor, steps, layers, *more):
    rows = json.loads(oracle.must("verify", "--trace", trace, "--expert-parallel", ranks, "--scheme", f"megatron-alltoall:capacity_factor={factor}",
                                  "--steps", f"{steps[0]}:{steps[1]}", "--layers", f"{layers[0]}:{layers[1]}", "--format", "json", *more))
    return rows[0]["rows_predicted"], rows[0]["dropped_predicted"], rows[0]["cases"]


def by_hand(ranks, factor, steps, layers, every):
    kept = dropped = cases = 0
    groups = RANKS // ranks
    for i, step in enumerate(range(*steps)):
        for j, layer in enumerate(range(*layers)):
            for group in range(groups) if every else [(i + j) % groups]:
                n = counts[step, group * ranks:(group + 1) * ranks, layer]
                capacity = math.ceil(factor * n[0].sum() / EXPERTS)
                fits = n.clip(max=capacity).sum()
                kept, dropped, cases = kept + fits, dropped + n.sum() - fits, cases + 1
    return int(kept), int(dropped), cases


for ranks, factor, steps, layers in ((8, 1, (0, 2), (0, 4)), (4, 1.25, (0, 2), (1, 4)), (8, 2, (1, 2), (0, 3)), (16, 1, (0, 2), (3, 4))):
    said, right = asked(ranks, factor, steps, layers), by_hand(ranks, factor, steps, layers, False)
    oracle.check(said == right, f"{ranks} ranks, factor {factor}, steps {steps}, layers {layers}: {said}, by hand {right}")
said, right = asked(16, 1, (1, 2), (2, 4), "--all-groups"), by_hand(16, 1, (1, 2), (2, 4), True)
oracle.check(said == right, f"all groups: {said}, by hand {right}")
oracle.finish(least=5)

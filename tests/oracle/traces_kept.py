#!/usr/bin/env python3
"""What is written into traces is as it was: of 20 generated ones, and of slices, shards and merges of them, a sum an array and attribute, in
which every value has a weight by its place, and the same of what `trace info` says, against traces_kept.tsv.

traces_kept.py SPILLWAY SCRATCH ROOT [--accept]"""
import json
import os
import pathlib
import shutil
import sys
import zlib

import numpy as np

from kept_arrays import UNSTEADY, array_sum, stored
from kept_sums import compare, sums
from oracle_run import Oracle

program, folder, root = sys.argv[1], pathlib.Path(sys.argv[2]) / "traces_kept", pathlib.Path(sys.argv[3])
os.environ["OMP_NUM_THREADS"] = "1"  # short questions, whose threads would wait for each other
oracle = Oracle(program, "traces_kept")
shipped = root / "traces/data/training_aux_e64_slice.h5"

DISTRIBUTIONS = ["uniform", "zipf:exponent=1.2", "lognormal:sigma=0.5", "dirichlet:alpha=3", "hot-rank:share=0.4,rank=1,ranks=4",
                 "group-limited:groups=4,kept=2", "drift:drift=0.2", "collapse:peak=3,rise=1,recovery=2", "k-hot:hot=2,heat=0.5",
                 "max-violation:violation=1,hot=2", "hash:hash=3,words=2,vocabulary=500", "reference", "megatron-w0", "megatron-w1", "megatron-w3",
                 "megatron-w5", "megatron-w7", "lognormal:sigma=0.4,drift=0.1", "zipf:exponent=0.8,groups=4,kept=2"]
SHAPE = ["--experts", 16, "--top-k", 3, "--layers", 3, "--first-layer", 2, "--steps", 5, "--ranks", 4, "--tokens-per-rank", 24,
         "--sequence-length", 12, "--hidden", 48, "--ffn", 20]


def of_file(path):
    """group -> sum of every dataset and attribute. A float counts to 6 digits."""
    out = {}
    for name, value in stored(path):
        value = np.asarray(value)
        if value.dtype.kind in "iufb":
            out[name] = array_sum(value.astype(float).ravel()) + value.size
        elif name.split("@")[-1] not in UNSTEADY:
            out[name] = float(zlib.crc32(str(value).encode()) % 10007)
    return out


def made():
    """name, file, the words that write it."""
    for seed, distribution in enumerate(DISTRIBUTIONS):
        yield distribution, ["trace", "generate", folder / f"d{seed}.h5", *SHAPE, "--seed", seed + 1, "--distribution", distribution]
    yield "counts", ["trace", "generate", folder / "counts.h5", *SHAPE, "--counts-only", "--distribution", "lognormal:sigma=0.7"]
    first = folder / "d2.h5"
    for name, words in (("steps", ["--steps", "1:4"]), ("layers", ["--layers", "1:3"]), ("ranks", ["--ranks", "1:3"]),
                        ("all", ["--steps", "2:5", "--layers", "0:2", "--ranks", "2:4"])):
        yield f"slice {name}", ["trace", "slice", first, folder / f"slice_{name}.h5", *words]
    yield "slice shipped", ["trace", "slice", shipped, folder / "slice_shipped.h5", "--steps", "1:2", "--max-tokens", 500]
    yield "slice list", ["trace", "slice", first, folder / "slice_list.h5", "--steps", "0,3", "--max-tokens", 37]
    for part in ("0:1", "1:2", "2:4"):
        yield f"shard {part}", ["trace", "slice", first, folder / "by_rank" / f"shard{part[0]}.h5", "--ranks", part]
    yield "merge ranks", ["trace", "merge", folder / "by_rank", folder / "merge_ranks.h5"]
    for part in ("0:2", "2:5"):
        yield f"shard steps {part}", ["trace", "slice", first, folder / "by_step" / f"steps{part[0]}.h5", "--steps", part]
    yield "merge steps", ["trace", "merge", folder / "by_step", folder / "merge_steps.h5"]


def main():
    now = {}
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("by_rank", "by_step"):
        (folder / part).mkdir(parents=True)
    for name, words in made():
        done = oracle.call(*words)
        path = pathlib.Path(words[2] if words[1] == "generate" else words[3])
        if done.returncode != 0:
            now[f"{name}\trefused"] = float(done.returncode)
            if "--accept" in sys.argv:
                print(name, done.stderr.strip()[:200])
            continue
        now.update((f"{name}\t{group}", value) for group, value in of_file(path).items())
        for more in ([], ["--expert-parallel", 4]):
            told = oracle.call("trace", "info", path, "--format", "json", *more)
            if told.returncode == 0:
                now.update((f"{name}\tinfo{more[-1:]} {group}", value) for group, value in sums(json.loads(told.stdout)).items())
            else:
                now[f"{name}\tinfo{more[-1:]} refused"] = float(told.returncode)
        now[f"{name}\tverified"] = float(oracle.call("trace", "verify", path).returncode)
    compare(oracle, now, root / "tests/oracle/traces_kept.tsv", 300)


main()

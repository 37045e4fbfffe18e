#!/usr/bin/env python3
"""What commands print for a person, and what they make of configurations of frameworks, is as it was: a sum a command and kind of line, in
which every number and word has a weight by its place, against texts_kept.tsv. It proves nothing right; it shows what a change reaches.

texts_kept.py SPILLWAY SCRATCH ROOT [--accept]      texts_kept.py SPILLWAY SCRATCH ROOT --show NAME prints what one command says"""
import os
import pathlib
import random
import sys

from kept_sums import compare, word_sums
from oracle_run import Oracle
from random_jobs import Job

program, folder, root = sys.argv[1], pathlib.Path(sys.argv[2]) / "texts_kept", pathlib.Path(sys.argv[3])
folder.mkdir(parents=True, exist_ok=True)
show = sys.argv[sys.argv.index("--show") + 1] if "--show" in sys.argv else None
os.environ["OMP_NUM_THREADS"] = "1"
oracle = Oracle(program, "texts_kept")
data, jobs, trace = root / "notebooks_data", root / "sim/jobs", root / "traces/data/training_aux_e64_slice.h5"
SCRATCH, OLMOE, DEEPSEEK = jobs / "scratch-moe-e64.yaml", jobs / "olmoe-h200-megatron.yaml", jobs / "deepseek-v3-mi355x.yaml"
MIXTRAL = "--model mixtral-8x7b --cluster h200:8x4 --optimizer distributed --scheme megatron-alltoall"
PLANS = [
    f"{MIXTRAL} --scheme megatron-flex --expert-parallel 4,8 --sequences-per-gpu 1,2,16 --tokens 1T --price 3", f"{MIXTRAL} --details",
    f"{MIXTRAL} --sequences-per-gpu 64", "--model mixtral-8x7b --cluster h200:8x4 --optimizer distributed --scheme megatron-alltoall:align=16 --set precision.recipe=delayed", "--model deepseek-v3 --cluster h100:8x4 --scheme gmm",
    "--model qwen3-30b-a3b --cluster h100:8x4 --scheme gmm --scheme dense:capacity_factor=1 --price 2 --tokens 1T --details",
    "--model qwen3-30b-a3b --cluster h200:8x6 --expert-parallel 2 --scheme torchtitan --set fsdp2.replicas=4", "--model glm-4.5 --cluster h200:8x8 --scheme megatron-flex"
    " --optimizer distributed --pipeline 4 --micro-batches 8 --sequences-per-gpu 8", "--model gpt-oss-20b --cluster mi300x:8x4 --scheme ragged --remat minimal",
    f"{MIXTRAL} --until oom,step=1.3 --sequence-length 1024", f"{MIXTRAL} --set optimizer_algorithm=muon", f"{MIXTRAL} --allocator expandable_segments:False",
    "--search --model olmoe-1b-7b --cluster h200-1x8 --sequences-per-gpu 1,2 --over pipeline=1 --over micro-batches=1 --tokens 1T --price 2",
    "--search --model olmoe-1b-7b --cluster h200:8x2 --sequences-per-gpu 2 --over pipeline=1,2 --over micro-batches=2 --over remat=full --scheme megatron-flex:backend=hybridep",
    "--model mixtral-8x7b --cluster h200:8x4 --scheme gmm --imbalance 1.4", f"{MIXTRAL} --drop-at-most 5 --scheme megatron-alltoall:capacity_factor=1",
]
EXPLAINS = ["--scheme gmm", "--scheme gmm --traffic", "--scheme dense:capacity_factor=1.25 --traffic", "--scheme gmm --as simumax",
            "--scheme ring --stack maxtext-rocm-2026-05", "--scheme megatron-alltoall", "--scheme megatron-alltoall --traffic", "--scheme megatron-alltoall --as megatron", "--scheme megatron-alltoall --as primus"]
REPLAYS = ["--scheme gmm --scheme dense:capacity_factor=1", "--scheme gmm --each-step", "--scheme gmm --overload --tokens 1T --price 2",
           "--scheme gmm --scheme dense:capacity_factor=2 --scheme hybrid-ep --stack maxtext-rocm-2026-05 --advise",
           "--scheme gmm --balancer eplb:replicas=8,every=1", "--scheme megatron-alltoall --allocator expandable_segments:False",
           "--scheme gmm:buffer_factor=1.2 --fits-at 1", "--scheme megatron-alltoall:capacity_factor=1 --stack none --sequences-per-gpu 1,2"]
TABLES = ["published/deepseek3_mi355x_2026_04.csv", "published/deepseek3_mi355x_remat_fsdp.csv", "judged/mixtral_8x7b_h200_2025.csv",
          "megatron/whole_models_h100.csv", "megatron/megatron_bare_layers.csv", "measured/megatron_h200_phases.csv",
          "figures/sonicmoe_figures_digitised.csv", "kernels/h200_dispatch.csv", "kernels/h200_layer.csv", "profiles/mi355x_kernel_seconds.csv"]
CLUSTERS = [f"{more}--cluster {size}" for more in ("", "--model qwen3-30b-a3b ") for size in ("h100:8x4", "h100:8x1", "h100:8x16", "gb300:4x64", "gb200:4x64",
            "mi355x:8x8", "tpu-v6e:4x64")]  # the first that a configuration takes
FLAGS = {"megatron": "--scheme megatron-flex --optimizer distributed", "bridge": "--scheme megatron-alltoall --optimizer distributed",
         "primus": "--scheme primus-syncfree --optimizer distributed", "maxtext": "--scheme gmm", "torchtitan": "--scheme torchtitan"}


def said():
    """name, words, of every question."""
    for n, words in enumerate(PLANS):
        yield f"plan{n}", ["plan", *words.split(), "--routing-tokens", "4096", *(["--format", "csv"] if n % 2 else [])]
    for n, words in enumerate(EXPLAINS):
        for job in (OLMOE,) if "megatron-alltoall" in words else (SCRATCH, DEEPSEEK):
            yield f"explain{n}.{job.stem}", ["explain", "--job", job, *words.split()]
    for n, words in enumerate(REPLAYS):
        for form in ([], ["--format", "csv"]):
            yield f"replay{n}{form[-1:]}", ["replay", trace, "--job", SCRATCH, *words.split(), *form]
    for table in TABLES:
        for form in ([], ["--format", "csv"]):
            yield f"score {table}{form[-1:]}", ["score", data / table, *form]
    rng = random.Random(11)
    for n in range(12):
        job = Job(rng, n, folder)
        for form in ([], ["--format", "csv"]):
            yield f"random{n}{form[-1:]}", ["explain", "--job", job.path, *job.set, "--traffic", *form]
        yield f"random plan{n}", ["plan", "--job", job.path, *job.set, "--routing-tokens", "20000", "--details"]
    yield from of_models()
    yield from of_frameworks()
    yield "verify", ["verify", "--random", "8"]
    yield "trace info", ["trace", "info", trace, "--expert-parallel", "8"]


def of_models():
    names = sorted(path.stem for path in (root / "sim/models").glob("*.json"))
    for name, other in zip(names, names[7:] + names[:7]):
        yield f"model {name}", ["model", name]
        yield f"model {name}, {other}", ["model", "--diff", name, other]
    for path in sorted((root / "tests/models").glob("*.json")):
        yield f"model file {path.stem}", ["model", path, "--format", "json"]


def of_frameworks():
    for path in sorted((root / "tests/frameworks").iterdir()):
        for cluster in CLUSTERS if path.suffix != ".md" else ():
            if oracle.call("job", path, *cluster.split()).returncode == 0:
                yield f"job {path.name}", ["job", path, *cluster.split()]
                break
    for flags, words in FLAGS.items():
        for model in ("olmoe-1b-7b", "qwen3-30b-a3b", "gpt-oss-20b"):
            yield f"flags {flags} {model}", ["plan", "--model", model, "--cluster", "h200:8x32", *words.split(), "--flags", flags]


def main():
    now = {}
    for name, command in said():
        if show and name != show:
            continue
        done = oracle.call(*command)
        text = (done.stdout + done.stderr).replace(str(folder), "").replace(str(root), "")
        words = [word for word in text.split() if word != "#"]  # where lines are folded depends on how long the folder's name is
        text = "\n".join(" ".join(words[i:i + 12]) for i in range(0, len(words), 12))
        if show:
            print(text)
        now[f"{name}\tends with"] = float(done.returncode)
        now.update((f"{name}\t{group}", value) for group, value in word_sums(text).items())
    if not show:
        compare(oracle, now, root / "tests/oracle/texts_kept.tsv", 800)


main()

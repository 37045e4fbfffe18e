#!/usr/bin/env python3
"""`replay --advise` against a brute force over the choices of a trace, written from docs/schemes.md and
sim/replay/safe_factor.h: of every step the smallest factor with which nothing is dropped, found by trying thousandths one
after the other; then order statistics, and binomial sums for the confidence limits.

advise_oracle.py SPILLWAY SCRATCH ROOT"""
import csv
import io
import json
import math
import pathlib
import shutil
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from replay_case import Case, Tokens, replay, run

program, root = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[3]).resolve()
folder = pathlib.Path(sys.argv[2]).resolve() / "advise_oracle"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
RATES = (0.0, 0.001, 0.01)
checks = 0


def near(what, got, want, tolerance=1e-12):
    global checks
    checks += 1
    if got is None or want is None:
        good = got is None and want is None
    else:
        good = abs(got - want) <= tolerance * max(1.0, abs(want))
    if not good:
        sys.exit(f"FAILED {what}: got {got}, want {want}")


# --- Statistics ---

def at_most(k, n, p):
    """The probability of at most k of n."""
    if p in (0.0, 1.0):
        return 1.0 if p == 0.0 or k >= n else 0.0
    log = [math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * math.log(p) + (n - i) * math.log1p(-p)
           for i in range(k + 1)]
    return math.fsum(map(math.exp, log))


def upper(k, n):
    """The p with which at most k of n has the probability 5 %."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at_most(k, n, middle) > 0.05 else (low, middle)
    return high


def assured_overflows(rate, n):
    """The most overflows that show the rate; None: not even none does."""
    allowed = [k for k in range(int(rate * n) + 1) if rate > 0 and at_most(k, n, rate) <= 0.05]
    return allowed[-1] if allowed else None


def steps_needed(rate):
    n = 1
    while rate > 0 and (1 - rate) ** n > 0.05:
        n += 1
    return n if rate > 0 else None


# --- Schemes: what a step drops at a factor ---

def pad_up(rows, multiple):
    return -(-rows // multiple) * multiple


def drops(scheme, factor, case, counts):
    """counts [layers][ranks][sequences][experts] of one step -> dropped choices."""
    name, _, rest = scheme.partition(":")
    options = dict(part.split("=") for part in rest.split(",") if part)
    made = case.tokens * case.top_k
    by_rank = counts.sum(axis=2)
    if name == "dense":
        even = -(-case.length * case.top_k // case.experts)
        return int(np.maximum(counts - int(max(even * factor, factor)), 0).sum())
    if name == "megatron-alltoall":
        places = math.ceil(made / case.experts * factor)
        return int(np.maximum(by_rank - places, 0).sum())
    if name == "tutel":
        places = case.top_k * int(factor * -(-case.tokens // case.experts))
        return int(np.maximum(by_rank - places, 0).sum())
    multiple = int(options.get("pad", 1))
    buffer = pad_up(int(made * factor), multiple)
    lost, local = 0, case.experts // case.expert
    for layer in by_rank.reshape(len(by_rank), -1, case.expert, case.experts):
        for group in layer:
            for first in range(0, case.experts, local):
                used = 0
                for all_of in group[:, first:first + local].sum(axis=0):
                    kept = min(int(all_of), max(buffer - used, 0))
                    lost += int(all_of) - kept
                    used += pad_up(int(all_of), multiple) if name in ("hybrid-ep", "megatron-ncclep") else kept
    return lost


def worst(scheme, case):
    made = case.tokens * case.top_k
    local = case.experts // case.expert
    name = scheme.partition(":")[0]
    if name == "dense":
        exact = case.length / -(-case.length * case.top_k // case.experts)
    elif name == "megatron-alltoall":
        exact = case.experts / case.top_k
    elif name == "tutel":
        exact = -(-case.tokens // case.top_k) / -(-case.tokens // case.experts)
    else:
        pad = int(scheme.partition("pad=")[2] or 1) if name == "hybrid-ep" else 1
        exact = (case.expert * case.tokens * min(local, case.top_k) + local * (pad - 1)) / made
    return math.ceil(exact * 1000 - 1e-6) / 1000


def needed(scheme, case, counts):
    """The smallest thousandth with which the step drops nothing."""
    low, high = 0, 1
    while drops(scheme, high / 1000, case, counts):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if drops(scheme, middle / 1000, case, counts) else (low, middle)
    for below in range(max(high - 20, 1), high):
        assert drops(scheme, below / 1000, case, counts), "more of a factor drops more"
    return high


def with_factor(scheme, option, thousandths):
    name, _, rest = scheme.partition(":")
    others = [part for part in rest.split(",") if part and not part.startswith(option + "=")]
    return ",".join([f"{name}:{option}={thousandths / 1000:.3f}"] + others)


def judge(what, answers, case, counts, trace, job, *extra):
    """counts [steps][layers][ranks][sequences][experts]"""
    steps, schemes = len(counts), case.schemes
    near(f"{what}: answers", len(answers), len(RATES) * len(schemes))
    made = counts.shape[1] * counts.shape[2] * case.tokens * case.top_k
    for s, scheme in enumerate(schemes):
        need = [needed(scheme, case, step) for step in counts]
        for answer, rate in zip(answers[len(RATES) * s:], RATES):
            name = f"{what} {scheme} {rate}"
            factor = sorted(need)[steps - 1 - math.floor(rate * steps)]
            lost = [drops(scheme, factor / 1000, case, step) for step in counts]
            over = [x for x in lost if x]
            near(f"{name} rate", answer["rate"], rate)
            near(f"{name} factor", answer["factor"], factor / 1000)
            near(f"{name} overflows", answer["overflows"], len(over))
            near(f"{name} upper", answer["upper"], upper(len(over), steps), 1e-9)
            near(f"{name} dropped", answer["dropped"], sum(over) / (made * len(over)) if over else 0.0)
            near(f"{name} worst", answer["worst"], max(lost) / made)
            allowed = assured_overflows(rate, steps)
            near(f"{name} assured", answer["assured_factor"],
                 None if allowed is None else sorted(need)[steps - 1 - allowed] / 1000)
            near(f"{name} needs", answer["steps_needed"], steps_needed(rate))
            near(f"{name} never", answer["worst_factor"], worst(scheme, case))
            text = with_factor(scheme, answer["option"], factor)
            if answer["scheme"] != text:
                sys.exit(f"FAILED {name}: {answer['scheme']} instead of {text}")
            alone = replay(program, trace, job, "--scheme", text, *extra)["rows"][0]
            near(f"{name} memory", answer["peak_bytes"], alone["memory"]["max_bytes"])
            near(f"{name} time", answer["step_s"], alone["time"]["step_s"])
            if answer["step_s"] is not None:
                near(f"{name} again", answer["again_s"], alone["time"]["step_s"] * (1 + len(over) / steps))
            never = with_factor(scheme, answer["option"], round(1000 * worst(scheme, case)))
            alone = replay(program, trace, job, "--scheme", never, *extra)["rows"][0]
            near(f"{name} worst memory", answer["worst_bytes"], alone["memory"]["max_bytes"])
            near(f"{name} nothing at its worst", alone["drops"]["dropped"], 0)


# --- Cases ---

def random_case(seed, steps):
    rng = np.random.default_rng(seed)
    expert, groups = int(rng.choice([2, 4])), int(rng.integers(1, 3))
    experts, top_k, sequences, length = expert * int(rng.integers(2, 4)), 2, int(rng.integers(1, 3)), 6
    case = Case(nodes=1, gpus_per_node=expert * groups, expert=expert, experts=experts, top_k=top_k, model_layers=2,
                sequences=sequences, length=length,
                schemes=("dense:capacity_factor=2", "gmm", "ring:buffer_factor=1", "hybrid-ep", "hybrid-ep:pad=4",
                         "megatron-alltoall:policy=position", "tutel:capacity_factor=1"))
    job = case.write(folder, f"a{seed}")
    ranks, tokens = case.ranks, case.ranks * case.tokens
    skew = rng.random((steps, 1, 2, experts)) ** rng.exponential(2.0, (steps, 1, 1, 1))
    ids = np.argsort(-rng.random((steps, tokens, 2, experts)) * skew, axis=3)[..., :top_k].astype(np.uint8)
    rank = np.repeat(np.arange(ranks), case.tokens)
    sequence = np.repeat(np.arange(ranks * sequences), length)
    trace = Tokens(ids.reshape(steps * tokens, 2, top_k), [tokens] * steps, experts, ranks, np.tile(rank, steps),
                   np.tile(sequence, steps), np.tile(np.arange(length), steps * ranks * sequences))
    path = trace.write(folder / f"a{seed}.h5")
    counts = np.zeros((steps, 2, ranks, sequences, experts), np.int64)
    for s in range(steps):
        for l in range(2):
            np.add.at(counts[s, l], (rank[:, None], sequence[:, None] % sequences, ids[s, :, l]), 1)
    stack = ("--stack", "maxtext-rocm-2026-05") if steps > 100 else ()
    result = replay(program, path, job, "--advise", *stack)
    judge(f"case {seed}", result["safe_factors"], case, counts, path, job, *stack)


def shipped():
    path, job = root / "traces/data/training_aux_e64_slice.h5", root / "sim/jobs/scratch-moe-e64.yaml"
    # megatron-ncclep is refused where it has fewer rows than a rank has tokens, so below 0.125
    schemes = ("ring:buffer_factor=1", "dense:capacity_factor=2", "hybrid-ep", "megatron-ncclep:rank_capacity=1")
    case = Case(expert=8, experts=64, top_k=8, sequences=2, length=512, schemes=schemes)
    with h5py.File(path) as f:
        ids, offset, source = f["tokens/expert_id"][:], f["tokens/step_offset"][:], f["tokens/source_rank"][:]
    counts = np.zeros((len(offset) - 1, ids.shape[1], 64, 2, 64), np.int64)
    for s in range(len(offset) - 1):
        part = slice(offset[s], offset[s + 1])
        for r in range(64):  # a rank's tokens in order, cut into sequences of 512
            own = ids[part][source[part] == r]
            for q in range(2):
                for l in range(ids.shape[1]):
                    chosen = own[q * 512:(q + 1) * 512, l].ravel()
                    counts[s, l, r, q] = np.bincount(chosen[chosen < 64], minlength=64)
    # its cluster is AMD's, where HybridEP does not run
    extra = ("--stack", "maxtext-rocm-2026-05", "--set", "library_limits=ignore")
    arguments = [*(a for scheme in schemes for a in ("--scheme", scheme)), *extra]
    result = replay(program, path, job, "--advise", *arguments)
    judge("shipped", result["safe_factors"], case, counts, path, job, *extra)
    done = run(program, "replay", path, "--job", job, *arguments, "--advise", "--format", "csv")
    lines = list(csv.DictReader(io.StringIO(done.stdout)))
    near("csv lines", len(lines), len(result["safe_factors"]))
    for line, answer in zip(lines, result["safe_factors"]):
        near("csv factor", float(line["factor"]), answer["factor"])
        near("csv saved", float(line["saved_bytes"]), answer["worst_bytes"] - answer["peak_bytes"])


def refusals():
    path, job = root / "traces/data/training_aux_e64_slice.h5", root / "sim/jobs/scratch-moe-e64.yaml"
    done = run(program, "replay", path, "--job", job, "--scheme", "megablocks", "--advise")
    near("no factor", done.returncode, 2)
    done = run(program, "replay", path, "--job", job, "--scheme", "ring", "--advise", "--overload", "--format", "csv")
    near("two tables", done.returncode, 2)


for seed, steps in enumerate((1, 7, 40, 320)):
    random_case(seed, steps)
shipped()
refusals()
print(f"{checks} checks")
sys.exit(0 if checks else 1)

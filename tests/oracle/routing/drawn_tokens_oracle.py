#!/usr/bin/env python3
"""Expected counts of generated routing, in closed form, against tokens that are drawn here: 500 random jobs, whose loads of experts, rows
of ranks, copies to ranks, nodes and a level above, and drops are compared with means and variances over 16,384 tokens each.

The draw shares nothing with the program but the chances with which experts are chosen. A token's set of experts is drawn as independent
ones that happen to be top_k (conditional Bernoulli sampling by rejection); the odds for which every expert is chosen as often as is asked
are solved by a Fourier sum. Routing limited to groups of experts is not among the jobs: test_expected_counts has it.

What a right program passes. Single figures: by Bennett's inequality (1962, J. Am. Stat. Assoc. 57, 33) a sum of so many independent tokens
is further off with a chance below 1e-6 for all of them together. Means over the jobs, of z, z^2 and the ratio of variances: within 5.5 of
their standard errors, which takes 4e-8 each by the normal law; there are 19. So other seeds would fail once in half a million; the seeds
are fixed.

drawn_tokens_oracle.py EXPECTED_LAWS"""
import json
import math
import subprocess
import sys

import numpy as np

JOBS, TOKENS, SINGLE, BAR, FEW = 500, 16384, 1e-6, 5.5, 30.0
SHAPES = ((8, 2, 8, 2), (8, 1, 4, 2), (60, 4, 12, 4), (64, 6, 8, 4), (64, 8, 16, 4), (16, 2, 4, 2), (128, 8, 16, 4), (256, 8, 32, 4),
          (160, 6, 40, 8), (32, 4, 32, 4), (96, 8, 12, 6), (4, 1, 4, 2))  # experts, top-k, ranks, nodes; a level has two nodes
LAWS = ("uniform", "reference", "reference:exponent={:.2f}", "lognormal:sigma={:.2f}", "zipf:exponent={:.2f}", "dirichlet:alpha={:.2f}",
        "k-hot:hot=0.5,heat={:.2f}")
random = np.random.default_rng(41)
failed = 0


def check(good, what):
    global failed
    if not good:
        failed += 1
        print(f"drawn_tokens_oracle: {what}")


def random_job(seed):
    experts, top_k, ranks, nodes = SHAPES[random.integers(len(SHAPES))]
    law = LAWS[random.integers(len(LAWS))]
    law = law.format((0.9 if "heat" in law else 2.0) * random.random() + (0.3 if "alpha" in law else 0.02))
    tokens = int(2 ** random.integers(4, 11))
    capacity = math.ceil(tokens * top_k / experts * 2 ** (2 * random.random() - 0.7))
    return {"seed": seed, "experts": experts, "top_k": top_k, "tokens": tokens, "capacity": capacity, "ranks": ranks, "nodes": nodes,
            "blocks": (1, experts // ranks, experts // nodes, 2 * experts // nodes), "law": law}


def of_sum(p, top_k):
    """Chance that independent ones of these chances are top_k, and for each that it is among them then."""
    points = len(p) + 1 + len(p) % 2  # an odd number, so that no factor vanishes
    z = np.exp(2j * np.pi * np.arange(points) / points)
    factor = 1.0 + np.outer(p, z - 1.0)
    whole = factor.prod(0)
    chance = (whole * z ** -top_k).sum().real / points
    return chance, p * ((whole / factor) * z ** -(top_k - 1.0)).sum(1).real / points / chance


def centred(odds, top_k):
    """Chances in proportion to the odds, with the sum top_k: any such give the same sets."""
    low, high = -60.0, 60.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        scaled = odds * math.exp(middle)
        low, high = (middle, high) if (scaled / (1.0 + scaled)).sum() < top_k else (low, middle)
    return scaled / (1.0 + scaled)


def solve(want, top_k):
    """Chances of independent ones, such that sets of top_k of them have each as often as is wanted."""
    odds = want / (1.0 - want)
    for _ in range(3000):
        p = centred(odds, top_k)
        got = of_sum(p, top_k)[1]
        if abs(got - want).max() < 1e-9:
            return p
        odds = p / (1.0 - p) * want / got * ((1.0 - got) / (1.0 - want)) ** (1.0 - 1.0 / top_k)  # of one choice exact at once
    raise RuntimeError(f"no odds for {want}")


def sets(p, top_k, tokens):
    """[tokens][experts], by rejection."""
    found, have = [], 0
    while have < tokens:
        some = random.random((min(4 * tokens, (1 << 22) // len(p)), len(p)), dtype=np.float32) < p.astype(np.float32)
        found.append(some[some.sum(1) == top_k])
        have += len(found[-1])
    return np.concatenate(found)[:tokens]


def draw(want, top_k, tokens):
    sure = want > 1.0 - 1e-12
    out = np.ones((tokens, len(want)), dtype=bool)
    rest = top_k - int(sure.sum())
    out[:, ~sure] = sets(solve(want[~sure], rest), rest, tokens) if rest > 0 else False
    return out


def furthest(variance, most, chance):
    """How far a sum of independent numbers of this variance, none of which is further than `most` from its mean, is off: Bennett's bound."""
    low, high = 0.0, 1e3 * (math.sqrt(variance) + most) * 10.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        u = most * middle / variance
        log = math.log(2.0) - variance / most ** 2 * ((1.0 + u) * math.log1p(u) - u)
        low, high = (middle, high) if log > math.log(chance) else (low, middle)
    return high


class Kind:
    """One figure of all jobs: means over a job's entities of z, z^2 and the ratio of variances."""

    def __init__(self, name):
        self.name, self.z, self.square, self.ratio = name, [], [], []

    def note(self, job, values, mean, variance, most=None):
        """values [draws][entities]; most: what a draw is away from its mean at most, for the bound of single figures."""
        draws = len(values)
        off = values.mean(0) - mean
        spread = ((values - mean) ** 2).mean(0)
        certain = draws * variance < 1e-6
        check((abs(off[certain]) < 1e-3).all(), f"{job}: {self.name}: {off[certain]} off, which does not vary")
        if most is not None:
            for o, v, m in zip(off[~certain], variance[~certain], mean[~certain]):
                limit = furthest(draws * v, max(m, most - m), SINGLE / (JOBS * 512))
                check(draws * abs(o) < limit, f"{job}: {self.name}: {m} expected, {o} off, {limit / draws} at most")
        many = draws * variance > FEW
        if not many.any():
            return
        z = off[many] / np.sqrt(variance[many] / draws)
        self.z.append(z.mean())
        self.square.append((z * z).mean())
        self.ratio.append((spread[many] / variance[many]).mean())

    def judge(self, figures):
        words = [f"{self.name:20} {len(self.z)} jobs"]
        for name, values, want in figures:
            values = np.array(values)
            mean, error = values.mean(), values.std() / math.sqrt(len(values))
            words.append(f"{name} {mean:.4f} +- {error:.4f}")
            check(abs(mean - want) < BAR * error, f"{self.name}: {name} is {mean} +- {error}, and {want} is expected")
        print(", ".join(words))
        check(len(self.z) > 0.6 * JOBS, f"{self.name}: {len(self.z)} jobs alone")

    def judge_all(self, biased=True):
        figures = [("z^2", self.square, 1.0), ("variance ratio", self.ratio, 1.0)]
        self.judge(figures + ([("z", self.z, 0.0)] if biased else []))


jobs = [random_job(seed) for seed in range(JOBS)]
lines = "".join(f"{j['seed']} {j['experts']} {j['top_k']} {j['tokens']} {j['capacity']} {' '.join(map(str, j['blocks'][1:]))} {j['law']}\n"
                for j in jobs)
said = subprocess.run([sys.argv[1]], input=lines, capture_output=True, text=True, check=True).stdout
answers = [json.loads(line.replace("nan", "NaN")) for line in said.splitlines()]
check(len(answers) == JOBS, f"{len(answers)} answers")
rows = {i: Kind(f"rows of {what}") for i, what in enumerate(("an expert", "a rank"))}
copies = {i: Kind(f"copies to {what}") for i, what in ((1, "a rank"), (2, "a node"), (3, "a level"))}
reaches, drops, fullest = Kind("ranks of a token"), Kind("drops of a source"), []
for job, (inclusion, *sizes, dropped) in zip(jobs, answers):
    want = np.array(inclusion)
    check(abs(want.sum() - job["top_k"]) < 1e-6, f"{job}: chances of {want.sum()} choices")
    chosen = draw(want, job["top_k"], TOKENS)
    for i, (block, said) in enumerate(zip(job["blocks"], sizes)):
        mean, variance, reached = np.array(said["law"]).T
        here = chosen.reshape(TOKENS, -1, block).sum(2)
        if i in rows:
            rows[i].note(job, here, mean, variance, min(block, job["top_k"]))
        if i in copies:
            copies[i].note(job, here > 0, reached, reached * (1.0 - reached), 1)
        if i == 1:
            reach = said["reach"]
            reaches.note(job, (here > 0).sum(1, keepdims=True), np.array(reach[:1]), np.array(reach[1:]), min(job["top_k"], job["ranks"]))
            most = here.reshape(-1, job["tokens"], here.shape[1]).sum(1).max(1)
            if most.std() > 1.0:
                fullest.append((most.mean() - said["fullest"]) / most.std())
    experts = chosen.reshape(-1, job["tokens"], job["experts"]).sum(1)
    drops.note(job, np.maximum(experts - job["capacity"], 0).sum(1, keepdims=True).astype(float), np.array(dropped[:1]), np.array(dropped[1:]))
for kind in (*copies.values(), reaches, drops):
    kind.judge_all()
for kind in rows.values():
    kind.judge_all(biased=False)  # rows of all are fixed
fullest = np.array(fullest)
print(f"rows of the fullest: {fullest.mean():.4f} +- {fullest.std() / math.sqrt(len(fullest)):.4f} of a draw's deviation off")
check(abs(fullest.mean()) < 0.02 + BAR * fullest.std() / math.sqrt(len(fullest)), "the fullest rank")
sys.exit(failed > 0)

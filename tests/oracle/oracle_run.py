"""Calls of `spillway` and counted checks, for oracles that are a program each."""
import json
import math
import sys

import program as caller


COMPILED = ("dense", "gmm", "gmm-deepep", "ring", "ragged", "ragged-deepep", "ragged-ring")
RESERVED_DOUBT = 0.06  # of what is replayed, measured (docs/validation_memory.md)
SHARE, EXPANDABLE = 3.16, 1.04  # what PyTorch's allocator took at most of live bytes that are not state, on H200 (docs/until.md)


def most_bytes(row, share=SHARE):
    """The most that a row of a plan or a replay may take: an arena's larger end; what was reserved; else what is added to live bytes."""
    memory = row["memory"]
    replayed, live, state = memory["allocator"], memory["max_bytes"], memory["argument_bytes"]
    if replayed:
        doubted = replayed["failed_steps"] or replayed["retried_steps"]
        return math.inf if doubted else max(live, (1 + RESERVED_DOUBT) * replayed["reserved"]["max_bytes"])
    if memory["kind"] == "arena":
        return memory["high_bytes"]
    if row["scheme"].split(":")[0] in COMPILED:
        return memory["by_newest_stack"]["high_bytes"] if memory["by_newest_stack"] else math.inf
    return state + share * (live - state)


def fit_sentence(row, share=SHARE):
    """What is to be said of whether it fits."""
    memory = row["memory"]
    live, budget, most = memory["max_bytes"], memory["budget_bytes"], most_bytes(row, share)
    if memory["allocator"]["failed_steps"] if memory["allocator"] else live > budget:
        return "does not fit"
    if memory["allocator"] or memory["kind"] == "arena":
        return "is tight, and may not fit" if most > budget else "surely fits"
    return {(0, 0): "surely fits", (0, 1): "may not fit", (1, 0): "is tight, and surely fits", (1, 1): "is tight, and may not fit"}[live > 0.95 * budget, most > budget]


class Oracle:
    def __init__(self, program, name):
        self.program, self.name = program, name
        self.checks = self.failed = 0

    def check(self, good, what):
        self.checks += 1
        if not good:
            self.failed += 1
            print(f"{self.name}: {what}")

    def call(self, *arguments):
        """However it ends."""
        return caller.run(self.program, *arguments)

    def run(self, *arguments):
        """What it prints; that it succeeds is a check of its own."""
        done = self.call(*arguments)
        self.check(done.returncode == 0, f"{arguments}: {done.stderr}")
        return done.stdout

    def must(self, *arguments):
        """The same where nothing makes sense without it."""
        done = self.call(*arguments)
        if done.returncode != 0:
            sys.exit(f"{self.name}: {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def score(self, *arguments):
        return json.loads(self.run("score", *arguments, "--format", "json"))

    def finish(self, least=1):
        print(f"{self.name}: {self.checks} checks, {self.failed} failed")
        sys.exit(1 if self.failed or self.checks < least else 0)

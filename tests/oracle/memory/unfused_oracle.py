#!/usr/bin/env python3
"""`attention: unfused` on random jobs against a list of allocations (local_spec.py): peak and its place of `explain` with
balanced routing and of `replay` with random choices, over tensor and expert tensor parallelism, remat none and full; and
what is refused.

unfused_oracle.py SPILLWAY SCRATCH [--cases N]"""
import dataclasses
import json
import pathlib
import sys

import numpy as np

import local_spec
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle
from replay_case import CLUSTER, Tokens

program, scratch = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
cases = int(sys.argv[sys.argv.index("--cases") + 1]) if "--cases" in sys.argv else 30
folder = scratch / "unfused_oracle"
folder.mkdir(parents=True, exist_ok=True)
oracle = Oracle(str(program), "unfused_oracle")
RESIDENT = ("weights", "gradients", "optimizer", "master_weights")


class Case:
    def __init__(self, rng):
        pick = lambda *values: int(rng.choice(values))
        self.TP, self.R, self.ETP = pick(1, 2), pick(1, 2, 4), pick(1, 1, 2)
        self.gpus = max(self.R * self.ETP, self.TP)
        self.fsdp = self.gpus // (self.R * self.ETP)
        kv = self.TP * pick(1, 2)
        self.shape = local_spec.Shape(H=32 * pick(1, 2), F=8 * pick(1, 2, 3), E=self.R * pick(2, 4), K=pick(1, 2),
                                      heads=kv * pick(1, 2, 4), kv=kv, D=16, S=256 * pick(1, 2, 3), p=pick(1, 2), TP=self.TP, ETP=self.ETP)
        self.layers, self.hopper, self.full = pick(1, 2, 3), bool(pick(0, 1)), pick(0, 0, 1) == 1

    def write(self, extra=""):
        s = self.shape
        (folder / "model.json").write_text(json.dumps(dict(
            model_type="generic", hidden_size=s.H, moe_intermediate_size=s.F, num_attention_heads=s.heads, head_dim=s.D,
            num_key_value_heads=s.kv, num_experts=s.E, num_experts_per_tok=s.K, num_hidden_layers=self.layers,
            tie_word_embeddings=False, vocab_size=64)))
        cluster = CLUSTER.format(name="case", nodes=1, gpus_per_node=self.gpus)
        (folder / "cluster.yaml").write_text(cluster + ("gpu_generation: hopper\n" if self.hopper else ""))
        job = folder / "job.yaml"
        job.write_text(f"model: ./model.json\ncluster: ./cluster.yaml\nattention: unfused\nremat: {'full' if self.full else 'none'}\n"
                       f"parallel: {{expert: {self.R}, fsdp: {self.fsdp}, tensor: {self.TP}, expert_tensor: {self.ETP}}}\n"
                       f"batch: {{sequences_per_gpu: {s.p}, sequence_length: {s.S}}}\noptimizer: distributed\n"
                       f"precision: {{weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16}}\n{extra}")
        return job

    def want(self, rows, state):
        """Peak of a GPU; the kept parts of the dispatcher are with each MoE layer in Spillway's lists."""
        s = self.shape
        dispatcher = 5 * s.T * s.E + 8 * s.T * s.K - (0 if self.full else 128)  # scalars of the host's counts are not listed
        peak, at = local_spec.step(s, rows, dispatcher, self.full)
        buffers = 2 * s.p * s.heads // s.TP * s.S**2 + s.S**2 + 4 * s.S * s.D + (2**26 if self.hopper else 0)
        return state + buffers + peak, at


def check_explain(case, what):
    s = case.shape
    rows = json.loads(oracle.must("explain", "--job", case.write(), "--scheme", "megatron-alltoall", "--format", "json"))
    state = sum(r["bytes"] for r in rows if r["component"] in RESIDENT)
    live = {r["component"]: r["bytes"] for r in rows if r["at_peak"] == "yes"}
    want, at = case.want([s.T * s.K * case.ETP] * case.layers, state)
    oracle.check(at == "product", f"{what}: the list's peak is at {at}")
    oracle.check("scores_at_work" in live, f"{what}: the peak is elsewhere: {sorted(live)}")
    oracle.check(abs(sum(live.values()) - want) <= 4, f"{what} {vars(case)}: {sum(live.values())} for {want}")
    return state


def check_replay(case, what, rng, state):
    """Every GPU of an expert-parallel group has its own rows; a group of t GPUs shares them."""
    s, group = case.shape, case.R * case.ETP
    ids = np.argsort(rng.random((case.gpus * s.T, case.layers, s.E)) + 0.6 * np.arange(s.E) * rng.random(case.layers)[:, None] / s.E,
                     axis=2)[:, :, :s.K].astype(np.uint8)
    source = np.repeat(np.arange(case.gpus), s.T)
    Tokens(ids, [len(ids)], s.E, ranks=case.gpus, source_rank=source).write(folder / "trace.h5")
    out = json.loads(oracle.must("replay", folder / "trace.h5", "--job", folder / "job.yaml", "--scheme", "megatron-alltoall", "--format",
                                 "json"))
    best = 0
    for first in range(0, case.gpus, group):
        mine = ids[(source >= first) & (source < first + group)] // (s.E // case.R)
        for r in range(case.R):
            rows = [int((mine[:, l] == r).sum()) for l in range(case.layers)]
            best = max(best, case.want(rows, state)[0])
    memory = out["rows"][0]["memory"]
    # the allocator's state is of single tensors, each of whole bytes
    for got, less in ((memory["peak_bytes"], 4), (memory["max_bytes"], 4), (memory["allocator"]["requested"]["max_bytes"], 64)):
        oracle.check(abs(got - best) <= less, f"{what} {vars(case)}: replay {got} for {best}")


def check_refusals():
    case = Case(np.random.default_rng(1))
    case.TP, case.ETP, case.R, case.gpus, case.fsdp, case.full = 1, 1, 2, 2, 1, False
    case.shape = dataclasses.replace(case.shape, TP=1, ETP=1, E=4)
    for extra, arguments, word in (("", ["--scheme", "gmm"], "Megatron-Core's dispatchers"),
                                   ("", ["--optimizer", "sharded"], "distributed or replicated"),
                                   ("", ["--model", "deepseek-v3"], "key-value heads"), ("", ["--model", "olmoe-1b-7b"], "key-value heads"),
                                   ("", ["--remat", "minimal"], "for remat none, full"),
                                   ("finetune: {frozen: experts}\n", [], "all weights")):
        schemes = [] if "--scheme" in arguments else ["--scheme", "megatron-alltoall"]
        done = oracle.call("explain", "--job", case.write(extra), *schemes, *arguments)
        oracle.check(done.returncode != 0 and "attention: unfused" in done.stderr and word in done.stderr.replace("\n  ", " "),
                     f"{extra}{arguments}: {done.stderr}")


for seed in range(cases):
    generator = np.random.default_rng(seed)
    one = Case(generator)
    check_replay(one, f"case {seed}", generator, check_explain(one, f"case {seed}"))
check_refusals()
oracle.finish(least=5 * cases)

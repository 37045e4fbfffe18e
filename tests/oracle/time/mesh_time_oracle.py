#!/usr/bin/env python3
"""Step times of jobs on MaxText's mesh axes tensor and context, written again from docs/validation_time.md ("The mesh axes tensor and
context") and docs/schemes.md, section 2.8: the parts that do not follow the routing, of Mixtral 8x7B on two nodes of H200, with
groups within a node and across; what is said of them; and who has no time.     mesh_time_oracle.py SPILLWAY SCRATCH SOURCE"""
import json
import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

spillway, scratch, source = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
oracle = Oracle(spillway, "mesh_time_oracle")


def values(path):
    return {k: float(v) for k, v in re.findall(r"^(\w+):\n(?: +\w+:.*\n)*? +value: (\S+)", (source / path).read_text(), re.M)}


STACK, CLUSTER = values("sim/time_stacks/xla-cuda-0.10.2.yaml"), values("sim/clusters/h200-8x8.yaml")
H, F, E, K, V, L, HEADS, KV, D, S, NODE = 4096, 14336, 8, 2, 32000, 32, 32, 8, 128, 4096, 8
LATENCY = STACK["latency_s"]
LINK, NIC = STACK["link_share"] * CLUSTER["link_bytes_per_s"], STACK["network_share"] * CLUSTER["nic_bytes_per_s"]


class Job:
    def __init__(self, scheme, expert, fsdp, tensor, context, p=1):
        self.scheme, self.R, self.fsdp, self.TP, self.CP, self.p = scheme, expert, fsdp, tensor, context, p
        self.ranks = expert * fsdp  # with tokens of their own
        self.T = p * S // context
        self.C = int(math.ceil(S * K / E) * float(scheme.partition("=")[2])) if "dense" in scheme else 0

    def group(self, members, stride, sent, calls):
        """Seconds of collectives over `members` GPUs, `stride` apart: bytes out of one GPU, how many."""
        hops = calls * (members - 1) * LATENCY
        return hops + (sent * min(1, stride / NODE) / NIC if members * stride > NODE else sent / LINK)

    def tensor(self):
        """Whole tensors, and how often: gathers and scatters; sums count twice on the wire."""
        T, TP, rows = self.T, self.TP, self.rows()
        if TP == 1:
            return 0.0
        moved, sums = [(T * H * 2, 8 * L + 3)], [(4 * T, 6 * L + 3)]
        if self.C:
            moved += [(rows * H * 2, L * (8 if self.R > 1 and self.fsdp > 1 else 6))]
            sums += [(T * E * 2, 2 * L), (T * E * self.C * 2, L), (T * K * 2, L)]
        else:
            moved += [(T * H * 2, L * (3 + (self.CP > 1))), (rows * H * 2, 3 * L)]
            sums += [(T * E * 2, 3 * L)]
        sent = sum(size * n for size, n in moved) + 2 * sum(size * n for size, n in sums)
        return self.group(TP, self.R, sent * (TP - 1) / TP, sum(n for _, n in moved + sums))

    def context(self):
        CP = self.CP
        if CP == 1:
            return 0.0
        sent, calls = 6 * L * CP * self.T * KV * D // self.TP * 2, 6 * L
        if self.C:
            sent, calls = sent + 2 * 3 * L * self.rows() * H * 2, calls + 3 * L
        return self.group(CP, self.R * self.TP, sent * (CP - 1) / CP, calls)

    def rows(self):
        return self.p * E * self.C if self.C else self.R * self.T * min(K, E // self.R)

    def parts(self):
        T, TP, rows, slots = self.T, self.TP, self.rows(), E * self.C
        top, memory = STACK["dense_share"] * CLUSTER["bf16_flops"], STACK["memory_share"] * CLUSTER["hbm_bytes_per_s"]
        attention = 2 * H * HEADS * D + 2 * H * KV * D
        total = L * (attention + 2 * H + E * H + 3 * E * H * F) + 2 * V * H + H
        wide = (H + H / TP) / 2
        elements = L * (3 * H + (3 * HEADS + 4 * KV) * D)
        t = {"attention_projections": 8 * T * L * attention / TP / top,
             "attention": 4.5 * L * self.p * S * S * HEADS * 2 * D / (TP * self.CP) / (STACK["attention_share"] * CLUSTER["bf16_flops"]),
             "router": 8 * T * L * H * E / TP / top, "head": 6 * T * H * V / TP / top,
             "elementwise": (16 * T * elements + 24 * T * V) / TP / memory,
             "mask_products": 12 * L * T * slots * H / TP / top, "masks": 20 * L * T * slots * 2 / memory,
             "row_moves": L * 2 * ((20 if self.C else 26) * rows * wide + 11 * rows * F / TP + (not self.C) * 14 * T * K * wide) / memory,
             "optimizer": total / (self.ranks * TP) * 14 / memory, "tensor_collectives": self.tensor(), "context_collectives": self.context()}
        if self.C:
            t["expert_products"] = 24 * L * rows * H * F / TP / top
        whole = L * (2 * H + E * H) + H if TP > 1 else 0
        routed, rest = L * 3 * E * H * F, total - L * 3 * E * H * F
        gathered = [(self.fsdp, self.R * TP, routed / self.R / TP, 3 * L), (self.ranks, TP, (rest - whole) / TP + whole, L)]
        once = sum(self.group(n, stride, 2 * size * (n - 1) / n, calls) for n, stride, size, calls in gathered if n > 1)
        return {**t, "weight_gathers": 2 * once, "gradient_scatters": once}

    def arguments(self):
        return ["--precision", "bf16", "--model", "mixtral-8x7b", "--cluster", f"h200:8x{self.ranks * self.TP // 8}", "--set",
                f"parallel={{expert: {self.R}, fsdp: {self.fsdp}, tensor: {self.TP}, context: {self.CP}}}",
                "--sequences-per-gpu", str(self.p), "--scheme", self.scheme]


SLOTS = "dense:capacity_factor=1.25"
JOBS = [Job(SLOTS, 4, 2, 2, 1), Job(SLOTS, 4, 4, 1, 2, 2), Job(SLOTS, 8, 2, 1, 2), Job(SLOTS, 8, 1, 2, 1), Job("gmm", 4, 2, 2, 2),
        Job("gmm", 8, 1, 2, 1), Job("gmm", 2, 4, 1, 4), Job("gmm", 4, 4, 1, 4)]
for job in JOBS:
    row = json.loads(oracle.must("plan", *job.arguments(), "--format", "json"))["rows"][0]
    time, what = row["time"], f"{vars(job)}"
    for name, value in job.parts().items():
        got = time["components"].get(name, {"seconds": 0.0})["seconds"]
        oracle.check(abs(got - value) <= 1e-6 * value + 1e-12, f"{what} {name}: {got} for {value}")
    shown = sum(part["exposed_s"] for part in time["components"].values())
    oracle.check(abs(shown - time["step_s"]) <= 1e-6 * shown, f"{what}: parts {shown} of {time['step_s']}")
    oracle.check(abs(time["tokens_per_s_per_gpu"] * time["step_s"] - job.T / job.TP) <= 1e-6 * job.T, f"{what}: tokens")
    oracle.check(time["low_s"] < 0.85 * time["step_s"] and time["high_s"] > 1.15 * time["step_s"], f"{what}: {time['low_s']}")
    oracle.check("of which no run is known" in json.dumps(row), f"{what}: nothing says what it rests on")
done = oracle.must("plan", *JOBS[4].arguments(), "--remat", "minimal")
oracle.check("another remat policy than full" in done, f"minimal: {done}")
oracle.finish(least=10 * len(JOBS))

"""The time of a bare Megatron-Core stack, written again from the header of sim/time/megatron/megatron_time.h. Shared by
megatron_time_oracle.py (measured tables) and megatron_job_oracle.py (rows of replay)."""
import math
import re

import numpy as np

PHASES = ["forward_route", "forward_permute", "forward_dispatch_a2a", "forward_sort_chunks", "forward_experts",
          "forward_unsort_chunks", "forward_combine_a2a", "forward_unpermute", "backward_permute", "backward_dispatch_a2a",
          "backward_sort_chunks", "backward_experts", "backward_unsort_chunks", "backward_combine_a2a", "backward_unpermute"]
SHARED = ["forward_gather", "forward_scatter", "backward_scatter", "backward_gather"]  # in no measured table


def figures(text):
    return {k: float(v) for k, v in re.findall(r"^(\w+):\n  value: (\S+)", text, re.M)}


def up(x, tile):
    return math.ceil(x / tile) * tile


class Load:
    """One rank in one layer: rows received and sent; chunks[source][expert] of the received rows; rows of one dispatch by port;
    rows of zeros. Where `sharers` ranks in a row share experts: rows that the all-to-all brought, and those that the gather among
    them brings and takes away."""

    def __init__(self, M, N, chunks, link_in, link_out, nic_in=0, nic_out=0, zeros=0, arrived=0, gathered=(0, 0)):
        self.arrived, self.gathered = arrived, gathered
        self.M, self.N, self.chunks, self.zeros = M, N, [x for source in chunks for x in source], zeros
        self.ins, self.outs, self.nics = link_in, link_out, max(nic_in, nic_out)
        self.sizes, self.largest = np.array(self.chunks), max(self.chunks)
        self.experts = [sum(of) for of in zip(*chunks)]
        self.tiles = sum(up(x, 128) for x in self.experts)
        self.live = sum(x > 0 for x in self.experts)

    def unlike(self):
        """Share of experts whose number of rows is more than one away from that of every other expert of the rank."""
        far = np.abs(np.subtract.outer(self.experts, self.experts)) > 1
        return sum((np.array(self.experts) > 0) & (far.sum(axis=1) == len(self.experts) - 1) & (len(self.experts) > 1)) / len(self.experts)

    def idle_rows(self, c, H):
        """A chunk takes as long as its copy or as the blocks that torch.cat starts for it."""
        blocks = min(32 * c["multiprocessors"], math.ceil(2 * H * self.largest / 4096))
        least = blocks * c["block_s"] * c["copy_bytes_per_s"] / (4 * H)
        return float(np.maximum(0, least - self.sizes).sum())

    def spilled(self, c, depth):
        """Share of the rows whose operand is read again, by how much of it is beyond the cache."""
        beyond = c["cache_bytes"] / (2 * depth)  # rows whose operand the cache holds
        return sum((x - beyond) / self.M for x in self.experts if x > beyond)


def step(c, T, H, F, E, loads, recompute="none", padded=False, dropping=False, dispatcher="all-to-all", sharers=1,
         hybrid=False, unread=False, graphed=False):
    """loads[layer][rank]. Seconds of forward, of the step, and of the phases (mean over ranks, sum over layers)."""
    R, L = range(len(loads[0])), len(loads)
    e = E // (len(R) // sharers)
    gpu, met, known = [0.0 for _ in R], 0.0, [0.0 for _ in R]
    spent = dict.fromkeys(PHASES + SHARED, 0.0)
    wire = spent["wire"] = dict(forward=0.0, backward=0.0)  # without waiting, and without what is done again
    plain = dispatcher == "all-to-all"

    def copy(b):
        return b / c["copy_bytes_per_s"]

    def gemm(load, flops, depth=None):
        seconds = flops / (c["peak_flops"] * c["gemm_flops_share"])
        if depth is not None:
            seconds *= 1 + c["spill_share"] * load.spilled(c, depth)
        return seconds * (1 - c["zero_share"] * load.zeros / load.M) if load.M else seconds

    def to(times, phase):
        for r in R:
            if phase:
                spent[phase] += (times[r] - gpu[r]) / len(R)
            gpu[r] = times[r]

    def meet(phase):
        nonlocal met
        took = [t - met for t in gpu]
        b = c["jitter_share"] * max(took)
        if b > 0:
            met += max(took) + b * math.log(sum(math.exp((t - max(took)) / b) for t in took))
        to([met for _ in R], phase)

    def exchange(phase, l, back, latencies=1):
        nonlocal met
        ins, outs, nic = ([getattr(load, name) for load in loads[l]] for name in ("ins", "outs", "nics"))
        row = (4 if back and dispatcher == "all-gather" else 2) * H
        if dispatcher == "tokens":
            seconds = max(ins + outs) * row / c["sorted_bytes_per_s" if hybrid else "token_bytes_per_s"]
        else:
            seconds = max(max(i, o) + c["duplex_share"] * min(i, o) for i, o in zip(ins, outs)) * row / c["exchange_bytes_per_s"]
        message = max(ins + outs) * row / max(1, len(R) - 1)
        if plain and max(nic) == 0 and len(set(ins + outs)) > 1 and message > 2**27:
            seconds *= max(1, c["long_message_share"] * (2**28 if message > 2**28 else 2**27) / message)
        start = c["exchange_latency_s"]
        if max(nic) > 0:  # two legs, and what the longer does not cover of the shorter
            by_nic = max(nic) * row / (c["exchange_nic_share"] * c["nic_bytes_per_s"])
            seconds = max(seconds, by_nic) + c["exchange_serial_share"] * min(seconds, by_nic)
            start = max(start, c["exchange_start_s"])
        meet(phase)
        met += seconds + latencies * start
        if phase:
            wire[phase.split("_")[0]] += seconds + latencies * start
        to([met for _ in R], phase)

    def chunks(l, r, rate):
        load = loads[l][r]
        if load.M == 0:
            return 0.0
        if not plain:
            seconds = 4 * load.M * H / c[rate]
        elif padded:
            seconds = 4 * load.M * H / c["slots_bytes_per_s"]
        else:
            seconds = copy(4 * (load.M + load.idle_rows(c, H)) * H)
        return seconds + 2 * c["kernel_s"]

    def add(phase, seconds):
        to([gpu[r] + seconds(r) for r in R], phase)

    def among_sharers(phase, l, width, latencies):
        """Bytes of one collective among ranks that share experts: as long as the fullest of them."""
        def seconds(r):
            mates = [loads[l][r // sharers * sharers + j].gathered for j in range(sharers)]
            full = max(max(pair) + c["duplex_share"] * min(pair) for pair in mates)
            return latencies * c["exchange_latency_s"] + width * H * full / c["exchange_bytes_per_s"]
        if sharers > 1:
            add(phase, seconds)

    def summed(phase, l):
        """In fp32: cast, sum, cast back."""
        among_sharers(phase, l, 4, 1)
        if sharers > 1:
            add(phase, lambda r: copy(6 * (loads[l][r].M + loads[l][r].arrived) * H) + 2 * c["kernel_s"])

    def forward(l, again):
        nonlocal known
        name = (lambda phase: None) if again else (lambda phase: "forward_" + phase)
        first = l == 0 and not again
        add(name("route"), lambda r: copy(16 * T * H + (800 * T * E if dropping else 0)) + 2 * T * H * E / c["router_flops"] +
            25 * c["kernel_s"])
        if first and not graphed:
            to([max(t, 0.32 * c["host_first_s"]) for t in gpu], name("route"))
        add(name("permute"), lambda r: copy(48 * T * E) + 40 * c["kernel_s"])
        if not padded and not unread:
            to([max(gpu[r], c["host_first_s"] if first else known[r] + c["host_layer_s"]) for r in R], name("permute"))
            known = list(gpu)
            add(name("permute"), lambda r: 0.2e-3 if dropping else 0)
        add(name("permute"), lambda r: copy(4 * loads[l][r].N * H))
        exchange(name("dispatch_a2a"), l, False, 2)
        among_sharers(name("gather"), l, 2, 2)
        add(name("sort_chunks"), lambda r: 0.0 if hybrid else chunks(l, r, "copy_bytes_per_s"))  # HybridEP writes rows where they belong
        add(name("experts"), lambda r: gemm(loads[l][r], 2 * loads[l][r].tiles * H * up(2 * F, 256), H) +
            gemm(loads[l][r], 2 * loads[l][r].tiles * F * up(H, 256), F) + copy(c["activation_bytes"] * loads[l][r].M * F) + 4 * c["kernel_s"])
        add(name("unsort_chunks"), lambda r: chunks(l, r, "scatter_bytes_per_s"))
        summed(name("scatter"), l)
        exchange(name("combine_a2a"), l, True)
        add(name("unpermute"), lambda r: 4 * loads[l][r].N * H / c["scatter_bytes_per_s"])

    def backward_experts(load):
        seconds = gemm(load, 2 * load.tiles * 2 * F * up(H, 256), 2 * F) + gemm(load, 2 * load.tiles * H * up(F, 256), H)
        seconds += gemm(load, 2 * load.M * (up(H, 128) * up(2 * F, 256) + up(F, 128) * up(H, 256)))
        activation = c["activation_gradient_bytes"] + (c["activation_bytes"] if recompute == "moe_act" else 0)
        return (seconds + copy(activation * load.M * F) + 30 * e * H * F / c["main_grad_bytes_per_s"] +
                copy(6 * (e - load.live) * H * F) + 4 * c["kernel_s"])

    for l in range(L):
        forward(l, False)
    half = max(gpu)
    for l in reversed(range(L)):
        if recompute == "moe":
            forward(l, True)
        add("backward_unpermute", lambda r: copy(4 * loads[l][r].N * H))
        exchange("backward_combine_a2a", l, True)
        summed("backward_scatter", l)
        add("backward_unsort_chunks", lambda r: 0.0 if hybrid else chunks(l, r, "copy_bytes_per_s"))
        add("backward_experts", lambda r: backward_experts(loads[l][r]))
        add("backward_sort_chunks", lambda r: chunks(l, r, "index_add_bytes_per_s"))
        among_sharers("backward_gather", l, 2, 2)
        meet("backward_sort_chunks")
        exchange("backward_dispatch_a2a", l, False)
        add("backward_permute", lambda r: 4 * loads[l][r].N * H / c["index_add_bytes_per_s"] +
            copy(c["norm_gradient_bytes"] * T * H) + 4 * T * H * E / c["router_flops"])
    return half, max(gpu), spent

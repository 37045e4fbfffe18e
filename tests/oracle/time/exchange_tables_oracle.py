#!/usr/bin/env python3
"""Exchanges between nodes of Megatron-Core against what libraries publish (notebooks_data/profiles/ep_bandwidth.csv): a job of DeepSeek-V3's
shape on 2, 4 and 8 nodes whose links are as fast as the library's own exchange inside a node. Token copies that leave a node are counted
here by drawing tokens, and by the formula of choices without repetition; published seconds are copies over rates.

exchange_tables_oracle.py SPILLWAY SCRATCH SOURCE"""
import csv
import functools
import json
import math
import pathlib
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_megatron_time import figures
from oracle_run import Oracle

program, scratch, source = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
oracle = Oracle(str(program), "exchange_tables_oracle")
folder = scratch / "exchange_tables_oracle"
folder.mkdir(parents=True, exist_ok=True)
EXPERTS, CHOICES, HIDDEN, TOKENS, NIC = 256, 8, 7168, 4096, 50e9
CLUSTER = (source / "sim/clusters/h100-8x8.yaml").read_text()
shared, card = figures((source / "sim/stack_defaults/megatron.yaml").read_text()), figures(CLUSTER)
rate = figures((source / "sim/megatron_stacks/megatron-te-h100-2026-11.yaml").read_text())["token_bytes_per_s"]
half_width, start, link = shared["exchange_half_width"], shared["exchange_start_s"], card["link_bytes_per_s"]
oracle.check(card["nic_bytes_per_s"] == NIC, "a NIC of 400 Gb/s")


def reached(parts, experts=EXPERTS):
    return parts * (1 - math.comb(experts - experts // parts, CHOICES) / math.comb(experts, CHOICES))


def drawn(nodes, scheme, grouped=False):
    """Rows of a token that leave its node in the mean, by drawing: once a node where a dispatcher does so, else one a choice. grouped:
    its choices are in 4 of 8 groups of experts."""
    dice, sum_of = random.Random(39), 0
    for _ in range(6000):
        of = [32 * g + e for g in dice.sample(range(8), 4) for e in range(32)] if grouped else range(EXPERTS)
        there = [e * nodes // EXPERTS for e in dice.sample(of, CHOICES)]
        there = set(there) if "flex" in scheme else there
        sum_of += sum(n != 0 for n in there)
    return sum_of / 6000


config = json.loads((source / "sim/models/deepseek-v3.json").read_text())
config.update(num_hidden_layers=config["first_k_dense_replace"] + 2, num_nextn_predict_layers=0)
(folder / "grouped.json").write_text(json.dumps(config))
(folder / "free.json").write_text(json.dumps(dict(config, n_group=1, topk_group=1)))


@functools.cache
def ask(nodes, gb_per_s, scheme="megatron-flex", nic=NIC, tokens=TOKENS, grouped=False):
    """An exchange of a layer as priced, without waiting, and what is said of it."""
    name = f"c{nodes}_{gb_per_s}_{nic:.0f}"
    text = re.sub(r"^(link_bytes_per_s:\n  value: )\S+", rf"\g<1>{link * gb_per_s * 1e9 / rate:.10e}", CLUSTER, flags=re.M)
    text = re.sub(r"^(nic_bytes_per_s:\n  value: )\S+", rf"\g<1>{nic:.10e}", text, flags=re.M)
    (folder / f"{name}.yaml").write_text(re.sub(r"^nodes: .*$", f"nodes: {nodes}", re.sub(r"^name: .*$", f"name: {name}", text, flags=re.M), flags=re.M))
    row = json.loads(oracle.must("plan", "--model", folder / ("grouped.json" if grouped else "free.json"), "--cluster", folder / f"{name}.yaml", "--expert-parallel", 8 * nodes, "--optimizer",
                                 "distributed", "--remat", "none", "--routing", "uniform", "--sequence-length", tokens, "--scheme", scheme, "--stack",
                                 "megatron-te-h100-2026-11", "--format", "json"))["rows"][0]
    seconds = row["time"]["components"]["exchanges"]["seconds"] / 2
    return (seconds - start) / 4, row["time"]["between_nodes"]  # there and back twice; before the first of them probabilities


# Copies: by drawing, by the formula, as priced. Every row goes by the NIC of a rail.
for nodes in (2, 4, 8):
    for scheme, grouped in (("megatron-flex", False), ("megatron-flex", True), ("megatron-flex:backend=hybridep", False), ("megatron-alltoall", False)):
        once = "flex" in scheme
        _, said = ask(nodes, 300, scheme, grouped=grouped)
        want, copies = drawn(nodes, scheme, grouped), said["nic_bytes"] / (TOKENS * 2 * HIDDEN)
        formula = reached(nodes) * (nodes - 1) / nodes if once else CHOICES * (nodes - 1) / nodes
        oracle.check(grouped or abs(want / formula - 1) < 0.02, f"{scheme}, {nodes} nodes: drawn {want}, by formula {formula}")
        oracle.check(abs(copies / want - 1) < 0.03, f"{scheme}, {nodes} nodes, grouped {grouped}: {copies} rows of a token leave it, not {want}")
        oracle.check((said["nodes"], said["rails"], said["once_a_node"]) == (nodes, 8, once), f"{said}")
oracle.check(json.loads(oracle.must("plan", "--model", "deepseek-v3", "--cluster", "h100:8x4", "--expert-parallel", 8, "--optimizer", "distributed", "--scheme",
                                    "megatron-flex", "--format", "json"))["rows"][0]["time"]["between_nodes"] is None, "within a node")

# Small messages: what a token costs falls to the NIC's rate, and a few tokens cost the start.
few, many = (ask(2, 300, tokens=t)[0] for t in (128, 4096))
oracle.check(start < few < 1.25 * many / 32 + start, f"128 tokens take {few} s, 4096 {many} s")
oracle.check(ask(2, 300, nic=NIC / 2)[0] > 1.6 * many - start, "a NIC of half the rate")

# The published rows.
with open(source / "notebooks_data/profiles/ep_bandwidth.csv", newline="") as file:
    table = [r for r in csv.DictReader(file) if int(r["tokens_per_rank"]) >= TOKENS and not (r["op"] == "dispatch" and "FP8" in r["dispatch_dtype"])]
inside = {(r["library"], r["hardware"], r["op"]): float(r["bandwidth_gbs"]) for r in table
          if r["ep_ranks"] in ("8", "EP 8") and ("NVLink" in r["bw_kind"] or "GMI" in r["bw_kind"])}
inside.update({("HybridEP", "H100", op): 735 / 2 for op in ("dispatch", "combine")})  # half of that on a B200's link
inside["DeepEP V2", "SM90", "combine"], inside["DeepEP V2", "SM100", "combine"] = 726 / 2, 740
off = {}
for r in table:
    nodes = {"16": 2, "EP 8 x 2": 2, "32": 4, "EP 8 x 4": 4, "64": 8}.get(r["ep_ranks"])
    kernels = "RDMA" in r["bw_kind"] or ("IB algorithm" in r["bw_kind"] and "kernel only" in r["bw_kind"] and int(r["sms_or_cus"]) >= 8)
    where = (r["library"], r["hardware"], r["op"])
    if not nodes or not kernels or where not in inside or r["hardware"].startswith("(not stated"):
        continue
    grouped = nodes == 8 and "top-4 groups" in r["topk"]
    copies = reached(4, EXPERTS // 2) if grouped else reached(nodes)
    seconds = TOKENS * 2 * HIDDEN * copies / (float(r["bandwidth_gbs"]) * 1e9)
    off.setdefault((*where, r["nic"]), []).append((nodes, math.log(seconds / ask(nodes, inside[where], grouped=grouped)[0])))
every = [e for of in off.values() for _, e in of]
within = sum(abs(e) <= half_width for e in every) / len(every)
middle = sorted(abs(e) for e in every)[len(every) // 2]
oracle.check(len(every) >= 40, f"{len(every)} published exchanges")
oracle.check(within >= 0.88, f"{within:.2f} of {len(every)} published exchanges within {half_width}")
oracle.check(middle <= 0.1, f"half of them within {middle:.3f}")
for nodes in (2, 4, 8):
    of = sorted(e for group in off.values() for n, e in group if n == nodes)
    oracle.check(abs(of[len(of) // 2]) < 0.1, f"{nodes} nodes: the middle one is off by {of[len(of) // 2]:+.3f}")
print(f"{len(every)} published exchanges: half within {middle:.3f}, {within:.2f} within {half_width}", file=sys.stderr)
oracle.finish(least=35)

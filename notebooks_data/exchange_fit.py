#!/usr/bin/env python3
"""Exchanges between nodes by the rates that libraries publish, profiles/ep_bandwidth.csv: what exchange_nic_share and
exchange_serial_share of sim/stack_defaults/megatron.yaml are, and how far off the law is of a system, a library or a number
of nodes that it was not fitted to. Needs numpy and scipy.

exchange_fit.py [TABLE.csv]

The law is that of sim/time/exchange_rate.h. Tokens go once to every node that holds one of their experts, by a NIC unless they
stay; from there to every GPU that wants them, by its links. Published is the first number of bytes, own node included, over
the time. Taken are exchanges of rows in bf16, which Megatron-Core sends, of training's size: kernels alone where a library says
both, with 8 or more multiprocessors. Printed are also those of rows in fp8 by the same law."""
import collections
import csv
import math
import pathlib
import sys

import numpy as np
from scipy.optimize import least_squares

from megatron_fit import slower

ROOT = pathlib.Path(__file__).resolve().parent
EXPERTS, CHOICES, HIDDEN, NIC = 256, 8, 7168, 50e9  # of every row; all NICs are of 400 Gb/s
START_S = 30e-6  # nccl-tests between two nodes of H100, small messages: deepseek-ai/DeepEP, issue 3
NODES = {"EP 8 x 2": 2, "16": 2, "24": 3, "EP 8 x 4": 4, "32": 4, "64": 8}
# GB/s inside a node of H100 where a library publishes none: its share of a B200's link, of 450.
OTHER_LINK = {"DeepEP V2": 726 / 2, "HybridEP": 735 / 2}


def copies(parts, share=1.0):
    """How many of `parts` equal parts of a share of the experts a token's choices reach, in the mean."""
    experts = int(EXPERTS * share)
    return parts * (1 - math.comb(experts - experts // parts, CHOICES) / math.comb(experts, CHOICES))


def read(path, sent_in_fp8=False):
    with open(path, newline="") as file:
        table = list(csv.DictReader(file))
    eight = lambda r: "fp8" in r["dispatch_dtype"].lower() and r["op"] == "dispatch"  # noqa: E731
    key = lambda r: (r["library"], r["hardware"], r["op"], eight(r))  # noqa: E731
    inside = {key(r): float(r["bandwidth_gbs"]) for r in table
              if r["tokens_per_rank"] == "4096" and r["ep_ranks"] == "8" and any(w in r["bw_kind"] for w in ("NVLink", "XGMI", "xGMI"))}
    inside.update({key(r): float(r["bandwidth_gbs"]) for r in table if r["sms_or_cus"].startswith("64 (Max")})
    rows = []
    for r in table:
        kind, nodes = r["bw_kind"], NODES.get(r["ep_ranks"])
        between = "RDMA" in kind or kind == "IB algorithm bandwidth; kernel only" and r["sms_or_cus"] != "4"
        link = inside.get(key(r), OTHER_LINK.get(r["library"]))
        stated = not r["hardware"].startswith("(not stated")
        if not nodes or not between or link is None or not stated or int(r["tokens_per_rank"]) < 4096 or eight(r) != sent_in_fp8:
            continue
        sent = int(r["tokens_per_rank"]) * HIDDEN * (1 if sent_in_fp8 else 2)
        groups = min(nodes, 4) if "top-4 groups" in r["topk"] else nodes  # that a token's choices are limited to
        reached = copies(groups, groups / nodes)
        rows.append(dict(system=" ".join((r["library"], r["hardware"], r["nic"])), library=r["library"], nodes=nodes,
                         seconds=sent * reached / (float(r["bandwidth_gbs"]) * 1e9),
                         nic=sent * reached * (nodes - 1) / nodes / NIC, link=sent * copies(8 * groups, groups / nodes) / (link * 1e9)))
    return rows


def law(row, share, serial):
    legs = row["link"], row["nic"] / share
    return START_S + max(legs) + serial * min(legs)


def errors(rows, found):
    return np.array([math.log(r["seconds"] / law(r, *found)) for r in rows])


def fit(rows):
    """Every system counts alike; a loss that grows slower than the square, as some combines over EFA are four times as slow."""
    many = collections.Counter(r["system"] for r in rows)
    weight = np.array([many[r["system"]] ** -.5 for r in rows])

    def misses(x):
        return weight * slower(errors(rows, x) / .1)

    return least_squares(misses, (.9, .15), bounds=((.5, 0), (1, 1))).x


if __name__ == "__main__":
    table = sys.argv[1] if len(sys.argv) > 1 else ROOT / "profiles/ep_bandwidth.csv"
    every = read(table)
    best = fit(every)
    off = np.abs(errors(every, best))
    print(f"{len(every)} exchanges of {len({r['system'] for r in every})} systems: share of a NIC {best[0]:.3f}, serial share {best[1]:.3f}; "
          f"half within {np.median(off):.3f}, 9 of 10 within {np.quantile(off, .9):.3f}")
    for what in ("system", "library", "nodes"):
        alone = []
        for group in sorted({r[what] for r in every}, key=str):
            found = fit([r for r in every if r[what] != group])
            of = errors([r for r in every if r[what] == group], found)
            alone += list(of)
            print(f"    without {group}: {found[0]:.3f} and {found[1]:.3f}; {len(of)} exchanges of it take {of.mean():+.3f} in the mean, "
                  f"{of.min():+.3f} to {of.max():+.3f}")
        print(f"  {what} left out: half within {np.quantile(np.abs(alone), .5):.3f}, 9 of 10 within {np.quantile(np.abs(alone), .9):.3f}")
    off = np.abs(errors(read(table, sent_in_fp8=True), best))
    print(f"  rows in fp8: half within {np.median(off):.3f}, 9 of 10 within {np.quantile(off, .9):.3f}")

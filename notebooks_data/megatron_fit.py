#!/usr/bin/env python3
"""Gaps, shares and rates of the stacks sim/megatron_stacks/megatron-te-*.yaml and -primus-*.yaml, fitted to published training runs, and
what they say of models, GPUs, releases, dispatchers and precisions that a fit has not seen.  Needs numpy and scipy.

megatron_fit.py SPILLWAY [TABLE.csv] [--left-out SCORE.json]

What `spillway score` says of a run, part by part, is taken apart: products, attention, element work, casts, exchanges. Each is
multiplied by one number, and the host's gaps are computed anew by the law of sim/time/megatron/megatron_host.h. The numbers begin at what was
measured on kernels alone (te_h100), to which a prior holds them, and are fitted to the logarithm of the steps with a loss that grows
slower than the square: an untuned run or a slow release pulls little. Runs that repeat a cell share its weight. Printed is what the
stacks' values are to be multiplied by (1: they are the fit), and the mean error of tokens/s with each group left out, beside that in
sample. --left-out writes what megatron_scores.py takes: each run as predicted without its model."""
import argparse
import json
import math
import pathlib
import re
import subprocess

import numpy as np
from scipy.optimize import least_squares

ROOT = pathlib.Path(__file__).resolve().parent.parent
NVIDIA, AMD = ("te-h100", "te-gb200"), ("primus-mi355x",)
NO_SYNC = ("+SyncFree1", "+LaunchOpt", "+MBS14")  # Primus: the host reads no counts any more
WATTS = dict(b200=1000, gb200=1200, b300=1100, gb300=1400)
PRODUCTS = ("attention_projections", "dense_ffn", "shared_expert", "expert_products", "expert_recompute", "head")
ELEMENTS = ("elementwise", "router", "row_moves", "loss")
GRID = ("tensor_parallel", "context_parallel", "tensor_parallel_ends", "expert_tensor_parallel", "waiting")
ENDS = ("gradient_scatters", "weight_gathers", "optimizer", "tensor_parallel_gradients")


def stack(name):
    text = (ROOT / f"sim/megatron_stacks/megatron-{name}-2026-11.yaml").read_text()
    return {k: float(v) for k, v in re.findall(r"^(\w+):\n  value: (\S+)", text, re.M)}


def shape(row):
    """Layers, experts and the stages and micro-batches of a run."""
    job = {**row["job"]["assumed"], **row["job"]["command"], **row["job"]["columns"]}
    files = [ROOT / "sim/models" / f"{job['model']}.json", ROOT / "notebooks_data/megatron/models" / pathlib.Path(job["model"]).name]
    config = json.loads(next(f for f in files if f.exists()).read_text())
    experts = next(config[k] for k in ("n_routed_experts", "num_experts", "num_local_experts") if k in config)
    return dict(layers=config["num_hidden_layers"], experts=experts / float(job["parallel.expert"]),
                stages=int(job.get("parallel.pipeline", 1)), micro=int(job.get("batch.micro_batches", 1)))


def read(spillway, table):
    said = subprocess.run([spillway, "score", table, "--format", "json"], check=True, capture_output=True, text=True).stdout
    runs = []
    for row in json.loads(said)["rows"]:
        if row.get("throughput_error") is None or not row["scheme"].startswith("megatron"):
            continue
        run = dict(row, **shape(row))
        if row["scheme"].startswith("megatron-alltoall"):  # also where a release has not what its recipe names
            run["dispatcher"] = "alltoall"
        run["true_s"] = row["time"]["step_s"] * (1 + row["throughput_error"])
        run["work"] = run["layers"] / run["stages"] * run["micro"]
        run["stack"] = stack("primus-mi355x" if row["hardware"].startswith("mi") else "te-h100" if row["hardware"][0] == "h" else "te-gb200")
        run["graphs"] = 2 if "graph=full" in row["scheme"] or row["graph"] == "full_iteration" else 1 if row["graph"] == "transformer_engine" else 0
        # What the job says: runs of a continuous integration, steps of a ladder before its work on the host.
        run["expert_parallel"] = int({**run["job"]["command"], **run["job"]["columns"]}["parallel.expert"])
        run["untuned"] = any(said.get("untuned_release") == "true" for said in row["job"].values())
        run["cell"] = tuple(row[k] for k in ("model", "hardware", "dispatcher", "ep_overlap")) + (run["graphs"],)
        runs.append(run)
    return runs


# Multipliers of the stacks' values: by what factor they may be off before a run is looked at.
PRIORS = dict(products_hopper=.1, products_blackwell=.1, attention_blackwell=.15, power_share=.5, elements=.15, casts=.5, hybrid=.25, tokens=.3, wire=.25,
              overlap_share=.2, layer_gap_s=.6, expert_gap_s=.5, recipe_gap_s=.6, counts_gap_s=.6, partial_graph_share=.4,
              tensor_gap_share=.4)
PRIORS_AMD = dict(products=.2, elements=.3, tokens=.3, wire=.3, layer_gap_s=.6, host_floor_s=.3)


def predict(run, v):
    part, c, amd = run["time"]["components"], run["stack"], run["hardware"].startswith("mi")
    get = lambda names: sum(part.get(n, 0.0) for n in names)  # noqa: E731
    blackwell = run["hardware"] in WATTS
    product = v.get("products", 1) if amd else v["products_blackwell" if blackwell else "products_hopper"]
    if blackwell:  # the stack's own ratio of powers is in the components
        product *= (WATTS[run["hardware"]] / 1200) ** (c["power_share"] * (1 - v["power_share"]))
    kernels = product * (get(PRODUCTS) + part["attention"] * (v["attention_blackwell"] if blackwell else 1))
    kernels += v["elements"] * get(ELEMENTS) + v.get("casts", 1) * part.get("fp8_casts", 0) + get(GRID)
    rate = {"HybridEP": "hybrid", "DeepEP": "tokens"}.get(run["dispatcher"], "wire")
    between = run["hardware"] in ("h100", "b200", "b300") and run["experts"] * 8 < run["experts"] * int(run["job"]["columns"]["parallel.expert"])
    wire = part["exchanges"] * (1 if between else v.get(rate, 1))
    hidden = v.get("overlap_share", 1) * c["overlap_share"] * max(min(wire, kernels), 0) if run["ep_overlap"] == "True" else 0
    share = [1, v.get("partial_graph_share", 1) * c["partial_graph_share"], 0][run["graphs"]] * run["work"]
    floor = share * c["host_floor_s"] * v.get("host_floor_s", 1)
    if part.get("tensor_parallel", 0) > 0:
        share *= c["tensor_gap_share"] * v.get("tensor_gap_share", 1)
    gap = lambda key: c[key] * v.get(key, 1)  # noqa: E731
    gaps = share * (gap("layer_gap_s") + gap("expert_gap_s") * run["experts"] + (gap("recipe_gap_s") if run["precision"] != "bf16" else 0))
    if amd and run["model"].endswith(NO_SYNC):
        gaps = 0
    if run["dispatcher"] == "alltoall" and "pad=true" not in run["scheme"]:
        gaps += max(share * gap("counts_gap_s") - (wire - hidden), 0)
    passes = max(kernels + wire - hidden + gaps, floor)
    busy = sum(s for n, s in run["time"]["exposed"].items() if n not in ENDS + ("pipeline_bubble",))
    return passes * (1 + part.get("pipeline_bubble", 0) / busy) + get(ENDS)


def slower(z):
    """Misses whose squares are a loss that grows slower than the square of z."""
    return np.sign(z) * np.sqrt(2 * (np.sqrt(1 + z * z) - 1))


def fit(runs, priors):
    runs = [r for r in runs if not r["untuned"]]
    if not runs:
        return dict.fromkeys(priors, 1.0)
    weight = [sum(o["cell"] == r["cell"] for o in runs) ** -0.5 / 0.08 for r in runs]

    def misses(x):
        v = dict(zip(priors, np.exp(x)))
        z = np.array([w * math.log(predict(r, v) / r["true_s"]) for r, w in zip(runs, weight)])
        return np.concatenate([slower(z), x / np.array(list(priors.values()))])

    return dict(zip(priors, np.exp(least_squares(misses, np.zeros(len(priors))).x)))


def error(run, v):
    return run["true_s"] / predict(run, v) - 1


def mean(values):
    return f"{100 * np.mean(np.abs(values)):5.1f}" if len(values) else "    -"


def inside(run, e):
    """Is the published step within the interval as it stands around the step of another fit?"""
    time, off = run["time"], math.log1p(e)
    return -math.log(time["step_s"] / time["low_s"]) <= off <= math.log(time["high_s"] / time["step_s"])


def coverage(alone):
    """What of runs that a fit has not seen lies inside, by what doubts their intervals have."""
    for name, which in (("tuned", lambda r: not r["untuned"]), ("  H100 and GB200", lambda r: not r["untuned"] and r["hardware"] in ("h100", "gb200")),
                        ("  other Blackwells", lambda r: not r["untuned"] and r["hardware"] in ("b200", "b300", "gb300")),
                        ("untuned", lambda r: r["untuned"])):
        rows = [(r, e) for r, e in alone if which(r)]
        if not rows:
            continue
        reached = [abs(math.log1p(e)) / math.log(r["time"]["high_s"] / r["time"]["step_s"]) for r, e in rows]
        print(f"    {name}: {sum(inside(r, e) for r, e in rows)} of {len(rows)} inside, width "
              f"{np.median([r['time']['high_s'] / r['time']['low_s'] for r, _ in rows]):.2f}, 9 of 10 within {np.quantile(reached, .9):.2f} of it")


def family(run):
    """The model itself: rows name it with what was changed."""
    return {**run["job"]["command"], **run["job"]["columns"]}["model"]


def order(rows):
    """Of two runs of one model on equal GPUs, which is faster: how sure the simulator is by its own doubts (sim/time/timeline.h,
    spw_timeline_faster), and how often it is right."""
    bins = {at: [0, 0] for at in (50, 60, 70, 80, 90)}
    alike = lambda r: (r["model"], r["hardware"], r["gpus"])  # noqa: E731
    speed = lambda r: r["true_tokens_per_s_per_gpu"]  # noqa: E731
    for i, (a, e) in enumerate(rows):
        for b, f in rows[:i]:
            true, predicted = math.log(speed(a) / speed(b)), math.log(speed(a) * (1 + e) / speed(b) / (1 + f))
            if alike(a) != alike(b) or true == 0 or abs(predicted) < 1e-12:
                continue
            causes = (set(a["time"]["doubts"]) | set(b["time"]["doubts"])) - {"routing"}
            width = max(a["time"]["pair_half_width"], b["time"]["pair_half_width"])
            width += sum(abs(a["time"]["doubts"].get(c, 0) - b["time"]["doubts"].get(c, 0)) for c in causes)
            chance = 0.5 * math.erfc(-abs(predicted) * 1.6448536269514722 / width / math.sqrt(2))
            at = max(k for k in bins if k <= 100 * chance)
            bins[at][0] += 1
            bins[at][1] += predicted * true > 0
    print("    order, of pairs of one model and equal GPUs:", "; ".join(f"said in {k} to {k + 10} of 100: right {right} of {n}" for k, (n, right) in bins.items()))


def recipes(runs):
    """Runs of one source, model and GPUs, in bf16 and by a recipe: how much faster the recipe is, published and predicted."""
    said = lambda r: r["true_tokens_per_s_per_gpu"] * (1 + r["throughput_error"])  # noqa: E731
    for a in (r for r in runs if r["precision"] == "bf16"):
        for b in (r for r in runs if r["precision"] != "bf16" and all(r[k] == a[k] for k in ("source", "hardware", "gpus")) and family(r) == family(a)):
            print(f"    {a['row_id']}, {b['row_id']}: {b['precision']} over bf16 {b['true_tokens_per_s_per_gpu'] / a['true_tokens_per_s_per_gpu']:.2f}, "
                  f"predicted {said(b) / said(a):.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spillway"), parser.add_argument("table", nargs="?", default=ROOT / "notebooks_data/megatron/megatron_runs.csv")
    parser.add_argument("--left-out", metavar="SCORE.json")
    arguments = parser.parse_args()
    every = read(arguments.spillway, arguments.table)
    unseen = []
    for name, runs, priors in (("NVIDIA", [r for r in every if not r["hardware"].startswith("mi")], PRIORS),
                               ("AMD", [r for r in every if r["hardware"].startswith("mi")], PRIORS_AMD)):
        best = fit(runs, priors)
        print(f"{name}: {len(runs)} runs; multiply by", ", ".join(f"{k} {x:.2f}" for k, x in best.items()))
        print(f"  in sample: mean error {mean([error(r, best) for r in runs])} %, "
              f"of the stacks as they are {mean([r['throughput_error'] for r in runs])} %")
        order([(r, r["throughput_error"]) for r in runs])
        recipes(runs)
        for what, of in (("model", family), ("GPU", lambda r: r["hardware"]), ("release", lambda r: r["source"]),
                         ("dispatcher", lambda r: r["dispatcher"]), ("precision", lambda r: r["precision"]),
                         ("expert-parallel size", lambda r: f"EP {r['expert_parallel']}"), ("size and GPU", lambda r: f"EP {r['expert_parallel']} {r['hardware']}")):
            groups, alone = sorted({of(r) for r in runs}), []
            if len(groups) == 1:
                if what == "model":
                    print("  one model: nothing can be left out")
                continue
            for group in groups:
                v = fit([r for r in runs if of(r) != group], priors)
                alone += [(r, error(r, v)) for r in runs if of(r) == group]
            if what in ("model", "expert-parallel size"):
                coverage(alone)
            if what == "model":
                unseen += alone
                order(alone)
            off = np.abs([math.log1p(e) for _, e in alone])
            print(f"  {what} left out: mean error {mean([e for _, e in alone])} %, 8 and 9 of 10 within "
                  f"{math.expm1(np.quantile(off, .8)):.2f} and {math.expm1(np.quantile(off, .9)):.2f};",
                  "; ".join(f"{g} {mean([e for r, e in alone if of(r) == g]).strip()}" for g in groups))
    if arguments.left_out:
        pathlib.Path(arguments.left_out).write_text(json.dumps({"rows": [dict(r, throughput_error=e) for r, e in unseen]}, default=str))

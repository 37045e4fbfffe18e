#!/usr/bin/env python3
"""What is said in words follows from numbers that are known otherwise: rows of `model --diff` from the configurations themselves, for every
pair of presets of a kind; how sure an advice is, from the intervals of the point that it names; drops of the worst step, from JSON.

words_oracle.py SPILLWAY ROOT"""
import itertools
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle, most_bytes

program, root = sys.argv[1], pathlib.Path(sys.argv[2])
oracle = Oracle(program, "words_oracle")
# What a row is called, the keys of a configuration that say it, and what it is where none does; ... where nothing follows from that.
SAID = {"layers": (["num_hidden_layers"], ...), "hidden size": (["hidden_size"], ...), "vocabulary": (["vocab_size"], ...),
        "experts": (["n_routed_experts", "num_experts", "num_local_experts"], ...), "experts a token": (["num_experts_per_tok"], ...),
        "heads": (["num_attention_heads"], ...), "rank of queries": (["q_lora_rank"], 0), "rank of keys and values": (["kv_lora_rank"], 0),
        "rotary width of latent attention": (["kv_lora_rank", "qk_rope_head_dim"], 0), "heads of the indexer": (["index_n_heads"], 0),
        "width of an indexer's head": (["index_head_dim"], 0)}
PLAIN = ["deepseek-v3", "deepseek-v3.2", "deepseek-v2-lite", "kimi-k2", "qwen3-30b-a3b", "mixtral-8x7b", "glm-4.5", "olmoe-1b-7b"]


def of_config(name, what):
    keys, without = SAID[what]
    config = json.loads((root / f"sim/models/{name}.json").read_text())
    there = [key for key in keys if config.get(key) is not None]
    if without == 0 and keys[0] not in there:
        return 0
    return config[there[-1]] if there else without


def diffs():
    for a, b in itertools.permutations(PLAIN, 2):
        rows = {row["what"]: (row["a"], row["b"]) for row in json.loads(oracle.must("model", "--diff", a, b, "--format", "json"))}
        for what in SAID:
            want = (of_config(a, what), of_config(b, what))
            if ... not in want:
                oracle.check(rows.get(what) == (want if want[0] != want[1] else None), f"{a}, {b}: {what} is {rows.get(what)}, not {want}")
        layers = [of_config(name, "layers") for name in (a, b)]
        chooses = [of_config(name, "heads of the indexer") > 0 for name in (a, b)]
        runs = rows.get("which layers have an indexer")
        oracle.check((runs is not None) == (chooses[0] != chooses[1]), f"{a}, {b}: layers of an indexer are {runs}")
        for has, count, said in zip(chooses, layers, runs or ()):
            numbers = [int(n) for n in re.findall(r"\d+", said)]
            oracle.check(numbers[-1:] == ([count - 1] if has else []) and numbers[:1] == ([0] if has else []), f"{a}, {b}: {said} of {count} layers")
        totals = [json.loads(oracle.must("model", name, "--format", "json"))["parameters_total"] for name in (a, b)] if a < b else None
        if totals:
            oracle.check(rows.get("parameters in all") == tuple(totals), f"{a}, {b}: {rows.get('parameters in all')}, not {totals}")


def advice():
    """`would do` where the point with the change surely fits, `may do` where its interval reaches over the budget."""
    seen = {}
    for fraction in (0.45, 0.6, 0.75, 1):
        for words in ("--model mixtral-8x7b --cluster h100:8x8 --scheme gmm", "--model qwen3-30b-a3b --cluster mi355x:8x1 --scheme gmm --scheme ring"):
            plan = json.loads(oracle.must("plan", *words.split(), "--sequences-per-gpu", "1,2,3,4,6,8,12,16,32", "--memory-fraction", f"{fraction:.2f}",
                                          "--routing", "uniform", "--routing-tokens", "4096", "--format", "json"))
            for misfit in plan["plan"]["does_not_fit"]:
                point, advice = plan["rows"][misfit["point"]], misfit["advice"]
                more, fewer = re.match(r"memory_fraction ([\d.]+) (.*)$", advice), re.match(r"(\d+) sequences? a GPU (.*)$", advice)
                if not (more or fewer) or point["memory"]["kind"] != "arena":
                    continue
                to, budget, says = point, point["memory"]["budget_bytes"], (more or fewer)[2]
                if more:
                    budget *= float(more[1]) / float(f"{fraction:.2f}")
                else:
                    to = next(r for r in plan["rows"] if r["scheme"] == point["scheme"] and r["sequences_per_gpu"] == int(fewer[1]))
                sure = most_bytes(to) <= budget
                seen[bool(more), sure] = seen.get((bool(more), sure), 0) + 1
                oracle.check(to["memory"]["max_bytes"] <= budget, f"{words} {fraction}: {advice} does not fit")
                oracle.check(says == ("would do" if sure else "may do: its interval reaches over the budget"),
                             f"{words} {fraction}: '{advice}', at most {most_bytes(to)} of {budget}")
    oracle.check({sure for _, sure in seen} == {True, False}, f"advice was not both, sure and not: {seen}")


def drops():
    """Said of the fastest point: the mean, and the worst step where it drops more."""
    seen = set()
    for routing in ("collapse:peak=3,rise=1,recovery=2", "uniform"):
        for steps in ("1", "4"):
            for factor in ("1", "1.25"):
                words = ["plan", "--model", "mixtral-8x7b", "--cluster", "h200:8x4", "--optimizer", "distributed", "--scheme",
                         f"megatron-alltoall:capacity_factor={factor}", "--routing", routing, "--routing-steps", steps, "--routing-tokens", "8192",
                         "--drop-at-most", "90"]
                drop = json.loads(oracle.must(*words, "--format", "json"))["rows"][0]["drops"]
                text = re.sub(r"\s+", " ", oracle.must(*words, "--wide"))
                found = re.search(r"drops (?:at least )?([\d.]+) %(?: \(([\d.]+) % in step (\d+)\))?", text)
                if drop["fraction"] == 0:
                    continue
                more = steps != "1" and 100 * (drop["worst_fraction"] - drop["fraction"]) > 0.005
                want = (f"{100 * drop['fraction']:.2f}", *((f"{100 * drop['worst_fraction']:.2f}", str(drop["worst_step"])) if more else (None, None)))
                oracle.check(found is not None and found.groups() == want, f"{routing}, {steps} steps: {found and found.groups()}, not {want}")
                seen.add(more)
    oracle.check(seen == {True, False}, f"no worst step, or always one: {seen}")


diffs()
advice()
drops()
oracle.finish(500)

#!/usr/bin/env python3
"""docs/models.md, "What each framework's layers are counted by": the table of models and frameworks is what the program answers.

layers_table.py SPILLWAY ROOT [--accept]; --accept writes it."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, root, accept = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), "--accept" in sys.argv
oracle = Oracle(str(program), "layers_table")
MODELS = {"DeepSeek-V4-Flash": "deepseek-v4-flash", "MiniMax-M3": "minimax-m3", "Nemotron-3-Nano": "nemotron-3-nano",
          "Nemotron-3-Super": "nemotron-3-super", "Qwen3-Next": "qwen3-next-80b-a3b", "Qwen3.5-35B": "qwen3.5-35b-a3b",
          "Kimi-Linear": "kimi-linear-48b-a3b", "Kimi-K3": "kimi-k3", "Step-3.7-Flash": "step-3.7-flash"}
EXPERTS = ("--expert-parallel", "8")
FRAMEWORKS = {"Megatron-Core": ("megatron-alltoall", "h200:8x8", "--optimizer", "distributed", *EXPERTS),
              "Primus": ("primus-syncfree:level=1", "mi355x:8x8", "--optimizer", "distributed", *EXPERTS),
              "MaxText": ("gmm", "h200:8x8", "--optimizer", "sharded", *EXPERTS),
              "torchtitan": ("torchtitan", "h200:8x8", "--optimizer", "sharded", *EXPERTS),
              "transformers": ("transformers", "h200:8x8", "--optimizer", "sharded", "--fsdp", "64")}
# Whose modules were read, so that what they keep is theirs; elsewhere the same sum bounds it. Primus has attention of DeepSeek-V4 of its own.
READ, UNREAD = ("Megatron-Core", "Primus"), ("DeepSeek-V4-Flash", "Primus")
TITLE = "**What each framework's layers are counted by.**"


def file_of(name):
    preset = root / f"sim/models/{MODELS[name]}.json"
    return preset if preset.exists() else root / f"tests/models/{MODELS[name]}.json"


def asked(command, name, framework, *more):
    scheme, cluster, *split = FRAMEWORKS[framework]
    return oracle.call(command, "--model", file_of(name), "--cluster", cluster, "--scheme", scheme, *split, "--sequences-per-gpu", "1",
                       *(("--routing", "uniform") if command == "plan" else ()), *more)


def cell(name, framework):
    done = asked("plan", name, framework, "--format", "json")
    if done.returncode != 0:
        oracle.check("--" in done.stderr or "use" in done.stderr or "scheme" in done.stderr, f"{name}, {framework}: {done.stderr}")
        return "refused"
    row = json.loads(done.stdout)["rows"][0]
    rows = json.loads(asked("explain", name, framework, "--format", "json").stdout)
    text = " ".join(asked("explain", name, framework).stdout.split())
    time = "time" if row["time"] and row["time"]["step_s"] else "no time"
    if any("tensor by tensor" in r["source"] for r in rows):
        return f"tensors, {time}"
    as_attention = "counts as that of attention" in text or "attend over the sums" in text
    own = "keep for the backward pass count as they are" in text or "keeps for the backward pass count as they are" in text
    oracle.check(own != as_attention or name == "Kimi-K3", f"{name}, {framework}: what its layers keep is not said: {text[:800]}")
    return f"{'modules' if framework in READ and (name, framework) != UNREAD and own and not as_attention else 'bounded'}, {time}"


def kept(name):
    """MB that one layer keeps of 4,096 tokens beside its experts' rows under Megatron-Core, on average."""
    done = asked("explain", name, "Megatron-Core", "--remat", "none", "--format", "json")
    if done.returncode != 0:
        return "-"
    found = {r["component"]: r["bytes"] for r in json.loads(done.stdout)}
    config = json.loads(file_of(name).read_text())
    layers = {**config, **config.get("text_config", {})}["num_hidden_layers"]
    return f"{found['saved_activations'] / layers / 1e6:,.0f}"


def table():
    yield f"| model | {' | '.join(FRAMEWORKS)} | a layer keeps, MB |"
    yield "|---" * (len(FRAMEWORKS) + 2) + "|"
    for name in MODELS:
        yield f"| {name} | {' | '.join(cell(name, f) for f in FRAMEWORKS)} | {kept(name)} |"


page = root / "docs/models.md"
text = page.read_text()
begin = text.index("| model |", text.index(TITLE))
end = text.index("\n\n", begin)
wanted = "\n".join(table())
if accept:
    page.write_text(text[:begin] + wanted + text[end:])
apart = [(a, b) for a, b in zip(text[begin:end].splitlines(), wanted.splitlines()) if a != b]
oracle.check(accept or text[begin:end] == wanted, f"docs/models.md is not what the program says; apart: {apart[:3]}; --accept writes it")
for name, framework, word in (("DeepSeek-V4-Flash", "transformers", "tensors, time"), ("MiniMax-M3", "transformers", "tensors, time"),
                              ("DeepSeek-V4-Flash", "Megatron-Core", "modules, time"), ("Nemotron-3-Super", "MaxText", "refused")):
    line = next(row for row in wanted.splitlines() if row.startswith(f"| {name} |"))
    oracle.check(line.split(" | ")[1 + list(FRAMEWORKS).index(framework)] == word, f"{name}, {framework}: {line}")
oracle.finish(least=40)

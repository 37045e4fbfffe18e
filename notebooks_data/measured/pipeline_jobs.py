"""Runs of whole_pipelines_h100.csv and whole_validation_h100.csv as jobs of spillway: the routing of each as a trace, and its keys. Needs h5py."""
import csv
import json
import pathlib
import subprocess
import sys

import h5py
import numpy

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from whole_routing import choices  # noqa: E402

MODELS = json.loads((HERE / "whole_models.json").read_text())
SIZES = "gpus pipeline virtual_stages expert_parallel micro_batches micro_batch sequence predictions steps".split()


def read(table="whole_pipelines_h100.csv"):
    """{name: [rows of its ranks]}, sizes as numbers."""
    runs = {}
    with open(HERE / table) as file:
        for row in csv.DictReader(file):
            runs.setdefault(row["name"], []).append({**row, **{k: int(row[k]) for k in SIZES}})
    return runs


def ran(rows):
    return all(r["outcome"] == "ran" for r in rows)


def failures(rows):
    """Its ranks that ran out of memory by themselves."""
    return [r for r in rows if r["outcome"] == "out_of_memory"]


def draw(run, layer, source, step):
    m, tokens = MODELS[run["model"]], run["micro_batch"] * run["sequence"]
    return numpy.concatenate([choices(run["routing"], step, mb, layer, source, tokens, m["num_experts_per_tok"], m["num_experts"],
                                      run["expert_parallel"]) for mb in range(run["micro_batches"])]).astype("u1")


def write_trace(run, path):
    """A source rank is a data-parallel rank; its micro-batches come one after the other."""
    m, ranks, steps = MODELS[run["model"]], run["gpus"] // run["pipeline"], run["steps"]
    layers = list(range(m.get("first_k_dense_replace", 0), m["num_hidden_layers"] + run["predictions"]))
    each, top_k, experts = run["micro_batches"] * run["micro_batch"] * run["sequence"], m["num_experts_per_tok"], m["num_experts"]
    rows, count = ranks * each, len(layers)
    even = not any(c in run["routing"] for c in ":>")
    with h5py.File(path, "w", libver=("earliest", "v110")) as f:
        f.attrs.update(format="moe-routing-trace", format_version="1.0.0", content="tokens", created="2026-11-26T00:00:00Z",
                       generator="whole_routing.py", source="made", source_commit="", license="CC0-1.0", citation="", note="", synthetic=1)
        for name, values in (("layer", layers), ("expert", range(experts)), ("k", range(top_k)), ("rank", range(ranks))):
            f[name] = numpy.array(values, "i4")
        g = f.create_group("model")
        g.attrs.update(name=run["model"], num_layers=m["num_hidden_layers"] + run["predictions"], hidden_size=m["hidden_size"],
                       moe_intermediate_size=m["moe_intermediate_size"], num_shared_experts=0, router_score="softmax", norm_topk=1,
                       routed_scaling=1.0, n_group=1, topk_group=1, balance="none", aux_coeff=0.0, bias_rate=0.0,
                       capacity_factor=float("nan"), drop_policy="none")
        g["num_experts"], g["top_k"] = numpy.full(count, experts, "i4"), numpy.full(count, top_k, "i4")
        s = f.create_group("steps")
        s["id"], s["phase"], s["num_tokens"] = numpy.arange(steps, dtype="i8"), numpy.zeros(steps, "u1"), numpy.full(steps, rows, "i8")
        t = f.create_group("tokens")
        ids = t.create_dataset("expert_id", (steps * rows, count, top_k), "u1", chunks=(8192, 1, top_k), shuffle=True, compression=1)
        ids.attrs.update(missing_value=255, order="unspecified", expert_axis="logical")
        same = None
        for step in range(steps):
            for i, layer in enumerate(layers):
                if not (even and same is not None):
                    same = numpy.concatenate([draw(run, layer, r, step) for r in range(ranks)])
                ids[step * rows:(step + 1) * rows, i, :] = same
        t["step_offset"] = numpy.arange(steps + 1, dtype="i8") * rows
        t["source_rank"] = numpy.tile(numpy.repeat(numpy.arange(ranks, dtype="u2"), each), steps)
        sequences = steps * rows // run["sequence"]
        t["sequence"] = numpy.repeat(numpy.arange(sequences, dtype="i4"), run["sequence"])


def write_job(run, path):
    model = {k: v for k, v in MODELS[run["model"]].items() if k not in ("shared_intermediate_size", "qk_norm")}
    if run["predictions"]:
        model["num_nextn_predict_layers"] = run["predictions"]
    pathlib.Path(f"{path}.model.json").write_text(json.dumps(model))
    remat = f"[{', '.join(run['remat'].split('+'))}]" if run["remat"] not in ("none", "full") else run["remat"]
    parallel = dict(expert=run["expert_parallel"], fsdp=run["gpus"] // run["pipeline"] // run["expert_parallel"],
                    pipeline=run["pipeline"], virtual_stages=run["virtual_stages"])
    if run["layout"]:
        parallel["pipeline_model_parallel_layout"] = run["layout"]
    batch = dict(sequences_per_gpu=[run["micro_batches"] * run["micro_batch"]], sequence_length=run["sequence"],
                 micro_batches=run["micro_batches"])
    lines = [f"model: {path}.model.json", f"cluster: {run.get('cluster', 'h100-8x8')}", f"gpus: {run['gpus']}", "optimizer: distributed", "memory_fraction: 1",
             f"cross_entropy: {'te_2_20' if run['loss'] == 'te' else run['loss']}", f"remat: {remat}", f"parallel: {json.dumps(parallel)}", f"batch: {json.dumps(batch)}",
             f"schemes: ['megatron-alltoall{':align=16' if run['fp8'] else ''}']"]
    lines.append(f"gradient_accumulation_fusion: {'layers' if str(run['fused_wgrad']) == 'True' else 'false'}")  # without Apex
    if "kv_lora_rank" in model:
        lines.append("apply_rope_fusion: false")
    if run["fp8"]:
        lines.append(f"precision: {{recipe: {run['fp8']}}}")
    if run["limit_bytes"]:
        device = max(int(r) for r in (run["device_total"] or "85017493504",))
        lines.append(f"allocator: {{per_process_memory_fraction: {int(run['limit_bytes']) / device:.9f}}}")
    pathlib.Path(path).write_text("\n".join(lines) + "\n")


def replay(program, trace, job, *words):
    """The row that the program has of a job of one scheme."""
    out = subprocess.run([program, "replay", str(trace), "--job", str(job), *words, "--format", "json"], capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"{job}: {out.stderr}")
    return json.loads(out.stdout)["rows"][0]

#!/usr/bin/env python3
"""Measured runs of Hugging Face transformers (transformers_h100.csv, transformers_oss_h100.csv, transformers_first_h100.csv; under DDP
transformers_ddp_h200.csv) as jobs of spillway, and what `plan` says of them today beside them, as Markdown: transformers_jobs.py SPILLWAY SCRATCH"""
import csv
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
NAMES = {"hidden_size": "hidden", "num_hidden_layers": "layers", "num_attention_heads": "heads", "num_key_value_heads": "kv_heads",
         "num_experts_per_tok": "top_k", "vocab_size": "vocab"}


def read():
    """Rows of the tables. Left out: experts one by one, autocast with fp32 weights, and a gpt-oss of reduced precision, which are summed by
    components (rows `not listed`), and DeepSeek-V3's, whose other sizes are in test_transformers_laws."""
    for table in ("transformers_h100.csv", "transformers_oss_h100.csv", "transformers_first_h100.csv", "transformers_ddp_h200.csv"):
        with open(HERE / table, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row.get("seen") != "not listed":
                    yield {"ranks": "1", "state": "bf16", "logits_kept": "1", "expandable": "0", **row, "table": table}


def model_of(run):
    """Its config.json."""
    config = {theirs: int(run[ours]) for theirs, ours in NAMES.items()}
    config.update(model_type=run["family"], tie_word_embeddings=False, attention_bias=run["family"] == "gpt_oss")
    head, experts, ffn = int(run["head_dim"]), int(run["experts"]), int(run["ffn"])
    more = {"qwen3_moe": dict(head_dim=head, num_experts=experts, moe_intermediate_size=ffn, intermediate_size=6144, decoder_sparse_step=1, mlp_only_layers=[]),
            "mixtral": dict(head_dim=head, num_local_experts=experts, intermediate_size=ffn), "olmoe": dict(num_experts=experts, intermediate_size=ffn),
            "gpt_oss": dict(head_dim=head, num_local_experts=experts, intermediate_size=ffn, sliding_window=128)}
    return {**config, **more[run["family"]]}


def words_of(run, model):
    """Of `plan`."""
    gpus, sharded = int(run["ranks"]), run["ranks"] != "1" and run.get("fsdp2") != "0"
    scheme = "transformers:logits=kept" if run["logits_kept"] == "1" else "transformers"
    words = ["--model", model, "--cluster", f"{run['table'][-8:-4]}:{gpus}x1", "--scheme", scheme, "--sequences-per-gpu", run["sequences"], "--sequence-length", run["length"],
             "--remat", "full" if run["checkpointing"] == "1" else "none", "--routing", "uniform", "--optimizer", "sharded" if sharded else "replicated"]
    words += ["--fsdp", str(gpus)] if gpus > 1 else []
    words += ["--precision", "bf16"] if run["state"] == "bf16" else ["--set", "precision.weights=fp32", "--set", "precision.gradients=fp32"]
    if run["lora_rank"] != "0":
        targets = "all" if run["run"] == "t_loraall" else "attention"
        words += ["--set", "finetune.frozen=base", "--set", f"finetune.lora_rank={run['lora_rank']}", "--set", f"finetune.lora_targets={targets}"]
    words += ["--set", "attention=unfused"] if run["family"] == "gpt_oss" else []
    return words + (["--allocator", "expandable_segments:True"] if run["expandable"] == "1" else [])


def ask(program, folder, run):
    """The row that the program has of it."""
    path = pathlib.Path(folder) / f"{run['run']}.json"
    path.write_text(json.dumps(model_of(run)))
    done = subprocess.run([program, "plan", *words_of(run, str(path)), "--format", "json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{run['run']}: {done.stderr}")
    return json.loads(done.stdout)["rows"][0]


def errors(row, run):
    """{what: per cent} of what was measured."""
    memory, time = row["memory"], row["time"]
    said = dict(requested_bytes=memory["max_bytes"], reserved_bytes=memory["allocator"]["reserved"]["max_bytes"], step_ms=1e3 * (time["step_s"] or 0))
    return {k: 100 * (v / float(run[k]) - 1) for k, v in said.items() if run[k] and v}


def main(program, scratch):
    folder = pathlib.Path(scratch)
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    print("| run | verdict | requested | reserved | step |\n|---|---|---|---|---|")
    for run in read():
        row = ask(program, folder, run)
        e = errors(row, run)
        found.setdefault(run["table"], []).append(e)
        print(f"| {run['run']} | {row['memory']['verdict']} | " + " | ".join(f"{e[k]:+.2f} %" if k in e else "" for k in ("requested_bytes", "reserved_bytes", "step_ms")) + " |")
    for table, rows in found.items():
        for what in ("requested_bytes", "reserved_bytes", "step_ms"):
            each = [e[what] for e in rows if what in e]
            print(f"\n{table}, {what}: {len(each)} runs, {sum(map(abs, each)) / len(each):.2f} % on the mean, {max(each, key=abs):+.2f} % the farthest")


if __name__ == "__main__":
    main(*sys.argv[1:])

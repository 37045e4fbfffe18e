#!/usr/bin/env python3
"""Runs of torchtitan_rounds.csv and torchtitan_device.csv as jobs of spillway, and what it says of them: python3 torchtitan_jobs.py SPILLWAY
SCRATCH PREDICTED.csv [DEVICE or LATER] (needs h5py). Cases are those below, or those of that name; torchtitan_steps.py runs the same
words."""
import csv
import json
import pathlib
import sys

import pipeline_jobs

DEVICE = 85017493504  # bytes of an NVIDIA H100 80GB HBM3, as PyTorch counts them
OUTSIDE = 3117416448  # as of torchtitan_steps_predicted.csv: a process, FSDP2's group, one of the experts that exchanges, one of the loss
SAID = ["verdict", "requested_bytes", "reserved_bytes", "outside_bytes", "in_use_bytes", "death_step", "death_rank", "death_micro_batch", "death_in"]
COMMON = dict(gpus=2, layers=6, hidden=2048, heads=32, kv_heads=4, head_dim=128, experts=64, top_k=8, ffn=768, vocabulary=32768, tokens=8192,
              expert=2, remat="full", micro_batches=1, routing="balanced", steps=5, limit=0)
CASES = {
    "m1_none": dict(remat="none"),
    "m2_none": dict(remat="none", micro_batches=2),
    "m1_full": dict(),
    "m2_full": dict(micro_batches=2),
    "m1_words": dict(layers=4, vocabulary=151936, tokens=4096),
    "m2_words": dict(layers=4, vocabulary=151936, tokens=4096, micro_batches=2),
    "m1_hot": dict(remat="none", layers=4, routing="hot:0.8"),
    "m2_turns": dict(layers=8, micro_batches=2, routing="balanced|hot:0.9"),
}
FAILING = {  # under a limit of the allocator, bytes
    "oom_m2_none": dict(remat="none", micro_batches=2, limit=27_500_000_000),
    "oom_m1_later": dict(remat="none", layers=4, routing="balanced>hot:0.9@3", limit=20_200_000_000),
    "oom_m2_later": dict(remat="none", layers=4, routing="balanced>hot:0.9@2", micro_batches=2, limit=25_000_000_000),
    "oom_turns": dict(remat="none", layers=4, routing="balanced|hot:0.9", micro_batches=2, limit=22_300_000_000),
    "oom_state": dict(layers=8, tokens=4096, limit=19_000_000_000),
    "oom_words": dict(layers=4, vocabulary=151936, tokens=4096, micro_batches=2, limit=22_300_000_000),
}

DEVICE_CASES = {  # sizes that no run before had; what of the device lies outside as measured in torchtitan_rounds.csv and torchtitan_steps.csv
    "words_none": dict(layers=4, vocabulary=151936, tokens=4096, remat="none"),
    "wide_m2": dict(layers=3, hidden=3072, heads=24, kv_heads=8, experts=16, top_k=2, ffn=4096, vocabulary=100352, micro_batches=2),
    "fine_hot": dict(layers=5, hidden=1536, heads=16, kv_heads=2, experts=128, ffn=512, vocabulary=65536, remat="none", routing="hot:0.7"),
    "selective": dict(layers=6, remat="selective_op"),
    "words_m2": dict(layers=5, hidden=2560, heads=20, kv_heads=4, experts=32, top_k=4, ffn=1024, vocabulary=200064, tokens=4096, micro_batches=2),
    "one_group_words": dict(layers=3, experts=32, top_k=4, vocabulary=151936, tokens=4096, expert=1),
    "selective_words": dict(layers=5, vocabulary=128256, tokens=4096, remat="selective_op", micro_batches=2),
}

LATER_CASES = {  # sizes that no run before had, said after recordings of four runs had shown the order of allocations
    "none_wide_ffn": dict(layers=5, heads=16, experts=32, top_k=4, ffn=1024, vocabulary=50304, remat="none"),
    "words_deep_m2": dict(kv_heads=8, experts=48, top_k=6, vocabulary=128256, tokens=4096, micro_batches=2),
    "none_narrow_m2": dict(layers=4, hidden=1792, heads=14, kv_heads=2, top_k=6, ffn=896, vocabulary=100352, tokens=4096, remat="none", micro_batches=2),
    "one_group_full": dict(layers=4, experts=16, top_k=2, ffn=2048, vocabulary=65536, expert=1),
    "one_group_none": dict(layers=3, hidden=2560, heads=20, experts=24, top_k=4, ffn=1024, vocabulary=131072, tokens=4096, remat="none", expert=1),
    "hot_full": dict(layers=7, hidden=1536, heads=12, top_k=4, ffn=1024, routing="hot:0.6"),
    "selective_few": dict(layers=5, experts=32, top_k=4, ffn=1024, vocabulary=65536, remat="selective_op"),
}
MEASURED_OUTSIDE = {1: 2186149888, 2: 3161325568}  # by expert parallelism: with 1 there is no group of experts


def ask(program, folder, name, said):
    c = {**COMMON, **said}
    model = dict(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", hidden_size=c["hidden"], num_hidden_layers=c["layers"],
                 num_attention_heads=c["heads"], num_key_value_heads=c["kv_heads"], head_dim=c["head_dim"], num_experts=c["experts"],
                 num_experts_per_tok=c["top_k"], moe_intermediate_size=c["ffn"], intermediate_size=3 * c["hidden"], vocab_size=c["vocabulary"],
                 tie_word_embeddings=False, max_position_embeddings=40960, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])
    pipeline_jobs.MODELS[name] = model
    run = dict(model=name, gpus=c["gpus"], pipeline=1, expert_parallel=c["expert"], micro_batches=c["micro_batches"],
               micro_batch=c["tokens"] // 4096, sequence=4096, predictions=0, routing=c["routing"], steps=c["steps"])
    trace, job = folder / f"{name}.h5", folder / f"{name}.yaml"
    pipeline_jobs.write_trace(run, trace)
    (folder / f"{name}.json").write_text(json.dumps(model))
    batch = dict(sequences_per_gpu=[c["micro_batches"] * run["micro_batch"]], sequence_length=4096, micro_batches=c["micro_batches"])
    lines = [f"model: {folder / name}.json", "cluster: h100-8x8", "gpus: 2", "optimizer: sharded", "memory_fraction: 1", "cross_entropy: unfused",
             f"remat: {c['remat']}", f"parallel: {{expert: {c['expert']}, fsdp: {2 // c['expert']}}}", f"batch: {json.dumps(batch)}", "schemes: [torchtitan]"]
    if c["limit"]:
        lines.append(f"allocator: {{per_process_memory_fraction: {c['limit'] / DEVICE:.9f}}}")
    job.write_text("\n".join(lines) + "\n")
    return c, pipeline_jobs.replay(program, trace, job, "--every-rank")["memory"]


def main(program, scratch, table, device=None):
    folder = pathlib.Path(scratch)
    folder.mkdir(parents=True, exist_ok=True)
    with open(table, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["case", *COMMON, *SAID], lineterminator="\n")
        writer.writeheader()
        for name, given in ({"DEVICE": DEVICE_CASES, "LATER": LATER_CASES}[device] if device else {**CASES, **FAILING}).items():
            c, memory = ask(program, folder, name, given)
            a = memory["allocator"]
            death = a["runs_out"] or {}
            outside = MEASURED_OUTSIDE[c["expert"]] if device else OUTSIDE
            said = dict(verdict=memory["verdict"], requested_bytes=a["requested"]["max_bytes"], reserved_bytes=a["reserved"]["max_bytes"],
                        outside_bytes=outside, in_use_bytes=outside + a["reserved"]["max_bytes"],
                        death_step=death.get("step", ""), death_rank=death.get("rank", ""), death_micro_batch=death.get("micro_batch", ""),
                        death_in="optimizer" if death.get("optimizer") else "pass" if death else "")
            writer.writerow(dict(case=name, **c, **said))
            print(name, said, death)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Questions of pairs_kept.py that need traces: what is written into them, and replays of them."""
import itertools
import json
import zlib

import numpy as np

import program as caller
from kept_arrays import UNSTEADY, array_sum, stored
from kept_sums import WORD, word_value
from pair_tables import Table
from replay_case import Tokens

EXPERTS, TOP_K, LAYERS, STEPS = 16, 2, 4, 3


def sum_of_file(path):
    """Of an HDF5 file every value and attribute by its name and place; of a text its words."""
    if path.suffix != ".h5":
        return sum(word_value(word, place) for place, word in enumerate(WORD.findall(path.read_text())))
    total = 0.0
    for name, value in stored(path):
        key, value, weight = name.split("@")[-1], np.asarray(value), 1 + zlib.crc32(name.encode()) / 2**32
        if value.dtype.kind in "iufb":
            total += weight * (array_sum(np.nan_to_num(value.astype(float).ravel(), nan=-0.7)) + value.size)
        elif value.dtype.kind in "OSU" and key not in (*UNSTEADY, "REFERENCE_LIST", "DIMENSION_LIST"):
            words = [word for text in value.ravel() for word in WORD.findall(text.decode() if isinstance(text, bytes) else str(text))]
            total += weight * sum(word_value(word, place) for place, word in enumerate(words))
    return total


# --- Traces that questions read ---

GENERATED = {  # file -> how it is made
    "lognormal.h5": "--ranks 16 --tokens-per-rank 32 --sequence-length 16 --distribution lognormal:sigma=0.7 --seed 2",
    "drift.h5": "--ranks 16 --tokens-per-rank 32 --sequence-length 32 --distribution zipf:exponent=0.8,drift=0.3 --seed 3",
    "counts.h5": "--ranks 16 --tokens-per-rank 32 --counts-only --distribution lognormal:sigma=0.5 --seed 4",
    "many.h5": "--ranks 32 --tokens-per-rank 32 --sequence-length 16 --distribution group-limited:groups=4,kept=2 --seed 5",
    "few.h5": "--ranks 4 --tokens-per-rank 48 --sequence-length 16 --distribution collapse:peak=3,rise=1,recovery=1 --seed 6",
}


def write_traces(program, folder, _root):
    for name, words in GENERATED.items():
        made(program, folder, name, f"trace generate {name} --experts {EXPERTS} --top-k {TOP_K} --layers {LAYERS} --steps {STEPS} --hidden 64 --ffn 96"
             f" --first-layer 1 {words}")
    draw, rows, ranks = np.random.default_rng(3), 16 * 32, 16
    ids = np.argsort(-draw.random((STEPS * rows, LAYERS, EXPERTS)) - np.linspace(1, 0, EXPERTS), axis=2)[:, :, :TOP_K].astype(np.uint8)
    weight = -np.sort(-draw.random((STEPS * rows, LAYERS, TOP_K)), axis=2)
    if not (folder / "weights.h5").exists():
        Tokens(ids, [rows] * STEPS, EXPERTS, ranks, np.tile(np.repeat(np.arange(ranks), 32), STEPS), np.tile(np.repeat(np.arange(ranks * 2), 16), STEPS),
               np.tile(np.arange(16), STEPS * ranks * 2), weight=weight).write(folder / "weights.h5")
        ids[rows:rows + 200, 1:3] = 255  # no choice
        Tokens(ids[:2 * rows - 100], [rows, 0, rows - 100], EXPERTS).write(folder / "missing.h5")
    small = dict(num_hidden_layers=LAYERS, hidden_size=64, vocab_size=176, num_attention_heads=4, num_experts_per_tok=TOP_K, moe_intermediate_size=96)
    (folder / "plain.json").write_text(json.dumps({**small, "model_type": "generic", "num_key_value_heads": 2, "head_dim": 16, "num_experts": EXPERTS}))
    (folder / "dense.json").write_text(json.dumps({
        **small, "model_type": "deepseek_v2", "num_hidden_layers": LAYERS + 1, "first_k_dense_replace": 1, "intermediate_size": 224, "n_routed_experts": EXPERTS,
        "n_shared_experts": 1, "kv_lora_rank": 24, "q_lora_rank": 40, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
        "tie_word_embeddings": False, "topk_method": "greedy"}))
    (folder / "tied.json").write_text(json.dumps({**small, "model_type": "qwen3_moe", "num_key_value_heads": 2, "head_dim": 16, "num_experts": EXPERTS,
                                                  "tie_word_embeddings": True}))


def made(program, folder, name, words):
    if not (folder / name).exists():
        done = caller.run(program, *words.split(), cwd=folder)
        if done.returncode:
            raise RuntimeError(f"{words}: {done.stderr}")


CUTS = {"steps": ("--steps", ("0:1", "1:3")), "ranks": ("--ranks", ("0:4", "4:16")), "halves": ("--ranks", ("0:8", "8:16")),
        "each": ("--steps", ("0:1", "1:2", "2:3"))}
SHARDED = [(source, cut) for source in ("lognormal", "drift", "weights") for cut in CUTS] + [("counts", "steps"), ("counts", "each")]


def write_shards(program, folder, root):
    write_traces(program, folder, root)
    for source, cut in SHARDED:
        option, parts = CUTS[cut]
        (folder / f"{source}_{cut}").mkdir(exist_ok=True)
        for number, part in enumerate(parts):
            made(program, folder, f"{source}_{cut}/part{number}.h5", f"trace slice {source}.h5 {source}_{cut}/part{number}.h5 {option} {part}")
        (folder / f"{source}_{cut}.shards").write_text("".join(f"{source}_{cut}/part{number}.h5\n" for number in range(len(parts))))


def write_inputs(_program, folder, root):
    """Files of other programs: arrays, routers' records, and the small ones of the fuzzer, whose first two bytes are not the file's."""
    draw = np.random.default_rng(8)
    ids = np.argsort(draw.random((3, 24, 4, 8)), axis=3)[..., :2].astype("i4")  # steps, tokens, layers, k
    hurt = ids.copy()
    hurt[:, :, 0] = 0
    hurt[1, 20:] = -1
    hurt[2, 3, 2, 1] = -1
    counts = np.stack([np.bincount(ids[s, :, layer].ravel(), minlength=8) for s in range(3) for layer in range(4)]).reshape(3, 4, 8)
    np.save(folder / "ids.npy", ids)
    np.save(folder / "hurt.npy", hurt)
    np.save(folder / "step.npy", ids[0])
    np.save(folder / "last.npy", ids[2])
    np.save(folder / "step2.npy", ids[1, :18])
    np.save(folder / "fortran.npy", np.asfortranarray(ids.transpose(2, 1, 3, 0)))
    np.save(folder / "counts.npy", counts)
    np.save(folder / "scores.npy", draw.standard_normal((24, 8)).astype("f4"))
    np.save(folder / "noise.npy", draw.standard_normal((24, 8)).astype("f4"))
    np.savez(folder / "two.npz", ids=ids[0], other=ids[1])
    np.savez(folder / "layers.npz", **{f"layer_{layer}": ids[0, :, layer] for layer in range(4)})
    for micro, again, stages in itertools.product((1, 2), (1, 2), (1, 2)):
        where = folder / f"router_{micro}{again}{stages}"
        where.mkdir(exist_ok=True)
        for rank in range(2 * stages):
            lines = [{"step": step, "stage": "pre_dispatch", "block": "decoder", "layer": layer, "rank": rank, "num_tokens": 6, "topk": 2,
                      "top_indices": np.argsort(np.random.default_rng(100 * step + 10 * layer + rank + 1000 * part).random((6, 8)))[:, :2].tolist()}
                     for step in range(2) for part in range(micro) for _ in range(again) for layer in range(4 // stages)]
            (where / f"router_trace_rank{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for path in (root / "tests/fuzz/corpus/import").iterdir():
        for number, piece in enumerate(path.read_bytes()[2:].split(b"\x1e\n")):
            (folder / f"{path.name}_rank{number}.bin").write_bytes(piece)
            if path.name.startswith("counts"):
                (folder / path.name).mkdir(exist_ok=True)
                (folder / path.name / f"rank{number}.jsonl").write_bytes(piece)


# --- Questions ---


ROUTED = [f"trace import {form}-routed routed_{name}_rank0.bin --experts 8 --top-k 2{more}" for form, name, more in (
    ("vllm", "vllm", ""), ("sglang", "sglang", " --layers 0:2"), ("dynamo", "dynamo", ""), ("nemo-rl", "nemo_rl", ""))]
OTHERS = [f"trace import {words} --experts 8 --top-k 2" for words in (
    "count-csv csv_rank0.bin", "count-jsonl layer_counts_rank0.bin", "moe-balance balance_rank0.bin", "moe-balance balance_weights_rank0.bin --ranks 2",
    "moe-balance balance_ranks_rank0.bin --ranks 2", "vllm-eplb eplb_rank0.bin", "mcore-load mcore_rank0.bin --ranks 1",
    "mcore-load mcore_micro_rank0.bin --ranks 1 --micro-batches 2", "megatron-counts counts/rank0.jsonl --ranks 1 --expert-parallel 1 --micro-batches 2",
    "megatron-counts counts_resumed/rank0.jsonl --ranks 1 --expert-parallel 1 --micro-batches 2 --resumed",
    "megatron-router router_mtp_rank0.bin --ranks 1")]
FACTS = {"model layers": ["", "--model-layers 6"], "phase": ["", "--phase decode", "--phase train"], "license": ["", "--license CC0-1.0 --model m"]}
SCHEMES = [f"--scheme {scheme}" for scheme in (
    "megatron-alltoall", "megatron-flex:backend=hybridep", "megatron-allgather", "megatron-alltoall:capacity_factor=1,pad=true",
    "megatron-syncfree:rank_capacity=1.25,stash=1.25,page=16", "megatron-alltoall:align=16,pay=router", "megatron-ncclep:rank_capacity=1.5",
    "megatron-flex:capacity_factor=1,policy=position", "primus-syncfree", "gmm", "gmm:buffer_factor=1.25", "dense:capacity_factor=1.25", "ring:buffer_factor=1.5",
    "ragged-deepep", "torchtitan", "torchtitan-hybridep:capacity=0.3,pad=8", "deepep:pad=16", "deepep-ll", "hybrid-ep:budget=1.25,pad=8",
    "moe-dedup:buffer_factor=1.25,overflow_factor=0.5", "tutel:capacity_factor=1", "megablocks:impl=sparse")]
JOBS = {
    "scheme": SCHEMES,
    "model": ["--model plain.json", "--model dense.json", "--model tied.json"],
    "cluster": ["--cluster h200:8x2", "--cluster h200:8x1", "--cluster mi355x:8x4"],
    "expert": ["--expert-parallel 8", "--expert-parallel 4", "--expert-parallel 2", "--expert-parallel 16"],
    "mesh": ["--expert-tensor 1", "--tensor 2 --expert-tensor 1", "--context 2 --expert-tensor 1", "--expert-tensor 2", "--tensor 2 --context 2 --expert-tensor 1"],
    "batch": ["--sequences-per-gpu 2", "--sequences-per-gpu 1,4", "--sequences-per-gpu 4 --micro-batches 2",
              "--sequences-per-gpu 4 --pipeline 2 --micro-batches 2", "--sequences-per-gpu 8 --pipeline 2 --virtual-stages 2 --micro-batches 4"],
    "length": ["--sequence-length 16", "--sequence-length 32"],
    "optimizer": ["--optimizer distributed", "--optimizer sharded", "--optimizer replicated"],
    "remat": ["--remat none", "--remat full", "--remat moe_act"],
    "allocator": ["--no-allocator", "", "--allocator max_split_size_mb:32"],
    "extra": ["", "--set precision.recipe=tensorwise", "--set offload_modules=moe_act", "--set finetune.frozen=experts", "--precision bf16"],
    "limits": ["--set library_limits=ignore"],
}
READ = ["lognormal.h5", "drift.h5", "counts.h5", "many.h5", "few.h5", "weights.h5", "missing.h5"]
TABLES = [
    Table("generate", "traces", {
        "ask": ["trace generate out.h5"],
        "distribution": ["", *(f"--distribution {name}" for name in (
            "zipf:exponent=1.2", "lognormal:sigma=0.5", "dirichlet:alpha=3", "hot-rank:share=0.4,rank=1,ranks=4", "group-limited:groups=4,kept=2",
            "drift:drift=0.2", "collapse:peak=3,rise=1,recovery=2", "k-hot:hot=2,heat=0.5", "max-violation:violation=1,hot=2",
            "hash:hash=3,words=2,vocabulary=500", "reference", "megatron-w0", "megatron-w1", "megatron-w3", "megatron-w5", "megatron-w6", "megatron-w7",
            "lognormal:sigma=0.4,drift=0.1", "zipf:exponent=0.8,groups=4,kept=2"))],
        "experts": ["--experts 16", "--experts 24", "--experts 64"], "top-k": ["--top-k 2", "--top-k 3", "--top-k 4"],
        "layers": ["--layers 2", "--layers 3 --first-layer 2"], "steps": ["--steps 2", "--steps 5"], "ranks": ["--ranks 4", "--ranks 8", "--ranks 1"],
        "tokens": ["--tokens-per-rank 24", "--tokens-per-rank 24 --sequence-length 12", "--tokens-per-rank 36 --sequence-length 9"],
        "seed": ["--seed 1", "--seed 7"], "counts": ["", "--counts-only"], "sizes": ["", "--hidden 48 --ffn 20"]}, ("out.h5",)),
    Table("info", "traces", {
        "ask": ["trace info --format json", "trace info", "trace info --format csv"],
        "trace": [*READ, "root/traces/data/training_aux_e64_slice.h5", *(f"{name}_{cut}" for name, cut in SHARDED), "drift_ranks.shards", "counts_each.shards"],
        "expert": ["", *(f"--expert-parallel {size}" for size in (2, 4, 8, 16))]}, prepare=write_shards),
    Table("verify", "traces", {
        "ask": ["trace verify --format json", "trace verify"],
        "trace": [*READ, *(f"{name}_{cut}" for name, cut in SHARDED)], "run": ["", "--longest-run 1", "--longest-run 2"]}, prepare=write_shards),
    Table("slice", "traces", {
        "ask": ["trace slice"], "trace": [f"{name} out.h5" for name in READ],
        "steps": ["", "--steps 1:3", "--steps 0,2", "--steps 1"], "layers": ["", "--layers 1:3", "--layers 3:4"],
        "ranks": ["", "--ranks 1:3", "--ranks 2:16"], "tokens": ["", "--max-tokens 100", "--max-tokens 37"], "level": ["", "--level 1"]},
          ("out.h5",), write_shards),
    Table("record", "traces", {
        "ask": ["trace slice --record out.record"], "trace": [*READ, "weights_ranks"], "step": ["", "--step 1", "--step 2"],
        "layer": ["", "--layer 1", "--layer 3"], "group": ["", "--group 1", "--group 3"],
        "expert": ["--expert-parallel 4", "--expert-parallel 2", "--expert-parallel 8"]}, ("out.record",), write_shards),
    Table("merge", "traces", {"ask": ["trace merge"], "trace": [f"{name}_{cut}{end} out.h5" for name, cut in SHARDED for end in ("", ".shards")],
                              "level": ["", "--level 2"]}, ("out.h5",), write_shards),
    Table("import array", "traces", {
        "ask": ["trace import array --output out.h5 --experts 8"],
        "file": ["ids.npy --top-k 2 --axes steps,tokens,layers,k", "hurt.npy --top-k 2 --axes steps,tokens,layers,k --missing -1 --dense-layers 0:1",
                 "step.npy --top-k 2 --axes tokens,layers,k", "step.npy step2.npy --top-k 2 --axes tokens,layers,k --files steps",
                 "fortran.npy --top-k 2 --axes layers,tokens,k,steps", "counts.npy --top-k 2 --axes steps,layers,experts",
                 "scores.npy noise.npy --top-k 3 --axes tokens,experts --files layers", "two.npz --top-k 2 --array other --axes tokens,layers,k",
                 "layers.npz --top-k 2 --axes tokens,k", "step.npy last.npy --top-k 2 --axes tokens,layers,k --files ranks",
                 "ids.npy --top-k 2 --axes ranks,tokens,layers,k", "ids.npy --top-k 2 --axes sequences,tokens,layers,k",
                 "counts.npy --top-k 2 --axes ranks,layers,experts"],
        "missing": ["", "--missing -1", "--missing -1 --drop-padding", "--missing 7"], "layers": ["", "--layers 3:7", "--layers 1,2,5,9"],
        "order": ["", "--order descending_weight", "--order ascending_id"], "ranks": ["", "--tokens-per-rank 6", "--ranks 3", "--ranks 2"], **FACTS},
          ("out.h5",), write_inputs),
    Table("import router", "traces", {
        "ask": ["trace import megatron-router --output out.h5 --experts 8 --top-k 2 --ranks 2"],
        "files": [" ".join(f"router_{micro}{again}{stages}/router_trace_rank{rank}.jsonl" for rank in range(2 * stages))
                  + (f" --micro-batches {micro}" if micro > 1 else "") + (" --recompute" if again > 1 else "") + (" --stage-first 0,2" if stages > 1 else "")
                  for micro, again, stages in itertools.product((1, 2), (1, 2), (1, 2))],
        "size": ["", "--micro-batch-size 2", "--micro-batch-size 3"], "layers": ["", "--layers 0:4", "--layers 0,1,2,3"], **FACTS}, ("out.h5",), write_inputs),
    Table("import routed", "traces", {
        "form": ROUTED, "ask": ["--output out.h5"], "missing": ["", "--missing -1", "--missing 7", "--missing -1 --drop-padding"],
        "order": ["", "--order descending_weight"], **FACTS}, ("out.h5",), write_inputs),
    Table("import others", "traces", {
        "form": OTHERS, "ask": ["--output out.h5"], "layers": ["", "--layers 0:2", "--layers 0,1"], "order": ["", "--order descending_weight"], **FACTS},
          ("out.h5",), write_inputs),
    Table("replay", "replay", {
        "ask": [f"replay --seed 3 {words}" for words in (
            "--format json", "--each-step --format json", "--advise --format json", "--overload --format csv", "--fits-at 99 --format json", "--advise", "--overload",
            "--output out.h5 --format csv", "--drop-at-most 1 --format json", "--tokens 1T --price 2 --format json")],
        "trace": READ, **JOBS, "steps": ["", "--steps 1:3", "--steps 0:1"], "layers": ["", "--layers 0:2"],
        "balancer": ["", "--balancer eplb:replicas=16,every=1", "--balancer echo:replicas=16,every=1",
                     "--balancer eplb:replicas=16,every=2,hierarchical,groups=4"]}, ("out.h5",), write_traces,
          {"allocator": "--no-allocator"}),
    Table("plan of a trace", "replay", {
        "ask": ["plan --format json", "plan", "plan --until step=1.2 --format json", "explain --rank 3 --format json", "explain", "explain --as simumax",
                "plan --format csv --price 2"],
        "trace": [f"--trace {name}" for name in READ], **JOBS, "steps": ["", "--steps 1:3"]}, (), write_traces),
    Table("execute", "replay", {
        "ask": ["verify --format json", "verify"], "trace": [f"--trace {name}" for name in ("lognormal.h5", "weights.h5", "drift.h5", "few.h5")],
        "scheme": [f"--scheme {scheme}" for scheme in (
            "megatron-alltoall", "gmm", "dense:capacity_factor=1.25", "ring", "deepep", "hybrid-ep:budget=1.25", "tutel:capacity_factor=1", "moe-dedup:buffer_factor=1.25",
            "megatron-alltoall:capacity_factor=1", "megatron-flex")],
        "expert": ["--expert-parallel 4", "--expert-parallel 2", "--expert-parallel 8"], "tensor": ["", "--expert-tensor 2"],
        "steps": ["--steps 0:1", "--steps 1:2"], "layers": ["--layers 0:1", "--layers 2:3"], "groups": ["", "--all-groups"]}, (), write_traces),
]

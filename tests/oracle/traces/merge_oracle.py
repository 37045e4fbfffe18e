#!/usr/bin/env python3
"""`spillway trace merge` against the shards themselves, put together by h5py: ids, weights, columns, micro-batches, counts; a replay of
the merged file is that of the folder; what is no whole set is refused and leaves nothing.
merge_oracle.py SPILLWAY SCRATCH SOURCE"""
import json
import pathlib
import shutil
import sys

SPILLWAY, SCRATCH, SOURCE = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
SCRATCH = SCRATCH / "merge_oracle"
sys.path.insert(0, str(SOURCE / "python"))
import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle
from spillway_moe.capture import write_shard

oracle = Oracle(SPILLWAY, "merge_oracle")
check = oracle.check
rng = np.random.default_rng(11)
shutil.rmtree(SCRATCH, ignore_errors=True)
OUT = SCRATCH / "out.h5"
RANKS, LAYERS, TOP_K = 3, [1, 2, 7], 4
STEPS = {4: (1, "train"), 6: (3, "eval"), 8: (2, "prefill")}  # micro-batches and phase: no two are alike
PHASES = ("train", "eval", "prefill")
PLACES = [(step, micro) for step, (count, _) in STEPS.items() for micro in range(count)]


def write_folder(name, experts, weights):
    folder, kept, sequences = SCRATCH / name, {}, [0] * RANKS
    folder.mkdir(parents=True)
    for rank in range(RANKS):
        for step, (count, phase) in STEPS.items():
            parts = []
            for micro in range(count):
                tokens = 4 * int(rng.integers(1, 5))
                ids = np.argsort(rng.random((tokens, len(LAYERS), experts)), -1)[..., :TOP_K].astype("i4")
                ids[0, 0, 3] = -1
                kept[step, micro, rank] = ids, rng.random(ids.shape).astype("f2")
                parts.append((step, micro, *kept[step, micro, rank][:1 + weights]))
            write_shard(folder / f"r{rank}_s{step}.h5", parts, layers=LAYERS, experts=experts, top_k=TOP_K, rank=rank, weights=weights, phase=phase,
                        sequence_length=4, first_sequence=sequences[rank], model={"name": "tiny", "hidden_size": 64})
            sequences[rank] += sum(len(p[2]) for p in parts) // 4
    return folder, kept


def merged(folder, kept, weights):
    oracle.must("trace", "merge", folder, OUT)
    oracle.must("trace", "verify", OUT)
    with h5py.File(OUT) as h:
        at, sequences = 0, [0] * RANKS
        check([tuple(p) for p in zip(h["steps/id"][:], h["steps/microbatch"][:])] == PLACES, "steps and micro-batches")
        check([PHASES[p] for p in h["steps/phase"][:]] == [STEPS[step][1] for step, _ in PLACES], "phases")
        check(list(h["layer"][:]) == LAYERS and list(h["rank"][:]) == list(range(RANKS)) and h["model"].attrs["name"] in (b"tiny", "tiny"), "what it is of")
        check(("weight" in h["tokens"]) == weights, "weights")
        for place, (step, micro) in enumerate(PLACES):
            for rank in range(RANKS):
                ids, weight = kept[step, micro, rank]
                rows = slice(at, at + len(ids))
                got = h["tokens/expert_id"][rows].astype("i4")
                got[got == h["tokens/expert_id"].attrs["missing_value"]] = -1
                check((got == ids).all() and (h["tokens/source_rank"][rows] == rank).all(), f"ids of step {step}.{micro}, rank {rank}")
                check(not weights or (h["tokens/weight"][rows] == weight).all(), "weights")
                check((h["tokens/position"][rows] == np.arange(len(ids)) % 4).all(), "positions")
                check((h["tokens/sequence"][rows] == sequences[rank] + np.arange(len(ids)) // 4).all(), "sequences")
                sequences[rank] += len(ids) // 4
                for layer in range(len(LAYERS)):
                    chosen = ids[:, layer][ids[:, layer] >= 0]
                    check((h["counts/by_rank"][place, rank, layer] == np.bincount(chosen, minlength=len(h["expert"]))).all(), "counts")
                at += len(ids)
            check(h["tokens/step_offset"][place + 1] == at, "offsets")


def refused(words, *arguments, code=3):
    before = sorted(p.name for p in SCRATCH.rglob("*"))
    done = oracle.call("trace", "merge", *arguments)
    check(done.returncode == code and words in done.stderr, f"wanted '{words}', got {done.returncode}: {done.stderr}")
    check(sorted(p.name for p in SCRATCH.rglob("*")) == before, f"{words}: left over")


for name, experts, weights in (("narrow", 8, True), ("wide", 300, False)):
    folder, kept = write_folder(name, experts, weights)
    merged(folder, kept, weights)
    (SCRATCH / f"{name}.shards").write_text("".join(f"{name}/{p.name}\n" for p in sorted(folder.iterdir(), reverse=True)))
    whole = OUT.read_bytes()
    oracle.must("trace", "merge", SCRATCH / f"{name}.shards", OUT, "--level", 6)
    with h5py.File(OUT) as h:
        ids = h["tokens/expert_id"][:]
    OUT.write_bytes(whole)
    with h5py.File(OUT) as h:
        check((h["tokens/expert_id"][:] == ids).all(), "a list in another order")

# what the simulator says of the folder and of the file is the same
folder = SCRATCH / "narrow"
oracle.must("trace", "merge", folder, OUT)
model = {"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
         "vocab_size": 64, "num_local_experts": 8, "num_experts_per_tok": TOP_K, "max_position_embeddings": 64}
(SCRATCH / "config.json").write_text(json.dumps(model))
rows = [json.loads(oracle.must("replay", trace, "--model", SCRATCH / "config.json", "--cluster", "h200:1x2", "--expert-parallel", 2, "--sequences-per-gpu", 1,
                               "--sequence-length", 4, "--scheme", "megatron-alltoall", "--format", "json"))["rows"] for trace in (folder, OUT)]
check(rows[0] == rows[1] and rows[0][0]["traffic"]["rows_max"] > 0, "a replay of the merged file differs")

# counts by rank: of tokens where the shards have none, and kept where shards have nothing else
with h5py.File(OUT) as h:
    by_rank = h["counts/by_rank"][:]
for gone in ("counts/by_rank", "tokens"):
    part = SCRATCH / "part"
    shutil.copytree(folder, part)
    for path in part.iterdir():
        with h5py.File(path, "r+") as h:
            del h[gone]
            if gone == "tokens":
                h.attrs["content"] = "counts"
    oracle.must("trace", "merge", part, OUT)
    with h5py.File(OUT) as h:
        check("counts/by_rank" in h and (h["counts/by_rank"][:] == by_rank).all(), f"counts by rank of shards without {gone}")
    shutil.rmtree(part)

# a step of no tokens, as of a rank that waited, among others: it has its counts by rank, which are 0, though the shards have none
part = SCRATCH / "waited"
part.mkdir()
for rank in range(2):
    steps = [(step, 0, np.array([[[0, 1]], [[2, 3]]] * count, "i4").reshape(-1, 1, 2)) for step, count in ((0, 1), (1, 0), (2, 2))]
    write_shard(part / f"r{rank}.h5", steps, layers=[0], experts=4, top_k=2, rank=rank)
    with h5py.File(part / f"r{rank}.h5", "r+") as h:
        if "by_rank" in h["counts"]:
            del h["counts/by_rank"]
oracle.must("trace", "merge", part, OUT)
with h5py.File(OUT) as h:
    check("counts/by_rank" in h and h["counts/by_rank"][:, :, 0].tolist() == [[[1] * 4] * 2, [[0] * 4] * 2, [[2] * 4] * 2],
          "counts by rank of a step without tokens")
shutil.rmtree(part)

# no whole set, no set, its own input
OUT.unlink()
(folder / "r1_s6.h5").rename(SCRATCH / "away.h5")
refused("a shard is missing: none holds ranks 1 to 1 at steps 6 to 6", folder, OUT)
shutil.copy(folder / "r0_s6.h5", folder / "again.h5")
refused("again.h5", folder, OUT)
(folder / "again.h5").unlink()
(SCRATCH / "away.h5").rename(folder / "r1_s6.h5")
refused("is no set of shards", folder / "r1_s6.h5", OUT, code=2)
refused("No such file", SCRATCH / "nowhere", OUT)
refused("is the input", folder, folder / "r1_s6.h5", code=2)
with h5py.File(folder / "r1_s6.h5", "r+") as h:
    h["tokens/flags"] = np.eye(1, h["tokens/expert_id"].shape[0], dtype="u1")[0]
refused("are flagged as padding", folder, OUT)
refused("write: spillway trace merge FOLDER OUT.h5", folder, code=2)
shutil.rmtree(SCRATCH)
oracle.finish(100)

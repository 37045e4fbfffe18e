#!/usr/bin/env python3
"""Residual streams (mHC) with pencil and paper, from docs/schemes.md, section 7.18: the same DeepSeek-V4-Flash with n streams and with
one, under Megatron-Core: inputs of layers, what mixing keeps, messages between stages, layers of multi-token prediction, time.

streams_oracle.py SPILLWAY SCRATCH ROOT"""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from replay_case import run

program, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve() / "streams_oracle"
folder.mkdir(parents=True, exist_ok=True)
root, checks = pathlib.Path(sys.argv[3]).resolve(), 0
MODEL = json.loads((root / "sim/models/deepseek-v4-flash.json").read_text())
H, T, LAYERS, B = 4096, 4096, 43, 2


def near(what, got, want, tolerance=1e-9):
    global checks
    checks += 1
    if not abs(got - want) <= tolerance * abs(want) + 1:
        sys.exit(f"FAILED {what}: got {got}, want {want}")


def cluster(words):
    return () if "--cluster" in words else ("--cluster", "h200:8x8")


def asked(command, n, *more, remat="selective"):
    path = folder / f"streams_{n}.json"
    path.write_text(json.dumps({**MODEL, "hc_mult": n}))
    done = run(program, command, "--model", path, *cluster(more), "--expert-parallel", "16", "--scheme", "megatron-alltoall",
               "--optimizer", "distributed", "--remat", remat, "--sequences-per-gpu", "1", "--format", "json", *more)
    if done.returncode != 0:
        sys.exit(f"FAILED {command} {n} {more}: {done.stderr}")
    return json.loads(done.stdout)


def components(n, *more, **keywords):
    return {c["component"]: c["bytes"] for c in asked("explain", n, *more, **keywords)}


def kept(n, fused=False):
    """Bytes of a token in a layer: streams between attention and FFN; inputs of both norms (one counts anyway) and outputs of both parts;
    of two mixings, in fp32 the projection n n + 2 n, 2 n weights, one n x n matrix, a norm, and all weights as they are used. Where no
    fused kernel projects the streams, both projections read an fp32 copy of them."""
    mixing = 4 * ((n * n + 2 * n) + 2 * n + n * n + 1) + B * (2 * n + n * n)
    return (n * H + 3 * H) * B + 2 * mixing + (0 if fused else 2 * n * H * 4)


for n in (2, 4):
    one, got = components(1), components(n)
    near(f"{n} carries", got["carries"], n * one["carries"])
    near(f"{n} carries by hand", got["carries"], LAYERS * n * T * H * B)
    near(f"{n} saved", got["saved_activations"] - one["saved_activations"], LAYERS * T * kept(n), 1e-6)
    near(f"{n} at work", got["residual_streams"], T * kept(n))
    near(f"{n} none with one", one.get("residual_streams", 0), 0)
    full = components(n, remat="full")
    near(f"{n} full", full["residual_streams"], T * kept(n))  # of the layer that runs again alone
    near(f"{n} full saves none", full.get("saved_activations", 0), 0)

# The kernels that are fused: said, and on Blackwell by themselves
for n in (2, 4):
    fused = components(n, "--set", "use_fused_mhc=true", remat="none")
    near(f"{n} fused", fused["residual_streams"], T * kept(n, True))
    blackwell = components(n, "--cluster", "b200:8x8", remat="none")
    near(f"{n} Blackwell", blackwell["residual_streams"], T * kept(n, True))
    apart = components(n, "--cluster", "b200:8x8", "--set", "use_fused_mhc=false", remat="none")
    near(f"{n} Blackwell apart", apart["saved_activations"] - blackwell["saved_activations"], LAYERS * T * 2 * n * H * 4, 1e-6)


# The recompute module mhc: groups of layers lose their streams, sums and norms' outputs, and have them again while they work. The first
# input of a group stays; layers of multi-token prediction are in none.
def groups(layers, size):
    return -(-layers // size) if size else 1


for n, size in ((2, 0), (4, 0), (4, 1), (4, 5)):
    more = ("--set", f"mhc_recompute_layer_num={size}") if size else ()
    none, got = components(n, remat="none"), components(n, *more, remat="mhc")
    free = T * (n + 4) * H * B
    near(f"mhc {n} {size} carries", got["carries"], groups(LAYERS, size) * n * T * H * B)
    near(f"mhc {n} {size} saved", none["saved_activations"] - got["saved_activations"], LAYERS * free, 1e-6)
    near(f"mhc {n} {size} group", got.get("mhc_group", 0), ((size or LAYERS) - 1) * (free + n * T * H * B))
    near(f"mhc {n} {size} at work", got["residual_streams"], none["residual_streams"])
# what layernorm frees too is freed once
none, norm, both = (components(4, remat=remat) for remat in ("none", "layernorm", "mhc+layernorm"))
near("layernorm", none["saved_activations"] - norm["saved_activations"], LAYERS * T * (2 * H * B + 4), 1e-6)
near("mhc and layernorm", norm["saved_activations"] - both["saved_activations"], LAYERS * T * (4 + 2) * H * B, 1e-6)
up, both = components(4, remat="mla_up_proj"), components(4, remat="mhc+mla_up_proj")
near("mhc and mla_up_proj", up["saved_activations"] - both["saved_activations"], LAYERS * T * (4 + 4) * H * B, 1e-6)
# in stages with a layer that predicts behind the last
CUT = ("--pipeline", "2", "--micro-batches", "4", "--sequences-per-gpu", "4", "--set", "parallel.pipeline_model_parallel_layout=Et*3|t*40mL")
none, got = components(4, *CUT, remat="none"), components(4, *CUT, remat="mhc")
near("mhc predicting", none["saved_activations"] - got["saved_activations"], 40 * T * (4 + 4) * H * B, 1e-6)
near("mhc predicting carries", got["carries"], (1 + 1) * 4 * T * H * B)
near("mhc predicting group", got["mhc_group"], 39 * T * (4 + 4 + 4) * H * B)
for words, said in ((("--remat", "mhc+mlp"), "does not go with mlp"), (("--set", "mhc_recompute_layer_num=2"), "needs mhc"),
                    (("--remat", "mhc", "--scheme", "primus-syncfree:level=1", "--cluster", "mi355x:8x8"), "Megatron-Core's own layers"),
                    (("--set", "use_fused_mhc=true", "--scheme", "primus-syncfree:level=1", "--cluster", "mi355x:8x8"), "class of its own"),
                    (("--remat", "mhc", "--model", "qwen3-30b-a3b"), "residual streams"),
                    (("--set", "parallel.mtp_num_layers=1", "--scheme", "gmm", "--optimizer", "sharded"), "multi-token prediction"),
                    (("--set", "parallel.mtp_num_layers=1", "--set", "parallel.pipeline_model_parallel_layout=Et*43L"), "0 times m"),
                    (("--set", "use_fused_mhc=true", "--model", "qwen3-30b-a3b"), "residual streams")):
    model = () if "--model" in words else ("--model", root / "sim/models/deepseek-v4-flash.json")
    done = run(program, "explain", *model, *cluster(words), "--expert-parallel", "16",
               "--scheme", "megatron-alltoall", "--optimizer", "distributed", "--sequences-per-gpu", "1", *words)
    checks += 1
    if done.returncode not in (2, 3) or said not in done.stderr:
        sys.exit(f"FAILED {words}: {done.returncode} {done.stderr}")

# What layers keep, by their kinds: two of a window, 21 that join 4 tokens with an indexer, 20 that join 128; and without what
# Megatron-Core's module mla_up_proj makes again
RATIOS = MODEL["compress_ratios"][:LAYERS]
WIDE, HEAD, RANK, LATENT, INDEX = 64 * 512, 512, 1024, 8 * 1024, 64 * 128


def attention(every):
    joined = T // every if every else 0
    pool = lambda parts, width: joined * (every * parts * width * 8 + width * 2 + 4)
    keys = T * (HEAD * 2 + 4) + (T + joined) * HEAD * 2
    core = T * (2 * WIDE * 2 + 4 * 64 + 4 * (128 + (512 if every == 4 else joined)))
    out = T * (2 * RANK * 2 + 4 + 2 * WIDE * 2 + 64 * 2) + keys + core + T * LATENT * 2
    if every == 4:
        return out + pool(2, HEAD) + pool(2, 128) + 2 * (T * (INDEX + 64) + joined * 128) + 4 * T
    return out + (pool(1, HEAD) if every else 0)


def again(every):
    return T * ((2 * WIDE + 64 + HEAD * (1 if every else 2)) * B + 4)


BESIDE = T * (3 * H * B + 3 * 2048 * B) + T * kept(4)  # norms, the shared expert, streams
whole, up = components(4, remat="none"), components(4, remat="mla_up_proj")
near("all kinds saved", whole["saved_activations"], sum(attention(r) for r in RATIOS) + LAYERS * BESIDE, 1e-4)
near("mla_up_proj", whole["saved_activations"] - up["saved_activations"], sum(again(r) for r in RATIOS), 1e-6)
near("attention_again", up["attention_again"], again(0) + 2 * T * WIDE * B)
near("at work", whole["attention"], attention(4) + 3 * T * H * B, 1e-6)

# Stages, and a layer of multi-token prediction behind the last: it carries and keeps the streams too
STAGES = ("--pipeline", "2", "--micro-batches", "4", "--sequences-per-gpu", "4")
for n in (4,):
    layout = ("--set", "parallel.pipeline_model_parallel_layout=Et*21|t*22mL")
    one, got = components(1, *STAGES, *layout), components(n, *STAGES, *layout)
    layers = next(k for k in range(1, 200) if abs(one["carries"] - k * T * H * B) < 1)
    near("staged carries", got["carries"], n * one["carries"])
    near("staged saved", got["saved_activations"] - one["saved_activations"], layers * T * kept(n), 1e-6)
    for name in ("stage_output_gradient", "stage_input_gradient"):
        if name in one:
            near(name, got[name], n * one[name])
    last = ("--set", "parallel.pipeline_model_parallel_layout=Et*3|t*40mL")
    one, got = components(1, *STAGES, *last), components(n, *STAGES, *last)
    near("predicting carries", got["carries"], 41 * n * T * H * B)  # 40 layers and the one that predicts
    near("predicting saved", got["saved_activations"] - one["saved_activations"], 41 * T * kept(n), 1e-6)

# A layer of multi-token prediction without stages: behind all layers, with a loss of its own
ONE = ("--set", "parallel.pipeline_model_parallel_layout=Et*43mL")
plain, got = components(4, remat="none"), components(4, *ONE, remat="none")
near("one stage predicting carries", got["carries"], (LAYERS + 1) * 4 * T * H * B)
near("one stage predicting saved", got["saved_activations"], plain["saved_activations"] * (LAYERS + 1) / LAYERS, 1e-6)
near("its logits", got["logits_of_predictions"], 4 * T * MODEL["vocab_size"])
near("its inputs", got["predictions"], (1 + 1 + 4 + 1) * T * H * B)  # embedding, it and four streams normed, states joined
for count, there in ((1, plain), (2, got)):  # what is contracted in front of each last norm, its input and output
    near("last norms", there["final_norm"], count * T * ((4 + 2) * H * B + 4))
# the same by its number alone, which leaves stages to be shared out as they are
same = components(4, "--set", "parallel.mtp_num_layers=1", remat="none")
for name in {*got, *same}:
    near(f"by number, {name}", same.get(name), got.get(name))
two, number = (components(4, *STAGES, "--set", "parallel." + key) for key in ("pipeline_model_parallel_layout=Et*22|t*21mL", "mtp_num_layers=1"))
for name in {*two, *number}:
    near(f"two stages by number, {name}", number.get(name), two.get(name))
EXPERTS = 256 * 3 * H * 2048  # its own; the rest is less than a tenth of a layer's
if not 1 < (got["weights"] - plain["weights"]) / (EXPERTS / 16 * B) < 2:
    sys.exit(f"FAILED weights of one stage predicting: {got['weights']}, {plain['weights']}")
less, more = (asked("plan", 4, *words, "--sequences-per-gpu", "1", "--routing", "uniform")["rows"][0]["time"]["step_s"] for words in ((), ONE))
if not 1 + 0.5 / LAYERS < more / less < 1 + 4 / LAYERS:
    sys.exit(f"FAILED time of one stage predicting: {less}, {more}")

# Primus keeps the normed streams of both mixings in fp32 too
for n in (2, 4):
    words = ("--scheme", "primus-syncfree:level=1", "--cluster", "mi355x:8x8")
    one, got = components(1, *words, remat="none"), components(n, *words, remat="none")
    near(f"Primus {n}", got["residual_streams"], T * kept(n))
    near(f"Primus {n} saved", got["saved_activations"] - one["saved_activations"], LAYERS * T * kept(n), 1e-6)

# Time: 9 n + 2 times H are read and written before and behind each part, in a forward pass and two backward
stack = (root / "sim/megatron_stacks/megatron-te-h100-2026-11.yaml").read_text()
figure = lambda name: float(re.search(name + r":\n  value: (\S+)", stack).group(1))
one, got = ((lambda a: (a.get("points") or a["rows"])[0]["time"]["components"])(
    asked("plan", n, "--routing", "uniform", "--stack", "megatron-te-h100-2026-11", "--cluster", "h100:8x8", remat="none")) for n in (1, 4))
more = got["elementwise"]["seconds"] - one["elementwise"]["seconds"]
near("elementwise", more * 1e12, 1e12 * figure("elementwise_share") * 3 * T * LAYERS * 2 * (9 * 4 + 2) * H * B / figure("copy_bytes_per_s"), 1e-6)
mhc = (lambda a: (a.get("points") or a["rows"])[0]["time"]["components"])(
    asked("plan", 4, "--routing", "uniform", "--stack", "megatron-te-h100-2026-11", "--cluster", "h100:8x8", remat="mhc"))
more = mhc["elementwise"]["seconds"] - got["elementwise"]["seconds"]  # sums n + 1, norms 2, behind the parts 6 n + 1
near("elementwise again", more * 1e12, 1e12 * figure("elementwise_share") * T * LAYERS * 2 * (7 * 4 + 4) * H * B / figure("copy_bytes_per_s"), 1e-6)
checks += 1
if not 0 < got["attention_projections"]["seconds"] / one["attention_projections"]["seconds"] - 1 < 0.02:
    sys.exit(f"FAILED products of the mixing: {got['attention_projections']} {one['attention_projections']}")
# Kimi K3: eight sums of blocks of 12 of its 93 layers
K3 = root / "sim/models/kimi-k3.json"
done = run(program, "explain", "--model", K3, "--cluster", "h200:8x64", "--expert-parallel", "64", "--scheme", "megatron-alltoall", "--optimizer",
           "distributed", "--remat", "full", "--sequences-per-gpu", "1", "--format", "json")
near("sums of blocks", {c["component"]: c["bytes"] for c in json.loads(done.stdout)}["residual_blocks"], 8 * T * 7168 * B)

# Tables: LongCat-Flash-Lite looks up twelve rows of 3072 / 12 numbers; (78 x 131072 + 12) x 12 rows of 256 in all
lite = run(program, "model", root / "tests/models/longcat-flash-lite.json")
said, tables = " ".join(lite.stdout.split() + lite.stderr.split()), json.loads((root / "tests/models/longcat-flash-lite.json").read_text())
each = (tables["emb_neighbor_num"] - 1) * tables["emb_split_num"]
numbers = (tables["ngram_vocab_size_ratio"] * tables["vocab_size"] * each + each * each) * (tables["hidden_size"] // each)
want = (f"({numbers / 1e9:.1f} B numbers, {tables['hidden_size']} of them for a token)", f"{numbers * 2 / 2**30:.1f} GiB in bf16",
        f"{tables['hidden_size'] * 2} bytes a token each way")
checks += 1
if not all(words in said for words in want):
    sys.exit(f"FAILED tables: {want} in {said}")

print(f"{checks} checks")

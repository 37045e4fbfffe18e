#!/usr/bin/env python3
"""What plan, search and until say of a framework's own file beyond its figures: the scheme that would be faster instead, held against
plans of every scheme and against the file with the settings that are named; costs that need a time; advice that the framework can
follow; batches that do not divide.

instead_oracle.py SPILLWAY SCRATCH"""
import html
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

program, scratch = sys.argv[1], pathlib.Path(sys.argv[2]) / "instead_oracle"
scratch.mkdir(parents=True, exist_ok=True)
oracle = Oracle(program, "instead_oracle")
check = oracle.check
EQUAL, LEAST = 1.01, 1.1

MAXTEXT = """python3 -m MaxText.train MaxText/configs/base.yml run_name=m hardware=gpu model_name=mixtral-8x7b \\
  attention=cudnn_flash_te dtype=bfloat16 weight_dtype=bfloat16 per_device_batch_size=4 max_target_length=1024 remat_policy=full \\
  sparse_matmul=true megablox=false ici_fsdp_parallelism=8 ici_expert_parallelism=1 dcn_fsdp_parallelism=2
"""
MEGATRON = """torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py --num-layers 4 --hidden-size 2048 --ffn-hidden-size 6144 \\
  --num-attention-heads 32 --group-query-attention --num-query-groups 4 --kv-channels 128 --qk-layernorm --normalization RMSNorm \\
  --position-embedding-type rope --swiglu --untie-embeddings-and-output-weights --disable-bias-linear --seq-length 1024 \\
  --max-position-embeddings 4096 --num-experts 128 --moe-ffn-hidden-size 768 --moe-router-topk 8 --moe-grouped-gemm \\
  --moe-token-dispatcher-type alltoall --micro-batch-size 2 --global-batch-size 64 --bf16 --expert-model-parallel-size 8 \\
  --use-distributed-optimizer --vocab-size 151936
"""
WHOLE = """model: olmoe-1b-7b
cluster: h100:8x2
schemes: [megatron-alltoall]
optimizer: distributed
parallel: {expert: 8, fsdp: 2}
batch: {global_batch: 64, sequence_length: 2048}
"""
TRL = """model_name_or_path: mistralai/Mixtral-8x7B-v0.1
torch_dtype: bfloat16
use_peft: true
lora_r: 32
lora_target_modules: [q_proj, v_proj]
max_length: 1024
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
gradient_checkpointing: true
bf16: true
attn_implementation: flash_attention_2
"""
FSDP = TRL + "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n"


def file(name, text):
    path = scratch / name
    path.write_text(text)
    return path


def plan(path, cluster, *more):
    return json.loads(oracle.must("plan", "--from", path, "--cluster", cluster, "--format", "json", *more))


def speed(answer):
    """Of a plan of one point; None where it does not fit, drops too much or has no time."""
    row, = answer["rows"]
    good = row["memory"]["verdict"] != "oom" and row["drops"]["fraction"] <= 0.01
    return row["time"]["tokens_per_s_per_gpu"] if good else None


def instead(name, path, cluster, own, others, apply):
    """others: every scheme of the framework that needs no option, and what default plans have of it, the simplest first."""
    answer = plan(path, cluster)
    base, told = speed(answer), answer["plan"]["other_schemes"]
    speeds = {}
    for scheme in others:
        done = oracle.call("plan", "--from", path, "--cluster", cluster, "--format", "json", "--scheme", scheme)
        speeds[scheme] = speed(json.loads(done.stdout)) if done.returncode == 0 else None
    good = {s: v / base for s, v in speeds.items() if v and v / base >= LEAST}
    check(good, f"{name}: no scheme is faster, so that the case says nothing: {speeds}")
    check(told and told[0]["times_as_fast"] * EQUAL >= max(good.values()), f"{name}: {told}, and {good}")
    simplest = next(s for s in others if s in good and good[s] * EQUAL >= max(good.values()))
    check(told and told[0]["scheme"] == simplest, f"{name}: {told[0]['scheme']}, though {simplest} is as fast and listed before")
    for one in told:
        check(abs(one["times_as_fast"] - speeds[one["scheme"]] / base) < 1e-9, f"{name}: {one}, by plans {speeds[one['scheme']] / base}")
        check(one["times_as_fast_low"] <= one["times_as_fast"] <= one["times_as_fast_high"], f"{name}: {one}")
        check(one["times_as_fast_low"] > 1 or one["times_as_fast"] >= LEAST, f"{name}: {one} is hardly faster")
        changed = plan(file(f"{name}_changed", apply(path.read_text(), one["settings"])), cluster)
        check(changed["rows"][0]["scheme"] == one["scheme"] and speed(changed) == speeds[one["scheme"]],
              f"{name}: with {one['settings']} the file has {changed['rows'][0]['scheme']}")
    text = oracle.must("plan", "--from", path, "--cluster", cluster, "--wide")
    line = next((line for line in text.split("\n") if line.startswith("instead ")), "")
    check(f"--scheme {simplest} would be {told[0]['times_as_fast']:.3g} times as fast" in line and told[0]["settings"] in line, f"{name}: {line}")
    check(len(text.rstrip().split("\n")) <= 30, f"{name}: {text}")
    stored = file(f"{name}.json", json.dumps(answer))
    oracle.must("report", stored, "--output", scratch / f"{name}.html")
    page = (scratch / f"{name}.html").read_text()
    listed = re.findall(r"<li><b>Scheme\.</b> .*?</li>", page)
    check(len(listed) == len(told) and all(one["scheme"] in html.unescape(re.sub("<[^>]*>", "", item)) and
                                           f"{one['times_as_fast']:.3g} times as fast" in item for one, item in zip(told, listed)),
          f"{name}: the page has {listed}")
    check(plan(path, cluster, "--scheme", own)["plan"]["other_schemes"] == [], f"{name}: a scheme that was chosen is not doubted")
    best = file(f"{name}_best", apply(path.read_text(), told[0]["settings"]))
    check(all(o["scheme"] != simplest for o in plan(best, cluster)["plan"]["other_schemes"]), f"{name}: the best is offered instead of itself")
    held = ["--global-batch", 64] if "--global-batch-size 64" in path.read_text() else []  # micro-batches of a list would free it
    found = json.loads(oracle.must("plan", "--search", "--from", path, "--cluster", cluster, *held, "--over", "remat=full", "--over", "pipeline=1",
                                   "--over", f"expert-parallel={answer['rows'][0]['expert_parallel']}", "--over", "micro-batches=1", "--over",
                                   "virtual-stages=0,4", "--format", "json"))
    check(found["best"]["scheme"].startswith(own) and [o["scheme"] for o in found["other_schemes"]][:1] == [simplest],
          f"{name}: a search names {found['other_schemes']}")
    wide = json.loads(oracle.must("plan", "--search", "--from", path, "--cluster", cluster, *held, "--over", "remat=full", "--over", "pipeline=1",
                                  "--over", "micro-batches=1", "--over", "virtual-stages=0", "--format", "json"))
    best, at = wide["best"], answer["rows"][0]["expert_parallel"]
    for one in wide["other_schemes"]:
        split = one["expert_parallel"] or best["expert_parallel"]
        check(one["expert_parallel"] in (None, at), f"{name}: neither the best point's size nor the file's: {one}")
        done = plan(path, cluster, "--scheme", one["scheme"], "--expert-parallel", split, "--micro-batches", 1, "--remat", "full",
                    "--sequences-per-gpu", best["sequences_per_gpu"])
        check(abs(speed(done) / best["tokens_per_s_per_gpu"] - one["times_as_fast"]) < 1e-6, f"{name}: {one}, by plans {speed(done)}")
    points = [json.dumps({k: v for k, v in p.items() if k not in ("virtual_stages", "options", "next", "faster_than_next")}) for p in found["front"]]
    check(len(points) == len(set(points)), f"{name}: {len(points)} points in front, {len(set(points))} of them differ")


def set_pairs(text, settings):
    for pair in settings.split():
        name = pair.split("=")[0]
        text = re.sub(rf"\b{name}=\S+", pair, text) if f"{name}=" in text else text.rstrip() + " " + pair + "\n"
    return text


def set_arguments(text, settings):
    words = settings.split()
    for name, value in zip(words[::2], words[1::2]):
        text = re.sub(rf"{name} \S+", f"{name} {value}", text) if name in text else text.rstrip() + f" {name} {value}\n"
    return text


def schemes():
    instead("maxtext.sh", file("maxtext.sh", MAXTEXT), "mi300x:8x2", "ragged", ["dense:capacity_factor=1.25", "gmm", "ring"], set_pairs)
    instead("megatron.sh", file("megatron.sh", MEGATRON), "h100:8x2", "megatron-alltoall", ["megatron-flex", "megatron-allgather"],
            set_arguments)


def batches():
    """A search keeps the file's batch; a list keeps its number of micro-batches, and leaves out what that does not divide."""
    path = file("fsdp.yaml", FSDP)
    space = ["--over", "micro-batches=1,2", "--over", "remat=full", "--over", "expert-parallel=1", "--over", "pipeline=1"]
    found = json.loads(oracle.must("plan", "--search", "--from", path, "--cluster", "h100:8x1", "--format", "json", "--over", "expert-parallel=1"))
    check(found["global_batch"] == 64 and {p["step_tokens"] for p in found["front"]} == {64 * 1024}, f"another batch: {found['global_batch']}")
    free = json.loads(oracle.must("plan", "--search", "--from", path, "--cluster", "h100:8x1", "--format", "json", *space))
    best, sure = free["best"], [p for p in free["front"] if p["surely_fits"]]
    faster = [p for p in sure if p["tokens_per_s_per_gpu"] > 1.01 * best["tokens_per_s_per_gpu"]]
    smaller = [p for p in sure if p["step_tokens"] < best["step_tokens"] and p["tokens_per_s_per_gpu"] * 1.01 >= best["tokens_per_s_per_gpu"]]
    check(free["global_batch"] is None and not faster and not smaller,
          f"the best has {best['step_tokens']} tokens a step: {len(faster)} points are faster, {len(smaller)} as fast with a smaller batch")
    freed(file("megatron.sh", MEGATRON), "--from")
    freed(file("whole.yaml", WHOLE), "--job")
    done = oracle.call("plan", "--from", path, "--cluster", "h100:8x1", "--sequences-per-gpu", "2,4,8", "--format", "json")
    listed = json.loads(done.stdout) if done.returncode == 0 else {"rows": [], "plan": {}}
    check([r["sequences_per_gpu"] for r in listed["rows"]] == [4, 8], f"a list leaves {[r['sequences_per_gpu'] for r in listed['rows']]}: {done.stderr}")
    check([r["sequences_per_gpu"] for r in listed["plan"].get("refused", [])] == [2], f"refused {listed['plan'].get('refused')}")
    alone = oracle.call("plan", "--from", path, "--cluster", "h100:8x1", "--sequences-per-gpu", "3")
    check(alone.returncode != 0 and "--sequences-per-gpu 3:" in alone.stderr, f"blamed is {alone.stderr}")
    text = oracle.must("plan", "--from", file("megatron.sh", MEGATRON), "--cluster", "h100:8x2", "--sequences-per-gpu", 2)
    check("global_batch 0" not in text and "the file's global_batch 64 does not count" in " ".join(text.split()), text)


def freed(path, option):
    """A file's own global batch holds, and what the search advises to free it does."""
    asked = ["plan", "--search", option, path, *(["--cluster", "h100:8x2"] if option == "--from" else []), "--over", "remat=full", "--over",
             "pipeline=1", "--over", "expert-parallel=8", "--over", "virtual-stages=0", "--no-allocator", "--routing-tokens", 2048]
    told = " ".join(oracle.must(*asked).split())
    check("; 64 sequences a step, as the file says, as another batch changes" in told and "any: --global-batch-at-most 4M" in told, f"{path}: {told}")
    check(" instead " not in told or 0 < told.find("to plan or to report the best alone") < told.find(" instead "), f"{path}: {told}")
    check(option == "--job" or " instead " in told, f"{path}: no other scheme beside the best: {told}")
    for more, held in (((), 64), (("--micro-batches", 2), 64), (("--sequence-length", 1024), 64), (("--global-batch", 32), 32),
                       (("--global-batch-at-most", "4M"), None), (("--over", "micro-batches=1,2,4"), None), (("--sequences-per-gpu", "2,8"), None)):
        found = json.loads(oracle.must(*asked, *more, "--format", "json"))
        steps = {p["step_tokens"] // (1024 if "--sequence-length" in more or option == "--from" else 2048) for p in found["front"]}
        check(found["global_batch"] == held and (steps == {held} or held is None and steps != {64}), f"{path} {more}: {found['global_batch']}, {steps}")
        check(held or "(--global-batch" not in oracle.must(*asked, *more).split("budgets")[1].split("\n\n")[0], f"{path} {more}: a batch is claimed")


def own():
    """An option of a key of --over names one of its values."""
    asked = ["plan", "--search", "--model", "olmoe-1b-7b", "--cluster", "h100:8x1", "--over", "remat=full", "--over", "virtual-stages=0", "--over",
             "micro-batches=2", "--sequences-per-gpu", 2, "--no-allocator", "--routing-tokens", 2048]
    for words, taken in ((("--pipeline", 2, "--over", "pipeline=1,2"), True), (("--pipeline", 4, "--over", "pipeline=1,2"), False),
                         (("--pipeline", 1, "--over", "pipeline=2,16"), False), (("--remat", "full"), True), (("--set", "remat=moe"), True),
                         (("--pipeline", 4, "--pipeline", 1, "--over", "pipeline=1,2"), True)):
        done = oracle.call(*asked, *words)
        check((done.returncode == 0) == taken and (taken or "is not among the values of --over pipeline=" in done.stderr), f"{words}: {done.stderr}")


def advice():
    """transformers has no pipelines: what is advised can be run, and fits."""
    path = file("trl.yaml", TRL)
    text = " ".join(oracle.must("plan", "--from", path, "--cluster", "h100:8x1", "--tokens", "1B", "--price", 2).split())
    told = plan(path, "h100:8x1")["plan"]["does_not_fit"][0]["advice"]
    check("--optimizer sharded (FSDP2) would do" in told and "pipeline" not in told, told)
    check(plan(path, "h100:8x1", "--optimizer", "sharded")["rows"][0]["memory"]["verdict"] == "fits", "what is advised does not fit")
    check("no point with a time fits; --tokens and --price need one: no days and no cost" in text, text)
    fused = file("fused.yaml", TRL + "use_liger_kernel: true\n")
    text = " ".join(oracle.must("plan", "--from", fused, "--cluster", "h100:8x1", "--tokens", "1B", "--price", 2).split())
    check("no point has a time; --tokens and --price need one: no days and no cost (no time: " in text, text)
    done = oracle.call("plan", "--from", path, "--cluster", "h100:8x1", "--pipeline", 2)
    check(done.returncode != 0 and "no pipeline parallelism" in done.stderr, done.stderr)
    searched = oracle.must("plan", "--search", "--from", path, "--cluster", "h100:8x1", "--optimizer", "sharded", "--over", "pipeline=1,2",
                           "--over", "expert-parallel=1", "--format", "json")
    check({p["pipeline"] for p in json.loads(searched)["front"]} == {1}, "a search has pipelines of transformers")


def sums():
    """Components of a listed step are sums of its tensors, written out."""
    done = oracle.must("explain", "--from", file("fsdp.yaml", FSDP), "--cluster", "h100:8x1", "--format", "json")
    rows = json.loads(done)
    for row in rows:
        said = re.fullmatch(r"(\d+) tensors? = ([\d x+]+)", row["formula"])
        total = sum(eval(term.replace("x", "*")) for term in said[2].split("+")) if said else None  # digits, blanks and x alone
        check(total == row["bytes"], f"{row['component']}: {row['formula']} is {total}, not {row['bytes']}")
    check(len(rows) >= 5, f"{len(rows)} components")


def words():
    """One budget; why a point may not fit; what does not go together is said before a file is read."""
    job = ["--model", "qwen3-30b-a3b", "--cluster", "h100:8x4", "--sequence-length", 512]
    text = " ".join(oracle.must("plan", *job, "--scheme", "megatron-flex", "--optimizer", "distributed").split())
    found = re.search(r"fits it surely fits: .*?, of ([\d.]+) \(the GPU's ([\d.]+) less ([\d.]+) outside\)", text)
    check(found and abs(float(found[2]) - float(found[3]) - float(found[1])) < 0.06, text)
    bound = " ".join(oracle.must("plan", *job, "--scheme", "gmm", "--stack", "none").split())
    check("may not fit" not in bound or "unsure, as " in bound, bound)
    done = oracle.call("plan", "--from", "no-such-file", "--until", "oom", "--tokens", "1T")
    check(done.returncode != 0 and "--tokens" in done.stderr and "no-such-file" not in done.stderr, done.stderr)
    priced = oracle.must("plan", *job, "--scheme", "megatron-flex", "--optimizer", "distributed", "--price", "2.5")
    check(" at 2.5 a GPU-hour" in " ".join(priced.split()), priced)


for part in (schemes, batches, own, advice, sums, words):
    part()
oracle.finish(40)

#!/usr/bin/env python3
"""What a model's file says and the figures leave out is said wherever figures are: table, JSON, report, plan, explain. A
generic model refuses what it does not know.

model_doubts.py SPILLWAY SCRATCH"""
import json
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import program as caller

program, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve() / "model_doubts"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
failures, checks = [], 0


def check(good, what):
    global checks
    checks += 1
    if not good:
        failures.append(what)


def run(*arguments):
    return caller.call([program, *arguments], cwd=folder, capture_output=True, text=True)


def said(words, *arguments):
    done = run(*arguments)
    check(done.returncode == 0 and words in " ".join(done.stdout.split()), f"{arguments}: no '{words}' in {done.stdout[:800]} {done.stderr}")


# 64 experts so that a small trace fits; shapes beside them are DeepSeek-V3's style, small.
model = dict(model_type="deepseek_v3", num_hidden_layers=2, hidden_size=64, vocab_size=128, num_attention_heads=4, intermediate_size=96,
             n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, n_shared_experts=1, first_k_dense_replace=1,
             q_lora_rank=16, kv_lora_rank=8, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8, rope_theta=1e4)
(folder / "job.yaml").write_text("model: ./model.json\ncluster: h200-8x8\nparallel: {expert: 8, fsdp: 8}\n"
                                 "batch: {sequences_per_gpu: 1, sequence_length: 64}\nremat: full\nschemes: [gmm]\n")
check(run("trace", "generate", "t.h5", "--experts", "8", "--top-k", "2", "--layers", "1", "--first-layer", "1", "--ranks", "64",
          "--tokens-per-rank", "64", "--distribution", "uniform", "--seed", "1").returncode == 0, "a trace")


def write(**more):
    (folder / "model.json").write_text(json.dumps({**model, **more}))


write()
done = run("replay", "t.h5", "--job", "job.yaml")
check("multi-token" not in done.stdout and done.returncode == 0, f"nothing to say: {done.stdout} {done.stderr}")
for key, value in (("wonder_heads", 3), ("wonder", True), ("wonders", [2]), ("tower", {"width": 4}), ("mamba_d_state", 16)):
    write(**{key: value})
    done = run("explain", "--job", "job.yaml", "--scheme", "gmm")
    check(done.returncode == 2 and f"key '{key}'" in done.stderr and "could hold parameters" in done.stderr and f"'_{key}'" in done.stderr,
          f"{key}: {done.stderr!r}")
# A slip in a key whose value is 1 leaves a part out without a word, unless somebody looks for the key that was meant.
for slip, right, value in (("n_shared_expert", "n_shared_experts", 1), ("first_k_dense_replce", "first_k_dense_replace", 1),
                           ("n_routed_expert", "n_routed_experts", 8), ("kv_lora_ranks", "kv_lora_rank", 8)):
    kept = model.pop(right)
    write(**{slip: value})
    done = run("explain", "--job", "job.yaml", "--scheme", "gmm")
    check(done.returncode == 2 and (f"key '{slip}'" in done.stderr and f"did you mean '{right}'?" in done.stderr or f"'{right}'" in done.stderr),
          f"{slip}: {done.stderr!r}")
    model[right] = kept
    write(**{slip: 1})  # beside the right one it is another key
    check(value != 1 or run("explain", "--job", "job.yaml", "--scheme", "gmm").returncode == 0, f"{slip} beside {right}")
write(num_nextn_predict_layers=1, sliding_window=32, wonder_factor=0.5, _wonder_heads=3)
for words in ("1 layer of multi-token prediction", "looks back 32 tokens"):
    said(words, "replay", "t.h5", "--job", "job.yaml", "--output", "result.h5")
    said(words, "replay", "t.h5", "--job", "job.yaml", "--format", "json")
    check(run("report", "result.h5", "--output", "page.html").returncode == 0 and words in (folder / "page.html").read_text(), f"report: {words}")
    said(words, "plan", "--job", "job.yaml", "--trace", "t.h5")
    said(words, "plan", "--job", "job.yaml", "--trace", "t.h5", "--format", "json")
    said(words, "explain", "--job", "job.yaml", "--scheme", "gmm")
    said(words, "explain", "--job", "job.yaml", "--scheme", "gmm", "--traffic")
write(attention_chunk_size=48)  # Llama 4's name of it
said("looks back 48 tokens", "explain", "--job", "job.yaml", "--scheme", "gmm")
write()

# A trace of half the ranks stands for all of them: plan says it, not its JSON alone.
check(run("trace", "generate", "half.h5", "--experts", "8", "--top-k", "2", "--layers", "1", "--first-layer", "1", "--ranks", "32",
          "--tokens-per-rank", "64", "--hidden", "32", "--seed", "1").returncode == 0, "half a trace")
said("trace the trace is of another model (hidden size 32 for the job's 64)", "plan", "--job", "job.yaml", "--trace", "half.h5")

# Llama-4-Maverick and Jamba as somebody writes them down in the keys of a generic model: each came out with twice its parameters.
generic = dict(model_type="generic", num_hidden_layers=48, hidden_size=5120, vocab_size=202048, num_attention_heads=40,
               num_key_value_heads=8, head_dim=128, intermediate_size=16384, moe_intermediate_size=8192, num_local_experts=128,
               num_experts_per_tok=1, n_shared_experts=1)
for key, value in (("interleave_moe_layer_step", 2), ("expert_layer_period", 2), ("mamba_d_state", 16), ("use_wonder", True),
                   ("tower_width", 8192), ("text_config", {"a": 1})):
    (folder / "model.json").write_text(json.dumps({**generic, key: value}))
    done = run("explain", "--job", "job.yaml", "--scheme", "gmm")
    check(done.returncode == 2 and f"key '{key}'" in done.stderr and "could hold parameters" in done.stderr, f"{key}: {done.stderr!r}")
# With the layers that it has it is Maverick: 400 B (the publisher's figure), 401.6 B less what its shapes leave to rounding.
(folder / "model.json").write_text(json.dumps({**generic, "decoder_sparse_step": 2, "rope_theta": 5e5, "hidden_act": "silu"}))
done = run("explain", "--job", "job.yaml", "--scheme", "gmm", "--format", "json")
check(done.returncode == 0, f"Maverick: {done.stderr}")
(folder / "t.h5").unlink()
run("trace", "generate", "t.h5", "--experts", "128", "--top-k", "1", "--layers", "1", "--ranks", "64", "--tokens-per-rank", "64",
    "--distribution", "uniform", "--seed", "1")
done = run("replay", "t.h5", "--job", "job.yaml", "--format", "json")
total = json.loads(done.stdout)["settings"]["parameters_total"] if done.returncode == 0 else 0
check(abs(total / 400.7e9 - 1) < 0.005, f"Maverick has {total}: {done.stderr}")

# `spillway model` by hand: Mixtral's shapes, and the state of a Gated DeltaNet layer (32 heads of 128 x 128, 4 steps of 8192 channels).
said_of = json.loads(run("model", "mixtral-8x7b", "--format", "json", "--sequence-length", "1000").stdout)
hidden, ffn, layers, vocabulary, length = 4096, 14336, 32, 32000, 1000
attention, expert = hidden * hidden * 2 + hidden * 1024 * 2, 3 * hidden * ffn
matrices = layers * (attention + 2 * expert + 8 * hidden) + vocabulary * hidden
scores = layers * 32 * (128 + 128) * length
forward = 2 * (matrices + layers * 2 * hidden + hidden) + scores
check(said_of["parameters_total"] == 46702792704, f"Mixtral has {said_of['parameters_total']}")
check(said_of["flops_per_token"] == dict(sequence_length=length, forward=forward, forward_scores=scores, training=3 * forward),
      f"{said_of['flops_per_token']}, not {forward}")
check(said_of["weight_bytes"] == dict(fp32=4 * 46702792704, bf16=2 * 46702792704, fp8=46702792704), f"{said_of['weight_bytes']}")
check(sum(part["parameters"] for part in said_of["parts"]) == said_of["parameters_total"], "the parts are the whole")
check(sum(part["active"] for part in said_of["parts"]) == said_of["parameters_active"], "the parts at work are what works")
said_of = json.loads(run("model", "qwen3-next-80b-a3b", "--format", "json").stdout)
state = 32 * 128 * 128 + 8192 * 4
check(said_of["layers"] == dict(all=48, with_experts=48, dense=0, without_ffn=0, attention=12, other_mixer=36,
                                other_mixer_is="Gated DeltaNet, a linear attention", other_mixer_state=state,
                                other_kinds=[dict(what="Gated DeltaNet, a linear attention", layers=36, state=state)]), f"{said_of['layers']}")
check(said_of["flops_per_token"]["forward_scores"] == 12 * 4096 * 16 * 512, "only 12 layers have scores")

print("\n".join(failures))
print(f"{checks} checks, {len(failures)} failed")
sys.exit(1 if failures or not checks else 0)

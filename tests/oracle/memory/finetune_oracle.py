#!/usr/bin/env python3
"""What a job keeps that trains a part of its weights, or adapters, with pencil and paper from docs/schemes.md, section 7.13:
state, collectives and work of deepseek-v3 (MLA) and mixtral-8x7b (GQA); the tensors of a MoE layer, step by step; and the
bytes that PyTorch keeps of the same experts.

finetune_oracle.py SPILLWAY SCRATCH"""
import json
import pathlib
import shutil
import sys
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import oracle_megatron
from oracle_layer import B
from replay_case import Case, run

program, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve() / "finetune_oracle"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
checks = 0


def near(what, got, want, tolerance=1e-9):
    global checks
    checks += 1
    if not abs(got - want) <= tolerance * abs(want) + 1:
        sys.exit(f"FAILED {what}: got {got}, want {want}")


def explain(path, *arguments):
    done = run(program, "explain", "--job", path, "--format", "json", *arguments)
    if done.returncode != 0:
        sys.exit(f"FAILED {path} {arguments}: {done.stderr}")
    return json.loads(done.stdout)


# --- State, collectives, work ---

def job(name, model, finetune, scheme="megatron-alltoall", remat="full", optimizer="distributed", more="", tensor=1,
        expert_tensor=0):
    path = folder / f"{name}.yaml"
    path.write_text(f"model: {model}\ncluster: h200-8x8\nlibrary_limits: ignore\nparallel: {{expert: 8, fsdp: {8 // (expert_tensor or tensor)}, "
                    f"tensor: {tensor}, expert_tensor: {expert_tensor}}}\n"
                    "batch: {sequences_per_gpu: 1, sequence_length: 4096}\n"
                    "precision: {weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16}\n"
                    f"optimizer: {optimizer}\nremat: {remat}\nfinetune: {{{finetune}}}\nschemes: [\"{scheme}\"]\n{more}")
    return path


# H, layers, MoE layers, experts, top_k, F, inputs plus outputs of attention's products, how many, inputs kept for them alone
DEEPSEEK = (7168, 61, 58, 256, 8, 2048, (7168 + 1536) + (1536 + 128 * 192) + (7168 + 576) + (512 + 128 * 256) + (128 * 128 + 7168),
            5, 7168 + 1536 + 512)
MIXTRAL = (4096, 32, 32, 8, 2, 14336, (4096 + (32 + 2 * 8) * 128) + (32 * 128 + 4096), 2, 4096)
for model, (H, L, moe, E, K, F, ends, products, inputs) in {"deepseek-v3": DEEPSEEK, "mixtral-8x7b": MIXTRAL}.items():
    plain = {c["component"]: c["bytes"] for c in explain(job("plain", model, ""))}
    routed = moe * E * 3 * H * F // 8  # of a GPU
    rest = plain["weights"] / 2 - routed
    for frozen, rank, targets in (("experts", 0, ""), ("base", 16, "attention"), ("base", 8, "experts"), ("base", 64, "both"),
                                  ("experts", 32, "both"), ("none", 4, "attention")):
        text = f"frozen: {frozen}, lora_rank: {rank}" + (f", lora_targets: {targets}" if targets else "")
        what, attention = f"{model} {text}", L * rank * ends * (targets in ("attention", "both"))
        experts = moe * E // 8 * rank * (2 * H + 3 * F) * (targets in ("experts", "both"))
        for optimizer, replicas, others in (("distributed", 8, 64), ("replicated", 1, 1)):
            got = {c["component"]: c["bytes"] for c in explain(job("state", model, text, optimizer=optimizer))}
            own_routed = experts + routed * (frozen == "none")
            own_rest = attention + rest * (frozen != "base")
            near(f"{what} weights", got["weights"], plain["weights"] + 2 * (attention + experts))
            near(f"{what} gradients", got["gradients"], 4 * (own_routed + own_rest))
            near(f"{what} moments", got["optimizer"], 8 * (own_routed / replicas + own_rest / others))
            near(f"{what} master", got["master_weights"], 4 * (own_routed / replicas + own_rest / others))
        near(f"{what} attention", got["attention"], plain["attention"] + 4096 * 2 * (
            rank * products if targets in ("attention", "both") else -inputs if frozen == "base" else 0))
        if "shared_expert" in plain:
            near(f"{what} shared", got["shared_expert"], plain["shared_expert"] * (2 if frozen == "base" else 3) / 3)
            near(f"{what} dense", got["dense_ffn"], plain["dense_ffn"] * (3 if frozen == "base" else 4) / 4)
        # collectives of a step: what is trained is reduced, and gathered again
        done = run(program, "explain", "--job", job("traffic", model, text), "--traffic", "--format", "json")
        items = [i for i in json.loads(done.stdout) if i["tensor"] in ("experts", "others")]
        scattered = {i["tensor"]: i["bytes"] / 4 for i in items if i["operation"] == "reduce_scatter"}
        near(f"{what} reduced experts", scattered.get("experts", 0), own_routed, 1e-6)
        near(f"{what} reduced others", scattered.get("others", 0), own_rest, 1e-6)
        # FLOP of a token: 2 a weight forward, as many for its input, as many for itself if it is trained
        done = run(program, "explain", "--job", job("work", model, text))
        words = done.stdout.replace(",", "").replace(";", "").split()  # lines may be broken anywhere
        words = words[words.index("lora_rank"):]
        near(f"{what} parameters", float(words[words.index("of") - 1]), own_routed * 8 + own_rest, 1e-5)
        now, full = (float(words[i - 1]) for i, w in enumerate(words) if w in ("GFLOP",)), 0
        flop = float(words[words.index("GFLOP") - 1])
        all_of = float(words[words.index("backward") + 1])
        active = moe * K * 3 * H * F
        left_out = {"none": 0, "experts": 2 * active}.get(frozen)
        adapters = 6 * (attention + moe * K * rank * (2 * H + 3 * F) * (targets in ("experts", "both")))
        if left_out is not None:
            near(f"{what} work", flop * 1e9, all_of * 1e9 - left_out + adapters, 1e-3)
        elif not flop < 0.75 * all_of:
            sys.exit(f"FAILED {what}: {flop} of {all_of} GFLOP")


# --- Context parallelism: the GPUs of a group have half a sequence each, and share the state as replicas do ---

for model in ("deepseek-v3", "mixtral-8x7b"):
    for text in ("frozen: experts", "frozen: base, lora_rank: 16", "frozen: base, lora_rank: 8, lora_targets: both"):
        whole, cut = job("context_1", model, text, remat="none"), job("context_2", model, text, remat="none")
        whole.write_text(whole.read_text().replace("sequence_length: 4096", "sequence_length: 2048"))
        cut.write_text(cut.read_text().replace("fsdp: 8,", "fsdp: 8, context: 2,"))
        want, got = ({c["component"]: c["bytes"] for c in explain(path)} for path in (whole, cut))
        for part in {*want, *got}:
            near(f"{model} {text} context {part}", got.get(part, -1), want.get(part, -1))
        want, got = ({(i["tensor"], i["operation"]): i["step_bytes"] for i in explain(path, "--traffic")} for path in (whole, cut))
        ring = [tensor for tensor in got if tensor not in want]
        checks += 1
        if {tensor: got[tensor] for tensor in want} != want or ring != [("keys_values", "send")]:
            sys.exit(f"FAILED {model} {text}: {got}, {want}")

# --- Tensor parallelism: the state, what attention keeps and the collectives of a tensor group, of one GPU ---

def collected(model, tensor, frozen, rank, again):
    """Bytes out of one GPU in a step: (elements of the whole tensor, gathers and scatters, all-reduces) of every call."""
    H, L, moe = {"deepseek-v3": (7168, 61, 58), "mixtral-8x7b": (4096, 32, 32)}[model]
    mla, trained, T = model == "deepseek-v3", int(frozen != "base"), 4096 // tensor
    calls = []
    for layer in range(L):
        for width in ((1536, 512) if mla else (H,)):
            calls.append((width, 1 + again + trained + 1, 0))  # forward, again, for the weights' gradient; scattered
        calls += [(64, 2 + again, 0)] * mla + [(H, 2 + again, 0)]
        if mla:  # a shared expert or a dense FFN
            calls += [(H, 1 + again + trained + 1, 0), (H, 2 + again, 0)]
        if rank:  # A x gathered; A x summed; what B makes gathered; backward two sums and a gather
            calls += [(rank, 1 + again, 1), (rank, 0, 1 + again + 1), (H, 1 + again + 1, 0)]
    calls += [(H, 1 + trained, 0), (H, 1 + trained + 1, 0)]  # embedding, head
    out = sum(width * tensor * T * 2 * (gathers + 2 * sums) for width, gathers, sums in calls) + 2 * 3 * tensor * T * 4
    whole = L * 2 * H + H + moe * H * (256 if mla else 8)
    if mla:
        whole += L * (H * (1536 + 576) + 1536 + 512) + moe * 256
    return (tensor - 1) / tensor * (out + 2 * 4 * whole * trained)


for model, (H, L, moe, E, K, F, ends, products, inputs) in {"deepseek-v3": DEEPSEEK, "mixtral-8x7b": MIXTRAL}.items():
    for tensor in (2, 4):
        for remat in ("full", "none"):
            cut = lambda text: job("tensor", model, text, remat=remat, tensor=tensor, expert_tensor=1)
            plain = {c["component"]: c["bytes"] for c in explain(cut(""))}
            routed = moe * E * 3 * H * F // 8
            rest = plain["weights"] / 2 - routed
            for frozen, rank, targets in (("experts", 0, ""), ("base", 8, "experts"), ("base", 16, "attention"), ("experts", 32, "both"),
                                          ("none", 4, "attention")):
                if model == "deepseek-v3" and targets in ("attention", "both"):
                    continue
                text = f"frozen: {frozen}, lora_rank: {rank}" + (f", lora_targets: {targets}" if targets else "")
                what, beside = f"{model} tensor {tensor} {remat} {text}", targets in ("attention", "both")
                attention = L * rank * ends * beside / tensor
                experts = moe * E // 8 * rank * (2 * H + 3 * F) * (targets in ("experts", "both"))
                got = {c["component"]: c["bytes"] for c in explain(cut(text))}
                own_routed = experts + routed * (frozen == "none")
                own_rest = attention + rest * (frozen != "base")
                near(f"{what} weights", got["weights"], plain["weights"] + 2 * (attention + experts))
                near(f"{what} gradients", got["gradients"], 4 * (own_routed + own_rest))
                near(f"{what} moments", got["optimizer"], 8 * (own_routed / 8 + own_rest / (64 / tensor)))
                # attention's own T H of a frozen input falls away; the group's normed input and A x of all tokens are there
                kept, T = 0, 4096 // tensor
                if frozen == "base":
                    kept -= T * inputs
                if beside:
                    kept += tensor * T * (H + rank * products)
                near(f"{what} attention", got["attention"], plain["attention"] + 2 * kept)
                near(f"{what} gathered", got["gathered_sequence"], plain["gathered_sequence"] / (2 if frozen == "base" else 1))
                done = run(program, "explain", "--job", cut(text), "--traffic", "--format", "json")
                sent = sum(i["step_bytes"] for i in json.loads(done.stdout) if i["purpose"] == "tensor_parallel")
                near(f"{what} sent", sent, collected(model, tensor, frozen, rank * beside, int(remat == "full")))

# --- The tensors of a layer ---

def layer(scheme, case, frozen, rank):
    """The lists of sections 5.2 and 5.4 as 7.13 changes them, with balanced rows -> Live."""
    g = types.SimpleNamespace(R=case.expert, E=case.experts, K=case.top_k, H=case.hidden, F=case.ffn,
                              e=case.experts // case.expert, T=case.tokens, N=case.tokens * case.top_k, case=case)
    M = g.N
    keeps = not frozen or rank > 0
    old = {name: getattr(oracle_megatron, name) for name in ("FC", "FC_BACKWARD", "sizes", "play")}
    fc1, fc2 = ("+fc1_lora +fc1_added -fc1_added", "+fc2_lora +fc2_added -fc2_added") if rank else ("", "")
    back2 = "+d_fc2_lora -fc2_lora +d_fc2_added_input -d_fc2_added_input -d_fc2_lora" if rank else ""
    back1 = "+d_fc1_lora -fc1_lora +d_fc1_added_input -d_fc1_added_input -d_fc1_lora" if rank else ""
    oracle_megatron.FC = f"+fc1_output {fc1} +fc2_input +fc2_output {fc2}" + ("" if keeps else " -fc2_input")
    oracle_megatron.FC_BACKWARD = f"""+d_fc2_input {back2} {'-fc2_input' if keeps else ''} -d_fc2_output +d_fc1_output
        +d_row_probs -fc1_output -d_fc2_input -row_probs +d_fc1_input {back1} -d_fc1_output {'-fc1_input' if keeps else ''}"""

    def sizes(*arguments, **keywords):
        size = old["sizes"](*arguments, **keywords)
        size.update(fc1_lora=M * rank * B, fc2_lora=M * rank * B, fc1_added=2 * M * g.F * B, fc2_added=M * g.H * B,
                    fc2_added_input=M * g.F * B, fc1_added_input=M * g.H * B)
        return size
    oracle_megatron.sizes = sizes
    oracle_megatron.play = lambda size, keeping, backward: old["play"](
        size, keeping if keeps else keeping.replace("-fc2_output", "-fc2_output -fc1_input", 1), backward)
    try:
        if scheme == "megatron-alltoall":
            return oracle_megatron.alltoall_memory(g, M, M, M, False, False, False)
        return oracle_megatron.hybrid_memory(g, M)
    finally:
        for name, value in old.items():
            setattr(oracle_megatron, name, value)


# Bytes that autograd keeps of 48 rows with H 32 and F 16 in bf16: one function for the weighted SwiGLU, linear layers for the
# rest; PyTorch 2.15.0 on a CPU, torch.autograd.graph.saved_tensors_hooks, weights and adapters not counted.
PYTORCH = {("none", 0): 7872, ("experts", 0): 3264, ("experts", 4): 8640, ("none", 4): 8640}
for scheme in ("megatron-alltoall", "megatron-flex:backend=hybridep"):
    name, saved = scheme.partition(":")[0], {}
    for frozen, rank in PYTORCH:
        case = Case(nodes=2, gpus_per_node=2, expert=2, experts=8, top_k=2, hidden=32, ffn=16, model_layers=3, length=24,
                    remat="none", schemes=(scheme,))
        path = case.write(folder, "layer")
        path.write_text(path.read_text() + "optimizer: distributed\n"
                        f"finetune: {{frozen: {frozen}, lora_rank: {rank}, lora_targets: experts}}\n")
        got = {c["component"]: c["bytes"] for c in explain(path)}
        live = layer(name, case, frozen != "none", rank)
        near(f"{scheme} {frozen} {rank} saved", got["saved_rows"], 3 * live.saved)
        near(f"{scheme} {frozen} {rank} peak", sum(v for k, v in got.items() if k.startswith("moe.")), live.peak)
        saved[frozen, rank] = live.saved
    for key, kept in PYTORCH.items():
        near(f"{scheme} {key} as PyTorch", saved[key] - saved["none", 0], kept - PYTORCH["none", 0])


# --- Refused, with the way out ---
REFUSED = [("frozen: base", {}, "trains nothing"), ("frozen: experts", dict(scheme="megatron-allgather"), "megatron-flex alone"),
           ("frozen: experts", dict(scheme="gmm", optimizer="sharded"), "megatron-flex alone"),
           ("frozen: experts", dict(optimizer="sharded"), "distributed or replicated"),
           ("frozen: experts", dict(tensor=2), "(it is as large as tensor, because nobody gave it); use expert_tensor: 1"),
           ("frozen: base, lora_rank: 16", dict(tensor=2, expert_tensor=1), "MLA's down projections"),
           ("frozen: base, lora_rank: 18", dict(tensor=4, expert_tensor=1, model="mixtral-8x7b"), "a multiple, such as 20"),
           ("frozen: experts", dict(remat="moe_act"), "another remat"), ("frozen: half", {}, "experts, base")]
for text, keywords, words in REFUSED:
    done = run(program, "explain", "--job", job("refused", **{"model": "deepseek-v3", "finetune": text, **keywords}))
    checks += 1
    if done.returncode != 2 or words not in done.stderr:
        sys.exit(f"FAILED {text} {keywords}: {done.returncode} {done.stderr}")
print(f"{checks} checks")

#!/usr/bin/env python3
"""vLLM's own recorder of routed experts and its CompletionOutput on a CPU, behind a tiny random router: what they hand out becomes a trace
by spillway_moe.capture, and the text of a response by `trace import vllm-routed`; both hold the rows that the router chose, and a replay
has the rows that are counted here. The engine, which needs a GPU, is not run. Nor is this by .ci/run: vLLM's wheel has 340 MB, and what it
imports are thirty packages. By hand, in an environment with torch, h5py and what vLLM asks for:

    pip download --no-deps vllm==0.33.0 && unzip -q vllm-*.whl 'vllm/*.py' -d FOLDER
    PYTHONPATH=FOLDER python3 capture_vllm.py SPILLWAY SCRATCH SOURCE"""
import json
import pathlib
import shutil
import subprocess
import sys
import types

SPILLWAY, SCRATCH, SOURCE = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
SCRATCH /= "capture_vllm"
sys.path.insert(0, str(SOURCE / "python"))
import h5py
import numpy as np
import torch
from vllm.forward_context import override_forward_context
from vllm.model_executor.layers.fused_moe import routed_experts_capturer as recorder
from vllm.outputs import CompletionOutput
from vllm.utils.serial_utils import numpy2base64

from spillway_moe.capture import Capture

LAYERS, EXPERTS, TOP_K, HIDDEN, REQUESTS, TOKENS = 7, 64, 8, 32, 4, 65
checks = 0


def check(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit(f"FAIL {what}")


def run(*words):
    done = subprocess.run([str(SPILLWAY), *map(str, words)], capture_output=True, text=True)
    check(done.returncode == 0, f"{words}: {done.stdout}{done.stderr}")
    return done


shutil.rmtree(SCRATCH, ignore_errors=True)
SCRATCH.mkdir(parents=True)
recorder.current_platform.device_type = "cpu"
model = types.SimpleNamespace(get_total_num_hidden_layers=lambda: LAYERS, get_num_experts=lambda: EXPERTS,
                              get_num_experts_per_tok=lambda: TOP_K, hf_text_config=types.SimpleNamespace(model_type="tiny"))
parallel = types.SimpleNamespace(data_parallel_rank=0, tensor_parallel_size=1)
own = recorder.RoutedExpertsCapturer(TOKENS, types.SimpleNamespace(model_config=model, parallel_config=parallel))
torch.manual_seed(3)
routers = torch.randn(LAYERS, HIDDEN, EXPERTS)
outputs, chosen = [], []
with override_forward_context(types.SimpleNamespace(dp_metadata=None, batch_descriptor=None)):
    for request in range(REQUESTS):
        x = torch.randn(TOKENS, HIDDEN)
        ids = torch.stack([(x @ router).topk(TOP_K).indices for router in routers])  # [layers][tokens][k]
        for layer in range(LAYERS):
            own.capture(layer, ids[layer].to(torch.int32))
        snapshot = own.snapshot_routing_data(TOKENS - 1).numpy()  # the last token is never routed
        outputs.append(CompletionOutput(index=request, text="", token_ids=[], cumulative_logprob=None, logprobs=None, routed_experts=snapshot))
        chosen.append(ids[:, :-1].movedim(1, 0).numpy())
want = np.concatenate(chosen)
check(outputs[0].routed_experts.dtype == np.uint8 and outputs[0].routed_experts.shape == (TOKENS - 1, LAYERS, TOP_K), "the payload")

for rank, output in enumerate(outputs):  # a request a rank
    with Capture(SCRATCH / "hook", experts=EXPERTS, top_k=TOP_K, layers=range(1, LAYERS + 1), rank=rank, ranks=REQUESTS) as capture:
        with capture.step(0):
            capture.add_sequences([output.routed_experts])
run("trace", "merge", SCRATCH / "hook", SCRATCH / "hook.h5")
lines = [json.dumps({"choices": [{"index": o.index, "routed_experts": numpy2base64(o.routed_experts)}]}) for o in outputs]
(SCRATCH / "responses.jsonl").write_text("\n".join(lines) + "\n")
run("trace", "import", "vllm-routed", SCRATCH / "responses.jsonl", "--output", SCRATCH / "text.h5", "--experts", EXPERTS, "--top-k", TOP_K,
    "--layers", f"1:{LAYERS + 1}")
job = {"model": "scratch-moe-e64", "cluster": "mi355x:4x1", "parallel": {"expert": REQUESTS, "fsdp": 1}, "schemes": ["gmm"],
       "batch": {"sequences_per_gpu": 1, "sequence_length": TOKENS - 1}}
(SCRATCH / "job.yaml").write_text(json.dumps(job))
most = max((want[:, layer] // (EXPERTS // REQUESTS) == rank).sum() for layer in range(LAYERS) for rank in range(REQUESTS))
for path in (SCRATCH / "hook.h5", SCRATCH / "text.h5"):
    with h5py.File(path) as trace:
        check((trace["tokens/expert_id"][:] == want).all(), f"{path}: the ids")
    run("trace", "verify", path)
    row = json.loads(run("replay", path, "--job", SCRATCH / "job.yaml", "--format", "json").stdout)["rows"][0]
    if row["evidence"] == "exact":  # a text says nothing of ranks
        check(row["traffic"]["rows_max"] == most, f"{path}: {row['traffic']['rows_max']} rows, not {most}")
check(checks == 10, f"{checks} checks: the replay of the hook's trace is not exact")
print(f"{checks} checks")

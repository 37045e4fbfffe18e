#!/usr/bin/env python3
"""One prefill priced by AIConfigurator, for `spillway bench plan --beside tests/bench/aiconfigurator_point.py`. It plans serving: it has no
backward pass, no optimizer and no training step. So what is timed is less work than a plan: one forward pass of a sequence of 4096
tokens on each of the expert-parallel GPUs, with the uneven routing that its tables were measured with (a power law). Wants the package
aiconfigurator where Python finds it. Models that it has no measurements of are an error, and stand as a dash. It is priced twice, and
the processor seconds of the second time are printed.

aiconfigurator_point.py MODEL GPUS PIPELINE EXPERT MICRO_BATCHES"""
import contextlib
import io
import logging
import sys
import time

from aiconfigurator.cli import api

NAMES = {"deepseek-v3": "deepseek-ai/DeepSeek-V3", "kimi-k2": "moonshotai/Kimi-K2-Instruct", "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1",
         "qwen3-235b": "Qwen/Qwen3-235B-A22B", "qwen3-30b": "Qwen/Qwen3-30B-A3B", "gpt-oss-120b": "openai/gpt-oss-120b",
         "glm-4.5-air": "zai-org/GLM-4.5-Air"}

model, stages, experts = sys.argv[1], int(sys.argv[3]), int(sys.argv[4])
name = next((NAMES[one] for one in NAMES if model.startswith(one)), None)
if name is None:
    sys.exit(f"AIConfigurator is not asked for {model}")
logging.disable(logging.CRITICAL)
seconds = 0.0
for _ in range(2):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        begun = time.process_time()
        found = api.cli_estimate(name, "h200_sxm", mode="static_ctx", isl=4096, osl=1, batch_size=1, pp_size=stages, attention_dp_size=experts,
                                 moe_tp_size=1, moe_ep_size=experts, gemm_quant_mode="bfloat16", moe_quant_mode="bfloat16",
                                 kvcache_quant_mode="bfloat16", fmha_quant_mode="bfloat16")
        seconds = time.process_time() - begun
if not found.ttft > 0.0:
    sys.exit(f"AIConfigurator gives no time of {name}")
print(seconds)

#!/usr/bin/env python3
"""One job planned by SimuMax, for `spillway bench plan --beside tests/bench/simumax_point.py`. Wants SimuMax where Python finds it, or in
the folder SIMUMAX. Models that it has no configuration of are an error, and stand as a dash. It is planned twice, and the seconds of
the second time are printed.

simumax_point.py MODEL GPUS PIPELINE EXPERT MICRO_BATCHES"""
import contextlib
import io
import os
import sys
import time

if os.environ.get("SIMUMAX"):
    sys.path.insert(0, os.environ["SIMUMAX"])
from simumax.core.config import ModelConfig, StrategyConfig, SystemConfig
from simumax.core.perf_llm import PerfLLM
from simumax.utils import get_simu_model_config, get_simu_system_config

NAMES = {"deepseek-v3": "deepseekv3", "kimi-k2": "kimi-1T", "mixtral-8x7b": "mixtral-8x7b"}
SYSTEM = "a100_pcie"  # of those that it ships; which one does not change the work

model, gpus, stages, experts, micro_batches = sys.argv[1], *map(int, sys.argv[2:6])
if model not in NAMES:
    sys.exit(f"SimuMax has no configuration of {model}")
strategy = StrategyConfig(seq_len=4096, micro_batch_size=1, micro_batch_num=micro_batches, dtype="bf16", world_size=gpus, tp_size=1,
                          pp_size=stages, ep_size=experts, etp_size=1, moe_dispatcher_policy="all2all", zero_state=1,
                          enable_sequence_parallel=False, enable_recompute=True, recompute_granularity="full_block")
configuration = ModelConfig.init_from_config_file(get_simu_model_config(NAMES[model]))
strategy.recompute_layer_num = -(-configuration.layer_num // stages)
if configuration.layer_num % stages:  # the stages at both ends take what is left
    inner = -(-configuration.layer_num // stages)
    left = configuration.layer_num - inner * (stages - 2)
    strategy.num_layers_in_first_pipeline_stage, strategy.num_layers_in_last_pipeline_stage = left - left // 2, left // 2


def plan():
    planner = PerfLLM()
    planner.configure(strategy_config=strategy, model_config=configuration,
                      system_config=SystemConfig.init_from_config_file(get_simu_system_config(SYSTEM)))
    planner.run_estimate()
    return planner.analysis_mem(), planner.analysis_cost()


with contextlib.redirect_stdout(io.StringIO()):  # twice: the first time fills what is shared
    plan()
    began = time.process_time()
    plan()
    taken = time.process_time() - began
print(taken)

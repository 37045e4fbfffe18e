#!/usr/bin/env python3
"""Writes counts.csv: elements of every model here as Hugging Face transformers builds it, on torch's meta device, where a tensor has a shape
and no memory. Parameters and the buffers that are saved with them; tied weights once; the language model alone where there are images.
No test runs this: it needs torch and transformers, whose versions are in the table's first line.

count_with_transformers.py [NAME...] > counts.csv"""
import json
import pathlib
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM


# Buffers that training changes: the router's selection bias and Gemma's scale of a layer. The others are constants.
LEARNT = ("e_score_correction_bias", "expert_bias", "layer_scalar")


def elements(config):
    with torch.device("meta"):
        if type(config) in AutoModelForCausalLM._model_mapping.keys():
            model = AutoModelForCausalLM.from_config(config)
        else:  # the text part of a model of images: its body, and the head that the whole has beside it
            model = AutoModel.from_config(config)
            if not config.tie_word_embeddings:
                model.head_of_the_whole = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
    parameters = dict(model.named_parameters())
    everything = dict(model.named_parameters(remove_duplicate=False))
    buffers = {name: t for name, t in model.state_dict().items() if name not in everything and name.endswith(LEARNT)}
    return model, sum(t.numel() for t in parameters.values()) + sum(t.numel() for t in buffers.values())


def read(path):
    raw = json.loads(path.read_text())
    raw.pop("architectures", None)
    raw = {key: value for key, value in raw.items() if not key.startswith("_")}
    if raw.get("model_type") == "kimi_k2":  # the architecture of DeepSeek-V3, under a name of its own
        raw["model_type"] = "deepseek_v3"
    if raw.get("model_type") == "hunyuan_v1_moe":  # the scaling of its positions is that of its own code
        raw.pop("rope_scaling")
        raw = {key: value[0] if isinstance(value, list) and key.startswith(("moe_", "num_")) else value for key, value in raw.items()}
    if raw.get("model_type") == "minimax_m3":  # published under a name of its own
        raw["model_type"] = "minimax_m3_vl_text"
    text = raw.get("text_config")
    if text is not None:
        raw = {"tie_word_embeddings": raw.get("tie_word_embeddings", False), **text}
    return AutoConfig.for_model(raw.pop("model_type"), **raw)


if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent
    print(f"# transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, meta device; made by count_with_transformers.py")
    print("name,elements")
    for path in sorted(folder.glob("*.json")) + sorted((folder.parents[1] / "sim/models").glob("*.json")):
        if len(sys.argv) > 1 and path.stem not in sys.argv[1:]:
            continue
        try:
            print(f"{path.stem},{elements(read(path))[1]}", flush=True)
        except Exception as e:  # a family that transformers does not have
            print(f"{path.stem}: {type(e).__name__}: {str(e)[:300]}", file=sys.stderr, flush=True)

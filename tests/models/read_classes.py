#!/usr/bin/env python3
"""Every class of transformers that has experts, as its default, and every configuration that the wheel aiconfigurator-core ships: each as
it is and as transformers saves it again. Parameters must be those of the class, built on torch's meta device, to the last one; where
transformers has no class, within 1 % of what the publisher says (published in PUBLISHED).

read_classes.py SPILLWAY FOLDER pinned        names and versions below, elements from classes.csv: needs no torch
read_classes.py SPILLWAY FOLDER counted       the same, elements counted anew: needs torch
read_classes.py SPILLWAY FOLDER newest        the newest transformers and torch
read_classes.py SPILLWAY FOLDER write         writes classes.csv and classes.jsonl, the facts of test_model_classes

FOLDER holds a virtual environment and the wheel; both come from PyPI once."""
import csv
import importlib
import inspect
import json
import os
import pathlib
import subprocess
import sys
import zipfile

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "oracle"))
import framework_venv  # noqa: E402

mode = sys.argv[3]
program, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
TRANSFORMERS, TORCH, WHEEL = "5.24.0", "2.15.0", "aiconfigurator-core==0.12"
PACKAGES = {"pinned": [f"transformers=={TRANSFORMERS}"], "newest": ["transformers", "torch"]}.get(
    mode, [f"transformers=={TRANSFORMERS}", f"torch=={TORCH}"])
folder.mkdir(parents=True, exist_ok=True)
framework_venv.enter(str(folder / ("venv_pinned" if mode == "pinned" else "venv_newest" if mode == "newest" else "venv")),
                     "the_right_transformers", PACKAGES, "it is run by .ci/run alone")

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import transformers  # noqa: E402
from transformers import CONFIG_MAPPING, AutoConfig  # noqa: E402

# No decoders of text: an encoder, or an encoder and a decoder of other keys, or a tower of images.
NOT_READ = {"vitpose", "vitpose_backbone", "nllb-moe", "switch_transformers", "dots3_note_vision_encoder", "openai_privacy_filter"}
# Weights that a class has and that are not counted. LongCat: rows of weights for experts that compute nothing, which the published files
# lack. ERNIE VL: experts, router and its bias for tokens of images, which is said with every answer.
UNUSED = {"ernie4_5_vl_moe_text": lambda c: c.mlp_layer_types.count("sparse") * c.moe_num_experts
          * (3 * c.hidden_size * c.moe_intermediate_size[1] + c.hidden_size + 1),
          "longcat_flash": lambda c: c.num_layers * c.zero_expert_num * 2 * c.expert_ffn_hidden_size * c.hidden_size}
# What is refused, each with the keys that nothing here counts. A refusal of anything else fails.
REFUSED = set()
# Classes that are dense by default, and what makes them mixtures.
SPARSE = {"doge": {"is_moe": True}}
# Parts that no default and no file of the wheel has.
SMALL = dict(enable_moe_block=True, num_experts=8, top_k_experts=2, moe_intermediate_size=704)
VARIANTS = [("gemma4_text", "tables of layers", dict(SMALL, hidden_size_per_layer_input=256)),
            ("gemma4_text", "keys that are values", dict(SMALL, attention_k_eq_v=True, num_global_key_value_heads=2)),
            ("gemma4_text", "shared keys", dict(SMALL, num_kv_shared_layers=10, use_double_wide_mlp=True, attention_bias=True)),
            ("zaya", "sliding, biases", dict(layer_types=["hybrid", "hybrid_sliding"] * 20, sliding_window=64, attention_bias=True,
                                             lm_head_bias=True, tie_word_embeddings=False)),
            ("doge", "biases", dict(is_moe=True, mlp_bias=True, attention_bias=True, num_experts=1000)),
            ("inkling2_text", "full layer first", dict(layer_types=["hybrid", "hybrid_sliding"] * 24)),
            ("inkling2_loop_text", "other loop", dict(loop_layer_index_start=12, loop_layer_index_end=24, loop_gate_rank=8)),
            ("nemotron_h", "biases", dict(mlp_bias=True, moe_latent_size=64, use_bias=True, attention_bias=True)),
            ("jamba", "biases", dict(mamba_conv_bias=False, mamba_proj_bias=True)),
            ("ernie4_5_moe", "biases", dict(use_bias=True)), ("hy_v3", "biases", dict(mlp_bias=True)),
            ("qwen3_next", "biases", dict(attention_bias=True)), ("solar_open", "biases", dict(attention_bias=True)),
            ("laguna", "wide gate", dict(gating=False)), ("deepseek_v3", "plain queries", dict(q_lora_rank=None, attention_bias=True))]
# What transformers has no class for: published totals in B.
PUBLISHED = {"moonshotai--Kimi-K2-Instruct": 1026.5, "moonshotai--Kimi-K3": 2800, "stepfun-ai--Step-3.7-Flash": 196, "stepfun-ai--Step-3.7-Flash-FP8": 196}
# Files without a class, and the file of the same model that has one.
SAME = {"MiniMaxAI--MiniMax-M3": "nvidia--MiniMax-M3-NVFP4", "sgl-project--DeepSeek-V4-Flash-FP8": "deepseek-ai--DeepSeek-V4-Flash",
        "sgl-project--DeepSeek-V4-Pro-FP8": "deepseek-ai--DeepSeek-V4-Pro"}
# Files of which transformers reads nothing: their keys stand outside of text_config, and the class takes its defaults.
UNREAD = {"stepfun-ai--Step-3.7-Flash", "stepfun-ai--Step-3.7-Flash-FP8"}
LEARNT = ("e_score_correction_bias", "expert_bias", "balancing_biases", "layer_scalar")  # buffers that training changes
OTHERS = ("visual", "vision", "audio", "projector", "resampler", "image", "view_separator", "talker", "word_timestamp")


def has_experts(d):
    return any((("expert" in str(k) or "moe" in str(k)) and k != "expert_dropout" and v not in (None, 0, False))
               or (isinstance(v, dict) and has_experts(v)) for k, v in d.items())


def text_class(config):
    """The class of a text model that no mapping names."""
    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    found = []
    for name, one in inspect.getmembers(module, inspect.isclass):
        notes = getattr(one, "__annotations__", {}).get("config")
        if notes in (type(config), type(config).__name__) or getattr(one, "config_class", None) is type(config):
            for rank, end in enumerate(("ForCausalLM", "TextModel", "Model")):
                if name.endswith(end) and "PreTrained" not in name:
                    found.append((rank, name, one))
                    break
    return min(found, key=lambda f: f[:2])[2] if found else None


def build(config):
    """(model, whether it has the head of its text model)."""
    import torch
    with torch.device("meta"):
        for name in ("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModelForMultimodalLM"):
            mapping = getattr(transformers, name, None)
            if mapping is not None and type(config) in mapping._model_mapping.keys():
                return mapping.from_config(config), True
        text = config.get_text_config()
        one = text_class(text)
        return (None, False) if one is None else (one(text), one.__name__.endswith("ForCausalLM"))


def elements(config):
    """(elements of the language model, name of the class), or (None, why)."""
    try:
        model, headed = build(config)
    except Exception as e:  # noqa: BLE001: whatever a class of another version raises
        return None, f"{type(e).__name__}: {str(e)[:80]}".replace("\n", " ")
    if model is None:
        return None, "no class"
    tensors, every = dict(model.named_parameters()), dict(model.named_parameters(remove_duplicate=False))
    tensors.update({n: t for n, t in model.state_dict().items() if n not in every and n.endswith(LEARNT)})
    within = any("language_model" in n for n in tensors)
    mine = [t.numel() for n, t in tensors.items()
            if ("language_model" in n or n.startswith("lm_head") if within else not any(o in n.split(".")[0] + n.split(".")[1] for o in OTHERS))]
    text = config.get_text_config()
    total = sum(mine) + (0 if headed or getattr(config, "tie_word_embeddings", False) else text.vocab_size * text.hidden_size)
    unused = UNUSED.get(text.model_type)
    return total - (unused(text) if unused else 0), type(model).__name__


def plain(text):
    return json.loads(text)


def forms_of(config):
    return {"full": config.to_json_string(use_diff=False), "saved": config.to_json_string(use_diff=True)}


def loaded(raw):
    raw = {k: v for k, v in raw.items() if not k.startswith("_")}
    return AutoConfig.for_model(raw.pop("model_type"), **raw)


def wheel():
    if not (folder / "wheel").is_dir():
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
                              + (["--only-binary=:all:"]), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{WHEEL} cannot be downloaded: {done.stderr.strip().splitlines()[-1:]}")
        with zipfile.ZipFile(next(folder.glob("aiconfigurator_core-*.whl"))) as archive:
            for name in archive.namelist():
                if "/model_configs/" in name and name.endswith("_config.json") and "hf_quant" not in name:
                    (folder / "wheel").mkdir(exist_ok=True)
                    (folder / "wheel" / name.rsplit("/", 1)[1]).write_bytes(archive.read(name))
    return sorted((folder / "wheel").glob("*.json"))


def cases():
    """(name, {form: text}, configuration or None)."""
    for name in sorted(CONFIG_MAPPING.keys()):
        if name in NOT_READ:
            continue
        try:
            config = CONFIG_MAPPING[name](**SPARSE.get(name, {}))
        except Exception:  # noqa: BLE001
            continue
        if has_experts(config.to_dict()):
            yield f"class {name}", forms_of(config), config
    for name, what, keys in VARIANTS:
        config = CONFIG_MAPPING[name](**keys)
        yield f"class {name}, {what}", forms_of(config), config
    for path in wheel():
        text = path.read_text()
        raw = json.loads(text)
        if not has_experts(raw):
            continue
        name, config = path.name.removesuffix("_config.json"), None
        try:
            config = loaded(dict(raw)) if raw["model_type"] in CONFIG_MAPPING and name not in UNREAD else None
        except Exception:  # noqa: BLE001: transformers refuses some files that code beside the weights reads
            pass
        yield f"wheel {name}", {"file": text} | (forms_of(config) if config is not None else {}), config


def ask(text):
    path = folder / "asked.json"
    path.write_text(text)
    done = subprocess.run([str(program), "model", str(path), "--format", "json"], capture_output=True, text=True)
    said = done.stderr.strip().removeprefix(f"spillway: {path}: ")
    return (json.loads(done.stdout)["parameters_total"], "") if done.returncode == 0 else (None, said)


def shortened(text):
    """A configuration without what no line of the reader looks at."""
    def cut(d):
        return {k: ({} if k in ("vision_config", "audio_config", "quantization_config", "talker_config", "code2wav_config", "auto_map",
                                "id2label", "label2id", "rope_parameters", "rope_scaling", "compression_config") and isinstance(v, dict)
                    else cut(v) if isinstance(v, dict) else v) for k, v in d.items() if v is not None and k != "time_step_limit"}  # Infinity
    return cut(json.loads(text))


def main():
    counted = {}
    if mode == "pinned":
        with open(here / "classes.csv", newline="") as file:
            counted = {row["name"]: row for row in csv.DictReader(line for line in file if not line.startswith("#"))}
    failures, checks, refused, rows, facts, seen, answers = [], 0, [], [], [], set(), {}
    for name, forms, config in cases():
        if mode == "pinned":
            row = counted.get(name)
            if row is None:
                failures.append(f"{name}: not in classes.csv")
                continue
            want, of = int(row["elements"]) if row["elements"] else None, row["class"]
        else:
            want, of = elements(config) if config is not None else (None, "no class")
        rows.append((name, "" if want is None else want, of))
        for form, text in forms.items():
            got, said = ask(text)
            if form == "file":
                answers[name.split(" ", 1)[1]] = got
            if got is None:
                if want is not None or name.startswith("wheel"):
                    refused.append(f"{name} ({form}): {said[:200]}")
                    if name.split(" ", 1)[1] not in REFUSED and mode != "newest":
                        failures.append(f"{name} ({form}) is refused: {said[:200]}")
                continue
            published = PUBLISHED.get(name.split(" ", 1)[1])
            if want is None and published is None:
                continue  # transformers itself builds none of it
            checks += 1
            good = got == want if want is not None else abs(got / published / 1e9 - 1) <= 0.01
            if not good:
                failures.append(f"{name} ({form}): {got}, not {want if want is not None else published} of {of}"
                                + (f", {got - want:+d}" if want is not None else ""))
            if want is not None and (of, want, form) not in seen:
                seen.add((of, want, form))
                if form != "full":
                    facts.append({"name": name, "form": form, "elements": want, "config": shortened(text)})
    for name, other in SAME.items():
        checks += 1
        if answers.get(name) is None or answers.get(name) != answers.get(other):
            failures.append(f"{name}: {answers.get(name)}, and {other} has {answers.get(other)}")
    if mode == "write":
        with open(here / "classes.csv", "w", newline="") as file:
            file.write(f"# transformers {transformers.__version__}, torch {TORCH}, meta device; {WHEEL}; made by read_classes.py\n")
            csv.writer(file, lineterminator="\n").writerows([("name", "elements", "class"), *rows])
        with open(here / "classes.jsonl", "w") as file:
            for fact in facts:
                file.write(json.dumps(fact, separators=(",", ":")) + "\n")
    print("\n".join(f"failed   {f}" for f in failures))
    print("\n".join(f"refused  {r}" for r in refused))
    print(f"{checks} checks, {len(failures)} failed, {len(refused)} refused")
    sys.exit(1 if failures or not checks else 0)


main()

#!/usr/bin/env python3
"""Keys that the program calls free of parameters (sim/model/config/model_keys.c) against transformers: in every class that has experts, one value
at a time is changed, and the number of weights must stay.

change_keys.py SPILLWAY_ROOT PYTHON     PYTHON has torch and transformers, as read_classes.py installs them"""
import os
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(sys.argv[1]).resolve()
if len(sys.argv) == 3:
    sys.exit(subprocess.run([sys.argv[2], __file__, sys.argv[1], "", "inside"], check=False).returncode)

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import importlib  # noqa: E402
import inspect  # noqa: E402
import warnings  # noqa: E402

import torch  # noqa: E402
from transformers import CONFIG_MAPPING, AutoModelForCausalLM  # noqa: E402

warnings.filterwarnings("ignore")
source = (root / "sim/model/config/model_keys.c").read_text()
listed = set(re.findall(r'"(\w+)"', source[source.index("quiet[] = {"):source.index("quiet_endings[] = {")]))
endings = tuple(re.findall(r'"(_\w+)"', source[source.index("quiet_endings[] = {"):source.index("static bool ends_quietly")]))
# Read where the family has such projections, and quiet only where its attention is latent. Bamba's and LongCat's sums of other sizes.
READ = {"head_dim", "num_key_value_heads", "qk_head_dim"}


def has_experts(d):
    return any((("expert" in str(k) or "moe" in str(k)) and k != "expert_dropout") or (isinstance(v, dict) and has_experts(v))
               for k, v in d.items())


def weights(config):
    with torch.device("meta"):
        if type(config) in AutoModelForCausalLM._model_mapping.keys():
            model = AutoModelForCausalLM.from_config(config)
        else:
            module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
            model = next(one for name, one in inspect.getmembers(module, inspect.isclass)
                         if name.endswith(("ForCausalLM", "TextModel")) and getattr(one, "config_class", None) is type(config))(config)
    return sum(t.numel() for t in model.parameters())


def changed(value):
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [2 * value or 2, value + 1]
    if isinstance(value, float):
        return [2 * value + 0.25]
    return [2, True] if value is None else []


checks, failures, seen = 0, [], set()
for name in sorted(CONFIG_MAPPING.keys()):
    try:
        config = CONFIG_MAPPING[name]().get_text_config()
        small = {"num_hidden_layers": 8}
        if type(config) in seen or not has_experts(config.to_dict()):
            continue
        seen.add(type(config))
        before = weights(type(config)(**small))
    except Exception:  # noqa: BLE001: a class that its own default does not build
        continue
    for key, value in config.to_dict().items():
        if key in READ or not (key in listed or key.endswith(endings)):
            continue
        for other in changed(value):
            try:
                after = weights(type(config)(**small, **{key: other}))
            except Exception:  # noqa: BLE001: a value that the class refuses
                continue
            checks += 1
            if after != before:
                failures.append(f"{name}: {key} = {other} makes {after} weights of {before}")
print("\n".join(failures))
print(f"{checks} checks, {len(failures)} failed")
sys.exit(1 if failures or checks < 500 else 0)

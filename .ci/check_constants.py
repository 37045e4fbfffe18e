#!/usr/bin/env python3
"""Fails where C code of sim/ that counts memory or time holds a measured or fitted figure: check_constants.py [ROOT].

Figures of machines and releases stand in YAML with evidence and source (sim/clusters, sim/*stacks, sim/stack_defaults). A literal is taken for
one when it has an exponent, or is no whole or half number; ALLOWED has those that are none, and why."""
import pathlib
import re
import sys

from source_text import code_of

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
ROOMS = ("schemes", "weights", "memory", "traffic", "time")
UNITS = {"1e9", "1e12", "1e6", "1e3", "1e-6", "1e-3", "1e-9", "1e-12"}
ALLOWED = {  # file: literals, and what they are
    "memory/step/advice.c": ({"0.05"}, "of the budget: what is worth a sentence"),
    "memory/tensors/bare_layers.c": ({"1e17"}, "most bytes that are counted"),
    "memory/kept/verdict.c": ({"0.95"}, "of the budget: what is called tight"),
    "memory/kept/footprint_component.c": ({"9.2e18"}, "most bytes"),
    "memory/step/memory_timeline.c": ({"0.25", "0.75", "0.3", "0.7", "0.999", "9.2e18"}, "places in a picture; most bytes"),
    "weights/muon_packing.c": ({"1.3"}, "Megatron-Core's own limit of a shard, in its code"),
    "memory/kept/stage_moment.c": ({"9.2e18"}, "most bytes"),
    "schemes/torch/moe_dedup.c": ({"0.001"}, "the least value of an option"),
    "time/dispatch_time.c": ({"1e18"}, "more rows than any"),
    "time/megatron/megatron_hidden.c": ({"40e6"}, "Megatron-Core's own default of a bucket, in its code"),
    "time/timeline.c": ({"1.6448536269514722"}, "a quantile of the normal law"),
    "time/timeline.h": ({"0.9"}, "the chance from which on one is called faster"),
    "time/exchange_rate.c": ({"1e15"}, "more bytes than any"),
}
LITERAL = re.compile(r"(?<![\w.])(?:\d+\.\d*|\.\d+|\d+(?=e))(?:e[+-]?\d+)?f?(?![\w.])", re.I)


def figures(text):
    for number, line in enumerate(code_of(text).split("\n"), 1):
        for match in LITERAL.finditer(line):
            word = match.group().lower().rstrip("f")
            if word in UNITS or ("e" not in word and (2 * float(word)).is_integer()):
                continue
            yield number, word


assert [w for _, w in figures('x = 55.2e9; /* 1.25 */ y = 0.5 + 3.0 * 1e9; puts("0.7"); z = 0.81f;')] == ["55.2e9", "0.81"]
found, files, used = [], 0, set()
for room in ROOMS:
    for path in sorted((ROOT / "sim" / room).rglob("*.[ch]")):
        files += 1
        name = path.relative_to(ROOT / "sim").as_posix()
        for number, word in figures(path.read_text()):
            if word in ALLOWED.get(name, ((), ""))[0]:
                used.add((name, word))
            else:
                found.append(f"sim/{name}:{number}: {word}: a figure belongs into sim/stack_defaults or a stack, with evidence and source")
found += [f"ALLOWED: {name} has no {word} any more" for name, (words, _) in ALLOWED.items() for word in words if (name, word) not in used]
print("\n".join(found) or f"{files} files")
sys.exit(bool(found) or files < 100)

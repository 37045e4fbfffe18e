#!/usr/bin/env python3
"""The keywords of the Python package against the help of the program: every option of a command and every key of a job is a keyword
of its function, none that is not, and each says what it means. The modules that are made from the program's tables are those in the
tree.

python_keywords.py PACKAGE_FOLDER LIBRARY SPILLWAY MADE [--accept]    MADE holds what spillway-manual wrote; --accept copies it"""
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys
import typing

from package_checks import Checks

folder, shared, program, made = (pathlib.Path(a).resolve() for a in sys.argv[1:5])
os.environ["SPILLWAY_LIBRARY"] = str(shared)
sys.path.insert(0, str(folder))
checks = Checks()
check = checks.note


def said(*words):
    return subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout


for name in ("questions.py", "planning.py", "keywords.py"):
    if "--accept" in sys.argv:
        shutil.copyfile(made / name, folder / "spillway_moe" / name)
    check((made / name).read_bytes() == (folder / "spillway_moe" / name).read_bytes(), f"{name} is not what the tables say; --accept takes it")

import spillway_moe as spillway  # noqa: E402
from spillway_moe import planning, questions  # noqa: E402

# What the command line has: options as --help lists them, keys as `help job` does.
keys = dict(re.findall(r"^([\w.]+): (\w+)", said("help", "job"), re.M))
OPTION_OF = {"batch.sequences_per_gpu": "sequences-per-gpu", "parallel.expert": "expert-parallel", "schemes": "scheme", "price_per_gpu_hour": "price"}
NOT_ASKED = {"job", "format", "wide", "help", "usage"}
LEFT_OUT = {"plan": {"flags", "details"}, "search": {"flags", "details", "search", "until", "all"},
            "until": {"flags", "details", "search", "until", "all", "gpus-at-most", "global-batch-at-most", "tokens-per-day", "over", "checkpoint"},
            "flags": {"flags", "details", "until", "all"}, "job": {"from"}, "model": {"diff"},
            "verify": {"device", "ranks", "gpus", "phases", "plugin", "kernel", "case", "record", "small", "case-seconds"}}
COMMANDS = {name: {"search": "plan", "until": "plan", "flags": "plan"}.get(name, name)
            for name in ("replay", "plan", "search", "until", "flags", "explain", "job", "model", "score", "verify")}
PARAMETERS = {"replay": {"trace", "job"}, "until": {"job", "question"}, "flags": {"job", "framework"}, "job": {"file"}, "model": {"name"},
              "score": {"tables"}, "verify": set()}
options = {command: dict(re.findall(r"^ {2,6}(?:-\S, +)?--([a-z][\w-]*)(?:\[?=(\S+))?", said(command, "--help").split("\nExamples:")[0], re.M)) for command in set(COMMANDS.values())}
of_jobs = set().union(*(options[c] for c in ("plan", "replay", "explain", "job")))
check(len(keys) > 60 and len(options["plan"]) > 45, f"the help has {len(keys)} keys and {len(options['plan'])} options")

for name, command in COMMANDS.items():
    function = getattr(spillway, name)
    check(getattr(planning if command == "plan" else questions, name) is function, f"{name} is another function")
    signature = inspect.signature(function)
    keywords = {p.name for p in signature.parameters.values() if p.kind == p.KEYWORD_ONLY}
    want = {{"as": "peer", "from": "from_"}.get(o, o.replace("-", "_")) for o in set(options[command]) - NOT_ASKED - LEFT_OUT.get(name, set())}
    if "set" in options[command]:
        flat = {key: key.replace(".", "_") for key in keys if OPTION_OF.get(key, key.rpartition(".")[2].replace("_", "-")) not in options["plan"]}
        flat["layers"] = "job_layers"  # --layers is of a trace
        # A key whose last word is an option of something else keeps its path.
        flat.update({key: key.replace(".", "_") for key in keys if key.startswith(("fsdp2.", "allocator.", "precision.", "finetune."))})
        want |= set(flat.values())
    check(keywords == want, f"{name}: {sorted(keywords ^ want)}")
    first = {p.name for p in signature.parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD}
    check(first == PARAMETERS.get(name, {"job"}), f"{name}: {first}")
    lines = function.__doc__.split("Keywords:")[1]
    for keyword in keywords:
        check(re.search(rf"^    {keyword}: \S", lines, re.M), f"{name}: its text says nothing of {keyword}")
        default = signature.parameters[keyword].default
        plain = {"peer": "as", "from_": "from"}.get(keyword, keyword).replace("_", "-")
        check((default is False) == (options[command].get(plain, "-") == ""), f"{name}: {keyword} has the default {default}")
    space = {**vars(typing), **vars(spillway.planner), **vars(spillway.results), "Sequence": typing.Sequence, "Mapping": typing.Mapping}
    for keyword in keywords:
        for part in re.sub(r"\[.*?\]", "", signature.parameters[keyword].annotation).split(" | "):
            check(part in space or part in ("int", "str", "float", "bool", "None"), f"{name}: {keyword} is of {part}, which is no type")
# Types of keys are those of the help: "true or false", "one of: a, b", "a whole number in [..]", "a number in [..]".
text = re.sub(r"\n +", " ", said("help", "job"))
given = inspect.signature(planning.plan).parameters
for keyword, (key, _) in spillway.keywords.KEYS.items():
    line = re.search(rf"^{re.escape(key)}: (.*)$", text, re.M)[1]
    kind = given[keyword].annotation.removesuffix(" | None")
    choices = re.search(r"one of: ([^;]*?)(?:, or several.*)?$", line)
    if line.endswith("true or false"):
        check(kind == "bool", f"{keyword}: {kind}")
    elif choices and "or several" not in line:
        words = choices[1].split(", ")
        want = {*words, *([True, False] if "true" in words else [])}
        check(set(typing.get_args(eval(kind, {"Literal": typing.Literal}))) == want, f"{keyword}: {kind} for {choices[1]}")
    elif re.search(r"; a whole number in", line):
        check(kind in ("int", "int | Sequence[int]"), f"{keyword}: {kind}")
    elif re.search(r"; a number in", line):
        check(kind == "float", f"{keyword}: {kind}")
    else:
        check(kind.startswith("str"), f"{keyword}: {kind} of {line}")
checks.finish(least=500)

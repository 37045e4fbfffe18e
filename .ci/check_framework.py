#!/usr/bin/env python3
"""Fails when code guesses the training framework again (sim/job/trainer.h is asked instead), when a field of its rows has no check by
hand, or when a function of the program has more than seven parameters."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
MOST_PARAMETERS, MOST_GUESSES = 7, 10
OWN = {"trainer.c", "trainer.h", "state_law.c", "state_law.h"}  # the rows, and what says which a job has
# What the framework was guessed from, and comparisons of its name, which would be the same guess.
GUESSES = [r"compiled\.list\b(?!\s*=\s*compiled)", r"\bspw_grid_is_mesh\b", r"\bSPW_OPTIMIZER_SHARDED\b", r"\bshards_state\b",
           r"\bfsdp2_is_on\b", r"\bis_megatron_job\b", r"[!=]=\s*SPW_TRAINER_\w+", r"SPW_TRAINER_\w+\s*[!=]=", r"\bcase SPW_TRAINER_\w+",
           r"""\b(?:strn?cmp|starts)\([^;]*"(?:megatron|primus|torchtitan)-?"[,)]"""]
# Signatures that others fix: HIP's runtime, and libspillway's interface, which programs are linked with.
FIXED = {"__hipRegisterFunction", "spw_compute_router", "spw_compute_unpermute"}

LEFT = {  # of GPU kernels, not mended yet; a name that is no longer needed fails
    "gemm", "spw_gpu_grouped_gemm", "spw_gpu_grouped_gemm_float8", "spw_gpu_grouped_gemm_mxfp8",
    "spw_launch_combine_gradient", "spw_launch_ring_choices", "spw_launch_ring_side", "whole_step"}

def without_comments(text):
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r"/\*.*?\*/|//[^\n]*", blank, text, flags=re.S)


def parameters(text):
    """(name, number, line) of every function that is declared or defined."""
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', lambda m: '"' + "_" * (len(m.group(0)) - 2) + '"', text)
    text = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.M)
    call = r"(?:^|\n)(?!return\b|else\b|case\b|typedef\b)([A-Za-z_][\w \*]*?)\b(\w+)\s*\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)\s*[;{]"
    for match in re.finditer(call, text):
        inside, depth = match.group(3).strip(), 0
        number = 1 if inside not in ("", "void") else 0
        for letter in inside:
            depth += letter in "([{"
            depth -= letter in ")]}"
            number += letter == "," and depth == 0
        yield match.group(2), number, text.count("\n", 0, match.start(2)) + 1


bad, guesses, functions, left = [], [], 0, set(LEFT)
for folder in ("base", "traces", "reference", "kernels", "sim"):
    for path in sorted((root / folder).rglob("*")):
        if path.suffix not in {".c", ".h", ".hip"}:
            continue
        text = without_comments(path.read_text())
        where = path.relative_to(root)
        for name, number, line in parameters(text):
            functions += 1
            left -= {name} if number > MOST_PARAMETERS else set()
            if number > MOST_PARAMETERS and name not in FIXED | LEFT:
                bad.append(f"{where}:{line}: {name} has {number} parameters; at most {MOST_PARAMETERS}: name what goes together")
        if folder == "sim" and path.name not in OWN:
            guesses += [f"{where}:{text.count(chr(10), 0, m.start()) + 1}: {m.group(0)}" for guess in GUESSES
                        for m in re.finditer(guess, text)]
if len(guesses) > MOST_GUESSES:
    bad.append(f"{len(guesses)} places guess the framework, at most {MOST_GUESSES}; ask its row (sim/job/trainer.h, "
               "sim/job/state_law.h):\n  " + "\n  ".join(guesses))
for header, struct, test in (("trainer.h", "spw_trainer", "test_trainer.c"), ("state_law.h", "spw_state_law", "test_state_law.c")):
    body = re.search(r"typedef struct " + struct + r" \{(.*?)\} " + struct + ";",
                     without_comments((root / "sim/job" / header).read_text()), re.S)
    checks = next((root / "tests/unit").rglob(test)).read_text()
    fields = re.findall(r"(\w+)\s*;", body.group(1)) if body else []
    if not fields:
        bad.append(f"sim/job/{header}: no struct {struct}")
    bad += [f"sim/job/{header}: {struct}.{f} is not in tests/unit/{test}" for f in fields if f"->{f}" not in checks]
bad += [f"{name} has at most {MOST_PARAMETERS} parameters by now: take it out of LEFT" for name in sorted(left)]
print("\n".join(bad) if bad else f"{functions} functions, {len(guesses)} guesses")
sys.exit(1 if bad or functions < 1000 else 0)

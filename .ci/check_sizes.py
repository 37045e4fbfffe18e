#!/usr/bin/env python3
"""No file of the product is over 500 lines and no function of it over 60. check_sizes.py ROOT; a test runs it."""
import pathlib
import re
import sys

from source_text import code_of

FILE_LINES, FUNCTION_LINES = 500, 60
FOLDERS = ("base", "traces", "reference", "kernels", "sim", "python")
# Sums and loads under way are in registers: cut in two, such a loop would have to be timed again on every GPU.
WHOLE = {("exchange_layout.hip", "exchange_layout"), ("exchange_reduce.hip", "exchange_reduce"), ("router.hip", "route")}


def functions(source):
    """(name, first line, lines) of every definition that begins at the left margin."""
    head, begun = None, None  # (line, text) since the last end of a declaration
    for number, line in enumerate(code_of(source).split("\n"), 1):
        if begun is not None:
            if line.startswith("}"):
                yield *begun, number - begun[1] + 1
                begun, head = None, None
            continue
        if re.match(r"[A-Za-z_]", line) and head is None:
            head = (number, "")
        if head is None:
            continue
        head = (head[0], head[1] + line + " ")
        if line.rstrip().endswith("{"):
            text = re.sub(r"^template <[^{]*?> ", "", head[1])
            plain = not re.match(r"(typedef|struct|enum|union|static const struct|namespace|extern)\b", text) and "=" not in text
            names = re.findall(r"(\w+)\s*\(", re.sub(r"^(GPU_KERNEL|__attribute__)\s*\([^)]*\)*", "", text))
            begun = (names[0] if plain and names else None, head[0])
        elif re.search(r"[;}]\s*$", line) or line.startswith("#"):
            head = None


def main(root):
    bad = files = 0
    for path in sorted(p for folder in FOLDERS for p in (root / folder).rglob("*")
                       if p.suffix in {".c", ".h", ".hip", ".py"} and "build" not in p.parts):
        source = path.read_text()
        if path.suffix == ".py" and "do not edit" in source[:400]:
            continue  # it is made by a program
        files += 1
        lines = source.count("\n")
        if lines > FILE_LINES:
            print(f"{path.relative_to(root)}: {lines} lines, at most {FILE_LINES}")
            bad += 1
        for name, line, length in functions(source) if path.suffix != ".py" else ():
            if name and length > FUNCTION_LINES and (path.name, name) not in WHOLE:
                print(f"{path.relative_to(root)}:{line}: {name} has {length} lines, at most {FUNCTION_LINES}")
                bad += 1
    print(f"{files} files, {bad} too long")
    return 1 if bad or not files else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")))

#!/usr/bin/env python3
"""No circles between files: of two sources at most one needs functions or tables of the other, directly or by way of a third.
check_circles.py ROOT; a test runs it."""
import pathlib
import re
import sys

from source_text import code_of

FOLDERS = ("base", "traces", "reference", "kernels", "sim")
DEFINED = re.compile(r"^(?!static\b|typedef\b|extern\b|#)[A-Za-z_][\w \t*]*?\b(spw_\w+)\s*(?:\([^;{}]*\)\s*\{|(?:\[[^\]]*\])*\s*=)", re.M)


def circles(needs):
    """Groups of more than one node of {node: nodes that it needs} that reach each other (Tarjan)."""
    number, lowest, stack, found = {}, {}, [], []

    def visit(node):
        number[node] = lowest[node] = len(number)
        stack.append(node)
        for other in needs[node]:
            if other not in number:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], number[other])
        if lowest[node] == number[node]:
            at = stack.index(node)
            group, stack[at:] = stack[at:], []
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(needs):
        if node not in number:
            visit(node)
    return found


def main(root):
    code = {path.relative_to(root).as_posix(): code_of(path.read_text())
            for folder in FOLDERS for path in sorted((root / folder).rglob("*.c")) if "build" not in path.parts}
    owner = {name: path for path, text in code.items() for name in DEFINED.findall(text)}
    needs = {path: sorted({owner[word] for word in re.findall(r"\bspw_\w+", text) if word in owner} - {path}) for path, text in code.items()}
    sys.setrecursionlimit(10 * len(code) + 1000)
    found = circles(needs)
    for group in found:
        print(f"circle of {len(group)} files: {' '.join(group)}")
    print(f"{len(code)} sources, {len(found)} circles")
    return 1 if found or not code else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")))

#!/usr/bin/env python3
"""Fails when the host and the device would read a different constant out of one kernel file.

    python3 .ci/check_launches.py [FILE.hip]...      all files for AMD unless some are named

A launch is computed on the host from what the kernel computes with: lanes of a wave, tiles, threads of a block. clang compiles a file of HIP
twice, with other macros each time, so a constant behind the wrong #if has two values. Here every file is parsed in both passes for every target,
and every enumerator, the size of every shared array and the work-group size of every kernel must be the same. The check is checked first: a file with
such a constant must be rejected. Needs clang-22 (SPW_CLANG names another). Exit status 77: it is absent.
"""
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CLANG = os.environ.get("SPW_CLANG", "clang++-22")
TARGETS = ("gfx90a", "gfx942", "gfx950")
PASSES = ("host", "device")
ROOT = pathlib.Path(__file__).resolve().parent.parent
# clang 22, HIP's host pass: __AMDGCN__ is defined, __GFX9__ is not.
WRONG = """
#if defined(__AMDGCN__) && !defined(__GFX9__)
enum { LANES = 32 };
#else
enum { LANES = 64 };
#endif
enum { THREADS = 256, WAVES = THREADS / LANES };
"""


def syntax_tree(path, target, which):
    command = [CLANG, "-x", "hip", "-DGPU_NO_RUNTIME", "-nogpuinc", "-nogpulib", f"--offload-arch={target}", f"--cuda-{which}-only", "-std=c++17",
               f"-I{ROOT}", "-fsyntax-only", "-Xclang", "-ast-dump=json", str(path)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def value_of(node):
    """Of the first constant expression at or below a node, or None."""
    if node.get("kind") == "ConstantExpr" and "value" in node:
        return int(node["value"])
    return next((v for v in map(value_of, node.get("inner", [])) if v is not None), None)


def constants(node, path=(), found=None):
    """By the names on the way to it: all values of a constant (a template has several)."""
    found = collections.defaultdict(set) if found is None else found
    before = -1  # of an enumerator without a value of its own
    for child in node.get("inner", []):
        kind, here = child.get("kind", ""), path + ((child["name"],) if "name" in child else ())
        if kind == "EnumConstantDecl":
            explicit = value_of(child)
            before = before + 1 if explicit is None else explicit
            found[here].add(before)
        elif kind == "VarDecl" and any(c.get("kind") == "CUDASharedAttr" for c in child.get("inner", [])):
            found[here].add(child["type"]["qualType"])
        elif kind == "AMDGPUFlatWorkGroupSizeAttr":
            found[path + ("work-group size",)].add(value_of(child))
        constants(child, here, found)
    return found


def differences(path, target):
    """(differing constants as text, constants compared)"""
    host, device = (constants(syntax_tree(path, target, which)) for which in PASSES)
    shared = host.keys() & device.keys()
    return [f"{path}: {target}: {'::'.join(name)} is {sorted(host[name], key=str)} on the host and {sorted(device[name], key=str)} on the device"
            for name in sorted(shared) if host[name] != device[name]], len(shared)


def main():
    if shutil.which(CLANG) is None:
        print(f"constants of launches not compared: {CLANG} is absent")
        return 77
    with tempfile.NamedTemporaryFile("w", suffix=".hip") as file:
        file.write(WRONG)
        file.flush()
        rejected, _ = differences(file.name, TARGETS[0])
    if len(rejected) != 2:
        print("a file whose LANES and WAVES differ between the passes was not rejected for both", file=sys.stderr)
        return 1
    files = [pathlib.Path(f) for f in sys.argv[1:]] or sorted(p for p in ROOT.glob("kernels/*/*.hip") if "wgmma" not in p.name and "GPU_KERNEL" in p.read_text())
    problems, compared = [], 0
    for path in files:
        for target in TARGETS:
            found, count = differences(path, target)
            problems += found
            compared += count
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(files)} files, {len(TARGETS)} targets, {compared} constants compared, {len(problems)} differ between host and device")
    return 1 if problems or not compared else 0


if __name__ == "__main__":
    sys.exit(main())

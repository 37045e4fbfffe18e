#!/usr/bin/env python3
"""Reads the AMD code objects and prints what the compiler made of every kernel; fails where it is not what it must be.

    python3 .ci/check_kernels.py [build/kernels] [--no-mca]

A row is a kernel and a target: matrix instructions, vector and accumulation registers, LDS bytes, waves a SIMD that registers and LDS
allow, scratch bytes, spilled registers. Scratch must be 0 and spills what SPILLS_MOST says, a matrix-core kernel must hold matrix instructions in
its innermost loop, and no access to memory may follow a write-back of the cache that is not waited for. Where llvm-mca is present, the last column is the share of that loop's cycles in which the matrix pipe is busy, by LLVM's static model
(it knows the issue rates of the pipes, not the latency of memory). Needs llvm-22. Exit status 1: a check failed.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kernels", "emulate"))
from code_object import CodeObject

LDS_BYTES = {"gfx90a": 65536, "gfx942": 65536, "gfx950": 163840}
REGISTERS, REGISTER_UNIT, WAVES_MAX, SIMDS, WAVE = 512, 8, 8, 4, 64
MATRIX_BUSY_MIN = {"gfx942": 0.90, "gfx950": 0.90}
# fp8: the gradient of weights has a scale for a column, too: a block's sums take twice as many vector instructions, and gfx942's codes are
# translated beside them. gfx950 multiplies 128 terms in half of the time that four products of 32 take.
MATRIX_BUSY_LESS = {("gfx950", "gemm_float8_mfma"): 0.89,
                    **{(target, f"gemm_float8_weights_{name}mfma"): 0.75 for target in ("gfx942", "gfx950")
                       for name in ("", "added_")}}
# Scalars in the lanes of a vector register, not in memory: three works with their own pointers in one kernel, which moves rows. 0 elsewhere.
SPILLS_MOST = {"exchange_return": 19}
BRANCH = re.compile(r"^\s+(s_c?branch\S*)\s.*//\s*([0-9A-F]+):.*<(\S+?)(?:\+0x([0-9a-f]+))?>\s*$")
INSTRUCTION = re.compile(r"^\s+(\S.*?)\s*//\s*([0-9A-F]+):")


def tool(name):
    return os.environ.get("SPW_LLVM_" + name.upper().replace("-", "_"), f"llvm-{name}-22")


def disassemble(path, target):
    """By kernel: a list of (address, text, address of a branch's target or None)."""
    text = subprocess.run([tool("objdump"), "-d", f"--mcpu={target}", path], check=True, capture_output=True, text=True).stdout
    start, found, name = {}, {}, None
    for line in text.splitlines():
        head = re.match(r"^([0-9a-f]+) <(\S+)>:$", line)
        if head:
            name = head[2]
            start[name], found[name] = int(head[1], 16), []
            continue
        match = INSTRUCTION.match(line)
        if match and name:
            branch = BRANCH.match(line)
            to = start.get(branch[3], 0) + int(branch[4] or "0", 16) if branch else None
            found[name].append((int(match[2], 16), match[1], to))
    return found


def matrix_loop(code):
    """The shortest loop with matrix instructions: from a branch's target back to the branch."""
    best = []
    at = {address: i for i, (address, _, _) in enumerate(code)}
    for i, (address, _, to) in enumerate(code):
        if to is None or to > address or to not in at:
            continue
        loop = [text for _, text, _ in code[at[to] : i + 1]]
        if any(t.startswith("v_mfma") for t in loop) and (not best or len(loop) < len(best)):
            best = loop
    return best


def not_waited_for(code):
    """Addresses of write-backs of the cache behind which memory is touched, or a branch taken, before s_waitcnt vmcnt(0)."""
    found = []
    for i, (address, text, _) in enumerate(code):
        if not text.startswith("buffer_wbl2"):
            continue
        for _, behind, to in code[i + 1 :]:
            if behind.startswith("s_waitcnt") and "vmcnt(0)" in behind:
                break
            if to is not None or behind.startswith(("global_", "flat_", "buffer_", "s_barrier", "s_endpgm")):
                found.append(address)
                break
    return found


# Products that LLVM 22 counts as those of fp4 take, of two fp8, twice as many passes [AMD, CDNA 4 instruction set architecture]: 16 of
# 32x32x64, 8 of 16x16x128. Each beside a product of fp32 with as many.
AS_LONG = {"32x32x64": "32x32x2", "16x16x128": "16x16x4"}


def with_passes(text):
    """An instruction as llvm-mca should see it: the product of fp32 in AS_LONG has the same sums and the factors' first registers."""
    match = re.match(r"v_mfma(?:_scale)?_f32_(\w+)_f8f6f4 (\S+), ([va])\[(\d+):\d+\], ([va])\[(\d+):\d+\], ([^\s,]+)", text)
    return "v_mfma_f32_{}_f32 {}, {}{}, {}{}, {}".format(AS_LONG[match[1]], *match.groups()[1:]) if match else text


def simulate(code, target, rounds):
    """llvm-mca's cycles of that many rounds of the loop, and the cycles a round that the matrix pipe is taken."""
    with tempfile.NamedTemporaryFile("w", suffix=".s") as file:
        file.write(code)
        file.flush()
        text = subprocess.run([tool("mca"), "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={target}", f"-iterations={rounds}", file.name],
                              check=True, capture_output=True, text=True).stdout
    pipe = int(re.search(r"\[(\d+)\]\s+- HWXDL", text)[1])
    row = re.search(r"Resource pressure per iteration:\n.*\n(.*)", text)[1].split()
    return int(re.search(r"Total Cycles:\s+(\d+)", text)[1]), float(row[pipe])


def matrix_busy(loop, target):
    """Cycles that the matrix pipe is taken over all cycles, in the steady state of the loop: without its first and its last rounds."""
    code = "\n".join(map(with_passes, (t for t in loop if not t.startswith(("s_cbranch", "s_branch"))))) + "\n"
    (few, busy), (many, _) = (simulate(code, target, rounds) for rounds in (20, 60))
    return busy / ((many - few) / 40)


def occupancy(kernel, target):
    registers = -(-(kernel[".vgpr_count"]) // REGISTER_UNIT) * REGISTER_UNIT  # the metadata's count holds both kinds
    by_registers = min(WAVES_MAX, REGISTERS // max(registers, 1))
    lds, waves = kernel[".group_segment_fixed_size"], -(-kernel[".max_flat_workgroup_size"] // WAVE)
    by_lds = WAVES_MAX if lds == 0 else LDS_BYTES[target] // lds * waves / SIMDS
    return min(by_registers, by_lds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build/kernels", help="the folder with a folder of code objects for each target")
    parser.add_argument("--no-mca", action="store_true", help="do not ask llvm-mca about the loops with matrix instructions")
    arguments = parser.parse_args()
    if shutil.which(tool("objdump")) is None:
        print(f"AMD code objects not checked: {tool('objdump')} is absent")
        return 0
    arguments.mca = not arguments.no_mca and shutil.which(tool("mca")) is not None
    problems, rows = [], 0
    print(f"{'target':7} {'kernel':35} {'matrix':>6} {'vgpr':>5} {'agpr':>5} {'lds':>6} {'waves':>5} {'scratch':>7} {'spills':>6}  busy")
    for target in LDS_BYTES:
        for path in sorted(glob.glob(os.path.join(arguments.build, target, "*.co"))):
            code = CodeObject(path)
            listing = disassemble(path, target)
            for name, kernel in sorted(code.kernels.items()):
                matrix = sum(t.startswith("v_mfma") for _, t, _ in listing[name])
                scratch = kernel[".private_segment_fixed_size"]
                spills = kernel.get(".vgpr_spill_count", 0) + kernel.get(".sgpr_spill_count", 0)
                loop = matrix_loop(listing[name])
                busy = matrix_busy(loop, target) if arguments.mca and loop and target in MATRIX_BUSY_MIN else None
                agprs = kernel.get(".agpr_count", 0)
                print(f"{target:7} {name:35} {matrix:6} {kernel['.vgpr_count'] - agprs:5} {agprs:5} "
                      f"{kernel['.group_segment_fixed_size']:6} {occupancy(kernel, target):5.2g} {scratch:7} {spills:6}"
                      + (f"  {busy:.1%}" if busy is not None else ""))
                rows += 1
                where = f"{target} {name}"
                most = SPILLS_MOST.get(name, 0)
                if scratch or spills > most or kernel.get(".vgpr_spill_count", 0):
                    problems.append(f"{where}: {scratch} bytes of scratch, {spills} spilled registers; 0 and at most {most} would be right")
                problems += [f"{where}: the write-back at 0x{at:x} is not waited for" for at in not_waited_for(listing[name])]
                if "mfma" in name and not loop:
                    problems.append(f"{where}: no matrix instruction in a loop")
                least = MATRIX_BUSY_LESS.get((target, name.removesuffix("_fp16")), MATRIX_BUSY_MIN.get(target, 0))
                if busy is not None and busy < least:
                    problems.append(f"{where}: the matrix pipe is busy for {busy:.1%} of the main loop, at least {least:.0%} would be right")
    for problem in problems:
        print(problem, file=sys.stderr)
    if rows == 0:
        print(f"no code objects below {arguments.build}", file=sys.stderr)
    return 1 if problems or rows == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

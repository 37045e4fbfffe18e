#!/usr/bin/env python3
"""spillway verify --plugin passes plain loops and finds every mistake, in the kernel that has it and in no other.

plugin_verdicts.py SPILLWAY RECORD RIGHT.so WRONG.so..."""
import re
import subprocess
import sys

program, record, *plugins = sys.argv[1:]
PRODUCTS = {"grouped_gemm", "input_gradient", "weight_gradient"}
FOUND = [set(), PRODUCTS | {"unpermute", "swiglu"}, PRODUCTS - {"weight_gradient"}, PRODUCTS - {"weight_gradient"},
         {"weight_gradient"}, {"permute"}, {"swiglu"}]
FOUND[1] |= {"combine"}  # router's weights are float, and rows that are moved are not rounded
ALONE = {wrong: kernel for first, kernel in ((7, "router"), (10, "dispatch"), (13, "combine")) for wrong in range(first, first + 3)}
checks = 0


def check(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit(f"FAIL {what}")


def verify(*arguments):
    return subprocess.run([program, "verify", "--wide", "--small", "--plugin", *arguments], capture_output=True, text=True)


def rows(done):
    pattern = re.compile(r"^(\w+) +(bf16|float) +(\d+) of +(\d+) cases passed, 0 left out; largest error ([0-9.]+) of", re.M)
    return {(kernel, kind): (int(passed), int(cases), float(worst))
            for kernel, kind, passed, cases, worst in pattern.findall(done.stdout)}


for wrong, plugin in enumerate(plugins):
    alone = ["--kernel", ALONE[wrong]] if wrong in ALONE else []
    done = verify(plugin, *alone)
    table = rows(done)
    check(len(table) == (2 if alone else 18) and done.returncode == (1 if wrong else 0), f"{plugin}: {done.stdout}{done.stderr}")
    bad = {kernel for (kernel, kind), (passed, cases, _) in table.items() if passed < cases}
    found = {ALONE[wrong]} if alone else FOUND[wrong]
    check(bad == found, f"mistake {wrong} is found in {bad}, not in {found}")
    check(all(worst <= 1 for *_, worst in table.values()), "what passed is beyond its bound")
    if not wrong:
        continue
    again = re.search(r"again: spillway verify (--plugin.*)", done.stdout).group(1).split()
    once = verify(*again[1:])
    failed = re.search(r"FAILED (.*)", done.stdout).group(1)
    check(once.returncode == 1 and failed in once.stdout, f"one case again: {once.stdout}")
done = verify(plugins[0], "--record", record)  # 4 ranks or 1 group x 2 kinds of numbers x 2 layouts
check(done.returncode == 0 and {cases for _, cases, _ in rows(done).values()} == {2, 8, 16}, done.stdout + done.stderr)
done = verify(plugins[13], "--record", record, "--kernel", "combine")
check(done.returncode == 1 and "4 ranks x 64 tokens, 64 -> 64, bell" in done.stdout, done.stdout)
done = verify(plugins[4], "--record", record, "--kernel", "weight_gradient")  # no unused tail there: nothing is wrong
check(done.returncode == 0 and "16 of  16" in done.stdout, done.stdout)
done = verify(plugins[2], "--record", record, "--kernel", "grouped_gemm")
again = re.search(r"again: spillway verify --plugin (.*)", done.stdout).group(1).split()
check(done.returncode == 1 and "16 experts of rank 0, 256 tokens, 64 -> 64, bell" in verify(*again).stdout, done.stdout)
for wrong, kernel, says in ((5, "permute", "outside of its output, behind"), (12, "dispatch", "outside of its output, behind"),
                            (7, "router", "indices are wrong; the first, "), (8, "router", "softmax, renormalised")):
    check(says in verify(plugins[wrong], "--kernel", kernel).stdout, f"{kernel}, mistake {wrong}: {says}")
for arguments, says in (((plugins[0], "--kernel", "dance"), "there are grouped_gemm"), (("no.so",), "no.so"),
                        ((plugins[0], "--kernel", "permute", "--case", "31"), "cases 0 to 30"),
                        ((plugins[0], "--record", record, "--kernel", "permute", "--case", "8"), "cases 0 to 7"),
                        ((plugins[0], "--record", record, "--kernel", "router"), "no logits")):
    done = verify(*arguments)
    check(done.returncode == 2 and says in done.stderr, done.stderr)
check(verify(plugins[0], "--record", "no.record").returncode == 3, "a record that is not there")
print(f"{checks} checks")

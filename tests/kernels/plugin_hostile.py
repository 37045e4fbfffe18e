#!/usr/bin/env python3
"""spillway verify --plugin passes only what ran and what it saw: plugins that end their process, never come back or write to what they read
fail with their kernel and case, and so do kernels that count rows and elements in too few bits.

plugin_hostile.py SPILLWAY HOSTILE.so [sanitized]"""
import os
import re
import subprocess
import sys

program, plugin = sys.argv[1:3]
sanitized = "sanitized" in sys.argv
checks = 0


def check(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit(f"FAIL {what}")


def verify(mode, *arguments):
    return subprocess.run([program, "verify", "--wide", "--plugin", plugin, *arguments], capture_output=True, text=True,
                          env={**os.environ, "SPW_HOSTILE": mode})


# a plugin that ends its process in each of 31 cases of swiglu, and what is said of them; one case alone
CASES = re.compile(r"FAILED swiglu, float, case (\d+) \(([^)]*)\): (.*)")
for mode, says in (("exit", "it called exit()"), ("_exit", "it ended its process (exit status 0)"), ("pthread_exit", "it ended its thread (pthread_exit)"),
                   ("abort", "it crashed (Aborted)"), ("crash", "it crashed (Segmentation fault)"), ("kill", "it crashed (Killed)"),
                   ("close", "it ended its process (exit status 5)"), ("input", "the kernel wrote to its input 1, which must stay as it is")):
    if sanitized and mode in ("crash", "abort"):
        continue
    done = verify(mode, "--kernel", "swiglu", "--small")
    found = CASES.findall(done.stdout)
    check(done.returncode == 1 and [int(number) for number, *_ in found] == list(range(20)) and "and 11 more" in done.stdout
          and "0 of  31 cases passed" in done.stdout and "31 of 31 cases failed" in done.stderr, f"{mode}: {done.returncode} {done.stdout} {done.stderr}")
    check(found[0][1] == "4 experts x 48 rows, 32 -> 64, uniform, bell" and all(says in why for *_, why in found), f"{mode}: {found}")
    again = re.search(r"again: spillway verify --plugin \S+ (.*)", done.stdout).group(1).split()
    once = verify(mode, *again)
    check(once.returncode == 1 and len(CASES.findall(once.stdout)) == 1, f"{mode}, one case: {once.stdout}")
done = verify("every eighth call", "--kernel", "swiglu", "--small")  # of a process; each crash is followed by a new one
check(done.returncode == 1 and "28 of  31 cases passed" in done.stdout and [number for number, *_ in CASES.findall(done.stdout)] == ["7", "15", "23"]
      and "3 of 31 cases failed" in done.stderr, f"one that crashes now and then: {done.stdout} {done.stderr}")
done = verify("fork", "--kernel", "swiglu", "--small")
check(done.returncode == 1 and "31 of  31 cases passed" not in done.stdout, f"two processes that answer: {done.stdout} {done.stderr}")
done = verify("print", "--kernel", "swiglu", "--small")
check(done.returncode == 0 and "hello from the plugin" in done.stdout and "31 of  31 cases passed" in done.stdout, f"one that prints: {done.stdout} {done.stderr}")
done = verify("refuse", "--kernel", "swiglu", "--small")
check(done.returncode == 1 and "every case was left out" in done.stderr, f"one that refuses: {done.stderr}")

# one that does not come back: two cases, then no more of its kernel
for mode in ("spin", "sleep"):
    done = verify(mode, "--kernel", "swiglu", "--small", "--case-seconds", "1")
    found = CASES.findall(done.stdout)
    check(done.returncode == 1 and [number for number, *_ in found] == ["0", "1"] and all("it did not come back: 1 s" in why for *_, why in found)
          and "not run: swiglu, float" in done.stdout and "as 2 did not come back" in done.stdout and "2 of 2 cases failed" in done.stderr, f"{mode}: {done.stdout} {done.stderr}")

# one that ends the process before it has a kernel
for mode, says in (("exit in constructor", "it called exit()"), ("exit in spw_plugin", "it called exit()"), ("no table", "it crashed (Segmentation fault)")):
    if sanitized and mode == "no table":
        continue
    done = verify(mode, "--small")
    check(done.returncode == 2 and done.stdout == "" and f"it cannot be loaded: {says}" in done.stderr, f"{mode}: {done.returncode} {done.stderr}")

# rows and elements in too few bits; the right kernel passes all of these
GEMM = ("--kernel", "grouped_gemm")
done = verify("offset", *GEMM, "--case", "60")
check(done.returncode == 1 and "the kernel wrote to its offset" in done.stdout, done.stdout)
for mode, cases in (("16 bits of rows", (60, 61)), ("16 bits of elements", (60, 61)), ("float rows", (62,)), ("32 bits", (63, 65)),
                    ("unsigned 32 bits", (66,))):
    for case in cases if not sanitized else cases[:1] if cases[0] < 62 else ():
        done = verify(mode, *GEMM, "--case", str(case))
        if "not run: " in done.stdout:
            print(done.stdout)
            continue
        check(done.returncode == 1 and f"FAILED grouped_gemm, float, case {case} (" in done.stdout, f"{mode}, case {case}: {done.stdout} {done.stderr}")
        if case < 62:
            check("140000 rows" in done.stdout and "elements are wrong" in done.stdout, done.stdout)
if not sanitized:
    done = verify("sparse input", *GEMM, "--case", "63")
    check("not run" in done.stdout or "it crashed (Segmentation fault)" in done.stdout, f"a sparse input: {done.stdout}")
    done = verify("", *GEMM)
    passed = re.search(r"grouped_gemm +float +(\d+) of +(\d+) cases passed, 0 left out(?:, (\d+) not run)?; largest error", done.stdout)
    check(done.returncode == 0 and passed and int(passed[2]) + int(passed[3] or 0) == 67, f"right: {done.stdout} {done.stderr}")
done = verify("", *GEMM, "--small")
check(done.returncode == 0 and "62 of  62 cases passed" in done.stdout, f"right, --small: {done.stdout} {done.stderr}")
print(f"{checks} checks")

"""Runs every AMD code object in an emulator on small cases and judges the results. See emulator.py for what that can show.

    TINYGRAD=<clone of tinygrad> python3 kernels/emulate/emulate.py build/kernels [gfx942 gfx950] [--only NAME]

needs numpy. Exit status 0 all agree and the wrong kernels were rejected, 1 not, 77 no emulator.
"""
import argparse
import functools
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import emulator
from code_object import CodeObject
from emulate_exchange import EXCHANGE_TESTS
from emulate_float8 import FLOAT8_TESTS
from emulate_fused import FUSED_TESTS
from emulate_gemm import GEMM_TESTS
from emulate_layer import LAYER_TESTS
from emulate_local import LOCAL_TESTS
from emulate_memory import Judge
from emulate_mxfp8 import MXFP8_TESTS
from emulate_plain import PLAIN_TESTS
from emulate_races import RACE_TESTS
from emulate_return import RETURN_TESTS
from emulate_ring import RING_TESTS
from emulate_waiting import WAITING_TESTS

TESTS = (GEMM_TESTS + FUSED_TESTS + FLOAT8_TESTS + MXFP8_TESTS + LOCAL_TESTS + RING_TESTS + RACE_TESTS + EXCHANGE_TESTS + WAITING_TESTS
         + RETURN_TESTS + PLAIN_TESTS + LAYER_TESTS)


def program_of(build, target, file):
    code = CodeObject(os.path.join(build, target, file + ".co"))
    assert code.target == target, f"{file}.co in {target} is for {code.target}"
    return emulator.Program(code)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", help="the folder with a folder of code objects for each target")
    parser.add_argument("targets", nargs="*", default=["gfx942", "gfx950"])
    parser.add_argument("--only", default="", help="tests whose name contains this")
    arguments = parser.parse_args()
    missing = emulator.available()
    if missing:
        print(f"AMD code not executed: {missing}")
        return 77
    judge = Judge()
    for target in arguments.targets:
        programs = functools.cache(lambda file, target=target: program_of(arguments.build, target, file))
        for files, test in TESTS:
            files = files if isinstance(files, tuple) else (files,)
            if arguments.only not in " ".join((test.__name__, *files)):
                continue
            start, before = time.monotonic(), judge.comparisons
            test(*map(programs, files), judge, f"{target} {test.__name__[5:]}")
            count, took = judge.comparisons - before, time.monotonic() - start
            print(f"{target} {test.__name__[5:]:24} {count:4} comparisons  {took:6.1f} s", flush=True)
    print(f"{judge.comparisons} comparisons, {judge.failed} failed, {judge.rejected} wrong results rejected")
    return 0 if judge.comparisons and judge.rejected and not judge.failed else 1


if __name__ == "__main__":
    sys.exit(main())

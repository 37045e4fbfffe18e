"""The kernels of one GPU with their waves in random order, searched for races in LDS and in memory; and with barriers taken out of the
machine code, which must be found."""
import struct

import emulator
from emulate_float8 import CASES as FLOAT8_WEIGHTS_CASES
from emulate_float8 import QUANTIZE_TESTS, float8_weights_matrix_tests
from emulate_fused import fused_tests
from emulate_gemm import CASES, FLOAT8_CASES, float8_matrix_tests, gemm_tests
from emulate_local import LOCAL_TESTS
from emulate_memory import Judge
from emulate_mxfp8 import CASES as MXFP8_CASES
from emulate_mxfp8 import mxfp8_tests
from emulate_ring import RING_TESTS

BARRIER, NOTHING = struct.pack("<I", 0xBF8A0000), struct.pack("<I", 0xBF800000)
UNIT = 4  # bytes


def interleaved(test, program, judge, label):
    """Runs a test; what was found."""
    found = emulator.Program.interleave = emulator.Interleaving(seed=21, unit=UNIT)
    try:
        test(program, judge, label)
    finally:
        emulator.Program.interleave = None
    return found


def barriers(program, kernel):
    code = program.code
    first, size = code.descriptor(kernel)["entry"], code.symbols[kernel][1]
    return [at for at in range(first, first + size, 4) if code.image[at : at + 4] == BARRIER]


def race_test(test):
    def run(program, judge, label):
        if not program.code.kernels:
            return  # the target has none of these
        found = interleaved(test, program, judge, label)
        judge.count(f"{label} races", found.problem or (None if found.accesses else "no memory was looked at"))
        for kernel in sorted(found.kernels):
            places = barriers(program, kernel)
            if places:  # one of them at least must be missed
                missed = filter(None, (without(program, kernel, at, label) for at in reversed(places)))
                judge.expect_rejection(f"{label} {kernel} without a barrier", next(missed, None))

    def without(program, kernel, at, label):
        """The race in a kernel without the barrier at this place, or None."""
        spoiled = emulator.Program(program.code)
        spoiled.memory[at : at + 4] = NOTHING
        problem = interleaved(test, spoiled, Judge(quiet=True), label).problem
        return problem if problem and kernel in problem else None

    run.__name__ = "test_races_" + test.__name__[5:]
    return run


ONE = "ragged, an empty expert"
RACE_TESTS = [(file, race_test(test)) for file, test in
              LOCAL_TESTS + RING_TESTS[:1] + gemm_tests({ONE: CASES[ONE]}) + fused_tests({ONE: CASES[ONE]})
              + float8_matrix_tests({ONE: FLOAT8_CASES[ONE]})
              + float8_weights_matrix_tests({ONE: FLOAT8_WEIGHTS_CASES[ONE]}) + QUANTIZE_TESTS
              + mxfp8_tests({ONE: MXFP8_CASES[ONE]})]

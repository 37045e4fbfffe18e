"""Executes kernels of an AMD code object on a machine without an AMD GPU, instruction by instruction.

The instructions are those of a public emulator, the CDNA part of tinygrad's test tree (github.com/tinygrad/tinygrad, MIT; tried with
commit a9069c17 of August 2026); TINYGRAD names a clone. What is here is the loader: memory, kernel arguments, initial
registers (LLVM, "User Guide for AMDGPU Backend", "Initial Kernel Execution State"), and the launch.

Values, indices, masks, barriers, LDS layouts and matrix operand layouts are executed truly. Instructions take effect one by one, so
caches and speed are not seen; emulator_waves.py says in which order waves run and what is watched of the order of memory.
"""
import ctypes
import functools
import mmap
import os
import random
import re
import struct
import sys

import emulator_waves
from emulator_races import Races

# Initial scalar registers: descriptor property bit -> 32-bit registers it adds, in this order.
REGISTERS = ((0, 4), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 1))
KERNEL_ARGUMENTS_BIT = 3


def available():
    """Why the emulator cannot run, or None."""
    root = os.environ.get("TINYGRAD", "")
    if not root:
        return "TINYGRAD does not name a clone of tinygrad"
    if not os.path.exists(os.path.join(root, "test", "mockgpu", "amd", "emu.py")):
        return f"{root} holds no test/mockgpu/amd/emu.py"
    return None


def _emulator():
    """The emulator's module, with seven mends: CDNA calls the bit by which an atomic returns the old value sc0, not glc; the factors
    of a matrix instruction may be accumulation registers (its field acc, one bit each); s_memrealtime reads a clock of ours;
    write-back and invalidation of caches, taken for loads, do nothing; products of fp8 read e4m3fnuz where Program
    finds code for gfx942, else e4m3fn; a product of fp8 without scales and what stands before it are two instructions; numbers of 16 bits
    in v128 and behind are not the upper halves of v0 and behind, as on RDNA."""
    os.environ.setdefault("DEV", "CPU")
    if os.environ["TINYGRAD"] not in sys.path:
        sys.path.insert(0, os.environ["TINYGRAD"])
    from test.mockgpu.amd import emu

    if not getattr(emu, "spw_returning_atomics", False):
        original = emu._iattr

        def attribute(instruction, name, default=0):
            renamed = "sc0" if name == "glc" and hasattr(instruction, "sc0") else name
            return original(instruction, renamed, default)

        emu._iattr, emu.spw_returning_atomics = attribute, True

        plain_scalar, plain_buffer = emu._compile_smem, emu._compile_mubuf

        def scalar(instruction, context):
            if emu._op_name(instruction) != "S_MEMREALTIME":
                return plain_scalar(instruction, context)
            register, at = context.inst_field(type(instruction).sdata), ctypes.addressof(emulator_waves.clock) // 4
            words = [context.vmem.index(emu.UOp.const(at + i, emu.dtypes.uint64)) for i in range(2)]
            return emu.UOp.sink(*(context.wsgpr_dyn(register + emu._c(i), words[i]) for i in range(2)), *context.inc_pc())

        def buffer(instruction, context):
            if emu._op_name(instruction).startswith(("BUFFER_WBL2", "BUFFER_INV")):
                return emu.UOp.sink(*context.inc_pc())
            return plain_buffer(instruction, context)

        emu._INST_HANDLERS[emu.irc.SMEM], emu._INST_HANDLERS[emu.irc.MUBUF] = scalar, buffer

        plain_matrix, plain_read, plain_source = emu._compile_mfma, emu._Ctx.rvgpr_dyn, emu._Ctx.rsrc_dyn
        plain_float8 = emu._FUNCS["fp8_to_f32"]

        def fnuz(raw):
            def word(value):
                return emu.UOp.const(value, emu.dtypes.uint32)

            code = raw.cast(emu.dtypes.uint32) & word(0xFF)
            sign, exponent, fraction = (code >> word(7)) << word(31), code >> word(3) & word(15), code & word(7)
            small = (fraction.cast(emu.dtypes.float32) * emu.UOp.const(2.0**-10, emu.dtypes.float32)).bitcast(emu.dtypes.uint32)
            bits = exponent.eq(word(0)).where(small, (exponent + word(127 - 8)) << word(23) | fraction << word(20)) | sign
            return code.eq(word(0x80)).where(word(0x7FC00000), bits).bitcast(emu.dtypes.float32)

        def matrix(instruction, context):
            emu._FUNCS["fp8_to_f32"] = fnuz if Program.target == "gfx942" else plain_float8
            return with_accumulation(instruction, context)

        def with_accumulation(instruction, context):
            accumulation, shape = int(getattr(instruction, "acc", 0)), re.search(r"16X16X(\d+)", emu._op_name(instruction))
            if not accumulation:
                return plain_matrix(instruction, context)
            if not shape:
                raise NotImplementedError(f"accumulation registers as factors of {emu._op_name(instruction)}")
            factor_reads = int(shape[1]) // 4 * 2  # each number of a lane: first of the one factor, then of the other
            reads, (read_source, within_source) = 0, _noted(plain_source)

            def read(self, register, lane, *rest):
                nonlocal reads
                if within_source:  # the other reading, for a factor that is no vector register
                    return plain_read(self, register, lane, *rest)
                reads += 1
                from_accumulation = reads <= factor_reads and accumulation >> (1 - reads % 2) & 1
                return (self.raccvgpr_dyn if from_accumulation else functools.partial(plain_read, self))(register, lane, *rest)

            emu._Ctx.rvgpr_dyn, emu._Ctx.rsrc_dyn = read, read_source
            try:
                return plain_matrix(instruction, context)
            finally:
                emu._Ctx.rvgpr_dyn, emu._Ctx.rsrc_dyn = plain_read, plain_source

        emu._compile_mfma = matrix
        _mend_halves(emu), _mend_decoder(emu)
    return emu


def _noted(function):
    """The function, and a list that is empty but while it runs."""
    running = []

    def noted(*arguments, **named):
        running.append(function)
        try:
            return function(*arguments, **named)
        finally:
            running.pop()

    return noted, running


def _mend_decoder(emu):
    """A product with scales has 16 bytes, which begin with an instruction of its own: looked for behind any other, it is not seen."""
    plain, scales = emu.decode_inst, (0xD3AC).to_bytes(2, "little")
    emu.decode_inst = lambda data, architecture: plain(data if data[2:4] == scales else data[:8] + bytes(8), architecture)


def _mend_halves(emu):
    """Of VOP1, VOP2 and VOPC of CDNA the limits behind which registers of 16 bits are upper halves, 128 and 384, are never reached."""
    constant, source = emu._c, emu._Ctx.rsrc_dyn
    read_source, reading = _noted(source)  # these limits have another meaning in there

    def mended(plain):
        def compiled(instruction, context):
            emu._c = lambda value, *rest: constant(1 << 20 if value in (128, 384) and not reading else value, *rest)
            emu._Ctx.rsrc_dyn = read_source
            try:
                return plain(instruction, context)
            finally:
                emu._c, emu._Ctx.rsrc_dyn = constant, source

        return compiled

    for kind in (emu.irc.VOP1, emu.irc.VOP2, emu.irc.VOPC):
        emu._INST_HANDLERS[kind] = mended(emu._INST_HANDLERS[kind])


def run(streams, **how):
    """emulator_waves.run"""
    return emulator_waves.run(_emulator(), streams, **how)


class Interleaving:
    """Launches run with their waves in random order, and are searched for races: see emulator_races.Races for unit."""

    def __init__(self, seed, unit):
        self.rng, self.unit, self.kernels, self.accesses, self.problem = random.Random(seed), unit, set(), 0, None

    def found(self, kernel, accesses, problem):
        self.kernels.add(kernel)
        self.accesses, self.problem = self.accesses + accesses, self.problem or problem


class Program:
    """A code object placed in this process's memory, ready to launch. interleave: None, or an Interleaving that launches keep to."""

    interleave = None
    target = None

    def __init__(self, code):
        self.code = code
        if Program.target != code.target:  # the same bytes mean something else
            Program.target = code.target
            _emulator()._get_runner.cache_clear(), _emulator()._canonical_runner_cache.clear()
        self.memory = mmap.mmap(-1, len(code.image) + 8192)  # instruction fetch may look ahead
        self.memory[: len(code.image)] = bytes(code.image)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.decoder = emulator_waves.Decoder(_emulator())

    def launch(self, name, blocks, threads, arguments):
        """Runs `blocks` work-groups of `threads` work-items. arguments: bytes objects, in the kernel's order."""
        work = [[Launch(self, name, blocks, threads, arguments)]]
        if Program.interleave is None:
            run(work)
        else:
            races = Races(unit=Program.interleave.unit)
            problem = run(work, rng=Program.interleave.rng, races=races).problem
            Program.interleave.found(name, races.accesses, problem)

    def prepare(self, name, blocks, threads, arguments):
        """The same, to be run later."""
        return Launch(self, name, blocks, threads, arguments)


class Launch:
    """A kernel with its arguments, as a wave finds them."""

    def __init__(self, program, name, blocks, threads, arguments):
        kernel, descriptor = program.code.kernels[name], program.code.descriptor(name)
        self.program, self.name, self.blocks, self.threads = program, name, blocks, threads
        self.block = ctypes.create_string_buffer(max(kernel[".kernarg_segment_size"], 16))
        self.address = ctypes.addressof(self.block)
        given = list(arguments)
        for slot in kernel[".args"]:
            value = self._argument(name, slot, given, blocks, threads)
            ctypes.memmove(self.address + slot[".offset"], value, len(value))
        if given:
            raise ValueError(f"{name}: {len(given)} arguments too many")
        if descriptor["scratch_bytes"]:
            raise NotImplementedError(f"{name} uses scratch memory")
        self.registers = []
        for bit, words in REGISTERS:
            if descriptor["properties"] >> bit & 1:
                self.registers += [self.address & 0xFFFFFFFF, self.address >> 32] if bit == KERNEL_ARGUMENTS_BIT else [0] * words
        preload_words, preload_first = descriptor["preload"] & 0x7F, descriptor["preload"] >> 7
        self.registers += struct.unpack_from(f"<{preload_words}I", self.block, preload_first * 4)
        # A kernel with preloaded arguments starts with 256 bytes for firmware that cannot preload.
        self.entry = program.base + descriptor["entry"] + (256 if preload_words else 0)
        self.lds_bytes, self.resource2 = descriptor["lds_bytes"], descriptor["resource2"]

    @staticmethod
    def _argument(name, slot, given, blocks, threads):
        kind, size = slot[".value_kind"], slot[".size"]
        if not kind.startswith("hidden_"):
            value = given.pop(0)
            if len(value) != size:
                raise ValueError(f"{name}: the argument at {slot['.offset']} has {size} bytes, {len(value)} are given")
            return value
        hidden = {"hidden_block_count_x": blocks, "hidden_block_count_y": 1, "hidden_block_count_z": 1,
                  "hidden_group_size_x": threads, "hidden_group_size_y": 1, "hidden_group_size_z": 1, "hidden_grid_dims": 1}
        return hidden.get(kind, 0).to_bytes(size, "little")

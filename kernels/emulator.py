"""Executes kernels of an AMD code object on a machine without an AMD GPU, instruction by instruction.

The instructions are those of a public emulator, the CDNA part of tinygrad's test tree (github.com/tinygrad/tinygrad, MIT; tried with
commit a9069c17 of August 2026); TINYGRAD names a clone. What is here is the loader: memory, kernel arguments, initial
registers (LLVM, "User Guide for AMDGPU Backend", "Initial Kernel Execution State"), and the launch.

Work-groups run one after another, waves of a group in turn up to the next barrier. So values, indices, masks, barriers, LDS layouts
and matrix operand layouts are executed truly; races between waves, memory order and speed are not seen.
"""
import ctypes
import functools
import mmap
import os
import re
import struct
import sys

LDS_GRANULE = 512  # bytes a unit of the descriptor's LDS field, as the emulator reads it
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


class LocalMemory:
    """Room for every 32-bit LDS address, reserved but not used: the emulator reads LDS for switched-off lanes too, at whatever address
    they hold, and only then throws the value away."""

    def __init__(self):
        no_reserve = 0x4000
        self.memory = mmap.mmap(-1, (1 << 32) + 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))


def _emulator():
    """The emulator's module, with three mends: CDNA calls the bit by which an atomic returns the old value sc0, not glc; the memory
    of LDS is a LocalMemory; and the factors of a matrix instruction may be accumulation registers (its field acc, one bit each)."""
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

        plain_buffer = emu.Buffer

        def buffer(device, size, dtype, *rest, **named):
            if size == emu.spw_lds_words and not rest and not named:
                emu.spw_lds = LocalMemory()
                named["options"] = emu.BufferSpec(external_ptr=emu.spw_lds.address)
                emu.spw_lds_words = None
            return plain_buffer(device, size, dtype, *rest, **named)

        emu.Buffer = buffer

        plain_matrix, plain_read, plain_source = emu._compile_mfma, emu._Ctx.rvgpr_dyn, emu._Ctx.rsrc_dyn

        def matrix(instruction, context):
            accumulation, shape = int(getattr(instruction, "acc", 0)), re.search(r"16X16X(\d+)", emu._op_name(instruction))
            if not accumulation:
                return plain_matrix(instruction, context)
            if not shape:
                raise NotImplementedError(f"accumulation registers as factors of {emu._op_name(instruction)}")
            factor_reads = int(shape[1]) // 4 * 2  # each number of a lane: first of the one factor, then of the other
            reads, within_source = 0, False

            def read(self, register, lane, *rest):
                nonlocal reads
                if within_source:  # the other reading, for a factor that is no vector register
                    return plain_read(self, register, lane, *rest)
                reads += 1
                from_accumulation = reads <= factor_reads and accumulation >> (1 - reads % 2) & 1
                return (self.raccvgpr_dyn if from_accumulation else functools.partial(plain_read, self))(register, lane, *rest)

            def read_source(self, *arguments, **named):
                nonlocal within_source
                within_source = True
                try:
                    return plain_source(self, *arguments, **named)
                finally:
                    within_source = False

            emu._Ctx.rvgpr_dyn, emu._Ctx.rsrc_dyn = read, read_source
            try:
                return plain_matrix(instruction, context)
            finally:
                emu._Ctx.rvgpr_dyn, emu._Ctx.rsrc_dyn = plain_read, plain_source

        emu._compile_mfma = matrix
    return emu


class Program:
    """A code object placed in this process's memory, ready to launch."""

    def __init__(self, code):
        self.code = code
        self.memory = mmap.mmap(-1, len(code.image) + 8192)  # instruction fetch may look ahead
        self.memory[: len(code.image)] = bytes(code.image)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def launch(self, name, blocks, threads, arguments):
        """Runs `blocks` work-groups of `threads` work-items. arguments: bytes objects, in the kernel's order."""
        kernel, descriptor = self.code.kernels[name], self.code.descriptor(name)
        block = ctypes.create_string_buffer(max(kernel[".kernarg_segment_size"], 16))
        given = list(arguments)
        for slot in kernel[".args"]:
            value = self._argument(name, slot, given, blocks, threads)
            ctypes.memmove(ctypes.addressof(block) + slot[".offset"], value, len(value))
        if given:
            raise ValueError(f"{name}: {len(given)} arguments too many")
        address = ctypes.addressof(block)
        registers = []
        for bit, words in REGISTERS:
            if descriptor["properties"] >> bit & 1:
                registers += [address & 0xFFFFFFFF, address >> 32] if bit == KERNEL_ARGUMENTS_BIT else [0] * words
        preload_words, preload_first = descriptor["preload"] & 0x7F, descriptor["preload"] >> 7
        registers += struct.unpack_from(f"<{preload_words}I", block, preload_first * 4)
        # A kernel with preloaded arguments starts with 256 bytes for firmware that cannot preload.
        entry = self.base + descriptor["entry"] + (256 if preload_words else 0)
        granules = -(-descriptor["lds_bytes"] // LDS_GRANULE)
        resource2 = descriptor["resource2"] & ~(0x1FF << 15) | granules << 15
        emu = _emulator()
        emu.spw_lds_words = max(granules * LDS_GRANULE // 4, 1)  # the first buffer of this size that is made is LDS
        emu.run_asm(entry, 0, blocks, 1, 1, threads, 1, 1, address, resource2, descriptor["scratch_bytes"], "cdna", registers)

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

"""Instructions, most of gfx950, executed in numpy as AMD documents them, which the emulator that emulator.py loads executes otherwise:
products of fp8 with scales (it applies one scale to a whole sum and lays 32 x 32 results out differently), 32 x 32 products of fp8 on
gfx942 (the same), loads from a buffer to LDS (it reads behind the buffer's end), products of fp16 (it takes subnormal numbers for 0, and
infinity and NaN for numbers), products of 128 terms of fp8 without scales (it takes them for those with scales), reads of LDS that
transpose (it has none), stores of accumulation registers to LDS (it takes them for vector registers).

Layouts: AMD, "Matrix Core Programming on AMD CDNA 3 and CDNA 4", example 5.4 (32x32x64 of two fp8 operands); 32x32x16: AMD, matrix
instruction calculator; scales: a lane's byte is of
the 32 numbers from 32 (lane / 32) on of row or column lane % 32. Products of codes are exact in fp64, so is their sum here, which is
rounded to fp32 once an instruction. Products of fp16 are exact in fp32, and are added in fp32 one after the other. Loads to LDS: LLVM, "User Guide for AMDGPU Backend", and the instruction set's chapter on buffers: lane
after lane from M0 on; 0 from behind the end. Transposing reads: which lane names which numbers is
inferred from public kernels of gfx950 that use them.
"""
import collections
import ctypes
import functools
import re

import numpy as np

VECTOR, ZERO = 256, 128  # an operand: its first vector register; the constant 0
M0, PC, EXEC = 124, 128, 63  # scalar registers: a word; 64-bit words
STORES = {"DS_WRITE_B32": 4, "DS_WRITE_B64": 8, "DS_WRITE_B128": 16}
LOADS = {"BUFFER_LOAD_DWORD": 4, "BUFFER_LOAD_DWORDX4": 16}
LANE, BYTE, REGISTER = np.arange(64)[:, None], np.arange(32)[None, :], np.arange(16)[:, None]
TERM = BYTE // 16 * 32 + LANE // 32 * 16 + BYTE % 16  # of a lane's byte
ROW = REGISTER // 4 * 8 + np.arange(64)[None, :] // 32 * 4 + REGISTER % 4  # of a lane's register of the result


def e4m3():
    """The value of every code of OCP's e4m3: no infinity, 0x7f and 0xff are NaN."""
    code = np.arange(256)
    exponent, fraction = code >> 3 & 15, (code & 7) / 8
    value = np.where(exponent > 0, (1 + fraction) * 2.0 ** (exponent - 7), fraction * 2.0**-6)
    value[code & 0x7F == 0x7F] = np.nan
    return np.where(code >> 7, -value, value)


def e8m0(byte):
    byte = np.asarray(byte, np.int64)
    return np.where(byte == 255, np.nan, np.ldexp(1.0, byte - 127))


CODES = e4m3()
FNUZ = np.where(np.isnan(CODES), np.copysign(480, 127.5 - np.arange(256)), CODES) / 2  # e4m3fnuz, of gfx942
FNUZ[0x80] = np.nan
under_way = collections.defaultdict(list)  # by the address of a wave's scalar registers: (address in LDS, bytes)


@functools.lru_cache(4096)
def registers(address):
    return np.frombuffer((ctypes.c_uint32 * (256 * 64)).from_address(address), np.uint32).reshape(256, 64)


def factor(file, first, scale):
    """[row or column][term] of an operand in eight registers, times its scales."""
    codes = np.ascontiguousarray(file[first : first + 8].T).view(np.uint8)  # [lane][byte]
    value = np.empty((32, 64))
    value[LANE % 32, TERM] = CODES[codes]
    return value * np.repeat(e8m0(scale & 255).reshape(2, 32).T, 32, axis=1)


def scalars(address, count, kind=ctypes.c_uint32):
    return (kind * count).from_address(address)


def fields_of(instruction, *names):
    return {n: instruction._raw >> getattr(type(instruction), n).lo & getattr(type(instruction), n).mask for n in names}


def product(name, instruction):
    f = fields_of(instruction, "src0", "src1", "src2", "scale_src0", "scale_src1", "vdst", "acc", "acc_cd", "cbsz", "blgp", "opsel", "opsel_hi",
                  "neg")
    constant = f["src2"] == ZERO
    if any(f[n] for n in ("cbsz", "blgp", "opsel", "opsel_hi", "neg")) or min(f["scale_src0"], f["scale_src1"]) < VECTOR or (
            f["src2"] < VECTOR and not constant):
        raise NotImplementedError(f"{name} with {f}")

    def run(scalar, vector, local, accumulation):
        files = registers(vector.value), registers(accumulation.value)
        a, b = (factor(files[f["acc"] >> i & 1], f[f"src{i}"] - VECTOR, files[0][f[f"scale_src{i}"] - VECTOR]) for i in (0, 1))
        sums, result = a @ b.T, files[f["acc_cd"]]
        before = 0 if constant else result[f["src2"] - VECTOR :][:16].view(np.float32).astype(np.float64)
        with np.errstate(over="ignore"):
            result[f["vdst"] & 255 :][:16] = (before + sums[ROW, np.arange(64)[None, :] % 32]).astype(np.float32).view(np.uint32)

    return run


def plain_fields(name, instruction):
    """The fields of a product of two arrays of vector registers, and whether nothing is added to it."""
    f = fields_of(instruction, "src0", "src1", "src2", "vdst", "acc", "acc_cd", "cbsz", "blgp", "neg")
    constant = f["src2"] == ZERO
    if any(f[n] for n in ("cbsz", "blgp", "neg")) or min(f["src0"], f["src1"]) < VECTOR or (f["src2"] < VECTOR and not constant):
        raise NotImplementedError(f"{name} with {f}")
    return f, constant


def product_fnuz(name, instruction):
    """32 x 32 sums of 16 products of fp8 as gfx942 has it: lane l has eight terms from 8 (l / 32) on of row or column l % 32, and of the
    result what a lane of 32x32x64 has."""
    f, constant = plain_fields(name, instruction)

    def factor_of(file, first):
        """[row or column][term]"""
        codes = np.ascontiguousarray(file[first : first + 2].T).view(np.uint8)  # [lane][byte]
        return FNUZ[codes].reshape(2, 32, 8).transpose(1, 0, 2).reshape(32, 16)

    def run(scalar, vector, local, accumulation):
        files = registers(vector.value), registers(accumulation.value)
        a, b = (factor_of(files[f["acc"] >> i & 1], f[f"src{i}"] - VECTOR) for i in (0, 1))
        result = files[f["acc_cd"]]
        before = 0 if constant else result[f["src2"] - VECTOR :][:16].view(np.float32).astype(np.float64)
        with np.errstate(over="ignore"):
            sums = before + (a @ b.T)[ROW, np.arange(64)[None, :] % 32]
            result[f["vdst"] & 255 :][:16] = sums.astype(np.float32).view(np.uint32)

    return run


def product_fp16(name, instruction, terms):
    """16 x 16 sums of `terms` products: lane l has terms l / 16 * terms / 4 and on of row or column l % 16, and of the result rows
    l / 16 * 4 and on of column l % 16."""
    f, constant = plain_fields(name, instruction)
    words = terms // 8

    def factor_of(file, first):
        """[term][row or column]"""
        numbers = np.ascontiguousarray(file[first : first + words].T).view(np.float16).astype(np.float32)  # [lane][term of the lane]
        return numbers.reshape(4, 16, terms // 4).transpose(0, 2, 1).reshape(terms, 16)

    def run(scalar, vector, local, accumulation):
        files = registers(vector.value), registers(accumulation.value)
        a, b = (factor_of(files[f["acc"] >> i & 1], f[f"src{i}"] - VECTOR) for i in (0, 1))
        result = files[f["acc_cd"]]
        sums = np.zeros((4, 64), np.float32) if constant else result[f["src2"] - VECTOR :][:4].view(np.float32)
        sums = sums.reshape(4, 4, 16).transpose(1, 0, 2).reshape(16, 16)  # [row][column]
        with np.errstate(over="ignore", invalid="ignore"):
            for k in range(terms):
                sums = sums + a[k][:, None] * b[k][None, :]
        result[f["vdst"] & 255 :][:4] = sums.reshape(4, 4, 16).transpose(1, 0, 2).reshape(4, 64).view(np.uint32)

    return run


def product_128(name, instruction):
    """16 x 16 sums of 128 products of fp8: lane l has 16 terms from 16 (l / 16) on and the 16 that lie 64 behind them, of row or column l % 16."""
    f, constant = plain_fields(name, instruction)

    def factor_of(file, first):
        """[row or column][term]"""
        codes = np.ascontiguousarray(file[first : first + 8].T).view(np.uint8)  # [lane][byte]
        return CODES[codes].reshape(4, 16, 2, 16).transpose(1, 2, 0, 3).reshape(16, 128)

    def run(scalar, vector, local, accumulation):
        files = registers(vector.value), registers(accumulation.value)
        a, b = (factor_of(files[f["acc"] >> i & 1], f[f"src{i}"] - VECTOR) for i in (0, 1))
        result = files[f["acc_cd"]]
        before = 0 if constant else result[f["src2"] - VECTOR :][:4].view(np.float32).astype(np.float64)
        sums = (a @ b.T).reshape(4, 4, 16).transpose(1, 0, 2).reshape(4, 64)  # [register][lane]
        with np.errstate(over="ignore"):
            result[f["vdst"] & 255 :][:4] = (before + sums).astype(np.float32).view(np.uint32)

    return run


def read_turned(name, instruction):
    """Lane j of 16 names four numbers of 16 bits, from 4 (j % 4) on, of row j / 4 of four rows, and is given number j of each row."""
    f = fields_of(instruction, "addr", "vdst", "acc", "offset0", "offset1")

    def run(scalar, vector, local, accumulation):
        if scalars(scalar.value, EXEC + 1, ctypes.c_uint64)[EXEC] != (1 << 64) - 1:
            raise NotImplementedError(f"{name} with lanes switched off")
        at = registers(vector.value)[f["addr"]].astype(np.int64) + (f["offset1"] << 8 | f["offset0"])
        if (at % 8).any():
            raise NotImplementedError(f"{name} at addresses that are no multiple of 8")
        read = b"".join(ctypes.string_at(local.value + place, 8) for place in at.tolist())
        rows = np.frombuffer(read, np.uint16).reshape(4, 4, 16)  # [16 lanes][row][number]
        given = np.ascontiguousarray(rows.transpose(0, 2, 1)).reshape(64, 4).view(np.uint32)  # [lane][register]
        registers((accumulation if f["acc"] else vector).value)[f["vdst"] :][:2] = given.T

    return run


def store_accumulation(name, instruction):
    f, size = fields_of(instruction, "addr", "data0", "offset0", "offset1"), STORES[name]

    def run(scalar, vector, local, accumulation):
        on = scalars(scalar.value, EXEC + 1, ctypes.c_uint64)[EXEC]
        numbers = np.ascontiguousarray(registers(accumulation.value)[f["data0"] :][: size // 4].T)  # [lane][register]
        for lane, at in enumerate(registers(vector.value)[f["addr"]].tolist()):
            if on >> lane & 1:
                ctypes.memmove(local.value + at + (f["offset1"] << 8 | f["offset0"]), numbers[lane].tobytes(), size)

    return run


def load_to_local(name, instruction):
    f, size = fields_of(instruction, "srsrc", "vaddr", "soffset", "offset", "offen", "idxen"), LOADS[name]
    if f["offset"] or f["idxen"] or not f["offen"] or f["soffset"] != ZERO:
        raise NotImplementedError(f"{name} to LDS with {f}")

    def run(scalar, vector, local, accumulation):
        low, high, bytes_, _ = scalars(scalar.value + 16 * f["srsrc"], 4)
        base, to = low | (high & 0xFFFF) << 32, local.value + (scalars(scalar.value, M0 + 1)[M0] & 0x3FFFF)
        on, coming = scalars(scalar.value, EXEC + 1, ctypes.c_uint64)[EXEC], []
        for lane, offset in enumerate(registers(vector.value)[f["vaddr"]].tolist()):
            if on >> lane & 1:
                loaded = ctypes.string_at(base + offset, size) if offset + size <= bytes_ else bytes(size)
                coming.append((to + lane * size, loaded))
        under_way[scalar.value].append(coming)

    return run


def wait(instruction):
    """s_waitcnt: its count of loads that may still be under way, which is taken to be of those to LDS."""
    count = int(instruction.simm16) & 15 | (int(instruction.simm16) >> 14 & 3) << 4

    def run(scalar, vector, local, accumulation):
        loads = under_way[scalar.value]
        while len(loads) > count:
            for to, loaded in loads.pop(0):
                ctypes.memmove(to, loaded, len(loaded))

    return run


def executor(name, instruction):
    """What executes the instruction in the emulator's place, on the addresses of a wave's scalar registers, its vector registers, LDS and its
    accumulation registers; None for an instruction that the emulator executes itself."""
    fp16 = re.fullmatch(r"V_MFMA_F32_16X16X(16|32)_F16", name)
    if name == "V_MFMA_SCALE_F32_32X32X64_F8F6F4":
        run = product(name, instruction)
    elif name == "V_MFMA_F32_32X32X16_FP8_FP8":
        run = product_fnuz(name, instruction)
    elif fp16:
        run = product_fp16(name, instruction, int(fp16[1]))
    elif name == "V_MFMA_F32_16X16X128_F8F6F4":
        run = product_128(name, instruction)
    elif name == "DS_READ_B64_TR_B16":
        run = read_turned(name, instruction)
    elif name in STORES and getattr(instruction, "acc", 0):
        run = store_accumulation(name, instruction)
    elif name in LOADS and getattr(instruction, "lds", 0):
        run = load_to_local(name, instruction)
    elif name == "S_WAITCNT":
        run = wait(instruction)
    else:
        return None
    size = instruction.size()

    def step(scalar, *others):
        run(scalar, *others)
        scalars(scalar.value, PC + 1, ctypes.c_uint64)[PC] += size

    return step

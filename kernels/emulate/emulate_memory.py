"""Arrays with poison and guard bands for kernels run in the emulator, and the judge of their results."""
import collections
import struct

import numpy as np

GUARD, BAND = 0xA5, 4096


class Array:
    """Memory of a kernel between two guard bands. Holds `values`, or poison (every byte 0xff: NaN, or -1) when only a shape and a
    type are given. pad: (columns behind every row, rows behind every matrix but the last), which are poison and must stay so."""

    def __init__(self, values=None, shape=None, dtype=None, pad=(0, 0)):
        if values is not None:
            values = np.ascontiguousarray(values)
            shape, dtype = values.shape, values.dtype
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        whole = (*shape[:-2], shape[-2] + pad[1] * (len(shape) > 2), shape[-1] + pad[0]) if pad[0] else shape
        size = int(np.prod(whole)) * np.dtype(dtype).itemsize
        self.band = np.full(size + 2 * BAND + 256, GUARD, np.uint8)
        self.start = BAND + -(self.band.ctypes.data + BAND) % 256
        self.size = size
        self.whole = self.band[self.start : self.start + size].view(dtype).reshape(whole)
        self.whole.view(np.uint8)[...] = 0xFF
        self.view = self.whole[tuple(map(slice, shape))]
        self.beside = np.ones(whole, bool)
        self.beside[tuple(map(slice, shape))] = False
        if values is not None:
            self.view[...] = values
            self.original = values.copy()

    def pointer(self):
        return struct.pack("<Q", self.band.ctypes.data + self.start)

    def strides(self):
        """From row to row, and from matrix to matrix; of codes, in pairs."""
        unit = max(self.view.itemsize, 2)
        return [self.view.strides[-2] // unit, self.view.strides[-3] // unit if self.view.ndim > 2 else 0]

    def width(self):
        return self.view.shape[-1] * self.view.itemsize // max(self.view.itemsize, 2)

    def guards_intact(self):
        beside = self.whole[self.beside].view(np.uint8)
        return bool((self.band[: self.start] == GUARD).all() and (self.band[self.start + self.size :] == GUARD).all() and (beside == 0xFF).all())

    def unchanged(self):
        return self.guards_intact() and self.view.tobytes() == self.original.tobytes()


def integer(value):
    return struct.pack("<i", value)


def to_bf16(x):
    """Nearest bf16, ties to even, as 16 bits; finite numbers only."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)


def interval_bf16(want, scale, terms):
    """What a sum of `terms` fp32 products may be once rounded to bf16: see judge.h."""
    return interval(BF16, want, scale, terms)


def to_fp16(x):
    """Nearest fp16, ties to even, as 16 bits; infinity from 65520 on."""
    with np.errstate(over="ignore"):
        return np.asarray(x, np.float32).astype(np.float16).view(np.uint16)


def from_fp16(bits):
    return np.asarray(bits, np.uint16).view(np.float16).astype(np.float32)


# A type of operands and results; suffix: of the names of its kernels.
Element = collections.namedtuple("Element", "name suffix to_bits to_float")
BF16 = Element("bf16", "", to_bf16, from_bf16)
FP16 = Element("fp16", "_fp16", to_fp16, from_fp16)


def interval(element, want, scale, terms):
    allowed = (terms + 2) * 2.0**-24 * scale
    return element.to_float(element.to_bits(want - allowed)), element.to_float(element.to_bits(want + allowed))


class Judge:
    def __init__(self, quiet=False):
        self.comparisons = self.failed = self.rejected = 0
        self.quiet = quiet

    def count(self, label, problem):
        """problem: None, or what is wrong."""
        self.comparisons += 1
        if problem:
            self.failed += 1
            self.say(f"FAILED {label}: {problem}")

    def expect_rejection(self, label, problem):
        """The same for a result that is wrong on purpose."""
        if problem:
            self.rejected += 1
        else:
            self.failed += 1
            self.say(f"FAILED {label}: a wrong result was accepted")

    def say(self, text):
        if not self.quiet:
            print(text, flush=True)


def problem_of(outputs, inputs, checks):
    """First thing wrong with a launch, or None. checks: pairs (name, array of bool)."""
    if not all(a.guards_intact() for a in outputs):
        return "a guard band was written"
    if not all(a.unchanged() for a in inputs):
        return "an input was written"
    for name, good in checks:
        if not np.all(good):
            return f"{name}: {int(np.size(good) - np.count_nonzero(good))} of {np.size(good)} elements are wrong"
    return None

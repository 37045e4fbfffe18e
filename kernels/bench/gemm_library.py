"""libspillway_gemm.so (bash kernels/build.sh gemm) for arrays of PyTorch on an NVIDIA GPU. Its functions are also kernels for
spillway_moe.check (docs/check_your_kernel.md):

    SPILLWAY_GEMM=build/kernels/libspillway_gemm.so python3 -m spillway_moe.check grouped_gemm kernels/bench/gemm_library.py:grouped_gemm \\
        --arrays torch --dtype bf16 --device cuda
"""
import ctypes
import functools
import os

import torch

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = range(3)


class _Shape(ctypes.Structure):
    _fields_ = [("experts", ctypes.c_size_t), ("rows", ctypes.c_size_t), ("in", ctypes.c_size_t), ("out", ctypes.c_size_t),
                ("transposed", ctypes.c_bool), ("element", ctypes.c_int), ("multiprocessors", ctypes.c_size_t),
                *((f"stride_{name}", ctypes.c_size_t) for name in ("left", "right", "result", "expert", "h", "d_h"))]


class _Variant(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("launch", ctypes.c_void_p)]


class _Float8Variant(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("launch", ctypes.c_void_p), ("sum_bits", ctypes.c_int), ("weights", ctypes.c_void_p)]


class _Float8Gradient(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("x", "dy", "x_scale", "dy_scale", "offset", "dw", "main")]


class GemmLibrary:
    """The products of one shared library. Arrays are bf16 on the GPU, `offset` is int32 [experts + 1]; a call does not wait."""

    def __init__(self, path, variant="wgmma"):
        self._library = ctypes.CDLL(os.path.abspath(path))
        self._library.spw_last_error.restype = ctypes.c_char_p
        table = (_Variant * 8).in_dll(self._library, "spw_gemm_variants")
        names = [v.name for v in table[:3]]
        self._variant = ctypes.byref(table[names.index(variant.encode())])
        self._float8 = ctypes.byref((_Float8Variant * 2).in_dll(self._library, "spw_gemm_float8_variants")[1])

    def _check(self, status):
        if status:
            raise RuntimeError(self._library.spw_last_error().decode())

    @staticmethod
    def _pointers(*arrays):
        return [ctypes.c_void_p(a.data_ptr()) for a in arrays]

    def product(self, operation, left, right, offset, result, experts, inner, out, transposed):
        """As spw_gpu_grouped_gemm in kernels/gemm/grouped_gemm_gpu.h."""
        self._check(self._library.spw_gpu_grouped_gemm(
            self._variant, operation, _Shape(experts, left.shape[0], inner, out, transposed),
            *self._pointers(left, right, offset, result), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)))

    def swiglu(self, x, w, offset, result, transposed):
        """As spw_gpu_grouped_gemm_swiglu: gate and up of w side by side."""
        experts, inner, out = w.shape[0], x.shape[1], w.shape[1 if transposed else 2]
        self._check(self._library.spw_gpu_grouped_gemm_swiglu(
            _Shape(experts, x.shape[0], inner, out, transposed), *self._pointers(x, w, offset, result),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)))


    def float8(self, x, x_scale, w, w_scale, offset, result):
        """As spw_gpu_grouped_gemm_float8: codes [rows][in] and [experts][out][in], scales of fp32 for blocks of 128."""
        experts, out, inner = w.shape
        self._check(self._library.spw_gpu_grouped_gemm_float8(
            self._float8, _Shape(experts, x.shape[0], inner, out, True), *self._pointers(x, x_scale, w, w_scale, offset, result),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)))

    def float8_gradient(self, x, x_scale, dy, dy_scale, offset, rows, result):
        """As spw_gpu_grouped_gemm_float8_weight_gradient: codes by columns; result [experts][in][out] in bf16, or in fp32, which grows."""
        experts, inner, out = result.shape
        g = _Float8Gradient(*self._pointers(x, dy, x_scale, dy_scale, offset))
        setattr(g, "main" if result.dtype == torch.float32 else "dw", result.data_ptr())
        self._check(self._library.spw_gpu_grouped_gemm_float8_weight_gradient(
            self._float8, _Shape(experts, rows, inner, out, False), ctypes.byref(g), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)))


@functools.lru_cache
def _named():
    return GemmLibrary(os.environ.get("SPILLWAY_GEMM", "build/kernels/libspillway_gemm.so"))


def grouped_gemm(x, w, offset, out, transposed):
    _named().product(FORWARD, x, w, offset, out, w.shape[0], x.shape[1], out.shape[1], transposed)


def input_gradient(dy, w, offset, out, transposed):
    _named().product(INPUT_GRADIENT, dy, w, offset, out, w.shape[0], out.shape[1], dy.shape[1], transposed)


def weight_gradient(x, dy, offset, out, transposed):
    _named().product(WEIGHT_GRADIENT, x, dy, offset, out, out.shape[0], x.shape[1], dy.shape[1], transposed)


def next_expert(x, w, offset, out, transposed):
    """Wrong on purpose: the weights of the next expert."""
    grouped_gemm(x, w.roll(-1, 0), offset, out, transposed)

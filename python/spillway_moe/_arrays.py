"""Host memory as arrays of PyTorch, JAX or NumPy, and back. What crosses is an int16, int32, uint8, float16 or float32 array by DLPack,
which all three take; bfloat16, which NumPy's DLPack lacks, is int16 seen anew on the other side."""
from __future__ import annotations

import sys
from typing import Any

import numpy

BITS = {"bf16": numpy.int16, "fp16": numpy.float16, "float": numpy.float32}
FULL = {"bf16": "bfloat16", "fp16": "float16", "float": "float32"}


def short_type(dtype: Any) -> str:
    """bf16, fp16 or float, of a name or of a framework's type."""
    try:
        name = dtype if isinstance(dtype, str) else numpy.dtype(dtype).name
    except TypeError:
        name = str(dtype)
    name = name.rsplit(".", 1)[-1]
    for short, full in FULL.items():
        if name in (short, full, {"float": "fp32"}.get(short)):
            return short
    raise ValueError(f"dtype {dtype!r}: there are cases in bfloat16, float16 and float32")


class Torch:
    name = "torch"

    def __init__(self, device: Any):
        import torch
        self.torch, self.device = torch, device

    def give(self, array: numpy.ndarray, short: str | None) -> Any:
        tensor = self.torch.from_dlpack(array).clone()
        return (tensor.view(self.torch.bfloat16) if short == "bf16" else tensor).to(self.device)

    def room(self, memory: numpy.ndarray, guard: int, shape: tuple[int, ...], short: str) -> tuple[Any, Any]:
        """A tensor between guard bands on the device, and the whole of it."""
        whole = self.torch.from_dlpack(memory).clone().to(self.device)
        inner = whole[guard:len(memory) - guard].view(getattr(self.torch, FULL[short])).view(shape)
        return inner, whole

    def type_of(self, value: Any) -> str | None:
        return str(value.dtype).split(".")[-1] if isinstance(value, self.torch.Tensor) else None

    def take(self, value: Any, short: str | None) -> numpy.ndarray:
        tensor = value.detach().cpu().contiguous()
        return numpy.from_dlpack(tensor.view(self.torch.int16) if short == "bf16" else tensor)


class Jax:
    name = "jax"

    def __init__(self, device: Any):
        import jax
        self.jax = jax
        self.device = jax.devices(device)[0] if isinstance(device, str) else device

    def give(self, array: numpy.ndarray, short: str | None) -> Any:
        numbers = self.jax.device_put(self.jax.numpy.array(array, copy=True), self.device)
        return self.jax.lax.bitcast_convert_type(numbers, self.jax.numpy.bfloat16) if short == "bf16" else numbers

    def room(self, *_: Any) -> Any:
        raise ValueError("a JAX array cannot be written to; a function that returns its result, without a parameter out, would be right")

    def type_of(self, value: Any) -> str | None:
        return value.dtype.name if isinstance(value, self.jax.Array) else None

    def take(self, value: Any, short: str | None) -> numpy.ndarray:
        return numpy.asarray(self.jax.lax.bitcast_convert_type(value, self.jax.numpy.int16) if short == "bf16" else value)


class Numpy:
    name = "numpy"

    def __init__(self, device: Any):
        if device not in (None, "cpu"):
            raise ValueError(f"device {device!r}: NumPy's arrays are on the cpu; arrays='torch' or arrays='jax' would be right")

    def give(self, array: numpy.ndarray, short: str | None) -> Any:
        return self._seen(array.copy(), short)

    @staticmethod
    def _seen(array: numpy.ndarray, short: str | None) -> numpy.ndarray:
        if short != "bf16":
            return array
        try:
            import ml_dtypes
        except ImportError:
            raise ImportError("bfloat16 arrays of NumPy need the package ml_dtypes, which is not installed") from None
        return array.view(ml_dtypes.bfloat16)

    def room(self, memory: numpy.ndarray, guard: int, shape: tuple[int, ...], short: str) -> tuple[Any, Any]:
        whole = memory.copy()
        return self._seen(whole[guard:len(memory) - guard].view(BITS[short]), short).reshape(shape), whole

    def type_of(self, value: Any) -> str | None:
        return value.dtype.name if isinstance(value, numpy.ndarray) else None

    def take(self, value: Any, short: str | None) -> numpy.ndarray:
        array = numpy.ascontiguousarray(value)
        return array.view(numpy.int16) if short == "bf16" else array


FRAMEWORKS = {framework.name: framework for framework in (Torch, Jax, Numpy)}


def framework_of(arrays: str | None, dtype: Any, device: Any) -> Any:
    """The framework that is named, that the type or the device is of, or the one that the program has imported."""
    roots = {getattr(value, "__module__", type(value).__module__).split(".")[0].removesuffix("lib")
             for value in (dtype, device) if value is not None}
    roots |= {type(value).__module__.split(".")[0].removesuffix("lib") for value in (dtype, device)}
    named = [arrays] if arrays is not None else [name for name in ("torch", "jax") if name in roots]
    named = named or [name for name in ("torch", "jax") if name in sys.modules]
    if len(named) != 1 or named[0] not in FRAMEWORKS:
        raise ValueError(f"arrays={arrays!r}: which arrays the function takes is not clear; arrays='torch', 'jax' or 'numpy' would be right")
    name = named[0]
    if device is None and name == "torch":
        device = "cpu"
    return FRAMEWORKS[name](device)

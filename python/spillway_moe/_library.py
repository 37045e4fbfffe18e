"""libspillway by ctypes. sim/library/spillway.h is the contract; what stands here repeats its types."""
from __future__ import annotations

import ctypes
import operator
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

OK, MISMATCH, ARGUMENT = 0, 1, 2


class Error(Exception):
    """What was found, where, and what would be right. `code` is the spw_code of the library."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


class ArgumentError(Error, ValueError):
    """An argument that cannot go to the library at all: a number out of range, a text with a NUL character."""

    def __init__(self, message: str):
        super().__init__(message, ARGUMENT)


class ReaderShape(Structure):
    _fields_ = [("steps", c_size_t), ("layers", c_size_t), ("experts", c_size_t), ("top_k", c_size_t),
                ("ranks", c_size_t), ("tokens", c_uint64), ("has_weights", c_int)]


class WriterSettings(Structure):
    _fields_ = [("layers", c_size_t), ("experts", c_size_t), ("top_k", c_size_t), ("ranks", c_size_t),
                ("layer_id", c_void_p), ("with_weights", c_int), ("by_falling_weight", c_int), ("hidden", c_size_t),
                ("model_layers", c_size_t), ("model", c_char_p), ("source", c_char_p), ("license", c_char_p),
                ("generator", c_char_p), ("note", c_char_p)]


class Comparison(Structure):
    _fields_ = [("elements", c_size_t), ("failed", c_size_t), ("worst_at", c_size_t), ("worst", c_double),
                ("got", c_double), ("want", c_double), ("low", c_double), ("high", c_double)]


class ProductShape(Structure):
    _fields_ = [("experts", c_size_t), ("rows", c_size_t), ("in_", c_size_t), ("out", c_size_t), ("transposed", c_int)]


class KernelCall(Structure):
    """spw_kernel_call of kernels/verify/plugin.h."""
    _fields_ = [("kernel", c_int), ("type", c_int), ("transposed", c_int), ("experts", c_size_t), ("rows", c_size_t),
                ("in_", c_size_t), ("out", c_size_t), ("tokens", c_size_t), ("top_k", c_size_t), ("offset", c_void_p),
                ("input", c_void_p * 3), ("output", c_void_p), ("index", c_void_p), ("ranks", c_size_t), ("sigmoid", c_int),
                ("renormalize", c_int)]


class CaseFacts(Structure):
    _fields_ = [("name", c_char_p), ("call", POINTER(KernelCall)), ("input_bytes", c_size_t * 3), ("output_bytes", c_size_t),
                ("guard_bytes", c_size_t)]


# name: (result, arguments); arrays are void pointers, whose types the callers check.
_FUNCTIONS = {
    "spw_version": (c_char_p, []),
    "spw_last_error": (c_char_p, []),
    "spw_ask": (c_int, [c_char_p, c_size_t, POINTER(c_char_p), POINTER(c_void_p)]),
    "spw_answer_destroy": (None, [c_void_p]),
    "spw_answer_json": (c_char_p, [c_void_p]),
    "spw_answer_notes": (c_char_p, [c_void_p]),
    "spw_reader_open": (c_int, [c_char_p, POINTER(c_void_p)]),
    "spw_reader_close": (None, [c_void_p]),
    "spw_reader_get_shape": (c_int, [c_void_p, POINTER(ReaderShape)]),
    "spw_reader_get_ids": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "spw_reader_counts": (c_int, [c_void_p, c_size_t, c_size_t, c_void_p]),
    "spw_reader_choices": (c_int, [c_void_p, c_size_t, c_size_t, c_size_t, c_void_p, c_void_p]),
    "spw_reader_source_ranks": (c_int, [c_void_p, c_size_t, c_size_t, c_void_p]),
    "spw_writer_create": (c_int, [c_char_p, POINTER(WriterSettings), POINTER(c_void_p)]),
    "spw_writer_begin_step": (c_int, [c_void_p, c_int64, c_uint64, c_void_p]),
    "spw_writer_put_layer": (c_int, [c_void_p, c_size_t, c_void_p, c_void_p]),
    "spw_writer_end_step": (c_int, [c_void_p]),
    "spw_writer_drop_step": (c_int, [c_void_p]),
    "spw_writer_finish": (c_int, [c_void_p]),
    "spw_writer_abandon": (None, [c_void_p]),
    "spw_compute_product": (c_int, [c_int, POINTER(ProductShape), c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "spw_case_count": (c_int, [c_char_p, c_char_p, POINTER(c_size_t)]),
    "spw_case_create": (c_int, [c_char_p, c_char_p, c_char_p, c_size_t, POINTER(c_void_p)]),
    "spw_case_destroy": (None, [c_void_p]),
    "spw_case_get_facts": (None, [c_void_p, POINTER(CaseFacts)]),
    "spw_case_judge": (c_int, [c_void_p, POINTER(Comparison)]),
    "spw_compare_bf16": (c_int, [c_size_t, c_size_t, c_void_p, c_void_p, c_void_p, POINTER(Comparison)]),
    "spw_compare_float": (c_int, [c_size_t, c_size_t, c_void_p, c_void_p, c_void_p, POINTER(Comparison)]),
}


def _load() -> ctypes.CDLL:
    """The library of the wheel, or the one that SPILLWAY_LIBRARY names."""
    named = os.environ.get("SPILLWAY_LIBRARY")
    here = sorted(pathlib.Path(__file__).parent.glob("libspillway.so*"))
    if not named and not here:
        raise ImportError("libspillway is not beside this package; install the wheel, or name it in SPILLWAY_LIBRARY")
    library = ctypes.CDLL(named or str(here[0]))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


# Threads of OpenMP that wait must not spin on shared machines; what the user has set stays.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
library = _load()


def version() -> str:
    """The version of the library."""
    return library.spw_version().decode()


def check(code: int, *passes: int) -> int:
    """Raises Error unless the code is OK or one of those that pass."""
    if code != OK and code not in passes:
        raise Error(library.spw_last_error().decode(errors="replace"), code)
    return code


def whole(what: str, value: Any, least: int = 0, most: int = 2**63 - 1) -> int:
    """The value as a whole number from least to most: ctypes would cut what does not fit."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{what}: {value!r} is no whole number") from None
    if not least <= number <= most:
        raise ArgumentError(f"{what}: {number}; a whole number from {least} to {most} would be right")
    return number


def text_of(what: str, value: str | os.PathLike) -> bytes:
    """A text or a path as the library takes it: it would end at the first NUL character."""
    text = os.fsencode(value)
    if b"\0" in text:
        raise ArgumentError(f"{what}: {value!r} holds a NUL character; a text without one would be right")
    return text


def answer_of(command: str, arguments: Sequence[str], passes: Sequence[int] = ()) -> tuple[str, str]:
    """What `spillway COMMAND ARGUMENT...` answers, "" where it has no JSON, and its notes."""
    words = [text_of("an argument", argument) for argument in arguments]
    answer = c_void_p()
    check(library.spw_ask(text_of("command", command), len(words), (c_char_p * max(len(words), 1))(*words), ctypes.byref(answer)), *passes)
    if not answer:
        return "", ""
    try:
        return (library.spw_answer_json(answer) or b"").decode(), (library.spw_answer_notes(answer) or b"").decode(errors="replace")
    finally:
        library.spw_answer_destroy(answer)


def _word(value: Any) -> str:
    """A value as the command line has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if hasattr(value, "tolist"):  # of numpy
        value = value.tolist()
    if isinstance(value, (list, tuple, range)):
        return ",".join(map(_word, value))
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (str, int, float)):
        return str(value)
    raise TypeError(f"an option takes texts, numbers and lists of them, not {value!r}")


REPEATED = ("scheme", "over", "set")  # a list is one option each


def options_of(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            yield option
        elif isinstance(value, Mapping):
            for key, one in value.items():
                yield from (option, f"{key}={_word(one)}")
        elif isinstance(value, (list, tuple)) and name in REPEATED:
            for one in value:
                yield from (option, _word(one))
        else:
            yield from (option, _word(value))

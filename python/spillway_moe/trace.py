"""Routing traces as arrays. The format is docs/trace_format.md of the project."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Sequence

import numpy
import pandas

from ._library import MISMATCH, ReaderShape, WriterSettings, check, library, options_of, text_of, whole
from .planner import ask

NO_EXPERT = 65535


def _pointer(array: numpy.ndarray | None) -> int | None:
    return None if array is None else array.ctypes.data


def _numbers(what: str, values: Any, kind: Any) -> numpy.ndarray:
    """Whole numbers that `kind` holds, all of them: a cast would cut what does not fit."""
    array = numpy.asarray(values)
    least, most = max(0, numpy.iinfo(kind).min), numpy.iinfo(kind).max
    if array.size and (array.dtype.kind not in "iu" or array.min() < least or array.max() > most):
        raise ValueError(f"{what}: whole numbers from {least} to {most} would be right")
    return numpy.ascontiguousarray(array, kind)


def _halves(weight: Any) -> numpy.ndarray:
    """Weights in the format of a trace, fp16."""
    array = numpy.asarray(weight)
    if array.dtype.kind in "bcSUOmM":
        raise ValueError(f"weight: {array.dtype} are no weights; real numbers would be right")
    with numpy.errstate(over="ignore", invalid="ignore"):
        halves = numpy.ascontiguousarray(array, numpy.float16)
    if not numpy.isfinite(halves).all():
        raise ValueError("weight: NaN, infinity, or above 65504, which fp16 does not hold; the router's weights would be right")
    return halves


class Trace:
    """Which experts each token chose, step by step and layer by layer.

    Steps and layers are named by position, from 0; step_ids and layer_ids have their names in the run. Close it, or use it in a
    with statement. One thread at a time may use one trace.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        self._reader = ctypes.c_void_p()
        check(library.spw_reader_open(text_of("path", self.path), ctypes.byref(self._reader)))
        shape = ReaderShape()
        check(library.spw_reader_get_shape(self._reader, ctypes.byref(shape)))
        self.steps, self.layers, self.experts = shape.steps, shape.layers, shape.experts
        self.top_k, self.ranks, self.tokens = shape.top_k, shape.ranks, shape.tokens
        self.has_weights = bool(shape.has_weights)
        self.step_ids, self.step_tokens = numpy.empty(self.steps, numpy.int64), numpy.empty(self.steps, numpy.uint64)
        self.layer_ids = numpy.empty(self.layers, numpy.int32)
        check(library.spw_reader_get_ids(self._reader, _pointer(self.step_ids), _pointer(self.step_tokens),
                                         _pointer(self.layer_ids)))

    def close(self) -> None:
        """Closes the file; twice is fine."""
        library.spw_reader_close(self._reader)
        self._reader = ctypes.c_void_p()

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_reader", None):
            self.close()

    def __repr__(self) -> str:
        return (f"Trace({self.path!r}: {self.steps} steps x {self.layers} layers, top-{self.top_k} of {self.experts}, "
                f"{self.tokens} tokens)")

    def _open(self) -> ctypes.c_void_p:
        if not self._reader:
            raise ValueError(f"{self.path}: the trace is closed")
        return self._reader

    def counts(self, step: int | None = None, layer: int | None = None) -> numpy.ndarray:
        """Assignments of every expert, uint32: [experts] of one step and layer, or [steps][layers][experts], without the axes
        of what is named."""
        steps = range(self.steps) if step is None else [self._position("step", step, self.steps)]
        layers = range(self.layers) if layer is None else [self._position("layer", layer, self.layers)]
        out = numpy.zeros((len(steps), len(layers), self.experts), numpy.uint32)
        for i, s in enumerate(steps):
            for j, l in enumerate(layers):
                check(library.spw_reader_counts(self._open(), s, l, out[i, j].ctypes.data))
        out = out if step is None else out[0]
        return out if layer is None else out[..., 0, :]

    def choices(self, step: int, layer: int) -> numpy.ndarray:
        """Experts of every token of one step and layer, int32 [tokens][top_k]; -1 where a slot is unused."""
        return self._choices(step, layer, False)[0]

    def weights(self, step: int, layer: int) -> numpy.ndarray:
        """Their weights, float16 [tokens][top_k]."""
        return self._choices(step, layer, True)[1]

    def _position(self, what: str, value: Any, count: int) -> int:
        position = whole(what, value, -2**63)
        if position < 0 or (what == "step" and position >= count):
            raise IndexError(f"{self.path}: {what} {position} of {count}")
        return position

    def _tokens(self, step: int) -> int:
        return int(self.step_tokens[self._position("step", step, self.steps)])

    def _choices(self, step: int, layer: int, weights: bool) -> tuple[numpy.ndarray, numpy.ndarray | None]:
        shape = (self._tokens(step), self.top_k)
        ids = numpy.empty(shape, numpy.uint16)
        weight = numpy.empty(shape, numpy.float16) if weights else None
        step, layer = whole("step", step), self._position("layer", layer, self.layers)
        check(library.spw_reader_choices(self._open(), step, layer, ids.size, _pointer(ids), _pointer(weight)))
        return numpy.where(ids == NO_EXPERT, -1, ids.astype(numpy.int32)), weight

    def source_ranks(self, step: int) -> numpy.ndarray:
        """The rank on which every token of a step was, uint16 [tokens]."""
        out = numpy.empty(self._tokens(step), numpy.uint16)
        step = whole("step", step)
        check(library.spw_reader_source_ranks(self._open(), step, out.size, _pointer(out)))
        return out

    def info(self) -> dict:
        """What the file says of itself, with the balance of every layer (`spillway trace info`)."""
        return ask("trace info", self.path)

    def balance(self) -> pandas.DataFrame:
        """How even the routing is: a row a layer."""
        return pandas.DataFrame(self.info()["layers"])

    def verify(self) -> pandas.DataFrame:
        """The checks of `spillway trace verify`: a row each, with how often it failed."""
        return pandas.DataFrame(ask("trace verify", self.path, passes=(MISMATCH,)))

    @staticmethod
    def generate(path: str | os.PathLike, **options: Any) -> Trace:
        """Makes a trace whose routing follows a distribution, and opens it: Trace.generate("t.h5", experts=64, top_k=8,
        layers=4, ranks=64, tokens_per_rank=512, distribution="lognormal:sigma=0.5")."""
        ask("trace generate", os.fspath(path), *options_of(options))
        return Trace(path)


class TraceWriter:
    """Writes a trace step by step. The file appears under its name when the writer is finished, or its with statement ends
    without an error.

        with TraceWriter("t.h5", layers=2, experts=8, top_k=2, ranks=4, model="mine") as writer:
            writer.step(0, expert, weight, source_rank)      # expert [layers][tokens][top_k], -1 where a slot is unused
    """

    def __init__(self, path: str | os.PathLike, *, layers: int, experts: int, top_k: int, ranks: int = 0,
                 layer_ids: Sequence[int] | None = None, weights: bool = False, by_falling_weight: bool = False,
                 hidden: int = 0, model_layers: int = 0, model: str = "", source: str = "", license: str = "",
                 generator: str = "spillway_moe", note: str = ""):
        self.path, self.layers, self.top_k = os.fspath(path), whole("layers", layers), whole("top_k", top_k)
        self.with_weights, self.ranks = bool(weights), whole("ranks", ranks)
        ids = None if layer_ids is None else _numbers("layer_ids", layer_ids, numpy.int32)
        if ids is not None and ids.shape != (self.layers,):
            raise ValueError(f"layer_ids: {ids.shape} names for {self.layers} layers")
        texts = {"model": model, "source": source, "license": license, "generator": generator, "note": note}
        settings = WriterSettings(self.layers, whole("experts", experts), self.top_k, self.ranks, _pointer(ids),
                                  int(self.with_weights), int(bool(by_falling_weight)), whole("hidden", hidden),
                                  whole("model_layers", model_layers), *(text_of(what, text) for what, text in texts.items()))
        self._writer = ctypes.c_void_p()
        check(library.spw_writer_create(text_of("path", self.path), ctypes.byref(settings), ctypes.byref(self._writer)))

    def step(self, id: int, expert: Any, weight: Any = None, source_rank: Any = None) -> None:
        """One step. expert [layers][tokens][top_k] of whole numbers, below 0 where a slot is unused; weight of the same shape
        where the writer was made with weights; source_rank [tokens] where it has ranks. A step that is refused leaves the steps
        before it as they are."""
        expert = numpy.asarray(expert)
        if expert.ndim != 3 or expert.shape[0] != self.layers or expert.shape[2] != self.top_k:
            raise ValueError(f"expert: {expert.shape} is not [{self.layers}][tokens][{self.top_k}]")
        if expert.dtype.kind not in "iu" or expert.size and expert.max() >= NO_EXPERT:
            raise ValueError("expert: whole numbers below 65535 would be right")
        if self.with_weights != (weight is not None) or bool(self.ranks) != (source_rank is not None):
            raise ValueError("weight goes with weights=True, source_rank with ranks; both with neither missing")
        ids = numpy.where(expert < 0, NO_EXPERT, expert).astype(numpy.uint16)
        halves = None if weight is None else _halves(weight)
        rank = None if source_rank is None else _numbers("source_rank", source_rank, numpy.uint16)
        if (halves is not None and halves.shape != ids.shape) or (rank is not None and rank.shape != ids.shape[1:2]):
            raise ValueError("weight has the shape of expert, source_rank one number a token")
        if not self._writer:
            raise ValueError(f"{self.path}: the writer is finished")
        check(library.spw_writer_begin_step(self._writer, whole("id", id, -2**63), ids.shape[1], _pointer(rank)))
        try:
            for layer in range(self.layers):
                check(library.spw_writer_put_layer(self._writer, layer, ids[layer].ctypes.data,
                                                   None if halves is None else halves[layer].ctypes.data))
            check(library.spw_writer_end_step(self._writer))
        except BaseException:
            library.spw_writer_drop_step(self._writer)  # the steps before it stay
            raise

    def finish(self) -> None:
        """Completes the file."""
        writer, self._writer = self._writer, ctypes.c_void_p()
        if writer:
            check(library.spw_writer_finish(writer))

    def abandon(self) -> None:
        """Leaves no file behind."""
        library.spw_writer_abandon(self._writer)
        self._writer = ctypes.c_void_p()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.abandon() if kind else self.finish()

    def __del__(self) -> None:
        if getattr(self, "_writer", None):
            self.abandon()

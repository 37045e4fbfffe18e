"""Kernels of your own against Spillway's reference, from Python.

    from spillway_moe import check

    def mine(x, w, offset):                     # [rows][in], [experts][in][out], int32 [experts + 1] -> [rows][out]
        ...
    report = check.grouped_gemm(mine, dtype=torch.bfloat16, device="cuda")
    print(report)                               # a line, and every case that failed with the command that runs it again
    assert report

The cases, the reference and the judge are those of `spillway verify --plugin`: made-up routings (even, skewed, one expert, experts
without rows, an unused tail that is NaN) or those of a routing record, integers whose result must be exact, and numbers that use all
bits. The function gets arrays of PyTorch, JAX or NumPy and returns one. A parameter of it that is called `out` gets the array to
write to instead, which is full of NaN and stands between guard bands (not in JAX); further parameters called experts, rows, tokens,
top_k, ranks, transposed, sigmoid or renormalize get those numbers. A function that returns NotImplemented leaves the case out. Again from a shell:

    python -m spillway_moe.check grouped_gemm mine.py:mine --arrays torch --dtype bf16 --device cuda --case 17
"""
from __future__ import annotations

import argparse
import ctypes
import importlib.util
import inspect
import math
import os
import pathlib
import select
import shlex
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Iterator

import numpy

from ._arrays import BITS, FRAMEWORKS, FULL, framework_of, short_type
from ._library import MISMATCH, CaseFacts, Comparison, check, library, text_of, whole

PASSED, FAILED, LEFT_OUT = "passed", "failed", "left out"
_NUMBERS = ("experts", "rows", "tokens", "top_k", "ranks", "transposed", "sigmoid", "renormalize")  # that a function may ask for by a parameter's name
_SHOWN = 20


def _weights(c: Any) -> tuple[int, ...]:
    return (c.experts, c.out, c.in_) if c.transposed else (c.experts, c.in_, c.out)


# kernel: shapes of the inputs, what their elements are, and the shape of the output.
_SHAPES: dict[str, Callable[[Any], tuple[list[tuple[tuple[int, ...], str]], tuple[int, ...]]]] = {
    "grouped_gemm": lambda c: ([((c.rows, c.in_), "own"), (_weights(c), "own")], (c.rows, c.out)),
    "input_gradient": lambda c: ([((c.rows, c.out), "own"), (_weights(c), "own")], (c.rows, c.in_)),
    "weight_gradient": lambda c: ([((c.rows, c.in_), "own"), ((c.rows, c.out), "own")], _weights(c)),
    "permute": lambda c: ([((c.tokens, c.in_), "own"), ((c.tokens, c.top_k), "index")], (c.rows, c.in_)),
    "unpermute": lambda c: ([((c.rows, c.in_), "own"), ((c.tokens, c.top_k), "index"), ((c.tokens, c.top_k), "weight")],
                            (c.tokens, c.in_)),
    "swiglu": lambda c: ([((c.rows, c.out), "own"), ((c.rows, c.out), "own")], (c.rows, c.out)),
    "router": lambda c: ([((c.tokens, c.experts), "own")], (c.tokens, c.top_k)),
    "dispatch": lambda c: ([((c.ranks, c.tokens, c.in_), "own"), ((c.ranks, c.tokens, c.top_k), "index")], (c.rows, c.in_)),
    "combine": lambda c: ([((c.rows, c.in_), "own"), ((c.ranks, c.tokens, c.top_k), "index")], (c.ranks, c.tokens, c.in_)),
}


class _Case:
    """One case of the library, as NumPy arrays over its memory."""

    def __init__(self, kernel: str, short: str, record: str | None, number: int):
        self.kernel, self.short, self.number = kernel, short, whole("case", number)
        self._own = ctypes.c_void_p()
        check(library.spw_case_create(text_of("kernel", kernel), short.encode(), text_of("record", record) if record else None, number,
                                      ctypes.byref(self._own)))
        self.facts = CaseFacts()
        library.spw_case_get_facts(self._own, ctypes.byref(self.facts))
        self.name, self.call = self.facts.name.decode(), self.facts.call.contents
        self.inputs, self.shape = _SHAPES[kernel](self.call)
        self.out_short = "float" if kernel == "router" else short  # a router's weights

    def __enter__(self) -> _Case:
        return self

    def __exit__(self, *_: Any) -> None:
        library.spw_case_destroy(self._own)

    @staticmethod
    def _view(address: int | None, kind: Any, shape: tuple[int, ...]) -> numpy.ndarray:
        count = math.prod(shape)
        if not address or not count:
            return numpy.empty(shape, kind)
        memory = (ctypes.c_char * (count * numpy.dtype(kind).itemsize)).from_address(address)
        return numpy.frombuffer(memory, kind).reshape(shape)

    def operands(self) -> Iterator[tuple[numpy.ndarray, str | None]]:
        for i, (shape, kind) in enumerate(self.inputs):
            bits = {"own": BITS[self.short], "index": numpy.int32, "weight": numpy.float32}[kind]
            yield self._view(self.call.input[i], bits, shape), self.short if kind == "own" else None
        if self.call.offset:
            yield self._view(self.call.offset, numpy.int32, ((self.call.ranks or self.call.experts) + 1,)), None

    def output(self) -> numpy.ndarray:
        return self._view(self.call.output, BITS[self.out_short], self.shape)

    def index(self) -> numpy.ndarray:
        """The router's second output."""
        return self._view(self.call.index, numpy.int32, self.shape)

    def fenced(self) -> numpy.ndarray:
        """The output between its guard bands, as bytes."""
        guard = self.facts.guard_bytes
        return self._view(self.call.output - guard, numpy.uint8, (self.facts.output_bytes + 2 * guard,))

    def judge(self) -> tuple[str, Comparison]:
        """What is wrong, "" if nothing, and the comparison."""
        found = Comparison()
        code = check(library.spw_case_judge(self._own, ctypes.byref(found)), MISMATCH)
        return (library.spw_last_error().decode() if code == MISMATCH else ""), found


class Report:
    """The verdicts of one kernel. True where something was compared and all of it passed.

    verdicts: a dictionary a case: case, name, status (passed, failed or left out), error (the largest, in units of its bound), at
    (where), got, want, low and high (there: what came, what would be right, what would have passed), message, again."""

    def __init__(self, kernel: str, dtype: str, verdicts: list[dict[str, Any]]):
        self.kernel, self.dtype, self.verdicts = kernel, dtype, verdicts

    @property
    def rows(self) -> Any:
        """The verdicts as a pandas table."""
        import pandas
        return pandas.DataFrame(self.verdicts)

    def of(self, status: str) -> list[dict[str, Any]]:
        """The verdicts of one status."""
        return [verdict for verdict in self.verdicts if verdict["status"] == status]

    def __bool__(self) -> bool:
        return bool(self.of(PASSED)) and not self.of(FAILED)

    def __str__(self) -> str:
        lines = []
        passed, failed, left_out = (self.of(status) for status in (PASSED, FAILED, LEFT_OUT))
        for v in failed[:_SHOWN]:
            lines.append(f"FAILED {self.kernel}, {self.dtype}, case {v['case']} ({v['name']}): {v['message']}")
            lines += [f"  largest error: {v['error']:.3g} of its bound, at {list(v['at'])}"] if v["at"] is not None else []
            lines.append(f"  again: {v['again']}")
        lines += [f"and {len(failed) - _SHOWN} more"] if len(failed) > _SHOWN else []
        worst = max((v["error"] for v in passed), default=0.0)
        lines.append(f"{self.kernel} {self.dtype}: {len(passed)} of {len(self.verdicts) - len(left_out)} cases passed, "
                     f"{len(left_out)} left out; largest error {worst:.2f} of its bound")
        return "\n".join(lines)

    __repr__ = __str__


def _called(fn: Callable) -> tuple[str | None, str]:
    """FILE.py:NAME where a new process finds the function, and how people call it."""
    name, code = getattr(fn, "__qualname__", repr(fn)), getattr(inspect.unwrap(fn), "__code__", None)
    file = code.co_filename if code is not None else ""
    return (f"{file}:{name}" if os.path.exists(file) and name.isidentifier() else None), name


def _again(kernel: str, fn: Callable, framework: Any, short: str, device: Any, transposed: bool, record: str | None, case: int) -> str:
    where, name = _called(fn)
    device = None if device is None else getattr(device, "platform", None) or str(device)
    if where is None:
        extra = "".join([f", device={device!r}" if device else "", ", transposed=True" if transposed else "",
                         f", record={record!r}" if record else ""])
        return f"spillway_moe.check.{kernel}({name}, dtype={short!r}, arrays={framework.name!r}{extra}, case={case})"
    words = ["python", "-m", "spillway_moe.check", kernel, where, "--arrays", framework.name, "--dtype", short]
    words += (["--device", device] if device else []) + (["--transposed"] if transposed else [])
    return shlex.join([*words, *(["--record", record] if record else []), "--case", str(case)])


def _asked_for(fn: Callable, operands: int) -> set[str]:
    """What the parameters behind the operands are called."""
    try:
        return set(list(inspect.signature(fn).parameters)[operands:]) & {*_NUMBERS, "out"}
    except (TypeError, ValueError):
        return set()


def _answer(case: _Case, fn: Callable, framework: Any) -> str | None:
    """Calls the function and puts its result into the case: what is wrong with it, "" if nothing; None: left out."""
    operands = [framework.give(array, short) for array, short in case.operands()]
    asked = _asked_for(fn, len(operands))
    named = {name: getattr(case.call, name) for name in asked & set(_NUMBERS)}
    whole = None
    before = [array.copy() for array, _ in case.operands()]
    if "out" in asked and not case.call.index:
        named["out"], whole = framework.room(case.fenced(), case.facts.guard_bytes, case.shape, case.out_short)
    result = fn(*operands, **named)
    if result is NotImplemented:
        return None
    for i, (own, (was, (_, short))) in enumerate(zip(operands, zip(before, case.operands()))):
        if framework.take(own, short).tobytes() != was.tobytes():
            return f"the function wrote to its argument {i}, which must stay as it is"
    if whole is not None:
        case.fenced()[...] = framework.take(whole, None)
        return ""
    wanted = [(case.output(), case.out_short)]
    if case.call.index:  # a router: the experts, then the weights
        wanted.insert(0, (case.index(), None))
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            return "the function returned one thing; a pair of arrays, the experts and their weights, would be right"
    for own, (memory, short) in zip(result if case.call.index else [result], wanted):
        kind, right = framework.type_of(own), FULL[short] if short else "int32"
        if kind is None:
            return f"the function returned {type(own).__name__}; an array of {framework.name} would be right"
        if kind != right and not (short is None and kind == "int64") or tuple(own.shape) != case.shape:
            return f"the function returned {kind} {list(own.shape)}; {right} {list(case.shape)} would be right"
        memory[...] = framework.take(own, short)
    return ""


def _verdict(case: _Case, fn: Callable, framework: Any, raises: bool) -> dict:
    row = {"case": case.number, "name": case.name, "status": FAILED, "error": math.inf, "at": None, "got": math.nan, "want": math.nan,
           "low": math.nan, "high": math.nan}
    try:
        message = _answer(case, fn, framework)
    except Exception as error:  # of any kind: it is somebody else's function
        if raises:
            raise
        return {**row, "message": f"{type(error).__name__}: {error}"}
    except SystemExit as end:  # as if all were well, where it is not caught
        return {**row, "message": f"the function ended the program: SystemExit({end.code!r})"}
    if message is None:
        return {**row, "status": LEFT_OUT, "error": math.nan, "message": ""}
    if message:
        return {**row, "message": message}
    message, found = case.judge()
    at = tuple(map(int, numpy.unravel_index(found.worst_at, case.shape))) if found.elements else None
    return {**row, "status": FAILED if message else PASSED, "error": found.worst, "at": at, "got": found.got, "want": found.want,
            "low": found.low, "high": found.high, "message": message}


def _numbers_of(kernel: str, count: int, large: bool, transposed: bool) -> list[int]:
    """The cases of a kernel; of the products those of one layout of the weights, which follow those of the other. Behind them stand large
    cases, one a layout."""
    if kernel not in ("grouped_gemm", "input_gradient", "weight_gradient"):
        return list(range(count))
    half = count // 2 - large
    first = half if transposed else 0
    return [*range(first, first + half), *([2 * half + transposed] if large else [])]


def _run(kernel: str, fn: Callable, dtype: Any, device: Any, arrays: str | None, record: Any, case: int | None,
         transposed: bool = False, told: Callable[[int], None] | None = None) -> Report:
    short, framework = short_type(dtype), framework_of(arrays, dtype, device)
    record = os.fspath(record) if record is not None else None
    count = ctypes.c_size_t()
    check(library.spw_case_count(text_of("kernel", kernel), text_of("record", record) if record else None, ctypes.byref(count)))
    if count.value == 0:
        raise ValueError(f"record={record!r}: a routing record has no logits, so no cases of {kernel}")
    numbers = _numbers_of(kernel, count.value, record is None, transposed)
    if case is not None and case not in numbers:
        raise ValueError(f"case {case}: {kernel}{' with transposed weights' if transposed else ''} has the cases {numbers[0]} to "
                         f"{numbers[-1]}" + (f", without {numbers[-2] + 1} to {numbers[-1] - 1}" if numbers[-1] - numbers[-2] > 1 else ""))
    rows = []
    for number in numbers if case is None else [case]:
        if told is not None:
            told(number)
        with _Case(kernel, short, record, number) as own:
            again = _again(kernel, fn, framework, short, device, transposed, record, number)
            rows.append({**_verdict(own, fn, framework, case is not None), "again": again})
    return Report(kernel, short, rows)


def grouped_gemm(fn: Callable, *, dtype: Any = "bf16", device: Any = None, arrays: str | None = None, transposed: bool = False,
                 record: Any = None, case: int | None = None) -> Report:
    """fn(x [rows][in], w [experts][in][out], offset [experts + 1]) -> y [rows][out]; y[r] = x[r] w[e] for offset[e] <= r < offset[e + 1].

    transposed: w is [experts][out][in]. dtype: bfloat16, float16 or float32, of any framework or a name. device: the framework's, as in "cuda".
    arrays: torch, jax or numpy where dtype, device and what is imported do not say it. record: path of a routing record. case: this
    one alone; then an exception of fn is not caught."""
    return _run("grouped_gemm", fn, dtype, device, arrays, record, case, transposed)


def input_gradient(fn: Callable, *, dtype: Any = "bf16", device: Any = None, arrays: str | None = None, transposed: bool = False,
                   record: Any = None, case: int | None = None) -> Report:
    """fn(dy [rows][out], w [experts][in][out], offset [experts + 1]) -> dx [rows][in]; dx[r] = dy[r] w[e]^T. The rest as grouped_gemm()."""
    return _run("input_gradient", fn, dtype, device, arrays, record, case, transposed)


def weight_gradient(fn: Callable, *, dtype: Any = "bf16", device: Any = None, arrays: str | None = None, transposed: bool = False,
                    record: Any = None, case: int | None = None) -> Report:
    """fn(x [rows][in], dy [rows][out], offset [experts + 1]) -> dw [experts][in][out], the sum of x^T dy over the rows of an expert.
    The rest as grouped_gemm()."""
    return _run("weight_gradient", fn, dtype, device, arrays, record, case, transposed)


def permute(fn: Callable, *, dtype: Any = "bf16", device: Any = None, arrays: str | None = None, record: Any = None,
            case: int | None = None) -> Report:
    """fn(x [tokens][hidden], expert int32 [tokens][top_k]) -> [rows][hidden]: the tokens' rows by expert, inside an expert in the order
    of t * top_k + k; -1 is no expert. The rest as grouped_gemm()."""
    return _run("permute", fn, dtype, device, arrays, record, case)


def unpermute(fn: Callable, *, dtype: Any = "bf16", device: Any = None, arrays: str | None = None, record: Any = None,
              case: int | None = None) -> Report:
    """fn(rows [rows][hidden], row int32 [tokens][top_k], weight float32 [tokens][top_k]) -> y [tokens][hidden]; y[t] is the sum over k of
    weight[t][k] rows[row[t][k]], and a row of -1 is none. The rest as grouped_gemm()."""
    return _run("unpermute", fn, dtype, device, arrays, record, case)


def swiglu(fn: Callable, *, dtype: Any = "bf16", device: Any = None, arrays: str | None = None, record: Any = None,
           case: int | None = None) -> Report:
    """fn(gate, up), both [rows][ffn] -> gate / (1 + exp(-gate)) up. The rest as grouped_gemm()."""
    return _run("swiglu", fn, dtype, device, arrays, record, case)


def router(fn: Callable, *, dtype: Any = "float", device: Any = None, arrays: str | None = None, case: int | None = None) -> Report:
    """fn(logits [tokens][experts], top_k=, sigmoid=, renormalize=) -> (expert int32 or int64 [tokens][top_k], weight float32 [tokens][top_k]):
    scores are the softmax, or 1 / (1 + exp(-logit)) where sigmoid; the best top_k by falling score, of equal ones the lower expert
    first; their scores, divided by their sum where renormalize. dtype is that of the logits. The rest as grouped_gemm()."""
    return _run("router", fn, dtype, device, arrays, None, case)


def dispatch(fn: Callable, *, dtype: Any = "bf16", device: Any = None, arrays: str | None = None, record: Any = None,
             case: int | None = None) -> Report:
    """fn(x [ranks][tokens][hidden], expert int32 [ranks][tokens][top_k], offset [ranks + 1], experts=) -> rows [rows][hidden]: a token goes
    once to every rank that has one of its experts; rank d, which has the experts from d (experts / ranks) on, receives the rows
    offset[d] <= r < offset[d + 1], by source rank, inside a source by token. The rest as grouped_gemm()."""
    return _run("dispatch", fn, dtype, device, arrays, record, case)


def combine(fn: Callable, *, dtype: Any = "bf16", device: Any = None, arrays: str | None = None, record: Any = None,
            case: int | None = None) -> Report:
    """fn(rows [rows][hidden], expert int32 [ranks][tokens][top_k], offset [ranks + 1], experts=) -> y [ranks][tokens][hidden]: the way back
    of dispatch(); y of a token is the sum of its rows, 0 where it went nowhere. The rest as grouped_gemm()."""
    return _run("combine", fn, dtype, device, arrays, record, case)


def _function(where: str) -> Callable:
    file, _, name = where.rpartition(":")
    spec = importlib.util.spec_from_file_location(pathlib.Path(file).stem, file) if os.path.exists(file) else None
    if spec is None or spec.loader is None:
        raise SystemExit(f"spillway_moe.check: '{where}' names no function; FILE.py:NAME would be right")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(pathlib.Path(file).resolve().parent))
    try:
        spec.loader.exec_module(module)
    except SystemExit as end:
        raise SystemExit(f"spillway_moe.check: {file} ended the program as it was loaded: SystemExit({end.code!r})") from None
    if not callable(getattr(module, name, None)):
        raise SystemExit(f"spillway_moe.check: {file} has no function {name}")
    return getattr(module, name)


def main() -> int:
    """python -m spillway_moe.check KERNEL FILE.py:NAME: exit status 1 where the report is not True."""
    parser = argparse.ArgumentParser(prog="python -m spillway_moe.check", description="Checks a kernel of your own.")
    parser.add_argument("kernel", choices=sorted(_SHAPES))
    parser.add_argument("function", metavar="FILE.py:NAME")
    parser.add_argument("--dtype", default="bf16", help="bf16 (default), fp16 or float")
    parser.add_argument("--arrays", choices=sorted(FRAMEWORKS), help="what the function takes (default: what its file imports)")
    parser.add_argument("--device", help="of the framework, as in cuda")
    parser.add_argument("--transposed", action="store_true", help="weights are [experts][out][in]")
    parser.add_argument("--record", help="a routing record, whose choices the cases have")
    parser.add_argument("--case", type=int, help="this case alone")
    parser.add_argument("--case-seconds", type=int, default=120, metavar="S",
                        help="a case that takes more processor time, or sleeps as long, fails (default: 120)")
    asked = parser.parse_args()
    if asked.case_seconds < 1:
        parser.error("--case-seconds: 1 or more")
    words = os.environ.pop(_WORDS, None)
    return _watch(asked) if words is None else _serve(asked, int(words))


# The function runs in a process of its own, which tells by a pipe what it does: one that ends its process passes nothing.
_WORDS = "SPILLWAY_CHECK_WORDS"


def _serve(asked: argparse.Namespace, pipe: int) -> int:
    def tell(word: str) -> None:
        os.write(pipe, f"{word}\n".encode())

    report = _run(asked.kernel, _function(asked.function), asked.dtype, asked.device, asked.arrays, asked.record, asked.case,
                  asked.transposed, lambda number: tell(f"case {number}"))
    print(report, flush=True)
    tell(f"done {0 if report else 1}")
    return 0 if report else 1


def _watch(asked: argparse.Namespace) -> int:
    """Exit status 0 only where the other process has said that it is done, and that all is well."""
    ours, theirs = os.pipe()
    environment = {**os.environ, _WORDS: str(theirs)}
    child = subprocess.Popen([sys.executable, "-m", "spillway_moe.check", *sys.argv[1:]], pass_fds=[theirs], env=environment)
    os.close(theirs)
    late = False
    words, clock = b"", _Clock(child.pid, asked.case_seconds)
    while True:
        if select.select([ours], [], [], 1)[0]:
            read = os.read(ours, 65536)
            if not read:
                break
            words, clock = words + read, _Clock(child.pid, asked.case_seconds)
        elif clock.late():
            late = True
            child.kill()
            break
    status = child.wait()
    said = words.decode(errors="replace").split("\n")[:-1]
    if said and said[-1] in ("done 0", "done 1"):
        return int(said[-1][-1]) or (1 if status else 0)
    if not said and not late:
        return status if status > 0 else 1  # an error of the call, which it has told
    case = said[-1].partition(" ")[2] if said else "none"
    how = (f"did not come back: {asked.case_seconds} s of processor time, or of sleep, are the limit (--case-seconds)" if late else
           f"crashed ({signal.strsignal(-status)})" if status < 0 else f"ended its process (exit status {status})")
    if asked.case is not None and status == 1 and not late:
        return 1  # an exception of the function, which Python has shown
    print(f"FAILED {asked.kernel}, {asked.dtype}, case {case}: the function {how}")
    return 1


class _Clock:
    """Whether a process has had more processor time than `limit` seconds since this was made, or slept as long. Asked once a second."""

    def __init__(self, process: int, limit: int):
        self.clock, self.limit, self.idle = (~process << 3) | 2, limit, 0  # clock_getcpuclockid(3)
        self.begin = self.seen = self._now()
        self.wall = time.monotonic()

    def _now(self) -> float:
        try:
            return time.clock_gettime(self.clock)
        except OSError:
            return 0.0

    def late(self) -> bool:
        now = self._now()
        self.idle = self.idle + 1 if now - self.seen < 0.01 else 0
        self.seen = now
        return now - self.begin > self.limit or self.idle > self.limit or time.monotonic() - self.wall > 20 * self.limit


if __name__ == "__main__":
    sys.exit(main())

"""Spillway plans Mixture-of-Experts training jobs under real routing.

    import spillway_moe as spillway

    spillway.plan("job.yaml").rows                          what fits and what is fastest
    spillway.search("job.yaml", price=2).best               the best point of a space, `best_sure` the best that surely fits
    spillway.until("job.yaml", "oom").rows                  how uneven routing may get before memory runs out
    spillway.replay("trace.h5", job="job.yaml").rows        what each GPU holds, sends and drops, a row a scheme
    spillway.explain("job.yaml", scheme="gmm")              every byte of one GPU's peak
    spillway.job("run.sh", cluster="h100-8x16")             a framework's configuration as a job
    spillway.flags("job.yaml", "megatron")                  the best point as a framework reads it
    spillway.report(plan, output="plan.html")               a page of a plan, a search or a result
    spillway.model("glm-4.5").parts                         parameters by part
    spillway.score("table.csv").rows                        predictions beside runs
    spillway.verify(scheme="gmm").agreed                    the simulator beside execution
    spillway.Trace("trace.h5")                              the routing itself, as arrays
    spillway.TraceWriter("trace.h5", ...)                   a trace of your own
    spillway.importing.import_arrays("replay.pt", ...)      a trace of a .pt, safetensors or Parquet file
    spillway.chakra.write_chakra("result.h5", "folder")     bytes of every pair of ranks, for network simulators
    spillway.check.grouped_gemm(fn)                         a kernel of your own, judged
    spillway.figures                                        pictures of the above (pip install spillway-moe[figures])

A job is the path of a YAML file or a dictionary of the same keys, in which paths are taken from the working directory. Every option
and every key of a job is a keyword: help(spillway.plan) lists them. print() shows an answer in short and its ten most important
columns; `rows` has all columns, `json` everything. Whatever goes wrong raises spillway_moe.Error, whose text says what was found,
where, and what would be right.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._library import Error, version
    from .planner import ask, open_result, report
    from .planning import flags, plan, search, until
    from .questions import explain, job, model, replay, score, verify
    from .results import FrameworkJob, Model, Page, Plan, Replay, Score, Search, Until, Verification
    from .trace import Trace, TraceWriter

_HOMES = {"_library": ["Error", "version"],
          "planner": ["ask", "open_result", "report"],
          "planning": ["flags", "plan", "search", "until"],
          "questions": ["explain", "job", "model", "replay", "score", "verify"],
          "results": ["FrameworkJob", "Model", "Page", "Plan", "Replay", "Score", "Search", "Until", "Verification"],
          "trace": ["Trace", "TraceWriter"]}
__all__ = sorted(name for names in _HOMES.values() for name in names)


def __getattr__(name: str) -> Any:
    """Loads the library when it is first needed: spillway_moe.capture works without it."""
    if name == "__version__":
        return __getattr__("version")()
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f".{home}", __name__), name)
    try:
        return importlib.import_module(f".{name}", __name__)
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

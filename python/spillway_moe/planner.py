"""How questions are asked. A keyword is an option of the command line: underscores for dashes, a list for 1,2,4, True for an option
without a value. `scheme` may be a list, `set` and `over` dictionaries: over={"pipeline": [1, 2]}. The functions are in questions.py
and planning.py."""
from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, Union

import pandas

from ._asking import ARGUMENT, options
from ._library import MISMATCH, Error, answer_of, options_of
from .results import FrameworkJob, Model, Page, Plan, Replay, Score, Search, Until, Verification, table_of

Path = Union[str, os.PathLike]
Job = Union[Path, Mapping[str, Any], None]


def _frames_here() -> int:
    """How far up the caller of this package stands, as warnings.warn() counts."""
    frame: FrameType | None = sys._getframe(1)
    count = 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith(__package__):
        frame, count = frame.f_back, count + 1
    return count


def ask(command: str, *arguments: str, passes: Sequence[int] = ()) -> Any:
    """The answer of `spillway COMMAND ARGUMENT...` as Python values, or None where the command has none.

    command: replay, plan, explain, job, model, report, score, verify, trace info, trace verify, trace generate, trace import, trace
    merge or trace slice; or flags, which is plan with --flags NAME and answers with a text.
    """
    text, notes = answer_of(command, arguments, passes)
    for note in notes.splitlines() if text or command == "report" else []:
        warnings.warn(note.removeprefix("spillway: "), stacklevel=_frames_here())
    return text if command == "flags" else json.loads(text) if text else None


def _plain(value: Any) -> Any:
    """What JSON has no word for, as it stands in a job: paths, numbers and arrays of numpy."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a job has texts, numbers, lists and dictionaries, not {value!r}")


def _ask_of_job(command: str, words: Sequence[str], job: Job, keywords: Mapping[str, Any]) -> Any:
    """A job that is a dictionary is given as text (JSON is YAML); paths in it are taken from the working directory. One that leaves out
    how its GPUs are split or its batch is asked for as `--model` and `--cluster` are, and has the defaults of these."""
    if job is not None and not isinstance(job, (str, bytes, os.PathLike, Mapping)):
        raise Error(f"job: {job!r} is no job; the path of a job's file (job.yaml), a dictionary such as "
                    '{"model": "olmoe-1b-7b", "cluster": "h100:8x2"}, or None beside keywords model and cluster would be right', ARGUMENT)
    text = json.dumps(job, default=_plain) if isinstance(job, Mapping) else None
    if isinstance(job, Mapping) and {"model", "cluster"} <= job.keys() and not {"parallel", "batch"} <= job.keys():
        own = [word for key, value in job.items() for word in ("--set", f"{key}={json.dumps(value, default=_plain)}")]
    else:
        own = [] if job is None else ["--job", os.fspath(job) if not isinstance(job, Mapping) else str(text)]
    try:
        return ask(command, *words, *own, *options_of(options(keywords)))
    except Error as error:  # the text on the command line is ours, the dictionary is the caller's
        if text is None:
            raise
        raise Error(str(error).replace("--set ", "job: ").replace("--job {...}:1: ", "job: ").replace("--job {...}", "job"), error.code) from None


def ask_replay(trace: Path, job: Job = None, **keywords: Any) -> Replay:
    answer = _ask_of_job("replay", [os.fspath(trace)], job, keywords)
    return Replay(answer, table_of(answer["rows"]))


def ask_plan(job: Job = None, **keywords: Any) -> Plan | Search | Until:
    answer = _ask_of_job("plan", [], job, keywords)
    if isinstance(answer, list):
        return Until(answer, table_of(answer))
    if "front" in answer:
        return Search(answer, table_of(answer["front"]), [Plan(one, table_of(one["rows"])) for one in answer["plans"]])
    return Plan(answer, table_of(answer["rows"]))


def ask_search(job: Job = None, **keywords: Any) -> Any:
    return ask_plan(job, search=True, **keywords)


def ask_until(job: Job = None, question: str | Sequence[str] = "oom", **keywords: Any) -> Any:
    return ask_plan(job, until=question, **keywords)


def ask_flags(job: Job = None, framework: str = "megatron", **keywords: Any) -> str:
    return _ask_of_job("flags", ["--flags", framework], job, keywords)


def ask_explain(job: Job = None, **keywords: Any) -> pandas.DataFrame:
    return table_of(_ask_of_job("explain", [], job, keywords))


def ask_job(file: Path, **keywords: Any) -> FrameworkJob:
    return FrameworkJob(_ask_of_job("job", [os.fspath(file)], None, keywords))


def ask_model(name: Path, **keywords: Any) -> Model:
    answer = ask("model", os.fspath(name), *options_of(keywords), passes=(MISMATCH,))
    return Model(answer, table_of(answer["parts"]))


def ask_score(tables: Path | Sequence[Path], **keywords: Any) -> Score:
    names = [tables] if isinstance(tables, (str, os.PathLike)) else tables
    answer = ask("score", *[os.fspath(name) for name in names], *options_of(keywords))
    return Score(answer, table_of(answer["rows"]))


def ask_verify(**keywords: Any) -> Verification:
    return Verification(table_of(ask("verify", *options_of(keywords), passes=(MISMATCH,))))


def report(*results: Path | Plan | Search, output: Path, replay: Path | None = None, drop_at_most: float | None = None) -> Page:
    """Writes a page of a plan, a search or a result's file; of two of them, side by side. Returns its path, which a notebook shows.

        report(plan("job.yaml"), output="plan.html")
        report(plan("job.yaml"), plan("job.yaml", remat="none"), output="both.html")

    replay: beside a plan, what replay(..., output=...) wrote for the same job. drop_at_most: what is called fastest drops at most so
    many percent of the assignments.
    """
    with tempfile.TemporaryDirectory(prefix="spillway-") as folder:
        names = []
        for position, result in enumerate(results, 1):
            if hasattr(result, "json"):
                path = pathlib.Path(folder, f"{type(result).__name__.lower()}{position if len(results) > 1 else ''}.json")
                path.write_text(json.dumps(result.json), encoding="utf-8")
                names.append(str(path))
            else:
                names.append(os.fspath(result))
        ask("report", *names, *options_of({"output": output, "replay": replay, "drop_at_most": drop_at_most}))
    return Page(output)


def open_result(path: Path) -> Any:
    """What replay(..., output=path) wrote, as an xarray.Dataset: rows, bytes and drops by result, step, layer and rank.

    Needs spillway-moe[xarray].
    """
    import xarray

    return xarray.open_dataset(path, engine="h5netcdf")

"""Questions about a job. Every keyword is an option of the command line: underscores for dashes, a list for 1,2,4, True for an
option without a value. `scheme` may be a list, `set` and `over` dictionaries: over={"pipeline": [1, 2]}."""
from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence, Union

import pandas

from ._library import MISMATCH, Error, answer_of, options_of

Job = Union[str, os.PathLike, Mapping[str, Any], None]


def ask(command: str, *arguments: str, passes: Sequence[int] = ()) -> Any:
    """The answer of `spillway COMMAND ARGUMENT...` as Python values, or None where the command has none.

    command: replay, plan, explain, model, trace info, trace verify, trace generate, trace import, trace merge or trace slice.
    """
    text, notes = answer_of(command, arguments, passes)
    for note in notes.splitlines() if text else []:
        warnings.warn(note.removeprefix("spillway: "), stacklevel=3)
    return json.loads(text) if text else None


def _plain(value: Any) -> Any:
    """What JSON has no word for, as it stands in a job: paths, numbers and arrays of numpy."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a job has texts, numbers, lists and dictionaries, not {value!r}")


def _ask_of_job(command: str, words: Sequence[str], job: Job, options: Mapping[str, Any]) -> Any:
    """A job that is a dictionary is given as text (JSON is YAML); paths in it are taken from the working directory."""
    text = json.dumps(job, default=_plain) if isinstance(job, Mapping) else None
    own = [] if job is None else ["--job", os.fspath(job) if text is None else text]
    try:
        return ask(command, *words, *own, *options_of(options))
    except Error as error:  # the text on the command line is ours, the dictionary is the caller's
        if text is None:
            raise
        raise Error(str(error).replace("--job {...}:1: ", "job: ").replace("--job {...}", "job"), error.code) from None


def _table(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """A row each; names of values within values are joined by dots, as in memory.peak_bytes."""
    return pandas.json_normalize(list(rows))


@dataclass
class Replay:
    """What schemes need on a trace. `rows` has a row a scheme and batch; `json` is the whole answer (docs/result_format.md)."""

    json: dict = field(repr=False)
    rows: pandas.DataFrame

    def components(self) -> pandas.DataFrame:
        """Bytes of the peak by component: a row each scheme and batch, a column each component."""
        return self._shares("memory", "components")

    def _shares(self, *path: str) -> pandas.DataFrame:
        def value(row: Any) -> Any:
            for key in path:
                row = (row or {}).get(key)
            return row or {}
        table = pandas.DataFrame([value(row) for row in self.json["rows"]])
        table.index = pandas.MultiIndex.from_arrays([self.rows["scheme"], self.rows["sequences_per_gpu"]])
        return table


@dataclass
class Plan(Replay):
    """What fits and what is fastest. `front`: rows that no other beats; `fastest`: the row to take, or None."""

    @property
    def front(self) -> pandas.DataFrame:
        return self.rows.iloc[self.json["plan"]["front"] or []]

    @property
    def fastest(self) -> pandas.Series | None:
        position = self.json["plan"]["fastest"]
        return None if position is None else self.rows.iloc[position]


@dataclass
class Search:
    """What plan(search=True) found. `front`: points that no other beats, a row each, the best first; `plans`: the best of them as
    plan() gives them, so that their memory, time and advice can be looked at; `json` is the whole answer (docs/plan.md)."""

    json: dict = field(repr=False)
    front: pandas.DataFrame
    plans: list[Plan] = field(repr=False)

    @property
    def best(self) -> pandas.Series | None:
        """The best point that keeps to the budgets, or None. Its `options` ask plan about it alone."""
        return self._point("best")

    @property
    def best_sure(self) -> pandas.Series | None:
        """The best of the points that surely fit, or None."""
        return self._point("best_sure")

    def _point(self, name: str) -> pandas.Series | None:
        return None if self.json[name] is None else _table([self.json[name]]).iloc[0]


@dataclass
class Until:
    """How uneven routing may get: plan(until="oom"). `rows` has a row a question and point: `good` is the most uneven routing that it
    bears, `sure` the most that it surely bears (docs/plan.md)."""

    json: list = field(repr=False)
    rows: pandas.DataFrame


@dataclass
class Model:
    """A model, from a preset or a config.json. `parts` has its parameters by part."""

    json: dict = field(repr=False)
    parts: pandas.DataFrame

    @property
    def total(self) -> int:
        """Parameters in all."""
        return self.json["parameters_total"]

    @property
    def active(self) -> int:
        """Parameters at work on a token."""
        return self.json["parameters_active"]


def replay(trace: str | os.PathLike, job: Job = None, **options: Any) -> Replay:
    """Replays a routing trace: what each GPU must hold, what crosses the links, which tokens are dropped.

    replay("trace.h5", job="job.yaml", scheme=["gmm", "dense:capacity_factor=1.25"], sequences_per_gpu=[1, 2],
    stack="maxtext-rocm-2026-05", each_step=True, output="result.h5", set={"batch.micro_batches": 4})
    """
    answer = _ask_of_job("replay", [os.fspath(trace)], job, options)
    return Replay(answer, _table(answer["rows"]))


def plan(job: Job = None, **options: Any) -> Plan | Search | Until:
    """Sweeps schemes, parallel splits and batches: plan("job.yaml", trace="trace.h5", expert_parallel="all", tokens="1T").

    With search=True it is a Search, with until="oom" an Until; search() and until() say the same.
    Without trace= or routing= it assumes routing as uneven as that of a model late in its training; routing="uniform" is even.
    """
    answer = _ask_of_job("plan", [], job, options)
    if isinstance(answer, list):
        return Until(answer, _table(answer))
    if "front" in answer:
        return Search(answer, _table(answer["front"]), [Plan(one, _table(one["rows"])) for one in answer["plans"]])
    return Plan(answer, _table(answer["rows"]))


def search(job: Job = None, **options: Any) -> Search:
    """The best point of a space: search(model="glm-4.5-air", cluster="mi300x:8x4", over={"pipeline": [1, 2, 4]}, price=2)."""
    return plan(job, search=True, **options)


def until(job: Job = None, question: str | Sequence[str] = "oom", **options: Any) -> Until:
    """How uneven routing may get before a point runs out of memory, or a step is too long: until("job.yaml", ["oom", "step=1.1"])."""
    return plan(job, until=question, **options)


def explain(job: Job = None, **options: Any) -> pandas.DataFrame:
    """Where every byte of a rank's peak comes from: a row a component with formula and source; explain("job.yaml", scheme="gmm").
    With traffic=True a row a collective, with peer="megatron" (or simumax, primus) a row a figure of that planner: --as."""
    options = {"as" if name == "peer" else name: value for name, value in options.items()}
    return _table(_ask_of_job("explain", [], job, options))


def model(name: str | os.PathLike, **options: Any) -> Model:
    """What a model is made of: model("glm-4.5"), model("config.json", sequence_length=32768)."""
    answer = ask("model", os.fspath(name), *options_of(options), passes=(MISMATCH,))
    return Model(answer, _table(answer["parts"]))


def open_result(path: str | os.PathLike) -> Any:
    """What replay(..., output=path) wrote, as an xarray.Dataset: rows, bytes and drops by result, step, layer and rank.

    Needs spillway-moe[xarray].
    """
    import xarray

    return xarray.open_dataset(path, engine="h5netcdf")

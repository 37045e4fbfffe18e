"""What questions give back. Each has `json`, the whole answer, tables of pandas, and `table`: the ten columns that are read first.
print() shows the answer and that table; a notebook shows them as HTML."""
from __future__ import annotations

import html
import os
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas

GIB = 2.0**30
VERDICTS = {"fits": "fits", "tight": "may not", "oom": "no"}
# The columns of a table: heading, name in the rows, what it is divided by.
POINTS = [("scheme", "scheme", None), ("EP", "expert_parallel", None), ("sequences a GPU", "sequences_per_gpu", None),
          ("fits", "memory.verdict", None), ("GiB", "memory.max_bytes", GIB), ("tokens/s a GPU", "time.tokens_per_s_per_gpu", 1.0),
          ("low", "time.tokens_per_s_low", 1.0), ("high", "time.tokens_per_s_high", 1.0),
          ("uneven / balanced step", "time.over_balanced", 1.0), ("drops, %", "drops.fraction", 0.01)]
STEPS = [("scheme", "scheme", None), ("EP", "expert_parallel", None), ("sequences a GPU", "sequences_per_gpu", None),
         ("step", "steps.first", None), *POINTS[3:]]
FRONT = [("scheme", "scheme", None), ("EP", "expert_parallel", None), ("PP", "pipeline", None), ("TP", "tensor", None),
         ("micro-batches", "micro_batches", None), ("sequences a GPU", "sequences_per_gpu", None), ("fits", "verdict", None),
         ("GiB", "peak_bytes", GIB), ("tokens/s a GPU", "tokens_per_s_per_gpu", 1.0), ("cost", "cost.money", 1.0)]
QUESTIONS = [("question", "question", None), ("scheme", "scheme", None), ("EP", "expert_parallel", None),
             ("sequences a GPU", "sequences_per_gpu", None), ("answer", "answer", None), ("varied", "severity", None),
             ("surely up to", "sure", 1.0), ("good up to", "good", 1.0), ("today", "today", 1.0), ("drops", "dropped", 1.0)]


def table_of(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """A row each; names of values within values are joined by dots, as in memory.peak_bytes."""
    return pandas.json_normalize([dict(row) for row in rows])


def _chosen(rows: pandas.DataFrame, columns: Sequence[tuple[str, str, float | None]]) -> pandas.DataFrame:
    table = pandas.DataFrame(index=rows.index)
    for heading, name, unit in columns:
        if name not in rows:
            continue
        column = rows[name]
        table[heading] = column.map(lambda value: VERDICTS.get(value, value)) if name.endswith("verdict") else \
            column if unit is None else pandas.to_numeric(column, errors="coerce") / unit
    sure = "memory.surely_fits" if "memory.surely_fits" in rows else "surely_fits"
    if "fits" in table and sure in rows:
        table["fits"] = table["fits"].where(rows[sure] != True, "surely")  # noqa: E712
    return table


def _figure(value: float) -> str:
    """Four digits, as they are read: 1,396, 12.34, 0.1234."""
    if value != value:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _amount(value: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g}"


STYLE = "border-left:4px solid #2563eb;padding:.3em .8em;margin:.3em 0;max-width:60em"


class Answer:
    """What all answers have in common: how they are shown."""

    @property
    def sentences(self) -> list[str]:
        """The answer in short: at most three sentences."""
        return []

    @property
    def table(self) -> pandas.DataFrame:
        """The ten columns that are read first."""
        raise NotImplementedError

    def __repr__(self) -> str:
        shown = self.table.to_string(index=False, float_format=_figure, na_rep="-") if len(self.table) else ""
        return "\n".join([*self.sentences, *([shown] if shown else [])])

    def _repr_html_(self) -> str:
        box = "".join(f"<div>{html.escape(line)}</div>" for line in self.sentences)
        shown = self.table.to_html(index=False, float_format=_figure, na_rep="-", border=0) if len(self.table) else ""
        return (f'<div style="{STYLE}">{box}</div>' if box else "") + shown


def _point_words(row: Mapping[str, Any]) -> str:
    plural = "" if row["sequences_per_gpu"] == 1 else "s"
    pipeline = f", PP {row['pipeline']}" if row.get("pipeline", 1) > 1 else ""
    return f"{row['scheme']}, EP {row['expert_parallel']}{pipeline}, {row['sequences_per_gpu']} sequence{plural} a GPU"


def _cost_words(cost: Mapping[str, Any] | None, tokens: float | None) -> str:
    if not cost or cost.get("days") is None or not tokens:
        return ""
    money = f" and cost {_amount(cost['money'])}" if cost.get("money") is not None else ""
    return f"; {_amount(tokens)} tokens take {cost['days']:.3g} days ({cost['days_low']:.3g} to {cost['days_high']:.3g}){money}"


def _fit_words(verdict: str, sure: bool, needs: float, budget: float, reserved: float | None) -> str:
    """reserved: what PyTorch's allocator takes from the GPU for what is live; None: it was not replayed."""
    word = "surely fits" if sure else {"fits": "fits", "tight": "may not fit", "oom": "does not fit"}[verdict]
    held = f"{needs / GIB:.1f}" if reserved is None else f"{needs / GIB:.1f} GiB live, {reserved / GIB:.1f} reserved,"
    return f"It {word}: {held} of {budget / GIB:.1f} GiB"


@dataclass(repr=False)
class Replay(Answer):
    """What schemes need on a trace. `rows` has a row a scheme and batch; `json` is the whole answer (docs/result_format.md)."""

    json: dict = field(repr=False)
    rows: pandas.DataFrame

    @property
    def table(self) -> pandas.DataFrame:
        several = "steps.first" in self.rows and self.rows["steps.first"].nunique() > 1
        return _chosen(self.rows, STEPS if several else POINTS).iloc[:, :10]

    @property
    def sentences(self) -> list[str]:
        answers, rows = self.json.get("answers"), self.json["rows"]
        if not answers or not rows:
            return []
        fastest, least = answers["fastest"], answers["least_memory"]
        if fastest is None:
            lines = ["No point is fastest: none that fits has a time, or all drop too much."]
            return lines if least is None else [*lines, self._fit(rows[least], f"{_point_words(rows[least])} needs least. ")]
        row = rows[fastest]
        time = row["time"]
        lines = [f"Fastest: {_point_words(row)}: {_figure(time['tokens_per_s_per_gpu'])} tokens/s a GPU "
                 f"({_figure(time['tokens_per_s_low'])} to {_figure(time['tokens_per_s_high'])})"
                 + _cost_words(row.get("cost"), self.json["settings"].get("tokens")) + ".", self._fit(row)]
        sure = answers["fastest_sure"]
        if sure is None:
            lines.append("No point surely fits.")
        elif sure != fastest:
            speed = rows[sure]["time"]["tokens_per_s_per_gpu"]
            lines.append(f"The fastest that surely fits: {_point_words(rows[sure])}, {_figure(speed)} tokens/s a GPU.")
        return lines

    @staticmethod
    def _fit(row: Mapping[str, Any], before: str = "") -> str:
        memory, time, drops = row["memory"], row.get("time") or {}, row.get("drops") or {}
        reserved = memory["allocator"]["reserved"]["max_bytes"] if memory.get("allocator") else None
        uneven = f"; uneven routing makes the step {time['over_balanced']:.3f} times as long" if time.get("over_balanced") else ""
        return before + _fit_words(memory["verdict"], memory["surely_fits"], memory["max_bytes"], memory["budget_bytes"], reserved) + uneven + \
            f"; it drops {100 * (drops.get('fraction') or 0):.2f} %."

    def components(self) -> pandas.DataFrame:
        """Bytes of the peak by component: a row each scheme and batch, a column each component."""
        return self._shares("memory", "components")

    def seconds(self) -> pandas.DataFrame:
        """Seconds of a step that are not hidden behind others, by component: a row each scheme and batch."""
        table = self._shares("time", "components")
        return table.apply(lambda column: column.map(_exposed))

    def _shares(self, *path: str) -> pandas.DataFrame:
        def value(row: Any) -> Any:
            for key in path:
                row = (row or {}).get(key)
            return row or {}
        table = pandas.DataFrame([value(row) for row in self.json["rows"]])
        table.index = pandas.MultiIndex.from_arrays([self.rows["scheme"], self.rows["sequences_per_gpu"]])
        return table


def _exposed(part: Any) -> float:
    return part["exposed_s"] if isinstance(part, Mapping) else 0.0


@dataclass(repr=False)
class Plan(Replay):
    """What fits and what is fastest. `front`: rows that no other beats; `fastest`: the row to take, or None."""

    @property
    def front(self) -> pandas.DataFrame:
        return self.rows.iloc[self.json["plan"]["front"] or []]

    @property
    def fastest(self) -> pandas.Series | None:
        position = self.json["plan"]["fastest"]
        return None if position is None else self.rows.iloc[position]


@dataclass(repr=False)
class Search(Answer):
    """What search() found. `front`: points that no other beats, a row each, the best first; `plans`: the best of them as
    plan() gives them, so that their memory, time and advice can be looked at; `json` is the whole answer (docs/search.md)."""

    json: dict = field(repr=False)
    front: pandas.DataFrame
    plans: list[Plan] = field(repr=False)

    @property
    def table(self) -> pandas.DataFrame:
        return _chosen(self.front, FRONT)

    @property
    def sentences(self) -> list[str]:
        best, sure = self.json["best"], self.json["best_sure"]
        if best is None:
            return ["No point of the space keeps to the budgets."]
        tokens = self.json.get("tokens")
        lines = [f"Best: {_point_words(best)} on {best['gpus']} GPUs: {_figure(best['tokens_per_s_per_gpu'] or float('nan'))} tokens/s a GPU"
                 f"{_cost_words(best.get('cost'), tokens)}.",
                 _fit_words(best["verdict"], best["surely_fits"], best["peak_bytes"], best["budget_bytes"], best["reserved_bytes"]) + "."]
        if sure is None:
            lines.append("No point surely fits.")
        elif not best["surely_fits"]:
            lines.append(f"The best that surely fits: {_point_words(sure)}, {_figure(sure['tokens_per_s_per_gpu'] or float('nan'))} tokens/s a GPU"
                         f"{_cost_words(sure.get('cost'), tokens)}.")
        return lines

    @property
    def best(self) -> pandas.Series | None:
        """The best point that keeps to the budgets, or None. Its `options` ask plan about it alone."""
        return self._point("best")

    @property
    def best_sure(self) -> pandas.Series | None:
        """The best of the points that surely fit, or None."""
        return self._point("best_sure")

    def _point(self, name: str) -> pandas.Series | None:
        return None if self.json[name] is None else table_of([self.json[name]]).iloc[0]


@dataclass(repr=False)
class Until(Answer):
    """How uneven routing may get. `rows` has a row a question and point: `good` is the most uneven routing that it bears, `sure` the
    most that it surely bears (docs/until.md)."""

    json: list = field(repr=False)
    rows: pandas.DataFrame

    @property
    def table(self) -> pandas.DataFrame:
        return _chosen(self.rows, QUESTIONS)


@dataclass(repr=False)
class Model(Answer):
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

    @property
    def sentences(self) -> list[str]:
        return [f"{self.json['model']}: {self.total / 1e9:.1f} B parameters, {self.active / 1e9:.1f} B at work on a token."]

    @property
    def table(self) -> pandas.DataFrame:
        return self.parts.iloc[:, :10]


class FrameworkJob(dict):
    """A job that a framework's configuration is: the dictionary that plan(), replay() and search() take. `framework` says whose file it
    was, `notes` what of it has no counterpart, was assumed, or is not said: a row each."""

    def __init__(self, answer: Mapping[str, Any]):
        super().__init__(answer["job"])
        self.framework: str = answer["framework"]
        self.notes = pandas.DataFrame([{"kind": kind, **note} for kind, notes in answer["notes"].items() for note in notes],
                                      columns=["kind", "name", "line", "why"])


@dataclass(repr=False)
class Score(Answer):
    """Predictions beside runs. `rows` has a row a prediction, `json` the whole: the figures over all rows, and those by scheme."""

    json: dict = field(repr=False)
    rows: pandas.DataFrame

    @property
    def figures(self) -> pandas.Series:
        """The figures over all rows, by their names."""
        return pandas.Series({name: value for name, value in self.json.items() if not isinstance(value, (list, dict))}, dtype=object)

    @property
    def table(self) -> pandas.DataFrame:
        return self.rows.iloc[:, :10]


@dataclass(repr=False)
class Verification(Answer):
    """The simulator beside execution: `rows` has a row a scheme, `agreed` says whether every comparison did."""

    rows: pandas.DataFrame

    @property
    def agreed(self) -> bool:
        return bool((self.rows["agreed"] == self.rows["comparisons"]).all())

    @property
    def sentences(self) -> list[str]:
        return [f"{self.rows['agreed'].sum():,} of {self.rows['comparisons'].sum():,} comparisons agree."]

    @property
    def table(self) -> pandas.DataFrame:
        return self.rows[["scheme", "cases", "rows_predicted", "rows_executed", "bytes_predicted", "bytes_executed",
                          "dropped_predicted", "dropped_executed", "values", "agreed"]]


class Page(type(pathlib.Path())):  # type: ignore[misc]
    """The path of a page that report() wrote; a notebook shows the page."""

    def _repr_html_(self) -> str:
        text = html.escape(self.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{text}" style="width:100%;height:40em;border:1px solid #ccc" title="{html.escape(os.fspath(self))}"></iframe>'

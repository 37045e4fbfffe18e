"""Pictures by matplotlib (pip install spillway-moe[figures]). Each draws on the axes it is given, or on new ones, and returns them;
axes.figure.savefig("picture.png") writes a file."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas

from .results import Replay, Search
from .trace import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GIB = 2.0**30


def _axes(axes: Any) -> Axes:
    if axes is not None:
        return axes
    from matplotlib.figure import Figure

    return Figure(figsize=(8, 4.5), layout="constrained").subplots()


def memory(result: Replay, axes: Axes | None = None, components: int = 8) -> Axes:
    """What a GPU holds at its peak, by its largest components, a bar a scheme and batch, beside what may be used."""
    axes, table = _axes(axes), result.components().fillna(0) / GIB
    largest = table.sum().sort_values(ascending=False).index
    shown = table[largest[:components]].copy()
    if len(largest) > components:
        shown["the rest"] = table[largest[components:]].sum(axis=1)
    names = [f"{scheme}, {batch} a GPU" for scheme, batch in shown.index]
    left = [0.0] * len(names)
    for name in shown.columns:
        axes.barh(names, shown[name], left=left, label=name)
        left = [a + b for a, b in zip(left, shown[name])]
    axes.axvline(result.rows["memory.budget_bytes"].iloc[0] / GIB, color="black", linestyle="--", label="may be used")
    axes.set_xlabel("GiB a GPU")
    axes.invert_yaxis()
    axes.legend(fontsize="small")
    return axes


def _points(result: Replay | Search) -> pandas.DataFrame:
    """The points of a result: a row each, by the same names whatever the result is, and what each is called."""
    if isinstance(result, Search):
        table = result.front.rename(columns={"tokens_per_s_per_gpu": "time.tokens_per_s_per_gpu", "tokens_per_s_low": "time.tokens_per_s_low",
                                             "tokens_per_s_high": "time.tokens_per_s_high"})
    else:
        table = result.rows
    table = table.copy()
    table["name"] = [f"{scheme}, EP {expert}, {batch} a GPU" + (f", PP {stages}" if stages > 1 else "") for scheme, expert, batch, stages in
                     zip(table["scheme"], table["expert_parallel"], table["sequences_per_gpu"], table["pipeline"])]
    repeated = table.groupby("name").cumcount()
    table["name"] = [name if number == 0 else f"{name} ({number + 1})" for name, number in zip(table["name"], repeated)]
    return table


def _spans(result: Replay | Search, axes: Any, value: str, low: str, high: str, unit: float = 1.0) -> Axes:
    """A bar a point, with its interval."""
    axes, table = _axes(axes), _points(result)
    if value not in table or table[value].isna().all():
        raise ValueError(f"no point has {value}; a stack that has times, and for costs tokens= and price=, would be right")
    table = table[table[value].notna()]
    figures = [float(v) / unit for v in table[value]]
    below = [f - float(v) / unit for f, v in zip(figures, table[low])]
    above = [float(v) / unit - f for f, v in zip(figures, table[high])]
    axes.barh(list(table["name"]), figures, xerr=[below, above], capsize=3, color="#9db8e8")
    axes.invert_yaxis()
    return axes


def speed(result: Replay | Search, axes: Axes | None = None) -> Axes:
    """Tokens a second and GPU, a bar a point with its interval."""
    axes = _spans(result, axes, "time.tokens_per_s_per_gpu", "time.tokens_per_s_low", "time.tokens_per_s_high")
    axes.set_xlabel("tokens/s a GPU")
    return axes


def cost(result: Replay | Search, axes: Axes | None = None) -> Axes:
    """What training costs, a bar a point with its interval: in money where a price is known, else in GPU hours."""
    table = _points(result)
    money = "cost.money" in table and not table["cost.money"].isna().all()
    name = "cost.money" if money else "cost.gpu_hours"
    axes = _spans(result, axes, name, f"{name}_low", f"{name}_high", 1e3)
    axes.set_xlabel("thousands" if money else "thousands of GPU hours")
    return axes


def routing(result: Replay, axes: Axes | None = None) -> Axes:
    """How many times as long a step is as with balanced routing, a bar a point with its interval."""
    axes = _spans(result, axes, "time.over_balanced", "time.over_balanced_low", "time.over_balanced_high")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xlabel("step with this routing / step with balanced routing")
    return axes


def timeline(result: Replay | Search, axes: Axes | None = None) -> Axes:
    """The memory of one GPU within a step of the fastest point, and with balanced routing where that differs."""
    plan: Replay | None = result if isinstance(result, Replay) else result.plans[0] if result.plans else None
    line = plan.json.get("memory_timeline") if plan is not None else None
    if line is None or plan is None:
        raise ValueError("the answer has no memory over a step; a plan of a whole model, or replay() without each_step, would be right")
    axes, row = _axes(axes), plan.rows.iloc[line["row"]]
    axes.plot(line["at"], [b / GIB for b in line["bytes"]], label="this routing")
    if line["balanced"]:
        axes.plot(line["balanced"]["at"], [b / GIB for b in line["balanced"]["bytes"]], label="balanced routing")
    axes.axhline(row["memory.budget_bytes"] / GIB, color="black", linestyle="--", label="may be used")
    for name, (begin, end) in line["phases"].items():
        axes.axvline(end, color="black", linewidth=0.5)
        if name in ("forward", "backward"):
            axes.text((begin + end) / 2, 0.0, name, ha="center", va="bottom")
    axes.set(xlabel="passes of a layer", ylabel="GiB of a GPU", title=f"{row['scheme']}, stage {line['stage']}")
    axes.set_ylim(bottom=0.0)
    axes.legend(fontsize="small")
    return axes


def popularity(trace: Trace, axes: Axes | None = None, step: int = -1) -> Axes:
    """How often each expert is chosen in one step, over the mean: a line a layer, experts from the most chosen on."""
    axes, counts = _axes(axes), trace.counts(step=step % trace.steps)
    for layer, row in zip(trace.layer_ids, counts):
        axes.plot(sorted(row / max(row.mean(), 1e-300), reverse=True), label=f"layer {layer}")
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set(xlabel="experts, the most chosen first", ylabel="assignments over the mean",
             title=f"step {trace.step_ids[step]}")
    if trace.layers <= 12:
        axes.legend(fontsize="small")
    return axes

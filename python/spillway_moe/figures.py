"""Pictures by matplotlib (pip install spillway-moe[figures]). Each draws on the axes it is given, or on new ones, and returns them;
axes.figure.savefig("picture.png") writes a file."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .planner import Replay
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

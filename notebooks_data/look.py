"""How the figures and tables of the notebooks look; what a scheme's colour is."""
import matplotlib.pyplot as plt
import pandas

GIB = 2.0**30
COLOURS = {"dense:capacity_factor=1.25": "#4477aa", "dense:capacity_factor=2": "#66ccee", "dense:capacity_factor=4": "#228833",
           "gmm": "#ee6677", "gmm-deepep": "#aa3377", "ragged": "#999999", "ring": "#ccbb44"}

plt.rcParams.update({"figure.figsize": (8, 4.2), "figure.dpi": 80, "figure.constrained_layout.use": True, "font.size": 11,
                     "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#e6e6e6",
                     "axes.axisbelow": True, "legend.frameon": False, "lines.linewidth": 2, "axes.titlelocation": "left"})
pandas.set_option("display.width", 200, "display.max_columns", 20, "display.max_rows", 100, "display.precision", 3)


def short(scheme: str) -> str:
    """A scheme as a label: "dense 1.25"."""
    return scheme.replace(":capacity_factor=", " ")

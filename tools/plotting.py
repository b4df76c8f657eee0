"""What the pictures of the project's tools share: finding matplotlib, the look, curves of losses."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys

# What tools/install_dependencies provides; find_plotting_python of tools/machine.sh looks in the same places.
INTERPRETERS = (
    "/usr/bin/python3",
    os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build", "venv", "bin", "python"),
)
COLOURS = ("#1f5fa8", "#c2410c", "#15803d", "#7c3aed", "#b91c6b", "#0e7490")
GREY = "#6b7280"


class PlotError(Exception):
    """The picture could not be drawn; the message says why and what helps."""


def use_python_with_matplotlib() -> None:
    """Starts this program again under an interpreter that has matplotlib, if this one lacks it and another has it."""
    if importlib.util.find_spec("matplotlib"):
        return
    for interpreter in INTERPRETERS:
        command = [interpreter, "-c", "import matplotlib"]
        if os.access(interpreter, os.X_OK) and subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0:
            os.execv(interpreter, [interpreter, *sys.argv])


def pyplot():
    """matplotlib.pyplot, drawing to files only, with the project's look."""
    try:
        import matplotlib
    except ImportError:
        raise PlotError(
            "no matplotlib for the picture: sudo apt-get install python3-matplotlib, or pip install matplotlib"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    plt.rcParams.update(
        {
            "figure.facecolor": "white",
            "axes.facecolor": "white",
            "axes.edgecolor": "#9ca3af",
            "axes.labelcolor": "#374151",
            "axes.grid": True,
            "axes.axisbelow": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlelocation": "left",
            "axes.titleweight": "bold",
            "grid.color": "#e5e7eb",
            "xtick.color": "#374151",
            "ytick.color": "#374151",
            "font.size": 11,
            "legend.frameon": False,
        }
    )
    return plt


def smoothed(values: list[float], half_width: int) -> list[float]:
    """Mean over up to half_width neighbours on either side, NaN left out. At the start, where a loss falls steeply, the
    window shrinks on both sides alike; at the end it has fewer neighbours to the right."""
    result = []
    for i, value in enumerate(values):
        reach = min(half_width, i)
        window = [v for v in values[i - reach : i + reach + 1] if not math.isnan(v)]
        result.append(math.nan if math.isnan(value) else sum(window) / len(window))
    return result


def draw_series(axes, series: dict[int, float | None], colour: str, label: str) -> None:
    """A training curve: a noisy one is drawn faint, with its smoothed line over it. Steps without a finite value leave
    a gap and a cross at the bottom of the axes."""
    steps = list(series)
    values = [math.nan if value is None else value for value in series.values()]
    half_width = len(values) // 80
    if half_width >= 1:
        axes.plot(steps, values, color=colour, linewidth=0.8, alpha=0.3)
        values = smoothed(values, half_width)
        label += f" (mean of {2 * half_width + 1} steps)"
    marker = "o" if len(values) < 3 else None
    axes.plot(steps, values, color=colour, linewidth=1.8, label=label, marker=marker, markersize=5)
    lost = [step for step, value in series.items() if value is None]
    if lost:
        axes.plot(
            lost, [0.02] * len(lost), transform=axes.get_xaxis_transform(), linestyle="none", marker="x", color=colour,
            markersize=7, markeredgewidth=2, label="not finite", clip_on=False,
        )


def run(program: str, picture, *errors: type[Exception]) -> int:
    """The exit status of a tool that draws. `picture` draws it and returns its path, which is printed. PlotError and
    `errors` end the program with their message."""
    use_python_with_matplotlib()
    try:
        print(picture())
    except (PlotError, *errors) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    return 0


def save(figure, path: str) -> None:
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise PlotError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # an extension that matplotlib cannot write
        raise PlotError(f"{path}: {error}") from None

"""The chart of privacy loss against error, drawn by matplotlib: SVG, PNG or PDF, the same bytes every time.

Both axes are logarithmic, so that every accounting whose noise is in proportion to 1/epsilon is a straight
line. Lines differ by dashes and marks and have their names beside them, never by colour alone. Every ink has
a contrast of at least 7 to 1 on white (WCAG AAA), so that the chart can be read in grey as well.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from trafficdp.errors import one_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[float, float]
KINDS = ("svg", "png", "pdf")
WIDTH, HEIGHT = 960, 600
"""Pixels of the SVG; the PNG has twice as many."""
INK, ACCENT, MUTED, GRID = "#1a1a1a", "#0b3d91", "#4a4a4a", "#d9d9d9"
DASHES = ((), (9, 5), (2, 4), (12, 4, 2, 4), (6, 3), (1, 3), (14, 6), (4, 2, 1, 2), (8, 2), (3, 6))
MARKS = "os^DX"
_LEFT, _BOTTOM, _RIGHT, _TOP = 0.09, 0.15, 0.74, 0.87
"""Where the axes end, as shares of the picture."""
_LABEL = 0.04
"""Height of a name beside the lines, as a share of that of the axes."""
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9.5,
    "svg.fonttype": "none",
    # names of clip paths follow from this text instead of a random number
    "svg.hashsalt": "trafficdp",
    "text.parse_math": False,
}


@dataclass(frozen=True, slots=True)
class Line:
    """One accounting: ``points`` (error, epsilon), errors rising; ``chosen`` is drawn boldly."""

    name: str
    points: tuple[Point, ...]
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class LossChart:
    """What the chart shows. ``unit`` is that of errors.

    ``planned`` is the point (error, epsilon) of the release; ``left`` what every vehicle can still spend.
    """

    title: str
    subtitle: str
    unit: str
    lines: tuple[Line, ...]
    planned: Point
    left: float | None


def chart_bytes(chart: LossChart, kind: str) -> bytes:
    """Return ``chart``, which has at least one line with a point, as a file of one of KINDS.

    The same chart gives the same bytes. Raises UsageError for another kind.
    """
    # slow to load, and only charts need it; no window, whatever the machine has
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    one_of(KINDS, chart=kind)
    with rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100 if kind == "svg" else 200)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((_LEFT, _BOTTOM, _RIGHT - _LEFT, _TOP - _BOTTOM))
        figure.text(_LEFT, 0.945, chart.title, size=13, weight="bold", color=INK)
        figure.text(_LEFT, 0.905, chart.subtitle, color=MUTED)
        _draw(axes, chart)
        file = io.BytesIO()
        # no clock and no version
        silent = {"svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer")}
        silenced = dict.fromkeys(silent.get(kind, ("Software",)))
        figure.savefig(file, format=kind, metadata=silenced)
    drawn = file.getvalue()
    return _with_words(drawn, chart) if kind == "svg" else drawn


def in_words(chart: LossChart) -> str:
    """Return what the chart shows as text, for those who do not see it."""
    error, epsilon = chart.planned
    said = [f"The planned release spends epsilon {epsilon:.3g} for a noise of {error:.3g} {chart.unit}."]
    for line in chart.lines:
        if line.points:
            at = min(line.points, key=lambda point: abs(math.log(point[0] / error)))
            said.append(f"{line.name}: epsilon {at[1]:.3g} for {at[0]:.3g} {chart.unit}.")
    return " ".join(said)


def _with_words(drawn: bytes, chart: LossChart) -> bytes:
    """Give the SVG a title and a description, which screen readers read."""
    opening, mark, rest = drawn.decode("utf-8").partition("<svg ")
    attributes, end, body = rest.partition(">")
    words = (
        f'<title id="chart-title">{escape(chart.title)}</title>'
        f'<desc id="chart-words">{escape(in_words(chart))}</desc>'
    )
    role = ' role="img" aria-labelledby="chart-title chart-words"'
    return f"{opening}{mark}{attributes}{role}{end}\n{words}{body}".encode()


def _draw(axes: Axes, chart: LossChart) -> None:
    drawn = [line for line in chart.lines if line.points]
    errors, epsilons = zip(*(point for line in drawn for point in line.points), chart.planned, strict=True)
    low, high = min(epsilons) / 1.4, max(epsilons) * 1.4
    axes.set(xscale="log", yscale="log", xlim=(min(errors) / 1.15, max(errors) * 1.15), ylim=(low, high))
    for axis, (least, most) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        ticks = _ticks(least, most)
        axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_ticks([], minor=True)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, length=0)
    axes.set_xlabel(f"largest expected noise of a bin, {chart.unit} (to the left: more exact)", color=INK)
    axes.set_ylabel("epsilon a vehicle (lower: more private)", color=INK)
    height = math.log(high / low)
    ends = [math.log(line.points[-1][1] / low) / height for line in drawn]
    order = sorted(range(len(drawn)), key=ends.__getitem__)
    places = dict(zip(order, _spread([ends[number] for number in order]), strict=True))
    for number, line in enumerate(drawn):
        ink, width = (ACCENT, 2.4) if line.chosen else (INK, 1.1)
        mark, dash = MARKS[number % len(MARKS)], DASHES[number % len(DASHES)]
        # each line has dashes of its own; the chosen one is whole and bold
        style = (0, dash) if dash and not line.chosen else "-"
        axes.plot(*zip(*line.points, strict=True), color=ink, lw=width, ls=style, marker=mark, ms=5, zorder=2)
        axes.annotate(
            line.name,
            xy=line.points[-1],
            xytext=(1.05, places[number]),
            textcoords="axes fraction",
            va="center",
            color=ink,
            weight="bold" if line.chosen else "normal",
            arrowprops={"arrowstyle": "-", "color": MUTED, "linewidth": 0.6, "shrinkB": 6},
            annotation_clip=False,
        )
        axes.plot([1.035], [places[number]], mark, color=ink, ms=5, transform=axes.transAxes, clip_on=False)
    if chart.left is not None and low < chart.left < high:
        axes.axhline(chart.left, color=INK, linewidth=0.9, linestyle=(0, (3, 3)), zorder=1)
        _words(axes, f"left for every vehicle: {chart.left:.6g}", (axes.get_xlim()[1], chart.left), (-4, 4))
    axes.plot(*chart.planned, "o", ms=13, mfc="none", mec=ACCENT, mew=2, zorder=4)
    _words(axes, f"planned: epsilon {chart.planned[1]:.4g}", chart.planned, (-8, -18), bold=True)


def _words(axes: Axes, text: str, at: Point, offset: Point, *, bold: bool = False) -> None:
    """Write ``text`` to the left of a point, on white, so that lines behind it do not hide it."""
    axes.annotate(
        text,
        xy=at,
        xytext=offset,
        textcoords="offset points",
        ha="right",
        color=ACCENT if bold else INK,
        weight="bold" if bold else "normal",
        bbox={"facecolor": "#ffffff", "edgecolor": "none", "pad": 1},
        zorder=5,
    )


def _spread(wanted: Sequence[float]) -> list[float]:
    """Return rising places at least a label apart, as near to ``wanted`` (rising) as that allows."""
    placed: list[float] = []
    for y in wanted:
        placed.append(max(y, placed[-1] + _LABEL) if placed else y)
    highest = 1.0
    for number in range(len(placed) - 1, -1, -1):
        placed[number] = min(placed[number], highest)
        highest = placed[number] - _LABEL
    return placed


def _ticks(low: float, high: float) -> list[float]:
    """Return 1, 2, 5 times powers of ten within the range; powers alone when there would be many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    inside = [tick for tick in fine if low <= tick <= high]
    return inside if len(inside) <= 12 else [tick for tick in inside if f"{tick:e}".startswith("1.0")]

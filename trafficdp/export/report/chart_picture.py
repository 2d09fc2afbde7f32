"""The chart of loss against error as PNG or PDF: the shapes of its SVG, drawn by matplotlib.

It reads what ``loss_chart`` writes and nothing else: paths of straight lines, circles, words.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from trafficdp.errors import UsageError, one_of
from trafficdp.export.report.loss_chart import HEIGHT, WIDTH, LossChart, loss_chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = ("svg", "png", "pdf")
_POINTS = 0.72
"""Of a pixel: the picture has 100 to the inch."""
_SCALE = 2
"""Pixels of the PNG for one of the chart."""
_NUMBER = r"-?\d+(?:\.\d+)?"


def checked_kind(kind: str) -> str:
    """Return ``kind`` if a chart can be written as it; raise UsageError, also where matplotlib is missing."""
    kind = one_of(KINDS, chart=kind)
    if kind != "svg" and find_spec("matplotlib") is None:
        raise UsageError(
            f"a chart as {kind} is drawn by matplotlib, which is not installed",
            todo="pip install 'trafficdp[notebook]', or name a file that ends in .svg",
        )
    return kind


def chart_bytes(chart: LossChart, kind: str) -> bytes:
    """Return ``chart`` as a file of one of KINDS. The same chart gives the same bytes."""
    drawn = loss_chart(chart)
    if checked_kind(kind) == "svg":
        return drawn.encode("utf-8")
    # slow to load, and only pictures need it; no window, whatever the machine has
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100 * _SCALE)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(HEIGHT, 0))
    axes.set_axis_off()
    for node in ElementTree.fromstring(drawn).iter():
        _draw(axes, node)
    for text in axes.texts:
        text.set_rotation(90 if text.get_text().startswith("epsilon a vehicle") else 0)
    file = io.BytesIO()
    # no clock and no version: the same bytes every time
    silent = {"pdf": "CreationDate", "png": "Software"}[kind]
    figure.savefig(file, format=kind, metadata={silent: None})
    return file.getvalue()


def _draw(axes: Axes, node: ElementTree.Element) -> None:
    name, of = node.tag.rpartition("}")[2], node.attrib
    fill = of.get("fill", "#000000")
    if name == "circle":
        from matplotlib.patches import Circle

        at = float(of["cx"]), float(of["cy"])
        hollow = fill == "none"
        axes.add_patch(
            Circle(
                at,
                float(of["r"]),
                facecolor=fill,
                edgecolor=of["stroke"] if hollow else "none",
                linewidth=float(of.get("stroke-width", 0)) * _POINTS,
                zorder=2,
            )
        )
    elif name == "path":
        points = [*_points(of["d"], of.get("transform", ""))]
        xs, ys = zip(*points, strict=True)
        if fill != "none":
            axes.fill(xs, ys, color=fill, linewidth=0, zorder=2)
            return
        width = float(of["stroke-width"]) * _POINTS
        dashes = [float(each) * _POINTS / width for each in of.get("stroke-dasharray", "").split()]
        style = (0, tuple(dashes)) if dashes else "-"
        for start in _strokes(of["d"], points):
            axes.plot(
                *zip(*start, strict=True), color=of["stroke"], linewidth=width, linestyle=style, zorder=2
            )
    elif name == "text":
        from matplotlib.patheffects import withStroke

        axes.text(
            float(of["x"]),
            float(of["y"]),
            node.text or "",
            fontsize=float(of["font-size"]) * _POINTS * 0.92,
            fontweight=of["font-weight"],
            color=fill,
            ha={"start": "left", "middle": "center", "end": "right"}[of["text-anchor"]],
            va="baseline",
            rotation_mode="anchor",
            path_effects=[withStroke(linewidth=3, foreground="#ffffff")],
            zorder=3,
            parse_math=False,
        )


def _points(path: str, transform: str) -> Iterator[tuple[float, float]]:
    """Yield the corners of a path of straight lines, moved by its ``transform``."""
    moved = [float(each) for each in re.findall(_NUMBER, transform)] or [0.0, 0.0]
    x = y = 0.0
    for letter, rest in re.findall(r"([MLVHvhz])([^MLVHvhz]*)", path):
        numbers = [float(each) for each in re.findall(_NUMBER, rest)]
        if letter in "ML":
            x, y = numbers
        elif letter in "Hh":
            x = numbers[0] + (x if letter == "h" else 0)
        elif letter in "Vv":
            y = numbers[0] + (y if letter == "v" else 0)
        if letter != "z":
            yield x + moved[0], y + moved[1]


def _strokes(path: str, points: list[tuple[float, float]]) -> Iterator[list[tuple[float, float]]]:
    """Yield the lines of a path, each from where the pen was set down."""
    starts = [at for at, letter in enumerate(re.findall(r"[MLVHvh]", path)) if letter == "M"]
    for begin, end in zip(starts, [*starts[1:], len(points)], strict=True):
        yield points[begin:end]

"""A chart of privacy loss against error as one self-contained SVG: no script, no font, no other file.

Both axes are logarithmic, so that every accounting whose noise is in proportion to 1/epsilon is a straight
line. Lines differ by dashes and marks and carry their names beside them, never by colour alone; every ink
has a contrast of at least 7 to 1 on white (WCAG AAA), so that the chart reads in grey as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]
WIDTH, HEIGHT = 960, 600
LEFT, RIGHT, TOP, BOTTOM = 86, 250, 76, 92
INK, ACCENT, MUTED, GRID = "#1a1a1a", "#0b3d91", "#4a4a4a", "#d9d9d9"
DASHES = ("", "9 5", "2 4", "12 4 2 4", "6 3", "1 3", "14 6", "4 2 1 2", "8 2", "3 6")
MARKS = ("circle", "square", "triangle", "diamond", "cross")
_LABEL = 17


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


def loss_chart(chart: LossChart) -> str:
    """Return the SVG text of ``chart`` (at least one line with a point)."""
    frame = _Frame.of(chart)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-labelledby="chart-title chart-words" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f'<title id="chart-title">{escape(chart.title)}</title>',
        f'<desc id="chart-words">{escape(in_words(chart))}</desc>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(LEFT, 30, chart.title, size=18, weight="bold"),
        _text(LEFT, 52, chart.subtitle, fill=MUTED),
        *_axes(frame, chart.unit),
        *_left(frame, chart.left),
        *_lines(frame, chart.lines),
        *_planned(frame, chart.planned),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def in_words(chart: LossChart) -> str:
    """Return what the chart shows as text, for those who do not see it."""
    error, epsilon = chart.planned
    said = [f"The planned release spends epsilon {epsilon:.3g} for a noise of {error:.3g} {chart.unit}."]
    for line in chart.lines:
        if line.points:
            at = min(line.points, key=lambda point: abs(math.log(point[0] / error)))
            said.append(f"{line.name}: epsilon {at[1]:.3g} for {at[0]:.3g} {chart.unit}.")
    return " ".join(said)


@dataclass(frozen=True)
class _Frame:
    """Where errors and epsilons land in the drawing."""

    low: Point
    high: Point

    @classmethod
    def of(cls, chart: LossChart) -> _Frame:
        points = [point for line in chart.lines for point in line.points] + [chart.planned]
        errors, epsilons = zip(*points, strict=True)
        return cls((min(errors) / 1.15, min(epsilons) / 1.4), (max(errors) * 1.15, max(epsilons) * 1.4))

    def x(self, error: float) -> float:
        share = math.log(error / self.low[0]) / math.log(self.high[0] / self.low[0])
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, epsilon: float) -> float:
        share = math.log(epsilon / self.low[1]) / math.log(self.high[1] / self.low[1])
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _axes(frame: _Frame, unit: str) -> list[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for tick in _ticks(frame.low[0], frame.high[0]):
        x = frame.x(tick)
        parts.append(_stroke(x, TOP, x, bottom, GRID, 1))
        parts.append(_text(x, bottom + 20, f"{tick:g}", anchor="middle"))
    for tick in _ticks(frame.low[1], frame.high[1]):
        y = frame.y(tick)
        parts.append(_stroke(LEFT, y, right, y, GRID, 1))
        parts.append(_text(LEFT - 8, y + 4, f"{tick:g}", anchor="end"))
    middle = (TOP + bottom) / 2
    parts += [
        f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="{INK}" stroke-width="1.5"/>',
        _text(
            (LEFT + right) / 2,
            bottom + 46,
            f"largest expected noise of a bin, {unit} (to the left: more exact)",
            anchor="middle",
        ),
        f'<g transform="rotate(-90 24 {middle:g})">'
        + _text(24, middle, "epsilon a vehicle (lower: more private)", anchor="middle")
        + "</g>",
    ]
    return parts


def _left(frame: _Frame, left: float | None) -> list[str]:
    if left is None or not frame.low[1] < left < frame.high[1]:
        return []
    right, y = WIDTH - RIGHT, frame.y(left)
    return [
        _stroke(LEFT, y, right, y, INK, 1.2, "3 3"),
        _text(right - 6, y - 6, f"left for every vehicle: {left:.6g}", anchor="end"),
    ]


def _lines(frame: _Frame, lines: Sequence[Line]) -> list[str]:
    parts, labels = [], []
    for number, line in enumerate(lines):
        if not line.points:
            continue
        ink, width = (ACCENT, 3.0) if line.chosen else (INK, 1.4)
        dash = "" if line.chosen else DASHES[number % len(DASHES)]
        at = [(frame.x(error), frame.y(epsilon)) for error, epsilon in line.points]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in at)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(f'<path d="{path}" fill="none" stroke="{ink}" stroke-width="{width:g}"{dashes}/>')
        parts += [_mark(MARKS[number % len(MARKS)], x, y, ink) for x, y in at]
        labels.append((at[-1][1], at[-1][0], line, ink, MARKS[number % len(MARKS)]))
    # names at the right, moved apart, with a leader from the end of their line
    labels.sort(key=lambda label: label[0])
    places = _apart([label[0] for label in labels])
    for (y, x, line, ink, mark), place in zip(labels, places, strict=True):
        start = WIDTH - RIGHT + 22
        parts.append(_stroke(x + 6, y, start - 8, place, MUTED, 0.8))
        parts.append(_mark(mark, start, place, ink))
        parts.append(
            _text(start + 12, place + 4, line.name, weight="bold" if line.chosen else "normal", fill=ink)
        )
    return parts


def _planned(frame: _Frame, planned: Point) -> list[str]:
    x, y = frame.x(planned[0]), frame.y(planned[1])
    return [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" fill="none" stroke="{ACCENT}" stroke-width="2.5"/>',
        _text(x - 8, y + 26, f"planned: epsilon {planned[1]:.4g}", anchor="end", weight="bold", fill=ACCENT),
    ]


def _apart(wanted: list[float]) -> list[float]:
    """Return rising places at least a label apart, as near to ``wanted`` (rising) as that allows."""
    placed: list[float] = []
    for y in wanted:
        placed.append(max(y, placed[-1] + _LABEL) if placed else y)
    lowest: float = HEIGHT - BOTTOM
    for number in range(len(placed) - 1, -1, -1):
        placed[number] = min(placed[number], lowest)
        lowest = placed[number] - _LABEL
    return placed


def _ticks(low: float, high: float) -> list[float]:
    """Return 1, 2, 5 times powers of ten within the range; powers alone when there would be many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    inside = [tick for tick in fine if low <= tick <= high]
    return inside if len(inside) <= 12 else [tick for tick in inside if f"{tick:e}".startswith("1.0")]


def _mark(kind: str, x: float, y: float, ink: str) -> str:
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{ink}"/>'
    shapes = {
        "square": "M-3.5 -3.5h7v7h-7z",
        "triangle": "M0 -4.5L4.5 3.5H-4.5z",
        "diamond": "M0 -5L5 0L0 5L-5 0z",
    }
    if kind in shapes:
        return f'<path d="{shapes[kind]}" transform="translate({x:.1f} {y:.1f})" fill="{ink}"/>'
    crossed = "M-4 -4L4 4M-4 4L4 -4"
    return (
        f'<path d="{crossed}" transform="translate({x:.1f} {y:.1f})" stroke="{ink}" stroke-width="2" '
        'fill="none"/>'
    )


def _stroke(x1: float, y1: float, x2: float, y2: float, ink: str, width: float, dash: str = "") -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{ink}" stroke-width="{width:g}" '
        f'fill="none"{dashes}/>'
    )


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 13,
    anchor: str = "start",
    weight: str = "normal",
    fill: str = INK,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        # a white rim keeps words legible where lines run behind them
        f'fill="{fill}" stroke="#ffffff" stroke-width="4" paint-order="stroke">{escape(words)}</text>'
    )

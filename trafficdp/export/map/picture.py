"""Maps for paper: plain SVG shapes with their own colours, no patterns and no style sheet.

PDF writers ignore the page's style sheet inside SVG and show seams between pattern tiles; so every shape
carries its colour, and hatching is drawn as lines. Cells of one look are one path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.export.files.classes import (
    ABSENT,
    COLOURS,
    DARK,
    HATCHED,
    LIGHT,
    PLAIN,
    UNINFORMATIVE,
    WITHHELD,
    ink_on,
)
from trafficdp.export.map.drawing import Drawing, ScaleBar
from trafficdp.export.map.places import Centres

FloatArray = npt.NDArray[np.float64]
WITHHELD_COLOUR, EMPTY_COLOUR, SIGN_COLOUR = "#c9c9c9", "#ffffff", "#4d4d4d"
FELL, ROSE, UNSURE = "F", "R", "Q"
CHANGE_COLOURS = {FELL: "#5e3c99", ROSE: "#e66101", UNSURE: "#dcdcdc"}
"""PuOr: purple where speeds fell, orange where they rose; and grey where nothing can be told."""
_SHIFTS = (-0.55, 0.0, 0.55)


@dataclass(frozen=True, slots=True)
class Shape:
    """One path: filled with ``fill``, or stroked with ``stroke`` where that is given."""

    path: str
    fill: str
    stroke: str | None = None


@dataclass(frozen=True, slots=True)
class Badge:
    """A name written on the map at (x, y)."""

    x: float
    y: float
    text: str
    dark: bool


@dataclass(frozen=True)
class Picture:
    """One map: its size in drawing units, and what is drawn in that order; ``line`` is the widest sign."""

    width: int
    height: int
    outline: str
    areas: tuple[Shape, ...]
    signs: tuple[Shape, ...]
    badges: tuple[Badge, ...]
    badge_size: float
    bar: ScaleBar | None
    line: float


def fill_of(letter: str) -> str:
    """Return the colour of a cell of that look."""
    if letter in CHANGE_COLOURS:
        return CHANGE_COLOURS[letter]
    if letter in (UNINFORMATIVE, ABSENT):
        return EMPTY_COLOUR
    if letter == WITHHELD:
        return WITHHELD_COLOUR
    return COLOURS[(PLAIN if letter in PLAIN else HATCHED).index(letter)]


def draw(
    drawing: Drawing,
    paths: Sequence[str],
    centres: Centres,
    letters: npt.NDArray[np.str_],
    *,
    outline: str,
    badges: Sequence[tuple[int, str, bool]] = (),
    bar: bool = True,
) -> Picture:
    """Return the map of cells with the looks ``letters`` (shape (C,)); ``badges`` are (cell, text, dark)."""
    areas, signs = [], []
    for letter in sorted(set(letters.tolist())):
        cells = np.flatnonzero(letters == letter)
        areas.append(Shape("".join(paths[cell] for cell in cells.tolist()), fill_of(letter)))
        sign = _sign(letter, centres.x[cells], centres.y[cells], centres.radius[cells])
        if sign is not None:
            signs.append(sign)
    size = min(max(0.8 * float(np.median(centres.radius)), drawing.width / 28), drawing.width / 16)
    return Picture(
        width=drawing.width,
        height=drawing.height,
        outline=outline,
        areas=tuple(areas),
        signs=tuple(signs),
        badges=tuple(
            Badge(float(centres.x[cell]), float(centres.y[cell]), text, dark) for cell, text, dark in badges
        ),
        badge_size=size,
        bar=drawing.scale_bar if bar else None,
        line=0.17 * float(np.median(centres.radius)),
    )


def swatch(letter: str) -> Picture:
    """Return a sample of one look for a legend, 60 by 36 units."""
    centre = Centres(np.array([30.0]), np.array([18.0]), np.array([16.0]))
    sign = _sign(letter, centre.x, centre.y, centre.radius)
    area = Shape("M0 0h60v36h-60z", fill_of(letter))
    return Picture(60, 36, "", (area,), () if sign is None else (sign,), (), 0.0, None, 2.7)


def _sign(letter: str, x: FloatArray, y: FloatArray, radius: FloatArray) -> Shape | None:
    """Return what tells the look apart without colour: hatching, a cross, a dot or an arrow."""
    if letter in HATCHED:
        lines = [_line(x, y, radius, shift) for shift in _SHIFTS]
        return Shape("".join(path for line in lines for path in line), "none", ink_on(letter))
    if letter == UNINFORMATIVE:
        cross = zip(x, y, 0.35 * radius, strict=True)
        path = "".join(
            f"M{a - r:.0f} {b - r:.0f}l{2 * r:.0f} {2 * r:.0f}m0 {-2 * r:.0f}l{-2 * r:.0f} {2 * r:.0f}"
            for a, b, r in cross
        )
        return Shape(path, "none", SIGN_COLOUR)
    if letter == WITHHELD:
        dots = zip(x, y, 0.18 * radius, strict=True)
        return Shape(
            "".join(f"M{a - r:.0f} {b - r:.0f}h{2 * r:.0f}v{2 * r:.0f}h{-2 * r:.0f}z" for a, b, r in dots),
            SIGN_COLOUR,
        )
    if letter in (FELL, ROSE):
        down = 1.0 if letter == FELL else -1.0
        tips = zip(x, y, 0.5 * radius, strict=True)
        path = "".join(
            f"M{a - r:.0f} {b - down * r * 0.6:.0f}h{2 * r:.0f}l{-r:.0f} {down * 1.4 * r:.0f}z"
            for a, b, r in tips
        )
        return Shape(path, LIGHT if letter == FELL else DARK)
    return None


def _line(x: FloatArray, y: FloatArray, radius: FloatArray, shift: float) -> list[str]:
    """Diagonal chords of the circles, ``shift`` radii off the middle."""
    half = radius * np.sqrt(1 - shift**2) / np.sqrt(2)
    off = radius * shift / np.sqrt(2)
    return [
        f"M{a - h + o:.0f} {b + h + o:.0f}l{2 * h:.0f} {-2 * h:.0f}"
        for a, b, h, o in zip(x, y, half, off, strict=True)
    ]

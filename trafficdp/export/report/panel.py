"""Small diagrams of one area over its time slots: a line in a band that holds the truth."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
WIDTH, HEIGHT = 300, 150
LEFT, RIGHT, TOP, BOTTOM = 36, 8, 10, 24
_STEPS = (1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: where, and what is written there."""

    at: float
    text: str


@dataclass(frozen=True)
class Panel:
    """One diagram; paths are in drawing units."""

    band: str
    line: str
    dots: tuple[tuple[float, float], ...]
    rows: tuple[Tick, ...]
    columns: tuple[Tick, ...]


def panel(labels: list[str], numbers: tuple[FloatArray, FloatArray, FloatArray], top: float) -> Panel:
    """Return the diagram of value, low and high over the slots (shape (S,), NaN where there is none).

    The axis of numbers runs from 0 to ``top``, the same in all diagrams of a page.
    """
    value, low, high = numbers
    x = LEFT + (np.arange(len(labels)) + 0.5) * (WIDTH - LEFT - RIGHT) / len(labels)
    half = (WIDTH - LEFT - RIGHT) / len(labels) / 2
    there = ~np.isnan(value)
    band = "".join(
        f"M{a - half:.1f} {_y(up, top):.1f}h{2 * half:.1f}V{_y(down, top):.1f}h{-2 * half:.1f}z"
        for a, down, up in zip(x[there], low[there], high[there], strict=True)
    )
    steps = [
        f"{'L' if index and there[index - 1] else 'M'}{x[index]:.1f} {_y(value[index], top):.1f}"
        for index in np.flatnonzero(there)
    ]
    room = max(1, int((WIDTH - LEFT - RIGHT) / (6 * max(len(each) for each in labels) + 10)))
    every = math.ceil(len(labels) / room)
    return Panel(
        band,
        "".join(steps),
        tuple((round(float(x[i]), 1), round(_y(float(value[i]), top), 1)) for i in np.flatnonzero(there)),
        tuple(Tick(round(_y(share * top, top), 1), f"{share * top:g}") for share in (0, 0.5, 1)),
        tuple(Tick(round(float(x[i]), 1), labels[i]) for i in range(0, len(labels), every)),
    )


def nice_top(largest: float) -> float:
    """Return the least of _STEPS times a power of ten that is at least ``largest`` > 0."""
    power = 10.0 ** math.floor(math.log10(largest))
    return next(step * power for step in (*_STEPS, 20.0) if step * power >= largest)


def _y(number: float, top: float) -> float:
    return HEIGHT - BOTTOM - min(number / top, 1.0) * (HEIGHT - TOP - BOTTOM)

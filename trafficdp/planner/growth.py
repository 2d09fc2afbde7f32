"""How many more vehicles or days a map would need, told from the counts that there are.

**Vehicles.** If every vehicle were joined by others that drive just as it does, f in all for each one, every
bin would hold f N records, and U m/(f N) is what a vehicle moves a mean: losses fall by f at the same noise.
So f = (epsilon needed) / (epsilon there is), and its root where losses are rho, which fall by the square.
Exact for means; a variance falls by about as much.

**Days.** More days of the *same* vehicles, driven in the same way, bring nothing: m and N grow together and
U m/N stays (a vehicle is protected over the whole period, not a day). Days help as far as other vehicles
drive then, and new bins or slots cost more. So the effect of days is not assumed but measured: what does the
map need on the first half of the days, what on all of them? If epsilon falls from e_h on h days to e_d on d,
and goes on like (days)^-p with p = log(e_h / e_d) / log(d / h), then d (e_d / epsilon)^(1/p) days do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from trafficdp.model import Grid, Period
from trafficdp.privacy.loss import Loss, LossKind

SLOWEST = 0.05
"""Below this exponent days are said not to help."""
FARTHEST = 100.0
"""Beyond this many times the days there are, no number is foretold."""


@dataclass(frozen=True, slots=True)
class Growth:
    """``vehicles`` (a factor) and ``days`` (in all) at which ``needed`` would fall to ``allowed``.

    ``half_days`` and ``half_needed`` are what ``days`` was foretold from: None in a period of one day, or
    when the first half of it holds no map. ``days`` is None when days do not help, or not within reach.
    """

    needed: Loss
    allowed: Loss
    vehicles: float
    days_there: int
    half_days: int | None
    half_needed: Loss | None
    days: int | None


def growth(grid: Grid, needed: Loss, allowed: Loss, needed_on: Callable[[Grid], Loss | None]) -> Growth:
    """Return how far the counts would have to grow for ``allowed`` to do what takes ``needed`` now.

    ``needed_on`` gives the loss that the same map needs on another grid (here: on fewer days), None
    when none does.
    """
    days = (grid.period.last - grid.period.first).days + 1
    half = None if days < 2 else (days + 1) // 2
    half_needed = None if half is None else needed_on(_first_days(grid, half))
    return Growth(
        needed=needed,
        allowed=allowed,
        vehicles=(needed.pico / allowed.pico) ** (1 if needed.kind is LossKind.PURE else 1 / 2),
        days_there=days,
        half_days=None if half_needed is None else half,
        half_needed=half_needed,
        days=None
        if half is None or half_needed is None
        else days_until(half, half_needed, days, needed, allowed),
    )


def days_until(half: int, half_needed: Loss, days: int, needed: Loss, allowed: Loss) -> int | None:
    """Return d (e_d / epsilon)^(1/p) in whole days, None when p is below SLOWEST or it is too far off."""
    if needed <= allowed:
        return days
    p = math.log(half_needed.pico / needed.pico) / math.log(days / half)
    if p < SLOWEST:
        return None
    factor = (needed.pico / allowed.pico) ** (1 / p)
    return math.ceil(days * factor * (1 - 1e-12)) if factor <= FARTHEST else None


def _first_days(grid: Grid, days: int) -> Grid:
    period = grid.period
    last = period.first + timedelta(days=days - 1)
    return replace(grid, period=Period(period.first, last, period.time_zone))

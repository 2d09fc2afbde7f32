"""What planning finds beside an allocation: who can pay, which maps fit, what would pass."""

from __future__ import annotations

from dataclasses import dataclass

from trafficdp.model import Grid, Mosaic, SlotKind
from trafficdp.privacy.loss import Loss


@dataclass(frozen=True, slots=True)
class MapOption:
    """One map that was looked at: ``bins`` numbers over ``records`` (a share of all), at ``half_width``.

    ``fits`` says whether the half width is within what was asked; ``loss`` is the least that makes it so
    with these bins (None: none does, or not looked for because it fits).
    """

    grid: Grid
    min_vehicles: int
    bins: int
    records: float
    half_width: float
    fits: bool
    loss: Loss | None


@dataclass(frozen=True, slots=True)
class Suggestions:
    """For each lever the mildest setting that passes with the rest unchanged; None when none does.

    ``flat``: it is a map, and one number for the whole city can be released instead.
    """

    epsilon: float | None
    resolution: int | None
    slot_kind: SlotKind | None
    fleet: int | None = None
    flat: bool = False

    def in_words(self, left: Loss | None = None) -> str:
        """Return the suggestions as one phrase for an error's "what to do".

        ``left`` is what every vehicle can still spend: an epsilon beyond it is said to be beyond it.
        """
        levers = []
        if self.resolution is not None:
            levers.append(f"resolution {self.resolution}")
        if self.slot_kind is not None:
            levers.append(f'slot "{self.slot_kind.value}"')
        if self.epsilon is not None:
            beyond = left is not None and self.epsilon > float(left.exact)
            levers.append(f"epsilon {self.epsilon:.3g}" + (f", but only {left} is left" if beyond else ""))
        if self.fleet is not None:
            levers.append(f"a fleet of {self.fleet:,} vehicles")
        if not levers:
            flat = ' - or release one number for the whole city, mechanism "flat", which is never refused'
            return "no single setting passes: gather more days or more vehicles" + (flat if self.flat else "")
        return "any one of these would pass: " + ", ".join(levers) + " (--force releases it anyway, marked)"


@dataclass(frozen=True, slots=True)
class Affordable:
    """Who can pay a plan. Numbers of vehicles only: they are public under the counts assumption.

    ``paying`` vehicles would lose something, ``short`` of them have less left than they would lose, ``empty``
    of these nothing at all. ``loss`` is what all can pay for (None: some have nothing left, and then
    ``bins_without_empty`` of the map's bins are visited by none of those).
    """

    paying: int
    short: int
    empty: int
    loss: Loss | None
    bins_without_empty: int


@dataclass(frozen=True, slots=True)
class MapLevel:
    """Hexagons of one resolution in slots of one kind: how many get numbers, and their share of records."""

    resolution: int
    slot_kind: SlotKind
    bins: int
    coverage: float


@dataclass(frozen=True)
class AdaptiveMap:
    """The mosaic that was chosen and what it shows.

    ``levels`` go from the finest; ``coverage`` is the share of all records in published bins. ``value`` is
    the worth of these bins, in records; no mosaic of these levels with separate noise in every bin is worth
    more than ``bound`` (blocks may go beyond).
    """

    mosaic: Mosaic
    levels: tuple[MapLevel, ...]
    coverage: float
    value: float
    bound: float

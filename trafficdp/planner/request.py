"""What is asked of the planner, and what it finds.

What is asked of the planner, in words and numbers alone: mechanisms and accountings by their names.

What planning finds beside an allocation: who can pay, which maps fit, what would pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from trafficdp import model
from trafficdp.mechanisms.names import ADD_REMOVE_POOLED, AUTO, BASELINE, BY_RANK, PROVED
from trafficdp.privacy.loss import Loss, LossKind

if TYPE_CHECKING:
    from trafficdp.mechanisms.protocol import PublicFacts

FLEET_DECLARED = "as [map] fleet declares"
COUNTS_PERCENT, COUNTS_ALONE_PERCENT = 30, 80
"""What counts are given, per cent, where nothing is public: beside means, and where nothing else is asked."""
DETAIL = 0.1
"""What a level of detail is worth by default, as a share of being covered at all."""
MAIN = (model.Statistic.MEAN, model.Statistic.VEHICLE_MEAN, model.Statistic.VARIANCE, *model.QUANTILES)
"""The first of them that is released is the one whose intervals a half width is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSettings(model.MapRequest):
    """What is released a bin, and by which mechanism, whatever the loss.

    ``tolerance``, for each statistic, is the error that matters equally for each, in the unit of the speed
    bound (squared for the variance). ``mechanism`` names one of the registry a statistic, or "auto"; left
    out, it is that of PROVED. ``accounting`` names the one that the baseline executes; "best" takes the one
    with the smallest worst noise. ``allow_idealised`` lets a named mechanism without an exact sampler
    through; "auto" never takes one, and no file asks for it. ``answer``: to a question, not a map.
    ``adaptive``: a map of several resolutions. Under the relation ADD_OR_REMOVE_USER ``fleet`` is how many
    vehicles are expected (None: not declared), ``per_slot`` whether every slot is measured on its own, and
    ``counts_percent`` how much of the loss is for counts of vehicles and records.
    """

    tolerance: Mapping[model.Statistic, float]
    accounting: str = "best"
    mechanism: Mapping[model.Statistic, str] = field(default_factory=dict)
    allow_idealised: bool = False
    answer: bool = False
    adaptive: AdaptiveSettings | None = None
    fleet: int | None = None
    per_slot: bool = False
    counts_percent: int = 0

    @property
    def statistics(self) -> tuple[model.Statistic, ...]:
        """The statistics asked for, in the order of Statistic."""
        return tuple(statistic for statistic in model.Statistic if statistic in self.tolerance)

    @property
    def map_request(self) -> model.MapRequest:
        """What a release keeps of them: how numbers are clipped and shown."""
        return model.MapRequest(*(getattr(self, each.name) for each in fields(model.MapRequest)))


@dataclass(frozen=True, kw_only=True)
class Request(MapSettings):
    """What the planner is asked for: a map, at a total ``loss``, epsilon or rho.

    With ``simulate`` mechanisms are compared in simulated cities too, else by their worst expected errors
    alone. ``known`` are speeds that public sources know before. ``fleet`` is expected as ``fleet_by`` says.
    ``zone_km2`` is how large a zone is on average.
    """

    loss: Loss
    simulate: bool = False
    relation: model.NeighbouringRelation = model.NeighbouringRelation.REPLACE_USER_VALUES
    fleet: int = model.DEFAULT_FLEET
    fleet_by: str = FLEET_DECLARED
    zone_km2: float | None = None
    known: tuple[model.PlaceSpeeds, ...] = ()

    @property
    def mechanism_names(self) -> set[str]:
        """The names of the mechanisms asked for, over all statistics: names in the registry, or "auto"."""
        return {self.mechanism_of(each) for each in self.tolerance}

    @property
    def has_quantiles(self) -> bool:
        """Whether quantiles are asked for; these are selected by the exponential mechanism."""
        return BY_RANK in self.mechanism_names

    @property
    def main(self) -> model.Statistic:
        """The statistic that a requested half width is about: the first of MAIN among those asked for."""
        return next(statistic for statistic in MAIN if statistic in self.tolerance)

    def facts(self, counts: model.Counts) -> PublicFacts:
        """Return what mechanisms are given for the released bins: ``counts``, bound, relation and known
        speeds.
        """
        # settings are read without what mechanisms do, which loads slowly
        from trafficdp.mechanisms.protocol import PublicFacts

        known = model.KnownSpeeds.of(self.known, counts.cell, counts.slot)
        return PublicFacts(counts, self.bound, self.relation, known)

    def mechanism_of(self, statistic: model.Statistic) -> str:
        """Return the name of the mechanism asked for ``statistic``: a name in the registry, or "auto" to
        choose.
        """
        if self.relation.hides_presence:
            # nothing is chosen there, no accounting either
            return ADD_REMOVE_POOLED
        if statistic in model.QUANTILES:
            return BY_RANK
        return self.mechanism.get(statistic, PROVED[self.loss.kind])

    def with_proved_intervals(self) -> Request:
        """Return this request with the default mechanism (PROVED) in place of "auto".

        The intervals of PROVED follow from a theorem. Mechanisms asked for by name stay.
        """
        named = {each: name for each, name in self.mechanism.items() if name != AUTO}
        return replace(self, mechanism=named)

    @property
    def allows_laplace_baseline(self) -> bool:
        """Whether plain Laplace noise may be what is released, so that its accountings apply.

        So it is in epsilon, when only the baseline, "auto" or quantiles are asked for.
        """
        return self.loss.kind is LossKind.PURE and (
            self.mechanism_names <= {BASELINE, AUTO} or self.has_quantiles
        )


@dataclass(frozen=True, slots=True)
class AdaptiveSettings:
    """A map of several resolutions, from the finest, with intervals of ``half_width`` (speed bound's unit).

    ``rounding`` is how much publishing may widen an interval on each side, in the same unit; ``detail`` see
    planner.adaptive. ``longer`` are the kinds of slot to fall back on, from short to long.
    """

    resolutions: tuple[int, ...]
    half_width: Fraction
    rounding: Fraction
    detail: float = DETAIL
    longer: tuple[model.SlotKind, ...] = ()

    @property
    def unrounded_half_width(self) -> float:
        """The largest half width of intervals before publishing rounds their ends."""
        return float(self.half_width - self.rounding)


@dataclass(frozen=True, slots=True)
class MapOption:
    """One map that was looked at: ``bins`` numbers over ``records`` (a share of all), at ``half_width``.

    ``fits`` says whether the half width is within what was asked; ``loss`` is the least that makes it so
    with these bins (None: none does, or not looked for because it fits).
    """

    grid: model.Grid
    min_vehicles: int
    bins: int
    records: float
    half_width: float
    fits: bool
    loss: Loss | None


@dataclass(frozen=True, slots=True)
class Suggestions:
    """For each setting the smallest change that passes with the rest unchanged; None when none does.

    ``flat``: it is a map, and one city-wide average can be released instead.
    """

    epsilon: float | None
    resolution: int | None
    slot_kind: model.SlotKind | None
    fleet: int | None = None
    flat: bool = False

    def in_words(self, left: Loss | None = None) -> str:
        """Return the suggestions as one phrase for an error's "what to do".

        ``left`` is what every vehicle can still spend: a suggested epsilon beyond it is marked as such.
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
            flat = ', or release one city-wide average (mechanism = "flat"), which is never refused'
            return "no change of one setting makes it pass: get records of more vehicles" + (
                flat if self.flat else ""
            )
        one_of = "any one of these changes makes it pass" if len(levers) > 1 else "this change makes it pass"
        return f"{one_of}: " + ", ".join(levers) + " (--force releases it as it is)"


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
    slot_kind: model.SlotKind
    bins: int
    coverage: float


@dataclass(frozen=True)
class AdaptiveMap:
    """The mosaic that was chosen and what it shows.

    ``levels`` go from the finest; ``coverage`` is the share of all records in published bins. ``value`` is
    the worth of these bins, in records; no mosaic of these levels with separate noise in every bin is worth
    more than ``bound`` (blocks may go beyond).
    """

    mosaic: model.Mosaic
    levels: tuple[MapLevel, ...]
    coverage: float
    value: float
    bound: float

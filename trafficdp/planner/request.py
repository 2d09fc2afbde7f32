"""What is asked of the planner, in words and numbers alone: mechanisms and accountings by their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from trafficdp.mechanisms.protocol import AUTO, BASELINE, BY_RANK, HIDDEN_POOLED, PROVED, PublicFacts
from trafficdp.model import (
    DEFAULT_FLEET,
    QUANTILES,
    ContributionBound,
    Counts,
    NeighbouringRelation,
    SlotKind,
    Statistic,
)
from trafficdp.privacy.loss import Loss, LossKind

FLEET_DECLARED = "as [map] fleet declares"
COUNTS_SHARE, COUNTS_ALONE_SHARE = 30, 80
"""What counts are given, per cent, where nothing is public: beside means, and where nothing else is asked."""
DETAIL = 0.1
"""What a level of detail is worth by default, as a share of being covered at all."""
MAIN = (Statistic.MEAN, Statistic.VEHICLE_MEAN, Statistic.VARIANCE, *QUANTILES)
"""The first of them that is released is the one whose intervals a half width is about."""


@dataclass(frozen=True)
class Request:
    """What is asked for: a total loss, epsilon or rho, and what shall be released with it.

    ``tolerance`` a statistic, in its unit. ``mechanism`` names one of the
    registry a statistic, or "auto"; left out, it is that of PROVED. ``accounting`` names the one
    that the baseline executes; "best" takes the one with the smallest worst noise. With ``simulate``
    mechanisms are compared in simulated cities too, else by their worst expected errors alone.
    ``allow_idealised`` lets a named mechanism without an exact sampler through; "auto" never takes one.
    ``answer``: to a question, not a map. Under the relation ADD_OR_REMOVE_USER ``fleet`` is how many vehicles
    are expected, as ``fleet_by`` says, ``apart`` whether slots are measured apart, ``counts`` what counts of
    vehicles and records are given, per cent, and ``zone_km2`` how large a zone is on average.
    """

    loss: Loss
    bound: ContributionBound
    tolerance: Mapping[Statistic, float]
    min_vehicles: int
    interval_level: float
    accounting: str = "best"
    mechanism: Mapping[Statistic, str] = field(default_factory=dict)
    simulate: bool = False
    allow_idealised: bool = False
    relation: NeighbouringRelation = NeighbouringRelation.REPLACE_USER_VALUES
    fleet: int = DEFAULT_FLEET
    fleet_by: str = FLEET_DECLARED
    apart: bool = False
    counts: int = 0
    zone_km2: float | None = None
    answer: bool = False

    @property
    def named(self) -> set[str]:
        """What the statistics are to be released by."""
        return {self.mechanism_of(each) for each in self.tolerance}

    @property
    def by_rank(self) -> bool:
        """Whether quantiles are asked for, which are selected and have no noise that is added."""
        return BY_RANK in self.named

    @property
    def kind(self) -> LossKind:
        """What losses are counted in."""
        return self.loss.kind

    @property
    def main(self) -> Statistic:
        """The statistic whose intervals a half width is about."""
        return next(statistic for statistic in MAIN if statistic in self.tolerance)

    def facts(self, counts: Counts) -> PublicFacts:
        """Return what is public beside ``counts``, of the bins that are released."""
        return PublicFacts(counts, self.bound, self.relation)

    def mechanism_of(self, statistic: Statistic) -> str:
        """Return what ``statistic`` is to be released by: a name of the registry, or "auto"."""
        if self.relation.hides_presence:
            # nothing is chosen there, no accounting either
            return HIDDEN_POOLED
        if statistic in QUANTILES:
            return BY_RANK
        return self.mechanism.get(statistic, PROVED[self.kind])

    def with_proved_intervals(self) -> Request:
        """Return the same, with what has intervals by a theorem where "auto" would choose."""
        named = {each: name for each, name in self.mechanism.items() if name != AUTO}
        return replace(self, mechanism=named)

    @property
    def free_to_choose(self) -> bool:
        """Whether noise by ``accounting`` may be executed."""
        return self.kind is LossKind.PURE and (self.named <= {BASELINE, AUTO} or self.by_rank)


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
    longer: tuple[SlotKind, ...] = ()

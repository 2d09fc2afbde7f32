"""What every mechanism offers, and what it claims where no layer can enforce it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from trafficdp import model
from trafficdp.arrays import FloatArray, IntArray
from trafficdp.errors import UsageError
from trafficdp.measurement.laws import EntryIndex, Law, as_integers
from trafficdp.measurement.sets import ENFORCED, Measure, Priced, Ranks, Step, choice_loss
from trafficdp.privacy.disclosure import Calibration
from trafficdp.privacy.estimate import Estimate, IntervalKind
from trafficdp.privacy.loss import CHARGE_STEP, Loss, LossKind, PrivacyEvent, sum_per_user
from trafficdp.sensitive import Samples, SensitiveInputs

# What a mechanism is, and what a release executes: a calibrated mechanism, frozen with its charge.
#
# A mechanism of the registry (``Mechanism``) gives public answers without values, and has one call that sees
# them. The planner, the documents and the audits ask for the first; only the curator makes the call. So what
# is promised can never drift from what is done.
#
# A calibrated one (``CalibratedMechanism``; one file a kind, listed in ``registry``) answers everything but
# ``run`` without values: what every vehicle loses, what the manifest says, which status a number will have.
# So nothing of a release but its noisy numbers depends on a value. What either promises, its event, follows
# from its steps alone (``event_of``): ``privacy_event`` holds the parts that are the same for all.


RANGE = {LossKind.PURE: (np.nextafter(0.0, 1.0), 1e9), LossKind.ZCDP: (1e-6, 1e6)}
"""What a statistic may be given, an epsilon a bin or a rho: beyond, noise could not be drawn in 64 bits."""


@dataclass(frozen=True, eq=False)
class StatisticRequest:
    """What is asked of a mechanism: one statistic of all G bins of ``counts``, at a loss.

    ``loss`` is what it may cost, in the mechanism's ``kind``: an epsilon a bin, shape (G,), or one rho for
    all bins together, shape (). It may be infinite: then no noise is added, and nothing is priced.
    """

    counts: model.Counts
    bound: model.ContributionBound
    statistic: model.Statistic
    loss: FloatArray

    @property
    def range(self) -> float:
        """The largest possible value of the statistic, in its unit; the smallest is 0."""
        return self.statistic.largest(self.bound.upper)


class Mechanism(Protocol):
    """One published mechanism over all G bins at once, with its settings as fields."""

    @property
    def name(self) -> str:
        """The mechanism's name in the registry: lower case, underscores."""

    @property
    def citation(self) -> str:
        """The paper that describes it, as text: authors, title and number; "here" for what is new here."""

    @property
    def statistics(self) -> tuple[model.Statistic, ...]:
        """The statistics it can estimate."""

    @property
    def kind(self) -> LossKind:
        """The kind of privacy loss: pure epsilon or rho (zCDP)."""

    @property
    def enforced(self) -> bool:
        """Whether every step clips each vehicle's contribution; if not, some sensitivity is only claimed."""

    @property
    def idealised(self) -> bool:
        """Whether its noise lacks an exact sampler.

        Then it runs in simulations, and in a release only by an explicit switch that the manifest records.
        """

    def steps(self, request: StatisticRequest, /) -> tuple[Priced, ...]:
        """Return the measurement steps for ``request``, from public counts.

        No vehicle loses more than its ``loss``. Where later steps follow from earlier noisy numbers they are
        the most expensive that can come.
        """

    def expected_error(self, request: StatisticRequest, /) -> FloatArray:
        """Return a bound on each bin's expected absolute error over all possible values, shape (G,).

        From public counts alone, in the statistic's unit, rounding of speeds included; at most the
        statistic's range. Above half of it a constant in the middle would do better: mechanisms that clip,
        drop or group promise little against all values.
        """

    def estimate(
        self, samples: Samples, statistic: model.Statistic, loss: FloatArray, measure: Measure, /
    ) -> FloatArray:
        """Return noisy estimates of ``statistic`` in all bins, shape (G,), in its unit, clamped to its range.

        ``samples`` are private speeds; ``loss`` is an epsilon a bin (G,), or one rho for all bins together.
        ``measure`` draws all noise and, in a release, charges for it.
        """


@runtime_checkable
class KnownSensitivity(Protocol):
    """A mechanism of which more is known than that its numbers stay in their range."""

    def sensitivity(self, request: StatisticRequest, /) -> FloatArray:
        """Return the most that one vehicle's values change each bin's number, shape (G,), in its unit."""


Columns = Mapping[model.Statistic, Mapping[str, npt.NDArray[Any]]]
"""Published noise columns of every statistic, by their names in NOISE_COLUMNS, over the numbered bins."""
POST_PROCESSING = {
    model.Statistic.MEAN: "means are clamped to the range of the clipped speeds",
    model.Statistic.VEHICLE_MEAN: "vehicle means are clamped to the range of the clipped speeds",
    model.Statistic.VARIANCE: "variances are clamped to 0 .. U^2/4, and to mean (U - mean) by the released "
    "mean when there is one (its stated expected error is that before this); a lower end of an interval "
    "above that value follows it",
} | dict.fromkeys(
    model.QUANTILES, "vehicles' own means are clipped to the range before one of them is selected"
)
"""What every calibrated mechanism does to a noisy number, in words."""


@dataclass(frozen=True)
class PublicFacts:
    """What is public under ``relation``: the speed bound, and records of every vehicle in every bin.

    Under ADD_OR_REMOVE_USER ``counts`` are those of ``Counts.for_declared_grid``: the declared grid, and one
    vehicle that could be anywhere in it. ``known`` speeds of its bins come from public sources (None: from
    none).
    """

    counts: model.Counts
    bound: model.ContributionBound
    relation: model.NeighbouringRelation = model.NeighbouringRelation.REPLACE_USER_VALUES
    known: model.KnownSpeeds | None = None

    @property
    def public_counts(self) -> model.Counts | None:
        """The public counts; None under ADD_OR_REMOVE_USER, where nothing about a vehicle is public."""
        return self.counts if self.relation is model.NeighbouringRelation.REPLACE_USER_VALUES else None


@dataclass(frozen=True)
class JointRequest:
    """What a release asks of a mechanism besides its privacy loss: the ``statistics`` and settings.

    The settings are for ADD_OR_REMOVE_USER: ``fleet`` is the expected number of vehicles, ``per_slot``
    whether time slots are measured separately, ``counts_percent`` the per cent of the loss spent on noisy
    counts of vehicles and records, ``zone_km2`` the mean area of a zone (None: places are hexagons).
    """

    statistics: tuple[model.Statistic, ...]
    fleet: int
    per_slot: bool
    counts_percent: int
    zone_km2: float | None = None


@dataclass(frozen=True)
class Statement:
    """What is said of one statistic's noise. Numbers are in the bound's unit, to the statistic's power.

    ``noise_scale`` (shape (G,)): the expected absolute noise before clamping (Laplace noise: its scale), 0
    where no noise is needed, NaN where the mechanism has none that counts decide. ``share`` is the
    statistic's part of epsilon, None when priced jointly. ``worst_case_bias`` includes that of rounding.
    ``interval_basis`` says what the intervals rest on, a theorem or not (``interval_kind``), ``calibration``
    how they did in trials where it is none, ``unenforced`` names the theorem where what one vehicle moves is
    only claimed.
    """

    mechanism: str
    citation: str | None
    sensitivity: str
    noise_scale: FloatArray
    worst_case_bias: float
    share: float | None
    distribution: str
    sampler: str
    interval_basis: str
    post_processing: str
    idealised: bool = False
    unenforced: str | None = None
    interval_kind: IntervalKind = IntervalKind.GUARANTEED
    calibration: Calibration | None = None


class CalibratedMechanism(Protocol):
    """A mechanism with its noise fixed for one release, over all G bins of its ``public`` facts.

    It keeps the public facts that it was calibrated on, so that its methods do not take them again.
    """

    @property
    def public(self) -> PublicFacts:
        """The public facts (counts, speed bound, relation) that the noise was calibrated on."""

    @property
    def kind(self) -> str:
        """The name of this kind of calibrated mechanism in the registry."""

    @property
    def statistics(self) -> tuple[model.Statistic, ...]:
        """The statistics that it estimates, in the order of the enum Statistic."""

    @property
    def composition(self) -> str:
        """How the privacy losses of its steps add up, in words."""

    def steps(self) -> Sequence[Priced]:
        """Return the noisy measurement steps that ``run`` will take, from public facts alone."""

    def event(self) -> PrivacyEvent:
        """Return the privacy event: the exact privacy loss of every vehicle, added over ``steps``.

        Raises UsageError when the calibrated mechanism does not fit the bins, or some number would have no
        noise.
        """

    def run(
        self, values: SensitiveInputs, measure: Measure, *, interval_level: float
    ) -> dict[model.Statistic, Estimate]:
        """Measure private ``values`` once with noise, and return the estimates of all bins, by statistic.

        Intervals hold the bin's statistic of the clipped speeds with probability at least ``interval_level``.
        Raises nothing that it would not raise on values that are all 0.
        """

    def expected_errors(self) -> dict[model.Statistic, FloatArray]:
        """Return each statistic's expected absolute error at the worst values, by noise and bias, shape (G,).

        In the statistic's unit; 0 where only one number is possible. From public facts alone.
        """

    def half_widths(self, interval_level: float) -> dict[model.Statistic, FloatArray]:
        """Return the half width of each interval that ``run`` will give, before it is clamped, (G,) each.

        In the statistic's unit; 0 where no noise is needed. From public facts alone.
        """

    def statement(self, statistic: model.Statistic) -> Statement:
        """Return how ``statistic`` is made noisy, in words and numbers, for the release's manifest."""

    def to_facts(self) -> dict[str, Any]:
        """Return the mechanism, without its public facts, as plain JSON values; floats keep every bit.

        Two mechanisms on the same public facts are the same exactly when these are equal.
        """

    def manifest_facts(self) -> dict[str, Any]:
        """Return the facts for the release's manifest.

        With its published columns they restore the mechanism.
        """


@runtime_checkable
class Ranked(Protocol):
    """A calibrated mechanism of quantiles; its intervals are ranges of ranks among a bin's vehicles."""

    def rank_widths(self, level: float) -> dict[model.Statistic, FloatArray]:
        """Return the width of each quantile's interval in ranks, as a share of the bin's vehicles, (G,).

        The interval holds with probability at least ``level``. From public counts alone.
        """


@runtime_checkable
class CalibratedIntervals(Protocol):
    """A calibrated mechanism whose intervals were tuned in trials and are not proved."""

    @property
    def trials(self) -> Mapping[model.Statistic, Calibration]:
        """How often intervals held in trials, for each statistic whose intervals no theorem proves."""


@runtime_checkable
class FromKnownSpeeds(Protocol):
    """A mechanism whose prior expectations come from the public ``known`` speeds of its public facts."""

    @property
    def known(self) -> tuple[model.Knowledge, ...]:
        """The public sources of the known speeds that the prior starts from; empty if there are none."""

    def without_known(self) -> CalibratedMechanism:
        """Return this mechanism without known speeds: for trials in simulated cities, which have none."""


@runtime_checkable
class Recomputable(Protocol):
    """A calibrated mechanism whose estimates can be recomputed from its published noisy answers."""

    def steps_follow_answers(self, columns: Columns) -> bool:
        """Return whether every adaptive step of a release follows from the noisy answers before it.

        ``columns`` are the published columns of every statistic, which hold both steps and answers.
        """

    def recompute_estimates(self, columns: Columns) -> dict[model.Statistic, Estimate]:
        """Return the estimates of every statistic, recomputed from the published ``columns``."""

    def proved_intervals(
        self, columns: Columns, level: float
    ) -> dict[model.Statistic, tuple[FloatArray, FloatArray]]:
        """Return lower and upper ends of an interval proved to hold with ``level``, per bin, shape (G,) each.

        It holds the value that the mechanism would give without noise, not the true statistic.
        """


ASSUMPTIONS = {
    model.NeighbouringRelation.REPLACE_USER_VALUES: (
        model.COUNTS_PUBLIC,
        model.VALIDITY_PUBLIC,
        model.DECLARED_BOUNDS,
        model.ONE_VEHICLE_ONE_IDENTIFIER,
        model.VEHICLE_NOT_TRIP,
    ),
    model.NeighbouringRelation.ADD_OR_REMOVE_USER: (
        model.NOTHING_PUBLIC,
        model.DECLARED_BOUNDS,
        model.ONE_VEHICLE_ONE_IDENTIFIER,
        model.VEHICLE_NOT_TRIP,
    ),
}


def event_of(mechanism: Mechanism, request: StatisticRequest) -> PrivacyEvent:
    """Return the privacy event of ``mechanism``: the loss of every vehicle, from public facts alone.

    Raises UsageError for a loss or a statistic that the mechanism refuses.
    """
    promised = privacy_event(
        mechanism.name,
        PublicFacts(request.counts, request.bound),
        loss_of(mechanism.steps(request), request.counts.users),
        {request.statistic: sensitivity_of(mechanism, request)},
        kind=mechanism.kind,
    )
    return replace(promised, idealised=mechanism.idealised)


def sensitivity_of(mechanism: Mechanism, request: StatisticRequest) -> FloatArray:
    """Return the most that one vehicle changes each bin's number, shape (G,), in the statistic's unit.

    It is the range of the statistic where the mechanism states no sensitivity.
    """
    if isinstance(mechanism, KnownSensitivity):
        return mechanism.sensitivity(request)
    return np.full(request.counts.bins, request.range)


def privacy_event(
    name: str,
    public: PublicFacts,
    loss_per_user: IntArray,
    sensitivity: Mapping[model.Statistic, FloatArray] | tuple[model.Statistic, ...],
    *,
    kind: LossKind = LossKind.PURE,
) -> PrivacyEvent:
    """Return the privacy event of mechanism ``name``, by which vehicle l loses ``loss_per_user[l]``.

    Losses are in 10^-12 of ``kind``. ``sensitivity`` maps each statistic to the most that one vehicle changes
    it (G,); a tuple of statistics says that none is known.
    """
    known = dict(sensitivity) if isinstance(sensitivity, Mapping) else {}
    return PrivacyEvent(
        mechanism=name,
        statistics=tuple(sensitivity),
        relation=public.relation,
        unit="vehicle",
        bins=public.counts.bins,
        sensitivity=known,
        bound=public.bound,
        assumptions=ASSUMPTIONS[public.relation],
        loss_per_user=loss_per_user,
        kind=kind,
    )


def unenforced_theorems(mechanism: Mechanism, request: StatisticRequest) -> str | None:
    """Return the theorems on which claimed sensitivities of the mechanism rest, as text.

    None if all is enforced.
    """
    if mechanism.enforced:
        return None
    steps = mechanism.steps(request)
    return "; ".join(dict.fromkeys(each.theorem for each in claimed_steps(steps)))


def claimed_steps(steps: Sequence[Priced]) -> list[Any]:
    """Return those of ``steps`` whose loss is only claimed: no clipping in this package enforces it."""
    parts = [step.of if isinstance(step, Step) else step for step in steps]
    return [each for each in parts if not isinstance(each, (*ENFORCED, Ranks))]


def loss_of(steps: Sequence[Priced], users: int) -> IntArray:
    """Return every vehicle's total privacy loss by ``steps``, whole 10^-12, shape (users,).

    In pure epsilon each vehicle's sum is rounded up to a multiple of CHARGE_STEP.
    """
    total = np.zeros(users, dtype=np.int64)
    for step in steps:
        total = sum_per_user(np.concatenate([total, step.loss()]), np.tile(np.arange(users), 2), users)
    if any(step.kind is LossKind.ZCDP for step in steps):
        return total
    return -(-total // CHARGE_STEP) * CHARGE_STEP


def require_statistic(name: str, statistic: model.Statistic, statistics: tuple[model.Statistic, ...]) -> None:
    """Raise UsageError unless the mechanism ``name`` can estimate ``statistic``."""
    if statistic not in statistics:
        raise UsageError(
            f"{name} cannot estimate this statistic",
            got=statistic.value,
            expected="one of " + ", ".join(each.value for each in statistics),
        )


class Accounting(Protocol):
    """One way of making and accounting for noise, at any epsilon."""

    @property
    def name(self) -> str:
        """The name by which a configuration asks for this accounting, such as "exact"."""

    @property
    def composition(self) -> str:
        """How the privacy losses of the noise add up in this accounting, in words."""

    def scales(self, epsilon: float) -> dict[model.Statistic, FloatArray]:
        """Return each statistic's expected absolute noise at ``epsilon`` (of means: the Laplace scale), (G,).

        In the statistic's unit; 0 where it can only be one number.
        """

    def worst_relative_scale(self, epsilon: float, tolerance: Mapping[model.Statistic, float]) -> float:
        """Return the largest ratio of expected noise (``scales``) to tolerance over all bins and
        statistics.
        """

    def epsilon_at(self, relative_scale: float, tolerance: Mapping[model.Statistic, float]) -> float:
        """Return the epsilon at which ``worst_relative_scale`` equals ``relative_scale``."""

    def errors(self, epsilon: float) -> dict[model.Statistic, FloatArray]:
        """Return each statistic's expected absolute error at the worst values, at ``epsilon``, shape (G,).

        Numbers are clamped to their range, so that the error stays bounded for small epsilon.
        """

    def calibrate(self, loss: Loss) -> CalibratedMechanism:
        """Return the mechanism with noise that can be drawn exactly, which costs at most ``loss``.

        Raises UsageError when no noise that can be drawn fits.
        """


# What is no sum over vehicles: the mechanism claims how far one vehicle moves it, and names its theorem.
#
# Arrays of records of several vehicles, projections of their means, smooth sensitivities: nothing here can
# bring one vehicle's part inside a set. The claim is taken at its word, and everything made from it is marked
# as **unenforced** wherever it is shown. What stays enforced: ``measurement.measure`` draws the noise, and
# meters the loss, from one and the same claim.


@dataclass(frozen=True)
class ClaimedSums:
    """Sums that one vehicle moves by at most ``move`` (E,), by ``theorem``. A set like ``Box``."""

    support: EntryIndex
    move: IntArray
    theorem: str

    def sums(self, values: npt.NDArray[Any]) -> IntArray:
        """Return ``values``, which are already private sums (one a coordinate), as whole numbers."""
        return as_integers(values, self.support.coordinates)

    def largest(self) -> IntArray:
        """Return zeros: the sums are not clipped, so their size is unknown and they may not be multiplied."""
        return np.zeros(self.support.coordinates, dtype=np.int64)

    def loss(self, law: Law, shift: IntArray) -> IntArray:
        """Return every vehicle's loss under ``law`` if the claimed theorem holds, whole 10^-12, (users,)."""
        return law.loss(self.support, self.move)


@dataclass(frozen=True)
class ClaimedScores:
    """A choice by scores of which one vehicle moves each by at most ``change`` (C,), by ``theorem``."""

    support: EntryIndex
    change: FloatArray
    scale: FloatArray
    kind: LossKind
    theorem: str

    def loss(self) -> IntArray:
        """Return every vehicle's loss by the selection if the theorem holds, whole 10^-12, (users,)."""
        return choice_loss(self.support, self.change, self.scale, self.kind)


@dataclass(frozen=True)
class ClaimedNoise:
    """Noise of floats that costs each entry's vehicle ``loss_per_entry`` (E,), by ``theorem``: idealised.

    ``sampler`` turns a number of draws and a source of uniform numbers (``uniform_below``) into the draws.
    """

    support: EntryIndex
    loss_per_entry: FloatArray
    kind: LossKind
    theorem: str
    sampler: Callable[[int, Callable[[IntArray], IntArray]], FloatArray]

    def loss(self) -> IntArray:
        """Return every vehicle's privacy loss by the noise if the theorem holds, whole 10^-12, (users,)."""
        return self.support.losses(self.loss_per_entry)

    def draw(self, size: int, measure: Measure) -> FloatArray:
        """Charge the claimed loss to ``measure``, then return ``size`` independent draws of the noise."""
        measure.charge_unverified(self)
        return self.sampler(size, measure.uniform_below)

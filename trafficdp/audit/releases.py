"""What releases execute, under attack: all that a whole release measures, by every way of counting its loss.

A release is carried out on data sets that differ in one vehicle, planned as a city's map or an answer to a
priced question would be; then all its steps are drawn as often as asked, around the sums that it handed over.
The statistic is ln P(outputs | one) - ln P(outputs | other) of all steps together, at the laws that they
state: no event tells the two apart better (Neyman and Pearson), and all that is published follows from these
outputs. The claim is what that vehicle is charged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import numpy as np

from trafficdp import model
from trafficdp.arrays import FloatArray, IntArray
from trafficdp.audit.lower_bound import Draws, ReplayedDraws, replayed_ratio
from trafficdp.audit.neighbours import Neighbours, one_bin
from trafficdp.measurement.laws import Block, Gaussian, Laplace, Law
from trafficdp.measurement.measure import PrivacyMeter
from trafficdp.measurement.sets import Step
from trafficdp.mechanisms.names import ADD_REMOVE_POOLED, BY_NAME, BY_RANK
from trafficdp.mechanisms.protocol import CalibratedMechanism, JointRequest, PublicFacts
from trafficdp.mechanisms.registry import JOINT_MECHANISMS
from trafficdp.mechanisms.simulated_cities import repeat_bins
from trafficdp.noise.source import NoiseSource, SimulatedNoise
from trafficdp.planner.allocate import allocate
from trafficdp.planner.request import Request
from trafficdp.privacy.conversion import gaussian_to_approx, pure_to_zcdp, zcdp_to_approx
from trafficdp.privacy.loss import PICO, ZCDP, Loss, LossKind, PureDP
from trafficdp.sensitive import Contributions, MeasureInput, Samples, SensitiveInputs
from trafficdp.stream.horizon import MINUTE_US, Horizon
from trafficdp.stream.service import Allowance, Batch, Stream

MEAN, VARIANCE = model.Statistic.MEAN, model.Statistic.VARIANCE
RECORDS = ((4, 1, 1, 2), (3, 1, 1, 0), (0, 2, 1, 1))
"""Of every vehicle in sibling hexagons; the first is the dearest, in two of three."""
CELLS = (0x872830828FFFFFF, 0x872830829FFFFFF, 0x87283082AFFFFFF)
SEPARATELY: Mapping[LossKind, Mapping[model.Statistic, str]] = {
    LossKind.PURE: {MEAN: "pooled", VARIANCE: "worst_case_clipping"},
    LossKind.ZCDP: {MEAN: "gaussian_twin", VARIANCE: "gaussian_twin"},
}


@dataclass(frozen=True)
class AuditedRelease:
    """A release to be tested on ``pairs`` of data sets that differ in one vehicle.

    ``claim`` is the epsilon, at ``delta``, that the release charges that vehicle. ``draws`` gives draws of
    the log likelihood ratio of all outputs.
    """

    name: str
    claim: float
    draws: Draws
    pairs: list[Neighbours] = field(repr=False)
    delta: float = 0.0


def audited_releases(
    bound: model.ContributionBound, loss: PureDP, delta: float
) -> tuple[AuditedRelease, ...]:
    """Return all kinds of release to be tested, each made at ``loss`` with speeds of ``bound``.

    They are: one for every accounting; one mechanism for each statistic, in epsilon and in rho; a stream; a
    declared grid on which a vehicle's presence is hidden; quantiles over vehicles. Releases in rho are made
    at the rho that ``loss`` implies, and claim the epsilon that follows at ``delta``.
    """
    rho = pure_to_zcdp(loss)
    asked = {f"release_{name}": _request(bound, loss, accounting=name) for name in BY_NAME}
    asked["release_separately_in_epsilon"] = _request(bound, loss, mechanism=SEPARATELY[loss.kind])
    asked["release_separately_in_rho"] = _request(bound, rho, mechanism=SEPARATELY[rho.kind])
    hidden = (
        _of_anyone("release_hidden_in_epsilon", bound, loss, delta),
        _of_anyone("release_hidden_in_rho", bound, rho, delta),
    )
    return (
        *(_release(name, request, delta) for name, request in asked.items()),
        stream_release(bound, loss),
        *hidden,
        quantile_release("release_by_rank_in_epsilon", bound, loss, delta),
        quantile_release("release_by_rank_in_rho", bound, rho, delta),
    )


def _request(
    bound: model.ContributionBound,
    loss: Loss,
    accounting: str = "best",
    mechanism: Mapping[model.Statistic, str] = MappingProxyType({}),
) -> Request:
    tolerance = {MEAN: 1.0, VARIANCE: float(bound.upper)}
    return Request(
        bound, 1, 0.95, bound.unit, tolerance=tolerance, accounting=accounting, mechanism=mechanism, loss=loss
    )


def _release(name: str, request: Request, delta: float) -> AuditedRelease:
    bound = request.bound
    sides = small_city_samples(bound, 0), small_city_samples(bound, bound.upper_steps)
    pairs = [Neighbours("a vehicle in two hexagons, at 0 or at U", *sides)]
    allocation = allocate(sides[0].counts, request)
    pico = int(allocation.event.loss_per_user[0])
    if request.loss.kind is LossKind.PURE:
        return AuditedRelease(name, pico / PICO, log_likelihood_ratios(allocation.calibrated, pairs), pairs)
    claim = float(zcdp_to_approx(ZCDP(pico), delta).epsilon)
    return AuditedRelease(name, claim, log_likelihood_ratios(allocation.calibrated, pairs), pairs, delta)


def _of_anyone(name: str, bound: model.ContributionBound, loss: Loss, delta: float) -> AuditedRelease:
    whole = small_city_samples(bound, bound.upper_steps)
    counts = whole.counts
    others = small_city_samples(bound, bound.upper_steps // 2, np.array(RECORDS)[:, 1:])
    pairs = [Neighbours("a vehicle at U in two hexagons, there or not", whole, others)]
    # in epsilon many small shares hide one another from a likelihood ratio
    everything = isinstance(loss, ZCDP)
    statistics = (MEAN, VARIANCE) if everything else (MEAN,)
    wanted = JointRequest(statistics, model.DEFAULT_FLEET, per_slot=False, counts_percent=30 * everything)
    declared = Contributions.for_declared_grid(counts.cell, counts.slot, bound)
    public = PublicFacts(declared.counts, bound, model.NeighbouringRelation.ADD_OR_REMOVE_USER)
    calibrated = JOINT_MECHANISMS[ADD_REMOVE_POOLED].calibrate(public, loss, wanted)
    claim = float(gaussian_to_approx(loss, delta).epsilon) if isinstance(loss, ZCDP) else loss.pico / PICO
    draws = log_likelihood_ratios(calibrated, pairs, declared)
    return AuditedRelease(name, claim, draws, pairs, delta if isinstance(loss, ZCDP) else 0.0)


def stream_release(bound: model.ContributionBound, loss: PureDP) -> AuditedRelease:
    """Return a stream that publishes once, on a pair whose only vehicle sends two speeds of 0 or of U.

    Each draw is one bin of the stream, with a vehicle of its own.
    """
    allowance = Allowance(loss, bound.upper_steps, 3, 1, records_per_vehicle=2, products=True)
    scale = np.array([allowance.mean_scale, allowance.product_scale])
    sides = [one_bin([[own] * 2], bound) for own in (0, bound.upper_steps)]
    pairs = [Neighbours("the only vehicle of a bin, at 0 or at U", *sides)]
    # the sums of x and of x (K - x)
    beneath = [
        np.array([each.value.sum(), (each.value * (bound.upper_steps - each.value)).sum()]) for each in sides
    ]

    def outputs(samples: Samples, times: int, source: NoiseSource) -> FloatArray:
        following = Stream(Horizon(0, MINUTE_US, 1, 0, 1), allowance, 0)
        vehicle = np.repeat(np.arange(times), 2)
        value = np.tile(samples.value, times)
        following.open_accounts(vehicle)
        following.set_can_pay(np.ones(times, dtype=np.bool_))
        records = Batch(vehicle, np.tile(np.arange(2), times), vehicle, np.zeros_like(vehicle), value)
        following.process(records, 0)
        closed = following.close_step(source)
        drawn = np.zeros((0, 2)) if closed is None else closed.sums
        near, far = (np.abs(drawn - sums) for sums in beneath)
        return np.asarray(((far - near) / scale).sum(axis=1))

    return AuditedRelease("release_stream", float(allowance.loss(2).exact), outputs, pairs)


def quantile_release(name: str, bound: model.ContributionBound, loss: Loss, delta: float) -> AuditedRelease:
    """Return a release of one quantile over vehicles (the 15th percentile), compared by its likelihood ratio.

    In the pairs one of 3 or 5 vehicles goes from 0 to U, and all others stand at one step above 0: then the
    selection tells most about that vehicle.
    """
    pairs = []
    for users in (3, 5):
        sides = [one_bin([[own]] + [[1]] * (users - 1), bound) for own in (0, bound.upper_steps)]
        pairs.append(Neighbours(f"one of {users} vehicles moves from 0 to U, the others stand at 1", *sides))
    wanted = JointRequest(
        (model.Statistic.VEHICLE_P15,), model.DEFAULT_FLEET, per_slot=False, counts_percent=0
    )

    def run(samples: Samples, times: int, told: ReplayedDraws) -> CalibratedMechanism:
        copies = repeat_bins(samples, times, copy_vehicles=True)
        asked = JOINT_MECHANISMS[BY_RANK].calibrate(PublicFacts(copies.counts, bound), loss, wanted)
        values = SensitiveInputs(copies.contributions(), lambda: copies)
        asked.run(values, told, interval_level=0.95)
        return asked

    outputs = partial(replayed_ratio, run, pairs)
    pico = run(pairs[0].left, 1, ReplayedDraws(NoiselessSource(0), 1)).event().loss.pico
    if isinstance(loss, ZCDP):
        return AuditedRelease(name, float(zcdp_to_approx(ZCDP(pico), delta).epsilon), outputs, pairs, delta)
    return AuditedRelease(name, pico / PICO, outputs, pairs)


def small_city_samples(
    bound: model.ContributionBound, first_speed: int, table: IntArray | None = None
) -> Samples:
    """Return a small data set with counts ``table`` (bins, vehicles), RECORDS if None, in sibling hexagons.

    All records of the first vehicle have speed ``first_speed`` (whole steps), those of all others U/2.
    """
    table = np.array(RECORDS, dtype=np.int64) if table is None else table
    bins, users = np.nonzero(table)
    counts = model.Counts(
        cell=np.array(CELLS, dtype=np.uint64),
        slot=np.zeros(len(table), dtype=np.int64),
        users_per_bin=np.bincount(bins, minlength=len(table)),
        user_index=users.astype(np.int64),
        count=table[bins, users],
        users=table.shape[1],
    )
    speed = np.where(users == 0, first_speed, bound.upper_steps // 2)
    return Samples(counts, np.repeat(speed, counts.count), np.arange(1, counts.users + 1), bound)


def log_likelihood_ratios(
    calibrated: CalibratedMechanism, pairs: list[Neighbours], declared: Contributions | None = None
) -> Draws:
    """Return a ``Draws`` function of the log likelihood ratio of everything that ``calibrated`` measures.

    ``calibrated`` runs once without noise on each data set of ``pairs``; noise is then drawn around its exact
    sums. On a ``declared`` grid (exact sums of nobody) later steps depend on earlier answers: both data sets
    are given the noiseless answers of the left one.
    """
    promise = calibrated.event()

    def beneath(samples: Samples, said: Transcript | None) -> Transcript:
        kept = Transcript(NoiselessSource(0), promise.loss_per_user, promise.kind)
        if declared is None:
            values = SensitiveInputs(samples.contributions(), lambda: samples)
        else:
            values = SensitiveInputs(declared, lambda: samples, samples.contributions)
            kept.said = [] if said is None else list(said.drawn)
        calibrated.run(values, kept, interval_level=0.95)
        return kept

    found = []
    for pair in pairs:
        left = beneath(pair.left, None)
        found.append((left, beneath(pair.right, left)))

    def outputs(samples: Samples, times: int, source: NoiseSource) -> FloatArray:
        place = next(i for i, pair in enumerate(pairs) if samples is pair.left or samples is pair.right)
        left, right = found[place]
        own = left if samples is pairs[place].left else right
        total = np.zeros(times)
        for law, sums, one, other in zip(own.laws, own.drawn, left.drawn, right.drawn, strict=True):
            drawn = repeated_law(law, times).add(np.tile(sums, times), source).reshape(times, -1)
            total += negative_log_likelihood(law, drawn - other) - negative_log_likelihood(law, drawn - one)
        return total

    return outputs


def repeated_law(law: Law, times: int) -> Law:
    """Return the noise distribution ``law``, of C numbers, repeated for ``times`` independent draws.

    The result is for ``times`` x C numbers, one draw after another.
    """
    if isinstance(law, Block):
        copy = np.repeat(np.arange(times), len(law.block)) * law.blocks
        block = np.tile(law.block, times)
        return Block(np.tile(law.half_width, times), np.where(block < 0, -1, block + copy), law.scale)
    if isinstance(law, Gaussian):
        return Gaussian(np.tile(law.sd, times))
    return Laplace(np.tile(law.scale, times))


def negative_log_likelihood(law: Law, noise: IntArray) -> FloatArray:
    """Return -ln P(noise) under ``law`` up to a constant, shape (T,), for T draws ``noise``, shape (T, C).

    Numbers to which no noise is added are left out.
    """
    if isinstance(law, Block):
        varies = np.flatnonzero(law.block >= 0)
        units = -(-np.abs(noise[:, varies]) // law.half_width[varies])
        largest = np.zeros((len(noise), law.blocks), dtype=np.int64)
        np.maximum.at(largest, (np.arange(len(noise))[:, None], law.block[varies]), units)
        return np.asarray(largest.sum(axis=1) / law.scale, dtype=np.float64)
    if isinstance(law, Gaussian):
        varies = np.flatnonzero(law.sd > 0)
        return np.asarray(((noise[:, varies] / law.sd[varies]) ** 2).sum(axis=1) / 2, dtype=np.float64)
    varies = np.flatnonzero(law.scale > 0)
    return np.asarray((np.abs(noise[:, varies]) / law.scale[varies]).sum(axis=1), dtype=np.float64)


class Transcript(PrivacyMeter):
    """A privacy meter that also keeps every step's noise distribution (``laws``) and answer (``drawn``)."""

    def __init__(self, source: NoiseSource, charge: IntArray, kind: LossKind) -> None:
        super().__init__(source, charge, kind)
        self.laws: list[Law] = []
        self.drawn: list[IntArray] = []
        self.said: list[IntArray] = []
        """Answers to give instead of what is drawn, first to last."""

    def measure(self, step: Step, values: MeasureInput) -> IntArray:
        """Measure ``step``, keep its law and noisy sums, and return these, or the next of ``said``."""
        self.laws.append(step.law)
        self.drawn.append(super().measure(step, values))
        return self.said.pop(0) if self.said else self.drawn[-1]


class NoiselessSource(SimulatedNoise):
    """A noise source that adds no noise, so that a run returns its exact sums."""

    def laplace(self, sums: IntArray, scale: FloatArray) -> IntArray:
        """Return ``sums``."""
        return sums

    def gaussian(self, sums: IntArray, sd: FloatArray) -> IntArray:
        """Return ``sums``."""
        return sums

    def block(self, half_width: IntArray, block: IntArray, scale: FloatArray) -> IntArray:
        """Return zeros."""
        return np.zeros_like(half_width)

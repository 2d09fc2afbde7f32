"""The accountings: what the same noise costs under ever sharper accounting, from public counts.

Every accounting fixes the *shape* of the Laplace scales (how the bins compare) and a factor A: with scales
b = shape * A / epsilon, every vehicle loses at most epsilon.

===========  ==========================================  ===========================================
accounting         shape of b_g                                A
===========  ==========================================  ===========================================
basic        D*_g a statistic, times their number        G: every bin charged to every vehicle
grid_count   the same                                    G_1 = max_l (bins that vehicle l visits)
exact        the same                                    max_l sum_g loss of l in g at the shape
equal        tolerance t of the statistic, all bins      max_l sum_g loss of l in g at the shape
===========  ==========================================  ===========================================

basic and grid_count: composition of paper 003, Theorem II.3 and its corollary (mean and variance each
take their share, erratum E9). exact: Theorem A, the loss at scales b is homogeneous of degree -1 in b.
equal: for the largest error relative to the tolerance, no unsuppressed Laplace scales do better, because
any scales with b_g <= B t_g cost at least A / B.

``blocks.accounting`` adds an accounting whose noise is not Laplace, ``mean_variance.accounting`` one that
releases other sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from trafficdp._validate import positive
from trafficdp.bounding.sensitivity import joint_cost
from trafficdp.errors import UsageError
from trafficdp.mechanisms.calibrated import CalibratedPure
from trafficdp.mechanisms.laplace.baseline import expected_error, largest_sensitivity
from trafficdp.mechanisms.laplace.calibrated_lattice import CalibratedLattice
from trafficdp.mechanisms.laplace.lattice import to_lattice
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.loss import CHARGE_STEP, PICO, PureDP

FloatArray = npt.NDArray[np.float64]
Scales = Mapping[Statistic, FloatArray]
ACCOUNTINGS = ("basic", "grid_count", "exact", "equal", "blocks")
WITH_VARIANCES = ("moments",)
"""Accountings for releases of mean and variance together."""
BY_NAME = (*ACCOUNTINGS, *WITH_VARIANCES, "clip_user", "consistent")
"""What may be asked for by name; clip_user is never the best where a map says something, and consistent is
for averages over larger hexagons."""
HEADROOM = 1e-10
"""Share of epsilon kept free for rounding losses up."""


class Accounting(Protocol):
    """One way of making and accounting for noise, at any epsilon."""

    @property
    def name(self) -> str:
        """One of BY_NAME."""

    def scales(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """Return the expected absolute noise of every bin (Laplace: its scale) that costs ``epsilon``.

        Shape (G,) a statistic, in its unit; 0 where it can only be one number.
        """

    def worst_relative_scale(self, epsilon: float, tolerance: Mapping[Statistic, float]) -> float:
        """Return the largest over bins and statistics of ``scales`` over tolerance at ``epsilon``."""

    def epsilon_at(self, relative_scale: float, tolerance: Mapping[Statistic, float]) -> float:
        """Return what the accounting must claim for its worst relative scale to be ``relative_scale``."""

    def errors(self, epsilon: float, bound: ContributionBound) -> dict[Statistic, FloatArray]:
        """Return the worst-case expected error of every bin at ``epsilon`` (saturating form)."""

    def calibrate(self, counts: Counts, bound: ContributionBound, target: PureDP) -> CalibratedPure:
        """Return the noise as it will be drawn, whose exact loss is at most ``target``.

        Raises UsageError when no noise that can be drawn fits.
        """


@dataclass(frozen=True)
class LaplaceAccounting:
    """See Accounting: ``shape`` holds, a statistic, arrays of shape (G,); see the module."""

    name: str
    shape: Scales
    factor: float

    def scales(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """Return the Laplace scales (statistic's unit) that cost ``epsilon``."""
        return {s: shape * (self.factor / epsilon) for s, shape in self.shape.items()}

    def worst_relative_scale(self, epsilon: float, tolerance: Mapping[Statistic, float]) -> float:
        """Return max over bins and statistics of b / t at ``epsilon``."""
        scales = self.scales(epsilon)
        return max(float(scales[s].max(initial=0.0)) / tolerance[s] for s in scales)

    def epsilon_at(self, relative_scale: float, tolerance: Mapping[Statistic, float]) -> float:
        """Return what the accounting must claim for its worst b / t to be ``relative_scale``."""
        return self.worst_relative_scale(1.0, tolerance) / relative_scale if relative_scale > 0 else 0.0

    def errors(self, epsilon: float, bound: ContributionBound) -> dict[Statistic, FloatArray]:
        """Return the worst-case expected error of every bin at ``epsilon`` (saturating form)."""
        upper = float(bound.upper)
        return {s: expected_error(s, b, upper) for s, b in self.scales(epsilon).items()}

    def calibrate(self, counts: Counts, bound: ContributionBound, target: PureDP) -> CalibratedPure:
        """See Accounting: while the exact, rounded-up loss exceeds the target, scales grow by the excess."""
        epsilon = with_headroom(target)
        for _ in range(50 if target.pico else 0):
            calibrated = CalibratedLattice(
                {s: to_lattice(s, counts, bound, scale) for s, scale in self.scales(epsilon).items()}
            )
            spent = calibrated.event(counts, bound).loss.pico
            if spent <= target.pico:
                return calibrated
            epsilon *= target.pico / spent * (1 - 1e-13)
        raise UsageError(
            "no noise fits the epsilon", got=f"epsilon={target}", todo="ask for a larger epsilon"
        )


def with_headroom(target: PureDP) -> float:
    """Return an epsilon a hair below ``target``, which leaves room for rounding losses up to it."""
    epsilon = target.pico / PICO
    return epsilon - max(min(epsilon * HEADROOM, CHARGE_STEP / PICO / 2), epsilon * 2.0**-46)


def laplace_accountings(
    counts: Counts, bound: ContributionBound, tolerance: Mapping[Statistic, float]
) -> tuple[LaplaceAccounting, ...]:
    """Return the accountings of Laplace noise for the statistics of ``tolerance`` in all bins of ``counts``.

    ``tolerance`` gives t > 0 a statistic, in its unit: errors of statistics are compared as b / t.
    Raises UsageError when there is no bin, no statistic, or a tolerance is not positive.
    """
    for statistic, allowed in tolerance.items():
        positive(**{f"tolerance of the {statistic.value}": allowed})
    if not tolerance:
        raise UsageError("there is no statistic to release", expected="at least one statistic")
    if counts.bins == 0:
        raise UsageError("there is no bin to release", todo="lower min_vehicles or widen area and period")
    paper = {s: largest_sensitivity(s, counts, bound) * len(tolerance) for s in tolerance}
    level = {s: np.where(paper[s] > 0, t, 0.0) for s, t in tolerance.items()}
    return (
        LaplaceAccounting("basic", paper, float(counts.bins)),
        LaplaceAccounting("grid_count", paper, float(counts.bins_per_user.max())),
        LaplaceAccounting("exact", paper, float(loss(counts, bound, paper).max())),
        LaplaceAccounting("equal", level, float(loss(counts, bound, level).max())),
    )


def loss(counts: Counts, bound: ContributionBound, scales: Scales) -> FloatArray:
    """Return every user's loss (epsilon, shape (users,)) at Laplace scales of shape (G,): for planning.

    The exact loss of Theorem A in floating point; what is charged is computed on the lattice, upward.
    """
    return counts.total_per_user(pair_loss(counts, bound, scales))


def pair_loss(counts: Counts, bound: ContributionBound, scales: Scales) -> FloatArray:
    """Return what every (bin, user) pair adds to the user's loss, shape (P,)."""
    upper = float(bound.upper)
    pair = np.zeros(counts.pairs)
    samples = counts.samples_per_bin[counts.bin_index]
    if Statistic.MEAN in scales or Statistic.VARIANCE in scales:
        unit = upper / samples
        linear = unit * _inverse(scales.get(Statistic.MEAN), counts)
        quadratic = unit**2 * _inverse(scales.get(Statistic.VARIANCE), counts)
        pair = joint_cost(counts.count, samples, linear, quadratic)
    if Statistic.VEHICLE_MEAN in scales:
        users = counts.users_per_bin[counts.bin_index]
        pair = pair + upper / users * _inverse(scales[Statistic.VEHICLE_MEAN], counts)
    return pair


def floor_of_equal_scales(counts: Counts, bound: ContributionBound, epsilon: float) -> float:
    """Return G U / (L epsilon): equal scales of means are never smaller, whoever drives where.

    Proof: the mean over the L visiting vehicles of sum_g U m/N is G U / L, and the largest is no less.
    """
    visiting = int(np.count_nonzero(counts.bins_per_user))
    return counts.bins * float(bound.upper) / (visiting * epsilon)


def _inverse(scale: FloatArray | None, counts: Counts) -> FloatArray:
    """1/b a pair; 0 where a statistic is not released or can only be one number (b = 0)."""
    if scale is None:
        return np.zeros(counts.pairs)
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    result: FloatArray = inverse[counts.bin_index]
    return result

"""The accountings: what the same noise costs under ever sharper accounting, from public counts.

Every accounting fixes the *shape* of the Laplace scales (how the bins compare) and a factor A: with scales
b = shape * A / epsilon, every vehicle loses at most epsilon.

===========  ============================================  ===========================================
accounting   shape                                         A
===========  ============================================  ===========================================
basic        costs the bin's largest vehicle 1 a           G times the measurements of a bin: every bin
             measurement                                   charged to every vehicle
grid_count   the same                                      G_1 = max_l (bins that vehicle l visits) for G
exact        the same                                      max_l sum_g loss of l in g at the shape
equal        the cheapest within the tolerances, all bins  max_l sum_g loss of l in g at the shape
===========  ============================================  ===========================================

A measurement is one of vehicle means, or one of means and variances together, whose sums are priced as a pair
at the best ratio (``pairs``). basic and grid_count: composition of paper 003, Theorem II.3 and
its corollary. exact: Theorem A, the loss at scales b is homogeneous of degree -1 in b. equal: for the largest
error relative to the tolerance, no unsuppressed Laplace noise on these sums does better, because any that is
within B times the tolerances costs at least A / B.

``blocks.calibrated`` adds an accounting whose noise is not Laplace, ``clip_user`` one that leaves
vehicles out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trafficdp.arrays import FloatArray
from trafficdp.errors import UsageError, positive
from trafficdp.mechanisms.laplace.calibrated import COMPOSITION, CalibratedLaplace, LaplaceNoise
from trafficdp.mechanisms.protocol import CalibratedMechanism
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.privacy.loss import CHARGE_STEP, PICO, Loss

STATED = "the loss stated is each vehicle's exact own loss, the largest of which is the guarantee"
COMPOSITION_BY_NAME = {
    "basic": f"basic composition: epsilon is shared out over all bins and statistics; {STATED}",
    "grid_count": f"composition over the bins of the busiest vehicle; {STATED}",
    "exact": f"noise in proportion to each bin's sensitivity; {COMPOSITION}",
    "equal": f"equal noise in all bins; {COMPOSITION}",
}
HEADROOM = 1e-10
"""Share of epsilon kept free for rounding losses up."""


@dataclass(frozen=True)
class LaplaceAccounting:
    """Accounting of Laplace noise: the scales of ``shape`` cost epsilon = ``factor``.

    At another epsilon all scales are multiplied by ``factor`` / epsilon.
    """

    name: str
    shape: LaplaceNoise
    factor: float

    @property
    def composition(self) -> str:
        """How the privacy losses of the noise add up in this accounting, in words."""
        return COMPOSITION_BY_NAME[self.name]

    def noise(self, epsilon: float) -> LaplaceNoise:
        """Return the Laplace noise that costs ``epsilon`` by this accounting."""
        return self.shape.scaled(self.factor / epsilon)

    def scales(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """Return each statistic's expected absolute noise at ``epsilon``, shape (G,), in its unit."""
        return self.noise(epsilon).expected_noise()

    def worst_relative_scale(self, epsilon: float, tolerance: Mapping[Statistic, float]) -> float:
        """Return the largest ratio of expected noise (``scales``) to tolerance over bins and statistics."""
        scales = self.scales(epsilon)
        return max(float(scales[s].max(initial=0.0)) / tolerance[s] for s in scales)

    def epsilon_at(self, relative_scale: float, tolerance: Mapping[Statistic, float]) -> float:
        """Return the epsilon at which ``worst_relative_scale`` equals ``relative_scale``."""
        return self.worst_relative_scale(1.0, tolerance) / relative_scale if relative_scale > 0 else 0.0

    def errors(self, epsilon: float) -> dict[Statistic, FloatArray]:
        """Return each statistic's expected absolute error at the worst values, (G,), from public counts."""
        return self.noise(epsilon).errors()

    def calibrate(self, loss: Loss) -> CalibratedMechanism:
        """Return the mechanism with Laplace noise that can be drawn exactly and costs at most ``loss``."""
        return calibrated_within(lambda epsilon: CalibratedLaplace.of(self.noise(epsilon)), loss)


def calibrated_within(
    calibrate_at: Callable[[float], CalibratedMechanism], target: Loss
) -> CalibratedMechanism:
    """Return the mechanism ``calibrate_at``(epsilon) for the first epsilon whose exact loss is at most
    ``target``.

    Starts just below ``target`` and lowers epsilon while the exact, rounded-up loss exceeds it. Raises
    UsageError when nothing fits.
    """
    epsilon = target.pico / PICO
    epsilon -= max(min(epsilon * HEADROOM, CHARGE_STEP / PICO / 2), epsilon * 2.0**-46)
    for _ in range(50 if target.pico else 0):
        calibrated = calibrate_at(epsilon)
        spent = calibrated.event().loss.pico
        if spent <= target.pico:
            return calibrated
        epsilon *= target.pico / spent * (1 - 1e-13)
    raise UsageError("no noise fits the epsilon", got=f"epsilon={target}", todo="ask for a larger epsilon")


def laplace_accountings(
    counts: Counts, bound: ContributionBound, tolerance: Mapping[Statistic, float]
) -> tuple[LaplaceAccounting, ...]:
    """Return the accountings of Laplace noise for the statistics of ``tolerance``, from public counts.

    ``tolerance`` gives each statistic an error t > 0, in its unit: errors are compared relative to it. Raises
    UsageError when there is no bin, no statistic, or a tolerance is not positive.
    """
    for statistic, allowed in tolerance.items():
        positive(**{f"tolerance of the {statistic.value}": allowed})
    if not tolerance:
        raise UsageError("there is no statistic to release", expected="at least one statistic")
    if counts.bins == 0:
        raise UsageError("there is no bin to release", todo="lower min_vehicles or widen area and period")
    paper = LaplaceNoise.of_sensitivity(counts, bound, tolerance)
    level = LaplaceNoise.cheapest_within(counts, bound, tolerance)
    measurements = len({statistic is Statistic.VEHICLE_MEAN for statistic in tolerance})
    return (
        LaplaceAccounting("basic", paper, float(counts.bins * measurements)),
        LaplaceAccounting("grid_count", paper, float(counts.bins_per_user.max() * measurements)),
        LaplaceAccounting("exact", paper, float(paper.loss().max())),
        LaplaceAccounting("equal", level, float(level.loss().max())),
    )

"""Laplace noise on a weighted mean of vehicle means, on the integer path, over all bins at once.

Vehicle i counts for u_i whole samples at its own mean: the bin's integer is sum floor(u_i S_i / n_i), which
one vehicle changes by at most u_i K (K steps up to the bound), and discrete Laplace of scale B costs it
exactly u_i K / B. Weights w_i = u_i / sum u: the bias against other weights p is at most U TV(w, p), the
sensitivity U max w. u = n gives the mean over samples, u = 1 the mean over vehicles, u = min(n, m_c) the
weights of paper 001.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.huber_weights import normalised, weight_distance
from trafficdp.errors import UsageError
from trafficdp.mechanisms.moment import Moment, check_sums, share_of_total
from trafficdp.model.counts import Counts
from trafficdp.noise.secure import LARGEST_SCALE, group_scales
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.loss import loss_upper_bound, round_up

FINER = 64
"""Counts are multiplied by this where vehicles do not count with all their samples: less rounding."""
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
SPENT = 1 - 2.0**-38
"""Share of epsilon that noise is calibrated to, so that roundings of the loss fit into the request."""


@dataclass(frozen=True)
class WeightedMean:
    """Weighted means of all bins; ``used`` (int64, shape (P,)) is u_i, at least 1.

    Raises UsageError when the sums of a bin could leave 62 bits.
    """

    counts: Counts
    moment: Moment
    used: IntArray

    def __post_init__(self) -> None:
        check_sums(self.moment, int(self.total_used.max(initial=0)))

    @cached_property
    def weight(self) -> FloatArray:
        """Return w_i, shape (P,)."""
        return normalised(self.used, self.counts.bin_index, self.counts.bins)

    @cached_property
    def largest_used(self) -> IntArray:
        """Return max u_i of every bin, shape (G,)."""
        largest = np.zeros(self.counts.bins, dtype=np.int64)
        np.maximum.at(largest, self.counts.bin_index, self.used)
        return largest

    @cached_property
    def total_used(self) -> IntArray:
        """Return sum u_i of every bin, shape (G,)."""
        total = np.zeros(self.counts.bins, dtype=np.int64)
        np.add.at(total, self.counts.bin_index, self.used)
        return total

    @property
    def sensitivity(self) -> FloatArray:
        """Return U max w, in the moment's unit, shape (G,)."""
        result: FloatArray = self.moment.upper * self.largest_used / self.total_used
        return result

    def scale(self, epsilon: FloatArray, width: IntArray | None = None) -> FloatArray:
        """Return the lattice scale for ``epsilon`` (G,), rounded up; 0 for infinite epsilon.

        ``width`` (G,) is how many steps one sample can vary, where that is less than the moment's.
        Raises UsageError unless every epsilon is positive and the noise can be drawn exactly.
        """
        if not bool(np.all(epsilon > 0)):
            raise UsageError("epsilon is not positive", expected="a number above 0 for every bin")
        steps = np.full(self.counts.bins, self.moment.steps) if width is None else width
        scale = group_scales(round_up(self.largest_used * steps / (epsilon * SPENT)))
        scale = np.where(np.isinf(epsilon) | (steps == 0), 0.0, scale)
        if not bool(np.all(scale <= LARGEST_SCALE)):
            raise UsageError(
                "noise of this size cannot be drawn exactly",
                got=f"a scale of {float(scale.max()):.3g} steps",
                todo="ask for a larger epsilon or a larger speed_step",
            )
        return scale

    def noise_scale(self, epsilon: FloatArray) -> FloatArray:
        """Return the Laplace scale b in the moment's unit, shape (G,)."""
        result: FloatArray = self.scale(epsilon) * self.moment.unit / self.total_used
        return result

    def loss(self, epsilon: FloatArray) -> FloatArray:
        """Return each pair's loss, rounded up, shape (P,); infinite where there is no noise."""
        steps = self.used.astype(np.float64) * self.moment.steps
        return loss_upper_bound(steps, self.scale(epsilon)[self.counts.bin_index])

    def bias(self, target: FloatArray) -> FloatArray:
        """Return the worst difference to the mean with weights ``target`` (P,), rounding included, (G,)."""
        index, bins = self.counts.bin_index, self.counts.bins
        shared = np.bincount(index, weights=self.used != self.counts.count, minlength=bins)
        distance = weight_distance(self.weight, target, index, bins)
        result: FloatArray = self.moment.upper * distance + self.moment.unit * shared / self.total_used
        return result

    def error(self, epsilon: FloatArray, target: FloatArray) -> FloatArray:
        """Return a bound on the worst E|clipped estimate - mean with weights ``target``|, shape (G,).

        Bias plus b (1 - e^(-U/(2b))), the saturating error of clipped Laplace noise.
        """
        scale = self.noise_scale(epsilon)
        safe = np.where(scale > 0, scale, 1.0)
        noise = np.where(scale > 0, -scale * np.expm1(-self.moment.upper / (2 * safe)), 0.0)
        result: FloatArray = self.bias(target) + noise
        return result

    def estimate(self, totals: IntArray, epsilon: FloatArray, noise: NoiseSource) -> FloatArray:
        """Return the noisy weighted means clipped to [0, U], shape (G,), for pair sums ``totals`` (P,)."""
        part = share_of_total(totals, self.counts.count, self.used)
        return self.released(part, self.scale(epsilon), noise)

    def released(self, part: IntArray, scale: FloatArray, noise: NoiseSource) -> FloatArray:
        """Return the bins' sums of ``part`` (P,) with discrete Laplace noise of ``scale``, as means (G,)."""
        total = np.zeros(self.counts.bins, dtype=np.int64)
        np.add.at(total, self.counts.bin_index, part)
        # in floats only after the noise is in: its sum may leave 64 bits
        noisy = (total.astype(object) + noise.discrete_laplace(scale).astype(object)).astype(np.float64)
        result: FloatArray = np.clip(noisy * self.moment.unit / self.total_used, 0.0, self.moment.upper)
        return result

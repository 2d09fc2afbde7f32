"""How a published statistic's noise is distributed, as far as public facts say it: for wider intervals.

A release carries one interval a bin at one level. To compare bins, or two releases, one needs intervals at
other levels: these follow from the noise's law, whose exact parameters are published beside the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.baseline import rounding_bias
from trafficdp.model.statistic import Statistic
from trafficdp.noise.sum_tail import lattice_shift
from trafficdp.noise.tail import half_width
from trafficdp.privacy.release import Release

FloatArray = npt.NDArray[np.float64]
_COLUMNS = ("lattice_scale", "lattice_spacing")


@dataclass(frozen=True)
class LatticeLaw:
    """Independent noises s Z, Z discrete Laplace of scale B, and a bias: |estimate - s Z - truth| <= bias.

    ``lattice_scale`` B, ``step`` s and ``bias``, shape (G,); the last two in the release's display unit to
    the statistic's power. The estimate is meant before it is clamped to its range.
    """

    lattice_scale: FloatArray
    step: FloatArray
    bias: FloatArray

    @property
    def scale(self) -> FloatArray:
        """Laplace scale s B of every bin."""
        return self.lattice_scale * self.step

    @property
    def shift(self) -> FloatArray:
        """How far s Z can lie above continuous Laplace noise of the same scale (``noise.sum_tail``)."""
        return lattice_shift(self.lattice_scale) * self.step

    def half_width(self, error: float) -> FloatArray:
        """Return h with P(|estimate - truth| > h) <= ``error``, a bin. UsageError unless 0 < error < 1."""
        return half_width(self.lattice_scale, 1 - error) * self.step + self.bias

    def at(self, rows: npt.NDArray[np.int64]) -> LatticeLaw:
        """Return the law of some bins."""
        return LatticeLaw(self.lattice_scale[rows], self.step[rows], self.bias[rows])


def law_of(release: Release, statistic: Statistic) -> LatticeLaw | None:
    """Return the law of ``statistic``'s noise over all bins; None where the release publishes no lattice.

    Where a bin is withheld or needs no noise, scale and step are 0.
    """
    estimate = release.estimates[statistic]
    if not all(name in estimate.recipe for name in _COLUMNS):
        return None
    factor = float(release.bound.unit.factor_to(release.display_unit) ** statistic.power)
    scale, spacing = (np.asarray(estimate.recipe[name], dtype=np.float64) for name in _COLUMNS)
    noisy = np.nan_to_num(scale) > 0
    lattice_scale = np.where(noisy, scale, 0.0)
    step = np.where(noisy, estimate.noise_scale * factor / np.where(noisy, scale, 1.0), 0.0)
    # a sum floored to multiples of a spacing is published at the middle of the step
    bias = rounding_bias(statistic, release.bound) * factor + np.where(spacing > 1, step / 2, 0.0)
    return LatticeLaw(lattice_scale, step, bias)

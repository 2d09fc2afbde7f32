"""The noise of variances from sums of x and of x (U - x) that were drawn in blocks. See ``noise_law``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.noise.block_pair import pair_bounds

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MomentBlockLaw:
    """At most U |e1| and |e2|, each of a block of ``size`` items (``noise.block_pair``). See NoiseLaw.

    ``first`` and ``second`` are the scales a s of both, 0 where there is no noise; ``shift`` their lattices'.
    """

    size: IntArray
    first: FloatArray
    second: FloatArray
    shift: FloatArray
    bias: FloatArray

    def half_width(self, error: float) -> FloatArray:
        """See NoiseLaw."""
        half = np.zeros(len(self.bias))
        noisy = (self.first > 0) & (self.second > 0)
        half[noisy] = pair_bounds(self.size[noisy], self.first[noisy], self.second[noisy], 1 - error)[1]
        return half + self.shift + self.bias

    def at(self, rows: IntArray) -> MomentBlockLaw:
        """See NoiseLaw."""
        return MomentBlockLaw(*(values[rows] for values in vars(self).values()))

    def times(self, factor: float) -> MomentBlockLaw:
        """See NoiseLaw."""
        lengths = (values * factor for values in (self.first, self.second, self.shift, self.bias))
        return MomentBlockLaw(self.size, *lengths)

    def average_half_width(self, error: float) -> float:
        """See NoiseLaw. No more than that all bins are within their own at an equal part of the error."""
        return float((self.half_width(error / len(self.bias)) - self.bias).mean())

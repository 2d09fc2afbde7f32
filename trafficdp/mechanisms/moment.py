"""A variance from the mean and the mean of squared distances from U/2.

y = (x - U/2)^2 lies in [0, U^2/4] (a quarter of the range of x^2); with M2 its mean, the variance is
M2 - (mean - U/2)^2. For estimates m in [0, U] and M2 with errors e1, e2

    |Var' - Var| <= |e2| + |e1| |m + mean - U| <= |e2| + U |e1|.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms import publish
from trafficdp.model.statistic import Statistic

FloatArray = npt.NDArray[np.float64]


def variance_from(mean: FloatArray, second: FloatArray, upper: float) -> FloatArray:
    """Return M2 - (mean - U/2)^2 put into [0, mean (U - mean)] (Bhatia and Davis); shape (G,)."""
    raw = second - (mean - upper / 2) ** 2
    return publish.clamped(Statistic.VARIANCE, raw, upper, mean)

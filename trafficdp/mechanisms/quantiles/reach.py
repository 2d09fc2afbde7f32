"""How many ranks a private quantile may miss (``measurement.sets``): from counts alone.

**Theorem (reach).** cost(t) <= k with at least the probability p for k + 1 >= scale ln(high p / (1 - p)).
*Proof.* One candidate costs 0 and has weight 1, at most ``high`` cost k + 1 or more and weigh together at
most W = high exp(-(k + 1)/scale) <= (1 - p)/p; one of these is drawn with probability at most W/(1 + W). QED.
With equality where all vehicles have one number, above = k + 1 and n - rank = k + 1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.measurement.sets import Ranks


def reach(step: Ranks, level: float) -> npt.NDArray[np.int64]:
    """Return what the cost of the drawn number does not exceed, with at least ``level``, shape (C,)."""
    odds = np.log(np.maximum(step.high, 1) * (level / (1 - level)))
    return np.asarray(np.maximum(np.ceil(step.scale * odds * (1 + 2.0**-40)) - 1, 0), dtype=np.int64)

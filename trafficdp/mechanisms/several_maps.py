"""What two maps of one city say together, from what is published of both: how much their bins have changed.

Lambda is that of ``pooling.posterior``. Nothing of this is guaranteed: it is right as far as cities change
like the days that its constants were chosen on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from trafficdp.mechanisms.pooling.posterior import LEVELS, lambda_of, speed_of

FloatArray = npt.NDArray[np.float64]
CHANGE_SD, OF_SLOTS = 0.15, 0.2
"""Of lambda: how far a bin's mean usually changes from one map to the next, and a slot's beside that, of
which maps hardly tell. Chosen on pairs of days in Austin, 2015-03-07 to 2017-03-21."""
CHANGED = 0.05
"""By this share of its speed a bin has become slower, or faster, where the chance of it is told."""


@dataclass(frozen=True)
class Difference:
    """How much faster G bins have become, (G,) each; ``ends`` are those of intervals of LEVELS.

    ``slower`` and ``faster`` are the chances to be so by CHANGED of the speed.
    """

    value: FloatArray
    ends: dict[float, tuple[FloatArray, FloatArray]]
    slower: FloatArray
    faster: FloatArray


def difference(
    before: tuple[FloatArray, FloatArray], after: tuple[FloatArray, FloatArray], upper: float, slots: bool
) -> Difference:
    """Return what two maps say of the change of their bins, by both ends of their 80 % intervals.

    Lambda of a bin is taken as normal in either map, m and m' with s and s'. Both maps start from the same
    city, as if its places were drawn anew for each: but a place stays what it is, so that d, how far lambda
    has moved, is N(0, CHANGE_SD^2) before. After both maps it is N(k (m' - m), k (s^2 + s'^2)), with
    k = CHANGE_SD^2 / (CHANGE_SD^2 + s^2 + s'^2). In ``slots`` their own change joins both variances. A later
    map that starts from the earlier is nearer to it than its records are: so k is rather too small there.
    """
    reach = float(ndtri(0.9))
    (first, own), (last, other) = (
        ((low + high) / 2, np.maximum((high - low) / 2 / reach, 1e-6))
        for low, high in ((lambda_of(low, upper), lambda_of(high, upper)) for low, high in (before, after))
    )
    noise, further = own**2 + other**2, OF_SLOTS**2 * slots
    kept = (CHANGE_SD**2 + further) / (CHANGE_SD**2 + further + noise)
    moved, sd = kept * (last - first), np.sqrt(kept * noise + further)
    # where both maps together say that it is
    middle = (first * other**2 + last * own**2) / noise

    def faster_by(moves: FloatArray) -> FloatArray:
        return speed_of(middle + moves / 2, upper) - speed_of(middle - moves / 2, upper)

    def chance(share: float) -> FloatArray:
        speed = speed_of(middle, upper)
        limit = lambda_of((1 + share) * speed, upper) - lambda_of(speed, upper)
        return np.asarray(ndtr((limit - moved) / sd))

    wide = {level: float(ndtri((1 + level) / 2)) * sd for level in LEVELS}
    ends = {level: (faster_by(moved - half), faster_by(moved + half)) for level, half in wide.items()}
    return Difference(faster_by(moved), ends, chance(-CHANGED), 1 - chance(CHANGED))

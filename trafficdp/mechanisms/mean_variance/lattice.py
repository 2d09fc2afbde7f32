"""Sums of x (U - x) as integers: what block noise on pairs still takes from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts

if TYPE_CHECKING:
    from trafficdp.sensitive.contributions import Contributions

FloatArray = npt.NDArray[np.float64]


def exact_products(contributions: Contributions) -> npt.NDArray[np.object_]:
    """Return W = (U/q) S - Q of every bin, Q the sum of squares (Python ints, shape (G,)).

    0 for a single record, whose variance is 0 without it.
    """
    counts = contributions.counts
    pair = contributions.bound.steps * contributions.total - contributions.total_of_squares
    total = np.zeros(counts.bins, dtype=np.int64)
    np.add.at(total, counts.bin_index, pair)
    total[counts.samples_per_bin == 1] = 0
    result: npt.NDArray[np.object_] = total.astype(object)
    return result


def products_per_unit(counts: Counts, bound: ContributionBound) -> FloatArray:
    """Return how many integer steps of W one unit of a variance is, N / q^2, shape (G,)."""
    return np.asarray(counts.samples_per_bin * np.float64(1 / bound.step) ** 2)

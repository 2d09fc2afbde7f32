"""Which bins a release has: those that enough vehicles were in, by public counts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.model.counts import Counts


def kept_bins(counts: Counts, min_vehicles: int) -> tuple[npt.NDArray[np.bool_], Counts]:
    """Return which bins are released, shape (all bins,), and the counts of those alone.

    Raises UsageError when no bin has ``min_vehicles`` vehicles.
    """
    keep = counts.users_per_bin >= min_vehicles
    kept = counts.select(keep)
    if kept.bins == 0:
        raise UsageError(
            "no bin can be released",
            got=f"{counts.bins} bins, none with {min_vehicles} vehicles",
            expected=f"at least one bin with min_vehicles={min_vehicles}",
            todo="choose a coarser resolution, a longer slot or a smaller min_vehicles",
        )
    return keep, kept
